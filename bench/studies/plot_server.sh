#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plot_server.sh BIN FOLDER: the plot of docs/guides/servers.md, by gnuplot: the loss of worker.c, four workers and a server, over updates and over time, in
# all modes, on the tumours and on the digits. Worker r sleeps 5 r ms in each step, so that the last one is a straggler. BIN: the folder of twillrun
# and worker. What is measured (some three minutes) is kept in FOLDER as DATA-MODE.RANK, and not measured again if it is there.
set -eu
bin=$(cd "$1" && pwd) folder=$2
data=$(cd "$(dirname "$0")/../../examples/data" && pwd)
mkdir -p "$folder"
cd "$folder"
modes="sync k-sync k-batch-sync k-async k-batch-async async softsync bounded groups"
# means COLUMN FILE...: mean loss of all workers' mini-batches, in forty intervals of a column
means()
{
    column=$1
    shift
    cat "$@" | sort -g -k"$column","$column" | awk -v c="$column" '
        { x[NR] = $c; y[NR] = $4 }
        END {
            size = NR / 40
            for (i = 1; i <= NR; i++) {
                sx += x[i]; sy += y[i]; n++
                if (i >= size * (bin + 1)) { print sx / n, sy / n; sx = sy = n = 0; bin++ }
            }
        }'
}
for set in wdbc digits; do
    epochs=25
    [ $set = wdbc ] || epochs=12
    for mode in $modes; do
        name=$set-$mode
        [ -s "$name.4" ] || [ -s "$name.3" ] || "$bin/twillrun" -n 5 --bind none --oversubscribe "$bin/worker" --data "$data/$set.csv" --layout nc \
            --mode "$mode" --k 2 --epochs $epochs --rate 0.05 --wait 5 --curve "$name" >"$name.txt"
        means 2 "$name".[1-4] >"$name-time.dat"
        means 3 "$name".[1-4] >"$name-updates.dat"
    done
done
gnuplot <<END
set terminal svg size 900,760 font 'sans-serif,12' background rgb 'white'
set output 'server-loss.svg'
set linetype 9 linecolor rgb 'gray50' linewidth 2 # gnuplot has eight colours
set linetype cycle 9
set grid
set key noenhanced font ',10'
set logscale y
set ylabel 'mean loss of mini-batches'
set multiplot layout 2,2 title 'worker.c: four workers, of which the slowest sleeps 20 ms in a step; K = 2'
do for [data in 'wdbc digits'] {
    set xlabel 'updates, '.data.'.csv'
    plot for [m in '$modes'] data.'-'.m.'-updates.dat' with lines lw 2 title m
    set xlabel 'seconds, '.data.'.csv'
    plot for [m in '$modes'] data.'-'.m.'-time.dat' with lines lw 2 title m
}
unset multiplot
END

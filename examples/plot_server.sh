#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plot_server.sh BIN FOLDER: the plot of docs/server.md, by gnuplot: the loss of worker.c, four workers and a server, over time and over updates, in
# several modes. Worker r sleeps 5 r ms in each step, so that the last one is a straggler. BIN: the folder of twillrun and worker.
# What is measured (a minute) is kept in FOLDER as MODE.RANK, and not measured again if it is there.
set -eu
bin=$(cd "$1" && pwd) folder=$2
data=$(cd "$(dirname "$0")" && pwd)/data/wdbc.csv
mkdir -p "$folder"
cd "$folder"
modes="sync k-sync k-async k-batch-async async"
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
for mode in $modes; do
    [ -s "$mode.4" ] || "$bin/twillrun" -n 5 --bind none --oversubscribe "$bin/worker" --data "$data" --layout nc --mode "$mode" --k 2 --epochs 25 \
        --rate 0.05 --wait 5 --curve "$mode" >"$mode.txt"
    means 2 "$mode".[1-4] >"$mode-time.dat"
    means 3 "$mode".[1-4] >"$mode-updates.dat"
done
gnuplot <<END
set terminal svg size 860,400 font 'sans-serif,12' background rgb 'white'
set output 'server-loss.svg'
set grid
set key noenhanced
set logscale y
set ylabel 'mean loss of mini-batches'
set multiplot layout 1,2 title 'worker.c on wdbc.csv: four workers, of which the slowest sleeps 20 ms in a step; K = 2'
set xlabel 'updates'
plot for [m in '$modes'] m.'-updates.dat' with lines lw 2 title m
set xlabel 'seconds'
plot for [m in '$modes'] m.'-time.dat' with lines lw 2 title m
unset multiplot
END

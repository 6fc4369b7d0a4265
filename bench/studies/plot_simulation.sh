#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plot_simulation.sh BIN FOLDER: the plots of docs/results/simulation.md, by gnuplot (half a minute). BIN: the folder of twill-simulate. What was
# simulated is kept in FOLDER as *.csv.
set -eu
simulate=$(cd "$1" && pwd)/twill-simulate folder=$2
mkdir -p "$folder"
cd "$folder"
# rows NAME MODE: the lines of NAME.csv of a mode, as gnuplot reads them
rows()
{
    awk -F, -v mode="$2" '$1 == mode { for (i = 1; i <= NF; i++) printf "%s ", $i == "" ? "NaN" : $i; print "" }' "$1.csv"
}
for workers in 2 4 8 16 32 64 128 256 512 1024; do
    half=$((workers / 2))
    "$simulate" --csv -p $workers -u 4000 sync k-sync:$half k-batch-async:$half async
done | sed 's/:[0-9]*,/,/' >times.csv
modes="sync k-sync:4 k-batch-sync:4 k-async:4 k-batch-async:4 async"
# shellcheck disable=SC2086 # a list
"$simulate" --csv --curve -p 8 -u 1000 -r 100 --rate 0.05 $modes >tradeoff.csv
for rule in fixed staleness distance:0.02; do
    "$simulate" --csv --curve -p 30 -u 1000 -r 20 -c uniform:0.5,1.5 --rate 0.9 --noise 0.01 --rule $rule async |
        sed "s/^async,/${rule%:*},/"
done >stability.csv
"$simulate" --csv --histogram -p 30 -u 20000 -c uniform:0.5,1.5 softsync:1 softsync:15 softsync:30 >staleness.csv
for endpoints in 1 2 4 8; do
    "$simulate" --csv -p 1,2,4,8,12,16,24,32,48,64 -u 3000 -c uniform:0.09,0.11 -b 100M --server-link 1250M \
        --worker-link 1250M --endpoints $endpoints sync async | sed "s/^/$endpoints/"
done >endpoints.csv
for name in times tradeoff stability staleness endpoints; do
    cut -d, -f1 $name.csv | sort -u | while read -r mode; do
        rows $name "$mode" >"$name-$(echo "$mode" | tr -d :).dat"
    done
done
gnuplot <<'END'
set terminal svg size 860,400 font 'sans-serif,12' background rgb 'white'
set grid
set style data linespoints
set pointsize 0.4
set key noenhanced
set output 'simulation-times.svg'
set title 'Time of an update; gradients take 1 s on average, exponential; K = P/2'
set xrange [1:2000]
set logscale xy
set xlabel 'workers'
set ylabel 'seconds'
set key right bottom
plot 'times-sync.dat' using 2:3 with points pt 7 lc 1 ps 0.7 title 'sync (points: simulated, lines: exact)', '' using 2:4 with lines lc 1 notitle, \
     'times-k-sync.dat' using 2:3 with points pt 7 lc 2 ps 0.7 title 'k-sync', '' using 2:4 with lines lc 2 notitle, \
     'times-k-batch-async.dat' using 2:3 with points pt 7 lc 3 ps 0.7 title 'k-batch-async', '' using 2:4 with lines lc 3 notitle, \
     'times-async.dat' using 2:3 with points pt 7 lc 4 ps 0.7 title 'async', '' using 2:4 with lines lc 4 notitle
set output 'simulation-tradeoff.svg'
set key top right
set format y '%g'
unset logscale x
unset title
set xrange [*:*]
set multiplot layout 1,2 title '8 workers, learning rate 0.05: mean loss of 100 runs'
set xlabel 'updates'
set ylabel 'loss'
plot for [m in 'sync k-sync4 k-batch-sync4 k-async4 k-batch-async4 async'] 'tradeoff-'.m.'.dat' using 3:5 with lines lw 2 title m
set xlabel 'seconds'
set xrange [0:120]
plot for [m in 'sync k-sync4 k-batch-sync4 k-async4 k-batch-async4 async'] 'tradeoff-'.m.'.dat' using 4:5 with lines lw 2 title m
unset multiplot
set output 'simulation-stability.svg'
set xrange [0:1000]
set yrange [1e-6:1e8]
set format y '10^{%L}'
set title 'async, 30 workers, learning rate 0.9 (twice 0.9 is stable without staleness): mean loss of 20 runs'
set xlabel 'updates'
plot 'stability-fixed.dat' using 3:5 with lines lw 2 title 'fixed', \
     'stability-staleness.dat' using 3:5 with lines lw 2 title 'rate / staleness', \
     'stability-distance.dat' using 3:5 with lines lw 2 title 'min(0.02 / distance, rate)'
set output 'simulation-staleness.svg'
unset logscale
set yrange [0:*]
set xrange [-1:62]
set format y '%g'
set title 'n-softsync of 30 workers: staleness of gradients'
set xlabel 'staleness'
set ylabel 'part of the gradients'
set logscale y
set yrange [1e-5:1.5]
plot 'staleness-softsync1.dat' using 3:5 with linespoints pt 7 title 'n = 1', \
     'staleness-softsync15.dat' using 3:5 with linespoints pt 7 title 'n = 15', \
     'staleness-softsync30.dat' using 3:5 with linespoints pt 7 title 'n = 30'
set output 'simulation-endpoints.svg'
unset logscale
set yrange [0:*]
set xrange [0:66]
set key left top
unset title
set multiplot layout 1,2 title '100 MiB of parameters, links of 1.22 GiB/s, gradients take 0.1 s'
set xlabel 'workers'
set ylabel 'gradients per second, sync'
plot for [e in '1 2 4 8'] 'endpoints-'.e.'sync.dat' using 2:6 title e.' endpoints'
set ylabel 'gradients per second, async'
plot for [e in '1 2 4 8'] 'endpoints-'.e.'async.dat' using 2:6 title e.' endpoints'
END

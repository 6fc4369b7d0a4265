#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plot_elastic.sh BIN FOLDER: the plot of docs/guides/recovery.md, by gnuplot: the loss of train.c on four ranks, one of which is killed
# every three seconds and replaced, beside that of four ranks that live. BIN: the folder of twillrun and train. What is measured
# (half a minute) is kept in FOLDER as elastic.txt and undisturbed.txt, and not measured again if it is there.
set -eu
bin=$(cd "$1" && pwd) folder=$2
data=$(cd "$(dirname "$0")/../../examples/data" && pwd)/wdbc.csv
mkdir -p "$folder"
cd "$folder"
# train: four ranks, some 15 s, line by line
train()
{
    "$bin/twillrun" --elastic 2:4 --bind none "$bin/train" --data "$data" --elastic --pause 18
}
[ -s undisturbed.txt ] || train >undisturbed.txt
if [ ! -s elastic.txt ]; then
    train >elastic.txt 2>deaths.txt &
    run=$!
    for nth in 4 1 3 2; do # of twillrun's children, so that each rank dies once
        sleep 3
        launcher=$(pgrep -P $run -x twillrun || echo $run)
        kill -9 "$(pgrep -P "$launcher" -x train | sed -n ${nth}p)"
    done
    wait $run
fi
for name in undisturbed elastic; do
    awk '$1 == "epoch" { print $6, $4 }' $name.txt >$name.dat
done
awk '$1 == "shrunk" { print $8, 0.034 }' elastic.txt >shrunk.dat
awk '$1 == "grown" { print $6, 0.031 }' elastic.txt >grown.dat
gnuplot <<END
set terminal svg size 720,400 font 'sans-serif,12' background rgb 'white'
set output 'recovery-loss.svg'
set grid
set title 'Loss of train.c on four ranks, of which one is killed every three seconds'
set xlabel 's'
set ylabel 'mean training loss of an epoch'
set logscale y
set yrange [0.028:0.4]
set xrange [0:]
plot 'undisturbed.dat' with lines lw 6 lc rgb 'light-gray' title 'no rank dies', \
     'elastic.dat' with linespoints lw 2 pt 7 ps 0.3 title 'ranks die and are replaced', \
     'shrunk.dat' with points pt 11 ps 1.2 lc rgb 'red' title 'three ranks go on', \
     'grown.dat' with points pt 9 ps 1.2 lc rgb 'dark-green' title 'four ranks again'
END

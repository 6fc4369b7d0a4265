#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plot_training.sh BIN FOLDER: the plots of docs/guides/training.md, by gnuplot: what is exposed of ResNet-50's reductions over the
# bucket size, and a step with compressed gradients over the rate of the link. Both are measured between two hosts of this
# machine (root only; some 5 minutes) by overlap_hosts.sh and between_hosts.sh, whose output is kept in FOLDER as
# overlap.txt and compression-RATE.txt; those that are there are not measured again. BIN: the folder of twillrun.
set -eu
bin=$(cd "$1" && pwd) folder=$2
studies=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
cd "$folder"
[ -s overlap.txt ] || "$studies/overlap_hosts.sh" "$bin" resnet50 --overlap test --device --device-gflops 400 \
    --bucket 256K,1M,4M,16M,64M -n 3 -w 1 >overlap.txt
rm -f steps.dat
for rate in 250mbit 1gbit 4gbit 10gbit 40gbit; do
    [ -s compression-$rate.txt ] ||
        "$studies/between_hosts.sh" "$bin" $rate compression.py 4194304 >compression-$rate.txt
    awk -v rate=$rate '
        BEGIN { mbit = rate ~ /gbit/ ? 1000 * rate : rate + 0 }
        $1 == 4194304 { ratio[$2] = $5 }
        END { print mbit, ratio["f32"], ratio["f16"], ratio["int8"], ratio["f8e4m3"], ratio["top_k"] }
    ' compression-$rate.txt >>steps.dat
done
awk '$1 + 0 > 0 && NF > 15 { print $1, $10, $13 }' overlap.txt >exposed.dat
gnuplot <<END
set terminal svg size 720,400 font 'sans-serif,12' background rgb 'white'
set grid
set output 'training-exposed.svg'
set title 'ResNet-50, two hosts, 1 Gbit/s: exposed communication of a step'
set logscale xy
set logscale x 2
set format x '%.0b %BB'
set xlabel 'bucket size'
set ylabel 'ms'
plot 'exposed.dat' using 1:2 with linespoints lw 2 title 'reduced after the backward pass', \
     '' using 1:3 with linespoints lw 2 title 'reduced during it'
set output 'training-compression.svg'
set title 'A step of 4 MiB of gradients, two hosts: time / that of f32'
unset logscale
set logscale x
set format x '%g'
set xlabel 'link, Mbit/s'
set ylabel 'ratio'
set yrange [0:1.1]
set key outside right noenhanced
plot 'steps.dat' using 1:2 with lines lw 2 lc rgb 'black' title 'f32', '' using 1:3 with linespoints lw 2 title 'f16', \
     '' using 1:4 with linespoints lw 2 title 'int8', '' using 1:5 with linespoints lw 2 title 'f8e4m3', \
     '' using 1:6 with linespoints lw 2 title 'top_k, 1 %'
END

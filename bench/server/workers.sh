#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# workers.sh BIN [MODEL [STEPS]]: exchanges of a model's gradients a second as workers grow from 1 to 16, with one server that does not work and has one core
# (a thread), all on this machine. "server GB/s": what its core moves, which reads W gradients, reads and writes the parameters, and stores them
# to W workers: (2 W + 2) n bytes. Above it what the sums of the library move on one core, of buffers as large. BIN: the folder of
# twillrun. MODEL: a list in bench/gradients (googlenet).
set -eu
bin=$(cd "$1" && pwd) model=${2:-googlenet} steps=${3:-5}
list=$(cd "$(dirname "$0")/.." && pwd)/gradients/$model.txt
bytes=$(awk '$1 + 0 > 0 { n += $1 } END { printf "%d", 4 * n }' "$list")
echo "# $model, $bytes bytes; $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
"$bin/twill-bench" kernels 'sum f32' -b 64M -e 64M -n 5 | sed 's/^/# /'
printf '%8s %14s %14s %14s\n' workers exchanges/s gradients/s 'server GB/s'
for workers in 1 2 4 8 16; do
    timeout 300 "$bin/twillrun" -n $((workers + 1)) --bind none --oversubscribe "$bin/server-exchange" --list "$list" --steps "$steps" --layout nc \
        --threads 1 | awk -v w=$workers -v n="$bytes" '/exchanges/ { printf "%8d %14.2f %14.2f %14.3f\n", w, $1, $1 * w, $1 * n * (2 * w + 2) / 1e9 }'
done

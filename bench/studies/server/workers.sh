#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# workers.sh BIN [MODEL [STEPS]] measures exchanges of a model's gradients a second with 1 to 16 workers on this
# machine. One server with one thread does not work. The column "GB/CPU s" is what the server moves in a second of its
# CPU time, by the difference of two runs. It reads the gradients of W workers, updates the parameters, and stores them
# to W workers, which are (2 W + 2) n bytes. The line above is what the library's sums of such large buffers move on one
# core. BIN is the folder of twillrun. MODEL is a list in bench/gradients (googlenet).
set -eu
bin=$(cd "$1" && pwd) model=${2:-googlenet} steps=${3:-5}
list=$(cd "$(dirname "$0")/../.." && pwd)/gradients/$model.txt
bytes=$(awk '$1 + 0 > 0 { n += $1 } END { printf "%d", 4 * n }' "$list")
echo "# $model, $bytes bytes; $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
"$bin/twill-bench" kernels 'sum f32' -b 64M -e 64M -n 5 | sed 's/^/# /'
printf '%8s %14s %14s %14s\n' workers exchanges/s gradients/s 'GB/CPU s'
for workers in 1 2 4 8 16; do
    for count in "$steps" $((3 * steps)); do
        timeout 300 "$bin/twillrun" -n $((workers + 1)) --bind none --oversubscribe "$bin/server-exchange" --list "$list" --steps "$count" \
            --layout nc --threads 1 --traffic
    done | awk -v w=$workers -v n="$bytes" -v steps="$steps" '
        /exchanges/ { rate = $1 }
        /^rank 0:/ { cpu = $(NF - 1) - last; last = $(NF - 1); runs++ }
        # With a small model, or with noise, the longer run may have taken less time.
        END { if (runs != 2) { printf "%8d failed\n", w; exit 1 }
              printf "%8d %14.2f %14.2f %14s\n", w, rate, rate * w, (cpu > 0 ? sprintf("%.2f", 2 * steps * n * (2 * w + 2) / cpu / 1e9) : "-") }'
done

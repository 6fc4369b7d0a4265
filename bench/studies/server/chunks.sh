#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# chunks.sh BIN [MODEL [ROUNDS [STEPS]]] measures exchanges of a model's gradients a second by options.chunk_bytes. Two
# ranks work and serve, on one node (shared memory) and as two nodes (messages over loopback). All sizes take turns in
# each round, and so does the default, which is tuned at the commit. It prints a table of medians with the lowest and
# the highest, and what the default has chosen. SIZES replaces the list of sizes. BIN is the folder of twillrun. MODEL
# is a list in bench/gradients (resnet50). The exit status is 1 if a job has failed.
set -eu
bin=$(cd "$1" && pwd) model=${2:-resnet50} rounds=${3:-3} steps=${4:-4}
list=$(cd "$(dirname "$0")/../.." && pwd)/gradients/$model.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sizes=${SIZES:-4K 8K 16K 32K 64K 128K 256K 1M 0 tuned} failed=0
for _ in $(seq "$rounds"); do
    for nodes in 1x2 2x1; do
        for size in $sizes; do
            chunk="--chunk $size"
            [ "$size" != tuned ] || chunk=
            # shellcheck disable=SC2086 # words
            TWILL_LAYOUT=nodes=$nodes timeout 100 "$bin/twillrun" -n 2 --bind none "$bin/server-exchange" --list "$list" --steps "$steps" --times \
                $chunk >"$work/out" 2>"$work/log" || {
                failed=1
                echo "chunks.sh: $nodes, $size: failed" >&2
                cat "$work/log" >&2
                : >"$work/out"
            }
            awk '/ 0 wrong$/ { print $1 }' "$work/out" >>"$work/$nodes-$size"
            sed -n 's/^chunks of \([0-9]*\) bytes.*/\1/p' "$work/out" >>"$work/chosen-$nodes-$size"
        done
    done
done
echo "# $model, two ranks, $rounds rounds of $steps exchanges; $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
printf '%-10s %24s %24s\n' chunk "one node: exchanges/s" "two nodes: exchanges/s"
# middle FILE prints the median, the lowest and the highest of the numbers in a file.
middle()
{
    sort -g "$1" | awk '{ v[NR] = $1 }
        END {
            if (NR == 0) print "failed"
            else printf "%.2f (%.2f - %.2f)", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2, v[1], v[NR]
        }'
}
for size in $sizes; do
    name=$size
    [ "$size" != 0 ] || name=tensors
    printf '%-10s %24s %24s\n' "$name" "$(middle "$work/1x2-$size")" "$(middle "$work/2x1-$size")"
    [ "$size" != tuned ] || echo "# tuned: one node $(paste -sd' ' "$work/chosen-1x2-tuned"), two nodes $(paste -sd' ' "$work/chosen-2x1-tuned")"
done
exit $failed

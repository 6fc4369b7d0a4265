#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twill-bench --calibrate: writes a file that TWILL_TUNING reads, with a model and times of algorithms for every
# collective, on one node and on two; with small sizes, which take no time.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
bench=$bin/twill-bench

check_file() # file shape
{
    expect 0 "auto" env TWILL_TUNING="$1" "$bin/twill-info" --why allreduce 64K --world "$2"
    for collective in allreduce reduce broadcast barrier allgather reduce_scatter gather scatter alltoall; do
        [ "$(grep "^measured $collective [^ ]* $2 " "$1" | cut -d ' ' -f 3 | sort -u | wc -l)" -ge 1 ] ||
            fail "$1: too few algorithms of $collective"
    done
    [ "$2" = 1x1 ] || grep -q '^model reduce.bf16 [1-9]' "$1" || fail "$1: no model"
    # shellcheck disable=SC2016 # awk's dollars
    awk '/^measured/ && $6 < 1000 { exit 1 }' "$1" || fail "$1: times below a nanosecond"
}

ranks 2 "$bench" --calibrate "$scratch/one" -e 512 || fail "one node"
grep -q "^# written: $scratch/one" "$scratch/out" || fail "what was written"
grep -q '^model link.node.gap [1-9]' "$scratch/one" || fail "no messages on the node"
check_file "$scratch/one" 1x2
TWILL_LAYOUT=nodes=2x1 ranks 2 "$bench" -e 64 --calibrate="$scratch/two" || fail "two nodes"
grep -q '^model link.network.gap [1-9]' "$scratch/two" || fail "no messages between nodes"
check_file "$scratch/two" 2x1

# With several threads a rank, the file has their curve, from one thread on.
TWILL_THREADS=2 ranks 1 "$bench" --calibrate "$scratch/threads" -e 8 || fail "two threads"
for field in threads.1.copy threads.2.fork threads.2.copy threads.2.reduce; do
    grep -q "^model $field [1-9]" "$scratch/threads" || fail "no $field"
done
check_file "$scratch/threads" 1x1
! grep -q '^model threads' "$scratch/one" || fail "a curve of one thread"

# One rank has no peers whose memory could be mapped; a file is there as a whole or not at all.
ranks 1 "$bench" --calibrate "$scratch/alone" -e 2K || fail "one rank"
check_file "$scratch/alone" 1x1
TWILL_ALGORITHM=allreduce:direct@mapped ranks 1 "$bench" allreduce -b 4 -e 4K || fail "@mapped on one rank"
expect 1 "TWILL_TUNE=heap_limit" env TWILL_TUNE=heap_limit=1K "$bench" --calibrate "$scratch/none" -e 2K
[ ! -e "$scratch/none" ] || fail "a calibration that failed left a file"
head -c -3 "$scratch/alone" >"$scratch/cut"
expect 1 ": the file ends within this line" env TWILL_TUNING="$scratch/cut" "$bin/twill-info"

expect 1 "--calibrate: $scratch/one: File exists" "$bench" --calibrate "$scratch/one"
expect 1 "--calibrate: /nonexistent/x: No such file" "$bin/twillrun" -n 2 "$bench" --calibrate /nonexistent/x
expect 2 "option '--calibrate' requires an argument" "$bench" --calibrate
expect 2 "--calibrate: '' is not a file" "$bench" --calibrate=
expect 2 "--calibrate takes no collective, it measures all: 'barrier'" "$bench" barrier --calibrate "$scratch/x"

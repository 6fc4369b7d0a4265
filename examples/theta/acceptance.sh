#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run the acceptance of a cluster, which takes about an hour. It collects every figure that the cost model needs, and
# those of Theta in docs/results/theta.md, in one file for TWILL_TUNING and twill-info --model.
# Usage: acceptance.sh FILE
#   LAUNCH_SPREAD  command that starts a program with one rank on each node: "aprun -n 24 -N 1", "srun -n 24 -N 24" ...
#   LAUNCH_THREADS the same with as many threads as the node has cores, by the launcher's binding or TWILL_THREADS (default:
#                  not measured); LAUNCH_SPREAD has one thread, for the model and what was published
#   LAUNCH_FULL    the same with all ranks of each node (default: not measured)
#   LAUNCH_NODE    the same with all ranks of one node (default: not measured)
#   LAUNCH_SHAPES  other numbers of nodes and ranks, a line each, NAME=COMMAND: "48x16=aprun -n 768 -N 16" (default: none)
#   MPI_ALLREDUCE  program that times the MPI's own allreduce on all of these: "osu_allreduce -m 8:2048 -f" (default: none)
#   BIN            folder of twill's programs (default: found by PATH)
#   LARGEST        largest message (default 64M)
#   REPEATS        repetitions of twill-place (default 7)
# A failure is noted in FILE as a comment, and the run continues. The run fails if no model could be measured.
set -u

file=${1:?usage: acceptance.sh FILE}
largest=${LARGEST:-64M}
bin=${BIN:+$BIN/}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
[ ! -e "$file" ] || {
    echo "acceptance.sh: $file exists" >&2
    exit 1
}
[ -n "${LAUNCH_SPREAD:-}" ] || {
    echo "acceptance.sh: LAUNCH_SPREAD is not set" >&2
    exit 2
}

# comment TITLE COMMAND... prints the output of a command as comments for the file.
comment()
{
    title=$1
    shift
    echo "# == $title"
    "$@" >"$work/out" 2>&1 || echo "# FAILED with $?"
    sed 's/^/# /' "$work/out"
}

# calibrate NAME LAUNCH measures the model and the algorithms, and writes them to $work/NAME.
calibrate()
{
    echo "acceptance: calibrating, $1" >&2
    # shellcheck disable=SC2086 # words of a command
    $2 "${bin}twill-bench" --calibrate "$work/$1" -e "$largest" >"$work/$1.log" 2>&1 && return
    sed "s/^/# calibrating $1: /" "$work/$1.log"
    rm -f "$work/$1"
}

# short NAME LAUNCH measures short allreduces, and those of the MPI itself. The fastest, the slowest and the 99th
# percentile of a thousand calls show whether each call takes that time or only some late calls.
short()
{
    for bytes in 8 2K; do
        # shellcheck disable=SC2086
        comment "allreduce of $bytes, $1" $2 "${bin}twill-bench" allreduce -b $bytes -e $bytes -n 1000 -w 100 -I 1
    done
    # shellcheck disable=SC2086
    [ -z "${MPI_ALLREDUCE:-}" ] || comment "the MPI's own allreduce, $1" $2 $MPI_ALLREDUCE
}

# figures NAME LAUNCH prints as comments what docs/results/theta.md has of Theta, and bandwidths.
figures()
{
    short "$1" "$2"
    # shellcheck disable=SC2086
    comment "allreduce of $largest, $1" $2 "${bin}twill-bench" allreduce -b "$largest" -e "$largest"
    # shellcheck disable=SC2086
    comment "broadcast, $1" $2 "${bin}twill-bench" broadcast -b 8 -e "$largest" -f 64
    # shellcheck disable=SC2086
    comment "latency of a message, $1" $2 "${bin}twill-bench" latency -b 8 -e 2K -f 256
}

{
    calibrate spread "$LAUNCH_SPREAD"
    [ -z "${LAUNCH_NODE:-}" ] || calibrate node "$LAUNCH_NODE"
    [ -z "${LAUNCH_FULL:-}" ] || calibrate full "$LAUNCH_FULL"
} >"$work/failures"
# Each link and rate counts once. Those between nodes come from the run with one rank on each node, those in a node from
# the run on one node.
model=
for name in node spread full; do
    [ ! -s "$work/$name" ] || model="$model $name"
done
[ -n "$model" ] || {
    cat "$work/failures" >&2
    echo "acceptance.sh: nothing could be calibrated" >&2
    exit 1
}
{
    # shellcheck disable=SC2086
    set -- $model
    head -n 1 "$work/$1"
    echo "# Acceptance run of $(date -u +%Y-%m-%dT%H:%M:%SZ) on $(uname -n): spread: $LAUNCH_SPREAD; node: ${LAUNCH_NODE:-none}; full: ${LAUNCH_FULL:-none}"
    cat "$work/failures"
    grep '^machine ' "$work/$1" | head -n 1
    # If a field has several lines, the last one counts. So the network is that of "spread".
    for name in "$@"; do
        [ "$name" = full ] || grep '^model ' "$work/$name"
    done
    [ "$model" != " full" ] || grep '^model ' "$work/full"
    for name in "$@"; do
        grep '^measured ' "$work/$name"
    done
    echo "acceptance: figures" >&2
    # shellcheck disable=SC2086
    comment "twill-info" $LAUNCH_SPREAD "${bin}twill-info"
    figures spread "$LAUNCH_SPREAD"
    [ -z "${LAUNCH_FULL:-}" ] || figures full "$LAUNCH_FULL"
    if [ -n "${LAUNCH_THREADS:-}" ]; then
        # shellcheck disable=SC2086
        comment "threads of a rank" $LAUNCH_THREADS "${bin}twill-info" --threads
        figures threads "$LAUNCH_THREADS"
    fi
    printf '%s\n' "${LAUNCH_SHAPES:-}" >"$work/shapes"
    while IFS= read -r shape; do
        [ -z "$shape" ] || short "${shape%%=*}" "${shape#*=}" </dev/null
    done <"$work/shapes"
    if [ -n "${LAUNCH_NODE:-}" ]; then
        figures node "$LAUNCH_NODE"
        # shellcheck disable=SC2086
        comment "kinds of memory" $LAUNCH_NODE "${bin}twill-place" -b 16M -n "${REPEATS:-7}"
    fi
} >"$work/whole"
mv "$work/whole" "$file"
echo "acceptance: wrote $file: TWILL_TUNING=$file, twill-info --why allreduce 8 --model $file" >&2

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measure what copies, sums, allreduces and team calls gain by the threads of a rank, on one machine with many cores.
# This takes ten minutes at most and needs only the programs of a build. Ranks and threads follow the number of cores.
#
# many_cores.sh [--bin FOLDER] [--out FOLDER] [--quick]
#   --bin    folder of twillrun, twill-bench and twill-place (build/bin); their libraries must be found (LD_LIBRARY_PATH)
#   --out    folder for many-cores.json (bench/results), which bench/common/study_file.py writes; what programs print goes to log/ there
#   --quick  few sizes and repetitions: a test
#   PYTHON   a Python, with PyTorch if Gloo is to take part (python3). PEERS=gloo: no MPI. SHAPES="2x8 4x4": other ranks x threads
#   STUDY_REVISION  of twill's repository, where there is no git
# Tables of the file:
#   local      triad, copy and twill's sum of two arrays by the number of threads, each with the same threads, one rank
#   allreduce  ranks x threads on all cores, beside one thread a rank; "moved" counts each rank's data as read and written once
#   peers      the best other library that is here: Open MPI, MPICH (by twill-compare), else PyTorch's Gloo, with the same ranks
#   team       calls by all threads of 2 ranks (twill-bench --team), beside meeting, a call by one thread, and meeting again
set -u
here=$(cd "$(dirname "$0")" && pwd)
bin=$here/../../build/bin out=$here/../results quick=
while [ $# -gt 0 ]; do
    case $1 in
    --bin) bin=$2 && shift ;;
    --out) out=$2 && shift ;;
    --quick) quick=1 ;;
    *) echo "usage: many_cores.sh [--bin FOLDER] [--out FOLDER] [--quick]" >&2 && exit 2 ;;
    esac
    shift
done
mkdir -p "$out/log" || exit 1
bin=$(cd "$bin" && pwd) out=$(cd "$out" && pwd) python=${PYTHON:-python3} log=$out/log
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
begin=$(date +%s) most=${MOST_SECONDS:-570}
export STUDY_RESULTS="$out" PYTHONDONTWRITEBYTECODE=1
rm -f "$out/many-cores.json"

cores=$(lscpu -p=CORE,SOCKET 2>/dev/null | grep -v '^#' | sort -u | wc -l)
here_cores=$(nproc)
{ [ "$cores" -gt 0 ] && [ "$cores" -le "$here_cores" ]; } || cores=$here_cores
all=1
while [ $((2 * all)) -le "$cores" ]; do all=$((2 * all)); done

# few QUICK FULL: the first in a quick run, else the second
few() { [ -n "$quick" ] && echo "$1" || echo "$2"; }

# left prints the seconds that remain. "within SECONDS COMMAND..." runs a command with a limit of time.
left() { echo $((most - $(date +%s) + begin)); }
within()
{
    seconds=$1
    shift
    [ "$(left)" -gt "$seconds" ] || seconds=$(left)
    [ "$seconds" -gt 2 ] || { echo "many_cores.sh: no time is left for: $*" >>"$log/skipped" && return 1; }
    timeout -k 5 "$seconds" "$@"
}

# table TABLE COLUMNS: standard input becomes a table of the file, unless it is empty
table()
{
    cat >"$work/rows"
    if [ -s "$work/rows" ]; then
        python3 "$here/../common/study_file.py" many-cores "$1" "$2" -- sh bench/studies/many_cores.sh <"$work/rows"
        echo "-- $1: $(wc -l <"$work/rows") rows, $(left) s left"
    else
        echo "-- $1: nothing was measured, see $log"
    fi
}

# --- one rank. twill-place times a triad, a copy and a sum with the same threads
local_rates()
{
    for size in $(few "1M" "64K 256K 1M 4M 16M 64M 256M"); do
        case $size in *K | 1M | 4M) times=$(few 5 41) ;; *) times=$(few 5 11) ;; esac
        threads=1
        while [ $threads -le "$all" ]; do
            OMP_PROC_BIND=close OMP_PLACES=cores within 60 "$bin/twillrun" -n 1 --threads-per-rank $threads "$bin/twill-place" -b "$size" \
                -n "$times" -t $threads >"$work/place" 2>>"$log/local"
            cat "$work/place" >>"$log/local"
            bytes=$(sed -n 's/.* 3 arrays of \([0-9]*\) bytes.*/\1/p' "$work/place")
            awk -v threads=$threads -v bytes="$bytes" '$1 == "ddr" { print bytes, threads, $2, $4, $6 }' "$work/place"
            threads=$((2 * threads))
        done
    done
}

# shapes: ranks and threads of each, on all cores
shapes()
{
    [ -z "${SHAPES:-}" ] || { echo "$SHAPES" | tr ' x' '\n ' && return; }
    for ranks in 2 4 8 16 32 64; do
        { [ $ranks -gt "$all" ] || { [ $ranks -gt 4 ] && [ $ranks -lt "$all" ]; }; } || echo "$ranks $((all / ranks))"
    done
}

# ranks_of RANKS THREADS: the words that start so many ranks with so many cores each, or with shared ones if there are too few
ranks_of()
{
    echo "$bin/twillrun -n $1 --threads-per-rank $2 $([ $(($1 * $2)) -le "$cores" ] || echo --oversubscribe)"
}

# bench_rows NAME COMMAND...: append "NAME memory bytes out in" of each size to $work/times
bench_rows()
{
    name=$1
    shift
    "$@" >"$work/bench" 2>>"$log/allreduce"
    { echo "# $name: $*" && cat "$work/bench"; } >>"$log/allreduce"
    awk -v name="$name" '$1 + 0 > 0 && NF > 12 { print name, $1, $6, $10 }' "$work/bench" >>"$work/times"
}

# --- allreduces with the threads of a rank and with one thread, by turns
allreduce()
{
    : >"$work/times"
    for round in $(few 1 "1 2 3"); do
        echo "# round $round" >>"$log/allreduce"
        shapes | while read -r ranks threads; do
            for memory in malloc twill; do
                for part in $(few 64K:256K:5 "64K:4M:40 16M:256M:4"); do
                    sizes="-b ${part%%:*} -e $(echo "$part" | cut -d: -f2) -f 4 -n ${part##*:} -w 2 --memory $memory"
                    for each in $(printf '%s\n' 1 "$threads" | sort -nu); do
                        # shellcheck disable=SC2046,SC2086 # options
                        bench_rows "$ranks $threads $each $memory" within 60 $(ranks_of "$ranks" "$threads") -x TWILL_THREADS="$each" \
                            "$bin/twill-bench" allreduce $sizes
                    done
                done
            done
        done
    done
    python3 - "$work/times" <<'END'
import collections, statistics, sys
found = collections.defaultdict(lambda: collections.defaultdict(list))
for line in open(sys.argv[1]):
    ranks, threads, each, memory, size, out, inplace = line.split()
    found[int(ranks), int(threads), memory, int(size)][each].append((float(out), float(inplace)))
for (ranks, threads, memory, size), of in found.items():
    cells = []
    for place in range(2):
        for each in (str(threads), "1"):
            cells.append(statistics.median(turn[place] for turn in of[each]) if of[each] else None)
    moved = [2e-3 * ranks * size / time if time else None for time in (cells[0], cells[2])]
    print(ranks, threads, memory, size, *("-" if cell is None else f"{cell:.5g}" for cell in cells + moved))
END
}

# --- the best peer that is here
gloo_file=$work/gloo.py
cat >"$gloo_file" <<'END'
import os, sys, time
import torch
import torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=world)
for word in sys.argv[2].split(","):
    size = int(word)
    tensor, times = torch.zeros(size // 4), []
    for turn in range(2 + max(3, min(40, (64 << 20) // size))):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor)
        times.append(time.perf_counter() - start)
    slowest = torch.tensor(times[2:], dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(size, sorted(slowest.tolist())[len(times[2:]) // 2] * 1e6, flush=True)
dist.destroy_process_group()
END
peers()
{
    sizes=$(few "65536 262144" "65536 262144 1048576 4194304 16777216 67108864 268435456")
    with_mpi=
    [ "${PEERS:-}" != gloo ] && command -v mpirun >/dev/null && command -v mpicc >/dev/null && [ -x "$bin/twill-compare" ] && with_mpi=1
    shapes | while read -r ranks threads; do
        if [ -n "$with_mpi" ]; then
            within 120 "$bin/twill-compare" -n "$ranks" --only allreduce_in --peers ompi,mpich,gloo --rounds "$(few 1 3)" \
                --sizes "$(echo "$sizes" | tr ' ' ,)" --json "$work/compare.json" >>"$log/peers" 2>&1
            python3 - "$work/compare.json" "$ranks" "$threads" <<'END' 2>>"$log/peers"
import json, sys
raw = json.load(open(sys.argv[1]))
kinds = {one["name"]: one["kind"] for one in raw["contenders"]}
for row in raw["results"]:
    best = min((one["median"], one["name"]) for one in row["times"] if kinds.get(one["name"]) == "peer")
    print(best[1], sys.argv[2], sys.argv[3], row["bytes"], best[0])
END
            rm -f "$work/compare.json"
        elif "$python" -c 'import torch.distributed as d; raise SystemExit(not d.is_gloo_available())' 2>>"$log/peers"; then
            rm -f "$work/store"
            # shellcheck disable=SC2046 # options
            within 90 $(ranks_of "$ranks" "$threads") "$python" "$gloo_file" "$work/store" "$(echo "$sizes" | tr ' ' ,)" >"$work/gloo" 2>>"$log/peers"
            cat "$work/gloo" >>"$log/peers"
            awk -v ranks="$ranks" -v threads="$threads" 'NF == 2 && $1 + 0 > 0 { print "torch-gloo", ranks, threads, $1, $2 }' "$work/gloo"
        else
            echo "no peer: neither mpirun and mpicc nor PyTorch" >>"$log/peers"
        fi
    done
}

# --- team calls of two ranks, beside a call by one thread, which has one thread, or those of the rank
team()
{
    "$bin/twill-bench" --help | grep -q -e '--team' || { echo "this twill-bench has no --team" >>"$log/team" && return; }
    threads=$((all / 2))
    for collective in $(few allreduce "allreduce allgather reduce_scatter broadcast"); do
        for inner in $([ "$threads" -gt 1 ] && echo "1 $threads" || echo 1); do
            # shellcheck disable=SC2046 # options
            within 60 $(ranks_of 2 "$threads") -x TWILL_THREADS="$inner" "$bin/twill-bench" "$collective" --team "$threads" \
                -b 4K -e $(few 64K 16M) -f 4 -n "$(few 5 40)" >"$work/bench" 2>>"$log/team"
            cat "$work/bench" >>"$log/team"
            awk -v collective="$collective" -v threads="$threads" -v inner="$inner" '
                $1 + 0 > 0 && NF > 15 { print collective, 2, threads, inner, $1, $(NF - 2), $(NF - 1) }' "$work/bench"
        done
    done
}

rm -f "$log"/*
echo "many_cores.sh: $cores cores, $all used; results go to $out, what programs print to $log"
{ lscpu; "$bin/twillrun" -n 1 --threads-per-rank "$all" "$bin/twill-info"; } >"$log/machine" 2>&1
# If time runs out, the rest is left out and listed.
local_rates | table local 'bytes:B,threads,triad:GB/s,copy:GB/s,sum:GB/s'
team | table team 'collective,ranks,threads,threads of the call:,bytes:B,one calls:us,team:us'
allreduce | table allreduce 'ranks,threads,memory,bytes:B,out:us,out by one thread:us,in place:us,in place by one thread:us,moved:GB/s,moved in place:GB/s'
peers | table peers 'peer,ranks,threads,bytes:B,time:us'
[ ! -e "$log/skipped" ] || cat "$log/skipped"
[ -s "$out/many-cores.json" ]

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tables.sh BUILD [SECONDS] prints tables as Markdown, and what each layer of a call
# costs. It measures torch.distributed over twill and over Gloo within SECONDS (330), with 2 and 4 ranks on one node and
# on two hosts. The hosts are network namespaces of this machine (tests/support/hosts.sh, for root only). BUILD is
# twill's build folder. PYTHON is a Python with PyTorch (python3). SIZES and BACKENDS (twill,gloo) are as compare.py
# takes them.
# If RATE is set, such as 1gbit, it limits what each host receives. If HOOKS is set, only a training step on two hosts
# with gradients in 32 and in 16 bits is measured. If RANKS is set, such as "2 4 8", it measures only on one node
# (without root), with each of these numbers of ranks, and only the collectives of ONLY (separated by commas). If HEAP
# is set, tensors are in memory that the ranks of a host share (TWILL_HEAP=shared). WARM_UP is the seconds of calls that
# are not timed before each batch, in addition to SECONDS. If KEEP is set, this folder keeps the times as comma-separated values.
# shellcheck source-path=SCRIPTDIR/../../../tests source=support/hosts_alone.sh
here=$(cd "$(dirname "$0")/../../../tests" && pwd)
build=$(cd "$1" && pwd) budget=$(((${2:-330} - 50) / 4)) bin=$build/bin
[ -z "${RANKS:-}" ] || budget=$((${2:-330} / $(echo "$RANKS" | wc -w)))
export PYTHONPATH="$build/python${PYTHONPATH:+:$PYTHONPATH}" PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 MASTER_PORT=29517
python=${PYTHON:-python3}
. "$here/support/hosts_alone.sh"
csv=${KEEP:-$scratch}
pids=
trap 'kill $pids 2>/dev/null; exit 1' HUP INT TERM
"$python" -m twill.torch.build >"$scratch/out" || fail "no C++ part"

# run NAME HOSTS RANKS runs compare.py with RANKS ranks on HOSTS hosts in blocks, or without namespaces if HOSTS is 1.
run()
{
    name=$1 hosts=$2 ranks=$3 rank=0 pids=
    while [ "$rank" -lt "$ranks" ]; do
        set -- env ${HEAP:+"LD_PRELOAD=$build/lib/libtwill-heap.so" TWILL_HEAP=shared} RANK=$rank LOCAL_RANK=$((rank % (ranks / hosts))) WORLD_SIZE="$ranks" LOCAL_WORLD_SIZE=$((ranks / hosts)) "$python" \
            "$here/../bench/studies/torch/compare.py" --budget "$budget" --csv "$csv/$name.csv" --backends "${BACKENDS:-twill,gloo}" \
            --title "$ranks ranks, $name" ${SIZES:+--sizes "$SIZES"} ${ONLY:+--only "$ONLY"} ${WARM_UP:+--warm-up "$WARM_UP"} ${HOOKS:+--hooks}
        if [ "$hosts" -eq 1 ]; then
            MASTER_ADDR=127.0.0.1 "$@" >"$scratch/$name.$rank" 2>&1 &
        else
            # shellcheck disable=SC2154 # of hosts.sh
            MASTER_ADDR=$(host_address 0) GLOO_SOCKET_IFNAME=eth0 "$hosts_in" $((rank * hosts / ranks)) "$@" >"$scratch/$name.$rank" 2>&1 &
        fi
        pids="$pids $!"
        rank=$((rank + 1))
    done
    for pid in $pids; do
        wait "$pid" || fail "$name: $(tail -3 "$scratch/$name.0")"
    done
}

# Print the shortest time of three runs of twill-bench, whose ranks run at once. The column is 6 for out of place and 10
# for in place.
least_time() # ranks column arguments...
{
    count=$1 column=$2
    shift 2
    for _ in 1 2 3; do
        TWILL_TUNE=stream=1M "$bin/twillrun" --bind none -n "$count" "$bin/twill-bench" "$@" -c 0 --csv
    done | awk -F, -v column="$column" '/float/ && (!least || $column < least) { least = $column } END { print least }'
}

# Print the times that no library can beat, from each rank's copies in its own memory by twill's kernel. An all_to_all
# stores 32 MiB on each rank, and a broadcast on all but one. Private memory is copied twice, through memory that the
# ranks share, except for a rank's own block. It is less if a cache holds a part of that memory. An all_reduce in place
# reads and stores the 32 MiB of each rank, which is all that twill does if the ranks share the tensors. If L ranks have
# private tensors, (L - 1) / L of each goes into memory that they share, and the same part of the result comes out of
# it. These copies need not leave the caches, so they count as copies of 64 KiB in a core's own cache.
bounds() # ranks file
{
    copy=$(least_time "$1" 6 alltoall --split "$1" --memory malloc -b 32M -e 32M -n 30)
    cached=$(least_time "$1" 6 alltoall --split "$1" --memory malloc -b 64K -e 64K -n 20000)
    sums=$(least_time "$1" 10 allreduce -b 32M -e 32M -n 30)
    [ -n "$sums" ] || fail "twill-bench does not run"
    for what in all_reduce all_to_all_single broadcast; do
        awk -F, -v what="$what" -v copy="$copy" -v cached="$cached" -v sums="$sums" -v ranks="$1" '$1 == what && $2 == 33554432 {
            others = (ranks - 1) / ranks
            least = what == "all_reduce" ? sums : what == "broadcast" ? copy * others : copy
            private = what == "all_reduce" ? sums + 2 * others * 512 * cached : what == "broadcast" ? copy : copy * (1 + others)
            printf "%s of 32 MiB, %d ranks, one node: in memory that the ranks share it takes %.0f us at least, at most %.1f times Gloo; ",
                what, ranks, least, $(NF - 1) / least
            printf "in private memory %.0f us, %.1f times; twill %.0f us, %.1f times\n", private, $(NF - 1) / private, $3, $(NF - 1) / $3 }' "$2"
    done
}

if [ -n "${RANKS:-}" ]; then
    for count in $RANKS; do
        run "one node ($count)" 1 "$count"
        "$python" "$here/../bench/studies/torch/compare.py" --table "$csv/one node ($count).csv"
        bounds "$count" "$csv/one node ($count).csv"
    done
    exit 0
fi
hosts_up 2
[ -z "${RATE:-}" ] || hosts_shape "$RATE" || fail "no limit of the rate here"
if [ -n "${HOOKS:-}" ]; then
    run "two hosts" 2 2
    cat "$scratch/two hosts.0"
    exit 0
fi
run "one node" 1 2
run "one node (4)" 1 4
run "two hosts" 2 2
run "two hosts (4)" 2 4
"$python" "$here/../bench/studies/torch/compare.py" --table "$csv/one node.csv" "$csv/one node (4).csv" "$csv/two hosts.csv" "$csv/two hosts (4).csv"
echo
bounds 2 "$csv/one node.csv"
bounds 4 "$csv/one node (4).csv"
echo
RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 "$python" "$here/../bench/studies/torch/compare.py" --layers

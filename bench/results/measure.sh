#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# measure.sh [--quick] [--bin FOLDER] [STUDY...]: measure studies and write bench/results/STUDY.json (study_file.py), all of them
# without names, the most important ones first (--list names them). make_pages.py then makes the pages. Run it on a quiet
# machine, as root where hosts are needed: hosts are network namespaces. FOLDER of the programs: build/bin. --quick: the smallest
# settings, for a test; STUDY_RESULTS: another folder for the files. PYTHON: a Python with PyTorch (python3).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
studies=$here/../studies
bin=$here/../../build/bin quick=
all="one-node-epyc mpi-programs two-hosts-reno two-hosts-cubic training-steps training-overlap training-buckets compression pytorch
pytorch-copies pytorch-calls pytorch-16-bits server-ablation server-chunks server-modes server-credits server-update server-workers
server-delays server-traffic recovery-times recovery-loss campaign protection congestion python-calls memory-kinds studies theta simulation"

while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 ;;
    --bin) bin=$2 && shift ;;
    --list) echo "$all" && exit ;;
    -*) echo "usage: measure.sh [--quick] [--bin FOLDER] [STUDY...]" >&2 && exit 2 ;;
    *) break ;;
    esac
    shift
done
bin=$(cd "$bin" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$bin/../python${PYTHONPATH:+:$PYTHONPATH}"

# few QUICK FULL: the first in a quick run, else the second
few() { [ -n "$quick" ] && echo "$1" || echo "$2"; }

# table TABLE COLUMNS: standard input becomes a table of the study
table()
{
    python3 "$here/../common/study_file.py" "$study" "$1" "$2" -- sh bench/results/measure.sh "$study"
}

# compared WORDS...: the file of the study is what twill-compare measures
compared()
{
    "$bin/twill-compare" "$@" --json "$work/raw.json" >"$work/out" || { tail -n 3 "$work/out" && return 1; }
    python3 "$here/../common/study_file.py" --compare "$study" "$work/raw.json" sh bench/results/measure.sh "$study"
}

# --- collectives ------------------------------------------------------------------------------------
measure_one_node_epyc()
{
    compared --max "$(few 64K 64M)" --rounds "$(few 1 5)" ${quick:+--quick --only allreduce,broadcast}
}
measure_mpi_programs()
{
    compared --mpi --max "$(few 64K 256M)" --rounds "$(few 1 3)" ${quick:+--quick --only allreduce_in,broadcast}
}
between()
{
    export TEST_HOSTS_CONGESTION="$1"
    sh "$here/../tools/compare/compare_hosts.sh" "$bin/twill-compare" 1 --max "$(few 64K 16M)" --rounds "$(few 1 3)" --json "$work/raw.json" \
        ${quick:+--quick --only allreduce_in} >"$work/out" 2>&1 || { tail -n 3 "$work/out" && return 1; }
    unset TEST_HOSTS_CONGESTION
    python3 "$here/../common/study_file.py" --compare "$study" "$work/raw.json" sh bench/results/measure.sh "$study"
}
measure_two_hosts_reno() { between reno; }
measure_two_hosts_cubic() { between cubic; }
# Four ranks on two hosts with bbr and with reno, in turns.
measure_congestion()
{
    for what in allreduce:4M allgather:4M broadcast:4M alltoall:16M; do
        size=$(few 64K "${what#*:}")
        for control in bbr reno; do
            RANKS=2 CONGESTION=$control sh "$studies/between_hosts.sh" "$bin" none twill-bench "${what%:*}" -b "$size" -e "$size" -n "$(few 3 20)" >"$work/$control"
        done
        awk -v what="${what%:*}" 'FNR == NR && $1 + 0 > 0 && NF > 7 { bbr = $6; next } $1 + 0 > 0 && NF > 7 { print "2x2\ttwill-bench\t" what "\t" $1 "\t" bbr "\t" $6 }' \
            "$work/bbr" "$work/reno"
    done | table times 'ranks,program,collective,bytes:B,bbr:us,reno:us'
}

# --- simulation -------------------------------------------------------------------------------------
# Repeats to the bit, whatever else the machine does.
measure_simulation()
{
    simulate() { "$bin/twill-simulate" --csv "$@"; }
    for workers in 2 4 8 16 32 64 128 256 512 1024; do
        half=$((workers / 2))
        simulate -p $workers -u 4000 sync k-sync:$half k-batch-async:$half async
    done | awk -F, '$2 + 0 > 0 { sub(/:.*/, "", $1); print $1, $2, $3, $4 }' | table times 'mode,workers,simulated:s,exact:s'
    simulate -p 8 -u 50000 sync k-sync:4 k-async:4 k-batch-sync:4 k-batch-async:4 async |
        awk -F, '$2 + 0 > 0 { print $1, $3, $4 }' | table eight 'mode,simulated:s,exact:s'
    simulate --curve -p 8 -u 1000 -r 100 --rate 0.05 sync k-sync:4 k-batch-sync:4 k-async:4 k-batch-async:4 async |
        awk -F, '$2 + 0 > 0 && ($3 < 200 ? $3 % 20 == 0 : $3 % 50 == 0) { print $1, $3, $4, $5 }' | table tradeoff 'mode,updates,time:s,loss'
    for rule in fixed staleness distance:0.02; do
        simulate --curve -p 30 -u 1000 -r 20 -c uniform:0.5,1.5 --rate 0.9 --noise 0.01 --rule $rule async |
            awk -F, -v rule=$rule '$2 + 0 > 0 && $3 % 20 == 0 && $5 < 1e12 { print rule, $3, $5 }'
    done | table stability 'rule,updates,loss'
    simulate --histogram -p 30 -u 20000 -c uniform:0.5,1.5 softsync:1 softsync:15 softsync:30 |
        awk -F, '$2 + 0 > 0 && $5 > 0 { print $1, $3, $5 }' | table staleness 'mode,staleness,part'
    for endpoints in 1 2 4 8; do
        simulate -p 1,2,4,8,12,16,24,32,48,64 -u 3000 -c uniform:0.09,0.11 -b 100M --server-link 1250M --worker-link 1250M --endpoints $endpoints sync async |
            awk -F, -v endpoints=$endpoints '$2 + 0 > 0 { print endpoints, $1, $2, $6 }'
    done | table link 'endpoints,mode,workers,rate:1/s'
}

[ $# -gt 0 ] || eval "set -- $(echo "$all" | tr '\n' ' ')"
failed=
for study in "$@"; do
    echo " $all " | tr '\n' ' ' | grep -q " $study " || { echo "measure.sh: there is no study '$study': --list" >&2 && exit 2; }
    begins=$(date +%s) status=0
    echo "== $study"
    set +e # in a shell of its own, so that a study that fails does not end the others
    (set -e && "measure_$(echo "$study" | tr - _)")
    status=$?
    set -e
    [ $status = 0 ] || failed="$failed $study"
    echo "-- $(($(date +%s) - begins)) s"
done
[ -z "$failed" ] || { echo "failed:$failed" && exit 1; }

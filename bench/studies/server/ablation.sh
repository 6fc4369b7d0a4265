#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ablation.sh BIN [ROUNDS [STEPS [RANKS]]] measures exchanges of gradients a second with a parameter server, also with
# each of its optimizations switched off. It compares them with central servers over send and receive of MPI and Gloo,
# and with their allreduces. All take turns in each round. For each of MODELS (lists in bench/gradients, resnet50 and
# alexnet) it prints a table of medians with the lowest and the highest, and the ratio to the first row. Then it says if
# the first row is ahead of all other programs. BIN is the folder of twillrun. A run that takes longer than LIMIT
# seconds counts as failed. PS_LITE, if set, is a command that runs ps-lite with the arguments LIST STEPS WORKERS
# SERVERS and prints as these programs do.
set -eu
bin=$(cd "$1" && pwd) rounds=${2:-3} steps=${3:-3} ranks=${4:-2} limit=${LIMIT:-100}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for mpi in openmpi mpich; do
    "mpicc.$mpi" -O3 -I"$here/../../.." -o "$work/central_$mpi" "$here/central_mpi.c" "$here/../../common/gradient_list.c" -lm 2>"$work/log" ||
        echo "# no $mpi: $(head -1 "$work/log")"
done
gcc -O3 -I"$here/../../.." -c -o "$work/list.o" "$here/../../common/gradient_list.c"
g++ -O3 -std=c++17 -I"$here/../../.." -o "$work/central_gloo" "$here/central_gloo.cpp" "$work/list.o" -lgloo -lm 2>"$work/log" ||
    echo "# no Gloo: $(head -1 "$work/log")"

# run CONTENDER LIST prints the contender's line.
run()
{
    run_list=$here/../../gradients/$2.txt
    set -- "$1"
    case $1 in
    "twill"*)
        case $1 in
        *"registered each time") set -- --register-each ;;
        *"copied") set -- --malloc ;;
        *"not chunked") set -- --chunk 0 ;;
        *"one core") set -- --layout cc ;;
        *"workers update") set -- --worker-updates ;;
        *"all of them off") set -- --register-each --malloc --chunk 0 --layout cc --worker-updates ;;
        *) set -- ;;
        esac
        timeout "$limit" "$bin/twillrun" -n "$ranks" --bind none "$bin/server-exchange" --list "$run_list" --steps "$steps" "$@"
        ;;
    "ps-lite")
        # shellcheck disable=SC2086 # a command with its words
        timeout "$limit" $PS_LITE "$run_list" "$steps" "$ranks" "$ranks"
        ;;
    *)
        run_mode=${1##*, }
        case $1 in
        Gloo*) timeout "$limit" "$work/central_gloo" "$run_list" "$steps" "$run_mode" "$ranks" ;;
        "Open MPI"*)
            OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout "$limit" mpirun.openmpi --oversubscribe --bind-to none \
                -n "$ranks" "$work/central_openmpi" "$run_list" "$steps" "$run_mode"
            ;;
        *) timeout "$limit" mpiexec.mpich -n "$ranks" "$work/central_mpich" "$run_list" "$steps" "$run_mode" ;;
        esac
        ;;
    esac
}

cat >"$work/contenders" <<'LIST'
twill
twill, registered each time
twill, copied
twill, not chunked
twill, one core
twill, workers update
twill, all of them off
Open MPI, central
MPICH, central
Gloo, central
Open MPI, allreduce
MPICH, allreduce
Gloo, allreduce
Open MPI, buffer
MPICH, buffer
Gloo, buffer
LIST
[ -z "${PS_LITE:-}" ] || echo "ps-lite" >>"$work/contenders"
for model in ${MODELS:-resnet50 alexnet}; do
    for _ in $(seq "$rounds"); do
        while read -r contender; do
            echo "$contender: $(run "$contender" "$model" 2>"$work/log" </dev/null || head -1 "$work/log")" >>"$work/$model"
            [ -z "${VERBOSE:-}" ] || tail -1 "$work/$model" >&2
        done <"$work/contenders"
    done
    echo "$model, $ranks ranks, $rounds rounds of $steps exchanges; $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
    printf '%-28s %12s %18s %8s\n' '' exchanges/s 'lowest - highest' ratio
    while read -r contender; do
        grep -F "$contender: " "$work/$model" | sed 's/^[^:]*: //' | grep ' 0 wrong$' | awk '{ print $1 }' | sort -g |
            awk -v name="$contender" -v first="$(cat "$work/first" 2>/dev/null)" '
                { v[NR] = $1 }
                END {
                    if (NR == 0) { printf "%-28s failed\n", name; exit }
                    m = (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2
                    printf "%-28s %12.3f %8.3f - %-7.3f %8.2f\n", name, m, v[1], v[NR], (first > 0 ? m / first : 1)
                }' | tee "$work/row"
        cat "$work/row" >>"$work/rows"
        [ -s "$work/first" ] || awk '{ print $2 }' "$work/row" >"$work/first"
    done <"$work/contenders"
    rm -f "$work/first"
done
awk '{ ratio = $NF } $1 != "twill" && $1 != "twill," && ratio + 0 >= 1 { behind = behind "\n" $0 }
    END { if (behind == "") print "twill is ahead of all other programs"; else print "twill is not ahead of:" behind }' "$work/rows"

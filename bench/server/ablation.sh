#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ablation.sh BIN [ROUNDS [STEPS [RANKS]]]: exchanges of AlexNet's and ResNet-50's gradients a second with a parameter server,
# its means switched off one by one, beside a central server over MPI's send and receive and MPI_Allreduce. All take turns in
# each round; a table of medians, with the lowest and the highest, and the ratio to the first. BIN: the folder of twillrun. MODELS: lists in bench/gradients. PS_LITE, if set, is a command
# that runs ps-lite as LIST STEPS WORKERS SERVERS and prints as these do.
set -eu
bin=$(cd "$1" && pwd) rounds=${2:-5} steps=${3:-5} ranks=${4:-2}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for mpi in openmpi mpich; do
    "mpicc.$mpi" -O3 -I"$here/../.." -o "$work/central_$mpi" "$here/central_mpi.c" "$here/../common/gradient_list.c" -lm 2>"$work/log" ||
        echo "# no $mpi: $(head -1 "$work/log")"
done

# run CONTENDER LIST: print its line
run()
{
    run_list=$here/../gradients/$2.txt
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
        timeout 300 "$bin/twillrun" -n "$ranks" --bind none "$bin/server-exchange" --list "$run_list" --steps "$steps" "$@"
        ;;
    "ps-lite")
        # shellcheck disable=SC2086 # a command with its words
        timeout 300 $PS_LITE "$run_list" "$steps" "$ranks" "$ranks"
        ;;
    *)
        run_mode=${1##*, }
        case $1 in
        "Open MPI"*)
            OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 300 mpirun.openmpi --oversubscribe --bind-to none \
                -n "$ranks" "$work/central_openmpi" "$run_list" "$steps" "$run_mode"
            ;;
        *) timeout 300 mpiexec.mpich -n "$ranks" "$work/central_mpich" "$run_list" "$steps" "$run_mode" ;;
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
Open MPI, allreduce
MPICH, allreduce
Open MPI, buffer
MPICH, buffer
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
        [ -s "$work/first" ] || awk '{ print $2 }' "$work/row" >"$work/first"
    done <"$work/contenders"
    rm -f "$work/first"
done

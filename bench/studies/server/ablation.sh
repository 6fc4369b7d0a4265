#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ablation.sh BIN [ROUNDS [STEPS [RANKS]]] measures exchanges of gradients a second with a parameter server, also with
# each of its means switched off, and with two that it has not. It compares them with central servers over send and
# receive of MPI and Gloo, and with their allreduces. Each contender runs directly after the default, "twill", and its
# ratio is that of these two runs, so that what else runs on the machine affects both. For each of MODELS (lists in
# bench/gradients, resnet50 and alexnet) it prints a table of medians with the lowest and the highest, of the rate and of
# the ratio. Then it says if twill is ahead of all other programs. Those take part in every third round, and not at all
# with ONLY=twill. With NODES=2 the ranks are two nodes that exchange messages over loopback. BIN is the folder of
# twillrun. A run that takes longer than LIMIT seconds counts as failed. PS_LITE, if set, is a command that runs ps-lite
# with the arguments LIST STEPS WORKERS SERVERS and prints as these programs do.
set -eu
bin=$(cd "$1" && pwd) rounds=${2:-3} steps=${3:-10} ranks=${4:-2} limit=${LIMIT:-100}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ "${NODES:-1}" = 1 ] || export TWILL_LAYOUT="nodes=${NODES}x$((ranks / NODES))"

# Name of a contender, and the words of its run: settings and options of twillrun up to a colon, then options of
# server-exchange. Those with a plus have something that the default has not.
cat >"$work/contenders" <<'LIST'
twill|:
registered each time|: --register-each
copied|: --malloc
described each time|: --describe
not chunked|: --chunk 0
one core|: --layout cc
ranks not bound|--bind none :
scalar code|TWILL_TUNE=isa=scalar :
workers update|: --worker-updates
one tensor at a time|: --each-key
all of them off|TWILL_TUNE=isa=scalar --bind none : --register-each --malloc --describe --chunk 0 --layout cc --worker-updates --each-key
+ one key for all tensors|: --fuse
+ threads that serve|: --threads 1
LIST
if [ "${ONLY:-}" != twill ]; then
    for mpi in openmpi mpich; do
        "mpicc.$mpi" -O3 -I"$here/../../.." -o "$work/central_$mpi" "$here/central_mpi.c" "$here/../../common/gradient_list.c" -lm 2>"$work/log" ||
            echo "# no $mpi: $(head -1 "$work/log")"
    done
    gcc -O3 -I"$here/../../.." -c -o "$work/list.o" "$here/../../common/gradient_list.c"
    g++ -O3 -std=c++17 -I"$here/../../.." -o "$work/central_gloo" "$here/central_gloo.cpp" "$work/list.o" -lgloo -lm 2>"$work/log" ||
        echo "# no Gloo: $(head -1 "$work/log")"
    for mode in central allreduce buffer; do
        printf 'Open MPI, %s\nMPICH, %s\nGloo, %s\n' $mode $mode $mode
    done >>"$work/contenders"
    [ -z "${PS_LITE:-}" ] || echo "ps-lite" >>"$work/contenders"
fi

# run NAME WORDS LIST prints the contender's line.
run()
{
    run_mode=${1##*, }
    case $1 in
    "ps-lite")
        # shellcheck disable=SC2086 # a command with its words
        timeout "$limit" $PS_LITE "$3" "$steps" "$ranks" "$ranks"
        ;;
    Gloo*) timeout "$limit" "$work/central_gloo" "$3" "$steps" "$run_mode" "$ranks" ;;
    "Open MPI"*)
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout "$limit" mpirun.openmpi --oversubscribe --bind-to none \
            -n "$ranks" "$work/central_openmpi" "$3" "$steps" "$run_mode"
        ;;
    MPICH*) timeout "$limit" mpiexec.mpich -n "$ranks" "$work/central_mpich" "$3" "$steps" "$run_mode" ;;
    *)
        run_before=${2%%:*}
        case $run_before in *=*) run_set=${run_before%% *} run_before=${run_before#* } ;; *) run_set= ;; esac
        # shellcheck disable=SC2086 # words
        timeout "$limit" env ${run_set:+"$run_set"} "$bin/twillrun" -n "$ranks" $run_before "$bin/server-exchange" --list "$3" --steps "$steps" ${2#*:}
        ;;
    esac
}

# rate NAME WORDS MODEL prints the exchanges a second of one run, or nothing if it failed.
rate() { run "$1" "$2" "$here/../../gradients/$3.txt" 2>"$work/log" </dev/null | awk '/ 0 wrong$/ { print $1 }'; }

# middle COLUMN FILE prints the median, the lowest and the highest of a column.
middle()
{
    sort -g -k"$1,$1" "$2" | awk -v c="$1" '{ v[NR] = $c } END { printf "%.5g %.5g %.5g", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2, v[1], v[NR] }'
}

: >"$work/behind"
for model in ${MODELS:-resnet50 alexnet}; do
    rm -f "$work"/rates-*
    for round in $(seq "$rounds"); do
        n=0
        while IFS='|' read -r name words; do
            n=$((n + 1))
            [ -n "$words" ] || [ $((round % 3)) = 1 ] || continue
            before=$(rate twill : "$model") after=$(rate "$name" "${words:-:}" "$model")
            [ -z "${VERBOSE:-}" ] || echo "$name: $before $after" >&2
            [ -z "$before" ] || [ -z "$after" ] || echo "$after $before" | awk '{ print $1, $1 / $2 }' >>"$work/rates-$n"
        done <"$work/contenders"
    done
    echo "$model, $ranks ranks, ${NODES:-1} nodes, $rounds rounds of $steps exchanges; $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
    printf '%-28s %12s %18s %8s %16s %7s\n' '' exchanges/s 'lowest - highest' ratio 'lowest - highest' rounds
    n=0
    while IFS='|' read -r name words; do
        n=$((n + 1))
        [ -s "$work/rates-$n" ] || { printf '%-28s failed\n' "$name" && continue; }
        [ -n "$words" ] || others=$((${others:-0} + 1))
        # shellcheck disable=SC2046,SC2183 # six words
        printf '%-28s %12s %8s - %-7s %8s %7s - %-7s %6d\n' "$name" $(middle 1 "$work/rates-$n") $(middle 2 "$work/rates-$n") "$(wc -l <"$work/rates-$n")" | tee "$work/row"
        [ -n "$words" ] || awk '$(NF - 4) >= 1' "$work/row" >>"$work/behind"
    done <"$work/contenders"
done
if [ -s "$work/behind" ]; then
    echo "twill is not ahead of:"
    cat "$work/behind"
elif [ "${others:-0}" -gt 0 ]; then
    echo "twill is ahead of all other programs that ran"
fi

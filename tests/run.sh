#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install packages, build and run the tests. Without arguments: the stage `release`, which has every unit test and every
# check of the programs as they are installed. With --all, as continuous integration does, all five stages: with clang (no
# warnings), under the thread sanitizer, under the address and undefined-behaviour sanitizers, cross-built for aarch64 (core
# tests in an emulator), and as released. The last lines are ctest's summary of the released build.
# If a stage failed, its name follows and the status is 1. A test that fails runs up to two times more,
# as some machines stop for seconds. What passes only then is printed with its first failure and named
# at the end: that is a fault of the test or of twill, to be found. While the tests of a stage run, the
# next stage is built with the processor time that they leave. A stage ends with its ten longest tests
# and a line of its time and processor time. Tests that draw samples draw them by
# TEST_SEED, which is today's date unless it is set: over some days they cover everything.
#
# Usage: sh tests/run.sh [--all | stage...]   stages: clang tsan asan aarch64 release (default: release)
set -eu
cd "$(dirname "$0")/.."
jobs=${TEST_JOBS:-2}
export TEST_SEED="${TEST_SEED:-$(date +%Y%m%d)}"
slots=$((4 * jobs + 7)) # of ctest: tests/CMakeLists.txt, where it is said, too, which tests run in which stage
failed=
flaky=
[ $# -gt 0 ] || set -- release
[ "$*" != --all ] || set -- clang tsan asan aarch64 release

# Variables of the caller must not affect the tests.
exec </dev/null
umask 022
# shellcheck disable=SC3045 # Debian's sh has it
ulimit -c 0
export LC_ALL=C.UTF-8
# shellcheck disable=SC2013 # one word a line
for name in $(awk 'BEGIN { for (name in ENVIRON) print name }'); do
    case $name in
    TWILL_* | FI_* | UCX_* | OMP* | PRTE_* | MPICH_* | MPIEXEC_* | HYDRA_* | SLURM_* | PMI* | PALS_* | ALPS_* | \
        TORCHELASTIC_* | RANK | LOCAL_RANK | WORLD_SIZE | LOCAL_WORLD_SIZE | MASTER_ADDR | MASTER_PORT | COBALT_PARTNAME | \
        HWLOC_* | MEMKIND_* | TMPDIR | LD_PRELOAD | LD_LIBRARY_PATH) unset "$name" ;;
    esac
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

heading()
{
    printf '\n== %s\n\n' "$1"
}

built_ahead=''  # the stage that is built in the background,
builder=''      # by this process,
build_output='' # which writes to this file

# Keep in $used the seconds of processor time of the children of this shell which have ended.
count_used()
{
    times >"$scratch/times"
    used=$(awk 'NR == 2 { split($1, user, /[ms]/); split($2, sys, /[ms]/)
        printf "%d", 60 * (user[1] + sys[1]) + user[2] + sys[2] }' "$scratch/times")
}

# Print the ten longest tests of ctest's log.
longest()
{
    echo "The longest tests, in seconds:"
    sed -n 's/^ *[0-9]*\/[0-9]* *Test *#[0-9]*: *\([^ ]*\) .* \([0-9.]*\) sec.*/\2 \1/p' "$1" | sort -rn | head -n 10 | tr '\n' ',' | sed 's/,$/\n/; s/,/, /g'
}

# Build a stage; or, if that was begun in the background, wait for it and print its output. Further arguments: a
# command that runs cmake.
build()
{
    preset=$1
    shift
    if [ "$preset" = "$built_ahead" ]; then
        built_ahead='' build_status=0
        wait "$builder" || build_status=$?
        cat "$build_output"
        return $build_status
    elif [ "$preset" = clang ]; then
        warnings
    elif [ "$preset" = aarch64 ]; then
        build_aarch64 "$@"
    else
        "$@" cmake --preset "$preset" --log-level=WARNING -DTWILL_BUILD_TESTS=ON -DTWILL_WITH_LIBFABRIC=ON \
            -DTWILL_WITH_MEMKIND=ON -DTWILL_WITH_PMIX=ON &&
            "$@" cmake --build --preset "$preset" -j "$jobs"
    fi
}

# Build a stage, and keep in $built how many seconds that took here.
timed_build()
{
    build_from=$(date +%s) build_status=0
    build "$1" || build_status=$?
    built=$(($(date +%s) - build_from))
    return $build_status
}

# Begin the build of the next stage, if there is one.
build_ahead()
{
    [ -n "$next" ] && [ "$next" != clang ] || return 0
    build_output=$scratch/build-$next
    build "$next" nice -n 19 >"$build_output" 2>&1 &
    builder=$! built_ahead=$next
}

# gcc 12's sanitizers fail with more random address bits than they expect (vm.mmap_rnd_bits above
# 28).
without_random_addresses()
{
    if setarch "$(uname -m)" -R true 2>/dev/null; then
        setarch "$(uname -m)" -R "$@"
    else
        "$@"
    fi
}

# Run the tests of a preset. Further arguments: a command that runs ctest. The last lines of a test that fails are
# kept for the end: some readers see only that.
run_tests()
{
    preset=$1 log=$scratch/tests-$1 status=0
    shift
    build_ahead
    "$@" ctest --preset "$preset" -j "$slots" --repeat until-pass:3 -O "$log" || status=$?
    flaky="$flaky$(sed -n "s/^ *Test *#[0-9]*: \([^ ]*\) .* Passed .*/ \1 ($preset)/p" "$log" | tr -d '\n')"
    longest "$log"
    [ "$status" -eq 0 ] || awk '/^ *[0-9]*\/?[0-9]* *(Test *#| *Start)/ { failing = /\*\*\*/ }
        failing' "$log" | tail -n 40 >>"$scratch/failures"
    return "$status"
}

# Tests for aarch64: kernels, node, network and whole calls. The other stages run what does not
# depend on the ISA.
CORE='test_kernels_reduce test_kernels_convert test_kernels_optimizer test_kernels_quantize test_algorithms_cost test_fabric_shm test_fabric_tcp test_fabric_handshake
test_fabric_job_key test_lib_point_to_point test_lib_request test_lib_run_ahead'
# Built for aarch64 besides: the library and its tools.
AARCH64='twill twill_static twillrun twill-check twill-bench twill-info twill-place simulate-run'
# Optimised less than as released, kernels apart; gcc's warnings that follow values are wrong there.
# shellcheck disable=SC2086 # words
build_aarch64()
{
    if ! sh .ci/install.sh aarch64 || ! sh .ci/sysroot.sh arm64 build-aarch64/sysroot; then
        echo "SKIPPED: packages for aarch64 are not available here"
        return 0
    fi
    "$@" cmake -G Ninja -S . -B build-aarch64 --toolchain tests/support/aarch64.cmake -DTWILL_SYSROOT="$PWD/build-aarch64/sysroot" \
        -DTWILL_BUILD_TESTS=ON -DTWILL_WERROR=ON -DTWILL_BUILD_MPI=OFF -DTWILL_BUILD_MANUAL=OFF -DCMAKE_BUILD_TYPE=Release \
        -DCMAKE_C_FLAGS_RELEASE="-O1 -DNDEBUG -Wno-format-truncation -Wno-maybe-uninitialized" --log-level=WARNING &&
        "$@" cmake --build build-aarch64 -j "$jobs" --target $AARCH64 $CORE
}

# shellcheck disable=SC2086
aarch64()
{
    timed_build aarch64 || return 1
    build_ahead
    [ ! -e build-aarch64/sysroot/unpacked ] || # skipped
        ctest --test-dir build-aarch64 -j "$slots" --repeat until-pass:3 --output-on-failure --timeout 600 \
            -R "^($(echo $CORE | tr ' ' '|'))\$"
}

# Nothing of this build runs: sources are only parsed, which has the same warnings in a quarter of the time, and nothing is
# linked (the fuzzers are, with half of the modules). So there are no names of MPI for lib/mpi/detect to list.
warnings()
{
    touch="<CMAKE_COMMAND> -E touch <TARGET>"
    CC=clang CMAKE_C_COMPILER_LAUNCHER='' cmake -G Ninja -S . -B build-clang --log-level=WARNING -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O0 \
        -DCMAKE_C_COMPILE_OBJECT="sh $PWD/tests/support/warnings.sh <OBJECT> <CMAKE_C_COMPILER> <DEFINES> <INCLUDES> <FLAGS> -c <SOURCE>" \
        -DCMAKE_C_LINK_EXECUTABLE="$touch" -DCMAKE_CXX_LINK_EXECUTABLE="$touch" -DCMAKE_Fortran_LINK_EXECUTABLE="$touch" \
        -DCMAKE_C_CREATE_SHARED_LIBRARY="$touch" -DCMAKE_C_ARCHIVE_CREATE="$touch" -DCMAKE_C_ARCHIVE_FINISH='' -DCMAKE_NM=/bin/true \
        -DTWILL_BUILD_TESTS=ON -DTWILL_BUILD_MANUAL=OFF -DTWILL_WERROR=ON -DTWILL_WITH_OPENMP=OFF && cmake --build build-clang -j "$jobs"
}

# The fuzzers, if clang has libFuzzer, and a short run of each.
fuzzers()
{
    if ! echo 'int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }' |
        clang -fsanitize=fuzzer,address,undefined -x c -o /dev/null - 2>/dev/null; then
        echo "SKIPPED: clang has no libFuzzer here"
        return 0
    fi
    CC=clang cmake -G Ninja -S . -B build-fuzz --log-level=WARNING -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG='-O1 -g1' \
        -DTWILL_WITH_OPENMP=OFF -DTWILL_BUILD_TESTS=ON -DTWILL_BUILD_TOOLS=OFF -DTWILL_BUILD_BENCH=OFF -DTWILL_BUILD_MPI=OFF \
        -DTWILL_BUILD_EXAMPLES=OFF -DTWILL_BUILD_MANUAL=OFF -DTWILL_SANITIZE=fuzzer-no-link,address,undefined &&
        cmake --build build-fuzz -j "$jobs" --target fuzzers && build_ahead &&
        TEST_BUILD=build-fuzz without_random_addresses sh tests/system/check_fuzz.sh
}

run_stage()
{
    case $1 in
    clang)
        heading "clang, warnings are errors; the fuzzers"
        timed_build clang && fuzzers
        ;;
    tsan)
        heading "thread sanitizer"
        timed_build tsan && run_tests tsan without_random_addresses
        ;;
    asan)
        heading "address and undefined-behaviour sanitizers"
        timed_build asan && run_tests asan without_random_addresses
        ;;
    aarch64)
        heading "aarch64, in an emulator"
        aarch64
        ;;
    release)
        heading "as released"
        timed_build release && run_tests release
        ;;
    *)
        echo "run.sh: unknown stage '$1': clang, tsan, asan, aarch64, release" >&2
        return 1
        ;;
    esac
}

# Print what else is running: a failure may need an explanation.
machine()
{
    echo "$(sed -n '/^model name/{s/.*: //p;q;}' /proc/cpuinfo), $(nproc) CPUs, load $(cut -d ' ' -f 1-3 /proc/loadavg)," \
        "$(sed -n 's/^MemAvailable: *//p' /proc/meminfo) free"
    ps -e -o pcpu= -o etime= -o args= --sort=-pcpu | head -n 3 | cut -c 1-110
}

heading "packages"
sh .ci/install.sh build test site

# ccache comes with the packages. Some tests build trees with other options (check_sabotage, check_cuda), mostly of
# unchanged files. They have their own HOME, so the cache is named. Its keys have no absolute paths, so that another
# clone, or a tree that a test builds in a folder of its own, finds what has been compiled before.
if command -v ccache >/dev/null 2>&1; then
    export CCACHE_DIR="${CCACHE_DIR:-${HOME:-/tmp}/.cache/ccache}"
    export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$PWD}" CCACHE_NOHASHDIR="${CCACHE_NOHASHDIR:-1}"
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi

heading "machine"
machine
echo "samples are drawn by TEST_SEED=$TEST_SEED"
while [ $# -gt 0 ]; do
    stage=$1 next=${2:-}
    count_used
    from=$(date +%s) used_before=$used built=0
    shift
    run_stage "$stage" || failed="$failed $stage"
    count_used
    printf '\nstage %s: %d s (%d s until its build was ready), %d s of processor time\n' "$stage" \
        $(($(date +%s) - from)) "$built" $((used - used_before))
done
[ -z "$flaky" ] || printf '\nPassed only on retry:%s\n' "$flaky"
if [ -n "$failed" ]; then
    [ ! -s "$scratch/failures" ] || cat "$scratch/failures"
    printf '\nFAILED:%s\n' "$failed"
    exit 1
fi

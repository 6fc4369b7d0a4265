#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libtwill-mpi.so, the one name for all MPIs: it takes the calls of each, and steps aside with a sentence where it cannot.
# And each library for one MPI under each MPI, on purpose: under another than its own it steps aside, too. The MPI of the
# standard ABI is MPICH's from PyPI ($TEST_MPI_ABI: a folder with it), a download of 13 MB; without it that part is
# left out with a sentence.
# shellcheck source-path=SCRIPTDIR source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"
# shellcheck source-path=SCRIPTDIR source=../support/mpi.sh
. "$(dirname "$0")/../support/mpi.sh"

started_ranks=2
# started VARIANT PRELOAD ARGUMENT...: run a program under the launcher of an MPI.
started()
{
    started_variant=$1 started_preload=$2
    shift 2
    set -- -n "$started_ranks" env LD_PRELOAD="$started_preload" "$@"
    case $started_variant in
    openmpi) timeout -v -k 10 "$patience" mpirun.openmpi --allow-run-as-root --oversubscribe "$@" ;;
    mpich) timeout -v -k 10 "$patience" mpirun.mpich "$@" ;;
    *) PATH=$abi/bin:$PATH timeout -v -k 10 "$patience" "$abi/bin/mpiexec" "$@" ;;
    esac
}

# sums WHAT TAKEN: the last program's two ranks have the right sum, and all calls are made by twill (taken), whatever
# their size, or by the MPI (passed).
sums()
{
    [ "$(grep -c '^the sum is 1$' "$scratch/output")" -eq 2 ] || unsaid "$1: no sum"
    case $2 in
    taken)
        for call in 'Allreduce  *2' 'Bcast  *14' 'Reduce  *14' 'Gather  *14' 'Scatter  *14'; do
            grep -q "^twill-mpi: $call  *0 " "$scratch/output" || unsaid "$1: twill has not taken all calls: $call"
        done
        ;;
    *) ! grep -q 'collectives are taken' "$scratch/output" || unsaid "$1: twill has taken calls" ;;
    esac
}

says() # TEXT
{
    [ "$(grep -c "$1" "$scratch/output")" -eq 1 ] || unsaid "it is not said once: $1"
}

# wrong VARIANT: linked programs, in C and of sessions only, under the libraries for the other MPIs.
wrong()
{
    for library in openmpi mpich abi; do
        [ "$library" != "$1" ] || continue
        [ -e "$lib/libtwill-mpi-$library.so" ] || continue
        must_end 0 "$1, linked, under libtwill-mpi-$library.so" \
            env TEST_MPI_TWILL=0 sh "$0" started "$1" "$lib/libtwill-mpi-$library.so" "$programs/$1/threads"
        says 'this program has another MPI'
        [ "$1" = mpich ] || continue # Open MPI 4 has no sessions
        must_end 0 "$1: sessions, under libtwill-mpi-$library.so" \
            started "$1" "$lib/libtwill-mpi-$library.so" "$programs/$1/life" session
        says 'this program has another MPI'
    done
    # Both: the second one serves.
    case $1 in openmpi) library=mpich ;; *) library=openmpi ;; esac
    [ -e "$lib/libtwill-mpi-$library.so" ] || return
    must_end 0 "$1 under libtwill-mpi-$library.so and its own" started "$1" \
        "$lib/libtwill-mpi-$library.so $lib/libtwill-mpi-$1.so" "$programs/opener" "$(module_of "$1")"
    sums "$1, $library" taken
}

# A program that opens its MPI at run time, as Python does, and one that is linked with it.
module_of()
{
    case $1 in abi) echo "$scratch/opened.so" ;; *) echo "$programs/$1/opened.so" ;; esac
}

# each_library VARIANT: the one name, and each library for one MPI.
each_library()
{
    must_end 0 "$1 under libtwill-mpi.so" started "$1" "$lib/libtwill-mpi.so" "$programs/opener" "$(module_of "$1")"
    sums "$1" taken
    for library in openmpi mpich abi; do
        [ -e "$lib/libtwill-mpi-$library.so" ] || continue
        if [ "$library" = "$1" ]; then
            must_end 0 "$1 under libtwill-mpi-$library.so" \
                started "$1" "$lib/libtwill-mpi-$library.so" "$programs/opener" "$(module_of "$1")"
            sums "$1, $library" taken
        else
            must_end 0 "$1 under libtwill-mpi-$library.so, which is for another" \
                started "$1" "$lib/libtwill-mpi-$library.so" "$programs/opener" "$(module_of "$1")"
            sums "$1, $library" passed
            says "libtwill-mpi-$library.so: this program has another MPI (.*): all calls go to it.*libtwill-mpi-$1.so"
        fi
    done
}

# aside VARIANT: where the library for the MPI is missing, the MPI's answer is the program's.
aside()
{
    must_end 0 "$1: its library is missing" \
        started "$1" "$scratch/alone/libtwill-mpi.so" "$programs/opener" "$(module_of "$1")"
    sums "$1, alone" passed
    says 'all calls go to it, as its library cannot be opened'
}

# The MPI of the standard ABI, in $abi.
find_abi()
{
    abi=${TEST_MPI_ABI:-$scratch/venv}
    [ -e "$abi/lib/libmpi_abi.so.1" ] || {
        python3 -m venv --without-pip "$scratch/venv" &&
            timeout 120 python3 -m pip --python "$scratch/venv/bin/python" install -q mpich==5.0.2
    } >"$scratch/pip" 2>&1 || return 1
    compile_abi "$scratch/opened.so" -shared -fPIC "$here/system/mpi/opened.c"
}

# compile_abi OUTPUT ARGUMENT...
compile_abi()
{
    compile_output=$1
    shift
    "${CC:-cc}" -std=gnu11 -D_GNU_SOURCE -DMPI_ABI -I"$abi/include" -o "$compile_output" "$@" -L"$abi/lib" -lmpi_abi -pthread \
        -Wl,-rpath,"$abi/lib" -Wl,--allow-shlib-undefined
}

# Random calls in all forms under the standard ABI, with TEST_MPI_LONG also each in turn, as check_mpi has them for the other MPIs. The seed is fixed, as this MPI may
# have more defects than those that cases.c leaves out.
abi_calls()
{
    started_ranks=3
    for program in random_calls handles ${TEST_MPI_LONG:+matrix}; do
        (cd "$here/system/mpi" && compile_abi "$scratch/$program" "$program.c" harness.c mpi_calls.c operands.c cases.c sides.c) ||
            fault "abi: $program.c does not compile"
        must_end 0 "abi: $program" started abi "$programs/yield.so $lib/libtwill-mpi-abi.so" \
            TEST_MPI_LONG= TEST_SEED=1 TWILL_MPI_REPORT="$scratch/report.$program" "$scratch/$program"
        grep "$program: .* cases, 0 wrong" "$scratch/output" || unsaid "abi: $program does not say what it has compared"
    done
    for call in Allgatherv Iallgatherv Allgatherv_init Gatherv Igatherv Scatterv Iscatterv Alltoall Ialltoall Alltoall_init \
        Alltoallv Ialltoallv Alltoallv_init Iallreduce Ireduce Ibcast Ireduce_scatter; do
        awk -v call="$call" '$2 == call && $3 > 0 {found = 1} END {exit !found}' "$scratch/report.random_calls" || fault "abi: twill has not taken $call"
    done
}

if [ "${1:-}" = started ]; then
    shift
    started "$@"
    exit
fi
lib=$build/lib
[ -e "$lib/libtwill-mpi.so" ] || skip "libtwill-mpi.so is not built"
mkdir "$scratch/alone"
cp "$lib/libtwill-mpi.so" "$scratch/alone"
export TWILL_MPI_REPORT=1
found=$(mpis)
for variant in $found; do
    each_library "$variant"
    aside "$variant"
    wrong "$variant"
    must_end 7 "$variant, linked" started "$variant" "$lib/libtwill-mpi.so" "$programs/$variant/life" status
    must_end 7 "$variant, of an unknown name" env TEST_MPI_VERSION="Message Library 3" \
        sh "$0" started "$variant" "$lib/libtwill-mpi.so" "$programs/$variant/life" status
    says 'twill does not know the handles of this MPI (Message Library 3)'
done
case $found in
*openmpi*mpich*)
    must_end failure "two MPIs in one process" \
        started mpich "$lib/libtwill-mpi.so" "$programs/opener" "$(module_of mpich)" "$(module_of openmpi)"
    grep -q 'libtwill-mpi.so: this process uses a second MPI' "$scratch/output" || unsaid "the second MPI is not noticed"
    ;;
esac
for variant in $found; do # the functions of its mpi.h
    header=$("mpicc.$variant" -show 2>/dev/null | tr ' ' '\n' | sed -n 's,^-I\(.*\),\1/mpi_proto.h \1/mpi.h,p' | xargs -r ls 2>/dev/null | tail -n 1)
    [ -n "$header" ] || continue
    must_pass "$variant: what is left to the MPI" sh -c "sh '$here/system/mpi/passed_names.sh' '$header' '$lib/libtwill-mpi-calls-$variant.so' | grep -v ^ok"
    must_complain 'MPI_Wait is given requests' sh "$here/system/mpi/passed_names.sh" "$header" "$build/lib/libtwill.so"
done
if find_abi; then
    must_pass "abi: what is left to the MPI" sh -c "sh '$here/system/mpi/passed_names.sh' '$abi/include/mpi_abi.h' '$lib/libtwill-mpi-calls-abi.so' | grep -v ^ok"
    must_pass "lib/mpi/abi/mpi.h is that of MPICH" sh -c "sh '$here/system/mpi/compare_abi.sh' '$abi/include/mpi_abi.h' | grep -v ^ok"
    each_library abi
    aside abi
    abi_calls
else
    [ -n "$found" ] || skip "no MPI is here, and PyPI cannot be reached"
    echo "left out: MPICH with the standard ABI is not here, and PyPI cannot be reached"
fi
finish

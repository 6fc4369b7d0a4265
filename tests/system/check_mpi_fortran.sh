#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fortran programs under libtwill-mpi, by the modules and by mpif.h, alone and with C: their results are right, and
# the report says that their calls were taken.
# shellcheck source-path=SCRIPTDIR source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"
# shellcheck source-path=SCRIPTDIR source=../support/mpi.sh
. "$(dirname "$0")/../support/mpi.sh"

# shellcheck disable=SC2154 # source: rules.sh
mine=$source/tests/system/mpi

# reported CALL TAKEN [PASSED]: the report has this many calls taken, and PASSED (0) passed on.
reported()
{
    awk -v call="$1" -v taken="$2" -v passed="${3:-0}" '
        $2 == call && $3 == taken && $4 == passed {found = 1}
        END {exit !found}' "$scratch/report" ||
        fault "the report does not say '$1 $2 ${3:-0}': $(cat "$scratch/report")"
}

# reported_also TEXT...: lines of the report, with any text between the words.
reported_also()
{
    for text in "$@"; do
        grep -q "$(echo "$text" | sed 's/ / */g')" "$scratch/report" ||
            fault "the report does not say '$text': $(cat "$scratch/report")"
    done
}

# compiled VARIANT PROGRAM FILE...
compiled()
{
    compiled_variant=$1 compiled_program=$2
    shift 2
    mkdir -p "$scratch/$compiled_variant"
    must_end 0 "$compiled_variant: $compiled_program is compiled" "mpifort.$compiled_variant" -cpp \
        "-DOF_$compiled_variant" -O1 -fallow-argument-mismatch -J "$scratch/$compiled_variant" \
        -o "$scratch/$compiled_variant/$compiled_program" "$@"
}

# By the module mpi and by mpif.h.
fortran()
{
    compiled "$1" fortran "$mine/harness.f90" "$mine/fortran.f90" || return
    compared "$1" 3 "$scratch/$1/fortran" || return
    reported Allreduce 21
    reported Iallreduce 6
    reported Ibarrier 3
    reported Reduce 6
    for call in Barrier Bcast Gather Gatherv Scatter Scatterv Allgather Allgatherv Alltoall \
        Alltoallv Reduce_scatter Reduce_scatter_block; do
        reported $call 3
    done
    reported_also 'communicators 3 taken'
}

# By the module mpi_f08.
fortran08()
{
    compiled "$1" fortran08 "$mine/harness.f90" "$mine/fortran08.f90" || return
    compared "$1" 3 "$scratch/$1/fortran08" || return
    reported Allreduce 42
    reported Iallreduce 81
    reported Barrier 42
    reported Ibarrier 39
    reported Bcast 6
    reported Scan 0 3
    for call in Allreduce_init Barrier_init Bcast_init Reduce; do
        reported $call 3
    done
    reported_also 'communicators 15 taken' 'communicators 2 intercommunicator' 'memory 3 allocations'
}

# A linked library is loaded, even if the program calls nothing in it (Open MPI's mpi_f08 is above it).
linked()
{
    command -v pkg-config >/dev/null || return
    linked_flags=$(PKG_CONFIG_PATH=$build/lib/mpi pkg-config --define-variable="libdir=$build/lib" --libs \
        "twill-mpi-$1")
    # shellcheck disable=SC2086 # words
    compiled "$1" linked "$mine/harness.f90" "$mine/fortran08.f90" $linked_flags || return
    readelf -d "$scratch/$1/linked" | grep -q "NEEDED.*libtwill-mpi-$1.so" ||
        fault "$1: a program is linked without the library"
}

# Under the library for another MPI all calls go to the MPI.
wrong()
{
    case $1 in openmpi) preloaded=mpich ;; *) preloaded=openmpi ;; esac
    if [ -e "$build/lib/libtwill-mpi-$preloaded.so" ]; then
        TEST_MPI_TWILL=0
        must_end 0 "$1: Fortran under libtwill-mpi-$preloaded.so" launch "$1" 3 "$scratch/$1/fortran"
        TEST_MPI_TWILL=1
        grep -q 'this program has another MPI' "$scratch/output" || unsaid "it is not said"
    fi
    # shellcheck disable=SC2034 # of mpi.sh
    preloaded=
}

# Rank 0 in C, the others in Fortran.
mixed()
{
    must_end 0 "$1: mixed.c is compiled" "mpicc.$1" -c -o "$scratch/mixed.$1.o" \
        "$mine/mixed.c" || return
    compiled "$1" mixed "$mine/mixed.f90" "$scratch/mixed.$1.o" || return
    compared "$1" 3 "$scratch/$1/mixed" || return
    reported Iallreduce 36
    reported Allreduce_init 3
    reported Barrier 3
    reported_also 'communicators 3 taken'
}

# Every C entry point has a Fortran one where Fortran does not call the C name: always with Open MPI, and with MPICH
# for calls of mpi_f08 without buffers.
names_past() # library fortran-library suffix
{
    for library in "$1" "$2"; do
        nm -D --defined-only "$library" | sed 's/.* //; s/@.*//' | sort -u >"$scratch/names.${library##*/}"
    done
    grep -E '^MPIX?_[A-Z][a-z]' "$scratch/names.${1##*/}" | tr '[:upper:]' '[:lower:]' | sed "s/\$/$3/" |
        sort | comm -12 - "$scratch/names.${2##*/}" | comm -23 - "$scratch/names.${1##*/}" |
        sed 's/$/ goes past twill/'
}

every_name()
{
    case $1 in
    openmpi) every_library=libmpi_mpifh every_suffix=_ ;;
    *) every_library='libmpi[a-z]*fort' every_suffix=_f08_ ;;
    esac
    every_library=$(ldd "$scratch/$1/fortran08" | sed -n "s|.*$every_library\.so[^ ]* => \([^ ]*\).*|\1|p")
    [ -f "$every_library" ] || return
    must_pass "$1: nothing goes past" \
        names_past "$build/lib/libtwill-mpi-calls-$1.so" "$every_library" $every_suffix
    echo 'int MPI_Wait(void); int MPI_Wait(void) {return 0;}' |
        "${CC:-cc}" -x c -shared -fPIC -o "$scratch/bad.so" -
    must_complain "^mpi_wait$every_suffix goes past" names_past "$scratch/bad.so" "$every_library" $every_suffix
}

# has_f08 VARIANT
has_f08()
{
    printf 'use mpi_f08\nend\n' >"$scratch/use.f90"
    "mpifort.$1" -fsyntax-only -J "$scratch" "$scratch/use.f90" >/dev/null 2>&1
}

tried=
for variant in $(mpis); do
    command -v "mpifort.$variant" >/dev/null || continue
    "mpifort.$variant" --version >/dev/null 2>&1 || continue
    tried=1
    fortran "$variant"
    wrong "$variant"
    has_f08 "$variant" || continue
    fortran08 "$variant"
    linked "$variant"
    every_name "$variant"
    mixed "$variant"
done
[ -n "$tried" ] || skip "no MPI is here that libtwill-mpi is built for and that compiles Fortran"
finish

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A Fortran program under libtwill-mpi, by the module and by mpif.h: its results are right, and the
# report says that its calls were taken.
# shellcheck source-path=SCRIPTDIR source=support/rules.sh
. "$(dirname "$0")/support/rules.sh"
# shellcheck source-path=SCRIPTDIR source=support/mpi.sh
. "$(dirname "$0")/support/mpi.sh"

# reported CALL TAKEN: by 3 ranks, and none was passed on.
reported()
{
    awk -v call="$1" -v taken="$2" '
        $2 == call && $3 == taken && $4 == 0 {found = 1}
        END {exit !found}' "$scratch/report" ||
        fault "the report does not say '$1 $2 0': $(cat "$scratch/report")"
}

# fortran FLAVOUR
fortran()
{
    mkdir -p "$scratch/$1"
    # shellcheck disable=SC2154 # source: rules.sh
    must_end 0 "$1: a Fortran program is compiled" "mpifort.$1" -O1 -fallow-argument-mismatch \
        -J "$scratch/$1" -o "$scratch/$1/fortran" "$source/tests/mpi/fortran.f90" || return
    compared "$1" 3 "$scratch/$1/fortran" || return
    reported Allreduce 21
    reported Iallreduce 6
    reported Ibarrier 3
    reported Reduce 6
    for call in Barrier Bcast Gather Gatherv Scatter Scatterv Allgather Allgatherv Alltoall \
        Alltoallv Reduce_scatter Reduce_scatter_block; do
        reported $call 3
    done
    grep -q 'communicators  *3  taken' "$scratch/report" ||
        fault "communicators are not taken: $(cat "$scratch/report")"
}

tried=
for flavour in $(mpis); do
    command -v "mpifort.$flavour" >/dev/null || continue
    "mpifort.$flavour" --version >/dev/null 2>&1 || continue
    tried=1
    fortran "$flavour"
done
[ -n "$tried" ] || skip "no MPI is here that libtwill-mpi is built for and that compiles Fortran"
finish

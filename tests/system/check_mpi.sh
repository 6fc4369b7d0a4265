#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# MPI programs under libtwill-mpi, with every MPI that it was built for: each compares MPI's calls, with twill in
# between, with PMPI's. TEST_MPI_LONG=1: more of everything. Otherwise a run has every other comparison with each MPI, and
# the run of the next TEST_SEED (a day later in CI) has the others; TEST_SEED also draws cases.
# shellcheck source-path=SCRIPTDIR source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"
# shellcheck source-path=SCRIPTDIR source=../support/mpi.sh
. "$(dirname "$0")/../support/mpi.sh"

# dies VARIANT RANKS CASE: the program must end by itself, with a failure.
dies()
{
    must_end failure "$1: life $3" launch "$1" "$2" life "$3"
    ! grep -q -e "^life: rank .* hangs" -e "^timeout: " "$scratch/output" || unsaid "$1: life $3 hangs"
}

# reported FILE CALL TAKEN PASSED_ON
reported()
{
    awk -v call="$2" -v taken="$3" -v passed="$4" '
        $2 == call && $3 == taken && $4 == passed {found = 1}
        END {exit !found}' "$1" || fault "the report does not say '$2 $3 $4': $(cat "$1")"
}

life()
{
    must_end 0 "$1: collectives in finalize" launch "$1" 2 life attribute
    [ "$(grep -c 'at the end: 2' "$scratch/output")" -eq 2 ] || unsaid "not at the end of both ranks"
    must_end 7 "$1: the exit status" launch "$1" 2 life status
    must_end 9 "$1: MPI_Abort's code" launch "$1" 2 life abort
    dies "$1" 3 death
    must_end 0 "$1: errors are the MPI's" launch "$1" 2 life errors
    must_end 0 "$1: several errors at a time" launch "$1" 3 life failures
    must_end 0 "$1: errors of what was freed" launch "$1" 2 life freed
    must_end 0 "$1: few descriptors" launch "$1" 2 life descriptors
    must_end 0 "$1: what is revoked" launch "$1" 3 life revoke
    must_end 0 "$1: one deadline for many calls" env TWILL_TIMEOUT=5 sh "$0" launch "$1" 3 life deadline
    must_end 0 "$1: MPI_Alloc_mem" launch "$1" 3 life memory
    must_end 0 "$1: the report" \
        env TWILL_MPI_REPORT="$scratch/report" sh "$0" launch "$1" 2 life report
    reported "$scratch/report" Allreduce 20 8
    reported "$scratch/report" Bcast 14 0
    reported "$scratch/report" Scan 0 10
    reported "$scratch/report" Ibarrier 6 0
    grep -q ' 8  one rank' "$scratch/report" ||
        fault "the report does not say why: $(cat "$scratch/report")"
}

# A wrong setting turns twill off, and the rank that has it says which value is wrong and what is allowed.
settings()
{
    must_end 7 "$1: TWILL_MPI=off" env TWILL_MPI=off sh "$0" launch "$1" 3 life status
    grep -q 'all calls go to the MPI below: rank 0: TWILL_MPI=off: must be one of 0|1' "$scratch/output" ||
        unsaid "$1: TWILL_MPI=off is not explained"
    # shellcheck disable=SC2016 # of the rank's shell
    must_end 7 "$1: a wrong entry on one rank" launch "$1" 3 /bin/sh -c \
        '[ "${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-}}" != 1 ] || export TWILL_TUNE=bogus=1; exec "$1" status' - "$programs/$1/life"
    grep -q 'all calls go to the MPI below: rank 1: TWILL_TUNE: there is no entry "bogus"; there are' "$scratch/output" ||
        unsaid "$1: TWILL_TUNE=bogus=1 is not explained"
}

# named VARIANT STATUS NAME: a program whose MPI returns this name must end with this status.
named()
{
    must_end "$2" "$1: below is '$3'" env TEST_MPI_VERSION="$3" sh "$0" launch "$1" 1 life status
}

# MPIs of the ABI that the library was built for have several names; from all others it steps aside.
names()
{
    case $1 in
    openmpi) named openmpi 7 "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4" ;;
    *)
        named "$1" 7 "MPICH Version:      4.0.2"
        named "$1" 7 "MPI VERSION    : CRAY MPICH version 8.1.28.2"
        named "$1" 7 "Intel(R) MPI Library 2021.13 for Linux* OS"
        named "$1" 7 "MVAPICH2 Version      :    2.3.7"
        named "$1" 7 "MVAPICH Version      :    3.0"
        ;;
    esac
    other="Open MPI v5.0.0, package: another"
    [ "$1" = mpich ] || other="MPICH Version:      4.0.2"
    named "$1" 7 "$other"
    grep -q 'this program has another MPI' "$scratch/output" || unsaid "$1: $other is not noticed"
}

# opened VARIANT PRELOADED: a program that opens its MPI, of this variant, at run time.
opened()
{
    preloaded=$2
    must_end 0 "$1, opened at run time, under libtwill-mpi-$2" \
        launch "$1" 2 "$programs/opener" "$programs/$1/opened.so"
    [ "$(grep -c '^the sum is 1$' "$scratch/output")" -eq 2 ] || unsaid "no sum"
    preloaded=
}

# in_turn VARIANT RANKS PROGRAM: compared(), if it is this comparison's turn.
in_turn()
{
    comparison=$((comparison + 1))
    if [ -n "${TEST_MPI_LONG:-}" ] || [ $((comparison % 2)) -eq 0 ]; then
        compared "$@"
    fi
}

if [ "${1:-}" = launch ]; then
    shift
    launch "$@"
    exit
fi
found='' first=${TEST_SEED:-1}
for variant in $(mpis); do
    found=1 comparison=$first
    first=$((first + 1)) # what one MPI has in a run, the other has in the next
    in_turn "$variant" 2 matrix
    in_turn "$variant" 3 random_calls
    in_turn "$variant" 4 mpi_test_comms
    in_turn "$variant" 3 mpi_test_requests
    in_turn "$variant" 3 waits
    in_turn "$variant" 2 threads
    must_end 0 "$variant: threads without a report, whose calls are shorter" launch "$variant" 2 threads
    compared "$variant" 1 mpi_test_requests
    if [ "$variant" = openmpi ]; then
        in_turn openmpi 3 matrix
        options="--mca btl_vader_single_copy_mechanism none"
        in_turn openmpi 3 waits
        options=
    fi
    compared "$variant" 3 handles
    for level in single threads; do
        must_end 0 "$variant: what a call costs: $level" launch "$variant" 2 cost $level
        grep -q "cost: .* cases, 0 wrong" "$scratch/output" || unsaid "$variant: the cost is not said"
    done
    life "$variant"
    settings "$variant"
    names "$variant"
    opened "$variant" "$variant"
    if [ "$variant" = mpich ]; then # Open MPI 5 has MPIX_Comm_iagree, and Open MPI 4 no sessions
        must_end 0 "$variant: ranks that agree" \
            env TWILL_MPI_REPORT="$scratch/report" sh "$0" launch "$variant" 3 life agreement
        reported "$scratch/report" Iallreduce 6 12
        must_end 0 "$variant: sessions" launch "$variant" 1 life session
    fi
    must_end failure "$variant: self-test: what is wrong is found" \
        env TEST_MPI_SABOTAGE=1 sh "$0" launch "$variant" 2 matrix
    grep -q 'receive buffer' "$scratch/output" ||
        unsaid "$variant: damaged results go unnoticed"
    if [ -n "${TEST_MPI_LONG:-}" ]; then
        for ranks in 3 4 5; do
            compared "$variant" $ranks matrix
            compared "$variant" $ranks random_calls
        done
    fi
done
[ -n "$found" ] || skip "no MPI is here that libtwill-mpi is built for"
finish

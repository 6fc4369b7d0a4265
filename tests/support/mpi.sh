# SPDX-License-Identifier: Apache-2.0
# For the check_mpi*.sh, to be sourced after rules.sh: programs under libtwill-mpi, with every MPI that it
# is built for.
# shellcheck shell=sh disable=SC2154 # of rules.sh

programs=$build/tests/mpi
patience=700 # longer than the programs' own, which say where they hang
[ -z "${TEST_MPI_LONG:-}" ] || patience=7000
TEST_MPI_TWILL=1 TEST_SCRATCH=$scratch TWILL_TIMEOUT=${TWILL_TIMEOUT:-300}
OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
TWILL_MPI=${TWILL_MPI:-all} # small calls, too
export TEST_MPI_TWILL TEST_SCRATCH TWILL_TIMEOUT TWILL_MPI
export OMPI_MCA_rmaps_base_oversubscribe OMPI_MCA_mpi_yield_when_idle

# The MPIs that can be tried here.
mpis()
{
    for mpis_variant in openmpi mpich; do
        if command -v "mpirun.$mpis_variant" >/dev/null &&
            [ -f "$build/lib/libtwill-mpi-$mpis_variant.so" ]; then
            echo "$mpis_variant"
        fi
    done
}

options=
preloaded= # not empty: the variant of the library instead
# launch VARIANT RANKS PROGRAM ARGUMENT...: with twill; the program is one of tests/system/mpi, or a path.
launch()
{
    launch_variant=$1 launch_ranks=$2 launch_program=$3
    shift 3
    case $launch_program in
    /*) ;;
    *) launch_program=$programs/$launch_variant/$launch_program ;;
    esac
    launch_preload=$build/lib/libtwill-mpi-${preloaded:-$launch_variant}.so
    [ "$launch_variant" = openmpi ] || launch_preload="$programs/yield.so $launch_preload"
    set -- -n "$launch_ranks" env LD_PRELOAD="$launch_preload" "$launch_program" "$@"
    rm -f "$scratch/absent"
    # shellcheck disable=SC2086 # options
    case $launch_variant in
    openmpi) timeout -v -k 10 "$patience" mpirun.openmpi --allow-run-as-root --oversubscribe $options "$@" ;;
    *) timeout -v -k 10 "$patience" mpirun.mpich "$@" ;;
    esac
}

# unsaid COMPLAINT: about the output of the last program, which follows.
unsaid()
{
    fault "$1"
    shown "$scratch/output"
}

lacks= # not empty: what twill needs is kept from it on purpose
# compared VARIANT RANKS PROGRAM: the program ends well, says how much it has compared, and twill was able
# to set up all communicators that it is there for: or its calls would be the MPI's own.
compared()
{
    compared_name=$(basename "$3")
    rm -f "$scratch/report"
    TWILL_MPI_REPORT=$scratch/report
    export TWILL_MPI_REPORT
    must_end 0 "$1, $2 ranks: $compared_name $options" launch "$@"
    compared_status=$?
    unset TWILL_MPI_REPORT
    [ $compared_status -eq 0 ] || return 1
    grep "$compared_name: .* cases, 0 wrong" "$scratch/output" ||
        unsaid "$compared_name does not say what it has compared"
    [ -s "$scratch/report" ] || fault "$1: $compared_name leaves no report"
    [ -n "$lacks" ] || ! grep 'twill could not' "$scratch/report" ||
        fault "$1: $compared_name: a communicator was not set up"
}

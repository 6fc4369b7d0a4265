# SPDX-License-Identifier: Apache-2.0
# Helpers for check_mpi*.sh, to source after rules.sh: run programs under libtwill-mpi, with every
# MPI that it was built for.
# shellcheck shell=sh disable=SC2154 # of rules.sh

programs=$build/tests/mpi
patience=700 # longer than the programs' own, which say where they hang
[ -z "${TEST_MPI_LONG:-}" ] || patience=7000
TEST_MPI_TWILL=${TEST_MPI_TWILL:-1} TEST_SCRATCH=$scratch TWILL_TIMEOUT=${TWILL_TIMEOUT:-300}
OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export TEST_MPI_TWILL TEST_SCRATCH TWILL_TIMEOUT
export OMPI_MCA_rmaps_base_oversubscribe OMPI_MCA_mpi_yield_when_idle

# Print the MPIs that can be tested here.
mpis()
{
    for mpis_variant in openmpi mpich; do
        if command -v "mpirun.$mpis_variant" >/dev/null &&
            [ -f "$build/lib/libtwill-mpi-$mpis_variant.so" ]; then
            echo "$mpis_variant"
        fi
    done
}

options= # of mpirun.openmpi; of both if within is not empty
within=    # not empty: the command that runs mpirun, in a host of hosts.sh
preloaded= # not empty: the variant of the library instead
# launch VARIANT RANKS PROGRAM ARGUMENT...: run with twill; PROGRAM is one of tests/system/mpi, or a
# path.
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
    # shellcheck disable=SC2086 # words
    case $launch_variant in
    openmpi) timeout -v -k 10 "$patience" $within mpirun.openmpi --allow-run-as-root --oversubscribe $options "$@" ;;
    *) timeout -v -k 10 "$patience" $within mpirun.mpich ${within:+$options} "$@" ;;
    esac
}

# unsaid COMPLAINT: complain about the last program's output, which is printed.
unsaid()
{
    fault "$1"
    shown "$scratch/output"
}

lacks= # not empty: the test withholds something from twill
# compared VARIANT RANKS PROGRAM: run a program that must end well and print how much it compared.
# twill must have set up all communicators, or their calls would be the MPI's.
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
    [ -n "$lacks" ] || ! grep 'failed in twill' "$scratch/report" ||
        fault "$1: $compared_name: a communicator was not set up"
}

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_jax.sh [--ranks N] [--hosts] [--times] HOW...: JAX's collectives of N processes (2). HOW: gloo (JAX's own), mpi, or twill,
# which is that MPI with libtwill-mpi; docs/guides/frameworks.md says how to build the wrappers. --hosts: on two hosts, in blocks, which
# are network namespaces (root; 77: not possible). --times: the jobs of all HOWs time their calls in turns.
# TEST_PYTHON: a Python with jax. TEST_WRAPPER: libmpiwrapper.so that is linked with libtwill-mpi. TEST_WRAPPER_PLAIN: one that
# is not, for mpi. TEST_MPI: their MPI, mpich (the default) or openmpi. TEST_BUILD: twill's build folder.
# shellcheck source-path=SCRIPTDIR/../.. source=support/hosts_alone.sh
set -eu
jax=$(cd "$(dirname "$0")" && pwd)
here=$(cd "$jax/../.." && pwd)
build=${TEST_BUILD:-$here/../build} python=${TEST_PYTHON:-python3} mpi=${TEST_MPI:-mpich}
ranks=2 hosts=1 times='' port=$((20000 + $$ % 10000)) address=127.0.0.1
. "$here/support/hosts_alone.sh"
while :; do
    case ${1:-} in
    --ranks) ranks=$2 && shift ;;
    --hosts) hosts=2 ;;
    --times) times=--times ;;
    *) break ;;
    esac
    shift
done
[ "$hosts" -eq 1 ] || {
    hosts_up 2
    address=$(host_address 0)
    export GLOO_SOCKET_IFNAME=eth0 UCX_TLS=tcp,sm,self
}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
yields= # MPICH waits without yielding, so processes that share cores stand still; where each has a core, a yield costs time
[ "$mpi" != mpich ] || { [ -n "$times" ] && [ "$ranks" -le "$(nproc)" ]; } || yields=$build/tests/mpi/yield.so

# on_host K command...
on_host()
{
    on_host=$1
    shift
    if [ "$hosts" -eq 1 ]; then exec "$@"; else exec "$hosts_in" "$on_host" "$@"; fi
}

# run HOW NUMBER: run the job of HOW, the NUMBERth of $jobs.
run()
{
    set -- "$1" "$jax/jax_collectives.py" "$([ "$1" = gloo ] && echo gloo || echo mpi)" "$address:$((port + $2))" $times \
        --turns "$scratch" "$2" "$jobs"
    run_how=$1
    shift
    case $run_how in
    gloo)
        run_pids='' run_status=0
        for run_rank in $(seq 0 $((ranks - 1))); do
            (on_host $((run_rank * hosts / ranks)) env TEST_RANK="$run_rank" TEST_RANKS="$ranks" timeout 300 "$python" "$@") &
            run_pids="$run_pids $!"
        done
        for run_pid in $run_pids; do
            wait "$run_pid" || run_status=$?
        done
        return $run_status
        ;;
    mpi) run_wrapper=${TEST_WRAPPER_PLAIN:?} ;;
    twill) run_wrapper=${TEST_WRAPPER:?} ;;
    esac
    [ "$run_how" = mpi ] || export TWILL_MPI_REPORT=1
    set -- env LD_PRELOAD="$yields" MPITRAMPOLINE_DLOPEN_MODE=dlopen MPITRAMPOLINE_LIB="$run_wrapper" "$python" "$@"
    case $mpi,$hosts in
    *,1) set -- "mpiexec.$mpi" -n "$ranks" "$@" ;;
    mpich,*)
        set -- "$hosts_in" 0 mpiexec.mpich -launcher rsh -launcher-exec "$hosts_agent" -localhost "$address" -bind-to none \
            -hosts "h0:$((ranks / 2)),h1:$((ranks / 2))" -n "$ranks" "$@"
        ;;
    *)
        set -- "$hosts_in" 0 mpirun.openmpi --bind-to none --mca plm_rsh_agent "$hosts_agent" --mca oob_tcp_if_include eth0 \
            --mca btl_tcp_if_include eth0 -x TWILL_MPI_REPORT -H "h0:$((ranks / 2)),h1:$((ranks / 2))" "$@"
        ;;
    esac
    timeout 300 "$@"
}

jobs=$# number=0 pids='' status=0
for how; do
    run "$how" $number >"$scratch/$how" 2>&1 &
    pids="$pids $!"
    number=$((number + 1))
done
for pid in $pids; do
    wait "$pid" || status=$?
done
for how; do
    [ $jobs -eq 1 ] || echo "== $how"
    cat "$scratch/$how"
done
exit $status

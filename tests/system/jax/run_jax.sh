#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_jax.sh gloo|mpi|twill [--times]: JAX's collectives of two processes over its Gloo, over an MPI, and over that MPI
# with libtwill-mpi. docs/python.md says how to build the wrappers. TEST_PYTHON: a Python with jax. TEST_WRAPPER:
# libmpiwrapper.so, for twill the one that is linked with libtwill-mpi. TEST_MPI: its MPI, mpich (the default) or openmpi.
# TEST_BUILD: twill's build folder.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${TEST_BUILD:-$here/../../../build} python=${TEST_PYTHON:-python3} port=$((20000 + $$ % 20000)) mpi=${TEST_MPI:-mpich} status=0
how=$1
shift
case $how in
gloo)
    TEST_RANK=1 TEST_RANKS=2 timeout 300 "$python" "$here/jax_collectives.py" gloo $port "$@" &
    TEST_RANK=0 TEST_RANKS=2 timeout 300 "$python" "$here/jax_collectives.py" gloo $port "$@" || status=$?
    wait $! || status=$?
    ;;
mpi | twill)
    export MPITRAMPOLINE_DLOPEN_MODE=dlopen MPITRAMPOLINE_LIB="$TEST_WRAPPER" OMPI_ALLOW_RUN_AS_ROOT=1 \
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
    [ "$how" = mpi ] || export TWILL_MPI_REPORT=1
    yields= # MPICH waits without yielding
    [ "$mpi" != mpich ] || yields=$build/tests/mpi/yield.so
    timeout 300 "mpiexec.$mpi" -n 2 env LD_PRELOAD="$yields" "$python" "$here/jax_collectives.py" mpi $port "$@"
    ;;
esac
exit $status

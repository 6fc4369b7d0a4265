#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run_jax.sh gloo|mpi|twill [--times]: JAX's collectives of two processes over its Gloo, over MPICH, and over MPICH with
# libtwill-mpi. By hand, as JAX is 600 MB; docs/python.md says how to build the wrappers. TEST_PYTHON: a Python with jax.
# TEST_WRAPPER: libmpiwrapper.so, for twill the one that is linked with libtwill-mpi. TEST_BUILD: twill's build folder.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${TEST_BUILD:-$here/../../../build} python=${TEST_PYTHON:-python3} port=$((20000 + $$ % 20000))
how=$1
shift
case $how in
gloo)
    for rank in 0 1; do
        TEST_RANK=$rank TEST_RANKS=2 timeout 300 "$python" "$here/jax_collectives.py" gloo $port "$@" &
    done
    wait
    ;;
mpi | twill)
    export MPITRAMPOLINE_DLOPEN_MODE=dlopen MPITRAMPOLINE_LIB="$TEST_WRAPPER"
    [ "$how" = mpi ] || export TWILL_MPI_REPORT=1
    # MPICH waits without yielding.
    timeout 300 mpiexec.mpich -n 2 env LD_PRELOAD="$build/tests/mpi/yield.so" "$python" "$here/jax_collectives.py" mpi $port "$@"
    ;;
esac

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# JAX's psum, all_gather, psum_scatter and all_to_all of two and four processes on one host and of two on two hosts, over an
# MPI with libtwill-mpi, which takes the first three (the last is made of messages). Skipped (77) without JAX, which is
# 600 MB, or without MPItrampoline's wrapper ($TEST_WRAPPER), which docs/guides/frameworks.md builds. Variables: jax/run_jax.sh.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2154 # of rules.sh
. "$(dirname "$0")/../support/check.sh"
python=${TEST_PYTHON:-python3}
"$python" -c 'import jax' 2>/dev/null || skip "no JAX: $python cannot import it"
[ -n "${TEST_WRAPPER:-}" ] || skip "no MPItrampoline: TEST_WRAPPER names no libmpiwrapper.so linked with libtwill-mpi.so"
[ -e "$TEST_WRAPPER" ] || fail "TEST_WRAPPER: there is no $TEST_WRAPPER"

# collectives RANKS OPTION...: each call must be right on all ranks, and three of them twill's.
collectives()
{
    jax_ranks=$1 jax_got=0
    shift
    TEST_BUILD=$build sh "$here/system/jax/run_jax.sh" --ranks "$jax_ranks" "$@" twill >"$scratch/out" 2>&1 || jax_got=$?
    [ $jax_got -ne 77 ] || {
        echo "left out: $(tail -n 1 "$scratch/out")"
        return
    }
    [ $jax_got -eq 0 ] || fail "JAX over ${TEST_MPI:-mpich} and twill, $jax_ranks ranks $*"
    for call in psum all_gather psum_scatter all_to_all; do
        [ "$(grep -o "$call is right" "$scratch/out" | wc -l)" -eq "$jax_ranks" ] || fail "$call: not right on all processes"
    done
    for call in Allreduce Allgather Reduce_scatter; do
        grep -q "^twill-mpi: $call  *$jax_ranks  *0 " "$scratch/out" || fail "twill has not taken $call"
    done
    echo "ok: JAX's collectives, $jax_ranks ranks $*"
}
collectives 2
collectives 4
collectives 2 --hosts

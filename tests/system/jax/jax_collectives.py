# SPDX-License-Identifier: Apache-2.0
"""JAX's collectives between processes on CPUs, checked, and timed with --times.

    jax_collectives.py IMPLEMENTATION PORT [--times]     # gloo or mpi; run by run_jax.sh

The rank comes from the MPI's launcher, or from TEST_RANK and TEST_RANKS."""
import atexit
import os
import sys
import time
from functools import partial
from typing import Callable

# JAX finalizes the MPI when Python ends, and frees communicators after that, for which MPIs end the process with an
# error. What is registered first runs last: in between.
passed: list[bool] = []  # filled at the end of main()
atexit.register(lambda: os._exit(0 if passed else 1))

import jax  # noqa: E402
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

BYTES = (1 << 10, 64 << 10, 1 << 20, 16 << 20)
BATCHES = 3


def number(default: int, *names: str) -> int:
    return int(next((os.environ[name] for name in names if name in os.environ), default))


def calls(rank: int, ranks: int, n: int) -> dict:
    """Return each call with what it makes of rows of n elements a rank and peer on this rank."""
    rows = np.stack([np.arange(ranks * n, dtype=np.float32) + 100 * r for r in range(ranks)])
    mine = slice(rank * n, (rank + 1) * n)
    return {
        "psum": (partial(lax.psum, axis_name="x"), rows.sum(0)[None]),
        "all_gather": (partial(lax.all_gather, axis_name="x", tiled=True), rows),
        "psum_scatter": (partial(lax.psum_scatter, axis_name="x", scatter_dimension=1, tiled=True),
                         rows.sum(0)[None, mine]),
        "all_to_all": (partial(lax.all_to_all, axis_name="x", split_axis=1, concat_axis=0, tiled=True), rows[:, mine]),
    }


def timed(function: Callable, data: jax.Array) -> float:
    """Return the least seconds of a call over batches, after two calls that compile and connect."""
    function(data).block_until_ready()
    function(data).block_until_ready()
    repeats, least = 20 if data.nbytes < 8 << 20 else 5, float("inf")
    for _ in range(BATCHES):
        start = time.perf_counter()
        for _ in range(repeats):
            function(data).block_until_ready()
        least = min(least, (time.perf_counter() - start) / repeats)
    return least


def main() -> None:
    rank, ranks = number(0, "PMI_RANK", "OMPI_COMM_WORLD_RANK", "TEST_RANK"), \
        number(2, "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "TEST_RANKS")
    jax.config.update("jax_cpu_collectives_implementation", sys.argv[1])
    jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", num_processes=ranks, process_id=rank)
    mesh = Mesh(np.array(jax.devices()), ("x",))
    spread = NamedSharding(mesh, PartitionSpec("x"))

    def compiled(call: Callable) -> Callable:
        return jax.jit(jax.shard_map(call, mesh=mesh, in_specs=PartitionSpec("x"), out_specs=PartitionSpec("x"),
                                     check_vma=False))

    n = 8
    own = np.arange(ranks * n, dtype=np.float32)[None] + 100 * rank
    data = jax.make_array_from_process_local_data(spread, own)
    for name, (call, wanted) in calls(rank, ranks, n).items():
        got = np.asarray(compiled(call)(data).addressable_shards[0].data)
        assert got.shape == wanted.shape and (got == wanted).all(), (name, got, wanted)
        print(f"{name} is right", flush=True)
    for size in BYTES if "--times" in sys.argv else ():
        data = jax.make_array_from_process_local_data(spread, np.ones((1, size // 4), np.float32))
        for name, (call, _) in calls(rank, ranks, n).items():
            microseconds = 1e6 * timed(compiled(call), data)
            if rank == 0:
                print(f"{name} {size} {microseconds:.0f} us", flush=True)
    passed.append(True)


main()

# SPDX-License-Identifier: Apache-2.0
"""JAX's collectives between processes on CPUs, checked, and timed with --times.

    jax_collectives.py IMPLEMENTATION ADDRESS:PORT [--times [--turns FOLDER NUMBER JOBS]]   # gloo or mpi; run by run_jax.sh

ADDRESS is rank 0's. The rank comes from the MPI's launcher, or from TEST_RANK and TEST_RANKS. --turns: JOBS jobs, of which
this is NUMBER, time one batch each in turns, so that what the machine does besides meets all; they meet by files in FOLDER."""
import atexit
import os
import sys
import time
from functools import partial
from pathlib import Path
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
BATCHES = 5
POLL = 0.002  # seconds between two looks whether it is this job's turn


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


class Turns:
    """The turns of this job's batches: a job's turn begins when all ranks of the one before have ended theirs."""

    def __init__(self, rank: int, ranks: int, folder: str = "", job: str = "0", jobs: str = "1") -> None:
        self.rank, self.ranks, self.folder, self.next, self.jobs = rank, ranks, Path(folder), int(job), int(jobs)

    def mark(self, turn: int, rank: int) -> Path:
        return self.folder / f"{turn}.{rank}"

    def begin(self) -> None:
        while self.jobs > 1 and self.next and not all(self.mark(self.next - 1, r).exists() for r in range(self.ranks)):
            time.sleep(POLL)

    def end(self) -> None:
        if self.jobs > 1:
            self.mark(self.next, self.rank).touch()
        self.next += self.jobs


def batch(function: Callable, data: jax.Array) -> float:
    """Return the seconds of a call, on average over a batch, after a call in which the ranks meet."""
    function(data).block_until_ready()
    repeats = 20 if data.nbytes < 8 << 20 else 5
    start = time.perf_counter()
    for _ in range(repeats):
        function(data).block_until_ready()
    return (time.perf_counter() - start) / repeats


def times(functions: dict, spread: NamedSharding, turns: Turns) -> None:
    """Print the seconds of each call, the least batch's, for all sizes."""
    rows = {size: jax.make_array_from_process_local_data(spread, np.ones((1, size // 4), np.float32)) for size in BYTES}
    for row in rows.values():
        for function in functions.values():  # compile and connect
            function(row).block_until_ready()
    for size, row in rows.items():
        for name, function in functions.items():
            taken = []
            for _ in range(BATCHES):
                turns.begin()
                taken.append(batch(function, row))
                turns.end()
            if turns.rank == 0:
                print(f"{name} {size} {1e6 * min(taken):.0f} us, median {1e6 * sorted(taken)[BATCHES // 2]:.0f}", flush=True)


def main() -> None:
    rank, ranks = number(0, "PMI_RANK", "OMPI_COMM_WORLD_RANK", "TEST_RANK"), \
        number(2, "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "TEST_RANKS")
    jax.config.update("jax_cpu_collectives_implementation", sys.argv[1])
    jax.distributed.initialize(sys.argv[2], num_processes=ranks, process_id=rank)
    mesh = Mesh(np.array(jax.devices()), ("x",))
    spread = NamedSharding(mesh, PartitionSpec("x"))
    n = 8
    own = np.arange(ranks * n, dtype=np.float32)[None] + 100 * rank
    data = jax.make_array_from_process_local_data(spread, own)
    functions = {}
    for name, (call, wanted) in calls(rank, ranks, n).items():
        functions[name] = jax.jit(jax.shard_map(call, mesh=mesh, in_specs=PartitionSpec("x"), out_specs=PartitionSpec("x"),
                                                check_vma=False))
        got = np.asarray(functions[name](data).addressable_shards[0].data)
        assert got.shape == wanted.shape and (got == wanted).all(), (name, got, wanted)
        print(f"{name} is right", flush=True)
    if "--times" in sys.argv:
        at = sys.argv.index("--turns") if "--turns" in sys.argv else len(sys.argv)
        times(functions, spread, Turns(rank, ranks, *sys.argv[at + 1:at + 4]))
    passed.append(True)


main()

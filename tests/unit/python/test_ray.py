# SPDX-License-Identifier: Apache-2.0
"""twill as a backend of Ray's collectives: two actors, every call of ray.util.collective, and what comes back."""
from __future__ import annotations

import numpy
import ray
import ray.util.collective as collective

try:
    import torch
except ImportError:
    torch = None

SIZE = 2


@ray.remote(num_cpus=0)
class Actor:
    def __init__(self, rank: int) -> None:
        import twill.ray

        twill.ray.register()
        self.rank = rank
        collective.init_collective_group(SIZE, rank, backend="TWILL", group_name="default")

    def run(self) -> list[numpy.ndarray]:
        rank = self.rank
        total = numpy.full(5, float(rank + 1))
        collective.allreduce(total)
        sent = numpy.arange(3.0) + 10 * rank
        collective.broadcast(sent, src_rank=1)
        gathered = [numpy.zeros(2) for _ in range(SIZE)]
        collective.allgather(gathered, numpy.full(2, float(rank)))
        part = numpy.zeros(2)
        collective.reducescatter(part, [numpy.full(2, float(rank + 4 * shard)) for shard in range(SIZE)])
        rooted = numpy.full(2, float(rank + 1))
        collective.reduce(rooted, dst_rank=0)
        message = numpy.full(4, float(rank))
        if rank == 0:
            collective.send(message, 1)
        else:
            collective.recv(message, 0)
        self.run_strided()
        self.run_narrow()
        collective.barrier()
        return [total, sent, *gathered, part, rooted, message]


    def run_strided(self) -> None:
        """Arrays and tensors that are not contiguous: a column of a matrix, of which the others stay."""
        rank = self.rank
        for matrix in [numpy.zeros((4, 3))] + ([torch.zeros(4, 3)] if torch else []):
            column = matrix[:, 1]
            column[:] = rank + 1.0
            collective.allreduce(column)
            assert matrix.tolist() == [[0.0, 3.0, 0.0]] * 4, matrix
            column[:] = rank
            collective.broadcast(column, src_rank=1)
            assert matrix.tolist() == [[0.0, 1.0, 0.0]] * 4, matrix
            column[:] = rank + 1.0
            collective.reduce(column, dst_rank=0)
            assert rank != 0 or matrix.tolist() == [[0.0, 3.0, 0.0]] * 4, matrix
            column[:] = rank
            if rank == 0:
                collective.send(column, 1)
            else:
                collective.recv(column, 0)
            assert matrix.tolist() == [[0.0, 0.0, 0.0]] * 4, matrix
            column[:] = rank + 1.0
            collective.allgather([matrix[:, 0], matrix[:, 2]], column)
            assert matrix.tolist() == [[1.0, rank + 1.0, 2.0]] * 4, matrix
            collective.reducescatter(column, [matrix[:, 0], matrix[:, 2]])
            assert matrix.tolist() == [[1.0, 2.0 + 2 * rank, 2.0]] * 4, matrix

    def run_narrow(self) -> None:
        """A type that NumPy does not have."""
        if torch is None:
            return
        rank, kind = self.rank, torch.bfloat16
        gathered = [torch.zeros(2, dtype=kind) for _ in range(SIZE)]
        collective.allgather(gathered, torch.full((2,), rank + 1.5, dtype=kind))
        assert [one.tolist() for one in gathered] == [[1.5, 1.5], [2.5, 2.5]], gathered
        part = torch.zeros(2, dtype=kind)
        collective.reducescatter(part, gathered)
        assert part.tolist() == [3.0 + 2 * rank] * 2, part


ray.init(num_cpus=SIZE, include_dashboard=False, logging_level="error")
actors = [Actor.remote(rank) for rank in range(SIZE)]
for rank, got in enumerate(ray.get([actor.run.remote() for actor in actors], timeout=300)):
    total, sent, first, second, part, rooted, message = (array.tolist() for array in got)
    assert total == [3.0] * 5, total
    assert sent == [10.0, 11.0, 12.0], sent
    assert (first, second) == ([0.0] * 2, [1.0] * 2), (first, second)
    assert part == [1.0 + 8 * rank] * 2, part
    assert rank != 0 or rooted == [3.0] * 2, rooted
    assert message == [0.0] * 4, message
ray.shutdown()
print("ray: OK")

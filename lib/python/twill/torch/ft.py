# SPDX-License-Identifier: Apache-2.0
"""A process group of torchft over twill: torchft.Manager(pg=ProcessGroupTwill(), ...). It needs the package torchft."""
import torch
import torch.distributed as dist
import torchft
import torchft.ddp
from torchft.process_group import ProcessGroupWrapper

from . import create

__all__ = ["DistributedDataParallel", "ProcessGroupTwill"]


class ProcessGroupTwill(ProcessGroupWrapper):  # type: ignore[misc]
    """A group of the replicas in torchft's quorum. configure() makes a new group of them. abort() ends calls in progress on
    all its ranks, even if they wait for a dead rank."""

    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> dist.ProcessGroup:
        group = dist.ProcessGroup(store, rank, world_size)
        custom = dist.ProcessGroup.BackendType.CUSTOM
        group._set_default_backend(custom)
        group._register_backend(torch.device("cpu"), custom, create(store, rank, world_size, self._timeout))
        return group

    def getBackendName(self) -> str:
        return "torchft-twill"


class DistributedDataParallel(torchft.ddp.DistributedDataParallel):  # type: ignore[misc]
    """torchft's wrapper, except that it continues after a failure. In 0.2, torchft's expects a future in its manager's work,
    which has none if this bucket, or one of the step before, has failed (AssertionError, AttributeError; also over Gloo)."""

    @staticmethod  # PyTorch reads its annotations, which therefore cannot be text
    def _comm_hook(state: torchft.Manager, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        work = state.allreduce(bucket.buffer())
        work.wait()
        future = getattr(work.get_future(), "_fut", None)
        if future is None:  # the manager has noted the error and does not commit this step
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
        return future

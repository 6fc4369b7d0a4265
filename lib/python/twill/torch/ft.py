# SPDX-License-Identifier: Apache-2.0
"""A process group of torchft over twill: torchft.Manager(pg=ProcessGroupTwill(), ...). It needs the package torchft."""
import torch
import torch.distributed as dist
import torchft
import torchft.ddp
from torchft.process_group import ProcessGroupWrapper

from . import _create

__all__ = ["DistributedDataParallel", "ProcessGroupTwill"]


class ProcessGroupTwill(ProcessGroupWrapper):  # type: ignore[misc]
    """Replicas that torchft's quorum names: configure() makes a new group of them, abort() ends calls in progress on all
    its ranks, also where they wait for a dead one."""

    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> dist.ProcessGroup:
        group = dist.ProcessGroup(store, rank, world_size)
        custom = dist.ProcessGroup.BackendType.CUSTOM
        group._set_default_backend(custom)
        group._register_backend(torch.device("cpu"), custom, _create(store, rank, world_size, self._timeout))
        return group

    def getBackendName(self) -> str:
        return "torchft-twill"


class DistributedDataParallel(torchft.ddp.DistributedDataParallel):  # type: ignore[misc]
    """torchft's wrapper, but that it goes on after a failure. In 0.2 it looks for a future in its manager's work, which has
    none if this bucket has failed, or another one of the step before (AssertionError, AttributeError; also over Gloo)."""

    @staticmethod  # whose annotations PyTorch looks at: they cannot be text
    def _comm_hook(state: torchft.Manager, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        work = state.allreduce(bucket.buffer())
        work.wait()
        future = getattr(work.get_future(), "_fut", None)
        if future is None:  # the manager has noted the error: this step is not committed
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
        return future

# SPDX-License-Identifier: Apache-2.0
"""A process group of torchft over twill: torchft.Manager(pg=ProcessGroupTwill(), ...). It needs the package torchft."""
from __future__ import annotations

import torch
import torch.distributed as dist
from torchft.process_group import ProcessGroupWrapper

from . import _create

__all__ = ["ProcessGroupTwill"]


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

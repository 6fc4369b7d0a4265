# SPDX-License-Identifier: Apache-2.0
"""vLLM's platform for CPUs with collectives of twill. vLLM finds it by twill_entry.vllm_platform(), and Communicator by name."""
from __future__ import annotations

import functools
import pkgutil
from typing import Any

import torch.distributed as dist
from vllm.platforms import cpu_platform_plugin

from .engines import Collectives, collectives

_Base: Any = pkgutil.resolve_name(cpu_platform_plugin() or "vllm.platforms.cpu.CpuPlatform")


class Platform(_Base):  # type: ignore[misc] # no types without vLLM
    """vLLM's platform for this machine's CPUs, with another communicator for groups."""

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return "twill.torch.vllm.Communicator"


class _Distributed:
    """What vLLM calls of its own shared memory, by the same names. `dst` of gather() is a rank of the job, others are of the group."""

    def __init__(self, found: Collectives) -> None:
        self.found = found
        self.send_tensor_dict, self.recv_tensor_dict = found.send_tensor_dict, found.recv_tensor_dict

    def all_reduce(self, given: Any, group: Any = None) -> None:
        self.found.all_reduce(given)

    def all_gather_into_tensor(self, output: Any, given: Any, group: Any = None) -> None:
        self.found.all_gather_into_tensor(output, given)

    def gather(self, given: Any, gather_list: Any, dst: int = -1, group: Any = None) -> None:
        self.found.gather(given, gather_list, dist.get_group_rank(group, dst))


@functools.lru_cache(maxsize=None)
def _communicator() -> Any:
    """Return the class of vLLM's communicators of groups. Its base cannot be imported before vLLM has this platform."""
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator

    class Communicator(CpuCommunicator):  # type: ignore[misc]
        """The communicator of a group. It is vLLM's own where twill is not the backend of the group."""

        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            found = collectives(self.device_group)
            if found is not None:
                self.dist_module = _Distributed(found)
                self.supports_tensor_dict = True

        def _all_group_ranks_share_shm_group_name(self) -> bool:
            """Return whether vLLM makes shared memory of its own, which it then says."""
            return collectives(self.device_group) is None and bool(super()._all_group_ranks_share_shm_group_name())

    return Communicator


def __getattr__(name: str) -> Any:
    if name == "Communicator":
        return _communicator()
    raise AttributeError(f"module {__name__} has no attribute {name}")

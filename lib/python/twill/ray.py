# SPDX-License-Identifier: Apache-2.0
"""twill as a backend of ray.util.collective (Ray 2.55 and later), for NumPy arrays and PyTorch CPU tensors:

    import twill.ray                    # in the driver and in each actor
    twill.ray.register()
    ray.util.collective.init_collective_group(size, rank, backend="TWILL", group_name="default")
"""
from __future__ import annotations

import time
from typing import Any, Sequence

import numpy
from ray.experimental import internal_kv
from ray.util.collective import backend_registry
from ray.util.collective.collective_group.base_collective_group import BaseGroup
from ray.util.collective.types import ReduceOp

from . import Bootstrap, Op, init

__all__ = ["Group", "register"]

_OPERATIONS = {ReduceOp.SUM: Op.SUM, ReduceOp.PRODUCT: Op.PROD, ReduceOp.MIN: Op.MIN, ReduceOp.MAX: Op.MAX}
_SETUP_SECONDS = 60.0


class _RayRendezvous:
    """An all-gather over Ray's key-value store, for set-up."""

    def __init__(self, group: str, rank: int, size: int) -> None:
        self._group, self._rank, self._size, self._round = group, rank, size, 0

    def _key(self, number: int, rank: int) -> str:
        return f"twill/{self._group}/{number}/{rank}"

    def exchange(self, mine: bytes) -> list[bytes]:
        """Return the bytes of all ranks, which all must be there within a minute (TimeoutError)."""
        internal_kv._internal_kv_put(self._key(self._round, self._rank), mine, overwrite=True)
        deadline = time.monotonic() + _SETUP_SECONDS
        parts = [mine if rank == self._rank else self._wait(rank, deadline) for rank in range(self._size)]
        self.forget()  # all ranks have read the key of the round before
        self._round += 1
        return parts

    def _wait(self, rank: int, deadline: float) -> bytes:
        while (value := internal_kv._internal_kv_get(self._key(self._round, rank))) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"twill: rank {rank} has not joined the group {self._group!r} within {_SETUP_SECONDS} s")
            time.sleep(0.005)
        return bytes(value)

    def forget(self) -> None:
        """Delete this rank's key of the round before the current one."""
        if self._round > 0:
            internal_kv._internal_kv_del(self._key(self._round - 1, self._rank))


def _one(tensors: Sequence[Any]) -> Any:
    if len(tensors) != 1:
        raise ValueError(f"twill: one tensor for each actor, not {len(tensors)}")
    return tensors[0]


def _is_torch(tensor: Any) -> bool:
    return hasattr(tensor, "untyped_storage") or hasattr(tensor, "storage_offset")  # without importing PyTorch


def _flat(tensor: Any) -> Any:
    """Return a contiguous array or tensor: the given one, or a copy."""
    return tensor.detach().contiguous() if _is_torch(tensor) else numpy.ascontiguousarray(tensor)


def _store(flat: Any, tensor: Any) -> None:
    """Copy a result to where the caller wants it, unless it is there already."""
    if _is_torch(tensor):
        if flat.data_ptr() != tensor.data_ptr() or not tensor.is_contiguous():
            tensor.detach().copy_(flat.reshape(tensor.shape))
    elif flat is not tensor:
        tensor[...] = flat.reshape(tensor.shape)


def _stacked(tensors: Sequence[Any]) -> Any:
    """Return all tensors stacked, of the kind of the first, as NumPy has no bfloat16."""
    if not _is_torch(tensors[0]):
        return numpy.stack(tensors)
    import torch

    return torch.stack([tensor.detach() for tensor in tensors])


class Group(BaseGroup):  # type: ignore[misc]
    """A group of actors. All its calls block."""

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        rendezvous = _RayRendezvous(group_name, rank, world_size)
        self._comm = init(Bootstrap(rank, world_size, rendezvous.exchange))
        self._comm.barrier()
        rendezvous.forget()

    @classmethod
    def backend(cls) -> str:
        return "TWILL"

    @classmethod
    def check_backend_availability(cls) -> bool:
        return True

    def destroy_group(self) -> None:
        self._comm.leave()

    def allreduce(self, tensor: Any, allreduce_options: Any) -> None:
        mine = _one(tensor)
        flat = _flat(mine)
        self._comm.allreduce(flat, None, _OPERATIONS[allreduce_options.reduceOp])
        _store(flat, mine)

    def barrier(self, barrier_options: Any = None) -> None:
        self._comm.barrier()

    def reduce(self, tensor: Any, reduce_options: Any) -> None:
        mine, root = _one(tensor), reduce_options.root_rank
        flat = _flat(mine)
        self._comm.reduce(flat, flat if root == self.rank else None, _OPERATIONS[reduce_options.reduceOp], root)
        if root == self.rank:
            _store(flat, mine)

    def broadcast(self, tensor: Any, broadcast_options: Any) -> None:
        mine, root = _one(tensor), broadcast_options.root_rank
        flat = _flat(mine)
        self._comm.broadcast(flat, root)
        if root != self.rank:
            _store(flat, mine)

    def allgather(self, tensor_list: Any, tensor: Any, allgather_options: Any = None) -> None:
        outputs = _one(tensor_list)
        block = _stacked(outputs)
        self._comm.allgather(_flat(_one(tensor)), block)
        for output, got in zip(outputs, block):
            _store(got, output)

    def reducescatter(self, tensor: Any, tensor_list: Any, reducescatter_options: Any) -> None:
        mine = _one(tensor)
        flat = _flat(mine)
        self._comm.reduce_scatter(_stacked(_one(tensor_list)), flat, _OPERATIONS[reducescatter_options.reduceOp])
        _store(flat, mine)

    def send(self, tensor: Any, send_options: Any) -> None:
        self._comm.send(_flat(_one(tensor)), send_options.dst_rank)

    def recv(self, tensor: Any, recv_options: Any) -> None:
        mine = _one(tensor)
        flat = _flat(mine)
        self._comm.recv(flat, recv_options.src_rank)
        _store(flat, mine)


def register() -> None:
    """Make "TWILL" a backend of ray.util.collective in this process."""
    if not backend_registry._global_registry.is_registered("TWILL"):
        backend_registry.register_collective_backend("TWILL", Group)

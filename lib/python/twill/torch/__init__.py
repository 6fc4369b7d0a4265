# SPDX-License-Identifier: Apache-2.0
"""twill as a backend of torch.distributed (see docs/guides/pytorch.md).

    import twill.torch # not needed from PyTorch 2.5 on, if twill is installed
    torch.distributed.init_process_group("twill")       # or "cpu:twill", "cpu:twill,cuda:nccl"
"""
from __future__ import annotations

import datetime
import functools
import inspect
import os
import sys
from typing import Any

import torch
import torch.distributed as dist

import twill
import twill_entry

__all__ = ["answer_for_gloo", "backend_of", "monitored_barrier", "shrink", "compress_hook", "promote", "demote",
           "stop_requested"]
_CPU = torch.device("cpu")


def create(store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    """Return the backend of a group, as torch.distributed expects it."""
    if getattr(dist.distributed_c10d, "_twill_answers_for_gloo", "") == "unsaid":
        dist.distributed_c10d._twill_answers_for_gloo = "said"
        if rank == 0:
            print('twill.torch: "gloo" means twill in this job (TORCH_TWILL_GLOO)', file=sys.stderr, flush=True)
    if "deepspeed.comm.torch" in sys.modules:
        from .engines import adapt_deepspeed
        adapt_deepspeed()
    if not hasattr(dist.ProcessGroup, "shutdown"):  # before 2.7 a group ends when nothing refers to it
        # The functions of this module keep the default group that exists when it is imported. DistributedDataParallel imports it from 2.5 on.
        from torch.distributed.nn import functional  # noqa: F401
    from . import build  # only when it is needed, as it imports the build tools
    if os.environ.get("TORCH_TWILL_PYTHON", "0") in ("", "0"):
        try:
            group = build.load().create(store, rank, size, timeout)
            if not torch.cuda.is_available():  # only then does DistributedDataParallel ask a backend for memory
                os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")
            return group
        except build.NoCompiler as error:
            if os.environ.get("RANK", "0") == "0":
                print(f"{error}: groups are made without it, which lacks messages and what runs beside computation "
                      "(docs/guides/pytorch.md)", file=sys.stderr, flush=True)
            os.environ["TORCH_TWILL_PYTHON"] = "1"  # decide and report this only once
    from .python_group import Group
    return Group(store, rank, size, timeout)


def _set_timeout(of_others: Any, timeout: datetime.timedelta, group: dist.ProcessGroup | None = None) -> None:
    """Set the time limit of a group like PyTorch's _set_pg_timeout(), which ignores backends that it does not know."""
    group = group if group is not None else dist.distributed_c10d._get_default_group()
    devices = group._device_types
    in_python = hasattr(group, "describe")  # a group written in Python has no devices
    backend = backend_of(group) if in_python or _CPU in devices else None
    if not hasattr(backend, "describe"):
        of_others(timeout, group)
        return
    backend.set_timeout(timeout)
    if torch.device("cuda") in devices:
        of_others(timeout, group)


def _agree_on_devices(store: dist.Store, name: str, rank: int, size: int, timeout: datetime.timedelta) -> bool:
    """Return whether any rank of a group sees CUDA devices. All its ranks call this. RuntimeError names ranks that are too late."""
    keys = [f"twill/devices/{name}/{r}" for r in range(size)]
    store.set(keys[rank], "1" if torch.cuda.is_available() else "0")
    try:
        store.wait(keys, timeout)
    except RuntimeError as error:  # DistStoreError is one
        missing = [str(r) for r, key in enumerate(keys) if not store.check([key])]
        if not missing:
            raise
        raise RuntimeError(f"twill.torch: ranks {', '.join(missing)} of group {name} have not said within {timeout.total_seconds():g} s whether they "
                           'see CUDA devices: "gloo" must mean twill on all ranks or on none (TORCH_TWILL_GLOO)') from error
    one_by_one = not (hasattr(store, "multi_get") and store.has_extended_api())
    return b"1" in ([store.get(key) for key in keys] if one_by_one else store.multi_get(keys))


def _agree_on_groups(c10d: Any) -> None:
    """Make the ranks of each group with the backend name "gloo" decide together whether it is also for CUDA devices. The result
    is c10d._twill_cuda_devices, or None if each rank decides for itself. A group of all ranks decides for those made from it."""
    make = c10d._new_process_group_helper
    signature = inspect.signature(make)
    c10d._twill_cuda_devices, c10d._twill_job_decided = None, False

    @functools.wraps(make)
    def agree_and_make(*args: Any, **named: Any) -> Any:
        given = signature.bind(*args, **named).arguments
        ranks, backend = given["global_ranks_in_group"], str(given["backend"]).lower()
        if not ranks:  # a new job
            c10d._twill_cuda_devices, c10d._twill_job_decided = None, False
        by_name = backend == "gloo" or backend.count(":gloo") > 1
        if by_name and not c10d._twill_job_decided and (not ranks or dist.get_rank() in ranks):
            name = given.get("group_name") or f"#{c10d._world.group_count}"
            limit = given.get("timeout") or dist.constants.default_pg_timeout
            c10d._twill_cuda_devices = _agree_on_devices(given["store"], name, given["group_rank"], given["group_size"], limit)
            c10d._twill_job_decided = not ranks
        return make(*args, **named)

    c10d._new_process_group_helper = agree_and_make


def answer_for_gloo() -> None:
    """Make the name "gloo" mean twill on CPUs in this process, as TORCH_TWILL_GLOO=1 does when torch is imported."""
    c10d = dist.distributed_c10d
    if getattr(c10d, "_twill_answers_for_gloo", False):
        return
    c10d._twill_answers_for_gloo = "unsaid"  # until the first group is made
    os.environ["TORCH_TWILL_GLOO"] = "1"  # names of calls in profiles then begin with gloo
    if hasattr(c10d, "BackendConfig"):
        of_config = c10d.BackendConfig.get_device_backend_map

        def with_twill(self: Any) -> dict[str, str]:
            named = of_config(self)
            devices = c10d._twill_cuda_devices
            if "cpu" in named and not (torch.cuda.is_available() if devices is None else devices):
                # "gloo" is for all devices, but needs no second group for devices that do not exist
                named = {device: name for device, name in named.items() if device == "cpu" or name != "gloo"}
            return {device: "twill" if device == "cpu" and name == "gloo" else name for device, name in named.items()}

        c10d.BackendConfig.get_device_backend_map = with_twill
        _agree_on_groups(c10d)
        if hasattr(dist.Backend, "_ensure_backend_registered"):  # from 2.14 on "gloo" is entered at its first use
            dist.Backend._ensure_backend_registered("gloo")
        if "GLOO" in dir(dist.Backend) and hasattr(dist.Backend, "backend_type_map"):
            dist.Backend.backend_type_map["gloo"] = dist.ProcessGroup.BackendType.CUSTOM
        if hasattr(c10d, "_set_pg_timeout"):
            c10d._set_pg_timeout = functools.partial(_set_timeout, c10d._set_pg_timeout)
    else:
        c10d.ProcessGroupGloo = lambda store, rank, size, timeout: create(store, rank, size, timeout)


def backend_of(group: dist.ProcessGroup | None = None) -> Any:
    """Return twill's backend of a group. It has methods that torch.distributed does not offer: describe(), calls(),
    set_timeout(), abort_calls(), without(), make_handle(), reconfigure()."""
    group = group if group is not None else dist.distributed_c10d._get_default_group()
    if hasattr(group, "describe"):
        return group
    backend = group._get_backend(_CPU)
    return getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it


def monitored_barrier(group: dist.ProcessGroup | None = None, timeout: datetime.timedelta | None = None,
                      wait_all_ranks: bool = False) -> None:
    """Wait for all ranks, and raise an error with those that do not come. This replaces
    torch.distributed.monitored_barrier(), which only accepts "gloo"."""
    group = group if group is not None else dist.distributed_c10d._get_default_group()
    limit = timeout if timeout is not None else datetime.timedelta(minutes=5)
    group.monitored_barrier(limit, wait_all_ranks=wait_all_ranks)


def shrink(excluded: list[int], group: dist.ProcessGroup | None = None, abort: bool = False) -> Any:
    """Return a backend of the ranks of a group that are not excluded. All of these call it, and the others may be dead.
    torch.distributed.shrink_group() of 2.10 and later calls it."""
    return backend_of(group).without(excluded, abort)


def _tensors_of(what: Any) -> list[torch.Tensor]:
    if isinstance(what, torch.nn.Module):
        parameters = list(what.parameters())
        return parameters + [p.grad for p in parameters if p.grad is not None] + list(what.buffers())
    return [what] if isinstance(what, torch.Tensor) else list(what)


def promote(what: Any, group: dist.ProcessGroup | None = None) -> int:
    """Let the ranks of a node use tensors without a copy (twill_promote()), and return how many can be.

    `what` is a tensor, several, or a module, whose parameters, gradients and buffers are meant. It is for memory that
    stays: storages are promoted until demote(), until they are resized or freed, or until the job ends. Other threads must
    not write to them during the call. Storages below 64 KiB stay as they are."""
    backend = backend_of(group)
    return sum(backend.promote(tensor) for tensor in _tensors_of(what)) if hasattr(backend, "promote") else 0


def demote(what: Any, group: dist.ProcessGroup | None = None) -> int:
    """Undo promote(), and return how many tensors were promoted."""
    backend = backend_of(group)
    return sum(backend.demote(tensor) for tensor in _tensors_of(what)) if hasattr(backend, "demote") else 0


def stop_requested(group: dist.ProcessGroup | None = None) -> int:
    """Return 0, or the number of the group's call by which all its ranks knew that one of them has called twill.stop().

    All ranks ask at the same places, such as after each step. It waits for calls under way and sends nothing."""
    return int(backend_of(group).stop_requested())


def compress_hook(state, bucket):  # type: ignore[no-untyped-def] # torch looks at annotations
    """Average gradients in 16 bits, including their partial sums between hosts, as a communication hook for
    DistributedDataParallel. It uses twill_op_create_narrow(), and twill(7) has its error.

    `state` is a group or None, or a pair (group, dtype) with torch.bfloat16 (the default) or torch.float16."""
    group, dtype = state if isinstance(state, tuple) else (state, torch.bfloat16)
    backend = backend_of(group)
    work = backend.average_narrow(bucket.buffer().to(dtype))

    def widen(future: Any) -> torch.Tensor:
        return bucket.buffer().copy_(future.value()[0])

    return work.get_future().then(widen)


twill_entry.name_backend()
if twill_entry.answers_for_gloo():
    answer_for_gloo()

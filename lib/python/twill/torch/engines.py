# SPDX-License-Identifier: Apache-2.0
"""Inference engines on CPUs over twill: DeepSpeed, SGLang and, with vllm.py, vLLM (see docs/guides/engines.md).

Each engine has its own sum over shared memory. The adapters replace it by Collectives, which is for groups of any ranks on any
hosts, tensors of any type and strides, and ends with an error after the time limit of the group."""
from __future__ import annotations

import pickle
import sys
from typing import Any

import torch
import torch.distributed as dist

from . import backend_of

_FIRST = 1024  # bytes of the first message of a dictionary
_SUM = dist.ReduceOp.SUM


def _options_of(op: Any) -> Any:
    made = dist.AllreduceOptions()
    made.reduceOp = op
    if hasattr(made, "asyncOp"):
        made.asyncOp = False  # the call then runs in this thread
    return made


_OF_SUM = _options_of(_SUM)


class Collectives:
    """Blocking collectives of a group whose backend for CPUs is twill. One thread at a time calls them, and all ranks in the same order.

    They call the backend without the layers of torch.distributed, which take longer than the sum of a small tensor. RuntimeError
    has the reason of a failure, and names ranks that have not come. Ranks are those of the group."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend

    def all_reduce(self, tensor: torch.Tensor, op: Any = _SUM) -> torch.Tensor:
        """Reduce a tensor of any strides in place, and return it."""
        work = self.backend.allreduce([tensor], _OF_SUM if op is _SUM else _options_of(op))
        if work is not None:
            work.wait()
        return tensor

    def all_gather_into_tensor(self, output: torch.Tensor, given: torch.Tensor) -> None:
        """Copy the tensors of all ranks to `output`, one after the other."""
        self._wait(self.backend._allgather_base(output, given))

    def all_gather(self, given: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """Return the tensors of all ranks joined along a dimension."""
        parts = given.new_empty((self.backend.size(), *given.shape))
        self.all_gather_into_tensor(parts, given)
        return parts[0] if len(parts) == 1 else torch.cat(parts.unbind(), dim)

    def reduce_scatter_tensor(self, output: torch.Tensor, given: torch.Tensor) -> None:
        """Add up the tensors of all ranks, each of which gets its equal part."""
        self._wait(self.backend._reduce_scatter_base(output, given))

    def gather(self, given: torch.Tensor, outputs: list[torch.Tensor] | None, dst: int) -> None:
        """Copy the tensors of all ranks to the list of rank `dst`. On other ranks `outputs` is None."""
        options = dist.GatherOptions()
        options.rootRank = dst
        self._wait(self.backend.gather([] if outputs is None else [outputs], [given], options))

    def send_tensor_dict(self, what: dict[str, Any], dst: int) -> None:
        """Send a dictionary to rank `dst`: tensors as they are, other values pickled."""
        described = {key: (value.shape, value.dtype) if isinstance(value, torch.Tensor) else [value] for key, value in what.items()}
        data = bytearray(8) + pickle.dumps(described)
        data[:8] = len(data).to_bytes(8, "little")
        data.extend(bytes(max(0, _FIRST - len(data))))
        message = torch.frombuffer(data, dtype=torch.uint8)
        tensors = [value.contiguous() for value in what.values() if isinstance(value, torch.Tensor)]
        works = [self.backend.send([tensor], dst, 0) for tensor in (message[:_FIRST], message[_FIRST:], *tensors) if tensor.numel()]
        for work in works:
            work.wait()

    def recv_tensor_dict(self, src: int) -> dict[str, Any]:
        """Return the dictionary that rank `src` sends next."""
        message = torch.empty(_FIRST, dtype=torch.uint8)
        self.backend.recv([message], src, 0).wait()
        length = int.from_bytes(message[:8].numpy().tobytes(), "little")
        if length > _FIRST:
            rest = torch.empty(length - _FIRST, dtype=torch.uint8)
            self.backend.recv([rest], src, 0).wait()
            message = torch.cat((message, rest))
        described = pickle.loads(message[8:length].numpy().tobytes())
        got = {key: value[0] if isinstance(value, list) else torch.empty(value[0], dtype=value[1]) for key, value in described.items()}
        tensors = [got[key] for key, value in described.items() if not isinstance(value, list)]
        for work in [self.backend.recv([tensor], src, 0) for tensor in tensors if tensor.numel()]:
            work.wait()
        return got

    def _wait(self, work: Any) -> None:
        if work is not None:
            work.wait()


def collectives(group: Any = None) -> Collectives | None:
    """Return the collectives of a group (None: of all ranks), or None if twill is not its backend for CPUs."""
    backend = backend_of(group)
    return Collectives(backend) if hasattr(backend, "describe") else None


def adapt_deepspeed() -> None:
    """Let DeepSpeed's inference_all_reduce() be twill's in groups of twill, which DeepSpeed sums up over all ranks if it has built
    its shared memory. Each new group of twill calls this, so a program whose groups are older than its import of DeepSpeed does, too."""
    module = sys.modules.get("deepspeed.comm.torch")
    of_deepspeed = getattr(getattr(module, "TorchBackend", None), "inference_all_reduce", None)
    if of_deepspeed is None or hasattr(of_deepspeed, "of_twill"):
        return

    def inference_all_reduce(self: Any, tensor: torch.Tensor, op: Any, group: Any = None) -> Any:
        found = collectives(group) if tensor.is_cpu and not torch.compiler.is_compiling() else None
        if found is None:
            return of_deepspeed(self, tensor, op, group)
        return found.all_reduce(tensor, self._reduce_op(op))

    inference_all_reduce.of_twill = True  # type: ignore[attr-defined]
    module.TorchBackend.inference_all_reduce = inference_all_reduce  # type: ignore[union-attr]


def adapt_sglang() -> None:
    """Register hooks with which SGLang's groups of twill use it instead of shared memory. SGLang calls this as a plugin."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    def all_reduce(of_sglang: Any, self: Any, given: torch.Tensor) -> torch.Tensor:
        if given.is_cpu and self.world_size > 1 and not torch.compiler.is_compiling():
            if not hasattr(self, "of_twill"):
                self.of_twill = collectives(self.device_group)
            if self.of_twill is not None:
                return self.of_twill.all_reduce(given)
        return of_sglang(self, given)

    # without shared memory SGLang calls torch.distributed with the group, also in compiled models
    HookRegistry.register("sglang.srt.utils.common.is_shm_available", lambda *_: False, HookType.REPLACE)
    HookRegistry.register("sglang.srt.distributed.parallel_state.GroupCoordinator.all_reduce", all_reduce, HookType.AROUND)

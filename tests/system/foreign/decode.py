# SPDX-License-Identifier: Apache-2.0
"""A decode step of a toy model that is split between the ranks: 96 allreduces of 8 to 64 KiB of bfloat16 a token, as engines
make them, through each adapter, through the shared memory of each engine that is there, and through Gloo. The ways take turns.

    TORCH_TWILL_GLOO=0 OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 decode.py

Rank 0 prints the time of a token's 96 allreduces, each the least or the median of all with its size, with the ratio to
that of twill's backend alone. A way that cannot run here is named with the reason. VLLM_OPS may name a library with vLLM's operators for CPUs."""
import contextlib
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

import twill.torch
from twill.torch import engines

KIB, ROUNDS, HIDDEN = (8, 16, 32, 64), 20, 4096
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
dist.init_process_group("twill")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
GROUP = dist.distributed_c10d._get_default_group()
gloo = dist.new_group(backend="gloo")
ways, absent = {}, {}


def way(name):
    """Keep what a function returns, an allreduce in place, if it works here for 1 + 2 + ... in bfloat16, or float32."""
    def keep(make):
        reason = "?"
        with contextlib.redirect_stdout(sys.stderr):
            try:
                reduce = make()
                reason = f"sums in {reduce.dtype} only" if getattr(reduce, "dtype", None) else ""
            except Exception as error:
                reduce, reason = None, f"{type(error).__name__}: {error}".splitlines()[0][:90]
        can = torch.tensor([reduce is not None], dtype=torch.int32)
        dist.all_reduce(can, dist.ReduceOp.MIN)
        if not can.item():
            absent[name] = reason
            return
        tensor = torch.full((HIDDEN,), float(RANK + 1), dtype=getattr(reduce, "dtype", torch.bfloat16))
        reduce(tensor)
        assert tensor[0].item() == SIZE * (SIZE + 1) / 2, name
        ways[name] = reduce
    return keep


@way("twill's backend")
def _():
    return engines.collectives().all_reduce


@way("torch.distributed, twill")
def _():
    return dist.all_reduce


@way("Gloo")
def _():
    return lambda tensor: dist.all_reduce(tensor, group=gloo)


@way("DeepSpeed, twill")
def _():
    import deepspeed.comm.torch  # noqa: F401
    module = sys.modules["deepspeed.comm.torch"]
    engines.adapt_deepspeed()
    backend = module.TorchBackend.__new__(module.TorchBackend)
    return lambda tensor: backend.inference_all_reduce(tensor, dist.ReduceOp.SUM, GROUP)


@way("DeepSpeed, own shared memory")
def _():
    os.environ["LOCAL_SIZE"] = str(SIZE)
    import deepspeed.comm.torch  # noqa: F401
    built = sys.modules["deepspeed.comm.torch"].build_shm_op()
    level = built.vector_kernel_level()
    if level < 1:
        raise RuntimeError("it needs AVX2")
    built.initialize(SIZE, RANK)

    def reduce(tensor):
        torch.ops.deepspeed.inference_all_reduce_(tensor)
    if level < 2:
        reduce.dtype = torch.float32  # bfloat16 needs AVX-512
    return reduce


@way("vLLM, twill")
def _():
    import twill.torch.vllm as module
    return module.Communicator(cpu_group=GROUP, device=torch.device("cpu"), device_group=GROUP, unique_name="tp:0").all_reduce


@way("vLLM, own shared memory")
def _():
    if "VLLM_OPS" in os.environ:
        torch.ops.load_library(os.environ["VLLM_OPS"])
    names = [f"twill-decode-{os.getppid()}"]
    dist.broadcast_object_list(names, 0)
    handle = torch.ops._C.init_shm_manager(names[0], SIZE, RANK, torch.get_num_threads())
    dist.barrier()
    torch.ops._C.join_shm_manager(handle, names[0])
    dist.barrier()
    return lambda tensor: torch.ops._C.shm_allreduce(handle, tensor)


@way("SGLang, twill")
def _():
    from sglang.srt.distributed.parallel_state import GroupCoordinator
    from sglang.srt.plugins.hook_registry import HookRegistry
    engines.adapt_sglang()
    HookRegistry.apply_hooks()
    return GroupCoordinator([list(range(SIZE))], 0, "twill", False, False, False, False, False, False, False, group_name="tp").all_reduce


@way("SGLang, own shared memory")
def _():
    import sgl_kernel  # noqa: F401 # its operators
    os.environ["LOCAL_SIZE"] = str(SIZE)
    torch.ops.sgl_kernel.initialize(SIZE, RANK)
    return lambda tensor: torch.ops.sgl_kernel.shm_allreduce(tensor, 0)


down, up = torch.randn(HIDDEN, 32) / 64, torch.randn(32, HIDDEN) / 64
states = [torch.randn(kib * 1024 // HIDDEN // 2, HIDDEN) for kib in KIB]


def token(reduce):
    """Return the time of each allreduce of one token of 48 layers, which have two each."""
    dtype, taken = getattr(reduce, "dtype", torch.bfloat16), []
    for layer in range(96):
        y = (states[layer % len(states)] @ down @ up).to(dtype)
        if dtype == torch.float32:
            y = y.flatten()[:y.numel() // 2]  # as many bytes
        begin = time.perf_counter()
        reduce(y)
        taken.append(time.perf_counter() - begin)
    return taken


times = {name: [] for name in ways}
for _ in range(ROUNDS):
    for name, reduce in ways.items():
        dist.barrier()
        times[name].append(token(reduce))
if RANK == 0:
    def summed(name, of):  # over the allreduces of a token
        return sum(of([taken for tokens in times[name] for taken in tokens[size::len(KIB)]]) for size in range(len(KIB))) * 96 / len(KIB) * 1e3
    base = summed("twill's backend", min), summed("twill's backend", statistics.median)
    print("way,type,least ms a token,ratio,median,ratio")
    for name in ways:
        kind = str(getattr(ways[name], "dtype", torch.bfloat16)).replace("torch.", "")
        least, middle = summed(name, min), summed(name, statistics.median)
        print(f"{name},{kind},{least:.2f},{least / base[0]:.2f},{middle:.2f},{middle / base[1]:.2f}")
    for name, reason in absent.items():
        print(f"{name}: not run: {reason}")
sys.stdout.flush()
os._exit(0)

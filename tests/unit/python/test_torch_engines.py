# SPDX-License-Identifier: Apache-2.0
"""Inference engines over twill, on any number of ranks: sums, gathers and dictionaries of groups, types and strides, and a rank that does not
come. Engines that are installed are called themselves. For others a double makes the same calls."""
import contextlib
import datetime
import enum
import importlib
import os
import pickle
import sys
import types
import unittest

os.environ["TORCH_TWILL_GLOO"] = "1"

import torch
import torch.distributed as dist

import twill.torch
import twill_entry
from twill.torch import engines

RANK = SIZE = 0
REAL = []  # engines that are installed


def module(name, **named):
    made = sys.modules[name] = types.ModuleType(name)
    made.__dict__.update(named)
    if "." in name:
        parent, _, last = name.rpartition(".")
        setattr(sys.modules.get(parent) or module(parent), last, made)
    return made


def is_installed(name, engine):
    with contextlib.suppress(ImportError):
        if importlib.import_module(name).__spec__ is None:
            return False  # the double of an earlier test
        REAL.append(engine)
        return True
    return False


def group_of(ranks):
    """Return the group of some ranks, which all ranks make, or None on others."""
    made = dist.new_group(ranks)
    return made if RANK in ranks else None


def sums(reduce, ranks):
    """Sum up tensors of several types, sizes and strides with a function of an engine."""
    total, own = sum(r + 1 for r in ranks), RANK + 1
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int64, torch.int8):
        for count in (1, 7, 4096, 40000):
            tensor = torch.full((count,), own, dtype=dtype)
            yield reduce(tensor).tolist(), [total] * count
            yield tensor.tolist(), [total] * count
    base = torch.full((6, 4), own)
    reduce(base.t()[1:3])  # columns of a matrix
    yield base.tolist(), [[own, total, total, own]] * 6


class Core(unittest.TestCase):
    def test_groups(self):
        for ranks in (list(range(SIZE)), list(range(1, SIZE))):
            group = group_of(ranks)
            if group is None:
                continue
            found = engines.collectives(group)
            for got, want in sums(found.all_reduce, ranks):
                self.assertEqual(got, want)
            most = torch.tensor([RANK])
            self.assertEqual(found.all_reduce(most, dist.ReduceOp.MAX).item(), max(ranks))
            for factor in (2.0, 3.0):
                scaled = found.all_reduce(torch.ones(1), dist._make_nccl_premul_sum(factor))
                self.assertEqual(scaled.item(), factor * len(ranks))
            given = torch.arange(6).reshape(2, 3) + 10 * RANK
            for dim in (0, 1, -1):
                self.assertEqual(found.all_gather(given, dim).tolist(), torch.cat([torch.arange(6).reshape(2, 3) + 10 * r for r in ranks], dim).tolist())
            self.assertEqual(found.all_gather(given.t(), 0).shape, (3 * len(ranks), 2))
            part = torch.empty(2)
            found.reduce_scatter_tensor(part, torch.arange(2. * len(ranks)))
            self.assertEqual(part.tolist(), [len(ranks) * (2. * ranks.index(RANK) + i) for i in range(2)])

    def test_dictionaries(self):
        found = engines.collectives()
        what = {"a": torch.arange(6).reshape(2, 3).t(), "empty": torch.empty(0, 2), "bf16": torch.ones(70000, dtype=torch.bfloat16), "n": 3,
                "long": "x" * 3000, "list": [1, (2, 3)]}
        for values in (what, {"a": torch.ones(())}, {}):
            if RANK == 0:
                found.send_tensor_dict(values, SIZE - 1)
            elif RANK == SIZE - 1:
                got = found.recv_tensor_dict(0)
                self.assertEqual(list(got), list(values))
                for key, value in values.items():
                    self.assertTrue(torch.equal(got[key], value) if isinstance(value, torch.Tensor) else got[key] == value, key)

    def test_a_rank_that_does_not_come(self):
        group = dist.new_group()
        found = engines.collectives(group)
        found.all_reduce(torch.ones(1))
        found.backend.set_timeout(datetime.timedelta(seconds=2))
        if RANK != SIZE - 1:
            with self.assertRaisesRegex(RuntimeError, f"no (signal|message) of rank {SIZE - 1}"):
                found.all_reduce(torch.ones(20000, dtype=torch.bfloat16))
        dist.barrier()


class DeepSpeed(unittest.TestCase):
    def setUp(self):
        if not is_installed("deepspeed.comm.torch", "deepspeed"):
            class TorchBackend:
                def _reduce_op(self, op):
                    return op

                def inference_all_reduce(self, tensor, op, group=None):
                    raise AssertionError("DeepSpeed's own sum, which ignores op and group")
            module("deepspeed.comm.torch", TorchBackend=TorchBackend)

    def test_inference_all_reduce(self):
        ranks = list(range(1, SIZE))
        dist.new_group()  # from here on the sum is twill's
        group = group_of(ranks)
        backend = sys.modules["deepspeed.comm.torch"].TorchBackend
        backend = backend.__new__(backend)
        for got, want in sums(lambda tensor: backend.inference_all_reduce(tensor, dist.ReduceOp.SUM), range(SIZE)):
            self.assertEqual(got, want)
        if group is not None:
            for got, want in sums(lambda tensor: backend.inference_all_reduce(tensor, dist.ReduceOp.SUM, group), ranks):
                self.assertEqual(got, want)
            most = torch.tensor([float(RANK)])
            backend.inference_all_reduce(most, dist.ReduceOp.MAX, group)
            self.assertEqual(most.item(), SIZE - 1)


class SGLang(unittest.TestCase):
    """SGLang loads plugins, and then its models call methods of groups."""

    def setUp(self):
        if is_installed("sglang.srt.distributed.parallel_state", "sglang"):
            importlib.import_module("sglang.srt.plugins").load_plugins()
            self.make = lambda ranks: sys.modules["sglang.srt.distributed.parallel_state"].GroupCoordinator(
                [ranks], 0, "gloo", False, False, False, False, False, False, False, group_name="tp")
            return

        class GroupCoordinator:
            def __init__(self, ranks):
                self.device_group, self.world_size = dist.new_group(ranks), len(ranks)

            def all_reduce(self, given):
                raise AssertionError("SGLang's own sum, which is over all ranks")

        class HookRegistry:
            @staticmethod
            def register(target, hook, kind):
                if kind.name == "AROUND":
                    before = GroupCoordinator.all_reduce
                    GroupCoordinator.all_reduce = lambda self, given: hook(before, self, given)
                else:
                    assert not hook(torch.float32, SIZE, SIZE), target
        module("sglang.srt.plugins.hook_registry", HookRegistry=HookRegistry, HookType=enum.Enum("HookType", "AROUND REPLACE"))
        twill_entry.sglang_plugin()
        self.make = GroupCoordinator

    def test_all_reduce(self):
        for ranks in (list(range(SIZE)), list(range(1, SIZE))):
            if RANK not in ranks:
                dist.new_group(ranks)  # as SGLang does on all ranks
                continue
            made = self.make(ranks)
            for got, want in sums(made.all_reduce, ranks):
                self.assertEqual(got, want)


class VLLM(unittest.TestCase):
    """vLLM asks plugins for its platform and the platform for the class of communicators, whose methods it calls."""

    def setUp(self):
        if is_installed("vllm.platforms", "vllm"):
            return

        class CpuPlatform:
            pass

        class CpuCommunicator:
            def __init__(self, cpu_group, device=None, device_group=None, unique_name=""):
                self.device_group, self.dist_module, self.supports_tensor_dict = device_group, dist, False
                self.ranks, self.world_size = dist.get_process_group_ranks(cpu_group), dist.get_world_size(cpu_group)
                self.rank_in_group = dist.get_group_rank(cpu_group, RANK)
                assert not self._all_group_ranks_share_shm_group_name(), "vLLM's own shared memory"

            def all_reduce(self, given):
                self.dist_module.all_reduce(given, group=self.device_group)
                return given

            def gather(self, given, dst=0, dim=-1):
                parts = [torch.empty_like(given) for _ in self.ranks] if self.rank_in_group == dst else None
                self.dist_module.gather(given, parts, dst=self.ranks[dst], group=self.device_group)
                return None if parts is None else torch.cat(parts, dim)

            def all_gather(self, given, dim=-1):
                parts = torch.empty((self.world_size * given.shape[0], *given.shape[1:]), dtype=given.dtype)
                self.dist_module.all_gather_into_tensor(parts, given, group=self.device_group)
                return torch.cat(parts.chunk(self.world_size), dim)

            def send_tensor_dict(self, what, dst):
                return self.dist_module.send_tensor_dict(what, dst)

            def recv_tensor_dict(self, src):
                return self.dist_module.recv_tensor_dict(src)
        module("vllm.platforms", cpu_platform_plugin=lambda: "vllm.platforms.cpu.CpuPlatform")
        module("vllm.platforms.cpu", CpuPlatform=CpuPlatform)
        module("vllm.distributed.device_communicators.cpu_communicator", CpuCommunicator=CpuCommunicator)

    def platform(self):
        if "vllm" in REAL:
            return type(sys.modules["vllm.platforms"].current_platform)
        name, _, last = twill_entry.vllm_platform().rpartition(".")
        return getattr(importlib.import_module(name), last)

    def test_communicator(self):
        name, _, last = self.platform().get_device_communicator_cls().rpartition(".")
        self.assertEqual(name, "twill.torch.vllm")
        make = getattr(importlib.import_module(name), last)
        for ranks in (list(range(SIZE)), list(range(1, SIZE))):
            group = group_of(ranks)
            if group is None:
                continue
            found = make(cpu_group=group, device=torch.device("cpu"), device_group=group, unique_name="tp:0")
            self.assertTrue(found.supports_tensor_dict)
            for got, want in sums(found.all_reduce, ranks):
                self.assertEqual(got, want)
            given = torch.arange(4).reshape(2, 2) + RANK
            joined = torch.cat([torch.arange(4).reshape(2, 2) + r for r in ranks], 1).tolist()
            self.assertEqual(found.all_gather(given).tolist(), joined)
            got = found.gather(given, dst=len(ranks) - 1)
            self.assertEqual(got if got is None else got.tolist(), joined if RANK == ranks[-1] else None)
            if RANK == ranks[0]:
                found.send_tensor_dict({"hidden": torch.ones(3, 5, dtype=torch.bfloat16), "residual": torch.zeros(2)}, len(ranks) - 1)
            elif RANK == ranks[-1]:
                got = found.recv_tensor_dict(0)
                self.assertEqual({key: tuple(value.shape) for key, value in got.items()}, {"hidden": (3, 5), "residual": (2,)})

    def test_without_the_wish(self):
        os.environ["TORCH_TWILL_GLOO"] = "0"
        self.assertIsNone(twill_entry.vllm_platform())
        os.environ["TORCH_TWILL_GLOO"] = "1"


if __name__ == "__main__":
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    RANK, SIZE = dist.get_rank(), dist.get_world_size()
    test = unittest.main(exit=False, verbosity=0)
    if RANK == 0:
        print("engines that are installed:", ", ".join(REAL) or "none")
    dist.barrier()  # others may still make a group over rank 0's store
    dist.destroy_process_group()
    sys.exit(not test.result.wasSuccessful())

# SPDX-License-Identifier: Apache-2.0
"""twill as a backend of torch.distributed, on 3 ranks of any version of PyTorch: values of all collectives, types,
strides, groups, messages, futures, wrong arguments, and a training whose losses are Gloo's. Then
the same without the C++ part, as on hosts without a compiler."""
import contextlib
import datetime
import gc
import io
import os
import signal
import sys
import time
import unittest
import unittest.mock
import warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist

import twill.torch

RANK = SIZE = 0
WITHOUT_CPP = False  # the Python-only groups are tested
TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32,
         torch.int64]


def is_shared(address):
    """Return whether the page after the one of an address is shared memory."""
    with open("/proc/self/maps") as maps:
        lines = [line.split(None, 2) for line in maps]
    for ends, access, _ in lines:
        first, last = (int(end, 16) for end in ends.split("-"))
        if first <= address + 4096 < last:
            return access.endswith("s")
    return False


def sum_of(function):
    return sum(function(r) for r in range(SIZE))


class Collectives(unittest.TestCase):
    def test_allreduce_of_all_types(self):
        for dtype in TYPES:
            got = torch.full((5,), RANK + 1, dtype=dtype)
            dist.all_reduce(got)
            self.assertEqual(got.tolist(), [sum_of(lambda r: r + 1)] * 5, dtype)
            got = torch.full((3,), RANK + 1, dtype=dtype)
            dist.all_reduce(got, dist.ReduceOp.MAX)
            self.assertEqual(got.tolist(), [SIZE] * 3, dtype)

    def test_bool_and_complex(self):
        got = torch.tensor([RANK == 0, False, True])
        dist.all_reduce(got)
        self.assertEqual(got.tolist(), [True, False, True])
        got = torch.tensor([RANK == 0, False, True])
        dist.all_reduce(got, dist.ReduceOp.MIN)
        self.assertEqual(got.tolist(), [False, False, True])
        got = torch.tensor([complex(RANK, 1)])
        dist.all_reduce(got)
        self.assertEqual(got.tolist(), [complex(sum_of(lambda r: r), SIZE)])
        got = torch.tensor([True, False]) if RANK == 1 else torch.zeros(2, dtype=torch.bool)
        dist.broadcast(got, 1)
        self.assertEqual(got.tolist(), [True, False])

    def test_operations(self):
        for op, want in ((dist.ReduceOp.PRODUCT, 6), (dist.ReduceOp.MIN, 1), (dist.ReduceOp.BOR, 3),
                         (dist.ReduceOp.BAND, 0), (dist.ReduceOp.BXOR, 0), (dist.ReduceOp.AVG, 2)):
            got = torch.tensor([RANK + 1])
            dist.all_reduce(got, op)
            self.assertEqual(got.item(), want, op)

    def test_strides(self):
        base = torch.arange(6.).reshape(2, 3)
        got = base.clone().t()
        dist.all_reduce(got)
        self.assertTrue(torch.equal(got, base.t() * SIZE))
        wide = torch.zeros(4, 4)
        column = wide[:, 1]
        column.fill_(float(RANK))
        dist.broadcast(column, 2)
        self.assertEqual(wide[:, 1].tolist(), [2.0] * 4)
        self.assertEqual(wide[:, 0].tolist(), [0.0] * 4)

    def test_gathers(self):
        mine = torch.full((2, 2), float(RANK))
        lists = [torch.zeros(2, 2) for _ in range(SIZE)]
        dist.all_gather(lists, mine)
        self.assertEqual([t[1, 1].item() for t in lists], [0.0, 1.0, 2.0])
        whole = torch.zeros(2 * SIZE, 2)
        dist.all_gather(list(whole.chunk(SIZE)), mine)
        self.assertEqual(whole[::2, 0].tolist(), [0.0, 1.0, 2.0])
        whole.zero_()
        dist._all_gather_base(whole, mine)
        self.assertEqual(whole[1::2, 1].tolist(), [0.0, 1.0, 2.0])
        lists = [torch.zeros(2, 2) for _ in range(SIZE)] if RANK == 1 else None
        dist.gather(mine, lists, 1)
        if RANK == 1:
            self.assertEqual([t[0, 0].item() for t in lists], [0.0, 1.0, 2.0])

    def test_scatters(self):
        got = torch.zeros(2)
        dist.scatter(got, [torch.full((2,), float(r)) for r in range(SIZE)] if RANK == 0 else None)
        self.assertEqual(got.tolist(), [float(RANK)] * 2)
        dist.reduce_scatter(got, [torch.full((2,), float(r + RANK)) for r in range(SIZE)])
        self.assertEqual(got.tolist(), [float(sum_of(lambda r: r + RANK))] * 2)
        dist._reduce_scatter_base(got, torch.arange(2. * SIZE))
        self.assertEqual(got.tolist(), [2. * RANK * SIZE, (2. * RANK + 1) * SIZE])

    def test_reduce(self):
        got = torch.tensor([float(RANK + 1)])
        dist.reduce(got, 2)
        self.assertEqual(got.item(), 6.0 if RANK == 2 else RANK + 1)

    def test_alltoall(self):
        got = torch.zeros(SIZE)
        dist.all_to_all_single(got, torch.arange(float(SIZE)) + 10 * RANK)
        self.assertEqual(got.tolist(), [10. * r + RANK for r in range(SIZE)])
        got = torch.zeros(SIZE * (RANK + 1))
        dist.all_to_all_single(got, torch.full((6,), float(RANK)), [RANK + 1] * SIZE, [1, 2, 3])
        self.assertEqual(got.tolist(), [float(r) for r in range(SIZE) for _ in range(RANK + 1)])
        lists = [torch.zeros(r + 1) for r in range(SIZE)]
        dist.all_to_all(lists, [torch.full((RANK + 1,), float(RANK)) for _ in range(SIZE)])
        self.assertEqual([t.sum().item() for t in lists], [0., 2., 6.])

    def test_objects(self):
        got = [None] * SIZE
        dist.all_gather_object(got, {"rank": RANK})
        self.assertEqual(got, [{"rank": r} for r in range(SIZE)])
        said = [("a", RANK)]
        dist.broadcast_object_list(said, 1)
        self.assertEqual(said, [("a", 1)])

    def test_coalesced(self):
        tensors = [torch.full((n,), float(RANK)) for n in (1, 7, 300)]
        dist.all_reduce_coalesced(tensors)
        self.assertEqual([t.sum().item() for t in tensors], [3., 21., 900.])

    def test_copies_are_not_recorded_by_autograd(self):
        parameter = torch.nn.Parameter(torch.full((3, 2), float(RANK)).t())
        dist.broadcast(parameter, 1)
        self.assertEqual(parameter.tolist(), [[1.0] * 3] * 2)
        self.assertIsNone(parameter.grad_fn)

    def test_sparse(self):
        if WITHOUT_CPP:
            self.skipTest("needs the C++ part")
        got = torch.sparse_coo_tensor([[RANK, 2]], [1.0, 2.0], (4,))
        dist.all_reduce(got)
        self.assertEqual(got.to_dense().tolist(), [1., 1., 7., 0.])


    def test_values_that_are_not_in_memory(self):
        """PyTorch itself refuses conjugated tensors, and resolves negated ones before a backend sees them."""
        lists = [torch.zeros(2) for _ in range(SIZE)]
        dist.all_gather(lists, torch._neg_view(torch.full((2,), RANK + 1.)))
        self.assertEqual([one.tolist() for one in lists], [[-1. - r] * 2 for r in range(SIZE)])
        got = torch.full((3,), float(SIZE))
        for bad in (torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8), torch.ones(1).expand(3)):
            with self.assertRaisesRegex(RuntimeError, "quantised|Quantized|share memory"):
                dist.broadcast(bad, (RANK + 1) % SIZE)
        dist.broadcast(torch.ones(1).expand(3) if RANK == 0 else got, 0)  # which is only read
        self.assertEqual(got.tolist(), [1.0 if RANK else float(SIZE)] * 3)

    def test_odd_addresses(self):
        for odd in (2, 1 if RANK == 1 else 0):
            got = torch.frombuffer(bytearray(4 * 100 + 4), dtype=torch.float32, offset=odd, count=100)
            got.fill_(float(RANK))
            dist.all_reduce(got)
            self.assertEqual(got.tolist(), [float(sum_of(lambda r: r))] * 100)


class Forked(unittest.TestCase):
    """A child, as the worker of a DataLoader is, that calls while a call and a message of its parent are in progress."""

    def test_child(self):
        if WITHOUT_CPP:
            self.skipTest("calls are complete when they return")
        started, late = torch.ones(4), torch.ones(4)
        if RANK == 0:  # the others come when the child has ended
            works = [dist.all_reduce(started, async_op=True), dist.irecv(late, 1)]
            child = os.fork()
            if child == 0:
                self.be_child(works)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
        root.add("child", 1)
        while root.add("child", 0) < SIZE:
            time.sleep(0.01)
        if RANK > 0:
            works = [dist.all_reduce(started, async_op=True)]
        if RANK == 1:
            dist.send(torch.full((4,), 7.0), 0)
        for work in works:
            work.wait()
        self.assertEqual(started.tolist(), [float(SIZE)] * 4)
        self.assertEqual(late[0].item(), 1.0 if RANK else 7.0)

    def be_child(self, works):
        signal.alarm(60)  # it hung
        group = dist.distributed_c10d._get_default_group()
        calls = [lambda: dist.all_reduce(torch.ones(2)), lambda: dist.all_reduce(torch.ones(2), async_op=True).wait(),
                 lambda: dist.all_gather([torch.ones(1) for _ in range(SIZE)], torch.ones(1)), dist.barrier,
                 lambda: dist.send(torch.ones(1), 1), *(work.wait for work in works),
                 *(lambda work=work: work.get_future().wait() for work in works[:1])]
        for i, call in enumerate(calls):
            try:
                call()
                os._exit(10 + i)
            except RuntimeError as error:
                if "forked" not in str(error):
                    print(error, file=sys.stderr)
                    os._exit(40 + i)
        del calls, works
        dist.destroy_process_group()
        del group
        gc.collect()
        os._exit(0)


class Order(unittest.TestCase):
    def test_promoted(self):
        whole = torch.full((300001,), RANK + 1.0)
        small = torch.ones(5)
        self.assertEqual(twill.torch.promote([whole, small]), 0 if WITHOUT_CPP else 1)
        for part in (whole, whole[1000:200000]):
            dist.all_reduce(part)
        self.assertTrue(torch.equal(whole[200000:], torch.full((100001,), 6.0)))
        self.assertTrue(torch.equal(whole[1000:200000], torch.full((199000,), 18.0)))
        self.assertEqual(twill.torch.demote([whole, small]), 0 if WITHOUT_CPP else 1)
        self.assertEqual(whole[1000:1002].tolist() + whole[-1:].tolist(), [18.0, 18.0, 6.0])
        kept = torch.nn.Linear(400, 400)  # until the job ends
        for _ in range(2):
            self.assertEqual(twill.torch.promote(kept), 0 if WITHOUT_CPP else 1)
        dist.broadcast(kept.weight.data, 0)
        if not WITHOUT_CPP:
            self.check_promoted_until_freed(kept)

    @unittest.skipIf("TORCH_TWILL_PROMOTE" not in os.environ, "tensors that come back are not promoted")
    def test_promoted_when_they_come_back(self):
        tensors = [torch.ones(400000) for _ in range(2)]
        for i in range(6):
            parts = [tensors[0], tensors[1][:300000]]
            for work in [dist.all_reduce(part, async_op=i % 2 == 1) for part in parts]:
                if work is not None:
                    work.wait()
            self.assertEqual(is_shared(tensors[0].data_ptr()), i >= 3 and not WITHOUT_CPP)
        self.assertEqual([t[0].item() for t in tensors], [float(SIZE ** 6)] * 2)
        self.assertFalse(is_shared(tensors[1].data_ptr()))  # a part of its storage is not in the calls

    def check_promoted_until_freed(self, kept):
        """Storages that are freed or resized are no longer promoted."""
        kept.weight.grad = torch.ones(400, 400)
        self.assertEqual(twill.torch.promote(kept), 2)
        address = kept.weight.grad.data_ptr()
        self.assertTrue(is_shared(address) and is_shared(kept.weight.data_ptr()))
        kept.weight.grad = None
        self.assertFalse(is_shared(address))
        resized = torch.full((300001,), RANK + 1.0)
        self.assertEqual(twill.torch.promote(resized), 1)
        address = resized.data_ptr()
        resized.resize_(3000001)
        self.assertFalse(is_shared(address) and address != resized.data_ptr())
        dist.all_reduce(resized[:300001])
        self.assertEqual(resized[300000].item(), 6.0)
        self.assertEqual(twill.torch.demote(resized), 0)

    def test_stop(self):
        group = dist.new_group()
        for step in range(3):
            dist.all_reduce(torch.ones(4), group=group, async_op=True)
            if RANK == 1:
                twill.stop()
            self.assertEqual(twill.torch.stop_requested(group) > 0, step > 0)
        dist.destroy_process_group(group)

    def test_many_in_progress(self):
        tensors = [torch.full((1000,), float(i + RANK)) for i in range(20)]
        works = [dist.all_reduce(t, async_op=True) for t in tensors]
        for work in reversed(works):
            self.assertTrue(work.wait())
        self.assertEqual([t[0].item() for t in tensors], [3. * i + 3 for i in range(20)])

    def test_future(self):
        work = dist.all_reduce(torch.ones(4), async_op=True)
        doubled = work.get_future().then(lambda future: future.value()[0] * 2)
        self.assertEqual(doubled.wait().tolist(), [2. * SIZE] * 4)

    def test_callbacks_that_wait_for_later_calls(self):
        def second(future):
            return dist.all_reduce(future.value()[0] + 1, async_op=True).get_future().wait()[0]

        if RANK == 0:
            time.sleep(0.1)  # so that on other ranks it runs in the thread of the group
        first = dist.all_reduce(torch.full((4,), float(RANK)), async_op=True)
        self.assertEqual(first.get_future().then(second).wait().tolist(), [12.0] * 4)

    def test_groups(self):
        before = len(os.listdir("/proc/self/fd"))
        pairs = [dist.new_group([0, 1 + i % 2]) for i in range(24)]
        for i, group in enumerate(pairs):
            if RANK in (0, 1 + i % 2):
                got = torch.tensor([RANK + i])
                dist.all_reduce(got, group=group)
                self.assertEqual(got.item(), 2 * i + 1 + i % 2)
        self.assertLess(len(os.listdir("/proc/self/fd")) - before, 24 * 6)
        for i, group in enumerate(pairs):
            if RANK in (0, 1 + i % 2):
                dist.destroy_process_group(group)

    def test_messages(self):
        if WITHOUT_CPP:
            self.skipTest("needs the C++ part")
        following, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
        sent = [dist.isend(torch.full((n,), float(RANK + n)), following, tag=n) for n in (3, 1000, 100000)]
        for n in (100000, 3, 1000):  # not in the order of sending
            got = torch.zeros(n)
            dist.recv(got, before, tag=n)
            self.assertEqual(got[-1].item(), before + n)
        for work in sent:
            work.wait()
        if RANK == 0:
            came = {}
            for _ in range(SIZE - 1):
                got = torch.zeros(1)
                source = dist.recv(got)
                came[source] = got.item()
            self.assertEqual(came, {1: 1.0, 2: 2.0})
        else:
            dist.send(torch.tensor([float(RANK)]), 0)
        with torch.inference_mode():
            wide = torch.zeros(4, 2)
            work = dist.isend(torch.full((4,), float(RANK)), following, tag=7)
            dist.irecv(wide[:, 1], before, tag=7).wait()
            work.wait()
            self.assertEqual(wide[:, 1].tolist(), [float(before)] * 4)

    def test_monitored_barrier(self):
        twill.torch.monitored_barrier()
        if RANK != 1:
            with self.assertRaisesRegex(RuntimeError, "Rank 1 failed to pass monitoredBarrier in 300 ms|"
                                                      "successfully reached monitoredBarrier"):
                twill.torch.monitored_barrier(timeout=datetime.timedelta(milliseconds=300 if RANK == 0 else 1500))
        dist.barrier()


class WrittenGloo(unittest.TestCase):
    """Code that names Gloo gets twill, and says so once. Runs when nothing needs Gloo itself any more, as it cannot be undone."""

    def setUp(self):
        if dist.get_backend() != "gloo":
            self.skipTest("the job is not made by this name yet")

    def test_answer(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            twill.torch.answer_for_gloo()
        self.assertEqual(said.getvalue(), "")
        group = dist.new_group(backend="gloo")
        for backend in (twill.torch.backend_of(), twill.torch.backend_of(group)):
            self.assertIn("twill", "".join(backend.describe()))
            self.assertEqual(type(backend).__name__, "Group" if WITHOUT_CPP else "Backend")
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        self.assertEqual(tensor.tolist(), [SIZE] * 3)
        if hasattr(dist.distributed_c10d, "BackendConfig") and not torch.cuda.is_available():
            self.assertEqual(dist.distributed_c10d.BackendConfig("gloo").get_device_backend_map(), {"cpu": "twill"})

    @unittest.skipUnless(hasattr(dist.distributed_c10d, "_set_pg_timeout"), "PyTorch before 2.1")
    def test_time_limit(self):
        group = dist.new_group(backend="gloo")
        dist.distributed_c10d._set_pg_timeout(datetime.timedelta(milliseconds=300), group)
        if RANK != 0:
            with self.assertRaisesRegex(RuntimeError, r"within 0\.3 s"):
                dist.all_reduce(torch.ones(3), group=group)
        dist.barrier()

    @unittest.skipUnless(hasattr(dist.distributed_c10d, "BackendConfig"), "PyTorch before 2.0 has no backends by device")
    def test_one_rank_sees_cuda_devices(self):
        """All ranks make a group for these devices, too, or none does: else they would wait for each other."""
        c10d = dist.distributed_c10d
        decided = c10d._twill_job_decided, c10d._twill_cuda_devices
        self.assertEqual(decided, (True, torch.cuda.is_available()))
        try:
            c10d._twill_job_decided = False  # as if the job was made by another name
            for sees, any_sees in ((lambda: RANK == 1, True), (lambda: False, False)):
                with unittest.mock.patch("torch.cuda.is_available", sees):
                    group = dist.new_group([1, 2], backend="gloo")
                    if RANK == 0:
                        continue
                    named = c10d.BackendConfig("gloo").get_device_backend_map()
                    self.assertEqual(named["cpu"], "twill")
                    self.assertEqual(("cuda" in named, c10d._twill_cuda_devices), (any_sees, any_sees))
                    tensor = torch.ones(3)
                    dist.all_reduce(tensor, group=group)
                    self.assertEqual(tensor.tolist(), [2] * 3)
        finally:
            c10d._twill_job_decided, c10d._twill_cuda_devices = decided
        dist.barrier()

    @unittest.skipUnless(hasattr(dist.distributed_c10d, "BackendConfig"), "PyTorch before 2.0 has no backends by device")
    def test_rank_that_does_not_say_what_it_sees(self):
        with self.assertRaisesRegex(RuntimeError, "ranks 0, 2 of group lost have not said within 0.05 s.*TORCH_TWILL_GLOO"):
            twill.torch._agree_on_devices(dist.HashStore(), "lost", 1, 3, datetime.timedelta(milliseconds=50))


class WrongArguments(unittest.TestCase):
    def test_refused_before_anything_is_sent(self):
        group = dist.distributed_c10d._get_default_group()
        for regex, call in (
                ("2 tensors for 3 (inputs of 3 )?ranks", lambda: group.allgather([[torch.zeros(1), torch.zeros(1)]], [torch.zeros(1)])),
                ("bitwise", lambda: dist.all_reduce(torch.zeros(1), dist.ReduceOp.BAND)),
                ("world_size", lambda: group._allgather_base(torch.zeros(2), torch.zeros(2))),
                ("same type", lambda: group._allgather_base(torch.zeros(3), torch.zeros(1, dtype=torch.int32))),
                ("invalid root rank: 7", lambda: group.broadcast(torch.zeros(2), 7)),
                ("divide equally", lambda: dist.all_to_all_single(torch.zeros(4), torch.zeros(4)))):
            with self.assertRaisesRegex(RuntimeError, regex):
                call()
        dist.barrier()


class Training(unittest.TestCase):
    def losses(self, group, hook=None):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
        model = torch.nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.002)
        if hook is not None:
            model.register_comm_hook(group, hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        torch.manual_seed(100 + RANK)
        losses = []
        for _ in range(8):
            loss = (model(torch.randn(16, 20)) - 1).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def test_losses_are_those_of_gloo(self):
        world = dist.distributed_c10d._get_default_group()
        gloo = dist.new_group(backend="gloo")
        ours, theirs = self.losses(world), self.losses(gloo)
        self.assertLess(max(abs(a - b) for a, b in zip(ours, theirs)), 1e-5)
        self.assertLess(ours[-1], ours[0])
        if WITHOUT_CPP:
            return
        short = self.losses(world, twill.torch.compress_hook)
        self.assertLess(max(abs(a - b) for a, b in zip(short, theirs)), 0.05)


def end_with_promoted(store):
    """Promoted tensors, one in twill's own memory, do not keep a job."""
    dist.init_process_group("twill", store=store, rank=RANK, world_size=SIZE)
    kept = torch.ones(300001)
    assert twill.torch.promote([twill.torch.backend_of().allocate_like(100000, kept), kept]) == 2
    dist.destroy_process_group()
    gc.collect()
    with open("/proc/self/maps") as maps:
        assert "twill-heap" not in maps.read() and kept[300000].item() == 1


def make_anew(store):
    """Make and end the job several times by the same name in the same store, which keeps keys of those before. Under torchrun a program has one store."""
    for _ in range(10):
        dist.init_process_group("twill", store=store, rank=RANK, world_size=SIZE, timeout=datetime.timedelta(seconds=300))
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [SIZE] * 3, tensor
        dist.destroy_process_group()


def end_with_message_under_way():
    """End the groups while a message that nobody receives is in progress: it fails."""
    unreceived = dist.isend(torch.zeros(1 << 20), (RANK + 1) % SIZE)
    dist.destroy_process_group()
    gc.collect()  # before 2.7 the group ends with the last model that has it
    try:
        unreceived.wait(datetime.timedelta(seconds=60))
        sys.exit("a message that nobody has received is complete")
    except RuntimeError as error:
        assert "ended" in str(error), error


if __name__ == "__main__":
    RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    root = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), SIZE, RANK == 0)
    end_with_promoted(dist.PrefixStore("promoted", root))
    good = True
    for name, WITHOUT_CPP in (("twill", False), ("twill", True), ("gloo", False), ("gloo", True)):
        os.environ["TORCH_TWILL_PYTHON"] = "1" if WITHOUT_CPP else "0"
        if name == "gloo" and not WITHOUT_CPP:
            twill.torch.answer_for_gloo()
        if name == "twill" and hasattr(dist.distributed_c10d, "_is_barrier_after_init"):  # before it PyTorch's own barrier counts ranks of the job before
            make_anew(dist.PrefixStore("again" + str(WITHOUT_CPP), root))
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            dist.init_process_group(name, store=dist.PrefixStore(name + str(WITHOUT_CPP), root), rank=RANK, world_size=SIZE,
                                    timeout=datetime.timedelta(seconds=300))
        first = name == "gloo" and not WITHOUT_CPP
        assert said.getvalue().count('"gloo" means twill') == (1 if first and RANK == 0 else 0), said.getvalue()
        cases = {"argv": [sys.argv[0], "WrittenGloo"]} if name == "gloo" else {}
        good = unittest.main(exit=False, verbosity=1, **cases).result.wasSuccessful() and good
        dist.barrier()
        if name == "twill" and not WITHOUT_CPP:
            end_with_message_under_way()
        else:
            dist.destroy_process_group()
    root.add("ended", 1)
    if RANK == 0:  # it has the store
        while root.add("ended", 0) < SIZE:
            time.sleep(0.01)
    sys.exit(0 if good else 1)

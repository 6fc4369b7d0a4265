# SPDX-License-Identifier: Apache-2.0
"""Training with PyTorch's ways of parallelism on 2 ranks, over twill and over Gloo in the same processes: the losses are the
same bits, as a sum of two numbers has one order. Also buckets in shared memory, many groups, and calls whose time is over."""
import datetime
import os
import shutil
import sys
import tempfile
import unittest
import warnings
from unittest import mock

warnings.filterwarnings("ignore")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import twill.torch

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
VERSION = tuple(int(n) for n in torch.__version__.split(".")[:2])
WORLD = GLOO = None
STEPS = 6


def since(major, minor):
    return unittest.skipIf(VERSION < (major, minor), f"PyTorch {torch.__version__} is older than {major}.{minor}")


def small_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16), torch.nn.ReLU(),
                               torch.nn.Linear(16, 2))


def batches(whole=False):
    """Return an endless iterator of batches: of this rank, or of all ranks with `whole`."""
    torch.manual_seed(4)
    data = torch.utils.data.TensorDataset(torch.randn(47, 16), torch.randn(47, 2))
    sampler = torch.utils.data.DistributedSampler(data, 1 if whole else SIZE, 0 if whole else RANK, seed=5)
    loader = torch.utils.data.DataLoader(data, batch_size=8, sampler=sampler)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def train(model, optimizer, steps, data):
    losses = []
    for _ in range(steps):
        given, wanted = next(data)
        loss = (model(given) - wanted).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def mesh_of(group):
    from torch.distributed.device_mesh import DeviceMesh
    return DeviceMesh.from_group(group, "cpu")


def fully_sharded(group):
    from torch.distributed.fsdp import fully_shard
    model = small_model()
    for layer in model[::2]:
        fully_shard(layer, mesh=mesh_of(group))
    fully_shard(model, mesh=mesh_of(group))
    if VERSION == (2, 8):  # its Gloo does not divide: reduce_scatter_tensor(op=AVG) is the sum
        for module in [model, *model[::2]]:
            module.set_force_sum_reduction_for_comms(True)
    return model


def is_shared(tensor):
    """Return whether a tensor lies in a mapping that processes share, as twill's memory does and malloc's does not."""
    address = tensor.data_ptr()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            span, access = line.split()[:2]
            first, end = (int(n, 16) for n in span.split("-"))
            if first <= address < end:
                return access[3] == "s"
    return False


class Training(unittest.TestCase):
    def assert_losses_of_gloo(self, losses_over):
        before = twill.torch.backend_of(WORLD).calls()
        theirs = losses_over(GLOO)
        self.assertEqual(twill.torch.backend_of(WORLD).calls(), before)
        ours = losses_over(WORLD)
        self.assertGreater(twill.torch.backend_of(WORLD).calls(), before)
        self.assertEqual(ours, theirs)
        self.assertEqual(len(set(ours)), len(ours))  # it learns something
        return ours

    def test_distributed_data_parallel(self):
        def losses(group):
            model = DistributedDataParallel(small_model(), process_group=group, bucket_cap_mb=0.002)
            return train(model, sgd(model), STEPS, batches())
        self.assert_losses_of_gloo(losses)

    def test_digits(self):
        """The images of examples/data, shuffled over the ranks anew in each epoch."""
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../examples/data/digits.csv")
        table = torch.tensor(numpy.loadtxt(path, delimiter=",", skiprows=1), dtype=torch.float32)
        data = torch.utils.data.TensorDataset(table[:, :-1] / 16, table[:, -1].long())

        def losses(group):
            torch.manual_seed(6)
            model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))
            model = DistributedDataParallel(model, process_group=group)
            optimizer, taken = torch.optim.SGD(model.parameters(), lr=0.3), []
            sampler = torch.utils.data.DistributedSampler(data, SIZE, RANK, seed=7)
            for epoch in range(3):
                sampler.set_epoch(epoch)
                for images, labels in torch.utils.data.DataLoader(data, batch_size=64, sampler=sampler):
                    loss = torch.nn.functional.cross_entropy(model(images), labels)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    taken.append(loss.item())
            return taken
        taken = self.assert_losses_of_gloo(losses)
        self.assertLess(taken[-1], 0.6 * taken[0])

    def test_zero_redundancy_optimizer(self):
        def losses(group):
            model = DistributedDataParallel(small_model(), process_group=group)
            optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, process_group=group, lr=0.01)
            return train(model, optimizer, STEPS, batches())
        self.assert_losses_of_gloo(losses)

    @since(2, 6)
    def test_fsdp2(self):
        def losses(group):
            model = fully_sharded(group)
            return train(model, sgd(model), STEPS, batches())
        self.assert_losses_of_gloo(losses)

    @since(2, 4)
    def test_tensor_parallel(self):
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        def losses(group):
            plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
            model = parallelize_module(small_model(), mesh_of(group), plan)
            return train(model, sgd(model), STEPS, batches(whole=True))
        self.assert_losses_of_gloo(losses)
        model = small_model()
        for ours, alone in zip(losses(WORLD), train(model, sgd(model), STEPS, batches(whole=True))):
            self.assertAlmostEqual(ours, alone, places=5)

    @since(2, 6)
    def test_pipeline(self):
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        def losses(group):
            part = small_model()[:3] if RANK == 0 else small_model()[3:]
            stage = PipelineStage(part, RANK, SIZE, torch.device("cpu"), group=group)
            schedule = Schedule1F1B(stage, 4, loss_fn=torch.nn.functional.mse_loss)
            optimizer, taken = sgd(part), []
            for step in range(STEPS):
                torch.manual_seed(step)
                given, wanted, loss = torch.randn(8, 16), torch.randn(8, 2), torch.zeros(1)
                optimizer.zero_grad()
                if RANK == 0:
                    schedule.step(given)
                else:
                    of_parts = []
                    schedule.step(target=wanted, losses=of_parts)
                    loss[0] = sum(of_parts).detach()
                optimizer.step()
                dist.broadcast(loss, 1, group=group)
                taken.append(loss.item())
            return taken
        self.assert_losses_of_gloo(losses)

    @since(2, 6)
    def test_checkpoint(self):
        """Train, save, load into a new model, train on: as if it had not stopped. Each backend reads what the other wrote, too."""
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

        folder = [tempfile.mkdtemp() if RANK == 0 else None]
        dist.broadcast_object_list(folder)
        self.addCleanup(shutil.rmtree, folder[0], True)
        self.addCleanup(dist.barrier)

        def state_of(model, optimizer):
            state = get_state_dict(model, optimizer)
            return {"model": state[0], "optimizer": state[1]}

        def losses(saved_by, loaded_by):
            path = os.path.join(folder[0], f"{saved_by is WORLD}-{loaded_by is WORLD}")
            model, data = fully_sharded(saved_by), batches()
            optimizer = sgd(model)
            first = train(model, optimizer, STEPS // 2, data)
            dcp.save(state_of(model, optimizer), checkpoint_id=path, process_group=saved_by)
            model = fully_sharded(loaded_by)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.zero_()
            optimizer = sgd(model)
            state = state_of(model, optimizer)
            dcp.load(state, checkpoint_id=path, process_group=loaded_by)
            set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
            return first + train(model, optimizer, STEPS - STEPS // 2, data)

        model = fully_sharded(GLOO)
        without_stop = train(model, sgd(model), STEPS, batches())
        for saved_by, loaded_by in ((WORLD, WORLD), (WORLD, GLOO), (GLOO, WORLD)):
            self.assertEqual(losses(saved_by, loaded_by), without_stop)


class Functional(unittest.TestCase):
    """What torch.compile makes of collectives, coalesced calls, and groups of device meshes."""

    @since(2, 4)
    def test_functional_collectives(self):
        import torch.distributed._functional_collectives as functional
        name = WORLD.group_name

        def step(given):
            total = functional.all_reduce(given, "sum", name)
            gathered = functional.all_gather_tensor(total, 0, name)
            exchanged = functional.all_to_all_single(gathered, None, None, name)
            return functional.reduce_scatter_tensor(exchanged * 2, "sum", 0, name) + functional.broadcast(given, 1, name)

        given = torch.arange(4.) + RANK
        wanted = [4 * (2. * n + 1) + n + 1 for n in range(4)]
        before = twill.torch.backend_of(WORLD).calls()
        self.assertEqual(step(given).tolist(), wanted)
        self.assertEqual(torch.compile(step, backend="aot_eager", fullgraph=True)(given).tolist(), wanted)
        self.assertEqual(twill.torch.backend_of(WORLD).calls() - before, 10)
        several = functional.all_reduce_coalesced([given, given * 2], "max", name)
        self.assertEqual([t[3].item() for t in several], [4., 8.])
        several = functional.all_gather_into_tensor_coalesced([given, given[:1]], name)
        self.assertEqual([t.tolist() for t in several], [[0., 1., 2., 3., 1., 2., 3., 4.], [0., 1.]])
        several = functional.reduce_scatter_tensor_coalesced([given, given * 2], "sum", [0, 0], name)
        self.assertEqual([t.tolist() for t in several], [[4. * RANK + 1, 4. * RANK + 3], [8. * RANK + 2, 8. * RANK + 6]])

    @since(2, 8)
    def test_blocking_calls_return_nothing(self):
        tensor, options = torch.ones(3), dist.AllreduceOptions()
        options.asyncOp = False
        self.assertIsNone(WORLD.allreduce([tensor], options))
        self.assertEqual(tensor.tolist(), [float(SIZE)] * 3)
        WORLD.allreduce([tensor]).wait()
        self.assertEqual(tensor.tolist(), [float(SIZE * SIZE)] * 3)

    @since(2, 8)
    def test_blocking_calls_as_inputs_of_graphs(self):
        from torch.distributed._functional_collectives import allow_inflight_collective_as_graph_input_ctx
        tensor = torch.full((3,), float(RANK))
        with allow_inflight_collective_as_graph_input_ctx():
            dist.all_reduce(tensor)
            self.assertEqual(torch.ops._c10d_functional.wait_tensor(tensor).tolist(), [1.0] * 3)

    @since(2, 4)
    def test_coalescing_manager(self):
        tensors = [torch.full((n,), RANK + 1.) for n in (1, 5)]
        with dist._coalescing_manager(WORLD, torch.device("cpu"), async_ops=True) as works:
            for tensor in tensors:
                dist.all_reduce(tensor)
        works.wait()
        self.assertEqual([t.tolist() for t in tensors], [[3.], [3.] * 5])
        wholes, parts = [torch.zeros(2), torch.zeros(6)], [torch.full((n,), RANK + 1.) for n in (1, 3)]
        with dist._coalescing_manager(WORLD, torch.device("cpu")):
            for whole, part in zip(wholes, parts):
                dist.all_gather_into_tensor(whole, part)
        self.assertEqual([t.tolist() for t in wholes], [[1., 2.], [1., 1., 1., 2., 2., 2.]])
        with dist._coalescing_manager(WORLD, torch.device("cpu")):
            for whole, part in zip(wholes, parts):
                dist.reduce_scatter_tensor(part, whole)
        self.assertEqual([t.tolist() for t in parts], [[2. * (RANK + 1)], [2. * (RANK + 1)] * 3])

    @since(2, 4)
    def test_device_mesh(self):
        from torch.distributed.device_mesh import init_device_mesh
        mesh = init_device_mesh("cpu", (1, SIZE), mesh_dim_names=("outer", "inner"))
        for name, wanted in (("outer", RANK + 1), ("inner", 3)):
            group = mesh.get_group(name)
            self.assertTrue(hasattr(twill.torch.backend_of(group), "describe"))
            got = torch.tensor([RANK + 1])
            dist.all_reduce(got, group=group)
            self.assertEqual(got.item(), wanted)


class SeveralTensors(unittest.TestCase):
    """Several tensors of one rank in one call of c10d."""

    def test_all_are_combined_and_all_get_the_result(self):
        for op, wanted in ((dist.ReduceOp.SUM, 1 + 2 + 3 + 4), (dist.ReduceOp.PRODUCT, 24), (dist.ReduceOp.MIN, 1), (dist.ReduceOp.MAX, 4)):
            tensors = [torch.full((3,), 2 * RANK + n) for n in (1, 2)]
            options = dist.AllreduceOptions()
            options.reduceOp = op
            WORLD.allreduce(tensors, options).wait()
            self.assertEqual([t.tolist() for t in tensors], [[wanted] * 3] * 2)
        tensors = [torch.ones(2, 1), torch.ones(2)]  # as many elements, other dimensions
        WORLD.allreduce(tensors).wait()
        self.assertEqual([t.tolist() for t in tensors], [[[4.], [4.]], [4., 4.]])
        tensors = [torch.sparse_coo_tensor([[RANK, 2]], [1., n], (4,)) for n in (1., 2.)]
        WORLD.allreduce(tensors).wait()
        self.assertEqual([t.to_dense().tolist() for t in tensors], [[2., 2., 6., 0.]] * 2)
        tensors = [torch.tensor([2 * RANK + n]) for n in (1, 2)]
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = 1, 1
        WORLD.broadcast(tensors, options).wait()
        self.assertEqual([t.item() for t in tensors], [4, 4])
        got = [[torch.zeros(1) for _ in range(2 * SIZE)] for _ in range(2)]
        WORLD.allgather(got, [torch.tensor([2. * RANK + n]) for n in (1, 2)]).wait()
        self.assertEqual([[t.item() for t in each] for each in got], [[1., 2., 3., 4.]] * 2)

    def test_refusals(self):
        for regex, call in (
                ("have no average", lambda: WORLD.allreduce([torch.ones(1), torch.ones(1)], average)),
                ("invalid tensor size", lambda: WORLD.allreduce([torch.ones(1), torch.ones(2)])),
                ("output lists differ", lambda: WORLD.allgather(
                    [[torch.zeros(1 if n // 2 == RANK else sizes) for n in range(2 * SIZE)] for sizes in (1, 2)], [torch.ones(1)] * 2)),
                ("invalid tensor layout", lambda: WORLD.allreduce([torch.ones(1), torch.ones(1).to_sparse()])),
                ("single-element", lambda: WORLD.reduce([torch.ones(1), torch.ones(1)], dist.ReduceOptions()))):
            average = dist.AllreduceOptions()
            average.reduceOp = dist.ReduceOp.AVG
            with self.assertRaisesRegex(RuntimeError, regex):
                call()


class Memory(unittest.TestCase):
    """twill's memory is told from malloc's by its mapping."""

    @since(2, 7)
    def test_buckets_are_shared(self):
        for group, wanted in ((WORLD, True), (GLOO, False)):
            model = DistributedDataParallel(small_model(), process_group=group, gradient_as_bucket_view=True)
            train(model, sgd(model), 3, batches())  # DistributedDataParallel makes its buckets anew after the first step
            self.assertEqual({is_shared(p.grad) for p in model.parameters()}, {wanted})

    @since(2, 8)
    def test_buffers_of_fsdp2_are_shared(self):
        allocate, made = torch._C._distributed_c10d.Backend.allocate_tensor, []

        def allocate_and_look(*args, **named):
            tensor = allocate(*args, **named)
            made.append(is_shared(tensor))
            return tensor

        model = fully_sharded(GLOO)
        plain = train(model, sgd(model), STEPS, batches())
        model = fully_sharded(WORLD)
        for module in model.modules():
            if hasattr(module, "set_allocate_memory_from_process_group_for_comm"):
                module.set_allocate_memory_from_process_group_for_comm(True)
        with mock.patch.object(torch._C._distributed_c10d.Backend, "allocate_tensor", allocate_and_look):
            self.assertEqual(train(model, sgd(model), STEPS, batches()), plain)
        self.assertEqual(set(made), {True})


class Groups(unittest.TestCase):
    def test_300_groups(self):
        before = len(os.listdir("/proc/self/fd"))
        groups = [dist.new_group() for _ in range(300)]
        for i, group in enumerate(groups):
            got = torch.tensor([RANK + i])
            dist.all_reduce(got, group=group)
            self.assertEqual(got.item(), 2 * i + 1)
        for group in groups:
            dist.destroy_process_group(group)
        del group, groups
        dist.barrier()
        self.assertLess(len(os.listdir("/proc/self/fd")) - before, 30)


class TimeLimits(unittest.TestCase):
    """Rank 1 does not come. The limits below are the groups' or the calls'; the world's is minutes."""

    def assert_rank_1_is_missed(self, group, call):
        said = "no exception"
        if RANK == 0:
            try:
                call(group)
            except getattr(dist, "DistBackendError", RuntimeError) as error:
                said = str(error)
        dist.barrier()
        dist.destroy_process_group(group)
        got = torch.tensor([RANK])  # other groups live on
        dist.all_reduce(got)
        self.assertEqual(got.item(), 1)
        if RANK == 0:
            self.assertRegex(said, "Timed out.*no signal of rank 1")

    def test_of_a_group(self):
        group = dist.new_group(timeout=datetime.timedelta(seconds=1))
        self.assert_rank_1_is_missed(group, lambda group: dist.all_reduce(torch.ones(3), group=group))

    def test_of_a_group_that_is_there(self):
        limit = datetime.timedelta(milliseconds=500)
        setters = [lambda group: twill.torch.backend_of(group).set_timeout(limit)]
        if hasattr(dist.ProcessGroup, "set_timeout"):  # since 2.9
            setters.append(lambda group: group.set_timeout(limit))
        for set_limit in setters:
            group = dist.new_group()
            set_limit(group)
            self.assert_rank_1_is_missed(group, lambda group: dist.all_reduce(torch.ones(3), group=group))

    def test_of_a_call(self):
        def call(group):
            options = dist.AllreduceOptions()
            options.timeout = datetime.timedelta(seconds=1)
            group.allreduce([torch.ones(3)], options).wait()
        self.assert_rank_1_is_missed(dist.new_group(), call)


if __name__ == "__main__":
    dist.init_process_group("twill", timeout=datetime.timedelta(seconds=300))
    WORLD, GLOO = dist.distributed_c10d._get_default_group(), dist.new_group(backend="gloo")
    good = unittest.main(exit=False, verbosity=2 if RANK == 0 else 0, warnings="ignore").result.wasSuccessful()
    dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if good else 1)

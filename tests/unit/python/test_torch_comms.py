# SPDX-License-Identifier: Apache-2.0
"""twill as a backend of torch.comms, on 2 to 4 ranks: every call against plain results, blocking and not, splits, windows, persistent
calls, hooks, limits, abort and reconfigure. It needs a PyTorch that has torch.comms, as its main branch does. Then, beside the
variables of torchrun: python test_torch_comms.py, for each rank."""
import copy
import datetime
import json
import os
import sys
import tempfile
import unittest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHCOMM_HEALTH_CHECK_WAIT_MS", "1")  # for which the flight recorder's abort hook sleeps

import torch
import torch.distributed as dist

try:
    import torch.comms as comms
    from torch.comms import ReduceOp
    from torch.comms.hooks import FlightRecorderHook, clog
except ImportError as error:
    print(f"skipped: PyTorch {torch.__version__} has no torch.comms: {error}")
    sys.exit(77)

CPU = torch.device("cpu")
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
SHORT = datetime.timedelta(milliseconds=300)
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), SIZE, RANK == 0)


def new_comm(name, **options):
    options.setdefault("timeout", datetime.timedelta(seconds=60))
    return comms.new_comm("twill", CPU, name, store=store, **options)


def ramp(rank, count, dtype=torch.float32):
    return (torch.arange(count) % 7 + rank + 1).to(dtype)


def plain(dtype, count, op):
    """The reduction of ramp() of all ranks."""
    rows = torch.stack([ramp(r, count, dtype) for r in range(SIZE)])
    if op == "AVG":
        return rows.double().mean(0).to(dtype)
    if op in ("BAND", "BOR", "BXOR"):
        result = rows[0].clone()
        for row in rows[1:]:
            result = {"BAND": result & row, "BOR": result | row, "BXOR": result ^ row}[op]
        return result
    return {"SUM": rows.sum(0), "PRODUCT": rows.prod(0), "MIN": rows.amin(0), "MAX": rows.amax(0)}[op].to(dtype)


class WithComm(unittest.TestCase):
    def setUp(self):
        self.comm = new_comm(self.id())
        self.assertEqual((self.comm.get_rank(), self.comm.get_size(), self.comm.get_backend()), (RANK, SIZE, "twill"))

    def tearDown(self):
        self.comm.finalize()

    def both(self, call, check):
        """Make a call that blocks, and one that does not, and check the results of each."""
        for asynchronous in (False, True):
            outputs, start = call()
            work = start(asynchronous)
            work.wait()
            self.assertTrue(work.is_completed())
            check(outputs)


class Collectives(WithComm):
    def test_all_reduce(self):
        for count in (1, 1000, 100003):
            for op in ("SUM", "PRODUCT", "MIN", "MAX", "AVG"):
                for dtype in (torch.float32, torch.float64, torch.int64):
                    if op == "AVG" and dtype == torch.int64:
                        continue

                    def call(dtype=dtype, op=op, count=count):
                        tensor = ramp(RANK, count, dtype)
                        return tensor, lambda later: self.comm.all_reduce(tensor, getattr(ReduceOp, op), later)

                    self.both(call, lambda got, expected=plain(dtype, count, op): torch.testing.assert_close(got, expected))
        for op in ("BAND", "BOR", "BXOR"):
            tensor = ramp(RANK, 9, torch.int32)
            self.comm.all_reduce(tensor, getattr(ReduceOp, op), False)
            self.assertTrue(torch.equal(tensor, plain(torch.int32, 9, op)))

    def test_factors(self):
        for factor in (0.5, torch.tensor(0.5)):
            tensor = ramp(RANK, 5)
            self.comm.all_reduce(tensor, ReduceOp.PREMUL_SUM(factor), False)
            torch.testing.assert_close(tensor, plain(torch.float32, 5, "SUM") * 0.5)

    def test_strided(self):
        tensor = torch.zeros(4, 6)
        tensor.t()[:] = ramp(RANK, 4)
        self.comm.all_reduce(tensor.t(), ReduceOp.SUM, False)
        self.assertTrue(torch.equal(tensor.t(), plain(torch.float32, 4, "SUM").expand(6, 4)))

    def test_broadcast_and_reduce(self):
        for root in range(SIZE):
            def broadcast(root=root):
                tensor = ramp(RANK, 33)
                return tensor, lambda later: self.comm.broadcast(tensor, root, later)

            self.both(broadcast, lambda got, root=root: self.assertTrue(torch.equal(got, ramp(root, 33))))

            def reduce(root=root):
                tensor = ramp(RANK, 33)
                return tensor, lambda later: self.comm.reduce(tensor, root, ReduceOp.SUM, later)

            self.both(reduce, lambda got, root=root: self.assertTrue(
                torch.equal(got, plain(torch.float32, 33, "SUM") if root == RANK else ramp(RANK, 33))))

    def test_gathers(self):
        whole = torch.cat([ramp(r, 12) for r in range(SIZE)])

        def of_list():
            outputs = [torch.zeros(12) for _ in range(SIZE)]
            return outputs, lambda later: self.comm.all_gather(outputs, ramp(RANK, 12), later)

        def of_sizes():
            outputs = [torch.zeros(r + 1) for r in range(SIZE)]
            return outputs, lambda later: self.comm.all_gather_v(outputs, ramp(RANK, RANK + 1), later)

        def single():
            output = torch.zeros(12 * SIZE)
            return output, lambda later: self.comm.all_gather_single(output, ramp(RANK, 12), later)

        self.both(of_list, lambda got: self.assertTrue(torch.equal(torch.cat(got), whole)))
        self.both(of_sizes, lambda got: self.assertTrue(all(torch.equal(got[r], ramp(r, r + 1)) for r in range(SIZE))))
        self.both(single, lambda got: self.assertTrue(torch.equal(got, whole)))
        for root in range(SIZE):
            def to_root(root=root):
                outputs = [torch.zeros(12) for _ in range(SIZE)] if root == RANK else []
                return outputs, lambda later: self.comm.gather(outputs, ramp(RANK, 12), root, later)

            def single_to_root(root=root):
                output = torch.zeros(12 * SIZE if root == RANK else 0)
                return output, lambda later: self.comm.gather_single(output, ramp(RANK, 12), root, later)

            def scatter(root=root):
                inputs = [ramp(10 * root + r, 7) for r in range(SIZE)] if root == RANK else []
                output = torch.zeros(7)
                return output, lambda later: self.comm.scatter(output, inputs, root, later)

            if root == RANK:
                self.both(to_root, lambda got: self.assertTrue(torch.equal(torch.cat(got), whole)))
                self.both(single_to_root, lambda got: self.assertTrue(torch.equal(got, whole)))
            else:
                self.both(to_root, lambda got: self.assertEqual(got, []))
                self.both(single_to_root, lambda got: self.assertEqual(got.numel(), 0))
            self.both(scatter, lambda got, root=root: self.assertTrue(torch.equal(got, ramp(10 * root + RANK, 7))))

    def test_reduce_scatters(self):
        def of_list(sizes):
            def call():
                output = torch.zeros(sizes[RANK])
                inputs = [ramp(RANK + r, size) for r, size in enumerate(sizes)]
                function = self.comm.reduce_scatter if len(set(sizes)) == 1 else self.comm.reduce_scatter_v
                return output, lambda later: function(output, inputs, ReduceOp.SUM, later)
            return call

        def single():
            output = torch.zeros(8)
            return output, lambda later: self.comm.reduce_scatter_single(output, ramp(RANK, 8 * SIZE), ReduceOp.MAX, later)

        def check(size):
            expected = sum(ramp(RANK + r, size) for r in range(SIZE))
            return lambda got: self.assertTrue(torch.equal(got, expected))

        self.both(of_list([8] * SIZE), check(8))
        self.both(of_list(list(range(1, SIZE + 1))), check(RANK + 1))
        mine = plain(torch.float32, 8 * SIZE, "MAX")[8 * RANK:8 * RANK + 8]
        self.both(single, lambda got: self.assertTrue(torch.equal(got, mine)))

    def test_all_to_alls(self):
        expected = torch.stack([ramp(r, 3 * SIZE)[3 * RANK:3 * RANK + 3] for r in range(SIZE)])

        def of_list():
            outputs = [torch.zeros(3) for _ in range(SIZE)]
            return outputs, lambda later: self.comm.all_to_all(outputs, list(ramp(RANK, 3 * SIZE).chunk(SIZE)), later)

        def single():
            output = torch.zeros(3 * SIZE)
            return output, lambda later: self.comm.all_to_all_single(output, ramp(RANK, 3 * SIZE), later)

        def of_rows(spare):
            def call():  # rank r sends s + 1 rows to rank s, of two elements each
                received, sent = [RANK + 1] * SIZE, list(range(1, SIZE + 1))
                output = torch.zeros(sum(received) + spare, 2)
                given = torch.full((sum(sent) + spare, 2), float(RANK))
                return output, lambda later: self.comm.all_to_all_v_single(output, given, received, sent, later)
            return call

        def check(got):
            rows = torch.cat([torch.full((RANK + 1, 2), float(r)) for r in range(SIZE)])
            self.assertTrue(torch.equal(got[:len(rows)], rows) and not got[len(rows):].any())

        self.both(of_list, lambda got: self.assertTrue(torch.equal(torch.stack(got), expected)))
        self.both(single, lambda got: self.assertTrue(torch.equal(got, expected.flatten())))
        self.both(of_rows(0), check)
        self.both(of_rows(2), check)
        with self.assertRaisesRegex(RuntimeError, "split for each rank"):
            self.comm.all_to_all_v_single(torch.zeros(1), torch.zeros(1), [2] + [0] * (SIZE - 1), [0] * SIZE, False)

    def test_barrier_and_objects(self):
        self.both(lambda: (None, self.comm.barrier), lambda _: None)
        objects = [None] * SIZE
        comms.objcol.all_gather_object(self.comm, objects, {"rank": RANK})
        self.assertEqual(objects, [{"rank": r} for r in range(SIZE)])

    def test_polling(self):
        work = self.comm.all_reduce(torch.ones(1000), ReduceOp.SUM, True)
        while not work.is_completed():
            pass


class Messages(WithComm):
    def test_ring(self):
        got = torch.zeros(50000)
        sent = self.comm.send(ramp(RANK, 50000), NEXT, True)
        self.comm.recv(got, PREVIOUS, False)
        sent.wait()
        self.assertTrue(torch.equal(got, ramp(PREVIOUS, 50000)))

    def test_batch(self):
        for later in (False, True):
            batch, got = self.comm.batch_op_create(), [torch.zeros(9), torch.zeros(3)]
            for one in got:
                batch.send(ramp(RANK, one.numel()), NEXT)
                batch.recv(one, PREVIOUS)
            batch.issue(later).wait()
            self.assertTrue(all(torch.equal(one, ramp(PREVIOUS, one.numel())) for one in got))

    def test_limit(self):
        if RANK == 0:
            with self.assertRaisesRegex(RuntimeError, "within 0.3 s"):
                self.comm.recv(torch.zeros(1), 1, False, timeout=SHORT)
        self.comm.barrier(False)


class Groups(WithComm):
    def test_split(self):
        for _ in range(2):  # the second time by the same name
            mine = [r for r in range(SIZE) if r % 2 == RANK % 2][::-1]
            part = self.comm.split(mine, "parity")
            self.assertEqual((part.get_rank(), part.get_size()), (mine.index(RANK), len(mine)))
            tensor = torch.tensor([float(RANK)])
            part.all_reduce(tensor, ReduceOp.SUM, False)
            self.assertEqual(tensor.item(), sum(mine))
            part.finalize()
        self.assertIsNone(self.comm.split([], "none"))
        with self.assertRaisesRegex(RuntimeError, "invalid or repeated rank"):
            self.comm.split([RANK, RANK], "twice")

    def test_refusals(self):
        with self.assertRaisesRegex(RuntimeError, "must be a CPU"):
            comms.new_comm("twill", torch.device("meta"), "elsewhere", store=store)
        with self.assertRaisesRegex(RuntimeError, "[Tt]ype"):
            self.comm.all_gather_single(torch.zeros(SIZE), torch.zeros(1, dtype=torch.float64), False)
        other = new_comm("ends")
        other.finalize()
        with self.assertRaisesRegex(RuntimeError, "finalized"):
            other.barrier(False)

    def test_environment(self):
        """Without a store, MASTER_ADDR and MASTER_PORT tell where it is. Two communicators share it."""
        port = [None]
        if RANK == 0:
            probe = dist.TCPStore("127.0.0.1", 0, 1, True)
            port[0] = probe.port
            del probe
        comms.objcol.broadcast_object_list(self.comm, port, 0)
        kept, os.environ["MASTER_PORT"] = os.environ["MASTER_PORT"], str(port[0])
        made = [comms.new_comm("twill", CPU, name) for name in ("one", "two")]
        os.environ["MASTER_PORT"] = kept
        for comm in made:
            comm.barrier(False)
        self.comm.barrier(False)
        for comm in made:
            comm.finalize()


class Memory(WithComm):
    def test_persistent(self):
        output = torch.zeros(SIZE * 5)
        handle = self.comm.all_gather_p_init(output)
        for step in range(3):
            for later in (False, True):
                given = ramp(RANK, 5) * (step + 1) if step < 2 else output[5 * RANK:5 * RANK + 5].fill_(RANK)
                self.comm.all_gather_p_exec(handle, given, later).wait()
                expected = [ramp(r, 5) * (step + 1) if step < 2 else torch.full((5,), float(r)) for r in range(SIZE)]
                self.assertTrue(torch.equal(output, torch.cat(expected)))
        with self.assertRaisesRegex(RuntimeError, "5 elements"):
            self.comm.all_gather_p_exec(handle, torch.zeros(4), False)
        self.comm.all_gather_p_free(handle)
        self.comm.all_gather_p_init(output)  # ends with the communicator

    def test_registered(self):
        tensor = torch.ones(1 << 18)
        self.comm.tensor_register(tensor)
        self.comm.all_reduce(tensor, ReduceOp.SUM, False)
        self.comm.tensor_deregister(tensor)
        self.assertEqual(tensor.unique().tolist(), [SIZE])

    def test_window(self):
        memory = torch.zeros(SIZE, 4, dtype=torch.float64)
        view = memory[RANK]
        window = self.comm.new_window(memory)
        self.assertEqual(window.get_tensor().data_ptr(), memory.data_ptr())
        self.assertEqual(window.get_size(), memory.nbytes)
        for step in range(1, 5):
            later = step % 2 == 0
            for r in range(SIZE):
                window.put(torch.full((4,), 10.0 * step + RANK, dtype=torch.float64), r, 4 * RANK, later).wait()
                window.signal(r, later).wait()
            for r in range(SIZE):
                work = window.wait_signal(r, later)
                work.wait()
                self.assertTrue(work.is_completed())
            self.assertEqual(memory[:, 3].tolist(), [10.0 * step + r for r in range(SIZE)])
            self.assertEqual(view.tolist(), [10.0 * step + RANK] * 4)
            self.comm.barrier(False)
        self.assertTrue(torch.equal(window.map_remote_tensor(RANK), memory))
        with self.assertRaisesRegex(RuntimeError, "cannot be mapped"):
            window.map_remote_tensor(NEXT)
        window.get_attr(NEXT)
        with self.assertRaisesRegex(RuntimeError, "range|bytes|beyond|offset|outside"):
            window.put(torch.zeros(8, dtype=torch.float64), NEXT, memory.numel() - 4, False)
        other = copy.deepcopy(window)
        self.assertTrue(torch.equal(other.get_tensor(), memory))
        with self.assertRaisesRegex(RuntimeError, "imed out"):
            other.wait_signal(NEXT, False, timeout=SHORT)
        window.tensor_deregister()
        self.assertIsNone(window.get_tensor())
        with self.assertRaisesRegex(RuntimeError, "no tensor"):
            window.signal(NEXT, False)
        window.tensor_register(memory, owning=False)
        self.assertIsNone(window.get_tensor())
        foreign = self.comm.new_window()
        with self.assertRaisesRegex(RuntimeError, "not PyTorch's own"):
            foreign.tensor_register(torch.frombuffer(bytearray(64), dtype=torch.uint8))


class Hooks(WithComm):
    def test_flight_recorder(self):
        recorder = FlightRecorderHook(max_entries=32, isolated=True)
        recorder.register_with_comm(self.comm)
        for later in (False, True):
            self.comm.all_reduce(torch.ones(3), ReduceOp.SUM, later).wait()
        entries = json.loads(recorder.dump_json(True))["entries"]
        self.assertEqual(["all_reduce" in entry["profiling_name"] for entry in entries], [True, True])
        self.assertEqual([entry["retired"] for entry in entries], [True, True])

    def test_log(self):
        """A call that is waited for begins and ends in the log of torch.comms."""
        with tempfile.NamedTemporaryFile("r") as log:
            hook = clog(log.name, ["ALL"])
            hook.register_with_comm(self.comm)
            for later in (False, True):
                self.comm.all_reduce(torch.ones(3), ReduceOp.SUM, later).wait()
            lines = log.read()
        self.assertEqual((lines.count("|Q|"), lines.count("|E|")), (2, 2), lines)

    def test_hooks_of_calls(self):
        seen = []
        pre = self.comm.register_pre_hook(lambda *given: seen.append(type(given[-1]).__name__))
        self.comm.barrier(False)
        pre.remove()
        self.comm.barrier(False)
        self.assertEqual(seen, ["BarrierPreHookArgs"])


class Failures(unittest.TestCase):
    def test_limit_of_a_call(self):
        for later in (False, True):
            comm, hooks = new_comm(f"limit{later}"), []
            comm.register_abort_hook(lambda: hooks.append(1))
            comm.barrier(False)
            if RANK == 0:
                with self.assertRaisesRegex(RuntimeError, "imed out"):
                    work = comm.barrier(later, timeout=SHORT)
                    work.wait()
                self.assertEqual(hooks, [1])
            else:  # a rank that comes too late
                with self.assertRaises(RuntimeError):
                    store.get("late" + str(later))
                    for _ in range(2):  # rank 0 had arrived at the first
                        comm.barrier(False)
            if RANK == 0:
                store.set("late" + str(later), "1")
            comm.finalize()

    def test_abort_and_reconfigure(self):
        comm = new_comm("abort")
        self.assertTrue(comm.is_abort_supported())
        comm.barrier(False)
        work = comm.all_reduce(torch.ones(1), ReduceOp.SUM, True) if RANK == 0 else None
        store.add("aborts", 1)
        while store.add("aborts", 0) < SIZE:
            pass
        comm.abort()
        self.assertTrue(comm.is_aborted())
        if work:
            with self.assertRaises(RuntimeError):
                work.wait()
            self.assertFalse(work.is_completed())
        with self.assertRaisesRegex(RuntimeError, "aborted"):
            comm.barrier(False)
        self.reconfigure(comm, 1, True)
        self.assertFalse(comm.is_aborted())
        window = comm.new_window(torch.zeros(4))
        self.reconfigure(comm, 2, False)
        with self.assertRaisesRegex(RuntimeError, "no tensor"):
            window.signal(0, False)
        comm.finalize()

    def test_without_members_at_first(self):
        comm = new_comm("dynamic", enable_reconfigure=True)
        with self.assertRaisesRegex(RuntimeError, "before reconfigure"):
            comm.barrier(False)
        self.reconfigure(comm, 3, True)
        part = comm.split([comm.get_rank()], "alone")
        part.barrier(False)
        part.finalize()
        if SIZE > 2:  # the last leaves
            self.reconfigure(comm, 4, True, SIZE - 1)
        comm.finalize()

    def reconfigure(self, comm, number, ordered, members=SIZE):
        """Reconfigure without the ranks from `members` on, in the opposite order if it is given."""
        if RANK >= members:
            return
        store.set(f"handle{number}/{RANK}", comm.get_init_handle())
        handles = [store.get(f"handle{number}/{r}").decode() for r in range(members)][::-1]
        self.assertEqual(handles[members - 1 - RANK], comm.get_init_handle())
        work = comm.reconfigure(number, handles if ordered else set(handles))
        work.wait_blocking()
        self.assertEqual(comm.get_size(), members)
        if ordered:
            self.assertEqual(comm.get_rank(), members - 1 - RANK)
        tensor = torch.tensor([RANK + 1.0])
        comm.all_reduce(tensor, ReduceOp.SUM, False)
        self.assertEqual(tensor.item(), members * (members + 1) / 2)


class Distributed(unittest.TestCase):
    def test_wrapped(self):
        """The wrapper by which torch.distributed uses torch.comms, where it is built in."""
        wrapper = getattr(torch._C._comms, "_BackendWrapper", None)
        if wrapper is None:
            self.skipTest("no wrapper")
        comm = new_comm("wrapped")
        backend = wrapper(comm)
        tensor = torch.ones(5)
        backend.allreduce([tensor]).wait()
        self.assertEqual(tensor.tolist(), [SIZE] * 5)
        comm.finalize()


if __name__ == "__main__":
    good = unittest.main(exit=False).result.wasSuccessful()
    store.add("ended", 1)
    while RANK == 0 and store.add("ended", 0) < SIZE:
        pass
    sys.exit(0 if good else 1)

# SPDX-License-Identifier: Apache-2.0
"""Every call in its forms, on any number of ranks, which run these tests in the same order. The results are computed
with NumPy from what all ranks pass."""
import gc
import threading
import unittest

import numpy as np
import twill

comm = twill.init()
rank, size = comm.rank, comm.size


def of(r: int, shape: object = 6, dtype: object = "f4") -> np.ndarray:
    """What rank r passes: small integers, whose sums are exact."""
    count = int(np.prod(shape))
    return (np.arange(count) * (r + 1) % 11 + r).reshape(shape).astype(dtype)


def everyone(shape: object = 6, dtype: object = "f4") -> np.ndarray:
    return np.stack([of(r, shape, dtype) for r in range(size)])


class Calls(unittest.TestCase):
    same = staticmethod(np.testing.assert_array_equal)

    def forms(self, name: str, *given: object, **more: object) -> object:
        """Yield the result of each form of a call; callables make a new argument for each."""
        def made() -> list:
            return [a() if callable(a) else a for a in given]
        yield getattr(comm, name)(*made(), **more)
        yield getattr(comm, name + "_start")(*made(), **more).wait()
        with getattr(comm, name + "_init")(*made(), **more) as request:
            self.assertFalse(request.active)
            yield request.start().wait()
            if name != "broadcast" and "scatter" not in name and given and callable(given[0]) is False:
                yield request()

    def test_allreduce(self) -> None:
        total = everyone().sum(0)
        for result in self.forms("allreduce", of(rank), lambda: np.empty(6, "f4")):
            self.same(result, total)
        for result in self.forms("allreduce", lambda: of(rank)):  # in place
            self.same(result, total)
        buffer = of(rank)
        self.assertIs(comm.Allreduce(twill.IN_PLACE, buffer), buffer)
        self.same(buffer, total)
        self.same(comm.allreduce(of(rank), op=twill.MAX), everyone().max(0))
        self.same(comm.allreduce(of(rank, dtype="c16") * 1j), everyone(dtype="c16").sum(0) * 1j)
        self.same(comm.allreduce(of(rank) > 5, op=twill.LOR), (everyone() > 5).any(0))
        self.same(comm.allreduce((np.full(4, 0x3F80, "u2"), "bf16"))[0], np.full(4, np.float32(size).view("u4") >> 16))
        pairs = np.array([(of(rank)[i], rank) for i in range(6)], twill.pair_dtype("f32"))
        self.same(comm.allreduce(pairs, op=twill.MINLOC)["index"], everyone().argmin(0))
        self.assertEqual(comm.allreduce(rank), size * (size - 1) // 2)
        self.assertEqual(comm.allreduce(0.5), size / 2)
        self.assertEqual(comm.allreduce(np.float32(0.5)), size / 2)
        self.assertIs(comm.allreduce(rank == 0, op=twill.LAND), size == 1)

    def test_rooted(self) -> None:
        root = size - 1
        for result in self.forms("reduce", of(rank), lambda: np.empty(6, "f4"), root=root):
            self.same(result, everyone().sum(0)) if rank == root else self.assertIsNone(result)
        for result in self.forms("broadcast", lambda: of(rank), root=root):
            self.same(result, of(root))
        for result in self.forms("gather", of(rank), root=root):
            self.same(result, everyone()) if rank == root else self.assertIsNone(result)
        for result in self.forms("scatter", everyone() if rank == root else None, lambda: np.empty(6, "f4"), root=root):
            self.same(result, of(rank))
        whole = np.zeros((size, 6), "f4")
        whole[rank] = of(rank)
        result = comm.gather(twill.IN_PLACE if rank == 0 else of(rank), whole if rank == 0 else None)
        self.same(result, everyone()) if rank == 0 else self.assertIsNone(result)

    def test_gathers(self) -> None:
        for result in self.forms("allgather", of(rank, (2, 3), "c8")):
            self.same(result, everyone((2, 3), "c8"))
        whole = everyone((size, 3))
        for result in self.forms("alltoall", of(rank, (size, 3))):
            self.same(result, whole[:, rank])
        for result in self.forms("reduce_scatter", of(rank, (2 * size, 3))):
            self.same(result, everyone((2 * size, 3)).sum(0)[2 * rank:2 * rank + 2])
        self.same(comm.allgather(np.full(2, rank, "M8[s]")), np.repeat(np.arange(size), 2).reshape(size, 2).astype("M8[s]"))

    def test_vectors(self) -> None:
        counts = [r + 1 for r in range(size)]
        total = sum(counts)
        whole = np.concatenate([of(r, r + 1) for r in range(size)])
        for result in self.forms("allgatherv", of(rank, rank + 1), lambda: np.empty(total, "f4"), counts):
            self.same(result, whole)
        backwards = [total - sum(counts[:r + 1]) for r in range(size)]
        shifted = comm.allgatherv(of(rank, rank + 1), np.empty(total, "f4"), counts, backwards)
        self.same(shifted, np.concatenate([of(r, r + 1) for r in reversed(range(size))]))
        begin = sum(counts[:rank])
        for result in self.forms("reduce_scatterv", of(rank, total), lambda: np.empty(rank + 1, "f4"), counts):
            self.same(result, everyone(total).sum(0)[begin:begin + rank + 1])
        for result in self.forms("gatherv", of(rank, rank + 1), lambda: np.empty(total, "f4"), counts, root=0):
            self.same(result, whole) if rank == 0 else self.assertIsNone(result)
        for result in self.forms("scatterv", whole if rank == 0 else None, lambda: np.empty(rank + 1, "f4"), counts):
            self.same(result, of(rank, rank + 1))
        sent = np.repeat(np.float64(rank), (rank + 1) * size)
        for result in self.forms("alltoallv", sent, [rank + 1] * size, lambda: np.empty(total), counts):
            self.same(result, np.repeat(np.arange(size), counts))

    def test_messages(self) -> None:
        to, source = (rank + 1) % size, (rank - 1) % size
        for result in self.forms("sendrecv", of(rank), to, lambda: np.empty(6, "f4"), source):
            self.same(result, of(source))
        received = np.empty(6, "f4")
        with comm.group():
            comm.send(of(rank), to)
            comm.recv(received, source)
        self.same(received, of(source))
        request = comm.Isend(of(rank) + 1, to)  # whose buffer it keeps
        gc.collect()
        self.same(comm.Irecv(received, source).wait(), of(source) + 1)
        request.wait()
        if size > 1 and rank < 2:
            comm.send_object({"from": rank}, 1 - rank) if rank else self.assertEqual(comm.recv_object(1), {"from": 1})

    def test_requests(self) -> None:
        requests = [comm.allreduce_start(of(rank) + i) for i in range(3)]
        ended = set()
        while (i := twill.wait_any(requests)) is not None:
            self.same(requests[i].result, everyone().sum(0) + i * size)
            ended.add(i)
        self.assertEqual(ended, {0, 1, 2})
        self.assertFalse(any(request.active for request in requests))
        self.same(twill.wait_all([comm.barrier_start(), comm.allreduce_start(of(rank))])[1], everyone().sum(0))
        request = comm.allreduce_init(of(rank))
        request.set_timeout(100)
        request.start()
        while not request.test():
            pass
        self.same(request.result, everyone().sum(0))
        request.free()
        self.assertEqual(comm._pending, set())

    def test_objects(self) -> None:
        self.assertEqual(comm.allgather_object("x" * rank), ["x" * r for r in range(size)])
        self.assertEqual(comm.broadcast_object({"root": rank}, size - 1), {"root": size - 1})
        self.assertEqual(comm.gather_object(rank), list(range(size)) if rank == 0 else None)
        self.assertEqual(comm.scatter_object([[r] for r in range(size)] if rank == 0 else None), [rank])
        self.assertEqual(comm.allreduce_object({rank}, set.union), set(range(size)))

    def test_communicators(self) -> None:
        with comm.dup() as copy:
            self.assertEqual((copy.rank, copy.size, copy.allreduce(1)), (rank, size, size))
        half = comm.split(rank % 2, -rank)
        self.assertEqual(half.allgather(np.array([rank])).ravel().tolist(), [r for r in range(size) if r % 2 == rank % 2][::-1])
        half.free()
        self.assertIsNone(comm.split(None))
        with comm.split_level(twill.Level.NODE) as node:
            self.assertEqual((node.size, comm.local_size, comm.local_rank, comm.node), (size, size, rank, 0))
        with comm.create_group(range(size)[::-1]) as group:
            self.assertEqual(group.rank, size - 1 - rank)
        with comm.create_over(range(size), lambda mine: comm.allgather_object(mine)) as over:
            self.assertEqual(over.allreduce(1), size)
        with self.assertRaisesRegex(ZeroDivisionError, "division"):
            comm.create_over(range(size), lambda mine: [mine] * (1 // 0)) if size > 1 else 1 // 0

    def test_operations(self) -> None:
        def absolute_maximum(left: np.ndarray, right: np.ndarray, result: np.ndarray) -> None:
            np.copyto(result, np.where(np.abs(left) >= np.abs(right), left, right))

        with twill.Operation(comm.context, absolute_maximum) as op:
            self.same(comm.allreduce(of(rank) - 5, op=op), max_by_magnitude(everyone() - 5))

        def multiply(left: np.ndarray, right: np.ndarray, result: np.ndarray) -> None:
            result["m"] = left["m"] @ right["m"]

        matrices = [np.array([[[r, 1], [1, 0]], [[1, r], [0, 1]]], "f8") for r in range(size)]
        product = matrices[0]
        for matrix in matrices[1:]:
            product = product @ matrix
        with twill.Operation(comm.context, multiply, np.dtype([("m", "f8", (2, 2))]), commutative=False) as op:
            self.same(comm.allreduce(matrices[rank].reshape(2, 4).view(op.element), op=op)["m"].reshape(2, 2, 2), product)
            with self.assertRaisesRegex(TypeError, "view"):
                comm.allreduce(of(rank), op=op)
        with twill.Operation.scaled(comm.context, "f32", rank + 1.0) as op:
            self.same(comm.allreduce(np.ones(3, "f4"), op=op), np.full(3, size * (size + 1) / 2))
        with twill.Operation.narrow(comm.context, "f16", after=0.5) as op:
            self.same(comm.allreduce(np.ones(3, "f2"), op=op), np.full(3, size / 2))
        if size > 1:
            with twill.Operation(comm.context, lambda left, right, result: 1 // 0) as op, comm.dup() as copy:
                with self.assertRaises(ZeroDivisionError):
                    for _ in range(size):  # which ranks compute depends on the algorithm: all of them do in one
                        copy.allreduce(of(rank, 4096), op=op)
                    raise ZeroDivisionError("on another rank")

    def test_memory(self) -> None:
        a = comm.context.zeros((size, 1000), "f8")
        self.assertEqual((a.shape, a.dtype, a.ctypes.data % 64, a.sum()), ((size, 1000), np.dtype("f8"), 0, 0))
        a += rank
        part = comm.allreduce(a)[1:, :10]
        del a
        gc.collect()
        self.assertEqual(comm.context._arrays, 1)  # the part keeps it
        self.same(part, np.full(part.shape, size * (size - 1) / 2))
        del part
        gc.collect()
        self.assertEqual(comm.context._arrays, 0)
        self.assertEqual(comm.context.empty(0).size, 0)
        with comm.context.register(bytearray(1 << 16)):
            pass

    def test_threads(self) -> None:
        copies, results = [comm.dup() for _ in range(3)], [0] * 3

        def work(i: int) -> None:
            for _ in range(50):
                results[i] += copies[i].allreduce(i + 1)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, [50 * size * (i + 1) for i in range(3)])
        for copy in copies:
            copy.free()

    def test_odd_addresses(self) -> None:
        """Of all ranks, and of one of them."""
        for dtype in ("f4", "f8", "i2", "i8", "f2", "c8"):
            for odd in (rank + 1, 3 if rank == 0 else 0):
                src, dst = (np.frombuffer(bytearray(50 * 16 + 8), dtype, 50, odd) for _ in range(2))
                src[...] = of(rank, 50, dtype)
                self.same(comm.allreduce(src, dst), everyone(50, dtype).sum(0))
                self.same(comm.allreduce(src), everyone(50, dtype).sum(0))

    def test_values_that_are_not_in_memory(self) -> None:
        """Views of PyTorch's that are conjugated or negated: logical values are reduced and stored."""
        try:
            import torch
        except ImportError:
            self.skipTest("no torch here")
        x, n = torch.tensor([1 + 2j, 3 - 4j]), size
        for result in self.forms("allreduce", x.conj(), lambda: torch.zeros(2, dtype=x.dtype)):
            self.same(result, n * np.array([1 - 2j, 3 + 4j]))
        self.same(comm.allreduce(torch._neg_view(torch.ones(3)), torch.zeros(3)), np.full(3, -n))
        self.same(comm.allreduce(x.conj().imag, torch.zeros(2)), n * np.array([-2, 4]))
        self.same(comm.allreduce(torch._efficientzerotensor(3), torch.ones(3)), np.zeros(3))
        mine = x.clone()
        comm.allreduce(mine.conj() if rank == 0 else mine)  # in place, of one rank
        total = np.array([1 - 2j, 3 + 4j]) + (n - 1) * x.numpy()
        self.same(mine, total.conj() if rank == 0 else total)
        got = x.clone() if rank == 0 else torch.zeros(2, dtype=x.dtype)
        comm.broadcast(got if rank == 0 else got.conj(), 0)
        self.same(got, x if rank == 0 else x.conj().resolve_conj())
        mine = x.clone()
        with comm.allreduce_init(mine.conj()) as request:  # takes the values of each start
            for turn in (1, 2):
                request()
                self.same(mine, n ** turn * x.numpy())
        mine = x.clone()
        with comm.group():
            comm.allreduce(mine.conj())
        self.same(mine, n * x.numpy())
        for turn in (torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8), np.ma.array([1.0], mask=[1])):
            with self.assertRaises(ValueError):
                comm.broadcast(turn, 0)

    def test_refused_here(self) -> None:
        """Wrong arguments of this rank's arrays are found before anything is sent."""
        a = np.zeros(6)
        for call in (lambda: comm.allreduce(a, np.zeros(5)), lambda: comm.allgather(a, np.zeros(6 * size + 1)),
                     lambda: comm.alltoall(np.zeros(6 * size + 1)) if size > 1 else comm.allreduce(a, np.zeros(5)),
                     lambda: comm.allgatherv(a, np.zeros(99), [1] * (size + 1)),
                     lambda: comm.reduce_scatterv(np.zeros(size), np.zeros(9), [9] * size)):
            with self.assertRaises(ValueError):
                call()
        with self.assertRaisesRegex(TypeError, "float64, dst of float32"):
            comm.allreduce(a, np.zeros(6, "f4"))
        with self.assertRaisesRegex(TypeError, r"64\[s\], dst of datetime64\[ns\]"):
            comm.allgather(np.zeros(2, "M8[s]"), np.zeros(2 * size, "M8[ns]"))

    def test_told(self) -> None:
        before = comm.counters.calls
        comm.allreduce(1)
        self.assertGreater(comm.counters.calls, before)
        self.assertTrue(comm.context.describe() and comm.context.variables())
        self.assertEqual(comm.context.why("allreduce 64K f32")[0][0], "call")
        plan = comm.plan_for("allreduce", 4096)
        self.assertIn("the cheapest", plan.reason)
        self.assertTrue(plan.algorithm and plan.seconds > 0 and plan.segment_bytes == 4096, plan)
        comm.suspend()
        self.assertEqual(comm.memory.suspended, 1)
        self.assertEqual(comm.allreduce(1), size)
        self.assertEqual(comm.memory.suspended, 0)
        self.assertTrue(comm.memory.shared_limit >= comm.memory.shared_peak >= comm.memory.shared_bytes > 0, comm.memory)
        comm.times_reset()
        self.assertIsInstance(comm.times() + comm.rails(), list)
        self.assertEqual((comm.message, comm.epoch, comm.nodes), ("", 0, 1))
        self.assertIn("allreduce", repr(type(comm).allreduce))
        self.assertGreater(comm.bounds().silent, 0)
        with self.assertRaisesRegex(twill.ArgumentError, 'collective "sum" is no call'):
            comm.plan_for("sum", 8)


def max_by_magnitude(rows: np.ndarray) -> np.ndarray:
    result = rows[0]
    for row in rows[1:]:
        result = np.where(np.abs(result) >= np.abs(row), result, row)
    return result


if __name__ == "__main__":
    with comm:
        unittest.main(exit=False).result.wasSuccessful() or exit(1)

# SPDX-License-Identifier: Apache-2.0
"""A parameter server and a window, on any number of ranks."""
import unittest

import numpy as np
import twill

comm = twill.init()
rank, size = comm.rank, comm.size


class Servers(unittest.TestCase):
    def test_colocated(self) -> None:
        self.run_colocated(np.ones(5, "f4"))
        odd = np.frombuffer(bytearray(28), "f4", 5, 1 + rank)  # of any alignment
        odd[...] = 1
        self.run_colocated(odd)

    def run_colocated(self, start: np.ndarray) -> None:
        with twill.Server(comm, optimizer="sgd", hyper={"rate": 0.5}) as server:
            first, second = server.add("first", parameters=start), server.add("second", (2, 3))
            server.commit()
            self.assertEqual(server.role, twill.ServerPart.BOTH)
            for step in range(2):
                first.gradient[...], second.gradient[...] = rank, 2
                server.push_pull()
                server.wait()
                mean = (size - 1) / 2
                np.testing.assert_allclose(start, np.full(5, 1 - 0.5 * mean * (step + 1)))
                np.testing.assert_allclose(second.parameters, np.full((2, 3), -(step + 1.0)))
            self.assertTrue(server.test() and first.test())
            self.assertEqual((first.version, server.counters["keys"]), (2, 2))
            self.assertEqual(sum(server.staleness(4)), server.counters["gradients"])

    def test_apart(self) -> None:
        if size == 1:
            self.skipTest("one rank cannot be apart")
        with twill.Server(comm, layout="ncs", mode="async", op="sum", ranks=[size - 1],
                          chunk_bytes=twill.WHOLE_TENSORS) as server:
            tensor = server.add("all", 3)
            server.commit()
            self.assertEqual(server.counters["chunk_bytes"], twill.WHOLE_TENSORS % 2**64)
            if server.role == twill.ServerPart.SERVES:
                server.serve()
            else:
                tensor.gradient[...] = 1
                tensor.push()
                tensor.wait_push()
                tensor.pull()
                tensor.wait()
                self.assertGreaterEqual(tensor.parameters[0], 1)
                server.leave()

    def test_refused(self) -> None:
        with self.assertRaisesRegex(TypeError, "no option modes"):
            twill.Server(comm, modes=1)
        server = twill.Server(comm)
        with self.assertRaisesRegex(ValueError, "commit"):
            print(server.add("a", 3).parameters)
        for call in (lambda: server.add("a\0b", 3), lambda: server.load("a\0b")):
            with self.assertRaisesRegex(ValueError, "NUL"):
                call()
        server.free()

    def test_window(self) -> None:
        slots = comm.context.zeros((size, 300), "f4")
        with twill.Window(comm, slots, signals=size) as window:
            for to in range(size):
                window.put(np.full(300, rank + 1, "f4"), to, offset=rank * 1200, signal=rank)
            for source in range(size):
                self.assertEqual(window.wait_signal(source, 1), 1)
                np.testing.assert_array_equal(slots[source], source + 1)
            window.signal(rank, rank)
            self.assertEqual(window.wait_signal(rank, 2), 2)
            with self.assertRaisesRegex(twill.ArgumentError, f"rank {size} is outside"):
                window.put(slots, size)
        with self.assertRaisesRegex(twill.ArgumentError, "not memory of twill_alloc"):
            twill.Window(comm, np.zeros(3), 1)


if __name__ == "__main__":
    with comm:
        unittest.main(exit=False).result.wasSuccessful() or exit(1)

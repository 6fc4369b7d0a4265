# SPDX-License-Identifier: Apache-2.0
"""Gradient sets, on any number of ranks; and arrays that outlive their communicator."""
import gc
import unittest

import numpy as np
import twill

comm = twill.init(settings={"TWILL_TIMEOUT": 600})
rank, size = comm.rank, comm.size


class Training(unittest.TestCase):
    def test_steps(self) -> None:
        mine = np.zeros(5, "f8")
        with twill.GradientSet(comm, op="SUM", bucket_bytes=64) as gradients:
            first, second = gradients.add("first", (2, 3), "f32"), gradients.add("second", gradient=mine)
            gradients.commit()
            for step in range(3):
                first.gradient[...] = rank + step
                mine[...] = rank
                second.ready()
                first.ready()
                np.testing.assert_array_equal(second.wait(), np.full(5, sum(range(size))))
                self.assertTrue(second.test())
                gradients.wait_all()
                np.testing.assert_array_equal(first.result, np.full((2, 3), sum(r + step for r in range(size))))
            self.assertEqual(mine[0], sum(range(size)))
            self.assertEqual(gradients.counters.steps, 3)
            gradients.check()
            self.assertTrue(gradients.describe() and gradients.traffic and isinstance(gradients.times(), list))

    def test_optimizer(self) -> None:
        with twill.GradientSet(comm, threads=1) as gradients:
            weights = gradients.add("weights", 100)
            gradients.set_optimizer("sgd", rate=0.5, momentum=0.5)
            gradients.commit()
            weights.parameters[...] = 1
            for _ in range(2):
                weights.gradient[...] = rank  # the mean is (size - 1) / 2
                weights.ready()
                gradients.wait_all()
            gradients.set_optimizer("sgd", rate=0.0)  # momentum stays
            mean = (size - 1) / 2
            np.testing.assert_allclose(weights.parameters, np.full(100, 1 - 0.5 * mean - 0.5 * 1.5 * mean))
            gradients.load_state([gradients.state()] if size == 1 else comm.allgather_object(gradients.state()))

    def test_dense(self) -> None:
        with twill.GradientSet(comm, factors="gathered") as gradients:
            weights = gradients.add_dense("weights", 3, 4, 2)
            gradients.commit()
            weights.ready_factors(np.full((2, 3), rank + 1, "f4"), np.ones((2, 4), "f4"))
            gradients.wait_all()
            np.testing.assert_allclose(weights.result, np.full((3, 4), size + 1))

    def test_odd_addresses(self) -> None:
        """Gradients and parameters of the program that no element is aligned in, on one rank or on all."""
        def odd(value: float, dtype: str, odd: int) -> np.ndarray:
            array = np.frombuffer(bytearray(8 * 300 + 8), dtype, 300, odd)
            array[...] = value
            return array
        mean = (size - 1) / 2
        for options in ({}, {"compression": "bf16"}, {"compression": "int8"}, {"compression": "top_k", "compression_ratio": 1.0}):
            for at in (1 + rank, 3 * (rank == 0)):
                gradient, parameters = odd(0, "f4", at), odd(1, "f4", at)
                with twill.GradientSet(comm, **options) as gradients:
                    weights = gradients.add("weights", gradient=gradient, parameters=parameters)
                    gradients.set_optimizer("sgd", rate=0.5)
                    gradients.commit()
                    for _ in range(2):
                        gradient[...] = rank
                        weights.ready()
                        gradients.wait_all()
                    np.testing.assert_allclose(parameters, np.full(300, 1 - mean), rtol=0.02, atol=0.02, err_msg=str(options))
        for dtype in ("f8", "f2", "i4"):
            gradient = odd(rank, dtype, 1)
            with twill.GradientSet(comm, op="SUM") as gradients:
                gradients.add("plain", gradient=gradient)
                gradients.commit()
                gradients.tensors[0].ready()
                gradients.wait_all()
            np.testing.assert_array_equal(gradient, np.full(300, sum(range(size))))

    def test_refused(self) -> None:
        gradients = twill.GradientSet(comm)
        with self.assertRaisesRegex(TypeError, "no option buckets"):
            twill.GradientSet(comm, buckets=1)
        with self.assertRaisesRegex(ValueError, "5 elements of type float32"):
            gradients.add("a", 5, gradient=np.zeros(4, "f4"))
        with self.assertRaisesRegex(twill.ArgumentError, "no name"):
            gradients.add("", 5)
        with self.assertRaisesRegex(ValueError, "commit"):
            print(gradients.add("a", 5).gradient)
        gradients.free()

    def test_zz_arrays_outlive(self) -> None:
        """The last test: the context ends with the last array."""
        kept = comm.context.zeros(1 << 20)
        context = comm.context
        comm.free()
        kept += 1
        self.assertEqual(kept.sum(), 1 << 20)
        self.assertNotEqual(context._handle, 0)
        del kept
        gc.collect()
        self.assertEqual(context._handle, 0)
        with self.assertRaises(twill.ArgumentError):
            comm.barrier()


if __name__ == "__main__":
    with comm:
        unittest.main(exit=False).result.wasSuccessful() or exit(1)

# SPDX-License-Identifier: Apache-2.0
"""Arrays as C has them: without a copy, or refused with a sentence. One rank."""
import array
import unittest

import numpy as np
from twill import Op, Type, dtype_of, pair_dtype
from twill.buffers import reduced_layout, view

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None


class Tensor:
    """Something with the DLPack protocol alone."""

    def __init__(self, of: np.ndarray) -> None:
        self.of = of

    def __dlpack__(self, stream: object = None) -> object:
        return self.of.__dlpack__()

    def __dlpack_device__(self) -> object:
        return self.of.__dlpack_device__()


class Buffers(unittest.TestCase):
    def test_numpy(self) -> None:
        for kind in Type:
            if kind in (Type.BF16, Type.F8E4M3, Type.F8E5M2) and ml_dtypes is None:
                with self.assertRaisesRegex(TypeError, "ml_dtypes"):
                    dtype_of(kind)
                continue
            a = np.zeros((3, 4), dtype_of(kind))
            found = view(a, True)
            self.assertEqual((found.address, found.count, found.layout.type), (a.ctypes.data, 12, kind))
            self.assertEqual(dtype_of(kind.name.lower()), a.dtype)

    def test_others(self) -> None:
        a = np.arange(6, dtype="i2").reshape(2, 3)
        for other in (Tensor(a), memoryview(a), (a.view("u1"), "i16"), (memoryview(a), Type.I16)):
            found = view(other)
            self.assertEqual((found.address, found.count, found.layout.type), (a.ctypes.data, 6, Type.I16))
        self.assertEqual(view(array.array("d", [1, 2])).layout.type, Type.F64)
        self.assertEqual(view(b"abc").count, 3)
        self.assertEqual(view(np.float32(2)).count, 1)
        self.assertEqual(view(np.zeros(0)).count, 0)

    def test_refused(self) -> None:
        a = np.zeros((4, 4), "f4")
        for bad, kind, sentence in [
                (a[:, 1:3], ValueError, "not contiguous"), (a.T, ValueError, "not contiguous"),
                (Tensor(a[:, ::2]), ValueError, "not contiguous"), (b"abc", ValueError, "read-only"),
                ([1, 2], TypeError, "list is no array"), (3, TypeError, "_object"), ({}, TypeError, "dict is no array"),
                (np.array([None]), TypeError, "_object"), ((np.zeros(3, "u1"), "bf16"), ValueError, "3 bytes")]:
            with self.assertRaisesRegex(kind, sentence):
                view(bad, True)

    def test_meaning(self) -> None:
        def kinds(dtype: object, op: Op) -> object:
            a = np.zeros(2, dtype)  # type: ignore[call-overload]
            return reduced_layout(view(a).layout, op, a.dtype)

        self.assertEqual(kinds("c8", Op.SUM), (Type.F32, 2))
        self.assertEqual(kinds(bool, Op.LOR), (Type.U8, 1))
        self.assertEqual(kinds(pair_dtype("i64"), Op.MINLOC), (Type.I64, 1))
        self.assertEqual(pair_dtype("f64").itemsize, 16)
        for dtype, op, sentence in [("c8", Op.MAX, "complex"), (bool, Op.SUM, "LOR"), ("M8[s]", Op.SUM, "not reduced"),
                                    (">f4", Op.SUM, "not reduced"), ("f4", Op.MINLOC, "pair_dtype")]:
            with self.assertRaisesRegex(TypeError, sentence):
                kinds(dtype, op)

    def test_torch(self) -> None:
        try:
            import torch
        except ImportError:
            self.skipTest("no torch here")
        for dtype, kind in [(torch.float32, Type.F32), (torch.bfloat16, Type.BF16), (torch.int64, Type.I64)]:
            t = torch.zeros(3, 2, dtype=dtype)
            found = view(t, True)
            self.assertEqual((found.address, found.count, found.layout.type), (t.data_ptr(), 6, kind))
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            view(torch.zeros(3, 2).t())

    def test_jax(self) -> None:
        try:
            import jax.numpy as jnp
        except ImportError:
            self.skipTest("no jax here")
        for dtype, kind in [(jnp.float32, Type.F32), (jnp.bfloat16, Type.BF16), (jnp.int32, Type.I32)]:
            found = view(jnp.zeros((3, 2), dtype))
            self.assertEqual((found.count, found.layout.type), (6, kind))
        with self.assertRaisesRegex(ValueError, "do not change"):
            view(jnp.zeros(3), True)


if __name__ == "__main__":
    unittest.main()

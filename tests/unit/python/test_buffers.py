# SPDX-License-Identifier: Apache-2.0
"""Arrays as C has them: without a copy, or refused with a sentence. One rank."""
import array
import ctypes
import unittest

import numpy as np
from twill import Op, Type, dtype_of, pair_dtype
from twill import buffers
from twill.buffers import plain, reduced_layout, view

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


def computed(torch: object) -> object:
    """Return a tensor of a class that computes its values."""
    class Computes(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: object, types: object, args: tuple = (), kwargs: object = None) -> object:
            return func(*args, **(kwargs or {}))

    return torch.Tensor._make_subclass(Computes, torch.ones(3))


class Exported:
    """Something that exports its memory as DLPack 1.0 does: flags 1 read-only, 2 a copy."""

    def __init__(self, of: np.ndarray, flags: int) -> None:
        self.of, self.flags = of, flags

    def __dlpack__(self, max_version: object = None) -> object:
        shape = (ctypes.c_int64 * self.of.ndim)(*self.of.shape)
        tensor = buffers._Tensor(self.of.ctypes.data, 1, 0, self.of.ndim, 2, 8 * self.of.itemsize, 1, shape, None, 0)
        self.made = buffers._Versioned(1, 0, None, None, self.flags, tensor), shape
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.made[0]), b"dltensor_versioned", None)

    def __dlpack_device__(self) -> object:
        return (1, 0)


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
                ([1, 2], TypeError, "list is not an array"), (3, TypeError, "_object"), ({}, TypeError, "dict is not an array"),
                (np.array([None]), TypeError, "_object"), ((np.zeros(3, "u1"), "bf16"), ValueError, "3 bytes"),
                (np.ma.array([1.0, 2.0], mask=[0, 1]), ValueError, "masked"), (np.float32(2), TypeError, "NumPy"),
                (np.broadcast_to(np.ones(1), (3,)), ValueError, "not contiguous"),
                (np.broadcast_to(np.ones(1), (1,)), ValueError, "read-only"),
                (Exported(np.ones(2), 1), ValueError, "read-only"), (Exported(np.ones(2), 2), ValueError, "a copy")]:
            with self.assertRaisesRegex(kind, sentence):
                view(bad, True)
        self.assertEqual(view(Exported(a, 1)).count, 16)
        self.assertEqual(view(np.ones(2, ">f4")).layout.name, ">f4")

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
        for bad, sentence in [
                (torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8), "quantised"), (torch.ones(1).expand(3), "contiguous"),
                (torch.empty(3, device="meta"), "meta"), (torch.eye(3).to_sparse(), "sparse"), (computed(torch), "Computes"),
                (torch._neg_view(torch.ones(1).expand(3)), "share memory"),
                (torch._efficientzerotensor(3), "have none")]:
            with self.assertRaisesRegex(ValueError, sentence):
                view(bad, True)
        with self.assertRaisesRegex(ValueError, "other values"):
            plain(view(torch.ones(3, dtype=torch.complex64).conj()))

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

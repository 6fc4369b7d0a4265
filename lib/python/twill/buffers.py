# SPDX-License-Identifier: Apache-2.0
"""Finds address, elements and type of other packages' arrays, without a copy.

A buffer is a NumPy array, a PyTorch tensor, or an object with the DLPack protocol (JAX arrays) or the buffer protocol
(bytearray, memoryview, array.array). It may also be a pair (array, type), whose memory is read as elements of another
type, such as (array, "bf16") for an array of uint16. Elements must be contiguous, in C's order, and in host memory.

Some objects have other values than their memory. Conjugated or negated views of PyTorch are copied for the duration of
a call. Masked arrays, quantised tensors and subclasses of tensors that compute their values are refused."""
from __future__ import annotations

import ctypes
import math
import sys
from typing import Any, NamedTuple, Optional, Union

import numpy

from ._declarations import Op, Type
from ._library import lib

#: any object that a call accepts as a buffer
Buffer = Any
#: a type by value or name, such as Type.BF16 or "bf16", or an argument of numpy.dtype()
TypeLike = Union[Type, str, "numpy.typing.DTypeLike"]


class _InPlace:
    """The type of IN_PLACE."""

    def __repr__(self) -> str:
        return "twill.IN_PLACE"


#: as a source, means that the destination is also the source
IN_PLACE = _InPlace()

_MOVED = 1 << 8  # bytes that can be moved but not reduced
_BOOL, _COMPLEX = 2 << 8, 4 << 8
_LOGICAL = (Op.BAND, Op.BOR, Op.BXOR, Op.LAND, Op.LOR, Op.LXOR, Op.MIN, Op.MAX, Op.PROD)


class Layout(NamedTuple):
    """The form in which the elements of a buffer are passed: each becomes `parts` elements of `type`."""

    type: int
    parts: int
    kind: int  # 0, _MOVED, _BOOL or _COMPLEX
    name: str

    @property
    def moves(self) -> bool:
        """Whether these are bytes that can be moved but not reduced."""
        return self.kind == _MOVED


class Copied:
    """A copy, for the duration of a call, of a tensor whose memory has other values."""

    def __init__(self, tensor: Any, writes: bool) -> None:
        self._tensor, self._writes = tensor, writes
        self.values = tensor.detach().clone().resolve_conj().resolve_neg().contiguous()

    def load(self) -> None:
        """Copy the tensor's present values."""
        self.values.copy_(self._tensor.detach())

    def store(self) -> None:
        """Copy to the tensor what a call has written, if it writes."""
        if self._writes:
            self._tensor.detach().copy_(self.values)


class View(NamedTuple):
    """The memory of a buffer. Its elements are at `address` as long as `keep` lives."""

    address: int
    count: int  # type: ignore[assignment]
    layout: Layout
    keep: Any
    copied: Optional[Copied] = None


def copies_of(keep: Any) -> list[Copied]:
    """Return the copies among the objects that a call keeps, which are a view or a tuple with views."""
    parts = keep if type(keep) is tuple else (keep,)
    return [part.copied for part in parts if type(part) is View and part.copied is not None]


# Names of types in NumPy and PyTorch.
_DTYPE_NAMES = {Type.F32: "float32", Type.F64: "float64", Type.I32: "int32", Type.I64: "int64", Type.F16: "float16",
                Type.BF16: "bfloat16", Type.I8: "int8", Type.U8: "uint8", Type.I16: "int16", Type.U16: "uint16",
                Type.U32: "uint32", Type.U64: "uint64", Type.F8E4M3: "float8_e4m3fn", Type.F8E5M2: "float8_e5m2"}
_NAMES = {"bool": Layout(Type.U8, 1, _BOOL, "bool"), "complex64": Layout(Type.F32, 2, _COMPLEX, "complex64"),
          "complex128": Layout(Type.F64, 2, _COMPLEX, "complex128")}
for _type, _long in _DTYPE_NAMES.items():
    _NAMES[_long] = _NAMES[_type.name.lower()] = Layout(_type, 1, 0, _long)
# Layouts by numpy.dtype, added at first use.
_BY_DTYPE: dict[Any, Layout] = {}


def layout_of(dtype: Any) -> Layout:
    """Return the layout of a NumPy type. A type that twill cannot reduce is passed as bytes, and objects are refused."""
    layout = _BY_DTYPE.get(dtype)
    if layout is None:
        layout = _NAMES.get(dtype.name) if dtype.isnative else None
        if layout is None and not dtype.hasobject and dtype.itemsize > 0:
            layout = Layout(Type.U8, dtype.itemsize, _MOVED, str(dtype))
        if layout is None:
            raise TypeError(f"elements of type {dtype} are not in the array's memory; for Python objects there are "
                            "the calls whose names end in _object")
        _BY_DTYPE[dtype] = layout
    return layout


def named_layout(kind: TypeLike) -> Layout:
    """Return the layout of a type by value or name."""
    if isinstance(kind, Type):
        return _NAMES[kind.name.lower()]
    if isinstance(kind, str) and kind in _NAMES:
        return _NAMES[kind]
    return layout_of(numpy.dtype(kind))


def dtype_of(kind: TypeLike) -> numpy.dtype[Any]:
    """Return the NumPy type for elements of a type. bfloat16 and float8 need the package ml_dtypes."""
    name = kind.name.lower() if isinstance(kind, Type) else kind
    layout = _NAMES.get(name) if isinstance(name, str) else None
    if layout is None or layout.kind:
        return numpy.dtype(name)
    full = _DTYPE_NAMES[Type(layout.type)]
    if layout.type not in (Type.BF16, Type.F8E4M3, Type.F8E5M2):
        return numpy.dtype(full)
    try:
        import ml_dtypes  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise TypeError(f"NumPy has no type {full} without the package ml_dtypes; pass (array of uint8 or uint16, "
                        f'"{layout.name}")') from None
    made: numpy.dtype[Any] = numpy.dtype(getattr(ml_dtypes, full))
    return made


def memory_at(address: int, size: int) -> Any:
    """Return `size` bytes at an address as an object with the buffer protocol. NumPy arrays made from it keep it."""
    return (ctypes.c_char * size).from_address(address)


def array_of(memory: Any, dtype: numpy.dtype[Any], shape: tuple[int, ...]) -> numpy.ndarray[Any, Any]:
    """Return an array at the start of an object of memory_at()."""
    size = dtype.itemsize * math.prod(shape)
    array: numpy.ndarray[Any, Any] = numpy.frombuffer(memory, numpy.uint8, size).view(dtype).reshape(shape)
    return array


def pair_dtype(kind: TypeLike) -> numpy.dtype[Any]:
    """Return the type of elements for Op.MINLOC and Op.MAXLOC, with the fields "value" (of type `kind`) and "index"."""
    return numpy.dtype([("value", dtype_of(kind)), ("index", numpy.int32)], align=True)


# ndarray.ctypes takes 1 us to give the address of an array's data. In NumPy's ABI it follows the object's head.
_HEAD = object.__basicsize__
_read_pointer = ctypes.c_void_p.from_address


def _address_in_object(array: Any) -> int:
    return _read_pointer(id(array) + _HEAD).value or 0


def _address_by_ctypes(array: Any) -> int:
    return int(array.ctypes.data)


def _abi_is_known() -> bool:
    whole = numpy.zeros(8)
    return all(_address_in_object(array) == array.ctypes.data for array in (whole, whole[1:], whole[:0]))


address_of = _address_in_object if sys.implementation.name == "cpython" and _abi_is_known() else _address_by_ctypes
#: types that are reduced without conversion
PLAIN: dict[Any, int] = {numpy.dtype(name): kind for kind, name in _DTYPE_NAMES.items()
                         if name != "bfloat16" and not name.startswith("float8")}


def _of_numpy(array: Any, writable: bool) -> View:
    if isinstance(array, numpy.ma.MaskedArray):
        raise ValueError("the memory of a masked array also has the values that are masked: pass its filled(), or "
                         "its data")
    flags = array.flags
    if not flags.c_contiguous:
        raise ValueError(f"an array of shape {array.shape} and strides {array.strides} is not contiguous: pass "
                         "numpy.ascontiguousarray() of it, and copy the result back")
    if writable and not flags.writeable:
        raise ValueError("the array is read-only, and the call writes to it")
    return View(address_of(array), array.size, layout_of(array.dtype), array)


def check_torch(tensor: Any, plain: Any) -> None:
    """Raise ValueError for a tensor whose memory has other values. `plain` is the class torch.Tensor."""
    if tensor.device.type != "cpu":
        raise ValueError(f"the tensor is on {tensor.device}, not in host memory")
    if type(tensor).__torch_dispatch__ is not plain.__torch_dispatch__:
        raise ValueError(f"a tensor of class {type(tensor).__name__} computes its values: pass the tensor that it is "
                         "made of")
    if tensor.is_quantized:
        raise ValueError("the memory of a quantised tensor has codes: pass its dequantize(), or its int_repr()")
    if tensor.is_nested or str(tensor.layout) != "torch.strided":
        raise ValueError(f"a tensor of layout {tensor.layout}{', nested,' if tensor.is_nested else ''} is not one block "
                         "of memory: pass a dense one")


def _of_torch(tensor: Any, writable: bool, plain: Any) -> View:
    check_torch(tensor, plain)
    lazy = tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor()
    if not (tensor.is_contiguous() or lazy):
        raise ValueError(f"a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()} is not contiguous: "
                         "pass its contiguous(), and copy the result back")
    name = str(tensor.dtype).removeprefix("torch.")
    layout = _NAMES.get(name) or Layout(Type.U8, tensor.element_size(), _MOVED, name)
    repeats = tensor._is_zerotensor() or (not tensor.is_contiguous() and 0 in tensor.stride())
    if lazy and writable and repeats:
        raise ValueError("elements of the tensor share memory or have none, and the call writes to them: pass its clone()")
    copied = Copied(tensor, writable) if lazy else None
    try:
        address = (copied.values if copied else tensor).data_ptr()
    except RuntimeError as error:
        raise ValueError(f"the tensor has no memory: {error}") from None
    if address == 0 and tensor.numel() > 0:
        raise ValueError("the tensor has no memory")
    return View(address, tensor.numel(), layout, tensor, copied)


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


_READ_ONLY, _IS_COPIED = 1, 2
_DLPACK = {0: "int{}", 1: "uint{}", 2: "float{}", 4: "bfloat{}", 5: "complex{}", 6: "bool", 10: "float8_e4m3fn",
           12: "float8_e5m2"}
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_named = ctypes.pythonapi.PyCapsule_IsValid
_is_named.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _exported(array: Any) -> tuple[Any, _Tensor, int]:
    """Return a capsule, its tensor and its flags. It is not consumed, so its destructor releases the array."""
    try:
        capsule = array.__dlpack__(max_version=(1, 0))
    except TypeError:  # older than DLPack 1.0
        capsule = array.__dlpack__()
    if _is_named(capsule, b"dltensor"):
        return capsule, _Tensor.from_address(_pointer_of(capsule, b"dltensor")), 0
    found = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
    if found.major != 1:
        raise ValueError(f"the array has version {found.major} of DLPack, and not 1")
    return capsule, found.tensor, found.flags


def _of_dlpack(array: Any, writable: bool) -> View:
    if writable and type(array).__module__.partition(".")[0] in ("jax", "jaxlib"):
        raise ValueError("arrays of JAX do not change: receive into an array of NumPy")
    if array.__dlpack_device__()[0] != 1:
        raise ValueError("the array is not in host memory")
    capsule, tensor, flags = _exported(array)
    if writable and flags & (_READ_ONLY | _IS_COPIED):
        raise ValueError("the array is read-only, or a copy, and the call writes to it")
    expected = 1
    for i in reversed(range(tensor.ndim)):
        if tensor.strides and tensor.shape[i] > 1 and tensor.strides[i] != expected:
            raise ValueError("the array is not contiguous")
        expected *= tensor.shape[i]
    name = _DLPACK.get(tensor.code, "").format(tensor.bits)
    size = (tensor.bits * tensor.lanes + 7) // 8
    layout = (_NAMES.get(name) if tensor.lanes == 1 else None) or Layout(Type.U8, size, _MOVED, name)
    return View((tensor.data or 0) + tensor.byte_offset, expected, layout, (array, capsule))


def view(buffer: Buffer, writable: bool = False) -> View:
    """Return a buffer's memory. Raises TypeError for an object that has none, and ValueError for one that is unusable."""
    if isinstance(buffer, numpy.ndarray):
        return _of_numpy(buffer, writable)
    if writable and isinstance(buffer, numpy.generic):
        raise TypeError("the call writes to the buffer, and a number of NumPy does not change: pass an array")
    if isinstance(buffer, tuple) and len(buffer) == 2:
        return _retyped(view(buffer[0], writable), named_layout(buffer[1]))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(buffer, torch.Tensor):
        return _of_torch(buffer, writable, torch.Tensor)
    if hasattr(buffer, "__dlpack__"):
        return _of_dlpack(buffer, writable)
    if hasattr(buffer, "__array_interface__"):
        return _of_numpy(numpy.asarray(buffer), writable)
    try:
        memory = memoryview(buffer)
    except TypeError:
        raise TypeError(f"{type(buffer).__name__} is not an array: pass one of NumPy, PyTorch or JAX, or what has the "
                        "buffer protocol; for Python objects there are the calls whose names end in _object") from None
    return _of_numpy(numpy.asarray(memory), writable)


def plain(found: View) -> View:
    """Return a view whose memory is used for longer than a call. Raises ValueError if it is a view of a copy."""
    if found.copied is not None:
        raise ValueError("the tensor is conjugated, negated or without memory, and its memory has other values: pass "
                         "its resolve_conj() or resolve_neg()")
    return found


def _retyped(found: View, layout: Layout) -> View:
    size = found.count * bytes_of(found.layout)
    if size % bytes_of(layout) != 0:
        raise ValueError(f"{size} bytes are not a whole number of elements of type {layout.name}")
    return View(found.address, size // bytes_of(layout), layout, found.keep, found.copied)


def bytes_of(layout: Layout) -> int:
    """Return the bytes of an element."""
    return int(lib.twill_type_size(layout.type)) * layout.parts


def reduced_layout(layout: Layout, op: int, dtype: Any) -> tuple[int, int]:
    """Return type and parts of elements to reduce with `op`. Raises TypeError if `op` has no meaning for them."""
    if op in (Op.MINLOC, Op.MAXLOC):
        fields = getattr(dtype, "fields", None)
        if not fields or len(fields) != 2 or dtype != pair_dtype(value := dtype[0]):
            raise TypeError(f"{Op(op).name} reduces arrays of twill.pair_dtype(type), not of {dtype or layout.name}")
        return named_layout(value).type, 1
    if op < Op.MINLOC:
        if layout.kind == _MOVED:
            raise TypeError(f"elements of type {layout.name} can be moved, but not reduced")
        if layout.kind == _COMPLEX and op not in (Op.SUM, Op.AVG):
            raise TypeError(f"complex numbers have no {Op(op).name}: SUM and AVG only")
        if layout.kind == _BOOL and op not in _LOGICAL:
            raise TypeError(f"{Op(op).name} of bool does not give a bool: use LOR (any), LAND (all) or LXOR")
    return layout.type, layout.parts

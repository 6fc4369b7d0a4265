# SPDX-License-Identifier: Apache-2.0
"""A process's membership of a job: memory that ranks share, operations, and information about the job."""
from __future__ import annotations

import ctypes
import math
import os
import threading
import weakref
from typing import Any, Callable, Optional, Sequence, Union

import numpy

from ._declarations import Type, twill_idle_fn, twill_op_fn
from ._library import fail, lib, lines, text
from .buffers import Buffer, TypeLike, array_of, dtype_of, memory_at, named_layout, plain, view

Shape = Union[int, Sequence[int]]


class Context:
    """A context. Communicators that were made in it have it as `context`.

    Its arrays stay valid after its communicators have ended. The memory is released with the last array."""

    def __init__(self, handle: int, older: Optional[Context] = None) -> None:
        self._handle = handle
        self._older = older  # the context before the job grew, whose memory stays valid, and which ends with this one
        self._newer: Optional[Context] = None
        self._lock, self._process = threading.Lock(), os.getpid()
        self._arrays = 0
        self._ends = False  # the communicator that owns it has ended
        self._callbacks: dict[Any, Any] = {}
        self._raised: Optional[BaseException] = None
        if older is not None:
            older._newer = self

    def _fail(self, status: int) -> None:
        fail(status, text(lib.twill_context_message(self._handle)))

    def _count(self, change: int) -> None:
        """Add to the number of arrays in use, and end the newest context if that only waits for them."""
        with self._lock:
            self._arrays += change
        newest = self
        while newest._newer is not None:
            newest = newest._newer
        if newest._ends:
            newest._destroy()

    def _destroy(self) -> None:
        """End the context. If arrays of it or of an older one are in use, it ends with the last of them."""
        self._ends = True
        link: Optional[Context] = self
        while link is not None:
            if link._arrays > 0 or link._handle == 0:
                return
            link = link._older
        handle, self._handle = self._handle, 0
        lib.twill_context_destroy(handle)

    def _release(self, address: int) -> None:
        if os.getpid() != self._process:  # the memory is the parent's, which may also hold the lock
            return
        lib.twill_free(self._handle, address)
        self._count(-1)

    def empty(self, shape: Shape, dtype: TypeLike = "float32") -> numpy.ndarray[Any, Any]:
        """Return a new array, with undefined contents, in memory that the ranks of the node share and use without copies.
        TWILL_MEMORY determines its placement. The memory is freed with the last view of the array."""
        kind = dtype_of(dtype)
        dimensions = (shape,) if isinstance(shape, int) else tuple(shape)
        if any(dimension < 0 for dimension in dimensions):
            raise ValueError(f"a dimension of shape {dimensions} is negative")
        address = ctypes.c_void_p()
        bytes_needed = max(math.prod(dimensions) * kind.itemsize, 1)
        status = lib.twill_alloc(self._handle, ctypes.byref(address), bytes_needed)
        if status != 0:
            self._fail(status)
        assert address.value is not None
        memory = memory_at(address.value, bytes_needed)
        self._count(1)
        weakref.finalize(memory, self._release, address.value).atexit = False
        return array_of(memory, kind, dimensions)

    def zeros(self, shape: Shape, dtype: TypeLike = "float32") -> numpy.ndarray[Any, Any]:
        """Return a new array of zeros (see empty())."""
        array = self.empty(shape, dtype)
        array.view(numpy.uint8)[...] = 0
        return array

    def empty_like(self, array: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
        """Return a new array with the shape and type of another one (see empty())."""
        return self.empty(array.shape, array.dtype)

    def register(self, buffer: Buffer) -> Registration:
        """Register memory with the network once, rather than in each call, until free() of the returned object."""
        return Registration(self, buffer)

    def idle(self, function: Optional[Callable[[], object]]) -> None:
        """Set a function that waiting threads call now and then, for other work of the program. It must return soon and
        must not call twill. The waiting call raises its exception once that call is complete. None removes it."""
        callback = twill_idle_fn() if function is None else twill_idle_fn(lambda _: self._guard(function))
        status = lib.twill_context_idle(self._handle, callback, None)
        if status != 0:
            self._fail(status)
        self._callbacks["idle"] = callback

    def _guard(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function of the program from C. As exceptions cannot pass through C, keep the first one."""
        try:
            function(*arguments)
        except BaseException as error:  # pylint: disable=broad-except
            if self._raised is None:
                self._raised = error

    def _raise(self) -> None:
        """Raise the exception that a function of the program has raised during the call, if any."""
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised

    def describe(self) -> list[str]:
        """Return the lines that twill-info prints: machine, nodes, provider, interface, memory kinds, kernels."""
        return lines(lib.twill_context_describe, self._handle)

    def variables(self) -> list[list[str]]:
        """Return name, value, default, source and help text of each environment variable."""
        return [line.split("\t") for line in lines(lib.twill_context_variable, self._handle)]

    def why(self, question: str) -> list[list[str]]:
        """Return the reasons for the algorithm of a call such as "allreduce 64K f32" (see twill_context_why())."""
        made: list[list[str]] = []
        while (line := lib.twill_context_why(self._handle, question.encode(), len(made))) is not None:
            made.append(text(line).split("\t"))
        return made


class Registration:
    """Memory that is registered with the network until free() or the end of a `with` block."""

    def __init__(self, context: Context, buffer: Buffer) -> None:
        found = plain(view(buffer))
        self._context, self._keep, self._address = context, found, found.address
        status = lib.twill_register(context._handle, found.address, view((buffer, "u8")).count)
        if status != 0:
            context._fail(status)

    def free(self) -> None:
        """End the registration. No call may be using the memory."""
        if self._address:
            address, self._address = self._address, 0
            status = lib.twill_deregister(self._context._handle, address)
            if status != 0:
                self._context._fail(status)

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()


class Operation:
    """An operation for reductions, to pass in place of an Op. Making one is local, and all ranks make equivalent ones.

    Operation(context, function) calls function(left, right, result) with one-dimensional arrays. The function stores
    the combination of left and right in result, which may be left or right. It must be associative and depend on
    nothing else. It runs in Python, even in other threads that wait, so it is for rare or small calls.

    `element` is a NumPy type of at most 4096 bytes, for arrays that are passed as bytes. Without it, the function gets
    elements of the call's type. If the function raises, the result is undefined, and the call raises it when complete.
    """

    def __init__(self, context: Context, function: Callable[..., object], element: Optional[TypeLike] = None,
                 commutative: bool = True) -> None:
        opaque = None if element is None else dtype_of(element)

        def reduce(left: int, right: int, result: int, count: int, kind: int, _: object) -> None:
            dtype = opaque if opaque is not None else dtype_of(Type(kind))
            arrays = [array_of(memory_at(at, count * dtype.itemsize), dtype, (count,)) for at in (left, right, result)]
            context._guard(function, *arrays)

        self._make(context, "", twill_op_fn(reduce), None, 0 if opaque is None else opaque.itemsize, int(commutative))
        self.element = opaque

    def _make(self, context: Context, form: str, *arguments: Any) -> None:
        made = ctypes.c_int()
        status = getattr(lib, "twill_op_create" + form)(context._handle, ctypes.byref(made), *arguments)
        if status != 0:
            context._fail(status)
        self._context, self._keep, self.value, self.element = context, arguments, made.value, None

    @classmethod
    def scaled(cls, context: Context, kind: TypeLike, factor: float) -> Operation:
        """Return a sum whose inputs are first multiplied by a factor, which may differ between ranks."""
        layout = named_layout(kind)
        narrow = layout.name in ("float16", "bfloat16", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")
        number = numpy.array(factor, "float32" if narrow and "float" in layout.name else dtype_of(kind))
        made = cls.__new__(cls)
        made._make(context, "_scaled", layout.type, number.ctypes.data)
        return made

    @classmethod
    def narrow(cls, context: Context, kind: TypeLike, before: Optional[float] = None,
               after: Optional[float] = None) -> Operation:
        """Return a sum of 8- or 16-bit floats whose partial results are rounded to their type. Inputs are multiplied by
        `before`, and the sum by `after`."""
        factors = [None if factor is None else ctypes.pointer(ctypes.c_float(factor)) for factor in (before, after)]
        made = cls.__new__(cls)
        made._make(context, "_narrow", named_layout(kind).type, *factors)
        return made

    def free(self) -> None:
        """Destroy the operation. No call may be using it."""
        if self.value >= 0:
            value, self.value = self.value, -1
            status = lib.twill_op_destroy(self._context._handle, value)
            if status != 0:
                self._context._fail(status)

    def __enter__(self) -> Operation:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

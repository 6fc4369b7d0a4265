# SPDX-License-Identifier: Apache-2.0
"""A process's membership of a job: memory that ranks share, operations, and what the library knows."""
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
    """A context: it belongs to the communicators that were made in it, which have it as `context`.

    Its arrays stay valid after the end of its communicators: the memory is given back when the last one is gone."""

    def __init__(self, handle: int, older: Optional[Context] = None) -> None:
        self._handle = handle
        self._older = older  # the job's before it grew: its memory goes on, and it ends with this one
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
        with self._lock:
            self._arrays += change
        newest = self
        while newest._newer is not None:
            newest = newest._newer
        if newest._ends:
            newest._destroy()

    def _destroy(self) -> None:
        """End the context, unless arrays of it or of an older one are in use: then with the last of them."""
        self._ends = True
        link: Optional[Context] = self
        while link is not None:
            if link._arrays > 0 or link._handle == 0:
                return
            link = link._older
        handle, self._handle = self._handle, 0
        lib.twill_context_destroy(handle)

    def _release(self, address: int) -> None:
        if os.getpid() != self._process:  # the memory is the parent's, and so may be the lock
            return
        lib.twill_free(self._handle, address)
        self._count(-1)

    def empty(self, shape: Shape, dtype: TypeLike = "float32") -> numpy.ndarray[Any, Any]:
        """Return a new array in memory that the ranks of the node share (TWILL_MEMORY places it): they use it without
        copies. It is an array like any other, and freed with the last view of it. Contents are undefined."""
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
        """Return a new array of zeros, see empty()."""
        array = self.empty(shape, dtype)
        array.view(numpy.uint8)[...] = 0
        return array

    def empty_like(self, array: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
        """Return a new array of the shape and type of another one, see empty()."""
        return self.empty(array.shape, array.dtype)

    def register(self, buffer: Buffer) -> Registration:
        """Register memory with the network once, not per call, until the registration is freed."""
        return Registration(self, buffer)

    def idle(self, function: Optional[Callable[[], object]]) -> None:
        """Set what a thread that waits calls now and then: other work of the program, which must return soon and not
        call twill. An exception that it raises is raised by the call that waits, when that is complete."""
        callback = twill_idle_fn() if function is None else twill_idle_fn(lambda _: self._guard(function))
        status = lib.twill_context_idle(self._handle, callback, None)
        if status != 0:
            self._fail(status)
        self._callbacks["idle"] = callback

    def _guard(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function of the program from C, to which an exception cannot pass: keep the first one."""
        try:
            function(*arguments)
        except BaseException as error:  # pylint: disable=broad-except
            if self._raised is None:
                self._raised = error

    def _raise(self) -> None:
        """Raise what a function of the program has raised during the call."""
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised

    def describe(self) -> list[str]:
        """Return what twill-info prints: machine, nodes, provider and interface, memory kinds, kernels."""
        return lines(lib.twill_context_describe, self._handle)

    def variables(self) -> list[list[str]]:
        """Return name, value, default, source and help of each environment variable."""
        return [line.split("\t") for line in lines(lib.twill_context_variable, self._handle)]

    def why(self, question: str) -> list[list[str]]:
        """Return the reasons for the algorithm of a call, "allreduce 64K f32", as twill_context_why() does."""
        made: list[list[str]] = []
        while (line := lib.twill_context_why(self._handle, question.encode(), len(made))) is not None:
            made.append(text(line).split("\t"))
        return made


class Registration:
    """Memory that is registered with the network until free(), or the end of its `with` block."""

    def __init__(self, context: Context, buffer: Buffer) -> None:
        found = plain(view(buffer))
        self._context, self._keep, self._address = context, found, found.address
        status = lib.twill_register(context._handle, found.address, view((buffer, "u8")).count)
        if status != 0:
            context._fail(status)

    def free(self) -> None:
        """End the registration, when no call uses the memory."""
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
    """An operation for reductions, in place of those of Op. Local; all ranks make equivalent ones.

    Operation(context, function) calls function(left, right, result) with arrays of one dimension: it stores the
    combination of left and right in result, which may be left or right, must be associative, and depends on nothing
    else. It runs in Python, also in other threads that wait: it is for rare or small calls. element: type of
    NumPy's (at most 4096 bytes an element) of arrays that are passed as bytes; without it, function is called with
    elements of the call's type. If function raises, the call's result is undefined, and it raises that when complete.
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
        """Return a sum whose inputs are first multiplied by a factor, which each rank may choose."""
        layout = named_layout(kind)
        narrow = layout.name in ("float16", "bfloat16", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")
        number = numpy.array(factor, "float32" if narrow and "float" in layout.name else dtype_of(kind))
        made = cls.__new__(cls)
        made._make(context, "_scaled", layout.type, number.ctypes.data)
        return made

    @classmethod
    def narrow(cls, context: Context, kind: TypeLike, before: Optional[float] = None,
               after: Optional[float] = None) -> Operation:
        """Return a sum of 8- or 16-bit floats whose partial results are rounded to their type; inputs are multiplied by
        before, the sum by after."""
        factors = [None if factor is None else ctypes.pointer(ctypes.c_float(factor)) for factor in (before, after)]
        made = cls.__new__(cls)
        made._make(context, "_narrow", named_layout(kind).type, *factors)
        return made

    def free(self) -> None:
        """Destroy the operation, when no call uses it."""
        if self.value >= 0:
            value, self.value = self.value, -1
            status = lib.twill_op_destroy(self._context._handle, value)
            if status != 0:
                self._context._fail(status)

    def __enter__(self) -> Operation:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

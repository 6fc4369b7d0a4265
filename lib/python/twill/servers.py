# SPDX-License-Identifier: Apache-2.0
"""Parameter servers and windows. Workers push gradients of tensors to a server by key and pull parameters. man 3
twill_server.h has the modes. In a window, ranks put data into each other's memory. man 3 twill_window.h has the rules."""
from __future__ import annotations

import ctypes
import math
from typing import Any, Optional, Union

import numpy

from ._declarations import (TWILL_NO_SIGNAL, TWILL_SERVER_WHOLE_TENSORS, Compression, Op, OptimizerRule, ServerLayout,
                            ServerMode, ServerPart, ServerRate, twill_optimizer, twill_server_counters,
                            twill_server_options, twill_tensor)
from ._library import encoded, fail, lib, text
from .buffers import Buffer, TypeLike, array_of, dtype_of, memory_at, plain, view
from .comm import Communicator
from .context import Shape
from .training import described_tensor, optimizer_of, set_fields

#: value of the option chunk_bytes of a Server that keeps tensors whole
WHOLE_TENSORS: int = TWILL_SERVER_WHOLE_TENSORS
#: in place of a signal of Window.put(): raise none
NO_SIGNAL: int = TWILL_NO_SIGNAL

_ENUMS = {"layout": ServerLayout, "mode": ServerMode, "rate": ServerRate, "op": Op, "compression": Compression}


class ServedTensor:
    """A tensor of a server. On workers, its arrays have the shape that it was added with."""

    def __init__(self, owner: Server, key: int, shape: tuple[int, ...], dtype: numpy.dtype[Any]) -> None:
        self._server, self.key, self.shape, self.dtype = owner, key, shape, dtype

    def _array(self, address: Optional[int]) -> numpy.ndarray[Any, Any]:
        if not address:
            raise ValueError("this memory exists only after the commit, and only on workers")
        memory = memory_at(address, math.prod(self.shape) * self.dtype.itemsize)
        memory._server = self._server
        return array_of(memory, self.dtype, self.shape)

    @property
    def gradient(self) -> numpy.ndarray[Any, Any]:
        """The gradient, which push() sends."""
        return self._array(lib.twill_server_gradient(self._server._handle, self.key))

    @property
    def parameters(self) -> numpy.ndarray[Any, Any]:
        """The parameters, which pull() receives."""
        return self._array(lib.twill_server_parameters(self._server._handle, self.key))

    @property
    def version(self) -> int:
        """Version of the parameters that were pulled last."""
        return int(lib.twill_server_version(self._server._handle, self.key))

    def push(self) -> None:
        """Start to push the gradient. Its memory belongs to the server until the push has been waited for."""
        self._server._check(lib.twill_server_push(self._server._handle, self.key))

    def pull(self) -> None:
        """Start to pull the parameters. Their memory belongs to the server until the pull has been waited for."""
        self._server._check(lib.twill_server_pull(self._server._handle, self.key))

    def push_pull(self) -> None:
        """Start a push and then a pull."""
        self._server._check(lib.twill_server_push_pull(self._server._handle, self.key))

    def test(self) -> bool:
        """Advance push and pull, and return whether both are complete."""
        return self._server._test(self.key)

    def wait(self) -> None:
        """Wait for push and pull."""
        self._server._check(lib.twill_server_wait(self._server._handle, self.key))

    def wait_push(self) -> None:
        """Wait for the push only."""
        self._server._check(lib.twill_server_wait_push(self._server._handle, self.key))


class Server:
    """One process's part of a parameter server. Call add() for the same tensors on all ranks, then commit(). After that,
    workers push and pull, and ranks that only serve stay in serve() until all workers have left. Call free() at the end.

    Options are the members of twill_server_options, such as layout ("ncs"), mode ("k_sync"), k, servers, ranks, threads
    and chunk_bytes (WHOLE_TENSORS cuts none). `optimizer` is a rule such as "sgd", with hyperparameters `hyper`."""

    def __init__(self, comm: Communicator, *, optimizer: Union[OptimizerRule, str, None] = None,
                 hyper: Optional[dict[str, float]] = None, ranks: Optional[list[int]] = None, **options: Any) -> None:
        given = twill_server_options()
        lib.twill_server_defaults(ctypes.byref(given))
        set_fields(given, options, "a server", _ENUMS)
        self._optimizer = None if optimizer is None else optimizer_of(optimizer, hyper or {})
        if self._optimizer is not None:
            given.optimizer = ctypes.addressof(self._optimizer)
        chosen = (ctypes.c_int * len(ranks))(*ranks) if ranks else None
        given.ranks = ctypes.addressof(chosen) if chosen else None
        self.comm, self._handle = comm, ctypes.c_void_p()
        self.tensors: list[ServedTensor] = []
        self._keep: list[Any] = []
        comm._check(lib.twill_server_create(ctypes.byref(self._handle), comm._handle, ctypes.byref(given)))

    def _check(self, status: int) -> None:
        if status != 0:
            fail(status, text(lib.twill_server_message(self._handle)))

    def add(self, name: str, shape: Optional[Shape] = None, dtype: TypeLike = "float32", *,
            gradient: Optional[Buffer] = None, parameters: Optional[Buffer] = None) -> ServedTensor:
        """Register a tensor and return it. Shape and type are the given ones, or those of the program's memory."""
        tensor, dimensions, kind, keep = described_tensor(name, shape, dtype, gradient, parameters)
        key = ctypes.c_int()
        self._check(lib.twill_server_add(self._handle, ctypes.byref(tensor), ctypes.byref(key)))
        self._keep.append(keep)
        self.tensors.append(ServedTensor(self, key.value, dimensions, dtype_of(kind)))
        return self.tensors[-1]

    def load(self, path: str) -> None:
        """Read the files that save() has written. Before the commit, on all ranks."""
        self._check(lib.twill_server_load(self._handle, encoded(path, "the path")))

    def commit(self) -> Server:
        """End the registration. Collective."""
        self._check(lib.twill_server_commit(self._handle))
        return self

    @property
    def role(self) -> ServerPart:
        """Whether this rank works, serves, or does both."""
        return ServerPart(lib.twill_server_role(self._handle))

    def _test(self, key: int) -> bool:
        done = ctypes.c_int()
        self._check(lib.twill_server_test(self._handle, key, ctypes.byref(done)))
        return bool(done.value)

    def push_pull(self) -> None:
        """Start push_pull() of all tensors."""
        keys = (ctypes.c_int * len(self.tensors))(*[tensor.key for tensor in self.tensors])
        self._check(lib.twill_server_push_pull_all(self._handle, len(keys), keys))

    def test(self) -> bool:
        """Return whether all pushes and pulls are complete."""
        return self._test(-1)

    def wait(self) -> None:
        """Wait for all pushes and pulls."""
        self._check(lib.twill_server_wait(self._handle, -1))

    def serve(self) -> None:
        """Serve until all workers have left or died."""
        self._check(lib.twill_server_serve(self._handle))

    def leave(self) -> None:
        """Wait for what this worker has started. After that it pushes and pulls no more."""
        self._check(lib.twill_server_leave(self._handle))

    def set_optimizer(self, **hyperparameters: float) -> None:
        """Change hyperparameters for later updates of the chunks on this server. Call it on all servers."""
        if self._optimizer is None:
            raise ValueError("the server has no optimizer")
        set_fields(self._optimizer, hyperparameters, "the optimizer", {})
        self._check(lib.twill_server_set_optimizer(self._handle, ctypes.byref(self._optimizer)))

    def save(self, path: str) -> None:
        """Write the state of the chunks on this server to the file PATH.RANK."""
        self._check(lib.twill_server_save(self._handle, encoded(path, "the path")))

    def rebuild(self, comm: Communicator) -> None:
        """Continue with the ranks of `comm`, after shrink() or grow(). Collective over `comm`."""
        status = lib.twill_server_rebuild(ctypes.byref(self._handle), comm._handle)
        if status != 0:
            comm._fail(status)
        self.comm = comm

    @property
    def counters(self) -> dict[str, int]:
        """Counters since the commit, by the names of twill_server_counters."""
        read = twill_server_counters()
        self._check(lib.twill_server_count(self._handle, ctypes.byref(read)))
        return {field[0]: getattr(read, field[0]) for field in read._fields_}

    def staleness(self, most: int = 16) -> list[int]:
        """Return a histogram of the staleness of gradients for chunks on this server. Element i counts staleness i, and
        the last one counts staleness of most - 1 or more."""
        histogram = (ctypes.c_uint64 * most)()
        self._check(lib.twill_server_staleness(self._handle, histogram, most))
        return list(histogram)

    def free(self) -> None:
        """Free the server and its memory. Collective after a commit: workers leave, and servers serve until then."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        lib.twill_server_destroy(handle)
        self._keep.clear()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: Optional[type], *_: object) -> None:
        if kind is None:
            self.free()


class Window:
    """The array that each rank of `comm` lets the others put data into, and its signals. The array is from
    comm.context.empty(), or None. Its length may differ between ranks, the number of signals may not. Collective."""

    def __init__(self, comm: Communicator, array: Optional[Buffer], signals: int) -> None:
        self.comm, self._handle = comm, ctypes.c_void_p()
        self._keep = None if array is None else plain(view((array, "u8"), True))
        address, size = (self._keep.address, self._keep.count) if self._keep else (None, 0)
        comm._check(lib.twill_window_create(ctypes.byref(self._handle), comm._handle, address, size, signals))

    def _check(self, status: int) -> None:
        if status != 0:
            fail(status, text(lib.twill_window_message(self._handle)))

    def put(self, src: Buffer, to: int, offset: int = 0, signal: int = NO_SIGNAL) -> None:
        """Put an array at byte `offset` of the window of rank `to`, then raise a signal there. Returns when the array
        may change, which may be before the data have arrived."""
        found = plain(view((src, "u8")))
        self._check(lib.twill_put(self._handle, found.address, found.count, to, offset, signal))
        self._check(lib.twill_window_flush(self._handle))

    def signal(self, to: int, signal: int) -> None:
        """Raise a signal of rank `to`, after all that this rank has put there."""
        self._check(lib.twill_signal(self._handle, to, signal))

    def wait_signal(self, signal: int, at_least: int) -> int:
        """Wait until a signal of this rank has been raised `at_least` times, and return how often it was."""
        count = ctypes.c_uint64()
        self._check(lib.twill_wait_signal(self._handle, signal, at_least, ctypes.byref(count)))
        return count.value

    def free(self) -> None:
        """Free the window, when all puts have arrived. Collective."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        lib.twill_window_destroy(handle)
        self._keep = None

    def __enter__(self) -> Window:
        return self

    def __exit__(self, kind: Optional[type], *_: object) -> None:
        if kind is None:
            self.free()

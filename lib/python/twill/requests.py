# SPDX-License-Identifier: Apache-2.0
"""Calls in progress, and calls that are prepared once and started many times."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Iterable, Optional, Sequence

from ._library import lib
from .buffers import copies_of

if TYPE_CHECKING:
    from .calls import Prepared
    from .comm import Communicator

_wait, _test, _start = lib.twill_wait, lib.twill_test, lib.twill_request_start


class Request:
    """A call in progress. Its buffers belong to the library until wait() returns, or test() returns True."""

    __slots__ = ("_comm", "_handle", "_reference", "_prepared", "__weakref__")

    def __init__(self, comm: Communicator, handle: ctypes.c_void_p, prepared: Prepared) -> None:
        self._comm, self._handle, self._prepared = comm, handle, prepared
        self._reference = ctypes.byref(handle)
        comm._pending.add(self)  # keeps its buffers until it is complete, even if the program drops it

    @property
    def active(self) -> bool:
        """Whether the call may still be in progress. Only wait() and test() find that it is complete."""
        return self._handle.value is not None

    def wait(self) -> Any:
        """Wait until the call is complete, and return what the blocking call returns, or raise its failure."""
        return self._ended(_wait(self._reference))

    def test(self) -> bool:
        """Advance the call, and return whether it is complete. Raises its failure."""
        done = ctypes.c_int()
        status = _test(self._reference, ctypes.byref(done))
        if status != 0 or done.value:
            self._ended(status)
        return bool(done.value)

    @property
    def result(self) -> Any:
        """What the blocking call returns, valid once the call is complete."""
        return self._prepared.result

    def set_timeout(self, seconds: float) -> None:
        """Set after how many seconds without progress waits for this request fail. 0 means the communicator's limit."""
        status = lib.twill_request_set_timeout(self._handle, seconds)
        if status != 0:
            self._comm._fail(status)

    def _ended(self, status: int) -> Any:
        self._comm._pending.discard(self)
        return self._outcome(status)

    def _outcome(self, status: int) -> Any:
        """Return the result of a complete call, or raise its failure."""
        comm = self._comm
        if status != 0:
            comm._fail(status)
        for copied in copies_of(self._prepared.keep):
            copied.store()
        if comm.context._raised is not None:
            comm.context._raise()
        return self._prepared.result


class PersistentRequest(Request):
    """A call that is prepared once and then started any number of times. This is the cheapest form, as nothing is
    converted or looked up again. Call free() at the end, or use it in a `with` block."""

    __slots__ = ("_active",)

    def __init__(self, comm: Communicator, handle: ctypes.c_void_p, prepared: Prepared) -> None:
        super().__init__(comm, handle, prepared)
        self._active = False

    @property
    def active(self) -> bool:
        """Whether it has been started and may still be in progress."""
        return self._active

    def start(self) -> PersistentRequest:
        """Start the call, and return this request. All ranks must start it."""
        self._load()
        status = _start(self._handle)
        if status != 0:
            self._comm._fail(status)
        self._active = True
        return self

    def wait(self) -> Any:
        """Wait until the call is complete, and return what the blocking call returns, or raise its failure."""
        status = _wait(self._reference)
        self._active = False
        return self._outcome(status)

    def _load(self) -> None:
        for copied in copies_of(self._prepared.keep):
            copied.load()

    def __call__(self) -> Any:
        """Start the call and wait for it, like the blocking call with the same buffers. Returns the result."""
        self._load()
        return self._outcome(_start(self._handle) or _wait(self._reference))

    def _ended(self, status: int) -> Any:
        self._active = False
        pending = self._comm._pending
        try:
            return super()._ended(status)
        finally:
            pending.add(self)  # keeps the buffers until it is freed

    def free(self) -> None:
        """Free the request, which must not be in progress."""
        status = lib.twill_request_free(self._reference)
        if status != 0:
            self._comm._fail(status)
        self._comm._pending.discard(self)

    def __enter__(self) -> PersistentRequest:
        return self

    def __exit__(self, kind: Optional[type], *_: object) -> None:
        if kind is None and self._handle.value is not None:
            self.free()


def wait_all(requests: Iterable[Request]) -> list[Any]:
    """Wait until all requests are complete, and return their results. If any failed, raise the first failure."""
    results: list[Any] = []
    failure: Optional[BaseException] = None
    for request in list(requests):
        try:
            results.append(request.wait())
        except Exception as error:  # wait for the others before raising it
            failure = failure or error
    if failure is not None:
        raise failure
    return results


def wait_any(requests: Sequence[Request]) -> Optional[int]:
    """Wait until one request is complete, and return its index or raise its failure. Return None if none is active."""
    handles = (ctypes.c_void_p * len(requests))(*[r._handle.value for r in requests])
    index = ctypes.c_int(-1)
    status = lib.twill_wait_any(len(requests), handles, ctypes.byref(index))
    if index.value < 0:
        if status != 0:
            requests[0]._comm._fail(status)
        return None
    ended = requests[index.value]
    ended._handle.value = handles[index.value]
    ended._ended(status)
    return index.value


def test_all(requests: Iterable[Request]) -> bool:
    """Advance all requests, and return whether all are complete. Raises the first failure."""
    return all([request.test() for request in requests if request.active])

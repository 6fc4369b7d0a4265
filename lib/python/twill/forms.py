# SPDX-License-Identifier: Apache-2.0
"""Makes the three forms of each call out of the arguments that it passes to the library (calls.py)."""
from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any, Callable

from . import calls
from ._library import lib
from .buffers import copies_of
from .requests import PersistentRequest, Request

if TYPE_CHECKING:
    from typing import Concatenate, ParamSpec

    from .comm import Communicator

    P = ParamSpec("P")
    Prepare = Callable[Concatenate[calls.Ranks, P], calls.Prepared]
    Method = Callable[Concatenate[Communicator, P], Any]


def _named(method: Any, prepare: Callable[..., calls.Prepared], suffix: str, doc: str) -> Any:
    """Return a method, after giving it name, documentation and annotations like those of `prepare`."""
    name = prepare.__name__ + suffix
    functools.update_wrapper(method, prepare, ("__doc__", "__annotations__"), ())
    method.__name__, method.__qualname__, method.__module__ = name, f"Communicator.{name}", __name__
    if doc:
        method.__doc__ = f"{doc}\n\n{prepare.__doc__}"
    return method


def blocking(prepare: Callable[Concatenate[calls.Ranks, P], calls.Prepared]) -> Callable[Concatenate[Communicator, P], Any]:
    """Return the blocking form of a call, which returns its result when it is complete."""
    function = getattr(lib, "twill_" + prepare.__name__)

    def method(self: Communicator, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        arguments, result, keep = prepare(self, *args, **kwargs)
        status = function(self._handle, *arguments)
        if status != 0:
            self._fail(status)
        if self._grouped is not None:
            self._grouped.append(keep)
            return result
        for copied in copies_of(keep):
            copied.store()
        if self.context._raised is not None:
            self.context._raise()
        return result

    return _named(method, prepare, "", "")  # type: ignore[no-any-return]


def started(prepare: Callable[Concatenate[calls.Ranks, P], calls.Prepared]) -> Callable[Concatenate[Communicator, P], Request]:
    """Return the nonblocking form of a call, which returns a request in progress."""
    function = getattr(lib, f"twill_{prepare.__name__}_start")

    def method(self: Communicator, /, *args: P.args, **kwargs: P.kwargs) -> Request:
        prepared = prepare(self, *args, **kwargs)
        handle = ctypes.c_void_p()
        status = function(self._handle, *prepared.arguments, ctypes.byref(handle))
        if status != 0:
            self._fail(status)
        return Request(self, handle, prepared)

    return _named(method, prepare, "_start", f"Start {prepare.__name__}(), and return a request.")  # type: ignore[no-any-return]


def persistent(prepare: Callable[Concatenate[calls.Ranks, P], calls.Prepared]
               ) -> Callable[Concatenate[Communicator, P], PersistentRequest]:
    """Return the persistent form of a call, which returns a request that may be started any number of times."""
    function = getattr(lib, f"twill_{prepare.__name__}_init")

    def method(self: Communicator, /, *args: P.args, **kwargs: P.kwargs) -> PersistentRequest:
        prepared = prepare(self, *args, **kwargs)
        handle = ctypes.c_void_p()
        status = function(self._handle, *prepared.arguments, ctypes.byref(handle))
        if status != 0:
            self._fail(status)
        return PersistentRequest(self, handle, prepared)

    return _named(method, prepare, "_init", f"Prepare {prepare.__name__}() as a persistent request.")  # type: ignore[no-any-return]

# SPDX-License-Identifier: Apache-2.0
"""Finds and opens libtwill.so with ctypes, declares its functions, and turns statuses into exceptions.

ctypes releases the GIL during each call, so other threads of the program run while one waits."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Callable

from . import _declarations
from .errors import exception_of

_HERE = os.path.dirname(os.path.abspath(__file__))
# In a wheel the library is in the package. A build folder has a link to the package next to its lib/. Otherwise the
# loader finds the library of the system.
_FOLDERS = (os.path.join(_HERE, "lib"), os.path.join(_HERE, "..", "..", "lib"))
_SONAME = "libtwill.so.0"


def beside(*names: str) -> str | None:
    """Return the path of a file installed or built with this package, such as ("bin", "twillrun"), or None."""
    for folder in _FOLDERS:
        path = os.path.normpath(os.path.join(folder, "..", *names))
        if os.path.exists(path):
            return path
    return None


def _open() -> tuple[ctypes.CDLL, str]:
    path = beside("lib", _SONAME) or _SONAME
    try:
        return ctypes.CDLL(path), path
    except OSError as error:
        raise ImportError(f"twill: {path} cannot be loaded: {error}. Install twill, use the package of a wheel, or put "
                          "the folder python of a build tree into PYTHONPATH") from None


def _declare(library: ctypes.CDLL, path: str) -> None:
    for name, (result, *arguments) in _declarations.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"twill: {path} is of another version: it has no {name}") from None
        function.restype = result
        function.argtypes = arguments


lib, PATH = _open()
_declare(lib, PATH)


def text(value: bytes | None) -> str:
    """Return a string of the library as str. NULL becomes ""."""
    return "" if value is None else value.decode("utf-8", "replace")


def lines(function: Callable[[Any, int], bytes | None], handle: Any) -> list[str]:
    """Return all lines of a function that returns the line of a given number, and NULL after the last."""
    made: list[str] = []
    while (line := function(handle, len(made))) is not None:
        made.append(text(line))
    return made


def encoded(string: str, what: str) -> bytes:
    """Encode a string for C. Raises ValueError if it contains a NUL, at which C would cut it."""
    if "\0" in string:
        raise ValueError(f"{what} {string!r} has a NUL character")
    return string.encode()


def fail(status: int, message: str) -> None:
    """Raise the exception of a status, with this message or, if it is empty, with the meaning of the status."""
    raise exception_of(status)(message or text(lib.twill_strerror(status)), status)


def settings_of(settings: dict[str, object] | None) -> ctypes.Array[ctypes.c_char_p] | None:
    """Return settings for C: "TWILL_NAME=value" strings, then NULL. True becomes 1 and False becomes 0."""
    if not settings:
        return None
    given = [f"{name}={int(value) if isinstance(value, bool) else value}".encode() for name, value in settings.items()]
    return (ctypes.c_char_p * (len(given) + 1))(*given, None)

# SPDX-License-Identifier: Apache-2.0
"""Exceptions. Each has a status and the library's message, which names the rank, the call and the cause."""
from __future__ import annotations

import builtins

from ._declarations import Status


class TwillError(Exception):
    """A call of twill has failed. A failed collective breaks its communicator unless noted otherwise."""

    def __init__(self, message: str, status: int = Status.ERR_INTERNAL) -> None:
        super().__init__(message)
        #: the status of the C interface
        self.status = Status(status) if status in Status.__members__.values() else status


class ArgumentError(TwillError, ValueError):
    """An argument is outside its range."""


class ConfigError(TwillError, ValueError):
    """An environment variable or setting cannot be used."""


class OutOfMemoryError(TwillError, MemoryError):
    """There is not enough memory."""


class SystemCallError(TwillError):
    """A system call failed."""


class BootstrapError(TwillError):
    """The ranks could not find each other."""


class FabricError(TwillError):
    """The network layer failed."""


class TimeoutError(TwillError, builtins.TimeoutError):
    """A deadline has passed. The message names the rank that is missing."""


class PeerError(TwillError, ConnectionError):
    """Another rank has died. The message names it."""


class MismatchError(TwillError):
    """The ranks disagree on the call or its arguments."""


class BrokenError(TwillError):
    """The communicator has failed before."""


class ForkedError(TwillError):
    """An object of the parent was used in a child process after fork()."""


class UnsupportedError(TwillError, NotImplementedError):
    """Not built in, or not available on this machine."""


class InternalError(TwillError):
    """An error in twill itself. Please report the message."""


class RevokedError(TwillError):
    """Communicator.revoke() has ended the communicator."""


class ExcludedError(TwillError):
    """The other ranks continue without this one, because it was silent."""


_CLASSES = {
    Status.ERR_ARGUMENT: ArgumentError,
    Status.ERR_CONFIG: ConfigError,
    Status.ERR_MEMORY: OutOfMemoryError,
    Status.ERR_SYSTEM: SystemCallError,
    Status.ERR_BOOTSTRAP: BootstrapError,
    Status.ERR_FABRIC: FabricError,
    Status.ERR_TIMEOUT: TimeoutError,
    Status.ERR_PEER: PeerError,
    Status.ERR_MISMATCH: MismatchError,
    Status.ERR_BROKEN: BrokenError,
    Status.ERR_FORKED: ForkedError,
    Status.ERR_UNSUPPORTED: UnsupportedError,
    Status.ERR_INTERNAL: InternalError,
    Status.ERR_REVOKED: RevokedError,
    Status.ERR_EXCLUDED: ExcludedError,
}


def exception_of(status: int) -> type[TwillError]:
    """Return the class of exceptions for a status."""
    return _CLASSES.get(status, TwillError)  # type: ignore[call-overload, no-any-return]

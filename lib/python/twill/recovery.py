# SPDX-License-Identifier: Apache-2.0
"""Continuing after ranks have died, and with new ranks. docs/guides/recovery.md shows how."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple, Optional, Sequence

from ._declarations import TWILL_HANDLE_BYTES, twill_bounds, twill_outcome, twill_reconfiguration
from ._library import fail, lib, settings_of, text

if TYPE_CHECKING:
    from .comm import Communicator


class Outcome(NamedTuple):
    """The result of the last agree() or shrink(), which is the same on all survivors."""

    failed: int
    survivors: int
    complete: int
    complete_some: int


class Bounds(NamedTuple):
    """Bounds, in seconds, on the time until a call in which this rank waits ends (see twill_bounds in man 3 twill.h)."""

    silent: float
    death: float
    host: float
    agree: float
    meet: float
    grow: float


class Recovery:
    """The calls of a communicator for recovery. All survivors make the same calls, but any of them may revoke() alone."""

    _owns: bool

    def revoke(self: Communicator) -> None:  # type: ignore[misc]
        """End the communicator on all its ranks, including calls in progress there. Any thread may call this."""
        self._check(lib.twill_comm_revoke(self._handle))

    def stop_requested(self: Communicator) -> int:  # type: ignore[misc]
        """Return 0, or the number of the call by which all ranks knew that one of them has called stop(). All ranks ask
        at the same places, such as after each step."""
        after = ctypes.c_uint64()
        self._check(lib.twill_comm_stop_requested(self._handle, ctypes.byref(after)))
        return after.value

    def agree(self: Communicator, flags: int = 0) -> int:  # type: ignore[misc]
        """Return the bitwise AND of flags (64 bits) over the live ranks. failed_ranks() then lists the others."""
        value = ctypes.c_uint64(flags)
        self._check(lib.twill_comm_agree(self._handle, ctypes.byref(value)))
        return value.value

    def shrink(self: Communicator) -> Communicator:  # type: ignore[misc]
        """Return a communicator of the live ranks in the same context. It replaces this one, which should leave()."""
        made = ctypes.c_void_p()
        self._check(lib.twill_comm_shrink(ctypes.byref(made), self._handle))
        smaller = self._adopt(made)
        smaller._take_place_of(self)
        return smaller

    def _grown(self: Communicator, made: ctypes.c_void_p) -> Communicator:  # type: ignore[misc]
        """Return the object for a communicator in a new context, which replaces this one and its context."""
        assert made.value is not None
        larger = type(self)(made.value, owns=self._owns, older=self.context if self._owns else None)
        self._owns = False
        return larger

    def handle(self: Communicator, joining: int) -> str:  # type: ignore[misc]
        """Return the line of text with which `joining` new processes join(). Rank 0 calls it before all ranks grow()."""
        line = ctypes.create_string_buffer(TWILL_HANDLE_BYTES)
        self._check(lib.twill_comm_handle(self._handle, joining, line))
        return text(line.value)

    def grow(self: Communicator) -> Communicator:  # type: ignore[misc]
        """Return a communicator of these ranks, followed by the new processes, in a new context. It replaces this one,
        which should leave(). Arrays of the old context stay valid."""
        made = ctypes.c_void_p()
        self._check(lib.twill_comm_grow(ctypes.byref(made), self._handle))
        return self._grown(made)

    def admit(self: Communicator) -> Optional[Communicator]:  # type: ignore[misc]
        """Admit processes that twillrun --elastic has started in place of dead ones. Return the communicator that
        replaces this one, or None if there are no such processes."""
        made = ctypes.c_void_p()
        self._check(lib.twill_comm_admit(ctypes.byref(made), self._handle))
        return self._grown(made) if made.value else None

    @property
    def epoch(self: Communicator) -> int:  # type: ignore[misc]
        """Number of times that the job had grown or been reconfigured when this communicator was made."""
        return int(lib.twill_comm_epoch(self._handle))

    def outcome(self: Communicator) -> Outcome:  # type: ignore[misc]
        """Return the result of the last agreement."""
        read = twill_outcome()
        self._check(lib.twill_comm_outcome(self._handle, ctypes.byref(read)))
        return Outcome(*[getattr(read, name) for name in Outcome._fields])

    def failed_ranks(self: Communicator) -> list[int]:  # type: ignore[misc]
        """Return the failed ranks of the last agreement."""
        ranks: list[int] = []
        while (rank := lib.twill_comm_failed_rank(self._handle, len(ranks))) >= 0:
            ranks.append(rank)
        return ranks

    def set_timeout(self: Communicator, seconds: float) -> None:  # type: ignore[misc]
        """Set after how many seconds without progress later waits fail. 0 means TWILL_TIMEOUT."""
        self._check(lib.twill_comm_set_timeout(self._handle, seconds))

    def bounds(self: Communicator) -> Bounds:  # type: ignore[misc]
        """Return how soon calls end if ranks fail."""
        read = twill_bounds()
        self._check(lib.twill_comm_bounds(self._handle, ctypes.byref(read)))
        return Bounds(*[getattr(read, name) for name in Bounds._fields])


def join(handle: str, settings: Optional[dict[str, object]] = None) -> Communicator:
    """Join a running job by its handle(), and return its communicator. Collective with the grow() of its ranks."""
    from .comm import made_by

    return made_by(lib.twill_comm_join, handle.encode(), settings_of(settings))


class Handle:
    """One process's part of a reconfiguration. The other processes need its `text`. Call free() afterwards.

    `comm` is the communicator of the process, broken or not, or None for a process without one."""

    def __init__(self, comm: Optional[Communicator] = None, settings: Optional[dict[str, object]] = None) -> None:
        self._handle, line = ctypes.c_void_p(), ctypes.create_string_buffer(TWILL_HANDLE_BYTES)
        self._comm, self._settings = comm, settings
        status = lib.twill_handle_create(ctypes.byref(self._handle), comm._handle if comm else None,
                                         settings_of(settings), line)
        if status != 0:
            fail(status, comm.message if comm else "")
        #: the line of text for the other processes
        self.text = text(line.value)

    def reconfigure(self, handles: Sequence[str], ordered: bool = False, seconds: float = 0) -> Communicator:
        """Return a communicator of the processes of these handles, which include this one. Collective over them. If
        `ordered`, ranks have the order of the list, which must be the same everywhere. `seconds` limits each wait. The
        new communicator replaces that of the handle, which should leave()."""
        from .comm import made_by

        lines = (ctypes.c_char_p * len(handles))(*[handle.encode() for handle in handles])
        settings = settings_of(self._settings)
        how = twill_reconfiguration(ctypes.cast(lines, ctypes.c_void_p), len(handles), int(ordered), seconds,
                                    ctypes.cast(settings, ctypes.c_void_p) if settings else None)
        comm = self._comm
        owns = comm is None or comm._owns
        made = made_by(lib.twill_comm_reconfigure, comm._handle if comm else None, self._handle, ctypes.byref(how),
                       older=comm.context if comm and owns else None)
        made._owns = owns
        if comm:
            comm._owns = False
        return made

    def free(self) -> None:
        """Free the handle."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        lib.twill_handle_destroy(handle)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()


def stop() -> None:
    """Note that this process wishes to stop. All ranks learn of it by stop_requested(). TWILL_STOP_SIGNAL makes a signal
    do this."""
    lib.twill_stop()

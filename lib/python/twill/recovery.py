# SPDX-License-Identifier: Apache-2.0
"""Going on after ranks have died, and with new ones: docs/guides/recovery.md tells how."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple, Optional, Sequence

from ._declarations import TWILL_HANDLE_BYTES, twill_bounds, twill_outcome, twill_reconfiguration
from ._library import fail, lib, settings_of, text

if TYPE_CHECKING:
    from .comm import Communicator


class Outcome(NamedTuple):
    """What the last agree() or shrink() found, the same on all survivors."""

    failed: int
    survivors: int
    complete: int
    complete_some: int


class Bounds(NamedTuple):
    """Seconds within which a call in which this rank waits ends, see twill_bounds in man 3 twill.h."""

    silent: float
    death: float
    host: float
    agree: float
    meet: float
    grow: float


class Recovery:
    """The calls of a communicator for recovery. Its survivors call them alike; revoke() any of them, at any time."""

    _owns: bool

    def revoke(self: Communicator) -> None:  # type: ignore[misc]
        """End the communicator on all its ranks, also the calls that others are in. Any thread may call it."""
        self._check(lib.twill_comm_revoke(self._handle))

    def agree(self: Communicator, flags: int = 0) -> int:  # type: ignore[misc]
        """Return the bitwise AND of flags (64 bits) over the ranks that live; outcome() has who has failed."""
        value = ctypes.c_uint64(flags)
        self._check(lib.twill_comm_agree(self._handle, ctypes.byref(value)))
        return value.value

    def shrink(self: Communicator) -> Communicator:  # type: ignore[misc]
        """Return a communicator of the ranks that live, in the same context, whose arrays go on. It takes this one's
        place: leave() this one."""
        made = ctypes.c_void_p()
        self._check(lib.twill_comm_shrink(ctypes.byref(made), self._handle))
        smaller = self._adopt(made)
        smaller._take_place_of(self)
        return smaller

    def _grown(self: Communicator, made: ctypes.c_void_p) -> Communicator:  # type: ignore[misc]
        assert made.value is not None
        larger = type(self)(made.value, owns=self._owns, older=self.context if self._owns else None)
        self._owns = False
        return larger

    def handle(self: Communicator, joining: int) -> str:  # type: ignore[misc]
        """Return the line of text by which `joining` new processes join(). Only rank 0 calls it, before all grow()."""
        line = ctypes.create_string_buffer(TWILL_HANDLE_BYTES)
        self._check(lib.twill_comm_handle(self._handle, joining, line))
        return text(line.value)

    def grow(self: Communicator) -> Communicator:  # type: ignore[misc]
        """Return a communicator of these ranks and of the new processes after them, in a new context. It takes this
        one's place: leave() this one. Arrays of the old context stay valid."""
        made = ctypes.c_void_p()
        self._check(lib.twill_comm_grow(ctypes.byref(made), self._handle))
        return self._grown(made)

    def admit(self: Communicator) -> Optional[Communicator]:  # type: ignore[misc]
        """Take in processes that twillrun --elastic has started in place of dead ones: return the communicator that
        takes this one's place, or None if there are none."""
        made = ctypes.c_void_p()
        self._check(lib.twill_comm_admit(ctypes.byref(made), self._handle))
        return self._grown(made) if made.value else None

    @property
    def epoch(self: Communicator) -> int:  # type: ignore[misc]
        """How often the job had grown or been reconfigured when this communicator was made."""
        return int(lib.twill_comm_epoch(self._handle))

    def outcome(self: Communicator) -> Outcome:  # type: ignore[misc]
        """Return what the last agreement found."""
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
        """Set how long later waits last without progress; 0: TWILL_TIMEOUT."""
        self._check(lib.twill_comm_set_timeout(self._handle, seconds))

    def bounds(self: Communicator) -> Bounds:  # type: ignore[misc]
        """Return how soon calls end if ranks fail."""
        read = twill_bounds()
        self._check(lib.twill_comm_bounds(self._handle, ctypes.byref(read)))
        return Bounds(*[getattr(read, name) for name in Bounds._fields])


def join(handle: str, settings: Optional[dict[str, object]] = None) -> Communicator:
    """Join a job that runs, by its handle() and in place of init(). Collective with its grow()."""
    from .comm import made_by

    return made_by(lib.twill_comm_join, handle.encode(), settings_of(settings))


class Handle:
    """A process's end of a reconfiguration: `text` is for the other processes. free() it afterwards.

    comm: the communicator that the process has, broken or not, or None for a process without one."""

    def __init__(self, comm: Optional[Communicator] = None, settings: Optional[dict[str, object]] = None) -> None:
        self._handle, line = ctypes.c_void_p(), ctypes.create_string_buffer(TWILL_HANDLE_BYTES)
        self._comm, self._settings = comm, settings
        status = lib.twill_handle_create(ctypes.byref(self._handle), comm._handle if comm else None,
                                         settings_of(settings), line)
        if status != 0:
            fail(status, comm.message if comm else "")
        #: the line for the other processes
        self.text = text(line.value)

    def reconfigure(self, handles: Sequence[str], ordered: bool = False, seconds: float = 0) -> Communicator:
        """Return a communicator of the processes of these handles, this one among them. Collective over them. ordered:
        ranks in this order, which is then the same everywhere. seconds: deadline for each wait. It takes the place of
        the handle's communicator: leave() that one."""
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

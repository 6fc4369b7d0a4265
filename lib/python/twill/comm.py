# SPDX-License-Identifier: Apache-2.0
"""Communicators."""
from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import Any, Callable, Iterator, NamedTuple, Optional, Sequence

import numpy

from . import calls
from ._declarations import (TWILL_COLOUR_NONE, TWILL_PLAN_IN_PLACE, TWILL_PLAN_SHARED, Level, Op, twill_bootstrap,
                            twill_call_plan, twill_counters, twill_exchange_fn, twill_memory_usage)
from ._library import fail, lib, lines, settings_of, text
from .buffers import PLAIN, Buffer, TypeLike, address_of, copies_of, named_layout
from .context import Context
from .forms import blocking, persistent, started
from .objects import Objects
from .recovery import Recovery

#: an all-gather that the program supplies: takes this rank's bytes and returns those of all ranks in rank order
Exchange = Callable[[bytes], "Sequence[bytes]"]
_allreduce = lib.twill_allreduce
_NUMBERS = {bool: "bool", int: "int64", float: "float64"}


class Bootstrap(NamedTuple):
    """An argument of init() for programs whose ranks find each other by their own means."""

    rank: int
    size: int
    exchange: Optional[Exchange] = None


class Counters(NamedTuple):
    """Counters of a communicator since its creation (see twill_counters in man 3 twill.h)."""

    calls: int
    bytes_sent: int
    bytes_wire: int
    bytes_copied: int
    memory_fallbacks: int
    seconds: float
    registrations: int
    deregistrations: int
    registration_hits: int
    seconds_waiting: float
    seconds_blocked: float
    forks: int


class CallPlan(NamedTuple):
    """How a call would run, in the terms of twill_call_plan in man 3 twill_plan.h. Times that are not known are NaN."""

    algorithm: str
    protocol: str
    seconds: float
    next: str
    next_seconds: float
    segment_bytes: int
    threads: int
    measured: int
    reason: str


class MemoryUsage(NamedTuple):
    """Memory that a communicator has on this rank, in the terms of twill_memory_usage in man 3 twill_memory.h."""

    shared_bytes: int
    shared_peak: int
    shared_limit: int
    private_bytes: int
    private_peak: int
    registrations: int
    descriptors: int
    suspended: int


class _Exchanger:
    """Wraps the program's exchange for C. Keeps its exceptions until C has returned, when check() raises them."""

    def __init__(self, function: Optional[Exchange], size: int) -> None:
        self.raised: Optional[BaseException] = None

        def exchange(_: object, mine: int, everything: int, count: int) -> int:
            try:
                assert function is not None
                parts = function(ctypes.string_at(mine, count))
                if len(parts) != size or any(len(part) != count for part in parts):
                    raise ValueError(f"the exchange returned {[len(part) for part in parts]} bytes, and not {size} "
                                     f"times {count}")
                ctypes.memmove(everything, b"".join(parts), size * count)
                return 0
            except BaseException as error:
                self.raised = error
                return 1

        self.pointer = twill_exchange_fn(exchange) if function is not None else twill_exchange_fn()

    def check(self) -> None:
        """Raise the exception of the program's function, if there was one."""
        if self.raised is not None:
            raise self.raised


class Communicator(Objects, Recovery):
    """Ranks that run collectives together. Only one thread at a time may use a communicator and its requests, but
    different threads may use different communicators at the same time. At the end call free() on all its ranks, or use
    it in a `with` block. If an exception ends the block, revoke() notifies the other ranks."""

    def __init__(self, handle: int, context: Optional[Context] = None, owns: bool = False,
                 older: Optional[Context] = None) -> None:
        self._handle = ctypes.c_void_p(handle)
        self.context = context or Context(lib.twill_comm_context(handle), older)
        self._owns = owns  # its context ends with it
        self._pending: set[Any] = set()
        self._grouped: Optional[list[Any]] = None
        #: this rank, 0 .. size-1
        self.rank: int = lib.twill_comm_rank(handle)
        #: number of ranks
        self.size: int = lib.twill_comm_size(handle)

    def __repr__(self) -> str:
        ended = "" if self._handle.value else ", ended"
        return f"<twill.Communicator: rank {self.rank} of {self.size}{ended}>"

    # --- Ends and failures

    def _fail(self, status: int) -> None:
        fail(status, text(lib.twill_comm_message(self._handle)))

    def _check(self, status: int) -> None:
        if status != 0:
            self._fail(status)

    @property
    def message(self) -> str:
        """The message of the last failure, or "" if there was none."""
        return text(lib.twill_comm_message(self._handle))

    def free(self) -> None:
        """End the communicator. Collective, unless broken. That of init() also ends the context. May be repeated."""
        self._end(lib.twill_comm_destroy)

    def leave(self) -> None:
        """End the communicator without waiting for other ranks. Allowed after a barrier, or if it is broken."""
        self._end(lib.twill_comm_leave)

    finalize = free

    def _end(self, end: Any) -> None:
        if not self._handle.value:
            return
        handle, self._handle = self._handle, ctypes.c_void_p()
        end(handle)
        self._pending.clear()
        if self._owns:
            self._owns = False
            self.context._destroy()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: Optional[type], *_: object) -> None:
        if kind is not None and self._handle.value:
            lib.twill_comm_revoke(self._handle)
        self.free()

    def _take_place_of(self, other: Communicator) -> None:
        """Take over the duty to end the context, if another communicator has it."""
        self._owns, other._owns = other._owns, False

    def _adopt(self, made: ctypes.c_void_p) -> Communicator:
        """Return the object for a communicator that was made out of this one, in the same context."""
        assert made.value is not None
        return Communicator(made.value, self.context)

    # --- Where this rank is

    @property
    def node(self) -> int:
        """Node of this rank."""
        return int(lib.twill_comm_node(self._handle))

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return int(lib.twill_comm_nodes(self._handle))

    @property
    def local_rank(self) -> int:
        """Rank within the node."""
        return int(lib.twill_comm_local_rank(self._handle))

    @property
    def local_size(self) -> int:
        """Ranks on this node."""
        return int(lib.twill_comm_local_size(self._handle))

    # --- New communicators

    def dup(self) -> Communicator:
        """Return a communicator of the same ranks. Collective, like all calls that make a communicator."""
        made = ctypes.c_void_p()
        self._check(lib.twill_comm_dup(ctypes.byref(made), self._handle))
        return self._adopt(made)

    def split(self, colour: Optional[int], key: int = 0) -> Optional[Communicator]:
        """Return a communicator of the ranks that pass the same colour, ordered by key. With colour None, return None."""
        made = ctypes.c_void_p()
        colour = TWILL_COLOUR_NONE if colour is None else colour
        self._check(lib.twill_comm_split(ctypes.byref(made), self._handle, colour, key))
        return self._adopt(made) if made.value else None

    def split_level(self, level: Level, key: int = 0) -> Communicator:
        """Return the communicator, ordered by key, of the ranks in this rank's unit of a level, such as Level.NODE."""
        made = ctypes.c_void_p()
        self._check(lib.twill_comm_split_level(ctypes.byref(made), self._handle, level, key))
        return self._adopt(made)

    def create_group(self, ranks: Sequence[int]) -> Communicator:
        """Return a communicator of these ranks of this one, in this order. Only these ranks call it."""
        made, (count, array) = ctypes.c_void_p(), _ranks(ranks)
        self._check(lib.twill_comm_create_group(ctypes.byref(made), self._handle, count, array))
        return self._adopt(made)

    def create_over(self, ranks: Sequence[int], exchange: Optional[Exchange] = None) -> Communicator:
        """Like create_group(), but set up by an exchange among these ranks. This one may be broken or in use."""
        made, (count, array), exchanger = ctypes.c_void_p(), _ranks(ranks), _Exchanger(exchange, len(ranks))
        status = lib.twill_comm_create_over(ctypes.byref(made), self._handle, count, array, exchanger.pointer, None)
        exchanger.check()
        if status != 0:
            self.context._fail(status)
        return self._adopt(made)

    # --- Groups

    @contextmanager
    def group(self) -> Iterator[None]:
        """Open a block whose blocking calls run together at its end. Small allreduces are fused, messages never block."""
        self._check(lib.twill_group_start(self._handle))
        self._grouped = []
        try:
            yield
        finally:
            status = lib.twill_group_end(self._handle)
            kept, self._grouped = self._grouped, None
        self._check(status)
        for keep in kept or ():
            for copied in copies_of(keep):
                copied.store()
        self.context._raise()

    # --- Calls: blocking, X_start() nonblocking, X_init() persistent

    _any_allreduce = blocking(calls.allreduce)

    def allreduce(self, src: Any, dst: Optional[Buffer] = None, op: Any = Op.SUM) -> Any:
        # The shortest path for the most common calls.
        if type(src) is numpy.ndarray and type(op) is Op and (dtype := src.dtype) in PLAIN and src.flags.carray:
            address = to = address_of(src)
            if dst is not None:
                if type(dst) is not numpy.ndarray or dst.dtype != dtype or dst.size != src.size or not dst.flags.carray:
                    return self._any_allreduce(src, dst, op)
                to = address_of(dst)
            status = _allreduce(self._handle, address, to, src.size, PLAIN[dtype], op)
            if status != 0:
                self._fail(status)
            if self._grouped is not None:
                self._grouped.append((src, dst))
            elif self.context._raised is not None:
                self.context._raise()
            return src if dst is None else dst
        if dst is None and (type(src) in _NUMBERS or isinstance(src, numpy.generic)):
            number = numpy.array(src, _NUMBERS.get(type(src)))
            return type(src)(self._any_allreduce(number, None, op))
        return self._any_allreduce(src, dst, op)

    allreduce.__doc__ = calls.allreduce.__doc__
    allreduce_start, allreduce_init = started(calls.allreduce), persistent(calls.allreduce)
    reduce, reduce_start, reduce_init = blocking(calls.reduce), started(calls.reduce), persistent(calls.reduce)
    broadcast, broadcast_start = blocking(calls.broadcast), started(calls.broadcast)
    broadcast_init = persistent(calls.broadcast)
    barrier, barrier_start, barrier_init = blocking(calls.barrier), started(calls.barrier), persistent(calls.barrier)
    allgather, allgather_start = blocking(calls.allgather), started(calls.allgather)
    allgather_init = persistent(calls.allgather)
    allgatherv, allgatherv_start = blocking(calls.allgatherv), started(calls.allgatherv)
    allgatherv_init = persistent(calls.allgatherv)
    reduce_scatter, reduce_scatter_start = blocking(calls.reduce_scatter), started(calls.reduce_scatter)
    reduce_scatter_init = persistent(calls.reduce_scatter)
    reduce_scatterv, reduce_scatterv_start = blocking(calls.reduce_scatterv), started(calls.reduce_scatterv)
    reduce_scatterv_init = persistent(calls.reduce_scatterv)
    gather, gather_start, gather_init = blocking(calls.gather), started(calls.gather), persistent(calls.gather)
    gatherv, gatherv_start, gatherv_init = blocking(calls.gatherv), started(calls.gatherv), persistent(calls.gatherv)
    scatter, scatter_start, scatter_init = blocking(calls.scatter), started(calls.scatter), persistent(calls.scatter)
    scatterv, scatterv_start = blocking(calls.scatterv), started(calls.scatterv)
    scatterv_init = persistent(calls.scatterv)
    alltoall, alltoall_start = blocking(calls.alltoall), started(calls.alltoall)
    alltoall_init = persistent(calls.alltoall)
    alltoallv, alltoallv_start = blocking(calls.alltoallv), started(calls.alltoallv)
    alltoallv_init = persistent(calls.alltoallv)
    send, send_start, send_init = blocking(calls.send), started(calls.send), persistent(calls.send)
    recv, recv_start, recv_init = blocking(calls.recv), started(calls.recv), persistent(calls.recv)
    sendrecv, sendrecv_start = blocking(calls.sendrecv), started(calls.sendrecv)
    sendrecv_init = persistent(calls.sendrecv)

    # --- mpi4py's names, for calls on buffers whose arguments have the same order there (without tags)

    def Get_rank(self) -> int:
        """Return this rank."""
        return self.rank

    def Get_size(self) -> int:
        """Return the number of ranks."""
        return self.size

    Dup, Split, Free, Create_group = dup, split, free, create_group
    Allreduce, Iallreduce, Allreduce_init = allreduce, allreduce_start, allreduce_init
    Reduce, Ireduce, Reduce_init = reduce, reduce_start, reduce_init
    Bcast, Ibcast, Bcast_init = broadcast, broadcast_start, broadcast_init
    Barrier, Ibarrier, Barrier_init = barrier, barrier_start, barrier_init
    Allgather, Iallgather, Allgather_init = allgather, allgather_start, allgather_init
    Reduce_scatter_block, Ireduce_scatter_block = reduce_scatter, reduce_scatter_start
    Gather, Igather, Gather_init = gather, gather_start, gather_init
    Scatter, Iscatter, Scatter_init = scatter, scatter_start, scatter_init
    Alltoall, Ialltoall, Alltoall_init = alltoall, alltoall_start, alltoall_init
    Send, Isend, Send_init, Recv, Irecv, Recv_init = send, send_start, send_init, recv, recv_start, recv_init

    # --- What has happened

    @property
    def counters(self) -> Counters:
        """Counters since the creation."""
        read = twill_counters()
        self._check(lib.twill_comm_counters(self._handle, ctypes.byref(read)))
        return Counters(*[getattr(read, name) for name in Counters._fields])

    def plan_for(self, collective: str, size: int, kind: TypeLike = "f32", op: Any = Op.SUM, root: int = 0, *,
                 shared: bool = False, in_place: bool = False) -> CallPlan:
        """Return how a call would run, such as plan_for("allreduce", 1 << 20). Local; nothing is sent.

        `size` is the bytes of the whole message, all shards together. `shared` says that the buffers of all ranks are
        from context.empty() or promoted."""
        read = twill_call_plan(bytes=ctypes.sizeof(twill_call_plan))
        layout = named_layout(kind)
        buffers = TWILL_PLAN_SHARED * shared + TWILL_PLAN_IN_PLACE * in_place
        self._check(lib.twill_comm_plan_for(self._handle, collective.encode(), size, layout.type, getattr(op, "value", op),
                                            root, buffers, ctypes.byref(read)))
        found = [getattr(read, name) for name in CallPlan._fields]
        return CallPlan(*[text(value) if isinstance(value, bytes) else value for value in found])

    @property
    def memory(self) -> MemoryUsage:
        """Memory that it has on this rank now."""
        read = twill_memory_usage(bytes=ctypes.sizeof(twill_memory_usage))
        self._check(lib.twill_comm_memory(self._handle, ctypes.byref(read)))
        return MemoryUsage(*[getattr(read, name) for name in MemoryUsage._fields])

    def suspend(self) -> None:
        """Give back the memory that only calls use, until the next call. Collective, without requests in progress."""
        self._check(lib.twill_comm_suspend(self._handle))

    def times(self) -> list[str]:
        """Return lines that say where the time of calls went since times_reset(), and which ranks came last."""
        return lines(lib.twill_comm_times, self._handle)

    def times_reset(self) -> None:
        """Begin a period of times(), such as an epoch."""
        self._check(lib.twill_comm_times_reset(self._handle))

    def rails(self) -> list[str]:
        """Return a line for each NIC that is used between nodes."""
        return lines(lib.twill_comm_rail, self._handle)


def _ranks(ranks: Sequence[int]) -> tuple[int, Any]:
    return len(ranks), (ctypes.c_int * len(ranks))(*ranks)


def made_by(function: Any, *arguments: Any, older: Optional[Context] = None) -> Communicator:
    """Return the communicator and context that a function like twill_init_with() makes, or raise with its message."""
    made, message = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
    status = function(ctypes.byref(made), *arguments, message, len(message))
    if status != 0:
        fail(status, text(message.value))
    assert made.value is not None
    return Communicator(made.value, owns=True, older=older)


def init(bootstrap: Optional[Bootstrap] = None, settings: Optional[dict[str, object]] = None) -> Communicator:
    """Return the communicator of all ranks of the job. Collective.

    Ranks are found from the environment of twillrun, mpirun, srun or torchrun, or by the program's own `bootstrap`.
    Otherwise there is one rank. `settings` override variables of the environment, such as {"TWILL_TIMEOUT": 10}."""
    if bootstrap is None:
        return made_by(lib.twill_init_with, None, settings_of(settings))
    exchanger = _Exchanger(bootstrap.exchange, bootstrap.size)
    given = twill_bootstrap(bootstrap.rank, bootstrap.size, exchanger.pointer, None)
    try:
        return made_by(lib.twill_init_with, ctypes.byref(given), settings_of(settings))
    finally:
        exchanger.check()

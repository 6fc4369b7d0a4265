# SPDX-License-Identifier: Apache-2.0
"""Sends pickled Python objects over a communicator. An object costs a copy and a message for its size, so arrays should use
the other calls. As unpickling runs code of the sender, ranks must trust each other, as the ranks of a job do."""
from __future__ import annotations

import functools
import pickle
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence

import numpy


if TYPE_CHECKING:
    from .comm import Communicator


def _bytes_of(value: object) -> Any:
    return numpy.frombuffer(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), numpy.uint8)


def _objects_in(data: Any, counts: Sequence[int]) -> list[Any]:
    ends = numpy.cumsum([0, *counts])
    return [pickle.loads(data[ends[i]:ends[i + 1]].data) for i in range(len(counts))]


class Objects:
    """The calls whose names end in _object. They are collective like those for arrays."""

    def broadcast_object(self: Communicator, value: Any = None, root: int = 0) -> Any:  # type: ignore[misc]
        """Return the root's object on every rank."""
        data = _bytes_of(value) if self.rank == root else None
        size = numpy.array([0 if data is None else data.size])
        self.broadcast(size, root)
        data = numpy.empty(size[0], numpy.uint8) if data is None else data
        self.broadcast(data, root)
        return value if self.rank == root else pickle.loads(data.data)

    def allgather_object(self: Communicator, value: Any) -> list[Any]:  # type: ignore[misc]
        """Return the objects of all ranks on every rank."""
        data = _bytes_of(value)
        counts = self.allgather(numpy.array([data.size])).ravel().tolist()
        gathered = numpy.empty(sum(counts), numpy.uint8)
        self.allgatherv(data, gathered, counts)
        return _objects_in(gathered, counts)

    def gather_object(self: Communicator, value: Any, root: int = 0) -> Optional[list[Any]]:  # type: ignore[misc]
        """Return the objects of all ranks on the root, and None on other ranks."""
        data = _bytes_of(value)
        sizes = self.gather(numpy.array([data.size]), root=root)
        if self.rank != root:
            self.gatherv(data, root=root)
            return None
        counts = sizes.ravel().tolist()
        gathered = numpy.empty(sum(counts), numpy.uint8)
        self.gatherv(data, gathered, counts, root=root)
        return _objects_in(gathered, counts)

    def scatter_object(self: Communicator, values: Optional[Sequence[Any]] = None, root: int = 0) -> Any:  # type: ignore[misc]
        """Return object r of the root's sequence on rank r."""
        sizes, counts, data = None, None, None
        if self.rank == root:
            if values is None or len(values) != self.size:
                raise ValueError(f"the root passes a sequence of {self.size} objects, one for each rank")
            parts = [_bytes_of(value) for value in values]
            counts = [part.size for part in parts]
            sizes, data = numpy.array(counts), numpy.concatenate(parts)
        mine = numpy.empty(1, numpy.int64)
        self.scatter(sizes, mine, root)
        received = numpy.empty(mine[0], numpy.uint8)
        self.scatterv(data, received, counts, root=root)
        return pickle.loads(received.data)

    def allreduce_object(self: Communicator, value: Any,  # type: ignore[misc]
                         function: Callable[[Any, Any], Any]) -> Any:
        """Combine the objects of all ranks from the left, in rank order, and return the result on every rank."""
        return functools.reduce(function, self.allgather_object(value))

    def send_object(self: Communicator, value: Any, to: int) -> None:  # type: ignore[misc]
        """Send an object to a rank, which must call recv_object()."""
        data = _bytes_of(value)
        self.send(numpy.array([data.size]), to)
        self.send(data, to)

    def recv_object(self: Communicator, source: int) -> Any:  # type: ignore[misc]
        """Receive an object that a rank sends with send_object(), and return it."""
        size = numpy.empty(1, numpy.int64)
        self.recv(size, source)
        data = numpy.empty(size[0], numpy.uint8)
        self.recv(data, source)
        return pickle.loads(data.data)

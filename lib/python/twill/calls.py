# SPDX-License-Identifier: Apache-2.0
"""The arguments that each call passes to the library, once for its three forms: blocking, nonblocking, persistent."""
from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Optional, Protocol, Sequence

import numpy

from ._declarations import Op, Type
from .buffers import IN_PLACE, Buffer, View, bytes_of, reduced_layout, view

#: counts or offsets of a vector variant, in elements
Counts = Sequence[int]


class Prepared(NamedTuple):
    """A call: its arguments after the communicator, its result, and the objects that must live until it is complete."""

    arguments: tuple[Any, ...]
    result: Any
    keep: Any


class Ranks(Protocol):
    """The part of a communicator that the calls use."""

    rank: int
    size: int


def _operation(op: Any) -> int:
    return op if type(op) is Op else op.value  # an Operation also has a value


def _elements(source: View) -> tuple[int, int]:
    """Return type and parts of the elements, for a call that only moves them."""
    return source.layout.type, source.layout.parts


def _reduced(source: View, op: Any) -> tuple[int, int]:
    """Return type and parts of the elements, for a call that reduces them with `op`."""
    element = getattr(op, "element", None)
    if element is None:
        return reduced_layout(source.layout, _operation(op), getattr(source.keep, "dtype", None))
    if bytes_of(source.layout) != element.itemsize:
        raise TypeError(f"the operation reduces elements of {element.itemsize} bytes, and src has {source.layout.name}: "
                        "pass array.view(operation.element)")
    return Type.U8, 1


def _same(source: View, destination: View) -> None:
    if source.layout[:3] != destination.layout[:3] or (source.layout.moves and source.layout != destination.layout):
        raise TypeError(f"src has elements of type {source.layout.name}, dst of {destination.layout.name}")


def _fits(source: View, expected: int, destination: View) -> None:
    _same(source, destination)
    if destination.count != expected:
        raise ValueError(f"dst has {destination.count} elements, and {expected} are needed")


def _vector(values: Optional[Counts], size: int, parts: int, name: str) -> Any:
    """Return counts or offsets for C, in elements of which `parts` make one of the program's. None stays None."""
    if values is None:
        return None
    if len(values) != size:
        raise ValueError(f"{name} has {len(values)} entries, and the communicator {size} ranks")
    return (ctypes.c_size_t * size)(*[int(value) * parts for value in values])


def _new(like: Buffer, shape: tuple[int, ...]) -> Any:
    if not isinstance(like, numpy.ndarray):
        raise TypeError("without dst, src must be an array of NumPy")
    return numpy.empty(shape, like.dtype)


def _shard(whole: View, index: int, size: int) -> View:
    """Return the shard of rank `index` in a buffer that has one for each rank."""
    if whole.count % size != 0:
        raise ValueError(f"{whole.count} elements cannot be divided equally among {size} ranks")
    count = whole.count // size
    return View(whole.address + index * count * bytes_of(whole.layout), count, whole.layout, whole.keep, whole.copied)


def allreduce(comm: Ranks, src: Buffer, dst: Optional[Buffer] = None, op: Any = Op.SUM) -> Prepared:
    """Reduce src of all ranks with op to dst on every rank, and return dst. Without dst, the result replaces src.

    If src is a Python number (int, float or bool), return the result as a number."""
    if src is IN_PLACE:
        src, dst = dst, None
    operation = _operation(op)
    source = view(src, dst is None)
    destination = source
    if dst is not None:
        _fits(source, source.count, destination := view(dst, True))
    kind, parts = _reduced(source, op)
    return Prepared((source.address, destination.address, source.count * parts, kind, operation),
                    src if dst is None else dst, (source, destination, op))


def reduce(comm: Ranks, src: Buffer, dst: Optional[Buffer] = None, op: Any = Op.SUM, root: int = 0) -> Prepared:
    """Reduce src of all ranks with op to dst, or else to src, on the root. Returns that there, and elsewhere None."""
    if src is IN_PLACE:
        src, dst = dst, None
    operation = _operation(op)
    here = comm.rank == root
    source = view(src, here and dst is None)
    destination = source
    if here and dst is not None:
        _fits(source, source.count, destination := view(dst, True))
    kind, parts = _reduced(source, op)
    return Prepared((source.address, destination.address if here else None, source.count * parts, kind, operation, root),
                    (src if dst is None else dst) if here else None, (source, destination, op))


def broadcast(comm: Ranks, buffer: Buffer, root: int = 0) -> Prepared:
    """Copy the root's buffer to the buffer of every rank, and return that."""
    here = comm.rank == root
    data = view(buffer, not here)
    kind, parts = _elements(data)
    return Prepared((data.address if here else None, None if here else data.address, data.count * parts, kind, root),
                    buffer, data)


def barrier(comm: Ranks) -> Prepared:
    """Wait until all ranks have called it."""
    return Prepared((), None, None)


def allgather(comm: Ranks, src: Buffer, dst: Optional[Buffer] = None) -> Prepared:
    """Copy src of rank r to shard r of dst on every rank, and return dst. Without dst, return a new array with the ranks
    as an additional first dimension. With src IN_PLACE, the source is this rank's shard of dst."""
    if src is IN_PLACE:
        destination = view(dst, True)
        source = _shard(destination, comm.rank, comm.size)
    else:
        source = view(src)
        dst = _new(src, (comm.size, *src.shape)) if dst is None else dst
        destination = view(dst, True)
    _fits(source, comm.size * source.count, destination)
    kind, parts = _elements(source)
    return Prepared((source.address, destination.address, source.count * parts, kind), dst, (source, destination))


def allgatherv(comm: Ranks, src: Buffer, dst: Buffer, counts: Counts, offsets: Optional[Counts] = None) -> Prepared:
    """Like allgather(), with counts[r] elements from rank r at offsets[r] of dst. Without offsets, shards follow each
    other. With src IN_PLACE, the source is this rank's shard of dst."""
    destination = view(dst, True)
    at = _offsets(counts, offsets, destination, "dst")
    if src is IN_PLACE:
        address = destination.address + at[comm.rank] * bytes_of(destination.layout)
        source = View(address, counts[comm.rank], destination.layout, dst)
    else:
        source = view(src)
    _same(source, destination)
    _has(source, counts[comm.rank], "src")
    kind, parts = _elements(destination)
    return Prepared((source.address, destination.address, _vector(counts, comm.size, parts, "counts"),
                     _vector(offsets, comm.size, parts, "offsets"), kind), dst, (source, destination))


def _offsets(counts: Counts, offsets: Optional[Counts], data: View, name: str) -> list[int]:
    """Return where the shards begin, in elements. Raises ValueError if one exceeds the buffer."""
    at = [0]
    for count in counts:
        at.append(at[-1] + int(count))
    if offsets is not None:
        at = [int(offset) for offset in offsets]
    end = max((begin + int(count) for begin, count in zip(at, counts)), default=0)
    if end > data.count:
        raise ValueError(f"{name} has {data.count} elements, and a shard ends at {end}")
    return at


def _has(data: View, count: int, name: str) -> None:
    if data.count < count:
        raise ValueError(f"{name} has {data.count} elements, and {count} are needed")


def reduce_scatter(comm: Ranks, src: Buffer, dst: Optional[Buffer] = None, op: Any = Op.SUM) -> Prepared:
    """Reduce shard r of src of all ranks to dst on rank r, and return dst. Without dst, return a new array with src's
    shape, but the first dimension divided by the number of ranks. dst may be this rank's shard of src."""
    operation = _operation(op)
    source = view(src)
    shard = _shard(source, 0, comm.size)
    if dst is None:
        if not src.shape or src.shape[0] % comm.size != 0:
            raise ValueError(f"the first dimension of shape {src.shape} is not a multiple of {comm.size}: pass dst")
        dst = _new(src, (src.shape[0] // comm.size, *src.shape[1:]))
    destination = view(dst, True)
    _fits(source, shard.count, destination)
    kind, parts = _reduced(source, op)
    return Prepared((source.address, destination.address, shard.count * parts, kind, operation), dst,
                    (source, destination, op))


def reduce_scatterv(comm: Ranks, src: Buffer, dst: Buffer, counts: Counts, op: Any = Op.SUM) -> Prepared:
    """Like reduce_scatter(), with shards of counts[r] elements."""
    operation = _operation(op)
    source, destination = view(src), view(dst, True)
    _same(source, destination)
    _offsets(counts, None, source, "src")
    _has(destination, counts[comm.rank], "dst")
    kind, parts = _reduced(source, op)
    return Prepared((source.address, destination.address, _vector(counts, comm.size, parts, "counts"), kind, operation),
                    dst, (source, destination, op))


def gather(comm: Ranks, src: Buffer, dst: Optional[Buffer] = None, root: int = 0) -> Prepared:
    """Copy src of rank r to shard r of dst on the root. Without dst, the root makes a new array, as allgather() does.
    With src IN_PLACE, the root's source is its shard of dst. Returns dst on the root, and None on other ranks."""
    here = comm.rank == root
    destination: Optional[View] = None
    if src is IN_PLACE:
        source = _shard(destination := view(dst, True), comm.rank, comm.size)
    else:
        source = view(src)
        if here:
            dst = _new(src, (comm.size, *src.shape)) if dst is None else dst
            destination = view(dst, True)
    if here and destination is not None:
        _fits(source, comm.size * source.count, destination)
    kind, parts = _elements(source)
    return Prepared((source.address, destination.address if destination else None, source.count * parts, kind, root),
                    dst if here else None, (source, destination))


def gatherv(comm: Ranks, src: Buffer, dst: Optional[Buffer] = None, counts: Optional[Counts] = None,
            offsets: Optional[Counts] = None, root: int = 0) -> Prepared:
    """Like gather(), with counts[r] elements from rank r at offsets[r] of dst. Only the root needs dst, counts, offsets."""
    source = view(src)
    kind, parts = _elements(source)
    address, keep = None, None
    if comm.rank == root:
        if counts is None:
            raise ValueError("the root needs counts")
        keep = view(dst, True)
        _same(source, keep)
        _offsets(counts, offsets, keep, "dst")
        address = keep.address
    return Prepared((source.address, source.count * parts, address, _vector(counts, comm.size, parts, "counts"),
                     _vector(offsets, comm.size, parts, "offsets"), kind, root),
                    dst if comm.rank == root else None, (source, keep))


def scatter(comm: Ranks, src: Optional[Buffer], dst: Buffer, root: int = 0) -> Prepared:
    """Copy shard r of src on the root to dst on rank r, and return dst. Other ranks may pass None as src. With dst
    IN_PLACE, the root's shard stays in src."""
    here = comm.rank == root
    source = view(src) if here else None
    if dst is IN_PLACE and source is not None:
        destination = _shard(source, comm.rank, comm.size)
    else:
        destination = view(dst, True)
    if source is not None:
        _fits(source, _shard(source, 0, comm.size).count, destination)
    kind, parts = _elements(destination)
    return Prepared((source.address if source else None, destination.address, destination.count * parts, kind, root),
                    dst, (source, destination))


def scatterv(comm: Ranks, src: Optional[Buffer], dst: Buffer, counts: Optional[Counts] = None,
             offsets: Optional[Counts] = None, root: int = 0) -> Prepared:
    """Like scatter(), with counts[r] elements to rank r from offsets[r] of src. Only the root needs src and the lists."""
    destination = view(dst, True)
    kind, parts = _elements(destination)
    address, keep = None, None
    if comm.rank == root:
        if counts is None:
            raise ValueError("the root needs counts")
        keep = view(src)
        _same(keep, destination)
        _offsets(counts, offsets, keep, "src")
        address = keep.address
    return Prepared((address, _vector(counts, comm.size, parts, "counts"), _vector(offsets, comm.size, parts, "offsets"),
                     destination.address, destination.count * parts, kind, root), dst, (keep, destination))


def alltoall(comm: Ranks, src: Buffer, dst: Optional[Buffer] = None) -> Prepared:
    """Copy shard r of src on rank s to shard s of dst on rank r, and return dst. Without dst, return a new array like
    src. With src IN_PLACE, the shards of dst are exchanged."""
    if src is IN_PLACE:
        source = destination = view(dst, True)
    else:
        source = view(src)
        dst = _new(src, src.shape) if dst is None else dst
        destination = view(dst, True)
    _fits(source, source.count, destination)
    kind, parts = _elements(source)
    return Prepared((source.address, destination.address, _shard(source, 0, comm.size).count * parts, kind), dst,
                    (source, destination))


def alltoallv(comm: Ranks, src: Buffer, src_counts: Counts, dst: Buffer, dst_counts: Counts,
              src_offsets: Optional[Counts] = None, dst_offsets: Optional[Counts] = None) -> Prepared:
    """Like alltoall(), with src_counts[r] elements to rank r and dst_counts[r] elements from it."""
    source, destination = view(src), view(dst, True)
    _same(source, destination)
    _offsets(src_counts, src_offsets, source, "src")
    _offsets(dst_counts, dst_offsets, destination, "dst")
    kind, parts = _elements(source)
    size = comm.size
    return Prepared((source.address, _vector(src_counts, size, parts, "src_counts"),
                     _vector(src_offsets, size, parts, "src_offsets"), destination.address,
                     _vector(dst_counts, size, parts, "dst_counts"), _vector(dst_offsets, size, parts, "dst_offsets"),
                     kind), dst, (source, destination))


def send(comm: Ranks, src: Buffer, to: int) -> Prepared:
    """Send src to rank `to`. It may block until that rank receives. Count and type must be the same there."""
    source = view(src)
    kind, parts = _elements(source)
    return Prepared((source.address, source.count * parts, kind, to), None, source)


def recv(comm: Ranks, dst: Buffer, source: int) -> Prepared:
    """Receive dst from rank `source`, and return it."""
    destination = view(dst, True)
    kind, parts = _elements(destination)
    return Prepared((destination.address, destination.count * parts, kind, source), dst, destination)


def sendrecv(comm: Ranks, src: Buffer, to: int, dst: Buffer, source: int) -> Prepared:
    """Send src to rank `to` and receive dst from rank `source` at the same time. Returns dst."""
    sent, received = view(src), view(dst, True)
    _same(sent, received)
    kind, parts = _elements(sent)
    return Prepared((sent.address, sent.count * parts, to, received.address, received.count * parts, source, kind), dst,
                    (sent, received))

# SPDX-License-Identifier: Apache-2.0
"""The collectives of torch.distributed over twill without C++, for hosts that have no compiler.

A call is complete when it returns, even with async_op=True, so nothing overlaps with the program's computation.
Messages (send, recv), sums of sparse tensors and recovery from deaths need the C++ part."""
from __future__ import annotations

import datetime
import os
import struct
import threading
import weakref
from typing import Any, Callable, Iterator, Optional, Sequence

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future

import twill
from twill import Op
from twill.buffers import check_torch

_FAILURE = getattr(dist, "DistBackendError", RuntimeError)
_lock = threading.RLock()
_world: list[Any] = [None]  # weak reference to the _Job that groups of this process join


def _in_child() -> None:
    """Make a new lock and forget the job in a forked child. A thread of the parent may hold the lock and owns the job."""
    global _lock
    _lock = threading.RLock()
    _world[0] = None


os.register_at_fork(after_in_child=_in_child)


class _Rendezvous:
    """An all-gather over a store, for set-up. A rank deletes its key of the round before, which all have read. Keys of the last round
    stay. From the second round on, keys have a number, so a group that is made again with its name in the same store reads none of them."""

    def __init__(self, store: dist.Store, rank: int, size: int) -> None:
        self._store, self._rank, self._size, self._round, self._number = store, rank, size, 0, 0

    def tell_apart(self, number: int) -> None:
        """Put a random number, which is the same on all ranks, into the keys of all further rounds."""
        self._number = number

    def _key(self, turn: int, rank: int) -> str:
        # The first key is as in C++, so ranks with and without the C++ part notice each other by different lengths.
        return f"twill/{self._number}/{turn}/{rank}" if turn > 0 else f"twill/{turn}/{rank}"

    def exchange(self, mine: bytes) -> list[bytes]:
        self._store.set(self._key(self._round, self._rank), mine.hex())
        parts = [mine if rank == self._rank else bytes.fromhex(self._read(rank, 2 * len(mine)))
                 for rank in range(self._size)]
        if self._round > 0:
            try:
                self._store.delete_key(self._key(self._round - 1, self._rank))
            except (RuntimeError, NotImplementedError):
                pass  # some stores cannot delete keys
        self._round += 1
        return parts

    def _read(self, rank: int, length: int) -> str:
        got = self._store.get(self._key(self._round, rank))
        if len(got) != length:
            raise _FAILURE(f"twill: set-up: rank {rank} sent {len(got)} bytes, not {length}: do all ranks have the C++ "
                           "part, or none of them (TORCH_TWILL_PYTHON), and the same version of twill?")
        return got.decode()


class _Job:
    """A twill context, and the communicator from which groups are made. It ends with the last group."""

    def __init__(self, rendezvous: _Rendezvous, rank: int, size: int, number: int) -> None:
        self.number = number  # the same on all ranks
        self.comm = twill.init(twill.Bootstrap(rank, size, rendezvous.exchange))
        self.rank, self.size = rank, size
        self.comm.set_timeout(1e6)
        weakref.finalize(self, self.comm.leave).atexit = False


def _join(store: dist.Store, rank: int, size: int) -> tuple[_Job, Any]:
    """Return the job of a group and the group's communicator. Collective over the group's ranks."""
    rendezvous = _Rendezvous(store, rank, size)
    with _lock:
        job = _world[0]() if _world[0] is not None else None
        mine = (job.number, job.rank) if job is not None else (0, rank)
        random = int.from_bytes(torch.randint(1, 256, (7,), dtype=torch.uint8, generator=_generator()).numpy().tobytes(), "big")
        claims = [struct.unpack("QQi", claim) for claim in rendezvous.exchange(struct.pack("QQi", mine[0], random, mine[1]))]
        rendezvous.tell_apart(claims[0][1])
        if job is None or any(claim[0] != job.number for claim in claims):
            job = _Job(rendezvous, rank, size, claims[0][1])
            _world[0] = weakref.ref(job)
            ranks = list(range(size))
        else:
            ranks = [claim[2] for claim in claims]
        return job, job.comm.create_over(ranks, rendezvous.exchange)


def _generator() -> torch.Generator:
    """Return a random number generator that does not affect the program's."""
    generator = torch.Generator()
    generator.seed()
    return generator


def _operation(op: Any, tensor: torch.Tensor) -> Op:
    """Return twill's operation for a tensor, or raise RuntimeError if there is none."""
    kinds = dist.ReduceOp
    which = getattr(op, "op", op)
    for names, of_numbers, of_bool in (((kinds.SUM,), Op.SUM, Op.LOR), ((kinds.PRODUCT,), Op.PROD, Op.LAND),
                                       ((kinds.MIN,), Op.MIN, Op.LAND), ((kinds.MAX,), Op.MAX, Op.LOR),
                                       ((kinds.AVG,), Op.AVG, None), ((kinds.BAND,), Op.BAND, Op.LAND),
                                       ((kinds.BOR,), Op.BOR, Op.LOR), ((kinds.BXOR,), Op.BXOR, Op.LXOR)):
        if which in names:
            found = of_bool if tensor.dtype == torch.bool else of_numbers
            if found in (Op.BAND, Op.BOR, Op.BXOR) and (tensor.is_floating_point() or tensor.is_complex()):
                raise RuntimeError(f"twill: bitwise operations need integers, not {tensor.dtype}")
            if found is not None:
                return found
    raise RuntimeError(f"twill: operation {op} of {tensor.dtype} needs the C++ part (a compiler), or does not exist")


def _check(call: str, tensor: torch.Tensor, like: Optional[torch.Tensor] = None) -> None:
    """Raise RuntimeError for a tensor that twill cannot access, or that has another type than `like`."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise RuntimeError(f"twill: {call}: tensors must be dense and on the CPU")
    try:
        check_torch(tensor, torch.Tensor)
    except ValueError as error:
        raise RuntimeError(f"twill: {call}: {error}") from None
    if like is not None and tensor.dtype != like.dtype:
        raise RuntimeError(f"twill: {call}: tensors must have the same type, not {tensor.dtype} and {like.dtype}")


def _only(call: str, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    if len(tensors) != 1:
        raise RuntimeError(f"twill: {call}: requires a single-element tensor list: one tensor a rank, not {len(tensors)}")
    _check(call, tensors[0])
    return tensors[0]


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor without gradients, of uint8 for bool. It shares the tensor's memory if possible."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return flat.view(torch.uint8) if flat.dtype == torch.bool else flat


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return _flat(tensor).reshape(-1).view(torch.uint8)


def _store(flat: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copy a result to where the caller wants it, unless it is there already."""
    if flat.data_ptr() != tensor.data_ptr() or not tensor.is_contiguous():
        with torch.no_grad():
            tensor.copy_(flat.view(torch.bool).reshape(tensor.shape) if tensor.dtype == torch.bool
                         else flat.view(tensor.dtype).reshape(tensor.shape))


def _store_list(block: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Copy a block of bytes to a list of tensors, one after the other."""
    begin = 0
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        part = block[begin:begin + size].clone()  # aligned
        _store(part, tensor)
        begin += size


def _sizes(tensors: Sequence[torch.Tensor]) -> list[int]:
    return [tensor.numel() * tensor.element_size() for tensor in tensors]


def _packed(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([_bytes(tensor) for tensor in tensors])


def _leave(comm: Any, _: _Job) -> None:
    """End a group's communicator. The second argument keeps the job alive until then."""
    comm.leave()


class Group(dist.ProcessGroup):  # type: ignore[misc]
    """A process group with the methods of torch.distributed's groups. One call runs at a time."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: datetime.timedelta) -> None:
        super().__init__(rank, size)
        try:
            self._job, self._comm = _join(store, rank, size)
        except twill.TwillError as error:
            raise _FAILURE(f"twill: set-up: {error}") from error
        self._store, self._rank, self._size = store, rank, size
        self._timeout, self._seconds = timeout, 0.0
        weakref.finalize(self, _leave, self._comm, self._job).atexit = False
        self._calls, self._barriers, self._name, self._process = threading.Lock(), 0, "", os.getpid()

    # Methods that c10d calls in addition to collectives

    def getBackendName(self) -> str:
        return "twill"

    _get_backend_name = name = getBackendName

    def size(self) -> int:
        return self._size

    def rank(self) -> int:
        return self._rank

    @property
    def group_name(self) -> str:
        """The name under which torch.distributed knows the group."""
        return self._name

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def describe(self) -> list[str]:
        """Return lines that describe what twill found and chose."""
        return list(self._job.comm.context.describe())

    def abort(self) -> None:
        self._comm.revoke()

    abort_calls = abort

    def shutdown(self) -> None:
        if os.getpid() != self._process:
            return
        with self._calls:
            self._comm.leave()

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._timeout = timeout

    _set_default_timeout = setTimeout = set_timeout

    def stop_requested(self) -> int:
        with self._calls:
            return self._comm.stop_requested()

    def _set_sequence_number_for_group(self) -> None:
        """Do nothing. PyTorch 1.13 calls it if the name is "gloo"."""

    def _run(self, opts: Any, result: Any, function: Callable[[Any], object], writes: bool = True) -> Any:
        """Run a call, and return its complete work. `result` is the list of result tensors, which the call writes if `writes`."""
        if os.getpid() != self._process:  # a thread of the parent may hold the lock
            raise _FAILURE("twill: this process was forked after the group was created (TWILL_ERR_FORKED)")
        for tensor in result if writes else ():
            if any(step == 0 and length > 1 for step, length in zip(tensor.stride(), tensor.shape)):
                raise RuntimeError("twill: a result: elements of the tensor that it goes to share memory (expand()): "
                                   "pass its clone()")
        given = getattr(opts, "timeout", None)
        asked = given if given is not None and given.total_seconds() > 0 else self._timeout
        seconds = min(max(asked.total_seconds(), 0.001), 1e6)
        with self._calls:
            try:
                if seconds != self._seconds:
                    self._comm.set_timeout(seconds)
                    self._seconds = seconds
                function(self._comm)
            except (twill.ArgumentError, ValueError):
                raise
            except twill.TwillError as error:
                raise _FAILURE(f"twill: {error}") from error
        future: Any = torch.futures.Future()
        future.set_result(result)
        return _create_work_from_future(future)

    def _reduced(self, opts: Any, call: str, tensors: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, Op]]:
        for tensor in tensors:
            _check(call, tensor)
        return [(_flat(tensor), _operation(opts.reduceOp, tensor)) for tensor in tensors]

    def _list(self, call: str, tensors: Sequence[torch.Tensor], like: torch.Tensor) -> None:
        if len(tensors) != self._size:
            raise RuntimeError(f"twill: {call}: a list of {len(tensors)} tensors for {self._size} ranks")
        for tensor in tensors:
            _check(call, tensor, like)

    def _root(self, call: str, root: int) -> int:
        if not 0 <= root < self._size:
            raise RuntimeError(f"twill: {call}: invalid root rank: {root}")
        return root

    # Collectives of single tensors

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        if isinstance(opts, int):
            opts = _options(dist.BroadcastOptions, rootRank=opts)
        tensor = _only("broadcast", [tensors] if isinstance(tensors, torch.Tensor) else tensors)
        flat, root = _bytes(tensor), self._root("broadcast", opts.rootRank)

        def run(comm: Any) -> None:
            comm.broadcast(flat, root)
            if root != self._rank:
                _store(flat, tensor)

        return self._run(opts, [tensor], run, root != self._rank)

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        if opts is None or isinstance(opts, dist.ReduceOp):
            opts = _options(dist.AllreduceOptions, **({} if opts is None else {"reduceOp": opts}))
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        _only("allreduce", tensors)
        return self.allreduce_coalesced(tensors, opts)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        opts = opts if opts is not None else dist.AllreduceCoalescedOptions()
        items = self._reduced(opts, "allreduce", tensors)

        def run(comm: Any) -> None:
            for (flat, op), tensor in zip(items, tensors):
                comm.allreduce(flat, None, op)
                _store(flat, tensor)

        return self._run(opts, tensors, run)

    def reduce(self, tensors: Any, opts: Any) -> Any:
        tensor, root = _only("reduce", tensors), self._root("reduce", opts.rootRank)
        [(flat, op)] = self._reduced(opts, "reduce", tensors)

        def run(comm: Any) -> None:
            comm.reduce(flat, flat if root == self._rank else None, op, root)
            if root == self._rank:
                _store(flat, tensor)

        return self._run(opts, tensors, run, root == self._rank)

    def _allgather_base(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        _check("allgather_into_tensor", given)
        _check("allgather_into_tensor", output, given)
        if output.numel() != given.numel() * self._size:
            raise RuntimeError("twill: allgather_into_tensor: output tensor size must be equal to world_size times input "
                               f"tensor size, but they have {output.numel()} and {given.numel()} elements")
        source, destination = _bytes(given), _bytes(output)

        def run(comm: Any) -> None:
            comm.allgather(source, destination)
            _store(destination, output)

        return self._run(opts, [output], run)

    def _reduce_scatter_base(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
        opts = opts if opts is not None else dist.ReduceScatterOptions()
        _check("reduce_scatter_tensor", output, given)
        if given.numel() != output.numel() * self._size:
            raise RuntimeError("twill: reduce_scatter_tensor: input tensor must be the same size as output size times world "
                               f"size, but they have {given.numel()} and {output.numel()} elements")
        [(source, op)] = self._reduced(opts, "reduce_scatter_tensor", [given])
        destination = _flat(output)

        def run(comm: Any) -> None:
            comm.reduce_scatter(source, destination, op)
            _store(destination, output)

        return self._run(opts, [output], run)

    def alltoall_base(self, output: torch.Tensor, given: torch.Tensor, output_splits: Any, input_splits: Any,
                      opts: Any = None) -> Any:
        _check("alltoall_base", given)
        _check("alltoall_base", output, given)
        sent, received = (self._parts(*pair) for pair in ((given, input_splits), (output, output_splits)))
        source, destination = _bytes(given), _bytes(output)

        def run(comm: Any) -> None:
            comm.alltoallv(source, sent, destination, received)
            _store(destination, output)

        return self._run(opts, [output], run)

    def _parts(self, tensor: torch.Tensor, splits: Any) -> list[int]:
        """Return the bytes of each rank's part of a tensor that is split along its first dimension."""
        rows = tensor.shape[0] if tensor.dim() > 0 else 1
        if not splits and rows % self._size != 0:
            raise RuntimeError("twill: alltoall_base: Tensor's dim 0 does not divide equally across group size")
        lengths = list(splits) if splits else [rows // self._size] * self._size
        if len(lengths) != self._size or sum(lengths) != rows or min(lengths) < 0:
            raise RuntimeError("twill: alltoall_base: Split sizes doesn't match total dim 0 size")
        row = tensor.numel() * tensor.element_size() // max(rows, 1)
        return [length * row for length in lengths]

    def barrier(self, opts: Any = None) -> Any:
        return self._run(opts, [], lambda comm: comm.barrier())

    # Collectives of lists, through one block to or from which tensors are copied

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        given = _only("allgather", inputs)
        self._list("allgather", outputs[0], given)
        sizes, source = _sizes(outputs[0]), _bytes(given)
        block = torch.empty(sum(sizes), dtype=torch.uint8)

        def run(comm: Any) -> None:
            comm.allgatherv(source, block, sizes)
            _store_list(block, outputs[0])

        return self._run(opts, outputs[0], run)

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        given, root = _only("gather", inputs), self._root("gather", opts.rootRank)
        source, block = _bytes(given), None
        if root == self._rank:
            self._list("gather", outputs[0], given)
            block = torch.empty(sum(_sizes(outputs[0])), dtype=torch.uint8)

        def run(comm: Any) -> None:
            comm.gather(source, block, root)
            if block is not None:
                _store_list(block, outputs[0])

        return self._run(opts, outputs[0] if outputs else [], run)

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        output, root = _only("scatter", outputs), self._root("scatter", opts.rootRank)
        block, destination = None, _bytes(output)
        if root == self._rank:
            self._list("scatter", inputs[0], output)
            block = _packed(inputs[0])

        def run(comm: Any) -> None:
            comm.scatter(block, destination, root)
            _store(destination, output)

        return self._run(opts, outputs, run)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        opts = opts if opts is not None else dist.ReduceScatterOptions()
        output = _only("reduce_scatter", outputs)
        self._list("reduce_scatter", inputs[0], output)
        items = self._reduced(opts, "reduce_scatter", inputs[0])
        counts = [tensor.numel() for tensor in inputs[0]]
        block, destination = torch.cat([flat.reshape(-1) for flat, _ in items]), _flat(output)

        def run(comm: Any) -> None:
            comm.reduce_scatterv(block, destination, counts, items[0][1])
            _store(destination, output)

        return self._run(opts, outputs, run)

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        self._list("alltoall", inputs, inputs[0])
        self._list("alltoall", outputs, inputs[0])
        sizes, block = _sizes(outputs), torch.empty(sum(_sizes(outputs)), dtype=torch.uint8)

        def run(comm: Any) -> None:
            comm.alltoallv(_packed(inputs), _sizes(inputs), block, sizes)
            _store_list(block, outputs)

        return self._run(opts, outputs, run)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        works = [self.allgather([[row[i] for row in outputs]], [given], opts) for i, given in enumerate(inputs)]
        return works[-1] if works else self._run(opts, [], lambda comm: None)

    def _each(self, call: Any, outputs: Any, inputs: Any, opts: Any) -> Any:
        works = [call(output, given, opts) for output, given in zip(outputs, inputs)]
        return works[-1] if works else self._run(opts, [], lambda comm: None)

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        return self._each(self._allgather_base, outputs, inputs, opts)

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        return self._each(self._reduce_scatter_base, outputs, inputs, opts)

    # Names since 2.13
    all_gather_single, reduce_scatter_single, all_to_all_single = _allgather_base, _reduce_scatter_base, alltoall_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def monitored_barrier(self, timeout: Optional[datetime.timedelta] = None, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks. On rank 0, the error names those that do not come."""
        self._barriers += 1
        limit = timeout if timeout is not None else self._timeout
        key = f"twill/monitored/{self._barriers}"
        if self._rank != 0:
            self._store.set(f"{key}/{self._rank}", "1")
            try:
                self._store.wait([f"{key}/all"], limit)
            except RuntimeError as error:
                raise RuntimeError("twill: Rank 0 has not said within "
                                   f"{limit} that all ranks successfully reached monitoredBarrier") from error
            return
        missing = list(self._missing(key, limit, wait_all_ranks))
        if missing:
            names = ", ".join(map(str, missing))
            raise RuntimeError(f"twill: Rank {names} failed to pass monitoredBarrier in "
                               f"{round(limit.total_seconds() * 1000)} ms")
        self._store.set(f"{key}/all", "1")

    def _missing(self, key: str, limit: datetime.timedelta, wait_all_ranks: bool) -> Iterator[int]:
        """Yield the ranks that have not come to a barrier, or only the first one. Waits for each up to `limit`."""
        for rank in range(1, self._size):
            try:
                self._store.wait([f"{key}/{rank}"], limit)
            except RuntimeError:
                yield rank
                if not wait_all_ranks:
                    return

    def send(self, *_: Any) -> Any:
        raise NotImplementedError("twill: messages need the C++ part of twill.torch: install a C++ compiler")

    recv = recv_anysource = send


def _options(kind: Any, **values: Any) -> Any:
    made = kind()
    for name, value in values.items():
        setattr(made, name, value)
    return made

# SPDX-License-Identifier: Apache-2.0
"""Gradient sets, which overlap the communication of a training step with the backward pass. docs/guides/training.md shows how
to use them. The functions of man 3 twill_train.h have the details."""
from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple, Optional, Sequence, Union

import numpy

from ._declarations import (BucketOrder, Compression, FactorsChoice, Op, OptimizerRule, twill_counters,
                            twill_gradients_counters, twill_gradients_options, twill_optimizer, twill_tensor)
from ._library import encoded, fail, lib, lines, text
from .buffers import Buffer, TypeLike, array_of, dtype_of, memory_at, named_layout, plain, view
from .comm import Communicator, Counters
from .context import Shape

_ENUMS = {"order": BucketOrder, "factors": FactorsChoice, "compression": Compression, "op": Op}


class SetCounters(NamedTuple):
    """Counters of a set since its commit (see twill_gradients_counters in man 3 twill_train.h)."""

    steps: int
    operations: int
    bytes: int
    bytes_copied: int
    bytes_exchanged: int
    bytes_converted: int
    buckets: int
    agreements: int
    state_bytes: int
    seconds_exposed: float


def set_fields(structure: ctypes.Structure, values: dict[str, Any], what: str, enums: dict[str, Any]) -> None:
    """Set members of an options structure by name. A value of an enumeration may be the name of a constant."""
    names = {field[0] for field in structure._fields_} - {"bytes", "rule"}
    for name, value in values.items():
        if name not in names:
            raise TypeError(f"{what} has no option {name}: there are {', '.join(sorted(names))}")
        if isinstance(value, str) and name in enums:
            value = enums[name][value.upper()]
        setattr(structure, name, value)


def optimizer_of(rule: Union[OptimizerRule, str], hyperparameters: dict[str, float],
                 before: Optional[twill_optimizer] = None) -> twill_optimizer:
    """Return a rule with these hyperparameters. The others come from `before` if it has this rule, or are defaults."""
    rule = OptimizerRule[rule.upper()] if isinstance(rule, str) else rule
    if before is None or before.rule != rule:
        before = twill_optimizer()
        lib.twill_optimizer_defaults(ctypes.byref(before), rule)
    set_fields(before, hyperparameters, f"the optimizer {rule.name.lower()}", {})
    return before


def described_tensor(name: str, shape: Optional[Shape], dtype: TypeLike, gradient: Optional[Buffer],
                     parameters: Optional[Buffer]) -> tuple[twill_tensor, tuple[int, ...], TypeLike, Any]:
    """Return a tensor for C, its shape, its type, and the objects that must live as long as the tensor. Without a given
    shape, shape and type are those of the program's memory."""
    views = [None if given is None else plain(view(given, True)) for given in (gradient, parameters)]
    some: Any = gradient if gradient is not None else parameters
    if shape is None:
        if some is None:
            raise TypeError("a tensor has a shape, a gradient or parameters")
        shape = tuple(getattr(some, "shape", (view(some).count,)))
        dtype = view(some).layout.name
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    layout = named_layout(dtype)
    count = math.prod(shape)
    if layout.kind or layout.parts != 1:
        raise TypeError(f"a gradient of type {layout.name} cannot be reduced")
    for found in views:
        if found is not None and (found.count != count or found.layout.type != layout.type):
            raise ValueError(f"tensor {name}: {count} elements of type {layout.name} are needed, and memory has "
                             f"{found.count} of {found.layout.name}")
    addresses = [found and found.address for found in views]
    return twill_tensor(encoded(name, "the name"), count, layout.type, *addresses, 0, 0), shape, dtype, views


class Tensor:
    """A tensor of a set. Its arrays have the shape that it was added with."""

    def __init__(self, owner: GradientSet, index: int, shape: tuple[int, ...], dtype: numpy.dtype[Any]) -> None:
        self._set, self.index, self.shape, self.dtype = owner, index, shape, dtype

    def _array(self, address: Optional[int]) -> numpy.ndarray[Any, Any]:
        if not address:
            raise ValueError("this memory exists only after the commit, and only with an optimizer")
        memory = memory_at(address, math.prod(self.shape) * self.dtype.itemsize)
        memory._set = self._set  # the array keeps the set, which keeps the memory
        return array_of(memory, self.dtype, self.shape)

    @property
    def gradient(self) -> numpy.ndarray[Any, Any]:
        """The gradient memory, which is the program's or the set's. With late=1, ask for it in each step."""
        return self._array(lib.twill_gradients_memory(self._set._handle, self.index))

    @property
    def result(self) -> numpy.ndarray[Any, Any]:
        """The memory with the last result, as an array."""
        return self._array(lib.twill_gradients_result(self._set._handle, self.index))

    @property
    def parameters(self) -> numpy.ndarray[Any, Any]:
        """The parameters in a set with an optimizer, in the program's memory or the set's."""
        return self._array(lib.twill_gradients_parameters(self._set._handle, self.index))

    def ready(self) -> None:
        """Mark the gradient complete. It belongs to the set until it is waited for. Any thread may call this."""
        self._set._check(lib.twill_gradients_ready(self._set._handle, self.index))

    def ready_factors(self, errors: Buffer, activations: Buffer) -> None:
        """Mark a tensor of add_dense() ready, given f32 errors (samples x rows) and activations (samples x columns)."""
        given = [view(factor) for factor in (errors, activations)]
        if any(factor.layout.name != "float32" for factor in given):
            raise TypeError("errors and activations are float32")
        samples = given[0].count // self.shape[0]
        if [factor.count for factor in given] != [samples * self.shape[0], samples * self.shape[1]]:
            raise ValueError(f"errors and activations are samples x {self.shape[0]} and samples x {self.shape[1]}")
        self._set._check(lib.twill_gradients_ready_factors(self._set._handle, self.index, given[0].address,
                                                           given[1].address, samples))

    def test(self) -> bool:
        """Advance the reductions, and return whether the result is there."""
        return self._set._test(self.index)

    def wait(self) -> numpy.ndarray[Any, Any]:
        """Wait until the result is in the gradient memory, and return it. The memory then belongs to the program."""
        self._set._check(lib.twill_gradients_wait(self._set._handle, self.index))
        return self.result


class GradientSet:
    """The gradients of a model. Call add() for the same tensors on all ranks, then commit(). In every step, mark each
    tensor ready() as the backward pass produces it, and call wait_all(). Call free() on all ranks before the
    communicator ends.

    Options are the members of twill_gradients_options, such as op, compression ("bf16"), bucket_bytes, order or late."""

    def __init__(self, comm: Communicator, **options: Any) -> None:
        given = twill_gradients_options()
        lib.twill_gradients_defaults(ctypes.byref(given))
        set_fields(given, options, "a gradient set", _ENUMS)
        self.comm = comm
        self._keep: list[Any] = []
        self._handle = ctypes.c_void_p()
        comm._check(lib.twill_gradients_create(ctypes.byref(self._handle), comm._handle, ctypes.byref(given)))
        self.tensors: list[Tensor] = []
        self._optimizer: Optional[twill_optimizer] = None

    def _check(self, status: int) -> None:
        if status != 0:
            fail(status, text(lib.twill_gradients_message(self._handle)))

    def add(self, name: str, shape: Optional[Shape] = None, dtype: TypeLike = "float32", *,
            gradient: Optional[Buffer] = None, parameters: Optional[Buffer] = None, priority: Optional[int] = None,
            compress: bool = True) -> Tensor:
        """Register a tensor, in the order of the forward pass, and return it. Shape and type are given, or those of the
        program's memory. Without a gradient the set has the memory, and never copies. Default `priority` is the index."""
        return self._add(name, shape, dtype, gradient, parameters, priority, compress, None)

    def add_dense(self, name: str, rows: int, columns: int, samples: int, *, gradient: Optional[Buffer] = None,
                  parameters: Optional[Buffer] = None, priority: Optional[int] = None, compress: bool = True) -> Tensor:
        """Register the f32 weights of a dense layer for at most `samples` samples a step (Tensor.ready_factors())."""
        return self._add(name, (rows, columns), "float32", gradient, parameters, priority, compress, samples)

    def _add(self, name: str, shape: Optional[Shape], dtype: TypeLike, gradient: Optional[Buffer],
             parameters: Optional[Buffer], priority: Optional[int], compress: bool, samples: Optional[int]) -> Tensor:
        tensor, shape, dtype, keep = described_tensor(name, shape, dtype, gradient, parameters)
        tensor.priority = len(self.tensors) if priority is None else priority
        tensor.uncompressed = int(not compress)
        index = ctypes.c_int()
        if samples is None:
            status = lib.twill_gradients_add(self._handle, ctypes.byref(tensor), ctypes.byref(index))
        else:
            status = lib.twill_gradients_add_dense(self._handle, ctypes.byref(tensor), *shape, samples,
                                                   ctypes.byref(index))
        self._check(status)
        self._keep.append(keep)
        made = Tensor(self, index.value, shape, dtype_of(dtype))
        self.tensors.append(made)
        return made

    def set_optimizer(self, rule: Union[OptimizerRule, str], **hyperparameters: float) -> None:
        """Make the set update parameters by "sgd", "adagrad", "adam", "adamw", "lars" or "lamb". Hyperparameters are the
        members of twill_optimizer, such as rate or momentum. After the commit, call it between steps to change some."""
        optimizer = optimizer_of(rule, hyperparameters, self._optimizer)
        self._check(lib.twill_gradients_set_optimizer(self._handle, ctypes.byref(optimizer)))
        self._optimizer = optimizer

    def commit(self) -> GradientSet:
        """End the registration. Collective, as the ranks compare options and tensors. Returns the set."""
        self._check(lib.twill_gradients_commit(self._handle))
        return self

    def wait_all(self) -> None:
        """Wait for all tensors, and end the step."""
        self._check(lib.twill_gradients_wait_all(self._handle))

    def _test(self, index: int) -> bool:
        done = ctypes.c_int()
        self._check(lib.twill_gradients_test(self._handle, index, ctypes.byref(done)))
        return bool(done.value)

    def test(self) -> bool:
        """Advance the reductions, and return whether all results are there."""
        return self._test(-1)

    def set_late(self, late: bool) -> None:
        """Turn lateness on or off between steps, in a set made with late=1."""
        self._check(lib.twill_gradients_set_late(self._handle, int(late)))

    def drain(self) -> None:
        """Wait for the outstanding result after the last late step."""
        self._check(lib.twill_gradients_drain(self._handle))

    def reload(self) -> None:
        """Read master weights from the parameters again, after the program has changed f16 or bf16 parameters."""
        self._check(lib.twill_gradients_reload(self._handle))

    def stop_requested(self) -> int:
        """Return 0, or the number of the step by which all ranks knew that one of them has called stop(). All ranks ask
        after the same step."""
        after = ctypes.c_uint64()
        self._check(lib.twill_gradients_stop_requested(self._handle, ctypes.byref(after)))
        return after.value

    def check(self) -> None:
        """Compare the parameters, or else the gradients, of the ranks. Collective. MismatchError if they differ."""
        self._check(lib.twill_gradients_check(self._handle))

    def state(self) -> numpy.ndarray[Any, Any]:
        """Return the optimizer state of this rank's shards as bytes, for a checkpoint. Between steps."""
        size = ctypes.c_size_t()
        self._check(lib.twill_gradients_state_bytes(self._handle, ctypes.byref(size)))
        state = numpy.empty(size.value, numpy.uint8)
        self._check(lib.twill_gradients_state_export(self._handle, state.ctypes.data, size.value))
        return state

    def load_state(self, states: Sequence[Buffer]) -> None:
        """Continue from the states of all ranks that exported them, whose number may have differed. Collective."""
        found = [view((state, "uint8")) for state in states]
        addresses = (ctypes.c_void_p * len(found))(*[state.address for state in found])
        sizes = (ctypes.c_size_t * len(found))(*[state.count for state in found])
        self._check(lib.twill_gradients_state_import(self._handle, addresses, sizes, len(found)))

    @property
    def counters(self) -> SetCounters:
        """Counters since the commit."""
        read = twill_gradients_counters()
        self._check(lib.twill_gradients_count(self._handle, ctypes.byref(read)))
        return SetCounters(*[getattr(read, name) for name in SetCounters._fields])

    @property
    def traffic(self) -> Counters:
        """Counters of the communicators of the set."""
        read = twill_counters()
        self._check(lib.twill_gradients_traffic(self._handle, ctypes.byref(read)))
        return Counters(*[getattr(read, name) for name in Counters._fields])

    def times(self) -> list[str]:
        """Return lines that say where the time of the set's reductions went, and which ranks came last."""
        return lines(lib.twill_gradients_times, self._handle)

    def describe(self) -> list[str]:
        """Return lines that describe options, buckets and tensors."""
        return lines(lib.twill_gradients_describe, self._handle)

    def free(self) -> None:
        """Free the set and its memory. Collective after a commit, unless it is broken."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        lib.twill_gradients_destroy(handle)
        self._keep.clear()

    def __enter__(self) -> GradientSet:
        return self

    def __exit__(self, kind: Optional[type], *_: object) -> None:
        if kind is None:
            self.free()  # otherwise ranks may be in different calls, and the end of the communicator notifies them

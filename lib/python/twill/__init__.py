# SPDX-License-Identifier: Apache-2.0
"""twill: topology-aware collectives for training codes on CPUs.

    import numpy, twill

    with twill.init() as comm:              # finds the other ranks: python -m twill.run -n 4 program.py
        gradient = comm.context.zeros(1000) # an array in memory that the ranks of a node share
        comm.allreduce(gradient, op=twill.AVG)

docs/guides/python.md is the guide. The functions of the C interface (man 3 twill.h) have the details of each call."""
from __future__ import annotations

from ._declarations import (BucketOrder, Compression, FactorsChoice, Level, Op, OptimizerRule, ServerLayout,
                            ServerMode, ServerPart, ServerRate, Status, Type)
from ._library import lib, text
from .buffers import IN_PLACE, dtype_of, pair_dtype
from .comm import Bootstrap, CallPlan, Communicator, Counters, MemoryUsage, init
from .context import Context, Operation, Registration
from .errors import (ArgumentError, BootstrapError, BrokenError, ConfigError, ExcludedError, FabricError, ForkedError,
                     InternalError, MismatchError, OutOfMemoryError, PeerError, RevokedError, SystemCallError,
                     TimeoutError, TwillError, UnsupportedError)
from .job import job_view
from .recovery import Bounds, Handle, Outcome, join, stop
from .requests import PersistentRequest, Request, test_all, wait_all, wait_any
from .servers import NO_SIGNAL, WHOLE_TENSORS, ServedTensor, Server, Window
from .training import GradientSet, SetCounters, Tensor

#: version of the library
__version__ = text(lib.twill_version())

SUM, PROD, MIN, MAX, AVG = Op.SUM, Op.PROD, Op.MIN, Op.MAX, Op.AVG
BAND, BOR, BXOR, LAND, LOR, LXOR = Op.BAND, Op.BOR, Op.BXOR, Op.LAND, Op.LOR, Op.LXOR
MINLOC, MAXLOC = Op.MINLOC, Op.MAXLOC

# Written as a list, because type checkers do not run code that would make it.
__all__ = ["AVG", "ArgumentError", "BAND", "BOR", "BXOR", "Bootstrap", "BootstrapError", "Bounds",
           "BrokenError", "BucketOrder", "CallPlan", "Communicator", "Compression", "ConfigError", "Context",
           "Counters", "ExcludedError", "FabricError", "FactorsChoice", "ForkedError", "GradientSet", "Handle", "IN_PLACE",
           "InternalError", "LAND", "LOR", "LXOR", "Level", "MAX", "MAXLOC", "MIN", "MINLOC", "MemoryUsage",
           "MismatchError", "NO_SIGNAL", "Op", "Operation", "OptimizerRule", "OutOfMemoryError", "Outcome", "PROD", "PeerError",
           "PersistentRequest", "Registration", "Request", "RevokedError", "SUM", "ServedTensor", "Server",
           "ServerLayout", "ServerMode", "ServerPart", "ServerRate", "SetCounters", "Status", "SystemCallError",
           "Tensor", "TimeoutError", "TwillError", "Type", "UnsupportedError", "WHOLE_TENSORS", "Window", "dtype_of",
           "init", "job_view", "join", "pair_dtype", "stop", "test_all", "wait_all", "wait_any"]

# SPDX-License-Identifier: Apache-2.0
"""Distributed training of LightGBM over twill, in place of LightGBM's sockets.

    import lightgbm, twill, twill.lightgbm

    with twill.init() as comm, twill.lightgbm.network(comm) as net:
        data = lightgbm.Dataset(my_rows, my_labels)
        booster = lightgbm.train({"objective": "binary", **net.parameters}, data, callbacks=[net.check])

Each rank has its rows of the data, and every rank gets the same model. Do not set the parameters machines and
local_listen_port. LightGBM's network belongs to the thread that made it, so train in that thread."""
from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import Any, Iterator, Optional

from ._library import lib
from .comm import Communicator

_int, _pointer, _int32 = ctypes.c_int, ctypes.c_void_p, ctypes.c_int32
_ReduceScatter = ctypes.CFUNCTYPE(None, _pointer, _int32, _int, _pointer, _pointer, _int, _pointer, _int32, _pointer)
_Allgather = ctypes.CFUNCTYPE(None, _pointer, _int32, _pointer, _pointer, _int, _pointer, _int32)


class Network:
    """The network that LightGBM uses in one thread."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        #: for LightGBM, in addition to the program's; without num_machines it uses its serial learner
        self.parameters: dict[str, Any] = {"tree_learner": "data", "num_machines": comm.size, "pre_partition": True}
        self._failure: Optional[BaseException] = None
        self._scatter, self._gather = self._functions(comm._handle)

    def _functions(self, handle: Any) -> tuple[Any, Any]:
        reduce_scatter, allgather = lib.twill_lightgbm_reduce_scatter, lib.twill_lightgbm_allgather

        # Their parameters are those of the library's functions, without the communicator.
        def scatter(*arguments: Any) -> None:
            if (status := reduce_scatter(handle, *arguments)) != 0:
                self._fail(status)

        def gather(*arguments: Any) -> None:
            if (status := allgather(handle, *arguments)) != 0:
                self._fail(status)

        return _ReduceScatter(scatter), _Allgather(gather)

    def _fail(self, status: int) -> None:
        try:
            self._comm._fail(status)
        except Exception as error:  # cannot pass through C++, so check() raises it
            self._failure = self._failure or error

    def check(self, _: object = None) -> None:
        """Raise the failure of a call that LightGBM has made, if any. It serves as a callback after each iteration."""
        if self._failure is not None:
            raise self._failure


@contextmanager
def network(comm: Communicator) -> Iterator[Network]:
    """Open a block in which this thread's LightGBM uses a communicator, which nothing else may use meanwhile."""
    from lightgbm.basic import _LIB, _safe_call  # type: ignore[import-not-found, attr-defined, unused-ignore]

    made = Network(comm)
    if comm.size > 1:
        _safe_call(_LIB.LGBM_NetworkInitWithFunctions(comm.size, comm.rank, made._scatter, made._gather))
    try:
        yield made
    except Exception as error:
        made.check()  # LightGBM's error about a broken network is only a consequence
        raise error
    finally:
        if comm.size > 1:
            _safe_call(_LIB.LGBM_NetworkFree())
    made.check()

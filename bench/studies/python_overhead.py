# SPDX-License-Identifier: Apache-2.0
"""Measure what the Python layer adds to a call. An allreduce of 8 bytes is made in the package's forms and by C, in turns.

    PYTHONPATH=build/python python3 -m twill.run -n 2 bench/studies/python_overhead.py

The program compiles the loop in C with the compiler cc. It prints for each form the least and the median microseconds per call
on rank 0, over all batches."""
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Callable

import numpy as np
import twill
from twill._library import lib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../common"))
import tool  # noqa: E402

BATCHES, CALLS = 60, 500
LOOP = """
int loop(int (*call)(void *, const void *, void *, unsigned long, int, int), void *comm, void *data, int calls)
{
    int status = 0;
    while (calls-- > 0 && status == 0)
        status = call(comm, data, data, 2, 0, 0);
    return status;
}
"""


def c_loop() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "loop.so")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=LOOP, text=True, check=True)
        return ctypes.CDLL(path)


def main() -> None:
    loop = c_loop().loop
    with twill.init() as comm:
        a, b = comm.context.zeros(2), comm.context.zeros(2)
        call, handle, address = ctypes.cast(lib.twill_allreduce, ctypes.c_void_p), comm._handle, a.ctypes.data
        pointer = ctypes.c_void_p(address)
        request, bound = comm.allreduce_init(a), lib.twill_allreduce

        def repeat(function: Callable[[], object]) -> Callable[[], None]:
            def run() -> None:
                for _ in range(CALLS):
                    function()
            return run

        forms: dict = {
            "C": lambda: loop(call, handle, pointer, CALLS),
            "ctypes alone": repeat(lambda: bound(handle, address, address, 2, 0, 0)),
            "persistent request()": repeat(request),
            "comm.allreduce(a)": repeat(lambda: comm.allreduce(a)),
            "comm.allreduce(a, b)": repeat(lambda: comm.allreduce(a, b)),
            "comm.allreduce_start(a).wait()": repeat(lambda: comm.allreduce_start(a).wait()),
            "comm.allreduce(1.0)": repeat(lambda: comm.allreduce(1.0)),
            "comm.barrier()": repeat(comm.barrier),
        }
        taken: dict = {name: [] for name in forms}
        progress = tool.Progress(comm.rank == 0)
        for batch in range(BATCHES):
            progress.show(batch, BATCHES, "batches")
            for name, form in forms.items():
                start = time.perf_counter()
                form()
                taken[name].append((time.perf_counter() - start) / CALLS * 1e6)
        progress.clear()
        request.free()
        if comm.rank == 0:
            print(f"{comm.size} ranks, {BATCHES} batches of {CALLS} calls, us per call\n{'':32}least  median   over C")
            for name, times in taken.items():
                print(f"{name:30} {min(times):7.2f} {statistics.median(times):7.2f} {min(times) - min(taken['C']):8.2f}")


if __name__ == "__main__":
    main()

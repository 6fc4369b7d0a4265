# SPDX-License-Identifier: Apache-2.0
"""Show when compression pays. Measure the time of a gradient set's step without computing, for one tensor of f32 that is not
compressed or compressed with each coding in turns. Then print what compression_automatic chooses. Run it by twillrun as
compression.py [BYTES...], see README.md."""
import os
import statistics
import sys
import time

import numpy
import twill

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../common"))
import tool  # noqa: E402

TIMED_STEPS, AUTOMATIC_STEPS = 15, 20
CODINGS = {"f32": "none", "f16": "f16", "int8": "int8", "f8e4m3": "f8e4m3", "top_k": "top_k", "threshold": "threshold"}


def make_set(comm, coding, count, automatic):
    options = dict(compression=CODINGS[coding], compression_automatic=automatic, compression_threshold=0.99)  # 1 of 100
    made = twill.GradientSet(comm, **options)
    made.add("tensor", count)
    return made.commit()


def time_step(comm, gradients, seed):
    """Return the seconds of one step with random gradients from -1 to 1."""
    tensor = gradients.tensors[0]
    draw = numpy.random.default_rng([seed, comm.rank])
    tensor.gradient[:] = draw.uniform(-1, 1, tensor.shape)
    comm.barrier()
    start = time.monotonic()
    tensor.ready()
    gradients.wait_all()
    return time.monotonic() - start


def measure(comm, count):
    sets = {coding: make_set(comm, coding, count, 0) for coding in CODINGS}
    seconds = {coding: [] for coding in CODINGS}
    progress = tool.Progress(comm.rank == 0)
    for step in range(TIMED_STEPS + 1):
        progress.show(step, TIMED_STEPS + 1, f"steps of {4 * count} bytes")
        for coding, gradients in sets.items():
            seconds[coding].append(time_step(comm, gradients, step))
    progress.clear()
    medians = {coding: statistics.median(times[1:]) for coding, times in seconds.items()}  # the first step warms up
    for coding, gradients in sets.items():
        counters = gradients.counters
        gradients.free()
        automatic = make_set(comm, coding, count, 1)
        for step in range(AUTOMATIC_STEPS):
            time_step(comm, automatic, step)
        chosen = "" if coding == "f32" else "compresses" if "compressed to" in automatic.describe()[1] else "does not"
        automatic.free()
        if comm.rank == 0:
            exchanged, median = counters.bytes_exchanged // counters.steps, medians[coding]
            print(f"{4 * count:10}  {coding:9}  {exchanged:9}  {median * 1e6:10.1f}  {median / medians['f32']:5.2f}  {chosen}")


with twill.init() as comm:
    if comm.rank == 0:
        print(f"{'bytes':>10}  {'coding':9}  {'exchanged':>9}  {'us a step':>10}  {'ratio':>5}  automatic")
    for size in sys.argv[1:] or (65536, 1048576, 16777216):
        measure(comm, max(1, int(size) // 4))

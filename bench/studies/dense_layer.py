# SPDX-License-Identifier: Apache-2.0
"""Time a dense layer whose factors are gathered and one whose gradient is reduced, in turns, and print what the set chooses.
Run it by twillrun as dense_layer.py [ROWS COLUMNS SAMPLES [STEPS]], see README.md."""
import os
import statistics
import sys
import time

import numpy
import twill

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../common"))
import tool  # noqa: E402

WAYS = {"factors gathered": "gathered", "gradient reduced": "reduced"}
rows, columns, samples = map(int, sys.argv[1:4] if len(sys.argv) > 3 else (200, 77376, 20))
steps = int(sys.argv[4]) if len(sys.argv) > 4 else 11


def make_set(comm, choice):
    made = twill.GradientSet(comm, factors=choice)
    made.add_dense("dense", rows, columns, samples)
    return made.commit()


def run_step(comm, gradients, errors, activations):
    comm.barrier()
    start = time.monotonic()
    gradients.tensors[0].ready_factors(errors, activations)
    gradients.wait_all()
    return time.monotonic() - start


def measure(comm):
    """Run steps of both ways in turns, after one that is not counted. Returns how many elements differ."""
    errors = (numpy.arange(samples * rows) % 17 / 16 - 0.5).astype("float32")
    activations = (numpy.arange(samples * columns) % 23 / 32).astype("float32")
    sets = {name: make_set(comm, choice) for name, choice in WAYS.items()}
    seconds = {name: [] for name in WAYS}
    progress = tool.Progress(comm.rank == 0)
    for step in range(steps + 1):
        progress.show(step, steps + 1, "steps")
        for name, gradients in sets.items():
            seconds[name].append(run_step(comm, gradients, errors, activations))
    progress.clear()
    for name, gradients in sets.items():
        counters, times = gradients.counters, seconds[name][1:]
        if comm.rank == 0:
            print(f"{name:17} {counters.bytes_exchanged / counters.steps * 1e-6:10.1f} MB a rank and step  "
                  f"{statistics.median(times) * 1e3:10.3f} ms a step (median; least {min(times) * 1e3:.3f})")  # fmt: skip
    a, b = (gradients.tensors[0].result for gradients in sets.values())
    differ = int(numpy.count_nonzero(~(abs(a - b) <= 1e-5 * abs(b) + 1e-6)))
    if comm.rank == 0:
        print("elements that differ by more than rounding:", differ)
    for gradients in sets.values():
        gradients.free()
    return differ


with twill.init() as comm:
    wrong = measure(comm)
    if wrong == 0:
        with make_set(comm, "by_price") as chosen:
            if comm.rank == 0:
                print("chosen:", chosen.describe()[1])
sys.exit(wrong > 0)

# SPDX-License-Identifier: Apache-2.0
"""Time torch.distributed over twill and other backends, in turns in one run:

    torchrun --nproc_per_node 2 bench/torch/compare.py [--backends twill,gloo] [--sizes 8,4K,64K,2M,32M] [--seconds 0.2] [--csv]

For each collective and size every backend runs a batch of calls; batches alternate, and the median of the batches is
printed for the slowest rank; then the step of a model under DistributedDataParallel."""
import argparse
import os
import statistics
import time

import torch
import torch.distributed as dist

import twill.torch

ROUNDS = 7


def bytes_of(text):
    return int(float(text.rstrip("KMG")) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1], 1))


def single(old, new):
    """Return a function of torch.distributed by its name since 2.13, or by the one before."""
    return getattr(dist, new, None) or getattr(dist, old)


def calls_of(size, numbers, group):
    """Return the collectives on so many numbers (of the larger buffer), each as a function of nothing."""
    whole = torch.ones(max(numbers, size))
    part = torch.ones(max(numbers // size, 1))
    spread = torch.ones(part.numel() * size)
    gather = single("all_gather_into_tensor", "all_gather_single")
    scatter = single("reduce_scatter_tensor", "reduce_scatter_single")
    exchange = dist.all_to_all_single
    other = torch.empty_like(spread)
    return {
        "all_reduce": lambda: dist.all_reduce(whole, dist.ReduceOp.MAX, group=group),
        "all_gather_single": lambda: gather(spread, part, group=group),
        "reduce_scatter_single": lambda: scatter(part, spread, group=group),
        "all_to_all_single": lambda: exchange(other, spread, group=group),
        "broadcast": lambda: dist.broadcast(whole, 0, group=group),
    }


def time_batch(call, repeats, group):
    """Return the seconds of a call on the slowest rank."""
    dist.barrier(group=group)
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    spent = torch.tensor([(time.perf_counter() - begin) / repeats], dtype=torch.float64)
    dist.all_reduce(spent, dist.ReduceOp.MAX, group=group)
    return spent.item()


def compare(calls, seconds):
    """Return the median seconds of each backend's call; calls: its group and function by name."""
    repeats = {}
    for name, (group, call) in calls.items():
        call()
        once = time_batch(call, 2, group)
        repeats[name] = max(2, min(2000, int(seconds / ROUNDS / once)))
    times = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, (group, call) in calls.items():
            times[name].append(time_batch(call, repeats[name], group))
    return {name: statistics.median(taken) for name, taken in times.items()}


def print_row(what, size, medians, csv):
    if dist.get_rank() != 0:
        return
    names = list(medians)
    ratio = medians[names[1]] / medians[names[0]] if len(names) > 1 else float("nan")
    values = [f"{medians[name] * 1e6:.1f}" for name in names]
    print((",".join if csv else lambda fields: " ".join(f"{f:>21}" for f in fields))(
        [what, str(size), *values, f"{ratio:.2f}"]), flush=True)


def model_step(group):
    model = torch.nn.Sequential(*[layer for _ in range(4) for layer in (torch.nn.Linear(512, 512), torch.nn.ReLU())])
    model = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    inputs = torch.randn(16, 512)

    def step():
        model.zero_grad()
        model(inputs).sum().backward()

    return step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backends", default="twill,gloo")
    parser.add_argument("--sizes", default="8,4K,64K,2M,32M", help="bytes of the larger buffer")
    parser.add_argument("--seconds", type=float, default=0.2, help="for each backend, collective and size")
    parser.add_argument("--csv", action="store_true")
    parser.add_argument("--only", default="", help="collectives, separated by commas; step")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("twill")
    names = options.backends.split(",")
    groups = {name: dist.new_group(backend=name) for name in names}
    only = options.only.split(",") if options.only else None
    if dist.get_rank() == 0:
        print(f"# torch {torch.__version__}, {dist.get_world_size()} ranks, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}: "
              f"collective, bytes, us with {', us with '.join(names)}, ratio", flush=True)
    for size in map(bytes_of, options.sizes.split(",")):
        made = {name: calls_of(dist.get_world_size(), size // 4, group) for name, group in groups.items()}
        for what in made[names[0]]:
            if only is None or what in only:
                print_row(what, size, compare({n: (groups[n], made[n][what]) for n in names}, options.seconds),
                          options.csv)
    if only is None or "step" in only:
        steps = {name: (group, model_step(group)) for name, group in groups.items()}
        print_row("ddp_step", 4 * 512 * 513 * 4, compare(steps, 5 * options.seconds), options.csv)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

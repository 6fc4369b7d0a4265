# SPDX-License-Identifier: Apache-2.0
"""Time torch.distributed over twill and other backends, in turns in one run.

    torchrun --nproc_per_node 2 bench/studies/torch/compare.py [--backends twill,gloo] [--sizes 8,4K,64K,2M,32M] [--budget 60] [--csv FILE]
    python bench/studies/torch/compare.py --table FILE...       # print files of --csv as tables of Markdown
    torchrun --nproc_per_node 1 bench/studies/torch/compare.py --layers         # layers of a call; with 2 ranks those of messages
    torchrun --nproc_per_node 2 bench/studies/torch/compare.py --groups 300     # the time to make groups
    torchrun --nproc_per_node 2 bench/studies/torch/compare.py --hooks          # a step of DistributedDataParallel with gradients in 16 bits

For each collective and size every backend runs a batch of calls, and the batches alternate. The time of a batch is that of the
slowest rank. The result is the median and the least of the batches. Then the step of a model under DistributedDataParallel is
timed. tables.sh runs all of this."""
import argparse
import csv
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

import twill.torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../common"))
import tool  # noqa: E402

ROUNDS = 7
SIZES = "8,64,512,4K,16K,64K,256K,1M,4M,16M,32M,64M"


def bytes_of(text):
    return int(float(text.rstrip("KMG")) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1], 1))


def single(old, new):
    """Return the function of torch.distributed that has the name `new` since PyTorch 2.13 and `old` before."""
    return getattr(dist, new, None) or getattr(dist, old)


def calls_of(size, numbers, group):
    """Return the collectives by name, as functions without arguments. `numbers` counts the elements of the larger buffer."""
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


def time_batch(call, repeats, group, untimed=0):
    """Return the seconds of a call on the slowest rank. `untimed` calls come first."""
    for _ in range(untimed):
        call()
    dist.barrier(group=group)
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    spent = torch.tensor([(time.perf_counter() - begin) / repeats], dtype=torch.float64)
    dist.all_reduce(spent, dist.ReduceOp.MAX, group=group)
    return spent.item()


def compare(calls, seconds, warm_up=0.0):
    """Return the median and the least seconds of a call of each backend. `calls` gives its group and function by name. For
    `warm_up` seconds before each batch it makes calls that are not timed."""
    repeats, untimed = {}, {}
    for name, (group, call) in calls.items():
        call()
        once = time_batch(call, 1, group)
        repeats[name] = max(1, min(1000, int(seconds / ROUNDS / once)))
        untimed[name] = min(1000, int(warm_up / once))
    times = {name: [] for name in calls}
    begin = time.perf_counter()
    for i in range(ROUNDS):
        for name, (group, call) in calls.items():
            times[name].append(time_batch(call, repeats[name], group, untimed[name]))
        over = torch.tensor([time.perf_counter() - begin > (seconds + ROUNDS * warm_up) * len(calls) and i >= 2])
        dist.broadcast(over, 0)
        if over.item():
            break
    return {name: (statistics.median(taken), min(taken)) for name, taken in times.items()}


def write_row(what, size, taken, out):
    if dist.get_rank() != 0:
        return
    values = [f"{seconds * 1e6:.1f}" for pair in taken.values() for seconds in pair]
    medians = [median for median, _ in taken.values()]
    print(" ".join(f"{field:>21}" for field in [what, size, *values, f"{medians[-1] / medians[0]:.2f}"]), flush=True)
    csv.writer(out).writerow([what, size, *values])


def text_of(size):
    """Return a number of bytes in KiB or MiB if it is large enough."""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size // factor} {unit}"
    return str(size)


def print_tables(files):
    """Print what --csv has written as tables of Markdown. A cell has the microseconds of the first and the last backend and
    their ratio."""
    for name in files:
        with open(name, encoding="utf-8") as file:
            title, *rows = csv.reader(file)
        cells = {(what, int(size)): [float(v) for v in values] for what, size, *values in rows}
        whats = list(dict.fromkeys(what for what, _ in cells if what != "ddp_step"))
        print(f"\n{title[0]}\n\n| bytes | {' | '.join(whats)} |\n|{'---|' * (len(whats) + 1)}")
        for size in dict.fromkeys(size for what, size in cells if what != "ddp_step"):
            taken = [cells.get((what, size)) for what in whats]
            print(f"| {text_of(size)} | " + " | ".join(
                f"{v[0]:.{v[0] < 100:d}f} / {v[-2]:.{v[-2] < 100:d}f}: {v[-2] / v[0]:.1f}" if v else "" for v in taken) + " |")
        for (what, size), v in cells.items():
            if what == "ddp_step":
                print(f"\nDDP step of {size / 1e6:.1f} MB: {v[0] / 1e3:.1f} / {v[-2] / 1e3:.1f} ms: {v[-2] / v[0]:.2f}")


def processor_time(call, repeats=2000, batches=15):
    """Return as text the median and the least of the processor time of a call in microseconds, of all threads of this process."""
    taken = []
    for _ in range(batches):
        begin = time.process_time_ns()
        for _ in range(repeats):
            call()
        taken.append((time.process_time_ns() - begin) / (repeats * 1e3))
    return f"median {statistics.median(taken):.2f} us, least {min(taken):.2f}"


def options_of(kind):
    """Return options for a call whose caller waits at once."""
    options = kind()
    if hasattr(options, "asyncOp"):
        options.asyncOp = False
    return options


def layers_of(group, backend):
    """Return for each collective three functions that make a call of 8 bytes. The first is the function of torch.distributed,
    the second the function of the group that it calls, and the third that of the backend, or None if there is none."""
    tensor, other, c10d = torch.ones(2), torch.zeros(2), dist.distributed_c10d
    gather, scatter = single("all_gather_into_tensor", "all_gather_single"), single("reduce_scatter_tensor", "reduce_scatter_single")
    steps = {
        "all_reduce": (lambda **how: dist.all_reduce(tensor, group=group, **how), ["allreduce"], ([tensor],), c10d.AllreduceOptions),
        "broadcast": (lambda **how: dist.broadcast(tensor, 0, group=group, **how), ["broadcast"], ([tensor],), c10d.BroadcastOptions),
        "all_gather_single": (lambda **how: gather(other, tensor, group=group, **how), ["all_gather_single", "_allgather_base"], (other, tensor),
                              c10d.AllgatherOptions),
        "reduce_scatter_single": (lambda **how: scatter(other, tensor, group=group, **how), ["reduce_scatter_single", "_reduce_scatter_base"],
                                  (other, tensor), c10d.ReduceScatterOptions),
        "all_to_all_single": (lambda **how: dist.all_to_all_single(other, tensor, group=group, **how), ["all_to_all_single", "alltoall_base"],
                              (other, tensor, [], []), c10d.AllToAllOptions)}

    def call_of(target, names, arguments, kind):
        function = next((getattr(target, name) for name in names if hasattr(target, name)), None)
        options = options_of(kind)

        def call():
            work = function(*arguments, options)
            if work is not None:
                work.wait()
        return call if function is not None else None

    return {name: (call, call_of(group, *rest), call_of(backend, *rest)) for name, (call, *rest) in steps.items()}


def print_layers():
    """Print the processor time of calls of 8 bytes with one rank by layer. Twill's own part of them is a copy. Also print it for
    PyTorch's backend "fake", which does not even copy, so that no backend can be faster. With two ranks, which need a core each,
    print the time one way of a message of 8 bytes over torch.distributed and over the package twill."""
    if dist.get_world_size() == 2:
        print_message_layers()
        return
    import torch.testing._internal.distributed.fake_pg  # noqa: F401 # makes the name "fake" known

    groups = {"twill": dist.distributed_c10d._get_default_group(), "fake": dist.new_group(backend="fake")}
    layers = {name: layers_of(group, group._get_backend(torch.device("cpu"))) for name, group in groups.items()}
    for what, calls in layers["twill"].items():
        taken = [f"{where}: {processor_time(call)}" for where, call in zip(("dist", "group", "backend"), calls) if call is not None]
        print(f"{what}: {'; '.join(taken)}; async_op=True, then wait(): {processor_time(lambda: calls[0](async_op=True).wait())}")
        if what in ("all_reduce", "broadcast"):
            print(f"{what} that does nothing: " + "; ".join(
                f"{where}: {processor_time(call)}" for where, call in zip(("dist", "group", "backend"), layers["fake"][what])))


def print_message_layers():
    import numpy

    def exchange(mine):
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, mine)
        return parts

    world, peer = twill.init(twill.Bootstrap(dist.get_rank(), dist.get_world_size(), exchange)), 1 - dist.get_rank()
    tensor, array = torch.ones(2), numpy.ones(2, numpy.float32)

    def turns(first, second):
        def turn():
            for step in (first, second) if dist.get_rank() == 0 else (second, first):
                step()
        return turn

    for name, turn in (("dist.send, dist.recv", turns(lambda: dist.send(tensor, peer), lambda: dist.recv(tensor, peer))),
                       ("twill's send, recv", turns(lambda: world.send(array, peer), lambda: world.recv(array, peer)))):
        taken = []
        for _ in range(15):
            dist.barrier()
            begin = time.perf_counter_ns()
            for _ in range(1000):
                turn()
            taken.append((time.perf_counter_ns() - begin) / 2000e3)
        if dist.get_rank() == 0:
            print(f"{name}: median {statistics.median(taken):.2f} us one way, least {min(taken):.2f}")


def model_step(group, width=512, dtype=None):
    """Return a function that makes a training step of a model of 4 layers. If `dtype` is given, the gradients travel in it,
    by twill.torch.compress_hook."""
    model = torch.nn.Sequential(*[layer for _ in range(4) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())])
    model = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    if dtype is not None:
        model.register_comm_hook((group, dtype), twill.torch.compress_hook)
    inputs = torch.randn(16, width)

    def step():
        model.zero_grad()
        model(inputs).sum().backward()

    return step


def compare_hooks(options, out):
    """Compare a step whose gradients travel in 32 bits with steps in 16 bits, and with one of Gloo in 32 bits."""
    group, gloo = dist.new_group(), dist.new_group(backend="gloo")
    for width in (512, 2048):
        steps = {"float32": (group, model_step(group, width)), "bfloat16": (group, model_step(group, width, torch.bfloat16)),
                 "float16": (group, model_step(group, width, torch.float16)), "gloo": (gloo, model_step(gloo, width))}
        if dist.get_rank() == 0:
            print(f"# microseconds, median and least, with {', '.join(steps)}; the last over the first")
        write_row("ddp_step", 4 * width * (width + 1) * 4, compare(steps, options.budget / 10), out)


def compare_groups(names, count):
    """Print for each backend how long a group takes to be made, to make its first small call of all ranks, and to end."""
    spent = {name: [0.0, 0.0, 0.0] for name in names}
    for _ in range(10):
        for name in names:
            dist.barrier()
            marks = [time.perf_counter()]
            groups = [dist.new_group(backend=name) for _ in range(count // 10)]
            marks.append(time.perf_counter())
            for group in groups:
                dist.all_reduce(torch.ones(2), group=group)
            marks.append(time.perf_counter())
            for group in groups:
                dist.destroy_process_group(group)
            del group, groups
            marks.append(time.perf_counter())
            for i in range(3):
                spent[name][i] += marks[i + 1] - marks[i]
    if dist.get_rank() == 0:
        for name, parts in spent.items():
            print(f"{name}: {count // 10 * 10} groups of {dist.get_world_size()} ranks, ms a group: " + ", ".join(
                f"{what} {part * 1e3 / (count // 10 * 10):.2f}" for what, part in zip(("made", "first call", "ended"), parts)))


def run_all(options, names, groups, out):
    only = options.only.split(",") if options.only else None
    size_of_job = dist.get_world_size()
    cells = [(size, what) for size in map(bytes_of, options.sizes.split(",")) for what in calls_of(size_of_job, 1, None)
             if only is None or what in only]
    end, progress = time.perf_counter() + options.budget, tool.Progress(dist.get_rank() == 0)
    for i, (size, what) in enumerate(cells):
        progress.show(i, len(cells), f"{what} of {size} bytes")
        share = torch.tensor([(end - time.perf_counter()) / (len(cells) - i + 2)])
        dist.broadcast(share, 0)
        made = {name: (group, calls_of(size_of_job, size // 4, group)[what]) for name, group in groups.items()}
        times = compare(made, max(share.item(), 0.05) / (2 * len(names)), options.warm_up)
        progress.clear()
        write_row(what, size, times, out)
    if only is None or "step" in only:
        steps = {name: (group, model_step(group)) for name, group in groups.items()}
        write_row("ddp_step", 4 * 512 * 513 * 4, compare(steps, options.budget / 50), out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="twill,gloo")
    parser.add_argument("--sizes", default=SIZES, help="bytes of the larger buffer")
    parser.add_argument("--budget", type=float, default=60, help="seconds for everything, about")
    parser.add_argument("--warm-up", type=float, default=0, help="seconds of calls that are not timed before each batch of a collective, of each backend, beside the budget")
    parser.add_argument("--csv", metavar="FILE")
    parser.add_argument("--title", default="")
    parser.add_argument("--only", default="", help="collectives, separated by commas; step")
    parser.add_argument("--table", nargs="+", metavar="FILE")
    parser.add_argument("--layers", action="store_true")
    parser.add_argument("--hooks", action="store_true")
    parser.add_argument("--groups", type=int, default=0, metavar="COUNT")
    options = parser.parse_args()
    if options.table:
        print_tables(options.table)
        return
    torch.set_num_threads(1)
    dist.init_process_group("twill")
    if options.layers:
        print_layers()
    elif options.groups:
        compare_groups(options.backends.split(","), options.groups)
    elif options.hooks:
        compare_hooks(options, open(os.devnull, "w", encoding="utf-8"))
    else:
        names = options.backends.split(",")
        groups = {name: dist.new_group(backend=name) for name in names}
        title = (f"{options.title or str(dist.get_world_size()) + ' ranks'}; torch {torch.__version__}, {os.cpu_count()} cores, "
                 f"load {os.getloadavg()[0]:.1f}, microseconds {' / '.join(names)}: ratio of the medians")
        if dist.get_rank() == 0:
            print(f"# {title}; columns: median and least time of each", flush=True)
        with open(options.csv if options.csv and dist.get_rank() == 0 else os.devnull, "w", encoding="utf-8") as out:
            csv.writer(out).writerow([title])
            run_all(options, names, groups, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

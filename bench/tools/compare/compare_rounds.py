# SPDX-License-Identifier: Apache-2.0
"""The turns, in which every contender runs once per round for each collective and size. All are measured within a second or
two, so that slow changes of the machine affect them equally. This file also computes results from rows of times."""
import struct
import time

import compare_links
import tool

# in the order of enum twill_compare_collective (peers/peer_link.h)
COMMON = ["allreduce_in", "allreduce_out", "broadcast", "allgather", "reduce_scatter", "barrier"]
SELF = ["self_barrier", "self_allreduce", "self_message"]  # calls of one rank with itself, which twill passes on
NAMES = COMMON + ["reduce", "gather", "scatter", "alltoall"] + SELF
# Bytes of the source and of the result of a rank in multiples of those of a row. 0 means none, or that the result overwrites
# the source, ALL is all ranks.
ALL = "all"
SHARDS = dict(allreduce_in=(1, 0), allreduce_out=(1, 1), broadcast=(1, 0), allgather=(1, ALL), reduce_scatter=(ALL, 1),
              reduce=(1, 1), gather=(1, ALL), scatter=(ALL, 1), alltoall=(ALL, ALL))  # fmt: skip
OFF_WIRE = 3  # factor over raw TCP, which is more than a better program gains
BY_TENSOR, FUSED = 1, 2


class Cell:
    """The results of a contender in a row, in seconds per call."""

    def __init__(self):
        self.turns = {}  # means of batches on the slowest rank, for each round in which it took part
        self.calls, self.wrong, self.off_wire = 0, False, False
        self.median = self.min = self.p99 = 0.0

    @property
    def samples(self):
        return [seconds for turn in self.turns.values() for seconds in turn]

    @property
    def rounds(self):
        """Return the median of each round."""
        return [tool.median(turn) for turn in self.turns.values()]

    def conclude(self):
        if self.turns:
            self.median, self.min = tool.median(self.samples), min(self.samples)
            self.p99 = tool.quantile(self.samples, 0.99)


class Row:
    def __init__(self, run, collective, n):
        self.run, self.collective, self.bytes = run, collective, n
        self.cells = {one.name: Cell() for one in run.contenders}
        self.lines = []  # latency of a cache line in each round, in seconds
        self.line = 0.0  # their median, or between hosts one way of raw TCP
        self.seconds = 0.0  # time that measuring it took

    def best(self, kind, tuned=False):
        """Return the fastest contender of a kind, or None. Results that did not use the wire do not count."""
        cells = [(self.cells[one.name], one) for one in self.run.of_kind(kind) if one.tuned == tuned]
        good = [(cell.median, one) for cell, one in cells if cell.turns and not cell.wrong and not cell.off_wire]
        return min(good, key=lambda pair: pair[0])[1] if good else None

    def median(self, contender):
        return self.cells[contender.name].median if contender else 0

    def of(self, name):
        return self.cells[name].median if name in self.cells else 0

    def over_below(self, contender):
        """Return the time without twill over the time with it, or 0 if either is missing."""
        return ratio(self.median(contender.below), self.median(contender))

    def bus_bandwidth(self, seconds):
        """Return GB/s over the link of a rank, as nccl-tests defines it."""
        ranks = self.run.options.ranks
        factor = 2 * (ranks - 1) / ranks if self.collective.startswith("allreduce") else ranks - 1 if of_what(self) else 1
        return factor * self.bytes / 1e9 / seconds if seconds > 0 else 0


def ratio(a, b):
    return a / b if a > 0 and b > 0 else 0


def of_what(row):
    return " (bytes: one rank's shard)" if ALL in SHARDS.get(row.collective, ()) else ""


def wrong_values(run, contender, cell, results, where):
    wrong = sum(result.wrong for result in results)
    if wrong:
        cell.wrong = True
        run.failures += contender.kind != "peer"
        run.progress.clear()
        tool.say(f"{contender.name}: {tool.plural(wrong, 'wrong value')} in {where}")


def is_far_behind(row, contender):
    """Return whether a peer is slow and far behind others of its kind. It then has only two turns."""
    run, mine = row.run, row.cells[contender.name].rounds
    if contender.kind != "peer" or run.options.mpi or not mine:
        return False
    others = [row.cells[one.name].rounds for one in run.of_kind("peer") if one.tuned == contender.tuned]
    return mine[0] > 2.5 * min(rounds[0] for rounds in others if rounds) and mine[0] > run.options.turn_seconds / 4


def take_turn(row, contender, round_, keep):
    run, cell = row.run, row.cells[contender.name]
    options = run.options
    if contender.absent or (contender.self_only and row.collective not in SELF) or (round_ > 1 and is_far_behind(row, contender)):
        return
    if contender.kind == "trip" and row.collective != run.rows[0].collective:
        return
    if contender.entry.program == "fi_pingpong":  # it reports one mean
        seconds = compare_links.pingpong(run, contender, row.bytes) if row.bytes else 0
        samples, calls = [seconds] if seconds > 0 else [], 1
    else:
        line = not options.hosts and options.ranks <= run.cores and run.bind
        order = (NAMES.index(row.collective), round_ == 0, keep, 0, 2, 0, line, row.bytes, options.turn_seconds / 15)
        where = f"{row.collective} of {row.bytes} bytes"
        results = compare_links.turn(run, contender, where, (*order, options.turn_seconds))
        if results is None:
            return  # it is excluded, and the others continue
        wrong_values(run, contender, cell, results, where)
        row.lines += [0.0] * (round_ + 1 - len(row.lines))
        if results[0].line_seconds > 0:  # the last contender of the round counts
            row.lines[round_] = results[0].line_seconds
        calls = results[0].calls
        samples = [max(result.seconds[i] for result in results) for i in range(results[0].batches)]
    if samples:
        cell.turns[round_] = samples
        cell.calls += calls * len(samples)


def free_memory():
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))


def take_turns(row, keep):
    run, n = row.run, len(row.run.contenders)
    for round_ in range(run.options.rounds):
        for i in range(n):
            one = run.contenders[(i + round_) % n]  # another contender starts each round
            if run.interrupted:
                return
            run.progress.show(run.turns_done, run.turns, f"{row.collective} {row.bytes}, {one.name}")
            run.turns_done += 1
            take_turn(row, one, round_, keep)


def measure_row(row):
    run, free, begin = row.run, free_memory(), time.monotonic()
    ranks = run.options.ranks
    need = row.bytes * ranks * sum(ranks if part is ALL else part for part in SHARDS.get(row.collective, ()))
    # keep buffers if those of all contenders fit; scratch memory of peers may be twice as large, and it stays
    keep = need * sum(not one.absent for one in run.contenders) < free / 2
    if need * 3 > free:
        run.progress.clear()
        run.turns_done += run.options.rounds * len(run.contenders)
        tool.say(f"{row.collective} of {row.bytes} bytes is left out: {free >> 20} MiB of memory are free")
        return
    take_turns(row, keep)
    for cell in row.cells.values():
        cell.conclude()
    lines = [line for line in row.lines if line > 0]
    row.line = row.median(row.best("trip")) if run.options.hosts else tool.median(lines) if lines else 0
    row.seconds = time.monotonic() - begin


def measure(run):
    sizes = {name: run.options.sizes if name in SHARDS else [0] for name in NAMES if name in run.options.only}
    run.turns = sum(map(len, sizes.values())) * run.options.rounds * len(run.contenders)
    for name, several in sizes.items():
        for n in several:
            if run.interrupted:
                return
            run.rows.append(Row(run, name, n))
            measure_row(run.rows[-1])
    mark_off_wire(run)


def first_ranks(run):
    """Return the first rank of each host."""
    counts = [ranks for _, ranks in run.options.hosts]
    return [sum(counts[:i]) for i in range(len(counts))]


def mark_off_wire(run):
    """Mark results that are faster than the wire in most rounds, between hosts that are namespaces of one machine. The
    library has then found a way through the memory of the machine."""
    hellos = [run.links.hellos.get(rank) for rank in first_ranks(run)]
    machines = [hello.boot_id for hello in hellos if hello]
    if not run.options.hosts or (run.options.bind != "shared" and len(set(machines)) == len(machines)):
        return
    for row in run.rows:
        for one in run.of_kind("peer"):
            cell = row.cells[one.name]
            faster = sum(tool.median(turn) < wire_of(row, round_) / OFF_WIRE for round_, turn in cell.turns.items())
            cell.off_wire = 2 * faster > len(cell.turns)


def wire_of(row, round_):
    """Return the least time of raw TCP in a round. Other rounds may have had less of the machine."""
    turns = [row.cells[one.name].turns.get(round_, []) for one in row.run.of_kind("bound")]
    return min((seconds for turn in turns for seconds in turn), default=0)


# --- --steps, training steps whose computing is played -------------------------------------------


class Steps:
    """The results of a contender for a model, in one way. Its gradients are reduced by tensor (with twill, by a gradient set),
    or in one call."""

    def __init__(self, path, contender, way, n):
        self.list, self.contender, self.way, self.bytes = path, contender, way, n
        self.samples = [], []  # seconds of the slowest rank for computing alone, and for a step
        self.wrong = False

    @property
    def compute(self):
        return tool.median(self.samples[0])

    @property
    def step(self):
        return tool.median(self.samples[1])

    @property
    def exposed(self):
        return self.step - self.compute

    @property
    def reduces(self):
        return "one call" if self.way == FUSED else "gradient set" if self.contender.kind == "twill" else "by tensor"


def pack_model(run, path):
    """Return the bytes of the gradients of a model, and struct twill_compare_model."""
    options = run.options
    try:
        tensors = tool.gradient_list(path)
    except OSError as error:
        raise tool.Failure(f"--steps: {path}: {error.strerror}") from None
    except tool.Failure as failure:
        raise tool.Failure(f"--steps: {failure}") from None
    if not any(work for _, work in tensors):
        raise tool.Failure(f"--steps: {path}: no layer has multiply-adds")
    if len(tensors) > compare_links.TENSORS:
        raise tool.Failure(f"--steps: {path}: more than {compare_links.TENSORS} tensors")
    first, packed = 0, struct.pack("@IId", len(tensors), options.device, run.links.speed)
    for elements, work in tensors:
        forward = 2 * work * options.batch / (options.device_gflops * 1e9)
        packed += compare_links.TENSOR.pack(elements, first, forward)
        first += elements
    return 4 * first, packed + bytes(compare_links.TENSOR.size * (compare_links.TENSORS - len(tensors)))


def step_turn(run, one, model):
    contender = one.contender
    if contender.absent:
        return
    order = (0, 0, 0, 0, 1 if run.options.quick else 3, one.way, 0, one.bytes, 0, 0)
    results = compare_links.turn(run, contender, f"allreduce_in of {one.bytes} bytes", order, model)
    if results is None:
        return  # it is excluded, and the others continue
    wrong_values(run, contender, one, results, f"a step, {one.reduces}")
    for i in range(results[0].batches):  # even ones are computing alone
        one.samples[i % 2].append(max(result.seconds[i] for result in results))


def measure_steps(run):
    rounds, lists = run.options.rounds, run.options.steps
    run.turns = 2 * len(lists) * len(run.contenders) * rounds
    for path in lists:
        n, model = pack_model(run, path)
        several = [Steps(path, one, way, n) for one in run.contenders for way in (BY_TENSOR, FUSED)]
        run.steps += several
        for round_ in range(rounds):
            for one in several[round_:] + several[:round_]:
                run.progress.show(run.turns_done, run.turns, one.contender.name)
                run.turns_done += 1
                if run.interrupted:
                    return
                step_turn(run, one, model)

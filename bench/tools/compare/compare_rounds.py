# SPDX-License-Identifier: Apache-2.0
"""The turns, in which every contender runs once per round for each collective and size. All are measured within a second or
two, so that slow changes of the machine affect them equally. A turn has both timings (peers/peer_timing.h) between two
measurements of the cache line between the cores, and only turns of one placement of the cores are compared. This file also
computes results from rows of times."""
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
TIMINGS = ("fresh", "again")
OFF_WIRE = 3  # factor over raw TCP, which is more than a better program gains
APART = 1.8  # factor between cache lines of cores that are near and of cores that are far
BY_TENSOR, FUSED = 1, 2


class Turn:
    """Seconds of one turn: the least, the median and the 99th percentile of each timing, on the slowest rank, and of a cache
    line before and after."""

    def __init__(self, lines, **times):
        self.lines, self.times = [line for line in lines if line > 0], times

    def placement(self, split):
        """Say where the cores were: near, far, one place as far as is known, or on the move."""
        if not self.lines or not split:
            return "one"
        far = [line > split for line in self.lines]
        return "far" if all(far) else "moved" if any(far) else "near"


class Cell:
    """The results of a contender in a row."""

    def __init__(self):
        self.turns = []
        self.calls, self.seconds, self.wrong, self.off_wire = 0, 0.0, False, False
        self.over = ""  # why it was not measured to the end
        self.offered = True

    def times(self, timing, which=1, placement=None, split=None):
        return [turn.times[timing][which] for turn in self.turns
                if timing in turn.times and (placement is None or turn.placement(split) == placement)]  # fmt: skip


def best_two(times):
    """Return the least of some times and the second least, which is the same if there is one only, or zeros."""
    times = sorted(times)
    return (times[0], times[min(1, len(times) - 1)]) if times else (0, 0)


class Ratio:
    """How many times as long a takes as b, by the best turn of each. Other programs only add time, so the second best turns say
    how far that spreads."""

    def __init__(self, a, b):
        (best, second), (mine, my_second) = best_two(a), best_two(b)
        self.value, self.low, self.high = ratio(best, mine), ratio(best, my_second), ratio(second, mine)

    def __bool__(self):
        return self.value > 0


class Row:
    def __init__(self, run, collective, n):
        self.run, self.collective, self.bytes = run, collective, n
        self.cells = {one.name: Cell() for one in run.contenders}
        self.seconds = 0.0  # time that measuring it took
        self.left_out = ""

    @property
    def placement(self):
        """Return the placement in which most contenders had a turn, and of those the one with most turns."""
        turns = [[turn.placement(self.run.split) for turn in cell.turns] for cell in self.cells.values()]
        places = {place for cell in turns for place in cell} - {"moved"}
        return max(sorted(places), key=lambda place: (sum(place in cell for cell in turns), sum(turns, []).count(place)), default="one")

    @property
    def line(self):
        """Return the median latency of a cache line in the placement that counts or, between hosts, one way of raw TCP."""
        if self.run.options.hosts:
            return self.time(self.best("trip", "fresh"), "fresh")
        place = self.placement
        lines = [line for cell in self.cells.values() for turn in cell.turns for line in turn.lines
                 if turn.placement(self.run.split) == place]  # fmt: skip
        return tool.median(lines) if lines else 0

    def times(self, contender, timing):
        """Return the medians of the turns of a contender that are compared."""
        if not contender or contender.name not in self.cells:
            return []
        return self.cells[contender.name].times(timing, 1, None if contender.kind == "trip" else self.placement, self.run.split)

    def time(self, contender, timing):
        """Return the time of a contender, the least of the medians of its turns, or 0."""
        return min(self.times(contender, timing), default=0)

    def best(self, kind, timing):
        """Return the fastest contender of a kind, or None. Results that did not use the wire, that are wrong, or that took too
        long do not count."""
        cells = [(self.time(one, timing), self.cells[one.name], one) for one in self.run.of_kind(kind)]
        good = [(time, one) for time, cell, one in cells if time > 0 and not (cell.wrong or cell.off_wire or cell.over)]
        return min(good, key=lambda pair: pair[0])[1] if good else None

    def of(self, name):
        return next((one for one in self.run.contenders if one.name == name), None)

    def ratio(self, other, mine, timing):
        """Return the time of another contender over mine."""
        return Ratio(self.times(other, timing), self.times(mine, timing))

    def bus_bandwidth(self, seconds):
        """Return GB/s over the link of a rank, as nccl-tests defines it."""
        ranks = self.run.options.ranks
        factor = 2 * (ranks - 1) / ranks if self.collective.startswith("allreduce") else ranks - 1 if of_what(self) else 1
        return factor * self.bytes / 1e9 / seconds if seconds > 0 else 0


def ratio(a, b):
    return a / b if a > 0 and b > 0 else 0


def of_what(row):
    return " (bytes: one rank's shard)" if ALL in SHARDS.get(row.collective, ()) else ""


def behind(run):
    """List where twill is slower than the best peer, or a drop-in than its MPI, by more than the spread: row, timing, contender,
    the other one, ratio."""
    found = []
    for row in run.rows:
        for timing in TIMINGS:
            for one in run.of_kind("twill"):
                other = one.below or row.best("peer", timing)
                if other and not row.cells[other.name].over and row.collective not in SELF:
                    x = row.ratio(other, one, timing)
                    if x and x.high < 1:
                        found.append((row, timing, one, other, x))
    return found


def wrong_values(run, contender, cell, results, where):
    wrong = sum(result.wrong for result in results)
    if wrong:
        cell.wrong = True
        run.failures += contender.kind != "peer"
        run.progress.clear()
        tool.say(f"{contender.name}: {tool.plural(wrong, 'wrong value')} in {where}")


def is_far_behind(row, contender):
    """Return whether a peer is slow and far behind others. It then has only two turns."""
    run, mine = row.run, row.cells[contender.name].times("fresh")
    if contender.kind != "peer" or run.options.mpi or not mine:
        return False
    others = [times[0] for times in (row.cells[one.name].times("fresh") for one in run.of_kind("peer")) if times]
    return mine[0] > 2.5 * min(others) and mine[0] > run.options.turn_seconds / 4


def learn_split(run):
    """Set the latency that separates cores that are near from cores that are far, if this run has seen both."""
    lines = [line for row in run.rows for cell in row.cells.values() for turn in cell.turns for line in turn.lines]
    low, high = (tool.quantile(lines, 0.02), tool.quantile(lines, 0.98)) if lines else (1, 1)
    run.split = (low * high) ** 0.5 if high > APART * low else None


def samples_of(results, timing):
    """Return the seconds of each call or batch on the slowest rank."""
    return [max(several) for several in zip(*(getattr(result, timing) for result in results))]


def summary_of(samples):
    return [min(samples), tool.median(samples), tool.quantile(samples, 0.99)]


def skips(row, contender):
    """Return whether a contender has no turn in a row."""
    cell = row.cells[contender.name]
    if contender.absent or cell.over or not cell.offered or (contender.self_only and row.collective not in SELF):
        return True
    if contender.over[-2:] == [row.collective] * 2:
        cell.over = "it took too long twice before"
        return True
    return contender.kind == "trip" and row.collective != row.run.rows[0].collective


def take_turn(row, contender, keep):
    run, cell, options = row.run, row.cells[contender.name], row.run.options
    if contender.entry.program == "fi_pingpong":  # it reports one mean
        seconds = compare_links.pingpong(run, contender, row.bytes) if row.bytes else 0
        if seconds > 0:
            cell.turns.append(Turn([], fresh=[seconds] * 3, again=[seconds] * 3))
        return
    order = (NAMES.index(row.collective), not cell.turns, keep, 0, 2, 0, run.measures_line, row.bytes, options.turn_seconds / 15)
    where, begin = f"{row.collective} of {row.bytes} bytes", time.monotonic()
    try:
        results = compare_links.turn(run, contender, where, options.cell - cell.seconds, (*order, options.turn_seconds))
    except compare_links.Over:
        cell.over = f"more than {options.cell} s"
        contender.over.append(row.collective)
        return
    cell.seconds += time.monotonic() - begin
    if results is None:
        return  # it is excluded, and the others continue
    wrong_values(run, contender, cell, results, where)
    samples = {timing: samples_of(results, timing) for timing in TIMINGS}
    cell.offered = bool(samples["fresh"])
    if cell.offered:
        cell.turns.append(Turn(results[0].lines, **{timing: summary_of(several) for timing, several in samples.items()}))
        cell.calls += results[0].calls * len(samples["again"]) + len(samples["fresh"])


def free_memory():
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable"))


def take_turns(row, keep):
    """Let all have their turns, those that a resumed run has not had. Then those that have none in the placement of the others
    have more, as long as the cores may come back there."""
    run, n = row.run, len(row.run.contenders)
    for round_ in range(2 * run.options.rounds):
        place = row.placement
        for i in range(n):
            one = run.contenders[(i + round_) % n]  # another contender starts each round
            turns = row.cells[one.name].turns
            lacks = turns and all(turn.placement(run.split) != place for turn in turns) and one.kind != "trip"
            if run.interrupted:
                return
            run.progress.show(run.turns_done, run.turns, f"{row.collective} {row.bytes}, {one.name}")
            run.turns_done += round_ < run.options.rounds
            if (round_ > 1 and is_far_behind(row, one)) or skips(row, one):
                continue
            if len(turns) <= round_ if round_ < run.options.rounds else lacks:
                take_turn(row, one, keep)
        learn_split(run)


def measure_row(row):
    run, free, begin = row.run, free_memory(), time.monotonic()
    ranks = run.options.ranks
    need = row.bytes * ranks * sum(ranks if part is ALL else part for part in SHARDS.get(row.collective, ()))
    # keep buffers if those of all contenders fit; scratch memory of peers may be twice as large, and it stays
    keep = need * sum(not one.absent for one in run.contenders) < free / 2
    if need * 3 > free:
        run.progress.clear()
        run.turns_done += run.options.rounds * len(run.contenders)
        row.left_out = f"{free >> 20} MiB of memory are free"
        tool.say(f"{row.collective} of {row.bytes} bytes is left out: {row.left_out}")
        return
    take_turns(row, keep)
    row.seconds += time.monotonic() - begin


def measure(run, save):
    """Measure all rows, and save after each what there is."""
    sizes = {name: run.options.sizes if name in SHARDS else [0] for name in NAMES if name in run.options.only}
    run.turns = sum(map(len, sizes.values())) * run.options.rounds * len(run.contenders)
    rows = {(row.collective, row.bytes): row for row in run.rows}
    wanted = [(name, n) for name, several in sizes.items() for n in several]
    rows.update((key, Row(run, *key)) for key in wanted if key not in rows)
    run.rows = [rows[key] for key in sorted(rows, key=lambda key: (NAMES.index(key[0]), key[1]))]
    for key in wanted:
        if not run.interrupted:
            measure_row(rows[key])
            save()
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
        wire = [row.cells[one.name].times("fresh", 0) for one in run.of_kind("bound")]
        least = min((seconds for several in wire for seconds in several), default=0)
        for one in run.of_kind("peer"):
            cell = row.cells[one.name]
            faster = sum(seconds < least / OFF_WIRE for seconds in cell.times("fresh"))
            cell.off_wire = 2 * faster > len(cell.turns)


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
    try:
        results = compare_links.turn(run, contender, f"allreduce_in of {one.bytes} bytes", run.options.cell, order, model)
    except compare_links.Over:
        contender.absent = f"a turn took more than {run.options.cell} s"
        return
    if results is None:
        return  # it is excluded, and the others continue
    wrong_values(run, contender, one, results, f"a step, {one.reduces}")
    for i, seconds in enumerate(samples_of(results, "again")):  # even ones are computing alone
        one.samples[i % 2].append(seconds)


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

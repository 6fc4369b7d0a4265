# SPDX-License-Identifier: Apache-2.0
"""The tables of twill-compare."""
import os

from compare_rounds import NAMES, SELF, TIMINGS, behind, first_ranks, of_what, ratio
from tool import plural

OURS = (("twill", "plain"), ("twill-alloc", "alloc"), ("twill-promoted", "promoted"))


def us(seconds, width):
    """Return microseconds, or "-" if there are none."""
    return f" {seconds * 1e6:{width}.{2 if seconds < 1e-4 else 1 if seconds < 1e-2 else 0}f}" if seconds > 0 else f" {'-':>{width}}"


def value(number, width, digits):
    return f" {number:{width}.{digits}f}" if number > 0 else f" {'-':>{width}}"


def spread(x):
    """Return a ratio with its spread, as in 1.20 (1.15-1.31)."""
    return f"{x.value:.2f} ({x.low:.2f}-{x.high:.2f})" if x else "-"


def print_head(run):
    options, ranks = run.options, plural(run.options.ranks, "rank")
    place = f"{len(options.hosts)} hosts" if options.hosts else f"{run.cores} cores"
    bound, rounds = "bound to cores" if run.bind else "not bound", plural(options.rounds, "round")
    print(f"# twill-compare: {ranks} on {place}, {bound}, f32 sum, {rounds} in turns")
    for (name, n), rank in zip(options.hosts, first_ranks(run)):
        hello = run.links.hellos.get(rank)
        calls, congestion = (hello.host, hello.congestion) if hello else ("", "")
        print(f"# host {name} ({calls}): {plural(n, 'rank')}, congestion control {congestion}")
    for setting in sorted(f"{key}={text}" for key, text in os.environ.items() if key.startswith("TWILL_")):
        print(f"# not the defaults: {setting}")
    if options.mpi or not options.steps:
        print("# +twill: the same program, libtwill-mpi loaded before the MPI; +off: +twill with TWILL_MPI=0.")
    if options.mpi:
        print("# alloc: memory of MPI_Alloc_mem(), else plain pages; nonblocking: calls waited for at once.")
    elif not options.steps:
        raw = "raw TCP, both ways at once (w: received into a window; s: in steps)"
        print("# plain: pages as malloc maps them; alloc: twill_alloc(); promoted: twill_promote().")
        print(f"# bound: {raw if options.hosts else 'nothing copied (s: streaming stores), or one way from core to core (c)'}.")
    if not options.steps:
        print("# fresh: all write their input and read their last result before each call; again: the same call in a loop.")
        print("# times: the least of the medians of the turns, on the slowest rank; x: the other one's over twill's (with the second")
        print("# best turn of twill's, and of the other's).")
    for one in run.contenders:  # some libraries describe themselves at length
        print(f"# {one.name:20} " + (f"left out: {one.absent}" if one.absent else one.library[:76]))


def summary(row, timing):
    bound, peer = row.best("bound", timing), row.best("peer", timing)
    limit, ours = row.time(bound, timing), [row.of(name) for name, _ in OURS]
    text = f"{row.bytes:11}" + (us(row.line, 8) if row.run.options.hosts else value(row.line * 1e9, 8, 0)) + us(limit, 9)
    text += bound.name.split("-")[1][0] if bound and "-" in bound.name else " "
    text += "".join(us(row.time(one, timing), 9) for one in ours)
    text += us(row.time(peer, timing), 9) + f" {peer.name if peer else '-':12}"
    text += "".join(f" {spread(row.ratio(peer, one, timing)):>18}" for one in ours)
    return text + "".join(value(100 * ratio(limit, row.time(one, timing)), 4, 0) for one in ours)


def cell_text(row, one, timing):
    cell = row.cells[one.name]
    if cell.over:
        return cell.over.replace("more than ", ">").replace(" s", "s") if cell.over.startswith("more") else "skipped"
    return us(row.time(one, timing), 0).strip() + ("!" if cell.off_wire else "") + ("wrong" if cell.wrong else "")


def details(row, one, timing):
    cell = row.cells[one.name]
    three = [cell.times(timing, which, row.placement, row.run.split) for which in range(3)]
    return "/".join(us(show(times), 0).strip() for show, times in zip((min, lambda x: sorted(x)[len(x) // 2], max), three)) if three[0] else "-"


def print_rows(run, rows, timing):
    hosts = run.options.hosts
    print(f"#\n# {rows[0].collective}{of_what(rows[0])}, {timing}")
    ours, wide = "".join(f" {name:>9}" for _, name in OURS), "".join(f" {'x, ' + name:>18}" for _, name in OURS)
    print(f"# {'bytes':>9} {'one way' if hosts else 'line ns':>8} {'bound us':>9} {ours} {'best peer':>22}{wide}  % of bound")
    for row in rows:
        print(summary(row, timing))
    show = details if run.options.details else cell_text
    there = [one for one in run.contenders if one.found and any(row.cells[one.name].turns or row.cells[one.name].over for row in rows)]
    cells = {one.name: [show(row, one, timing) for row in rows] for one in there}
    widths = {name: max(map(len, [name, *texts])) for name, texts in cells.items()}
    print(f"#\n# us{': minimum/median/99th percentile' if run.options.details else ''}\n# {'bytes':>9}", end="")
    print("".join(f" {name:>{width}}" for name, width in widths.items()))
    for i, row in enumerate(rows):
        print(f"#{row.bytes:10}" + "".join(f" {cells[name][i]:>{width}}" for name, width in widths.items()))


# --- each MPI program with and without twill -----------------------------------------------------


def pairs(run, self_only=False):
    return [one for one in run.contenders if one.below and one.found and (self_only or not one.self_only)]


def print_pairs(run, rows, timing):
    there = [one for one in pairs(run) if any(row.ratio(one.below, one, timing) for row in rows)]
    if not there:
        return
    print(f"#\n# {rows[0].collective}{of_what(rows[0])}, {timing}, us; x: time of the MPI alone over the same with twill\n# {'bytes':>9}", end="")
    print("".join(f" | {one.below.name:>11} {'+twill':>8} {'x':>18}" for one in there))
    for row in rows:
        print(f"{row.bytes:11}", end="")
        for one in there:
            both = us(row.time(one.below, timing), 11) + us(row.time(one, timing), 8)
            print("  " + both + f" {spread(row.ratio(one.below, one, timing)):>18}", end="")
        print()


def print_passed(run):
    """Print the cost of calls that twill passes on."""
    costs = []
    rows = [row for row in run.rows if row.collective in SELF]
    if rows:
        print("#\n# passed on to the MPI below: ns of a call without twill, with it, and the difference")
    for row in rows:
        print(f"{row.collective:16}", end="")
        for one in pairs(run, True):
            without, with_it = row.time(one.below, "again") * 1e9, row.time(one, "again") * 1e9
            if without > 0 and with_it > 0:
                print(f" | {one.name} {without:.1f} {with_it:.1f} {with_it - without:+.1f}", end="")
                costs.append((with_it - without, one.name, row.collective))
        print()
    if costs:
        most = max(costs, key=lambda cost: cost[0])
        print(f"# a call that is passed on takes {most[0]:.0f} ns more at most: {most[1]}, {most[2]}")


def print_behind(run):
    """Print what is slower than the best peer, or than the MPI below, by more than the spread."""
    found = behind(run)
    print("# slower than the best peer, or than the MPI below, by more than the spread:" + ("" if found else " none"))
    for row, timing, one, other, x in found:
        print(f"# {row.collective} of {row.bytes} bytes, {timing}: {one.name} {spread(x)} of {other.name}")


# --- --steps -------------------------------------------------------------------------------------


def print_steps(run):
    options = run.options
    by = "a device" if options.device else "the rank's core"
    print(f"# training steps: batch {options.batch} at {options.device_gflops} Gflop/s by {by}; medians of the slowest rank's times")
    print("# exposed: step - compute; x: exposed over twill's least")
    for path in options.steps:
        several = [one for one in run.steps if one.list == path and one.samples[1]]
        print(f"#\n# {path}: times in ms\n# {'':16} {'reduces':12} {'compute':>9} {'step':>9} {'exposed':>9} {'x':>7}")
        least = {}
        for kind in ("twill", "peer"):
            good = [one for one in several if not one.wrong and one.contender.kind == kind]
            least[kind] = min(good, key=lambda one: one.exposed, default=None)
        for one in several:
            times = "".join(f" {seconds * 1e3:9.3f}" for seconds in (one.compute, one.step, one.exposed))
            x = ratio(one.exposed, least["twill"].exposed) if least["twill"] else 0
            print(f"  {one.contender.name:16} {one.reduces:12}{times}" + value(x, 8, 2) + (" wrong" if one.wrong else ""))
        if all(least.values()):
            texts = [f"{one.contender.name} ({one.reduces}) {one.exposed * 1e3:.3f}" for one in least.values()]
            print("# exposed:", ", ".join(texts))


# --- all -----------------------------------------------------------------------------------------


def print_results(run):
    if run.options.steps:
        print_steps(run)
    for name in NAMES:
        rows = [row for row in run.rows if row.collective == name and not row.left_out]
        for timing in TIMINGS if rows and name not in SELF else ():
            if not run.options.mpi:
                print_rows(run, rows, timing)
            print_pairs(run, rows, timing)
    if run.options.mpi and pairs(run):
        print_passed(run)
    print("#")
    for one in run.contenders:
        marked = sum(row.cells[one.name].off_wire for row in run.rows)
        if marked:
            print(f"# {one.name}: {marked} of its results (!) {'is' if marked == 1 else 'are'} faster than the wire: these hosts are one "
                  "machine, through whose memory it went; left out of the best")  # fmt: skip
    for one in run.contenders:
        if one.found and one.absent:
            print(f"# {one.name} was left out: {one.absent}")
    if not run.options.steps:
        print_places(run)
        print_behind(run)
    print(f"# {run.seconds:.0f} s, {run.failures} wrong{' FAILED' if run.failures else ''}")


def print_places(run):
    """Print in which placements of the cores turns were made, and which of them are compared."""
    turns = [turn.placement(run.split) for row in run.rows for cell in row.cells.values() for turn in cell.turns]
    counts = {place: turns.count(place) for place in ("near", "far", "moved") if place in turns}
    if counts:
        print(f"# cores were near each other (a line in less than {run.split * 1e9:.0f} ns) or far:",
              ", ".join(f"{n} turns {place}" for place, n in counts.items()) + "; a row compares those of one kind")  # fmt: skip

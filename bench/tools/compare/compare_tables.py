# SPDX-License-Identifier: Apache-2.0
"""The tables of twill-compare."""
from compare_rounds import NAMES, SELF, first_ranks, of_what, ratio
from tool import plural


def us(seconds, width):
    """Return microseconds, or "-" if there are none."""
    return f" {seconds * 1e6:{width}.{2 if seconds < 1e-4 else 1 if seconds < 1e-2 else 0}f}" if seconds > 0 else f" {'-':>{width}}"


def value(number, width, digits):
    return f" {number:{width}.{digits}f}" if number > 0 else f" {'-':>{width}}"


def print_head(run):
    options, ranks = run.options, plural(run.options.ranks, "rank")
    place = f"{len(options.hosts)} hosts" if options.hosts else f"{run.cores} cores"
    bound, rounds = "bound to cores" if run.bind else "not bound", plural(options.rounds, "round")
    print(f"# twill-compare: {ranks} on {place}, {bound}, f32 sum, {rounds} in turns")
    for (name, n), rank in zip(options.hosts, first_ranks(run)):
        hello = run.links.hellos.get(rank)
        calls, congestion = (hello.host, hello.congestion) if hello else ("", "")
        print(f"# host {name} ({calls}): {plural(n, 'rank')}, congestion control {congestion}")
    if options.mpi:
        print("# +twill: the same program, libtwill-mpi loaded before the MPI; +off: +twill with TWILL_MPI=0.")
        print("# alloc: memory of MPI_Alloc_mem(), else plain pages; nonblocking: calls waited for at once.")
    elif not options.steps:
        raw = "raw TCP, both ways at once (w: received into a window; s: in steps)"
        print("# plain: pages as malloc maps them; alloc: twill_alloc(). x: the peer's time over twill's.")
        print(f"# tuned: freed memory kept, huge pages. bound: {raw if options.hosts else 'nothing copied (s: streaming stores)'};")
    if not options.steps:
        print("# a batch's time is the mean of its calls, on the slowest rank; times are medians over batches.")
    for one in run.contenders:  # some libraries describe themselves at length
        print(f"# {one.name:20} " + (f"left out: {one.absent}" if one.absent else one.library[:76]))


def summary(row):
    bound, installed, tuned = row.best("bound"), row.best("peer"), row.best("peer", True)
    plain, own, limit = row.of("twill"), row.of("twill-alloc"), row.median(bound)
    text = f"{row.bytes:11}" + (us(row.line, 8) if row.run.options.hosts else value(row.line * 1e9, 8, 0)) + us(limit, 9)
    text += bound.name.split("-")[1][0] if bound and "-" in bound.name else " "
    text += us(plain, 9) + us(own, 9)
    for best in (installed, tuned):
        text += us(row.median(best), 9) + f" {best.name if best else '-':16}"
    for best in (installed, tuned):
        text += "".join(value(ratio(row.median(best), mine), 6, 2) for mine in (plain, own))
    text += "".join(value(100 * ratio(limit, mine), 5, 0) for mine in (plain, own))
    return text + "".join(value(row.bus_bandwidth(one), 7, 2) for one in (plain, own, row.median(installed)))


def print_rows(run, rows):
    hosts, details = run.options.hosts, run.options.details
    print(f"#\n# {rows[0].collective}{of_what(rows[0])}")
    print(f"# {'':9} {'one way' if hosts else 'line':>8} {'bound':>10} {'twill':>8} {'twill':>9} {'best peer':>26} "
          f"{'best tuned peer':>26} {'x installed':>13} {'x tuned':>13} {'% of bound':>11} {'bus bandwidth, GB/s':>23}")  # fmt: skip
    print(f"# {'bytes':>9} {'us' if hosts else 'ns':>8} {'us':>9}  {'plain':>9} {'alloc':>9} {'us':>9} {'':16} {'us':>9} {'':16} "
          + f"{'plain':>6} {'alloc':>6} " * 2 + f"{'plain':>5} {'alloc':>5} {'plain':>7} {'alloc':>7} {'peer':>7}")  # fmt: skip
    for row in rows:
        print(summary(row))
    there, width = [one for one in run.contenders if one.found], 29 if details else 9
    print(f"#\n# us{': minimum median p99' if details else ', medians'}\n# {'bytes':>9}", end="")
    print("".join(f" {one.name:>{width}}" for one in there))
    for row in rows:
        print(f"#{row.bytes:10}", end="")
        for one in there:
            cell = row.cells[one.name]
            if details:
                print(us(cell.min, 9) + us(cell.median, 9) + us(cell.p99, 9), end="")
            else:
                print(us(cell.median, max(len(one.name), width)) + ("!" if cell.off_wire else ""), end="")
        print()


# --- --mpi, each MPI program with and without twill ----------------------------------------------


def pairs(run, self_only=False):
    return [one for one in run.contenders if one.below and one.found and (self_only or not one.self_only)]


def print_pairs(run, rows):
    print(f"#\n# {rows[0].collective}{of_what(rows[0])}, us; x: time without twill over time with it\n# {'bytes':>9}", end="")
    print("".join(f" | {one.below.name:>11} {'+twill':>8} {'x':>6}" for one in pairs(run)))
    for row in rows:
        print(f"{row.bytes:11}", end="")
        for one in pairs(run):
            print("  " + us(row.median(one.below), 11) + us(row.median(one), 8) + value(row.over_below(one), 6, 2), end="")
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
            without, with_it = row.median(one.below) * 1e9, row.median(one) * 1e9
            if row.over_below(one) > 0:
                print(f" | {one.name} {without:.1f} {with_it:.1f} {with_it - without:+.1f}", end="")
                costs.append((with_it - without, one.name, row.collective))
        print()
    if costs:
        most = max(costs, key=lambda cost: cost[0])
        print(f"# a call that is passed on takes {most[0]:.0f} ns more at most: {most[1]}, {most[2]}")


def print_least(run):
    ratios = [(row.over_below(one), one.name, row) for row in run.rows if row.collective not in SELF for one in run.contenders]
    ratios = [one for one in ratios if one[0] > 0]
    if ratios:
        least, name, row = min(ratios, key=lambda one: one[0])
        below = sum(one[0] < 1 for one in ratios)
        print(f"# smallest ratio: {least:.2f} ({name}, {row.collective} of {row.bytes} bytes); below 1: {below} of {len(ratios)}")


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
        rows = [row for row in run.rows if row.collective == name]
        if rows and not run.options.mpi:
            print_rows(run, rows)
        elif rows and name not in SELF and pairs(run):
            print_pairs(run, rows)
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
    print(f"# {run.seconds:.0f} s, {run.failures} wrong{' FAILED' if run.failures else ''}")
    if run.options.mpi:
        print_least(run)

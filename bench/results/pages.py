# SPDX-License-Identifier: Apache-2.0
"""What each page of docs/results/ shows: a function a page, which gets the files of its studies and returns blocks of Markdown and
plots, the conclusion last. Every figure of a sentence is computed from the files."""
import re
from dataclasses import dataclass
from typing import Callable

from plots import Panel, Plot, size_name

BY_HAND = ()  # pages that are not made
PAGES = []
INDEX = """Every figure comes from a program of this repository, which checks every value, and every page names its machine, its date and the command
that repeats it. The machines are small: nothing here was measured on a cluster. Compare within a page only, because a virtual machine changes
from minute to minute. The data are in bench/results/, [speed.json](speed.json) has the times of all contenders of the comparisons, and
[bench/results/measure.sh](../../bench/results/measure.sh) measures the studies anew."""
TITLES = {
    "bound": "bound", "bound-stream": "bound, past the caches", "bound-copy": "one-way copy", "ompi5": "Open MPI 5", "ompi5-han": "Open MPI 5, han",
    "ompi5-xhc": "Open MPI 5, xhc", "ompi5-acoll": "Open MPI 5, acoll", "mpich5": "MPICH 5", "impi": "Intel MPI", "oneccl": "oneCCL", "ucc": "UCC",
    "twill-registered": "twill, twill_register", "twill-promoted": "twill, twill_promote", "deepspeed": "DeepSpeed", "vllm": "vLLM", "gloo": "Gloo, ring", "gloo-halving": "Gloo, halving and doubling", "torch-gloo": "PyTorch's Gloo",
    "ompi-cma": "Open MPI, CMA", "ompi-copy": "Open MPI, copies", "ompi-ucx": "Open MPI, UCX", "ompi-tcp": "Open MPI, TCP",
    "ompi-tcp2": "Open MPI, two connections of TCP", "mpich": "MPICH, UCX", "mpich-copy": "MPICH, UCX without CMA", "ompi": "Open MPI",
    "twill": "twill", "twill-huge": "twill, huge pages", "twill-alloc": "twill, twill_alloc", "twill-heap": "twill, TWILL_HEAP=shared",
    "twill-ofi": "twill over libfabric", "twill-thread": "twill, thread", "raw": "raw TCP", "peer": "best peer",
}  # fmt: skip
CALLS = {"allreduce_in": "allreduce in place", "allreduce_out": "allreduce out of place"}


@dataclass
class Page:
    name: str
    files: tuple
    group: str
    title: str
    question: str
    make: Callable


def page(group, title, question, *files):
    """Register a function as the page of the studies `files`, or of the one of its own name."""
    def add(function):
        name = function.__name__.replace("_", "-")
        PAGES.append(Page(name, files or (name,), group, title, question, function))
        return function
    return add


class Study:
    def __init__(self, file):
        self.file, self.tables = file, file["tables"]

    def rows(self, table, **where):
        """Return the rows of a table as dictionaries, those with these cells."""
        found = [dict(zip(self.tables[table]["units"], row)) for row in self.tables[table]["rows"]]
        return [row for row in found if all(row[key] == value for key, value in where.items())]

    def cell(self, table, column, **where):
        """Return one cell."""
        return self.rows(table, **where)[0][column]

    def column(self, table, column, **where):
        return [row[column] for row in self.rows(table, **where) if row[column] is not None]

    def listed(self, table, **where):
        """Return a table as it is, as Markdown."""
        units = self.tables[table]["units"]
        heads = [key + (f", {unit}" if unit not in ("", "B", "x") else "") for key, unit in units.items()]
        return markdown(heads, [[shown(cell, units[key]) for key, cell in row.items()] for row in self.rows(table, **where)])


def title_of(contender):
    """Return what a reader calls a contender of twill-compare."""
    base, title = contender, ""
    for suffix, words in (("+twill", " with twill"), ("+off", ", twill switched off"), ("-tuned", ", tuned"), ("-nonblocking",
        ", nonblocking"), ("-persistent", ", persistent")):
        if base.endswith(suffix):
            base, title = base.removesuffix(suffix), words + title
    if base in ("ompi-alloc", "mpich-alloc"):
        base, title = base.removesuffix("-alloc"), ", MPI_Alloc_mem" + title
    return TITLES.get(base, base) + title


def number(value):
    """Return a number with three digits or, from 100 on, without a fraction."""
    return "" if value is None else value if isinstance(value, str) else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def shown(cell, unit=""):
    """Return a cell as text; ratios below one are bold."""
    if isinstance(cell, (int, float)) and not isinstance(cell, bool) and unit == "B":
        return size_name(cell) if cell >= 8 and cell % 8 == 0 and size_name(cell).replace(" ", "")[:-3].isdigit() or cell < 1024 else f"{cell:,} B"
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else number(cell)


def ratio(value):
    """Return how many times as fast, in bold if it is slower."""
    if value is None:
        return ""
    text = f"{value:.2f}" if value < 0.995 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"
    return f"**{text}**" if value < 0.995 else text


def markdown(heads, rows):
    return "\n".join("| " + " | ".join(line) + " |" for line in [heads, ["---"] * len(heads)] + [[number(cell) for cell in row] for row in rows]).replace(
        "| ---", "|---").replace("--- |", "---|")


def span(values, show=None):
    """Return "2.1 to 8.4"."""
    show = show or (lambda value: ratio(value).strip("*"))
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} to {high}"


def percent(part):
    return f"{100 * part:.0f} %" if part >= 0.01 else f"{100 * part:.2g} %"


# --- collectives ----------------------------------------------------------------------------------------


def fastest(study, kind, tuned=None):
    """Return the least time of each (collective, bytes) among the contenders of a kind."""
    names = [row["name"] for row in study.rows("contenders", kind=kind) if tuned in (None, row["tuned"])]
    best = {}
    for row in study.rows("times"):
        times = [row[name] for name in names if row.get(name) is not None]
        if times:
            best[row["collective"], row["bytes"]] = min(times)
    return best


def of(study, name):
    return {(row["collective"], row["bytes"]): row.get(name) for row in study.rows("times")}


TERMS = """- **fresh**: before each call all ranks write their input and read their last result, and all begin at one time. **again**: the same call in a loop.
- **bound**: the fastest of programs that see all buffers and copy nothing that need not be, between two barriers. They are measured, so a
  library that saves a barrier can be faster.
- **malloc**, **promoted**, **twill_alloc**: twill on buffers of malloc, the same with `twill_promote()`, and buffers of `twill_alloc()`, all
  with its defaults and without a calibration.
- **best peer**: the fastest variant of the other libraries.
- **x**: how many times as long the best peer takes. Values below 1 are bold, and those that are below by more than the spread, which the second
  best turns give, are listed."""
MEMORIES = {"twill": "malloc", "twill-promoted": "promoted", "twill-alloc": "twill_alloc"}
TIMINGS = {"fresh": "times", "again": "again"}


def timed(study, table, name, kind=None):
    """Return the times of a contender, or of the fastest of a kind."""
    names = [row["name"] for row in study.rows("contenders") if (row["kind"] == kind if kind else row["name"] == name)]
    found = {}
    for row in study.rows(table):
        times = [row[one] for one in names if row.get(one) is not None]
        if times:
            found[row["collective"], row["bytes"]] = min(times)
    return found


def ratio_tables(study):
    """Return x of all collectives on all kinds of memory, for each timing."""
    blocks = []
    for timing in TIMINGS:
        at = {(row["collective"], row["bytes"], row["name"]): row["x"] for row in study.rows("ratios", timing=timing)}
        calls = list(dict.fromkeys(key[0] for key in at))
        cells = [[CALLS.get(call, call), shown(n, "B") if n else ""] + [ratio(at.get((call, n, name))) for name in MEMORIES]
                 for call in calls for n in sorted({key[1] for key in at if key[0] == call})]  # fmt: skip
        blocks += [f"x of all collectives, {timing}:", markdown(["collective", "bytes", *MEMORIES.values()], cells)]
    return blocks


def drop_in_tables(study):
    """Return x of MPI programs with libtwill-mpi loaded before the MPI, over the MPI alone."""
    rows = [row for row in study.rows("ratios") if "+" in row["name"]]
    mpis = list(dict.fromkeys(row["name"] for row in rows))
    at = {(row["collective"], row["bytes"], row["timing"], row["name"]): row["x"] for row in rows}
    cells = [[CALLS.get(call, call), shown(n, "B") if n else ""] +
             [" / ".join(ratio(at.get((call, n, timing, name))) or "-" for timing in TIMINGS) for name in mpis]
             for call, n in dict.fromkeys((row["collective"], row["bytes"]) for row in rows)]  # fmt: skip
    heads = [title_of(name.removesuffix("+twill")) for name in mpis]
    return ["MPI programs: how many times as long they take without twill preloaded, fresh / again:",
            markdown(["collective", "bytes", *heads], cells)] if rows else []  # fmt: skip


def behind(study):
    """Return the ratios that are below 1 by more than their spread: on twill's own calls, and of the drop-in."""
    slow = [row for row in study.rows("ratios") if row["high"] < 1 and (row["name"] in MEMORIES or "+" in row["name"])]
    cells = [[CALLS.get(row["collective"], row["collective"]), shown(row["bytes"], "B") if row["bytes"] else "", row["timing"],
              MEMORIES.get(row["name"], title_of(row["name"])), title_of(row["to"]), f"{row['x']:.2f} ({row['low']:.2f} to {row['high']:.2f})"]
             for row in slow]  # fmt: skip
    return slow, markdown(["collective", "bytes", "timing", "twill", "faster", "x"], cells)


ONE_NODE = "How long does a collective take between two processes of one machine, beside the other libraries and beside what the machine allows?"


@page("Collectives", "One node, two ranks", ONE_NODE)
def one_node(study):
    ours = {"bound": (None, "bound"), **{memory: (name,) for name, memory in reversed(MEMORIES.items())}, "best peer": (None, "peer")}
    blocks, curves = [TERMS], {}
    for timing, table in TIMINGS.items():
        times = {label: timed(study, table, *which) for label, which in ours.items()}
        keys = [key for key in times["malloc"] if key[0] == "allreduce_in"]
        curves[timing] = {label: [(key[1], each[key]) for key in keys if key in each] for label, each in times.items()}
        blocks += [f"Microseconds of an allreduce in place, f32 sum, {timing}:", markdown(["bytes", *ours],
            [[shown(key[1], "B")] + [number(each.get(key)) for each in times.values()] for key in keys])]  # fmt: skip
    panels = [Panel(lines, "bytes of a rank", "microseconds", timing, "bytes", "log") for timing, lines in curves.items()]
    blocks.insert(1, Plot(study.file["study"], panels, "Time of an allreduce in place over its size, of twill, the best other library and the bound"))
    blocks += ratio_tables(study) + drop_in_tables(study)
    slow, listed = behind(study)
    blocks += ["Slower than the best peer, or than the MPI below, by more than the spread:", listed] if slow else []
    if "limits" in study.tables:
        blocks += ["Cells that took too long, and are left out:", study.listed("limits")]
    own = [row for row in study.rows("ratios") if row["name"] in MEMORIES]
    drop = [row for row in study.rows("ratios") if "+" in row["name"]]

    def count(rows):
        return f"{sum(row['high'] < 1 for row in rows) or 'none'} of {len(rows)}"

    def reduced(memory):
        return span([row["x"] for row in own if row["collective"] == "allreduce_in" and row["name"] == memory])

    end = (f"An allreduce in place of twill is {reduced('twill')} times as fast as the best peer on buffers of malloc, and "
           f"{reduced('twill-alloc')} times on buffers of twill_alloc. {count(own)} ratios to the best peer are below 1 by more than the "
           f"spread, and {count(drop)} of those of MPI programs.")  # fmt: skip
    return blocks + [end]


@page("Collectives", "MPI programs", "How much faster does an MPI program run with libtwill-mpi preloaded, without being compiled again?")
def mpi_programs(study):
    rows = study.rows("ratios") if "ratios" in study.tables else with_mpi(study)
    mpis = list(dict.fromkeys(row["mpi"] for row in rows))
    blocks = ["Microseconds of the MPI alone; x is how many times as fast the same call is with twill preloaded, on buffers of malloc and "
              "of `MPI_Alloc_mem`. "
              "Values below 1 are bold."]  # fmt: skip
    for call in dict.fromkeys(row["collective"] for row in rows):
        sizes = list(dict.fromkeys(row["bytes"] for row in rows if row["collective"] == call))
        at = {(row["bytes"], row["mpi"]): row for row in rows if row["collective"] == call}
        cells = [[shown(n, "B")] + [cell for mpi in mpis for cell in (number(at[n, mpi]["alone"]), ratio(at[n, mpi]["malloc"]), ratio(at[n, mpi][
            "MPI_Alloc_mem"]))]
                 for n in sizes]  # fmt: skip
        blocks += [f"{CALLS.get(call, call).capitalize()}:", markdown(["bytes"] + [head for mpi in mpis for head in (mpi + ", us", "x",
            "x, MPI_Alloc_mem")], cells)]
    curves = {f"{mpi}, {memory}": [(row["bytes"], row[memory]) for row in rows if row["mpi"] == mpi and row["collective"] == "allreduce_in"]
              for mpi in mpis for memory in ("malloc", "MPI_Alloc_mem")}  # fmt: skip
    blocks.insert(1, Plot("mpi-programs", [Panel(curves, "bytes of a rank", "times as fast with twill", "allreduce in place", "bytes",
        "log")],
                          "How many times as fast an allreduce of an MPI program is with twill preloaded"))  # fmt: skip
    first = [row["malloc"] for row in rows if row["collective"] == "allreduce_in"]
    last = [row["malloc"] for row in rows if row["collective"] == "broadcast"]
    end = f"With twill preloaded an allreduce is {span(first)} times as fast, and a broadcast {span(last)} times. "
    if "count" in study.tables:
        count, slow = study.rows("count")[0], study.rows("slower")
        blocks += ["Cases in which the MPI alone is faster:", study.listed("slower")]
        end += (f"Of {count['ratios']} ratios of nine collectives, blocking, nonblocking and on `MPI_Alloc_mem`, from 8 B to 16 MiB, "
                f"{count['at least 1']} are at "
                f"least 1, and the least is {min(row['ratio'] for row in slow if row['case'].startswith('least')):.2g}.")  # fmt: skip
    else:
        every = [x for row in rows for x in (row["malloc"], row["MPI_Alloc_mem"]) if x]
        end += f"Of {len(every)} ratios {sum(x >= 0.995 for x in every)} are at least 1, and the least is {min(every):.2g}."
    return blocks + [end]


def with_mpi(study):
    """Return the ratios of an MPI alone to the same with twill, from the times of a comparison."""
    rows = []
    for row in study.rows("times"):
        for name, mpi in (("ompi", "Open MPI"), ("mpich", "MPICH"), ("ompi5", "Open MPI 5"), ("mpich5", "MPICH 5"), ("impi", "Intel MPI")):
            if row.get(name + "+twill"):
                own = row.get(name + "-alloc+twill") and row[name + "-alloc"] / row[name + "-alloc+twill"]
                rows.append({"collective": row["collective"], "bytes": row["bytes"], "mpi": mpi, "alone": row[name],
                             "malloc": row[name] / row[name + "+twill"], "MPI_Alloc_mem": own})  # fmt: skip
    return rows


@page("Collectives", "Two hosts", "How close does an allreduce between two hosts come to raw TCP, and how does it compare with the other "
                                  "libraries?",
      "two-hosts-bbr", "two-hosts-cubic", "two-hosts-reno")  # fmt: skip
def two_hosts(*studies):
    blocks, panels, ends = ["The two hosts are network namespaces of one machine, joined by veth, with one rank and one core each, so the "
                            "two cores move all bytes. "
                            "*Raw* is the fastest of three programs that exchange as many bytes both ways over one TCP connection."], [], []  # fmt: skip
    for study in studies:
        control = study.file["study"].split("-")[-1]
        each = {"raw TCP": fastest(study, "bound"), "twill, own TCP": of(study, "twill"), "best peer": fastest(study, "peer", False),
            "twill over libfabric": of(study, "twill-ofi")}
        keys = [key for key in each["twill, own TCP"] if key[0] == "allreduce_in" and key in each["raw TCP"]]
        panels.append(Panel({label: [(key[1], times[key]) for key in keys] for label, times in each.items()}, "bytes of a rank",
            "microseconds", control, "bytes", "log"))
        blocks += [f"Microseconds of an allreduce in place with the congestion control {control}:",
                   markdown(["bytes"] + list(each), [[shown(key[1], "B")] + [number(times[key]) for times in each.values()] for key in keys])]  # fmt: skip
        faster = [each["best peer"][key] / each["twill, own TCP"][key] for key in keys]
        over = [each["twill, own TCP"][key] / each["raw TCP"][key] for key in keys]
        ends.append(f"With {control} an allreduce of twill is {span(faster)} times as fast as the best peer and takes {span(over)} times "
                    "as long as raw TCP.")
    blocks.insert(1, Plot("two-hosts", panels, "Time of an allreduce between two hosts over its size, by congestion control"))
    return blocks + [" ".join(ends)]


@page("Collectives", "Congestion control between hosts", "Which congestion control suits twill's TCP between hosts of one network, bbr or "
                                                         "reno?")
def congestion(study):
    rows = study.rows("times")
    cells = [[row["program"], row["collective"], shown(row["bytes"], "B"), number(row["bbr"]), number(row["reno"]), ratio(row["bbr"] / row[
        "reno"])] for row in rows]
    curves = {key: [(f"{row['program']}, {row['collective']}, {size_name(row['bytes'])}", row[key] / 1000) for row in rows] for key in (
        "bbr", "reno")}
    return ["Four ranks on two hosts, which are network namespaces of one machine with two cores. Calls of bbr and reno took turns.",
            Plot("congestion", [Panel(curves, y="milliseconds", bars=True)], "Time of collectives between two hosts with bbr and with "
                "reno"),
            markdown(["program", "call", "bytes", "bbr, us", "reno, us", "bbr / reno"], cells),
            f"With reno these calls are {span([row['bbr'] / row['reno'] for row in rows])} times as fast as with bbr, because bbr takes "
            "packets that overtake each other "
            "for lost ones. Therefore twill's TCP uses reno where the system has bbr and all hosts are in one network "
            "(`TWILL_TUNE=congestion=bbr` keeps bbr)."]  # fmt: skip


@page("Collectives", "Memory of a GPU", "How long do collectives on CUDA memory take, beside copies by hand and beside Gloo?")
def gpu(study):
    rows = study.rows("times")
    blocks = ["Ranks share one GPU. *Copies to malloc* is a copy from the device, the call on memory of malloc, and a copy back. *By hand* "
              "is the same by torch with a pinned "
              "tensor. *Gloo* is PyTorch's, with CUDA tensors; its send ends the process. x is how many times as fast as Gloo twill is. A "
              "message is there and back."]  # fmt: skip
    panels = []
    for ranks in (2, 4):
        here = [row for row in rows if row["ranks"] == ranks]
        cells = [[row["call"], shown(row["bytes"], "B")] + [number(row[key]) for key in ("twill", "copies to malloc", "by hand pinned",
            "Gloo")]
                 + [ratio(row["Gloo"] / row["twill"]) if row["Gloo"] else ""] for row in here]  # fmt: skip
        blocks += [f"Microseconds, {ranks} ranks:", markdown(["call", "bytes", "twill", "copies to malloc", "by hand", "Gloo", "x"], cells)]
        panels.append(Panel({name: [(row["bytes"], row[key]) for row in here if row["call"] == "allreduce"]
                             for name, key in (("twill", "twill"), ("copies to malloc", "copies to malloc"), ("by hand, pinned",
                                 "by hand pinned"), ("Gloo", "Gloo"))},
                            "bytes of a rank", "microseconds", f"allreduce, {ranks} ranks", "bytes", "log"))  # fmt: skip
    blocks.insert(1, Plot("gpu", panels, "Time of an allreduce on CUDA memory over its size, with two and four ranks"))
    gloo = [row["Gloo"] / row["twill"] for row in rows if row["Gloo"]]
    hand = [row["by hand pinned"] / row["twill"] for row in rows]
    blocks.append("""- Data goes to memory that the ranks of the node share, where peers read it in place, and which is pinned from its second use on.
- Short copies to the device are made as two rows. As one they are commands of the engine that computes, for which processes that share a GPU wait in turns.
- Large calls spend most of their time in copies: all ranks copy in, then out. Copies are not overlapped with the call.
- Not run: several GPUs, hosts with GPUs, GPUDirect (data always goes through the host) and other drivers. CI has no GPU.""")
    return blocks + [f"On CUDA memory twill's collectives are {span(gloo)} times as fast as Gloo's, with right values in all runs. Against "
                     "copies by hand with pinned memory "
                     f"all calls are {span(hand)} times as fast."]  # fmt: skip


@page("Collectives", "Kinds of memory", "How far do the rates of two kinds of memory differ only because of noise?")
def memory_kinds(study):
    rows = study.rows("rates")
    curves = {"DDR": [(row["what"], 1) for row in rows], "DDR, taken for HBM": [(row["what"], row["mcdram"] / row["ddr"]) for row in rows]}
    apart = max(abs(row["mcdram"] / row["ddr"] - 1) for row in rows)
    return ["The machine has DDR only and was told that the same memory is also HBM, so every ratio should be 1.",
            Plot("memory-kinds", [Panel(curves, y="rate over that of DDR", bars=True)], "Rates of a kind of memory over those of DDR"),
            markdown(["what", "DDR, GB/s", "taken for HBM, GB/s", "ratio"], [[row["what"], number(row["ddr"]), number(row["mcdram"]),
                f"{row['mcdram'] / row['ddr']:.2f}"] for row in rows]),
            f"The largest difference is {percent(apart)}: on a real machine smaller differences mean nothing. `twill-place` measures each "
            "kind of memory on yours."]  # fmt: skip


@page("Collectives", "Threads of a rank", "What does a rank with several cores gain by threads, beside what the memory allows?")
def many_cores(study):
    local, calls = study.rows("local"), study.rows("allreduce")
    counts = sorted({row["threads"] for row in local})
    sizes = sorted({row["bytes"] for row in local})
    at = {(row["bytes"], row["threads"]): row for row in local}
    most, largest = counts[-1], sizes[-1]
    blocks = ["GB/s of twill's sum of two arrays on one rank, by the bytes of an array and the number of threads. The last two columns are "
              f"a triad and a copy by {most} threads in the same run.",
              markdown(["bytes"] + [f"{n}" for n in counts] + ["triad", "copy"],
                       [[shown(size, "B")] + [number(at[size, n]["sum"]) if (size, n) in at else "" for n in counts]
                        + [number(at[size, most][key]) if (size, most) in at else "" for key in ("triad", "copy")] for size in sizes])]  # fmt: skip
    curves = {f"sum, {size_name(size)}": [(n, at[size, n]["sum"]) for n in counts if (size, n) in at] for size in sizes[::2]}
    curves[f"triad, {size_name(largest)}"] = [(n, at[largest, n]["triad"]) for n in counts if (largest, n) in at]
    blocks.append(Plot("many-cores", [Panel(curves, "threads", "GB/s", "a local sum", "log", "log")],
                       "Rate of a local sum by the number of threads of a rank, for several sizes, beside a triad"))  # fmt: skip
    peers = {}
    for row in study.rows("peers") if "peers" in study.tables else []:
        peers[row["ranks"], row["threads"], row["bytes"]] = row
    triad, gains, shares, ratios, cells = at[largest, most]["triad"], [], [], [], []
    for row in calls:
        if row["in place"] is None:
            continue
        key, one = (row["ranks"], row["threads"], row["bytes"]), row["in place by one thread"]
        peer = peers.get(key)
        if row["threads"] > 1 and one:
            gains.append(one / row["in place"])
        if row["bytes"] == max(each["bytes"] for each in calls):
            shares.append(row["moved in place"] / triad)
        if peer:
            ratios.append(peer["time"] / row["in place"])
        cells.append([f"{row['ranks']} x {row['threads']}", row["memory"], shown(row["bytes"], "B"), number(row["in place"]),
                      ratio(one / row["in place"]) if row["threads"] > 1 and one else "", percent(row["moved in place"] / triad),
                      f"{number(peer['time'])} ({TITLES.get(peer['peer'], peer['peer'])})" if peer else ""])  # fmt: skip
    blocks += ["Microseconds of an allreduce in place of f32 by ranks x threads. x is how many times as fast as the same ranks with one "
               f"thread. *Of the triad* counts each rank's data as read and written once, against {number(triad)} GB/s of a triad of "
               f"{most} threads; it can exceed 100 % in caches.",
               markdown(["ranks x threads", "buffers", "bytes", "us", "x", "of the triad", "best peer, us"], cells)]  # fmt: skip
    end = f"A local sum of {size_name(largest)} with {most} threads reaches {percent(at[largest, most]['sum'] / triad)} of the triad. "
    if gains:
        end += f"With threads an allreduce is {span(gains)} times as fast as with one thread a rank. "
    end += f"Of the largest size it moves {span(shares, percent)} of what the triad does. "
    if ratios:
        end += f"It is {span(ratios)} times as fast as the best peer that was there. "
    if "team" in study.tables:
        team, rows = study.rows("team"), []
        for row in team:
            if row["threads of the call"] != 1:
                continue
            same = [each for each in team if each["collective"] == row["collective"] and each["bytes"] == row["bytes"]]
            other = next((each["one calls"] for each in same if each["threads of the call"] != 1), None)
            best = min(each["team"] for each in same)
            rows.append([row["collective"], shown(row["bytes"], "B"), number(row["one calls"]), number(other), number(best),
                         ratio(min(row["one calls"], other or row["one calls"]) / best)])  # fmt: skip
        blocks += [f"Microseconds of calls of {team[0]['ranks']} ranks with {team[0]['threads']} threads. *One calls*: all threads meet, one "
                   "makes the call, alone or with the rank's own threads, and all meet again. *Team*: all threads call. x is how many times "
                   "as fast the team is as the better of the two.",
                   markdown(["call", "bytes", "one calls, us", "one calls with threads, us", "team, us", "x"], rows)]  # fmt: skip
        end += f"A team call is {span([float(row[-1].strip('*').replace(',', '')) for row in rows])} times as fast as a call by one thread between two meetings."
    return blocks + [end.strip()]


# --- training -------------------------------------------------------------------------------------------


@page("Training", "Training steps", "How much longer does the exchange of gradients make a training step than its computing alone?")
def training_steps(study):
    rows, cells, ratios = study.rows("exposed"), [], []
    for key in dict.fromkeys((row["model"], row["setting"], row["device"], row["computing"]) for row in rows):
        here = {}
        for row in rows:
            if (row["model"], row["setting"], row["device"], row["computing"]) == key:
                base = row["library"] if row["library"].startswith("twill") else row["library"].split(",")[0]
                old = here.get((base, row["reduces"] == "one call"))
                here[base, row["reduces"] == "one call"] = row["exposed"] if old is None else min(old, row["exposed"])
        ours = min(here["twill", False], here["twill-thread", False])
        peers = [value for (name, _), value in here.items() if not name.startswith("twill")]
        ratios.append((key, ours, min(peers)))
        cells.append([f"{key[0]}, {key[1]}, {key[2]:g} Tflop/s", number(key[3]), number(here["twill", False]), number(here["twill-thread", False])]
                     + [f"{number(here[peer, False])}, {number(here[peer, True])}" for peer in ("Open MPI", "MPICH", "Gloo")])  # fmt: skip
    names = [f"{key[0]}, {key[1]}, {key[2]:g} Tflop/s" for key, _, _ in ratios]
    curves = {"twill, the better way": list(zip(names, [ours for _, ours, _ in ratios])), "best other library and way": list(zip(names, [best for _, _, best in ratios]))}
    worst = max(ratios, key=lambda each: each[1] / each[2])
    return ["*Exposed* is the time of a step less that of its computing alone. The computing is played by a device beside the core, with a "
            "batch of 32. Other libraries "
            "reduce each tensor by a nonblocking call when its gradient is there, or all in one call after the backward pass (the two "
            "numbers of a cell). *twill* is a gradient set "
            "with its default options, with a test every 0.2 ms or with `TWILL_PROGRESS=thread`.",
            Plot("training-steps", [Panel(curves, y="exposed milliseconds of a step", bars=True)], "Exposed communication of a training "
                "step"),
            "Milliseconds:", markdown(["step", "computing", "twill, tests", "twill, thread", "Open MPI", "MPICH", "Gloo"], cells),
            f"In {sum(ours < best for _, ours, best in ratios)} of {len(ratios)} steps twill exposes less than any other library. The "
            f"closest is {worst[0][0]} on {worst[0][1]} at "
            f"{worst[0][2]:g} Tflop/s, where twill exposes {number(worst[1])} ms and the best other way {number(worst[2])} ms."]  # fmt: skip


@page("Training", "Overlap between hosts", "How much of a reduction between two hosts does the backward pass hide?")
def training_overlap(study):
    rows = study.rows("steps")
    part = lambda row: row["overlapped"] / (row["computing"] + row["reduction"])  # noqa: E731
    cells = [[row["model"], f"{row['device']:g}", row["progress"]] + [number(row[key]) for key in ("computing", "reduction", "after it",
        "overlapped")] + [f"{part(row):.2f}"] for row in rows]
    curves = {progress: [(row["model"], part(row)) for row in rows if row["progress"] == progress] for progress in dict.fromkeys(row[
        "progress"] for row in rows)}
    return ["Two hosts are joined by 1 Gbit/s, where the link and not the core limits the reduction. The last column is an overlapped step "
            "over the sum of computing and reduction.",
            Plot("training-overlap", [Panel(curves, y="overlapped step / (computing + reduction)", bars=True)], "Overlapped step over the "
                "sum of computing and reduction"),
            "Milliseconds:", markdown(["model", "device, Tflop/s", "progress", "computing", "reduction", "one after the other",
            "overlapped", "ratio"], cells),
            f"An overlapped step takes {span([part(row) for row in rows])} of the time of computing and reduction one after the other. "
            "Only the backward pass, two thirds of the "
            "computing, can hide anything in a step whose forward pass waits for all tensors."]  # fmt: skip


@page("Training", "Size of buckets", "How does the size of the buckets of a gradient set change what a step exposes?")
def training_buckets(study):
    rows = study.rows("exposed")
    curves = {"reduced " + key: [(row["bucket"], row[key]) for row in rows] for key in ("after the backward pass", "during it")}
    best, worst = min(rows, key=lambda row: row["during it"]), max(rows, key=lambda row: row["during it"])
    return ["ResNet-50 with a batch of 32 on two hosts that are joined by 1 Gbit/s. The computing is played by a device, and the program "
            "tests the set between slices.",
            Plot("training-buckets", [Panel(curves, "size of buckets", "exposed milliseconds of a step", "", "bytes", "log")],
                "Exposed communication of a step over the size of buckets"),
            study.listed("exposed"),
            f"Reduced after the backward pass, a step exposes {span([row['after the backward pass'] for row in rows], number)} ms whatever "
            "the size; reduced during it, "
            f"{number(best['during it'])} ms with buckets of {size_name(best['bucket'])}. With {size_name(worst['bucket'])} it is "
            f"{number(worst['during it'])} ms, "
            "because the last bucket is only ready at the end."]  # fmt: skip


@page("Training", "A comparison of trainings", "What do ways of training one network cost, in all six columns of a comparison that means something?")
def training_comparison(study):
    rows = study.rows("ways")
    show = lambda x, form="{:.3g}": "n/a" if x is None else form.format(x)  # noqa: E731
    cells = [[row["way"], f"{row['accuracy']:.3f}", show(row["to accuracy"]) + ("" if row["to accuracy"] is None else f" ({row['lowest']:.3g} to {row['highest']:.3g})"),
              f"{show(row['efficiency'], '{:.2f}')} ({show(row['best efficiency'], '{:.2f}')})", show(row["processor efficiency"], "{:.2f}"), show(row["overhead"], "{:.0f} %"), show(row["power"]),
              show(row["cost"], "{:,.0f}")] for row in rows]  # fmt: skip
    there = [row for row in rows if row["to accuracy"] is not None]
    fastest, cheapest = min(there, key=lambda row: row["to accuracy"]), min(there, key=lambda row: row["cost"])
    used = [row["processor efficiency"] for row in rows if row["ranks"] > 1 and row["processor efficiency"] is not None]
    others = study.file.get("others")
    several = [row["best efficiency"] for row in rows if row["ranks"] > 1 and row["best efficiency"] is not None]
    return ["A speed-up alone says little: the accuracy may differ, or the machine. So each way of training has six columns. The network "
            "(`examples/train.c`, 2,000 features, 128 hidden units) learns on 640 made samples of NT3's form, 12 epochs, and is judged on "
            "160 others. All ways take turns in each round.",
            "- **Accuracy** after all epochs. **Time to accuracy**: seconds of training until 95 % of the held-out samples are right, median "
            "(lowest to highest), without the judging.\n"
            "- **Efficiency**: T(1) / (n T(n)) for all epochs, of medians and, in brackets, of the lowest times. T(1) is the row of one rank "
            "with this batch; without it there is no efficiency. Of *processor time* it is C(1) / C(n), where C(n) is that of all ranks, "
            "without the time for which they sleep.\n"
            "- **Overhead**: part of the time that computing does not hide, on the mean rank.\n"
            "- **Power**: watts of the machine by RAPL, n/a where there is none (not run on hardware that has it).\n"
            "- **Cost**: node hours until that accuracy, in millionths, i.e. the price if a node costs 1 an hour and the training takes "
            "a million times as long. A node costs the same whether one of its cores works or all do.",
            markdown(["way", "accuracy", "time to accuracy, s", "efficiency", "of processor time", "overhead", "power, W", "cost"], cells),
            f"The least time to 95 % is {show(fastest['to accuracy'])} s ({fastest['way']}), and the lowest cost that of {cheapest['way']}. The efficiency of "
            f"two ranks, by the lowest times, is {span(several, two)}, and by processor time {span(used, two)}. "
            + (f"Other programs used {others} of the two cores meanwhile, and two ranks wait for each other whenever one of them has lost its "
               "core. So times and overheads of two ranks say little about a quiet machine. " if others and int(others.split()[0]) > 10 else "") +
            f"The accuracies of all ways differ by at most {max(row['accuracy'] for row in rows) - min(row['accuracy'] for row in rows):.3g}."]  # fmt: skip


@page("Training", "Processor time by batch", "Does a training take less processor time with larger mini-batches?")
def batch_sweep(study):
    rows = study.rows("times")
    curves = {f"{ranks} rank{'s' * (ranks > 1)}": [(row["batch"], row["processor"]) for row in study.rows("times", ranks=ranks)] for ranks in (1, 2)}
    falls = {ranks: [a["batch"] for a, b in zip(each, each[1:]) if b["processor"] >= a["processor"]] for ranks in (1, 2) for each in [study.rows(
        "times", ranks=ranks)]}
    one = study.rows("times", ranks=1)
    rises = [f"{ranks} rank{'s' * (ranks > 1)} from batches of {batch}" for ranks, batches in falls.items() for batch in batches]
    return ["`examples/recipes/sweep.sh` trains a network of 2,000 features and 256 hidden units, 512,513 parameters, for two epochs of 640 "
            "samples from one seed. A larger mini-batch has fewer updates of the parameters and fewer synchronisations. The processor time of all ranks "
            "depends less on other programs than the time does. Medians of the rounds, in which all take turns:",
            Plot("batch-sweep", [Panel(curves, "samples of a mini-batch", "seconds of processor time", xscale="log", yscale="log")],
                 "Processor time of a training over the mini-batch"), study.listed("times"),
            f"The processor time falls by {one[0]['processor'] / one[-1]['processor']:.1f} times from batches of {one[0]['batch']} to {one[-1]['batch']} on one rank, "
            + ("with each doubling, on one rank and on two." if not rises else f"with each doubling except {', '.join(rises)}.")
            + f" The accuracy after as many epochs falls as well, to {one[-1]['accuracy']:.2f}, as there are fewer updates at the same rate."]  # fmt: skip


@page("Training", "Compressed gradients", "On which links is a step with compressed gradients faster?")
def compression(study):
    rows, node = study.rows("link"), study.rows("node")
    codes = [key for key in rows[0] if key not in ("link", "f32")]
    curves = {code: [(row["link"], row[code]) for row in rows] for code in ["f32"] + codes}
    cells = [[number(row["link"])] + [f"{row[code]:.2f}" for code in codes] for row in rows]
    return ["A step with 4 MiB of gradients between two hosts, whose link is limited by tc. Values are times over those of f32 on the same "
            "link. Above 4 Gbit/s the two cores probably "
            "limit the link, not tc.",
            Plot("compression", [Panel(curves, "link, Mbit/s", "time / that of f32", "", "log", limits={"ylim": (0, 1.1)})],
                "Time of a step with compressed gradients over the rate of the link"),
            markdown(["link, Mbit/s"] + codes, cells), "On one node, in shared memory, 16 MiB, time over that of f32:",
            markdown(["code", "least", "most"], [[row["code"], row["least"], row["most"]] for row in node]),
            f"Between hosts int8 takes {span([row['int8'] for row in rows])} and f16 {span([row['f16'] for row in rows])} of the time of "
            "f32, the less the slower the link. On one node "
            f"every code makes a step {span([x for row in node for x in (row['least'], row['most'])])} times slower, so `automatic=1` "
            "decides by a trial in the first steps."]  # fmt: skip


VERDICTS = {
    "scaling": "The formulas agree (`test_bench_study`).", "overhead": "The counter and T(n) - T(1) agree within 10 %.", "ratio": "The ratio decides.",
    "minibatch": "The direction agrees.", "pattern": "The bytes agree; they are counted.", "dresden": "The counts agree; the share is "
        "predicted.",
    "hour": "Predicted, without the noise of that job.", "models": "The order agrees; [VGG-16](models.md) has a page.", "theta": "It grows, but little.",
    "epochs": "The counts agree.", "sweep": "The time falls with the batch.", "averages": "They differ, as published.", "pipeline": "Parts equal one rank; no speed-up is claimed.",
    "hybrid": "Parts equal one rank; no speed-up is claimed.", "loader": "Prefetching removes the waiting.", "nt3": "Phases and sizes agree; the data are made.",
    "memory": "There is no KNL here: [emulated](knl.md).", "energy": "There are no counters here.", "nodes": "Shown.", "placement": "Shown.",
    "oversubscribed": "At 4:1 the choice of 8 KiB changes.",
    "messages": "Another network.", "aries": "See [Theta](theta.md).",
}  # fmt: skip


@page("Training", "Published studies", "What was published of distributed training, and what do the same studies say on this machine?")
def studies(study):
    rows = study.rows("studies")
    cells = [[f"`{row['study']}`", row["published"], row["here"], VERDICTS.get(row["study"], "")] for row in rows]
    predicted = [row for row in rows if row["here"].startswith("predicted")]
    return ["`examples/studies.sh` repeats each study. Most are `twill-bench train`: the training step of a model, whose computing is "
            "played for the time that a device would "
            "take, with gradients reduced by a gradient set. Numbers of ranks that the job has are measured. Larger ones are predicted: "
            "the buckets of the set, each at its price by "
            "the machine model, one after the other, none before its gradients are there. A prediction has no noise, no contention and no "
            "slow rank.",
            "- Weak scaling: efficiency is T(1) / T(n), overhead T(n) - T(1). Strong scaling: speed-up is T(1) / T(n), efficiency that "
            "over n.\n"
            "- The overhead is checked by the library's own counter of exposed time.\n"
            "- The accuracy of the published trainings is not repeated: that needs their data and days. NT3 is trained on made data.",
            markdown(["study", "published", "here", "what it shows"], cells),
            f"{len(rows)} published studies are repeated by one command, of which {len(predicted)} are predictions, because they have more "
            "ranks than this machine. "
            f"{sum('agree' in VERDICTS.get(row['study'], '') for row in rows)} agree with what was published, and no training was run at "
            "the published size."]  # fmt: skip


@page("Training", "VGG-16 on 512 GPUs", "Why is VGG-16 the worst of Horovod's published models, and does the price model see that?",
    "studies")
def models(study):
    text = study.cell("studies", "here", study="models").removeprefix("predicted: ")
    rows = []
    for part in text.split(", "):
        found = re.fullmatch(r"(\w+) ([\d.]+) on (\d+)(?: of ([\d.]+) Tflop/s)?( by rings)?(?: at (\d+) Gbit/s)?", part)
        model, efficiency, ranks, device, rings, link = found.groups()
        rows.append((model, int(ranks), "a ring of all ranks" if rings else "chosen by price", device or "as published", int(link or 25), float(efficiency)))
    at = lambda *key: next(row[5] for row in rows if row[:5] == key)  # noqa: E731
    price = "chosen by price"
    plain = at("vgg16", 512, price, "as published", 25)
    rings = at("vgg16", 128, "a ring of all ranks", "as published", 25), at("vgg16", 512, "a ring of all ranks", "as published", 25)
    others = [row[5] for row in rows if row[0] in ("inceptionv3", "resnet101")]
    published = study.cell("studies", "published", study="models")
    return [f"Published: {published}.", "Efficiency, predicted by the price model with the published batch, network and speed of the "
                                        "device, except where a column says otherwise:",
            markdown(["model", "GPUs", "algorithm", "device, Tflop/s", "link, Gbit/s", "efficiency"], [[row[0], f"{row[1]}", row[2], row[3],
                f"{row[4]}", f"{row[5]:.3f}"] for row in rows]),
            "VGG-16 needs both a fast device and a slow link to be the worst: its multiply-adds run faster on the published GPU than those "
            "of Inception V3, so its backward pass is "
            "shorter than its reduction. The published efficiency falls from 128 to 512 GPUs because all of them were one ring. A network "
            "that does not reach its rate is "
            "what may still lack; no measurement of that network is published.",
            f"The model predicts {plain:.3f} for VGG-16 and {span(others, lambda x: f'{x:.3f}')} for Inception V3 and ResNet-101, so the "
            "order agrees with what was published. At the speed by "
            f"multiply-adds of Inception V3 it would be {at('vgg16', 512, price, '4.9', 25):.3f}, on 96 Gbit/s "
            f"{at('vgg16', 512, price, 'as published', 96):.3f}, at 21 of the 25 Gbit/s "
            f"{at('vgg16', 512, price, 'as published', 21):.3f}, and with rings it falls from {rings[0]:.3f} on 128 to {rings[1]:.3f} on "
            "512."]  # fmt: skip


# --- parameter servers ----------------------------------------------------------------------------------


SWITCHES = {
    "registered each time": "a new server, which registers the memory and compares the tensors, for each exchange",
    "copied": "buffers of malloc, which are copied, in place of those of twill_alloc, which are read and written in place",
    "described each time": "key, place, length and type of each chunk in a message before its push and its pull, in place of once",
    "not chunked": "a tensor is one chunk", "one core": "one rank serves all chunks", "ranks not bound": "`twillrun --bind none`",
    "scalar code": "`TWILL_TUNE=isa=scalar`: sums and optimizer without vectors",
    "workers update": "the server returns means, and each worker applies the optimizer to all parameters",
    "one tensor at a time": "the exchange of a tensor ends before the next one begins", "all of them off": "all of the above",
    "+ one key for all tensors": "all tensors in one buffer (fusion)", "+ threads that serve": "a thread of each server, `options.threads`",
}  # fmt: skip


def switched(study, table):
    """Return a table of contenders and their ratios to twill, for each model of a table of server-ablation."""
    rows = study.rows(table)
    models_ = list(dict.fromkeys(row["model"] for row in rows))
    at = {(row["model"], row["program"]): row for row in rows}
    cells = [[program] + [cell for model in models_ for row in [at.get((model, program))] for cell in (("", "", "", "") if row is None else (
        number(row["median"]), f"{row['ratio']:.2f}", f"{row['lowest ratio']:.2f} to {row['highest ratio']:.2f}", row["rounds"]))]
        for program in dict.fromkeys(row["program"] for row in rows)]  # fmt: skip
    return markdown(["program"] + [head for model in models_ for head in (f"{model}, 1/s", "ratio", "lowest to highest", "rounds")], cells)


def without(study, table, model):
    """Return the ratios of single switches, those of what the default has not, and those of other programs, by name."""
    ratios = {row["program"]: row["ratio"] for row in study.rows(table, model=model) if row["program"] not in ("twill", "all of them off")}
    off = {name: x for name, x in ratios.items() if name in SWITCHES and name[0] != "+"}
    return off, {name: x for name, x in ratios.items() if name[0] == "+"}, {name: x for name, x in ratios.items() if name not in SWITCHES}


@page("Parameter servers", "What a parameter server gains by what", "What does each means of the parameter server bring, and how does it "
    "compare with servers and allreduces by hand?", "server-ablation", "server-switches", "server-nodes")
def server_ablation(*studies):
    there = {study.file["study"]: study for study in studies}
    quiet, shared, nodes = there.get("server-switches"), there.get("server-ablation"), there.get("server-nodes")
    blocks = ["Exchanges of all gradients of a model a second, by two ranks that are workers and servers, one on each of two cores. Each "
              "line switches one means off, as in PHub's ablation (Luo et al. 2018), or adds one (+). It ran directly after the default, "
              "and its ratio is that of these two runs; the medians are of all rounds.",
              "\n".join(f"- *{name}*: {words}." for name, words in SWITCHES.items())]  # fmt: skip
    end = []
    if quiet:
        off, more, _ = without(quiet, "rates", "resnet50")
        most = min(off, key=off.get)
        blocks += ["On a machine of 16 cores on which nothing else ran:", switched(quiet, "rates"),
                   Plot("server-ablation", [Panel({"": list({**off, **more}.items())}, y="rate over that of the default", bars=True)],
                        "Rate with each switch over that of the default")]  # fmt: skip
        end.append(f"On the machine with nothing else {'every' if max(off.values()) < 1 else 'nearly every'} switch costs: {span(list(off.values()), two)} of "
                   f"the rate are left, the least by \"{most}\". What the default has not leaves {span(list(more.values()), two)}.")  # fmt: skip
    if shared:
        off, more, others = without(shared, "rates", "resnet50")
        blocks += ["Two cores, which other programs used as well, beside other libraries. The spreads show how much that disturbs:", switched(shared, "rates")]
        best = max(others, key=others.get) if others else None
        end.append(f"On the shared cores {not_slower(off)}" + (f", and the best other program, {best}, has {others[best]:.2f} of its rate." if best else "."))
    if nodes:
        off, more, _ = without(nodes, "rates", "orlob")
        blocks += ["The same two cores, shared as well, as two nodes that exchange messages over loopback:", switched(nodes, "rates")]
        end.append(f"Between nodes {not_slower(off)}; one key for the ten small tensors of orlob has {two(more['+ one key for all tensors'])} times the rate, "
                   "so put small tensors into one there.")  # fmt: skip
    return blocks + [" ".join(end)]


def two(x):
    return f"{x:.2f}"


def not_slower(off):
    """Say which switches have not made the default slower, by their ratios."""
    faster = [f'"{name}" ({x:.2f})' for name, x in off.items() if x >= 0.995]
    return ", ".join(faster) + (" is" if len(faster) == 1 else " are") + " not slower than the default" if faster else "the default is faster than each"


@page("Parameter servers", "Size of chunks", "Into chunks of which size should a parameter server cut its tensors?")
def server_chunks(study):
    rows, models_ = study.rows("rates"), list(dict.fromkeys(study.column("rates", "model")))
    sizes = list(dict.fromkeys(row["chunk"] for row in rows))
    at = {(row["model"], row["chunk"]): row for row in rows}
    name = lambda chunk: chunk if isinstance(chunk, str) else "whole tensors" if chunk == 0 else size_name(chunk)  # noqa: E731
    cells = [[name(chunk)] + [f"{number(at[model, chunk]['one node'])} / {number(at[model, chunk]['two nodes'])}" if (model, chunk) in at else "" for model in models_] for chunk in sizes]
    panels = [Panel({model: [(row["chunk"], row[where] / max(study.column("rates", where, model=model))) for row in rows if row["model"] == model and row[
        "chunk"] not in (0, "tuned")]
                     for model in models_}, "bytes of a chunk", "rate / highest rate of the model", where, "bytes") for where in (
                         "one node", "two nodes")]  # fmt: skip
    best = {where: [name(max((row for row in rows if row["model"] == model), key=lambda row: row[where])["chunk"]) for model in models_] for where in (
        "one node", "two nodes")}
    loss = [at[model, 0]["one node"] / max(study.column("rates", "one node", model=model)) for model in models_]
    return ["Exchanges a second of two ranks on two cores, on one node / as two nodes over loopback. By default the commit measures the "
            "sizes from 32 to 256 KiB and takes the fastest.",
            Plot("server-chunks", panels, "Rate of exchanges over the size of chunks"), markdown(["chunk"] + models_, cells),
            f"The fastest sizes are {', '.join(best['one node'])} on one node and {', '.join(best['two nodes'])} on two nodes "
            f"({', '.join(models_)}). Tensors that are not cut have "
            f"{span(loss)} of the highest rate on one node."]  # fmt: skip


@page("Parameter servers", "Credits against incast", "How do credits change the time of an exchange when many workers send to one server?")
def server_credits(study):
    rows, alone = study.rows("incast"), study.rows("alone")
    names = [str(row["credits"]) for row in rows]
    curves = {key: list(zip(names, [row[key] for row in rows])) for key in ("median", "99th percentile")}
    panels = [Panel(curves, y="milliseconds of an exchange", title="nine workers, loss", bars=True),
              Panel({"median": [(str(row["credits"]), row["median"]) for row in alone]}, y="milliseconds of an exchange", title="one worker, no loss",
                    bars=True)]  # fmt: skip
    at = {row["credits"]: row for row in rows}
    free = {row["credits"]: row["median"] for row in alone}
    best, most = min(rows, key=lambda row: row["99th percentile"]), max(at)
    return ["`options.credits` bounds the chunks that a worker has on the way to a shard. Nine workers of 0.6 MB send to a server behind "
            "100 Mbit/s with a queue of 96 KiB, in chunks of 8 KiB, 30 exchanges a round. Medians of the rounds, in which all numbers of "
            "credits take turns, and the lowest and the highest 99th percentile of a round. Hosts are network namespaces on two cores.",
            Plot("server-credits", panels, "Time of an exchange by credits"), study.listed("incast"),
            "One worker and a link of 400 Mbit/s that loses nothing, in chunks of 32 KiB:", study.listed("alone"),
            "An exchange of one tensor of 4 MiB over 400 Mbit/s, by its number of chunks C; the formula is (1 + 1/C) n / rate:", study.listed("chunks"),
            f"Where workers overrun a link, the lowest 99th percentile is {number(best['99th percentile'])} ms, with {best['credits']} "
            f"credit{'s' * (best['credits'] != 1)}; the default of 8 has {number(at[8]['99th percentile'])} ms, and no bound "
            f"({most:,}) {number(at[most]['99th percentile'])} ms. Where one worker has the link, it takes {free[1] / free[most]:.1f} times as long with 1 "
            f"credit as with no bound, and {free[8] / free[most]:.2f} times with 8. So 8 is kept: fewer are slow where nothing is lost, and more let "
            "the slowest exchanges become slower where something is."]  # fmt: skip


@page("Parameter servers", "Sum and update in one pass", "How much faster is one pass that adds gradients and applies the optimizer than "
                                                         "two passes?")
def server_update(study):
    rows = study.rows("kernels")
    cells = [[size_name(row["bytes"]), f"{row['workers']}", number(row["fused"]), number(row["scalar"]), f"{row['sum']:.3f} + "
        f"{row['update']:.3f}",
              f"{(row['sum'] + row['update']) / row['fused']:.1f}", number(row["rate"]), number(row["rate of a triad"])] for row in rows]  # fmt: skip
    two = [(row["sum"] + row["update"]) / row["fused"] for row in rows]
    names = [f"{row['workers']} workers, {size_name(row['bytes'])}" for row in rows]
    curves = {"one pass": list(zip(names, [row["fused"] for row in rows])), "two passes": list(zip(names, [row["sum"] + row["update"] for row in rows]))}
    return ["SGD on f32, one core; nanoseconds an element. *Scalar* is how many times as long the same pass takes in scalar code. The rate "
            "is also given over that of a triad.",
            Plot("server-update", [Panel(curves, y="nanoseconds an element", bars=True)], "Time of one and of two passes"),
            markdown(["bytes", "workers", "one pass, ns", "scalar", "sum + update, ns", "two / one", "GB/s", "over a triad"], cells),
            f"Two passes take {span(two)} times as long as one, because the second loads and stores what the first has had in registers. "
            f"Scalar code takes {span([row['scalar'] for row in rows])} times as long."]  # fmt: skip


@page("Parameter servers", "Workers of one server", "How does the rate of exchanges fall as workers are added to one server of one core?")
def server_workers(study):
    rows = study.rows("rates")
    curves = {"": [(row["workers"], row["exchanges"]) for row in rows]}
    return ["One server that does not work has one core of a machine with two cores, which its workers use as well; GoogLeNet's gradients, "
            "173 tensors.",
            Plot("server-workers", [Panel(curves, "workers", "exchanges a second", xscale="log", yscale="log")], "Exchanges a second over "
                "the number of workers"), study.listed("rates"),
            f"{rows[-1]['workers']} workers take {rows[0]['exchanges'] / rows[-1]['exchanges']:.0f} times as long for an exchange as "
            f"{rows[0]['workers']}; they share the two cores. In a second of its "
            f"processor time the server moves {span([row['rate'] for row in rows if isinstance(row['rate'], (int, float))])} GB."]  # fmt: skip


@page("Parameter servers", "Bytes of an exchange", "Does a parameter server send exactly the bytes of its layout?")
def server_traffic(study):
    rows = study.rows("ranks")
    link = [row[f"{way} on the link"] / row[way] - 1 for row in rows for way in ("sent", "received") if row[way]]
    extra = [row["metadata"] / row["sent"] for row in rows if row["sent"]]
    right = sum(row["as by the formula"] == "yes" for row in rows)
    return ["Four ranks on four hosts, 613,764 bytes of parameters. P ranks, W workers, M servers and n bytes: in CS each rank sends "
            "2n(P-1)/P up to a chunk, in CC and NC the server sends 3n and a "
            "worker n, in NCS each of two servers sends nW/M up to a chunk and a worker n. `check_studies` repeats this.", study.listed(
                "ranks"),
            f"{right} of {len(rows)} ranks send and receive the bytes of the formula. Metadata adds at most {percent(max(extra))}, and TCP "
            f"and Ethernet {percent(min(link))} to {percent(max(link))} on the link."]  # fmt: skip


@page("Parameter servers", "Server against simulation", "Does `twill-simulate` predict the staleness of a real server?")
def server_delays(study):
    rows, time = study.rows("staleness"), study.rows("time")[0]
    off = max(abs(row["measured"] / row["simulated"] - 1) for row in rows)
    names = [f"{row['mode']}, {row['workers']} workers" for row in rows]
    curves = {key: list(zip(names, [row[key] for row in rows])) for key in ("measured", "simulated")}
    return ["Workers sleep for random times instead of computing: 4 for exponential times of mean 250 ms, 30 for 150 to 450 ms. Staleness "
            "is by how many updates a gradient is late, on average.",
            Plot("server-delays", [Panel(curves, y="mean staleness", bars=True)], "Measured and simulated staleness"), study.listed(
                "staleness"),
            f"The measured staleness is within {percent(off)} of the simulated one. The time of an update is {number(time['least'])} to "
            f"{number(time['most'])} times the simulated one with "
            f"{time['workers']} workers, because processes wake up late on loaded cores."]  # fmt: skip


@page("Parameter servers", "Modes of a parameter server", "Which mode reaches a given loss with the fewest updates, and which in the least "
                                                          "time?")
def server_modes(study):
    panels, ends = [], []
    for data in ("wdbc", "digits"):
        modes = list(dict.fromkeys(study.column("loss", "mode", data=data)))
        panels.append(Panel({mode: [(row["updates"], row["loss"]) for row in study.rows("loss", data=data, mode=mode)] for mode in modes},
            "updates", "mean loss of mini-batches", data + ".csv", yscale="log", markers=False))
        panels.append(Panel({mode: [(row["time"], row["loss at that time"]) for row in study.rows("loss", data=data, mode=mode)] for mode in modes},
            "seconds", "mean loss of mini-batches", data + ".csv", yscale="log", markers=False))
    data = "digits"  # up to a loss that every mode reaches
    goal = round(1.1 * max(min(study.column("loss", "loss at that time", data=data, mode=mode)) for mode in modes), 2)
    when = {mode: next((row for row in study.rows("loss", data=data, mode=mode) if row["loss at that time"] <= goal), None) for mode in dict.fromkeys(study.column(
        "loss", "mode", data=data))}
    cells = [[mode, number(row["updates"]) if row else "", number(row["time"]) if row else "", number(study.rows("loss", data=data, mode=mode)[-1][
        "time"])] for mode, row in when.items()]
    there = {mode: row for mode, row in when.items() if row}
    fast, slow = min(there, key=lambda mode: there[mode]["time"]), max(there, key=lambda mode: there[mode]["time"])
    few = min(there, key=lambda mode: there[mode]["updates"])
    return ["`worker.c` trains with four workers and a server. Worker r sleeps 5 r ms in each step, so the slowest sleeps 20 ms; K is 2.",
            Plot("server-modes", panels, "Loss over updates and over time, in all modes, on two data sets"),
            f"Until the loss on {data}.csv is {goal} or less:", markdown(["mode", "updates", "seconds", "seconds of the whole training"], cells),
            f"With {few} the loss falls to {goal} in the fewest updates ({number(there[few]['updates'])}). Per second {fast} is first "
            f"({number(there[fast]['time'])} s) and {slow} last "
            f"({number(there[slow]['time'])} s): modes that do not wait for the slowest worker are ahead."]  # fmt: skip


@page("Parameter servers", "Deaths under a parameter server", "Is an update lost or made twice when workers or servers die?")
def server_deaths(study):
    return ["A random rank is killed at a random moment in every round of eight versions, and replaced. Gradients are ones, so that "
            "parameters must be minus the number of updates.",
            study.listed("deaths"), f"No run of these {sum(study.column('deaths', 'deaths')):,} deaths had a hang, a lost update, or an "
                                    "update that was made twice. `check_server` repeats a part of it."]  # fmt: skip


@page("Parameter servers", "Simulation of a parameter server", "How do the modes differ in time, staleness and error, by `twill-simulate`?")
def simulation(study):
    blocks = ["A discrete-event simulation of up to 100,000 workers on one core, which repeats to the bit. The model is in [inside: "
              "simulation](../inside/simulation.md).", "## Time of an update"]
    times = study.rows("times")
    modes = list(dict.fromkeys(row["mode"] for row in times))
    blocks += ["Gradients take 1 s on average, exponentially distributed; K is half of the workers.",
               Plot("simulation-times", [Panel({mode: [(row["workers"], row["simulated"]) for row in times if row["mode"] == mode] for mode in modes},
                   "workers", "seconds of an update", xscale="log", yscale="log")],
                    "Time of an update over workers"),
               "With 8 workers, K = 4 and 50,000 updates, beside the closed form:",
               markdown(["mode", "simulated, s", "exact, s", "off, %"], [[row["mode"], f"{row['simulated']:.4f}", f"{row['exact']:.4f}",
                   f"{100 * (row['simulated'] / row['exact'] - 1):+.1f}"] for row in study.rows("eight")])]  # fmt: skip
    trade = study.rows("tradeoff")
    modes = list(dict.fromkeys(row["mode"] for row in trade))
    last = {mode: [row for row in trade if row["mode"] == mode][-1] for mode in modes}
    blocks += ["## Error left and time", "Eight workers, learning rate 0.05, mean of 100 runs on a quadratic of 10 dimensions.",
               Plot("simulation-tradeoff", [Panel({mode: [(row[x], row["loss"]) for row in trade if row["mode"] == mode] for mode in modes}, label,
                   "loss", yscale="log", markers=False, limits=limits)
                                            for x, label, limits in (("updates", "updates", {}), ("time", "seconds", {"xlim": (0, 120)}))],
                                                "Loss over updates and over time"),
               markdown(["mode", "loss at the end", "time of all updates, s"], [[mode, number(row["loss"]), number(row["time"])] for mode, row in last.items()])]  # fmt: skip
    stale = study.rows("staleness")
    modes = list(dict.fromkeys(row["mode"] for row in stale))
    mean = {mode: sum(row["staleness"] * row["part"] for row in stale if row["mode"] == mode) for mode in modes}
    blocks += ["## Staleness", "n-softsync of 30 workers updates after floor(30 / n) gradients; times differ by half of their mean at "
                               "most.",
               Plot("simulation-staleness", [Panel({"n = " + mode.split(":")[1]: [(row["staleness"], row["part"]) for row in stale if row[
                   "mode"] == mode] for mode in modes}, "staleness", "part of the gradients", yscale="log")],
                    "Staleness of n-softsync"),
               markdown(["n", "mean staleness", "largest staleness"], [[mode.split(":")[1], number(mean[mode]), number(max(row["staleness"] for row in stale if row[
                   "mode"] == mode))] for mode in modes])]  # fmt: skip
    stable = study.rows("stability")
    rules = list(dict.fromkeys(row["rule"] for row in stable))
    end = {rule: [row for row in stable if row["rule"] == rule][-1] for rule in rules}
    blocks += ["## Divergence and its cure", "Thirty asynchronous workers at a learning rate of 0.9, of which twice as much is stable "
                                             "without staleness; mean of 20 runs.",
               Plot("simulation-stability", [Panel({rule: [(row["updates"], row["loss"]) for row in stable if row["rule"] == rule] for rule in rules},
                   "updates", "loss", yscale="log", markers=False, limits={"ylim": (1e-6, 1e8)})],
                    "Loss over updates of thirty asynchronous workers, by the rule of the learning rate"),
               markdown(["rule", "updates", "loss"], [[rule, number(row["updates"]), f"{row['loss']:.2g}"] for rule, row in end.items()])]  # fmt: skip
    link = study.rows("link")
    ends = sorted({row["endpoints"] for row in link})
    most = {mode: [max(row["rate"] for row in link if row["mode"] == mode and row["endpoints"] == count) for count in ends] for mode in (
        "sync", "async")}
    blocks += ["## The server's link", "Gradients of 0.1 s, 100 MiB of parameters, links of 1.22 GiB/s. An endpoint is a link of the "
                                       "server. This is a model only: there was no such hardware.",
               Plot("simulation-link", [Panel({f"{count} endpoints": [(row["workers"], row["rate"]) for row in link if row["mode"] == mode and row[
                   "endpoints"] == count] for count in ends}, "workers", "gradients a second", mode) for mode in most],
                    "Gradients a second over workers, by the number of endpoints"),
               markdown(["endpoints"] + [f"{mode}, highest rate, 1/s" for mode in most], [[f"{count}"] + [number(most[mode][i]) for mode in most] for i, count in enumerate(ends)])]  # fmt: skip
    off = max(abs(row["simulated"] / row["exact"] - 1) for row in study.rows("eight"))
    return blocks + [f"The simulated times are within {percent(off)} of the closed forms. Asynchronous updates end at a loss of "
                     f"{number(last['async']['loss'])} after {number(last['async']['time'])} s, synchronous ones at "
                     f"{number(last['sync']['loss'])} after {number(last['sync']['time'])} s, and each endpoint that is added raises the "
                     "highest rate in proportion."]  # fmt: skip


# --- PyTorch and Python ---------------------------------------------------------------------------------


def torch_cells(rows, keys):
    """Return lines "twill / Gloo: x" by the keys of rows; across are the calls."""
    calls = list(dict.fromkeys(row["call"] for row in rows))
    at = {tuple(row[key] for key in keys) + (row["call"],): row for row in rows}
    lines = list(dict.fromkeys(key[:-1] for key in at))
    text = lambda row: f"{number(row['twill'])} / {number(row['Gloo'])}: {ratio(row['Gloo'] / row['twill'])}"  # noqa: E731
    return markdown([*keys, *calls], [[shown(cell, "B" if key == "bytes" else "") for key, cell in zip(keys, line)] + [text(at[line + (call,)]) if line + (call,) in at else "" for call in calls] for line in lines])


def torch_ratios(rows):
    return [row["Gloo"] / row["twill"] for row in rows]


@page("PyTorch and Python", "PyTorch", "How much faster are PyTorch's collectives on CPU tensors over twill than over Gloo?")
def pytorch(study):
    rows = study.rows("times")
    settings = list(dict.fromkeys((row["ranks"], row["hosts"]) for row in rows))
    here = lambda ranks, hosts: [row for row in rows if (row["ranks"], row["hosts"]) == (ranks, hosts)]  # noqa: E731
    calls = list(dict.fromkeys(row["call"] for row in rows))
    panels = [Panel({call: [(row["bytes"], row["Gloo"] / row["twill"]) for row in here(*key) if row["call"] == call] for call in calls},
        "bytes", "times as fast as Gloo", f"{key[0]} ranks, {key[1]}", "bytes", "log") for key in settings]
    blocks = ["Neither PyPI's nor Debian's PyTorch has MPI, so Gloo is the only peer. Cells are microseconds of twill / Gloo: how many "
              "times as fast twill is. Four ranks share two cores, and so do "
              "the two hosts, which are network namespaces.", Plot("pytorch", panels, "How many times as fast as Gloo twill is, over the "
                  "size, for five collectives")]  # fmt: skip
    for key in settings:
        blocks += [f"{key[0]} ranks, {key[1]}:", torch_cells(here(*key), ("bytes",))]
    steps = study.rows("steps")
    every = torch_ratios(rows)
    small, large = torch_ratios([row for row in rows if row["bytes"] <= 65536 and row["hosts"] == "one node"]), torch_ratios([row for row in rows if row[
        "bytes"] >= 32 << 20 and row["hosts"] == "one node"])
    return blocks + ["A step of DistributedDataParallel with 4.2 MB of gradients:", study.listed("steps"),
                     f"Slower than Gloo: {sum(x < 1 for x in every) or 'none'} of {len(every)} cells. On one node twill is "
                     f"{span(small)} times as fast up to 64 KiB and {span(large)} times from 32 MiB on, and "
                     f"a step of DistributedDataParallel is {span([row['Gloo'] / row['twill'] for row in steps])} times as fast."]  # fmt: skip


@page("PyTorch and Python", "PyTorch with a core for each rank", "How do the same collectives compare with Gloo on a server with 16 cores?")
def pytorch_server(study):
    rows, steps = study.rows("times"), study.rows("steps")
    calls = list(dict.fromkeys(row["call"] for row in rows))
    panels = [Panel({kind: [(f"{call}, {ranks} ranks", row["Gloo"] / row["twill"]) for ranks in (2, 4, 8) for call in calls for row in rows
                            if (row["memory"], row["call"], row["ranks"], row["bytes"]) == (kind, call, ranks, 32 << 20)] for kind in (
                                "private", "shared")}, y="times as fast as Gloo, 32 MiB", bars=True)]  # fmt: skip
    of_kind = lambda kind: torch_ratios([row for row in rows if row["memory"] == kind])  # noqa: E731
    return ["*Shared* means that tensors lie in memory that the ranks of a host share (`HEAP=1`, `python -m twill.torch --shared`). The "
            "buckets of DistributedDataParallel always do. "
            "Cells are microseconds of twill / Gloo: how many times as fast twill is.",
            Plot("pytorch-server", panels, "How many times as fast as Gloo collectives of 32 MiB are, with private and shared tensors"), torch_cells(rows, (
                "ranks", "bytes", "memory")),
            "A step of DistributedDataParallel with 4.2 MB of gradients:", study.listed("steps"),
            f"twill is {span(of_kind('private'), number)} times as fast as Gloo on private tensors and {span(of_kind('shared'), number)} "
            "times on shared ones. A step of DistributedDataParallel is "
            f"{span([row['Gloo'] / row['twill'] for row in steps])} times as fast."]  # fmt: skip


@page("PyTorch and Python", "PyTorch against copies alone", "How much faster than Gloo could a collective of 32 MiB be at most?")
def pytorch_copies(study):
    rows = study.rows("ratios")
    cells = [[row["call"], row["memory"], row["what"], number(row["2 ranks"]), number(row["4 ranks"])] for row in sorted(rows, key=lambda row: (row[
        "call"], row["memory"]))]
    exchange = {(row["what"], row["memory"]): row for row in rows if row["call"] == "all_to_all_single"}
    mine, least = exchange["twill", "shared"], exchange["copies and sums alone", "shared"]
    return ["An all_to_all stores 32 MiB on each rank, a broadcast on all ranks but one. Private memory is copied twice, through memory "
            "that the ranks share. An all_reduce also reads every rank's data. "
            "*Copies and sums alone* are the times of twill's kernels in each rank's own memory. Values are times as fast as Gloo, with 2 "
            "and 4 ranks on two cores.",
            markdown(["call", "memory", "what", "2 ranks", "4 ranks"], cells),
            f"An all_to_all of shared tensors is {number(mine['2 ranks'])} and {number(mine['4 ranks'])} times as fast as Gloo, and copies "
            f"alone would be {number(least['2 ranks'])} and {number(least['4 ranks'])} times."]  # fmt: skip


@page("PyTorch and Python", "PyTorch with shared tensors", "What does `TWILL_HEAP=shared` bring to a PyTorch program?")
def pytorch_sharing(study):
    rows = study.rows("times")
    gain = [a["twill"] / b["twill"] for a in rows for b in rows if a["memory"] == "private" and b["memory"] == "shared" and all(a[key] == b[key] for key in (
        "ranks", "call", "bytes"))]
    return ["Two and four ranks on one node with two cores. Cells are microseconds of twill / Gloo: how many times as fast twill is.", torch_cells(rows, (
        "ranks", "bytes", "memory")),
            f"Each byte is copied once instead of twice: twill's calls become {span(gain)} times as fast. Do not use it for programs whose "
            "forked children read such tensors while the parent changes them."]  # fmt: skip


@page("PyTorch and Python", "PyTorch's own cost of a call", "What does PyTorch add to a call of twill, and what do groups cost?")
def pytorch_calls(study):
    top, messages, groups = study.rows("layers")[0], study.rows("messages"), study.rows("groups")
    of_row = lambda row: [value for key, value in row.items() if key != "layer" and isinstance(value, (int, float))]  # noqa: E731
    nothing = study.rows("layers", layer="dist over a backend that does nothing")[0]
    late = study.rows("asynchronous")[0] if "asynchronous" in study.tables else None
    return ["Processor time of a blocking call of 8 bytes around twill's own, on one rank:", study.listed("layers"),
        "A message of 8 bytes between two ranks:", study.listed("messages"),
            "Groups of two ranks, each:", study.listed("groups"),
            f"`torch.distributed`'s functions add {span(of_row(top), number)} us to a call, and {span(of_row(nothing), number)} us over PyTorch's backend that does nothing"
            + (f"; an asynchronous call with its wait takes {number(late['least'])} to {number(late['most'])} us" if late else "") + ". "
            f"A message takes {number(messages[0]['one way'])} us by PyTorch and {number(messages[1]['one way'])} us by the package twill, "
            f"and to end a group takes {number(groups[-1]['twill'])} ms, with Gloo {number(groups[-1]['Gloo'])} ms."]  # fmt: skip


@page("PyTorch and Python", "PyTorch with gradients in 16 bits", "How much faster is a training step between hosts with gradients in 16 "
    "bits?")
def pytorch_16_bits(study):
    rows = study.rows("steps")
    gain = [row["twill f32"] / row[key] for row in rows for key in ("twill bfloat16", "twill float16")]
    curves = {key: [(f"{row['gradients']:g} MB, run {row['run']}", row[key]) for row in rows] for key in rows[0] if key not in (
        "gradients", "run")}
    return ["A step of DistributedDataParallel on two hosts, which are network namespaces that are limited to 1 Gbit/s. 16 bits are "
            "`twill.torch.compress_hook`.",
            Plot("pytorch-16-bits", [Panel(curves, y="milliseconds", bars=True)], "Time of a step with gradients in 32 and in 16 bits"), study.listed(
                "steps"),
            f"With 16 bits a step is {span(gain)} times as fast as with 32. With 32 bits Gloo takes "
            f"{span([row['Gloo f32'] / row['twill f32'] for row in rows])} times as long as twill, as the link limits both."]  # fmt: skip


@page("PyTorch and Python", "Calls from Python", "What does a call from Python cost beside one from C?")
def python_calls(study):
    rows = study.rows("times", ranks=1)
    cost = {row["form"]: row for row in rows}
    call, request = cost.get("comm.allreduce(src, dst)") or cost["comm.allreduce(a, b)"], next(row for form, row in cost.items() if "request" in form)
    return ["An allreduce of 8 bytes; microseconds a call.", Plot("python-calls", [Panel({"": [(row["form"], row["least"]) for row in rows]}, y="microseconds", bars=True)],
        "Time of a call by its form"), study.listed("times"),
            f"A call of the package adds {number(call['over C'])} us to the {number(cost['C']['least'])} us of C, and a persistent request "
            f"{number(request['over C'])} us. What is called in every step is worth a persistent request."]  # fmt: skip


@page("PyTorch and Python", "LightGBM", "Does LightGBM train faster over twill than over its own sockets?")
def lightgbm(study):
    rows, calls = study.rows("seconds"), study.rows("calls")
    return ["Two ranks on two cores; the models were the same text. Seconds of a training:", study.listed("seconds"),
        "Where the time went:", study.listed("calls"),
            f"A training takes {span([row['twill'] / row['sockets'] for row in rows])} times as long over twill as over the sockets, which "
            "is within the noise of this machine. Copies and sends are at most "
            f"{percent(max(row['copies and sends'] / row['training'] for row in calls))} of a training, so no network makes it faster by "
            "more."]  # fmt: skip


@page("PyTorch and Python", "Sums of engines", "How long do a token's sums take through the adapters of engines, beside shared memory of their own and Gloo?")
def engines(study):
    rows = {row["way"]: row for row in study.rows("token")}
    ours, alone = rows["vLLM, twill"], rows["twill's backend"]
    own, deepspeed = rows["vLLM, own shared memory"], rows["DeepSpeed, own shared memory"]
    return ["Two ranks of one thread. A token has 96 allreduces of bfloat16, 24 each of 8, 16, 32 and 64 KiB. The times are those of "
            "all 96, from the least and the median of the allreduces of a size, and the ratios are to twill's backend alone:",
            study.listed("token"),
            f"A token's sums take {number(alone['least'])} ms at least by twill's backend, {number(ours['least'])} ms by vLLM "
            f"over twill, {number(own['least'])} ms in vLLM's own shared memory and {number(deepspeed['least'])} ms in "
            f"DeepSpeed's. Gloo takes {number(rows['Gloo']['least'])} ms. Rows over twill differ by layers of Python: DeepSpeed gives its "
            "adapter a group at each call, which is looked up, and torch.distributed checks and records each call."]  # fmt: skip


@page("PyTorch and Python", "Frameworks", "Do frameworks over PyTorch run over twill by one word, with the results and the speed that they have over Gloo?")
def frameworks(study):
    rows = study.rows("steps")
    cells = [[f"`{row['program']}`", row["version"], f"`{row['word']}`", row["result"], row["twill"], row["gloo"], ratio(row["twill"] / row["gloo"])] for row in rows]
    differ = [row["program"] for row in rows if row["result"] != "same"]
    return ["Two ranks of one thread train with programs of `examples/frameworks`, whose packages are as PyPI has them, except that "
            "`-patched` are copies with the patch beside the program. The word is all that differs between both, but that torchtitan "
            "over Gloo also asks for a plain sum, as Gloo refuses its own. A result is the sum of the parameters or the loss after the "
            "last step. Steps a second are from runs over twill and Gloo in turns:",
            markdown(["program", "version", "word", "result", "twill, steps/s", "Gloo, steps/s", "twill / Gloo"], cells),
            ("Results are equal to the last digit in all of them. " if not differ else f"Results differ in {', '.join(differ)}. ")
            + f"Steps a second over twill are {span([row['twill'] / row['gloo'] for row in rows])} times those over Gloo. They contain what "
            "a framework does itself in a step."]  # fmt: skip


@page("PyTorch and Python", "JAX", "How fast are JAX's collectives on CPUs over twill, MPICH and Gloo?")
def jax(study):
    rows = study.rows("times")
    settings = list(dict.fromkeys((row["processes"], row["hosts"]) for row in rows))
    calls = list(dict.fromkeys(row["call"] for row in rows))
    at = {(row["processes"], row["hosts"], row["bytes"], row["call"]): row for row in rows}
    cells = [[f"{key[0]}, {key[1]}", size_name(n)] + [", ".join(number(at[(*key, n, call)][name]) for name in ("Gloo", "MPICH", "twill")) for call in calls] for key in settings for n in sorted({row[
        "bytes"] for row in rows})]
    panels = [Panel({name: [(row["bytes"], row[name]) for row in rows if (row["processes"], row["hosts"]) == key and row["call"] == "psum"] for name in (
        "Gloo", "MPICH", "twill")}, "bytes", "microseconds",
                    f"psum, {key[0]} processes, {key[1]}", "bytes", "log") for key in settings]  # fmt: skip
    ours = [row for row in rows if row["call"] != "all_to_all"]
    large = [row for row in ours if row["bytes"] >= 1 << 20]
    first = lambda some: sum(row["twill"] <= min(row["Gloo"], row["MPICH"]) for row in some)  # noqa: E731
    return ["Cells are microseconds of Gloo, MPICH, twill, the least of five batches. With twill `all_to_all` is MPICH's own, because it "
            "is made of messages. The ranks of MPICH spin, so four of them on two cores wait for their turns.",
            Plot("jax", panels, "Time of a psum over its size"), markdown(["processes", "bytes"] + calls, cells),
            f"From 1 MiB on twill's three calls are the fastest in {first(large)} of {len(large)} cells, "
            f"{span([min(row['Gloo'], row['MPICH']) / row['twill'] for row in large])} times as fast as the next. "
            f"Below 1 MiB they are the fastest in {first(ours) - first(large)} of {len(ours) - len(large)}."]  # fmt: skip


@page("PyTorch and Python", "mpi4py's own tests", "Do mpi4py's own tests pass with libtwill-mpi preloaded?")
def mpi4py(study):
    slow = study.rows("slowest")[0]
    return ["Modules of tests of mpi4py, without those that start processes, with 1, 2 and 3 ranks:", study.listed("modules"),
            f"The same modules pass with twill and without. With twill `{slow['module']}` takes {slow['with twill']} s "
            f"instead of {slow['without']} s, because it initialises 10,800 persistent collectives, and the ranks agree on each of them."]


@page("PyTorch and Python", "PyTorch's own tests", "Which of PyTorch's own tests pass with twill in Gloo's place?")
def pytorch_tests(study):
    suites, files = study.rows("suites"), study.rows("files")
    only = study.rows("failures")
    total = {key: sum(row[key] or 0 for row in suites) for key in ("passed", "failed", "failed over Gloo too")}
    same = dict.fromkeys((row["suite"], row["reason"]) for row in only)
    lines = [f"- {suite}: {reason}: " + ", ".join(f"`{row['test'].split('.')[-1]}`" for row in only if (row["suite"], row["reason"]) == (suite, reason)) for suite, reason in same]
    return ["The tests run from PyTorch's package and source with forked ranks. Nothing of PyTorch is copied here. The files of PyTorch "
            "2.13 itself are in no release of Debian, so those of 2.6 ran on 2.13. "
            "*On the CPU* means that tests which want CUDA devices ran with the CPU and Gloo, thus twill, in the place of CUDA and NCCL.",
            study.listed("suites"), "## What fails over twill and passes over Gloo", "\n".join(lines),
            "- `'custom' != 'gloo'`: the type of the group of a backend from outside PyTorch is \"custom\".\n"
            "- `not raised`: the test wants a refusal of what works here: `all_to_all_single` of tensors that are not contiguous, "
            "`all_gather` into tensors of different sizes, and `allreduce_coalesced` of tensors of several types.\n"
            "- `mutable default`: Debian's PyTorch 1.13 cannot import `torch.distributed._shard` with Python 3.11, with any backend.",
            "## What fails over Gloo as well", "- PyTorch 2.13 does what 2.6 refused, or has other names or compiled code: `_tensor`, "
                                               "`test_device_mesh`, `test_functional_api`, a part of `checkpoint`.\n"
            "- PyTorch wants an accelerator (the first FSDP): most of `checkpoint`. FSDP2 needs none and passes.\n- PyTorch has no "
            "sharding strategy for its flash attention on CPUs: `tensor/parallel/test_tp_examples`.",
            "## By file", markdown(["file of test/distributed", "on the CPU", "passed", "failed", "of these over Gloo too",
            "skipped by PyTorch"], [[row["file"], row["on the CPU"]] + [f"{row[key]}" for key in ("passed", "failed",
            "failed over Gloo too", "skipped")] for row in files]),
            "Files that name another backend, or want CUDA or XLA throughout, were not run.", "## Why PyTorch skips tests", study.listed(
                "skips"),
            f"{total['passed']} tests pass and {total['failed']} fail, of which {total['failed over Gloo too']} fail over Gloo as well. "
            f"The other {total['failed'] - total['failed over Gloo too']} expect the name \"gloo\" or a refusal of what works, or cannot "
            "run with this Python."]  # fmt: skip


@page("PyTorch and Python", "PyTorch 2.15's own tests", "Which of PyTorch's own tests pass on PyTorch 2.15 with twill in Gloo's place?")
def pytorch_tests_2_15(study):
    rows = study.rows("tests")
    for row in rows:
        if row["file"].startswith("algorithms/"):  # not twill's folder of this name
            row["file"] = "distributed/" + row["file"]
    of = lambda result, **where: [row for row in rows if row["result"] == result and all(row[key] == value for key, value in where.items())]  # noqa: E731
    of_file = lambda file: [row for row in rows if row["file"] == file]  # noqa: E731
    files = list(dict.fromkeys(row["file"] for row in rows))
    failed, skipped = of("failed"), of("not applicable")
    run = [file for file in files if len(of("not applicable", file=file)) < len(of_file(file))]
    both = [row for row in failed if row["over Gloo"] == "failed"]
    reasons = sorted({row["reason"] for row in skipped})
    return ["This is PyTorch's build for CUDA of PyPI. Libraries without code stand in for CUDA's, and report that there is no device. "
            "`distributed` is the suite in PyTorch's own package, of 2.15 itself, on 3 ranks, and on 4 or 8 what needs as many. The others are files of "
            "`test/distributed` of PyTorch 2.6, of which Debian has the source: those of 2.15 were not to be had.",
            markdown(["file", "passed", "failed", "of these over Gloo too", "not applicable"], [[f"`{file}`"] + [f"{count}" for count in (
                len(of("passed", file=file)), len(of("failed", file=file)), len([row for row in both if row["file"] == file]),
                len(of("not applicable", file=file)))] for file in run]),
            "Nothing is applicable in " + ", ".join(f"`{file}`" for file in files if file not in run) + ".",
            "## What fails", markdown(["file", "test", "reason", "over Gloo"], [[f"`{row['file']}`", f"`{row['test']}`", "`" + row["reason"].replace(
                "|", "\\|").replace("`", "'")[:140] + "`", {"failed": "fails, too", "passed": "passes"}.get(row["over Gloo"], "was not run")] for row in failed]),
            "A group of a backend from outside PyTorch has the type \"custom\". A test that wants an error which was not raised refuses what works "
            "here: tensors of different sizes or types, or not contiguous. The tests of RPC take the class of Gloo's groups. Only these runs put "
            "twill's in its place, which PyTorch refuses there (\"Expecting a ProcessGroup\"). The next test then finds a group left "
            "(\"twice\"). In a program RPC makes a group of Gloo. What fails over Gloo as well is not twill's: mostly, 2.15 has other names than 2.6. "
            "Two tests of `test_dtensor_compile` fail only where ranks are forked from a process that has computed gradients. Run alone they pass "
            "over twill as well.",
            "## What is not applicable", markdown(["PyTorch's reason", "tests"], [[reason.replace("|", "\\|"), f"{len(of('not applicable', reason=reason))}"]
                                                                                 for reason in reasons]),
            f"{len(of('passed'))} tests pass and {len(failed)} fail, {len(both)} of them over Gloo as well. {len(skipped)} are not "
            "applicable, as PyTorch skips them or cannot import their file. The file of data names each test. Files of `_shard`, `_tools`, `elastic`, "
            "`fsdp` and `rpc`, and those of other backends, were not run on 2.15."]  # fmt: skip


# --- failures and protection ----------------------------------------------------------------------------


@page("Failures and protection", "Time of a recovery", "How long after a rank dies do the others continue?")
def recovery_times(study):
    rows = study.rows("times")
    curves = {where: [(row["until"], row[where]) for row in rows] for where in ("one node", "two nodes")}
    return ["Four ranks sum 4 bytes each millisecond; nine of them are killed one after the other and replaced. Milliseconds from the kill "
            "to the last survivor, median and largest:",
            Plot("recovery-times", [Panel(curves, y="milliseconds after the kill", bars=True)], "Milliseconds from the kill to each step "
                "of a recovery"), study.listed("times"),
            "The two nodes are virtual. A rank that replaces another one is a node of its own there, so the nodes become more.",
            f"On one node the survivors continue {number(rows[2]['one node'])} ms after the kill, on two nodes after "
            f"{number(rows[2]['two nodes'])} ms. All four ranks are there again after {number(rows[3]['one node'])} and "
            f"{number(rows[3]['two nodes'])} ms."]  # fmt: skip


@page("Failures and protection", "Training while ranks die", "Does a training whose ranks die and are replaced end with the same loss?")
def recovery_loss(study):
    runs = ("no rank dies", "ranks die and are replaced")
    curves = {run: [(row["time"], row["loss"]) for row in study.rows("loss", run=run)] for run in runs}
    least = min(y for points in curves.values() for _, y in points)
    for event in ("three ranks go on", "four ranks again"):
        curves[event] = [(row["time"], least * (0.9 if event.startswith("three") else 0.82)) for row in study.rows("loss", run=event)]
    right = study.rows("samples") if "samples" in study.tables else []
    last = {run: study.rows("loss", run=run)[-1] for run in runs}
    return ["`examples/train.c` on four ranks, one of which is killed every three seconds.",
            Plot("recovery-loss", [Panel(curves, "seconds", "mean training loss of an epoch", yscale="log", events=("three ranks go on",
                "four ranks again"))], "Loss over time, with deaths and without"),
            markdown(["run", "loss at the end", "at, s", "held-out samples classified right"], [[run, number(last[run]["loss"]), number(last[run][
                "time"]), f"{row['classified right']} of {row['held-out samples']}" if row else ""]
                     for run in runs for row in [next((row for row in right if row["run"] == run), None)]]),
            f"{len(study.rows('loss', run='three ranks go on'))} ranks die, and the loss ends at {number(last[runs[1]]['loss'])}, without "
            f"deaths at {number(last[runs[0]]['loss'])}." + (" As many held-out samples are classified right." if right and len({row[
                "classified right"] for row in right}) == 1 else "")]  # fmt: skip


@page("Failures and protection", "Fault campaign", "How long after a fault does the last survivor know, and did any trial fail?")
def campaign(study):
    runs, node, hosts = study.rows("runs"), study.rows("node"), study.rows("hosts") if "hosts" in study.tables else []
    kill = [row for row in node + hosts if row["fault"] == "SIGKILL"]
    blocks = ["Short jobs of 2 to 5 ranks call all collectives, train, split, shrink, grow and end, while ranks are killed, stopped or cut "
              "off at a random point ([recovery](../guides/recovery.md)). "
              "A trial fails if a rank hangs or crashes, has a wrong result or keeps a descriptor, if a survivor does not name the failed "
              "rank, or if an error comes later than `twill_comm_bounds` states. "
              "`TWILL_TIMEOUT` is 2 s.", "Trials:", study.listed("runs"), "Seconds from the fault to the last survivor's error and to its "
                  "first right sum, on one machine:", study.listed("node")] + [block for table, words in (("hosts",
                  "Between four hosts, which are network namespaces:"), ("mpi", "MPI programs under libtwill-mpi, which end; seconds to "
                      "the last error:"))
             if table in study.tables for block in (words, study.listed(table))]  # fmt: skip
    curves = {what: [(f"{row['fault'].split(';')[0]}, {row['nodes']}", row[what + " median"]) for row in node] for what in ("error", "sum")}
    blocks.insert(1, Plot("campaign", [Panel(curves, y="seconds after the fault, median", bars=True)], "Seconds from the fault to the "
        "error and to the first right sum"))
    failed = " and ".join(f"{row['failed']} of {row['trials']} ({row['run']})" for row in runs if row["failed"])
    quiet = sum(row["trials"] for row in runs if not row["failed"])
    return blocks + [f"None of {quiet:,} trials failed" + (f", and {failed} did, where ranks got no core for as long as the timeout" if failed else "") +
        f". After a SIGKILL the last survivor has its error {span([row['error median'] for row in kill])} s later and its first right "
                     f"sum {span([row['sum median'] for row in kill])} s later, at the median."]  # fmt: skip


@page("Failures and protection", "Hundreds of ranks", "What do hundreds of ranks need to start, and do all of them report a rank that "
      "dies or makes no call?", "many-ranks", "many-ranks-counted")
def many_ranks(study, counted=None):
    def table(name):
        return markdown(["ranks", "all have summed, s", "longest twill_init, s", "rank 0 has sent, MiB", "PSS a rank, MiB", "heap, KiB",
            "death: half know, all know, s", "name it", "timeout: half know, all know, s", "name it"], [[row["ranks"], number(row["summed"]),
            number(row["init"]), number(row["sent by rank 0"] / 1024), number(row["PSS"] / 1024), number(row["heap"]),
            f"{row['half told of the death']}, {row['all told of the death']}", f"{row['named the dead']} of {row['ranks'] - 1}",
            f"{row['half timed out']}, {row['all timed out']}", f"{row['named the absent']} of {row['ranks'] - 1}"]
            for row in study.rows(name)])  # fmt: skip

    packed, whole = study.rows("ranks"), study.rows("unpacked")
    first, last, most = whole[0], whole[-1], 4392
    each = (last["heap"] - first["heap"]) / (last["ranks"] - first["ranks"])
    heap = last["heap"] + (most - last["ranks"]) * each
    sent = packed[-1]["sent by rank 0"] * (most / packed[-1]["ranks"]) ** 2 / 1024**2
    before = last["sent by rank 0"] * (most / last["ranks"]) ** 2 / 1024**2
    return ["All ranks are processes of one machine, on 8 virtual nodes, so hundreds of them share a core, beside other programs. They start "
            "and sum. Then the rank in the middle is killed while the others call allreduce. In a second job it makes no call, so that all "
            "others time out together, with `TWILL_TIMEOUT` = 60 s.", table("ranks"),
            "An earlier run, in which rank 0 sent each result of an all-gather as it is, and not packed:", table("unpacked"), *messages_of_set_up(counted),
            f"Every rank returned an error in time in both cases. After a death every sentence named the dead rank. After the timeout all "
            f"sentences name it up to 128 ranks. With more, some name another rank that did not answer within 0.5 s, presumably as it got no "
            f"core. "
            f"By counting: a rank's heap grows by {each:.2f} KiB for each rank, which makes {heap / 1024:.1f} MiB with {most:,} ranks. What rank "
            f"0 sends in set-up grows with the square of the ranks: {sent:.1f} GiB with {most:,} ranks, and {before:.0f} GiB if it were not "
            "packed. Larger jobs than these were not run, and 512 ranks did not complete set-up with packed results in a second run, in which "
            "other programs brought the load of the two cores above 180."]  # fmt: skip


def messages_of_set_up(study):
    """Return what the connections and bytes of all ranks are and would be with 4,392 ranks, as blocks of the page of hundreds of ranks."""
    if study is None:
        return []
    rows, most = study.rows("counted"), 4392
    (p, a), (q, b), (r, c) = [(row["ranks"], row["set-up"]) for row in rows[-3:]]
    square = ((c - b) / (r - q) - (b - a) / (q - p)) / (r - p)  # of the parabola through the last three
    slope = (b - a) / (q - p) - square * (p + q)
    fit = lambda ranks: a + slope * (ranks - p) + square * (ranks**2 - p**2)  # noqa: E731
    each = {key: [row[key] / row["ranks"] for row in rows] for key in ("death connections", "timeout connections", "death", "timeout")}
    return ["Connections that all ranks open together, and KiB that they send, with the headers of TCP and IP, counted by the kernel in a network "
            "namespace of the job (`TWILL_TIMEOUT` = 10 s):",
            markdown(["ranks", "set-up: connections", "KiB", "death: connections", "KiB", "timeout: connections", "KiB"],
                     [[str(row["ranks"])] + [f"{row[key]:,}" for key in ("set-up connections", "set-up", "death connections", "death", "timeout connections", "timeout")] for row in rows]),
            f"In set-up these are one connection of each rank and some {rows[0]['set-up connections'] - rows[0]['ranks']} more, and bytes of a parabola: that through the "
            f"last three rows gives {number(fit(rows[0]['ranks']))} KiB for {rows[0]['ranks']} ranks, where {number(rows[0]['set-up'])} were counted, and "
            f"{fit(most) / 1024**2:.1f} GiB for {most:,}. Whoever finds a death or a timeout notifies the others, so that connections "
            f"grow with the ranks, not with their square: {span(each['death connections'], number)} and {span(each['timeout connections'], number)} a rank, "
            f"{span(each['death'], number)} and {span(each['timeout'], number)} KiB a rank. Ranks that get no core soon enough are asked by more others. "
            f"With {most:,} ranks that would be at most {most * max(each['death connections']):,.0f} and {most * max(each['timeout connections']):,.0f} connections."]  # fmt: skip


@page("Failures and protection", "Checksums and encryption", "What do `TWILL_CHECKSUM` and `TWILL_ENCRYPT` cost?")
def protection(study):
    rows = [row for row in study.rows("times") if row["bytes"] > 8]
    cells = [[row["nodes"], row["variant"], shown(row["bytes"], "B"), number(row["time"]), f"{row['ratio']:.2g}"] for row in rows]
    names = [row for row in rows if row["variant"] != "none"]
    curves = {"": [(f"{row['variant']}, {size_name(row['bytes'])}, {row['nodes']}", row["ratio"]) for row in names]}
    by = lambda word: [row["ratio"] for row in names if word in row["variant"] and row["nodes"].startswith("two")]  # noqa: E731
    one = [row["ratio"] for row in names if row["nodes"].startswith("one")]
    blocks = ["Two ranks sum on two cores, as two nodes over loopback and on one node. There the cores are the limit, not the link.",
              Plot("protection", [Panel(curves, y="times as long as without", bars=True)], "Time with protection over the time without"),
              markdown(["nodes", "variant", "bytes", "us", "times as long"], cells)]  # fmt: skip
    if "core" in study.tables:
        blocks += ["One core processes:", study.listed("core")]
    return blocks + [f"Between two nodes whose cores are the limit, checksums make an allreduce take {span(by('CHECKSUM'))} times as long "
                     f"and encryption {span(by('ENCRYPT'))} times. On one node `TWILL_CHECKSUM=all` "
                     f"takes up to {max(one):.2g} times as long, because data are copied as messages instead of read in place."]  # fmt: skip


# --- other machines -------------------------------------------------------------------------------------


def oversubscription(study):
    """Return what oversubscribed links change of the choice, as blocks of the page of Theta."""
    if "choices" not in study.tables:
        return []
    rows = study.rows("choices")
    words = {"fattree": "one to one", "fattree2": "two to one", "fattree4": "four to one"}
    cells = [[size_name(row["bytes"]), words[row["tree"]], row["chosen"], f"{number(row['simulated'])} ({number(row['price'])})",
              f"{row['one to one']}: {number(row['its simulated'])} ({number(row['its price'])})", f"{number(row['ring simulated'])} ({number(row['ring price'])})"]
             for row in rows]  # fmt: skip
    changed = [row for row in rows if row["chosen"].split("@")[0] != row["one to one"]]
    gain = [row["its simulated"] / row["simulated"] for row in changed]
    change = (f", from {' or '.join(sorted({row['one to one'] for row in changed}))} to "
              f"{' or '.join(sorted({row['chosen'].split('@')[0] for row in changed}))}, which crosses the switches less. By the simulation what is "
              f"chosen at one to one would take {span(gain, two)} times as long there. Where that is below 1, in {sum(x < 1 for x in gain)} cases, "
              "the call is slower than it could be, and other jobs have more of the links." if changed else ", so what is chosen at one to one "
              "serves there as well.")  # fmt: skip
    return [f"{rows[0]['nodes']} nodes in 16 leaf switches. The time of a byte on the links between switches is multiplied by the oversubscription, as far "
            "as nodes share the links. A choice adds to the price the time for which a call keeps these links busy, as other jobs use them "
            "as well ([cost model](../inside/cost-model.md)). The choice, what is chosen where links are not oversubscribed, and a ring, "
            "simulated (price), us:", markdown(["bytes", "links upwards", "chosen", "us", "chosen at one to one", "ring"], cells),
            f"Oversubscribed links change the choice in {len(changed)} of {sum(row['tree'] != 'fattree' for row in rows)} cases" + change]  # fmt: skip


@page("Machines that were not there", "Theta", "How near do the price model and a simulation come to the published allreduces of Theta?")
def theta(study):
    rows = study.rows("allreduce")
    off = lambda row, key: None if row[key] is None else row[key] / row["published"] - 1  # noqa: E731
    names = [key for key in rows[0] if key not in ("nodes", "ranks a node", "bytes", "published")]
    cells = [[f"{row['nodes']}", f"{row['ranks a node']}", size_name(row["bytes"]), number(row["published"])] + ["" if row[key] is None else f"{number(row[key])} ({100 * off(row, key):+.0f} %)" for key in names] for row in rows]
    larger = study.rows("larger")
    sizes = sorted({row["bytes"] for row in larger})
    big = [[f"{nodes:,}"] + [next(f"{number(row['simulated'])} ({number(row['price'])})" for row in larger if row["nodes"] == nodes and row[
        "bytes"] == n) for n in sizes] for nodes in dict.fromkeys(row["nodes"] for row in larger)]
    best = [min(abs(off(row, key)) for key in ("simulated", "copies") if row[key] is not None) for row in rows]
    far = [row for row, each in zip(rows, best) if each > 0.15]
    trees = study.rows("trees")
    ring = next(row for row in trees if row["algorithm"] == "ring")
    cheapest, fastest = (min(trees, key=lambda row: row[key])["algorithm"] for key in ("four to one price", "four to one"))
    curves = {label: [(f"{row['nodes']} x {row['ranks a node']}, {size_name(row['bytes'])}", row[key]) for row in rows] for label, key in ((
        "published", "published"), ("price", "price"), ("simulated with copies", "copies"), ("with cache lines", "cache lines"), (
            "with detours", "detours"))}
    curves = {label: [(x, y) for x, y in points if y is not None] for label, points in curves.items()}
    return ["Theta was ALCF's Cray XC40: 4,392 nodes with a KNL 7230 each, on Aries. **Nothing of twill has run on Theta, on Aries or on a "
            "KNL.** The published times are Cray MPI's. Each column "
            "after *simulated* adds one cause to the column before it; [inside: Theta](../inside/theta.md) explains them and names the "
            "sources. One parameter, the latency, was fitted to the first line.",
            Plot("theta", [Panel(curves, y="microseconds of an allreduce", bars=True)], "Published, priced and simulated allreduces of "
                "Theta"),
            "Microseconds, and how far from the published time:", markdown(["nodes", "ranks a node", "bytes", "published"] + names, cells),
            "Larger, recursive doubling with one rank a node, simulated (price), us:", markdown(["nodes"] + [size_name(n) for n in sizes], big),
            "Fat trees, 96 nodes, 4 MiB, simulated (price), us. Where leaf switches have fewer links upwards than nodes, an exchange of the "
            "whole message suffers. Halving and doubling by rows within the groups, rings, and the hierarchy over leaf switches cross them "
            "less:",
            markdown(["algorithm", "one to one", "two to one", "four to one"], [[row["algorithm"]] + [
                f"{number(row[ratio])} ({number(row[ratio + ' price'])})" for ratio in ("one to one", "two to one", "four to one")]
                for row in trees]),
            *oversubscription(study),
            f"With copies {len(rows) - len(far)} of {len(rows)} published times are met within 15 % (the first of them was used to fit the "
            "latency); the others are " + ", ".join(f"{row['nodes']} nodes of {row['ranks a node']} rank{'s' * (row['ranks a node'] > 1)} "
                                                    f"with {size_name(row['bytes'])}" for row in far)
            + f". On a fat tree that is oversubscribed four to one, {trees[0]['algorithm']} takes "
              f"{trees[0]['four to one'] / trees[0]['one to one']:.1f} times as long as on one that is not, a ring "
              f"{ring['four to one'] / ring['one to one']:.1f} times. The "
              f"lowest price there has {cheapest}, and the simulation is fastest with {fastest}."]  # fmt: skip


@page("Machines that were not there", "Every algorithm with 4,392 ranks", "Is every algorithm right at the size of Theta?")
def verification(study):
    size = study.rows("size")[0]
    return ["`test_algorithms_fingerprint` verifies schedules: values, data races, messages with their order and lengths, signals, "
            "deadlock and starts. It tells contributions apart by sums of random 64-bit numbers. "
            "CI runs the cases with few steps. `TEST_WHOLE=1` runs all cases of the algorithm of `TEST_ALGORITHM`; a machine with 32 GB is "
            "advised.", study.listed("cases"),
            f"Each of the {size['algorithms']} algorithms was verified with {size['ranks']:,} ranks in every collective that it serves, "
            f"{size['pairs']} pairs. `direct` and `hierarchical:bruck`, which take few nodes only, were given large nodes."]  # fmt: skip


@page("Machines that were not there", "An emulated KNL", "Does placement in MCDRAM work in each mode of a KNL?")
def knl(study):
    rows = study.rows("machines")
    return ["The command starts these emulated machines and one with two sockets and HBM, and runs in each the tests of the module numa, a "
            "training with its gradients in DDR and in MCDRAM, `twill-place`, and a program that asks the kernel "
            "by `move_pages()` where pages are.", study.listed("machines"),
            f"In all {len(rows)} modes the tests passed, and pages lay where they were asked to be or a warning said why not. It is for "
            "correctness only: times of an emulated machine mean nothing."]  # fmt: skip


@page("Tried without gain", "Tried without gain", "Which changes were tried and did not make anything faster?")
def tried(study):
    blocks = []
    for area in dict.fromkeys(study.column("tried", "area")):
        blocks += [f"## {area}", "\n".join(f"- {row['change']}: {row['outcome']}." for row in study.rows("tried", area=area))]
    return blocks + [f"{len(study.rows('tried'))} changes were tried and not kept."]

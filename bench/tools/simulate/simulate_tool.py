# SPDX-License-Identifier: Apache-2.0
"""twill-simulate shows how long updates of a parameter server take, and how stale its gradients are, for modes, numbers of
workers and laws of times. simulate_run.c simulates. This file has the command line and what is printed."""
import json
import math
import os
import subprocess

import tool

USAGE = """\
Usage: twill-simulate [options] MODE...
Simulate a parameter server and its workers: the time of an update, beside its
closed form where there is one, the staleness of gradients, and the loss on a
quadratic.

MODE: sync, k-sync:K, k-batch-sync:K, k-async:K, k-batch-async:K, async,
      softsync:N, bounded:S, groups:G
LAW of times in seconds: const:TIME, exp:MEAN, shifted:SHIFT,MEAN,
      uniform:MIN,MAX, pareto:MIN,SHAPE, list:FILE

  -p, --workers N,N,...    numbers of workers (8)
  -u, --updates N          updates of a run, of which the first tenth is not
                           counted (20000)
  -r, --runs N             runs, whose seeds follow each other (1)
  -s, --seed N             of the first run (1)
  -c, --compute LAW        time of a gradient (exp:1)
  -l, --latency LAW        of a message (const:0)
      --service LAW        time of the server for a push (const:0)
      --slow N:FACTOR      N workers compute FACTOR times as long
  -b, --bytes SIZE         of the parameters; 0: messages take no time on links
                           (0)
      --server-link SIZE   bytes per second of an endpoint of the server, each
                           way (1G)
      --worker-link SIZE   bytes per second of a worker (1G)
      --endpoints N        of the server (1)
      --credits N          messages on their way to the server at a time (no
                           limit)
      --shards N           of the parameters, which are updated separately
                           (1)
      --late               late gradients are not cancelled but dropped by the
                           server
      --rate A             minimise a quadratic with this learning rate (0: do
                           not)
      --rule RULE          fixed, staleness (A / staleness), distance:C (min(C /
                           d, A))
      --dimensions N       of the quadratic (10)
      --condition C        its largest curvature, 1, over the smallest (10)
      --noise S            standard deviation of a gradient in each dimension
                           (1)
      --curve              print the loss over time and updates, not the table
      --histogram          print how often each staleness occurred, not the
                           table
      --csv, --json        print as CSV, as JSON
  -h, --help  -V, --version

Exit status: 0 success, 1 a simulation cannot be run, 2 a wrong command line.
"""
LETTERS = {"-p": "workers", "-u": "updates", "-r": "runs", "-s": "seed", "-c": "compute", "-l": "latency", "-b": "bytes"}
SWITCHES = ("late", "curve", "histogram", "csv", "json")
COUNTS = {"updates": (100, 1000000000), "runs": (1, 100000), "seed": (0, 2**64 - 1), "endpoints": (1, 1000000),
          "credits": (1, 1000000), "shards": (1, 10000), "dimensions": (1, 1000000)}  # fmt: skip
POSITIVE = ("rate", "condition")
RULES = ("fixed", "staleness", "distance")  # enum simulation_rate
TEXTS = ("compute", "latency", "service", "workers", "slow", "rule", "noise", "bytes", "server-link", "worker-link")
MOST_MODES, MOST_WORKERS = 64, 32
SUMS = ("elapsed", "updates", "used", "dropped", "busy", "pushes", "staleness_sum")  # of all runs
MEANS = ("push_mean", "floor")


# --- the command line ----------------------------------------------------------------------------


def positive(text):
    """Return a number above 0, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < math.inf else None


def read_workers(text):
    numbers = [tool.parse_number(word, 1, 100000) for word in tool.words(text)]
    return numbers if 0 < len(numbers) <= MOST_WORKERS and None not in numbers else None


def read_slow(text):
    count, _, factor = text.partition(":")
    pair = tool.parse_number(count, 0, 100000), positive(factor)
    return None if None in pair else pair


def read_rule(text):
    """Return the rule and its C, or None."""
    name, colon, c = text.partition(":")
    if name == "distance":
        return (name, positive(c)) if positive(c) else None
    return (name, 0) if name in RULES and not colon else None


def read(name, text):
    """Return the value of an option, or None if it is wrong."""
    if name in COUNTS:
        return tool.parse_number(text, *COUNTS[name])
    if name in POSITIVE:
        return positive(text)
    if name == "noise":
        return 0 if text == "0" else positive(text)
    if name in ("bytes", "server_link", "worker_link"):
        size = tool.parse_size(text)
        return size if size or name == "bytes" else None
    special = {"workers": read_workers, "slow": read_slow, "rule": read_rule}
    return special[name](text) if name in special else text


def parse(arguments):
    """Return the value of each option, and the modes."""
    given = dict(workers=[8], updates=20000, runs=1, seed=1, compute="exp:1", latency="const:0", service="const:0", slow=(0, 1),
                 bytes=0, server_link=2**30, worker_link=2**30, endpoints=1, credits=2**32 - 1, shards=1, rate=0,
                 rule=("fixed", 0), dimensions=10, condition=10, noise=1, **dict.fromkeys(SWITCHES, False))  # fmt: skip
    names = [f"{name}=" for name in (*COUNTS, *POSITIVE, *TEXTS)]
    pairs, modes = tool.options(arguments, "p:u:r:s:c:l:b:", names + list(SWITCHES), USAGE)
    for option, text in pairs:
        name = LETTERS.get(option, option.lstrip("-").replace("-", "_"))
        given[name] = True if name in SWITCHES else read(name, text)
        if given[name] is None:
            letter = next((f"{letter}/" for letter, long in LETTERS.items() if long == name), "")
            tool.wrong(f"{letter}--{name.replace('_', '-')}", text, "a valid value; see --help")
    if not modes:
        raise tool.Mistake("no MODE: name one, such as sync or k-sync:4")
    for mode in modes:
        if "=" in mode:  # a member of the setup for simulate_run
            raise tool.Mistake(f"'{mode}': no such mode")
    if len(modes) > MOST_MODES:
        raise tool.Mistake(f"'{modes[MOST_MODES]}': too many modes")
    if given["curve"] and not given["rate"]:
        raise tool.Mistake("--curve: there is no loss without --rate")
    return given, modes


def setup_of(given):
    """Return the setup that all modes and numbers of workers share, as NAME=VALUE words of simulate_run."""
    same = ("compute", "latency", "service", "shards", "endpoints", "credits", "bytes", "server_link", "worker_link", "updates",
            "seed", "rate", "condition", "noise")  # fmt: skip
    rule, c = given["rule"]
    setup = {name: given[name] for name in same}
    setup.update(skipped=given["updates"] // 10, late=int(given["late"]), rule=RULES.index(rule), distance_most=1)
    setup.update(zip(("slow_workers", "slow_factor"), given["slow"]))
    setup["dimensions"] = given["dimensions"] if given["rate"] else 0
    setup["distance_c"] = c / (given["rate"] or 1)  # min(C / d, A) is A * min((C / A) / d, 1)
    return [f"{name}={value}" for name, value in setup.items()]


# --- runs ----------------------------------------------------------------------------------------


class Row:
    """A mode at a number of workers, with sums and means of all runs."""

    def __init__(self, runs):
        first = runs[0]
        self.mode, self.workers, self.exact = first["mode"], int(first["workers"]), float(first["exact"])
        self.parameter = int(self.mode.partition(":")[2] or 0)
        for name in SUMS + MEANS:
            setattr(self, name, sum(float(run[name]) for run in runs) / (len(runs) if name in MEANS else 1))
        for name in ("largest_staleness", "furthest_ahead"):
            setattr(self, name, max(int(run[name]) for run in runs))
        self.diverged = next((int(run["diverged"]) for run in runs if run["diverged"] != "0"), 0)
        self.staleness, curves = {}, []
        for run in runs:
            for staleness, count in pairs_of(run["staleness"]):
                self.staleness[int(staleness)] = self.staleness.get(int(staleness), 0) + count
            curves.append(pairs_of(run["curve"]))
        self.curve = [[sum(values) / len(runs) for values in zip(*points)] for points in zip(*curves)]


def pairs_of(text):
    return [tuple(map(float, word.split(":"))) for word in tool.words(text)]


def simulate(given, modes):
    """Return the rows, or the exit status of the simulations."""
    program = os.path.join(tool.folders["programs"], "simulate-run")
    words = [program, str(given["runs"]), *setup_of(given)]
    for workers in given["workers"]:
        words += [f"workers={workers}", *modes]
    lines, total, progress = [], len(given["workers"]) * len(modes) * given["runs"], tool.Progress()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as done:
        progress.show(0, total, f"simulation 1 of {total}")
        for line in done.stdout:  # one for each simulation, when it has ended
            lines.append(line.rstrip("\n"))
            progress.show(len(lines), total, f"simulation {min(len(lines) + 1, total)} of {total}")
        progress.clear()
    if done.returncode != 0:
        return done.returncode if done.returncode > 0 else 1
    runs = [dict(word.split("=", 1) for word in line.split(" ")) for line in lines]
    return [Row(runs[i : i + given["runs"]]) for i in range(0, len(runs), given["runs"])]


# --- printed lines of named values, in which NAN means none -----------------------------------------


def over(a, b):
    return a / b if b else math.nan


def table_line(row, given):
    members = row.workers // row.parameter if row.mode.startswith("groups") else 1
    shards = given["shards"] if row.updates else 1
    update, stale = over(row.elapsed, row.updates), over(row.staleness_sum, row.used)
    n = row.parameter if row.mode.startswith("softsync") else stale  # the mean of n-softsync
    above = sum(count for staleness, count in row.staleness.items() if staleness > math.ceil(2 * n))
    return dict(
        update_s=update,
        exact_s=row.exact,
        **{"off_%": 100 * (update / row.exact - 1), "gradients/s": over(row.used * members / shards, row.elapsed)},
        stale=stale,
        stale_most=row.largest_staleness if row.used else math.nan,
        above_2n=over(above, row.used),
        ahead=row.furthest_ahead or math.nan,
        **{"useful_%": over(100 * row.busy / row.workers, row.elapsed), "dropped_%": over(100 * row.dropped, row.used + row.dropped)},
        push_s=row.push_mean if row.pushes else math.nan,
        loss=row.floor if given["rate"] and not row.diverged else math.nan,
        diverged_at=row.diverged or math.nan,
    )


def lines_of(row, given):
    if given["curve"]:
        spacing = given["updates"] // 100  # SIMULATION_POINTS - 1
        return [dict(updates=spacing * i, time_s=time, loss=loss) for i, (time, loss) in enumerate(row.curve)]
    if given["histogram"]:
        counts = sorted(row.staleness.items())
        return [dict(staleness=staleness, gradients=count, part=count / row.used) for staleness, count in counts]
    return [table_line(row, given)]


def print_lines(lines, given):
    csv = given["csv"]
    if given["json"]:
        array = [{name: value if name == "mode" or math.isfinite(value) else None for name, value in line.items()} for line in lines]
        print(json.dumps(array, indent=2))
        return
    for at, line in enumerate(lines):
        mode, *values = line.items()
        if at == 0:
            print("mode" if csv else f"{'mode':16}", *[name if csv else f"{name:>11}" for name, _ in values], sep="," if csv else " ")
        texts = [(f"{value:.9g}" if csv else f"{value:11.5g}") if math.isfinite(value) else "" if csv else f"{'-':>11}"
                 for _, value in values]  # fmt: skip
        print(mode[1] if csv else f"{mode[1]:16}", *texts, sep="," if csv else " ")


def main(arguments):
    given, modes = parse(arguments)
    rows = simulate(given, modes)
    if isinstance(rows, int):
        return rows
    print_lines([dict(mode=row.mode, workers=row.workers, **line) for row in rows for line in lines_of(row, given)], given)
    return 0

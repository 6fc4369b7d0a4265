# SPDX-License-Identifier: Apache-2.0
"""All results of a comparison as JSON, comma-separated values, and plots by gnuplot. Times are microseconds."""
import csv
import json
import os
import shutil

import compare_links
import study_file
import tool
from compare_contenders import Contender, Entry
from compare_rounds import NAMES, SHARDS, TIMINGS, Cell, Row, Turn, behind, first_ranks, ratio
from tool import real

VERSION = 3  # of the JSON, and of what is timed: files that differ in that are not continued


def name_of(contender):
    return contender.name if contender else None


def contender_json(one):
    return {
        "name": one.name,
        "kind": one.kind,
        "below": name_of(one.below),
        "memory": one.memory,
        "library": one.library,
        "command": one.command,
        "settings": one.settings,
        "left_out": one.absent or None,
    }


def micro(seconds):
    return [real(one * 1e6) for one in seconds]


def cell_json(row, one):
    cell = row.cells[one.name]
    return {
        "name": one.name,
        **{timing: real(row.time(one, timing) * 1e6) for timing in TIMINGS},
        "bus_bandwidth": real(row.bus_bandwidth(row.time(one, "fresh"))),
        "calls": cell.calls,
        "values_right": not cell.wrong,
        "off_wire": cell.off_wire,
        "over": cell.over or None,
        "turns": [{"line_ns": [real(line * 1e9) for line in turn.lines], "placement": turn.placement(row.run.split),
                   **{timing: micro(three) for timing, three in turn.times.items()}} for turn in cell.turns],
    }  # fmt: skip


def ratio_json(x, other):
    return {"to": name_of(other), "x": real(x.value), "low": real(x.low), "high": real(x.high)} if x else None


def row_json(run, row):
    against = {}
    for one in run.of_kind("twill"):
        against[one.name] = {}
        for timing in TIMINGS:
            bound, peer = row.best("bound", timing), row.best("peer", timing)
            against[one.name][timing] = {
                "peer": ratio_json(row.ratio(peer, one, timing), peer),
                "below": ratio_json(row.ratio(one.below, one, timing), one.below),
                "share_of_bound": real(ratio(row.time(bound, timing), row.time(one, timing))),
            }
    return {
        "collective": row.collective,
        "bytes": row.bytes,
        "seconds": real(row.seconds),
        "one_way_ns" if run.options.hosts else "line_ns": real(row.line * 1e9),
        "placement": row.placement,
        **{what: {timing: name_of(row.best(kind, timing)) for timing in TIMINGS} for what, kind in (("bound", "bound"), ("best", "peer"))},
        "twill": {name: several for name, several in against.items() if row.cells[name].turns},
        "times": [cell_json(row, one) for one in run.contenders if row.cells[one.name].turns or row.cells[one.name].over],
    }


def steps_json(one):
    return {
        "list": one.list,
        "name": one.contender.name,
        "reduces": one.reduces,
        "bytes": one.bytes,
        "compute": real(one.compute * 1e6),
        "step": real(one.step * 1e6),
        "exposed": one.exposed * 1e6,
        "samples": len(one.samples[1]),
        "values_right": not one.wrong,
    }


def hosts_json(run):
    """List the hosts in rank order, none for a single host."""
    found = []
    for (name, ranks), rank in zip(run.options.hosts, first_ranks(run)):
        hello = run.links.hellos.get(rank)
        calls, congestion = (hello.host, hello.congestion) if hello else ("", "")
        found.append({"name": name, "ranks": ranks, "calls_itself": calls, "congestion_control": congestion})
    return found


def write(option, path, save):
    try:
        with open(path, "w", encoding="utf-8") as file:
            save(file)
    except OSError as error:
        raise tool.Failure(f"--{option}: {path}: {error.strerror}") from None


def save_json(run):
    whole = {
        "version": VERSION,
        "date": run.date,
        "machine": {**study_file.machine(), "cores": run.cores},
        "ranks": run.options.ranks,
        "hosts": hosts_json(run),
        "bound_to_cores": run.bind,
        "rounds": run.options.rounds,
        "mode": mode_of(run.options),
        "split_ns": real((run.split or 0) * 1e9),
        "settings": {key: text for key, text in os.environ.items() if key.startswith("TWILL_")},
        "seconds": real(run.seconds),
        "contenders": [contender_json(one) for one in run.contenders],
        "behind": [{"collective": row.collective, "bytes": row.bytes, "timing": timing, "name": one.name, **ratio_json(x, other)}
                   for row, timing, one, other, x in behind(run)],
        "results": [row_json(run, row) for row in run.rows] + [steps_json(one) for one in run.steps if one.samples[1]],
    }  # fmt: skip
    path = run.options.json + ".part"  # a run that is killed leaves the file of before
    write("json", path, lambda file: print(json.dumps(whole, indent=1), file=file))
    os.replace(path, run.options.json)


def mode_of(options):
    return "mpi" if options.mpi else "steps" if options.steps else "hosts" if options.hosts else "node"


def load_cell(saved):
    cell = Cell()
    cell.calls, cell.wrong, cell.over = saved["calls"], not saved["values_right"], saved["over"] or ""
    for turn in saved["turns"]:
        times = {timing: [one * 1e-6 for one in turn[timing]] for timing in TIMINGS}
        cell.turns.append(Turn([line * 1e-9 for line in turn["line_ns"]], **times))
    return cell


def load(run):
    """Take the rows of an earlier run from the file of --json. Its contenders that are not in this run keep their results."""
    options = run.options
    try:
        with open(options.json, encoding="utf-8") as file:
            whole = json.load(file)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise tool.Failure(f"--resume: {options.json}: {error}") from None
    mine = {"version": VERSION, "mode": mode_of(options), "ranks": options.ranks, "rounds": options.rounds}
    different = [key for key, one in mine.items() if whole.get(key) != one]
    if different:
        raise tool.Failure(f"--resume: {options.json} has another {different[0]}: {whole.get(different[0])}, not {mine[different[0]]}")
    known = {one.name: one for one in run.contenders}
    for saved in whole["contenders"]:
        if saved["name"] not in known and not saved["left_out"]:
            one = Contender(saved["name"], saved["kind"], Entry(saved["name"], ""), saved["memory"], known.get(saved["below"]))
            one.library, one.absent, one.found = saved["library"], "not in this run", True
            known[one.name] = one
            run.contenders.append(one)
    for saved in whole["results"]:
        row = Row(run, saved["collective"], saved["bytes"])
        row.seconds = saved["seconds"] or 0
        row.cells.update((cell["name"], load_cell(cell)) for cell in saved["times"] if cell["name"] in known)
        run.rows.append(row)
    run.seconds_before = whole["seconds"] or 0


def save_csv(run):
    def save(file):
        print("collective,bytes,contender,ranks,timing,line_ns,us,busbw_gbs,values_right", file=file)
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="")
        for row in run.rows:
            for one in run.contenders:
                for timing in TIMINGS:
                    seconds, cell = row.time(one, timing), row.cells[one.name]
                    if seconds > 0:
                        file.write(f"{row.collective},{row.bytes},")
                        writer.writerow([one.name])
                        numbers = f"{row.line * 1e9:.6g},{seconds * 1e6:.6g},{row.bus_bandwidth(seconds):.6g}"
                        print(f",{run.options.ranks},{timing},{numbers},{'false' if cell.wrong else 'true'}", file=file)

    write("csv", run.options.csv, save)


# --- plots ---------------------------------------------------------------------------------------

COLOURS = ["#1b7837", "#e08214", "#2166ac", "#8073ac", "#b2182b", "#80cdc1", "#bf812d", "#999999"]
OURS = ["#d6604d", "#f4a582", "#d6008b", "#762a83"]


def style(one, nth):
    """Return a style. twill stands out, the bound is black, and peers are thin."""
    if one.kind == "bound":
        return f"lw 2 dt {3 if nth else 1} lc rgb 'black' pt 0"
    if one.kind == "trip":
        return "lw 1 dt 3 lc rgb '#777777' pt 0"
    if one.kind == "twill":
        return f"lw 3 lc rgb '{OURS[nth % 4]}' pt {5 + 2 * (nth % 4)} ps 0.6"
    return f"lw 1 dt 1 lc rgb '{COLOURS[nth % 8]}' pt 6 ps 0.3"


def panel(run, there, column):
    nth, curves = {}, []
    for i, one in enumerate(run.contenders):
        if one.found:
            count = nth[one.kind] = nth.get(one.kind, -1) + 1
            if one in there:
                curves.append(f"$c{i} using 1:{column} with linespoints title '{one.name}' {style(one, count)}")
    return "plot " + ", ".join(curves)


def script(run, rows, svg):
    """Return the script of gnuplot for two panels, with times of all contenders over bytes, and the ratio to the bound."""
    lines = [f"set terminal svg size 1200,620 font 'sans-serif,12' background rgb 'white'\nset output '{svg}'"]
    there = [one for one in run.contenders if any(row.time(one, "fresh") for row in rows)]
    for i, one in enumerate(run.contenders):
        lines.append(f"$c{i} << EOD")
        for row in rows:
            seconds, limit = row.time(one, "fresh"), row.time(row.best("bound", "fresh"), "fresh")
            if seconds > 0:
                lines.append(f"{row.bytes} {seconds * 1e6:g} {ratio(seconds, limit):g}")
        lines.append("EOD")
    lines.append(f"""\
set multiplot layout 1,2 title '{rows[0].collective}, {tool.plural(run.options.ranks, "rank")}, float sum, fresh data' noenhanced
set bmargin at screen 0.25
set tmargin at screen 0.93
set logscale xy
set logscale x 2
set grid
set format x '%.0b %BB'
set xtics 4,16
set key at screen 0.5,0.01 center bottom maxrows 3 samplen 2 font ',10' noenhanced
set ylabel 'microseconds'
{panel(run, there, 2)}
set ylabel 'times the bound'
set yrange [0.5:60]
unset key
{panel(run, there, 3)}
unset multiplot""")
    return "\n".join(lines) + "\n"


def plot_one(run, rows):
    """Write an SVG, and return the exit status of gnuplot."""
    path = os.path.join(run.folders.work, rows[0].collective + ".gnuplot")
    log = os.path.join(run.folders.work, "gnuplot.log")
    text = script(run, rows, f"{run.options.plot}-{rows[0].collective}.svg")
    write("plot", path, lambda file: file.write(text))
    status = compare_links.command(run, ["gnuplot", path], log)
    if status != 0:
        tool.say(f"--plot: no plot: {compare_links.first_line(log)}")
    return status


def check_plot(prefix):
    """Warn about a missing gnuplot before the measurement."""
    if not shutil.which("gnuplot"):
        tool.say(f"--plot {prefix}: gnuplot is not in PATH: there will be no plots (--json and --csv keep the results)")


def plot(run):
    for name in [name for name in NAMES if name in SHARDS]:
        rows = [row for row in run.rows if row.collective == name]
        status = plot_one(run, rows) if len(rows) > 1 else 0  # a line needs two points
        if status:
            return status == 127  # a missing gnuplot is not a failure
    return True

# SPDX-License-Identifier: Apache-2.0
"""All results of a comparison as JSON, comma-separated values, and plots by gnuplot. Times are microseconds."""
import csv
import json
import os
import shutil

import compare_links
import study_file
import tool
from compare_rounds import NAMES, first_ranks, ratio
from tool import real


def name_of(contender):
    return contender.name if contender else None


def contender_json(one):
    return {
        "name": one.name,
        "kind": one.kind,
        "below": name_of(one.below),
        "tuned": one.tuned,
        "memory": one.memory,
        "library": one.library,
        "command": one.command,
        "settings": one.settings,
        "left_out": one.absent or None,
    }


def row_json(run, row):
    bound, installed, tuned = row.best("bound"), row.best("peer"), row.best("peer", True)
    keys = {"times_installed": installed, "times_tuned": tuned, "share_of_bound": bound}
    times, against = [], {}
    for one in run.contenders:
        cell = row.cells[one.name]
        if not cell.samples:
            continue
        times.append({
            "name": one.name,
            **{key: real(getattr(cell, key) * 1e6) for key in ("median", "min", "p99")},
            "bus_bandwidth": real(row.bus_bandwidth(cell.median)),
            "batches": len(cell.samples),
            "calls": cell.calls,
            "rounds": [real(seconds * 1e6) for seconds in cell.rounds],
            "values_right": not cell.wrong,
            "off_wire": cell.off_wire,
        })  # fmt: skip
        if one.kind == "twill":
            against[one.name] = {key: real(ratio(row.median(other), cell.median)) for key, other in keys.items()}
            against[one.name]["times_below"] = real(row.over_below(one))
    return {
        "collective": row.collective,
        "bytes": row.bytes,
        "seconds": real(row.seconds),
        "one_way_ns" if run.options.hosts else "line_ns": real(row.line * 1e9),
        "line_ns_rounds": [real(line * 1e9) for line in row.lines],
        "bound": name_of(bound),
        "best_installed": name_of(installed),
        "best_tuned": name_of(tuned),
        "twill": against,
        "times": times,
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
        "version": 1,
        "date": run.date,
        "machine": {**study_file.machine(), "cores": run.cores},
        "ranks": run.options.ranks,
        "hosts": hosts_json(run),
        "bound_to_cores": run.bind,
        "rounds": run.options.rounds,
        "seconds": real(run.seconds),
        "contenders": [contender_json(one) for one in run.contenders],
        "results": [row_json(run, row) for row in run.rows] + [steps_json(one) for one in run.steps if one.samples[1]],
    }
    write("json", run.options.json, lambda file: print(json.dumps(whole, indent=2), file=file))


def save_csv(run):
    def save(file):
        print("collective,bytes,contender,ranks,min_us,median_us,p99_us,busbw_gbs,values_right", file=file)
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="")
        for row in run.rows:
            for one in run.contenders:
                cell = row.cells[one.name]
                if cell.samples:
                    file.write(f"{row.collective},{row.bytes},")
                    writer.writerow([one.name])
                    times = ",".join(f"{seconds * 1e6:.6g}" for seconds in (cell.min, cell.median, cell.p99))
                    bandwidth = f"{row.bus_bandwidth(cell.median):.6g}"
                    print(f",{run.options.ranks},{times},{bandwidth},{'false' if cell.wrong else 'true'}", file=file)

    write("csv", run.options.csv, save)


# --- plots ---------------------------------------------------------------------------------------

COLOURS = ["#1b7837", "#e08214", "#2166ac", "#8073ac", "#b2182b", "#80cdc1", "#bf812d", "#999999"]
OURS = ["#d6604d", "#f4a582", "#d6008b", "#762a83"]


def style(one, nth):
    """Return a style. twill stands out, the bound is black, peers as installed are thin, and tuned ones are dashed."""
    if one.kind == "bound":
        return f"lw 2 dt {3 if nth else 1} lc rgb 'black' pt 0"
    if one.kind == "trip":
        return "lw 1 dt 3 lc rgb '#777777' pt 0"
    if one.kind == "twill":
        return f"lw 3 lc rgb '{OURS[nth % 4]}' pt {5 + 2 * (nth % 4)} ps 0.6"
    return f"lw 1 dt {2 if one.tuned else 1} lc rgb '{COLOURS[nth % 8]}' pt 6 ps 0.3"


def panel(run, there, column):
    nth, curves = {}, []
    for i, one in enumerate(run.contenders):
        if one.found:
            count = nth[one.kind, one.tuned] = nth.get((one.kind, one.tuned), -1) + 1
            if one in there:
                curves.append(f"$c{i} using 1:{column} with linespoints title '{one.name}' {style(one, count)}")
    return "plot " + ", ".join(curves)


def script(run, rows, svg):
    """Return the script of gnuplot for two panels, with times of all contenders over bytes, and the ratio to the bound."""
    lines = [f"set terminal svg size 1200,620 font 'sans-serif,12' background rgb 'white'\nset output '{svg}'"]
    there = [one for one in run.contenders if any(row.cells[one.name].samples for row in rows)]
    for i, one in enumerate(run.contenders):
        lines.append(f"$c{i} << EOD")
        for row in rows:
            cell = row.cells[one.name]
            if cell.samples:
                lines.append(f"{row.bytes} {cell.median * 1e6:g} {ratio(cell.median, row.median(row.best('bound'))):g}")
        lines.append("EOD")
    lines.append(f"""\
set multiplot layout 1,2 title '{rows[0].collective}, {tool.plural(run.options.ranks, "rank")}, float sum' noenhanced
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
    """Write an SVG. A missing gnuplot is not a failure."""
    path = os.path.join(run.folders.work, rows[0].collective + ".gnuplot")
    log = os.path.join(run.folders.work, "gnuplot.log")
    text = script(run, rows, f"{run.options.plot}-{rows[0].collective}.svg")
    write("plot", path, lambda file: file.write(text))
    status = compare_links.command(run, ["gnuplot", path], log)
    if status != 0:
        tool.say(f"--plot: no plot: {compare_links.first_line(log)}")
    return status in (0, 127)


def check_plot(prefix):
    """Warn about a missing gnuplot before the measurement."""
    if not shutil.which("gnuplot"):
        tool.say(f"--plot {prefix}: gnuplot is not in PATH: there will be no plots (--json and --csv keep the results)")


def plot(run):
    for name in NAMES[: NAMES.index("barrier")]:
        rows = [row for row in run.rows if row.collective == name]
        if len(rows) > 1 and not plot_one(run, rows):  # a line needs two points
            return False
    return True

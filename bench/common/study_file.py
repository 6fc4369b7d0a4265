#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write bench/results/NAME.json, the file of a study; bench/results/make_pages.py has its format and makes pages of it.

study_file.py NAME TABLE COLUMN[:UNIT],... [-- COMMAND WORD...] <rows
    Replace one table of the file by the rows on standard input, whose cells are separated by blanks or, if there is one
    in the row, by tabs. Date, machine, revision, versions and load are those of now. COMMAND is what made the rows.
study_file.py --compare NAME RAW.json COMMAND WORD...
    Write the file from what twill-compare --json has written: medians, and how far the rounds lie apart.
study_file.py --others NAME PERCENT
    Note in the file how much of the machine's processor time other programs have used.
study_file.py --steps RAW.json SETTING TFLOPS
    Print the training steps that twill-compare --json has written, as rows of training-steps.
"""

import datetime
import json
import os
import platform
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.environ.get("STUDY_RESULTS") or os.path.join(HERE, "../results")
# Name of a peer, its package of Debian, and what a file that measures it has in its names.
PACKAGES = [("Open MPI", "libopenmpi3", "open mpi|ompi"), ("MPICH", "libmpich12", "mpich"), ("Gloo", "libgloo0", "gloo"),
            ("libfabric", "libfabric1", "ofi|libfabric"), ("SimGrid", "libsimgrid-dev", "theta")]  # fmt: skip


def rest_of_line(path, key=""):
    """Return the rest of the line that begins with `key`: "model name : Intel ...", or None."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return next((line[len(key) :].strip(" \t:\n") for line in file if line.startswith(key)), None)
    except OSError:
        return None


def machine():
    """Describe this machine."""
    pages = "/sys/kernel/mm/transparent_hugepage/"
    return {
        "processor": rest_of_line("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "memory": rest_of_line("/proc/meminfo", "MemTotal:"),
        "huge_pages": rest_of_line(pages + "enabled"),
        "shared_huge_pages": rest_of_line(pages + "shmem_enabled"),
    }


def output(*words):
    """Return what a command prints, or None if it fails."""
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True, cwd=HERE).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def revision():
    """Return the revision of the tree, with -dirty if it has changes beside results; or STUDY_REVISION, where there is no git."""
    if os.environ.get("STUDY_REVISION"):
        return os.environ["STUDY_REVISION"]
    changed = output("git", "status", "--porcelain", "--", ":/", ":!/bench/results", ":!/docs/results")
    return (output("git", "describe", "--always") or "") + ("-dirty" if changed else "") or None


def versions(names):
    """Return the versions of twill and of each peer that a study names, and those of STUDY_VERSIONS (NAME=VERSION,...)."""
    with open(os.path.join(HERE, "../../CMakeLists.txt"), encoding="utf-8") as file:
        found = {"twill": re.search(r"VERSION ([0-9.]+)", file.read().split("project(", 1)[1]).group(1)}
    for name, package, pattern in PACKAGES:
        version = output("dpkg-query", "-W", "-f", "${Version}", package) if re.search(pattern, names, re.I) else None
        if version:
            found[name] = re.sub(r"^[0-9]+:|-[^-]*$", "", version)
    found.update(word.split("=", 1) for word in os.environ.get("STUDY_VERSIONS", "").split(",") if word)
    return found


def head(name, command):
    """Return all of a study's file but its tables."""
    return {
        "study": name,
        "command": command,
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "revision": revision(),
        "versions": {},
        "load": f"{os.getloadavg()[2]:.1f}",
        "tables": {},
    }


def text_of(study):
    """Return the text of a file: a row of a table in a line."""
    tables = study["tables"]
    whole = json.dumps({**study, "tables": "@"}, indent=1, ensure_ascii=False)
    parts = []
    for name, table in tables.items():
        rows = ",\n".join("   " + json.dumps(row, ensure_ascii=False) for row in table["rows"])
        units = json.dumps(table["units"], ensure_ascii=False)
        parts.append(f'  {json.dumps(name)}: {{"units": {units}, "rows": [\n{rows}]}}')
    return whole.replace('"@"', "{\n" + ",\n".join(parts) + "\n }") + "\n"


def path_of(name):
    return os.path.join(RESULTS, name + ".json")


def save(study):
    if not study.get("transcribed"):
        study["versions"] = versions(study["study"] + json.dumps(study["tables"]))
    with open(path_of(study["study"]), "w", encoding="utf-8") as file:
        file.write(text_of(study))


def value(word):
    """Return a cell as a number, if it is one, or as text."""
    try:
        return None if word == "-" else int(word) if re.fullmatch("-?[0-9]+", word) else float(f"{float(word):.6g}")
    except ValueError:
        return word


def add_table(name, table, columns, command):
    """Put the rows on standard input into the file of a study, whose other tables stay if they were measured."""
    study = head(name, command)
    if os.path.exists(path_of(name)):
        with open(path_of(name), encoding="utf-8") as file:
            before = json.load(file)
        if not before.get("transcribed"):
            study["tables"] = before["tables"]
    units = dict((column.split(":") + [""])[:2] for column in columns.split(","))
    rows = [
        [value(word) for word in (line.rstrip("\n").split("\t") if "\t" in line else line.split())]
        for line in sys.stdin
    ]
    wrong = [row for row in rows if len(row) != len(units)]
    if wrong or not rows:
        sys.exit(f"study_file.py: {name}, {table}: " + (f"not {len(units)} cells: {wrong[0]}" if wrong else "no rows"))
    study["tables"][table] = {"units": units, "rows": rows}
    save(study)


def condense(name, raw_path, command):
    """Write the file of a comparison."""
    with open(raw_path, encoding="utf-8") as file:
        raw = json.load(file)
    study = head(name, command)
    study["date"] = raw["date"][:10]  # a run may have been continued
    lines = sorted(row["line_ns"] for row in raw["results"] if row.get("line_ns"))
    study["machine"]["line_ns"] = f"{lines[0]:.0f} to {lines[-1]:.0f}" if lines else None
    there = [one for one in raw["contenders"] if any(cell["name"] == one["name"] for row in raw["results"] for cell in row["times"])]
    columns = {"collective": "", "bytes": "B", **{one["name"]: "us" for one in there}}
    tables = {"contenders": {"units": {"name": "", "kind": "", "memory": "", "tuned": ""},
                             "rows": [[one["name"], one["kind"], one["memory"], False] for one in there]}}  # fmt: skip
    for timing, table in (("fresh", "times"), ("again", "again")):
        tables[table] = {"units": columns, "rows": [
            [row["collective"], row["bytes"]] + [{cell["name"]: cell[timing] for cell in row["times"]}.get(key) for key in list(columns)[2:]]
            for row in raw["results"]]}  # fmt: skip
    below = {one["name"]: one["below"] for one in raw["contenders"]}
    ratios = [
        [row["collective"], row["bytes"], timing, key, x["to"], x["x"], x["low"], x["high"], several[timing]["share_of_bound"]]
        for row in raw["results"] for key, several in row["twill"].items() for timing in ("fresh", "again")
        for x in [several[timing]["below" if below.get(key) else "peer"]] if x and not key.endswith("+off")]  # fmt: skip
    if ratios:
        tables["ratios"] = {"units": {"collective": "", "bytes": "B", "timing": "", "name": "", "to": "", "x": "x", "low": "x",
                                      "high": "x", "share": ""}, "rows": ratios}  # fmt: skip
    limits = [[row["collective"], row["bytes"], cell["name"], cell["over"]] for row in raw["results"] for cell in row["times"] if cell["over"]]
    if limits:
        tables["limits"] = {"units": {"collective": "", "bytes": "B", "name": "", "over": ""}, "rows": limits}
    found = {}  # several versions of an MPI may have taken part
    for one in there:
        for peer, version in re.findall(r"(Open MPI|Intel\(R\) MPI|MPICH|oneCCL)(?: Library| Version:)? *v?([0-9.]*[0-9])", one["library"]):
            found.setdefault(peer.replace("(R)", ""), set()).add(version)
    os.environ["STUDY_VERSIONS"] = ",".join(f"{peer}={' and '.join(sorted(several))}" for peer, several in found.items())
    study["ranks"], study["rounds"], study["tables"] = raw["ranks"], raw["rounds"], tables
    save(study)


def note_others(name, percent):
    """Note the share of other programs in the file of a study that has just been measured."""
    with open(path_of(name), encoding="utf-8") as file:
        study = json.load(file)
    study = {key: value for pair in study.items() for key, value in ([pair] + [("others", f"{max(0, int(percent))} %")] * (pair[0] == "load"))}
    with open(path_of(name), "w", encoding="utf-8") as file:
        file.write(text_of(study))


def print_steps(raw_path, setting, tflops):
    """Print rows: model, setting, speed of the device, computing in ms, library, how it reduces, exposed ms."""
    with open(raw_path, encoding="utf-8") as file:
        rows = [row for row in json.load(file)["results"] if "exposed" in row]
    computing = sorted(row["compute"] for row in rows)[len(rows) // 2] / 1000
    names = {"ompi": "Open MPI", "mpich": "MPICH", "gloo": "Gloo"}
    for row in rows:
        model = os.path.basename(row["list"]).removesuffix(".txt")
        library = names.get(row["name"].split("-")[0], row["name"])
        print(
            model,
            setting,
            tflops,
            f"{computing:.4g}",
            library,
            row["reduces"],
            f"{row['exposed'] / 1000:.4g}",
            sep="\t",
        )


def main(arguments):
    if arguments[:1] == ["--steps"] and len(arguments) == 4:
        return print_steps(*arguments[1:])
    if arguments[:1] == ["--others"] and len(arguments) == 3:
        return note_others(*arguments[1:])
    if arguments[:1] == ["--compare"] and len(arguments) > 3:
        return condense(arguments[1], arguments[2], " ".join(arguments[3:]))
    if len(arguments) > 4 and arguments[3] == "--":
        return add_table(*arguments[:3], " ".join(arguments[4:]))
    sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])

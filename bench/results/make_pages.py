#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make docs/results/ from bench/results/: a page and its plots from the file of each study, index.md, and speed.json.

make_pages.py            write what differs (plots need matplotlib)
make_pages.py --redraw   draw all plots anew
make_pages.py --check    write nothing; print what is missing, stale or has no page, and exit with status 1 if anything is

Format of bench/results/NAME.json, which bench/common/study_file.py writes:

    study     NAME
    command   the command that measures it
    date      of the measurement, YYYY-MM-DD
    machine   processor, cores, kernel, memory, ..., line_ns: nanoseconds in which a cache line goes from core to core
    revision  of twill's repository
    versions  of twill and of each peer
    load      what else ran: the load average over 15 minutes before the end, or words
    transcribed   only if the figures were not written by a tool: where they come from
    tables    NAME: {"units": {COLUMN: UNIT, ...}, "rows": [[CELL, ...], ...]}; units has all columns in their order

What is not known is null.

Format of docs/results/speed.json, for a page that shows the times of all contenders. It has every time of the comparisons:

    units     {"bytes": "B", "median": "us"}
    machines  KEY: {"title": what a reader calls it, "processor", "cores", "kernel", "date", "revision", "command", "transcribed"}
    contenders  KEY: {"title": "Open MPI, UCX", "kind": "twill" | "peer" | "bound", "tuned": true | false}
    columns   ["machine", "collective", "ranks", "bytes", "contender", "memory", "median"]
    rows      one list a time, in the order of the columns. machine and contender are keys of the above.
              collective: allreduce_in (in place), allreduce_out, broadcast, allgather, reduce_scatter, barrier, ...
              bytes: of a rank's message; 0 for a barrier. memory: malloc, huge (malloc in huge pages), twill_alloc, heap
              (malloc with TWILL_HEAP=shared). median: microseconds a call, on the slowest rank.
"""
import hashlib
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)

FIELDS = {"study", "command", "date", "machine", "revision", "versions", "load", "tables"}
COMPARISONS = ("one-node", "two-hosts", "mpi-programs")
MEMORY = {"plain": "malloc", "own": "twill_alloc"}
TITLES = {
    "bound": "bound", "bound-stream": "bound, past the caches", "gloo": "Gloo, ring", "gloo-halving": "Gloo, halving and doubling",
    "ompi-cma": "Open MPI, CMA", "ompi-copy": "Open MPI, copies", "ompi-ucx": "Open MPI, UCX", "mpich": "MPICH, UCX",
    "mpich-copy": "MPICH, UCX without CMA", "twill": "twill", "twill-huge": "twill, huge pages", "twill-alloc": "twill, twill_alloc",
    "twill-heap": "twill, TWILL_HEAP=shared",
}  # fmt: skip


def read(results):
    """Return the files of all studies by name."""
    found = {}
    for name in sorted(os.listdir(results)):
        if name.endswith(".json"):
            with open(os.path.join(results, name), encoding="utf-8") as file:
                found[name[: -len(".json")]] = json.load(file)
    return found


def faults_of(name, study):
    """Say what a study's file lacks."""
    for field in sorted(FIELDS - set(study)):
        yield f"{name}.json has no {field}"
    if study.get("study") != name:
        yield f"{name}.json says that it is the study {study.get('study')}"
    if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", study.get("date") or ""):
        yield f"{name}.json has no date"
    for key in ("processor", "cores", "kernel"):
        if key not in study.get("machine", {}):
            yield f"{name}.json: its machine has no {key}"
    if "twill" not in study.get("versions", {}):
        yield f"{name}.json has no version of twill"
    for title, table in study.get("tables", {}).items():
        if not table.get("rows") or any(len(row) != len(table["units"]) for row in table["rows"]):
            yield f"{name}.json: {title} has no rows, or rows that do not fit its columns"


def speed(studies):
    """Return the times of all comparisons as docs/results/speed.json has them."""
    machines, contenders, rows = {}, {}, []
    for name in COMPARISONS:
        study = studies.get(name)
        if not study or "times" not in study["tables"]:
            continue
        machine = study["machine"]
        known = {key: machine.get(key) for key in ("title", "processor", "cores", "kernel")}
        machines[name] = {**known, **{key: study.get(key) for key in ("date", "revision", "command", "transcribed")}}
        memory = {}
        for key, kind, kept, tuned in study["tables"]["contenders"]["rows"]:
            base = key.removesuffix("-tuned") if tuned else key
            title = TITLES.get(base, base) + (", tuned" if tuned else "")
            contenders[key], memory[key] = {"title": title, "kind": kind, "tuned": tuned}, MEMORY.get(kept, kept)
        times = study["tables"]["times"]
        for row in times["rows"]:
            for key, median in list(zip(times["units"], row))[2:]:
                if median is not None:
                    rows.append([name, row[0], study["ranks"], row[1], key, memory[key], median])
    columns = ["machine", "collective", "ranks", "bytes", "contender", "memory", "median"]
    whole = {"units": {"bytes": "B", "median": "us"}, "machines": machines, "contenders": contenders, "columns": columns, "rows": "@"}
    text = ",\n".join("  " + json.dumps(row) for row in rows)
    return json.dumps(whole, indent=1, ensure_ascii=False).replace('"@"', f"[\n{text}\n ]") + "\n"


def main(arguments):
    studies = read(HERE)
    docs = os.path.join(HERE, "../../docs/results")
    faults = [fault for name, study in studies.items() for fault in faults_of(name, study)]
    wanted = {"speed.json": speed(studies)}
    for name, text in wanted.items():
        path = os.path.join(docs, name)
        there = open(path, encoding="utf-8").read() if os.path.exists(path) else None
        if there != text and "--check" in arguments:
            faults.append(f"docs/results/{name} is stale: python3 bench/results/make_pages.py")
        elif there != text:
            open(path, "w", encoding="utf-8").write(text)
            print(f"wrote docs/results/{name}")
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

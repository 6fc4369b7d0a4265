#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make docs/results/ from bench/results/: a page and its plots from the file of each study, index.md, and speed.json.

make_pages.py            write what differs (plots need matplotlib)
make_pages.py --redraw   draw all plots anew
make_pages.py --check    write nothing, print what is missing, stale or has no page, and exit with status 1 if anything is

Format of bench/results/NAME.json, which bench/common/study_file.py writes:

    study     NAME
    command   the command that measures it
    date      of the measurement, YYYY-MM-DD
    machine   processor, cores, kernel, memory, ..., line_ns: nanoseconds in which a cache line goes from core to core
    revision  of twill's repository
    versions  of twill and of each peer
    load      what else ran: the load average over 15 minutes before the end, or words
    others    only if measure.sh has measured it: processor time of other programs meanwhile, of that of all cores
    note      only if there is one: what else is to be known about the run
    transcribed   only if the figures were not written by a tool: where they come from
    tables    NAME: {"units": {COLUMN: UNIT, ...}, "rows": [[CELL, ...], ...]}; units has all columns in their order

What is not known is null.

Format of docs/results/speed.json, which has every time of the comparisons, for a page that shows all contenders:

    units     {"bytes": "B", "median": "us"}
    machines  KEY: {"title": what a reader calls it, "processor", "cores", "kernel", "date", "revision", "command",
              "transcribed"}
    contenders  KEY: {"title": "Open MPI, UCX", "kind": "twill" | "peer" | "bound", "tuned": true | false}
    columns   ["machine", "collective", "ranks", "bytes", "contender", "memory", "median"]
    rows      one list a time, in the order of the columns. machine and contender are keys of the above.
              collective: allreduce_in (in place), allreduce_out, broadcast, allgather, reduce_scatter, barrier, ...
              bytes: of a rank's message; 0 for a barrier. memory: malloc, huge (malloc in huge pages), twill_alloc,
              heap (malloc with TWILL_HEAP=shared). median: microseconds a call, on the slowest rank.
"""

import hashlib
import json
import os
import re
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
import pages  # noqa: E402
import plots  # noqa: E402

DOCS = os.path.join(HERE, "../../docs/results")
FIELDS = {"study", "command", "date", "machine", "revision", "versions", "load", "tables"}
MEMORY = {"plain": "malloc", "own": "twill_alloc", "registered": "malloc", "promoted": "malloc"}


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
    machine, measured = study.get("machine") or {}, not study.get("transcribed")
    for key in ("processor", "cores", "kernel"):
        if key not in machine or (measured and machine[key] is None):
            yield f"{name}.json: its machine has no {key}"
    if "twill" not in (study.get("versions") or {}) or (measured and not study.get("revision")):
        yield f"{name}.json has no version or revision of twill"
    for title, table in (study.get("tables") or {}).items():
        if not table.get("rows") or any(len(row) != len(table["units"]) for row in table["rows"]):
            yield f"{name}.json: {title} has no rows, or rows that do not fit its columns"


def speed(studies):
    """Return the times of all comparisons as docs/results/speed.json has them."""
    machines, contenders, rows = {}, {}, []
    for name, study in studies.items():
        if not {"times", "contenders"} <= set(study["tables"]):
            continue
        machine = study["machine"]
        known = {"title": machine.get("title") or f"{machine['processor']}, {machine['cores']} cores"}
        known.update((key, machine[key]) for key in ("processor", "cores", "kernel"))
        machines[name] = {**known, **{key: study.get(key) for key in ("date", "revision", "command", "transcribed")}}
        memory = {}
        for key, kind, kept, tuned in study["tables"]["contenders"]["rows"]:
            contenders[key], memory[key] = {"title": pages.title_of(key), "kind": kind, "tuned": tuned}, MEMORY.get(
                kept, kept
            )
        times = study["tables"]["times"]
        for row in times["rows"]:
            for key, median in list(zip(times["units"], row))[2:]:
                if median is not None:
                    rows.append([name, row[0], study["ranks"], row[1], key, memory[key], median])
    columns = ["machine", "collective", "ranks", "bytes", "contender", "memory", "median"]
    whole = {
        "units": {"bytes": "B", "median": "us"},
        "machines": machines,
        "contenders": contenders,
        "columns": columns,
        "rows": "@",
    }
    text = ",\n".join("  " + json.dumps(row) for row in rows)
    return json.dumps(whole, indent=1, ensure_ascii=False).replace('"@"', f"[\n{text}\n ]") + "\n"


def filled(text):
    """Break paragraphs and list items into lines of at most 120 characters; tables and the like stay as they are."""
    if text.startswith(("|", "    ", "<", "![")):
        return text
    items = [" ".join(item.split()) for item in re.split(r"\n(?=- )", text)]
    return "\n".join(
        textwrap.fill(
            item, 120, break_long_words=False, break_on_hyphens=False, subsequent_indent="  " * item.startswith("- ")
        )
        for item in items
    )


def origin(study):
    """Say when, where and by what command a study was measured, and what of that was not recorded."""
    machine, name = study["machine"], study["study"]
    parts = {
        "processor": machine["processor"],
        "number of cores": machine["cores"] and f"{machine['cores']} cores",
        "kernel": machine["kernel"] and f"kernel {machine['kernel']}",
        "load": study["load"] and f"load: {study['load']}",
        "others": study.get("others") and f"other programs used {study['others']} of the processor time",
    }
    where = [study["date"]] + [part for part in parts.values() if part]
    if machine.get("line_ns"):
        where.insert(-1, f"a cache line goes from core to core in {machine['line_ns']} ns")
    versions = [f"{key} {value}" for key, value in study["versions"].items() if value]
    if study["revision"]:
        versions.append(f"revision of twill {study['revision']}")
    missing = [part for part, known in parts.items() if not known and part != "others"]
    missing += [
        f"{part} of twill"
        for part, known in (("version", study["versions"]["twill"]), ("revision", study["revision"]))
        if not known
    ]
    items = ["- **Date and machine:** " + "; ".join(where) + "."]
    items += ["- **Versions:** " + ", ".join(versions) + "."] if versions else []
    items += [f"- **Command:** `{study['command']}`", f"- **Data:** [{name}.json](../../bench/results/{name}.json)"]
    if study.get("transcribed"):
        items[-1] += f", transcribed from {study['transcribed']}."
    items += [f"- **Note:** {study['note']}."] if study.get("note") else []
    items += ["- **Not recorded:** " + ", ".join(missing) + "."] if missing else []
    return "\n".join(items)


def page_of(page, studies):
    """Return the text of a page, and its plots."""
    files = [studies[name] for name in page.files if name in studies]
    blocks = page.make(*[pages.Study(study) for study in files])
    drawn = [block for block in blocks if isinstance(block, plots.Plot)]
    parts = [f"# {page.title}", "<!-- made by bench/results/make_pages.py: do not edit -->", page.question]
    parts += [
        f"![{block.words}]({block.name}.svg)" if isinstance(block, plots.Plot) else block for block in blocks[:-1]
    ]
    parts += ["## Conclusion", blocks[-1], "## How it was measured"] + [origin(study) for study in files]
    return "\n\n".join(filled(part) for part in parts) + "\n", drawn


def index(made):
    """Return the page that lists all others."""
    parts = ["# Results", "<!-- made by bench/results/make_pages.py: do not edit -->", pages.INDEX]
    for group in dict.fromkeys(page.group for page in made):
        parts += [
            f"## {group}",
            "\n".join(f"- [{page.title}]({page.name}.md): {page.question}" for page in made if page.group == group),
        ]
    return "\n\n".join(filled(part) for part in parts) + "\n"


def digest_of(page, studies):
    text = json.dumps([studies.get(name) for name in page.files], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def text_at(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def main(arguments):
    studies = read(HERE)
    faults = [fault for name, study in studies.items() for fault in faults_of(name, study)]
    made = [page for page in pages.PAGES if any(name in studies for name in page.files)]
    used = {name for page in made for name in page.files}
    faults += [f"{name}.json has no page" for name in studies if name not in used]
    if faults:
        print("\n".join(faults))
        return 1
    wanted, drawn = {"speed.json": speed(studies), "index.md": index(made)}, {}
    for page in made:
        wanted[page.name + ".md"], several = page_of(page, studies)
        drawn.update({plot.name + ".svg": (plot, digest_of(page, studies)) for plot in several})
    for name, text in wanted.items():
        if text_at(os.path.join(DOCS, name)) != text:
            faults.append(f"docs/results/{name} is stale: python3 bench/results/make_pages.py")
            if "--check" not in arguments:
                with open(os.path.join(DOCS, name), "w", encoding="utf-8") as file:
                    file.write(text)
    for name, (plot, digest) in drawn.items():
        if "--redraw" in arguments or f"<!-- data: {digest} -->" not in text_at(os.path.join(DOCS, name)):
            faults.append(f"docs/results/{name} is stale: python3 bench/results/make_pages.py")
            if "--check" not in arguments:
                plots.draw(plot, os.path.join(DOCS, name), digest)
    for name in sorted(os.listdir(DOCS)):
        if name not in wanted and name not in drawn and name not in pages.BY_HAND:
            faults.append(f"docs/results/{name} is made of no study")
    print(
        "\n".join(
            (
                fault
                if "--check" in arguments
                else fault.replace(" is stale: python3 bench/results/make_pages.py", ": written")
            )
            for fault in faults
        )
    )
    return 1 if faults and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

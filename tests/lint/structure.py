#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure how the code hangs together, and fail where a figure is worse than its limit.

structure.py [--pairs]   one figure a line: name, value, limit; --pairs: also what ties folders of lib to each other

A limit is a figure that was reached: who makes it better lowers it. Bindings (lib/mpi, lib/python, lib/fortran, lib/heap) and public
headers are no folders here, and every folder may use the base. The files that a reader opens are the distinct ones that a section of
docs/inside/journey-*.md names; check_docs looks whether each function is where the page says.
"""
import collections
import glob
import os
import re
import statistics
import subprocess
import sys

CODE = (".c", ".h", ".cpp", ".hpp")
BINDINGS = ("lib/mpi", "lib/python", "lib/fortran", "lib/man", "lib/heap")
EXTENSIONS = ("lib/train", "lib/server", "lib/window")
BASE = "lib/base"
SLEEPS = r"\b(sched_yield|nanosleep|usleep|clock_nanosleep)\s*\("
RESTING = r"\b(sched_yield|nanosleep|usleep|clock_nanosleep|twill_yield|twill_nap|twill_rest)\s*\("
# Those above lib/wait that rest by themselves, with the reason; and the folders below it, which rest by lib/base/rest.h only.
RESTS = {
    "lib/mpi/mpi_comms.c": "the end of the MPI's own barriers, which only its calls advance",
    "lib/mpi/mpi_init.c": "a collective of the MPI, before twill is there",
    "lib/mpi/mpi_progress.c": "requests of the MPI, which only its calls advance",
}
BELOW = ("kernels/", "lib/base/", "lib/job/", "lib/engine/", "lib/wait/", "fabric/")
TIMES = "lib/base/times.h"
PROGRAMS = ("tests/", "bench/", "examples/", "fabric/launcher/preflight/")
TIME_CONSTANT = (r"#\s*define\s+\w*_(NS|US|MS|S|SECONDS)\s+[^\n]*[0-9]|UINT64_C\([1-9][0-9]*00000\)|\b[1-9][0-9]*0{6,}u?ll\b"
                 r"|\bpoll\([^()\n]*, [1-9][0-9]*\)|\bu?sleep\([1-9][0-9]*\)|\.tv_n?u?sec = [1-9][0-9]*\b")
JOURNEYS = {"An allreduce of 8 bytes": 14, "An allreduce of 1 MiB, for the first time": 18, "Start-up": 24, "A rank dies": 10}
PAGES = r"docs/|bench/results/.*\.json$"  # pages, and the data of results
DEFINITION = r"^(?!static)[A-Za-z_][\w \t*]*?\b(twill_\w+)\s*\([^;{}]*\)\s*\{"


def folder(path):
    """The folder of lib that a file belongs to, or its module. Public headers: lib."""
    part = path.split("/")
    return "/".join(part[:2]) if part[0] == "lib" and len(part) > 2 else part[0]


def part_of_extension(path):
    """The inner folder of an extension that a file belongs to; the extension, for files that are in none."""
    part = path.split("/")
    return "/".join(part[:3]) if "/".join(part[:2]) in EXTENSIONS and len(part) > 3 else folder(path)


def without_text(code):
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', re.sub(r"/\*.*?\*/|//[^\n]*", "", code, flags=re.S))


def body_of(code, start):
    """The text up to the brace that closes the one before `start`."""
    depth, end = 1, start
    while depth and end < len(code):
        depth += {"{": 1, "}": -1}.get(code[end], 0)
        end += 1
    return code[start:end - 1]


class Tree:
    def __init__(self):
        listed = subprocess.check_output(["git", "ls-files"], text=True).splitlines()
        self.files = [f for f in listed if os.path.exists(f)]
        self.text = {f: open(f, errors="replace").read() for f in self.files if f.endswith(CODE)}
        self.product = [f for f in self.text if not f.startswith(PROGRAMS)]
        self.code = {f: without_text(self.text[f]) for f in self.text}
        self.includes = {f: self.resolve(f) for f in self.text}

    def resolve(self, path):
        found = set()
        for name in re.findall(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', self.text[path], flags=re.M):
            beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
            found.update([c for c in (name, "lib/" + name, beside) if c in self.text][:1])
        return found

    def seen_by(self, path):
        """All headers of ours that a file includes, also through others."""
        seen, left = set(), [path]
        while left:
            new = self.includes[left.pop()] - seen
            seen |= new
            left += new
        return seen

    def arrows(self, folder):
        """(folder, other folder) of lib: the headers and functions by which the first uses the second."""
        defined = collections.defaultdict(set)
        for f in self.product:
            if f.endswith(".c"):
                for name in re.findall(DEFINITION, self.code[f], flags=re.M):
                    defined[name].add(f)
        uses = collections.defaultdict(set)
        for f in self.product:
            own = folder(f)
            if not own.startswith("lib/") or own in BINDINGS:
                continue
            used = {(h, "#" + os.path.basename(h)) for h in self.includes[f]}
            if f.endswith(".c"):
                called = set(re.findall(r"\b(twill_\w+)\s*\(", self.code[f]))
                used |= {(next(iter(defined[n])), n) for n in called if len(defined[n]) == 1}
            for where, what in used:
                other = folder(where)
                if other.startswith("lib/") and other not in BINDINGS + (own, BASE):
                    uses[own, other].add(what)
        return uses

    def members(self):
        """The number of members of every struct, the largest first."""
        found = []
        for f in self.product:
            for match in re.finditer(r"\bstruct\s+\w+\s*\{", self.code[f]):
                body = re.sub(r"\{[^{}]*\}", "", body_of(self.code[f], match.end()))
                found.append(sum(1 + s.count(",") for s in body.split(";")[:-1] if "(" not in s))
        return sorted(found, reverse=True)

    def time_constants(self):
        """FILE:LINE of each time constant outside the table of times. (Prices of the machine model are no times to wait.)"""
        return [f"{f}:{n}" for f in self.product if f != TIMES and not f.startswith(("algorithms/", "kernels/"))
                for n, line in enumerate(self.code[f].split("\n"), 1) if re.search(TIME_CONSTANT, line)]

    def resting(self):
        return {f for f in self.product if not f.startswith(BELOW) and re.search(RESTING, self.code[f])}

    def opened_by_readers(self):
        """The number of distinct files that each journey names."""
        pages = "".join(open(name).read() for name in sorted(glob.glob("docs/inside/journey-*.md")))
        parts = re.split(r"^## (.*)$", pages, flags=re.M)
        named = {title: set(re.findall(r"`((?!tests/)[\w/]+/[\w/.]+\.[ch])(?::\w+)?`", text)) for title, text in zip(parts[1::2], parts[2::2])}
        return {title: len(named[title]) for title in JOURNEYS}

    def lines_of_code(self, of_tests):
        """Neither blank lines nor comments count, so that no limit makes the code harder to read."""
        return sum(bool(line.strip()) for f, code in self.code.items() if f.startswith("tests/") == of_tests for line in code.split("\n"))


def figures(tree, uses):
    """(name, value, limit) of each figure."""
    mutual = [pair for pair in uses if pair[::-1] in uses and pair[0] < pair[1]]
    inner = tree.arrows(part_of_extension)
    knots = [pair for pair in inner if pair[::-1] in inner and pair[0] < pair[1] and pair[0].startswith(EXTENSIONS)]
    core = [f for f in tree.product if f.endswith(".c") and folder(f).startswith("lib/")
            and folder(f) not in BINDINGS + EXTENSIONS]
    wide = collections.Counter(h for f in tree.product if f.endswith(".c") for h in tree.seen_by(f)
                               if folder(h).startswith("lib/") and folder(h) != BASE)
    members = tree.members()
    return [(f"files a reader opens for \"{title}\"", n, JOURNEYS[title]) for title, n in tree.opened_by_readers().items()] + [
        ("pairs of folders of lib that use each other", len(mutual), 0),
        ("pairs of folders of train or server that do", len(knots), 0),
        ("headers of ours that a core .c file of lib sees, median", int(statistics.median(len(tree.seen_by(f)) for f in core)), 18),
        ("files that see the widest header of lib above the base", max(wide.values()), 44),
        ("functions of lib/extend.h", len(set(re.findall(r"\b(twill_extend_\w+)\(", tree.code["lib/extend.h"]))), 17),
        ("product files that sleep or yield", sum(1 for f in tree.product if re.search(SLEEPS, tree.text[f])), 1),
        ("files above lib/wait that rest by themselves, without a reason", len(tree.resting() - set(RESTS)), 0),
        ("those with a reason", len(tree.resting() & set(RESTS)), 6),
        ("reasons for files that do not", len(set(RESTS) - tree.resting()), 0),
        ("time constants outside the table of times", len(tree.time_constants()), 0),
        ("structs above 25 members", sum(1 for n in members if n > 25), 2),
        ("members of the largest struct", members[0], 30),
        ("files in the tree, but pages and results", sum(1 for f in tree.files if not re.match(PAGES, f)), 1298),
        ("lines of code of product, benchmarks and examples in C and C++", tree.lines_of_code(False), 110974),
        ("lines of code of tests in C and C++", tree.lines_of_code(True), 57609),
        ("lines of the longest file", max(t.count("\n") for t in tree.text.values()), 700),
    ]


def main():
    tree = Tree()
    uses = tree.arrows(folder)
    worse = 0
    for name, value, limit in figures(tree, uses):
        worse += value > limit
        print(f"{name}: {value} (at most {limit}){': worse' if value > limit else ''}")
    if "--pairs" in sys.argv:
        for one, other in sorted(uses):
            if one < other and (other, one) in uses:
                print(f"  {one} -> {other}: {', '.join(sorted(uses[one, other]))}")
                print(f"  {other} -> {one}: {', '.join(sorted(uses[other, one]))}")
    return worse > 0


if __name__ == "__main__":
    sys.exit(main())

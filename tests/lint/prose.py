#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Find sentences that a stranger must read twice, in comments and pages, and complain where a folder has too many of them.

prose.py [--list KIND] [FOLDER...]   one complaint a line; --list: also each sentence of a kind in these folders (or all)

CONTRIBUTING.md says how text is to read. What is counted are symptoms, and some good sentences have them: so a folder may have
some, and PHRASES are good English wherever they are. Nobody should write a worse sentence to please this program.
"""
import argparse
import collections
import math
import os
import re
import subprocess
import sys

# How many sentences of a kind there may be in 1,000 words, in comments and in pages; one is always allowed.
COMMENTS = {"bent": 0.3, "headless": 0.8, "hung on": 6}
PAGES = {"bent": 0.3, "headless": 0.8, "long": 3, "wide": 0}
# Folders that have more: how many. These numbers only go down.
HIGHER = {
    ("docs/reference/*.md", "headless"): 2, ("tests", "bent"): 139,
    ("tests", "headless"): 135, ("tests", "hung on"): 1349,
}
# Good English that has a symptom, with the reason. A sentence with one of them does not count.
PHRASES = {
    "the user nobody": "an account of the system",
}
BENT = [
    r"\b(is|are|was|were|be) had\b", r"\bso (many|much) (of|as)\b", r"\blikewise\b", r"\bof (one's|its|their|his) own\b(?!( accord)| \w+s?\b)",
    r", too\b", r"\bby way of\b", r"\bnobody\b", r"\btells? (that|whether|of)\b", r"\b(is|are) told\b", r"\bas (one|a row) (is|are)\b",
    r"\bhas \w+ and (is|was)\b", r"\bwhom? (it|they|he) (wait|is|are)", r"\bto be found\b", r"\bas much\b(?! as)", r"\bthat one is\b",
    r"\bin turns?\b(?! \w\b)", r"\bby hand alone\b", r"\bbeside (it|them|other work)\b", r"\bcomes? (first|last) to\b", r"\bthe like\b",
    r"\bwith (it|them) alone\b", r"\bgoes? (on|out|by)\b(?! (the|a))", r"\bstands? (for|in|at|beside)\b",
]
KINDS = {
    "bent": re.compile("|".join(BENT), re.I),                          # phrases that a native writer would not use
    "headless": re.compile(r"^(Of|Who|What|Whose|Which|Than|That (a|an|the|it|they|no|each))\b(?! (is|are|was) )(?!.*\?$)"),
    "hung on": re.compile(r"(?=(\S+ ){8}).*(;|: )(?!.*\()"),           # "VALUE: meaning", chains of clauses
    "long": re.compile(r"(\S+ ){30}\S"),                               # over 30 words
    "wide": re.compile(r".{121}"),                                     # lines, outside tables and code
}
NOT_READ = r"\.|docs/results/|docs/reference/messages\.md"  # hidden, or made by a program


def sentences(text):
    """The sentences of a text, code and links replaced by a word."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "X", text))
    text = re.sub(r"\b(e\.g|i\.e|etc|vs|cf|Fig|No)\.", r"\1", re.sub(r"https?://\S+", "X", text))
    parts = re.split(r"(?<=[.!?])\s+(?=[A-Z`*\"(])|\n\s*\n|(?<=:)\s+(?=[A-Z][a-z]+ [a-z]+ [a-z]+)", text)
    return [s for s in (" ".join(p.split()) for p in parts) if len(re.findall(r"[A-Za-z]{2,}", s)) >= 4]


def page(text):
    """The prose of a page: no code, no tables."""
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    lines = ["" if line.startswith("    ") or line.lstrip().startswith("|") else line for line in text.split("\n")]
    return re.sub(r"^\s*([-*]|\d+\.|#+|>)\s+", "\n", "\n".join(lines), flags=re.M)


def comments(text, name):
    """The comments of a source file, but the licence."""
    if name.endswith((".py", ".sh")):
        return "\n\n".join(re.findall(r"((?:^\s*#(?!!| SPDX).*\n)+)", text, flags=re.M)).replace("#", " ")
    found = re.findall(r"/\*+(.*?)\*/", text, flags=re.S) + re.findall(r"((?:^\s*//.*\n)+)", text, flags=re.M)
    found = [re.sub(r"[\\@](brief|file|param\S*|return|ref|p|c|defgroup|addtogroup)\b", "", c) for c in found if "SPDX" not in c]
    return "\n\n".join(re.sub(r"^\s*(\*|//+)", " ", c, flags=re.M) for c in found)


def folder(name):
    """What a file is counted with: the comments of a module or a folder of lib, or the pages of a folder."""
    part = name.split("/")
    if name.endswith(".md"):
        return "/".join(part[:2]) + "/*.md" if part[0] == "docs" else "README.md, CHANGELOG.md, CONTRIBUTING.md"
    return "/".join(part[:2]) if part[0] == "lib" and len(part) > 2 else part[0]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--list", default=None)
    options.add_argument("folders", nargs="*")
    asked = options.parse_args()
    words, found, used = collections.Counter(), collections.defaultdict(list), set()
    listed = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], text=True).splitlines()
    for name in listed:
        is_page = name.endswith(".md")
        if re.match(NOT_READ, name) or not name.endswith((".md", ".c", ".h", ".cpp", ".hpp", ".py", ".sh")) or not os.path.exists(name):
            continue
        text = open(name, encoding="utf-8", errors="replace").read()
        text = page(text) if is_page else comments(text, name)
        where = folder(name)
        for s in sentences(text):
            words[where] += len(s.split())
            phrases = {p for p in PHRASES if p in s}
            used |= phrases
            for kind in set() if phrases else set(PAGES if is_page else COMMENTS) - {"wide"}:
                if KINDS[kind].search(s):
                    found[where, kind].append(f"{name}: {s}")
        found[where, "wide"] += [f"{name}: {line}" for line in text.split("\n") if is_page and KINDS["wide"].match(line)]
    for (where, kind), those in sorted(found.items()):
        rate = (PAGES if where.endswith(".md") else COMMENTS).get(kind, 0)
        most = HIGHER.get((where, kind), max(1, math.floor(rate * words[where] / 1000)) if rate else 0)
        if len(those) > most:
            print(f"{where}: {len(those)} {'lines' if kind == 'wide' else 'sentences'} are {kind}, at most {most} (prose.py --list '{kind}')")
        if kind == asked.list and (not asked.folders or where in asked.folders):
            print("\n".join("  " + s for s in those))
    for phrase in sorted(set(PHRASES) - used):
        print(f"prose.py: no sentence has \"{phrase}\" any more")


if __name__ == "__main__":
    sys.exit(main())

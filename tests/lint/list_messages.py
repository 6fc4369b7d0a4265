#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print docs/reference/messages.md: the sentences that the library and the programs can print, found in their source.

Usage: python3 tests/lint/list_messages.py > docs/reference/messages.md

It finds the calls of CALLS, takes their format, and replaces directives by "...". Where a directive is a choice between
texts of the source, the texts are shown: [first | second]. A sentence that docs/guides/troubleshooting.md explains
links to its heading there.
"""
import ast
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GUIDE = "../guides/troubleshooting.md"

# Functions and macros that say something: the index of the format among their arguments, and what is shown beside it: a
# status, a word, or the index of the argument that has the status.
CALLS = {
    "TWILL_FAIL": (2, 1), "TWILL_FAIL_RANK": (3, 1), "TWILL_COMM_FAIL": (2, 1), "TWILL_COMM_REFUSE": (2, 1),
    "TWILL_ENGINE_FAIL": (2, 1), "TWILL_SERVER_FAIL": (2, 1), "TWILL_SERVER_REFUSE": (1, "TWILL_ERR_ARGUMENT"),
    "TWILL_SET_REFUSE": (1, "TWILL_ERR_ARGUMENT"), "ENTRY_REFUSE": (1, "TWILL_ERR_CONFIG"),
    "OVERRIDE_REFUSE": (2, "TWILL_ERR_CONFIG"), "twill_extend_fail": (4, 3),
    "twill_set_fail_with": (4, 3), "twill_bootstrap_tcp_fail": (3, 2), "twill_oob_batch_suspect": (2, 1),
    "fail_pmi": (3, 2), "fail_step": (2, ""), "twill_checker_fail": (3, ""), "tear": (2, 1),
    "bad_file": (1, "TWILL_ERR_ARGUMENT"), "REFUSE": (2, "TWILL_ERR_ARGUMENT"), "twill_window_fail": (3, 2), "refuse_query": (2, "TWILL_ERR_CONFIG"),
    "refuse_choice": (2, "TWILL_ERR_CONFIG"),
    "twill_say": (2, 1), "twill_handle_warn": (1, "warning"),
    "twill_context_note": (1, "info"), "twill_context_note_rank": (1, "info"), "twill_mpi_say": (0, "warning"),
    "twill_complain": (0, ""), "leave_unbound": (1, ""), "fail_energy": (1, ""), "peer_say": (1, ""),
    "lose_host": (2, ""), "say": (0, ""), "snprintf": (2, "part"), "twill_print": (2, "part"),
}
# Folders where snprintf() composes sentences, and tables have reasons.
COMPOSED = ("fabric", "lib/comm", "lib/engine", "lib/job", "lib/mpi", "lib/server", "lib/train", "lib/window", "numa")
ENTRY = re.compile(r"\[\w+\]\s*=\s*(?=(?:\w+\s*)?\")")
# A text that a function returns, or puts into a variable of these names, is part of a sentence.
PARTS = re.compile(r"\b(?:return|(?:\*?(?:mistake|wrong|why|reason) =))\s(?=[^;\"]*\")")
SECTIONS = [  # the first folder or file that a path begins with
    ("Start of a job", ["fabric/bootstrap", "fabric/auth", "fabric/internode", "fabric/transports", "fabric/host",
                        "lib/job/context"]),
    ("Settings (TWILL_... variables)", ["lib/job/config", "algorithms/select", "algorithms/world", "lib/tuning",
                                        "lib/job/tuning", "lib/job/find_levels"]),
    ("Network", ["fabric/tcp", "fabric/ofi", "fabric/rails", "fabric/detector"]),
    ("Memory", ["fabric/shm", "lib/heap", "numa", "lib/job/heap", "lib/job/malloc_heap", "lib/job/registration"]),
    ("Memory of a GPU", ["kernels"]),
    ("Calls: arguments, waits, deaths, calls that do not match", ["lib/comm", "lib/engine", "lib/api", "lib/wait"]),
    ("Gradient sets (twill_train.h)", ["lib/train"]),
    ("Parameter servers (twill_server.h)", ["lib/server"]),
    ("Windows (twill_window.h)", ["lib/window"]),
    ("Traces, timelines and reports", ["lib/report"]),
    ("MPI (libtwill-mpi)", ["lib/mpi"]),
    ("Checks of schedules", ["algorithms/verify", "algorithms/schedule"]),
    ("Other messages of the library", ["lib", "fabric", "algorithms"]),
]


def strip_comments(text):
    """Blank out comments and lines of the preprocessor's definitions, and keep strings."""
    token = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*|^[ \t]*#(?:\\\n|[^\n])*',
                       re.S | re.M)
    return token.sub(lambda m: m.group() if m.group()[0] in "\"'" else " ", text)


def split_arguments(text, start):
    """Return the arguments of the call whose opening parenthesis is at `start`, as texts."""
    arguments, depth, begin = [], 0, start + 1
    for m in re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[(){}\[\],]').finditer(text, start):
        c = m.group()
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                return arguments + [text[begin:m.start()].strip()]
        elif c == "," and depth == 1:
            arguments.append(text[begin:m.start()].strip())
            begin = m.end()
    return arguments


STRING = re.compile(r'"(?:\\.|[^"\\])*"')
ESCAPES = {"n": " ", "t": " ", '"': '"', "\\": "\\", "r": "", "0": ""}


def join_strings(text, names):
    """Return the value of adjacent literals and names such as PRIu64, or None if there is something else."""
    value, rest = "", 0
    for m in re.finditer(r'"((?:\\.|[^"\\])*)"|(\w+)|(\S)', text):
        if m.group(1) is not None:
            value += re.sub(r"\\(x[0-9a-f]+|[0-7]{3}|.)", lambda e: ESCAPES.get(e.group(1), ""), m.group(1))
        elif m.group(2) is not None and m.group(2).startswith("PRI"):
            value += "d"
        elif m.group(2) is not None and m.group(2) in names:
            value += names[m.group(2)]
        else:
            return None
    return value


def split_choice(text):
    """Return the texts of a ? b : c ... at the outermost level, or [text]."""
    depth, marks = 0, []
    for m in re.finditer(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[()\[\]{}?:]', text):
        if m.group() in "([{":
            depth += 1
        elif m.group() in ")]}":
            depth -= 1
        elif depth == 0 and m.group() in "?:":
            marks.append((m.start(), m.group()))
    if not marks or marks[0][1] != "?":
        return [text]
    pieces, begin = [], 0
    for at, mark in marks + [(len(text), ":")]:
        if mark == ":":
            pieces.append(text[begin:at])
        begin = at + 1
    return pieces


DIRECTIVE = re.compile(r"%(?:%|[-+ #0]*(\*|\d+)?(?:\.(\*|\d+))?(?:hh|h|ll|l|j|z|t|L)?[a-zA-Z])")


def fill(form, values, names):
    """Replace the directives of a format by "...", or by the texts that the value chooses from."""
    values = list(values)

    def put(m):
        if m.group() == "%%":
            return "%"
        for star in m.groups():
            if star == "*" and values:
                values.pop(0)
        if m.group().endswith("m"):
            return "..."
        value = values.pop(0) if values else ""
        while value.startswith("(") and value.endswith(")"):
            value = value[1:-1]
        if value.startswith("TWILL_PLURAL("):
            return "[s]"
        texts = [join_strings(piece, names) for piece in split_choice(value)]
        if m.group()[-1] != "s" or len(texts) < 2 or not any(texts):
            return "..."
        texts = ["..." if text is None else DIRECTIVE.sub("...", text) for text in texts]
        unique = list(dict.fromkeys(text.strip(" ") for text in texts if text))
        longest = max(texts, key=len)
        space = [" " if longest[:1] == " " else "", " " if longest[-1:] == " " else ""]
        if "..." in unique and len(unique) == 1:
            return space[0] + "..." + space[1]
        return space[0] + "[" + " | ".join(unique) + "]" + space[1]

    said = DIRECTIVE.sub(put, form)
    return re.sub(r"(\.\.\.){2,}", "...", re.sub(r"\s+", " ", said)).strip()


def find_names(text):
    """Return the names that a file defines as a string, such as TWILL_COMPLAINT."""
    return {m.group(1): m.group(2) for m in re.finditer(r'#\s*define\s+(\w+)\s+"([^"\n]*)"\s*(?:/\*.*)?$', text, re.M)}


def find_messages(path, names):
    """Yield (sentence, status) of each call in a file."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        text = strip_comments(file.read())
    for m in re.finditer(r"\b(\w+)\(", text):
        name = m.group(1)
        arguments = None
        if name == "fprintf" or name == "fputs":
            arguments = split_arguments(text, m.end() - 1)
            if "stderr" not in arguments[:2]:
                continue
            at, status = (1, "") if name == "fprintf" else (0, "")
        elif name == "add" and path.endswith("preflight_checks.c"):
            arguments = split_arguments(text, m.end() - 1)
            if len(arguments) > 3:
                advice = [join_strings(piece, names) for piece in split_choice(arguments[2])]
                said = fill(join_strings(arguments[3], names) or "...", arguments[4:], names)
                for one in advice:
                    yield f"{said}. {DIRECTIVE.sub('...', one or '...')}", ""
            continue
        elif CALLS.get(name):
            at, status = CALLS[name]
            if status == "part" and not path.startswith(COMPOSED):
                continue
            arguments = split_arguments(text, m.end() - 1)
        else:
            continue
        if len(arguments) <= at:
            continue
        if isinstance(status, int):
            status = arguments[status]
        found = re.findall(r"TWILL_(?:ERR_\w+|LOG_(?:WARN|INFO|DEBUG))", status)
        if found:
            status = ", ".join(found)
        elif re.search(r"\W|^[a-z]*$", status) and status not in ("warning", "info", "part"):
            status = ""
        for level, word in (("WARN", "warning"), ("INFO", "info"), ("DEBUG", "debug")):
            status = status.replace("TWILL_LOG_" + level, word)
        for form in split_choice(arguments[at]):
            form = join_strings(form, names)
            if form is None:
                continue
            said = fill(form, arguments[at + 1:], names)
            words = re.findall(r"[A-Za-z]{2,}", re.sub(r"TWILL_\w+|twill-\w+", "", said))
            if len(words) >= 2 and (status != "part" or len(words) > 2 and len(said.split()) > 2):
                yield said, status
    for m in PARTS.finditer(text) if not path.startswith("algorithms") else ():
        for piece in split_choice(text[m.end():text.index(";", m.end())]):
            said = join_strings(piece, names)
            if said and len(said.split()) > 2 and not said.startswith("frame of"):
                yield re.sub(r"%[.*]*[a-z]+", "...", said.strip()), "part"
    for m in ENTRY.finditer(text) if path.startswith(COMPOSED) else ():
        said = join_strings(re.match(r'(?:[^",;{}]|"(?:\\.|[^"\\])*")*', text[m.end():]).group(), names)
        if said and len(said.split()) > 2:
            yield re.sub(r"%[.*]*[a-z]+", "...", said.strip()), "part"


def find_exceptions(path):
    """Yield (sentence, "") of each exception with a text that a Python file raises."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args):
            continue
        text = node.exc.args[0]
        parts = text.values if isinstance(text, ast.JoinedStr) else [text]
        said = "".join(getattr(part, "value", None) if isinstance(getattr(part, "value", None), str) else "..."
                       for part in parts)
        if len(re.findall(r"[A-Za-z]{2,}", said)) >= 2:
            kind = getattr(node.exc.func, "id", "").lstrip("_")
            yield re.sub(r"(\.\.\.){2,}", "...", re.sub(r"\s+", " ", said)), kind if kind.endswith("Error") else ""


def program_of(path):
    """Return the title of the section of a file."""
    if path.startswith("fabric/launcher/preflight"):
        return "twillrun --check"
    if path.startswith("fabric/launcher"):
        return "twillrun"
    if path.startswith("lib/python"):
        return "Python (twill and twill.torch)"
    m = re.match(r"bench/tools/(\w+)/", path)
    if m:
        return "twill-" + m.group(1)
    if path.startswith("bench/"):
        return "Programs in common"
    for title, starts in SECTIONS:
        if any(path.startswith(start) for start in starts):
            return title
    return "Other messages of the library"


def read_headings():
    """Return (pattern, anchor) of each message that the guide explains."""
    with open(os.path.join(ROOT, "docs/guides/troubleshooting.md"), encoding="utf-8") as file:
        headings = re.findall(r"^### (.*`.*`.*)$", file.read(), re.M)
    found = []
    for heading in headings:
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for quoted in re.findall(r"`([^`]*)`", heading):
            parts = [re.escape(part) for part in re.split(r" *\.\.\. *", quoted) if part]
            found.append((re.compile(".*".join(parts)), anchor))
    return found


def main():
    files = sorted(
        os.path.relpath(os.path.join(folder, name), ROOT)
        for top in ("lib", "fabric", "algorithms", "numa", "kernels", "bench/tools", "bench/common")
        for folder, _, names in os.walk(os.path.join(ROOT, top)) for name in names
        if name.endswith((".c", ".h", ".py")) and name != "declare.py")
    names = {}
    for path in files:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            names.update(find_names(file.read()))
    sections = {}
    for path in files:
        for said, status in find_exceptions(path) if path.endswith(".py") else find_messages(path, names):
            entry = sections.setdefault(program_of(path), {}).setdefault(said, [])
            if status and status not in entry:
                entry.append(status)
            if "--places" in sys.argv:
                print(f"{path}\t{'/'.join(entry)}\t{said}")
    if "--places" in sys.argv:
        return
    headings = read_headings()
    order = [title for title, _ in SECTIONS[:-1]] + [
        "Python (twill and twill.torch)", "twillrun", "twillrun --check", "twill-bench", "twill-compare", "twill-info",
        "twill-place", "twill-simulate", "twill-trace", "Programs in common", "Other messages of the library"]
    total = sum(len(entries) for entries in sections.values())
    print(f"""# Messages

This page lists the {total} sentences that the library and the programs can print, so that you can search for the one you
have. Search for a few words that are the same in each job, without names and numbers.

- `...` is a name, a number or a text that differs. `[this | that]` is one of the words shown, or nothing.
- Errors of the library begin with the rank and the call, such as `rank 3: allreduce #6 (count 1000, f64 sum):`.
- The second column is the status that the call returns, the exception, or the level of `TWILL_LOG` from which the line
  is printed. A `part` stands within another sentence, which it completes.
- A link leads to [Troubleshooting](../guides/troubleshooting.md), which says what to do.
- PyTorch's backend also has sentences of its C++ part, which are worded as PyTorch words them and are not listed.

`tests/lint/list_messages.py` makes this page from the source.
""")
    for title in order:
        if title not in sections:
            continue
        print(f"## {title}\n\n| message | status or level |\n|---|---|")
        for said, statuses in sorted(sections[title].items(), key=lambda item: re.sub(r"^[^A-Za-z]*", "", item[0]).lower()):
            quote = "``" if "`" in said else "`"
            said_text = said.replace("|", "\\|")
            cell = f"{quote}{said_text}{quote}" if quote == "`" else f"{quote} {said_text} {quote}"
            anchor = next((anchor for pattern, anchor in headings if pattern.search(said)), None)
            if anchor:
                cell = f"[{cell}]({GUIDE}#{anchor})"
            print(f"| {cell} | {', '.join(f'`{s}`' if s.startswith('TWILL') else s for s in statuses)} |")
        print()


if __name__ == "__main__":
    main()

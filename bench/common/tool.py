# SPDX-License-Identifier: Apache-2.0
"""Parts that the tools in Python share: options, sizes, a progress line, tensor lists. Standard library only."""
import getopt
import os
import re
import sys
import time

version = "?"  # of twill, set by tool.in
folders = {}  # folders of the files of the tools, set by tool.in


class Mistake(Exception):
    """A wrong command line, exit status 2."""


class Failure(Exception):
    """Something that cannot be done, exit status 1."""


def parse_size(text):
    """Return the bytes of "64", "8K", "1.5MiB" and so on, all binary, or None."""
    found = re.fullmatch(r"([+-]?[0-9]*\.?[0-9]*)([kKmMgGtT](?:iB|B)?|B)?", text)
    try:
        value = float(found.group(1)) if found else -1
    except ValueError:
        return None
    unit = (found.group(2) or "B")[0].upper() if found else "B"
    value *= 1024 ** "BKMGT".index(unit)
    return int(value) if 0 <= value < 2**62 else None


def parse_number(text, least, most):
    """Return a whole number within bounds, or None."""
    return int(text) if re.fullmatch(r"\+?[0-9]+", text) and least <= int(text) <= most else None


def number(option, text, least, most, expected):
    value = parse_number(text, least, most)
    if value is None:
        wrong(option, text, expected)
    return value


def wrong(option, text, expected):
    raise Mistake(f"{option}: '{text}' is not {expected}")


def words(text):
    return [word for word in text.split(",") if word]


def plural(n, noun):
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def options(arguments, short, names, usage):
    """Return (option, value) pairs and the remaining words. names are like "max=", "quick". Exits for --help and --version."""
    try:
        pairs, rest = getopt.gnu_getopt(arguments, short + "hV", names + ["help", "version"])
    except getopt.GetoptError as error:
        raise Mistake(str(error)) from None
    for name, _ in pairs:
        if name in ("-h", "--help"):
            sys.stdout.write(usage)
            sys.exit(0)
        if name in ("-V", "--version"):
            print(program(), version)
            sys.exit(0)
    return pairs, rest


def program():
    return os.path.basename(sys.argv[0])


def say(text):
    print(f"{program()}: {text}", file=sys.stderr)


def run(main):
    """Run a program whose main(arguments) returns its exit status."""
    try:
        return main(sys.argv[1:])
    except Mistake as mistake:
        say(mistake)
        return 2
    except Failure as failure:
        say(failure)
        return 1
    except OSError as error:
        say(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
        return 1


def median(values):
    values, n = sorted(values), len(values)
    return (values[(n - 1) // 2] + values[n // 2]) / 2


def quantile(values, share):
    """Return the smallest value that is not less than this share of all values."""
    values = sorted(values)
    return values[max(0, -int(-share * len(values) // 1) - 1)]


def real(value):
    """Return a number of 6 digits for JSON, or None if it is not positive."""
    return float(f"{value:.6g}") if value > 0 else None


class Progress:
    """A line on standard error, which is rewritten in place on a terminal and omitted elsewhere."""

    def __init__(self, wanted=True):
        self.on = wanted and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.there, self.started, self.last = False, time.monotonic(), 0.0

    def show(self, done, total, what):
        now = time.monotonic()
        if not self.on or now - self.last < 0.2:
            return
        self.last, self.there = now, True
        elapsed, share, left = now - self.started, min(1, done / max(total, 1)), ""
        if elapsed >= 1 and done > 0:
            seconds = elapsed * (1 - share) / share
            for unit, length, most in (("s", 1, 100), ("min", 60, 6000)):
                left = left or (f", {seconds / length:.0f} {unit} left" if seconds < most else "")
            left = left or f", {seconds / 3600:.1f} h left"
        text = f"[{'#' * int(30 * share):30}] {100 * share:3.0f}%  {what}, {elapsed:.0f} s{left}"
        sys.stderr.write("\r\033[K" + text[: (os.get_terminal_size(2).columns or 80) - 1])
        sys.stderr.flush()

    def clear(self):
        if self.there:
            sys.stderr.write("\r\033[K")
        self.there = False


def gradient_list(path):
    """Return [elements, multiply-adds] of each tensor of a list (gradients/README.md)."""
    tensors = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for at, line in enumerate(file, 1):
            text = line.split("#")[0].strip()
            found = re.fullmatch(r"([0-9]+)(?:\s+([0-9]+))?", text)
            if text and (not found or int(found.group(1)) == 0):
                raise Failure(
                    f"{path}:{at}: '{text:.40}' is not a number of elements from 1, or one and a number of multiply-adds"
                )
            if text:
                tensors.append([int(found.group(1)), int(found.group(2) or 0)])
    if not tensors:
        raise Failure(f"{path}: the list has no tensor")
    return tensors

# SPDX-License-Identifier: Apache-2.0
"""Start a Python program with several ranks: python -m twill.run -n 4 train.py [ARGUMENT ...]

Options are those of twillrun(1). Programs that end in .py, and "-m MODULE", run under this Python."""
from __future__ import annotations

import os
import shutil
import sys

from ._library import beside

# twillrun's options without a value. The value of any other option is the next argument, unless it is attached.
_ALONE = ("l", "label", "report-bindings", "check", "json", "oversubscribe", "h", "help", "V", "version")


def command(arguments: list[str], alone: bool = True) -> list[str]:
    """Return the arguments for twillrun: the given ones, with this Python inserted before each Python program."""
    i = 0
    while i < len(arguments) and arguments[i].startswith("-") and arguments[i] not in ("--", "-m"):
        option = arguments[i]
        attached = "=" in option or (option[1] in "nxH" and len(option) > 2 and option != "-np")
        i += 1 if option.lstrip("-") in _ALONE or attached else 2
    if arguments[i:i + 1] == ["--"]:
        i += 1
    elif ":" in arguments[i:-1]:  # another program follows
        colon = arguments.index(":", i)
        return [*command(arguments[:colon], False), ":", *command(arguments[colon + 1:], False)]
    if i < len(arguments) and (arguments[i] == "-m" or arguments[i].endswith(".py")):
        dashes = ["--"] if alone and arguments[i - 1:i] != ["--"] else []
        return [*arguments[:i], *dashes, sys.executable, *arguments[i:]]
    return arguments


def main() -> None:
    """Replace this process by twillrun."""
    program = beside("bin", "twillrun") or shutil.which("twillrun")
    if program is None:
        sys.exit("twill.run: there is no twillrun beside the package or in PATH")
    os.execv(program, [program, *command(sys.argv[1:])])


if __name__ == "__main__":
    main()

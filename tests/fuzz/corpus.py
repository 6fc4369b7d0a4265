#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pack and unpack the inputs of a fuzzer.

corpus.py add FILE INPUT...     add inputs, which are files or folders of files, to an archive
corpus.py unpack FILE FOLDER    write each input of an archive to a file of its own

An archive has one input a line, sorted and without duplicates. Printable ASCII stands for itself, any other byte is written
as \\xHH, a newline as \\n and a backslash as \\\\. An input without bytes is \\e. Lines that begin with # are comments.
"""
import hashlib
import os
import re
import sys


def encode(data):
    text = "".join(chr(b) if 32 <= b < 127 and b != 92 else {10: "\\n", 92: "\\\\"}.get(b, f"\\x{b:02x}") for b in data)
    text = re.sub(r"^#| $", lambda m: f"\\x{ord(m[0]):02x}", text)
    return text or "\\e"


def decode(line):
    one = {"n": "\n", "\\": "\\", "e": ""}
    text = re.sub(r"\\(?:x([0-9a-f]{2})|(.))", lambda m: chr(int(m[1], 16)) if m[1] else one[m[2]], line)
    return text.encode("latin-1")


def read(path):
    with open(path, encoding="ascii") as file:
        lines = file.read().splitlines()
    return [line for line in lines if line.startswith("#")], {decode(line) for line in lines if not line.startswith("#")}


def files_below(paths):
    for path in paths:
        if os.path.isdir(path):
            yield from files_below(os.path.join(path, name) for name in os.listdir(path))
        else:
            yield path


def add(path, sources):
    comments, inputs = read(path) if os.path.exists(path) else ([], set())
    for source in files_below(sources):
        with open(source, "rb") as file:
            inputs.add(file.read())
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join(comments + sorted(map(encode, inputs))) + "\n")


def unpack(path, folder):
    os.makedirs(folder, exist_ok=True)
    for data in read(path)[1]:
        with open(os.path.join(folder, hashlib.sha1(data).hexdigest()), "wb") as file:
            file.write(data)


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "unpack":
        unpack(*sys.argv[2:])
    elif len(sys.argv) > 3 and sys.argv[1] == "add":
        add(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Declare the C interface for Python. Writes the module twill._declarations from the public headers.

    declare.py FILE.py            # the module, as the build does
    declare.py --check FILE.c     # a C file that compiles only if the module is right
"""
from __future__ import annotations

import pathlib
import re
import sys

LIB = pathlib.Path(__file__).resolve().parent.parent
# Enumerations that become classes, with the prefix of their constants and the name of the class.
ENUMS = {
    "twill_status": ("TWILL_", "Status"),
    "twill_type": ("TWILL_", "Type"),
    "twill_op": ("TWILL_", "Op"),
    "twill_level": ("TWILL_LEVEL_", "Level"),
    "twill_bucket_order": ("TWILL_BUCKETS_", "BucketOrder"),
    "twill_compression": ("TWILL_COMPRESS_", "Compression"),
    "twill_factors_choice": ("TWILL_FACTORS_", "FactorsChoice"),
    "twill_optimizer_rule": ("TWILL_OPTIMIZER_", "OptimizerRule"),
    "twill_server_layout": ("TWILL_SERVER_", "ServerLayout"),
    "twill_server_mode": ("TWILL_SERVER_", "ServerMode"),
    "twill_server_rate": ("TWILL_SERVER_RATE_", "ServerRate"),
    "twill_server_part": ("TWILL_SERVER_", "ServerPart"),
}
SCALARS = {
    "int": "c_int",
    "double": "c_double",
    "size_t": "c_size_t",
    "uint64_t": "c_uint64",
    "int32_t": "c_int32",
    "float": "c_float",
    "char *": "c_char_p",
    "void": "None",
}


class Headers:
    """The declarations of the public headers. Reads only the style in which these are written."""

    def __init__(self) -> None:
        self.enums: dict[str, list[tuple[str, int]]] = {}
        self.constants: list[tuple[str, int]] = []
        self.structs: dict[str, list[tuple[str, str]]] = {}
        self.callbacks: dict[str, tuple[str, list[str]]] = {}
        self.functions: dict[str, tuple[str, list[str]]] = {}
        self.opaque: list[str] = []
        self.names = [p.name for p in [LIB / "twill.h", *sorted(LIB.glob("twill_*.h"))]]
        for name in self.names:
            self.read((LIB / name).read_text())

    def read(self, text: str) -> None:
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        for name, value in re.findall(r"^#define (TWILL_[A-Z_]+) \(?(?:\(size_t\))?(-?\d+)\)?\s*$", text, flags=re.M):
            self.constants.append((name, int(value)))
        text = text.replace("\\\n", " ")
        text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
        text = re.sub(r"\s+", " ", text)
        for name, args in re.findall(r"TWILL_FORMS\((\w+), (.*?)\);", text):
            for form in "start", "init":
                self.function("twill_status", f"twill_{name}_{form}", f"{args}, twill_request **request")
        text = re.sub(r"TWILL_FORMS\(.*?\);", "", text)
        for body, name in re.findall(r"typedef enum \w+ \{(.*?)\} (\w+);", text):
            self.enum(name, body)
        for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text):
            self.structs[name] = [field for line in body.split(";") for field in self.fields(line)]
        self.opaque += re.findall(r"typedef struct (\w+) \1;", text)
        for result, name, args in re.findall(r"typedef ([^;{}]*?)\(\*(\w+)\)\(([^;]*)\);", text):
            self.callbacks[name] = (result.strip(), self.arguments(args))
        for result, name, args in re.findall(r"TWILL_API ([^;()]*?)(\w+)\(([^;]*)\);", text):
            self.function(result.strip(), name, args)

    def function(self, result: str, name: str, args: str) -> None:
        self.functions[name] = (result, self.arguments(args))

    def enum(self, name: str, body: str) -> None:
        value, values = -1, []
        for item in filter(None, (item.strip() for item in body.split(","))):
            constant, _, given = (part.strip() for part in item.partition("="))
            value = int(given, 0) if given else value + 1
            values.append((constant, value))
        self.enums[name] = values

    @staticmethod
    def fields(line: str) -> list[tuple[str, str]]:
        """Return name and type of each member of a declaration such as "double beta1, beta2"."""
        if not line.strip():
            return []
        first, *others = line.split(",")
        kind, name = Headers.split(first)
        return [(name, kind)] + [(other.strip(), kind) for other in others]

    @staticmethod
    def split(declaration: str) -> tuple[str, str]:
        match = re.fullmatch(r"\s*(.*?)(\w+)(\[\d+\])?\s*", declaration)
        assert match, declaration
        return match[1].strip() + (match[3] or ""), match[2]

    @staticmethod
    def arguments(text: str) -> list[str]:
        return [] if text.strip() == "void" else [Headers.split(a)[0] for a in text.split(",")]

    def ctype(self, kind: str) -> str:
        """Return the expression of ctypes for a type of C. Pointers to data become c_void_p, which takes an address."""
        plain = kind.replace("const ", "").strip()
        if plain in SCALARS:
            return SCALARS[plain]
        if plain.startswith("char["):
            return f"c_char * {plain[5:-1]}"
        if plain in self.enums:
            return "c_int"
        if plain in self.callbacks or plain in self.structs:
            return plain
        if plain.endswith("*"):
            return "c_void_p"
        raise SystemExit(f"declare.py: unknown type {kind}")

    def class_text(self, name: str) -> str:
        prefix, title = ENUMS[name]
        lines = [f"class {title}(IntEnum):", f'    """{name} of the C interface."""', ""]
        lines += [f"    {constant.removeprefix(prefix)} = {value}" for constant, value in self.enums[name]
                  if not constant.endswith("_COUNT")]
        return "\n".join(lines)

    def python(self) -> str:
        out = ["# SPDX-License-Identifier: Apache-2.0", '"""The C interface. Written by lib/python/declare.py."""',
               "from __future__ import annotations", "",
               "from ctypes import (CFUNCTYPE, Structure, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_size_t,",
               "                    c_uint64, c_void_p)",
               "from enum import IntEnum", "from typing import Any"]
        out += ["\n\n" + self.class_text(name) for name in self.enums]
        out.append("\n")
        out += [f"{name} = {value}" for name, value in self.constants]
        for name, (result, args) in self.callbacks.items():
            kinds = ", ".join(self.ctype(kind) for kind in [result, *args])
            out.append(f"{name} = CFUNCTYPE({kinds})")
        for name, fields in self.structs.items():
            out.append(f'\n\nclass {name}(Structure):\n    """struct {name}."""\n\n    _fields_ = [')
            out += [f'        ("{field}", {self.ctype(kind)}),' for field, kind in fields]
            out.append("    ]")
        out += ["\n", "# Functions: result, then arguments.", "FUNCTIONS: dict[str, tuple[Any, ...]] = {"]
        for name, (result, args) in self.functions.items():
            kinds = ", ".join(self.ctype(kind) for kind in [result, *args])
            out.append(f'    "{name}": ({kinds}{"," if not args else ""}),')
        return "\n".join(out + ["}", ""])

    def check(self, declared: dict) -> str:
        """Return C that compiles only if the headers agree with the module `declared` and with what was read."""
        import ctypes

        out = [f'#include "{name}"' for name in self.names]
        same = "_Static_assert({}, \"{}\");"
        for enum, (prefix, title) in ENUMS.items():
            out += [same.format(f"{prefix}{m.name} == {m.value}", m.name) for m in declared[title]]
            out.append(same.format(f"sizeof({enum}) == sizeof(int)", enum))
        out += [same.format(f"{name} == {declared[name]}", name) for name, _ in self.constants]
        for name, fields in self.structs.items():
            made = declared[name]
            out.append(same.format(f"sizeof({name}) == {ctypes.sizeof(made)}", name))
            out += [same.format(f"offsetof({name}, {f}) == {getattr(made, f).offset} && "
                                f"sizeof((({name} *)0)->{f}) == {getattr(made, f).size}", f"{name}.{f}")
                    for f, _ in made._fields_]
            out += [same.format(f"__builtin_types_compatible_p({kind}, __typeof__((({name} *)0)->{f}))", f"{name}.{f}")
                    for f, kind in fields]
        for name, (result, args) in [*self.functions.items(), *self.callbacks.items()]:
            given = f"__typeof__({name}) *" if name in self.functions else name
            out.append(same.format(f"__builtin_types_compatible_p({result} (*)({', '.join(args) or 'void'}), {given})", name))
        return "\n".join(out) + "\n"


def main() -> None:
    headers = Headers()
    text = headers.python()
    if sys.argv[1] == "--check":
        declared: dict = {}
        exec(compile(text, "_declarations.py", "exec"), declared)
        text = headers.check(declared)
    pathlib.Path(sys.argv[-1]).write_text(text)


if __name__ == "__main__":
    main()

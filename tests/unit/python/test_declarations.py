# SPDX-License-Identifier: Apache-2.0
"""The declarations for Python and Fortran agree with the public headers, and the former with the library."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest

import twill
from twill import _declarations, _library

LIB = pathlib.Path(__file__).resolve().parents[3] / "lib"
DECLARE = LIB / "python" / "declare.py"
sys.path.insert(0, str(DECLARE.parent))
from declare import Headers  # noqa: E402


class Declarations(unittest.TestCase):
    def check(self, edit: str = "") -> "subprocess.CompletedProcess[str]":
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "check.c")
            subprocess.run([sys.executable, DECLARE, "--check", source], check=True)
            text = pathlib.Path(source).read_text()
            if edit:
                old, new = edit.split(" -> ")
                self.assertIn(old, text)
                pathlib.Path(source).write_text(text.replace(old, new))
            return subprocess.run([os.environ.get("CC", "cc"), "-fsyntax-only", "-I", LIB, source],
                                  capture_output=True, text=True)

    def test_compiler_agrees(self) -> None:
        self.assertEqual(self.check().stderr, "")

    def test_compiler_would_notice(self) -> None:
        for edit in ("TWILL_ERR_PEER == -8 -> TWILL_ERR_PEER == -7",
                     "offsetof(twill_counters, seconds) == 40 -> offsetof(twill_counters, seconds) == 48",
                     "(twill_comm *, const void *, size_t, twill_type, int) -> (twill_comm *, const void *, int, twill_type, int)"):
            self.assertIn("static assertion failed", self.check(edit).stderr, edit)

    def test_all_functions(self) -> None:
        listed = subprocess.run(["nm", "-D", "--defined-only", _library.PATH], check=True, capture_output=True, text=True)
        exported = {words[2].split("@")[0] for words in map(str.split, listed.stdout.splitlines()) if words[1] == "T"}
        self.assertEqual(exported, set(_declarations.FUNCTIONS))

    def fortran_of(self, headers: Headers, kind: str) -> str:
        """How Fortran declares an argument of this type of C; "intent" where C writes it."""
        if kind.endswith("**"):
            return "type(c_ptr), intent"
        if kind == "int *":
            return "integer(c_int), intent"
        return {"c_int": "integer(c_int), value",
                "c_size_t": "integer(c_size_t), value"}.get(headers.ctype(kind), "type(c_ptr), value")

    def test_fortran_agrees(self) -> None:
        headers = Headers()
        results = {"c_int": "integer(c_int) function", "c_char_p": "type(c_ptr) function", "None": "subroutine"}
        source = re.sub(r"&\n\s*", "", (LIB / "fortran/twill.F90").read_text())
        found = re.findall(r"^ *(\w.*) c_\w+\((.*)\) bind\(c, name='(twill_\w+)'\)\n((?: *[^e ].*\n)*) *end ", source, re.M)
        self.assertGreater(len(found), 15)
        for result, names, function, body in found:
            declared = {}
            for kind, listed in re.findall(r"^ *(\w.*?)(?:\(\w+\))? :: (.*)$", body, re.M):
                declared.update(dict.fromkeys(listed.split(", "), kind))
            c_result, c_arguments = headers.functions[function]
            self.assertEqual(result, results[headers.ctype(c_result)], function)
            self.assertEqual([declared[name] for name in names.split(", ")],
                             [self.fortran_of(headers, kind) for kind in c_arguments], function)

    def test_public_names(self) -> None:
        shown = {name for name, value in vars(twill).items() if name[0] != "_" and not isinstance(value, types.ModuleType)}
        self.assertEqual(shown - {"annotations", "lib", "text"}, set(twill.__all__))


if __name__ == "__main__":
    unittest.main()

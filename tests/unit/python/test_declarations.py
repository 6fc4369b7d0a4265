# SPDX-License-Identifier: Apache-2.0
"""The declarations for Python agree with the public headers and with the library."""
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

import twill
from twill import _declarations, _library

LIB = pathlib.Path(__file__).resolve().parents[3] / "lib"
DECLARE = LIB / "python" / "declare.py"


class Declarations(unittest.TestCase):
    def test_file_is_current(self) -> None:
        written = subprocess.run([sys.executable, DECLARE], check=True, capture_output=True, text=True).stdout
        self.assertEqual(written, (LIB / "python/twill/_declarations.py").read_text(),
                         "run: python3 lib/python/declare.py > lib/python/twill/_declarations.py")

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

    def test_public_names(self) -> None:
        shown = {name for name, value in vars(twill).items() if name[0] != "_" and not isinstance(value, types.ModuleType)}
        self.assertEqual(shown - {"annotations", "lib", "text"}, set(twill.__all__))


if __name__ == "__main__":
    unittest.main()

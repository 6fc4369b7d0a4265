# SPDX-License-Identifier: Apache-2.0
"""Run a program in which "gloo" means twill: torchrun ... -m twill.torch [--shared] train.py arguments

With --shared, tensors of 64 KiB or more lie in memory that the ranks of a host share and that collectives use in place (TWILL_HEAP
in twill(7)). This is not for programs whose forked children keep reading tensors that the parent changes."""
import ctypes
import os
import runpy
import sys

from .._library import beside


def share_tensors() -> None:
    """Set TWILL_HEAP, and restart this process with libtwill-heap.so preloaded, unless it is loaded already."""
    if not os.environ.get("TWILL_HEAP", "").startswith("shared"):
        os.environ["TWILL_HEAP"] = "shared"  # read when the first group is made
    if hasattr(ctypes.CDLL(None), "twill_preload_heap"):
        return
    library = beside("lib", "libtwill-heap.so") or "libtwill-heap.so"
    before = os.environ.get("LD_PRELOAD", "")
    if library in before:
        sys.exit(f"twill.torch: --shared: {library} is in LD_PRELOAD, but was not loaded")
    os.environ["LD_PRELOAD"] = f"{library}:{before}" if before else library
    how = getattr(sys, "orig_argv", ["", "-m", "twill.torch", *sys.argv[1:]])  # before 3.10 without options of the interpreter
    os.execv(sys.executable, [sys.executable, *how[1:]])


if sys.argv[1:2] == ["--shared"]:
    share_tensors()
    del sys.argv[1]
if len(sys.argv) < 2:
    sys.exit("twill.torch: a program is needed: python -m twill.torch [--shared] train.py arguments")

from . import answer_for_gloo  # noqa: E402

answer_for_gloo()
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")

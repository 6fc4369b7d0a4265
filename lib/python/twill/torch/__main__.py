# SPDX-License-Identifier: Apache-2.0
"""Run a program in which "gloo" means twill: torchrun ... -m twill.torch train.py arguments"""
import os
import runpy
import sys

if len(sys.argv) < 2:
    sys.exit("twill.torch: a program is needed: python -m twill.torch train.py arguments")

from . import answer_for_gloo  # noqa: E402

answer_for_gloo()
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")

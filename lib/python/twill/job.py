# SPDX-License-Identifier: Apache-2.0
"""Shows what the ranks of a running job do, from another process of the same host and user."""
from __future__ import annotations

import ctypes

from ._library import fail, lib, lines, text


def job_view(name: str, events: int = 16) -> list[list[str]]:
    """Return what is found about the job of a process, as lines that are lists of fields (see twill_job_view_line()).
    `name` is the PID of a rank or of the launcher, or the program's name. The job is neither stopped nor slowed."""
    opened, message = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
    status = lib.twill_job_view_open(ctypes.byref(opened), name.encode(), events, message, len(message))
    if status != 0:
        fail(status, text(message.value))
    try:
        return [line.split("\t") for line in lines(lib.twill_job_view_line, opened)]
    finally:
        lib.twill_job_view_close(opened)

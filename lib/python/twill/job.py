# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a running job do, seen from another process of its host and user."""
from __future__ import annotations

import ctypes

from ._library import fail, lib, lines, text


def job_view(name: str, events: int = 16) -> list[list[str]]:
    """Return what is found about the job of a process (PID of a rank or the launcher, or the program's name): lines of
    fields, of which the first says what the line is, as twill_job_view_line() has them. The job is neither stopped nor
    slowed."""
    opened, message = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
    status = lib.twill_job_view_open(ctypes.byref(opened), name.encode(), events, message, len(message))
    if status != 0:
        fail(status, text(message.value))
    try:
        return [line.split("\t") for line in lines(lib.twill_job_view_line, opened)]
    finally:
        lib.twill_job_view_close(opened)

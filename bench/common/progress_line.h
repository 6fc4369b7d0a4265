/* SPDX-License-Identifier: Apache-2.0 */
/* A line on standard error with the progress of a program and its time left, on terminals only. */
#ifndef TWILL_PROGRESS_LINE_H
#define TWILL_PROGRESS_LINE_H

#include <stdbool.h>
#include <stddef.h>

/* The progress line of this process, part of the state of its caller. twill_bench_progress_begin()
 * sets it, and there is nothing to free. */
struct twill_bench_progress {
    bool on;    /* standard error is a terminal (not "dumb"), and this process may write to it */
    bool there; /* the line is visible */
    double started, last; /* seconds at which it began and at which the line was last written */
};

/* Set *progress and start its clock. `wanted` is false for processes that must not write. */
void twill_bench_progress_begin(struct twill_bench_progress *progress, bool wanted);
/* Write the line, at most five times a second and on a terminal. `total` is 0 if unknown. */
void twill_bench_progress_show(struct twill_bench_progress *progress, size_t done, size_t total,
                               const char *what);
/* Remove the line from the terminal, if it is there, before other output. */
void twill_bench_progress_clear(struct twill_bench_progress *progress);

/* Compose "[#### ] 40% what, 12 s, 18 s left" into `text`, with the time left after one second. If
 * `total` is 0, it is "what, 12 s". */
void twill_bench_progress_text(char *text, size_t bytes, size_t done, size_t total,
                               const char *what, double elapsed);

#endif

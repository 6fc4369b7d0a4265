/* SPDX-License-Identifier: Apache-2.0 */
/* A line on standard error that says how far a program is and how long it will take: rewritten in
 * place on a terminal, and nothing anywhere else. */
#ifndef TWILL_PROGRESS_LINE_H
#define TWILL_PROGRESS_LINE_H

#include <stdbool.h>
#include <stddef.h>

/* The line of a program. */
struct twill_bench_progress {
    bool on;              /* standard error is a terminal, and this process is to write there */
    bool there;           /* the line is on the terminal */
    double started, last; /* seconds: when it began, when the line was written last */
};

/* Begin. wanted: false for processes that are to write nothing. */
void twill_bench_progress_begin(struct twill_bench_progress *progress, bool wanted);
/* Write the line, at most five times a second. total 0: it is not known. */
void twill_bench_progress_show(struct twill_bench_progress *progress, size_t done, size_t total,
                               const char *what);
/* Remove the line, before other output. */
void twill_bench_progress_clear(struct twill_bench_progress *progress);

/* Compose the line: "[####  ]  40%  what, 12 s, 18 s left". The rest is expected to take as long
 * for each of total as what is done took, once a second has passed. */
void twill_bench_progress_text(char *text, size_t bytes, size_t done, size_t total,
                               const char *what, double elapsed);

#endif

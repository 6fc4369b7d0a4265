/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/common/progress_line.h"
#include "bench/common/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR        30  /* characters */
#define EVERY      0.2 /* seconds between two writes */
#define LINE_BYTES 256

void twill_bench_progress_begin(struct twill_bench_progress *progress, bool wanted)
{
    const char *kind = getenv("TERM");
    bool dumb = kind != NULL && strcmp(kind, "dumb") == 0;
    *progress = (struct twill_bench_progress){.on = wanted && !dumb && isatty(STDERR_FILENO),
                                              .started = twill_bench_now()};
}

/* Print ", TIME left" into `text`, in seconds, minutes or hours. */
static void format_left(char *text, size_t bytes, double seconds)
{
    if (seconds < 100)
        snprintf(text, bytes, ", %.0f s left", seconds);
    else if (seconds < 6000)
        snprintf(text, bytes, ", %.0f min left", seconds / 60);
    else
        snprintf(text, bytes, ", %.1f h left", seconds / 3600);
}

void twill_bench_progress_text(char *text, size_t bytes, size_t done, size_t total,
                               const char *what, double elapsed)
{
    char left[32] = "";
    if (total == 0) {
        snprintf(text, bytes, "%s, %.0f s", what, elapsed);
        return;
    }
    double fraction = done < total ? (double)done / (double)total : 1;
    if (elapsed >= 1 && done > 0)
        format_left(left, sizeof(left), elapsed * (1 - fraction) / fraction);
    snprintf(text, bytes, "[%-*.*s] %3.0f%%  %s, %.0f s%s", BAR, (int)(BAR * fraction),
             "##############################", 100 * fraction, what, elapsed, left);
}

/* Return the columns of the terminal, or 80 if unknown. A line that fits can be rewritten. */
static int terminal_width(void)
{
    struct winsize size;
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : 80;
}

void twill_bench_progress_show(struct twill_bench_progress *progress, size_t done, size_t total,
                               const char *what)
{
    char text[LINE_BYTES];
    double now = twill_bench_now();
    if (!progress->on || now - progress->last < EVERY)
        return;
    progress->last = now;
    progress->there = true;
    twill_bench_progress_text(text, sizeof(text), done, total, what, now - progress->started);
    fprintf(stderr, "\r\033[K%.*s", terminal_width() - 1, text);
    fflush(stderr);
}

void twill_bench_progress_clear(struct twill_bench_progress *progress)
{
    if (progress->there)
        fprintf(stderr, "\r\033[K");
    progress->there = false;
}

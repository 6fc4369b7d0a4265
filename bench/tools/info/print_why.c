/* SPDX-License-Identifier: Apache-2.0 */
/* twill-info --why prints the answer of twill_context_why() as a table. */
#include "bench/tools/info/info.h"
#include "lib/base/plural.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Print picoseconds as microseconds into `text`, or "-" for UINT64_MAX. Returns `text`. */
static const char *format_time(const char *picoseconds, char text[32])
{
    double us = strtod(picoseconds, NULL) / 1e6;
    if (strcmp(picoseconds, "18446744073709551615") == 0)
        snprintf(text, 32, "-");
    else
        snprintf(text, 32, us < 100 ? "%.2f" : us < 1000 ? "%.1f" : "%.0f", us);
    return text;
}

/* Print the call that was asked about, with its ranks and the machine, from a line of the kind
 * "call". */
static void print_call(const struct twill_info_line *l)
{
    printf("%s of %s bytes, %s: %s rank%s, %s (nodes x ranks), machine %s\n", l->field[1],
           l->field[2], l->field[3], l->field[5], TWILL_PLURAL(strtoul(l->field[5], NULL, 10)),
           l->field[4], l->field[6]);
}

/* Print the row of an algorithm with its times and, unless it is the cheapest, why it is dearer.
 * Above the first one print the titles. */
static void print_candidate(const struct twill_info_line *l, bool first)
{
    char price[32], cost[32];
    bool measured = strcmp(l->field[4], "0") != 0;
    if (first)
        printf("\n  %-44s %12s %12s  %s\n", "candidate", "price (us)", "measured",
               "why it is not the cheapest");
    printf("  %-44s %12s %12s%s%s\n", l->field[1], format_time(l->field[2], price),
           measured ? format_time(l->field[3], cost) : "-", *l->field[5] != '\0' ? "  " : "",
           l->field[5]);
}

/* Print a line of the kind "chosen", with the algorithm that is chosen, its price and what chose
 * it. */
static void print_choice(const struct twill_info_line *l)
{
    char price[32];
    printf("\n%s is chosen (price %s us), by: %s\n", l->field[1], format_time(l->field[2], price),
           l->field[3]);
}

/* Print a line of the kind "curve", what was measured of a number of threads. */
static void print_curve(const struct twill_info_line *l)
{
    printf("  %s thread%s: %.2f us to begin and end, copy %.4g GB/s, reduce %.4g GB/s\n",
           l->field[1], TWILL_PLURAL(atoi(l->field[1])), atof(l->field[2]) * 1e-6,
           1024e3 / atof(l->field[3]), 1024e3 / atof(l->field[4]));
}

/* Print a line of the kind "threads", with what the threads of a rank save. */
static void print_threads(const struct twill_info_line *l)
{
    char price[32], alone[32];
    if (strcmp(l->field[2], "1") == 0)
        printf("threads: %s a rank; no copy or reduction is large enough to share\n", l->field[1]);
    else
        printf("threads: %s a rank, up to %s share a copy or a reduction: %s us, with one %s us\n",
               l->field[1], l->field[2], format_time(l->field[3], price),
               format_time(l->field[4], alone));
}

/* Print a line of the kind "narrow", which says whether a sum of f32 in a narrower type would be
 * faster. */
static void print_narrow(const struct twill_info_line *l)
{
    char narrow[32], conversion[32], wide[32];
    printf("narrow: %s would take %s us and converting %s us, f32 %s us: %s\n", l->field[1],
           format_time(l->field[2], narrow), format_time(l->field[3], conversion),
           format_time(l->field[4], wide), l->field[5]);
}

/* Print a line of the kind "factors". It compares gathering the factors of a dense layer's gradient
 * with reducing the gradient. */
static void print_factors(const struct twill_info_line *l)
{
    char gathered[32], reduced[32];
    printf("factors, set %s an optimizer: gathered %s us, the gradient reduced %s us, products "
           "included: %s\n",
           strcmp(l->field[1], "update") == 0 ? "with" : "without",
           format_time(l->field[2], gathered), format_time(l->field[3], reduced), l->field[4]);
}

/* Return the title above the lines of this kind, "moves", "instead" or "small". For all other kinds
 * it is "no candidates". */
static const char *title_of(const char *kind)
{
    if (strcmp(kind, "moves") == 0)
        return "bytes between ranks, by the smallest level of the machine that contains both";
    if (strcmp(kind, "instead") == 0)
        return "instead of @staged where buffers are mapped (@staged decides, equally on all "
               "nodes)";
    return strcmp(kind, "small") == 0 ? "not for this size or these buffers" : "no candidates";
}

/* Print a line, and above the first one of its kind a title. */
static void print_listed(const struct twill_info_line *l, bool first)
{
    char price[32];
    if (first)
        printf("\n  %s\n", title_of(l->field[0]));
    if (strcmp(l->field[0], "instead") == 0)
        printf("  %-44s %12s\n", l->field[1], format_time(l->field[2], price));
    else
        printf("  %-44s %s\n", l->field[1], l->field[2]);
}

int twill_bench_print_why(twill_context *context, const char *question)
{
    const char *text = twill_context_why(context, question, 0);
    char before[32] = ""; /* kind of the previous line */
    struct twill_info_line line;
    if (text == NULL) {
        fprintf(stderr, "twill-info: --why: %s\n", twill_context_message(context));
        return 2;
    }
    for (size_t i = 0; twill_info_cut(text, &line);
         text = twill_context_why(context, question, ++i)) {
        const char *kind = line.field[0];
        bool first = strcmp(kind, before) != 0;
        if (twill_info_is(&line, "call"))
            print_call(&line);
        else if (twill_info_is(&line, "hierarchy"))
            printf("hierarchy: %s\n", line.field[1]);
        else if (twill_info_is(&line, "candidate"))
            print_candidate(&line, first);
        else if (twill_info_is(&line, "chosen"))
            print_choice(&line);
        else if (twill_info_is(&line, "decided"))
            printf("times are of: %s\n", line.field[1]);
        else if (twill_info_is(&line, "used"))
            printf("%s\n", line.field[1]);
        else if (twill_info_is(&line, "threads"))
            print_threads(&line);
        else if (twill_info_is(&line, "curve"))
            print_curve(&line);
        else if (twill_info_is(&line, "narrow"))
            print_narrow(&line);
        else if (twill_info_is(&line, "factors"))
            print_factors(&line);
        else
            print_listed(&line, first);
        snprintf(before, sizeof(before), "%s", kind);
    }
    return 0;
}

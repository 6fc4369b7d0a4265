/* SPDX-License-Identifier: Apache-2.0 */
/* Warnings and errors of the library in its ranks. A line that several ranks send is printed once,
 * with the ranks, when no other rank has sent it for a while. */
#include "fabric/launcher/launcher.h"
#include "lib/base/plural.h"
#include "lib/base/times.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Remove "rank 3: " from a line, if that is the rank that sent it, and "rank 0 says: ". */
static void strip_ranks(char *line, int rank)
{
    char own[24];
    int other, length = 0;
    snprintf(own, sizeof(own), "rank %d: ", rank);
    for (char *at = line; (at = strstr(at, "rank ")) != NULL;) {
        if (strncmp(at, own, strlen(own)) == 0)
            length = (int)strlen(own);
        else if (sscanf(at, "rank %9d says: %n", &other, &length) < 1 || length == 0)
            length = 0;
        memmove(at, at + length, strlen(at + length) + 1);
        at += length > 0 ? 0 : 1;
        length = 0;
    }
}

/* Write the ranks as "0-3,7", and "..." for those that do not fit. */
static void list_ranks(const struct twill_sayings *sayings, const bool *said, char *text,
                       size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int first = 0, end; first < sayings->ranks; first = end) {
        for (end = first; end < sayings->ranks && said[end]; end++)
            continue;
        if (end == first) {
            end++;
            continue;
        }
        if (used + 24 > bytes) {
            (void)snprintf(text + used, bytes - used, ",...");
            return;
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", used > 0 ? "," : "", first);
        if (end - first > 1)
            used += (size_t)snprintf(text + used, bytes - used, "-%d", end - 1);
    }
}

/* Print a line with its ranks, and free its entry. */
static void print_saying(const struct twill_sayings *sayings, struct twill_saying *saying)
{
    char list[160], line[sizeof(saying->text) + sizeof(list) + 64], many[32] = "";
    list_ranks(sayings, saying->said, list, sizeof(list));
    if (saying->count > 1)
        snprintf(many, sizeof(many), " (%d rank%s)", saying->count, TWILL_PLURAL(saying->count));
    int used = snprintf(line, sizeof(line), "twill%s%s%s: %s%s", list[0] ? "[" : "", list,
                        list[0] ? "]" : "", saying->differs ? saying->alike : saying->text, many);
    twill_text_plain(line, (size_t)used);
    line[used] = '\n';
    (void)twill_output_put(STDERR_FILENO, line, (size_t)used + 1);
    free(saying->said);
    *saying = (struct twill_saying){.count = 0};
}

void twill_sayings_add(struct twill_sayings *sayings, int rank, const char *data, size_t bytes)
{
    char line[TWILL_SAID_TEXT], alike[TWILL_SAID_TEXT];
    struct twill_saying *saying = NULL, *oldest = &sayings->saying[0];
    snprintf(line, sizeof(line), "%.*s", (int)bytes, data);
    memcpy(alike, line, sizeof(alike));
    strip_ranks(alike, rank);
    for (int i = 0; i < TWILL_SAYINGS && !saying; i++) {
        struct twill_saying *one = &sayings->saying[i];
        bool same = strcmp(one->text, line) == 0;
        if (one->count > 0 && (same || strcmp(one->alike, alike) == 0))
            saying = one;
        oldest = one->first_ns < oldest->first_ns ? one : oldest; /* or a free one, with 0 */
    }
    bool known = rank >= 0 && rank < sayings->ranks;
    if (saying && known && saying->said[rank]) { /* again */
        print_saying(sayings, saying);
        oldest = saying;
        saying = NULL;
    }
    if (!saying) {
        saying = oldest;
        if (saying->count > 0)
            print_saying(sayings, saying);
        saying->said = calloc((size_t)sayings->ranks, sizeof(bool));
        if (!saying->said) {
            twill_complain("rank %d: %s", rank, line);
            return;
        }
        saying->first_ns = twill_now();
        memcpy(saying->text, line, sizeof(line));
        memcpy(saying->alike, alike, sizeof(alike));
    }
    saying->differs = saying->differs || strcmp(saying->text, line) != 0;
    if (known)
        saying->said[rank] = true;
    saying->last_ns = twill_now();
    if (++saying->count >= sayings->ranks)
        print_saying(sayings, saying);
}

/* Return when a line is due to be printed, or UINT64_MAX if the entry is free. */
static uint64_t deadline_of(const struct twill_saying *saying)
{
    return saying->count > 0 ? twill_min(saying->first_ns + TWILL_SAYING_MOST_NS,
                                         saying->last_ns + TWILL_SAYING_QUIET_NS)
                             : UINT64_MAX;
}

void twill_sayings_print(struct twill_sayings *sayings, uint64_t now)
{
    for (int i = 0; i < TWILL_SAYINGS; i++)
        if (sayings->saying[i].count > 0 && deadline_of(&sayings->saying[i]) <= now)
            print_saying(sayings, &sayings->saying[i]);
}

uint64_t twill_sayings_deadline(const struct twill_sayings *sayings)
{
    uint64_t until = UINT64_MAX;
    for (int i = 0; i < TWILL_SAYINGS; i++)
        until = twill_min(until, deadline_of(&sayings->saying[i]));
    return until;
}

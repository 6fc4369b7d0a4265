/* SPDX-License-Identifier: Apache-2.0 */
/* Explains a choice, for twill-info --why and the log. */
#ifndef TWILL_EXPLAIN_H
#define TWILL_EXPLAIN_H

#include "algorithms/select/price.h"
#include "algorithms/select/tuning_file.h"

#define TWILL_WHY_QUESTION 1024  /* bytes of a question, including its 0 */
#define TWILL_WHY_MOVES    1024u /* most ranks of a world whose moves are counted */

/* Make the choice for a request, and explain it in *text, which the caller frees. `requested` is
 * the value of TWILL_ALGORITHM, or NULL. On failure *text is NULL. Lines end with a newline, and
 * tabs separate their fields. Times are in picoseconds, and candidates are sorted by cost. The
 * first word of a line is one of:
 *
 *     call       collective, bytes, type, nodes x ranks of the fullest, ranks, machine
 *     hierarchy  levels other than nodes and ranks, if any: see twill_world_summarize()
 *     candidate  name[=parameters][@protocol], price, cost (the price unless measured),
 *                measurements, why it is dearer than the first one, which has ""
 *     instead    name, price: with several nodes and mapped buffers, every MAPPED candidate. A node
 *                may run it in place of its staged variant if that is chosen
 *     small      name, sizes and buffers it needs: a candidate, but not for this request
 *     other      name, why it is no candidate
 *     chosen     name, price (UINT64_MAX for none), what chose it: "auto" or the value of
 * TWILL_ALGORITHM decided    what its cost comes from: the model, or the source of the measurements
 *     threads    threads of a rank, most that share a copy or a reduction (1 if none is large
 *                enough), price of the choice, its price with one thread: if ranks have several
 *     curve      threads, picoseconds of fork and join, per KiB copied and per KiB reduced, as
 *                measured in this job: if ranks have several
 *     narrow     f16, cost in f16, of converting, in f32, whether f16 pays: of allreduces of f32
 *     moves      class of link, bytes that all ranks together move over it, if any; with at most
 *                TWILL_WHY_MOVES ranks */
twill_status twill_why(char **text, struct twill_choice *choice, const struct twill_world *world,
                       const struct twill_tuning *tuning, const char *requested,
                       const struct twill_select_request *request, struct twill_error *error);

#define TWILL_WHY_NAME 96
/* Print the name of a choice to text, such as "torus=4x6@staged". Returns text. */
const char *twill_why_name(const struct twill_choice *choice, char text[TWILL_WHY_NAME]);

/* A choice beside the forms that lost, as twill_why_choice() finds it. */
struct twill_foreseen {
    uint64_t cost, next_cost;  /* picoseconds, TWILL_PRICE_NEVER if not known */
    bool measured;             /* `cost` comes from measurements */
    unsigned threads;          /* most threads of a rank that share a copy or a reduction */
    char next[TWILL_WHY_NAME]; /* the cheapest other candidate, or "" */
};

/* Set *seen for a choice that the chooser made for this request, and print to text[bytes] a part of
 * a sentence: the reason, the cost and the next best candidate. If candidates cannot be made, for
 * lack of memory, only the reason is printed. Allocates nothing if the chooser still has the
 * candidates for such requests. */
void twill_why_choice(struct twill_foreseen *seen, char *text, size_t bytes,
                      struct twill_chooser *chooser, const struct twill_world *world,
                      const struct twill_select_request *request,
                      const struct twill_choice *choice);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A search over some steps of a set or a parameter server: each of some candidates is used for a
 * few steps, of which the shortest counts; all ranks change at the same step. At the end they
 * agree, by one reduction, on how long each takes the slowest rank. Used for bucket sizes,
 * compression, and chunk sizes. */
#ifndef TWILL_STEP_SEARCH_H
#define TWILL_STEP_SEARCH_H

#include "lib/base/base.h"
#include "lib/twill.h"

#define TWILL_SEARCH_STEPS                                                                         \
    5u /* of a candidate; the first is not counted: its reductions are new                         \
        */

/* Zeros: there is no search. */
struct twill_step_search {
    unsigned candidates, at; /* at == candidates: over, or none */
    unsigned steps;          /* of the present candidate so far */
    uint64_t step_began;     /* twill_now(); 0: not yet */
    double *seconds;         /* [candidates] shortest step; at the end that of the slowest rank */
};

/* Begin a search; free it. */
twill_status twill_search_begin(struct twill_step_search *search, unsigned candidates,
                                struct twill_error *error);
void twill_search_free(struct twill_step_search *search);
static inline bool twill_search_is_over(const struct twill_step_search *search)
{
    return search->at == search->candidates;
}
/* Note the end of a step, after which the candidate may change or not. Returns whether the next
 * candidate is to be used from now on, or the search is over; call twill_search_restart() once that
 * is done. */
bool twill_search_end_step(struct twill_step_search *search, bool may_change);
/* The next step begins. */
void twill_search_restart(struct twill_step_search *search);
/* Agree on the seconds of all candidates. Collective, when the search is over. */
twill_status twill_search_agree(struct twill_step_search *search, twill_comm *comm);
/* Return the fastest of the first `count` candidates, of equal ones the first. */
unsigned twill_search_fastest(const struct twill_step_search *search, unsigned count);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The search over candidates, a few steps each. */
#include "lib/train/step_search.h"

#include <stdlib.h>

twill_status twill_search_begin(struct twill_step_search *search, unsigned candidates,
                                struct twill_error *error)
{
    *search = (struct twill_step_search){.candidates = candidates};
    search->seconds = calloc(candidates, sizeof(*search->seconds));
    if (search->seconds == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for %u candidates", candidates);
    return TWILL_OK;
}

void twill_search_free(struct twill_step_search *search)
{
    free(search->seconds);
    *search = (struct twill_step_search){0};
}

bool twill_search_end_step(struct twill_step_search *search, bool may_change)
{
    double seconds = (double)(twill_now() - search->step_began) * 1e-9,
           *least = &search->seconds[search->at];
    if (search->steps > 0 && (search->steps == 1 || seconds < *least))
        *least = seconds;
    if (++search->steps < TWILL_SEARCH_STEPS || !may_change) {
        twill_search_restart(search);
        return false;
    }
    search->steps = 0;
    search->at++;
    return true;
}

void twill_search_restart(struct twill_step_search *search)
{
    search->step_began = twill_now();
}

twill_status twill_search_agree(struct twill_step_search *search, twill_comm *comm)
{
    return twill_allreduce(comm, search->seconds, search->seconds, search->candidates, TWILL_F64,
                           TWILL_MAX);
}

unsigned twill_search_fastest(const struct twill_step_search *search, unsigned count)
{
    unsigned best = 0;
    for (unsigned i = 1; i < count; i++)
        if (search->seconds[i] < search->seconds[best])
            best = i;
    return best;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap by an all-gather that the program provides as a callback. */
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/host/host_identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct twill_oob_lent { /* an OOB over the program's callback; twill_oob_free() frees it */
    struct twill_oob oob;
    twill_bootstrap lent; /* exchange NULL: twill_oob_lend_seal() was called */
};

/* What each rank contributes to the first exchange through the program's callback. */
struct twill_caller_info {
    struct twill_secret secret; /* rank 0's is used */
    struct twill_host host;
};

/* Return whether the program gave an all-gather of its own. */
static bool caller_applies(const struct twill_bootstrap_params *params)
{
    return params->caller != NULL;
}

/* Gather by the program's callback. Returns TWILL_ERR_BOOTSTRAP if that fails, or
 * TWILL_ERR_INTERNAL after twill_oob_lend_seal(). Does not call it for 0 bytes, nor in a job of one
 * rank, where it copies. */
static twill_status caller_allgather(struct twill_oob *oob, const void *mine, void *all,
                                     size_t bytes, struct twill_error *error)
{
    const twill_bootstrap *lent = &((struct twill_oob_lent *)oob)->lent;
    if (bytes == 0)
        return TWILL_OK;
    if (oob->size == 1)
        return twill_oob_alone(oob, mine, all, bytes, error);
    if (lent->exchange == NULL)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "set-up by the caller's exchange has ended");
    int code = lent->exchange(lent->user, mine, all, bytes);
    if (code != 0)
        return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP,
                          "%s: the caller's exchange of %zu bytes returned %d",
                          TWILL_RANK_NAME(oob->job, oob->rank), bytes, code);
    return TWILL_OK;
}

/* Set oob->secret to the one that rank 0 drew, which the program's exchange carries to all ranks,
 * and oob->nonce. Set oob->address to loopback if all ranks are on one host and TWILL_INTERFACE is
 * not set, else to this host's. Fails if the exchange does, or if TWILL_INTERFACE is wrong. */
static twill_status caller_gather(struct twill_oob *oob,
                                  const struct twill_bootstrap_params *params,
                                  struct twill_error *error)
{
    struct twill_caller_info mine;
    bool together = true;
    memset(&mine, 0, sizeof(mine));
    TWILL_TRY(error, twill_secret_random(&mine.secret, error));
    twill_host_describe(&mine.host);
    struct twill_caller_info *all = calloc((size_t)oob->size, sizeof(*all));
    if (!all)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rank %d: no memory for %d ranks", oob->rank,
                          oob->size);
    twill_status status = caller_allgather(oob, &mine, all, sizeof(mine), error);
    oob->secret = all[0].secret;
    twill_oob_name_run(oob);
    for (int r = 0; r < oob->size; r++)
        together = together && twill_host_same_node(&all[r].host, &mine.host);
    twill_secret_wipe(all, (size_t)oob->size * sizeof(*all));
    free(all);
    TWILL_TRY(error, status);
    snprintf(oob->address, sizeof(oob->address), "127.0.0.1");
    snprintf(oob->address_why, sizeof(oob->address_why), "all ranks are on this host");
    if (!together || twill_is_set(params->interface))
        TWILL_TRY(error,
                  twill_interface_choose(oob->address, oob->interface, params->interface, NULL,
                                         oob->address_why, sizeof(oob->address_why), error));
    return TWILL_OK;
}

/* Fail with TWILL_ERR_ARGUMENT unless the program's rank, size and callback make sense. */
static twill_status check_lent(const twill_bootstrap *lent, struct twill_error *error)
{
    if (lent->size < 1 || lent->rank < 0 || lent->rank >= lent->size)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "bootstrap: rank %d is outside 0 .. size - 1, where size is %d",
                          lent->rank, lent->size);
    if (lent->size > 1 && !lent->exchange)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "bootstrap: exchange is NULL, and rank %d of %d needs it", lent->rank,
                          lent->size);
    return TWILL_OK;
}

/* Copy the program's bootstrap `lent` into `oob`, which is the first member of a struct
 * twill_oob_lent. Set oob->rank and oob->size to those of `lent`, and oob->how to a text for
 * messages. */
static void take_over(struct twill_oob *oob, const twill_bootstrap *lent)
{
    ((struct twill_oob_lent *)oob)->lent = *lent;
    oob->rank = lent->rank;
    oob->size = lent->size;
    snprintf(oob->how, sizeof(oob->how), "caller: rank %d of %d by the caller's exchange",
             lent->rank, lent->size);
}

/* Set *oob to a job over the program's exchange, or to NULL on failure. Collective if size > 1. */
static twill_status caller_open(struct twill_oob **oob, const struct twill_bootstrap_params *params,
                                struct twill_error *error)
{
    twill_status status;
    TWILL_TRY(error, check_lent(params->caller, error));
    TWILL_TRY(error, twill_oob_new(oob, &twill_bootstrap_caller, params, error));
    take_over(*oob, params->caller);
    TWILL_TRY_OR_FAIL(error, caller_gather(*oob, params, error));
    return TWILL_OK;
fail:
    twill_oob_free(*oob);
    *oob = NULL;
    return status;
}

twill_status twill_oob_lend(struct twill_oob **oob, const struct twill_oob *like,
                            const twill_bootstrap *lent, struct twill_error *error)
{
    TWILL_TRY(error, check_lent(lent, error));
    struct twill_oob_lent *self = calloc(1, sizeof(*self));
    if (self == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "bootstrap: no memory for %d ranks", lent->size);
    self->oob = *like;
    self->oob.ops = &twill_bootstrap_caller;
    self->oob.rounds = 0;
    self->oob.rejected = (struct twill_rejected){.count = {0}};
    take_over(&self->oob, lent);
    *oob = &self->oob;
    return TWILL_OK;
}

void twill_oob_lend_seal(struct twill_oob *oob)
{
    ((struct twill_oob_lent *)oob)->lent.exchange = NULL;
}

const struct twill_bootstrap_ops twill_bootstrap_caller = {
    .size_of = sizeof(struct twill_oob_lent),
    .name = "caller",
    .allgather = caller_allgather,
    .close = twill_oob_free,
    .applies = caller_applies,
    .open = caller_open,
};

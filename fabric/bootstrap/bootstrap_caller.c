/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap by the all-gather that the caller lends. */
#include "fabric/bootstrap/bootstrap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct twill_boot_lent {
    struct twill_boot boot;
    twill_bootstrap lent;
};

/* What ranks tell each other first. */
struct twill_boot_card {
    struct twill_secret secret; /* rank 0's counts */
    struct twill_host host;
};

static bool caller_applies(const struct twill_boot_params *params)
{
    return params->caller != NULL;
}

static twill_status caller_allgather(struct twill_boot *boot, const void *mine, void *all,
                                     size_t bytes, struct twill_error *error)
{
    const twill_bootstrap *lent = &((struct twill_boot_lent *)boot)->lent;
    if (bytes == 0)
        return TWILL_OK;
    if (boot->size == 1) {
        memmove(all, mine, bytes);
        return TWILL_OK;
    }
    if (lent->exchange == NULL)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "set-up by the caller's exchange is over");
    int code = lent->exchange(lent->user, mine, all, bytes);
    if (code != 0)
        return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP,
                          "%s: the caller's exchange of %zu bytes returned %d",
                          TWILL_RANK_NAME(boot->job, boot->rank), bytes, code);
    return TWILL_OK;
}

static void caller_close(struct twill_boot *boot)
{
    free(boot);
}

/* Agree on the secret of this run, which the caller's exchange is trusted with, and on whether all
 * ranks share one host. */
static twill_status caller_meet(struct twill_boot *boot, const struct twill_boot_params *params,
                                struct twill_error *error)
{
    struct twill_boot_card mine;
    bool together = true;
    memset(&mine, 0, sizeof(mine));
    TWILL_TRY(error, twill_secret_random(&mine.secret, error));
    twill_host_describe(&mine.host);
    struct twill_boot_card *all = calloc((size_t)boot->size, sizeof(*all));
    if (!all)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rank %d: no memory for %d ranks", boot->rank,
                          boot->size);
    twill_status status = caller_allgather(boot, &mine, all, sizeof(mine), error);
    boot->secret = all[0].secret;
    twill_boot_name_run(boot);
    for (int r = 0; r < boot->size; r++)
        together = together && twill_host_same_node(&all[r].host, &mine.host);
    twill_secret_wipe(all, (size_t)boot->size * sizeof(*all));
    free(all);
    TWILL_TRY(error, status);
    snprintf(boot->address, sizeof(boot->address), "127.0.0.1");
    snprintf(boot->address_why, sizeof(boot->address_why), "all ranks are on this host");
    if (!together || (params->interface && *params->interface))
        TWILL_TRY(error,
                  twill_interface_choose(boot->address, boot->interface, params->interface, NULL,
                                         boot->address_why, sizeof(boot->address_why), error));
    return TWILL_OK;
}

static twill_status check_lent(const twill_bootstrap *lent, struct twill_error *error)
{
    if (lent->size < 1 || lent->rank < 0 || lent->rank >= lent->size)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "bootstrap: rank %d of size %d (rank must be 0 .. size-1)", lent->rank,
                          lent->size);
    if (lent->size > 1 && !lent->exchange)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "bootstrap: rank %d of %d has no exchange callback", lent->rank,
                          lent->size);
    return TWILL_OK;
}

static void take_over(struct twill_boot *boot, const twill_bootstrap *lent)
{
    ((struct twill_boot_lent *)boot)->lent = *lent;
    boot->rank = lent->rank;
    boot->size = lent->size;
    snprintf(boot->how, sizeof(boot->how), "caller: rank %d of %d by the caller's exchange",
             lent->rank, lent->size);
}

static twill_status caller_open(struct twill_boot **boot, const struct twill_boot_params *params,
                                struct twill_error *error)
{
    twill_status status;
    TWILL_TRY(error, check_lent(params->caller, error));
    TWILL_TRY(error, twill_boot_new(boot, &twill_boot_caller, params, error));
    take_over(*boot, params->caller);
    TWILL_TRY_OR_FAIL(error, caller_meet(*boot, params, error));
    return TWILL_OK;
fail:
    caller_close(*boot);
    *boot = NULL;
    return status;
}

twill_status twill_boot_lend(struct twill_boot **boot, const struct twill_boot *like,
                             const twill_bootstrap *lent, struct twill_error *error)
{
    TWILL_TRY(error, check_lent(lent, error));
    struct twill_boot_lent *self = calloc(1, sizeof(*self));
    if (self == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "bootstrap: no memory for %d ranks", lent->size);
    self->boot = *like;
    self->boot.ops = &twill_boot_caller;
    self->boot.strays = (struct twill_strays){.count = {0}};
    take_over(&self->boot, lent);
    *boot = &self->boot;
    return TWILL_OK;
}

void twill_boot_lend_seal(struct twill_boot *boot)
{
    ((struct twill_boot_lent *)boot)->lent.exchange = NULL;
}

const struct twill_boot_ops twill_boot_caller = {
    .size_of = sizeof(struct twill_boot_lent),
    .name = "caller",
    .allgather = caller_allgather,
    .close = caller_close,
    .applies = caller_applies,
    .open = caller_open,
};

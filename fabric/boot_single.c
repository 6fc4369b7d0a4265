/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap of a job of one rank: nobody to find. */
#include "fabric/boot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool single_applies(const struct twill_boot_params *params)
{
    (void)params;
    return true;
}

static twill_status single_allgather(struct twill_boot *boot, const void *mine, void *all,
                                     size_t bytes, struct twill_error *error)
{
    (void)boot;
    (void)error;
    if (bytes > 0)
        memmove(all, mine, bytes);
    return TWILL_OK;
}

static void single_close(struct twill_boot *boot)
{
    free(boot);
}

static twill_status single_open(struct twill_boot **boot, const struct twill_boot_params *params,
                                struct twill_error *error)
{
    twill_status status;
    TWILL_TRY(error, twill_boot_new(boot, &twill_boot_single, params, error));
    TWILL_TRY_OR_FAIL(error, twill_boot_random((*boot)->nonce, error));
    snprintf((*boot)->address, sizeof((*boot)->address), "127.0.0.1");
    snprintf((*boot)->address_why, sizeof((*boot)->address_why), "there is no other rank");
    snprintf((*boot)->how, sizeof((*boot)->how), "single: one rank, as RANK is not set");
    return TWILL_OK;
fail:
    single_close(*boot);
    *boot = NULL;
    return status;
}

const struct twill_boot_ops twill_boot_single = {
    .size_of = sizeof(struct twill_boot),
    .name = "single",
    .allgather = single_allgather,
    .close = single_close,
    .applies = single_applies,
    .open = single_open,
};

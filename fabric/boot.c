/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of bootstraps, and what they share. */
#include "fabric/boot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* In the order of detection; the last one always applies. */
static const struct twill_boot_ops *const candidates[] = {
    &twill_boot_caller,
    &twill_boot_tcp,
    &twill_boot_single,
};

twill_status twill_boot_open(struct twill_boot **boot, const struct twill_boot_params *params,
                             struct twill_error *error)
{
    *boot = NULL;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(candidates); i++) {
        if (!candidates[i]->applies(params))
            continue;
        TWILL_TRY(error, candidates[i]->open(boot, params, error));
        if ((*boot)->interface[0] == '\0')
            twill_interface_of((*boot)->interface, (*boot)->address);
        return TWILL_OK;
    }
    return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "no bootstrap applies");
}

void twill_boot_close(struct twill_boot *boot)
{
    if (boot)
        boot->ops->close(boot);
}

twill_status twill_boot_new(struct twill_boot **boot, const struct twill_boot_ops *ops,
                            const struct twill_boot_params *params, struct twill_error *error)
{
    *boot = calloc(1, ops->size_of);
    if (!*boot)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "bootstrap %s: no memory for %zu bytes",
                          ops->name, ops->size_of);
    (*boot)->ops = ops;
    (*boot)->size = 1;
    (*boot)->timeout_ns = params->timeout_ns;
    return TWILL_OK;
}

twill_status twill_boot_random(uint8_t nonce[TWILL_NONCE_BYTES], struct twill_error *error)
{
    ssize_t got;
    do
        got = getrandom(nonce, TWILL_NONCE_BYTES, 0);
    while (got < 0 && errno == EINTR);
    if (got != TWILL_NONCE_BYTES)
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "getrandom for the nonce of the job: %s",
                          strerror(errno));
    nonce[0] |= 1; /* all zeros stands for "none" on the wire */
    return TWILL_OK;
}

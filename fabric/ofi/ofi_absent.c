/* SPDX-License-Identifier: Apache-2.0 */
/* The ofi transport of a build without libfabric. Every use returns an error that says so. */
#include "fabric/transports.h"

#include <stdio.h>

static const char *const absent =
    "this library was built without libfabric (cmake -DTWILL_WITH_LIBFABRIC=ON)";

/* Return TWILL_PRIORITY_NAMED if TWILL_PROVIDER names libfabric, else NONE. Sets `why`. */
static uint32_t ofi_priority(const struct twill_transport_params *params, char *why, size_t bytes)
{
    bool named = params->provider != NULL && params->provider[0] != '\0' &&
                 !twill_words_equal(params->provider, "tcp", SIZE_MAX);
    snprintf(why, bytes, "%s", named ? "libfabric, by TWILL_PROVIDER" : absent);
    return named ? TWILL_PRIORITY_NAMED : TWILL_PRIORITY_NONE;
}

/* Return TWILL_ERR_UNSUPPORTED, as this library was built without libfabric. */
static twill_status ofi_open(struct twill_transport **transport,
                             const struct twill_transport_params *params, struct twill_error *error)
{
    *transport = NULL;
    return TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED, "TWILL_PROVIDER=%s: %s",
                      params->provider != NULL ? params->provider : "", absent);
}

const struct twill_transport_ops twill_ofi_transport = {
    .name = "ofi",
    .priority = ofi_priority,
    .open = ofi_open,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* The ofi transport of a build without libfabric: every use returns an error that says so. */
#include "fabric/transports.h"

static const char *const absent =
    "this library was built without libfabric (cmake -DTWILL_WITH_LIBFABRIC=ON)";

bool twill_ofi_is_better(const struct twill_transport_params *params, char *name, size_t bytes,
                         struct twill_error *error)
{
    (void)params;
    (void)name;
    (void)bytes;
    return TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED, "%s", absent) == TWILL_OK;
}

static bool reaches(const struct twill_transport_params *params, uint32_t from, uint32_t to)
{
    (void)params;
    return from != to;
}

static twill_status ofi_open(struct twill_transport **transport,
                             const struct twill_transport_params *params, struct twill_error *error)
{
    *transport = NULL;
    return TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED, "TWILL_PROVIDER=%s: %s",
                      params->provider != NULL ? params->provider : "", absent);
}

const struct twill_transport_ops twill_ofi_transport = {
    .size_of = sizeof(struct twill_transport_ops),
    .name = "ofi",
    .reaches = reaches,
    .open = ofi_open,
};

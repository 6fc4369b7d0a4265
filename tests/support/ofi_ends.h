/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of the ofi transport for its tests: one per rank. */
#ifndef TWILL_OFI_ENDS_H
#define TWILL_OFI_ENDS_H

#include "fabric/ofi/ofi.h"
#include "tests/support/messages.h"

#define SECOND UINT64_C(1000000000)

/* How an end is opened: the provider and options. */
struct setup {
    const char *provider;
    struct twill_ofi_options options;
};

static const struct setup tcp __attribute__((unused)) = {"tcp", {0}};

/* Open with end->params. */
static inline bool ofi_open(struct twill_test_end *end, const void *how)
{
    const struct setup *setup = how;
    end->params.provider = setup->provider;
    return end_opened(end,
                      twill_ofi_open(&end->transport, &end->params, &setup->options, &end->error));
}

/* The same, with an endpoint that communicators of the rank can share. */
static inline bool ofi_open_shared(struct twill_test_end *end, const void *how)
{
    end->params.common = &end->common;
    return ofi_open(end, how);
}

static inline struct twill_ofi *ofi_of(const struct twill_test_end *end)
{
    return (struct twill_ofi *)end->transport;
}

#endif

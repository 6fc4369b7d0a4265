/* SPDX-License-Identifier: Apache-2.0 */
/* The cases that all providers of libfabric have to pass:
 * tests/unit/fabric/test_fabric_providers.c. */
#ifndef TWILL_PROVIDER_CASES_H
#define TWILL_PROVIDER_CASES_H

#include "tests/support/ofi_ends.h"

#include <stdatomic.h>

/* A provider, as it is set up for the run. */
struct provider {
    const char *title;
    const char *name;      /* TWILL_PROVIDER */
    const char *interface; /* TWILL_INTERFACE, or NULL */
    const char *doubled;   /* folder of the double in TEST_DOUBLES, or NULL */
    const char *settings;  /* VARIABLE=value for a double, or NULL */
    size_t address_bytes;  /* of its addresses; 0: whatever */
    const char *needs;     /* said when it is skipped */
    bool refused;          /* twill does not use it, and says why */
};

struct provider_case;

/* What the processes of a run tell the parent; shared memory. */
struct outcome {
    char at[64];            /* the case under way */
    atomic_uint arrived[3]; /* how often each rank has come to a meeting */
    uint32_t cases;
    bool absent;
    char why[256];
    char name[32], description[256];
    size_t address_bytes, max_message, inject;
    uint64_t tag_format;
    int mr_mode;
    double seconds;
};

struct run {
    const struct provider *provider;
    const char *address; /* of the ranks, or NULL */
    struct outcome *outcome;
    struct setup setup;
    const struct provider_case
        *only; /* the case to run, or NULL: all that need no processes of their own */
};

/* Runs on every rank, opens its own ends and ends by a deadline. */
struct provider_case {
    const char *name; /* NULL: past the last */
    int ranks;        /* processes */
    bool alone;       /* in processes of its own */
    bool (*fn)(struct run *run, twill_bootstrap *caller);
};
extern const struct provider_case test_provider_cases[];

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The cases that all libfabric providers must pass: tests/unit/fabric/ofi/test_fabric_providers.c.
 */
#ifndef TWILL_PROVIDER_CASES_H
#define TWILL_PROVIDER_CASES_H

#include "tests/support/ofi_ends.h"

#include <stdatomic.h>

/* A provider and its set-up for a run. */
struct provider {
    const char *title;
    const char *name;      /* TWILL_PROVIDER */
    const char *interface; /* TWILL_INTERFACE, or NULL */
    const char *doubled;   /* folder of the double in TEST_DOUBLES, or NULL */
    const char *settings;  /* VARIABLE=value for a double, or NULL */
    size_t address_bytes;  /* of its addresses; 0: any */
    const char *needs;     /* printed when it is skipped */
    bool refused;          /* twill must reject it, with a reason */
};

/* Results of the ranks of a run for their parent, in shared memory. */
struct outcome {
    char at[64];            /* the current case */
    atomic_uint arrived[3]; /* how often each rank has arrived at a barrier */
    uint32_t cases;
    bool absent;
    char why[256];
    char name[32], description[256];
    size_t address_bytes, max_message, inject;
    uint64_t tag_format;
    int mr_mode;
    double seconds;
};

struct provider_case;

struct run {
    const struct provider *provider;
    const char *address; /* of the ranks, or NULL */
    struct outcome *outcome;
    struct twill_ofi_options options;
    /* the case to run, or NULL: all that need no separate processes */
    const struct provider_case *only;
    twill_bootstrap *caller; /* of the rank that runs a case */
};

/* A case, which every rank runs on an end that it opens; it has a deadline. */
struct provider_case {
    const char *name; /* NULL: end of the table */
    int ranks;        /* if it runs by itself */
    bool alone;       /* in separate processes */
    bool cancels;     /* also of doubles that differ in how they return what is cancelled */
    bool (*fn)(struct run *run, struct twill_test_end *end);
};
extern const struct provider_case test_provider_cases[];
/* Return whether libfabric's provider of this name is to write into memory of peers. */
bool test_provider_writes(const char *name);
/* Run a case on a rank. */
bool test_provider_run(const struct provider_case *c, const struct run *run,
                       twill_bootstrap *caller);
/* How a double returns what is cancelled; NULL: as soon as it can. */
const char *test_provider_way_back(const struct provider *provider);
/* Return whether a provider is to pass a case. */
bool test_provider_has(const struct provider *provider, const struct provider_case *c);

#endif

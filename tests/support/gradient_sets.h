/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient sets for tests: a context, its communicator and a set on every rank. */
#ifndef TWILL_TEST_GRADIENT_SETS_H
#define TWILL_TEST_GRADIENT_SETS_H

#include "lib/twill_train.h"
#include "tests/support/unit.h"

struct twill_test_set {
    twill_context *context;
    twill_comm *comm;
    twill_gradients *set;
};

/* Connect, and create an empty set. `nodes` is as for twill_test_connect(); `timeout` and `setting`
 * are settings, such as TWILL_TEST_PATIENT and "TWILL_GRADIENTS=threads=2"; options may be NULL.
 * Returns false after noting a failure; close it in any case. */
bool twill_test_set_open(struct twill_test_set *s, twill_bootstrap *bootstrap, const char *nodes,
                         const char *timeout, const char *setting,
                         const twill_gradients_options *options);
/* Register tensor number `index`, "tensorN" with priority N. The memory may be NULL. */
bool twill_test_set_add(struct twill_test_set *s, unsigned index, size_t count, twill_type type,
                        void *gradient, void *parameters);
bool twill_test_set_commit(struct twill_test_set *s);
/* Check that a call succeeded; else note the set's message. */
bool twill_test_set_ok(const struct twill_test_set *s, twill_status status);
/* Check that the set's message has these words. */
bool twill_test_set_says(const struct twill_test_set *s, const char *words);
/* Destroy all, when all ranks are here; bootstrap NULL: at once. */
void twill_test_set_close(struct twill_test_set *s, twill_bootstrap *bootstrap);

/* Define a test as by TWILL_TEST_CASES(), whose ranks have an empty set with the default options:
 * the parameter r. It is destroyed when all ranks are here. */
#define TWILL_TEST_SETS(name, run, cases, layout, ...)                                             \
    static void set_of_##name(__typeof__((cases)[0]) *c, struct twill_test_set *r, int rank,       \
                              int size, twill_bootstrap *bootstrap);                               \
    TWILL_TEST_CASES(name, run, cases, layout, __VA_ARGS__)                                        \
    {                                                                                              \
        struct twill_test_set r = {twill_comm_context(comm), comm, NULL};                          \
        TWILL_CHECK(twill_test_fine(comm, twill_gradients_create(&r.set, comm, NULL)));            \
        set_of_##name(c, &r, rank, size, bootstrap);                                               \
        (void)twill_test_barrier(bootstrap);                                                       \
        twill_gradients_destroy(r.set);                                                            \
    }                                                                                              \
    static void set_of_##name(__typeof__((cases)[0]) *c, struct twill_test_set *r, int rank,       \
                              int size, twill_bootstrap *bootstrap)

#endif

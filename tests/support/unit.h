/* SPDX-License-Identifier: Apache-2.0 */
/* The header that every unit test includes. It has cmocka, the headers of C and POSIX that many
 * tests use, and a main function. */
#ifndef TWILL_UNIT_H
#define TWILL_UNIT_H

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/ranks.h"
#include "tests/support/run.h"

/* Define a test: TWILL_TEST(name) { ... }, with `state` as its parameter. It enters itself into the
 * list of main(), which runs the tests of a program in the order of their lines (TEST_ONLY: one of
 * them, by name or pattern). A program with a main() of its own does not use these macros. */
#define TWILL_TEST(name) TWILL_TEST_BETWEEN(name, NULL, NULL)
/* Define a test with its own set-up and tear-down. */
#define TWILL_TEST_BETWEEN(name, set_up, tear_down)                                                \
    static void name(void **state);                                                                \
    __attribute__((constructor)) static void list_##name(void)                                     \
    {                                                                                              \
        twill_unit_list(__LINE__, (struct CMUnitTest){#name, name, set_up, tear_down, NULL});      \
    }                                                                                              \
    static void name(void **state)
/* Define a test that runs `size` ranks, as threads or as processes. The body is what each of them
 * does, with the parameters of a twill_rank_fn: rank, size, bootstrap, user. */
#define TWILL_TEST_OF_RANKS(name, ranks)     TWILL_TEST_OF(name, twill_test_run_ranks, ranks)
#define TWILL_TEST_OF_PROCESSES(name, ranks) TWILL_TEST_OF(name, twill_test_run_processes, ranks)
#define TWILL_TEST_OF(name, run, ranks)                                                            \
    static void rank_of_##name(int rank, int size, twill_bootstrap *bootstrap, void *user);        \
    TWILL_TEST(name)                                                                               \
    {                                                                                              \
        run(ranks, rank_of_##name, NULL);                                                          \
    }                                                                                              \
    static void rank_of_##name(int rank, int size, twill_bootstrap *bootstrap, void *user)
/* Define a test whose ranks have a communicator of all, once for each case of an array, by
 * twill_test_run_ranks() or twill_test_run_processes() (run: ranks or processes). `c` is the case,
 * `layout` its ranks (twill_test_size()), and what follows are settings; both may use c. The body
 * is what each rank does, with the parameters c, comm, rank, size and bootstrap. Behind it all
 * ranks meet, and the communicator and its context are destroyed (twill_test_end()). */
#define TWILL_TEST_CASES(name, run, cases, layout, ...)                                            \
    static void body_of_##name(__typeof__((cases)[0]) *c, twill_comm *comm, int rank, int size,    \
                               twill_bootstrap *bootstrap);                                        \
    static void rank_of_##name(int rank, int size, twill_bootstrap *bootstrap, void *user)         \
    {                                                                                              \
        __typeof__((cases)[0]) *c = user;                                                          \
        twill_comm *comm;                                                                          \
        if (!twill_test_begin(&comm, bootstrap, layout, TWILL_TEST_SETTINGS_OF(__VA_ARGS__)))      \
            return;                                                                                \
        twill_context *context = twill_comm_context(comm);                                         \
        body_of_##name(c, comm, rank, size, bootstrap);                                            \
        twill_test_end(comm, context, bootstrap);                                                  \
    }                                                                                              \
    TWILL_TEST(name)                                                                               \
    {                                                                                              \
        for (size_t i = 0; i < sizeof(cases) / sizeof((cases)[0]); i++) {                          \
            __typeof__((cases)[0]) *c = &(cases)[i];                                               \
            twill_test_run_##run(twill_test_size(layout), rank_of_##name, (void *)(uintptr_t)c);   \
        }                                                                                          \
    }                                                                                              \
    static void body_of_##name(__typeof__((cases)[0]) *c, twill_comm *comm, int rank, int size,    \
                               twill_bootstrap *bootstrap)
/* The same where cases differ in their ranks only: TWILL_LAYOUTS("2", "2x1"), or an array. */
#define TWILL_TEST_ON(name, run, layouts, ...)                                                     \
    TWILL_TEST_CASES(name, run, layouts, *c __VA_OPT__(, ) __VA_ARGS__)
#define TWILL_LAYOUTS(...) ((const char *const[]){__VA_ARGS__})
/* Define what is set up before all tests of a program and torn down after them. */
#define TWILL_TEST_GROUP(set_up, tear_down)                                                        \
    __attribute__((constructor)) static void list_group(void)                                      \
    {                                                                                              \
        twill_unit_group(set_up, tear_down);                                                       \
    }

/* Leaks below some library do not count in this program: "leak:LIBRARY". */
#define TWILL_TEST_LEAKS(rule)                                                                     \
    TWILL_API const char *__lsan_default_suppressions(void); /* seen by the sanitizer */           \
    const char *__lsan_default_suppressions(void)                                                  \
    {                                                                                              \
        return rule;                                                                               \
    }

void twill_unit_list(int line, struct CMUnitTest test);
void twill_unit_group(CMFixtureFunction set_up, CMFixtureFunction tear_down);

#endif

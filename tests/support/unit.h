/* SPDX-License-Identifier: Apache-2.0 */
/* What every unit test includes: cmocka with the headers that it needs, those of C and POSIX that
 * many tests use, and a main function. */
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

/* Expand cmocka_unit_test(f), for each f of a list of at most 40. */
#define TWILL_UNIT_AGAIN()   TWILL_UNIT_LIST_
#define TWILL_UNIT_PARENS    ()
#define TWILL_UNIT_3(...)    __VA_ARGS__
#define TWILL_UNIT_9(...)    TWILL_UNIT_3(TWILL_UNIT_3(TWILL_UNIT_3(__VA_ARGS__)))
#define TWILL_UNIT_27(...)   TWILL_UNIT_9(TWILL_UNIT_9(TWILL_UNIT_9(__VA_ARGS__)))
#define TWILL_UNIT_81(...)   TWILL_UNIT_27(TWILL_UNIT_27(TWILL_UNIT_27(__VA_ARGS__)))
#define TWILL_UNIT_LIST(...) TWILL_UNIT_81(TWILL_UNIT_LIST_(__VA_ARGS__))
#define TWILL_UNIT_LIST_(f, ...)                                                                   \
    cmocka_unit_test(f) __VA_OPT__(, TWILL_UNIT_AGAIN TWILL_UNIT_PARENS(__VA_ARGS__))

/* Define a test that runs ranks: run(__VA_ARGS__), of tests/support/ranks.h. */
#define TWILL_UNIT_RANKS(name, run, ...)                                                           \
    static void name(void **state)                                                                 \
    {                                                                                              \
        run(__VA_ARGS__);                                                                          \
    }

/* Define main(), which runs these tests. */
#define TWILL_UNIT_MAIN(...)                                                                       \
    int main(void)                                                                                 \
    {                                                                                              \
        const struct CMUnitTest tests[] = {TWILL_UNIT_LIST(__VA_ARGS__)};                          \
        return cmocka_run_group_tests(tests, NULL, NULL);                                          \
    }

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of a process that may have little more memory: memkind is not loaded, as its jemalloc would
 * end the process, and the log says so. */
#include "numa/memory.h"
#include "tests/support/sanitizers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#define LIMITS_MIB ((size_t)1 << 20)

/* The lines of a log. */
struct limits_log {
    unsigned lines;
    char last[512];
};

static void keep_line(void *user, const char *line)
{
    struct limits_log *log = user;
    log->lines++;
    snprintf(log->last, sizeof(log->last), "%s", line);
}

/* Let this process have this much more address space. Returns the limit before. */
static struct rlimit limit_memory(size_t bytes)
{
    struct rlimit before, scarce;
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    scarce = before;
    scarce.rlim_cur = pages * 4096 + bytes;
    assert_int_equal(setrlimit(RLIMIT_AS, &scarce), 0);
    return before;
}

/* Open a pool with little memory left, use it, and compare its log. */
static void check_pool(const struct twill_memory_policy *policy, const char *text)
{
    struct twill_error error = {0};
    struct limits_log lines = {.lines = 0};
    struct twill_log log = {
        .level = TWILL_LOG_WARN, .rank = -1, .print = keep_line, .user = &lines};
    struct twill_memory *memory;
    void *pointer = NULL;
    struct rlimit before = limit_memory(16 * LIMITS_MIB);
    twill_status opened = twill_memory_open(&memory, policy, 0, &log, &error);
    unsigned said = lines.lines;
    twill_status taken = twill_memory_alloc(memory, &pointer, 8192, &error);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(opened, TWILL_OK);
    assert_int_equal(taken, TWILL_OK);
    memset(pointer, 1, 8192);
    assert_int_equal(said, text != NULL);
    if (text != NULL)
        assert_non_null(strstr(lines.last, text));
    twill_memory_free(memory, pointer, 8192);
    twill_memory_close(memory);
}

static void test_little_left(void **state)
{
    (void)state;
    if (TEST_SLOW) /* sanitizers need all addresses */
        skip();
#ifdef TWILL_WITH_MEMKIND
    /* Preferred: the kernel spills over by itself, so that no other reason is logged. */
    check_pool(&(struct twill_memory_policy){.kind = TWILL_KIND_MCDRAM,
                                             .mode = TWILL_MODE_PREFERRED,
                                             .nodes = 1},
               "RLIMIT_AS leaves less");
#endif
    check_pool(&(struct twill_memory_policy){.kind = TWILL_KIND_DDR}, NULL);
}

/* Memory that is not placed needs no library but the C library's. */
static void test_ddr_loads_nothing(void **state)
{
    (void)state;
    char line[512];
    bool loaded = false;
    struct twill_error error = {0};
    struct twill_memory *memory;
    void *pointer;
    const struct twill_memory_policy policy = {.kind = TWILL_KIND_DDR};
    assert_int_equal(twill_memory_open(&memory, &policy, 0, NULL, &error), TWILL_OK);
    assert_int_equal(twill_memory_alloc(memory, &pointer, 4 * LIMITS_MIB, &error), TWILL_OK);
    assert_int_equal((uintptr_t)pointer % (2 * LIMITS_MIB), 0);
    twill_memory_close(memory);
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL)
        loaded = loaded || strstr(line, "memkind") != NULL;
    fclose(maps);
    assert_false(loaded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_little_left),
        cmocka_unit_test(test_ddr_loads_nothing),
    };
    return cmocka_run_group_tests_name("numa/limits", tests, NULL, NULL);
}

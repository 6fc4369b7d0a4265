/* SPDX-License-Identifier: Apache-2.0 */
/* Tuning folders: a file for this machine is used if all ranks find the same timings, and only
 * then; one for another machine is not; one that cannot be parsed is an error that names file and
 * line. */
#include "algorithms/select/tuning_file.h"
#include "lib/job/context.h"
#include "tests/support/unit.h"

#include <sys/stat.h>

#define ENTRY "measured allreduce direct@staged 1x2 64K 7000\n"

struct tuning_case {
    char home[64], empty[64]; /* folders; `empty` has no tuning file */
    char key[TWILL_TUNING_KEY_BYTES];
};

/* Write HOME/.twill/tuning/NAME. */
static void write_tuning(const struct tuning_case *c, const char *name, const char *key,
                         const char *entry)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/.twill/tuning/%s", c->home, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "twill-tuning 1\nfor %s\n%s", key, entry);
    assert_int_equal(fclose(file), 0);
}

static int make_homes(void **state)
{
    static struct tuning_case c;
    char path[160];
    strcpy(c.home, "/tmp/twill-home-XXXXXX");
    strcpy(c.empty, "/tmp/twill-home-XXXXXX");
    if (mkdtemp(c.home) == NULL || mkdtemp(c.empty) == NULL)
        return -1;
    snprintf(path, sizeof(path), "%s/.twill", c.home);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/.twill/tuning", c.home);
    mkdir(path, 0700);
    twill_context *context;
    setenv("HOME", c.empty, 1);
    if (twill_context_create(&context, NULL, NULL) != TWILL_OK)
        return -1;
    const char *line;
    for (size_t i = 0; (line = twill_context_describe(context, i)) != NULL; i++)
        if (strncmp(line, "tuning key: ", 12) == 0)
            snprintf(c.key, sizeof(c.key), "%s", line + 12);
    twill_context_destroy(context);
    *state = &c;
    return 0;
}

static int remove_homes(void **state)
{
    const struct tuning_case *c = *state;
    char command[256];
    snprintf(command, sizeof(command), "rm -rf '%s' '%s'", c->home, c->empty);
    return system(command);
}

/* Return the number of timings that the ranks choose by. */
static size_t timings_used(twill_bootstrap *bootstrap, const char *home)
{
    twill_context *context;
    setenv("HOME", home, 1);
    twill_status status = twill_context_create(&context, bootstrap, NULL);
    size_t count = status == TWILL_OK ? context->selection.tuning->count : SIZE_MAX;
    TWILL_NOTE(status == TWILL_OK, "%s", twill_context_message(context));
    twill_context_destroy(context);
    return count;
}

static void rank_with_timings(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct tuning_case *c = user;
    TWILL_CHECK(timings_used(bootstrap, c->home) == 1);
}

static void rank_without_timings(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct tuning_case *c = user;
    TWILL_CHECK(timings_used(bootstrap, rank == 0 ? c->home : c->empty) == 0);
}

TWILL_TEST(test_folder)
{
    struct tuning_case *c = *state;
    if (c->key[0] == '\0')
        skip(); /* this CPU has no CPUID */
    write_tuning(c, "another.tuning", "GenuineNobody 1 1 1M 1", ENTRY ENTRY);
    write_tuning(c, "here.tuning", c->key, ENTRY);
    write_tuning(c, "here.text", c->key, "not a tuning file");
    twill_test_run_processes(2, rank_with_timings, c);
    twill_context *context;
    const char *line;
    bool told = false;
    setenv("HOME", c->home, 1);
    assert_int_equal(twill_context_create(&context, NULL, NULL), TWILL_OK);
    for (size_t i = 0; (line = twill_context_describe(context, i)) != NULL; i++)
        told |= strstr(line, "/here.text is ignored: its name does not end in .tuning") != NULL;
    twill_context_destroy(context);
    assert_true(told);
    twill_test_run_processes(2, rank_without_timings, c);
}

TWILL_TEST(test_broken)
{
    struct tuning_case *c = *state;
    twill_context *context;
    if (c->key[0] == '\0')
        skip();
    write_tuning(c, "here.tuning", c->key, "measured allreduce nonsense 1x2 64K 7000\n");
    setenv("HOME", c->home, 1);
    assert_int_equal(twill_context_create(&context, NULL, NULL), TWILL_ERR_CONFIG);
    assert_non_null(strstr(twill_context_message(context), "here.tuning:3: "));
    twill_context_destroy(context);
}

TWILL_TEST_GROUP(make_homes, remove_homes)

/* SPDX-License-Identifier: Apache-2.0 */
/* The entries of TWILL_LAYOUT and TWILL_TUNE, their old names, and where values are taken from. */
#include "lib/job/config.h"
#include "tests/support/unit.h"

/* Two settings and two environment variables, or NULL, and what follows. */
struct given {
    const char *settings[2], *environment[2];
    enum twill_variable_id id;
    const char *text, *source; /* or text is the error's, and source is NULL */
};

#define VALUE(id, text, source) TWILL_VARIABLE_##id, text, source
#define ERROR(text)             TWILL_VARIABLE_COUNT, text, NULL

static const struct given cases[] = {
    /* Each form. */
    {{"TWILL_LAYOUT=nodes=2x3"}, {NULL}, VALUE(NODES, "2x3", "caller")},
    {{"TWILL_LAYOUT=2x3"}, {NULL}, VALUE(NODES, "2x3", "caller")},
    {{"TWILL_LAYOUT=4+2+1;groups=2x1"}, {NULL}, VALUE(NODES, "4+2+1", "caller")},
    {{"TWILL_LAYOUT=4+2+1;groups=2x1"}, {NULL}, VALUE(GROUPS, "2x1", "caller")},
    {{"TWILL_LAYOUT=units=l3=2,numa=4;2x4"}, {NULL}, VALUE(UNITS, "l3=2,numa=4", "caller")},
    {{"TWILL_LAYOUT=;topology=pack:2 l3:1 core:8;"},
     {NULL},
     VALUE(TOPOLOGY, "pack:2 l3:1 core:8", "caller")},
    {{NULL}, {"TWILL_LAYOUT=groups=2x1"}, VALUE(GROUPS, "2x1", "environment")},
    {{"TWILL_TUNE=segment=64K,segment_net=1M"}, {NULL}, VALUE(SEGMENT, "64K", "caller")},
    {{"TWILL_TUNE=segment=64K,segment_net=1M"}, {NULL}, VALUE(SEGMENT_NET, "1M", "caller")},
    {{NULL}, {"TWILL_TUNE=isa=avx2,reach=cma"}, VALUE(REACH, "cma", "environment")},
    {{"TWILL_TUNE=domain="}, {"TWILL_TUNE=domain=x"}, VALUE(DOMAIN, "", "caller")},
    {{"TWILL_TUNE=spin="}, {NULL}, VALUE(SPIN, "-1", "default")},
    {{"TWILL_TUNE=", "TWILL_LAYOUT="}, {NULL}, VALUE(NODES, "", "default")},
    /* Old names, and both. */
    {{"TWILL_NODES=2x3"}, {NULL}, VALUE(NODES, "2x3", "caller")},
    {{NULL}, {"TWILL_SPIN=7"}, VALUE(SPIN, "7", "environment")},
    {{"TWILL_SPIN=7", "TWILL_TUNE=spin=7"}, {NULL}, VALUE(SPIN, "7", "caller")},
    {{"TWILL_TUNE=spin=8"}, {"TWILL_SPIN=7"}, VALUE(SPIN, "8", "caller")},
    {{"TWILL_SPIN=8"}, {"TWILL_TUNE=spin=7,isa=scalar"}, VALUE(SPIN, "8", "caller")},
    {{"TWILL_TUNE=spin=8"}, {"TWILL_TUNE=spin=7,isa=scalar"}, VALUE(ISA, "scalar", "environment")},
    {{"TWILL_SPIN=7", "TWILL_TUNE=isa=avx2,spin=8"},
     {NULL},
     ERROR("TWILL_TUNE=spin=8 contradicts TWILL_SPIN=7")},
    {{NULL},
     {"TWILL_NODES=1x2", "TWILL_LAYOUT=2x1"},
     ERROR("TWILL_LAYOUT=nodes=2x1 contradicts TWILL_NODES=1x2")},
    {{"TWILL_TUNE=spin=7,spin=77"},
     {NULL},
     ERROR("TWILL_TUNE=spin=77 contradicts TWILL_TUNE=spin=7")},
    /* Names and values that are wrong. */
    {{"TWILL_TUNE=segmnt=4K"},
     {NULL},
     ERROR("TWILL_TUNE: there is no entry \"segmnt\"; did you mean segment?")},
    {{NULL},
     {"TWILL_LAYOUT=2x2;node=2x2"},
     ERROR("TWILL_LAYOUT: there is no entry \"node\"; did you mean nodes?")},
    {{"TWILL_LAYOUT=l3=4"},
     {NULL},
     ERROR("TWILL_LAYOUT: there is no entry \"l3\"; there are nodes, groups, units, topology")},
    {{"TWILL_TUNE=nodes=2x2"}, {NULL}, ERROR("TWILL_TUNE: there is no entry \"nodes\"")},
    {{"TWILL_TUNE=isa"}, {NULL}, ERROR("TWILL_TUNE=isa: has no value")},
    {{"TWILL_SEGMNT=4K"}, {NULL}, ERROR("did you mean TWILL_TUNE=segment?")},
    {{"TWILL_TUNES=spin=1"}, {NULL}, ERROR("did you mean TWILL_TUNE?")},
    {{NULL}, {"TWILL_TUNE=segment=1K"}, ERROR("TWILL_TUNE=segment=1K: must be bytes")},
    {{"TWILL_REACH=far"}, {NULL}, ERROR("TWILL_TUNE=reach=far: must be one of auto|none")},
};

static void set_environment(const struct given *given, bool set)
{
    for (int i = 0; i < 2 && given->environment[i] != NULL; i++) {
        char name[64];
        const char *equals = strchr(given->environment[i], '=');
        snprintf(name, sizeof(name), "%.*s", (int)(equals - given->environment[i]),
                 given->environment[i]);
        assert_int_equal(set ? setenv(name, equals + 1, 1) : unsetenv(name), 0);
    }
}

TWILL_TEST(values_and_where_from)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        const struct given *given = &cases[i];
        const char *settings[] = {given->settings[0], given->settings[1], NULL};
        struct twill_config config = {.text = {NULL}};
        struct twill_error error = {.status = TWILL_OK};
        set_environment(given, true);
        twill_status status = twill_config_load(&config, settings, &error);
        set_environment(given, false);
        if (given->source == NULL) {
            assert_int_equal(status, TWILL_ERR_CONFIG);
            if (strstr(error.message, given->text) == NULL)
                fail_msg("case %zu: \"%s\" is not in \"%s\"", i, given->text, error.message);
        } else {
            if (status != TWILL_OK || strcmp(config.text[given->id], given->text) != 0 ||
                strcmp(config.source[given->id], given->source) != 0)
                fail_msg("case %zu: status %d, \"%s\" from %s: %s", i, status,
                         status == TWILL_OK ? config.text[given->id] : "",
                         status == TWILL_OK ? config.source[given->id] : "", error.message);
        }
        twill_config_destroy(&config);
    }
}

/* Transports ask for entries by the names that users write. */
TWILL_TEST(found_by_name)
{
    const char *settings[] = {"TWILL_CONGESTION=reno", "TWILL_TUNE=domain=lo", NULL};
    struct twill_config config = {.text = {NULL}};
    struct twill_error error = {.status = TWILL_OK};
    assert_int_equal(twill_config_load(&config, settings, &error), TWILL_OK);
    assert_string_equal(twill_config_find(&config, "TWILL_TUNE=congestion"), "reno");
    assert_string_equal(twill_config_find(&config, "TWILL_TUNE=domain"), "lo");
    assert_null(twill_config_find(&config, "TWILL_TUNE=libfabric"));
    twill_config_destroy(&config);
}

static void warn(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    twill_context *context = NULL;
    const char *settings[] = {user, "TWILL_STREAM=1M", NULL};
    TWILL_CHECK(twill_context_create(&context, bootstrap, settings) == TWILL_OK);
    twill_context_destroy(context);
}

static unsigned count_lines(FILE *file, const char *text)
{
    char line[512];
    unsigned count = 0;
    rewind(file);
    while (fgets(line, sizeof(line), file) != NULL)
        count += strstr(line, text) != NULL;
    return count;
}

/* Old names in the environment: a warning each, of the first rank. None for those of settings. */
TWILL_TEST(old_names_warn_once)
{
    char path[] = "/tmp/twill-variables-XXXXXX", setting[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    snprintf(setting, sizeof(setting), "TWILL_LOG_FILE=%s", path);
    const struct given given = {.environment = {"TWILL_SPIN=3", "TWILL_GROUPS=1x1"}};
    set_environment(&given, true);
    twill_test_run_ranks(3, warn, setting);
    set_environment(&given, false);
    FILE *file = fdopen(fd, "r");
    assert_non_null(file);
    assert_int_equal(count_lines(file, "TWILL_SPIN is now TWILL_TUNE=spin=3"), 1);
    assert_int_equal(count_lines(file, "TWILL_GROUPS is now TWILL_LAYOUT=groups=1x1"), 1);
    assert_int_equal(count_lines(file, " is now "), 2);
    fclose(file);
    assert_int_equal(unlink(path), 0);
}

/* A value that must agree is set on rank 1 only. */
static void differ(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const char *const *given = user; /* setting, expected text */
    const char *settings[] = {rank == 1 ? given[0] : NULL, NULL};
    twill_context *context = NULL;
    twill_status status = twill_context_create(&context, bootstrap, settings);
    (void)TWILL_NOTE(status == TWILL_ERR_CONFIG &&
                         strstr(twill_context_message(context), given[1]) != NULL,
                     "%s: status %d: \"%s\"", given[0], status, twill_context_message(context));
    twill_context_destroy(context);
}

TWILL_TEST(entries_that_differ)
{
    const char *given[][2] = {
        {"TWILL_TUNE=spin=1,segment=64K", "TWILL_TUNE=segment must be the same on all ranks"},
        {"TWILL_TUNE=segment=256K", "TWILL_TUNE=segment must be the same on all ranks"},
        {"TWILL_TUNE=segment_net=4M", "TWILL_TUNE=segment_net must be the same on all ranks"},
        {"TWILL_LAYOUT=units=numa=1", "TWILL_LAYOUT=units must be the same on all ranks"},
        {"TWILL_LAYOUT=1+1+1", "TWILL_LAYOUT=nodes must be the same on all ranks"},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(given); i++)
        twill_test_run_ranks(3, differ, (void *)given[i]);
}

/* The order of twill-info --env: users', those of MPI programs, the lists' entries, start-up's;
 * five fields each. */
TWILL_TEST(lines_of_all_variables)
{
    const char *settings[] = {"TWILL_TUNE=spin=5", NULL}, *line;
    twill_context *context = NULL;
    size_t n = 0;
    assert_int_equal(twill_context_create(&context, NULL, settings), TWILL_OK);
    for (; (line = twill_context_variable(context, n)) != NULL; n++) {
        const struct twill_variable *v = &twill_variables[n];
        unsigned tabs = 0;
        for (const char *c = line; *c != '\0'; c++)
            tabs += *c == '\t';
        assert_int_equal(tabs, 4);
        assert_int_equal(strncmp(line, v->name, strlen(v->name)), 0);
        assert_true(n == 0 || v->scope >= twill_variables[n - 1].scope);
        if (n == TWILL_VARIABLE_SPIN)
            assert_int_equal(strncmp(line, "TWILL_TUNE=spin\t5\t-1\tcaller\t", 28), 0);
    }
    assert_int_equal(n, TWILL_VARIABLE_COUNT);
    twill_context_destroy(context);
}

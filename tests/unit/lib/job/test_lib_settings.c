/* SPDX-License-Identifier: Apache-2.0 */
/* Bad settings: each is an error that names the variable, its value and what is allowed. */
#include "lib/job/config.h"
#include "tests/support/unit.h"

struct bad_setting {
    const char *setting;
    const char *expected[3];
};

static const struct bad_setting bad_settings[] = {
    {"TWILL_TIMEOUT=soon", {"TWILL_TIMEOUT", "soon", "seconds"}},
    {"TWILL_TIMEOUT=0", {"TWILL_TIMEOUT", "0", "1"}},
    {"TWILL_LOG=loud", {"TWILL_LOG", "loud", "none"}},
    {"TWILL_SEGMENT=12Q", {"TWILL_TUNE=segment=12Q", "", "bytes"}},
    {"TWILL_THREADS=-1", {"TWILL_THREADS", "-1", "auto or a number from 1 to 1022"}},
    {"TWILL_THREADS=1023", {"TWILL_THREADS", "1023", "auto or a number from 1 to 1022"}},
    {"TWILL_THREADS=all", {"TWILL_THREADS", "all", "auto or a number from 1 to 1022"}},
    {"TWILL_TIMEOT=3", {"TWILL_TIMEOT", "did you mean", "TWILL_TIMEOUT"}},
    {"nonsense", {"nonsense", "NAME=value", ""}},
    {"TWILL_ALGORITHM=rnig", {"TWILL_ALGORITHM", "rnig", "ring"}},
    {"TWILL_ALGORITHM=ring;linear=x", {"TWILL_ALGORITHM", "\"x\"", "linear"}},
    {"TWILL_ISA=mmx", {"mmx", "scalar", ""}},
    {"TWILL_MEMORY=fast", {"TWILL_MEMORY", "fast", "mcdram"}},
    {"TWILL_NODES=3x3", {"TWILL_LAYOUT=nodes", "3x3", ""}},
    {"TWILL_NODES=pair", {"TWILL_LAYOUT=nodes", "pair", ""}},
    {"TWILL_TOPOLOGY=/etc/passwd", {"TWILL_LAYOUT=topology", "/etc/passwd", ""}},
    {"TWILL_TOPOLOGY=/nowhere.xml", {"TWILL_LAYOUT=topology", "/nowhere.xml", ""}},
    {"RANK=1", {"WORLD_SIZE", "", ""}},
    {"TWILL_LAYOUT=units=tile", {"\"tile\"", "", ""}},
    {"TWILL_LAYOUT=units=core=2", {"\"core=2\"", "", ""}},
    {"TWILL_LAYOUT=units=numa=0", {"\"0\"", "", ""}},
    {"TWILL_LAYOUT=units=numa=2,", {"\"2,\"", "", ""}},
    {"TWILL_LAYOUT=units=numa=2,package=3", {"no multiple", "", ""}},
    {"TWILL_LAYOUT=groups=2",
     {"TWILL_LAYOUT=groups=2: describes 2 nodes, but there are 1", "", ""}},
    {"TWILL_LAYOUT=groups=x", {"write groups x nodes", "", ""}},
    {"TWILL_PROGRESS=thread:", {"TWILL_PROGRESS=thread:", "", ""}},
    {"TWILL_PROGRESS=thread:1x", {"none, late, thread, or thread:CORE", "", ""}},
    {"TWILL_PROGRESS=threads", {"none, late, thread, or thread:CORE", "", ""}},
    {"TWILL_REPRODUCIBLE=2", {"TWILL_REPRODUCIBLE", "", ""}},
    {"TWILL_LOG_FILE=/nowhere/log.%h", {"TWILL_LOG_FILE=/nowhere/log.%h: ", "No such file", ""}},
    {"TWILL_LOG_FILE=/tmp/log.%x",
     {"TWILL_LOG_FILE=/tmp/log.%x", "must be followed by h (host)", ""}},
    {"TWILL_LOG_FILE=/tmp/log%", {"TWILL_LOG_FILE=/tmp/log%", "must be followed by h (host)", ""}},
};

static void check_message(const char *what, const char *const *expected, const char *message)
{
    for (int i = 0; i < 3; i++)
        if (strstr(message, expected[i]) == NULL)
            fail_msg("%s: \"%s\" is not in \"%s\"", what, expected[i], message);
}

TWILL_TEST(settings_that_cannot_be_used)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(bad_settings); i++) {
        const char *settings[] = {bad_settings[i].setting, NULL};
        twill_context *context = NULL;
        twill_status status = twill_context_create(&context, NULL, settings);
        assert_non_null(context);
        if (status != TWILL_ERR_CONFIG)
            fail_msg("%s: status %d: %s", bad_settings[i].setting, status,
                     twill_context_message(context));
        check_message(bad_settings[i].setting, bad_settings[i].expected,
                      twill_context_message(context));
        twill_comm *comm = NULL;
        assert_int_equal(twill_comm_create(&comm, context), TWILL_ERR_ARGUMENT);
        twill_context_destroy(context);
    }
}

/* Settings that fail only when the communicator is created, on every rank. */
static void fail_late(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct bad_setting *bad = user;
    const char *settings[] = {bad->setting, "TWILL_NODES=2x1", TWILL_TEST_PATIENT,
                              "TWILL_HEAP_LIMIT=4M", NULL};
    twill_context *context = NULL;
    twill_comm *comm = NULL;
    twill_status status = twill_context_create(&context, bootstrap, settings);
    if (status == TWILL_OK)
        status = twill_comm_create(&comm, context);
    float x = 1, y = 0;
    const char *message = twill_context_message(context);
    if (status == TWILL_OK) {
        status = twill_allreduce(comm, &x, &y, 1, TWILL_F32, TWILL_SUM);
        message = twill_comm_message(comm);
    }
    bool found = status != TWILL_OK;
    for (int i = 0; i < 3; i++)
        found = found && strstr(message, bad->expected[i]) != NULL;
    (void)TWILL_NOTE(found, "%s: status %d: \"%s\"", bad->setting, status, message);
    (void)twill_test_barrier(bootstrap);
    twill_test_disconnect(comm, context);
}

TWILL_TEST(settings_that_fail_late)
{
    static const struct bad_setting bad[] = {
        {"TWILL_PROVIDER=carrier-pigeon", {"TWILL_PROVIDER", "carrier-pigeon", "tcp"}},
        {"TWILL_INTERFACE=nope0", {"nope0", "", ""}},
        {"TWILL_ALGORITHM=allreduce:direct", {"direct", "", ""}},
        {"TWILL_METRICS=/tmp/%x", {"TWILL_METRICS=/tmp/%x: % must be", "", ""}},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(bad); i++) {
        struct bad_setting one = bad[i];
        twill_test_run_ranks(2, fail_late, &one);
    }
}

/* The transport between nodes and its description. */
static const struct carrier {
    const char *setting, *says, *or_else; /* a line has either */
} carriers[] = {
    {"TWILL_PROVIDER=tcp", "twill's tcp at 127.0.0.1", "twill's tcp at 127.0.0.1"},
    {"TWILL_PROVIDER=ofi:tcp", "tcp;ofi_rxm, domain lo", "tcp, domain lo"},
    {"TWILL_PROVIDER=", "between nodes: twill's own tcp: libfabric", "between nodes: libfabric"},
    {"TWILL_CONGESTION=reno", "congestion control reno", "between nodes: libfabric"},
};

TWILL_TEST_CASES(carriers_between_nodes, ranks, carriers, "2x1", c->setting)
{
    double sum = 1;
    bool said = false;
    const char *line;
    for (size_t i = 0; (line = twill_context_describe(twill_comm_context(comm), i)) != NULL; i++)
        said = said || strstr(line, c->says) || strstr(line, c->or_else);
    TWILL_CHECK(twill_allreduce(comm, &sum, &sum, 1, TWILL_F64, TWILL_SUM) == TWILL_OK);
    TWILL_CHECK(sum == size, "rank %d: %f", rank, sum);
    TWILL_CHECK(said, "%s: no line has \"%s\"", c->setting, c->says);
}

/* A variable that must agree is set on rank 1 only. */
struct difference {
    const char *setting, *name;
};

static void differ(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct difference *difference = user;
    const char *settings[] = {rank == 1 ? difference->setting : NULL, NULL};
    twill_context *context = NULL;
    twill_status status = twill_context_create(&context, bootstrap, settings);
    (void)TWILL_NOTE(status == TWILL_ERR_CONFIG &&
                         strstr(twill_context_message(context), difference->name) != NULL &&
                         strstr(twill_context_message(context), "rank 1") != NULL,
                     "%s: status %d: \"%s\"", difference->setting, status,
                     twill_context_message(context));
    twill_context_destroy(context);
}

TWILL_TEST(settings_that_differ)
{
    const char *file = twill_test_text("/tmp/twill-settings-%d", (int)getpid());
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    fputs("twill-tuning 1\nmachine auto\nmodel link.network.latency 4100000\n", out);
    assert_int_equal(fclose(out), 0);
    struct difference differences[] = {
        {"TWILL_SEGMENT=64K", "TWILL_TUNE=segment must"},
        {"TWILL_SEGMENT_NET=64K", "TWILL_TUNE=segment_net"},
        {"TWILL_ALGORITHM=ring", "TWILL_ALGORITHM"},
        {"TWILL_REPRODUCIBLE=1", "TWILL_REPRODUCIBLE"},
        {"TWILL_GROUPS=1x1", "TWILL_LAYOUT=groups"},
        {"TWILL_UNITS=numa=1", "TWILL_LAYOUT=units"},
        {"TWILL_MACHINE=theta", "TWILL_TUNE=machine"},
        {twill_test_text("TWILL_TUNING=%s", file), "TWILL_TUNING"},
        {"TWILL_TUNE=spin=1,segment=64K", "TWILL_TUNE=segment must be the same on all ranks"},
        {"TWILL_TUNE=segment=256K", "TWILL_TUNE=segment must be the same on all ranks"},
        {"TWILL_TUNE=segment_net=4M", "TWILL_TUNE=segment_net must be the same on all ranks"},
        {"TWILL_LAYOUT=units=numa=1", "TWILL_LAYOUT=units must be the same on all ranks"},
        {"TWILL_LAYOUT=1+1+1", "TWILL_LAYOUT=nodes must be the same on all ranks"},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(differences); i++)
        twill_test_run_ranks(3, differ, &differences[i]);
    assert_int_equal(remove(file), 0);
}

/* --- entries ---------------------------------------------------------------------------------- */

/* The entries of TWILL_LAYOUT and TWILL_TUNE, their old names, and where values are taken from. */

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

/* Old names in the environment: a warning each, of the first rank. None for those of settings. */
TWILL_TEST(old_names_warn_once)
{
    const char *path = twill_test_text("/tmp/twill-variables-%d", (int)getpid());
    const struct given given = {.environment = {"TWILL_SPIN=3", "TWILL_GROUPS=1x1"}};
    set_environment(&given, true);
    twill_test_run_ranks(3, warn, (void *)(uintptr_t)twill_test_text("TWILL_LOG_FILE=%s", path));
    set_environment(&given, false);
    assert_int_equal(test_count_lines(path, "TWILL_SPIN is now TWILL_TUNE=spin=3", ""), 1);
    assert_int_equal(test_count_lines(path, "TWILL_GROUPS is now TWILL_LAYOUT=groups=1x1", ""), 1);
    assert_int_equal(test_count_lines(path, " is now ", ""), 2);
    assert_int_equal(unlink(path), 0);
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

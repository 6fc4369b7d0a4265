/* SPDX-License-Identifier: Apache-2.0 */
/* Bad settings: each is an error that names the variable, its value and what is allowed. */
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
    {"TWILL_THREADS=-1", {"TWILL_THREADS", "-1", "number"}},
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

static void carry(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct carrier *carrier = user;
    const char *settings[] = {carrier->setting, NULL};
    twill_context *context;
    twill_comm *comm;
    double sum = 1;
    if (twill_test_connect(&context, &comm, bootstrap, "2x1", NULL, settings)) {
        bool said = false;
        const char *line;
        for (size_t i = 0; (line = twill_context_describe(context, i)) != NULL; i++)
            said = said || strstr(line, carrier->says) || strstr(line, carrier->or_else);
        TWILL_CHECK(twill_allreduce(comm, &sum, &sum, 1, TWILL_F64, TWILL_SUM) == TWILL_OK);
        (void)TWILL_NOTE(sum == size, "rank %d: %f", rank, sum);
        (void)TWILL_NOTE(said, "%s: no line has \"%s\"", carrier->setting, carrier->says);
    }
    twill_test_disconnect(comm, context);
}

TWILL_TEST(carriers_between_nodes)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(carriers); i++)
        twill_test_run_ranks(2, carry, (void *)&carriers[i]);
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
    char file[48], tuning[64];
    snprintf(file, sizeof(file), "/tmp/twill-settings-%d", (int)getpid());
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    fputs("twill-tuning 1\nmachine auto\nmodel link.network.latency 4100000\n", out);
    assert_int_equal(fclose(out), 0);
    snprintf(tuning, sizeof(tuning), "TWILL_TUNING=%s", file);
    const struct difference differences[] = {
        {"TWILL_SEGMENT=64K", "TWILL_TUNE=segment must"},
        {"TWILL_SEGMENT_NET=64K", "TWILL_TUNE=segment_net"},
        {"TWILL_ALGORITHM=ring", "TWILL_ALGORITHM"},
        {"TWILL_REPRODUCIBLE=1", "TWILL_REPRODUCIBLE"},
        {"TWILL_GROUPS=1x1", "TWILL_LAYOUT=groups"},
        {"TWILL_UNITS=numa=1", "TWILL_LAYOUT=units"},
        {"TWILL_MACHINE=theta", "TWILL_TUNE=machine"},
        {tuning, "TWILL_TUNING"},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(differences); i++) {
        struct difference one = differences[i];
        twill_test_run_ranks(3, differ, &one);
    }
    assert_int_equal(remove(file), 0);
}

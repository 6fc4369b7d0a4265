/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of launchers, without a launcher: which method is detected, messages for
 * contradictions, host lists, rank 0's contact, PALS's file. */
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"
#include "tests/support/job_ranks.h"
#include "tests/support/unit.h"

#define HYDRA     "PMI_FD=900", "PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALNRANKS=2", "MPI_LOCALRANKID=1"
#define STEP      "SLURM_STEP_ID=2", "SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=1", "SLURM_JOB_ID=77"
#define PMIX      "PMIX_NAMESPACE=x", "PMIX_RANK=1", "OMPI_COMM_WORLD_SIZE=4"
#define PMI_PORT  "PMI_PORT=n1:1234", "PMI_ID=2"
#define PALS      "PALS_RANKID=0", "PALS_APID=abc", "ALPS_APP_PE=0", "PMI_SIZE=2", "PMI_RANK=0"
#define VARIABLES .rank = "1", .world_size = "4", .master_addr = "127.0.0.1", .master_port = "9"

/* PMI_FD: 900 is open and, if `socket`, a socket. */
static const struct {
    const char *environment[16];
    struct twill_bootstrap_params params;
    const char *expected;
    bool socket;
} seen[] = {
    {{NULL}, {0}, "none", false},
    {{HYDRA}, {0}, "pmi", true},
    {{HYDRA}, {0}, "none", false}, /* which then fails */
    {{PMI_PORT}, {0}, "pmi", false},
    {{"PMI_PORT=n1:1234"}, {0}, "none", false},
    {{PMIX}, {0}, "pmix", false},
    {{"PMIX_RANK=1"}, {0}, "none", false},
    {{STEP}, {0}, "slurm", false},
    {{STEP, HYDRA}, {0}, "pmi", true},
    {{STEP, HYDRA}, {0}, "slurm", false}, /* of a wrapper that closes descriptors: still correct */
    {{STEP, PMIX}, {0}, "pmix", false},
    /* A launcher started by another one: that of the inner one has an open descriptor. */
    {{HYDRA, PMIX}, {0}, "pmi", true},
    {{HYDRA, PMIX}, {0}, "pmix", false},
    /* A batch script, an interactive shell, a step of one task: one rank. */
    {{"SLURM_JOB_ID=77", "SLURM_PROCID=0", "SLURM_NTASKS=4"}, {0}, "none", false},
    {{"SLURM_JOB_ID=77", "SLURM_PROCID=0", "SLURM_STEP_ID=4294967290", "SLURM_STEP_NUM_TASKS=4"},
     {0},
     "none",
     false},
    {{"SLURM_STEP_ID=2", "SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0"}, {0}, "none", false},
    {{PALS}, {0}, "pals", false},
    {{PALS, STEP}, {0}, "pals", false},
    {{"ALPS_APP_PE=3"}, {0}, "alps", false},
    {{"ALPS_APP_PE=3"}, {.world_size = "4", .master_addr = "a", .master_port = "9"}, "alps", false},
    /* RANK and the others belong to this process, whatever started its parents. */
    {{STEP, PMIX}, {VARIABLES}, "torchrun", false},
    {{HYDRA}, {VARIABLES}, "torchrun", true},
    {{HYDRA}, {VARIABLES, .job = "1"}, "twillrun", true},
    {{HYDRA}, {.job = "1"}, "pmi", true}, /* a key for the job, no rank */
    {{NULL}, {VARIABLES, .job = "1"}, "twillrun", false},
    {{NULL}, {.rank = "1", .world_size = "4"}, "none", false},
    {{HYDRA}, {.rank = "1"}, "pmi", true},
    /* Chosen by TWILL_LAUNCHER. */
    {{HYDRA}, {.launcher = "none"}, "none", true},
    {{HYDRA, STEP}, {.launcher = "slurm"}, "slurm", true},
    {{HYDRA, STEP}, {.launcher = "auto"}, "pmi", true},
    {{HYDRA}, {VARIABLES, .launcher = "pmi"}, "pmi", true},
    {{NULL}, {.launcher = "alps"}, "alps", false},
};

TWILL_TEST(detection)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(seen); i++) {
        struct twill_bootstrap_params params = seen[i].params;
        int ends[2];
        params.environment = seen[i].environment;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        if (seen[i].socket)
            assert_int_equal(dup2(ends[0], 900), 900);
        const struct twill_bootstrap_ops *ops = twill_bootstrap_detect(&params);
        close(ends[0]);
        close(ends[1]);
        if (seen[i].socket)
            close(900);
        if (strcmp(seen[i].expected, "pmix") == 0 && twill_pmix_missing(&params))
            continue; /* not built, or the library is not installed */
        if (!ops || strcmp(ops->name, seen[i].expected) != 0)
            fail_msg("%zu: %s instead of %s", i, ops ? ops->name : "nothing", seen[i].expected);
    }
}

/* Contradictions are errors that name what was found and what to do. */
static const struct {
    const char *environment[16];
    struct twill_bootstrap_params params;
    twill_status status;
    const char *says[3];
} wrong[] = {
    {{HYDRA}, {0}, TWILL_ERR_BOOTSTRAP, {"PMI_SIZE=4", "PMI_FD", "TWILL_LAUNCHER=none"}},
    {{"OMPI_COMM_WORLD_SIZE=4"}, {0}, TWILL_ERR_BOOTSTRAP, {"Open MPI's mpirun", "PMI"}},
    {{"PMIX_RANK=2"}, {0}, TWILL_ERR_BOOTSTRAP, {"PMIX_RANK=2", "PMI"}},
    {{"MV2_COMM_WORLD_SIZE=2"}, {0}, TWILL_ERR_BOOTSTRAP, {"MVAPICH2", "PMI_PORT"}},
    {{"PALS_LOCAL_SIZE=2"}, {0}, TWILL_ERR_BOOTSTRAP, {"PALS_RANKID is not set"}},
    {{HYDRA},
     {.rank = "0", .world_size = "1", .master_addr = "127.0.0.1", .master_port = "9", .job = "1"},
     TWILL_ERR_BOOTSTRAP,
     {"PMI_SIZE=4", "WORLD_SIZE=1 is set as well"}},
    {{"PMI_PORT=nowhere", "PMI_ID=0", "PMI_SIZE=2"},
     {0},
     TWILL_ERR_CONFIG,
     {"PMI_PORT=nowhere is not host:port"}},
    {{NULL}, {.launcher = "pmi"}, TWILL_ERR_CONFIG, {"TWILL_LAUNCHER=pmi, but", "PMI_FD"}},
    {{NULL}, {.launcher = "pmix"}, TWILL_ERR_CONFIG, {"TWILL_LAUNCHER=pmix, but"}},
    {{NULL}, {.launcher = "slurm"}, TWILL_ERR_CONFIG, {"SLURM_PROCID is not set"}},
    {{NULL}, {.launcher = "torchrun"}, TWILL_ERR_CONFIG, {"RANK WORLD_SIZE MASTER_ADDR"}},
    {{NULL}, {.launcher = "ssh"}, TWILL_ERR_CONFIG, {"TWILL_LAUNCHER=ssh"}},
    {{"ALPS_APP_PE=3"}, {0}, TWILL_ERR_CONFIG, {"ALPS_APP_PE=3", "-e WORLD_SIZE=64"}},
    {{"ALPS_APP_PE=3"}, {.world_size = "4"}, TWILL_ERR_CONFIG, {"rank 3", "MASTER_ADDR=$("}},
    {{"ALPS_APP_PE=4"}, {.world_size = "4"}, TWILL_ERR_CONFIG, {"ALPS_APP_PE=4 must be below"}},
    {{"ALPS_APP_PE=3", "COBALT_PARTNAME=x1"},
     {.world_size = "4"},
     TWILL_ERR_CONFIG,
     {"COBALT_PARTNAME names no node"}},
    {{STEP, "SLURM_STEP_NODELIST=n[]"}, {0}, TWILL_ERR_CONFIG, {"SLURM_STEP_NODELIST=n[]"}},
    {{"SLURM_STEP_ID=1", "SLURM_STEP_NUM_TASKS=x", "SLURM_PROCID=0"},
     {0},
     TWILL_ERR_CONFIG,
     {"SLURM_STEP_NUM_TASKS=x is not a number"}},
    {{PALS}, {0}, TWILL_ERR_CONFIG, {"PALS_APINFO", "MASTER_ADDR"}},
    {{PALS, "PALS_APINFO=/dev/null"}, {0}, TWILL_ERR_CONFIG, {"PALS_APINFO=/dev/null"}},
};

TWILL_TEST(contradictions)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(wrong); i++) {
        struct twill_bootstrap_params params = wrong[i].params;
        struct twill_error error = {0};
        struct twill_oob *oob;
        params.environment = wrong[i].environment;
        params.timeout_ns = TWILL_TEST_SECOND;
        twill_status status = twill_bootstrap_open(&oob, &params, &error);
        assert_null(oob);
        assert_int_equal(status, wrong[i].status);
        for (size_t k = 0; k < 3 && wrong[i].says[k]; k++)
            if (!strstr(error.message, wrong[i].says[k]))
                fail_msg("%zu: \"%s\" is not in \"%s\"", i, wrong[i].says[k], error.message);
    }
}

/* No other launcher contradicts, or the user chose: one rank. */
TWILL_TEST(alone)
{
    static const char *const hydra[] = {HYDRA, NULL}, *const batch[] = {"SLURM_JOB_ID=77", NULL};
    const struct {
        const char *const *environment;
        const char *launcher, *how;
    } table[] = {{hydra, "none", "TWILL_LAUNCHER=none"},
                 {batch, NULL, "Slurm's job 77"},
                 {NULL, "auto", "no launcher"}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++) {
        struct twill_bootstrap_params params = {.launcher = table[i].launcher,
                                                .environment = table[i].environment};
        struct twill_error error = {0};
        struct twill_oob *oob;
        assert_int_equal(twill_bootstrap_open(&oob, &params, &error), TWILL_OK);
        assert_int_equal(oob->size, 1);
        assert_non_null(strstr(oob->how, table[i].how));
        twill_oob_close(oob);
    }
}

TWILL_TEST(first_rank)
{
    static const char *const first[] = {"PMI_RANK=0", "SLURM_PROCID=0", NULL};
    static const char *const second[] = {"PMIX_RANK=1", NULL};
    twill_bootstrap lent = {.rank = 0, .size = 2};
    assert_true(twill_bootstrap_is_first(&(struct twill_bootstrap_params){.environment = first}));
    assert_false(twill_bootstrap_is_first(&(struct twill_bootstrap_params){.environment = second}));
    assert_true(twill_bootstrap_is_first(&(struct twill_bootstrap_params){.environment = NULL}));
    assert_false(twill_bootstrap_is_first(
        &(struct twill_bootstrap_params){.environment = first, .rank = "3"}));
    assert_true(twill_bootstrap_is_first(
        &(struct twill_bootstrap_params){.environment = second, .caller = &lent}));
}

/* --- names of hosts -------------------------------------------------------------------------- */

TWILL_TEST(host_lists)
{
    static const struct {
        const char *list, *first; /* first NULL: not a list */
    } table[] = {
        {"n1", "n1"},
        {"n1,n2", "n1"},
        {"n[1-3,5],b2", "n1"},
        {"n[007-012]", "n007"},
        {"rack[2-3]node[10,12]", "rack2node10"},
        {"a-b.c_d[9].site.org,x", "a-b.c_d9.site.org"},
        {"nid[00012]", "nid00012"},
        {"", NULL},
        {",n1", NULL},
        {"n[", NULL},
        {"n[]", NULL},
        {"n[1-3", NULL},
        {"n[x]", NULL},
        {"n[1;reboot]", NULL},
        {"n 1", NULL},
        {"n$(x)", NULL},
        {"n]1", NULL},
        {"a-name-that-is-too-long-for-its-place", NULL},
        {"n[123456789012345678901234567890]", NULL},
    };
    char host[24];
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++) {
        bool good = twill_launch_first_host(table[i].list, host, sizeof(host));
        if (good != (table[i].first != NULL) || (good && strcmp(host, table[i].first) != 0))
            fail_msg("%s: %s", table[i].list, good ? host : "no list");
    }
}

/* --- rank 0's contact ------------------------------------------------------------------------ */

TWILL_TEST(contacts)
{
    struct twill_bootstrap_params params = {0};
    struct twill_job job = {.rank = 0, .size = 2, .listener = -1}, other = {.rank = 1};
    struct twill_error error = {0};
    char contact[TWILL_JOB_CONTACT];
    static const char *const links[] = {"fe80::1%hsn0", "10.0.0.1 fe80::1%ib0.8001 fd00::2",
                                        "%eth0", "hsn0", "fe80::1%a;b"};
    assert_int_equal(twill_launch_listen(&job, &params, true, &error), TWILL_OK);
    assert_string_equal(job.hosts, "127.0.0.1");
    assert_true(job.listener >= 0 && job.port > 0 && job.has_key);
    close(job.listener);
    snprintf(job.hosts, sizeof(job.hosts), "10.0.0.1 fd00::2");
    assert_int_equal(twill_launch_write_contact(&job, contact, sizeof(contact), &error), TWILL_OK);
    assert_null(strpbrk(contact, " \n;=")); /* launchers' stores cannot carry these */
    assert_int_equal(twill_launch_read_contact(&other, &params, contact, &error), TWILL_OK);
    assert_string_equal(other.hosts, "10.0.0.1 fd00::2");
    assert_int_equal(other.port, job.port);
    assert_true(other.has_key);
    assert_memory_equal(&other.key, &job.key, sizeof(job.key));
    /* What does not fit into a store is left out, the most likely address last. */
    assert_int_equal(twill_launch_write_contact(&job, contact, 90, &error), TWILL_OK);
    assert_int_equal(twill_launch_read_contact(&other, &params, contact, &error), TWILL_OK);
    assert_string_equal(other.hosts, "10.0.0.1");
    assert_int_equal(twill_launch_write_contact(&job, contact, 80, &error), TWILL_ERR_BOOTSTRAP);
    /* A link-local address gets this host's zone from TWILL_INTERFACE. */
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(links); i++) {
        snprintf(job.hosts, sizeof(job.hosts), "%s", links[i]);
        assert_int_equal(twill_launch_write_contact(&job, contact, sizeof(contact), &error),
                         TWILL_OK);
        assert_int_equal(twill_launch_read_contact(&other, &params, contact, &error),
                         i < 2 ? TWILL_OK : TWILL_ERR_BOOTSTRAP);
        assert_string_equal(other.hosts, links[i < 2 ? i : 1]);
    }
    /* A key that all ranks were given is not sent; a rank without it fails. */
    params.job = "12ab";
    assert_int_equal(twill_launch_listen(&job, &params, true, &error), TWILL_OK);
    close(job.listener);
    assert_false(job.has_key);
    assert_int_equal(twill_launch_write_contact(&job, contact, sizeof(contact), &error), TWILL_OK);
    assert_null(strstr(contact, "12ab"));
    assert_int_equal(twill_launch_read_contact(&other, &params, contact, &error), TWILL_OK);
    params.job = NULL;
    twill_error_clear(&error);
    assert_int_equal(twill_launch_read_contact(&other, &params, contact, &error), TWILL_ERR_CONFIG);
    assert_non_null(strstr(error.message, "set for rank 0, but not here"));
}

/* The last secret of the size of a key's text that was wiped: replaces libsodium's function. */
static char wiped[TWILL_SECRET_TEXT];

void sodium_memzero(void *secret, size_t bytes);
void sodium_memzero(void *secret, size_t bytes)
{
    if (bytes == sizeof(wiped))
        memcpy(wiped, secret, bytes);
    memset(secret, 0, bytes);
}

/* No copy of the key's text is left, also if the contact is refused. */
TWILL_TEST(keys_are_wiped)
{
    static const char key[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    static const char *const table[] = {"twill1,1,%s,10.0.0.1", "twill1,0,%s,10.0.0.1",
                                        "twill1,1,%s,?", "twill1,1,%s"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++)
        for (int given = 0; given < 2; given++) {
            struct twill_bootstrap_params params = {.job = given ? "12ab" : NULL};
            struct twill_job job = {.rank = 1};
            char contact[TWILL_JOB_CONTACT];
            snprintf(contact, sizeof(contact), table[i], key);
            memset(wiped, 0, sizeof(wiped));
            bool good = twill_launch_read_contact(&job, &params, contact, NULL) == TWILL_OK;
            assert_true(good == (i == 0 && !given));
            assert_string_equal(wiped, key);
        }
}

/* --- PALS ------------------------------------------------------------------------------------ */

/* As in Slurm's apinfo.h, version 5. */
struct header {
    int version;
    size_t total, profile_bytes, profile_offset;
    int profiles;
    size_t command_bytes, command_offset;
    int commands;
    size_t rank_bytes, rank_offset;
    int ranks;
    size_t node_bytes, node_offset;
    int nodes;
    size_t rest[6];
};
struct file {
    struct header header;
    int rank[2][3];
    struct {
        int number;
        char host[64];
    } node[2];
};

static void write_file(const char *path, const struct file *file, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, file, bytes), (ssize_t)bytes);
    close(fd);
}

TWILL_TEST(apinfo)
{
    char path[] = "/tmp/twill-apinfo-XXXXXX", variable[64];
    struct file file = {
        .header = {.version = 5,
                   .rank_bytes = sizeof(file.rank[0]),
                   .rank_offset = offsetof(struct file, rank),
                   .ranks = 2,
                   .node_bytes = sizeof(file.node[0]),
                   .node_offset = offsetof(struct file, node),
                   .nodes = 2},
        .rank = {{0, 0, 1}, {0, 0, 0}},
        .node = {{0, "not-this.invalid"}, {1, "rank-0-is-here.invalid"}},
    };
    const char *environment[] = {"PALS_RANKID=1", "PALS_APID=a", "PMI_SHARED_SECRET=7", variable,
                                 NULL};
    struct twill_bootstrap_params params = {.environment = environment,
                                            .timeout_ns = TWILL_TEST_SECOND};
    struct twill_error error = {0};
    struct twill_oob *oob;
    unsigned seed = 4;
    close(mkstemp(path));
    snprintf(variable, sizeof(variable), "PALS_APINFO=%s", path);
    write_file(path, &file, sizeof(file));
    assert_int_equal(twill_bootstrap_open(&oob, &params, &error), TWILL_ERR_BOOTSTRAP);
    assert_non_null(strstr(error.message, "rank 1: PALS_APINFO=rank-0-is-here.invalid"));
    for (size_t bytes = 0; bytes < sizeof(file); bytes += 7) {
        write_file(path, &file, bytes);
        assert_int_not_equal(twill_bootstrap_open(&oob, &params, &error), TWILL_OK);
    }
    /* With one node all ranks are on this host; damage gives an error at most. */
    params.timeout_ns = 1;
    for (int i = 0; i < 300; i++) {
        struct file damaged = file;
        damaged.node[1].host[0] = '\0'; /* so that no name server is asked */
        ((unsigned char *)&damaged)[rand_r(&seed) % sizeof(damaged.header)] ^=
            (unsigned char)(1 << rand_r(&seed) % 8);
        write_file(path, &damaged, sizeof(damaged));
        assert_int_not_equal(twill_bootstrap_open(&oob, &params, &error), TWILL_OK);
    }
    unlink(path);
}

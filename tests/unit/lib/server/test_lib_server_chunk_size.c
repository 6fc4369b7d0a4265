/* SPDX-License-Identifier: Apache-2.0 */
/* The size of chunks that the options leave to the library: by the rule, by a trial, of files, and
 * of an older server, which new ranks take over. All ranks have the same. */
#include "tests/support/server_steps.h"
#include "tests/support/unit.h"

enum { KIB = 1024, TRIAL_KIB = 6144 };

struct sized_rank {
    twill_comm *comm;
    twill_server *server;
    twill_server_options options;
    char path[100]; /* of state files, or "" */
};

/* Create and commit a server of one tensor of ones. */
static bool open_sized(struct sized_rank *r, twill_comm *comm, size_t bytes)
{
    const twill_tensor tensor = {.name = "t", .count = bytes / sizeof(float), .type = TWILL_F32};
    TWILL_REQUIRE(twill_server_create(&r->server, comm, &r->options) == TWILL_OK);
    TWILL_REQUIRE(twill_server_add(r->server, &tensor, NULL) == TWILL_OK);
    if (r->path[0] != '\0')
        TWILL_REQUIRE(twill_server_load(r->server, r->path) == TWILL_OK);
    return twill_test_server_ok(r->server, twill_server_commit(r->server));
}

static void close_sized(struct sized_rank *r)
{
    twill_server_destroy(r->server);
    r->server = NULL;
}

static size_t size_of_chunks(struct sized_rank *r)
{
    twill_server_counters counters;
    return twill_server_count(r->server, &counters) == TWILL_OK ? (size_t)counters.chunk_bytes : 0;
}

/* Push a gradient of ones, and find that all parameters are `wanted`. */
static bool push_ones(struct sized_rank *r, size_t bytes, float wanted)
{
    const float *parameters = twill_server_parameters(r->server, 0);
    TWILL_REQUIRE(twill_test_server_push(r->server, 0, bytes / sizeof(float), 1));
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        TWILL_REQUIRE(parameters[i] == wanted);
    return true;
}

static bool has_size(struct sized_rank *r, size_t kib, const char *how)
{
    const char *line = twill_server_describe(r->server, 1);
    TWILL_REQUIRE(size_of_chunks(r) == kib * KIB, "chunks of %zu bytes, not %zu KiB",
                  size_of_chunks(r), kib);
    return TWILL_NOTE(strstr(line, how) != NULL, "%s", line);
}

/* Of a thread: candidates of a search for whose seconds there is no memory, once; 0: none. */
static _Thread_local volatile size_t scarce_candidates;

#if !TEST_SLOW
void *__libc_calloc(size_t count, size_t bytes);

void *calloc(size_t count, size_t bytes)
{
    if (count == 0 || count != scarce_candidates || bytes != sizeof(double))
        return __libc_calloc(count, bytes);
    scarce_candidates = 0;
    return NULL;
}
#endif

/* Four chunks at least for each shard, two between nodes, of 128 KiB at most and 32 KiB at least.
 * Small tensors and compressed ones are not tried. */
static const struct rule_case {
    const char *layout_of_ranks;
    size_t kib; /* of the tensor */
    twill_server_layout layout;
    twill_compression compression;
    size_t wanted; /* KiB */
    size_t scarce; /* scarce_candidates of rank 1 */
} rules[] = {
    {"2", 4, TWILL_SERVER_CS, TWILL_COMPRESS_NONE, 32, 0},
    {"2", 2048, TWILL_SERVER_CS, TWILL_COMPRESS_NONE, 128, 0},
    {"2", 600, TWILL_SERVER_CS, TWILL_COMPRESS_NONE, 64, 0},
    {"2", 600, TWILL_SERVER_CC, TWILL_COMPRESS_NONE, 128, 0},
    {"2x1", 2048, TWILL_SERVER_CS, TWILL_COMPRESS_NONE, 128, 0},
    {"2x1", 600, TWILL_SERVER_CS, TWILL_COMPRESS_NONE, 128, 0},
    {"2x1", 300, TWILL_SERVER_CS, TWILL_COMPRESS_NONE, 64, 0},
    {"2", TRIAL_KIB, TWILL_SERVER_CS, TWILL_COMPRESS_BF16, 128, 0},
    /* where one rank has no memory for the probe, or for the trial, all do without */
    {"2", TRIAL_KIB, TWILL_SERVER_CS, TWILL_COMPRESS_NONE, 128, 1},
    {"2", TRIAL_KIB, TWILL_SERVER_CS, TWILL_COMPRESS_NONE, 128, 4},
};

TWILL_TEST_CASES(test_rule, ranks, rules, c->layout_of_ranks, TWILL_TEST_PATIENT)
{
    struct sized_rank r = {.comm = comm};
    if (TEST_SLOW && c->scarce > 0)
        return;
    twill_server_defaults(&r.options);
    r.options.layout = c->layout;
    r.options.compression = c->compression;
    scarce_candidates = rank == 1 ? c->scarce : 0;
    TWILL_CHECK(open_sized(&r, comm, c->kib * KIB));
    TWILL_CHECK(has_size(&r, c->wanted, "by the rule"));
    TWILL_CHECK(push_ones(&r, c->kib * KIB, 1));
    close_sized(&r);
}

/* --- the trial, and files --------------------------------------------------------------------- */

/* The trial ends with one of its sizes, the same on all ranks, or, where it would take too long,
 * with the rule's. */
static bool try_and_save(struct sized_rank *r)
{
    TWILL_REQUIRE(open_sized(r, r->comm, (size_t)TRIAL_KIB * KIB));
    uint64_t own = size_of_chunks(r), least = 0;
    TWILL_REQUIRE(own == 32 * KIB || own == 64 * KIB || own == 128 * KIB || own == 256 * KIB);
    TWILL_REQUIRE(twill_allreduce(r->comm, &own, &least, 1, TWILL_U64, TWILL_MIN) == TWILL_OK);
    TWILL_REQUIRE(least == own);
    TWILL_REQUIRE(push_ones(r, (size_t)TRIAL_KIB * KIB, 1));
    close_sized(r);
    /* A server with other chunks saves; one that leaves them to the library takes them over. */
    r->options.chunk_bytes = 2 * KIB;
    TWILL_REQUIRE(open_sized(r, r->comm, 40 * KIB));
    TWILL_REQUIRE(has_size(r, 2, "as given"));
    TWILL_REQUIRE(push_ones(r, 40 * KIB, 1));
    snprintf(r->path, sizeof(r->path), "/tmp/twill-sized-%d", (int)getpid());
    TWILL_REQUIRE(twill_server_save(r->server, r->path) == TWILL_OK);
    close_sized(r);
    r->options.chunk_bytes = 0;
    TWILL_REQUIRE(open_sized(r, r->comm, 40 * KIB));
    TWILL_REQUIRE(has_size(r, 2, "as before"));
    return push_ones(r, 40 * KIB, 1);
}

TWILL_TEST_ON(test_trial, ranks, TWILL_LAYOUTS("2", "2x1"), TWILL_TEST_PATIENT)
{
    struct sized_rank r = {.comm = comm};
    twill_server_defaults(&r.options);
    r.options.replicas = twill_comm_nodes(comm);
    (void)try_and_save(&r);
    close_sized(&r);
    (void)unlink(twill_test_text("/tmp/twill-sized-%d.%d", (int)getpid(), rank));
}

/* Flip the last byte of a state file, its checksum's. */
static bool damage(const char *path)
{
    char name[120];
    snprintf(name, sizeof(name), "%s.0", path);
    FILE *file = fopen(name, "r+b");
    TWILL_REQUIRE(file != NULL && fseek(file, -1, SEEK_END) == 0);
    int last = fgetc(file);
    TWILL_REQUIRE(fseek(file, -1, SEEK_END) == 0 && fputc(last ^ 1, file) != EOF);
    return fclose(file) == 0;
}

/* The size of chunks of a damaged file is not taken over: an intact one with others follows. */
static bool load_another(struct sized_rank *r)
{
    static const size_t kib[] = {4, 2};
    char path[2][60];
    const twill_tensor tensor = {.name = "t", .count = 10 * KIB, .type = TWILL_F32};
    for (int i = 0; i < 2; i++) {
        r->options.chunk_bytes = kib[i] * KIB;
        TWILL_REQUIRE(open_sized(r, r->comm, 40 * KIB) && push_ones(r, 40 * KIB, 1));
        snprintf(path[i], sizeof(path[i]), "/tmp/twill-sized-%d-%d", (int)getpid(), i);
        TWILL_REQUIRE(twill_server_save(r->server, path[i]) == TWILL_OK);
        close_sized(r);
    }
    r->options.chunk_bytes = 0;
    TWILL_REQUIRE(damage(path[0]));
    TWILL_REQUIRE(twill_server_create(&r->server, r->comm, &r->options) == TWILL_OK);
    TWILL_REQUIRE(twill_server_add(r->server, &tensor, NULL) == TWILL_OK);
    TWILL_REQUIRE(twill_server_load(r->server, path[0]) == TWILL_ERR_ARGUMENT);
    TWILL_REQUIRE(twill_server_load(r->server, path[1]) == TWILL_OK);
    TWILL_REQUIRE(twill_server_commit(r->server) == TWILL_OK && has_size(r, 2, "as before"));
    for (int i = 0; i < 2; i++) {
        snprintf(r->path, sizeof(r->path), "%s.0", path[i]);
        (void)unlink(r->path);
    }
    return push_ones(r, 40 * KIB, 1);
}

TWILL_TEST_ON(test_damaged_file, ranks, TWILL_LAYOUTS("1"), TWILL_TEST_PATIENT)
{
    struct sized_rank r = {.comm = comm};
    twill_server_defaults(&r.options);
    (void)load_another(&r);
    close_sized(&r);
}

/* --- a new rank ------------------------------------------------------------------------------- */

enum { JOINED_KIB = 1200 }; /* by the rule 128 KiB of two ranks, 64 KiB of three */

static bool grow_server(struct sized_rank *r, twill_comm *comm, int rank)
{
    if (rank < 2) {
        TWILL_REQUIRE(open_sized(r, comm, (size_t)JOINED_KIB * KIB));
        TWILL_REQUIRE(has_size(r, 128, "by the rule"));
        TWILL_REQUIRE(push_ones(r, (size_t)JOINED_KIB * KIB, 2));
        TWILL_REQUIRE(twill_server_rebuild(&r->server, r->comm) == TWILL_OK);
    } else
        TWILL_REQUIRE(open_sized(r, r->comm, (size_t)JOINED_KIB * KIB));
    TWILL_REQUIRE(has_size(r, 128, "as before"));
    return push_ones(r, (size_t)JOINED_KIB * KIB, 3);
}

TWILL_TEST_ON(test_new_rank, ranks, TWILL_LAYOUTS("3"), TWILL_TEST_PATIENT)
{
    struct sized_rank r = {.comm = comm};
    twill_comm *two = NULL;
    TWILL_CHECK(twill_comm_split(&two, comm, rank < 2 ? 0 : 1, rank) == TWILL_OK);
    twill_server_defaults(&r.options);
    r.options.op = TWILL_SUM;
    (void)grow_server(&r, two, rank);
    close_sized(&r);
    twill_comm_destroy(two);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter servers: the bytes that servers and workers send and receive in each layout, the
 * metadata beside them, what is copied and registered, credits, and the balance of shards. */
#include "lib/twill_server.h"
#include "tests/support/unit.h"

#define BYTES_STEPS 5u
#define BYTES_PART  ((uint64_t)32 << 10)
#define BYTES_ALL   (12 * BYTES_PART) /* which every number of servers here divides */

struct layout_bytes {
    int size, servers;
    const char *nodes;
    twill_server_layout layout;
    int threads;
};

/* Memory is registered once: by the first step, or before. */
static bool run_steps(twill_server *server)
{
    twill_server_counters first = {0}, last;
    for (unsigned step = 0; step < BYTES_STEPS; step++) {
        TWILL_REQUIRE(twill_server_push_pull(server, 0) == TWILL_OK);
        twill_status status = twill_server_wait(server, 0);
        TWILL_REQUIRE(status == TWILL_OK, "%s", twill_server_message(server));
        if (step == 0)
            TWILL_REQUIRE(twill_server_count(server, &first) == TWILL_OK);
    }
    TWILL_REQUIRE(twill_server_count(server, &last) == TWILL_OK);
    TWILL_REQUIRE(last.registrations == first.registrations);
    return true;
}

/* Check the bytes of a rank: S pushes, and S + 1 pulls, the first in the commit. n bytes, P ranks,
 * W workers, M servers; a step is
 *     cc   the server sends and receives n(P-1)
 *     nc   the server sends and receives nW
 *     cs   each rank sends and receives 2n(P-1)/P
 *     ncs  a worker sends and receives n, a server nW/M */
static bool check_bytes(const struct layout_bytes *c, twill_server *server, bool serves, bool works)
{
    const uint64_t n = BYTES_ALL, s = BYTES_STEPS, p = (uint64_t)c->size, m = (uint64_t)c->servers;
    uint64_t pushes = 0, pulls = 0; /* of a step, served */
    twill_server_counters count;
    TWILL_REQUIRE(twill_server_count(server, &count) == TWILL_OK);
    if (serves)
        switch (c->layout) {
        case TWILL_SERVER_CC:
        case TWILL_SERVER_NC: /* P - 1 is W, too */
            pushes = pulls = n * (p - 1);
            break;
        case TWILL_SERVER_CS:
            pushes = pulls = n * (p - 1) / p;
            break;
        default:
            pushes = pulls = n * (p - m) / m;
        }
    uint64_t own = works ? n - (serves ? n / m : 0) : 0; /* to and from others */
    TWILL_REQUIRE(count.bytes_sent == (s + 1) * pulls + s * own);
    TWILL_REQUIRE(count.bytes_received == s * pushes + (s + 1) * own);
    if (c->layout == TWILL_SERVER_CS)
        TWILL_REQUIRE(pushes + own == 2 * n * (p - 1) / p);
    TWILL_REQUIRE(count.bytes_messages <= count.bytes_sent + count.bytes_received);
    if (c->nodes[0] == '\0')
        TWILL_REQUIRE(count.bytes_messages == 0 && count.bytes_metadata == 0);
    /* At most 64 bytes beside a chunk, and what each push and each answer has. */
    TWILL_REQUIRE(count.bytes_metadata <= 64 * (count.bytes_messages / BYTES_PART));
    TWILL_REQUIRE(count.bytes_copied == 0);
    TWILL_REQUIRE(count.most_bytes <= count.least_bytes + BYTES_PART);
    return true;
}

static void rank_bytes(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct layout_bytes *c = user;
    twill_comm *comm;
    twill_server *server = NULL;
    twill_server_options options;
    twill_tensor tensor = {.name = "even", .count = BYTES_ALL / sizeof(float), .type = TWILL_F32};
    TWILL_CHECK(twill_test_open(&comm, bootstrap, c->nodes, TWILL_TEST_PATIENT));
    twill_server_defaults(&options);
    options.layout = c->layout;
    options.servers = c->servers;
    options.threads = c->threads;
    options.credits = 2;
    TWILL_CHECK(twill_server_create(&server, comm, &options) == TWILL_OK);
    TWILL_CHECK(twill_server_add(server, &tensor, NULL) == TWILL_OK);
    TWILL_CHECK(twill_server_commit(server) == TWILL_OK);
    twill_server_part part = twill_server_role(server);
    bool works = (part & TWILL_SERVER_WORKS) != 0, serves = (part & TWILL_SERVER_SERVES) != 0;
    TWILL_CHECK(!works || run_steps(server));
    TWILL_CHECK(!serves || twill_server_serve(server) == TWILL_OK);
    TWILL_CHECK(check_bytes(c, server, serves, works));
    twill_server_destroy(server);
    twill_test_close(comm);
}

TWILL_TEST(test_bytes)
{
    struct layout_bytes cases[] = {
        {4, 1, "", TWILL_SERVER_CC, 0},  {4, 1, "4x1", TWILL_SERVER_CC, 0},
        {4, 1, "", TWILL_SERVER_NC, 2},  {4, 1, "4x1", TWILL_SERVER_NC, 0},
        {4, 4, "", TWILL_SERVER_CS, 0},  {4, 4, "2x2", TWILL_SERVER_CS, 0},
        {5, 2, "", TWILL_SERVER_NCS, 0}, {5, 2, "5x1", TWILL_SERVER_NCS, 1},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        twill_test_run_ranks(cases[i].size, rank_bytes, &cases[i]);
}

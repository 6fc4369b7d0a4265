/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter servers: the bytes that servers and workers send and receive in each layout, the
 * metadata beside them, what is copied and registered, credits, and the balance of shards. */
#include "tests/support/server_steps.h"
#include "tests/support/unit.h"

#define BYTES_STEPS 5u
#define BYTES_PART  ((uint64_t)32 << 10)
#define BYTES_ALL   (12 * BYTES_PART) /* which every number of servers here divides */

static const struct layout_bytes {
    const char *nodes;
    int servers;
    twill_server_layout layout;
    int threads;
} layouts[] = {
    {"4", 1, TWILL_SERVER_CC, 0},   {"4x1", 1, TWILL_SERVER_CC, 0},  {"4", 1, TWILL_SERVER_NC, 2},
    {"4x1", 1, TWILL_SERVER_NC, 0}, {"4", 4, TWILL_SERVER_CS, 0},    {"2x2", 4, TWILL_SERVER_CS, 0},
    {"5", 2, TWILL_SERVER_NCS, 0},  {"5x1", 2, TWILL_SERVER_NCS, 1},
};

/* Memory is registered once: by the first step, or before. */
static bool run_steps(twill_server *server)
{
    twill_server_counters first = {0}, last;
    for (unsigned step = 0; step < BYTES_STEPS; step++) {
        TWILL_REQUIRE(twill_test_server_step(server, 0));
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
static bool check_bytes(const struct layout_bytes *c, twill_server *server, uint64_t p, bool serves,
                        bool works)
{
    const uint64_t n = BYTES_ALL, s = BYTES_STEPS, m = (uint64_t)c->servers;
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
    if (strchr(c->nodes, 'x') == NULL)
        TWILL_REQUIRE(count.bytes_messages == 0 && count.bytes_metadata == 0);
    /* At most 64 bytes beside a chunk, and what each push and each answer has. */
    TWILL_REQUIRE(count.bytes_metadata <= 64 * (count.bytes_messages / BYTES_PART));
    TWILL_REQUIRE(count.bytes_copied == 0);
    TWILL_REQUIRE(count.most_bytes <= count.least_bytes + BYTES_PART);
    return true;
}

TWILL_TEST_CASES(test_bytes, ranks, layouts, c->nodes, TWILL_TEST_PATIENT)
{
    twill_server *server;
    twill_server_options options;
    twill_server_defaults(&options);
    options.layout = c->layout;
    options.servers = c->servers;
    options.threads = c->threads;
    options.credits = 2;
    TWILL_CHECK(twill_test_server_open(&server, comm, &options,
                                       TWILL_TEST_WEIGHTS(BYTES_ALL / sizeof(float))));
    twill_server_part part = twill_server_role(server);
    bool works = (part & TWILL_SERVER_WORKS) != 0, serves = (part & TWILL_SERVER_SERVES) != 0;
    TWILL_CHECK(!works || run_steps(server));
    TWILL_CHECK(!serves || twill_server_serve(server) == TWILL_OK);
    TWILL_CHECK(check_bytes(c, server, (uint64_t)size, serves, works));
    twill_server_destroy(server);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Messages through shared memory and to oneself; node memory, doorbells and failures of a node. */
#include "fabric/shm/node_memory.h"
#include "fabric/shm/shared_region_state.h"
#include "fabric/transports.h"
#include "tests/support/shared_ranks.h"
#include "tests/support/unit.h"

#include <sys/uio.h>

/* --- messages -------------------------------------------------------------------------------- */

static bool sweep(struct twill_test_shm *f)
{
    static const size_t sizes[] = {0,     1,     7,     8,      47,     48,
                                   49,    64,    8191,  8192,   8193,   16384,
                                   65535, 65536, 65537, 131072, 131073, (1u << 20) + 3};
    return twill_test_sweep(&f->end, sizes, TWILL_ARRAY_LENGTH(sizes));
}

static bool flood(struct twill_test_shm *f)
{
    return twill_test_flood(&f->end, 60, 30000);
}

static bool mismatch(struct twill_test_shm *f)
{
    return twill_test_mismatch(&f->end);
}

#define RANK_FN(name, ops)                                                                         \
    static void name##_rank(int rank, int size, twill_bootstrap *caller, void *user)               \
    {                                                                                              \
        (void)rank;                                                                                \
        (void)size;                                                                                \
        twill_test_shm_run(caller, ops, name,                                                      \
                           user != NULL ? TWILL_TEST_CHECKSUMS : TWILL_TEST_PLAIN);                \
    }
RANK_FN(sweep, &twill_shm_transport)
RANK_FN(flood, &twill_shm_transport)
RANK_FN(mismatch, &twill_shm_transport)

TWILL_TEST(test_sweep)
{
    twill_test_run_ranks(2, sweep_rank, NULL);
    twill_test_run_ranks(4, sweep_rank, NULL);
    twill_test_run_ranks(3, sweep_rank, "checksums");
    twill_test_run_processes(2, sweep_rank, NULL);
}

TWILL_TEST(test_flood)
{
    twill_test_run_ranks(3, flood_rank, NULL);
    twill_test_run_mixed(4, 2, flood_rank, NULL);
}

TWILL_TEST(test_mismatch)
{
    twill_test_run_ranks(2, mismatch_rank, NULL);
    twill_test_run_processes(2, mismatch_rank, NULL);
}

/* Far more than the ring holds, sent before the receiver reads and without its progress. */
static bool fill(struct twill_test_shm *f)
{
    enum { COUNT = 40 };
    uint64_t payload[COUNT];
    struct twill_transfer *requests = calloc(COUNT, sizeof(*requests));
    TWILL_REQUIRE(requests != NULL);
    bool sends = f->end.rank == 0, good = true;
    uint32_t posted = 0;
    for (int late = 0; late < 2; late++) {
        for (uint32_t i = 0; good && sends == (late == 0) && i < COUNT; i++, posted++) {
            payload[i] = sends ? 1000 + i : 0;
            requests[i] =
                (struct twill_transfer){.kind = sends ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                        .peer = sends ? 1 : 0,
                                        .buffer = &payload[i],
                                        .bytes = sizeof(payload[i])};
            good = f->end.transport->ops->post(f->end.transport, &requests[i], NULL) == TWILL_OK;
        }
        uint64_t all[2];
        good = good && twill_oob_allgather(f->oob, all, all, 8, NULL) == TWILL_OK;
        /* Only what fits the ring has been sent yet. */
        for (uint32_t i = 0; good && sends && late == 0 && i < COUNT; i++)
            good = TWILL_NOTE((requests[i].status == TWILL_PENDING) == (i >= 8), "message %u is %d",
                              i, requests[i].status);
    }
    good = good && twill_test_await(&f->end, requests, COUNT);
    for (uint32_t i = 0; good && i < COUNT; i++)
        good = TWILL_NOTE(payload[i] == 1000 + i, "message %u holds %llu", i,
                          (unsigned long long)payload[i]);
    good = good && (!sends || TWILL_NOTE(f->end.transport->counters.messages == COUNT &&
                                             f->end.transport->counters.bytes == 8 * COUNT &&
                                             f->end.transport->counters.copied == 0 &&
                                             f->end.transport->counters.again > 0,
                                         "counters"));
    free(requests);
    return good;
}
RANK_FN(fill, &twill_shm_transport)

TWILL_TEST(test_fill)
{
    twill_test_run_ranks(2, fill_rank, NULL);
}

/* One bit of a message that lies in shared memory flips: the receiver fails, and names the sender.
 */
static bool flip(struct twill_test_shm *f)
{
    static const size_t sizes[] = {30, 45, 3000}; /* in the line, or behind it */
    unsigned char message[3000], all[2];
    const struct twill_transport_ops *ops = f->end.transport->ops;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(sizes); i++) {
        struct twill_transfer request = {.kind = f->end.rank == 0 ? TWILL_TRANSFER_SEND
                                                                  : TWILL_TRANSFER_RECV,
                                         .peer = 1 - f->end.rank,
                                         .lane = (uint8_t)i,
                                         .buffer = message,
                                         .bytes = sizes[i]};
        memset(message, 0xa0 + (int)i, sizeof(message));
        if (f->end.rank == 0)
            TWILL_REQUIRE(ops->post(f->end.transport, &request, NULL) == TWILL_OK &&
                          request.status == TWILL_OK);
        TWILL_REQUIRE(twill_oob_allgather(f->oob, all, all, 1, NULL) == TWILL_OK);
        if (f->end.rank == 1) {
            unsigned char *at =
                memmem(f->node->receives[0], twill_shm_pair_bytes(), message, sizes[i]);
            TWILL_REQUIRE(at != NULL);
            at[sizes[i] - 1] ^= 4;
            twill_status status = ops->post(f->end.transport, &request, &f->end.error);
            TWILL_REQUIRE(status == TWILL_ERR_FABRIC && request.status == TWILL_PENDING);
            TWILL_REQUIRE(strstr(f->end.error.message, "from rank 0 arrived damaged") != NULL);
            TWILL_REQUIRE(f->end.error.rank == 0);
            twill_error_clear(&f->end.error);
        }
        TWILL_REQUIRE(twill_oob_allgather(f->oob, all, all, 1, NULL) == TWILL_OK);
    }
    return true;
}
RANK_FN(flip, &twill_shm_transport)

TWILL_TEST(test_flip)
{
    twill_test_run_ranks(2, flip_rank, "checksums");
    twill_test_run_processes(2, flip_rank, "checksums");
}

/* Cancelled requests are not touched, and nothing is left to do. */
static bool cancelled(struct twill_test_shm *f)
{
    unsigned char buffer[64];
    memset(buffer, 0xee, sizeof(buffer));
    const struct twill_transport_ops *ops = f->end.transport->ops;
    struct twill_transfer request = {
        .kind = TWILL_TRANSFER_RECV, .peer = 1, .buffer = buffer, .bytes = sizeof(buffer)};
    unsigned char message[64] = {0}, all[2] = {0};
    if (f->end.rank == 0) {
        TWILL_REQUIRE(ops->post(f->end.transport, &request, NULL) == TWILL_OK);
        ops->cancel(f->end.transport);
    }
    TWILL_REQUIRE(twill_oob_allgather(f->oob, all, all, 1, NULL) == TWILL_OK);
    if (f->end.rank == 1) {
        request = (struct twill_transfer){
            .kind = TWILL_TRANSFER_SEND, .peer = 0, .buffer = message, .bytes = sizeof(message)};
        TWILL_REQUIRE(ops->post(f->end.transport, &request, NULL) == TWILL_OK);
        TWILL_REQUIRE(request.status == TWILL_OK);
    }
    TWILL_REQUIRE(twill_oob_allgather(f->oob, all, all, 1, NULL) == TWILL_OK);
    TWILL_REQUIRE(ops->progress(f->end.transport, NULL) == 0);
    if (f->end.rank == 0)
        TWILL_REQUIRE(request.status == TWILL_PENDING && buffer[0] == 0xee);
    struct twill_transfer wrong = {.kind = TWILL_TRANSFER_SEND, .peer = f->end.rank};
    TWILL_REQUIRE(ops->post(f->end.transport, &wrong, NULL) == TWILL_ERR_INTERNAL);
    wrong = (struct twill_transfer){.kind = TWILL_TRANSFER_SEND, .peer = 7};
    TWILL_REQUIRE(ops->post(f->end.transport, &wrong, NULL) == TWILL_ERR_INTERNAL);
    return true;
}
RANK_FN(cancelled, &twill_shm_transport)

TWILL_TEST(test_cancel)
{
    twill_test_run_ranks(2, cancelled_rank, NULL);
}

static bool to_self(struct twill_test_shm *f)
{
    return sweep(f) && flood(f);
}
RANK_FN(to_self, &twill_self_transport)

TWILL_TEST(test_self)
{
    twill_test_run_ranks(1, to_self_rank, NULL);
}

static bool self_mismatch(struct twill_test_shm *f)
{
    unsigned char from[16] = {1}, to[16];
    memset(to, 0xee, sizeof(to));
    const struct twill_transport_ops *ops = f->end.transport->ops;
    struct twill_transfer send = {
        .kind = TWILL_TRANSFER_SEND, .signature = 4, .buffer = from, .bytes = 16};
    struct twill_transfer recv = {
        .kind = TWILL_TRANSFER_RECV, .signature = 4, .buffer = to, .bytes = 8};
    TWILL_REQUIRE(ops->post(f->end.transport, &recv, NULL) == TWILL_OK);
    TWILL_REQUIRE(recv.status == TWILL_PENDING);
    TWILL_REQUIRE(ops->post(f->end.transport, &send, NULL) == TWILL_OK);
    TWILL_REQUIRE(recv.status == TWILL_ERR_MISMATCH && send.status == TWILL_OK);
    TWILL_REQUIRE(recv.peer_bytes == 16 && recv.peer_signature == 4 && to[0] == 0xee);
    return true;
}
RANK_FN(self_mismatch, &twill_self_transport)

TWILL_TEST(test_self_mismatch)
{
    twill_test_run_ranks(1, self_mismatch_rank, NULL);
}

TWILL_TEST(test_reaches)
{
    struct twill_world world;
    struct twill_node node = {.size = 2};
    assert_true(twill_test_world(&world, 4, 2));
    struct twill_transport_params params = {.world = &world, .node = &node};
    for (uint32_t a = 0; a < 4; a++) {
        for (uint32_t b = 0; b < 4; b++) {
            assert_int_equal(twill_shm_transport.reaches(&params, a, b), a != b && a / 2 == b / 2);
            assert_int_equal(twill_self_transport.reaches(&params, a, b), a == b);
        }
    }
    params.node = NULL;
    assert_false(twill_shm_transport.reaches(&params, 0, 1));
    twill_test_world_free(&world);
}

/* --- node ------------------------------------------------------------------------------------ */

/* Two nodes of two: areas are separate; SHARED is zeroed, shared and of its size. */
static void areas_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct twill_test_shm f = {0};
    if (twill_test_shm_open(&f, caller, 2, &twill_shm_transport, TWILL_TEST_PLAIN)) {
        struct twill_node *node = f.node;
        int all[64];
        bool good = node->size == 2 && node->me == (uint32_t)rank % 2 &&
                    node->rank[0] == (uint32_t)rank / 2 * 2 && node->rank[1] == node->rank[0] + 1 &&
                    node->shared_bytes >= TWILL_TEST_SHARED_BYTES;
        unsigned char *mine = node->shared[node->me], *peers = node->shared[1 - node->me];
        for (size_t i = 0; good && i < TWILL_COPIES * node->shared_bytes; i++)
            good = mine[i] == 0;
        memset(mine, rank + 1, TWILL_COPIES * node->shared_bytes);
        uint64_t value = 77 + (uint64_t)rank;
        twill_node_put(node, 5, 9, 3, &value, sizeof(value));
        twill_node_signal(node, 2, 12, 3);
        good = twill_oob_allgather(f.oob, &rank, all, sizeof(rank), NULL) == TWILL_OK && good;
        good = good && peers[0] == (rank ^ 1) + 1 &&
               peers[TWILL_COPIES * node->shared_bytes - 1] == (rank ^ 1) + 1 &&
               node->receives[1 - node->me][0] == 0;
        const struct twill_immediate *line = twill_node_imm(node, 1 - node->me, 5, 9);
        good = good && line != NULL && line->signature == 3 && line->bytes == sizeof(value);
        good = good && line->payload[0] == 77 + (rank ^ 1);
        good = good && twill_node_imm(node, 1 - node->me, 5, 13) == NULL;
        good = good && twill_node_flag(node, 1 - node->me, 2) == 12;
        TWILL_NOTE(good, "areas of rank %d", rank);
    }
    twill_test_shm_close(&f);
}

TWILL_TEST(test_areas)
{
    twill_test_run_ranks(4, areas_rank, NULL);
    twill_test_run_processes(4, areas_rank, NULL);
}

/* All ranks find that one has another layout. */
static void layout_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    const size_t *shared = user;
    struct twill_oob *oob = twill_test_oob(caller);
    struct twill_node *node = NULL;
    struct twill_error error;
    twill_error_clear(&error);
    uint32_t label[4] = {0};
    const char *why;
    twill_status status = twill_test_open_node(&node, oob, label, shared[rank],
                                               rank == 1 ? 4096 : 8192, &why, &error);
    twill_test_oob_close(oob);
    twill_node_close(node);
    TWILL_CHECK(size == 3 && status == TWILL_ERR_MISMATCH);
    TWILL_CHECK(strstr(error.message, "ank 1") != NULL || strstr(error.message, "and 1") != NULL);
}

TWILL_TEST(test_layout)
{
    /* Different totals; and one total, divided differently. */
    size_t sizes[2][3] = {{4096, 4096, 4096}, {4096, 4096 + 1024, 4096}};
    twill_test_run_ranks(3, layout_rank, sizes[0]);
    twill_test_run_ranks(3, layout_rank, sizes[1]);
}

/* Ping-pong with sleeps: sleeping and waking lose no message. */
static bool to_and_fro(struct twill_test_shm *f)
{
    const struct twill_transport_ops *ops = f->end.transport->ops;
    uint64_t started = twill_now();
    for (uint64_t i = 0; i < 400; i++) {
        uint64_t value = i;
        bool sends = f->end.rank == i % 2;
        struct twill_transfer request = {.kind = sends ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                         .peer = 1 - f->end.rank,
                                         .buffer = &value,
                                         .bytes = sizeof(value)};
        value += sends ? 7 : 0;
        TWILL_REQUIRE(ops->post(f->end.transport, &request, &f->end.error) == TWILL_OK);
        while (request.status == TWILL_PENDING) {
            uint32_t word = twill_node_sleep_begin(f->node);
            TWILL_REQUIRE(ops->progress(f->end.transport, &f->end.error) >= 0);
            if (request.status == TWILL_PENDING)
                twill_node_sleep(f->node, word, 1000000);
            twill_node_sleep_end(f->node);
            TWILL_REQUIRE(twill_now() - started < TWILL_TEST_PATIENCE);
        }
        TWILL_REQUIRE(request.status == TWILL_OK && value == i + 7);
    }
    return true;
}
RANK_FN(to_and_fro, &twill_shm_transport)

/* It is really woken: the sleeper's time limit is beyond that of the test. */
static bool woken(struct twill_test_shm *f)
{
    struct twill_doorbell_line *doorbell = &f->node->area[0]->doorbell;
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    if (f->end.rank == 0) {
        uint32_t word = twill_node_sleep_begin(f->node);
        twill_node_sleep(f->node, word, 2 * TWILL_TEST_PATIENCE);
        twill_node_sleep_end(f->node);
        return TWILL_NOTE(twill_now() < limit, "rank 0 was not woken");
    }
    while (atomic_load(&doorbell->sleeping) == 0)
        TWILL_REQUIRE(twill_now() < limit);
    twill_node_ring_doorbell(f->node, 0);
    return true;
}
RANK_FN(woken, &twill_shm_transport)

TWILL_TEST(test_sleep)
{
    twill_test_run_ranks(2, to_and_fro_rank, NULL);
    twill_test_run_processes(2, to_and_fro_rank, NULL);
    twill_test_run_ranks(2, woken_rank, NULL);
    twill_test_run_processes(2, woken_rank, NULL);
}

static bool failure_notice(struct twill_test_shm *f)
{
    struct twill_node *node = f->node;
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    if (f->end.rank == 1) {
        TWILL_REQUIRE(twill_node_aborted(node, 7) == UINT32_MAX);
        twill_node_abort(node, TWILL_ERR_TIMEOUT, 1, 7, "rank 1 gave up");
        twill_node_abort(node, TWILL_ERR_PEER, 0, 7, "the second one does not count");
    }
    TWILL_REQUIRE(twill_node_aborted(node, 6) == UINT32_MAX);
    while (twill_node_aborted(node, 7) == UINT32_MAX)
        TWILL_REQUIRE(twill_now() < limit);
    TWILL_REQUIRE(twill_node_aborted(node, 8) == 1);
    const struct twill_abort_line *line = &node->area[1]->abort;
    TWILL_REQUIRE(line->status == TWILL_ERR_TIMEOUT && line->from == 1);
    TWILL_REQUIRE(strcmp(line->message, "rank 1 gave up") == 0);
    return true;
}
RANK_FN(failure_notice, &twill_shm_transport)

TWILL_TEST(test_failure_notice)
{
    twill_test_run_ranks(3, failure_notice_rank, NULL);
}

/* The transports of the library, and the mock among them. */
TWILL_TEST(test_registry)
{
    static const char *const names[] = {"self", "mock", "shm", "tcp", "ofi"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(names); i++) {
        const struct twill_transport_ops *ops = twill_transport_at(i);
        assert_non_null(ops);
        assert_string_equal(ops->name, names[i]);
        assert_true(ops->open && ops->close && ops->post && ops->progress && ops->cancel &&
                    ops->describe);
        assert_int_equal(ops->priority != NULL, i >= 3);
    }
    assert_null(twill_transport_at(TWILL_ARRAY_LENGTH(names)));
}

/* --- messages that are read in place ---------------------------------------------------------- */

/* Long messages of the shm transport, which the receiver reads in place: their contents, and what
 * happens when they do not match, cannot be read, or are withdrawn. */

#define LONG TWILL_SHM_FETCH_LEAST

/* Wait until all ranks are here. */
static bool wait_for_all(struct twill_test_shm *f)
{
    unsigned char all[4];
    return twill_oob_allgather(f->oob, all, all, 1, NULL) == TWILL_OK;
}

/* Post a message between ranks 0 and 1, from the former. */
static bool post(struct twill_test_shm *f, struct twill_transfer *request, void *buffer,
                 size_t bytes)
{
    *request = (struct twill_transfer){.kind = f->end.rank == 0 ? TWILL_TRANSFER_SEND
                                                                : TWILL_TRANSFER_RECV,
                                       .peer = 1 - f->end.rank,
                                       .buffer = buffer,
                                       .bytes = bytes};
    return f->end.transport->ops->post(f->end.transport, request, &f->end.error) == TWILL_OK;
}

/* All arrive, stored and reduced, and nothing is copied by the sender. */
static bool contents(struct twill_test_shm *f)
{
    static const size_t sizes[] = {LONG, LONG + 1, (1u << 20) + 8, (3u << 20) - 3};
    return twill_test_sweep(&f->end, sizes, TWILL_ARRAY_LENGTH(sizes)) &&
           TWILL_NOTE(f->end.transport->counters.copied == 0, "copied");
}

/* Long and short messages keep their order. */
static bool in_order(struct twill_test_shm *f)
{
    return twill_test_flood(&f->end, 20, 2 * LONG);
}

/* A message of another size fails at the receiver; the next one arrives. */
static bool other_size(struct twill_test_shm *f)
{
    struct twill_transfer wrong, right;
    unsigned char *buffer = calloc(2, LONG + 8);
    TWILL_REQUIRE(buffer != NULL);
    bool sends = f->end.rank == 0;
    memset(buffer, sends ? 7 : 0, LONG);
    bool good =
        post(f, &wrong, buffer + LONG + 8, LONG + (sends ? 8 : 0)) && post(f, &right, buffer, LONG);
    while (good && (wrong.status == TWILL_PENDING || right.status == TWILL_PENDING))
        good = f->end.transport->ops->progress(f->end.transport, &f->end.error) >= 0;
    good = good && wrong.status == (sends ? TWILL_OK : TWILL_ERR_MISMATCH) &&
           right.status == TWILL_OK && buffer[0] == 7 && buffer[LONG - 1] == 7;
    free(buffer);
    return TWILL_NOTE(good, "%d %d", wrong.status, right.status);
}

/* A message that the kernel refuses to read is streamed, and so are later ones. */
static bool unreadable(struct twill_test_shm *f)
{
    struct twill_transfer request;
    bool sends = f->end.rank == 0;
    unsigned char *buffer =
        mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TWILL_REQUIRE(buffer != MAP_FAILED);
    memset(buffer, sends ? 9 : 0, LONG);
    if (sends)
        TWILL_REQUIRE(mprotect(buffer, LONG, PROT_NONE) == 0 && post(f, &request, buffer, LONG));
    TWILL_REQUIRE(wait_for_all(f));
    if (!sends)
        TWILL_REQUIRE(post(f, &request, buffer, LONG) && request.status == TWILL_PENDING);
    TWILL_REQUIRE(wait_for_all(f));
    if (sends)
        TWILL_REQUIRE(mprotect(buffer, LONG, PROT_READ | PROT_WRITE) == 0);
    TWILL_REQUIRE(twill_test_await(&f->end, &request, 1) && request.status == TWILL_OK);
    TWILL_REQUIRE(buffer[0] == 9 && buffer[LONG - 1] == 9);
    TWILL_REQUIRE(!sends || f->end.transport->counters.copied == LONG);
    return munmap(buffer, LONG) == 0;
}

/* A sender sees that its message is being read, so that a long one does not time out. */
static bool followed(struct twill_test_shm *f)
{
    const struct twill_transport_ops *ops = f->end.transport->ops;
    struct twill_transfer request;
    unsigned char *buffer = calloc(1, 4 * LONG);
    TWILL_REQUIRE(buffer != NULL);
    bool sends = f->end.rank == 0, good = !sends || post(f, &request, buffer, 4 * LONG);
    good = good && (!sends || ops->progress(f->end.transport, &f->end.error) == 0);
    good = wait_for_all(f) && good &&
           (sends || post(f, &request, buffer, 4 * LONG)); /* reads one half */
    good = wait_for_all(f) && good;
    for (int moved = 1; sends && moved >= 0; moved--)
        good = good && ops->progress(f->end.transport, &f->end.error) == moved;
    good = good && request.status == TWILL_PENDING && request.moved == 2 * LONG;
    good = wait_for_all(f) && good && twill_test_await(&f->end, &request, 1);
    free(buffer);
    return TWILL_NOTE(good && request.status == TWILL_OK, "%d", request.status);
}

static void add(struct twill_transfer *request, size_t offset, const void *data, size_t bytes)
{
    unsigned char *to = (unsigned char *)request->buffer + offset;
    for (size_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)(to[i] + ((const unsigned char *)data)[i]);
}

/* Of a message whose first half alone can be read, the other one is streamed. */
static bool read_by_half(struct twill_test_shm *f, bool reduces)
{
    const size_t half = 2 * LONG;
    struct twill_transfer request;
    bool sends = f->end.rank == 0, good = true;
    unsigned char *buffer =
        mmap(NULL, 2 * half, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TWILL_REQUIRE(buffer != MAP_FAILED);
    memset(buffer, sends ? 9 : 0, 2 * half);
    if (sends)
        TWILL_REQUIRE(mprotect(buffer + half, half, PROT_NONE) == 0 &&
                      post(f, &request, buffer, 2 * half));
    TWILL_REQUIRE(wait_for_all(f));
    if (!sends) {
        request = (struct twill_transfer){.kind = TWILL_TRANSFER_RECV,
                                          .buffer = buffer,
                                          .bytes = 2 * half,
                                          .reduce = reduces ? add : NULL};
        const struct twill_transport_ops *ops = f->end.transport->ops;
        TWILL_REQUIRE(ops->post(f->end.transport, &request, &f->end.error) == TWILL_OK);
        for (int i = 0; i < 40; i++)
            good = good && ops->progress(f->end.transport, &f->end.error) >= 0;
        TWILL_REQUIRE(good && request.status == TWILL_PENDING && request.moved == half);
    }
    TWILL_REQUIRE(wait_for_all(f));
    if (sends)
        TWILL_REQUIRE(mprotect(buffer, 2 * half, PROT_READ | PROT_WRITE) == 0);
    TWILL_REQUIRE(twill_test_await(&f->end, &request, 1) && request.status == TWILL_OK);
    for (size_t i = 0; i < 2 * half; i++)
        good = good && buffer[i] == 9;
    TWILL_REQUIRE(good && (!sends || f->end.transport->counters.copied == half));
    return munmap(buffer, 2 * half) == 0;
}

static bool half_stored(struct twill_test_shm *f)
{
    return read_by_half(f, false);
}

static bool half_reduced(struct twill_test_shm *f)
{
    return read_by_half(f, true);
}

/* A receiver does not complete a message whose sender's process has ended, even if its pid is in
 * use. The sender only looks as if it had: it has lost the lock of its memory. */
static bool ended(struct twill_test_shm *f)
{
    const struct twill_transport_ops *ops = f->end.transport->ops;
    struct twill_transfer request;
    unsigned char *buffer = calloc(1, LONG);
    TWILL_REQUIRE(buffer != NULL);
    bool sends = f->end.rank == 0, good = !sends || post(f, &request, buffer, LONG);
    int lock = f->node->region->fd; /* -1: ranks are threads, and die together */
    good = good && (!sends || lock < 0 || close(dup(lock)) == 0);
    good = wait_for_all(f) && good && (sends || post(f, &request, buffer, LONG));
    for (int i = 0; !sends && i < 10; i++)
        good = good && ops->progress(f->end.transport, &f->end.error) >= 0;
    good = good && (sends || request.status == (lock < 0 ? TWILL_OK : TWILL_PENDING));
    good = wait_for_all(f) && good;
    ops->cancel(f->end.transport);
    free(buffer);
    return TWILL_NOTE(good, "%d", request.status);
}

/* A receiver does not complete a message whose sender has given up. */
static bool withdrawn(struct twill_test_shm *f)
{
    const struct twill_transport_ops *ops = f->end.transport->ops;
    struct twill_transfer request;
    unsigned char *buffer = calloc(1, 4 * LONG);
    TWILL_REQUIRE(buffer != NULL);
    bool sends = f->end.rank == 0, good = !sends || post(f, &request, buffer, 4 * LONG);
    good = wait_for_all(f) && good &&
           (sends || post(f, &request, buffer, 4 * LONG)); /* reads a part */
    good = wait_for_all(f) && good;
    if (sends)
        ops->cancel(f->end.transport);
    good = wait_for_all(f) && good;
    for (int i = 0; !sends && i < 10; i++)
        good = good && ops->progress(f->end.transport, &f->end.error) >= 0;
    good = good && request.status == TWILL_PENDING;
    free(buffer);
    return TWILL_NOTE(good, "%d", request.status);
}

/* The emulator of aarch64 has no process_vm_readv(). */
static void skip_without_reads(void)
{
    char byte = 0;
    struct iovec piece = {&byte, 1};
    if (process_vm_readv(getpid(), &piece, 1, &piece, 1, 0) < 0 && errno == ENOSYS)
        skip();
}

#define OFFER_TEST(name)                                                                           \
    static void name##_rank(int rank, int size, twill_bootstrap *caller, void *user)               \
    {                                                                                              \
        twill_test_shm_run(caller, &twill_shm_transport, name, TWILL_TEST_READS);                  \
    }                                                                                              \
    TWILL_TEST(test_##name)                                                                        \
    {                                                                                              \
        skip_without_reads();                                                                      \
        twill_test_run_ranks(2, name##_rank, NULL);                                                \
        twill_test_run_processes(2, name##_rank, NULL);                                            \
    }
OFFER_TEST(contents)
OFFER_TEST(in_order)
OFFER_TEST(other_size)
OFFER_TEST(unreadable)
OFFER_TEST(followed)
OFFER_TEST(half_stored)
OFFER_TEST(half_reduced)
OFFER_TEST(ended)
OFFER_TEST(withdrawn)

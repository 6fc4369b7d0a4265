/* SPDX-License-Identifier: Apache-2.0 */
/* Messages through shared memory and to oneself; node memory, doorbells and failures of a node. */
#include "fabric/shm/mapping.h"
#include "fabric/shm/node_memory.h"
#include "fabric/shm/shared_region_state.h"
#include "fabric/transports.h"
#include "tests/support/shared_ranks.h"
#include "tests/support/unit.h"

#include <sys/uio.h>

/* Run a body on threads, and on processes. */
static void run_both(int ranks, enum twill_test_shm_mode mode,
                     void (*body)(struct twill_test_shm *f))
{
    struct twill_test_shm_run run = {.ranks = ranks, .mode = mode, .body = body};
    twill_test_shm_run(run);
    run.processes = true;
    twill_test_shm_run(run);
}

/* Define a test of that kind; the body follows. */
#define SHM_TEST(name, ranks, mode)                                                                \
    static void body_of_##name(struct twill_test_shm *f);                                          \
    TWILL_TEST(name)                                                                               \
    {                                                                                              \
        run_both(ranks, mode, body_of_##name);                                                     \
    }                                                                                              \
    static void body_of_##name(struct twill_test_shm *f)

static twill_status post(struct twill_test_shm *f, struct twill_transfer *request)
{
    return f->end.transport->ops->post(f->end.transport, request, &f->end.error);
}

/* --- messages -------------------------------------------------------------------------------- */

static void sweep(struct twill_test_shm *f)
{
    static const size_t sizes[] = {0,     1,     7,     8,      47,     48,
                                   49,    64,    8191,  8192,   8193,   16384,
                                   65535, 65536, 65537, 131072, 131073, (1u << 20) + 3};
    (void)twill_test_sweep(&f->end, sizes, TWILL_ARRAY_LENGTH(sizes));
}

TWILL_TEST(test_sweep)
{
    for (int ranks = 2; ranks <= 4; ranks += 2)
        run_both(ranks, TWILL_TEST_PLAIN, sweep);
    twill_test_shm_run(
        (struct twill_test_shm_run){.ranks = 3, .mode = TWILL_TEST_CHECKSUMS, .body = sweep});
}

SHM_TEST(test_flood, 3, TWILL_TEST_PLAIN)
{
    (void)twill_test_flood(&f->end, 60, 30000);
}

SHM_TEST(test_mismatch, 2, TWILL_TEST_PLAIN)
{
    (void)twill_test_mismatch(&f->end);
}

/* Far more than the ring holds, sent before the receiver reads and without its progress. */
SHM_TEST(test_fill, 2, TWILL_TEST_PLAIN)
{
    enum { COUNT = 40 };
    const struct twill_transport_counters *c = &f->end.transport->counters;
    struct twill_transfer *requests = calloc(COUNT, sizeof(*requests));
    uint64_t payload[COUNT];
    bool sends = f->end.rank == 0;
    TWILL_CHECK(requests != NULL);
    for (uint32_t i = 0; i < COUNT; i++) {
        payload[i] = sends ? 1000 + i : 0;
        requests[i] = end_one_way(&f->end, 0, &payload[i], sizeof(payload[i]));
        TWILL_CHECK(!sends || end_post(&f->end, &requests[i]));
    }
    TWILL_CHECK(end_barrier(&f->end));
    for (uint32_t i = 0; i < COUNT; i++) /* only what fits the ring has been sent yet */
        TWILL_CHECK(sends ? (requests[i].status == TWILL_PENDING) == (i >= 8)
                          : end_post(&f->end, &requests[i]),
                    "message %u is %d", i, requests[i].status);
    TWILL_CHECK(end_await(&f->end, requests, COUNT));
    for (uint32_t i = 0; i < COUNT; i++)
        TWILL_CHECK(payload[i] == 1000 + i, "message %u holds %llu", i,
                    (unsigned long long)payload[i]);
    TWILL_CHECK(!sends ||
                (c->messages == COUNT && c->bytes == 8 * COUNT && c->copied == 0 && c->again > 0));
    free(requests);
}

/* One bit of a message that lies in shared memory flips: the receiver fails, and names the sender.
 */
SHM_TEST(test_flip, 2, TWILL_TEST_CHECKSUMS)
{
    static const size_t sizes[] = {30, 45, 3000}; /* in the line, or behind it */
    unsigned char message[3000];
    for (uint32_t i = 0; i < TWILL_ARRAY_LENGTH(sizes); i++) {
        struct twill_transfer request = end_one_way(&f->end, i, message, sizes[i]);
        memset(message, 0xa0 + (int)i, sizeof(message));
        if (f->end.rank == 0)
            TWILL_CHECK(end_post(&f->end, &request) && request.status == TWILL_OK);
        TWILL_CHECK(end_barrier(&f->end));
        if (f->end.rank == 1) {
            unsigned char *at =
                memmem(f->node->receives[0], twill_shm_pair_bytes(), message, sizes[i]);
            TWILL_CHECK(at != NULL);
            at[sizes[i] - 1] ^= 4;
            TWILL_CHECK(post(f, &request) == TWILL_ERR_FABRIC && request.status == TWILL_PENDING);
            TWILL_CHECK(strstr(f->end.error.message, "from rank 0 is damaged") != NULL);
            TWILL_CHECK(f->end.error.rank == 0);
            twill_error_clear(&f->end.error);
        }
        TWILL_CHECK(end_barrier(&f->end));
    }
}

/* Cancelled requests are not touched, and nothing is left to do. */
SHM_TEST(test_cancel, 2, TWILL_TEST_PLAIN)
{
    unsigned char buffer[64], message[64] = {0};
    struct twill_transfer request = end_transfer(TWILL_TRANSFER_RECV, 1, 0, buffer, sizeof(buffer));
    memset(buffer, 0xee, sizeof(buffer));
    if (f->end.rank == 0) {
        TWILL_CHECK(end_post(&f->end, &request));
        f->end.transport->ops->cancel(f->end.transport);
    }
    TWILL_CHECK(end_barrier(&f->end));
    if (f->end.rank == 1) {
        request = end_transfer(TWILL_TRANSFER_SEND, 0, 0, message, sizeof(message));
        TWILL_CHECK(end_post(&f->end, &request) && request.status == TWILL_OK);
    }
    TWILL_CHECK(end_barrier(&f->end) && end_progress(&f->end) == 0);
    if (f->end.rank == 0)
        TWILL_CHECK(request.status == TWILL_PENDING && buffer[0] == 0xee);
    struct twill_transfer wrong = end_transfer(TWILL_TRANSFER_SEND, f->end.rank, 0, NULL, 0);
    TWILL_CHECK(post(f, &wrong) == TWILL_ERR_INTERNAL);
    wrong = end_transfer(TWILL_TRANSFER_SEND, 7, 0, NULL, 0);
    TWILL_CHECK(post(f, &wrong) == TWILL_ERR_INTERNAL);
}

static void to_self(struct twill_test_shm *f)
{
    unsigned char from[16] = {1}, to[16];
    struct twill_transfer send = end_transfer(TWILL_TRANSFER_SEND, 0, 0, from, 16);
    struct twill_transfer recv = end_transfer(TWILL_TRANSFER_RECV, 0, 0, to, 8);
    memset(to, 0xee, sizeof(to));
    sweep(f);
    TWILL_CHECK(twill_test_flood(&f->end, 60, 30000));
    TWILL_CHECK(end_post(&f->end, &recv) && recv.status == TWILL_PENDING);
    TWILL_CHECK(end_post(&f->end, &send) && send.status == TWILL_OK);
    TWILL_CHECK(recv.status == TWILL_ERR_MISMATCH && recv.peer_bytes == 16 &&
                recv.peer_signature == 7 && to[0] == 0xee);
}

TWILL_TEST(test_self)
{
    twill_test_shm_run(
        (struct twill_test_shm_run){.ranks = 1, .ops = &twill_self_transport, .body = to_self});
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
    twill_world_destroy(&world);
}

/* --- node ------------------------------------------------------------------------------------ */

/* Two nodes of two: areas are separate; SHARED is zeroed, shared and of its size. */
static void check_areas(struct twill_test_shm *f)
{
    struct twill_node *node = f->node;
    const uint32_t rank = f->end.rank, other = 1 - node->me;
    TWILL_CHECK(node->size == 2 && node->me == rank % 2 && node->rank[0] == rank / 2 * 2 &&
                node->rank[1] == node->rank[0] + 1 &&
                node->shared_bytes >= TWILL_TEST_SHARED_BYTES);
    unsigned char *mine = node->shared[node->me], *peers = node->shared[other];
    const size_t last = TWILL_COPIES * node->shared_bytes - 1;
    for (size_t i = 0; i <= last; i++)
        TWILL_CHECK(mine[i] == 0);
    memset(mine, (int)rank + 1, last + 1);
    uint64_t value = 77 + (uint64_t)rank;
    twill_node_put(node, 5, 9, 3, &value, sizeof(value));
    twill_node_signal(node, 2, 12, 3);
    TWILL_CHECK(end_barrier(&f->end));
    TWILL_CHECK(peers[0] == (rank ^ 1) + 1 && peers[last] == (rank ^ 1) + 1 &&
                node->receives[other][0] == 0);
    const struct twill_immediate *line = twill_node_imm(node, other, 5, 9);
    TWILL_CHECK(line != NULL && line->signature == 3 && line->bytes == sizeof(value));
    TWILL_CHECK(line->payload[0] == 77 + (rank ^ 1));
    TWILL_CHECK(twill_node_imm(node, other, 5, 13) == NULL);
    TWILL_CHECK(twill_node_flag(node, other, 2) == 12);
}

static void areas_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct twill_test_shm f = {.node = NULL};
    if (twill_test_shm_open(&f, caller, 2, &twill_shm_transport, TWILL_TEST_PLAIN))
        check_areas(&f);
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
SHM_TEST(test_sleep, 2, TWILL_TEST_PLAIN)
{
    uint64_t started = twill_now();
    for (uint64_t i = 0; i < 400; i++) {
        uint64_t value = i;
        bool sends = f->end.rank == i % 2;
        struct twill_transfer request =
            end_transfer(sends ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, f->end.peer, 0, &value,
                         sizeof(value));
        value += sends ? 7 : 0;
        TWILL_CHECK(end_post(&f->end, &request));
        while (request.status == TWILL_PENDING) {
            uint32_t word = twill_node_sleep_begin(f->node);
            TWILL_CHECK(f->end.transport->ops->progress(f->end.transport, &f->end.error) >= 0);
            if (request.status == TWILL_PENDING)
                twill_node_sleep(f->node, word, 1000000);
            twill_node_sleep_end(f->node);
            TWILL_CHECK(twill_now() - started < TWILL_TEST_PATIENCE);
        }
        TWILL_CHECK(request.status == TWILL_OK && value == i + 7);
    }
}

/* It is really woken: the sleeper's time limit is beyond that of the test. */
SHM_TEST(test_woken, 2, TWILL_TEST_PLAIN)
{
    struct twill_doorbell_line *doorbell = &f->node->area[0]->doorbell;
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    if (f->end.rank == 0) {
        uint32_t word = twill_node_sleep_begin(f->node);
        twill_node_sleep(f->node, word, 2 * TWILL_TEST_PATIENCE);
        twill_node_sleep_end(f->node);
        TWILL_CHECK(twill_now() < limit, "rank 0 was not woken");
        return;
    }
    while (atomic_load(&doorbell->sleeping) == 0)
        TWILL_CHECK(twill_now() < limit);
    twill_node_ring_doorbell(f->node, 0);
}

SHM_TEST(test_failure_notice, 3, TWILL_TEST_PLAIN)
{
    struct twill_node *node = f->node;
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    if (f->end.rank == 1) {
        TWILL_CHECK(twill_node_aborted(node, 7) == UINT32_MAX);
        twill_node_abort(node, TWILL_ERR_TIMEOUT, 1, 7, "rank 1 gave up");
        twill_node_abort(node, TWILL_ERR_PEER, 0, 7, "the second one does not count");
    }
    TWILL_CHECK(twill_node_aborted(node, 6) == UINT32_MAX);
    while (twill_node_aborted(node, 7) == UINT32_MAX)
        TWILL_CHECK(twill_now() < limit);
    TWILL_CHECK(twill_node_aborted(node, 8) == 1);
    const struct twill_abort_line *line = &node->area[1]->abort;
    TWILL_CHECK(line->status == TWILL_ERR_TIMEOUT && line->from == 1);
    TWILL_CHECK(strcmp(line->message, "rank 1 gave up") == 0);
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

/* The emulator of aarch64 has no process_vm_readv(). */
static void skip_without_reads(void)
{
    char byte = 0;
    struct iovec piece = {&byte, 1};
    if (process_vm_readv(getpid(), &piece, 1, &piece, 1, 0) < 0 && errno == ENOSYS)
        skip();
}

/* Define a test of two ranks that read from each other. */
#define READING_TEST(name)                                                                         \
    static void body_of_##name(struct twill_test_shm *f);                                          \
    TWILL_TEST(name)                                                                               \
    {                                                                                              \
        skip_without_reads();                                                                      \
        run_both(2, TWILL_TEST_READS, body_of_##name);                                             \
    }                                                                                              \
    static void body_of_##name(struct twill_test_shm *f)

/* A message from rank 0 to rank 1, posted by rank 0, whose memory is mapped here. */
struct offer {
    struct twill_transfer request;
    unsigned char *buffer;
    size_t bytes;
    bool sends;
};

static bool offer_message(struct twill_test_shm *f, struct offer *offer, size_t bytes)
{
    bool sends = f->end.rank == 0;
    *offer = (struct offer){.buffer = page_map(bytes), .bytes = bytes, .sends = sends};
    TWILL_REQUIRE(offer->buffer != NULL);
    memset(offer->buffer, sends ? 9 : 0, bytes);
    offer->request = end_one_way(&f->end, 0, offer->buffer, bytes);
    return !sends || end_post(&f->end, &offer->request);
}

/* Wait until the message has come, and compare it. */
static bool offer_arrives(struct twill_test_shm *f, struct offer *offer)
{
    TWILL_REQUIRE(end_await(&f->end, &offer->request, 1) && offer->request.status == TWILL_OK);
    for (size_t i = 0; i < offer->bytes; i++)
        TWILL_REQUIRE(offer->buffer[i] == 9);
    return munmap(offer->buffer, offer->bytes) == 0;
}

/* Give the receiver some turns, in which nothing fails and the message does not complete. */
static bool stays_open(struct twill_test_shm *f, const struct offer *offer)
{
    for (int i = 0; i < 40; i++)
        TWILL_REQUIRE(end_works(&f->end));
    return TWILL_NOTE(offer->request.status == TWILL_PENDING, "%d", offer->request.status);
}

/* All arrive, stored and reduced, and nothing is copied by the sender. */
READING_TEST(test_contents)
{
    static const size_t sizes[] = {LONG, LONG + 1, (1u << 20) + 8, (3u << 20) - 3};
    TWILL_CHECK(twill_test_sweep(&f->end, sizes, TWILL_ARRAY_LENGTH(sizes)));
    TWILL_CHECK(f->end.transport->counters.copied == 0);
}

/* Long and short messages keep their order. */
READING_TEST(test_in_order)
{
    (void)twill_test_flood(&f->end, 20, 2 * LONG);
}

/* A message of another size fails at the receiver; the next one arrives. */
READING_TEST(test_other_size)
{
    unsigned char *other = calloc(1, LONG + 8);
    struct offer right;
    TWILL_CHECK(other != NULL);
    struct twill_transfer wrong = end_one_way(&f->end, 0, other, LONG + (f->end.rank == 0 ? 8 : 0));
    TWILL_CHECK(end_post(&f->end, &wrong) && offer_message(f, &right, LONG));
    TWILL_CHECK(right.sends || end_post(&f->end, &right.request));
    TWILL_CHECK(end_await(&f->end, &wrong, 1) && offer_arrives(f, &right));
    TWILL_CHECK(wrong.status == (right.sends ? TWILL_OK : TWILL_ERR_MISMATCH), "%d", wrong.status);
    free(other);
}

/* A message that the kernel refuses to read is streamed, and so are later ones. */
READING_TEST(test_unreadable)
{
    struct offer offer;
    TWILL_CHECK(offer_message(f, &offer, LONG));
    TWILL_CHECK(!offer.sends || mprotect(offer.buffer, LONG, PROT_NONE) == 0);
    TWILL_CHECK(end_barrier(&f->end));
    TWILL_CHECK(offer.sends ||
                (end_post(&f->end, &offer.request) && offer.request.status == TWILL_PENDING));
    TWILL_CHECK(end_barrier(&f->end));
    TWILL_CHECK(!offer.sends || mprotect(offer.buffer, LONG, PROT_READ | PROT_WRITE) == 0);
    TWILL_CHECK(offer_arrives(f, &offer));
    TWILL_CHECK(!offer.sends || f->end.transport->counters.copied == LONG);
}

/* A sender sees that its message is being read, so that a long one does not time out. */
READING_TEST(test_followed)
{
    struct offer offer;
    TWILL_CHECK(offer_message(f, &offer, 4 * LONG));
    TWILL_CHECK(!offer.sends || end_progress(&f->end) == 0);
    TWILL_CHECK(end_barrier(&f->end));
    TWILL_CHECK(offer.sends || end_post(&f->end, &offer.request)); /* reads one half */
    TWILL_CHECK(end_barrier(&f->end));
    for (int moved = 1; offer.sends && moved >= 0; moved--)
        TWILL_CHECK(end_progress(&f->end) == moved);
    TWILL_CHECK(offer.request.status == TWILL_PENDING && offer.request.moved == 2 * LONG);
    TWILL_CHECK(end_barrier(&f->end) && offer_arrives(f, &offer));
}

static void add(struct twill_transfer *request, size_t offset, const void *data, size_t bytes)
{
    unsigned char *to = (unsigned char *)request->buffer + offset;
    for (size_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)(to[i] + ((const unsigned char *)data)[i]);
}

/* Of a message whose first half alone can be read, the other one is streamed. */
static void read_by_half(struct twill_test_shm *f, bool reduces)
{
    const size_t half = 2 * LONG;
    struct offer offer;
    TWILL_CHECK(offer_message(f, &offer, 2 * half));
    TWILL_CHECK(!offer.sends || mprotect(offer.buffer + half, half, PROT_NONE) == 0);
    TWILL_CHECK(end_barrier(&f->end));
    if (!offer.sends) {
        offer.request.reduce = reduces ? add : NULL;
        TWILL_CHECK(end_post(&f->end, &offer.request) && stays_open(f, &offer));
        TWILL_CHECK(offer.request.moved == half);
    }
    TWILL_CHECK(end_barrier(&f->end));
    TWILL_CHECK(!offer.sends || mprotect(offer.buffer, 2 * half, PROT_READ | PROT_WRITE) == 0);
    TWILL_CHECK(offer_arrives(f, &offer));
    TWILL_CHECK(!offer.sends || f->end.transport->counters.copied == half);
}

READING_TEST(test_half_stored)
{
    read_by_half(f, false);
}

READING_TEST(test_half_reduced)
{
    read_by_half(f, true);
}

/* A receiver does not complete a message whose sender's process has ended, even if its pid is in
 * use. The sender only looks as if it had: it has lost the lock that shows that it lives. */
static void lose_lock(struct twill_test_shm *f)
{
    struct offer offer;
    TWILL_CHECK(offer_message(f, &offer, LONG));
    TWILL_CHECK(!offer.sends || close(dup(f->node->region->life->fd)) == 0);
    TWILL_CHECK(end_barrier(&f->end));
    TWILL_CHECK(offer.sends || (end_post(&f->end, &offer.request) && stays_open(f, &offer)));
    TWILL_CHECK(end_barrier(&f->end));
    f->end.transport->ops->cancel(f->end.transport);
}

TWILL_TEST(test_ended) /* of processes: threads end together */
{
    skip_without_reads();
    twill_test_shm_run((struct twill_test_shm_run){
        .ranks = 2, .processes = true, .mode = TWILL_TEST_READS, .body = lose_lock});
}

/* A receiver does not complete a message whose sender has given up. */
READING_TEST(test_withdrawn)
{
    struct offer offer;
    TWILL_CHECK(offer_message(f, &offer, 4 * LONG));
    TWILL_CHECK(end_barrier(&f->end));
    TWILL_CHECK(offer.sends || end_post(&f->end, &offer.request)); /* reads a part */
    TWILL_CHECK(end_barrier(&f->end));
    if (offer.sends)
        f->end.transport->ops->cancel(f->end.transport);
    TWILL_CHECK(end_barrier(&f->end));
    TWILL_CHECK(offer.sends || stays_open(f, &offer));
    TWILL_CHECK(offer.request.status == TWILL_PENDING);
    munmap(offer.buffer, offer.bytes);
}

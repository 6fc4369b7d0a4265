/* SPDX-License-Identifier: Apache-2.0 */
/* Refusals of the tcp transport that are hard to see: the receiver has closed the connection since,
 * the sender also receives on the channel, or the refusal was read while the sender looked for
 * something else. Ranks are threads that connect over loopback. */
#include "kernels/kernels.h"
#include "tests/support/tcp_ends.h"
#include "tests/support/unit.h"

#define REFUSED_BYTES ((size_t)64 << 20) /* more than the kernel takes */
#define REFUSED_WANTS 4711u
#define REFUSED_LANES 8u /* more than these: above TWILL_TCP_DIRECT */

/* What rank 1 does after its refusal. */
struct refusal_case {
    bool half;          /* closes one direction only, so that rank 0 finds the end by reading */
    bool receives;      /* rank 0 has posted a RECV on the channel, too */
    unsigned more_sent; /* messages of rank 1 before the refusal, for such RECVs */
};

struct refusal_ends {
    struct tcp_end end;
    struct twill_transfer refused, next, early, late;
    unsigned char *large, small[3][64];
};

static bool open_refusal_end(struct refusal_ends *ends, twill_bootstrap *caller, bool checked)
{
    static const struct test_setting sums[] = {{"TWILL_CHECKSUM", "network"}, {NULL, NULL}};
    const struct twill_kernels *kernels;
    struct tcp_end *end = &ends->end;
    memset(ends, 0, sizeof(*ends));
    ends->large = calloc(1, REFUSED_BYTES);
    TWILL_REQUIRE(ends->large != NULL);
    if (!checked)
        return end_open(end, caller, NULL);
    TWILL_REQUIRE(twill_kernels_select(&kernels, NULL, NULL) == TWILL_OK);
    end->oob = twill_test_oob(caller);
    TWILL_REQUIRE(end->oob != NULL);
    end->end.rank = (uint32_t)caller->rank;
    end->end.size = (uint32_t)caller->size;
    end->params = (struct twill_transport_params){.oob = end->oob,
                                                  .common = &end->common,
                                                  .crc32c = kernels->crc32c,
                                                  .setting = test_setting,
                                                  .settings = sums};
    return end_more(end, end, 1);
}

static void close_refusal_end(struct refusal_ends *ends)
{
    end_close(&ends->end);
    free(ends->large);
}

static struct twill_tcp_channel *channel_of(struct refusal_ends *ends)
{
    struct twill_tcp *t = (struct twill_tcp *)ends->end.end.transport;
    return &t->peers[1 - ends->end.end.rank]->channels[0];
}

/* Exchange a message on a channel, which connects it. */
static bool connect_channel(struct refusal_ends *ends, uint32_t channel)
{
    uint32_t peer = 1 - ends->end.end.rank;
    struct twill_transfer r = transfer(peer == 1 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, peer,
                                       channel, ends->small[0], 1);
    return post(&ends->end, &r) && twill_test_await(&ends->end.end, &r, 1) && r.status == TWILL_OK;
}

/* Rank 1: receive less than what rank 0 sends, and have the kernel send the refusal. */
static bool refuse_large(struct refusal_ends *ends)
{
    const struct twill_tcp_channel *channel = channel_of(ends);
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    ends->refused = transfer(TWILL_TRANSFER_RECV, 0, 0, ends->large, REFUSED_WANTS);
    TWILL_REQUIRE(post(&ends->end, &ends->refused));
    while (ends->refused.status == TWILL_PENDING || channel->out.refuses || channel->out.refusing ||
           (channel->records != NULL && twill_tcp_records_unsent(channel->records)))
        TWILL_REQUIRE(progress(&ends->end) >= 0 && twill_now() < limit);
    return ends->refused.status == TWILL_ERR_MISMATCH;
}

/* Rank 0: make progress until the SEND has ended. Then it was refused, and nothing else failed. */
static bool finds_refusal(struct refusal_ends *ends)
{
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    int moved = 0;
    while (ends->refused.status == TWILL_PENDING && moved >= 0 && twill_now() < limit)
        moved = progress(&ends->end);
    return TWILL_NOTE(moved > 0 && ends->refused.status == TWILL_ERR_MISMATCH &&
                          ends->refused.peer_bytes == REFUSED_WANTS,
                      "progress %d (%s), SEND %d, %llu bytes", moved, ends->end.end.error.message,
                      ends->refused.status, (unsigned long long)ends->refused.peer_bytes);
}

/* --- the receiver has closed ------------------------------------------------------------------ */

/* Rank 0: the connection has ended, which the next SEND or RECV finds, but for a SEND in the
 * direction that is not closed. */
static bool finds_end(struct refusal_ends *ends)
{
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    int moved = 0;
    while (moved >= 0 && twill_now() < limit)
        moved = progress(&ends->end);
    return moved == TWILL_ERR_PEER && ends->late.status == TWILL_PENDING;
}

static void rank_closed(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct refusal_case *how = user;
    struct refusal_ends ends;
    if (open_refusal_end(&ends, caller, false) && connect_channel(&ends, 0)) {
        uint32_t peer = 1 - (uint32_t)rank;
        struct tcp_end *end = &ends.end;
        ends.refused = transfer(TWILL_TRANSFER_SEND, 1, 0, ends.large, REFUSED_BYTES);
        ends.next = transfer(TWILL_TRANSFER_SEND, 1, 0, ends.small[0], 64);
        ends.early = transfer(rank == 0 ? TWILL_TRANSFER_RECV : TWILL_TRANSFER_SEND, peer, 0,
                              ends.small[1], 64);
        ends.late = transfer(TWILL_TRANSFER_RECV, peer, 0, ends.small[2], 64);
        ends.late.status = TWILL_PENDING;
        memset(ends.small[1], rank == 0 ? 0 : 9, 64);
        if (rank == 0) /* the kernel takes a part */
            TWILL_CHECK(post(end, &ends.refused) && ends.refused.status == TWILL_PENDING &&
                        post(end, &ends.next));
        if (rank == 0 && how->more_sent > 0)
            TWILL_CHECK(post(end, &ends.early));
        if (rank == 0 && how->receives)
            TWILL_CHECK(post(end, &ends.late));
        if (rank == 1 && how->more_sent > 0)
            TWILL_CHECK(post(end, &ends.early) && twill_test_await(&end->end, &ends.early, 1));
        TWILL_CHECK(rank == 0 || refuse_large(&ends));
        if (rank == 1 && how->half) {
            TWILL_CHECK(shutdown(channel_of(&ends)->fd, SHUT_WR) == 0);
        } else if (rank == 1) {
            twill_tcp_transport.close(end->end.transport);
            end->end.transport = NULL;
        }
        TWILL_CHECK(rank_barrier(end)); /* rank 0 has made no progress until here */
        TWILL_CHECK(rank == 1 || finds_refusal(&ends));
        TWILL_CHECK(rank == 1 || how->more_sent == 0 ||
                    (ends.early.status == TWILL_OK && ends.small[1][63] == 9));
        TWILL_CHECK(rank == 1 || (how->half && !how->receives) || finds_end(&ends));
        if (rank == 0)
            twill_tcp_transport.cancel(end->end.transport);
        TWILL_CHECK(rank_barrier(end));
    }
    close_refusal_end(&ends);
}

TWILL_TEST(test_closed)
{
    static const struct refusal_case cases[] = {{.half = false},
                                                {.half = false, .receives = true},
                                                {.half = false, .receives = true, .more_sent = 1},
                                                {.half = true},
                                                {.half = true, .receives = true},
                                                {.half = true, .receives = true, .more_sent = 1}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        twill_test_run_ranks(2, rank_closed, (void *)(uintptr_t)&cases[i]);
}

/* --- the refusal was read already ------------------------------------------------------------- */

/* With checksums a rank that sends reads what has arrived, for its acknowledgements, and the kernel
 * reports nothing new on the connection afterwards. */
TWILL_TEST_OF_RANKS(test_read_already, 2)
{
    struct refusal_ends ends;
    struct twill_transfer other[REFUSED_LANES];
    if (open_refusal_end(&ends, bootstrap, true)) {
        uint32_t peer = 1 - (uint32_t)rank;
        struct tcp_end *end = &ends.end;
        for (uint32_t l = 0; l <= REFUSED_LANES; l++)
            TWILL_CHECK(connect_channel(&ends, l));
        for (uint32_t l = 0; l < REFUSED_LANES; l++) {
            other[l] = transfer(rank == 0 ? TWILL_TRANSFER_RECV : TWILL_TRANSFER_SEND, peer, l + 1,
                                ends.small[2], 0);
            TWILL_CHECK(rank == 1 || post(end, &other[l]));
        }
        ends.refused = transfer(TWILL_TRANSFER_SEND, 1, 0, ends.large, REFUSED_BYTES);
        TWILL_CHECK(rank == 1 || post(end, &ends.refused));
        TWILL_CHECK(rank == 0 || refuse_large(&ends));
        TWILL_CHECK(rank_barrier(end));
        struct twill_tcp_channel *channel = channel_of(&ends);
        if (rank == 0)
            TWILL_CHECK(twill_tcp_records_look(channel->records, &end->end.error) == 1);
        uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
        for (channel->readable = false; rank == 0 && !channel->out.refused;)
            TWILL_CHECK(progress(end) >= 0 && twill_now() < limit);
        TWILL_CHECK(rank_barrier(end)); /* rank 1 has made no progress until here */
        for (uint32_t l = 0; l < REFUSED_LANES; l++)
            TWILL_CHECK(rank == 0 || post(end, &other[l]));
        ends.late = transfer(rank == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, peer, 0,
                             ends.small[1], 64);
        TWILL_CHECK(post(end, &ends.late) && twill_test_await(&end->end, &ends.late, 1));
        TWILL_CHECK(twill_test_await(&end->end, other, REFUSED_LANES));
        TWILL_CHECK(ends.refused.status == TWILL_ERR_MISMATCH && ends.late.status == TWILL_OK);
        TWILL_CHECK(rank_barrier(end));
    }
    close_refusal_end(&ends);
}

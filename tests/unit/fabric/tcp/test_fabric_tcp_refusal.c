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

/* A rank's messages: the one that is refused, and others. */
struct refused_messages {
    struct twill_transfer refused, next, early, late;
    unsigned char *large, small[3][64];
};

static bool open_with_sums(struct twill_test_end *end, const void *how)
{
    static const struct test_setting sums[] = {{"TWILL_CHECKSUM", "network"}, {NULL, NULL}};
    const struct twill_kernels *kernels;
    TWILL_REQUIRE(twill_kernels_select(&kernels, NULL, NULL) == TWILL_OK);
    end->params.crc32c = kernels->crc32c;
    end->params.setting = test_setting;
    end->params.settings = sums;
    return tcp_open(end, NULL);
}

/* Exchange a message on a channel, which connects it. */
static bool connect_channel(struct twill_test_end *end, uint32_t channel)
{
    unsigned char byte = 0;
    struct twill_transfer r = end_one_way(end, channel, &byte, 1);
    return end_complete(end, &r) && r.status == TWILL_OK;
}

/* Rank 1: receive less than what rank 0 sends, and have the kernel send the refusal. */
static bool refuse_large(struct twill_test_end *end, struct refused_messages *m)
{
    const struct twill_tcp_channel *channel = tcp_channel(end, 0);
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    m->refused = end_one_way(end, 0, m->large, REFUSED_WANTS);
    TWILL_REQUIRE(end_post(end, &m->refused));
    while (m->refused.status == TWILL_PENDING || channel->out.refuses || channel->out.refusing ||
           (channel->records != NULL && twill_tcp_records_unsent(channel->records)))
        TWILL_REQUIRE(end_works(end) && twill_now() < limit);
    return m->refused.status == TWILL_ERR_MISMATCH;
}

/* Rank 0: make progress until the SEND has ended. Then it was refused, and nothing else failed. */
static bool finds_refusal(struct twill_test_end *end, struct refused_messages *m)
{
    return end_await(end, &m->refused, 1) && TWILL_NOTE(m->refused.status == TWILL_ERR_MISMATCH &&
                                                            m->refused.peer_bytes == REFUSED_WANTS,
                                                        "SEND %d, %llu bytes", m->refused.status,
                                                        (unsigned long long)m->refused.peer_bytes);
}

/* --- the receiver has closed ------------------------------------------------------------------ */

/* Rank 0: the connection has ended, which the next SEND or RECV finds, but for a SEND in the
 * direction that is not closed. */
static bool finds_end(struct twill_test_end *end, const struct refused_messages *m)
{
    return end_until_failure(end) == TWILL_ERR_PEER && m->late.status == TWILL_PENDING;
}

static void send_to_closed(struct twill_test_end *end, const struct refusal_case *how,
                           struct refused_messages *m)
{
    TWILL_CHECK(end_post(end, &m->refused) && m->refused.status == TWILL_PENDING &&
                end_post(end, &m->next)); /* the kernel takes a part */
    TWILL_CHECK(how->more_sent == 0 || end_post(end, &m->early));
    TWILL_CHECK(!how->receives || end_post(end, &m->late));
    TWILL_CHECK(end_barrier(end)); /* it has made no progress until here */
    TWILL_CHECK(finds_refusal(end, m));
    TWILL_CHECK(how->more_sent == 0 || (m->early.status == TWILL_OK && m->small[1][63] == 9));
    TWILL_CHECK((how->half && !how->receives) || finds_end(end, m));
    twill_tcp_transport.cancel(end->transport);
}

static void refuse_and_close(struct twill_test_end *end, const struct refusal_case *how,
                             struct refused_messages *m)
{
    TWILL_CHECK(how->more_sent == 0 || end_complete(end, &m->early));
    TWILL_CHECK(refuse_large(end, m));
    if (how->half)
        TWILL_CHECK(shutdown(tcp_channel(end, 0)->fd, SHUT_WR) == 0);
    else
        end_close_more(end);
    TWILL_CHECK(end_barrier(end));
}

static void close_early(struct twill_test_end *end, void *user)
{
    const struct refusal_case *how = user;
    bool sends = end->rank == 0;
    struct refused_messages m = {.large = calloc(1, REFUSED_BYTES)};
    TWILL_CHECK(m.large != NULL && connect_channel(end, 0));
    m.refused = end_transfer(TWILL_TRANSFER_SEND, 1, 0, m.large, REFUSED_BYTES);
    m.next = end_transfer(TWILL_TRANSFER_SEND, 1, 0, m.small[0], 64);
    m.early = end_transfer(sends ? TWILL_TRANSFER_RECV : TWILL_TRANSFER_SEND, end->peer, 0,
                           m.small[1], 64);
    m.late = end_transfer(TWILL_TRANSFER_RECV, end->peer, 0, m.small[2], 64);
    m.late.status = TWILL_PENDING;
    memset(m.small[1], sends ? 0 : 9, 64);
    (sends ? send_to_closed : refuse_and_close)(end, how, &m);
    free(m.large);
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
        end_test_run((struct end_test){
            .ranks = 2, .open = tcp_open, .body = close_early, .user = (void *)&cases[i]});
}

/* --- the refusal was read already ------------------------------------------------------------- */

/* With checksums a rank that sends reads what has arrived, for its acknowledgements, and the kernel
 * reports nothing new on the connection afterwards. */
END_TEST(test_read_already, 2, false, open_with_sums, NULL)
{
    struct refused_messages m = {.large = calloc(1, REFUSED_BYTES)};
    struct twill_transfer other[REFUSED_LANES];
    bool sends = end->rank == 0;
    for (uint32_t l = 0; l <= REFUSED_LANES; l++)
        TWILL_CHECK(connect_channel(end, l));
    for (uint32_t l = 0; l < REFUSED_LANES; l++) {
        other[l] = end_transfer(sends ? TWILL_TRANSFER_RECV : TWILL_TRANSFER_SEND, end->peer, l + 1,
                                m.small[2], 0);
        TWILL_CHECK(!sends || end_post(end, &other[l]));
    }
    m.refused = end_transfer(TWILL_TRANSFER_SEND, 1, 0, m.large, REFUSED_BYTES);
    TWILL_CHECK(sends ? end_post(end, &m.refused) : refuse_large(end, &m));
    TWILL_CHECK(end_barrier(end));
    struct twill_tcp_channel *channel = tcp_channel(end, 0);
    if (sends)
        TWILL_CHECK(twill_tcp_records_look(channel->records, &end->error) == 1);
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    for (channel->readable = false; sends && !channel->out.refused;)
        TWILL_CHECK(end_works(end) && twill_now() < limit);
    TWILL_CHECK(end_barrier(end)); /* rank 1 has made no progress until here */
    for (uint32_t l = 0; l < REFUSED_LANES; l++)
        TWILL_CHECK(sends || end_post(end, &other[l]));
    m.late = end_one_way(end, 0, m.small[1], 64);
    TWILL_CHECK(end_complete(end, &m.late) && end_await(end, other, REFUSED_LANES));
    TWILL_CHECK(m.refused.status == TWILL_ERR_MISMATCH && m.late.status == TWILL_OK);
    TWILL_CHECK(end_barrier(end));
    free(m.large);
}

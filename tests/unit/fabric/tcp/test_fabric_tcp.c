/* SPDX-License-Identifier: Apache-2.0 */
/* Messages over the tcp transport, between ranks that are threads. */
#include "tests/support/tcp_ends.h"
#include "tests/support/unit.h"

/* --- what every transport must do ------------------------------------------------------------ */

static const size_t sizes[] = {0,
                               1,
                               8,
                               63,
                               64,
                               65,
                               1000,
                               TWILL_TCP_RX_BYTES - 1,
                               TWILL_TCP_RX_BYTES,
                               TWILL_TCP_RX_BYTES + 1,
                               TWILL_TCP_SCRATCH + 61,
                               (3u << 20) + 5};

static void rank_sweep(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct tcp_end end;
    if (end_open(&end, caller, user) && twill_test_early(&end.end) &&
        twill_test_sweep(&end.end, sizes, TWILL_ARRAY_LENGTH(sizes)) &&
        twill_test_mismatch(&end.end))
        rank_barrier(&end);
    end_close(&end);
}

TWILL_TEST(test_sweep)
{
    twill_test_run_ranks(2, rank_sweep, NULL);
    twill_test_run_ranks(3, rank_sweep, NULL);
}

static bool has_six(void)
{
    struct sockaddr_storage address;
    socklen_t length;
    if (!twill_endpoint_address("::1", 0, &address, &length))
        return false;
    int fd = twill_socket_listen((struct sockaddr *)&address, length, 1);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

TWILL_TEST(test_six)
{
    if (!has_six())
        skip();
    twill_test_run_ranks(2, rank_sweep, (void *)"::1");
}

static void rank_flood(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct tcp_end end;
    if (end_open(&end, caller, user) && twill_test_flood(&end.end, 60, 40000)) {
        const struct twill_transport_counters *c = &end.end.transport->counters;
        uint64_t messages = (uint64_t)(size - 1) * TWILL_LANES * 60;
        TWILL_NOTE(c->messages == messages && c->bytes > messages &&
                       c->header_bytes >= 16 * messages && c->header_bytes < 64 * messages,
                   "counters: %llu messages, %llu bytes, %llu of headers",
                   (unsigned long long)c->messages, (unsigned long long)c->bytes,
                   (unsigned long long)c->header_bytes);
        rank_barrier(&end);
    }
    end_close(&end);
}

TWILL_TEST(test_flood)
{
    twill_test_run_ranks(2, rank_flood, NULL);
    twill_test_run_ranks(4, rank_flood, NULL);
}

/* --- a sender far ahead of its receiver ------------------------------------------------------- */

#define TCP_AHEAD 3000

TWILL_TEST_OF_RANKS(test_ahead, 2)
{
    struct tcp_end end;
    if (end_open(&end, bootstrap, NULL)) {
        struct twill_transfer *r = calloc(TCP_AHEAD, sizeof(*r));
        uint32_t *data = calloc(TCP_AHEAD, sizeof(*data));
        for (uint32_t i = 0; rank == 0 && i < TCP_AHEAD; i++)
            data[i] = i;
        for (uint32_t i = 0; rank == 0 && i < TCP_AHEAD; i++) {
            r[i] = transfer(TWILL_TRANSFER_SEND, 1, 0, &data[i], sizeof(data[i]));
            post(&end, &r[i]);
        }
        uint64_t until = twill_now() + SECOND / 10;
        while (twill_now() < until && progress(&end) >= 0)
            ;
        for (uint32_t i = 0; rank == 1 && i < TCP_AHEAD; i++) {
            r[i] = transfer(TWILL_TRANSFER_RECV, 0, 0, &data[i], sizeof(data[i]));
            post(&end, &r[i]);
        }
        twill_test_await(&end.end, r, TCP_AHEAD);
        for (uint32_t i = 0; i < TCP_AHEAD; i++)
            if (!TWILL_NOTE(r[i].status == TWILL_OK && data[i] == i, "message %u: %d, holds %u", i,
                            r[i].status, data[i]))
                break;
        rank_barrier(&end);
        free(r);
        free(data);
    }
    end_close(&end);
}

/* --- a large message with a late RECV does not block other lanes ------------------------------ */

#define TCP_LARGE ((size_t)64 << 20)

TWILL_TEST_OF_RANKS(test_lanes, 2)
{
    struct tcp_end end;
    uint32_t peer = (uint32_t)(1 - rank);
    unsigned char *large = calloc(1, TCP_LARGE), small[64] = {0};
    if (end_open(&end, bootstrap, NULL)) {
        enum twill_transfer_kind kind = rank == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV;
        struct twill_transfer slow = transfer(kind, peer, 0, large, TCP_LARGE), quick;
        if (rank == 0)
            large[TCP_LARGE - 1] = 9;
        if (rank == 0)
            post(&end, &slow);
        for (unsigned i = 0; i < 20; i++) {
            small[0] = rank == 0 ? (unsigned char)i : 0xff;
            quick = transfer(kind, peer, 1, small, sizeof(small));
            if (!post(&end, &quick) || !twill_test_await(&end.end, &quick, 1))
                break;
            TWILL_NOTE(small[0] == i && (rank == 1 || slow.status == TWILL_PENDING),
                       "message %u, large one: %d", i, slow.status);
        }
        if (rank == 1)
            post(&end, &slow);
        twill_test_await(&end.end, &slow, 1);
        TWILL_NOTE(slow.status == TWILL_OK && large[TCP_LARGE - 1] == 9, "large: %d", slow.status);
        rank_barrier(&end);
    }
    end_close(&end);
    free(large);
}

/* --- both sides report a large message that does not match ------------------------------------ */

TWILL_TEST_OF_RANKS(test_refused, 2)
{
    struct tcp_end end;
    unsigned char *large = calloc(1, TCP_LARGE);
    if (end_open(&end, bootstrap, NULL)) {
        struct twill_transfer r = rank == 0 ? transfer(TWILL_TRANSFER_SEND, 1, 2, large, TCP_LARGE)
                                            : transfer(TWILL_TRANSFER_RECV, 0, 2, large, 4711);
        r.signature += (uint32_t)rank;
        post(&end, &r);
        twill_test_await(&end.end, &r, 1);
        TWILL_NOTE(r.status == TWILL_ERR_MISMATCH &&
                       r.peer_bytes == (rank == 0 ? 4711 : TCP_LARGE) &&
                       r.peer_signature == (rank == 0 ? 8 : 7),
                   "rank %d: %d, %llu bytes, signature %u", rank, r.status,
                   (unsigned long long)r.peer_bytes, r.peer_signature);
        /* Later messages arrive. */
        r = transfer(rank == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, (uint32_t)(1 - rank), 2,
                     large, 100000);
        post(&end, &r);
        twill_test_await(&end.end, &r, 1);
        TWILL_NOTE(r.status == TWILL_OK, "then: %d", r.status);
        rank_barrier(&end);
    }
    end_close(&end);
    free(large);
}

/* Rank 1 has to discard what rank 0 still sends, in its next wait. */
/* --- two communicators with one listener ------------------------------------------------------ */

TWILL_TEST_OF_RANKS(test_comms, 2)
{
    struct tcp_end end, other = {0};
    if (end_open(&end, bootstrap, NULL) && end_more(&other, &end, 17)) {
        struct tcp_end *order[2] = {rank == 0 ? &end : &other, rank == 0 ? &other : &end};
        struct twill_transfer r[4];
        unsigned char data[4][100];
        /* In opposite order, so that each accepts connections of the other first. */
        for (unsigned i = 0; i < 4; i++) {
            struct tcp_end *of = order[i / 2];
            memset(data[i], of == &end ? 1 : 2, sizeof(data[i]));
            r[i] = transfer(i % 2 == 0 ? TWILL_TRANSFER_RECV : TWILL_TRANSFER_SEND,
                            (uint32_t)(1 - rank), 5, data[i], sizeof(data[i]));
            if (i % 2 == 0)
                data[i][50] = 0;
            post(of, &r[i]);
        }
        uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
        unsigned done = 0;
        while (done < 4 && twill_now() < limit && progress(&end) >= 0 && progress(&other) >= 0)
            done += r[done].status != TWILL_PENDING;
        for (unsigned i = 0; i < 4; i++)
            TWILL_NOTE(r[i].status == TWILL_OK && data[i][50] == data[i][0], "rank %d, %u: %d",
                       rank, i, r[i].status);
        rank_barrier(&end);
    }
    if (other.end.transport != NULL)
        twill_tcp_transport.close(other.end.transport);
    end_close(&end);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of the tcp transport: unauthenticated connections, peers that give up or die, invalid
 * settings. */
#include "tests/support/noise.h"
#include "tests/support/tcp_ends.h"
#include "tests/support/unit.h"

/* --- unauthenticated connections ------------------------------------------------------------- */

/* What a connection sends to rank 1's listener. */
static const struct tcp_intruder {
    const char *says;
    size_t bytes;
    enum { NOISE, UNPROVEN, REPLAY } kind;
} intruders[] = {
    {"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: everything\r\n\r\n", 54, NOISE},
    {"", 0, NOISE},
    {"\x02\x01", 2, NOISE},
    {NULL, 0, UNPROVEN}, /* a valid call with a wrong proof */
    {NULL, 0, REPLAY},   /* a copy of rank 0's call, without a valid reply */
};

static int knock(const struct twill_tcp *t, const struct tcp_intruder *intruder)
{
    const struct twill_tcp_address *to = &t->common->address[1];
    int fd = socket(to->at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct twill_tcp_channel channel = {.peer = t->peers[1], .number = 4};
    struct twill_hello hello;
    if (fd < 0 || !twill_tcp_hello_call(t, &channel, &hello) ||
        connect(fd, &to->at.any, to->length) != 0)
        return -1;
    struct twill_hello_call *call = &hello.said.call;
    call->proof[3] ^= intruder->kind == UNPROVEN;
    const void *what = intruder->kind == NOISE ? intruder->says : (const void *)call;
    size_t bytes = intruder->kind == NOISE ? intruder->bytes : sizeof(*call);
    if (send(fd, what, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
        return -1;
    if (intruder->kind == REPLAY &&
        send(fd, hello.reply, sizeof(hello.reply), MSG_NOSIGNAL) != sizeof(hello.reply))
        return -1;
    shutdown(fd, SHUT_WR);
    return fd;
}

TWILL_TEST_OF_RANKS(test_intruders, 2)
{
    struct tcp_end end;
    int fd[TWILL_ARRAY_LENGTH(intruders)];
    if (end_open(&end, bootstrap, NULL)) {
        struct twill_tcp *t = (struct twill_tcp *)end.end.transport;
        for (size_t i = 0; rank == 0 && i < TWILL_ARRAY_LENGTH(intruders); i++)
            TWILL_NOTE((fd[i] = knock(t, &intruders[i])) >= 0, "knock: %s", strerror(errno));
        rank_barrier(&end);
        char data[8] = "genuine";
        struct twill_transfer r =
            transfer(rank == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, (uint32_t)(1 - rank), 4,
                     rank == 0 ? data : memset(data, 0, 8), sizeof(data));
        post(&end, &r);
        twill_test_await(&end.end, &r, 1);
        TWILL_NOTE(r.status == TWILL_OK && strcmp(data, "genuine") == 0, "%d: %s", r.status, data);
        uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
        while (rank == 1 && t->common->rejected < TWILL_ARRAY_LENGTH(intruders) &&
               twill_now() < limit)
            twill_tcp_common_adopt(t, &end.end.error);
        TWILL_NOTE(t->common->rejected == (rank == 1 ? TWILL_ARRAY_LENGTH(intruders) : 0),
                   "%u rejected", t->common->rejected);
        rank_barrier(&end);
        for (size_t i = 0; rank == 0 && i < TWILL_ARRAY_LENGTH(intruders); i++)
            close(fd[i]);
    }
    end_close(&end);
}

/* --- slow connections ------------------------------------------------------------------------ */

static bool incoming_are(struct tcp_end *end, unsigned count)
{
    struct twill_tcp *t = (struct twill_tcp *)end->end.transport;
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    while (t->common->incoming_count != count && twill_now() < limit)
        TWILL_REQUIRE(progress(end) >= 0);
    return TWILL_NOTE(t->common->incoming_count == count, "%u incoming, not %u",
                      t->common->incoming_count, count);
}

/* Rank 0 starts to connect and leaves the library for long, while rank 1 waits for it. */
TWILL_TEST_OF_RANKS(test_away, 2)
{
    struct tcp_end end;
    if (end_open(&end, bootstrap, NULL)) {
        struct twill_tcp *t = (struct twill_tcp *)end.end.transport;
        char data[8] = "late";
        struct twill_transfer r =
            transfer(rank == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, (uint32_t)(1 - rank), 0,
                     rank == 0 ? data : memset(data, 0, 8), sizeof(data));
        post(&end, &r);
        if (rank == 1 && incoming_are(&end, 2)) {
            for (struct twill_tcp_incoming *g = t->common->incoming_list; g != NULL; g = g->next)
                g->until = 0;
            for (unsigned i = 0; i < 100; i++)
                progress(&end);
            incoming_are(&end, 2);
        }
        rank_barrier(&end);
        twill_test_await(&end.end, &r, 1);
        TWILL_NOTE(r.status == TWILL_OK && strcmp(data, "late") == 0, "%d: %s", r.status, data);
        rank_barrier(&end);
    }
    end_close(&end);
}

/* A peer ends before a channel is connected on which nothing was posted: only requests on that
 * channel fail. */
TWILL_TEST_OF_RANKS(test_ended, 2)
{
    struct tcp_end end;
    if (end_open(&end, bootstrap, NULL)) {
        struct twill_tcp *t = (struct twill_tcp *)end.end.transport;
        char data[8] = "last";
        enum { next = TWILL_NODE_LANES / TWILL_WINDOW };
        struct twill_transfer r = transfer(rank == 0 ? TWILL_TRANSFER_RECV : TWILL_TRANSFER_SEND,
                                           (uint32_t)(1 - rank), 0, data, sizeof(data));
        post(&end, &r);
        if (rank == 0)
            t->busy_count--; /* the next channel, as if a packet was lost */
        twill_test_await(&end.end, &r, 1);
        rank_barrier(&end);
        if (rank == 1) {
            twill_tcp_transport.close(end.end.transport);
            end.common->close(end.common);
            end.end.transport = NULL;
            end.common = NULL;
        }
        rank_barrier(&end);
        if (rank == 0) {
            struct twill_tcp_channel *channel = &t->peers[1]->channels[next];
            uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
            int moved = 0;
            channel->busy = false;
            twill_tcp_busy(t, channel);
            while (channel->state != TWILL_TCP_LOST && moved >= 0 && twill_now() < limit)
                moved = progress(&end);
            TWILL_NOTE(moved >= 0 && channel->state == TWILL_TCP_LOST, "%d: %s", moved,
                       end.end.error.message);
            r = transfer(TWILL_TRANSFER_RECV, 1, next, data, sizeof(data));
            twill_status status = twill_tcp_transport.post(&t->base, &r, &end.end.error);
            TWILL_NOTE(status == TWILL_ERR_PEER, "%d: %s", status, end.end.error.message);
        }
    }
    end_close(&end);
}

/* Connections for a communicator that was freed are not kept. */
static void rank_past(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct tcp_end end, other = {0};
    atomic_int *over = user;
    if (end_open(&end, caller, NULL) && end_more(&other, &end, 17)) {
        struct twill_tcp *t = (struct twill_tcp *)end.end.transport;
        struct twill_transfer vain = transfer(TWILL_TRANSFER_SEND, 1, 0, NULL, 0);
        uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
        if (rank == 1) {
            twill_tcp_transport.close(other.end.transport);
            other.end.transport = NULL;
        }
        rank_barrier(&end);
        if (rank == 0 && post(&other, &vain)) {
            while (progress(&other) >= 0 && vain.status == TWILL_PENDING && twill_now() < limit)
                ;
            atomic_store(over, 1);
        }
        while (rank == 1 && (!atomic_load(over) || t->common->incoming_count > 1) &&
               twill_now() < limit)
            TWILL_CHECK(twill_tcp_common_adopt(t, &end.end.error) >= 0);
        TWILL_NOTE(atomic_load(over) && t->common->incoming_count <= 1, "%u incoming",
                   t->common->incoming_count);
        rank_barrier(&end);
    }
    if (other.end.transport != NULL)
        twill_tcp_transport.close(other.end.transport);
    end_close(&end);
}

TWILL_TEST(test_past)
{
    atomic_int over = 0;
    twill_test_run_ranks(2, rank_past, &over);
}

/* --- failure --------------------------------------------------------------------------------- */

/* Make progress until the first `channels` channels to a peer are connected. */
static bool connect_channels(struct tcp_end *end, uint32_t peer, unsigned channels)
{
    const struct twill_tcp *t = (const struct twill_tcp *)end->end.transport;
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    for (unsigned i = 0; i < channels; i++)
        while (t->peers[peer]->channels[i].state != TWILL_TCP_OPEN)
            TWILL_REQUIRE(progress(end) >= 0 && twill_now() < limit);
    return true;
}

/* Rank 0 gives up with everything posted; rank 1 detects it at once, on the channel it uses. */
TWILL_TEST_OF_RANKS(test_cancel, 2)
{
    struct tcp_end end;
    enum { n = 6 };
    if (end_open(&end, bootstrap, NULL)) {
        struct twill_transfer *r = (struct twill_transfer *)(void *)page_map(1u << 20);
        unsigned char *data = page_map((size_t)n << 24);
        for (unsigned i = 0; i < n; i++) {
            r[i] = transfer(i % 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, (uint32_t)(1 - rank),
                            i / 2, data + ((size_t)i << 24), (1u << 24) - (unsigned)rank);
            r[i].signature += (uint32_t)rank * (i % 2); /* none matches */
            if (i != 0)
                post(&end, &r[i]);
        }
        (void)connect_channels(&end, (uint32_t)(1 - rank),
                               n / 2); /* or rank 1 has nothing to detect */
        uint64_t until = twill_now() + SECOND / 20;
        while (twill_now() < until && progress(&end) >= 0)
            ;
        rank_barrier(&end);
        if (rank == 0) {
            twill_tcp_transport.cancel(end.end.transport);
            munmap(data, (size_t)n << 24);
            munmap(r, 1u << 20);
            struct twill_transfer late = transfer(TWILL_TRANSFER_SEND, 1, 0, NULL, 0);
            TWILL_NOTE(twill_tcp_transport.post(end.end.transport, &late, NULL) ==
                               TWILL_ERR_BROKEN &&
                           twill_tcp_transport.progress(end.end.transport, NULL) < 0,
                       "a cancelled transport still works");
        } else {
            post(&end, &r[0]); /* its message never comes */
            int moved = 0;
            uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
            while ((moved = progress(&end)) >= 0 && twill_now() < limit)
                ;
            TWILL_NOTE(moved == TWILL_ERR_PEER && strstr(end.end.error.message, "rank 0") != NULL,
                       "%d: %s", moved, end.end.error.message);
            twill_tcp_transport.cancel(end.end.transport);
            munmap(data, (size_t)n << 24);
            munmap(r, 1u << 20);
        }
        rank_barrier(&end);
    }
    end_close(&end);
}

#define HUGE_BYTES ((size_t)64 << 20)

/* A killed peer is detected by a rank that receives from it, and by one that sends to it. */
static void rank_death(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct tcp_end end;
    enum twill_transfer_kind kind = *(const enum twill_transfer_kind *)user;
    if (rank == 1)
        twill_test_expect_death(1);
    TWILL_CHECK(end_open(&end, caller, NULL));
    char word[8] = "hello";
    struct twill_transfer r = transfer(rank == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                       (uint32_t)(1 - rank), 0, word, sizeof(word));
    TWILL_CHECK(post(&end, &r) && twill_test_await(&end.end, &r, 1));
    if (rank == 1)
        _exit(9);
    unsigned char *data = calloc(1, HUGE_BYTES);
    r = transfer(kind, 1, 0, data, HUGE_BYTES);
    twill_status status = twill_tcp_transport.post(end.end.transport, &r, &end.end.error);
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    while (status == TWILL_OK && twill_now() < limit) {
        int moved = progress(&end);
        status = moved < 0 ? (twill_status)moved : TWILL_OK;
    }
    TWILL_NOTE(status == TWILL_ERR_PEER && strstr(end.end.error.message, "rank 1") != NULL &&
                   r.status == TWILL_PENDING,
               "%d: %s", status, end.end.error.message);
    twill_tcp_transport.cancel(end.end.transport);
    free(data);
    end_close(&end);
}

TWILL_TEST(test_death)
{
    enum twill_transfer_kind kinds[] = {TWILL_TRANSFER_SEND, TWILL_TRANSFER_RECV};
    twill_test_run_processes(2, rank_death, &kinds[0]);
    twill_test_run_processes(2, rank_death, &kinds[1]);
}

/* Rank 1's sockets drop all that arrives, as if its host had vanished, while rank 0 sends to it. */
TWILL_TEST_OF_RANKS(test_vanishes, 2)
{
    struct tcp_end end;
    if (end_open(&end, bootstrap, NULL)) {
        struct twill_tcp *t = (struct twill_tcp *)end.end.transport;
        char word[8] = "hello";
        struct twill_transfer r = transfer(rank == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                           (uint32_t)(1 - rank), 0, word, sizeof(word));
        if (post(&end, &r))
            twill_test_await(&end.end, &r, 1);
        TWILL_CHECK(rank == 0 || twill_test_deafen(t->peers[0]->channels[0].fd));
        rank_barrier(&end);
        unsigned char *data = calloc(1, HUGE_BYTES);
        struct twill_transfer huge = transfer(TWILL_TRANSFER_SEND, 1, 0, data, HUGE_BYTES);
        uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
        int moved = 0;
        if (rank == 0 && post(&end, &huge)) {
            while (moved >= 0 && twill_now() < limit)
                moved = progress(&end);
            TWILL_NOTE(moved == TWILL_ERR_PEER &&
                           strstr(end.end.error.message, "rank 1 has died") != NULL &&
                           strstr(end.end.error.message, strerror(ETIMEDOUT)) != NULL,
                       "%d: %s", moved, end.end.error.message);
        }
        rank_barrier(&end);
        twill_tcp_transport.cancel(end.end.transport);
        free(data);
    }
    end_close(&end);
}

#define FLUSHED (48u << 10) /* below what the kernel buffers for a peer that does not read */

/* What was sent arrives although its sender closed at once, with unread input. */
TWILL_TEST_OF_RANKS(test_flush, 2)
{
    struct tcp_end end;
    unsigned char *data = malloc(FLUSHED);
    memset(data, rank == 0 ? 5 : 0, FLUSHED);
    if (end_open(&end, bootstrap, NULL)) {
        struct twill_transfer r = transfer(rank == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                           (uint32_t)(1 - rank), 0, data, FLUSHED);
        char more[100] = {0};
        struct twill_transfer vain = transfer(TWILL_TRANSFER_SEND, 0, 0, more, sizeof(more));
        if (rank == 1 && post(&end, &vain))
            twill_test_await(&end.end, &vain, 1);
        if (rank == 0 && post(&end, &r)) /* connects; the other waits for that */
            twill_test_await(&end.end, &r, 1);
        rank_barrier(&end);
        if (rank == 0) {
            twill_tcp_transport.close(end.end.transport);
            end.end.transport = NULL;
        }
        rank_barrier(&end);
        if (rank == 1 && post(&end, &r))
            twill_test_await(&end.end, &r, 1);
        TWILL_NOTE(r.status == TWILL_OK && data[0] == 5 && data[FLUSHED - 1] == 5, "%d", r.status);
        rank_barrier(&end);
    }
    end_close(&end);
    free(data);
}

/* --- invalid settings ------------------------------------------------------------------------- */

static const struct tcp_setting {
    const char *interface, *congestion, *says;
    twill_status status;
} settings[] = {{"eth99", NULL, "TWILL_INTERFACE=eth99", TWILL_ERR_CONFIG},
                {NULL, "sundial", "TWILL_TUNE=congestion=sundial", TWILL_ERR_CONFIG},
                {"lo", NULL, "127.0.0.1", TWILL_OK},
                {NULL, "reno", "congestion control reno", TWILL_OK}};

/* Rank 0 has a setting that rank 1 has not: both must report that it is invalid. */
static void rank_setting(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct tcp_setting *s = user;
    const struct test_setting own[] = {{"TWILL_TUNE=congestion", rank == 0 ? s->congestion : NULL},
                                       {NULL, NULL}};
    struct twill_oob *oob = twill_test_oob(caller);
    struct twill_error error = {0};
    struct twill_transport *transport = NULL;
    struct twill_transport_params params = {.oob = oob,
                                            .interface = rank == 0 ? s->interface : NULL,
                                            .setting = test_setting,
                                            .settings = own};
    twill_status status = twill_tcp_transport.open(&transport, &params, &error);
    const char *text = status == TWILL_OK ? twill_tcp_transport.describe(transport) : error.message;
    TWILL_NOTE(status == s->status && (transport != NULL) == (status == TWILL_OK),
               "rank %d: %d: %s", rank, status, text);
    TWILL_NOTE((status == TWILL_OK && rank == 1) || strstr(text, s->says) != NULL,
               "\"%s\" does not say \"%s\"", text, s->says);
    if (transport != NULL)
        twill_tcp_transport.close(transport);
    twill_test_oob_close(oob);
}

TWILL_TEST(test_settings)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(settings); i++)
        twill_test_run_ranks(2, rank_setting, (void *)&settings[i]);
}

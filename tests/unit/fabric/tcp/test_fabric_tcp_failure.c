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

/* Exchange a word from rank 0 to rank 1. */
static bool word_arrives(struct twill_test_end *end, uint32_t lane, const char *word)
{
    char data[16] = "";
    if (end->rank == 0)
        strcpy(data, word);
    struct twill_transfer r = end_one_way(end, lane, data, sizeof(data));
    return end_complete(end, &r) &&
           TWILL_NOTE(r.status == TWILL_OK && strcmp(data, word) == 0, "%d: %s", r.status, data);
}

TCP_TEST(test_intruders, 2)
{
    const unsigned count = TWILL_ARRAY_LENGTH(intruders);
    int fd[TWILL_ARRAY_LENGTH(intruders)];
    struct twill_tcp *t = tcp_of(end);
    for (size_t i = 0; end->rank == 0 && i < count; i++)
        TWILL_CHECK((fd[i] = knock(t, &intruders[i])) >= 0, "knock: %s", strerror(errno));
    TWILL_CHECK(end_barrier(end) && word_arrives(end, 4, "genuine"));
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    while (end->rank == 1 && t->common->rejected < count && twill_now() < limit)
        twill_tcp_common_adopt(t, &end->error);
    TWILL_CHECK(t->common->rejected == (end->rank == 1 ? count : 0), "%u rejected",
                t->common->rejected);
    TWILL_CHECK(end_barrier(end));
    for (size_t i = 0; end->rank == 0 && i < count; i++)
        close(fd[i]);
}

/* --- slow connections ------------------------------------------------------------------------ */

static bool incoming_are(struct twill_test_end *end, unsigned count)
{
    const struct twill_tcp_common *common = tcp_of(end)->common;
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    while (common->incoming_count != count && twill_now() < limit)
        TWILL_REQUIRE(end_works(end));
    return TWILL_NOTE(common->incoming_count == count, "%u incoming, not %u",
                      common->incoming_count, count);
}

/* Rank 0 starts to connect and leaves the library for long, while rank 1 waits for it. */
TCP_TEST(test_away, 2)
{
    char data[8] = "";
    if (end->rank == 0)
        strcpy(data, "late");
    struct twill_transfer r = end_one_way(end, 0, data, sizeof(data));
    TWILL_CHECK(end_post(end, &r));
    if (end->rank == 1) {
        TWILL_CHECK(incoming_are(end, 2));
        struct twill_tcp_incoming *g = tcp_of(end)->common->incoming_list;
        for (; g != NULL; g = g->next)
            g->until = 0;
        for (unsigned i = 0; i < 100; i++)
            TWILL_CHECK(end_works(end));
        TWILL_CHECK(incoming_are(end, 2));
    }
    TWILL_CHECK(end_barrier(end) && end_await(end, &r, 1));
    TWILL_CHECK(r.status == TWILL_OK && strcmp(data, "late") == 0, "%d: %s", r.status, data);
}

/* A peer ends before a channel is connected on which nothing was posted: only requests on that
 * channel fail. */
TCP_TEST(test_ended, 2)
{
    enum { next = TWILL_NODE_LANES / TWILL_WINDOW };
    struct twill_tcp *t = tcp_of(end);
    char data[8] = "last";
    struct twill_transfer r =
        end_transfer(end->rank == 0 ? TWILL_TRANSFER_RECV : TWILL_TRANSFER_SEND, end->peer, 0, data,
                     sizeof(data));
    TWILL_CHECK(end_post(end, &r));
    if (end->rank == 0)
        t->busy_count--; /* the next channel, as if a packet was lost */
    TWILL_CHECK(end_await(end, &r, 1) && end_barrier(end));
    if (end->rank == 1) {
        end_close_more(end);
        end->common->close(end->common);
        end->common = NULL;
    }
    TWILL_CHECK(end_barrier(end));
    if (end->rank == 0) {
        struct twill_tcp_channel *channel = tcp_channel(end, next);
        uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
        channel->busy = false;
        twill_tcp_busy(t, channel);
        while (channel->state != TWILL_TCP_LOST)
            TWILL_CHECK(end_works(end) && twill_now() < limit);
        r = end_transfer(TWILL_TRANSFER_RECV, 1, next, data, sizeof(data));
        twill_status status = twill_tcp_transport.post(&t->base, &r, &end->error);
        TWILL_CHECK(status == TWILL_ERR_PEER, "%d: %s", status, end->error.message);
    }
}

/* Connections for a communicator that was freed are not kept. */
static void connect_to_past(struct twill_test_end *end, void *user)
{
    atomic_int *over = user;
    struct twill_test_end other;
    struct twill_tcp *t = tcp_of(end);
    struct twill_transfer vain = end_transfer(TWILL_TRANSFER_SEND, 1, 0, NULL, 0);
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    TWILL_CHECK(end_more(&other, end, 17));
    if (end->rank == 1)
        end_close_more(&other);
    TWILL_CHECK(end_barrier(end));
    if (end->rank == 0) {
        TWILL_CHECK(end_post(&other, &vain));
        while (end_progress(&other) >= 0 && vain.status == TWILL_PENDING && twill_now() < limit)
            ;
        atomic_store(over, 1);
    }
    while (end->rank == 1 && (!atomic_load(over) || t->common->incoming_count > 1) &&
           twill_now() < limit)
        TWILL_CHECK(twill_tcp_common_adopt(t, &end->error) >= 0);
    TWILL_CHECK(atomic_load(over) && t->common->incoming_count <= 1, "%u incoming",
                t->common->incoming_count);
    TWILL_CHECK(end_barrier(end));
    end_close_more(&other);
}

TWILL_TEST(test_past)
{
    atomic_int over = 0;
    end_test_run(
        (struct end_test){.ranks = 2, .open = tcp_open, .body = connect_to_past, .user = &over});
}

/* --- failure --------------------------------------------------------------------------------- */

/* Make progress until the first `channels` channels to the peer are connected. */
static bool connect_channels(struct twill_test_end *end, unsigned channels)
{
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    for (unsigned i = 0; i < channels; i++)
        while (tcp_channel(end, i)->state != TWILL_TCP_OPEN)
            TWILL_REQUIRE(end_works(end) && twill_now() < limit);
    return true;
}

/* Rank 0 gives up with everything posted; rank 1 detects it at once, on the channel it uses. */
TCP_TEST(test_cancel, 2)
{
    enum { n = 6 };
    struct twill_transfer *r = (struct twill_transfer *)(void *)page_map(1u << 20);
    unsigned char *data = page_map((size_t)n << 24);
    for (unsigned i = 0; i < n; i++) {
        r[i] = end_transfer(i % 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, end->peer, i / 2,
                            data + ((size_t)i << 24), (1u << 24) - end->rank);
        r[i].signature += end->rank * (i % 2); /* none matches */
        TWILL_CHECK(i == 0 || end_post(end, &r[i]));
    }
    TWILL_CHECK(connect_channels(end, n / 2)); /* or rank 1 has nothing to detect */
    (void)end_linger(end, SECOND / 20);
    TWILL_CHECK(end_barrier(end));
    if (end->rank == 1) {
        TWILL_CHECK(end_post(end, &r[0])); /* its message never comes */
        int moved = end_until_failure(end);
        TWILL_CHECK(moved == TWILL_ERR_PEER && strstr(end->error.message, "rank 0") != NULL,
                    "%d: %s", moved, end->error.message);
    }
    twill_tcp_transport.cancel(end->transport);
    munmap(data, (size_t)n << 24);
    munmap(r, 1u << 20);
    struct twill_transfer late = end_one_way(end, 0, NULL, 0);
    TWILL_CHECK(twill_tcp_transport.post(end->transport, &late, NULL) == TWILL_ERR_BROKEN);
    TWILL_CHECK(twill_tcp_transport.progress(end->transport, NULL) < 0);
}

#define HUGE_BYTES ((size_t)64 << 20)

/* A killed peer is detected by a rank that receives from it, and by one that sends to it. */
static void lose_peer(struct twill_test_end *end, void *user)
{
    const enum twill_transfer_kind *kind = user;
    if (end->rank == 1)
        twill_test_expect_death(1);
    TWILL_CHECK(word_arrives(end, 0, "hello"));
    if (end->rank == 1)
        _exit(9);
    unsigned char *data = calloc(1, HUGE_BYTES);
    struct twill_transfer r = end_transfer(*kind, 1, 0, data, HUGE_BYTES);
    int status = twill_tcp_transport.post(end->transport, &r, &end->error);
    if (status == TWILL_OK)
        status = end_until_failure(end);
    TWILL_CHECK(status == TWILL_ERR_PEER && strstr(end->error.message, "rank 1") != NULL &&
                    r.status == TWILL_PENDING,
                "%d: %s", status, end->error.message);
    twill_tcp_transport.cancel(end->transport);
    free(data);
}

TWILL_TEST(test_death)
{
    enum twill_transfer_kind kinds[] = {TWILL_TRANSFER_SEND, TWILL_TRANSFER_RECV};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(kinds); i++)
        end_test_run((struct end_test){
            .ranks = 2, .processes = true, .open = tcp_open, .body = lose_peer, .user = &kinds[i]});
}

/* Rank 1's sockets drop all that arrives, as if its host had vanished, while rank 0 sends to it. */
TCP_TEST(test_vanishes, 2)
{
    TWILL_CHECK(word_arrives(end, 0, "hello"));
    TWILL_CHECK(end->rank == 0 || twill_test_deafen(tcp_channel(end, 0)->fd));
    TWILL_CHECK(end_barrier(end));
    unsigned char *data = calloc(1, HUGE_BYTES);
    struct twill_transfer huge = end_transfer(TWILL_TRANSFER_SEND, 1, 0, data, HUGE_BYTES);
    if (end->rank == 0) {
        TWILL_CHECK(end_post(end, &huge));
        int moved = end_until_failure(end);
        TWILL_CHECK(moved == TWILL_ERR_PEER &&
                        strstr(end->error.message, "rank 1 has died") != NULL &&
                        strstr(end->error.message, strerror(ETIMEDOUT)) != NULL,
                    "%d: %s", moved, end->error.message);
    }
    TWILL_CHECK(end_barrier(end));
    twill_tcp_transport.cancel(end->transport);
    free(data);
}

#define FLUSHED (48u << 10) /* below what the kernel buffers for a peer that does not read */

/* What was sent arrives although its sender closed at once, with unread input. */
TCP_TEST(test_flush, 2)
{
    unsigned char *data = malloc(FLUSHED);
    char more[100] = {0};
    struct twill_transfer r = end_one_way(end, 0, data, FLUSHED);
    struct twill_transfer vain = end_transfer(TWILL_TRANSFER_SEND, 0, 0, more, sizeof(more));
    memset(data, end->rank == 0 ? 5 : 0, FLUSHED);
    /* Rank 0 connects; the other waits for that. */
    TWILL_CHECK(end_complete(end, end->rank == 0 ? &r : &vain) && end_barrier(end));
    if (end->rank == 0)
        end_close_more(end);
    TWILL_CHECK(end_barrier(end));
    TWILL_CHECK(end->rank == 0 || end_complete(end, &r));
    TWILL_CHECK(r.status == TWILL_OK && data[0] == 5 && data[FLUSHED - 1] == 5, "%d", r.status);
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

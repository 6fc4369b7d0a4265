/* SPDX-License-Identifier: Apache-2.0 */
/* The tcp transport with checksums and with encryption, also through a proxy that damages or
 * attacks what it forwards. */
#include "kernels/kernels.h"
#include "tests/support/proxy.h"
#include "tests/support/tcp_ends.h"
#include "tests/support/unit.h"

enum mode { PLAIN, CHECKED, SEALED, SEALED_CHACHA };

static const struct test_setting settings[][2] = {
    [PLAIN] = {{NULL, NULL}},
    [CHECKED] = {{"TWILL_CHECKSUM", "network"}, {NULL, NULL}},
    [SEALED] = {{"TWILL_ENCRYPT", "1"}, {NULL, NULL}},
    [SEALED_CHACHA] = {{"TWILL_ENCRYPT", "1"}, {NULL, NULL}},
};

/* Open a rank's end on loopback. */
static bool open_end_of(struct tcp_end *end, twill_bootstrap *caller, enum mode mode,
                        uint32_t epoch)
{
    const struct twill_kernels *kernels;
    memset(end, 0, sizeof(*end));
    end->oob = twill_test_oob(caller);
    TWILL_REQUIRE(end->oob != NULL);
    memset(end->oob->nonce, 7, sizeof(end->oob->nonce)); /* all runs are of one job */
    end->oob->epoch = epoch;
    TWILL_REQUIRE(twill_kernels_select(&kernels, NULL, NULL) == TWILL_OK);
    end->end.rank = (uint32_t)caller->rank;
    end->end.size = (uint32_t)caller->size;
    end->params = (struct twill_transport_params){.oob = end->oob,
                                                  .interface = "127.0.0.1",
                                                  .common = &end->common,
                                                  .crc32c = kernels->crc32c,
                                                  .setting = test_setting,
                                                  .settings = settings[mode]};
    TWILL_REQUIRE(end_more(end, end, 1));
    if (mode == SEALED_CHACHA) /* as if a rank's CPU had no instructions for AES */
        ((struct twill_tcp *)end->end.transport)->common->protection.aes = false;
    return true;
}

static bool open_end(struct tcp_end *end, twill_bootstrap *caller, enum mode mode)
{
    return open_end_of(end, caller, mode, 0);
}

/* --- nothing happens on the way --------------------------------------------------------------- */

static const size_t sizes[] = {0,
                               1,
                               65,
                               TWILL_TCP_RX_BYTES + 1,
                               TWILL_TCP_RECORD - 48,
                               TWILL_TCP_RECORD - 47,
                               TWILL_TCP_SCRATCH + 61,
                               (3u << 20) + 5};

static void rank_sweep(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct tcp_end end;
    if (open_end(&end, caller, *(enum mode *)user) &&
        twill_test_sweep(&end.end, sizes, TWILL_ARRAY_LENGTH(sizes)) &&
        twill_test_mismatch(&end.end) && twill_test_early(&end.end) &&
        twill_test_flood(&end.end, 60, 40000))
        rank_barrier(&end);
    end_close(&end);
}

TWILL_TEST(test_sweep)
{
    for (enum mode mode = CHECKED; mode <= SEALED_CHACHA; mode++)
        twill_test_run_ranks(mode == CHECKED ? 3 : 2, rank_sweep, &mode);
}

/* Rank 1 sends before rank 0 takes any of it, and acknowledgements lie behind that. */
static void rank_crossed(int rank, int size, twill_bootstrap *caller, void *user)
{
    const size_t bytes = 4u << 20;
    struct tcp_end end;
    unsigned char *out = malloc(bytes), *in = calloc(1, bytes);
    if (open_end(&end, caller, *(enum mode *)user)) {
        uint32_t peer = 1 - (uint32_t)rank;
        memset(out, rank + 1, bytes);
        struct twill_transfer send = transfer(TWILL_TRANSFER_SEND, peer, 0, out, bytes);
        struct twill_transfer recv = transfer(TWILL_TRANSFER_RECV, peer, 0, in, bytes);
        bool fine = post(&end, &send) && (rank == 0 || post(&end, &recv)) &&
                    (rank == 1 || twill_test_await(&end.end, &send, 1)) &&
                    (rank == 1 || post(&end, &recv)) && twill_test_await(&end.end, &send, 1) &&
                    twill_test_await(&end.end, &recv, 1);
        if (fine && in[0] == 2 - rank && memcmp(in, in + 1, bytes - 1) == 0)
            rank_barrier(&end);
        else
            TWILL_NOTE(false, "rank %d: %d %d, first byte %d", rank, send.status, recv.status,
                       in[0]);
    }
    free(out);
    free(in);
    end_close(&end);
}

TWILL_TEST(test_crossed)
{
    for (enum mode mode = CHECKED; mode <= SEALED; mode++)
        twill_test_run_ranks(2, rank_crossed, &mode);
}

/* Rank 0 sends until its kernel takes no more, and then makes no call: what was sent arrives. */
#define FULL_BYTES    (60u << 10) /* of a message: four records */
#define FULL_MESSAGES 1000u
#define FULL_POLLS    200u /* in vain */

/* Send until a message is not complete, which is left in *send. Returns how many are complete. */
static int send_until_full(struct tcp_end *end, struct twill_transfer *send, unsigned char *data)
{
    for (int sent = 0; sent < (int)FULL_MESSAGES; sent++) {
        *send = transfer(TWILL_TRANSFER_SEND, 1, 0, data, FULL_BYTES);
        if (!post(end, send))
            return -1;
        for (unsigned vain = 0; send->status == TWILL_PENDING; vain++) {
            int moved = progress(end);
            if (moved < 0)
                return -1;
            vain = moved > 0 ? 0 : vain;
            if (vain >= FULL_POLLS && sent > 0) /* it has a connection */
                return sent;
        }
    }
    return -1;
}

static void rank_full(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct tcp_end end;
    unsigned char *data = calloc(1, FULL_BYTES);
    struct twill_transfer first = {0}, send = {0};
    int sent = -1, all[2];
    if (open_end(&end, caller, *(enum mode *)user)) {
        first = transfer(TWILL_TRANSFER_RECV, 0, 0, data, FULL_BYTES);
        if (rank == 1) /* connect */
            TWILL_CHECK(post(&end, &first) && twill_test_await(&end.end, &first, 1));
        else
            sent = send_until_full(&end, &send, data);
        TWILL_CHECK(twill_oob_allgather(end.oob, &sent, all, sizeof(sent), &end.end.error) ==
                        TWILL_OK &&
                    all[0] > 1);
        for (int i = 1; i < all[0] && rank == 1 && !twill_test_failed(); i++) {
            struct twill_transfer next = transfer(TWILL_TRANSFER_RECV, 0, 0, data, FULL_BYTES);
            TWILL_CHECK(post(&end, &next) && twill_test_await(&end.end, &next, 1));
        }
        TWILL_CHECK(rank_barrier(&end)); /* rank 0 has made no progress until here */
        if (rank == 0)
            TWILL_CHECK(twill_test_await(&end.end, &send, 1));
        first = transfer(TWILL_TRANSFER_RECV, 0, 0, data, FULL_BYTES);
        if (rank == 1)
            TWILL_CHECK(post(&end, &first) && twill_test_await(&end.end, &first, 1));
        TWILL_CHECK(rank_barrier(&end));
    }
    free(data);
    end_close(&end);
}

TWILL_TEST(test_full)
{
    for (enum mode mode = PLAIN; mode <= SEALED; mode++)
        twill_test_run_ranks(2, rank_full, &mode);
}

/* Rank 0's kernel takes a part of a message, and rank 1 closes before rank 0 goes on. Either rank 1
 * has received the rest, which was sent when an acknowledgement was: the send is complete. Or it
 * has refused the message: rank 0 finds that, not a lost connection. */
#define ENDED_BYTES (6 * TWILL_TCP_RECORD - 64) /* too few records to be acknowledged */
#define ENDED_TAKEN 40000u                      /* by the kernel at first */

static _Thread_local size_t kernel_takes = SIZE_MAX; /* more bytes of this thread */

/* CMakeLists.txt puts this in place of the library's calls. */
ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    if (kernel_takes == SIZE_MAX)
        return __real_sendmsg(fd, message, flags);
    struct iovec first = message->msg_iov[0];
    first.iov_len = twill_min(first.iov_len, kernel_takes);
    struct msghdr less = {.msg_iov = &first, .msg_iovlen = 1};
    errno = EAGAIN;
    ssize_t sent = first.iov_len == 0 ? -1 : __real_sendmsg(fd, &less, flags);
    kernel_takes -= sent > 0 ? (size_t)sent : 0;
    return sent;
}

struct early_end {
    enum mode mode;
    size_t wanted; /* bytes that rank 1 expects */
};

/* Check that a message to a peer that has closed is not sent, though it is shorter than what was
 * sent of the one before, which the peer has refused. */
static bool cannot_send(struct tcp_end *end, unsigned char *data)
{
    struct twill_transfer next = transfer(TWILL_TRANSFER_SEND, 1, 0, data, 1);
    int moved = twill_tcp_transport.post(end->end.transport, &next, &end->end.error);
    while (moved >= 0 && next.status == TWILL_PENDING && !twill_test_failed())
        moved = progress(end);
    bool fails = moved < 0 && next.status == TWILL_PENDING;
    twill_tcp_transport.cancel(end->end.transport);
    return fails;
}

static void rank_ended(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct early_end *early = user;
    const bool fits = early->wanted == ENDED_BYTES;
    struct tcp_end end;
    unsigned char *data = calloc(1, ENDED_BYTES);
    if (open_end(&end, caller, early->mode)) {
        enum twill_transfer_kind kind = rank == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV;
        struct twill_transfer first = transfer(kind, 1u - (uint32_t)rank, 0, data, 1), last = first;
        last.bytes = rank == 0 ? ENDED_BYTES : early->wanted;
        TWILL_CHECK(post(&end, &first) && twill_test_await(&end.end, &first, 1));
        struct twill_tcp_channel *channel =
            &((struct twill_tcp *)end.end.transport)->peers[1 - rank]->channels[0];
        kernel_takes = rank == 0 ? ENDED_TAKEN : SIZE_MAX;
        TWILL_CHECK((rank == 1 && fits) || post(&end, &last));
        while (rank == 0 && kernel_takes > 0 && !twill_test_failed())
            TWILL_CHECK(progress(&end) >= 0);
        TWILL_CHECK(rank == 1 || last.status == TWILL_PENDING);
        while (rank == 1 && !fits && !twill_test_failed() &&
               (last.status == TWILL_PENDING || channel->out.refuses ||
                twill_tcp_records_unsent(channel->records)))
            TWILL_CHECK(progress(&end) >= 0);
        TWILL_CHECK(rank_barrier(&end));
        kernel_takes = fits ? SIZE_MAX : 1; /* not read by rank 1, whose end is abrupt then */
        while (rank == 0 && kernel_takes > 0 && twill_tcp_records_unsent(channel->records))
            TWILL_CHECK(twill_tcp_records_push(channel->records) >= 0);
        kernel_takes = SIZE_MAX;
        TWILL_CHECK(rank == 0 || !fits ||
                    (post(&end, &last) && twill_test_await(&end.end, &last, 1)));
        TWILL_CHECK(rank_barrier(&end));
        if (rank == 1) {
            twill_tcp_transport.close(end.end.transport);
            end.end.transport = NULL;
        }
        TWILL_CHECK(rank_barrier(&end) && (rank == 1 || twill_test_await(&end.end, &last, 1)));
        TWILL_CHECK(last.status == (fits ? TWILL_OK : TWILL_ERR_MISMATCH));
        TWILL_CHECK(rank == 1 || fits || cannot_send(&end, data));
        TWILL_CHECK(rank_barrier(&end));
    }
    free(data);
    end_close(&end);
}

TWILL_TEST(test_ended)
{
    static const struct early_end ends[] = {
        {CHECKED, ENDED_BYTES}, {CHECKED, 4711}, {SEALED, 4711}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(ends); i++)
        twill_test_run_ranks(2, rank_ended, (void *)(uintptr_t)&ends[i]);
}

/* --- a proxy on the way ----------------------------------------------------------------------- */

#define MESSAGES      40u
#define BYTES         64u /* of a message: a record has 20 bytes, a header, these, a tag of 16 */
#define RECORD        (20u + sizeof(struct twill_tcp_header) + BYTES)
#define SEALED_RECORD (RECORD + 16u)
/* Bytes of the handshake from the rank that connects. */
#define HELLO (sizeof(struct twill_hello_call) + TWILL_PROOF_BYTES)

/* Rank 0 sends messages with the marker to rank 1 through the proxy. */
struct scene {
    enum mode mode;
    uint32_t epoch;
    struct twill_proxy proxy;
    unsigned arrived; /* at rank 1, all with the right bytes */
    bool failed;      /* on rank 1 */
    atomic_bool over; /* rank 1 is done */
    uint32_t about;   /* the rank that its failure is about */
    char message[sizeof(((struct twill_error *)0)->message)];
};

static void fill_message(unsigned char *data, unsigned number)
{
    memset(data, 'a' + (int)(number % 7), BYTES);
    memcpy(data + 20, TWILL_PROXY_MARKER, strlen(TWILL_PROXY_MARKER));
}

static void send_all(struct tcp_end *end, struct scene *scene)
{
    struct twill_tcp *t = (struct twill_tcp *)end->end.transport;
    unsigned char data[BYTES];
    scene->proxy.target = ntohs(t->common->address[1].at.four.sin_port);
    TWILL_CHECK(twill_proxy_start(&scene->proxy));
    t->common->address[1].at.four.sin_port = htons(scene->proxy.port);
    for (unsigned i = 0; i < MESSAGES; i++) {
        struct twill_transfer send = transfer(TWILL_TRANSFER_SEND, 1, 0, data, BYTES);
        fill_message(data, i);
        if (twill_tcp_transport.post(end->end.transport, &send, &end->end.error) != TWILL_OK)
            return;
        while (send.status == TWILL_PENDING)
            if (progress(end) < 0)
                return;
    }
}

static void receive_all(struct tcp_end *end, struct scene *scene)
{
    for (; scene->arrived < MESSAGES; scene->arrived++) {
        unsigned char data[BYTES] = {0}, right[BYTES];
        struct twill_transfer recv = transfer(TWILL_TRANSFER_RECV, 0, 0, data, BYTES);
        TWILL_CHECK(post(end, &recv));
        uint64_t until = twill_now() + TWILL_TEST_PATIENCE;
        while (recv.status == TWILL_PENDING && !scene->failed && twill_now() < until)
            scene->failed = progress(end) < 0;
        memcpy(scene->message, end->end.error.message, sizeof(scene->message));
        scene->about = end->end.error.rank;
        if (scene->failed) {
            twill_tcp_transport.cancel(end->end.transport); /* as the communicator does */
            return;
        }
        fill_message(right, scene->arrived);
        TWILL_CHECK(recv.status == TWILL_OK && memcmp(data, right, BYTES) == 0);
    }
}

static void rank_scene(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct scene *scene = user;
    struct tcp_end end;
    if (open_end_of(&end, caller, scene->mode, scene->epoch)) {
        if (rank == 0)
            send_all(&end, scene);
        else
            receive_all(&end, scene);
        if (rank == 1)
            atomic_store(&scene->over, true);
        while (!atomic_load(&scene->over) && progress(&end) >= 0)
            ; /* rank 1 may ask rank 0 for a record */
        rank_barrier(&end);
        if (rank == 0)
            twill_proxy_stop(&scene->proxy);
    }
    end_close(&end);
}

static void play(struct scene *scene)
{
    twill_test_run_ranks(2, rank_scene, scene);
}

static void expect_failure(const struct scene *scene, unsigned arrived, const char *words)
{
    if (!scene->failed || scene->arrived != arrived || strstr(scene->message, words) == NULL ||
        strstr(scene->message, "rank 0") == NULL || scene->about != 0)
        fail_msg("%u arrived, not %u; \"%s\" has no \"%s\" or no rank", scene->arrived, arrived,
                 scene->message, words);
}

/* What goes over the wire can be read without encryption, and not with it. */
TWILL_TEST(test_sniffed)
{
    for (enum mode mode = PLAIN; mode <= SEALED_CHACHA; mode++) {
        struct scene scene = {.mode = mode};
        play(&scene);
        assert_int_equal(scene.arrived, MESSAGES);
        assert_true(scene.proxy.forwarded > MESSAGES * BYTES);
        assert_int_equal(scene.proxy.markers, mode <= CHECKED ? MESSAGES : 0);
    }
}

TWILL_TEST(test_damaged)
{
    struct scene once = {.mode = CHECKED, .proxy = {.flips = 1}};
    play(&once);
    assert_int_equal(once.arrived, MESSAGES);
    assert_int_equal(once.proxy.flips, 0);
    assert_true(once.proxy.markers > MESSAGES); /* that record, and those after it, twice */
    struct scene always = {.mode = CHECKED, .proxy = {.flips = 1000}};
    play(&always);
    expect_failure(&always, 0, "over tcp lo arrived damaged, and damaged again");
    struct scene head = {.mode = CHECKED,
                         .proxy = {.attack = TWILL_PROXY_FLIP, .offset = HELLO + 3 * RECORD + 1}};
    play(&head);
    expect_failure(&head, 3, "over tcp lo arrived damaged: the head");
}

TWILL_TEST(test_attacked)
{
    const struct {
        enum twill_proxy_attack attack;
        size_t offset, bytes;
        unsigned arrived;
        const char *words;
    } rows[] = {
        {TWILL_PROXY_FLIP, HELLO + 5 * SEALED_RECORD + 4, 0, 5, "altered"}, /* its number */
        {TWILL_PROXY_FLIP, HELLO + 5 * SEALED_RECORD + 20, 0, 5, "altered"},
        {TWILL_PROXY_FLIP, HELLO + 6 * SEALED_RECORD - 1, 0, 5, "altered"}, /* its tag */
        {TWILL_PROXY_DROP, HELLO + 5 * SEALED_RECORD, SEALED_RECORD, 5, "altered"},
        {TWILL_PROXY_REPEAT, HELLO + 5 * SEALED_RECORD, SEALED_RECORD, 5, "altered"},
        {TWILL_PROXY_CUT, HELLO + 5 * SEALED_RECORD + 50, 0, 5, "closed its connection"},
    };
    for (enum mode mode = SEALED; mode <= SEALED_CHACHA; mode++)
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++) {
            struct scene scene = {.mode = mode,
                                  .proxy = {.attack = rows[i].attack,
                                            .offset = rows[i].offset,
                                            .bytes = rows[i].bytes}};
            play(&scene);
            expect_failure(&scene, rows[i].arrived, rows[i].words);
        }
}

/* A record of another connection of the same ranks and job, with the same number and place in it,
 * is refused: of the same epoch or of an earlier one. */
TWILL_TEST(test_replayed)
{
    for (enum mode mode = SEALED; mode <= SEALED_CHACHA; mode++)
        for (uint32_t epoch = 0; epoch < 2; epoch++) {
            struct scene scene = {.mode = mode,
                                  .proxy = {.attack = TWILL_PROXY_RECORD,
                                            .offset = HELLO + 5 * SEALED_RECORD,
                                            .bytes = SEALED_RECORD}};
            play(&scene);
            assert_int_equal(scene.arrived, MESSAGES);
            struct scene later = {.mode = mode, .epoch = epoch, .proxy = scene.proxy};
            later.proxy.attack = TWILL_PROXY_PASTE;
            later.proxy.used = 0;
            play(&later);
            expect_failure(&later, 5, "altered");
        }
}

/* Nothing falls back to clear text: another provider is refused by its name, a rank that would not
 * encrypt by its number. */
TWILL_TEST(test_only_here)
{
    struct twill_transport_params params = {
        .provider = "verbs", .setting = test_setting, .settings = settings[SEALED]};
    struct twill_tcp_protection protection = {.encrypts = false};
    struct twill_error error = {0};
    assert_int_equal(twill_tcp_protection_find(&protection, &params, &error), TWILL_ERR_CONFIG);
    assert_string_equal(error.message, "TWILL_PROVIDER=verbs has no encryption (TWILL_ENCRYPT): "
                                       "only twill's tcp has it");
    char why[TWILL_OFFER_BYTES];
    assert_int_equal(twill_ofi_transport.priority(&params, why, sizeof(why)), TWILL_PRIORITY_NONE);
    assert_int_equal(twill_tcp_transport.priority(&params, why, sizeof(why)), TWILL_PRIORITY_NAMED);
    twill_error_clear(&error);
    params.provider = NULL;
    assert_int_equal(twill_tcp_protection_find(&protection, &params, &error), TWILL_OK);
    assert_true(protection.encrypts);
    assert_int_equal(twill_tcp_guard_agree(&protection, 3, 0, &error), TWILL_ERR_CONFIG);
    assert_string_equal(error.message, "tcp: rank 3 has another TWILL_ENCRYPT or TWILL_CHECKSUM");
}

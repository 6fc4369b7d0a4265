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

/* How a rank's end is opened. */
struct protection {
    enum mode mode;
    uint32_t epoch;
};

/* Open a rank's end on loopback. */
static bool open_protected(struct twill_test_end *end, const void *how)
{
    const struct protection *protection = how;
    const struct twill_kernels *kernels;
    memset(end->oob->nonce, 7, sizeof(end->oob->nonce)); /* all runs are of one job */
    end->oob->epoch = protection->epoch;
    TWILL_REQUIRE(twill_kernels_select(&kernels, NULL, NULL) == TWILL_OK);
    end->params.crc32c = kernels->crc32c;
    end->params.setting = test_setting;
    end->params.settings = settings[protection->mode];
    TWILL_REQUIRE(tcp_open(end, "127.0.0.1"));
    if (protection->mode == SEALED_CHACHA) /* as if a rank's CPU had no instructions for AES */
        tcp_of(end)->common->protection.aes = false;
    return true;
}

static void run_protected(enum mode mode, int ranks,
                          void (*body)(struct twill_test_end *end, void *user), void *user)
{
    const struct protection protection = {.mode = mode};
    end_test_run((struct end_test){
        .ranks = ranks, .open = open_protected, .how = &protection, .body = body, .user = user});
}

/* --- nothing happens on the way --------------------------------------------------------------- */

enum { RECORDED = TWILL_TCP_RECORD - 64, LONGER = TWILL_TCP_SCRATCH + 61 };
static const size_t sizes[] = {
    0, 1, 65, TWILL_TCP_RX_BYTES + 1, RECORDED, RECORDED + 1, LONGER, (3u << 20) + 5};

static void sweep(struct twill_test_end *end, void *user)
{
    (void)(twill_test_sweep(end, sizes, TWILL_ARRAY_LENGTH(sizes)) && twill_test_mismatch(end) &&
           twill_test_early(end) && twill_test_flood(end, 60, 40000));
}

TWILL_TEST(test_sweep)
{
    for (enum mode mode = CHECKED; mode <= SEALED_CHACHA; mode++)
        run_protected(mode, mode == CHECKED ? 3 : 2, sweep, NULL);
}

/* The same, and threads share its channels. */
static bool open_shared(struct twill_test_end *end, const void *how)
{
    tcp_share(end);
    return open_protected(end, how);
}

static void flood(struct twill_test_end *end, void *user)
{
    (void)user;
    TWILL_CHECK(twill_test_flood(end, 4, 2u << 20));
    TWILL_CHECK(*tcp_forks() > 0);
}

TWILL_TEST(test_shared)
{
    for (enum mode mode = CHECKED; mode <= SEALED; mode++) {
        const struct protection protection = {.mode = mode};
        end_test_run(
            (struct end_test){.ranks = 2, .open = open_shared, .how = &protection, .body = flood});
    }
}

/* Rank 1 sends before rank 0 takes any of it, and acknowledgements lie behind that. */
static void cross(struct twill_test_end *end, void *user)
{
    const size_t bytes = 4u << 20;
    unsigned char *out = malloc(bytes), *in = calloc(1, bytes);
    struct twill_transfer send = end_transfer(TWILL_TRANSFER_SEND, end->peer, 0, out, bytes);
    struct twill_transfer recv = end_transfer(TWILL_TRANSFER_RECV, end->peer, 0, in, bytes);
    memset(out, (int)end->rank + 1, bytes);
    TWILL_CHECK(end_post(end, &send));
    TWILL_CHECK(end->rank == 1 || end_await(end, &send, 1));
    TWILL_CHECK(end_complete(end, &recv) && end_await(end, &send, 1));
    TWILL_CHECK(in[0] == 2 - end->rank && memcmp(in, in + 1, bytes - 1) == 0,
                "rank %u: %d %d, first byte %d", end->rank, send.status, recv.status, in[0]);
    free(out);
    free(in);
}

TWILL_TEST(test_crossed)
{
    for (enum mode mode = CHECKED; mode <= SEALED; mode++)
        run_protected(mode, 2, cross, NULL);
}

/* Rank 0 sends until its kernel takes no more, and then makes no call: what was sent arrives. */
#define FULL_BYTES    (60u << 10) /* of a message: four records */
#define FULL_MESSAGES 1000u
#define FULL_POLLS    200u /* in vain */

/* Send until a message is not complete, which is left in *send. Returns how many are complete. */
static int send_until_full(struct twill_test_end *end, struct twill_transfer *send,
                           unsigned char *data)
{
    for (int sent = 0; sent < (int)FULL_MESSAGES; sent++) {
        *send = end_one_way(end, 0, data, FULL_BYTES);
        if (!end_post(end, send))
            return -1;
        for (unsigned vain = 0; send->status == TWILL_PENDING; vain++) {
            int moved = end_progress(end);
            if (moved < 0)
                return -1;
            vain = moved > 0 ? 0 : vain;
            if (vain >= FULL_POLLS && sent > 0) /* it has a connection */
                return sent;
        }
    }
    return -1;
}

static void fill_up(struct twill_test_end *end, void *user)
{
    bool sends = end->rank == 0;
    unsigned char *data = calloc(1, FULL_BYTES);
    struct twill_transfer one = end_one_way(end, 0, data, FULL_BYTES);
    int sent = -1, all[2];
    if (sends)
        sent = send_until_full(end, &one, data);
    else
        TWILL_CHECK(end_complete(end, &one)); /* connect */
    TWILL_CHECK_OK(&end->error,
                   twill_oob_allgather(end->oob, &sent, all, sizeof(sent), &end->error));
    TWILL_CHECK(all[0] > 1);
    for (int i = 1; i < all[0] && !sends; i++) {
        one = end_one_way(end, 0, data, FULL_BYTES);
        TWILL_CHECK(end_complete(end, &one));
    }
    TWILL_CHECK(end_barrier(end)); /* rank 0 has made no progress until here */
    if (!sends)
        one = end_one_way(end, 0, data, FULL_BYTES);
    TWILL_CHECK(sends ? end_await(end, &one, 1) : end_complete(end, &one));
    free(data);
}

TWILL_TEST(test_full)
{
    for (enum mode mode = PLAIN; mode <= SEALED; mode++)
        run_protected(mode, 2, fill_up, NULL);
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
static bool cannot_send(struct twill_test_end *end, unsigned char *data)
{
    struct twill_transfer next = end_transfer(TWILL_TRANSFER_SEND, 1, 0, data, 1);
    int moved = twill_tcp_transport.post(end->transport, &next, &end->error);
    while (moved >= 0 && next.status == TWILL_PENDING && !twill_test_failed())
        moved = end_progress(end);
    bool fails = moved < 0 && next.status == TWILL_PENDING;
    twill_tcp_transport.cancel(end->transport);
    return fails;
}

/* Rank 0: send a part of the message, and, after rank 1's barrier, what the kernel takes of the
 * rest. */
static void send_in_parts(struct twill_test_end *end, struct twill_transfer *last, bool fits)
{
    struct twill_tcp_records *records = tcp_channel(end, 0)->records;
    kernel_takes = ENDED_TAKEN;
    TWILL_CHECK(end_post(end, last));
    while (kernel_takes > 0)
        TWILL_CHECK(end_works(end));
    TWILL_CHECK(last->status == TWILL_PENDING && end_barrier(end));
    kernel_takes = fits ? SIZE_MAX : 1; /* not read by rank 1, whose end is abrupt then */
    while (kernel_takes > 0 && twill_tcp_records_unsent(records))
        TWILL_CHECK(twill_tcp_records_push(records) >= 0);
    kernel_takes = SIZE_MAX;
    TWILL_CHECK(end_barrier(end) && end_barrier(end));
}

/* Rank 1: receive the message once rank 0 has sent it, or refuse it before; then close. */
static void receive_and_close(struct twill_test_end *end, struct twill_transfer *last, bool fits)
{
    const struct twill_tcp_channel *channel = tcp_channel(end, 0);
    TWILL_CHECK(fits || end_complete(end, last));
    while (!fits && (channel->out.refuses || twill_tcp_records_unsent(channel->records)))
        TWILL_CHECK(end_works(end));
    TWILL_CHECK(end_barrier(end));
    TWILL_CHECK(!fits || end_complete(end, last));
    TWILL_CHECK(end_barrier(end));
    end_close_more(end);
    TWILL_CHECK(end_barrier(end));
}

static void end_early(struct twill_test_end *end, void *user)
{
    const struct early_end *early = user;
    const bool fits = early->wanted == ENDED_BYTES, sends = end->rank == 0;
    unsigned char *data = calloc(1, ENDED_BYTES);
    struct twill_transfer first = end_one_way(end, 0, data, 1);
    struct twill_transfer last = end_one_way(end, 0, data, sends ? ENDED_BYTES : early->wanted);
    TWILL_CHECK(end_complete(end, &first));
    (sends ? send_in_parts : receive_and_close)(end, &last, fits);
    TWILL_CHECK(!sends || end_await(end, &last, 1));
    TWILL_CHECK(last.status == (fits ? TWILL_OK : TWILL_ERR_MISMATCH));
    TWILL_CHECK(!sends || fits || cannot_send(end, data));
    free(data);
}

TWILL_TEST(test_ended)
{
    static const struct early_end ends[] = {
        {CHECKED, ENDED_BYTES}, {CHECKED, 4711}, {SEALED, 4711}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(ends); i++)
        run_protected(ends[i].mode, 2, end_early, (void *)&ends[i]);
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
    struct protection protection;
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

static void send_all(struct twill_test_end *end, struct scene *scene)
{
    struct twill_tcp *t = tcp_of(end);
    unsigned char data[BYTES];
    scene->proxy.target = ntohs(t->common->address[1].at.four.sin_port);
    TWILL_CHECK(twill_proxy_start(&scene->proxy));
    t->common->address[1].at.four.sin_port = htons(scene->proxy.port);
    for (unsigned i = 0; i < MESSAGES; i++) {
        struct twill_transfer send = end_one_way(end, 0, data, BYTES);
        fill_message(data, i);
        if (twill_tcp_transport.post(end->transport, &send, &end->error) != TWILL_OK)
            return;
        while (send.status == TWILL_PENDING)
            if (end_progress(end) < 0)
                return;
    }
}

static void receive_all(struct twill_test_end *end, struct scene *scene)
{
    for (; scene->arrived < MESSAGES; scene->arrived++) {
        unsigned char data[BYTES] = {0}, right[BYTES];
        struct twill_transfer recv = end_one_way(end, 0, data, BYTES);
        TWILL_CHECK(end_post(end, &recv));
        uint64_t until = twill_now() + TWILL_TEST_PATIENCE;
        while (recv.status == TWILL_PENDING && !scene->failed && twill_now() < until)
            scene->failed = end_progress(end) < 0;
        memcpy(scene->message, end->error.message, sizeof(scene->message));
        scene->about = end->error.rank;
        if (scene->failed) {
            twill_tcp_transport.cancel(end->transport); /* as the communicator does */
            return;
        }
        fill_message(right, scene->arrived);
        TWILL_CHECK(recv.status == TWILL_OK && memcmp(data, right, BYTES) == 0);
    }
}

static void play_on_end(struct twill_test_end *end, void *user)
{
    struct scene *scene = user;
    (end->rank == 0 ? send_all : receive_all)(end, scene);
    if (end->rank == 1)
        atomic_store(&scene->over, true);
    while (!atomic_load(&scene->over) && end_progress(end) >= 0)
        ; /* rank 1 may ask rank 0 for a record */
    (void)end_barrier(end);
    if (end->rank == 0)
        twill_proxy_stop(&scene->proxy);
}

static void play(struct scene *scene)
{
    end_test_run((struct end_test){.ranks = 2,
                                   .open = open_protected,
                                   .how = &scene->protection,
                                   .body = play_on_end,
                                   .user = scene});
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
        struct scene scene = {.protection = {mode, 0}};
        play(&scene);
        assert_int_equal(scene.arrived, MESSAGES);
        assert_true(scene.proxy.forwarded > MESSAGES * BYTES);
        assert_int_equal(scene.proxy.markers, mode <= CHECKED ? MESSAGES : 0);
    }
}

TWILL_TEST(test_damaged)
{
    struct scene once = {{CHECKED, 0}, .proxy = {.flips = 1}};
    play(&once);
    assert_int_equal(once.arrived, MESSAGES);
    assert_int_equal(once.proxy.flips, 0);
    assert_true(once.proxy.markers > MESSAGES); /* that record, and those after it, twice */
    struct scene always = {{CHECKED, 0}, .proxy = {.flips = 1000}};
    play(&always);
    expect_failure(&always, 0, "over tcp lo arrived damaged, and damaged again");
    struct scene head = {{CHECKED, 0},
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
            struct scene scene = {{mode, 0},
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
            struct scene scene = {{mode, 0},
                                  .proxy = {.attack = TWILL_PROXY_RECORD,
                                            .offset = HELLO + 5 * SEALED_RECORD,
                                            .bytes = SEALED_RECORD}};
            play(&scene);
            assert_int_equal(scene.arrived, MESSAGES);
            struct scene later = {{mode, epoch}, .proxy = scene.proxy};
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
    assert_string_equal(error.message, "tcp: rank 3 differs in TWILL_ENCRYPT or TWILL_CHECKSUM");
}

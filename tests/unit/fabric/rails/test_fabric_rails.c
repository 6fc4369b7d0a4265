/* SPDX-License-Identifier: Apache-2.0 */
/* The composite of rails, over mocks and over two endpoints of libfabric on loopback; and how ranks
 * agree about their rails. */
#include "fabric/rails/rails.h"
#include "fabric/transports.h"
#include "tests/doubles/mock_transport.h"
#include "tests/support/messages.h"
#include "tests/support/unit.h"

struct rails_case {
    const struct twill_transport_ops *ops;
    uint32_t count, weight[TWILL_RAILS_MOST];
    size_t split_bytes;
    const char *script[TWILL_RAILS_MOST]; /* of mocks */
    bool (*body)(struct twill_test_end *end, const struct rails_case *c);
    size_t sent, requested; /* of a message that does not match */
    uint32_t signature;
};

struct rails_end {
    struct twill_test_end end; /* first */
    struct twill_oob *oob;
    struct test_setting settings[TWILL_RAILS_MOST][2]; /* of each rail, while it is open */
};

/* All ranks here. */
static bool rank_barrier(struct twill_test_end *end)
{
    int mine = 1, all[16];
    return twill_oob_allgather(((struct rails_end *)end)->oob, &mine, all, sizeof(mine),
                               &end->error) == TWILL_OK;
}

static bool open_rails(struct twill_test_end *end, const struct rails_case *c,
                       struct twill_oob *oob)
{
    struct twill_transport *rail[TWILL_RAILS_MOST];
    for (uint32_t r = 0; r < c->count; r++) {
        struct test_setting *settings = ((struct rails_end *)end)->settings[r];
        settings[0] = (struct test_setting){"TEST_MOCK", c->script[r]};
        struct twill_transport_params params = {.oob = oob,
                                                .setting = test_setting,
                                                .settings = settings,
                                                .provider = "tcp",
                                                .interface = r % 2 ? "127.0.0.1" : "lo"};
        twill_status status = c->ops->open(&rail[r], &params, &end->error);
        TWILL_REQUIRE(status == TWILL_OK, "open: %s", end->error.message);
    }
    struct twill_transport_params params = {.oob = oob};
    TWILL_REQUIRE(twill_rails_join(&end->transport, rail, c->weight, c->count, c->split_bytes,
                                   &params, &end->error) == TWILL_OK);
    for (uint32_t r = 0; r < end->size; r++)
        if (r != end->rank)
            TWILL_REQUIRE(end->transport->ops->connect(end->transport, r, &end->error) == TWILL_OK);
    return true;
}

static void rails_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct rails_case *c = user;
    struct rails_end it = {
        .end = {.rank = (uint32_t)rank, .size = (uint32_t)size, .in_chunks = true},
        .oob = twill_test_oob(caller)};
    if (open_rails(&it.end, c, it.oob) && c->body(&it.end, c))
        (void)rank_barrier(&it.end); /* no rank closes while others still receive */
    if (it.end.transport != NULL)
        it.end.transport->ops->close(it.end.transport);
    twill_test_oob_close(it.oob);
}

/* --- what every transport must do ------------------------------------------------------------ */

static bool case_counted(const struct twill_test_end *end, const struct rails_case *c)
{
    struct twill_transport_counters sum = {0}, all;
    size_t i = 0;
    for (struct twill_transport *rail; (rail = end->transport->ops->rail(end->transport, i)); i++) {
        TWILL_REQUIRE(rail->counters.messages > 0 && rail->counters.bytes > 0);
        sum.messages += rail->counters.messages;
        sum.bytes += rail->counters.bytes;
    }
    TWILL_REQUIRE(i == c->count);
    twill_transport_count(end->transport, &all);
    TWILL_REQUIRE(sum.messages == all.messages && sum.bytes == all.bytes);
    return true;
}

static bool carry(struct twill_test_end *end, const struct rails_case *c)
{
    const size_t s = c->split_bytes;
    const size_t sizes[] = {0,      1,      8,      48,        49,    s - 1,     s,        s + 1,
                            s + 63, s + 64, s + 65, 2 * s - 1, 2 * s, 3 * s + 7, 7 * s + 8};
    const size_t n =
        TWILL_ARRAY_LENGTH(sizes) - (s > 20000 ? 2 : 0); /* fast, also under memory checkers */
    return twill_test_sweep(end, sizes, n) && twill_test_flood(end, s > 20000 ? 4 : 30, 3 * s) &&
           case_counted(end, c);
}

static bool carry_early(struct twill_test_end *end, const struct rails_case *c)
{
    return twill_test_early(end);
}

TWILL_TEST(test_carries)
{
    static const struct rails_case cases[] = {
        {&twill_mock_transport, 2, {1, 1}, 4096, {"seed=1", "seed=2"}, carry, 0, 0, 0},
        {&twill_mock_transport,
         2,
         {1, 1},
         TWILL_RAILS_SPLIT_BYTES,
         {"seed=1", "seed=2"},
         carry,
         0,
         0,
         0},
        {&twill_mock_transport,
         3,
         {1, 4, 2},
         512,
         {"seed=3,delay=9", "seed=4,again=50", "seed=5,reorder=1,chunk=64"},
         carry,
         0,
         0,
         0},
        {&twill_mock_transport, 2, {1, 1000}, 1000, {"seed=6,delay=20", "seed=7"}, carry, 0, 0, 0},
        {&twill_mock_transport, 1, {1}, 1000, {"seed=8"}, carry, 0, 0, 0},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        twill_test_run_ranks(i == 1 ? 2 : 3, rails_rank, (void *)&cases[i]);
}

TWILL_TEST(test_carries_network)
{
    static const struct rails_case two = {
        &twill_ofi_transport, 2, {1, 1}, TWILL_RAILS_SPLIT_BYTES, {NULL}, carry, 0, 0, 0};
    static const struct rails_case three = {
        &twill_ofi_transport, 3, {10, 25, 10}, 20000, {NULL}, carry, 0, 0, 0};
    static const struct rails_case four = {
        &twill_tcp_transport, 4, {1, 1, 1, 2}, TWILL_RAILS_SPLIT_BYTES, {NULL}, carry, 0, 0, 0};
    static const struct rails_case other = {
        &twill_tcp_transport, 2, {1, 3}, 512, {NULL}, carry, 0, 0, 0};
    static const struct rails_case early = {
        &twill_tcp_transport, 2, {1, 1}, TWILL_RAILS_SPLIT_BYTES, {NULL}, carry_early, 0, 0, 0};
    const struct rails_case *const all[] = {&two, &three, &four, &other, &early};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(all); i++) {
        print_message("  %s, %u rails\n", all[i]->ops->name, all[i]->count);
        twill_test_run_ranks(i == 3 ? 3 : 2, rails_rank, (void *)all[i]);
    }
}

/* --- weights --------------------------------------------------------------------------------- */

/* One large message: every rail carries bytes by its weight. */
static bool balance(struct twill_test_end *end, const struct rails_case *c)
{
    const size_t bytes = 1100u << 10;
    if (!twill_test_sweep(end, &bytes, 1))
        return false;
    uint64_t all = 0;
    for (uint32_t r = 0; r < c->count; r++)
        all += c->weight[r];
    for (uint32_t r = 0; r < c->count; r++) {
        uint64_t got = end->transport->ops->rail(end->transport, r)->counters.bytes;
        uint64_t due = 2 * bytes * c->weight[r] / all; /* a sweep sends it stored and reduced */
        TWILL_REQUIRE(got + 256 > due && got < due + 256);
    }
    return true;
}

TWILL_TEST(test_balance)
{
    static const struct rails_case c = {&twill_mock_transport,
                                        3,
                                        {2, 5, 4},
                                        TWILL_RAILS_SPLIT_BYTES,
                                        {"seed=1", "seed=1", "seed=1"},
                                        balance,
                                        0,
                                        0,
                                        0};
    twill_test_run_ranks(2, rails_rank, (void *)&c);
}

/* --- mismatches ------------------------------------------------------------------------------ */

static void never(struct twill_transfer *request, size_t offset, const void *data, size_t bytes)
{
    TWILL_NOTE(false, "%zu of %zu bytes reduced at %zu", bytes, request->bytes, offset);
}

/* Rank 1 has its result; rank 0 makes progress until it is notified. */
static bool fails_later(struct twill_test_end *end, bool listens)
{
    unsigned char word[8] = {0};
    struct twill_transfer request = {.kind = listens ? TWILL_TRANSFER_RECV : TWILL_TRANSFER_SEND,
                                     .lane = 3,
                                     .peer = 1 - end->rank,
                                     .signature = 78,
                                     .buffer = word,
                                     .bytes = sizeof(word)};
    return end->transport->ops->post(end->transport, &request, &end->error) == TWILL_OK &&
           twill_test_await(end, &request, 1);
}

/* Rank 0 sends an unexpected message behind a correct one. */
static bool differ(struct twill_test_end *end, const struct rails_case *c)
{
    bool sends = end->rank == 0;
    size_t bytes = sends ? c->sent : c->requested;
    unsigned char small[8] = {0}, *buffer = calloc(1, bytes + 1), *bounce = calloc(1, bytes + 1);
    struct twill_transfer request[2];
    for (uint32_t i = 0; i < 2; i++)
        request[i] =
            (struct twill_transfer){.kind = sends ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                    .lane = 2,
                                    .peer = 1 - end->rank,
                                    .signature = 77 + (sends && i == 1 ? c->signature : 0),
                                    .buffer = i == 0 ? small : buffer,
                                    .bytes = i == 0 ? sizeof(small) : bytes,
                                    .reduce = i == 1 && !sends ? never : NULL,
                                    .bounce = bounce};
    bool good = buffer != NULL && bounce != NULL;
    for (uint32_t i = 0; good && i < 2; i++)
        good = end->transport->ops->post(end->transport, &request[i], &end->error) == TWILL_OK;
    good = good && twill_test_await(end, request, sends ? 1 : 2) && fails_later(end, sends);
    /* A whole message that matched a chunk only knows the chunk's size, and chunks may be alike. */
    bool is_reported =
        c->sent != c->requested && (c->sent < c->split_bytes || c->requested > 2 * c->sent ||
                                    (c->requested >= c->split_bytes && c->sent > 2 * c->requested));
    if (good && !sends)
        TWILL_NOTE(request[1].status == TWILL_ERR_MISMATCH &&
                       (request[1].peer_bytes != c->requested || !is_reported),
                   "%zu for %zu: status %d, peer's %llu", c->sent, c->requested, request[1].status,
                   (unsigned long long)request[1].peer_bytes);
    good = rank_barrier(end) && good; /* before one closes */
    end->transport->ops->cancel(end->transport);
    free(buffer);
    free(bounce);
    return good;
}

TWILL_TEST(test_mismatches)
{
    static const struct {
        size_t sent, requested;
        uint32_t signature;
    } pairs[] = {
        {100, 64, 0},    {8192, 4096, 0}, {4096, 8192, 0}, {8192, 2048, 0}, {2048, 8192, 0},
        {4096, 2048, 0}, /* as large as a chunk of the other */
        {2048, 4096, 0}, {8192, 8256, 0}, {8192, 8193, 0}, {8193, 8192, 0}, {65536, 16384, 0},
        {8192, 8192, 1}, {100, 100, 1},   {0, 8192, 0},    {8192, 0, 0},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(pairs); i++) {
        struct rails_case c = {&twill_mock_transport,
                               2,
                               {1, 1},
                               4096,
                               {"seed=1,delay=2", "seed=2"},
                               differ,
                               pairs[i].sent,
                               pairs[i].requested,
                               pairs[i].signature};
        twill_test_run_ranks(2, rails_rank, &c);
        if (i % 3 != 1)
            continue;
        c.ops = &twill_ofi_transport;
        twill_test_run_ranks(2, rails_rank, &c);
        c.ops = &twill_tcp_transport;
        twill_test_run_ranks(2, rails_rank, &c);
    }
}

/* --- failures -------------------------------------------------------------------------------- */

#define RAILS_HOPELESS 24

/* More large messages than there are slots, in both directions and kinds: cancel and close are safe
 * in any state; memory checkers watch. */
static bool give_up(struct twill_test_end *end, const struct rails_case *c)
{
    struct twill_transfer *request = calloc(RAILS_HOPELESS, sizeof(*request));
    unsigned char *data = calloc(RAILS_HOPELESS, 4 * c->split_bytes);
    TWILL_REQUIRE(request != NULL && data != NULL);
    for (uint32_t i = 0; i < RAILS_HOPELESS; i++) {
        request[i] = (struct twill_transfer){.kind = (i + end->rank) % 3 == 0 ? TWILL_TRANSFER_SEND
                                                                              : TWILL_TRANSFER_RECV,
                                             .lane = 1,
                                             .peer = 1 - end->rank,
                                             .signature = 1,
                                             .buffer = data + 4 * c->split_bytes * i,
                                             .bytes = i % 4 == 0 ? 64 : 4 * c->split_bytes};
        TWILL_REQUIRE(end->transport->ops->post(end->transport, &request[i], &end->error) ==
                      TWILL_OK);
    }
    TWILL_REQUIRE(rank_barrier(end)); /* posting after the other has cancelled may fail */
    for (int i = 0; i < 20; i++)      /* some do not match */
        (void)end->transport->ops->progress(end->transport, &end->error);
    end->transport->ops->cancel(end->transport);
    free(request);
    free(data);
    return true;
}

TWILL_TEST(test_cancel)
{
    struct rails_case c = {
        &twill_mock_transport, 2, {1, 1}, 4096, {"seed=1", "seed=2"}, give_up, 0, 0, 0};
    twill_test_run_ranks(2, rails_rank, &c);
    c.ops = &twill_ofi_transport;
    c.split_bytes = TWILL_RAILS_SPLIT_BYTES;
    twill_test_run_ranks(2, rails_rank, &c);
    c.ops = &twill_tcp_transport;
    twill_test_run_ranks(2, rails_rank, &c);
}

/* An error of one rail is returned by the transport, with the rail's number. */
static bool fail_one(struct twill_test_end *end, const struct rails_case *c)
{
    unsigned char *data = calloc(1, 4 * c->split_bytes);
    struct twill_transfer request = {.kind =
                                         end->rank == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                     .peer = 1 - end->rank,
                                     .buffer = data,
                                     .bytes = 4 * c->split_bytes};
    TWILL_REQUIRE(data != NULL &&
                  end->transport->ops->post(end->transport, &request, &end->error) == TWILL_OK);
    TWILL_REQUIRE(rank_barrier(end));
    int answer = 0;
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    while (end->rank == 0 && answer >= 0 && twill_now() < limit)
        answer = end->transport->ops->progress(end->transport, &end->error);
    TWILL_NOTE(end->rank == 1 || (answer == TWILL_ERR_FABRIC &&
                                  strncmp(end->error.message, "rail 1: mock", 12) == 0),
               "%d: %s", answer, end->error.message);
    end->transport->ops->cancel(end->transport);
    free(data);
    return true;
}

TWILL_TEST(test_fails)
{
    struct rails_case c = {
        &twill_mock_transport, 2, {1, 1}, 4096, {"seed=1", "fail=1:1,rank=0"}, fail_one, 0, 0, 0};
    twill_test_run_ranks(2, rails_rank, &c);
}

/* --- agreement ------------------------------------------------------------------------------- */

static void deal(struct twill_rails_info *info, enum twill_rails_setting setting,
                 uint32_t requested, const char *networks, uint32_t mbits)
{
    *info = (struct twill_rails_info){
        .setting = setting, .requested = requested, .count = (uint32_t)strlen(networks)};
    for (uint32_t i = 0; i < info->count; i++) {
        info->rail[i].network = (uint64_t)(networks[i] - '0');
        info->rail[i].mbits = mbits * (i + 1);
    }
}

TWILL_TEST(test_agree)
{
    static const struct {
        enum twill_rails_setting setting[2];
        uint32_t requested[2];
        const char
            *networks[2];      /* rails of two ranks: a digit is a rail's network; 0 reaches all */
        const char *places[2]; /* expected result, NULL: an error */
    } table[] = {
        {{TWILL_RAILS_AUTO, TWILL_RAILS_AUTO}, {0, 0}, {"12", "12"}, {"01", "01"}},
        {{TWILL_RAILS_AUTO, TWILL_RAILS_AUTO}, {0, 0}, {"12", "21"}, {"01", "10"}},
        {{TWILL_RAILS_AUTO, TWILL_RAILS_AUTO}, {0, 0}, {"123", "31"}, {"02", "10"}},
        {{TWILL_RAILS_AUTO, TWILL_RAILS_AUTO}, {0, 0}, {"12", "34"}, {"0", "0"}},
        {{TWILL_RAILS_AUTO, TWILL_RAILS_AUTO}, {0, 0}, {"000", "00"}, {"01", "01"}},
        {{TWILL_RAILS_AUTO, TWILL_RAILS_AUTO}, {0, 0}, {"1", "12"}, {"0", "0"}},
        {{TWILL_RAILS_NUMBER, TWILL_RAILS_NUMBER}, {3, 3}, {"12", "21"}, {"010", "101"}},
        {{TWILL_RAILS_NUMBER, TWILL_RAILS_NUMBER}, {1, 1}, {"12", "21"}, {"0", "1"}},
        {{TWILL_RAILS_LIST, TWILL_RAILS_LIST}, {0, 0}, {"12", "34"}, {"01", "01"}},
        {{TWILL_RAILS_LIST, TWILL_RAILS_LIST}, {0, 0}, {"12", "3"}, {NULL, NULL}},
        {{TWILL_RAILS_LIST, TWILL_RAILS_AUTO}, {0, 0}, {"12", "12"}, {NULL, NULL}},
        {{TWILL_RAILS_NUMBER, TWILL_RAILS_NUMBER}, {2, 3}, {"12", "12"}, {NULL, NULL}},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++)
        for (uint32_t rank = 0; rank < 2; rank++) {
            struct twill_rails_info infos[2];
            struct twill_error error = {0};
            uint32_t place[TWILL_RAILS_MOST], weight[TWILL_RAILS_MOST], count = 0;
            for (uint32_t r = 0; r < 2; r++)
                deal(&infos[r], table[i].setting[r], table[i].requested[r], table[i].networks[r],
                     100);
            twill_status status = twill_rails_agree(infos, 2, rank, place, weight, &count, &error);
            const char *places = table[i].places[rank];
            assert_int_equal(status, places != NULL ? TWILL_OK : TWILL_ERR_CONFIG);
            if (places == NULL) {
                assert_non_null(strstr(error.message, "rank 1"));
                continue;
            }
            assert_int_equal(count, strlen(places));
            for (uint32_t k = 0; k < count; k++)
                assert_int_equal(place[k], places[k] - '0');
        }
}

static void check_weights(const uint32_t *a, const uint32_t *b, const uint32_t *expected)
{
    struct twill_rails_info infos[2];
    struct twill_error error = {0};
    uint32_t place[TWILL_RAILS_MOST], weight[TWILL_RAILS_MOST], count = 0;
    deal(&infos[0], TWILL_RAILS_LIST, 0, "12", 0);
    deal(&infos[1], TWILL_RAILS_LIST, 0, "12", 0);
    for (uint32_t i = 0; i < 2; i++) {
        infos[0].rail[i].mbits = a[i];
        infos[1].rail[i].mbits = b[i];
    }
    assert_int_equal(twill_rails_agree(infos, 2, 1, place, weight, &count, &error), TWILL_OK);
    assert_int_equal(weight[0], expected[0]);
    assert_int_equal(weight[1], expected[1]);
}

TWILL_TEST(test_weights)
{
    check_weights((uint32_t[]){100, 100}, (uint32_t[]){100, 100}, (uint32_t[]){1, 1});
    check_weights((uint32_t[]){10000, 25000}, (uint32_t[]){10000, 25000}, (uint32_t[]){10, 25});
    check_weights((uint32_t[]){10000, 20000}, (uint32_t[]){10000, 40000}, (uint32_t[]){1, 2});
    check_weights((uint32_t[]){10000, 20000}, (uint32_t[]){10000, 0}, (uint32_t[]){1, 1});
    check_weights((uint32_t[]){400000, 1}, (uint32_t[]){400000, 1}, (uint32_t[]){100, 1});
}

TWILL_TEST(test_refused)
{
    struct twill_rails_info infos[2];
    struct twill_error error = {0};
    uint32_t place[TWILL_RAILS_MOST], weight[TWILL_RAILS_MOST], count = 0;
    deal(&infos[0], TWILL_RAILS_AUTO, 0, "1", 100);
    deal(&infos[1], TWILL_RAILS_AUTO, 0, "1", 100);
    infos[1].status = TWILL_ERR_CONFIG;
    snprintf(infos[1].message, sizeof(infos[1].message), "eth7 is not here");
    assert_int_equal(twill_rails_agree(infos, 2, 0, place, weight, &count, &error),
                     TWILL_ERR_CONFIG);
    assert_string_equal(error.message, "rank 1: eth7 is not here");
}

/* --- rails that complete at once -------------------------------------------------------------- */

/* The composite of rails over rails that complete every request in post(). */

/* More large messages than slots, on several lanes, that all complete at once: those that wait go
 * on, on every lane. */
#define RAILS_AT_ONCE_AT_ONCE 12u

static struct twill_transfer_queue *at_once(struct twill_transport *transport)
{
    return (struct twill_transfer_queue *)(void *)(transport + 1);
}

static twill_status at_once_post(struct twill_transport *transport, struct twill_transfer *request,
                                 struct twill_error *error)
{
    twill_transfer_push(at_once(transport), request);
    return TWILL_OK;
}

static int at_once_progress(struct twill_transport *transport, struct twill_error *error)
{
    int finished = 0;
    for (; at_once(transport)->head != NULL; finished++)
        twill_transfer_pop(at_once(transport), TWILL_OK);
    return finished;
}

static void at_once_close(struct twill_transport *transport)
{
    free(transport);
}

TWILL_TEST(test_at_once)
{
    static const struct twill_transport_ops ops = {
        .post = at_once_post, .progress = at_once_progress, .close = at_once_close};
    static const uint32_t weight[2] = {1, 1};
    static struct twill_transfer request[RAILS_AT_ONCE_AT_ONCE];
    static unsigned char data[1024];
    struct twill_oob oob = {.rank = 0, .size = 2};
    struct twill_transport_params params = {.oob = &oob};
    struct twill_transport *rail[2], *rails;
    struct twill_error error = {0};
    for (uint32_t r = 0; r < 2; r++) {
        rail[r] = calloc(1, sizeof(**rail) + sizeof(struct twill_transfer_queue));
        assert_non_null(rail[r]);
        rail[r]->ops = &ops;
    }
    assert_int_equal(twill_rails_join(&rails, rail, weight, 2, sizeof(data), &params, &error),
                     TWILL_OK);
    assert_int_equal(rails->ops->connect(rails, 1, &error), TWILL_OK);
    for (uint32_t i = 0; i < RAILS_AT_ONCE_AT_ONCE; i++) {
        request[i] = (struct twill_transfer){.kind = TWILL_TRANSFER_RECV,
                                             .lane = (uint8_t)(i * 2 / RAILS_AT_ONCE_AT_ONCE),
                                             .peer = 1,
                                             .buffer = data,
                                             .bytes = sizeof(data)};
        assert_int_equal(rails->ops->post(rails, &request[i], &error), TWILL_OK);
    }
    for (uint32_t i = 0; i < RAILS_AT_ONCE_AT_ONCE; i++)
        assert_true(rails->ops->progress(rails, &error) >= 0);
    for (uint32_t i = 0; i < RAILS_AT_ONCE_AT_ONCE; i++)
        assert_int_equal(request[i].status, TWILL_OK);
    rails->ops->close(rails);
}

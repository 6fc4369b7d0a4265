/* SPDX-License-Identifier: Apache-2.0 */
/* The composite of rails, over mocks and over two endpoints of libfabric on loopback; and how ranks
 * agree about their rails. */
#include "fabric/rails/rails.h"
#include "fabric/transports.h"
#include "tests/doubles/mock_transport.h"
#include "tests/support/messages.h"
#include "tests/support/unit.h"

/* Rails, and what is done with them. */
struct rails_case {
    const struct twill_transport_ops *ops;
    int ranks; /* 0: two */
    uint32_t count, weight[TWILL_RAILS_MOST];
    size_t split_bytes;
    const char *script[TWILL_RAILS_MOST]; /* of mocks */
    size_t sent, requested;               /* of a message that does not match */
    uint32_t signature;
};

static bool open_rails(struct twill_test_end *end, const void *how)
{
    static _Thread_local struct test_setting settings[TWILL_RAILS_MOST][2]; /* of each rail */
    const struct rails_case *c = how;
    struct twill_transport *rail[TWILL_RAILS_MOST];
    for (uint32_t r = 0; r < c->count; r++) {
        settings[r][0] = (struct test_setting){"TEST_MOCK", c->script[r]};
        struct twill_transport_params params = {.oob = end->oob,
                                                .setting = test_setting,
                                                .settings = settings[r],
                                                .provider = "tcp",
                                                .interface = r % 2 ? "127.0.0.1" : "lo"};
        TWILL_REQUIRE(c->ops->open(&rail[r], &params, &end->error) == TWILL_OK, "open: %s",
                      end->error.message);
    }
    end->in_chunks = true;
    return end_opened(end, twill_rails_join(&end->transport, rail, c->weight, c->count,
                                            c->split_bytes, &end->params, &end->error));
}

static void run_rails(const struct rails_case *c,
                      void (*body)(struct twill_test_end *end, void *user))
{
    end_test_run((struct end_test){.ranks = c->ranks > 0 ? c->ranks : 2,
                                   .open = open_rails,
                                   .how = c,
                                   .body = body,
                                   .user = (void *)(uintptr_t)c});
}

/* --- what every transport must do ------------------------------------------------------------ */

static void check_counters(const struct twill_test_end *end, const struct rails_case *c)
{
    struct twill_transport_counters sum = {0}, all;
    size_t i = 0;
    for (struct twill_transport *rail; (rail = end->transport->ops->rail(end->transport, i)); i++) {
        TWILL_CHECK(rail->counters.messages > 0 && rail->counters.bytes > 0);
        sum.messages += rail->counters.messages;
        sum.bytes += rail->counters.bytes;
    }
    TWILL_CHECK(i == c->count);
    twill_transport_count(end->transport, &all);
    TWILL_CHECK(sum.messages == all.messages && sum.bytes == all.bytes);
}

static void carry(struct twill_test_end *end, void *user)
{
    const struct rails_case *c = user;
    const size_t s = c->split_bytes;
    const size_t sizes[] = {0,      1,      8,      48,        49,    s - 1,     s,        s + 1,
                            s + 63, s + 64, s + 65, 2 * s - 1, 2 * s, 3 * s + 7, 7 * s + 8};
    const size_t n =
        TWILL_ARRAY_LENGTH(sizes) - (s > 20000 ? 2 : 0); /* fast, also under memory checkers */
    TWILL_CHECK(twill_test_sweep(end, sizes, n));
    TWILL_CHECK(twill_test_flood(end, s > 20000 ? 4 : 30, 3 * s));
    check_counters(end, c);
}

static void carry_early(struct twill_test_end *end, void *user)
{
    (void)twill_test_early(end);
}

TWILL_TEST(test_carries)
{
    const struct twill_transport_ops *mock = &twill_mock_transport, *ofi = &twill_ofi_transport,
                                     *tcp = &twill_tcp_transport;
    const struct rails_case cases[] = {
        {mock, 3, 2, {1, 1}, 4096, .script = {"seed=1", "seed=2"}},
        {mock, 2, 2, {1, 1}, TWILL_RAILS_SPLIT_BYTES, .script = {"seed=1", "seed=2"}},
        {mock,
         3,
         3,
         {1, 4, 2},
         512,
         .script = {"seed=3,delay=9", "seed=4,again=50", "seed=5,reorder=1,chunk=64"}},
        {mock, 3, 2, {1, 1000}, 1000, .script = {"seed=6,delay=20", "seed=7"}},
        {mock, 3, 1, {1}, 1000, .script = {"seed=8"}},
        {ofi, 2, 2, {1, 1}, TWILL_RAILS_SPLIT_BYTES, .script = {NULL}},
        {ofi, 2, 3, {10, 25, 10}, 20000, .script = {NULL}},
        {tcp, 2, 4, {1, 1, 1, 2}, TWILL_RAILS_SPLIT_BYTES, .script = {NULL}},
        {tcp, 3, 2, {1, 3}, 512, .script = {NULL}},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        print_message("  %s, %u rails\n", cases[i].ops->name, cases[i].count);
        run_rails(&cases[i], carry);
    }
    run_rails(&cases[7], carry_early);
}

/* --- weights --------------------------------------------------------------------------------- */

/* One large message: every rail carries bytes by its weight. */
static void balance(struct twill_test_end *end, void *user)
{
    const struct rails_case *c = user;
    const size_t bytes = 1100u << 10;
    uint64_t all = 0;
    TWILL_CHECK(twill_test_sweep(end, &bytes, 1));
    for (uint32_t r = 0; r < c->count; r++)
        all += c->weight[r];
    for (uint32_t r = 0; r < c->count; r++) {
        uint64_t got = end->transport->ops->rail(end->transport, r)->counters.bytes;
        uint64_t due = 2 * bytes * c->weight[r] / all; /* a sweep sends it stored and reduced */
        TWILL_CHECK(got + 256 > due && got < due + 256);
    }
}

TWILL_TEST(test_balance)
{
    static const struct rails_case c = {.ops = &twill_mock_transport,
                                        .count = 3,
                                        .weight = {2, 5, 4},
                                        .split_bytes = TWILL_RAILS_SPLIT_BYTES,
                                        .script = {"seed=1", "seed=1", "seed=1"}};
    run_rails(&c, balance);
}

/* --- mismatches ------------------------------------------------------------------------------ */

static void never(struct twill_transfer *request, size_t offset, const void *data, size_t bytes)
{
    TWILL_NOTE(false, "%zu of %zu bytes reduced at %zu", bytes, request->bytes, offset);
}

/* Rank 1 has its result; rank 0 makes progress until it is notified. */
static bool is_over(struct twill_test_end *end)
{
    unsigned char word[8] = {0};
    struct twill_transfer request =
        end_transfer(end->rank == 0 ? TWILL_TRANSFER_RECV : TWILL_TRANSFER_SEND, end->peer, 3, word,
                     sizeof(word));
    return end_complete(end, &request);
}

/* Rank 0 sends an unexpected message behind a correct one. */
static void differ(struct twill_test_end *end, void *user)
{
    const struct rails_case *c = user;
    bool sends = end->rank == 0;
    size_t bytes = sends ? c->sent : c->requested;
    unsigned char small[8] = {0}, *buffer = calloc(1, bytes + 1), *bounce = calloc(1, bytes + 1);
    struct twill_transfer right = end_one_way(end, 2, small, sizeof(small)),
                          wrong = end_one_way(end, 2, buffer, bytes);
    TWILL_CHECK(buffer != NULL && bounce != NULL);
    wrong.signature += sends ? c->signature : 0;
    wrong.reduce = sends ? NULL : never;
    wrong.bounce = bounce;
    TWILL_CHECK(end_post(end, &right) && end_post(end, &wrong) && end_await(end, &right, 1));
    TWILL_CHECK((sends || end_await(end, &wrong, 1)) && is_over(end));
    /* A whole message that matched a chunk only knows the chunk's size, and chunks may be alike. */
    bool is_reported =
        c->sent != c->requested && (c->sent < c->split_bytes || c->requested > 2 * c->sent ||
                                    (c->requested >= c->split_bytes && c->sent > 2 * c->requested));
    TWILL_CHECK(sends || (wrong.status == TWILL_ERR_MISMATCH &&
                          (wrong.peer_bytes != c->requested || !is_reported)),
                "%zu for %zu: status %d, peer's %llu", c->sent, c->requested, wrong.status,
                (unsigned long long)wrong.peer_bytes);
    TWILL_CHECK(end_barrier(end)); /* before one closes */
    end->transport->ops->cancel(end->transport);
    free(buffer);
    free(bounce);
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
    const struct twill_transport_ops *const ops[] = {&twill_mock_transport, &twill_ofi_transport,
                                                     &twill_tcp_transport};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(pairs); i++)
        for (size_t t = 0; t < (i % 3 == 1 ? TWILL_ARRAY_LENGTH(ops) : 1); t++)
            run_rails(&(struct rails_case){.ops = ops[t],
                                           .count = 2,
                                           .weight = {1, 1},
                                           .split_bytes = 4096,
                                           .script = {"seed=1,delay=2", "seed=2"},
                                           .sent = pairs[i].sent,
                                           .requested = pairs[i].requested,
                                           .signature = pairs[i].signature},
                      differ);
}

/* --- failures -------------------------------------------------------------------------------- */

#define RAILS_HOPELESS 24

/* More large messages than there are slots, in both directions and kinds: cancel and close are safe
 * in any state; memory checkers watch. */
static void give_up(struct twill_test_end *end, void *user)
{
    const struct rails_case *c = user;
    struct twill_transfer *request = calloc(RAILS_HOPELESS, sizeof(*request));
    unsigned char *data = calloc(RAILS_HOPELESS, 4 * c->split_bytes);
    TWILL_CHECK(request != NULL && data != NULL);
    for (uint32_t i = 0; i < RAILS_HOPELESS; i++) {
        bool sends = (i + end->rank) % 3 == 0;
        request[i] =
            end_transfer(sends ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, end->peer, 1,
                         data + 4 * c->split_bytes * i, i % 4 == 0 ? 64 : 4 * c->split_bytes);
        TWILL_CHECK(end_post(end, &request[i]));
    }
    TWILL_CHECK(end_barrier(end)); /* posting after the other has cancelled may fail */
    for (int i = 0; i < 20; i++)   /* some do not match */
        (void)end_progress(end);
    end->transport->ops->cancel(end->transport);
    free(request);
    free(data);
}

TWILL_TEST(test_cancel)
{
    const struct rails_case cases[] = {
        {&twill_mock_transport, 2, 2, {1, 1}, 4096, .script = {"seed=1", "seed=2"}},
        {&twill_ofi_transport, 2, 2, {1, 1}, TWILL_RAILS_SPLIT_BYTES, .script = {NULL}},
        {&twill_tcp_transport, 2, 2, {1, 1}, TWILL_RAILS_SPLIT_BYTES, .script = {NULL}},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        run_rails(&cases[i], give_up);
}

/* An error of one rail is returned by the transport, with the rail's number. */
static void fail_one(struct twill_test_end *end, void *user)
{
    const struct rails_case *c = user;
    unsigned char *data = calloc(1, 4 * c->split_bytes);
    struct twill_transfer request = end_one_way(end, 0, data, 4 * c->split_bytes);
    TWILL_CHECK(data != NULL && end_post(end, &request) && end_barrier(end));
    int answer = end->rank == 0 ? end_until_failure(end) : TWILL_ERR_FABRIC;
    TWILL_CHECK(answer == TWILL_ERR_FABRIC &&
                    (end->rank == 1 || strncmp(end->error.message, "rail 1: mock", 12) == 0),
                "%d: %s", answer, end->error.message);
    end->transport->ops->cancel(end->transport);
    free(data);
}

TWILL_TEST(test_fails)
{
    static const struct rails_case c = {.ops = &twill_mock_transport,
                                        .count = 2,
                                        .weight = {1, 1},
                                        .split_bytes = 4096,
                                        .script = {"seed=1", "fail=1:1,rank=0"}};
    run_rails(&c, fail_one);
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

#define AUTO   TWILL_RAILS_AUTO
#define NUMBER TWILL_RAILS_NUMBER
#define LIST   TWILL_RAILS_LIST

/* What two ranks have, and each is to use. */
struct agreement {
    enum twill_rails_setting setting[2];
    uint32_t requested[2];
    const char *networks[2]; /* of their rails, a digit each; 0 reaches all */
    const char *places[2];   /* expected result, NULL: an error */
};

static void check_agreement(const struct agreement *a, uint32_t rank)
{
    struct twill_rails_info infos[2];
    struct twill_error error = {0};
    uint32_t place[TWILL_RAILS_MOST], weight[TWILL_RAILS_MOST], count = 0;
    for (uint32_t r = 0; r < 2; r++)
        deal(&infos[r], a->setting[r], a->requested[r], a->networks[r], 100);
    twill_status status = twill_rails_agree(infos, 2, rank, place, weight, &count, &error);
    const char *places = a->places[rank];
    assert_int_equal(status, places != NULL ? TWILL_OK : TWILL_ERR_CONFIG);
    if (places == NULL) {
        assert_non_null(strstr(error.message, "rank 1"));
        return;
    }
    assert_int_equal(count, strlen(places));
    for (uint32_t k = 0; k < count; k++)
        assert_int_equal(place[k], places[k] - '0');
}

TWILL_TEST(test_agree)
{
    static const struct agreement table[] = {
        {{AUTO, AUTO}, {0, 0}, {"12", "12"}, {"01", "01"}},
        {{AUTO, AUTO}, {0, 0}, {"12", "21"}, {"01", "10"}},
        {{AUTO, AUTO}, {0, 0}, {"123", "31"}, {"02", "10"}},
        {{AUTO, AUTO}, {0, 0}, {"12", "34"}, {"0", "0"}},
        {{AUTO, AUTO}, {0, 0}, {"000", "00"}, {"01", "01"}},
        {{AUTO, AUTO}, {0, 0}, {"1", "12"}, {"0", "0"}},
        {{NUMBER, NUMBER}, {3, 3}, {"12", "21"}, {"010", "101"}},
        {{NUMBER, NUMBER}, {1, 1}, {"12", "21"}, {"0", "1"}},
        {{LIST, LIST}, {0, 0}, {"12", "34"}, {"01", "01"}},
        {{LIST, LIST}, {0, 0}, {"12", "3"}, {NULL, NULL}},
        {{LIST, AUTO}, {0, 0}, {"12", "12"}, {NULL, NULL}},
        {{NUMBER, NUMBER}, {2, 3}, {"12", "12"}, {NULL, NULL}},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++)
        for (uint32_t rank = 0; rank < 2; rank++)
            check_agreement(&table[i], rank);
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

/* More large messages than slots, on several lanes, over rails that complete all of them at once:
 * those that wait go on, on every lane. */
#define AT_ONCE 12u

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
    static struct twill_transfer request[AT_ONCE];
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
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        request[i] = (struct twill_transfer){.kind = TWILL_TRANSFER_RECV,
                                             .lane = (uint8_t)(i * 2 / AT_ONCE),
                                             .peer = 1,
                                             .buffer = data,
                                             .bytes = sizeof(data)};
        assert_int_equal(rails->ops->post(rails, &request[i], &error), TWILL_OK);
    }
    for (uint32_t i = 0; i < AT_ONCE; i++)
        assert_true(rails->ops->progress(rails, &error) >= 0);
    for (uint32_t i = 0; i < AT_ONCE; i++)
        assert_int_equal(request[i].status, TWILL_OK);
    rails->ops->close(rails);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The mock misbehaves as its script says, and still delivers messages. */
#include "fabric/transports.h"
#include "tests/doubles/mock_transport.h"
#include "tests/support/messages.h"
#include "tests/support/transport_settings.h"
#include "tests/support/unit.h"

#define LONGER UINT64_C(100000000)

struct mock_end {
    struct twill_test_end end; /* first */
    struct twill_oob *oob;
};

/* All ranks here. */
static bool rank_barrier(struct twill_test_end *end)
{
    int mine = 1, all[16];
    return twill_oob_allgather(((struct mock_end *)end)->oob, &mine, all, sizeof(mine),
                               &end->error) == TWILL_OK;
}

/* What a case does on each rank once the mock is open. */
struct mock_case {
    const char *script;
    bool (*body)(struct twill_test_end *end);
    twill_status open_status;
    const char *says; /* part of the message when it does not open */
};

static void mock_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct mock_case *c = user;
    struct mock_end it = {.end = {.rank = (uint32_t)rank, .size = (uint32_t)size},
                          .oob = twill_test_oob(caller)};
    struct twill_test_end *end = &it.end;
    const struct test_setting settings[] = {{"TEST_MOCK", c->script}, {NULL, NULL}};
    struct twill_transport_params params = {
        .oob = it.oob, .setting = test_setting, .settings = settings};
    int status = twill_mock_transport.open(&end->transport, &params, &end->error);
    if (twill_test_note(status == c->open_status, __FILE__, __LINE__, "open: %d: %s", status,
                        end->error.message) &&
        status == TWILL_OK)
        (void)(c->body(end) && rank_barrier(end)); /* no rank closes while others still receive */
    else if (c->says != NULL)
        twill_test_note(strstr(end->error.message, c->says) != NULL, __FILE__, __LINE__,
                        "message is: %s", end->error.message);
    if (end->transport != NULL)
        end->transport->ops->close(end->transport);
    twill_test_oob_close(it.oob);
}

static bool carry(struct twill_test_end *end)
{
    static const size_t sizes[] = {0, 1, 8, 47, 48, 49, 4096, 100003};
    return twill_test_sweep(end, sizes, TWILL_ARRAY_LENGTH(sizes)) &&
           twill_test_flood(end, 40, 3000);
}

static void test_carries(void **state)
{
    static const char *const scripts[] = {
        "seed=1",          "seed=7,delay=3",  "seed=2,reorder=1",
        "seed=3,again=60", "seed=4,chunk=64", "seed=5,delay=9,reorder=1,again=30,chunk=1000"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(scripts); i++) {
        struct mock_case c = {.script = scripts[i], .body = carry};
        twill_test_run_ranks(3, mock_rank, &c);
    }
}

static void test_mismatch(void **state)
{
    struct mock_case c = {.script = "seed=1,delay=2", .body = twill_test_mismatch};
    twill_test_run_ranks(2, mock_rank, &c);
}

/* --- failures: rank 0 sends 8 messages, rank 1 receives -------------------------------------- */

enum { MOCK_COUNT = 8 };

static uint32_t count_done(const struct twill_transfer *requests)
{
    uint32_t done = 0;
    for (uint32_t i = 0; i < MOCK_COUNT; i++)
        done += requests[i].status != TWILL_PENDING;
    return done;
}

/* Post all, and call progress until the expected number is done, and for longer: no more may be.
 * Returns an error of progress. */
static int exchange(struct twill_test_end *end, struct twill_transfer *requests, uint64_t *payload,
                    uint32_t expected)
{
    bool sends = end->rank == 0, longer = false;
    int status = TWILL_OK;
    for (uint32_t i = 0; i < MOCK_COUNT && status >= 0; i++) {
        payload[i] = sends ? 100 + i : 0;
        requests[i] =
            (struct twill_transfer){.kind = sends ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                    .peer = 1 - end->rank,
                                    .signature = 8,
                                    .buffer = &payload[i],
                                    .bytes = sizeof(payload[i])};
        status = end->transport->ops->post(end->transport, &requests[i], &end->error);
    }
    (void)rank_barrier(end);
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    while (status >= 0 && twill_now() < limit) {
        status = end->transport->ops->progress(end->transport, &end->error);
        if (longer || count_done(requests) < expected)
            continue;
        longer = true;
        limit = twill_now() + LONGER;
    }
    return status < 0 ? status : TWILL_OK;
}

static bool fails_with_error(struct twill_test_end *end)
{
    struct twill_transfer requests[MOCK_COUNT];
    uint64_t payload[MOCK_COUNT];
    int rc = exchange(end, requests, payload, end->rank == 0 ? MOCK_COUNT : 3);
    TWILL_REQUIRE(rc == (end->rank == 0 ? TWILL_ERR_FABRIC : TWILL_OK));
    for (uint32_t i = 0; i < MOCK_COUNT; i++)
        TWILL_REQUIRE(requests[i].status == (i < 3 ? TWILL_OK : TWILL_PENDING));
    return true;
}

static bool loses_one(struct twill_test_end *end)
{
    struct twill_transfer requests[MOCK_COUNT];
    uint64_t payload[MOCK_COUNT];
    TWILL_REQUIRE(exchange(end, requests, payload, MOCK_COUNT - 1) == TWILL_OK);
    if (end->rank == 0)
        return true;
    for (uint32_t i = 0; i < MOCK_COUNT - 1; i++)
        TWILL_REQUIRE(requests[i].status == TWILL_OK && payload[i] == 100 + i + (i >= 3));
    TWILL_REQUIRE(requests[MOCK_COUNT - 1].status == TWILL_PENDING);
    return true;
}

static bool corrupts_one(struct twill_test_end *end)
{
    struct twill_transfer requests[MOCK_COUNT];
    uint64_t payload[MOCK_COUNT];
    TWILL_REQUIRE(exchange(end, requests, payload, MOCK_COUNT) == TWILL_OK);
    for (uint32_t i = 0; i < MOCK_COUNT; i++)
        TWILL_REQUIRE(requests[i].status ==
                      (end->rank == 1 && i == 3 ? TWILL_ERR_MISMATCH : TWILL_OK));
    return true;
}

static bool falls_silent(struct twill_test_end *end)
{
    struct twill_transfer requests[MOCK_COUNT];
    uint64_t payload[MOCK_COUNT];
    TWILL_REQUIRE(exchange(end, requests, payload, 3) == TWILL_OK);
    for (uint32_t i = 0; i < MOCK_COUNT; i++)
        TWILL_REQUIRE(requests[i].status == (i < 3 ? TWILL_OK : TWILL_PENDING));
    return true;
}

static void test_failures(void **state)
{
    struct mock_case cases[] = {{.script = "fail=3:1,rank=0", .body = fails_with_error},
                                {.script = "fail=3:2,rank=0,delay=1", .body = loses_one},
                                {.script = "seed=9,fail=3:3", .body = corrupts_one},
                                {.script = "fail=3:4", .body = falls_silent}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        twill_test_run_ranks(2, mock_rank, &cases[i]);
}

/* One seed delays each message of rank 0 equally in every run. */
static bool count_again(struct twill_test_end *end)
{
    struct twill_transfer requests[MOCK_COUNT];
    uint64_t payload[MOCK_COUNT];
    TWILL_REQUIRE(exchange(end, requests, payload, MOCK_COUNT) == TWILL_OK);
    uint64_t again = end->transport->counters.again;
    int64_t all[2] = {0};
    static _Atomic int64_t before; /* of the first run */
    if (end->rank == 0) {
        all[0] = (int64_t)again;
        TWILL_REQUIRE(again >= MOCK_COUNT && again <= 16 * MOCK_COUNT);
        TWILL_REQUIRE(atomic_load(&before) == 0 || atomic_load(&before) == all[0]);
        atomic_store(&before, all[0]);
    }
    return true;
}

static void test_reproducible(void **state)
{
    struct mock_case c = {.script = "seed=11,again=100", .body = count_again};
    twill_test_run_ranks(2, mock_rank, &c);
    twill_test_run_ranks(2, mock_rank, &c);
}

static void test_refuses(void **state)
{
    struct mock_case cases[] = {
        {"seed", NULL, TWILL_ERR_CONFIG, "\"seed\""},
        {"seed=1,dealy=3", NULL, TWILL_ERR_CONFIG, "\"dealy=3\""},
        {"seed=1;delay=3", NULL, TWILL_ERR_CONFIG, "\"seed=1;"},
        {"delay=", NULL, TWILL_ERR_CONFIG, "delay"},
        {"chunk=7", NULL, TWILL_ERR_CONFIG, "out of range"},
        {"fail=1:9", NULL, TWILL_ERR_CONFIG, "out of range"},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        twill_test_run_ranks(2, mock_rank, &cases[i]);
    struct mock_case processes = {"seed=1", NULL, TWILL_ERR_UNSUPPORTED, "are different processes"};
    twill_test_run_processes(2, mock_rank, &processes);
}

static void test_reaches(void **state)
{
    struct twill_transport_params params = {0};
    assert_false(twill_mock_transport.reaches(&params, 0, 1));
    test_use_mock("");
    assert_false(twill_mock_transport.reaches(&params, 0, 1));
    test_use_mock("seed=1");
    assert_true(twill_mock_transport.reaches(&params, 0, 1));
    assert_false(twill_mock_transport.reaches(&params, 1, 1));
    test_use_mock(NULL);
}

/* The transports of the library, and the mock among them. */
static void test_registry(void **state)
{
    static const char *const names[] = {"self", "mock", "shm", "tcp", "ofi"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(names); i++) {
        const struct twill_transport_ops *ops = twill_transport_at(i);
        assert_non_null(ops);
        assert_string_equal(ops->name, names[i]);
        assert_true(ops->reaches && ops->open && ops->close && ops->post && ops->progress &&
                    ops->cancel && ops->describe);
        assert_int_equal(ops->priority != NULL, i >= 3);
    }
    assert_null(twill_transport_at(TWILL_ARRAY_LENGTH(names)));
}

TWILL_UNIT_MAIN(test_carries, test_mismatch, test_failures, test_reproducible, test_registry,
                test_refuses, test_reaches)

/* SPDX-License-Identifier: Apache-2.0 */
/* Many ranks whose time is over together, on as many nodes, all of which wait for the last one.
 * They run one after the other, each with a clock of its own that begins at the same time: a rank
 * is notified by those before it only, as ranks fail in their order. The clock and the failure
 * detector are in memory (CMakeLists.txt of the tests has the linker put them in the place of the
 * real ones), so questions and notices are counted, whatever the machine does meanwhile. */
#include "fabric/shm/call_records.h"
#include "lib/base/times.h"
#include "lib/comm/comm_internal.h"
#include "lib/job/context.h"
#include "tests/support/unit.h"

#define RANKS      64u
#define ABSENT     (RANKS - 1)
#define BEGIN_NS   UINT64_C(1000000000)
#define LATENCY_NS UINT64_C(1000000) /* of a notice */
#define MOST_ASKED 16u

static uint64_t together_now;
static uint32_t running; /* the rank whose turn it is */

/* What the ranks do. */
static struct {
    unsigned asked;                /* questions of the rank that runs */
    uint64_t asked_ns[MOST_ASKED]; /* when */
    bool lossy;                 /* every second question is not sent, as there is no connection */
    unsigned notifying;         /* ranks that have notified all */
    struct twill_notice notice; /* the first one */
    uint64_t notice_ns;         /* when it was sent; 0: none was */
    bool received;              /* by the rank that runs */
} world;

#define TOGETHER_WRAPPED(result, name, ...)                                                        \
    result __wrap_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__)

TOGETHER_WRAPPED(uint64_t, twill_now, void)
{
    return together_now;
}

TOGETHER_WRAPPED(void, twill_node_sleep, struct twill_node *node, uint32_t word,
                 uint64_t timeout_ns)
{
    together_now += timeout_ns;
}

TOGETHER_WRAPPED(bool, twill_detector_poll, struct twill_detector *detector,
                 struct twill_notice *notice)
{
    if (world.received || world.notice_ns == 0 || together_now < world.notice_ns + LATENCY_NS)
        return false;
    *notice = world.notice;
    world.received = true;
    return true;
}

TOGETHER_WRAPPED(bool, twill_detector_send, struct twill_detector *detector, uint32_t peer,
                 const struct twill_notice *notice)
{
    assert_int_equal(peer, ABSENT);
    assert_true(twill_report_asks(notice));
    assert_true(world.asked < MOST_ASKED);
    world.asked_ns[world.asked++] = together_now;
    return !world.lossy || world.asked % 2 == 0;
}

TOGETHER_WRAPPED(void, twill_detector_notify, struct twill_detector *detector,
                 const struct twill_notice *notice, const uint32_t *ranks, size_t count,
                 uint64_t patience_ns)
{
    assert_int_equal(count, RANKS);
    assert_int_equal(notice->from, running);
    world.notifying++;
    if (world.notice_ns != 0)
        return;
    world.notice = *notice;
    world.notice_ns = together_now;
}

/* --- a rank ---------------------------------------------------------------------------------- */

/* A context and its communicator, of which this rank has set up no more than a search needs. */
struct together_rank {
    struct twill_context context;
    struct twill_comm comm, *open[1];
    struct twill_comm_health health;
    struct twill_world world;
    struct twill_oob oob;
    struct twill_node node;
    struct twill_node_area *area;
    uint32_t numbers[RANKS], local[RANKS], mine[1];
};

static void open_rank(struct together_rank *r, uint32_t rank)
{
    struct twill_comm *comm = &r->comm;
    const struct twill_call_record call = {.sequence = 5, .count = 4, .what = 0x201};
    for (uint32_t i = 0; i < RANKS; i++)
        r->numbers[i] = i;
    r->mine[0] = rank;
    r->area = aligned_alloc(4096, 1u << 20);
    assert_non_null(r->area);
    memset((void *)r->area, 0, 1u << 20);
    r->world =
        (struct twill_world){.size = RANKS, .nodes = RANKS, .node = r->numbers, .local = r->local};
    r->oob = (struct twill_oob){.rank = (int)rank, .size = RANKS, .job = r->numbers};
    r->node = (struct twill_node){.size = 1, .area = &r->area, .rank = r->mine};
    r->open[0] = comm;
    r->context.comms.open = r->open;
    r->context.comms.opened = 1;
    r->context.comms.next_number = 1;
    r->context.job.world.nodes = RANKS;
    r->context.job.oob = &r->oob;
    r->context.health.detector = (struct twill_detector *)(void *)r; /* only passed on */
    assert_int_equal(pthread_mutex_init(&r->context.health.detector_lock, NULL), 0);
    assert_int_equal(pthread_mutex_init(&r->context.lock, NULL), 0);
    comm->context = &r->context;
    comm->world = &r->world;
    comm->job = r->numbers;
    comm->oob = &r->oob;
    comm->rank = rank;
    comm->local_size = 1;
    comm->node = &r->node;
    comm->issue.sequence = 5;
    comm->health = &r->health;
    comm->health->reported = calloc(RANKS, sizeof(*comm->health->reported));
    assert_non_null(comm->health->reported);
    twill_node_enter_call(&r->node, &call, 1000);
}

/* Let the time of a rank be over. Returns when it has failed, after BEGIN_NS. */
static uint64_t time_out_rank(uint32_t rank)
{
    static const uint32_t awaited[] = {ABSENT};
    struct together_rank *r = calloc(1, sizeof(*r));
    uint32_t cause = RANKS;
    char place[128];
    assert_non_null(r);
    open_rank(r, rank);
    running = rank;
    together_now = BEGIN_NS;
    world.asked = 0;
    world.received = false;
    twill_status status = twill_comm_find_cause(&r->comm, awaited, 1, &cause, place, sizeof(place));
    assert_int_equal(cause, ABSENT);
    if (status == TWILL_OK)
        status = TWILL_COMM_FAIL(&r->comm, TWILL_ERR_TIMEOUT, "no message of rank %u", cause);
    assert_int_equal(twill_comm_fail(&r->comm, status, TWILL_CAUSE_ASKED), TWILL_ERR_TIMEOUT);
    assert_non_null(strstr(r->comm.error.message, "no message of rank 63"));
    assert_int_equal(r->context.health.searches, 1);
    free(r->comm.health->reported);
    free(r->area);
    free(r);
    return together_now - BEGIN_NS;
}

/* --- tests ----------------------------------------------------------------------------------- */

/* Only the first rank notifies: the others have its notice before their own turn. */
TWILL_TEST(test_spread)
{
    memset(&world, 0, sizeof(world));
    uint64_t first = time_out_rank(0);
    for (uint32_t rank = 1; rank < ABSENT; rank++)
        assert_true(time_out_rank(rank) > first);
    assert_int_equal(world.notifying, 1);
    assert_int_equal(world.notice.from, 0);
}

/* Where no notice arrives, ranks fail in their order, within the bound of a search. */
TWILL_TEST(test_order)
{
    uint64_t last = 0;
    for (uint32_t rank = 0; rank < ABSENT; rank += 31) {
        memset(&world, 0, sizeof(world));
        uint64_t end = time_out_rank(rank);
        assert_true(end > last);
        assert_true(end <= TWILL_SEARCH_NS);
        assert_int_equal(world.notifying, 1);
        last = end;
    }
}

/* A rank that does not answer is asked again after twice the time, each time: a few times. Where a
 * question could not be sent, the next one comes as soon. */
TWILL_TEST(test_questions)
{
    for (int lossy = 0; lossy < 2; lossy++) {
        memset(&world, 0, sizeof(world));
        world.lossy = lossy;
        (void)time_out_rank(7);
        assert_in_range(world.asked, 4, 9);
        for (unsigned i = 2; i < world.asked; i++) {
            uint64_t pause = world.asked_ns[i] - world.asked_ns[i - 1],
                     before = world.asked_ns[i - 1] - world.asked_ns[i - 2];
            bool sent = !lossy || i % 2 == 0; /* the question that this pause follows */
            assert_int_equal(pause, sent ? 2 * before : before);
        }
    }
}

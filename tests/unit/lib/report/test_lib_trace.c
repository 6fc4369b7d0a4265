/* SPDX-License-Identifier: Apache-2.0 */
/* The event ring: what calls, waits and failures record, also as peers read it; unfinished and
 * overwritten slots; writers on other threads; the consumer of a timeline. */
#include "fabric/shm/node_memory.h"
#include "lib/comm/comm.h"
#include "tests/support/unit.h"

/* --- the ring alone -------------------------------------------------------------------------- */

static struct twill_trace_event numbered_event(uint64_t n)
{
    return (struct twill_trace_event){.tick = n + 1,
                                      .bytes = n * 3,
                                      .sequence = (uint32_t)(n * 5),
                                      .peer = (uint32_t)(n * 7),
                                      .what = (uint32_t)(n * 11) & 0xffffffu,
                                      .detail = (uint16_t)(n * 13),
                                      .kind = TWILL_TRACE_CALL_BEGIN};
}

static void assert_same_event(const struct twill_trace_event *a, const struct twill_trace_event *b)
{
    assert_int_equal(a->tick, b->tick);
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->sequence, b->sequence);
    assert_int_equal(a->peer, b->peer);
    assert_int_equal(a->what, b->what);
    assert_int_equal(a->detail, b->detail);
    assert_int_equal(a->kind, b->kind);
}

TWILL_TEST(last_events_are_kept)
{
    static struct twill_trace_ring ring;
    const struct twill_trace trace = {.ring = &ring};
    struct twill_trace_event found;
    uint64_t first;
    assert_int_equal(twill_trace_written(&ring, false, &first), 0);
    assert_false(twill_trace_read(&ring, false, 0, &found)); /* never written */
    for (uint64_t n = 0; n < 3 * TWILL_TRACE_EVENTS + 17; n++)
        twill_trace_emit(&trace, numbered_event(n));
    assert_int_equal(twill_trace_written(&ring, false, &first), 3 * TWILL_TRACE_EVENTS + 17);
    assert_int_equal(first, 2 * TWILL_TRACE_EVENTS + 17);
    for (uint64_t n = first; n < first + TWILL_TRACE_EVENTS; n++) {
        struct twill_trace_event expected = numbered_event(n);
        assert_true(twill_trace_read(&ring, false, n, &found));
        assert_same_event(&found, &expected);
    }
    assert_false(twill_trace_read(&ring, false, first - 1, &found)); /* overwritten */
}

TWILL_TEST(unfinished_slot_is_recognised)
{
    static struct twill_trace_ring ring;
    const struct twill_trace trace = {.ring = &ring};
    struct twill_trace_event found;
    for (uint64_t n = 0; n < TWILL_TRACE_EVENTS; n++)
        twill_trace_emit(&trace, numbered_event(n));
    /* As a writer leaves it that is killed behind its first stores. */
    atomic_store(&ring.slot[5].tag, TWILL_TRACE_UNFINISHED);
    atomic_store(&ring.slot[5].tick, 12345);
    assert_false(twill_trace_read(&ring, false, 5, &found));
    assert_true(twill_trace_read(&ring, false, 4, &found));
    assert_true(twill_trace_read(&ring, false, 6, &found));
}

/* --- several writers ------------------------------------------------------------------------- */

#define WRITERS     3
#define WRITER_EACH 20000u

static void *write_others(void *trace)
{
    for (uint64_t n = 0; n < WRITER_EACH; n++)
        twill_trace_emit_other(trace, numbered_event(n));
    return NULL;
}

/* Every event that is read is one that was written, as a whole. */
TWILL_TEST(other_threads_write)
{
    static struct twill_trace_ring ring;
    struct twill_trace trace = {.ring = &ring};
    pthread_t writer[WRITERS];
    for (unsigned i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&writer[i], NULL, write_others, &trace), 0);
    uint64_t first, read = 0, written = 0;
    while (written < (uint64_t)WRITERS * WRITER_EACH) {
        written = twill_trace_written(&ring, true, &first);
        for (uint64_t n = first; n < written; n++) {
            struct twill_trace_event found, expected;
            if (!twill_trace_read(&ring, true, n, &found))
                continue;
            expected = numbered_event(found.tick - 1);
            assert_same_event(&found, &expected);
            read++;
        }
    }
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(writer[i], NULL);
    assert_true(read > 0);
}

/* A slot of another thread's that was never finished stays so: nobody can know whether its writer
 * still writes. */
TWILL_TEST(unfinished_slot_is_left_alone)
{
    static struct twill_trace_ring ring;
    struct twill_trace trace = {.ring = &ring};
    struct twill_trace_event found;
    atomic_store(&ring.other[5].tag, TWILL_TRACE_UNFINISHED);
    for (uint64_t n = 0; n < 2 * TWILL_TRACE_OTHERS; n++)
        twill_trace_emit_other(&trace, numbered_event(n));
    for (uint64_t n = TWILL_TRACE_OTHERS; n < 2 * TWILL_TRACE_OTHERS; n++)
        assert_int_equal(twill_trace_read(&ring, true, n, &found), n != TWILL_TRACE_OTHERS + 5);
    assert_int_equal(atomic_load(&ring.other[5].tick), 0);
}

/* --- events of calls ------------------------------------------------------------------------- */

#define TRACED_CALLS 3

/* Check the events of TRACED_CALLS allreduces, as recorded by local rank l. */
static bool ring_has_calls(const struct twill_comm *comm, uint32_t l)
{
    const struct twill_trace_ring *ring = twill_node_trace(comm->node, l);
    struct twill_trace_event event;
    uint64_t first, calls = 0, tick = 0;
    uint64_t written = twill_trace_written(ring, false, &first);
    for (uint64_t n = first; n < written; n++) {
        TWILL_REQUIRE(twill_trace_read(ring, false, n, &event));
        if (event.kind != TWILL_TRACE_CALL_BEGIN && event.kind != TWILL_TRACE_CALL_END)
            continue;
        TWILL_REQUIRE((event.kind == TWILL_TRACE_CALL_END) == (calls % 2 == 1));
        TWILL_REQUIRE(event.sequence == calls / 2 + 1);
        TWILL_REQUIRE(event.bytes == 40 && event.detail == 0);
        TWILL_REQUIRE(event.tick >= tick);
        struct twill_call call = twill_call_of(event.what, 0, 0);
        TWILL_REQUIRE(call.collective == TWILL_ALLREDUCE && call.type == TWILL_F64);
        TWILL_REQUIRE(call.op == TWILL_MAX && !call.vector);
        tick = event.tick;
        calls++;
    }
    return calls == 2 * TRACED_CALLS;
}

static void count_event(void *user, const struct twill_trace_event *event)
{
    ((unsigned *)user)[event->kind]++;
}

TWILL_TEST_ON(calls_are_recorded, ranks, TWILL_LAYOUTS("3"))
{
    double x[5] = {rank, 1, 2, 3, 4};
    unsigned seen[TWILL_TRACE_KIND_COUNT] = {0};
    for (int i = 0; i < TRACED_CALLS; i++)
        TWILL_CHECK_OK(&comm->error, twill_allreduce(comm, x, x, 5, TWILL_F64, TWILL_MAX));
    TWILL_CHECK(twill_test_barrier(bootstrap));
    for (uint32_t l = 0; l < (uint32_t)size; l++)
        TWILL_CHECK(ring_has_calls(comm, l));
    TWILL_CHECK(twill_test_barrier(bootstrap));
    comm->trace.user = seen; /* as a timeline does */
    comm->trace.consumer = count_event;
    TWILL_CHECK_OK(&comm->error, twill_barrier(comm));
    comm->trace.consumer = NULL;
    comm->trace.user = NULL; /* a timeline frees what it has put there */
    TWILL_CHECK(seen[TWILL_TRACE_CALL_BEGIN] == 1 && seen[TWILL_TRACE_CALL_END] == 1);
    TWILL_CHECK(seen[TWILL_TRACE_SEGMENT_BEGIN] == 1 && seen[TWILL_TRACE_SEGMENT_END] == 1);
    TWILL_CHECK(seen[TWILL_TRACE_WAIT_BEGIN] == seen[TWILL_TRACE_WAIT_END]);
    TWILL_CHECK(twill_test_barrier(bootstrap));
}

/* --- a wait whose awaited rank changes -------------------------------------------------------- */

/* Of this thread: the ranks that a communicator waits for, in a list that ends with rank 0. */
static _Thread_local const uint32_t *awaited;

unsigned __real_twill_engine_waits_for(struct twill_engine *engine, uint32_t *ranks, unsigned most,
                                       const char **step);
unsigned __wrap_twill_engine_waits_for(struct twill_engine *engine, uint32_t *ranks, unsigned most,
                                       const char **step);
unsigned __wrap_twill_engine_waits_for(struct twill_engine *engine, uint32_t *ranks, unsigned most,
                                       const char **step)
{
    if (awaited == NULL)
        return __real_twill_engine_waits_for(engine, ranks, most, step);
    ranks[0] = *awaited++;
    *step = "message";
    return 1;
}

static bool all_were_awaited(const void *of)
{
    return *awaited == 0;
}

/* The ring has a wait for each rank in turn, and one for a rank that is awaited twice in a row. */
TWILL_TEST_ON(waits_for_other_ranks_are_recorded, ranks, TWILL_LAYOUTS("4"), TWILL_TEST_PATIENT)
{
    static const uint32_t ranks[] = {2, 2, 1, 3, 3, 2, 0}, expected[] = {2, 1, 3, 2};
    struct twill_trace_event event;
    uint64_t first;
    uint64_t before = twill_trace_written(comm->trace.ring, false, &first);
    if (rank == 0) {
        awaited = ranks;
        TWILL_CHECK_OK(&comm->error, twill_comm_wait(comm, all_were_awaited, NULL));
        awaited = NULL;
        TWILL_CHECK(twill_trace_written(comm->trace.ring, false, &first) == before + 8);
        for (unsigned i = 0; i < 8; i++) {
            TWILL_CHECK(twill_trace_read(comm->trace.ring, false, before + i, &event));
            TWILL_CHECK(event.kind == (i % 2 == 0 ? TWILL_TRACE_WAIT_BEGIN : TWILL_TRACE_WAIT_END));
            TWILL_CHECK(i % 2 == 1 || event.peer == expected[i / 2], "event %u: rank %u", i,
                        event.peer);
        }
    }
}

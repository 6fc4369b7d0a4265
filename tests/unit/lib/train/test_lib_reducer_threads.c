/* SPDX-License-Identifier: Apache-2.0 */
/* Communication threads: each has an endpoint that nothing else uses, and runs on the PU that the
 * set's description names. If one cannot start, none runs when the reason is written. Any thread
 * may read the counters, also while sizes are searched. */
#include "lib/comm/comm.h"
#include "lib/job/context.h"
#include "lib/train/gradients.h"
#include "tests/support/gradient_sets.h"
#include "tests/support/no_threads.h"
#include "tests/support/placement.h"
#include "tests/support/unit.h"

#define REDUCER_THREADS 3u

#define THREE_THREADS "TWILL_GRADIENTS=threads=3,bucket=0,order=priority"

/* Commit a set with a tensor for each thread, and reduce once. */
static bool reducers_start(struct twill_test_set *s)
{
    TWILL_REQUIRE(twill_test_fine(s->comm, twill_gradients_create(&s->set, s->comm, NULL)));
    for (unsigned t = 0; t < REDUCER_THREADS; t++)
        TWILL_REQUIRE(twill_test_set_add(s, t, 1000, TWILL_F32, NULL, NULL));
    TWILL_REQUIRE(twill_test_set_commit(s));
    for (unsigned t = 0; t < REDUCER_THREADS; t++)
        TWILL_REQUIRE(twill_gradients_ready(s->set, (int)t) == TWILL_OK);
    return twill_test_set_ok(s, twill_gradients_wait_all(s->set));
}

/* List the communicators that threads use, and the caller's. */
static unsigned list_comms(const struct twill_test_set *s, const struct twill_comm **comms)
{
    unsigned n = 0;
    comms[n++] = s->comm;
    for (unsigned l = 0; l < s->set->reducers; l++) {
        comms[n++] = s->set->reducer[l].comm;
        comms[n++] = s->set->reducer[l].order_comm;
    }
    return n;
}

/* What communicators share of a transport between nodes: endpoint and completion queue. */
static const void *shared_of(const struct twill_comm *comm, unsigned t)
{
    return comm->alone ? comm->ends.common[t] : comm->context->transports.common[t];
}

/* Check that no two communicators share an endpoint, and that there are some. */
static bool endpoints_are_their_own(const struct twill_test_set *s)
{
    const struct twill_comm *comms[1 + 2 * REDUCER_THREADS];
    unsigned n = list_comms(s, comms), endpoints = 0;
    TWILL_REQUIRE(n == TWILL_ARRAY_LENGTH(comms));
    for (unsigned i = 0; i < n; i++)
        for (unsigned t = 0; t < TWILL_TRANSPORTS_MOST; t++) {
            endpoints += shared_of(comms[i], t) != NULL;
            for (unsigned j = 0; shared_of(comms[i], t) != NULL && j < i; j++)
                TWILL_REQUIRE(shared_of(comms[i], t) != shared_of(comms[j], t),
                              "communicators %u and %u share transport %u", i, j, t);
        }
    return TWILL_NOTE(endpoints == n, "%u endpoints of %u communicators", endpoints, n);
}

TWILL_TEST_ON(no_two_threads_share_an_endpoint, ranks, TWILL_LAYOUTS("2x1"), TWILL_TEST_PATIENT,
              THREE_THREADS)
{
    struct twill_test_set s = {comm->context, comm, NULL};
    if (reducers_start(&s))
        (void)endpoints_are_their_own(&s);
    twill_gradients_destroy(s.set);
}

/* --- binding --------------------------------------------------------------------------------- */

/* Bind to the first PU of two, and expect the threads on the other one. */
static void rank_is_bound(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const int *pus = user;
    struct twill_test_set s = {NULL, NULL, NULL};
    twill_test_bind(pus[0]);
    if (twill_test_join(&s.context, &s.comm, bootstrap, "", TWILL_TEST_PATIENT, THREE_THREADS) &&
        reducers_start(&s)) {
        unsigned named = 0, found = 0;
        const char *line;
        for (size_t i = 0; (line = twill_gradients_describe(s.set, i)) != NULL; i++) {
            int pu = -1;
            const char *at = strncmp(line, "thread ", 7) == 0 ? strstr(line, "PU ") : NULL;
            named += at != NULL && sscanf(at, "PU %d", &pu) == 1 && pu != pus[0];
            found += at != NULL && twill_test_threads_on("twill-reducer", pu) > 0;
        }
        (void)TWILL_NOTE(named == REDUCER_THREADS && found == REDUCER_THREADS,
                         "threads named and found: %u and %u of %u", named, found, REDUCER_THREADS);
    }
    twill_test_set_close(&s, bootstrap);
}

TWILL_TEST(threads_run_where_no_rank_does)
{
    int pus[2];
    if (!twill_test_two_pus(pus))
        skip(); /* no PU is left on such a machine */
    twill_test_run_processes(1, rank_is_bound, pus);
}

/* --- a thread that cannot start -------------------------------------------------------------- */

/* The thread of reducer 1 cannot start again: the sentence is written when no other reducer's
 * thread runs any more, which might fail the set at the same moment. */
TWILL_TEST_ON(lacks_thread, ranks, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT, THREE_THREADS)
{
    struct twill_test_set s = {comm->context, comm, NULL};
    TWILL_CHECK(reducers_start(&s));
    twill_reducer_thread_stop(&s.set->reducer[1]);
    TWILL_CHECK(s.set->reducer[0].own.running && s.set->reducer[2].own.running);
    no_threads = true;
    TWILL_CHECK(twill_reducer_thread_start(&s.set->reducer[1]) == TWILL_ERR_SYSTEM);
    no_threads = false;
    TWILL_CHECK(TWILL_SAYS(s.set->error.message, "no thread for reducer 1"));
    for (uint32_t l = 0; l < REDUCER_THREADS; l++)
        TWILL_CHECK(!s.set->reducer[l].own.running);
    twill_gradients_destroy(s.set);
}

/* --- counters -------------------------------------------------------------------------------- */

/* A thread that reads what any thread may. */
struct set_reader {
    twill_gradients *set;
    _Atomic bool stop;
    _Atomic unsigned reads;
    unsigned wrong;
};

static void *read_set(void *of)
{
    struct set_reader *reader = of;
    const void *parameters = twill_gradients_parameters(reader->set, 0);
    uint64_t calls = 0;
    for (; !atomic_load(&reader->stop); atomic_fetch_add(&reader->reads, 1)) {
        twill_gradients_counters set;
        twill_counters traffic;
        bool right = twill_gradients_count(reader->set, &set) == TWILL_OK &&
                     twill_gradients_traffic(reader->set, &traffic) == TWILL_OK;
        right = right && set.buckets > 0 && set.state_bytes > 0 && traffic.calls >= calls;
        right = right && twill_gradients_parameters(reader->set, 0) == parameters &&
                twill_gradients_memory(reader->set, 0) != NULL;
        reader->wrong += !right;
        calls = right ? traffic.calls : calls;
    }
    return NULL;
}

/* Train until the search for sizes, which divides the tensors anew in each step, is over. */
static bool search_sizes(struct twill_test_set *s, struct set_reader *reader)
{
    while (!twill_search_is_over(&s->set->searches->sizes)) {
        unsigned before = atomic_load(&reader->reads);
        for (unsigned t = 0; t < REDUCER_THREADS; t++)
            TWILL_REQUIRE(twill_gradients_ready(s->set, (int)t) == TWILL_OK);
        TWILL_REQUIRE(twill_test_set_ok(s, twill_gradients_wait_all(s->set)));
        const uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
        while (atomic_load(&reader->reads) == before && twill_now() < limit)
            (void)sched_yield();
        TWILL_REQUIRE(atomic_load(&reader->reads) != before);
    }
    return true;
}

TWILL_TEST_SETS(any_thread_reads_counters, ranks, TWILL_LAYOUTS("2"), *c, TWILL_TEST_PATIENT,
                "TWILL_GRADIENTS=autotune=1,threads=2")
{
    pthread_t thread;
    twill_optimizer optimizer;
    twill_optimizer_defaults(&optimizer, TWILL_OPTIMIZER_SGD);
    optimizer.momentum = 0.9;
    TWILL_CHECK(twill_gradients_set_optimizer(r->set, &optimizer) == TWILL_OK);
    for (unsigned t = 0; t < REDUCER_THREADS; t++)
        TWILL_CHECK(twill_test_set_add(r, t, 1000, TWILL_F32, NULL, NULL));
    TWILL_CHECK(twill_test_set_commit(r));
    struct set_reader reader = {.set = r->set};
    TWILL_CHECK(pthread_create(&thread, NULL, read_set, &reader) == 0);
    (void)search_sizes(r, &reader);
    atomic_store(&reader.stop, true);
    pthread_join(thread, NULL);
    (void)TWILL_NOTE(reader.wrong == 0, "%u of %u reads are wrong", reader.wrong,
                     atomic_load(&reader.reads));
}

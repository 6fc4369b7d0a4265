/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks stop after the same call, whichever of them asks, and whenever it does. Ranks are
 * processes, as the wish to stop is one of a process. */
#include "lib/twill_recover.h"
#include "tests/support/gradient_sets.h"
#include "tests/support/unit.h"

#include <signal.h>

enum { LARGE = 50000, STEPS = 9 };

/* What a rank does between two questions. */
enum step {
    BROADCAST,
    REDUCE,
    EMPTY,
    START,
    WAIT,
    OVERLAP, /* a large broadcast and a small sum, one of which may end before the other */
    REFUSED, /* all ranks refuse it */
    SUM,
    LARGE_SUM,
    GATHER,
    BARRIER
};
static const struct stop_script {
    const char *nodes, *settings;
    enum step steps[STEPS];
    int asks_after[2]; /* number of steps after which the first and the last rank ask; 0: never */
    uint64_t expected; /* number of the call */
} scripts[] = {
    {"3", "TWILL_LOG=warn", {SUM, BROADCAST, REDUCE, EMPTY, SUM, GATHER}, {1, 0}, 5},
    {"3", "TWILL_LOG=warn", {SUM, BROADCAST, REDUCE, EMPTY, SUM, GATHER}, {0, 3}, 5},
    {"3", "TWILL_LOG=warn", {SUM, LARGE_SUM, BARRIER, SUM}, {2, 1}, 2},
    {"2", "TWILL_LOG=warn", {START, BROADCAST, WAIT, BROADCAST, GATHER, SUM}, {1, 0}, 4},
    {"2", "TWILL_LOG=warn", {BROADCAST, START, BROADCAST, WAIT, BROADCAST}, {0, 1}, 2},
    {"2+1", "TWILL_PROVIDER=tcp", {BROADCAST, BROADCAST, SUM, SUM}, {0, 1}, 3},
    {"2x2", "TWILL_PROVIDER=tcp", {REDUCE, BROADCAST, EMPTY, LARGE_SUM, SUM}, {0, 1}, 4},
    {"2x2", "TWILL_PROVIDER=tcp", {SUM, BROADCAST, GATHER, SUM, SUM}, {2, 1}, 3},
    {"1x4", "TWILL_PROVIDER=ofi:tcp", {SUM, SUM, BROADCAST, BARRIER, SUM}, {2, 0}, 4},
    {"3", "TWILL_LOG=warn", {BROADCAST, REDUCE, EMPTY, BROADCAST}, {1, 1}, 0},
    {"3", "TWILL_LOG=warn", {BROADCAST, OVERLAP, OVERLAP, SUM}, {1, 0}, 3},
    {"2x2", "TWILL_PROVIDER=tcp", {BROADCAST, OVERLAP, OVERLAP, SUM}, {0, 1}, 3},
    {"2x2", "TWILL_PROVIDER=tcp", {BROADCAST, REFUSED, REDUCE, SUM}, {1, 0}, 4},
    {"2x2", "TWILL_PROVIDER=tcp", {BROADCAST, REFUSED, BROADCAST, GATHER}, {0, 1}, 4},
};

static float large[LARGE];

static bool make(twill_comm *comm, enum step step, twill_request **request)
{
    float one[4] = {1}, all[16];
    static float sum[4];
    twill_request *both[2];
    switch (step) {
    case BROADCAST:
        return twill_broadcast(comm, one, one, 4, TWILL_F32, 0) == TWILL_OK;
    case REDUCE:
        return twill_reduce(comm, one, one, 4, TWILL_F32, TWILL_SUM, 0) == TWILL_OK;
    case EMPTY:
        return twill_allreduce(comm, one, one, 0, TWILL_F32, TWILL_SUM) == TWILL_OK;
    case START:
        return twill_allreduce_start(comm, sum, sum, 4, TWILL_F32, TWILL_SUM, request) == TWILL_OK;
    case WAIT:
        return twill_wait(request) == TWILL_OK;
    case OVERLAP:
        return twill_broadcast_start(comm, large, large, LARGE, TWILL_F32, 0, &both[0]) ==
                   TWILL_OK &&
               twill_allreduce_start(comm, sum, sum, 4, TWILL_F32, TWILL_SUM, &both[1]) ==
                   TWILL_OK &&
               twill_wait_all(2, both) == TWILL_OK;
    case REFUSED:
        return twill_allreduce(comm, one, one, 4, TWILL_F32, TWILL_BAND) == TWILL_ERR_ARGUMENT;
    case SUM:
        return twill_allreduce(comm, one, one, 4, TWILL_F32, TWILL_SUM) == TWILL_OK;
    case LARGE_SUM:
        return twill_allreduce(comm, large, large, LARGE, TWILL_F32, TWILL_SUM) == TWILL_OK;
    case GATHER:
        return twill_allgather(comm, one, all, 4, TWILL_F32) == TWILL_OK;
    case BARRIER:
        break;
    }
    return twill_barrier(comm) == TWILL_OK;
}

/* Make the steps, and ask after each whether to stop. The first rank wishes it by a call, the last
 * one by a signal. */
TWILL_TEST_CASES(test_stop, processes, scripts, c->nodes, c->settings, "TWILL_STOP_SIGNAL=USR2")
{
    int wishes = rank == 0 ? c->asks_after[0] : rank == size - 1 ? c->asks_after[1] : 0;
    twill_request *request = NULL;
    uint64_t after = 0;
    (void)bootstrap;
    for (int i = 0; i < STEPS && after == 0; i++) {
        TWILL_CHECK(make(comm, c->steps[i], &request));
        if (i + 1 == wishes && rank == 0)
            twill_stop();
        else if (i + 1 == wishes)
            TWILL_CHECK(raise(SIGUSR2) == 0);
        TWILL_CHECK(twill_test_fine(comm, twill_comm_stop_requested(comm, &after)));
    }
    TWILL_CHECK(request == NULL || twill_wait(&request) == TWILL_OK);
    TWILL_CHECK(after == c->expected, "rank %d of %s stops after call %llu, not %llu", rank,
                c->nodes, (unsigned long long)after, (unsigned long long)c->expected);
    TWILL_CHECK(twill_comm_stop_requested(comm, NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(TWILL_SAYS(twill_comm_message(comm), "after is NULL"));
}

/* --- gradient sets --------------------------------------------------------------------------- */

/* Steps of a set, whose last rank wishes to stop after the second. A tensor has fewer elements than
 * there are ranks, so that some have an empty shard. */
static const struct stop_set {
    const char *nodes, *gradients;
    bool optimizer;
    uint64_t least, most; /* step after which all stop, by which of its calls had begun */
} stop_sets[] = {{"3", "TWILL_GRADIENTS=bucket=0", false, 3, 3},
                 {"3", "TWILL_GRADIENTS=bucket=0", true, 3, 3},
                 {"2+1", "TWILL_GRADIENTS=threads=1", false, 3, 3},
                 {"1x2", "TWILL_GRADIENTS=threads=2,bucket=0", true, 3, 3},
                 {"2", "TWILL_GRADIENTS=compress=top_k", false, 3, 3},
                 {"2", "TWILL_GRADIENTS=autotune=1", false, 3, 3},
                 {"2", "TWILL_GRADIENTS=order=priority", false, 3, 3},
                 {"3", "TWILL_GRADIENTS=late=1,bucket=0", false, 3, 4},
                 {"3", "TWILL_GRADIENTS=late=1,bucket=0,order=priority", false, 3, 4},
                 {"2+1", "TWILL_GRADIENTS=late=1,threads=1", true, 3, 4},
                 {"2", "TWILL_GRADIENTS=late=1,autotune=1", false, 3, 4}};
TWILL_TEST_SETS(sets_stop, processes, stop_sets, c->nodes, c->gradients, "TWILL_PROVIDER=tcp")
{
    static const size_t counts[] = {2, 3000};
    twill_optimizer optimizer;
    uint64_t after = 0, step = 0;
    for (int t = 0; t < 2; t++) {
        const twill_tensor tensor = {.name = t == 0 ? "short" : "long", .count = counts[t]};
        TWILL_CHECK(twill_gradients_add(r->set, &tensor, NULL) == TWILL_OK);
    }
    twill_optimizer_defaults(&optimizer, TWILL_OPTIMIZER_ADAMW);
    if (c->optimizer)
        TWILL_CHECK(twill_gradients_set_optimizer(r->set, &optimizer) == TWILL_OK);
    TWILL_CHECK(twill_gradients_commit(r->set) == TWILL_OK, "%s", twill_gradients_message(r->set));
    for (; step < 6 && after == 0; step++) {
        for (int t = 0; t < 2; t++)
            TWILL_CHECK(twill_gradients_ready(r->set, t) == TWILL_OK);
        TWILL_CHECK(twill_gradients_stop_requested(r->set, &after) == TWILL_ERR_ARGUMENT);
        TWILL_CHECK(twill_gradients_wait_all(r->set) == TWILL_OK);
        if (rank == size - 1 && step == 1)
            twill_stop();
        TWILL_CHECK(twill_gradients_stop_requested(r->set, &after) == TWILL_OK, "%s",
                    twill_gradients_message(r->set));
    }
    TWILL_CHECK(after >= c->least && after <= c->most && step == after,
                "rank %d stops after step %llu of %llu (%s)", rank, (unsigned long long)after,
                (unsigned long long)step, c->gradients);
    uint64_t both[2] = {after, -after};
    TWILL_CHECK(twill_allreduce(r->comm, both, both, 2, TWILL_U64, TWILL_MAX) == TWILL_OK);
    TWILL_CHECK(both[0] == -both[1], "ranks stop after steps %llu to %llu (%s)",
                (unsigned long long)-both[1], (unsigned long long)both[0], c->gradients);
}

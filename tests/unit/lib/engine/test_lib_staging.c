/* SPDX-License-Identifier: Apache-2.0 */
/* Copies into memory that the ranks of a node share: the trials of cached and streamed stores, what
 * they decide, and the longer segments of ranks that share cores. Values are checked in each way;
 * which way is quicker is not. */
#include "fabric/shm/node_memory.h"
#include "lib/comm/comm.h"
#include "lib/engine/engine_internal.h"
#include "lib/job/context.h"
#include "tests/support/placement.h"
#include "tests/support/unit.h"

enum {
    STAGED_RANKS = 2,
    STAGED_BYTES = 1 << 20,
    SEGMENTS = 8, /* of a broadcast of STAGED_BYTES */
    TRIAL = TWILL_STAGING_GROUP * TWILL_STAGING_GROUPS
};

/* Two buffers of each rank, which begin at odd addresses. */
struct staged_buffers {
    unsigned char *memory[2], *src, *dst;
};

static bool take_buffers(struct staged_buffers *buffers, size_t bytes)
{
    for (unsigned i = 0; i < 2; i++)
        buffers->memory[i] = malloc(bytes + 1);
    TWILL_REQUIRE(buffers->memory[0] != NULL && buffers->memory[1] != NULL);
    buffers->src = buffers->memory[0] + 1;
    buffers->dst = buffers->memory[1] + 1;
    return true;
}

static void give_buffers(struct staged_buffers *buffers)
{
    free(buffers->memory[0]);
    free(buffers->memory[1]);
}

static unsigned char byte_of(size_t at, uint32_t rank, unsigned call)
{
    return (unsigned char)(at * 7 + at / 509 + rank * 31 + call * 3);
}

static void fill_bytes(unsigned char *bytes, size_t count, uint32_t rank, unsigned call)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = byte_of(i, rank, call);
}

static bool run_broadcast(twill_comm *comm, struct staged_buffers *buffers, size_t bytes,
                          unsigned call)
{
    fill_bytes(buffers->src, bytes, comm->rank, call);
    memset(buffers->dst, 0, bytes);
    TWILL_REQUIRE(twill_broadcast(comm, buffers->src, buffers->dst, bytes, TWILL_U8, call % 2) ==
                  TWILL_OK);
    TWILL_REQUIRE(comm->plan_cache.last->choice.shape.protocol == TWILL_PROTOCOL_STAGED);
    for (size_t i = 0; i < bytes; i++)
        TWILL_REQUIRE(buffers->dst[i] == byte_of(i, call % 2, call));
    return true;
}

static bool run_alltoall(twill_comm *comm, struct staged_buffers *buffers, size_t bytes,
                         unsigned call)
{
    size_t shard = bytes / STAGED_RANKS;
    fill_bytes(buffers->src, bytes, comm->rank, call);
    TWILL_REQUIRE(twill_alltoall(comm, buffers->src, buffers->dst, shard, TWILL_U8) == TWILL_OK);
    for (size_t i = 0; i < bytes; i++)
        TWILL_REQUIRE(buffers->dst[i] ==
                      byte_of(comm->rank * shard + i % shard, (uint32_t)(i / shard), call));
    return true;
}

/* Check what a trial has found out, once both ranks have ended it. */
static bool check_trial(const twill_comm *comm, enum twill_staging_kind kind)
{
    const struct twill_staging *staging = &comm->staging[kind];
    for (unsigned way = 0; way < 2; way++) {
        TWILL_REQUIRE(staging->cost[way] > 0);
        TWILL_REQUIRE(twill_node_staging_cost(comm->node, comm->local, kind, way) ==
                      staging->cost[way]);
        TWILL_REQUIRE(twill_node_staging_cost(comm->node, 1 - comm->local, kind, way) > 0);
    }
    return true;
}

static bool run_trials(twill_comm *comm, twill_bootstrap *bootstrap, struct staged_buffers *buffers)
{
    const struct twill_staging *one_way = &comm->staging[TWILL_STAGING_ONE_WAY],
                               *exchange = &comm->staging[TWILL_STAGING_EXCHANGE];
    unsigned calls = TRIAL / SEGMENTS;
    for (unsigned i = 0; i < calls; i++) {
        TWILL_REQUIRE(one_way->begun == i * SEGMENTS);
        TWILL_REQUIRE(run_broadcast(comm, buffers, STAGED_BYTES, i));
    }
    TWILL_REQUIRE(twill_test_barrier(bootstrap));
    TWILL_REQUIRE(check_trial(comm, TWILL_STAGING_ONE_WAY));
    TWILL_REQUIRE(run_broadcast(comm, buffers, STAGED_BYTES, calls));
    TWILL_REQUIRE(one_way->streams == twill_staging_decide(&comm->engine, TWILL_STAGING_ONE_WAY));
    TWILL_REQUIRE(exchange->begun == 0);
    for (unsigned i = 0; i < calls; i++)
        TWILL_REQUIRE(run_alltoall(comm, buffers, STAGED_BYTES, i));
    TWILL_REQUIRE(exchange->begun == TRIAL);
    TWILL_REQUIRE(twill_test_barrier(bootstrap));
    TWILL_REQUIRE(check_trial(comm, TWILL_STAGING_EXCHANGE));
    TWILL_REQUIRE(twill_allreduce(comm, buffers->src, buffers->dst, STAGED_BYTES, TWILL_U8,
                                  TWILL_MAX) == TWILL_OK);
    TWILL_REQUIRE(run_broadcast(comm, buffers, 4096, 0));
    return exchange->begun == TRIAL && one_way->begun == TRIAL + SEGMENTS;
}

/* Later communicators of the same ranks, in any order, begin with what was found out: a trial is
 * done once. */
static bool run_without_trials(twill_comm *first, struct staged_buffers *buffers)
{
    for (int turned = 0; turned < 2; turned++) {
        twill_comm *comm;
        TWILL_REQUIRE(twill_comm_split(&comm, first, 0, turned ? -(int)first->rank : 0) ==
                      TWILL_OK);
        TWILL_REQUIRE(twill_barrier(comm) == TWILL_OK); /* the first call opens it */
        for (unsigned kind = 0; kind < TWILL_STAGING_KINDS; kind++)
            TWILL_REQUIRE(twill_node_staging_cost(comm->node, comm->local, kind, 0) ==
                              first->staging[kind].cost[0] &&
                          twill_node_staging_cost(comm->node, comm->local, kind, 1) ==
                              first->staging[kind].cost[1]);
        TWILL_REQUIRE(run_broadcast(comm, buffers, STAGED_BYTES, 0));
        TWILL_REQUIRE(run_alltoall(comm, buffers, STAGED_BYTES, 0));
        for (unsigned kind = 0; kind < TWILL_STAGING_KINDS; kind++) {
            TWILL_REQUIRE(comm->staging[kind].begun > TRIAL && comm->staging[kind].bytes == 0);
            TWILL_REQUIRE(comm->staging[kind].streams == twill_staging_decide(&comm->engine, kind));
        }
        twill_comm_destroy(comm);
    }
    return true;
}

#define STAGED_SETTINGS(tune) tune, "TWILL_LOG=none", TWILL_TEST_PATIENT

/* The length is set, as ranks that share a core have longer segments else. */
TWILL_TEST_ON(test_trials, ranks, TWILL_LAYOUTS("2"),
              STAGED_SETTINGS("TWILL_TUNE=segment=128K,reach=none"))
{
    struct staged_buffers buffers;
    TWILL_CHECK(take_buffers(&buffers, STAGED_BYTES));
    TWILL_CHECK(run_trials(comm, bootstrap, &buffers) && run_without_trials(comm, &buffers));
    give_buffers(&buffers);
}

/* Run one broadcast on a communicator of a colour's ranks; it begins a trial. */
static bool begins_trial(twill_comm *world, int colour, struct staged_buffers *buffers)
{
    twill_comm *comm;
    TWILL_REQUIRE(twill_comm_split(&comm, world, colour, 0) == TWILL_OK);
    if (comm->local_size > 1) {
        TWILL_REQUIRE(run_broadcast(comm, buffers, STAGED_BYTES, 0));
        TWILL_REQUIRE(comm->staging[TWILL_STAGING_ONE_WAY].begun == SEGMENTS);
    }
    twill_comm_destroy(comm);
    return true;
}

/* Costs that other ranks have found out are not used, nor those that only some ranks still have. */
TWILL_TEST_ON(test_other_ranks, ranks, TWILL_LAYOUTS("3"),
              STAGED_SETTINGS("TWILL_TUNE=segment=128K,reach=none"))
{
    struct staged_buffers buffers;
    TWILL_CHECK(take_buffers(&buffers, STAGED_BYTES));
    for (unsigned i = 0; i < TRIAL / SEGMENTS; i++)
        TWILL_CHECK(run_broadcast(comm, &buffers, STAGED_BYTES, i));
    TWILL_CHECK(begins_trial(comm, rank < 2, &buffers));
    if (rank == 1) { /* only some ranks still have costs */
        free(comm->context->comms.staging);
        comm->context->comms.staging = NULL;
    }
    TWILL_CHECK(begins_trial(comm, 0, &buffers));
    give_buffers(&buffers);
}

/* Stores are streamed if that is quicker for the slowest rank and for all ranks together, by a
 * sixteenth at least, if both costs are known. */
static bool check_decisions(twill_comm *comm, twill_bootstrap *bootstrap)
{
    static const struct {
        uint32_t cached[STAGED_RANKS], streamed[STAGED_RANKS];
        bool streams;
    } rows[] = {{{0, 0}, {0, 0}, false},         {{100, 80}, {50, 93}, true},
                {{100, 80}, {50, 94}, false},    {{100, 0}, {50, 0}, true},
                {{100, 100}, {10, 200}, false},  {{100, 100}, {0, 0}, false},
                {{1, 1}, {1, 1}, false},         {{0, 0}, {7, 7}, false},
                {{3000, 200}, {400, 300}, true}, {{UINT32_MAX, 1}, {5, 5}, true},
                {{149, 74}, {110, 99}, true},    {{149, 74}, {110, 100}, false}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++) {
        enum twill_staging_kind kind = i % TWILL_STAGING_KINDS;
        twill_node_put_staging_cost(comm->node, kind, 0, rows[i].cached[comm->rank]);
        twill_node_put_staging_cost(comm->node, kind, 1, rows[i].streamed[comm->rank]);
        TWILL_REQUIRE(twill_test_barrier(bootstrap));
        TWILL_REQUIRE(twill_staging_decide(&comm->engine, kind) == rows[i].streams, "row %zu", i);
        TWILL_REQUIRE(twill_test_barrier(bootstrap));
    }
    return true;
}

static const char *const forced[] = {"TWILL_TUNE=staging=streamed,reach=none",
                                     "TWILL_TUNE=staging=cached,reach=none"};

TWILL_TEST_CASES(test_forced, ranks, forced, "2", STAGED_SETTINGS(*c))
{
    bool streams = strstr(*c, "streamed") != NULL;
    struct staged_buffers buffers;
    TWILL_CHECK(take_buffers(&buffers, STAGED_BYTES) && check_decisions(comm, bootstrap));
    for (unsigned i = 0; i < 4; i++) {
        TWILL_CHECK(run_broadcast(comm, &buffers, STAGED_BYTES - i, i));
        TWILL_CHECK(run_alltoall(comm, &buffers, STAGED_BYTES, i));
        for (unsigned slot = 0; slot < TWILL_WINDOW; slot++) {
            const struct twill_instance *last = &comm->issue.slot[slot].instance;
            TWILL_CHECK(last->streams == streams && !last->is_measured, "%s", *c);
        }
    }
    give_buffers(&buffers);
}

/* Ranks that share a core copy long segments, unless they reduce or the user has set the length. */
static void crowded_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    enum { LONG = 8 << 20 };
    size_t copied = strstr(user, "segment=") != NULL ? 64 << 10 : 2 << 20;
    size_t reduced = strstr(user, "segment=") != NULL ? 64 << 10 : 128 << 10;
    twill_comm *comm;
    struct staged_buffers buffers = {0};
    if (twill_test_open(&comm, bootstrap, "", STAGED_SETTINGS(user)) &&
        take_buffers(&buffers, LONG) && run_broadcast(comm, &buffers, LONG, 0)) {
        TWILL_CHECK(comm->plan_cache.last->segment_bytes == copied);
        TWILL_CHECK(run_alltoall(comm, &buffers, LONG, 1));
        TWILL_CHECK(comm->plan_cache.last->segment_bytes == copied);
        TWILL_CHECK(twill_allreduce(comm, buffers.src, buffers.dst, LONG, TWILL_U8, TWILL_MAX) ==
                    TWILL_OK);
        TWILL_CHECK(comm->plan_cache.last->segment_bytes == reduced);
    }
    (void)twill_test_barrier(bootstrap);
    give_buffers(&buffers);
    twill_test_close(comm);
}

TWILL_TEST(test_crowded)
{
    cpu_set_t all;
    int pus[2];
    (void)twill_test_two_pus(pus);
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    twill_test_bind(pus[0]);
    twill_test_run_processes(STAGED_RANKS, crowded_rank, "TWILL_TUNE=spin=-1,reach=none");
    twill_test_run_processes(STAGED_RANKS, crowded_rank, "TWILL_TUNE=segment=64K,reach=none");
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

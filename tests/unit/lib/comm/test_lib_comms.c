/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators made out of others: their ranks, their hierarchy, and that they work in any nesting
 * and independently. TEST_COMMS: how many are made and destroyed in a row (300, fewer under
 * sanitizers); TEST_ONLY: one test. */
#include "fabric/shm/node_memory.h"
#include "fabric/shm/node_room.h"
#include "lib/comm/comm.h"
#include "lib/job/find_levels.h"
#include "tests/support/noise.h"
#include "tests/support/numbers.h"
#include "tests/support/scene.h"
#include "tests/support/unit.h"

#include <sys/resource.h>

/* libfabric 1.17 sometimes leaks a connection that is closed while it is being made. */
TWILL_TEST_LEAKS("leak:libfabric.so")

/* --- membership ------------------------------------------------------------------------------ */

/* Colours by remainder, keys that reverse the order; a rank in no communicator. */
TWILL_TEST_SCENE(splits_and_dups)
{
    int me = twill_comm_rank(all), size = scene->shape->size;
    struct twill_test_group group = {0};
    twill_comm *made = all, *again;
    bool out = size > 2 && me == 1;
    for (int r = size; r-- > 0;)
        if (r % 2 == me % 2 && (size <= 2 || r != 1))
            group.rank[group.size++] = r;
    TWILL_CHECK(
        twill_test_fine(all, twill_comm_split(&made, all, out ? TWILL_COLOUR_NONE : me % 2, -me)));
    TWILL_CHECK((made == NULL) == out);
    TWILL_CHECK(out || twill_test_works(made, &group, me));
    TWILL_CHECK(out || twill_comm_context(made) == twill_comm_context(all));
    TWILL_CHECK(twill_test_fine(all, twill_barrier(all)));
    struct twill_test_group both = twill_test_everyone(size);
    TWILL_CHECK(twill_test_fine(all, twill_comm_dup(&again, all)));
    TWILL_CHECK(twill_test_works(again, &both, me) && twill_test_works(all, &both, me));
    twill_comm_destroy(made);
    TWILL_CHECK(twill_test_works(again, &both, me));
    twill_comm_destroy(again);
}

/* Draw from a seed that is the same on all ranks, so that each knows what all do. */
static int draw_shared(uint64_t *state, int below)
{
    return (int)((twill_test_random(state) >> 20) % (uint64_t)below);
}

/* Compute the group that this rank gets in a split of `group` by drawn colours and keys. */
static struct twill_test_group split_group(const struct twill_test_group *from, uint64_t seed,
                                           int me, int *colour, int *key)
{
    struct twill_test_group to = {0};
    int keys[TWILL_TEST_MOST_RANKS], colours[TWILL_TEST_MOST_RANKS],
        self = twill_test_place(from, me);
    for (int i = 0; i < from->size; i++) {
        uint64_t state = seed * 1000003 + (uint64_t)from->rank[i];
        colours[i] = draw_shared(&state, 3);
        keys[i] = draw_shared(&state, 4) - 2;
    }
    *colour = colours[self];
    *key = keys[self];
    for (int k = -2; k < 2; k++)
        for (int i = 0; i < from->size; i++)
            if (colours[i] == *colour && keys[i] == k)
                to.rank[to.size++] = from->rank[i];
    return to;
}

/* A chain of splits; some in the middle are destroyed before those made out of them. */
TWILL_TEST_SCENES(nested_splits, twill_test_shapes, TEST_FEWER ? 1 : 2, NULL)
{
    int me = twill_comm_rank(all);
    struct twill_test_group group[6] = {twill_test_everyone(scene->shape->size)};
    twill_comm *comm[6] = {all};
    for (int d = 1; d < 6; d++) {
        int colour, key;
        group[d] = split_group(&group[d - 1],
                               (uint64_t)scene->shape->size * 100 + scene->seed * 31 + (uint64_t)d,
                               me, &colour, &key);
        TWILL_CHECK(
            twill_test_fine(comm[d - 1], twill_comm_split(&comm[d], comm[d - 1], colour, key)));
        TWILL_CHECK(twill_test_works(comm[d], &group[d], me));
        if (d == 3) {
            twill_comm_destroy(comm[2]);
            comm[2] = NULL;
        }
    }
    for (int d = 0; d < 6; d++)
        TWILL_CHECK(comm[d] == NULL || twill_test_works(comm[d], &group[d], me));
    for (int d = 1; d < 6; d++)
        twill_comm_destroy(comm[d]);
}

/* Overlapping groups, made by their members only, while the others do something else. The first and
 * the last rank are in two, those in the middle in three. */
TWILL_TEST_SCENE(groups)
{
    int me = twill_comm_rank(all), size = scene->shape->size;
    for (int first = 0; first + 1 < size; first++) {
        struct twill_test_group group = {2, {first + 1, first}};
        twill_comm *made;
        if (twill_test_place(&group, me) < 0)
            continue;
        TWILL_CHECK(twill_test_fine(all, twill_comm_create_group(&made, all, 2, group.rank)));
        TWILL_CHECK(twill_test_works(made, &group, me));
        twill_comm_destroy(made);
    }
    struct twill_test_group group = twill_test_everyone(size);
    TWILL_CHECK(twill_test_works(all, &group, me));
}

/* Two halves make different numbers of communicators, and then one together. */
TWILL_TEST_SCENE(uneven_numbers)
{
    int me = twill_comm_rank(all), size = scene->shape->size;
    struct twill_test_group whole = twill_test_everyone(size);
    twill_comm *half, *made;
    TWILL_CHECK(twill_test_fine(all, twill_comm_split(&half, all, me < size / 2, 0)));
    for (int i = 0; i < (me < size / 2 ? 3 : 1); i++) {
        TWILL_CHECK(twill_test_fine(half, twill_comm_dup(&made, half)));
        twill_comm_destroy(made);
    }
    TWILL_CHECK(twill_test_fine(all, twill_comm_dup(&made, all)));
    TWILL_CHECK(twill_test_works(made, &whole, me));
    twill_comm_destroy(made);
    twill_comm_destroy(half);
}

static const struct twill_test_shape small_shapes[] = {{2, 0, ""}, {2, 1, ""}, {2, 0, "2x1"}};

TWILL_TEST_SCENES(many_one_after_the_other, small_shapes, 1, NULL)
{
    const char *asked = getenv("TEST_COMMS");
    int count = asked != NULL ? atoi(asked) : TEST_FEWER ? 6 : 300;
    struct twill_test_group whole = twill_test_everyone(scene->shape->size);
    twill_comm *made;
    for (int i = 0; i < count; i++) {
        TWILL_CHECK(twill_test_fine(all, twill_comm_dup(&made, all)));
        int64_t one = 1, sum = 0;
        TWILL_CHECK(
            twill_test_fine(made, twill_allreduce(made, &one, &sum, 1, TWILL_I64, TWILL_SUM)));
        TWILL_CHECK(sum == scene->shape->size);
        TWILL_CHECK(i % 100 != 0 || twill_test_works(made, &whole, twill_comm_rank(all)));
        twill_comm_destroy(made);
    }
}

/* --- hierarchy ------------------------------------------------------------------------------- */

/* Each communicator places its ranks as the world of the job does. */
TWILL_TEST_SCENE(places)
{
    int me = twill_comm_rank(all), size = scene->shape->size, node = twill_comm_node(all);
    twill_comm *turned, *on_node;
    int64_t nodes[TWILL_TEST_MOST_RANKS] = {0}, all_nodes[TWILL_TEST_MOST_RANKS];
    nodes[me] = node;
    TWILL_CHECK(twill_test_fine(
        all, twill_allreduce(all, nodes, all_nodes, (size_t)size, TWILL_I64, TWILL_SUM)));
    TWILL_CHECK(twill_test_fine(all, twill_comm_split(&turned, all, 0, -me)));
    int local = 0, before = 0;
    for (int r = size; r-- > 0;) { /* in the order of the new one */
        local += all_nodes[r] == node;
        before += all_nodes[r] == node && r > me;
    }
    TWILL_CHECK(twill_comm_nodes(turned) == twill_comm_nodes(all));
    TWILL_CHECK(twill_comm_local_size(turned) == local && twill_comm_local_rank(turned) == before);
    TWILL_CHECK(
        twill_test_fine(turned, twill_comm_split_level(&on_node, turned, TWILL_LEVEL_NODE, 0)));
    TWILL_CHECK(twill_comm_nodes(on_node) == 1 && twill_comm_node(on_node) == 0);
    TWILL_CHECK(twill_comm_size(on_node) == local && twill_comm_rank(on_node) == before);
    struct twill_test_group group = {0};
    for (int r = size; r-- > 0;)
        if (all_nodes[r] == node)
            group.rank[group.size++] = r;
    twill_comm_destroy(turned);
    TWILL_CHECK(twill_test_works(on_node, &group, me));
    twill_comm_destroy(on_node);
}

/* What TWILL_UNITS and TWILL_GROUPS declare, in a communicator with another order of ranks. */
static const struct twill_test_shape twelve[] = {{12, 0, "3x4"}};

TWILL_TEST_SCENES(declared_levels, twelve, 1,
                  "TWILL_LAYOUT=units=tile=1,numa=2,package=4;groups=2+1")
{
    int me = twill_comm_rank(all), size = scene->shape->size;
    static const int node_of[] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
    static const int tiles[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    static const int numas[] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5};
    static const int fabric_groups[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1};
    static const int *const unit[TWILL_LEVEL_COUNT] = {tiles,   tiles,   numas,
                                                       node_of, node_of, fabric_groups};
    twill_comm *turned;
    TWILL_CHECK(twill_test_fine(all, twill_comm_split(&turned, all, 0, -me)));
    for (int level = 0; level < TWILL_LEVEL_COUNT; level++) {
        for (int order = 0; order < 2; order++) {
            struct twill_test_group group = {0};
            twill_comm *from = order == 0 ? all : turned, *made;
            for (int i = 0; i < size; i++) {
                int r = order == 0 ? i : size - 1 - i;
                if (unit[level][r] == unit[level][me])
                    group.rank[group.size++] = r;
            }
            TWILL_CHECK(
                twill_test_fine(from, twill_comm_split_level(&made, from, (twill_level)level, 0)));
            TWILL_CHECK(twill_test_works(made, &group, me));
            twill_comm_destroy(made);
        }
    }
    twill_comm_destroy(turned);
}

/* Nothing declared: the ranks of this test are threads that may run anywhere, hence all in the
 * first unit of each level that the machine has. */
TWILL_TEST_SCENE(found_levels)
{
    twill_comm *made;
    for (int level = 0; level < TWILL_LEVEL_COUNT; level++) {
        TWILL_CHECK(
            twill_test_fine(all, twill_comm_split_level(&made, all, (twill_level)level, 0)));
        int size = twill_comm_size(made), most = twill_comm_local_size(all);
        bool group = level == TWILL_LEVEL_GROUP;
        TWILL_CHECK(size == (group ? scene->shape->size : most) ||
                    (level < TWILL_LEVEL_NODE && size == 1));
        twill_comm_destroy(made);
    }
}

TWILL_TEST_SCENE(counters_of_each)
{
    struct twill_test_group whole = twill_test_everyone(scene->shape->size);
    twill_counters before, after, own;
    twill_comm *made;
    TWILL_CHECK(twill_test_fine(all, twill_comm_dup(&made, all)));
    TWILL_CHECK(twill_comm_counters(all, &before) == TWILL_OK);
    TWILL_CHECK(twill_test_works(made, &whole, twill_comm_rank(all)));
    TWILL_CHECK(twill_comm_counters(all, &after) == TWILL_OK);
    TWILL_CHECK(twill_comm_counters(made, &own) == TWILL_OK);
    TWILL_CHECK(own.calls == (uint64_t)whole.size + 2 && own.seconds > 0);
    TWILL_CHECK(after.calls == before.calls && after.bytes_sent == before.bytes_sent);
    twill_comm_destroy(made);
}

/* Memory shared by the node is mapped in every communicator, whatever numbers its ranks have. */
TWILL_TEST_SCENE(shared_memory)
{
    int me = twill_comm_rank(all), size = scene->shape->size;
    twill_comm *turned;
    void *memory;
    size_t count = 100000;
    TWILL_CHECK(twill_test_fine(all, twill_comm_split(&turned, all, 0, -me)));
    TWILL_CHECK(twill_alloc(twill_comm_context(all), &memory, count * sizeof(int32_t)) == TWILL_OK);
    int32_t *data = memory;
    for (size_t i = 0; i < count; i++)
        data[i] = (int32_t)((size_t)(me + 1) * i);
    TWILL_CHECK(
        twill_test_fine(turned, twill_allreduce(turned, data, data, count, TWILL_I32, TWILL_SUM)));
    for (size_t i = 0; i < count; i++)
        TWILL_CHECK(data[i] == (int32_t)((size_t)(size * (size + 1) / 2) * i));
    twill_comm_destroy(turned);
    TWILL_CHECK(twill_free(twill_comm_context(all), memory) == TWILL_OK);
}

/* --- levels ----------------------------------------------------------------------------------- */

/* The levels of a world: with bound ranks, with ranks that are not bound, and on a described
 * machine.
 */

enum { LEVELS_RANKS = 6 };

/* Where six ranks of a node are, by level, and the units that must result. */
static const struct {
    int16_t info[TWILL_LEVEL_NODE][LEVELS_RANKS];
    int unit[TWILL_LEVEL_NODE][LEVELS_RANKS]; /* -1: the level is unknown */
} found[] = {
    /* no rank is bound, on a machine of one package: no tile, no L3 cache, no NUMA node */
    {{{-1, -1, -1, -1, -1, -1}, {-1, -1, -1, -1, -1, -1}, {-1, -1, -1, -1, -1, -1}, {0}},
     {{-1}, {-1}, {-1}, {0, 0, 0, 0, 0, 0}}},
    /* ranks 2 and 5 may run anywhere: each is in a unit by itself */
    {{{0, 0, -1, 1, 1, -1}, {0, 0, -1, 0, 0, -1}, {0, 0, -1, 1, 1, -1}, {0, 0, -1, 0, 0, -1}},
     {{0, 0, 1, 2, 2, 3}, {0, 0, 1, 2, 2, 3}, {0, 0, 1, 2, 2, 3}, {0, 0, 1, 0, 0, 2}}},
};

TWILL_TEST(test_found)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(found); i++) {
        static const uint32_t one_node[LEVELS_RANKS];
        struct twill_level_info info[LEVELS_RANKS] = {{.roams = false}};
        struct twill_error error = {0};
        struct twill_world world;
        assert_int_equal(twill_world_create(&world, LEVELS_RANKS, one_node, &error), TWILL_OK);
        for (unsigned level = 0; level < TWILL_LEVEL_NODE; level++)
            for (unsigned r = 0; r < LEVELS_RANKS; r++)
                info[r].unit[level] = found[i].info[level][r];
        assert_int_equal(twill_levels_find(&world, info, &error), TWILL_OK);
        for (unsigned level = 0; level < TWILL_LEVEL_NODE; level++) {
            bool known = found[i].unit[level][0] >= 0;
            assert_int_equal(world.unit[level] != NULL, known);
            for (unsigned r = 0; known && r < LEVELS_RANKS; r++)
                assert_int_equal(world.unit[level][r], found[i].unit[level][r]);
        }
        twill_world_destroy(&world);
    }
}

/* On a described machine ranks are where twillrun would bind them; if they do not fit, nowhere. */
static const struct described {
    const char *topology, *nodes, *hierarchy, *line;
} described[] = {
    {"pack:2 l3:2 core:2 pu:2", "1x8", "hierarchy: 1 node x 2 packages x 2 L3 caches x 2 ranks",
     "      L3 cache 1 (ranks 6-7)"},
    {"pack:2 l3:2 core:2 pu:2", "2x4", "hierarchy: 2 nodes x 2 packages x 2 L3 caches x 1 rank",
     "    package 1"},
    {"pack:2 core:2 pu:1", "1x2", "hierarchy: 1 node x 2 packages x 1 rank",
     "    package 1 (rank 1)"},
    {"pack:2 core:2 pu:1", "1x5", "hierarchy: 1 node x 5 ranks", "  node 0 (ranks 0-4)"},
};

TWILL_TEST_CASES(test_described, ranks, described, c->nodes,
                 twill_test_text("TWILL_LAYOUT=topology=%s", c->topology), TWILL_TEST_PATIENT)
{
    const char *line;
    bool hierarchy = false, detail = false;
    for (size_t i = 0; (line = twill_context_describe(comm->context, i)) != NULL; i++) {
        hierarchy = hierarchy || strcmp(line, c->hierarchy) == 0;
        detail = detail || strcmp(line, c->line) == 0;
    }
    TWILL_CHECK(hierarchy && detail, "not said: %s", c->hierarchy);
}

/* --- streamed stores -------------------------------------------------------------------------- */

/* From which size on results are stored past the caches: by a core's part of all L3 caches, a
 * rank's part where ranks are more than cores, an L2 cache without any, or as it is set. */

static const struct streamed {
    const char *topology, *tune, *ranks;
    size_t from; /* bytes */
} streamed[] = {
    {"pack:2 l3:2(size=16777216) core:4 pu:1", "", "2", (size_t)1536 << 10},
    {"pack:2 l3:2(size=16777216) core:4 pu:1", "stream=5M", "2", (size_t)5 << 20},
    {"pack:1 l3:1(size=33554432) core:2 pu:1", "", "4", (size_t)3 << 20},
    {"pack:1 l2:2(size=1048576) core:1 pu:1", "", "2", (size_t)384 << 10},
};

TWILL_TEST_CASES(test_default, ranks, streamed, c->ranks,
                 twill_test_text("TWILL_LAYOUT=topology=%s", c->topology),
                 twill_test_text("TWILL_TUNE=%s", c->tune), TWILL_TEST_PATIENT)
{
    TWILL_CHECK(comm->tuning.stream == c->from, "%s, %d ranks: %zu", c->topology, size,
                comm->tuning.stream);
}

/* --- exchanges -------------------------------------------------------------------------------- */

/* Set-up takes few exchanges: contexts and communicators on one node and on several. */

static const struct rounds_case {
    const char *name, *nodes;
    unsigned first; /* most exchanges: context and first communicator */
    unsigned dup;   /* exchanges of a duplicate, after the one over its parent */
} cases[] = {
    {"one node", "1x4", 5, 0},
    {"two nodes", "2x2", 6, 1},
    {"a rank on each node", "3x1", 6, 1},
};

static void count_rounds(const struct rounds_case *c, twill_comm *comm, int rank)
{
    twill_comm *dup;
    TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&dup, comm)));
    unsigned first = comm->context->job.oob->rounds, more = dup->oob->rounds;
    twill_comm_destroy(dup);
    if (rank == 0)
        printf("%s: %u exchanges, %u for a duplicate\n", c->name, first, more);
    TWILL_CHECK(first > 0 && first <= c->first && more == c->dup,
                "rank %d on %s: %u exchanges, %u for a duplicate", rank, c->name, first, more);
}

TWILL_TEST_CASES(test_rounds, ranks, cases, c->nodes, TWILL_TEST_PATIENT)
{
    count_rounds(c, comm, rank);
}

TWILL_TEST_CASES(test_rounds_of_processes, processes, cases, c->nodes, TWILL_TEST_PATIENT)
{
    count_rounds(c, comm, rank);
}

/* --- many communicators ----------------------------------------------------------------------- */

static size_t resident(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL && fscanf(file, "%*u %zu", &pages) != 1)
        pages = 0;
    if (file != NULL)
        (void)fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Until it is used, a communicator opens no descriptor and takes less than 16 KiB. Memory comes
 * back. Node memory is then zero, or later communicators would fail. */
TWILL_TEST_ON(test_many, processes, TWILL_LAYOUTS("1", "2"), TWILL_TEST_PATIENT)
{
    enum { MANY = 10000 };
    static twill_comm *made[MANY];
    size_t count = TEST_FEWER ? 300 : size == 1 ? MANY : MANY / 20;
    int32_t one = 1, sum = 0, files = twill_test_open_files();
    for (int round = 0; round < 2; round++) {
        size_t before = resident(), parts = twill_room_count(comm->node->room);
        for (size_t i = 0; i < count; i++)
            TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&made[i], comm)));
        size_t each = (resident() - before) / count;
        TWILL_CHECK(TEST_SLOW || round > 0 || each < (size_t)16 << 10, "%zu bytes each", each);
        TWILL_CHECK(twill_test_open_files() == files);
        for (size_t i = 0; i < count; i += count / 20) {
            TWILL_CHECK(!made[i]->woken && made[i]->number != comm->number);
            TWILL_CHECK(twill_test_fine(
                made[i], twill_allreduce(made[i], &one, &sum, 1, TWILL_I32, TWILL_SUM)));
            TWILL_CHECK(sum == size && made[i]->woken);
        }
        TWILL_CHECK(twill_test_open_files() == files);
        for (size_t i = 0; i < count; i++)
            twill_comm_destroy(made[i]);
        TWILL_CHECK(twill_barrier(comm) == TWILL_OK && twill_test_barrier(bootstrap));
        for (int i = 0; i < 200; i++) {
            TWILL_CHECK(twill_comm_dup(&made[0], comm) == TWILL_OK); /* looks at ended ones */
            twill_comm_destroy(made[0]);
            TWILL_CHECK(twill_test_barrier(bootstrap));
        }
        TWILL_CHECK(twill_room_count(comm->node->room) <= parts + 1);
        TWILL_CHECK(TEST_SLOW || round == 0 || resident() < before + ((size_t)8 << 20),
                    "%zu bytes stay", resident() - before);
    }
}

/* The heap is shared for nodes that there are not: ranks that share no memory are nodes. */
static void run_alone(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const char *nodes = user;
    twill_context *context = NULL;
    twill_comm *comm = NULL, *dup = NULL;
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};
    int32_t one = 1, sum = 0;
    TWILL_CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    TWILL_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0); /* of memory files, too */
    if (twill_test_join(&context, &comm, bootstrap, nodes, TWILL_TEST_PATIENT) &&
        TWILL_NOTE(twill_comm_dup(&dup, comm) == TWILL_OK, "%s", twill_comm_message(comm))) {
        TWILL_CHECK(context->job.world.nodes == (uint32_t)size && comm->local_size == 1);
        TWILL_CHECK(twill_allreduce(comm, &one, &sum, 1, TWILL_I32, TWILL_SUM) == TWILL_OK);
        TWILL_CHECK(sum == size);
        TWILL_CHECK(twill_allreduce(dup, &one, &sum, 1, TWILL_I32, TWILL_SUM) == TWILL_OK);
        TWILL_CHECK(sum == size);
        for (int r = 0; r < size; r++)
            TWILL_CHECK(r == rank || !twill_comm_is_dead(comm, (uint32_t)r));
    }
    twill_comm_destroy(dup);
    twill_test_disconnect(comm, context);
}

TWILL_TEST(test_no_sharing)
{
    twill_test_run_processes(3, run_alone, "1x3");
    twill_test_run_processes(3, run_alone, "2+1");
}

/* A context can end without a communicator. */
TWILL_TEST_OF_RANKS(test_context_alone, 3)
{
    const char *settings[] = {TWILL_TEST_PATIENT, NULL};
    twill_context *context = NULL;
    TWILL_CHECK(twill_context_create(&context, bootstrap, settings) == TWILL_OK);
    twill_context_destroy(context);
}

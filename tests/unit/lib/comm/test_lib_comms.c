/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators made out of others: their ranks, their hierarchy, and that they work in any nesting
 * and independently. TEST_COMMS: how many are made and destroyed in a row (300, fewer under
 * sanitizers); TEST_ONLY: one test. */
#include "lib/comm/comm.h"
#include "lib/job/find_levels.h"
#include "tests/support/numbers.h"
#include "tests/support/scene.h"
#include "tests/support/unit.h"

#include <sys/resource.h>

/* libfabric 1.17 sometimes leaks a connection that is closed while it is being made. */
TWILL_TEST_LEAKS("leak:libfabric.so")

/* --- membership ------------------------------------------------------------------------------ */

/* Colours by remainder, keys that reverse the order; a rank in no communicator. */
static void play_split(struct twill_test_scene *scene, twill_comm *all)
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

TWILL_TEST(splits_and_dups)
{
    twill_test_play_all(play_split);
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
static void play_nest(struct twill_test_scene *scene, twill_comm *all)
{
    int me = twill_comm_rank(all);
    struct twill_test_group group[6] = {twill_test_everyone(scene->shape->size)};
    twill_comm *comm[6] = {all};
    for (int d = 1; d < 6; d++) {
        int colour, key;
        group[d] = split_group(&group[d - 1], scene->seed * 31 + (uint64_t)d, me, &colour, &key);
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

TWILL_TEST(nested_splits)
{
    for (size_t s = 0; s < TWILL_TEST_SHAPES; s += TEST_TSAN && !test_whole() ? 2 : 1)
        for (uint64_t seed = 0; seed < (TEST_FEWER ? 1 : 2); seed++) {
            struct twill_test_scene scene = {
                .shape = &twill_test_shapes[s], .play = play_nest, .seed = s * 100 + seed};
            twill_test_play(&scene);
        }
}

/* Overlapping groups, made by their members only, while the others do something else. The first and
 * the last rank are in two, those in the middle in three. */
static void play_groups(struct twill_test_scene *scene, twill_comm *all)
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

TWILL_TEST(groups)
{
    twill_test_play_all(play_groups);
}

/* Two halves make different numbers of communicators, and then one together. */
static void play_uneven(struct twill_test_scene *scene, twill_comm *all)
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

TWILL_TEST(uneven_numbers)
{
    twill_test_play_all(play_uneven);
}

static void play_many(struct twill_test_scene *scene, twill_comm *all)
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

TWILL_TEST(many_one_after_the_other)
{
    static const struct twill_test_shape small[] = {{2, 0, ""}, {2, 1, ""}, {2, 0, "2x1"}};
    for (size_t s = 0; s < TWILL_ARRAY_LENGTH(small); s++) {
        struct twill_test_scene scene = {.shape = &small[s], .play = play_many};
        twill_test_play(&scene);
    }
}

/* --- hierarchy ------------------------------------------------------------------------------- */

/* Each communicator places its ranks as the world of the job does. */
static void play_places(struct twill_test_scene *scene, twill_comm *all)
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

TWILL_TEST(places)
{
    twill_test_play_all(play_places);
}

/* What TWILL_UNITS and TWILL_GROUPS declare, in a communicator with another order of ranks. */
static void play_levels(struct twill_test_scene *scene, twill_comm *all)
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

TWILL_TEST(declared_levels)
{
    static const struct twill_test_shape twelve = {12, 0, "3x4"};
    struct twill_test_scene scene = {
        .shape = &twelve,
        .play = play_levels,
        .settings = {"TWILL_LAYOUT=units=tile=1,numa=2,package=4;groups=2+1"}};
    twill_test_play(&scene);
}

/* Nothing declared: the ranks of this test are threads that may run anywhere, hence all in the
 * first unit of each level that the machine has. */
static void play_found_levels(struct twill_test_scene *scene, twill_comm *all)
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

TWILL_TEST(found_levels)
{
    twill_test_play_all(play_found_levels);
}

TWILL_TEST(bad_levels)
{
    static const struct {
        const char *setting, *message;
    } table[] = {
        {"TWILL_LAYOUT=units=tile", "\"tile\""},
        {"TWILL_LAYOUT=units=core=2", "\"core=2\""},
        {"TWILL_LAYOUT=units=numa=0", "\"0\""},
        {"TWILL_LAYOUT=units=numa=2,", "\"2,\""},
        {"TWILL_LAYOUT=units=numa=2,package=3", "no multiple"},
        {"TWILL_LAYOUT=groups=2", "TWILL_LAYOUT=groups=2: describes 2 nodes, but there are 1"},
        {"TWILL_LAYOUT=groups=x", "write groups x nodes"},
        {"TWILL_PROGRESS=thread:", "TWILL_PROGRESS=thread:"},
        {"TWILL_PROGRESS=thread:1x", "none, late, thread, or thread:CORE"},
        {"TWILL_PROGRESS=threads", "none, late, thread, or thread:CORE"},
        {"TWILL_REPRODUCIBLE=2", "TWILL_REPRODUCIBLE"},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++) {
        const char *settings[] = {table[i].setting, NULL};
        twill_bootstrap alone = {.size = 1};
        twill_context *context;
        assert_int_equal(twill_context_create(&context, &alone, settings), TWILL_ERR_CONFIG);
        if (strstr(twill_context_message(context), table[i].message) == NULL)
            fail_msg("%s: %s", table[i].setting, twill_context_message(context));
        twill_context_destroy(context);
    }
}

static void play_counters(struct twill_test_scene *scene, twill_comm *all)
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

TWILL_TEST(counters_of_each)
{
    twill_test_play_all(play_counters);
}

/* Memory shared by the node is mapped in every communicator, whatever numbers its ranks have. */
static void play_heap(struct twill_test_scene *scene, twill_comm *all)
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

TWILL_TEST(shared_memory)
{
    twill_test_play_all(play_heap);
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
    int ranks;
} described[] = {
    {"pack:2 l3:2 core:2 pu:2", "1x8", "hierarchy: 1 node x 2 packages x 2 L3 caches x 2 ranks",
     "      L3 cache 1 (ranks 6-7)", 8},
    {"pack:2 l3:2 core:2 pu:2", "2x4", "hierarchy: 2 nodes x 2 packages x 2 L3 caches x 1 rank",
     "    package 1", 8},
    {"pack:2 core:2 pu:1", "1x2", "hierarchy: 1 node x 2 packages x 1 rank",
     "    package 1 (rank 1)", 2},
    {"pack:2 core:2 pu:1", "1x5", "hierarchy: 1 node x 5 ranks", "  node 0 (ranks 0-4)", 5},
};

static void report_levels(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct described *d = user;
    char layout[96];
    snprintf(layout, sizeof(layout), "TWILL_LAYOUT=nodes=%s;topology=%s", d->nodes, d->topology);
    const char *const settings[] = {layout, TWILL_TEST_PATIENT, "TWILL_INTERFACE=lo", NULL};
    twill_context *context;
    const char *line;
    bool hierarchy = false, detail = false;
    twill_status status = twill_context_create(&context, bootstrap, settings);
    TWILL_NOTE(status == TWILL_OK, "%s", twill_context_message(context));
    for (size_t i = 0; (line = twill_context_describe(context, i)) != NULL; i++) {
        hierarchy = hierarchy || strcmp(line, d->hierarchy) == 0;
        detail = detail || strcmp(line, d->line) == 0;
    }
    TWILL_NOTE(hierarchy && detail, "not said: %s", d->hierarchy);
    twill_test_barrier(bootstrap);
    twill_context_destroy(context);
}

TWILL_TEST(test_described)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(described); i++) {
        struct described one = described[i];
        twill_test_run_ranks(one.ranks, report_levels, &one);
    }
}

/* --- streamed stores -------------------------------------------------------------------------- */

/* From which size on results are stored past the caches: by a core's part of all L3 caches, a
 * rank's part where ranks are more than cores, an L2 cache without any, or as it is set. */

static const struct streamed {
    const char *topology, *tune;
    int ranks;
    size_t from; /* bytes */
} streamed[] = {
    {"pack:2 l3:2(size=16777216) core:4 pu:1", "", 2, (size_t)1536 << 10},
    {"pack:2 l3:2(size=16777216) core:4 pu:1", "stream=5M", 2, (size_t)5 << 20},
    {"pack:1 l3:1(size=33554432) core:2 pu:1", "", 4, (size_t)3 << 20},
    {"pack:1 l2:2(size=1048576) core:1 pu:1", "", 2, (size_t)384 << 10},
};

static void streams_from(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct streamed *row = user;
    char layout[96], tune[32];
    snprintf(layout, sizeof(layout), "TWILL_LAYOUT=topology=%s", row->topology);
    snprintf(tune, sizeof(tune), "TWILL_TUNE=%s", row->tune);
    twill_comm *comm;
    if (twill_test_open(&comm, bootstrap, "", layout, tune, TWILL_TEST_PATIENT))
        TWILL_NOTE(comm->tuning.stream == row->from, "%s, %d ranks: %zu", row->topology, row->ranks,
                   comm->tuning.stream);
    (void)twill_test_barrier(bootstrap);
    twill_test_close(comm);
}

TWILL_TEST(test_default)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(streamed); i++) {
        struct streamed one = streamed[i];
        twill_test_run_ranks(one.ranks, streams_from, &one);
    }
}

/* --- exchanges -------------------------------------------------------------------------------- */

/* Set-up takes few exchanges: contexts and communicators on one node and on several. */

static const struct rounds_case {
    const char *name, *nodes;
    int size;
    unsigned first, dup; /* most exchanges: context and first communicator; a duplicate */
} cases[] = {
    {"one node", "1x4", 4, 5, 3},
    {"two nodes", "2x2", 4, 6, 3},
    {"a rank on each node", "3x1", 3, 6, 3},
};

static void count_rounds(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct rounds_case *c = user;
    twill_context *context = NULL;
    twill_comm *comm = NULL, *dup = NULL;
    if (twill_test_join(&context, &comm, bootstrap, c->nodes, TWILL_TEST_PATIENT) &&
        TWILL_NOTE(twill_comm_dup(&dup, comm) == TWILL_OK, "%s", twill_comm_message(comm))) {
        if (rank == 0)
            printf("%s: %u exchanges, %u for a duplicate\n", c->name, context->job.oob->rounds,
                   dup->oob->rounds);
        TWILL_NOTE(context->job.oob->rounds > 0 && context->job.oob->rounds <= c->first &&
                       dup->oob->rounds > 0 && dup->oob->rounds <= c->dup,
                   "rank %d of %d on %s: %u exchanges, %u for a duplicate", rank, size, c->name,
                   context->job.oob->rounds, dup->oob->rounds);
    }
    twill_comm_destroy(dup);
    twill_test_disconnect(comm, context);
}

/* The heap is shared for nodes that there are not: ranks that share no memory are nodes. */
static void run_alone(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const char *const *nodes = user;
    twill_context *context = NULL;
    twill_comm *comm = NULL, *dup = NULL;
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};
    int32_t one = 1, sum = 0;
    TWILL_CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    TWILL_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0); /* of memory files, too */
    if (twill_test_join(&context, &comm, bootstrap, *nodes, TWILL_TEST_PATIENT) &&
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
    const char *nodes[] = {"1x3", "2+1"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(nodes); i++)
        twill_test_run_processes(3, run_alone, &nodes[i]);
}

/* A context can end without a communicator. */
TWILL_TEST_OF_RANKS(test_context_alone, 3)
{
    const char *settings[] = {TWILL_TEST_PATIENT, NULL};
    twill_context *context = NULL;
    TWILL_CHECK(twill_context_create(&context, bootstrap, settings) == TWILL_OK);
    twill_context_destroy(context);
}

TWILL_TEST(test_rounds)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        struct rounds_case one = cases[i];
        twill_test_run_ranks(one.size, count_rounds, &one);
        twill_test_run_processes(one.size, count_rounds, &one);
    }
}

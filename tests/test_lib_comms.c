/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators made of others: who is in them and where, that they work in any nesting and apart
 * from each other, and how they fail. TEST_COMMS: how many are made and destroyed in a row (300).
 */
#include "tests/support/numbers.h"
#include "tests/support/ranks.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST_RANKS 12

/* libfabric 1.17 now and then loses a connection that is torn down while it is being made. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libfabric.so";
}

struct shape {
    int size;
    int threads;       /* ranks of a process; 0: all are threads of the test */
    const char *nodes; /* TWILL_NODES, or "" */
};

static const struct shape shapes[] = {
    {1, 0, ""}, {2, 0, ""}, {5, 0, ""}, {4, 0, "2x2"}, {6, 0, "1+3+2"}, {4, 1, ""}, {6, 2, "2x3"},
};

struct scene {
    const struct shape *shape;
    void (*play)(struct scene *scene, twill_comm *all);
    const char *settings[4];
    uint64_t seed;
};

/* What a communicator must be: the ranks of the job that are in it, in order. */
struct group {
    int size;
    int rank[MOST_RANKS];
};

static struct group everyone(int size)
{
    struct group group = {.size = size};
    for (int r = 0; r < size; r++)
        group.rank[r] = r;
    return group;
}

static int place_in(const struct group *group, int job)
{
    for (int i = 0; i < group->size; i++)
        if (group->rank[i] == job)
            return i;
    return -1;
}

static int job_rank(twill_comm *all)
{
    return twill_comm_rank(all);
}

static bool fine(twill_comm *comm, twill_status status)
{
    return twill_test_note(status == TWILL_OK, __FILE__, __LINE__, "status %d: %s", status,
                           twill_comm_message(comm));
}

/* Everybody says who it is, in order; sums and barriers work. */
static bool works(twill_comm *comm, const struct group *group, int me)
{
    int self = place_in(group, me);
    TWILL_REQUIRE(self >= 0 && twill_comm_rank(comm) == self);
    TWILL_REQUIRE(twill_comm_size(comm) == group->size);
    for (int root = 0; root < group->size; root++) {
        int64_t mine = me, told = -1;
        TWILL_REQUIRE(fine(
            comm, twill_broadcast(comm, root == self ? &mine : NULL, &told, 1, TWILL_I64, root)));
        TWILL_REQUIRE(told == group->rank[root]);
    }
    int64_t sum = 0, src[700], dst[700];
    for (int i = 0; i < group->size; i++)
        sum += group->rank[i] + 1;
    for (int i = 0; i < 700; i++)
        src[i] = (me + 1) * (i + 1);
    TWILL_REQUIRE(fine(comm, twill_allreduce(comm, src, dst, 700, TWILL_I64, TWILL_SUM)));
    for (int i = 0; i < 700; i++)
        TWILL_REQUIRE(dst[i] == sum * (i + 1));
    return fine(comm, twill_barrier(comm));
}

static void scene_rank(int rank, int size, twill_bootstrap *boot, void *user)
{
    struct scene *scene = user;
    char nodes[64];
    (void)size;
    snprintf(nodes, sizeof(nodes), "TWILL_NODES=%s", scene->shape->nodes);
    const char *settings[10] = {nodes, "TWILL_INTERFACE=lo", "TWILL_HEAP_LIMIT=8M",
                                "TWILL_SEGMENT=8K", "TWILL_SEGMENT_NET=8K"};
    for (size_t i = 0; scene->settings[i] != NULL; i++)
        settings[5 + i] = scene->settings[i];
    twill_context *context;
    twill_comm *all = NULL;
    twill_status status = twill_context_create(&context, boot, settings);
    if (status == TWILL_OK)
        status = twill_comm_create(&all, context);
    if (twill_test_note(status == TWILL_OK, __FILE__, __LINE__, "rank %d: %s", rank,
                        twill_context_message(context)))
        scene->play(scene, all);
    if (!twill_test_failed()) { /* else others may be anywhere */
        twill_comm_destroy(all);
        twill_context_destroy(context);
    }
}

static void run_scene(struct scene *scene)
{
    if (scene->shape->threads == 0)
        twill_test_run_ranks(scene->shape->size, scene_rank, scene);
    else
        twill_test_run_mixed(scene->shape->size, scene->shape->threads, scene_rank, scene);
}

static void run_everywhere(void (*play)(struct scene *, twill_comm *))
{
    for (size_t s = 0; s < TWILL_ARRAY_LENGTH(shapes); s++) {
        struct scene scene = {.shape = &shapes[s], .play = play, .seed = s};
        run_scene(&scene);
    }
}

/* --- who is in it ---------------------------------------------------------------------------- */

/* Colours by remainder, keys that turn the order around; a rank that is in none. */
static void play_split(struct scene *scene, twill_comm *all)
{
    int me = job_rank(all), size = scene->shape->size;
    struct group group = {0};
    twill_comm *made = all, *again;
    bool out = size > 2 && me == 1;
    for (int r = size; r-- > 0;)
        if (r % 2 == me % 2 && (size <= 2 || r != 1))
            group.rank[group.size++] = r;
    TWILL_CHECK(fine(all, twill_comm_split(&made, all, out ? TWILL_COLOUR_NONE : me % 2, -me)));
    TWILL_CHECK((made == NULL) == out);
    TWILL_CHECK(out || works(made, &group, me));
    TWILL_CHECK(out || twill_comm_context(made) == twill_comm_context(all));
    TWILL_CHECK(fine(all, twill_barrier(all)));
    struct group both = everyone(size);
    TWILL_CHECK(fine(all, twill_comm_dup(&again, all)));
    TWILL_CHECK(works(again, &both, me) && works(all, &both, me));
    twill_comm_destroy(made);
    TWILL_CHECK(works(again, &both, me));
    twill_comm_destroy(again);
}

static void splits_and_dups(void **unused)
{
    (void)unused;
    run_everywhere(play_split);
}

/* Draw from a seed that all ranks share, so that each knows what all do. */
static int draw(uint64_t *state, int below)
{
    return (int)((twill_test_random(state) >> 20) % (uint64_t)below);
}

/* The next group out of one, by a drawn colour and key for each of its ranks. */
static struct group split_group(const struct group *from, uint64_t seed, int me, int *colour,
                                int *key)
{
    struct group to = {0};
    int keys[MOST_RANKS], colours[MOST_RANKS], self = place_in(from, me);
    for (int i = 0; i < from->size; i++) {
        uint64_t state = seed * 1000003 + (uint64_t)from->rank[i];
        colours[i] = draw(&state, 3);
        keys[i] = draw(&state, 4) - 2;
    }
    *colour = colours[self];
    *key = keys[self];
    for (int k = -2; k < 2; k++)
        for (int i = 0; i < from->size; i++)
            if (colours[i] == *colour && keys[i] == k)
                to.rank[to.size++] = from->rank[i];
    return to;
}

/* A chain of splits; now and then one in the middle is destroyed before those made of it. */
static void play_nest(struct scene *scene, twill_comm *all)
{
    int me = job_rank(all);
    struct group group[6] = {everyone(scene->shape->size)};
    twill_comm *comm[6] = {all};
    for (int d = 1; d < 6; d++) {
        int colour, key;
        group[d] = split_group(&group[d - 1], scene->seed * 31 + (uint64_t)d, me, &colour, &key);
        TWILL_CHECK(fine(comm[d - 1], twill_comm_split(&comm[d], comm[d - 1], colour, key)));
        TWILL_CHECK(works(comm[d], &group[d], me));
        if (d == 3) {
            twill_comm_destroy(comm[2]);
            comm[2] = NULL;
        }
    }
    for (int d = 0; d < 6; d++)
        TWILL_CHECK(comm[d] == NULL || works(comm[d], &group[d], me));
    for (int d = 1; d < 6; d++)
        twill_comm_destroy(comm[d]);
}

static void nested_splits(void **unused)
{
    (void)unused;
    for (size_t s = 0; s < TWILL_ARRAY_LENGTH(shapes); s++)
        for (uint64_t seed = 0; seed < 2; seed++) {
            struct scene scene = {.shape = &shapes[s], .play = play_nest, .seed = s * 100 + seed};
            run_scene(&scene);
        }
}

/* Groups that overlap, made by their members only, while the others do something else; the first
 * and the last rank are in two, neighbours in the middle in three. */
static void play_groups(struct scene *scene, twill_comm *all)
{
    int me = job_rank(all), size = scene->shape->size;
    for (int first = 0; first + 1 < size; first++) {
        struct group group = {2, {first + 1, first}};
        twill_comm *made;
        if (place_in(&group, me) < 0)
            continue;
        TWILL_CHECK(fine(all, twill_comm_create_group(&made, all, 2, group.rank)));
        TWILL_CHECK(works(made, &group, me));
        twill_comm_destroy(made);
    }
    struct group group = everyone(size);
    TWILL_CHECK(works(all, &group, me));
}

static void groups(void **unused)
{
    (void)unused;
    run_everywhere(play_groups);
}

/* Two halves make different numbers of communicators, and then one together. */
static void play_uneven(struct scene *scene, twill_comm *all)
{
    int me = job_rank(all), size = scene->shape->size;
    struct group whole = everyone(size);
    twill_comm *half, *made;
    TWILL_CHECK(fine(all, twill_comm_split(&half, all, me < size / 2, 0)));
    for (int i = 0; i < (me < size / 2 ? 3 : 1); i++) {
        TWILL_CHECK(fine(half, twill_comm_dup(&made, half)));
        twill_comm_destroy(made);
    }
    TWILL_CHECK(fine(all, twill_comm_dup(&made, all)));
    TWILL_CHECK(works(made, &whole, me));
    twill_comm_destroy(made);
    twill_comm_destroy(half);
}

static void uneven_numbers(void **unused)
{
    (void)unused;
    run_everywhere(play_uneven);
}

static void play_many(struct scene *scene, twill_comm *all)
{
    const char *asked = getenv("TEST_COMMS");
    int count = asked != NULL ? atoi(asked) : 300;
    struct group whole = everyone(scene->shape->size);
    twill_comm *made;
    for (int i = 0; i < count; i++) {
        TWILL_CHECK(fine(all, twill_comm_dup(&made, all)));
        int64_t one = 1, sum = 0;
        TWILL_CHECK(fine(made, twill_allreduce(made, &one, &sum, 1, TWILL_I64, TWILL_SUM)));
        TWILL_CHECK(sum == scene->shape->size);
        TWILL_CHECK(i % 100 != 0 || works(made, &whole, job_rank(all)));
        twill_comm_destroy(made);
    }
}

static void many_one_after_the_other(void **unused)
{
    (void)unused;
    static const struct shape small[] = {{2, 0, ""}, {2, 1, ""}, {2, 0, "2x1"}};
    for (size_t s = 0; s < TWILL_ARRAY_LENGTH(small); s++) {
        struct scene scene = {.shape = &small[s], .play = play_many};
        run_scene(&scene);
    }
}

/* --- where they are -------------------------------------------------------------------------- */

/* What the world of the job says, said by each communicator of its own ranks. */
static void play_places(struct scene *scene, twill_comm *all)
{
    int me = job_rank(all), size = scene->shape->size, node = twill_comm_node(all);
    twill_comm *turned, *on_node;
    int64_t nodes[MOST_RANKS] = {0}, all_nodes[MOST_RANKS];
    nodes[me] = node;
    TWILL_CHECK(
        fine(all, twill_allreduce(all, nodes, all_nodes, (size_t)size, TWILL_I64, TWILL_SUM)));
    TWILL_CHECK(fine(all, twill_comm_split(&turned, all, 0, -me)));
    int local = 0, before = 0;
    for (int r = size; r-- > 0;) { /* in the order of the new one */
        local += all_nodes[r] == node;
        before += all_nodes[r] == node && r > me;
    }
    TWILL_CHECK(twill_comm_nodes(turned) == twill_comm_nodes(all));
    TWILL_CHECK(twill_comm_local_size(turned) == local && twill_comm_local_rank(turned) == before);
    TWILL_CHECK(fine(turned, twill_comm_split_level(&on_node, turned, TWILL_LEVEL_NODE, 0)));
    TWILL_CHECK(twill_comm_nodes(on_node) == 1 && twill_comm_node(on_node) == 0);
    TWILL_CHECK(twill_comm_size(on_node) == local && twill_comm_rank(on_node) == before);
    struct group group = {0};
    for (int r = size; r-- > 0;)
        if (all_nodes[r] == node)
            group.rank[group.size++] = r;
    twill_comm_destroy(turned);
    TWILL_CHECK(works(on_node, &group, me));
    twill_comm_destroy(on_node);
}

static void places(void **unused)
{
    (void)unused;
    run_everywhere(play_places);
}

/* What TWILL_UNITS and TWILL_GROUPS declare, asked for of a communicator of another order. */
static void play_levels(struct scene *scene, twill_comm *all)
{
    int me = job_rank(all), size = scene->shape->size;
    static const int node_of[] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2};
    static const int tiles[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    static const int numas[] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5};
    static const int fabric_groups[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1};
    static const int *const unit[TWILL_LEVEL_COUNT] = {tiles, numas, node_of, node_of,
                                                       fabric_groups};
    twill_comm *turned;
    TWILL_CHECK(fine(all, twill_comm_split(&turned, all, 0, -me)));
    for (int level = 0; level < TWILL_LEVEL_COUNT; level++) {
        for (int order = 0; order < 2; order++) {
            struct group group = {0};
            twill_comm *from = order == 0 ? all : turned, *made;
            for (int i = 0; i < size; i++) {
                int r = order == 0 ? i : size - 1 - i;
                if (unit[level][r] == unit[level][me])
                    group.rank[group.size++] = r;
            }
            TWILL_CHECK(fine(from, twill_comm_split_level(&made, from, (twill_level)level, 0)));
            TWILL_CHECK(works(made, &group, me));
            twill_comm_destroy(made);
        }
    }
    twill_comm_destroy(turned);
}

static void declared_levels(void **unused)
{
    (void)unused;
    static const struct shape twelve = {12, 0, "3x4"};
    struct scene scene = {.shape = &twelve,
                          .play = play_levels,
                          .settings = {"TWILL_UNITS=tile=1,numa=2,package=4", "TWILL_GROUPS=2+1"}};
    run_scene(&scene);
}

/* Nothing declared: the ranks of this test are threads that may run anywhere, hence all in the
 * first unit of each level that the machine has. */
static void play_found_levels(struct scene *scene, twill_comm *all)
{
    twill_comm *made;
    for (int level = 0; level < TWILL_LEVEL_COUNT; level++) {
        TWILL_CHECK(fine(all, twill_comm_split_level(&made, all, (twill_level)level, 0)));
        int size = twill_comm_size(made), most = twill_comm_local_size(all);
        bool group = level == TWILL_LEVEL_GROUP;
        TWILL_CHECK(size == (group ? scene->shape->size : most) || (level < 3 && size == 1));
        twill_comm_destroy(made);
    }
}

static void found_levels(void **unused)
{
    (void)unused;
    run_everywhere(play_found_levels);
}

static void bad_levels(void **unused)
{
    (void)unused;
    static const struct {
        const char *setting, *message;
    } table[] = {
        {"TWILL_UNITS=tile", "\"tile\""},
        {"TWILL_UNITS=core=2", "\"core=2\""},
        {"TWILL_UNITS=numa=0", "\"0\""},
        {"TWILL_UNITS=numa=2,", "\"2,\""},
        {"TWILL_UNITS=numa=2,package=3", "no multiple"},
        {"TWILL_GROUPS=2", "TWILL_GROUPS=2: describes 2 nodes, but there are 1"},
        {"TWILL_GROUPS=x", "write groups x nodes"},
        {"TWILL_PROGRESS=thread:", "TWILL_PROGRESS=thread:"},
        {"TWILL_PROGRESS=thread:1x", "none, thread, or thread:CORE"},
        {"TWILL_PROGRESS=threads", "none, thread, or thread:CORE"},
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

static void play_counters(struct scene *scene, twill_comm *all)
{
    struct group whole = everyone(scene->shape->size);
    twill_counters before, after, own;
    twill_comm *made;
    TWILL_CHECK(fine(all, twill_comm_dup(&made, all)));
    TWILL_CHECK(twill_comm_counters(all, &before) == TWILL_OK);
    TWILL_CHECK(works(made, &whole, job_rank(all)));
    TWILL_CHECK(twill_comm_counters(all, &after) == TWILL_OK);
    TWILL_CHECK(twill_comm_counters(made, &own) == TWILL_OK);
    TWILL_CHECK(own.calls == (uint64_t)whole.size + 2 && own.seconds > 0);
    TWILL_CHECK(after.calls == before.calls && after.bytes_sent == before.bytes_sent);
    twill_comm_destroy(made);
}

static void counters_of_each(void **unused)
{
    (void)unused;
    run_everywhere(play_counters);
}

/* Memory that the node shares is seen through every communicator, whatever ranks are called in it.
 */
static void play_heap(struct scene *scene, twill_comm *all)
{
    int me = job_rank(all), size = scene->shape->size;
    twill_comm *turned;
    void *memory;
    size_t count = 100000;
    TWILL_CHECK(fine(all, twill_comm_split(&turned, all, 0, -me)));
    TWILL_CHECK(twill_alloc(twill_comm_context(all), &memory, count * sizeof(int32_t)) == TWILL_OK);
    int32_t *data = memory;
    for (size_t i = 0; i < count; i++)
        data[i] = (int32_t)((size_t)(me + 1) * i);
    TWILL_CHECK(fine(turned, twill_allreduce(turned, data, data, count, TWILL_I32, TWILL_SUM)));
    for (size_t i = 0; i < count; i++)
        TWILL_CHECK(data[i] == (int32_t)((size_t)(size * (size + 1) / 2) * i));
    twill_comm_destroy(turned);
    TWILL_CHECK(twill_free(twill_comm_context(all), memory) == TWILL_OK);
}

static void shared_memory(void **unused)
{
    (void)unused;
    run_everywhere(play_heap);
}

/* --- what is wrong with it ------------------------------------------------------------------- */

static bool refused(twill_comm *comm, twill_status status, const twill_comm *made, const char *word)
{
    return twill_test_note(status == TWILL_ERR_ARGUMENT && made == NULL &&
                               strstr(twill_comm_message(comm), word) != NULL,
                           __FILE__, __LINE__, "status %d, expected \"%s\" in: %s", status, word,
                           twill_comm_message(comm));
}

static void play_wrong(struct scene *scene, twill_comm *all)
{
    int me = job_rank(all), size = scene->shape->size;
    const int twice[] = {0, 0}, outside[] = {0, size}, negative[] = {-1, 0};
    const int others[] = {(me + 1) % size};
    twill_comm *made = all;
    TWILL_CHECK(twill_comm_dup(&made, NULL) == TWILL_ERR_ARGUMENT && made == NULL);
    TWILL_CHECK(twill_comm_dup(NULL, all) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(refused(all, twill_comm_split(&made, all, me == 0 ? -2 : 0, 0), made,
                        "colour -2 of rank 0"));
    TWILL_CHECK(
        refused(all, twill_comm_split_level(&made, all, (twill_level)17, 0), made, "level 17"));
    TWILL_CHECK(refused(all, twill_comm_create_group(&made, all, 0, twice), made, "count 0"));
    TWILL_CHECK(refused(all, twill_comm_create_group(&made, all, size + 1, twice), made, "count "));
    TWILL_CHECK(refused(all, twill_comm_create_group(&made, all, 1, NULL), made, "ranks is NULL"));
    if (size >= 2) {
        TWILL_CHECK(refused(all, twill_comm_create_group(&made, all, 2, twice), made,
                            "ranks[1] = 0 is there twice"));
        TWILL_CHECK(refused(all, twill_comm_create_group(&made, all, 2, outside), made, "outside"));
        TWILL_CHECK(
            refused(all, twill_comm_create_group(&made, all, 2, negative), made, "ranks[0]"));
        TWILL_CHECK(refused(all, twill_comm_create_group(&made, all, 1, others), made,
                            "do not contain the calling rank"));
    }
    struct group whole = everyone(size);
    TWILL_CHECK(works(all, &whole, me)); /* and nothing is broken by it */
    TWILL_CHECK(twill_comm_dup(&made, all) == TWILL_OK && twill_comm_message(all)[0] == '\0');
    TWILL_CHECK(works(made, &whole, me));
    twill_comm_destroy(made);
}

static void wrong_arguments(void **unused)
{
    (void)unused;
    run_everywhere(play_wrong);
}

/* A failure breaks the communicator it happens on, names ranks as they are called in it and in the
 * job, and leaves the others alone. */
static void play_failure(struct scene *scene, twill_comm *all)
{
    int me = job_rank(all), size = scene->shape->size;
    twill_comm *upper, *turned;
    float data[8] = {0}, sum[8];
    struct group whole = everyone(size);
    TWILL_CHECK(fine(all, twill_comm_split(&upper, all, me == 0, 0)));
    TWILL_CHECK(fine(all, twill_comm_split(&turned, all, 0, -me)));
    if (me != 0) {
        size_t count = me == size - 1 ? 7 : 8;
        twill_status status = twill_allreduce(upper, data, sum, count, TWILL_F32, TWILL_SUM);
        const char *message = twill_comm_message(upper);
        TWILL_CHECK(
            twill_test_note(status == TWILL_ERR_MISMATCH && strstr(message, "of the job)") != NULL,
                            __FILE__, __LINE__, "rank %d: status %d: %s", me, status, message));
        TWILL_CHECK(twill_barrier(upper) == TWILL_ERR_BROKEN);
        twill_comm *made = all;
        TWILL_CHECK(twill_comm_dup(&made, upper) == TWILL_ERR_BROKEN && made == NULL);
    }
    TWILL_CHECK(works(all, &whole, me));
    for (int r = 0; r < size; r++)
        whole.rank[r] = size - 1 - r;
    TWILL_CHECK(works(turned, &whole, me));
    twill_comm_destroy(turned);
    twill_comm_destroy(upper);
}

static void failures_stay_apart(void **unused)
{
    (void)unused;
    for (size_t s = 0; s < TWILL_ARRAY_LENGTH(shapes); s++) {
        struct scene scene = {.shape = &shapes[s], .play = play_failure};
        if (shapes[s].size > 2)
            run_scene(&scene);
    }
}

/* The last rank ends instead of taking part in the making; the others say so, soon. */
static void play_death(struct scene *scene, twill_comm *all)
{
    int me = job_rank(all), size = scene->shape->size;
    twill_comm *made = all;
    TWILL_CHECK(fine(all, twill_barrier(all)));
    if (me == size - 1)
        _exit(0);
    twill_status status = twill_comm_split(&made, all, 0, 0);
    const char *message = twill_comm_message(all);
    TWILL_CHECK(twill_test_note(status == TWILL_ERR_PEER && made == NULL &&
                                    strstr(message, "twill_comm_split") != NULL &&
                                    strstr(message, "died") != NULL,
                                __FILE__, __LINE__, "rank %d: status %d: %s", me, status, message));
    TWILL_CHECK(twill_barrier(all) == TWILL_ERR_BROKEN);
}

static void death_while_it_is_made(void **unused)
{
    (void)unused;
    static const struct shape processes[] = {{3, 1, ""}, {4, 1, "2x2"}};
    for (size_t s = 0; s < TWILL_ARRAY_LENGTH(processes); s++) {
        struct scene scene = {.shape = &processes[s], .play = play_death};
        run_scene(&scene);
    }
}

/* One rank makes another kind than the rest; or makes nothing, but calls something else. */
static void play_disagreement(struct scene *scene, twill_comm *all)
{
    twill_comm *made = NULL;
    int me = job_rank(all), odd = scene->shape->size - 1;
    twill_status status;
    float value = 0, sum;
    if (me != odd)
        status = twill_comm_split(&made, all, 0, 0);
    else if (scene->seed == 0)
        status = twill_comm_dup(&made, all);
    else if (scene->seed == 1)
        status = twill_allreduce(all, &value, &sum, 1, TWILL_F32, TWILL_SUM);
    else
        status = twill_barrier(all);
    TWILL_CHECK(twill_test_note(status == TWILL_ERR_MISMATCH && made == NULL, __FILE__, __LINE__,
                                "rank %d: status %d: %s", me, status, twill_comm_message(all)));
}

static void disagreement(void **unused)
{
    (void)unused;
    for (size_t s = 1; s < TWILL_ARRAY_LENGTH(shapes); s++)
        for (uint64_t seed = 0; seed < 3; seed++) {
            struct scene scene = {.shape = &shapes[s], .play = play_disagreement, .seed = seed};
            run_scene(&scene);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_and_dups),
        cmocka_unit_test(nested_splits),
        cmocka_unit_test(groups),
        cmocka_unit_test(uneven_numbers),
        cmocka_unit_test(many_one_after_the_other),
        cmocka_unit_test(places),
        cmocka_unit_test(declared_levels),
        cmocka_unit_test(found_levels),
        cmocka_unit_test(bad_levels),
        cmocka_unit_test(counters_of_each),
        cmocka_unit_test(shared_memory),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(failures_stay_apart),
        cmocka_unit_test(death_while_it_is_made),
        cmocka_unit_test(disagreement),
    };
    cmocka_set_test_filter(getenv("TEST_ONLY")); /* NULL: all */
    return cmocka_run_group_tests(tests, NULL, NULL);
}

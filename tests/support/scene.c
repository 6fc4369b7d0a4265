/* SPDX-License-Identifier: Apache-2.0 */
/* Scenes: set-up, and checks of communicators. */
#include "tests/support/scene.h"
#include "tests/support/run.h"

#include <stdio.h>

const struct twill_test_shape twill_test_shapes[TWILL_TEST_SHAPES] = {
    {1, 0, ""}, {2, 0, ""}, {5, 0, ""}, {4, 0, "2x2"}, {6, 0, "1+3+2"}, {4, 1, ""}, {6, 2, "2x3"},
};

struct twill_test_group twill_test_everyone(int size)
{
    struct twill_test_group group = {.size = size};
    for (int r = 0; r < size; r++)
        group.rank[r] = r;
    return group;
}

int twill_test_place(const struct twill_test_group *group, int job)
{
    for (int i = 0; i < group->size; i++)
        if (group->rank[i] == job)
            return i;
    return -1;
}

/* Check that every rank receives every root's identity in order, and that sums and barriers
 * work. */
bool twill_test_works(twill_comm *comm, const struct twill_test_group *group, int me)
{
    int self = twill_test_place(group, me);
    TWILL_REQUIRE(self >= 0 && twill_comm_rank(comm) == self);
    TWILL_REQUIRE(twill_comm_size(comm) == group->size);
    for (int root = 0; root < group->size; root++) {
        int64_t mine = me, received = -1;
        TWILL_REQUIRE(twill_test_fine(comm, twill_broadcast(comm, root == self ? &mine : NULL,
                                                            &received, 1, TWILL_I64, root)));
        TWILL_REQUIRE(received == group->rank[root]);
    }
    int64_t sum = 0, src[700], dst[700];
    for (int i = 0; i < group->size; i++)
        sum += group->rank[i] + 1;
    for (int i = 0; i < 700; i++)
        src[i] = (me + 1) * (i + 1);
    TWILL_REQUIRE(
        twill_test_fine(comm, twill_allreduce(comm, src, dst, 700, TWILL_I64, TWILL_SUM)));
    for (int i = 0; i < 700; i++)
        TWILL_REQUIRE(dst[i] == sum * (i + 1));
    return twill_test_fine(comm, twill_barrier(comm));
}

static void scene_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct twill_test_scene own = *(const struct twill_test_scene *)user, *scene = &own;
    const char *settings[] = {"TWILL_TUNE=heap_limit=8M,segment=8K,segment_net=8K", scene->setting,
                              NULL};
    own.bootstrap = bootstrap;
    twill_context *context;
    twill_comm *all;
    if (twill_test_connect(&context, &all, bootstrap, scene->shape->nodes, NULL, settings))
        scene->play(scene, all);
    if (!twill_test_failed()) { /* else other ranks may be in any call */
        twill_comm_destroy(all);
        twill_context_destroy(context);
    }
}

/* TSan misreads threads of several processes: it does not see that two threads of one process are
 * ordered by a third in another, nor that memkind's locks are new after a fork. */
static void play_scene(struct twill_test_scene *scene)
{
    int threads = scene->shape->threads;
    if (threads == 0)
        twill_test_run_ranks(scene->shape->size, scene_rank, scene);
    else
        twill_test_run_mixed(scene->shape->size, TEST_TSAN ? 1 : threads, scene_rank, scene);
}

void twill_test_play(const struct twill_test_shape *shapes, size_t count, uint64_t seed,
                     const char *setting, void (*play)(struct twill_test_scene *, twill_comm *))
{
    bool fewer = TEST_TSAN && !test_whole() && shapes == twill_test_shapes;
    for (size_t s = 0; s < count; s += fewer ? 2 : 1)
        play_scene(&(struct twill_test_scene){
            .shape = &shapes[s], .play = play, .setting = setting, .seed = seed});
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Scenes for tests of communicators: ranks in a given shape with a context and a communicator of
 * all, and checks of communicators derived from it. */
#ifndef TWILL_SCENE_H
#define TWILL_SCENE_H

#include "tests/support/ranks.h"

#define TWILL_TEST_MOST_RANKS 12

struct twill_test_shape {
    int size;
    int threads;       /* ranks per process; 0: all are threads of the test */
    const char *nodes; /* TWILL_NODES, or "" */
};

#define TWILL_TEST_SHAPES 7
extern const struct twill_test_shape twill_test_shapes[TWILL_TEST_SHAPES];

struct twill_test_scene {
    const struct twill_test_shape *shape;
    void (*play)(struct twill_test_scene *scene, twill_comm *all);
    const char *setting; /* or NULL */
    uint64_t seed;
    twill_bootstrap *bootstrap; /* of the rank that plays it */
};

/* The expected members of a communicator: ranks of the job, in order. */
struct twill_test_group {
    int size;
    int rank[TWILL_TEST_MOST_RANKS];
};

struct twill_test_group twill_test_everyone(int size);
/* Return the index of a rank of the job in a group, or -1. */
int twill_test_place(const struct twill_test_group *group, int job);
/* Check rank, size, broadcasts, a sum and a barrier of a communicator. */
bool twill_test_works(twill_comm *comm, const struct twill_test_group *group, int me);
/* Play on `count` shapes, or on every second one of all under the thread sanitizer. */
void twill_test_play(const struct twill_test_shape *shapes, size_t count, uint64_t seed,
                     const char *setting, void (*play)(struct twill_test_scene *, twill_comm *));
/* Define a test that is played on an array of shapes with each seed below `seeds`, and with a
 * setting or NULL, which may use `seed`. The body has the parameters scene and all. */
#define TWILL_TEST_SCENES(name, shapes, seeds, setting)                                            \
    static void play_of_##name(struct twill_test_scene *scene, twill_comm *all);                   \
    TWILL_TEST(name)                                                                               \
    {                                                                                              \
        for (uint64_t seed = 0; seed < (seeds); seed++)                                            \
            twill_test_play(shapes, TWILL_ARRAY_LENGTH(shapes), seed, setting, play_of_##name);    \
    }                                                                                              \
    static void play_of_##name(struct twill_test_scene *scene, twill_comm *all)
/* On all shapes. */
#define TWILL_TEST_SCENE(name) TWILL_TEST_SCENES(name, twill_test_shapes, 1, NULL)

#endif

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
    const char *settings[4];
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
bool twill_test_fine(twill_comm *comm, twill_status status);
/* Check rank, size, broadcasts, a sum and a barrier of a communicator. */
bool twill_test_works(twill_comm *comm, const struct twill_test_group *group, int me);
void twill_test_play(struct twill_test_scene *scene);
/* Play on all shapes. */
void twill_test_play_all(void (*play)(struct twill_test_scene *, twill_comm *));

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Played training steps in the programs of twill-compare: a backward pass, the reduction of its
 * gradients, and a forward pass, with the computing played (played_compute.h). A program fills in
 * struct peer_steps and uses peer_play(). For C and C++.
 *
 * A turn: gradients are reduced once with known values; then, `least` times, the computing alone
 * and a step, each after a barrier. */
#ifndef TWILL_PEER_STEPS_H
#define TWILL_PEER_STEPS_H

#include "peer.h"

/* What a program implements for TWILL_COMPARE_BY_TENSOR. Functions return 0, or non-zero after
 * peer_say(). */
struct peer_steps {
    /* May be NULL: before the first reduction, and after the last. */
    int (*open)(struct peer *peer, const struct twill_compare_model *model);
    void (*close)(struct peer *peer);
    /* May be NULL: the gradient's memory, if it is the library's. */
    float *(*memory)(struct peer *peer, uint32_t tensor);
    /* Start the reduction of a gradient, in place. Called from the last tensor to the first. */
    int (*start)(struct peer *peer, uint32_t tensor, float *gradient, uint64_t count);
    int (*wait)(struct peer *peer); /* for all of them */
    int (*test)(struct peer *peer); /* advance them; NULL: a thread does */
};

/* A program's state in a turn. */
struct peer_play {
    const struct peer_program *program;
    struct peer *peer;
    const struct twill_compare_model *model;
    struct peer_call all; /* of all tensors together */
    int by_tensor;
    struct played_compute compute;
};

static inline int peer_play_test(void *of)
{
    const struct peer_play *play = (const struct peer_play *)of;
    return play->program->steps->test(play->peer);
}

static inline float *peer_gradient(const struct peer_play *play, uint32_t tensor)
{
    const struct peer_steps *steps = play->program->steps;
    if (play->by_tensor && steps->memory != NULL)
        return steps->memory(play->peer, tensor);
    return play->peer->buffer[0] + play->model->tensor[tensor].first;
}

/* Make the backward pass, the reductions unless `reduces` is 0, and the forward pass. */
static inline int peer_play_step(struct peer_play *play, int reduces)
{
    const struct peer_steps *steps = play->program->steps;
    const struct twill_compare_model *model = play->model;
    int by_tensor = reduces && play->by_tensor;
    play->compute.test = by_tensor && steps->test != NULL ? peer_play_test : NULL;
    played_launch(&play->compute);
    for (uint32_t i = model->tensors; i-- > 0;) {
        if (played_for(&play->compute, 2 * model->tensor[i].forward) != 0)
            return 1;
        if (by_tensor &&
            steps->start(play->peer, i, peer_gradient(play, i), model->tensor[i].elements) != 0)
            return 1;
    }
    if (reduces &&
        (by_tensor ? steps->wait(play->peer) : play->program->run(play->peer, &play->all)) != 0)
        return 1;
    play->compute.test = NULL;
    played_launch(&play->compute);
    for (uint32_t i = 0; i < model->tensors; i++)
        (void)played_for(&play->compute, model->tensor[i].forward);
    return 0;
}

/* Make a step with known values, and count the wrong sums. All gradients are zero afterwards. */
static inline int peer_check_step(struct peer_play *play)
{
    struct peer *peer = play->peer;
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < play->model->tensors; i++)
        for (uint64_t k = 0; k < play->model->tensor[i].elements; k++)
            peer_gradient(play, i)[k] = peer_value(play->model->tensor[i].first + k, peer->rank);
    if (play->program->barrier(peer) != 0 || peer_play_step(play, 1) != 0)
        return 1;
    for (uint32_t i = 0; i < play->model->tensors; i++) {
        float *gradient = peer_gradient(play, i);
        for (uint64_t k = 0; k < play->model->tensor[i].elements; k++)
            wrong += !(gradient[k] == peer_sum(play->model->tensor[i].first + k, peer->size));
        memset(gradient, 0, play->model->tensor[i].elements * sizeof(float));
    }
    peer->result.wrong = wrong;
    return play->program->barrier(peer);
}

/* Measure the computing alone, then a step, in turns: seconds[even] and seconds[odd]. */
static inline int peer_time_steps(struct peer_play *play, uint32_t steps)
{
    struct peer *peer = play->peer;
    uint32_t batches = 2 * steps < TWILL_COMPARE_BATCHES ? 2 * steps : TWILL_COMPARE_BATCHES;
    for (uint32_t i = 0; i < batches; i++) {
        if (play->program->barrier(peer) != 0)
            return 1;
        double from = twill_compare_now();
        if (peer_play_step(play, i % 2 != 0) != 0)
            return 1;
        peer->result.seconds[i] = twill_compare_now() - from;
    }
    peer->result.calls = 1;
    peer->result.batches = batches;
    return play->program->barrier(peer);
}

/* Execute an order of steps. */
static inline int peer_play(const struct peer_program *program, struct peer *peer)
{
    struct peer_play play;
    memset(&play, 0, sizeof(play));
    play.program = program;
    play.peer = peer;
    play.model = peer->model;
    play.by_tensor = peer->order.step == TWILL_COMPARE_BY_TENSOR;
    play.compute.device = (int)play.model->device;
    play.compute.turns_per_second = play.model->turns_per_second;
    play.compute.of = &play;
    int failed = 0, opened = 0;
    if (!play.by_tensor || program->steps->memory == NULL)
        failed = peer_call_of(program, peer, &play.all);
    if (failed == 0 && play.by_tensor && program->steps->open != NULL)
        failed = program->steps->open(peer, play.model);
    opened = failed == 0 && play.by_tensor;
    if (failed == 0)
        failed = peer_check_step(&play);
    if (failed == 0)
        failed = peer_time_steps(&play, peer->order.least);
    if (opened && program->steps->close != NULL)
        program->steps->close(peer);
    peer_free(program, peer, 0);
    return failed;
}

#endif

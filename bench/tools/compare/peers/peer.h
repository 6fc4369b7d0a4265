/* SPDX-License-Identifier: Apache-2.0 */
/* The main() of every program of twill-compare, which fills in struct peer_program and calls
 * peer_main(), and its training steps. For C and C++. In a turn a program allocates buffers, checks
 * values once, and times calls (peer_timing.h). Arguments are LINK, MEMORY and those of the
 * program. MEMORY is plain (mmap, as malloc does for large blocks), registered or promoted (as
 * plain, with a call of the library), heap (aligned_alloc) or own (its allocator). */
#ifndef TWILL_PEER_H
#define TWILL_PEER_H

#include "peer_timing.h"

/* The state of a turn with played training steps, in the function peer_play(). A step is a backward
 * pass, the reduction of its gradients, and a forward pass. */
struct peer_play {
    const struct peer_program *program;
    struct peer *peer;
    const struct twill_compare_model *model;
    struct peer_call all; /* call for all tensors together */
    int by_tensor;        /* reduce each gradient by itself as soon as it is computed */
    struct played_compute compute;
};

/* Advance the reductions of `of`, a struct peer_play, between slices of computing. Returns 0, or
 * non-zero on failure, which ends the computing. */
static inline int peer_play_test(void *of)
{
    const struct peer_play *play = (const struct peer_play *)of;
    return play->program->steps->test(play->peer);
}

/* Return the memory for the gradient of a tensor. */
static inline float *peer_gradient(const struct peer_play *play, uint32_t tensor)
{
    const struct peer_steps *steps = play->program->steps;
    if (play->by_tensor && steps->memory != NULL)
        return steps->memory(play->peer, tensor);
    return play->peer->buffer[0] + play->model->tensor[tensor].first;
}

/* Make the backward pass, end the reductions unless `reduces` is 0, and then make the forward pass.
 * If play->by_tensor, each reduction starts once its gradient is computed. Returns 0, or non-zero
 * on failure. */
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

/* Make a step with known values, store the number of wrong sums of this rank in peer->result.wrong,
 * and zero the gradients. Returns 0, also with wrong ones, or non-zero on failure. */
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

/* Time computing alone and a whole step alternately, `steps` times each, but at most
 * TWILL_COMPARE_BATCHES in all, each after a barrier. Even elements of result.again get computing
 * alone, odd ones the steps. Returns 0 unless it fails. */
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
        peer->result.again[i] = twill_compare_now() - from;
    }
    peer->result.calls = 1;
    peer->result.batches = batches;
    return play->program->barrier(peer);
}

/* Play the training steps of peer->order. Checks the sums of one step with known values, then times
 * `order.least` steps. The results are in peer->result. Returns 0 unless it fails. */
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

/* End a turn or the start, which was not successful if `failed` is not 0. Stop the alarm and send
 * peer->result to the driver. Then zero it, except for the name of the library. */
static inline void peer_done(struct peer *peer, int failed)
{
    int rank = peer->rank >= 0 && peer->size > 0 ? peer->rank : peer_launched_rank();
    peer->result.failed = failed != 0;
    alarm(0);
    peer_link_send(&peer->link, TWILL_COMPARE_RESULT, rank, &peer->result, sizeof(peer->result));
    char library[TWILL_COMPARE_TEXT];
    memcpy(library, peer->result.library, sizeof(library));
    memset(&peer->result, 0, sizeof(peer->result));
    memcpy(peer->result.library, library, sizeof(library));
}

/* Measure what peer->order says and store the results in peer->result. Does nothing if the program
 * does not support it. Returns 0 unless it fails. */
static inline int peer_turn(const struct peer_program *program, struct peer *peer)
{
    enum twill_compare_collective what = (enum twill_compare_collective)peer->order.collective;
    if (peer->order.step != TWILL_COMPARE_NO_STEP)
        return program->steps != NULL && peer_play(program, peer) != 0;
    if (program->supports != NULL ? !program->supports(peer, what) : what >= TWILL_COMPARE_COMMON)
        return 0;
    return peer_measure(program, peer);
}

/* Let SIGALRM end this rank if it hangs for 5 s more than the driver waits before it kills. */
static inline void peer_hurry(const struct peer *peer)
{
    alarm(peer->welcome.patience + 5);
}

/* Measure what the driver orders, turn by turn, until it orders to quit. Returns 0, or 1 if the
 * connection to the driver ends. */
static inline int peer_turns(const struct peer_program *program, struct peer *peer)
{
    for (;;) {
        struct twill_compare_order *order = &peer->order;
        if (peer_link_receive(&peer->link, TWILL_COMPARE_ORDERED, order, sizeof(*order)) != 0)
            return 1; /* the driver has ended */
        if (order->quit)
            return 0;
        if (order->step != TWILL_COMPARE_NO_STEP &&
            peer_link_receive(&peer->link, TWILL_COMPARE_MODEL, peer->model,
                              sizeof(*peer->model)) != 0)
            return 1;
        peer_hurry(peer);
        peer_done(peer, peer_turn(program, peer));
    }
}

/* Bind this rank to its core, if the driver wants it. */
static inline void peer_bind(const struct peer *peer)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(peer->welcome.core, &set);
    if (peer->welcome.bind)
        sched_setaffinity(0, sizeof(set), &set);
}

/* Map `bytes` bytes of a file that all ranks of this host share. Its name is peer->welcome.path,
 * which is the same on all ranks, followed by `suffix`. The first rank that comes creates it.
 * Returns NULL on failure. */
static inline void *peer_map(const struct peer *peer, const char *suffix, size_t bytes)
{
    char path[sizeof(peer->welcome.path) + 16];
    snprintf(path, sizeof(path), "%s%s", peer->welcome.path, suffix);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *map = MAP_FAILED;
    if (file >= 0 && ftruncate(file, (off_t)bytes) == 0)
        map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    return map == MAP_FAILED ? NULL : map;
}

/* Connect to the driver that `text` names, and map shared memory. Returns 0 unless it fails. */
static inline int peer_open(struct peer *peer, const char *text)
{
    peer->link.socket = -1;
    peer->model = (struct twill_compare_model *)calloc(1, sizeof(*peer->model));
    if (peer->model == NULL ||
        peer_link_open(&peer->link, text, peer_launched_rank(), &peer->welcome) != 0)
        return 1;
    if (peer->welcome.path[0] == '\0')
        return 0;
    peer->shared = (struct peer_shared *)peer_map(peer, ".line", sizeof(*peer->shared));
    return peer->shared == NULL;
}

/* Make the barrier of shared->sleeping on rank 0. No rank uses it before the barrier of the library
 * that ends the start. */
static inline void peer_make_barrier(struct peer *peer)
{
    pthread_barrierattr_t shared;
    if (peer->shared == NULL || peer->rank != 0)
        return;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&peer->shared->sleeping, &shared, (unsigned)peer->size);
    pthread_barrierattr_destroy(&shared);
}

/* Start the alarm, bind this rank and open the library. Check the number of ranks, and wait for all
 * in a barrier. Returns 0 unless it fails. */
static inline int peer_begin(const struct peer_program *program, struct peer *peer)
{
    peer_hurry(peer);
    peer_bind(peer);
    if (program->begin(peer) != 0)
        return 1;
    peer_bind(peer); /* in case the library moved it */
    if (peer->size != peer->welcome.ranks ||
        (strcmp(peer->memory, "own") == 0 && !program->alloc_buffer) ||
        (peer_enrolls(peer) && !program->enroll))
        return peer_say(peer, "wrong number of ranks, or no such memory");
    peer_make_barrier(peer);
    return program->barrier(peer);
}

/* Run a program of twill-compare, as its main(). Returns an exit status. */
static inline int peer_main(int argc, char **argv, const struct peer_program *program)
{
    static struct peer peer;
    if (argc < 3 || peer_open(&peer, argv[1]) != 0) {
        fprintf(stderr, "%s: started by twill-compare only, which must be running\n", argv[0]);
        return 2;
    }
    peer.memory = argv[2];
    peer.arguments = argv + 3;
    int status = peer_begin(program, &peer);
    peer_done(&peer, status);
    if (status != 0)
        return status;
    status = peer_turns(program, &peer);
    peer_free(program, &peer, 0);
    peer_free(program, &peer, 1);
    program->end(&peer);
    free(peer.model);
    return status;
}

#endif

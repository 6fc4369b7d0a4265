/* SPDX-License-Identifier: Apache-2.0 */
/* The timing loop and main() of every program of twill-compare. A program fills in struct
 * peer_program and calls peer_main(). For C and C++. In a turn a program allocates buffers, checks
 * values once, and runs batches of calls, each after a barrier of the library. Batches of 1 call,
 * then of more, are not counted until one takes the ordered time. A sample is the mean time of a
 * call in a batch on this rank. The driver takes that of the slowest rank. Arguments are LINK,
 * MEMORY and those of the program. MEMORY is plain (mmap, as malloc does for large blocks), huge
 * (as plain, with madvise for huge pages), heap (aligned_alloc) or own (its allocator). */
#ifndef TWILL_PEER_H
#define TWILL_PEER_H

#include "peer_link.h"

#include <stdio.h>
#include <sys/mman.h>

/* A counter in a separate cache line. */
struct peer_line {
    uint64_t value;
    char rest[56];
};

/* Memory of all ranks of a host, with a line that two write alternately and rank 0's counts. */
struct peer_shared {
    struct peer_line ping __attribute__((aligned(128)));
    uint64_t calls, batches;
};

/* The state of a rank of a program that twill-compare measures, in peer_main(). Only its one thread
 * uses it. */
struct peer {
    int rank, size;
    struct peer_link link;
    struct twill_compare_welcome welcome;
    struct twill_compare_order order;   /* what the driver wants measured in this turn */
    struct twill_compare_model *model;  /* whose training steps are played, if the order says so */
    struct twill_compare_result result; /* what the driver gets after this turn */
    struct peer_shared *shared;         /* NULL between hosts */
    uint64_t pings;                     /* writes to shared->ping so far */
    const char *memory;                 /* MEMORY, how buffers are allocated */
    char **arguments;                   /* those of the program, NULL-terminated */
    void *own;                          /* state of the program */
    float *buffer[2];                   /* current buffers, or NULL */
    size_t bytes[2];
};

/* One call to time, a plain value. Its maker owns the buffers that it points to. */
struct peer_call {
    enum twill_compare_collective collective;
    const float *src;
    float *dst;
    size_t count; /* elements, of one shard where there are shards */
};

/* Part of a program for TWILL_COMPARE_BY_TENSOR. Functions return 0, or 1 after peer_say(). */
struct peer_steps {
    int (*open)(struct peer *peer, const struct twill_compare_model *model); /* first, or NULL */
    void (*close)(struct peer *peer);                                        /* last, or NULL */
    float *(*memory)(struct peer *peer, uint32_t tensor); /* of a gradient, or NULL for peer's */
    /* Start the reduction of a gradient, in place. Called from the last tensor to the first. */
    int (*start)(struct peer *peer, uint32_t tensor, float *gradient, uint64_t count);
    int (*wait)(struct peer *peer); /* wait for all of them */
    int (*test)(struct peer *peer); /* advance them, or NULL if a thread does */
};

/* The functions of a program. They return 0, or non-zero after peer_say(). */
struct peer_program {
    int (*begin)(struct peer *peer); /* sets rank and size */
    void (*end)(struct peer *peer);
    int (*run)(struct peer *peer, const struct peer_call *call);
    int (*barrier)(struct peer *peer);
    int (*prepare)(struct peer *peer, const struct peer_call *call); /* before calls, or NULL */
    void (*release)(struct peer *peer);                              /* after them, or NULL */
    /* The allocator of MEMORY "own", for buffer 0 or 1, or NULL. Returns NULL on failure. */
    void *(*alloc_buffer)(struct peer *peer, int which, size_t bytes);
    void (*free_buffer)(struct peer *peer, int which, void *memory);
    /* Return 0 for an unsupported collective. If NULL, the common ones are supported. */
    int (*supports)(struct peer *peer, enum twill_compare_collective collective);
    const struct peer_steps *steps; /* NULL if it plays no steps */
    int bytes_only; /* 1 if it only moves bytes, so that there are no values to check */
};

/* Return whether the collective is a call of one rank with itself. */
static inline int twill_compare_is_self(enum twill_compare_collective what)
{
    return what >= TWILL_COMPARE_SELF_BARRIER;
}

/* Return the size of a rank's source, or of its result if `result`, divided by the bytes of the
 * collective (twill_compare_order). It is 0 if there is none or if the result is in place. */
static inline uint64_t twill_compare_shards(enum twill_compare_collective what, uint64_t ranks,
                                            int result)
{
    switch (what) {
    case TWILL_COMPARE_ALLREDUCE:
    case TWILL_COMPARE_BROADCAST:
        return result ? 0 : 1;
    case TWILL_COMPARE_ALLGATHER:
    case TWILL_COMPARE_GATHER:
        return result ? ranks : 1;
    case TWILL_COMPARE_REDUCE_SCATTER:
    case TWILL_COMPARE_SCATTER:
        return result ? 1 : ranks;
    case TWILL_COMPARE_ALLTOALL:
        return ranks;
    case TWILL_COMPARE_ALLREDUCE_OUT:
    case TWILL_COMPARE_REDUCE:
        return 1;
    default:
        return 0;
    }
}

/* Set the message of the result. Returns 1. */
static inline int peer_say(struct peer *peer, const char *text)
{
    snprintf(peer->result.message, sizeof(peer->result.message), "%s", text);
    return 1;
}

/* Set the name of the library in the result to `name` followed by `version`. */
static inline void peer_name(struct peer *peer, const char *name, const char *version)
{
    snprintf(peer->result.library, sizeof(peer->result.library), "%s%.*s", name,
             TWILL_COMPARE_TEXT - 32, version);
}

/* Begin an allgather of `bytes` of each rank through the driver. Returns non-zero on failure. */
static inline int peer_exchange_post(struct peer *peer, const void *mine, size_t bytes)
{
    if (bytes > TWILL_COMPARE_EXCHANGE)
        return peer_say(peer, "more to exchange than the driver takes");
    return peer_link_send(&peer->link, TWILL_COMPARE_POSTED, peer->rank, mine, bytes);
}

/* Return 1 with the parts of all ranks in `all` if the allgather of peer_exchange_post() is done, 0
 * if not yet, or -1 on failure. */
static inline int peer_exchange_test(struct peer *peer, void *all, size_t bytes)
{
    bytes *= (size_t)peer->size;
    if (!peer_link_pending(&peer->link))
        return 0;
    return peer_link_receive(&peer->link, TWILL_COMPARE_POSTED, all, bytes) == 0 ? 1 : -1;
}

/* Gather `bytes` of each rank in `all` through the driver. Returns 0, or non-zero on failure. */
static inline int peer_exchange(struct peer *peer, const void *mine, void *all, size_t bytes)
{
    return peer_exchange_post(peer, mine, bytes) != 0 ||
           peer_link_receive(&peer->link, TWILL_COMPARE_POSTED, all, bytes * (size_t)peer->size) !=
               0;
}

/* Return the rank from the environment of the launcher, before the library knows it, or -1. */
static inline int peer_launched_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (getenv(names[i]) != NULL)
            return atoi(getenv(names[i]));
    return -1;
}

/* Take rank and size from the environment of twillrun. Returns 0, or non-zero after peer_say(). */
static inline int peer_launched(struct peer *peer)
{
    if (getenv("RANK") == NULL || getenv("WORLD_SIZE") == NULL)
        return peer_say(peer, "no rank");
    peer->rank = atoi(getenv("RANK"));
    peer->size = atoi(getenv("WORLD_SIZE"));
    return 0;
}

/* Free a buffer, unless there is none. `which` is 0 or 1. */
static inline void peer_free(const struct peer_program *program, struct peer *peer, int which)
{
    if (peer->buffer[which] != NULL) {
        if (strcmp(peer->memory, "own") == 0)
            program->free_buffer(peer, which, peer->buffer[which]);
        else if (strcmp(peer->memory, "heap") == 0)
            free(peer->buffer[which]);
        else
            munmap(peer->buffer[which], peer->bytes[which]);
    }
    peer->buffer[which] = NULL;
    peer->bytes[which] = 0;
}

/* Make buffer `which` `bytes` long, with zeros if it is new, or free it if that is 0. Returns 0, or
 * 1 after peer_say(). */
static inline int peer_alloc(const struct peer_program *program, struct peer *peer, int which,
                             size_t bytes)
{
    if (peer->bytes[which] == bytes)
        return 0;
    peer_free(program, peer, which);
    if (bytes == 0)
        return 0;
    void *memory = NULL;
    if (strcmp(peer->memory, "own") == 0) {
        memory = program->alloc_buffer(peer, which, bytes);
    } else if (strcmp(peer->memory, "heap") == 0) {
        memory = aligned_alloc(64, bytes);
    } else {
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            memory = NULL;
        else if (strcmp(peer->memory, "huge") == 0)
            madvise(memory, bytes, MADV_HUGEPAGE);
    }
    if (memory == NULL)
        return peer_say(peer, "no memory for the buffers");
    peer->buffer[which] = (float *)memory;
    peer->bytes[which] = bytes;
    memset(memory, 0, bytes);
    return 0;
}

/* Return the size that is allocated for `bytes`. */
static inline size_t peer_round(const struct peer *peer, size_t bytes)
{
    if (bytes < 64)
        bytes = 64;
    if (strcmp(peer->memory, "own") == 0 || strcmp(peer->memory, "heap") == 0)
        return (bytes + 63) / 64 * 64;
    size_t unit = bytes >= (2 << 20) ? (2 << 20) : 4096;
    return (bytes + unit - 1) / unit * unit;
}

/* Set *call by peer->order and allocate its buffers. Returns 0, or non-zero on failure. */
static inline int peer_call_of(const struct peer_program *program, struct peer *peer,
                               struct peer_call *call)
{
    const struct twill_compare_order *order = &peer->order;
    enum twill_compare_collective what = (enum twill_compare_collective)order->collective;
    for (int which = 0; which < 2; which++) {
        size_t shards = twill_compare_shards(what, (uint64_t)peer->size, which);
        size_t bytes = shards > 0 ? peer_round(peer, order->bytes * shards) : 0;
        if (peer_alloc(program, peer, which, bytes) != 0)
            return 1;
    }
    call->collective = what;
    call->count = order->bytes / sizeof(float);
    call->src = peer->buffer[0];
    call->dst = peer->buffer[1] == NULL ? peer->buffer[0] : peer->buffer[1];
    return 0;
}

/* Return 0 .. 63, without a short period, so that a misplaced shard is detected. */
static inline uint32_t peer_pattern(size_t i)
{
    return ((uint32_t)i * 2654435761u) >> 26;
}

/* Return element i of what a rank sends. Sums over the ranks are exact in f32. */
static inline float peer_value(size_t i, int rank)
{
    return (float)(int)(peer_pattern(i) + (uint32_t)rank * 3 + 1);
}

/* Return the sum of element i over `size` ranks. */
static inline float peer_sum(size_t i, int size)
{
    return (float)(int)((uint32_t)size * (peer_pattern(i) + 1) +
                        (uint32_t)(3 * size * (size - 1) / 2));
}

/* Return what dst[i] must be after a call. */
static inline float peer_expected(const struct peer *peer, const struct peer_call *call, size_t i)
{
    switch (call->collective) {
    case TWILL_COMPARE_BROADCAST:
        return peer_value(i, 0);
    case TWILL_COMPARE_ALLGATHER:
    case TWILL_COMPARE_GATHER:
        return peer_value(i % call->count, (int)(i / call->count));
    case TWILL_COMPARE_REDUCE_SCATTER:
        return peer_sum((size_t)peer->rank * call->count + i, peer->size);
    case TWILL_COMPARE_SCATTER:
        return peer_value((size_t)peer->rank * call->count + i, 0);
    case TWILL_COMPARE_ALLTOALL:
        return peer_value((size_t)peer->rank * call->count + i % call->count,
                          (int)(i / call->count));
    default:
        return peer_sum(i, peer->size);
    }
}

/* Make a call with known values, store the number of wrong elements of this rank in
 * peer->result.wrong, and zero the buffers. Without values (a barrier, or bytes_only) only make the
 * call. Returns 0, also with wrong ones, or non-zero on failure. */
static inline int peer_check(const struct peer_program *program, struct peer *peer,
                             const struct peer_call *call)
{
    enum twill_compare_collective what = call->collective;
    size_t src = call->count * twill_compare_shards(what, (uint64_t)peer->size, 0);
    size_t dst = call->count * twill_compare_shards(what, (uint64_t)peer->size, 1);
    int roots = what == TWILL_COMPARE_REDUCE || what == TWILL_COMPARE_GATHER;
    uint64_t wrong = 0;
    if (src == 0 || program->bytes_only)
        return program->run(peer, call);
    if (call->dst == call->src)
        dst = src;
    if (call->dst != call->src)
        memset(call->dst, 0xff, dst * sizeof(float));
    for (size_t i = 0; i < src; i++)
        peer->buffer[0][i] = peer_value(i, peer->rank);
    if (program->barrier(peer) != 0 || program->run(peer, call) != 0)
        return 1;
    for (size_t i = 0; i < dst && !(roots && peer->rank != 0); i++)
        wrong += !(call->dst[i] == peer_expected(peer, call, i));
    peer->result.wrong = wrong;
    if (program->barrier(peer) != 0) /* no rank still reads what is cleared now */
        return 1;
    memset(peer->buffer[0], 0, src * sizeof(float));
    memset(call->dst, 0, dst * sizeof(float));
    return 0;
}

/* Measure half a round trip of a cache line between ranks 0 and 1, which both call this. Rank 0
 * stores it in peer->result.line_seconds. If it takes too long, returns and stores nothing. */
static inline void peer_time_line(struct peer *peer)
{
    const uint64_t warm = 100, times = 600;
    const double patience = 0.05; /* in seconds, while it takes 0.1 ms */
    uint64_t *line = &peer->shared->ping.value, first = peer->pings + 1;
    double begin = twill_compare_now(), from = begin;
    peer->pings += 2 * (warm + times) + 1; /* no value is written in two turns */
    if (peer->rank == 0)
        __atomic_store_n(line, first, __ATOMIC_RELEASE);
    for (uint64_t i = 0; i < warm + times; i++) {
        if (i == warm)
            from = twill_compare_now();
        uint64_t mine = first + 2 * i + (uint64_t)peer->rank;
        for (uint64_t polls = 1; __atomic_load_n(line, __ATOMIC_ACQUIRE) != mine; polls++)
            if (polls % 4096 == 0 && twill_compare_now() - begin > patience)
                return;
        __atomic_store_n(line, mine + 1, __ATOMIC_RELEASE);
    }
    if (peer->rank == 0)
        peer->result.line_seconds = (twill_compare_now() - from) / (2 * (double)times);
}

/* Return the seconds per call of a batch after a barrier, or < 0 on failure. */
static inline double peer_batch(const struct peer_program *program, struct peer *peer,
                                const struct peer_call *call, uint64_t calls)
{
    if (program->barrier(peer) != 0)
        return -1;
    double from = twill_compare_now();
    for (uint64_t i = 0; i < calls; i++)
        if (program->run(peer, call) != 0)
            return -1;
    return (twill_compare_now() - from) / (double)calls;
}

/* Give all ranks the counts of rank 0, with a barrier. Returns 0 unless it fails. */
static inline int peer_agree_counts(const struct peer_program *program, struct peer *peer)
{
    uint64_t counts[2] = {peer->result.calls, peer->result.batches};
    if (peer->shared != NULL && peer->rank == 0) {
        __atomic_store_n(&peer->shared->calls, counts[0], __ATOMIC_RELEASE);
        __atomic_store_n(&peer->shared->batches, counts[1], __ATOMIC_RELEASE);
    } else if (peer->shared == NULL && peer->rank == 0) {
        if (peer_link_send(&peer->link, TWILL_COMPARE_COUNTS, 0, counts, sizeof(counts)) != 0)
            return 1;
    } else if (peer->shared == NULL &&
               peer_link_receive(&peer->link, TWILL_COMPARE_COUNTS, counts, sizeof(counts)) != 0) {
        return 1;
    }
    if (program->barrier(peer) != 0)
        return 1;
    if (peer->shared != NULL) {
        counts[0] = __atomic_load_n(&peer->shared->calls, __ATOMIC_ACQUIRE);
        counts[1] = __atomic_load_n(&peer->shared->batches, __ATOMIC_ACQUIRE);
    }
    peer->result.calls = counts[0];
    peer->result.batches = counts[1];
    return 0;
}

/* Set result.calls, the calls of a batch, and result.batches, on all ranks. Rank 0 chooses them by
 * the times that the driver ordered, from batches that do not count. Returns 0 unless it fails. */
static inline int peer_choose_counts(const struct peer_program *program, struct peer *peer,
                                     const struct peer_call *call)
{
    const struct twill_compare_order *order = &peer->order;
    struct twill_compare_result *result = &peer->result;
    uint64_t calls = 1;
    for (int step = 0; result->batches == 0; step++) {
        double seconds = peer_batch(program, peer, call, calls);
        if (seconds < 0)
            return 1;
        if (peer->rank == 0) {
            double needed = order->batch_seconds / (seconds > 1e-9 ? seconds : 1e-9);
            double most = (double)calls * 32;
            result->calls = needed < 1 ? 1 : (uint64_t)(needed > most ? most : needed);
            if (needed <= 2 * (double)calls || step > 8) { /* the last one was long enough */
                double batches = order->turn_seconds / (seconds * (double)result->calls);
                double least = (double)order->least;
                batches = batches < least ? least : batches;
                result->batches = batches < TWILL_COMPARE_BATCHES ? (uint64_t)batches
                                                                  : (uint64_t)TWILL_COMPARE_BATCHES;
            }
        }
        if (peer_agree_counts(program, peer) != 0)
            return 1;
        calls = result->calls;
    }
    return 0;
}

/* Time the collective of peer->order, first with a check of values and of the line latency if the
 * order says so. Stores the times and wrong elements in peer->result. Frees the buffers unless
 * order.keep. Returns 0 unless it fails. */
static inline int peer_measure(const struct peer_program *program, struct peer *peer)
{
    const struct twill_compare_order *order = &peer->order;
    struct twill_compare_result *result = &peer->result;
    struct peer_call call;
    int failed = peer_call_of(program, peer, &call);
    if (failed == 0 && program->prepare != NULL)
        failed = program->prepare(peer, &call);
    if (failed == 0 && order->check)
        failed = peer_check(program, peer, &call);
    if (failed == 0 && order->line && peer->rank < 2 && peer->size > 1 && peer->shared != NULL)
        peer_time_line(peer);
    if (failed == 0)
        failed = peer_choose_counts(program, peer, &call);
    for (uint64_t i = 0; failed == 0 && i < result->batches; i++) {
        result->seconds[i] = peer_batch(program, peer, &call, result->calls);
        failed = result->seconds[i] < 0;
    }
    if (failed == 0)
        failed = program->barrier(peer); /* before memory is freed that others may read */
    if (program->release != NULL)
        program->release(peer);
    for (int which = 0; which < 2 && !order->keep; which++)
        peer_free(program, peer, which);
    return failed;
}

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
 * TWILL_COMPARE_BATCHES in all, each after a barrier. Even elements of result.seconds get computing
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
        peer->result.seconds[i] = twill_compare_now() - from;
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

/* Map `bytes` bytes of a file that all ranks of this host share. Its name is peer->link.path, which
 * is the same on all ranks, followed by `suffix`. The first rank that comes creates it. Returns
 * NULL on failure. */
static inline void *peer_map(const struct peer *peer, const char *suffix, size_t bytes)
{
    char path[sizeof(peer->link.path) + 16];
    snprintf(path, sizeof(path), "%s%s", peer->link.path, suffix);
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
    if (peer->link.local)
        peer->shared = (struct peer_shared *)peer_map(peer, ".line", sizeof(*peer->shared));
    return peer->link.local && peer->shared == NULL;
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
        (strcmp(peer->memory, "own") == 0 && !program->alloc_buffer))
        return peer_say(peer, "wrong number of ranks, or no allocator of its own");
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

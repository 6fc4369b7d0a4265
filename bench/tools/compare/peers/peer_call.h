/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a rank of a program of twill-compare, the calls it makes, their buffers, and the
 * check of their values. Part of peer.h. For C and C++. */
#ifndef TWILL_PEER_CALL_H
#define TWILL_PEER_CALL_H

#include "peer_link.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

/* A counter in a separate cache line. */
struct peer_line {
    uint64_t value;
    char rest[56];
};

/* Memory that all ranks of a machine map: a line that two of them write alternately, the time in
 * nanoseconds at which all begin the next call (peer_begin_together), rank 0's counts
 * (peer_agree_counts), and two barriers, one for ranks that spin and one for ranks that sleep. */
struct peer_shared {
    struct peer_line ping __attribute__((aligned(128)));
    struct peer_line beginning __attribute__((aligned(128)));
    uint64_t counts[3];
    struct peer_line arrived[TWILL_COMPARE_RANKS] __attribute__((aligned(128)));
    pthread_barrier_t sleeping;
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
    struct peer_shared *shared;         /* NULL between machines */
    uint64_t pings;                     /* writes to shared->ping so far */
    uint64_t meetings;                  /* barriers of shared->arrived so far */
    uint64_t beginning;                 /* shared->beginning of the last call */
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
    /* Register or promote memory of these kinds of MEMORY, and undo that, or NULL. */
    int (*enroll)(struct peer *peer, void *memory, size_t bytes);
    void (*dismiss)(struct peer *peer, void *memory);
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

/* Return whether buffers are those of "plain", handed to the library. */
static inline int peer_enrolls(const struct peer *peer)
{
    return strcmp(peer->memory, "registered") == 0 || strcmp(peer->memory, "promoted") == 0;
}

/* Free a buffer, unless there is none. `which` is 0 or 1. */
static inline void peer_free(const struct peer_program *program, struct peer *peer, int which)
{
    if (peer->buffer[which] != NULL) {
        if (strcmp(peer->memory, "own") == 0) {
            program->free_buffer(peer, which, peer->buffer[which]);
        } else if (strcmp(peer->memory, "heap") == 0) {
            free(peer->buffer[which]);
        } else {
            if (peer_enrolls(peer))
                program->dismiss(peer, peer->buffer[which]);
            munmap(peer->buffer[which], peer->bytes[which]);
        }
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
    }
    if (memory == NULL)
        return peer_say(peer, "no memory for the buffers");
    peer->buffer[which] = (float *)memory;
    peer->bytes[which] = bytes;
    memset(memory, 0, bytes);
    return peer_enrolls(peer) ? program->enroll(peer, memory, bytes) : 0;
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

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The timing loop and main() of every program of twill-compare: a program fills in struct
 * peer_program and calls peer_main(). For C and C++.
 *
 * A turn: allocate buffers; check values once; run batches of calls, each after a barrier of the
 * library. Batches of 1 call, then of more, are not counted until one takes as long as ordered. A
 * sample is the mean time of a call in a batch on this rank; the driver takes the slowest rank's.
 *
 * Arguments: BOARD MEMORY [of the program]. MEMORY: plain (mmap, as malloc does for large blocks),
 * huge (as plain, with madvise for huge pages), heap (aligned_alloc), own (the program's
 * allocator). */
#ifndef TWILL_PEER_H
#define TWILL_PEER_H

#include "peer_link.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct peer {
    int rank, size;
    struct twill_compare_board *board;
    struct peer_link link;
    const char *path; /* of the board, or the link to the driver */
    const char *memory;
    char **arguments; /* the program's own, NULL-terminated */
    void *own;
    /* current buffers */
    float *buffer[2];
    size_t bytes[2];
};

struct peer_call {
    enum twill_compare_collective collective;
    const float *src;
    float *dst;
    size_t count; /* elements; of one shard where there are shards */
};

struct peer_steps;

/* What a program implements. Functions return 0, or non-zero after peer_say(). */
struct peer_program {
    int (*begin)(struct peer *peer); /* sets rank and size */
    void (*end)(struct peer *peer);
    int (*run)(struct peer *peer, const struct peer_call *call);
    int (*barrier)(struct peer *peer);
    /* May be NULL: set-up that serves many calls, and its release. */
    int (*prepare)(struct peer *peer, const struct peer_call *call);
    void (*release)(struct peer *peer);
    /* May be NULL: the allocator of MEMORY "own", for buffer 0 or 1; NULL on failure. */
    void *(*alloc_buffer)(struct peer *peer, int which, size_t bytes);
    void (*free_buffer)(struct peer *peer, int which, void *memory);
    /* Return 0 for an unsupported collective. NULL: supports the common ones */
    int (*supports)(struct peer *peer, enum twill_compare_collective collective);
    /* May be NULL: peer_play() of peer_steps.h, and what it needs. */
    int (*play)(const struct peer_program *program, struct peer *peer,
                const struct twill_compare_order *order);
    const struct peer_steps *steps;
    /* 1: moves bytes only, so there are no values to check */
    int bytes_only;
};

static inline int peer_say(struct peer *peer, const char *text)
{
    snprintf(peer->board->message, sizeof(peer->board->message), "%s", text);
    return 1;
}

/* An allgather over the board, for programs that need one before they can communicate: post, then
 * test until it returns 1. Two sets of slots suffice: a rank that posts round n + 2 has seen all
 * others post n + 1, which they did after reading n. */
static inline int peer_exchange_post(struct peer *peer, const void *mine, size_t bytes)
{
    struct twill_compare_board *board = peer->board;
    if (bytes > TWILL_COMPARE_EXCHANGE)
        return peer_say(peer, "more to exchange than the board can hold");
    if (peer->link.socket >= 0)
        return twill_compare_send(peer->link.socket, TWILL_COMPARE_POSTED, peer->rank, mine, bytes);
    memcpy(board->exchange[board->posted[peer->rank] % 2][peer->rank], mine, bytes);
    __atomic_add_fetch(&board->posted[peer->rank], 1, __ATOMIC_RELEASE);
    return 0;
}

static inline int peer_exchange_test(struct peer *peer, void *all, size_t bytes)
{
    struct twill_compare_board *board = peer->board;
    uint64_t posted = board->posted[peer->rank];
    if (peer->link.socket >= 0)
        return peer_link_pending(&peer->link) &&
               twill_compare_receive(peer->link.socket, TWILL_COMPARE_POSTED, all,
                                     bytes * (size_t)peer->size) == 0;
    for (int rank = 0; rank < peer->size; rank++)
        if (__atomic_load_n(&board->posted[rank], __ATOMIC_ACQUIRE) < posted)
            return 0;
    for (int rank = 0; rank < peer->size; rank++)
        memcpy((char *)all + (size_t)rank * bytes, board->exchange[(posted - 1) % 2][rank], bytes);
    return 1;
}

/* Return the rank from the launcher's environment, before the library knows it, or -1. */
static inline int peer_environment(const char *const *names)
{
    for (; *names != NULL; names++)
        if (getenv(*names) != NULL)
            return atoi(getenv(*names));
    return -1;
}

static inline int peer_launched_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK",
                                        NULL};
    return peer_environment(names);
}

/* --- buffers ---------------------------------------------------------------------------------- */

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

/* Round a size up to what is allocated for it. */
static inline size_t peer_round(const struct peer *peer, size_t bytes)
{
    if (bytes < 64)
        bytes = 64;
    if (strcmp(peer->memory, "own") == 0 || strcmp(peer->memory, "heap") == 0)
        return (bytes + 63) / 64 * 64;
    size_t unit = bytes >= (2 << 20) ? (2 << 20) : 4096;
    return (bytes + unit - 1) / unit * unit;
}

/* Fill in a call's arguments and allocate its buffers. */
static inline int peer_call_of(const struct peer_program *program, struct peer *peer,
                               const struct twill_compare_order *order, struct peer_call *call)
{
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

/* --- values ----------------------------------------------------------------------------------- */

/* Return 0 .. 63, without a short period, so that a misplaced shard is detected. */
static inline uint32_t peer_pattern(size_t i)
{
    return ((uint32_t)i * 2654435761u) >> 26;
}

static inline float peer_value(size_t i, int rank)
{
    return (float)(int)(peer_pattern(i) + (uint32_t)rank * 3 + 1);
}

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

/* Make one call with known values. Buffers are zero afterwards, so that repeated sums do not
 * grow. */
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
    peer->board->wrong[peer->rank] = wrong;
    if (program->barrier(peer) != 0) /* no rank still reads what is cleared now */
        return 1;
    memset(peer->buffer[0], 0, src * sizeof(float));
    memset(call->dst, 0, dst * sizeof(float));
    return 0;
}

/* --- time ------------------------------------------------------------------------------------- */

/* Measure the latency of a cache line between the cores of ranks 0 and 1, half a round trip: they
 * write it in turn. */
static inline void peer_line(struct peer *peer)
{
    struct twill_compare_board *board = peer->board;
    const uint64_t warm = 100, times = 600;
    uint64_t *line = &board->ping.value, start = board->line_start;
    double from = 0;
    for (uint64_t i = 0; i < warm + times; i++) {
        if (i == warm)
            from = twill_compare_now();
        uint64_t mine = start + 2 * i + (uint64_t)peer->rank;
        while (__atomic_load_n(line, __ATOMIC_ACQUIRE) != mine)
            ;
        __atomic_store_n(line, mine + 1, __ATOMIC_RELEASE);
    }
    if (peer->rank == 0)
        board->line_seconds = (twill_compare_now() - from) / (2 * (double)times);
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

/* Choose the calls per batch. Rank 0 decides by the previous batch; the barrier after that keeps it
 * from deciding again before all ranks have read the result. */
static inline int peer_choose_counts(const struct peer_program *program, struct peer *peer,
                                     const struct peer_call *call,
                                     const struct twill_compare_order *order)
{
    struct twill_compare_board *board = peer->board;
    uint64_t calls = 1, counts = 0;
    for (int step = 0; counts == 0; step++) {
        double seconds = peer_batch(program, peer, call, calls);
        if (seconds < 0)
            return 1;
        if (peer->rank == 0) {
            double needed = order->batch_seconds / (seconds > 1e-9 ? seconds : 1e-9);
            double most = (double)calls * 32;
            board->calls = needed < 1 ? 1 : (uint64_t)(needed > most ? most : needed);
            if (needed <= 2 * (double)calls || step > 8) { /* the last one was long enough */
                double batches = order->turn_seconds / (seconds * (double)board->calls);
                double least = (double)order->least;
                batches = batches < least ? least : batches;
                board->batches = batches < TWILL_COMPARE_BATCHES ? (uint64_t)batches
                                                                 : (uint64_t)TWILL_COMPARE_BATCHES;
            } else {
                board->batches = 0;
            }
        }
        if (peer->link.socket >= 0 && peer_link_agree_counts(&peer->link, peer->rank, board) != 0)
            return 1;
        if (program->barrier(peer) != 0)
            return 1;
        calls = __atomic_load_n(&board->calls, __ATOMIC_ACQUIRE);
        counts = __atomic_load_n(&board->batches, __ATOMIC_ACQUIRE);
    }
    return 0;
}

static inline int peer_measure(const struct peer_program *program, struct peer *peer,
                               const struct twill_compare_order *order)
{
    struct peer_call call;
    struct twill_compare_board *board = peer->board;
    int failed = peer_call_of(program, peer, order, &call);
    if (failed == 0 && program->prepare != NULL)
        failed = program->prepare(peer, &call);
    if (failed == 0 && order->check)
        failed = peer_check(program, peer, &call);
    if (failed == 0 && order->line && peer->rank < 2 && peer->size > 1)
        peer_line(peer);
    if (failed == 0)
        failed = peer_choose_counts(program, peer, &call, order);
    uint64_t calls = board->calls, batches = board->batches;
    for (uint64_t i = 0; failed == 0 && i < batches; i++) {
        board->seconds[peer->rank][i] = peer_batch(program, peer, &call, calls);
        failed = board->seconds[peer->rank][i] < 0;
    }
    if (failed == 0)
        failed = program->barrier(peer); /* before memory is freed that others may read */
    if (program->release != NULL)
        program->release(peer);
    for (int which = 0; which < 2 && !order->keep; which++)
        peer_free(program, peer, which);
    return failed;
}

/* --- turns ------------------------------------------------------------------------------------ */

static inline void peer_done(struct peer *peer)
{
    struct twill_compare_board *board = peer->board;
    if (peer->link.socket >= 0)
        peer_link_done(&peer->link, peer->rank, board);
    else if (__atomic_add_fetch(&board->done, 1, __ATOMIC_ACQ_REL) == (uint32_t)board->ranks)
        twill_compare_wake(&board->done);
}

/* Sleep until there is an order. Returns -1 if the driver has ended. */
static inline int peer_await_order(struct peer *peer, uint32_t *seen)
{
    struct twill_compare_board *board = peer->board;
    if (peer->link.socket >= 0)
        return peer_link_order(&peer->link, peer->rank, board);
    for (;;) {
        uint32_t turn = __atomic_load_n(&board->turn, __ATOMIC_ACQUIRE);
        if (turn != *seen) {
            *seen = turn;
            return 0;
        }
        twill_compare_sleep(&board->turn, *seen, 2);
        if (kill(board->driver, 0) != 0)
            return -1;
    }
}

static inline int peer_turns(const struct peer_program *program, struct peer *peer)
{
    struct twill_compare_board *board = peer->board;
    uint32_t seen = 0;
    for (;;) {
        if (peer_await_order(peer, &seen) != 0)
            return 1;
        struct twill_compare_order order = board->order;
        if (order.quit)
            return 0;
        if (order.step != TWILL_COMPARE_NO_STEP && program->play == NULL)
            board->batches = 0; /* no result */
        else if (order.step != TWILL_COMPARE_NO_STEP)
            board->error[peer->rank] = program->play(program, peer, &order) != 0;
        else if (program->supports != NULL
                     ? !program->supports(peer, (enum twill_compare_collective)order.collective)
                     : order.collective >= TWILL_COMPARE_COMMON)
            board->batches = 0; /* no result */
        else if (peer_measure(program, peer, &order) != 0)
            board->error[peer->rank] = 1;
        peer_done(peer);
    }
}

static inline void peer_bind(const struct twill_compare_board *board, int rank)
{
    if (!board->bind || rank < 0 || rank >= TWILL_COMPARE_RANKS)
        return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(board->core[rank], &set);
    sched_setaffinity(0, sizeof(set), &set);
}

/* Map the shared board, or a private one with a connection to the driver. */
static inline int peer_open(struct peer *peer, const char *path)
{
    int linked = strncmp(path, TWILL_COMPARE_LINK, strlen(TWILL_COMPARE_LINK)) == 0;
    int file = linked ? -1 : open(path, O_RDWR | O_CLOEXEC);
    void *map = MAP_FAILED;
    if (linked || file >= 0)
        map = mmap(NULL, sizeof(struct twill_compare_board), PROT_READ | PROT_WRITE,
                   linked ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file, 0);
    peer->board = map == MAP_FAILED ? NULL : (struct twill_compare_board *)map;
    peer->path = path;
    peer->link.socket = -1;
    if (peer->board == NULL || !linked)
        return peer->board == NULL;
    return peer_link_open(&peer->link, path, peer_launched_rank(), peer->board);
}

/* Report to the driver that this rank cannot take part, if it is connected. Returns 1. */
static inline int peer_failed(struct peer *peer)
{
    int rank = peer_launched_rank();
    if (peer->link.socket >= 0 && rank >= 0 && rank < TWILL_COMPARE_RANKS) {
        peer->board->error[rank] = 1;
        peer_link_done(&peer->link, rank, peer->board);
    }
    return 1;
}

static inline int peer_main(int argc, char **argv, const struct peer_program *program)
{
    struct peer peer;
    memset(&peer, 0, sizeof(peer));
    if (argc < 3 || peer_open(&peer, argv[1]) != 0) {
        fprintf(stderr, "%s: started by twill-compare only, which must be running\n", argv[0]);
        return 2;
    }
    peer.memory = argv[2];
    peer.arguments = argv + 3;
    peer_bind(peer.board, peer_launched_rank());
    if (program->begin(&peer) != 0)
        return peer_failed(&peer);
    if (peer.size != peer.board->ranks ||
        (strcmp(peer.memory, "own") == 0 && !program->alloc_buffer)) {
        peer_say(&peer, "wrong number of ranks, or no allocator of its own");
        return peer_failed(&peer);
    }
    peer_bind(peer.board,
              peer.rank); /* in case the launcher did not set the rank, or the library moved it */
    peer.board->pid[peer.rank] = (int32_t)getpid();
    if (program->barrier(&peer) != 0)
        return 1;
    peer_done(&peer);
    int status = peer_turns(program, &peer);
    peer_free(program, &peer, 0);
    peer_free(program, &peer, 1);
    program->end(&peer);
    return status;
}

#endif

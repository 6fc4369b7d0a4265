/* SPDX-License-Identifier: Apache-2.0 */
/* The bounds of twill-compare, which are what cores and memory allow. All ranks see all buffers. A
 * call is a barrier, the part of the work of each rank directly from source to destination, and a
 * barrier. Without an argument nothing is copied that need not be, and both sides share the work:
 *   allreduce, reduce   rank r reduces range r of all sources and stores it to that of each result
 *   broadcast           rank r copies range r of the buffer of the root to that of all others
 *   allgather, gather   rank r copies its source to shard r of each result
 *   reduce_scatter      rank r reduces shard r of all sources and stores it to its result
 *   scatter, alltoall   rank r copies its shards to its result
 *   barrier             one barrier: a cache line per rank, written by it, read by all
 * Ranges are whole cache lines, as a line that two ranks write would bounce between their cores. No
 * implementation needs fewer loads and stores. "stream" is the same with stores that bypass the
 * caches. With "copy" each rank reads all that its own result needs: one way, from core to core. */
#include "bench/tools/compare/peers/peer.h"

#include <stdbool.h>
#include <sys/stat.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define TARGET(features) __attribute__((target(features)))
#endif

enum { BOUND_VECTOR = 16 }; /* floats of a cache line */

/* This rank's part of a call. It adds elements lo to hi - 1 of all sources and stores the sums to
 * all destinations. With `stream` the stores bypass the caches. */
struct bound_reduction {
    int sources, destinations;
    const float *source[TWILL_COMPARE_RANKS];
    float *destination[TWILL_COMPARE_RANKS];
    size_t lo, hi;
    bool stream;
};

/* The state of this program on a rank, from begin() to end(). */
struct bound_state {
    char *memory;            /* [rank][buffer] of all ranks */
    size_t capacity;         /* bytes of each buffer */
    struct peer_line *flags; /* number of barriers that each rank has entered */
    uint64_t barriers;       /* how many this rank has entered */
    int patience;            /* polls before yielding the core */
    void (*run)(const struct bound_reduction *reduction);
    const char *isa; /* name of the vectors that run() uses */
    bool copies;     /* the argument is "copy" */
    int parts;       /* of the call that is prepared, in `part` */
    struct bound_reduction part[TWILL_COMPARE_RANKS];
};

/* Add elements lo to hi - 1 of all sources one by one, and store the sums to all destinations. */
static inline __attribute__((always_inline)) void
reduce_elements(const struct bound_reduction *reduction, size_t lo, size_t hi)
{
    for (size_t i = lo; i < hi; i++) {
        float sum = reduction->source[0][i];
        for (int s = 1; s < reduction->sources; s++)
            sum += reduction->source[s][i];
        for (int d = 0; d < reduction->destinations; d++)
            reduction->destination[d][i] = sum;
    }
}

#if defined(__x86_64__)
/* Complete streaming stores before later stores of this core. */
static inline void stream_fence(void)
{
    _mm_sfence();
}

static inline void relax_core(void)
{
    _mm_pause();
}
#else /* with vector types of the compiler */
typedef float lanes __attribute__((vector_size(16), aligned(4)));

static inline lanes lanes_load(const float *at)
{
    return *(const lanes *)(const void *)at;
}

static inline lanes lanes_add(lanes a, lanes b)
{
    return a + b;
}

static inline void lanes_store(float *at, lanes value)
{
    *(lanes *)(void *)at = value;
}

/* Do nothing, as there are no streaming stores here. */
static inline void stream_fence(void)
{
}

static inline void relax_core(void)
{
#if defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}
#endif

/* The reduction with vectors of an instruction set and, once inlined, constant operand counts. */
#define DEFINE_REDUCE(isa, target, vector, width, load, add, store, stream_store)                  \
    static inline __attribute__((always_inline)) target void isa##_loop(                           \
        const struct bound_reduction *reduction, int sources, int destinations, bool stream)       \
    {                                                                                              \
        const float *source[TWILL_COMPARE_RANKS];                                                  \
        float *destination[TWILL_COMPARE_RANKS];                                                   \
        for (int s = 0; s < sources; s++)                                                          \
            source[s] = reduction->source[s];                                                      \
        for (int d = 0; d < destinations; d++)                                                     \
            destination[d] = reduction->destination[d];                                            \
        size_t i = reduction->lo, end = i + (reduction->hi - i) / (width) * (width);               \
        for (; i < end; i += (width)) {                                                            \
            vector sum = load(source[0] + i);                                                      \
            for (int s = 1; s < sources; s++)                                                      \
                sum = add(sum, load(source[s] + i));                                               \
            for (int d = 0; d < destinations; d++)                                                 \
                if (stream)                                                                        \
                    stream_store(destination[d] + i, sum);                                         \
                else                                                                               \
                    store(destination[d] + i, sum);                                                \
        }                                                                                          \
        reduce_elements(reduction, end, reduction->hi);                                            \
        if (stream)                                                                                \
            stream_fence();                                                                        \
    }                                                                                              \
    static target void isa##_reduce(const struct bound_reduction *reduction)                       \
    {                                                                                              \
        bool stream = reduction->stream && reduction->lo % BOUND_VECTOR == 0;                      \
        int shape = reduction->sources * 4 + reduction->destinations;                              \
        if (reduction->sources > 2 || reduction->destinations > 2 || shape < 5)                    \
            isa##_loop(reduction, reduction->sources, reduction->destinations, stream);            \
        else if (shape == 5)                                                                       \
            stream ? isa##_loop(reduction, 1, 1, true) : isa##_loop(reduction, 1, 1, false);       \
        else if (shape == 6)                                                                       \
            stream ? isa##_loop(reduction, 1, 2, true) : isa##_loop(reduction, 1, 2, false);       \
        else if (shape == 9)                                                                       \
            stream ? isa##_loop(reduction, 2, 1, true) : isa##_loop(reduction, 2, 1, false);       \
        else                                                                                       \
            stream ? isa##_loop(reduction, 2, 2, true) : isa##_loop(reduction, 2, 2, false);       \
    }

#if defined(__x86_64__)
DEFINE_REDUCE(wide, TARGET("avx512f"), __m512, 16, _mm512_loadu_ps, _mm512_add_ps, _mm512_storeu_ps,
              _mm512_stream_ps)
DEFINE_REDUCE(middle, TARGET("avx2"), __m256, 8, _mm256_loadu_ps, _mm256_add_ps, _mm256_storeu_ps,
              _mm256_stream_ps)
DEFINE_REDUCE(narrow, TARGET("sse2"), __m128, 4, _mm_loadu_ps, _mm_add_ps, _mm_storeu_ps,
              _mm_stream_ps)

/* Set state->run to the reduction with the widest vectors that this CPU has, and state->isa to
 * their name. */
static void choose_kernel(struct bound_state *state)
{
    bool wide = __builtin_cpu_supports("avx512f"), middle = __builtin_cpu_supports("avx2");
    state->run = wide ? wide_reduce : middle ? middle_reduce : narrow_reduce;
    state->isa = wide ? "AVX-512F" : middle ? "AVX2" : "SSE2";
}
#else
DEFINE_REDUCE(narrow, , lanes, 4, lanes_load, lanes_add, lanes_store, lanes_store)

/* Set state->run to the reduction with vectors of 16 bytes, the only one here, and state->isa to
 * its description. */
static void choose_kernel(struct bound_state *state)
{
    state->run = narrow_reduce;
    state->isa = "vectors of 16 bytes, ordinary stores";
}
#endif

/* Return the state of the program, which begin() has made. */
static struct bound_state *of(struct peer *peer)
{
    return (struct bound_state *)peer->own;
}

/* Map the flags and buffers of all ranks. Returns 0, or 1 after peer_say(). */
static int map_memory(struct peer *peer, struct bound_state *state)
{
    size_t flags = TWILL_COMPARE_RANKS * sizeof(struct peer_line);
    state->capacity = peer->welcome.capacity;
    size_t bytes = flags + state->capacity * 2 * (size_t)peer->size;
    void *map = peer_map(peer, ".memory", bytes);
    if (map == NULL)
        return peer_say(peer, "no shared memory for the bound");
    state->flags = (struct peer_line *)map;
    state->memory = (char *)map + flags;
    madvise(state->memory, bytes - flags, MADV_HUGEPAGE);
    return 0;
}

/* Note rank and size, and map the memory of all ranks. Returns 0, or 1 on failure. */
static int begin(struct peer *peer)
{
    struct bound_state *state = calloc(1, sizeof(*state));
    if (state == NULL || peer_launched(peer) != 0 || map_memory(peer, state) != 0)
        return 1;
    peer->own = state;
    state->patience = peer->size > (int)sysconf(_SC_NPROCESSORS_ONLN) ? 1 : 1 << 20;
    state->copies = peer->arguments[0] != NULL && strcmp(peer->arguments[0], "copy") == 0;
    choose_kernel(state);
    peer_name(peer, "bound, ", state->isa);
    return 0;
}

/* Free the state of the program. The mapping ends with the process. */
static void end(struct peer *peer)
{
    free(peer->own);
}

/* Wait until all ranks have entered this barrier. Returns 0. */
static int barrier(struct peer *peer)
{
    struct bound_state *state = of(peer);
    uint64_t mine = ++state->barriers;
    __atomic_store_n(&state->flags[peer->rank].value, mine, __ATOMIC_RELEASE);
    for (int rank = 0; rank < peer->size; rank++)
        for (int polls = 0; __atomic_load_n(&state->flags[rank].value, __ATOMIC_ACQUIRE) < mine;) {
            relax_core();
            if (++polls % state->patience == 0)
                sched_yield();
        }
    return 0;
}

/* Return buffer 0 or 1 of a rank. */
static float *buffer_of(struct peer *peer, int rank, int which)
{
    struct bound_state *state = of(peer);
    return (float *)(state->memory + ((size_t)rank * 2 + (size_t)which) * state->capacity);
}

/* Set the range of this rank in n elements, in whole cache lines. */
static void own_lines(const struct peer *peer, size_t n, struct bound_reduction *reduction)
{
    size_t size = (size_t)peer->size, rank = (size_t)peer->rank;
    size_t lines = (n + BOUND_VECTOR - 1) / BOUND_VECTOR,
           each = (lines + size - 1) / size * BOUND_VECTOR;
    reduction->lo = rank * each < n ? rank * each : n;
    reduction->hi = reduction->lo + each < n ? reduction->lo + each : n;
}

/* Fill a list with buffer `which` of each rank, from element `offset` on. */
static void add_all(struct peer *peer, float **list, int which, size_t offset)
{
    for (int rank = 0; rank < peer->size; rank++)
        list[rank] = buffer_of(peer, rank, which) + offset;
}

/* Add a part with one source and one destination of n elements to the call that is prepared. */
static void add_copy(struct bound_state *state, const float *from, float *to, size_t n)
{
    struct bound_reduction *part = &state->part[state->parts++];
    part->sources = part->destinations = 1;
    part->source[0] = from;
    part->destination[0] = to;
    part->lo = 0;
    part->hi = n;
}

/* Plan a call that only moves shards. This rank reads what it gets, or writes its shard to those
 * who get it if `pushes`. */
static void plan_shards(struct peer *peer, const struct peer_call *call, bool pushes)
{
    enum twill_compare_collective what = call->collective;
    bool rooted = what == TWILL_COMPARE_GATHER || what == TWILL_COMPARE_SCATTER;
    size_t n = call->count, mine = (size_t)peer->rank * n;
    size_t from = what == TWILL_COMPARE_SCATTER || what == TWILL_COMPARE_ALLTOALL ? mine : 0;
    for (int rank = 0; rank < peer->size; rank++) {
        size_t at = (size_t)rank * n;
        bool skips =
            what == TWILL_COMPARE_GATHER ? (pushes ? rank : peer->rank) != 0 : rooted && rank != 0;
        if (skips)
            continue;
        if (pushes)
            add_copy(of(peer), call->src, buffer_of(peer, rank, 1) + mine, n);
        else
            add_copy(of(peer), buffer_of(peer, rank, 0) + from,
                     call->dst + (what == TWILL_COMPARE_SCATTER ? 0 : at), n);
    }
}

/* Plan a call that reduces, or a broadcast. */
static void plan_reduction(struct peer *peer, const struct peer_call *call)
{
    struct bound_state *state = of(peer);
    struct bound_reduction *part = &state->part[state->parts++];
    enum twill_compare_collective what = call->collective;
    int result = call->src == call->dst ? 0 : 1, first = what == TWILL_COMPARE_BROADCAST;
    bool scatters = what == TWILL_COMPARE_REDUCE_SCATTER;
    part->sources = first ? 1 : peer->size;
    add_all(peer, (float **)part->source, 0, scatters ? (size_t)peer->rank * call->count : 0);
    part->destinations = what == TWILL_COMPARE_REDUCE ? 1 : peer->size - first;
    for (int rank = 0; rank < part->destinations; rank++)
        part->destination[rank] = buffer_of(peer, rank + first, result);
    own_lines(peer, call->count, part);
    if (scatters || state->copies) {
        bool gets = first ? peer->rank != 0 : what != TWILL_COMPARE_REDUCE || peer->rank == 0;
        part->destinations = 1;
        part->destination[0] = call->dst;
        part->lo = 0;
        part->hi = gets ? call->count : 0;
    }
}

/* Plan this rank's part of a call, unless that is a barrier. It has streaming stores with the
 * argument "stream" if its first store is aligned to 64 bytes. Returns 0. */
static int prepare(struct peer *peer, const struct peer_call *call)
{
    struct bound_state *state = of(peer);
    state->parts = 0;
    switch (call->collective) {
    case TWILL_COMPARE_BARRIER:
        return 0;
    case TWILL_COMPARE_ALLGATHER:
    case TWILL_COMPARE_GATHER:
        plan_shards(peer, call, !state->copies);
        break;
    case TWILL_COMPARE_SCATTER:
    case TWILL_COMPARE_ALLTOALL:
        plan_shards(peer, call, false);
        break;
    default:
        plan_reduction(peer, call);
    }
    for (int i = 0; i < state->parts; i++) {
        struct bound_reduction *part = &state->part[i];
        part->stream = peer->arguments[0] != NULL && !state->copies &&
                       ((uintptr_t)(part->destination[0] + part->lo)) % 64 == 0;
    }
    return 0;
}

/* Return whether this bound has a collective. In place, a rank would read what others have summed,
 * so the one-way copy has no such allreduce, and a barrier copies nothing. */
static int supports(struct peer *peer, enum twill_compare_collective collective)
{
    bool copied = collective != TWILL_COMPARE_ALLREDUCE && collective != TWILL_COMPARE_BARRIER;
    return !twill_compare_is_self(collective) && (copied || !of(peer)->copies);
}

/* Make a barrier, this rank's parts of the call that prepare() got, and a barrier. Returns 0. */
static int run(struct peer *peer, const struct peer_call *call)
{
    struct bound_state *state = of(peer);
    barrier(peer);
    if (call->collective == TWILL_COMPARE_BARRIER)
        return 0;
    for (int i = 0; i < state->parts; i++)
        state->run(&state->part[i]);
    return barrier(peer);
}

/* Return this rank's buffer `which`, or NULL if it is shorter than `bytes`. */
static void *alloc_buffer(struct peer *peer, int which, size_t bytes)
{
    return bytes <= of(peer)->capacity ? buffer_of(peer, peer->rank, which) : NULL;
}

/* Free the pages of a buffer of this rank, in all ranks. It stays mapped, and is zero when it is
 * used again. */
static void free_buffer(struct peer *peer, int which, void *memory)
{
    (void)which;
    madvise(memory, of(peer)->capacity, MADV_REMOVE); /* frees the pages */
}

/* Run the program of twill-compare that measures the least time in which the cores and memory of
 * one host can do a call. Returns an exit status. */
int main(int argc, char **argv)
{
    static const struct peer_program program = {.begin = begin,
                                                .end = end,
                                                .run = run,
                                                .barrier = barrier,
                                                .prepare = prepare,
                                                .alloc_buffer = alloc_buffer,
                                                .free_buffer = free_buffer,
                                                .supports = supports};
    return peer_main(argc, argv, &program);
}

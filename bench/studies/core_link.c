/* SPDX-License-Identifier: Apache-2.0 */
/* core-link [KIB...], started by "twillrun -n 2 --bind core": an allreduce in place of private
 * memory, beside short loops that move no more lines between the two cores than they must.
 *
 * Two processes cannot read each other's private memory. So each byte that a rank lacks is stored
 * in a line of shared memory by the other rank, and that line enters this rank's core. For a
 * message of n lines, n lines at least enter each core, and n leave it, whatever the algorithm:
 *
 *   lines    Each rank writes n lines, and then both read those of the other. This is only a part
 *            of any allreduce, so no allreduce is faster.
 *   halves   n/2 lines enter with contributions to the half that this rank sums, and n/2 with the
 *            sums of the other half. Sums are stored where the contributions were read.
 *   whole    n lines enter with all contributions of the other rank. Each rank sums everything.
 *
 * The loops have segments in a ring of slots, and one counter for each kind of event. They check
 * nothing, choose nothing and never sleep. The loop of a size is the one with the least median over
 * both ways and several lengths of segments.
 *
 * In each round all take turns, so that changes of the machine affect them alike. "fresh": a rank
 * writes its data before each call and reads them after it. "again": calls follow each other. */
#include <twill.h>

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define LINK_TARGETS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LINK_TARGETS
#endif

/* Sizes are numbers of floats. A line has LINE_FLOATS. Segments have up to LONGEST for each rank.
 */
enum {
    LINE_FLOATS = 16,
    AHEAD = 1024,
    LINK_SLOTS = 8,
    LONGEST = 16384,
    SHORTEST = 2048,
    ROUNDS = 31,
    MOST = 1 << 24
};
enum { READY, ADDED, DONE, BEGUN, COUNTERS };
enum { FRESH, LOOPED, TIMINGS, CALLS_BEFORE = 2, REPEATS = 4 };
enum { SEGMENT_LENGTHS = 4 };
/* Contenders. Those of both ways have a number for each length of segments. */
enum {
    TWILL,
    LINES,
    HALVES,
    WHOLE = HALVES + SEGMENT_LENGTHS,
    CONTENDERS = WHOLE + SEGMENT_LENGTHS
};
_Static_assert(SHORTEST << (SEGMENT_LENGTHS - 1) == LONGEST, "each length is twice the one before");

/* The memory of both ranks. A counter is the number of segments of which a rank has done a part. */
struct both {
    struct {
        _Alignas(128) _Atomic uint64_t value;
    } counter[2][COUNTERS];
    struct {
        _Alignas(128) double seconds;
    } took[2];
    _Alignas(128) double begin;
    _Alignas(4096) float slot[2][LINK_SLOTS][LONGEST];
    float lines[2][MOST]; /* for LINES */
};

/* This rank, with the number of segments of all calls before this one. */
struct link {
    twill_comm *comm;
    struct both *both;
    int me;
    uint64_t before, begun;
    float *data, sum;
};

typedef float link_line __attribute__((vector_size(64), aligned(4), may_alias));

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Copy n floats, a multiple of four lines, and ask for lines of the source ahead. */
LINK_TARGETS static void copy(float *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i += 4 * LINE_FLOATS) {
        const link_line *in = (const link_line *)(from + i);
        link_line *out = (link_line *)(to + i);
        for (size_t k = i + AHEAD; k < i + AHEAD + 4 * LINE_FLOATS && k < n; k += LINE_FLOATS)
            __builtin_prefetch(from + k, 0, 2);
        link_line a = in[0], b = in[1], c = in[2], d = in[3];
        out[0] = a, out[1] = b, out[2] = c, out[3] = d;
    }
}

/* Add n floats of `in`, a multiple of four lines, to `own`, and store the sums in `in`, too, if
 * `returns`. Ask for lines of `in` ahead. */
LINK_TARGETS static void add(float *own, float *in, size_t n, bool returns)
{
    for (size_t i = 0; i < n; i += 4 * LINE_FLOATS) {
        link_line *left = (link_line *)(own + i), *right = (link_line *)(in + i);
        for (size_t k = i + AHEAD; k < i + AHEAD + 4 * LINE_FLOATS && k < n; k += LINE_FLOATS)
            __builtin_prefetch(in + k, 0, 2);
        link_line a = left[0] + right[0], b = left[1] + right[1], c = left[2] + right[2],
                  d = left[3] + right[3];
        left[0] = a, left[1] = b, left[2] = c, left[3] = d;
        if (returns)
            right[0] = a, right[1] = b, right[2] = c, right[3] = d;
    }
}

static void raise_counter(struct link *link, int which, uint64_t to)
{
    atomic_store_explicit(&link->both->counter[link->me][which].value, to, memory_order_release);
}

/* Wait until the other rank's counter is at least `least`. If that rank ends, twillrun ends this.
 */
static void await_counter(struct link *link, int which, uint64_t least)
{
    _Atomic uint64_t *value = &link->both->counter[1 - link->me][which].value;
    while (atomic_load_explicit(value, memory_order_acquire) < least)
        ;
}

/* Return this rank's, or the other one's, slot of segment `at`. */
static float *slot_of(struct link *link, bool mine, uint64_t at)
{
    return link->both->slot[mine ? link->me : 1 - link->me][at % LINK_SLOTS];
}

/* Sum n floats of both ranks: each rank its half, by segments of `each` floats. */
static void run_halves(struct link *link, size_t n, size_t each)
{
    float *own = link->data + (size_t)link->me * (n / 2);
    float *other = link->data + (size_t)(1 - link->me) * (n / 2);
    const size_t segments = n / 2 / each;
    for (size_t k = 0; k < segments + 2; k++) {
        const uint64_t at = link->before + k;
        if (k < segments) {
            memcpy(slot_of(link, true, at), other + k * each, each * sizeof(float));
            raise_counter(link, READY, at + 1);
        }
        if (k >= 1 && k <= segments) {
            await_counter(link, READY, at);
            add(own + (k - 1) * each, slot_of(link, false, at - 1), each, true);
            raise_counter(link, ADDED, at);
        }
        if (k >= 2) {
            await_counter(link, ADDED, at - 1);
            copy(other + (k - 2) * each, slot_of(link, true, at - 2), each);
        }
    }
    link->before += segments;
    raise_counter(link, DONE, link->before);
}

/* Sum n floats of both ranks: each rank all of them, by segments of `each` floats. */
static void run_whole(struct link *link, size_t n, size_t each)
{
    const size_t segments = n / each;
    for (size_t k = 0; k < segments + 1; k++) {
        const uint64_t at = link->before + k;
        if (k < segments) {
            if (at >= LINK_SLOTS)
                await_counter(link, DONE, at - LINK_SLOTS + 1);
            memcpy(slot_of(link, true, at), link->data + k * each, each * sizeof(float));
            raise_counter(link, READY, at + 1);
        }
        if (k >= 1) {
            await_counter(link, READY, at);
            add(link->data + (k - 1) * each, slot_of(link, false, at - 1), each, false);
            raise_counter(link, DONE, at);
        }
    }
    link->before += segments;
    raise_counter(link, ADDED, link->before);
}

/* Read one float of each of n floats' lines that the other rank has written, and ask ahead. */
static void read_lines(struct link *link, size_t n)
{
    const float *in = link->both->lines[1 - link->me];
    float sum = 0;
    for (size_t i = 0; i < n; i += LINE_FLOATS) {
        if (i + AHEAD < n)
            __builtin_prefetch(in + i + AHEAD, 0, 2);
        sum += in[i];
    }
    *(volatile float *)&link->sum = sum;
}

/* Do a call of n floats by contender c. Exits if twill fails. */
static void run(struct link *link, int c, size_t n)
{
    size_t each = (size_t)SHORTEST << (c - HALVES) % SEGMENT_LENGTHS;
    each = each < n / 2 ? each : n / 2;
    if (c == LINES) {
        read_lines(link, n);
    } else if (c >= WHOLE) {
        run_whole(link, n, each);
    } else if (c >= HALVES) {
        run_halves(link, n, each);
    } else if (twill_allreduce(link->comm, link->data, link->data, n, TWILL_F32, TWILL_SUM) !=
               TWILL_OK) {
        fprintf(stderr, "core-link: %s\n", twill_comm_message(link->comm));
        exit(1);
    }
}

/* Exit unless the data are the sums of what measure() wrote. */
static void check(const struct link *link, int c, size_t n, int round)
{
    for (size_t i = 0; i < n; i++)
        if (link->data[i] != (float)((i + (size_t)round) % 1000 * 2 + 1)) {
            fprintf(stderr, "core-link: element %zu of contender %d is %g\n", i, c, link->data[i]);
            exit(1);
        }
}

/* Wait for the other rank, and return a time shortly afterwards that is the same on both ranks. */
static double begin_together(struct link *link)
{
    twill_barrier(link->comm);
    if (link->me == 0) {
        link->both->begin = now() + 1e-6;
        raise_counter(link, BEGUN, ++link->begun);
    } else {
        await_counter(link, BEGUN, ++link->begun);
    }
    double begin = link->both->begin;
    while (now() < begin)
        ;
    return begin;
}

/* Write the data of this rank. Zeros stay zeros when they are summed again and again. */
static void write_data(struct link *link, int c, size_t n, int timing, int round)
{
    float *to = c == LINES ? link->both->lines[link->me] : link->data;
    for (size_t i = 0; i < n; i++)
        to[i] = timing == LOOPED ? 0 : (float)((i + (size_t)round) % 1000 + (size_t)link->me);
}

/* Return the seconds of a call, on the slower rank, after CALLS_BEFORE others. Lines are in the
 * other core only once after they were written, so LINES has no calls that follow each other. */
static double measure(struct link *link, int c, size_t n, int timing, int round)
{
    int calls = timing == LOOPED && c != LINES ? REPEATS : 1;
    for (int turn = 0; turn <= CALLS_BEFORE; turn++) {
        write_data(link, c, n, timing, round);
        double begin = begin_together(link);
        for (int i = 0; i < calls; i++)
            run(link, c, n);
        link->both->took[link->me].seconds = (now() - begin) / calls;
        twill_barrier(link->comm);
        if (timing == FRESH && c != LINES)
            check(link, c, n, round);
    }
    double one = link->both->took[0].seconds, other = link->both->took[1].seconds;
    return one > other ? one : other;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double times[ROUNDS])
{
    qsort(times, ROUNDS, sizeof(*times), compare);
    return times[ROUNDS / 2];
}

/* Measure all contenders for n floats, and print the line of a timing. */
static void compare_size(struct link *link, size_t n, int timing)
{
    static const char *const timings[] = {"fresh", "again"};
    static double times[CONTENDERS][ROUNDS];
    double of[CONTENDERS];
    int best = HALVES;
    for (int r = 0; r < ROUNDS; r++)
        for (int c = 0; c < CONTENDERS; c++)
            times[c][r] = measure(link, c, n, timing, r);
    for (int c = 0; c < CONTENDERS; c++) {
        of[c] = median(times[c]);
        best = c >= HALVES && of[c] < of[best] ? c : best;
    }
    if (link->me == 0)
        printf("%s %7zu %9zu %9.2f %9.2f %9.2f %11.2f   %s, %d KiB\n", timings[timing], n / 256,
               n / LINE_FLOATS, of[LINES] * 1e6, of[best] * 1e6, of[TWILL] * 1e6,
               of[TWILL] / of[best], best < WHOLE ? "halves" : "whole",
               (SHORTEST << (best - HALVES) % SEGMENT_LENGTHS) / 256);
}

/* Map memory of both ranks, which rank 0 makes. Returns it, or NULL. */
static struct both *map_both(twill_comm *comm)
{
    char path[64];
    int where[2] = {(int)getpid(), -1}, file = -1;
    if (twill_comm_rank(comm) == 0)
        where[1] = file = memfd_create("core-link", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, sizeof(struct both)) != 0)
        return NULL;
    if (twill_broadcast(comm, where, where, 2, TWILL_I32, 0) != TWILL_OK)
        return NULL;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", where[0], where[1]);
    if (file < 0)
        file = open(path, O_RDWR | O_CLOEXEC);
    void *memory = mmap(NULL, sizeof(struct both), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int main(int argc, char **argv)
{
    static const size_t usual[] = {64, 256, 1024, 4096, 16384};
    struct link link = {.before = 0};
    const int sizes = argc > 1 ? argc - 1 : (int)(sizeof(usual) / sizeof(*usual));
    if (twill_init(&link.comm) != TWILL_OK)
        return 1;
    link.me = twill_comm_rank(link.comm);
    link.both = twill_comm_size(link.comm) == 2 ? map_both(link.comm) : NULL;
    if (link.both == NULL) {
        fprintf(stderr, "core-link needs two ranks of one node and memory for them\n");
        return 1;
    }
    if (link.me == 0)
        printf(
            "# allreduce in place of f32 in private memory, us, median of %d rounds\n"
            "# lines: those of 64 bytes that enter each core, as many as leave it, and the time\n"
            "# to read only them; loop: the fastest loop that moves only them\n"
            "#           KiB     lines     alone      loop     twill  twill/loop   loop\n",
            ROUNDS);
    for (int i = 0; i < sizes; i++) {
        size_t n = (argc > 1 ? (size_t)atoi(argv[i + 1]) : usual[i]) * 256;
        /* whole segments of both ranks */
        n = n / (2 * LONGEST) > 0 ? n / (2 * LONGEST) * (2 * LONGEST) : n / LONGEST * LONGEST;
        link.data = n > 0 && n <= MOST ? malloc(n * sizeof(float)) : NULL;
        if (link.data == NULL) {
            fprintf(stderr, "core-link: a size must be from 64 to 65536, and have memory\n");
            return 2;
        }
        for (int timing = FRESH; timing < TIMINGS; timing++)
            compare_size(&link, n, timing);
        free(link.data);
    }
    twill_finalize(link.comm);
    return 0;
}

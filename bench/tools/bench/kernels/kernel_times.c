/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench kernels: a kernel, its scalar twin and a triad take turns, so that all three see the
 * same machine; medians count. */
#include "bench/tools/bench/kernels/kernel_times.h"
#include "bench/common/json_file.h"
#include "bench/common/tool_calls.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Least time between two looks at the clock. */
#define TURN_SECONDS 1e-4
/* No more turns after this, unless there were too few. */
#define MOST_TURN_SECONDS 1.0
#define LEAST_TURNS       5
#define LEVELS            3

/* STREAM's triad (McCalpin 1995), for the widest registers: the bandwidth that a core can have. */
#define KERNEL_TRIAD(name, for_cpu)                                                                \
    for_cpu static void name(float *restrict a, const float *restrict b, const float *restrict c,  \
                             size_t count)                                                         \
    {                                                                                              \
        for (size_t i = 0; i < count; i++)                                                         \
            a[i] = b[i] + 0.5f * c[i];                                                             \
    }
KERNEL_TRIAD(triad_base, )
#if defined(__x86_64__)
KERNEL_TRIAD(triad_avx2, __attribute__((target("avx2"))))
#ifdef __clang__ /* has no such attribute */
KERNEL_TRIAD(triad_avx512f, __attribute__((target("avx512f"))))
#else
KERNEL_TRIAD(triad_avx512f, __attribute__((target("avx512f,prefer-vector-width=512"))))
#endif
#endif

struct kernel_run {
    const struct twill_bench_options *options;
    const struct twill_kernels *kernels, *scalar;
    size_t cache[LEVELS], bytes[LEVELS]; /* of L1d, L2, L3; working sets */
    unsigned char *memory;               /* of the kernels */
    float *triad;                        /* of the triad */
    size_t allocated;                    /* bytes of each */
    double *samples[3];
    struct twill_json_file json;   /* -J */
    struct json_object *json_rows; /* NULL without */
    size_t rows, different;
};

/* --- output ----------------------------------------------------------------------------------- */

static void print_head(const struct kernel_run *run)
{
    const size_t *cache = run->cache;
    printf("# twill-bench version %s: kernels of %s, one core; L1 %zu KiB, L2 %zu KiB, L3 %zu KiB\n"
           "# GB/s: bytes loaded and stored. Ratios of time, medians of turns: scalar and triad (a "
           "= b + s c) over the kernel.\n#\n",
           twill_version(), run->kernels->isa, cache[0] >> 10, cache[1] >> 10, cache[2] >> 10);
    printf("# %-22s %-7s %10s %10s %9s %9s %8s %8s %6s\n", "kernel", "level", "bytes", "elements",
           "ns/elem", "GB/s", "/scalar", "/triad", "equal");
}

static bool open_json(struct kernel_run *run, const char *path)
{
    static const char *const names[] = {"l1_bytes", "l2_bytes", "l3_bytes"};
    if (!twill_json_file_create(&run->json, path))
        return false;
    twill_json_text(run->json.root, "isa", run->kernels->isa);
    for (size_t i = 0; i < LEVELS; i++)
        twill_json_count(run->json.root, names[i], run->cache[i]);
    run->json_rows = json_object_new_array();
    json_object_object_add(run->json.root, "kernels", run->json_rows);
    return true;
}

/* A kernel at one size. */
struct kernel_row {
    const char *name, *level; /* level: "L2", "L3", "memory", or "" for a size that was asked for */
    size_t elements, bytes;   /* bytes: all arrays together */
    double seconds, scalar, triad; /* medians of a pass; triad: for as many bytes as a pass moves */
    double moved;                  /* bytes that a pass loads and stores */
    bool equal;                    /* the scalar kernel's result has the same bits */
};

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static void print_kernel(const struct kernel_run *run, const struct kernel_row *row)
{
    double nanoseconds = ratio(row->seconds * 1e9, (double)row->elements);
    double rate = ratio(row->moved * 1e-9, row->seconds);
    double scalar = ratio(row->scalar, row->seconds), triad = ratio(row->triad, row->seconds);
    printf("  %-22s %-7s %10zu %10zu %9.4f %9.2f %8.2f %8.2f %6s\n", row->name,
           row->level[0] ? row->level : "-", row->bytes, row->elements, nanoseconds, rate, scalar,
           triad, row->equal ? "yes" : "NO");
    if (run->json_rows == NULL)
        return;
    struct json_object *one = json_object_new_object();
    twill_json_text(one, "kernel", row->name);
    twill_json_text(one, "level", row->level);
    twill_json_count(one, "bytes", row->bytes);
    twill_json_count(one, "elements", row->elements);
    twill_json_real(one, "ns_per_element", nanoseconds);
    twill_json_real(one, "gb_per_second", rate);
    twill_json_real(one, "scalar_ratio", scalar);
    twill_json_real(one, "triad_ratio", triad);
    json_object_object_add(one, "equal", json_object_new_boolean(row->equal));
    json_object_array_add(run->json_rows, one);
}

/* --- turns ------------------------------------------------------------------------------------ */

static void run_triad(const struct kernel_run *run, size_t bytes)
{
    size_t count = bytes / (3 * sizeof(float));
    float *a = run->triad, *b = a + count, *c = b + count;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        triad_avx512f(a, b, c, count);
    else if (__builtin_cpu_supports("avx2"))
        triad_avx2(a, b, c, count);
    else
#endif
        triad_base(a, b, c, count);
    __asm__ volatile("" : : "r"(a) : "memory");
}

/* What takes turns. */
struct contender {
    const struct kernel_run *run;
    const struct twill_bench_kernel_case *one;
    const struct twill_kernels *kernels; /* NULL: the triad */
    const struct twill_bench_kernel_arrays *arrays;
    size_t count, bytes;
    size_t passes; /* between two looks at the clock */
};

static void pass(const struct contender *c)
{
    if (c->kernels)
        twill_bench_kernel_run(c->one, c->kernels, c->arrays, c->count);
    else
        run_triad(c->run, c->bytes);
}

/* Return the seconds that this thread has run: those of others on its core do not count. */
static double seconds_run(void)
{
    struct timespec run;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &run);
    return (double)run.tv_sec + (double)run.tv_nsec * 1e-9;
}

/* Return the seconds of a pass. Where several fit in a turn, one before it fills the caches. */
static double take_turn(const struct contender *c)
{
    if (c->passes > 1)
        pass(c);
    double start = seconds_run();
    for (size_t i = 0; i < c->passes; i++)
        pass(c);
    return (seconds_run() - start) / (double)c->passes;
}

/* Set how many passes fill a turn, from the second one's time. */
static void set_passes(struct contender *c)
{
    c->passes = 1;
    pass(c);
    double seconds = take_turn(c);
    c->passes = seconds >= TURN_SECONDS ? 1 : 1 + (size_t)(TURN_SECONDS / (seconds + 1e-9));
}

static void time_contenders(struct kernel_run *run, const struct contender *contenders,
                            double *medians)
{
    size_t turn = 0;
    double start = twill_bench_now();
    for (; turn < run->options->repeats.iterations; turn++) {
        if (turn >= LEAST_TURNS && twill_bench_now() - start > MOST_TURN_SECONDS)
            break;
        for (size_t i = 0; i < 3; i++)
            run->samples[i][turn] = take_turn(&contenders[i]);
    }
    for (size_t i = 0; i < 3; i++)
        medians[i] = twill_bench_statistics(run->samples[i], turn).median;
}

/* Return a hash of what a pass of a table leaves in the arrays (FNV-1a). */
static uint64_t hash_of_pass(const struct kernel_run *run,
                             const struct twill_bench_kernel_case *one,
                             const struct twill_kernels *kernels, size_t count)
{
    struct twill_bench_kernel_arrays arrays;
    uint64_t hash = 0xcbf29ce484222325u;
    memset(run->memory, 0, run->allocated);
    if (!twill_bench_kernel_fill(one, &arrays, run->memory, run->allocated, count))
        return 0;
    twill_bench_kernel_run(one, kernels, &arrays, count);
    for (size_t i = 0; i < run->allocated; i++)
        hash = (hash ^ run->memory[i]) * 0x100000001b3u;
    return hash;
}

static twill_status time_kernel(struct kernel_run *run, const struct twill_bench_kernel_case *one,
                                const char *level, size_t bytes)
{
    struct twill_bench_kernel_arrays arrays;
    char name[48];
    size_t count = (size_t)((double)bytes / twill_bench_kernel_footprint(one)) & ~(size_t)1023;
    size_t few = twill_min(count, 4096 + 1024);
    double medians[3];
    twill_bench_kernel_name(one, name, sizeof(name));
    if (count == 0 || !twill_bench_kernel_fill(one, &arrays, run->memory, run->allocated, count))
        return TWILL_ERR_ARGUMENT;
    struct contender contenders[] = {{run, one, run->kernels, &arrays, count, bytes, 1},
                                     {run, one, run->scalar, &arrays, count, bytes, 1},
                                     {run, one, NULL, &arrays, count, bytes, 1}};
    for (size_t i = 0; i < 3; i++)
        set_passes(&contenders[i]);
    time_contenders(run, contenders, medians);
    struct kernel_row row = {.name = name,
                             .level = level,
                             .elements = count,
                             .bytes = bytes,
                             .seconds = medians[0],
                             .scalar = medians[1],
                             .moved = twill_bench_kernel_moved(one) * (double)count};
    row.triad = medians[2] * row.moved / (double)bytes;
    size_t all = run->allocated;
    run->allocated = twill_min(all, (size_t)1 << 20); /* few elements need no more */
    row.equal =
        hash_of_pass(run, one, run->kernels, few) == hash_of_pass(run, one, run->scalar, few);
    run->allocated = all;
    run->different += !row.equal;
    run->rows++;
    print_kernel(run, &row);
    return TWILL_OK;
}

static twill_status time_sizes(struct kernel_run *run, const struct twill_bench_kernel_case *one)
{
    static const char *const levels[LEVELS] = {"L2", "L3", "memory"};
    const struct twill_bench_options *options = run->options;
    twill_status status = TWILL_OK;
    if (!options->sizes.ranged) {
        for (size_t i = 0; i < LEVELS && status == TWILL_OK; i++)
            if (run->bytes[i] > 0)
                status = time_kernel(run, one, levels[i], run->bytes[i]);
        return status;
    }
    for (size_t bytes = options->sizes.min_bytes;
         bytes <= options->sizes.max_bytes && status == TWILL_OK;
         bytes =
             twill_bench_next_size(bytes, options->sizes.step_bytes, options->sizes.step_factor))
        status = time_kernel(run, one, "", bytes);
    return status;
}

/* Choose working sets: half of L2, eight times L2 if L3 holds it twice, twice L3. A level that is
 * not known is left out. */
static void choose_sizes(struct kernel_run *run)
{
    static const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE,
                                _SC_LEVEL3_CACHE_SIZE};
    for (size_t i = 0; i < LEVELS; i++) {
        long bytes = sysconf(names[i]);
        run->cache[i] = bytes > 0 ? (size_t)bytes : 0;
    }
    size_t l2 = run->cache[1] ? run->cache[1] : (size_t)1 << 20, l3 = run->cache[2];
    run->bytes[0] = l2 / 2;
    run->bytes[1] = twill_min(8 * l2, l3 / 2) > l2 ? twill_min(8 * l2, l3 / 2) : 0;
    run->bytes[2] = twill_max(2 * l3, (size_t)64 << 20);
}

static bool prepare(struct kernel_run *run)
{
    const struct twill_bench_options *options = run->options;
    size_t most = 0;
    choose_sizes(run);
    for (size_t i = 0; i < LEVELS; i++)
        most = twill_max(most, run->bytes[i]);
    if (options->sizes.ranged)
        most = options->sizes.max_bytes;
    run->allocated = twill_round_up(most + most / 64 + ((size_t)1 << 20), 4096);
    run->memory = aligned_alloc(4096, run->allocated);
    run->triad = aligned_alloc(4096, run->allocated);
    bool good = run->memory != NULL && run->triad != NULL;
    for (size_t i = 0; i < 3; i++) {
        run->samples[i] = calloc(options->repeats.iterations, sizeof(double));
        good &= run->samples[i] != NULL;
    }
    if (good)
        memset(run->triad, 0, run->allocated);
    return good;
}

static int time_all(struct kernel_run *run)
{
    const struct twill_bench_kernel_case *one;
    for (size_t i = 0; (one = twill_bench_kernel_case_at(i)) != NULL; i++) {
        char name[48];
        twill_bench_kernel_name(one, name, sizeof(name));
        if (strstr(name, run->options->kernels) == NULL)
            continue;
        if (time_sizes(run, one) != TWILL_OK) {
            fprintf(stderr, "twill-bench: a size is too small for a kernel: %s\n", name);
            return STATUS_USAGE;
        }
    }
    if (run->rows == 0) {
        fprintf(stderr, "twill-bench: no kernel has '%s' in its name\n", run->options->kernels);
        return STATUS_USAGE;
    }
    if (run->different > 0)
        fprintf(stderr, "twill-bench: results other than the scalar kernels': %zu\n",
                run->different);
    return run->different > 0 ? STATUS_FAILED : STATUS_GOOD;
}

int twill_bench_kernels(const struct twill_bench_options *options)
{
    struct kernel_run run = {.options = options, .scalar = twill_kernels_at(0)};
    int outcome = STATUS_FAILED;
    setvbuf(stdout, NULL, _IOLBF, 0);
    (void)twill_kernels_select(&run.kernels, NULL, NULL); /* the scalar ones run everywhere */
    if (!prepare(&run)) {
        fprintf(stderr, "twill-bench: no memory for two times %zu bytes\n", run.allocated);
    } else if (options->report.output == NULL || open_json(&run, options->report.output)) {
        print_head(&run);
        outcome = time_all(&run);
        if (run.json_rows != NULL && !twill_json_file_close(&run.json))
            outcome = STATUS_FAILED;
    }
    for (size_t i = 0; i < 3; i++)
        free(run.samples[i]);
    free(run.memory);
    free(run.triad);
    return outcome;
}

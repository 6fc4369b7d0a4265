/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench kernels runs a kernel, its scalar version and a triad by turns. Medians count. */
#include "bench/tools/bench/kernels/kernel_times.h"
#include "bench/common/json_file.h"
#include "bench/common/progress_line.h"
#include "bench/common/tool_calls.h"
#include "kernels/kernels.h"
#include "kernels/training/optimizer.h"
#include "kernels/training/quantize.h"
#include "lib/base/lists.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The arrays of a kernel, `used` of up to 16, each for `count` elements, in the memory of the run.
 * A local variable, set by fill_arrays(). */
struct kernel_arrays {
    unsigned char *array[16];
    unsigned used;
};

enum case_kind { REDUCE, UPDATE, NORMS, SQUARES, QUANTIZE, DEQUANTIZE, ADD_BLOCKS, NARROW, TOP };

/* One kernel to time, in a constant table. `sources` is the number of arrays that are summed or, in
 * an update, of gradients. */
struct kernel_case {
    enum case_kind kind;
    twill_type type; /* of sources, gradients or codes */
    unsigned sources;
    twill_optimizer_rule rule;
    bool narrow; /* parameters have the type of the gradient in addition to f32 */
    bool heavy;  /* SGD with momentum */
};

#define REDUCTIONS(NOUN)                                                                           \
    {.kind = REDUCE, .type = TWILL_##NOUN, .sources = 2},                                          \
        {.kind = REDUCE, .type = TWILL_##NOUN, .sources = 4},                                      \
        {.kind = REDUCE, .type = TWILL_##NOUN, .sources = 8},
#define UPDATES(NOUN)                                                                              \
    {.kind = UPDATE, .rule = TWILL_OPTIMIZER_##NOUN, .type = TWILL_F32, .sources = 1},             \
        {.kind = UPDATE, .rule = TWILL_OPTIMIZER_##NOUN, .type = TWILL_F32, .sources = 2},         \
        {.kind = UPDATE, .rule = TWILL_OPTIMIZER_##NOUN, .type = TWILL_F32, .sources = 8},         \
        {.kind = UPDATE,                                                                           \
         .rule = TWILL_OPTIMIZER_##NOUN,                                                           \
         .type = TWILL_BF16,                                                                       \
         .sources = 2,                                                                             \
         .narrow = true},
#define CODES(NOUN)                                                                                \
    {.kind = QUANTIZE, .type = TWILL_##NOUN, .sources = 1},                                        \
        {.kind = DEQUANTIZE, .type = TWILL_##NOUN, .sources = 1},                                  \
        {.kind = DEQUANTIZE, .type = TWILL_##NOUN, .sources = 4},                                  \
        {.kind = ADD_BLOCKS, .type = TWILL_##NOUN, .sources = 2},

static const struct kernel_case cases[] = {
    REDUCTIONS(F32) REDUCTIONS(F64) REDUCTIONS(F16) REDUCTIONS(BF16) REDUCTIONS(F8E4M3)
        REDUCTIONS(F8E5M2) REDUCTIONS(I8) REDUCTIONS(I16) REDUCTIONS(I32) REDUCTIONS(I64)
            UPDATES(SGD){.kind = UPDATE,
                         .rule = TWILL_OPTIMIZER_SGD,
                         .type = TWILL_F32,
                         .sources = 1,
                         .heavy = true},
    UPDATES(ADAGRAD) UPDATES(ADAM) UPDATES(ADAMW) UPDATES(LARS)
        UPDATES(LAMB){.kind = NORMS, .rule = TWILL_OPTIMIZER_LARS, .type = TWILL_F32, .sources = 2},
    {.kind = NORMS, .rule = TWILL_OPTIMIZER_LAMB, .type = TWILL_F32, .sources = 2},
    {.kind = SQUARES, .type = TWILL_F32, .sources = 1},
    {.kind = SQUARES, .type = TWILL_BF16, .sources = 1},
    CODES(I8) CODES(F8E4M3) CODES(F8E5M2){.kind = NARROW, .type = TWILL_F16, .sources = 1},
    {.kind = NARROW, .type = TWILL_BF16, .sources = 1},
    {.kind = NARROW, .type = TWILL_F8E4M3, .sources = 1},
    {.kind = TOP, .type = TWILL_F32, .sources = 1},
};

#define BLOCK(code) ((struct twill_block_format){code, TWILL_BLOCK_DEFAULT})

/* Return the hyperparameters of a case, with small steps, so that numbers hardly change. */
static twill_optimizer optimizer_of(const struct kernel_case *one)
{
    twill_optimizer optimizer;
    twill_optimizer_defaults(&optimizer, one->rule);
    optimizer.rate = 1e-6;
    optimizer.momentum = one->heavy || one->rule == TWILL_OPTIMIZER_LARS ? 0.9 : 0;
    return optimizer;
}

/* Write the name of a case, such as "sum f32 x2" for two sources, into a text of that size. */
static void name_case(const struct kernel_case *one, char *name, size_t bytes)
{
#define KERNEL_TYPE_NAME(NOUN, stem, ...) [TWILL_##NOUN] = #stem,
    static const char *const types[] = {TWILL_TYPES(KERNEL_TYPE_NAME, )};
    static const char *const kinds[] = {[REDUCE] = "sum",
                                        [SQUARES] = "squares",
                                        [QUANTIZE] = "quantize",
                                        [DEQUANTIZE] = "dequantize",
                                        [ADD_BLOCKS] = "add-blocks",
                                        [NARROW] = "narrow",
                                        [TOP] = "top-1%"};
    char stem[32];
    if (one->kind == UPDATE || one->kind == NORMS)
        snprintf(stem, sizeof(stem), "%s%s%s", twill_optimizer_name(one->rule),
                 one->heavy ? "-momentum" : "", one->kind == NORMS ? "-norms" : "");
    else
        snprintf(stem, sizeof(stem), "%s", kinds[one->kind]);
    snprintf(name, bytes, "%s %s x%u", stem, types[one->type], one->sources);
}

/* An array that a kernel uses in a case, an entry of a local array that arrays_of() fills. `bytes`
 * is the size of an element, a mean where only some are stored. `moves` is how many times the
 * kernel loads or stores each element, 2 if it does both. */
struct array_use {
    double bytes;
    unsigned moves;
};

/* Append `count` arrays with elements of `bytes` bytes, each loaded or stored `moves` times, to the
 * `used` entries of `uses`. Returns the new number of entries. */
static unsigned add_arrays(struct array_use *uses, unsigned used, unsigned count, double bytes,
                           unsigned moves)
{
    for (unsigned i = 0; i < count; i++)
        uses[used++] = (struct array_use){bytes, moves};
    return used;
}

/* Store in `uses` what memory a kernel uses. Returns the number of arrays. */
static unsigned arrays_of(const struct kernel_case *one, struct array_use *uses)
{
    const twill_optimizer optimizer = optimizer_of(one);
    const double element = (double)twill_kernels_element(one->type, TWILL_SUM);
    const double block = (double)twill_block_bytes(BLOCK(one->type)) / TWILL_BLOCK_DEFAULT;
    const bool lamb = one->rule == TWILL_OPTIMIZER_LAMB, norms = one->kind == NORMS;
    unsigned used = 0;
    switch (one->kind) {
    case REDUCE:
        used = add_arrays(uses, used, one->sources, element, 1);
        return add_arrays(uses, used, 1, element, 1);
    case UPDATE:
    case NORMS: /* gradients, weights, states, parameters; in LAMB, only the norms read gradients */
        used = add_arrays(uses, used, one->sources, element, lamb && !norms ? 0 : 1);
        used = add_arrays(uses, used, 1, 4, norms ? 1 : 2);
        used = add_arrays(uses, used, twill_optimizer_states(&optimizer), 4,
                          norms ? 2 * lamb : 2 - lamb);
        return add_arrays(uses, used, one->narrow, element, 1);
    case SQUARES:
        return add_arrays(uses, used, 1, element, 1);
    case QUANTIZE: /* gradient, residual, blocks */
        used = add_arrays(uses, used, 1, 4, 1);
        used = add_arrays(uses, used, 1, 4, 2);
        return add_arrays(uses, used, 1, block, 1);
    case DEQUANTIZE:
        used = add_arrays(uses, used, one->sources, block, 1);
        return add_arrays(uses, used, 1, 4, 1);
    case ADD_BLOCKS:
        return add_arrays(uses, used, one->sources + 1, block, 1);
    case NARROW:
        used = add_arrays(uses, used, 1, 4, 1);
        used = add_arrays(uses, used, 1, 4, 2);
        return add_arrays(uses, used, 1, element, 1);
    default: /* TOP: gradient, residual (accumulated, then read four times), indices and values */
        used = add_arrays(uses, used, 1, 4, 1);
        used = add_arrays(uses, used, 1, 4, 6);
        return add_arrays(uses, used, 2, 0.04, 1);
    }
}

/* Return the bytes of memory that an element takes in all arrays. */
static double bytes_of_element(const struct kernel_case *one)
{
    struct array_use uses[16];
    double bytes = 0;
    for (unsigned i = arrays_of(one, uses); i-- > 0;)
        bytes += uses[i].bytes;
    return bytes;
}

/* Return the bytes that a pass loads and stores for an element. */
static double bytes_moved(const struct kernel_case *one)
{
    struct array_use uses[16];
    double bytes = 0;
    for (unsigned i = arrays_of(one, uses); i-- > 0;)
        bytes += uses[i].bytes * uses[i].moves;
    return bytes;
}

/* Fill with numbers of a type, floats in 1 .. 2 (f32 in -1 .. 1) or small integers. */
static void fill_type(unsigned char *memory, twill_type type, size_t count)
{
    uint32_t random = 1;
    for (size_t i = 0; i < count; i++) {
        random = random * 1664525u + 1013904223u;
        uint32_t high = random >> 24;
        float single = (float)(int32_t)random * 0x1p-31f;
        double number = 1 + (double)high / 256;
        uint16_t half = (uint16_t)((type == TWILL_F16 ? 0x3c00 : 0x3f80) | (high & 0x7f));
        uint8_t byte = (uint8_t)((type == TWILL_F8E4M3 ? 0x38 : 0x3c) | (high & 3));
        int64_t integer = (int64_t)(high & 7);
        switch (type) {
        case TWILL_F32:
            memcpy(memory + 4 * i, &single, 4);
            break;
        case TWILL_F64:
            memcpy(memory + 8 * i, &number, 8);
            break;
        case TWILL_F16:
        case TWILL_BF16:
            memcpy(memory + 2 * i, &half, 2);
            break;
        case TWILL_F8E4M3:
        case TWILL_F8E5M2:
            memory[i] = byte;
            break;
        default:
            memcpy(memory + i * twill_kernels_element(type, TWILL_SUM), &integer,
                   twill_kernels_element(type, TWILL_SUM));
        }
    }
}

/* Fill with quantized blocks of a code for `count` elements. */
static void fill_blocks(unsigned char *memory, twill_type code, size_t count)
{
    float values[TWILL_BLOCK_DEFAULT];
    size_t blocks = twill_block_count(BLOCK(code), count), bytes = twill_block_bytes(BLOCK(code));
    fill_type((unsigned char *)values, TWILL_F32, TWILL_BLOCK_DEFAULT);
    for (size_t i = 0; i < blocks; i++)
        twill_quantize(twill_kernels_at(0), BLOCK(code), memory + i * bytes, TWILL_F32, values,
                       NULL, 1, TWILL_BLOCK_DEFAULT, NULL);
}

/* Fill `count` second moments of Adam and LAMB, or sums of Adagrad, which are positive. */
static void fill_positive(unsigned char *memory, size_t count)
{
    const float value = 0.25f;
    for (size_t i = 0; i < count; i++)
        memcpy(memory + 4 * i, &value, sizeof(value));
}

/* Lay out the arrays of a case for `count` elements in `memory`, set *arrays to them and fill them.
 * Returns false if its `bytes` are too few. */
static bool fill_arrays(const struct kernel_case *one, struct kernel_arrays *arrays,
                        unsigned char *memory, size_t bytes, size_t count)
{
    struct array_use uses[16];
    size_t at = 0;
    arrays->used = arrays_of(one, uses);
    for (unsigned i = 0; i < arrays->used; i++) {
        size_t size = (size_t)((double)count * uses[i].bytes) + 2 * TWILL_BLOCK_MOST;
        arrays->array[i] = memory + at;
        at += twill_round_up(size, 4096) + 5 * TWILL_CACHE_LINE; /* not all in the same sets */
    }
    if (at > bytes)
        return false;
    bool blocks = one->kind == DEQUANTIZE || one->kind == ADD_BLOCKS;
    bool update = one->kind == UPDATE || one->kind == NORMS;
    bool f32 = one->kind == QUANTIZE || one->kind == NARROW;
    for (unsigned i = 0; i < arrays->used; i++) {
        if (blocks && i < one->sources)
            fill_blocks(arrays->array[i], one->type, count);
        else if (update && i > one->sources)
            fill_positive(arrays->array[i], one->narrow && i + 1 == arrays->used ? 0 : count);
        else if (uses[i].bytes >= 1 && !blocks)
            fill_type(arrays->array[i],
                      (update && i == one->sources) || f32 ? TWILL_F32 : one->type,
                      f32 && i == 2 ? 0 : count);
    }
    return true;
}

/* Make one pass of a case of the kind UPDATE or NORMS over `count` elements. It updates parameters
 * by the optimizer of the case, or computes the norms that such an update needs. */
static void run_optimizer(const struct kernel_case *one, const struct twill_kernels *kernels,
                          const struct kernel_arrays *arrays, size_t count)
{
    const twill_optimizer optimizer = optimizer_of(one);
    unsigned char *const *rest = arrays->array + one->sources;
    float *weights = (float *)rest[0];
    unsigned states = twill_optimizer_states(&optimizer);
    struct twill_optimizer_step step = {.optimizer = &optimizer,
                                        .step = 1000,
                                        .gradient_type = one->type,
                                        .sources = one->sources,
                                        .gradient = (const void *const *)arrays->array,
                                        .scale = 1.0f / (float)one->sources,
                                        .parameter_type = one->narrow ? one->type : TWILL_F32,
                                        .parameter = one->narrow ? rest[1 + states] : rest[0],
                                        .master = one->narrow ? weights : NULL,
                                        .trust = 1};
    for (unsigned i = 0; i < states; i++)
        step.state[i] = (float *)rest[1 + i];
    if (one->kind == NORMS)
        (void)twill_optimizer_norms(kernels, &step, count);
    else
        twill_optimizer_update(kernels, &step, count);
}

/* Make one pass of a kernel over `count` elements. */
static void run_case(const struct kernel_case *one, const struct twill_kernels *kernels,
                     const struct kernel_arrays *arrays, size_t count)
{
    unsigned char *const *array = arrays->array;
    const void *const *sources = (const void *const *)array;
    const struct twill_block_format format = BLOCK(one->type);
    struct twill_sparse chosen = {0};
    switch (one->kind) {
    case REDUCE:
        twill_kernels_reduce_raw(kernels, one->type, TWILL_SUM, array[one->sources], sources,
                                 one->sources, count, 1, 0, NULL);
        return;
    case SQUARES:
        (void)twill_kernels_sum_of_squares(kernels, one->type, array[0], count, NULL);
        return;
    case QUANTIZE:
        twill_quantize(kernels, format, array[2], TWILL_F32, array[0], (float *)array[1], 1, count,
                       NULL);
        return;
    case DEQUANTIZE:
        twill_dequantize(kernels, format, TWILL_F32, array[one->sources], sources, one->sources, 1,
                         count, NULL);
        return;
    case ADD_BLOCKS:
        twill_quantized_add(kernels, format, array[one->sources], sources, one->sources,
                            count / format.elements, NULL);
        return;
    case NARROW:
        twill_narrow(kernels, one->type, array[2], TWILL_F32, array[0], (float *)array[1], 1, count,
                     NULL);
        return;
    case TOP:
        chosen = (struct twill_sparse){(uint32_t *)array[2], (float *)array[3]};
        twill_accumulate(kernels, (float *)array[1], TWILL_F32, array[0], 1, count, NULL);
        (void)twill_select_largest(kernels, (float *)array[1], count, count / 100, chosen, NULL);
        return;
    default:
        run_optimizer(one, kernels, arrays, count);
    }
}

/* Least time between two readings of the clock. */
#define TURN_SECONDS 1e-4
/* No more turns after this time, unless there were too few. */
#define MOST_TURN_SECONDS 1.0
#define LEAST_TURNS       5
#define LEVELS            3

/* The triad of STREAM (McCalpin 1995) for the widest registers, as the bandwidth of a core. */
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

/* The state of twill-bench kernels, on the stack of twill_bench_kernels(), which frees it. `rows`
 * counts the printed rows, and `different` those whose result is not that of the scalar kernel.
 * samples[] has the seconds of each turn, for the kernel, the scalar kernel and the triad. */
struct kernel_run {
    const struct twill_bench_options *options;
    const struct twill_kernels *kernels, *scalar;
    size_t cache[LEVELS], bytes[LEVELS]; /* of L1d, L2 and L3, and working sets */
    unsigned char *memory;               /* of the kernels */
    float *triad;                        /* of the triad */
    size_t allocated;                    /* bytes of each of these two */
    double *samples[3];
    struct twill_json_file json;   /* of -J */
    struct json_object *json_rows; /* NULL without -J */
    size_t rows, different;
    struct twill_bench_progress progress;
};

/* Print the instruction set, the sizes of the caches and the titles of the table. */
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

/* Create the file of -J and begin the JSON. Returns false after a message on failure. */
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

/* The results of a kernel at one size. */
struct kernel_row {
    const char *name, *level;      /* "L2", "L3", "memory", or "" for a requested size */
    size_t elements, bytes;        /* bytes of all arrays together */
    double seconds, scalar, triad; /* medians of a pass, that of the triad for as many bytes */
    double moved;                  /* bytes that a pass loads and stores */
    bool equal;                    /* the result of the scalar kernel has the same bits */
};

/* Return a / b, or 0 if b is not above 0. */
static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* Print a row and add it to the JSON, if there is one. */
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

/* Run the triad once, with three arrays of `bytes` together, in the widest registers. */
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

/* What is timed, which is a kernel, its scalar version or a triad. A pass of a kernel is over
 * `count` elements, and a pass of the triad over `bytes` bytes, those of its three arrays
 * together. */
struct contender {
    const struct kernel_run *run;
    const struct kernel_case *one;
    const struct twill_kernels *kernels; /* NULL for the triad */
    const struct kernel_arrays *arrays;
    size_t count, bytes;
    size_t passes; /* passes between two readings of the clock */
};

/* Make one pass of a kernel or the triad. */
static void pass(const struct contender *c)
{
    if (c->kernels)
        run_case(c->one, c->kernels, c->arrays, c->count);
    else
        run_triad(c->run, c->bytes);
}

/* Return the CPU time of this thread in seconds. */
static double seconds_run(void)
{
    struct timespec run;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &run);
    return (double)run.tv_sec + (double)run.tv_nsec * 1e-9;
}

/* Return the seconds of a pass. If several fit in a turn, a pass before them fills the caches. */
static double take_turn(const struct contender *c)
{
    if (c->passes > 1)
        pass(c);
    double start = seconds_run();
    for (size_t i = 0; i < c->passes; i++)
        pass(c);
    return (seconds_run() - start) / (double)c->passes;
}

/* Set how many passes fill a turn, from the time of the second one. */
static void set_passes(struct contender *c)
{
    c->passes = 1;
    pass(c);
    double seconds = take_turn(c);
    c->passes = seconds >= TURN_SECONDS ? 1 : 1 + (size_t)(TURN_SECONDS / (seconds + 1e-9));
}

/* Time all three by turns, and set the median seconds of a pass of each. There are as many turns as
 * -n says, but after LEAST_TURNS none begins later than MOST_TURN_SECONDS. */
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

/* Run a case once with these kernels on `count` elements in run->memory. Returns a hash (FNV-1a) of
 * that memory afterwards, or 0 if the arrays of the case do not fit into it. */
static uint64_t hash_of_pass(const struct kernel_run *run, const struct kernel_case *one,
                             const struct twill_kernels *kernels, size_t count)
{
    struct kernel_arrays arrays;
    uint64_t hash = 0xcbf29ce484222325u;
    memset(run->memory, 0, run->allocated);
    if (!fill_arrays(one, &arrays, run->memory, run->allocated, count))
        return 0;
    run_case(one, kernels, &arrays, count);
    for (size_t i = 0; i < run->allocated; i++)
        hash = (hash ^ run->memory[i]) * 0x100000001b3u;
    return hash;
}

/* Time, check and print a kernel at one size, the bytes of all its arrays together. Returns
 * TWILL_ERR_ARGUMENT if the size is too small for it. */
static twill_status time_kernel(struct kernel_run *run, const struct kernel_case *one,
                                const char *level, size_t bytes)
{
    struct kernel_arrays arrays;
    char name[48];
    size_t count = (size_t)((double)bytes / bytes_of_element(one)) & ~(size_t)1023;
    size_t few = twill_min(count, 4096 + 1024);
    double medians[3];
    name_case(one, name, sizeof(name));
    if (count == 0 || !fill_arrays(one, &arrays, run->memory, run->allocated, count))
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
                             .moved = bytes_moved(one) * (double)count};
    row.triad = medians[2] * row.moved / (double)bytes;
    size_t all = run->allocated;
    run->allocated = twill_min(all, (size_t)1 << 20); /* few elements need no more */
    row.equal =
        hash_of_pass(run, one, run->kernels, few) == hash_of_pass(run, one, run->scalar, few);
    run->allocated = all;
    run->different += !row.equal;
    run->rows++;
    twill_bench_progress_clear(&run->progress);
    print_kernel(run, &row);
    return TWILL_OK;
}

/* Time a kernel at the sizes of the command line or, without any, at those of the caches. Stops at
 * a failure and returns it. */
static twill_status time_sizes(struct kernel_run *run, const struct kernel_case *one)
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

/* Find the sizes of the caches and set run->bytes to working sets for L2, L3 and memory. The first
 * is half of L2. The second is eight times L2 or half of L3, if that is less. It is 0, and not
 * measured, if that is within L2. The third is twice L3, and at least 64 MiB. */
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

/* Choose sizes and allocate memory, which the caller frees. Returns false if out of memory. */
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

/* Time the kernels whose name has the requested text in it. Returns STATUS_USAGE after a message if
 * none has, or at a size that is too small, at which it stops. Returns STATUS_FAILED if results
 * differ from those of the scalar kernels. */
static int time_all(struct kernel_run *run)
{
    twill_bench_progress_begin(&run->progress, true);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        const struct kernel_case *one = &cases[i];
        char name[48];
        name_case(one, name, sizeof(name));
        if (strstr(name, run->options->kernels) == NULL)
            continue;
        twill_bench_progress_show(&run->progress, i, TWILL_ARRAY_LENGTH(cases), name);
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

/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that twill-bench times: what memory each needs, and one pass of it. */
#include "bench/tools/bench/kernels/kernel_times.h"
#include "kernels/kernels.h"
#include "kernels/training/optimizer.h"
#include "kernels/training/quantize.h"
#include "lib/base/lists.h"

#include <stdio.h>
#include <string.h>

enum case_kind { REDUCE, UPDATE, NORMS, SQUARES, QUANTIZE, DEQUANTIZE, ADD_BLOCKS, NARROW, TOP };

struct twill_bench_kernel_case {
    enum case_kind kind;
    twill_type type; /* of sources or gradients, of codes */
    unsigned sources;
    twill_optimizer_rule rule;
    bool narrow; /* parameters have the gradient's type beside f32 */
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

static const struct twill_bench_kernel_case cases[] = {
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

const struct twill_bench_kernel_case *twill_bench_kernel_case_at(size_t index)
{
    return index < TWILL_ARRAY_LENGTH(cases) ? &cases[index] : NULL;
}

/* The hyperparameters of a case: small steps, so that numbers stay what they are. */
static twill_optimizer optimizer_of(const struct twill_bench_kernel_case *one)
{
    twill_optimizer optimizer;
    twill_optimizer_defaults(&optimizer, one->rule);
    optimizer.rate = 1e-6;
    optimizer.momentum = one->heavy || one->rule == TWILL_OPTIMIZER_LARS ? 0.9 : 0;
    return optimizer;
}

void twill_bench_kernel_name(const struct twill_bench_kernel_case *one, char *name, size_t bytes)
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

/* The arrays of a case, in their order: bytes of an element, and how often it is moved. */
struct array_use {
    double bytes;
    unsigned moves;
};

static unsigned add_arrays(struct array_use *uses, unsigned used, unsigned count, double bytes,
                           unsigned moves)
{
    for (unsigned i = 0; i < count; i++)
        uses[used++] = (struct array_use){bytes, moves};
    return used;
}

static unsigned arrays_of(const struct twill_bench_kernel_case *one, struct array_use *uses)
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
    case NORMS: /* gradients, weights, states, parameters; LAMB's second pass reads no gradient */
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
    default: /* TOP: gradient, residual (accumulated, then seen four times), indices and values */
        used = add_arrays(uses, used, 1, 4, 1);
        used = add_arrays(uses, used, 1, 4, 6);
        return add_arrays(uses, used, 2, 0.04, 1);
    }
}

double twill_bench_kernel_footprint(const struct twill_bench_kernel_case *one)
{
    struct array_use uses[16];
    double bytes = 0;
    for (unsigned i = arrays_of(one, uses); i-- > 0;)
        bytes += uses[i].bytes;
    return bytes;
}

double twill_bench_kernel_moved(const struct twill_bench_kernel_case *one)
{
    struct array_use uses[16];
    double bytes = 0;
    for (unsigned i = arrays_of(one, uses); i-- > 0;)
        bytes += uses[i].bytes * uses[i].moves;
    return bytes;
}

/* Fill with numbers of a type: floats in 1 .. 2 (f32: in -1 .. 1), small integers. */
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

static void fill_blocks(unsigned char *memory, twill_type code, size_t count)
{
    float values[TWILL_BLOCK_DEFAULT];
    size_t blocks = twill_block_count(BLOCK(code), count), bytes = twill_block_bytes(BLOCK(code));
    fill_type((unsigned char *)values, TWILL_F32, TWILL_BLOCK_DEFAULT);
    for (size_t i = 0; i < blocks; i++)
        twill_quantize(twill_kernels_at(0), BLOCK(code), memory + i * bytes, TWILL_F32, values,
                       NULL, 1, TWILL_BLOCK_DEFAULT, 1);
}

/* Fill the second moments of Adam and LAMB, Adagrad's sums: positive. */
static void fill_positive(unsigned char *memory, size_t count)
{
    const float value = 0.25f;
    for (size_t i = 0; i < count; i++)
        memcpy(memory + 4 * i, &value, sizeof(value));
}

bool twill_bench_kernel_fill(const struct twill_bench_kernel_case *one,
                             struct twill_bench_kernel_arrays *arrays, unsigned char *memory,
                             size_t bytes, size_t count)
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

static void run_optimizer(const struct twill_bench_kernel_case *one,
                          const struct twill_kernels *kernels,
                          const struct twill_bench_kernel_arrays *arrays, size_t count)
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
                                        .trust = 1,
                                        .threads = 1};
    for (unsigned i = 0; i < states; i++)
        step.state[i] = (float *)rest[1 + i];
    if (one->kind == NORMS)
        (void)twill_optimizer_norms(kernels, &step, count);
    else
        twill_optimizer_update(kernels, &step, count);
}

void twill_bench_kernel_run(const struct twill_bench_kernel_case *one,
                            const struct twill_kernels *kernels,
                            const struct twill_bench_kernel_arrays *arrays, size_t count)
{
    unsigned char *const *array = arrays->array;
    const void *const *sources = (const void *const *)array;
    const struct twill_block_format format = BLOCK(one->type);
    struct twill_sparse chosen = {0};
    switch (one->kind) {
    case REDUCE:
        twill_kernels_reduce_raw(kernels, one->type, TWILL_SUM, array[one->sources], sources,
                                 one->sources, count, 1, 0, 1);
        return;
    case SQUARES:
        (void)twill_kernels_sum_of_squares(kernels, one->type, array[0], count, 1);
        return;
    case QUANTIZE:
        twill_quantize(kernels, format, array[2], TWILL_F32, array[0], (float *)array[1], 1, count,
                       1);
        return;
    case DEQUANTIZE:
        twill_dequantize(kernels, format, TWILL_F32, array[one->sources], sources, one->sources, 1,
                         count, 1);
        return;
    case ADD_BLOCKS:
        twill_quantized_add(kernels, format, array[one->sources], sources, one->sources,
                            count / format.elements, 1);
        return;
    case NARROW:
        twill_narrow(kernels, one->type, array[2], TWILL_F32, array[0], (float *)array[1], 1, count,
                     1);
        return;
    case TOP:
        chosen = (struct twill_sparse){(uint32_t *)array[2], (float *)array[3]};
        twill_accumulate(kernels, (float *)array[1], TWILL_F32, array[0], 1, count, 1);
        (void)twill_select_largest(kernels, (float *)array[1], count, count / 100, chosen);
        return;
    default:
        run_optimizer(one, kernels, arrays, count);
    }
}

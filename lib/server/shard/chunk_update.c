/* SPDX-License-Identifier: Apache-2.0 */
/* Applies gradients to a chunk, up to TWILL_KERNEL_MAX_SOURCES in one pass with the optimizer. */
#include "lib/server/shard/shard.h"

#include "lib/base/lists.h"

#include <string.h>

/* Return whether pushed gradients of the chunk are encoded. */
static bool is_coded(const struct twill_shard *shard, const struct twill_chunk *chunk)
{
    return shard->server->key[chunk->place->key].coded;
}

static const struct twill_kernels *kernels_of(const struct twill_shard *shard)
{
    return shard->server->process.kernels;
}

/* Return the type of the chunk's gradients as pushed, if kernels can add them as they are. Return
 * TWILL_TYPE_COUNT if they are blocks or lists, which must be decoded before. */
static twill_type plain_type(const struct twill_shard *shard, const struct twill_chunk *chunk)
{
    const struct twill_coder *coder = &shard->server->coder;
    if (!is_coded(shard, chunk))
        return shard->server->key[chunk->place->key].type;
    return coder->kind == TWILL_CODING_NARROW ? coder->format.code : TWILL_TYPE_COUNT;
}

void twill_chunk_add(struct twill_shard *shard, const struct twill_chunk *chunk, float *sum,
                     const void *data, float factor)
{
    const struct twill_coder *coder = &shard->server->coder;
    size_t count = chunk->place->count;
    if (plain_type(shard, chunk) != TWILL_TYPE_COUNT) {
        twill_accumulate(kernels_of(shard), sum, plain_type(shard, chunk), data, factor, count,
                         NULL);
    } else if (coder->kind == TWILL_CODING_BLOCKS) {
        twill_dequantize(kernels_of(shard), coder->format, TWILL_F32, shard->decoded, &data, 1, 1,
                         count, NULL);
        twill_accumulate(kernels_of(shard), sum, TWILL_F32, shard->decoded, factor, count, NULL);
    } else {
        uint32_t n;
        memcpy(&n, data, sizeof(n));
        twill_add_list(sum, count, (const unsigned char *)data + TWILL_LIST_HEAD,
                       twill_coder_units(coder, count), n, factor);
    }
}

/* Update the chunk's parameters by the sum of n gradients of this type, times `scale`. The
 * optimizer makes a step with it. Without an optimizer, it replaces the parameters. */
static void apply(struct twill_shard *shard, struct twill_chunk *chunk, twill_type type,
                  const void *const *gradient, unsigned n, float scale)
{
    const struct twill_server *server = shard->server;
    const struct twill_optimizer_step step = {.optimizer = &server->rule.optimizer,
                                              .step = chunk->version + 1,
                                              .gradient_type = type,
                                              .sources = n,
                                              .gradient = gradient,
                                              .scale = scale,
                                              .parameter_type = TWILL_F32,
                                              .parameter = chunk->value,
                                              .state = {chunk->state[0], chunk->state[1]},
                                              .trust = 1};
    const struct twill_reduction sum = {
        .type = type, .op = TWILL_SUM, .divisor = 1, .partial_result = true};
    size_t count = chunk->place->count;
    if (server->rule.has_optimizer) {
        twill_optimizer_update(kernels_of(shard), &step, count);
        return;
    }
    twill_kernels_reduce(kernels_of(shard), &sum, chunk->value, gradient, n, count);
    if (scale != 1)
        twill_kernels_scale(kernels_of(shard), TWILL_F32, chunk->value, chunk->value, &scale, false,
                            count, NULL);
}

/* Replace the chunk's parameters by the sum or average, by options.op, of the n gradients data[].
 * These are not encoded and have the tensor's type. The result has the bits of an allreduce. */
static void reduce_plain(struct twill_shard *shard, struct twill_chunk *chunk,
                         const void *const *data, unsigned n)
{
    twill_type type = shard->server->key[chunk->place->key].type;
    struct twill_reduction r = {.type = type, .op = shard->server->options.op, .divisor = n};
    unsigned from = 0;
    const void *source[TWILL_KERNEL_MAX_SOURCES];
    void *partial = shard->scratch;
    while (n - from + (from > 0) > TWILL_KERNEL_MAX_SOURCES) {
        unsigned used = 0;
        r.partial_sources = from > 0;
        if (from > 0)
            source[used++] = partial;
        while (used < TWILL_KERNEL_MAX_SOURCES)
            source[used++] = data[from++];
        r.partial_result = true;
        twill_kernels_reduce(kernels_of(shard), &r, partial, source, used, chunk->place->count);
    }
    unsigned used = 0;
    r.partial_sources = from > 0;
    r.partial_result = false;
    if (from > 0)
        source[used++] = partial;
    while (from < n)
        source[used++] = data[from++];
    twill_kernels_reduce(kernels_of(shard), &r, chunk->value, source, used, chunk->place->count);
}

void twill_chunk_update(struct twill_shard *shard, struct twill_chunk *chunk,
                        const void *const *data, const float *factor, unsigned n, float scale)
{
    const struct twill_server *server = shard->server;
    twill_type type = plain_type(shard, chunk);
    size_t bytes = chunk->place->count * sizeof(float);
    if (n == 0) {
        const void *sum = chunk->sum;
        apply(shard, chunk, TWILL_F32, &sum, 1, scale);
        memset(chunk->sum, 0, bytes);
        return;
    }
    bool narrow_optimizer = type == TWILL_F32 || type == TWILL_F16 || type == TWILL_BF16;
    bool fits = n <= TWILL_KERNEL_MAX_SOURCES && factor == NULL;
    if (fits && server->rule.has_optimizer && type != TWILL_TYPE_COUNT && narrow_optimizer) {
        apply(shard, chunk, type, data, n, scale);
        return;
    }
    bool weighted = factor != NULL || (n == 1 && scale != 1);
    if (!server->rule.has_optimizer && !is_coded(shard, chunk) && !weighted) {
        reduce_plain(shard, chunk, data, n);
        return;
    }
    const void *sum = shard->scratch;
    memset(shard->scratch, 0, bytes);
    for (unsigned i = 0; i < n; i++)
        twill_chunk_add(shard, chunk, shard->scratch, data[i], factor != NULL ? factor[i] : 1);
    apply(shard, chunk, TWILL_F32, &sum, 1, scale);
}

/* Return the squared distance of the chunk's parameters from those that worker `w` pulled last. */
static double chunk_distance(const struct twill_chunk *chunk, uint32_t w)
{
    size_t count = chunk->place->count;
    const float *now = (const void *)chunk->value, *then = chunk->fetched;
    double sum = 0;
    then += w * (twill_round_up(count * sizeof(float), 64) / sizeof(float));
    for (size_t i = 0; i < count; i++) {
        double d = (double)now[i] - (double)then[i];
        sum += d * d;
    }
    return sum;
}

float twill_chunk_factor(const struct twill_shard *shard, const struct twill_chunk *chunk,
                         uint32_t w)
{
    const twill_server_options *o = &shard->server->options;
    uint64_t staleness = chunk->version - chunk->worker[w].base;
    if (o->rate == TWILL_SERVER_RATE_STALENESS && staleness > 1)
        return 1.0f / (float)staleness;
    if (o->rate == TWILL_SERVER_RATE_DISTANCE) {
        double d = chunk_distance(chunk, w);
        return (float)(d * o->distance_most > o->distance_c ? o->distance_c / d : o->distance_most);
    }
    return 1;
}

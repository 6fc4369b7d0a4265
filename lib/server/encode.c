/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's gradient to what it pushes: a copy where servers do not map the caller's memory, or
 * codes. */
#include "lib/server/server.h"

#include <math.h>
#include <string.h>

/* Choose the entries of a chunk's list: indices, then values, behind the number of them. An element
 * that is not finite is sent before all others; what is left of such would spoil later steps. */
static void encode_chunk_list(const struct twill_server *server, const struct twill_server_key *key,
                              const struct twill_chunk_place *place)
{
    const struct twill_kernels *kernels = server->process.kernels;
    const float *gradient = (const float *)key->gradient + place->first;
    float *residual = key->residual + place->first;
    unsigned char *list = key->sent + place->wire_at;
    size_t entries = (place->wire_bytes - TWILL_LIST_HEAD) / TWILL_LIST_ENTRY, n;
    struct twill_sparse chosen = {(void *)(list + TWILL_LIST_HEAD),
                                  (void *)(list + TWILL_LIST_HEAD + entries * sizeof(uint32_t))};
    bool finite = true;
    if (server->options.error_feedback == 0)
        memset(residual, 0, place->count * sizeof(float));
    twill_accumulate(kernels, residual, TWILL_F32, gradient, 1, place->count, 1);
    if (server->options.compression == TWILL_COMPRESS_TOP_K)
        n = twill_select_largest(kernels, residual, place->count, entries, chosen);
    else
        n = twill_select_above(kernels, residual, place->count,
                               (float)server->options.compression_threshold, entries, chosen);
    for (size_t i = 0; i < n; i++)
        finite &= isfinite(chosen.value[i]) != 0;
    for (size_t i = 0; !finite && i < place->count; i++)
        if (!isfinite(residual[i]))
            residual[i] = 0;
    const uint32_t head[2] = {(uint32_t)n, 0};
    memcpy(list, head, TWILL_LIST_HEAD);
}

static void encode_chunk(const struct twill_server *server, const struct twill_server_key *key,
                         const struct twill_chunk_place *place)
{
    const struct twill_kernels *kernels = server->process.kernels;
    const float *gradient = (const float *)key->gradient + place->first;
    float *residual = key->residual != NULL ? key->residual + place->first : NULL;
    unsigned char *wire = key->sent + place->wire_at;
    switch (key->code.kind) {
    case TWILL_CODING_NARROW:
        twill_narrow(kernels, key->code.format.code, wire, TWILL_F32, gradient, residual, 1,
                     place->count, 1);
        break;
    case TWILL_CODING_BLOCKS:
        twill_quantize(kernels, key->code.format, wire, TWILL_F32, gradient, residual, 1,
                       place->count, 1);
        break;
    case TWILL_CODING_SPARSE:
        encode_chunk_list(server, key, place);
        break;
    }
}

void twill_server_encode(struct twill_server *server, struct twill_server_key *key)
{
    if (key->code.used) {
        for (uint32_t c = 0; c < key->chunks; c++)
            encode_chunk(server, key, &server->cut.place[key->first_chunk + c]);
        return;
    }
    if (key->sent == key->gradient)
        return;
    memcpy(key->sent, key->gradient, key->bytes);
    atomic_fetch_add_explicit(&server->work.copied, key->bytes, memory_order_relaxed);
}

void twill_server_land(struct twill_server *server, struct twill_server_key *key)
{
    if (key->landed == key->parameters)
        return;
    memcpy(key->parameters, key->landed, key->bytes);
    atomic_fetch_add_explicit(&server->work.copied, key->bytes, memory_order_relaxed);
}

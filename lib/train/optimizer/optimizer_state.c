/* SPDX-License-Identifier: Apache-2.0 */
/* Exports the optimizer state of this rank's shards as bytes. */
#include "lib/train/optimizer/update_internal.h"

#include <stdlib.h>
#include <string.h>

/* List in places[] the ranges of tensors that lie in this rank's shard of a segment of bucket b,
 * each with a pointer to *segment. If places is NULL, only count them. Returns their number. */
static uint32_t list_segment(const struct twill_gradients *set, uint32_t b,
                             struct twill_update_segment *segment, struct twill_state_place *places)
{
    const struct twill_bucket *bucket = &set->bucket[b];
    uint32_t found = 0, arrays = twill_optimizer_states(&set->update->optimizer);
    struct twill_bucket_range shard = {segment->shard_first, segment->shard_count};
    for (uint32_t i = 0; i < bucket->tensors; i++) {
        struct twill_bucket_range part = twill_update_range_of_tensor(set, bucket, i, shard);
        if (part.count == 0)
            continue;
        if (places != NULL)
            places[found] = (struct twill_state_place){
                .range = {.first = twill_update_in_tensor(set, bucket, i, part.first),
                          .count = part.count,
                          .tensor = set->backward[bucket->first + i],
                          .arrays = arrays + (bucket->type != TWILL_F32)},
                .segment = segment,
                .at = part.first - segment->shard_first};
        found++;
    }
    return found;
}

uint32_t twill_state_places(const struct twill_gradients *set, struct twill_state_place *places)
{
    uint32_t found = 0;
    for (uint32_t b = 0; b < twill_buckets_of_step(set); b++)
        for (uint32_t s = 0; s < set->update->bucket[b].segments; s++)
            found += list_segment(set, b, &set->update->bucket[b].segment[s],
                                  places == NULL ? NULL : places + found);
    return found;
}

float *twill_state_array(const struct twill_gradients *set, const struct twill_state_place *place,
                         uint32_t k)
{
    bool is_state = k < twill_optimizer_states(&set->update->optimizer);
    return (is_state ? place->segment->state[k] : place->segment->master) + place->at;
}

uint64_t twill_state_tensors_hash(const struct twill_gradients *set)
{
    uint64_t hash = 4;
    for (uint32_t t = 0; t < set->tensors; t++) {
        hash = twill_hash_mix(hash, set->tensor[t].count);
        hash = twill_hash_mix(hash, (uint64_t)set->tensor[t].type);
        hash = twill_hash_text(hash, set->tensor[t].name);
    }
    return hash;
}

/* Return whether the set has memory for residuals. It has if it compresses and the coder keeps
 * them. */
static bool has_residual(const struct twill_gradients *set)
{
    return set->compressor != NULL && set->compressor->residual != NULL;
}

size_t twill_residual_floats(const struct twill_gradients *set)
{
    size_t floats = 0;
    for (uint32_t t = 0; has_residual(set) && t < set->tensors; t++)
        floats += set->tensor[t].raw ? 0 : set->tensor[t].count;
    return floats;
}

/* Write the residual of each tensor that may be compressed to `to`, twill_residual_floats() values
 * of f32. They are multiplied by compressor->after, as decoded elements are, so that they fit a set
 * with another number of ranks. */
static void write_residual(const struct twill_gradients *set, unsigned char *to)
{
    const struct twill_compressor *c = set->compressor;
    for (uint32_t t = 0; has_residual(set) && t < set->tensors; t++) {
        const struct twill_train_tensor *tensor = &set->tensor[t];
        for (size_t i = 0; !tensor->raw && i < tensor->count; i++, to += sizeof(float)) {
            float value = c->residual[tensor->residual + i] * c->after;
            memcpy(to, &value, sizeof(value));
        }
    }
}

/* Return the bytes of an export of these ranges and of `residuals` floats. */
static size_t export_bytes(const struct twill_state_place *places, uint32_t ranges,
                           size_t residuals)
{
    size_t bytes = sizeof(struct twill_state_header) + residuals * sizeof(float);
    for (uint32_t i = 0; i < ranges; i++)
        bytes += sizeof(places[i].range) +
                 places[i].range.count * places[i].range.arrays * sizeof(float);
    return bytes;
}

/* Write an export of these ranges to `to`, with or without the residuals. */
static void write_export(const struct twill_gradients *set, const struct twill_state_place *places,
                         uint32_t ranges, bool with_residuals, unsigned char *to)
{
    const struct twill_update *update = set->update;
    size_t residuals = with_residuals ? twill_residual_floats(set) : 0;
    uint32_t ranks = with_residuals ? (uint32_t)twill_comm_size(set->parent) : 0;
    struct twill_state_header header = {.magic = TWILL_STATE_MAGIC,
                                        .bytes = export_bytes(places, ranges, residuals),
                                        .tensors_hash = twill_state_tensors_hash(set),
                                        .steps = update->bucket[0].steps,
                                        .rule = (uint32_t)update->optimizer.rule,
                                        .states = twill_optimizer_states(&update->optimizer),
                                        .tensors = set->tensors,
                                        .ranges = ranges,
                                        .rank =
                                            ranks > 0 ? (uint32_t)twill_comm_rank(set->parent) : 0,
                                        .ranks = ranks,
                                        .residuals = residuals};
    memcpy(to, &header, sizeof(header));
    to += sizeof(header);
    for (uint32_t i = 0; i < ranges; i++, to += sizeof(places[i].range))
        memcpy(to, &places[i].range, sizeof(places[i].range));
    for (uint32_t i = 0; i < ranges; i++)
        for (uint32_t k = 0; k < places[i].range.arrays; k++) {
            size_t bytes = places[i].range.count * sizeof(float);
            memcpy(to, twill_state_array(set, &places[i], k), bytes);
            to += bytes;
        }
    if (residuals > 0)
        write_residual(set, to);
}

/* Set *places to a list of the ranges of tensors in this rank's shards, and *ranges to its length.
 * The caller frees it with free(). Returns TWILL_OK or TWILL_ERR_MEMORY. */
static twill_status list_places(const struct twill_gradients *set,
                                struct twill_state_place **places, uint32_t *ranges)
{
    *ranges = twill_state_places(set, NULL);
    *places = malloc((*ranges + 1) * sizeof(**places));
    if (*places == NULL)
        return TWILL_ERR_MEMORY;
    (void)twill_state_places(set, *places);
    return TWILL_OK;
}

twill_status twill_state_save(struct twill_gradients *set, void **state, size_t *bytes)
{
    struct twill_state_place *places;
    uint32_t ranges;
    TWILL_TRY(NULL, list_places(set, &places, &ranges));
    twill_update_load(set);
    *bytes = export_bytes(places, ranges, 0); /* residuals stay where they are */
    *state = malloc(*bytes);
    if (*state != NULL)
        write_export(set, places, ranges, false, *state);
    free(places);
    return *state != NULL ? TWILL_OK : TWILL_ERR_MEMORY;
}

twill_status twill_gradients_state_bytes(const twill_gradients *set, size_t *bytes)
{
    struct twill_state_place *places;
    uint32_t ranges;
    if (set == NULL || bytes == NULL || !set->committed || set->update == NULL)
        return TWILL_ERR_ARGUMENT;
    TWILL_TRY(NULL, list_places(set, &places, &ranges));
    *bytes = export_bytes(places, ranges, twill_residual_floats(set));
    free(places);
    return TWILL_OK;
}

twill_status twill_gradients_state_export(twill_gradients *set, void *state, size_t bytes)
{
    struct twill_state_place *places;
    uint32_t ranges;
    TWILL_TRY(NULL, twill_update_check_between(set, "twill_gradients_state_export"));
    if (state == NULL)
        return TWILL_SET_REFUSE(set, "twill_gradients_state_export: state is NULL");
    TWILL_TRY(NULL, list_places(set, &places, &ranges));
    size_t needed = export_bytes(places, ranges, twill_residual_floats(set));
    if (bytes == needed) {
        twill_update_load(set);
        write_export(set, places, ranges, true, state);
    }
    free(places);
    if (bytes != needed)
        return TWILL_SET_REFUSE(set,
                                "twill_gradients_state_export: %zu bytes, not the %zu of "
                                "twill_gradients_state_bytes()",
                                bytes, needed);
    return TWILL_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Residuals of compression in exported state. A rank's residual is what its codes have lacked, so
 * only the sum over the ranks matters: a rank that imports the state of ranks that are gone adds
 * theirs to its own. It is exported in units of the result, as the factor before encoding depends
 * on the number of ranks. */
#include "lib/train/optimizer/update_internal.h"

#include <stdlib.h>
#include <string.h>

/* Has the set a residual? */
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

void twill_residual_write(const struct twill_gradients *set, unsigned char *to)
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

twill_status twill_residual_read(struct twill_gradients *set, struct twill_residuals *residuals,
                                 const struct twill_state_header *header, const unsigned char *data,
                                 size_t left)
{
    size_t own = twill_residual_floats(set);
    if (header->residuals != left / sizeof(float) || left % sizeof(float) != 0 ||
        header->ranks > TWILL_RESIDUAL_RANKS || header->rank >= twill_max(header->ranks, 1))
        return TWILL_SET_REFUSE(set, "a state is damaged: %zu bytes after its ranges", left);
    if (header->residuals != 0 && own != 0 && header->residuals != own)
        return TWILL_SET_REFUSE(set,
                                "a state has residuals of %llu elements, the set compresses "
                                "%zu",
                                (unsigned long long)header->residuals, own);
    if (header->ranks == 0)
        return TWILL_OK;
    void *list = realloc(residuals->list, (residuals->count + 1) * sizeof(*residuals->list));
    if (list == NULL)
        return TWILL_SET_REFUSE(set, "out of memory for a state");
    residuals->list = list;
    residuals->list[residuals->count++] = (struct twill_residual_of){
        header->residuals != 0 ? data : NULL, header->rank, header->ranks};
    return TWILL_OK;
}

/* Add an exported residual to this rank's. */
static void add_residual(struct twill_gradients *set, const unsigned char *data)
{
    struct twill_compressor *c = set->compressor;
    for (uint32_t t = 0; t < set->tensors; t++) {
        const struct twill_train_tensor *tensor = &set->tensor[t];
        for (size_t i = 0; !tensor->raw && i < tensor->count; i++, data += sizeof(float)) {
            float value;
            memcpy(&value, data, sizeof(value));
            c->residual[tensor->residual + i] += value / c->after;
        }
    }
}

static uint64_t key_of(const struct twill_residual_of *of, uint64_t rank, uint64_t size)
{
    return (of->rank != rank) * size + rank;
}

/* Find for each rank of the exporting job which of these takes its residual: the one with the same
 * number, if it brings it, else the lowest that does. taker: [ranks] */
static twill_status agree_on_takers(twill_comm *comm, const struct twill_residuals *residuals,
                                    uint64_t *taker, size_t ranks)
{
    uint64_t rank = (uint64_t)twill_comm_rank(comm), size = (uint64_t)twill_comm_size(comm);
    memset(taker, 0xff, ranks * sizeof(*taker));
    for (size_t i = 0; i < residuals->count; i++) {
        const struct twill_residual_of *of = &residuals->list[i];
        taker[of->rank] = twill_min(taker[of->rank], key_of(of, rank, size));
    }
    return twill_allreduce(comm, taker, taker, ranks, TWILL_U64, TWILL_MIN);
}

twill_status twill_residual_import(struct twill_gradients *set, twill_comm *comm,
                                   const struct twill_residuals *residuals)
{
    struct twill_compressor *c = set->compressor;
    uint64_t ranks = 0, rank = (uint64_t)twill_comm_rank(comm),
             size = (uint64_t)twill_comm_size(comm);
    for (size_t i = 0; i < residuals->count; i++)
        ranks = twill_max(ranks, residuals->list[i].ranks);
    twill_status status = twill_allreduce(comm, &ranks, &ranks, 1, TWILL_U64, TWILL_MAX);
    size_t floats = twill_residual_floats(set);
    if (status != TWILL_OK || ranks == 0 || floats == 0)
        return status;
    uint64_t *taker = malloc(ranks * sizeof(*taker));
    if (taker == NULL)
        return TWILL_ERR_MEMORY;
    status = agree_on_takers(comm, residuals, taker, ranks);
    for (uint32_t t = 0; status == TWILL_OK && t < set->tensors; t++)
        if (!set->tensor[t].raw)
            memset(c->residual + set->tensor[t].residual, 0, set->tensor[t].bytes);
    for (size_t i = 0; status == TWILL_OK && i < residuals->count; i++) {
        const struct twill_residual_of *of = &residuals->list[i];
        if (of->data == NULL || taker[of->rank] != key_of(of, rank, size))
            continue;
        taker[of->rank] = UINT64_MAX; /* another copy is not added */
        add_residual(set, of->data);
    }
    c->encoded = true;
    free(taker);
    return status;
}

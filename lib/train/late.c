/* SPDX-License-Identifier: Apache-2.0 */
/* One step late: a step delivers the result of the one before (Cray PE ML Plugin's pipelined mode).
 * Steps use the two generations of buckets in turn, whether lateness is on or off.
 *
 * Searches of the first steps divide buckets anew, always after a step of the second generation.
 * The result of that step is then complete, but not to be delivered yet: it is carried in its
 * memory, which no division moves, and the next step delivers it tensor by tensor. */
#include "lib/train/gradients.h"

#include <string.h>

void twill_late_clear(struct twill_gradients *set, uint32_t generation)
{
    for (int type = 0; type < TWILL_TYPE_COUNT; type++) {
        const struct twill_arena_of_type *arena = &set->arena[type];
        if (arena->memory != NULL)
            memset(arena->memory + generation * arena->bytes, 0, arena->bytes);
    }
    for (uint32_t t = 0; t < set->tensors; t++)
        if (set->tensor[t].own != NULL)
            memset(set->tensor[t].own, 0, set->tensor[t].bytes);
}

void twill_late_deliver(struct twill_gradients *set, uint32_t t)
{
    const struct twill_train_tensor *tensor = &set->tensor[t];
    uint32_t last = set->generations - 1;
    bool updates = set->update != NULL;
    unsigned char *to = updates ? tensor->parameters : tensor->own;
    if (to == NULL)
        return;
    memcpy(to,
           updates ? twill_update_arena_place(set, tensor, last)
                   : twill_tensor_place(set, tensor, last),
           tensor->bytes);
    atomic_fetch_add_explicit(&set->usage.bytes_copied, tensor->bytes, memory_order_relaxed);
}

twill_status twill_late_deliver_outstanding(struct twill_gradients *set, uint64_t step)
{
    if (!set->late.carried)
        return twill_gradients_wait_step(set, step);
    for (uint32_t t = 0; t < set->tensors; t++)
        twill_late_deliver(set, t);
    set->late.delivered = set->generations - 1;
    set->late.carried = false;
    return TWILL_OK;
}

void *twill_gradients_result(const twill_gradients *set, int index)
{
    if (set == NULL || index < 0 || (uint32_t)index >= set->tensors)
        return NULL;
    const struct twill_train_tensor *tensor = &set->tensor[index];
    if (tensor->own != NULL)
        return tensor->own;
    return set->committed ? twill_tensor_place(set, tensor, set->late.delivered) : NULL;
}

/* Check that a call between steps may be made on a late set. */
static twill_status check_late(struct twill_gradients *set, const char *call)
{
    TWILL_TRY(NULL, twill_set_check_usable(set, call));
    if (set->generations == 1)
        return TWILL_SET_REFUSE(set, "%s: the set was created without options.late", call);
    return TWILL_OK;
}

twill_status twill_gradients_set_late(twill_gradients *set, int late)
{
    TWILL_TRY(NULL, check_late(set, "twill_gradients_set_late"));
    if (set->late.outstanding && !late)
        return TWILL_SET_REFUSE(set, "twill_gradients_set_late: the result of the last step "
                                     "is outstanding; twill_gradients_drain() delivers it");
    set->late.on = late != 0;
    return TWILL_OK;
}

twill_status twill_gradients_drain(twill_gradients *set)
{
    TWILL_TRY(NULL, check_late(set, "twill_gradients_drain"));
    if (!set->late.outstanding)
        return TWILL_SET_REFUSE(set, "twill_gradients_drain: no result is outstanding");
    TWILL_TRY(NULL, twill_late_deliver_outstanding(set, atomic_load(&set->step) - 1));
    set->late.outstanding = false;
    return TWILL_OK;
}

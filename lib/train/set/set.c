/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of a set, refused arguments, and memory. */
#include "lib/train/set/set.h"
#include "kernels/kernels.h"
#include "lib/wait/wait.h"

#include <stdio.h>

/* Return whether *writing, a lock of messages, is unlocked. */
static bool is_written(const void *writing)
{
    return !atomic_load((const _Atomic bool *)writing);
}

/* Lock the messages of a set, by refusals.writing. Storing false there unlocks them. */
static void lock_messages(struct twill_gradients *set)
{
    while (atomic_exchange(&set->refusals.writing, true))
        (void)twill_wait_for_thread(is_written, &set->refusals.writing, UINT64_MAX);
}

twill_status twill_set_fail(struct twill_gradients *set, const twill_comm *comm,
                            twill_status status)
{
    lock_messages(set);
    if (!set->broken)
        (void)TWILL_FAIL(&set->error, status, "%s", twill_comm_message(comm));
    atomic_store(&set->broken, true);
    atomic_store(&set->refusals.writing, false);
    return status;
}

twill_status twill_set_fail_with(struct twill_gradients *set, twill_comm *comm, const char *call,
                                 twill_status status, const char *message)
{
    return twill_set_fail(set, comm,
                          twill_extend_fail(comm, TWILL_EXTEND_FAILS, call, status, "%s", message));
}

twill_status twill_set_refuse(struct twill_gradients *set, const char *file, int line,
                              const char *format, ...)
{
    char before[32];
    va_list arguments;
    snprintf(before, sizeof(before), "rank %d: ", twill_comm_rank(set->parent));
    va_start(arguments, format);
    lock_messages(set);
    twill_error_clear(&set->refusals.last);
    (void)twill_error_set_list(&set->refusals.last, TWILL_ERR_ARGUMENT, TWILL_NO_RANK, file, line,
                               before, format, arguments);
    atomic_store(&set->refusals.writing, false);
    va_end(arguments);
    return TWILL_ERR_ARGUMENT;
}

twill_status twill_set_check_usable(struct twill_gradients *set, const char *call)
{
    if (set == NULL)
        return TWILL_ERR_ARGUMENT;
    if (atomic_load_explicit(&set->broken, memory_order_acquire))
        return TWILL_ERR_BROKEN;
    if (!set->committed)
        return TWILL_SET_REFUSE(set, "%s: call twill_gradients_commit() first", call);
    if (*set->process.fork_guard == 0)
        return TWILL_ERR_FORKED;
    return TWILL_OK;
}

twill_status twill_set_check_between(struct twill_gradients *set, const char *call)
{
    uint64_t step = atomic_load(&set->step);
    for (uint32_t t = 0; t < set->tensors; t++)
        if (atomic_load(&set->tensor[t].marked) != step)
            return TWILL_SET_REFUSE(
                set, "%s: tensor '%s' is marked ready: call twill_gradients_wait_all() first", call,
                set->tensor[t].name);
    return TWILL_OK;
}

const char *twill_gradients_message(const twill_gradients *set)
{
    if (set == NULL)
        return "the gradient set is NULL";
    return set->broken ? set->error.message : set->refusals.last.message;
}

twill_status twill_set_allocate(struct twill_gradients *set, void **memory, size_t bytes,
                                const char *what)
{
    twill_status status = twill_alloc(set->process.context, memory, bytes);
    if (status != TWILL_OK)
        return TWILL_FAIL(&set->error, status, "%zu bytes %s: %s", bytes, what,
                          twill_context_message(set->process.context));
    return TWILL_OK;
}

void twill_set_promote(struct twill_gradients *set)
{
    for (uint32_t b = 0; set->options.promote != 0 && b < set->buckets; b++) {
        const struct twill_bucket *bucket = &set->bucket[b];
        struct twill_train_tensor *tensor = &set->tensor[set->backward[bucket->first]];
        bool is_used = bucket->memory == tensor->own && !bucket->wire.used && bucket->dense == NULL;
        if (!tensor->promoted && bucket->memory != NULL && is_used)
            tensor->promoted =
                twill_promote(set->process.context, tensor->own, tensor->bytes) == TWILL_OK;
    }
}

bool twill_set_note_nan(struct twill_gradients *set, const struct twill_bucket *bucket,
                        const struct twill_train_tensor *tensor, const char *what, int rank,
                        size_t element)
{
    int sought = TWILL_NAN_SOUGHT;
    if (!atomic_compare_exchange_strong(&set->usage.nan.state, &sought, TWILL_NAN_WRITTEN))
        return false;
    snprintf(set->usage.nan.text, sizeof(set->usage.nan.text),
             "rank %d: tensor '%.80s', bucket %u, step %llu: element %zu %sis a NaN or infinity",
             rank, tensor->name, (uint32_t)(bucket - set->bucket) % twill_buckets_of_step(set),
             (unsigned long long)atomic_load(&set->step) + 1, element, what);
    atomic_store(&set->usage.nan.state, TWILL_NAN_FOUND);
    return true;
}

void twill_set_find_nan(struct twill_gradients *set, const struct twill_bucket *bucket,
                        const struct twill_train_tensor *tensor, const char *what, size_t from,
                        const void *src, size_t count)
{
    size_t at =
        twill_kernels_find_nan(set->process.kernels, tensor->type, src, count, set->process.pool);
    if (at < count)
        (void)twill_set_note_nan(set, bucket, tensor, what, twill_comm_rank(set->parent),
                                 from + at);
}

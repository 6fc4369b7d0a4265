/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of a training step, for tensors, dense layers, and sets that run one step late. */
#include "kernels/training/factors.h"
#include "lib/base/plural.h"
#include "lib/train/gradients.h"
#include "lib/twill_recover.h"
#include "lib/wait/wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAPPED_ALONE_BYTES ((size_t)128 << 10) /* glibc's malloc maps such memory separately */

/* Return TWILL_OK, or refuse an index that no tensor has with TWILL_ERR_ARGUMENT. */
static twill_status check_index(struct twill_gradients *set, const char *call, int index)
{
    if (index < 0 || (uint32_t)index >= set->tensors)
        return TWILL_SET_REFUSE(set, "%s: tensor %d: the set has %u tensor%s, from 0 on", call,
                                index, set->tensors, TWILL_PLURAL(set->tensors));
    return TWILL_OK;
}

/* Count the time since `from` (a twill_now()) as spent in calls of a step. */
static void count_exposed(struct twill_gradients *set, uint64_t from)
{
    atomic_fetch_add_explicit(&set->usage.ns_exposed, twill_now() - from, memory_order_relaxed);
}

/* Return whether the first or last page of a tensor in the caller's memory is unmapped, as large
 * allocations are when they are freed. An access would then be a SIGSEGV here, far from the
 * mistake. Smaller tensors cannot be checked, and the result is false. */
static bool is_unmapped(const struct twill_train_tensor *tensor)
{
    if (tensor->own == NULL || tensor->bytes < MAPPED_ALONE_BYTES)
        return false;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE),
              last = (uintptr_t)tensor->own + tensor->bytes;
    unsigned char resident;
    return mincore((void *)((uintptr_t)tensor->own & -page), 1, &resident) != 0 ||
           mincore((void *)((last - 1) & -page), 1, &resident) != 0;
}

/* Return the bucket that a step uses, in its generation, for bucket b of generation 0. */
static struct twill_bucket *bucket_of_step(struct twill_gradients *set, uint32_t b, uint64_t step)
{
    return &set->bucket[step % set->generations * twill_buckets_of_step(set) + b];
}

/* Refuse to mark a tensor ready twice in a step. Returns TWILL_ERR_ARGUMENT. */
static twill_status refuse_second_mark(struct twill_gradients *set,
                                       const struct twill_train_tensor *tensor)
{
    return TWILL_SET_REFUSE(set,
                            "tensor '%s' is marked ready twice in a step, which "
                            "twill_gradients_wait_all() ends",
                            tensor->name);
}

/* Check that tensor number `index` may be marked ready, and set *bucket to its bucket of this step.
 * Returns TWILL_OK or the error. */
static twill_status check_ready(struct twill_gradients *set, const char *call, int index,
                                struct twill_bucket **bucket)
{
    TWILL_TRY(NULL, twill_set_check_usable(set, call));
    TWILL_TRY(NULL, check_index(set, call, index));
    const struct twill_train_tensor *tensor = &set->tensor[index];
    uint64_t step = atomic_load_explicit(&set->step, memory_order_acquire);
    *bucket = bucket_of_step(set, tensor->bucket, step);
    return atomic_load(&tensor->marked) == step ? TWILL_OK : refuse_second_mark(set, tensor);
}

/* Copy a tensor that is ready into a bucket. After the bucket's last tensor, encode the bucket and
 * have its reducer start it. */
static void fill_bucket(struct twill_gradients *set, struct twill_bucket *bucket,
                        const struct twill_train_tensor *tensor)
{
    twill_bucket_fill(set, bucket, tensor);
    if (TWILL_UNLIKELY(atomic_load(&set->usage.nan.state) == TWILL_NAN_FOUND))
        twill_reducers_tell_nan(set);
    uint64_t arrived = atomic_fetch_add_explicit(&bucket->arrived, 1, memory_order_acq_rel) + 1;
    if (arrived % bucket->tensors != 0)
        return;
    twill_wire_encode(set, bucket);
    atomic_fetch_add_explicit(&bucket->filled, 1, memory_order_release);
    twill_reducer_kick(&set->reducer[bucket->reducer]);
}

/* Mark a tensor ready, and fill its buckets. set->markers counts this thread. Returns TWILL_OK,
 * TWILL_ERR_ARGUMENT if the tensor is unmapped or marked already, or TWILL_ERR_BROKEN. */
static twill_status mark_tensor(struct twill_gradients *set, int index)
{
    struct twill_train_tensor *tensor = &set->tensor[index];
    if (is_unmapped(tensor))
        return TWILL_SET_REFUSE(set,
                                "tensor '%s': its memory is not mapped: it was freed before "
                                "the set was destroyed",
                                tensor->name);
    uint64_t step = atomic_load_explicit(&set->step, memory_order_acquire);
    if (!atomic_compare_exchange_strong(&tensor->marked, &(uint64_t){step}, step + 1))
        return refuse_second_mark(set, tensor);
    for (uint32_t b = tensor->bucket; b < tensor->bucket + tensor->buckets; b++)
        fill_bucket(set, bucket_of_step(set, b, step), tensor);
    return set->broken ? TWILL_ERR_BROKEN : TWILL_OK;
}

/* Do mark_tensor(), counting this thread in set->markers and the time. Returns the status. */
static twill_status mark_any(struct twill_gradients *set, int index)
{
    uint64_t from = twill_now();
    atomic_fetch_add(&set->markers, 1);
    twill_status status = mark_tensor(set, index);
    count_exposed(set, from);
    atomic_fetch_sub(&set->markers, 1);
    return status;
}

twill_status twill_gradients_ready(twill_gradients *set, int index)
{
    TWILL_TRY(NULL, twill_set_check_usable(set, "twill_gradients_ready"));
    TWILL_TRY(NULL, check_index(set, "twill_gradients_ready", index));
    if (set->tensor[index].dense != NULL)
        return TWILL_SET_REFUSE(set,
                                "tensor '%s' is a dense layer: "
                                "twill_gradients_ready_factors() marks it ready",
                                set->tensor[index].name);
    return mark_any(set, index);
}

/* Return whether *markers is 0, that is, no thread marks a tensor. */
static bool is_unmarked(const void *markers)
{
    return atomic_load((const _Atomic uint32_t *)markers) == 0;
}

void twill_gradients_await_markers(struct twill_gradients *set)
{
    (void)twill_wait_for_thread(is_unmarked, &set->markers, UINT64_MAX);
}

/* Return whether the bucket's reduction of this step is complete. */
static bool is_complete(const struct twill_bucket *bucket)
{
    uint64_t reduced = atomic_load_explicit(&bucket->reduced, memory_order_relaxed);
    return atomic_load_explicit(&bucket->ended, memory_order_acquire) ==
           (reduced + 1) * bucket->segments;
}

/* Compute the gradients of a complete bucket in its memory if codes or factors were exchanged. With
 * an optimizer, the update has done that. Add the bucket's bytes to usage.bytes and
 * usage.bytes_exchanged. */
static void finish(struct twill_gradients *set, struct twill_bucket *bucket)
{
    if (set->update == NULL)
        twill_wire_decode(set, bucket, 0, bucket->count);
    twill_counter_add(&set->usage.bytes, twill_bucket_bytes(bucket));
    twill_counter_add(&set->usage.bytes_exchanged, twill_wire_bytes(set, bucket));
}

/* Decode a complete bucket, if needed, and copy its gradients or, with an optimizer, its parameters
 * to the caller's memory. Count it as reduced, so that its tensors may be marked ready again. */
static void deliver(struct twill_gradients *set, struct twill_bucket *bucket)
{
    finish(set, bucket);
    if (set->update != NULL)
        twill_update_deliver(set, bucket);
    else
        twill_bucket_empty(set, bucket);
    atomic_fetch_add_explicit(&bucket->reduced, 1, memory_order_release);
}

/* Return whether a bucket has been reduced and delivered in step number `step`, the present or last
 * one that uses it. */
static bool is_delivered(const struct twill_gradients *set, const struct twill_bucket *bucket,
                         uint64_t step)
{
    return atomic_load_explicit(&bucket->reduced, memory_order_acquire) != step / set->generations;
}

/* Break the set with TWILL_ERR_TIMEOUT. The message names one tensor of the bucket that was not
 * marked ready, and how many more were not. If all were, it says that one may be missing on another
 * rank. The caller holds the reducer's lock. Returns the status. */
static twill_status time_out(struct twill_reducer *reducer, const struct twill_bucket *bucket)
{
    struct twill_gradients *set = reducer->set;
    uint64_t reduced = atomic_load(&bucket->reduced);
    unsigned missing = 0;
    const char *name = "?";
    for (uint32_t i = bucket->tensors; i-- > 0;) {
        const struct twill_train_tensor *tensor = twill_bucket_tensor(set, bucket, i);
        uint64_t marked = reduced * set->generations + bucket->generation + 1;
        if (atomic_load(&tensor->marked) != marked && missing++ == 0)
            name = tensor->name;
    }
    char more[32] = "";
    if (missing > 1)
        snprintf(more, sizeof(more), " and %u more", missing - 1);
    if (missing == 0)
        name = twill_bucket_tensor(set, bucket, 0)->name;
    struct twill_extend_comm comm = twill_extend_comm(reducer->comm);
    twill_status status = twill_extend_fail(
        reducer->comm, TWILL_EXTEND_FAILS, "twill_gradients_wait", TWILL_ERR_TIMEOUT,
        "tensor '%s'%s was not marked ready%s within %.1f s (%s)", name, more,
        missing == 0 ? ", or one in its bucket, on another rank" : "",
        (double)comm.timeout_ns * 1e-9, comm.timeout_name);
    return twill_reducer_fail(reducer, reducer->comm, status);
}

/* Return the bucket that must be marked ready first so that `bucket` can be reduced on this rank.
 * In backward order it is the reducer's next one, and otherwise `bucket` itself. Never NULL. */
static const struct twill_bucket *first_missing(const struct twill_reducer *reducer,
                                                const struct twill_bucket *bucket)
{
    return reducer->order_comm == NULL ? &reducer->set->bucket[reducer->order[reducer->next]]
                                       : bucket;
}

/* A wait, on its stack, until a bucket is reduced or, if for_marks, its tensors are all marked. */
struct bucket_wait {
    struct twill_reducer *reducer;
    struct twill_bucket *bucket;
    bool for_marks;
    uint64_t step; /* only read if for_marks */
};

/* Return whether a wait is over. If it is for marks (for_marks), the bucket's tensors must all be
 * marked ready in wait->step. Otherwise the bucket must be reduced. */
static bool is_over(const struct bucket_wait *wait)
{
    if (!wait->for_marks)
        return is_complete(wait->bucket);
    return atomic_load(&wait->bucket->filled) != wait->step / wait->reducer->set->generations;
}

/* Break the set with a timeout. Return TWILL_OK instead if it is broken, the wait is over or, if
 * for a reduction, something under way has its own deadline. The reducer's lock is held. */
static twill_status time_out_wait(const struct bucket_wait *wait)
{
    struct twill_reducer *reducer = wait->reducer;
    if (reducer->set->broken || is_over(wait) ||
        (!wait->for_marks && twill_reducer_is_busy(reducer)))
        return TWILL_OK;
    return time_out(reducer, wait->for_marks ? wait->bucket : first_missing(reducer, wait->bucket));
}

/* Wait while a reducer's thread works, with a new timeout after each bucket. Returns the status. */
static twill_status wait_for_reducer_thread(const struct bucket_wait *wait)
{
    struct twill_reducer *reducer = wait->reducer;
    uint64_t timeout = twill_extend_comm(reducer->comm).timeout_ns, from = twill_now();
    for (;;) {
        uint32_t seen = atomic_load(&reducer->own.ends);
        if (reducer->set->broken)
            return reducer->set->error.status;
        if (is_over(wait))
            return TWILL_OK;
        twill_reducer_await_end(reducer, seen);
        if (atomic_load(&reducer->own.ends) == seen && twill_now() - from <= timeout)
            continue;
        if (atomic_load(&reducer->own.ends) == seen) {
            twill_reducer_interrupt(reducer);
            twill_status status = time_out_wait(wait);
            twill_reducer_unlock(reducer);
            TWILL_TRY(NULL, status);
        }
        from = twill_now();
    }
}

/* Wait for what *wait says (is_over()), and advance its reducer in this thread. Breaks the set if
 * there is no progress for TWILL_TIMEOUT. Returns TWILL_OK or the set's failure. */
static twill_status wait_in_reducer(const struct bucket_wait *wait)
{
    struct twill_reducer *reducer = wait->reducer;
    twill_status status = TWILL_OK;
    uint64_t deadline = twill_now() + twill_extend_comm(reducer->comm).timeout_ns;
    twill_reducer_lock(reducer);
    while (status == TWILL_OK && !is_over(wait)) {
        uint32_t collected = twill_reducer_collected(reducer);
        status = twill_reducer_advance(reducer);
        if (status != TWILL_OK || is_over(wait))
            break;
        status = twill_reducer_wait(reducer, deadline);
        if (status == TWILL_PENDING)
            status = time_out_wait(wait);
        else if (twill_reducer_collected(reducer) != collected)
            deadline = twill_now() + twill_extend_comm(reducer->comm).timeout_ns;
    }
    twill_reducer_unlock(reducer);
    return status;
}

/* If `for_marks`, wait until all tensors of a bucket are marked ready in step number `step`.
 * Otherwise wait until the bucket's present reduction is complete, and do not read `step`. Returns
 * TWILL_OK or the set's failure. */
static twill_status wait_for(struct twill_gradients *set, struct twill_bucket *bucket,
                             bool for_marks, uint64_t step)
{
    const struct bucket_wait wait = {&set->reducer[bucket->reducer], bucket, for_marks, step};
    return wait.reducer->own.running ? wait_for_reducer_thread(&wait) : wait_in_reducer(&wait);
}

/* Wait until a bucket is reduced in this step. Returns TWILL_OK or the set's failure. */
static twill_status await_reduction(struct twill_gradients *set, struct twill_bucket *bucket)
{
    return wait_for(set, bucket, false, 0);
}

/* Wait until a bucket is reduced, and deliver it. Returns TWILL_OK or the set's failure. */
static twill_status wait_for_bucket(struct twill_gradients *set, struct twill_bucket *bucket)
{
    TWILL_TRY(NULL, await_reduction(set, bucket));
    deliver(set, bucket);
    return TWILL_OK;
}

twill_status twill_gradients_finish_late(struct twill_gradients *set)
{
    uint64_t step = atomic_load(&set->step);
    twill_gradients_await_markers(set);
    bool any = set->late.outstanding && !set->late.carried;
    for (uint32_t b = 0; any && b < twill_buckets_of_step(set); b++) {
        struct twill_bucket *bucket = bucket_of_step(set, b, step - 1);
        if (!is_delivered(set, bucket, step - 1))
            TWILL_TRY(NULL, await_reduction(set, bucket));
    }
    return TWILL_OK;
}

twill_status twill_gradients_carry(struct twill_gradients *set)
{
    if (!set->late.outstanding || set->late.carried)
        return TWILL_OK;
    TWILL_TRY(NULL, twill_gradients_finish_late(set));
    for (uint32_t b = 0; b < twill_buckets_of_step(set); b++) {
        struct twill_bucket *bucket = bucket_of_step(set, b, atomic_load(&set->step) - 1);
        finish(set, bucket);
        atomic_fetch_add_explicit(&bucket->reduced, 1, memory_order_release);
    }
    set->late.carried = true;
    return TWILL_OK;
}

/* Return the step whose results the caller waits for next. In a late set it is the step before the
 * present one, or UINT64_MAX if its result is complete or there is none. */
static uint64_t awaited_step(const struct twill_gradients *set)
{
    uint64_t step = atomic_load(&set->step);
    if (set->late.on)
        return set->late.outstanding && !set->late.carried ? step - 1 : UINT64_MAX;
    return step;
}

/* Copy a tensor's part of a late result, which twill_gradients_carry() has completed in the set's
 * memory, to the caller's memory, if any. It is the tensor's parameters if there is an optimizer,
 * and otherwise its gradient. */
static void deliver_carried(struct twill_gradients *set, uint32_t t)
{
    const struct twill_train_tensor *tensor = &set->tensor[t];
    uint32_t last = set->generations - 1;
    bool updates = set->update != NULL;
    unsigned char *to = updates ? tensor->parameters : tensor->own;
    if (to == NULL)
        return;
    twill_set_copy(set, to,
                   updates ? twill_update_arena_place(set, tensor, last)
                           : twill_tensor_place(set, tensor, last),
                   tensor->bytes);
    atomic_fetch_add_explicit(&set->usage.bytes_copied, tensor->bytes, memory_order_relaxed);
}

twill_status twill_gradients_wait(twill_gradients *set, int index)
{
    uint64_t from = twill_now();
    TWILL_TRY(NULL, twill_set_check_usable(set, "twill_gradients_wait"));
    TWILL_TRY(NULL, check_index(set, "twill_gradients_wait", index));
    uint64_t step = awaited_step(set);
    if (set->late.carried)
        deliver_carried(set, (uint32_t)index);
    if (step == UINT64_MAX)
        return TWILL_OK;
    const struct twill_train_tensor *tensor = &set->tensor[index];
    twill_status status = TWILL_OK;
    for (uint32_t b = 0; status == TWILL_OK && b < tensor->buckets; b++) {
        struct twill_bucket *bucket = bucket_of_step(set, tensor->bucket + b, step);
        if (!is_delivered(set, bucket, step))
            status = wait_for_bucket(set, bucket);
    }
    count_exposed(set, from);
    return status;
}

/* Return whether bucket b is complete in step `step`. If so, also deliver it, except in a late set,
 * where the caller may be computing the next gradient in the same memory. */
static bool test_bucket(struct twill_gradients *set, uint32_t b, uint64_t step)
{
    struct twill_bucket *bucket = bucket_of_step(set, b, step);
    if (is_delivered(set, bucket, step))
        return true;
    bool complete = is_complete(bucket);
    if (complete && !set->late.on)
        deliver(set, bucket);
    return complete;
}

/* Advance the reducers that have no thread. Returns TWILL_OK or the set's failure. */
static twill_status progress_reducers(struct twill_gradients *set)
{
    for (uint32_t l = 0; l < set->reducers; l++) {
        struct twill_reducer *reducer = &set->reducer[l];
        if (reducer->own.running)
            continue;
        twill_reducer_lock(reducer);
        twill_status status = twill_reducer_progress(reducer);
        twill_reducer_unlock(reducer);
        if (status != TWILL_OK)
            return status;
    }
    return set->broken ? set->error.status : TWILL_OK;
}

twill_status twill_gradients_test(twill_gradients *set, int index, int *done)
{
    TWILL_TRY(NULL, twill_set_check_usable(set, "twill_gradients_test"));
    if (done == NULL)
        return TWILL_SET_REFUSE(set, "twill_gradients_test: done is NULL");
    if (index != -1)
        TWILL_TRY(NULL, check_index(set, "twill_gradients_test", index));
    TWILL_TRY(NULL, progress_reducers(set));
    uint64_t step = awaited_step(set);
    *done = 1;
    if (step == UINT64_MAX)
        return TWILL_OK;
    uint32_t b = index == -1 ? 0 : set->tensor[index].bucket,
             end = index == -1 ? twill_buckets_of_step(set) : b + set->tensor[index].buckets;
    for (; b < end; b++)
        *done &= test_bucket(set, b, step);
    return TWILL_OK;
}

/* Wait for the results of step number `step`, and deliver them. Returns TWILL_OK or the error. */
static twill_status wait_step(struct twill_gradients *set, uint64_t step)
{
    for (uint32_t b = 0; b < twill_buckets_of_step(set); b++) {
        struct twill_bucket *bucket = bucket_of_step(set, b, step);
        if (!is_delivered(set, bucket, step))
            TWILL_TRY(NULL, wait_for_bucket(set, bucket));
    }
    set->late.delivered = (uint32_t)(step % set->generations);
    return TWILL_OK;
}

/* Deliver the outstanding result of a late set. If twill_gradients_carry() has completed it in the
 * set's memory, copy it to the caller's gradients or, with an optimizer, parameters. Otherwise wait
 * for and deliver the result of step number `step`, the outstanding one. Returns TWILL_OK or the
 * error. */
static twill_status deliver_outstanding(struct twill_gradients *set, uint64_t step)
{
    if (!set->late.carried)
        return wait_step(set, step);
    for (uint32_t t = 0; t < set->tensors; t++)
        deliver_carried(set, t);
    set->late.delivered = set->generations - 1;
    set->late.carried = false;
    return TWILL_OK;
}

/* Fill the set's memory of a generation (0 or 1) and the caller's gradients with zeros, as there is
 * no result to deliver. */
static void clear_generation(struct twill_gradients *set, uint32_t generation)
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

/* Wait until all tensors are marked ready in the late step number `step`. Then deliver the result
 * of the step before. If there is none, the gradients become zeros, unless the set has an
 * optimizer. Returns the status. */
static twill_status end_late_step(struct twill_gradients *set, uint64_t step)
{
    for (uint32_t b = 0; b < twill_buckets_of_step(set); b++)
        TWILL_TRY(NULL, wait_for(set, bucket_of_step(set, b, step), true, step));
    if (set->late.outstanding) {
        TWILL_TRY(NULL, deliver_outstanding(set, step - 1));
    } else {
        set->late.delivered = (uint32_t)((step + 1) % set->generations);
        if (set->update == NULL)
            clear_generation(set, set->late.delivered);
    }
    set->late.outstanding = true;
    return TWILL_OK;
}

twill_status twill_gradients_wait_all(twill_gradients *set)
{
    uint64_t from = twill_now();
    TWILL_TRY(NULL, twill_set_check_usable(set, "twill_gradients_wait_all"));
    uint64_t step = atomic_load(&set->step);
    TWILL_TRY(NULL, set->late.on ? end_late_step(set, step) : wait_step(set, step));
    atomic_fetch_add(&set->step, 1);
    twill_counter_add(&set->usage.steps, 1);
    twill_update_end_step(set);
    count_exposed(set, from);
    twill_set_record(set, TWILL_TRACE_STEP_END, (uint32_t)set->usage.steps,
                     atomic_load_explicit(&set->usage.ns_exposed, memory_order_relaxed));
    if (set->options.check_every > 0 && set->usage.steps % (uint64_t)set->options.check_every == 0)
        TWILL_TRY(NULL, twill_gradients_check(set));
    twill_gradients_report(set, false);
    return twill_reducers_check(set, twill_searches_end_step(set));
}

twill_status twill_gradients_add_dense(twill_gradients *set, const twill_tensor *tensor,
                                       size_t rows, size_t columns, size_t samples, int *index)
{
    if (set == NULL)
        return TWILL_ERR_ARGUMENT;
    const char *name = tensor != NULL && tensor->name != NULL ? tensor->name : "?";
    if (rows == 0 || columns == 0 || samples == 0 || rows > SIZE_MAX / 16 / columns ||
        samples > SIZE_MAX / 16 / (rows + columns))
        return TWILL_SET_REFUSE(set, "tensor '%s': %zu row%s, %zu column%s, %zu sample%s", name,
                                rows, TWILL_PLURAL(rows), columns, TWILL_PLURAL(columns), samples,
                                TWILL_PLURAL(samples));
    if (tensor != NULL && (tensor->count != rows * columns || tensor->type != TWILL_F32))
        return TWILL_SET_REFUSE(set,
                                "tensor '%s': a dense layer of %zu x %zu has as many f32, not "
                                "%zu %s",
                                name, rows, columns, tensor->count, twill_type_name(tensor->type));
    struct twill_dense *dense = calloc(1, sizeof(*dense));
    if (dense == NULL)
        return TWILL_ERR_MEMORY;
    *dense = (struct twill_dense){.rows = rows, .columns = columns, .samples = samples};
    twill_status status = twill_gradients_add(set, tensor, index);
    if (status != TWILL_OK) {
        free(dense);
        return status;
    }
    set->tensor[set->tensors - 1].dense = dense;
    set->tensor[set->tensors - 1].raw = true;
    return TWILL_OK;
}

/* Copy this rank's factors to where they are gathered from, with zeros for missing samples. */
static void store_factors(struct twill_gradients *set, struct twill_bucket *bucket,
                          const float *errors, const float *activations, size_t samples)
{
    const struct twill_dense *d = bucket->dense;
    size_t rest = d->samples - samples;
    float *to = bucket->factors + twill_dense_floats(d) * (size_t)twill_comm_rank(set->parent);
    if (samples > 0)
        twill_set_copy(set, to, errors, samples * d->rows * sizeof(*to));
    memset(to + samples * d->rows, 0, rest * d->rows * sizeof(*to));
    to += d->samples * d->rows;
    if (samples > 0)
        twill_set_copy(set, to, activations, samples * d->columns * sizeof(*to));
    memset(to + samples * d->columns, 0, rest * d->columns * sizeof(*to));
    atomic_fetch_add_explicit(&set->usage.bytes_copied,
                              samples * (d->rows + d->columns) * sizeof(*to), memory_order_relaxed);
}

twill_status twill_gradients_ready_factors(twill_gradients *set, int index, const float *errors,
                                           const float *activations, size_t samples)
{
    struct twill_bucket *bucket = NULL;
    TWILL_TRY(NULL, check_ready(set, "twill_gradients_ready_factors", index, &bucket));
    struct twill_train_tensor *tensor = &set->tensor[index];
    const struct twill_dense *dense = tensor->dense;
    if (dense == NULL)
        return TWILL_SET_REFUSE(
            set, "tensor '%s' is not a dense layer: twill_gradients_ready() marks it ready",
            tensor->name);
    if (samples > dense->samples)
        return TWILL_SET_REFUSE(set, "tensor '%s': %zu sample%s, registered for at most %zu",
                                tensor->name, samples, TWILL_PLURAL(samples), dense->samples);
    if (samples > 0 && (errors == NULL || activations == NULL))
        return TWILL_SET_REFUSE(set, "tensor '%s': its factors are NULL", tensor->name);
    const struct twill_factors factors = {.errors = errors,
                                          .activations = activations,
                                          .parts = samples > 0,
                                          .samples = samples,
                                          .rows = dense->rows,
                                          .columns = dense->columns,
                                          .scale = 1};
    if (dense->gathers && twill_set_looks(set)) {
        twill_set_find_nan(set, bucket, tensor, "of the errors ", 0, errors, samples * dense->rows);
        twill_set_find_nan(set, bucket, tensor, "of the activations ", 0, activations,
                           samples * dense->columns);
    }
    if (dense->gathers)
        store_factors(set, bucket, errors, activations, samples);
    else
        twill_factors_multiply(set->process.kernels, &factors, twill_gradients_memory(set, index),
                               0, dense->rows, set->process.pool);
    return mark_any(set, index);
}

twill_status twill_gradients_stop_requested(twill_gradients *set, uint64_t *after)
{
    if (after != NULL)
        *after = 0;
    TWILL_TRY(NULL, twill_set_check_usable(set, __func__));
    if (after == NULL)
        return TWILL_SET_REFUSE(set, "%s: after is NULL", __func__);
    TWILL_TRY(NULL, twill_set_check_between(set, __func__));
    struct twill_reducer *reducer = &set->reducer[0];
    uint64_t call = 0;
    twill_reducer_hold(reducer);
    twill_status status = twill_comm_stop_requested(reducer->comm, &call); /* notes a wish */
    uint64_t from = twill_news_told(twill_extend_comm(reducer->comm).news, TWILL_NEWS_STOP),
             joined = reducer->joined[set->late.delivered];
    twill_reducer_unlock(reducer);
    TWILL_TRY(NULL, twill_set_check(set, reducer->comm, status));
    /* Which calls of an outstanding step have ended differs between ranks. Those of the delivered
     * one have ended on all. */
    if (set->usage.stop == 0 && from != 0 && joined >= from)
        set->usage.stop = set->usage.steps;
    *after = set->usage.stop;
    return TWILL_OK;
}

/* This is the pipelined mode of Cray's PE ML Plugin, in which a step delivers the result of the
 * step before. Steps use the two generations of buckets alternately, even while lateness is off.
 * Searches of the first steps divide buckets anew, always after a step of the second generation.
 * The result of that step is then complete, but must not be delivered yet. It is carried in its
 * memory, which no division moves, and the next step delivers it tensor by tensor. */

void *twill_gradients_result(const twill_gradients *set, int index)
{
    if (set == NULL || index < 0 || (uint32_t)index >= set->tensors)
        return NULL;
    const struct twill_train_tensor *tensor = &set->tensor[index];
    if (tensor->own != NULL)
        return tensor->own;
    return set->committed ? twill_tensor_place(set, tensor, set->late.delivered) : NULL;
}

/* Check that `call`, which needs options.late, may be made. Returns TWILL_ERR_ARGUMENT if the set
 * was created without it, or the error of a set that is not committed, broken or forked. Otherwise
 * returns TWILL_OK. */
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
    TWILL_TRY(NULL, deliver_outstanding(set, atomic_load(&set->step) - 1));
    set->late.outstanding = false;
    return TWILL_OK;
}

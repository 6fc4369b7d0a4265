/* SPDX-License-Identifier: Apache-2.0 */
/* A gradient set from its creation to its end. */
#include "lib/train/gradients.h"

#include "lib/base/lists.h"

#include <stdlib.h>
#include <string.h>

twill_status twill_gradients_create(twill_gradients **made, twill_comm *comm,
                                    const twill_gradients_options *options)
{
    struct twill_error error = {0};
    if (made == NULL)
        return TWILL_ERR_ARGUMENT;
    *made = NULL;
    twill_context *context = twill_comm_context(comm);
    if (context == NULL)
        return TWILL_ERR_ARGUMENT;
    struct twill_gradients *set = calloc(1, sizeof(*set));
    if (set == NULL)
        return twill_extend_fail(comm, TWILL_EXTEND_REFUSES, "twill_gradients_create",
                                 TWILL_ERR_MEMORY, "out of memory");
    set->process = twill_extend_process(context);
    set->parent = comm;
    twill_status status = twill_gradients_set_options(set, options, &error);
    if (status != TWILL_OK) {
        free(set);
        return twill_extend_fail(comm, TWILL_EXTEND_REFUSES, "twill_gradients_create", status, "%s",
                                 error.message);
    }
    set->late.on = set->options.late != 0;
    set->generations = set->late.on ? 2 : 1;
    *made = set;
    return TWILL_OK;
}

/* Check a tensor that is to be registered. Returns TWILL_OK or TWILL_ERR_ARGUMENT. */
static twill_status check_tensor(struct twill_gradients *set, const twill_tensor *tensor)
{
    if (set->committed)
        return TWILL_SET_REFUSE(set, "twill_gradients_add: call it before the commit");
    if (tensor == NULL || tensor->name == NULL || tensor->name[0] == '\0')
        return TWILL_SET_REFUSE(set, "twill_gradients_add: tensor %u has no name", set->tensors);
    const char *name = tensor->name;
    size_t width = twill_type_size(tensor->type);
    if (width == 0)
        return TWILL_SET_REFUSE(set, "tensor '%s': type %d is not a twill_type", name,
                                (int)tensor->type);
    if (tensor->count == 0 || tensor->count > SIZE_MAX / 4 / width)
        return TWILL_SET_REFUSE(set, "tensor '%s': count %zu is outside 1 .. %zu", name,
                                tensor->count, SIZE_MAX / 4 / width);
    if (set->tensors == TWILL_TENSORS_MOST)
        return TWILL_SET_REFUSE(set, "tensor '%s': the set has %u tensors, the maximum", name,
                                TWILL_TENSORS_MOST);
    bool is_float = TWILL_TYPES_OF_KIND(FLOAT) >> tensor->type & 1;
    if (set->options.scale != 1 && !is_float && !twill_type_is_narrow(tensor->type))
        return TWILL_SET_REFUSE(set, "tensor '%s': options.scale is for floats, not %s", name,
                                twill_type_name(tensor->type));
    return TWILL_OK;
}

/* Return TWILL_OK, or TWILL_ERR_ARGUMENT with the set's message if the name of a tensor is
 * registered already, or its gradient overlaps another in memory. */
static twill_status check_new(struct twill_gradients *set, const twill_tensor *tensor)
{
    const unsigned char *own = tensor->gradient;
    size_t bytes = tensor->count * twill_type_size(tensor->type);
    for (uint32_t t = 0; t < set->tensors; t++) {
        const struct twill_train_tensor *other = &set->tensor[t];
        if (strcmp(other->name, tensor->name) == 0)
            return TWILL_SET_REFUSE(set, "tensor '%s' is registered twice", tensor->name);
        if (own != NULL && other->own != NULL && own < other->own + other->bytes &&
            other->own < own + bytes)
            return TWILL_SET_REFUSE(set, "tensor '%s' overlaps tensor '%s' in memory", tensor->name,
                                    other->name);
    }
    return TWILL_OK;
}

twill_status twill_gradients_add(twill_gradients *set, const twill_tensor *tensor, int *index)
{
    if (set == NULL)
        return TWILL_ERR_ARGUMENT;
    TWILL_TRY(NULL, check_tensor(set, tensor));
    TWILL_TRY(NULL, check_new(set, tensor));
    if ((set->tensors & (set->tensors - 1)) == 0) { /* the allocated memory is full */
        void *grown = realloc(set->tensor, twill_max(2 * set->tensors, 1) * sizeof(*set->tensor));
        if (grown == NULL)
            return TWILL_ERR_MEMORY;
        set->tensor = grown;
    }
    char *name = strdup(tensor->name);
    if (name == NULL)
        return TWILL_ERR_MEMORY;
    set->tensor[set->tensors] =
        (struct twill_train_tensor){.name = name,
                                    .count = tensor->count,
                                    .bytes = tensor->count * twill_type_size(tensor->type),
                                    .type = tensor->type,
                                    .priority = tensor->priority,
                                    .own = tensor->gradient,
                                    .parameters = tensor->parameters,
                                    .raw = set->options.compression == TWILL_COMPRESS_NONE ||
                                           tensor->type != TWILL_F32 || tensor->uncompressed != 0};
    if (index != NULL)
        *index = (int)set->tensors;
    set->tensors++;
    return TWILL_OK;
}

/* Free the old buckets, divide the tensors into new ones, and prepare these. Returns the status. */
static twill_status prepare_buckets(struct twill_gradients *set)
{
    twill_gradients_await_markers(set);
    twill_reducers_unprepare(set);
    twill_compressor_unprepare(set);
    twill_set_free_buckets(set);
    atomic_store(&set->step, 0);
    TWILL_TRY(&set->error, twill_set_divide(set));
    TWILL_TRY(&set->error, twill_dense_prepare(set));
    TWILL_TRY(&set->error, twill_compressor_prepare(set));
    twill_set_promote(set);
    return twill_reducers_prepare(set);
}

/* Divide the tensors into buckets by the present options. The optimizer's state, if there already
 * is one, is saved before and restored to the new buckets. Collective. Returns TWILL_OK or the
 * error. */
static twill_status divide_anew(struct twill_gradients *set)
{
    void *state = NULL;
    size_t bytes = 0;
    TWILL_TRY(NULL, twill_gradients_carry(set));
    if (set->update == NULL || set->update->bucket == NULL)
        return prepare_buckets(set);
    twill_status status = twill_state_save(set, &state, &bytes);
    if (status != TWILL_OK)
        return twill_set_fail_with(set, set->comm, "twill_gradients_wait_all", status,
                                   "out of memory for the optimizer's state");
    status = prepare_buckets(set);
    if (status != TWILL_OK) {
        free(state);
        return status;
    }
    TWILL_TRY(NULL, twill_state_restore(set, state, bytes));
    if (set->late.carried)
        twill_update_load_carried(set);
    return TWILL_OK;
}

twill_status twill_gradients_prepare(struct twill_gradients *set)
{
    TWILL_TRY(NULL, divide_anew(set));
    atomic_store_explicit(&set->usage.buckets, twill_buckets_of_step(set), memory_order_relaxed);
    if (set->update != NULL)
        atomic_store_explicit(&set->usage.state_bytes, set->update->state_bytes,
                              memory_order_relaxed);
    return TWILL_OK;
}

/* Run the steps of the commit, until one fails. Collective. Returns TWILL_OK or the error. */
static twill_status commit_set(struct twill_gradients *set)
{
    TWILL_TRY(&set->error, twill_gradients_compare_tensors(set));
    TWILL_TRY(&set->error, twill_reducers_open(set));
    TWILL_TRY(&set->error, twill_set_place(set));
    TWILL_TRY(&set->error, twill_compressor_open(set));
    if (set->update != NULL)
        TWILL_TRY(&set->error, twill_update_open(set));
    TWILL_TRY(&set->error, twill_dense_choose(set));
    TWILL_TRY(&set->error, twill_searches_begin(set));
    TWILL_TRY(&set->error, twill_gradients_prepare(set));
    return twill_set_check(set, set->comm, twill_barrier(set->comm)); /* fails if a rank has */
}

/* Break a set that has communicators on all ranks, unless it is broken, with this rank's reason,
 * set->error. Have the reducers of a broken set end. Returns the status. */
static twill_status fail_commit(struct twill_gradients *set, twill_status status)
{
    struct twill_error own = set->error;
    if (!set->broken && set->reducers > 0) {
        for (uint32_t l = 0; l < set->reducers; l++)
            twill_reducer_thread_stop(&set->reducer[l]);
        twill_error_clear(&set->error);
        status = twill_set_fail_with(set, set->comm, "twill_gradients_commit", status, own.message);
    }
    return twill_reducers_check(set, status);
}

twill_status twill_gradients_commit(twill_gradients *set)
{
    if (set == NULL)
        return TWILL_ERR_ARGUMENT;
    if (set->broken)
        return TWILL_ERR_BROKEN;
    if (set->committed)
        return TWILL_SET_REFUSE(set, "twill_gradients_commit() was called before");
    twill_status status = commit_set(set);
    if (status != TWILL_OK) {
        status = fail_commit(set, status);
        atomic_store(&set->broken, true);
        return status;
    }
    set->committed = true;
    set->late.delivered = set->generations - 1;
    for (uint32_t t = 0; t < set->tensors; t++)
        twill_extend_name_tensor(set->parent, t, set->tensor[t].name);
    return TWILL_OK;
}

void *twill_gradients_memory(const twill_gradients *set, int index)
{
    if (set == NULL || index < 0 || (uint32_t)index >= set->tensors)
        return NULL;
    const struct twill_train_tensor *tensor = &set->tensor[index];
    if (tensor->own != NULL)
        return tensor->own;
    if (!set->committed)
        return NULL;
    uint64_t step = atomic_load_explicit(&set->step, memory_order_acquire);
    return twill_tensor_place(set, tensor, (uint32_t)(step % set->generations));
}

twill_status twill_gradients_state_import(twill_gradients *set, const void *const *states,
                                          const size_t *bytes, size_t count)
{
    TWILL_TRY(NULL, twill_update_check_between(set, "twill_gradients_state_import"));
    return twill_reducers_check(set, twill_state_import(set, states, bytes, count));
}

twill_status twill_gradients_check(twill_gradients *set)
{
    TWILL_TRY(NULL, twill_set_check_usable(set, "twill_gradients_check"));
    TWILL_TRY(NULL, twill_gradients_finish_late(set));
    return twill_gradients_compare_parameters(set);
}

twill_status twill_gradients_count(const twill_gradients *set, twill_gradients_counters *counters)
{
    if (set == NULL || counters == NULL)
        return TWILL_ERR_ARGUMENT;
    const struct twill_gradients_usage *usage = &set->usage;
    *counters = (twill_gradients_counters){
        .steps = twill_counter_read(&usage->steps),
        .operations = atomic_load_explicit(&usage->operations, memory_order_relaxed),
        .bytes = twill_counter_read(&usage->bytes),
        .bytes_copied = atomic_load_explicit(&usage->bytes_copied, memory_order_relaxed),
        .bytes_exchanged = twill_counter_read(&usage->bytes_exchanged),
        .bytes_converted = atomic_load_explicit(&usage->bytes_converted, memory_order_relaxed),
        .buckets = atomic_load_explicit(&usage->buckets, memory_order_relaxed),
        .state_bytes = atomic_load_explicit(&usage->state_bytes, memory_order_relaxed),
        .agreements = atomic_load_explicit(&usage->agreements, memory_order_relaxed),
        .seconds_exposed =
            (double)atomic_load_explicit(&usage->ns_exposed, memory_order_relaxed) * 1e-9};
    if (set->update != NULL)
        counters->gradient_norm = set->update->norm;
    return TWILL_OK;
}

void twill_gradients_destroy(twill_gradients *set)
{
    if (set == NULL || *set->process.fork_guard == 0) /* it belongs to the parent */
        return;
    if (set->committed) {
        twill_gradients_await_markers(set);
        twill_reducers_finish(set);
        twill_gradients_report(set, true);
    }
    twill_reducers_unprepare(set);
    twill_compressor_unprepare(set);
    twill_compressor_close(set);
    twill_set_free_buckets(set);
    twill_reducers_close(set);
    twill_update_close(set);
    for (int type = 0; type < TWILL_TYPE_COUNT; type++) {
        (void)twill_free(set->process.context, set->arena[type].memory);
        if (set->arena[type].op >= TWILL_OP_CREATED)
            (void)twill_op_destroy(set->process.context, set->arena[type].op);
    }
    twill_searches_free(set);
    for (uint32_t t = 0; t < set->tensors; t++) {
        if (set->tensor[t].promoted)
            (void)twill_demote(set->process.context, set->tensor[t].own);
        free(set->tensor[t].name);
        free(set->tensor[t].dense);
    }
    free(set->tensor);
    free(set->backward);
    free(set);
}

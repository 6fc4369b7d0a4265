/* SPDX-License-Identifier: Apache-2.0 */
/* User-defined operations: create, find, destroy. */
#include "lib/job/operation.h"
#include "lib/base/lists.h"
#include "lib/job/job_internal.h"

#include <string.h>

const struct twill_operation *twill_context_operation(const struct twill_context *context,
                                                      twill_op op)
{
    unsigned index = (unsigned)op - TWILL_OP_CREATED;
    if (index >= TWILL_OPERATIONS ||
        !atomic_load_explicit(&context->operations->taken[index], memory_order_acquire))
        return NULL;
    return &context->operations->slot[index];
}

twill_op twill_context_operation_kind(const struct twill_context *context, twill_op op)
{
    const struct twill_operation *operation = twill_context_operation(context, op);
    if (operation == NULL)
        return op;
    unsigned kind = (unsigned)operation->commutative | (unsigned)operation->scaled << 1 |
                    (unsigned)operation->narrow << 2 | (unsigned)operation->element << 3;
    return (twill_op)(TWILL_OP_CREATED + kind);
}
_Static_assert(TWILL_OP_CREATED + (TWILL_OPERATION_MOST << 3) + 7 <= UINT16_MAX,
               "the kind of an operation fits the 16 bits that ranks compare");

/* Store the operation in a free slot and set *op. Returns the error that checking the arguments has
 * left in `error`, or TWILL_ERR_MEMORY if no slot is free, and keeps it in the context. Returns
 * TWILL_ERR_ARGUMENT if `context` is NULL or not ready. */
static twill_status store_operation(twill_context *context, twill_op *op,
                                    const struct twill_operation *operation,
                                    struct twill_error *error)
{
    unsigned index = 0;
    if (context == NULL || !context->ready)
        return TWILL_ERR_ARGUMENT;
    if (error->status != TWILL_OK)
        return twill_context_outcome(context, error->status, error);
    twill_context_lock(context);
    while (index < TWILL_OPERATIONS &&
           atomic_load_explicit(&context->operations->taken[index], memory_order_relaxed))
        index++;
    if (index < TWILL_OPERATIONS) {
        context->operations->slot[index] = *operation;
        atomic_store_explicit(&context->operations->taken[index], true, memory_order_release);
        *op = (twill_op)(TWILL_OP_CREATED + index);
    }
    twill_context_unlock(context);
    if (index == TWILL_OPERATIONS)
        (void)TWILL_FAIL(error, TWILL_ERR_MEMORY,
                         "op: the context has %u operations already, which is the maximum",
                         TWILL_OPERATIONS);
    return twill_context_outcome(context, error->status, error);
}

twill_status twill_op_create(twill_context *context, twill_op *op, twill_op_fn function, void *user,
                             size_t element_bytes, int commutative)
{
    struct twill_error error = {0};
    const struct twill_operation operation = {.function = function,
                                              .user = user,
                                              .element = element_bytes,
                                              .commutative = commutative != 0};
    if (op == NULL || function == NULL)
        (void)TWILL_FAIL(&error, TWILL_ERR_ARGUMENT, "twill_op_create: %s is NULL",
                         op == NULL ? "op" : "function");
    else if (element_bytes > TWILL_OPERATION_MOST)
        (void)TWILL_FAIL(&error, TWILL_ERR_ARGUMENT,
                         "twill_op_create: element_bytes %zu is outside 0 .. %u", element_bytes,
                         TWILL_OPERATION_MOST);
    return store_operation(context, op, &operation, &error);
}

/* Return the bytes of the factor by which a scaled sum over `type` multiplies its inputs. It is an
 * element of that type or, for floats of 8 or 16 bits, a float. */
static size_t factor_bytes(twill_type type)
{
    return twill_type_is_narrow(type) ? sizeof(float) : twill_type_size(type);
}

twill_status twill_op_create_scaled(twill_context *context, twill_op *op, twill_type type,
                                    const void *factor)
{
    struct twill_error error = {0};
    struct twill_operation operation = {.scaled = true, .commutative = true, .type = type};
    if (op == NULL || factor == NULL)
        (void)TWILL_FAIL(&error, TWILL_ERR_ARGUMENT, "twill_op_create_scaled: %s is NULL",
                         op == NULL ? "op" : "factor");
    else if (twill_type_size(type) == 0)
        (void)TWILL_FAIL(&error, TWILL_ERR_ARGUMENT,
                         "twill_op_create_scaled: type %d is not a twill_type", (int)type);
    else
        memcpy(operation.factor, factor, factor_bytes(type));
    return store_operation(context, op, &operation, &error);
}

twill_status twill_op_create_narrow(twill_context *context, twill_op *op, twill_type type,
                                    const float *before, const float *after)
{
    struct twill_error error = {0};
    struct twill_operation operation = {.narrow = true,
                                        .scaled = before != NULL,
                                        .finishes = after != NULL,
                                        .after = after != NULL ? *after : 1,
                                        .commutative = true,
                                        .type = type};
    if (before != NULL)
        memcpy(operation.factor, before, sizeof(*before));
    if (op == NULL)
        (void)TWILL_FAIL(&error, TWILL_ERR_ARGUMENT, "twill_op_create_narrow: op is NULL");
    else if (!twill_type_is_narrow(type))
        (void)TWILL_FAIL(&error, TWILL_ERR_ARGUMENT,
                         "twill_op_create_narrow: type %d is not a float of 8 or 16 bits",
                         (int)type);
    return store_operation(context, op, &operation, &error);
}

twill_status twill_op_destroy(twill_context *context, twill_op op)
{
    struct twill_error error = {0};
    twill_status status = TWILL_OK;
    if (context == NULL || !context->ready)
        return TWILL_ERR_ARGUMENT;
    twill_context_lock(context);
    if (twill_context_operation(context, op) != NULL)
        atomic_store_explicit(&context->operations->taken[(unsigned)op - TWILL_OP_CREATED], false,
                              memory_order_release);
    else
        status = TWILL_FAIL(&error, TWILL_ERR_ARGUMENT,
                            "twill_op_destroy: op %d was not made by twill_op_create()", (int)op);
    twill_context_unlock(context);
    return twill_context_outcome(context, status, &error);
}

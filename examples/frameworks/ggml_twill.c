/* SPDX-License-Identifier: Apache-2.0 */
#include "ggml_twill.h"

#include <ggml.h>
#include <stdlib.h>
#include <string.h>
#include <twill.h>

struct ggml_twill {
    twill_comm *comm;
    size_t count;    /* tensors of this process in a sum */
    float *sum;      /* [most elements of a sum so far] */
    size_t elements; /* of sum */
};

/* Set *type to twill's type for a tensor. Returns false if there is none, as for quantized ones. */
static bool find_type(enum ggml_type ggml, twill_type *type)
{
    switch (ggml) {
    case GGML_TYPE_F32:
        return *type = TWILL_F32, true;
    case GGML_TYPE_F16:
        return *type = TWILL_F16, true;
    case GGML_TYPE_BF16:
        return *type = TWILL_BF16, true;
    case GGML_TYPE_F64:
        return *type = TWILL_F64, true;
    case GGML_TYPE_I8:
        return *type = TWILL_I8, true;
    case GGML_TYPE_I16:
        return *type = TWILL_I16, true;
    case GGML_TYPE_I32:
        return *type = TWILL_I32, true;
    case GGML_TYPE_I64:
        return *type = TWILL_I64, true;
    default:
        return false;
    }
}

static void check(const struct ggml_twill *twill, twill_status status)
{
    if (status != TWILL_OK)
        ggml_abort(__FILE__, __LINE__, "%s", twill_comm_message(twill->comm));
}

void *twill_ggml_comm_init(ggml_backend_t *backends, size_t count)
{
    (void)backends;
    struct ggml_twill *twill = calloc(1, sizeof(*twill));
    if (twill == NULL || twill_init(&twill->comm) != TWILL_OK) {
        free(twill);
        return NULL;
    }
    twill->count = count;
    return twill;
}

void twill_ggml_comm_free(void *comm)
{
    struct ggml_twill *twill = comm;
    if (twill == NULL)
        return;
    twill_finalize(twill->comm);
    free(twill->sum);
    free(twill);
}

/* --- several tensors, or rows with strides: in order, as floats ------------------------------- */

/* A function that converts a row of n elements at `row` from or to floats, and may add them. */
typedef void move_row(enum ggml_type type, char *row, float *floats, int64_t n);

static void add_row(enum ggml_type type, char *row, float *floats, int64_t n)
{
    float part[256];
    for (int64_t at = 0; at < n; at += 256) {
        int64_t some = n - at < 256 ? n - at : 256;
        const float *from = part;
        if (type == GGML_TYPE_F16)
            ggml_fp16_to_fp32_row((const ggml_fp16_t *)row + at, part, some);
        else if (type == GGML_TYPE_BF16)
            ggml_bf16_to_fp32_row((const ggml_bf16_t *)row + at, part, some);
        else
            from = (const float *)row + at;
        for (int64_t i = 0; i < some; i++)
            floats[at + i] += from[i];
    }
}

static void store_row(enum ggml_type type, char *row, float *floats, int64_t n)
{
    if (type == GGML_TYPE_F16)
        ggml_fp32_to_fp16_row(floats, (ggml_fp16_t *)row, n);
    else if (type == GGML_TYPE_BF16)
        ggml_fp32_to_bf16_row(floats, (ggml_bf16_t *)row, n);
    else
        memcpy(row, floats, (size_t)n * sizeof(float));
}

/* Call move() for each row of a tensor, with its place in twill->sum. */
static void move_rows(const struct ggml_twill *twill, const struct ggml_tensor *tensor,
                      move_row *move)
{
    float *at = twill->sum;
    for (int64_t k = 0; k < tensor->ne[3]; k++)
        for (int64_t j = 0; j < tensor->ne[2]; j++)
            for (int64_t i = 0; i < tensor->ne[1]; i++, at += tensor->ne[0])
                move(tensor->type,
                     (char *)tensor->data + (size_t)i * tensor->nb[1] + (size_t)j * tensor->nb[2] +
                         (size_t)k * tensor->nb[3],
                     at, tensor->ne[0]);
}

static void sum_as_floats(struct ggml_twill *twill, struct ggml_tensor **tensors, size_t elements)
{
    if (elements > twill->elements) {
        free(twill->sum);
        twill->sum = malloc(elements * sizeof(float));
        if (twill->sum == NULL)
            ggml_abort(__FILE__, __LINE__, "no memory for a sum of %zu elements", elements);
        twill->elements = elements;
    }
    memset(twill->sum, 0, elements * sizeof(float));
    for (size_t t = 0; t < twill->count; t++)
        if (tensors[t]->flags & GGML_TENSOR_FLAG_COMPUTE) /* what others hold is not a value */
            move_rows(twill, tensors[t], add_row);
    check(twill,
          twill_allreduce(twill->comm, twill->sum, twill->sum, elements, TWILL_F32, TWILL_SUM));
    for (size_t t = 0; t < twill->count; t++)
        move_rows(twill, tensors[t], store_row);
}

bool twill_ggml_comm_allreduce_tensor(void *comm, struct ggml_tensor **tensors)
{
    struct ggml_twill *twill = comm;
    struct ggml_tensor *first = tensors[0];
    size_t elements = (size_t)ggml_nelements(first);
    twill_type type;
    bool known = find_type(first->type, &type);
    bool is_float = known && (type == TWILL_F32 || type == TWILL_F16 || type == TWILL_BF16);
    for (size_t t = 0; t < twill->count; t++)
        known = known && tensors[t]->type == first->type && tensors[t]->data != NULL &&
                (size_t)ggml_nelements(tensors[t]) == elements &&
                tensors[t]->nb[0] == ggml_type_size(first->type);
    bool direct = known && twill->count == 1 && ggml_is_contiguous(first);
    if (!known || (!direct && !is_float)) {
        if (twill_comm_size(twill->comm) == 1)
            return false;
        ggml_abort(__FILE__, __LINE__, "twill has no sum for tensor %s of type %s", first->name,
                   ggml_type_name(first->type));
    }
    if (direct && !(first->flags & GGML_TENSOR_FLAG_COMPUTE))
        memset(first->data, 0, ggml_nbytes(first));
    if (elements == 0)
        return true;
    if (direct)
        check(twill,
              twill_allreduce(twill->comm, first->data, first->data, elements, type, TWILL_SUM));
    else
        sum_as_floats(twill, tensors, elements);
    return true;
}

void twill_ggml_sum(struct ggml_tensor *dst, const struct ggml_tensor *src, int thread, int threads,
                    void *comm)
{
    const struct ggml_twill *twill = comm;
    twill_type type;
    if (!find_type(src->type, &type) || !ggml_is_contiguous(src) || !ggml_is_contiguous(dst))
        ggml_abort(__FILE__, __LINE__, "twill sums up contiguous tensors of numbers, not %s",
                   src->name);
    check(twill,
          twill_allreduce_team(twill->comm, src->data, dst->data, (size_t)ggml_nelements(src), type,
                               TWILL_SUM, thread, threads));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The functions by which LightGBM's distributed training communicates (twill_lightgbm.h). */
#include "lib/comm/comm.h"
#include "lib/twill_lightgbm.h"

#include <stdlib.h>
#include <string.h>

#define BLOCKS_ON_STACK 64 /* blocks of a call that need no malloc() */

/* The blocks of a call, one for each rank, in elements, which in an allgather are bytes. Block i
 * has bytes[i] elements, and start[i] is the index of its first one. Both arrays lie in stack[] or,
 * if there are many blocks, in one allocation. open_blocks() fills it, and close_blocks() frees
 * it. */
struct lightgbm_blocks {
    size_t *bytes, *start;
    size_t stack[2 * BLOCKS_ON_STACK];
};

/* Free the arrays of the blocks, if they are not in stack[]. */
static void close_blocks(struct lightgbm_blocks *blocks)
{
    if (blocks->bytes != blocks->stack)
        free(blocks->bytes);
}

/* Convert LightGBM's blocks to elements. Returns false if that is not possible. The caller then
 * passes arguments that make the call fail on all ranks. */
static bool open_blocks(struct lightgbm_blocks *blocks, const twill_comm *comm,
                        const int32_t *start, const int32_t *bytes, int count, int element)
{
    blocks->bytes = blocks->stack;
    if (count < 1 || count != twill_comm_size(comm) || element < 1)
        return false;
    if (count > BLOCKS_ON_STACK)
        blocks->bytes = calloc((size_t)count, 2 * sizeof(*blocks->bytes));
    if (blocks->bytes == NULL)
        return false;
    blocks->start = blocks->bytes + count;
    for (int i = 0; i < count; i++) {
        if (start[i] < 0 || bytes[i] < 0 || start[i] % element != 0 || bytes[i] % element != 0)
            return false;
        blocks->start[i] = (size_t)(start[i] / element);
        blocks->bytes[i] = (size_t)(bytes[i] / element);
    }
    return true;
}

/* Return whether the blocks follow each other, as those of a reduce_scatterv must. */
static bool follow_each_other(const struct lightgbm_blocks *blocks, int count)
{
    size_t next = 0;
    for (int i = 0; i < count; i++) {
        if (blocks->bytes[i] > 0 && blocks->start[i] != next)
            return false;
        next += blocks->bytes[i];
    }
    return true;
}

/* The argument `user` of reduce_elements(), on the stack of the call. `element` is in bytes. */
struct reducing {
    twill_lightgbm_reducer reducer;
    int element;
};

/* The twill_op_fn that calls LightGBM's reducer of `user`, a struct reducing. Reducers commute, as
 * they are sums, or the better of two splits with an order that decides ties. */
static void reduce_elements(const void *left, const void *right, void *result, size_t count,
                            twill_type type, void *user)
{
    const struct reducing *reducing = user;
    size_t bytes = count * (size_t)reducing->element;
    (void)type;
    if (result == right) {
        right = left;
    } else if (result != left) {
        memcpy(result, left, bytes);
    }
    reducing->reducer(right, result, reducing->element, (int32_t)bytes);
}

/* Free the blocks, and fill output[bytes] with zeros if the call has failed. Returns `status`. */
static twill_status end_blocks(struct lightgbm_blocks *blocks, twill_status status, void *output,
                               int32_t bytes)
{
    close_blocks(blocks);
    if (status != TWILL_OK && output != NULL && bytes > 0)
        memset(output, 0, (size_t)bytes);
    return status;
}

twill_status twill_lightgbm_reduce_scatter(twill_comm *comm, void *input, int32_t input_bytes,
                                           int element_bytes, const int32_t *block_start,
                                           const int32_t *block_bytes, int blocks, void *output,
                                           int32_t output_bytes,
                                           const twill_lightgbm_reducer *reducer)
{
    struct lightgbm_blocks given = {0};
    struct reducing reducing = {*reducer, element_bytes};
    twill_op op = TWILL_SUM;
    twill_context *context = twill_comm_context(comm);
    bool good = open_blocks(&given, comm, block_start, block_bytes, blocks, element_bytes) &&
                follow_each_other(&given, blocks) && input_bytes >= 0 &&
                twill_op_create(context, &op, reduce_elements, &reducing, (size_t)element_bytes,
                                1) == TWILL_OK;
    /* Without counts the call fails on all ranks, even if only this one has bad arguments. */
    twill_status status = twill_reduce_scatterv(comm, good ? input : NULL, output,
                                                good ? given.bytes : NULL, TWILL_U8, op);
    if (good)
        (void)twill_op_destroy(context, op);
    return end_blocks(&given, status, output, output_bytes);
}

twill_status twill_lightgbm_allgather(twill_comm *comm, void *input, int32_t input_bytes,
                                      const int32_t *block_start, const int32_t *block_bytes,
                                      int blocks, void *output, int32_t output_bytes)
{
    struct lightgbm_blocks given = {0};
    bool good = open_blocks(&given, comm, block_start, block_bytes, blocks, 1) &&
                input_bytes == block_bytes[twill_comm_rank(comm)];
    char *mine = good ? (char *)output + given.start[twill_comm_rank(comm)] : NULL;
    if (good)
        memmove(mine, input, (size_t)input_bytes); /* input may overlap the output */
    twill_status status = twill_allgatherv(comm, mine, output, good ? given.bytes : NULL,
                                           good ? given.start : NULL, TWILL_U8);
    return end_blocks(&given, status, output, output_bytes);
}

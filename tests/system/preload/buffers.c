/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that uses malloc only: collectives on malloc'd buffers, every value checked. Prints how
 * many calls were wrong, and whether bytes went through bounce memory: none if all ranks' malloc is
 * libtwill-heap.so's. */
#include "lib/twill.h"
#include "tests/support/collectives.h"

#include <stdio.h>

static const struct test_call calls[] = {
    {.collective = TWILL_ALLREDUCE}, {.collective = TWILL_ALLREDUCE, .in_place = true},
    {.collective = TWILL_ALLGATHER}, {.collective = TWILL_REDUCE_SCATTER},
    {.collective = TWILL_BROADCAST}, {.collective = TWILL_BROADCAST, .in_place = true},
};
static const size_t counts[] = {16384, 50000, 1 << 18, 3 << 19};

/* Make a call with new buffers. Returns whether it was right. */
static bool make_call(const struct test_call *like, size_t count, twill_comm *comm)
{
    struct test_call call = *like;
    struct test_buffers buffers;
    twill_context *context = twill_comm_context(comm);
    call.type = TWILL_I32;
    call.op = TWILL_SUM;
    call.count = count;
    call.root = twill_comm_size(comm) - 1;
    if (!test_buffers_get(&buffers, context, test_call_bytes(&call, twill_comm_size(comm)), 0,
                          false))
        return false;
    bool right = test_call_check(&call, comm, &buffers);
    test_buffers_put(&buffers, context, false);
    return right;
}

int main(void)
{
    twill_context *context;
    twill_comm *comm;
    twill_counters counters;
    long wrong = 0;
    if (twill_context_create(&context, NULL, NULL) != TWILL_OK ||
        twill_comm_create(&comm, context) != TWILL_OK) {
        fprintf(stderr, "%s\n", twill_context_message(context));
        return 1;
    }
    for (int round = 0; round < 5; round++)
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(counts) * TWILL_ARRAY_LENGTH(calls); i++)
            wrong += !make_call(&calls[i % TWILL_ARRAY_LENGTH(calls)],
                                counts[i / TWILL_ARRAY_LENGTH(calls)], comm);
    if (twill_comm_counters(comm, &counters) != TWILL_OK || twill_barrier(comm) != TWILL_OK)
        wrong++;
    void *placed;
    if (twill_alloc(context, &placed, 1 << 20) != TWILL_OK ||
        twill_free(context, placed) != TWILL_OK || twill_free(context, &counters) == TWILL_OK)
        wrong++;
    printf("rank %d: %ld wrong, %s%s\n", twill_comm_rank(comm), wrong,
           counters.bytes_copied == 0 ? "nothing staged" : "staged",
           wrong > 0 ? twill_comm_message(comm) : "");
    twill_comm_destroy(comm);
    twill_context_destroy(context);
    return wrong != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Any collective call in any form, with a payload that differs by rank and position, and the
 * expected contents of both buffers, computed serially. */
#ifndef TWILL_COLLECTIVES_H
#define TWILL_COLLECTIVES_H

#include "algorithms/algorithms.h"

enum test_form { TEST_BLOCKING, TEST_STARTED, TEST_PERSISTENT, TEST_FORM_COUNT };

struct test_call {
    enum twill_collective collective;
    bool vector; /* the variant with counts */
    twill_type type;
    twill_op op;   /* or a TEST_OP of payload.h, which test_call_check() creates */
    twill_op made; /* the created operation */
    size_t count;  /* of a shard; in vector calls approximately */
    int root;
    bool in_place; /* may differ between ranks */
    enum test_form form;
    uint32_t turn; /* selects the payload's values */
    /* Called by test_call_check() before the call, unless NULL. It reads `answer`. */
    void (*ask)(const struct test_call *call, twill_comm *comm);
    void *answer;
};

/* Buffers of one rank; memory by malloc() or twill_alloc(). */
struct test_buffers {
    unsigned char *src, *dst;           /* passed to twill */
    unsigned char *src_want, *dst_want; /* expected contents */
    size_t bytes;                       /* of each buffer */
};

/* Allocate buffers of `bytes` bytes, src and dst with some more to move them in; heap: those two by
 * twill_alloc(). Returns false after noting a failure. */
bool test_buffers_get(struct test_buffers *buffers, twill_context *context, size_t bytes,
                      size_t more, bool heap);
void test_buffers_put(struct test_buffers *buffers, twill_context *context, bool heap);

/* Return whether type, operation and variant exist together. */
bool test_call_exists(const struct test_call *call);
/* Return the bytes that each buffer needs on `size` ranks. */
size_t test_call_bytes(const struct test_call *call, int size);
/* Return the elements of all shards together, of rank 0 in an alltoallv. */
size_t test_call_elements(const struct test_call *call, int size);
/* Describe the call, for messages. */
void test_call_name(const struct test_call *call, char *text, size_t bytes);
/* Fill the buffers, make the call, compare everything. Returns false after noting a failure
 * (ranks.h). */
bool test_call_check(const struct test_call *call, twill_comm *comm,
                     const struct test_buffers *buffers);
/* The steps of test_call_check(), for calls that overlap: fill, start (TEST_BLOCKING: run),
 * compare. */
void test_call_fill(const struct test_call *call, int rank, int size,
                    const struct test_buffers *buffers);
twill_status test_call_begin(const struct test_call *call, twill_comm *comm,
                             const struct test_buffers *buffers, twill_request **request);
bool test_call_compare(const struct test_call *call, int rank, int size,
                       const struct test_buffers *buffers);

#endif

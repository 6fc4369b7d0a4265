/* SPDX-License-Identifier: Apache-2.0 */
/* Any collective call in any form, with a payload that tells ranks and positions apart, and the
 * serial oracle of what every byte of both buffers must be afterwards. */
#ifndef TWILL_COLLECTIVES_H
#define TWILL_COLLECTIVES_H

#include "algorithms/algorithms.h"

enum test_form { TEST_BLOCKING, TEST_STARTED, TEST_PERSISTENT, TEST_FORM_COUNT };

struct test_call {
    enum twill_collective collective;
    bool vector; /* the variant with counts, where there is one */
    twill_type type;
    twill_op op;   /* or a TEST_OP of payload.h: test_call_check() makes it */
    twill_op made; /* by it */
    size_t count;  /* of one part; of vectors about so many */
    int root;
    bool in_place; /* a rank's own business */
    enum test_form form;
    uint32_t turn; /* calls that differ in it have other values */
};

/* Buffers of one rank; memory by malloc() or twill_alloc(). */
struct test_buffers {
    unsigned char *src, *dst;           /* handed to twill */
    unsigned char *src_want, *dst_want; /* what they must be */
    size_t bytes;                       /* of each */
};

/* Is there such a call: type and operation go together, the variant exists? */
bool test_call_exists(const struct test_call *call);
/* Bytes that each buffer must have on `size` ranks. */
size_t test_call_bytes(const struct test_call *call, int size);
/* What the call is, for messages. */
void test_call_name(const struct test_call *call, char *text, size_t bytes);
/* Fill in, call, compare everything. Notes the failure (tests/support/ranks.h) and returns false.
 */
bool test_call_check(const struct test_call *call, twill_comm *comm,
                     const struct test_buffers *buffers);
/* The pieces of it, for calls that overlap: prepare, begin (with TEST_BLOCKING: do), compare. */
void test_call_fill(const struct test_call *call, int rank, int size,
                    const struct test_buffers *buffers);
twill_status test_call_begin(const struct test_call *call, twill_comm *comm,
                             const struct test_buffers *buffers, twill_request **request);
bool test_call_compare(const struct test_call *call, int rank, int size,
                       const struct test_buffers *buffers);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of every collective, and the expected value of every byte of the buffers. */
#include "tests/support/collectives.h"
#include "lib/base/lists.h"
#include "tests/support/payload.h"
#include "tests/support/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNTOUCHED         0xa5
#define COLLECTIVES_GUARD 64u /* bytes behind each buffer */

enum { COLLECTIVES_MOST_RANKS = 64 };

/* Counts and offsets of the shards as one rank passes them, in elements. */
struct shards {
    size_t src_count[COLLECTIVES_MOST_RANKS], src_at[COLLECTIVES_MOST_RANKS];
    size_t dst_count[COLLECTIVES_MOST_RANKS], dst_at[COLLECTIVES_MOST_RANKS];
};

static const struct twill_collective_facts *call_facts(const struct test_call *call)
{
    return twill_collective_facts(call->collective);
}

bool test_call_exists(const struct test_call *call)
{
    const struct twill_collective_facts *facts = call_facts(call);
    if (call->vector && (!facts->sharded || (call->collective == TWILL_ALLTOALL && call->in_place)))
        return false;
    return facts->reduces ? test_payload_takes(call->type, call->op) : call->op == TWILL_SUM;
}

/* Return the elements that rank `from` has for a shard; equal on all ranks. */
static size_t call_elements(const struct test_call *call, int from, int shard)
{
    if (!call->vector)
        return call->count;
    int of = call->collective == TWILL_ALLTOALL ? from * 3 + shard : shard;
    return (call->count + (size_t)of * 5) % (call->count + 3);
}

static size_t call_most(const struct test_call *call)
{
    return call->vector ? call->count + 2 : call->count;
}

size_t test_call_bytes(const struct test_call *call, int size)
{
    size_t shards = call_facts(call)->sharded ? (size_t)size : 1;
    return (call_most(call) + 1) * shards * test_payload_element(call->type, call->op) +
           COLLECTIVES_GUARD;
}

size_t test_call_elements(const struct test_call *call, int size)
{
    size_t sum = 0;
    for (int shard = 0; shard < (call_facts(call)->sharded ? size : 1); shard++)
        sum += call_elements(call, 0, shard);
    return sum;
}

/* Lay out shards. Vector calls with offsets have them in reverse order, with a gap of one element
 * after each; reduce_scatterv has no offsets. */
static void lay_out_vectors(const struct test_call *call, size_t *count, size_t *at, int size,
                            int rank, bool gives)
{
    bool packed = !call->vector || call->collective == TWILL_REDUCE_SCATTER;
    bool exchange = call->collective == TWILL_ALLTOALL;
    size_t next = 0;
    for (int i = 0; i < size; i++) {
        int shard = packed ? i : size - 1 - i;
        count[shard] = gives || !exchange ? call_elements(call, rank, shard)
                                          : call_elements(call, shard, rank);
        at[shard] = next;
        next += count[shard] + !packed;
    }
}

static void describe_vectors(const struct test_call *call, int size, int rank,
                             struct shards *shards)
{
    lay_out_vectors(call, shards->src_count, shards->src_at, size, rank, true);
    lay_out_vectors(call, shards->dst_count, shards->dst_at, size, rank, false);
}

/* Return a shard's offset in a buffer; a buffer of one shard starts with it. */
static size_t at_of(enum twill_holder holder, const size_t *at, int shard)
{
    return holder == TWILL_HOLDS_OWN ? 0 : at[shard];
}

static struct twill_shape shape_of(const struct test_call *call)
{
    return (struct twill_shape){
        .collective = call->collective, .root = (uint32_t)call->root, .vector = call->vector};
}

/* The two buffers of a call. In place they are one, and one pointer points into the other's
 * buffer. */
struct pointers {
    unsigned char *src, *dst;
};

static struct pointers pointers_of(const struct test_call *call, int rank,
                                   const struct shards *shards, unsigned char *src,
                                   unsigned char *dst)
{
    const struct twill_collective_facts *facts = call_facts(call);
    size_t element = test_payload_element(call->type, call->op);
    struct pointers p = {src, dst};
    bool root = !facts->rooted || rank == call->root;
    if (!call->in_place || !root)
        return p;
    if (facts->src == TWILL_HOLDS_OWN)
        p.src = dst + shards->dst_at[rank] * element;
    else if (facts->dst == TWILL_HOLDS_OWN)
        p.dst = src + shards->src_at[rank] * element;
    else
        p.src = dst;
    return p;
}

/* Return a shard's first position in the payload. */
static uint64_t first_position(const struct test_call *call, int shard)
{
    return (uint64_t)shard * 977 + call->turn;
}

/* Write a shard of a rank's input, or of its expected result, into the buffer at `base`. */
static void put_input(const struct test_call *call, int rank, int shard, unsigned char *base,
                      const struct shards *shards)
{
    size_t element = test_payload_element(call->type, call->op);
    size_t at = at_of(call_facts(call)->src, shards->src_at, shard);
    test_payload(base + at * element,
                 call_facts(call)->sharded ? shards->src_count[shard] : call->count,
                 first_position(call, shard), call->type, call->op, rank);
}

static void put_result(const struct test_call *call, int rank, int size, int shard,
                       unsigned char *base, const struct shards *shards)
{
    const struct twill_collective_facts *facts = call_facts(call);
    size_t element = test_payload_element(call->type, call->op);
    size_t count = facts->sharded ? shards->dst_count[shard] : call->count;
    unsigned char *at = base + at_of(facts->dst, shards->dst_at, shard) * element;
    uint64_t first = first_position(call, shard);
    if (facts->reduces) {
        test_payload_reduced(at, count, first, call->type, call->op, size);
        return;
    }
    int from = facts->src == TWILL_HOLDS_ROOT ? call->root : shard;
    if (call->collective == TWILL_ALLTOALL)
        first = first_position(call, rank);
    test_payload(at, count, first, call->type, call->op, from);
}

void test_call_fill(const struct test_call *call, int rank, int size,
                    const struct test_buffers *buffers)
{
    struct shards shards;
    struct twill_shape shape = shape_of(call);
    int count = call_facts(call)->sharded ? size : 1;
    size_t bytes = test_call_bytes(call, size);
    describe_vectors(call, size, rank, &shards);
    memset(buffers->src, UNTOUCHED, bytes);
    memset(buffers->dst, UNTOUCHED, bytes);
    struct pointers p = pointers_of(call, rank, &shards, buffers->src, buffers->dst);
    for (int shard = 0; shard < count && call->collective != TWILL_BARRIER; shard++)
        if (twill_shape_holds_src(&shape, (uint32_t)rank, (uint32_t)shard))
            put_input(call, rank, shard, p.src, &shards);
    memcpy(buffers->src_want, buffers->src, bytes);
    memcpy(buffers->dst_want, buffers->dst, bytes);
    p = pointers_of(call, rank, &shards, buffers->src_want, buffers->dst_want);
    for (int shard = 0; shard < count && call->collective != TWILL_BARRIER; shard++)
        if (twill_shape_holds_dst(&shape, (uint32_t)rank, (uint32_t)shard))
            put_result(call, rank, size, shard, p.dst, &shards);
}

/* --- user-defined operations ------------------------------------------------------------------ */

/* A result that is not stored is wrong, so the call fails its check. */
static bool aligned(const void *left, const void *right, const void *result, size_t alignment)
{
    return (((uintptr_t)left | (uintptr_t)right | (uintptr_t)result) & (alignment - 1)) == 0;
}

static void combine_bits(const void *left, const void *right, void *result, size_t count,
                         twill_type type, void *user)
{
    const unsigned char *a = left, *b = right;
    unsigned char *to = result;
    if (!aligned(left, right, result, twill_type_size(type)))
        return;
    for (size_t i = 0; i < count * test_payload_element(type, TEST_OP_XOR); i++)
        to[i] = a[i] ^ b[i];
}

static void compose(const void *left, const void *right, void *result, size_t count,
                    twill_type type, void *user)
{
    const struct test_affine *f = left, *g = right;
    struct test_affine *to = result;
    if (!aligned(left, right, result, _Alignof(struct test_affine)))
        return;
    for (size_t i = 0; i < count; i++)
        to[i] = (struct test_affine){f[i].a * g[i].a, f[i].a * g[i].b + f[i].b};
}

static twill_status make_scaled(twill_context *context, twill_op *op, twill_type type, int factor)
{
    const float narrow = (float)factor;
    const double real = factor;
    const int64_t whole = factor; /* little endian: narrower types are its first bytes */
    const void *at = &whole;
    if (type == TWILL_F64)
        at = &real;
    else if (type == TWILL_F32 || twill_type_is_narrow(type))
        at = &narrow;
    return twill_op_create_scaled(context, op, type, at);
}

static twill_status make_narrow(twill_context *context, twill_op *op, twill_type type, int rank)
{
    const float before = (float)test_payload_before(type, rank), after = 2;
    return twill_op_create_narrow(context, op, type, &before, &after);
}

/* Create the call's operation if it is user-defined. */
static twill_status make_operation(struct test_call *made, twill_comm *comm)
{
    twill_context *context = twill_comm_context(comm);
    if (made->op == TEST_OP_SCALED)
        return make_scaled(context, &made->made, made->type,
                           test_payload_factor(twill_comm_rank(comm)));
    if (made->op == TEST_OP_NARROW)
        return make_narrow(context, &made->made, made->type, twill_comm_rank(comm));
    if (made->op == TEST_OP_XOR)
        return twill_op_create(context, &made->made, combine_bits, NULL, 0, 1);
    if (made->op == TEST_OP_AFFINE)
        return twill_op_create(context, &made->made, compose, NULL, sizeof(struct test_affine), 0);
    return TWILL_OK;
}

static twill_op op_of(const struct test_call *call)
{
    return call->op < TWILL_OP_COUNT ? call->op : call->made;
}

/* Make a call in one of its three forms. */
#define COLLECTIVES_FORM(name, ...)                                                                \
    (call->form == TEST_BLOCKING  ? twill_##name(__VA_ARGS__)                                      \
     : call->form == TEST_STARTED ? twill_##name##_start(__VA_ARGS__, request)                     \
                                  : twill_##name##_init(__VA_ARGS__, request))

static twill_status begin_even(const struct test_call *call, twill_comm *comm, struct pointers p,
                               twill_request **request)
{
    switch (call->collective) {
    case TWILL_ALLREDUCE:
        return COLLECTIVES_FORM(allreduce, comm, p.src, p.dst, call->count, call->type,
                                op_of(call));
    case TWILL_REDUCE:
        return COLLECTIVES_FORM(reduce, comm, p.src, p.dst, call->count, call->type, op_of(call),
                                call->root);
    case TWILL_BROADCAST:
        return COLLECTIVES_FORM(broadcast, comm, p.src, p.dst, call->count, call->type, call->root);
    case TWILL_BARRIER:
        return COLLECTIVES_FORM(barrier, comm);
    case TWILL_ALLGATHER:
        return COLLECTIVES_FORM(allgather, comm, p.src, p.dst, call->count, call->type);
    case TWILL_REDUCE_SCATTER:
        return COLLECTIVES_FORM(reduce_scatter, comm, p.src, p.dst, call->count, call->type,
                                op_of(call));
    case TWILL_GATHER:
        return COLLECTIVES_FORM(gather, comm, p.src, p.dst, call->count, call->type, call->root);
    case TWILL_SCATTER:
        return COLLECTIVES_FORM(scatter, comm, p.src, p.dst, call->count, call->type, call->root);
    case TWILL_ALLTOALL:
        return COLLECTIVES_FORM(alltoall, comm, p.src, p.dst, call->count, call->type);
    case TWILL_COLLECTIVE_COUNT: /* no default: a new collective needs its call here */
        break;
    }
    return TWILL_ERR_INTERNAL;
}

static twill_status begin_vector(const struct test_call *call, twill_comm *comm, struct pointers p,
                                 const struct shards *shards, twill_request **request)
{
    int rank = twill_comm_rank(comm);
    bool root = rank == call->root;
    switch (call->collective) {
    case TWILL_ALLGATHER:
        return COLLECTIVES_FORM(allgatherv, comm, p.src, p.dst, shards->dst_count, shards->dst_at,
                                call->type);
    case TWILL_REDUCE_SCATTER:
        return COLLECTIVES_FORM(reduce_scatterv, comm, p.src, p.dst, shards->src_count, call->type,
                                op_of(call));
    case TWILL_GATHER:
        return COLLECTIVES_FORM(gatherv, comm, p.src, shards->src_count[rank], p.dst,
                                root ? shards->dst_count : NULL, root ? shards->dst_at : NULL,
                                call->type, call->root);
    case TWILL_SCATTER:
        return COLLECTIVES_FORM(scatterv, comm, p.src, root ? shards->src_count : NULL,
                                root ? shards->src_at : NULL, p.dst, shards->dst_count[rank],
                                call->type, call->root);
    default:
        return COLLECTIVES_FORM(alltoallv, comm, p.src, shards->src_count, shards->src_at, p.dst,
                                shards->dst_count, shards->dst_at, call->type);
    }
}

twill_status test_call_begin(const struct test_call *call, twill_comm *comm,
                             const struct test_buffers *buffers, twill_request **request)
{
    struct shards shards;
    int rank = twill_comm_rank(comm);
    describe_vectors(call, twill_comm_size(comm), rank, &shards);
    struct pointers p = pointers_of(call, rank, &shards, buffers->src, buffers->dst);
    const struct twill_collective_facts *facts = call_facts(call);
    /* Ranks without data may pass NULL. */
    if (facts->src == TWILL_HOLDS_ROOT && rank != call->root && call->count % 2 == 1)
        p.src = NULL;
    if (facts->dst == TWILL_HOLDS_ROOT && rank != call->root && call->count % 2 == 1)
        p.dst = NULL;
    return call->vector ? begin_vector(call, comm, p, &shards, request)
                        : begin_even(call, comm, p, request);
}

static const char *op_name(twill_op op)
{
    static const char *const made[] = {"scaled sum", "bits", "affine", "narrow sum"};
    return op < TWILL_OP_COUNT ? twill_op_name(op) : made[op - TWILL_OP_COUNT];
}

void test_call_name(const struct test_call *call, char *text, size_t bytes)
{
    static const char *const forms[TEST_FORM_COUNT] = {"", " started", " persistent"};
    const struct twill_collective_facts *facts = call_facts(call);
    snprintf(text, bytes, "%s%s %s %s count %zu root %d%s%s", facts->name, call->vector ? "v" : "",
             twill_type_name(call->type), facts->reduces ? op_name(call->op) : "", call->count,
             call->root, call->in_place ? " in place" : "", forms[call->form]);
}

static bool equal(const struct test_call *call, int rank, int size, const unsigned char *got,
                  const unsigned char *want, const char *which)
{
    size_t bytes = test_call_bytes(call, size), i = 0;
    if (memcmp(got, want, bytes) == 0)
        return true;
    while (got[i] == want[i])
        i++;
    char name[160];
    test_call_name(call, name, sizeof(name));
    return TWILL_NOTE(false, "rank %d of %d: %s: %s byte %zu (element %zu) is 0x%02x, not 0x%02x",
                      rank, size, name, which, i, i / test_payload_element(call->type, call->op),
                      got[i], want[i]);
}

bool test_call_compare(const struct test_call *call, int rank, int size,
                       const struct test_buffers *buffers)
{
    return equal(call, rank, size, buffers->dst, buffers->dst_want, "dst") &&
           equal(call, rank, size, buffers->src, buffers->src_want, "src");
}

static twill_status run_made(const struct test_call *call, twill_comm *comm,
                             const struct test_buffers *buffers)
{
    twill_request *request = NULL;
    if (call->ask != NULL)
        call->ask(call, comm);
    twill_status status = test_call_begin(call, comm, buffers, &request);
    if (status != TWILL_OK || call->form == TEST_BLOCKING)
        return status;
    if (call->form == TEST_PERSISTENT)
        status = twill_request_start(request);
    if (status == TWILL_OK)
        status = twill_wait(&request);
    if (call->form == TEST_PERSISTENT && request != NULL)
        (void)twill_request_free(&request);
    return status;
}

static twill_status issue_call(const struct test_call *call, twill_comm *comm,
                               const struct test_buffers *buffers)
{
    struct test_call made = *call;
    if (call->op < TWILL_OP_COUNT)
        return run_made(call, comm, buffers);
    twill_status status = make_operation(&made, comm);
    if (status == TWILL_OK)
        status = run_made(&made, comm, buffers);
    if (made.made != 0)
        (void)twill_op_destroy(twill_comm_context(comm), made.made);
    return status;
}

bool test_call_check(const struct test_call *call, twill_comm *comm,
                     const struct test_buffers *buffers)
{
    int rank = twill_comm_rank(comm), size = twill_comm_size(comm);
    test_call_fill(call, rank, size, buffers);
    twill_status status = issue_call(call, comm, buffers);
    char name[160];
    test_call_name(call, name, sizeof(name));
    TWILL_REQUIRE(status == TWILL_OK, "rank %d of %d: %s: %s", rank, size, name,
                  twill_comm_message(comm));
    return test_call_compare(call, rank, size, buffers);
}

bool test_buffers_get(struct test_buffers *buffers, twill_context *context, size_t bytes,
                      size_t more, bool heap)
{
    void *memory[4] = {NULL};
    for (int i = 0; i < 4; i++) {
        if (heap && i < 2)
            TWILL_REQUIRE(twill_alloc(context, &memory[i], bytes + more) == TWILL_OK);
        else
            memory[i] = malloc(i < 2 ? bytes + more : bytes);
        TWILL_REQUIRE(memory[i] != NULL);
    }
    *buffers = (struct test_buffers){memory[0], memory[1], memory[2], memory[3], bytes};
    return true;
}

void test_buffers_put(struct test_buffers *buffers, twill_context *context, bool heap)
{
    unsigned char *const memory[] = {buffers->src, buffers->dst, buffers->src_want,
                                     buffers->dst_want};
    for (int i = 0; i < 4; i++)
        if (heap && i < 2)
            (void)twill_free(context, memory[i]);
        else
            free(memory[i]);
}

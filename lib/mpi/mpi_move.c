/* SPDX-License-Identifier: Apache-2.0 */
/* Binders of calls that only move data, as bytes. Ranks may describe the same data by different
 * types, so a type with holes or in another order is packed here rather than passed on. Buffers
 * that twill cannot use directly are also packed. These are interleaved buffers, and shards at
 * absolute addresses. Arguments that are not significant on a rank are not looked at. */
#include "lib/mpi/mpi_call.h"

#include <limits.h>

/* More bytes than any memory has. twill would reject them. */
#define BYTES_MOST ((MPI_Count)1 << 50)

/* One side of a call as the program describes it, on the binder's stack. */
struct buffer {
    const struct twill_mpi_type *type;
    struct twill_mpi_type storage; /* for derived types that could not be cached */
    MPI_Datatype handle;
    const void *user;
    MPI_Count count;             /* elements of each shard; unused with `counts` */
    const void *counts, *displs; /* the program's arrays, or NULL */
    bool large;                  /* counts and displs are MPI_Count, not int */
    int shards;
    size_t *lengths, *offsets; /* [shards] bytes in scratch memory, offsets from `begin`; or NULL */
    size_t shard_bytes, bytes; /* of each shard (without counts), and of all shards */
    char *begin;               /* first byte, if the type is plain */
    size_t extent;             /* bytes from `begin` to the end, including gaps */
};

/* Set type, handle and user of *buffer from an end. Returns TWILL_MPI_WRONG_* or 0. */
static inline unsigned check_span_type(struct buffer *buffer, const struct twill_mpi_end *end)
{
    buffer->handle = end->type;
    buffer->user = end->buffer;
    if (end->buffer == MPI_IN_PLACE)
        return TWILL_MPI_WRONG_PLACE;
    buffer->type = twill_mpi_type_find(end->type, &buffer->storage);
    return buffer->type != NULL ? 0 : twill_mpi_wrong_type(end->type);
}

/* Return TWILL_MPI_WRONG_ADDRESS for a missing buffer, or 0 if it may be missing or is there. */
static inline unsigned check_address(const struct buffer *buffer)
{
    return buffer->bytes == 0 || buffer->begin != NULL || !buffer->type->plain
               ? 0
               : TWILL_MPI_WRONG_ADDRESS;
}

/* Check an end with one count, and describe it in *buffer as `shards` shards of end->count
 * elements. Returns TWILL_MPI_WRONG_* or 0. */
static inline unsigned check_buffer(struct buffer *buffer, const struct twill_mpi_end *end,
                                    int shards)
{
    MPI_Count shard_bytes;
    const unsigned wrong = end->count < 0 ? TWILL_MPI_WRONG_COUNT : check_span_type(buffer, end);
    if (TWILL_UNLIKELY(wrong != 0))
        return wrong;
    if (__builtin_mul_overflow(end->count, buffer->type->size, &shard_bytes) ||
        shard_bytes > BYTES_MOST / shards)
        return TWILL_MPI_WRONG_SIZE;
    buffer->count = end->count;
    buffer->shards = shards;
    buffer->large = false;
    buffer->counts = buffer->displs = NULL;
    buffer->lengths = buffer->offsets = NULL;
    buffer->shard_bytes = (size_t)shard_bytes;
    buffer->bytes = buffer->extent = (size_t)shard_bytes * (size_t)shards;
    buffer->begin = twill_mpi_at(end->buffer, buffer->type->true_lb);
    return check_address(buffer);
}

/* Translate counts to lengths, and displacements to offsets from the lowest, all in bytes. Also set
 * `bytes`, `extent` and `begin`, which is at the lowest. An empty shard's displacement is not used.
 * Returns TWILL_MPI_WRONG_* or 0. */
static unsigned measure_counts(struct buffer *buffer)
{
    MPI_Count low = 0, high = 0, bytes = 0;
    const struct twill_mpi_type *type = buffer->type;
    for (int i = 0; i < buffer->shards; i++) {
        MPI_Count length, at, end;
        MPI_Count count = twill_mpi_number(buffer->counts, buffer->large, i);
        if (count < 0)
            return TWILL_MPI_WRONG_COUNT;
        if (__builtin_mul_overflow(count, type->size, &length) || length > BYTES_MOST)
            return TWILL_MPI_WRONG_SIZE;
        buffer->lengths[i] = (size_t)length;
        buffer->offsets[i] = 0;
        if (length == 0)
            continue;
        if (buffer->displs == NULL)
            return TWILL_MPI_WRONG_ARRAY;
        if (__builtin_mul_overflow(twill_mpi_number(buffer->displs, buffer->large, i), type->extent,
                                   &at) ||
            __builtin_add_overflow(at, length, &end))
            return TWILL_MPI_WRONG_SIZE;
        buffer->offsets[i] = (size_t)at;
        low = bytes == 0 || at < low ? at : low;
        high = bytes == 0 || end > high ? end : high;
        bytes += length;
        if (bytes > BYTES_MOST)
            return TWILL_MPI_WRONG_SIZE;
    }
    if (high - low > BYTES_MOST)
        return TWILL_MPI_WRONG_SIZE;
    for (int i = 0; i < buffer->shards; i++)
        buffer->offsets[i] -= buffer->lengths[i] != 0 ? (size_t)low : 0;
    buffer->bytes = (size_t)bytes;
    buffer->extent = (size_t)(high - low);
    buffer->begin = twill_mpi_at(buffer->user, type->true_lb + low);
    return 0;
}

/* Check an end that has a count for each of `shards` shards, and describe it in *buffer. If
 * `large`, counts are MPI_Count, not int. Their lengths and offsets in bytes are stored in
 * numbers[2][shards], to which *buffer points. Returns TWILL_MPI_WRONG_* or 0. */
static unsigned check_shards(struct buffer *buffer, const struct twill_mpi_end *end, bool large,
                             int shards, size_t *numbers)
{
    unsigned wrong = end->counts == NULL ? TWILL_MPI_WRONG_ARRAY : check_span_type(buffer, end);
    if (TWILL_UNLIKELY(wrong != 0))
        return wrong;
    buffer->counts = end->counts;
    buffer->displs = end->displs;
    buffer->large = large;
    buffer->shards = shards;
    buffer->count = 0; /* each shard has its own */
    buffer->shard_bytes = 0;
    buffer->lengths = numbers;
    buffer->offsets = numbers + shards;
    wrong = measure_counts(buffer);
    return TWILL_UNLIKELY(wrong != 0) ? wrong : check_address(buffer);
}

/* Return whether twill can use the program's buffer in place. Otherwise its data are copied through
 * bounce memory. That is so if the type is not plain, or if each shard has its own count and the
 * buffer is MPI_BOTTOM, so that displacements are absolute addresses. */
static inline bool is_direct(const struct buffer *buffer)
{
    return buffer->type->plain && (buffer->lengths == NULL || buffer->user != MPI_BOTTOM);
}

/* Return whether the ranges of two buffers, with gaps, overlap. Empty buffers do not. */
static inline bool sides_overlap(const struct buffer *a, const struct buffer *b)
{
    return a->begin < b->begin + b->extent && b->begin < a->begin + a->extent && a->bytes != 0 &&
           b->bytes != 0;
}

/* Describe one side (`which`) of the call as a copy in bounce memory, on which twill then works.
 * The shard `skip` is not copied, unless it is -1. */
static void bounce(struct twill_mpi_bound *bound, unsigned which, const struct buffer *buffer,
                   int skip)
{
    struct twill_mpi_side *side = which == TWILL_MPI_BOUNCES_IN ? &bound->in : &bound->out;
    const bool one_run = buffer->counts == NULL && skip < 0;
    *side = (struct twill_mpi_side){
        .user = buffer->user,
        .type = buffer->handle,
        .size = buffer->type->size,
        .extent = buffer->type->extent,
        .true_lb = buffer->type->true_lb,
        .plain = buffer->type->plain,
        .large = buffer->large,
        .shards = one_run ? 1 : buffer->shards,
        .skip = skip,
        .count = one_run ? buffer->count * buffer->shards : buffer->count,
        .counts = buffer->counts,
        .displs = buffer->displs,
        .bytes = buffer->bytes,
    };
    bound->bounced |= which;
}

/* Set the buffer of one side in *bound, the sent data if `which` is BOUNCES_IN, the received data
 * if it is BOUNCES_OUT. If twill cannot use it in place, describe a copy in bounce memory. The copy
 * leaves out the shard with index `skip`, unless that is -1. */
static inline void bind_side(struct twill_mpi_bound *bound, unsigned which,
                             const struct buffer *buffer, int skip)
{
    const bool direct = is_direct(buffer);
    const size_t *offsets = direct ? buffer->offsets : NULL;
    if (which == TWILL_MPI_BOUNCES_IN) {
        bound->src = buffer->begin;
        bound->src_counts = buffer->lengths;
        bound->src_offsets = offsets;
    } else {
        bound->dst = buffer->begin;
        bound->dst_counts = buffer->lengths;
        bound->dst_offsets = offsets;
    }
    if (!direct)
        bounce(bound, which, buffer, skip);
}

/* Return whether the MPI refuses a call because its buffers a and b overlap. MPICH does if the
 * addresses a_at and b_at are equal, and so are types and any arrays of counts. If false, the
 * caller runs the call with a copy of one buffer. It must not pass the call on, which other ranks
 * run in twill. */
static inline bool overlap_is_refused(const struct twill_mpi_call *call,
                                      struct twill_mpi_bound *bound, const struct buffer *a,
                                      const void *a_at, const struct buffer *b, const void *b_at)
{
    return a_at == b_at && a->handle == b->handle &&
           (a->counts == b->counts || a->counts == NULL || b->counts == NULL) &&
           twill_mpi_is_refused(call, bound->comm, TWILL_MPI_WRONG_ALIAS);
}

/* Translate MPI_Bcast into *bound. Returns TAKEN, or why the call is passed on. */
enum twill_mpi_why twill_mpi_bind_bcast(const struct twill_mpi_call *call,
                                        struct twill_mpi_bound *bound)
{
    struct buffer buffer;
    const unsigned wrong = call->root < 0 || call->root >= bound->comm->size
                               ? TWILL_MPI_WRONG_ROOT
                               : check_buffer(&buffer, &call->recv, 1);
    if (TWILL_UNLIKELY(wrong != 0))
        return twill_mpi_wrong(call, bound, wrong);
    bound->src = bound->dst = buffer.begin;
    bound->count = buffer.bytes;
    bound->type = TWILL_U8;
    bound->root = call->root;
    if (!is_direct(&buffer)) {
        bound->src = bound->dst = NULL;
        bounce(bound,
               call->root == bound->comm->rank ? TWILL_MPI_BOUNCES_IN : TWILL_MPI_BOUNCES_OUT,
               &buffer, -1);
    }
    return TWILL_MPI_WHY_TAKEN;
}

/* Do nothing, as a barrier has no arguments. Returns TAKEN. */
enum twill_mpi_why twill_mpi_bind_barrier(const struct twill_mpi_call *call,
                                          struct twill_mpi_bound *bound)
{
    (void)call, (void)bound;
    return TWILL_MPI_WHY_TAKEN;
}

/* Shape of a collective with one shard on one side and all shards, the whole, on the other. It is
 * an allgather, gather or scatter, or the v form of one. Passed by value. */
struct move_shape {
    bool gathers; /* shards are sent and the whole is received, not the reverse */
    bool rooted;  /* only the root has the whole */
    bool vector;  /* shards have different lengths */
};

/* Return the offset in bytes of the shard of `rank` from the first byte of `whole`. If `direct`, it
 * is the offset in the program's memory, with gaps between shards. Otherwise it is the offset in a
 * packed copy without gaps. */
static size_t own_at(const struct buffer *whole, int rank, bool direct)
{
    size_t at = 0;
    if (whole->lengths == NULL)
        return whole->shard_bytes * (size_t)rank;
    if (direct)
        return whole->offsets[rank];
    for (int i = 0; i < rank; i++)
        at += whole->lengths[i];
    return at;
}

/* Return this rank's shard of `whole` as a buffer. */
static struct buffer own_shard(const struct buffer *whole, int rank)
{
    struct buffer own = *whole;
    MPI_Count first = whole->count * rank;
    if (whole->counts != NULL) {
        own.count = twill_mpi_number(whole->counts, whole->large, rank);
        first = own.count != 0 ? twill_mpi_number(whole->displs, whole->large, rank) : 0;
    }
    own.user = twill_mpi_at(whole->user, first * whole->type->extent);
    own.counts = own.displs = NULL;
    own.shards = 1;
    own.bytes = whole->lengths != NULL ? whole->lengths[rank] : whole->shard_bytes;
    return own;
}

/* Copy a rank's data to itself by the MPI. Returns false if the MPI fails or they do not fit. */
static bool move_own(const struct buffer *from, const struct buffer *to)
{
    return from->bytes <= to->bytes && from->count <= INT_MAX && to->count <= INT_MAX &&
           twill_mpi_to_self(from->user, (int)from->count, from->handle, (void *)to->user,
                             (int)to->count, to->handle) == MPI_SUCCESS;
}

/* Set the buffers of a call with MPI_IN_PLACE, whose shard lies in the whole. */
static void bind_in_place(struct twill_mpi_bound *bound, struct move_shape shape,
                          const struct buffer *whole)
{
    const int rank = bound->comm->rank;
    const bool direct = is_direct(whole);
    const size_t at = own_at(whole, rank, direct);
    bind_side(bound, shape.gathers ? TWILL_MPI_BOUNCES_OUT : TWILL_MPI_BOUNCES_IN, whole, rank);
    if (direct) {
        if (shape.gathers)
            bound->src = whole->begin + at;
        else
            bound->dst = whole->begin + at;
        return;
    }
    bound->shared = true;
    bound->src_at = shape.gathers ? at : 0;
    bound->dst_at = shape.gathers ? 0 : at;
    if (!shape.rooted) {
        struct buffer own = own_shard(whole, rank);
        bounce(bound, TWILL_MPI_BOUNCES_IN, &own, -1);
    }
}

/* Check the arguments for the side with the shards of all ranks, and describe it in *whole. It is
 * the receive side if shape.gathers, otherwise the send side. Of *bound only `comm` is used, whose
 * scratch gets the shards' lengths and offsets if counts differ. Returns 0 or the fault, a
 * TWILL_MPI_WRONG_*, with TWILL_MPI_WRONG_RECEIVED added on the receive side. */
static inline unsigned check_whole(struct buffer *whole, const struct twill_mpi_call *call,
                                   struct twill_mpi_bound *bound, struct move_shape shape)
{
    const struct twill_mpi_end *end = shape.gathers ? &call->recv : &call->send;
    const int size = bound->comm->size;
    const unsigned wrong =
        shape.vector ? check_shards(whole, end, call->large, size, bound->comm->scratch.numbers)
                     : check_buffer(whole, end, size);
    return shape.gathers ? twill_mpi_received(wrong) : wrong;
}

/* Check the arguments for the side with only this rank's shard, and describe it in *shard. It is
 * the send side if shape.gathers, otherwise the receive side. Returns 0 or the fault, a
 * TWILL_MPI_WRONG_*, with TWILL_MPI_WRONG_RECEIVED added on the receive side. */
static inline unsigned check_shard(struct buffer *shard, const struct twill_mpi_call *call,
                                   struct move_shape shape)
{
    return shape.gathers ? check_buffer(shard, &call->send, 1)
                         : twill_mpi_received(check_buffer(shard, &call->recv, 1));
}

/* Set the buffers of a call in which this rank's shard is not as long as its place in `whole`. MPI
 * forbids this, but other ranks cannot know. So the call runs as if in place, and this function
 * copies the shard to or from its place. If that fails, or for a persistent call, all ranks get an
 * error. Returns TAKEN. */
static enum twill_mpi_why bind_unequal(struct twill_mpi_bound *bound, struct move_shape shape,
                                       const struct buffer *shard, const struct buffer *whole)
{
    const struct buffer own = own_shard(whole, bound->comm->rank);
    const struct buffer *from = shape.gathers ? shard : &own, *to = shape.gathers ? &own : shard;
    bound->count = own.bytes;
    bound->once = true;
    bind_in_place(bound, shape, whole);
    if (bound->form == TWILL_MPI_PERSISTENT || !move_own(from, to))
        twill_mpi_bound_fail(bound, TWILL_ERR_MISMATCH);
    return TWILL_MPI_WHY_TAKEN;
}

/* Set the buffers of a call on a rank with both sides. One side is `shard`, its own, the other is
 * `whole`, with the shards of all ranks. The shard is sent if shape.gathers, otherwise received. It
 * is bounced if it overlaps. Returns TAKEN, or ERRONEOUS if the MPI refuses that overlap. */
static inline enum twill_mpi_why bind_both(const struct twill_mpi_call *call,
                                           struct twill_mpi_bound *bound, struct move_shape shape,
                                           const struct buffer *shard, const struct buffer *whole)
{
    const int rank = bound->comm->rank;
    const unsigned mine = shape.gathers ? TWILL_MPI_BOUNCES_IN : TWILL_MPI_BOUNCES_OUT;
    const unsigned others = TWILL_MPI_BOUNCES_IN + TWILL_MPI_BOUNCES_OUT - mine;
    if (TWILL_UNLIKELY(shard->bytes !=
                       (whole->lengths != NULL ? whole->lengths[rank] : whole->shard_bytes)))
        return bind_unequal(bound, shape, shard, whole);
    bind_side(bound, others, whole, -1);
    bind_side(bound, mine, shard, -1);
    if (bound->bounced == 0 && TWILL_UNLIKELY(sides_overlap(shard, whole))) {
        const char *own = whole->begin + own_at(whole, rank, true);
        if (overlap_is_refused(call, bound, shard, shard->begin, whole, own))
            return TWILL_MPI_WHY_ERRONEOUS;
        if (shard->begin != own)
            bounce(bound, mine, shard, -1);
    }
    return TWILL_MPI_WHY_TAKEN;
}

/* Translate a call of this shape. Returns TAKEN, or ERRONEOUS if the MPI refuses it. Inlined into
 * each binder, so that the shape is a constant there. */
static inline __attribute__((always_inline)) enum twill_mpi_why
bind_shards(const struct twill_mpi_call *call, struct twill_mpi_bound *bound,
            struct move_shape shape)
{
    struct buffer shard, whole;
    struct twill_mpi_comm *comm = bound->comm;
    const bool has_whole = !shape.rooted || call->root == comm->rank;
    const bool in_place =
        has_whole && (shape.gathers ? call->send.buffer : call->recv.buffer) == MPI_IN_PLACE;
    unsigned wrong = shape.rooted && (call->root < 0 || call->root >= comm->size)
                         ? TWILL_MPI_WRONG_ROOT
                     : has_whole ? check_whole(&whole, call, bound, shape)
                                 : 0;
    if (wrong == 0 && !in_place)
        wrong = check_shard(&shard, call, shape);
    if (TWILL_UNLIKELY(wrong != 0))
        return twill_mpi_wrong(call, bound, wrong);
    bound->type = TWILL_U8;
    bound->root = call->root;
    if (in_place) {
        bound->count = whole.lengths != NULL ? whole.lengths[comm->rank] : whole.shard_bytes;
        bind_in_place(bound, shape, &whole);
        return TWILL_MPI_WHY_TAKEN;
    }
    bound->count = shard.bytes;
    if (has_whole)
        return bind_both(call, bound, shape, &shard, &whole);
    bound->src = bound->dst = NULL;
    bind_side(bound, shape.gathers ? TWILL_MPI_BOUNCES_IN : TWILL_MPI_BOUNCES_OUT, &shard, -1);
    return TWILL_MPI_WHY_TAKEN;
}

/* Define the binder of a collective of this shape (struct move_shape). It returns TAKEN, or why the
 * call is passed on. */
#define BINDER(name, gathers, rooted, vector)                                                      \
    enum twill_mpi_why twill_mpi_bind_##name(const struct twill_mpi_call *call,                    \
                                             struct twill_mpi_bound *bound)                        \
    {                                                                                              \
        return bind_shards(call, bound, (struct move_shape){gathers, rooted, vector});             \
    }
BINDER(gather, true, true, false)
BINDER(gatherv, true, true, true)
BINDER(scatter, false, true, false)
BINDER(scatterv, false, true, true)
BINDER(allgather, true, false, false)
BINDER(allgatherv, true, false, true)

/* Translate MPI_Alltoall into *bound. Returns TAKEN, or why the call is passed on. */
enum twill_mpi_why twill_mpi_bind_alltoall(const struct twill_mpi_call *call,
                                           struct twill_mpi_bound *bound)
{
    struct buffer src, dst;
    const int size = bound->comm->size;
    const bool in_place = call->send.buffer == MPI_IN_PLACE;
    unsigned wrong = twill_mpi_received(check_buffer(&dst, &call->recv, size));
    if (wrong == 0 && !in_place)
        wrong = check_buffer(&src, &call->send, size);
    if (TWILL_UNLIKELY(wrong != 0))
        return twill_mpi_wrong(call, bound, wrong);
    if (!in_place && src.shard_bytes != dst.shard_bytes) { /* no other rank can know */
        twill_mpi_bound_fail(bound, TWILL_ERR_MISMATCH);
        return TWILL_MPI_WHY_TAKEN;
    }
    bound->count = dst.shard_bytes;
    bound->type = TWILL_U8;
    bind_side(bound, TWILL_MPI_BOUNCES_OUT, &dst, -1);
    bind_side(bound, TWILL_MPI_BOUNCES_IN, in_place ? &dst : &src, -1);
    if (in_place) {
        bound->shared = bound->bounced != 0;
        bound->src_at = bound->dst_at = 0;
    } else if (bound->bounced == 0 && TWILL_UNLIKELY(sides_overlap(&src, &dst))) {
        if (overlap_is_refused(call, bound, &src, src.begin, &dst, dst.begin))
            return TWILL_MPI_WHY_ERRONEOUS;
        bounce(bound, TWILL_MPI_BOUNCES_IN, &src, -1);
    }
    return TWILL_MPI_WHY_TAKEN;
}

/* Translate MPI_Alltoallv into *bound. twill has no in-place form of it, so the data to send are
 * copied first. Returns TAKEN, or why the call is passed on. */
enum twill_mpi_why twill_mpi_bind_alltoallv(const struct twill_mpi_call *call,
                                            struct twill_mpi_bound *bound)
{
    struct buffer src, dst;
    const int size = bound->comm->size, rank = bound->comm->rank;
    const bool in_place = call->send.buffer == MPI_IN_PLACE;
    size_t *numbers = bound->comm->scratch.numbers;
    unsigned wrong =
        twill_mpi_received(check_shards(&dst, &call->recv, call->large, size, numbers + 2 * size));
    if (wrong == 0 && !in_place)
        wrong = check_shards(&src, &call->send, call->large, size, numbers);
    if (TWILL_UNLIKELY(wrong != 0))
        return twill_mpi_wrong(call, bound, wrong);
    if (!in_place && src.lengths[rank] != dst.lengths[rank]) /* no other rank can know */
        twill_mpi_bound_fail(bound, TWILL_ERR_MISMATCH);
    const struct buffer *from = in_place ? &dst : &src;
    bound->type = TWILL_U8;
    bind_side(bound, TWILL_MPI_BOUNCES_OUT, &dst, -1);
    bind_side(bound, TWILL_MPI_BOUNCES_IN, from, -1);
    if (bound->bounced == 0 && TWILL_UNLIKELY(sides_overlap(from, &dst))) {
        if (!in_place && overlap_is_refused(call, bound, from, from->begin, &dst, dst.begin))
            return TWILL_MPI_WHY_ERRONEOUS;
        bounce(bound, TWILL_MPI_BOUNCES_IN, from, -1);
        bound->src_offsets = NULL;
    }
    return TWILL_MPI_WHY_TAKEN;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The algorithms of Bruck (Bruck, Ho, Kipnis, Upfal and Weathersby 1997), for any number of ranks
 * and few bytes. They take the minimum number of rounds, ceil(lg P). In an allgather, a rank that
 * has c shards, starting with its own, receives the next c from the rank c to the right and sends
 * its c to the rank c to the left. It sends n(P-1)/P bytes, which is also the minimum.
 *
 *     0 1 2 3 4      0 has {0}, then {0 1}, then {0 1 2 3}, then 4, the last one missing
 *
 * In an alltoall, a shard for the rank d to the right travels the distances 1, 2, 4, ... that add
 * up to d, together with all others that travel the same distance. It sends (n/2) lg P bytes. TMP
 * keeps shards by distance d. Those that travel together are packed, as they are not adjacent. */
#include "algorithms/schedule/emit.h"

/* Append the steps of an allgather by the algorithm of Bruck. It ends with nothing posted. */
static void emit_allgather(struct twill_emitter *e)
{
    uint32_t size = e->world->size, me = e->rank;
    struct twill_range range[2];
    twill_emit_copy(e, data_at(TWILL_DST, me), data_at(TWILL_SRC, me), 0, 1, 0);
    for (uint32_t have = 1; have < size; have *= 2) {
        uint32_t count = (uint32_t)twill_min(have, size - have), next = (me + have) % size;
        uint32_t ranges = twill_ring_ranges(range, size, me, count);
        /* what arrived last is sent first, as the WAIT was for it */
        for (uint32_t i = ranges; i-- > 0;)
            twill_emit_send(e, (me + size - have) % size, data_at(TWILL_DST, range[i].first),
                            range[i].length, 0);
        ranges = twill_ring_ranges(range, size, next, count);
        for (uint32_t i = ranges; i-- > 0;)
            twill_emit_recv(e, next, data_at(TWILL_DST, range[i].first), range[i].length, 0);
        /* The last round may not need what this one receives; then the two rounds overlap. */
        if (!(2 * have < size && size <= 3 * have))
            twill_emit_wait(e);
    }
}

/* Copy the shards in TMP whose distance has the bit `bit` to consecutive blocks of TMP from block
 * `packed` on, or with `back` return them. Block d of TMP has the shard for the rank d to the
 * right, so these are runs of `bit` blocks every 2 * `bit`. Returns the number of shards copied. */
static uint32_t pack_blocks(struct twill_emitter *e, uint32_t bit, uint32_t packed, bool back)
{
    uint32_t size = e->world->size, count = 0;
    for (uint32_t d = bit; d < size; d += 2 * bit) {
        uint32_t run = (uint32_t)twill_min(bit, size - d);
        twill_operand place = data_at(TWILL_TMP, d), there = data_at(TWILL_TMP, packed + count);
        twill_emit_copy(e, back ? place : there, back ? there : place, 0, run, 0);
        count += run;
    }
    return count;
}

/* Append the steps of an alltoall by the algorithm of Bruck, which sends messages. It reads SRC and
 * leaves the shards of all ranks for this one in DST. On the way they pass through other ranks, in
 * TMP. It ends with nothing posted. */
static void emit_alltoall(struct twill_emitter *e)
{
    uint32_t size = e->world->size, me = e->rank, half = size / 2;
    struct twill_range range[2];
    e->tmp_blocks = 2 * size; /* by distance, then half of them to send and half received */
    uint32_t ranges = twill_ring_ranges(range, size, me, size);
    for (uint32_t i = 0, d = 0; i < ranges; d += range[i++].length)
        twill_emit_copy(e, data_at(TWILL_TMP, d), data_at(TWILL_SRC, range[i].first), 0,
                        range[i].length, 0);
    for (uint32_t bit = 1; bit < size; bit *= 2) {
        bool packs = 3 * bit < size; /* otherwise they are adjacent */
        uint32_t count =
            packs ? pack_blocks(e, bit, size, false) : (uint32_t)twill_min(bit, size - bit);
        twill_emit_send(e, (me + bit) % size, data_at(TWILL_TMP, packs ? size : bit), count, 0);
        twill_emit_recv(e, (me + size - bit) % size, data_at(TWILL_TMP, size + half), count, 0);
        twill_emit_wait(e);
        pack_blocks(e, bit, size + half, true);
    }
    for (uint32_t d = 0; d < size; d++)
        twill_emit_copy(e, data_at(TWILL_DST, (me + size - d) % size), data_at(TWILL_TMP, d), 0, 1,
                        0);
}

/* Return whether all shards have one size. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    (void)world;
    return !shape->vector;
}

/* Append the steps of the algorithm of Bruck for the collective of the shape. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    e->blocks = e->shards = e->world->size;
    if (shape->collective == TWILL_ALLGATHER || e->world->size == 1)
        emit_allgather(e);
    else
        emit_alltoall(e);
}

const struct twill_algorithm twill_algorithm_bruck = {
    .name = "bruck",
    .help = "ceil(lg P) rounds; allgather n(P-1)/P bytes, alltoall (n/2) lg P, packed and unpacked "
            "(Bruck et al. 1997)",
    .collectives = 1u << TWILL_ALLGATHER | 1u << TWILL_ALLTOALL,
    .applies = applies,
    .emit = emit,
};

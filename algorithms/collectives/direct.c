/* SPDX-License-Identifier: Apache-2.0 */
/* Direct. All ranks share a node and read, or write, the memory of each other. In a broadcast the
 * root publishes the data and the others copy them. In a barrier every rank signals and awaits all.
 * The other collectives are in direct_collectives.c. Each takes one or two synchronisations
 * (FETCHED two or three), and every byte is copied once (MAPPED, FETCHED) or twice (the others).
 *
 * In a MAPPED broadcast the root copies as well, because its core would be idle otherwise. Of L
 * blocks each other rank fetches L-1, and the root stores the last one into their DST. In place,
 * which is usual, all L ranks copy n(L-1)/L bytes, so that as many are loaded and stored:
 *
 *     root 0:  3 -> 1 2 3        1, 2, 3: each 0 1 2 <- root        (blocks, L = 4)
 *
 * Out of place, the root copies its own n bytes when the others no longer need it. At the second
 * synchronisation all ranks are awaited, not only the root, because it proves that an exchange of
 * buffer addresses has ended, which may replace the first (twill_schedule_entry_steps()). */
#include "algorithms/collectives/direct.h"
#include "algorithms/patterns/intra_node.h"

typedef void (*emit_fn)(struct twill_emitter *e, const struct twill_shape *shape);

void twill_emit_copy_own(struct twill_emitter *e)
{
    twill_emit_copy(e, data_at(TWILL_DST, e->rank), data_at(TWILL_SRC, e->rank), 0, 1, 0);
}

void twill_emit_copy_from_others(struct twill_emitter *e, unsigned space, uint32_t block)
{
    uint32_t me = e->rank, size = e->world->size;
    for (uint32_t i = 1; i < size; i++) {
        uint32_t peer = (me + i) % size;
        twill_emit_copy(e, data_at(TWILL_DST, peer),
                        data_at(space | TWILL_PEER, block == TWILL_OF_OWNER ? peer : block), peer,
                        1, 0);
    }
}

/* Emit a broadcast with MAPPED. The message has one block per rank. Between two barriers of the
 * node, each other rank reads all blocks but the last from SRC of the root into its DST. The root
 * stores the last one into DST of each other rank. At the end it copies its own SRC to its DST. */
static void emit_broadcast_mapped(struct twill_emitter *e, uint32_t root)
{
    uint32_t size = e->world->size, last = size - 1;
    e->uses_peer_src = e->uses_peer_dst = true;
    twill_emit_node_barrier(e, 1);
    for (uint32_t i = 1; i < size && e->rank == root; i++)
        twill_emit_copy(e, data_at(TWILL_DST | TWILL_PEER, last), data_at(TWILL_SRC, last),
                        (root + i) % size, 1, 0);
    if (e->rank != root)
        twill_emit_copy(e, data_at(TWILL_DST, 0), data_at(TWILL_SRC | TWILL_PEER, 0), root, last,
                        0);
    twill_emit_node_barrier(e, 2);
    if (e->rank == root)
        twill_emit_copy(e, data_at(TWILL_DST, 0), data_at(TWILL_SRC, 0), 0, size, 0);
}

/* Emit a broadcast by the protocol of the shape, with MAPPED as emit_broadcast_mapped() says. With
 * STAGED or IMM, the root copies its SRC to its SHARED or IMM line, from which the other ranks copy
 * it into their DST. Then the root copies SRC to its own DST. */
static void emit_broadcast(struct twill_emitter *e, const struct twill_shape *shape)
{
    if (shape->protocol == TWILL_PROTOCOL_MAPPED) {
        emit_broadcast_mapped(e, shape->root);
        return;
    }
    twill_emit_node_broadcast(e, shape->protocol, e->world->local[shape->root], TWILL_SRC);
    if (e->rank == shape->root) /* while the others copy theirs */
        twill_emit_copy(e, data_at(TWILL_DST, 0), data_at(TWILL_SRC, 0), 0, 1, 0);
}

/* Emit a barrier of a node, in which all ranks signal to all. */
static void emit_barrier(struct twill_emitter *e, const struct twill_shape *shape)
{
    (void)shape;
    twill_emit_node_barrier(e, 1);
}

#define BY_IMM     (1u << TWILL_PROTOCOL_IMM)
#define BY_FLAT    (1u << TWILL_PROTOCOL_FLAT)
#define BY_STAGED  (1u << TWILL_PROTOCOL_STAGED)
#define BY_MAPPED  (1u << TWILL_PROTOCOL_MAPPED)
#define BY_FETCHED (1u << TWILL_PROTOCOL_FETCHED)
#define BY_LARGE   (BY_STAGED | BY_MAPPED | BY_FETCHED)

/* The function of "direct" for a collective, its protocols, and the scratch of each protocol, which
 * is as large as the message. There is one constant for each collective. */
static const struct direct {
    emit_fn emit;
    uint32_t protocols;
    uint32_t shared;  /* protocols that use SHARED */
    uint32_t tmp;     /* protocols that use TMP */
    uint32_t passes;  /* protocols that use TMP if one pass cannot take all operands */
    uint32_t sharded; /* protocols that divide the message into one block per rank */
} directs[] = {
    [TWILL_ALLREDUCE] = {twill_emit_direct_allreduce, BY_IMM | BY_FLAT | BY_LARGE,
                         BY_FLAT | BY_STAGED, 0, BY_IMM | BY_FLAT | BY_MAPPED | BY_FETCHED,
                         BY_LARGE},
    [TWILL_REDUCE] = {twill_emit_direct_reduce, BY_IMM | BY_FLAT | BY_STAGED | BY_MAPPED,
                      BY_FLAT | BY_STAGED, BY_MAPPED, BY_IMM | BY_FLAT, BY_STAGED | BY_MAPPED},
    [TWILL_REDUCE_SCATTER] = {twill_emit_direct_reduce_scatter, BY_LARGE, BY_STAGED, 0,
                              BY_MAPPED | BY_FETCHED, BY_LARGE},
    [TWILL_BROADCAST] = {emit_broadcast, BY_IMM | BY_LARGE, BY_STAGED, 0, 0, BY_MAPPED},
    [TWILL_BARRIER] = {emit_barrier, BY_IMM | BY_FLAT | BY_LARGE, 0, 0, 0, 0},
    [TWILL_ALLGATHER] = {twill_emit_direct_allgather, BY_IMM | BY_LARGE, BY_STAGED, 0, 0, ~0u},
    [TWILL_GATHER] = {twill_emit_direct_gather, BY_IMM | BY_LARGE, BY_STAGED, 0, 0, ~0u},
    [TWILL_SCATTER] = {twill_emit_direct_scatter, BY_LARGE, BY_STAGED, 0, 0, ~0u},
    [TWILL_ALLTOALL] = {twill_emit_direct_alltoall, BY_LARGE, BY_STAGED, 0, 0, ~0u},
};
_Static_assert(TWILL_ARRAY_LENGTH(directs) == TWILL_COLLECTIVE_COUNT, "a row for each");

/* Return whether there is one node, and "direct" supports the collective with the protocol of the
 * shape. Where shards differ in size, all ranks must know the sizes, and MAPPED and FETCHED are
 * excluded. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    return world->nodes == 1 &&
           (directs[shape->collective].protocols >> shape->protocol & 1) != 0 &&
           twill_shape_knows_all(shape) &&
           !(shape->vector && shape->protocol >= TWILL_PROTOCOL_MAPPED);
}

/* Append the steps of "direct" for the collective of the shape, and declare its scratch. In a world
 * of one rank that is one copy from SRC to DST, or in a barrier nothing. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    const struct direct *direct = &directs[shape->collective];
    uint32_t protocol = 1u << shape->protocol, size = e->world->size;
    e->blocks = (direct->sharded & protocol) != 0 ? size : 1;
    if (twill_collective_facts(shape->collective)->sharded)
        e->shards = size;
    if (size > 1) {
        if ((direct->shared & protocol) != 0)
            e->shared_blocks = e->blocks;
        if ((direct->tmp & protocol) != 0 ||
            ((direct->passes & protocol) != 0 && size > TWILL_STEP_PEERS))
            e->tmp_blocks = e->blocks;
        if (shape->protocol == TWILL_PROTOCOL_FETCHED && shape->collective != TWILL_BARRIER)
            twill_emit_direct_fetched(e, shape);
        else
            direct->emit(e, shape);
    } else if (shape->collective != TWILL_BARRIER) {
        twill_emit_copy(e, data_at(TWILL_DST, 0), data_at(TWILL_SRC, 0), 0, 1, 0);
    }
}

const struct twill_algorithm twill_algorithm_direct = {
    .name = "direct",
    .help = "ranks of one node read and write each other's memory: one to three synchronisations; "
            "allreduce: n(P-1) bytes (@imm, @flat) or 2n(P-1)/P",
    .collectives = (1u << TWILL_COLLECTIVE_COUNT) - 1,
    .protocols = BY_IMM | BY_FLAT | BY_LARGE,
    .signals_alike = true,
    .applies = applies,
    .emit = emit,
};

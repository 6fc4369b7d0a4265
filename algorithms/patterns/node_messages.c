/* SPDX-License-Identifier: Apache-2.0 */
/* Alltoall, gather and scatter in which a node sends few messages to another, and its ranks share
 * them. See hierarchical_pairwise.c. */
#include "algorithms/patterns/node_messages.h"
#include "algorithms/patterns/intra_node.h"

/* Most SIGNALs of a root that stores shards, so that messages begin while it still stores. */
#define SCATTER_SIGNALS 8u
/* Most copies of a segment in SHARED, as segments become shorter with their number. */
#define COPIES_MOST 7u

/* How the messages of all nodes are divided, equal on all ranks. A plain value. */
struct division {
    uint32_t parts;      /* parts of a node, and messages between two nodes */
    uint32_t blocks;     /* room for a message */
    uint32_t in_copy;    /* how many of these a copy of the message has room for */
    uint32_t out_copies; /* copies of the message in SHARED before it is sent */
    uint32_t in_copies;  /* the same for what is received */
    bool own_only;       /* every rank sends its own shards, straight from SRC */
};

/* Return the first local rank of a part of a node. The part ends where the next one begins. */
static uint32_t part_first(const struct twill_world *w, const struct division *v, uint32_t node,
                           uint32_t part)
{
    return (uint32_t)((uint64_t)part * w->node_size[node] / v->parts);
}

/* Return the number of local ranks in a part of a node. */
static uint32_t part_size(const struct twill_world *w, const struct division *v, uint32_t node,
                          uint32_t part)
{
    return part_first(w, v, node, part + 1) - part_first(w, v, node, part);
}

/* Return the node that is `hops` nodes after a node. */
static uint32_t node_after(const struct twill_world *w, uint32_t node, uint32_t hops)
{
    return (node + hops) % w->nodes;
}

/* Return whether all ranks of a node have consecutive numbers, node by node, and nodes have one
 * size. */
static bool is_grid(const struct twill_world *w)
{
    for (uint32_t r = 0; r < w->size; r++)
        if (w->member[r] != r)
            return false;
    return w->nodes * twill_world_widest(w) == w->size;
}

/* Set *v for a world of several nodes. `parts` is the parameter. Returns whether this needs no more
 * than COPIES_MOST copies of the message. */
static bool divide(struct division *v, const struct twill_world *w, uint32_t parts)
{
    uint32_t widest = twill_world_widest(w), narrowest = twill_world_narrowest(w);
    *v = (struct division){.parts = parts > 0 ? parts : (widest + w->nodes - 2) / (w->nodes - 1)};
    while (parts == 0 && widest % v->parts != 0) /* parts of one size */
        v->parts++;
    uint32_t most = (widest + v->parts - 1) / v->parts;
    uint64_t messages = ((uint64_t)v->parts * (w->nodes - 1) + narrowest - 1) / narrowest;
    if (widest % v->parts != 0 || (uint64_t)most * widest > w->size)
        return false;
    v->blocks = most * widest;
    v->in_copy = w->size / v->blocks;
    uint64_t copies = (messages + v->in_copy - 1) / v->in_copy;
    v->own_only = most == 1 && v->parts == widest && is_grid(w);
    if (2 * copies + 1 > COPIES_MOST || (2 * copies + 1) * w->size >> TWILL_BLOCK_BITS != 0)
        return false;
    v->in_copies = (uint32_t)copies;
    v->out_copies = v->own_only ? 0 : (uint32_t)copies;
    return true;
}

/* Return the first block of message number `slot` of a rank, in TMP or in SHARED after `copies`
 * copies of the message. */
static uint32_t slot_block(const struct twill_world *w, const struct division *v, uint32_t copies,
                           uint32_t slot)
{
    return (copies + slot / v->in_copy) * w->size + slot % v->in_copy * v->blocks;
}

/* Return the first block in SHARED of the shards for a rank from its own node. They are in what the
 * messages leave of the first copy, or in a last copy. */
static uint32_t local_block(const struct twill_world *w, const struct division *v)
{
    uint32_t widest = twill_world_widest(w), used = v->in_copy * v->blocks;
    return used + widest <= w->size ? used : (v->out_copies + v->in_copies) * w->size;
}

/* Append copies of `count` blocks from consecutive blocks of `from` on, one for each of the local
 * ranks from `first` on of a node, to their shards of DST. With `back`, copy the other way, from
 * SRC to `from` of rank `peer`. Shards of consecutive ranks take one step. */
static void copy_shards(struct twill_emitter *e, uint32_t node, uint32_t first, uint32_t count,
                        twill_operand packed, uint32_t peer, bool back)
{
    const uint32_t *rank = &e->world->member[e->world->node_first[node] + first];
    for (uint32_t i = 0, run; i < count; i += run) {
        for (run = 1; i + run < count && rank[i + run] == rank[i] + run;)
            run++;
        twill_operand shards = data_at(back ? TWILL_SRC : TWILL_DST, rank[i]);
        twill_emit_copy(e, back ? packed + i : shards, back ? shards : packed + i, peer, run, 0);
    }
}

/* Return SHARED of a local rank of the node of this rank, with the PEER bit unless it is its own.
 */
static unsigned shared_of(const struct twill_emitter *e, uint32_t local)
{
    return TWILL_SHARED | (local != e->world->local[e->rank] ? (unsigned)TWILL_PEER : 0);
}

/* Store the shards of this rank for other ranks where they are sent, and those for its own node
 * where their owners expect them. */
static void store_shards(struct twill_emitter *e, const struct division *v)
{
    const struct twill_world *w = e->world;
    uint32_t node = w->node[e->rank], me = w->local[e->rank], size = w->node_size[node], part = 0;
    while (me >= part_first(w, v, node, part + 1))
        part++;
    for (uint32_t d = 0; d + 1 < w->nodes && !v->own_only; d++) {
        uint32_t m = part + v->parts * d, sender = m % size, to = node_after(w, node, d + 1);
        uint32_t block = slot_block(w, v, 0, m / size);
        block += (me - part_first(w, v, node, part)) * w->node_size[to];
        copy_shards(e, to, 0, w->node_size[to], data_at(shared_of(e, sender), block),
                    twill_world_member(w, node, sender), true);
    }
    for (uint32_t i = 1; i < size; i++) {
        uint32_t peer = twill_world_member(w, node, (me + i) % size);
        twill_emit_copy(e, data_at(TWILL_SHARED | TWILL_PEER, local_block(w, v) + me),
                        data_at(TWILL_SRC, peer), peer, 1, 0);
    }
}

/* Send message number `slot` of this rank, which is message `part` to node `to`. If several ranks
 * have stored shards for it, first sort them by destination, in TMP. */
static void send_message(struct twill_emitter *e, const struct division *v, uint32_t slot,
                         uint32_t part, uint32_t to, uint32_t peer)
{
    const struct twill_world *w = e->world;
    uint32_t sources = part_size(w, v, w->node[e->rank], part), size = w->node_size[to];
    uint32_t from = slot_block(w, v, 0, slot);
    for (uint32_t j = 0; j < size && sources > 1; j++)
        for (uint32_t i = 0; i < sources; i++)
            twill_emit_copy(e, data_at(TWILL_TMP, from + j * sources + i),
                            data_at(TWILL_SHARED, from + i * size + j), 0, 1, 0);
    twill_operand src = v->own_only ? data_at(TWILL_SRC, twill_world_member(w, to, 0))
                                    : data_at(sources > 1 ? TWILL_TMP : TWILL_SHARED, from);
    twill_emit_send(e, peer, src, sources * size, 0);
}

/* Exchange the messages of this rank with other nodes. Ends with nothing posted. */
static void exchange_messages(struct twill_emitter *e, const struct division *v)
{
    const struct twill_world *w = e->world;
    uint32_t node = w->node[e->rank], me = w->local[e->rank], size = w->node_size[node], posted = 0;
    for (uint32_t m = me, slot = 0; m < v->parts * (w->nodes - 1); m += size, slot++) {
        uint32_t part = m % v->parts, hops = m / v->parts + 1;
        uint32_t from = node_after(w, node, w->nodes - hops), to = node_after(w, node, hops);
        uint32_t comes = part_size(w, v, from, part) * size;
        if (comes > 0)
            twill_emit_recv(e, twill_world_member(w, from, m % w->node_size[from]),
                            data_at(TWILL_SHARED, slot_block(w, v, v->out_copies, slot)), comes, 0);
        if (part_size(w, v, node, part) > 0)
            send_message(e, v, slot, part, to, twill_world_member(w, to, m % w->node_size[to]));
        if (++posted % (TWILL_EMIT_POSTED / 2) == 0)
            twill_emit_wait(e);
    }
    if (posted % (TWILL_EMIT_POSTED / 2) != 0)
        twill_emit_wait(e);
}

/* Copy what other nodes have sent for this rank into its DST, starting with what it has received
 * itself. */
static void fetch_shards(struct twill_emitter *e, const struct division *v)
{
    const struct twill_world *w = e->world;
    uint32_t node = w->node[e->rank], me = w->local[e->rank], size = w->node_size[node];
    uint32_t messages = v->parts * (w->nodes - 1);
    for (uint32_t x = 0; x < messages; x++) {
        uint32_t m = (me + x) % messages, part = m % v->parts, receiver = m % size;
        uint32_t from = node_after(w, node, w->nodes - m / v->parts - 1);
        uint32_t sources = part_size(w, v, from, part);
        uint32_t block = slot_block(w, v, v->out_copies, m / size) + me * sources;
        copy_shards(e, from, part_first(w, v, from, part), sources,
                    data_at(shared_of(e, receiver), block), twill_world_member(w, node, receiver),
                    false);
    }
}

bool twill_node_messages_fit(const struct twill_world *world, uint32_t parts)
{
    struct division v;
    return divide(&v, world, parts);
}

void twill_emit_node_messages(struct twill_emitter *e, uint32_t parts)
{
    const struct twill_world *w = e->world;
    struct division v;
    if (!divide(&v, w, parts))
        return;
    uint32_t node = w->node[e->rank], me = w->local[e->rank];
    e->blocks = e->shards = w->size;
    uint32_t copies = v.out_copies + v.in_copies, last = local_block(w, &v) / w->size + 1;
    e->tmp_blocks = v.blocks > twill_world_widest(w) ? v.out_copies * w->size : 0;
    e->shared_blocks = (copies > last ? copies : last) * w->size;
    store_shards(e, &v);
    twill_emit_copy(e, data_at(TWILL_DST, e->rank), data_at(TWILL_SRC, e->rank), 0, 1, 0);
    twill_emit_node_barrier(e, 1);
    exchange_messages(e, &v);
    twill_emit_node_barrier(e, 2);
    copy_shards(e, node, 0, me, data_at(TWILL_SHARED, local_block(w, &v)), 0, false);
    copy_shards(e, node, me + 1, w->node_size[node] - me - 1,
                data_at(TWILL_SHARED, local_block(w, &v) + me + 1), 0, false);
    fetch_shards(e, &v);
}

/* In a gather or scatter the root's node exchanges one message with each other node. Blocks of
 * SHARED and TMP are in the order of world->member, so the shards of a node follow each other. */

/* Return the rank of the root's node that exchanges the message with another node. The root, which
 * copies meanwhile, comes last. */
static uint32_t relay_of(const struct twill_world *w, uint32_t root, uint32_t node)
{
    uint32_t own = w->node[root], hops = node_after(w, node, w->nodes - own);
    return twill_world_member(w, own, (w->local[root] + hops) % w->node_size[own]);
}

/* Return the operand of the shards of a node in a space of a rank of this node. */
static twill_operand shards_in(const struct twill_emitter *e, unsigned space, uint32_t rank,
                               uint32_t node)
{
    return data_at(space | (rank != e->rank ? (unsigned)TWILL_PEER : 0),
                   e->world->node_first[node]);
}

/* Return the number of the SIGNAL with which the root of a scatter says that the shards of the node
 * that is `hops` after its own are in its SHARED. Its own node is the last. */
static uint32_t stored_signal(const struct twill_world *w, uint32_t hops)
{
    uint32_t signals = (uint32_t)twill_min(w->nodes, SCATTER_SIGNALS);
    return (uint32_t)((uint64_t)(hops - 1) * signals / w->nodes) + 1;
}

/* Send, or else receive, the message of each node for which this rank is the relay. It is in TMP,
 * where it is first copied from SHARED of the root, or in SHARED of this rank. Ends with nothing
 * posted. */
static void relay_messages(struct twill_emitter *e, uint32_t root, bool sends)
{
    const struct twill_world *w = e->world;
    uint32_t posted = 0, awaited = 0;
    for (uint32_t hops = 1; hops < w->nodes; hops++) {
        uint32_t node = node_after(w, w->node[root], hops), size = w->node_size[node];
        if (relay_of(w, root, node) != e->rank)
            continue;
        twill_operand at = shards_in(e, TWILL_SHARED, e->rank, node);
        if (sends && e->rank != root) {
            if (stored_signal(w, hops) > awaited)
                twill_emit_await_one(e, root, awaited = stored_signal(w, hops), 0);
            at = shards_in(e, TWILL_TMP, e->rank, node);
            twill_emit_copy(e, at, shards_in(e, TWILL_SHARED, root, node), root, size, 0);
        }
        if (sends)
            twill_emit_send(e, twill_world_member(w, node, 0), at, size, 0);
        else
            twill_emit_recv(e, twill_world_member(w, node, 0), at, size, 0);
        if (++posted % TWILL_EMIT_POSTED == 0)
            twill_emit_wait(e);
    }
    if (posted % TWILL_EMIT_POSTED != 0)
        twill_emit_wait(e);
}

/* Copy all shards but the root's own from its SRC to its SHARED, with SIGNALs in between. */
static void store_to_scatter(struct twill_emitter *e, uint32_t root)
{
    const struct twill_world *w = e->world;
    uint32_t own = w->node[root], local = w->local[root], size = w->node_size[own];
    for (uint32_t hops = 1; hops < w->nodes; hops++) {
        uint32_t node = node_after(w, own, hops);
        copy_shards(e, node, 0, w->node_size[node], shards_in(e, TWILL_SHARED, root, node), 0,
                    true);
        if (size > 1 && stored_signal(w, hops) != stored_signal(w, hops + 1))
            twill_emit_signal(e);
    }
    twill_operand at = shards_in(e, TWILL_SHARED, root, own);
    copy_shards(e, own, 0, local, at, 0, true);
    copy_shards(e, own, local + 1, size - local - 1, at + local + 1, 0, true);
    if (size > 1)
        twill_emit_signal(e);
}

/* Emit the part of the root's node in a scatter. */
static void scatter_at_root(struct twill_emitter *e, uint32_t root)
{
    const struct twill_world *w = e->world;
    if (e->rank == root)
        store_to_scatter(e, root);
    relay_messages(e, root, true);
    if (e->rank == root) {
        twill_emit_copy(e, data_at(TWILL_DST, root), data_at(TWILL_SRC, root), 0, 1, 0);
        return;
    }
    twill_emit_await_one(e, root, stored_signal(w, w->nodes), 0);
    twill_emit_copy(e, data_at(TWILL_DST, e->rank),
                    shards_in(e, TWILL_SHARED, root, w->node[root]) + w->local[e->rank], root, 1,
                    0);
}

/* Emit the part of another node in a scatter, whose first rank receives the message. */
static void scatter_elsewhere(struct twill_emitter *e, uint32_t root)
{
    const struct twill_world *w = e->world;
    uint32_t node = w->node[e->rank], size = w->node_size[node];
    uint32_t head = twill_world_member(w, node, 0);
    twill_operand own = data_at(TWILL_DST, e->rank), at = shards_in(e, TWILL_SHARED, head, node);
    if (e->rank == head) {
        twill_emit_recv(e, relay_of(w, root, node), size > 1 ? at : own, size, 0);
        twill_emit_wait(e);
    }
    if (size == 1)
        return;
    if (e->rank == head)
        twill_emit_signal(e);
    else
        twill_emit_await_one(e, head, 1, 0);
    twill_emit_copy(e, own, at + w->local[e->rank], head, 1, 0);
}

/* Emit the part of the root's node in a gather. All ranks store their shard in SHARED of the root,
 * which copies it and what the others have received to its DST. */
static void gather_at_root(struct twill_emitter *e, uint32_t root)
{
    const struct twill_world *w = e->world;
    uint32_t own = w->node[root], size = w->node_size[own];
    twill_operand to = e->rank == root ? data_at(TWILL_DST, root)
                                       : shards_in(e, TWILL_SHARED, root, own) + w->local[e->rank];
    twill_emit_copy(e, to, data_at(TWILL_SRC, e->rank), root, 1, 0);
    relay_messages(e, root, false);
    if (e->rank != root) {
        twill_emit_signal(e);
        return;
    }
    for (uint32_t i = 1; i <= size; i++) {
        uint32_t local = (w->local[root] + i) % size, relay = twill_world_member(w, own, local);
        if (relay != root) {
            twill_emit_await_one(e, relay, 1, 0);
            twill_emit_copy(e, data_at(TWILL_DST, relay),
                            shards_in(e, TWILL_SHARED, root, own) + local, 0, 1, 0);
        }
        for (uint32_t hops = 1; hops < w->nodes; hops++) {
            uint32_t node = node_after(w, own, hops);
            if (relay_of(w, root, node) == relay)
                copy_shards(e, node, 0, w->node_size[node], shards_in(e, TWILL_SHARED, relay, node),
                            relay, false);
        }
    }
}

/* Emit the part of another node in a gather, whose first rank sends the message. */
static void gather_elsewhere(struct twill_emitter *e, uint32_t root)
{
    const struct twill_world *w = e->world;
    uint32_t node = w->node[e->rank], size = w->node_size[node];
    uint32_t head = twill_world_member(w, node, 0);
    struct twill_group g = twill_group_node(e);
    twill_operand own = data_at(TWILL_SRC, e->rank), at = shards_in(e, TWILL_SHARED, head, node);
    if (size > 1)
        twill_emit_copy(e, at + w->local[e->rank], own, head, 1, 0);
    if (e->rank != head) {
        twill_emit_signal(e);
        return;
    }
    twill_emit_await(e, &g, 1, 0);
    twill_emit_send(e, relay_of(w, root, node), size > 1 ? at : own, size, 0);
    twill_emit_wait(e);
}

void twill_emit_node_relays(struct twill_emitter *e, uint32_t root, bool gathers)
{
    bool at_root = e->world->node[e->rank] == e->world->node[root];
    e->blocks = e->shards = e->shared_blocks = e->world->size;
    e->tmp_blocks = gathers ? 0 : e->blocks;
    e->eager = true;
    if (gathers && at_root)
        gather_at_root(e, root);
    else if (gathers)
        gather_elsewhere(e, root);
    else if (at_root)
        scatter_at_root(e, root);
    else
        scatter_elsewhere(e, root);
}

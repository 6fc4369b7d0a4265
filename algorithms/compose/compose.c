/* SPDX-License-Identifier: Apache-2.0 */
/* The composer. An allreduce over any number of levels is a reduce-scatter down the levels, an
 * allreduce at the top, and an allgather back up. Each half is also a collective by itself, with
 * one shard per rank.
 *
 * The buffer is divided into shards. At each level below the top the members of a unit divide among
 * themselves the shards of which they hold partials, so that each shard has one owner in the unit.
 * At the top the owners of a shard allreduce it. Levels within a node use memory (direct). The
 * lowest one reads the data of the ranks (MAPPED in SRC, STAGED in SHARED), the next ones read
 * partials in SHARED. Levels by messages pass the partial of a shard around the unit to its owner
 * (ring). The final shards return by the same paths.
 *
 *     node 0:  0   1     node and all: shard 0 is reduced by 0, 2 and 4, shard 1 by 1, 3 and 4,
 *     node 1:  2   3     which then allreduce it among themselves and return it to their nodes
 *     node 2:  4
 *
 * A broadcast has no way down. In each unit of the highest level, including that of the root, every
 * rank fetches its shards from the root, and then they go back up the levels below. The message
 * leaves the unit of the root once per other unit.
 *
 * A unit sends as many bytes as if it were one rank, divided among its ranks. With equal nodes of L
 * ranks and a ring on top that is 2(n/L)(G-1)/G per rank. The division depends on the world alone,
 * so nodes may use different protocols. Ranks that own several shards handle them in ascending
 * order everywhere, so that the lowest one in progress can always proceed. */
#include "algorithms/compose/compose.h"
#include "algorithms/compose/hierarchy.h"
#include "algorithms/patterns/intra_node.h"

#include <stdlib.h>

/* A composed schedule under construction, on the stack of twill_compose(). The way down reduces
 * data from the lowest level to the top, and the way up returns results from there. An allreduce
 * takes both, a reduce-scatter only the way down. An allgather and a broadcast take only the way
 * up. */
struct composer {
    struct twill_emitter *e;
    struct twill_hierarchy hierarchy;
    uint32_t each; /* number of blocks of each shard */
    bool down, up; /* whether it has a way down, and a way up */
    bool broadcasts;
    uint32_t root;          /* rank that broadcasts */
    bool mapped;            /* the levels that use memory do so with MAPPED, else STAGED */
    enum twill_space final; /* where a top level that uses memory (`direct`) leaves final shards */
    uint32_t *list;         /* [size + 1] scratch for ranks */
    bool *marked;           /* [size] scratch for the peers to await */
};

/* Return the first block of shard s. */
static uint32_t block_of(const struct composer *c, uint32_t s)
{
    return s * c->each;
}

/* Return the number, from 1, of the SIGNAL that a rank sends at a level on the way down or, with
 * `up`, the way up. Before the way up an allgather with MAPPED sends one more, a broadcast one or
 * two. With `up` and the number of levels, return the one before, in a reduce-scatter its last. */
static uint32_t ordinal_of(const struct composer *c, uint32_t level, bool up, uint32_t rank)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    if (!up)
        return twill_hierarchy_signals(l, rank, 0, level + 1);
    uint32_t before = c->mapped;
    if (c->broadcasts)
        before = 1 + (c->mapped && rank != c->root);
    else if (c->down)
        before = twill_hierarchy_signals(l, rank, 0, l->count) + !c->up;
    return before + twill_hierarchy_signals(l, rank, level, l->count);
}

/* Await the signals of the marked ranks at this level on the way down or up. Clears the marks. */
static void await_marked(struct composer *c, uint32_t level, bool up)
{
    const struct twill_group node = twill_group_node(c->e);
    for (uint32_t ordinal = 1; ordinal <= 2 * TWILL_MAX_LEVELS; ordinal++) {
        struct twill_group g = {.rank = c->list, .size = 1};
        c->list[0] = c->e->rank;
        for (uint32_t i = 1; i < node.size; i++) {
            uint32_t peer = node.rank[(node.me + i) % node.size];
            if (c->marked[peer] && ordinal_of(c, level, up, peer) == ordinal) {
                c->list[g.size++] = peer;
                c->marked[peer] = false;
            }
        }
        twill_emit_await(c->e, &g, ordinal, 0);
    }
}

/* Return the number of shards from s on that this rank can handle in one step at a level. It holds
 * all of them there, and the same member of its unit owns them. In each member, all of them are
 * with one rank. Returns 1 if the message has one shard per rank. */
static uint32_t run_of(const struct composer *c, uint32_t level, uint32_t s)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    uint32_t n = 1, fanout = l->level[level].fanout, owner = twill_hierarchy_owner(l, level, s);
    for (; !l->sharded && s + n < l->shards; n++) {
        if (!twill_hierarchy_owns(l, level, s + n) ||
            twill_hierarchy_owner(l, level, s + n) != owner)
            return n;
        for (uint32_t m = 0; m < fanout; m++)
            if (twill_hierarchy_owner_rank(l, level, c->e->rank, m, s) !=
                twill_hierarchy_owner_rank(l, level, c->e->rank, m, s + n))
                return n;
    }
    return n;
}

/* Append a WAIT if a receive (or, with `all`, a send) is posted. Blocks that are being sent are not
 * written before the next WAIT, so the next round need not wait for the sends. */
static void wait_if_posted(struct twill_emitter *e, bool all)
{
    const struct twill_step_list *list = &e->lanes[e->lane];
    bool waits = false;
    for (size_t i = list->count; i-- > 0 && list->steps[i].op != TWILL_STEP_WAIT && !waits;)
        waits = list->steps[i].op == TWILL_STEP_RECV ||
                list->steps[i].op == TWILL_STEP_RECV_REDUCE ||
                (all && list->steps[i].op == TWILL_STEP_SEND);
    if (waits)
        twill_emit_wait(e);
}

twill_emit_allreduce_fn twill_compose_allreduce(unsigned how)
{
    static const twill_emit_allreduce_fn allreduce[TWILL_BY_COUNT] = {
        [TWILL_BY_RING] = twill_emit_ring,
        [TWILL_BY_RECURSIVE_DOUBLING] = twill_emit_recursive_doubling,
        [TWILL_BY_HALVING_DOUBLING] = twill_emit_circulant,
        [TWILL_BY_BRUCK] = twill_emit_gather_reduce};
    return allreduce[how];
}

uint32_t twill_compose_copies(unsigned how, uint32_t members)
{
    return how == TWILL_BY_RECURSIVE_DOUBLING ? 2 : how == TWILL_BY_BRUCK ? members : 1;
}

/* Sort the shards that this rank holds below the level by the member of its unit that owns them at
 * the level. Returns an array for pair_of(), which the caller frees. Entry m is the index in the
 * array of the first shard of member m. Returns NULL and sets no_memory if out of memory. */
static uint32_t *sort_shards(struct composer *c, uint32_t level)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    uint32_t members = l->level[level].fanout;
    /* first[m] is where the shards of m begin, after the members + 2 numbers of `first` itself. */
    uint32_t *first = calloc((size_t)members + 2 + l->shards, sizeof(*first));
    if (first == NULL) {
        c->e->no_memory = true;
        return NULL;
    }
    for (uint32_t s = 0; s < l->shards; s++)
        first[twill_hierarchy_owner(l, level, s) + 2] += twill_hierarchy_owns(l, level, s);
    first[0] = first[1] = members + 2;
    for (uint32_t m = 0; m < members; m++)
        first[m + 2] += first[m + 1];
    for (uint32_t s = 0; s < l->shards; s++)
        if (twill_hierarchy_owns(l, level, s))
            first[first[twill_hierarchy_owner(l, level, s) + 1]++] = s;
    return first;
}

/* The shards of two members of a unit that pair_next() has not yet returned. Those of each member
 * are ascending, from `next` to before `end`, and are in an array of sort_shards(). */
struct shard_pair {
    const uint32_t *next[2], *end[2];
};

/* Return the shards that members a and b of this rank's unit own at the level. `sorted` is the
 * array from sort_shards(), and a and b are taken modulo the number of members. */
static struct shard_pair pair_of(const struct composer *c, uint32_t level, const uint32_t *sorted,
                                 uint32_t a, uint32_t b)
{
    uint32_t members = c->hierarchy.level[level].fanout;
    a %= members;
    b %= members;
    return (struct shard_pair){.next = {sorted + sorted[a], sorted + sorted[b]},
                               .end = {sorted + sorted[a + 1], sorted + sorted[b + 1]}};
}

/* Take the next shard of both members in ascending order. Returns false if none is left. Otherwise
 * *s is the shard and *which its member, 0 for a or 1 for b. */
static bool pair_next(struct shard_pair *pair, uint32_t *s, unsigned *which)
{
    const uint32_t *a = pair->next[0], *b = pair->next[1];
    bool a_left = a < pair->end[0], b_left = b < pair->end[1];
    if (!a_left && !b_left)
        return false;
    *which = !a_left || (b_left && *b < *a);
    *s = *pair->next[*which]++;
    return true;
}

/* --- down: from the ranks' data to shards, each reduced by its owner -------------------------- */
/* Return the number of the copy of the blocks in SHARED from which a `direct` level above the
 * lowest reads partials. Each such level has its own copy. They are counted from 1 with STAGED,
 * where copy 0 has the data of the ranks and later the results, and from 0 with MAPPED. */
static uint32_t shared_copy(const struct composer *c, uint32_t level)
{
    uint32_t copy = c->mapped ? 0 : 1;
    for (uint32_t j = 1; j < level; j++)
        copy += c->hierarchy.level[j].choice.how == TWILL_BY_DIRECT;
    return copy;
}

/* Return where a level reads shard s of its members. */
static twill_operand shard_source(const struct composer *c, uint32_t level, uint32_t s)
{
    if (c->hierarchy.level[level].choice.how != TWILL_BY_DIRECT)
        return data_at(level == 0 ? TWILL_SRC : TWILL_TMP, block_of(c, s));
    if (level == 0)
        return data_at(c->mapped ? TWILL_SRC : TWILL_SHARED, block_of(c, s));
    return data_at(TWILL_SHARED, shared_copy(c, level) * c->e->blocks + block_of(c, s));
}

/* Return where a level leaves shard s, which is where the next one reads it or final shards go. */
static twill_operand target_of(const struct composer *c, uint32_t level, uint32_t s)
{
    if (level + 1 == c->hierarchy.count)
        return data_at(c->final, block_of(c, s));
    return shard_source(c, level + 1, s);
}

/* Emit one level down through memory. This rank signals that its data can be read, and awaits the
 * ranks of other members that have the same shards. Then it reduces the shards that it owns from
 * their memory. */
static void down_direct(struct composer *c, uint32_t level)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    const struct twill_hierarchy_level *r = &l->level[level];
    unsigned flags = level > 0 ? TWILL_STEP_PARTIAL : c->mapped ? 0 : TWILL_STEP_OWN_SRC;
    if (level + 1 == l->count)
        flags |= TWILL_STEP_FINAL;
    for (uint32_t s = 0; s < l->shards; s++)
        for (uint32_t m = 0; m < r->fanout && twill_hierarchy_owns(l, level + 1, s); m++)
            c->marked[twill_hierarchy_owner_rank(l, level, c->e->rank, m, s)] = m != r->me;
    twill_emit_signal(c->e);
    await_marked(c, level, false);
    for (uint32_t s = 0, run = 1; s < l->shards; s += run) {
        run = 1;
        if (!twill_hierarchy_owns(l, level + 1, s))
            continue;
        run = run_of(c, level, s);
        struct twill_group g = {.rank = c->list, .size = r->fanout, .me = r->me};
        for (uint32_t m = 0; m < r->fanout; m++)
            c->list[m] = twill_hierarchy_owner_rank(l, level, c->e->rank, m, s);
        twill_emit_reduce(c->e, &g, target_of(c, level, s),
                          shard_source(c, level, s) | (uint32_t)TWILL_PEER << TWILL_BLOCK_BITS,
                          run * c->each, flags);
    }
}

/* Emit the reduction at one level on the way down by messages around a ring of the members of the
 * unit. Each shard starts at the member after its owner. It passes every member, which adds its
 * data, and ends at its owner. */
static void down_ring(struct composer *c, uint32_t level)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    const struct twill_hierarchy_level *r = &l->level[level];
    uint32_t right = (r->me + 1) % r->fanout, left = (r->me + r->fanout - 1) % r->fanout;
    uint32_t *sorted = sort_shards(c, level);
    for (uint32_t hop = 1; hop < r->fanout && sorted != NULL; hop++) {
        uint32_t s, mine = r->me + r->fanout - hop;
        unsigned receives, moved = level > 0 || hop > 1 ? TWILL_STEP_PARTIAL : 0;
        unsigned own = level > 0 ? TWILL_STEP_PARTIAL_OWN : 0;
        if (level + 1 == l->count && hop + 1 == r->fanout)
            own |= TWILL_STEP_FINAL;
        struct shard_pair pair = pair_of(c, level, sorted, mine, mine + r->fanout - 1);
        while (pair_next(&pair, &s, &receives)) {
            twill_operand tmp = data_at(TWILL_TMP, block_of(c, s)),
                          source = shard_source(c, level, s);
            if (!receives)
                twill_emit_send(c->e, twill_hierarchy_owner_rank(l, level, c->e->rank, right, s),
                                hop == 1 ? source : tmp, c->each, moved);
            else
                twill_emit_recv_reduce(c->e,
                                       twill_hierarchy_owner_rank(l, level, c->e->rank, left, s),
                                       hop + 1 == r->fanout ? target_of(c, level, s) : tmp, source,
                                       c->each, moved | own | TWILL_STEP_FIRST);
        }
        wait_if_posted(c->e, false);
    }
    free(sorted);
}

/* Emit one level of the way down where the unit of this rank has one member, so that nothing is
 * reduced. Copy the shards of this rank to where the next level reads them. At the lowest level
 * that makes partials of SRC. */
static void down_alone(struct composer *c, uint32_t level)
{
    if (level == 0) /* all shards belong to this rank */
        twill_emit_widen(c->e, target_of(c, 0, 0), data_at(TWILL_SRC, 0), c->e->blocks);
    for (uint32_t s = 0; s < c->hierarchy.shards && level > 0; s++) {
        twill_operand to = target_of(c, level, s), from = shard_source(c, level, s);
        if (twill_hierarchy_owns(&c->hierarchy, level + 1, s) && to != from)
            twill_emit_copy(c->e, to, from, 0, c->each, TWILL_STEP_PARTIAL);
    }
}

/* Copy SRC into SHARED, except the shards that this rank reduces itself. */
static void copy_to_shared(struct composer *c)
{
    uint32_t from = 0, shards = c->hierarchy.shards;
    for (uint32_t s = 0; s <= shards; s++) {
        if (s < shards && !twill_hierarchy_owns(&c->hierarchy, 1, s))
            continue;
        if (s > from)
            twill_emit_copy(c->e, data_at(TWILL_SHARED, block_of(c, from)),
                            data_at(TWILL_SRC, block_of(c, from)), 0, block_of(c, s - from), 0);
        from = s + 1;
    }
}

/* Emit the reductions of the way down, level by level from the lowest. After them each shard that
 * this rank owns is reduced over all levels that divide shards among members. */
static void go_down(struct composer *c)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    if (l->scatters > 0 && l->level[0].choice.how == TWILL_BY_DIRECT && !c->mapped)
        copy_to_shared(c);
    for (uint32_t j = 0; j < l->scatters; j++) {
        if (l->level[j].fanout == 1)
            down_alone(c, j);
        else if (l->level[j].choice.how == TWILL_BY_DIRECT)
            down_direct(c, j);
        else
            down_ring(c, j);
    }
}

/* End a reduce-scatter. Move the shard to DST, and with MAPPED wait until others have read SRC. */
static void end_down(struct composer *c)
{
    struct twill_hierarchy *l = &c->hierarchy;
    const struct twill_hierarchy_level *low = &l->level[0];
    uint32_t me = c->e->rank;
    if (c->final != TWILL_DST)
        twill_emit_copy(c->e, data_at(TWILL_DST, me), data_at(c->final, me), 0, 1, 0);
    if (!c->mapped || low->fanout == 1 || low->choice.how != TWILL_BY_DIRECT)
        return;
    twill_emit_signal(c->e);
    for (uint32_t m = 0; m < low->fanout; m++)
        c->marked[twill_hierarchy_owner_rank(l, 0, me, m, 0)] = m != low->me;
    await_marked(c, l->count, true);
}

/* --- up: final shards from their owners to all ranks ------------------------------------------ */
/* Return whether the owners of final shards write them into the memory of the receivers. They do
 * with MAPPED, and with STAGED after a reduction, whose cache lines are reused (see intra_node.c).
 * Otherwise they copy them to their own SHARED, where the receivers fetch them. */
static bool stores(const struct composer *c)
{
    return c->mapped || c->down;
}

/* Return whether this rank has already copied the final shard s to its SHARED, where other ranks
 * fetch it. It has if it owned the shard at a `direct` level above `level`, as the way up begins
 * with the highest. The root of a broadcast has copied all shards. */
static bool is_published(const struct composer *c, uint32_t level, uint32_t s)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    if (c->broadcasts && c->e->rank == c->root)
        return true;
    for (uint32_t j = level + 1; j < l->scatters; j++)
        if (l->level[j].choice.how == TWILL_BY_DIRECT && l->level[j].fanout > 1 &&
            twill_hierarchy_owns(l, j + 1, s))
            return true;
    return false;
}

/* Copy final shards s to s + `run` - 1 from the space `from` of this rank to its SHARED, where
 * others fetch them. Shards that it has already copied there, at a level above `level`, are left
 * out. */
static void publish_shards(struct composer *c, uint32_t level, uint32_t s, uint32_t run,
                           enum twill_space from)
{
    uint32_t first = s, end = s + run;
    for (; s <= end; s++) {
        if (s < end && !is_published(c, level, s))
            continue;
        if (s > first)
            twill_emit_copy(c->e, data_at(TWILL_SHARED, block_of(c, first)),
                            data_at(from, block_of(c, first)), 0, (s - first) * c->each, 0);
        first = s + 1;
    }
}

/* Emit what the owner of shards s to s + `run` - 1 does at a level of the way up. The final shards
 * are in its `from`. It copies them to its DST, and to the memory of the other members or to its
 * own SHARED, as stores() decides. */
static void distribute_shards(struct composer *c, uint32_t level, uint32_t s, uint32_t run,
                              enum twill_space from)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    const struct twill_hierarchy_level *r = &l->level[level];
    uint32_t first = block_of(c, s), blocks = run * c->each;
    unsigned to = (c->mapped ? TWILL_DST : TWILL_SHARED) | TWILL_PEER;
    if (!stores(c))
        publish_shards(c, level, s, run, from);
    if (from != TWILL_DST)
        twill_emit_copy(c->e, data_at(TWILL_DST, first), data_at(from, first), 0, blocks, 0);
    for (uint32_t i = 1; i < r->fanout && stores(c); i++) {
        uint32_t peer =
            twill_hierarchy_owner_rank(l, level, c->e->rank, (r->me + i) % r->fanout, s);
        if (!c->broadcasts || peer != c->root) /* the root has it already */
            twill_emit_copy(c->e, data_at(to, first), data_at(from, first), peer, blocks, 0);
    }
}

/* Append AWAITs of the first SIGNAL of each rank to whose DST this rank will write at a level of
 * the way up. They are the ranks that, in the other members of its unit, have the shards that it
 * owns. */
static void await_started(struct composer *c, uint32_t level)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    const struct twill_hierarchy_level *r = &l->level[level];
    for (uint32_t s = 0; s < l->shards; s++)
        for (uint32_t m = 0; m < r->fanout && twill_hierarchy_owns(l, level + 1, s); m++)
            c->marked[twill_hierarchy_owner_rank(l, level, c->e->rank, m, s)] = m != r->me;
    await_marked(c, l->count, true);
}

/* Copy the final shards that other members own at this level into DST. They are in SHARED of this
 * rank if the owners write them there (see stores()), else in SHARED of the owners. Only for
 * STAGED. */
static void fetch(struct composer *c, uint32_t level)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    unsigned from = stores(c) ? TWILL_SHARED : TWILL_SHARED | TWILL_PEER;
    for (uint32_t s = 0, run = 1; s < l->shards; s += run) {
        run = 1;
        if (!twill_hierarchy_owns(l, level, s))
            continue;
        run = run_of(c, level, s);
        uint32_t owner = twill_hierarchy_owner(l, level, s), first = block_of(c, s);
        if (owner != l->level[level].me)
            twill_emit_copy(c->e, data_at(TWILL_DST, first), data_at(from, first),
                            twill_hierarchy_owner_rank(l, level, c->e->rank, owner, s),
                            run * c->each, 0);
    }
}

/* Emit one level of the way up through memory. In each unit, the owners of final shards write them
 * to the other members, or to their own SHARED, and signal. With STAGED the other members then copy
 * them to DST. Afterwards each rank has the shards that its unit had before. */
static void up_direct(struct composer *c, uint32_t level)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    enum twill_space from = level + 1 == l->count ? c->final : TWILL_DST;
    bool has_all = c->broadcasts && c->e->rank == c->root;
    if (!c->down && c->mapped && !c->broadcasts)
        await_started(c, level);
    for (uint32_t s = 0, run = 1; s < l->shards; s += run) {
        run = 1;
        if (!twill_hierarchy_owns(l, level, s))
            continue;
        run = run_of(c, level, s);
        uint32_t owner = twill_hierarchy_owner(l, level, s);
        if (owner == l->level[level].me)
            distribute_shards(c, level, s, run, from);
        else if (!has_all)
            c->marked[twill_hierarchy_owner_rank(l, level, c->e->rank, owner, s)] = true;
    }
    twill_emit_signal(c->e);
    await_marked(c, level, true);
    if (!c->mapped && !has_all)
        fetch(c, level);
}

/* Emit one level up by messages. Each shard goes around the unit. */
static void up_ring(struct composer *c, uint32_t level)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    const struct twill_hierarchy_level *r = &l->level[level];
    uint32_t right = (r->me + 1) % r->fanout, left = (r->me + r->fanout - 1) % r->fanout;
    uint32_t *sorted = sort_shards(c, level);
    for (uint32_t hop = 1; hop < r->fanout && sorted != NULL; hop++) {
        uint32_t s, mine = r->me + r->fanout - hop;
        unsigned receives;
        struct shard_pair pair = pair_of(c, level, sorted, mine + 1, mine);
        while (pair_next(&pair, &s, &receives)) {
            twill_operand dst = data_at(TWILL_DST, block_of(c, s));
            if (receives)
                twill_emit_recv(c->e, twill_hierarchy_owner_rank(l, level, c->e->rank, left, s),
                                dst, c->each, 0);
            else
                twill_emit_send(c->e, twill_hierarchy_owner_rank(l, level, c->e->rank, right, s),
                                dst, c->each, 0);
        }
        wait_if_posted(c->e, false);
    }
    free(sorted);
}

/* Emit the way up, level by level from the highest, until this rank has all shards. */
static void go_up(struct composer *c)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    for (uint32_t j = l->scatters; j-- > 0;) {
        if (l->level[j].fanout > 1 && l->level[j].choice.how == TWILL_BY_DIRECT)
            up_direct(c, j);
        else if (l->level[j].fanout > 1)
            up_ring(c, j);
    }
}

/* Begin an allgather. With MAPPED, signal that others may write to DST. Copy the own shard. */
static void begin_up(struct composer *c)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    uint32_t me = c->e->rank;
    if (c->mapped && twill_hierarchy_signals(l, me, 0, l->count) > 0)
        twill_emit_signal(c->e);
    twill_emit_copy(c->e, data_at(TWILL_DST, me), data_at(TWILL_SRC, me), 0, 1, 0);
}

/* Begin a broadcast. The root copies SRC to its DST, and with STAGED to SHARED, waits until all
 * others have started and signals. The others fetch from it the shards that they own after the
 * scattering levels, and with MAPPED signal that. */
static void begin_broadcast(struct composer *c)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    const struct twill_group node = twill_group_node(c->e);
    unsigned from = (c->mapped ? TWILL_SRC : TWILL_SHARED) | TWILL_PEER;
    if (c->e->rank == c->root) {
        twill_emit_copy(c->e, data_at(TWILL_DST, 0), data_at(TWILL_SRC, 0), 0, c->e->blocks, 0);
        if (!c->mapped)
            twill_emit_copy(c->e, data_at(TWILL_SHARED, 0), data_at(TWILL_SRC, 0), 0, c->e->blocks,
                            0);
        twill_emit_await(c->e, &node, 1, 0);
        twill_emit_signal(c->e);
        return;
    }
    twill_emit_signal(c->e);
    twill_emit_await_one(c->e, c->root, 1, 0);
    for (uint32_t s = 0, run = 1; s < l->shards; s += run) {
        run = 1;
        if (!twill_hierarchy_owns(l, l->scatters, s))
            continue;
        while (s + run < l->shards && twill_hierarchy_owns(l, l->scatters, s + run))
            run++;
        twill_emit_copy(c->e, data_at(TWILL_DST, block_of(c, s)), data_at(from, block_of(c, s)),
                        c->root, run * c->each, 0);
    }
    if (c->mapped)
        twill_emit_signal(c->e);
}

/* End a broadcast. With MAPPED the root waits until all others have read its SRC. */
static void end_broadcast(struct composer *c)
{
    const struct twill_group node = twill_group_node(c->e);
    if (c->mapped && c->e->rank == c->root)
        twill_emit_await(c->e, &node, 2, 0);
}

/* Emit the allreduce by messages at the highest level, for each shard that this rank owns. The last
 * sends may still be posted when it ends, but no receives. */
static void emit_top(struct composer *c)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    const struct twill_hierarchy_level *r = &l->level[l->count - 1];
    for (uint32_t s = 0; s < l->shards; s++) {
        if (!twill_hierarchy_owns(l, l->scatters, s))
            continue;
        struct twill_group g = {.rank = c->list,
                                .size = r->fanout,
                                .me = r->me,
                                .first = block_of(c, s),
                                .blocks = c->each};
        for (uint32_t m = 0; m < r->fanout; m++)
            c->list[m] = twill_hierarchy_owner_rank(l, l->count - 1, c->e->rank, m, s);
        twill_compose_allreduce(r->choice.how)(c->e, &g, l->scatters == 0 ? TWILL_SRC : TWILL_TMP);
    }
    wait_if_posted(c->e, false);
}

/* Emit the whole schedule. A world without levels only copies. */
static void emit_all(struct composer *c)
{
    if (c->hierarchy.count == 0) {
        twill_emit_copy(c->e, data_at(TWILL_DST, 0), data_at(TWILL_SRC, 0), 0, 1, 0);
        return;
    }
    if (c->broadcasts)
        begin_broadcast(c);
    else if (c->down)
        go_down(c);
    else
        begin_up(c);
    if (c->hierarchy.scatters < c->hierarchy.count && !c->broadcasts)
        emit_top(c);
    if (c->up)
        go_up(c);
    else
        end_down(c);
    if (c->broadcasts)
        end_broadcast(c);
    wait_if_posted(c->e, true);
}

/* Set in the emitter the numbers of blocks, shards and scratch blocks, which are equal on all
 * ranks, and which buffers of peers are accessed. Also set `each` and `final` of the composer. In a
 * broadcast, the top level no longer divides the shards. */
static void declare_schedule(struct composer *c, enum twill_protocol protocol)
{
    struct twill_hierarchy *l = &c->hierarchy;
    uint32_t messages = 0, shared = 0;
    for (uint32_t j = 0; j < l->count; j++) {
        bool direct = l->level[j].choice.how == TWILL_BY_DIRECT;
        messages += !direct;
        shared += direct && (j > 0 || !c->mapped) && c->down;
        c->e->uses_peer_dst = c->e->uses_peer_dst || (direct && c->mapped && c->up);
        c->e->uses_peer_src =
            c->e->uses_peer_src || (direct && c->mapped && ((j == 0 && c->down) || c->broadcasts));
    }
    if (l->count == 0)
        return;
    const struct twill_hierarchy_level *top = &l->level[l->count - 1];
    if (c->broadcasts) /* every unit of the top level gets all shards */
        twill_hierarchy_drop_top(l);
    bool direct_top = top->choice.how == TWILL_BY_DIRECT;
    if (twill_how_divides(top->choice.how) && !l->sharded)
        c->each = top->fanout;
    if (!c->mapped && messages < l->count && l->level[0].choice.how != TWILL_BY_DIRECT)
        shared++; /* the way up uses the first copy in any case */
    else if (!c->mapped && messages < l->count && !c->down)
        shared = 1;
    c->e->blocks = l->shards * c->each;
    c->e->shards = l->sharded ? l->world->size : 1;
    c->e->shared_blocks = shared * c->e->blocks;
    c->final = TWILL_DST;
    if (c->down && direct_top)
        c->final = twill_node_final_space(protocol, top->fanout);
    if (twill_how_is_top(top->choice.how))
        c->e->tmp_blocks = twill_compose_copies(top->choice.how, top->widest) * c->e->blocks;
    else if (c->down && (messages > 0 || c->final == TWILL_TMP))
        c->e->tmp_blocks = c->e->blocks;
}

void twill_compose(struct twill_emitter *e, const struct twill_shape *shape,
                   const struct twill_level_choice *choice, uint32_t choices)
{
    struct composer c = {.e = e,
                         .each = 1,
                         .down = shape->collective != TWILL_ALLGATHER &&
                                 shape->collective != TWILL_BROADCAST,
                         .broadcasts = shape->collective == TWILL_BROADCAST,
                         .root = shape->root,
                         .up = shape->collective != TWILL_REDUCE_SCATTER,
                         .mapped = shape->protocol == TWILL_PROTOCOL_MAPPED};
    bool sharded = twill_collective_facts(shape->collective)->sharded;
    c.list = calloc((size_t)e->world->size + 1, sizeof(*c.list));
    c.marked = calloc(e->world->size, sizeof(*c.marked));
    if (c.list == NULL || c.marked == NULL ||
        !twill_hierarchy_open(&c.hierarchy, e->world, e->rank, sharded, choice, choices)) {
        e->no_memory = true;
    } else {
        declare_schedule(&c, shape->protocol);
        emit_all(&c);
    }
    twill_hierarchy_close(&c.hierarchy);
    free(c.list);
    free(c.marked);
}

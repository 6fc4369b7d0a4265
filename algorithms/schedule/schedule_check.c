/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the schedule of one rank as plain data. Every step must be well formed, every range must
 * be inside its space, and every field that an operation does not use must be zero. The verifier
 * (verify/) checks what the schedules of all ranks compute together. */
#include "algorithms/algorithms.h"
#include "algorithms/schedule/step_table.h"

/* The schedule under check and what it is checked against. Check functions return NULL, or the
 * fault as the end of a sentence such as "step 3 has FIRST without ACC". */
struct check {
    const struct twill_schedule *schedule;
    const struct twill_world *world;
    const struct twill_shape *shape;
    uint32_t rank;
};

/* Return the number of blocks of a space of one rank, which is 1 for IMM. */
static uint32_t space_blocks(const struct twill_schedule *schedule, unsigned space)
{
    switch (space) {
    case TWILL_TMP:
        return schedule->tmp_blocks;
    case TWILL_SHARED:
        return schedule->shared_blocks;
    case TWILL_IMM:
        return 1;
    default:
        return schedule->blocks;
    }
}

/* Check one operand. `own` and `peer` are the spaces that it may access, without and with the PEER
 * bit, as one bit per enum twill_space. It must be 0 if there are none or the step has no blocks.
 * Returns NULL, or the fault as the end of a sentence. */
static const char *check_operand(const struct check *c, const struct twill_step *step,
                                 twill_operand operand, unsigned own, unsigned peer)
{
    bool remote = twill_operand_is_peer(operand);
    unsigned space = twill_operand_space(operand);
    if ((own == 0 && peer == 0) || step->blocks == 0)
        return operand == 0 ? NULL : "has an operand that the operation does not use";
    if (space >= TWILL_SPACE_COUNT || ((remote ? peer : own) >> space & 1) == 0)
        return "names a space that the operation cannot access";
    if ((uint64_t)twill_operand_block(operand) + step->blocks > space_blocks(c->schedule, space))
        return "names blocks beyond the end of the space";
    if (twill_operand_block(operand) % c->schedule->blocks + step->blocks > c->schedule->blocks)
        return "spans two copies of the blocks, which need not be contiguous";
    if (remote && space == TWILL_SRC && !c->schedule->uses_peer_src)
        return "reads a peer's SRC, but uses_peer_src is not set";
    if (remote && space == TWILL_DST && !c->schedule->uses_peer_dst)
        return "accesses a peer's DST, but uses_peer_dst is not set";
    return NULL;
}

/* Check the number of sources and the peers of a step, and that OWN_SRC has its own rank among
 * them. Returns NULL, or the fault as the end of a sentence. */
static const char *check_peers(const struct check *c, const struct twill_step *step)
{
    unsigned peers = twill_step_peers(step);
    bool counts = step->op == TWILL_STEP_REDUCE || step->op == TWILL_STEP_AWAIT;
    unsigned most = TWILL_STEP_PEERS - ((step->flags & TWILL_STEP_ACC) != 0);
    if (counts ? step->nsrc < 1 || step->nsrc > most : step->nsrc != 0)
        return "has a wrong number of sources";
    if (step->op == TWILL_STEP_REDUCE && peers == 0 && step->nsrc != 1)
        return "reduces one local operand several times";
    bool names_self = false;
    for (unsigned i = 0; i < TWILL_STEP_PEERS; i++) {
        uint32_t peer = step->peer[i];
        names_self = names_self || (i < peers && peer == c->rank);
        if (i >= peers && peer != 0)
            return "names a peer that the operation does not use";
        if (i >= peers)
            continue;
        if (peer >= c->world->size)
            return "names a rank that does not exist";
        if (!twill_step_shape(step->op)->posts && c->world->node[peer] != c->world->node[c->rank])
            return "accesses the memory of a rank on another node";
        if (step->op != TWILL_STEP_REDUCE && peer == c->rank)
            return "names its own rank as the peer";
    }
    if ((step->flags & TWILL_STEP_OWN_SRC) != 0 && !names_self)
        return "has OWN_SRC without its own rank among the peers";
    return NULL;
}

/* Check flags and ordinal of a step. Returns NULL, or the fault as the end of a sentence. */
static const char *check_flags(const struct twill_step *step)
{
    unsigned flags = step->flags;
    unsigned source = twill_operand_space(step->src);
    if ((flags & ~(unsigned)twill_step_shape(step->op)->flags) != 0)
        return "has a flag that the operation does not take";
    if (step->op == TWILL_STEP_REDUCE && (flags & TWILL_STEP_FIRST) && !(flags & TWILL_STEP_ACC))
        return "has FIRST without ACC";
    if ((flags & TWILL_STEP_OWN_SRC) != 0 &&
        (!twill_operand_is_peer(step->src) || (source != TWILL_SHARED && source != TWILL_IMM)))
        return "has OWN_SRC without reading SHARED or IMM of peers";
    bool counted = step->op == TWILL_STEP_AWAIT && (flags & TWILL_STEP_IMM) == 0;
    if (counted != (step->ordinal != 0))
        return "has a wrong ordinal";
    return NULL;
}

/* Return whether a space is a buffer of the caller. */
static bool is_buffer(unsigned space)
{
    return space == TWILL_SRC || space == TWILL_DST;
}

/* Check that rank `owner` holds the shards in which an operand of the step lies, all blocks of the
 * step counted. `space` is SRC or DST, while other spaces always pass. Returns NULL, or the fault
 * as the end of a sentence. */
static const char *check_held(const struct check *c, uint32_t owner, unsigned space,
                              const struct twill_step *step, twill_operand operand)
{
    uint32_t shard_blocks = c->schedule->blocks / c->schedule->shards;
    uint32_t first = twill_operand_block(operand), last = first + step->blocks - 1;
    for (uint32_t shard = first / shard_blocks; shard <= last / shard_blocks && is_buffer(space);
         shard++)
        if (space == TWILL_SRC ? !twill_shape_holds_src(c->shape, owner, shard)
                               : !twill_shape_holds_dst(c->shape, owner, shard))
            return "names a shard that the rank does not hold";
    return NULL;
}

/* Check that SRC or DST of this rank, or of the peers if the operand is theirs, contains the shards
 * in which an operand lies. With OWN_SRC that is SRC for this rank among the peers. Returns NULL,
 * or the fault as the end of a sentence. */
static const char *check_owners(const struct check *c, const struct twill_step *step,
                                twill_operand operand)
{
    unsigned space = twill_operand_space(operand), peers = twill_step_peers(step);
    if (!twill_operand_is_peer(operand))
        return check_held(c, c->rank, space, step, operand);
    const char *why = NULL;
    for (unsigned i = 0; i < peers && why == NULL; i++) {
        bool own = step->peer[i] == c->rank && (step->flags & TWILL_STEP_OWN_SRC) != 0;
        why = check_held(c, step->peer[i], own ? TWILL_SRC : space, step, operand);
    }
    return why;
}

/* Check that no partial is in SRC or DST, and flags fit the spaces. Returns NULL, or the fault. */
static const char *check_partials(const struct twill_step *step)
{
    unsigned flags = step->flags, dst = twill_operand_space(step->dst);
    bool partial = (flags & TWILL_STEP_PARTIAL) != 0, own = (flags & TWILL_STEP_PARTIAL_OWN) != 0;
    bool from_buffer = is_buffer(twill_operand_space(step->src)) && step->op != TWILL_STEP_RECV;
    bool reduces = step->op == TWILL_STEP_REDUCE || step->op == TWILL_STEP_RECV_REDUCE;
    bool stores = reduces || step->op == TWILL_STEP_RECV || step->op == TWILL_STEP_COPY;
    if (partial && step->blocks == 0)
        return "marks an empty message as a partial";
    if (partial && from_buffer && step->op != TWILL_STEP_RECV_REDUCE)
        return "marks data of SRC or DST as a partial";
    if (own && step->op == TWILL_STEP_RECV_REDUCE && from_buffer)
        return "marks data of SRC or DST as a partial";
    if (own && step->op == TWILL_STEP_REDUCE && (flags & TWILL_STEP_ACC) == 0)
        return "has PARTIAL_OWN without ACC";
    if (own && step->op == TWILL_STEP_REDUCE && dst == TWILL_DST)
        return "marks data of SRC or DST as a partial";
    if (stores && dst == TWILL_DST && (reduces ? (flags & TWILL_STEP_FINAL) == 0 : partial))
        return "stores a partial in DST";
    return NULL;
}

/* Check what shards of different sizes (`vector`) do not permit. Returns NULL, or the fault. */
static const char *check_vector(const struct check *c, const struct twill_step *step)
{
    uint32_t shard_blocks = c->schedule->blocks / c->schedule->shards;
    bool knows = twill_shape_knows_all(c->shape);
    const struct twill_step_shape *shape = twill_step_shape(step->op);
    twill_operand operand = shape->dst != 0 ? step->dst : step->src;
    if (step->blocks == 0)
        return NULL;
    if ((twill_operand_is_peer(step->src) && is_buffer(twill_operand_space(step->src))) ||
        (twill_operand_is_peer(step->dst) && is_buffer(twill_operand_space(step->dst))))
        return "accesses a peer's SRC or DST, where shards have other offsets";
    if (!knows && (step->op == TWILL_STEP_PUT_IMM || (step->flags & TWILL_STEP_IMM) != 0))
        return "uses IMM, but block sizes are not known to all ranks";
    if (!knows && shape->posts &&
        twill_operand_block(operand) % shard_blocks + step->blocks > shard_blocks)
        return "sends or receives several shards in one message";
    return NULL;
}

/* Check that FETCHED does not write to SRC or DST of peers. Returns NULL, or the fault. */
static const char *check_fetched(const struct check *c, const struct twill_step *step)
{
    bool fetched = c->shape->protocol == TWILL_PROTOCOL_FETCHED;
    bool stores = twill_operand_is_peer(step->dst) && is_buffer(twill_operand_space(step->dst));
    return fetched && stores ? "stores into a peer's DST, which is FETCHED" : NULL;
}

/* Check whether the collective permits what a well-formed step does. Only a collective with a
 * reduction may reduce, and a rank must hold the shards of SRC and DST that are accessed. The rest
 * is up to check_partials(), check_vector() and check_fetched(). Returns NULL, or the fault as the
 * end of a sentence. */
static const char *check_meaning(const struct check *c, const struct twill_step *step)
{
    const struct twill_step_shape *shape = twill_step_shape(step->op);
    bool reduces = step->op == TWILL_STEP_REDUCE || step->op == TWILL_STEP_RECV_REDUCE;
    if (reduces && !twill_collective_facts(c->shape->collective)->reduces)
        return "reduces in a collective without a reduction";
    const char *why = NULL;
    if (shape->dst != 0 && step->blocks > 0)
        why = check_owners(c, step, step->dst);
    if (why == NULL && shape->src != 0 && step->blocks > 0)
        why = check_owners(c, step, step->src);
    if (why == NULL)
        why = check_partials(step);
    if (why == NULL && c->shape->vector)
        why = check_vector(c, step);
    if (why == NULL)
        why = check_fetched(c, step);
    return why;
}

/* Check one step. Returns NULL, or the fault as the end of a sentence. */
static const char *check_step(const struct check *c, const struct twill_step *step)
{
    if (step->op >= TWILL_STEP_OP_COUNT)
        return "has an unknown operation";
    const struct twill_step_shape *shape = twill_step_shape(step->op);
    const char *why = check_operand(c, step, step->dst, shape->dst, shape->dst_peer);
    if (why == NULL)
        why = check_operand(c, step, step->src, shape->src, shape->src_peer);
    if (why == NULL)
        why = check_flags(step);
    if (why == NULL)
        why = check_peers(c, step);
    if (why != NULL)
        return why;
    uint32_t shard_blocks = c->schedule->blocks / c->schedule->shards;
    bool has_data = shape->dst != 0 || shape->src != 0;
    if (!has_data && step->blocks != 0)
        return "has blocks, but no operand";
    if (has_data && !shape->posts && step->blocks == 0)
        return "moves no blocks";
    if (step->op == TWILL_STEP_RECV_REDUCE && step->blocks == 0)
        return "reduces no blocks";
    if (shape->dst != 0 && shape->src != 0 && twill_operand_space(step->src) != TWILL_IMM &&
        twill_operand_block(step->dst) % shard_blocks !=
            twill_operand_block(step->src) % shard_blocks)
        return "combines blocks from different positions of their shards";
    if (twill_operand_is_peer(step->dst) && twill_operand_is_peer(step->src))
        return "has a peer on both sides";
    if (step->op == TWILL_STEP_PUT_IMM && step->blocks != 1)
        return "puts several blocks into IMM, which takes one";
    return check_meaning(c, step);
}

/* Check the members of a schedule except steps and lanes. Returns NULL, or the name of the wrong
 * one. */
static const char *check_facts(const struct check *c)
{
    const struct twill_schedule *schedule = c->schedule;
    bool sharded = twill_collective_facts(c->shape->collective)->sharded;
    struct twill_schedule again = *schedule;
    twill_schedule_derive(&again);
    if (schedule->blocks == 0 || schedule->blocks >> TWILL_BLOCK_BITS != 0)
        return "number of blocks";
    if (schedule->shards != (sharded ? c->world->size : 1) ||
        schedule->blocks % schedule->shards != 0)
        return "shards";
    if (c->shape->vector && !twill_shape_knows_all(c->shape) &&
        (schedule->tmp_blocks > 0 || schedule->shared_blocks > 0))
        return "scratch: its size is not known to all ranks";
    if (schedule->tmp_blocks % schedule->blocks != 0)
        return "tmp_blocks";
    if (schedule->shared_blocks % schedule->blocks != 0)
        return "shared_blocks";
    if (again.most_posted != schedule->most_posted)
        return "most_posted";
    return again.uses_imm != schedule->uses_imm ? "uses_imm" : NULL;
}

/* Check that the lanes cover the steps in order. Returns NULL, or the name of what is wrong. */
static const char *check_lanes(const struct twill_schedule *schedule)
{
    if (schedule->lanes < 1 || schedule->lanes > TWILL_SCHEDULE_LANES)
        return "lanes";
    if (schedule->lane_first[0] != 0 || schedule->lane_first[schedule->lanes] != schedule->count)
        return "first steps of lanes";
    for (uint32_t l = 0; l < schedule->lanes; l++)
        if (schedule->lane_first[l] > schedule->lane_first[l + 1])
            return "first steps of lanes";
    return NULL;
}

twill_status twill_schedule_check(const struct twill_schedule *schedule,
                                  const struct twill_world *world, uint32_t rank,
                                  const struct twill_shape *shape, struct twill_error *error)
{
    struct check c = {.schedule = schedule, .world = world, .shape = shape, .rank = rank};
    const char *why = check_lanes(schedule);
    if (why == NULL)
        why = check_facts(&c);
    if (why != NULL)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "schedule of rank %u: wrong %s", rank, why);
    for (uint32_t l = 0; l < schedule->lanes; l++) {
        bool posted = false;
        for (uint32_t i = schedule->lane_first[l]; i < schedule->lane_first[l + 1]; i++) {
            const struct twill_step *step = &schedule->steps[i];
            why = step->lane == l ? check_step(&c, step) : "is in the wrong lane";
            if (why != NULL)
                return TWILL_FAIL(
                    error, TWILL_ERR_INTERNAL, "schedule of rank %u, lane %u, step %u (%s): %s",
                    rank, l, i - schedule->lane_first[l],
                    step->op < TWILL_STEP_OP_COUNT ? twill_step_shape(step->op)->name : "?", why);
            posted = step->op != TWILL_STEP_WAIT && (posted || twill_step_shape(step->op)->posts);
        }
        if (posted)
            return TWILL_FAIL(error, TWILL_ERR_INTERNAL,
                              "schedule of rank %u, lane %u: ends with posted messages", rank, l);
    }
    return TWILL_OK;
}

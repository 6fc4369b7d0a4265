/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the checker that does each kind of step. */
#include "algorithms/schedule/step_table.h"
#include "algorithms/verify/verify.h"

#include <string.h>

/* A block in a space of a rank. A plain value. */
struct cell_place {
    unsigned space; /* enum twill_space */
    uint32_t rank, block;
};

/* Return the place of block i of an operand, with PEER in memory of peer number k of the step. */
static struct cell_place operand_place(const struct twill_process *p, const struct twill_step *step,
                                       twill_operand operand, unsigned k, uint32_t i)
{
    bool peer = twill_operand_is_peer(operand);
    struct cell_place place = {.space = twill_operand_space(operand),
                               .rank = peer ? step->peer[k] : p->rank,
                               .block = twill_operand_block(operand) + i};
    if (peer && (step->flags & TWILL_STEP_OWN_SRC) != 0 && place.rank == p->rank)
        place.space = TWILL_SRC;
    return place;
}

/* Record that the current step of a process is wrong, and return TWILL_ERR_INTERNAL. The message
 * has the place and then `why`. It also names the process `other` that it races with, unless that
 * is TWILL_NO_RANK. */
static twill_status fail_step(const struct twill_checker *c, const struct twill_process *p,
                              const struct cell_place *place, const char *why, uint32_t other)
{
    return twill_checker_fail(c, p, why, place->space, place->block, place->rank, other);
}

/* Check that the value is a partial exactly if the step says so, else return TWILL_ERR_INTERNAL. */
static twill_status expect_value(const struct twill_checker *c, const struct twill_process *p,
                                 const struct cell_place *place, uint32_t value, bool partial)
{
    if ((c->values.value[value].state == TWILL_STATE_PARTIAL) == partial)
        return TWILL_OK;
    return fail_step(c, p, place,
                     partial ? "is not a partial, but the step marks it as one"
                             : "is a partial, but the step does not mark it as one",
                     TWILL_NO_RANK);
}

/* Read the value at a place into *value, with an access that ends at `time`. Returns
 * TWILL_ERR_INTERNAL if the read races with a write, or there is no value of this run. `partial`
 * says whether the value must be a partial, and it is also an error if that is wrong. */
static twill_status load_cell(struct twill_checker *c, const struct twill_process *p,
                              const struct cell_place *place, bool partial, uint32_t time,
                              uint32_t *value)
{
    uint32_t other = TWILL_NO_RANK;
    if (place->space == TWILL_SHARED && place->block >= c->schedules[place->rank].shared_blocks)
        return fail_step(c, p, place, "is beyond the end of the space", TWILL_NO_RANK);
    size_t cell = twill_checker_cell(c, p, place->rank, place->space, place->block);
    const char *why = twill_cells_read(&c->memory, cell, p->position, p->clock, time, &other);
    if (why != NULL)
        return fail_step(c, p, place, why, other);
    *value = c->memory.cell[cell].value;
    if (*value == 0)
        return fail_step(c, p, place, "is read, but was never written", TWILL_NO_RANK);
    if (c->values.value[*value].run != p->run)
        return fail_step(c, p, place, "is read, but is left over from another run", TWILL_NO_RANK);
    return expect_value(c, p, place, *value, partial);
}

/* Record a write to a place that ends at `time`. Returns TWILL_ERR_INTERNAL if it races. */
static twill_status claim_cell(struct twill_checker *c, const struct twill_process *p,
                               const struct cell_place *place, uint32_t time)
{
    uint32_t other = TWILL_NO_RANK;
    if (place->space == TWILL_SHARED && place->block >= c->schedules[place->rank].shared_blocks)
        return fail_step(c, p, place, "is beyond the end of the space", TWILL_NO_RANK);
    size_t cell = twill_checker_cell(c, p, place->rank, place->space, place->block);
    const char *why = twill_cells_write(&c->memory, cell, p->position, p->clock, time, &other);
    return why == NULL ? TWILL_OK : fail_step(c, p, place, why, other);
}

/* Return whether the block of a value is as large as that of a place. It is if both have the same
 * position in their shards. If shards differ in size (`vector`), the value must be of the place's
 * shard. In an alltoall, it must be the sender's shard for this rank. IMM takes any value. */
static bool fits(const struct twill_checker *c, const struct cell_place *place,
                 const struct twill_value *value)
{
    uint32_t shard = place->block % c->blocks / c->shard_blocks;
    if (place->space == TWILL_IMM)
        return true;
    if (place->block % c->shard_blocks != value->block % c->shard_blocks)
        return false;
    if (!c->shape->vector)
        return true;
    if (c->shape->collective == TWILL_ALLTOALL)
        return shard == value->first && place->rank == value->block / c->shard_blocks;
    return shard == value->block / c->shard_blocks;
}

/* Store a value in a place. Returns TWILL_ERR_INTERNAL if the value does not fit the block there
 * (see fits()), or is a partial and the place is in SRC or DST. */
static twill_status store_cell(struct twill_checker *c, const struct twill_process *p,
                               const struct cell_place *place, uint32_t value)
{
    size_t cell = twill_checker_cell(c, p, place->rank, place->space, place->block);
    const struct twill_value *v = &c->values.value[value];
    c->memory.cell[cell].value = value;
    if (!fits(c, place, v))
        return fail_step(c, p, place, "gets a block of another position", TWILL_NO_RANK);
    if (v->state == TWILL_STATE_PARTIAL && (place->space == TWILL_SRC || place->space == TWILL_DST))
        return fail_step(c, p, place, "gets a partial", TWILL_NO_RANK);
    return TWILL_OK;
}

/* Call twill_values_reduce(). Returns TWILL_ERR_INTERNAL, naming the place, if it fails. */
static twill_status reduce_values(struct twill_checker *c, const struct twill_process *p,
                                  const struct cell_place *place, const uint32_t *operand,
                                  uint32_t length, bool final, uint32_t *result)
{
    const char *why = twill_values_reduce(&c->values, operand, length, final, result);
    return why == NULL ? TWILL_OK : fail_step(c, p, place, why, TWILL_NO_RANK);
}

/* Return whether a step has a flag (enum twill_step_flags). */
static bool step_has(const struct twill_step *step, unsigned flag)
{
    return (step->flags & flag) != 0;
}

/* Record that there is no memory, and return TWILL_ERR_MEMORY. */
static twill_status step_no_memory(const struct twill_checker *c)
{
    return TWILL_FAIL(c->error, TWILL_ERR_MEMORY, "no memory to verify");
}

/* Put the message of a SEND into its channel, and begin to read its source, until the WAIT. Returns
 * TWILL_ERR_INTERNAL if the read races or a value is wrong, or TWILL_ERR_MEMORY. */
static twill_status send_post(struct twill_checker *c, struct twill_process *p,
                              const struct twill_step *step)
{
    struct twill_channel *channel = twill_checker_channel(c, p, p->rank, step->peer[0]);
    if (channel == NULL)
        return step_no_memory(c);
    struct twill_message *message = twill_checker_message(c, p, step);
    if (message == NULL)
        return step_no_memory(c);
    message->partial = step_has(step, TWILL_STEP_PARTIAL);
    if (channel->first == NULL)
        channel->first = message;
    else
        channel->last->next = message;
    channel->last = message;
    p->ticket[p->tickets++] = channel->sent++;
    uint32_t *word = message->word;
    for (uint32_t i = 0; i < step->blocks; i++) {
        struct cell_place src = operand_place(p, step, step->src, 0, i);
        TWILL_TRY(c->error, load_cell(c, p, &src, message->partial, TWILL_OPEN, word++));
    }
    return TWILL_OK;
}

/* Post a RECV or RECV_REDUCE, and begin its accesses, which end at the WAIT. It gets the next
 * number on the receiving side of its channel, whose length is unlimited. Returns
 * TWILL_ERR_INTERNAL if an access races or the value of its source is wrong, or
 * TWILL_ERR_MEMORY. */
static twill_status recv_post(struct twill_checker *c, struct twill_process *p,
                              const struct twill_step *step)
{
    uint32_t unused;
    bool reduces = step->op == TWILL_STEP_RECV_REDUCE;
    struct twill_channel *channel = twill_checker_channel(c, p, step->peer[0], p->rank);
    if (channel == NULL)
        return step_no_memory(c);
    p->ticket[p->tickets++] = channel->received++;
    for (uint32_t i = 0; i < step->blocks; i++) {
        struct cell_place dst = operand_place(p, step, step->dst, 0, i);
        struct cell_place src = operand_place(p, step, step->src, 0, i);
        bool same = reduces && twill_checker_cell(c, p, p->rank, src.space, src.block) ==
                                   twill_checker_cell(c, p, p->rank, dst.space, dst.block);
        /* The read comes first. If source and destination are the same cell, it ends here. */
        if (reduces)
            TWILL_TRY(c->error, load_cell(c, p, &src, step_has(step, TWILL_STEP_PARTIAL_OWN),
                                          same ? p->clock[p->position] : TWILL_OPEN, &unused));
        TWILL_TRY(c->error, claim_cell(c, p, &dst, TWILL_OPEN));
    }
    return TWILL_OK;
}

/* Return whether everything that the process has posted is complete. A SEND completes when its RECV
 * is posted, as without buffering. A schedule that ends under this rule ends with any buffering. */
static bool can_complete(struct twill_checker *c, const struct twill_process *p)
{
    uint32_t ticket = 0;
    for (uint32_t at = p->posted; at < p->at; at++) {
        const struct twill_step *step = &c->schedules[p->rank].steps[at];
        bool sends = step->op == TWILL_STEP_SEND;
        if (!twill_step_shape(step->op)->posts)
            continue;
        uint32_t peer = step->peer[0];
        const struct twill_channel *channel =
            twill_checker_channel(c, p, sends ? p->rank : peer, sends ? peer : p->rank);
        if ((sends ? channel->received : channel->sent) <= p->ticket[ticket++])
            return false;
    }
    return true;
}

/* End the open accesses of a process to the blocks of an operand now. */
static void close_blocks(struct twill_checker *c, const struct twill_process *p,
                         const struct twill_step *step, twill_operand operand)
{
    for (uint32_t i = 0; i < step->blocks; i++) {
        struct cell_place place = operand_place(p, step, operand, 0, i);
        size_t cell = twill_checker_cell(c, p, place.rank, place.space, place.block);
        twill_cells_close_access(&c->memory, cell, p->position, p->clock[p->position]);
    }
}

/* Store or reduce the values of a message, and end the accesses of the step. Returns
 * TWILL_ERR_INTERNAL if the message is not the expected one. */
static twill_status deliver_message(struct twill_checker *c, struct twill_process *p,
                                    const struct twill_step *step,
                                    const struct twill_message *message)
{
    struct cell_place dst = operand_place(p, step, step->dst, 0, 0);
    if (message->run != p->run)
        return fail_step(c, p, &dst, "receives a message of another run", TWILL_NO_RANK);
    if (message->blocks != step->blocks)
        return fail_step(c, p, &dst, "receives a message of another length", TWILL_NO_RANK);
    if (message->partial != step_has(step, TWILL_STEP_PARTIAL))
        return fail_step(
            c, p, &dst,
            message->partial
                ? "receives a partial, but the step does not mark it as one"
                : "receives a message that is not a partial, but the step marks it as one",
            TWILL_NO_RANK);
    const uint32_t *word = message->word;
    for (uint32_t i = 0; i < step->blocks; i++) {
        uint32_t value = *word++;
        dst = operand_place(p, step, step->dst, 0, i);
        if (step->op == TWILL_STEP_RECV_REDUCE) {
            struct cell_place src = operand_place(p, step, step->src, 0, i);
            bool first = step_has(step, TWILL_STEP_FIRST);
            uint32_t mine =
                c->memory.cell[twill_checker_cell(c, p, src.rank, src.space, src.block)].value;
            uint32_t operand[2] = {first ? value : mine, first ? mine : value};
            TWILL_TRY(c->error, reduce_values(c, p, &dst, operand, 2,
                                              step_has(step, TWILL_STEP_FINAL), &value));
        }
        TWILL_TRY(c->error, store_cell(c, p, &dst, value));
    }
    close_blocks(c, p, step, step->dst);
    if (step->op == TWILL_STEP_RECV_REDUCE)
        close_blocks(c, p, step, step->src);
    return TWILL_OK;
}

/* Complete all posted messages of a lane, or return TWILL_PENDING without a change. Returns
 * TWILL_ERR_INTERNAL if a received message is not the expected one, or TWILL_ERR_MEMORY. */
static twill_status wait_posts(struct twill_checker *c, struct twill_process *p)
{
    if (!can_complete(c, p))
        return (twill_status)TWILL_PENDING;
    for (uint32_t at = p->posted; at < p->at; at++) {
        const struct twill_step *step = &c->schedules[p->rank].steps[at];
        if (step->op == TWILL_STEP_SEND)
            close_blocks(c, p, step, step->src);
        if (step->op != TWILL_STEP_RECV && step->op != TWILL_STEP_RECV_REDUCE)
            continue;
        struct twill_channel *channel = twill_checker_channel(c, p, step->peer[0], p->rank);
        struct twill_message *message = channel->first;
        channel->first = message->next;
        twill_status status = twill_checker_join(c, p, message->word + message->blocks,
                                                 message->clock_size, message->known)
                                  ? deliver_message(c, p, step, message)
                                  : step_no_memory(c);
        twill_checker_message_free(message);
        if (status != TWILL_OK)
            return status;
    }
    p->tickets = 0;
    p->posted = p->at + 1;
    return TWILL_OK;
}

/* Merge what the signals of an AWAIT prove, or return TWILL_PENDING while one is missing. */
static twill_status await_signals(struct twill_checker *c, struct twill_process *p,
                                  const struct twill_step *step)
{
    bool imm = step_has(step, TWILL_STEP_IMM);
    uint32_t ordinal = imm ? 1 : step->ordinal;
    struct twill_snapshots *snapshots =
        (imm ? c->clocks.imm : c->clocks.signal) + (size_t)p->run * c->processes;
    for (unsigned i = 0; i < step->nsrc; i++)
        if (snapshots[twill_checker_process(c, p->slot, step->peer[i], p->lane)].count < ordinal)
            return (twill_status)TWILL_PENDING;
    for (unsigned i = 0; i < step->nsrc; i++) {
        uint32_t peer = twill_checker_process(c, p->slot, step->peer[i], p->lane);
        if (!twill_checker_join(c, p, snapshots[peer].clock[ordinal - 1], p->clock_size,
                                snapshots[peer].known[ordinal - 1]))
            return step_no_memory(c);
    }
    return TWILL_OK;
}

/* Append the clock of a process to its entry in `snapshots`, an array of the checker with an entry
 * for each run and process. Returns TWILL_ERR_MEMORY if out of memory. */
static twill_status snapshot(struct twill_checker *c, struct twill_process *p,
                             struct twill_snapshots *snapshots)
{
    size_t process = (size_t)(p - c->process);
    if (!twill_checker_snapshot(c, &snapshots[(size_t)p->run * c->processes + process], p))
        return step_no_memory(c);
    return TWILL_OK;
}

/* Simulate a PUT_IMM. Returns TWILL_ERR_INTERNAL if it is wrong, or the second in a run. */
static twill_status store_imm(struct twill_checker *c, struct twill_process *p,
                              const struct twill_step *step)
{
    uint32_t value = 0, now = p->clock[p->position];
    struct cell_place src = operand_place(p, step, step->src, 0, 0);
    struct cell_place dst = {.space = TWILL_IMM, .rank = p->rank};
    if (c->clocks.imm[(size_t)p->run * c->processes + (size_t)(p - c->process)].count > 0)
        return fail_step(c, p, &dst, "is written by two PUT_IMMs in a run", TWILL_NO_RANK);
    TWILL_TRY(c->error, load_cell(c, p, &src, step_has(step, TWILL_STEP_PARTIAL), now, &value));
    TWILL_TRY(c->error, claim_cell(c, p, &dst, now));
    TWILL_TRY(c->error, store_cell(c, p, &dst, value));
    return snapshot(c, p, c->clocks.imm);
}

/* Append the values that a REDUCE or COPY takes for block i, in order, to the *count operands. */
static twill_status load_operands(struct twill_checker *c, const struct twill_process *p,
                                  const struct twill_step *step, uint32_t i, uint32_t *operand,
                                  uint32_t *count)
{
    uint32_t now = p->clock[p->position];
    unsigned sources = step->op == TWILL_STEP_REDUCE ? step->nsrc : 1;
    bool accumulates = step_has(step, TWILL_STEP_ACC),
         partial = step_has(step, TWILL_STEP_PARTIAL_OWN);
    bool last = step_has(step, TWILL_STEP_FIRST); /* the accumulator is the last operand */
    struct cell_place dst = operand_place(p, step, step->dst, 0, i);
    if (accumulates && !last)
        TWILL_TRY(c->error, load_cell(c, p, &dst, partial, now, &operand[(*count)++]));
    for (unsigned k = 0; k < sources; k++) {
        struct cell_place src = operand_place(p, step, step->src, k, i);
        /* With OWN_SRC, SRC of this rank replaces another space and is raw. */
        bool raw = src.space != twill_operand_space(step->src);
        TWILL_TRY(c->error, load_cell(c, p, &src, !raw && step_has(step, TWILL_STEP_PARTIAL), now,
                                      &operand[(*count)++]));
    }
    if (accumulates && last)
        TWILL_TRY(c->error, load_cell(c, p, &dst, partial, now, &operand[(*count)++]));
    return TWILL_OK;
}

/* Simulate a REDUCE or COPY. Returns TWILL_ERR_INTERNAL if it is wrong. */
static twill_status combine_step(struct twill_checker *c, struct twill_process *p,
                                 const struct twill_step *step)
{
    uint32_t now = p->clock[p->position];
    for (uint32_t i = 0; i < step->blocks; i++) {
        uint32_t operand[TWILL_STEP_PEERS + 1] = {0}, count = 0;
        struct cell_place dst = operand_place(p, step, step->dst, 0, i);
        struct cell_place src = operand_place(p, step, step->src, 0, i);
        TWILL_TRY(c->error, load_operands(c, p, step, i, operand, &count));
        /* In place, a copy onto itself writes nothing. */
        if (step->op == TWILL_STEP_COPY &&
            twill_checker_cell(c, p, src.rank, src.space, src.block) ==
                twill_checker_cell(c, p, dst.rank, dst.space, dst.block))
            continue;
        uint32_t value = operand[0];
        if (step->op == TWILL_STEP_REDUCE)
            TWILL_TRY(c->error, reduce_values(c, p, &dst, operand, count,
                                              step_has(step, TWILL_STEP_FINAL), &value));
        TWILL_TRY(c->error, claim_cell(c, p, &dst, now));
        TWILL_TRY(c->error, store_cell(c, p, &dst, value));
    }
    return TWILL_OK;
}

twill_status twill_checker_step(struct twill_checker *c, struct twill_process *p)
{
    const struct twill_step *step = &c->schedules[p->rank].steps[p->at];
    switch (step->op) {
    case TWILL_STEP_SEND:
        return send_post(c, p, step);
    case TWILL_STEP_RECV:
    case TWILL_STEP_RECV_REDUCE:
        return recv_post(c, p, step);
    case TWILL_STEP_REDUCE:
    case TWILL_STEP_COPY:
        return combine_step(c, p, step);
    case TWILL_STEP_PUT_IMM:
        return store_imm(c, p, step);
    case TWILL_STEP_WAIT:
        return wait_posts(c, p);
    case TWILL_STEP_SIGNAL:
        return snapshot(c, p, c->clocks.signal);
    default:
        return await_signals(c, p, step);
    }
}

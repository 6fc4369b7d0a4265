/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the schedules of all ranks together, several times, and checks values, messages, progress
 * and happens-before. The caller takes part, as it writes its buffers right before and after. */
#include "algorithms/verify/verify.h"
#include "lib/base/plural.h"

#include <string.h>

/* Return where the time is kept at which a rank started a run. */
static uint32_t *run_started(const struct twill_checker *c, uint32_t run, uint32_t rank)
{
    return &c->clocks.started[run * c->world->size + rank];
}

/* Record that there is no memory, and return TWILL_ERR_MEMORY. */
static twill_status schedules_no_memory(const struct twill_checker *c)
{
    return TWILL_FAIL(c->error, TWILL_ERR_MEMORY, "no memory to verify schedules of %u ranks",
                      c->world->size);
}

/* Merge the clock of `first`, the process of a rank's lane 0, into the clocks of its other lanes.
 * The ranks that it knows to have started are merged with it. Returns false if out of memory. */
static bool join_lanes(struct twill_checker *c, struct twill_process *first)
{
    for (uint32_t l = 1; l < c->schedules[first->rank].lanes; l++)
        if (!twill_checker_join(c, first + l, first->clock, first->clock_size, first->known))
            return false;
    return true;
}

/* Record that the caller of the collective writes to the SRC and DST of this rank. Fails if an
 * access of this or another run races with that. If `fresh`, SRC then has new inputs, DST none. */
static twill_status caller_writes(struct twill_checker *c, struct twill_process *p, bool fresh)
{
    uint32_t other = TWILL_NO_RANK;
    for (unsigned space = TWILL_DST + 1; space-- > TWILL_SRC;) {
        for (uint32_t b = 0; b < c->blocks; b++) {
            uint32_t shard = b / c->shard_blocks;
            if (space == TWILL_SRC ? !twill_shape_holds_src(c->shape, p->rank, shard)
                                   : !twill_shape_holds_dst(c->shape, p->rank, shard))
                continue;
            size_t cell = twill_checker_cell(c, p, p->rank, space, b);
            const char *why = twill_cells_write(&c->memory, cell, p->position, p->clock,
                                                p->clock[p->position], &other);
            if (why != NULL)
                return twill_checker_fail(c, p, "is accessed after the end of the run", space, b,
                                          p->rank, other);
            if (!fresh)
                continue;
            c->memory.cell[cell].value =
                space == TWILL_SRC ? twill_values_input(&c->values, p->run, p->rank, b) : 0;
        }
    }
    return TWILL_OK;
}

/* Before a run of an eager schedule, check that all ranks of the node have started the run that is
 * copies - window before it, as the executor does, and merge their clocks at that start. Returns
 * TWILL_OK, TWILL_PENDING if a rank has not started that run, or TWILL_ERR_MEMORY. */
static twill_status follow(const struct twill_checker *c, struct twill_process *first, uint32_t run)
{
    uint32_t ahead = c->copies - c->window;
    if (!c->schedules[first->rank].eager || run < ahead || ahead == 0) /* if 0, no copy is reused */
        return TWILL_OK;
    for (uint32_t r = 0; r < c->world->size; r++)
        if (c->world->node[r] == c->world->node[first->rank] && c->next_run[r] <= run - ahead)
            return (twill_status)TWILL_PENDING;
    for (uint32_t r = 0; r < c->world->size; r++) {
        uint32_t other = twill_checker_process(c, (run - ahead) % c->window, r, 0);
        if (c->world->node[r] == c->world->node[first->rank] && r != first->rank &&
            !twill_checker_join(
                c, first, c->clocks.begin[(size_t)(run - ahead) * c->processes + other].clock[0],
                first->clock_size, NULL))
            return schedules_no_memory(c);
    }
    return TWILL_OK;
}

/* Start the next run of a rank if its slot is free and follow() permits it, else do nothing. */
static twill_status begin_process(struct twill_checker *c, uint32_t rank)
{
    uint32_t run = c->next_run[rank], slot = run % c->window;
    if (run == c->runs || c->lanes_left[slot * c->world->size + rank] > 0)
        return TWILL_OK;
    const struct twill_schedule *schedule = &c->schedules[rank];
    uint32_t number = twill_checker_process(c, slot, rank, 0);
    struct twill_process *first = &c->process[number];
    twill_status followed = follow(c, first, run);
    if (followed != TWILL_OK)
        return followed == (twill_status)TWILL_PENDING ? TWILL_OK : followed;
    c->next_run[rank]++;
    c->lanes_left[slot * c->world->size + rank] = schedule->lanes;
    if (run > 0) {
        /* The runs of a rank start in order, though they overlap. */
        uint32_t before =
            c->process[twill_checker_process(c, (run - 1) % c->window, rank, 0)].position;
        uint32_t time = *run_started(c, run - 1, rank);
        if (first->clock[before] < time)
            first->clock[before] = time;
    }
    *run_started(c, run, rank) = ++first->clock[first->position];
    for (uint32_t l = 0; l < schedule->lanes; l++) {
        struct twill_process *p = first + l;
        p->run = run;
        p->at = p->posted = schedule->lane_first[l];
        p->end = schedule->lane_first[l + 1];
    }
    TWILL_TRY(c->error, caller_writes(c, first, true));
    return twill_checker_begin(c, first) && join_lanes(c, first) &&
                   twill_checker_snapshot(c, &c->clocks.begin[(size_t)run * c->processes + number],
                                          first)
               ? TWILL_OK
               : schedules_no_memory(c);
}

/* Check that a rank ends only after others have started, else return TWILL_ERR_INTERNAL. These are
 * all ranks in a collective that synchronises. Otherwise they are those of the node, unless the
 * schedule is eager, because the reuse of copies of SHARED relies on it. */
static twill_status check_started(const struct twill_checker *c, const struct twill_process *p)
{
    bool all = twill_collective_facts(c->shape->collective)->joins;
    for (uint32_t r = 0; r < c->world->size; r++) {
        if (!all && (c->schedules[p->rank].eager || c->world->node[r] != c->world->node[p->rank]))
            continue;
        if (!twill_checker_knows(c, p, r))
            return TWILL_FAIL(c->error, TWILL_ERR_INTERNAL,
                              "schedule of rank %u, run %u: ends, but rank %u may not have "
                              "started",
                              p->rank, p->run, r);
    }
    return TWILL_OK;
}

/* Return what is wrong with value `number` in a block of DST of a rank at the end, or NULL. The
 * first good value of a block becomes the one that all ranks must have. */
static const char *judge_value(const struct twill_checker *c, const struct twill_process *p,
                               uint32_t block, uint32_t number)
{
    const struct twill_value *value = &c->values.value[number];
    bool reduces = twill_collective_facts(c->shape->collective)->reduces && c->world->size > 1;
    uint32_t source = block, *result = &c->result[p->run * c->blocks + block];
    if (number == 0)
        return "was never written";
    if (value->run != p->run)
        return "is left over from another run";
    if (c->shape->collective == TWILL_ALLTOALL) {
        source = p->rank * c->shard_blocks + block % c->shard_blocks;
        if (value->first != block / c->shard_blocks)
            return "comes from the wrong rank";
    }
    if (value->block != source)
        return "has a block of another position";
    if (!reduces)
        return NULL;
    if (value->state != TWILL_STATE_FINAL) /* FINAL needs all contributions */
        return "lacks contributions";
    if (*result != 0 && *result != number)
        return "has operands in another order than on another rank";
    *result = number;
    return NULL;
}

/* Check the values in DST of a rank whose run ends. Returns TWILL_ERR_INTERNAL if one is wrong. */
static twill_status values_check(struct twill_checker *c, const struct twill_process *p)
{
    for (uint32_t b = 0; b < c->blocks; b++) {
        if (!twill_shape_holds_dst(c->shape, p->rank, b / c->shard_blocks))
            continue;
        size_t cell = twill_checker_cell(c, p, p->rank, TWILL_DST, b);
        const char *why = judge_value(c, p, b, c->memory.cell[cell].value);
        if (why != NULL)
            return twill_checker_fail(c, p, why, TWILL_DST, b, p->rank, TWILL_NO_RANK);
    }
    return TWILL_OK;
}

/* End a lane. If it is the last one of the rank, end the run of the rank. Check its results, that
 * nothing still accesses its buffers, and that others have started. Returns TWILL_ERR_INTERNAL if
 * that is wrong, or TWILL_ERR_MEMORY. */
static twill_status end_lane(struct twill_checker *c, struct twill_process *p)
{
    struct twill_process *first = p - p->lane;
    uint32_t *left = &c->lanes_left[p->slot * c->world->size + p->rank];
    if (--*left > 0)
        return TWILL_OK;
    for (const struct twill_process *l = first + 1; l < first + c->schedules[p->rank].lanes; l++)
        if (!twill_checker_join(c, first, l->clock, l->clock_size, l->known))
            return schedules_no_memory(c);
    ++first->clock[first->position];
    TWILL_TRY(c->error, values_check(c, first));
    TWILL_TRY(c->error, caller_writes(c, first, false));
    TWILL_TRY(c->error, check_started(c, first));
    return join_lanes(c, first) ? TWILL_OK : schedules_no_memory(c);
}

/* Do steps of a process until one cannot be done yet. Sets *moved if it does a step. */
static twill_status advance_process(struct twill_checker *c, struct twill_process *p, bool *moved)
{
    while (p->at < p->end) {
        ++p->clock[p->position];
        twill_status status = twill_checker_step(c, p);
        if (status == (twill_status)TWILL_PENDING)
            return TWILL_OK;
        if (status != TWILL_OK)
            return status;
        *moved = true;
        p->at++;
    }
    return TWILL_OK;
}

/* Return whether a lane is at its end and end_lane() has not been called for it. */
static bool is_through(const struct twill_process *p)
{
    return p->at == p->end && p->end != UINT32_MAX;
}

/* Let every lane run as far as it can, and end or begin lanes. Sets *moved if any of them did. */
static twill_status round_of_all(struct twill_checker *c, bool *moved)
{
    for (uint32_t i = 0; i < c->processes; i++) {
        struct twill_process *p = &c->process[i];
        if (p->end != UINT32_MAX)
            TWILL_TRY(c->error, advance_process(c, p, moved));
        if (is_through(p)) {
            TWILL_TRY(c->error, end_lane(c, p));
            p->at = p->end = UINT32_MAX;
            *moved = true;
        }
        uint32_t run = c->next_run[p->rank];
        TWILL_TRY(c->error, begin_process(c, p->rank));
        *moved = *moved || run != c->next_run[p->rank];
    }
    return TWILL_OK;
}

/* Once nothing moves any more, check that all runs have ended and all messages are received. Else
 * return TWILL_ERR_INTERNAL. */
static twill_status check_rest(const struct twill_checker *c)
{
    for (uint32_t i = 0; i < c->processes; i++)
        if (c->process[i].end != UINT32_MAX)
            return twill_checker_fail(c, &c->process[i], "blocks forever: deadlock",
                                      TWILL_SPACE_COUNT, 0, 0, TWILL_NO_RANK);
    for (uint32_t r = 0; r < c->world->size; r++)
        if (c->next_run[r] < c->runs)
            return TWILL_FAIL(c->error, TWILL_ERR_INTERNAL,
                              "schedule of rank %u: never starts run %u", r, c->next_run[r]);
    for (size_t i = 0; i < c->channels.slots; i++) {
        const struct twill_channel *channel = &c->channels.at[i];
        uint64_t pair = channel->key - 1;
        if (channel->key != 0 && channel->sent != channel->received)
            return TWILL_FAIL(c->error, TWILL_ERR_INTERNAL,
                              "schedules: rank %llu sends %llu message%s to rank %llu, which "
                              "receives %llu",
                              (unsigned long long)(pair / c->world->size % c->world->size),
                              (unsigned long long)channel->sent, TWILL_PLURAL(channel->sent),
                              (unsigned long long)(pair % c->world->size),
                              (unsigned long long)channel->received);
    }
    return TWILL_OK;
}

/* Run all schedules to the end, and check them. */
static twill_status run_processes(struct twill_checker *c)
{
    for (uint32_t i = 0; i < c->processes; i++)
        c->process[i].at = c->process[i].end = UINT32_MAX;
    for (bool moved = true; moved;) {
        moved = false;
        TWILL_TRY(c->error, round_of_all(c, &moved));
    }
    return check_rest(c);
}

/* Return how many runs to check. It is one more than there are copies of SHARED and IMM, so that
 * each is reused. It is c->window if no schedule uses shared memory, as runs then do not affect
 * each other, or with `fingerprint`. */
static uint32_t runs_of(const struct twill_checker *c)
{
    for (uint32_t r = 0; r < c->world->size && !c->fingerprint; r++) {
        const struct twill_schedule *schedule = &c->schedules[r];
        if (schedule->shared_blocks > 0 || schedule->uses_imm || schedule->uses_peer_src ||
            schedule->uses_peer_dst)
            return c->copies + 1;
    }
    return c->window;
}

/* Check the schedule of a rank alone, and raise c->lanes to its lanes. Returns TWILL_ERR_INTERNAL
 * if it is wrong. So it does if it has another number of blocks than rank 0, or another `eager`
 * than the lowest rank of its node. */
static twill_status check_schedule(struct twill_checker *c, uint32_t rank)
{
    const struct twill_schedule *schedules = c->schedules, *schedule = &schedules[rank];
    TWILL_TRY(c->error, twill_schedule_check(schedule, c->world, rank, c->shape, c->error));
    if (schedule->blocks != c->blocks)
        return TWILL_FAIL(c->error, TWILL_ERR_INTERNAL,
                          "schedules: rank 0 has %u blocks, rank %u has %u", c->blocks, rank,
                          schedule->blocks);
    uint32_t leader = c->world->member[c->world->node_first[c->world->node[rank]]];
    if (leader < rank && schedule->eager != schedules[leader].eager)
        return TWILL_FAIL(c->error, TWILL_ERR_INTERNAL,
                          "schedules: only one of ranks %u and %u of a node is eager", leader,
                          rank);
    if (schedule->lanes > c->lanes)
        c->lanes = schedule->lanes;
    return TWILL_OK;
}

/* Verify the schedules of a checker whose arguments are set, and free what it allocates. Returns
 * TWILL_OK, TWILL_ERR_INTERNAL if a schedule is wrong, or TWILL_ERR_MEMORY. The reason is in
 * c->error. */
static twill_status verifier_run(struct twill_checker *c)
{
    c->blocks = c->schedules[0].blocks;
    for (uint32_t r = 0; r < c->world->size; r++)
        TWILL_TRY(c->error, check_schedule(c, r));
    c->runs = runs_of(c);
    c->shard_blocks = c->blocks / c->schedules[0].shards;
    /* In an alltoall block b of SRC is not block b of DST, and the library copies SRC first. */
    c->in_place = c->in_place && c->shape->collective != TWILL_ALLTOALL;
    twill_status status = twill_checker_open(c) ? run_processes(c) : schedules_no_memory(c);
    twill_checker_close(c);
    return status;
}

twill_status twill_schedule_verify_window(const struct twill_schedule *schedules,
                                          const struct twill_world *world,
                                          const struct twill_shape *shape, bool in_place,
                                          uint32_t window, struct twill_error *error)
{
    struct twill_checker c = {.schedules = schedules,
                              .world = world,
                              .shape = shape,
                              .error = error,
                              .in_place = in_place,
                              .window = window,
                              .copies = TWILL_SHARED_COPIES(window)};
    return verifier_run(&c);
}

twill_status twill_schedule_verify(const struct twill_schedule *schedules,
                                   const struct twill_world *world, const struct twill_shape *shape,
                                   bool in_place, struct twill_error *error)
{
    return twill_schedule_verify_window(schedules, world, shape, in_place, 1, error);
}

twill_status twill_schedule_verify_fingerprint(const struct twill_schedule *schedules,
                                               const struct twill_world *world,
                                               const struct twill_shape *shape, bool in_place,
                                               struct twill_error *error)
{
    struct twill_checker c = {.schedules = schedules,
                              .world = world,
                              .shape = shape,
                              .error = error,
                              .in_place = in_place,
                              .fingerprint = true,
                              .window = 1,
                              .copies = 1};
    return verifier_run(&c);
}

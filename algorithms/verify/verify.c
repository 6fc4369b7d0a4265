/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the schedules of all ranks together, several times over, and checks values, messages,
 * progress and happens-before. The caller is part of the machine: it writes its buffers right
 * before a run starts and right after it ends. */
#include "algorithms/verify/verify.h"
#include "algorithms/schedule/step_table.h"
#include "lib/base/plural.h"

#include <stdlib.h>
#include <string.h>

static uint32_t *run_started(const struct twill_verifier *m, uint32_t run, uint32_t rank)
{
    return &m->clocks.started[run * m->world->size + rank];
}

static twill_status schedules_no_memory(const struct twill_verifier *m)
{
    return TWILL_FAIL(m->error, TWILL_ERR_MEMORY, "no memory to verify schedules of %u ranks",
                      m->world->size);
}

/* Merge what the first lane of a rank knows into its other lanes. */
static bool join_lanes(struct twill_verifier *m, struct twill_process *first)
{
    for (uint32_t l = 1; l < m->schedules[first->rank].lanes; l++)
        if (!twill_machine_join(m, first + l, first->clock, first->clock_size, first->known))
            return false;
    return true;
}

/* Have the caller write what this rank holds of SRC and DST: fail if an access of this or another
 * run races with that. If `fresh`, SRC then holds inputs. */
static twill_status caller_writes(struct twill_verifier *m, struct twill_process *p, bool fresh)
{
    uint32_t other = TWILL_NO_RANK;
    for (unsigned space = TWILL_DST + 1; space-- > TWILL_SRC;) {
        for (uint32_t b = 0; (b = twill_columns_next(&m->columns, 0, b)) < m->blocks; b++) {
            uint32_t shard = b / m->shard_blocks;
            if (space == TWILL_SRC ? !twill_shape_holds_src(m->shape, p->rank, shard)
                                   : !twill_shape_holds_dst(m->shape, p->rank, shard))
                continue;
            size_t cell = twill_machine_cell(m, p, p->rank, space, b);
            const char *why = twill_cells_write(&m->memory, cell, p->position, p->clock,
                                                p->clock[p->position], &other);
            if (why != NULL)
                return twill_machine_fail(m, p, "is accessed after the end of the run", space, b,
                                          p->rank, other);
            if (!fresh)
                continue;
            m->memory.cell[cell].value =
                space == TWILL_SRC ? twill_values_input(&m->values, p->run, p->rank, b) : 0;
        }
    }
    return TWILL_OK;
}

/* Before a run of an eager schedule, wait until all ranks of the node have started the run that is
 * copies - window before it, as the executor does, and merge their clocks at that start. Returns
 * TWILL_OK, TWILL_PENDING or TWILL_ERR_MEMORY. */
static twill_status follow(const struct twill_verifier *m, struct twill_process *first,
                           uint32_t run)
{
    uint32_t ahead = m->copies - m->window;
    if (!m->schedules[first->rank].eager || run < ahead || ahead == 0) /* 0: no copy is reused */
        return TWILL_OK;
    for (uint32_t r = 0; r < m->world->size; r++)
        if (m->world->node[r] == m->world->node[first->rank] && m->next_run[r] <= run - ahead)
            return (twill_status)TWILL_PENDING;
    for (uint32_t r = 0; r < m->world->size; r++) {
        uint32_t other = twill_machine_process(m, (run - ahead) % m->window, r, 0);
        if (m->world->node[r] == m->world->node[first->rank] && r != first->rank &&
            !twill_machine_join(
                m, first, m->clocks.begin[(size_t)(run - ahead) * m->processes + other].clock[0],
                first->clock_size, NULL))
            return schedules_no_memory(m);
    }
    return TWILL_OK;
}

/* Start the next run of a rank if its slot is free. */
static twill_status begin_process(struct twill_verifier *m, uint32_t rank)
{
    uint32_t run = m->next_run[rank], slot = run % m->window;
    if (run == m->runs || m->lanes_left[slot * m->world->size + rank] > 0)
        return TWILL_OK;
    const struct twill_schedule *schedule = &m->schedules[rank];
    uint32_t number = twill_machine_process(m, slot, rank, 0);
    struct twill_process *first = &m->process[number];
    twill_status followed = follow(m, first, run);
    if (followed != TWILL_OK)
        return followed == (twill_status)TWILL_PENDING ? TWILL_OK : followed;
    m->next_run[rank]++;
    m->lanes_left[slot * m->world->size + rank] = schedule->lanes;
    if (run > 0) {
        /* Runs of a rank start in order, though they overlap. */
        uint32_t before =
            m->process[twill_machine_process(m, (run - 1) % m->window, rank, 0)].position;
        uint32_t time = *run_started(m, run - 1, rank);
        if (first->clock[before] < time)
            first->clock[before] = time;
    }
    *run_started(m, run, rank) = ++first->clock[first->position];
    for (uint32_t l = 0; l < schedule->lanes; l++) {
        struct twill_process *p = first + l;
        p->run = run;
        p->at = p->posted = schedule->lane_first[l];
        p->end = schedule->lane_first[l + 1];
    }
    TWILL_TRY(m->error, caller_writes(m, first, true));
    return twill_machine_begin(m, first) && join_lanes(m, first) &&
                   twill_machine_snapshot(m, &m->clocks.begin[(size_t)run * m->processes + number],
                                          first)
               ? TWILL_OK
               : schedules_no_memory(m);
}

/* Check that a rank ends only after others have started: all ranks for a collective that
 * synchronises, else all of the node unless the schedule is eager (the reuse of copies of SHARED
 * relies on it). */
static twill_status check_started(const struct twill_verifier *m, const struct twill_process *p)
{
    bool all = twill_collective_facts(m->shape->collective)->joins;
    for (uint32_t r = 0; r < m->world->size; r++) {
        if (!all && (m->schedules[p->rank].eager || m->world->node[r] != m->world->node[p->rank]))
            continue;
        if (!twill_machine_knows(m, p, r))
            return TWILL_FAIL(m->error, TWILL_ERR_INTERNAL,
                              "schedule of rank %u, run %u: ends, but rank %u may not have "
                              "started",
                              p->rank, p->run, r);
    }
    return TWILL_OK;
}

/* Return what is wrong with the value in a block of a rank's DST at the end, or NULL. */
static const char *judge_value(const struct twill_verifier *m, const struct twill_process *p,
                               uint32_t block, uint32_t number)
{
    const struct twill_value *value = &m->values.value[number];
    bool reduces = twill_collective_facts(m->shape->collective)->reduces && m->world->size > 1;
    uint32_t source = block, *result = &m->result[p->run * m->blocks + block];
    if (number == 0)
        return "was never written";
    if (value->run != p->run)
        return "is left over from another run";
    if (m->shape->collective == TWILL_ALLTOALL) {
        source = p->rank * m->shard_blocks + block % m->shard_blocks;
        if (value->first != block / m->shard_blocks)
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

static twill_status values_check(struct twill_verifier *m, const struct twill_process *p)
{
    for (uint32_t b = 0; (b = twill_columns_next(&m->columns, 0, b)) < m->blocks; b++) {
        if (!twill_shape_holds_dst(m->shape, p->rank, b / m->shard_blocks))
            continue;
        size_t cell = twill_machine_cell(m, p, p->rank, TWILL_DST, b);
        const char *why = judge_value(m, p, b, m->memory.cell[cell].value);
        if (why != NULL)
            return twill_machine_fail(m, p, why, TWILL_DST, b, p->rank, TWILL_NO_RANK);
    }
    return TWILL_OK;
}

/* End a lane; with the last one end the rank's run, and check it. */
static twill_status end_lane(struct twill_verifier *m, struct twill_process *p)
{
    struct twill_process *first = p - p->lane;
    uint32_t *left = &m->lanes_left[p->slot * m->world->size + p->rank];
    if (p != first && !twill_machine_join(m, first, p->clock, p->clock_size, p->known))
        return schedules_no_memory(m);
    if (--*left > 0)
        return TWILL_OK;
    ++first->clock[first->position];
    TWILL_TRY(m->error, values_check(m, first));
    TWILL_TRY(m->error, caller_writes(m, first, false));
    TWILL_TRY(m->error, check_started(m, first));
    return join_lanes(m, first) ? TWILL_OK : schedules_no_memory(m);
}

/* Run a process as far as it gets; set *moved if it does a step. */
static twill_status advance_process(struct twill_verifier *m, struct twill_process *p, bool *moved)
{
    while (p->at < p->end) {
        ++p->clock[p->position];
        TWILL_TRY(m->error, twill_machine_hold(m, p));
        twill_status status = twill_machine_step(m, p);
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

static twill_status round_of_all(struct twill_verifier *m, bool *moved)
{
    for (uint32_t i = 0; i < m->processes; i++) {
        struct twill_process *p = &m->process[i];
        if (p->end != UINT32_MAX)
            TWILL_TRY(m->error, advance_process(m, p, moved));
        if (is_through(p)) {
            TWILL_TRY(m->error, end_lane(m, p));
            p->at = p->end = UINT32_MAX;
            *moved = true;
        }
        uint32_t run = m->next_run[p->rank];
        TWILL_TRY(m->error, begin_process(m, p->rank));
        *moved = *moved || run != m->next_run[p->rank];
    }
    return TWILL_OK;
}

/* Check that everything is done once nothing moves any more. */
static twill_status check_rest(const struct twill_verifier *m)
{
    for (uint32_t i = 0; i < m->processes; i++)
        if (m->process[i].end != UINT32_MAX)
            return twill_machine_fail(m, &m->process[i], "blocks forever: deadlock",
                                      TWILL_SPACE_COUNT, 0, 0, TWILL_NO_RANK);
    for (uint32_t r = 0; r < m->world->size; r++)
        if (m->next_run[r] < m->runs)
            return TWILL_FAIL(m->error, TWILL_ERR_INTERNAL,
                              "schedule of rank %u: never starts run %u", r, m->next_run[r]);
    for (size_t i = 0; i < m->channels.slots; i++) {
        const struct twill_channel *channel = &m->channels.at[i];
        uint64_t pair = channel->key - 1;
        if (channel->key != 0 && channel->sent != channel->received)
            return TWILL_FAIL(m->error, TWILL_ERR_INTERNAL,
                              "schedules: rank %llu sends %llu message%s to rank %llu, which "
                              "receives %llu",
                              (unsigned long long)(pair / m->world->size % m->world->size),
                              (unsigned long long)channel->sent, TWILL_PLURAL(channel->sent),
                              (unsigned long long)(pair % m->world->size),
                              (unsigned long long)channel->received);
    }
    return TWILL_OK;
}

static twill_status run_processes(struct twill_verifier *m)
{
    for (uint32_t i = 0; i < m->processes; i++)
        m->process[i].at = m->process[i].end = UINT32_MAX;
    for (bool moved = true; moved;) {
        moved = false;
        TWILL_TRY(m->error, round_of_all(m, &moved));
    }
    return check_rest(m);
}

/* Return how many runs to check: until every copy of what the ranks of a node share has been
 * reused. Without shared memory runs do not affect each other: leftover messages are found after
 * any run, and posted operations end with their run. */
static uint32_t runs_of(const struct twill_verifier *m)
{
    for (uint32_t r = 0; r < m->world->size && !m->fingerprint; r++) {
        const struct twill_schedule *schedule = &m->schedules[r];
        if (schedule->shared_blocks > 0 || schedule->uses_imm || schedule->uses_peer_src ||
            schedule->uses_peer_dst)
            return m->copies + 1;
    }
    return m->window;
}

static twill_status check_schedule(struct twill_verifier *m, uint32_t rank)
{
    const struct twill_schedule *schedules = m->schedules, *schedule = &schedules[rank];
    TWILL_TRY(m->error, twill_schedule_check(schedule, m->world, rank, m->shape, m->error));
    if (schedule->blocks != m->blocks)
        return TWILL_FAIL(m->error, TWILL_ERR_INTERNAL,
                          "schedules: rank 0 has %u blocks, rank %u has %u", m->blocks, rank,
                          schedule->blocks);
    uint32_t leader = m->world->member[m->world->node_first[m->world->node[rank]]];
    if (leader < rank && schedule->eager != schedules[leader].eager)
        return TWILL_FAIL(m->error, TWILL_ERR_INTERNAL,
                          "schedules: only one of ranks %u and %u of a node is eager", leader,
                          rank);
    if (schedule->lanes > m->lanes)
        m->lanes = schedule->lanes;
    return TWILL_OK;
}

/* Run the schedules, which have been checked, and follow `columns` columns. */
static twill_status run_columns(struct twill_verifier *m, uint32_t columns, uint64_t seed)
{
    m->runs = runs_of(m);
    m->shard_blocks = m->blocks / m->schedules[0].shards;
    /* In an alltoall block b of SRC is not block b of DST: the library copies SRC first. */
    m->in_place = m->in_place && m->shape->collective != TWILL_ALLTOALL;
    bool open = twill_columns_open(&m->columns, m->blocks, columns, seed) && twill_machine_open(m);
    twill_status status = open ? run_processes(m) : schedules_no_memory(m);
    twill_machine_close(m);
    return status;
}

static twill_status verifier_run(struct twill_verifier *m)
{
    m->blocks = m->schedules[0].blocks;
    for (uint32_t r = 0; r < m->world->size; r++)
        TWILL_TRY(m->error, check_schedule(m, r));
    return run_columns(m, 0, 0);
}

twill_status twill_schedule_verify_window(const struct twill_schedule *schedules,
                                          const struct twill_world *world,
                                          const struct twill_shape *shape, bool in_place,
                                          uint32_t window, struct twill_error *error)
{
    struct twill_verifier m = {.schedules = schedules,
                               .world = world,
                               .shape = shape,
                               .error = error,
                               .in_place = in_place,
                               .window = window,
                               .copies = TWILL_SHARED_COPIES(window)};
    return verifier_run(&m);
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
    struct twill_verifier m = {.schedules = schedules,
                               .world = world,
                               .shape = shape,
                               .error = error,
                               .in_place = in_place,
                               .fingerprint = true,
                               .window = 1,
                               .copies = 1};
    return verifier_run(&m);
}

/* Emit every schedule once, check it, and keep its sizes without its steps. */
static twill_status collect_sizes(struct twill_verifier *m, struct twill_schedule *sizes)
{
    for (uint32_t r = 0; r < m->world->size; r++) {
        struct twill_schedule whole;
        TWILL_TRY(m->error, m->source->emit(&whole, r, m->source->user, m->error));
        sizes[r] = whole;
        m->blocks = sizes[0].blocks;
        twill_status status = check_schedule(m, r);
        sizes[r].steps = NULL;
        twill_schedule_destroy(&whole);
        if (status != TWILL_OK)
            return status;
    }
    return TWILL_OK;
}

twill_status twill_schedule_verify_sampled(const struct twill_schedule_source *source,
                                           const struct twill_verify_sample *sample,
                                           const struct twill_world *world,
                                           const struct twill_shape *shape, bool in_place,
                                           struct twill_error *error)
{
    struct twill_schedule *sizes = calloc(world->size, sizeof(*sizes));
    struct twill_verifier m = {.schedules = sizes,
                               .source = source,
                               .held_steps = sample->steps / world->size + 16,
                               .world = world,
                               .shape = shape,
                               .error = error,
                               .in_place = in_place,
                               .fingerprint = true,
                               .window = 1,
                               .copies = 1};
    twill_status status = sizes == NULL ? schedules_no_memory(&m) : collect_sizes(&m, sizes);
    if (status == TWILL_OK)
        status = run_columns(&m, sample->columns, sample->seed);
    free(sizes);
    return status;
}

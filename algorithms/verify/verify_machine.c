/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier's machine: set-up and release; cells, channels, clocks, failures. */
#include "algorithms/schedule/step_table.h"
#include "algorithms/verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Return the cells of a space of a rank: each instance in flight has its own SRC, DST and TMP;
 * SHARED and IMM have `copies` that instances alternate between. */
static size_t space_cells(const struct twill_verifier *m, uint32_t rank, unsigned space)
{
    switch (space) {
    case TWILL_TMP:
        return m->window * twill_columns_before(&m->columns, m->schedules[rank].tmp_blocks);
    case TWILL_SHARED:
        return m->copies * twill_columns_before(&m->columns, m->schedules[rank].shared_blocks);
    case TWILL_IMM:
        return (size_t)m->copies * m->window * m->lanes;
    default:
        return (size_t)m->window * m->columns.count;
    }
}

static bool open_processes(struct twill_verifier *m)
{
    for (uint32_t i = 0; i < m->processes; i++) {
        struct twill_process *p = &m->process[i];
        p->lane = i % m->lanes;
        p->rank = i / m->lanes % m->world->size;
        p->slot = i / m->lanes / m->world->size;
        uint32_t node = m->world->node[p->rank];
        uint32_t members = m->fingerprint ? m->world->node_size[node] : m->world->size;
        uint32_t member = m->fingerprint ? m->world->local[p->rank] : p->rank;
        p->clock_size = m->window * members * m->lanes;
        p->position = (p->slot * members + member) * m->lanes + p->lane;
        p->clock = calloc(p->clock_size, sizeof(*p->clock));
        p->ticket = calloc((size_t)m->schedules[p->rank].most_posted + 1, sizeof(*p->ticket));
        p->steps = m->schedules[p->rank].steps;
        p->last_step = m->schedules[p->rank].steps == NULL ? 0 : m->schedules[p->rank].count;
        if (p->clock == NULL || p->ticket == NULL)
            return false;
    }
    return true;
}

bool twill_machine_open(struct twill_verifier *m)
{
    size_t ranks = m->world->size, cells = 0;
    bool reduces = twill_collective_facts(m->shape->collective)->reduces;
    m->processes = m->window * (uint32_t)ranks * m->lanes;
    m->base = calloc(ranks * TWILL_SPACE_COUNT, sizeof(*m->base));
    m->process = calloc(m->processes, sizeof(*m->process));
    m->channels.slots = 64;
    m->channels.at = calloc(m->channels.slots, sizeof(*m->channels.at));
    m->clocks.signal = calloc((size_t)m->runs * m->processes, sizeof(*m->clocks.signal));
    m->clocks.imm = calloc((size_t)m->runs * m->processes, sizeof(*m->clocks.imm));
    m->clocks.begin = calloc((size_t)m->runs * m->processes, sizeof(*m->clocks.begin));
    m->clocks.started = calloc(m->runs * ranks, sizeof(*m->clocks.started));
    m->next_run = calloc(ranks, sizeof(*m->next_run));
    m->lanes_left = calloc(m->window * ranks, sizeof(*m->lanes_left));
    m->result = calloc((size_t)m->runs * m->blocks, sizeof(*m->result));
    if (m->base == NULL || m->process == NULL || m->channels.at == NULL ||
        m->clocks.signal == NULL || m->clocks.imm == NULL || m->clocks.begin == NULL ||
        m->clocks.started == NULL || m->next_run == NULL || m->lanes_left == NULL ||
        m->result == NULL || !open_processes(m))
        return false;
    for (uint32_t r = 0; r < ranks; r++) {
        for (unsigned space = 0; space < TWILL_SPACE_COUNT; space++) {
            m->base[(size_t)r * TWILL_SPACE_COUNT + space] = cells;
            cells += space_cells(m, r, space);
        }
    }
    return twill_cells_open(&m->memory, cells) &&
           twill_values_open(&m->values, (uint32_t)ranks,
                             reduces ? m->shape->order : TWILL_ORDER_ANY, m->fingerprint);
}

static void release_ranks(struct twill_known_ranks *known)
{
    if (known != NULL && --known->users == 0)
        free(known);
}

static void close_snapshots(struct twill_verifier *m, struct twill_snapshots *snapshots)
{
    for (size_t i = 0; snapshots != NULL && i < (size_t)m->runs * m->processes; i++) {
        for (uint32_t k = 0; k < snapshots[i].count; k++) {
            free(snapshots[i].clock[k]);
            release_ranks(snapshots[i].known[k]);
        }
        free(snapshots[i].clock);
        free(snapshots[i].known);
    }
    free(snapshots);
}

void twill_machine_message_free(struct twill_message *message)
{
    release_ranks(message->known);
    free(message);
}

void twill_machine_close(struct twill_verifier *m)
{
    for (size_t i = 0; m->channels.at != NULL && i < m->channels.slots; i++) {
        for (struct twill_message *next, *at = m->channels.at[i].first; at != NULL; at = next) {
            next = at->next;
            twill_machine_message_free(at);
        }
    }
    for (uint32_t i = 0; m->process != NULL && i < m->processes; i++) {
        free(m->process[i].clock);
        free(m->process[i].ticket);
        free(m->process[i].held);
        release_ranks(m->process[i].known);
    }
    close_snapshots(m, m->clocks.signal);
    close_snapshots(m, m->clocks.imm);
    close_snapshots(m, m->clocks.begin);
    twill_values_close(&m->values);
    twill_cells_close(&m->memory);
    twill_columns_close(&m->columns);
    free(m->base);
    free(m->process);
    free(m->channels.at);
    free(m->clocks.started);
    free(m->next_run);
    free(m->lanes_left);
    free(m->result);
}

size_t twill_machine_cell(const struct twill_verifier *m, const struct twill_process *p,
                          uint32_t rank, unsigned space, uint32_t block)
{
    const struct twill_columns *columns = &m->columns;
    uint32_t copy = p->run % m->copies;
    size_t blocks = columns->count, at = twill_columns_before(columns, block);
    if (space == TWILL_SRC && m->in_place &&
        twill_shape_holds_dst(m->shape, rank, block / m->shard_blocks))
        space = TWILL_DST;
    size_t base = m->base[(size_t)rank * TWILL_SPACE_COUNT + space];
    switch (space) {
    case TWILL_IMM:
        return base + ((size_t)copy * m->window + p->slot) * m->lanes + p->lane;
    case TWILL_SHARED:
        return base + copy * twill_columns_before(columns, m->schedules[rank].shared_blocks) + at;
    case TWILL_TMP:
        blocks = twill_columns_before(columns, m->schedules[rank].tmp_blocks);
        break;
    default:
        break;
    }
    return base + p->slot * blocks + at;
}

static struct twill_channel *channel_slot(struct twill_channel *channel, size_t slots, uint64_t key)
{
    size_t at = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (slots - 1);
    while (channel[at].key != 0 && channel[at].key != key)
        at = (at + 1) & (slots - 1);
    return &channel[at];
}

static bool more_channels(struct twill_verifier *m)
{
    size_t slots = 2 * m->channels.slots;
    struct twill_channel *channel = calloc(slots, sizeof(*channel));
    if (channel == NULL)
        return false;
    for (size_t i = 0; i < m->channels.slots; i++)
        if (m->channels.at[i].key != 0)
            *channel_slot(channel, slots, m->channels.at[i].key) = m->channels.at[i];
    free(m->channels.at);
    m->channels.at = channel;
    m->channels.slots = slots;
    return true;
}

struct twill_channel *twill_machine_channel(struct twill_verifier *m, const struct twill_process *p,
                                            uint32_t from, uint32_t to)
{
    uint64_t ranks = m->world->size;
    uint64_t key = ((p->slot * (uint64_t)m->lanes + p->lane) * ranks + from) * ranks + to + 1;
    struct twill_channel *channel = channel_slot(m->channels.at, m->channels.slots, key);
    if (channel->key == key)
        return channel;
    if (4 * m->channels.count >= 3 * m->channels.slots) {
        if (!more_channels(m))
            return NULL;
        channel = channel_slot(m->channels.at, m->channels.slots, key);
    }
    m->channels.count++;
    channel->key = key;
    return channel;
}

static struct twill_known_ranks *join_in(struct twill_known_ranks *known)
{
    if (known != NULL)
        known->users++;
    return known;
}

struct twill_message *twill_machine_message(const struct twill_verifier *m,
                                            const struct twill_process *p,
                                            const struct twill_step *send)
{
    uint32_t to = send->peer[0], first = twill_operand_block(send->src);
    uint32_t values = (uint32_t)(twill_columns_before(&m->columns, (size_t)first + send->blocks) -
                                 twill_columns_before(&m->columns, first));
    bool same = !m->fingerprint || m->world->node[to] == m->world->node[p->rank];
    size_t words = (size_t)values + (same ? p->clock_size : 0);
    struct twill_message *message = malloc(sizeof(*message) + words * sizeof(message->word[0]));
    if (message == NULL)
        return NULL;
    *message = (struct twill_message){.known = join_in(p->known),
                                      .run = p->run,
                                      .blocks = send->blocks,
                                      .column = first % m->blocks,
                                      .values = values,
                                      .clock_size = same ? p->clock_size : 0};
    memset(message->word, 0, values * sizeof(message->word[0]));
    memcpy(message->word + values, p->clock, message->clock_size * sizeof(*p->clock));
    return message;
}

bool twill_machine_snapshot(const struct twill_verifier *m, struct twill_snapshots *snapshots,
                            const struct twill_process *p)
{
    (void)m;
    uint32_t **clock = realloc(snapshots->clock, (snapshots->count + 1) * sizeof(*clock));
    if (clock != NULL)
        snapshots->clock = clock;
    struct twill_known_ranks **known =
        realloc(snapshots->known, (snapshots->count + 1) * sizeof(*known));
    if (known != NULL)
        snapshots->known = known;
    uint32_t *copy = malloc(p->clock_size * sizeof(*copy));
    if (clock == NULL || known == NULL || copy == NULL) {
        free(copy);
        return false;
    }
    memcpy(copy, p->clock, p->clock_size * sizeof(*copy));
    clock[snapshots->count] = copy;
    known[snapshots->count++] = join_in(p->known);
    return true;
}

/* Return a set with the same ranks that no other process shares, and drop the reference to `known`.
 * NULL: out of memory. */
static struct twill_known_ranks *unshare_ranks(const struct twill_verifier *m,
                                               struct twill_known_ranks *known)
{
    size_t words = (m->world->size + 63) / 64, bytes = sizeof(*known) + words * 8;
    if (known != NULL && known->users == 1)
        return known;
    struct twill_known_ranks *made = calloc(1, bytes);
    if (made != NULL && known != NULL)
        memcpy(made, known, bytes);
    if (made != NULL) {
        release_ranks(known);
        made->users = 1;
    }
    return made;
}

static bool learn_ranks(const struct twill_verifier *m, struct twill_process *p,
                        const struct twill_known_ranks *known)
{
    size_t words = (m->world->size + 63) / 64, w = 0;
    while (w < words && (known->bits[w] & ~p->known->bits[w]) == 0)
        w++;
    if (w == words)
        return true;
    struct twill_known_ranks *mine = unshare_ranks(m, p->known);
    if (mine == NULL)
        return false;
    p->known = mine;
    for (; w < words; w++)
        mine->bits[w] |= known->bits[w];
    return true;
}

bool twill_machine_begin(const struct twill_verifier *m, struct twill_process *p)
{
    if (!m->fingerprint)
        return true;
    for (uint32_t l = 0; l < m->schedules[p->rank].lanes; l++) {
        p[l].known = unshare_ranks(m, NULL);
        if (p[l].known == NULL)
            return false;
        p[l].known->bits[p->rank / 64] |= (uint64_t)1 << p->rank % 64;
    }
    return true;
}

bool twill_machine_knows(const struct twill_verifier *m, const struct twill_process *p,
                         uint32_t rank)
{
    uint32_t time = m->clocks.started[p->run * m->world->size + rank];
    if (m->fingerprint)
        return (p->known->bits[rank / 64] >> rank % 64 & 1) != 0;
    return time != 0 && p->clock[twill_machine_process(m, p->slot, rank, 0)] >= time;
}

bool twill_machine_join(const struct twill_verifier *m, struct twill_process *p,
                        const uint32_t *clock, uint32_t clock_size,
                        const struct twill_known_ranks *known)
{
    /* On a node of thousands of ranks nearly all of the time is spent here. */
    uint32_t *restrict mine = p->clock;
    const uint32_t *restrict other = clock;
    for (uint32_t i = 0; i < clock_size; i++)
        mine[i] = other[i] > mine[i] ? other[i] : mine[i];
    return known == NULL || known == p->known || learn_ranks(m, p, known);
}

/* Return the process at this position in p's clock. */
static const struct twill_process *known_as(const struct twill_verifier *m,
                                            const struct twill_process *p, uint32_t position)
{
    for (uint32_t i = 0; i < m->processes; i++)
        if (m->process[i].position == position &&
            (!m->fingerprint || m->world->node[m->process[i].rank] == m->world->node[p->rank]))
            return &m->process[i];
    return NULL;
}

twill_status twill_machine_fail(const struct twill_verifier *m, const struct twill_process *p,
                                const char *why, unsigned space, uint32_t block, uint32_t rank,
                                uint32_t other)
{
    const struct twill_schedule *schedule = &m->schedules[p->rank];
    char where[64] = "", whom[64] = "";
    if (space < TWILL_SPACE_COUNT)
        snprintf(where, sizeof(where), "%s[%u] of rank %u ", twill_space_name(space), block, rank);
    const struct twill_process *by = other == TWILL_NO_RANK ? NULL : known_as(m, p, other);
    if (by != NULL)
        snprintf(whom, sizeof(whom), " by rank %u in run %u", by->rank, by->run);
    bool ended = p->at >= p->end;
    return TWILL_FAIL(
        m->error, TWILL_ERR_INTERNAL, "schedule of rank %u, lane %u, step %u (%s), run %u: %s%s%s",
        p->rank, p->lane,
        (ended ? schedule->lane_first[p->lane + 1] : p->at) - schedule->lane_first[p->lane],
        ended ? "end" : twill_step_shape(twill_machine_step_at(p, p->at)->op)->name, p->run, where,
        why, whom);
}

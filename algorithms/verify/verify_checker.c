/* SPDX-License-Identifier: Apache-2.0 */
/* Set-up and release of the checker, and its cells, channels, clocks and failures. */
#include "algorithms/schedule/step_table.h"
#include "algorithms/verify/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Return how many simulated blocks (cells) a space of a rank needs in all. Each of the instances in
 * flight has its own SRC, DST and TMP. SHARED and IMM have `copies` copies, which instances use one
 * after the other. */
static size_t space_cells(const struct twill_checker *c, uint32_t rank, unsigned space)
{
    switch (space) {
    case TWILL_TMP:
        return (size_t)c->window * c->schedules[rank].tmp_blocks;
    case TWILL_SHARED:
        return (size_t)c->copies * c->schedules[rank].shared_blocks;
    case TWILL_IMM:
        return (size_t)c->copies * c->window * c->lanes;
    default:
        return (size_t)c->window * c->blocks;
    }
}

/* Number all processes, and allocate their clocks. Returns false if out of memory. */
static bool open_processes(struct twill_checker *c)
{
    for (uint32_t i = 0; i < c->processes; i++) {
        struct twill_process *p = &c->process[i];
        p->lane = i % c->lanes;
        p->rank = i / c->lanes % c->world->size;
        p->slot = i / c->lanes / c->world->size;
        uint32_t node = c->world->node[p->rank];
        uint32_t members = c->fingerprint ? c->world->node_size[node] : c->world->size;
        uint32_t member = c->fingerprint ? c->world->local[p->rank] : p->rank;
        p->clock_size = c->window * members * c->lanes;
        p->position = (p->slot * members + member) * c->lanes + p->lane;
        p->clock = calloc(p->clock_size, sizeof(*p->clock));
        p->ticket = calloc((size_t)c->schedules[p->rank].most_posted + 1, sizeof(*p->ticket));
        if (p->clock == NULL || p->ticket == NULL)
            return false;
    }
    return true;
}

bool twill_checker_open(struct twill_checker *c)
{
    size_t ranks = c->world->size, cells = 0;
    bool reduces = twill_collective_facts(c->shape->collective)->reduces;
    c->processes = c->window * (uint32_t)ranks * c->lanes;
    c->base = calloc(ranks * TWILL_SPACE_COUNT, sizeof(*c->base));
    c->process = calloc(c->processes, sizeof(*c->process));
    c->channels.slots = 64;
    c->channels.at = calloc(c->channels.slots, sizeof(*c->channels.at));
    c->clocks.signal = calloc((size_t)c->runs * c->processes, sizeof(*c->clocks.signal));
    c->clocks.imm = calloc((size_t)c->runs * c->processes, sizeof(*c->clocks.imm));
    c->clocks.begin = calloc((size_t)c->runs * c->processes, sizeof(*c->clocks.begin));
    c->clocks.started = calloc(c->runs * ranks, sizeof(*c->clocks.started));
    c->next_run = calloc(ranks, sizeof(*c->next_run));
    c->lanes_left = calloc(c->window * ranks, sizeof(*c->lanes_left));
    c->result = calloc((size_t)c->runs * c->blocks, sizeof(*c->result));
    if (c->base == NULL || c->process == NULL || c->channels.at == NULL ||
        c->clocks.signal == NULL || c->clocks.imm == NULL || c->clocks.begin == NULL ||
        c->clocks.started == NULL || c->next_run == NULL || c->lanes_left == NULL ||
        c->result == NULL || !open_processes(c))
        return false;
    for (uint32_t r = 0; r < ranks; r++) {
        for (unsigned space = 0; space < TWILL_SPACE_COUNT; space++) {
            c->base[(size_t)r * TWILL_SPACE_COUNT + space] = cells;
            cells += space_cells(c, r, space);
        }
    }
    return twill_cells_open(&c->memory, cells) &&
           twill_values_open(&c->values, (uint32_t)ranks,
                             reduces ? c->shape->order : TWILL_ORDER_ANY, c->fingerprint);
}

/* Drop a reference to a set of ranks, which may be NULL, and free it with the last. */
static void release_ranks(struct twill_known_ranks *known)
{
    if (known != NULL && --known->users == 0)
        free(known);
}

/* Free an array of the snapshots of all runs and processes. */
static void close_snapshots(struct twill_checker *c, struct twill_snapshots *snapshots)
{
    for (size_t i = 0; snapshots != NULL && i < (size_t)c->runs * c->processes; i++) {
        for (uint32_t k = 0; k < snapshots[i].count; k++) {
            free(snapshots[i].clock[k]);
            release_ranks(snapshots[i].known[k]);
        }
        free(snapshots[i].clock);
        free(snapshots[i].known);
    }
    free(snapshots);
}

void twill_checker_message_free(struct twill_message *message)
{
    release_ranks(message->known);
    free(message);
}

void twill_checker_close(struct twill_checker *c)
{
    for (size_t i = 0; c->channels.at != NULL && i < c->channels.slots; i++) {
        for (struct twill_message *next, *at = c->channels.at[i].first; at != NULL; at = next) {
            next = at->next;
            twill_checker_message_free(at);
        }
    }
    for (uint32_t i = 0; c->process != NULL && i < c->processes; i++) {
        free(c->process[i].clock);
        free(c->process[i].ticket);
        release_ranks(c->process[i].known);
    }
    close_snapshots(c, c->clocks.signal);
    close_snapshots(c, c->clocks.imm);
    close_snapshots(c, c->clocks.begin);
    twill_values_close(&c->values);
    twill_cells_close(&c->memory);
    free(c->base);
    free(c->process);
    free(c->channels.at);
    free(c->clocks.started);
    free(c->next_run);
    free(c->lanes_left);
    free(c->result);
}

size_t twill_checker_cell(const struct twill_checker *c, const struct twill_process *p,
                          uint32_t rank, unsigned space, uint32_t block)
{
    uint32_t copy = p->run % c->copies, blocks = c->blocks;
    if (space == TWILL_SRC && c->in_place &&
        twill_shape_holds_dst(c->shape, rank, block / c->shard_blocks))
        space = TWILL_DST;
    size_t base = c->base[(size_t)rank * TWILL_SPACE_COUNT + space];
    switch (space) {
    case TWILL_IMM:
        return base + ((size_t)copy * c->window + p->slot) * c->lanes + p->lane;
    case TWILL_SHARED:
        return base + (size_t)copy * c->schedules[rank].shared_blocks + block;
    case TWILL_TMP:
        blocks = c->schedules[rank].tmp_blocks;
        break;
    default:
        break;
    }
    return base + (size_t)p->slot * blocks + block;
}

/* Return the place of the channel with this key in a hash table, or a free place if it has none. */
static struct twill_channel *channel_slot(struct twill_channel *channel, size_t slots, uint64_t key)
{
    size_t at = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (slots - 1);
    while (channel[at].key != 0 && channel[at].key != key)
        at = (at + 1) & (slots - 1);
    return &channel[at];
}

/* Double the hash table of channels. Returns false if out of memory. */
static bool more_channels(struct twill_checker *c)
{
    size_t slots = 2 * c->channels.slots;
    struct twill_channel *channel = calloc(slots, sizeof(*channel));
    if (channel == NULL)
        return false;
    for (size_t i = 0; i < c->channels.slots; i++)
        if (c->channels.at[i].key != 0)
            *channel_slot(channel, slots, c->channels.at[i].key) = c->channels.at[i];
    free(c->channels.at);
    c->channels.at = channel;
    c->channels.slots = slots;
    return true;
}

struct twill_channel *twill_checker_channel(struct twill_checker *c, const struct twill_process *p,
                                            uint32_t from, uint32_t to)
{
    uint64_t ranks = c->world->size;
    uint64_t key = ((p->slot * (uint64_t)c->lanes + p->lane) * ranks + from) * ranks + to + 1;
    struct twill_channel *channel = channel_slot(c->channels.at, c->channels.slots, key);
    if (channel->key == key)
        return channel;
    if (4 * c->channels.count >= 3 * c->channels.slots) {
        if (!more_channels(c))
            return NULL;
        channel = channel_slot(c->channels.at, c->channels.slots, key);
    }
    c->channels.count++;
    channel->key = key;
    return channel;
}

/* Add a reference to a set of ranks, which may be NULL. Returns the set. */
static struct twill_known_ranks *join_in(struct twill_known_ranks *known)
{
    if (known != NULL)
        known->users++;
    return known;
}

struct twill_message *twill_checker_message(const struct twill_checker *c,
                                            const struct twill_process *p,
                                            const struct twill_step *send)
{
    bool same = !c->fingerprint || c->world->node[send->peer[0]] == c->world->node[p->rank];
    size_t words = (size_t)send->blocks + (same ? p->clock_size : 0);
    struct twill_message *message = malloc(sizeof(*message) + words * sizeof(message->word[0]));
    if (message == NULL)
        return NULL;
    *message = (struct twill_message){.known = join_in(p->known),
                                      .run = p->run,
                                      .blocks = send->blocks,
                                      .clock_size = same ? p->clock_size : 0};
    memset(message->word, 0, send->blocks * sizeof(message->word[0]));
    memcpy(message->word + send->blocks, p->clock, message->clock_size * sizeof(*p->clock));
    return message;
}

bool twill_checker_snapshot(const struct twill_checker *c, struct twill_snapshots *snapshots,
                            const struct twill_process *p)
{
    (void)c;
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

/* Return a set of the same ranks with only one reference, so that it may be changed. The reference
 * `known` of the caller is used up. It may be NULL for no ranks. Returns NULL if out of memory, and
 * then the caller keeps its reference. */
static struct twill_known_ranks *unshare_ranks(const struct twill_checker *c,
                                               struct twill_known_ranks *known)
{
    size_t words = (c->world->size + 63) / 64, bytes = sizeof(*known) + words * 8;
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

/* Add the ranks of `known` to those that a process knows. Returns false if out of memory. */
static bool learn_ranks(const struct twill_checker *c, struct twill_process *p,
                        const struct twill_known_ranks *known)
{
    size_t words = (c->world->size + 63) / 64, w = 0;
    while (w < words && (known->bits[w] & ~p->known->bits[w]) == 0)
        w++;
    if (w == words)
        return true;
    struct twill_known_ranks *mine = unshare_ranks(c, p->known);
    if (mine == NULL)
        return false;
    p->known = mine;
    for (; w < words; w++)
        mine->bits[w] |= known->bits[w];
    return true;
}

bool twill_checker_begin(const struct twill_checker *c, struct twill_process *p)
{
    if (!c->fingerprint)
        return true;
    for (uint32_t l = 0; l < c->schedules[p->rank].lanes; l++) {
        p[l].known = unshare_ranks(c, NULL);
        if (p[l].known == NULL)
            return false;
        p[l].known->bits[p->rank / 64] |= (uint64_t)1 << p->rank % 64;
    }
    return true;
}

bool twill_checker_knows(const struct twill_checker *c, const struct twill_process *p,
                         uint32_t rank)
{
    uint32_t time = c->clocks.started[p->run * c->world->size + rank];
    if (c->fingerprint)
        return (p->known->bits[rank / 64] >> rank % 64 & 1) != 0;
    return time != 0 && p->clock[twill_checker_process(c, p->slot, rank, 0)] >= time;
}

bool twill_checker_join(const struct twill_checker *c, struct twill_process *p,
                        const uint32_t *clock, uint32_t clock_size,
                        const struct twill_known_ranks *known)
{
    /* On a node of thousands of ranks nearly all of the time is spent here. */
    uint32_t *restrict mine = p->clock;
    const uint32_t *restrict other = clock;
    for (uint32_t i = 0; i < clock_size; i++)
        mine[i] = other[i] > mine[i] ? other[i] : mine[i];
    return known == NULL || known == p->known || learn_ranks(c, p, known);
}

/* Return the process at this position in the clock of p, or NULL if there is none. */
static const struct twill_process *known_as(const struct twill_checker *c,
                                            const struct twill_process *p, uint32_t position)
{
    for (uint32_t i = 0; i < c->processes; i++)
        if (c->process[i].position == position &&
            (!c->fingerprint || c->world->node[c->process[i].rank] == c->world->node[p->rank]))
            return &c->process[i];
    return NULL;
}

twill_status twill_checker_fail(const struct twill_checker *c, const struct twill_process *p,
                                const char *why, unsigned space, uint32_t block, uint32_t rank,
                                uint32_t other)
{
    const struct twill_schedule *schedule = &c->schedules[p->rank];
    char where[64] = "", whom[64] = "";
    if (space < TWILL_SPACE_COUNT)
        snprintf(where, sizeof(where), "%s[%u] of rank %u ", twill_space_name(space), block, rank);
    const struct twill_process *by = other == TWILL_NO_RANK ? NULL : known_as(c, p, other);
    if (by != NULL)
        snprintf(whom, sizeof(whom), " by rank %u in run %u", by->rank, by->run);
    bool ended = p->at >= p->end;
    return TWILL_FAIL(
        c->error, TWILL_ERR_INTERNAL, "schedule of rank %u, lane %u, step %u (%s), run %u: %s%s%s",
        p->rank, p->lane,
        (ended ? schedule->lane_first[p->lane + 1] : p->at) - schedule->lane_first[p->lane],
        ended ? "end" : twill_step_shape(schedule->steps[p->at].op)->name, p->run, where, why,
        whom);
}

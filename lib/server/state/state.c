/* SPDX-License-Identifier: Apache-2.0 */
/* The state of chunks: who has the newest, and how it gets to the cores.
 *
 * A record is a chunk's version, its parameters and the optimizer's state. A rank brings records of
 * an older server, or of files; if no rank brings any, the lowest worker's parameters are version
 * 0. Of each chunk the record with the highest version is taken, of equals that of the lowest rank.
 */
#include "lib/server/state/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANK_BITS 24u

size_t twill_record_bytes(const struct twill_server *server, const struct twill_chunk_place *place)
{
    return sizeof(uint64_t) + place->count * (twill_type_size(server->key[place->key].type) +
                                              server->states * sizeof(float));
}

void twill_record_write(const struct twill_server *server, const struct twill_chunk *chunk,
                        unsigned char *record)
{
    size_t count = chunk->place->count,
           value = count * twill_type_size(server->key[chunk->place->key].type);
    memcpy(record, &chunk->version, sizeof(uint64_t));
    record += sizeof(uint64_t);
    memcpy(record, chunk->value, value);
    record += value;
    for (uint32_t s = 0; s < server->states; s++, record += count * sizeof(float))
        memcpy(record, chunk->state[s], count * sizeof(float));
}

static void read_record(const struct twill_server *server, struct twill_chunk *chunk,
                        const unsigned char *record)
{
    size_t count = chunk->place->count,
           value = count * twill_type_size(server->key[chunk->place->key].type);
    memcpy(&chunk->version, record, sizeof(uint64_t));
    record += sizeof(uint64_t);
    memcpy(chunk->value, record, value);
    record += value;
    for (uint32_t s = 0; s < server->states; s++, record += count * sizeof(float))
        memcpy(chunk->state[s], record, count * sizeof(float));
}

static uint64_t record_version(const unsigned char *record)
{
    uint64_t version;
    memcpy(&version, record, sizeof(version));
    return version;
}

/* --- records of an older server -----------------------------------------------------------------
 */

void twill_server_drop_state(struct twill_server *server)
{
    for (uint32_t i = 0; server->held != NULL && i < server->places; i++)
        free(server->held[i]);
    free(server->held);
    server->held = NULL;
}

unsigned char *twill_server_hold(struct twill_server *server, uint32_t place)
{
    if (server->held == NULL)
        server->held = calloc(server->places, sizeof(*server->held));
    if (server->held == NULL)
        return NULL;
    if (server->held[place] == NULL)
        server->held[place] = malloc(twill_record_bytes(server, &server->place[place]));
    return server->held[place];
}

twill_status twill_server_hold_state(struct twill_server *to, const struct twill_server *from)
{
    for (uint32_t t = 0; from->core != NULL && t < from->threads; t++)
        for (uint32_t i = 0; i < from->core[t].chunks; i++) {
            const struct twill_chunk *chunk = &from->core[t].chunk[i];
            uint32_t place = (uint32_t)(chunk->place - from->place);
            unsigned char *record = twill_server_hold(to, place);
            if (record == NULL)
                return TWILL_FAIL(&to->error, TWILL_ERR_MEMORY, "out of memory for the state");
            twill_record_write(from, chunk, record);
        }
    return TWILL_OK;
}

/* --- who has the newest --------------------------------------------------------------------------
 */

/* Return a number that is higher for higher versions, and of equals for lower ranks. */
static uint64_t order_version(uint64_t version, uint32_t rank)
{
    return (version + 1) << RANK_BITS | (((uint64_t)1 << RANK_BITS) - 1 - rank);
}

static uint32_t rank_of(uint64_t ordered)
{
    return (1u << RANK_BITS) - 1 - (uint32_t)(ordered & (((uint64_t)1 << RANK_BITS) - 1));
}

/* Fill in, for each chunk, the highest order_version() of any rank, or 0 if no rank has it; then
 * that of the optimizer's settings, and whether any rank brings an older server. */
static twill_status find_newest(struct twill_server *server, uint64_t *newest)
{
    for (uint32_t i = 0; i < server->places; i++) {
        newest[i] = 0;
        if (server->held != NULL && server->held[i] != NULL)
            newest[i] = order_version(record_version(server->held[i]), server->rank);
    }
    newest[server->places] = order_version(server->settings, server->rank);
    newest[server->places + 1] = server->successor;
    twill_status status = twill_allreduce(server->comm, newest, newest, (size_t)server->places + 2,
                                          TWILL_U64, TWILL_MAX);
    if (status != TWILL_OK)
        return TWILL_SERVER_FAIL(server, status, "%s", twill_comm_message(server->comm));
    return TWILL_OK;
}

/* Name the keys of which a chunk is lost, the same on all ranks. */
static twill_status fail_lost(struct twill_server *server, const uint64_t *newest)
{
    char text[300] = "";
    size_t used = 0;
    for (uint32_t k = 0; k < server->keys && used + 64 < sizeof(text); k++) {
        const struct twill_server_key *key = &server->key[k];
        bool lost = false;
        for (uint32_t c = 0; c < key->chunks; c++)
            lost |= newest[key->first_chunk + c] == 0;
        if (lost)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s'%.40s'",
                                     used > 0 ? ", " : "", key->name);
    }
    return TWILL_SERVER_FAIL(
        server, TWILL_ERR_PEER, "rank %u: no rank has the parameters of %s: %s", server->rank, text,
        newest[server->places + 1] != 0 ? "their server has died, and there are no replicas"
                                        : "files of twill_server_save() are missing");
}

/* Take the lowest worker's parameters as version 0. Sets who has them. */
static twill_status hold_initial(struct twill_server *server, uint64_t *newest)
{
    uint32_t from = server->worker_rank[0];
    for (uint32_t i = 0; i < server->places; i++) {
        const struct twill_chunk_place *place = &server->place[i];
        size_t width = twill_type_size(server->key[place->key].type);
        newest[i] = order_version(0, from);
        if (server->rank != from)
            continue;
        unsigned char *record = twill_server_hold(server, i);
        if (record == NULL)
            return TWILL_SERVER_FAIL(server, TWILL_ERR_MEMORY, "out of memory for the state");
        memset(record, 0, twill_record_bytes(server, place));
        memcpy(record + sizeof(uint64_t),
               (const unsigned char *)server->key[place->key].parameters + place->first * width,
               place->count * width);
    }
    return TWILL_OK;
}

/* --- to the cores -------------------------------------------------------------------------------
 */

static struct twill_chunk *find_chunk(struct twill_server *server, uint32_t number, uint32_t place)
{
    struct twill_core *core = &server->core[number % server->threads];
    const struct twill_chunk_place *wanted = &server->place[place];
    uint32_t first = core->key_first[wanted->key], end = core->key_first[wanted->key + 1];
    while (end - first > 1) { /* they are in the order of places */
        uint32_t middle = first + (end - first) / 2;
        if (core->chunk[middle].place <= wanted)
            first = middle;
        else
            end = middle;
    }
    return &core->chunk[first];
}

/* Bring a record from a rank to a core. Ranks do this in the order of chunks. */
static twill_status bring_record(struct twill_server *server, uint32_t place, uint32_t from,
                                 uint32_t core, unsigned char *scratch)
{
    uint32_t to = twill_core_rank(server, core);
    size_t bytes = twill_record_bytes(server, &server->place[place]);
    twill_status status = TWILL_OK;
    if (server->rank == from && to != from)
        status = twill_send(server->comm, server->held[place], bytes, TWILL_U8, (int)to);
    if (server->rank == to) {
        const unsigned char *record = from == to ? server->held[place] : scratch;
        if (from != to)
            status = twill_recv(server->comm, scratch, bytes, TWILL_U8, (int)from);
        if (status == TWILL_OK)
            read_record(server, find_chunk(server, core, place), record);
    }
    if (status != TWILL_OK)
        return TWILL_SERVER_FAIL(server, status, "%s", twill_comm_message(server->comm));
    return TWILL_OK;
}

/* Set the numbers of the last pushes: chunks of version V have taken V pushes of each worker where
 * these are in step. */
static void set_numbers(struct twill_server *server, const uint64_t *newest)
{
    for (uint32_t k = 0; k < server->keys; k++) {
        struct twill_server_key *key = &server->key[k];
        uint64_t least = UINT64_MAX;
        for (uint32_t c = 0; c < key->chunks; c++)
            least = twill_min(least, (newest[key->first_chunk + c] >> RANK_BITS) - 1);
        atomic_store(&key->pushes, least);
        atomic_store(&key->pushes_end, least);
    }
    for (uint32_t t = 0; twill_server_serves(server) && t < server->threads; t++) {
        struct twill_core *core = &server->core[t];
        for (uint32_t i = 0; i < core->chunks; i++) {
            core->versions += core->chunk[i].replica ? 0 : core->chunk[i].version;
            for (uint32_t w = 0; w < server->workers; w++)
                core->chunk[i].worker[w].base = core->chunk[i].version;
        }
    }
}

/* Take the optimizer's hyperparameters of the rank that has changed them most often: ranks that are
 * new, and those that do not serve, have others. */
static twill_status spread_optimizer(struct twill_server *server, uint64_t newest)
{
    twill_optimizer taken = server->optimizer;
    server->settings = (newest >> RANK_BITS) - 1;
    if (server->settings == 0)
        return TWILL_OK;
    twill_status status = twill_broadcast(server->comm, &taken, &taken, sizeof(taken), TWILL_U8,
                                          (int)rank_of(newest));
    if (status != TWILL_OK)
        return TWILL_SERVER_FAIL(server, status, "%s", twill_comm_message(server->comm));
    server->optimizer = taken;
    return TWILL_OK;
}

static twill_status spread(struct twill_server *server, uint64_t *newest, unsigned char *scratch)
{
    bool all = true;
    TWILL_TRY(NULL, find_newest(server, newest));
    bool any = newest[server->places + 1] != 0; /* an older server has had all of them */
    TWILL_TRY(NULL, spread_optimizer(server, newest[server->places]));
    for (uint32_t i = 0; i < server->places; i++) {
        any |= newest[i] != 0;
        all &= newest[i] != 0;
    }
    if (any && !all)
        return fail_lost(server, newest);
    if (!any)
        TWILL_TRY(NULL, hold_initial(server, newest));
    for (uint32_t i = 0; i < server->places; i++) {
        const struct twill_chunk_place *place = &server->place[i];
        uint32_t from = rank_of(newest[i]);
        TWILL_TRY(NULL, bring_record(server, i, from, place->core, scratch));
        if (place->replica != TWILL_SERVER_NO_CORE)
            TWILL_TRY(NULL, bring_record(server, i, from, place->replica, scratch));
    }
    set_numbers(server, newest);
    return TWILL_OK;
}

twill_status twill_server_spread_state(struct twill_server *server)
{
    size_t largest = 1;
    for (uint32_t i = 0; i < server->places; i++)
        largest = twill_max(largest, twill_record_bytes(server, &server->place[i]));
    uint64_t *newest = calloc((size_t)server->places + 2, sizeof(*newest));
    unsigned char *scratch = malloc(largest);
    twill_status status = TWILL_OK;
    if (newest == NULL || scratch == NULL)
        status = TWILL_SERVER_FAIL(server, TWILL_ERR_MEMORY, "out of memory for the state");
    else if (server->places > 0)
        status = spread(server, newest, scratch);
    free(newest);
    free(scratch);
    return status;
}

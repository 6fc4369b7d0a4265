/* SPDX-License-Identifier: Apache-2.0 */
/* The state of chunks. Finds who has the newest, and brings it to the shards. A record is a chunk's
 * version, the number of gradients that wait for its update, its parameters, the optimizer's state
 * and the sum of those gradients. A rank contributes records of an older server, or of files. If no
 * rank has any, the lowest worker's parameters become version 0. For each chunk the record with the
 * highest version is taken, then with the most gradients, then of the lowest rank. */
#include "lib/server/state/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAITING_BITS 20u
#define WAITING_MOST ((UINT64_C(1) << WAITING_BITS) - 1)
#define VERSION_MOST ((UINT64_C(1) << (63 - WAITING_BITS)) - 1)

/* Start of a record. `waiting` is the number of gradients in its sum. */
struct record_head {
    uint64_t version, waiting;
};

size_t twill_record_bytes(const struct twill_server *server, const struct twill_chunk_place *place)
{
    size_t floats = server->rule.states + twill_server_adds(server);
    return sizeof(struct record_head) +
           place->count * (twill_type_size(server->key[place->key].type) + floats * sizeof(float));
}

/* Return part number `part` of a chunk's memory, in the order of a record: parameters, optimizer
 * state, sum. *bytes receives its size. Returns NULL after the last part. */
static void *record_part(const struct twill_server *server, const struct twill_chunk *chunk,
                         uint32_t part, size_t *bytes)
{
    *bytes = chunk->place->count * sizeof(float);
    if (part == 0)
        *bytes = chunk->place->count * twill_type_size(server->key[chunk->place->key].type);
    if (part <= server->rule.states)
        return part == 0 ? (void *)chunk->value : chunk->state[part - 1];
    return part == server->rule.states + 1 ? chunk->sum : NULL;
}

void twill_record_write(const struct twill_server *server, const struct twill_chunk *chunk,
                        unsigned char *record)
{
    const struct record_head head = {chunk->version,
                                     twill_server_adds(server) ? chunk->waiting : 0};
    const void *from;
    size_t bytes;
    memcpy(record, &head, sizeof(head));
    record += sizeof(head);
    for (uint32_t p = 0; (from = record_part(server, chunk, p, &bytes)) != NULL; p++) {
        memcpy(record, from, bytes);
        record += bytes;
    }
}

/* Set a chunk's version, waiting gradients, parameters, optimizer state and sum from a record. */
static void read_record(const struct twill_server *server, struct twill_chunk *chunk,
                        const unsigned char *record)
{
    struct record_head head;
    void *to;
    size_t bytes;
    memcpy(&head, record, sizeof(head));
    record += sizeof(head);
    chunk->version = head.version;
    chunk->waiting = (uint32_t)head.waiting;
    for (uint32_t p = 0; (to = record_part(server, chunk, p, &bytes)) != NULL; p++) {
        memcpy(to, record, bytes);
        record += bytes;
    }
}

bool twill_record_check(unsigned char *record, bool has_sum)
{
    struct record_head head;
    memcpy(&head, record, sizeof(head));
    if (!has_sum)
        head.waiting = 0;
    memcpy(record, &head, sizeof(head));
    return head.version <= VERSION_MOST && head.waiting <= WAITING_MOST;
}

/* Return a number by which records of a chunk are compared. It is higher for a higher version and,
 * among equal versions, for more gradients that wait. It is never 0. */
static uint64_t order_record(const unsigned char *record)
{
    struct record_head head;
    memcpy(&head, record, sizeof(head));
    return (head.version + 1) << WAITING_BITS | twill_min(head.waiting, WAITING_MOST);
}

/* Return the version of a record, given its order_record(). */
static uint64_t version_of(uint64_t order)
{
    return (order >> WAITING_BITS) - 1;
}

void twill_server_drop_state(struct twill_server *server)
{
    for (uint32_t i = 0; server->past.held != NULL && i < server->cut.places; i++)
        free(server->past.held[i]);
    free(server->past.held);
    server->past.held = NULL;
}

unsigned char *twill_server_hold(struct twill_server *server, uint32_t place)
{
    if (server->past.held == NULL)
        server->past.held = calloc(server->cut.places, sizeof(*server->past.held));
    if (server->past.held == NULL)
        return NULL;
    if (server->past.held[place] == NULL)
        server->past.held[place] = malloc(twill_record_bytes(server, &server->cut.place[place]));
    return server->past.held[place];
}

/* Copy the state of a chunk or replica of server `from` to a record in to->past.held. `to` is the
 * server of this rank that replaces `from`. Fails only if out of memory. */
static twill_status hold_chunk(struct twill_server *to, const struct twill_server *from,
                               const struct twill_chunk *chunk)
{
    unsigned char *record = twill_server_hold(to, (uint32_t)(chunk->place - from->cut.place));
    if (record == NULL)
        return TWILL_FAIL(&to->failure.error, TWILL_ERR_MEMORY, "out of memory for the state");
    twill_record_write(from, chunk, record);
    return TWILL_OK;
}

twill_status twill_server_hold_state(struct twill_server *to, const struct twill_server *from)
{
    for (uint32_t t = 0; from->shard != NULL && t < from->roles.threads; t++) {
        const struct twill_shard *shard = &from->shard[t];
        for (uint32_t i = 0; i < shard->chunks; i++)
            TWILL_TRY(NULL, hold_chunk(to, from, &shard->chunk[i]));
        for (uint32_t i = 0; i < shard->copies; i++)
            TWILL_TRY(NULL, hold_chunk(to, from, &shard->copy[i]));
    }
    return TWILL_OK;
}

/* Facts about records, equal on all ranks after find_newest(). The members point into one call's
 * allocation, the last three to one word each. */
struct newest {
    uint64_t *order;           /* [places] order_record() of each chunk's newest, or 0 if none */
    uint64_t *holder;          /* [places] size - the lowest rank that has it */
    uint64_t *settings;        /* most changes of the optimizer's settings on any rank */
    uint64_t *settings_holder; /* size - the lowest rank with these settings */
    uint64_t *successor;       /* 1 if any rank brings an older server, otherwise 0 */
};

/* Return the lowest rank that has the newest record of the chunk at index `place`. */
static uint32_t holder_of(const struct twill_server *server, const struct newest *newest,
                          uint32_t place)
{
    return server->size - (uint32_t)newest->holder[place];
}

/* Replace each of `count` words by the greatest of all ranks. Collective. */
static twill_status find_greatest(struct twill_server *server, uint64_t *words, size_t count)
{
    return twill_server_check_call(
        server, server->comm,
        twill_allreduce(server->comm, words, words, count, TWILL_U64, TWILL_MAX));
}

/* Return a number that is higher the newer this rank's record of a chunk is (order_record()), or 0
 * if it has none. `place` is the chunk's index in cut.place. */
static uint64_t own_order(const struct twill_server *server, uint32_t place)
{
    bool held = server->past.held != NULL && server->past.held[place] != NULL;
    return held ? order_record(server->past.held[place]) : 0;
}

/* Fill the arrays of *newest. Its order and holder are those of each chunk's newest record, and
 * settings those of the rank with most changes of them. Returns TWILL_OK or the error.
 * Collective. */
static twill_status find_newest(struct twill_server *server, struct newest *newest)
{
    const uint64_t own = server->size - server->rank;
    for (uint32_t i = 0; i < server->cut.places; i++)
        newest->order[i] = own_order(server, i);
    *newest->settings = server->rule.settings;
    *newest->successor = server->past.successor;
    TWILL_TRY(NULL, find_greatest(server, newest->order, (size_t)server->cut.places + 2));
    for (uint32_t i = 0; i < server->cut.places; i++)
        newest->holder[i] = own_order(server, i) == newest->order[i] ? own : 0;
    *newest->settings_holder = server->rule.settings == *newest->settings ? own : 0;
    return find_greatest(server, newest->holder, (size_t)server->cut.places + 1);
}

/* Break the server on all ranks with TWILL_ERR_PEER, naming the keys that have lost a chunk. */
static twill_status fail_lost(struct twill_server *server, const struct newest *newest)
{
    char text[300] = "";
    size_t used = 0;
    for (uint32_t k = 0; k < server->keys && used + 64 < sizeof(text); k++) {
        const struct twill_server_key *key = &server->key[k];
        bool lost = false;
        for (uint32_t c = 0; c < key->chunks; c++)
            lost |= newest->order[key->first_chunk + c] == 0;
        if (lost)
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s'%.40s'",
                                     used > 0 ? ", " : "", key->name);
    }
    return TWILL_SERVER_FAIL(
        server, TWILL_ERR_PEER, "rank %u: no rank has the parameters of %s: %s", server->rank, text,
        *newest->successor != 0 ? "their server has died, and there are no replicas"
                                : "files of twill_server_save() are missing");
}

/* Make the lowest worker's parameters version 0 of all chunks, as no rank has records. That worker
 * writes a record of each chunk to past.held. On all ranks, *newest then names it as the holder of
 * these records. Fails only if out of memory. */
static twill_status hold_initial(struct twill_server *server, struct newest *newest)
{
    uint32_t from = server->roles.worker_rank[0];
    for (uint32_t i = 0; i < server->cut.places; i++) {
        const struct twill_chunk_place *place = &server->cut.place[i];
        size_t width = twill_type_size(server->key[place->key].type);
        newest->order[i] = UINT64_C(1) << WAITING_BITS;
        newest->holder[i] = server->size - from;
        if (server->rank != from)
            continue;
        unsigned char *record = twill_server_hold(server, i);
        if (record == NULL)
            return TWILL_SERVER_FAIL(server, TWILL_ERR_MEMORY, "out of memory for the state");
        memset(record, 0, twill_record_bytes(server, place));
        memcpy(record + sizeof(struct record_head),
               (const unsigned char *)server->key[place->key].parameters + place->first * width,
               place->count * width);
    }
    return TWILL_OK;
}

/* Return the chunk, or replica, of `place`, which is in the list. The list is ordered by place. */
static struct twill_chunk *find_chunk(struct twill_chunk *list, uint32_t count,
                                      const struct twill_chunk_place *place)
{
    uint32_t first = 0, end = count;
    while (end - first > 1) {
        uint32_t middle = first + (end - first) / 2;
        if (list[middle].place <= place)
            first = middle;
        else
            end = middle;
    }
    return &list[first];
}

/* Bring the record of chunk number `place` from rank `from` to shard number `number`, as its chunk
 * or its replica. Other ranks do nothing. Ranks do this in the order of chunks. `scratch` has room
 * for a record. Returns TWILL_OK or the error, which breaks the server. */
static twill_status bring_record(struct twill_server *server, uint32_t place, uint32_t from,
                                 uint32_t number, unsigned char *scratch)
{
    const struct twill_chunk_place *wanted = &server->cut.place[place];
    uint32_t to = twill_shard_rank(server, number);
    size_t bytes = twill_record_bytes(server, wanted);
    twill_status status = TWILL_OK;
    if (server->rank == from && to != from)
        status = twill_send(server->comm, server->past.held[place], bytes, TWILL_U8, (int)to);
    if (server->rank == to) {
        struct twill_shard *shard = &server->shard[number % server->roles.threads];
        const unsigned char *record = from == to ? server->past.held[place] : scratch;
        if (from != to)
            status = twill_recv(server->comm, scratch, bytes, TWILL_U8, (int)from);
        if (status == TWILL_OK && wanted->shard == number)
            read_record(server, find_chunk(shard->chunk, shard->chunks, wanted), record);
        else if (status == TWILL_OK)
            read_record(server, find_chunk(shard->copy, shard->copies, wanted), record);
    }
    return twill_server_check_call(server, server->comm, status);
}

/* Set the numbers that follow from the newest records, which the chunks contain already. A key has
 * begun and ended as many pushes as the lowest version of its chunks. The shards here count the
 * versions of their chunks, and note that each worker has pulled the present one. */
static void set_numbers(struct twill_server *server, const struct newest *newest)
{
    for (uint32_t k = 0; k < server->keys; k++) {
        struct twill_server_key *key = &server->key[k];
        uint64_t least = UINT64_MAX;
        for (uint32_t c = 0; c < key->chunks; c++)
            least = twill_min(least, version_of(newest->order[key->first_chunk + c]));
        atomic_store(&key->pushes, least);
        atomic_store(&key->pushes_end, least);
    }
    for (uint32_t t = 0; twill_server_serves(server) && t < server->roles.threads; t++) {
        struct twill_shard *shard = &server->shard[t];
        for (uint32_t i = 0; i < shard->chunks; i++) {
            shard->count.versions += shard->chunk[i].version;
            for (uint32_t w = 0; w < server->roles.workers; w++)
                shard->chunk[i].worker[w].base = shard->chunk[i].version;
        }
    }
}

/* Take the optimizer's hyperparameters from the lowest rank with most changes of them, as new ranks
 * and ranks that do not serve have others. Collective. Breaks the server if that fails. */
static twill_status spread_optimizer(struct twill_server *server, const struct newest *newest)
{
    twill_optimizer taken = server->rule.optimizer;
    server->rule.settings = *newest->settings;
    if (server->rule.settings == 0)
        return TWILL_OK;
    int from = (int)(server->size - *newest->settings_holder);
    TWILL_TRY(NULL, twill_server_check_call(server, server->comm,
                                            twill_broadcast(server->comm, &taken, &taken,
                                                            sizeof(taken), TWILL_U8, from)));
    server->rule.optimizer = taken;
    return TWILL_OK;
}

/* Find the newest record of each chunk, or make the first ones, of the initial parameters. Send it
 * to the shard that has the chunk and the one with its replica. Also spread the optimizer. Arrays
 * of *newest and scratch[], for a record, are the caller's. Returns the status. Collective. */
static twill_status spread(struct twill_server *server, struct newest *newest,
                           unsigned char *scratch)
{
    bool all = true;
    TWILL_TRY(NULL, find_newest(server, newest));
    bool any = *newest->successor != 0; /* an older server had all chunks */
    TWILL_TRY(NULL, spread_optimizer(server, newest));
    for (uint32_t i = 0; i < server->cut.places; i++) {
        any |= newest->order[i] != 0;
        all &= newest->order[i] != 0;
    }
    if (any && !all)
        return fail_lost(server, newest);
    if (!any)
        TWILL_TRY(NULL, hold_initial(server, newest));
    for (uint32_t i = 0; i < server->cut.places; i++) {
        uint32_t from = holder_of(server, newest, i), shard = server->cut.place[i].shard,
                 replica = twill_replica_shard(server, shard);
        TWILL_TRY(NULL, bring_record(server, i, from, shard, scratch));
        if (replica != TWILL_SERVER_NO_SHARD)
            TWILL_TRY(NULL, bring_record(server, i, from, replica, scratch));
    }
    set_numbers(server, newest);
    return TWILL_OK;
}

twill_status twill_server_spread_state(struct twill_server *server)
{
    size_t largest = 1, places = server->cut.places;
    for (uint32_t i = 0; i < server->cut.places; i++)
        largest = twill_max(largest, twill_record_bytes(server, &server->cut.place[i]));
    uint64_t *words = calloc(2 * places + 3, sizeof(*words));
    struct newest newest = {.order = words};
    unsigned char *scratch = malloc(largest);
    twill_status status = TWILL_OK;
    if (words == NULL || scratch == NULL)
        status = TWILL_SERVER_FAIL(server, TWILL_ERR_MEMORY, "out of memory for the state");
    else if (places > 0) {
        newest.settings = words + places;
        newest.successor = words + places + 1;
        newest.holder = words + places + 2;
        newest.settings_holder = newest.holder + places;
        status = spread(server, &newest, scratch);
    }
    free(words);
    free(scratch);
    return status;
}

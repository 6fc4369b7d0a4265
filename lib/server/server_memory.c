/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that workers and servers of a node map of each other, by offsets, from twill_alloc(). */
#include "lib/server/server.h"

#include <stdlib.h>
#include <string.h>

#define NOWHERE           UINT64_MAX /* in place of an offset: not shared by this rank */
#define WORDS_BEFORE_KEYS 1u         /* of a rank's offer, the offset of its control memory */

/* Return a rank's part of all[], which has the offsets of memory that each rank offers
 * (exchange_offers()). */
static uint64_t *offer_of(const struct twill_server *server, uint64_t *all, uint32_t rank)
{
    return all + (size_t)rank * (WORDS_BEFORE_KEYS + 2 * (size_t)server->keys);
}

/* Return the offset of memory in this rank's heap of twill_alloc(), or NOWHERE if not all in it. */
static uint64_t offset_of(const struct twill_server *server, const void *memory, size_t bytes)
{
    const struct twill_extend_memory own = twill_extend_memory(server->comm, server->rank);
    const unsigned char *at = memory;
    if (at == NULL || at < own.base || bytes > own.bytes || at > own.base + (own.bytes - bytes))
        return NOWHERE;
    return (uint64_t)(at - own.base);
}

/* Return where this process maps the memory at an offset of another rank of this node. */
static void *mapped_at(const struct twill_server *server, uint32_t rank, uint64_t offset)
{
    return twill_extend_memory(server->comm, rank).base + offset;
}

static bool same_node(const struct twill_server *server, uint32_t rank)
{
    const struct twill_world *world = twill_extend_comm(server->comm).world;
    return world->node[rank] == world->node[server->rank];
}

/* Return the bytes of this worker's rings, or 0 if it is no worker. */
static size_t rings_bytes(const struct twill_server *server)
{
    return twill_server_works(server) ? server->roles.shards * twill_ring_bytes(server->keys) : 0;
}

/* Return the offset of a shard's answers to a worker in the server's control memory. `thread` is
 * the shard's, and `works` says whether the server also works, which moves the answers. */
static size_t answers_at(const struct twill_server *server, bool works, uint32_t thread,
                         uint32_t worker)
{
    size_t rings = works ? server->roles.shards * twill_ring_bytes(server->keys) : 0;
    return rings + ((size_t)thread * server->roles.workers + worker) * server->keys *
                       sizeof(struct twill_answer);
}

/* Return the bytes of this rank's rings and answers. */
static size_t control_bytes(const struct twill_server *server)
{
    size_t answers = 0;
    if (twill_server_serves(server))
        answers = (size_t)server->roles.threads * server->roles.workers * server->keys *
                  sizeof(struct twill_answer);
    return rings_bytes(server) + answers;
}

/* Return whether ranks `worker` and `rank`, a server, map each other's memory. They do if they are
 * one rank, or on one node and all memory that they need of each other is from twill_alloc(). That
 * is known from all[], which exchange_offers() sets. Both ranks find the same result. */
static bool maps(const struct twill_server *server, uint64_t *all, uint32_t worker, uint32_t rank)
{
    const struct twill_world *world = twill_extend_comm(server->comm).world;
    if (worker == rank)
        return true;
    if (world->node[worker] != world->node[rank])
        return false;
    const uint64_t *offer = offer_of(server, all, worker);
    bool all_there = offer_of(server, all, rank)[0] != NOWHERE;
    for (size_t i = 0; i < WORDS_BEFORE_KEYS + 2 * (size_t)server->keys; i++)
        all_there &= offer[i] != NOWHERE;
    return all_there;
}

/* Set *(void **)pointer to zeroed memory of twill_alloc(). Returns its status, and sets
 * failure.error if it fails. */
static twill_status allocate_shared(struct twill_server *server, void *pointer, size_t bytes)
{
    void *memory = NULL;
    twill_status status = twill_alloc(server->process.context, &memory, twill_max(bytes, 1));
    TWILL_TRY(NULL, twill_explain(&server->failure.error, status,
                                  twill_context_message(server->process.context)));
    memset(memory, 0, twill_max(bytes, 1));
    memcpy(pointer, &memory, sizeof(memory));
    return TWILL_OK;
}

/* Return whether servers of this node, other than this rank, must map this worker's memory. */
static bool is_mapped_by_others(const struct twill_server *server)
{
    for (uint32_t s = 0; s < server->roles.servers; s++)
        if (server->roles.server_rank[s] != server->rank &&
            same_node(server, server->roles.server_rank[s]))
            return true;
    return false;
}

/* Set a key's buffers at a worker. Memory that the caller did not give is allocated. Gradients to
 * be encoded get a second buffer and, if the coder needs it, a residual. Memory that servers must
 * map (`mapped`) but that is not from twill_alloc() gets a copy that is. Fails only if out of
 * memory. */
static twill_status place_key(struct twill_server *server, struct twill_server_key *key,
                              bool mapped)
{
    if (key->gradient == NULL) {
        TWILL_TRY(NULL, allocate_shared(server, &key->gradient, key->bytes));
        key->own_gradient = true;
    }
    if (key->parameters == NULL) {
        TWILL_TRY(NULL, allocate_shared(server, &key->parameters, key->bytes));
        key->own_parameters = true;
    }
    key->sent = key->gradient;
    key->landed = key->parameters;
    if (key->coded || (mapped && offset_of(server, key->gradient, key->bytes) == NOWHERE))
        TWILL_TRY(NULL, allocate_shared(server, &key->sent, key->wire_bytes));
    if (mapped && offset_of(server, key->parameters, key->bytes) == NOWHERE)
        TWILL_TRY(NULL, allocate_shared(server, &key->landed, key->bytes));
    if (key->coded && twill_coder_keeps(&server->coder))
        TWILL_NEW(&server->failure.error, key->residual, key->count, "residuals");
    return TWILL_OK;
}

/* Allocate a worker's rings of orders, a server's answers, and a worker's buffers of keys where the
 * caller's do not suit. All are memory of twill_alloc(), which ranks of the node can map. The
 * function twill_server_close_memory() frees them. Fails only if out of memory. */
static twill_status place_memory(struct twill_server *server)
{
    bool mapped = is_mapped_by_others(server);
    TWILL_TRY(NULL, allocate_shared(server, &server->memory.control, control_bytes(server)));
    for (uint32_t k = 0; k < server->keys && twill_server_works(server); k++)
        TWILL_TRY(NULL, place_key(server, &server->key[k], mapped));
    return TWILL_OK;
}

/* Count the chunks and bytes of each key on each shard, in the members of this worker's ports. */
static void count_chunks(struct twill_server *server)
{
    for (uint32_t i = 0; i < server->cut.places; i++) {
        const struct twill_chunk_place *place = &server->cut.place[i];
        struct twill_port *port = &server->work.port[place->shard];
        port->chunks[place->key]++;
        port->push_bytes[place->key] += place->wire_bytes;
        port->pull_bytes[place->key] +=
            place->count * twill_type_size(server->key[place->key].type);
    }
}

/* Make the worker's ports from the offers of all ranks. A port to a server whose memory is not
 * mapped here gets own_answer, and twill_links_open() sets its link. Fails only if out of
 * memory. */
static twill_status open_ports(struct twill_server *server, uint64_t *all)
{
    struct twill_error *error = &server->failure.error;
    TWILL_NEW(error, server->work.port, server->roles.shards, "shards");
    for (uint32_t c = 0; c < server->roles.shards; c++) {
        struct twill_port *port = &server->work.port[c];
        uint32_t rank = twill_shard_rank(server, c), thread = c % server->roles.threads;
        bool works = server->options.layout <= TWILL_SERVER_CC;
        port->shard = c;
        port->rank = rank;
        TWILL_NEW(error, port->chunks, server->keys, "tensors");
        TWILL_NEW(error, port->push_bytes, 2 * (size_t)server->keys, "tensors");
        port->pull_bytes = port->push_bytes + server->keys;
        if (maps(server, all, server->rank, rank)) {
            unsigned char *control = server->memory.control;
            port->ring = (void *)(control + c * twill_ring_bytes(server->keys));
            if (rank != server->rank)
                control = mapped_at(server, rank, offer_of(server, all, rank)[0]);
            port->answer =
                (void *)(control + answers_at(server, works, thread, server->roles.worker));
            continue;
        }
        TWILL_NEW(error, port->own_answer, server->keys, "answers");
        port->answer = port->own_answer;
    }
    count_chunks(server);
    return TWILL_OK;
}

/* Set where a shard finds the ring, answers and tensors of worker number `w`, from the offsets that
 * all ranks have offered (`all`). A worker that does not share memory with this rank gets only
 * answers, as a link carries the rest. */
static void map_worker(struct twill_server *server, uint64_t *all, struct twill_shard *shard,
                       uint32_t w)
{
    struct twill_shard_worker *worker = &shard->worker[w];
    uint32_t rank = server->roles.worker_rank[w], thread = shard->number % server->roles.threads;
    bool works = twill_server_works(server);
    const uint64_t *offer = offer_of(server, all, rank);
    unsigned char *own = server->memory.control;
    worker->rank = rank;
    worker->answer = (void *)(own + answers_at(server, works, thread, w));
    if (!maps(server, all, rank, server->rank))
        return;
    unsigned char *rings = rank == server->rank ? own : mapped_at(server, rank, offer[0]);
    worker->ring = (void *)(rings + shard->number * twill_ring_bytes(server->keys));
    for (uint32_t k = 0; k < server->keys; k++) {
        struct twill_shard_key *key = &worker->key[k];
        const uint64_t *place = offer + WORDS_BEFORE_KEYS + 2 * (size_t)k;
        key->sent = rank == server->rank ? server->key[k].sent : mapped_at(server, rank, place[0]);
        key->landed =
            rank == server->rank ? server->key[k].landed : mapped_at(server, rank, place[1]);
    }
}

/* Allocate the shards of this rank, without chunks, and what each keeps about the workers. Set
 * where it finds a worker's memory, from the offsets that all ranks have offered (`all`), and where
 * its thread is to run. Fails only if out of memory. */
static twill_status open_workers(struct twill_server *server, uint64_t *all)
{
    struct twill_error *error = &server->failure.error;
    const size_t workers = server->roles.workers;
    TWILL_NEW(error, server->shard, server->roles.threads, "shards");
    for (uint32_t t = 0; t < server->roles.threads; t++) {
        struct twill_shard *shard = &server->shard[t];
        shard->server = server;
        shard->number = server->roles.server * server->roles.threads + t;
        TWILL_NEW(error, shard->worker, workers, "workers");
        TWILL_NEW(error, shard->worker_key, workers * server->keys, "tensors of workers");
        atomic_store(&shard->present, server->roles.workers);
        for (uint32_t w = 0; w < workers; w++) {
            shard->worker[w].key = shard->worker_key + (size_t)w * server->keys;
            map_worker(server, all, shard, w);
        }
    }
    twill_shard_threads_place(server);
    return TWILL_OK;
}

/* Set mine[] to the offsets of this rank's control memory and each key's `sent` and `landed` in its
 * heap of twill_alloc(), or NOWHERE if outside. Set all[] to the mine[] of all ranks, in their
 * order, and then memory.offered. Returns TWILL_OK or the error. Collective. */
static twill_status exchange_offers(struct twill_server *server, uint64_t *mine, uint64_t *all)
{
    size_t words = WORDS_BEFORE_KEYS + 2 * (size_t)server->keys;
    mine[0] = offset_of(server, server->memory.control, twill_max(control_bytes(server), 1));
    for (uint32_t k = 0; k < server->keys; k++) {
        const struct twill_server_key *key = &server->key[k];
        uint64_t *place = mine + WORDS_BEFORE_KEYS + 2 * (size_t)k;
        place[0] = offset_of(server, key->sent, key->wire_bytes);
        place[1] = offset_of(server, key->landed, key->bytes);
    }
    twill_status status = twill_allgather(server->comm, mine, all, words, TWILL_U64);
    TWILL_TRY(NULL,
              twill_explain(&server->failure.error, status, twill_comm_message(server->comm)));
    server->memory.offered = true;
    return TWILL_OK;
}

twill_status twill_server_open_memory(struct twill_server *server)
{
    size_t words = WORDS_BEFORE_KEYS + 2 * (size_t)server->keys;
    twill_status placed = place_memory(server);
    uint64_t *all = calloc(((size_t)server->size + 1) * words, sizeof(*all));
    if (all == NULL)
        return TWILL_SERVER_FAIL(server, TWILL_ERR_MEMORY, "out of memory for %u ranks",
                                 server->size);
    twill_status status = exchange_offers(server, all + server->size * words, all);
    if (status == TWILL_OK)
        status = placed;
    if (status == TWILL_OK && twill_server_works(server))
        status = open_ports(server, all);
    if (status == TWILL_OK && twill_server_serves(server))
        status = open_workers(server, all);
    if (status == TWILL_OK)
        status = twill_links_open(server, maps, all);
    free(all);
    return status == TWILL_OK
               ? TWILL_OK
               : TWILL_SERVER_FAIL(server, status, "%s", server->failure.error.message);
}

uint32_t twill_server_memory_user(const struct twill_server *server)
{
    for (uint32_t r = 0; server->memory.offered && r < server->size; r++)
        if (r != server->rank && same_node(server, r) && !twill_extend_is_dead(server->comm, r))
            return r;
    return TWILL_NO_RANK;
}

/* Free the buffers of a key that the server has allocated, except the residual. */
static void free_key(twill_context *context, const struct twill_server_key *key)
{
    if (key->sent != key->gradient)
        (void)twill_free(context, key->sent);
    if (key->landed != key->parameters)
        (void)twill_free(context, key->landed);
    if (key->own_gradient)
        (void)twill_free(context, key->gradient);
    if (key->own_parameters)
        (void)twill_free(context, key->parameters);
}

void twill_server_close_memory(struct twill_server *server, bool keeps)
{
    for (uint32_t k = 0; k < server->keys; k++) {
        if (!keeps)
            free_key(server->process.context, &server->key[k]);
        free(server->key[k].residual);
    }
    for (uint32_t c = 0; server->work.port != NULL && c < server->roles.shards; c++) {
        free(server->work.port[c].chunks);
        free(server->work.port[c].push_bytes);
        free(server->work.port[c].own_answer);
    }
    free(server->work.port);
    if (!keeps)
        (void)twill_free(server->process.context, server->memory.control);
}

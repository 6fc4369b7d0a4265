/* SPDX-License-Identifier: Apache-2.0 */
/* A shard. Contains its memory, the orders that it takes, and its answers. */
#include "lib/server/shard/link.h"

#include "kernels/kernels.h"
#include "lib/base/times.h"
#include "lib/wait/wait.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_ALIGN 64u

bool twill_server_adds(const struct twill_server *server)
{
    twill_server_mode mode = server->options.mode;
    return mode == TWILL_SERVER_K_BATCH_SYNC || mode == TWILL_SERVER_K_BATCH_ASYNC ||
           mode == TWILL_SERVER_SOFTSYNC;
}

/* Return the bytes of a chunk's parameters, rounded up to CHUNK_ALIGN. */
static size_t value_bytes(const struct twill_server *server, const struct twill_chunk_place *place)
{
    return twill_round_up(place->count * twill_type_size(server->key[place->key].type),
                          CHUNK_ALIGN);
}

size_t twill_chunk_bytes(const struct twill_server *server, const struct twill_chunk_place *place)
{
    return value_bytes(server, place) +
           (server->rule.states + twill_server_adds(server)) *
               twill_round_up(place->count * sizeof(float), CHUNK_ALIGN);
}

/* Return the bytes of all memory of a chunk or replica. With TWILL_SERVER_RATE_DISTANCE, a chunk
 * also has a copy of the parameters for each worker, as that has pulled them last. */
static size_t memory_bytes(const struct twill_server *server, const struct twill_chunk *chunk)
{
    size_t bytes = twill_chunk_bytes(server, chunk->place);
    if (chunk->worker != NULL && server->options.rate == TWILL_SERVER_RATE_DISTANCE)
        bytes += server->roles.workers *
                 twill_round_up(chunk->place->count * sizeof(float), CHUNK_ALIGN);
    return bytes;
}

/* Place the parts of a chunk in `memory`. Returns the end of its memory. */
static unsigned char *divide_chunk(const struct twill_server *server, struct twill_chunk *chunk,
                                   unsigned char *memory)
{
    const struct twill_chunk_place *place = chunk->place;
    size_t floats = twill_round_up(place->count * sizeof(float), CHUNK_ALIGN);
    unsigned char *next = memory + value_bytes(server, place);
    chunk->value = memory;
    for (uint32_t s = 0; s < server->rule.states; s++, next += floats)
        chunk->state[s] = (void *)next;
    if (twill_server_adds(server)) {
        chunk->sum = (void *)next;
        next += floats;
    }
    if (chunk->worker != NULL && server->options.rate == TWILL_SERVER_RATE_DISTANCE)
        chunk->fetched = (void *)next;
    return memory + memory_bytes(server, chunk);
}

/* Allocate and place a shard's chunks and replicas, all zero, and its scratch memory. Fails only if
 * out of memory. */
static twill_status allocate_chunks(struct twill_shard *shard)
{
    struct twill_server *server = shard->server;
    void *memory = NULL;
    size_t bytes = 1, largest = 1;
    for (uint32_t i = 0; i < shard->chunks; i++) {
        shard->chunk[i].worker = shard->chunk_worker + (size_t)i * server->roles.workers;
        bytes += memory_bytes(server, &shard->chunk[i]);
        largest = twill_max(largest, shard->chunk[i].place->count);
    }
    for (uint32_t i = 0; i < shard->copies; i++)
        bytes += memory_bytes(server, &shard->copy[i]);
    twill_status status = twill_alloc(server->process.context, &memory, bytes);
    TWILL_TRY(NULL, twill_explain(&server->failure.error, status,
                                  twill_context_message(server->process.context)));
    twill_shard_place_memory(shard, memory, bytes);
    memset(memory, 0, bytes);
    shard->memory = memory;
    shard->memory_bytes = bytes;
    unsigned char *next = shard->memory;
    for (uint32_t i = 0; i < shard->chunks; i++)
        next = divide_chunk(server, &shard->chunk[i], next);
    for (uint32_t i = 0; i < shard->copies; i++)
        next = divide_chunk(server, &shard->copy[i], next);
    TWILL_NEW(&server->failure.error, shard->scratch, 4 * twill_round_up(largest, CHUNK_ALIGN),
              "sums");
    shard->decoded = shard->scratch + 2 * twill_round_up(largest, CHUNK_ALIGN);
    return TWILL_OK;
}

/* List and allocate the chunks and replicas of one shard. Fails only if out of memory. */
static twill_status open_shard(struct twill_shard *shard)
{
    struct twill_server *server = shard->server;
    for (uint32_t i = 0; i < server->cut.places; i++) {
        shard->chunks += server->cut.place[i].shard == shard->number;
        shard->copies += twill_replica_shard(server, server->cut.place[i].shard) == shard->number;
    }
    struct twill_error *error = &server->failure.error;
    const size_t workers = server->roles.workers;
    TWILL_NEW(error, shard->chunk, shard->chunks, "chunks");
    TWILL_NEW(error, shard->copy, shard->copies, "chunks");
    TWILL_NEW(error, shard->key_first, server->keys + 1, "tensors");
    TWILL_NEW(error, shard->chunk_worker, shard->chunks * workers, "workers of chunks");
    TWILL_NEW(error, shard->count.staleness, TWILL_STALENESS_MOST, "counters");
    TWILL_NEW(error, shard->data, workers, "workers");
    TWILL_NEW(error, shard->factor, workers, "workers");
    uint32_t next = 0, next_copy = 0;
    for (uint32_t i = 0; i < server->cut.places; i++) {
        const struct twill_chunk_place *place = &server->cut.place[i];
        if (twill_replica_shard(server, place->shard) == shard->number)
            shard->copy[next_copy++].place = place;
        if (place->shard != shard->number)
            continue;
        shard->chunk[next++].place = place;
        shard->key_first[place->key + 1] = next;
    }
    for (uint32_t k = 0; k < server->keys; k++)
        shard->key_first[k + 1] = (uint32_t)twill_max(shard->key_first[k + 1], shard->key_first[k]);
    return allocate_chunks(shard);
}

twill_status twill_shards_open(struct twill_server *server)
{
    for (uint32_t t = 0; t < server->roles.threads; t++)
        TWILL_TRY(NULL, open_shard(&server->shard[t]));
    return TWILL_OK;
}

void twill_shards_close(struct twill_server *server)
{
    for (uint32_t t = 0; t < server->roles.threads; t++) {
        struct twill_shard *shard = &server->shard[t];
        twill_shard_unplace_memory(shard, shard->memory, shard->memory_bytes);
        (void)twill_free(server->process.context, shard->memory);
        free(shard->chunk);
        free(shard->copy);
        free(shard->key_first);
        free(shard->chunk_worker);
        free(shard->worker);
        free(shard->worker_key);
        free(shard->count.staleness);
        free(shard->scratch);
        free(shard->data);
        free(shard->factor);
    }
    free(server->shard);
}

bool twill_shard_try_lock(struct twill_shard *shard)
{
    return !atomic_load_explicit(&shard->locked, memory_order_relaxed) &&
           !atomic_exchange_explicit(&shard->locked, true, memory_order_acquire);
}

/* Try to lock a shard. Returns whether this call has locked it. */
static bool has_locked(const void *awaited)
{
    return twill_shard_try_lock(*(struct twill_shard *const *)awaited);
}

/* Lock a shard, waiting until `end` (a twill_now()) at most. Returns whether it is locked. */
static bool lock_until(struct twill_shard *shard, uint64_t end)
{
    return twill_wait_for_thread(has_locked, &shard, end);
}

twill_status twill_shards_lock(struct twill_server *server, const char *call)
{
    if (*server->process.fork_guard == 0)
        return TWILL_ERR_FORKED;
    const uint64_t patience = server->process.timeout_ns;
    const uint64_t end = twill_now() + patience;
    uint32_t shards = twill_server_serves(server) ? server->roles.threads : 0, t = 0;
    while (t < shards && lock_until(&server->shard[t], end))
        t++;
    if (t == shards)
        return TWILL_OK;
    (void)TWILL_SERVER_REFUSE(server,
                              "%s: another thread has been advancing shard %u for %.1f s "
                              "(TWILL_TIMEOUT)",
                              call, t, (double)patience * 1e-9);
    while (t-- > 0)
        twill_shard_unlock(&server->shard[t]);
    return TWILL_ERR_TIMEOUT;
}

void twill_shards_unlock(struct twill_server *server)
{
    for (uint32_t t = 0; twill_server_serves(server) && t < server->roles.threads; t++)
        twill_shard_unlock(&server->shard[t]);
}

void twill_shard_pushed(struct twill_shard *shard, const struct twill_chunk *chunk, uint32_t w)
{
    struct twill_shard_worker *worker = &shard->worker[w];
    uint32_t k = chunk->place->key;
    struct twill_shard_key *key = &worker->key[k];
    if (--key->push_left > 0)
        return;
    atomic_store_explicit(&worker->answer[k].pushed, key->push, memory_order_release);
    if (worker->link != NULL)
        twill_link_answer(worker->link, k, key->push);
    else
        twill_extend_ring(shard->server->comm, worker->rank);
}

/* Note the version that a worker has got, and the parameters if distances need them. */
static void note_fetch(struct twill_chunk *chunk, uint32_t w)
{
    size_t count = chunk->place->count,
           stride = twill_round_up(count * sizeof(float), CHUNK_ALIGN) / sizeof(float);
    chunk->worker[w].base = chunk->version;
    if (chunk->fetched != NULL)
        memcpy(chunk->fetched + w * stride, chunk->value, count * sizeof(float));
}

void twill_shard_deliver(struct twill_shard *shard, struct twill_chunk *chunk, uint32_t w)
{
    struct twill_server *server = shard->server;
    struct twill_shard_worker *worker = &shard->worker[w];
    uint32_t k = chunk->place->key;
    struct twill_shard_key *key = &worker->key[k];
    size_t width = twill_type_size(server->key[k].type), bytes = chunk->place->count * width;
    note_fetch(chunk, w);
    if (worker->link != NULL) {
        twill_link_deliver(worker->link, chunk);
        return;
    }
    twill_kernels_copy(server->process.kernels, key->landed + chunk->place->first * width,
                       chunk->value, bytes, 0, NULL);
    if (worker->rank != server->rank)
        shard->usage.bytes_sent += bytes;
    key->version = twill_min(key->version, chunk->version);
    if (--key->pull_left > 0)
        return;
    atomic_store_explicit(&worker->answer[k].version, key->version, memory_order_relaxed);
    atomic_store_explicit(&worker->answer[k].pulled, key->pull, memory_order_release);
    twill_extend_ring(server->comm, worker->rank);
}

void twill_shard_begin_push(struct twill_shard *shard, uint32_t w, uint32_t k, uint64_t number)
{
    struct twill_shard_key *key = &shard->worker[w].key[k];
    key->push = number;
    key->push_left = shard->key_first[k + 1] - shard->key_first[k];
}

void twill_shard_begin_pull(struct twill_shard *shard, uint32_t w, uint32_t k, uint64_t number)
{
    struct twill_shard_key *key = &shard->worker[w].key[k];
    key->pull = number;
    key->pull_left = shard->key_first[k + 1] - shard->key_first[k];
    key->version = UINT64_MAX;
}

void twill_shard_take_pull(struct twill_shard *shard, uint32_t w, uint32_t k, uint64_t number)
{
    twill_shard_begin_pull(shard, w, k, number);
    for (uint32_t i = shard->key_first[k]; i < shard->key_first[k + 1]; i++)
        twill_chunk_pull(shard, &shard->chunk[i], w);
}

/* Take the push of a key, whose gradient is in the worker's memory, and its pull if it has one. */
static void take_push(struct twill_shard *shard, uint32_t w, struct twill_server_order order)
{
    struct twill_shard_key *key = &shard->worker[w].key[order.key];
    bool pulls = (order.kind & TWILL_ORDER_PULL) != 0;
    twill_shard_begin_push(shard, w, order.key, order.push);
    if (pulls)
        twill_shard_begin_pull(shard, w, order.key, order.pull);
    for (uint32_t i = shard->key_first[order.key]; i < shard->key_first[order.key + 1]; i++) {
        struct twill_chunk *chunk = &shard->chunk[i];
        if (shard->worker[w].rank != shard->server->rank)
            shard->usage.bytes_received += chunk->place->wire_bytes;
        twill_chunk_push(shard, chunk, w, key->sent + chunk->place->wire_at, order.push);
        if (pulls)
            twill_chunk_pull(shard, chunk, w);
    }
}

/* Take a worker's order, that is, its push, its pull or its leaving. */
static void take_order(struct twill_shard *shard, uint32_t w, struct twill_server_order order)
{
    if ((order.kind & TWILL_ORDER_LEAVE) != 0) {
        twill_shard_lose(shard, w, false);
        return;
    }
    if (order.key >= shard->server->keys) /* no such key, so the order is ignored */
        return;
    if ((order.kind & TWILL_ORDER_PUSH) != 0)
        take_push(shard, w, order);
    else if ((order.kind & TWILL_ORDER_PULL) != 0)
        twill_shard_take_pull(shard, w, order.key, order.pull);
}

unsigned twill_shard_poll(struct twill_shard *shard)
{
    struct twill_server *server = shard->server;
    size_t mask = twill_ring_slots(server->keys) - 1;
    unsigned taken = 0;
    for (uint32_t w = 0; w < server->roles.workers; w++) {
        struct twill_shard_worker *worker = &shard->worker[w];
        if (worker->link != NULL)
            taken += twill_link_poll(worker->link);
        if (worker->ring == NULL)
            continue;
        uint64_t head = atomic_load_explicit(&worker->ring->head, memory_order_acquire);
        for (; !worker->gone && worker->tail != head; worker->tail++, taken++)
            take_order(shard, w, worker->ring->order[worker->tail & mask]);
    }
    return taken + twill_replicas_poll(shard);
}

void twill_shard_lose(struct twill_shard *shard, uint32_t w, bool died)
{
    if (shard->worker[w].gone)
        return;
    shard->worker[w].gone = true;
    shard->count.deaths += died;
    atomic_fetch_sub(&shard->present, 1);
    for (uint32_t i = 0; i < shard->chunks; i++)
        shard->chunk[i].worker[w].pulls = false;
    for (uint32_t i = 0; i < shard->chunks; i++)
        twill_chunk_recheck(shard, &shard->chunk[i]);
}

void twill_shard_check(struct twill_shard *shard)
{
    struct twill_server *server = shard->server;
    uint64_t now = twill_now();
    if (now < shard->next_check)
        return;
    shard->next_check = now + TWILL_SERVER_CHECK_NS;
    for (uint32_t w = 0; w < server->roles.workers; w++) {
        struct twill_shard_worker *worker = &shard->worker[w];
        if (worker->gone || worker->rank == server->rank)
            continue;
        bool dead = twill_extend_is_dead(server->comm, worker->rank);
        if (dead && worker->suspect) {
            (void)twill_shard_poll(shard); /* orders from before its death count */
            twill_shard_lose(shard, w, true);
        }
        worker->suspect = dead;
    }
}

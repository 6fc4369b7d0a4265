/* SPDX-License-Identifier: Apache-2.0 */
/* A core: its memory, the orders that it takes, and what it answers. */
#include "lib/server/core/link.h"

#include "kernels/kernels.h"
#include "lib/base/times.h"
#include "lib/wait/wait.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_ALIGN 64u

/* --- memory ----------------------------------------------------------------------------------- */

bool twill_server_adds(const struct twill_server *server)
{
    twill_server_mode mode = server->options.mode;
    return mode == TWILL_SERVER_K_BATCH_SYNC || mode == TWILL_SERVER_K_BATCH_ASYNC ||
           mode == TWILL_SERVER_SOFTSYNC;
}

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

/* Return the bytes of a chunk's memory. */
static size_t memory_bytes(const struct twill_server *server, const struct twill_chunk *chunk)
{
    size_t bytes = twill_chunk_bytes(server, chunk->place);
    if (chunk->worker != NULL && server->options.rate == TWILL_SERVER_RATE_DISTANCE)
        bytes += server->roles.workers *
                 twill_round_up(chunk->place->count * sizeof(float), CHUNK_ALIGN);
    return bytes;
}

/* Divide a chunk's memory. Returns where it ends. */
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

static twill_status allocate_chunks(struct twill_core *core)
{
    struct twill_server *server = core->server;
    void *memory = NULL;
    size_t bytes = 1, largest = 1;
    for (uint32_t i = 0; i < core->chunks; i++) {
        core->chunk[i].worker = core->chunk_worker + (size_t)i * server->roles.workers;
        bytes += memory_bytes(server, &core->chunk[i]);
        largest = twill_max(largest, core->chunk[i].place->count);
    }
    for (uint32_t i = 0; i < core->copies; i++)
        bytes += memory_bytes(server, &core->copy[i]);
    if (twill_alloc(server->context, &memory, bytes) != TWILL_OK)
        return TWILL_FAIL(&server->failure.error, TWILL_ERR_MEMORY, "%s",
                          twill_context_message(server->context));
    twill_core_place_memory(core, memory, bytes);
    memset(memory, 0, bytes);
    core->memory = memory;
    core->memory_bytes = bytes;
    unsigned char *next = core->memory;
    for (uint32_t i = 0; i < core->chunks; i++)
        next = divide_chunk(server, &core->chunk[i], next);
    for (uint32_t i = 0; i < core->copies; i++)
        next = divide_chunk(server, &core->copy[i], next);
    core->scratch = calloc(2 * twill_round_up(largest, CHUNK_ALIGN), sizeof(double));
    if (core->scratch == NULL)
        return TWILL_FAIL(&server->failure.error, TWILL_ERR_MEMORY, "out of memory for sums");
    core->decoded = core->scratch + 2 * twill_round_up(largest, CHUNK_ALIGN);
    return TWILL_OK;
}

static twill_status open_core(struct twill_core *core)
{
    struct twill_server *server = core->server;
    for (uint32_t i = 0; i < server->cut.places; i++) {
        core->chunks += server->cut.place[i].core == core->number;
        core->copies += twill_replica_core(server, server->cut.place[i].core) == core->number;
    }
    core->chunk = calloc(core->chunks + 1, sizeof(*core->chunk));
    core->copy = calloc(core->copies + 1, sizeof(*core->copy));
    core->key_first = calloc(server->keys + 1, sizeof(*core->key_first));
    core->chunk_worker =
        calloc((size_t)core->chunks * server->roles.workers + 1, sizeof(*core->chunk_worker));
    core->count.staleness = calloc(TWILL_STALENESS_MOST, sizeof(*core->count.staleness));
    core->data = calloc(server->roles.workers, sizeof(*core->data));
    core->factor = calloc(server->roles.workers, sizeof(*core->factor));
    if (core->chunk == NULL || core->copy == NULL || core->key_first == NULL ||
        core->chunk_worker == NULL || core->count.staleness == NULL || core->data == NULL ||
        core->factor == NULL)
        return TWILL_FAIL(&server->failure.error, TWILL_ERR_MEMORY, "out of memory for %u chunks",
                          core->chunks);
    uint32_t next = 0, next_copy = 0;
    for (uint32_t i = 0; i < server->cut.places; i++) {
        const struct twill_chunk_place *place = &server->cut.place[i];
        if (twill_replica_core(server, place->core) == core->number)
            core->copy[next_copy++].place = place;
        if (place->core != core->number)
            continue;
        core->chunk[next++].place = place;
        core->key_first[place->key + 1] = next;
    }
    for (uint32_t k = 0; k < server->keys; k++)
        core->key_first[k + 1] = (uint32_t)twill_max(core->key_first[k + 1], core->key_first[k]);
    return allocate_chunks(core);
}

twill_status twill_cores_open(struct twill_server *server)
{
    for (uint32_t t = 0; t < server->roles.threads; t++)
        TWILL_TRY(NULL, open_core(&server->core[t]));
    return TWILL_OK;
}

void twill_cores_close(struct twill_server *server)
{
    for (uint32_t t = 0; t < server->roles.threads; t++) {
        struct twill_core *core = &server->core[t];
        twill_core_unplace_memory(core, core->memory, core->memory_bytes);
        (void)twill_free(server->context, core->memory);
        free(core->chunk);
        free(core->copy);
        free(core->key_first);
        free(core->chunk_worker);
        free(core->worker);
        free(core->worker_key);
        free(core->count.staleness);
        free(core->scratch);
        free(core->data);
        free(core->factor);
    }
    free(server->core);
}

bool twill_core_try_lock(struct twill_core *core)
{
    return !atomic_load_explicit(&core->locked, memory_order_relaxed) &&
           !atomic_exchange_explicit(&core->locked, true, memory_order_acquire);
}

static bool has_locked(const void *awaited)
{
    return twill_core_try_lock(*(struct twill_core *const *)awaited);
}

static bool lock_until(struct twill_core *core, uint64_t end)
{
    return twill_wait_for_thread(has_locked, &core, end);
}

twill_status twill_cores_lock(struct twill_server *server, const char *call)
{
    if (twill_extend_is_forked(server->context))
        return TWILL_ERR_FORKED;
    const uint64_t patience = server->process.timeout_ns;
    const uint64_t end = twill_now() + patience;
    uint32_t cores = twill_server_serves(server) ? server->roles.threads : 0, t = 0;
    while (t < cores && lock_until(&server->core[t], end))
        t++;
    if (t == cores)
        return TWILL_OK;
    (void)TWILL_SERVER_REFUSE(server,
                              "%s: another thread has been advancing core %u for %.1f s "
                              "(TWILL_TIMEOUT)",
                              call, t, (double)patience * 1e-9);
    while (t-- > 0)
        twill_core_unlock(&server->core[t]);
    return TWILL_ERR_TIMEOUT;
}

void twill_cores_unlock(struct twill_server *server)
{
    for (uint32_t t = 0; twill_server_serves(server) && t < server->roles.threads; t++)
        twill_core_unlock(&server->core[t]);
}

/* --- answers -----------------------------------------------------------------------------------
 */

void twill_core_pushed(struct twill_core *core, const struct twill_chunk *chunk, uint32_t w)
{
    struct twill_core_worker *worker = &core->worker[w];
    uint32_t k = chunk->place->key;
    struct twill_core_key *key = &worker->key[k];
    if (--key->push_left > 0)
        return;
    atomic_store_explicit(&worker->answer[k].pushed, key->push, memory_order_release);
    if (worker->link != NULL)
        twill_link_answer(worker->link, k, key->push);
    else
        twill_extend_ring(core->server->comm, worker->rank);
}

/* Remember what a worker has got, and its version. */
static void note_fetch(struct twill_chunk *chunk, uint32_t w)
{
    size_t count = chunk->place->count,
           stride = twill_round_up(count * sizeof(float), CHUNK_ALIGN) / sizeof(float);
    chunk->worker[w].base = chunk->version;
    if (chunk->fetched != NULL)
        memcpy(chunk->fetched + w * stride, chunk->value, count * sizeof(float));
}

void twill_core_deliver(struct twill_core *core, struct twill_chunk *chunk, uint32_t w)
{
    struct twill_server *server = core->server;
    struct twill_core_worker *worker = &core->worker[w];
    uint32_t k = chunk->place->key;
    struct twill_core_key *key = &worker->key[k];
    size_t width = twill_type_size(server->key[k].type), bytes = chunk->place->count * width;
    note_fetch(chunk, w);
    if (worker->link != NULL) {
        twill_link_deliver(worker->link, chunk);
        return;
    }
    twill_kernels_copy(server->process.kernels, key->landed + chunk->place->first * width,
                       chunk->value, bytes, 0, 1);
    if (worker->rank != server->rank)
        core->usage.bytes_sent += bytes;
    key->version = twill_min(key->version, chunk->version);
    if (--key->pull_left > 0)
        return;
    atomic_store_explicit(&worker->answer[k].version, key->version, memory_order_relaxed);
    atomic_store_explicit(&worker->answer[k].pulled, key->pull, memory_order_release);
    twill_extend_ring(server->comm, worker->rank);
}

/* --- orders ------------------------------------------------------------------------------------
 */

void twill_core_begin_push(struct twill_core *core, uint32_t w, uint32_t k, uint64_t number)
{
    struct twill_core_key *key = &core->worker[w].key[k];
    key->push = number;
    key->push_left = core->key_first[k + 1] - core->key_first[k];
}

void twill_core_begin_pull(struct twill_core *core, uint32_t w, uint32_t k, uint64_t number)
{
    struct twill_core_key *key = &core->worker[w].key[k];
    key->pull = number;
    key->pull_left = core->key_first[k + 1] - core->key_first[k];
    key->version = UINT64_MAX;
}

void twill_core_take_pull(struct twill_core *core, uint32_t w, uint32_t k, uint64_t number)
{
    twill_core_begin_pull(core, w, k, number);
    for (uint32_t i = core->key_first[k]; i < core->key_first[k + 1]; i++)
        twill_chunk_pull(core, &core->chunk[i], w);
}

/* Take the push of a key, whose gradient is in the worker's memory, and the pull if it is ordered,
 * too. */
static void take_push(struct twill_core *core, uint32_t w, struct twill_server_order order)
{
    struct twill_core_key *key = &core->worker[w].key[order.key];
    bool pulls = (order.kind & TWILL_ORDER_PULL) != 0;
    twill_core_begin_push(core, w, order.key, order.push);
    if (pulls)
        twill_core_begin_pull(core, w, order.key, order.pull);
    for (uint32_t i = core->key_first[order.key]; i < core->key_first[order.key + 1]; i++) {
        struct twill_chunk *chunk = &core->chunk[i];
        if (core->worker[w].rank != core->server->rank)
            core->usage.bytes_received += chunk->place->wire_bytes;
        twill_chunk_push(core, chunk, w, key->sent + chunk->place->wire_at, order.push);
        if (pulls)
            twill_chunk_pull(core, chunk, w);
    }
}

static void take_order(struct twill_core *core, uint32_t w, struct twill_server_order order)
{
    if ((order.kind & TWILL_ORDER_LEAVE) != 0) {
        twill_core_lose(core, w, false);
        return;
    }
    if (order.key >= core->server->keys) /* no key: the order is ignored */
        return;
    if ((order.kind & TWILL_ORDER_PUSH) != 0)
        take_push(core, w, order);
    else if ((order.kind & TWILL_ORDER_PULL) != 0)
        twill_core_take_pull(core, w, order.key, order.pull);
}

unsigned twill_core_poll(struct twill_core *core)
{
    struct twill_server *server = core->server;
    size_t mask = twill_ring_slots(server->keys) - 1;
    unsigned taken = 0;
    for (uint32_t w = 0; w < server->roles.workers; w++) {
        struct twill_core_worker *worker = &core->worker[w];
        if (worker->link != NULL)
            taken += twill_link_poll(worker->link);
        if (worker->ring == NULL)
            continue;
        uint64_t head = atomic_load_explicit(&worker->ring->head, memory_order_acquire);
        for (; !worker->gone && worker->tail != head; worker->tail++, taken++)
            take_order(core, w, worker->ring->order[worker->tail & mask]);
    }
    return taken + twill_replicas_poll(core);
}

/* --- workers that go ----------------------------------------------------------------------------
 */

void twill_core_lose(struct twill_core *core, uint32_t w, bool died)
{
    if (core->worker[w].gone)
        return;
    core->worker[w].gone = true;
    core->count.deaths += died;
    atomic_fetch_sub(&core->present, 1);
    for (uint32_t i = 0; i < core->chunks; i++)
        core->chunk[i].worker[w].pulls = false;
    for (uint32_t i = 0; i < core->chunks; i++)
        twill_chunk_recheck(core, &core->chunk[i]);
}

void twill_core_check(struct twill_core *core)
{
    struct twill_server *server = core->server;
    uint64_t now = twill_now();
    if (now < core->next_check)
        return;
    core->next_check = now + TWILL_SERVER_CHECK_NS;
    for (uint32_t w = 0; w < server->roles.workers; w++) {
        struct twill_core_worker *worker = &core->worker[w];
        if (worker->gone || worker->rank == server->rank)
            continue;
        bool dead = twill_extend_is_dead(server->comm, worker->rank);
        if (dead && worker->suspect) {
            (void)twill_core_poll(core); /* what it has ordered before it died counts */
            twill_core_lose(core, w, true);
        }
        worker->suspect = dead;
    }
}

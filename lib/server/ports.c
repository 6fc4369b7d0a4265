/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's end. Encodes and lands tensors, posts orders to shards, advances and waits. */
#include "lib/server/server.h"

#include "lib/base/times.h"
#include "lib/wait/wait.h"

#include <stdio.h>
#include <string.h>

/* Encode a chunk's gradient to key->sent, from place->wire_at on, and update its residual, if there
 * is one. A sparse list follows its length. */
static void encode_chunk(const struct twill_server *server, const struct twill_server_key *key,
                         const struct twill_chunk_place *place)
{
    const float *gradient = (const float *)key->gradient + place->first;
    float *residual = key->residual != NULL ? key->residual + place->first : NULL;
    unsigned char *wire = key->sent + place->wire_at;
    if (server->coder.kind != TWILL_CODING_SPARSE) {
        twill_encode(&server->coder, wire, gradient, residual, place->count);
        return;
    }
    size_t entries = twill_coder_units(&server->coder, place->count);
    unsigned char *list = wire + TWILL_LIST_HEAD;
    const struct twill_sparse chosen = {(void *)list, (void *)(list + entries * sizeof(uint32_t))};
    const uint32_t head[2] = {(uint32_t)twill_encode_list(&server->coder, chosen, entries, gradient,
                                                          residual, place->count),
                              0};
    memcpy(wire, head, TWILL_LIST_HEAD);
}

void twill_server_encode(struct twill_server *server, struct twill_server_key *key)
{
    for (uint32_t c = 0; key->coded && c < key->chunks; c++)
        encode_chunk(server, key, &server->cut.place[key->first_chunk + c]);
    if (key->coded || key->sent == key->gradient)
        return;
    memcpy(key->sent, key->gradient, key->bytes);
    atomic_fetch_add_explicit(&server->work.copied, key->bytes, memory_order_relaxed);
}

void twill_server_land(struct twill_server *server, struct twill_server_key *key)
{
    if (key->landed == key->parameters)
        return;
    memcpy(key->parameters, key->landed, key->bytes);
    atomic_fetch_add_explicit(&server->work.copied, key->bytes, memory_order_relaxed);
}

twill_status twill_server_post(struct twill_server *server, int key, unsigned kind)
{
    struct twill_server_order order = {.key = (uint32_t)key, .kind = kind};
    if (kind != TWILL_ORDER_LEAVE) {
        order.push = atomic_load_explicit(&server->key[key].pushes, memory_order_relaxed);
        order.pull = atomic_load_explicit(&server->key[key].pulls, memory_order_relaxed);
    }
    pthread_mutex_lock(&server->work.posting);
    for (uint32_t c = 0; c < server->roles.shards; c++) {
        struct twill_port *port = &server->work.port[c];
        if (kind != TWILL_ORDER_LEAVE && port->chunks[key] == 0)
            continue;
        if (port->link != NULL) {
            twill_link_order(port->link, order);
            (void)twill_link_poll(port->link);
            continue;
        }
        if (port->rank != server->rank && (order.kind & TWILL_ORDER_PUSH) != 0)
            server->work.usage.bytes_sent += port->push_bytes[key];
        if (port->rank != server->rank && (order.kind & TWILL_ORDER_PULL) != 0)
            server->work.usage.bytes_received += port->pull_bytes[key];
        twill_ring_put(port->ring, server->keys, order);
        twill_extend_ring(server->comm, port->rank);
    }
    pthread_mutex_unlock(&server->work.posting);
    return TWILL_OK;
}

/* Advance this worker's links, unless another thread does so. Returns 0 if nothing moved. */
static unsigned poll_links(struct twill_server *server)
{
    unsigned moved = 0;
    if (server->links == 0 || !twill_server_works(server) ||
        pthread_mutex_trylock(&server->work.posting) != 0)
        return 0;
    for (uint32_t i = 0; i < server->links; i++)
        if (server->link[i].port != NULL)
            moved += twill_link_poll(&server->link[i]);
    pthread_mutex_unlock(&server->work.posting);
    return moved;
}

bool twill_server_progress(struct twill_server *server)
{
    unsigned moved = poll_links(server);
    for (uint32_t t = 0; twill_server_serves(server) && t < server->roles.threads; t++) {
        struct twill_shard *shard = &server->shard[t];
        if (shard->thread.running || !twill_shard_try_lock(shard))
            continue;
        moved += twill_shard_poll(shard);
        twill_shard_check(shard);
        twill_shard_unlock(shard);
    }
    if (moved > 0)
        atomic_fetch_add_explicit(&server->moved, 1, memory_order_relaxed);
    return moved > 0;
}

/* Break the server because server `number` has died. Returns the status of the first failure. */
static twill_status fail_server(struct twill_server *server, uint32_t number)
{
    char keys[300], text[TWILL_EXTEND_TEXT];
    twill_server_name_keys(server, number, keys, sizeof(keys));
    return TWILL_SERVER_FAIL(
        server, TWILL_ERR_PEER, "rank %u: server %s, which has chunks of %s; %s", server->rank,
        twill_extend_describe(server->comm, TWILL_EXTEND_DEAD_RANK,
                              server->roles.server_rank[number], text, sizeof(text)),
        keys,
        twill_server_replicates(server)
            ? "another server has replicas of them: twill_server_rebuild()"
            : "there are no replicas of them");
}

/* Return whether this rank needs server `number` for chunks of `key` or their replicas. If `key` is
 * -1, or if this rank only serves, it needs every server. It never needs itself. */
static bool needs_server(const struct twill_server *server, uint32_t number, int key)
{
    bool needed = key < 0 || !twill_server_works(server);
    for (uint32_t c = 0; !needed && c < server->roles.shards; c++) {
        uint32_t replica = twill_replica_shard(server, c);
        bool has = c / server->roles.threads == number ||
                   (replica != TWILL_SERVER_NO_SHARD && replica / server->roles.threads == number);
        needed = has && server->work.port[c].chunks[key] > 0;
    }
    return needed && server->roles.server_rank[number] != server->rank;
}

/* Return the first shard to which this worker has lost its link before it has left, or
 * server->roles.shards if there is none. */
static uint32_t find_lost(struct twill_server *server)
{
    uint32_t c = 0;
    pthread_mutex_lock(&server->work.posting);
    for (; c < server->roles.shards; c++) {
        const struct twill_server_link *link = server->work.port[c].link;
        if (link != NULL && link->lost && !link->left && !server->work.left)
            break;
    }
    pthread_mutex_unlock(&server->work.posting);
    return c;
}

/* Return whether a worker of another rank is alive and has not left, so that a shard of this rank
 * still serves it. Returns false without a look if another thread has locked the shard. */
static bool awaits_worker(const struct twill_server *server, struct twill_shard *shard)
{
    bool awaits = false;
    if (!twill_shard_try_lock(shard))
        return false;
    for (uint32_t w = 0; w < server->roles.workers && !awaits; w++) {
        uint32_t rank = shard->worker[w].rank;
        awaits = !shard->worker[w].gone && rank != server->rank &&
                 !twill_extend_is_dead(server->comm, rank);
    }
    twill_shard_unlock(shard);
    return awaits;
}

/* Return whether this rank serves, no longer pushes or pulls, and has no worker left to serve, by
 * awaits_worker(). The death of another server then does not matter. */
static bool has_served(const struct twill_server *server)
{
    bool served = twill_server_serves(server) && (!twill_server_works(server) || server->work.left);
    for (uint32_t t = 0; served && t < server->roles.threads; t++)
        served = !awaits_worker(server, &server->shard[t]);
    return served;
}

/* Break the server and return its error if a rank lacks memory or descriptors or this worker has
 * lost any link. Do so also if a server needed for `key` (-1 for any) is found dead again, as
 * answers may arrive before, unless has_served(). Otherwise return TWILL_OK. */
static twill_status check_servers(struct twill_server *server, int key)
{
    struct twill_error failure;
    if (twill_extend_failure(server->comm, true, &failure) && twill_server_is_loss(failure.status))
        return TWILL_SERVER_FAIL(server, failure.status, "%s", failure.message);
    uint32_t lost = twill_server_works(server) ? find_lost(server) : server->roles.shards;
    if (lost < server->roles.shards)
        return fail_server(server, lost / server->roles.threads);
    for (uint32_t s = 0; s < server->roles.servers; s++) {
        if (!needs_server(server, s, key))
            continue;
        bool dead = twill_extend_is_dead(server->comm, server->roles.server_rank[s]);
        if (dead && atomic_exchange(&server->roles.suspect[s], true) && !has_served(server))
            return fail_server(server, s);
    }
    return TWILL_OK;
}

twill_status twill_server_check(struct twill_server *server, int key)
{
    uint64_t now = twill_now();
    if (now < atomic_load_explicit(&server->work.next_check, memory_order_relaxed))
        return TWILL_OK;
    atomic_store_explicit(&server->work.next_check, now + TWILL_SERVER_CHECK_NS,
                          memory_order_relaxed);
    return check_servers(server, key);
}

/* Return whether a shard has yet to answer for a key, or for any key if it is -1. */
static bool owes_answer(const struct twill_server *server, uint32_t shard, int key)
{
    const struct twill_port *port = &server->work.port[shard];
    for (uint32_t k = 0; k < server->keys; k++)
        if ((key < 0 || (uint32_t)key == k) && port->chunks[k] > 0 &&
            (atomic_load(&port->answer[k].pushed) < atomic_load(&server->key[k].pushes) ||
             atomic_load(&port->answer[k].pulled) < atomic_load(&server->key[k].pulls)))
            return true;
    return false;
}

/* Write to text[bytes] which servers' answers for a key (-1 for all) are missing, or "" if none. */
static void list_silent_servers(struct twill_server *server, int key, char *text, size_t bytes)
{
    char name[TWILL_EXTEND_TEXT];
    size_t used = 0;
    unsigned named = 0;
    text[0] = '\0';
    for (uint32_t s = 0; s < server->roles.servers && used + 80 < bytes; s++) {
        bool owes = false;
        for (uint32_t t = 0; t < server->roles.threads; t++)
            owes = owes || owes_answer(server, s * server->roles.threads + t, key);
        if (owes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", named++ > 0 ? ", " : ": ",
                                     twill_extend_describe(server->comm, TWILL_EXTEND_RANK,
                                                           server->roles.server_rank[s], name,
                                                           sizeof(name)));
    }
    if (named > 0)
        snprintf(text + used, bytes - used, " %s not answered, or %s for a worker",
                 named > 1 ? "have" : "has", named > 1 ? "wait" : "waits");
}

/* Break the server with TWILL_ERR_TIMEOUT and return the status with which it broke first. The
 * message says that `what` is not complete. It also names the tensor of `key`, unless that is -1,
 * and the servers that have not answered. */
static twill_status time_out_wait(struct twill_server *server, int key, const char *what)
{
    char tensor[100] = "", silent[300];
    struct twill_extend_comm comm = twill_extend_comm(server->comm);
    list_silent_servers(server, key, silent, sizeof(silent));
    if (key >= 0)
        snprintf(tensor, sizeof(tensor), " of tensor '%.80s'", server->key[key].name);
    return TWILL_SERVER_FAIL(server, TWILL_ERR_TIMEOUT,
                             "rank %u: %s%s not complete within %.1f s (%s)%s", server->rank, what,
                             tensor, (double)comm.timeout_ns * 1e-9, comm.timeout_name, silent);
}

/* One twill_server_await(), on its stack, with the call's arguments. `since` is when server->moved
 * last became `moved`, and `next_check` is when servers are checked next, by twill_now(). */
struct port_wait {
    struct twill_server *server;
    bool (*done)(struct twill_server *server, int key);
    int key;
    const char *what;
    uint64_t since, next_check;
    uint32_t moved;
};

/* Advance a wait's server. Returns whether something moved. */
static int advance_ports(void *of)
{
    return twill_server_progress(((const struct port_wait *)of)->server);
}

/* Return whether the wait is over, because of its condition or a failure. */
static bool is_over(const void *awaited)
{
    const struct port_wait *wait = awaited;
    return atomic_load_explicit(&wait->server->failure.broken, memory_order_acquire) ||
           wait->done(wait->server, wait->key);
}

/* Check a wait that is not over. `of` is its struct port_wait, and `state` is not read. Break the
 * server and return its error by check_servers(), which looks only at times, or if nothing has
 * moved for the timeout. Otherwise return TWILL_OK. */
static twill_status check_wait(void *of, struct twill_waiting *state)
{
    struct port_wait *wait = of;
    struct twill_server *server = wait->server;
    (void)state;
    uint64_t now = twill_now();
    uint32_t moved = atomic_load_explicit(&server->moved, memory_order_relaxed);
    if (wait->since == 0 || moved != wait->moved) {
        wait->since = now;
        wait->moved = moved;
    }
    if (now >= wait->next_check) {
        wait->next_check = now + TWILL_SERVER_CHECK_NS;
        TWILL_TRY(NULL, check_servers(server, wait->key));
    }
    if (now - wait->since > twill_extend_comm(server->comm).timeout_ns)
        return time_out_wait(server, wait->key, wait->what);
    return TWILL_OK;
}

twill_status twill_server_await(struct twill_server *server,
                                bool (*done)(struct twill_server *server, int key), int key,
                                const char *what)
{
    struct port_wait wait = {.server = server, .done = done, .key = key, .what = what};
    twill_status status = twill_extend_await(server->comm,
                                             (struct twill_waitable){.advance = advance_ports,
                                                                     .done = is_over,
                                                                     .blocked_on = check_wait,
                                                                     .of = &wait,
                                                                     .awaited = &wait},
                                             UINT64_MAX);
    twill_server_tell_loss(server);
    return atomic_load(&server->failure.broken) ? server->failure.error.status : status;
}

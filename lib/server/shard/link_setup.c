/* SPDX-License-Identifier: Apache-2.0 */
/* Links from creation to end. All ranks go through the pairs in the same order, so that no two wait
 * for each other in a circle. */
#include "lib/server/shard/link.h"

#include "lib/base/times.h"
#include "lib/twill_recover.h"
#include "lib/wait/wait.h"

#include <stdlib.h>

/* List the chunks of a shard, by key. */
static twill_status list_chunks(struct twill_server_link *link, uint32_t shard)
{
    struct twill_server *server = link->server;
    struct twill_error *error = &server->failure.error;
    TWILL_NEW(error, link->place, server->cut.places, "chunks");
    TWILL_NEW(error, link->key_first, server->keys + 1, "tensors");
    TWILL_NEW(error, link->key, server->keys, "tensors");
    TWILL_NEW(error, link->inbox_at, server->cut.places, "chunks");
    TWILL_NEW(error, link->outbox_at, server->cut.places, "chunks");
    uint32_t n = 0;
    for (uint32_t k = 0; k < server->keys; k++) {
        const struct twill_server_key *key = &server->key[k];
        for (uint32_t c = key->first_chunk; c < key->first_chunk + key->chunks; c++)
            if (server->cut.place[c].shard == shard)
                link->place[n++] = c;
        link->key_first[k + 1] = n;
    }
    return TWILL_OK;
}

/* Allocate where gradients arrive, and, where an update may come while parameters are sent, where
 * they are sent from: only in step do all workers have them before the next update. */
static twill_status allocate_boxes(struct twill_server_link *link)
{
    struct twill_server *server = link->server;
    size_t in = 0, out = 0;
    void *inbox = NULL, *outbox = NULL;
    for (uint32_t i = 0; i < link->key_first[server->keys]; i++) {
        const struct twill_chunk_place *place = &server->cut.place[link->place[i]];
        link->inbox_at[i] = in;
        link->outbox_at[i] = out;
        in += twill_round_up(place->wire_bytes, TWILL_CACHE_LINE);
        out += twill_round_up(place->count * twill_type_size(server->key[place->key].type),
                              TWILL_CACHE_LINE);
    }
    twill_status status = twill_alloc(server->process.context, &inbox, in + 1);
    if (status == TWILL_OK && server->options.mode != TWILL_SERVER_SYNC)
        status = twill_alloc(server->process.context, &outbox, out + 1);
    link->inbox = inbox;
    link->outbox = outbox;
    link->inbox_bytes = in;
    link->outbox_bytes = out;
    twill_shard_place_memory(link->shard, inbox, in);
    twill_shard_place_memory(link->shard, outbox, out);
    return twill_explain(&server->failure.error, status,
                         twill_context_message(server->process.context));
}

static twill_status open_link(struct twill_server *server, uint32_t w, uint32_t shard)
{
    struct twill_server_link *link = &server->link[server->links++];
    uint32_t worker = server->roles.worker_rank[w], rank = twill_shard_rank(server, shard);
    const int ranks[2] = {(int)worker, (int)rank};
    bool serves = server->rank == rank;
    *link = (struct twill_server_link){.server = server, .worker = w, .peer = serves ? 0 : 1};
    link->out.credits = serves ? 0 : (uint32_t)server->options.credits;
    twill_status status = twill_comm_create_group(&link->comm, server->comm, 2, ranks);
    TWILL_TRY(NULL,
              twill_explain(&server->failure.error, status, twill_comm_message(server->comm)));
    TWILL_TRY(NULL, twill_comm_set_timeout(link->comm, TWILL_SERVER_LINK_SECONDS));
    TWILL_TRY(NULL, list_chunks(link, shard));
    if (serves) {
        link->shard = &server->shard[shard % server->roles.threads];
        link->shard->worker[w].link = link;
        TWILL_TRY(NULL, allocate_boxes(link));
    } else {
        link->port = &server->work.port[shard];
        link->port->link = link;
    }
    status = twill_recv_start(link->comm, &link->in.head, sizeof(link->in.head), TWILL_U8,
                              link->peer, &link->in.head_request);
    return twill_explain(&server->failure.error, status, twill_comm_message(link->comm));
}

/* Does this rank have an end of the link between a worker and a shard? */
static bool has_end(const struct twill_server *server, uint32_t w, uint32_t shard)
{
    return server->roles.worker_rank[w] == server->rank ||
           twill_shard_rank(server, shard) == server->rank;
}

twill_status twill_links_open(struct twill_server *server,
                              bool (*maps)(const struct twill_server *server, uint64_t *all,
                                           uint32_t worker, uint32_t rank),
                              uint64_t *all)
{
    uint32_t most = 0;
    for (uint32_t w = 0; w < server->roles.workers; w++)
        for (uint32_t c = 0; c < server->roles.shards; c++)
            most += has_end(server, w, c);
    TWILL_NEW(&server->failure.error, server->link, most, "links");
    for (uint32_t w = 0; w < server->roles.workers; w++)
        for (uint32_t c = 0; c < server->roles.shards; c++)
            if (has_end(server, w, c) &&
                !maps(server, all, server->roles.worker_rank[w], twill_shard_rank(server, c)))
                TWILL_TRY(NULL, open_link(server, w, c));
    return TWILL_OK;
}

static int advance_link(void *link)
{
    return twill_link_poll(link);
}

static bool is_drained(const void *awaited)
{
    const struct twill_server_link *link = awaited;
    return link->lost || (twill_link_is_idle(link) && link->left);
}

/* Send what is left; the peer receives it until it has the last head. */
static void drain(struct twill_server_link *link, uint64_t until)
{
    const struct twill_waitable waitable = {
        .advance = advance_link, .done = is_drained, .of = link, .awaited = link};
    (void)twill_extend_await(link->server->comm, waitable, until);
}

void twill_link_end_comm(struct twill_comm *comm, bool together)
{
    if (comm == NULL)
        return;
    if (!together)
        (void)twill_comm_revoke(comm);
    (void)twill_comm_set_timeout(comm, 0);
    if (together)
        twill_comm_destroy(comm);
    else
        twill_comm_leave(comm);
}

void twill_links_close(struct twill_server *server, bool together)
{
    uint64_t until = twill_now() + twill_extend_comm(server->comm).timeout_ns; /* of all links */
    for (uint32_t i = 0; i < server->links; i++) {
        struct twill_server_link *link = &server->link[i];
        if (together && link->comm != NULL)
            drain(link, until);
        twill_link_end_comm(link->comm, together && !link->lost && link->left);
        if (link->shard != NULL) {
            twill_shard_unplace_memory(link->shard, link->inbox, link->inbox_bytes);
            twill_shard_unplace_memory(link->shard, link->outbox, link->outbox_bytes);
        }
        (void)twill_free(server->process.context, link->inbox);
        (void)twill_free(server->process.context, link->outbox);
        free(link->place);
        free(link->key_first);
        free(link->key);
        free(link->inbox_at);
        free(link->outbox_at);
        free(link->out.batch);
    }
    free(server->link);
}

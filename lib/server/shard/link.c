/* SPDX-License-Identifier: Apache-2.0 */
/* Sending and receiving on a link. */
#include "lib/server/shard/link.h"
#include "kernels/kernels.h"
#include "lib/base/times.h"
#include "lib/twill_recover.h"
#include "lib/wait/wait.h"

#include <stdlib.h>
#include <string.h>

#define BATCHES_BESIDES 64u /* heads that may be queued in addition to 2 queue_bound() */
#define RUN_MOST        8u  /* most chunks behind a head; they wait for each other */

/* Return the place of chunk `i` of the link's shard. */
static const struct twill_chunk_place *place_of(const struct twill_server_link *link, uint32_t i)
{
    return &link->server->cut.place[link->place[i]];
}

/* Mark the link as lost, and at a server its worker as dead. If the link has failed because a rank
 * is out of memory, descriptors or another resource, break the server. */
static void lose_link(struct twill_server_link *link)
{
    link->lost = true;
    twill_server_note_loss(link->server, link->comm);
    if (link->shard != NULL)
        twill_shard_lose(link->shard, link->worker, true);
}

/* Count bytes at this end. `heads` is part of neither the sent nor the received bytes. */
static void count_bytes(struct twill_server_link *link, size_t sent, size_t received, size_t heads)
{
    twill_usage_add(link->shard != NULL ? &link->shard->usage : &link->server->work.usage, sent,
                    received, heads);
}

/* Return the number of chunks of the link's shard plus the number of keys. A peer that keeps the
 * rules makes this end queue at most one head for each chunk, and one for each key's answer. */
static uint32_t queue_bound(const struct twill_server_link *link)
{
    return link->key_first[link->server->keys] + link->server->keys;
}

/* Append a head, which announces an order or an answer and its chunks, to the queue of messages
 * that this end has yet to send. twill_link_poll() sends it. Returns the element of
 * link->out.batch. If the queue is too long or out of memory, loses the link and returns NULL. */
static struct twill_link_batch *queue_batch(struct twill_server_link *link,
                                            struct twill_link_head head)
{
    if (link->out.current == link->out.batches)
        link->out.current = link->out.batches = 0;
    else if (link->out.batches - link->out.current > BATCHES_BESIDES + 2 * queue_bound(link)) {
        lose_link(link); /* the peer orders more than it may */
        return NULL;
    } else if (link->out.batches == link->out.batches_held &&
               link->out.current > link->out.batches_held / 2) {
        link->out.batches -= link->out.current;
        memmove(link->out.batch, link->out.batch + link->out.current,
                link->out.batches * sizeof(*link->out.batch));
        link->out.current = 0;
    }
    if (link->out.batches == link->out.batches_held) {
        uint32_t held = link->out.batches_held == 0 ? 64 : 2 * link->out.batches_held;
        void *grown = realloc(link->out.batch, held * sizeof(*link->out.batch));
        if (grown == NULL) {
            lose_link(link);
            return NULL;
        }
        link->out.batch = grown;
        link->out.batches_held = held;
    }
    struct twill_link_batch *batch = &link->out.batch[link->out.batches++];
    *batch = (struct twill_link_batch){.head = head, .next = head.first};
    return batch;
}

void twill_link_order(struct twill_server_link *link, struct twill_server_order order)
{
    struct twill_link_head head = {
        .kind = (uint16_t)order.kind, .key = order.key, .push = order.push, .pull = order.pull};
    if ((order.kind & TWILL_ORDER_PUSH) != 0) {
        head.first = link->key_first[order.key];
        head.end = link->key_first[order.key + 1];
    }
    if ((order.kind & TWILL_ORDER_PULL) != 0)
        link->key[order.key] = (struct twill_link_key){link->port->chunks[order.key], UINT64_MAX};
    (void)queue_batch(link, head);
}

void twill_link_answer(struct twill_server_link *link, uint32_t key, uint64_t push)
{
    (void)queue_batch(
        link, (struct twill_link_head){.kind = TWILL_LINK_PUSHED, .key = key, .push = push});
}

void twill_link_deliver(struct twill_server_link *link, const struct twill_chunk *chunk)
{
    uint32_t i = (uint32_t)(chunk - link->shard->chunk), k = chunk->place->key;
    struct twill_link_head head = {.kind = TWILL_LINK_PULLED,
                                   .key = k,
                                   .push = chunk->version,
                                   .pull = link->shard->worker[link->worker].key[k].pull,
                                   .first = i,
                                   .end = i + 1};
    struct twill_link_batch *last =
        link->out.batches > link->out.current ? &link->out.batch[link->out.batches - 1] : NULL;
    size_t bytes = chunk->place->count * twill_type_size(link->server->key[k].type);
    link->key[k].missing++;
    if (link->outbox != NULL) {
        twill_kernels_copy(link->server->process.kernels, link->outbox + link->outbox_at[i],
                           chunk->value, bytes, 0, NULL);
        link->shard->usage.bytes_copied += bytes;
    }
    if (last != NULL && !last->begun && last->head.kind == TWILL_LINK_PULLED &&
        last->head.key == k && last->head.push == head.push && last->head.end == i &&
        i - last->head.first < RUN_MOST)
        last->head.end = i + 1;
    else
        (void)queue_batch(link, head);
}

/* Remember a send that has been posted with this status. `key` is that of parameters, otherwise
 * UINT32_MAX. Returns false and loses the link if the status is an error. */
static bool note_send(struct twill_server_link *link, twill_status status, uint32_t key)
{
    if (status != TWILL_OK) {
        lose_link(link);
        return false;
    }
    link->out.sent_key[link->out.sent_end++ % TWILL_LINK_POSTED] = key;
    return true;
}

/* Send a batch's head with the credits due. Returns false and loses the link if that fails. */
static bool send_head(struct twill_server_link *link, struct twill_link_batch *batch)
{
    uint32_t slot = link->out.sent_end % TWILL_LINK_POSTED;
    batch->head.credits = (uint16_t)link->in.credits_due;
    link->in.credits_due = 0;
    link->out.sent_head[slot] = batch->head;
    batch->begun = true;
    count_bytes(link, 0, 0, sizeof(batch->head));
    return note_send(link,
                     twill_send_start(link->comm, &link->out.sent_head[slot], sizeof(batch->head),
                                      TWILL_U8, link->peer, &link->out.sent[slot]),
                     UINT32_MAX);
}

/* Send a batch's next chunk. Returns false if it waits for a credit or if this loses the link. */
static bool send_chunk(struct twill_server_link *link, struct twill_link_batch *batch)
{
    const struct twill_chunk_place *place = place_of(link, batch->next);
    const struct twill_server_key *key = &link->server->key[place->key];
    uint32_t slot = link->out.sent_end % TWILL_LINK_POSTED, i = batch->next;
    const unsigned char *from;
    size_t bytes = place->wire_bytes;
    if (link->port != NULL) {
        if (link->out.credits == 0) {
            link->server->work.usage.credit_waits += !link->out.starved;
            link->out.starved = true;
            return false;
        }
        link->out.starved = false;
        link->out.credits--;
        from = key->sent + place->wire_at;
    } else {
        from =
            link->outbox != NULL ? link->outbox + link->outbox_at[i] : link->shard->chunk[i].value;
        bytes = place->count * twill_type_size(key->type);
    }
    batch->next++;
    count_bytes(link, bytes, 0, 0);
    return note_send(
        link,
        twill_send_start(link->comm, from, bytes, TWILL_U8, link->peer, &link->out.sent[slot]),
        link->shard != NULL ? place->key : UINT32_MAX);
}

/* Return whether to delay the head of `batch`, as twill_link_deliver() may add chunks to those that
 * it announces. It must announce parameters, be the last in the queue and have fewer than RUN_MOST
 * chunks. More chunks of its key must also follow. */
static bool may_grow(const struct twill_server_link *link, const struct twill_link_batch *batch)
{
    return batch->head.kind == TWILL_LINK_PULLED &&
           batch == &link->out.batch[link->out.batches - 1] &&
           batch->head.end - batch->head.first < RUN_MOST &&
           batch->head.end < link->key_first[batch->head.key + 1];
}

/* Complete sends that have ended, and start queued ones. Returns whether something moved. If
 * `idle`, as nothing was received, also send heads that more chunks might join. Then also send
 * credits, by which a worker may send more chunks, in a separate head. */
static bool send_out(struct twill_server_link *link, bool idle)
{
    bool moved = false;
    int done = 1;
    while (link->out.sent_first != link->out.sent_end && done && !link->lost) {
        uint32_t slot = link->out.sent_first % TWILL_LINK_POSTED;
        if (twill_test(&link->out.sent[slot], &done) != TWILL_OK)
            lose_link(link);
        else if (done) {
            if (link->out.sent_key[slot] != UINT32_MAX)
                link->key[link->out.sent_key[slot]].missing--;
            link->out.sent_first++;
            moved = true;
        }
    }
    if (idle && link->in.credits_due > 0 && link->out.current == link->out.batches && !link->left)
        (void)queue_batch(link, (struct twill_link_head){.kind = TWILL_LINK_CREDIT});
    while (link->out.current < link->out.batches && !link->lost &&
           link->out.sent_end - link->out.sent_first < TWILL_LINK_POSTED) {
        struct twill_link_batch *batch = &link->out.batch[link->out.current];
        if (!batch->begun && !idle && may_grow(link, batch))
            break;
        if (!batch->begun)
            moved |= send_head(link, batch);
        else if (batch->next < batch->head.end) {
            if (!send_chunk(link, batch))
                break;
            moved = true;
        } else
            link->out.current++;
    }
    return moved;
}

/* Return whether everything has been sent, or the link is lost. */
static bool link_is_idle(const struct twill_server_link *link)
{
    return link->lost ||
           (link->out.sent_first == link->out.sent_end && link->out.current == link->out.batches);
}

/* Post the receive of the next head, or lose the link if that fails. */
static void post_head(struct twill_server_link *link)
{
    if (twill_recv_start(link->comm, &link->in.head, sizeof(link->in.head), TWILL_U8, link->peer,
                         &link->in.head_request) != TWILL_OK)
        lose_link(link);
}

/* Post the receive of the head's next chunk where its data belong, or lose the link. */
static void post_chunk(struct twill_server_link *link)
{
    uint32_t i = link->in.take_end++;
    const struct twill_chunk_place *place = place_of(link, i);
    const struct twill_server_key *key = &link->server->key[place->key];
    size_t width = twill_type_size(key->type), bytes = place->wire_bytes;
    unsigned char *to;
    if (link->shard != NULL)
        to = link->inbox + link->inbox_at[i];
    else {
        to = key->landed + place->first * width;
        bytes = place->count * width;
    }
    if (twill_recv_start(link->comm, to, bytes, TWILL_U8, link->peer,
                         &link->in.taken[i % TWILL_LINK_TAKEN]) != TWILL_OK)
        lose_link(link);
}

/* Take received chunk `i` of the link's shard. At a server, push the gradient to the chunk
 * (twill_chunk_push()), and pull the chunk if the head orders it. At a worker, post the answer to
 * the pull in the port after the last chunk of its key. */
static void take_chunk(struct twill_server_link *link, uint32_t i)
{
    const struct twill_chunk_place *place = place_of(link, i);
    struct twill_link_key *key = &link->key[place->key];
    if (link->shard != NULL) {
        struct twill_chunk *chunk = &link->shard->chunk[i];
        link->in.credits_due++;
        count_bytes(link, 0, place->wire_bytes, 0);
        twill_chunk_push(link->shard, chunk, link->worker, link->inbox + link->inbox_at[i],
                         link->in.head.push);
        if ((link->in.head.kind & TWILL_ORDER_PULL) != 0)
            twill_chunk_pull(link->shard, chunk, link->worker);
        return;
    }
    count_bytes(link, 0, place->count * twill_type_size(link->server->key[place->key].type), 0);
    key->version = twill_min(key->version, link->in.head.push);
    if (--key->missing > 0)
        return;
    struct twill_answer *answer = &link->port->answer[place->key];
    atomic_store_explicit(&answer->version, key->version, memory_order_relaxed);
    atomic_store_explicit(&answer->pulled, link->in.head.pull, memory_order_release);
}

/* Return whether a worker may send this head. A push must announce all chunks of its key on the
 * shard, and the worker's last push of that key must be complete. A pull alone announces none. */
static bool is_order(const struct twill_server_link *link, const struct twill_link_head *head)
{
    if (head->kind == TWILL_ORDER_LEAVE)
        return head->first == head->end;
    if (head->key >= link->server->keys)
        return false;
    switch (head->kind) {
    case TWILL_ORDER_PUSH:
    case TWILL_ORDER_PUSH | TWILL_ORDER_PULL:
        return head->first == link->key_first[head->key] &&
               head->end == link->key_first[head->key + 1] &&
               link->shard->worker[link->worker].key[head->key].push_left == 0;
    default:
        return head->kind == TWILL_ORDER_PULL && head->first == head->end;
    }
}

/* Return whether a server may send this head. Parameters must belong to a pull under way. */
static bool is_answer(const struct twill_server_link *link, const struct twill_link_head *head)
{
    if (head->kind == TWILL_LINK_LEFT)
        return head->first == head->end;
    if (head->key >= link->server->keys)
        return false;
    if (head->kind == TWILL_LINK_PULLED)
        return head->first >= link->key_first[head->key] && head->first < head->end &&
               head->end <= link->key_first[head->key + 1] &&
               head->end - head->first <= link->key[head->key].missing;
    return (head->kind == TWILL_LINK_PUSHED || head->kind == TWILL_LINK_CREDIT) &&
           head->first == head->end;
}

/* Return whether the peer may send the head that has been received. */
static bool is_valid_head(const struct twill_server_link *link)
{
    return link->shard != NULL ? is_order(link, &link->in.head) : is_answer(link, &link->in.head);
}

/* Begin to receive the chunks of the head that has arrived, if any, and take its credits. Returns
 * true if this has begun. Returns false, to be called again, while parameters of the key of a push
 * are still being sent to the worker from the chunks themselves. */
static bool begin_head(struct twill_server_link *link)
{
    struct twill_link_head *head = &link->in.head;
    bool push = link->shard != NULL && (head->kind & TWILL_ORDER_PUSH) != 0;
    if (push && link->outbox == NULL && link->key[head->key].missing > 0)
        return false;
    link->in.has_head = true;
    link->in.take_next = link->in.take_end = head->first;
    link->out.credits = (uint32_t)twill_min((uint64_t)link->out.credits + head->credits,
                                            (uint64_t)link->server->options.credits);
    if (push)
        twill_shard_begin_push(link->shard, link->worker, head->key, head->push);
    if (push && (head->kind & TWILL_ORDER_PULL) != 0)
        twill_shard_begin_pull(link->shard, link->worker, head->key, head->pull);
    return true;
}

/* End a received head, which has announced an order or an answer, after its chunks. At a server,
 * take its pull or leave. At a worker, post the answer in the port. Then start to receive the next
 * head, unless the worker has left. */
static void end_head(struct twill_server_link *link)
{
    const struct twill_link_head head = link->in.head;
    link->in.has_head = false;
    const unsigned both = TWILL_ORDER_PUSH | TWILL_ORDER_PULL;
    if (link->shard != NULL && (head.kind & both) == TWILL_ORDER_PULL)
        twill_shard_take_pull(link->shard, link->worker, head.key, head.pull);
    if (link->shard != NULL && (head.kind & TWILL_ORDER_LEAVE) != 0) {
        link->left = true;
        (void)queue_batch(link,
                          (struct twill_link_head){.kind = TWILL_LINK_LEFT, .key = UINT32_MAX});
        twill_shard_lose(link->shard, link->worker, false);
    }
    if (link->port != NULL && head.kind == TWILL_LINK_PUSHED)
        atomic_store_explicit(&link->port->answer[head.key].pushed, head.push,
                              memory_order_release);
    if (link->port != NULL && head.kind == TWILL_LINK_LEFT)
        link->left = true;
    if (!link->left)
        post_head(link);
}

/* Receive a head and its chunks as far as they are here. Returns whether something moved. */
static bool take_in(struct twill_server_link *link)
{
    bool moved = false;
    int done = 1;
    if (!link->in.has_head && link->in.head_request != NULL) {
        if (twill_test(&link->in.head_request, &done) != TWILL_OK || (done && !is_valid_head(link)))
            lose_link(link);
        if (link->lost || !done)
            return false;
    }
    if (!link->in.has_head && !link->left && !begin_head(link))
        return false;
    while (link->in.has_head && !link->lost) {
        while (link->in.take_end < link->in.head.end &&
               link->in.take_end - link->in.take_next < TWILL_LINK_TAKEN && !link->lost)
            post_chunk(link);
        if (link->in.take_next == link->in.head.end) {
            end_head(link);
            return true;
        }
        if (twill_test(&link->in.taken[link->in.take_next % TWILL_LINK_TAKEN], &done) != TWILL_OK)
            lose_link(link);
        if (link->lost || !done)
            return moved;
        take_chunk(link, link->in.take_next++);
        moved = true;
    }
    return moved;
}

bool twill_link_poll(struct twill_server_link *link)
{
    if (link->lost)
        return false;
    bool moved = take_in(link);
    if (!link->lost)
        moved |= send_out(link, !moved);
    return moved;
}

/* Allocate a link's arrays for keys and chunks, and list the chunks of a shard in place and
 * key_first. Fails only if out of memory. */
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

/* Allocate the inbox for gradients. Also allocate the outbox for parameters if an update may come
 * while they are sent. In sync mode it cannot, as all workers have them before the next update. */
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

/* Make this rank's end of the connection between worker number `w` and a shard, on two ranks. It is
 * the next element of server->link. The port or the shard points to it. Both ranks call this.
 * Returns TWILL_OK or the error. */
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

/* Return whether this rank is that of worker number `w` or of a shard. If these two need a link, it
 * then has an end of it. */
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

/* Poll a link. Returns whether something moved. */
static int advance_link(void *link)
{
    return twill_link_poll(link);
}

/* Return whether a link is lost, or has sent everything and its worker has left. */
static bool is_drained(const void *awaited)
{
    const struct twill_server_link *link = awaited;
    return link->lost || (link_is_idle(link) && link->left);
}

/* Advance a link until is_drained(), but at most until `until` (a twill_now()). */
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
    uint64_t until = twill_now() + twill_extend_comm(server->comm).timeout_ns; /* for all links */
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

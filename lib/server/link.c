/* SPDX-License-Identifier: Apache-2.0 */
/* Sending and receiving on a link. */
#include "lib/server/link.h"

#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

#define BATCHES_BESIDES 64u /* queued, besides those of queue_bound() */
#define RUN_MOST        8u  /* chunks whose parameters follow one head: they wait for each other */

static const struct twill_chunk_place *place_of(const struct twill_server_link *link, uint32_t i)
{
    return &link->server->cut.place[link->place[i]];
}

static void lose_link(struct twill_server_link *link)
{
    link->lost = true;
    twill_server_note_loss(link->server, link->comm);
    if (link->core != NULL)
        twill_core_lose(link->core, link->worker, true);
}

/* Count bytes of this end, all of them of messages. */
static void count_bytes(struct twill_server_link *link, size_t sent, size_t received, size_t heads)
{
    if (link->core != NULL) {
        link->core->bytes_sent += sent;
        link->core->bytes_received += received;
        link->core->bytes_messages += sent + received;
        link->core->bytes_metadata += heads;
        return;
    }
    struct twill_server_usage *usage = &link->server->usage;
    usage->bytes_sent += sent;
    usage->bytes_received += received;
    usage->bytes_messages += sent + received;
    usage->bytes_metadata += heads;
}

/* --- sending ---------------------------------------------------------------------------------- */

/* Return how many batches are queued at most: the chunks of a pull of each key, and the answer to a
 * push of each. */
static uint32_t queue_bound(const struct twill_server_link *link)
{
    return link->key_first[link->server->keys] + link->server->keys;
}

static struct twill_link_batch *queue_batch(struct twill_server_link *link,
                                            struct twill_link_head head)
{
    if (link->current == link->batches)
        link->current = link->batches = 0;
    else if (link->batches - link->current > BATCHES_BESIDES + 2 * queue_bound(link)) {
        lose_link(link); /* the peer orders more than it may */
        return NULL;
    } else if (link->batches == link->batches_held && link->current > link->batches_held / 2) {
        link->batches -= link->current;
        memmove(link->batch, link->batch + link->current, link->batches * sizeof(*link->batch));
        link->current = 0;
    }
    if (link->batches == link->batches_held) {
        uint32_t held = link->batches_held == 0 ? 64 : 2 * link->batches_held;
        void *grown = realloc(link->batch, held * sizeof(*link->batch));
        if (grown == NULL) {
            lose_link(link);
            return NULL;
        }
        link->batch = grown;
        link->batches_held = held;
    }
    struct twill_link_batch *batch = &link->batch[link->batches++];
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
    uint32_t i = (uint32_t)(chunk - link->core->chunk), k = chunk->place->key;
    struct twill_link_head head = {.kind = TWILL_LINK_PULLED,
                                   .key = k,
                                   .push = chunk->version,
                                   .pull = link->core->worker[link->worker].key[k].pull,
                                   .first = i,
                                   .end = i + 1};
    struct twill_link_batch *last =
        link->batches > link->current ? &link->batch[link->batches - 1] : NULL;
    size_t bytes = chunk->place->count * twill_type_size(link->server->key[k].type);
    link->key[k].missing++;
    if (link->outbox != NULL) {
        twill_kernels_copy(link->server->process.kernels, link->outbox + link->outbox_at[i],
                           chunk->value, bytes, 0, 1);
        link->core->bytes_copied += bytes;
    }
    if (last != NULL && !last->begun && last->head.kind == TWILL_LINK_PULLED &&
        last->head.key == k && last->head.push == head.push && last->head.end == i &&
        i - last->head.first < RUN_MOST)
        last->head.end = i + 1;
    else
        (void)queue_batch(link, head);
}

/* Remember a send, with the key of parameters. */
static bool note_send(struct twill_server_link *link, twill_status status, uint32_t key)
{
    if (status != TWILL_OK) {
        lose_link(link);
        return false;
    }
    link->sent_key[link->sent_end++ % TWILL_LINK_POSTED] = key;
    return true;
}

static bool send_head(struct twill_server_link *link, struct twill_link_batch *batch)
{
    uint32_t slot = link->sent_end % TWILL_LINK_POSTED;
    batch->head.credits = (uint16_t)link->credits_due;
    link->credits_due = 0;
    link->sent_head[slot] = batch->head;
    batch->begun = true;
    count_bytes(link, 0, 0, sizeof(batch->head));
    return note_send(link,
                     twill_send_start(link->comm, &link->sent_head[slot], sizeof(batch->head),
                                      TWILL_U8, link->peer, &link->sent[slot]),
                     UINT32_MAX);
}

/* Send the next chunk of a batch. Returns false if it must wait for a credit. */
static bool send_chunk(struct twill_server_link *link, struct twill_link_batch *batch)
{
    const struct twill_chunk_place *place = place_of(link, batch->next);
    const struct twill_server_key *key = &link->server->key[place->key];
    uint32_t slot = link->sent_end % TWILL_LINK_POSTED, i = batch->next;
    const unsigned char *from;
    size_t bytes = place->wire_bytes;
    if (link->port != NULL) {
        if (link->credits == 0) {
            link->server->usage.credit_waits += !link->starved;
            link->starved = true;
            return false;
        }
        link->starved = false;
        link->credits--;
        from = key->sent + place->wire_at;
    } else {
        from =
            link->outbox != NULL ? link->outbox + link->outbox_at[i] : link->core->chunk[i].value;
        bytes = place->count * twill_type_size(key->type);
    }
    batch->next++;
    count_bytes(link, bytes, 0, 0);
    return note_send(
        link, twill_send_start(link->comm, from, bytes, TWILL_U8, link->peer, &link->sent[slot]),
        link->core != NULL ? place->key : UINT32_MAX);
}

/* Is it better to wait for more chunks behind this head? */
static bool may_grow(const struct twill_server_link *link, const struct twill_link_batch *batch)
{
    return batch->head.kind == TWILL_LINK_PULLED && batch == &link->batch[link->batches - 1] &&
           batch->head.end - batch->head.first < RUN_MOST &&
           batch->head.end < link->key_first[batch->head.key + 1];
}

static bool send_out(struct twill_server_link *link, bool idle)
{
    bool moved = false;
    int done = 1;
    while (link->sent_first != link->sent_end && done && !link->lost) {
        uint32_t slot = link->sent_first % TWILL_LINK_POSTED;
        if (twill_test(&link->sent[slot], &done) != TWILL_OK)
            lose_link(link);
        else if (done) {
            if (link->sent_key[slot] != UINT32_MAX)
                link->key[link->sent_key[slot]].missing--;
            link->sent_first++;
            moved = true;
        }
    }
    if (idle && link->credits_due > 0 && link->current == link->batches && !link->left)
        (void)queue_batch(link, (struct twill_link_head){.kind = TWILL_LINK_CREDIT});
    while (link->current < link->batches && !link->lost &&
           link->sent_end - link->sent_first < TWILL_LINK_POSTED) {
        struct twill_link_batch *batch = &link->batch[link->current];
        if (!batch->begun && !idle && may_grow(link, batch))
            break;
        if (!batch->begun)
            moved |= send_head(link, batch);
        else if (batch->next < batch->head.end) {
            if (!send_chunk(link, batch))
                break;
            moved = true;
        } else
            link->current++;
    }
    return moved;
}

bool twill_link_is_idle(const struct twill_server_link *link)
{
    return link->lost || (link->sent_first == link->sent_end && link->current == link->batches);
}

/* --- receiving -------------------------------------------------------------------------------- */

/* Post the receive of the next head. */
static void post_head(struct twill_server_link *link)
{
    if (twill_recv_start(link->comm, &link->head, sizeof(link->head), TWILL_U8, link->peer,
                         &link->head_request) != TWILL_OK)
        lose_link(link);
}

static void post_chunk(struct twill_server_link *link)
{
    uint32_t i = link->take_end++;
    const struct twill_chunk_place *place = place_of(link, i);
    const struct twill_server_key *key = &link->server->key[place->key];
    size_t width = twill_type_size(key->type), bytes = place->wire_bytes;
    unsigned char *to;
    if (link->core != NULL)
        to = link->inbox + link->inbox_at[i];
    else {
        to = key->landed + place->first * width;
        bytes = place->count * width;
    }
    if (twill_recv_start(link->comm, to, bytes, TWILL_U8, link->peer,
                         &link->taken[i % TWILL_LINK_TAKEN]) != TWILL_OK)
        lose_link(link);
}

/* A chunk has been received. */
static void take_chunk(struct twill_server_link *link, uint32_t i)
{
    const struct twill_chunk_place *place = place_of(link, i);
    struct twill_link_key *key = &link->key[place->key];
    if (link->core != NULL) {
        struct twill_chunk *chunk = &link->core->chunk[i];
        link->credits_due++;
        count_bytes(link, 0, place->wire_bytes, 0);
        twill_chunk_push(link->core, chunk, link->worker, link->inbox + link->inbox_at[i],
                         link->head.push);
        if ((link->head.kind & TWILL_ORDER_PULL) != 0)
            twill_chunk_pull(link->core, chunk, link->worker);
        return;
    }
    count_bytes(link, 0, place->count * twill_type_size(link->server->key[place->key].type), 0);
    key->version = twill_min(key->version, link->head.push);
    if (--key->missing > 0)
        return;
    struct twill_answer *answer = &link->port->answer[place->key];
    atomic_store_explicit(&answer->version, key->version, memory_order_relaxed);
    atomic_store_explicit(&answer->pulled, link->head.pull, memory_order_release);
}

/* May a worker send this head? A push has all chunks of a key that has no push under way. */
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
               link->core->worker[link->worker].key[head->key].push_left == 0;
    default:
        return head->kind == TWILL_ORDER_PULL && head->first == head->end;
    }
}

/* May a server send this head? Parameters are those of a pull under way. */
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

static bool is_valid_head(const struct twill_server_link *link)
{
    return link->core != NULL ? is_order(link, &link->head) : is_answer(link, &link->head);
}

/* Begin to receive what follows a head. Returns false if it must wait: parameters that would change
 * with this push are still being sent. */
static bool begin_head(struct twill_server_link *link)
{
    struct twill_link_head *head = &link->head;
    bool push = link->core != NULL && (head->kind & TWILL_ORDER_PUSH) != 0;
    if (push && link->outbox == NULL && link->key[head->key].missing > 0)
        return false;
    link->has_head = true;
    link->take_next = link->take_end = head->first;
    link->credits = (uint32_t)twill_min((uint64_t)link->credits + head->credits,
                                        (uint64_t)link->server->options.credits);
    if (push)
        twill_core_begin_push(link->core, link->worker, head->key, head->push);
    if (push && (head->kind & TWILL_ORDER_PULL) != 0)
        twill_core_begin_pull(link->core, link->worker, head->key, head->pull);
    return true;
}

/* All chunks of a head are there. */
static void end_head(struct twill_server_link *link)
{
    const struct twill_link_head head = link->head;
    link->has_head = false;
    const unsigned both = TWILL_ORDER_PUSH | TWILL_ORDER_PULL;
    if (link->core != NULL && (head.kind & both) == TWILL_ORDER_PULL)
        twill_core_take_pull(link->core, link->worker, head.key, head.pull);
    if (link->core != NULL && (head.kind & TWILL_ORDER_LEAVE) != 0) {
        link->left = true;
        (void)queue_batch(link,
                          (struct twill_link_head){.kind = TWILL_LINK_LEFT, .key = UINT32_MAX});
        twill_core_lose(link->core, link->worker, false);
    }
    if (link->port != NULL && head.kind == TWILL_LINK_PUSHED)
        atomic_store_explicit(&link->port->answer[head.key].pushed, head.push,
                              memory_order_release);
    if (link->port != NULL && head.kind == TWILL_LINK_LEFT)
        link->left = true;
    if (!link->left)
        post_head(link);
}

static bool take_in(struct twill_server_link *link)
{
    bool moved = false;
    int done = 1;
    if (!link->has_head && link->head_request != NULL) {
        if (twill_test(&link->head_request, &done) != TWILL_OK || (done && !is_valid_head(link)))
            lose_link(link);
        if (link->lost || !done)
            return false;
    }
    if (!link->has_head && !link->left && !begin_head(link))
        return false;
    while (link->has_head && !link->lost) {
        while (link->take_end < link->head.end &&
               link->take_end - link->take_next < TWILL_LINK_TAKEN && !link->lost)
            post_chunk(link);
        if (link->take_next == link->head.end) {
            end_head(link);
            return true;
        }
        if (twill_test(&link->taken[link->take_next % TWILL_LINK_TAKEN], &done) != TWILL_OK)
            lose_link(link);
        if (link->lost || !done)
            return moved;
        take_chunk(link, link->take_next++);
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

/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas. A shard sends each of its chunks, whenever it has changed, to the shard of the next
 * server that has the replicas (a chain of two), in messages on a communicator of the two ranks.
 *
 * A head names up to REPLICA_RUN chunks with their versions. The memory of each follows as one
 * message, sent from the chunk itself, which does not change in the meantime. The receiver stores
 * it separately and copies it to the replica when it is complete. A death thus leaves the replica
 * as it was before or after. The receiver acknowledges the head when all its chunks are copied. A
 * head without chunks is the last. */
#include "lib/server/shard/link.h"

#include "lib/base/times.h"
#include "lib/twill_recover.h"
#include "lib/wait/wait.h"

#include <stdlib.h>
#include <string.h>

#define REPLICA_RUN     8u /* most chunks of a head */
#define REPLICA_BATCHES 2u /* most heads under way */

/* The beginning of a message about changed chunks, from their shard to the shard with the replicas.
 * It has the number of each of `count` chunks, its version, and how many gradients wait for its
 * update. The chunks follow. With a count of 0 it ends the connection. Sent as it is in memory. */
struct twill_replica_head {
    uint32_t count, chunk[REPLICA_RUN], waiting[REPLICA_RUN];
    uint64_t version[REPLICA_RUN];
};

/* A head with its chunks, being sent or received, in its link. */
struct replica_batch {
    struct twill_replica_head head;
    twill_request *request[REPLICA_RUN + 1]; /* of the head, then of the chunks */
    uint32_t next;                           /* when receiving: the chunk that completes next */
};

/* One end of a connection of two shards, under its shard's lock. Made by twill_replicas_open(),
 * freed by twill_replicas_close(). */
struct twill_replica_link {
    struct twill_shard *shard;
    twill_comm *comm;
    int peer;                                    /* rank in comm */
    uint32_t rank;                               /* the peer's rank in server->comm */
    bool lost;                                   /* the peer has died */
    bool ended;                                  /* the last head has been acknowledged */
    struct replica_batch batch[REPLICA_BATCHES]; /* by number; the receiver uses only one */
    uint32_t acknowledged; /* chunks of the acknowledged head, or 0 if it is the last */
    twill_request *acknowledgement;

    /* Only at the sender. */
    uint32_t *changed; /* [chunks] queue of numbers of changed chunks */
    uint32_t changed_first, changed_count;
    uint32_t sent, complete; /* how many batches were sent, and are complete */
    bool is_acknowledged;    /* the batch number `complete` */
    bool closing, closed;    /* the last head must be sent, has been sent */

    /* Only at the receiver. */
    unsigned char *inbox; /* [REPLICA_RUN] of the largest chunk */
    size_t stride;
    bool begun; /* the head has been received, and its chunks are being received */
};

/* Mark the connection as lost, so that it is not used any more. If it has failed because a rank is
 * out of memory, descriptors or another resource, break the server. */
static void lose_replica(struct twill_replica_link *link)
{
    link->lost = true;
    twill_server_note_loss(link->shard->server, link->comm);
}

/* Return whether the request is complete or NULL. If it fails, loses the link, returning false. */
static bool is_complete(struct twill_replica_link *link, twill_request **request)
{
    int done = 1;
    if (*request != NULL && twill_test(request, &done) != TWILL_OK)
        lose_replica(link);
    return done && !link->lost;
}

/* Start to send bytes, unless the link is lost. Loses it if that fails. */
static void start_send(struct twill_replica_link *link, const void *data, size_t bytes,
                       twill_request **request)
{
    if (!link->lost &&
        twill_send_start(link->comm, data, bytes, TWILL_U8, link->peer, request) != TWILL_OK)
        lose_replica(link);
}

/* Start to receive bytes, unless the link is lost. Loses it if that fails. */
static void start_receive(struct twill_replica_link *link, void *data, size_t bytes,
                          twill_request **request)
{
    if (!link->lost &&
        twill_recv_start(link->comm, data, bytes, TWILL_U8, link->peer, request) != TWILL_OK)
        lose_replica(link);
}

void twill_replica_send(struct twill_shard *shard, struct twill_chunk *chunk)
{
    struct twill_replica_link *link = shard->to;
    uint32_t at = (link->changed_first + link->changed_count++) % shard->chunks;
    link->changed[at] = (uint32_t)(chunk - shard->chunk); /* a chunk is queued at most once */
}

/* Send up to REPLICA_RUN chunks that have changed, or the last head if there are none. */
static void send_batch(struct twill_replica_link *link)
{
    struct twill_shard *shard = link->shard;
    struct replica_batch *batch = &link->batch[link->sent++ % REPLICA_BATCHES];
    struct twill_replica_head *head = &batch->head;
    memset(head, 0, sizeof(*head));
    for (; head->count < REPLICA_RUN && link->changed_count > 0; link->changed_count--) {
        uint32_t number = link->changed[link->changed_first];
        link->changed_first = (link->changed_first + 1) % shard->chunks;
        head->chunk[head->count] = number;
        head->waiting[head->count] = shard->chunk[number].waiting;
        head->version[head->count++] = shard->chunk[number].version;
    }
    link->closed = head->count == 0;
    start_send(link, head, sizeof(*head), &batch->request[0]);
    twill_usage_add(&shard->usage, 0, 0, sizeof(*head));
    for (uint32_t i = 0; i < head->count; i++) {
        const struct twill_chunk *chunk = &shard->chunk[head->chunk[i]];
        size_t bytes = twill_chunk_bytes(shard->server, chunk->place);
        start_send(link, chunk->value, bytes, &batch->request[i + 1]);
        twill_usage_add(&shard->usage, bytes, 0, 0);
    }
    twill_extend_ring(shard->server->comm, link->rank);
}

/* Complete the oldest batch, by twill_chunk_copied(), once it is acknowledged, or return false. */
static bool complete_batch(struct twill_replica_link *link)
{
    struct replica_batch *batch = &link->batch[link->complete % REPLICA_BATCHES];
    const struct twill_replica_head *head = &batch->head;
    if (!link->is_acknowledged) {
        if (link->sent == link->complete || !is_complete(link, &link->acknowledgement))
            return false;
        link->is_acknowledged = true;
    }
    for (uint32_t i = 0; i <= head->count; i++)
        if (!is_complete(link, &batch->request[i]))
            return false;
    link->is_acknowledged = false;
    link->complete++;
    link->ended = head->count == 0;
    if (!link->ended)
        start_receive(link, &link->acknowledged, sizeof(link->acknowledged),
                      &link->acknowledgement);
    for (uint32_t i = 0; i < head->count; i++)
        twill_chunk_copied(link->shard, &link->shard->chunk[head->chunk[i]]);
    return true;
}

/* Advance the sender's end. Returns whether something moved. */
static bool poll_sender(struct twill_replica_link *link)
{
    bool moved = false;
    while (!link->lost && complete_batch(link))
        moved = true;
    while (!link->lost && !link->closed && link->sent - link->complete < REPLICA_BATCHES &&
           (link->changed_count > 0 || (link->closing && link->sent == link->complete))) {
        send_batch(link);
        moved = true;
    }
    return moved;
}

/* Begin to receive the chunks of a head, or lose the link if the head is invalid. */
static void begin_batch(struct twill_replica_link *link)
{
    struct replica_batch *batch = &link->batch[0];
    const struct twill_replica_head *head = &batch->head;
    const struct twill_shard *shard = link->shard;
    link->lost = head->count > REPLICA_RUN;
    for (uint32_t i = 0; i < head->count && !link->lost; i++) {
        if (head->chunk[i] >= shard->copies) {
            link->lost = true; /* not a chunk of the peer */
            return;
        }
        start_receive(link, link->inbox + i * link->stride,
                      twill_chunk_bytes(shard->server, shard->copy[head->chunk[i]].place),
                      &batch->request[i + 1]);
    }
    batch->next = 0;
    link->begun = true;
}

/* Copy received chunk number `i` of the head from the inbox to its replica. */
static void take_copy(struct twill_replica_link *link, uint32_t i)
{
    const struct twill_replica_head *head = &link->batch[0].head;
    struct twill_chunk *copy = &link->shard->copy[head->chunk[i]];
    size_t bytes = twill_chunk_bytes(link->shard->server, copy->place);
    memcpy(copy->value, link->inbox + i * link->stride, bytes);
    copy->version = head->version[i];
    copy->waiting = head->waiting[i];
    twill_usage_add(&link->shard->usage, 0, bytes, 0);
    link->shard->usage.bytes_copied += bytes;
}

/* Acknowledge a head whose chunks have all been copied to the replicas. Then start to receive the
 * next head, unless this one had no chunks, which ends the connection. */
static void end_batch(struct twill_replica_link *link)
{
    struct replica_batch *batch = &link->batch[0];
    link->begun = false;
    link->acknowledged = batch->head.count;
    start_send(link, &link->acknowledged, sizeof(link->acknowledged), &link->acknowledgement);
    twill_usage_add(&link->shard->usage, 0, 0, sizeof(link->acknowledged));
    link->ended = batch->head.count == 0;
    if (!link->ended)
        start_receive(link, &batch->head, sizeof(batch->head), &batch->request[0]);
    twill_extend_ring(link->shard->server->comm, link->rank);
}

/* Advance the receiver's end. Returns whether something moved. */
static bool poll_receiver(struct twill_replica_link *link)
{
    struct replica_batch *batch = &link->batch[0];
    bool moved = false;
    if (!is_complete(link, &link->acknowledgement) || link->ended)
        return false;
    if (!link->begun) {
        if (!is_complete(link, &batch->request[0]))
            return false;
        begin_batch(link);
        moved = true;
    }
    for (; !link->lost && batch->next < batch->head.count; batch->next++) {
        if (!is_complete(link, &batch->request[batch->next + 1]))
            return moved;
        take_copy(link, batch->next);
        moved = true;
    }
    if (!link->lost)
        end_batch(link);
    return true;
}

bool twill_replicas_poll(struct twill_shard *shard)
{
    bool moved = false;
    if (shard->to != NULL && !shard->to->lost)
        moved |= poll_sender(shard->to);
    if (shard->from != NULL && !shard->from->lost)
        moved |= poll_receiver(shard->from);
    return moved;
}

/* Allocate an end's memory and post its first receive. Fails for lack of memory or of the peer. */
static twill_status prepare(struct twill_replica_link *link, bool sends)
{
    struct twill_shard *shard = link->shard;
    struct twill_server *server = shard->server;
    if (sends) {
        TWILL_NEW(&server->failure.error, link->changed, shard->chunks, "replicas");
        start_receive(link, &link->acknowledged, sizeof(link->acknowledged),
                      &link->acknowledgement);
    } else {
        for (uint32_t i = 0; i < shard->copies; i++)
            link->stride = twill_max(link->stride, twill_chunk_bytes(server, shard->copy[i].place));
        void *inbox = NULL;
        if (twill_alloc(server->process.context, &inbox, REPLICA_RUN * link->stride + 1) !=
            TWILL_OK)
            return TWILL_FAIL(&server->failure.error, TWILL_ERR_MEMORY,
                              "out of memory for replicas");
        link->inbox = inbox;
        start_receive(link, &link->batch[0].head, sizeof(link->batch[0].head),
                      &link->batch[0].request[0]);
    }
    if (link->lost)
        return TWILL_FAIL(&server->failure.error, TWILL_ERR_PEER, "%s",
                          twill_comm_message(link->comm));
    return TWILL_OK;
}

/* Make this rank's end of the connection from shard number `from` to shard number `to`, which has
 * its replicas, and open it. The shard here then points to it. Returns TWILL_OK or the error.
 * Collective over both ranks. */
static twill_status open_replica(struct twill_server *server, uint32_t from, uint32_t to)
{
    const int ranks[2] = {(int)twill_shard_rank(server, from), (int)twill_shard_rank(server, to)};
    bool sends = server->rank == (uint32_t)ranks[0];
    struct twill_shard *shard = &server->shard[(sends ? from : to) % server->roles.threads];
    struct twill_replica_link *link;
    TWILL_NEW(&server->failure.error, link, 1, "replicas");
    link->shard = shard;
    link->peer = sends ? 1 : 0;
    link->rank = (uint32_t)ranks[link->peer];
    if (sends)
        shard->to = link;
    else
        shard->from = link;
    twill_status status = twill_comm_create_group(&link->comm, server->comm, 2, ranks);
    if (status == TWILL_OK)
        status = twill_comm_set_timeout(link->comm, TWILL_SERVER_LINK_SECONDS);
    TWILL_TRY(NULL,
              twill_explain(&server->failure.error, status, twill_comm_message(server->comm)));
    return prepare(link, sends);
}

twill_status twill_replicas_open(struct twill_server *server)
{
    /* All ranks take pairs of servers in one order, also to close, and so never wait in a circle.
     */
    for (uint32_t c = 0; c < server->roles.shards && twill_server_replicates(server); c++) {
        uint32_t to = twill_replica_shard(server, c);
        if (twill_shard_rank(server, c) == server->rank ||
            twill_shard_rank(server, to) == server->rank)
            TWILL_TRY(NULL, open_replica(server, c, to));
    }
    return TWILL_OK;
}

/* Return whether nothing more is to be sent or received on a connection. It is NULL, not open or
 * lost, or its last head (without chunks) has been received or acknowledged. */
static bool has_ended(const struct twill_replica_link *link)
{
    return link == NULL || link->comm == NULL || link->lost || link->ended;
}

/* Poll all shards of a server. Returns whether something moved. */
static int advance_shards(void *of)
{
    const struct twill_server *server = of;
    unsigned moved = 0;
    for (uint32_t t = 0; t < server->roles.threads; t++)
        moved += twill_shard_poll(&server->shard[t]);
    return moved > 0;
}

/* Return whether has_ended() for all links of a server's shards. */
static bool have_ended(const void *awaited)
{
    const struct twill_server *server = awaited;
    bool ended = true;
    for (uint32_t t = 0; t < server->roles.threads; t++)
        ended &= has_ended(server->shard[t].to) && has_ended(server->shard[t].from);
    return ended;
}

/* Send all changed chunks to their replicas, and then a head without chunks, on the connections of
 * all shards of this rank. Receive the same from the peers. Return when both ends of each
 * connection have done so or it is lost, or at the time `until` (a twill_now()). */
static void drain_replicas(struct twill_server *server, uint64_t until)
{
    const struct twill_waitable waitable = {
        .advance = advance_shards, .done = have_ended, .of = server, .awaited = server};
    for (uint32_t t = 0; t < server->roles.threads; t++)
        if (server->shard[t].to != NULL)
            server->shard[t].to->closing = true;
    (void)twill_extend_await(server->comm, waitable, until);
}

/* Return whether a link's acknowledgement is sent or the link is lost. */
static bool acknowledged_or_lost(const void *awaited)
{
    struct twill_replica_link *link = *(struct twill_replica_link *const *)awaited;
    return is_complete(link, &link->acknowledgement) || link->lost;
}

/* Wait until the last acknowledgement is sent, or `until`. Returns false if it could not be. */
static bool has_acknowledged(struct twill_replica_link *link, uint64_t until)
{
    const struct twill_waitable waitable = {.done = acknowledged_or_lost, .awaited = &link};
    return twill_extend_await(link->shard->server->comm, waitable, until) == TWILL_OK &&
           !link->lost;
}

/* End and free one end, unless NULL. Waits for the peer until `until`, or not if that is 0. */
static void close_replica(struct twill_replica_link *link, twill_context *context, uint64_t until)
{
    if (link == NULL)
        return;
    twill_link_end_comm(link->comm, link->comm != NULL && until > 0 && link->ended &&
                                        has_acknowledged(link, until));
    (void)twill_free(context, link->inbox);
    free(link->changed);
    free(link);
}

void twill_replicas_close(struct twill_server *server, bool together)
{
    uint64_t until = together ? twill_now() + twill_extend_comm(server->comm).timeout_ns : 0;
    if (together && twill_server_replicates(server))
        drain_replicas(server, until);
    for (uint32_t c = 0; c < server->roles.shards && twill_server_replicates(server); c++) {
        uint32_t to = twill_replica_shard(server, c);
        struct twill_replica_link **link = NULL;
        if (twill_shard_rank(server, c) == server->rank)
            link = &server->shard[c % server->roles.threads].to;
        else if (twill_shard_rank(server, to) == server->rank)
            link = &server->shard[to % server->roles.threads].from;
        if (link == NULL)
            continue;
        close_replica(*link, server->process.context, until);
        *link = NULL;
    }
}

uint64_t twill_replicas_registrations(const struct twill_shard *shard)
{
    const struct twill_replica_link *const links[] = {shard->to, shard->from};
    twill_counters own;
    uint64_t sum = 0;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(links); i++)
        if (links[i] != NULL && twill_comm_counters(links[i]->comm, &own) == TWILL_OK)
            sum += own.registrations;
    return sum;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The composite of rails. Messages are numbered for each sender, receiver and lane, equally on both
 * sides. A message below split_bytes goes whole, on the rail that its number selects. A larger one
 * is cut into one chunk for each rail, in proportion to the rails' weights. The rails order and
 * match.
 *
 *     number   0    1    2 (large)   3
 *     rail 0   0         2a          .        whole messages alternate,
 *     rail 1        1    2b          3        large ones on all
 *
 * If the two sides disagree about a message's size, at least one rail notices. The signature of
 * chunks differs from that of whole messages and depends on the message's size. The chunks are
 * allocated at connect, for DEPTH large messages of each peer, lane and direction. Further requests
 * wait in a queue for each stream, so that no lane waits for another. */
#include "fabric/rails/rails.h"
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/shm/node_memory.h"
#include "fabric/transports.h"
#include "lib/base/plural.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 4u  /* large messages in flight for each peer, lane and direction */
#define EDGE  64u /* chunks begin at multiples of this, so no element is cut */

/* Part of a large message on one rail. An element of rails_peer.chunk[], freed with that. */
struct chunk {
    struct twill_transfer transfer;
    const struct rails_slot *slot;
    size_t offset; /* bytes of the message before it */
};

/* The place of a large message in flight, on all rails. Part of a stream. */
struct rails_slot {
    struct rails_slot *next;      /* in rails->active */
    struct rails_slot *next_done; /* in the list of those that have just completed */
    struct rails_stream *stream;
    struct twill_transfer *whole; /* NULL: free, or the request has already completed */
    struct chunk *chunk;          /* [count] */
    bool busy;                    /* some chunk may be pending, so the place is not free */
};

/* One direction of one lane with one peer, part of struct rails_peer. It numbers the messages. */
struct rails_stream {
    struct twill_transfer_queue waiting; /* in order, the first one for a free slot */
    uint32_t number;                     /* of the next message */
    struct rails_slot slot[DEPTH];
};

/* The streams of a peer and the memory of their chunks. Made by rails_connect(). */
struct rails_peer {
    struct rails_stream stream[TWILL_LANES][2]; /* by enum twill_transfer_kind */
    struct chunk chunk[];
};

/* The composite, from twill_rails_join() to rails_close(), which also closes the rails. Messages of
 * at least `split_bytes` are cut into a chunk for each rail. */
struct rails {
    struct twill_transport base;
    struct twill_transport_ops ops; /* a copy of the rails' own table, with our functions */
    uint32_t count, size, rank;
    size_t split_bytes;
    uint64_t weight[TWILL_RAILS_MOST + 1]; /* sum of the weights of all rails before this one */
    struct twill_transport *rail[TWILL_RAILS_MOST];
    struct rails_peer **peer;  /* [size], NULL until connected */
    struct rails_slot *active; /* large messages in flight */
    char description[256];
};

/* Return the composite whose first member is `transport`, without const. */
static struct rails *rails_from(const struct twill_transport *transport)
{
    return (struct rails *)(uintptr_t)transport;
}

/* Prefix a rail's error message with "rail N: ", and return `status`. Without a message, set
 * `error` to "rail N failed". */
static twill_status prefix_rail(uint32_t rail, twill_status status, struct twill_error *error)
{
    char said[sizeof(error->message)];
    if (error == NULL || error->message[0] == '\0')
        return TWILL_FAIL(error, status, "rail %u failed", rail);
    memcpy(said, error->message, sizeof(said));
    snprintf(error->message, sizeof(error->message), "rail %u: %.480s", rail, said);
    return status;
}

/* Reduce received data of a chunk by its message's reduce(), unless the message has failed. */
static void reduce_chunk(struct twill_transfer *transfer, size_t offset, const void *data,
                         size_t bytes)
{
    const struct chunk *chunk = transfer->reduce_context;
    struct twill_transfer *whole = chunk->slot->whole;
    if (whole != NULL) /* else another chunk has failed */
        whole->reduce(whole, chunk->offset + offset, data, bytes);
}

/* Return the value with which the signature of a message is XORed in its chunks. It is never 0. */
static uint32_t chunk_hash(size_t bytes)
{
    return (uint32_t)((uint64_t)bytes * UINT64_C(0x9e3779b97f4a7c15) >> 32) | 0x80000000u;
}

/* Return the offset at which the chunk of a rail begins in a message of `bytes`, a multiple of
 * EDGE. If `rail` is t->count, returns `bytes`, where the last chunk ends. */
static size_t chunk_start(const struct rails *t, size_t bytes, uint32_t rail)
{
    if (rail == t->count)
        return bytes;
    size_t whole = bytes / t->weight[t->count], rest = bytes % t->weight[t->count];
    size_t at = whole * t->weight[rail] + rest * t->weight[rail] / t->weight[t->count];
    return at / EDGE * EDGE;
}

/* Fill in, but do not post, the request for the part of the slot's message on a rail. */
static void make_chunk(const struct rails *t, const struct rails_slot *slot, uint32_t rail)
{
    struct chunk *chunk = &slot->chunk[rail];
    struct twill_transfer *whole = slot->whole;
    size_t from = chunk_start(t, whole->bytes, rail);
    unsigned char *buffer = whole->buffer, *bounce = whole->bounce;
    chunk->slot = slot;
    chunk->offset = from;
    chunk->transfer = (struct twill_transfer){
        .kind = whole->kind,
        .lane = whole->lane,
        .peer = whole->peer,
        .signature = whole->signature ^ chunk_hash(whole->bytes),
        .buffer = buffer != NULL ? buffer + from : NULL,
        .bytes = chunk_start(t, whole->bytes, rail + 1) - from,
        .last = whole->last,
        .call = whole->call,
        .reduce = whole->reduce != NULL ? reduce_chunk : NULL,
        .alone = whole->alone,
        .reduce_context = chunk,
        .bounce = bounce != NULL ? bounce + from : NULL,
    };
}

/* Set the members peer_... of `whole`, a large message, to those of the message that the peer has
 * in its place. `chunk` is the part of `whole` that did not match. If the peer's message was cut
 * into chunks as well, whole->peer_bytes is estimated from the size of its chunk. */
static void explain_mismatch(struct twill_transfer *whole, const struct twill_transfer *chunk)
{
    bool in_chunks = chunk->peer_signature != whole->signature;
    whole->peer_signature = chunk->peer_signature ^ (in_chunks ? chunk_hash(whole->bytes) : 0);
    whole->peer_bytes = chunk->peer_bytes;
    whole->peer_call = chunk->peer_call;
    if (in_chunks && chunk->peer_bytes == chunk->bytes)
        whole->peer_bytes = whole->bytes;
    else if (in_chunks && chunk->bytes > 0)
        whole->peer_bytes =
            (uint64_t)((double)whole->bytes * (double)chunk->peer_bytes / (double)chunk->bytes);
}

/* Complete a large message when all its chunks are complete, or as soon as one fails. Adds 1 to
 * *finished then. Returns true once no chunk is pending and the slot is free again. */
static bool complete_slot(const struct rails *t, struct rails_slot *slot, int *finished)
{
    bool pending = false;
    for (uint32_t r = 0; r < t->count; r++) {
        const struct twill_transfer *chunk = &slot->chunk[r].transfer;
        pending = pending || chunk->status == TWILL_PENDING;
        if (slot->whole != NULL) {
            uint8_t news = chunk->last.news | slot->whole->last.news;
            if (chunk->last.ticks > slot->whole->last.ticks)
                slot->whole->last = chunk->last;
            slot->whole->last.news = news;
        }
        if (chunk->status >= 0 || slot->whole == NULL)
            continue;
        if (chunk->status == TWILL_ERR_MISMATCH)
            explain_mismatch(slot->whole, chunk);
        twill_transfer_finish(slot->whole, (twill_status)chunk->status);
        slot->whole = NULL;
        ++*finished;
    }
    if (pending)
        return false;
    if (slot->whole != NULL) {
        twill_transfer_finish(slot->whole, TWILL_OK);
        slot->whole = NULL;
        ++*finished;
    }
    slot->busy = false;
    return true;
}

/* Return a slot for a large message that is free, or NULL. */
static struct rails_slot *idle_slot(struct rails_stream *stream)
{
    for (uint32_t i = 0; i < DEPTH; i++)
        if (!stream->slot[i].busy)
            return &stream->slot[i];
    return NULL;
}

/* Start a large message in `slot`, which is free: post a chunk of it on each rail. If a rail fails,
 * returns its error, and chunks that are posted already stay so. The communicator then fails. */
static twill_status post_chunks(struct rails *t, struct rails_slot *slot,
                                struct twill_transfer *whole, struct twill_error *error)
{
    slot->busy = true;
    slot->whole = whole;
    slot->next = t->active;
    t->active = slot;
    for (uint32_t r = 0; r < t->count; r++)
        make_chunk(t, slot, r);
    for (uint32_t r = 0; r < t->count; r++) {
        struct twill_transfer *chunk = &slot->chunk[r].transfer;
        chunk->status = TWILL_PENDING;
        twill_status status = t->rail[r]->ops->post(t->rail[r], chunk, error);
        if (status != TWILL_OK)
            return prefix_rail(r, status, error);
    }
    return TWILL_OK;
}

/* Return whether a request need not wait, as it is small or a slot is free. */
static bool can_start(const struct rails *t, struct rails_stream *stream,
                      const struct twill_transfer *request)
{
    return request->bytes < t->split_bytes || idle_slot(stream) != NULL;
}

/* Return a number whose remainder by t->count is the rail of a pair's first message. */
static uint32_t first_rail(const struct rails *t, uint32_t peer)
{
    return t->rank + peer;
}

/* Post a message on the rail that its number selects, or in chunks on all. Fails if a rail does. */
static twill_status start_message(struct rails *t, struct rails_stream *stream,
                                  struct twill_transfer *request, struct twill_error *error)
{
    uint32_t rail = (first_rail(t, request->peer) + stream->number++) % t->count;
    if (request->bytes >= t->split_bytes)
        return post_chunks(t, idle_slot(stream), request, error);
    twill_status status = t->rail[rail]->ops->post(t->rail[rail], request, error);
    return status == TWILL_OK ? status : prefix_rail(rail, status, error);
}

/* Start waiting requests of a stream, in order, until a large one finds no slot. Stops at the first
 * error and returns it. */
static twill_status start_waiting(struct rails *t, struct rails_stream *stream,
                                  struct twill_error *error)
{
    struct twill_transfer *request;
    while ((request = stream->waiting.head) != NULL && can_start(t, stream, request)) {
        stream->waiting.head = request->next;
        TWILL_TRY(error, start_message(t, stream, request, error));
    }
    return TWILL_OK;
}

/* Complete large messages and start waiting ones. Returns how many completed, or a status < 0. */
static int complete_slots(struct rails *t, struct twill_error *error)
{
    int finished = 0;
    struct rails_slot *left = NULL, *next, *done = NULL;
    for (struct rails_slot *slot = t->active; slot != NULL; slot = next) {
        next = slot->next;
        if (complete_slot(t, slot, &finished)) {
            slot->next_done = done;
            done = slot;
        } else {
            slot->next = left;
            left = slot;
        }
    }
    t->active = left;
    for (struct rails_slot *slot = done; slot != NULL; slot = slot->next_done)
        TWILL_TRY(error, start_waiting(t, slot->stream, error));
    return finished;
}

/* Start a request, or let it wait for a slot. Returns TWILL_ERR_INTERNAL if it is not connected. */
static twill_status rails_post(struct twill_transport *transport, struct twill_transfer *request,
                               struct twill_error *error)
{
    struct rails *t = rails_from(transport);
    if (request->peer >= t->size || request->lane >= TWILL_LANES || t->peer[request->peer] == NULL)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "rails: rank %u, lane %u is not connected",
                          request->peer, request->lane);
    struct rails_stream *stream = &t->peer[request->peer]->stream[request->lane][request->kind];
    if (stream->waiting.head != NULL || !can_start(t, stream, request)) {
        twill_transfer_push(&stream->waiting, request);
        return TWILL_OK;
    }
    request->status = TWILL_PENDING;
    return start_message(t, stream, request, error);
}

/* Progress all rails, and complete large messages whose chunks are complete. Returns how many
 * requests completed or moved data, or a negative status with *error set. */
static int rails_progress(struct twill_transport *transport, struct twill_error *error)
{
    struct rails *t = rails_from(transport);
    int moved = 0;
    for (uint32_t r = 0; r < t->count; r++) {
        int answer = t->rail[r]->ops->progress(t->rail[r], error);
        if (TWILL_UNLIKELY(answer < 0))
            return prefix_rail(r, (twill_status)answer, error);
        moved += answer;
    }
    if (t->active != NULL) {
        int finished = complete_slots(t, error);
        if (finished < 0)
            return finished;
        moved += finished;
    }
    return moved;
}

/* Give each slot of a peer its stream and chunks. */
static void lay_out_peer(const struct rails *t, struct rails_peer *peer)
{
    struct chunk *chunk = peer->chunk;
    for (uint32_t l = 0; l < TWILL_LANES; l++)
        for (uint32_t kind = 0; kind < 2; kind++)
            for (uint32_t i = 0; i < DEPTH; i++) {
                struct rails_stream *stream = &peer->stream[l][kind];
                stream->slot[i].stream = stream;
                stream->slot[i].chunk = chunk;
                chunk += t->count;
            }
}

/* Connect all rails to a peer and allocate its streams. Repeating does no harm. Returns TWILL_OK,
 * or the error of the first rail that fails, with its number in the message. Other failures are
 * TWILL_ERR_INTERNAL if `rank` is no peer, and TWILL_ERR_MEMORY. */
static twill_status rails_connect(struct twill_transport *transport, uint32_t rank,
                                  struct twill_error *error)
{
    struct rails *t = rails_from(transport);
    if (rank >= t->size || rank == t->rank)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "rails: rank %u is no peer of rank %u of %u",
                          rank, t->rank, t->size);
    for (uint32_t r = 0; r < t->count; r++) {
        struct twill_transport *rail = t->rail[r];
        twill_status status =
            rail->ops->connect != NULL ? rail->ops->connect(rail, rank, error) : TWILL_OK;
        if (status != TWILL_OK)
            return prefix_rail(r, status, error);
    }
    if (t->peer[rank] != NULL)
        return TWILL_OK;
    size_t bytes =
        sizeof(struct rails_peer) + 2 * TWILL_LANES * DEPTH * t->count * sizeof(struct chunk);
    struct rails_peer *peer =
        aligned_alloc(TWILL_CACHE_LINE, twill_round_up(bytes, TWILL_CACHE_LINE));
    if (peer == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rails: no memory for the link to rank %u",
                          rank);
    memset(peer, 0, bytes);
    lay_out_peer(t, peer);
    t->peer[rank] = peer;
    return TWILL_OK;
}

/* Drop the requests of a peer without completing them. */
static void forget_peer(struct rails_peer *peer)
{
    for (uint32_t s = 0; s < 2 * TWILL_LANES; s++) {
        struct rails_stream *stream = &peer->stream[s / 2][s % 2];
        stream->waiting = (struct twill_transfer_queue){NULL, NULL};
        for (uint32_t i = 0; i < DEPTH; i++) {
            stream->slot[i].whole = NULL;
            stream->slot[i].busy = false;
        }
    }
}

/* Cancel all rails, then drop all requests without completing them. */
static void rails_cancel(struct twill_transport *transport)
{
    struct rails *t = rails_from(transport);
    for (uint32_t r = 0; r < t->count; r++)
        t->rail[r]->ops->cancel(t->rail[r]);
    for (uint32_t p = 0; p < t->size; p++)
        if (t->peer[p] != NULL)
            forget_peer(t->peer[p]);
    t->active = NULL;
}

/* Close all rails, then free the chunks, which rails may touch until then, and the composite. */
static void rails_close(struct twill_transport *transport)
{
    struct rails *t = rails_from(transport);
    for (uint32_t r = 0; r < t->count; r++)
        t->rail[r]->ops->close(t->rail[r]);
    for (uint32_t p = 0; t->peer != NULL && p < t->size; p++)
        free(t->peer[p]);
    free(t->peer);
    free(t);
}

/* Return the text that describe_weights() wrote, owned by the composite. */
static const char *rails_describe(const struct twill_transport *transport)
{
    return rails_from(transport)->description;
}

/* Write half a sentence on the first rail that waits for a connection to a peer, or "". */
static void rails_await(const struct twill_transport *transport, uint32_t peer, char *text,
                        size_t bytes)
{
    const struct rails *t = rails_from(transport);
    text[0] = '\0';
    for (uint32_t r = 0; r < t->count && text[0] == '\0'; r++)
        if (t->rail[r]->ops->awaits != NULL)
            t->rail[r]->ops->awaits(t->rail[r], peer, text, bytes);
}

/* Call visit() for the first message of each lane on each rail that has arrived and has no RECV. If
 * `all` is set, look also at ranks that connect() was not called for. */
static void rails_early(struct twill_transport *transport, bool all, twill_early_fn visit,
                        void *user)
{
    struct rails *t = rails_from(transport);
    for (uint32_t r = 0; r < t->count; r++)
        if (t->rail[r]->ops->early != NULL)
            t->rail[r]->ops->early(t->rail[r], all, visit, user);
}

/* Return a rail, or NULL past the last one. */
static struct twill_transport *rails_rail(const struct twill_transport *transport, size_t index)
{
    const struct rails *t = rails_from(transport);
    return index < t->count ? t->rail[index] : NULL;
}

/* Set t->description to the kind, the number and the weights of the rails. */
static void describe_weights(struct rails *t, const uint32_t *weight)
{
    size_t used =
        (size_t)snprintf(t->description, sizeof(t->description),
                         "%s over %u rail%s, messages from %zu KiB on split ", t->ops.name,
                         t->count, TWILL_PLURAL(t->count), t->split_bytes >> 10);
    for (uint32_t r = 0; r < t->count && used < sizeof(t->description); r++)
        used += (size_t)snprintf(t->description + used, sizeof(t->description) - used, "%s%u",
                                 r > 0 ? ":" : "", weight[r]);
}

twill_status twill_rails_join(struct twill_transport **transport,
                              struct twill_transport *const *rail, const uint32_t *weight,
                              uint32_t count, size_t split_bytes,
                              const struct twill_transport_params *params,
                              struct twill_error *error)
{
    struct rails *t = calloc(1, sizeof(*t));
    struct rails_peer **peer = calloc((size_t)params->oob->size, sizeof(struct rails_peer *));
    *transport = NULL;
    if (t == NULL || peer == NULL) {
        free(t);
        free(peer);
        for (uint32_t r = 0; r < count; r++)
            rail[r]->ops->close(rail[r]);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rails: no memory for %d peers",
                          params->oob->size);
    }
    t->ops = *rail[0]->ops;
    t->ops.open = NULL;
    t->ops.preview = NULL;
    t->ops.rails = NULL;
    t->ops.close = rails_close;
    t->ops.connect = rails_connect;
    t->ops.post = rails_post;
    t->ops.progress = rails_progress;
    t->ops.cancel = rails_cancel;
    t->ops.describe = rails_describe;
    t->ops.awaits = rails_await;
    t->ops.early = rails_early;
    t->ops.rail = rails_rail;
    t->base.ops = &t->ops;
    t->count = count;
    t->size = (uint32_t)params->oob->size;
    t->rank = (uint32_t)params->oob->rank;
    t->split_bytes = split_bytes;
    t->peer = peer;
    for (uint32_t r = 0; r < count; r++) {
        t->rail[r] = rail[r];
        t->weight[r + 1] = t->weight[r] + weight[r];
    }
    describe_weights(t, weight);
    *transport = &t->base;
    return TWILL_OK;
}

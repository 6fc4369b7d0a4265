/* SPDX-License-Identifier: Apache-2.0 */
/* When a chunk is updated, and when a worker gets it. Chunks are independent of each other.
 *
 *     mode           gradients of an update         older ones   a pull waits
 *     sync           one of each worker             take part    for the worker's push
 *     K-sync         of the first K workers         dropped      for the worker's push
 *     K-batch-sync   the first K                    dropped      never
 *     K-async        of the first K workers         take part    for the worker's push
 *     K-batch-async  the first K                    take part    never
 *     n-softsync     the first floor(P/n)           take part    never
 *     async          one                            take part    never
 *     bounded        one                            take part    for slow workers
 *
 * Modes that take at most one gradient of each worker hold it in the worker's memory until the
 * update, which reads all in one pass. The other modes add it as it comes, or update at once.
 *
 * A chunk with a replica is sent there whenever it has changed, and does not change until the
 * replica has it. Pushes that come in the meantime wait in the workers' memory. Only then are the
 * pushes in it answered, and its parameters handed out. Whatever was answered or handed out thus
 * survives the death of either. */
#include "lib/server/shard/shard.h"

/* Return whether the mode holds gradients in the workers' memory until an update. */
static bool holds(const struct twill_shard *shard)
{
    twill_server_mode mode = shard->server->options.mode;
    return mode == TWILL_SERVER_SYNC || mode == TWILL_SERVER_K_SYNC || mode == TWILL_SERVER_K_ASYNC;
}

/* Return whether the mode drops gradients that are older than the chunk. */
static bool drops(const struct twill_shard *shard)
{
    twill_server_mode mode = shard->server->options.mode;
    return mode == TWILL_SERVER_K_SYNC || mode == TWILL_SERVER_K_BATCH_SYNC;
}

/* Return how many gradients of workers that have left or died wait for the chunk's update. */
static uint32_t held_of_gone(const struct twill_shard *shard, const struct twill_chunk *chunk)
{
    uint32_t held = 0;
    for (uint32_t w = 0; w < shard->server->roles.workers; w++)
        held += shard->worker[w].gone && chunk->worker[w].push != NULL;
    return held;
}

/* Return how many gradients must wait at the chunk for its next update. In modes that hold
 * gradients, K is limited to those that can come. These are one from each worker that is present,
 * and those that wait here from workers that are gone. Sync mode needs all of these. */
static uint32_t needed(const struct twill_shard *shard, const struct twill_chunk *chunk)
{
    uint32_t most = atomic_load_explicit(&shard->present, memory_order_relaxed);
    if (!holds(shard))
        return shard->server->rule.need;
    if (most < shard->server->roles.workers)
        most += held_of_gone(shard, chunk);
    if (shard->server->options.mode == TWILL_SERVER_SYNC || most == 0)
        return most;
    return (uint32_t)twill_min(shard->server->rule.need, most);
}

/* Return the factor of the sum of `n` gradients, 1 / n for an average and otherwise 1. */
static float scale_of(const struct twill_shard *shard, uint32_t n)
{
    return shard->server->options.op == TWILL_AVG ? 1.0f / (float)n : 1.0f;
}

/* Return the gradients taken from the slowest present worker, or UINT64_MAX if none is present. */
static uint64_t slowest(const struct twill_shard *shard, const struct twill_chunk *chunk)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t w = 0; w < shard->server->roles.workers; w++)
        if (!shard->worker[w].gone)
            least = twill_min(least, chunk->worker[w].taken);
    return least;
}

/* Return whether the chunk may be delivered to worker `w` now. It may not while its replica lacks a
 * change, or while a push of the worker waits. In bounded mode the worker must also be at most
 * options.k gradients ahead of the slowest one. */
static bool may_pull(const struct twill_shard *shard, const struct twill_chunk *chunk, uint32_t w)
{
    if (chunk->changed || chunk->replicating || chunk->worker[w].push != NULL)
        return false;
    return shard->server->options.mode != TWILL_SERVER_BOUNDED ||
           chunk->worker[w].taken <= slowest(shard, chunk) + (uint64_t)shard->server->options.k;
}

/* Deliver the chunk to each worker whose waiting pull is now allowed. */
static void deliver_where_allowed(struct twill_shard *shard, struct twill_chunk *chunk)
{
    for (uint32_t w = 0; w < shard->server->roles.workers; w++)
        if (chunk->worker[w].pulls && may_pull(shard, chunk, w)) {
            chunk->worker[w].pulls = false;
            twill_shard_deliver(shard, chunk, w);
        }
}

void twill_chunk_pull(struct twill_shard *shard, struct twill_chunk *chunk, uint32_t w)
{
    if (may_pull(shard, chunk, w))
        twill_shard_deliver(shard, chunk, w);
    else
        chunk->worker[w].pulls = true;
}

/* Count an update of the chunk, in its version and in the shard's counters. Set the number of
 * gradients that wait to 0. */
static void end_update(struct twill_shard *shard, struct twill_chunk *chunk)
{
    chunk->version++;
    chunk->waiting = 0;
    shard->count.versions++;
    shard->count.updates++;
}

/* Note that worker w's gradient is in the chunk. Without a replica, answer the push. Otherwise mark
 * the chunk as changed. Then twill_chunk_copied() answers the push when the replica has the
 * change. */
static void answer_push(struct twill_shard *shard, struct twill_chunk *chunk, uint32_t w)
{
    if (shard->to == NULL) {
        twill_shard_pushed(shard, chunk, w);
        return;
    }
    chunk->worker[w].owed = true;
    chunk->changed = true;
}

/* Send the chunk to its replica if it has changed and is not already being sent. */
static void replicate(struct twill_shard *shard, struct twill_chunk *chunk)
{
    if (!chunk->changed || chunk->replicating)
        return;
    chunk->changed = false;
    chunk->replicating = true;
    twill_replica_send(shard, chunk);
}

/* Update the chunk with the held gradients in the order of ranks, which gives the bits of an
 * allreduce. Then answer their pushes, or mark the chunk as changed, and deliver where allowed. */
static void update_held(struct twill_shard *shard, struct twill_chunk *chunk)
{
    const void **data = shard->data;
    float *factor = shard->factor;
    uint32_t workers = shard->server->roles.workers;
    unsigned n = 0;
    bool weighted = shard->server->options.rate != TWILL_SERVER_RATE_FIXED;
    for (uint32_t w = 0; w < workers; w++)
        if (chunk->worker[w].push != NULL) {
            factor[n] = twill_chunk_factor(shard, chunk, w);
            data[n++] = chunk->worker[w].push;
        }
    twill_chunk_update(shard, chunk, data, weighted ? factor : NULL, n, scale_of(shard, n));
    end_update(shard, chunk);
    for (uint32_t w = 0; w < workers; w++)
        if (chunk->worker[w].push != NULL) {
            chunk->worker[w].push = NULL;
            answer_push(shard, chunk, w);
        }
    deliver_where_allowed(shard, chunk);
}

/* Update the chunk if enough gradients wait and it is not being sent to its replica. */
static void update_if_due(struct twill_shard *shard, struct twill_chunk *chunk)
{
    if (chunk->replicating || chunk->waiting == 0 || chunk->waiting < needed(shard, chunk))
        return;
    if (holds(shard)) {
        update_held(shard, chunk);
        return;
    }
    twill_chunk_update(shard, chunk, NULL, NULL, 0, scale_of(shard, chunk->waiting));
    end_update(shard, chunk);
}

void twill_chunk_recheck(struct twill_shard *shard, struct twill_chunk *chunk)
{
    if (holds(shard))
        update_if_due(shard, chunk);
    else
        deliver_where_allowed(shard, chunk);
    replicate(shard, chunk);
}

/* Return whether worker w's gradient, of its push `number`, is too old or in sync mode a duplicate.
 * Counts it as such, or else as a gradient, with its staleness. The caller drops or takes it. */
static bool is_refused(struct twill_shard *shard, const struct twill_chunk *chunk, uint32_t w,
                       uint64_t number)
{
    uint64_t staleness = chunk->version - chunk->worker[w].base;
    if (shard->server->options.mode == TWILL_SERVER_SYNC && number <= chunk->version) {
        shard->count.duplicates++;
        return true;
    }
    if (drops(shard) && staleness > 0) {
        shard->count.dropped++;
        return true;
    }
    shard->count.gradients++;
    shard->count.staleness[twill_min(staleness, TWILL_STALENESS_MOST - 1)]++;
    return false;
}

/* Use worker w's gradient `data` in a mode that does not hold gradients until an update. Add it to
 * the chunk's sum, and update when enough are in it. A chunk without a sum is updated at once. Then
 * answer the push (answer_push()). If the gradient is too old, only answer its push. */
static void take_gradient(struct twill_shard *shard, struct twill_chunk *chunk, uint32_t w,
                          const void *data)
{
    if (is_refused(shard, chunk, w, UINT64_MAX)) {
        twill_shard_pushed(shard, chunk, w);
        return;
    }
    float factor = twill_chunk_factor(shard, chunk, w);
    chunk->waiting++;
    chunk->worker[w].taken++;
    if (chunk->sum != NULL) {
        twill_chunk_add(shard, chunk, chunk->sum, data, factor);
        update_if_due(shard, chunk);
    } else {
        twill_chunk_update(shard, chunk, &data, NULL, 1, factor);
        end_update(shard, chunk);
    }
    answer_push(shard, chunk, w);
    if (shard->server->options.mode == TWILL_SERVER_BOUNDED)
        deliver_where_allowed(shard, chunk);
}

/* Keep worker w's gradient `data` until the chunk's update, which is made now if this is the last
 * gradient that it needs. If the gradient is too old or a duplicate, drop it and answer its push
 * instead. `number` is that of the push. */
static void hold_gradient(struct twill_shard *shard, struct twill_chunk *chunk, uint32_t w,
                          const void *data, uint64_t number)
{
    if (is_refused(shard, chunk, w, number)) {
        twill_shard_pushed(shard, chunk, w);
        return;
    }
    chunk->waiting++;
    chunk->worker[w].push = data;
    update_if_due(shard, chunk);
}

void twill_chunk_push(struct twill_shard *shard, struct twill_chunk *chunk, uint32_t w,
                      const void *data, uint64_t number)
{
    if (holds(shard))
        hold_gradient(shard, chunk, w, data, number);
    else if (chunk->replicating)
        chunk->worker[w].push = data;
    else
        take_gradient(shard, chunk, w, data);
    replicate(shard, chunk);
}

/* Take the gradients that arrived while the chunk was being sent, and deliver the chunk where
 * allowed. */
static void take_late(struct twill_shard *shard, struct twill_chunk *chunk)
{
    for (uint32_t w = 0; w < shard->server->roles.workers; w++) {
        const void *data = chunk->worker[w].push;
        if (data == NULL)
            continue;
        chunk->worker[w].push = NULL;
        take_gradient(shard, chunk, w, data);
    }
    deliver_where_allowed(shard, chunk); /* to workers whose gradients were refused */
}

void twill_chunk_copied(struct twill_shard *shard, struct twill_chunk *chunk)
{
    chunk->replicating = false;
    for (uint32_t w = 0; w < shard->server->roles.workers; w++)
        if (chunk->worker[w].owed) {
            chunk->worker[w].owed = false;
            twill_shard_pushed(shard, chunk, w);
        }
    deliver_where_allowed(shard, chunk);
    if (holds(shard))
        update_if_due(shard, chunk);
    else
        take_late(shard, chunk);
    replicate(shard, chunk);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The size of chunks if options.chunk_bytes is 0. It is that of an older server or its files, or
 * the fastest in a trial. For small tensors, slow networks and compressed pushes a rule sets it. */
#include "lib/base/times.h"
#include "lib/server/server.h"
#include "lib/train/shared/shared.h"

#include <math.h>

static const size_t chunk_sizes[] = {(size_t)32 << 10, (size_t)64 << 10, (size_t)128 << 10,
                                     (size_t)256 << 10};

#define RULE ((size_t)128 << 10)
/* Chunks of a shard at least, so that the shards' loads are similar. Between nodes a chunk more
 * costs more than that gains. */
#define CHUNKS_OF_SHARD         4u
#define CHUNKS_OF_SHARD_BETWEEN 2u

/* A trial exchanges a sample of the tensors in synchronous mode. */
#define TRIAL_BYTES_MOST  ((size_t)16 << 20) /* bytes */
#define TRIAL_BYTES_LEAST ((size_t)4 << 20)
/* of the exchange that sizes the sample, and of one before it, the last on a slow network */
#define TRIAL_BYTES_PROBE ((size_t)512 << 10)
#define TRIAL_BYTES_FIRST ((size_t)4 << 10)

/* Return the bytes of all tensors. */
static uint64_t total_bytes(const struct twill_server *server)
{
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < server->keys; k++)
        bytes += server->key[k].bytes;
    return bytes;
}

/* Return whether the tensors have bytes for enough chunks of this size on each shard. */
static bool divides(const struct twill_server *server, size_t size)
{
    size_t chunks = twill_extend_comm(server->parent).world->nodes > 1 ? CHUNKS_OF_SHARD_BETWEEN
                                                                       : CHUNKS_OF_SHARD;
    return size * chunks * server->roles.shards <= total_bytes(server);
}

/* Return the chunk size without a trial. It is RULE, halved, down to the least of chunk_sizes,
 * until each shard has enough chunks. */
static size_t size_by_rule(const struct twill_server *server)
{
    size_t size = RULE;
    while (size > chunk_sizes[0] && !divides(server, size))
        size /= 2;
    return size;
}

/* Return the worst status of all ranks in the trial of chunk sizes, of which `status` is this
 * rank's. Break the server unless that is TWILL_OK or TWILL_ERR_MEMORY, or if the exchange fails.
 * `message` explains `status`, and is used if no rank has a worse one. Collective. */
static twill_status agree_to_go_on(struct twill_server *server, twill_status status,
                                   const char *message)
{
    twill_status call, worst = twill_server_worst_status(server->parent, status, &call);
    TWILL_TRY(NULL, twill_server_check_call(server, server->parent, call));
    if (worst == TWILL_OK || worst == TWILL_ERR_MEMORY)
        return worst;
    if (status == worst)
        return TWILL_SERVER_FAIL(server, status, "%s", message);
    return TWILL_SERVER_FAIL(server, worst,
                             "rank %u: the trial of chunk sizes has failed on another rank: %s",
                             server->rank, twill_strerror(worst));
}

/* Register with server `to` tensors of the same names and types as the first ones of `server`,
 * until they have about `bytes` bytes together. The last may have fewer elements. Returns TWILL_OK
 * or the error of twill_server_add(). */
static twill_status add_sample(struct twill_server *to, const struct twill_server *server,
                               size_t bytes)
{
    for (uint32_t k = 0; k < server->keys && bytes > 0; k++) {
        const struct twill_server_key *key = &server->key[k];
        size_t width = twill_type_size(key->type),
               count = twill_min(key->count, twill_max(bytes / width, 1));
        const twill_tensor tensor = {.name = key->name, .count = count, .type = key->type};
        TWILL_TRY(NULL, twill_server_add(to, &tensor, NULL));
        bytes -= twill_min(bytes, count * width);
    }
    return TWILL_OK;
}

/* At a rank that works, push and pull all tensors of the trial's server `sample`, step after step,
 * until `search` has timed its present candidate. At a rank that only serves, serve until all
 * workers have left, and count the candidate as timed. Returns TWILL_OK or the error. */
static twill_status exchange_sample(struct twill_server *sample, struct twill_step_search *search)
{
    if (!twill_server_works(sample)) {
        search->at++; /* the workers measure its seconds */
        return twill_server_serve(sample);
    }
    twill_search_restart(search);
    do {
        for (uint32_t k = sample->keys; k-- > 0;)
            TWILL_TRY(NULL, twill_server_push_pull(sample, (int)k));
        TWILL_TRY(NULL, twill_server_wait(sample, -1));
    } while (!twill_search_end_step(search, true));
    return TWILL_OK;
}

/* Time chunk size `size` as the next candidate of `search`, by steps of another server over about
 * `bytes` bytes of the tensors. Returns TWILL_OK, TWILL_ERR_MEMORY, after which `server` is still
 * usable, or another error, which breaks `server`. Collective. */
static twill_status try_size(struct twill_server *server, size_t size, size_t bytes,
                             struct twill_step_search *search)
{
    struct twill_server *sample = NULL;
    twill_server_options options = server->options;
    options.chunk_bytes = size;
    options.mode = TWILL_SERVER_SYNC;
    options.k = 1;
    options.rate = TWILL_SERVER_RATE_FIXED;
    options.ranks = (const int *)server->roles.server_rank;
    twill_status status = twill_server_create(&sample, server->parent, &options);
    if (status == TWILL_OK)
        status = add_sample(sample, server, bytes);
    status = agree_to_go_on(server, status,
                            sample != NULL ? twill_server_message(sample)
                                           : twill_comm_message(server->parent));
    if (status == TWILL_OK)
        status = twill_server_commit(sample);
    if (status == TWILL_OK)
        status = exchange_sample(sample, search);
    if (status != TWILL_OK && status != TWILL_ERR_MEMORY && !atomic_load(&server->failure.broken))
        (void)TWILL_SERVER_FAIL(server, status, "%s", twill_server_message(sample));
    twill_server_destroy(sample);
    return status;
}

/* Time the chunk sizes sizes[count], with `bytes` bytes of tensors in a step. search->seconds[i]
 * receives the seconds of a step with sizes[i] on the slowest rank. The caller calls
 * twill_search_free() also after an error. Returns TWILL_OK or the error of try_size().
 * Collective. */
static twill_status try_sizes(struct twill_server *server, const size_t *sizes, unsigned count,
                              size_t bytes, struct twill_step_search *search)
{
    twill_status status = twill_search_begin(search, count, &server->failure.error);
    TWILL_TRY(NULL, agree_to_go_on(server, status, server->failure.error.message));
    for (unsigned i = 0; i < count; i++)
        TWILL_TRY(NULL, try_size(server, sizes[i], bytes, search));
    return twill_server_check_call(server, server->parent,
                                   twill_search_agree(search, server->parent));
}

/* Set *bytes, equal on all ranks, to the bytes of tensors that a step of the trial of sizes may
 * exchange (4 to 16 MiB). They follow from the time of two smaller steps. If these show that the
 * network is too slow for a trial, the result is 0. Returns TWILL_OK or the error of try_sizes().
 * Collective. */
static twill_status size_sample(struct twill_server *server, size_t *bytes)
{
    static const size_t probes[] = {TRIAL_BYTES_FIRST, TRIAL_BYTES_PROBE};
    const size_t rule = size_by_rule(server);
    *bytes = TRIAL_BYTES_LEAST;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(probes) && *bytes > 0; i++) {
        struct twill_step_search search = {0};
        twill_status status = try_sizes(server, &rule, 1, probes[i], &search);
        double most = 0;
        if (status == TWILL_OK)
            most = TWILL_CHUNK_TRIAL_SECONDS / search.seconds[0] * (double)TRIAL_BYTES_PROBE;
        twill_search_free(&search);
        *bytes =
            most < (double)TRIAL_BYTES_LEAST ? 0 : (size_t)fmin(most, (double)TRIAL_BYTES_MOST);
        TWILL_TRY(NULL, status);
    }
    return TWILL_OK;
}

/* Set cut.chunk_bytes to the fastest size of a trial, and log it. Leave it 0 if there is one rank,
 * the tensors are too small, or the network is too slow for a trial. Returns TWILL_OK in these
 * cases, TWILL_ERR_MEMORY, or another error, which breaks the server. Collective. */
static twill_status choose_by_trial(struct twill_server *server)
{
    struct twill_step_search search = {0};
    unsigned count = 0;
    size_t bytes;
    while (count < TWILL_ARRAY_LENGTH(chunk_sizes) && divides(server, chunk_sizes[count]))
        count++;
    if (count < 2 || total_bytes(server) < TRIAL_BYTES_LEAST || server->size == 1)
        return TWILL_OK;
    TWILL_TRY(NULL, size_sample(server, &bytes));
    if (bytes == 0)
        return TWILL_OK;
    twill_status status = try_sizes(server, chunk_sizes, count, bytes, &search);
    if (status == TWILL_OK) {
        unsigned best = twill_search_fastest(&search, count);
        server->cut.chunk_bytes = chunk_sizes[best];
        server->cut.chunk_choice = "the fastest in a trial";
        twill_say(server->process.log, twill_log_once(TWILL_LOG_INFO, server->rank == 0),
                  "server: options.chunk_bytes = %zu is the fastest of %u (%.6f s for %zu bytes; "
                  "%zu: %.6f s)",
                  chunk_sizes[best], count, search.seconds[best], bytes, chunk_sizes[0],
                  search.seconds[0]);
    }
    twill_search_free(&search);
    return status;
}

/* Set cut.chunk_bytes on all ranks to the size that some ranks have there already. They have it
 * from the server that this one replaces, or from a file. If no rank has one, leave it 0. Returns
 * TWILL_OK, or the error that breaks the server, TWILL_ERR_MISMATCH if sizes differ. Collective. */
static twill_status take_known(struct twill_server *server)
{
    uint64_t own = server->cut.chunk_bytes, word[2] = {own, own == 0 ? 0 : ~own};
    TWILL_TRY(NULL, twill_server_check_call(
                        server, server->parent,
                        twill_allreduce(server->parent, word, word, 2, TWILL_U64, TWILL_MAX)));
    if (word[0] != 0 && word[0] != ~word[1])
        return TWILL_SERVER_FAIL(
            server, TWILL_ERR_MISMATCH, "rank %u: ranks bring chunks of %llu and of %llu bytes",
            server->rank, (unsigned long long)~word[1], (unsigned long long)word[0]);
    if (word[0] != 0) {
        server->cut.chunk_bytes = word[0];
        server->cut.chunk_choice = "as before";
    }
    return TWILL_OK;
}

twill_status twill_server_choose_chunk_bytes(struct twill_server *server)
{
    if (server->options.chunk_bytes != 0)
        return TWILL_OK;
    TWILL_TRY(NULL, take_known(server));
    if (server->cut.chunk_bytes == 0 && server->options.compression == TWILL_COMPRESS_NONE) {
        twill_status status = choose_by_trial(server);
        bool lacks_memory = status == TWILL_ERR_MEMORY && !atomic_load(&server->failure.broken);
        if (status != TWILL_OK && !lacks_memory) /* which all ranks know */
            return status;
    }
    if (server->cut.chunk_bytes == 0) {
        server->cut.chunk_bytes = size_by_rule(server);
        server->cut.chunk_choice = "by the rule";
    }
    return TWILL_OK;
}

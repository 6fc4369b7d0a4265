/* SPDX-License-Identifier: Apache-2.0 */
/* A server from creation to end. */
#include "lib/base/lists.h"
#include "lib/server/server.h"
#include "lib/server/state/state.h"
#include "lib/wait/wait.h"

#include <stdlib.h>
#include <string.h>

/* Free a server with its keys, places, roles and records. All else of it has been freed. */
static void free_server(struct twill_server *server)
{
    for (uint32_t k = 0; k < server->keys; k++)
        free(server->key[k].name);
    twill_server_drop_state(server);
    free(server->key);
    free(server->cut.place);
    free(server->roles.server_rank);
    free(server->roles.worker_rank);
    free(server->roles.suspect);
    pthread_mutex_destroy(&server->failure.lock);
    pthread_mutex_destroy(&server->work.posting);
    free(server);
}

twill_status twill_server_create(twill_server **made, twill_comm *comm,
                                 const twill_server_options *options)
{
    struct twill_error error = {0};
    if (made == NULL)
        return TWILL_ERR_ARGUMENT;
    *made = NULL;
    twill_context *context = twill_comm_context(comm);
    if (context == NULL)
        return TWILL_ERR_ARGUMENT;
    struct twill_server *server = calloc(1, sizeof(*server));
    if (server == NULL)
        return twill_extend_fail(comm, TWILL_EXTEND_REFUSES, "twill_server_create",
                                 TWILL_ERR_MEMORY, "out of memory");
    pthread_mutex_init(&server->failure.lock, NULL);
    pthread_mutex_init(&server->work.posting, NULL);
    server->process = twill_extend_process(context);
    server->parent = comm;
    server->rank = (uint32_t)twill_comm_rank(comm);
    server->size = (uint32_t)twill_comm_size(comm);
    twill_status status = twill_server_set_options(server, options, &error);
    if (status == TWILL_OK && (status = twill_server_cast(server)) != TWILL_OK)
        error = server->failure.error;
    if (status != TWILL_OK) {
        free_server(server);
        return twill_extend_fail(comm, TWILL_EXTEND_REFUSES, "twill_server_create", status, "%s",
                                 error.message);
    }
    *made = server;
    return TWILL_OK;
}

/* Return whether a tensor's gradients would be sent as lists whose indices are too short for it. */
static bool is_too_long_for_lists(const struct twill_server *server, const twill_tensor *tensor)
{
    const twill_server_options *o = &server->options;
    return o->chunk_bytes == TWILL_SERVER_WHOLE_TENSORS && tensor->type == TWILL_F32 &&
           tensor->uncompressed == 0 && o->compression >= TWILL_COMPRESS_TOP_K &&
           tensor->count > UINT32_MAX;
}

/* Return TWILL_OK if this tensor can be registered now, or refuse it with TWILL_ERR_ARGUMENT. */
static twill_status check_new_key(struct twill_server *server, const twill_tensor *tensor)
{
    if (server->committed)
        return TWILL_SERVER_REFUSE(server, "twill_server_add: call it before the commit");
    if (server->past.loaded)
        return TWILL_SERVER_REFUSE(server, "twill_server_add: call it before the load");
    if (tensor == NULL || tensor->name == NULL || tensor->name[0] == '\0')
        return TWILL_SERVER_REFUSE(server, "twill_server_add: tensor %u has no name", server->keys);
    const char *name = tensor->name;
    size_t width = twill_type_size(tensor->type);
    if (width == 0)
        return TWILL_SERVER_REFUSE(server, "tensor '%s': type %d is not a twill_type", name,
                                   (int)tensor->type);
    if (tensor->count == 0 || tensor->count > SIZE_MAX / 8 / width)
        return TWILL_SERVER_REFUSE(server, "tensor '%s': count %zu is outside 1 .. %zu", name,
                                   tensor->count, SIZE_MAX / 8 / width);
    if (is_too_long_for_lists(server, tensor))
        return TWILL_SERVER_REFUSE(server,
                                   "tensor '%s': %zu elements in one chunk, which lists of top-k "
                                   "and threshold cannot number: set options.chunk_bytes",
                                   name, tensor->count);
    if (server->keys == TWILL_SERVER_KEYS_MOST)
        return TWILL_SERVER_REFUSE(server, "tensor '%s': the server has %u tensors, the maximum",
                                   name, TWILL_SERVER_KEYS_MOST);
    bool holds =
        server->options.mode <= TWILL_SERVER_K_SYNC || server->options.mode == TWILL_SERVER_K_ASYNC;
    if (tensor->type != TWILL_F32 &&
        (server->rule.has_optimizer || !holds || server->options.rate != TWILL_SERVER_RATE_FIXED))
        return TWILL_SERVER_REFUSE(server,
                                   "tensor '%s': %s, but an optimizer, and every mode but "
                                   "sync, K-sync and K-async, needs f32",
                                   name, twill_type_name(tensor->type));
    for (uint32_t k = 0; k < server->keys; k++)
        if (strcmp(server->key[k].name, name) == 0)
            return TWILL_SERVER_REFUSE(server, "tensor '%s' is registered twice", name);
    return TWILL_OK;
}

twill_status twill_server_add(twill_server *server, const twill_tensor *tensor, int *key)
{
    if (server == NULL)
        return TWILL_ERR_ARGUMENT;
    TWILL_TRY(NULL, check_new_key(server, tensor));
    if (server->keys == server->keys_held) {
        uint32_t held = server->keys_held == 0 ? 64 : 2 * server->keys_held;
        void *grown = realloc(server->key, held * sizeof(*server->key));
        if (grown == NULL)
            return TWILL_ERR_MEMORY;
        server->key = grown;
        server->keys_held = held;
    }
    char *name = strdup(tensor->name);
    if (name == NULL)
        return TWILL_ERR_MEMORY;
    struct twill_server_key *added = &server->key[server->keys];
    memset(added, 0, sizeof(*added));
    added->name = name;
    added->count = tensor->count;
    added->bytes = tensor->count * twill_type_size(tensor->type);
    added->type = tensor->type;
    added->gradient = tensor->gradient;
    added->parameters = tensor->parameters;
    added->coded = server->options.compression != TWILL_COMPRESS_NONE &&
                   tensor->type == TWILL_F32 && tensor->uncompressed == 0;
    if (key != NULL)
        *key = (int)server->keys;
    server->keys++;
    return TWILL_OK;
}

twill_status twill_server_worst_status(twill_comm *comm, twill_status status, twill_status *call)
{
    int32_t mine = (int32_t)status, worst = mine;
    *call = twill_allreduce(comm, &mine, &worst, 1, TWILL_I32, TWILL_MIN);
    return (twill_status)worst;
}

/* Return TWILL_OK if no rank has failed. Otherwise break the server and return this rank's own
 * `status` or, if that is TWILL_OK, the worst of all. If this is before any shard runs, also note
 * that no rank uses offered memory. Collective over `comm`. */
static twill_status agree_status(struct twill_server *server, twill_comm *comm, twill_status status)
{
    twill_status call, worst = twill_server_worst_status(comm, status, &call);
    if (call == TWILL_OK && worst != TWILL_OK && !server->starts)
        server->memory.offered = false; /* no rank continues, and no shard runs yet */
    if (status != TWILL_OK)
        return TWILL_SERVER_FAIL(server, status, "%s", server->failure.error.message);
    TWILL_TRY(NULL, twill_server_check_call(server, comm, call));
    if (worst != TWILL_OK)
        return TWILL_SERVER_FAIL(server, worst,
                                 "rank %u: twill_server_commit() has failed on another rank: %s",
                                 server->rank, twill_strerror(worst));
    return TWILL_OK;
}

/* Set rule.need from the mode. It is 1 in async and bounded, and floor(workers / options.k) but at
 * least 1 in softsync. Otherwise it is options.k, which mode sync does not use. */
static void set_need(struct twill_server *server)
{
    uint32_t k = (uint32_t)server->options.k;
    switch (server->options.mode) {
    case TWILL_SERVER_ASYNC:
    case TWILL_SERVER_BOUNDED:
        server->rule.need = 1;
        break;
    case TWILL_SERVER_SOFTSYNC:
        server->rule.need = (uint32_t)twill_max(server->roles.workers / k, 1);
        break;
    default:
        server->rule.need = k;
    }
}

/* Run the steps of the commit up to the start of the shards' threads. The caller then marks the
 * server as committed and pulls the parameters. If a step fails on a rank, returns an error on all.
 * Collective. */
static twill_status commit_server(struct twill_server *server)
{
    TWILL_TRY(NULL, twill_server_compare(server));
    set_need(server);
    TWILL_TRY(NULL, twill_server_choose_chunk_bytes(server));
    twill_status status = server->cut.place == NULL ? twill_server_place(server) : TWILL_OK;
    TWILL_TRY(NULL, agree_status(server, server->parent, status));
    TWILL_TRY(NULL, twill_server_check_call(server, server->parent,
                                            twill_comm_dup(&server->comm, server->parent)));
    status = twill_server_open_memory(server);
    if (status == TWILL_OK && twill_server_serves(server))
        status = twill_shards_open(server);
    TWILL_TRY(NULL, agree_status(server, server->comm, status));
    server->starts = true;
    TWILL_TRY(NULL, twill_server_spread_state(server));
    if (twill_server_serves(server))
        status = twill_replicas_open(server);
    if (status == TWILL_OK && twill_server_serves(server))
        status = twill_shard_threads_start(server);
    return agree_status(server, server->comm, status);
}

/* Pull all keys at a worker, and wait for that. Does nothing at other ranks. Returns the status. */
static twill_status pull_all(struct twill_server *server)
{
    for (uint32_t k = 0; k < server->keys && twill_server_works(server); k++)
        TWILL_TRY(NULL, twill_server_pull(server, (int)k));
    return twill_server_works(server) ? twill_server_wait(server, -1) : TWILL_OK;
}

/* Advance a server, for threads that wait for others. Returns whether something moved. */
static bool advance_server(void *server)
{
    return twill_server_progress(server);
}

twill_status twill_server_commit(twill_server *server)
{
    if (server == NULL)
        return TWILL_ERR_ARGUMENT;
    if (atomic_load(&server->failure.broken))
        return TWILL_ERR_BROKEN;
    if (server->committed)
        return TWILL_SERVER_REFUSE(server, "twill_server_commit() was called before");
    if (*server->process.fork_guard == 0)
        return TWILL_ERR_FORKED;
    twill_status status = commit_server(server);
    if (status != TWILL_OK)
        return status;
    twill_server_drop_state(server);
    server->committed = true;
    server->hook = calloc(1, sizeof(*server->hook));
    if (server->hook == NULL)
        return TWILL_SERVER_FAIL(server, TWILL_ERR_MEMORY, "out of memory for a server");
    server->hook->advance = advance_server;
    server->hook->object = server;
    twill_advancer_add(server->process.context, server->hook);
    status = pull_all(server);
    return status == TWILL_ERR_BROKEN ? server->failure.error.status : status;
}

/* Remove and free server->hook, if any, so that no thread that waits for something else advances
 * the server. Returns false, keeping the hook, if one is still in it after TWILL_TIMEOUT. */
static bool unhook(struct twill_server *server, const twill_context *context)
{
    if (server->hook != NULL && !twill_advancer_remove(server->hook, context))
        return false;
    free(server->hook);
    server->hook = NULL;
    return true;
}

/* Wait in a barrier until all ranks have stopped their shards, which may map this rank's memory.
 * Returns false if the barrier fails, as after the death of a rank. */
static bool all_have_stopped(struct twill_server *server)
{
    twill_extend_hurry(server->comm);
    return twill_barrier(server->comm) == TWILL_OK;
}

/* End and free a server and those it has replaced. `end` says what the other ranks do meanwhile.
 * Memory that a live rank of this node may still use is kept as long as the context. If another
 * thread has been advancing the server for TWILL_TIMEOUT, only stop the shards' threads and
 * warn. */
static void close_server(struct twill_server *server, twill_context *context,
                         enum twill_server_end end)
{
    bool together = end == TWILL_SERVER_END_TOGETHER;
    bool unused = unhook(server, context);
    twill_shard_threads_stop(server);
    if (!unused) {
        twill_say(server->process.log, TWILL_LOG_WARN,
                  "rank %u: a server is kept, and so are its communicator and the context: another "
                  "thread, which waits for something else, has been advancing it for TWILL_TIMEOUT",
                  server->rank);
        return;
    }
    server->process = twill_extend_process(context); /* no other thread reads it any more */
    if (server->shard != NULL)
        twill_replicas_close(server, together);
    if (server->link != NULL)
        twill_links_close(server, together);
    if (server->shard != NULL)
        twill_shards_close(server);
    if (together && all_have_stopped(server))
        end = TWILL_SERVER_END_STOPPED;
    uint32_t user =
        end == TWILL_SERVER_END_STOPPED ? TWILL_NO_RANK : twill_server_memory_user(server);
    if (user != TWILL_NO_RANK)
        twill_say(server->process.log, TWILL_LOG_INFO,
                  "rank %u: memory of a server is kept, as rank %u lives, but has not ended it",
                  server->rank, user);
    twill_server_close_memory(server, user != TWILL_NO_RANK);
    if (together)
        twill_comm_destroy(server->comm);
    else
        twill_comm_leave(server->comm);
    twill_server_drop_old(server, end);
    free_server(server);
}

void twill_server_drop_old(struct twill_server *server, enum twill_server_end end)
{
    struct twill_server *old = server->past.old;
    server->past.old = NULL;
    if (old != NULL)
        close_server(old, server->process.context, end);
}

void twill_server_destroy(twill_server *server)
{
    if (server == NULL || *server->process.fork_guard == 0) /* it belongs to the parent */
        return;
    enum twill_server_end end =
        server->committed ? TWILL_SERVER_END_TOGETHER : TWILL_SERVER_END_ALONE;
    if (end == TWILL_SERVER_END_TOGETHER) {
        if (twill_server_works(server))
            (void)twill_server_leave(server);
        if (twill_server_serves(server))
            (void)twill_server_serve(server);
        if (twill_server_lacks(server)) /* wait for no rank, as all learn of it */
            end = TWILL_SERVER_END_ALONE;
    }
    close_server(server, server->process.context, end);
}

/* Register the tensors of `from` with `to`. Returns TWILL_ERR_MEMORY if `to` does not take one. */
static twill_status add_again(struct twill_server *to, const struct twill_server *from)
{
    for (uint32_t k = 0; k < from->keys; k++) {
        const struct twill_server_key *key = &from->key[k];
        const twill_tensor tensor = {.name = key->name,
                                     .count = key->count,
                                     .type = key->type,
                                     .gradient = key->own_gradient ? NULL : key->gradient,
                                     .parameters = key->own_parameters ? NULL : key->parameters,
                                     .uncompressed = !key->coded && from->options.compression !=
                                                                        TWILL_COMPRESS_NONE};
        if (twill_server_add(to, &tensor, NULL) != TWILL_OK)
            return TWILL_FAIL(&to->failure.error, TWILL_ERR_MEMORY, "%s", twill_server_message(to));
    }
    return TWILL_OK;
}

/* Give the successor the old server, which it ends later, with the tensors, hyperparameters, chunk
 * size and chunks' records that this rank has of it. Returns TWILL_OK or the error, which the
 * caller keeps for the commit, where all ranks learn it. The successor owns `from` in both
 * cases. */
static twill_status hand_over(struct twill_server *to, struct twill_server *from)
{
    to->past.old = from;
    to->past.successor = from->committed || from->past.successor;
    to->rule.optimizer = from->rule.optimizer;
    to->rule.settings = from->rule.settings;
    to->cut.chunk_bytes = from->cut.chunk_bytes;
    TWILL_TRY(NULL, add_again(to, from));
    if (to->cut.chunk_bytes == 0) /* the commit of `from` failed early */
        return TWILL_OK;
    TWILL_TRY(NULL, twill_server_place(to));
    if (from->committed)
        return twill_server_hold_state(to, from);
    to->past.held = from->past.held; /* of a rebuild that failed */
    from->past.held = NULL;
    return TWILL_OK;
}

twill_status twill_server_rebuild(twill_server **server, twill_comm *comm)
{
    if (server == NULL || *server == NULL || twill_comm_context(comm) == NULL)
        return TWILL_ERR_ARGUMENT;
    struct twill_server *old = *server, *made = NULL;
    if (*old->process.fork_guard == 0)
        return TWILL_ERR_FORKED;
    if (!unhook(old, old->process.context))
        return TWILL_SERVER_FAIL(old, TWILL_ERR_TIMEOUT,
                                 "rank %u: a server cannot be rebuilt: another thread, which waits "
                                 "for something else, has been advancing it for TWILL_TIMEOUT",
                                 old->rank);
    twill_shard_threads_stop(old);
    twill_server_options options = old->options;
    options.ranks = NULL;
    twill_status status = twill_server_create(&made, comm, &options);
    if (status == TWILL_ERR_MEMORY) { /* the others are in the commit */
        old->parent = comm;
        return twill_server_fail_compare(old, status);
    }
    /* With too few ranks for the layout, the old server keeps the state until there are more. */
    TWILL_TRY(NULL, status);
    made->past.lacking = hand_over(made, old);
    *server = made;
    return twill_server_commit(made);
}

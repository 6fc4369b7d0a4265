/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of a training step (push, pull, test, wait) and those that end a rank's part. */
#include "lib/server/server.h"

/* Return TWILL_OK if this rank may push or pull a key, or else the error for `call` to return. */
static twill_status check_key(struct twill_server *server, const char *call, int key)
{
    if (server == NULL)
        return TWILL_ERR_ARGUMENT;
    if (atomic_load(&server->failure.broken))
        return TWILL_ERR_BROKEN;
    if (!server->committed)
        return TWILL_SERVER_REFUSE(server, "%s: call twill_server_commit() first", call);
    if (*server->process.fork_guard == 0)
        return TWILL_ERR_FORKED;
    if (!twill_server_works(server))
        return TWILL_SERVER_REFUSE(server, "%s: this rank is not a worker", call);
    if (server->work.left)
        return TWILL_SERVER_REFUSE(server, "%s: this rank has left the server", call);
    if (key < 0 || (uint32_t)key >= server->keys)
        return TWILL_SERVER_REFUSE(server, "%s: key %d is outside 0 .. %d", call, key,
                                   (int)server->keys - 1);
    return TWILL_OK;
}

/* Return whether the last push or pull that was begun has not ended, by the key's two counters. */
static bool is_under_way(_Atomic uint64_t *begun, _Atomic uint64_t *ended)
{
    return atomic_load_explicit(ended, memory_order_acquire) !=
           atomic_load_explicit(begun, memory_order_relaxed);
}

/* Begin a push, a pull or both of key `index`, by `kind` (TWILL_ORDER_*), for `call`. Returns
 * TWILL_OK, the error of check_key(), or TWILL_ERR_ARGUMENT if one of the same kind is under
 * way. */
static twill_status begin(struct twill_server *server, int index, unsigned kind, const char *call)
{
    TWILL_TRY(NULL, check_key(server, call, index));
    struct twill_server_key *key = &server->key[index];
    if ((kind & TWILL_ORDER_PUSH) != 0 && is_under_way(&key->pushes, &key->pushes_end))
        return TWILL_SERVER_REFUSE(server, "%s: a push of tensor '%s' is under way", call,
                                   key->name);
    if ((kind & TWILL_ORDER_PULL) != 0 && is_under_way(&key->pulls, &key->pulls_end))
        return TWILL_SERVER_REFUSE(server, "%s: a pull of tensor '%s' is under way", call,
                                   key->name);
    if ((kind & TWILL_ORDER_PUSH) != 0) {
        twill_server_encode(server, key);
        atomic_fetch_add_explicit(&key->pushes, 1, memory_order_relaxed);
    }
    if ((kind & TWILL_ORDER_PULL) != 0)
        atomic_fetch_add_explicit(&key->pulls, 1, memory_order_relaxed);
    return twill_server_post(server, index, kind);
}

twill_status twill_server_push(twill_server *server, int key)
{
    return begin(server, key, TWILL_ORDER_PUSH, "twill_server_push");
}

twill_status twill_server_pull(twill_server *server, int key)
{
    return begin(server, key, TWILL_ORDER_PULL, "twill_server_pull");
}

twill_status twill_server_push_pull(twill_server *server, int key)
{
    return begin(server, key, TWILL_ORDER_PUSH | TWILL_ORDER_PULL, "twill_server_push_pull");
}

twill_status twill_server_push_pull_all(twill_server *server, size_t count, const int *keys)
{
    if (count > 0 && keys == NULL)
        return TWILL_ERR_ARGUMENT;
    for (size_t i = 0; i < count; i++)
        TWILL_TRY(NULL, begin(server, keys[i], TWILL_ORDER_PUSH | TWILL_ORDER_PULL,
                              "twill_server_push_pull_all"));
    return TWILL_OK;
}

/* Return whether no push of key `index` is under way. If all shards have answered the one under
 * way, end it first. */
static bool push_has_ended(struct twill_server *server, int index)
{
    struct twill_server_key *key = &server->key[index];
    uint64_t number = atomic_load_explicit(&key->pushes, memory_order_relaxed);
    if (!is_under_way(&key->pushes, &key->pushes_end))
        return true;
    for (uint32_t c = 0; c < server->roles.shards; c++)
        if (server->work.port[c].chunks[index] > 0 &&
            atomic_load_explicit(&server->work.port[c].answer[index].pushed, memory_order_acquire) <
                number)
            return false;
    atomic_store_explicit(&key->pushes_end, number, memory_order_release);
    return true;
}

/* Return whether no pull of key `index` is under way. If all shards have answered the one under
 * way, end it. The end sets the key's version, and copies the parameters to the caller's memory
 * unless they were received there. */
static bool pull_has_ended(struct twill_server *server, int index)
{
    struct twill_server_key *key = &server->key[index];
    uint64_t number = atomic_load_explicit(&key->pulls, memory_order_relaxed), version = UINT64_MAX;
    if (!is_under_way(&key->pulls, &key->pulls_end))
        return true;
    for (uint32_t c = 0; c < server->roles.shards; c++) {
        struct twill_answer *answer = &server->work.port[c].answer[index];
        if (server->work.port[c].chunks[index] == 0)
            continue;
        if (atomic_load_explicit(&answer->pulled, memory_order_acquire) < number)
            return false;
        version = twill_min(version, atomic_load_explicit(&answer->version, memory_order_relaxed));
    }
    twill_server_land(server, key);
    atomic_store_explicit(&key->version, version, memory_order_relaxed);
    atomic_store_explicit(&key->pulls_end, number, memory_order_release);
    return true;
}

/* Return whether a key, or every key if -1, has no push or pull under way. Ends what all shards
 * have answered, with -1 only up to the first key that has not ended. */
static bool key_has_ended(struct twill_server *server, int index)
{
    if (index >= 0) {
        bool pushed = push_has_ended(server, index);
        return pull_has_ended(server, index) && pushed;
    }
    for (uint32_t k = 0; k < server->keys; k++)
        if (!key_has_ended(server, (int)k))
            return false;
    return true;
}

twill_status twill_server_test(twill_server *server, int key, int *done)
{
    if (done == NULL)
        return TWILL_ERR_ARGUMENT;
    *done = 0;
    TWILL_TRY(NULL, check_key(server, "twill_server_test", key < 0 ? 0 : key));
    (void)twill_server_progress(server);
    *done = key_has_ended(server, key);
    twill_server_tell_loss(server);
    return *done ? TWILL_OK : twill_server_check(server, key);
}

twill_status twill_server_wait(twill_server *server, int key)
{
    TWILL_TRY(NULL, check_key(server, "twill_server_wait", key < 0 ? 0 : key));
    return twill_server_await(server, key_has_ended, key, "push and pull");
}

twill_status twill_server_wait_push(twill_server *server, int key)
{
    TWILL_TRY(NULL, check_key(server, "twill_server_wait_push", key));
    return twill_server_await(server, push_has_ended, key, "the push");
}

twill_status twill_server_wait_pull(twill_server *server, int key)
{
    TWILL_TRY(NULL, check_key(server, "twill_server_wait_pull", key));
    return twill_server_await(server, pull_has_ended, key, "the pull");
}

/* Return whether all workers have left this rank's shards or died. `key` is ignored. */
static bool all_have_left(struct twill_server *server, int key)
{
    (void)key;
    for (uint32_t t = 0; t < server->roles.threads; t++)
        if (atomic_load_explicit(&server->shard[t].present, memory_order_acquire) > 0)
            return false;
    return true;
}

/* Return whether each shard to which this worker has a link has confirmed that the worker leaves,
 * or its link is lost. True without links. `key` is ignored. */
static bool links_have_left(struct twill_server *server, int key)
{
    bool left = true;
    (void)key;
    pthread_mutex_lock(&server->work.posting);
    for (uint32_t i = 0; i < server->links; i++)
        left &= server->link[i].port == NULL || server->link[i].left || server->link[i].lost;
    pthread_mutex_unlock(&server->work.posting);
    return left;
}

twill_status twill_server_leave(twill_server *server)
{
    if (server == NULL)
        return TWILL_ERR_ARGUMENT;
    if (*server->process.fork_guard == 0)
        return TWILL_ERR_FORKED;
    if (server->work.left || !server->committed || !twill_server_works(server))
        return TWILL_OK;
    twill_status status = twill_server_await(server, key_has_ended, -1, "push and pull");
    server->work.left = true;
    (void)twill_server_post(server, -1, TWILL_ORDER_LEAVE);
    return status != TWILL_OK ? status
                              : twill_server_await(server, links_have_left, -1, "the leave");
}

twill_status twill_server_serve(twill_server *server)
{
    if (server == NULL)
        return TWILL_ERR_ARGUMENT;
    if (*server->process.fork_guard == 0)
        return TWILL_ERR_FORKED;
    if (!server->committed)
        return TWILL_SERVER_REFUSE(server, "twill_server_serve: call twill_server_commit() first");
    if (!twill_server_serves(server))
        return TWILL_SERVER_REFUSE(server, "twill_server_serve: this rank is not a server");
    twill_status left = twill_server_leave(server);
    twill_status status = twill_server_await(server, all_have_left, -1, "workers' calls");
    return left != TWILL_OK ? left : status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A server goes on with other ranks: its successor has its options and tensors, and takes the
 * newest state that any rank brings. */
#include "lib/server/server.h"
#include "lib/server/state/state.h"

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

/* Give the successor what this rank has of the old one. */
static twill_status hand_over(struct twill_server *to, struct twill_server *from)
{
    to->past.old = from;
    to->past.successor = from->committed || from->past.successor;
    to->rule.optimizer = from->rule.optimizer;
    to->rule.settings = from->rule.settings;
    to->cut.chunk_bytes = from->cut.chunk_bytes;
    TWILL_TRY(NULL, add_again(to, from));
    if (to->cut.chunk_bytes == 0) /* the other's commit has failed early */
        return TWILL_OK;
    TWILL_TRY(NULL, twill_server_place(to));
    if (from->committed)
        return twill_server_hold_state(to, from);
    to->past.held = from->past.held; /* a rebuild that failed */
    from->past.held = NULL;
    return TWILL_OK;
}

twill_status twill_server_rebuild(twill_server **server, twill_comm *comm)
{
    if (server == NULL || *server == NULL || twill_comm_context(comm) == NULL)
        return TWILL_ERR_ARGUMENT;
    struct twill_server *old = *server, *made = NULL;
    if (twill_extend_is_forked(old->process.context))
        return TWILL_ERR_FORKED;
    if (!twill_server_unhook(old, old->process.context))
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
    /* Too few ranks for the layout: the old one keeps the state until there are more. */
    TWILL_TRY(NULL, status);
    made->past.lacking = hand_over(made, old);
    *server = made;
    return twill_server_commit(made);
}

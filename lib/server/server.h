/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter server from creation to end, and the calls of a training step. */
#ifndef TWILL_SERVER_INTERNAL_H
#define TWILL_SERVER_INTERNAL_H

#include "lib/server/shard/link.h"

/* --- chunk_size.c --- */

/* Set cut.chunk_bytes, the size of chunks, if the options do not, by a trial or a rule. Fails on
 * all ranks alike. Collective, before twill_server_place(). */
twill_status twill_server_choose_chunk_bytes(struct twill_server *server);

/* --- create.c --- */

/* Return the worst status of all ranks; `status` is this rank's. *call is set to that of the
 * exchange. Collective. */
twill_status twill_server_worst_status(twill_comm *comm, twill_status status, twill_status *call);
/* State of the other ranks, whose shards may map this rank's memory, when it ends a server. */
enum twill_server_end {
    TWILL_SERVER_END_ALONE,    /* they may still use the memory */
    TWILL_SERVER_END_STOPPED,  /* they do not use it any more, or share no job with this rank */
    TWILL_SERVER_END_TOGETHER, /* they end the server too, and are waited for */
};
/* Destroy the chain of older servers that this server has replaced, if there are any. */
void twill_server_drop_old(struct twill_server *server, enum twill_server_end end);

/* --- server_options.c --- */

/* Copy the options, or the defaults if NULL, into the server. Returns an error if one is bad. */
twill_status twill_server_set_options(struct twill_server *server,
                                      const twill_server_options *options,
                                      struct twill_error *error);
/* Compare options and tensors over the ranks. All fail if any differ or lack memory. Collective. */
twill_status twill_server_compare(struct twill_server *server);
/* Take part in the comparison so that it fails on all ranks, as this one has failed with `status`.
 * Returns `status`. */
twill_status twill_server_fail_compare(struct twill_server *server, twill_status status);

/* --- server_memory.c --- */

/* Allocate and exchange the memory that workers and servers of a node map, and open ports, shards
 * and links. Breaks the server if it fails. Collective. */
twill_status twill_server_open_memory(struct twill_server *server);
/* Return the lowest other rank of this node that lives and may use what this one offers, or
 * TWILL_NO_RANK. */
uint32_t twill_server_memory_user(const struct twill_server *server);
/* Free the memory of twill_server_open_memory(). If `keeps`, what was offered stays allocated. */
void twill_server_close_memory(struct twill_server *server, bool keeps);

/* --- ports.c --- */

/* Encode or copy the gradient of a key to key->sent, before a push. */
void twill_server_encode(struct twill_server *server, struct twill_server_key *key);
/* Copy key->landed to the parameters of a key, after a pull. */
void twill_server_land(struct twill_server *server, struct twill_server_key *key);

/* Advance this rank's links and the shards that have no thread. Returns whether something moved. */
bool twill_server_progress(struct twill_server *server);
/* Return an error if a server has died that this rank needs for `key`, or for any key if it is -1.
 * Looks only from time to time, and otherwise returns TWILL_OK. */
twill_status twill_server_check(struct twill_server *server, int key);
/* Wait until done(server, key), where `key` -1 means all keys. Returns the error if the server is
 * broken meanwhile. A timeout's message names `what`. */
twill_status twill_server_await(struct twill_server *server,
                                bool (*done)(struct twill_server *server, int key), int key,
                                const char *what);
/* Post an order of this `kind` (TWILL_ORDER_*) for a key to all shards that have chunks of it, or
 * an order to leave to all shards. Always returns TWILL_OK. */
twill_status twill_server_post(struct twill_server *server, int key, unsigned kind);

#endif

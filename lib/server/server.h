/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter server from creation to end, and the calls of a training step. */
#ifndef TWILL_SERVER_INTERNAL_H
#define TWILL_SERVER_INTERNAL_H

#include "lib/server/shard/link.h"

/* --- chunk_size.c --- */
/* Set cut.chunk_bytes if options.chunk_bytes is 0. The size is that of the server that this one
 * replaces, or of a file that a rank has loaded. Without either, a trial finds the fastest size. A
 * rule gives it if pushes are compressed, or if tensors, network or memory do not allow a trial.
 * Returns TWILL_OK or, on all ranks, the error that breaks the server. That is TWILL_ERR_MISMATCH
 * if ranks have older sizes that differ. Collective. */
twill_status twill_server_choose_chunk_bytes(struct twill_server *server);

/* --- create.c --- */
/* Return the worst status of all ranks, the one with the lowest number. `status` is this rank's.
 * Set *call to the status of this exchange, which must be TWILL_OK for the result to count.
 * Collective. */
twill_status twill_server_worst_status(twill_comm *comm, twill_status status, twill_status *call);
/* State of the other ranks, whose shards may map this rank's memory, when it ends a server. */
enum twill_server_end {
    TWILL_SERVER_END_ALONE,    /* they may still use the memory */
    TWILL_SERVER_END_STOPPED,  /* they do not use it any more, or share no job with this rank */
    TWILL_SERVER_END_TOGETHER, /* they end the server too, and are waited for */
};
/* Destroy the older servers that this one has replaced, if any. `end` says whether the other ranks
 * end them in the same call (TOGETHER, which is collective) or have stopped using their memory
 * (STOPPED). If other ranks may still use that memory (ALONE), it is kept. */
void twill_server_drop_old(struct twill_server *server, enum twill_server_end end);

/* --- server_options.c --- */
/* Copy the options, or the defaults if NULL, to the server, with its coder, rule and chunk size.
 * Returns TWILL_ERR_ARGUMENT or TWILL_ERR_UNSUPPORTED, and sets *error, if an option is bad. */
twill_status twill_server_set_options(struct twill_server *server,
                                      const twill_server_options *options,
                                      struct twill_error *error);
/* Compare options and tensors over the ranks. Also destroy the server that this one replaces, if
 * any, as all ranks have stopped its shards. That older server is kept if the exchange fails.
 * Breaks the server on all ranks with TWILL_ERR_MISMATCH if any differ, or with the error of a rank
 * that fails. Returns TWILL_OK, or the error with which it has broken the server. Collective. */
twill_status twill_server_compare(struct twill_server *server);
/* Take part in the twill_server_compare() that the other ranks call, with the error `status` of
 * this rank. It breaks the server on all ranks. Returns `status`. Collective. */
twill_status twill_server_fail_compare(struct twill_server *server, twill_status status);

/* --- server_memory.c --- */
/* Allocate and exchange the memory that workers and servers of a node map, and open ports, shards
 * and links. Returns an error and breaks the server if memory or an exchange fails. Collective. */
twill_status twill_server_open_memory(struct twill_server *server);
/* Return the lowest other live rank of this node, which may use memory that this rank has offered.
 * Returns TWILL_NO_RANK if there is none or nothing was offered. */
uint32_t twill_server_memory_user(const struct twill_server *server);
/* Free this rank's ports, and the control memory, buffers of keys and residuals that
 * twill_server_open_memory() has allocated. If `keeps`, what others may map is not freed, that is,
 * the control memory and the buffers. Shards and links must be closed before. */
void twill_server_close_memory(struct twill_server *server, bool keeps);

/* --- ports.c --- */
/* Encode a key's gradient to key->sent before a push, and update its residual. A gradient that is
 * not encoded is copied there, unless it is the same memory. */
void twill_server_encode(struct twill_server *server, struct twill_server_key *key);
/* Copy key->landed to the key's parameters after a pull, unless both are the same memory. */
void twill_server_land(struct twill_server *server, struct twill_server_key *key);

/* Advance this worker's links, and this rank's shards without a thread, except what another thread
 * has locked. Returns whether something moved. */
bool twill_server_progress(struct twill_server *server);
/* Break the server and return the error if a server has died that this rank needs for `key` (-1 for
 * any key), or a rank lacks memory. Looks only at times, and otherwise returns TWILL_OK. */
twill_status twill_server_check(struct twill_server *server, int key);
/* Advance the server until done(server, key), where key -1 means all. Returns TWILL_OK, or the
 * error with which the server is broken, such as TWILL_ERR_TIMEOUT if nothing moves, with a message
 * that names `what`. If a rank lacks memory or another resource, also informs all ranks
 * (twill_server_tell_loss()). */
twill_status twill_server_await(struct twill_server *server,
                                bool (*done)(struct twill_server *server, int key), int key,
                                const char *what);
/* Post an order of this `kind` (TWILL_ORDER_*) for a key to all shards that have chunks of it, or
 * an order to leave to all shards. Always returns TWILL_OK. */
twill_status twill_server_post(struct twill_server *server, int key, unsigned kind);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter server from its creation to its end, and the calls of a step. */
#ifndef TWILL_SERVER_INTERNAL_H
#define TWILL_SERVER_INTERNAL_H

#include "lib/server/shard/link.h"

/* --- chunk_size.c --- */

/* Choose the size of chunks where the options do not. Collective, before twill_server_place(). */
twill_status twill_server_choose_chunk_bytes(struct twill_server *server);

/* --- create.c --- */

/* Return the worst status of all ranks, of which `status` is this one's; *call: of the exchange.
 * Collective. */
twill_status twill_server_worst_status(twill_comm *comm, twill_status status, twill_status *call);
/* What a rank that ends a server knows of the other ranks, whose shards may map its memory. */
enum twill_server_end {
    TWILL_SERVER_END_ALONE,    /* they may still use it */
    TWILL_SERVER_END_STOPPED,  /* they use it no more, or are in no job with this rank */
    TWILL_SERVER_END_TOGETHER, /* they end it, too: wait for them */
};
/* End those that a server has replaced, if any. */
void twill_server_drop_old(struct twill_server *server, enum twill_server_end end);

/* --- options.c --- */

twill_status twill_server_set_options(struct twill_server *server,
                                      const twill_server_options *options,
                                      struct twill_error *error);
/* Compare options and tensors over the ranks, unless a rank lacks memory: then all fail.
 * Collective.
 */
twill_status twill_server_compare(struct twill_server *server);
/* Let the comparison fail on all ranks, as this one cannot go on: `status`, which is returned. */
twill_status twill_server_fail_compare(struct twill_server *server, twill_status status);

/* --- server_memory.c --- */

/* Allocate and exchange what workers and servers of a node map. Collective. */
twill_status twill_server_open_memory(struct twill_server *server);
/* Return the lowest rank of this node, but this one, that lives and may use what this one offers;
 * TWILL_NO_RANK: none. */
uint32_t twill_server_memory_user(const struct twill_server *server);
/* Free it; keeps: but for what was offered. */
void twill_server_close_memory(struct twill_server *server, bool keeps);

/* --- ports.c --- */

/* Make key->sent of the gradient, before a push. */
void twill_server_encode(struct twill_server *server, struct twill_server_key *key);
/* Make the parameters of key->landed, after a pull. */
void twill_server_land(struct twill_server *server, struct twill_server_key *key);

/* Advance what this rank's calls advance. Returns whether something moved. */
bool twill_server_progress(struct twill_server *server);
/* Fail if a server has died that this rank needs for a key; -1: for any. Looks from time to time.
 */
twill_status twill_server_check(struct twill_server *server, int key);
/* Wait until done(server, argument), whose message is about keys `what`; -1: of all. */
twill_status twill_server_await(struct twill_server *server,
                                bool (*done)(struct twill_server *server, int key), int key,
                                const char *what);
/* Post an order of a key to all its shards. */
twill_status twill_server_post(struct twill_server *server, int key, unsigned kind);

#endif

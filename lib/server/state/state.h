/* SPDX-License-Identifier: Apache-2.0 */
/* Records of chunks: a version, parameters, optimizer state, and the sum of waiting gradients. */
#ifndef TWILL_SERVER_STATE_H
#define TWILL_SERVER_STATE_H

#include "lib/server/shard/shard.h"

/* Return the bytes of a chunk's record. */
size_t twill_record_bytes(const struct twill_server *server, const struct twill_chunk_place *place);
/* Return the bytes of the sum at the end of a record, which only modes that add gradients have. */
static inline size_t twill_record_sum_bytes(const struct twill_chunk_place *place)
{
    return place->count * sizeof(float);
}
/* Write the record of a chunk. */
void twill_record_write(const struct twill_server *server, const struct twill_chunk *chunk,
                        unsigned char *record);
/* Check the record of a chunk that was read from a file. Without a sum, forget the number of
 * gradients that wait. Returns false if no server writes such a version. */
bool twill_record_check(unsigned char *record, bool has_sum);
/* Return memory for this rank's record of the chunk at index `place`, or NULL if out of memory. */
unsigned char *twill_server_hold(struct twill_server *server, uint32_t place);

/* Bring the newest record of each chunk to its shards, or the lowest worker's parameters if there
 * are no records. Fails on all ranks if only some chunks have one. Collective. */
twill_status twill_server_spread_state(struct twill_server *server);
/* Copy this rank's chunks of `from` into to->past.held, or fail for lack of memory. Both servers
 * have the same tensors. */
twill_status twill_server_hold_state(struct twill_server *to, const struct twill_server *from);
/* Free this rank's records. */
void twill_server_drop_state(struct twill_server *server);

#endif

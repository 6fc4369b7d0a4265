/* SPDX-License-Identifier: Apache-2.0 */
/* Records of chunks: a version, parameters, optimizer state, and the sum of waiting gradients. */
#ifndef TWILL_SERVER_STATE_H
#define TWILL_SERVER_STATE_H

#include "lib/server/shard/shard.h"

/* Return the bytes of a chunk's record, which has all that twill_record_write() writes. */
size_t twill_record_bytes(const struct twill_server *server, const struct twill_chunk_place *place);
/* Return the bytes of the sum of waiting gradients, with which a record ends. Only modes that add
 * gradients as they arrive (twill_server_adds()) have that sum. */
static inline size_t twill_record_sum_bytes(const struct twill_chunk_place *place)
{
    return place->count * sizeof(float);
}
/* Write a chunk's version, number of waiting gradients, parameters, optimizer state and, in modes
 * that add gradients, their sum to record[twill_record_bytes()]. */
void twill_record_write(const struct twill_server *server, const struct twill_chunk *chunk,
                        unsigned char *record);
/* Return whether a record from a file has a version and a number of waiting gradients that a server
 * can write. Unless has_sum, first set that number to 0 in the record. */
bool twill_record_check(unsigned char *record, bool has_sum);
/* Return memory for this rank's record of the chunk at index `place`, allocated at the first call,
 * or NULL if out of memory. twill_server_drop_state() frees it. */
unsigned char *twill_server_hold(struct twill_server *server, uint32_t place);

/* Send the newest record of each chunk from the rank that has it to the chunk's shard and to the
 * shard with its replica. If no rank has a record, the lowest worker's parameters are sent. All
 * ranks also get the newest hyperparameters of the optimizer. Returns TWILL_OK or the error that
 * breaks the server. It is TWILL_ERR_PEER on all ranks if a chunk has no record, but others have,
 * or had in an older server. Collective. */
twill_status twill_server_spread_state(struct twill_server *server);
/* Copy the state of all chunks and replicas that this rank has in server `from` to records in
 * to->past.held. `to` is the server that replaces `from`. Fails only if out of memory. */
twill_status twill_server_hold_state(struct twill_server *to, const struct twill_server *from);
/* Free all records that this rank holds in server->past.held. */
void twill_server_drop_state(struct twill_server *server);

#endif

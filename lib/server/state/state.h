/* SPDX-License-Identifier: Apache-2.0 */
/* Records of chunks: a version, parameters, the optimizer's state, and gradients that wait. */
#ifndef TWILL_SERVER_STATE_H
#define TWILL_SERVER_STATE_H

#include "lib/server/shard/shard.h"

size_t twill_record_bytes(const struct twill_server *server, const struct twill_chunk_place *place);
/* Return what of these a record has only where the mode adds gradients: the sum, at its end. */
static inline size_t twill_record_sum_bytes(const struct twill_chunk_place *place)
{
    return place->count * sizeof(float);
}
void twill_record_write(const struct twill_server *server, const struct twill_chunk *chunk,
                        unsigned char *record);
/* Check the record that a file has of a chunk. Gradients that wait are forgotten without their sum.
 * Returns false if no server has written its version. */
bool twill_record_check(unsigned char *record, bool has_sum);
/* Return memory for the record that this rank brings of a chunk, by its place; NULL: no memory. */
unsigned char *twill_server_hold(struct twill_server *server, uint32_t place);

/* Bring each chunk's newest state to its shards. Collective. */
twill_status twill_server_spread_state(struct twill_server *server);
/* Take copies of the chunks here into *held of `to`, which has the same tensors. */
twill_status twill_server_hold_state(struct twill_server *to, const struct twill_server *from);
void twill_server_drop_state(struct twill_server *server);

#endif

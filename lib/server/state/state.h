/* SPDX-License-Identifier: Apache-2.0 */
/* Records of chunks: a version, parameters and the optimizer's state. */
#ifndef TWILL_SERVER_STATE_H
#define TWILL_SERVER_STATE_H

#include "lib/server/core/core.h"

size_t twill_record_bytes(const struct twill_server *server, const struct twill_chunk_place *place);
void twill_record_write(const struct twill_server *server, const struct twill_chunk *chunk,
                        unsigned char *record);
/* Return memory for the record that this rank brings of a chunk, by its place; NULL: no memory. */
unsigned char *twill_server_hold(struct twill_server *server, uint32_t place);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Between a worker's tensors and what servers read and write. */
#ifndef TWILL_SERVER_ENCODE_H
#define TWILL_SERVER_ENCODE_H

#include "lib/server/server.h"

/* Make key->sent of the gradient, before a push. */
void twill_server_encode(struct twill_server *server, struct twill_server_key *key);
/* Make the parameters of key->landed, after a pull. */
void twill_server_land(struct twill_server *server, struct twill_server_key *key);

#endif

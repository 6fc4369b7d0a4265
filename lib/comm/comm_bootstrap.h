/* SPDX-License-Identifier: Apache-2.0 */
/* Out-of-band exchange over an existing communicator, for setting up a new one. Only the new one's
 * members take part, so disjoint groups proceed independently. */
#ifndef TWILL_COMM_BOOTSTRAP_H
#define TWILL_COMM_BOOTSTRAP_H

#include "lib/comm/comm.h"

/* Open an exchange among ranks[0 .. size-1] of `over`, of which this is number `rank`. Messages use
 * the transports of `over`, which must have nothing under way; a failure breaks `over`. */
twill_status twill_oob_comm_open(struct twill_oob **oob, struct twill_comm *over,
                                 const uint32_t *ranks, uint32_t size, uint32_t rank,
                                 struct twill_error *error);
/* End set-up: `over` is not used any more and may be destroyed. Later exchanges fail. */
void twill_oob_comm_seal(struct twill_oob *oob);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap over a communicator that exists: what a new one is set up with. Only the new one's
 * members take part, so groups of them proceed without each other. */
#ifndef TWILL_COMM_BOOTSTRAP_H
#define TWILL_COMM_BOOTSTRAP_H

#include "lib/comm/comm.h"

/* Among ranks[0 .. size-1] of `over`, of which this is number `rank`. Its messages travel over the
 * transports of `over`, which must have nothing under way; a failure there breaks `over`. */
twill_status twill_oob_comm_open(struct twill_oob **oob, struct twill_comm *over,
                                 const uint32_t *ranks, uint32_t size, uint32_t rank,
                                 struct twill_error *error);
/* Set-up is over: the communicator it went over is not used any more, and may go. */
void twill_oob_comm_seal(struct twill_oob *oob);

#endif

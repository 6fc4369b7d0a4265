/* SPDX-License-Identifier: Apache-2.0 */
/* Prices that the ranks of a node compute together: each is computed by one of them. */
#ifndef TWILL_SHARED_PRICES_H
#define TWILL_SHARED_PRICES_H

#include "lib/comm/comm.h"

/* Create a chooser for a communicator that shares prices with the chooser of the other ranks, on
 * the board of their node. It must not outlive the communicator's node memory. `tuning` and
 * `requested` as for twill_chooser_create(). */
twill_status twill_comm_create_chooser(struct twill_chooser **chooser, struct twill_comm *comm,
                                       const char *requested, struct twill_error *error);

#endif

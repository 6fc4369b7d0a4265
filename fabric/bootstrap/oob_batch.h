/* SPDX-License-Identifier: Apache-2.0 */
/* One all-gather for all that modules exchange at a point of set-up. Each module adds a part, of
 * the same size and in the same order on all ranks. The rank's status is sent with them. So a rank
 * that has failed still takes part, and every rank learns which rank failed and why. */
#ifndef TWILL_OOB_BATCH_H
#define TWILL_OOB_BATCH_H

#include "fabric/bootstrap/bootstrap.h"

#define TWILL_OOB_BATCH_PARTS 8
/* The parts that modules add for one all-gather, which empties the batch, so it can be used again.
 * A local variable of the caller. */
struct twill_oob_batch {
    struct twill_oob *oob;
    size_t parts; /* added so far */
    struct twill_oob_batch_part {
        const void *mine; /* [bytes] of this rank */
        void *all;        /* [size][bytes] of all ranks */
        size_t bytes;
    } part[TWILL_OOB_BATCH_PARTS];
    /* What to report if the all-gather fails, as twill_oob_batch_suspect() set it, or TWILL_OK. */
    struct twill_error suspicion;
};

/* Add a part. With more than TWILL_OOB_BATCH_PARTS, the exchange fails. The exchange sends `bytes`
 * at `mine` and stores those of rank r at all + r * bytes. Both stay valid until then. A module
 * that failed adds its part with NULL. If `mine` is NULL, zeros are sent. If `all` is NULL, what
 * arrives is dropped. */
void twill_oob_batch_add(struct twill_oob_batch *batch, const void *mine, void *all, size_t bytes);
/* Set the failure to report if the exchange itself fails, because this rank has already lost
 * contact with another one. Only the first one counts. */
void twill_oob_batch_suspect(struct twill_oob_batch *batch, twill_status status, const char *format,
                             ...) TWILL_PRINTF(3, 4);
/* Exchange the parts that were added since the last exchange, and empty the batch. Collective.
 * `status` is this rank's own, and `error` is set if it is not TWILL_OK. Returns TWILL_OK if the
 * status of every rank is TWILL_OK. Otherwise returns the status of the first rank that failed,
 * equal on all ranks, with its message as "rank 3: ...". The parts are stored unless the all-gather
 * itself fails. This then returns `status` if that is a failure, or else that of the all-gather. */
twill_status twill_oob_batch_exchange(struct twill_oob_batch *batch, twill_status status,
                                      struct twill_error *error);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* One all-gather for all that several modules must exchange at a point of set-up. Each module adds
 * a part; the exchange sends all parts together with this rank's status, so that a rank that has
 * failed before it still takes part and every rank learns which one failed and why. All ranks add
 * parts of the same sizes in the same order. */
#ifndef TWILL_OOB_BATCH_H
#define TWILL_OOB_BATCH_H

#include "fabric/bootstrap/bootstrap.h"

#define TWILL_OOB_BATCH_PARTS 8

/* A caller's local variable, used for one exchange after the other. */
struct twill_oob_batch {
    struct twill_oob *oob;
    size_t parts;
    struct twill_oob_batch_part {
        const void *mine;
        void *all;
        size_t bytes;
    } part[TWILL_OOB_BATCH_PARTS];
    struct twill_error suspicion; /* status TWILL_OK: none */
};

/* Add a part, one of at most TWILL_OOB_BATCH_PARTS: `bytes` at `mine` are sent, and every rank's
 * are stored at all[0 .. size-1]. Both stay valid until the exchange. mine NULL sends zeros and all
 * NULL drops what arrives: so a module that has failed adds its part nevertheless. */
void twill_oob_batch_add(struct twill_oob_batch *batch, const void *mine, void *all, size_t bytes);
/* Say what to report if the exchange itself fails: this rank has already lost contact with
 * another. Only the first one counts. */
void twill_oob_batch_suspect(struct twill_oob_batch *batch, twill_status status, const char *format,
                             ...) TWILL_PRINTF(3, 4);
/* Exchange the parts that were added since the last exchange. Collective. `status` is this rank's
 * own, with `error` set if it is not TWILL_OK. Returns TWILL_OK if the status of every rank is;
 * else that of the first rank that failed, on all ranks alike, and its message as "rank 3: ...".
 * The parts are stored unless the all-gather itself fails. */
twill_status twill_oob_batch_exchange(struct twill_oob_batch *batch, twill_status status,
                                      struct twill_error *error);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of transports, best first. */
#include "fabric/transports.h"

const struct twill_transport_ops *twill_transport_at(size_t index)
{
    static const struct twill_transport_ops *const transports[] = {
        &twill_self_transport,
        &twill_shm_transport,
        &twill_tcp_transport,
        &twill_ofi_transport,
    };
    _Static_assert(TWILL_ARRAY_LENGTH(transports) <= TWILL_TRANSPORTS_MOST,
                   "one entry each in a context");
    return index < TWILL_ARRAY_LENGTH(transports) ? transports[index] : NULL;
}

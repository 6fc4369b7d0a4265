/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: calls that are recorded, and done together. */
#ifndef TWILL_GROUP_H
#define TWILL_GROUP_H

#include "lib/comm/comm.h"

struct twill_call_group {
    bool open;
    struct twill_request *first, *last; /* recorded, linked by `recorded` */
    unsigned char *packed;              /* small allreduces that are fused */
    size_t packed_bytes;
};

static inline bool twill_group_is_open(const struct twill_call_group *group)
{
    return group != NULL && group->open;
}
twill_status twill_group_record(struct twill_comm *comm, const struct twill_call *call);
twill_status twill_group_record_point(struct twill_comm *comm, const struct twill_point *point);
void twill_group_destroy(struct twill_comm *comm);

#endif

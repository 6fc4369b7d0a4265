/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: calls recorded between twill_group_start() and twill_group_end() and run together. */
#ifndef TWILL_GROUP_H
#define TWILL_GROUP_H

#include "lib/comm/comm.h"

/* The group of a communicator, allocated at its first twill_group_start() and freed with it. */
struct twill_call_group {
    bool open;
    struct twill_request *first, *last; /* recorded calls, linked by `recorded` */
    unsigned char *packed;              /* buffer of fused allreduces */
    size_t packed_bytes;
};

static inline bool twill_group_is_open(const struct twill_call_group *group)
{
    return group != NULL && group->open;
}

/* Check the arguments of a call and append it to the open group. A failure breaks the communicator.
 */
twill_status twill_group_record(struct twill_comm *comm, const struct twill_call *call);
twill_status twill_group_record_point(struct twill_comm *comm, const struct twill_point *point);
/* Drop the recorded calls and free the group, if there is one. */
void twill_group_destroy(struct twill_comm *comm);

#endif

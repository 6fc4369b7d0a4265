/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: calls recorded between twill_group_start() and twill_group_end() and run together. */
#ifndef TWILL_GROUP_H
#define TWILL_GROUP_H

#include "lib/comm/comm.h"

/* Check the arguments of a call and append it to the open group. A failure breaks the communicator.
 */
twill_status twill_group_record(struct twill_comm *comm, const struct twill_call *call);
twill_status twill_group_record_point(struct twill_comm *comm, const struct twill_point *point);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's node memory as a process outside the job reads it: mapped read-only, through the memfd
 * that the ranks of the node hold. The functions of call_records.h and twill_node_trace() work on
 * its `node`, which has one local rank, 0. */
#ifndef TWILL_NODE_VIEW_H
#define TWILL_NODE_VIEW_H

#include "fabric/shm/call_records.h"

/* One view, created by twill_node_view_open(). */
struct twill_node_view {
    struct twill_node node;
    struct twill_node_area *area; /* node.area points to this */
    size_t bytes;                 /* mapped */
};

/* Map the region behind a descriptor, which stays the caller's. Returns NULL and the reason in *why
 * if it cannot be mapped, or if another build of twill has laid it out. */
struct twill_node_view *twill_node_view_open(int fd, const char **why);
void twill_node_view_close(struct twill_node_view *view); /* may be NULL */

/* Return the owner of the region. */
static inline const struct twill_node_owner *
twill_node_view_owner(const struct twill_node_view *view)
{
    return &view->area->owner;
}

#endif

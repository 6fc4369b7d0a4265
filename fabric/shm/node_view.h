/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's node memory, mapped read-only by a process outside the job through the rank's memfd. The
 * functions of call_records.h and twill_node_trace() work on its `node`, which has local rank 0. */
#ifndef TWILL_NODE_VIEW_H
#define TWILL_NODE_VIEW_H

#include "fabric/shm/call_records.h"

/* A region mapped to read, from twill_node_view_open() to twill_node_view_close(). Constant. */
struct twill_node_view {
    struct twill_node node;
    struct twill_node_area *area; /* node.area points to this */
    size_t bytes;                 /* mapped */
};

/* Map the region behind a descriptor, which stays the caller's. Returns the view, or NULL with the
 * reason in *why if it cannot be mapped, or if another build of twill has laid it out. */
struct twill_node_view *twill_node_view_open(int fd, const char **why);
/* Unmap and free a view, which may be NULL. */
void twill_node_view_close(struct twill_node_view *view);

/* Return the owner of the region, which lies in the view. */
static inline const struct twill_node_owner *
twill_node_view_owner(const struct twill_node_view *view)
{
    return &view->area->owner;
}

#endif

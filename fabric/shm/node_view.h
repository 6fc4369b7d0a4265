/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's node memory, mapped read-only by a process outside the job through the rank's memfd. The
 * functions of call_records.h and twill_node_trace() work on its `node`, which has local rank 0. */
#ifndef TWILL_NODE_VIEW_H
#define TWILL_NODE_VIEW_H

#include "fabric/shm/call_records.h"

/* A region mapped to read, from twill_node_view_open() to twill_node_view_close(). Constant. */
struct twill_node_view {
    struct twill_node node;
    struct twill_node_area *area;  /* node.area points to this */
    struct twill_node_owner owner; /* as it was when the view was opened */
    size_t bytes;                  /* mapped */
    uint64_t exists, most;         /* bytes that the rank's memory has, and can have */
};

/* Map the memory of one communicator in the region behind a descriptor, which stays the caller's,
 * to read it. With *part 0 that is the region's own, else the first in its room from part *part on.
 * *part becomes the next one, or UINT64_MAX if there was none. Returns the view, or NULL with the
 * reason in *why: it cannot be read, or another build of twill has laid it out. */
struct twill_node_view *twill_node_view_open(int fd, uint64_t *part, const char **why);
/* Unmap and free a view, which may be NULL. */
void twill_node_view_close(struct twill_node_view *view);

/* Return the owner of the memory, part of the view. `job` is 0 while the communicator is being
 * made, and after its end. */
static inline const struct twill_node_owner *
twill_node_view_owner(const struct twill_node_view *view)
{
    return &view->owner;
}

#endif

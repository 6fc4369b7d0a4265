/* SPDX-License-Identifier: Apache-2.0 */
/* Mappings of shared memory: the file behind them, their alignment, and who still uses them. */
#ifndef TWILL_MAPPING_H
#define TWILL_MAPPING_H

#include "fabric/shm/fd_passing.h"

#include <stdatomic.h>

/* A rank's memory as its own process maps it. Threads of that process use it too, and the last of
 * them to close gives it back: a communicator that failed is not closed by all at once. */
struct twill_mapping {
    _Atomic int64_t users;
    void *at;
    size_t bytes;
};
#define TWILL_MAPPING_USERS_UNKNOWN                                                                \
    ((int64_t)1 << 40) /* until the owner knows how many it shares a process with */

/* Map fd (-1: anonymous memory), on a huge page boundary where a huge page could fit; what is so
 * large is not in core dumps, for which the kernel would make every page of what is reserved and
 * not used yet: all the memory of a machine. MAP_FAILED and errno on failure. */
void *twill_mapping_map(int fd, size_t bytes);
#define TWILL_MAPPING_HEAP "twill-heap" /* memfds as /proc/PID/maps names them */
#define TWILL_MAPPING_COMM "twill-comm"
/* A new memfd with the lock that tells others that this process lives; *fd is -1 on failure. */
enum twill_share_cause twill_mapping_file(int *fd, const char *name, size_t bytes);
/* Map the owner's memory; NULL and errno on failure. Drop USERS_UNKNOWN less the users once known.
 */
struct twill_mapping *twill_mapping_create(int fd, size_t bytes);
/* Have these pages now rather than by a fault each: from the first byte's page on. */
void twill_mapping_populate(void *at, size_t bytes);
/* Take users away; the last one unmaps. */
void twill_mapping_drop(struct twill_mapping *mapping, int64_t users);

#endif

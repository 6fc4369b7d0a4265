/* SPDX-License-Identifier: Apache-2.0 */
/* Mappings of shared memory: their file, alignment and users. */
#ifndef TWILL_MAPPING_H
#define TWILL_MAPPING_H

#include "fabric/shm/fd_passing.h"

#include <stdatomic.h>

/* A rank's memory, as its own process maps it. Threads of the process use it too; the last user to
 * drop it unmaps it, as the threads do not close a failed communicator at one time. */
struct twill_mapping {
    _Atomic int64_t users;
    void *at;
    size_t bytes;
    int fd; /* closed by the last user, too; -1: none */
};
#define TWILL_MAPPING_USERS_UNKNOWN                                                                \
    ((int64_t)1 << 40) /* until the owner has counted the threads that use it */

/* Map fd (-1: anonymous memory), aligned to a huge page if one could fit. Such large mappings are
 * left out of core dumps: the kernel would create every reserved page, up to all memory of the
 * machine. Returns MAP_FAILED and sets errno on failure. */
void *twill_mapping_map(int fd, size_t bytes);
/* Map a part of fd, which may not be huge. Returns MAP_FAILED and sets errno on failure. */
void *twill_mapping_map_part(int fd, size_t offset, size_t bytes);
#define TWILL_MAPPING_HEAP "twill-heap" /* names of memfds in /proc/PID/maps */
#define TWILL_MAPPING_COMM "twill-comm"
#define TWILL_MAPPING_LIFE "twill-life"
/* Create an empty memfd. *fd is -1 on failure. */
enum twill_share_cause twill_mapping_memfd(int *fd, const char *name);
/* Create a memfd of this size and lock it, which shows readers outside the job whose it is. *fd is
 * -1 on failure. */
enum twill_share_cause twill_mapping_file(int *fd, const char *name, size_t bytes);
/* Map the owner's memory. Returns NULL and sets errno on failure. Once the users are known, drop
 * TWILL_MAPPING_USERS_UNKNOWN minus their number. */
struct twill_mapping *twill_mapping_create(int fd, size_t bytes);
/* Populate these pages at once, from the page of the first byte on, instead of one fault each. */
void twill_mapping_populate(void *at, size_t bytes);
/* Drop users; the last one unmaps and frees it. */
void twill_mapping_drop(struct twill_mapping *mapping, int64_t users);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Mappings of shared memory: their file, alignment and users. */
#ifndef TWILL_MAPPING_H
#define TWILL_MAPPING_H

#include "fabric/shm/fd_passing.h"

#include <stdatomic.h>

/* A rank's memory, as its own process maps it, or the life file of a region (shared_region.c), made
 * by twill_mapping_create(). All threads of the process may use it. They close a failed
 * communicator one by one, and the last user unmaps it. */
struct twill_mapping {
    _Atomic int64_t users; /* that have not dropped it yet */
    void *at;
    size_t bytes;
    int fd; /* closed by the last user, -1 if none */
};
#define TWILL_MAPPING_USERS_UNKNOWN ((int64_t)1 << 40) /* until the owner has counted them */
/* Map fd for reading and writing, or anonymous memory if it is -1, aligned to a huge page if one
 * could fit. Such large mappings are left out of core dumps, for which the kernel would create
 * every reserved page. Returns the address, or MAP_FAILED with errno set. */
void *twill_mapping_map(int fd, size_t bytes);
/* Map a part of fd, without regard to huge pages. Returns it, or MAP_FAILED with errno set. */
void *twill_mapping_map_part(int fd, size_t offset, size_t bytes);
#define TWILL_MAPPING_HEAP "twill-heap" /* names of memfds in /proc/PID/maps */
#define TWILL_MAPPING_COMM "twill-comm"
#define TWILL_MAPPING_LIFE "twill-life"
/* Create an empty memfd. Returns TWILL_SHARE_FINE, or with *fd -1 DESCRIPTORS or MEMFD. */
enum twill_share_cause twill_mapping_memfd(int *fd, const char *name);
/* Create a memfd of this size and lock it, which shows its owner to readers outside the job.
 * Returns TWILL_SHARE_FINE, or the cause with *fd -1. */
enum twill_share_cause twill_mapping_file(int *fd, const char *name, size_t bytes);
/* Map `bytes` of fd, which stays the caller's, or anonymous memory if it is -1. Returns NULL with
 * errno set, or the mapping. The caller drops all but the true number of its
 * TWILL_MAPPING_USERS_UNKNOWN users once that is known. */
struct twill_mapping *twill_mapping_create(int fd, size_t bytes);
/* Populate the pages of these bytes at once instead of by a fault each. Ignores failures. */
void twill_mapping_populate(void *at, size_t bytes);
/* Drop this number of users. The last one unmaps and frees the mapping and closes its fd. */
void twill_mapping_drop(struct twill_mapping *mapping, int64_t users);

#endif

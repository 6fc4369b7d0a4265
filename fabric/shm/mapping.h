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
/* Map a part of fd, without regard to huge pages, so that no access is allowed if it is `shut`.
 * Returns it, NULL if it has no bytes, or MAP_FAILED with errno set. */
void *twill_mapping_map_part(int fd, size_t offset, size_t bytes, bool shut);
/* Allow or forbid access to whole pages of a mapping. The kernel does not make pages that are
 * forbidden, even for mlockall(). Returns whether it worked. */
bool twill_mapping_open(void *at, size_t bytes, bool open);
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
/* Give the contents of private memory, whole pages, back to the kernel. It is zeros afterwards. */
void twill_mapping_forget(void *at, size_t bytes);
/* Return [offset, offset + bytes), whole pages, of the shared memory that starts at `at`, of file
 * fd or anonymous if that is -1, to the kernel, so that it is zeros. Returns false if it is not
 * taken.
 */
bool twill_mapping_discard(int fd, unsigned char *at, size_t offset, size_t bytes);
/* Return how many bytes of address space this process can give to memory that is rarely touched, of
 * all its ranks. That is 0 if address space or files are limited (ulimit -v, -f), if the system
 * commits no more than it has (vm.overcommit_memory=2), if new memory is locked (mlockall()), or if
 * an emulator keeps an entry for each page. */
size_t twill_mapping_spare(void);
/* Drop this number of users. The last one unmaps and frees the mapping and closes its fd. */
void twill_mapping_drop(struct twill_mapping *mapping, int64_t users);

#endif

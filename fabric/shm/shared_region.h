/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that ranks of a node share: one memfd per rank, mapped by all of them. Nothing in
 * /dev/shm. Descriptors travel over an abstract unix socket; ranks that are threads of one process
 * use the owner's mapping as it is (so that a thread sanitizer sees one address). */
#ifndef TWILL_SHARED_REGION_H
#define TWILL_SHARED_REGION_H

#include "fabric/bootstrap/bootstrap.h"

struct twill_mapping;
struct twill_shm_region; /* this rank's memory and its view of the others' */

/* Decides which memory this rank's part of a segment is taken from. place() is called once, before
 * a page of it exists, by the thread that shares it; unplace() when the segment is closed. */
struct twill_shm_region_placer {
    void (*place)(void *user, void *at, size_t bytes);
    void (*unplace)(void *user, size_t bytes);
    void *user;
};

/* Collective over boot. Shares `bytes` (sparse: pages cost nothing until touched; zeroed) among the
 * ranks whose label equals this one's. label[boot->size] in; out: if sharing proves impossible
 * (containers, odd namespaces), the ranks of that label agree to be alone and label[r] becomes
 * a number of its own, the same on every rank (then every label becomes the lowest rank that has
 * it); *why says so on all ranks (text of the segment's), else NULL. Threads of one process keep a
 * mapping alive until the last of them closes. If the first exchange itself fails, the address
 * range of this rank's memory is left reserved: threads that heard more might be using it. The
 * placer is copied; NULL: memory lies as the system places it. */
twill_status twill_shm_region_share(struct twill_shm_region **region, struct twill_oob *oob,
                                    uint32_t *label, size_t bytes,
                                    const struct twill_shm_region_placer *placer, const char **why,
                                    struct twill_error *error);
/* The same for twill_alloc(), whose heap places its memory later. `given`, or NULL: memory that is
 * there already and outlives every segment: some of a process has been given out, and several of
 * its threads may share it at once, each under a token of its own. Memory whose mapping's users are
 * never dropped; bytes may be fewer than it has. */
struct twill_shm_region_given {
    int fd;
    struct twill_mapping *mapping;
    size_t token_at; /* where this caller may write 8 bytes */
};
twill_status twill_shm_region_share_given(struct twill_shm_region **region, struct twill_oob *oob,
                                          uint32_t *label, size_t bytes,
                                          const struct twill_shm_region_given *given,
                                          const char **why, struct twill_error *error);
void twill_shm_region_close(struct twill_shm_region *region); /* NULL is allowed */

size_t twill_shm_region_bytes(const struct twill_shm_region *region);
/* Where rank r's memory is mapped here; NULL if r is not of this node. Own rank included. */
void *twill_shm_region_at(const struct twill_shm_region *region, uint32_t rank);
/* Has the owner's process ended? By a POSIX lock on the memfd that the kernel drops at exit,
 * whatever the pid namespace; always false for threads of this process. An owner that has closed
 * its segment counts as dead too. Costs a system call. */
bool twill_shm_region_owner_dead(const struct twill_shm_region *region, uint32_t rank);

#endif

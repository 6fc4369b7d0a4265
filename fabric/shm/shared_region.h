/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory of the ranks of a node: one memfd per rank, mapped by all of them. Nothing lies in
 * /dev/shm. Descriptors are passed over an abstract unix socket and closed when they are mapped. A
 * region keeps at most three, however many ranks share it. Ranks that are threads of one process
 * use the owner's mapping, so that a thread sanitizer sees one address. */
#ifndef TWILL_SHARED_REGION_H
#define TWILL_SHARED_REGION_H

#include "lib/base/base.h"

struct twill_oob_batch;
struct twill_mapping;
struct twill_oob;
struct twill_shm_region; /* this rank's memory, and its mappings of the others' */

/* Places this rank's memory on NUMA nodes. The thread that shares the region calls place() once,
 * before any page exists, and unplace() with the result when it closes. place() returns whether the
 * memory is placed, and not in DDR. The caller owns it. */
struct twill_shm_region_placer {
    bool (*place)(void *user, void *at, size_t bytes);
    void (*unplace)(void *user, size_t bytes, bool placed);
    void *user;
    bool visible; /* in a file even if no other rank maps it, for readers outside the job */
};

/* Existing memory to share, the heap of twill_alloc(), which places its memory later. The caller
 * owns it and keeps it until every region is closed. No region unmaps it. Several threads of a
 * process may share it at a time, each with its own token. The region may be smaller than the
 * memory. */
struct twill_shm_region_given {
    int fd;                        /* its memfd */
    struct twill_mapping *mapping; /* as this process maps it */
    size_t token_at;               /* offset where this caller may write 8 bytes */
};

/* Create *region in three steps: this one, twill_shm_region_attach() and
 * twill_shm_region_conclude(). All ranks of `oob`, which stays valid until the last step, take each
 * of them. After the first two, the caller exchanges `batch` between all ranks (oob_batch.h). This
 * step opens a socket on which peers pass descriptors, and adds this rank's host and socket to
 * `batch`. Fails with TWILL_ERR_MEMORY and *region NULL. A rank that has failed already passes
 * `region` NULL to add an empty part. */
twill_status twill_shm_region_offer(struct twill_shm_region **region, struct twill_oob *oob,
                                    struct twill_oob_batch *batch, struct twill_error *error);
/* Before twill_shm_region_attach(), reserve room of `bytes` behind each rank's memory. All ranks of
 * the node map it, and the placer does not place it. */
void twill_shm_region_reserve(struct twill_shm_region *region, size_t bytes);
/* Create this rank's memory, `bytes` of zeros, pass it to the ranks whose label[] equals its own,
 * and map theirs. Share with each of them `pair_bytes` more that no third rank maps. Untouched
 * pages cost nothing. label[] has oob->size entries. `name` is the memory's name in /proc/PID/maps.
 * If `given` is not NULL, it is shared instead of new memory. *placer places the memory on NUMA
 * nodes and is copied. NULL leaves that to the system. Waits for the ranks of the label. Adds the
 * result to `batch`, so twill_shm_region_conclude() reports whether they can share. Fails only with
 * TWILL_ERR_MEMORY. */
twill_status twill_shm_region_attach(struct twill_shm_region *region, const uint32_t *label,
                                     size_t bytes, size_t pair_bytes, const char *name,
                                     const struct twill_shm_region_given *given,
                                     const struct twill_shm_region_placer *placer,
                                     struct twill_oob_batch *batch, struct twill_error *error);
/* Find from the results in the batch who shares, without communication. All ranks find the same. If
 * the ranks of each label can share, *why is NULL and label[] is unchanged. Otherwise (containers,
 * namespaces) each rank r of a label that cannot is alone with label[r] = r, other labels become
 * the lowest rank that has them, and *why, a text of the region, gives the reason. Fails with
 * TWILL_ERR_MISMATCH if sizes of a label's ranks differ, or TWILL_ERR_TIMEOUT if a rank waited in
 * vain. The caller then still closes the region. Threads of one process keep a mapping alive until
 * the last of them closes. */
twill_status twill_shm_region_conclude(struct twill_shm_region *region, uint32_t *label,
                                       const char **why, struct twill_error *error);
/* Close a region, which may be NULL, in any state. If the second exchange has failed and other
 * ranks are threads of this process, this rank's memory stays mapped, as they may still use it. */
void twill_shm_region_close(struct twill_shm_region *region);
/* Return the bytes of this rank's memory, with those of all pairs, without the room. */
size_t twill_shm_region_bytes(const struct twill_shm_region *region);
/* Return where this process maps a rank's memory, NULL if it is not on this node. */
void *twill_shm_region_at(const struct twill_shm_region *region, uint32_t rank);
/* Return where this process maps the room of a rank's memory, to which twill_mapping_open() first
 * allows access. NULL if the rank is not on this node, or if the region has no room. */
void *twill_shm_region_room(const struct twill_shm_region *region, uint32_t rank);
/* Return where this process maps the memory of `owner` that else only `other` maps. Both are ranks
 * of this node, and one is this rank. */
void *twill_shm_region_pair(const struct twill_shm_region *region, uint32_t owner, uint32_t other);
/* Return whether the owner's process has ended or closed the region: its POSIX lock on a byte of a
 * file of the node is then gone, in any pid namespace. False for threads. Costs a system call. */
bool twill_shm_region_owner_dead(const struct twill_shm_region *region, uint32_t rank);
/* If the process of a rank has ended, as twill_shm_region_owner_dead() finds, unmap the rank's
 * memory and return true. Otherwise, and for this rank, return false. Afterwards this process must
 * not access that memory. Once all ranks have unmapped it, the kernel reuses it. */
bool twill_shm_region_release(struct twill_shm_region *region, uint32_t rank);
/* Return [offset, offset + bytes) of this rank's memory and room, whole pages, to the kernel, so
 * that it is zeros. No rank may use it. Returns false if the kernel does not take it. */
bool twill_shm_region_discard(const struct twill_shm_region *region, size_t offset, size_t bytes);

#endif

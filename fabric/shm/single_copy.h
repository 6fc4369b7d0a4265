/* SPDX-License-Identifier: Apache-2.0 */
/* Single-copy access to memory of another rank of the node that is not shared, such as malloc'd
 * buffers. When a communicator is created, each rank tries each method by reading a token of every
 * other rank. A method is used only if it worked between all ranks.
 *
 *   cma    process_vm_readv: the kernel copies, one call per chunk (single_copy_cma.c)
 *   xpmem  the peer's pages are mapped here: zero-copy (single_copy_xpmem.c)
 *
 * Peers are numbered by local rank. An object is used by one thread at a time. */
#ifndef TWILL_SINGLE_COPY_H
#define TWILL_SINGLE_COPY_H

#include "algorithms/world/world.h"
#include "fabric/bootstrap/oob_batch.h"

enum twill_single_copy_kind {
    TWILL_SINGLE_COPY_AUTO,
    TWILL_SINGLE_COPY_NONE,
    TWILL_SINGLE_COPY_CMA,
    TWILL_SINGLE_COPY_XPMEM
};

struct twill_single_copy;
/* Mapped pages of a peer, in use until twill_region_release(). */
struct twill_region;
/* Return whether to try methods, equally on all ranks. If not, how[] says that no ranks share a
 * node, or that `setting` allows no method. If so, its contents have no meaning. */
bool twill_single_copy_applies(const struct twill_world *world, enum twill_single_copy_kind setting,
                               char *how, size_t how_bytes);
/* Create *single_copy to try the methods that `setting` allows between the ranks of `world`, of
 * which this is `me`. Two steps follow, with an exchange of `batch` before each. The caller closes
 * *single_copy also after a failure, which is TWILL_ERR_MEMORY or a lack of random numbers. */
twill_status twill_single_copy_offer(struct twill_single_copy **single_copy, uint32_t me,
                                     const struct twill_world *world,
                                     enum twill_single_copy_kind setting,
                                     struct twill_oob_batch *batch, struct twill_error *error);
/* Read the token of every other rank of the node by each method that is open, until it fails with
 * one. Add the results to `batch`. */
void twill_single_copy_probe(struct twill_single_copy *single_copy, uint32_t me,
                             const struct twill_world *world, struct twill_oob_batch *batch);
/* After the exchange of `batch`, keep the methods that worked on all ranks of `world`, each with
 * the other ranks of its node. Does not communicate, and keeps the same on all ranks. If there is
 * none, free the object and set *single_copy to NULL. Write to how[] the result of each method,
 * such as "cma: yes, xpmem: none (rank 2: ...)". */
void twill_single_copy_conclude(struct twill_single_copy **single_copy, uint32_t me,
                                const struct twill_world *world, char *how, size_t how_bytes);
/* Return whether the methods that work in any subset of the ranks that created `of` are known
 * without asking them. That is so if cma alone works. The answer is equal on all these ranks, and
 * false if `of` is NULL. */
bool twill_single_copy_is_known(const struct twill_single_copy *of);
/* Create the object of a subset of ranks, which uses cma, without communication. The caller has
 * checked that twill_single_copy_is_known(of). Rank r of the subset's `world`, where this is rank
 * `me`, is rank ranks[r] of of_world. Sets *single_copy to NULL if no two of its ranks share a
 * node, and after a failure (TWILL_ERR_MEMORY or _SYSTEM). */
twill_status twill_single_copy_derive(struct twill_single_copy **single_copy,
                                      const struct twill_single_copy *of,
                                      const struct twill_world *of_world, const uint32_t *ranks,
                                      const struct twill_world *world, uint32_t me,
                                      struct twill_error *error);
/* Free an object, which may be NULL. */
void twill_single_copy_close(struct twill_single_copy *single_copy);
/* Return whether this rank can copy from peers (cma). False for NULL. */
bool twill_single_copy_fetches(const struct twill_single_copy *single_copy);
/* Return whether this rank can map memory of peers (xpmem). False for NULL. */
bool twill_single_copy_maps(const struct twill_single_copy *single_copy);
/* Copy from address `from` of a peer. Returns 0 or an errno, ESRCH if its process has ended. */
int twill_single_copy_fetch(struct twill_single_copy *single_copy, uint32_t peer, void *to,
                            uint64_t from, size_t bytes);
/* Map [from, from + bytes) of a peer and set *at to its place here. The caller gives *region to
 * twill_region_release() when it no longer uses that. Returns 0 or an errno. */
int twill_single_copy_attach(struct twill_single_copy *single_copy, uint32_t peer, uint64_t from,
                             size_t bytes, struct twill_region **region, void **at);
/* Give back what twill_single_copy_attach() mapped. It may stay mapped for later calls. `region`
 * may be NULL. */
void twill_region_release(struct twill_region *region);

/* The information that a rank sends the others so that they can access its memory. */
struct twill_single_copy_info {
    uint64_t pid, segment;                  /* for cma and for xpmem, 0 if none */
    uint64_t token_at;                      /* address of the token */
    unsigned char token[TWILL_NONCE_BYTES]; /* its contents, for comparison */
};

/* The functions of one method, as a constant table. */
struct twill_single_copy_method {
    const char *name;
    enum twill_single_copy_kind setting;
    /* Create *state, to be closed in any case, fill in what peers need. Returns 0 or an errno. */
    int (*open)(void **state, uint32_t peers, struct twill_single_copy_info *mine);
    /* Prepare access to a peer. Returns 0 or an errno. */
    int (*connect_peer)(void *state, uint32_t peer, const struct twill_single_copy_info *theirs);
    /* See twill_single_copy_fetch() and twill_single_copy_attach(). A method has one of the two. */
    int (*fetch)(void *state, uint32_t peer, void *to, uint64_t from, size_t bytes);
    int (*attach)(void *state, uint32_t peer, uint64_t from, size_t bytes,
                  struct twill_region **region, void **at);
    void (*close)(void *state);
};
extern const struct twill_single_copy_method twill_single_copy_cma, twill_single_copy_xpmem;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Reaching what lies in the memory of a rank of this node without having been shared: plain
 * malloc'd buffers. There are two ways, and whether they are open is found out by using them,
 * between the very ranks that will, when a communicator is created: every rank has a token read,
 * and takes a way only if all ranks of the communicator could.
 *
 *   cma    process_vm_readv: the system copies, one call for each piece (single_copy_cma.c)
 *   xpmem  the pages themselves appear here: zero-copy (single_copy_xpmem.c)
 *
 * Peers are numbered as on their node. Not for two threads at a time. */
#ifndef TWILL_SINGLE_COPY_H
#define TWILL_SINGLE_COPY_H

#include "algorithms/world/world.h"
#include "fabric/bootstrap/bootstrap.h"

enum twill_single_copy_kind {
    TWILL_SINGLE_COPY_AUTO,
    TWILL_SINGLE_COPY_NONE,
    TWILL_SINGLE_COPY_CMA,
    TWILL_SINGLE_COPY_XPMEM
};

struct twill_single_copy;
/* Pages of a peer that appear here, in use until they are let go. */
struct twill_region;

/* Collective over boot, whose ranks the world is of. *reach is NULL where no way is open between
 * all of them; how[] says what there is, or why there is nothing. */
twill_status twill_single_copy_open(struct twill_single_copy **single_copy, struct twill_oob *oob,
                                    const struct twill_world *world,
                                    enum twill_single_copy_kind setting, char *how,
                                    size_t how_bytes, struct twill_error *error);
/* Is it known of these ranks without asking them? The same on all of them. Then it is had of `of`,
 * for the ranks ranks[0 ..] of of_world that are `world`, of which this is number `me`: locally. */
bool twill_single_copy_is_known(const struct twill_single_copy *of);
twill_status twill_single_copy_derive(struct twill_single_copy **single_copy,
                                      const struct twill_single_copy *of,
                                      const struct twill_world *of_world, const uint32_t *ranks,
                                      const struct twill_world *world, uint32_t me,
                                      struct twill_error *error);
void twill_single_copy_close(struct twill_single_copy *single_copy);

bool twill_single_copy_fetches(
    const struct twill_single_copy *single_copy); /* by cma; false for NULL */
bool twill_single_copy_maps(
    const struct twill_single_copy *single_copy); /* by xpmem; false for NULL */

/* Copy from a peer's memory: 0, or what errno says; ESRCH: its process has ended. */
int twill_single_copy_fetch(struct twill_single_copy *single_copy, uint32_t peer, void *to,
                            uint64_t from, size_t bytes);
/* Where [from, from + bytes) of a peer is here: 0 or what errno says. */
int twill_single_copy_attach(struct twill_single_copy *single_copy, uint32_t peer, uint64_t from,
                             size_t bytes, struct twill_region **region, void **at);
void twill_region_release(struct twill_region *region);

/* --- the ways -------------------------------------------------------------------------------- */

/* What a rank tells others so that they can come. */
struct twill_single_copy_info {
    uint64_t pid, segment; /* for cma; for xpmem, 0: none */
    uint64_t token_at;     /* address of the token */
    unsigned char token[TWILL_NONCE_BYTES];
};

struct twill_single_copy_way {
    const char *name;
    enum twill_single_copy_kind setting;
    /* Add to the card what this way needs: 0 or errno. state is closed all the same. */
    int (*open)(void **state, uint32_t peers, struct twill_single_copy_info *mine);
    /* Get ready for a peer: 0 or errno. */
    int (*connect_peer)(void *state, uint32_t peer, const struct twill_single_copy_info *theirs);
    /* As twill_single_copy_fetch() and twill_single_copy_attach(); a way has one of the two. */
    int (*fetch)(void *state, uint32_t peer, void *to, uint64_t from, size_t bytes);
    int (*attach)(void *state, uint32_t peer, uint64_t from, size_t bytes,
                  struct twill_region **region, void **at);
    void (*close)(void *state);
};
extern const struct twill_single_copy_way twill_single_copy_cma, twill_single_copy_xpmem;

#endif

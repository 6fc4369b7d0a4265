/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that share memory, for the tests of regions; and ranks of a node with node memory and a
 * transport of fabric/shm, without the rest of the library. */
#ifndef TWILL_SHARED_RANKS_H
#define TWILL_SHARED_RANKS_H

#include "fabric/shm/shared_region.h"
#include "fabric/shm/single_copy.h"
#include "fabric/transports.h"
#include "tests/support/messages.h"

#define TWILL_TEST_SHARE_RANKS 32
#define TWILL_TEST_SHARE_PAIR  5000 /* bytes of each pair */
#define TWILL_TEST_SHARE_BYTES ((size_t)3 << 20)

/* One rank's region and the results. */
struct twill_test_share {
    struct twill_oob *oob;
    struct twill_shm_region *region;
    uint32_t label[TWILL_TEST_SHARE_RANKS];
    const char *why;
    struct twill_error error;
    twill_status status;
};

/* Share new memory among ranks of equal label, over o->oob: all three steps. */
void twill_test_share_over(struct twill_test_share *o, size_t bytes);
/* The same over `caller`, by these labels. */
void twill_test_share(struct twill_test_share *o, twill_bootstrap *caller, const uint32_t *label,
                      size_t bytes);
/* The same; check that all share it. */
bool twill_test_shares(struct twill_test_share *o, twill_bootstrap *caller, const uint32_t *label,
                       size_t bytes);
void twill_test_share_end(struct twill_test_share *o);
/* Wait for all ranks. */
bool twill_test_share_barrier(struct twill_test_share *o);
/* Check that memory of every rank with this rank's label is zero at first, and then holds what its
 * owner wrote. */
bool twill_test_is_shared(struct twill_test_share *o, const uint32_t *label);

#define TWILL_TEST_SHARED_BYTES 5000

enum twill_test_shm_mode {
    TWILL_TEST_PLAIN,
    TWILL_TEST_CHECKSUMS, /* TWILL_CHECKSUM=all */
    TWILL_TEST_READS      /* long messages are read in place */
};

/* A node with its transport, on one rank. */
struct twill_test_shm {
    struct twill_world world;
    struct twill_node *node;
    struct twill_single_copy *single_copy;
    struct twill_test_end end;
};

/* Create node memory: all three steps. */
twill_status twill_test_open_node(struct twill_node **node, struct twill_oob *oob, uint32_t *label,
                                  size_t shared_bytes, size_t pair_bytes, const char **why,
                                  struct twill_error *error);
/* Open the transport on a rank of a job of nodes of per_node ranks; close it in any case. */
bool twill_test_shm_open(struct twill_test_shm *f, twill_bootstrap *caller, uint32_t per_node,
                         const struct twill_transport_ops *ops, enum twill_test_shm_mode mode);
void twill_test_shm_close(struct twill_test_shm *f);
/* Run `body` on each rank of a node, with this transport; `processes`: each rank is one. */
struct twill_test_shm_run {
    int ranks;
    bool processes;
    enum twill_test_shm_mode mode;
    const struct twill_transport_ops *ops; /* NULL: that of the node */
    void (*body)(struct twill_test_shm *f);
};
void twill_test_shm_run(struct twill_test_shm_run run);

#endif

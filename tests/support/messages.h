/* SPDX-License-Identifier: Apache-2.0 */
/* What every transport must do with messages, as bodies that its tests run on each rank. Each
 * returns false once a check has failed (see ranks.h). */
#ifndef TWILL_MESSAGES_H
#define TWILL_MESSAGES_H

#include "fabric/transport.h"
#include "tests/support/ranks.h"

/* One rank's end. */
struct twill_test_end {
    struct twill_transport *transport;
    uint32_t rank, size;
    bool to_self;   /* the peers are this rank itself */
    bool in_chunks; /* what is folded may come in any order of pieces */
    struct twill_error error;
};

/* A world of one node (per_node ranks each), without any room's help. Free with world_free. */
bool twill_test_world(struct twill_world *world, uint32_t size, uint32_t per_node);
void twill_test_world_free(struct twill_world *world);

/* Progress until none of n requests is pending; false after 30 s or on an error. */
bool twill_test_await(struct twill_test_end *end, const struct twill_transfer *requests, size_t n);
/* Every rank sends to every other one: each size, stored and folded, posted before and after. */
bool twill_test_sweep(struct twill_test_end *end, const size_t *sizes, size_t n);
/* All lanes with all peers in both directions, several messages posted at a time, sizes at random
 * up to max_bytes. */
bool twill_test_flood(struct twill_test_end *end, uint32_t messages, size_t max_bytes);
/* Rank 0 sends to rank 1 what it does not expect, in size and signature; then what it does. */
bool twill_test_mismatch(struct twill_test_end *end);

#endif

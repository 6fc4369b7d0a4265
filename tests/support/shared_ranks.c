/* SPDX-License-Identifier: Apache-2.0 */
/* Share regions, and check that memory is shared. */
#include "tests/support/shared_ranks.h"

#include "fabric/shm/mapping.h"

#include <string.h>
#include <unistd.h>

void twill_test_share_over(struct twill_test_share *o, size_t bytes)
{
    struct twill_oob_batch batch = {.oob = o->oob};
    o->status = twill_shm_region_offer(&o->region, o->oob, &batch, &o->error);
    o->status = twill_oob_batch_exchange(&batch, o->status, &o->error);
    if (o->status == TWILL_OK) {
        o->status = twill_shm_region_attach(o->region, o->label, bytes, TWILL_TEST_SHARE_PAIR,
                                            TWILL_MAPPING_COMM, NULL, NULL, &batch, &o->error);
        o->status = twill_oob_batch_exchange(&batch, o->status, &o->error);
    }
    if (o->status == TWILL_OK)
        o->status = twill_shm_region_conclude(o->region, o->label, &o->why, &o->error);
    if (o->status == TWILL_OK)
        return;
    twill_shm_region_close(o->region);
    o->region = NULL;
}

void twill_test_share(struct twill_test_share *o, twill_bootstrap *caller, const uint32_t *label,
                      size_t bytes)
{
    memset(o, 0, sizeof(*o));
    o->oob = twill_test_oob(caller);
    memcpy(o->label, label, (size_t)caller->size * sizeof(*label));
    o->why = "not set";
    twill_test_share_over(o, bytes);
}

void twill_test_share_end(struct twill_test_share *o)
{
    twill_shm_region_close(o->region);
    twill_test_oob_close(o->oob);
}

bool twill_test_share_barrier(struct twill_test_share *o)
{
    unsigned char all[TWILL_TEST_SHARE_RANKS], mine = 0;
    return twill_oob_allgather(o->oob, &mine, all, 1, &o->error) == TWILL_OK;
}

/* Check that what a rank writes to the memory of a pair is seen by the other one, and nowhere else.
 */
static bool check_pairs(struct twill_test_share *o, const uint32_t *label)
{
    uint32_t rank = (uint32_t)o->oob->rank, size = (uint32_t)o->oob->size;
    for (int writes = 1; writes >= 0; writes--) {
        for (uint32_t r = 0; r < size; r++) {
            if (r == rank || label[r] != label[rank])
                continue;
            uint32_t *own = twill_shm_region_pair(o->region, rank, r);
            const uint32_t *theirs = twill_shm_region_pair(o->region, r, rank);
            size_t last = TWILL_TEST_SHARE_PAIR / sizeof(*own) - 1;
            if (writes)
                own[0] = own[last] = 1000 + rank * size + r;
            TWILL_REQUIRE(writes ||
                          (theirs[0] == 1000 + r * size + rank && theirs[last] == theirs[0]));
        }
        TWILL_REQUIRE(twill_test_share_barrier(o));
    }
    return true;
}

bool twill_test_is_shared(struct twill_test_share *o, const uint32_t *label)
{
    uint32_t rank = (uint32_t)o->oob->rank, size = (uint32_t)o->oob->size;
    size_t ranks = 0, page = (size_t)sysconf(_SC_PAGESIZE);
    for (uint32_t r = 0; r < size; r++)
        ranks += label[r] == label[rank];
    size_t bytes = twill_shm_region_bytes(o->region) -
                   ranks * twill_round_up((size_t)TWILL_TEST_SHARE_PAIR, page);
    uint64_t *mine = twill_shm_region_at(o->region, rank);
    TWILL_REQUIRE(bytes >= TWILL_TEST_SHARE_BYTES && mine != NULL &&
                  (uintptr_t)mine % TWILL_HUGE_PAGE == 0);
    TWILL_REQUIRE(mine[0] == 0 && mine[bytes / 16] == 0 && mine[bytes / 8 - 1] == 0);
    mine[0] = 100 + rank;
    mine[bytes / 8 - 1] = 200 + rank;
    TWILL_REQUIRE(twill_test_share_barrier(o));
    for (uint32_t r = 0; r < size; r++) {
        const uint64_t *peer = twill_shm_region_at(o->region, r);
        TWILL_REQUIRE((peer != NULL) == (label[r] == label[rank]));
        TWILL_REQUIRE(peer == NULL || (peer[0] == 100 + r && peer[bytes / 8 - 1] == 200 + r));
        TWILL_REQUIRE(!twill_shm_region_owner_dead(o->region, r));
    }
    TWILL_REQUIRE(twill_shm_region_at(o->region, size) == NULL);
    return twill_test_share_barrier(o) && check_pairs(o, label);
}

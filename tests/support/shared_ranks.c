/* SPDX-License-Identifier: Apache-2.0 */
/* Share regions, and check that memory is shared. */
#include "tests/support/shared_ranks.h"

#include "fabric/shm/mapping.h"
#include "fabric/shm/node_memory.h"
#include "kernels/kernels.h"

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

bool twill_test_shares(struct twill_test_share *o, twill_bootstrap *caller, const uint32_t *label,
                       size_t bytes)
{
    twill_test_share(o, caller, label, bytes);
    return TWILL_NOTE(o->status == TWILL_OK && o->why == NULL, "rank %d: %d: %s, because %s",
                      caller->rank, o->status, o->error.message, o->why) &&
           TWILL_NOTE(memcmp(o->label, label, (size_t)caller->size * sizeof(*label)) == 0,
                      "labels have changed") &&
           twill_test_is_shared(o, label);
}

void twill_test_share_end(struct twill_test_share *o)
{
    twill_shm_region_close(o->region);
    o->region = NULL;
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

/* --- node memory and its transport --------------------------------------------------------------
 */

static const char *checksum_setting(const void *settings, const char *variable)
{
    return strcmp(variable, "TWILL_CHECKSUM") == 0 ? "all" : NULL;
}

twill_status twill_test_open_node(struct twill_node **node, struct twill_oob *oob, uint32_t *label,
                                  size_t shared_bytes, size_t pair_bytes, const char **why,
                                  struct twill_error *error)
{
    struct twill_oob_batch batch = {.oob = oob};
    twill_status status = twill_node_offer(node, oob, &batch, error);
    status = twill_oob_batch_exchange(&batch, status, error);
    if (status == TWILL_OK) {
        status =
            twill_node_attach(*node, oob, label, shared_bytes, pair_bytes, NULL, &batch, error);
        status = twill_oob_batch_exchange(&batch, status, error);
    }
    return status == TWILL_OK ? twill_node_conclude(*node, oob, label, why, error) : status;
}

/* Negotiate single-copy access: all three steps. */
static bool open_single_copy(struct twill_test_shm *f)
{
    char how[200];
    struct twill_oob_batch batch = {.oob = f->end.oob};
    twill_status status = twill_single_copy_offer(&f->single_copy, f->end.rank, &f->world,
                                                  TWILL_SINGLE_COPY_CMA, &batch, &f->end.error);
    if (twill_oob_batch_exchange(&batch, status, &f->end.error) != TWILL_OK)
        return false;
    twill_single_copy_probe(f->single_copy, f->end.rank, &f->world, &batch);
    if (twill_oob_batch_exchange(&batch, TWILL_OK, &f->end.error) != TWILL_OK)
        return false;
    twill_single_copy_conclude(&f->single_copy, f->end.rank, &f->world, how, sizeof(how));
    return TWILL_NOTE(f->single_copy != NULL, "%s", how);
}

bool twill_test_shm_open(struct twill_test_shm *f, twill_bootstrap *caller, uint32_t per_node,
                         const struct twill_transport_ops *ops, enum twill_test_shm_mode mode)
{
    struct twill_test_end *end = &f->end;
    const struct twill_kernels *kernels;
    const char *why = NULL;
    uint32_t label[64];
    TWILL_REQUIRE(end_begin(end, caller) && twill_test_world(&f->world, end->size, per_node));
    memcpy(label, f->world.node, end->size * sizeof(*label));
    twill_status status = twill_test_open_node(&f->node, end->oob, label, TWILL_TEST_SHARED_BYTES,
                                               twill_shm_pair_bytes(), &why, &end->error);
    TWILL_REQUIRE(status == TWILL_OK, "%s", end->error.message);
    TWILL_REQUIRE(why == NULL);
    TWILL_REQUIRE(mode != TWILL_TEST_READS || open_single_copy(f));
    TWILL_REQUIRE(twill_kernels_select(&kernels, NULL, NULL) == TWILL_OK);
    end->params.world = &f->world;
    end->params.node = f->node;
    end->params.single_copy = f->single_copy;
    end->params.crc32c = kernels->crc32c;
    end->params.setting = mode == TWILL_TEST_CHECKSUMS ? checksum_setting : NULL;
    end->to_self = ops == &twill_self_transport;
    return end_opened(end, ops->open(&end->transport, &end->params, &end->error));
}

void twill_test_shm_close(struct twill_test_shm *f)
{
    end_close_more(&f->end);
    twill_single_copy_close(f->single_copy);
    twill_node_close(f->node);
    twill_world_destroy(&f->world);
    end_close(&f->end);
}

static void shm_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct twill_test_shm_run *run = user;
    struct twill_test_shm f = {.node = NULL};
    if (twill_test_shm_open(&f, caller, (uint32_t)size, run->ops, run->mode))
        run->body(&f);
    twill_test_shm_close(&f);
}

void twill_test_shm_run(struct twill_test_shm_run run)
{
    if (run.ops == NULL)
        run.ops = &twill_shm_transport;
    (run.processes ? twill_test_run_processes : twill_test_run_ranks)(run.ranks, shm_rank, &run);
}

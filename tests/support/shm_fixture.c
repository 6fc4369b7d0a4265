/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes what shm_fixture.h describes. */
#include "tests/support/shm_fixture.h"
#include "fabric/shm/node_memory.h"
#include "kernels/kernels.h"

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
    struct twill_oob_batch batch = {.oob = f->oob};
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
    const struct twill_kernels *kernels;
    f->end =
        (struct twill_test_end){.rank = (uint32_t)caller->rank, .size = (uint32_t)caller->size};
    struct twill_error *error = &f->end.error;
    const char *why = NULL;
    f->oob = twill_test_oob(caller);
    TWILL_REQUIRE(f->oob != NULL && twill_test_world(&f->world, f->end.size, per_node));
    uint32_t label[64];
    memcpy(label, f->world.node, f->end.size * sizeof(*label));
    twill_status status = twill_test_open_node(&f->node, f->oob, label, TWILL_TEST_SHARED_BYTES,
                                               twill_shm_pair_bytes(), &why, error);
    TWILL_REQUIRE(status == TWILL_OK, "%s", error->message);
    TWILL_REQUIRE(why == NULL);
    TWILL_REQUIRE(mode != TWILL_TEST_READS || open_single_copy(f));
    struct twill_transport_params params = {
        .oob = f->oob, .world = &f->world, .node = f->node, .single_copy = f->single_copy};
    TWILL_REQUIRE(twill_kernels_select(&kernels, NULL, NULL) == TWILL_OK);
    params.crc32c = kernels->crc32c;
    params.setting = mode == TWILL_TEST_CHECKSUMS ? checksum_setting : NULL;
    status = ops->open(&f->end.transport, &params, error);
    f->end.to_self = ops == &twill_self_transport;
    return TWILL_NOTE(status == TWILL_OK, "%s", error->message);
}

void twill_test_shm_close(struct twill_test_shm *f)
{
    if (f->end.transport != NULL)
        f->end.transport->ops->close(f->end.transport);
    twill_single_copy_close(f->single_copy);
    twill_node_close(f->node);
    twill_test_world_free(&f->world);
    twill_test_oob_close(f->oob);
}

void twill_test_shm_run(twill_bootstrap *caller, const struct twill_transport_ops *ops,
                        bool (*body)(struct twill_test_shm *), enum twill_test_shm_mode mode)
{
    struct twill_test_shm f = {0};
    if (twill_test_shm_open(&f, caller, (uint32_t)caller->size, ops, mode))
        body(&f);
    twill_test_shm_close(&f);
}

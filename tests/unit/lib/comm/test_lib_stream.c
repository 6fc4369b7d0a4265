/* SPDX-License-Identifier: Apache-2.0 */
/* From which size on results are stored past the caches: by a core's part of all L3 caches, a
 * rank's part where ranks are more than cores, an L2 cache without any, or as it is set. */
#include "lib/comm/comm.h"
#include "tests/support/unit.h"

static const struct streamed {
    const char *topology, *tune;
    int ranks;
    size_t from; /* bytes */
} streamed[] = {
    {"pack:2 l3:2(size=16777216) core:4 pu:1", "", 2, (size_t)1536 << 10},
    {"pack:2 l3:2(size=16777216) core:4 pu:1", "stream=5M", 2, (size_t)5 << 20},
    {"pack:1 l3:1(size=33554432) core:2 pu:1", "", 4, (size_t)3 << 20},
    {"pack:1 l2:2(size=1048576) core:1 pu:1", "", 2, (size_t)384 << 10},
};

static void streams_from(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct streamed *row = user;
    char layout[96], tune[32];
    snprintf(layout, sizeof(layout), "TWILL_LAYOUT=topology=%s", row->topology);
    snprintf(tune, sizeof(tune), "TWILL_TUNE=%s", row->tune);
    const char *const more[] = {layout, tune, TWILL_TEST_PATIENT, NULL};
    twill_context *context;
    twill_comm *comm;
    if (twill_test_connect(&context, &comm, bootstrap, "", NULL, more))
        TWILL_NOTE(comm->tuning.stream == row->from, "%s, %d ranks: %zu", row->topology, row->ranks,
                   comm->tuning.stream);
    (void)twill_test_barrier(bootstrap);
    twill_test_disconnect(comm, context);
}

TWILL_TEST(test_default)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(streamed); i++) {
        struct streamed one = streamed[i];
        twill_test_run_ranks(one.ranks, streams_from, &one);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Records of a rank whose memory is damaged, in all-gathers: they are refused with a sentence. The
 * fuzzers `exchange` and `endpoints` found these, or were written after them. */
#include "fabric/bootstrap/agreement.h"
#include "fabric/rails/rails.h"
#include "fabric/shm/shared_region.h"
#include "fabric/transports.h"
#include "tests/support/unit.h"

enum { RANKS = 2 };

/* An exchange in which rank 1 says what rank 0 does, but for 4 bytes at some offsets. */
struct damaged {
    struct twill_oob oob;
    unsigned exchange; /* which one, from 1 */
    size_t changes;
    struct {
        size_t offset;
        int32_t value;
    } change[3];
};

static twill_status exchange(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                             struct twill_error *error)
{
    const struct damaged *damaged = (const struct damaged *)oob;
    for (size_t r = 0; r < RANKS; r++)
        memcpy((char *)all + r * bytes, mine, bytes);
    for (size_t i = 0; i < damaged->changes && oob->rounds == damaged->exchange; i++)
        memcpy((char *)all + bytes + damaged->change[i].offset, &damaged->change[i].value, 4);
    return TWILL_OK;
}

static const struct twill_bootstrap_ops ops = {.name = "damaged", .allgather = exchange};

static struct twill_oob oob_of_two(void)
{
    return (struct twill_oob){
        .ops = &ops, .size = RANKS, .timeout_ns = 2000000000, .address = "127.0.0.1"};
}

/* TWILL_TRY would take a positive status for success. */
TWILL_TEST(test_status)
{
    struct damaged damaged = {oob_of_two(), 1, 1, {{0, 5}}};
    struct twill_agreement agreement = {.oob = &damaged.oob};
    struct twill_error error = {0};
    assert_int_equal(twill_agreement_exchange(&agreement, TWILL_OK, &error), TWILL_ERR_INTERNAL);
    assert_memory_equal(error.message, "rank 1 sends 5 as its status: ", 30);
    assert_int_equal(twill_status_received(TWILL_STATUS_LOWEST), TWILL_STATUS_LOWEST);
    assert_int_equal(twill_status_received(TWILL_STATUS_LOWEST - 1), TWILL_ERR_INTERNAL);
    assert_int_equal(twill_status_received(INT64_C(1) << 32), TWILL_ERR_INTERNAL);
}

/* The second word of what ranks send when tcp opens is their status. */
TWILL_TEST(test_tcp)
{
    struct damaged damaged = {oob_of_two(), 1, 1, {{4, 1}}};
    const uint32_t label[] = {0, 1};
    struct twill_world world;
    struct twill_error error = {0};
    struct twill_transport *transport;
    assert_int_equal(twill_world_create(&world, RANKS, label, &error), TWILL_OK);
    const struct twill_transport_params params = {.oob = &damaged.oob, .world = &world, .comm = 1};
    assert_int_equal(twill_tcp_transport.open(&transport, &params, &error), TWILL_ERR_INTERNAL);
    assert_null(transport);
    assert_memory_equal(error.message, "rank 1: ", 8);
    twill_world_destroy(&world);
}

TWILL_TEST(test_rails)
{
    static const uint32_t requested[] = {0, TWILL_RAILS_MOST + 1, UINT32_MAX};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(requested); i++) {
        struct twill_rails_info infos[RANKS];
        struct twill_error error = {0};
        uint32_t place[TWILL_RAILS_MOST], weight[TWILL_RAILS_MOST], count = 0;
        memset(infos, 0, sizeof(infos));
        for (size_t r = 0; r < RANKS; r++) {
            infos[r].setting = TWILL_RAILS_NUMBER;
            infos[r].requested = requested[i];
            infos[r].count = 1;
        }
        assert_int_equal(twill_rails_agree(infos, RANKS, 0, place, weight, &count, &error),
                         TWILL_ERR_INTERNAL);
        assert_memory_equal(error.message, "rank 0 sends rails of another kind: ", 36);
    }
}

/* A rank that has waited for the memory of one that does not exist: in the second exchange, behind
 * the status, which has 256 bytes. */
TWILL_TEST(test_shared_memory)
{
    static const uint32_t job[] = {7, 9};
    struct damaged damaged = {oob_of_two(), 2, 2, {{256 + 20, 1}, {256 + 28, -1}}};
    struct twill_agreement agreement = {.oob = &damaged.oob};
    struct twill_error error = {0};
    struct twill_shm_region *region;
    uint32_t label[] = {0, 0};
    const char *why;
    damaged.oob.job = job;
    twill_status status = twill_shm_region_offer(&region, &damaged.oob, &agreement, &error);
    assert_int_equal(twill_agreement_exchange(&agreement, status, &error), TWILL_OK);
    status = twill_shm_region_attach(region, label, 4096, 0, "twill-comm", NULL, NULL, &agreement,
                                     &error);
    assert_int_equal(twill_agreement_exchange(&agreement, status, &error), TWILL_OK);
    assert_int_equal(twill_shm_region_conclude(region, label, &why, &error), TWILL_ERR_TIMEOUT);
    assert_non_null(strstr(error.message, "rank 9 of the job (1 here) waited 2 s for the memory of "
                                          "another rank"));
    twill_shm_region_close(region);
}

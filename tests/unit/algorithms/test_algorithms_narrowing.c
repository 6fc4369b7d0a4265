/* SPDX-License-Identifier: Apache-2.0 */
/* twill_narrowing_pays(): the three costs, the break-even, and what is refused. */
#include "algorithms/select/ways.h"
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

static struct twill_narrowing compare(const struct test_chooser *c,
                                      enum twill_collective collective, size_t bytes,
                                      twill_type type, uint64_t rate)
{
    const struct twill_select_request request = {
        .collective = collective, .bytes = bytes, .type = TWILL_F32};
    struct twill_error error = {.status = TWILL_OK};
    struct twill_narrowing got;
    if (twill_narrowing_pays(&got, c->chooser, &c->world, c->tuning, &request, type, rate,
                             &error) != TWILL_OK)
        fail_msg("%s", error.message);
    return got;
}

/* 4 MiB take 1 ms, 2 MiB 0.6 ms, 1 MiB 0.5 ms: f16 must take less than 15/16 ms, so that
 * converting may take 0.3375 ms, or 82397 ps per KiB. */
TWILL_TEST(test_measured)
{
    static const char text[] = "twill-tuning 1\nmodel convert 1000\n"
                               "measured allreduce ring 2x1 1M 500000000\n"
                               "measured allreduce ring 2x1 2M 600000000\n"
                               "measured allreduce ring 2x1 4M 1000000000\n";
    struct test_chooser c;
    test_chooser_open(&c, "2x1", text, "allreduce:ring");
    struct twill_narrowing got = compare(&c, TWILL_ALLREDUCE, 4 << 20, TWILL_F16, 82397);
    assert_int_equal(got.wide, 1000000000);
    assert_int_equal(got.narrow, 600000000);
    assert_int_equal(got.conversion, 82397 * 4096);
    assert_true(got.pays);
    assert_false(compare(&c, TWILL_ALLREDUCE, 4 << 20, TWILL_F16, 82398).pays);
    got = compare(&c, TWILL_ALLREDUCE, 4 << 20, TWILL_F8E4M3, 82398);
    assert_int_equal(got.narrow, 500000000);
    assert_true(got.pays);
    got = compare(&c, TWILL_ALLREDUCE, 4 << 20, TWILL_BF16, 0); /* the model's */
    assert_int_equal(got.conversion, 1000 * 4096);
    /* A reduce_scatter's result is half of its source, on two ranks. */
    got = compare(&c, TWILL_REDUCE_SCATTER, 4 << 20, TWILL_BF16, 1000);
    assert_int_equal(got.conversion, 1000 * 3072);
    test_chooser_close(&c);
}

/* The slower the network, the more it pays; from some bandwidth on it does not. */
TWILL_TEST(test_break_even)
{
    static const size_t sizes[] = {64 << 10, 1 << 20, 64 << 20};
    for (size_t s = 0; s < TWILL_ARRAY_LENGTH(sizes); s++) {
        bool paid = true;
        for (uint64_t mb_s = 10; mb_s <= 1000000; mb_s *= 10) {
            struct test_chooser c;
            test_chooser_open(&c, "2x1", NULL, NULL);
            struct twill_link_cost *network = &c.tuning->model.link[TWILL_LINK_NETWORK];
            network->gap = c.tuning->model.interface = 1024000000 / mb_s;
            bool pays = compare(&c, TWILL_ALLREDUCE, sizes[s], TWILL_F16, 0).pays;
            assert_true(paid || !pays);
            assert_true(mb_s > 1000 || pays);
            assert_true(mb_s < 1000000 || !pays);
            paid = pays;
            test_chooser_close(&c);
        }
    }
}

TWILL_TEST(test_refused)
{
    struct test_chooser c;
    struct twill_narrowing got;
    struct twill_error error = {.status = TWILL_OK};
    static const struct {
        struct twill_select_request request;
        twill_type type;
    } bad[] = {
        {{.collective = TWILL_ALLREDUCE, .bytes = 64, .type = TWILL_F64}, TWILL_F16},
        {{.collective = TWILL_ALLREDUCE, .bytes = 64, .type = TWILL_F32}, TWILL_F32},
        {{.collective = TWILL_BROADCAST, .bytes = 64, .type = TWILL_F32}, TWILL_F16},
    };
    test_chooser_open(&c, "2x1", NULL, NULL);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(bad); i++) {
        assert_int_equal(twill_narrowing_pays(&got, c.chooser, &c.world, c.tuning, &bad[i].request,
                                              bad[i].type, 0, &error),
                         TWILL_ERR_ARGUMENT);
        assert_false(got.pays);
        twill_error_clear(&error);
    }
    test_chooser_close(&c);
}

static size_t slot_of(const char *world, enum twill_collective collective)
{
    struct twill_error error = {.status = TWILL_OK};
    struct test_chooser c;
    size_t bytes;
    test_chooser_open(&c, world, NULL, NULL);
    if (twill_slot_pays(&bytes, c.chooser, &c.world, c.tuning, collective, &error) != TWILL_OK)
        fail_msg("%s", error.message);
    test_chooser_close(&c);
    return bytes;
}

/* With many ranks a node, the root of a gather or scatter would have a message for each of them. */
TWILL_TEST(test_slots)
{
    assert_int_equal(slot_of("48x64", TWILL_GATHER), 256);
    assert_int_equal(slot_of("48x64", TWILL_SCATTER), 256);
    assert_int_equal(slot_of("48x64", TWILL_ALLTOALL), 64);
    assert_int_equal(slot_of("24x8", TWILL_GATHER), 256);
    assert_int_equal(slot_of("4x2", TWILL_GATHER), 0);
    assert_int_equal(slot_of("1x96", TWILL_GATHER), 0);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* FETCHED: chosen where it was measured to be faster and is available, and never stores into peers'
 * memory (its schedules are verified in the sweep). And when measured timings apply. */
#include "algorithms/algorithms.h"
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

/* Buffer addresses are exchanged where FETCHED was measured to be faster, and it is chosen where
 * peers can be read. */
TWILL_TEST(test_measured_fetched)
{
    static const char text[] = "twill-tuning 1\nmeasured allreduce direct@fetched 1x4 1M 5\n";
    struct twill_world world;
    struct twill_tuning *tuning;
    struct twill_chooser *chooser;
    struct twill_choice choice;
    struct twill_select_request request = {.collective = TWILL_ALLREDUCE, .bytes = 1 << 20};
    const uint32_t label[4] = {0};
    assert_int_equal(twill_world_create(&world, 4, label, NULL), TWILL_OK);
    assert_int_equal(twill_tuning_create(&tuning, NULL, text, "file", NULL), TWILL_OK);
    assert_int_equal(twill_chooser_create(&chooser, &world, tuning, NULL, NULL), TWILL_OK);
    for (unsigned i = 0; i < 4; i++) {
        request.fetched = i % 2 != 0;
        request.vector = false;
        request.mapped = i / 2 != 0;
        assert_int_equal(twill_select(&choice, chooser, &request, NULL), TWILL_OK);
        assert_int_equal(choice.shape.protocol, request.fetched  ? TWILL_PROTOCOL_FETCHED
                                                : request.mapped ? TWILL_PROTOCOL_MAPPED
                                                                 : TWILL_PROTOCOL_STAGED);
        assert_int_equal(twill_mapping_matters(chooser, &request),
                         request.fetched ? TWILL_ACCESS_FETCHED : TWILL_ACCESS_MAPPED);
    }
    twill_chooser_destroy(chooser);
    twill_tuning_destroy(tuning);
    twill_world_destroy(&world);
}

/* Only reads are available: a MAPPED schedule may store into a peer's DST, a FETCHED one may not.
 */
TWILL_TEST(test_never_stored)
{
    static const char text[] = "schedule shards 1 blocks 1 tmp 0 shared 0 peer_src 0 peer_dst 1\n"
                               "lane\ncopy @DST[0] = SRC[0] of 1\n";
    const uint32_t label[2] = {0};
    struct twill_world world;
    struct twill_schedule schedule;
    struct twill_error error = {.status = TWILL_OK};
    assert_int_equal(twill_world_create(&world, 2, label, NULL), TWILL_OK);
    assert_int_equal(twill_schedule_parse(&schedule, text, &error), TWILL_OK);
    struct twill_shape shape = {.collective = TWILL_ALLREDUCE, .protocol = TWILL_PROTOCOL_MAPPED};
    assert_int_equal(twill_schedule_check(&schedule, &world, 0, &shape, &error), TWILL_OK);
    shape.protocol = TWILL_PROTOCOL_FETCHED;
    assert_int_equal(twill_schedule_check(&schedule, &world, 0, &shape, &error),
                     TWILL_ERR_INTERNAL);
    assert_non_null(strstr(error.message, "stores into a peer's DST"));
    twill_schedule_destroy(&schedule);
    twill_world_destroy(&world);
}

/* With eight ranks per node a flat algorithm is chosen for a large allreduce if it was measured. */
TWILL_TEST(test_measured_flat)
{
    static const char text[] = "twill-tuning 1\nmeasured allreduce torus 4x8 1M 5\n";
    const struct twill_select_request request = {
        .collective = TWILL_ALLREDUCE, .bytes = 1 << 20, .type = TWILL_F32};
    struct twill_world world;
    assert_int_equal(twill_world_declare(&world, "4x8", NULL), TWILL_OK);
    for (unsigned measured = 0; measured < 2; measured++) {
        struct twill_tuning *tuning;
        struct twill_chooser *chooser;
        struct twill_choice choice;
        assert_int_equal(twill_tuning_create(&tuning, NULL, measured ? text : NULL,
                                             measured ? "file" : NULL, NULL),
                         TWILL_OK);
        assert_int_equal(twill_chooser_create(&chooser, &world, tuning, NULL, NULL), TWILL_OK);
        assert_int_equal(twill_select(&choice, chooser, &request, NULL), TWILL_OK);
        assert_int_equal(choice.algorithm->protocols == 0, measured);
        twill_chooser_destroy(chooser);
        twill_tuning_destroy(tuning);
    }
    twill_world_destroy(&world);
}

/* Timings are for one machine: with another CPU, other caches or more cores the file does not
 * match. */
TWILL_TEST(test_key)
{
    static const char text[] = "twill-tuning 1\n# for AMD\n\n for AuthenticAMD 25 17 1M 2 # EPYC\n";
    static const struct {
        struct twill_tuning_key here;
        bool matches;
    } cases[] = {{{"AuthenticAMD 25 17", 1 << 20, 2}, true},
                 {{"AuthenticAMD 25 1", 1 << 20, 2}, false},
                 {{"", 1 << 20, 2}, false},
                 {{"AuthenticAMD 25 17", 1 << 19, 2}, false},
                 {{"AuthenticAMD 25 17", 1 << 20, 4}, false}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        assert_int_equal(twill_tuning_is_for(text, &cases[i].here), cases[i].matches);
    assert_false(twill_tuning_is_for("twill-tuning 1\nfor AuthenticAMD 25 17\n", &cases[0].here));
    char printed[TWILL_TUNING_KEY_BYTES], line[TWILL_TUNING_KEY_BYTES + 8];
    twill_tuning_key_print(printed, &test_timings_key);
    snprintf(line, sizeof(line), "for %s\n", printed);
    assert_true(twill_tuning_is_for(line, &test_timings_key));
    struct twill_tuning *delivered = test_timings();
    assert_true(delivered->count > 100);
    twill_tuning_destroy(delivered);
}

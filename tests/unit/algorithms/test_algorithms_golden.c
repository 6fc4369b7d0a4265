/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules as text: the golden ones, exactly, and the way back. TEST_GOLDEN_WRITE=1 writes the
 * golden files anew. */
#include "tests/support/schedules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *print(const struct twill_schedule *schedule)
{
    size_t length = twill_schedule_print(schedule, NULL, 0);
    char *text = malloc(length + 1);
    assert_non_null(text);
    assert_int_equal(twill_schedule_print(schedule, text, length + 1), length);
    assert_int_equal(strlen(text), length);
    return text;
}

/* All ranks in one text. */
static char *print_all(const struct twill_schedule *schedules, uint32_t size)
{
    char *all = calloc(1, 1);
    size_t used = 0;
    for (uint32_t r = 0; r < size; r++) {
        char *text = print(&schedules[r]), head[32];
        int n = snprintf(head, sizeof(head), "rank %u\n", r);
        size_t length = strlen(text);
        all = realloc(all, used + (size_t)n + length + 1);
        assert_non_null(all);
        memcpy(all + used, head, (size_t)n);
        memcpy(all + used + n, text, length + 1);
        used += (size_t)n + length;
        free(text);
    }
    return all;
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return NULL;
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    text[fread(text, 1, (1 << 20) - 1, file)] = '\0';
    fclose(file);
    return text;
}

static void compare_golden(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/golden/%s.txt", TWILL_TEST_DATA, name);
    if (getenv("TEST_GOLDEN_WRITE") != NULL) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(text, file);
        assert_int_equal(fclose(file), 0);
    }
    char *golden = read_file(path);
    if (golden == NULL)
        fail_msg("%s cannot be read; TEST_GOLDEN_WRITE=1 writes it", path);
    if (strcmp(golden, text) != 0)
        fail_msg("%s differs from what is emitted now", path);
    free(golden);
}

/* Where an algorithm has something of its own to show: one node, one rank a node, or both. */
static bool is_typical(const struct test_case *test)
{
    const struct twill_world *w = test->world;
    const struct twill_shape *s = &test->shape;
    if (s->vector || s->order != TWILL_ORDER_ANY || s->parameter[0] != 0)
        return false;
    bool composes = strncmp(test->algorithm->name, "hierarchical", 12) == 0 ||
                    strcmp(test->algorithm->name, "levels") == 0;
    if (composes)
        return w->size == 8 && w->nodes > 1 && w->nodes < 8 ? w->nodes == 4 : w->size == 5;
    if (w->nodes == 1)
        return test->algorithm->protocols != 0 &&
               (w->size == 4 || (w->size == 9 && s->collective == TWILL_ALLREDUCE));
    return twill_world_widest(w) == 1;
}

/* <algorithm>-<collective>-<flavour>-<ranks of the nodes>.txt */
static void golden_case(const struct test_case *test, void *user)
{
    unsigned *count = user;
    if (!is_typical(test))
        return;
    struct twill_schedule *schedules = test_emit(test);
    char name[256], shape[64] = "";
    const struct twill_world *w = test->world;
    size_t used = (size_t)snprintf(shape, sizeof(shape), "%u", w->node_size[0]);
    for (uint32_t n = 1; n < w->nodes; n++)
        used += (size_t)snprintf(shape + used, sizeof(shape) - used, "+%u", w->node_size[n]);
    bool plain = test->algorithm->protocols == 0 || test->shape.collective == TWILL_BARRIER;
    snprintf(name, sizeof(name), "%s-%s%s%s-%s", test->algorithm->name,
             twill_collective_name(test->shape.collective), plain ? "" : "-",
             plain ? "" : twill_protocol_name(test->shape.protocol), shape);
    for (char *c = name; *c != '\0'; c++)
        *c = *c == ':' ? '_' : *c;
    char *text = print_all(schedules, w->size);
    compare_golden(name, text);
    free(text);
    test_schedules_destroy(schedules, w->size);
    ++*count;
}

static void test_golden(void **state)
{
    (void)state;
    static const char *const shapes[] = {"4", "9", "5x1", "4x2", "2+2+1"};
    static const uint32_t sizes[] = {4, 9, 5, 8, 5};
    unsigned count = 0;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(shapes); i++) {
        struct twill_error error = {.status = TWILL_OK};
        struct twill_world world;
        uint32_t label[16];
        char text[32];
        snprintf(text, sizeof(text), "%s", shapes[i]);
        assert_int_equal(twill_world_parse_nodes(text, sizes[i], label, &error), TWILL_OK);
        assert_int_equal(twill_world_create(&world, sizes[i], label, &error), TWILL_OK);
        test_each_case(&world, 1, golden_case, &count);
        twill_world_destroy(&world);
    }
    assert_true(count > 50);
}

static void round_trip(const struct test_case *test, void *user)
{
    unsigned *count = user;
    struct twill_schedule *schedules = test_emit(test);
    for (uint32_t r = 0; r < test->world->size; r++) {
        const struct twill_schedule *was = &schedules[r];
        struct twill_schedule now;
        struct twill_error error = {.status = TWILL_OK};
        char *text = print(was);
        if (twill_schedule_parse(&now, text, &error) != TWILL_OK)
            fail_msg("%s: %s", test->name, error.message);
        assert_int_equal(now.count, was->count);
        assert_memory_equal(now.steps, was->steps, was->count * sizeof(*was->steps));
        assert_memory_equal(now.lane_first, was->lane_first, sizeof(was->lane_first));
        assert_int_equal(now.lanes, was->lanes);
        assert_int_equal(now.blocks, was->blocks);
        assert_int_equal(now.tmp_blocks, was->tmp_blocks);
        assert_int_equal(now.shared_blocks, was->shared_blocks);
        assert_int_equal(now.most_posted, was->most_posted);
        assert_int_equal(now.uses_imm, was->uses_imm);
        assert_int_equal(now.uses_peer_src, was->uses_peer_src);
        assert_int_equal(now.uses_peer_dst, was->uses_peer_dst);
        assert_int_equal(now.eager, was->eager);
        free(text);
        twill_schedule_destroy(&now);
        ++*count;
    }
    test_schedules_destroy(schedules, test->world->size);
}

static void test_round_trip(void **state)
{
    (void)state;
    unsigned count = 0;
    for (uint32_t size = 1; size <= 17; size += 4) {
        for (unsigned placement = 0; placement < TEST_PLACEMENT_COUNT; placement++) {
            struct twill_world world;
            if (!test_world(&world, size, placement, 3))
                continue;
            test_each_case(&world, 2, round_trip, &count);
            twill_world_destroy(&world);
        }
    }
    assert_true(count > 500);
}

/* Two lanes, which no algorithm uses yet: parsed, verified, printed. */
static void test_lanes(void **state)
{
    (void)state;
    static const char *const texts[2] = {
        "schedule parts 1 blocks 2 tmp 0 shared 0 peer_src 0 peer_dst 0\n"
        "lane\nsend SRC[0] to 1\nwait\nrecv DST[0] from 1\nwait\n"
        "lane\nrecv_reduce DST[1] = SRC[1] from 1 first final\nwait\nsend DST[1] to 1\nwait\n",
        "schedule parts 1 blocks 2 tmp 0 shared 0 peer_src 0 peer_dst 0\n"
        "lane\nrecv_reduce DST[0] = SRC[0] from 0 first final\nwait\nsend DST[0] to 0\nwait\n"
        "lane\nsend SRC[1] to 0\nwait\nrecv DST[1] from 0\nwait\n"};
    struct twill_schedule schedules[2];
    struct twill_world world;
    struct twill_shape shape = {.collective = TWILL_ALLREDUCE};
    assert_true(test_world(&world, 2, TEST_ALL_NODES, 0));
    for (int r = 0; r < 2; r++) {
        assert_int_equal(twill_schedule_parse(&schedules[r], texts[r], NULL), TWILL_OK);
        assert_int_equal(schedules[r].lanes, 2);
        char *text = print(&schedules[r]);
        assert_string_equal(text, texts[r]);
        free(text);
    }
    for (uint32_t window = 1; window <= 2; window++)
        for (int in_place = 0; in_place < 2; in_place++)
            assert_int_equal(twill_schedule_verify_window(schedules, &world, &shape, in_place != 0,
                                                          window, NULL),
                             TWILL_OK);
    /* Exchange the lanes of one rank only: their messages no longer meet. */
    schedules[0].steps[0].src = twill_operand_make(TWILL_SRC, 1);
    struct twill_error error = {.status = TWILL_OK};
    assert_int_equal(twill_schedule_verify(schedules, &world, &shape, false, &error),
                     TWILL_ERR_INTERNAL);
    assert_non_null(strstr(error.message, "rank 1, lane 0, step 1"));
    twill_schedule_destroy(&schedules[0]);
    twill_schedule_destroy(&schedules[1]);
    twill_world_destroy(&world);
}

static void test_bad_text(void **state)
{
    (void)state;
#define GOLDEN_HEAD "schedule parts 1 blocks 2 tmp 0 shared 0 peer_src 0 peer_dst 0\n"
    static const char *const bad[] = {
        "",
        "schedule\n",
        "schedule parts 1 blocks 0 tmp 0 shared 0 peer_src 0 peer_dst 0\nlane\n",
        "schedule parts 1 blocks 2 tmp 0 shared 0 peer_src 2 peer_dst 0\nlane\n",
        "schedule parts 1 blocks 2 tmp 0 shared 0 peer_src 0 peer_dst 0 more\nlane\n",
        GOLDEN_HEAD,
        GOLDEN_HEAD "wait\n",
        GOLDEN_HEAD "lane\nlane\nlane\nlane\nlane\n",
        GOLDEN_HEAD "lane\nfetch SRC[0] to 1\n",
        GOLDEN_HEAD "lane\nsend SRC[0]\n",
        GOLDEN_HEAD "lane\nsend to 1\n",
        GOLDEN_HEAD "lane\nsend SRC[0] to 1 2\n",
        GOLDEN_HEAD "lane\nsend SRC[0] to x\n",
        GOLDEN_HEAD "lane\nsend SRC[0] to 65536\n",
        GOLDEN_HEAD "lane\nsend SRC[0] SRC[1] to 1\n",
        GOLDEN_HEAD "lane\nsend SRC[] to 1\n",
        GOLDEN_HEAD "lane\nsend SRC[16777216] to 1\n",
        GOLDEN_HEAD "lane\nsend SRC[0]x65536 to 1\n",
        GOLDEN_HEAD "lane\nsend SRC[0]y to 1\n",
        GOLDEN_HEAD "lane\nsend HEAP[0] to 1\n",
        GOLDEN_HEAD "lane\ncopy DST[0]\n",
        GOLDEN_HEAD "lane\ncopy = DST[0] SRC[0]\n",
        GOLDEN_HEAD "lane\nawait 1 of 0 1 2 3 4 5 6 7 8\n",
        GOLDEN_HEAD "lane\nwait quickly\n",
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(bad); i++) {
        struct twill_schedule schedule;
        struct twill_error error = {.status = TWILL_OK};
        if (twill_schedule_parse(&schedule, bad[i], &error) != TWILL_ERR_ARGUMENT)
            fail_msg("accepted: %s", bad[i]);
        assert_true(error.message[0] != '\0');
        assert_null(schedule.steps);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_lanes),
        cmocka_unit_test(test_bad_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

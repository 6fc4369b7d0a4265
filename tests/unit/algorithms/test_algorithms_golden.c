/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules as text: compared with tests/data/golden.txt, and parsed back. TEST_GOLDEN_WRITE=1
 * rewrites that file. */
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

static char *print(const struct twill_schedule *schedule)
{
    size_t length = test_schedule_print(schedule, NULL, 0);
    char *text = malloc(length + 1);
    assert_non_null(text);
    assert_int_equal(test_schedule_print(schedule, text, length + 1), length);
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

/* All golden schedules. In the file each begins with a line "== NAME". */
struct golden {
    FILE *written; /* with TEST_GOLDEN_WRITE, else NULL */
    char *text;    /* what the file holds */
};

static void open_golden(struct golden *golden)
{
    enum { MOST = 1 << 20 };
    bool writes = getenv("TEST_GOLDEN_WRITE") != NULL;
    FILE *file = fopen(test_data("golden.txt"), writes ? "w" : "r");
    if (file == NULL)
        fail_msg("golden.txt cannot be opened; TEST_GOLDEN_WRITE=1 writes it");
    golden->written = writes ? file : NULL;
    golden->text = calloc(1, MOST);
    assert_non_null(golden->text);
    if (!writes) {
        size_t length = fread(golden->text, 1, MOST - 1, file);
        assert_true(length < MOST - 1);
        fclose(file);
    }
}

static void close_golden(struct golden *golden)
{
    if (golden->written != NULL)
        assert_int_equal(fclose(golden->written), 0);
    free(golden->text);
}

static void compare_golden(struct golden *golden, const char *name, const char *text)
{
    if (golden->written != NULL) {
        fprintf(golden->written, "== %s\n%s", name, text);
        return;
    }
    char head[256];
    int length = snprintf(head, sizeof(head), "== %s\n", name);
    const char *found = strstr(golden->text, head);
    if (found == NULL)
        fail_msg("golden.txt lacks %s; TEST_GOLDEN_WRITE=1 writes it", name);
    found += length;
    const char *next = strstr(found, "\n== ");
    size_t size = next != NULL ? (size_t)(next + 1 - found) : strlen(found);
    if (size != strlen(text) || memcmp(found, text, size) != 0)
        fail_msg("%s in golden.txt differs from what is emitted now", name);
}

/* Schedules that have between them every step, operand and flag that is printed. What schedules do
 * is verified by test_algorithms_sweep. */
static const struct golden_row {
    const char *algorithm;
    enum twill_collective collective;
    enum twill_protocol protocol;
    const char *nodes; /* ranks of each */
} golden_rows[] = {
    {"direct", TWILL_ALLREDUCE, TWILL_PROTOCOL_IMM, "4"},
    {"direct", TWILL_BROADCAST, TWILL_PROTOCOL_MAPPED, "4"},
    {"hub", TWILL_ALLREDUCE, 0, "1+1+1+1+1"},
    {"bruck", TWILL_ALLTOALL, 0, "1+1+1+1+1"},
    {"dissemination", TWILL_BARRIER, 0, "1+1+1+1+1"},
    {"hierarchical:ring", TWILL_ALLREDUCE, TWILL_PROTOCOL_STAGED, "2+2+1"},
    {"hierarchical:halving_doubling", TWILL_ALLREDUCE, TWILL_PROTOCOL_MAPPED, "2+2+2+2"},
    {"hierarchical:bruck", TWILL_ALLREDUCE, TWILL_PROTOCOL_FLAT, "2+2+1"},
    {"hierarchical:tree", TWILL_BROADCAST, TWILL_PROTOCOL_IMM, "2+2+1"},
    {"hierarchical:tree", TWILL_REDUCE, TWILL_PROTOCOL_STAGED, "2+2+1"},
};

/* <algorithm>-<collective>-<protocol>-<ranks of the nodes> */
static void name_case(struct test_case *test, const char *nodes)
{
    bool plain = test->algorithm->protocols == 0 || test->shape.collective == TWILL_BARRIER;
    snprintf(test->name, sizeof(test->name), "%s-%s%s%s-%s", test->algorithm->name,
             twill_collective_name(test->shape.collective), plain ? "" : "-",
             plain ? "" : twill_protocol_name(test->shape.protocol), nodes);
    for (char *c = test->name; *c != '\0'; c++)
        *c = *c == ':' ? '_' : *c;
}

static void check_golden(struct golden *golden, const struct golden_row *row)
{
    struct twill_error error = {.status = TWILL_OK};
    struct twill_world world;
    assert_int_equal(twill_world_declare(&world, row->nodes, &error), TWILL_OK);
    struct test_case test = {.algorithm = test_algorithm_find(row->algorithm),
                             .world = &world,
                             .shape = {.collective = row->collective, .protocol = row->protocol}};
    assert_non_null(test.algorithm);
    name_case(&test, row->nodes);
    struct twill_schedule *schedules = test_emit(&test);
    char *text = print_all(schedules, world.size);
    compare_golden(golden, test.name, text);
    free(text);
    test_schedules_destroy(schedules, world.size);
    twill_world_destroy(&world);
}

TWILL_TEST(test_golden)
{
    struct golden golden;
    open_golden(&golden);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(golden_rows); i++)
        check_golden(&golden, &golden_rows[i]);
    close_golden(&golden);
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
        if (test_schedule_parse(&now, text, &error) != TWILL_OK)
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

TWILL_TEST(test_round_trip)
{
    unsigned count = 0;
    for (uint32_t size = 1; size <= (TEST_FEWER ? 9 : 17); size += 4)
        test_each_case_of(size, 3, 2, round_trip, &count);
    assert_true(count > (TEST_FEWER ? 100 : 500));
}

/* Two lanes, written by hand: parsed, verified, printed. */
TWILL_TEST(test_lanes)
{
    static const char *const texts[2] = {
        "schedule shards 1 blocks 2 tmp 0 shared 0 peer_src 0 peer_dst 0\n"
        "lane\nsend SRC[0] to 1\nwait\nrecv DST[0] from 1\nwait\n"
        "lane\nrecv_reduce DST[1] = SRC[1] from 1 first final\nwait\nsend DST[1] to 1\nwait\n",
        "schedule shards 1 blocks 2 tmp 0 shared 0 peer_src 0 peer_dst 0\n"
        "lane\nrecv_reduce DST[0] = SRC[0] from 0 first final\nwait\nsend DST[0] to 0\nwait\n"
        "lane\nsend SRC[1] to 0\nwait\nrecv DST[1] from 0\nwait\n"};
    struct twill_schedule schedules[2];
    struct twill_world world;
    struct twill_shape shape = {.collective = TWILL_ALLREDUCE};
    assert_true(test_world(&world, 2, TEST_ALL_NODES, 0));
    for (int r = 0; r < 2; r++) {
        assert_int_equal(test_schedule_parse(&schedules[r], texts[r], NULL), TWILL_OK);
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
    /* Send the wrong block from one rank: the receiver's lanes no longer match. */
    schedules[0].steps[0].src = twill_operand_make(TWILL_SRC, 1);
    struct twill_error error = {.status = TWILL_OK};
    assert_int_equal(twill_schedule_verify(schedules, &world, &shape, false, &error),
                     TWILL_ERR_INTERNAL);
    assert_non_null(strstr(error.message, "rank 1, lane 0, step 1"));
    twill_schedule_destroy(&schedules[0]);
    twill_schedule_destroy(&schedules[1]);
    twill_world_destroy(&world);
}

TWILL_TEST(test_bad_text)
{
#define GOLDEN_HEAD "schedule shards 1 blocks 2 tmp 0 shared 0 peer_src 0 peer_dst 0\n"
    static const char *const bad[] = {
        "",
        "schedule\n",
        "schedule shards 1 blocks 0 tmp 0 shared 0 peer_src 0 peer_dst 0\nlane\n",
        "schedule shards 1 blocks 2 tmp 0 shared 0 peer_src 2 peer_dst 0\nlane\n",
        "schedule shards 1 blocks 2 tmp 0 shared 0 peer_src 0 peer_dst 0 more\nlane\n",
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
        if (test_schedule_parse(&schedule, bad[i], &error) != TWILL_ERR_ARGUMENT)
            fail_msg("accepted: %s", bad[i]);
        assert_true(error.message[0] != '\0');
        assert_null(schedule.steps);
    }
}

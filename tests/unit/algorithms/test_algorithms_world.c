/* SPDX-License-Identifier: Apache-2.0 */
/* The world, declared shapes, and the division of a buffer into blocks. */
#include "algorithms/world/world.h"
#include "tests/support/scarce.h"
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

static void check_world(const struct twill_world *w)
{
    uint32_t next = 0, widest = 0;
    for (uint32_t r = 0; r < w->size; r++) {
        assert_true(w->node[r] <= next); /* numbered by lowest rank */
        next += w->node[r] == next;
        assert_int_equal(twill_world_member(w, w->node[r], w->local[r]), r);
    }
    assert_int_equal(next, w->nodes);
    assert_int_equal(w->node_first[0], 0);
    assert_int_equal(w->node_first[w->nodes], w->size);
    for (uint32_t n = 0; n < w->nodes; n++) {
        assert_int_equal(w->node_first[n + 1] - w->node_first[n], w->node_size[n]);
        assert_true(w->node_size[n] > 0);
        widest = w->node_size[n] > widest ? w->node_size[n] : widest;
        for (uint32_t l = 1; l < w->node_size[n]; l++)
            assert_true(twill_world_member(w, n, l - 1) < twill_world_member(w, n, l));
    }
    assert_int_equal(twill_world_widest(w), widest);
}

TWILL_TEST(test_worlds)
{
    for (uint32_t size = 1; size <= 300; size = size * 5 / 4 + 1) {
        for (unsigned placement = 0; placement < TEST_PLACEMENT_COUNT; placement++) {
            struct twill_world world;
            if (!test_world(&world, size, placement, size))
                continue;
            check_world(&world);
            twill_world_destroy(&world);
        }
    }
    uint32_t label[5] = {7, UINT32_MAX, 7, 0, UINT32_MAX};
    static const uint32_t node[5] = {0, 1, 0, 2, 1}, member[5] = {0, 2, 1, 4, 3};
    struct twill_world world;
    assert_int_equal(twill_world_create(&world, 5, label, NULL), TWILL_OK);
    assert_memory_equal(world.node, node, sizeof(node));
    assert_memory_equal(world.member, member, sizeof(member));
    twill_world_destroy(&world);
}

TWILL_TEST(test_world_limits)
{
    struct twill_error error = {.status = TWILL_OK};
    struct twill_world world;
    uint32_t *label = calloc(TWILL_WORLD_MAX_RANKS + 1, sizeof(*label));
    assert_non_null(label);
    assert_int_equal(twill_world_create(&world, 0, label, &error), TWILL_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "size is 0"));
    assert_int_equal(twill_world_create(&world, TWILL_WORLD_MAX_RANKS + 1, label, NULL),
                     TWILL_ERR_ARGUMENT);
    for (uint32_t r = 0; r < TWILL_WORLD_MAX_RANKS; r++)
        label[r] = r / 3;
    assert_int_equal(twill_world_create(&world, TWILL_WORLD_MAX_RANKS, label, NULL), TWILL_OK);
    check_world(&world);
    /* As many units as ranks: must not take seconds. */
    for (uint32_t r = 0; r < TWILL_WORLD_MAX_RANKS; r++)
        label[r] = TWILL_WORLD_MAX_RANKS - r;
    assert_int_equal(twill_world_set_level(&world, TWILL_LEVEL_NUMA, label, NULL), TWILL_OK);
    assert_int_equal(world.unit[TWILL_LEVEL_NUMA][TWILL_WORLD_MAX_RANKS - 1],
                     TWILL_WORLD_MAX_RANKS - 1);
    twill_world_destroy(&world);
    free(label);
}

static const uint32_t *units_at(const struct twill_world *w, unsigned level)
{
    return level == TWILL_LEVEL_NODE ? w->node : w->unit[level];
}

/* Units are numbered by lowest rank, and are inside those of every level above. */
static void check_levels(const struct twill_world *w)
{
    for (unsigned level = 0; level < TWILL_LEVEL_COUNT; level++) {
        const uint32_t *unit = units_at(w, level);
        uint32_t units = 0;
        for (uint32_t r = 0; r < w->size && unit != NULL; r++) {
            assert_true(unit[r] <= units);
            units += unit[r] == units;
        }
        for (unsigned above = level + 1; above < TWILL_LEVEL_COUNT; above++)
            for (uint32_t r = 0; unit != NULL && units_at(w, above) != NULL && r < w->size; r++)
                for (uint32_t o = 0; o < r; o++)
                    if (unit[r] == unit[o])
                        assert_int_equal(units_at(w, above)[r], units_at(w, above)[o]);
    }
}

typedef uint32_t labels[TWILL_LEVEL_COUNT][64];

/* Return whether two ranks are expected in one unit of a level, by their labels and the levels
 * above. */
static bool belong_together(const struct twill_world *w, unsigned level, labels label, uint32_t a,
                            uint32_t b)
{
    if (level == TWILL_LEVEL_GROUP)
        return label[level][twill_world_member(w, w->node[a], 0)] ==
               label[level][twill_world_member(w, w->node[b], 0)];
    bool same = label[level][a] == label[level][b] && w->node[a] == w->node[b];
    for (unsigned above = level + 1; above < TWILL_LEVEL_NODE; above++)
        same = same && (w->unit[above] == NULL || w->unit[above][a] == w->unit[above][b]);
    return same;
}

static void set_levels(struct twill_world *w, labels label, unsigned round)
{
    static uint32_t const settable[] = {TWILL_LEVEL_TILE, TWILL_LEVEL_L3, TWILL_LEVEL_NUMA,
                                        TWILL_LEVEL_PACKAGE, TWILL_LEVEL_GROUP};
    uint32_t random = round;
    for (unsigned k = 0; k < TWILL_ARRAY_LENGTH(settable); k++) {
        unsigned level =
            settable[(k * (1 + 2 * (round & 1)) + round / 2) % TWILL_ARRAY_LENGTH(settable)];
        for (uint32_t r = 0; r < w->size; r++) {
            random = random * 1664525u + 1013904223u;
            label[level][r] = (random >> 20) % (2 + level) * 0x33333333u;
        }
        if ((round >> k & 7) != 5)
            assert_int_equal(twill_world_set_level(w, (twill_level)level, label[level], NULL),
                             TWILL_OK);
    }
}

/* All subsets of known levels, set in all orders. */
TWILL_TEST(test_levels)
{
    for (uint32_t size = 1; size <= 60; size += 1 + size / 3) {
        for (unsigned round = 0; round < 64; round++) {
            struct twill_world w;
            labels label = {{0}};
            if (!test_world(&w, size, round % TEST_GROUPS, round))
                continue;
            set_levels(&w, label, round);
            check_levels(&w);
            for (unsigned level = 0; level < TWILL_LEVEL_COUNT; level++)
                for (uint32_t a = 0; a < size && w.unit[level] != NULL; a++)
                    for (uint32_t b = 0; b < a; b++)
                        assert_int_equal(w.unit[level][a] == w.unit[level][b],
                                         belong_together(&w, level, label, a, b));
            twill_world_destroy(&w);
        }
    }
}

TWILL_TEST(test_levels_refused)
{
    struct twill_world w;
    struct twill_error error = {.status = TWILL_OK};
    uint32_t label[2] = {0, 1};
    assert_int_equal(twill_world_create(&w, 2, label, NULL), TWILL_OK);
    assert_int_equal(twill_world_set_level(&w, TWILL_LEVEL_NODE, label, &error),
                     TWILL_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "level 4"));
    assert_int_equal(twill_world_set_level(&w, TWILL_LEVEL_COUNT, label, NULL), TWILL_ERR_ARGUMENT);
    twill_world_destroy(&w);
}

/* Whichever allocation of twill_world_set_level() fails, the world is as it was. */
TWILL_TEST(test_levels_without_memory)
{
    struct twill_world w;
    static const uint32_t node[4] = {0, 0, 0, 0}, level[4] = {0, 1, 0, 1};
    static const uint32_t before[4] = {0, 1, 2, 3}, after[4] = {0, 2, 1, 3};
    twill_status status = TWILL_ERR_MEMORY;
    if (TEST_SLOW)
        skip();
    assert_int_equal(twill_world_create(&w, 4, node, NULL), TWILL_OK);
    for (int succeed = 0; status == TWILL_ERR_MEMORY; succeed++) {
        assert_memory_equal(w.order, before, sizeof(before));
        assert_null(w.unit[TWILL_LEVEL_NUMA]);
        scarce_memory = succeed;
        status = twill_world_set_level(&w, TWILL_LEVEL_NUMA, level, NULL);
        scarce_memory = -1;
    }
    assert_int_equal(status, TWILL_OK);
    assert_memory_equal(w.order, after, sizeof(after));
    twill_world_destroy(&w);
}

TWILL_TEST(test_parse_nodes)
{
    static const struct {
        const char *text, *labels;
    } good[] = {{"1", "0"},     {"4", "0000"},          {"2x2", "0011"},
                {"3x1", "012"}, {"1x5", "00000"},       {"4+2+1", "0000112"},
                {"1+1", "01"},  {"2x2:cyclic", "0101"}, {"3+1+2:cyclic", "012020"}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(good); i++) {
        uint32_t label[16], size = (uint32_t)strlen(good[i].labels);
        struct twill_error error = {.status = TWILL_OK};
        if (twill_world_parse_nodes(good[i].text, size, label, &error) != TWILL_OK)
            fail_msg("\"%s\": %s", good[i].text, error.message);
        for (uint32_t r = 0; r < size; r++)
            assert_int_equal(label[r], good[i].labels[r] - '0');
    }
}

/* Check that a text is refused with a message, and that nothing is stored. */
static void refuse_nodes(const char *text, uint32_t size, const char *message)
{
    uint32_t label[16];
    struct twill_error error = {.status = TWILL_OK};
    memset(label, 0xff, sizeof(label));
    if (twill_world_parse_nodes(text, size, label, &error) != TWILL_ERR_CONFIG ||
        strstr(error.message, message) == NULL)
        fail_msg("\"%s\" of %u: %s", text, size, error.message);
    assert_non_null(strstr(error.message, "TWILL_LAYOUT=nodes"));
    assert_int_equal(label[size], UINT32_MAX);
}

TWILL_TEST(test_refused_nodes)
{
    static const char *const unreadable[] = {"",         "x",
                                             "2x",       "x2",
                                             "0x2",      "2x0",
                                             "0",        "2x2x2",
                                             "1x2x2",    "2x2+1",
                                             "1x2+1",    "1+2x2",
                                             "4+",       "+4",
                                             "4++2",     "4+0",
                                             " 4",       "4 ",
                                             "2X2",      "-1",
                                             "2,2",      "99999999999999999999",
                                             "70000x1",  ":cyclic",
                                             "2x2:block"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(unreadable); i++)
        refuse_nodes(unreadable[i], 4, "cannot be read");
    refuse_nodes("65535x65535", 4, "describes 4294836225 ranks, but there are 4");
    refuse_nodes("2x2:cyclic", 5, "describes 4 ranks, but there are 5");
    refuse_nodes("2x2", 5, "describes 4 ranks, but there are 5");
    refuse_nodes("2x2", 3, "describes 4 ranks, but there are 3");
    refuse_nodes("4+2+1", 8, "describes 7 ranks, but there are 8");
}

static void check_ranges(size_t count, size_t element, uint32_t blocks)
{
    size_t at = 0, least = SIZE_MAX, most = 0, lines = (count * element + 63) / 64;
    for (uint32_t i = 0; i < blocks; i++) {
        size_t first, length;
        twill_block_range(count, element, blocks, i, &first, &length);
        assert_int_equal(first, at);
        if (lines >= blocks)
            assert_int_equal(first * element % 64, 0);
        at += length;
        least = length < least ? length : least;
        most = length > most ? length : most;
    }
    assert_int_equal(at, count);
    if (lines >= blocks)
        assert_true(least > 0);
    /* Boundaries are at cache lines (the last line may be partial), or at elements. */
    assert_true(most - least <= (lines >= blocks ? 2 * 64 / element : 1));
}

TWILL_TEST(test_block_range)
{
    static const size_t counts[] = {
        0,  1,   2,   3,   7,   8,   15,   16,   17,   31,   32,     33,         63,        64,
        65, 100, 127, 128, 129, 511, 1000, 1023, 1024, 4096, 154922, 1000000007, 3221225472};
    static const uint32_t blocks[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 64, 100, 1000};
    for (size_t c = 0; c < TWILL_ARRAY_LENGTH(counts); c++)
        for (size_t element = 2; element <= 8; element *= 2)
            for (size_t b = 0; b < TWILL_ARRAY_LENGTH(blocks); b++)
                check_ranges(counts[c], element, blocks[b]);
    size_t first, length; /* no overflow at the far end */
    twill_block_range(SIZE_MAX / 8, 8, 3, 2, &first, &length);
    assert_int_equal(first + length, SIZE_MAX / 8);
}

/* --- in words --------------------------------------------------------------------------------- */

static const struct hierarchy {
    uint32_t size, per_node;
    uint32_t units[TWILL_LEVEL_COUNT]; /* ranks of each unit, 0: not known */
    const char *name, *tree;
} hierarchies[] = {
    {1, 1, {0}, "1 node x 1 rank", "node 0 (rank 0)\n"},
    {6,
     2,
     {0},
     "3 nodes x 2 ranks",
     "node 0 (ranks 0-1)\nnode 1 (ranks 2-3)\nnode 2 (ranks 4-5)\n"},
    /* a level that divides nothing is left out: one package, NUMA node and L3 cache */
    {4,
     4,
     {2, 4, 4, 4},
     "1 node x 2 tiles x 2 ranks",
     "node 0\n  tile 0 (ranks 0-1)\n  tile 1 (ranks 2-3)\n"},
    {2,
     2,
     {1, 1},
     "1 node x 2 L3 caches x 1 rank",
     "node 0\n  L3 cache 0 (rank 0)\n  L3 cache 1 (rank 1)\n"},
    {3, 2, {0}, "2 nodes x 1-2 ranks", "node 0 (ranks 0-1)\nnode 1 (rank 2)\n"},
    /* units with equal structure share a line */
    {6144,
     64,
     {2, 8, 0, 32, 0, 3072},
     "2 groups x 48 nodes x 2 packages x 4 L3 caches x 4 tiles x 2 ranks",
     "2 groups, each\n  48 nodes, each\n    2 packages, each\n      4 L3 caches, each\n"
     "        4 tiles of 2 ranks each (0-1 to 6-7)\n"},
    {100,
     8,
     {0, 2},
     "13 nodes x 2-4 L3 caches x 2 ranks",
     "12 nodes, each\n  4 L3 caches of 2 ranks each (0-1 to 6-7)\n"
     "node 12\n  2 L3 caches of 2 ranks each (96-97 to 98-99)\n"},
};

TWILL_TEST(test_hierarchies)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(hierarchies); i++) {
        const struct hierarchy *h = &hierarchies[i];
        struct twill_error error = {0};
        struct twill_world world;
        char text[TWILL_WORLD_TEXT_BYTES];
        uint32_t *label = calloc(h->size, sizeof(*label));
        bool more = false;
        for (uint32_t r = 0; r < h->size; r++)
            label[r] = r / h->per_node;
        assert_int_equal(twill_world_create(&world, h->size, label, &error), TWILL_OK);
        for (unsigned level = 0; level < TWILL_LEVEL_COUNT; level++) {
            for (uint32_t r = 0; h->units[level] != 0 && r < h->size; r++)
                label[r] = r / h->units[level];
            if (h->units[level] != 0)
                assert_int_equal(twill_world_set_level(&world, (twill_level)level, label, &error),
                                 TWILL_OK);
            more = more || h->units[level] != 0;
        }
        assert_int_equal(twill_world_summarize(&world, text, sizeof(text)), more);
        assert_string_equal(text, h->name);
        twill_world_describe(&world, text);
        assert_string_equal(text, h->tree);
        twill_world_destroy(&world);
        free(label);
    }
}

/* Ranks round robin over nodes, no two nodes alike: the list of ranks and the tree are cut off. */
TWILL_TEST(test_long_hierarchy)
{
    struct twill_error error = {0};
    struct twill_world world;
    uint32_t label[900], size = 0, lines = 0;
    char text[TWILL_WORLD_TEXT_BYTES];
    for (uint32_t round = 0; round < 40; round++)
        for (uint32_t node = round; node < 40; node++)
            label[size++] = node;
    assert_int_equal(twill_world_create(&world, size, label, &error), TWILL_OK);
    twill_world_describe(&world, text);
    for (const char *c = text; *c != '\0'; c++)
        lines += *c == '\n';
    assert_int_equal(lines, 24);
    assert_non_null(strstr(text, "\nnode 1 (ranks 1,40)\n"));
    assert_non_null(strstr(text, ",...)\n"));
    assert_string_equal(text + strlen(text) - 5, "\n...\n");
    (void)twill_world_summarize(&world, text, sizeof(text));
    assert_string_equal(text, "40 nodes x 1-40 ranks");
    twill_world_destroy(&world);
}

/* In the order of their numbers, ranks that are dealt out leave their node with every step of a
 * ring; in the world's order they leave it as seldom as others do. */
TWILL_TEST(test_round_robin)
{
    static const struct {
        const char *text;
        uint32_t by_number;
    } layouts[] = {{"8x4", 8}, {"8x4:cyclic", 32}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(layouts); i++) {
        struct twill_world world;
        uint32_t label[32], number[32];
        assert_int_equal(twill_world_parse_nodes(layouts[i].text, 32, label, NULL), TWILL_OK);
        assert_int_equal(twill_world_create(&world, 32, label, NULL), TWILL_OK);
        for (uint32_t r = 0; r < 32; r++)
            number[r] = r;
        assert_int_equal(test_crossings(32, number, world.node), layouts[i].by_number);
        assert_int_equal(test_crossings(32, world.order, world.node), 8);
        twill_world_destroy(&world);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Results of all-gathers are packed without loss, and what is no packed result is refused. */
#include "fabric/bootstrap/tcp/pack_shards.h"
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 18 };

/* Pack and unpack `ranks` shards of `bytes` bytes. Returns the number of packed bytes. */
static size_t there_and_back(const uint8_t *all, size_t bytes, size_t ranks)
{
    size_t whole = bytes * ranks, room = 2 * whole + 16;
    uint8_t *packed = malloc(room), *back = malloc(whole + 1);
    assert_true(packed != NULL && back != NULL);
    size_t used = twill_shards_pack(packed, room, all, bytes, whole);
    assert_in_range(used, 1, room);
    memset(back, 0xa5, whole + 1);
    assert_true(twill_shards_unpack(back, bytes, whole, packed, used));
    assert_memory_equal(back, all, whole);
    assert_int_equal(back[whole], 0xa5);
    assert_int_equal(twill_shards_pack(packed, used - 1, all, bytes, whole), 0);
    assert_int_equal(twill_shards_pack(packed, used, all, bytes, whole), used);
    for (size_t cut = 0; cut < used; cut += 1 + used / 50)
        assert_false(twill_shards_unpack(back, bytes, whole, packed, cut));
    assert_false(twill_shards_unpack(back, bytes, whole - 1, packed, used));
    free(packed);
    free(back);
    return used;
}

/* Shards that differ in one byte in `every` are packed to a fraction, random ones not. */
TWILL_TEST(test_pack)
{
    static const size_t sizes[][2] = {{1, 1},     {1, 300},    {7, 3},
                                      {600, 100}, {200000, 1}, {70000, 3}};
    uint8_t *all = malloc(MOST);
    assert_non_null(all);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(sizes); i++) {
        size_t bytes = sizes[i][0], ranks = sizes[i][1];
        for (size_t every = 1; every <= 256; every *= 4) {
            for (size_t at = 0; at < bytes * ranks; at++)
                all[at] =
                    at % every == 0 ? (uint8_t)(at * 2654435761u >> 13) : (uint8_t)(at % bytes);
            (void)there_and_back(all, bytes, ranks);
        }
        memset(all, 0, bytes * ranks);
        assert_true(there_and_back(all, bytes, ranks) <= 4 * (bytes * ranks / 65535 + 1));
    }
    for (size_t at = 0; at < 600 * 100; at++)
        all[at] = at % 100 == 7 ? (uint8_t)(at / 600) : (uint8_t)(at % 600 % 251);
    assert_true(there_and_back(all, 600, 100) < 600 * 100 / 10);
    free(all);
}

/* Whatever arrives, nothing is written outside of the result. */
TWILL_TEST(test_unpack_anything)
{
    uint8_t packed[64], all[100];
    uint32_t random = test_seed() + 1;
    for (unsigned i = 0; i < 20000; i++) {
        for (size_t at = 0; at < sizeof(packed); at++) {
            random = random * 1664525u + 1013904223u;
            packed[at] = random >> 24 < 200 ? (uint8_t)(random >> 16 & 15) : (uint8_t)(random >> 8);
        }
        memset(all, 0xa5, sizeof(all));
        (void)twill_shards_unpack(all, 8, 80, packed, i % sizeof(packed));
        for (size_t at = 80; at < sizeof(all); at++)
            assert_int_equal(all[at], 0xa5);
    }
}

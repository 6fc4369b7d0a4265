/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C of every table: known values, every length and alignment, split in two. */
#include "kernels/kernels.h"
#include "tests/support/numbers.h"
#include "tests/support/unit.h"

#define LONGEST 20000u

/* RFC 3720, B.4, and the check value of the catalogue of parametrised CRC algorithms. */
TWILL_TEST(known_values)
{
    unsigned char zeros[32] = {0}, ones[32], up[32], down[32];
    memset(ones, 0xff, sizeof(ones));
    for (unsigned i = 0; i < 32; i++) {
        up[i] = (unsigned char)i;
        down[i] = (unsigned char)(31 - i);
    }
    const struct {
        const void *data;
        size_t bytes;
        uint32_t crc;
    } rows[] = {{"123456789", 9, 0xe3069283}, {zeros, 32, 0x8a9136aa}, {ones, 32, 0x62a8ab43},
                {up, 32, 0x46dd794e},         {down, 32, 0x113fdb5c},  {"", 0, 0}};
    const struct twill_kernels *kernels;
    for (size_t t = 0; (kernels = twill_test_next_table(&t)) != NULL;)
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++)
            assert_int_equal(kernels->crc32c(0, rows[i].data, rows[i].bytes), rows[i].crc);
}

static uint32_t bit_by_bit(const unsigned char *data, size_t bytes)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) != 0 ? UINT32_C(0x82f63b78) : 0);
    }
    return ~crc;
}

TWILL_TEST(every_length_and_alignment)
{
    static unsigned char data[LONGEST + 8];
    twill_test_fill(TWILL_U8, data, sizeof(data), 12345);
    const struct twill_kernels *kernels;
    for (size_t bytes = 0; bytes <= LONGEST; bytes += bytes < 1200 ? 1 : 997) {
        size_t offset = bytes % 8;
        uint32_t right = bit_by_bit(data + offset, bytes);
        for (size_t t = 0; (kernels = twill_test_next_table(&t)) != NULL;) {
            size_t cut = bytes / 3;
            assert_int_equal(kernels->crc32c(0, data + offset, bytes), right);
            uint32_t first = kernels->crc32c(0, data + offset, cut);
            assert_int_equal(kernels->crc32c(first, data + offset + cut, bytes - cut), right);
        }
    }
}

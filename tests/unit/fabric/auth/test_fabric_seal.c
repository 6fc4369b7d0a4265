/* SPDX-License-Identifier: Apache-2.0 */
/* Authenticated encryption of records: both ciphers, keys that change, everything that must not
 * open. */
#include "fabric/auth/seal.h"
#include "tests/support/unit.h"

#define BYTES 100u

static const struct twill_secret session = {.key = {1, 2, 3}};

struct sealed {
    unsigned char head[8], data[BYTES], tag[TWILL_SEAL_TAG];
};

static void start_both(struct twill_seal *out, struct twill_seal *in, bool aes, uint64_t every)
{
    twill_seal_start(out, &session, true, aes);
    twill_seal_start(in, &session, true, aes);
    out->every = out->rekey = in->every = in->rekey = every;
}

static struct sealed seal_next(struct twill_seal *seal, unsigned char fill)
{
    struct sealed record = {.head = {fill}};
    memset(record.data, fill, BYTES);
    twill_seal_close(seal, record.head, sizeof(record.head), record.data, record.data, BYTES,
                     record.tag);
    return record;
}

static bool opens(struct twill_seal *seal, struct sealed *record)
{
    return twill_seal_open(seal, record->head, sizeof(record->head), record->data, BYTES,
                           record->tag);
}

static bool has_cipher(bool aes)
{
    return !aes || twill_seal_has_aes();
}

TWILL_TEST(records_open_in_order_over_several_keys)
{
    struct twill_seal out, in;
    for (int aes = 0; aes < 2; aes++) {
        if (!has_cipher(aes))
            continue;
        start_both(&out, &in, aes, 3);
        struct twill_secret first = out.key;
        struct sealed before = {.head = {0}};
        for (unsigned i = 0; i < 10; i++) {
            struct sealed record = seal_next(&out, 7);
            assert_memory_not_equal(record.data, before.data, BYTES); /* equal data */
            before = record;
            assert_true(opens(&in, &record));
            for (unsigned b = 0; b < BYTES; b++)
                assert_int_equal(record.data[b], 7);
        }
        assert_memory_not_equal(first.key, out.key.key, sizeof(first.key));
        assert_memory_equal(in.key.key, out.key.key, sizeof(first.key));
    }
}

TWILL_TEST(nothing_else_opens)
{
    struct twill_seal out, in, start, other;
    for (int aes = 0; aes < 2; aes++) {
        if (!has_cipher(aes))
            continue;
        start_both(&out, &start, aes, 100);
        struct sealed first = seal_next(&out, 1), second = seal_next(&out, 2), changed;
        for (unsigned bit = 0; bit < 8 * sizeof(first); bit++) {
            changed = first;
            ((unsigned char *)&changed)[bit / 8] ^= (unsigned char)(1u << bit % 8);
            in = start;
            assert_false(opens(&in, &changed));
        }
        in = start;
        assert_false(opens(&in, &second)); /* left out */
        in = start;
        changed = first;
        assert_true(opens(&in, &changed));
        assert_false(opens(&in, &first)); /* repeated */
        twill_seal_start(&other, &session, false, aes);
        changed = first;
        assert_false(opens(&other, &changed)); /* sent back to its sender */
    }
}

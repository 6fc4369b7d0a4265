/* SPDX-License-Identifier: Apache-2.0 */
/* Handshake and frames: no process without the key is authenticated, and no message that was
 * changed, truncated, repeated or reordered is accepted. Changes are drawn from fixed seeds. */
#include "fabric/auth/handshake.h"
#include "fabric/auth/seal.h"
#include "tests/support/noise.h"
#include "tests/support/numbers.h"
#include "tests/support/unit.h"

#include <sys/socket.h>

struct ends {
    int fd[2]; /* of the caller, of the called end */
    struct twill_hello hello[2];
    struct twill_session session[2];
};

static const struct twill_secret secret = {{1, 2, 3}};

static void ends_open(struct ends *ends, enum twill_hello_role role)
{
    const struct twill_hello_identity identity = {
        .role = role, .rank = 1, .to = 0, .size = 4, .argument = 7};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends->fd),
                     0);
    assert_true(twill_hello_call(&ends->hello[0], &secret, &identity));
    assert_true(twill_hello_expect(&ends->hello[1], &secret, role, 0, 4));
}

static void ends_close(struct ends *ends)
{
    close(ends->fd[0]);
    close(ends->fd[1]);
}

static enum twill_wire_moved move_end(struct ends *ends, int end)
{
    return twill_hello_move(&ends->hello[end], ends->fd[end], &ends->session[end]);
}

/* Complete a handshake; record what the caller sends. */
static void run_hello(struct ends *ends, enum twill_hello_role role, struct twill_noise *said)
{
    ends_open(ends, role);
    enum twill_wire_moved caller = move_end(ends, 0), called = move_end(ends, 1);
    if (role != TWILL_HELLO_DETECTOR) {
        assert_int_equal(caller, TWILL_WIRE_LATER);
        assert_int_equal(called, TWILL_WIRE_LATER);
        caller = move_end(ends, 0);
        called = move_end(ends, 1);
    }
    assert_int_equal(caller, TWILL_WIRE_DONE);
    assert_int_equal(called, TWILL_WIRE_DONE);
    assert_memory_equal(&ends->session[0].key, &ends->session[1].key, sizeof(secret));
    said->count = 0;
    twill_noise_add(said, &ends->hello[0].said.call, sizeof(ends->hello[0].said.call));
    if (role != TWILL_HELLO_DETECTOR)
        twill_noise_add(said, ends->hello[0].reply, sizeof(ends->hello[0].reply));
}

/* Send a recording to a new called end, in several writes; then close. */
static enum twill_wire_moved replay(const struct twill_noise *said, enum twill_hello_role role,
                                    uint64_t *seed, enum twill_fault *fault)
{
    struct ends ends;
    enum twill_wire_moved outcome = TWILL_WIRE_LATER;
    ends_open(&ends, role);
    for (size_t at = 0; at < said->count && outcome == TWILL_WIRE_LATER;) {
        size_t chunk = twill_min(1 + twill_test_random(seed) % 100, said->count - at);
        if (send(ends.fd[0], said->bytes + at, chunk, MSG_NOSIGNAL) < 0)
            break;
        at += chunk;
        outcome = move_end(&ends, 1);
    }
    shutdown(ends.fd[0], SHUT_WR);
    if (outcome == TWILL_WIRE_LATER)
        outcome = move_end(&ends, 1);
    *fault = ends.hello[1].fault;
    assert_true(outcome != TWILL_WIRE_GONE || move_end(&ends, 1) == TWILL_WIRE_GONE);
    ends_close(&ends);
    return outcome;
}

TWILL_TEST(hello_called)
{
    static const enum twill_hello_role roles[] = {TWILL_HELLO_JOIN, TWILL_HELLO_DETECTOR,
                                                  TWILL_HELLO_DATA};
    uint64_t seed = 1;
    unsigned count[TWILL_FAULTS] = {0};
    enum twill_fault fault;
    struct twill_noise said;
    struct ends ends;
    for (size_t r = 0; r < TWILL_ARRAY_LENGTH(roles); r++) {
        run_hello(&ends, roles[r], &said);
        ends_close(&ends);
        /* Unchanged: accepted only by a failure detector, which has to count calls itself. */
        bool again = roles[r] == TWILL_HELLO_DETECTOR;
        assert_int_equal(replay(&said, roles[r], &seed, &fault),
                         again ? TWILL_WIRE_DONE : TWILL_WIRE_GONE);
        assert_int_equal(fault, again ? TWILL_FAULT_NONE : TWILL_FAULT_REPLAYED);
        for (int i = 0; i < 2000; i++) {
            struct twill_noise noise = said;
            twill_noise_change(&noise, &seed);
            assert_int_equal(replay(&noise, roles[r], &seed, &fault), TWILL_WIRE_GONE);
            count[fault]++;
        }
        /* Wrong role: not a call. */
        assert_int_equal(replay(&said, roles[(r + 1) % 3], &seed, &fault), TWILL_WIRE_GONE);
        assert_int_equal(fault, TWILL_FAULT_MALFORMED);
    }
    assert_true(count[TWILL_FAULT_MALFORMED] && count[TWILL_FAULT_VERSION]);
    assert_true(count[TWILL_FAULT_KEY] && count[TWILL_FAULT_CLOSED] && !count[TWILL_FAULT_NONE]);
}

/* The caller accepts an answer to its own call only. */
TWILL_TEST(hello_caller)
{
    uint64_t seed = 2;
    struct twill_noise said;
    struct ends ends;
    struct twill_hello_answer recorded;
    run_hello(&ends, TWILL_HELLO_JOIN, &said);
    recorded = ends.hello[1].said.answer;
    ends_close(&ends);
    for (int i = 0; i < 3000; i++) {
        struct twill_noise noise = {.count = 0};
        enum twill_wire_moved outcome = TWILL_WIRE_LATER;
        ends_open(&ends, TWILL_HELLO_JOIN);
        assert_int_equal(move_end(&ends, 0), TWILL_WIRE_LATER);
        assert_int_equal(move_end(&ends, 1), TWILL_WIRE_LATER); /* the answer was sent */
        char right[sizeof(recorded)];
        assert_int_equal(recv(ends.fd[0], right, sizeof(right), MSG_PEEK), sizeof(right));
        assert_int_equal(recv(ends.fd[0], right, sizeof(right), 0), sizeof(right));
        twill_noise_add(&noise, i % 2 ? (const void *)right : &recorded, sizeof(right));
        if (i > 0)
            twill_noise_change(&noise, &seed);
        assert_int_equal(send(ends.fd[1], noise.bytes, noise.count, 0), (ssize_t)noise.count);
        shutdown(ends.fd[1], SHUT_WR);
        outcome = move_end(&ends, 0);
        assert_int_equal(outcome, TWILL_WIRE_GONE);
        ends_close(&ends);
    }
}

/* --- frames ---------------------------------------------------------------------------------- */

TWILL_TEST(frames)
{
    uint64_t seed = 3;
    struct twill_noise said;
    struct ends ends;
    struct twill_wire_header first, second, own;
    char body[100] = "body";
    run_hello(&ends, TWILL_HELLO_DATA, &said);
    struct twill_session *from = &ends.session[0], *to = &ends.session[1], before = *to;
    twill_wire_seal(from, &first, TWILL_WIRE_NOTICE, 1, body, sizeof(body), NULL);
    twill_wire_seal(from, &second, TWILL_WIRE_NOTICE, 2, body, sizeof(body), NULL);
    twill_wire_seal(to, &own, TWILL_WIRE_NOTICE, 1, body, sizeof(body), NULL);
    assert_int_equal(twill_wire_check(to, &second), TWILL_FAULT_REPLAYED); /* early */
    assert_int_equal(twill_wire_check(to, &own), TWILL_FAULT_KEY);         /* reflected */
    assert_int_equal(twill_wire_check(to, &first), TWILL_FAULT_NONE);
    assert_int_equal(twill_wire_check(to, &first), TWILL_FAULT_REPLAYED); /* repeated */
    assert_int_equal(twill_wire_check(to, &second), TWILL_FAULT_NONE);
    assert_true(twill_wire_is_body(&second, body));
    for (size_t bit = 0; bit < 8 * sizeof(first); bit++) {
        struct twill_session session = before;
        struct twill_wire_header changed = first;
        ((unsigned char *)&changed)[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(twill_wire_check(&session, &changed), TWILL_FAULT_NONE);
        assert_int_equal(session.received, before.received);
    }
    for (int i = 0; i < 1000; i++) {
        struct twill_noise noise = {.count = 0};
        twill_noise_add(&noise, body, sizeof(body));
        twill_noise_change(&noise, &seed);
        memset(noise.bytes + noise.count, 1, sizeof(body)); /* truncation must not match here */
        assert_false(memcmp(noise.bytes, body, sizeof(body)) != 0 &&
                     twill_wire_is_body(&first, noise.bytes));
    }
    ends_close(&ends);
}

/* --- sealed records --------------------------------------------------------------------------- */

/* Authenticated encryption of records: both ciphers, keys that change, everything that must not
 * open. */

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

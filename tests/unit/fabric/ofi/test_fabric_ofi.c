/* SPDX-License-Identifier: Apache-2.0 */
/* The ofi transport between ranks that are threads, over the providers of this machine. */
#include "tests/support/messages.h"
#include "tests/support/ofi_ends.h"
#include "tests/support/unit.h"

/* --- sizes, both directions at once, reduced and not ----------------------------------------- */

static const size_t sizes[] = {0,
                               1,
                               8,
                               32,
                               33,
                               48,
                               4095,
                               TWILL_OFI_EAGER - 1,
                               TWILL_OFI_EAGER,
                               TWILL_OFI_EAGER + 1,
                               40000,
                               65536,
                               (1u << 20) + 3};

static void rank_sizes(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct end end;
    uint32_t peer = (uint32_t)(1 - rank);
    if (end_open(&end, caller, user, 1)) {
        for (size_t s = 0; s < TWILL_ARRAY_LENGTH(sizes); s++) {
            struct message *m = calloc(4, sizeof(*m));
            uint32_t lane = (uint32_t)s % TWILL_OFI_LANES;
            for (uint32_t i = 0; m != NULL && i < 4; i++)
                message_make(&m[i], &end, i < 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, peer,
                             lane, (uint32_t)s * 2 + i % 2, sizes[s], i == 3);
            bool fine = m != NULL && messages_run(&end, m, 4);
            message_free(m, m == NULL ? 0 : 4);
            if (!fine)
                break;
        }
        rank_barrier(&end);
    }
    end_close(&end);
}

TWILL_TEST(test_sizes)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(setups); i++) {
        print_message("  %s\n", setups[i].name);
        twill_test_run_ranks(2, rank_sizes, (void *)&setups[i]);
    }
}

/* The thread sanitizer makes the loops over bytes slow; other stages have the whole. */
#define HUGE_BYTES ((TEST_TSAN ? 5u : 20u) << 20)

static void rank_huge(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct end end;
    uint32_t peer = (uint32_t)(1 - rank);
    if (end_open(&end, caller, user, 2)) {
        struct message *m = calloc(4, sizeof(*m));
        for (uint32_t i = 0; i < 4; i++)
            message_make(&m[i], &end, i < 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, peer, 0,
                         i % 2, HUGE_BYTES + i % 2 * 5, i == 3);
        messages_run(&end, m, 4);
        message_free(m, 4);
        rank_barrier(&end);
    }
    end_close(&end);
}

TWILL_TEST(test_huge)
{
    twill_test_run_ranks(2, rank_huge, (void *)TCP);
    twill_test_run_ranks(2, rank_huge, (void *)&setups[1]);
}

/* --- many messages on all lanes, three ranks
 * ------------------------------------------------------- */

#define OFI_EACH 24

static size_t mixed_size(uint32_t lane, uint32_t i)
{
    static const size_t table[] = {8, 0, 5000, 48, 9000, 8, 8, 30000, 1, 8192, 100000, 64, 16};
    return table[(lane * 5 + i) % TWILL_ARRAY_LENGTH(table)];
}

static void rank_lanes(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct end end;
    size_t n = (size_t)(size - 1) * TWILL_OFI_LANES * OFI_EACH * 2, at = 0;
    if (end_open(&end, caller, user, 3)) {
        struct message *m = calloc(n, sizeof(*m));
        for (uint32_t i = 0; i < OFI_EACH; i++)
            for (uint32_t l = 0; l < TWILL_OFI_LANES; l++)
                for (uint32_t d = 1; d < (uint32_t)size; d++) {
                    uint32_t peer = ((uint32_t)rank + d) % (uint32_t)size;
                    uint32_t number = i * TWILL_OFI_LANES + l;
                    message_make(&m[at++], &end, TWILL_TRANSFER_SEND, peer, l, number,
                                 mixed_size(l, i), false);
                    message_make(&m[at++], &end, TWILL_TRANSFER_RECV, peer, l, number,
                                 mixed_size(l, i), i % 3 == 0);
                }
        messages_run(&end, m, n);
        struct twill_transport_counters *c = &end.transport->counters;
        const struct setup *setup = user;
        TWILL_NOTE(c->messages == n / 2 && c->bytes > n && c->header_bytes >= n / 2 * 32 &&
                       c->copied > 0 && (setup->options.again == 0 || c->again > n / 4),
                   "counters");
        message_free(m, n);
        rank_barrier(&end);
    }
    end_close(&end);
}

TWILL_TEST(test_lanes)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(setups); i++) {
        print_message("  %s\n", setups[i].name);
        twill_test_run_ranks(i == 0 ? 3 : 2, rank_lanes, (void *)&setups[i]);
    }
}

/* --- a sender far ahead of the receiver ------------------------------------------------------ */

#define OFI_AHEAD 300

static void rank_unexpected(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct end end;
    if (end_open(&end, caller, user, 4)) {
        struct message *m = calloc(OFI_AHEAD, sizeof(*m));
        uint64_t until = twill_now() + SECOND / 5;
        while (rank == 1 && twill_now() < until && progress(&end))
            ;
        for (uint32_t i = 0; i < OFI_AHEAD; i++)
            message_make(&m[i], &end, rank == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                         (uint32_t)(1 - rank), i % 2, i, i % 7 == 0 ? 9000 + i : i, i % 5 == 0);
        messages_run(&end, m, OFI_AHEAD);
        message_free(m, OFI_AHEAD);
        rank_barrier(&end);
    }
    end_close(&end);
}

TWILL_TEST(test_unexpected)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(setups); i++)
        twill_test_run_ranks(2, rank_unexpected, (void *)&setups[i]);
}

/* --- ranks that disagree
 * ----------------------------------------------------------------------------- */

static const struct disagreement {
    size_t sent, received;
    uint32_t signature; /* of the receiver; the sender's is 7 */
} disagreements[] = {{8, 16, 7},
                     {16, 8, 7},
                     {8, 8, 6},
                     {0, 8, 7},
                     {8, 100000, 7},
                     {100000, 8, 7},
                     {100000, 100000, 6},
                     {100000, 200000, 7},
                     {200000, 100000, 7},
                     {TWILL_OFI_EAGER, TWILL_OFI_EAGER + 1, 7},
                     {TWILL_OFI_EAGER + 1, TWILL_OFI_EAGER, 7},
                     {8, 0, 7}};

static atomic_bool received; /* by rank 1, whatever it was */

static void rank_disagree(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct disagreement *d = user;
    struct end end;
    unsigned char *data = calloc(1, 1u << 20);
    if (data != NULL && end_open(&end, caller, TCP, 5)) {
        struct twill_transfer r = {.kind = rank == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                   .peer = (uint32_t)(1 - rank),
                                   .signature = rank == 0 ? 7 : d->signature,
                                   .buffer = data,
                                   .bytes = rank == 0 ? d->sent : d->received};
        uint64_t until = twill_now() + TWILL_TEST_PATIENCE;
        post(&end, &r);
        /* A large SEND to a small RECV gets no answer: the receiver reports the mismatch. */
        bool never = rank == 0 && d->sent > TWILL_OFI_EAGER && d->received <= TWILL_OFI_EAGER;
        while (r.status == TWILL_PENDING && twill_now() < until && progress(&end) &&
               !(never && atomic_load(&received)))
            ;
        if (rank == 1)
            atomic_store(&received, true);
        if (rank == 1) {
            TWILL_NOTE(r.status == TWILL_ERR_MISMATCH && r.peer_bytes == d->sent &&
                           r.peer_signature == 7,
                       "RECV: %d, %llu bytes, signature %u", r.status,
                       (unsigned long long)r.peer_bytes, r.peer_signature);
        } else if (d->sent > TWILL_OFI_EAGER && !never) {
            TWILL_NOTE(r.status == TWILL_ERR_MISMATCH && r.peer_bytes == d->received &&
                           r.peer_signature == d->signature,
                       "SEND: %d, %llu bytes, signature %u", r.status,
                       (unsigned long long)r.peer_bytes, r.peer_signature);
        }
        rank_barrier(&end);
        twill_ofi_transport.cancel(end.transport);
        memset(&r, 0x5a, sizeof(r));
        end_close(&end);
    }
    free(data);
}

TWILL_TEST(test_disagree)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(disagreements); i++) {
        atomic_store(&received, false);
        twill_test_run_ranks(2, rank_disagree, (void *)&disagreements[i]);
    }
}

/* --- messages without a RECV ------------------------------------------------------------------ */

static void rank_early(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct end end;
    if (end_open(&end, caller, user, 6)) {
        struct twill_test_end it = {
            .transport = end.transport, .rank = (uint32_t)rank, .size = (uint32_t)size};
        (void)twill_test_early(&it);
        rank_barrier(&end);
        twill_ofi_transport.cancel(end.transport);
    }
    end_close(&end);
}

TWILL_TEST(test_early)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(setups); i++)
        twill_test_run_ranks(3, rank_early, (void *)&setups[i]);
}

/* --- two communicators
 * ------------------------------------------------------------------------------- */

static void rank_two_comms(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct end end[2] = {{0}, {0}};
    uint32_t peer = (uint32_t)(1 - rank);
    if (end_open(&end[0], caller, user, 1) && end_open(&end[1], caller, user, 4095)) {
        struct message *m = calloc(8, sizeof(*m));
        bool fine = true;
        for (uint32_t i = 0; i < 8; i++) {
            /* The ranks use the communicators in opposite order; same lane, same sizes. */
            uint32_t c = (i & 1) ^ (uint32_t)rank;
            message_make(&m[i], &end[c], i & 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, peer, 3,
                         c * 100 + i / 4, i & 4 ? 70000 : 80, false);
            fine = fine && post(&end[c], &m[i].request);
        }
        uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
        for (uint32_t i = 0; fine && i < 8;) {
            fine = progress(&end[0]) && progress(&end[1]) && twill_now() < limit;
            i += m[i].request.status != TWILL_PENDING ? 1 : 0;
        }
        for (uint32_t i = 0; i < 8; i++)
            TWILL_NOTE(fine && m[i].request.status == TWILL_OK && message_check(&m[i], &end[0]),
                       "rank %d, message %u", rank, i);
        message_free(m, 8);
        rank_barrier(&end[0]);
    }
    end_close(&end[0]);
    end_close(&end[1]);
}

TWILL_TEST(test_two_comms)
{
    twill_test_run_ranks(2, rank_two_comms, (void *)TCP);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Another user's endpoint sends to a rank's, as any process may that reaches its port: with tags
 * derived from public data, and with the job's tags, but from another address. No receive
 * matches. */
#include "tests/support/ofi_ends.h"
#include "tests/support/unit.h"

#include <rdma/fi_errno.h>

#define NUMBER 3u /* of the communicator */

struct intruder {
    struct twill_ofi_endpoint endpoint; /* an endpoint that belongs to no job */
    fi_addr_t victim;
    bool informed; /* it knows the job's tags */
};

static struct twill_ofi_endpoint *endpoint_of(const struct end *end)
{
    return ((struct twill_ofi *)(void *)end->transport)->endpoint;
}

static bool intruder_open(struct intruder *s, const struct end *end)
{
    const struct twill_ofi_endpoint *victim = endpoint_of(end);
    struct twill_error error = {0};
    s->endpoint.params = end->params;
    s->endpoint.size = 2;
    twill_status status = twill_ofi_endpoint_open(&s->endpoint, &error);
    return TWILL_NOTE(status == TWILL_OK, "%s", error.message) &&
           fi_av_insert(s->endpoint.fi.av,
                        victim->addresses.bytes + end->rank * victim->addresses.stride, 1,
                        &s->victim, 0, NULL) == 1;
}

/* The tag derived from the nonce, which is visible in /proc/net/unix. */
static uint64_t public_tag(const uint8_t nonce[TWILL_NONCE_BYTES], uint32_t from,
                           enum twill_ofi_tag_kind tag_kind)
{
    struct twill_ofi_endpoint endpoint = {.matching.tag_secret = 2166136261u};
    for (size_t i = 0; i < TWILL_NONCE_BYTES; i++)
        endpoint.matching.tag_secret = (endpoint.matching.tag_secret ^ nonce[i]) * 16777619u;
    return twill_ofi_tag(&endpoint, NUMBER, 0, from, tag_kind);
}

/* Send a message in rank 1's name; return when it has left. */
static bool forge_message(struct intruder *s, struct end *end, enum twill_ofi_tag_kind tag_kind,
                          const void *message, size_t bytes)
{
    uint64_t tag = s->informed ? twill_ofi_tag(endpoint_of(end), NUMBER, 0, 1, tag_kind)
                               : public_tag(end->oob->nonce, 1, tag_kind);
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    struct fi_context2 context;
    struct fi_cq_tagged_entry entry;
    ssize_t rc;
    do {
        rc = fi_tsend(s->endpoint.fi.ep, message, bytes, NULL, s->victim, tag, &context);
        (void)fi_cq_read(s->endpoint.fi.cq, &entry, 0);
    } while (rc == -FI_EAGAIN && progress(end) && twill_now() < limit);
    TWILL_REQUIRE(rc == 0);
    do
        rc = fi_cq_read(s->endpoint.fi.cq, &entry, 1);
    while (rc == -FI_EAGAIN && progress(end) && twill_now() < limit);
    return TWILL_NOTE(rc == 1, "an unauthenticated message did not leave: %d", (int)rc);
}

/* "666", as rank 1 would send it in its message of that number. */
static bool rank_lie(struct intruder *s, struct end *end, uint32_t number)
{
    struct {
        struct twill_ofi_header header;
        uint64_t data;
    } message = {{.signature = 1000 + number,
                  .sequence = number,
                  .bytes = sizeof(uint64_t),
                  .kind = TWILL_OFI_EAGER_DATA},
                 666};
    struct twill_ofi_header credit = {.kind = TWILL_OFI_CREDIT, .consumed = 1000};
    if (!forge_message(s, end, TWILL_OFI_HEADER, &message, sizeof(message)) ||
        (!s->informed && !forge_message(s, end, TWILL_OFI_CONTROL, &credit, sizeof(credit))))
        return false;
    for (int turn = 0; turn < 100; turn++) { /* it has arrived by then */
        if (!progress(end))
            return false;
        usleep(1000);
    }
    return true;
}

static bool is_received(struct end *end, struct message *m)
{
    return wait_done(end, &m->request, 1) && all_ok(&m->request, 1) && message_check(m, end);
}

/* Rank 0 gets forged messages before and after it posts its receive. */
static void rank_lied_to(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct intruder *kind = user;
    struct intruder *s = calloc(1, sizeof(*s));
    struct end end;
    TWILL_CHECK(s != NULL && end_open(&end, caller, TCP, NUMBER));
    s->informed = kind->informed;
    bool asked = !s->informed || endpoint_of(&end)->matching.directed;
    bool good = rank != 0 || !asked || intruder_open(s, &end);
    for (uint32_t number = 0; number < 4 && asked && good; number++) {
        struct message *m = calloc(1, sizeof(*m));
        good = m != NULL &&
               message_make(m, &end, rank == 0 ? TWILL_TRANSFER_RECV : TWILL_TRANSFER_SEND,
                            1 - end.rank, 0, number, sizeof(uint64_t), false);
        bool before = number % 2 == 0;
        if (rank == 0)
            good = good && (before ? rank_lie(s, &end, number) && post(&end, &m->request)
                                   : post(&end, &m->request) && rank_lie(s, &end, number));
        good = good && rank_barrier(&end) && (rank == 0 || post(&end, &m->request)) &&
               is_received(&end, m) && rank_barrier(&end);
        if (m != NULL)
            message_free(m, 1);
    }
    if (rank == 0 && good)
        TWILL_NOTE(((struct twill_ofi *)(void *)end.transport)->peers[1]->channels[0].acked < 1000,
                   "an unauthenticated credit was accepted");
    if (rank == 0 && asked)
        twill_ofi_endpoint_free(&s->endpoint);
    end_close(&end);
    free(s);
}

TWILL_TEST(test_public)
{
    struct intruder kind = {.informed = false};
    twill_test_run_ranks(2, rank_lied_to, &kind);
}

TWILL_TEST(test_elsewhere)
{
    struct intruder kind = {.informed = true};
    twill_test_run_ranks(2, rank_lied_to, &kind);
}

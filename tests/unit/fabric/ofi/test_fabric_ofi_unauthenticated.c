/* SPDX-License-Identifier: Apache-2.0 */
/* Another user's endpoint sends to a rank's, as any process may that reaches its port: with tags
 * derived from public data, and with the job's tags, but from another address. No receive
 * matches. */
#include "tests/support/ofi_ends.h"
#include "tests/support/unit.h"

#include <rdma/fi_errno.h>

#define NUMBER 3u /* of the communicator */

static bool open_numbered(struct twill_test_end *end, const void *how)
{
    end->params.comm = NUMBER;
    return ofi_open(end, how);
}

struct intruder {
    struct twill_ofi_endpoint endpoint; /* an endpoint that belongs to no job */
    fi_addr_t victim;
    bool informed; /* it knows the job's tags */
};

static bool intruder_open(struct intruder *s, const struct twill_test_end *end)
{
    const struct twill_ofi_endpoint *victim = ofi_of(end)->endpoint;
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
static bool forge_message(struct intruder *s, struct twill_test_end *end,
                          enum twill_ofi_tag_kind tag_kind, const void *message, size_t bytes)
{
    uint64_t tag = s->informed ? twill_ofi_tag(ofi_of(end)->endpoint, NUMBER, 0, 1, tag_kind)
                               : public_tag(end->oob->nonce, 1, tag_kind);
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    struct fi_context2 context;
    struct fi_cq_tagged_entry entry;
    ssize_t rc;
    do {
        rc = fi_tsend(s->endpoint.fi.ep, message, bytes, NULL, s->victim, tag, &context);
        (void)fi_cq_read(s->endpoint.fi.cq, &entry, 0);
    } while (rc == -FI_EAGAIN && end_works(end) && twill_now() < limit);
    TWILL_REQUIRE(rc == 0);
    do
        rc = fi_cq_read(s->endpoint.fi.cq, &entry, 1);
    while (rc == -FI_EAGAIN && end_works(end) && twill_now() < limit);
    return TWILL_NOTE(rc == 1, "an unauthenticated message did not leave: %d", (int)rc);
}

/* "666", as rank 1 would send it in place of this letter. */
static bool rank_lie(struct intruder *s, struct twill_test_end *end, const struct letter *letter)
{
    struct {
        struct twill_ofi_header header;
        uint64_t data;
    } message = {{.signature = letter->request.signature,
                  .sequence = letter->number,
                  .bytes = sizeof(uint64_t),
                  .kind = TWILL_OFI_EAGER_DATA},
                 666};
    struct twill_ofi_header credit = {.kind = TWILL_OFI_CREDIT, .consumed = 1000};
    if (!forge_message(s, end, TWILL_OFI_HEADER, &message, sizeof(message)) ||
        (!s->informed && !forge_message(s, end, TWILL_OFI_CONTROL, &credit, sizeof(credit))))
        return false;
    for (int turn = 0; turn < 100; turn++) { /* it has arrived by then */
        if (!end_works(end))
            return false;
        usleep(1000);
    }
    return true;
}

/* Rank 0 gets a forged message before or after it posts its receive. */
static bool receives_own(struct intruder *s, struct twill_test_end *end, uint32_t number)
{
    struct letter *letter = calloc(1, sizeof(*letter));
    bool receives = end->rank == 0, before = number % 2 == 0;
    TWILL_REQUIRE(letter != NULL);
    letter_write(letter, end, receives ? TWILL_TRANSFER_RECV : TWILL_TRANSFER_SEND, end->peer, 0,
                 number, sizeof(uint64_t), false);
    TWILL_REQUIRE(!receives || !before || rank_lie(s, end, letter));
    TWILL_REQUIRE(!receives || end_post(end, &letter->request));
    TWILL_REQUIRE(!receives || before || rank_lie(s, end, letter));
    TWILL_REQUIRE(end_barrier(end) && (receives || end_post(end, &letter->request)));
    TWILL_REQUIRE(end_await(end, &letter->request, 1) && letter_read(end, letter));
    letters_free(end, letter, 1);
    return end_barrier(end);
}

static void lied_to(struct twill_test_end *end, void *user)
{
    const bool *informed = user;
    if (*informed && !ofi_of(end)->endpoint->matching.directed)
        return; /* it cannot be told from rank 1 */
    struct intruder *s = calloc(1, sizeof(*s));
    TWILL_CHECK(s != NULL);
    s->informed = *informed;
    TWILL_CHECK(end->rank == 1 || intruder_open(s, end));
    for (uint32_t number = 0; number < 4; number++)
        TWILL_CHECK(receives_own(s, end, number));
    TWILL_CHECK(end->rank == 1 || ofi_of(end)->peers[1]->channels[0].acked < 1000,
                "an unauthenticated credit was accepted");
    if (end->rank == 0)
        twill_ofi_endpoint_free(&s->endpoint);
    free(s);
}

static void run_intruder(bool informed)
{
    end_test_run((struct end_test){
        .ranks = 2, .open = open_numbered, .how = &tcp, .body = lied_to, .user = &informed});
}

TWILL_TEST(test_public)
{
    run_intruder(false);
}

TWILL_TEST(test_elsewhere)
{
    run_intruder(true);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The ofi transport when the provider reports one failed operation: the request that needs it fails
 * with the rank's name, and no other does. The provider is libfabric's tcp, with altered
 * completions. */
#include "tests/support/ofi_ends.h"
#include "tests/support/unit.h"

#include <rdma/fi_errno.h>

/* Which operation of rank 1 fails, and how. */
struct loss {
    const char *name;
    enum twill_ofi_op_kind kind;
    enum twill_ofi_message message; /* of send buffers */
    int code;
    size_t bytes;      /* of the messages */
    int count;         /* of them */
    bool sends;        /* rank 1 sends them */
    twill_status says; /* status of rank 1 */
};

static const struct loss losses[] = {
    {"header", TWILL_OFI_OP_SEND_BUFFER, TWILL_OFI_LARGE, FI_EIO, 100000, 1, true,
     TWILL_ERR_FABRIC},
    {"clear to send", TWILL_OFI_OP_SEND_BUFFER, TWILL_OFI_CLEAR_TO_SEND, FI_EIO, 100000, 1, false,
     TWILL_ERR_FABRIC},
    {"small message", TWILL_OFI_OP_SEND_BUFFER, TWILL_OFI_EAGER_DATA, FI_ECONNRESET, 64, 1, true,
     TWILL_ERR_PEER},
    {"segment", TWILL_OFI_OP_SEND_CHUNK, 0, FI_ECANCELED, TWILL_OFI_BUFFER_BYTES + 4, 1, true,
     TWILL_ERR_PEER}, /* the only one of its message */
    {"credit", TWILL_OFI_OP_SEND_BUFFER, TWILL_OFI_CREDIT, FI_EIO, 64, 40, false, TWILL_OK},
};

/* A completion queue that reports the first such operation as failed. */
struct lying_rank {
    struct fid_cq cq;
    struct fi_ops_cq ops;
    struct fid_cq *below;
    const struct loss *loss;
    struct twill_ofi_op *failed;
    unsigned count;
};

static bool is_it(const struct lying_rank *liar, const struct twill_ofi_op *op)
{
    struct twill_ofi_header header;
    if (op == NULL || op->kind != liar->loss->kind || liar->count > 0)
        return false;
    if (op->kind != TWILL_OFI_OP_SEND_BUFFER)
        return true;
    memcpy(&header, op->buffer, sizeof(header));
    return header.kind == liar->loss->message;
}

/* One entry at a time, so that none must be stored. */
static ssize_t liar_read(struct fid_cq *cq, void *entries, size_t count)
{
    struct lying_rank *liar = (struct lying_rank *)cq;
    struct fi_cq_tagged_entry *entry = entries;
    ssize_t n = fi_cq_read(liar->below, entry, count > 0 ? 1 : 0);
    if (n != 1 || !is_it(liar, entry->op_context))
        return n;
    liar->failed = entry->op_context;
    liar->count++;
    return -FI_EAVAIL;
}

static ssize_t liar_readerr(struct fid_cq *cq, struct fi_cq_err_entry *entry, uint64_t flags)
{
    struct lying_rank *liar = (struct lying_rank *)cq;
    if (liar->failed == NULL)
        return fi_cq_readerr(liar->below, entry, flags);
    *entry = (struct fi_cq_err_entry){.op_context = liar->failed, .err = liar->loss->code};
    liar->failed = NULL;
    return 1;
}

static const char *liar_strerror(struct fid_cq *cq, int code, const void *data, char *text,
                                 size_t bytes)
{
    snprintf(text, bytes, "the provider says so");
    return text;
}

static void lie(struct lying_rank *liar, struct twill_test_end *end, const struct loss *loss)
{
    struct twill_ofi_endpoint *endpoint = ofi_of(end)->endpoint;
    *liar = (struct lying_rank){.below = endpoint->fi.cq, .loss = loss};
    liar->ops = (struct fi_ops_cq){.size = sizeof(liar->ops),
                                   .read = liar_read,
                                   .readerr = liar_readerr,
                                   .strerror = liar_strerror};
    liar->cq = *endpoint->fi.cq;
    liar->cq.ops = &liar->ops;
    endpoint->fi.cq = &liar->cq;
}

/* Rank 1: progress until all is done or has failed. */
static twill_status go_on(struct twill_test_end *end, const struct letter *letters, size_t n)
{
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    for (size_t i = 0; i < n && twill_now() < limit;) {
        int moved = end_progress(end);
        if (moved < 0)
            return (twill_status)moved;
        i += letters[i].request.status != TWILL_PENDING;
    }
    return TWILL_OK;
}

struct loss_job {
    const struct loss *loss;
    atomic_int over; /* for rank 1 */
};

/* Rank 1, whose provider lies. */
static void lose_one(struct twill_test_end *end, const struct loss *loss, struct letter *letters)
{
    struct lying_rank liar;
    bool posted = true;
    lie(&liar, end, loss);
    for (int i = 0; i < loss->count; i++)
        posted = posted && end_post(end, &letters[i].request);
    twill_status status = go_on(end, letters, (size_t)loss->count);
    ofi_of(end)->endpoint->fi.cq = liar.below;
    TWILL_CHECK(posted && liar.count == 1 && status == loss->says, "%s: %u lost, status %d: %s",
                loss->name, liar.count, status, end->error.message);
    TWILL_CHECK(status == TWILL_OK || strstr(end->error.message, "rank 0, lane 2: ") != NULL,
                "%s: no rank is named: %s", loss->name, end->error.message);
}

/* Rank 0 completes what can still complete; else it only keeps its provider going. */
static void lose(struct twill_test_end *end, void *user)
{
    struct loss_job *job = user;
    const struct loss *loss = job->loss;
    bool sends = loss->sends == (end->rank == 1);
    bool completes = loss->says == TWILL_OK || loss->kind == TWILL_OFI_OP_SEND_CHUNK;
    size_t n = (size_t)loss->count;
    struct letter *letters = calloc(n, sizeof(*letters));
    for (uint32_t i = 0; i < n; i++)
        letter_write(&letters[i], end, sends ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, end->peer,
                     2, i, loss->bytes, false);
    if (end->rank == 1) {
        lose_one(end, loss, letters);
        atomic_store(&job->over, 1);
    }
    for (size_t i = 0; end->rank == 0 && completes && i < n; i++)
        TWILL_CHECK(end_post(end, &letters[i].request));
    if (end->rank == 0 && completes)
        TWILL_CHECK(end_await(end, &letters[n - 1].request, 1));
    while (end->rank == 0 && !atomic_load(&job->over))
        TWILL_CHECK(!twill_test_failed() && end_works(end));
    TWILL_CHECK(end_barrier(end));
    twill_ofi_transport.cancel(end->transport);
    letters_free(end, letters, n);
}

static void test_loss(void **state)
{
    static const struct setup plain = {"tcp", {.no_inject = true}};
    struct loss_job job = {.loss = *state};
    end_test_run(
        (struct end_test){.ranks = 2, .open = ofi_open, .how = &plain, .body = lose, .user = &job});
}

int main(void)
{
    struct CMUnitTest tests[TWILL_ARRAY_LENGTH(losses)];
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(losses); i++)
        tests[i] = (struct CMUnitTest){
            .name = losses[i].name, .test_func = test_loss, .initial_state = (void *)&losses[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

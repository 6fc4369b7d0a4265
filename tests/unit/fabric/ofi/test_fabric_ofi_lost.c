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
    {"segment", TWILL_OFI_OP_SEND_CHUNK, 0, FI_ECANCELED, TWILL_OFI_PULLED, 1, true,
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

static void receiver_lie(struct lying_rank *liar, struct end *end, const struct loss *loss)
{
    struct twill_ofi_endpoint *endpoint = ((struct twill_ofi *)end->transport)->endpoint;
    *liar = (struct lying_rank){.below = endpoint->fi.cq, .loss = loss};
    liar->ops = (struct fi_ops_cq){.size = sizeof(liar->ops),
                                   .read = liar_read,
                                   .readerr = liar_readerr,
                                   .strerror = liar_strerror};
    liar->cq = *endpoint->fi.cq;
    liar->cq.ops = &liar->ops;
    endpoint->fi.cq = &liar->cq;
}

static void be_honest(struct lying_rank *liar, struct end *end)
{
    ((struct twill_ofi *)end->transport)->endpoint->fi.cq = liar->below;
}

/* Rank 1: progress until all is done or has failed. */
static twill_status messages_go_on(struct end *end, const struct message *m, size_t n)
{
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    for (size_t i = 0; i < n && twill_now() < limit;) {
        int moved = end->transport->ops->progress(end->transport, &end->error);
        if (moved < 0)
            return (twill_status)moved;
        i += m[i].request.status != TWILL_PENDING;
        if (moved == 0)
            sched_yield();
    }
    return TWILL_OK;
}

static const struct setup plain = {"without inject", "tcp", {.no_inject = true}};

struct loss_job {
    const struct loss *loss;
    atomic_int over; /* for rank 1 */
};

/* Rank 0 completes what can still complete; else it only keeps its provider going. */
static void rank_loses(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct loss_job *job = user;
    const struct loss *loss = job->loss;
    struct lying_rank liar;
    struct end end;
    if (!end_open(&end, caller, &plain, 5)) {
        end_close(&end);
        return;
    }
    size_t n = (size_t)loss->count;
    struct message *m = calloc(n, sizeof(*m));
    for (size_t i = 0; i < n; i++)
        message_make(&m[i], &end,
                     loss->sends == (rank == 1) ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                     (uint32_t)(1 - rank), 2, (uint32_t)i, loss->bytes, false);
    if (rank == 1) {
        receiver_lie(&liar, &end, loss);
        for (size_t i = 0; i < n; i++)
            post(&end, &m[i].request);
        twill_status status = messages_go_on(&end, m, n);
        TWILL_NOTE(liar.count == 1 && status == loss->says, "%s: %u lost, status %d: %s",
                   loss->name, liar.count, status, end.error.message);
        TWILL_NOTE(status == TWILL_OK || strstr(end.error.message, "rank 0, lane 2: ") != NULL,
                   "%s: no rank is named: %s", loss->name, end.error.message);
        be_honest(&liar, &end);
        atomic_store(&job->over, 1);
    } else if (loss->says == TWILL_OK || loss->kind == TWILL_OFI_OP_SEND_CHUNK) {
        for (size_t i = 0; i < n; i++)
            post(&end, &m[i].request);
        wait_done(&end, &m[n - 1].request, 1);
    }
    while (rank == 0 && !atomic_load(&job->over) && !twill_test_failed() && progress(&end))
        ;
    rank_barrier(&end);
    twill_ofi_transport.cancel(end.transport);
    rank_barrier(&end);
    message_free(m, n);
    end_close(&end);
}

static void test_loss(void **state)
{
    struct loss_job job = {.loss = *state};
    twill_test_run_ranks(2, rank_loses, &job);
}

int main(void)
{
    struct CMUnitTest tests[TWILL_ARRAY_LENGTH(losses)];
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(losses); i++)
        tests[i] = (struct CMUnitTest){
            .name = losses[i].name, .test_func = test_loss, .initial_state = (void *)&losses[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Completion queue of a double: data moves only when it is read. */
#include "tests/doubles/provider/provider_double.h"

#include <stdlib.h>
#include <string.h>

#define QUEUE_BATCH 16
#define LATE_NS     1500000000ull

/* Handle one completion of the lower provider. Returns 1 if the caller is to see it. */
static int translate_completion(const struct fi_cq_tagged_entry *lower,
                                struct fi_cq_tagged_entry *entry)
{
    struct op *op = lower->op_context;
    bool sends = op->sends;
    uint64_t kind = op->writes ? FI_RMA | FI_WRITE : FI_TAGGED | (sends ? FI_SEND : FI_RECV);
    *entry = (struct fi_cq_tagged_entry){
        .flags = kind, .len = sends ? 0 : lower->len, .tag = sends ? 0 : lower->tag};
    return op_end(op, &entry->op_context) ? 1 : 0;
}

static void add_failure(struct queue *queue, const struct fi_cq_err_entry *entry, struct op *op,
                        uint64_t due)
{
    struct failure **at = &queue->failures;
    while (*at != NULL)
        at = &(*at)->next;
    *at = calloc(1, sizeof(**at));
    if (*at != NULL)
        **at = (struct failure){.entry = *entry, .op = op, .due = due};
}

/* Take an error of the lower provider and decide what the caller sees of it, and when. Returns
 * false if there is none. */
static bool take_failure(struct queue *queue)
{
    struct fi_cq_err_entry entry = {0};
    enum give_back back = queue->domain->limits.back;
    if (fi_cq_readerr(queue->lower, &entry, 0) <= 0)
        return false;
    struct op *op = entry.op_context;
    if (op != NULL && abs(entry.err) == FI_ETRUNC)
        refuse("a message came that was longer than the receive of %zu bytes", op->bytes);
    bool cancelled = op != NULL && op->cancelled_at != 0 && abs(entry.err) == FI_ECANCELED;
    if (op != NULL && op->spoiled) {
        struct fi_cq_err_entry own = {.op_context = (void *)64, .err = FI_ENOTCONN};
        add_failure(queue, &own, NULL, 0);
        entry.err = FI_EIO;
    }
    if (cancelled && back == BACK_NEVER)
        return true;
    add_failure(queue, &entry, op, cancelled && back == BACK_LATE ? clock_now() + LATE_NS : 0);
    if (cancelled && back == BACK_TWICE) {
        entry.op_context = op->context;
        add_failure(queue, &entry, NULL, 0);
    }
    return true;
}

static bool has_failure(const struct queue *queue)
{
    return queue->failures != NULL && queue->failures->due <= clock_now();
}

static ssize_t cq_read(struct fid_cq *fid, void *buffer, size_t count)
{
    struct queue *queue = container_of(fid, struct queue, fid);
    struct fi_cq_tagged_entry lower[QUEUE_BATCH];
    struct fi_cq_tagged_entry *entries = buffer;
    bool twice = queue->domain->limits.back == BACK_TWICE && count > 1;
    ssize_t given = 0;
    enter(queue->domain, "fi_cq_read");
    if (queue->endpoint != NULL)
        ep_flush(queue->endpoint);
    size_t most = twice ? count / 2 : count;
    ssize_t n = has_failure(queue)
                    ? -FI_EAVAIL
                    : fi_cq_read(queue->lower, lower, most < QUEUE_BATCH ? most : QUEUE_BATCH);
    for (ssize_t i = 0; i < n; i++) {
        ssize_t more = translate_completion(&lower[i], &entries[given]);
        if (more == 1 && twice && (entries[given].flags & FI_SEND) != 0)
            entries[given + more++] = entries[given];
        given += more;
    }
    while (n == -FI_EAVAIL && take_failure(queue))
        ;
    if (n == -FI_EAVAIL && !has_failure(queue))
        n = 0;
    leave(queue->domain);
    if (n < 0)
        return n;
    return given > 0 ? given : -FI_EAGAIN;
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *entry, uint64_t flags)
{
    struct queue *queue = container_of(fid, struct queue, fid);
    if (!has_failure(queue))
        return -FI_EAGAIN;
    enter(queue->domain, "fi_cq_readerr");
    struct failure *first = queue->failures;
    queue->failures = first->next;
    *entry = first->entry;
    if (first->op != NULL)
        op_end(first->op, &entry->op_context);
    free(first);
    leave(queue->domain);
    return 1;
}

static const char *cq_strerror(struct fid_cq *fid, int code, const void *data, char *text,
                               size_t bytes)
{
    struct queue *queue = container_of(fid, struct queue, fid);
    return fi_cq_strerror(queue->lower, code, data, text, bytes);
}

static int cq_close(struct fid *fid)
{
    struct queue *queue = container_of(fid, struct queue, fid.fid);
    if (queue->endpoint != NULL) {
        refuse("fi_close of a completion queue that an endpoint uses");
        return -FI_EBUSY;
    }
    fi_close(&queue->lower->fid);
    queue->domain->children--;
    while (queue->failures != NULL) {
        struct failure *next = queue->failures->next;
        free(queue->failures);
        queue->failures = next;
    }
    if (queue->closed != NULL)
        ep_free(queue->closed);
    free(queue);
    return 0;
}

int cq_open(struct fid_domain *fid, struct fi_cq_attr *attr, struct fid_cq **made, void *context)
{
    static struct fi_ops ops = {sizeof(ops), cq_close, no_bind, no_control, no_ops, NULL, NULL};
    static struct fi_ops_cq cq_ops = {
        .size = sizeof(cq_ops), .read = cq_read, .readerr = cq_readerr, .strerror = cq_strerror};
    struct domain *domain = container_of(fid, struct domain, fid);
    if (attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC &&
        attr->wait_obj != FI_WAIT_SET)
        return refuse("a completion queue with wait object %d", (int)attr->wait_obj);
    if (attr->format != FI_CQ_FORMAT_TAGGED)
        return refuse("a completion queue of format %d: the double knows one", (int)attr->format);
    struct queue *queue = calloc(1, sizeof(*queue));
    if (queue == NULL)
        return -FI_ENOMEM;
    struct fi_cq_attr lower = {
        .size = 16384, .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE};
    int rc = fi_cq_open(domain->lower, &lower, &queue->lower, NULL);
    if (rc != 0) {
        free(queue);
        return rc;
    }
    queue->domain = domain;
    queue->size = attr->size == 0 ? domain->limits.queue : attr->size;
    queue->fid.fid = (struct fid){FI_CLASS_CQ, context, &ops};
    queue->fid.ops = &cq_ops;
    domain->children++;
    *made = &queue->fid;
    return 0;
}

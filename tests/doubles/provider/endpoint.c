/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoint of a double: checks every post, then holds it until the completion queue is read. */
#include "tests/doubles/provider/provider_double.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CANCEL_NS  900000000ull /* least time a caller must wait for cancelled operations */
#define BUSY_EVERY 11           /* every n-th post is refused as busy */
#define MAX_BUSY   50000        /* busy answers in a row: the caller does not read its queue */
#define CONTEXT    (FI_CONTEXT | FI_CONTEXT2)

static size_t context_words(const struct domain *domain)
{
    size_t bytes = (domain->mode & FI_CONTEXT2) != 0  ? sizeof(struct fi_context2)
                   : (domain->mode & FI_CONTEXT) != 0 ? sizeof(struct fi_context)
                                                      : 0;
    return bytes / sizeof(uint64_t);
}

/* Fill the caller's context as a provider may, until the operation has completed. */
static void fill_context(struct op *op)
{
    uint64_t *words = op->context;
    op->pattern = ++op->endpoint->patterns;
    for (size_t i = 0; i < context_words(op->endpoint->domain); i++)
        words[i] = op->pattern * 0x9e3779b97f4a7c15ull + i;
}

static bool context_untouched(const struct op *op)
{
    const uint64_t *words = op->context;
    for (size_t i = 0; i < context_words(op->endpoint->domain); i++)
        if (words[i] != op->pattern * 0x9e3779b97f4a7c15ull + i)
            return false;
    return true;
}

bool op_end(struct op *op, void **context)
{
    struct endpoint *ep = op->endpoint;
    bool delayed = !op->injected;
    if (delayed && !context_untouched(op))
        refuse("a context was written to while its operation was under way");
    *context = op->context;
    if (op->mr != NULL)
        op->mr->uses--;
    op->mr = NULL;
    op->state = OP_FREE;
    op->next = ep->free;
    ep->free = op;
    ep->busy--;
    return delayed;
}

/* --- posting ---------------------------------------------------------------------------------- */

static int check_context(struct endpoint *ep, const void *context)
{
    if (context == NULL)
        return (ep->domain->mode & CONTEXT) == 0 ? 0 : refuse("an operation without a context");
    for (size_t i = 0; i < ep->op_count; i++)
        if (ep->ops[i].state != OP_FREE && ep->ops[i].context == context)
            return refuse("a context is used for two operations at once");
    return 0;
}

static int check_tags(const struct endpoint *ep, uint64_t tag, uint64_t ignore)
{
    unsigned bits = ep->domain->limits.tag_bits;
    uint64_t beyond = bits == 64 ? 0 : ~(uint64_t)0 << bits;
    return ((tag | ignore) & beyond) == 0
               ? 0
               : refuse("tag %#llx, ignoring %#llx, of more than %u bits", (unsigned long long)tag,
                        (unsigned long long)ignore, bits);
}

static int check_send(const struct endpoint *ep, const void *buffer, size_t bytes)
{
    size_t above = ep->domain->limits.pull_above;
    if (above != 0 && bytes > above && (((uintptr_t)buffer | bytes) & 3) != 0)
        return refuse("a message of %zu bytes at %p, which is read by words of 4 bytes", bytes,
                      buffer);
    return 0;
}

/* Return whether to refuse as busy, as real providers do when a queue is full, at the first contact
 * with a peer, and whenever they like. A caller that never reads the queue gets no further. */
static int check_credits(struct endpoint *ep, bool first)
{
    if (++ep->posts % BUSY_EVERY != 0 && !first && ep->free != NULL)
        return 0;
    if (++ep->laters == MAX_BUSY)
        refuse("\"later\" %d times and the completion queue was never read", MAX_BUSY);
    return -FI_EAGAIN;
}

static struct op *take_op(struct endpoint *ep, const void *buffer, size_t bytes, void *context)
{
    struct op *op = ep->free;
    ep->free = op->next;
    ep->busy++;
    op->next = NULL;
    op->state = OP_QUEUED;
    op->injected = op->sends = op->writes = false;
    op->context = context;
    op->buffer = (void *)(uintptr_t)buffer;
    op->bytes = bytes;
    op->mr = NULL;
    op->cancelled_at = 0;
    op->spoiled = false;
    return op;
}

static void append_op(struct op_list *list, struct op *op)
{
    if (list->head == NULL)
        list->head = op;
    else
        list->tail->next = op;
    list->tail = op;
}

static int check_post(struct endpoint *ep, size_t bytes, uint64_t tag, uint64_t ignore)
{
    if (!ep->enabled)
        return refuse("an operation on an endpoint that is not enabled");
    if (bytes > ep->domain->limits.max_message)
        return refuse("a message of %zu bytes, of at most %zu", bytes,
                      ep->domain->limits.max_message);
    if (ep->busy >= ep->queue->size)
        return refuse("more operations than the completion queue of %zu can hold", ep->queue->size);
    return check_tags(ep, tag, ignore);
}

static int post_recv_op(struct endpoint *ep, void *buffer, size_t bytes, void *desc, uint64_t tag,
                        uint64_t ignore, void *context)
{
    int rc = check_post(ep, bytes, tag, ignore);
    if (rc == 0)
        rc = check_context(ep, context);
    struct mr *mr = rc == 0 ? mr_find(ep, buffer, bytes, desc, FI_RECV, &rc) : NULL;
    if (rc == 0)
        rc = check_credits(ep, false);
    if (rc != 0)
        return rc;
    struct op *op = take_op(ep, buffer, bytes, context);
    op->tag = tag;
    op->ignore = ignore;
    op->mr = mr;
    if (mr != NULL)
        mr->uses++;
    fill_context(op);
    append_op(&ep->recvs, op);
    return 0;
}

static ssize_t ep_recv(struct fid_ep *fid, void *buffer, size_t bytes, void *desc, fi_addr_t from,
                       uint64_t tag, uint64_t ignore, void *context)
{
    struct endpoint *ep = container_of(fid, struct endpoint, fid);
    enter(ep->domain, "fi_trecv");
    /* FI_DIRECTED_RECV was not requested. */
    int rc = from == FI_ADDR_UNSPEC ? post_recv_op(ep, buffer, bytes, desc, tag, ignore, context)
                                    : refuse("a receive from one address only");
    leave(ep->domain);
    return rc;
}

static int post_send_op(struct endpoint *ep, const void *buffer, size_t bytes, void *desc,
                        fi_addr_t to, uint64_t tag, void *context, bool inject)
{
    bool first = false;
    fi_addr_t lower = 0;
    struct mr *mr = NULL;
    int rc = check_post(ep, bytes, tag, 0);
    if (rc == 0 && inject && bytes > ep->domain->limits.inject)
        rc = refuse("fi_tinject of %zu bytes, of at most %zu", bytes, ep->domain->limits.inject);
    if (rc == 0 && !inject)
        rc = check_context(ep, context);
    if (rc == 0 && !inject)
        rc = check_send(ep, buffer, bytes);
    if (rc == 0 && !inject)
        mr = mr_find(ep, buffer, bytes, desc, FI_SEND, &rc);
    if (rc == 0)
        rc = av_resolve(ep->av, to, &lower, &first);
    if (rc == 0)
        rc = check_credits(ep, first);
    if (rc != 0)
        return rc;
    struct op *op = take_op(ep, buffer, bytes, context);
    op->sends = true;
    op->to = lower;
    op->tag = tag;
    op->mr = mr;
    op->injected = inject;
    if (inject) {
        memcpy(op->copy, buffer, bytes);
        op->buffer = op->copy;
    } else {
        fill_context(op);
    }
    if (mr != NULL)
        mr->uses++;
    append_op(&ep->sends, op);
    return 0;
}

static ssize_t ep_send(struct fid_ep *fid, const void *buffer, size_t bytes, void *desc,
                       fi_addr_t to, uint64_t tag, void *context)
{
    struct endpoint *ep = container_of(fid, struct endpoint, fid);
    enter(ep->domain, "fi_tsend");
    int rc = post_send_op(ep, buffer, bytes, desc, to, tag, context, false);
    leave(ep->domain);
    return rc;
}

static ssize_t ep_inject(struct fid_ep *fid, const void *buffer, size_t bytes, fi_addr_t to,
                         uint64_t tag)
{
    struct endpoint *ep = container_of(fid, struct endpoint, fid);
    enter(ep->domain, "fi_tinject");
    int rc = post_send_op(ep, buffer, bytes, NULL, to, tag, NULL, true);
    leave(ep->domain);
    return rc;
}

/* Post a write. The key has the base of the memory, from which the lower provider counts. */
static int post_write_op(struct endpoint *ep, const struct fi_msg_rma *msg, uint64_t flags)
{
    const struct fi_rma_iov *to = msg->rma_iov;
    const struct iovec *from = msg->msg_iov;
    const struct domain *domain = ep->domain;
    bool first = false, delivered = (flags & FI_DELIVERY_COMPLETE) != 0;
    fi_addr_t lower = 0;
    int rc = check_post(ep, from->iov_len, 0, 0);
    if (rc == 0 && (msg->iov_count != 1 || msg->rma_iov_count != 1 || to->len != from->iov_len))
        rc = refuse("a write of %zu parts into %zu", msg->iov_count, msg->rma_iov_count);
    if (rc == 0 && delivered != domain->limits.delivers)
        rc = refuse("a write with flags %#llx", (unsigned long long)flags);
    if (rc == 0)
        rc = check_context(ep, msg->context);
    struct mr *mr = rc == 0 ? mr_find(ep, from->iov_base, from->iov_len,
                                      msg->desc == NULL ? NULL : msg->desc[0], FI_WRITE, &rc)
                            : NULL;
    if (rc == 0)
        rc = av_resolve(ep->av, msg->addr, &lower, &first);
    if (rc == 0)
        rc = check_credits(ep, first);
    if (rc != 0)
        return rc;
    struct op *op = take_op(ep, from->iov_base, from->iov_len, msg->context);
    op->sends = op->writes = true;
    op->to = lower;
    op->at = to->addr;
    if ((domain->mr_mode & FI_MR_VIRT_ADDR) != 0)
        op->at -= to->key & (((uint64_t)1 << 48) - 1);
    op->key = to->key;
    op->waits = 3;
    op->mr = mr;
    if (mr != NULL)
        mr->uses++;
    fill_context(op);
    append_op(&ep->writes, op);
    return 0;
}

static ssize_t ep_writemsg(struct fid_ep *fid, const struct fi_msg_rma *msg, uint64_t flags)
{
    struct endpoint *ep = container_of(fid, struct endpoint, fid);
    enter(ep->domain, "fi_writemsg");
    int rc = post_write_op(ep, msg, flags);
    leave(ep->domain);
    return rc;
}

static ssize_t ep_write(struct fid_ep *fid, const void *buffer, size_t bytes, void *desc,
                        fi_addr_t to, uint64_t at, uint64_t key, void *context)
{
    const struct iovec from = {(void *)(uintptr_t)buffer, bytes};
    const struct fi_rma_iov place = {.addr = at, .len = bytes, .key = key};
    const struct fi_msg_rma msg = {.msg_iov = &from,
                                   .desc = &desc,
                                   .iov_count = 1,
                                   .addr = to,
                                   .rma_iov = &place,
                                   .rma_iov_count = 1,
                                   .context = context};
    return ep_writemsg(fid, &msg, 0);
}

/* --- progress: only when the completion queue is read ---------------------------------------- */

static ssize_t start_op(struct endpoint *ep, struct op *op)
{
    if (op->writes && op->waits > 0) {
        op->waits--;
        return -FI_EAGAIN;
    }
    if (op->writes)
        return fi_write(ep->lower, op->buffer, op->bytes, NULL, op->to, op->at, op->key,
                        &op->lower);
    if (op->sends)
        return fi_tsend(ep->lower, op->buffer, op->bytes, NULL, op->to, op->tag, &op->lower);
    return fi_trecv(ep->lower, op->buffer, op->bytes, NULL, FI_ADDR_UNSPEC, op->tag, op->ignore,
                    &op->lower);
}

/* Return whether an operation must wait for an earlier one in the list: of receives for any, and of
 * the others for those to the same peer, so that a dead peer does not hold up the rest. */
static bool waits_for_earlier(const struct op_list *list, const struct op *op)
{
    const struct op *earlier = list->head;
    while (earlier != op && op->sends && earlier->to != op->to)
        earlier = earlier->next;
    return earlier != op;
}

static void flush_list(struct endpoint *ep, struct op_list *list)
{
    struct op *op = list->head, *last = NULL;
    while (op != NULL) {
        struct op *next = op->next;
        if (waits_for_earlier(list, op) || start_op(ep, op) != 0) {
            last = op;
        } else {
            op->state = OP_POSTED;
            op->next = NULL;
            *(last != NULL ? &last->next : &list->head) = next;
        }
        op = next;
    }
    list->tail = last;
}

void ep_flush(struct endpoint *ep)
{
    ep->laters = 0;
    flush_list(ep, &ep->recvs);
    flush_list(ep, &ep->sends);
    flush_list(ep, &ep->writes);
}

uint64_t clock_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* Let a receive fail that takes from anyone. */
static void spoil_receive(struct endpoint *ep)
{
    size_t i = 0;
    while (i < ep->op_count &&
           (ep->ops[i].state != OP_POSTED || ep->ops[i].sends || ep->ops[i].ignore == 0))
        i++;
    if (i == ep->op_count)
        return;
    ep->ops[i].spoiled = ep->has_failed = true;
    (void)fi_cancel(&ep->lower->fid, &ep->ops[i].lower);
}

static ssize_t ep_cancel(fid_t fid, void *context)
{
    struct endpoint *ep = container_of(fid, struct endpoint, fid.fid);
    ssize_t rc = -FI_ENOENT;
    enter(ep->domain, "fi_cancel");
    ep_flush(ep);
    if (ep->domain->limits.back == BACK_AFTER_ERROR && !ep->has_failed)
        spoil_receive(ep);
    for (size_t i = 0; i < ep->op_count; i++) {
        struct op *op = &ep->ops[i];
        if (op->state == OP_FREE || op->context != context)
            continue;
        op->cancelled_at = op->cancelled_at == 0 ? clock_now() : op->cancelled_at;
        if (op->state == OP_POSTED && !op->sends)
            rc = fi_cancel(&ep->lower->fid, &op->lower);
    }
    leave(ep->domain);
    return rc;
}

/* A caller that has cancelled an operation and waited in vain, because the peer stopped in the
 * middle of it, can only give up the memory. */
void mr_forget_requested(struct mr *mr)
{
    struct endpoint *ep = mr->bound;
    for (size_t i = 0; ep != NULL && i < ep->op_count; i++) {
        struct op *op = &ep->ops[i];
        if (op->state == OP_FREE || op->mr != mr || op->cancelled_at == 0 ||
            clock_now() - op->cancelled_at < CANCEL_NS)
            continue;
        op->mr = NULL;
        mr->uses--;
    }
}

/* --- the object ------------------------------------------------------------------------------ */

/* Endpoints of this process. */
static atomic_uint endpoints;

static int ep_close(struct fid *fid)
{
    struct endpoint *ep = container_of(fid, struct endpoint, fid.fid);
    struct domain *domain = ep->domain;
    enter(domain, "fi_close of an endpoint");
    for (struct mr *mr = domain->mrs; mr != NULL; mr = mr->next)
        if (mr->bound == ep)
            refuse("an endpoint is closed before the memory that is bound to it");
    fi_close(&ep->lower->fid);
    for (size_t i = 0; i < ep->op_count; i++)
        if (ep->ops[i].state != OP_FREE && ep->ops[i].mr != NULL)
            ep->ops[i].mr->uses--;
    if (ep->av != NULL)
        ep->av->users--;
    domain->children--;
    atomic_fetch_sub(&endpoints, 1);
    leave(domain);
    if (ep->queue == NULL) {
        ep_free(ep);
        return 0;
    }
    ep->queue->endpoint = NULL;
    ep->queue->closed = ep;
    return 0;
}

void ep_free(struct endpoint *ep)
{
    for (size_t i = 0; i < ep->op_count; i++)
        if (ep->ops[i].state != OP_FREE && !ep->ops[i].injected && !context_untouched(&ep->ops[i]))
            refuse("a context was written to while its completion queue was open");
    free(ep->ops);
    free(ep);
}

static int ep_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
    struct endpoint *ep = container_of(fid, struct endpoint, fid.fid);
    if (ep->enabled)
        return refuse("fi_ep_bind of an endpoint that is enabled");
    if (other->fclass == FI_CLASS_AV && ep->av == NULL) {
        ep->av = container_of(other, struct av, fid.fid);
        ep->av->users++;
        return fi_ep_bind(ep->lower, &ep->av->lower->fid, 0);
    }
    if (other->fclass == FI_CLASS_CQ && ep->queue == NULL && flags == (FI_TRANSMIT | FI_RECV)) {
        ep->queue = container_of(other, struct queue, fid.fid);
        ep->queue->endpoint = ep;
        return fi_ep_bind(ep->lower, &ep->queue->lower->fid, flags);
    }
    return refuse("fi_ep_bind of class %zu with %#llx", other->fclass, (unsigned long long)flags);
}

static int ep_control(struct fid *fid, int command, void *argument)
{
    struct endpoint *ep = container_of(fid, struct endpoint, fid.fid);
    if (command != FI_ENABLE || ep->av == NULL || ep->queue == NULL)
        return refuse("control %d of an endpoint without addresses or a queue", command);
    int rc = fi_enable(ep->lower);
    ep->enabled = rc == 0;
    return rc;
}

static int make_endpoint(struct domain *domain, struct endpoint **made)
{
    struct endpoint *ep = calloc(1, sizeof(*ep));
    if (ep == NULL)
        return -FI_ENOMEM;
    ep->op_count = 2 * domain->limits.queue;
    ep->ops = calloc(ep->op_count, sizeof(*ep->ops));
    int rc =
        ep->ops == NULL ? -FI_ENOMEM : fi_endpoint(domain->lower, domain->info, &ep->lower, NULL);
    if (rc != 0) {
        free(ep->ops);
        free(ep);
        return rc;
    }
    for (size_t i = 0; i < ep->op_count; i++) {
        ep->ops[i].endpoint = ep;
        ep->ops[i].next = ep->free;
        ep->free = &ep->ops[i];
    }
    *made = ep;
    return 0;
}

int ep_open(struct fid_domain *fid, struct fi_info *info, struct fid_ep **made, void *context)
{
    static struct fi_ops ops = {sizeof(ops), ep_close, ep_bind, ep_control, no_ops, NULL, NULL};
    static struct fi_ops_ep ep_ops = {.size = sizeof(ep_ops), .cancel = ep_cancel};
    static struct fi_ops_cm cm_ops = {.size = sizeof(cm_ops), .getname = ep_getname};
    static struct fi_ops_tagged tagged_ops = {
        .size = sizeof(tagged_ops), .recv = ep_recv, .send = ep_send, .inject = ep_inject};
    static struct fi_ops_rma rma_ops = {
        .size = sizeof(rma_ops), .write = ep_write, .writemsg = ep_writemsg};
    struct domain *domain = container_of(fid, struct domain, fid);
    struct endpoint *ep = NULL;
    if (info->ep_attr->type != FI_EP_RDM)
        return refuse("an endpoint of type %d", (int)info->ep_attr->type);
    if (atomic_fetch_add(&endpoints, 1) >= domain->limits.endpoints) {
        atomic_fetch_sub(&endpoints, 1);
        refuse("more than %u endpoints in a process", domain->limits.endpoints);
        return -FI_ENOSPC;
    }
    int rc = make_endpoint(domain, &ep);
    if (rc != 0) {
        atomic_fetch_sub(&endpoints, 1);
        return rc;
    }
    ep->domain = domain;
    ep->fid.fid = (struct fid){FI_CLASS_EP, context, &ops};
    ep->fid.ops = &ep_ops;
    ep->fid.cm = &cm_ops;
    ep->fid.tagged = &tagged_ops;
    ep->fid.rma = &rma_ops;
    domain->children++;
    *made = &ep->fid;
    return 0;
}

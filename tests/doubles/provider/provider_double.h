/* SPDX-License-Identifier: Apache-2.0 */
/* A double of a libfabric provider, for hardware that is not here: an external provider (libfabric
 * loads it by FI_PROVIDER_PATH) over libfabric's tcp, built on the public interface only. It
 * advertises the limits of the real provider, fails every call that violates them, and reports that
 * on stderr and in the file TEST_DOUBLE_LOG, one line each, starting with "gni (double): refused".
 * It cannot show that the hardware behaves as its documents say.
 *
 * Like the most demanding providers it moves data only while the completion queue is read, is busy
 * at the first contact with a peer and now and then, and writes to every context until the
 * operation has completed. Messages overtake writes. */
#ifndef TWILL_PROVIDER_DOUBLE_H
#define TWILL_PROVIDER_DOUBLE_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How cancelled operations come back (TEST_DOUBLE_CANCEL). In all cases contexts are the provider's
 * until then, or until endpoint and completion queue are closed. */
enum give_back {
    BACK_SOON,
    BACK_LATE,        /* after some time, longer than a caller is willing to wait */
    BACK_TWICE,       /* twice each; so do the completions of sends */
    BACK_AFTER_ERROR, /* after a receive that takes from anyone has failed, and an error whose
                         context is no operation of the caller's */
    BACK_NEVER
};

/* The limits of a provider. */
struct limits {
    const char *name;   /* of the provider */
    const char *domain; /* and of its domain */
    uint64_t caps;
    uint64_t mode; /* bits a caller must offer */
    int mr_mode;   /* registration modes a caller must offer */
    bool local;    /* FI_MR_LOCAL, too, if the caller offers it */
    uint32_t format, protocol;
    size_t address_bytes; /* at least 8 */
    size_t inject, queue, max_message;
    unsigned tag_bits;
    size_t cq_data;
    enum fi_av_type av; /* the only type, or FI_AV_UNSPEC */
    size_t pull_above;  /* longer messages are read from the sender in words of 4 bytes; 0: none */
    unsigned endpoints; /* per process */
    uint32_t newest;    /* version of the interface */
    bool alps;          /* only under aprun */
    bool delivers;      /* a write takes FI_DELIVERY_COMPLETE, else only without it */
    enum give_back back;
};

/* Return the limits of this double, as changed by TEST_DOUBLE_MAX_MESSAGE, TEST_DOUBLE_ADDRESS,
 * TEST_DOUBLE_LOCAL, TEST_DOUBLE_ENDPOINTS and TEST_DOUBLE_CANCEL (late, twice, error, never). */
struct limits double_limits(void);
/* Report a violation. Returns -FI_EINVAL. */
int refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));
int double_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);

struct mr {
    struct fid_mr fid;
    struct mr *next;
    struct domain *domain;
    struct endpoint *bound;
    const unsigned char *start;
    size_t bytes;
    uint64_t access;
    bool enabled;
    unsigned uses;        /* operations in flight in it */
    struct fid_mr *lower; /* if peers may write into it */
};

struct domain {
    struct fid_domain fid;
    struct limits limits;
    struct fi_info *info; /* of the lower provider */
    struct fid_fabric *fabric;
    struct fid_domain *lower;
    uint64_t mode; /* mode bits of the contexts */
    int mr_mode;
    bool serial; /* FI_THREAD_DOMAIN: one thread at a time */
    atomic_bool entered;
    unsigned children;
    uint64_t keys;
    struct mr *mrs;
};

struct av {
    struct fid_av fid;
    struct domain *domain;
    struct fid_av *lower;
    enum fi_av_type type;
    bool *seen; /* by index */
    size_t count;
    unsigned users;
};

/* An error that the caller has not read. */
struct failure {
    struct failure *next;
    struct fi_cq_err_entry entry;
    struct op *op; /* ends when it is read; NULL: none, and the context is the caller's */
    uint64_t due;  /* not before */
};

struct queue {
    struct fid_cq fid;
    struct domain *domain;
    struct fid_cq *lower;
    struct endpoint *endpoint;
    struct endpoint *closed;  /* its operations are the provider's until the queue is closed */
    struct failure *failures; /* in order */
    size_t size;
};

enum op_state { OP_FREE, OP_QUEUED, OP_POSTED };

struct op {
    struct fi_context2 lower; /* first: completions carry its address */
    struct op *next;
    struct endpoint *endpoint;
    enum op_state state;
    bool sends, writes, injected;
    void *context; /* the caller's */
    void *buffer;
    size_t bytes;
    fi_addr_t to; /* lower */
    uint64_t tag, ignore;
    uint64_t at, key; /* of a write, at the lower provider */
    unsigned waits;   /* reads of the queue until a write starts, so that messages overtake it */
    struct mr *mr;
    uint64_t pattern;      /* written to the caller's context */
    uint64_t cancelled_at; /* when it was cancelled; 0: it was not */
    bool spoiled;          /* it was cancelled to fail otherwise */
    unsigned char copy[256];
};

struct op_list {
    struct op *head, *tail;
};

struct endpoint {
    struct fid_ep fid;
    struct domain *domain;
    struct fid_ep *lower;
    struct av *av;
    struct queue *queue;
    struct op *ops;
    size_t op_count, busy;
    struct op *free;
    struct op_list sends, recvs, writes; /* not yet at the lower provider */
    bool enabled, has_failed;
    uint64_t posts, patterns;
    unsigned laters; /* busy answers in a row, without a read of the queue */
};

/* One thread at a time in a domain. */
void enter(struct domain *domain, const char *what);
void leave(struct domain *domain);

/* object.c */
extern struct fi_ops_mr double_mr_ops;
/* Return the registration that covers an operation's memory; NULL, with *rc set if one is
 * required. */
struct mr *mr_find(struct endpoint *ep, const void *start, size_t bytes, void *desc,
                   uint64_t access, int *rc);

/* addresses.c */
int av_open(struct fid_domain *fid, struct fi_av_attr *attr, struct fid_av **av, void *context);
/* Return the lower address. *first: no message was sent there yet. */
int av_resolve(struct av *av, fi_addr_t address, fi_addr_t *lower, bool *first);
int ep_getname(fid_t fid, void *address, size_t *bytes);

/* endpoint.c */
int ep_open(struct fid_domain *fid, struct fi_info *info, struct fid_ep **ep, void *context);
void ep_flush(struct endpoint *ep);
/* Free a closed endpoint, whose caller has left the contexts of its operations as they were. */
void ep_free(struct endpoint *ep);
uint64_t clock_now(void);
/* End an operation. Returns false if its owner must not be notified. */
bool op_end(struct op *op, void **context);
void mr_forget_requested(struct mr *mr);

/* completion_queue.c */
int cq_open(struct fid_domain *fid, struct fi_cq_attr *attr, struct fid_cq **cq, void *context);

int no_bind(struct fid *fid, struct fid *other, uint64_t flags);
int no_control(struct fid *fid, int command, void *argument);
int no_ops(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);

#endif

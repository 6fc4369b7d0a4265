/* SPDX-License-Identifier: Apache-2.0 */
/* A double of a provider of libfabric, for hardware that is not here: an external provider
 * (libfabric loads it by FI_PROVIDER_PATH) over libfabric's own tcp, by the public interface only.
 * It advertises the limits of the provider it stands for, fails every call that breaks them, and
 * says so on stderr and in the file TEST_DOUBLE_LOG, a line each that begins with "gni (double):
 * refused". What it cannot show is that the hardware does as its documents say.
 *
 * Like the most demanding of them, it moves data inside reads of the completion queue only, says
 * "later" at the first contact with a peer and now and then, and writes into every context that it
 * was given until the operation has completed. */
#ifndef TWILL_PROVIDER_DOUBLE_H
#define TWILL_PROVIDER_DOUBLE_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a provider takes. */
struct limits {
    const char *name;   /* of the provider */
    const char *domain; /* and of its domain */
    uint64_t caps;
    uint64_t mode; /* bits a caller must offer */
    int mr_mode;   /* likewise */
    bool local;    /* FI_MR_LOCAL too where it is offered */
    uint32_t format, protocol;
    size_t address_bytes; /* at least 8 */
    size_t inject, queue, max_message;
    unsigned tag_bits;
    size_t cq_data;
    enum fi_av_type av; /* the only type, or FI_AV_UNSPEC */
    size_t pull_above;  /* longer messages are read from the sender by words of 4 bytes; 0: none */
    unsigned endpoints; /* of a process */
    uint32_t newest;    /* version of the interface */
    bool alps;          /* only under aprun */
};

/* The limits of this double, with what the environment changes: TEST_DOUBLE_MAX_MESSAGE,
 * TEST_DOUBLE_ADDRESS, TEST_DOUBLE_LOCAL, TEST_DOUBLE_ENDPOINTS. */
struct limits double_limits(void);
/* Say what was wrong. Returns -FI_EINVAL. */
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
    unsigned uses; /* operations under way in it */
};

struct domain {
    struct fid_domain fid;
    struct limits limits;
    struct fi_info *info; /* of the lower provider */
    struct fid_fabric *fabric;
    struct fid_domain *lower;
    uint64_t mode; /* contexts are of this kind */
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

struct queue {
    struct fid_cq fid;
    struct domain *domain;
    struct fid_cq *lower;
    struct endpoint *endpoint;
    size_t size;
};

enum op_state { OP_FREE, OP_QUEUED, OP_POSTED };

struct op {
    struct fi_context2 lower; /* first: completions name it */
    struct op *next;
    struct endpoint *endpoint;
    enum op_state state;
    bool sends, injected;
    void *context; /* the caller's */
    void *buffer;
    size_t bytes;
    fi_addr_t to; /* lower */
    uint64_t tag, ignore;
    struct mr *mr;
    uint64_t mark;  /* in the caller's context */
    uint64_t asked; /* when it was to be given back; 0: it was not */
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
    struct op_list sends, recvs; /* not yet with the lower provider */
    bool enabled;
    uint64_t posts, marks;
    unsigned laters; /* "later" in a row, without a read of the queue */
};

/* One thread at a time in a domain. */
void enter(struct domain *domain, const char *what);
void leave(struct domain *domain);

/* object.c */
int mr_register(struct fid *fid, const void *start, size_t bytes, uint64_t access, uint64_t offset,
                uint64_t key, uint64_t flags, struct fid_mr **mr, void *context);
extern struct fi_ops_mr double_mr_ops;
/* The registration that covers this memory for an operation; NULL and *rc if there must be one. */
struct mr *mr_find(struct endpoint *ep, const void *start, size_t bytes, void *desc,
                   uint64_t access, int *rc);

/* addresses.c */
int av_open(struct fid_domain *fid, struct fi_av_attr *attr, struct fid_av **av, void *context);
/* The lower address; first: nobody has sent there yet. */
int av_resolve(struct av *av, fi_addr_t address, fi_addr_t *lower, bool *first);
int ep_getname(fid_t fid, void *address, size_t *bytes);

/* endpoint.c */
int ep_open(struct fid_domain *fid, struct fi_info *info, struct fid_ep **ep, void *context);
void ep_flush(struct endpoint *ep);
/* An operation has ended: false if its owner is not to hear of it. */
bool op_end(struct op *op, void **context);
void mr_forget_requested(struct mr *mr);

/* completion_queue.c */
int cq_open(struct fid_domain *fid, struct fi_cq_attr *attr, struct fid_cq **cq, void *context);

int no_bind(struct fid *fid, struct fid *other, uint64_t flags);
int no_control(struct fid *fid, int command, void *argument);
int no_ops(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context);

#endif

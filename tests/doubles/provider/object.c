/* SPDX-License-Identifier: Apache-2.0 */
/* Fabric, domain and registered memory of a double. */
#include "tests/doubles/provider/provider_double.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int no_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
    return refuse("bind of what is not bound here");
}

int no_control(struct fid *fid, int command, void *argument)
{
    return refuse("control %d", command);
}

int no_ops(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
    return -FI_ENOSYS;
}

void enter(struct domain *domain, const char *what)
{
    if (domain->serial && atomic_exchange(&domain->entered, true))
        refuse("%s: two threads at once in a domain of FI_THREAD_DOMAIN", what);
}

void leave(struct domain *domain)
{
    if (domain->serial)
        atomic_store(&domain->entered, false);
}

/* --- memory ---------------------------------------------------------------------------------- */

static int mr_close(struct fid *fid)
{
    struct mr *mr = container_of(fid, struct mr, fid.fid);
    struct domain *domain = mr->domain;
    enter(domain, "fi_close of memory");
    mr_forget_requested(mr);
    if (mr->uses > 0)
        refuse("memory of %zu bytes is given up with %u operations in it", mr->bytes, mr->uses);
    struct mr **at = &domain->mrs;
    while (*at != mr)
        at = &(*at)->next;
    *at = mr->next;
    if (mr->lower != NULL)
        fi_close(&mr->lower->fid);
    domain->children--;
    leave(domain);
    if (mr->uses == 0) /* else they still refer to it */
        free(mr);
    return 0;
}

static int mr_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
    struct mr *mr = container_of(fid, struct mr, fid.fid);
    if ((mr->domain->mr_mode & FI_MR_ENDPOINT) == 0 || other->fclass != FI_CLASS_EP || flags != 0)
        return refuse("fi_mr_bind without FI_MR_ENDPOINT, to no endpoint, or with flags");
    mr->bound = container_of(other, struct endpoint, fid.fid);
    return 0;
}

static int mr_control(struct fid *fid, int command, void *argument)
{
    struct mr *mr = container_of(fid, struct mr, fid.fid);
    if (command != FI_ENABLE || argument != NULL || mr->bound == NULL || mr->enabled)
        return refuse("control %d of memory that is %s", command,
                      mr->bound == NULL ? "not bound" : "bound");
    mr->enabled = true;
    return 0;
}

static int mr_register(struct fid *fid, const void *start, size_t bytes, uint64_t access,
                       uint64_t offset, uint64_t key, uint64_t flags, struct fid_mr **made,
                       void *context)
{
    static struct fi_ops ops = {sizeof(ops), mr_close, mr_bind, mr_control, no_ops, NULL, NULL};
    struct domain *domain = container_of(fid, struct domain, fid.fid);
    uint64_t allowed = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    if (flags != 0 || offset != 0)
        return refuse("fi_mr_reg with flags %#llx, offset %#llx: both must be 0",
                      (unsigned long long)flags, (unsigned long long)offset);
    if (access == 0 || (access & ~allowed) != 0 || start == NULL || bytes == 0)
        return refuse("fi_mr_reg of %zu bytes for %#llx", bytes, (unsigned long long)access);
    struct mr *mr = calloc(1, sizeof(*mr));
    if (mr == NULL)
        return -FI_ENOMEM;
    enter(domain, "fi_mr_reg");
    bool chosen = (domain->mr_mode & FI_MR_PROV_KEY) == 0;
    for (const struct mr *m = domain->mrs; chosen && m != NULL; m = m->next)
        if (m->fid.key == key)
            refuse("fi_mr_reg with the key of other memory, %llu", (unsigned long long)key);
    mr->fid.fid = (struct fid){FI_CLASS_MR, context, &ops};
    mr->fid.mem_desc = mr;
    mr->fid.key = chosen ? key : ++domain->keys << 48 | (uintptr_t)start;
    mr->domain = domain;
    mr->start = start;
    mr->bytes = bytes;
    mr->access = access;
    mr->enabled = (domain->mr_mode & FI_MR_ENDPOINT) == 0;
    if ((access & FI_REMOTE_WRITE) != 0 && fi_mr_reg(domain->lower, start, bytes, FI_REMOTE_WRITE,
                                                     0, mr->fid.key, 0, &mr->lower, NULL) != 0)
        refuse("%zu bytes that the lower provider does not register", bytes);
    mr->next = domain->mrs;
    domain->mrs = mr;
    domain->children++;
    leave(domain);
    *made = &mr->fid;
    return 0;
}

struct fi_ops_mr double_mr_ops = {.size = sizeof(double_mr_ops), .reg = mr_register};

struct mr *mr_find(struct endpoint *ep, const void *start, size_t bytes, void *desc,
                   uint64_t access, int *rc)
{
    const unsigned char *from = start;
    *rc = 0;
    if ((ep->domain->mr_mode & FI_MR_LOCAL) == 0 || bytes == 0)
        return NULL;
    struct mr *mr = ep->domain->mrs;
    while (mr != NULL && mr != desc)
        mr = mr->next;
    if (mr == NULL)
        *rc = refuse("%zu bytes of memory that is not registered", bytes);
    else if (from < mr->start || from + bytes > mr->start + mr->bytes)
        *rc = refuse("%zu bytes with the descriptor of other memory", bytes);
    else if ((mr->access & access) != access)
        *rc = refuse("%zu bytes of memory that was registered for something else", bytes);
    else if (!mr->enabled || (mr->bound != NULL && mr->bound != ep))
        *rc = refuse("%zu bytes of memory that is not enabled for this endpoint", bytes);
    return mr;
}

/* --- domain ----------------------------------------------------------------------------------- */

static int domain_close(struct fid *fid)
{
    struct domain *domain = container_of(fid, struct domain, fid.fid);
    if (domain->children > 0) {
        refuse("fi_close of a domain with %u objects", domain->children);
        return -FI_EBUSY;
    }
    fi_close(&domain->lower->fid);
    fi_close(&domain->fabric->fid);
    fi_freeinfo(domain->info);
    free(domain);
    return 0;
}

/* Libfabric's tcp on the loopback device, or where TEST_DOUBLE_NODE says. */
static int open_lower(struct domain *domain)
{
    const char *node = getenv("TEST_DOUBLE_NODE");
    struct fi_info *hints = fi_allocinfo();
    if (hints == NULL)
        return -FI_ENOMEM;
    hints->caps = FI_TAGGED | FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->addr_format = FI_SOCKADDR_IN;
    hints->ep_attr->type = FI_EP_RDM;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->av_type = FI_AV_TABLE;
    hints->fabric_attr->prov_name = strdup("tcp");
    int rc = fi_getinfo(FI_VERSION(1, 14), node == NULL ? "127.0.0.1" : node, NULL, FI_SOURCE,
                        hints, &domain->info);
    fi_freeinfo(hints);
    if (rc == 0)
        rc = fi_fabric(domain->info->fabric_attr, &domain->fabric, NULL);
    if (rc == 0)
        rc = fi_domain(domain->fabric, domain->info, &domain->lower, NULL);
    return rc;
}

static int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **made,
                       void *context)
{
    static struct fi_ops ops = {sizeof(ops), domain_close, no_bind, no_control, no_ops, NULL, NULL};
    static struct fi_ops_domain domain_ops = {
        .size = sizeof(domain_ops), .av_open = av_open, .cq_open = cq_open, .endpoint = ep_open};
    struct limits limits = double_limits();
    if ((limits.mr_mode & ~info->domain_attr->mr_mode) != 0 || (limits.mode & ~info->mode) != 0 ||
        info->addr_format != limits.format)
        return refuse("fi_domain with another mr_mode or mode than fi_getinfo gave");
    struct domain *domain = calloc(1, sizeof(*domain));
    if (domain == NULL)
        return -FI_ENOMEM;
    int rc = open_lower(domain);
    if (rc != 0) {
        free(domain);
        return rc;
    }
    domain->limits = limits;
    domain->mode = info->mode;
    domain->mr_mode = info->domain_attr->mr_mode;
    domain->serial = info->domain_attr->threading == FI_THREAD_DOMAIN;
    domain->fid.fid = (struct fid){FI_CLASS_DOMAIN, context, &ops};
    domain->fid.ops = &domain_ops;
    domain->fid.mr = &double_mr_ops;
    *made = &domain->fid;
    return 0;
}

/* --- fabric ----------------------------------------------------------------------------------- */

static int fabric_close(struct fid *fid)
{
    free(container_of(fid, struct fid_fabric, fid));
    return 0;
}

int double_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context)
{
    static struct fi_ops ops = {sizeof(ops), fabric_close, no_bind, no_control, no_ops, NULL, NULL};
    static struct fi_ops_fabric fabric_ops = {.size = sizeof(fabric_ops), .domain = domain_open};
    *fabric = calloc(1, sizeof(**fabric));
    if (*fabric == NULL)
        return -FI_ENOMEM;
    (*fabric)->fid = (struct fid){FI_CLASS_FABRIC, context, &ops};
    (*fabric)->ops = &fabric_ops;
    return 0;
}

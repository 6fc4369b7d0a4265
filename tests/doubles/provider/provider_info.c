/* SPDX-License-Identifier: Apache-2.0 */
/* The capabilities that the double advertises to its callers, and its entry point. Compiled once
 * per DOUBLE. */
#include "tests/doubles/provider/provider_double.h"

#include <fcntl.h>
#include <rdma/providers/fi_prov.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMON (FI_TAGGED | FI_MSG | FI_SEND | FI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM)
#define RMA    (FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

/* From the providers' sources and manual pages; addresses have their length, not their content. */
static const struct limits table[] = {
    /* libfabric 1.20.2, prov/gni: the last version that has it. */
    {.name = "gni",
     .domain = "/sys/class/gni/kgni0",
     .caps = COMMON | RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE | FI_FENCE,
     .mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
     .local = true,
     .format = FI_ADDR_GNI,
     .protocol = FI_PROTO_GNI,
     .address_bytes = 48,
     .inject = 64,
     .queue = 500,
     .max_message = 0xffffffffu,
     .tag_bits = 64,
     .cq_data = 8,
     .pull_above = 16384,
     .endpoints = 4,
     .newest = FI_VERSION(1, 20),
     .alps = true},
    /* libfabric 2.2.0, prov/cxi. */
    {.name = "cxi",
     .domain = "cxi0",
     .caps = COMMON | RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE | FI_FENCE,
     .mr_mode = FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT,
     .format = FI_ADDR_CXI,
     .protocol = FI_PROTO_CXI,
     .address_bytes = 8,
     .inject = 192,
     .queue = 1024,
     .max_message = 0xffffffffu,
     .tag_bits = 48,
     .cq_data = 8,
     .endpoints = 16,
     .newest = FI_VERSION(1, 99),
     .delivers = true},
    /* libfabric 1.17, prov/psm2, with tags that leave room for data. */
    {.name = "psm2",
     .domain = "hfi1_0",
     .caps = COMMON | RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE,
     .mode = FI_CONTEXT,
     .format = FI_ADDR_PSMX2,
     .protocol = FI_PROTO_PSMX2,
     .address_bytes = 16,
     .inject = 64,
     .queue = 256,
     .max_message = 0xfffff000u,
     .tag_bits = 60,
     .cq_data = 4,
     .endpoints = 1,
     .newest = FI_VERSION(1, 99)},
    /* libfabric 1.17, prov/opx. */
    {.name = "opx",
     .domain = "hfi1_0",
     .caps = COMMON | RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE,
     .mode = FI_CONTEXT2 | FI_ASYNC_IOV,
     .format = FI_ADDR_OPX,
     .protocol = FI_PROTO_OPX,
     .address_bytes = 8,
     .inject = 16,
     .queue = 256,
     .max_message = SIZE_MAX,
     .tag_bits = 64,
     .cq_data = 4,
     .av = FI_AV_MAP,
     .endpoints = 1,
     .newest = FI_VERSION(1, 99)},
    /* libfabric 1.17, prov/efa. */
    {.name = "efa",
     .domain = "rdmap0s6-rdm",
     .caps = COMMON | RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE,
     .mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
     .local = true,
     .format = FI_ADDR_EFA,
     .protocol = FI_PROTO_EFA,
     .address_bytes = 32,
     .inject = 0,
     .queue = 256,
     .max_message = SIZE_MAX,
     .tag_bits = 64,
     .cq_data = 4,
     .endpoints = 16,
     .newest = FI_VERSION(1, 99)},
};

static size_t setting(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL || text[0] == '\0' ? otherwise : strtoull(text, NULL, 0);
}

static enum give_back back_setting(void)
{
    static const char *const names[] = {[BACK_LATE] = "late",
                                        [BACK_TWICE] = "twice",
                                        [BACK_AFTER_ERROR] = "error",
                                        [BACK_NEVER] = "never"};
    const char *text = getenv("TEST_DOUBLE_CANCEL");
    for (size_t i = BACK_LATE; text != NULL && i <= BACK_NEVER; i++)
        if (strcmp(text, names[i]) == 0)
            return (enum give_back)i;
    return BACK_SOON;
}

struct limits double_limits(void)
{
    size_t i = 0;
    while (strcmp(table[i].name, DOUBLE) != 0)
        i++;
    struct limits limits = table[i];
    limits.max_message = setting("TEST_DOUBLE_MAX_MESSAGE", limits.max_message);
    limits.address_bytes = setting("TEST_DOUBLE_ADDRESS", limits.address_bytes);
    limits.local = setting("TEST_DOUBLE_LOCAL", limits.local) != 0;
    limits.endpoints = (unsigned)setting("TEST_DOUBLE_ENDPOINTS", limits.endpoints);
    limits.back = back_setting();
    return limits;
}

int refuse(const char *format, ...)
{
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    int used = snprintf(line, sizeof(line), "%s (double): refused: ", DOUBLE);
    vsnprintf(line + used, sizeof(line) - (size_t)used - 1, format, arguments);
    va_end(arguments);
    strcat(line, "\n");
    const char *path = getenv("TEST_DOUBLE_LOG");
    int file = path == NULL ? -1 : open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    for (int fd = 2; fd >= 0; fd = fd == 2 ? file : -1)
        if (write(fd, line, strlen(line)) < 0)
            break;
    if (file >= 0)
        close(file);
    return -FI_EINVAL;
}

static bool suits_domain(const struct limits *l, const struct fi_domain_attr *hint)
{
    int offered = hint->mr_mode == FI_MR_BASIC ? FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY
                                               : hint->mr_mode;
    return (l->mr_mode & ~offered) == 0 && hint->cq_data_size <= l->cq_data &&
           (hint->name == NULL || strcmp(hint->name, l->domain) == 0) &&
           (hint->av_type == FI_AV_UNSPEC || l->av == FI_AV_UNSPEC || hint->av_type == l->av);
}

/* Return whether the provider would answer these hints. It offers only order of sends after sends;
 * a caller that needs more order gets nothing. */
static bool limits_suit(const struct limits *l, const struct fi_info *hints)
{
    if (hints == NULL)
        return true;
    const struct fi_tx_attr *tx = hints->tx_attr;
    const struct fi_rx_attr *rx = hints->rx_attr;
    const struct fi_ep_attr *ep = hints->ep_attr;
    if ((hints->caps & ~l->caps) != 0 || (l->mode & ~hints->mode) != 0 ||
        (hints->addr_format != FI_FORMAT_UNSPEC && hints->addr_format != l->format))
        return false;
    if (hints->domain_attr != NULL && !suits_domain(l, hints->domain_attr))
        return false;
    if (hints->fabric_attr != NULL && hints->fabric_attr->prov_name != NULL &&
        strcmp(hints->fabric_attr->prov_name, l->name) != 0)
        return false;
    if (tx != NULL && ((tx->msg_order & ~FI_ORDER_SAS) != 0 || tx->inject_size > l->inject ||
                       tx->size > l->queue))
        return false;
    if (rx != NULL && ((rx->msg_order & ~FI_ORDER_SAS) != 0 || rx->size > l->queue))
        return false;
    return ep == NULL || ((ep->type == FI_EP_UNSPEC || ep->type == FI_EP_RDM) &&
                          ep->max_msg_size <= l->max_message && ep->tx_ctx_cnt <= 1);
}

static void fill_domain(struct fi_domain_attr *d, const struct limits *l,
                        const struct fi_domain_attr *hint)
{
    d->name = strdup(l->domain);
    d->threading =
        hint == NULL || hint->threading != FI_THREAD_DOMAIN ? FI_THREAD_SAFE : FI_THREAD_DOMAIN;
    d->control_progress = d->data_progress = FI_PROGRESS_MANUAL;
    d->resource_mgmt = FI_RM_ENABLED;
    d->av_type = l->av;
    d->mr_mode = l->mr_mode;
    if (l->local && hint != NULL)
        d->mr_mode |= hint->mr_mode & FI_MR_LOCAL;
    d->mr_key_size = 8;
    d->cq_data_size = l->cq_data;
    d->cq_cnt = d->ep_cnt = d->tx_ctx_cnt = d->rx_ctx_cnt = l->endpoints;
    d->max_ep_tx_ctx = d->max_ep_rx_ctx = 1;
    d->mr_iov_limit = 1;
    d->mr_cnt = 4096;
}

static void fill_info(struct fi_info *info, const struct limits *l, const struct fi_info *hints)
{
    info->caps = l->caps;
    info->mode = l->mode;
    /* gni requires no mode and returns whatever it was offered. */
    if (l->mode == 0 && hints != NULL)
        info->mode = hints->mode & (FI_CONTEXT | FI_CONTEXT2);
    info->addr_format = l->format;
    info->tx_attr->caps = info->rx_attr->caps = l->caps;
    info->tx_attr->mode = info->rx_attr->mode = info->mode;
    info->tx_attr->msg_order = info->rx_attr->msg_order = FI_ORDER_SAS;
    info->tx_attr->inject_size = l->inject;
    info->tx_attr->size = info->rx_attr->size = l->queue;
    info->tx_attr->iov_limit = info->rx_attr->iov_limit = 1;
    info->tx_attr->rma_iov_limit = 1;
    info->ep_attr->type = FI_EP_RDM;
    info->ep_attr->protocol = l->protocol;
    info->ep_attr->protocol_version = 1;
    info->ep_attr->max_msg_size = l->max_message;
    info->ep_attr->mem_tag_format = 0xaaaaaaaaaaaaaaaaull >> (64 - l->tag_bits);
    info->ep_attr->tx_ctx_cnt = info->ep_attr->rx_ctx_cnt = 1;
    fill_domain(info->domain_attr, l, hints == NULL ? NULL : hints->domain_attr);
    info->fabric_attr->name = strdup(l->name);
    info->fabric_attr->prov_version = FI_VERSION(200, 0);
}

static int double_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                          const struct fi_info *hints, struct fi_info **info)
{
    struct limits limits = double_limits();
    *info = NULL;
    /* Without aprun there are no credentials for the network. */
    const char *place = getenv("ALPS_APP_PE");
    if ((limits.alps && (place == NULL || place[0] == '\0')) || version > limits.newest ||
        !limits_suit(&limits, hints))
        return -FI_ENODATA;
    *info = fi_allocinfo();
    if (*info == NULL)
        return -FI_ENOMEM;
    fill_info(*info, &limits, hints);
    return 0;
}

static void double_cleanup(void)
{
}

__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void);

/* A version above that of a provider of this name built into libfabric. */
struct fi_provider *fi_prov_ini(void)
{
    static struct fi_provider provider = {
        .version = FI_VERSION(200, 0),
        .fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
        .name = DOUBLE,
        .getinfo = double_getinfo,
        .fabric = double_fabric,
        .cleanup = double_cleanup,
    };
    return &provider;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint and what it stands on; memory registration. */
#include "fabric/ofi/ofi.h"

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OR_FAIL(what, call)                                                                        \
    do {                                                                                           \
        int ofi_rc_ = (int)(call);                                                                 \
        if (ofi_rc_ != 0)                                                                          \
            return TWILL_FAIL(error, TWILL_ERR_FABRIC, "libfabric %s, domain %s: %s: %s",          \
                              t->info->fabric_attr->prov_name, t->info->domain_attr->name, (what), \
                              fi_strerror(abs(ofi_rc_)));                                          \
    } while (0)

/* Tags are packed into the low bits; the highest bit set in the format bounds what is usable. */
static twill_status check_tag(const struct twill_ofi *t, struct twill_error *error)
{
    uint64_t format = t->info->ep_attr->mem_tag_format;
    int usable = format == 0 ? 64 : 64 - __builtin_clzll(format);
    if (usable < TWILL_OFI_TAG_BITS)
        return TWILL_FAIL(error, TWILL_ERR_FABRIC,
                          "libfabric %s has tags of %d bits; %d are needed",
                          t->info->fabric_attr->prov_name, usable, TWILL_OFI_TAG_BITS);
    return TWILL_OK;
}

static twill_status open_av(struct twill_ofi *t, struct twill_error *error)
{
    static const enum fi_av_type types[] = {FI_AV_UNSPEC, FI_AV_TABLE, FI_AV_MAP};
    struct fi_av_attr attr = {.count = t->size};
    int rc = -1;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(types) && rc != 0; i++) {
        attr.type = i == 0 ? t->info->domain_attr->av_type : types[i];
        rc = fi_av_open(t->domain, &attr, &t->av, NULL);
    }
    OR_FAIL("fi_av_open", rc);
    return TWILL_OK;
}

static size_t queue_bytes(const struct fi_info *info)
{
    size_t wanted = twill_min(info->tx_attr->size, 16384) + twill_min(info->rx_attr->size, 16384);
    return twill_max(wanted, 4096);
}

/* One block for all send buffers and control receives, registered once. */
static twill_status open_memory(struct twill_ofi *t, struct twill_error *error)
{
    size_t stride = twill_round_up(TWILL_OFI_BUFFER_BYTES, TWILL_CACHE_LINE);
    size_t bytes = TWILL_OFI_BUFFERS * stride + (size_t)TWILL_OFI_CONTROLS * TWILL_CACHE_LINE;
    t->memory = aligned_alloc(4096, twill_round_up(bytes, 4096));
    if (t->memory == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory for %zu bytes of buffers",
                          bytes);
    for (uint32_t i = 0; i < TWILL_OFI_BUFFERS; i++) {
        t->sends[i].kind = TWILL_OFI_OP_SEND_BUFFER;
        t->sends[i].buffer = t->memory + i * stride;
        t->sends[i].next = t->free_sends;
        t->free_sends = &t->sends[i];
    }
    for (uint32_t i = 0; i < TWILL_OFI_CONTROLS; i++) {
        t->controls[i].kind = TWILL_OFI_OP_RECV_CONTROL;
        t->controls[i].buffer =
            t->memory + TWILL_OFI_BUFFERS * stride + (size_t)i * TWILL_CACHE_LINE;
    }
    t->controls_idle = TWILL_OFI_CONTROLS;
    return twill_ofi_register(t, t->memory, bytes, &t->mr, error);
}

static twill_status open_fids(struct twill_ofi *t, struct twill_error *error)
{
    struct fi_cq_attr cq = {
        .size = queue_bytes(t->info), .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_NONE};
    OR_FAIL("fi_fabric", fi_fabric(t->info->fabric_attr, &t->fabric, NULL));
    OR_FAIL("fi_domain", fi_domain(t->fabric, t->info, &t->domain, NULL));
    TWILL_TRY(error, open_av(t, error));
    OR_FAIL("fi_cq_open", fi_cq_open(t->domain, &cq, &t->cq, NULL));
    OR_FAIL("fi_endpoint", fi_endpoint(t->domain, t->info, &t->ep, NULL));
    OR_FAIL("fi_ep_bind to the address vector", fi_ep_bind(t->ep, &t->av->fid, 0));
    OR_FAIL("fi_ep_bind to the completion queue",
            fi_ep_bind(t->ep, &t->cq->fid, FI_TRANSMIT | FI_RECV));
    OR_FAIL("fi_enable", fi_enable(t->ep));
    return TWILL_OK;
}

/* What this rank can do; max_message is agreed with the other ranks later. */
static twill_status set_limits(struct twill_ofi *t, struct twill_error *error)
{
    const char *provider = t->info->fabric_attr->prov_name;
    t->max_message = t->info->ep_attr->max_msg_size;
    if (t->options.max_message != 0)
        t->max_message = twill_min(t->max_message, t->options.max_message);
    t->max_message = twill_min(t->max_message, TWILL_OFI_SEGMENT) & ~(size_t)(TWILL_CACHE_LINE - 1);
    if (t->max_message < 2 * sizeof(struct twill_ofi_header))
        return TWILL_FAIL(error, TWILL_ERR_FABRIC,
                          "libfabric %s sends messages of at most %zu bytes: too small", provider,
                          t->info->ep_attr->max_msg_size);
    t->inject = t->options.no_inject ? 0 : t->info->tx_attr->inject_size;
    /* libfabric 1.17's net (1.18 renamed it tcp and mended it) stops reading from a peer at the
     * fifth unexpected message, or at one of more than 128 bytes: none may be. */
    t->standing = strcmp(provider, "net") == 0;
    t->credits = t->standing ? TWILL_OFI_HEADERS : TWILL_OFI_CREDITS;
    return TWILL_OK;
}

twill_status twill_ofi_endpoint_open(struct twill_ofi *t, struct twill_error *error)
{
    TWILL_TRY(error, twill_ofi_choose(&t->info, t->params, t->why, sizeof(t->why), error));
    TWILL_TRY(error, check_tag(t, error));
    t->registers =
        t->options.force_registration || (t->info->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
    TWILL_TRY(error, set_limits(t, error));
    TWILL_TRY(error, open_fids(t, error));
    TWILL_TRY(error, open_memory(t, error));
    return twill_ofi_controls_post(t, error);
}

/* Registrations bound to the endpoint go before it; all others after it, when nothing can touch the
 * memory any more. */
void twill_ofi_endpoint_close(struct twill_ofi *t)
{
    bool bound = t->info != NULL && (t->info->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0;
    if (bound)
        twill_ofi_unregister_all(t);
    if (t->ep != NULL && fi_close(&t->ep->fid) == 0)
        t->ep = NULL;
    if (!bound)
        twill_ofi_unregister_all(t);
}

/* Where the provider refuses to close the endpoint, it may still write: its memory is kept. */
bool twill_ofi_endpoint_free(struct twill_ofi *t)
{
    twill_ofi_endpoint_close(t);
    if (t->ep != NULL)
        return false;
    if (t->cq != NULL)
        fi_close(&t->cq->fid);
    if (t->av != NULL)
        fi_close(&t->av->fid);
    if (t->domain != NULL)
        fi_close(&t->domain->fid);
    if (t->fabric != NULL)
        fi_close(&t->fabric->fid);
    fi_freeinfo(t->info);
    free(t->memory);
    return true;
}

twill_status twill_ofi_register(struct twill_ofi *t, const void *start, size_t bytes,
                                struct fid_mr **mr, struct twill_error *error)
{
    *mr = NULL;
    if (!t->registers || bytes == 0)
        return TWILL_OK;
    uint64_t mode = (uint64_t)t->info->domain_attr->mr_mode;
    uint64_t key = (mode & FI_MR_PROV_KEY) != 0 ? 0 : ++t->next_key;
    int rc = fi_mr_reg(t->domain, start, bytes, FI_SEND | FI_RECV, 0, key, 0, mr, NULL);
    if (rc == 0 && (mode & FI_MR_ENDPOINT) != 0) {
        rc = fi_mr_bind(*mr, &t->ep->fid, 0);
        if (rc == 0)
            rc = fi_mr_enable(*mr);
    }
    if (rc == 0)
        return TWILL_OK;
    twill_ofi_unregister(mr);
    return TWILL_FAIL(error, TWILL_ERR_FABRIC, "libfabric %s: fi_mr_reg of %zu bytes: %s",
                      t->info->fabric_attr->prov_name, bytes, fi_strerror(abs(rc)));
}

void twill_ofi_unregister(struct fid_mr **mr)
{
    if (*mr != NULL)
        fi_close(&(*mr)->fid);
    *mr = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of a double: of the length the real provider's have, with tcp's address inside. */
#include "tests/doubles/provider/provider_double.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define CHECK_VALUE 0x7477u
#define FIRST       0x7f5500000000ull /* addresses of a FI_AV_MAP look like pointers */

/* Network address, port and a check value: 8 bytes; the rest is checked, too. */
static void pack_address(const struct sockaddr_in *address, unsigned char *packed, size_t bytes)
{
    uint16_t check = CHECK_VALUE;
    memcpy(packed, &address->sin_addr, 4);
    memcpy(packed + 4, &address->sin_port, 2);
    memcpy(packed + 6, &check, 2);
    for (size_t i = 8; i < bytes; i++)
        packed[i] = (unsigned char)(i * 7 + packed[5]);
}

static bool unpack_address(const unsigned char *packed, size_t bytes, struct sockaddr_in *address)
{
    unsigned char again[1024];
    *address = (struct sockaddr_in){.sin_family = AF_INET};
    memcpy(&address->sin_addr, packed, 4);
    memcpy(&address->sin_port, packed + 4, 2);
    pack_address(address, again, bytes);
    return memcmp(again, packed, bytes) == 0;
}

int ep_getname(fid_t fid, void *address, size_t *bytes)
{
    struct endpoint *ep = container_of(fid, struct endpoint, fid.fid);
    struct sockaddr_in lower;
    size_t length = sizeof(lower), capacity = *bytes;
    unsigned char packed[1024];
    if (!ep->enabled)
        return refuse("fi_getname of an endpoint that is not enabled");
    int rc = fi_getname(&ep->lower->fid, &lower, &length);
    if (rc != 0)
        return rc;
    *bytes = ep->domain->limits.address_bytes;
    pack_address(&lower, packed, *bytes);
    memcpy(address, packed, capacity < *bytes ? capacity : *bytes);
    return capacity < *bytes ? -FI_ETOOSMALL : 0;
}

static int insert_one(struct av *av, const unsigned char *address, fi_addr_t *made)
{
    struct sockaddr_in lower;
    fi_addr_t index;
    if (!unpack_address(address, av->domain->limits.address_bytes, &lower))
        return refuse("fi_av_insert of what is no address");
    int rc = fi_av_insert(av->lower, &lower, 1, &index, 0, NULL);
    if (rc != 1)
        return rc < 0 ? rc : -FI_EINVAL;
    if (index >= av->count) {
        size_t count = 2 * (size_t)index + 16;
        bool *seen = realloc(av->seen, count * sizeof(*seen));
        if (seen == NULL)
            return -FI_ENOMEM;
        memset(seen + av->count, 0, (count - av->count) * sizeof(*seen));
        av->seen = seen;
        av->count = count;
    }
    if (made != NULL)
        *made = av->type == FI_AV_MAP ? FIRST + 64 * index : index;
    return 0;
}

static int av_insert(struct fid_av *fid, const void *addresses, size_t count, fi_addr_t *made,
                     uint64_t flags, void *context)
{
    struct av *av = container_of(fid, struct av, fid);
    int inserted = 0;
    enter(av->domain, "fi_av_insert");
    for (size_t i = 0; i < count; i++) {
        const unsigned char *address = addresses;
        int rc = insert_one(av, address + i * av->domain->limits.address_bytes,
                            made == NULL ? NULL : &made[i]);
        inserted += rc == 0 ? 1 : 0;
        if (rc != 0 && made != NULL)
            made[i] = FI_ADDR_NOTAVAIL;
    }
    leave(av->domain);
    return inserted;
}

int av_resolve(struct av *av, fi_addr_t address, fi_addr_t *lower, bool *first)
{
    fi_addr_t index = av->type == FI_AV_MAP ? (address - FIRST) / 64 : address;
    if ((av->type == FI_AV_MAP && (address < FIRST || address % 64 != 0)) || index >= av->count)
        return refuse("a message to address %#llx, which fi_av_insert did not give",
                      (unsigned long long)address);
    *first = !av->seen[index];
    av->seen[index] = true;
    *lower = index;
    return 0;
}

static int av_close(struct fid *fid)
{
    struct av *av = container_of(fid, struct av, fid.fid);
    if (av->users > 0) {
        refuse("fi_close of an address vector that an endpoint uses");
        return -FI_EBUSY;
    }
    fi_close(&av->lower->fid);
    av->domain->children--;
    free(av->seen);
    free(av);
    return 0;
}

int av_open(struct fid_domain *fid, struct fi_av_attr *attr, struct fid_av **made, void *context)
{
    static struct fi_ops ops = {sizeof(ops), av_close, no_bind, no_control, no_ops, NULL, NULL};
    static struct fi_ops_av av_ops = {.size = sizeof(av_ops), .insert = av_insert};
    struct domain *domain = container_of(fid, struct domain, fid);
    enum fi_av_type only = domain->limits.av;
    if (only != FI_AV_UNSPEC && attr->type != FI_AV_UNSPEC && attr->type != only)
        return -FI_EINVAL;
    struct av *av = calloc(1, sizeof(*av));
    if (av == NULL)
        return -FI_ENOMEM;
    struct fi_av_attr lower = {.type = FI_AV_TABLE, .count = attr->count};
    int rc = fi_av_open(domain->lower, &lower, &av->lower, NULL);
    if (rc != 0) {
        free(av);
        return rc;
    }
    av->type = only != FI_AV_UNSPEC ? only : attr->type == FI_AV_UNSPEC ? FI_AV_TABLE : attr->type;
    av->domain = domain;
    av->fid.fid = (struct fid){FI_CLASS_AV, context, &ops};
    av->fid.ops = &av_ops;
    domain->children++;
    attr->type = av->type;
    *made = &av->fid;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks that have shown the key say of their endpoints of libfabric in all-gathers: provider,
 * limits and addresses. The provider is in memory; the first byte selects the rank, the addresses'
 * format and length, and whether messages need all of them. */
#include "fabric/ofi/ofi.h"
#include "tests/fuzz/fuzz_exchange.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

static struct fuzz_exchange exchange;
static size_t address_bytes;

static int name_endpoint(fid_t fid, void *address, size_t *bytes)
{
    size_t capacity = *bytes;
    *bytes = address_bytes;
    if (capacity < address_bytes)
        return -FI_ETOOSMALL;
    memset(address, '1', address_bytes);
    return 0;
}

/* As providers do: by the format they read a structure, or a text up to its end. */
static int insert(struct fid_av *av, const void *address, size_t count, fi_addr_t *at,
                  uint64_t flags, void *context)
{
    const unsigned char *byte = address;
    unsigned sum = 0;
    for (size_t i = 0; i < address_bytes; i++)
        sum += byte[i];
    *at = sum;
    return byte[0] == 0xee ? -FI_EINVAL : (int)count;
}

static const char *explain(int code)
{
    return "so";
}

static struct twill_ofi_endpoint make_endpoint(uint8_t kind)
{
    static char provider[] = "fuzz", domain[] = "memory";
    static struct fi_fabric_attr fabric = {.prov_name = provider};
    static struct fi_domain_attr domain_attr = {.name = domain};
    static struct fi_ep_attr ep_attr = {.protocol = 7};
    static struct fi_info info = {
        .fabric_attr = &fabric, .domain_attr = &domain_attr, .ep_attr = &ep_attr};
    static struct fi_ops_cm cm_ops = {.getname = name_endpoint};
    static struct fid_ep ep = {.cm = &cm_ops};
    static struct fi_ops_av av_ops = {.insert = insert};
    static struct fid_av av = {.ops = &av_ops};
    static const uint32_t formats[] = {FI_ADDR_PSMX2, FI_SOCKADDR_IN6, FI_ADDR_STR, FI_SOCKADDR_IN};
    static const size_t lengths[] = {16, 28, 128, 300};
    info.addr_format = formats[kind % 4];
    address_bytes = lengths[kind % 4 == 1 ? 1 : kind / 4 % 4];
    return (struct twill_ofi_endpoint){
        .rank = (uint32_t)exchange.base.rank,
        .size = FUZZ_RANKS,
        .params = {.oob = &exchange.base, .comm = 1},
        .library = {.explain = explain},
        .fi = {.info = &info, .av = &av, .ep = &ep},
        .limits = {.max_message = 4096},
        .addresses = {.contact = calloc(FUZZ_RANKS, sizeof(struct twill_ofi_contact))},
        .matching = {.tag_bits = TWILL_OFI_TAG_BITS, .directed = kind / 16 % 2 == 0}};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct twill_error error = {0};
    if (size == 0)
        return 0;
    fuzz_exchange_begin(&exchange, data[0] % FUZZ_RANKS, data + 1, size - 1);
    struct twill_ofi_endpoint endpoint = make_endpoint(data[0] / FUZZ_RANKS);
    twill_status status = twill_ofi_agree(&endpoint, TWILL_OK, &error);
    fuzz_must(status <= 0 && status >= TWILL_STATUS_LOWEST);
    fuzz_must(status == TWILL_OK || error.message[0] != '\0');
    if (status == TWILL_OK)
        fuzz_must(endpoint.limits.eager + sizeof(struct twill_ofi_header) <=
                  endpoint.limits.max_message);
    free(endpoint.addresses.bytes);
    free(endpoint.addresses.length);
    free(endpoint.addresses.contact);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes libfabric's objects below the shared endpoint. */
#include "fabric/ofi/ofi.h"
#include "lib/base/rest.h"
#include "lib/base/times.h"

#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define NEEDED_FILES 8 /* most files that a provider opens for an endpoint */

/* Return a text about a shortage of descriptors, which providers do not report, or "" if none. */
static const char *shortage(void)
{
    int fds[NEEDED_FILES];
    const char *text = "";
    size_t n = 0;
    while (n < NEEDED_FILES && (fds[n] = epoll_create1(EPOLL_CLOEXEC)) >= 0)
        n++;
    if (n < NEEDED_FILES)
        text = twill_shortage_text();
    while (n > 0)
        close(fds[--n]);
    return text;
}

#define OR_FAIL(what, call)                                                                        \
    do {                                                                                           \
        int ofi_rc_ = (int)(call);                                                                 \
        if (ofi_rc_ != 0)                                                                          \
            return TWILL_FAIL(error, TWILL_ERR_FABRIC, "libfabric %s, domain %s: %s: %s%s",        \
                              endpoint->fi.info->fabric_attr->prov_name,                           \
                              endpoint->fi.info->domain_attr->name, (what),                        \
                              endpoint->library.explain(abs(ofi_rc_)), shortage());                \
    } while (0)

/* Set matching.tag_bits, the bits of a tag that are used, to TWILL_OFI_LONG_TAG if the provider has
 * them, else to TWILL_OFI_TAG_BITS. Reduce matching.seal, a part of the job's secret, to bits
 * TWILL_OFI_TAG_BITS .. tag_bits-1. Returns TWILL_ERR_FABRIC if the provider has too few bits. */
static twill_status check_tag(struct twill_ofi_endpoint *endpoint, struct twill_error *error)
{
    uint64_t format = endpoint->fi.info->ep_attr->mem_tag_format;
    int usable = format == 0 ? 64 : 64 - __builtin_clzll(format);
    if (usable < TWILL_OFI_TAG_BITS)
        return TWILL_FAIL(error, TWILL_ERR_FABRIC,
                          "libfabric %s has tags of %d bits; %d are needed",
                          endpoint->fi.info->fabric_attr->prov_name, usable, TWILL_OFI_TAG_BITS);
    endpoint->matching.tag_bits =
        usable < TWILL_OFI_LONG_TAG ? TWILL_OFI_TAG_BITS : TWILL_OFI_LONG_TAG;
    endpoint->matching.seal &=
        ((uint64_t)1 << endpoint->matching.tag_bits) - ((uint64_t)1 << TWILL_OFI_TAG_BITS);
    return TWILL_OK;
}

/* Replace fi.info by one for the same address with the capabilities `caps` and sends in the order
 * `order`. Returns whether the provider has it. */
static bool ask_again(struct twill_ofi_endpoint *endpoint, uint64_t caps, uint64_t order)
{
    struct fi_info *had = endpoint->fi.info, *found = NULL;
    struct fi_info *hints = endpoint->library.dupinfo(had);
    if (hints == NULL)
        return false;
    hints->tx_attr->caps = hints->rx_attr->caps = 0;
    hints->caps = caps;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = order;
    bool same =
        twill_ofi_library_getinfo(&endpoint->library, had->fabric_attr->api_version, hints,
                                  &found) == 0 &&
        found != NULL && found->src_addrlen == had->src_addrlen &&
        (had->src_addrlen == 0 || memcmp(found->src_addr, had->src_addr, had->src_addrlen) == 0);
    if (same)
        endpoint->fi.info = found;
    endpoint->library.freeinfo(hints);
    endpoint->library.freeinfo(same ? had : found);
    return same;
}

/* If addresses are socket addresses, to which any process can send, and the provider can let
 * receives name their sender's, replace fi.info by one that does, and set matching.directed. */
static void enable_directed_recv(struct twill_ofi_endpoint *endpoint)
{
    uint32_t format = endpoint->fi.info->addr_format;
    endpoint->matching.directed =
        (format == FI_SOCKADDR || format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6) &&
        ask_again(endpoint, FI_TAGGED | FI_DIRECTED_RECV, FI_ORDER_SAS);
}

/* Open fi.av, an address vector of the type that the provider prefers or else of any other. */
static twill_status open_av(struct twill_ofi_endpoint *endpoint, struct twill_error *error)
{
    static const enum fi_av_type types[] = {FI_AV_UNSPEC, FI_AV_TABLE, FI_AV_MAP};
    struct fi_av_attr attr = {.count = endpoint->size};
    int rc = -1;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(types) && rc != 0; i++) {
        attr.type = i == 0 ? endpoint->fi.info->domain_attr->av_type : types[i];
        rc = fi_av_open(endpoint->fi.domain, &attr, &endpoint->fi.av, NULL);
    }
    OR_FAIL("fi_av_open", rc);
    return TWILL_OK;
}

/* Return how many entries the completion queue needs for all operations that can be posted, from
 * 4096 to 32768. */
static size_t queue_entries(const struct fi_info *info)
{
    size_t needed = twill_min(info->tx_attr->size, 16384) + twill_min(info->rx_attr->size, 16384);
    return twill_max(needed, 4096);
}

/* Allocate and register send buffers and those of control receives as one region, or fail. */
static twill_status open_buffers(struct twill_ofi_endpoint *endpoint, struct twill_error *error)
{
    size_t stride = twill_round_up(TWILL_OFI_BUFFER_BYTES, TWILL_CACHE_LINE);
    size_t bytes = TWILL_OFI_BUFFERS * stride + (size_t)TWILL_OFI_CONTROLS * TWILL_CACHE_LINE;
    endpoint->buffers.memory = aligned_alloc(4096, twill_round_up(bytes, 4096));
    if (endpoint->buffers.memory == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory for %zu bytes of buffers",
                          bytes);
    for (uint32_t i = 0; i < TWILL_OFI_BUFFERS; i++) {
        endpoint->buffers.sends[i].kind = TWILL_OFI_OP_SEND_BUFFER;
        endpoint->buffers.sends[i].buffer = endpoint->buffers.memory + i * stride;
        endpoint->buffers.sends[i].next = endpoint->buffers.free_sends;
        endpoint->buffers.free_sends = &endpoint->buffers.sends[i];
    }
    for (uint32_t i = 0; i < TWILL_OFI_CONTROLS; i++) {
        endpoint->buffers.controls[i].kind = TWILL_OFI_OP_RECV_CONTROL;
        endpoint->buffers.controls[i].buffer =
            endpoint->buffers.memory + TWILL_OFI_BUFFERS * stride + (size_t)i * TWILL_CACHE_LINE;
    }
    endpoint->buffers.controls_idle = TWILL_OFI_CONTROLS;
    return twill_ofi_register(endpoint, endpoint->buffers.memory, bytes, &endpoint->buffers.mr,
                              error);
}

/* Open fabric, domain, address vector, completion queue and endpoint. On errors some are open. */
static twill_status open_fids(struct twill_ofi_endpoint *endpoint, struct twill_error *error)
{
    /* Sends that do not fit are retried. Receives must all fit, so keep the provider's size. */
    endpoint->fi.info->tx_attr->size =
        twill_min(endpoint->fi.info->tx_attr->size, TWILL_OFI_IN_FLIGHT);
    struct fi_cq_attr cq = {.size = queue_entries(endpoint->fi.info),
                            .format = FI_CQ_FORMAT_TAGGED,
                            .wait_obj = FI_WAIT_NONE};
    OR_FAIL("fi_fabric",
            endpoint->library.fabric(endpoint->fi.info->fabric_attr, &endpoint->fi.fabric, NULL));
    OR_FAIL("fi_domain",
            fi_domain(endpoint->fi.fabric, endpoint->fi.info, &endpoint->fi.domain, NULL));
    TWILL_TRY(error, open_av(endpoint, error));
    OR_FAIL("fi_cq_open", fi_cq_open(endpoint->fi.domain, &cq, &endpoint->fi.cq, NULL));
    OR_FAIL("fi_endpoint",
            fi_endpoint(endpoint->fi.domain, endpoint->fi.info, &endpoint->fi.ep, NULL));
    OR_FAIL("fi_ep_bind to the address vector",
            fi_ep_bind(endpoint->fi.ep, &endpoint->fi.av->fid, 0));
    OR_FAIL("fi_ep_bind to the completion queue",
            fi_ep_bind(endpoint->fi.ep, &endpoint->fi.cq->fid, FI_TRANSMIT | FI_RECV));
    OR_FAIL("fi_enable", fi_enable(endpoint->fi.ep));
    return TWILL_OK;
}

/* Differences of providers that no attribute shows. All of these use manual progress.
 *
 * few_unexpected: stops reading from a peer after a few unexpected messages (net after 5, tcp of
 * libfabric 1.18 after 64, shm and rxd after 1024 in all). Each communicator then gets its own
 * endpoint, so that none can block another.
 * injects_at_once: injected messages leave at once. With others they may wait until the completion
 * queue is read, and only a send with a completion is known to have left.
 * loses_pulled: may crash when a connection ends while one side pulls a message from the other's
 * memory, as tcp and net below rxm then complete and free it twice. Fixed in libfabric 1.18. Before
 * it messages stay under the size from which they are pulled, and more is written, if possible.
 * preposts: must get no unexpected message. net of libfabric 1.17 (fixed and renamed tcp in 1.18)
 * stops reading from a peer at the fifth one, or at one above 128 bytes.
 * writes: how WRITEs are ordered, 0 if they are not used, as with net, which may lose some. tcp and
 * verbs use one connection for all that goes to a peer. A completion of gni is a global event,
 * which says that the data have arrived. That of cxi says so only if asked for. gni, cxi and verbs
 * are as documented, not run on hardware. */
static const struct provider_ways {
    const char *name;
    bool few_unexpected, injects_at_once, loses_pulled, preposts;
    enum twill_ofi_writes writes;
} known_ways[] = {
    {"tcp;ofi_rxm", .injects_at_once = true, .loses_pulled = true,
     .writes = TWILL_OFI_WRITES_IN_ORDER},
    {"net;ofi_rxm", .injects_at_once = true, .loses_pulled = true},
    {"verbs;ofi_rxm", .injects_at_once = true, .writes = TWILL_OFI_WRITES_IN_ORDER},
    {"tcp", .few_unexpected = true, .injects_at_once = true, .writes = TWILL_OFI_WRITES_IN_ORDER},
    {"net", .few_unexpected = true, .injects_at_once = true, .preposts = true},
    {"shm", .few_unexpected = true},
    {"udp;ofi_rxd", .few_unexpected = true},
    {"sockets", .writes = TWILL_OFI_WRITES_DELIVERED},
    {"gni", .writes = TWILL_OFI_WRITES_COMPLETE},
    {"cxi", .writes = TWILL_OFI_WRITES_DELIVERED},
    {.name = NULL} /* any other */
};

/* Return the entry of known_ways of a provider, or the last entry if it is not known. */
static const struct provider_ways *ways_of(const struct fi_info *info)
{
    const struct provider_ways *p = known_ways;
    while (p->name != NULL && strcmp(p->name, info->fabric_attr->prov_name) != 0)
        p++;
    return p;
}

/* Return the bytes of the slots into which chunks are written, or 0 unless the provider writes
 * without registration of local memory, and orders messages after writes. Replaces fi.info by one
 * that writes. */
static size_t find_slot(struct twill_ofi_endpoint *endpoint)
{
    uint64_t caps = FI_TAGGED | FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
    size_t most = endpoint->options.max_message;
    if (endpoint->registrations.required || endpoint->fi.info->domain_attr->mr_mode != 0)
        return 0;
    if (endpoint->matching.directed)
        caps |= FI_DIRECTED_RECV;
    if (!ask_again(endpoint, caps, FI_ORDER_SAS | FI_ORDER_SAW))
        return 0;
    return most == 0 ? TWILL_OFI_SLOT : twill_min(TWILL_OFI_SLOT, most) & ~(size_t)63;
}

/* Set limits.writes to `way`, and limits.write, if the provider has such writes, else to none.
 * Replaces fi.info by one that writes. */
static void enable_writes(struct twill_ofi_endpoint *endpoint, enum twill_ofi_writes way)
{
    struct twill_ofi_limits *limits = &endpoint->limits;
    uint64_t caps = FI_TAGGED | FI_RMA | FI_WRITE | FI_REMOTE_WRITE, order = FI_ORDER_SAS;
    size_t most = endpoint->options.max_message;
    if (endpoint->options.no_order && way == TWILL_OFI_WRITES_IN_ORDER)
        way = TWILL_OFI_WRITES_DELIVERED;
    if (endpoint->matching.directed)
        caps |= FI_DIRECTED_RECV;
    if (way == TWILL_OFI_WRITES_IN_ORDER)
        order |= FI_ORDER_SAW;
    limits->writes = TWILL_OFI_NO_WRITES;
    if (way == TWILL_OFI_NO_WRITES || !ask_again(endpoint, caps, order))
        return;
    limits->writes = way;
    limits->write = twill_min(endpoint->fi.info->ep_attr->max_msg_size, TWILL_OFI_CHUNK);
    if (most != 0)
        limits->write = twill_min(limits->write, most);
    limits->write &= ~(size_t)(TWILL_CACHE_LINE - 1);
}

/* Set endpoint->limits of messages from the provider's attributes. Set endpoint->exclusive, one
 * endpoint for each communicator, if the provider stops reading after a few unexpected messages.
 * Fails if its longest message is shorter than two headers. */
static twill_status set_limits(struct twill_ofi_endpoint *endpoint, struct twill_error *error)
{
    const struct provider_ways *ways = ways_of(endpoint->fi.info);
    const struct fi_fabric_attr *fabric = endpoint->fi.info->fabric_attr;
    bool pulls = ways->loses_pulled && FI_MAJOR(fabric->prov_version) < 118;
    bool at_once = ways->injects_at_once && !endpoint->options.no_inject;
    size_t most = endpoint->fi.info->ep_attr->max_msg_size;
    if (endpoint->options.max_message != 0)
        most = twill_min(most, endpoint->options.max_message);
    most = twill_min(most, pulls ? TWILL_OFI_PULLED : TWILL_OFI_CHUNK);
    endpoint->limits.max_message = most & ~(size_t)(TWILL_CACHE_LINE - 1);
    if (endpoint->limits.max_message < 2 * sizeof(struct twill_ofi_header))
        return TWILL_FAIL(error, TWILL_ERR_FABRIC,
                          "libfabric %s sends messages of at most %zu bytes: too small",
                          fabric->prov_name, endpoint->fi.info->ep_attr->max_msg_size);
    endpoint->limits.inject = at_once ? endpoint->fi.info->tx_attr->inject_size : 0;
    endpoint->limits.preposts = ways->preposts;
    endpoint->limits.credits = endpoint->limits.preposts ? TWILL_OFI_HEADERS : TWILL_OFI_CREDITS;
    endpoint->exclusive = endpoint->exclusive || ways->few_unexpected;
    endpoint->limits.slot = pulls ? find_slot(endpoint) : 0;
    enable_writes(endpoint, ways->writes);
    return TWILL_OK;
}

/* Return whether registrations are kept between calls (TWILL_TUNE=registration=auto). */
static bool caches_registrations(const struct twill_transport_params *params)
{
    const char *setting = twill_transport_setting(params, "TWILL_TUNE=registration");
    return setting != NULL && strcmp(setting, "off") != 0;
}

twill_status twill_ofi_endpoint_open(struct twill_ofi_endpoint *endpoint, struct twill_error *error)
{
    TWILL_TRY(error, twill_ofi_library_open(&endpoint->library, &endpoint->params, error));
    TWILL_TRY(error, twill_ofi_choose(&endpoint->library, &endpoint->fi.info, &endpoint->params,
                                      endpoint->why, sizeof(endpoint->why), error));
    enable_directed_recv(endpoint);
    TWILL_TRY(error, check_tag(endpoint, error));
    endpoint->registrations.required = endpoint->options.force_registration ||
                                       (endpoint->fi.info->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
    endpoint->registrations.caches =
        endpoint->registrations.required && caches_registrations(&endpoint->params);
    twill_ofi_monitor(endpoint);
    TWILL_TRY(error, set_limits(endpoint, error));
    TWILL_TRY(error, open_fids(endpoint, error));
    TWILL_TRY(error, open_buffers(endpoint, error));
    return twill_ofi_controls_post(endpoint, error);
}

/* End all registrations of the endpoint and of its communicators. */
static void unregister_all(struct twill_ofi_endpoint *endpoint)
{
    twill_ofi_window_close(&endpoint->windows);
    twill_ofi_conceal_all(endpoint, NULL, 0);
    twill_ofi_unregister(&endpoint->buffers.mr);
    twill_ofi_forget(endpoint, NULL, 0);
    struct twill_ofi *const lists[] = {endpoint->open, endpoint->deferred};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(lists); i++) {
        for (struct twill_ofi *t = lists[i]; t != NULL; t = t->next) {
            twill_ofi_release_all(t);
            twill_ofi_unregister_peers(t);
        }
    }
}

/* Return whether there may be registrations and the provider binds them to the endpoint
 * (FI_MR_ENDPOINT). */
static bool binds_memory(const struct twill_ofi_endpoint *endpoint)
{
    return (endpoint->registrations.required || endpoint->exposures != NULL) &&
           (endpoint->fi.info->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0;
}

/* Return whether the provider still holds any of ops[0 .. n-1]. */
static bool is_posted(const struct twill_ofi_op *ops, uint32_t n)
{
    while (n > 0 && !ops[n - 1].posted)
        n--;
    return n > 0;
}

/* Stop posting, cancel control receives, and wait some time until they and all sends are back. */
static void drain_endpoint(struct twill_ofi_endpoint *endpoint)
{
    uint64_t limit = twill_now() + TWILL_OFI_DRAIN_NS;
    endpoint->closing = true;
    for (uint32_t i = 0; endpoint->fi.ep != NULL && i < TWILL_OFI_CONTROLS; i++)
        if (endpoint->buffers.controls[i].posted)
            fi_cancel(&endpoint->fi.ep->fid, &endpoint->buffers.controls[i].context);
    for (unsigned turn = 0;
         endpoint->fi.ep != NULL && (turn < TWILL_OFI_POLLS_LEAST || twill_now() < limit) &&
         (is_posted(endpoint->buffers.controls, TWILL_OFI_CONTROLS) ||
          is_posted(endpoint->buffers.sends, TWILL_OFI_BUFFERS));
         turn++) {
        twill_ofi_drain(endpoint);
        twill_yield();
    }
}

bool twill_ofi_is_closed(const struct twill_ofi_endpoint *endpoint)
{
    return endpoint->fi.ep == NULL && endpoint->fi.cq == NULL;
}

/* Memory that is bound to the endpoint is unregistered before it closes, other memory after that,
 * when nothing can access it. A completion queue that does not close still has transfers (gni). */
void twill_ofi_endpoint_close(struct twill_ofi_endpoint *endpoint)
{
    bool bound = binds_memory(endpoint);
    if (bound) {
        drain_endpoint(endpoint);
        unregister_all(endpoint);
    }
    if (endpoint->fi.ep != NULL && fi_close(&endpoint->fi.ep->fid) == 0)
        endpoint->fi.ep = NULL;
    if (endpoint->fi.ep == NULL && endpoint->fi.cq != NULL && fi_close(&endpoint->fi.cq->fid) == 0)
        endpoint->fi.cq = NULL;
    if (!bound && twill_ofi_is_closed(endpoint))
        unregister_all(endpoint);
}

bool twill_ofi_endpoint_free(struct twill_ofi_endpoint *endpoint)
{
    twill_ofi_endpoint_close(endpoint);
    if (!twill_ofi_is_closed(endpoint))
        return false;
    if (endpoint->fi.av != NULL)
        fi_close(&endpoint->fi.av->fid);
    if (endpoint->fi.domain != NULL)
        fi_close(&endpoint->fi.domain->fid);
    if (endpoint->fi.fabric != NULL)
        fi_close(&endpoint->fi.fabric->fid);
    if (endpoint->fi.info != NULL)
        endpoint->library.freeinfo(endpoint->fi.info);
    free(endpoint->buffers.memory);
    return true;
}

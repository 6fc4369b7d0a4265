/* SPDX-License-Identifier: Apache-2.0 */
/* The bound of twill-compare over libfabric, an exchange of the same bytes in both directions at
 * once between two ranks. Each posts a tagged receive and a tagged send, and polls until both are
 * complete. Nothing is reduced. The argument is the provider. Needs libfabric. */
#include "peer.h"

#include <arpa/inet.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

/* The endpoint of a rank, its receive buffer, and the two operations of a call. */
static struct {
    struct fid_ep *ep;
    struct fid_cq *cq;
    fi_addr_t other;
    char *landing;
    size_t capacity;
    struct fi_context2 contexts[2];
} state;

/* Open the endpoint of the provider at this host's address. Returns 0, or 1 on failure. */
static int open_endpoint(struct peer *peer, const char *provider, struct fid_av **av)
{
    struct fi_info *hints = fi_allocinfo(), *info = NULL;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fi_av_attr table = {.count = 2};
    struct fi_cq_attr queue = {.size = 1024, .format = FI_CQ_FORMAT_TAGGED};
    hints->caps = FI_TAGGED;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->fabric_attr->prov_name = strdup(provider);
    int failed =
        fi_getinfo(FI_VERSION(1, 14), peer->link.here, NULL, FI_SOURCE, hints, &info) ||
        fi_fabric(info->fabric_attr, &fabric, NULL) || fi_domain(fabric, info, &domain, NULL) ||
        fi_av_open(domain, &table, av, NULL) || fi_cq_open(domain, &queue, &state.cq, NULL) ||
        fi_endpoint(domain, info, &state.ep, NULL) || fi_ep_bind(state.ep, &(*av)->fid, 0) ||
        fi_ep_bind(state.ep, &state.cq->fid, FI_TRANSMIT | FI_RECV) || fi_enable(state.ep);
    fi_freeinfo(hints);
    return failed;
}

/* Open the endpoint and insert the other rank's address. Returns 0, or 1 after peer_say(). */
static int begin(struct peer *peer)
{
    char mine[64] = "", all[2][64];
    size_t bytes = sizeof(mine);
    struct fid_av *av = NULL;
    if (peer->arguments[0] == NULL || peer_launched(peer) != 0 || peer->size != 2)
        return peer_say(peer, "it needs two ranks and the name of a provider");
    if (open_endpoint(peer, peer->arguments[0], &av) ||
        fi_getname(&state.ep->fid, mine, &bytes) != 0)
        return peer_say(peer, "libfabric cannot open this provider");
    peer_name(peer, peer->arguments[0], ", both ways at once");
    return peer_exchange(peer, mine, all, sizeof(mine)) ||
           fi_av_insert(av, all[1 - peer->rank], 1, &state.other, 0, NULL) != 1;
}

/* Leave the endpoint to the end of the process, as others may still use it. */
static void end(struct peer *peer)
{
    (void)peer;
    free(state.landing);
}

/* Send `bytes` and receive as many at the same time. Returns 0, or 1 after peer_say(). */
static int exchange(struct peer *peer, const void *data, size_t bytes)
{
    struct fi_cq_tagged_entry entries[2];
    ssize_t received, sent = -FI_EAGAIN, done = 0;
    if (state.capacity < bytes)
        state.landing = realloc(state.landing, state.capacity = bytes);
    do
        received =
            fi_trecv(state.ep, state.landing, bytes, NULL, state.other, 1, 0, &state.contexts[0]);
    while (received == -FI_EAGAIN);
    for (ssize_t n = 0; received == 0 && done < 2 && (n >= 0 || n == -FI_EAGAIN);) {
        if (sent == -FI_EAGAIN)
            sent = fi_tsend(state.ep, data, bytes, NULL, state.other, 1, &state.contexts[1]);
        n = fi_cq_read(state.cq, entries, 2);
        done += n > 0 ? n : 0;
    }
    return done == 2 ? 0 : peer_say(peer, "libfabric failed in an exchange");
}

static int run(struct peer *peer, const struct peer_call *call)
{
    return exchange(peer, call->src, call->count * sizeof(float));
}

static int barrier(struct peer *peer)
{
    return exchange(peer, "", 1);
}

static int supports(struct peer *peer, enum twill_compare_collective collective)
{
    (void)peer;
    return collective == TWILL_COMPARE_ALLREDUCE || collective == TWILL_COMPARE_ALLREDUCE_OUT;
}

/* Run the program of twill-compare that measures an exchange. Returns an exit status. */
int main(int argc, char **argv)
{
    static const struct peer_program program = {.begin = begin,
                                                .end = end,
                                                .run = run,
                                                .barrier = barrier,
                                                .supports = supports,
                                                .bytes_only = 1};
    return peer_main(argc, argv, &program);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers in peers' processes, at the addresses they have published: attached if the plan maps
 * them, else fetched in chunks. */
#include "fabric/shm/single_copy.h"
#include "lib/comm/comm.h"

#include <errno.h>
#include <string.h>

/* Return the error of a fetch or an attach. A peer that has ended because the call had failed has
 * notified us before: then that is the cause. */
static twill_status fail_access(struct twill_run *run, uint32_t peer, const char *what,
                                uint64_t from, size_t bytes, int cause)
{
    char text[TWILL_RANK_TEXT];
    TWILL_TRY(&run->comm->error, twill_comm_poll_failures(run->comm, false));
    twill_comm_rank_text(run->comm, peer, text);
    if (cause == ESRCH) {
        (void)TWILL_COMM_FAIL(run->comm, TWILL_ERR_PEER, "%s has died: its memory could not be %s",
                              text, what);
        run->comm->error.rank = peer;
        return TWILL_ERR_PEER;
    }
    return TWILL_COMM_FAIL(run->comm, cause == EFAULT ? TWILL_ERR_ARGUMENT : TWILL_ERR_SYSTEM,
                           "%zu bytes at 0x%llx of %s could not be %s: %s (TWILL_TUNE=reach=none "
                           "avoids this)",
                           bytes, (unsigned long long)from, text, what, strerror(cause));
}

twill_status twill_run_fetch(struct twill_run *run, uint32_t peer, void *to, const void *from,
                             size_t bytes)
{
    struct twill_comm *comm = run->comm;
    uint64_t address = (uint64_t)(uintptr_t)from;
    if (bytes == 0)
        return TWILL_OK;
    int cause = twill_single_copy_fetch(comm->links.single_copy, comm->world->local[peer], to,
                                        address, bytes);
    twill_counter_add(&comm->usage.counters.bytes_copied, bytes);
    return cause == 0 ? TWILL_OK : fail_access(run, peer, "read", address, bytes, cause);
}

void twill_run_detach_peers(struct twill_run *run)
{
    if (TWILL_LIKELY(
            !twill_single_copy_maps(run->comm->links.single_copy))) /* nothing was attached */
        return;
    for (uint32_t i = 0; i < run->comm->local_size * TWILL_SIDES; i++) {
        twill_region_release(run->buffers.region[i]);
        run->buffers.region[i] = NULL;
    }
}

/* Set *at, which is the side's place in the peer's mapped heap or NULL, to where this rank can
 * access it. */
static twill_status attach_side(struct twill_run *run, uint32_t local, unsigned side, void **at)
{
    struct twill_comm *comm = run->comm;
    uint32_t place = local * TWILL_SIDES + side, rank = comm->node->rank[local];
    uint64_t address = run->buffers.address[place];
    if (run->plan->fetches)
        *at = (void *)(uintptr_t)address;
    if (run->plan->fetches || *at != NULL || address == 0)
        return TWILL_OK;
    size_t bytes = twill_run_side_bytes(run, side);
    int cause = twill_single_copy_attach(comm->links.single_copy, local, address, bytes,
                                         &run->buffers.region[place], at);
    return cause == 0 ? TWILL_OK : fail_access(run, rank, "attached", address, bytes, cause);
}

twill_status twill_run_attach_peers(struct twill_run *run)
{
    struct twill_comm *comm = run->comm;
    const struct twill_schedule *s = &run->plan->schedule;
    bool uses = s->uses_peer_src || s->uses_peer_dst;
    if (TWILL_LIKELY(comm->links.single_copy == NULL ||
                     run->exchange.state < TWILL_EXCHANGE_PUBLISHED || !uses))
        return TWILL_OK;
    for (uint32_t l = 0; l < comm->local_size; l++) {
        void *src = (void *)(uintptr_t)run->buffers.peer_src[l], *dst = run->buffers.peer_dst[l];
        if (l == comm->local)
            continue;
        TWILL_TRY(&comm->error, attach_side(run, l, TWILL_SRC, &src));
        TWILL_TRY(&comm->error, attach_side(run, l, TWILL_DST, &dst));
        run->buffers.peer_src[l] = src;
        run->buffers.peer_dst[l] = dst;
    }
    return TWILL_OK;
}

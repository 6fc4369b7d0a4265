/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a shared region: passes this rank's memory to the other processes of a node, maps
 * theirs, and holds the file that shows who lives. */
#include "fabric/shm/shared_region_state.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t token_of(const struct share_info *info)
{
    return info->key | 1; /* never 0, as new memory is */
}

/* Map what this rank uses of a peer's file, and check that this is what the peer writes to. */
static enum twill_share_cause map_peer(struct share *share,
                                       const struct twill_fd_passing_peer *peer, int file)
{
    struct twill_shm_region *region = share->region;
    struct twill_rank_view *view = &region->view[peer->rank];
    size_t pair_at = region->bytes + region->view[region->rank].local * region->pair_bytes;
    struct stat about;
    /* Mapped beyond its end, the first touch would be a SIGBUS. */
    if (fstat(file, &about) != 0 || (uint64_t)about.st_size < region->own_bytes)
        return TWILL_SHARE_MAP;
    void *at = twill_mapping_map(file, region->bytes);
    if (at == MAP_FAILED)
        return TWILL_SHARE_MAP;
    view->at = at;
    void *pair =
        region->pair_bytes == 0 ? NULL : twill_mapping_map_part(file, pair_at, region->pair_bytes);
    if (pair == MAP_FAILED)
        return TWILL_SHARE_MAP;
    view->pair = pair;
    if (peer->token_at > region->bytes - sizeof(uint64_t) ||
        peer->token_at % sizeof(uint64_t) != 0 ||
        atomic_load_explicit((_Atomic uint64_t *)((unsigned char *)at + peer->token_at),
                             memory_order_acquire) != token_of(&share->info[peer->rank]))
        return TWILL_SHARE_TOKEN;
    return TWILL_SHARE_FINE;
}

/* Hold a descriptor of the life file for all ranks of this process, of which this is the first, and
 * lock their bytes. It is closed on failure. */
static enum twill_share_cause hold_life(struct share *share, int fd)
{
    struct twill_shm_region *region = share->region;
    uint32_t lowest = share->first[region->rank];
    region->life = twill_mapping_create(-1, 1);
    if (region->life == NULL) {
        close(fd);
        return TWILL_SHARE_MAP;
    }
    region->life->fd = fd;
    /* Where locks are not seen, nobody is ever taken for dead. */
    bool works = lowest == (uint32_t)region->rank || twill_life_is_locked(region->life, lowest);
    for (int r = 0; r < region->size; r++)
        if (r == region->rank || twill_share_is_thread(share, r))
            works = twill_life_lock(region->life, F_WRLCK, (uint32_t)r) && works;
    share->own_result.locked = works;
    return TWILL_SHARE_FINE;
}

/* Create the life file, or ask for it. */
static enum twill_share_cause begin_life(struct share *share)
{
    uint32_t me = (uint32_t)share->region->rank;
    int fd;
    share->fd_passing.asks = share->own_result.first == me && share->first[me] != me;
    if (share->first[me] != me)
        return TWILL_SHARE_FINE;
    enum twill_share_cause cause = twill_mapping_memfd(&fd, TWILL_MAPPING_LIFE);
    if (cause == TWILL_SHARE_FINE)
        cause = hold_life(share, fd);
    if (cause == TWILL_SHARE_FINE)
        share->fd_passing.second = fd;
    return cause;
}

/* Return the rank of our label that follows this one, cyclically, among the other processes'. */
static uint32_t next_of(const struct share *share)
{
    uint32_t size = (uint32_t)share->region->size, rank = (uint32_t)share->region->rank;
    for (uint32_t i = 1; i < size; i++)
        if (twill_share_is_ours(share, (rank + i) % size) &&
            !twill_share_is_thread(share, (int)((rank + i) % size)))
            return (rank + i) % size;
    return rank;
}

/* Take a peer's memory, and from the lowest rank the life file. */
static enum twill_share_cause take_files(void *user, const struct twill_fd_passing_peer *peer,
                                         const int fds[2])
{
    struct share *share = user;
    struct twill_shm_region *region = share->region;
    bool life = share->fd_passing.asks && peer->rank == share->first[region->rank];
    enum twill_share_cause cause = map_peer(share, peer, fds[0]);
    if (region->placer.visible && peer->rank == next_of(share))
        region->next = fds[0];
    else
        close(fds[0]);
    if (cause == TWILL_SHARE_FINE && life && fds[1] >= 0)
        return hold_life(share, fds[1]);
    if (fds[1] >= 0)
        close(fds[1]);
    else if (life) /* dropped by the kernel: this process has too many */
        cause = TWILL_SHARE_DESCRIPTORS;
    return cause;
}

static twill_status list_peers(struct share *share, struct twill_error *error)
{
    struct twill_shm_region *region = share->region;
    struct twill_fd_passing *fd_passing = &share->fd_passing;
    fd_passing->file = region->fd;
    fd_passing->token_at = region->token_at;
    fd_passing->take = take_files;
    fd_passing->user = share;
    fd_passing->peers = calloc((size_t)region->size, sizeof(*fd_passing->peers));
    if (fd_passing->peers == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "no memory to list %d ranks", region->size);
    for (int r = 0; r < region->size; r++)
        if (r != region->rank && twill_share_is_ours(share, (uint32_t)r) &&
            !twill_share_is_thread(share, r))
            fd_passing->peers[fd_passing->peer_count++] =
                (struct twill_fd_passing_peer){.rank = (uint32_t)r,
                                               .name = share->info[r].name,
                                               .key = share->info[r].key,
                                               .socket = -1};
    return TWILL_OK;
}

twill_status twill_share_files(struct share *share, enum twill_share_cause *cause,
                               struct twill_error *error)
{
    twill_share_show_token(share->region, token_of(&share->own_info));
    TWILL_TRY(error, list_peers(share, error));
    *cause = begin_life(share);
    if (*cause == TWILL_SHARE_FINE)
        *cause = twill_fd_passing_exchange(&share->fd_passing);
    return TWILL_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory of a node: creates it, agrees who shares it with whom, and proves that it works. */
#include "fabric/host/host_identity.h"
#include "fabric/shm/fd_passing.h"
#include "fabric/shm/shared_region_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARE_RANK_NAME(share, rank) TWILL_RANK_NAME((share)->oob->job, rank)

/* A rank's part of the first exchange, which has its host and socket. Part of struct share, where
 * own_info is that of this rank and info[] has those of all. `cause` is TWILL_SHARE_FINE, or why
 * the rank cannot share with other processes. */
struct share_info {
    struct twill_host host;
    uint64_t name, key; /* name and secret of its socket */
    int32_t cause;      /* enum twill_share_cause */
};

/* The data that a rank sends in the second exchange, about its twill_shm_region_attach(). */
struct share_result {
    uint64_t mapping; /* address of its struct twill_mapping, valid in its process */
    uint64_t bytes;
    int32_t cause; /* enum twill_share_cause */
    int32_t late;  /* 1 if it waited until the deadline for the files of `lost` */
    int32_t phase; /* enum twill_fd_passing_phase, how far it had come with `lost` */
    uint32_t lost; /* the rank that hung up or timed out, UINT32_MAX if none */
    /* Address of the struct twill_mapping of the life file, if this is a process's first rank. */
    uint64_t life;
    int32_t locked; /* of the first rank of a process: it has locked its ranks' bytes there */
    uint32_t first; /* first rank of its process and label */
};

/* State of a region from twill_shm_region_offer() to its conclusion, which frees it. */
struct share {
    struct twill_shm_region *region;
    struct twill_oob *oob;
    struct share_info own_info, *info;       /* [size] */
    struct share_result own_result, *result; /* [size] */
    uint32_t *first;                         /* [size] the lowest rank with the same label */
    int32_t *cause;                          /* [size] by lowest rank: why the label cannot share */
    bool *crosses; /* [size] by lowest rank: whether the label spans processes */
    bool threads;  /* other ranks of our label are threads of this process */
    struct twill_fd_passing fd_passing;
};

/* Write the token by which others check that they map this rank's memory, or 0 to clear it. */
static void show_token(const struct twill_shm_region *region, uint64_t token)
{
    unsigned char *at = (unsigned char *)region->mine->at + region->token_at;
    atomic_store_explicit((_Atomic uint64_t *)at, token, memory_order_release);
}

/* Return whether two ranks are threads of one process. False if the pid namespace is unknown, as
 * containers then look alike. Threads for which it is false share memory as processes do. When the
 * first of them ends, all of them look dead, as its locks were theirs as well. */
static bool in_one_process(const struct twill_host *a, const struct twill_host *b)
{
    return a->pid_namespace != 0 && twill_host_same_process(a, b);
}

/* Return whether a rank has our label, so that it is to share memory with this rank. */
static bool is_ours(const struct share *share, uint32_t rank)
{
    return share->first[rank] == share->first[share->region->rank];
}

/* Return whether a rank has our label and is a thread of this process, as this rank itself is. */
static bool is_thread(const struct share *share, int rank)
{
    return is_ours(share, (uint32_t)rank) &&
           in_one_process(&share->info[rank].host, &share->own_info.host);
}

/* Create this rank's memory, in a file if it is `shared`, and let region->placer place it. Instead
 * use `given` unless that is NULL. Returns FINE, or why it is in no file and so cannot be shared.
 * If there is no memory at all, region->mine is NULL and errno is set. */
static enum twill_share_cause make_memory(struct twill_shm_region *region, const char *name,
                                          const struct twill_shm_region_given *given, bool shared)
{
    enum twill_share_cause cause = TWILL_SHARE_FINE;
    if (given != NULL) {
        region->given = true;
        region->fd = given->fd;
        region->mine = given->mapping;
        region->token_at = given->token_at;
        return cause;
    }
    if (shared)
        cause = twill_mapping_file(&region->fd, name, region->own_bytes + region->room_bytes);
    region->mine = twill_mapping_create(region->fd, region->own_bytes + region->room_bytes);
    region->token_at = region->bytes - sizeof(uint64_t);
    if (region->mine != NULL && region->placer.place != NULL)
        region->placed =
            region->placer.place(region->placer.user, region->mine->at, region->own_bytes);
    return cause;
}

/* Clear the token in this rank's memory. If that memory is new, not given by the caller, return the
 * token's page to the kernel. The page can then be placed on any NUMA node later. */
static void hide_token(const struct twill_shm_region *region)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *at = (unsigned char *)region->mine->at + region->token_at / page * page;
    if (region->given || madvise(at, page, MADV_REMOVE) != 0)
        show_token(region, 0);
}

/* Drop `users` users of the mapping of this rank's memory, the last of which unmaps it. Does
 * nothing if the caller of twill_shm_region_attach() gave the memory. */
static void drop_mine(const struct twill_shm_region *region, int64_t users)
{
    if (!region->given)
        twill_mapping_drop(region->mine, users);
}

/* Unmap a rank's memory, or stop using the mapping of its thread. */
static void close_view(const struct twill_shm_region *region, uint32_t rank)
{
    struct twill_rank_view *view = &region->view[rank];
    if (view->mapping != NULL) {
        twill_mapping_drop(view->mapping, 1);
    } else {
        if (view->at != NULL)
            munmap(view->at, region->bytes);
        if (view->pair != NULL)
            munmap(view->pair, region->pair_bytes);
        if (view->room != NULL)
            munmap(view->room, region->room_bytes);
    }
    *view = (struct twill_rank_view){.local = view->local};
}

/* --- the life file, which shows which ranks live ---------------------------------------------- */
/* Lock or unlock (F_WRLCK, F_UNLCK) the byte of one of our ranks. Returns whether it worked. */
static bool lock_life(const struct twill_mapping *life, short how, uint32_t rank)
{
    struct flock lock = {.l_type = how, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return fcntl(life->fd, F_SETLK, &lock) == 0;
}

/* Return whether another process has locked the byte of a rank, or true if that is not known. */
static bool is_life_locked(const struct twill_mapping *life, uint32_t rank)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return fcntl(life->fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* Return the token of a rank, which is never 0. */
static uint64_t token_of(const struct share_info *info)
{
    return info->key | 1; /* not 0, as new memory is */
}

/* Map the part of a peer's file that this rank uses, and check that the peer writes to it. Returns
 * FINE, MAP if it cannot be mapped, or TOKEN if it lacks the peer's token. */
static enum twill_share_cause map_peer(struct share *share,
                                       const struct twill_fd_passing_peer *peer, int file)
{
    struct twill_shm_region *region = share->region;
    struct twill_rank_view *view = &region->view[peer->rank];
    size_t pair_at = region->bytes + region->view[region->rank].local * region->pair_bytes;
    struct stat about;
    /* Beyond the end of the file the first touch would be a SIGBUS. */
    if (fstat(file, &about) != 0 ||
        (uint64_t)about.st_size < region->own_bytes + region->room_bytes)
        return TWILL_SHARE_MAP;
    void *at = twill_mapping_map(file, region->bytes);
    if (at == MAP_FAILED)
        return TWILL_SHARE_MAP;
    view->at = at;
    void *pair = twill_mapping_map_part(file, pair_at, region->pair_bytes, false);
    if (pair == MAP_FAILED)
        return TWILL_SHARE_MAP;
    view->pair = pair;
    void *room = twill_mapping_map_part(file, region->own_bytes, region->room_bytes, true);
    if (room == MAP_FAILED)
        return TWILL_SHARE_MAP;
    view->room = room;
    if (peer->token_at > region->bytes - sizeof(uint64_t) ||
        peer->token_at % sizeof(uint64_t) != 0 ||
        atomic_load_explicit((_Atomic uint64_t *)((unsigned char *)at + peer->token_at),
                             memory_order_acquire) != token_of(&share->info[peer->rank]))
        return TWILL_SHARE_TOKEN;
    return TWILL_SHARE_FINE;
}

/* Make `fd` this process's descriptor of the life file, whose locks show which ranks live. Lock
 * there the bytes of all ranks of this process. Returns FINE, with own_result.locked false if that
 * does not work. Returns MAP, with `fd` closed, if there is no memory. */
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
    /* Where locks are not seen, no rank is ever taken for dead. */
    bool works = lowest == (uint32_t)region->rank || is_life_locked(region->life, lowest);
    for (int r = 0; r < region->size; r++)
        if (r == region->rank || is_thread(share, r))
            works = lock_life(region->life, F_WRLCK, (uint32_t)r) && works;
    share->own_result.locked = works;
    return TWILL_SHARE_FINE;
}

/* On the lowest rank of the label, create the life file, whose locks show who lives, and lock it.
 * On the first rank of each other process, set `asks`, so that the exchange gets the file from the
 * lowest rank. Other ranks do nothing. Returns FINE or the cause. */
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

/* Return the next rank of our label, cyclically, that is not of this process, or the own rank. */
static uint32_t next_of(const struct share *share)
{
    uint32_t size = (uint32_t)share->region->size, rank = (uint32_t)share->region->rank;
    for (uint32_t i = 1; i < size; i++)
        if (is_ours(share, (rank + i) % size) && !is_thread(share, (int)((rank + i) % size)))
            return (rank + i) % size;
    return rank;
}

/* Take a peer's memory, fds[0], and map it. From the lowest rank of the label, also take the life
 * file, fds[1], if this rank has asked for it. Closes all descriptors that are not kept, in case of
 * failure as well. Returns FINE or the cause. */
static enum twill_share_cause take_files(void *user, const struct twill_fd_passing_peer *peer,
                                         const int fds[2])
{
    struct share *share = user;
    struct twill_shm_region *region = share->region;
    bool life = share->fd_passing.asks && peer->rank == share->first[region->rank];
    enum twill_share_cause cause = map_peer(share, peer, fds[0]);
    if (region->placer.visible && peer->rank == next_of(share)) {
        region->next = fds[0];
        region->next_rank = peer->rank;
    } else {
        close(fds[0]);
    }
    if (cause == TWILL_SHARE_FINE && life && fds[1] >= 0)
        return hold_life(share, fds[1]);
    if (fds[1] >= 0)
        close(fds[1]);
    else if (life) /* dropped by the kernel, as this process has too many */
        cause = TWILL_SHARE_DESCRIPTORS;
    return cause;
}

/* Fill in share->fd_passing for the exchange. Its peers are our label's ranks in other processes.
 * Fails only with TWILL_ERR_MEMORY. */
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
        if (r != region->rank && is_ours(share, (uint32_t)r) && !is_thread(share, r))
            fd_passing->peers[fd_passing->peer_count++] =
                (struct twill_fd_passing_peer){.rank = (uint32_t)r,
                                               .name = share->info[r].name,
                                               .key = share->info[r].key,
                                               .socket = -1};
    return TWILL_OK;
}

/* Share this rank's memory with the other processes of the label, map theirs, and lock our ranks'
 * bytes in the life file. Sets *cause to FINE or the obstacle. Fails only with TWILL_ERR_MEMORY. */
static twill_status share_files(struct share *share, enum twill_share_cause *cause,
                                struct twill_error *error)
{
    show_token(share->region, token_of(&share->own_info));
    TWILL_TRY(error, list_peers(share, error));
    *cause = begin_life(share);
    if (*cause == TWILL_SHARE_FINE)
        *cause = twill_fd_passing_exchange(&share->fd_passing);
    return TWILL_OK;
}

/* Set first[r] to the lowest rank with the label of rank r. */
static void find_first(uint32_t *first, const uint32_t *label, uint32_t size)
{
    for (uint32_t r = 0; r < size; r++) {
        uint32_t f = 0;
        if (r > 0 && label[r] == label[r - 1])
            f = first[r - 1];
        while (f < r && (first[f] != f || label[f] != label[r]))
            f++;
        first[r] = f;
    }
}

/* Record that the label of a rank cannot share for `cause`, unless that is FINE. The first cause
 * recorded counts, but LOST is replaced by any other, and REFUSED by all but LOST. Also write the
 * rank and the cause to region->why. */
static void record_cause(struct share *share, uint32_t rank, int32_t cause)
{
    int32_t *ours = &share->cause[share->first[rank]];
    if (cause <= *ours || *ours > TWILL_SHARE_REFUSED)
        return;
    *ours = cause;
    snprintf(share->region->why, sizeof(share->region->why), "%s: %s", SHARE_RANK_NAME(share, rank),
             twill_share_cause_text(cause));
}

/* Set the sizes of a rank's memory in bytes, rounded up to pages. All ranks of the label map
 * region->bytes, and each of them alone maps pair_bytes more. Their total is own_bytes. Also number
 * the ranks of the label in view[].local. */
static void size_memory(struct share *share, size_t bytes, size_t pair_bytes)
{
    struct twill_shm_region *region = share->region;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint32_t ranks = 0;
    for (int r = 0; r < region->size; r++)
        if (is_ours(share, (uint32_t)r))
            region->view[r].local = ranks++;
    region->bytes = twill_round_up(twill_max(bytes, 1), page);
    region->pair_bytes = twill_round_up(pair_bytes, page);
    region->own_bytes = region->bytes + ranks * region->pair_bytes;
}

/* Group the ranks by label[], and set crosses[] for labels whose ranks are in several processes.
 * Only these pass files. If one of their ranks has reported why it cannot, record that its label
 * cannot share. Also find the threads of this process and the first of its ranks. */
static void group_ranks(struct share *share, const uint32_t *label)
{
    const struct share_info *info = share->info;
    uint32_t size = (uint32_t)share->oob->size, own = (uint32_t)share->oob->rank;
    find_first(share->first, label, size);
    for (uint32_t r = 0; r < size; r++)
        if (!in_one_process(&info[r].host, &info[share->first[r]].host))
            share->crosses[share->first[r]] = true;
    share->own_result.first = own;
    for (uint32_t r = size; r-- > 0;) {
        bool thread = r != own && is_thread(share, (int)r);
        share->threads |= thread;
        if (thread && r < share->own_result.first)
            share->own_result.first = r;
    }
    for (uint32_t r = 0; r < size; r++)
        if (share->crosses[share->first[r]])
            record_cause(share, r, info[r].cause);
}

/* Use the life file, whose locks show who lives, of the first of our process's `users` ranks. Note
 * in region->view[] which peers have locked their bytes in it. */
static void adopt_life(struct share *share, int64_t users)
{
    struct twill_shm_region *region = share->region;
    const struct share_result *result = share->result;
    uint32_t first = result[region->rank].first;
    if (first != (uint32_t)region->rank)
        region->life = (struct twill_mapping *)(uintptr_t)result[first].life;
    else if (region->life != NULL)
        twill_mapping_drop(region->life, TWILL_MAPPING_USERS_UNKNOWN - users);
    for (int r = 0; region->life != NULL && r < region->size; r++)
        region->view[r].locked = r != region->rank && is_ours(share, (uint32_t)r) &&
                                 !is_thread(share, r) && result[r].first < (uint32_t)region->size &&
                                 result[result[r].first].locked == 1;
}

/* Use the mappings of this process's other threads, and count them as users of ours. */
static void adopt_threads(struct share *share)
{
    struct twill_shm_region *region = share->region;
    int64_t users = 1;
    for (int r = 0; r < region->size; r++) {
        if (r == region->rank || !is_thread(share, r))
            continue;
        users++;
        struct twill_rank_view *view = &region->view[r];
        view->mapping = (struct twill_mapping *)(uintptr_t)share->result[r].mapping;
        view->at = view->mapping->at;
        view->pair = (unsigned char *)view->at + region->bytes +
                     region->view[region->rank].local * region->pair_bytes;
        view->room = region->room_bytes == 0 ? NULL : (unsigned char *)view->at + region->own_bytes;
    }
    drop_mine(region, TWILL_MAPPING_USERS_UNKNOWN - users);
    adopt_life(share, users);
}

/* Check the results of all ranks and record for each label why it cannot share. Fails, on all ranks
 * alike, if ranks of a label share different sizes (MISMATCH), or a rank timed out (TIMEOUT). */
static twill_status check_results(struct share *share, struct twill_error *error)
{
    const struct share_result *result = share->result;
    for (uint32_t r = 0; r < (uint32_t)share->oob->size; r++) {
        uint32_t f = share->first[r];
        if (result[r].bytes != result[f].bytes)
            return TWILL_FAIL(error, TWILL_ERR_MISMATCH,
                              "%s shares %llu bytes of memory, and %s of the same node shares %llu",
                              SHARE_RANK_NAME(share, r), (unsigned long long)result[r].bytes,
                              SHARE_RANK_NAME(share, f), (unsigned long long)result[f].bytes);
    }
    for (uint32_t r = 0; r < (uint32_t)share->oob->size; r++) {
        if (result[r].late)
            return TWILL_FAIL(
                error, TWILL_ERR_TIMEOUT, "%s waited %llu s for the memory of %s (%s)",
                SHARE_RANK_NAME(share, r),
                (unsigned long long)(share->oob->timeout_ns / 1000000000u),
                result[r].lost < (uint32_t)share->oob->size ? SHARE_RANK_NAME(share, result[r].lost)
                                                            : "another rank",
                twill_fd_passing_phase_text(result[r].phase));
        record_cause(share, r, result[r].cause);
    }
    return TWILL_OK;
}

/* Unmap the memory of all other ranks, and close region->next, the memfd of another rank that is
 * kept for readers outside the job. */
static void close_peers(struct twill_shm_region *region)
{
    if (region->next >= 0)
        close(region->next);
    region->next = -1;
    for (int r = 0; r < region->size; r++)
        if (r != region->rank)
            close_view(region, (uint32_t)r);
}

/* Unlock this rank's byte in the life file, which shows which ranks live. Then drop `users` users
 * of this process's mapping of that file, the last of which closes it. Does nothing without a life
 * file. */
static void leave_life(struct twill_shm_region *region, int64_t users)
{
    if (region->life == NULL)
        return;
    (void)lock_life(region->life, F_UNLCK, (uint32_t)region->rank);
    twill_mapping_drop(region->life, users);
    region->life = NULL;
}

/* If any label cannot share, set *why to the reason and label[r] to r for its ranks. label[r] of
 * all others becomes the lowest rank with their label. Else set *why to NULL. If ours cannot, unmap
 * the memory of other ranks, but not our own. Clear our token, and close our file unless readers
 * need it. */
static void decide_labels(struct share *share, uint32_t *label, const char **why)
{
    struct twill_shm_region *region = share->region;
    uint32_t own = share->first[region->rank];
    *why = NULL;
    for (uint32_t r = 0; r < (uint32_t)region->size && *why == NULL; r++)
        if (share->cause[r] != TWILL_SHARE_FINE)
            *why = region->why;
    for (uint32_t r = 0; r < (uint32_t)region->size && *why != NULL; r++)
        label[r] = share->cause[share->first[r]] != TWILL_SHARE_FINE ? r : share->first[r];
    if (share->cause[own] != TWILL_SHARE_FINE) {
        close_peers(region);
        leave_life(region, 1);
    }
    if (region->fd < 0)
        return;
    hide_token(region);
    if (!region->given && (share->cause[own] != TWILL_SHARE_FINE || !region->placer.visible)) {
        close(region->fd);
        region->fd = -1;
    }
}

/* Free the state, which may be NULL, and close its sockets. */
static void share_destroy(struct share *share)
{
    if (share == NULL)
        return;
    twill_fd_passing_close(&share->fd_passing);
    free(share->fd_passing.peers);
    free(share->info);
    free(share->result);
    free(share->first);
    free(share->cause);
    free(share->crosses);
    free(share);
}

/* Return the state that is needed while `region` is created with the ranks of `oob`, or NULL if out
 * of memory. share_destroy() frees it. */
static struct share *share_create(struct twill_shm_region *region, struct twill_oob *oob)
{
    struct share *share = calloc(1, sizeof(*share));
    size_t n = (size_t)oob->size;
    if (share == NULL)
        return NULL;
    share->region = region;
    share->oob = oob;
    share->fd_passing =
        (struct twill_fd_passing){.listener = -1, .file = -1, .second = -1, .lost = UINT32_MAX};
    share->info = calloc(n, sizeof(struct share_info));
    share->result = calloc(n, sizeof(struct share_result));
    share->first = calloc(n, sizeof(uint32_t));
    share->cause = calloc(n, sizeof(int32_t));
    share->crosses = calloc(n, sizeof(bool));
    if (share->info != NULL && share->result != NULL && share->first != NULL &&
        share->cause != NULL && share->crosses != NULL)
        return share;
    share_destroy(share);
    return NULL;
}

/* Return a new region with its state, or NULL if out of memory. */
static struct twill_shm_region *region_create(struct twill_oob *oob)
{
    struct twill_shm_region *region = calloc(1, sizeof(*region));
    if (region == NULL)
        return NULL;
    region->rank = oob->rank;
    region->size = oob->size;
    region->fd = region->next = -1;
    region->view = calloc((size_t)oob->size, sizeof(*region->view));
    region->share = share_create(region, oob);
    if (region->view != NULL && region->share != NULL)
        return region;
    twill_shm_region_close(region);
    return NULL;
}

twill_status twill_shm_region_offer(struct twill_shm_region **made, struct twill_oob *oob,
                                    struct twill_oob_batch *batch, struct twill_error *error)
{
    struct twill_shm_region *region = made != NULL ? region_create(oob) : NULL;
    struct share *share = region != NULL ? region->share : NULL;
    if (made != NULL)
        *made = region;
    struct share_info *own = share != NULL ? &share->own_info : NULL;
    twill_oob_batch_add(batch, own, share != NULL ? share->info : NULL, sizeof(*own));
    if (share == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "%s: no memory to share among %d ranks",
                          TWILL_RANK_NAME(oob->job, oob->rank), oob->size);
    twill_host_describe(&own->host);
    if (oob->size > 1)
        own->cause = (int32_t)twill_fd_passing_listen(&share->fd_passing, oob);
    own->name = share->fd_passing.name;
    own->key = share->fd_passing.key;
    return TWILL_OK;
}

/* Create this rank's memory or use `given`. If our label spans processes and can share, exchange
 * the memory with its other processes. Fill in own_result, which all ranks get in the second
 * exchange. Fails only with TWILL_ERR_MEMORY. */
static twill_status attach(struct share *share, const char *name,
                           const struct twill_shm_region_given *given, struct twill_error *error)
{
    struct twill_shm_region *region = share->region;
    bool crosses = share->crosses[share->first[region->rank]];
    bool shares = crosses && share->cause[share->first[region->rank]] == TWILL_SHARE_FINE;
    bool visible = !crosses && !share->threads && region->placer.visible;
    enum twill_share_cause cause = make_memory(region, name, given, shares || visible);
    if (region->mine == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY,
                          "%s (%s) could not map %zu bytes of address space: %s (raise ulimit -v, "
                          "or lower TWILL_TUNE=heap_limit, which is reserved for twill_alloc)",
                          SHARE_RANK_NAME(share, region->rank), share->own_info.host.name,
                          region->own_bytes + region->room_bytes, strerror(errno));
    struct twill_rank_view *own = &region->view[region->rank];
    own->at = region->mine->at;
    own->room = region->room_bytes > 0 ? (unsigned char *)own->at + region->own_bytes : NULL;
    (void)twill_mapping_open(own->room, region->room_bytes, false); /* else it is only open */
    if (shares && cause == TWILL_SHARE_FINE)
        TWILL_TRY(error, share_files(share, &cause, error));
    share->own_result = (struct share_result){.mapping = (uintptr_t)region->mine,
                                              .life = (uintptr_t)region->life,
                                              .bytes = region->own_bytes + region->room_bytes,
                                              .locked = share->own_result.locked,
                                              .first = share->own_result.first,
                                              .cause = visible ? 0 : (int32_t)cause,
                                              .late = share->fd_passing.late,
                                              .phase = (int32_t)share->fd_passing.phase,
                                              .lost = share->fd_passing.lost};
    return TWILL_OK;
}

void twill_shm_region_reserve(struct twill_shm_region *region, size_t bytes)
{
    region->room_bytes = bytes;
}

twill_status twill_shm_region_attach(struct twill_shm_region *region, const uint32_t *label,
                                     size_t bytes, size_t pair_bytes, const char *name,
                                     const struct twill_shm_region_given *given,
                                     const struct twill_shm_region_placer *placer,
                                     struct twill_oob_batch *batch, struct twill_error *error)
{
    struct share *share = region->share;
    twill_oob_batch_add(batch, &share->own_result, share->result, sizeof(share->own_result));
    if (placer != NULL)
        region->placer = *placer;
    group_ranks(share, label);
    size_memory(share, bytes, pair_bytes);
    twill_status status = attach(share, name, given, error);
    twill_fd_passing_close(&share->fd_passing); /* no rank must wait for one that gives up */
    twill_fd_passing_suspect(&share->fd_passing, batch);
    return status;
}

twill_status twill_shm_region_conclude(struct twill_shm_region *region, uint32_t *label,
                                       const char **why, struct twill_error *error)
{
    struct share *share = region->share;
    TWILL_TRY(error, check_results(share, error));
    adopt_threads(share);
    decide_labels(share, label, why);
    share_destroy(share);
    region->share = NULL;
    return TWILL_OK;
}

void twill_shm_region_close(struct twill_shm_region *region)
{
    if (region == NULL)
        return;
    /* If it is not concluded, other threads may use this memory, unless there are none or all
     * results have arrived: then every rank knows that this failed. */
    const struct share *share = region->share;
    bool unused = share != NULL && region->mine != NULL &&
                  (share->result[region->rank].bytes != 0 || !share->threads);
    share_destroy(region->share);
    if (region->view != NULL)
        close_peers(region);
    if (region->mine != NULL && region->placer.unplace != NULL)
        region->placer.unplace(region->placer.user, region->own_bytes, region->placed);
    if (region->mine != NULL)
        drop_mine(region, unused ? TWILL_MAPPING_USERS_UNKNOWN : 1);
    leave_life(region, unused ? TWILL_MAPPING_USERS_UNKNOWN : 1);
    if (region->fd >= 0 && !region->given)
        close(region->fd);
    free(region->view);
    free(region);
}

size_t twill_shm_region_bytes(const struct twill_shm_region *region)
{
    return region->own_bytes;
}

void *twill_shm_region_at(const struct twill_shm_region *region, uint32_t rank)
{
    return rank < (uint32_t)region->size ? region->view[rank].at : NULL;
}

void *twill_shm_region_room(const struct twill_shm_region *region, uint32_t rank)
{
    return rank < (uint32_t)region->size ? region->view[rank].room : NULL;
}

void *twill_shm_region_pair(const struct twill_shm_region *region, uint32_t owner, uint32_t other)
{
    const struct twill_rank_view *view = region->view;
    if (owner != (uint32_t)region->rank)
        return view[owner].pair;
    return (unsigned char *)view[owner].at + region->bytes + view[other].local * region->pair_bytes;
}

bool twill_shm_region_owner_dead(const struct twill_shm_region *region, uint32_t rank)
{
    return rank < (uint32_t)region->size && region->view[rank].locked &&
           !is_life_locked(region->life, rank);
}

bool twill_shm_region_release(struct twill_shm_region *region, uint32_t rank)
{
    bool released = rank != (uint32_t)region->rank && twill_shm_region_owner_dead(region, rank);
    if (released)
        close_view(region, rank);
    if (released && region->next >= 0 && region->next_rank == rank) {
        close(region->next);
        region->next = -1;
    }
    return released;
}

bool twill_shm_region_discard(const struct twill_shm_region *region, size_t offset, size_t bytes)
{
    return twill_mapping_discard(region->fd, region->mine->at, offset, bytes);
}

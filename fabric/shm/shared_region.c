/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory of a node: creates it, agrees who shares it with whom, and proves that it works. */
#include "fabric/shm/shared_region.h"

#include "fabric/host/host_identity.h"
#include "fabric/shm/fd_passing.h"
#include "fabric/shm/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARE_RANK_NAME(share, rank) TWILL_RANK_NAME((share)->oob->job, rank)

/* This rank's mapping of one rank's memory. */
struct rank_view {
    void *at;
    struct twill_mapping *mapping; /* if it is a thread of this process */
    int fd;                        /* of another process: kept to test its lock */
    bool locked;                   /* its lock was visible */
};

struct twill_shm_region {
    size_t bytes;
    int rank, size;
    int fd;     /* own memfd, or -1; closing it or any duplicate in this process drops the lock */
    bool given; /* fd and mine belong to the caller */
    char why[TWILL_RANK_TEXT + 96]; /* why memory is not shared */
    struct twill_mapping *mine;
    struct twill_shm_region_placer placer; /* placer of mine; all NULL: none */
    struct rank_view *view;                /* [size] */
};

/* First exchange: a rank's host, memory and socket. */
struct share_info {
    struct twill_host host;
    uint64_t mapping; /* address of its struct twill_mapping, valid in its process */
    uint64_t bytes;
    uint64_t token_at;  /* offset of the token in its memory */
    uint64_t name, key; /* socket name and secret */
    int32_t cause;      /* enum twill_share_cause */
    int32_t error;      /* errno if it got no memory at all, or 0 */
};

/* Last exchange: the result of a rank. */
struct share_result {
    int32_t cause;
    int32_t late;
    int32_t phase; /* enum twill_fd_passing_phase of the one that timed out */
    uint32_t lost;
};

/* The state of one twill_shm_region_share() call. */
struct share {
    struct twill_shm_region *region;
    struct twill_oob *oob;
    const char *name;                           /* name of the memfd */
    const struct twill_shm_region_given *given; /* or NULL */
    struct share_info *info;                    /* [size] */
    struct share_result *result;                /* [size] */
    uint32_t *first;                            /* [size] the lowest rank with the same label */
    int32_t *cause; /* [size] by lowest rank: why the label cannot share */
    bool *crosses;  /* [size] by lowest rank: whether the label spans processes */
    struct twill_fd_passing fd_passing;
    struct twill_error *error;
};

/* --- memory ---------------------------------------------------------------------------------- */

/* Create this rank's memory. Errors are not returned but recorded in `info`, for all ranks. */
static void make_memory(struct share *share, bool shared, struct share_info *info)
{
    struct twill_shm_region *region = share->region;
    if (share->given != NULL) {
        region->given = true;
        region->fd = share->given->fd;
        region->mine = share->given->mapping;
        info->token_at = share->given->token_at;
    } else {
        if (shared)
            info->cause = (int32_t)twill_mapping_file(&region->fd, share->name, region->bytes);
        region->mine = twill_mapping_create(region->fd, region->bytes);
        if (region->mine != NULL && region->placer.place != NULL)
            region->placer.place(region->placer.user, region->mine->at, region->bytes);
    }
    if (region->mine == NULL)
        info->error = errno;
    info->mapping = (uintptr_t)region->mine;
}

/* Write the token that proves to others that they map this rank's memory. */
static void show_token(const struct twill_shm_region *region, size_t at, uint64_t token)
{
    atomic_store_explicit((_Atomic uint64_t *)((unsigned char *)region->mine->at + at), token,
                          memory_order_release);
}

/* Clear the token when all ranks have checked it. New memory also gives the page back, as its owner
 * may want it on another NUMA node. */
static void hide_token(const struct twill_shm_region *region, size_t at)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (region->given || madvise(region->mine->at, page, MADV_REMOVE) != 0)
        show_token(region, at, 0);
}

/* Drop users of the own memory; the last one unmaps it. */
static void drop_mine(const struct twill_shm_region *region, int64_t users)
{
    if (!region->given)
        twill_mapping_drop(region->mine, users);
}

static void view_close(struct rank_view *view, size_t bytes)
{
    if (view->mapping != NULL)
        twill_mapping_drop(view->mapping, 1);
    else if (view->at != NULL)
        munmap(view->at, bytes);
    if (view->fd >= 0)
        close(view->fd);
    *view = (struct rank_view){.fd = -1};
}

/* Return whether two ranks are threads of one process. If the pid namespace is unknown, two
 * containers look alike; then threads share like processes, and the first to close drops the locks
 * of the others, which are taken for dead. */
static bool in_one_process(const struct twill_host *a, const struct twill_host *b)
{
    return a->pid_namespace != 0 && twill_host_same_process(a, b);
}

/* --- agreement ------------------------------------------------------------------------------- */

static bool label_is_ours(const struct share *share, uint32_t rank)
{
    return share->first[rank] == share->first[share->region->rank];
}

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

/* Record why the label of a rank cannot share. */
static void record_cause(struct share *share, uint32_t rank, int32_t cause)
{
    share->cause[share->first[rank]] = cause;
    if (cause != TWILL_SHARE_FINE)
        snprintf(share->region->why, sizeof(share->region->why), "%s: %s",
                 SHARE_RANK_NAME(share, rank), twill_share_cause_text(cause));
}

/* Check the first exchange. All ranks come to the same result, errors included. */
static twill_status check_infos(struct share *share)
{
    const struct share_info *info = share->info;
    for (uint32_t r = 0; r < (uint32_t)share->oob->size; r++) {
        uint32_t f = share->first[r];
        if (info[r].error != 0)
            return TWILL_FAIL(share->error, TWILL_ERR_MEMORY,
                              "%s (%s) could not map %llu bytes of address space: %s (ulimit -v? "
                              "TWILL_TUNE=heap_limit says how much is reserved for twill_alloc)",
                              SHARE_RANK_NAME(share, r), info[r].host.name,
                              (unsigned long long)info[r].bytes, strerror(info[r].error));
        if (info[r].bytes != info[f].bytes)
            return TWILL_FAIL(share->error, TWILL_ERR_MISMATCH,
                              "%s asks for %llu bytes of shared memory, %s of its node for %llu",
                              SHARE_RANK_NAME(share, r), (unsigned long long)info[r].bytes,
                              SHARE_RANK_NAME(share, f), (unsigned long long)info[f].bytes);
        if (!in_one_process(&info[r].host, &info[f].host))
            share->crosses[f] = true;
    }
    for (uint32_t r = 0; r < (uint32_t)share->oob->size; r++) /* threads need no file */
        if (share->crosses[share->first[r]] && share->cause[share->first[r]] == TWILL_SHARE_FINE)
            record_cause(share, r, info[r].cause);
    return TWILL_OK;
}

/* Use the mappings of this process's other threads, and count them as users of ours. */
static void adopt_threads(struct share *share)
{
    struct twill_shm_region *region = share->region;
    const struct twill_host *host = &share->info[region->rank].host;
    int64_t users = 1;
    for (int r = 0; r < region->size; r++) {
        if (r == region->rank || !label_is_ours(share, (uint32_t)r) ||
            !in_one_process(&share->info[r].host, host))
            continue;
        users++;
        struct rank_view *view = &region->view[r];
        view->mapping = (struct twill_mapping *)(uintptr_t)share->info[r].mapping;
        view->at = view->mapping->at;
    }
    drop_mine(region, TWILL_MAPPING_USERS_UNKNOWN - users);
}

/* --- between processes ----------------------------------------------------------------------- */

static twill_status list_peers(struct share *share)
{
    struct twill_shm_region *region = share->region;
    struct twill_fd_passing *fd_passing = &share->fd_passing;
    fd_passing->file = region->fd;
    fd_passing->peers = calloc((size_t)region->size, sizeof(*fd_passing->peers));
    if (fd_passing->peers == NULL)
        return TWILL_FAIL(share->error, TWILL_ERR_MEMORY, "no memory to list %d ranks",
                          region->size);
    for (int r = 0; r < region->size; r++)
        if (r != region->rank && label_is_ours(share, (uint32_t)r) &&
            region->view[r].mapping == NULL)
            fd_passing->peers[fd_passing->peer_count++] =
                (struct twill_fd_passing_peer){.rank = (uint32_t)r,
                                               .name = share->info[r].name,
                                               .key = share->info[r].key,
                                               .socket = -1,
                                               .fd = -1};
    return TWILL_OK;
}

/* Exchange results, and record why labels cannot share. Fails if a peer timed out. */
static twill_status exchange_results(struct share *share, enum twill_share_cause cause)
{
    const struct twill_fd_passing *fd_passing = &share->fd_passing;
    struct share_result mine = {.cause = (int32_t)cause,
                                .late = fd_passing->late,
                                .phase = (int32_t)fd_passing->phase,
                                .lost = fd_passing->lost};
    struct twill_error why = {0};
    twill_status status = twill_oob_allgather(share->oob, &mine, share->result, sizeof(mine), &why);
    if (status < 0 && fd_passing->lost != UINT32_MAX)
        return twill_fd_passing_fail(fd_passing, why.message, share->error);
    if (status < 0)
        return TWILL_FAIL(share->error, status, "%s, sharing memory: %s",
                          SHARE_RANK_NAME(share, share->oob->rank), why.message);
    for (uint32_t r = 0; r < (uint32_t)share->oob->size; r++) {
        const struct share_result *theirs = &share->result[r];
        if (theirs->late)
            return TWILL_FAIL(
                share->error, TWILL_ERR_TIMEOUT, "%s waited %llu s for the memory of %s (%s)",
                SHARE_RANK_NAME(share, r),
                (unsigned long long)(share->oob->timeout_ns / 1000000000u),
                SHARE_RANK_NAME(share, theirs->lost), twill_fd_passing_phase_text(theirs->phase));
        int32_t ours = share->cause[share->first[r]];
        /* A rank that gives up hangs up and is "lost" to others: its own reason is better. */
        if (ours == TWILL_SHARE_FINE || (ours == TWILL_SHARE_LOST && theirs->cause > 0))
            record_cause(share, r, theirs->cause);
    }
    return TWILL_OK;
}

static uint64_t token_of(const struct share_info *info)
{
    return info->key | 1; /* never 0, as new memory is */
}

/* Map the files of the peers, and check that these are what they write to. */
static enum twill_share_cause map_peers(struct share *share)
{
    struct twill_shm_region *region = share->region;
    for (size_t i = 0; i < share->fd_passing.peer_count; i++) {
        struct twill_fd_passing_peer *peer = &share->fd_passing.peers[i];
        struct rank_view *view = &region->view[peer->rank];
        view->fd = peer->fd;
        peer->fd = -1;
        struct stat about;
        /* Mapped beyond its end, the first touch would be a SIGBUS. */
        if (fstat(view->fd, &about) != 0 || (uint64_t)about.st_size < region->bytes)
            return TWILL_SHARE_MAP;
        void *at = twill_mapping_map(view->fd, region->bytes);
        if (at == MAP_FAILED)
            return TWILL_SHARE_MAP;
        view->at = at;
        const struct share_info *info = &share->info[peer->rank];
        if (info->token_at > region->bytes - sizeof(uint64_t) ||
            atomic_load_explicit((_Atomic uint64_t *)((unsigned char *)at + info->token_at),
                                 memory_order_acquire) != token_of(info))
            return TWILL_SHARE_TOKEN;
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        view->locked = fcntl(view->fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    }
    return TWILL_SHARE_FINE;
}

/* Share with other processes. Each of the two steps ends with an exchange on all ranks, also those
 * with no peer. A rank that gives up closes its sockets first, so that none waits for it. */
static twill_status share_processes(struct share *share)
{
    struct twill_fd_passing *fd_passing = &share->fd_passing;
    int32_t *ours = &share->cause[share->first[share->region->rank]];
    bool crosses = share->crosses[share->first[share->region->rank]];
    enum twill_share_cause cause = TWILL_SHARE_FINE;
    if (crosses && *ours == TWILL_SHARE_FINE) {
        TWILL_TRY(share->error, list_peers(share));
        cause = twill_fd_passing_connect(fd_passing);
    }
    TWILL_TRY(share->error, exchange_results(share, cause));
    if (crosses && *ours == TWILL_SHARE_FINE) {
        cause = twill_fd_passing_exchange(fd_passing);
        if (cause == TWILL_SHARE_FINE)
            cause = map_peers(share);
    }
    twill_fd_passing_close(fd_passing);
    return exchange_results(share, cause);
}

/* --- public functions ------------------------------------------------------------------------ */

static void close_peers(struct twill_shm_region *region)
{
    for (int r = 0; r < region->size; r++)
        if (r != region->rank)
            view_close(&region->view[r], region->bytes);
}

/* Clear the token, close what is not needed, and set new labels where memory cannot be shared. */
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
    if (share->cause[own] != TWILL_SHARE_FINE)
        close_peers(region);
    if (region->fd < 0)
        return;
    hide_token(region, share->info[region->rank].token_at);
    if (!region->given && (share->cause[own] != TWILL_SHARE_FINE || !share->crosses[own])) {
        close(region->fd);
        region->fd = -1;
    }
}

static twill_status share_memory(struct share *share, uint32_t *label, const char **why)
{
    struct twill_shm_region *region = share->region;
    uint32_t size = (uint32_t)region->size;
    struct share_info mine;
    memset(&mine, 0, sizeof(mine));
    twill_host_describe(&mine.host);
    mine.bytes = region->bytes;
    find_first(share->first, label, size);
    bool shared = false;
    for (uint32_t r = 0; r < size; r++)
        shared = shared || (r != (uint32_t)region->rank && label_is_ours(share, r));
    make_memory(share, shared, &mine);
    if (region->fd >= 0) {
        mine.cause = (int32_t)twill_fd_passing_listen(&share->fd_passing, share->oob);
        mine.name = share->fd_passing.name;
        mine.key = share->fd_passing.key;
        if (region->mine != NULL)
            show_token(region, mine.token_at, token_of(&mine));
    }
    TWILL_TRY(share->error,
              twill_oob_allgather(share->oob, &mine, share->info, sizeof(mine), share->error));
    twill_status status = check_infos(share);
    if (status < 0 && region->mine != NULL) /* all ranks fail here: no thread will use it */
        drop_mine(region, TWILL_MAPPING_USERS_UNKNOWN - 1);
    TWILL_TRY(share->error, status);
    adopt_threads(share);
    bool any_crosses = false;
    for (uint32_t r = 0; r < size; r++)
        any_crosses = any_crosses || share->crosses[r];
    if (any_crosses)
        TWILL_TRY(share->error, share_processes(share));
    decide_labels(share, label, why);
    region->view[region->rank].at = region->mine->at;
    return TWILL_OK;
}

static void share_end(struct share *share)
{
    twill_fd_passing_close(&share->fd_passing);
    for (size_t i = 0; i < share->fd_passing.peer_count; i++)
        if (share->fd_passing.peers[i].fd >= 0)
            close(share->fd_passing.peers[i].fd);
    free(share->fd_passing.peers);
    free(share->info);
    free(share->result);
    free(share->first);
    free(share->cause);
    free(share->crosses);
}

static struct twill_shm_region *region_create(const struct twill_oob *oob, size_t bytes)
{
    struct twill_shm_region *region = calloc(1, sizeof(*region));
    if (region == NULL)
        return NULL;
    region->bytes = twill_round_up(twill_max(bytes, 1), (size_t)sysconf(_SC_PAGESIZE));
    region->rank = oob->rank;
    region->size = oob->size;
    region->fd = -1;
    region->view = calloc((size_t)oob->size, sizeof(*region->view));
    for (int r = 0; region->view != NULL && r < oob->size; r++)
        region->view[r].fd = -1;
    return region;
}

/* Share, with oob, name, given and error of `share` set. */
static twill_status share_all(struct share *share, struct twill_shm_region **made, uint32_t *label,
                              size_t bytes, const struct twill_shm_region_placer *placer,
                              const char **why)
{
    const struct twill_oob *oob = share->oob;
    size_t n = (size_t)oob->size;
    struct twill_shm_region *region = region_create(oob, bytes);
    share->region = region;
    share->info = calloc(n, sizeof(struct share_info));
    share->result = calloc(n, sizeof(struct share_result));
    share->first = calloc(n, sizeof(uint32_t));
    share->cause = calloc(n, sizeof(int32_t));
    share->crosses = calloc(n, sizeof(bool));
    share->fd_passing = (struct twill_fd_passing){.listener = -1, .file = -1, .lost = UINT32_MAX};
    twill_status status = TWILL_OK;
    *made = NULL;
    if (region == NULL || region->view == NULL || share->info == NULL || share->result == NULL ||
        share->first == NULL || share->cause == NULL || share->crosses == NULL)
        status = TWILL_FAIL(share->error, TWILL_ERR_MEMORY, "%s: no memory to share among %d ranks",
                            TWILL_RANK_NAME(oob->job, oob->rank), oob->size);
    if (status == TWILL_OK && placer != NULL)
        region->placer = *placer;
    if (status == TWILL_OK)
        status = share_memory(share, label, why);
    share_end(share);
    if (status < 0) {
        twill_shm_region_close(region);
        return twill_error_pass(share->error, status, __FILE__, __LINE__);
    }
    *made = region;
    return TWILL_OK;
}

twill_status twill_shm_region_share(struct twill_shm_region **region, struct twill_oob *oob,
                                    uint32_t *label, size_t bytes,
                                    const struct twill_shm_region_placer *placer, const char **why,
                                    struct twill_error *error)
{
    struct share share = {.oob = oob, .name = TWILL_MAPPING_COMM, .error = error};
    return share_all(&share, region, label, bytes, placer, why);
}

twill_status twill_shm_region_share_given(struct twill_shm_region **region, struct twill_oob *oob,
                                          uint32_t *label, size_t bytes,
                                          const struct twill_shm_region_given *given,
                                          const char **why, struct twill_error *error)
{
    struct share share = {.oob = oob, .name = TWILL_MAPPING_HEAP, .given = given, .error = error};
    return share_all(&share, region, label, bytes, NULL, why);
}

void twill_shm_region_close(struct twill_shm_region *region)
{
    if (region == NULL)
        return;
    if (region->view != NULL)
        close_peers(region);
    if (region->mine != NULL && region->placer.unplace != NULL)
        region->placer.unplace(region->placer.user, region->bytes);
    if (region->mine != NULL)
        drop_mine(region, 1);
    if (region->fd >= 0 && !region->given)
        close(region->fd);
    free(region->view);
    free(region);
}

size_t twill_shm_region_bytes(const struct twill_shm_region *region)
{
    return region->bytes;
}

void *twill_shm_region_at(const struct twill_shm_region *region, uint32_t rank)
{
    return rank < (uint32_t)region->size ? region->view[rank].at : NULL;
}

bool twill_shm_region_owner_dead(const struct twill_shm_region *region, uint32_t rank)
{
    if (rank >= (uint32_t)region->size || region->view[rank].fd < 0 || !region->view[rank].locked)
        return false;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(region->view[rank].fd, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of a shared region: what shared_region.c, which opens it, and shared_region_files.c,
 * which exchanges its files, have in common. */
#ifndef TWILL_SHARED_REGION_STATE_H
#define TWILL_SHARED_REGION_STATE_H

#include "fabric/host/host_identity.h"
#include "fabric/shm/fd_passing.h"
#include "fabric/shm/mapping.h"
#include "fabric/shm/shared_region.h"

/* This rank's mapping of one rank's memory. */
struct twill_rank_view {
    void *at;                      /* what all ranks of the node map */
    void *pair;                    /* what only its owner and this rank map, or NULL */
    struct twill_mapping *mapping; /* if it is a thread of this process */
    uint32_t local;                /* its place among the ranks of its label, from 0 */
    bool locked;                   /* it is another process's, which has locked its byte */
};

struct twill_shm_region {
    size_t bytes;      /* that all ranks of the label map; 0: not attached */
    size_t pair_bytes; /* behind them for each rank of the label */
    size_t own_bytes;  /* of this rank's memory: both */
    int rank, size;
    int fd;     /* own memfd, or -1; closing it or any duplicate in this process drops the lock */
    int next;   /* that of the next rank if memory is visible: where that has died, readers outside
                   the job find it here; else -1 */
    bool given; /* fd and mine belong to the caller */
    char why[TWILL_RANK_TEXT + 96]; /* why memory is not shared */
    struct twill_mapping *mine;
    size_t token_at;                       /* offset of the token in `mine` */
    struct twill_shm_region_placer placer; /* placer of mine; all NULL: none */
    bool placed;                           /* as it says */
    struct twill_rank_view *view;          /* [size] */
    /* The file that shows who lives: the lowest rank of the label creates it, and every process has
     * one descriptor of it and locks the bytes of its ranks. Of all threads of this process, as
     * closing any descriptor of it drops all locks of the process. NULL: not shared. */
    struct twill_mapping *life;
    struct share *share; /* until it is concluded; shared_region.c */
};

/* Lock or unlock (F_WRLCK, F_UNLCK) the byte of a rank of this process in a life file. Returns
 * whether that was possible. */
bool twill_life_lock(const struct twill_mapping *life, short how, uint32_t rank);
/* Return whether another process has locked the byte of a rank; true if that cannot be found out.
 */
bool twill_life_is_locked(const struct twill_mapping *life, uint32_t rank);

/* Unmap a rank's memory, or stop using the mapping of its thread. */
void twill_rank_view_close(const struct twill_shm_region *region, uint32_t rank);

#define SHARE_RANK_NAME(share, rank) TWILL_RANK_NAME((share)->oob->job, rank)

/* First exchange: a rank's host and socket. */
struct share_info {
    struct twill_host host;
    uint64_t name, key; /* socket name and secret */
    int32_t cause;      /* enum twill_share_cause */
};

/* Second exchange: the result of a rank. */
struct share_result {
    uint64_t mapping; /* address of its struct twill_mapping, valid in its process */
    uint64_t bytes;
    int32_t cause; /* enum twill_share_cause */
    int32_t late;
    int32_t phase; /* enum twill_fd_passing_phase of the one that timed out */
    uint32_t lost;
    uint64_t life;  /* of the first rank of a process: like `mapping`, of its life file */
    int32_t locked; /* of the first rank of a process: it has locked the bytes of its ranks there */
    uint32_t first; /* first rank of its process and label */
};

/* What opening a region needs. */
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

/* Write the token that proves to others that they map this rank's memory; 0 when all ranks have
 * checked it. */
static inline void twill_share_show_token(const struct twill_shm_region *region, uint64_t token)
{
    unsigned char *at = (unsigned char *)region->mine->at + region->token_at;
    atomic_store_explicit((_Atomic uint64_t *)at, token, memory_order_release);
}

/* Return whether two ranks are threads of one process. If the pid namespace is unknown, two
 * containers look alike; then threads share like processes, and the first to close drops the locks
 * of the others, which are taken for dead. */
static inline bool twill_share_in_one_process(const struct twill_host *a,
                                              const struct twill_host *b)
{
    return a->pid_namespace != 0 && twill_host_same_process(a, b);
}

static inline bool twill_share_is_ours(const struct share *share, uint32_t rank)
{
    return share->first[rank] == share->first[share->region->rank];
}

/* Return whether a rank of our label is a thread of this process. */
static inline bool twill_share_is_thread(const struct share *share, int rank)
{
    return twill_share_is_ours(share, (uint32_t)rank) &&
           twill_share_in_one_process(&share->info[rank].host, &share->own_info.host);
}

/* Share this rank's memory with the other processes of the label, map theirs, and lock the bytes of
 * this process's ranks in the life file. *cause: why that cannot be. */
twill_status twill_share_files(struct share *share, enum twill_share_cause *cause,
                               struct twill_error *error);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of a shared region: what shared_region.c, which opens it, and shared_region_view.c,
 * which reads it, have in common. */
#ifndef TWILL_SHARED_REGION_STATE_H
#define TWILL_SHARED_REGION_STATE_H

#include "fabric/shm/mapping.h"
#include "fabric/shm/shared_region.h"

/* This rank's mapping of one rank's memory. */
struct twill_rank_view {
    void *at;
    struct twill_mapping *mapping; /* if it is a thread of this process */
    int fd;                        /* of another process: kept to test its lock */
    bool locked;                   /* its lock was visible */
};

struct twill_shm_region {
    size_t bytes; /* 0: not attached */
    int rank, size;
    int fd;     /* own memfd, or -1; closing it or any duplicate in this process drops the lock */
    bool given; /* fd and mine belong to the caller */
    char why[TWILL_RANK_TEXT + 96]; /* why memory is not shared */
    struct twill_mapping *mine;
    size_t token_at;                       /* offset of the token in `mine` */
    struct twill_shm_region_placer placer; /* placer of mine; all NULL: none */
    bool placed;                           /* as it says */
    struct twill_rank_view *view;          /* [size] */
    struct share *share;                   /* until it is concluded; shared_region.c */
};

/* Unmap `bytes` of a rank's memory, or stop using the mapping of its thread. */
void twill_rank_view_close(struct twill_rank_view *view, size_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a shared region: internal to shared_region.c, and for its test. */
#ifndef TWILL_SHARED_REGION_STATE_H
#define TWILL_SHARED_REGION_STATE_H

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
    struct share *share; /* until it is concluded */
};

#endif

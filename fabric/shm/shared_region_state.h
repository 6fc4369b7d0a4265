/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a shared region: internal to this folder, and for its test. */
#ifndef TWILL_SHARED_REGION_STATE_H
#define TWILL_SHARED_REGION_STATE_H

#include "fabric/shm/mapping.h"
#include "fabric/shm/shared_region.h"

/* This rank's mapping of one rank's memory, an entry of region->view[]. */
struct twill_rank_view {
    void *at;                      /* the part that all ranks of the node map */
    void *pair;                    /* the part that only its owner and this rank map, or NULL */
    void *room;                    /* the room, which all ranks of the node map, or NULL */
    struct twill_mapping *mapping; /* if it is a thread of this process */
    uint32_t local;                /* its place among the ranks of its label, from 0 */
    bool locked;                   /* it is another process's, which has locked its byte */
};

/* One region of one thread, made by twill_shm_region_offer(), freed by twill_shm_region_close(). */
struct twill_shm_region {
    size_t bytes;      /* of a rank's memory that all ranks of the label map, 0 if not attached */
    size_t pair_bytes; /* behind these for each rank of the label, mapped by it and the owner */
    size_t own_bytes;  /* all bytes of this rank's memory, without the room */
    size_t room_bytes; /* behind these, of each rank, mapped by all ranks of the label */
    int rank, size;
    int fd;   /* own memfd, or -1 (closing any duplicate in this process drops the lock) */
    int next; /* memfd of the next rank of another process if memory is visible, else -1.
                 Readers outside the job find that memory here after that rank has died. */
    uint32_t next_rank; /* that rank, if there is one */
    bool given;         /* fd and mine belong to the caller of twill_shm_region_attach() */
    char why[TWILL_RANK_TEXT + 96]; /* why memory is not shared */
    struct twill_mapping *mine;
    size_t token_at;                       /* offset in `mine` of the token */
    struct twill_shm_region_placer placer; /* placer of `mine`, all NULL if there is none */
    bool placed;                           /* result of its place() */
    struct twill_rank_view *view;          /* [size] */
    /* The file that shows which ranks live, NULL if memory is not shared. The lowest rank of the
     * label creates it. Every process has one descriptor of it and locks the bytes of its ranks.
     * All threads of the process share that descriptor, as closing any of them drops all locks. */
    struct twill_mapping *life;
    struct share *share; /* state of creation, NULL after twill_shm_region_conclude() */
};

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Other ranks' memory in a shared region: where it is, whether its owner lives, and giving it back.
 */
#include "fabric/shm/shared_region_state.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

void twill_rank_view_close(const struct twill_shm_region *region, uint32_t rank)
{
    struct twill_rank_view *view = &region->view[rank];
    if (view->mapping != NULL) {
        twill_mapping_drop(view->mapping, 1);
    } else {
        if (view->at != NULL)
            munmap(view->at, region->bytes);
        if (view->pair != NULL)
            munmap(view->pair, region->pair_bytes);
    }
    *view = (struct twill_rank_view){.local = view->local};
}

size_t twill_shm_region_bytes(const struct twill_shm_region *region)
{
    return region->own_bytes;
}

void *twill_shm_region_at(const struct twill_shm_region *region, uint32_t rank)
{
    return rank < (uint32_t)region->size ? region->view[rank].at : NULL;
}

void *twill_shm_region_pair(const struct twill_shm_region *region, uint32_t owner, uint32_t other)
{
    const struct twill_rank_view *view = region->view;
    if (owner != (uint32_t)region->rank)
        return view[owner].pair;
    return (unsigned char *)view[owner].at + region->bytes + view[other].local * region->pair_bytes;
}

/* --- who lives ------------------------------------------------------------------------------- */

bool twill_life_lock(const struct twill_mapping *life, short how, uint32_t rank)
{
    struct flock lock = {.l_type = how, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return fcntl(life->fd, F_SETLK, &lock) == 0;
}

bool twill_life_is_locked(const struct twill_mapping *life, uint32_t rank)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return fcntl(life->fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

bool twill_shm_region_owner_dead(const struct twill_shm_region *region, uint32_t rank)
{
    return rank < (uint32_t)region->size && region->view[rank].locked &&
           !twill_life_is_locked(region->life, rank);
}

bool twill_shm_region_release(struct twill_shm_region *region, uint32_t rank)
{
    bool released = rank != (uint32_t)region->rank && twill_shm_region_owner_dead(region, rank);
    if (released)
        twill_rank_view_close(region, rank);
    return released;
}

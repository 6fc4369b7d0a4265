/* SPDX-License-Identifier: Apache-2.0 */
/* Other ranks' memory in a shared region: where it is, whether its owner lives, and giving it back.
 */
#include "fabric/shm/shared_region_state.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

void twill_rank_view_close(struct twill_rank_view *view, size_t bytes)
{
    if (view->mapping != NULL)
        twill_mapping_drop(view->mapping, 1);
    else if (view->at != NULL)
        munmap(view->at, bytes);
    if (view->fd >= 0)
        close(view->fd);
    *view = (struct twill_rank_view){.fd = -1};
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

bool twill_shm_region_release(struct twill_shm_region *region, uint32_t rank)
{
    bool released = rank != (uint32_t)region->rank && twill_shm_region_owner_dead(region, rank);
    if (released)
        twill_rank_view_close(&region->view[rank], region->bytes);
    return released;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/shm/node_view.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct twill_node_view *twill_node_view_open(int fd, const char **why)
{
    struct stat about;
    struct twill_node_view *view = calloc(1, sizeof(*view));
    *why = "it cannot be mapped";
    if (view == NULL || fstat(fd, &about) != 0 ||
        (size_t)about.st_size < sizeof(struct twill_node_area)) {
        free(view);
        return NULL;
    }
    view->bytes = (size_t)about.st_size;
    view->area = mmap(NULL, view->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (view->area == MAP_FAILED) {
        free(view);
        return NULL;
    }
    view->node = (struct twill_node){.size = 1, .area = &view->area};
    if (!twill_node_find_trace(&view->node, view->bytes)) {
        *why = "another version of twill has made it";
        twill_node_view_close(view);
        return NULL;
    }
    return view;
}

void twill_node_view_close(struct twill_node_view *view)
{
    if (view == NULL)
        return;
    munmap(view->area, view->bytes);
    free(view);
}

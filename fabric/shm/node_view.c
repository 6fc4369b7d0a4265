/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/shm/node_view.h"
#include "fabric/shm/node_room.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where the memory of a communicator is in a file, and the entry of its part of the room. */
struct place {
    uint64_t at, bytes;
    uint64_t entry_at, state;        /* 0 for the region's own */
    struct twill_layout_line layout; /* written there */
};

/* Read `bytes` bytes of a file. Returns whether it has them. */
static bool read_at(int fd, void *to, size_t bytes, uint64_t at)
{
    return pread(fd, to, bytes, (off_t)at) == (ssize_t)bytes;
}

/* Set *place to the first part of the room that is in use, from part *part on, and *part to the
 * next one. `region` is the layout of the region, which has file_bytes. Returns whether there is
 * one. What is written there may be wrong. */
static bool find_part(int fd, uint64_t file_bytes, const struct twill_layout_line *region,
                      uint64_t *part, struct place *place)
{
    uint64_t room_at = region->room_at, room_bytes = region->room_bytes;
    struct twill_room_entry entry;
    if (region->magic != TWILL_NODE_MAGIC || room_at >= file_bytes || room_at % 4096 != 0 ||
        room_bytes > file_bytes - room_at ||
        room_bytes <= TWILL_ROOM_FIRST + sizeof(struct twill_node_area))
        return false;
    for (; *part < TWILL_ROOM_PARTS; ++*part) {
        uint64_t entry_at = room_at + *part * sizeof(entry);
        if (!read_at(fd, &entry, sizeof(entry), entry_at) || entry.state == 0)
            return false; /* neither it nor a later one was ever in use */
        uint64_t at = entry.at;
        if (entry.state % 4 != TWILL_ROOM_USED || at < TWILL_ROOM_FIRST || at % 4096 != 0 ||
            at > room_bytes - sizeof(struct twill_node_area) || entry.bytes > room_bytes - at)
            continue;
        *place = (struct place){room_at + at, entry.bytes, entry_at, entry.state, {0}};
        ++*part;
        return read_at(fd, &place->layout, sizeof(place->layout), place->at);
    }
    return false;
}

/* Return how many bytes of a place the file has. */
static uint64_t count_bytes(int fd, const struct place *place)
{
    const off_t end = (off_t)(place->at + place->bytes);
    uint64_t bytes = 0;
    for (off_t at = (off_t)place->at; at < end;) {
        off_t from = lseek(fd, at, SEEK_DATA), to = from < 0 ? end : lseek(fd, from, SEEK_HOLE);
        if (from < 0 || from >= end)
            break;
        at = to > from && to < end ? to : end;
        bytes += (uint64_t)(at - from);
    }
    return bytes;
}

/* Map the memory at *place. Returns the view or NULL. */
static struct twill_node_view *map_place(int fd, const struct place *place)
{
    struct twill_node_view *view = calloc(1, sizeof(*view));
    struct twill_room_entry entry = {.state = place->state};
    if (view == NULL || !twill_node_find_trace(&view->node, &place->layout, place->bytes)) {
        free(view);
        return NULL;
    }
    view->bytes = view->node.trace_at + TWILL_NODE_TRACE_BYTES;
    view->area = mmap(NULL, view->bytes, PROT_READ, MAP_SHARED, fd, (off_t)place->at);
    if (view->area == MAP_FAILED) {
        free(view);
        return NULL;
    }
    view->node.size = 1;
    view->node.area = &view->area;
    view->owner = view->area->owner;
    view->exists = count_bytes(fd, place);
    view->most = place->bytes;
    if (place->entry_at > 0 &&
        (!read_at(fd, &entry, sizeof(entry), place->entry_at) || entry.state != place->state))
        view->owner.job = 0; /* its communicator has ended meanwhile */
    return view;
}

struct twill_node_view *twill_node_view_open(int fd, uint64_t *part, const char **why)
{
    struct stat about;
    struct place own = {.at = 0}, place;
    *why = "it cannot be read";
    if (fstat(fd, &about) != 0 || (size_t)about.st_size < sizeof(struct twill_node_area) ||
        !read_at(fd, &own.layout, sizeof(own.layout), 0)) {
        *part = UINT64_MAX;
        return NULL;
    }
    own.bytes = (uint64_t)about.st_size;
    if (own.layout.room_at > 0 && own.layout.room_at < own.bytes)
        own.bytes = own.layout.room_at;
    if (*part == 0)
        place = own;
    else if (!find_part(fd, (uint64_t)about.st_size, &own.layout, part, &place)) {
        *part = UINT64_MAX;
        return NULL;
    }
    *part += *part == 0;
    *why = "another version of twill has made it";
    return map_place(fd, &place);
}

void twill_node_view_close(struct twill_node_view *view)
{
    if (view == NULL)
        return;
    munmap(view->area, view->bytes);
    free(view);
}

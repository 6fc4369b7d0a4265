/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/shm/node_room.h"
#include "fabric/shm/mapping.h"
#include "fabric/shm/node_memory.h"
#include "fabric/shm/shared_region.h"
#include "numa/memory.h"

#include <pthread.h>
#include <stdlib.h>

#define NO_PART     UINT32_MAX
#define CHECKED     8u  /* parts that wait for ranks, looked at in one call */
#define DEATH_EVERY 16u /* looks at a part, of which one asks whether a rank has died */
#define BARRIER     (UINT64_C(1) << 32)

/* A part of this rank's room that has been given out at least once. */
struct part {
    size_t at, bytes;
    uint64_t turn;
    bool placed;          /* by the placer of its last user, on other NUMA nodes than the room */
    uint32_t next, looks; /* next: in a list, or NO_PART */
    /* Of a part that waits: its ranks in the region and their parts, [size]. */
    uint32_t size, *rank;
    struct twill_room_place *place;
};

struct twill_room {
    pthread_mutex_t lock; /* guards what follows, as communicators may be of different threads */
    struct twill_shm_region *region;
    uint32_t rank;
    unsigned users;    /* communicators with a part */
    size_t bytes, end; /* of the room, and of the parts given out so far */
    size_t *open;      /* [ranks of the region] bytes of its room that this rank may access */
    int near;          /* NUMA node of the room's pages, -1 for where they are touched first */
    struct part *part; /* [parts] */
    uint32_t parts, capacity;
    uint32_t free;        /* list of free parts */
    uint32_t first, last; /* queue of parts that wait for other ranks to leave */
    size_t waiting;
};

static struct twill_room_entry *entry_of(const struct twill_room *room, uint32_t rank,
                                         uint64_t part)
{
    return (struct twill_room_entry *)twill_shm_region_room(room->region, rank) + part;
}

/* Set the state of this rank's part. */
static void set_state(const struct twill_room *room, const struct twill_room_place *place,
                      enum twill_room_state state)
{
    atomic_store_explicit(&entry_of(room, room->rank, place->part)->state, place->turn * 4 + state,
                          memory_order_release);
}

/* Allow access to the first `bytes` bytes of the room of `rank`, and some more, as it costs a
 * system call. Returns whether they are there. Pages that no part has are shut for mlockall(). */
static bool open_to(struct twill_room *room, uint32_t rank, size_t bytes)
{
    unsigned char *at = twill_shm_region_room(room->region, rank);
    size_t open = room->open[rank], most = twill_max(bytes, open + open / 8);
    if (at == NULL || bytes > room->bytes)
        return false;
    if (bytes <= open)
        return true;
    most = twill_min(twill_round_up(most, TWILL_HUGE_PAGE), room->bytes);
    if (!twill_mapping_open(at + open, most - open, true))
        return false;
    room->open[rank] = most;
    return true;
}

/* Add a part that has not been given out. Returns it, or NO_PART if there is no room or memory. */
static uint32_t add_part(struct twill_room *room, size_t bytes)
{
    if (room->parts == TWILL_ROOM_PARTS || bytes > room->bytes - room->end ||
        !open_to(room, room->rank, room->end + bytes))
        return NO_PART;
    if (room->parts == room->capacity) {
        uint32_t capacity = room->capacity * 2 + 16;
        struct part *more = realloc(room->part, capacity * sizeof(*more));
        if (more == NULL)
            return NO_PART;
        room->part = more;
        room->capacity = capacity;
    }
    room->part[room->parts] = (struct part){.at = room->end, .bytes = bytes, .next = NO_PART};
    room->end += bytes;
    return room->parts++;
}

/* Open the directories of the `size` ranks of the region, and add part 0. Returns whether there was
 * memory. */
static bool begin(struct twill_room *room, uint32_t size)
{
    room->open = calloc(size, sizeof(*room->open));
    bool fine = room->open != NULL;
    for (uint32_t r = 0; r < size && fine; r++)
        fine = twill_shm_region_room(room->region, r) == NULL || open_to(room, r, TWILL_ROOM_FIRST);
    return fine && add_part(room, 0) != NO_PART && pthread_mutex_init(&room->lock, NULL) == 0;
}

twill_status twill_room_create(struct twill_room **made, struct twill_shm_region *region,
                               uint32_t rank, uint32_t size, size_t bytes,
                               struct twill_error *error)
{
    struct twill_room *room = calloc(1, sizeof(*room));
    if (room != NULL) {
        *room = (struct twill_room){.region = region,
                                    .rank = rank,
                                    .users = 1,
                                    .bytes = bytes,
                                    .end = TWILL_ROOM_FIRST,
                                    .near = -1};
        room->free = room->first = room->last = NO_PART;
    }
    if (room == NULL || !begin(room, size)) {
        if (room != NULL) {
            free(room->part);
            free(room->open);
        }
        free(room);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
    }
    set_state(room, &(struct twill_room_place){.at = 0}, TWILL_ROOM_USED);
    *made = room;
    return TWILL_OK;
}

void twill_room_near(struct twill_room *room, int node)
{
    room->near = node;
    (void)twill_memory_prefer(twill_shm_region_room(room->region, room->rank), room->bytes, node);
}

bool twill_room_open(struct twill_room *room, uint32_t rank, const struct twill_room_place *place,
                     size_t bytes)
{
    pthread_mutex_lock(&room->lock);
    bool open = place->at < room->bytes && bytes <= room->bytes - place->at &&
                place->part < TWILL_ROOM_PARTS && open_to(room, rank, place->at + bytes);
    pthread_mutex_unlock(&room->lock);
    return open;
}

static bool is_open(uint64_t state, uint64_t turn)
{
    return state == turn * 4 + TWILL_ROOM_IDLE || state == turn * 4 + TWILL_ROOM_USED;
}

/* Return whether all other ranks have left this part or, if `death`, seem to have died, which sets
 * *died: a process that has closed all its descriptors seems so as well. */
static bool all_have_left(const struct twill_room *room, const struct part *part, bool death,
                          bool *died)
{
    *died = false;
    for (uint32_t i = 0; i < part->size; i++) {
        const struct twill_room_place *place = &part->place[i];
        if (part->rank[i] == room->rank)
            continue;
        bool unmapped = twill_shm_region_room(room->region, part->rank[i]) == NULL;
        if (!unmapped &&
            !is_open(atomic_load_explicit(&entry_of(room, part->rank[i], place->part)->state,
                                          memory_order_acquire),
                     place->turn))
            continue;
        if (!unmapped && !(death && twill_shm_region_owner_dead(room->region, part->rank[i])))
            return false;
        *died = true;
    }
    return true;
}

/* Return a part's pages to the kernel, so that it is zeros, and put it into the list of free ones,
 * placed as the room is. If the kernel does not take them, or if a rank that has not left may still
 * `write` to it, it is used no more. Part 0 is the region's own memory. */
static void free_part(struct twill_room *room, uint32_t index, bool write)
{
    struct part *part = &room->part[index];
    size_t own = twill_shm_region_bytes(room->region);
    free(part->rank);
    free(part->place);
    part->rank = NULL;
    part->place = NULL;
    part->size = part->looks = 0;
    if (index == 0) {
        struct twill_node_area *area = twill_shm_region_at(room->region, room->rank);
        struct twill_layout_line layout = area->layout; /* readers outside find the room by it */
        (void)twill_shm_region_discard(room->region, 0, own);
        area->layout = layout;
    } else if (twill_shm_region_discard(room->region, own + part->at, part->bytes) && !write) {
        unsigned char *at = twill_shm_region_room(room->region, room->rank);
        if (part->placed)
            (void)twill_memory_prefer(at + part->at, part->bytes, room->near);
        part->placed = false;
        part->next = room->free;
        room->free = index;
    }
}

/* Free parts that all ranks have left, of the few that were looked at longest ago. */
static void reap(struct twill_room *room)
{
    for (unsigned i = 0; i < CHECKED && room->first != NO_PART; i++) {
        uint32_t index = room->first;
        struct part *part = &room->part[index];
        bool last = room->last == index;
        room->first = part->next;
        room->last = last ? NO_PART : room->last;
        part->next = NO_PART;
        bool died;
        if (all_have_left(room, part, ++part->looks % DEATH_EVERY == 0, &died)) {
            room->waiting--;
            free_part(room, index, died);
            continue;
        }
        if (room->last != NO_PART)
            room->part[room->last].next = index;
        else
            room->first = index;
        room->last = index;
        if (last)
            return;
    }
}

/* Return a free part of `bytes` bytes, taken out of its list or added, or NO_PART. */
static uint32_t find_free(struct twill_room *room, size_t bytes)
{
    uint32_t *link = &room->free;
    while (*link != NO_PART && room->part[*link].bytes != bytes)
        link = &room->part[*link].next;
    uint32_t index = *link;
    if (index == NO_PART)
        return add_part(room, bytes);
    *link = room->part[index].next;
    return index;
}

struct twill_room_place twill_room_take(struct twill_room *room, size_t bytes)
{
    struct twill_room_place place = {.at = 0};
    pthread_mutex_lock(&room->lock);
    reap(room);
    uint32_t index = find_free(room, bytes);
    if (index != NO_PART) {
        struct part *part = &room->part[index];
        struct twill_room_entry *entry = entry_of(room, room->rank, index);
        part->next = NO_PART;
        place = (struct twill_room_place){.at = part->at, .part = index, .turn = ++part->turn};
        atomic_store_explicit(&entry->at, part->at, memory_order_relaxed);
        atomic_store_explicit(&entry->bytes, part->bytes, memory_order_relaxed);
        atomic_store_explicit(&entry->leaving, 0, memory_order_relaxed);
        set_state(room, &place, TWILL_ROOM_IDLE);
        room->users++;
    }
    pthread_mutex_unlock(&room->lock);
    return place;
}

/* Count a user less, the last of which closes the region, and unlock the room. */
static void drop(struct twill_room *room)
{
    bool last = --room->users == 0;
    pthread_mutex_unlock(&room->lock);
    if (!last)
        return;
    twill_shm_region_close(room->region);
    for (uint32_t i = 0; i < room->parts; i++) {
        free(room->part[i].rank);
        free(room->part[i].place);
    }
    pthread_mutex_destroy(&room->lock);
    free(room->part);
    free(room->open);
    free(room);
}

bool twill_room_holds(const struct twill_room *room, const struct twill_room_place *place)
{
    return place->at > 0 &&
           is_open(atomic_load_explicit(&entry_of(room, room->rank, place->part)->state,
                                        memory_order_acquire),
                   place->turn);
}

void twill_room_give(struct twill_room *room, const struct twill_room_place *place, bool unknown)
{
    pthread_mutex_lock(&room->lock);
    set_state(room, place, TWILL_ROOM_LEFT);
    if (unknown)
        free_part(room, (uint32_t)place->part, false);
    drop(room);
}

void twill_room_leave(struct twill_room *room, struct twill_node *node)
{
    const struct twill_room_place *own = &node->place[node->me];
    uint32_t index = (uint32_t)own->part;
    pthread_mutex_lock(&room->lock);
    struct part *part = &room->part[index];
    set_state(room, own, TWILL_ROOM_LEFT);
    part->rank = node->in_region;
    part->place = node->place;
    part->size = node->size;
    part->placed = node->placed;
    node->in_region = NULL;
    node->place = NULL;
    if (room->last != NO_PART)
        room->part[room->last].next = index;
    else
        room->first = index;
    room->last = index;
    room->waiting++;
    reap(room);
    drop(room);
}

bool twill_room_release(struct twill_room *room, uint32_t rank)
{
    pthread_mutex_lock(&room->lock);
    bool released = twill_shm_region_room(room->region, rank) != NULL &&
                    twill_shm_region_release(room->region, rank);
    pthread_mutex_unlock(&room->lock);
    return released;
}

/* Return the state of the part of local rank l, LEFT if its memory is unmapped, as it has died. */
static uint64_t state_of(const struct twill_node *node, uint32_t l)
{
    const struct twill_room_place *place = &node->place[l];
    if (twill_shm_region_room(node->region, node->in_region[l]) == NULL)
        return place->turn * 4 + TWILL_ROOM_LEFT;
    return atomic_load_explicit(&entry_of(node->room, node->in_region[l], place->part)->state,
                                memory_order_acquire);
}

bool twill_room_has_left(const struct twill_node *node, uint32_t l)
{
    return !is_open(state_of(node, l), node->place[l].turn);
}

bool twill_room_is_used(const struct twill_node *node, uint32_t l)
{
    return state_of(node, l) == node->place[l].turn * 4 + TWILL_ROOM_USED;
}

void twill_room_use(const struct twill_node *node)
{
    set_state(node->room, &node->place[node->me], TWILL_ROOM_USED);
}

size_t twill_room_count(struct twill_room *room)
{
    pthread_mutex_lock(&room->lock);
    size_t count = room->users + room->waiting;
    pthread_mutex_unlock(&room->lock);
    return count;
}

/* Return the word in which the ranks of the node arrive. Its lower half counts those that have not
 * used the communicator. BARRIER is set, for good, unless that is all of them. */
static _Atomic uint64_t *leaving_of(const struct twill_node *node)
{
    return &entry_of(node->room, node->in_region[0], node->place[0].part)->leaving;
}

void twill_room_arrive(const struct twill_node *node, bool used)
{
    if (used)
        atomic_fetch_or(leaving_of(node), BARRIER);
    else
        atomic_fetch_add(leaving_of(node), 1);
}

enum twill_room_outcome twill_room_outcome(const struct twill_node *node, bool enough)
{
    _Atomic uint64_t *word = leaving_of(node);
    uint64_t found = atomic_load(word);
    while (found < node->size && enough &&
           !atomic_compare_exchange_weak(word, &found, found | BARRIER))
        ;
    return found >= BARRIER || (found < node->size && enough) ? TWILL_ROOM_BARRIER
           : found == node->size                              ? TWILL_ROOM_UNUSED
                                                              : TWILL_ROOM_AWAITED;
}

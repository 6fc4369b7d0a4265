/* SPDX-License-Identifier: Apache-2.0 */
/* The room of a region, in which communicators made out of the one that owns it have their node
 * memory, so that making one shares no new memory. Each rank gives out parts of its own room. A
 * directory at its start says for each part whether its owner has left. Each rank writes only its
 * own. A part is used again, as zeros, once all ranks of the node have left its communicator. What
 * a rank that is shut out or seems dead still writes meets no later communicator. Threads of a rank
 * may use the room at the same time, for different communicators.
 */
#ifndef TWILL_NODE_ROOM_H
#define TWILL_NODE_ROOM_H

#include "lib/base/base.h"

#include <stdatomic.h>

struct twill_node;
struct twill_shm_region;
struct twill_room; /* this rank's view of the rooms, made by twill_room_create() */

#define TWILL_ROOM_PARTS 65536u
#define TWILL_ROOM_FIRST ((size_t)TWILL_ROOM_PARTS * sizeof(struct twill_room_entry))

/* An entry of the directory, in shared memory. */
struct twill_room_entry {
    _Atomic uint64_t state;   /* turn * 4 + enum twill_room_state */
    _Atomic uint64_t leaving; /* see twill_room_arrive() */
    _Atomic uint64_t at;      /* offset of the part in the room */
    _Atomic uint64_t bytes;   /* of the part */
};

/* The state of a part, which is open until its owner has left. Turn 0 of part 0, of the region's
 * own communicator, is so from the start. */
enum twill_room_state { TWILL_ROOM_IDLE, TWILL_ROOM_USED, TWILL_ROOM_LEFT };

/* The part of one rank for one communicator, a value, sent as it lies in memory. */
struct twill_room_place {
    uint64_t at; /* offset in the room; 0 if there is none */
    uint64_t part, turn;
};

/* Create *room of `bytes`, the room of `region`, which it closes with its last user. This is rank
 * `rank` of the `size` of the region. Its part 0 is in use, by the communicator of the region.
 * Returns TWILL_OK or TWILL_ERR_MEMORY. */
twill_status twill_room_create(struct twill_room **room, struct twill_shm_region *region,
                               uint32_t rank, uint32_t size, size_t bytes,
                               struct twill_error *error);
/* Have the pages of this rank's room made on a NUMA node (Linux's number), whoever touches them
 * first. -1 is the default. */
void twill_room_near(struct twill_room *room, int node);
/* Allow access to a part of another rank of the region. Returns whether it is in the room and that
 * worked. */
bool twill_room_open(struct twill_room *room, uint32_t rank, const struct twill_room_place *place,
                     size_t bytes);
/* Take a part of `bytes` bytes. Returns it, or a place with `at` 0 if the room is full. */
struct twill_room_place twill_room_take(struct twill_room *room, size_t bytes);
/* Return whether this rank has taken the part and neither given it back nor left it. */
bool twill_room_holds(const struct twill_room *room, const struct twill_room_place *place);
/* Give back a part for which no node memory was made. It is given out again only if it is `unknown`
 * to others, who else find that this rank has left. */
void twill_room_give(struct twill_room *room, const struct twill_room_place *place, bool unknown);
/* Leave the communicator of `node`, whose part is used again once all have left it. Takes over
 * node->place and node->in_region. The last user closes the region. */
void twill_room_leave(struct twill_room *room, struct twill_node *node);
/* Unmap the memory of a rank of the region that has died and is in none of this rank's
 * communicators any more. Returns false if that is done already or it lives. */
bool twill_room_release(struct twill_room *room, uint32_t rank);
/* Return whether local rank l has left the communicator of `node`. */
bool twill_room_has_left(const struct twill_node *node, uint32_t l);
/* Note that this rank has placed its part and uses it. */
void twill_room_use(const struct twill_node *node);
/* Return whether local rank l has done so. */
bool twill_room_is_used(const struct twill_node *node, uint32_t l);
/* Return how many parts are in use or wait for other ranks to leave, for tests. */
size_t twill_room_count(struct twill_room *room);

/* Ranks that leave a communicator which none of them has used need no barrier. Their outcome is in
 * one word of the node's first rank, so all find the same. */
enum twill_room_outcome {
    TWILL_ROOM_AWAITED, /* not all have arrived */
    TWILL_ROOM_UNUSED,  /* all have arrived, none has used the communicator */
    TWILL_ROOM_BARRIER  /* one has used it, or does not wait longer: all run the barrier */
};
/* Arrive, once, to leave the communicator, which this rank has `used` or not. */
void twill_room_arrive(const struct twill_node *node, bool used);
/* Return the outcome so far. If that is AWAITED and `enough`, make it BARRIER. */
enum twill_room_outcome twill_room_outcome(const struct twill_node *node, bool enough);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The board of a node holds entries that all its ranks would compute to the same result, such as
 * prices. The first rank that looks up a key computes its words and posts them, and the others read
 * them. Each rank's node memory of a communicator holds a part of it. Entries stay. If it is full,
 * ranks compute for themselves.
 *
 * An entry is free, then computing (its key is set by compare and swap), then posted or abandoned.
 * A rank that does not want to wait for another computes the same words itself. */
#ifndef TWILL_NODE_BOARD_H
#define TWILL_NODE_BOARD_H

#include "fabric/shm/node_memory.h"

#define TWILL_BOARD_WORDS 12

enum twill_board_state { TWILL_BOARD_COMPUTING, TWILL_BOARD_POSTED, TWILL_BOARD_ABANDONED };
/* An entry of the board, in node memory: a key and the words that each rank of the node would
 * compute for it. It lives as long as that memory. Only the rank that has set `key` writes the
 * other members. */
struct twill_board_entry {
    _Atomic uint64_t key;             /* 0 if free */
    _Atomic uint32_t state;           /* enum twill_board_state, a futex word */
    _Atomic uint32_t rank;            /* 1 + the local rank that computes it, 0 if not known yet */
    uint64_t word[TWILL_BOARD_WORDS]; /* the result, constant once posted */
} TWILL_ALIGNED(128);

/* Return the entry of `key` (not 0) on the board of results that the node shares, or NULL if there
 * is no place for it. If no rank had an entry for `key`, this makes one and sets *mine. This rank
 * must then compute the result and post it. Otherwise clears *mine, and another rank posts it. */
struct twill_board_entry *twill_board_find(const struct twill_node *node, uint64_t key, bool *mine);
/* Post this rank's entry, or abandon it if `words` is NULL, and wake those that wait. */
void twill_board_post(struct twill_board_entry *entry, const uint64_t words[TWILL_BOARD_WORDS]);
/* Wait until an entry is no longer being computed, or for timeout_ns. May return earlier. */
void twill_board_wait(struct twill_board_entry *entry, uint64_t timeout_ns);
/* Return the state of an entry. Its words may be read once that is TWILL_BOARD_POSTED. */
static inline enum twill_board_state twill_board_state(const struct twill_board_entry *entry)
{
    return (enum twill_board_state)atomic_load_explicit(&entry->state, memory_order_acquire);
}

#endif

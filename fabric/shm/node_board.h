/* SPDX-License-Identifier: Apache-2.0 */
/* The board of a node: entries that its ranks would all compute alike, such as prices. The first
 * rank that looks for a key computes its words and posts them, the others read them. It lies in the
 * node memory of a communicator, a part of it in the memory of each rank, and only grows: where it
 * is full, each rank computes for itself.
 *
 * An entry goes from free to computing (its key is set, by compare and swap) and then to posted or
 * abandoned. Nobody has to trust the rank that computes: whoever does not want to wait for it any
 * longer computes the same words without the board. */
#ifndef TWILL_NODE_BOARD_H
#define TWILL_NODE_BOARD_H

#include "fabric/shm/node_memory.h"

#define TWILL_BOARD_WORDS 12

enum twill_board_state { TWILL_BOARD_COMPUTING, TWILL_BOARD_POSTED, TWILL_BOARD_ABANDONED };

struct twill_board_entry {
    _Atomic uint64_t key;             /* 0: free */
    _Atomic uint32_t state;           /* enum twill_board_state; futex word */
    _Atomic uint32_t rank;            /* 1 + the local rank that computes it; 0: not known yet */
    uint64_t word[TWILL_BOARD_WORDS]; /* constant once posted */
} TWILL_ALIGNED(128);

/* Return the entry of a key, which is not 0; NULL if the board has no place for it. *mine: it was
 * free, and this rank must now compute and post it. */
struct twill_board_entry *twill_board_find(const struct twill_node *node, uint64_t key, bool *mine);
/* Post this rank's entry and wake those that wait; words NULL: they could not be computed. */
void twill_board_post(struct twill_board_entry *entry, const uint64_t words[TWILL_BOARD_WORDS]);
/* Wait until an entry is no longer being computed, or for timeout_ns. May return earlier. */
void twill_board_wait(struct twill_board_entry *entry, uint64_t timeout_ns);

static inline enum twill_board_state twill_board_state(const struct twill_board_entry *entry)
{
    return (enum twill_board_state)atomic_load_explicit(&entry->state, memory_order_acquire);
}

#endif

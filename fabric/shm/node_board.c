/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/shm/node_board.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Entries in the memory of each rank. */
#define ENTRIES                                                                                    \
    ((uint32_t)((TWILL_NODE_TRACE_BYTES - TWILL_NODE_BOARD_AT) / sizeof(struct twill_board_entry)))
/* Entries that are tried for a key before the board counts as full. */
#define MOST_TRIED 64u

/* Return an entry by its index. Neighbours are on different ranks, so few entries use few pages. */
static struct twill_board_entry *entry_at(const struct twill_node *node, uint64_t index)
{
    unsigned char *memory = twill_node_trace(node, (uint32_t)(index % node->size));
    struct twill_board_entry *part =
        (struct twill_board_entry *)(void *)(memory + TWILL_NODE_BOARD_AT);
    return &part[index / node->size];
}

struct twill_board_entry *twill_board_find(const struct twill_node *node, uint64_t key, bool *mine)
{
    const uint64_t entries = (uint64_t)ENTRIES * node->size;
    *mine = false;
    for (uint64_t i = 0; i < MOST_TRIED && i < entries; i++) {
        struct twill_board_entry *entry = entry_at(node, (key + i) % entries);
        uint64_t found = 0;
        *mine = atomic_compare_exchange_strong(&entry->key, &found, key);
        if (*mine)
            atomic_store_explicit(&entry->rank, node->me + 1, memory_order_relaxed);
        if (*mine || found == key)
            return entry;
    }
    return NULL;
}

void twill_board_post(struct twill_board_entry *entry, const uint64_t words[TWILL_BOARD_WORDS])
{
    if (words != NULL)
        memcpy(entry->word, words, sizeof(entry->word));
    atomic_store_explicit(&entry->state, words != NULL ? TWILL_BOARD_POSTED : TWILL_BOARD_ABANDONED,
                          memory_order_release);
    syscall(SYS_futex, &entry->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void twill_board_wait(struct twill_board_entry *entry, uint64_t timeout_ns)
{
    struct timespec limit = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                             .tv_nsec = (long)(timeout_ns % 1000000000u)};
    syscall(SYS_futex, &entry->state, FUTEX_WAIT, TWILL_BOARD_COMPUTING, &limit, NULL, 0);
}

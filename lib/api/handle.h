/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the objects that callers have handles of: contexts, communicators and requests. It is
 * mapped, and can still be read after the object's end: a handle that is used too late is found to
 * be dead, in memory that no other part of the program can have got meanwhile. */
#ifndef TWILL_HANDLE_H
#define TWILL_HANDLE_H

#include "lib/base.h"

/* The first word of a live context, and of a communicator, where TORN says that two threads have
 * used it at once. Any other value: the object has ended. */
#define TWILL_GONE 0u
#define TWILL_LIVE 0x7477696cu
#define TWILL_TORN 0x7477696du

/* Map memory for an object, zeroed. Returns NULL if there is none left. */
void *twill_handle_map(size_t bytes);
/* End it for good: its pages go back to the system, and from then on it reads as zeros. What
 * remains is address space. */
void twill_handle_retire(void *memory, size_t bytes);

/* Blocks of objects of one size that have ended, the longest ago first. Belongs to a context, whose
 * lock protects it. */
struct twill_handle_pool {
    struct twill_handle_link *first, *last;
    unsigned count;
};

/* Take the block that was given longest ago, with its former contents, if at least `keep` others
 * remain: the most recently ended objects stay dead. Else map one. Returns NULL if out of memory.
 */
void *twill_handle_pool_get(struct twill_handle_pool *pool, size_t bytes, unsigned keep);
/* Give a block of the same size back. */
void twill_handle_pool_put(struct twill_handle_pool *pool, void *memory, size_t bytes);
/* Retire all blocks. */
void twill_handle_pool_retire(struct twill_handle_pool *pool, size_t bytes);

/* Warn of a use after the end where no log is left; TWILL_LOG=none silences it. */
void twill_handle_warn(const char *call, const char *sentence);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the objects behind public handles: contexts, communicators and requests. It is mapped,
 * and stays readable after the object's end, so that a stale handle is recognised: no other part of
 * the program can have reused the address. */
#ifndef TWILL_HANDLE_H
#define TWILL_HANDLE_H

#include "lib/base/base.h"

/* Values of the word `live` of a context or communicator; a communicator's states are explained in
 * lib/comm/claim.c. Any other value: the object has ended. */
#define TWILL_GONE     0u
#define TWILL_LIVE     0x7477696cu
#define TWILL_TORN     0x7477696du
#define TWILL_BREAKING 0x7477696eu

/* Map zeroed memory for an object. Returns NULL if out of memory. */
void *twill_handle_map(size_t bytes);
/* Return the pages of an object to the system. Its address range stays reserved and reads as zeros.
 */
void twill_handle_retire(void *memory, size_t bytes);

/* Queue of the memory of ended objects of one size, oldest first. Part of a context, whose lock
 * protects it. */
struct twill_handle_pool {
    struct twill_handle_link *first, *last;
    unsigned count;
    size_t bytes; /* of an object */
};

/* Return the oldest memory in the pool, contents unchanged, if at least `keep` others remain;
 * else map new memory. Handles of the `keep` objects that ended last are thus never reused. Returns
 * NULL if out of memory. */
void *twill_handle_pool_get(struct twill_handle_pool *pool, size_t bytes, unsigned keep);
/* Put the memory of an ended object into the pool. */
void twill_handle_pool_put(struct twill_handle_pool *pool, void *memory, size_t bytes);
/* Retire all memory in the pool. */
void twill_handle_pool_retire(struct twill_handle_pool *pool);

/* Print a warning of `call` where no context's log exists any more, unless TWILL_LOG=none. */
void twill_handle_warn(const char *call, const char *sentence);

#endif

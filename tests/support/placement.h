/* SPDX-License-Identifier: Apache-2.0 */
/* Where memory and threads are, as the kernel reports it. */
#ifndef TWILL_PLACEMENT_H
#define TWILL_PLACEMENT_H

#include "numa/memory.h"

#include <linux/mempolicy.h>
#include <stdbool.h>
#include <stdint.h>

/* Return whether this process may bind memory to NUMA node 0. */
bool can_mbind(void);
/* Return the policy mode at a pointer, or -1; its nodes go to *nodes, if not NULL. */
int policy_at(const void *pointer, uint64_t *nodes);
/* Find the first two PUs that this process may run on. Returns false if it has only one. */
bool twill_test_two_pus(int pus[2]);
/* Let this thread run on one PU only. */
void twill_test_bind(int pu);
/* Count the threads of this process with this name that may run on one PU only, this one. */
unsigned twill_test_threads_on(const char *thread, int pu);

/* Count the touched pages of a range per NUMA node, with move_pages(). Returns the number of pages
 * found, or a negative status. */
long test_memory_where(const void *pointer, size_t bytes, uint64_t pages[TWILL_MAX_NUMA]);

#endif

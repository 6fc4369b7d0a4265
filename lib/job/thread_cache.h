/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of threads that later jobs on the same machine use: ~/.twill/threads/. */
#ifndef TWILL_THREAD_CACHE_H
#define TWILL_THREAD_CACHE_H

#include "lib/base/thread_rates.h"
#include "lib/job/context.h"

/* Get the figures that were kept for this rank's number of threads on the same cores of such a
 * machine, with these kernels, the same sharing of cores and the same threads of OpenMP. Returns
 * false if there are none, or they cannot be read. */
bool twill_thread_cache_read(const struct twill_context *context, struct twill_thread_rates *rates,
                             uint32_t *team);
/* Keep figures in a file of the folder, which is made if it is missing. Without a directory HOME,
 * or if it cannot be written, do nothing. */
void twill_thread_cache_write(const struct twill_context *context,
                              const struct twill_thread_rates *rates, uint32_t team);

#endif

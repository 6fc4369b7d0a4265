/* SPDX-License-Identifier: Apache-2.0 */
/* What the double of the CUDA driver offers a test besides the driver's functions. */
#ifndef TWILL_CUDA_DOUBLE_H
#define TWILL_CUDA_DOUBLE_H

#include <stddef.h>

int double_start(void);                   /* what cuInit and allocating are to a program */
void *double_memory(size_t offset);       /* device memory; the processor may not touch it */
void *double_managed(void);               /* device memory that the processor may touch */
void *double_inside(const void *pointer); /* what is in device memory */
int double_copies(int to_device);         /* made so far, to the device or to the host */
int double_contexts(void);                /* how many contexts are current: a caller has none */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What the double of the CUDA driver offers to tests, besides the driver's functions. */
#ifndef TWILL_CUDA_DOUBLE_H
#define TWILL_CUDA_DOUBLE_H

#include <stddef.h>

int double_start(void);                   /* as cuInit and an allocation by a program */
void *double_memory(size_t offset);       /* device memory, which the CPU may not touch */
void *double_managed(void);               /* device memory that the CPU may touch */
void *double_inside(const void *pointer); /* address of the contents of device memory */
int double_copies(int to_device); /* number of copies so far, to the device or to the host */
int double_contexts(void);        /* number of current contexts; a caller has none */

#endif

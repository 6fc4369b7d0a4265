/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of ggml's tensors over the processes of a job, by twill. Build ggml_twill.c into a program
 * with ggml of 2026 (its tensors have GGML_TENSOR_FLAG_COMPUTE), and start it with twillrun.
 *
 * A failure, such as a process that does not come within the time limit (TWILL_TIMEOUT), ends the
 * process by ggml_abort() with twill's message, as a sum that is not complete must not be used. */
#ifndef GGML_TWILL_H
#define GGML_TWILL_H

#include <ggml-backend.h>

/* The three functions that a backend returns by get_proc_address() for tensor parallelism, as
 * ggml_backend_comm_init, _free and _allreduce_tensor. The sum is over `count` tensors in each
 * process, whose number may differ. Tensors are in host memory, and rows may have strides. Types
 * are F32, F16 and BF16, and integers if count is 1. Returns NULL if there is no job. */
void *twill_ggml_comm_init(ggml_backend_t *backends, size_t count);
void twill_ggml_comm_free(void *comm);
/* Sum up tensors[count] in place. Returns false, and has done nothing, if twill has no sum for the
 * type and this is the only process. ggml then adds up itself. */
bool twill_ggml_comm_allreduce_tensor(void *comm, struct ggml_tensor **tensors);

/* An operation in a graph that sums up one contiguous tensor of each process, by all threads that
 * compute: ggml_map_custom1_inplace(ctx, x, twill_ggml_sum, threads, comm). The number of threads
 * is the same for all sums of a comm, and may differ between processes. */
void twill_ggml_sum(struct ggml_tensor *dst, const struct ggml_tensor *src, int thread, int threads,
                    void *comm);
#endif

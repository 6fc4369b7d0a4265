/* SPDX-License-Identifier: Apache-2.0 */
/** \file twill_memory.h
 * \brief The memory of a communicator: how much it is, and how to give it back while it is idle.
 *
 * A phase of a program, such as the training between two evaluations, may use communicators that
 * then rest for a long time. Suspended, each keeps 12 KiB of the shared memory of a rank, and 8 KiB
 * for each rank of its node with which it has exchanged messages:
 *
 *     twill_comm_suspend(training);
 *     evaluate();
 *     twill_allreduce(training, ...);
 *
 * There is no call to resume. NCCL has one, as its ranks must exchange new memory. Here the kernel
 * makes pages again when a call uses them, so that each rank may do so by itself, at any time.
 */
#ifndef TWILL_COMM_MEMORY_H
#define TWILL_COMM_MEMORY_H

#include "twill.h"

#ifdef __cplusplus
extern "C" {
#endif

/** \defgroup twill_usage Memory of a communicator
 * @{ */
/** \brief Give back the memory that only calls use, until the next call. All ranks of \p comm call
 * it, and none of them returns before all ranks of its node have done so.
 *
 * The next call of a rank resumes the communicator there, and takes about as long as a first call.
 * Ranks may resume at different times. The communicator keeps its connections, counters, persistent
 * requests, and messages that are sent and not yet received. It forgets its events, which
 * twill-info --job shows. If any rank has a persistent request, plans and scratch memory also stay.
 * Windows, gradient sets and communicators that were made of it keep their own memory and work on.
 * A death is noticed by the next call that needs the rank. Memory that the program has locked
 * (mlockall) stays. Nothing is ever suspended unless the program asks for it.
 *
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT on all ranks if one has a request in progress on \p
 * comm, and on this one if a group of calls is open, ::TWILL_ERR_BROKEN, or the failure that has
 * broken the communicator. */
TWILL_API twill_status twill_comm_suspend(twill_comm *comm);

/** \brief Memory that a communicator has on this rank, as twill_comm_memory() stores it. */
typedef struct twill_memory_usage {
    size_t bytes;          /**< sizeof(twill_memory_usage), set by the caller */
    uint64_t shared_bytes; /**< memory of this rank that its node shares, as far as it exists now */
    uint64_t shared_peak;  /**< the most of it so far */
    uint64_t shared_limit; /**< what it can grow to */
    uint64_t private_bytes; /**< plans, scratch, requests, and channels on the node and over TCP */
    uint64_t private_peak;  /**< the most of these that a call of this kind or a suspension found */
    uint64_t registrations; /**< registrations of memory with a network */
    int descriptors; /**< of its shared memory and its TCP connections. 0 on one node if it was made
                          out of another communicator and has its memory there */
    int suspended;   /**< 1 from twill_comm_suspend() to the next call, else 0 */
} twill_memory_usage;

/** \brief Read what memory a communicator has on this rank. Local: nothing is sent, a suspended
 * communicator stays so, and a broken one is no error. No other thread may be using \p comm.
 * usage->bytes must be set before. \return ::TWILL_OK, or ::TWILL_ERR_ARGUMENT if \p comm has
 * ended, or if \p usage is NULL or too small. */
TWILL_API twill_status twill_comm_memory(twill_comm *comm, twill_memory_usage *usage);
/** @} */

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/** \file twill_plan.h
 * \brief Which algorithm a call would use, what it is expected to take, and why.
 *
 * twill_context_why() answers the same for other jobs, machines and all candidates, as text.
 */
#ifndef TWILL_PLAN_FOR_H
#define TWILL_PLAN_FOR_H

#include "twill.h"

#ifdef __cplusplus
extern "C" {
#endif

/** \defgroup twill_plans The choice for a call
 * @{ */
/** \brief Buffers of all ranks are memory of twill_alloc(), or promoted (twill_promote()). */
#define TWILL_PLAN_SHARED 1
/** \brief The call is in place. That changes the choice of an alltoall only. */
#define TWILL_PLAN_IN_PLACE 2

/** \brief How a call would run, as twill_comm_plan_for() stores it. */
typedef struct twill_call_plan {
    size_t bytes;         /**< sizeof(twill_call_plan), set by the caller */
    char algorithm[80];   /**< its name with parameters, such as "torus=4x6" */
    char protocol[16];    /**< such as "staged", or "" if the algorithm has none */
    double seconds;       /**< expected time, or NaN if it is not known */
    char next[96];        /**< the cheapest other form, such as "ring@staged", or "" */
    double next_seconds;  /**< expected time of that, or NaN */
    size_t segment_bytes; /**< the message is cut into segments of at most so many bytes, all shards
                               together. 0 in vector calls, where that depends on the counts */
    int threads;      /**< most threads of a rank that share a copy or a reduction, at least 1 */
    int measured;     /**< 1 if `seconds` comes from measurements, 0 if from the model */
    char reason[400]; /**< what has decided, with both times, as a part of a sentence */
} twill_call_plan;

/** \brief Find out how a call would run. Local: nothing is sent, no peer is connected, and the
 * communicator stays usable after an error. The answer is the same on all ranks, but with several
 * nodes those whose buffers are shared may use another protocol. It holds for the blocking,
 * nonblocking and persistent forms, but not for team calls and fused calls of a group.
 *
 * The first question about a collective, type and order prices all algorithms, which takes longer
 * than the choice of a call (seconds with thousands of ranks). Further ones about other sizes take
 * microseconds. A price that another rank of the node is just computing is awaited, for 250 ms at
 * most.
 *
 * \param comm       the communicator, which no other thread may be using
 * \param collective the name of the call, such as "allreduce" or "allgatherv"
 * \param bytes      size of the whole message, all shards together, which is rounded down to whole
 *                   elements of equal shards. Not used for barrier, gatherv, scatterv and alltoallv
 * \param type       type of the elements
 * \param op         operation, not used if the call does not reduce
 * \param root       root, not used if the call has none
 * \param buffers    0 for memory of malloc(), or a sum of ::TWILL_PLAN_SHARED and
 *                   ::TWILL_PLAN_IN_PLACE
 * \param[in,out] plan  the answer; plan->bytes must be set before
 * \return ::TWILL_OK, ::TWILL_ERR_BROKEN, ::TWILL_ERR_MEMORY, ::TWILL_ERR_ARGUMENT, or the error
 * with which the choice of such a call fails, such as ::TWILL_ERR_CONFIG if TWILL_ALGORITHM asks
 * for what is not possible. twill_comm_message() names the argument. */
TWILL_API twill_status twill_comm_plan_for(twill_comm *comm, const char *collective, size_t bytes,
                                           twill_type type, twill_op op, int root, int buffers,
                                           twill_call_plan *plan);
/** @} */

#ifdef __cplusplus
}
#endif
#endif

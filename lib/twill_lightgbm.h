/* SPDX-License-Identifier: Apache-2.0 */
/** \file twill_lightgbm.h
 * \brief The network of LightGBM's distributed training.
 *
 * LGBM_NetworkInitWithFunctions() takes two functions, which have no parameter for data of the
 * program. The functions here do their work, but take the communicator as first argument. The
 * program adds it:
 *
 *     // LightGBM's network also belongs to a thread
 *     static _Thread_local twill_comm *comm;
 *     static _Thread_local twill_status failed;
 *     static void scatter(char *in, int32_t in_bytes, int element,
 *                         const int32_t *start, const int32_t *bytes, int blocks,
 *                         char *out, int32_t out_bytes,
 *                         const twill_lightgbm_reducer *reducer)
 *     {
 *         twill_status status = twill_lightgbm_reduce_scatter(
 *             comm, in, in_bytes, element, start, bytes, blocks, out, out_bytes,
 *             reducer);
 *         failed = failed != TWILL_OK ? failed : status;
 *     }
 *     static void gather(...) // by twill_lightgbm_allgather()
 *
 *     LGBM_NetworkInitWithFunctions(twill_comm_size(comm), twill_comm_rank(comm),
 *                                   scatter, gather);
 *
 * As LightGBM has no way to report a failure, check `failed` after each iteration. In Python,
 * twill.lightgbm does all of that.
 */
#ifndef TWILL_LIGHTGBM_H
#define TWILL_LIGHTGBM_H

#include "twill.h"

#ifdef __cplusplus
extern "C" {
#endif

/** \defgroup twill_boosting LightGBM
 * Sizes are bytes. A failed call fills the output with zeros, so that LightGBM finds nothing to
 * split. All ranks call these functions. \return as described in twill_collectives(3)
 * @{ */
/** \brief Combine \p input into \p output, for \p bytes bytes of elements of \p element_bytes
 * bytes. This is LightGBM's ReduceFunction. */
typedef void (*twill_lightgbm_reducer)(const char *input, char *output, int element_bytes,
                                       int32_t bytes);
/** \brief Reduce block r of \p input of all ranks to \p output on rank r, as LightGBM's
 * ReduceScatterFunction does. The blocks follow each other, one for each rank, and contain whole
 * elements of 1 to 4096 bytes. A failure fills \p output with zeros. */
TWILL_API twill_status twill_lightgbm_reduce_scatter(twill_comm *comm, void *input,
                                                     int32_t input_bytes, int element_bytes,
                                                     const int32_t *block_start,
                                                     const int32_t *block_bytes, int blocks,
                                                     void *output, int32_t output_bytes,
                                                     const twill_lightgbm_reducer *reducer);
/** \brief Gather \p input of rank r to block r of \p output on every rank, as LightGBM's
 * AllgatherFunction does. \p input may overlap \p output, which a failure fills with zeros. */
TWILL_API twill_status twill_lightgbm_allgather(twill_comm *comm, void *input, int32_t input_bytes,
                                                const int32_t *block_start,
                                                const int32_t *block_bytes, int blocks,
                                                void *output, int32_t output_bytes);
/** @} */

#ifdef __cplusplus
}
#endif
#endif

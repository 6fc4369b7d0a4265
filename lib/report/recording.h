/* SPDX-License-Identifier: Apache-2.0 */
/* Timelines and metrics of the public calls, for the layer of these calls. */
#ifndef TWILL_RECORDING_H
#define TWILL_RECORDING_H

#include "lib/base/base.h"

struct twill_comm;
struct twill_context;

/* The type of twill_allgather(), by which ranks compare their clocks. */
typedef twill_status (*twill_gather_fn)(struct twill_comm *comm, const void *src, void *dst,
                                        size_t count, twill_type type);
/* Record the events of a communicator from now on, if TWILL_TIMELINE is set. A failure is only a
 * warning. On the first communicator of all ranks this is collective and aligns the clocks. */
void twill_timeline_attach(struct twill_comm *comm, twill_gather_fn gather);
/* On the first communicator of all ranks, align the clocks again and stop recording. Collective. */
void twill_timeline_align_again(struct twill_comm *comm, twill_gather_fn gather);
/* Write the recorded events of all communicators to the file, and stop recording this one. */
void twill_timeline_detach(struct twill_comm *comm);
/* Name tensor `index` of the sets over a communicator in its later events, if it has no name. */
void twill_timeline_name_tensor(struct twill_comm *comm, uint32_t index, const char *name);

/* Keep metrics if TWILL_METRICS is set. Returns TWILL_OK, TWILL_ERR_MEMORY or TWILL_ERR_CONFIG. */
twill_status twill_metrics_open(struct twill_context *context, struct twill_error *error);
/* Write the file of metrics, if any and unless a thread does, or log why not. For any thread. */
void twill_metrics_write(struct twill_context *context);

#endif

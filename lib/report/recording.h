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
/* Record the events of a communicator from now on, if TWILL_TIMELINE is set. If there is no memory
 * or file for that, only warn. On the first communicator of all ranks this is collective, and
 * aligns the ranks' clocks by calls of `gather`, which is twill_allgather(). A failure of these
 * breaks the communicator. */
void twill_timeline_attach(struct twill_comm *comm, twill_gather_fn gather);
/* If `comm` is the first communicator of all ranks and TWILL_TIMELINE is set, stop recording it and
 * align the clocks again, which is collective. Does nothing on other communicators, or if it is
 * broken or has ended. `gather` is twill_allgather(). */
void twill_timeline_align_again(struct twill_comm *comm, twill_gather_fn gather);
/* Write the recorded events of all communicators to the file, and stop recording this one, whose
 * events that have not ended are dropped. Does nothing without a timeline. */
void twill_timeline_detach(struct twill_comm *comm);
/* From now on, show tensor `index` of each gradient set over the communicator by this name in the
 * communicator's events. If it has a name, that stays. */
void twill_timeline_name_tensor(struct twill_comm *comm, uint32_t index, const char *name);

/* If TWILL_METRICS is set, keep metrics from now on until the context ends. Does nothing if they
 * are kept already. Returns TWILL_OK, TWILL_ERR_MEMORY or, if the file's name is wrong,
 * TWILL_ERR_CONFIG. */
twill_status twill_metrics_open(struct twill_context *context, struct twill_error *error);
/* Write the file of metrics, unless none are kept or another thread is writing it. If it cannot be
 * written, log why. Any thread may call this. */
void twill_metrics_write(struct twill_context *context);

#endif

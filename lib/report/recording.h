/* SPDX-License-Identifier: Apache-2.0 */
/* Timelines and metrics of what the public calls do, for the layer of these calls. */
#ifndef TWILL_RECORDING_H
#define TWILL_RECORDING_H

#include "lib/base/base.h"

struct twill_comm;
struct twill_context;

/* --- timeline.c: TWILL_TIMELINE --- */

/* twill_allgather(), by which ranks compare their clocks. */
typedef twill_status (*twill_gather_fn)(struct twill_comm *comm, const void *src, void *dst,
                                        size_t count, twill_type type);
/* Have the events of a communicator recorded from now on, until detach(), if TWILL_TIMELINE asks
 * for it; a failure is a warning. The first communicator of all ranks aligns the clocks here, and
 * again when it is about to be destroyed. */
void twill_timeline_attach(struct twill_comm *comm, twill_gather_fn gather);
void twill_timeline_align_again(struct twill_comm *comm, twill_gather_fn gather);
void twill_timeline_detach(struct twill_comm *comm);
/* Name tensor number `index` of the sets over a communicator, for the events of it that follow. */
void twill_timeline_name_tensor(struct twill_comm *comm, uint32_t index, const char *name);

/* --- metrics.c: TWILL_METRICS --- */

/* Begin to keep metrics if TWILL_METRICS is set and the context keeps none. */
twill_status twill_metrics_open(struct twill_context *context, struct twill_error *error);
/* Write the file. A failure is logged. Any thread may call it. Nothing without metrics. */
void twill_metrics_write(struct twill_context *context);

#endif

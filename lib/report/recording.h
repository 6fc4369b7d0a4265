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
/* Record the events of a communicator from now on, until detach(), if TWILL_TIMELINE is set. A
 * failure is only a warning. The first communicator of all ranks aligns the clocks in attach(), and
 * again in align_again(), when it is about to be destroyed. */
void twill_timeline_attach(struct twill_comm *comm, twill_gather_fn gather);
void twill_timeline_align_again(struct twill_comm *comm, twill_gather_fn gather);
void twill_timeline_detach(struct twill_comm *comm);
/* Name tensor number `index` of the sets over a communicator, for later events of this tensor. */
void twill_timeline_name_tensor(struct twill_comm *comm, uint32_t index, const char *name);

/* Begin to keep metrics if TWILL_METRICS is set and the context keeps none yet. Returns TWILL_OK,
 * or TWILL_ERR_MEMORY or TWILL_ERR_CONFIG. */
twill_status twill_metrics_open(struct twill_context *context, struct twill_error *error);
/* Write the file of metrics, if there are any, or log why not. Any thread may call it. */
void twill_metrics_write(struct twill_context *context);

#endif

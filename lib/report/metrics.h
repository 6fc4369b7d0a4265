/* SPDX-License-Identifier: Apache-2.0 */
/* TWILL_METRICS: calls, bytes and seconds by communicator, collective, size and algorithm, in a
 * file in the text format of Prometheus. Written by the thread whose call completes when it is
 * time, and when a communicator ends: the library has no thread for it. */
#ifndef TWILL_METRICS_H
#define TWILL_METRICS_H

#include "lib/job/context.h"

/* Begin to keep metrics if TWILL_METRICS is set and the context keeps none. */
twill_status twill_metrics_open(struct twill_context *context, struct twill_error *error);
/* Write the file. A failure is logged. Any thread may call it. Nothing without metrics. */
void twill_metrics_write(struct twill_context *context);

#endif

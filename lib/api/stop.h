/* SPDX-License-Identifier: Apache-2.0 */
/* The wish of this process to stop, which a signal handler may note. */
#ifndef TWILL_STOP_H
#define TWILL_STOP_H

#include "lib/base/base.h"

/* Return whether twill_stop() was called in this process. */
bool twill_wishes_to_stop(void);
/* Install a handler that calls twill_stop() for a signal. It replaces another one, and stays. */
void twill_stop_on_signal(int number);

#endif

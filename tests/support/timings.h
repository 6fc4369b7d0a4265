/* SPDX-License-Identifier: Apache-2.0 */
/* The timings that are delivered with twill, for tests of what they choose. */
#ifndef TWILL_TIMINGS_H
#define TWILL_TIMINGS_H

#include "algorithms/select/tuning_file.h"

/* Load lib/tuning/sapphire-rapids-2-cores.tuning. The caller destroys it. */
struct twill_tuning *test_timings(void);

/* The machine that file is for. */
extern const struct twill_tuning_key test_timings_key;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* How the times of pairs of ranks are distributed. */
#ifndef TWILL_PREFLIGHT_SPREAD_H
#define TWILL_PREFLIGHT_SPREAD_H

#include "fabric/launcher/preflight/preflight.h"

/* Round trips in us, or times of a MB in s (the inverse of MB/s), of one kind of pairs. */
struct preflight_spread {
    size_t pairs;
    double median, deviation; /* the median distance from the median */
    double worst;
};

/* Find it for pairs on a host (inside), or between hosts. False: there are none. */
bool preflight_spread_find(struct preflight_spread *spread, const struct preflight *all,
                           bool bandwidth, bool inside);

#endif

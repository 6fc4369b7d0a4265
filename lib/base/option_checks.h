/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of options that gradient sets and parameter servers share. */
#ifndef TWILL_OPTION_CHECKS_H
#define TWILL_OPTION_CHECKS_H

#include "lib/base/base.h"
#include "lib/twill_train.h"

/* Check the size that the caller's options state, against that of this library's; `defaults` names
 * the function that sets it. */
twill_status twill_options_check_bytes(size_t bytes, size_t expected, const char *defaults,
                                       struct twill_error *error);
/* Check a code of compression, and its ratio and threshold. A threshold may be 0. */
twill_status twill_compression_check(twill_compression compression, double ratio, double threshold,
                                     struct twill_error *error);

#endif

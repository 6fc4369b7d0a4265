/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of options that gradient sets and parameter servers share. */
#include "lib/base/option_checks.h"

#define THRESHOLDS_BELOW 1e30

twill_status twill_options_check_bytes(size_t bytes, size_t expected, const char *defaults,
                                       struct twill_error *error)
{
    if (bytes == expected)
        return TWILL_OK;
    return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.bytes is %zu, not %zu: %s() sets it",
                      bytes, expected, defaults);
}

twill_status twill_compression_check(twill_compression compression, double ratio, double threshold,
                                     struct twill_error *error)
{
    if ((unsigned)compression > TWILL_COMPRESS_THRESHOLD)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.compression %d is not a twill_compression", (int)compression);
    if (!(ratio > 0 && ratio <= 1))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.compression_ratio %g is not above 0 and at most 1", ratio);
    if (!(threshold >= 0 && threshold < THRESHOLDS_BELOW))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.compression_threshold %g is not a magnitude", threshold);
    return TWILL_OK;
}

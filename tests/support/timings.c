/* SPDX-License-Identifier: Apache-2.0 */
/* The tuning file that is delivered with twill: see timings.h. */
#include "tests/support/timings.h"
#include "lib/job/job_internal.h"

#include "lib/job/context.h"
#include "tests/support/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

const struct twill_tuning_key test_timings_key = {
    .cpu = "GenuineIntel 6 143", .l2_bytes = UINT64_C(2) << 20, .cores = 2};

struct twill_tuning *test_timings(void)
{
    struct twill_tuning *tuning = NULL;
    struct twill_error error = {.status = TWILL_OK};
    char *text = NULL;
    const char *path = test_data("../../lib/tuning/sapphire-rapids-2-cores.tuning");
    if (twill_tuning_read(&text, path, &error) != TWILL_OK ||
        twill_tuning_create(&tuning, NULL, text, path, &error) != TWILL_OK)
        fail_msg("%s", error.message);
    assert_true(twill_tuning_is_for(text, &test_timings_key));
    free(text);
    return tuning;
}

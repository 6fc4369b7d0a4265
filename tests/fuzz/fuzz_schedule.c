/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules as text. What is parsed is printed, and parsed again: to the same text. */
#include "algorithms/algorithms.h"
#include "tests/fuzz/fuzz_input.h"

#define PRINTED_MOST (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char printed[PRINTED_MOST], again[PRINTED_MOST];
    struct twill_schedule schedule, copy;
    struct twill_error error = {0};
    char *text = fuzz_text(data, size);
    if (twill_schedule_parse(&schedule, text, &error) == TWILL_OK) {
        size_t length = twill_schedule_print(&schedule, printed, PRINTED_MOST);
        if (length < PRINTED_MOST) {
            fuzz_must(twill_schedule_parse(&copy, printed, &error) == TWILL_OK);
            fuzz_must(twill_schedule_print(&copy, again, PRINTED_MOST) == length);
            fuzz_must(memcmp(printed, again, length) == 0);
            twill_schedule_destroy(&copy);
        }
        twill_schedule_destroy(&schedule);
    }
    free(text);
    return 0;
}

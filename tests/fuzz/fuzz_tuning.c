/* SPDX-License-Identifier: Apache-2.0 */
/* Tuning files. */
#include "algorithms/select/tuning_file.h"
#include "tests/fuzz/fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct twill_tuning_key here = {"GenuineIntel 6 143", 2u << 20, 2};
    struct twill_tuning *tuning = NULL;
    struct twill_error error = {0};
    char *text = fuzz_text(data, size);
    (void)twill_tuning_is_for(text, &here);
    if (twill_tuning_create(&tuning, NULL, text, "file", &error) == TWILL_OK) {
        fuzz_must(twill_tuning_hash(tuning) != 0);
        twill_tuning_destroy(tuning);
    }
    free(text);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Keys: as text, and in a file. What is parsed is written and parsed again: to the same key. */
#include "fabric/auth/job_key.h"
#include "tests/fuzz/fuzz_input.h"

#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct twill_secret secret, again;
    struct twill_error error = {0};
    char printed[TWILL_SECRET_TEXT], path[64];
    char *text = fuzz_text(data, size);
    if (twill_secret_parse(&secret, "key", text, &error) == TWILL_OK) {
        twill_secret_text(&secret, printed);
        fuzz_must(twill_secret_parse(&again, "key", printed, &error) == TWILL_OK);
        fuzz_must(memcmp(&secret, &again, sizeof(again)) == 0);
    }
    int fd = fuzz_file(data, size, path);
    fuzz_must(fchmod(fd, 0600) == 0);
    (void)twill_secret_read(&secret, path, &error);
    close(fd);
    free(text);
    return 0;
}

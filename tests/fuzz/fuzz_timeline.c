/* SPDX-License-Identifier: Apache-2.0 */
/* Timelines that twill-trace reads. */
#include "bench/tools/trace/trace_tool.h"
#include "tests/fuzz/fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace_job job = {0};
    char path[64];
    FILE *out = fopen("/dev/null", "w");
    int fd = fuzz_file(data, size, path);
    fuzz_must(out != NULL);
    (void)trace_read(&job, path, out);
    trace_free(&job);
    fclose(out);
    close(fd);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What twillrun and its servers on other hosts send each other: frames over a pipe, and the job in
 * one. The first byte selects: frames, or a job alone. */
#include "fabric/launcher/launcher_job.h"
#include "fabric/launcher/pipe.h"
#include "tests/fuzz/fuzz_input.h"

static void read_job(const char *data, size_t bytes)
{
    struct twill_host_job job;
    if (twill_job_read(&job, data, bytes))
        for (int i = 0; i < job.here; i++)
            fuzz_must(job.rank[i] >= 0 && job.rank[i] < twill_options_places(&job.options));
    twill_job_free(&job);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct twill_pipe pipe = {.out = -1};
    struct twill_frame frame;
    char path[64];
    if (size == 0)
        return 0;
    if (data[0] % 2 != 0) {
        char *job = fuzz_text(data + 1, size - 1); /* in memory of its own */
        read_job(job, size - 1);
        free(job);
        return 0;
    }
    int fd = fuzz_file(data + 1, size - 1, path);
    lseek(fd, 0, SEEK_SET);
    pipe.in = fd; /* which it closes */
    bool marked = false;
    while (twill_pipe_fill(&pipe)) {
        int found = marked ? 1 : twill_pipe_find_mark(&pipe);
        marked = found > 0;
        while (marked && (found = twill_pipe_next(&pipe, &frame)) > 0)
            if (frame.kind == TWILL_FRAME_JOB)
                read_job(frame.data, frame.bytes);
        if (found < 0)
            break;
    }
    twill_pipe_close(&pipe);
    return 0;
}

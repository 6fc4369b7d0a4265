/* SPDX-License-Identifier: Apache-2.0 */
/* What twillrun and its host agents send each other: frames over a pipe, and the job in
 * one. The first byte selects: frames, a job alone, or (254) a hostfile. */
#include "fabric/launcher/launcher.h"
#include "fabric/launcher/pipe.h"
#include "tests/fuzz/fuzz_input.h"

#define HOSTFILE 254

static void read_job(const char *data, size_t bytes)
{
    struct twill_host_job job;
    if (twill_job_read(&job, data, bytes))
        for (int i = 0; i < job.here; i++)
            fuzz_must(job.rank[i] >= 0 && job.rank[i] < twill_options_places(&job.options));
    twill_job_free(&job);
}

static void read_hosts(const uint8_t *data, size_t size)
{
    struct twill_options options = {.sites = 0};
    char path[64];
    int fd = fuzz_file(data, size, path);
    if (twill_sites_read(&options, path))
        fuzz_must(options.sites > 0);
    for (int i = 0; i < options.sites; i++)
        fuzz_must(options.site[i].slots > 0 && options.site[i].name[0] != '-');
    twill_options_free(&options);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct twill_pipe pipe = {.out = -1};
    struct twill_frame frame;
    char path[64];
    if (size == 0)
        return 0;
    if (data[0] == HOSTFILE) {
        read_hosts(data + 1, size - 1);
        return 0;
    }
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

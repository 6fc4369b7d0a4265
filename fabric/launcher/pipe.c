/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/launcher/launcher.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC      UINT16_C(0x7754) /* "Tw" */
#define READ_BYTES 65536

/* Header of a frame, in host byte order. The magic rejects hosts of another order. */
struct frame_header {
    uint16_t magic;
    uint16_t kind;
    uint32_t rank;
    uint32_t value;
    uint32_t bytes;
};
_Static_assert(sizeof(struct frame_header) == 16, "identical layout on all machines");

bool twill_buffer_grow(char **buffer, size_t used, size_t *capacity, size_t bytes)
{
    size_t needed = *capacity ? *capacity : 4096;
    while (needed - used < bytes)
        needed *= 2;
    if (needed == *capacity)
        return true;
    char *bigger = realloc(*buffer, needed);
    if (!bigger)
        return false;
    *buffer = bigger;
    *capacity = needed;
    return true;
}

bool twill_pipe_append(struct twill_pipe *pipe, const void *data, size_t bytes)
{
    if (pipe->sent > pipe->out_used / 2) {
        memmove(pipe->outbox, pipe->outbox + pipe->sent, twill_pipe_waiting(pipe));
        pipe->out_used -= pipe->sent;
        pipe->sent = 0;
    }
    if (!twill_buffer_grow(&pipe->outbox, pipe->out_used, &pipe->out_capacity, bytes))
        return false;
    if (bytes > 0)
        memcpy(pipe->outbox + pipe->out_used, data, bytes);
    pipe->out_used += bytes;
    return true;
}

bool twill_pipe_put(struct twill_pipe *pipe, enum twill_frame_kind kind, uint32_t rank,
                    uint32_t value, const void *data, size_t bytes)
{
    struct frame_header header = {.magic = MAGIC,
                                  .kind = (uint16_t)kind,
                                  .rank = rank,
                                  .value = value,
                                  .bytes = (uint32_t)bytes};
    if (pipe->out < 0)
        return false;
    if (twill_pipe_append(pipe, &header, sizeof(header)) && twill_pipe_append(pipe, data, bytes))
        return true;
    twill_complain("no memory for %zu bytes to another twillrun", bytes);
    close(pipe->out);
    pipe->out = -1;
    pipe->sent = pipe->out_used = 0;
    return false;
}

bool twill_pipe_flush(struct twill_pipe *pipe)
{
    while (pipe->out >= 0 && pipe->sent < pipe->out_used) {
        ssize_t n = write(pipe->out, pipe->outbox + pipe->sent, twill_pipe_waiting(pipe));
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n < 0 && errno != EINTR) {
            close(pipe->out);
            pipe->out = -1;
            pipe->sent = pipe->out_used = 0;
        } else if (n > 0) {
            pipe->sent += (size_t)n;
        }
    }
    return pipe->out >= 0;
}

bool twill_pipe_fill(struct twill_pipe *pipe)
{
    if (pipe->in < 0)
        return false;
    if (pipe->taken > 0) {
        memmove(pipe->inbox, pipe->inbox + pipe->taken, pipe->in_used - pipe->taken);
        pipe->in_used -= pipe->taken;
        pipe->taken = 0;
    }
    if (!twill_buffer_grow(&pipe->inbox, pipe->in_used, &pipe->in_capacity, READ_BYTES + 1))
        return false;
    ssize_t n = read(pipe->in, pipe->inbox + pipe->in_used, READ_BYTES);
    if (n > 0)
        pipe->in_used += (size_t)n;
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

int twill_pipe_next(struct twill_pipe *pipe, struct twill_frame *frame)
{
    struct frame_header header;
    size_t there = pipe->in_used - pipe->taken;
    if (there < sizeof(header))
        return 0;
    memcpy(&header, pipe->inbox + pipe->taken, sizeof(header));
    unsigned kind = header.kind;
    size_t bytes = header.bytes;
    bool large = kind == TWILL_FRAME_JOB || kind == TWILL_FRAME_LOOK;
    size_t most = large ? TWILL_FRAME_MOST_JOB : TWILL_FRAME_MOST;
    if (header.magic != MAGIC || kind == 0 || kind >= TWILL_FRAME_KINDS || bytes > most)
        return -1;
    if (there < sizeof(header) + bytes)
        return 0;
    *frame = (struct twill_frame){.kind = (enum twill_frame_kind)kind,
                                  .rank = header.rank,
                                  .value = header.value,
                                  .data = pipe->inbox + pipe->taken + sizeof(header),
                                  .bytes = bytes};
    pipe->taken += sizeof(header) + bytes;
    return 1;
}

int twill_pipe_find_mark(struct twill_pipe *pipe)
{
    static const char mark[] = TWILL_FRAME_MARK;
    size_t bytes = sizeof(mark) - 1, there = pipe->in_used - pipe->taken;
    if (there == 0)
        return 0;
    const char *begin = pipe->inbox + pipe->taken, *found = memmem(begin, there, mark, bytes);
    if (!found)
        return there > TWILL_FRAME_MOST_CHAFF ? -1 : 0;
    pipe->taken += (size_t)(found - begin) + bytes;
    return 1;
}

void twill_pipe_close(struct twill_pipe *pipe)
{
    if (pipe->in >= 0)
        close(pipe->in);
    if (pipe->out >= 0)
        close(pipe->out);
    free(pipe->inbox);
    free(pipe->outbox);
    *pipe = (struct twill_pipe){.in = -1, .out = -1};
}

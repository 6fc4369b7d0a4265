/* SPDX-License-Identifier: Apache-2.0 */
/* Output of ranks, which is written line by line with a label, or forwarded to another twillrun. */
#include "fabric/launcher/launcher.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_CAPACITY (1u << 20) /* a longer line is split */

/* Write or queue bytes, or mark the stream as lost. */
static void write_all(struct twill_stream *stream, const char *data, size_t bytes)
{
    stream->lost = stream->lost || !twill_output_put(stream->to, data, bytes);
}

/* Write label and line, in one write if possible, so that lines of ranks do not mix. A missing line
 * end is added if there is a label. A relayed line is written as plain text without
 * TWILL_COMPLAINT, and `line` is changed. */
static void line_write(struct twill_stream *stream, char *line, size_t bytes)
{
    char small[2048];
    size_t head = strlen(stream->label), prefix = strlen(TWILL_COMPLAINT);
    /* Add a missing line end only to labelled lines. */
    bool add = head > 0 && (bytes == 0 || line[bytes - 1] != '\n');
    if (stream->relayed && bytes >= prefix && memcmp(line, TWILL_COMPLAINT, prefix) == 0) {
        line += prefix;
        bytes -= prefix;
    }
    if (stream->relayed) {
        size_t text = bytes;
        while (text > 0 && (line[text - 1] == '\n' || line[text - 1] == '\r')) /* ssh writes both */
            text--;
        twill_text_plain(line, text);
    }
    if (head + bytes + 1 <= sizeof(small)) {
        memcpy(small, stream->label, head);
        memcpy(small + head, line, bytes);
        small[head + bytes] = '\n';
        write_all(stream, small, head + bytes + add);
        return;
    }
    write_all(stream, stream->label, head);
    write_all(stream, line, bytes);
    if (add)
        write_all(stream, "\n", 1);
}

/* Write all complete lines, and an incomplete one of MAX_CAPACITY bytes, and keep the rest. */
static void write_lines(struct twill_stream *stream)
{
    char *begin = stream->line, *end;
    size_t left = stream->used;
    while ((end = memchr(begin, '\n', left)) != NULL) {
        size_t bytes = (size_t)(end + 1 - begin);
        line_write(stream, begin, bytes);
        begin += bytes;
        left -= bytes;
    }
    if (left == MAX_CAPACITY) {
        line_write(stream, begin, left);
        left = 0;
    }
    memmove(stream->line, begin, left);
    stream->used = left;
}

/* Make space for a byte at least. Returns false, with the stream lost, after a message. */
static bool grow_stream(struct twill_stream *stream)
{
    if (twill_buffer_grow(&stream->line, stream->used, &stream->capacity, 1))
        return true;
    twill_complain("output is lost: %s", strerror(ENOMEM));
    stream->lost = true;
    return false;
}

bool twill_stream_add(struct twill_stream *stream, const char *data, size_t bytes)
{
    while (bytes > 0 && grow_stream(stream)) {
        size_t chunk = twill_min(bytes, stream->capacity - stream->used);
        memcpy(stream->line + stream->used, data, chunk);
        stream->used += chunk;
        data += chunk;
        bytes -= chunk;
        write_lines(stream);
        if (stream->lost)
            break;
    }
    return !stream->lost;
}

bool twill_stream_move(struct twill_stream *stream)
{
    char data[16384];
    for (int turns = 0; turns < 16; turns++) { /* limited, so that other streams get their turn */
        ssize_t n = read(stream->from, data, sizeof(data));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (n <= 0)
            return false;
        if (stream->link ? !twill_pipe_put(stream->link, TWILL_FRAME_OUTPUT, (uint32_t)stream->rank,
                                           (uint32_t)(stream->to - STDOUT_FILENO), data, (size_t)n)
                         : !twill_stream_add(stream, data, (size_t)n))
            return false;
    }
    return true;
}

void twill_stream_end(struct twill_stream *stream)
{
    if (stream->used > 0)
        line_write(stream, stream->line, stream->used);
    if (stream->from >= 0)
        close(stream->from);
    free(stream->line);
    stream->line = NULL;
    stream->used = stream->capacity = 0;
    stream->from = -1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Output of ranks, line by line with the rank before each. */
#include "fabric/launcher/launcher.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_ROOM 4096
#define MOST_ROOM  (1u << 20) /* a longer line is broken */

static void write_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EAGAIN) { /* somebody made our output non-blocking */
            struct pollfd one = {.fd = fd, .events = POLLOUT};
            (void)poll(&one, 1, 1000);
        } else if (n < 0 && errno != EINTR) {
            return;
        } else if (n > 0) {
            data += n;
            bytes -= (size_t)n;
        }
    }
}

/* Label and line in one write where possible, so that lines of others stay apart. */
static void write_line(const struct twill_stream *stream, int rank, const char *line, size_t bytes)
{
    char small[2048], label[16];
    size_t head = (size_t)snprintf(label, sizeof(label), "[%d] ", rank);
    bool whole = bytes > 0 && line[bytes - 1] == '\n';
    if (head + bytes + 1 <= sizeof(small)) {
        memcpy(small, label, head);
        memcpy(small + head, line, bytes);
        small[head + bytes] = '\n';
        write_all(stream->to, small, head + bytes + !whole);
        return;
    }
    write_all(stream->to, label, head);
    write_all(stream->to, line, bytes);
    if (!whole)
        write_all(stream->to, "\n", 1);
}

static void write_lines(struct twill_stream *stream, int rank)
{
    char *begin = stream->line, *end;
    size_t left = stream->used;
    while ((end = memchr(begin, '\n', left)) != NULL) {
        size_t bytes = (size_t)(end + 1 - begin);
        write_line(stream, rank, begin, bytes);
        begin += bytes;
        left -= bytes;
    }
    if (left == MOST_ROOM) {
        write_line(stream, rank, begin, left);
        left = 0;
    }
    memmove(stream->line, begin, left);
    stream->used = left;
}

static bool make_room(struct twill_stream *stream)
{
    if (stream->used < stream->room)
        return true;
    size_t room = stream->room ? 2 * stream->room : FIRST_ROOM;
    char *line = realloc(stream->line, room);
    if (!line)
        return false;
    stream->line = line;
    stream->room = room;
    return true;
}

bool twill_stream_move(struct twill_stream *stream, int rank)
{
    for (int turns = 0; turns < 16; turns++) { /* then it is another stream's turn */
        if (!make_room(stream)) {
            twill_complain("no memory for a line of rank %d", rank);
            return false;
        }
        ssize_t n = read(stream->from, stream->line + stream->used, stream->room - stream->used);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (n <= 0)
            return false;
        stream->used += (size_t)n;
        write_lines(stream, rank);
    }
    return true;
}

void twill_stream_end(struct twill_stream *stream, int rank)
{
    if (stream->from < 0)
        return;
    if (stream->used > 0)
        write_line(stream, rank, stream->line, stream->used);
    close(stream->from);
    free(stream->line);
    *stream = (struct twill_stream){.from = -1};
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver of twill-compare and the ranks of a program say to each other where they share no
 * memory: the ranks are on other hosts. Each rank has a board of its own and a connection to the
 * driver, which carries what ranks of one host find on the board that they share.
 * C and C++: the programs of peers are written in either. */
#ifndef TWILL_DRIVER_LINK_H
#define TWILL_DRIVER_LINK_H

#include "board.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

/* The argument in a board's place: "link:PORT:TOKEN:ADDRESS,ADDRESS...". The token tells programs
 * of this comparison from strangers and each other; it is no secret. */
#define TWILL_COMPARE_LINK "link:"

enum twill_compare_said {
    TWILL_COMPARE_HELLO = 0x7c01, /* rank: who and where it is */
    TWILL_COMPARE_WELCOME,        /* driver: the board's head */
    TWILL_COMPARE_ORDERED,        /* driver: what to measure */
    TWILL_COMPARE_COUNTS,         /* rank 0, and the driver to all others: calls, batches */
    TWILL_COMPARE_POSTED,         /* rank: its part of an allgather; driver: all parts */
    TWILL_COMPARE_RESULT          /* rank: it is through, with its start too */
};

struct twill_compare_frame {
    uint32_t said, rank;
    uint64_t bytes; /* that follow */
};

enum { TWILL_COMPARE_CPUS = 1024 };

struct twill_compare_hello {
    char token[40], boot_id[40], host[64], congestion[16];
    int32_t pid;
    uint8_t cpus[TWILL_COMPARE_CPUS / 8]; /* that it may use */
};

struct twill_compare_welcome {
    int32_t ranks;
    uint32_t bind, core;
    uint64_t capacity;
    double patience; /* seconds until a turn has failed */
};

struct twill_compare_counts {
    uint64_t calls, batches;
};

struct twill_compare_result {
    uint32_t error;
    uint64_t wrong, calls, batches;
    double seconds[TWILL_COMPARE_BATCHES];
    char library[TWILL_COMPARE_TEXT], message[TWILL_COMPARE_TEXT];
};

/* All of it, in so many seconds without progress. 0, or -1. */
static inline int twill_compare_move(int link, void *data, size_t bytes, int out, double seconds)
{
    char *at = (char *)data;
    while (bytes > 0) {
        ssize_t n = out ? send(link, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                        : recv(link, at, bytes, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return -1;
        if (n < 0) {
            struct pollfd wait = {link, (short)(out ? POLLOUT : POLLIN), 0};
            int ready = poll(&wait, 1, seconds < 0 ? -1 : (int)(seconds * 1e3));
            if (ready == 0)
                return -1;
            continue;
        }
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static inline int twill_compare_send(int link, enum twill_compare_said said, int rank,
                                     const void *data, size_t bytes)
{
    struct twill_compare_frame frame = {(uint32_t)said, (uint32_t)rank, bytes};
    if (twill_compare_move(link, &frame, sizeof(frame), 1, 10) != 0)
        return -1;
    return twill_compare_move(link, (void *)(uintptr_t)data, bytes, 1, 10);
}

/* Wait for a frame that says this, with so many bytes; -1: it is another, or nobody is there. */
static inline int twill_compare_receive(int link, enum twill_compare_said said, void *data,
                                        size_t bytes)
{
    struct twill_compare_frame frame;
    if (twill_compare_move(link, &frame, sizeof(frame), 0, -1) != 0 ||
        frame.said != (uint32_t)said || frame.bytes != bytes)
        return -1;
    return twill_compare_move(link, data, bytes, 0, 10);
}

/* The first line of a file. */
static inline void twill_compare_read_line(const char *path, char *word, size_t bytes)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = file < 0 ? 0 : read(file, word, bytes - 1);
    word[n > 0 ? n : 0] = '\0';
    word[strcspn(word, "\n")] = '\0';
    if (file >= 0)
        close(file);
}

#endif

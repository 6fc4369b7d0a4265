/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol between twill-compare's driver and ranks on other hosts, which share no memory with
 * it. Each rank has a private board and a connection to the driver, which carries what ranks of one
 * host would read on a shared board. For C and C++. */
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

/* The argument instead of a board's path: "link:PORT:TOKEN:ADDRESS,ADDRESS...". The token tells
 * programs of this comparison from other connections and from each other; it is not secret. */
#define TWILL_COMPARE_LINK "link:"

enum twill_compare_frame_kind {
    TWILL_COMPARE_HELLO = 0x7c01, /* from a rank: who and where it is */
    TWILL_COMPARE_WELCOME,        /* from the driver: the head of the board */
    TWILL_COMPARE_ORDERED,        /* from the driver: what to measure */
    TWILL_COMPARE_COUNTS, /* from rank 0, and from the driver to all others: calls, batches */
    /* from a rank: its contribution to an allgather; from the driver: all of them */
    TWILL_COMPARE_POSTED,
    TWILL_COMPARE_MODEL, /* from the driver, after an order of steps: the model */
    TWILL_COMPARE_RESULT /* from a rank: it has finished its start or a turn */
};

struct twill_compare_frame {
    uint32_t kind, rank;
    uint64_t bytes; /* of payload that follows */
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

/* Send or receive all bytes, with at most `seconds` between progress (< 0: no limit). Returns 0 or
 * -1. */
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

static inline int twill_compare_send(int link, enum twill_compare_frame_kind kind, int rank,
                                     const void *data, size_t bytes)
{
    struct twill_compare_frame frame = {(uint32_t)kind, (uint32_t)rank, bytes};
    if (twill_compare_move(link, &frame, sizeof(frame), 1, 10) != 0)
        return -1;
    return twill_compare_move(link, (void *)(uintptr_t)data, bytes, 1, 10);
}

/* Wait for a frame of this kind and size. Returns -1 if another one arrives or the connection is
 * closed. */
static inline int twill_compare_receive(int link, enum twill_compare_frame_kind kind, void *data,
                                        size_t bytes)
{
    struct twill_compare_frame frame;
    if (twill_compare_move(link, &frame, sizeof(frame), 0, -1) != 0 ||
        frame.kind != (uint32_t)kind || frame.bytes != bytes)
        return -1;
    return twill_compare_move(link, data, bytes, 0, 10);
}

/* Read the first line of a file; "" on failure. */
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

/* SPDX-License-Identifier: Apache-2.0 */
/* The connection of a rank to the driver of twill-compare, which carries what to measure and the
 * results. compare_links.py also packs and parses the structs. Ranks sleep on the connection
 * between turns, so that started programs do not disturb each other. For C and C++. */
#ifndef TWILL_PEER_LINK_H
#define TWILL_PEER_LINK_H

#include "played_compute.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    TWILL_COMPARE_RANKS = 64,
    TWILL_COMPARE_BATCHES = 40, /* most batches in a turn */
    TWILL_COMPARE_FRESH = 1000, /* most calls with fresh data in a turn */
    TWILL_COMPARE_TEXT = 200,   /* most bytes of a message */
    TWILL_COMPARE_EXCHANGE = 1 << 16,
    TWILL_COMPARE_TENSORS = 1024,
    TWILL_COMPARE_CPUS = 1024
};

enum twill_compare_collective {
    TWILL_COMPARE_ALLREDUCE,      /* in place */
    TWILL_COMPARE_ALLREDUCE_OUT,  /* out of place */
    TWILL_COMPARE_BROADCAST,      /* one buffer per rank, root 0 */
    TWILL_COMPARE_ALLGATHER,      /* bytes is the shard of one rank */
    TWILL_COMPARE_REDUCE_SCATTER, /* bytes is the shard of one rank */
    TWILL_COMPARE_BARRIER,
    /* every program has those above, the others must be declared by `supports` */
    TWILL_COMPARE_COMMON,
    TWILL_COMPARE_REDUCE = TWILL_COMPARE_COMMON, /* root 0, as in the next two */
    TWILL_COMPARE_GATHER,                        /* bytes is the shard of one rank */
    TWILL_COMPARE_SCATTER,                       /* bytes is the shard of one rank */
    TWILL_COMPARE_ALLTOALL,                      /* bytes is the shard for one other rank */
    /* calls of one rank with itself, which twill passes on, to show the cost of that */
    TWILL_COMPARE_SELF_BARRIER,
    TWILL_COMPARE_SELF_ALLREDUCE,
    TWILL_COMPARE_SELF_MESSAGE, /* isend, irecv and waitall */
    TWILL_COMPARE_COLLECTIVES
};

/* How the gradients of a played training step are reduced. */
enum twill_compare_step {
    TWILL_COMPARE_NO_STEP,
    TWILL_COMPARE_BY_TENSOR, /* each separately, nonblocking, when the backward pass yields it;
                                with twill by a gradient set */
    TWILL_COMPARE_FUSED      /* all in one call after the backward pass, in memory without gaps */
};

enum twill_compare_frame_kind {
    TWILL_COMPARE_HELLO = 0x7c01, /* from a rank, who and where it is */
    TWILL_COMPARE_WELCOME,        /* from the driver, when all are connected */
    TWILL_COMPARE_ORDERED,        /* from the driver, what to measure */
    TWILL_COMPARE_COUNTS, /* from rank 0, and from the driver to all others, calls and batches */
    TWILL_COMPARE_POSTED, /* from a rank its part of an allgather, from the driver all parts */
    TWILL_COMPARE_MODEL,  /* from the driver, after an order of steps */
    TWILL_COMPARE_RESULT  /* from a rank, after its start or a turn */
};

/* The head of every message. `kind` is an enum twill_compare_frame_kind, `rank` the sender if that
 * is a rank. */
struct twill_compare_frame {
    uint32_t kind, rank;
    uint64_t bytes; /* of the payload that follows */
};

/* The payload of TWILL_COMPARE_HELLO. The token names the program and the comparison, and is no
 * secret. `congestion` is the host's TCP congestion control. */
struct twill_compare_hello {
    char token[40], boot_id[40], host[64], congestion[16];
    int32_t pid;
    uint8_t cpus[TWILL_COMPARE_CPUS / 8]; /* CPUs that it may use */
    double turns_per_second;              /* of the core of rank 0, else 0, see played_compute.h */
};

/* The payload of TWILL_COMPARE_WELCOME. */
struct twill_compare_welcome {
    int32_t ranks;
    uint32_t bind, core;           /* if `bind`, each rank binds itself to `core` before all else */
    uint32_t patience;             /* seconds in which the start and each turn must end */
    uint32_t alone;                /* each rank has a core of its own */
    uint64_t capacity;             /* bytes of the largest buffer */
    char path[TWILL_COMPARE_TEXT]; /* start of the names of files that the ranks of this program
                                      share, or "" if they are on several machines */
};

/* The payload of TWILL_COMPARE_ORDERED, with what to measure in a turn. That is `collective`, where
 * `bytes` is its message or, as enum twill_compare_collective says, a shard. Unless `step` is
 * TWILL_COMPARE_NO_STEP, it is `least` played training steps instead. */
struct twill_compare_order {
    uint32_t collective;
    uint32_t check; /* check values first */
    uint32_t keep;  /* keep the buffers for the next turn of this size */
    uint32_t quit;  /* end the program */
    uint32_t least; /* least number of batches, and of calls with fresh data */
    uint32_t step;  /* an enum twill_compare_step */
    uint32_t line;  /* measure the latency of a cache line between the first and the last rank */
    uint64_t bytes;
    double batch_seconds; /* target for one batch of calls */
    double turn_seconds;  /* target for all batches together, and for all fresh calls */
};

/* A tensor of the model. */
struct twill_compare_tensor {
    uint64_t elements, first; /* floats, and the first among those of all tensors */
    double forward;           /* seconds of its layer; the backward pass takes twice as long */
};
/* The payload of TWILL_COMPARE_MODEL, with the tensors in forward order and what computes. */
struct twill_compare_model {
    uint32_t tensors;
    uint32_t device;         /* 1 if a device computes, not the core of the rank */
    double turns_per_second; /* speed of the core in rounds of played_turns(), the same for all */
    struct twill_compare_tensor tensor[TWILL_COMPARE_TENSORS];
};

/* The payload of TWILL_COMPARE_RESULT, from one rank. `wrong` are elements of its result, `calls`
 * those of each of the `batches` batches. line_seconds is one way of a cache line before and after
 * the calls, 0 if not measured. */
struct twill_compare_result {
    uint32_t failed; /* if 1, see `message` */
    uint64_t wrong, calls, batches, fresh_calls;
    double line_seconds[2];
    double again[TWILL_COMPARE_BATCHES]; /* per call, mean of a batch */
    double fresh[TWILL_COMPARE_FRESH];   /* of one call each */
    char library[TWILL_COMPARE_TEXT], message[TWILL_COMPARE_TEXT];
};

/* The connection of a rank to the driver, part of struct peer. Open from peer_link_open() until the
 * program ends. */
struct peer_link {
    int socket;                 /* -1 if there is none yet */
    int local;                  /* all ranks are on the host of the driver */
    char here[INET_ADDRSTRLEN]; /* address of this host on the route to the driver */
};

/* Send all bytes if `out`, else receive them. No wait is longer than `seconds`, or each has no
 * limit if that is below 0. Returns 0, or -1 on failure, a longer wait or the end of the
 * connection. */
static inline int peer_link_move(int link, void *data, size_t bytes, int out, double seconds)
{
    char *at = (char *)data;
    while (bytes > 0) {
        ssize_t n = out ? send(link, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                        : recv(link, at, bytes, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return -1;
        if (n < 0) {
            struct pollfd wait = {link, (short)(out ? POLLOUT : POLLIN), 0};
            if (poll(&wait, 1, seconds < 0 ? -1 : (int)(seconds * 1e3)) == 0)
                return -1;
            continue;
        }
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

/* Send a frame with this data. Returns 0, or -1 on failure, also if the driver takes nothing for 10
 * s. */
static inline int peer_link_send(const struct peer_link *link, enum twill_compare_frame_kind kind,
                                 int rank, const void *data, size_t bytes)
{
    struct twill_compare_frame frame = {(uint32_t)kind, (uint32_t)rank, bytes};
    if (peer_link_move(link->socket, &frame, sizeof(frame), 1, 10) != 0)
        return -1;
    return peer_link_move(link->socket, (void *)(uintptr_t)data, bytes, 1, 10);
}

/* Wait without limit for a frame of this kind and size, and store its payload in `data`. Returns 0,
 * or -1 on another frame or an error. */
static inline int peer_link_receive(const struct peer_link *link,
                                    enum twill_compare_frame_kind kind, void *data, size_t bytes)
{
    struct twill_compare_frame frame;
    if (peer_link_move(link->socket, &frame, sizeof(frame), 0, -1) != 0 ||
        frame.kind != (uint32_t)kind || frame.bytes != bytes)
        return -1;
    return peer_link_move(link->socket, data, bytes, 0, 10);
}

/* Return whether a frame can be received. */
static inline int peer_link_pending(const struct peer_link *link)
{
    struct pollfd wait = {link->socket, POLLIN, 0};
    return poll(&wait, 1, 0) == 1;
}

/* Connect within `patience` milliseconds. Returns the socket, or -1. */
static inline int peer_link_dial(const struct sockaddr *to, socklen_t length, int patience)
{
    int one = 1, error = 0;
    int link = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t bytes = sizeof(error);
    struct pollfd wait = {link, POLLOUT, 0};
    if (link >= 0 &&
        (connect(link, to, length) == 0 ||
         (errno == EINPROGRESS && poll(&wait, 1, patience) == 1 &&
          getsockopt(link, SOL_SOCKET, SO_ERROR, &error, &bytes) == 0 && error == 0))) {
        if (to->sa_family == AF_INET)
            setsockopt(link, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        return link;
    }
    if (link >= 0)
        close(link);
    return -1;
}

/* Connect to a port of an IPv4 address within `patience` ms. Returns the socket, or -1. */
static inline int peer_link_dial_inet(const char *address, int port, int patience)
{
    struct sockaddr_in to;
    memset(&to, 0, sizeof(to));
    to.sin_family = AF_INET;
    to.sin_port = htons((uint16_t)port);
    if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
        return -1;
    return peer_link_dial((struct sockaddr *)&to, sizeof(to), patience);
}

/* Connect to a local socket by its path. Returns the socket, or -1. */
static inline int peer_link_dial_local(const char *path)
{
    struct sockaddr_un to;
    memset(&to, 0, sizeof(to));
    to.sun_family = AF_UNIX;
    strncpy(to.sun_path, path, sizeof(to.sun_path) - 1);
    return peer_link_dial((struct sockaddr *)&to, sizeof(to), 10000);
}

/* Read the first line of a file, or "" on failure. */
static inline void peer_link_read_line(const char *path, char *word, size_t bytes)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = file < 0 ? 0 : read(file, word, bytes - 1);
    word[n > 0 ? n : 0] = '\0';
    word[strcspn(word, "\n")] = '\0';
    if (file >= 0)
        close(file);
}

/* Send the driver TWILL_COMPARE_HELLO, and store its answer in *welcome. Between hosts, also set
 * link->here. Returns 0 if it works. */
static inline int peer_link_greet(struct peer_link *link, int rank, const char *token,
                                  struct twill_compare_welcome *welcome)
{
    struct twill_compare_hello hello;
    struct sockaddr_in here;
    socklen_t length = sizeof(here);
    cpu_set_t set;
    memset(&hello, 0, sizeof(hello));
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    for (int cpu = 0; cpu < TWILL_COMPARE_CPUS && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set))
            hello.cpus[cpu / 8] = (uint8_t)(hello.cpus[cpu / 8] | 1 << cpu % 8);
    strncpy(hello.token, token, sizeof(hello.token) - 1);
    peer_link_read_line("/proc/sys/kernel/random/boot_id", hello.boot_id, sizeof(hello.boot_id));
    peer_link_read_line("/proc/sys/net/ipv4/tcp_congestion_control", hello.congestion,
                        sizeof(hello.congestion));
    gethostname(hello.host, sizeof(hello.host) - 1);
    hello.pid = (int32_t)getpid();
    hello.turns_per_second = rank == 0 ? played_speed() : 0;
    if (!link->local &&
        (getsockname(link->socket, (struct sockaddr *)&here, &length) != 0 ||
         inet_ntop(AF_INET, &here.sin_addr, link->here, sizeof(link->here)) == NULL))
        return -1;
    return peer_link_send(link, TWILL_COMPARE_HELLO, rank, &hello, sizeof(hello)) ||
           peer_link_receive(link, TWILL_COMPARE_WELCOME, welcome, sizeof(*welcome));
}

/* Connect to the driver by "PORT:TOKEN:ADDRESS,ADDRESS...", or ":TOKEN:SOCKET" on its host. The
 * token, no secret, names the program and comparison. Returns 0, or non-zero on failure. */
static inline int peer_link_open(struct peer_link *link, const char *text, int rank,
                                 struct twill_compare_welcome *welcome)
{
    char copy[512], *rest = copy, *address;
    strncpy(copy, text, sizeof(copy) - 1);
    copy[sizeof(copy) - 1] = '\0';
    const char *port = strsep(&rest, ":"), *token = strsep(&rest, ":");
    if (rank < 0 || rank >= TWILL_COMPARE_RANKS || token == NULL || rest == NULL)
        return -1;
    link->local = port[0] == '\0';
    if (link->local)
        link->socket = peer_link_dial_local(rest);
    while (link->socket < 0 && !link->local && (address = strsep(&rest, ",")) != NULL)
        link->socket = peer_link_dial_inet(address, atoi(port), 1500); /* some may not answer */
    return link->socket < 0 ? -1 : peer_link_greet(link, rank, token, welcome);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the watch: its state, shared by the outward (watch.c) and inward half (watch_hear.c).
 */
#ifndef TWILL_WATCH_STATE_H
#define TWILL_WATCH_STATE_H

#include "fabric/hello.h"
#include "fabric/watch.h"

#define TWILL_WATCH_STRANGERS 16 /* connections that have shown no key, at a time */

enum twill_link_state { LINK_IDLE, LINK_CONNECTING, LINK_OPEN, LINK_DEAD };

/* Outward, to a peer. */
struct twill_link {
    int fd;
    uint8_t state;
    bool suspected;                  /* a connection was lost just before */
    bool told;                       /* has the news of the tell under way, or cannot have it */
    bool lent;                       /* made by the tell under way, only for it */
    size_t done;                     /* bytes of it */
    uint64_t calls;                  /* made: counted for each peer, who takes none that is old */
    uint64_t point;                  /* IDLE: not before; CONNECTING: confirm by; OPEN: since */
    struct twill_session session;    /* OPEN */
    struct twill_wire_header header; /* of the news under way */
};

/* Inward. */
struct twill_caller {
    int fd;
    int64_t rank; /* -1: has not shown the key */
    uint64_t deadline;
    struct twill_session session;
};

/* Somebody who has not shown the key. */
struct twill_stranger {
    struct twill_hello hello;
    int fd; /* -1: free */
};

/* The calls of a rank that have been taken: up to the last one; bit i: the one i before it. They
 * may be looked at in another order than they were made in. */
struct twill_taken {
    uint64_t last, seen;
};

/* Where a peer listens. */
struct twill_place {
    char address[TWILL_ADDRESS_TEXT];
    uint64_t port;
};

struct twill_tidings {
    uint32_t comm;
    int32_t status;
    char message[sizeof(((struct twill_news *)0)->message)];
    uint64_t state[TWILL_ARRAY_LENGTH(((struct twill_news *)0)->state)];
};

struct twill_news_frame {
    struct twill_wire_header header;
    struct twill_tidings tidings;
};

struct twill_watch {
    struct twill_secret secret; /* of this run */
    struct twill_strays strays;
    int rank, size;
    int listener;
    size_t callers, strangers, capacity;
    struct twill_link *link;     /* [size] */
    struct twill_place *place;   /* [size] */
    struct twill_taken *taken;   /* [size] */
    struct twill_caller *caller; /* [capacity] */
    struct pollfd *polls;        /* [capacity] */
    struct twill_stranger stranger[TWILL_WATCH_STRANGERS];
};

#endif

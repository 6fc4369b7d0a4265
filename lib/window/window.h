/* SPDX-License-Identifier: Apache-2.0 */
/* A window as the files of lib/window share it. A rank of this node whose memory is shared is
 * written to directly. Messages carry puts to all others, each with a head. Data that do not fit in
 * it are written into the window before, if the network can do that, and else follow in a second
 * message. */
#ifndef TWILL_WINDOW_INTERNAL_H
#define TWILL_WINDOW_INTERNAL_H

#include "lib/extend.h"
#include "lib/twill_window.h"
#include "lib/wait/wait.h"

#include <pthread.h>
#include <stdatomic.h>

#define TWILL_WINDOW_HEAD  128u /* bytes of a head */
#define TWILL_WINDOW_POSTS 64u  /* puts that are being sent at a time */
#define TWILL_WINDOW_BYE   (-2) /* in place of a signal: this rank sends no more */

/* One signal, in the shared memory of its rank. */
struct twill_window_signal {
    TWILL_ALIGNED(TWILL_CACHE_LINE) _Atomic uint64_t raised;
};

/* The message that announces a put, or is one. */
struct twill_window_head {
    uint64_t offset, bytes;
    int32_t signal; /* or TWILL_NO_SIGNAL or TWILL_WINDOW_BYE */
    unsigned char data[TWILL_WINDOW_HEAD - 20];
};
_Static_assert(offsetof(struct twill_window_head, data) == 20, "no padding is sent");

/* Another rank of the window. The lock protects what is received. */
struct twill_window_peer {
    unsigned char *base;                /* its buffer, as mapped here */
    struct twill_window_signal *signal; /* NULL: messages carry puts to it */
    size_t bytes;
    bool written; /* the network writes data into its window, which is at `place` */
    struct twill_extend_place place;
    bool suspect;           /* found dead once, but it may have just sent data */
    bool sends;             /* messages carry its puts to this rank, and it has not left */
    bool landing;           /* `arrival` is for the data that `head` has announced */
    twill_request *arrival; /* receives the next head or data */
    struct twill_window_head head;
};

/* A put that is being sent. */
struct twill_window_post {
    twill_request *request[2]; /* of the head and the data. NULL: complete, or there is none */
    uint32_t to;
    struct twill_window_head head;
};

struct twill_window {
    twill_comm *parent, *comm; /* the caller's communicator, and its duplicate */
    struct twill_extend_process process;
    void *buffer;
    bool exposed; /* the network can write, and into `buffer` unless that is NULL */
    uint32_t rank, size;
    int32_t signals;
    struct twill_window_signal *signal; /* of this rank */
    struct twill_window_peer *peer;     /* [size] */
    struct twill_window_post *post;     /* [TWILL_WINDOW_POSTS], or NULL: there are no messages */
    struct twill_advancer advancer;     /* used if there are messages */
    pthread_mutex_t lock;        /* of all below, of calls on `comm`, and of what peers send */
    atomic_uint posted;          /* puts that are being sent */
    atomic_uint senders;         /* peers with `sends` */
    atomic_uint moved;           /* counts messages, to know whether there is progress */
    bool ends;                   /* this rank has told all peers that it sends no more */
    bool shared;                 /* this rank and others of its node put into each other's memory */
    _Atomic uint64_t next_check; /* when to look for failures (a twill_now()) */
    atomic_bool broken;
    struct twill_error error;   /* why it is broken */
    struct twill_error refused; /* last refused argument */
};

/* Wait, in the public function `call`, until a signal is `limit` or more. With TWILL_NO_SIGNAL,
 * wait until at most `limit` puts are being sent and, if the window ends, all peers have left.
 * Returns TWILL_OK, or the error that has broken the window. */
twill_status twill_window_await(struct twill_window *window, const char *call, int signal,
                                uint64_t limit);
/* Break the window on all ranks, unless it is broken. The caller holds its lock. Returns the status
 * with which it broke. */
twill_status twill_window_fail(struct twill_window *window, const char *call, twill_status status,
                               const char *format, ...) TWILL_PRINTF(4, 5);
/* Return the number of times that a signal of this rank was raised. */
static inline uint64_t twill_window_raised(const struct twill_window *window, int signal)
{
    return atomic_load_explicit(&window->signal[signal].raised, memory_order_acquire);
}

/* --- lib/window/window_messages.c --- */

/* Start to receive from each peer that sends, and let waits advance the window. */
twill_status twill_window_begin_messages(struct twill_window *window);
/* Send a put. Waits while TWILL_WINDOW_POSTS puts are being sent. Returns TWILL_OK or the error. */
twill_status twill_window_send(struct twill_window *window, const char *call, uint32_t to,
                               const struct twill_window_head *head, const void *src);
/* Tell peers that this rank sends no more, and wait until all that they have sent is here. Returns
 * TWILL_OK or the error. */
twill_status twill_window_end_messages(struct twill_window *window);

#endif

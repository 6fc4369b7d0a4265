/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and sockets of set-up, all non-blocking and close-on-exec. All waits have deadlines. */
#ifndef TWILL_FRAMES_H
#define TWILL_FRAMES_H

#include "fabric/bootstrap/bootstrap.h"

#include <poll.h>
#include <sys/socket.h>

#define TWILL_WIRE_MAGIC   UINT32_C(0x4c575457) /* "WTWL", so other byte orders are refused */
#define TWILL_WIRE_VERSION 3
#define TWILL_WIRE_TEXT    448 /* most bytes of the sentence in a REFUSE or FAIL frame */
/* The kinds of frames, with the contents of their bodies. */
enum twill_wire_kind {
    TWILL_WIRE_WELCOME = 1, /* from rank 0 to all: struct twill_bootstrap_welcome */
    TWILL_WIRE_REFUSE,      /* from rank 0, this rank cannot join: a sentence */
    TWILL_WIRE_FAIL,        /* from rank 0, set-up failed: a sentence; argument = status */
    TWILL_WIRE_GATHER,      /* a rank's part of an all-gather; argument = its number */
    TWILL_WIRE_RESULT,      /* the parts of all ranks; argument = number of the all-gather */
    TWILL_WIRE_NOTICE,      /* failure notification, see fabric/detector/detector_state.h */
};

/* One end of an authenticated connection, with the key of its frames. Part of the end's owner. */
struct twill_session {
    struct twill_secret key;
    uint64_t sent, received; /* frames so far */
    bool caller;             /* this end connected; each direction has its own proofs */
};

/* The header of every frame, before its body, in host byte order. */
struct twill_wire_header {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;                      /* enum twill_wire_kind */
    uint64_t sequence;                  /* number of the frame in its direction of the connection */
    int64_t argument;                   /* of the kind */
    uint64_t length;                    /* bytes of the body */
    uint8_t digest[TWILL_DIGEST_BYTES]; /* of the body */
    /* Proof of all members above. The length is verified before memory is allocated for it. */
    uint8_t proof[TWILL_PROOF_BYTES];
};
_Static_assert(sizeof(struct twill_wire_header) == 96, "identical layout on all machines");

/* A socket address as numeric text and port. A value. */
struct twill_endpoint {
    char address[TWILL_ADDRESS_TEXT];
    uint16_t port;
    bool loopback; /* it is of the loopback interface */
};

/* The result of moving bytes. In this order, all bytes were moved, the socket would block or the
 * deadline passed, and the connection ended or failed. */
enum twill_wire_moved { TWILL_WIRE_DONE, TWILL_WIRE_LATER, TWILL_WIRE_GONE };
/* Build the header of the session's next frame, and count the frame as sent, but do not send it.
 * `argument` depends on the kind. `digest` is that of the body, or NULL to compute it here. */
void twill_wire_seal(struct twill_session *session, struct twill_wire_header *header,
                     enum twill_wire_kind kind, int64_t argument, const void *body, size_t bytes,
                     const uint8_t *digest);
/* Verify the header of the session's next frame. Returns TWILL_FAULT_NONE if it is authentic and in
 * order, and then counts the frame as received. Otherwise returns the reason. */
enum twill_fault twill_wire_check(struct twill_session *session,
                                  const struct twill_wire_header *header);
/* Return whether a body, of header->length bytes, has the digest that its header says. */
bool twill_wire_is_body(const struct twill_wire_header *header, const void *body);
/* Read without blocking until *done is `bytes`. *done counts the bytes of all calls. Returns
 * TWILL_WIRE_DONE or TWILL_WIRE_LATER, or TWILL_WIRE_GONE with errno, 0 if the peer closed. */
enum twill_wire_moved twill_wire_read(int fd, void *buffer, size_t bytes, size_t *done);
/* Write header and body without blocking. *done counts the bytes of both over all calls. Returns
 * TWILL_WIRE_DONE or TWILL_WIRE_LATER, or TWILL_WIRE_GONE with errno. */
enum twill_wire_moved twill_wire_write(int fd, const struct twill_wire_header *header,
                                       const void *body, size_t bytes, size_t *done);
/* Wait for POLLIN or POLLOUT until the time `deadline` of twill_now(). Returns TWILL_WIRE_DONE once
 * there is an event, also an error or hang-up. Returns TWILL_WIRE_LATER if the deadline passes
 * first, or TWILL_WIRE_GONE if poll() fails. */
enum twill_wire_moved twill_wire_wait(int fd, short events, uint64_t deadline);
/* Read all bytes, waiting for them. Returns TWILL_WIRE_DONE, TWILL_WIRE_LATER if the deadline
 * passes first, or TWILL_WIRE_GONE with errno, 0 if the peer closed the connection. */
enum twill_wire_moved twill_wire_read_by(int fd, void *buffer, size_t bytes, uint64_t deadline);
/* Write header and body, waiting for space. Returns TWILL_WIRE_DONE, TWILL_WIRE_LATER if the
 * deadline passes first, or TWILL_WIRE_GONE with errno. */
enum twill_wire_moved twill_wire_write_by(int fd, const struct twill_wire_header *header,
                                          const void *body, size_t bytes, uint64_t deadline);
/* Return the time while_ns after `point`, in ns of twill_now(), or UINT64_MAX if the sum
 * overflows. */
static inline uint64_t twill_wire_later(uint64_t point, uint64_t while_ns)
{
    return while_ns > UINT64_MAX - point ? UINT64_MAX : point + while_ns;
}
/* Return the time after_ns from now, in ns of twill_now(), or UINT64_MAX if the sum overflows. */
static inline uint64_t twill_wire_deadline(uint64_t after_ns)
{
    return twill_wire_later(twill_now(), after_ns);
}
/* poll() to a time of twill_now(), again after signals. Returns 0 if it is over, else as poll(). */
int twill_wire_poll(struct pollfd *polls, size_t count, uint64_t deadline);
/* Return a new TCP socket of an address family (AF_...), not connected yet, or -1 with errno set.
 * It is non-blocking, without Nagle's delay and with keep-alive. */
int twill_socket_new(int family);
/* Close a descriptor unless it is negative, keep errno, and return -1. */
int twill_socket_drop(int fd);
/* Return a socket that listens at an address, or -1 with errno set. */
int twill_socket_listen(const struct sockaddr *address, socklen_t length, int backlog);
/* Listen at a numeric address and port, at all addresses of IPv6 and IPv4 if `address` is NULL, and
 * at a free port if `port` is 0. Returns a socket, or -1 with errno set. */
int twill_socket_listen_at(const char *address, uint16_t port, int backlog);
/* Accept a connection that waits. Returns its socket, with the options of twill_socket_new(), or -1
 * with errno set, to EAGAIN if none waits. */
int twill_socket_accept(int listener);
/* Return whether the peer's host has not answered for 15 s, although data was sent to it again. */
bool twill_socket_is_silent(int fd);
/* Start to connect the socket `fd`. Returns 0 if it is connected, 1 if that is in progress, or -1
 * with errno set. Closes nothing. */
int twill_socket_connect(int fd, const struct sockaddr *address, socklen_t length);
/* Start to connect a new socket to a numeric address. Returns the socket, with *pending set to
 * whether that is in progress, or -1 with errno set. */
int twill_socket_dial(const char *address, uint16_t port, bool *pending);
/* Return 0 or the errno of a connect() whose socket became writable. A socket that TCP connected to
 * itself (nothing listens, and its own port is the target) yields ECONNREFUSED. */
int twill_socket_connected(int fd);
/* Set *endpoint to the address and port of this end of a connection or the other, or return false.
 * An IPv4 address mapped into IPv6 is given as IPv4. */
bool twill_socket_name(int fd, bool other_end, struct twill_endpoint *endpoint);
/* Set *endpoint to a socket address as text and port. An IPv4 address mapped into IPv6 is given as
 * IPv4. Returns false on failure. */
bool twill_endpoint_of(const struct sockaddr *address, socklen_t length,
                       struct twill_endpoint *endpoint);
/* Set *address and *length to a numeric address and port. Returns false if it is not numeric, or
 * has a zone (%eth0) that this host lacks. */
bool twill_endpoint_address(const char *text, uint16_t port, struct sockaddr_storage *address,
                            socklen_t *length);

#endif

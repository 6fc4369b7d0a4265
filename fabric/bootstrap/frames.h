/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and sockets of set-up, shared by the TCP bootstrap and the failure detector. All sockets
 * are non-blocking and close-on-exec; every wait has a deadline. */
#ifndef TWILL_FRAMES_H
#define TWILL_FRAMES_H

#include "fabric/bootstrap/bootstrap.h"

#include <poll.h>
#include <sys/socket.h>

#define TWILL_WIRE_MAGIC   UINT32_C(0x4c575457) /* "WTWL"; a job of mixed byte order is refused */
#define TWILL_WIRE_VERSION 3
#define TWILL_WIRE_TEXT    448 /* bytes of the sentence in a REFUSE or FAIL frame */

/* What the body of a frame is. */
enum twill_wire_kind {
    TWILL_WIRE_WELCOME = 1, /* from rank 0: all ranks joined; struct twill_bootstrap_welcome */
    TWILL_WIRE_REFUSE,      /* from rank 0: this rank cannot join; a sentence */
    TWILL_WIRE_FAIL,        /* from rank 0: set-up failed; argument = status, a sentence */
    TWILL_WIRE_GATHER,      /* a rank's shard; argument = sequence number */
    TWILL_WIRE_RESULT,      /* all shards; argument = sequence number */
    TWILL_WIRE_NOTICE,      /* failure notification; see fabric/detector/detector_state.h */
};

/* One end of an authenticated connection (fabric/auth/handshake.h): the key of its frames and how
 * many were sent and received. */
struct twill_session {
    struct twill_secret key;
    uint64_t sent, received;
    bool caller; /* this end connected: gives each direction its own proof */
};

/* Precedes every frame. Host byte order. */
struct twill_wire_header {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint64_t sequence; /* number of the frame on this connection, in this direction */
    int64_t argument;
    uint64_t length;                    /* bytes of the body */
    uint8_t digest[TWILL_DIGEST_BYTES]; /* of the body */
    uint8_t proof[TWILL_PROOF_BYTES];   /* of all fields above: the length is verified before memory
                                           is allocated for it */
};
_Static_assert(sizeof(struct twill_wire_header) == 96, "identical layout on all machines");

/* A numeric socket address. */
struct twill_endpoint {
    char address[TWILL_ADDRESS_TEXT];
    uint16_t port;
    bool loopback;
};

/* Result of a transfer: complete, would block (or the deadline passed), or the connection ended. */
enum twill_wire_moved { TWILL_WIRE_DONE, TWILL_WIRE_LATER, TWILL_WIRE_GONE };

/* Build the header of the session's next frame. digest: of the body, if the caller already has
 * it; NULL: compute it. */
void twill_wire_seal(struct twill_session *session, struct twill_wire_header *header,
                     enum twill_wire_kind kind, int64_t argument, const void *body, size_t bytes,
                     const uint8_t *digest);
/* Verify that this is the header of the session's next frame. On TWILL_FAULT_NONE, length and
 * digest are authentic, and the frame counts as received. */
enum twill_fault twill_wire_check(struct twill_session *session,
                                  const struct twill_wire_header *header);
/* Verify a body against the digest in its header. */
bool twill_wire_is_body(const struct twill_wire_header *header, const void *body);

/* Read up to `bytes` in all; *done counts across calls. GONE: closed (errno 0) or failed. */
enum twill_wire_moved twill_wire_read(int fd, void *buffer, size_t bytes, size_t *done);
/* Write header and body; *done counts the bytes of both across calls. */
enum twill_wire_moved twill_wire_write(int fd, const struct twill_wire_header *header,
                                       const void *body, size_t bytes, size_t *done);
/* Wait for POLLIN or POLLOUT. LATER: the deadline passed. */
enum twill_wire_moved twill_wire_wait(int fd, short events, uint64_t deadline);
/* Read or write all, waiting until the deadline. LATER: it passed. */
enum twill_wire_moved twill_wire_read_by(int fd, void *buffer, size_t bytes, uint64_t deadline);
enum twill_wire_moved twill_wire_write_by(int fd, const struct twill_wire_header *header,
                                          const void *body, size_t bytes, uint64_t deadline);
/* Add a duration to a point in time; saturates. */
static inline uint64_t twill_wire_later(uint64_t point, uint64_t while_ns)
{
    return while_ns > UINT64_MAX - point ? UINT64_MAX : point + while_ns;
}
static inline uint64_t twill_wire_deadline(uint64_t after_ns)
{
    return twill_wire_later(twill_now(), after_ns);
}
/* poll() until a point in time of twill_now(); restarts after signals. */
int twill_wire_poll(struct pollfd *polls, size_t count, uint64_t deadline);

/* Return a descriptor, or -1 with errno set. */
int twill_socket_new(int family);
/* Close a descriptor, unless it is -1, and keep errno. Returns -1. */
int twill_socket_drop(int fd);
int twill_socket_listen(const struct sockaddr *address, socklen_t length, int backlog);
/* Listen at numeric text; NULL: at all addresses, of IPv6 and IPv4. port 0: a free one. */
int twill_socket_listen_at(const char *address, uint16_t port, int backlog);
int twill_socket_accept(int listener);
/* Report whether data of a connection was retransmitted and the peer's host has not answered
 * for 15 s. */
bool twill_socket_is_silent(int fd);
/* Start to connect. Returns 0 connected, 1 in progress, -1 failed with errno. */
int twill_socket_connect(int fd, const struct sockaddr *address, socklen_t length);
/* Start to connect to numeric text and a port. Returns a socket; *pending: not connected yet. */
int twill_socket_dial(const char *address, uint16_t port, bool *pending);
/* Return the result of a connect whose socket became writable: 0 or an errno. A socket that TCP
 * connected to itself (nothing listens, and its own port is the target) returns ECONNREFUSED. */
int twill_socket_connected(int fd);
/* Get the address of this end or of the other. IPv4-mapped IPv6 is converted to IPv4. */
bool twill_socket_name(int fd, bool other_end, struct twill_endpoint *endpoint);
bool twill_endpoint_of(const struct sockaddr *address, socklen_t length,
                       struct twill_endpoint *endpoint);
/* Convert numeric text and a port to a socket address. False if the text is not numeric. */
bool twill_endpoint_address(const char *text, uint16_t port, struct sockaddr_storage *address,
                            socklen_t *length);

#endif

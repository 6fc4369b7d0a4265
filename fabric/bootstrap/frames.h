/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and sockets of set-up: shared by the TCP bootstrap and the watch. All sockets are
 * non-blocking and close-on-exec; every wait has a deadline. */
#ifndef TWILL_FRAMES_H
#define TWILL_FRAMES_H

#include "fabric/bootstrap/bootstrap.h"

#include <poll.h>
#include <sys/socket.h>

#define TWILL_WIRE_MAGIC   UINT32_C(0x4c575457) /* "WTWL"; a job of mixed byte order is refused */
#define TWILL_WIRE_VERSION 2
#define TWILL_WIRE_TEXT    448 /* bytes of the sentence in a REFUSE or FAIL frame */

enum twill_wire_kind {
    TWILL_WIRE_WELCOME = 1, /* from rank 0: all are here; struct twill_bootstrap_welcome */
    TWILL_WIRE_REFUSE,      /* from rank 0: a sentence */
    TWILL_WIRE_FAIL,        /* from rank 0: set-up failed; argument = status, a sentence */
    TWILL_WIRE_GATHER,      /* a rank's part; argument = sequence number */
    TWILL_WIRE_RESULT,      /* all parts; argument = sequence number */
    TWILL_WIRE_NOTICE,      /* bad news */
};

/* What two ends of a connection share after a hello (fabric/auth/handshake.h): the key of its
 * frames, and how many have gone each way. */
struct twill_session {
    struct twill_secret key;
    uint64_t sent, received;
    bool caller; /* this end has called: what comes back to it is no frame of its own */
};

/* Before every frame. Host byte order. */
struct twill_wire_header {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint64_t sequence; /* of the frames of this connection, in this direction */
    int64_t argument;
    uint64_t length;                    /* of what follows */
    uint8_t digest[TWILL_DIGEST_BYTES]; /* of what follows */
    uint8_t proof[TWILL_PROOF_BYTES];   /* of all the above, so that a length is believed or not
                                           before memory is taken for it */
};
_Static_assert(sizeof(struct twill_wire_header) == 96, "the same layout everywhere");

/* A numeric socket address, as text. */
struct twill_endpoint {
    char address[TWILL_ADDRESS_TEXT];
    uint16_t port;
    bool loopback;
};

/* Outcome of moving bytes. */
enum twill_wire_moved { TWILL_WIRE_DONE, TWILL_WIRE_LATER, TWILL_WIRE_GONE };

/* The header of the session's next frame. digest: of the body, for who sends the same one to many;
 * NULL: to be found. */
void twill_wire_seal(struct twill_session *session, struct twill_wire_header *header,
                     enum twill_wire_kind kind, int64_t argument, const void *body, size_t bytes,
                     const uint8_t *digest);
/* Is this the session's next frame? NONE: its length and digest are the other end's. */
enum twill_fault twill_wire_check(struct twill_session *session,
                                  const struct twill_wire_header *header);
/* Is this what the header says? */
bool twill_wire_is_body(const struct twill_wire_header *header, const void *body);

/* Read up to bytes; *done says how many are there. GONE: closed or failed (errno 0: closed). */
enum twill_wire_moved twill_wire_read(int fd, void *buffer, size_t bytes, size_t *done);
/* Write header and body; *done counts both. */
enum twill_wire_moved twill_wire_write(int fd, const struct twill_wire_header *header,
                                       const void *body, size_t bytes, size_t *done);
/* Wait for POLLIN or POLLOUT. LATER: the deadline passed. */
enum twill_wire_moved twill_wire_wait(int fd, short events, uint64_t deadline);
/* Read and write, waiting until the deadline. LATER: it passed. */
enum twill_wire_moved twill_wire_read_by(int fd, void *buffer, size_t bytes, uint64_t deadline);
enum twill_wire_moved twill_wire_write_by(int fd, const struct twill_wire_header *header,
                                          const void *body, size_t bytes, uint64_t deadline);
/* A point in time plus a while, without wrapping around. */
static inline uint64_t twill_wire_later(uint64_t point, uint64_t while_ns)
{
    return while_ns > UINT64_MAX - point ? UINT64_MAX : point + while_ns;
}
static inline uint64_t twill_wire_deadline(uint64_t after_ns)
{
    return twill_wire_later(twill_now(), after_ns);
}
/* poll() until a point of twill_now(); restarts after signals. */
int twill_wire_poll(struct pollfd *polls, size_t count, uint64_t deadline);

/* -1 with errno set, or a descriptor. */
int twill_socket_new(int family);
int twill_socket_listen(const struct sockaddr *address, socklen_t length, int backlog);
int twill_socket_accept(int listener);
/* Connected: what is under way has been repeated, and nothing was heard for 15 s. */
bool twill_socket_is_silent(int fd);
/* Begin to connect: 0 done, 1 under way, -1 failed with errno. */
int twill_socket_connect(int fd, const struct sockaddr *address, socklen_t length);
/* Outcome of a connect that was under way and has become writable: 0 or an errno. A socket that
 * TCP connected to itself (nobody listens, and the same port was drawn) counts as refused. */
int twill_socket_connected(int fd);
/* Address of this end, or of the other one. IPv4 in IPv6 is told as IPv4. */
bool twill_socket_name(int fd, bool other_end, struct twill_endpoint *endpoint);
bool twill_endpoint_of(const struct sockaddr *address, socklen_t length,
                       struct twill_endpoint *endpoint);
/* The other way round: numeric text and port into an address. false if it is not numeric. */
bool twill_endpoint_address(const char *text, uint16_t port, struct sockaddr_storage *address,
                            socklen_t *length);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake ("hello") by which two processes of a job prove to each other that they know the
 * key. It works over any stream socket and never blocks. The rendezvous, the failure detector and
 * the transports use it.
 *
 *      caller (connects)                               called end (accepts)
 *      call   rank, to, size, epoch, argument, nonce, proof ->
 *          <- answer   nonce, proof of both nonces
 *      reply  proof of both nonces                   ->
 *      frames, sealed with a key derived from both   <->
 *
 * A caller without the key learns nothing from the called end except that its version or key
 * differs. This refusal is not authenticated. A replayed call fails at the reply, because the
 * answer's nonce is new.
 *
 * The handshake of TWILL_HELLO_DETECTOR is one-way, as the called process may not run for a while.
 * Frames follow the call at once, under a key derived from the call alone. The called end must
 * therefore reject replays itself. It does so by the argument, which numbers the calls of a rank,
 * and by a secret that is new with every run of a job. */
#ifndef TWILL_HANDSHAKE_H
#define TWILL_HANDSHAKE_H

#include "fabric/bootstrap/frames.h"

/* The purpose of a connection. */
enum twill_hello_role {
    TWILL_HELLO_JOIN = 1, /* rendezvous, whose called end checks rank, size and epoch */
    TWILL_HELLO_DETECTOR, /* failure detector, one-way */
    TWILL_HELLO_DATA,     /* transports */
};

/* A value, the claim of a caller to be `rank` of `size` and call `to`. `argument` is JOIN's
 * milliseconds of patience, the detector's number of the call, or the communicator and channel of
 * DATA. */
struct twill_hello_identity {
    enum twill_hello_role role;
    uint32_t rank, to, size;
    uint32_t epoch; /* growths of the job so far, used by TWILL_HELLO_JOIN */
    uint64_t argument;
};

#define TWILL_HELLO_NONCE 32
/* The caller's first message as it is sent. (Its second, the reply, is only a proof.) */
struct twill_hello_call {
    uint32_t magic;
    uint16_t version;
    uint16_t role;
    uint32_t rank, to, size, epoch;
    uint64_t argument;
    uint8_t nonce[TWILL_HELLO_NONCE];
    uint8_t proof[TWILL_PROOF_BYTES]; /* of all members above */
};
_Static_assert(sizeof(struct twill_hello_call) == 96, "identical layout on all machines");

struct twill_hello_answer { /* message of the called end, as it is sent */
    uint32_t magic;
    uint16_t version;
    uint16_t refusal;  /* enum twill_fault, or 0; in a refusal nonce and proof are zero */
    uint64_t argument; /* 0 */
    uint8_t nonce[TWILL_HELLO_NONCE];
    uint8_t proof[TWILL_PROOF_BYTES]; /* of the call and of all members above */
};
_Static_assert(sizeof(struct twill_hello_answer) == 80, "identical layout on all machines");

/* One end of a handshake, part of the connection's owner. It has the key until the end. */
struct twill_hello {
    struct twill_secret secret;
    struct twill_hello_identity self; /* called end: only role, its own rank, and size */
    uint8_t step;                     /* message that is being moved: 0 call, 1 answer, 2 reply */
    bool caller;
    bool refused;           /* caller: the called end sent a refusal with `fault` */
    enum twill_fault fault; /* why it failed, or TWILL_FAULT_NONE */
    short events;           /* POLLIN or POLLOUT, to poll for before the next move */
    size_t done;            /* bytes of the current message moved so far */
    struct {
        struct twill_hello_call call;
        struct twill_hello_answer answer;
    } said;
    uint8_t reply[TWILL_PROOF_BYTES]; /* the third message, a proof of `said` */
};

/* Prepare a handshake on the end that connected, as rank identity->rank that calls identity->to.
 * Sends nothing. Returns false if the kernel gives no random numbers. */
bool twill_hello_call(struct twill_hello *hello, const struct twill_secret *secret,
                      const struct twill_hello_identity *identity);
/* Prepare a handshake on the end that accepted, as rank `rank` of `size`. Receives nothing. Returns
 * false if the kernel gives no random numbers. */
bool twill_hello_expect(struct twill_hello *hello, const struct twill_secret *secret,
                        enum twill_hello_role role, uint32_t rank, uint32_t size);
/* Continue a handshake over `fd` as far as that does not block. Returns TWILL_WIRE_LATER if the
 * caller must wait for hello->events and call again. Returns TWILL_WIRE_DONE when the handshake is
 * complete, *session is set and hello->said.call is authentic. For the caller of a detector, that
 * is once the call is sent. Returns TWILL_WIRE_GONE if it failed, with the reason in hello->fault,
 * and errno for TWILL_FAULT_CLOSED. Closes nothing. */
enum twill_wire_moved twill_hello_move(struct twill_hello *hello, int fd,
                                       struct twill_session *session);

#endif

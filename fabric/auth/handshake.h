/* SPDX-License-Identifier: Apache-2.0 */
/* Handshake ("hello"): two processes of a job prove to each other, over any stream socket, that
 * they know the key. Shared by the rendezvous, the failure detector and transports; never blocks.
 *
 *      caller (connects)                               called end (accepts)
 *      call   rank, to, size, epoch, argument, nonce, proof ->
 *          <- answer   nonce, proof of both nonces
 *      reply  proof of both nonces                   ->
 *      frames, sealed with a key derived from both   <->
 *
 * The called end tells a caller without the key nothing except that its version or key differs;
 * this refusal is not authenticated. A replayed call fails at the reply, as the answer's nonce is
 * new.
 *
 * TWILL_HELLO_DETECTOR is one-way, for messages to a process that may not run for a while: the
 * frames follow the call at once, under a key derived from the call alone. The called end must
 * reject replays itself, by the argument, which numbers the calls of a rank, and by a secret that
 * is new with every run of a job. */
#ifndef TWILL_HANDSHAKE_H
#define TWILL_HANDSHAKE_H

#include "fabric/bootstrap/frames.h"

/* Purpose of a connection. */
enum twill_hello_role {
    TWILL_HELLO_JOIN = 1, /* rendezvous; the called end checks rank, size, epoch itself */
    TWILL_HELLO_DETECTOR, /* one-way */
    TWILL_HELLO_DATA,     /* transports */
};

/* What a caller claims: that it is `rank` of `size` and calls rank `to`. Each role has its own use
 * of `argument`. */
struct twill_hello_identity {
    enum twill_hello_role role;
    uint32_t rank, to, size;
    uint32_t epoch; /* of the job (struct twill_oob), for TWILL_HELLO_JOIN */
    uint64_t argument;
};

#define TWILL_HELLO_NONCE 32

/* The messages on the wire. The reply is a proof alone. */
struct twill_hello_call {
    uint32_t magic;
    uint16_t version;
    uint16_t role;
    uint32_t rank, to, size, epoch;
    uint64_t argument;
    uint8_t nonce[TWILL_HELLO_NONCE];
    uint8_t proof[TWILL_PROOF_BYTES];
};
_Static_assert(sizeof(struct twill_hello_call) == 96, "identical layout on all machines");

struct twill_hello_answer {
    uint32_t magic;
    uint16_t version;
    uint16_t refusal;  /* enum twill_fault; if not 0, the rest is zero */
    uint64_t argument; /* 0 */
    uint8_t nonce[TWILL_HELLO_NONCE];
    uint8_t proof[TWILL_PROOF_BYTES];
};
_Static_assert(sizeof(struct twill_hello_answer) == 80, "identical layout on all machines");

/* One end of a handshake, owned by the user of the connection. Holds secrets until it ends. */
struct twill_hello {
    struct twill_secret secret;
    struct twill_hello_identity self; /* called end: role, rank and size are what it expects */
    uint8_t step;                     /* current message: 0 call, 1 answer, 2 reply */
    bool caller;
    bool refused; /* caller: the called end sent a refusal; fault is its reason */
    enum twill_fault fault;
    short events; /* POLLIN or POLLOUT: what to wait for */
    size_t done;  /* bytes moved of the current message */
    struct {
        struct twill_hello_call call;
        struct twill_hello_answer answer;
    } said;
    uint8_t reply[TWILL_PROOF_BYTES];
};

/* Start on the end that connected, as identity->rank to identity->to. False: no random numbers. */
bool twill_hello_call(struct twill_hello *hello, const struct twill_secret *secret,
                      const struct twill_hello_identity *identity);
/* Start on the end that accepted, as `rank`. False: no random numbers. */
bool twill_hello_expect(struct twill_hello *hello, const struct twill_secret *secret,
                        enum twill_hello_role role, uint32_t rank, uint32_t size);
/* Progress as far as the socket allows. LATER: wait for hello->events, with a deadline. GONE: fault
 * has the reason (CLOSED: errno, too). DONE: *session is set, and hello->said.call is authentic.
 * Reads no byte beyond the handshake. */
enum twill_wire_moved twill_hello_move(struct twill_hello *hello, int fd,
                                       struct twill_session *session);

#endif

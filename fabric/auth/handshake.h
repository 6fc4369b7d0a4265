/* SPDX-License-Identifier: Apache-2.0 */
/* Hello: how two processes of a job find out, over a connection of any kind, that each knows the
 * key. One protocol for rendezvous, watch and transports; moved along without waiting.
 *
 *      caller                                          called
 *      call   rank, to, size, argument, nonce, proof ->
 *          <- answer   argument, nonce, proof of both nonces
 *      reply  proof of both nonces                   ->
 *      frames, sealed with a key made of both        <->
 *
 * The called end says nothing to who has not shown that it knows the key, but "no" (a refusal of
 * another version or key, which is worth nothing as proof). A recorded call gets an answer that its
 * sender can do nothing with: the nonce is new.
 *
 * ONE_WAY is for who must leave a message where nobody may be looking for a while: the frames
 * follow the call at once, under a key made of the call alone. The called end has to see to it that
 * a call comes only once: by its argument, which counts the calls of a rank, and by a secret that
 * is new with every run of a job. */
#ifndef TWILL_HANDSHAKE_H
#define TWILL_HANDSHAKE_H

#include "fabric/bootstrap/frames.h"

enum twill_hello_role {
    TWILL_HELLO_JOIN = 1, /* rendezvous; who is called judges rank and size itself */
    TWILL_HELLO_DETECTOR, /* one way */
    TWILL_HELLO_DATA,     /* transports */
};

/* What a caller says of itself; argument is the roles' own business. */
struct twill_hello_identity {
    enum twill_hello_role role;
    uint32_t rank, to, size;
    uint64_t argument;
};

#define TWILL_HELLO_NONCE 32

struct twill_hello_call {
    uint32_t magic;
    uint16_t version;
    uint16_t role;
    uint32_t rank, to, size, zero;
    uint64_t argument;
    uint8_t nonce[TWILL_HELLO_NONCE];
    uint8_t proof[TWILL_PROOF_BYTES];
};
_Static_assert(sizeof(struct twill_hello_call) == 96, "the same layout everywhere");

struct twill_hello_answer {
    uint32_t magic;
    uint16_t version;
    uint16_t refusal; /* enum twill_fault; not 0: the rest is empty */
    uint64_t argument;
    uint8_t nonce[TWILL_HELLO_NONCE];
    uint8_t proof[TWILL_PROOF_BYTES];
};
_Static_assert(sizeof(struct twill_hello_answer) == 80, "the same layout everywhere");

struct twill_hello {
    struct twill_secret secret;
    struct twill_hello_identity self; /* called end: role, rank and size are what it expects */
    uint64_t answers;                 /* called end: the argument of its answer, set by its owner */
    uint8_t step;                     /* message under way */
    bool caller;
    bool refused; /* caller: the other end has said so; fault tells why */
    enum twill_fault fault;
    short events; /* POLLIN or POLLOUT: what to wait for */
    size_t done;  /* bytes of the message under way */
    struct {
        struct twill_hello_call call;
        struct twill_hello_answer answer;
    } said;
    uint8_t reply[TWILL_PROOF_BYTES];
};

/* Begin, on the end that has connected: as card->rank to card->to. false: no random numbers. */
bool twill_hello_call(struct twill_hello *hello, const struct twill_secret *secret,
                      const struct twill_hello_identity *identity);
/* Begin, on the end that has accepted: rank is its own. */
bool twill_hello_expect(struct twill_hello *hello, const struct twill_secret *secret,
                        enum twill_hello_role role, uint32_t rank, uint32_t size);
/* Go on as far as the socket lets. LATER: wait for hello->events, with a deadline. GONE: fault says
 * why (CLOSED: errno too). DONE: *session, and hello->said.call is what the caller is. Reads not
 * one byte more than is its own. */
enum twill_wire_moved twill_hello_move(struct twill_hello *hello, int fd,
                                       struct twill_session *session);

#endif

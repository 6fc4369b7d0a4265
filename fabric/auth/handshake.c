/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake: both ends. */
#include "fabric/auth/handshake.h"
#include "lib/base/plural.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum hello_step { STEP_CALL, STEP_ANSWER, STEP_REPLY };

bool twill_hello_call(struct twill_hello *hello, const struct twill_secret *secret,
                      const struct twill_hello_identity *identity)
{
    struct twill_hello_call *call = &hello->said.call;
    memset(hello, 0, sizeof(*hello));
    hello->secret = *secret;
    hello->self = *identity;
    hello->caller = true;
    hello->events = POLLOUT;
    call->magic = TWILL_WIRE_MAGIC;
    call->version = TWILL_WIRE_VERSION;
    call->role = (uint16_t)identity->role;
    call->rank = identity->rank;
    call->to = identity->to;
    call->size = identity->size;
    call->epoch = identity->epoch;
    call->argument = identity->argument;
    if (!twill_random(call->nonce, sizeof(call->nonce)))
        return false;
    twill_secret_prove(secret, "call", call, offsetof(struct twill_hello_call, proof), call->proof);
    return true;
}

bool twill_hello_expect(struct twill_hello *hello, const struct twill_secret *secret,
                        enum twill_hello_role role, uint32_t rank, uint32_t size)
{
    memset(hello, 0, sizeof(*hello));
    hello->secret = *secret;
    hello->self = (struct twill_hello_identity){.role = role, .rank = rank, .size = size};
    hello->events = POLLIN;
    return twill_random(hello->said.answer.nonce, sizeof(hello->said.answer.nonce));
}

/* Set hello->fault to why the handshake failed, wipe the key and return TWILL_WIRE_GONE. */
static enum twill_wire_moved give_up_hello(struct twill_hello *hello, enum twill_fault fault)
{
    hello->fault = fault;
    twill_secret_wipe(&hello->secret, sizeof(hello->secret));
    return TWILL_WIRE_GONE;
}

/* Set *session, derived from the complete handshake, wipe the key and return TWILL_WIRE_DONE. */
static enum twill_wire_moved finish_hello(struct twill_hello *hello, struct twill_session *session)
{
    twill_secret_derive(&hello->secret, "session", &hello->said, sizeof(hello->said),
                        &session->key);
    session->sent = session->received = 0;
    session->caller = hello->caller;
    twill_secret_wipe(&hello->secret, sizeof(hello->secret));
    return TWILL_WIRE_DONE;
}

/* Bytes of `said`, which both ends have proven after a complete handshake. */
static const size_t proven =
    offsetof(struct twill_hello, reply) - offsetof(struct twill_hello, said);

/* Return whether the handshake ends with the caller's first message. */
static bool is_one_way(const struct twill_hello *hello)
{
    return hello->self.role == TWILL_HELLO_DETECTOR;
}

/* Make the message after the current one the current message, of which no byte is moved yet. Set
 * hello->events to POLLOUT if this end sends it, else to POLLIN. This must not be called after the
 * handshake's last message. */
static void proceed(struct twill_hello *hello)
{
    hello->step++;
    hello->done = 0;
    hello->events = (hello->step == STEP_ANSWER) == hello->caller ? POLLIN : POLLOUT;
}

/* Return what is wrong with the part of the call that has arrived, or TWILL_FAULT_NONE. Once all of
 * it is there, checks the proof, and except for TWILL_HELLO_JOIN also the ranks and the size. */
static enum twill_fault find_fault(const struct twill_hello *hello)
{
    const struct twill_hello_call *call = &hello->said.call;
    const struct twill_hello_identity *self = &hello->self;
    if (hello->done < offsetof(struct twill_hello_call, rank))
        return hello->done >= sizeof(call->magic) && call->magic != TWILL_WIRE_MAGIC
                   ? TWILL_FAULT_MALFORMED
                   : TWILL_FAULT_NONE;
    if (call->magic != TWILL_WIRE_MAGIC)
        return TWILL_FAULT_MALFORMED;
    if (call->version != TWILL_WIRE_VERSION)
        return TWILL_FAULT_VERSION;
    if (call->role != self->role)
        return TWILL_FAULT_MALFORMED;
    if (hello->done < sizeof(*call))
        return TWILL_FAULT_NONE;
    if (!twill_secret_check(&hello->secret, "call", call, offsetof(struct twill_hello_call, proof),
                            call->proof))
        return TWILL_FAULT_KEY;
    if (self->role != TWILL_HELLO_JOIN && (call->to != self->rank || call->rank == self->rank ||
                                           call->size != self->size || call->rank >= call->size))
        return TWILL_FAULT_REFUSED;
    return TWILL_FAULT_NONE;
}

/* Read the call and prepare the answer. Returns TWILL_WIRE_DONE if the whole call is there and
 * authentic, or TWILL_WIRE_LATER if a part is missing. Returns TWILL_WIRE_GONE, with hello->fault,
 * if it is wrong or refused or the connection ended. A caller of another version or key is first
 * sent a refusal. */
static enum twill_wire_moved receive_call(struct twill_hello *hello, int fd)
{
    struct twill_hello_answer *answer = &hello->said.answer;
    enum twill_wire_moved outcome =
        twill_wire_read(fd, &hello->said.call, sizeof(hello->said.call), &hello->done);
    enum twill_fault fault = find_fault(hello);
    if (fault == TWILL_FAULT_VERSION || fault == TWILL_FAULT_KEY) {
        struct twill_hello_answer no = {
            .magic = TWILL_WIRE_MAGIC, .version = TWILL_WIRE_VERSION, .refusal = (uint16_t)fault};
        (void)!send(fd, &no, sizeof(no), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if (fault != TWILL_FAULT_NONE)
        return give_up_hello(hello, fault);
    if (outcome != TWILL_WIRE_DONE)
        return outcome == TWILL_WIRE_GONE ? give_up_hello(hello, TWILL_FAULT_CLOSED) : outcome;
    if (is_one_way(hello)) {
        memset(answer, 0, sizeof(*answer));
        return outcome;
    }
    answer->magic = TWILL_WIRE_MAGIC;
    answer->version = TWILL_WIRE_VERSION;
    twill_secret_prove(&hello->secret, "answer", &hello->said, proven - sizeof(answer->proof),
                       answer->proof);
    return outcome;
}

/* Read and check the reply. Returns TWILL_WIRE_DONE if it is authentic, TWILL_WIRE_LATER if not all
 * has come, or TWILL_WIRE_GONE if it is wrong or the connection was closed. */
static enum twill_wire_moved receive_reply(struct twill_hello *hello, int fd)
{
    enum twill_wire_moved outcome =
        twill_wire_read(fd, hello->reply, sizeof(hello->reply), &hello->done);
    if (outcome == TWILL_WIRE_GONE)
        return give_up_hello(hello, TWILL_FAULT_CLOSED);
    if (outcome == TWILL_WIRE_DONE &&
        !twill_secret_check(&hello->secret, "reply", &hello->said, proven, hello->reply))
        return give_up_hello(hello, TWILL_FAULT_REPLAYED);
    return outcome;
}

/* Read and check the answer of the called end, and prepare the reply. Returns TWILL_WIRE_DONE if it
 * is authentic, or TWILL_WIRE_LATER if not all has come. Returns TWILL_WIRE_GONE, with
 * hello->fault, if it is wrong or a refusal or the connection ended. */
static enum twill_wire_moved hello_answer_read(struct twill_hello *hello, int fd)
{
    struct twill_hello_answer *answer = &hello->said.answer;
    enum twill_wire_moved outcome = twill_wire_read(fd, answer, sizeof(*answer), &hello->done);
    if (hello->done >= sizeof(answer->magic) && answer->magic != TWILL_WIRE_MAGIC)
        return give_up_hello(hello, TWILL_FAULT_MALFORMED);
    if (outcome != TWILL_WIRE_DONE)
        return outcome == TWILL_WIRE_GONE ? give_up_hello(hello, TWILL_FAULT_CLOSED) : outcome;
    hello->refused = answer->refusal != 0;
    if (answer->version != TWILL_WIRE_VERSION || answer->refusal == TWILL_FAULT_VERSION)
        return give_up_hello(hello, TWILL_FAULT_VERSION);
    if (hello->refused || !twill_secret_check(&hello->secret, "answer", &hello->said,
                                              proven - sizeof(answer->proof), answer->proof))
        return give_up_hello(hello, TWILL_FAULT_KEY);
    twill_secret_prove(&hello->secret, "reply", &hello->said, proven, hello->reply);
    return outcome;
}

/* Send a message from byte hello->done on, without blocking. Returns TWILL_WIRE_DONE once all is
 * sent, or TWILL_WIRE_LATER if the socket takes no more now. If send() fails, sets hello->fault to
 * TWILL_FAULT_CLOSED and returns TWILL_WIRE_GONE. */
static enum twill_wire_moved hello_send(struct twill_hello *hello, int fd, const void *message,
                                        size_t bytes)
{
    while (hello->done < bytes) {
        ssize_t n = send(fd, (const char *)message + hello->done, bytes - hello->done,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return TWILL_WIRE_LATER;
        if (n < 0)
            return give_up_hello(hello, TWILL_FAULT_CLOSED);
        hello->done += (size_t)n;
    }
    return TWILL_WIRE_DONE;
}

/* Send or receive the current message. Returns TWILL_WIRE_DONE if it is complete, TWILL_WIRE_LATER
 * if the socket would block, or TWILL_WIRE_GONE with hello->fault. */
static enum twill_wire_moved move_message(struct twill_hello *hello, int fd)
{
    const struct twill_hello_answer *answer = &hello->said.answer;
    switch ((enum hello_step)hello->step) {
    case STEP_CALL:
        return hello->caller ? hello_send(hello, fd, &hello->said.call, sizeof(hello->said.call))
                             : receive_call(hello, fd);
    case STEP_ANSWER:
        return hello->caller ? hello_answer_read(hello, fd)
                             : hello_send(hello, fd, answer, sizeof(*answer));
    case STEP_REPLY:
        return hello->caller ? hello_send(hello, fd, hello->reply, sizeof(hello->reply))
                             : receive_reply(hello, fd);
    }
    return TWILL_WIRE_GONE;
}

enum twill_wire_moved twill_hello_move(struct twill_hello *hello, int fd,
                                       struct twill_session *session)
{
    if (hello->fault != TWILL_FAULT_NONE)
        return TWILL_WIRE_GONE;
    for (;;) {
        enum twill_wire_moved outcome = move_message(hello, fd);
        if (outcome != TWILL_WIRE_DONE)
            return outcome;
        if (hello->step == STEP_REPLY || is_one_way(hello))
            return finish_hello(hello, session);
        proceed(hello);
    }
}

unsigned twill_rejected_total(const struct twill_rejected *rejected)
{
    unsigned total = 0;
    for (int fault = 0; fault < TWILL_FAULTS; fault++)
        total += rejected->count[fault];
    return total;
}

void twill_rejected_text(const struct twill_rejected *rejected, char *text, size_t bytes)
{
    static const char *const names[TWILL_FAULTS] = {
        [TWILL_FAULT_MALFORMED] = "malformed", [TWILL_FAULT_VERSION] = "of another version",
        [TWILL_FAULT_KEY] = "without the key", [TWILL_FAULT_REPLAYED] = "replayed",
        [TWILL_FAULT_OVERSIZED] = "oversized", [TWILL_FAULT_SLOW] = "slow",
        [TWILL_FAULT_CLOSED] = "closed early", [TWILL_FAULT_REFUSED] = "refused",
    };
    unsigned total = twill_rejected_total(rejected);
    int used = snprintf(text, bytes, "%u connection%s rejected", total, TWILL_PLURAL(total));
    const char *before = " (";
    for (int fault = 1; fault < TWILL_FAULTS; fault++) {
        if (rejected->count[fault] == 0 || used < 0 || (size_t)used >= bytes)
            continue;
        used += snprintf(text + used, bytes - (size_t)used, "%s%u %s", before,
                         rejected->count[fault], names[fault]);
        before = ", ";
    }
    if (total > 0 && used > 0 && (size_t)used < bytes)
        snprintf(text + used, bytes - (size_t)used, ")");
}

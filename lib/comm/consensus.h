/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement among the ranks of a communicator, some of which may fail meanwhile. All ranks that
 * complete it have the same decision. It is a state machine without clock, input or output. Its
 * caller feeds it messages, failures and ticks, and it passes messages to a function.
 *
 * The coordinator is the lowest rank that is not considered failed, and its rank is its ballot.
 * (See Lamport, "The part-time parliament", 1998. As failures are detected, the quorum is replaced
 * by all live ranks.) The messages of an agreement, in order:
 *
 *   JOIN     rank -> coordinator   carries the rank's contribution, or the proposal it accepted
 *   CALL     coordinator -> rank   asks for the JOIN and shows that the coordinator is alive
 *   PROPOSE  coordinator -> ranks  once all live ranks have joined. Carries the accepted proposal
 *                                  of the highest ballot, or else the sum of the contributions.
 *   ACCEPT   rank -> coordinator   unless the rank has joined a higher ballot
 *   DECIDE   coordinator -> ranks  once all live ranks have accepted. Each receiver forwards it to
 *                                  the ranks 1, 2, 4, ... above it and leaves.
 *
 * Messages may be lost, doubled and late. A tick repeats what has not been answered, and a rank
 * that has left answers messages of that agreement with DECIDE. The agreements of a communicator
 * are numbered from 1 (`instance`). Each rank keeps the last two decisions. Only excluded ranks are
 * further behind, and they learn a later decision. Spin checks the model in consensus.pml. */
#ifndef TWILL_CONSENSUS_H
#define TWILL_CONSENSUS_H

#include "lib/base/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The value that ranks agree on, sent as it lies in memory. set[] holds two sets of ranks, of
 * twill_consensus_words() words each: the failed ranks, and those of them that are only silent. */
struct twill_decision {
    uint64_t flags;       /* bitwise AND of the contributions */
    uint64_t least, most; /* minimum and maximum of the contributed numbers */
    uint32_t port;        /* TCP port of the coordinator for the step after the agreement, or 0 */
    uint32_t by;          /* rank of the proposer */
    uint32_t refused;     /* nonzero if undecided, as ranks outside set[] may not continue alone */
    uint32_t calls; /* bitwise OR of 1 << enum twill_agreeing_call of the contributing ranks */
    uint64_t set[];
};

/* The call that a rank agrees for. Ranks in different calls learn that from the decision. */
enum twill_agreeing_call {
    TWILL_AGREEING_ONLY,
    TWILL_AGREEING_OUTCOME, /* agree whether a reduction is complete */
    TWILL_AGREEING_SHRINK,
    TWILL_AGREEING_GROW
};

enum twill_consensus_kind {
    TWILL_CONSENSUS_JOIN = 1,
    TWILL_CONSENSUS_CALL,
    TWILL_CONSENSUS_PROPOSE,
    TWILL_CONSENSUS_ACCEPT,
    TWILL_CONSENSUS_DECIDE
};

/* The beginning of a message, sent as it lies in memory. A struct twill_decision follows. */
struct twill_consensus_header {
    uint32_t kind, instance;
    uint32_t ballot;   /* ballot that the sender has joined */
    uint32_t accepted; /* JOIN: 1 + ballot of the accepted proposal that follows, or 0 if the
                          sender's own contribution does */
};

enum twill_consensus_state {
    TWILL_CONSENSUS_OUT,     /* this rank is in no agreement */
    TWILL_CONSENSUS_JOINED,  /* waits for the coordinator */
    TWILL_CONSENSUS_GATHERS, /* this rank is the coordinator and waits for JOINs */
    TWILL_CONSENSUS_PROPOSES /* this rank is the coordinator and waits for ACCEPTs */
};

/* State of one rank in the agreements of a communicator. Made by twill_consensus_open() and freed
 * by twill_consensus_close(). The caller's lock protects it. */
struct twill_consensus {
    uint32_t size, rank;
    uint32_t instance; /* number of the present or last agreement */
    uint32_t ballot;   /* highest ballot that this rank has joined */
    uint32_t accepted; /* 1 + ballot of the proposal that this rank has accepted, or 0 */
    enum twill_consensus_state state;
    struct twill_decision *own; /* this rank's contribution, with the failed ranks known so far */
    struct twill_decision *proposal; /* proposal that this rank has accepted or made */
    struct twill_decision *last[2];  /* [i % 2] is the decision of instance i */
    uint32_t decided[2];             /* instances of last[], or 0 */
    bool excluded; /* may not continue, or is shut out; `proposal` is the last decision here */

    /* The coordinator may gather JOINs of the next agreement before it enters that one. */
    uint32_t gathers;            /* instance that the next members belong to */
    uint32_t gathered_accepted;  /* 1 + highest ballot that a joined rank has accepted, or 0 */
    struct twill_decision *sum;  /* sum of the contributions, or the proposal of that ballot */
    uint64_t *joined, *answered; /* sets: ranks that have joined, that have accepted */

    const uint8_t *near; /* NULL, or [size] nonzero if a silent rank surely cannot continue */
    /* Send a message if that does not block. If `last`, it may wait a moment until that is out. */
    void (*send)(void *user, uint32_t to, const void *message, size_t bytes, bool last);
    void *user;
    unsigned char *message;          /* buffer of the message to send */
    struct twill_decision *received; /* aligned copy of the message being handled */
};
/* Return the number of 64-bit words in a set of `size` ranks. */
static inline size_t twill_consensus_words(uint32_t size)
{
    return ((size_t)size + 63) / 64;
}
/* Return the size in bytes of a decision of `size` ranks. */
static inline size_t twill_decision_bytes(uint32_t size)
{
    return sizeof(struct twill_decision) + 2 * twill_consensus_words(size) * sizeof(uint64_t);
}
static inline bool twill_rank_set_has(const uint64_t *set, uint32_t rank)
{
    return (set[rank / 64] >> rank % 64 & 1) != 0;
}
static inline void twill_rank_set_add(uint64_t *set, uint32_t rank)
{
    set[rank / 64] |= UINT64_C(1) << rank % 64;
}

/* Create the state of rank `rank` of `size`. near[size], which is borrowed, is nonzero for ranks
 * that surely cannot continue once they are silent. It may be NULL. The other functions here call
 * send(user, ...) to send a message to rank `to` without blocking. If `last`, it may wait a moment
 * until the message is out. Returns NULL if out of memory. */
struct twill_consensus *twill_consensus_open(uint32_t size, uint32_t rank, const uint8_t *near,
                                             void (*send)(void *user, uint32_t to,
                                                          const void *message, size_t bytes,
                                                          bool last),
                                             void *user);
void twill_consensus_close(struct twill_consensus *consensus); /* also for NULL */

/* Enter the next agreement, for `call`, with this rank's contribution (struct twill_decision).
 * Ranks that are known to have failed remain so. Does nothing if this rank is excluded. */
void twill_consensus_enter(struct twill_consensus *consensus, enum twill_agreeing_call call,
                           uint64_t flags, uint64_t number, uint32_t port);
/* Handle a message from a rank. Ignores a malformed one. */
void twill_consensus_receive(struct twill_consensus *consensus, uint32_t from, const void *message,
                             size_t bytes);
/* Record that another rank is dead or, if `silent`, may live but does not answer. A silent rank
 * also counts as dead if near[] is nonzero for it. Continue without it. */
void twill_consensus_fail(struct twill_consensus *consensus, uint32_t rank, bool silent);
/* Leave all agreements and answer no messages, as the other ranks continue without this one. */
void twill_consensus_leave(struct twill_consensus *consensus);
/* Repeat the messages that have not been answered. A coordinator also sends CALL to the other
 * ranks, to show that it is alive. */
void twill_consensus_tick(struct twill_consensus *consensus);
/* Return the lowest rank >= `from` whose message this rank waits for, or UINT32_MAX if none. */
uint32_t twill_consensus_awaits(const struct twill_consensus *consensus, uint32_t from);
/* Return the decision of the present agreement, or NULL while it is under way. Once the others have
 * decided to continue without this rank, return that decision for every agreement. */
const struct twill_decision *twill_consensus_decision(const struct twill_consensus *consensus);

#endif

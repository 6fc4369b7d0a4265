/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement among the ranks of a communicator of which some may fail while it runs: all that leave
 * it leave with the same decision. A state machine: messages, failures and ticks go in, messages
 * come out; no clock, no input or output.
 *
 * The coordinator is the lowest rank that is not considered failed, and its rank is its ballot
 * (Lamport, "The part-time parliament", 1998, with the quorum replaced by "all ranks that live", as
 * failures are detected):
 *
 *   JOIN     rank -> coordinator   its contribution, or the proposal it has accepted
 *   CALL     coordinator -> rank   asks for its JOIN, and shows that the coordinator is there
 *   PROPOSE  coordinator -> ranks  when all that live have joined: the accepted proposal of the
 * highest ballot, else the sum of the contributions ACCEPT   rank -> coordinator   unless it has
 * joined a higher ballot DECIDE   coordinator -> ranks  when all that live have accepted; each
 * forwards it to the ranks 1, 2, 4, ... above it and leaves
 *
 * Messages may be lost, doubled and late: a tick sends again what is not answered. A rank that has
 * left answers messages of that agreement with DECIDE. Agreements of a communicator are numbered
 * (`instance`, from 1); the last two decisions are kept, as no rank is further behind but those
 * that the others go on without, which learn a later one. consensus.pml is the model that Spin
 * checks. */
#ifndef TWILL_CONSENSUS_H
#define TWILL_CONSENSUS_H

#include "lib/base/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What ranks agree on. Sent as it is in memory, followed by two sets of ranks, of
 * twill_consensus_words() words each: the failed ones, and those of them that are only silent. */
struct twill_decision {
    uint64_t flags;       /* bitwise AND of the contributions */
    uint64_t least, most; /* least and most of the numbers that were contributed */
    uint32_t port;        /* coordinator: its port, for what comes next; 0: none */
    uint32_t by;          /* rank that proposed it */
    uint32_t refused; /* no decision: the ranks outside the set may not go on without those in it */
    uint32_t calls;   /* sum of 1 << enum twill_agreeing_call of the ranks that contributed */
    uint64_t set[];
};

/* What a rank agrees for. Ranks that are in different calls learn it by the decision. */
enum twill_agreeing_call {
    TWILL_AGREEING_ONLY,
    TWILL_AGREEING_OUTCOME, /* whether a reduction is complete */
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

/* Precedes a decision in a message. */
struct twill_consensus_header {
    uint32_t kind, instance;
    uint32_t ballot;   /* rank of the coordinator that it is to or from */
    uint32_t accepted; /* JOIN: 1 + ballot of the proposal that follows; 0: the rank's own
                          contribution follows */
};

enum twill_consensus_state {
    TWILL_CONSENSUS_OUT,     /* this rank is in no agreement */
    TWILL_CONSENSUS_JOINED,  /* waits for the coordinator */
    TWILL_CONSENSUS_GATHERS, /* this rank is the coordinator and waits for JOINs */
    TWILL_CONSENSUS_PROPOSES /* it waits for ACCEPTs */
};

/* One rank's state. Created by twill_consensus_open(); protected by the caller. */
struct twill_consensus {
    uint32_t size, rank;
    uint32_t instance; /* of the present or last agreement */
    uint32_t ballot;   /* the highest that this rank has joined */
    uint32_t accepted; /* 1 + ballot of `proposal`; 0: none */
    enum twill_consensus_state state;
    struct twill_decision *own;      /* contribution; its sets are the failed ranks as known now */
    struct twill_decision *proposal; /* accepted, or made */
    struct twill_decision *last[2];  /* decision of instance i at i % 2 */
    uint32_t decided[2];             /* their instances; 0: none */
    bool excluded; /* the others go on without this rank, or it may not go on: `proposal` says so */

    /* Coordinator. Also gathers JOINs of the next agreement, which this rank has not entered. */
    uint32_t gathers;            /* instance that the following is of */
    uint32_t gathered_accepted;  /* 1 + highest ballot accepted by a rank that has joined */
    struct twill_decision *sum;  /* of the contributions, or that proposal */
    uint64_t *joined, *answered; /* sets of ranks: joined; accepted */

    const uint8_t *near; /* [size] ranks whose silence proves that they cannot go on; NULL: none */
    /* Send a message if that is possible without blocking. last: the sender may not come back for
     * long, so it is worth waiting for a moment. */
    void (*send)(void *user, uint32_t to, const void *message, size_t bytes, bool last);
    void *user;
    unsigned char *message;          /* being sent */
    struct twill_decision *received; /* of the message that is being handled */
};

static inline size_t twill_consensus_words(uint32_t size)
{
    return ((size_t)size + 63) / 64;
}
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

/* Create the state of one rank. NULL: out of memory. `near` is borrowed, or NULL. */
struct twill_consensus *twill_consensus_open(uint32_t size, uint32_t rank, const uint8_t *near,
                                             void (*send)(void *user, uint32_t to,
                                                          const void *message, size_t bytes,
                                                          bool last),
                                             void *user);
void twill_consensus_close(struct twill_consensus *consensus); /* NULL is allowed */

/* Enter the next agreement with this contribution, for a call. Failed ranks that are known already
 * stay known.
 */
void twill_consensus_enter(struct twill_consensus *consensus, enum twill_agreeing_call call,
                           uint64_t flags, uint64_t number, uint32_t port);
/* Handle a message of a rank. Ignores what is malformed. */
void twill_consensus_receive(struct twill_consensus *consensus, uint32_t from, const void *message,
                             size_t bytes);
/* A rank has failed: it is dead, or silent for too long. */
void twill_consensus_fail(struct twill_consensus *consensus, uint32_t rank, bool silent);
/* The other ranks go on without this one, which has not learned their decision: it takes part in no
 * agreement any more, and answers none. */
void twill_consensus_leave(struct twill_consensus *consensus);
/* Send again what has not been answered. */
void twill_consensus_tick(struct twill_consensus *consensus);
/* Return the next rank from `from` on that this one waits for; UINT32_MAX: no more. */
uint32_t twill_consensus_awaits(const struct twill_consensus *consensus, uint32_t from);
/* Return the decision of the present agreement, NULL while it is under way. Once the others have
 * decided to go on without this rank, that is the decision of all its agreements. */
const struct twill_decision *twill_consensus_decision(const struct twill_consensus *consensus);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of consensus.h. */
#include "lib/comm/consensus.h"

#include <stdlib.h>
#include <string.h>

/* Return the number of 64-bit words in a set of the communicator's ranks. */
static size_t words_of(const struct twill_consensus *c)
{
    return twill_consensus_words(c->size);
}

/* Return whether this rank knows that rank `rank` of the communicator has failed. */
static bool has_failed(const struct twill_consensus *c, uint32_t rank)
{
    return twill_rank_set_has(c->own->set, rank);
}

/* Return the lowest rank >= `from` in neither set, or c->size if none. `other` may be NULL. */
static uint32_t first_outside(const struct twill_consensus *c, const uint64_t *set,
                              const uint64_t *other, uint32_t from)
{
    while (from < c->size &&
           (twill_rank_set_has(set, from) || (other != NULL && twill_rank_set_has(other, from))))
        from++;
    return from;
}

/* Add the failed ranks of `more` to `sum`, except this rank itself. A rank that has failed in both
 * is silent only if neither knows that it is dead. */
static void merge_failed(const struct twill_consensus *c, struct twill_decision *sum,
                         const struct twill_decision *more)
{
    size_t words = words_of(c);
    for (size_t w = 0; w < words; w++) {
        uint64_t *failed = &sum->set[w], *silent = &sum->set[words + w];
        uint64_t mine = UINT64_MAX, more_failed = more->set[w], more_silent = more->set[words + w];
        if (c->rank / 64 == w) /* this rank knows better about itself */
            mine = ~(UINT64_C(1) << c->rank % 64);
        *silent = ((*silent & (more_silent | ~more_failed)) | (more_silent & ~*failed)) & mine;
        *failed |= more_failed & mine;
    }
}

/* Send a message of this kind about agreement number `instance`, with `value`, to a rank. If
 * `last`, the function c->send may wait a moment until it is out. */
static void post(struct twill_consensus *c, uint32_t to, enum twill_consensus_kind kind,
                 uint32_t instance, const struct twill_decision *value, bool last)
{
    struct twill_consensus_header header = {.kind = kind,
                                            .instance = instance,
                                            .ballot = c->ballot,
                                            .accepted =
                                                kind == TWILL_CONSENSUS_JOIN ? c->accepted : 0};
    size_t bytes = twill_decision_bytes(c->size);
    memcpy(c->message, &header, sizeof(header));
    memcpy(c->message + sizeof(header), value, bytes);
    c->send(c->user, to, c->message, sizeof(header) + bytes, last);
}

/* Send the coordinator this rank's JOIN. */
static void post_join(struct twill_consensus *c)
{
    post(c, c->ballot, TWILL_CONSENSUS_JOIN, c->instance, c->accepted > 0 ? c->proposal : c->own,
         false);
}

/* Keep the decision of agreement number `instance`, which ends it here, and send it on. A rank that
 * `coordinates` sends it to all ranks, another one to the ranks 1, 2, 4, ... above it. Ranks that
 * have failed since get none. After a refusal this rank enters no agreement any more. */
static void decide(struct twill_consensus *c, uint32_t instance, const struct twill_decision *value,
                   bool coordinates)
{
    struct twill_decision *kept = c->last[instance % 2];
    memcpy(kept, value, twill_decision_bytes(c->size));
    c->decided[instance % 2] = instance;
    if (instance == c->instance || value->refused)
        c->state = TWILL_CONSENSUS_OUT;
    if (value->refused) {
        memmove(c->proposal, value, twill_decision_bytes(c->size));
        c->excluded = true;
    }
    for (uint32_t step = 1; step < c->size; step = coordinates ? step + 1 : step * 2) {
        uint32_t to = (c->rank + step) % c->size;
        if (!has_failed(c, to) || twill_rank_set_has(kept->set, to))
            post(c, to, TWILL_CONSENSUS_DECIDE, instance, kept, !has_failed(c, to));
    }
}

/* Return whether the survivors may continue. They may if all failed ranks are dead. Ranks that are
 * only silent, and ranks that have died since, may have decided otherwise. Then a majority of all
 * ranks is needed, or half of them with rank 0. */
static bool may_go_on(const struct twill_consensus *c)
{
    const uint64_t *failed = c->own->set, *silent = c->own->set + words_of(c);
    uint32_t live = 0, in_doubt = 0;
    for (uint32_t r = 0; r < c->size; r++) {
        live += !twill_rank_set_has(failed, r);
        in_doubt += twill_rank_set_has(silent, r);
    }
    return in_doubt == 0 || 2 * live > c->size ||
           (2 * live == c->size && !twill_rank_set_has(failed, 0));
}

/* End the agreement on this rank without a decision, as too few ranks are left to continue, and
 * send that refusal to all ranks. A live rank that receives it also ends the agreement. Ranks that
 * are only silent may still decide without this one. */
static void refuse(struct twill_consensus *c)
{
    memcpy(c->proposal->set, c->own->set, 2 * words_of(c) * sizeof(uint64_t));
    c->proposal->by = c->rank;
    c->proposal->refused = 1;
    decide(c, c->instance, c->proposal, true);
}

/* As coordinator, do nothing until all live ranks have accepted the proposal. Then decide on it or,
 * if too few ranks are left to continue (may_go_on()), refuse the agreement. */
static void check_accepted(struct twill_consensus *c)
{
    if (first_outside(c, c->own->set, c->answered, 0) < c->size)
        return;
    if (may_go_on(c))
        decide(c, c->instance, c->proposal, true);
    else
        refuse(c);
}

/* As coordinator, do nothing until all live ranks have joined. Then send them a proposal or, if too
 * few ranks are left to continue (may_go_on()), refuse the agreement. */
static void check_joined(struct twill_consensus *c)
{
    if (first_outside(c, c->own->set, c->joined, 0) < c->size)
        return;
    if (!may_go_on(c)) {
        refuse(c);
        return;
    }
    memcpy(c->proposal, c->sum, twill_decision_bytes(c->size));
    if (c->gathered_accepted == 0) {
        memcpy(c->proposal->set, c->own->set, 2 * words_of(c) * sizeof(uint64_t));
        c->proposal->by = c->rank;
        c->proposal->port = c->own->port;
    }
    c->accepted = 1 + c->rank;
    c->state = TWILL_CONSENSUS_PROPOSES;
    memset(c->answered, 0, words_of(c) * sizeof(uint64_t));
    twill_rank_set_add(c->answered, c->rank);
    for (uint32_t r = 0; r < c->size; r++)
        if (!twill_rank_set_has(c->answered, r) && !has_failed(c, r))
            post(c, r, TWILL_CONSENSUS_PROPOSE, c->instance, c->proposal, false);
    check_accepted(c);
}

/* Add `value` from the JOIN of rank `from` to c->sum. If `accepted` is 0 it is a contribution. Else
 * it is a proposal of ballot `accepted` - 1, which replaces the sum if no joined rank has accepted
 * a higher ballot. A new sum begins if `instance` is a new agreement. */
static void gather(struct twill_consensus *c, uint32_t instance, uint32_t from, uint32_t accepted,
                   const struct twill_decision *value)
{
    struct twill_decision *sum = c->sum;
    if (c->gathers != instance) {
        c->gathers = instance;
        c->gathered_accepted = 0;
        memset(c->joined, 0, words_of(c) * sizeof(uint64_t));
        memset(sum, 0, twill_decision_bytes(c->size));
        sum->flags = UINT64_MAX;
        sum->least = UINT64_MAX;
    }
    twill_rank_set_add(c->joined, from);
    if (accepted > c->gathered_accepted) {
        c->gathered_accepted = accepted;
        memcpy(sum, value, twill_decision_bytes(c->size));
    } else if (c->gathered_accepted == 0) {
        sum->flags &= value->flags;
        sum->calls |= value->calls;
        sum->least = twill_min(sum->least, value->least);
        sum->most = twill_max(sum->most, value->most);
    }
}

/* Continue after a rank has joined, accepted or failed. A coordinator proposes or decides if it
 * can, or refuses if too few ranks are left (may_go_on()). Another rank joins the lowest rank that
 * is not considered failed, which may be this one, unless it has joined that already. */
static void elect(struct twill_consensus *c)
{
    if (c->state == TWILL_CONSENSUS_GATHERS) {
        check_joined(c);
    } else if (c->state == TWILL_CONSENSUS_PROPOSES) {
        check_accepted(c);
    } else if (c->state == TWILL_CONSENSUS_JOINED) {
        uint32_t coordinator = first_outside(c, c->own->set, NULL, c->ballot);
        bool changed = coordinator != c->ballot;
        c->ballot = coordinator;
        if (coordinator == c->rank) {
            c->state = TWILL_CONSENSUS_GATHERS;
            gather(c, c->instance, c->rank, c->accepted, c->accepted > 0 ? c->proposal : c->own);
            check_joined(c);
        } else if (changed) {
            post_join(c);
        }
    }
}

void twill_consensus_enter(struct twill_consensus *c, enum twill_agreeing_call call, uint64_t flags,
                           uint64_t number, uint32_t port)
{
    if (c->excluded)
        return;
    c->instance++;
    c->accepted = 0;
    c->own->flags = flags;
    c->own->least = c->own->most = number;
    c->own->port = port;
    c->own->calls = 1u << call;
    c->state = TWILL_CONSENSUS_OUT;
    if (c->decided[c->instance % 2] == c->instance)
        return; /* the others have decided meanwhile */
    c->ballot = 0;
    c->state = TWILL_CONSENSUS_JOINED;
    if (first_outside(c, c->own->set, NULL, 0) == 0 && c->rank > 0)
        post_join(c);
    elect(c);
}

void twill_consensus_fail(struct twill_consensus *c, uint32_t rank, bool silent)
{
    bool in_doubt = silent && (c->near == NULL || c->near[rank] == 0);
    bool known = has_failed(c, rank);
    uint64_t *word = &c->own->set[words_of(c) + rank / 64], bit = UINT64_C(1) << rank % 64;
    if (rank == c->rank)
        return;
    twill_rank_set_add(c->own->set, rank);
    *word = in_doubt && (!known || (*word & bit) != 0) ? *word | bit : *word & ~bit;
    if (!known)
        elect(c);
}

/* Handle a JOIN, by which rank `from` joins a coordinator and sends it `value`, its contribution or
 * a proposal that it has accepted. Ignore it if it is for another coordinator or agreement. If this
 * rank has proposed already, it only learns which ranks have failed. */
static void receive_join(struct twill_consensus *c, uint32_t from,
                         const struct twill_consensus_header *header,
                         const struct twill_decision *value)
{
    bool early = header->instance == c->instance + 1 && c->state == TWILL_CONSENSUS_OUT;
    if (header->ballot != c->rank || (!early && header->instance != c->instance))
        return;
    if (header->accepted == 0)
        merge_failed(c, c->own, value);
    if (c->state != TWILL_CONSENSUS_PROPOSES)
        gather(c, header->instance, from, header->accepted, value);
    elect(c);
}

/* If this rank waits for a coordinator, join rank `coordinator`, unless that is below the one
 * joined so far (c->ballot) or above this rank. A coordinator regards all ranks below itself as
 * failed. Returns whether `coordinator` is now this rank's coordinator. */
static bool follow(struct twill_consensus *c, uint32_t coordinator)
{
    if (c->state != TWILL_CONSENSUS_JOINED || coordinator < c->ballot || coordinator >= c->rank)
        return false;
    if (coordinator > c->ballot) {
        c->ballot = coordinator;
        post_join(c);
    }
    return true;
}

/* Handle the message of rank `from` that agreement number `instance` was refused, which counts this
 * rank as failed. If that is the present agreement, count `from` as failed in it, and also rank
 * value->by, which has refused. They have ended it and do not come back to it. */
static void count_out(struct twill_consensus *c, uint32_t from, uint32_t instance,
                      const struct twill_decision *value)
{
    if (instance != c->instance)
        return;
    twill_consensus_fail(c, from, false);
    if (value->by < c->size)
        twill_consensus_fail(c, value->by, false);
}

/* Return whether a rank has failed and is dead, not only silent. Its late decision is ignored. If
 * it binds this rank, the live ranks have accepted it and will propose it. If not, they may have
 * decided otherwise. */
static bool is_dead(const struct twill_consensus *c, uint32_t rank)
{
    return has_failed(c, rank) && !twill_rank_set_has(c->own->set + words_of(c), rank);
}

/* Handle a message of this agreement or the next, or ignore it if it does not fit the state. */
static void handle(struct twill_consensus *c, uint32_t from,
                   const struct twill_consensus_header *header, const struct twill_decision *value)
{
    bool present = header->instance == c->instance && header->ballot == from;
    switch ((enum twill_consensus_kind)header->kind) {
    case TWILL_CONSENSUS_JOIN:
        receive_join(c, from, header, value);
        break;
    case TWILL_CONSENSUS_CALL:
        if (present && follow(c, from)) {
            merge_failed(c, c->own, value);
            elect(c);
        }
        break;
    case TWILL_CONSENSUS_PROPOSE:
        if (present && follow(c, from)) {
            c->accepted = 1 + from;
            memcpy(c->proposal, value, twill_decision_bytes(c->size));
            post(c, from, TWILL_CONSENSUS_ACCEPT, c->instance, c->proposal, false);
        }
        break;
    case TWILL_CONSENSUS_ACCEPT:
        if (header->instance == c->instance && header->ballot == c->rank &&
            c->state == TWILL_CONSENSUS_PROPOSES) {
            twill_rank_set_add(c->answered, from);
            check_accepted(c);
        }
        break;
    case TWILL_CONSENSUS_DECIDE:
        if (value->refused && twill_rank_set_has(value->set, c->rank))
            count_out(c, from, header->instance, value);
        else if (is_dead(c, from) && !value->refused)
            break;
        else if (c->decided[header->instance % 2] != header->instance)
            decide(c, header->instance, value, false);
        break;
    }
}

/* Handle a decision of an agreement that is too late for this rank to be in. If it says that this
 * rank has failed, leave all agreements and keep `value` as the last decision. Otherwise do
 * nothing. */
static void learn_exclusion(struct twill_consensus *c, const struct twill_decision *value)
{
    if (!twill_rank_set_has(value->set, c->rank))
        return;
    memcpy(c->proposal, value, twill_decision_bytes(c->size));
    c->excluded = true;
    c->state = TWILL_CONSENSUS_OUT;
}

/* Answer rank `from`, which has sent a message of agreement number `instance`, with the decision of
 * that. It is over here. If its decision is not kept any more, send the last one, if there is
 * any. */
static void answer_late(struct twill_consensus *c, uint32_t from, uint32_t instance)
{
    if (c->decided[instance % 2] != instance)
        instance = c->decided[c->instance % 2];
    if (instance > 0)
        post(c, from, TWILL_CONSENSUS_DECIDE, instance, c->last[instance % 2], false);
}

void twill_consensus_receive(struct twill_consensus *c, uint32_t from, const void *message,
                             size_t bytes)
{
    struct twill_consensus_header header;
    if (from >= c->size || from == c->rank ||
        bytes != sizeof(header) + twill_decision_bytes(c->size))
        return;
    memcpy(&header, message, sizeof(header));
    struct twill_decision *value = c->received; /* aligned, unlike `message` */
    memcpy(value, (const unsigned char *)message + sizeof(header), bytes - sizeof(header));
    bool out = c->state == TWILL_CONSENSUS_OUT;
    bool past = header.instance < c->instance || (header.instance == c->instance && out);
    bool decides = header.kind == TWILL_CONSENSUS_DECIDE;
    if (past && !decides && (!c->excluded || c->proposal->refused))
        answer_late(c, from, header.instance);
    else if (decides && header.instance > c->instance + out)
        learn_exclusion(c, value);
    else if (!past && !c->excluded && header.instance <= c->instance + 1)
        handle(c, from, &header, value);
}

void twill_consensus_leave(struct twill_consensus *c)
{
    memcpy(c->proposal->set, c->own->set, 2 * words_of(c) * sizeof(uint64_t));
    twill_rank_set_add(c->proposal->set, c->rank);
    c->proposal->by = c->rank;
    c->proposal->refused = 0;
    c->excluded = true;
    c->state = TWILL_CONSENSUS_OUT;
}

void twill_consensus_tick(struct twill_consensus *c)
{
    if (c->state == TWILL_CONSENSUS_JOINED)
        post_join(c);
    bool proposes = c->state == TWILL_CONSENSUS_PROPOSES;
    bool coordinates = proposes || c->state == TWILL_CONSENSUS_GATHERS;
    for (uint32_t r = 0; coordinates && r < c->size; r++) {
        if (r == c->rank || has_failed(c, r))
            continue;
        if (proposes && !twill_rank_set_has(c->answered, r))
            post(c, r, TWILL_CONSENSUS_PROPOSE, c->instance, c->proposal, false);
        else
            post(c, r, TWILL_CONSENSUS_CALL, c->instance, c->own, false);
    }
}

uint32_t twill_consensus_awaits(const struct twill_consensus *c, uint32_t from)
{
    uint32_t next = UINT32_MAX;
    if (c->state == TWILL_CONSENSUS_JOINED)
        return c->ballot >= from ? c->ballot : UINT32_MAX;
    if (c->state == TWILL_CONSENSUS_GATHERS)
        next = first_outside(c, c->own->set, c->joined, from);
    else if (c->state == TWILL_CONSENSUS_PROPOSES)
        next = first_outside(c, c->own->set, c->answered, from);
    return next < c->size ? next : UINT32_MAX;
}

const struct twill_decision *twill_consensus_decision(const struct twill_consensus *c)
{
    if (c->excluded)
        return c->proposal;
    bool decided = c->instance > 0 && c->decided[c->instance % 2] == c->instance;
    return decided ? c->last[c->instance % 2] : NULL;
}

struct twill_consensus *twill_consensus_open(
    uint32_t size, uint32_t rank, const uint8_t *near,
    void (*send)(void *user, uint32_t to, const void *message, size_t bytes, bool last), void *user)
{
    size_t words = twill_consensus_words(size), decision = twill_decision_bytes(size);
    size_t message = twill_round_up(sizeof(struct twill_consensus_header) + decision, 8);
    struct twill_consensus *c = calloc(1, sizeof(*c));
    unsigned char *memory = calloc(1, 6 * decision + 2 * words * sizeof(uint64_t) + message);
    if (c == NULL || memory == NULL) {
        free(c);
        free(memory);
        return NULL;
    }
    c->size = size;
    c->rank = rank;
    c->near = near;
    c->send = send;
    c->user = user;
    c->own = (struct twill_decision *)memory; /* first: twill_consensus_close() frees it */
    c->proposal = (struct twill_decision *)(memory + decision);
    c->last[0] = (struct twill_decision *)(memory + 2 * decision);
    c->last[1] = (struct twill_decision *)(memory + 3 * decision);
    c->sum = (struct twill_decision *)(memory + 4 * decision);
    c->received = (struct twill_decision *)(memory + 5 * decision);
    c->joined = (uint64_t *)(memory + 6 * decision);
    c->answered = c->joined + words;
    c->message = (unsigned char *)(c->answered + words);
    return c;
}

void twill_consensus_close(struct twill_consensus *consensus)
{
    if (consensus == NULL)
        return;
    free(consensus->own);
    free(consensus);
}

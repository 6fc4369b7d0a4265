/* SPDX-License-Identifier: Apache-2.0 */
/* Model of consensus.c for Spin (https://spinroot.com). tests/system/check_model.sh runs it.
 *
 * Four ranks run AGREEMENTS agreements, and up to CRASHES of them die, at any step. Each rule names
 * the function of consensus.c that it models. A step of the model is one call of it.
 *
 * The network is a pool of messages. A message can be received at any later time, any number of
 * times, in any order, or never, even after its sender has died. So a lost message is one that is
 * never received, and if a rank dies during a broadcast, some of its messages are never received. A
 * coordinator makes one proposal in an agreement and a rank makes one decision. So the pool holds
 * their values once, and the receivers of proposals. DECIDE may reach every rank, as a rank that has
 * left answers all messages with it.
 *
 * The failure detector may report a rank as dead at any time after its death. With SIDE (a set of
 * ranks) the network between this set and the others is cut. Then the detector may report any rank of
 * the other side as silent, at any time, dead or not. Messages between the sides may still pass, as
 * the network may be repaired at any time.
 *
 * With NEAR (a set of ranks), these ranks are on one node. If one of them has been silent for too
 * long, dead or not, it is marked in the node's memory before the others continue without it
 * (shut_out() of agree.c). A rank that finds its mark leaves without a decision
 * (twill_consensus_leave) and answers nothing any more, so ranks of other nodes find it silent. A
 * rank that has decided also finds its mark before its call returns.
 *
 * Claims, checked at each decision (check_claims) and in each state (STUCK):
 * - All decisions of an agreement are the same, with flags, failed ranks and proposer. With SIDE this
 *   holds for ranks that live and may continue, as a rank that was cut off, decided and died has left
 *   no trace. With NEAR it holds for ranks that had no mark then.
 * - A decision contains the flags of each rank that is not among its failed ranks.
 * - Without SIDE, failed ranks are dead, and no rank refuses.
 * - A rank that lives and has not decided waits for something that will happen: a message that a tick
 *   repeats, or a failure that the detector notices. No state is entered twice (a search for cycles
 *   shows it), so agreements end.
 *
 * MUTANT puts an error into one rule, which the claims must find. With 4, no rank joins a new
 * coordinator. With 5, silent ranks of the node are not marked. */
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef AGREEMENTS
#define AGREEMENTS 1
#endif
#ifndef SILENCES
#define SILENCES 12
#endif
#ifndef MUTANT
#define MUTANT 0
#endif

#define RANKS       4
#define ALL         15 /* the set of all ranks */
#define BIT(r)      (1 << (r))
#define HAS(set, r) (((set) >> (r)) & 1)
#define COUNT(set)  (HAS(set, 0) + HAS(set, 1) + HAS(set, 2) + HAS(set, 3))

/* enum twill_consensus_state */
#define OUT      0
#define JOINED   1
#define GATHERS  2
#define PROPOSES 3

/* struct twill_decision, or 0. Its flags are the set of ranks whose contributions are in them. */
#define VALUE(flags, failed, silent, by) ((flags) | (failed) << 4 | (silent) << 8 | (by) << 12)
#define REFUSED   (1 << 14)
#define FLAGS(v)  ((v) & 15)
#define FAILED(v) (((v) >> 4) & 15) /* also of JOIN and CALL */
#define SILENT(v) (((v) >> 8) & 15)
#define BY(v)     (((v) >> 12) & 3)

/* struct twill_consensus. Agreements are numbered from 1. The sum is not kept: it is the proposal of
 * rank `gathered_accepted` - 1, or the contributions of the ranks that have joined. */
#define AT(i, r) (((i) - 1) * RANKS + (r))
byte instance[RANKS], state[RANKS], ballot[RANKS], accepted[RANKS];
byte failed[RANKS], silent[RANKS]; /* sets: own->set */
byte joined[RANKS], gathered_accepted[RANKS], answered[RANKS];
byte excluded;                     /* set of the ranks of which it is true */
short decision[AGREEMENTS * RANKS];

/* The messages that were sent. A tick may replace a JOIN or CALL by a newer one: what is known of
 * failures only grows, so an older one has no effect after a newer one. */
#define PAIR(i, from, to) (AT(i, from) * RANKS + (to))
short join[AGREEMENTS * RANKS * RANKS];
short call[AGREEMENTS * RANKS];     /* of this coordinator, to all that it does not regard as failed */
short proposal[AGREEMENTS * RANKS];
byte proposed_to[AGREEMENTS * RANKS];
byte accept[AGREEMENTS * RANKS];    /* set of the ranks that have accepted */
#define JOIN_OF(r)  (accepted[r] > 0 -> 1 | accepted[r] << 1 : 1 | failed[r] << 4 | silent[r] << 8)
#define CALL_OF(r)  (1 | failed[r] << 4 | silent[r] << 8)
#define ACCEPTED(m) (((m) >> 1) & 7)

byte dead = ALL; /* set; all until start() */
byte crashes, silences;
byte marked;       /* NEAR: set of the ranks that are shut out */
byte counts = ALL; /* set of the ranks whose last decision its caller gets */

hidden byte c, k, by; /* scratch within a step */
hidden short v, w;

#define LIVES(r)      (!HAS(dead, r))
#define IS_OUT(r)     (state[r] == OUT)
#define PRESENT(r, i) (instance[r] == (i) && !IS_OUT(r))
#define EARLY(r, i)   (instance[r] + 1 == (i) && IS_OUT(r))
/* Whether r has left its last agreement, or the job, for good. */
#define HAS_LEFT(r) (IS_OUT(r) && (HAS(excluded, r) || (instance[r] > 0 && \
    (instance[r] == AGREEMENTS || HAS(FAILED(decision[AT(instance[r], r)]), r)))))

inline check_claims(r, i, value)
{
    k = 0;
    do
    :: k < RANKS ->
        w = decision[AT(i, k)];
#if defined(SIDE) || defined(NEAR)
        if
        :: LIVES(k) && HAS(counts, k) && HAS(counts, r) && w != 0 && !((w | value) & REFUSED) && !HAS(FAILED(w), k) &&
           !HAS(FAILED(value), r) -> assert(w == value)
        :: else
        fi;
#else
        assert(w == 0 || w == value);
#endif
        k++
    :: else -> break
    od;
    assert((value & REFUSED) || (FLAGS(value) | FAILED(value)) == ALL);
#if !defined(SIDE) && !defined(NEAR)
    assert(!(value & REFUSED) && (FAILED(value) & ~dead) == 0);
#endif
}

/* Clear what has no effect any more, so that fewer states differ. */
inline forget(r)
{
    state[r] = OUT;
    ballot[r] = 0;
    accepted[r] = 0;
    joined[r] = 0;
    gathered_accepted[r] = 0;
    answered[r] = 0;
    if
    :: instance[r] > 0 -> accept[AT(instance[r], r)] = 0
    :: else
    fi;
    if
    :: !LIVES(r) || HAS_LEFT(r) -> failed[r] = 0; silent[r] = 0
    :: else
    fi
}

/* decide() */
inline decide(r, i, value)
{
    counts = counts & ~BIT(r) | (ALL & ~marked & BIT(r));
    check_claims(r, i, value);
    decision[AT(i, r)] = value;
    if
    :: value & REFUSED -> excluded = excluded | BIT(r)
    :: else
    fi;
    if
    :: instance[r] == (i) || (value & REFUSED) -> forget(r)
    :: else
    fi
}

/* may_go_on() */
#define LIVE(r) COUNT(ALL & ~failed[r])
#if MUTANT == 3 /* half of the ranks, whichever */
#define MAY_GO_ON(r) (silent[r] == 0 || 2 * LIVE(r) >= RANKS)
#else
#define MAY_GO_ON(r) (silent[r] == 0 || 2 * LIVE(r) > RANKS || \
                      (2 * LIVE(r) == RANKS && !HAS(failed[r], 0)))
#endif

/* refuse(). The flags of a refusal have no meaning. */
inline refuse(r)
{
    v = REFUSED | VALUE(0, failed[r], silent[r], r);
    decide(r, instance[r], v)
}

/* check_accepted() */
inline check_accepted(r)
{
    if
    :: (failed[r] | answered[r]) != ALL
    :: else ->
        if
        :: MAY_GO_ON(r) -> v = proposal[AT(instance[r], r)]; decide(r, instance[r], v)
        :: else -> refuse(r)
        fi
    fi
}

/* check_joined() */
inline check_joined(r)
{
    if
    :: (failed[r] | joined[r]) != ALL
    :: else ->
        if
        :: !MAY_GO_ON(r) -> refuse(r)
        :: else ->
            if
            :: gathered_accepted[r] > 0 -> v = proposal[AT(instance[r], gathered_accepted[r] - 1)]
            :: else -> v = VALUE(joined[r], failed[r], silent[r], r)
            fi;
            proposal[AT(instance[r], r)] = v;
            proposed_to[AT(instance[r], r)] = ALL & ~failed[r] & ~BIT(r);
            accepted[r] = 1 + r;
            state[r] = PROPOSES;
            answered[r] = BIT(r);
            check_accepted(r)
        fi
    fi
}

/* gather() */
#if MUTANT == 2 /* an accepted proposal is forgotten */
#define OUTBIDS(ballot_accepted, r) false
#else
#define OUTBIDS(ballot_accepted, r) (ballot_accepted > gathered_accepted[r])
#endif
inline gather(r, from, ballot_accepted)
{
    joined[r] = joined[r] | BIT(from);
    if
    :: OUTBIDS(ballot_accepted, r) -> gathered_accepted[r] = ballot_accepted
    :: else
    fi
}

/* post_join() */
inline post_join(r)
{
    join[PAIR(instance[r], r, ballot[r])] = JOIN_OF(r)
}

/* elect() */
inline elect(r)
{
    if
    :: state[r] == GATHERS -> check_joined(r)
    :: state[r] == PROPOSES -> check_accepted(r)
    :: state[r] == JOINED ->
        c = ballot[r];
        do
        :: HAS(failed[r], c) -> c++
        :: else -> break
        od;
        if
        :: c == r ->
            ballot[r] = c;
            state[r] = GATHERS;
            gather(r, r, accepted[r]);
            check_joined(r)
        :: MUTANT != 4 && c != r && c != ballot[r] -> ballot[r] = c; post_join(r)
        :: else
        fi
    :: else
    fi
}

/* twill_consensus_enter() */
inline enter(r)
{
    instance[r]++;
    if
    :: decision[AT(instance[r], r)] == 0 ->
        state[r] = JOINED;
        if
        :: !HAS(failed[r], 0) && r > 0 -> post_join(r)
        :: else
        fi;
        elect(r)
    :: else -> forget(r)
    fi
}

/* merge_failed() of m, a JOIN or CALL. LEARNS says whether it has an effect. */
inline merge_failed(r, m)
{
    silent[r] = ((silent[r] & (SILENT(m) | ~FAILED(m))) | (SILENT(m) & ~failed[r])) & ALL & ~BIT(r);
    failed[r] = failed[r] | (FAILED(m) & ~BIT(r))
}
#define LEARNS(r, m) (((FAILED(m) & ~failed[r]) | (silent[r] & FAILED(m) & ~SILENT(m))) & ~BIT(r))

/* twill_consensus_fail(). Ranks that are `near` die when they are silent. FAILS says whether it has an effect. */
inline fail(r, s, is_silent)
{
    if
    :: (s) == r
    :: (s) != r && HAS(failed[r], s) ->
        if
        :: is_silent
        :: else -> silent[r] = silent[r] & ~BIT(s)
        fi
    :: else ->
        failed[r] = failed[r] | BIT(s);
        if
        :: is_silent -> silent[r] = silent[r] | BIT(s)
        :: else
        fi;
        elect(r)
    fi
}
#define FAILS(r, s) ((s) != (r) && (!HAS(failed[r], s) || HAS(silent[r], s)))

/* twill_consensus_leave(). A rank that has left answers nothing. */
inline leave(r)
{
    excluded = excluded | BIT(r);
    forget(r)
}

/* check_awaited_ranks(): r regards rank s of its node as silent, and shuts it out */
#define MARK(s) (MUTANT == 5 -> 0 : BIT(s))
inline shut_out(r, s)
{
    marked = marked | MARK(s);
    if
    :: HAS(marked, r) -> leave(r)
    :: else -> fail(r, s, false)
    fi
}

/* receive_join() */
inline receive_join(r, from, m)
{
    if
    :: ACCEPTED(m) == 0 -> merge_failed(r, m)
    :: else
    fi;
    if
    :: state[r] != PROPOSES -> gather(r, from, ACCEPTED(m))
    :: else
    fi;
    elect(r)
}
#define JOINS(r, from, m) ((m) != 0 && (LEARNS(r, m) || (state[r] != PROPOSES && !HAS(joined[r], from))))

/* follow() */
inline follow(r, coordinator)
{
    if
    :: coordinator > ballot[r] -> ballot[r] = coordinator; post_join(r)
    :: else
    fi
}
#if MUTANT == 1 /* also of a lower ballot than this rank has joined */
#define FOLLOWS(r, from) (state[r] == JOINED && (from) < (r))
#else
#define FOLLOWS(r, from) (state[r] == JOINED && (from) >= ballot[r] && (from) < (r))
#endif

/* count_out() */
inline count_out(r, from, refusal)
{
    by = BY(refusal);
    fail(r, from, false);
    if
    :: !HAS_LEFT(r) -> fail(r, by, false)
    :: else
    fi
}
#define COUNTS_OUT(r, from, refusal) (FAILS(r, from) || FAILS(r, BY(refusal)))
#define REFUSES(value, r)            (((value) & REFUSED) && HAS(FAILED(value), r))

/* Whether r handles a JOIN or DECIDE of agreement i in twill_consensus_receive(). */
#define TAKES(r, i) (LIVES(r) && !HAS(excluded, r) && (PRESENT(r, i) || EARLY(r, i)) && \
                     decision[AT(i, r)] == 0)

/* is_dead(): r knows that s is dead, not only silent */
#define IS_DEAD(r, s) (HAS(failed[r], s) && !HAS(silent[r], s))
/* twill_consensus_awaits() */
#define AWAITS(r, s) (LIVES(r) && (r) != (s) && \
    ((state[r] == JOINED && ballot[r] == (s)) || \
     (state[r] == GATHERS && !HAS(failed[r] | joined[r], s)) || \
     (state[r] == PROPOSES && !HAS(failed[r] | answered[r], s))))
/* Whether s has died, which r can notice, or has left, will enter the agreement, or sends what r awaits. */
#define HELPS(s, r) ((!LIVES(s) && !HAS(failed[r], s)) || (LIVES(s) && ( \
    HAS(excluded, s) || instance[s] > instance[r] || IS_OUT(s) || (instance[s] == instance[r] && \
     ((state[r] == JOINED && state[s] == PROPOSES && !HAS(failed[s] | answered[s], r)) || \
      (state[r] == JOINED && state[s] != PROPOSES && !HAS(joined[s], r)) || \
      (state[r] != JOINED && state[s] == JOINED && ballot[s] <= r))))))
#define MOVES(r) ((LIVES(r) && ((IS_OUT(r) && !HAS_LEFT(r)) || (!IS_OUT(r) && HAS(marked, r)))) || \
    (AWAITS(r, 0) && HELPS(0, r)) || (AWAITS(r, 1) && HELPS(1, r)) || \
    (AWAITS(r, 2) && HELPS(2, r)) || (AWAITS(r, 3) && HELPS(3, r)))
#define REMAINS(r) (LIVES(r) && !HAS_LEFT(r))
#define STUCK ((REMAINS(0) || REMAINS(1) || REMAINS(2) || REMAINS(3)) && \
               !MOVES(0) && !MOVES(1) && !MOVES(2) && !MOVES(3))
#ifdef SIDE
#define WAITS(r)   (AWAITS(r, 0) || AWAITS(r, 1) || AWAITS(r, 2) || AWAITS(r, 3))
#define IS_PATIENT (WAITS(0) || WAITS(1) || WAITS(2) || WAITS(3)) /* until it regards it as silent */
#else
#define IS_PATIENT false
#endif

active proctype start()
{
    d_step {
        dead = 0;
        enter(0);
        enter(1);
        enter(2);
        enter(3)
    }
end:
    do
    :: STUCK && !IS_PATIENT -> assert(false)
    od
}

#define I (1 + (_pid - 1) / (RANKS * RANKS))
#define R ((_pid - 1) / RANKS % RANKS)
#define S ((_pid - 1) % RANKS)
#define JOIN_FROM_S     join[PAIR(I, S, R)]
#define CALL_FROM_S     call[AT(I, S)]
#define DECISION_FROM_S decision[AT(I, S)]

/* The actions of rank R in agreement I about rank S, or by itself (R == S). Each rule has an effect. */
active [AGREEMENTS * RANKS * RANKS] proctype rank()
{
end:
    do
    /* death */
    :: d_step {
        R == S && I == 1 && LIVES(R) && crashes < CRASHES ->
        crashes++;
        dead = dead | BIT(R);
        forget(R)
    }
    /* twill_agree() */
    :: d_step {
        R == S && I == 1 && LIVES(R) && IS_OUT(R) && !HAS_LEFT(R) ->
        enter(R)
    }
    /* check_awaited_ranks(): the death is noticed */
    :: d_step {
        I == 1 && AWAITS(R, S) && !LIVES(S) && FAILS(R, S) ->
        fail(R, S, false)
    }
#ifdef SIDE
    /* check_awaited_ranks(): rank S has been silent for too long */
    :: d_step {
        I == 1 && AWAITS(R, S) && HAS(SIDE, R) != HAS(SIDE, S) && silences < SILENCES ->
        silences++;
        fail(R, S, true)
    }
    :: d_step {
        I == 1 && AWAITS(R, S) && !HELPS(S, R) && STUCK ->
        fail(R, S, true)
    }
#endif
#ifdef NEAR
    /* check_awaited_ranks(): a rank of this node has been silent for too long, or is shut out */
    :: d_step {
        I == 1 && R != S && HAS(NEAR, R) && HAS(NEAR, S) && AWAITS(R, S) &&
        (HAS(marked, S) || silences < SILENCES) ->
        if
        :: HAS(marked, S)
        :: else -> silences++
        fi;
        shut_out(R, S)
    }
    /* check_awaited_ranks(): this rank is shut out */
    :: d_step {
        R == S && I == 1 && LIVES(R) && HAS(marked, R) && !IS_OUT(R) ->
        leave(R)
    }
    /* check_awaited_ranks(): a rank of another node has left, and is silent */
    :: d_step {
        I == 1 && AWAITS(R, S) && !(HAS(NEAR, R) && HAS(NEAR, S)) && HAS(excluded, S) &&
        decision[AT(instance[R], S)] == 0 && FAILS(R, S) ->
        fail(R, S, true)
    }
#endif
    /* twill_consensus_tick() */
    :: d_step {
        R == S && LIVES(R) && PRESENT(R, I) && state[R] == JOINED &&
        join[PAIR(I, R, ballot[R])] != JOIN_OF(R) ->
        post_join(R)
    }
    :: d_step {
        R == S && LIVES(R) && PRESENT(R, I) && state[R] != JOINED && call[AT(I, R)] != CALL_OF(R) ->
        call[AT(I, R)] = CALL_OF(R)
    }
    /* handle(): JOIN */
    :: d_step {
        R != S && TAKES(R, I) && JOINS(R, S, JOIN_FROM_S) ->
        v = JOIN_FROM_S;
        receive_join(R, S, v)
    }
    /* handle(): CALL */
    :: d_step {
        R != S && LIVES(R) && PRESENT(R, I) && FOLLOWS(R, S) && CALL_FROM_S != 0 &&
        !HAS(FAILED(CALL_FROM_S), R) && (ballot[R] != S || LEARNS(R, CALL_FROM_S)) ->
        follow(R, S);
        merge_failed(R, CALL_FROM_S);
        elect(R)
    }
    /* handle(): PROPOSE */
    :: d_step {
        LIVES(R) && PRESENT(R, I) && HAS(proposed_to[AT(I, S)], R) && FOLLOWS(R, S) &&
        accepted[R] != 1 + S ->
        follow(R, S);
        accepted[R] = 1 + S;
        accept[AT(I, S)] = accept[AT(I, S)] | BIT(R)
    }
    /* handle(): ACCEPT */
    :: d_step {
        LIVES(R) && PRESENT(R, I) && state[R] == PROPOSES && HAS(accept[AT(I, R)], S) &&
        !HAS(answered[R], S) ->
        answered[R] = answered[R] | BIT(S);
        check_accepted(R)
    }
    /* handle(): DECIDE */
    :: d_step {
        R != S && TAKES(R, I) && DECISION_FROM_S != 0 && !REFUSES(DECISION_FROM_S, R) &&
        !(IS_DEAD(R, S) && !(DECISION_FROM_S & REFUSED)) ->
        v = DECISION_FROM_S;
        decide(R, I, v)
    }
    :: d_step {
        R != S && LIVES(R) && PRESENT(R, I) && REFUSES(DECISION_FROM_S, R) &&
        COUNTS_OUT(R, S, DECISION_FROM_S) ->
        count_out(R, S, DECISION_FROM_S)
    }
    /* learn_exclusion() */
    :: d_step {
        R != S && LIVES(R) && !HAS(excluded, R) && I > instance[R] + IS_OUT(R) &&
        HAS(FAILED(DECISION_FROM_S), R) ->
        excluded = excluded | BIT(R);
        forget(R)
    }
    od
}

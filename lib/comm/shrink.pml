/* SPDX-License-Identifier: Apache-2.0 */
/* Model of shrink.c for Spin. tests/system/check_model.sh runs it.
 *
 * Four ranks call twill_comm_shrink(), and up to CRASHES of them die, at any step. An agreement is one
 * step with the properties that consensus.pml shows. Making a communicator may fail on any rank for
 * any reason, whatever happens on the others.
 *
 * Claims: all ranks that return and have not died return the same. This is either an error, or a
 * communicator of the same attempt with the same ranks, which are those of the last agreement. All
 * ranks that live return, after at most MOST agreements.
 *
 * MUTANT puts an error into one rule, which the claims must find. */
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef MUTANT
#define MUTANT 0
#endif
#define ATTEMPTS    1 /* more in shrink.c */
#define MOST        ((CRASHES + 1) * (ATTEMPTS + 1) + 1)
#define RANKS       4
#define ALL         15 /* the set of all ranks */
#define BIT(r)      (1 << (r))
#define HAS(set, r) (((set) >> (r)) & 1)

byte dead, crashes; /* dead: a set, as are the next three */

/* The agreement that is under way, or has ended last, and the one before, which some ranks may not
 * have left yet: agreement n at n % 2. */
byte number;
byte entered[2], contributed[2], failed[2]; /* contributed: ranks whose flag is 1 */
bool decided[2], flag[2];

#define RETURNS_COMM  1
#define RETURNS_ERROR 2
byte returned[RANKS];               /* 0: not yet */
byte attempt_of[RANKS], members_of[RANKS];

#define NOW    (number % 2)
#define BEFORE (1 - number % 2)
/* The failed ranks of a decision are dead, were failed before or not, and include all that are not in
 * the agreement. A failed rank's flag is in the sum or not. */
#define MAY_FAIL(set) (!decided[NOW] && ((set) & ~dead) == 0 && (failed[BEFORE] & ~(set)) == 0 && \
                       (entered[NOW] | (set)) == ALL)
inline decide(set, sum)
{
    failed[NOW] = set;
    flag[NOW] = sum;
    decided[NOW] = true
}

hidden byte q; /* scratch within a step */
inline return_with(me, what, attempt, members)
{
    returned[me] = what;
    attempt_of[me] = attempt;
    members_of[me] = members;
    q = 0;
    do
    :: q < RANKS ->
        assert(HAS(dead, q) || returned[q] == 0 ||
               (returned[q] == what && attempt_of[q] == attempt && members_of[q] == members_of[me]));
        q++
    :: else -> break
    od
}

/* shrink_by() */
active [RANKS] proctype survivor()
{
    byte n = 0, without = 0, unchanged = 0; /* agreement; a->failed */
    bool made = false;                      /* a->made != NULL */
    {
        do
        :: d_step { /* twill_agree() */
            assert(n < MOST);
            if
            :: number < n ->
                number = n;
                entered[NOW] = 0;
                contributed[NOW] = 0;
                decided[NOW] = false
            :: else
            fi;
            entered[NOW] = entered[NOW] | BIT(_pid);
            contributed[NOW] = contributed[NOW] | (made << _pid)
        }
        atomic {
            decided[n % 2];
            assert(!HAS(failed[n % 2], _pid));
            if
#if MUTANT == 1 /* without the second agreement */
            :: made ->
#elif MUTANT == 2 /* also if another rank has failed meanwhile */
            :: flag[n % 2] ->
#else
            :: flag[n % 2] && without == failed[n % 2] ->
#endif
                assert(made && without == failed[n % 2]);
                return_with(_pid, RETURNS_COMM, n, ALL & ~without);
                break
            :: else
            fi;
            made = false; /* drop_made() */
            if
            :: without != failed[n % 2] -> unchanged = 0
            :: without == failed[n % 2] && unchanged >= ATTEMPTS ->
                return_with(_pid, RETURNS_ERROR, 0, 0);
                break
            :: else
            fi;
            without = failed[n % 2]; /* find_survivors() */
            unchanged++;
            n++
        }
        if /* make_smaller() */
        :: made = true
        :: made = false
        fi
        od
    } unless {
        HAS(dead, _pid)
    }
}

/* The present agreement ends with the ranks of SET as failed ones. */
#define SET (_pid - RANKS)
active [ALL + 1] proctype decision()
{
end:
    do
    :: d_step {
        MAY_FAIL(SET) ->
        decide(SET, (contributed[NOW] | SET) == ALL)
    }
    :: d_step {
        MAY_FAIL(SET) && (contributed[NOW] | SET) == ALL && (SET & entered[NOW] & ~contributed[NOW]) != 0 ->
        decide(SET, false)
    }
    od
}

active [RANKS] proctype death()
{
end:
    do
    :: d_step {
        crashes < CRASHES && !HAS(dead, _pid % RANKS) ->
        crashes++;
        dead = dead | BIT(_pid % RANKS)
    }
    od
}

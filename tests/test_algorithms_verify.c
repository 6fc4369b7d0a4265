/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier on small schedules written by hand: each wrong in one way, and what it says. */
#include "tests/support/schedules.h"
#include "tests/support/simulate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD   "schedule parts 1 blocks 1 tmp 0 shared 0 peer_src 0 peer_dst 0\nlane\n"
#define TMP    "schedule parts 1 blocks 1 tmp 1 shared 0 peer_src 0 peer_dst 0\nlane\n"
#define SHARED "schedule parts 1 blocks 1 tmp 0 shared 1 peer_src 0 peer_dst 0\nlane\n"
#define MAPPED "schedule parts 1 blocks 1 tmp 0 shared 0 peer_src 1 peer_dst 1\nlane\n"
#define TWO    "schedule parts 1 blocks 2 tmp 0 shared 0 peer_src 0 peer_dst 0\nlane\n"
#define FLAT   "copy SHARED[0] = SRC[0]\nsignal\n"
#define FOLD   "reduce DST[0] = @SHARED[0] of 0 1 final\n"
#define EITHER 2 /* in place and not */

/* Two ranks, on one node unless `nodes`. */
static const struct {
    const char *what;
    int nodes, collective, in_place;
    const char *rank0, *rank1;
    const char *message; /* NULL: right */
} table[] = {
    {"flat is right", 1, TWILL_ALLREDUCE, EITHER, SHARED FLAT "await 1 of 1\n" FOLD,
     SHARED FLAT "await 1 of 0\n" FOLD, NULL},
    {"orders of folding differ", 1, TWILL_ALLREDUCE, EITHER, SHARED FLAT "await 1 of 1\n" FOLD,
     SHARED FLAT "await 1 of 0\nreduce DST[0] = @SHARED[0] of 1 0 final\n",
     "differs in the order of operands"},
    {"one rank twice", 1, TWILL_ALLREDUCE, EITHER,
     SHARED FLAT "await 1 of 1\nreduce DST[0] = @SHARED[0] of 1 1 final\n",
     SHARED FLAT "await 1 of 0\n" FOLD, "contribution twice"},
    {"a rank lacks", 1, TWILL_ALLREDUCE, EITHER,
     SHARED FLAT "await 1 of 1\nreduce DST[0] = @SHARED[0] of 1\n",
     SHARED FLAT "await 1 of 0\n" FOLD, "lacks contributions"},
    {"divided early", 1, TWILL_ALLREDUCE, EITHER,
     SHARED FLAT "await 1 of 1\nreduce DST[0] = @SHARED[0] of 1 final\n",
     SHARED FLAT "await 1 of 0\n" FOLD, "divides what is not complete"},
    {"divided twice", 1, TWILL_ALLREDUCE, EITHER,
     SHARED FLAT "await 1 of 1\n" FOLD "reduce DST[0] = DST[0] final\n",
     SHARED FLAT "await 1 of 0\n" FOLD, "folds what is complete"},
    {"never divided", 1, TWILL_ALLREDUCE, EITHER,
     SHARED FLAT "await 1 of 1\nreduce DST[0] = @SHARED[0] of 0 1\n",
     SHARED FLAT "await 1 of 0\n" FOLD, "not divided"},
    {"read before written", 1, TWILL_ALLREDUCE, EITHER, SHARED FLAT FOLD,
     SHARED FLAT "await 1 of 0\n" FOLD, "never written"},
    {"awaited too late", 1, TWILL_ALLREDUCE, EITHER, SHARED FLAT FOLD "await 1 of 1\n",
     SHARED FLAT "await 1 of 0\n" FOLD, "SHARED[0] of rank 1"},
    {"signalled before the copy", 1, TWILL_ALLREDUCE, EITHER,
     SHARED "signal\ncopy SHARED[0] = SRC[0]\nawait 1 of 1\n" FOLD,
     SHARED FLAT "await 1 of 0\n" FOLD, "not ordered"},
    {"a signal that never comes", 1, TWILL_ALLREDUCE, EITHER, SHARED FLAT "await 2 of 1\n" FOLD,
     SHARED FLAT "await 1 of 0\n" FOLD, "rank 0, lane 0, step 2 (await), run 0: never gets on"},
    {"both await first", 1, TWILL_BARRIER, EITHER, HEAD "await 1 of 1\nsignal\n",
     HEAD "await 1 of 0\nsignal\n", "deadlock"},
    {"mapped without an entry", 1, TWILL_ALLREDUCE, EITHER,
     MAPPED "reduce DST[0] = @SRC[0] of 0 1 final\ncopy @DST[0] = DST[0] of 1\nsignal\n",
     MAPPED "await 1 of 0\n", "SRC[0] of rank 1 is not ordered after the write by rank 1"},
    {"mapped, the other ends before it is written", 1, TWILL_ALLREDUCE, 0,
     MAPPED "signal\nawait 1 of 1\nreduce DST[0] = @SRC[0] of 0 1 final\n"
            "copy @DST[0] = DST[0] of 1\n",
     MAPPED "signal\nawait 1 of 0\n", "DST[0] of rank 1"},
    {"mapped is right", 1, TWILL_ALLREDUCE, EITHER,
     MAPPED "await 1 of 1\nreduce DST[0] = @SRC[0] of 0 1 final\n"
            "copy @DST[0] = DST[0] of 1\nsignal\n",
     MAPPED "signal\nawait 1 of 0\n", NULL},
    {"broadcast: the source is left before it was read", 1, TWILL_BROADCAST, EITHER,
     MAPPED "copy DST[0] = SRC[0]\nawait 1 of 1\nsignal\n",
     MAPPED "signal\nawait 1 of 0\ncopy DST[0] = @SRC[0] of 0\n", "SRC[0] of rank 0"},
    {"broadcast that nobody waits to enter", 1, TWILL_BROADCAST, EITHER,
     SHARED "copy DST[0] = SRC[0]\n" FLAT, SHARED "await 1 of 0\ncopy DST[0] = @SHARED[0] of 0\n",
     "ends although rank 1 may not have begun"},
    {"broadcast is right", 1, TWILL_BROADCAST, EITHER,
     SHARED "copy DST[0] = SRC[0]\ncopy SHARED[0] = SRC[0]\nawait 1 of 1\nsignal\n",
     SHARED "signal\nawait 1 of 0\ncopy DST[0] = @SHARED[0] of 0\n", NULL},
    {"broadcast that reads another's source", 1, TWILL_BROADCAST, EITHER,
     HEAD "copy DST[0] = SRC[0]\nsignal\nawait 1 of 1\n",
     HEAD "copy DST[0] = SRC[0]\nsignal\nawait 1 of 0\n", "never written"},
    {"barrier that is none", 1, TWILL_BARRIER, EITHER, HEAD "await 1 of 1\n", HEAD "signal\n",
     "rank 1, run 0: ends although rank 0"},
    {"imm put twice", 1, TWILL_ALLREDUCE, EITHER,
     HEAD "put_imm SRC[0]\nput_imm SRC[0]\nawait of 1 imm\nreduce DST[0] = @IMM[0] of 0 1 final\n",
     HEAD "put_imm SRC[0]\nawait of 0 imm\nreduce DST[0] = @IMM[0] of 0 1 final\n", "put twice"},
    {"imm is right", 1, TWILL_ALLREDUCE, EITHER,
     HEAD "put_imm SRC[0]\nawait of 1 imm\nreduce DST[0] = @IMM[0] of 0 1 own_src final\n",
     HEAD "put_imm SRC[0]\nawait of 0 imm\nreduce DST[0] = @IMM[0] of 0 1 final\n", NULL},
    {"messages: right", 2, TWILL_ALLREDUCE, EITHER,
     TMP "send SRC[0] to 1\nrecv TMP[0] from 1\nwait\ncopy DST[0] = SRC[0]\n"
         "reduce DST[0] = TMP[0] acc final\n",
     TMP "send SRC[0] to 0\nrecv TMP[0] from 0\nwait\ncopy DST[0] = SRC[0]\n"
         "reduce DST[0] = TMP[0] acc first final\n",
     NULL},
    {"messages: used before the wait", 2, TWILL_ALLREDUCE, 0,
     TMP "send SRC[0] to 1\nrecv TMP[0] from 1\ncopy DST[0] = SRC[0]\n"
         "reduce DST[0] = TMP[0] acc final\nwait\n",
     TMP "send SRC[0] to 0\nrecv TMP[0] from 0\nwait\ncopy DST[0] = SRC[0]\n"
         "reduce DST[0] = TMP[0] acc first final\n",
     "TMP[0] of rank 0 is not ordered after the write by rank 0"},
    {"messages: written while it is being sent, in place only", 2, TWILL_ALLREDUCE, 1,
     HEAD "send SRC[0] to 1\nrecv_reduce DST[0] = SRC[0] from 1 final\nwait\n",
     HEAD "send SRC[0] to 0\nrecv_reduce DST[0] = SRC[0] from 0 first final\nwait\n",
     "is not ordered after the read by rank 0"},
    {"messages: the same, not in place", 2, TWILL_ALLREDUCE, 0,
     HEAD "send SRC[0] to 1\nrecv_reduce DST[0] = SRC[0] from 1 final\nwait\n",
     HEAD "send SRC[0] to 0\nrecv_reduce DST[0] = SRC[0] from 0 first final\nwait\n", NULL},
    {"messages: needs a buffer", 2, TWILL_ALLREDUCE, 0,
     HEAD "send SRC[0] to 1\nwait\nrecv_reduce DST[0] = SRC[0] from 1 final\nwait\n",
     HEAD "send SRC[0] to 0\nwait\nrecv_reduce DST[0] = SRC[0] from 0 first final\nwait\n",
     "deadlock"},
    {"messages: one too many", 2, TWILL_BARRIER, EITHER,
     HEAD "send SRC[0]x0 to 1\nrecv SRC[0]x0 from 1\nwait\n",
     HEAD "send SRC[0]x0 to 0\nrecv SRC[0]x0 from 0\nrecv SRC[0]x0 from 0\nwait\n",
     "message of another run"},
    {"messages: lengths differ", 2, TWILL_BROADCAST, EITHER,
     TWO "send SRC[0]x2 to 1\nwait\ncopy DST[0]x2 = SRC[0]\n", TWO "recv DST[0] from 0\nwait\n",
     "another length"},
    {"messages: parts exchanged", 2, TWILL_BROADCAST, EITHER,
     TWO "send SRC[1] to 1\nsend SRC[0] to 1\nwait\ncopy DST[0]x2 = SRC[0]\n",
     TWO "recv DST[0] from 0\nrecv DST[1] from 0\nwait\n", "gets a part of another place"},
    {"result never written", 2, TWILL_BROADCAST, 0, HEAD "send SRC[0] to 1\nwait\n",
     HEAD "recv DST[0] from 0\nwait\n", "DST[0] of rank 0 was never written"},
    {"blocks differ", 2, TWILL_BROADCAST, EITHER, TWO "copy DST[0]x2 = SRC[0]\n", HEAD, "blocks"},
    /* what a schedule may not say at all */
    {"posted at the end", 2, TWILL_BARRIER, EITHER, HEAD "send SRC[0]x0 to 1\n", HEAD,
     "ends with something posted"},
    {"beyond the space", 2, TWILL_ALLREDUCE, EITHER, HEAD "copy DST[1] = SRC[1]\n", HEAD, "beyond"},
    {"another node's memory", 2, TWILL_ALLREDUCE, EITHER, MAPPED "copy DST[0] = @SRC[0] of 1\n",
     HEAD, "rank of another node"},
    {"a rank that is not there", 2, TWILL_ALLREDUCE, EITHER, HEAD "send SRC[0] to 2\nwait\n", HEAD,
     "does not exist"},
    {"itself", 2, TWILL_ALLREDUCE, EITHER, HEAD "send SRC[0] to 0\nwait\n", HEAD, "its own rank"},
    {"writes SRC", 2, TWILL_ALLREDUCE, EITHER, HEAD "copy SRC[0] = DST[0]\n", HEAD, "may not"},
    {"undeclared", 1, TWILL_ALLREDUCE, EITHER, HEAD "copy DST[0] = @SRC[0] of 1\n", HEAD,
     "not declared"},
    {"peers' TMP", 1, TWILL_ALLREDUCE, EITHER, TMP "copy DST[0] = @TMP[0] of 1\n", HEAD, "may not"},
    {"other places", 2, TWILL_ALLREDUCE, EITHER, TWO "copy DST[0] = SRC[1]\n", TWO,
     "different places"},
    {"eight and the accumulator", 1, TWILL_ALLREDUCE, EITHER,
     SHARED "reduce DST[0] = @SHARED[0] of 0 1 0 1 0 1 0 1 acc\n", SHARED, "number of sources"},
    {"a peer without SHARED", 1, TWILL_ALLREDUCE, EITHER, SHARED "copy DST[0] = @SHARED[0] of 1\n",
     HEAD, "beyond the end"},
};

static void check_row(size_t i, bool in_place, uint32_t window)
{
    struct twill_world world;
    struct twill_schedule schedules[2];
    struct twill_error error = {.status = TWILL_OK};
    struct twill_shape shape = {.collective = (enum twill_collective)table[i].collective};
    uint32_t label[2] = {0, (uint32_t)table[i].nodes - 1};
    assert_int_equal(twill_world_create(&world, 2, label, NULL), TWILL_OK);
    const char *texts[2] = {table[i].rank0, table[i].rank1};
    for (int r = 0; r < 2; r++)
        if (twill_schedule_parse(&schedules[r], texts[r], &error) != TWILL_OK)
            fail_msg("%s: %s", table[i].what, error.message);
    twill_status status =
        twill_schedule_verify_window(schedules, &world, &shape, in_place, window, &error);
    bool right = table[i].message == NULL
                     ? status == TWILL_OK
                     : status == TWILL_ERR_INTERNAL && strstr(error.message, table[i].message);
    if (!right)
        fail_msg("%s (in place %d, window %u): %d \"%s\"", table[i].what, in_place, window, status,
                 error.message);
    if (table[i].message == NULL)
        for (uint32_t seed = 0; seed < 20; seed++)
            assert_null(test_simulate(schedules, &world, &shape, in_place, seed));
    twill_schedule_destroy(&schedules[0]);
    twill_schedule_destroy(&schedules[1]);
    twill_world_destroy(&world);
}

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++)
        for (int in_place = 0; in_place < 2; in_place++)
            for (uint32_t window = 1; window <= 3; window++)
                if (table[i].in_place == EITHER || table[i].in_place == in_place)
                    check_row(i, in_place != 0, window);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

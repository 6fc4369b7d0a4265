/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier on small schedules written by hand: each wrong in one way, and what it says; and
 * right ones that no algorithm has (test_algorithms_sweep verifies those of all algorithms). */
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

#define VERIFY_HEAD "schedule shards 1 blocks 1 tmp 0 shared 0 peer_src 0 peer_dst 0\nlane\n"
#define WITH_TMP    "schedule shards 1 blocks 1 tmp 1 shared 0 peer_src 0 peer_dst 0\nlane\n"
#define WITH_SHARED "schedule shards 1 blocks 1 tmp 0 shared 1 peer_src 0 peer_dst 0\nlane\n"
#define WITH_MAPPED "schedule shards 1 blocks 1 tmp 0 shared 0 peer_src 1 peer_dst 1\nlane\n"
#define EAGER(shared)                                                                              \
    "schedule shards 1 blocks 1 tmp 0 shared " shared " peer_src 1 peer_dst 0 eager\nlane\n"
#define TWO         "schedule shards 1 blocks 2 tmp 0 shared 0 peer_src 0 peer_dst 0\nlane\n"
#define FLAT_STEPS  "copy SHARED[0] = SRC[0]\nsignal\n"
#define REDUCE_STEP "reduce DST[0] = @SHARED[0] of 0 1 final\n"
#define EITHER      2 /* in place and not */
#define SHARDS      "schedule shards 2 blocks 2 tmp 0 shared 0 peer_src 0 peer_dst 0\nlane\n"
#define WITH_PAIRS  "schedule shards 2 blocks 4 tmp 0 shared 0 peer_src 0 peer_dst 0\nlane\n"
#define PARTMP      "schedule shards 2 blocks 2 tmp 2 shared 0 peer_src 0 peer_dst 0\nlane\n"
#define PARSHR      "schedule shards 2 blocks 2 tmp 0 shared 2 peer_src 0 peer_dst 0\nlane\n"
#define PARMAP      "schedule shards 2 blocks 2 tmp 0 shared 0 peer_src 1 peer_dst 1\nlane\n"
/* Beside the collective. */
#define VECTOR_FLAG 0x100
#define BY_RANK     0x200
#define VERIFY_LEFT 0x400
#define ROOT_ONE    0x800
#define FETCHED     0x1000 /* peers' memory can be read only */

/* Two ranks, on one node unless `nodes`. */
static const struct {
    const char *what;
    int nodes, collective, in_place;
    const char *rank0, *rank1;
    const char *message; /* NULL: right */
} table[] = {
    {"ranks reduce in different orders", 1, TWILL_ALLREDUCE, EITHER,
     WITH_SHARED FLAT_STEPS "await 1 of 1\n" REDUCE_STEP,
     WITH_SHARED FLAT_STEPS "await 1 of 0\nreduce DST[0] = @SHARED[0] of 1 0 final\n",
     "operands in another order"},
    {"one rank twice", 1, TWILL_ALLREDUCE, EITHER,
     WITH_SHARED FLAT_STEPS "await 1 of 1\nreduce DST[0] = @SHARED[0] of 1 1 final\n",
     WITH_SHARED FLAT_STEPS "await 1 of 0\n" REDUCE_STEP, "contribution twice"},
    {"a rank lacks", 1, TWILL_ALLREDUCE, EITHER,
     WITH_SHARED FLAT_STEPS "await 1 of 1\ncopy DST[0] = @SHARED[0] of 1\n",
     WITH_SHARED FLAT_STEPS "await 1 of 0\n" REDUCE_STEP, "lacks contributions"},
    {"divided early", 1, TWILL_ALLREDUCE, EITHER,
     WITH_SHARED FLAT_STEPS "await 1 of 1\nreduce DST[0] = @SHARED[0] of 1 final\n",
     WITH_SHARED FLAT_STEPS "await 1 of 0\n" REDUCE_STEP, "FINAL to an incomplete value"},
    {"divided twice", 1, TWILL_ALLREDUCE, EITHER,
     WITH_SHARED FLAT_STEPS "await 1 of 1\n" REDUCE_STEP "reduce DST[0] = DST[0] final\n",
     WITH_SHARED FLAT_STEPS "await 1 of 0\n" REDUCE_STEP, "reduces a value that is complete"},
    {"read before written", 1, TWILL_ALLREDUCE, EITHER, WITH_SHARED FLAT_STEPS REDUCE_STEP,
     WITH_SHARED FLAT_STEPS "await 1 of 0\n" REDUCE_STEP, "never written"},
    {"awaited too late", 1, TWILL_ALLREDUCE, EITHER,
     WITH_SHARED FLAT_STEPS REDUCE_STEP "await 1 of 1\n",
     WITH_SHARED FLAT_STEPS "await 1 of 0\n" REDUCE_STEP, "SHARED[0] of rank 1"},
    {"signalled before the copy", 1, TWILL_ALLREDUCE, EITHER,
     WITH_SHARED "signal\ncopy SHARED[0] = SRC[0]\nawait 1 of 1\n" REDUCE_STEP,
     WITH_SHARED FLAT_STEPS "await 1 of 0\n" REDUCE_STEP, "not ordered"},
    {"a signal that never comes", 1, TWILL_ALLREDUCE, EITHER,
     WITH_SHARED FLAT_STEPS "await 2 of 1\n" REDUCE_STEP,
     WITH_SHARED FLAT_STEPS "await 1 of 0\n" REDUCE_STEP,
     "rank 0, lane 0, step 2 (await), run 0: blocks forever"},
    {"both await first", 1, TWILL_BARRIER, EITHER, VERIFY_HEAD "await 1 of 1\nsignal\n",
     VERIFY_HEAD "await 1 of 0\nsignal\n", "deadlock"},
    {"mapped without an entry", 1, TWILL_ALLREDUCE, EITHER,
     WITH_MAPPED "reduce DST[0] = @SRC[0] of 0 1 final\ncopy @DST[0] = DST[0] of 1\nsignal\n",
     WITH_MAPPED "await 1 of 0\n", "SRC[0] of rank 1 is not ordered after the write by rank 1"},
    {"mapped, the other ends before it is written", 1, TWILL_ALLREDUCE, 0,
     WITH_MAPPED "signal\nawait 1 of 1\nreduce DST[0] = @SRC[0] of 0 1 final\n"
                 "copy @DST[0] = DST[0] of 1\n",
     WITH_MAPPED "signal\nawait 1 of 0\n", "DST[0] of rank 1"},
    {"broadcast: the source is left before it was read", 1, TWILL_BROADCAST, EITHER,
     WITH_MAPPED "copy DST[0] = SRC[0]\nawait 1 of 1\nsignal\n",
     WITH_MAPPED "signal\nawait 1 of 0\ncopy DST[0] = @SRC[0] of 0\n", "SRC[0] of rank 0"},
    {"broadcast without an entry", 1, TWILL_BROADCAST, EITHER,
     WITH_SHARED "copy DST[0] = SRC[0]\n" FLAT_STEPS,
     WITH_SHARED "await 1 of 0\ncopy DST[0] = @SHARED[0] of 0\n",
     "ends, but rank 1 may not have started"},
    {"broadcast, eager", 1, TWILL_BROADCAST, EITHER, EAGER("1") "copy DST[0] = SRC[0]\n" FLAT_STEPS,
     EAGER("1") "await 1 of 0\ncopy DST[0] = @SHARED[0] of 0\n", NULL},
    {"broadcast that is eager at the root only", 1, TWILL_BROADCAST, EITHER,
     EAGER("1") "copy DST[0] = SRC[0]\n" FLAT_STEPS,
     WITH_SHARED "await 1 of 0\ncopy DST[0] = @SHARED[0] of 0\n", "only one of ranks 0 and 1"},
    {"broadcast, eager: the source is left before it was read", 1, TWILL_BROADCAST, EITHER,
     EAGER("0") "copy DST[0] = SRC[0]\nsignal\n",
     EAGER("0") "await 1 of 0\ncopy DST[0] = @SRC[0] of 0\n", "SRC[0] of rank 0"},
    {"broadcast, eager: signalled before it is there", 1, TWILL_BROADCAST, EITHER,
     EAGER("1") "copy DST[0] = SRC[0]\nsignal\ncopy SHARED[0] = SRC[0]\n",
     EAGER("1") "await 1 of 0\ncopy DST[0] = @SHARED[0] of 0\n", "SHARED[0] of rank 0"},
    {"broadcast: copied in another lane, which no signal covers", 1, TWILL_BROADCAST, EITHER,
     WITH_SHARED "copy DST[0] = SRC[0]\nawait 1 of 1\nsignal\nlane\ncopy SHARED[0] = SRC[0]\n",
     WITH_SHARED "signal\nawait 1 of 0\ncopy DST[0] = @SHARED[0] of 0\n",
     "SHARED[0] of rank 0 is not ordered after the write by rank 0"},
    {"a barrier cannot be eager", 1, TWILL_BARRIER, EITHER, EAGER("0") "signal\n",
     EAGER("0") "await 1 of 0\nsignal\n", "ends, but rank 1 may not have started"},
    {"broadcast that reads another's source", 1, TWILL_BROADCAST, EITHER,
     VERIFY_HEAD "copy DST[0] = SRC[0]\nsignal\nawait 1 of 1\n",
     VERIFY_HEAD "copy DST[0] = SRC[0]\nsignal\nawait 1 of 0\n",
     "names a shard that the rank does not hold"},
    {"barrier that is none", 1, TWILL_BARRIER, EITHER, VERIFY_HEAD "await 1 of 1\n",
     VERIFY_HEAD "signal\n", "rank 1, run 0: ends, but rank 0"},
    {"imm put twice", 1, TWILL_ALLREDUCE, EITHER,
     VERIFY_HEAD
     "put_imm SRC[0]\nput_imm SRC[0]\nawait of 1 imm\nreduce DST[0] = @IMM[0] of 0 1 final\n",
     VERIFY_HEAD "put_imm SRC[0]\nawait of 0 imm\nreduce DST[0] = @IMM[0] of 0 1 final\n",
     "written by two PUT_IMMs"},
    {"messages: used before the wait", 2, TWILL_ALLREDUCE, 0,
     WITH_TMP "send SRC[0] to 1\nrecv TMP[0] from 1\ncopy DST[0] = SRC[0]\n"
              "reduce DST[0] = TMP[0] acc final\nwait\n",
     WITH_TMP "send SRC[0] to 0\nrecv TMP[0] from 0\nwait\ncopy DST[0] = SRC[0]\n"
              "reduce DST[0] = TMP[0] acc first final\n",
     "TMP[0] of rank 0 is not ordered after the write by rank 0"},
    {"messages: written while it is being sent, in place only", 2, TWILL_ALLREDUCE, 1,
     VERIFY_HEAD "send SRC[0] to 1\nrecv_reduce DST[0] = SRC[0] from 1 final\nwait\n",
     VERIFY_HEAD "send SRC[0] to 0\nrecv_reduce DST[0] = SRC[0] from 0 first final\nwait\n",
     "is not ordered after the read by rank 0"},
    {"messages: the same, not in place", 2, TWILL_ALLREDUCE, 0,
     VERIFY_HEAD "send SRC[0] to 1\nrecv_reduce DST[0] = SRC[0] from 1 final\nwait\n",
     VERIFY_HEAD "send SRC[0] to 0\nrecv_reduce DST[0] = SRC[0] from 0 first final\nwait\n", NULL},
    {"messages: needs a buffer", 2, TWILL_ALLREDUCE, 0,
     VERIFY_HEAD "send SRC[0] to 1\nwait\nrecv_reduce DST[0] = SRC[0] from 1 final\nwait\n",
     VERIFY_HEAD "send SRC[0] to 0\nwait\nrecv_reduce DST[0] = SRC[0] from 0 first final\nwait\n",
     "deadlock"},
    {"messages: one too many", 2, TWILL_BARRIER, EITHER,
     VERIFY_HEAD "send SRC[0]x0 to 1\nrecv SRC[0]x0 from 1\nwait\n",
     VERIFY_HEAD "send SRC[0]x0 to 0\nrecv SRC[0]x0 from 0\nrecv SRC[0]x0 from 0\nwait\n",
     "blocks forever"},
    {"messages: one too many, in runs that follow each other", 2, TWILL_BARRIER, EITHER,
     WITH_SHARED "send SRC[0]x0 to 1\nrecv SRC[0]x0 from 1\nwait\n",
     WITH_SHARED "send SRC[0]x0 to 0\nrecv SRC[0]x0 from 0\nrecv SRC[0]x0 from 0\nwait\n",
     "message of another run"},
    {"messages: lengths differ", 2, TWILL_BROADCAST, EITHER,
     TWO "send SRC[0]x2 to 1\nwait\ncopy DST[0]x2 = SRC[0]\n", TWO "recv DST[0] from 0\nwait\n",
     "another length"},
    {"messages: blocks exchanged", 2, TWILL_BROADCAST, EITHER,
     TWO "send SRC[1] to 1\nsend SRC[0] to 1\nwait\ncopy DST[0]x2 = SRC[0]\n",
     TWO "recv DST[0] from 0\nrecv DST[1] from 0\nwait\n", "gets a block of another position"},
    {"result never written", 2, TWILL_BROADCAST, 0, VERIFY_HEAD "send SRC[0] to 1\nwait\n",
     VERIFY_HEAD "recv DST[0] from 0\nwait\n", "DST[0] of rank 0 was never written"},
    {"blocks differ", 2, TWILL_BROADCAST, EITHER, TWO "copy DST[0]x2 = SRC[0]\n", VERIFY_HEAD,
     "blocks"},
    /* states of values */
    {"partial in TMP: right", 2, TWILL_ALLREDUCE, EITHER,
     WITH_TMP "send SRC[0] to 1\nwait\nrecv DST[0] from 1\nwait\n",
     WITH_TMP "recv_reduce TMP[0] = SRC[0] from 0\nwait\nreduce DST[0] = TMP[0] final partial\n"
              "send DST[0] to 0\nwait\n",
     NULL},
    {"partial not marked", 2, TWILL_ALLREDUCE, EITHER,
     WITH_TMP "send SRC[0] to 1\nwait\nrecv DST[0] from 1\nwait\n",
     WITH_TMP "recv_reduce TMP[0] = SRC[0] from 0\nwait\nreduce DST[0] = TMP[0] final\n"
              "send DST[0] to 0\nwait\n",
     "TMP[0] of rank 1 is a partial, but the step does not mark it as one"},
    {"raw data marked as a partial", 2, TWILL_ALLREDUCE, EITHER,
     WITH_TMP "send SRC[0] to 1\nwait\nrecv DST[0] from 1\nwait\n",
     WITH_TMP "recv TMP[0] from 0\nwait\ncopy DST[0] = SRC[0]\n"
              "reduce DST[0] = TMP[0] acc final partial\nsend DST[0] to 0\nwait\n",
     "TMP[0] of rank 1 is not a partial, but the step marks it as one"},
    {"partial copied to DST", 2, TWILL_ALLREDUCE, EITHER,
     WITH_TMP "send SRC[0] to 1\nrecv DST[0] from 1\nwait\n",
     WITH_TMP "recv_reduce TMP[0] = SRC[0] from 0\nwait\ncopy DST[0] = TMP[0] partial\n"
              "send DST[0] to 0\nwait\n",
     "stores a partial in DST"},
    {"partial sent, marked by the receiver only", 2, TWILL_ALLREDUCE, EITHER,
     WITH_TMP "reduce TMP[0] = SRC[0]\nsend TMP[0] to 1\nrecv DST[0] from 1\nwait\n",
     WITH_TMP "recv_reduce DST[0] = SRC[0] from 0 final partial\nwait\nsend DST[0] to 0\nwait\n",
     "TMP[0] of rank 0 is a partial"},
    {"partial sent, marked by the sender only", 2, TWILL_ALLREDUCE, EITHER,
     WITH_TMP "reduce TMP[0] = SRC[0]\nsend TMP[0] to 1 partial\nrecv DST[0] from 1\nwait\n",
     WITH_TMP "recv_reduce DST[0] = SRC[0] from 0 final\nwait\nsend DST[0] to 0\nwait\n",
     "receives a partial, but the step does not mark it as one"},
    {"partial sent, marked on both sides", 2, TWILL_ALLREDUCE, EITHER,
     WITH_TMP "reduce TMP[0] = SRC[0]\nsend TMP[0] to 1 partial\nwait\nrecv DST[0] from 1\nwait\n",
     WITH_TMP "recv_reduce DST[0] = SRC[0] from 0 final partial\nwait\nsend DST[0] to 0\nwait\n",
     NULL},
    {"raw sent, a partial expected", 2, TWILL_ALLREDUCE, EITHER,
     WITH_TMP "send SRC[0] to 1\nwait\nrecv DST[0] from 1\nwait\n",
     WITH_TMP "recv_reduce DST[0] = SRC[0] from 0 final partial\nwait\nsend DST[0] to 0\nwait\n",
     "receives a message that is not a partial"},
    {"own partial not marked", 2, TWILL_ALLREDUCE, EITHER,
     WITH_TMP "send SRC[0] to 1\nwait\nrecv DST[0] from 1\nwait\n",
     WITH_TMP "reduce TMP[0] = SRC[0]\nrecv_reduce DST[0] = TMP[0] from 0 final\nwait\n"
              "send DST[0] to 0\nwait\n",
     "TMP[0] of rank 1 is a partial, but the step does not mark it as one"},
    {"own partial marked", 2, TWILL_ALLREDUCE, EITHER,
     WITH_TMP "send SRC[0] to 1\nwait\nrecv DST[0] from 1\nwait\n",
     WITH_TMP "reduce TMP[0] = SRC[0]\nrecv_reduce DST[0] = TMP[0] from 0 first final partial_own\n"
              "wait\nsend DST[0] to 0\nwait\n",
     NULL},
    {"SRC marked as a partial", 2, TWILL_ALLREDUCE, EITHER,
     VERIFY_HEAD "send SRC[0] to 1 partial\nwait\n", VERIFY_HEAD,
     "marks data of SRC or DST as a partial"},
    {"PARTIAL_OWN of nothing", 2, TWILL_ALLREDUCE, EITHER,
     WITH_TMP "reduce TMP[0] = SRC[0] partial_own\n", WITH_TMP, "PARTIAL_OWN without ACC"},
    {"empty message marked as a partial", 2, TWILL_BARRIER, EITHER,
     VERIFY_HEAD "send SRC[0]x0 to 1 partial\nwait\n", VERIFY_HEAD,
     "marks an empty message as a partial"},
    {"own SRC stands in for a shared partial", 1, TWILL_ALLREDUCE, EITHER,
     WITH_SHARED "reduce SHARED[0] = SRC[0]\nsignal\nawait 1 of 1\n"
                 "reduce DST[0] = @SHARED[0] of 0 1 own_src final partial\n",
     WITH_SHARED "reduce SHARED[0] = SRC[0]\nsignal\nawait 1 of 0\n"
                 "reduce DST[0] = @SHARED[0] of 0 1 final partial\n",
     NULL},
    /* order */
    {"by rank: wrong", 2, TWILL_ALLREDUCE | BY_RANK, 0,
     VERIFY_HEAD "send SRC[0] to 1\nrecv_reduce DST[0] = SRC[0] from 1 first final\nwait\n",
     VERIFY_HEAD "send SRC[0] to 0\nrecv_reduce DST[0] = SRC[0] from 0 final\nwait\n",
     "reduces operands out of order"},
    /* reduce */
    {"reduce: only the root has a DST", 2, TWILL_REDUCE | ROOT_ONE, EITHER,
     VERIFY_HEAD "copy DST[0] = SRC[0]\nsend DST[0] to 1\nwait\n",
     VERIFY_HEAD "recv_reduce DST[0] = SRC[0] from 0 final first\nwait\n",
     "names a shard that the rank does not hold"},
    {"reduce: the node may not have come", 1, TWILL_REDUCE | ROOT_ONE, EITHER,
     VERIFY_HEAD "send SRC[0] to 1\nwait\n",
     VERIFY_HEAD "recv_reduce DST[0] = SRC[0] from 0 final first\nwait\n",
     "rank 0, run 0: ends, but rank 1 may not have started"},
    {"broadcast has nothing to reduce", 2, TWILL_BROADCAST, EITHER,
     VERIFY_HEAD "reduce DST[0] = SRC[0] final\n", VERIFY_HEAD, "without a reduction"},
    /* allgather */
    {"allgather: one shard only", 2, TWILL_ALLGATHER, EITHER, TWO, TWO, "wrong shards"},
    {"allgather: another's shard of SRC", 2, TWILL_ALLGATHER, EITHER,
     SHARDS "send SRC[1] to 1\nwait\n", SHARDS, "names a shard that the rank does not hold"},
    {"allgather: shard in the wrong position", 2, TWILL_ALLGATHER, 0,
     SHARDS "send SRC[0] to 1\nrecv DST[0] from 1\nwait\ncopy DST[1] = SRC[0]\n",
     SHARDS "send SRC[1] to 0\nrecv DST[0] from 0\ncopy DST[1] = SRC[1]\nwait\n",
     "DST[0] of rank 0 has a block of another position"},
    {"allgather: moved, shards of one size", 2, TWILL_ALLGATHER, EITHER,
     PARTMP "copy TMP[1] = SRC[0]\nsend TMP[1] to 1\nrecv TMP[0] from 1\nwait\n"
            "copy DST[0] = TMP[1]\ncopy DST[1] = TMP[0]\n",
     PARTMP "send SRC[1] to 0\nrecv DST[0] from 0\ncopy DST[1] = SRC[1]\nwait\n", NULL},
    {"allgather: moved, shards of any size", 2, TWILL_ALLGATHER | VECTOR_FLAG, EITHER,
     PARTMP "copy TMP[1] = SRC[0]\nsend TMP[1] to 1\nrecv TMP[0] from 1\nwait\n"
            "copy DST[0] = TMP[1]\ncopy DST[1] = TMP[0]\n",
     PARTMP "send SRC[1] to 0\nrecv DST[0] from 0\ncopy DST[1] = SRC[1]\nwait\n",
     "TMP[1] of rank 0 gets a block of another position"},
    {"allgather: blocks exchanged", 2, TWILL_ALLGATHER, EITHER,
     WITH_PAIRS "send SRC[0] to 1\nsend SRC[1] to 1\nrecv DST[2]x2 from 1\ncopy DST[0]x2 = SRC[0]\n"
                "wait\n",
     WITH_PAIRS "send SRC[2]x2 to 0\nrecv DST[1] from 0\nrecv DST[0] from 0\n"
                "copy DST[2]x2 = SRC[2]\nwait\n",
     "gets a block of another position"},
    {"allgather: own shard never copied", 2, TWILL_ALLGATHER, 0,
     SHARDS "send SRC[0] to 1\nrecv DST[1] from 1\nwait\n",
     SHARDS "send SRC[1] to 0\nrecv DST[0] from 0\ncopy DST[1] = SRC[1]\nwait\n",
     "DST[0] of rank 0 was never written"},
    {"allgather: own shard never copied, in place", 2, TWILL_ALLGATHER, 1,
     SHARDS "send SRC[0] to 1\nrecv DST[1] from 1\nwait\n",
     SHARDS "send SRC[1] to 0\nrecv DST[0] from 0\nwait\n", NULL},
    {"allgatherv into a peer", 1, TWILL_ALLGATHER | VECTOR_FLAG, EITHER,
     PARMAP "copy @DST[0] = SRC[0] of 1\nsignal\n", PARMAP "await 1 of 0\n",
     "accesses a peer's SRC or DST"},
    /* reduce_scatter */
    {"reduce_scatter: reduces another shard", 2, TWILL_REDUCE_SCATTER, 0,
     SHARDS "send SRC[0] to 1\nrecv_reduce DST[0] = SRC[0] from 1 final\nwait\n",
     SHARDS "send SRC[0] to 0\nrecv_reduce DST[1] = SRC[1] from 0 final first\nwait\n",
     "reduces blocks from different positions"},
    /* gather, scatter */
    {"gatherv: scratch", 2, TWILL_GATHER | VECTOR_FLAG | ROOT_ONE, EITHER,
     PARTMP "send SRC[0] to 1\nwait\n", PARTMP "recv DST[0] from 0\ncopy DST[1] = SRC[1]\nwait\n",
     "scratch"},
    {"scatterv: two shards at once", 2, TWILL_SCATTER | VECTOR_FLAG, EITHER,
     SHARDS "send SRC[0]x2 to 1\ncopy DST[0] = SRC[0]\nwait\n", SHARDS "recv DST[1] from 0\nwait\n",
     "several shards in one message"},
    {"scatter: the shard of another rank", 2, TWILL_SCATTER, EITHER,
     SHARDS "send SRC[0] to 1\ncopy DST[0] = SRC[0]\nwait\n", SHARDS "recv DST[1] from 0\nwait\n",
     "DST[1] of rank 1 has a block of another position"},
    /* alltoall */
    {"alltoall: to another", 2, TWILL_ALLTOALL, 0,
     SHARDS "send SRC[0] to 1\nrecv DST[1] from 1\ncopy DST[0] = SRC[0]\nwait\n",
     SHARDS "send SRC[0] to 0\nrecv DST[0] from 0\ncopy DST[1] = SRC[1]\nwait\n",
     "DST[0] of rank 1 has a block of another position"},
    {"alltoall: from another", 2, TWILL_ALLTOALL, 0,
     SHARDS "send SRC[1] to 1\nrecv DST[0] from 1\ncopy DST[1] = SRC[0]\nwait\n",
     SHARDS "send SRC[0] to 0\nrecv DST[0] from 0\ncopy DST[1] = SRC[1]\nwait\n",
     "DST[0] of rank 0 comes from the wrong rank"},
    {"alltoallv: shard of another size", 2, TWILL_ALLTOALL | VECTOR_FLAG, 0,
     SHARDS "send SRC[1] to 1\nrecv DST[0] from 1\ncopy DST[1] = SRC[0]\nwait\n",
     SHARDS "send SRC[0] to 0\nrecv DST[0] from 0\ncopy DST[1] = SRC[1]\nwait\n",
     "gets a block of another position"},
    {"alltoall by mapped memory: right", 1, TWILL_ALLTOALL, 0,
     PARMAP "signal\nawait 1 of 1\ncopy DST[1] = @SRC[0] of 1\ncopy DST[0] = SRC[0]\nsignal\n"
            "await 2 of 1\n",
     PARMAP "signal\nawait 1 of 0\ncopy @DST[1] = SRC[0] of 0\nsignal\nawait 2 of 0\n",
     "DST[1] of rank 0 is not ordered"},
    /* what a schedule may not say at all */
    {"posted at the end", 2, TWILL_BARRIER, EITHER, VERIFY_HEAD "send SRC[0]x0 to 1\n", VERIFY_HEAD,
     "ends with posted messages"},
    {"beyond the space", 2, TWILL_ALLREDUCE, EITHER, VERIFY_HEAD "copy DST[1] = SRC[1]\n",
     VERIFY_HEAD, "beyond"},
    {"another node's memory", 2, TWILL_ALLREDUCE, EITHER,
     WITH_MAPPED "copy DST[0] = @SRC[0] of 1\n", VERIFY_HEAD, "rank on another node"},
    {"a rank that is not there", 2, TWILL_ALLREDUCE, EITHER, VERIFY_HEAD "send SRC[0] to 2\nwait\n",
     VERIFY_HEAD, "does not exist"},
    {"itself", 2, TWILL_ALLREDUCE, EITHER, VERIFY_HEAD "send SRC[0] to 0\nwait\n", VERIFY_HEAD,
     "its own rank"},
    {"writes SRC", 2, TWILL_ALLREDUCE, EITHER, VERIFY_HEAD "copy SRC[0] = DST[0]\n", VERIFY_HEAD,
     "cannot access"},
    {"undeclared", 1, TWILL_ALLREDUCE, EITHER, VERIFY_HEAD "copy DST[0] = @SRC[0] of 1\n",
     VERIFY_HEAD, "is not set"},
    {"peers' TMP", 1, TWILL_ALLREDUCE, EITHER, WITH_TMP "copy DST[0] = @TMP[0] of 1\n", VERIFY_HEAD,
     "cannot access"},
    {"other places", 2, TWILL_ALLREDUCE, EITHER, TWO "copy DST[0] = SRC[1]\n", TWO,
     "different positions"},
    {"eight and the accumulator", 1, TWILL_ALLREDUCE, EITHER,
     WITH_SHARED "reduce DST[0] = @SHARED[0] of 0 1 0 1 0 1 0 1 acc\n", WITH_SHARED,
     "number of sources"},
    {"stores where only reads are available", 1, TWILL_ALLREDUCE | FETCHED, EITHER,
     WITH_MAPPED "copy @DST[0] = SRC[0] of 1\n", WITH_MAPPED, "stores into a peer's DST"},
    {"a peer without SHARED", 1, TWILL_ALLREDUCE, EITHER,
     WITH_SHARED "copy DST[0] = @SHARED[0] of 1\n", VERIFY_HEAD, "beyond the end"},
};

static bool check_row(size_t i, bool in_place, uint32_t window)
{
    struct twill_world world;
    struct twill_schedule schedules[2];
    struct twill_error error = {.status = TWILL_OK};
    int asked = table[i].collective;
    struct twill_shape shape = {.collective = (enum twill_collective)(asked & 0xff),
                                .root = (asked & ROOT_ONE) != 0,
                                .protocol = (asked & FETCHED) != 0 ? TWILL_PROTOCOL_FETCHED
                                                                   : TWILL_PROTOCOL_MAPPED,
                                .vector = (asked & VECTOR_FLAG) != 0,
                                .order = (asked & VERIFY_LEFT) != 0 ? TWILL_ORDER_LEFT
                                         : (asked & BY_RANK) != 0   ? TWILL_ORDER_RANKS
                                                                    : TWILL_ORDER_ANY};
    uint32_t label[2] = {0, (uint32_t)table[i].nodes - 1};
    assert_int_equal(twill_world_create(&world, 2, label, NULL), TWILL_OK);
    const char *texts[2] = {table[i].rank0, table[i].rank1};
    for (int r = 0; r < 2; r++)
        if (test_schedule_parse(&schedules[r], texts[r], &error) != TWILL_OK)
            fail_msg("%s: %s", table[i].what, error.message);
    twill_status status =
        twill_schedule_verify_window(schedules, &world, &shape, in_place, window, &error);
    bool right = table[i].message == NULL
                     ? status == TWILL_OK
                     : status == TWILL_ERR_INTERNAL && strstr(error.message, table[i].message);
    if (!right)
        print_error("%s (in place %d, window %u): %d \"%s\"\n", table[i].what, in_place, window,
                    status, error.message);
    for (uint32_t seed = 0; table[i].message == NULL && seed < 20; seed++) {
        const char *why = test_simulate(schedules, &world, &shape, in_place, seed);
        if (why != NULL)
            print_error("%s (in place %d): simulated, %s\n", table[i].what, in_place, why);
        right = right && why == NULL;
    }
    twill_schedule_destroy(&schedules[0]);
    twill_schedule_destroy(&schedules[1]);
    twill_world_destroy(&world);
    return right;
}

TWILL_TEST(test_table)
{
    bool right = true;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++)
        for (int in_place = 0; in_place < 2; in_place++)
            for (uint32_t window = 1; window <= 3; window++)
                if (table[i].in_place == EITHER || table[i].in_place == in_place)
                    right = check_row(i, in_place != 0, window) && right;
    assert_true(right);
}

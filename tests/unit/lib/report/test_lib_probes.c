/* SPDX-License-Identifier: Apache-2.0 */
/* Probes for SystemTap, bpftrace and perf: which ones there are, and that each has the number of
 * the communicator, of its call, and its own value, in this order. The file with the probes is
 * compiled into this program, with a double of <sys/sdt.h>. */
#define TWILL_WITH_PROBES
#include "lib/engine/trace_calls.c"

#include "lib/comm/comm.h"
#include "tests/support/unit.h"

#define LATE_US      50000
#define PROBES_MOST  64
#define PROBED_CALLS 3

/* The probes that this thread, a rank, has passed. */
static _Thread_local struct {
    unsigned count;
    struct passed_probe {
        char probe[32];
        uint64_t first, second;
        int64_t third;
    } list[PROBES_MOST];
} passed;

void twill_test_probe(const char *probe, uint64_t first, uint64_t second, int64_t third)
{
    struct passed_probe *to = &passed.list[passed.count++ % PROBES_MOST];
    snprintf(to->probe, sizeof(to->probe), "%s", probe);
    to->first = first;
    to->second = second;
    to->third = third;
}

static bool last_is(const char *probe, uint64_t first, uint64_t second, int64_t third)
{
    const struct passed_probe *last = &passed.list[(passed.count - 1) % PROBES_MOST];
    return TWILL_NOTE(passed.count > 0 && strcmp(last->probe, probe) == 0 && last->first == first &&
                          last->second == second && last->third == third,
                      "%s %llu %llu %lld, not %s %llu %llu %lld", last->probe,
                      (unsigned long long)last->first, (unsigned long long)last->second,
                      (long long)last->third, probe, (unsigned long long)first,
                      (unsigned long long)second, (long long)third);
}

/* Probes of a request and of a failure: no two arguments are equal. */
static void check_probes(twill_comm *comm)
{
    uint64_t number = comm->number, sequence = comm->issue.sequence;
    struct twill_request request = {.engine = &comm->engine};
    request.sequence = number + 500;
    request.bytes = 123456;
    TWILL_CHECK(number != sequence && number != 0);
    twill_trace_call_begin(&request);
    TWILL_CHECK(last_is("twill:call_begin", number, number + 500, 123456));
    twill_trace_call_end(&request, TWILL_ERR_TIMEOUT);
    TWILL_CHECK(last_is("twill:call_end", number, number + 500, TWILL_ERR_TIMEOUT));
    twill_trace_wait_begin(&comm->engine, 99, 0);
    TWILL_CHECK(last_is("twill:wait_begin", number, sequence, 99));
    twill_trace_wait_end(&comm->engine);
    TWILL_CHECK(last_is("twill:wait_end", number, sequence, 0));
    twill_trace_failure(&comm->engine, TWILL_ERR_PEER, 99);
    TWILL_CHECK(last_is("twill:failure", number, sequence, TWILL_ERR_PEER));
}

/* Rank 1 enters the last call late: rank 0's wait for it has probes. */
static void rank_probes(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    _Atomic int *arrived = user;
    twill_comm *world, *comm;
    float x = 1;
    if (!twill_test_open(&world, bootstrap, "", TWILL_TEST_PATIENT))
        return;
    TWILL_CHECK(twill_comm_dup(&comm, world) == TWILL_OK); /* number 0 is the first one's */
    for (int i = 0; i < PROBED_CALLS; i++)
        TWILL_CHECK(twill_allreduce(comm, &x, &x, 1, TWILL_F32, TWILL_SUM) == TWILL_OK);
    passed.count = 0;
    atomic_fetch_add(arrived, 1);
    while (rank == 1 && atomic_load(arrived) < 2 && !twill_test_failed())
        twill_pause();
    if (rank == 1)
        usleep(LATE_US);
    TWILL_CHECK(twill_allreduce(comm, &x, &x, 1, TWILL_F32, TWILL_SUM) == TWILL_OK);
    if (rank == 0) {
        TWILL_CHECK(passed.count == 2);
        const struct passed_probe *begin = &passed.list[0];
        TWILL_CHECK(strcmp(begin->probe, "twill:wait_begin") == 0 && begin->first == comm->number &&
                    begin->second == comm->issue.sequence && begin->third == 1);
        TWILL_CHECK(last_is("twill:wait_end", comm->number, comm->issue.sequence, 0));
    }
    check_probes(comm);
    twill_test_barrier(bootstrap);
    twill_comm_destroy(comm);
    twill_test_close(world);
}

TWILL_TEST(probes_have_their_arguments)
{
    _Atomic int arrived = 0;
    twill_test_run_ranks(2, rank_probes, &arrived);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that cannot be accepted for a while for want of resources of the host: peers wait,
 * and nothing fails. This program's accept4() fails as often as a test sets. */
#include "tests/support/job_ranks.h"
#include "tests/support/tcp_ends.h"
#include "tests/support/unit.h"

#include <dlfcn.h>

/* Every other call fails, `refusals` times in all; `allowed` connections succeed. */
static atomic_int refusals, allowed, asked;

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    static const int causes[] = {ENFILE, ENOBUFS, EINTR, ENOMEM, ECONNABORTED};
    int (*real)(int, struct sockaddr *, socklen_t *, int) =
        (int (*)(int, struct sockaddr *, socklen_t *, int))dlsym(RTLD_NEXT, "accept4");
    unsigned number = (unsigned)atomic_fetch_add(&asked, 1);
    errno = causes[number / 2 % TWILL_ARRAY_LENGTH(causes)];
    if (number % 2 == 0 && atomic_fetch_sub(&refusals, 1) > 0)
        return -1;
    errno = EMFILE; /* Linux reports this even if no connection waits */
    int accepted = atomic_load(&allowed) > 0 ? real(fd, address, length, flags) : -1;
    if (accepted >= 0)
        atomic_fetch_sub(&allowed, 1);
    return accepted;
}

static void refuse_connections(int times, int connections)
{
    atomic_store(&refusals, times);
    atomic_store(&allowed, connections);
    atomic_store(&asked, 0);
}

TWILL_TEST(tcp_rendezvous)
{
    struct twill_test_job job;
    for (int times = 0; times <= 20; times += 10) { /* and with the last descriptor */
        twill_test_job_init(&job, "127.0.0.1", 5);
        job.odd = -1;
        refuse_connections(times, 4);
        twill_test_run_ranks(5, twill_test_rank_gathers, &job);
        assert_int_equal(atomic_load(&allowed), 0);
    }
}

static void rank_exchanges(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct tcp_end end;
    if (end_open(&end, caller, NULL)) {
        uint32_t peer = (uint32_t)(size - 1 - rank), out = (uint32_t)rank + 5, in = 0;
        struct twill_transfer one[2] = {
            transfer(TWILL_TRANSFER_SEND, peer, 0, &out, sizeof(out)),
            transfer(TWILL_TRANSFER_RECV, peer, 0, &in, sizeof(in)),
        };
        uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
        bool good = post(&end, &one[0]) && post(&end, &one[1]);
        while (good && (one[0].status == TWILL_PENDING || one[1].status == TWILL_PENDING) &&
               twill_now() < limit)
            good = progress(&end) >= 0;
        TWILL_NOTE(good && one[0].status == TWILL_OK && one[1].status == TWILL_OK,
                   "rank %d: %d, %d: %s", rank, one[0].status, one[1].status,
                   end.end.error.message);
        TWILL_NOTE(in == peer + 5, "rank %d got %u", rank, in);
        rank_barrier(&end);
    }
    end_close(&end);
}

#define CONNECTIONS 2 /* of the exchange: the lane's and the next one's */

TWILL_TEST(transport_connects)
{
    for (int times = 0; times <= 20; times += 10) {
        refuse_connections(times, CONNECTIONS);
        twill_test_run_ranks(2, rank_exchanges, NULL);
        assert_true(atomic_load(&allowed) < CONNECTIONS);
    }
}

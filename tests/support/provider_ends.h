/* SPDX-License-Identifier: Apache-2.0 */
/* One end of a case in tests/support/provider_cases.c. */
#ifndef TWILL_PROVIDER_ENDS_H
#define TWILL_PROVIDER_ENDS_H

#include "tests/support/provider_cases.h"

#include <stdio.h>
#include <unistd.h>

static inline bool start_with(struct end *end, twill_bootstrap *caller, struct run *run,
                              uint32_t comm, struct twill_ofi_options options,
                              struct twill_common **common)
{
    run->setup = (struct setup){
        .name = run->provider->title, .provider = run->provider->name, .options = options};
    return end_open_at(end, caller, &run->setup, comm,
                       &(struct place){.common = common,
                                       .interface = run->provider->interface,
                                       .address = run->address});
}

static inline bool start(struct end *end, twill_bootstrap *caller, struct run *run, uint32_t comm,
                         struct twill_ofi_options options)
{
    return start_with(end, caller, run, comm, options, NULL);
}

/* Wait for all ranks while progressing, as ranks do inside twill calls. */
static inline bool gather(struct run *run, struct end *end, int rank, int size)
{
    unsigned mine = atomic_fetch_add(&run->outcome->arrived[rank], 1) + 1;
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    for (int r = 0; r < size;) {
        if ((int)(atomic_load(&run->outcome->arrived[r]) - mine) >= 0) {
            r++;
            continue;
        }
        TWILL_REQUIRE(!twill_test_failed());
        TWILL_REQUIRE(twill_test_note(twill_now() < limit, __FILE__, __LINE__,
                                      "rank %d waits for rank %d to arrive", rank, r));
        if (end->transport != NULL && twill_ofi_transport.progress(end->transport, &end->error) < 0)
            usleep(1000);
        sched_yield();
    }
    return true;
}

static inline bool stop(struct run *run, struct end *end)
{
    bool good = gather(run, end, (int)end->rank, 2);
    end_close(end);
    return good;
}

static inline void linger(struct end *end, uint64_t nanoseconds)
{
    uint64_t until = twill_now() + nanoseconds;
    while (twill_now() < until && progress(end))
        ;
}

/* After a failure: cancel, so that nothing is written to memory that the case frees. */
static inline void give_up(struct end *end, bool fine)
{
    if (!fine)
        twill_ofi_transport.cancel(end->transport);
}

/* Exchange messages of each size with the other rank, twice, both directions at the same time. */
static inline bool exchange(struct end *end, const size_t *bytes, size_t n, uint32_t number)
{
    struct message *m = calloc(4 * n, sizeof(*m));
    TWILL_REQUIRE(m != NULL);
    bool fine = true;
    for (uint32_t i = 0; i < 4 * n; i++)
        fine =
            fine && message_make(&m[i], end, i % 4 < 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                 1 - end->rank, i / 4 % TWILL_OFI_LANES, number + i / 4 * 2 + i % 2,
                                 bytes[i / 4], i % 4 == 3);
    fine = fine && messages_run(end, m, 4 * n);
    give_up(end, fine);
    message_free(m, 4 * n);
    return fine;
}

#endif

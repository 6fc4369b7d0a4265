/* SPDX-License-Identifier: Apache-2.0 */
/* A machine that is suspended while the provider is to return cancelled operations: it must be
 * polled all the same. The clock of this program jumps when a test says so. */
#include "tests/support/leap.h"
#include "tests/support/ofi_ends.h"
#include "tests/support/unit.h"

static void cancelling_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct end end;
    unsigned char data[64];
    struct twill_transfer in = {.kind = TWILL_TRANSFER_RECV,
                                .peer = 1 - (uint32_t)rank,
                                .signature = 1,
                                .buffer = data,
                                .bytes = sizeof(data)};
    if (end_open(&end, caller, user, 1) && post(&end, &in) && progress(&end)) {
        struct twill_ofi *t = (struct twill_ofi *)end.transport;
        TWILL_NOTE(t->headers_busy > 0, "nothing is posted");
        leap = 2;
        twill_ofi_transport.cancel(end.transport);
        leap = 0;
        TWILL_NOTE(t->headers_busy == 0, "%u are still out", t->headers_busy);
        (void)rank_barrier(&end);
    }
    end_close(&end);
}

TWILL_TEST(what_is_cancelled_comes_back)
{
    twill_test_run_ranks(2, cancelling_rank, (void *)TCP);
}

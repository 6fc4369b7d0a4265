/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement: parts of several modules in one exchange, and the failure of a rank on all ranks. */
#include "fabric/bootstrap/agreement.h"
#include "tests/support/unit.h"

enum { RANKS = 3 };

/* Two parts, of which rank 1 has none to send and rank 2 takes none; one exchange after another. */
TWILL_TEST_OF_RANKS(test_parts, RANKS)
{
    struct twill_oob *oob = twill_test_oob(bootstrap);
    struct twill_agreement agreement = {.oob = oob};
    struct twill_error error = {0};
    for (unsigned turn = 1; turn <= 2; turn++) {
        uint64_t wide = 100 * turn + (unsigned)rank, wides[RANKS] = {0};
        char narrow = (char)('a' + rank), narrows[RANKS] = {0};
        twill_agreement_add(&agreement, rank == 1 ? NULL : &narrow, narrows, sizeof(narrow));
        twill_agreement_add(&agreement, &wide, rank == 2 ? NULL : wides, sizeof(wide));
        TWILL_CHECK_OK(&error, twill_agreement_exchange(&agreement, TWILL_OK, &error));
        TWILL_CHECK(size == RANKS && agreement.parts == 0 && oob->rounds == turn);
        TWILL_CHECK(narrows[0] == 'a' && narrows[1] == '\0' && narrows[2] == 'c');
        for (unsigned r = 0; r < RANKS; r++)
            TWILL_CHECK(wides[r] == (rank == 2 ? 0 : 100 * turn + r));
    }
    twill_test_oob_close(oob);
}

/* Ranks 1 and 2 fail: all ranks report the first of them, and have the parts nevertheless. */
static void failing_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct twill_oob *oob = twill_test_oob(caller);
    struct twill_agreement agreement = {.oob = oob};
    struct twill_error error = {0};
    const bool *names = user;
    twill_status status = TWILL_OK;
    uint8_t mine = (uint8_t)(rank + 1), all[RANKS] = {0};
    if (rank == 1)
        status = TWILL_FAIL(&error, TWILL_ERR_SYSTEM, "%sno socket", *names ? "rank 1: " : "");
    if (rank == 2)
        status = TWILL_FAIL(&error, TWILL_ERR_MEMORY, "no memory");
    twill_agreement_add(&agreement, &mine, all, sizeof(mine));
    TWILL_CHECK(twill_agreement_exchange(&agreement, status, &error) == TWILL_ERR_SYSTEM);
    TWILL_CHECK(all[0] == 1 && all[1] == 2 && all[2] == 3);
    TWILL_CHECK(error.status == TWILL_ERR_SYSTEM &&
                strcmp(error.message, rank == 1 && !*names ? "no socket" : "rank 1: no socket") ==
                    0);
    twill_test_oob_close(oob);
}

TWILL_TEST(test_failure)
{
    for (int i = 0; i < 2; i++) {
        bool names = i == 1;
        twill_test_run_ranks(RANKS, failing_rank, &names);
    }
}

/* The exchange itself fails: what this rank has noticed before is the reason. */
static twill_status broken(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                           struct twill_error *error)
{
    return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP, "no answer");
}

TWILL_TEST(test_suspicion)
{
    static const struct twill_bootstrap_ops ops = {.allgather = broken};
    struct twill_oob oob = {.ops = &ops, .size = 2};
    struct twill_agreement agreement = {.oob = &oob};
    struct twill_error error = {0}, again = {0}, own = {0};
    twill_agreement_suspect(&agreement, TWILL_ERR_PEER, "lost rank %d", 1);
    assert_int_equal(twill_agreement_exchange(&agreement, TWILL_OK, &error), TWILL_ERR_PEER);
    assert_string_equal(error.message, "lost rank 1; then: no answer");
    assert_int_equal(twill_agreement_exchange(&agreement, TWILL_OK, &again), TWILL_ERR_BOOTSTRAP);
    assert_string_equal(again.message, "no answer");
    (void)TWILL_FAIL(&own, TWILL_ERR_MEMORY, "mine");
    assert_int_equal(twill_agreement_exchange(&agreement, TWILL_ERR_MEMORY, &own),
                     TWILL_ERR_MEMORY);
    assert_string_equal(own.message, "mine");
}

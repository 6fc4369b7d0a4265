/* SPDX-License-Identifier: Apache-2.0 */
/* Registrations of the ofi transport when memory is moved, over several rails, and when another
 * thread frees memory. */
#include "tests/support/ofi_pair.h"

#include <pthread.h>
#include <stdatomic.h>

/* --- memory moved to where other memory was: its lock moves with it -------------------------- */

static bool move_mapping(unsigned char *from, unsigned char *to)
{
    return munmap(to, BYTES) == 0 &&
           mremap(from, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to;
}

static void rank_moved(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct pair pair;
    TWILL_CHECK(pair_open(&pair, caller, &registering, NULL));
    unsigned char *other = map(NULL, BYTES), *away = map(NULL, BYTES);
    TWILL_CHECK(other != NULL && away != NULL);
    TWILL_CHECK(swap(&pair) && swap_at(&pair, other, pair.data[1], BYTES));
    counted(&pair, 3, 0, 1, __LINE__);
    TWILL_CHECK(move_mapping(other, pair.data[0]));
    swap(&pair);
    counted(&pair, 5, 3, 1, __LINE__);
    swap(&pair); /* no lock was left anywhere */
    counted(&pair, 5, 3, 3, __LINE__);
    /* First to a new place, then to where other memory was that was used in between. */
    TWILL_CHECK(map(other, BYTES) != NULL && swap_at(&pair, other, pair.data[1], BYTES));
    counted(&pair, 6, 3, 4, __LINE__);
    TWILL_CHECK(move_mapping(other, away));
    swap(&pair);
    counted(&pair, 8, 8, 4, __LINE__);
    TWILL_CHECK(move_mapping(away, pair.data[0]));
    swap(&pair);
    counted(&pair, 10, 10, 4, __LINE__);
    TWILL_CHECK(munlock(pair.data[0], BYTES) == 0);
    swap(&pair);
    counted(&pair, 12, 10, 4, __LINE__);
    swap(&pair);
    counted(&pair, 12, 10, 6, __LINE__);
    rank_barrier(&pair.end);
    pair_close(&pair);
}

TWILL_TEST(test_moved)
{
    need_locks();
    twill_test_run_processes(2, rank_moved, NULL);
}

/* --- on several rails
 * ----------------------------------------------------------------------------------- */

static twill_status open_registering(struct twill_transport **transport,
                                     const struct twill_transport_params *params,
                                     struct twill_error *error)
{
    return twill_ofi_open(transport, params, &registering.options, error);
}

TWILL_TEST_OF_RANKS(test_rails, 2)
{
    struct pair pair;
    unsigned char *regions[2] = {NULL, NULL};
    struct twill_persistent persistent = {find, regions, NULL};
    struct twill_transport_ops ops = twill_ofi_transport;
    ops.open = open_registering;
    if (pair_open_on(&pair, bootstrap, &registering, &persistent, &ops)) {
        memcpy(regions, pair.data, sizeof(regions));
        swap(&pair);
        swap(&pair);
        counted(&pair, 4, 0, 4, __LINE__);
        for (unsigned i = 0; i < 2; i++)
            pair.common->forget(pair.common, pair.data[i], BYTES);
        swap(&pair);
        counted(&pair, 8, 0, 4, __LINE__);
        rank_barrier(&pair.end);
    }
    pair_close(&pair);
}

/* --- memory freed while the first communicator is created ------------------------------------ */

struct giver {
    struct twill_common *common;
    atomic_bool done;
};

static void *give_back(void *user)
{
    struct giver *giver = user;
    while (!atomic_load(&giver->done)) {
        twill_common_forget(&giver->common, giver, sizeof(*giver));
        sched_yield();
    }
    return NULL;
}

TWILL_TEST_OF_RANKS(test_early, 2)
{
    struct giver giver = {NULL, false};
    struct end end;
    pthread_t thread;
    TWILL_CHECK(pthread_create(&thread, NULL, give_back, &giver) == 0);
    if (end_open_with(&end, bootstrap, &registering, 0, &giver.common))
        rank_barrier(&end);
    atomic_store(&giver.done, true);
    pthread_join(thread, NULL);
    end_close(&end);
    if (giver.common != NULL)
        giver.common->close(giver.common);
}

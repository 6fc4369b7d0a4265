/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a node read the prices, or the choice, that one of them has posted on the board, and go
 * on without them where that rank dies or takes too long. */
#include "algorithms/algorithms.h"
#include "fabric/shm/node_board.h"
#include "lib/comm/comm.h"
#include "tests/support/unit.h"

#include <limits.h>

static const struct twill_select_request request = {.collective = TWILL_ALLREDUCE, .bytes = 4};

/* Choose with a new chooser of the communicator. Returns the status. */
static twill_status choose(struct twill_comm *comm, struct twill_choice *choice)
{
    struct twill_chooser *chooser = NULL;
    twill_status status = twill_engine_create_chooser(&chooser, &comm->engine, NULL, NULL);
    if (status == TWILL_OK)
        status = twill_select(choice, chooser, &request, NULL);
    twill_chooser_destroy(chooser);
    return status;
}

static int claims; /* of prices that rank 0 still makes */

/* Claims prices, and computes none for others. */
static enum twill_price_record claim(void *user, uint64_t key, bool wait,
                                     uint64_t words[TWILL_PRICE_WORDS])
{
    bool mine;
    if (claims-- <= 0)
        return TWILL_RECORD_NONE;
    struct twill_board_entry *entry = twill_board_find(user, key, &mine);
    TWILL_NOTE(entry != NULL && mine == !wait, "claimed twice");
    return TWILL_RECORD_NONE;
}

static void claim_some(struct twill_comm *comm)
{
    struct twill_chooser *chooser;
    struct twill_choice choice;
    const struct twill_price_records records = {.ask = claim, .user = comm->node};
    TWILL_CHECK(twill_chooser_create(&chooser, comm->world, NULL, NULL, NULL) == TWILL_OK);
    twill_chooser_share(chooser, &records);
    TWILL_CHECK(twill_select(&choice, chooser, &request, NULL) == TWILL_OK);
    twill_chooser_destroy(chooser);
}

/* Make all prices that are on the board those of algorithms that do not work here, or all choices
 * another algorithm. */
static void spoil(struct twill_node *node, uint64_t word, unsigned least, unsigned most)
{
    uint64_t words[TWILL_BOARD_WORDS] = {word};
    unsigned entries = 0;
    for (uint32_t l = 0; l < node->size; l++) {
        struct twill_board_entry *part =
            (struct twill_board_entry *)(void *)((unsigned char *)twill_node_trace(node, l) +
                                                 TWILL_NODE_BOARD_AT);
        for (unsigned i = 0; i < (4u << 10) / sizeof(*part); i++) {
            if (atomic_load(&part[i].key) == 0)
                continue;
            entries++;
            TWILL_CHECK(twill_board_state(&part[i]) == TWILL_BOARD_POSTED);
            twill_board_post(&part[i], words);
        }
    }
    TWILL_CHECK(entries >= least && entries <= most);
}

enum { READS, DIES, IS_SLOW, IS_STOPPED, READS_CHOICE };

static void run_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const int what = *(const int *)user;
    twill_comm *comm = NULL;
    struct twill_choice choice = {.algorithm = NULL};
    if (!twill_test_open(&comm, bootstrap, size == 2 ? "1x2" : "1x16", TWILL_TEST_PATIENT))
        return;
    if (what == READS && rank == 0) {
        TWILL_CHECK(choose(comm, &choice) == TWILL_OK);
        spoil(comm->node, 1, 5, UINT_MAX);
    } else if (what == READS_CHOICE) {
        if (rank == 0 && choose(comm, &choice) == TWILL_OK)
            spoil(comm->node, 3, 1, 1);
    } else if (rank == 0) {
        claims = what == IS_STOPPED ? 1 : INT_MAX;
        claim_some(comm);
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (what == DIES && rank == 0)
        _exit(0);
    if (what == IS_SLOW)
        comm->tuning.timeout_ns = UINT64_C(20000000);
    if (what == IS_STOPPED) /* rank 1 is to wait for it once more, in the call */
        comm->tuning.timeout_ns = TWILL_TEST_SOON;
    if (rank == 1) {
        uint64_t before = twill_now();
        TWILL_CHECK(choose(comm, &choice) == TWILL_OK);
        TWILL_CHECK(what != IS_STOPPED || twill_now() - before < TWILL_TEST_SOON / 2);
        TWILL_CHECK((strcmp(choice.algorithm->name, "direct") == 0) ==
                    (what != READS && what != READS_CHOICE));
        TWILL_CHECK(what != READS_CHOICE || choice.algorithm == twill_algorithm_at(2));
    }
    if (what != DIES)
        TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_test_close(comm);
}

TWILL_TEST(prices_of_others)
{
    static const struct {
        int what, ranks;
        void (*run)(int size, twill_rank_fn fn, void *user);
    } tests[] = {{READS, 2, twill_test_run_ranks},
                 {READS_CHOICE, 16, twill_test_run_ranks},
                 {DIES, 2, twill_test_run_processes},
                 {IS_SLOW, 2, twill_test_run_ranks},
                 {IS_STOPPED, 2, twill_test_run_ranks}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(tests); i++) {
        int what = tests[i].what;
        tests[i].run(tests[i].ranks, run_rank, &what);
    }
}

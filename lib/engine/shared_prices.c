/* SPDX-License-Identifier: Apache-2.0 */
/* Prices that the ranks of a node compute together: see shared_prices.h. */
#include "lib/engine/shared_prices.h"
#include "fabric/shm/node_board.h"
#include "lib/base/times.h"

_Static_assert(TWILL_PRICE_WORDS == TWILL_BOARD_WORDS, "a record of prices is an entry");

/* Return whether the rank that computes an entry has died. */
static bool has_died(struct twill_comm *comm, const struct twill_board_entry *entry)
{
    uint32_t l = atomic_load_explicit(&entry->rank, memory_order_relaxed) - 1;
    return l < comm->node->size && l != comm->node->me &&
           twill_shm_region_owner_dead(comm->node->region, comm->node->rank[l]);
}

static enum twill_price_record ask(void *user, uint64_t key, bool wait,
                                   uint64_t words[TWILL_PRICE_WORDS])
{
    struct twill_comm *comm = user;
    uint64_t patience = twill_min(TWILL_PRICE_PATIENCE_NS, comm->tuning.timeout_ns / 2), begin = 0;
    bool mine;
    struct twill_board_entry *entry = twill_board_find(comm->node, key, &mine);
    if (entry == NULL || mine)
        return mine ? TWILL_RECORD_MINE : TWILL_RECORD_NONE;
    while (twill_board_state(entry) == TWILL_BOARD_COMPUTING) {
        if (!wait)
            return TWILL_RECORD_THEIRS;
        if (begin == 0)
            begin = twill_now();
        else if (twill_now() - begin > patience || has_died(comm, entry))
            return TWILL_RECORD_NONE;
        twill_board_wait(entry, TWILL_PRICE_LOOK_NS);
    }
    if (twill_board_state(entry) == TWILL_BOARD_ABANDONED)
        return TWILL_RECORD_NONE;
    memcpy(words, entry->word, sizeof(entry->word));
    return TWILL_RECORD_THERE;
}

static void give(void *user, uint64_t key, const uint64_t words[TWILL_PRICE_WORDS])
{
    struct twill_comm *comm = user;
    bool mine;
    twill_board_post(twill_board_find(comm->node, key, &mine), words);
}

twill_status twill_comm_create_chooser(struct twill_chooser **chooser, struct twill_comm *comm,
                                       const char *requested, struct twill_error *error)
{
    TWILL_TRY(error, twill_chooser_create(chooser, comm->world, comm->context->selection.tuning,
                                          requested, error));
    twill_chooser_crowd(*chooser, comm->tuning.crowded);
    if (comm->node != NULL && comm->node->size > 1)
        twill_chooser_share(*chooser,
                            &(struct twill_price_records){
                                .ask = ask, .give = give, .user = comm, .rank = comm->node->me});
    return TWILL_OK;
}

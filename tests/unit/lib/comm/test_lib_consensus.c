/* SPDX-License-Identifier: Apache-2.0 */
/* The agreement of lib/comm/consensus.h among simulated ranks: messages are late, lost, doubled
 * and out of order, ranks die at any step (also between two messages of a broadcast) or stay silent
 * for a while. */
#include "lib/comm/consensus.h"
#include "tests/support/numbers.h"
#include "tests/support/scarce.h"
#include "tests/support/unit.h"

#define MOST_RANKS  6
#define AGREEMENTS  3
#define MOST_QUEUED 4000
#define MOST_STEPS  200000

struct queued_message {
    uint32_t from, to;
    size_t bytes;
    unsigned char *message;
};

struct simulated_rank {
    struct scene_of_ranks *scene;
    struct twill_consensus *consensus;
    uint32_t number, left; /* agreements left */
    bool dead;
    bool gone;           /* it has left without a decision, and is silent from then on */
    unsigned side;       /* of a cut network */
    unsigned sends_left; /* until it dies; 0: it does not */
    uint64_t flags[AGREEMENTS + 1];
    struct twill_decision *decision[AGREEMENTS + 1];
    bool noticed[MOST_RANKS]; /* failures that it has been notified of */
};

struct scene_of_ranks {
    uint64_t seed;
    uint32_t size;
    bool cut; /* no message passes from one side to the other */
    bool was_cut;
    unsigned loss; /* eighths of the messages */
    struct simulated_rank rank[MOST_RANKS];
    struct queued_message queue[MOST_QUEUED];
    size_t queued;
};

static uint64_t draw(struct scene_of_ranks *scene, uint64_t below)
{
    return twill_test_random(&scene->seed) % below;
}

static void send_letter(void *user, uint32_t to, const void *message, size_t bytes, bool last)
{
    struct simulated_rank *rank = user;
    struct scene_of_ranks *scene = rank->scene;
    if (rank->dead || scene->queued == MOST_QUEUED)
        return;
    struct queued_message *letter = &scene->queue[scene->queued++];
    int scarce = scarce_memory;
    scarce_memory = -1;
    *letter = (struct queued_message){rank->number, to, bytes, malloc(bytes)};
    scarce_memory = scarce;
    memcpy(letter->message, message, bytes);
    if (rank->sends_left > 0 && --rank->sends_left == 0)
        rank->dead = true;
}

static bool can_reach(const struct scene_of_ranks *scene, const struct simulated_rank *a,
                      const struct simulated_rank *b)
{
    return !scene->cut || a->side == b->side;
}

static void deliver_letter(struct scene_of_ranks *scene)
{
    if (scene->queued == 0)
        return;
    size_t which = draw(scene, scene->queued);
    struct queued_message letter = scene->queue[which];
    struct simulated_rank *to = &scene->rank[letter.to];
    bool again = draw(scene, 16) == 0, lost = draw(scene, 8) < scene->loss;
    if (!again)
        scene->queue[which] = scene->queue[--scene->queued];
    scarce_memory = 0; /* a rank without memory takes part */
    if (!lost && !to->dead && can_reach(scene, &scene->rank[letter.from], to))
        twill_consensus_receive(to->consensus, letter.from, letter.message, letter.bytes);
    assert_int_equal(scarce_memory, 0);
    scarce_memory = -1;
    if (!again)
        free(letter.message);
}

/* Enter the next agreement, or leave the present one if it is decided. */
static void step_rank(struct scene_of_ranks *scene, struct simulated_rank *rank)
{
    const struct twill_decision *decision = twill_consensus_decision(rank->consensus);
    if (rank->dead)
        return;
    if (rank->consensus->excluded ||
        (decision != NULL && twill_rank_set_has(decision->set, rank->number))) {
        rank->gone = true;
        rank->left = AGREEMENTS;
    } else if (rank->consensus->instance == rank->left && rank->left < AGREEMENTS) {
        uint64_t flags = ~(draw(scene, 2) << rank->number);
        rank->flags[rank->left + 1] = flags;
        twill_consensus_enter(rank->consensus, TWILL_AGREEING_ONLY, flags,
                              10 * rank->left + rank->number % 2, 0);
    } else if (decision != NULL && rank->consensus->instance == rank->left + 1) {
        struct twill_decision *kept = malloc(twill_decision_bytes(scene->size));
        memcpy(kept, decision, twill_decision_bytes(scene->size));
        rank->decision[++rank->left] = kept;
    } else {
        twill_consensus_tick(rank->consensus);
    }
}

/* Notify a rank of a failure, if there is one that it does not know. */
static void notice_failure(struct scene_of_ranks *scene, struct simulated_rank *rank)
{
    uint32_t r = (uint32_t)draw(scene, scene->size);
    struct simulated_rank *other = &scene->rank[r];
    bool late =
        scene->was_cut && draw(scene, 8) == 0; /* a rank that is there, but does not answer */
    bool silent = !other->dead && (late || other->gone || !can_reach(scene, rank, other));
    if (rank->dead || other == rank || rank->noticed[r] || (!other->dead && !silent))
        return;
    rank->noticed[r] = other->dead;
    twill_consensus_fail(rank->consensus, r, silent);
}

static bool is_over(const struct scene_of_ranks *scene)
{
    for (uint32_t r = 0; r < scene->size; r++)
        if (!scene->rank[r].dead && scene->rank[r].left < AGREEMENTS)
            return false;
    return true;
}

static void run_scene(struct scene_of_ranks *scene)
{
    for (size_t step = 0; step < MOST_STEPS && !is_over(scene); step++) {
        struct simulated_rank *rank = &scene->rank[draw(scene, scene->size)];
        uint64_t what = draw(scene, 64);
        if (what < 40)
            deliver_letter(scene);
        else if (what < 56)
            step_rank(scene, rank);
        else if (what < 62)
            notice_failure(scene, rank);
        else if (draw(scene, 50) == 0)
            scene->cut = false;
    }
}

static bool is_in(const struct twill_decision *decision, uint32_t rank)
{
    return twill_rank_set_has(decision->set, rank);
}

/* All that left with permission to go on left with the same decision, also those that died later;
 * and it is right: the failed ranks had failed, the others' flags are in it. */
static void check_decisions(const struct scene_of_ranks *scene, uint32_t agreement)
{
    const struct twill_decision *first = NULL;
    for (uint32_t r = 0; r < scene->size; r++) {
        const struct twill_decision *own = scene->rank[r].decision[agreement];
        /* A rank that was cut off, decided, and died has left no trace. */
        if (own == NULL || (scene->was_cut && scene->rank[r].dead))
            continue;
        first = first == NULL ? own : first;
        assert_memory_equal(own, first, twill_decision_bytes(scene->size));
        assert_true((own->flags & ~scene->rank[r].flags[agreement]) == 0 || is_in(own, r));
    }
    for (uint32_t r = 0; first != NULL && r < scene->size; r++)
        if (is_in(first, r) && !scene->was_cut)
            assert_true(scene->rank[r].dead);
    uint64_t least = 10 * (uint64_t)(agreement - 1);
    if (first != NULL) {
        assert_in_range(first->least, least, least + 1);
        assert_in_range(first->most, first->least, least + 1);
    }
}

/* Kill some ranks: at once, or at a later message. One rank at least lives. */
static void choose_deaths(struct scene_of_ranks *scene)
{
    uint64_t deaths = draw(scene, scene->size);
    for (uint64_t i = 0; i < deaths; i++)
        scene->rank[draw(scene, scene->size)].sends_left = 1 + (unsigned)draw(scene, 60);
    scene->rank[draw(scene, scene->size)].sends_left = 0;
}

static void run_seed(uint64_t seed, bool cut)
{
    struct scene_of_ranks *scene = calloc(1, sizeof(*scene));
    scene->seed = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    scene->size = 1 + (uint32_t)draw(scene, MOST_RANKS);
    scene->cut = scene->was_cut = cut;
    scene->loss = (unsigned)draw(scene, 6);
    for (uint32_t r = 0; r < scene->size; r++) {
        struct simulated_rank *rank = &scene->rank[r];
        rank->scene = scene;
        rank->number = r;
        rank->consensus = twill_consensus_open(scene->size, r, NULL, send_letter, rank);
        assert_non_null(rank->consensus);
    }
    for (uint32_t r = 0; r < scene->size; r++)
        scene->rank[r].side = (unsigned)draw(scene, 2);
    if (!cut || draw(scene, 2) == 0)
        choose_deaths(scene);
    run_scene(scene);
    for (uint32_t a = 1; a <= AGREEMENTS; a++)
        check_decisions(scene, a);
    if (!is_over(scene))
        fail_msg("seed %llu: not all survivors have left", (unsigned long long)seed);
    for (uint32_t r = 0; r < scene->size; r++) {
        twill_consensus_close(scene->rank[r].consensus);
        for (uint32_t a = 1; a <= AGREEMENTS; a++)
            free(scene->rank[r].decision[a]);
    }
    for (size_t i = 0; i < scene->queued; i++)
        free(scene->queue[i].message);
    free(scene);
}

TWILL_TEST(test_deaths)
{
    for (uint64_t seed = 0; seed < 3000; seed++)
        run_seed(seed, false);
}

TWILL_TEST(test_cut_network)
{
    for (uint64_t seed = 0; seed < 3000; seed++)
        run_seed(seed, true);
}

/* A rank that others have excluded without its knowing takes part in nothing any more. */
TWILL_TEST(test_leaving)
{
    struct scene_of_ranks *scene = calloc(1, sizeof(*scene));
    assert_non_null(scene);
    scene->size = 2;
    for (uint32_t r = 0; r < 2; r++) {
        struct simulated_rank *rank = &scene->rank[r];
        rank->scene = scene;
        rank->number = r;
        rank->consensus = twill_consensus_open(2, r, NULL, send_letter, rank);
        assert_non_null(rank->consensus);
        twill_consensus_enter(rank->consensus, TWILL_AGREEING_ONLY, 0, 0, 0);
    }
    struct twill_consensus *leaves = scene->rank[0].consensus;
    twill_consensus_leave(leaves);
    while (scene->queued > 0) /* rank 1's JOIN */
        deliver_letter(scene);
    assert_int_equal(leaves->state, TWILL_CONSENSUS_OUT);
    assert_true(is_in(twill_consensus_decision(leaves), 0));
    assert_false(is_in(twill_consensus_decision(leaves), 1));
    twill_consensus_enter(leaves, TWILL_AGREEING_ONLY, 0, 0, 0);
    assert_true(is_in(twill_consensus_decision(leaves), 0));
    twill_consensus_tick(leaves);
    assert_int_equal(scene->queued, 0);
    assert_null(twill_consensus_decision(scene->rank[1].consensus));
    for (uint32_t r = 0; r < 2; r++)
        twill_consensus_close(scene->rank[r].consensus);
    free(scene);
}

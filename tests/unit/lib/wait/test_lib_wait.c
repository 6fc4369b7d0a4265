/* SPDX-License-Identifier: Apache-2.0 */
/* The waiter alone, over waitables that follow a script: when it asks what, how an error or the
 * deadline ends it, when it yields and sleeps, and that no ring of a doorbell is missed. */
#include "fabric/shm/node_memory.h"
#include "lib/engine/spread_ranks.h"
#include "lib/wait/wait.h"
#include "tests/support/unit.h"

#define CHECK_POLLS 4096u /* in vain, before a wait that spins looks whether it can still end */
#define LOOKS       8u

/* A waitable that moves `steps` times, each after `still` polls in vain, and is done then. */
struct scripted {
    unsigned steps, still;
    int fails;                      /* what a poll returns instead of the last step */
    unsigned gives_up;              /* look that finds that it cannot end; 0: none */
    struct twill_doorbell_line *at; /* of the waiter: only polls while it is armed count */
    /* What the waiter has called, and seen in its state. */
    unsigned polls, vain, moves, idles, looks, ends, polls_at_look[LOOKS], yields[LOOKS];
    uint64_t sleep_ns[LOOKS];
    bool moved_at_end;
};

static int scripted_advance(void *of)
{
    struct scripted *s = of;
    s->polls++;
    if (s->steps == 0 || (s->at != NULL && atomic_load(&s->at->sleeping) == 0))
        return 0;
    if (s->vain++ < s->still)
        return 0;
    s->vain = 0;
    return --s->steps == 0 && s->fails != 0 ? s->fails : 1;
}

static bool scripted_done(const void *of)
{
    return ((const struct scripted *)of)->steps == 0;
}

static twill_status scripted_look(void *of, struct twill_waiting *state)
{
    struct scripted *s = of;
    if (s->looks < LOOKS) {
        s->polls_at_look[s->looks] = s->polls;
        s->yields[s->looks] = state->yields;
        s->sleep_ns[s->looks] = state->sleep_ns;
    }
    return ++s->looks == s->gives_up ? TWILL_ERR_PEER : TWILL_OK;
}

static void scripted_idle(void *of, struct twill_waiting *state)
{
    ((struct scripted *)of)->idles++;
}

static void scripted_moved(void *of, struct twill_waiting *state)
{
    ((struct scripted *)of)->moves++;
}

static void scripted_ended(void *of, struct twill_waiting *state, bool moved)
{
    struct scripted *s = of;
    s->ends++;
    s->moved_at_end = moved;
}

static twill_status await_scripted(struct scripted *s, struct twill_pace pace, uint64_t deadline,
                                   struct twill_node *doorbell)
{
    const struct twill_waitable waitable = {scripted_advance,
                                            scripted_done,
                                            scripted_look,
                                            scripted_idle,
                                            scripted_moved,
                                            scripted_ended,
                                            s,
                                            s,
                                            doorbell};
    return twill_await(&waitable, &pace, deadline);
}

static const struct twill_pace spinning = {.spins = UINT32_MAX, .yields = TWILL_NEVER};

TWILL_TEST(what_is_done_is_polled_once)
{
    struct scripted done = {.steps = 0}, by_the_poll = {.steps = 1};
    assert_int_equal(await_scripted(&done, spinning, 1, NULL), TWILL_OK); /* the deadline is past */
    assert_int_equal(done.polls, 1);
    assert_int_equal(done.ends, 1);
    assert_false(done.moved_at_end);
    assert_int_equal(await_scripted(&by_the_poll, spinning, 1, NULL), TWILL_OK);
    assert_int_equal(by_the_poll.ends, 1);
    assert_true(by_the_poll.moved_at_end);
    assert_int_equal(done.idles + done.moves + done.looks, 0);
    assert_int_equal(by_the_poll.idles + by_the_poll.moves + by_the_poll.looks, 0);
}

/* While it spins it looks once in 4096 polls in vain; a step starts the count again. */
TWILL_TEST(looks_come_after_polls_in_vain)
{
    struct scripted s = {.steps = 3, .still = CHECK_POLLS - 1};
    assert_int_equal(await_scripted(&s, spinning, UINT64_MAX, NULL), TWILL_OK);
    assert_int_equal(s.looks, 0);
    assert_int_equal(s.moves, 2); /* the third one ends it */
    assert_int_equal(s.idles, 3 * (CHECK_POLLS - 1));
    s = (struct scripted){.steps = 1, .still = 2 * CHECK_POLLS};
    assert_int_equal(await_scripted(&s, spinning, UINT64_MAX, NULL), TWILL_OK);
    assert_int_equal(s.looks, 2);
    assert_int_equal(s.polls_at_look[0], CHECK_POLLS);
    assert_int_equal(s.polls_at_look[1], 2 * CHECK_POLLS);
}

TWILL_TEST(errors_and_the_deadline_end_it)
{
    struct scripted poll = {.steps = 3, .fails = TWILL_ERR_FABRIC},
                    look = {.steps = 1, .still = UINT32_MAX, .gives_up = 2}, late = look,
                    past = {.steps = 1, .still = UINT32_MAX};
    assert_int_equal(await_scripted(&poll, spinning, UINT64_MAX, NULL), TWILL_ERR_FABRIC);
    assert_int_equal(poll.moves, 2);
    assert_int_equal(await_scripted(&look, spinning, UINT64_MAX, NULL), TWILL_ERR_PEER);
    assert_int_equal(look.looks, 2);
    late.gives_up = 1; /* what the look found is told, rather than the deadline */
    assert_int_equal(await_scripted(&late, spinning, 1, NULL), TWILL_ERR_PEER);
    assert_int_equal(await_scripted(&past, spinning, 1, NULL), TWILL_ERR_TIMEOUT);
    assert_int_equal(past.looks, 1);
    assert_int_equal(poll.ends + look.ends + late.ends + past.ends, 0);
}

/* Some spins, then yields, then sleeps that grow: the state as the look before each has it. */
TWILL_TEST(it_spins_yields_and_sleeps)
{
    const struct twill_pace pace = {.spins = 5, .yields = 2, .least_ns = 1000, .most_ns = 4000};
    const unsigned yields[] = {0, 1, 2, 2, 2, 2};
    const uint64_t sleeps[] = {1000, 1000, 1000, 2000, 4000, 4000};
    struct scripted s = {.steps = 1, .still = UINT32_MAX, .gives_up = 6};
    assert_int_equal(await_scripted(&s, pace, UINT64_MAX, NULL), TWILL_ERR_PEER);
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(yields); i++) {
        assert_int_equal(s.polls_at_look[i], 6 + i);
        assert_int_equal(s.yields[i], yields[i]);
        assert_int_equal(s.sleep_ns[i], sleeps[i]);
    }
    /* A step: it spins, yields and sleeps from the beginning. */
    s = (struct scripted){.steps = 2, .still = 10, .gives_up = 6};
    assert_int_equal(await_scripted(&s, pace, UINT64_MAX, NULL), TWILL_ERR_PEER);
    assert_int_equal(s.moves, 1);
    assert_int_equal(s.polls_at_look[4], 10);
    assert_int_equal(s.polls_at_look[5], 11 + 6);
    assert_int_equal(s.yields[5], 0);
    assert_int_equal(s.sleep_ns[5], 1000);
}

/* If yields may not reach ranks that share cores, and are in vain, it sleeps at once, and yields
 * now and then. */
TWILL_TEST(it_sleeps_if_yields_are_in_vain)
{
    struct twill_pace pace = {.yields = 200, .least_ns = 1000, .most_ns = 4000, .vain = 64};
    struct scripted s = {.steps = 1, .still = UINT32_MAX, .gives_up = 4};
    assert_int_equal(await_scripted(&s, pace, UINT64_MAX, NULL), TWILL_ERR_PEER);
    assert_int_equal(s.yields[3], 3);
    pace.crowded = true; /* alone, this tells nothing of yields */
    s = (struct scripted){.steps = 1, .still = UINT32_MAX, .gives_up = 4};
    assert_int_equal(await_scripted(&s, pace, UINT64_MAX, NULL), TWILL_ERR_PEER);
    assert_int_equal(s.yields[3], 3);
    pace.apart = true;
    s = (struct scripted){.steps = 1, .still = UINT32_MAX, .gives_up = 4};
    assert_int_equal(await_scripted(&s, pace, UINT64_MAX, NULL), TWILL_ERR_PEER);
    assert_int_equal(s.yields[3], 0);
    assert_int_equal(s.sleep_ns[3], 4000);
    pace.vain = 95; /* the 32nd sleep after the last yield is due */
    s = (struct scripted){.steps = 1, .still = UINT32_MAX, .gives_up = 4};
    assert_int_equal(await_scripted(&s, pace, UINT64_MAX, NULL), TWILL_ERR_PEER);
    assert_int_equal(s.yields[3], 1);
}

/* Once each yield shows that another job has the core, it sleeps and yields now and then. Ranks
 * that share cores do so after several such yields, and yield more often. */
TWILL_TEST(it_sleeps_if_another_job_has_the_core)
{
    struct twill_cpu_share share = {0};
    struct twill_pace pace = {.yields = 200, .least_ns = 1000, .most_ns = 4000, .learns = true};
    struct scripted s = {.steps = 1, .still = UINT32_MAX, .gives_up = 8}, shared = s;
    pace.alone = pace.passed = pace.lost = 1;
    pace.share = &share;
    assert_int_equal(await_scripted(&s, pace, UINT64_MAX, NULL), TWILL_ERR_PEER);
    assert_int_equal(s.yields[7], 1);
    pace.crowded = true;
    assert_int_equal(await_scripted(&shared, pace, UINT64_MAX, NULL), TWILL_ERR_PEER);
    assert_int_equal(shared.yields[4], 4);
    assert_int_equal(shared.yields[7], 4);
    pace.late = 24;
    shared = (struct scripted){.steps = 1, .still = UINT32_MAX, .gives_up = 8};
    assert_int_equal(await_scripted(&shared, pace, UINT64_MAX, NULL), TWILL_ERR_PEER);
    assert_int_equal(shared.yields[7], 2);
}

/* --- doorbells -------------------------------------------------------------------------------- */

/* A sleep that only a ring ends. */
static const struct twill_pace sleeping = {.least_ns = 2 * TWILL_TEST_PATIENCE,
                                           .most_ns = 2 * TWILL_TEST_PATIENCE};

static struct twill_node *node_alone(struct twill_node_area *area)
{
    static struct twill_node node;
    static struct twill_node_area *areas[1];
    areas[0] = area;
    node = (struct twill_node){.size = 1, .area = areas};
    return &node;
}

/* What comes after the doorbell is armed and before it sleeps is found by the last poll. */
TWILL_TEST(the_last_poll_sees_what_has_come)
{
    static struct twill_node_area area;
    struct scripted s = {.steps = 1, .at = &area.doorbell};
    assert_int_equal(await_scripted(&s, sleeping, UINT64_MAX, node_alone(&area)), TWILL_OK);
    assert_int_equal(s.moves, 1);
    s = (struct scripted){.steps = 1, .fails = TWILL_ERR_FABRIC, .at = &area.doorbell};
    assert_int_equal(await_scripted(&s, sleeping, UINT64_MAX, node_alone(&area)), TWILL_ERR_FABRIC);
    assert_int_equal(atomic_load(&area.doorbell.sleeping), 0);
}

static bool flag_is_set(const void *flag)
{
    return atomic_load((const atomic_bool *)flag);
}

struct ringer {
    struct twill_node *node;
    atomic_bool flag;
};

static void *ring(void *user)
{
    struct ringer *ringer = user;
    while (atomic_load(&ringer->node->area[0]->doorbell.sleeping) == 0)
        usleep(100);
    atomic_store(&ringer->flag, true);
    twill_node_ring_doorbell(ringer->node, 0);
    twill_node_ring_doorbell(ringer->node, 0); /* finds that it has been rung */
    return NULL;
}

TWILL_TEST(a_ring_wakes_it)
{
    static struct twill_node_area area;
    struct ringer ringer = {.node = node_alone(&area)};
    const struct twill_waitable waitable = {
        .done = flag_is_set, .awaited = &ringer.flag, .doorbell = ringer.node};
    struct twill_pace pace = sleeping;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ring, &ringer), 0);
    uint64_t deadline = twill_now() + TWILL_TEST_PATIENCE;
    assert_int_equal(twill_await(&waitable, &pace, deadline), TWILL_OK);
    assert_true(twill_now() < deadline);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&area.doorbell.rings), 1);
}

/* --- several at a time, and threads ----------------------------------------------------------- */

#define SEVERAL 3u

static int advance_several(void *of)
{
    int moved = 0;
    for (unsigned i = 0; i < SEVERAL && moved >= 0; i++) {
        int more = scripted_advance((struct scripted *)of + i);
        moved = more < 0 ? more : moved + more;
    }
    return moved;
}

static bool several_are_done(const void *of)
{
    for (unsigned i = 0; i < SEVERAL; i++)
        if (!scripted_done((const struct scripted *)of + i))
            return false;
    return true;
}

TWILL_TEST(several_are_awaited_at_a_time)
{
    struct scripted all[SEVERAL] = {{.steps = 2, .still = 9}, {.steps = 0}, {.steps = 5}};
    const struct twill_waitable waitable = {
        .advance = advance_several, .done = several_are_done, .of = all, .awaited = all};
    struct twill_pace pace = spinning;
    assert_int_equal(twill_await(&waitable, &pace, UINT64_MAX), TWILL_OK);
    for (unsigned i = 0; i < SEVERAL; i++)
        assert_int_equal(all[i].polls, 20); /* the slowest one's, twice ten */
    all[0] = (struct scripted){.steps = 1, .still = UINT32_MAX};
    all[2] = (struct scripted){.steps = 1, .still = 7, .fails = TWILL_ERR_SYSTEM};
    assert_int_equal(twill_await(&waitable, &pace, UINT64_MAX), TWILL_ERR_SYSTEM);
}

static void *set_flag(void *flag)
{
    usleep(1000);
    atomic_store((atomic_bool *)flag, true);
    return NULL;
}

TWILL_TEST(threads_are_awaited)
{
    atomic_bool flag = false;
    pthread_t thread;
    assert_false(twill_wait_for_thread(flag_is_set, &flag, twill_now()));
    assert_int_equal(pthread_create(&thread, NULL, set_flag, &flag), 0);
    assert_true(twill_wait_for_thread(flag_is_set, &flag, twill_now() + TWILL_TEST_PATIENCE));
    pthread_join(thread, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: spin for a bounded time, then give the core away, then sleep until somebody rings; and
 * meanwhile look, ever so often, whether what is waited for can still come.
 *
 * How long to spin is learnt from what giving the core away costs, unless TWILL_SPIN says it. Where
 * nobody else wants the core that is a system call, and spinning is quicker. Where another rank
 * that waits, too, has it in between, it comes back soon: then who is waited for may be the very
 * one that wants the core, and every poll delays it. Where it does not come back for long, some
 * other job has it: spinning is better again, and sleeping is better than giving the core away. The
 * kernel lets a thread that is woken run soon, but who only yields waits until all others have had
 * their turn, which costs milliseconds for each message between ranks that are bound. */
#include "lib/exec/progress.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#define POLLS_PER_CHECK    4096u /* however long TWILL_SPIN lets it spin */
#define TESTS_PER_CHECK    64u
#define YIELDS             200u             /* before sleeping */
#define SLEEPS_PER_YIELD   32u              /* where the core was gone for long: look again */
#define YIELD_ALONE_NS     UINT64_C(700)    /* a system call; somebody else: twice a switch */
#define YIELD_LOST_NS      UINT64_C(200000) /* who had the core did not wait */
#define TICKS_COUNTED_NS   UINT64_C(1000000)
#define SLEEP_LEAST_NS     UINT64_C(50000) /* a lost ring costs no more than a sleep */
#define SLEEP_MOST_NS      UINT64_C(2000000)
#define SLEEP_POLLED_NS    UINT64_C(100000)  /* when a network must be polled */
#define IDLE_AFTER_NS      UINT64_C(20000)   /* before the caller's own function is called */
#define CHECK_FIRST_NS     UINT64_C(2000000) /* for other ranks' failures and mismatches */
#define CHECK_EVERY_NS     UINT64_C(20000000)
#define LIVENESS_EVERY_NS  UINT64_C(200000000)  /* costs a system call a peer */
#define REPORT_EVERY_NS    UINT64_C(1000000000) /* to ranks of other nodes that are waited for */
#define MOST_RANKS_CHECKED 16u
#define LEAVE_NS           UINT64_C(100000000) /* where a rank was waited for in vain before */
#define GRACE_NS           UINT64_C(10000000)  /* where it was the same one all along */

/* The last collective that has ended here; the communicator is an open one, which may be another
 * thread's. */
static uint64_t last_ended(const struct twill_comm *comm)
{
    return atomic_load_explicit(&comm->node->area[comm->local]->call.left, memory_order_relaxed);
}

static void note_vain(struct twill_comm *comm, uint64_t since, const uint32_t *ranks, unsigned n)
{
    struct twill_vain *vain = &comm->context->vain;
    comm->stood_since = since;
    twill_context_lock(comm->context);
    vain->at = twill_now();
    vain->count = 0;
    for (unsigned i = 0; i < n && i < TWILL_ARRAY_LENGTH(vain->job); i++)
        vain->job[vain->count++] = comm->job[twill_comm_missing(comm, ranks[i])];
    for (size_t i = 0; i < comm->context->opened; i++)
        comm->context->open[i]->ended_at_vain = last_ended(comm->context->open[i]);
    twill_context_unlock(comm->context);
}

static bool has_vain(const struct twill_comm *comm)
{
    const struct twill_vain *vain = &comm->context->vain;
    for (uint32_t r = 0; r < comm->world->size; r++)
        for (unsigned i = 0; i < vain->count; i++)
            if (comm->job[r] == vain->job[i])
                return true;
    return false;
}

/* Has any of those ranks taken part in something since? A collective has ended, or a communicator
 * been made. */
static bool is_back(const struct twill_context *context)
{
    for (size_t i = 0; i < context->opened; i++)
        if (last_ended(context->open[i]) != context->open[i]->ended_at_vain &&
            has_vain(context->open[i]))
            return true;
    return false;
}

void twill_context_forget_vain(struct twill_context *context)
{
    twill_context_lock(context);
    if (context->vain.at != 0 && is_back(context))
        context->vain.at = 0;
    twill_context_unlock(context);
}

void twill_comm_hasten(struct twill_comm *comm)
{
    const struct twill_vain *vain = &comm->context->vain;
    twill_context_forget_vain(comm->context);
    twill_context_lock(comm->context);
    bool in_vain = vain->at != 0 && twill_now() - vain->at < comm->timeout_ns && has_vain(comm);
    twill_context_unlock(comm->context);
    if (in_vain)
        comm->timeout_ns = twill_min(comm->timeout_ns, LEAVE_NS);
}

static twill_status time_out(struct twill_comm *comm, uint64_t since)
{
    uint32_t ranks[MOST_RANKS_CHECKED];
    const char *step = "message";
    unsigned n = twill_comm_waits_for(comm, ranks, MOST_RANKS_CHECKED, &step);
    note_vain(comm, since, ranks, n);
    char list[160] = "", doing[200] = "";
    size_t used = 0;
    char text[TWILL_RANK_TEXT];
    for (unsigned i = 0; i < n && used < sizeof(list); i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "",
                                 twill_comm_rank_text(comm, ranks[i], text) + strlen("rank "));
    uint32_t missing = n > 0 ? twill_comm_missing(comm, ranks[0]) : comm->rank;
    if (n > 0 && missing != ranks[0])
        used = (size_t)snprintf(doing, sizeof(doing), ", which waits for %s",
                                twill_comm_rank_text(comm, missing, text));
    else
        used = 0;
    if (n > 0 && comm->world->node[missing] == comm->world->node[comm->rank]) {
        used += (size_t)snprintf(doing + used, sizeof(doing) - used, "; %s ",
                                 twill_comm_rank_text(comm, missing, text));
        twill_comm_describe_peer(comm, missing, doing + used, sizeof(doing) - used);
    }
    return TWILL_COMM_FAIL(
        comm, TWILL_ERR_TIMEOUT, "no %s of rank %s within %.1f s (TWILL_TIMEOUT)%s", step,
        n > 0 ? list : "?", (double)comm->context->config.number[TWILL_VARIABLE_TIMEOUT] * 1e-9,
        doing);
}

/* Will those we wait for come at all? Who is found dead gets another look, because it may have done
 * its part between our last poll and its end. */
static twill_status check_awaited(struct twill_comm *comm, struct twill_waiting *state,
                                  bool liveness, bool report)
{
    uint32_t ranks[MOST_RANKS_CHECKED];
    const char *step;
    char text[TWILL_DEATH_TEXT];
    TWILL_TRY(&comm->error, twill_comm_poll_failures(comm, false));
    unsigned n = twill_comm_waits_for(comm, ranks, MOST_RANKS_CHECKED, &step);
    uint32_t suspect = UINT32_MAX;
    if (report)
        twill_comm_report(comm, ranks, n);
    for (unsigned i = 0; i < n; i++) {
        if (ranks[i] == comm->rank)
            continue;
        if (comm->world->node[ranks[i]] == comm->world->node[comm->rank])
            TWILL_TRY(&comm->error, twill_comm_check_peer(comm, ranks[i]));
        if (!liveness || !twill_comm_is_dead(comm, ranks[i]))
            continue;
        if (ranks[i] == state->suspect)
            return TWILL_COMM_FAIL(comm, TWILL_ERR_PEER, "%s",
                                   twill_comm_death_text(comm, ranks[i], text));
        suspect = ranks[i];
    }
    if (liveness)
        state->suspect = suspect;
    return TWILL_OK;
}

/* Everything of this communicator; when nothing moves, that of the others too. */
static int advance_comms(struct twill_comm *comm)
{
    int moved = twill_comm_advance(comm);
    if (moved == 0)
        (void)twill_context_advance_others(comm);
    return moved;
}

static bool others_pend(const struct twill_comm *comm)
{
    return atomic_load_explicit(&comm->context->pending, memory_order_relaxed) !=
           atomic_load_explicit(&comm->pending, memory_order_relaxed);
}

/* Give the core away, and learn from how long it was gone. The ticks of the bounds are found when
 * there has been time to count them in. */
static void yield(struct twill_comm *comm)
{
    uint64_t before = twill_ticks();
    sched_yield();
    uint64_t ticks = twill_ticks() - before;
    if (!comm->learns)
        return;
    if (comm->yield_alone == 0) {
        uint64_t ns = twill_now() - comm->ns_at_start, all = twill_ticks() - comm->ticks_at_start;
        if (ns < TICKS_COUNTED_NS)
            return;
        double rate = (double)all / (double)ns;
        comm->yield_alone = (uint64_t)(rate * (double)YIELD_ALONE_NS) + 1;
        comm->yield_lost = (uint64_t)(rate * (double)YIELD_LOST_NS) + 1;
    }
    comm->contended = ticks >= comm->yield_lost;
    if (ticks > comm->yield_alone && ticks < comm->yield_lost)
        comm->spin = comm->spin / 2 > TWILL_SPIN_SHARED ? comm->spin / 2 : TWILL_SPIN_SHARED;
    else if (comm->spin < TWILL_SPIN_ALONE)
        comm->spin += comm->spin / 4 + 1;
}

/* Let others run. The bell is armed before a last poll, so that no ring is missed. */
static int back_off(struct twill_comm *comm, struct twill_waiting *state,
                    bool (*done)(const void *of), const void *of)
{
    bool sleeps = comm->contended > 0 && comm->contended++ % SLEEPS_PER_YIELD != 0;
    if (state->yields < YIELDS && !sleeps) {
        state->yields++;
        yield(comm);
        return 0;
    }
    uint32_t word = twill_node_sleep_begin(comm->node);
    int moved = advance_comms(comm);
    if (moved == 0 && !done(of)) {
        bool polled =
            twill_comm_is_polled(comm) || others_pend(comm) || comm->context->idle != NULL;
        twill_node_sleep(comm->node, word, polled ? SLEEP_POLLED_NS : state->sleep_ns);
        if (state->sleep_ns < SLEEP_MOST_NS)
            state->sleep_ns *= 2;
    }
    twill_node_sleep_end(comm->node);
    return moved;
}

/* Nothing has moved up to now: since when? Movement makes a deadline one's own again. */
static uint64_t began(const struct twill_comm *comm, uint64_t now)
{
    uint64_t grace = twill_min(GRACE_NS, comm->timeout_ns), left = comm->timeout_ns - grace;
    if (comm->stands_since == 0)
        return now;
    uint64_t since = twill_max(comm->stands_since, comm->moved_at);
    return now > left ? twill_max(since, now - left) : since;
}

/* Nothing has moved: look around, ever so often. */
static twill_status check_stall(struct twill_comm *comm, struct twill_waiting *state)
{
    uint64_t now = twill_now();
    uint64_t report_every = twill_min(REPORT_EVERY_NS, comm->timeout_ns / 4);
    if (state->started == 0) {
        state->started = began(comm, now);
        state->next_check = now + CHECK_FIRST_NS;
        state->next_liveness = now + LIVENESS_EVERY_NS;
        state->next_report = now + report_every;
    }
    state->checked_at = now;
    TWILL_TRY(&comm->error, twill_comm_torn(comm));
    if (now >= state->next_check) {
        bool liveness = now >= state->next_liveness || state->suspect != UINT32_MAX;
        bool report = now >= state->next_report;
        TWILL_TRY(&comm->error, check_awaited(comm, state, liveness, report));
        if (report)
            state->next_report = now + report_every;
        state->next_check = now + CHECK_EVERY_NS;
        if (liveness)
            state->next_liveness = now + LIVENESS_EVERY_NS;
    }
    if (now - state->started > comm->timeout_ns)
        return time_out(comm, state->started);
    return TWILL_OK;
}

/* What else the caller wants to go on. Never in the middle of what moves. */
static void call_idle(const struct twill_comm *comm, const struct twill_waiting *state)
{
    const struct twill_context *context = comm->context;
    if (context->idle != NULL && state->checked_at - state->started >= IDLE_AFTER_NS)
        context->idle(context->idle_user);
}

static void start_over(struct twill_waiting *state)
{
    *state = (struct twill_waiting){.sleep_ns = SLEEP_LEAST_NS, .suspect = UINT32_MAX};
}

/* The deadline is for standing still. */
static void moved_on(struct twill_comm *comm, struct twill_waiting *state)
{
    start_over(state);
    comm->stands_since = 0;
}

twill_status twill_comm_wait(struct twill_comm *comm, bool (*done)(const void *of), const void *of)
{
    struct twill_waiting state;
    uint32_t idle = 0;
    start_over(&state);
    for (;;) {
        int moved = advance_comms(comm);
        if (TWILL_UNLIKELY(moved < 0))
            return (twill_status)moved;
        if (done(of)) {
            /* Who never has to wait here must move the others along all the same. */
            if (moved > 0)
                (void)twill_context_advance_others(comm);
            return TWILL_OK;
        }
        if (moved > 0) {
            idle = 0;
            moved_on(comm, &state);
            continue;
        }
        bool backs_off = idle >= comm->spin;
        twill_pause();
        if (!backs_off && ++idle % POLLS_PER_CHECK != 0)
            continue;
        moved = check_stall(comm, &state);
        call_idle(comm, &state);
        if (moved == TWILL_OK && backs_off)
            moved = back_off(comm, &state, done, of);
        if (TWILL_UNLIKELY(moved < 0))
            return (twill_status)moved;
        if (moved > 0) /* also where all is done between rests */
            moved_on(comm, &state);
    }
}

twill_status twill_comm_progress(struct twill_comm *comm)
{
    struct twill_waiting *state = &comm->standing;
    int moved = advance_comms(comm);
    if (moved > 0)
        moved_on(comm, state);
    else if (moved == 0 && ++state->polls % TESTS_PER_CHECK == 0)
        moved = check_stall(comm, state);
    if (TWILL_LIKELY(moved >= 0))
        return TWILL_OK;
    moved_on(comm, state);
    return twill_comm_fail(comm, (twill_status)moved);
}

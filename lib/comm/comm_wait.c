/* SPDX-License-Identifier: Apache-2.0 */
/* The waits of calls on a communicator, and what they check. The loop is twill_await(). */
#include "fabric/shm/call_records.h"
#include "lib/base/times.h"
#include "lib/comm/comm_internal.h"
#include "lib/engine/trace_calls.h"
#include "lib/job/context.h"

#include <stdio.h>
#include <string.h>

#define TESTS_PER_CHECK 64u
#define TEST_PASSES     8u /* of a test, as long as data moves */

/* Return the number of the last collective that ended here. Another thread may be using `comm`. */
static uint64_t last_ended(const struct twill_comm *comm)
{
    return twill_node_left_call(comm->node, comm->local);
}

/* Record in the communicator and its context that a wait for ranks[0 .. n-1] since `since` has
 * timed out because of rank `missing`. */
static void note_timeout(struct twill_comm *comm, uint64_t since, const uint32_t *ranks, unsigned n,
                         uint32_t missing)
{
    struct twill_timed_out *timed_out = &comm->context->health.timed_out;
    comm->waits.timed_out_since = since;
    twill_context_lock(comm->context);
    timed_out->at = twill_now();
    timed_out->count = 0;
    if (missing != comm->rank)
        timed_out->job[timed_out->count++] = comm->job[missing];
    for (unsigned i = 0; i < n && timed_out->count < TWILL_ARRAY_LENGTH(timed_out->job); i++)
        timed_out->job[timed_out->count++] = comm->job[twill_comm_missing(comm, ranks[i])];
    for (size_t i = 0; i < comm->context->comms.opened; i++)
        comm->context->comms.open[i]->waits.ended_at_timeout =
            last_ended(comm->context->comms.open[i]);
    twill_context_unlock(comm->context);
}

/* Find the first rank of the context's last timeout that this communicator contains, and set *rank
 * to its rank here. Returns its index in timed_out.job (0 is the cause), or -1 if there is none.
 * The context is locked. */
static int find_timed_out(const struct twill_comm *comm, uint32_t *rank)
{
    const struct twill_timed_out *timed_out = &comm->context->health.timed_out;
    for (unsigned i = 0; i < timed_out->count; i++) {
        *rank = twill_comm_rank_of(comm, timed_out->job[i]);
        if (*rank != UINT32_MAX)
            return (int)i;
    }
    return -1;
}

/* Return whether the communicator contains a rank that was recorded at the context's last timeout,
 * as its cause or as one that was waited for. The context is locked. */
static bool has_timed_out_rank(const struct twill_comm *comm)
{
    uint32_t rank;
    return find_timed_out(comm, &rank) >= 0;
}

/* Return whether a communicator that contains a rank of the last timeout has completed a
 * collective, or has been made, since that timeout. The context is locked. */
static bool is_back(const struct twill_context *context)
{
    for (size_t i = 0; i < context->comms.opened; i++)
        if (last_ended(context->comms.open[i]) != context->comms.open[i]->waits.ended_at_timeout &&
            has_timed_out_rank(context->comms.open[i]))
            return true;
    return false;
}

void twill_context_forget_timeout(struct twill_context *context)
{
    twill_context_lock(context);
    if (context->health.timed_out.at != 0 && is_back(context))
        context->health.timed_out.at = 0;
    twill_context_unlock(context);
}

/* Return the rank here that has caused a timeout on another communicator after `since` (a
 * twill_now()), or UINT32_MAX. This saves many calls with one deadline from all asking. */
static uint32_t known_cause(const struct twill_comm *comm, uint64_t since)
{
    uint32_t rank;
    twill_context_forget_timeout(comm->context);
    twill_context_lock(comm->context);
    bool known = comm->context->health.timed_out.at > since && find_timed_out(comm, &rank) == 0 &&
                 rank != comm->rank;
    twill_context_unlock(comm->context);
    return known ? rank : UINT32_MAX;
}

void twill_comm_shorten_deadline(struct twill_comm *comm)
{
    const struct twill_timed_out *timed_out = &comm->context->health.timed_out;
    twill_context_forget_timeout(comm->context);
    twill_context_lock(comm->context);
    bool has_timed_out = timed_out->at != 0 &&
                         twill_now() - timed_out->at < comm->tuning.timeout_ns &&
                         has_timed_out_rank(comm);
    twill_context_unlock(comm->context);
    if (has_timed_out)
        comm->tuning.timeout_ns = twill_min(comm->tuning.timeout_ns, TWILL_LEAVE_NS);
}

twill_status twill_comm_time_out(struct twill_comm *comm, uint64_t since)
{
    uint32_t ranks[TWILL_AWAITED_MOST];
    const char *step = "message";
    char place[200] = "";
    unsigned n = twill_engine_waits_for(&comm->engine, ranks, TWILL_AWAITED_MOST, &step);
    uint32_t missing = n > 0 ? twill_comm_missing(comm, ranks[0]) : comm->rank;
    twill_status status = twill_comm_compare_early(comm, true);
    uint32_t known = n > 0 ? known_cause(comm, since) : UINT32_MAX;
    if (known != UINT32_MAX)
        missing = known;
    else if (status == TWILL_OK && n > 0 && comm->tuning.timeout_ns > TWILL_LEAVE_NS)
        status = twill_comm_find_cause(comm, ranks, n, &missing, place, sizeof(place));
    if (status == TWILL_OK) /* the transports may have received more meanwhile */
        status = twill_comm_compare_early(comm, true);
    note_timeout(comm, since, ranks, n, missing);
    if (status != TWILL_OK)
        return status;
    char list[160] = "", doing[300] = "", connection[160];
    size_t used = 0;
    for (unsigned i = 0; i < n && used < sizeof(list); i++)
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "",
                                 TWILL_ENGINE_RANK_NAME(&comm->engine, ranks[i]) + strlen("rank "));
    bool awaited = n == 0;
    for (unsigned i = 0; i < n; i++)
        awaited = awaited || ranks[i] == missing;
    if (!awaited)
        used = (size_t)snprintf(doing, sizeof(doing), ", which waits for %s",
                                TWILL_ENGINE_RANK_NAME(&comm->engine, missing));
    else
        used = 0;
    if (n > 0 && comm->world->node[missing] == comm->world->node[comm->rank])
        twill_comm_describe_peer(comm, missing, place, sizeof(place));
    if (place[0] != '\0')
        snprintf(doing + used, sizeof(doing) - used, "; %s %s",
                 TWILL_ENGINE_RANK_NAME(&comm->engine, missing), place);
    const char *way = twill_comm_describe_way(comm, ranks, n, "; ", connection, sizeof(connection));
    return TWILL_COMM_FAIL(comm, TWILL_ERR_TIMEOUT, "no %s of rank %s within %.1f s (%s)%s%s", step,
                           n > 0 ? list : "?", (double)comm->tuning.timeout_ns * 1e-9,
                           twill_comm_timeout_name(comm), doing, way);
}

/* Record in the event ring that this wait has begun. If a wait for another rank is recorded, first
 * end that. Do nothing if a wait for `rank` is recorded. */
static void record_wait(struct twill_comm *comm, struct twill_waiting *state, uint32_t rank)
{
    uint64_t ns = 0;
    if (state->recorded == rank + 1)
        return;
    if (state->recorded != 0)
        twill_trace_wait_end(&comm->engine);
    else if (state->started != 0)
        ns = twill_now() - state->started;
    state->recorded = rank + 1;
    twill_trace_wait_begin(&comm->engine, rank, ns);
}

twill_status twill_comm_look_for_death(struct twill_comm *comm, const uint32_t *ranks, unsigned n,
                                       bool distant, uint64_t quiet, bool *doubt)
{
    char text[TWILL_DEATH_TEXT];
    *doubt = false;
    for (unsigned i = 0; i < n; i++) {
        bool near = comm->world->node[ranks[i]] == comm->world->node[comm->rank], in_doubt;
        if (ranks[i] == comm->rank || (!near && !distant))
            continue;
        if (twill_comm_is_surely_dead(comm, ranks[i], quiet, &in_doubt)) {
            (void)TWILL_COMM_FAIL(comm, TWILL_ERR_PEER, "%s",
                                  twill_comm_death_text(comm, ranks[i], text));
            comm->error.rank = ranks[i];
            return TWILL_ERR_PEER;
        }
        *doubt = *doubt || in_doubt;
    }
    return TWILL_OK;
}

/* Return TWILL_ERR_SYSTEM if a connection from one of the `n` awaited ranks[] is missing for lack
 * of a descriptor in this process. That is checked only for a transport that does not report it
 * itself (hides_shortage). Otherwise return TWILL_OK. */
static twill_status check_shortage(struct twill_comm *comm, const uint32_t *ranks, unsigned n)
{
    char connection[160];
    for (unsigned i = 0; i < n; i++) {
        const char *shortage = "";
        if (*twill_comm_describe_way(comm, &ranks[i], 1, "; ", connection, sizeof(connection)) !=
                '\0' &&
            twill_engine_link(&comm->engine, ranks[i])->ops->hides_shortage)
            shortage = twill_shortage_text();
        if (*shortage != '\0')
            return TWILL_COMM_FAIL(comm, TWILL_ERR_SYSTEM,
                                   "this process can make no connection%s%s", shortage, connection);
    }
    return TWILL_OK;
}

/* Return TWILL_OK, or the error if any rank has failed, or an awaited one has died or is in another
 * call. Awaited ranks of this node are checked each time by a system call, others only if
 * `distant`. If `report`, also report to the awaited ranks and check for missing descriptors. */
static twill_status check_awaited(struct twill_comm *comm, struct twill_waiting *state,
                                  bool distant, bool report)
{
    uint32_t ranks[TWILL_AWAITED_MOST];
    const char *step;
    /* If a rank has failed in a later call, this one may complete, or soon makes no progress. */
    TWILL_TRY(&comm->error, twill_comm_poll_failures(comm, distant || comm->issue.points != NULL));
    TWILL_TRY(&comm->error, twill_engine_check_posted(&comm->engine));
    unsigned n = twill_engine_waits_for(&comm->engine, ranks, TWILL_AWAITED_MOST, &step);
    if (n > 0)
        record_wait(comm, state, ranks[0]);
    if (report) {
        twill_comm_report(comm, ranks, n);
        TWILL_TRY(&comm->error, check_shortage(comm, ranks, n));
    }
    for (unsigned i = 0; i < n; i++)
        if (ranks[i] != comm->rank && comm->world->node[ranks[i]] == comm->world->node[comm->rank])
            TWILL_TRY(&comm->error, twill_comm_check_peer(&comm->engine, ranks[i], false));
    if (distant)
        TWILL_TRY(&comm->error, twill_comm_compare_early(comm, false));
    bool doubt;
    twill_status status =
        twill_comm_look_for_death(comm, ranks, n, distant, state->quiet_since, &doubt);
    if (doubt) /* the next look decides */
        state->next_liveness = state->checked_at;
    return status;
}

int twill_comm_advance_others(struct twill_comm *self)
{
    unsigned own = atomic_load_explicit(&self->pending, memory_order_relaxed);
    if (TWILL_LIKELY(atomic_load_explicit(&self->context->comms.pending, memory_order_relaxed) ==
                     own))
        return 0;
    return twill_context_advance(self->context, self);
}

void twill_comm_pass(struct twill_comm *comm)
{
    comm->waits.wait_since = 0;
    (void)twill_comm_advance_others(comm);
}

/* Advance this communicator and, if nothing moves, the others of its context. Returns the steps
 * made on this one alone, or its error, which is negative. */
static int advance_comms(struct twill_comm *comm)
{
    int moved = twill_engine_advance(&comm->engine);
    if (moved == 0)
        (void)twill_comm_advance_others(comm);
    return moved;
}

/* Return whether other communicators or advancers of the context have something pending. */
static bool others_pend(const struct twill_comm *comm)
{
    return atomic_load_explicit(&comm->context->comms.pending, memory_order_relaxed) !=
           atomic_load_explicit(&comm->pending, memory_order_relaxed);
}

/* Return the twill_now() at which this wait's deadline began. That is `now`, or earlier if the wait
 * inherits the deadline of others (comm->waits.wait_since). At least TWILL_GRACE_NS are left. */
static uint64_t deadline_start(const struct twill_comm *comm, uint64_t now)
{
    uint64_t grace = twill_min(TWILL_GRACE_NS, comm->tuning.timeout_ns),
             left = comm->tuning.timeout_ns - grace;
    if (comm->waits.wait_since == 0)
        return now;
    uint64_t since = twill_max(comm->waits.wait_since, comm->waits.moved_at);
    return now > left ? twill_max(since, now - left) : since;
}

/* The longest time between two looks of a rank that waits. */
#define NOTICE_NS (TWILL_CHECK_EVERY_NS + TWILL_SLEEP_MOST_NS)

/* Return the sum of all that a rank waits for a rank that has stopped. It may wait for a price,
 * which it then computes itself, and in the call, until the first look after its time is over. It
 * then asks, and the others notice that at one of their looks. Set-up waits for that rank once. */
uint64_t twill_silence_bound_ns(const struct twill_comm *comm)
{
    uint64_t notify = comm->context->job.world.nodes > 1 ? TWILL_FAILURE_NOTIFY_NS : 0;
    return twill_engine_price_patience_ns(&comm->engine) + comm->tuning.timeout_ns + 2 * NOTICE_NS +
           TWILL_SEARCH_NS + notify;
}

/* Return the time of two looks in which a rank of this node is seen dead and until another rank
 * learns it, at most four times the bound on a notice. A rank of another node may have been seen
 * alive just before. In agreements, and while descriptors are passed on, looks may be rarer. */
uint64_t twill_death_bound_ns(void)
{
    return TWILL_LIVENESS_EVERY_NS + 4 * NOTICE_NS;
}

/* Check for revocation, failures, mismatches and timeout, as due. The first check of a wait also
 * sets the times of the next ones. Returns TWILL_OK or the error. */
static twill_status check_stall(struct twill_comm *comm, struct twill_waiting *state)
{
    uint64_t now = twill_now();
    uint64_t report_every = twill_min(TWILL_WAIT_REPORT_NS, comm->tuning.timeout_ns / 4);
    if (state->started == 0) {
        state->started = deadline_start(comm, now);
        state->next_check = now + TWILL_CHECK_FIRST_NS;
        state->next_liveness = now + TWILL_LIVENESS_EVERY_NS;
        state->next_report = now + report_every;
        state->quiet_since = now;
    }
    state->checked_at = now;
    TWILL_TRY(&comm->error, twill_comm_torn(comm));
    if (now >= state->next_check) {
        bool distant = now >= state->next_liveness;
        bool report = now >= state->next_report;
        if (distant)
            state->next_liveness = now + TWILL_LIVENESS_EVERY_NS;
        TWILL_TRY(&comm->error, check_awaited(comm, state, distant, report));
        if (report)
            state->next_report = now + report_every;
        state->next_check = now + TWILL_CHECK_EVERY_NS;
    }
    if (now - state->started > comm->tuning.timeout_ns)
        return twill_comm_time_out(comm, state->started);
    return TWILL_OK;
}

/* Call the program's idle function if there has been no progress for TWILL_IDLE_AFTER_NS. */
static void call_idle(const struct twill_comm *comm, const struct twill_waiting *state)
{
    const struct twill_context *context = comm->context;
    if (context->idle_hook.function != NULL &&
        state->checked_at - state->started >= TWILL_IDLE_AFTER_NS)
        context->idle_hook.function(context->idle_hook.user);
}

/* The advance() of the waitable. Advances the communicator `of` and, if nothing moves, the other
 * ones of its context. Returns the steps made on `of` alone, or its error, which is negative. */
static int advance_waiting(void *of)
{
    return advance_comms(of);
}

/* The blocked_on() of the waitable. Checks for failures and the deadline, and calls the program's
 * idle function. Sets state->polled if a sleep must be short. Returns TWILL_OK, or the error that
 * ends the wait. */
static twill_status blocked_on(void *of, struct twill_waiting *state)
{
    struct twill_comm *comm = of;
    twill_status status = check_stall(comm, state);
    call_idle(comm, state);
    state->polled = twill_engine_is_polled(&comm->engine) || others_pend(comm) ||
                    comm->context->idle_hook.function != NULL;
    return status;
}

/* The idle() of the waitable, if a timeline is open. Records the beginning of the wait in the event
 * ring, unless that is done. */
static void record_idle(void *of, struct twill_waiting *state)
{
    struct twill_comm *comm = of;
    uint32_t rank;
    const char *step;
    if (state->recorded == 0 && twill_engine_waits_for(&comm->engine, &rank, 1, &step) > 0)
        record_wait(comm, state, rank);
}

/* End the time in which a wait found nothing to do. If state->idle_since says that there was some,
 * add its ticks to comm->usage.idle. If the wait is recorded in the event ring, end that record. */
static void end_idle(struct twill_comm *comm, struct twill_waiting *state)
{
    if (state->idle_since != 0)
        comm->usage.idle += twill_ticks() - state->idle_since;
    if (TWILL_UNLIKELY(state->recorded != 0))
        twill_trace_wait_end(&comm->engine);
}

/* The moved() of the waitable. Ends the idle time. The next wait has its full deadline. */
static void note_moved(void *of, struct twill_waiting *state)
{
    struct twill_comm *comm = of;
    end_idle(comm, state);
    comm->waits.wait_since = 0;
}

/* The ended() of the waitable. Ends the idle time. If data `moved` in the last poll, that poll has
 * not advanced the other communicators of the context, so this advances them once. */
static void note_done(void *of, struct twill_waiting *state, bool moved)
{
    end_idle(of, state);
    if (moved)
        (void)twill_comm_advance_others(of);
}

twill_status twill_comm_wait(struct twill_comm *comm, bool (*done)(const void *of), const void *of)
{
    twill_spread_in_call(&comm->engine);
    /* One pass completes most small calls, as the others have come first. It needs no waitable. */
    int moved = advance_comms(comm);
    if (TWILL_UNLIKELY(moved < 0))
        return (twill_status)moved;
    if (moved > 0)
        comm->waits.wait_since = 0;
    if (done(of)) {
        if (moved > 0)
            (void)twill_comm_advance_others(comm);
        return TWILL_OK;
    }
    const struct twill_waitable waitable = {
        .advance = advance_waiting,
        .done = done,
        .blocked_on = blocked_on,
        .idle = twill_trace_is_detailed(&comm->trace) ? record_idle : NULL,
        .moved = note_moved,
        .ended = note_done,
        .of = comm,
        .awaited = of,
        .doorbell = comm->node,
    };
    return twill_await(&waitable, &comm->pace, UINT64_MAX);
}

/* Reset the state in which twill_comm_progress() counts its calls without progress, to check now
 * and then for a timeout. Called after progress or a failure. */
static void restart_tests(struct twill_comm *comm)
{
    note_moved(comm, &comm->waits.test_wait);
    twill_waiting_restart(&comm->waits.test_wait, &comm->pace);
}

twill_status twill_comm_progress(struct twill_comm *comm)
{
    struct twill_waiting *state = &comm->waits.test_wait;
    int moved = advance_comms(comm), more = moved;
    /* Where congestion control paces, one pass moves at most 128 KiB a connection. */
    for (unsigned pass = 1; more > 0 && pass < TEST_PASSES; pass++)
        more = advance_comms(comm);
    if (more < 0)
        moved = more;
    if (moved > 0)
        restart_tests(comm);
    else if (moved == 0 && ++state->polls % TESTS_PER_CHECK == 0)
        moved = check_stall(comm, state);
    if (TWILL_LIKELY(moved >= 0))
        return TWILL_OK;
    restart_tests(comm);
    return twill_comm_fail(comm, (twill_status)moved, TWILL_CAUSE_ASKED);
}

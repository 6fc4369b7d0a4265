/* SPDX-License-Identifier: Apache-2.0 */
/* Team calls, which all threads of a rank make together. Thread t moves stripe t of the message. It
 * makes an ordinary call with thread t of the other ranks, on a communicator that only they use, a
 * child of the program's. So stripes have the schedules, deadlines and checks of all calls.
 *
 * The threads of a rank meet twice in a call. In the first meeting they compare their arguments,
 * and what they have written to src becomes visible to all of them. In the second one they learn
 * that all stripes are complete. Each thread has its own cache line for that, and there is no lock.
 * Every eighth thread is the head of a group. It reads `here` of the seven after it. Thread 0 reads
 * `gathered` of the other heads and then writes `open`, which all other threads read.
 *
 * The first call of a communicator makes the children, by thread 0 while the others wait.
 *
 * A failure in one thread breaks the communicator and all children (fail_team()), so each thread
 * of each rank returns. A failure of the communicator itself breaks the children as well. */
#include "algorithms/algorithms.h"
#include "lib/api/api_internal.h"
#include "lib/base/times.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/job/find_levels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEAM_GROUP   8u    /* threads that one of them gathers */
#define TEAM_STRIPES 64u   /* most stripes */
#define TEAM_THREADS 4096u /* most threads of a rank */
#define TEAM_YIELDS  200u  /* of a wait before it naps */

/* One thread of a team. Only this thread writes to it. `here`, `gathered` and `inside` are read by
 * others, and `call` in the first meeting. */
struct team_thread {
    _Atomic uint64_t here; /* number of the last meeting to which the thread has come */
    const char *name;      /* of the public call that it is in */
    struct twill_call call;
    TWILL_ALIGNED(64) _Atomic uint64_t gathered; /* last one to which its group has come */
    TWILL_ALIGNED(64) _Atomic bool inside;       /* a thread is in a call with this number */
    bool knows;                                  /* it has made a call after the set-up */
    uint64_t meeting;                            /* number of the last meeting that it has begun */
    struct twill_pace pace;
} TWILL_ALIGNED(128);

/* The state of a communicator's team calls on one rank. Made by the first call of thread 0, freed
 * with the communicator. */
struct twill_team {
    struct twill_comm *comm;
    uint32_t threads, stripes;   /* of this rank; the fewest threads of any rank */
    _Atomic uint64_t timeout_ns; /* of the communicator */
    bool device;                 /* a rank has accelerators, whose memory is copied as a whole */
    bool crowded;                /* threads share CPUs, so waits yield early */
    bool refused; /* all ranks refuse the call alike. Thread 0 writes it before the first meeting */
    TWILL_ALIGNED(64) _Atomic uint64_t open; /* last meeting to which all threads have come */
    TWILL_ALIGNED(64) _Atomic bool failing;  /* the first failure is being recorded */
    _Atomic bool failed;                     /* `cause` is valid, and everything is broken */
    struct twill_error cause;
    _Atomic uint32_t made; /* number of children */
    struct twill_comm *child[TEAM_STRIPES];
    struct team_thread thread[]; /* [threads] */
};

/* --- failures --------------------------------------------------------------------------------- */

static bool has_failed(const void *team)
{
    return atomic_load_explicit(&((const struct twill_team *)team)->failed, memory_order_acquire);
}

/* Return the pace of waits for other threads of the rank, which are many, so that they nap. */
static struct twill_pace pace_of(const struct twill_comm *comm)
{
    return (struct twill_pace){.spins = comm->pace.spins,
                               .yields = TEAM_YIELDS,
                               .least_ns = TWILL_THREAD_NAP_NS,
                               .most_ns = TWILL_PROGRESS_NAP_MOST_NS};
}

/* Break all children with team->cause. */
static void tear_children(struct twill_team *team)
{
    for (uint32_t c = 0; c < atomic_load(&team->made); c++)
        twill_comm_tear(team->child[c], &team->cause);
}

/* Break the communicator and its children with *cause, unless another thread has done so. Returns
 * the status with which all threads fail. */
static twill_status fail_team(struct twill_team *team, const struct twill_error *cause)
{
    if (!atomic_exchange(&team->failing, true)) {
        team->cause = *cause;
        tear_children(team);
        twill_comm_tear(team->comm, cause);
        atomic_store(&team->failed, true);
    }
    const struct twill_waitable waitable = {.done = has_failed, .awaited = team};
    struct twill_pace pace = pace_of(team->comm);
    (void)twill_await(&waitable, &pace, UINT64_MAX); /* the other thread waits for nothing */
    return team->cause.status;
}

void twill_team_break(struct twill_comm *comm)
{
    struct twill_team *team = atomic_load(&comm->team);
    if (team == NULL || atomic_exchange(&team->failing, true))
        return;
    team->cause = comm->error;
    tear_children(team);
    atomic_store(&team->failed, true);
}

static twill_status fail_call(struct twill_team *team, twill_status status, const char *format, ...)
    TWILL_PRINTF(3, 4);

/* Fail the team with a message, after the names of this rank and the call. Returns the status. */
static twill_status fail_call(struct twill_team *team, twill_status status, const char *format, ...)
{
    struct twill_error error = {0};
    va_list arguments;
    va_start(arguments, format);
    (void)twill_error_set_list(&error, status, TWILL_NO_RANK, __FILE__, __LINE__, "", format,
                               arguments);
    va_end(arguments);
    twill_error_prefix(&error,
                       "%s: ", TWILL_ENGINE_RANK_NAME(&team->comm->engine, team->comm->rank));
    return fail_team(team, &error);
}

/* Fail the team with the error of `comm`, which is the communicator or a child, in a call with
 * status `status` that this thread has made. `stripe` is SIZE_MAX if it is none. */
static twill_status fail_by(struct twill_team *team, struct twill_comm *comm, twill_status status,
                            const char *name, size_t stripe)
{
    struct twill_error error = {0};
    const char *message = twill_comm_message(comm);
    (void)twill_error_set(&error, status, TWILL_NO_RANK, __FILE__, __LINE__, "%s", message);
    size_t used = strlen(error.message);
    if (stripe != SIZE_MAX)
        snprintf(error.message + used, sizeof(error.message) - used, " (stripe %zu of %s)", stripe,
                 name);
    return fail_team(team, &error);
}

/* --- meetings --------------------------------------------------------------------------------- */

/* A number that a thread waits for, on its stack. */
struct team_wait {
    const struct twill_team *team;
    const _Atomic uint64_t *number;
    uint64_t least;
};

/* Return whether the number is there, or the team has failed. `awaited` is a struct team_wait. */
static bool has_come(const void *awaited)
{
    const struct team_wait *wait = awaited;
    return atomic_load_explicit(wait->number, memory_order_acquire) >= wait->least ||
           has_failed(wait->team);
}

/* Fail the team because a thread has not come to the first meeting of a call. */
static twill_status fail_missing(struct twill_team *team, const struct team_thread *own)
{
    uint32_t t = 0;
    while (t + 1 < team->threads && atomic_load(&team->thread[t].here) >= own->meeting)
        t++;
    return fail_call(team, TWILL_ERR_TIMEOUT,
                     "%s: thread %u of %u has not called it for %.1f s (%s)", own->name, t,
                     team->threads, (double)atomic_load(&team->timeout_ns) * 1e-9,
                     twill_comm_timeout_name(team->comm));
}

/* Wait until *number is that of the meeting of thread `own`. In the first meeting of a call there
 * is a deadline. In others each awaited thread is in a call that ends. Returns TWILL_OK or the
 * error. */
static twill_status await_number(struct twill_team *team, struct team_thread *own,
                                 const _Atomic uint64_t *number, bool first)
{
    if (TWILL_LIKELY(atomic_load_explicit(number, memory_order_acquire) >= own->meeting))
        return TWILL_OK;
    struct team_wait wait = {team, number, own->meeting};
    const struct twill_waitable waitable = {.done = has_come, .awaited = &wait};
    uint64_t deadline = first ? twill_now() + atomic_load(&team->timeout_ns) : UINT64_MAX;
    if (twill_await(&waitable, &own->pace, deadline) != TWILL_OK)
        return fail_missing(team, own);
    if (atomic_load_explicit(number, memory_order_acquire) >= own->meeting)
        return TWILL_OK;
    return team->cause.status;
}

/* Compare the call of thread `other` with that of thread `t`. Returns TWILL_OK, or fails the team
 * with TWILL_ERR_ARGUMENT, which names the argument. */
static twill_status compare_threads(struct twill_team *team, uint32_t t, uint32_t other)
{
    const struct twill_call *a = &team->thread[t].call, *b = &team->thread[other].call;
    const char *argument = a->collective != b->collective ? "the call"
                           : a->src != b->src             ? "src"
                           : a->dst != b->dst             ? "dst"
                           : a->count != b->count         ? "count"
                           : a->type != b->type           ? "type"
                           : a->op != b->op               ? "op"
                           : a->root != b->root           ? "root"
                                                          : NULL;
    if (TWILL_LIKELY(argument == NULL))
        return TWILL_OK;
    return fail_call(team, TWILL_ERR_ARGUMENT, "%s: %s of thread %u differs from that of thread %u",
                     team->thread[t].name, argument, other, t);
}

/* As the head of a group, wait until its other threads have come, and as thread 0 also for the
 * other heads. In the first meeting of a call compare their arguments. Returns TWILL_OK or the
 * error. */
static twill_status gather(struct twill_team *team, uint32_t t, bool first)
{
    struct team_thread *own = &team->thread[t];
    uint32_t end = (uint32_t)twill_min(t + TEAM_GROUP, team->threads);
    for (uint32_t m = t + 1; m < end; m++) {
        TWILL_TRY(NULL, await_number(team, own, &team->thread[m].here, first));
        if (first)
            TWILL_TRY(NULL, compare_threads(team, t, m));
    }
    for (uint32_t head = TEAM_GROUP; t == 0 && head < team->threads; head += TEAM_GROUP) {
        TWILL_TRY(NULL, await_number(team, own, &team->thread[head].gathered, first));
        if (first)
            TWILL_TRY(NULL, compare_threads(team, t, head));
    }
    return TWILL_OK;
}

/* Wait until all threads of this rank have come to this place of the call. `first` says whether it
 * is the first one of the call. Returns TWILL_OK, or the error, at which the team has failed. */
static twill_status meet(struct twill_team *team, uint32_t t, bool first)
{
    struct team_thread *own = &team->thread[t];
    uint64_t n = ++own->meeting;
    atomic_store_explicit(&own->here, n, memory_order_release);
    if (t % TEAM_GROUP == 0)
        TWILL_TRY(NULL, gather(team, t, first));
    if (t == 0)
        atomic_store_explicit(&team->open, n, memory_order_release);
    else if (t % TEAM_GROUP == 0)
        atomic_store_explicit(&own->gathered, n, memory_order_release);
    return t == 0 ? TWILL_OK : await_number(team, own, &team->open, first);
}

/* --- set-up ----------------------------------------------------------------------------------- */

/* Allocate the team of a rank with `threads` threads. Returns NULL if out of memory. */
static struct twill_team *create_team(struct twill_comm *comm, uint32_t threads)
{
    size_t bytes = sizeof(struct twill_team) + threads * sizeof(struct team_thread);
    struct twill_team *team = aligned_alloc(128, twill_round_up(bytes, 128));
    if (team == NULL)
        return NULL;
    memset((void *)team, 0, bytes);
    team->comm = comm;
    team->threads = threads;
    atomic_store(&team->timeout_ns, comm->tuning.timeout_ns);
    for (uint32_t t = 0; t < threads; t++)
        team->thread[t].pace = pace_of(comm);
    return team;
}

/* Ranks exchange these when a team is set up. Sent as it lies in memory. */
struct team_offer {
    int32_t threads;
    int32_t device; /* it has accelerators */
};

/* Return whether more threads of the ranks of this node than there are CPUs may run on the CPUs of
 * this rank. */
static bool is_crowded(const struct twill_comm *comm, const struct team_offer *offers)
{
    const struct twill_level_info *level = comm->context->job.level,
                                  *own = &level[comm->job[comm->rank]];
    uint64_t threads = 0;
    for (uint32_t r = 0; r < comm->world->size; r++)
        if (comm->world->node[r] == comm->world->node[comm->rank] &&
            level[comm->job[r]].cpuset_hash == own->cpuset_hash)
            threads += (uint64_t)offers[r].threads;
    return own->cpus > 0 && threads > own->cpus;
}

/* Learn from the offers how many stripes there are, and let waits yield early if cores are shared.
 * Then make the children. Returns TWILL_OK or the error, with its message in comm->error. */
static twill_status make_children(struct twill_team *team, const struct team_offer *offers,
                                  const char *name)
{
    struct twill_comm *comm = team->comm;
    uint32_t stripes = TEAM_STRIPES;
    for (uint32_t r = 0; r < comm->world->size; r++) {
        stripes = (uint32_t)twill_min(stripes, (size_t)offers[r].threads);
        team->device |= offers[r].device != 0;
    }
    team->crowded = comm->pace.learns && is_crowded(comm, offers);
    for (uint32_t s = 0; s < stripes; s++) {
        TWILL_TRY(NULL, twill_comm_dup_stripe(&team->child[s], comm, stripes, name));
        if (team->crowded)
            team->child[s]->pace.spins = TWILL_SPIN_SHARED;
        atomic_store(&team->made, s + 1);
    }
    team->stripes = stripes;
    return TWILL_OK;
}

/* Set up the team, in thread 0, with thread 0 of the other ranks. Returns TWILL_OK, or the error,
 * at which the team has failed. */
static twill_status set_up(struct twill_team *team, const char *name)
{
    struct twill_comm *comm = team->comm;
    struct team_offer own = {(int32_t)team->threads, comm->context->machine.device != NULL},
                      *all = calloc(comm->world->size, sizeof(*all));
    if (all == NULL)
        return fail_call(team, TWILL_ERR_MEMORY, "%s: out of memory", name);
    const struct twill_call exchange = {.collective = TWILL_ALLGATHER,
                                        .src = &own,
                                        .dst = all,
                                        .count = sizeof(own) / sizeof(int32_t),
                                        .type = TWILL_I32};
    twill_status status = twill_call_run(comm, &exchange, name);
    if (status == TWILL_OK)
        status = make_children(team, all, name);
    free(all);
    return status == TWILL_OK ? TWILL_OK : fail_by(team, comm, status, name, SIZE_MAX);
}

void twill_team_close(struct twill_comm *comm)
{
    struct twill_team *team = atomic_load(&comm->team);
    if (team == NULL)
        return;
    if (comm->broken)
        twill_team_break(comm);
    for (uint32_t c = 0; c < atomic_load(&team->made); c++)
        twill_comm_close(team->child[c]);
    atomic_store(&comm->team, NULL);
    free(team);
}

/* --- stripes ---------------------------------------------------------------------------------- */

/* Return the number of elements at whose multiples stripes begin, so that no two threads of a rank
 * write to one cache line of an aligned buffer. `element` is its size in bytes. */
static size_t unit_of(size_t element)
{
    size_t power = element & -element;
    return power < TWILL_CACHE_LINE ? TWILL_CACHE_LINE / power : 1;
}

/* Return how many stripes a call has. It is the same on all ranks. */
static uint32_t stripes_of(const struct twill_team *team, const struct twill_call *call,
                           size_t element)
{
    const struct twill_comm *comm = team->comm;
    bool sharded = twill_collective_facts(call->collective)->sharded;
    if (call->count == 0 || call->collective == TWILL_BARRIER || (sharded && team->device))
        return 1;
    size_t bytes = call->count * element * (sharded ? comm->world->size : 1),
           least = (size_t)comm->context->config->number[TWILL_VARIABLE_STRIPE],
           units = (call->count - 1) / unit_of(element) + 1;
    size_t used = twill_min(team->stripes, twill_min(bytes / least, units));
    return (uint32_t)twill_max(used, 1);
}

/* Return the index of the first element of stripe `s` of `used`. */
static size_t first_of(size_t count, size_t unit, uint32_t used, uint32_t s)
{
    size_t units = (count + unit - 1) / unit;
    return twill_min(count, (units / used * s + units % used * s / used) * unit);
}

/* Return an address `bytes` after `at`, or NULL if `at` is NULL, which the call then refuses. */
static void *after(const void *at, size_t bytes)
{
    return at != NULL ? (char *)(uintptr_t)at + bytes : NULL;
}

/* Return the call that moves stripe `s` of `used`. It moves the same part of each shard. */
static struct twill_call stripe_of(const struct twill_call *call, size_t element, uint32_t used,
                                   uint32_t s)
{
    struct twill_call stripe = *call;
    if (used == 1)
        return stripe;
    size_t unit = unit_of(element), first = first_of(call->count, unit, used, s);
    stripe.src = after(call->src, first * element);
    stripe.dst = after(call->dst, first * element);
    stripe.count = first_of(call->count, unit, used, s + 1) - first;
    if (twill_collective_facts(call->collective)->sharded)
        stripe.pitch = call->count;
    return stripe;
}

/* --- the call --------------------------------------------------------------------------------- */

/* Return the bytes of a buffer that `holder` describes, of shards of `bytes` bytes. */
static size_t held_bytes(const struct twill_comm *comm, const struct twill_call *call,
                         enum twill_holder holder, size_t bytes)
{
    bool has = holder == TWILL_HOLDS_ALL || holder == TWILL_HOLDS_OWN ||
               (holder == TWILL_HOLDS_ROOT && comm->rank == call->root);
    bool all = holder != TWILL_HOLDS_OWN && twill_collective_facts(call->collective)->sharded;
    return has ? bytes * (all ? comm->world->size : 1) : 0;
}

/* Return whether src and dst overlap although the call is not in place. Stripes find only overlaps
 * within a stripe. */
static bool overlaps(const struct twill_comm *comm, const struct twill_call *call)
{
    const struct twill_collective_facts *facts = twill_collective_facts(call->collective);
    size_t bytes = call->count * twill_call_element(comm, call);
    uintptr_t src = (uintptr_t)call->src, dst = (uintptr_t)call->dst, own = comm->rank * bytes;
    size_t src_bytes = held_bytes(comm, call, facts->src, bytes),
           dst_bytes = held_bytes(comm, call, facts->dst, bytes);
    if (src_bytes == 0 || dst_bytes == 0 || src >= dst + dst_bytes || dst >= src + src_bytes)
        return false;
    if (facts->src == TWILL_HOLDS_OWN)
        return src != dst + own;
    return facts->dst == TWILL_HOLDS_OWN ? dst != src + own : src != dst;
}

/* In thread 0, check that the communicator may be used, and what all ranks pass alike. Sets
 * team->refused. Returns TWILL_OK, or the error, at which the team has failed. */
static twill_status admit(struct twill_team *team, const struct twill_call *call, const char *name)
{
    struct twill_comm *comm = team->comm;
    twill_status status = twill_comm_acquire(comm, name);
    if (status != TWILL_OK)
        return fail_by(team, comm, status, name, SIZE_MAX);
    status = twill_comm_usable(comm);
    if (status == TWILL_OK && twill_group_is_open(comm->group))
        status = TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT, "a team call in a group");
    else if (status == TWILL_OK && twill_call_check_alike(comm, call) != TWILL_OK)
        team->refused = true;
    else if (status == TWILL_OK && overlaps(comm, call))
        status = TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT, "src and dst overlap, not in place");
    atomic_store(&team->timeout_ns, comm->tuning.timeout_ns);
    twill_comm_release(comm);
    return status == TWILL_OK ? TWILL_OK : fail_by(team, comm, status, name, SIZE_MAX);
}

/* In thread 0, make a call that all ranks refuse, on the first child, and keep its message in
 * comm->error. Returns TWILL_OK, or the error, at which the team has failed. */
static twill_status refuse(struct twill_team *team, const struct twill_call *call, const char *name)
{
    struct twill_comm *comm = team->comm, *child = team->child[0];
    twill_status status = twill_call_run(child, call, name);
    if (status != TWILL_ERR_ARGUMENT)
        return fail_by(team, child, status, name, 0);
    status = twill_comm_acquire(comm, name);
    if (status != TWILL_OK)
        return fail_by(team, comm, status, name, SIZE_MAX);
    if (twill_comm_usable(comm) == TWILL_OK)
        (void)TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "%s", child->error.message);
    twill_comm_release(comm);
    return TWILL_OK;
}

/* Move the stripe of thread `t`, if there is one. Returns TWILL_OK, or the error, at which the team
 * has failed. */
static twill_status move_stripe(struct twill_team *team, uint32_t t, const struct twill_call *call,
                                const char *name)
{
    size_t element = twill_call_element(team->comm, call);
    uint32_t used = stripes_of(team, call, element);
    if (t >= used)
        return TWILL_OK;
    struct twill_comm *child = team->child[t];
    struct twill_call stripe = stripe_of(call, element, used, t);
    child->tuning.timeout_ns = atomic_load_explicit(&team->timeout_ns, memory_order_relaxed);
    twill_status status = twill_call_run(child, &stripe, name);
    return TWILL_LIKELY(status == TWILL_OK) ? status : fail_by(team, child, status, name, t);
}

/* Make a call as thread `t`, which is inside. Returns the status of the call. */
static twill_status run_thread(struct twill_team *team, uint32_t t, const struct twill_call *call,
                               const char *name)
{
    struct team_thread *own = &team->thread[t];
    own->call = *call;
    own->name = name;
    if (t == 0) {
        team->refused = false;
        TWILL_TRY(NULL, admit(team, call, name));
    }
    TWILL_TRY(NULL, meet(team, t, true));
    if (TWILL_UNLIKELY(!own->knows)) {
        if (t == 0)
            TWILL_TRY(NULL, set_up(team, name));
        TWILL_TRY(NULL, meet(team, t, false));
        own->knows = true;
        if (team->crowded)
            own->pace.spins = TWILL_SPIN_SHARED;
    }
    bool refused = team->refused; /* thread 0 may be in its next call after the second meeting */
    if (TWILL_LIKELY(!refused))
        TWILL_TRY(NULL, move_stripe(team, t, call, name));
    else if (t == 0)
        TWILL_TRY(NULL, refuse(team, call, name));
    TWILL_TRY(NULL, meet(team, t, false));
    return TWILL_UNLIKELY(refused) ? TWILL_ERR_ARGUMENT : TWILL_OK;
}

/* Return whether thread 0 has made the team, or the communicator is torn. */
static bool has_team(const void *comm)
{
    struct twill_comm *of = (struct twill_comm *)(uintptr_t)comm;
    uint32_t live = atomic_load(&of->live);
    return atomic_load_explicit(&of->team, memory_order_acquire) != NULL ||
           (live != TWILL_LIVE && live != TWILL_IDLE);
}

/* Break a communicator without a team, from any thread. Returns the status. */
static twill_status fail_early(struct twill_comm *comm, twill_status status, const char *name,
                               const char *why)
{
    struct twill_error error = {0};
    (void)TWILL_FAIL(&error, status, "%s: %s: %s",
                     TWILL_ENGINE_RANK_NAME(&comm->engine, comm->rank), name, why);
    twill_comm_tear(comm, &error);
    return comm->claim.refused.status;
}

/* Find the team of a communicator, which thread 0 makes in its first call. Stores it in *team.
 * Returns TWILL_OK, or the error, at which the communicator is broken or has ended. */
static twill_status find_team(struct twill_team **team, struct twill_comm *comm, const char *name,
                              int thread, int threads)
{
    if (!twill_comm_is_live(comm))
        return TWILL_ERR_ARGUMENT;
    if (twill_comm_is_forked(comm))
        return TWILL_ERR_FORKED;
    *team = atomic_load_explicit(&comm->team, memory_order_acquire);
    if (TWILL_LIKELY(*team != NULL))
        return TWILL_OK;
    if (threads < 1 || (uint32_t)threads > TEAM_THREADS)
        return fail_early(comm, TWILL_ERR_ARGUMENT, name, "threads is outside 1 .. 4096");
    if (thread == 0) {
        struct twill_team *none = NULL, *created = create_team(comm, (uint32_t)threads);
        if (created == NULL)
            return fail_early(comm, TWILL_ERR_MEMORY, name, "out of memory");
        if (!atomic_compare_exchange_strong(&comm->team, &none, created))
            free(created);
    } else {
        const struct twill_waitable waitable = {.done = has_team, .awaited = comm};
        struct twill_pace pace = pace_of(comm);
        if (twill_await(&waitable, &pace, twill_now() + comm->tuning.timeout_ns) != TWILL_OK)
            return fail_early(comm, TWILL_ERR_TIMEOUT, name,
                              "thread 0 has not called it within the time limit of waits");
    }
    *team = atomic_load_explicit(&comm->team, memory_order_acquire);
    return *team != NULL ? TWILL_OK : comm->claim.refused.status;
}

/* Make a team call for the public function `name`. Returns its status. */
static twill_status team_run(struct twill_comm *comm, const struct twill_call *call, int thread,
                             int threads, const char *name)
{
    struct twill_team *team;
    TWILL_TRY(NULL, find_team(&team, comm, name, thread, threads));
    if (TWILL_UNLIKELY(has_failed(team)))
        return TWILL_ERR_BROKEN;
    if (TWILL_UNLIKELY(threads < 0 || (uint32_t)threads != team->threads))
        return fail_call(team, TWILL_ERR_ARGUMENT,
                         "%s: threads is %d in thread %d, but %u in the first team call", name,
                         threads, thread, team->threads);
    if (TWILL_UNLIKELY(thread < 0 || thread >= threads))
        return fail_call(team, TWILL_ERR_ARGUMENT, "%s: thread %d is outside 0 .. %d", name, thread,
                         threads - 1);
    _Atomic bool *inside = &team->thread[thread].inside;
    if (TWILL_UNLIKELY(atomic_exchange_explicit(inside, true, memory_order_acquire)))
        return fail_call(team, TWILL_ERR_ARGUMENT, "%s: two threads call as thread %d", name,
                         thread);
    twill_status status = run_thread(team, (uint32_t)thread, call, name);
    atomic_store_explicit(inside, false, memory_order_release);
    return status;
}

/* Define twill_NAME_team(), which makes the call `packed`. */
#define TEAM_FORM(name, packed, ...)                                                               \
    twill_status twill_##name##_team(__VA_ARGS__, int thread, int threads)                         \
    {                                                                                              \
        struct twill_call call = packed;                                                           \
        return team_run(comm, &call, thread, threads, "twill_" #name "_team");                     \
    }
#define TEAM_CALL(...) ((struct twill_call){__VA_ARGS__})

TEAM_FORM(allreduce, TEAM_CALL(TWILL_ALLREDUCE, src, dst, count, type, op, .root = 0),
          twill_comm *comm, const void *src, void *dst, size_t count, twill_type type, twill_op op)
TEAM_FORM(broadcast,
          TEAM_CALL(TWILL_BROADCAST, src, twill_broadcast_dst(comm, src, dst, root), count, type,
                    .root = (uint32_t)root),
          twill_comm *comm, const void *src, void *dst, size_t count, twill_type type, int root)
TEAM_FORM(allgather, TEAM_CALL(TWILL_ALLGATHER, src, dst, count, type, .root = 0), twill_comm *comm,
          const void *src, void *dst, size_t count, twill_type type)
TEAM_FORM(reduce_scatter, TEAM_CALL(TWILL_REDUCE_SCATTER, src, dst, count, type, op, .root = 0),
          twill_comm *comm, const void *src, void *dst, size_t count, twill_type type, twill_op op)
TEAM_FORM(barrier, TEAM_CALL(TWILL_BARRIER, .type = TWILL_F32), twill_comm *comm)

/* SPDX-License-Identifier: Apache-2.0 */
/* Each lane of a rank is an actor of SimGrid. It adds up what its steps cost the core, and sleeps
 * that long before a step whose effect others see. Each (from, to, lane) has a mailbox. The sender
 * of a message of at most EAGER_BYTES does not wait for it, as in eager protocols.
 * With `lines`, cache lines take what they take on a KNL. Half a round trip of a line between two
 * cores that both write it takes 41.4 ns on one tile and 91.1 (84 to 112) on two, the medians of
 * all 2,016 pairs of a Xeon Phi 7210 at 1.3 GHz (nviennot/core-to-core-latency, "results/Intel(R)
 * Xeon Phi(TM) CPU 7210 @ 1.30GHz.csv"). Lines that one core reads count one after the other, and
 * so do N cores' reads of one line. Both are upper bounds, as a core's misses overlap. */
#include "algorithms/schedule/step_table.h"
#include "bench/studies/network/simulated_network.h"

#include <math.h>
#include <simgrid/actor.h>
#include <simgrid/comm.h>
#include <simgrid/cond.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/mailbox.h>
#include <simgrid/mutex.h>
#include <stdio.h>
#include <stdlib.h>

#define EAGER_BYTES 8192u
#define SETUP       1e-3 /* seconds before the first step, for the receivers to register */
#define LINE        64u
#define LINE_TILE   UINT64_C(41400) /* picoseconds */
#define LINE_REMOTE UINT64_C(91100)

/* The simulation of one call on all ranks in network_run(). SimGrid runs one actor at a time. */
struct network_job {
    const struct simulated_call *call;
    struct twill_schedule *schedules;
    struct network_lane *lanes;
    double *raised;        /* [rank][lane][ordinal] second of raising it, or 0 (ordinal 0 is IMM) */
    double *core_free;     /* [rank] second until which its core works */
    double *detour_at;     /* [rank] when its next detour begins */
    uint64_t *detour_draw; /* [rank] state of the random generator for detour_at */
    sg_mutex_t mutex;
    sg_cond_t *flags;  /* [rank] notified when one of its flags is raised */
    uint32_t ordinals; /* 1 + the largest ordinal of a flag */
    double start, end; /* seconds, where end is that of the last lane that has ended */
};

/* A message on its way. The sender allocates it and the receiver frees it. */
struct network_message {
    double soonest; /* second at which it arrives if no other message is in its way */
    bool remote;    /* sent from another node */
};

/* A SEND that has to be waited for, or a receive, an entry of network_lane.posted. */
struct network_post {
    sg_comm_t comm;
    struct network_message *message; /* set when a receive is complete */
    bool receives;
};

/* The state of an actor, which runs one lane of a rank, an entry of network_job.lanes. */
struct network_lane {
    struct network_job *job;
    uint32_t rank, lane;
    uint64_t work; /* picoseconds that the core has worked and that have not passed yet */
    struct network_post *posted; /* receives and large sends since the last WAIT */
    uint32_t count;              /* of `posted` */
    uint64_t received;           /* picoseconds of work for the posted receives once they arrive */
};

/* Return the place of the time when a rank's lane raised the flag of this ordinal, 0 before. */
static double *flag_of(const struct network_job *job, uint32_t rank, uint32_t lane,
                       uint32_t ordinal)
{
    return &job->raised[((size_t)rank * TWILL_SCHEDULE_LANES + lane) * job->ordinals + ordinal];
}

/* Return the random seconds from one detour of a rank to the next (exponential, by splitmix64). */
static double draw_detour(struct network_job *job, uint32_t rank)
{
    uint64_t z = job->detour_draw[rank] += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return -log(((double)(z >> 11) + 1) / 9007199254740993.0) / job->call->detours;
}

/* Return the second at which work on a rank's core ends that would take from second `from` to `to`
 * without detours. In a detour something else runs on the core and delays the work. */
static double delayed(struct network_job *job, uint32_t rank, double from, double to)
{
    while (job->call->detours > 0 && job->detour_at[rank] < to) {
        double begin = job->detour_at[rank], end = begin + job->call->detour;
        if (end > from)
            to += begin > from ? job->call->detour : end - from;
        job->detour_at[rank] += draw_detour(job, rank);
    }
    return to;
}

/* Sleep while the core does the work that has added up. The lanes of a rank share its core. */
static void pass_time(struct network_lane *l)
{
    double *core_free = &l->job->core_free[l->rank];
    double now = simgrid_get_clock(), begin = *core_free > now ? *core_free : now;
    if (l->work > 0) {
        *core_free = delayed(l->job, l->rank, begin, begin + (double)l->work * 1e-12);
        l->work = 0;
        sg_actor_sleep_until(*core_free);
    }
}

/* Return the mailbox of messages from one rank to another in this lane. */
static sg_mailbox_t mailbox_of(const struct network_lane *l, uint32_t from, uint32_t to)
{
    char name[48];
    snprintf(name, sizeof(name), "%u-%u-%u", from, to, l->lane);
    return sg_mailbox_by_name(name);
}

/* Return the bytes of that many blocks of an operand. */
static uint64_t bytes_of(const struct network_lane *l, twill_operand operand, uint32_t blocks)
{
    return twill_step_bytes(&l->job->schedules[l->rank], operand, blocks,
                            l->job->call->bytes / sizeof(float), sizeof(float));
}

/* Return the picoseconds for which the core reads or writes `bytes` of a peer's memory. `space` is
 * that of the operand there, because SHARED and IMM have another rate than mapped buffers. For the
 * rank itself, return the time of a copy. */
static uint64_t peer_cost(const struct network_lane *l, uint32_t peer, unsigned space,
                          uint64_t bytes)
{
    const struct simulated_call *call = l->job->call;
    enum twill_link_class link = twill_link_between(call->world, l->rank, peer);
    const struct twill_link_cost *cost = &call->model->link[link];
    if (peer == l->rank)
        return twill_rate_time(call->model->copy, bytes);
    if (call->lines)
        return (link == TWILL_LINK_TILE ? LINE_TILE : LINE_REMOTE) * ((bytes + LINE - 1) / LINE);
    return twill_rate_time(
        space == TWILL_SHARED || space == TWILL_IMM ? cost->shared : cost->mapped, bytes);
}

/* Add the picoseconds that a COPY or REDUCE takes on the core to l->work. */
static void do_combine(struct network_lane *l, const struct twill_step *step)
{
    const struct twill_machine_model *model = l->job->call->model;
    uint64_t bytes = bytes_of(l, step->dst, step->blocks);
    unsigned sources = step->op == TWILL_STEP_REDUCE ? step->nsrc : 1;
    for (unsigned i = 0; i < sources; i++)
        l->work += twill_operand_is_peer(step->src)
                       ? peer_cost(l, step->peer[i], twill_operand_space(step->src), bytes)
                       : 0;
    if (twill_operand_is_peer(step->dst))
        l->work += peer_cost(l, step->peer[0], twill_operand_space(step->dst), bytes);
    l->work += step->op == TWILL_STEP_REDUCE
                   ? twill_rate_time(model->reduce[TWILL_F32], bytes) * sources
                   : twill_rate_time(model->copy, bytes);
}

/* Raise flag number `ordinal` of this rank's lane once the core has done all work so far. Wakes the
 * ranks that wait for it in do_await(). */
static void do_raise(struct network_lane *l, uint32_t ordinal)
{
    struct network_job *job = l->job;
    l->work += job->call->model->raise;
    pass_time(l);
    *flag_of(job, l->rank, l->lane, ordinal) = simgrid_get_clock();
    sg_cond_notify_all(job->flags[l->rank]);
}

/* Return how many SIGNAL steps of the lane come before step `at`. */
static uint32_t signals_before(const struct network_lane *l, uint32_t at)
{
    const struct twill_schedule *schedule = &l->job->schedules[l->rank];
    uint32_t count = 0;
    for (uint32_t i = schedule->lane_first[l->lane]; i < at; i++)
        count += schedule->steps[i].op == TWILL_STEP_SIGNAL;
    return count;
}

/* Wait until all peers of the step have raised its flag and this rank can see it. */
static void do_await(struct network_lane *l, const struct twill_step *step)
{
    struct network_job *job = l->job;
    const struct simulated_call *call = job->call;
    uint32_t readers = call->world->node_size[call->world->node[l->rank]] - 1;
    double seen = 0;
    pass_time(l);
    for (unsigned i = 0; i < step->nsrc; i++) {
        uint32_t peer = step->peer[i];
        double *flag = flag_of(job, peer, l->lane, step->ordinal);
        sg_mutex_lock(job->mutex);
        while (*flag == 0)
            sg_cond_wait(job->flags[peer], job->mutex);
        sg_mutex_unlock(job->mutex);
        const struct twill_link_cost *cost =
            &call->model->link[twill_link_between(call->world, l->rank, peer)];
        uint64_t travel = call->lines ? LINE_REMOTE * readers : cost->signal;
        double arrives = *flag + (double)travel * 1e-12;
        seen = arrives > seen ? arrives : seen;
        l->work += call->model->poll;
    }
    if (seen > simgrid_get_clock())
        sg_actor_sleep_until(seen);
}

/* Return the picoseconds that the core of this rank works to send a message to `peer`. That
 * includes the time by which a rank injects more slowly than the interface of its node. */
static uint64_t message_cost(const struct network_lane *l, uint32_t peer, uint64_t bytes)
{
    const struct twill_machine_model *model = l->job->call->model;
    const struct twill_link_cost *cost =
        &model->link[twill_link_between(l->job->call->world, l->rank, peer)];
    /* How much more slowly a rank injects than the interface of the node does. */
    uint64_t slower = cost->gap > model->interface ? cost->gap - model->interface : 0;
    return cost->overhead + twill_rate_time(l->job->call->copies, bytes) +
           (l->job->call->world->node[peer] == l->job->call->world->node[l->rank]
                ? 0
                : twill_rate_time(slower, bytes));
}

/* Return a message that this rank sends now, for the receiver to free. Aborts without memory. */
static struct network_message *new_message(const struct network_lane *l, uint32_t to,
                                           uint64_t bytes)
{
    const struct simulated_call *call = l->job->call;
    struct network_message *message = malloc(sizeof(*message));
    if (message == NULL)
        abort(); /* an actor cannot return an error */
    message->remote = call->world->node[to] != call->world->node[l->rank];
    message->soonest = simgrid_get_clock();
    if (message->remote)
        message->soonest += (double)(call->model->link[TWILL_LINK_NETWORK].latency +
                                     twill_rate_time(call->model->interface, bytes)) *
                            1e-12;
    return message;
}

/* Send a message once the work so far is done. A large one is posted for the next WAIT. */
static void do_send(struct network_lane *l, const struct twill_step *step)
{
    uint64_t bytes = bytes_of(l, step->src, step->blocks);
    l->work += message_cost(l, step->peer[0], bytes);
    pass_time(l);
    sg_mailbox_t mailbox = mailbox_of(l, l->rank, step->peer[0]);
    long length = (long)bytes + 16; /* a message has a header even if it has no data */
    struct network_message *message = new_message(l, step->peer[0], bytes);
    if (bytes <= EAGER_BYTES)
        sg_comm_detach(sg_mailbox_put_init(mailbox, message, length), NULL);
    else
        l->posted[l->count++] =
            (struct network_post){.comm = sg_mailbox_put_async(mailbox, message, length)};
}

/* Post the receive. Its work counts at the next WAIT. */
static void do_receive(struct network_lane *l, const struct twill_step *step)
{
    const struct twill_machine_model *model = l->job->call->model;
    const struct twill_world *world = l->job->call->world;
    uint64_t bytes = bytes_of(l, step->dst, step->blocks);
    l->received += model->link[twill_link_between(world, l->rank, step->peer[0])].overhead +
                   twill_rate_time(l->job->call->copies, bytes);
    l->received +=
        step->op == TWILL_STEP_RECV_REDUCE ? twill_rate_time(model->reduce[TWILL_F32], bytes) : 0;
    struct network_post *post = &l->posted[l->count++];
    *post = (struct network_post){.receives = true};
    post->comm = sg_mailbox_get_async(mailbox_of(l, step->peer[0], l->rank),
                                      (void **)(void *)&post->message);
}

/* Wait for all posted sends and receives. A remote message arrives when SimGrid ends its transfer,
 * plus the latency of the software. If the transfer has ended before the wait, or is not remote,
 * the message arrives at its `soonest`. Then l->work gets the work for what was received. */
static void do_wait(struct network_lane *l)
{
    pass_time(l);
    double ready = 0, software = network_software_latency(l->job->call->model);
    for (uint32_t i = 0; i < l->count; i++) {
        struct network_post *post = &l->posted[i];
        double before = simgrid_get_clock();
        sg_comm_wait(post->comm);
        if (!post->receives)
            continue;
        /* SimGrid ends a transfer with its last link and does not say if that has ended before. */
        double now = simgrid_get_clock(), arrived = post->message->soonest;
        if (now > before && post->message->remote)
            arrived = now + software;
        ready = arrived > ready ? arrived : ready;
        free(post->message);
    }
    if (ready < simgrid_get_clock())
        ready = simgrid_get_clock();
    ready = delayed(l->job, l->rank, ready, ready);
    if (ready > simgrid_get_clock())
        sg_actor_sleep_until(ready);
    l->count = 0;
    l->work += l->received;
    l->received = 0;
}

/* Simulate one step, whose index in the schedule is `at`. Adds what it costs the core to l->work.
 * Sleeps in simulated time before anything that other ranks see, and to await their messages and
 * flags. */
static void do_step(struct network_lane *l, const struct twill_step *step, uint32_t at)
{
    l->work += l->job->call->model->step;
    switch (step->op) {
    case TWILL_STEP_SEND:
        do_send(l, step);
        break;
    case TWILL_STEP_RECV:
    case TWILL_STEP_RECV_REDUCE:
        do_receive(l, step);
        break;
    case TWILL_STEP_REDUCE:
    case TWILL_STEP_COPY:
        do_combine(l, step);
        break;
    case TWILL_STEP_PUT_IMM:
        do_raise(l, 0);
        break;
    case TWILL_STEP_WAIT:
        do_wait(l);
        break;
    case TWILL_STEP_SIGNAL:
        do_raise(l, signals_before(l, at) + 1);
        break;
    default:
        do_await(l, step);
        break;
    }
}

/* Run the lane that is this actor's data, from the common start, and note the end. */
static void run_lane(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct network_lane *l = sg_actor_self_get_data();
    struct network_job *job = l->job;
    const struct twill_schedule *schedule = &job->schedules[l->rank];
    uint32_t first = schedule->lane_first[l->lane], last = schedule->lane_first[l->lane + 1];
    char name[48];
    for (uint32_t at = first; at < last; at++) {
        const struct twill_step *step = &schedule->steps[at];
        if (step->op != TWILL_STEP_RECV && step->op != TWILL_STEP_RECV_REDUCE)
            continue;
        /* With a receiver that is known now, messages start when they are sent. */
        snprintf(name, sizeof(name), "%u-%u-%u", step->peer[0], l->rank, l->lane);
        sg_mailbox_set_receiver(name);
    }
    sg_actor_sleep_until(job->start);
    l->work = job->call->model->start;
    for (uint32_t at = first; at < last; at++)
        do_step(l, &schedule->steps[at], at);
    pass_time(l);
    double now = simgrid_get_clock();
    job->end = now > job->end ? now : job->end;
}

/* Return the largest number of SIGNAL steps of a rank. */
static uint32_t most_signals(const struct network_job *job, uint32_t ranks)
{
    uint32_t most = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < job->schedules[r].count; i++)
            count += job->schedules[r].steps[i].op == TWILL_STEP_SIGNAL;
        most = count > most ? count : most;
    }
    return most;
}

/* Make an actor for each lane of each rank. Returns false if out of memory. */
static bool open_lanes(struct network_job *job)
{
    const struct twill_world *world = job->call->world;
    for (uint32_t r = 0; r < world->size; r++) {
        char host[24];
        snprintf(host, sizeof(host), "n%u", world->node[r]);
        job->flags[r] = sg_cond_init();
        for (uint32_t lane = 0; lane < job->schedules[r].lanes; lane++) {
            struct network_lane *l = &job->lanes[(size_t)r * TWILL_SCHEDULE_LANES + lane];
            *l = (struct network_lane){.job = job, .rank = r, .lane = lane};
            l->posted = calloc(job->schedules[r].most_posted + 1u, sizeof(*l->posted));
            if (l->posted == NULL)
                return false;
            sg_actor_t actor = sg_actor_init(host, sg_host_by_name(host));
            sg_actor_set_data(actor, l);
            sg_actor_start_(actor, run_lane, 0, NULL);
        }
    }
    return true;
}

/* Allocate what close_job() frees, and make the actors. Returns false if out of memory. */
static bool open_job(struct network_job *job)
{
    uint32_t ranks = job->call->world->size;
    size_t lanes = (size_t)ranks * TWILL_SCHEDULE_LANES;
    job->ordinals = most_signals(job, ranks) + 1;
    job->lanes = calloc(lanes, sizeof(*job->lanes));
    job->raised = calloc(lanes * job->ordinals, sizeof(*job->raised));
    job->core_free = calloc(ranks, sizeof(*job->core_free));
    job->flags = calloc(ranks, sizeof(sg_cond_t));
    job->detour_at = calloc(ranks, sizeof(*job->detour_at));
    job->detour_draw = calloc(ranks, sizeof(*job->detour_draw));
    job->mutex = sg_mutex_init();
    job->start = job->end = simgrid_get_clock() + SETUP;
    for (uint32_t r = 0;
         r < ranks && job->call->detours > 0 && job->detour_at != NULL && job->detour_draw != NULL;
         r++) {
        job->detour_draw[r] = job->call->seed << 32 | r;
        job->detour_at[r] = job->start + draw_detour(job, r);
    }
    return job->detour_at != NULL && job->detour_draw != NULL && job->lanes != NULL &&
           job->raised != NULL && job->core_free != NULL && job->flags != NULL && open_lanes(job);
}

/* Free all that open_job() made, even in part, and the schedules. */
static void close_job(struct network_job *job)
{
    for (uint32_t r = 0; r < job->call->world->size; r++) {
        for (uint32_t lane = 0; lane < TWILL_SCHEDULE_LANES && job->lanes != NULL; lane++)
            free(job->lanes[(size_t)r * TWILL_SCHEDULE_LANES + lane].posted);
        if (job->flags != NULL && job->flags[r] != NULL)
            sg_cond_destroy(job->flags[r]);
        twill_schedule_destroy(&job->schedules[r]);
    }
    sg_mutex_destroy(job->mutex);
    free(job->lanes);
    free(job->raised);
    free(job->core_free);
    free(job->detour_at);
    free(job->detour_draw);
    free(job->flags);
    free(job->schedules);
}

double network_run(const struct simulated_call *call, struct twill_error *error)
{
    struct network_job job = {.call = call};
    job.schedules = calloc(call->world->size, sizeof(*job.schedules));
    for (uint32_t r = 0; r < call->world->size && job.schedules != NULL; r++)
        if (twill_schedule_emit(&job.schedules[r], call->algorithm, call->world, r, &call->shape,
                                error) != TWILL_OK)
            return -1;
    if (job.schedules == NULL || !open_job(&job))
        return (void)TWILL_FAIL(error, TWILL_ERR_MEMORY, "no memory for %u ranks",
                                call->world->size),
               -1;
    simgrid_run();
    close_job(&job);
    return job.end - job.start;
}

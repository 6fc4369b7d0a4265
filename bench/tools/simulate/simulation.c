/* SPDX-License-Identifier: Apache-2.0 */
/* The simulation handles events of workers, messages and links in the order of time.
 * An actor (a worker, or a group in step) computes a gradient, sends a message for each shard to
 * the server, and computes the next gradient when it has all shards back. A message has a latency,
 * crosses the incoming link of the server, and is served after those that came before it. The reply
 * crosses the outgoing link and also has a latency. Each shard has a version, the number of its
 * updates. The staleness of a gradient is its increase since the actor read the shard. */
#include "bench/tools/simulate/simulation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum message_phase { MESSAGE_IDLE, MESSAGE_OUT, MESSAGE_SERVED, MESSAGE_AGGREGATED, MESSAGE_BACK };

/* The messages between an actor and a shard, with index actor * shards + shard. */
struct simulated_exchange {
    enum message_phase phase;
    uint64_t version; /* of the shard, when the actor read it */
};

/* A worker, or a group of workers in step. Times are in seconds. */
struct simulated_actor {
    double duration, pushed; /* how long its last gradient takes, and when its last one was sent */
    uint32_t going, coming;  /* shards whose message is not yet at the server, and not yet back */
    uint64_t clock;          /* gradients of this actor that the server has received */
};

/* A shard of the parameters at the simulated server. */
struct simulated_shard {
    struct learning_range range;
    uint64_t version;
    uint32_t count;   /* gradients since the last update */
    uint32_t waiting; /* number of actors that wait for the update */
    uint32_t *waits;  /* which actors */
};

/* A simulation in progress. simulation_run() has it on its stack and frees its parts. */
struct simulation {
    const struct simulation_setup *setup;
    struct simulation_result *result;
    struct simulation_rules rules;
    struct random_source random;
    struct learning learning;
    /* seconds, where server_free is when the server has done its work so far */
    double now, server_free, measured_from;
    bool measuring, ended;
    struct event_heap events; /* slots are actors, messages, incoming link, outgoing link */
    uint64_t scheduled;       /* orders events of equal times */
    struct shared_link in, out;
    uint32_t shards;
    struct simulated_actor *actors;
    struct simulated_exchange *messages;
    struct simulated_shard *shard;
    uint32_t *held, held_count; /* actors too far ahead, with bounded staleness */
    uint64_t lowest_clock;      /* of all actors */
    uint32_t at_lowest;         /* how many actors have it */
};

/* Schedule the next end of a message on a link, or cancel it if none is in progress. */
static void schedule_link(struct simulation *s, const struct shared_link *link)
{
    uint32_t slot = s->rules.actors * (s->shards + 1) + (link == &s->out);
    double next = shared_link_next(link);
    if (isfinite(next))
        event_heap_set(&s->events, slot, next, s->scheduled++);
    else
        event_heap_remove(&s->events, slot);
}

/* Schedule an event of a message, at equal times in random order if there are several shards. */
static void schedule_message(struct simulation *s, uint32_t message, double time)
{
    uint64_t order = s->scheduled++;
    if (s->shards > 1)
        order = random_word(&s->random) | UINT64_C(1) << 63;
    event_heap_set(&s->events, s->rules.actors + message, time, order);
}

/* Schedule the end of an actor's next gradient, for which its slowest worker decides. */
static void begin_gradient(struct simulation *s, uint32_t actor)
{
    double longest = 0;
    for (uint32_t i = 0; i < s->rules.members; i++) {
        double time = law_draw(&s->setup->compute, &s->random);
        if (actor * s->rules.members + i < s->setup->slow_workers)
            time *= s->setup->slow_factor;
        longest = time > longest ? time : longest;
    }
    s->actors[actor].duration = longest;
    event_heap_set(&s->events, actor, s->now + longest, s->scheduled++);
}

/* Send an actor's gradient to all shards, in a message to each after a latency. */
static void send_gradient(struct simulation *s, uint32_t actor)
{
    s->actors[actor].pushed = s->now;
    s->actors[actor].going = s->actors[actor].coming = s->shards;
    for (uint32_t i = 0; i < s->shards; i++) {
        s->messages[actor * s->shards + i].phase = MESSAGE_OUT;
        schedule_message(s, actor * s->shards + i,
                         s->now + law_draw(&s->setup->latency, &s->random));
    }
}

/* Send an actor the current values of a shard. */
static void reply(struct simulation *s, uint32_t actor, uint32_t shard)
{
    uint32_t message = actor * s->shards + shard;
    s->messages[message] = (struct simulated_exchange){MESSAGE_BACK, s->shard[shard].version};
    learning_read(&s->learning, actor, s->shard[shard].range);
    if (s->setup->bytes > 0) {
        shared_link_send(&s->out, message, s->now);
        schedule_link(s, &s->out);
    } else {
        schedule_message(s, message, s->now + law_draw(&s->setup->latency, &s->random));
    }
}

/* Send an actor the current values of all shards. */
static void reply_all(struct simulation *s, uint32_t actor)
{
    s->actors[actor].coming = s->shards;
    for (uint32_t i = 0; i < s->shards; i++)
        reply(s, actor, i);
}

/* Cancel an actor's gradient or message in progress, and send it the new values, from which it
 * begins again. While measuring, counts it as dropped unless the server has aggregated it already.
 * Modes that cancel have one shard, which this relies on. */
static void cancel(struct simulation *s, uint32_t actor)
{
    enum message_phase phase = s->messages[actor].phase;
    if (phase <= MESSAGE_SERVED)
        s->result->dropped += s->measuring;
    event_heap_remove(&s->events, actor);
    event_heap_remove(&s->events, s->rules.actors + actor);
    if (s->setup->bytes > 0) {
        shared_link_cancel(&s->in, actor, s->now);
        shared_link_cancel(&s->out, actor, s->now);
        schedule_link(s, &s->in);
        schedule_link(s, &s->out);
    }
    reply_all(s, actor);
}

/* After an update of the first shard, note the loss, and begin or end to measure if it is time. A
 * loss beyond all bounds also ends the simulation. */
static void note_update(struct simulation *s, uint64_t update)
{
    const struct simulation_setup *setup = s->setup;
    struct simulation_result *result = s->result;
    uint64_t spacing = setup->updates / (SIMULATION_POINTS - 1);
    double loss = learning_loss(&s->learning);
    if (spacing > 0 && update % spacing == 0 && update / spacing < SIMULATION_POINTS)
        result->curve[update / spacing] = (struct simulation_point){s->now, loss};
    if (update > setup->updates / 2)
        result->floor += loss / (double)(setup->updates - setup->updates / 2);
    if (!(loss < 1e9 * (setup->problem.dimensions + 1)))
        result->diverged = update;
    if (update == setup->skipped) {
        s->measuring = true;
        s->measured_from = s->now;
    }
    if (update == setup->updates || result->diverged > 0) {
        s->ended = true;
        result->updates = update > setup->skipped ? update - setup->skipped : 0;
        result->elapsed = s->now - s->measured_from;
    }
}

/* Update a shard by the gradients that were added to it. If the mode cancels, cancel the work of
 * all actors, unless setup->late_pushes. Otherwise send the new values to the actors that wait. */
static void update_shard(struct simulation *s, uint32_t number)
{
    struct simulated_shard *shard = &s->shard[number];
    learning_update(&s->learning, shard->range, s->rules.needed);
    shard->count = 0;
    shard->version++;
    if (number == 0)
        note_update(s, shard->version);
    if (s->rules.cancels && !s->setup->late_pushes) {
        shard->waiting = 0;
        for (uint32_t actor = 0; actor < s->rules.actors; actor++)
            cancel(s, actor);
        return;
    }
    for (uint32_t i = 0; i < shard->waiting; i++)
        reply(s, shard->waits[i], number);
    shard->waiting = 0;
}

/* Let an actor whose gradient the server has continue, unless it is too far ahead of others. If it
 * was the last of the slowest, let the actors that were held continue. */
static void advance_clock(struct simulation *s, uint32_t actor)
{
    uint64_t clock = ++s->actors[actor].clock;
    bool lowest_moved = clock == s->lowest_clock + 1 && --s->at_lowest == 0;
    if (lowest_moved) {
        s->lowest_clock++;
        for (uint32_t i = 0; i < s->rules.actors; i++)
            s->at_lowest += s->actors[i].clock == s->lowest_clock;
    }
    if (clock - s->lowest_clock > s->result->furthest_ahead)
        s->result->furthest_ahead = (uint32_t)(clock - s->lowest_clock);
    if (clock - s->lowest_clock > s->rules.bound)
        s->held[s->held_count++] = actor;
    else
        reply_all(s, actor);
    if (!lowest_moved)
        return;
    uint32_t count = s->held_count; /* all of them were ahead by the bound plus 1 */
    s->held_count = 0;
    for (uint32_t i = 0; i < count; i++)
        reply_all(s, s->held[i]);
}

/* Count a gradient that is used, with its staleness, if the simulation is measuring. */
static void note_gradient(struct simulation *s, uint32_t actor, uint64_t staleness)
{
    struct simulation_result *result = s->result;
    if (!s->measuring)
        return;
    uint64_t last = SIMULATION_STALENESS - 1;
    result->staleness[staleness < last ? staleness : last]++;
    result->staleness_sum += (double)staleness;
    if (staleness > result->largest_staleness)
        result->largest_staleness = staleness;
    result->used++;
    result->busy += s->actors[actor].duration * s->rules.members / s->shards;
}

/* Add a gradient that a shard has received, or drop it if late, and update or reply if due. */
static void aggregate(struct simulation *s, uint32_t actor, uint32_t number)
{
    struct simulated_shard *shard = &s->shard[number];
    struct simulated_exchange *message = &s->messages[actor * s->shards + number];
    uint64_t staleness = shard->version - message->version;
    message->phase = MESSAGE_AGGREGATED;
    if (s->measuring && s->actors[actor].pushed >= s->measured_from) {
        s->result->push_mean += s->now - s->actors[actor].pushed;
        s->result->pushes++;
    }
    if (s->rules.cancels && staleness > 0) { /* late */
        s->result->dropped += s->measuring;
        reply_all(s, actor);
        return;
    }
    note_gradient(s, actor, staleness);
    learning_add(&s->learning, actor, shard->range, s->rules.members, staleness, &s->random);
    bool last = --s->actors[actor].going == 0;
    if (s->rules.waits)
        shard->waits[shard->waiting++] = actor;
    bool updates = ++shard->count == s->rules.needed;
    if (updates)
        update_shard(s, number);
    if (s->rules.bound != UINT32_MAX && last)
        advance_clock(s, actor);
    bool replied = s->rules.waits || (updates && s->rules.cancels && !s->setup->late_pushes);
    if (s->rules.bound == UINT32_MAX && !replied)
        reply(s, actor, number);
}

/* Let the server aggregate a message, after those that are there. */
static void serve(struct simulation *s, uint32_t message)
{
    double begin = s->now > s->server_free ? s->now : s->server_free;
    s->server_free = begin + law_draw(&s->setup->service, &s->random) / s->shards;
    s->messages[message].phase = MESSAGE_SERVED;
    schedule_message(s, message, s->server_free);
}

/* Move a message on when its latency is over, or the server's work for it. One that has reached the
 * server enters the server's link or, if links take no time, its queue. One that the server has
 * worked on is aggregated. After the last reply its actor begins the next gradient. */
static void message_event(struct simulation *s, uint32_t message)
{
    const struct simulation_setup *setup = s->setup;
    uint32_t actor = message / s->shards;
    switch (s->messages[message].phase) {
    case MESSAGE_OUT:
        if (setup->bytes > 0) {
            shared_link_send(&s->in, message, s->now);
            schedule_link(s, &s->in);
        } else {
            serve(s, message);
        }
        break;
    case MESSAGE_SERVED:
        aggregate(s, actor, message % s->shards);
        break;
    default: /* back */
        s->messages[message].phase = MESSAGE_IDLE;
        if (--s->actors[actor].coming == 0)
            begin_gradient(s, actor);
    }
}

/* Execute the next event. */
static void next_event(struct simulation *s)
{
    struct pending_event event = s->events.events[0];
    uint32_t actors = s->rules.actors, links = actors * (s->shards + 1);
    event_heap_remove(&s->events, event.slot);
    s->now = event.time;
    if (event.slot < actors) {
        send_gradient(s, event.slot);
    } else if (event.slot < links) {
        message_event(s, event.slot - actors);
    } else if (event.slot == links) {
        uint32_t message = shared_link_take(&s->in, s->now);
        schedule_link(s, &s->in);
        serve(s, message);
    } else {
        uint32_t message = shared_link_take(&s->out, s->now);
        schedule_link(s, &s->out);
        schedule_message(s, message, s->now + law_draw(&s->setup->latency, &s->random));
    }
}

/* Make the links into and out of the server. Returns false if out of memory. */
static bool create_links(struct simulation *s)
{
    const struct simulation_setup *setup = s->setup;
    struct shared_link *links[] = {&s->in, &s->out};
    for (int i = 0; i < 2; i++) {
        *links[i] = (struct shared_link){
            .capacity = setup->server_link * setup->endpoints,
            .most = setup->worker_link / s->shards,
            .length = setup->bytes / s->shards,
            .credits = setup->credits,
        };
        if (!shared_link_create(links[i], s->rules.actors * s->shards))
            return false;
    }
    return true;
}

/* Make the shards, with about equal parts of the parameters. Returns false if out of memory. */
static bool create_shards(struct simulation *s)
{
    uint32_t dimensions = s->setup->problem.dimensions;
    s->shard = calloc(s->shards, sizeof(*s->shard));
    for (uint32_t i = 0; s->shard != NULL && i < s->shards; i++) {
        struct simulated_shard *shard = &s->shard[i];
        shard->range.first = (uint32_t)((uint64_t)dimensions * i / s->shards);
        shard->range.end = (uint32_t)((uint64_t)dimensions * (i + 1) / s->shards);
        shard->waits = calloc(s->rules.actors, sizeof(uint32_t));
        if (shard->waits == NULL)
            return false;
    }
    return s->shard != NULL;
}

/* Make all parts of a simulation. Returns false if out of memory. Free it in any case. */
static bool create_simulation(struct simulation *s)
{
    uint32_t actors = s->rules.actors;
    s->actors = calloc(actors, sizeof(*s->actors));
    s->messages = calloc((size_t)actors * s->shards, sizeof(*s->messages));
    s->held = calloc(actors, sizeof(*s->held));
    s->at_lowest = actors;
    return s->actors != NULL && s->messages != NULL && s->held != NULL && create_shards(s) &&
           event_heap_create(&s->events, actors * (s->shards + 1) + 2) && create_links(s) &&
           learning_create(&s->learning, &s->setup->problem, actors);
}

/* Free all parts of a simulation, also of one that was made in part, but not the struct. */
static void free_simulation(struct simulation *s)
{
    learning_free(&s->learning);
    shared_link_free(&s->in);
    shared_link_free(&s->out);
    event_heap_free(&s->events);
    for (uint32_t i = 0; s->shard != NULL && i < s->shards; i++)
        free(s->shard[i].waits);
    free(s->shard);
    free(s->held);
    free(s->messages);
    free(s->actors);
}

bool simulation_run(struct simulation_result *result, const struct simulation_setup *setup)
{
    const char *wrong;
    struct simulation s = {.setup = setup, .result = result, .random = {setup->seed}};
    *result = (struct simulation_result){0};
    if (!simulation_rules_of(&s.rules, setup->choice, setup->workers, &wrong))
        return false;
    s.shards = s.rules.cancels ? 1 : setup->shards;
    bool good = create_simulation(&s);
    if (good) {
        for (int i = 0; i < SIMULATION_POINTS; i++)
            result->curve[i].loss = NAN;
        note_update(&s, 0);
        struct learning_range all = {0, setup->problem.dimensions};
        for (uint32_t actor = 0; actor < s.rules.actors; actor++) {
            learning_read(&s.learning, actor, all);
            begin_gradient(&s, actor);
        }
        while (!s.ended)
            next_event(&s);
        result->push_mean /= result->pushes > 0 ? (double)result->pushes : 1;
    }
    free_simulation(&s);
    return good;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter server and its workers as a discrete-event simulation. README.md has the model. */
#ifndef TWILL_SIMULATION_H
#define TWILL_SIMULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A binary heap of pending events, one for each slot at most, so that an event can be moved or
 * cancelled in O(log n). */

struct pending_event {
    double time;
    uint64_t order; /* of events of equal time the lowest comes first */
    uint32_t slot;
};

struct event_heap {
    struct pending_event *events; /* `count` of them; the first is the earliest */
    uint32_t *place;              /* of each slot in `events`, or EVENT_NONE */
    uint32_t count;
};

#define EVENT_NONE UINT32_MAX

/* Make an empty heap for slots 0 to slots - 1. Returns false without memory; free it even then. */
bool event_heap_create(struct event_heap *heap, uint32_t slots);
void event_heap_free(struct event_heap *heap);
/* Schedule the event of a slot; the one that it had is replaced. */
void event_heap_set(struct event_heap *heap, uint32_t slot, double time, uint64_t order);
/* Cancel the event of a slot, if there is one. Returns whether there was. */
bool event_heap_remove(struct event_heap *heap, uint32_t slot);

/* A link that messages share: all of a server's endpoints in one direction. Messages under way get
 * equal rates, as TCP's and as max-min fairness gives them, and none more than its worker's link
 * has. With credits at most that many are under way, and the others wait in the order of arrival.
 */

struct shared_link {
    double capacity, most;   /* bytes per second: of all messages together, of one */
    double length;           /* of a message, bytes; all are as long */
    uint32_t credits;        /* messages under way at most */
    double served;           /* bytes that each message has got which was there all the time */
    double last;             /* time of `served` */
    struct event_heap flows; /* messages under way, by the value of `served` at which they end */
    struct event_heap queue; /* messages without a credit, by their arrival */
    uint64_t arrivals;
};

/* Make a link for messages 0 to messages - 1. Returns false without memory. */
bool shared_link_create(struct shared_link *link, uint32_t messages);
void shared_link_free(struct shared_link *link);
void shared_link_send(struct shared_link *link, uint32_t message, double now);
/* Take a message off the link, wherever it is. */
void shared_link_cancel(struct shared_link *link, uint32_t message, double now);
/* Return when the next message will have crossed; INFINITY if there is none. */
double shared_link_next(const struct shared_link *link);
/* Return the message that has crossed at this time, which is that of shared_link_next(). */
uint32_t shared_link_take(struct shared_link *link, double now);

/* Laws of probability that times are drawn from, and what is known of them exactly. */

/* A generator of random numbers (splitmix64): the state alone. */
struct random_source {
    uint64_t state;
};

uint64_t random_word(struct random_source *source);
/* Return a number of the normal law of mean 0 and variance 1. */
double random_normal(struct random_source *source);

/* X(NOUN, name, how many numbers, which numbers) */
#define LAW_KINDS(X)                                                                               \
    X(CONSTANT, "const", 1, "TIME")                                                                \
    X(EXPONENTIAL, "exp", 1, "MEAN")                                                               \
    X(SHIFTED, "shifted", 2, "SHIFT,MEAN") /* SHIFT plus an exponential time of this MEAN */       \
    X(UNIFORM, "uniform", 2, "MIN,MAX")                                                            \
    X(PARETO, "pareto", 2, "MIN,SHAPE")                                                            \
    X(MEASURED, "list", 0, "FILE")

enum law_kind {
#define X(NOUN, name, numbers, meaning) LAW_##NOUN,
    LAW_KINDS(X)
#undef X
        LAW_KIND_COUNT
};

struct law {
    enum law_kind kind;
    double a, b;     /* the numbers of its text */
    double *samples; /* LAW_MEASURED: drawn from with replacement */
    size_t count;
};

/* Parse "exp:1", "uniform:0.5,1.5", "list:FILE" (numbers, blanks or lines between them). Returns
 * false, and what is wrong, if that is no law of times; free the law even then. */
bool law_parse(struct law *law, const char *text, const char **wrong);
void law_free(struct law *law);
/* Return whether every time of this law is 0. */
bool law_is_zero(const struct law *law);
double law_draw(const struct law *law, struct random_source *source);
/* Return the mean; INFINITY for a Pareto law of shape 1 or less. */
double law_mean(const struct law *law);
/* Return the expected k-th smallest of n independent times, 1 <= k <= n; NAN if there is no closed
 * form here (a measured list) or it is infinite. */
double law_order_statistic(const struct law *law, uint32_t k, uint32_t n);
/* Return H_n - H_(n-k) = 1/n + ... + 1/(n-k+1). */
double harmonic_difference(uint32_t k, uint32_t n);

/* X(NOUN, name, parameter, help). */
#define SIMULATION_MODES(X)                                                                        \
    X(SYNC, "sync", "", "an update needs the gradients of all workers")                            \
    X(K_SYNC, "k-sync", "K", "of the first K workers; the others' work is cancelled")              \
    X(K_BATCH_SYNC, "k-batch-sync", "K", "the first K gradients, of any workers; then as k-sync")  \
    X(K_ASYNC, "k-async", "K", "of the first K workers; the others go on")                         \
    X(K_BATCH_ASYNC, "k-batch-async", "K", "the first K gradients, of any workers, none waits")    \
    X(ASYNC, "async", "", "each gradient is an update")                                            \
    X(SOFTSYNC, "softsync", "N", "floor(workers / N) gradients, of any workers, none waits")       \
    X(BOUNDED, "bounded", "S", "as async, but none is more than S gradients ahead of another")     \
    X(GROUPS, "groups", "G", "G groups, each in step; a group's gradient is an update")

enum simulation_mode {
#define X(NOUN, name, parameter, help) SIMULATION_##NOUN,
    SIMULATION_MODES(X)
#undef X
        SIMULATION_MODE_COUNT
};

/* A mode with its parameter. */
struct simulation_choice {
    enum simulation_mode mode;
    uint32_t parameter;
};

/* What a mode means for some number of workers. */
struct simulation_rules {
    uint32_t actors;  /* that push: workers, or groups of them */
    uint32_t members; /* workers of an actor */
    uint32_t needed;  /* gradients of an update */
    bool waits;       /* an actor that has pushed waits for the update */
    bool cancels;     /* an update cancels what the others do */
    uint32_t bound;   /* gradients that an actor may be ahead; UINT32_MAX: any number */
};

/* How much a gradient counts: the rules of twill_server_rate. */
enum simulation_rate { RATE_FIXED, RATE_STALENESS, RATE_DISTANCE };

/* The function that is minimised: sum of h[i] * w[i]^2 / 2, with h between 1 / condition and 1 in
 * equal ratios; a worker sees its gradient plus noise. w begins as 1 everywhere. */
struct simulation_problem {
    uint32_t dimensions; /* 0: times only, nothing is minimised */
    double condition;
    double noise; /* standard deviation in each dimension of one worker's gradient */
    double rate;  /* learning rate */
    double distance_c, distance_most; /* RATE_DISTANCE: the factor is min(c / distance, most) */
    enum simulation_rate rule;
};

struct simulation_setup {
    struct simulation_choice choice;
    uint32_t workers, shards;
    struct law compute, latency,
        service;  /* of a gradient; of a message; at the server, of a push */
    double bytes; /* of all parameters; 0: links take no time */
    double server_link,
        worker_link; /* bytes per second, each direction; server_link: an endpoint */
    uint32_t endpoints, credits;
    uint32_t slow_workers;
    double slow_factor;
    bool late_pushes; /* nothing is cancelled: what is late is pushed, and dropped by the server */
    uint64_t updates, skipped; /* of a run; of them, before measuring begins */
    uint64_t seed;
    struct simulation_problem problem;
};

#define SIMULATION_STALENESS 4096 /* the last count is of all above */
#define SIMULATION_POINTS    101

struct simulation_point {
    double time, loss;
};

struct simulation_result {
    double elapsed;         /* of the updates that are measured */
    uint64_t updates;       /* that are measured */
    uint64_t used, dropped; /* gradients that became part of an update; that did not */
    double busy;            /* time of workers spent on gradients that were used */
    double push_mean;       /* time of a push: from the worker's start until it is aggregated */
    uint64_t pushes;
    uint64_t staleness[SIMULATION_STALENESS];
    uint64_t largest_staleness;
    double staleness_sum;
    uint32_t furthest_ahead; /* gradients that an actor was ahead of the last one, at most */
    double floor;            /* mean loss over the last half of the updates */
    uint64_t diverged;       /* the update at which the loss was beyond all bounds; 0: none */
    struct simulation_point curve[SIMULATION_POINTS]; /* at equal distances in updates */
};

/* Parse "k-sync:4". Returns false, and what is wrong, if that is no mode. */
bool simulation_parse_choice(struct simulation_choice *choice, const char *text,
                             const char **wrong);
/* Return what a mode means for this many workers; false, and why, if it cannot be. */
bool simulation_rules_of(struct simulation_rules *rules, struct simulation_choice choice,
                         uint32_t workers, const char **wrong);
/* Return the expected time of an update; NAN where no closed form is known. */
double simulation_closed_form(const struct simulation_setup *setup);
/* Return the factor of a gradient's learning rate, as twill_server_rate defines it: of a gradient
 * of this staleness, from parameters at this squared distance of those that it changes. */
double simulation_factor(const struct simulation_problem *problem, uint64_t staleness,
                         double distance);
/* Run. The result is a function of the setup alone. Returns false without memory. */
bool simulation_run(struct simulation_result *result, const struct simulation_setup *setup);

/* Parameters that the simulated server and its workers have, and the function they minimise. */

struct learning {
    const struct simulation_problem *problem;
    double *curvature, *values, *sums; /* of dimensions; sums: gradients times rates, so far */
    double *copies;                    /* of actors and dimensions: values when they were read */
};

/* A range of dimensions. */
struct learning_range {
    uint32_t first, end;
};

/* Returns false without memory; free it even then. The problem must outlive it. */
bool learning_create(struct learning *learning, const struct simulation_problem *problem,
                     uint32_t actors);
void learning_free(struct learning *learning);
/* An actor reads these values. */
void learning_read(struct learning *learning, uint32_t actor, struct learning_range range);
/* Add an actor's gradient, the mean of `members` workers', to the next update of a range. */
void learning_add(struct learning *learning, uint32_t actor, struct learning_range range,
                  uint32_t members, uint64_t staleness, struct random_source *random);
/* Update a range by the mean of this many gradients that were added. */
void learning_update(struct learning *learning, struct learning_range range, uint32_t gradients);
double learning_loss(const struct learning *learning);

#endif

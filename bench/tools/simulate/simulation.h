/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter server and its workers as a discrete-event simulation. README.md has the model. */
#ifndef TWILL_SIMULATION_H
#define TWILL_SIMULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An event in a heap (struct event_heap), at a time in simulated seconds. `slot` is the index of
 * whose event it is, as the user of the heap numbers actors, messages or links. */
struct pending_event {
    double time;
    uint64_t order; /* events of equal time come in ascending order of it */
    uint32_t slot;
};

/* A binary heap of pending events, with at most one for each slot, so that one can be moved or
 * cancelled in O(log n). Part of the struct that uses it. event_heap_create() makes its arrays,
 * event_heap_free() frees only these. */
struct event_heap {
    struct pending_event *events; /* `count` of them, the first of which is the earliest */
    uint32_t *place;              /* of each slot in `events`, or EVENT_NONE */
    uint32_t count;
};

#define EVENT_NONE UINT32_MAX

/* Make an empty heap for the events of slots 0 to `slots` - 1. Returns false if out of memory.
 * Always free it. */
bool event_heap_create(struct event_heap *heap, uint32_t slots);
/* Free the arrays of a heap, which must not be used again. */
void event_heap_free(struct event_heap *heap);
/* Schedule the event of a slot, replacing the one that it has. `order` decides at equal times. */
void event_heap_set(struct event_heap *heap, uint32_t slot, double time, uint64_t order);
/* Cancel the event of a slot, if there is one. Returns whether there was one. */
bool event_heap_remove(struct event_heap *heap, uint32_t slot);

/* A link that messages share, which is all endpoints of a server in one direction. Messages in
 * progress get equal rates, as with TCP and max-min fairness, and none gets more than the link of
 * its worker has. At most `credits` messages are in progress. Others wait in order of arrival. Part
 * of the simulation. shared_link_create() makes its heaps, shared_link_free() frees only these. */
struct shared_link {
    double capacity, most;   /* bytes per second of all messages together, and of one */
    double length;           /* bytes of a message, equal for all */
    uint32_t credits;        /* most messages in progress */
    double served;           /* bytes that a message has received which was there all the time */
    double last;             /* time of `served` */
    struct event_heap flows; /* messages in progress, by the value of `served` at which they end */
    struct event_heap queue; /* messages without a credit, by their arrival */
    uint64_t arrivals;       /* number of messages sent so far */
};

/* Make the heaps of a link for `messages` messages, or return false. Free it in any case. */
bool shared_link_create(struct shared_link *link, uint32_t messages);
/* Free the heaps of a link, which must not be used again. */
void shared_link_free(struct shared_link *link);
/* Send a message at this time. It is queued while there is no credit for it. */
void shared_link_send(struct shared_link *link, uint32_t message, double now);
/* Take a message off the link, wherever it is, or do nothing if it is not there. */
void shared_link_cancel(struct shared_link *link, uint32_t message, double now);
/* Return the time at which the next message will have crossed, INFINITY if there is none. */
double shared_link_next(const struct shared_link *link);
/* Remove and return the message that has crossed at `now`, the time of shared_link_next(). */
uint32_t shared_link_take(struct shared_link *link, double now);

/* A generator of random numbers (splitmix64). Its state begins as the seed. */
struct random_source {
    uint64_t state;
};

/* Return a random number of 64 bits. */
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

/* A law of probability of times, part of the setup of a simulation. law_parse() sets it, and
 * law_free() frees only its samples. */
struct law {
    enum law_kind kind;
    double a, b;     /* the numbers of its text */
    double *samples; /* of LAW_MEASURED, drawn with replacement */
    size_t count;    /* number of samples */
};

/* Parse "exp:1", "uniform:0.5,1.5" or "list:FILE" (numbers separated by blanks or lines). Returns
 * false and the fault in *wrong if that is no law of times. Free the law in any case. */
bool law_parse(struct law *law, const char *text, const char **wrong);
/* Free the samples of a law, if it has any. */
void law_free(struct law *law);
/* Return whether this is the constant law of time 0. Other laws are not tested, even if each of
 * their times is 0. */
bool law_is_zero(const struct law *law);
/* Draw a time from the law. */
double law_draw(const struct law *law, struct random_source *source);
/* Return the mean, which is INFINITY for a Pareto law of shape 1 or less. */
double law_mean(const struct law *law);
/* Return the expected k-th smallest of n times, 1 <= k <= n, or NAN if unknown or infinite. */
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

/* A mode with its parameter, which is 0 if the mode has none. */
struct simulation_choice {
    enum simulation_mode mode;
    uint32_t parameter;
};

/* The rules of a mode for some number of workers, set by simulation_rules_of(). */
struct simulation_rules {
    uint32_t actors;  /* actors that push, which are workers or groups of them */
    uint32_t members; /* workers of an actor */
    uint32_t needed;  /* gradients of an update */
    bool waits;       /* an actor that has pushed waits for the update */
    bool cancels;     /* an update cancels the work of all actors, which begin again */
    uint32_t bound;   /* gradients that an actor may be ahead, UINT32_MAX for any number */
};

/* The weight of a gradient, by the rules of twill_server_rate. */
enum simulation_rate { RATE_FIXED, RATE_STALENESS, RATE_DISTANCE };

/* The function that is minimised. It is the sum of h[i] * w[i]^2 / 2, with h between 1 / condition
 * and 1 in equal ratios. A worker sees its gradient plus noise. w begins as 1 everywhere. */
struct simulation_problem {
    uint32_t dimensions; /* 0 for times only, with nothing to minimise */
    double condition;
    double noise; /* standard deviation in each dimension of the gradient of one worker */
    double rate;  /* learning rate */
    double distance_c, distance_most; /* for RATE_DISTANCE, factor min(c / distance, most) */
    enum simulation_rate rule;
};

/* What is simulated. The caller sets all of it. Times are in seconds. */
struct simulation_setup {
    struct simulation_choice choice;
    uint32_t workers, shards; /* a mode that cancels work has one shard, whatever `shards` is */
    struct law compute, latency,
        service;  /* times of a gradient, of a message, and of a push at the server */
    double bytes; /* of all parameters, or 0 if links take no time */
    /* bytes per second in each direction, of an endpoint of the server and of a worker */
    double server_link, worker_link;
    uint32_t endpoints, credits;
    /* the first ones, whose times of gradients are multiplied by slow_factor */
    uint32_t slow_workers;
    double slow_factor;
    bool late_pushes;          /* nothing is cancelled, and the server drops late gradients */
    uint64_t updates, skipped; /* of a run, and those before measuring begins */
    uint64_t seed;
    struct simulation_problem problem;
};

#define SIMULATION_STALENESS 4096 /* the last count has all larger ones */
#define SIMULATION_POINTS    101

/* The loss of the minimised function at a time in simulated seconds. */
struct simulation_point {
    double time, loss;
};

/* The result of simulation_run(), for the updates after the skipped ones. Times are in seconds.
 * staleness[i] counts the used gradients that were computed from parameters i updates old. The last
 * counts all older ones. staleness_sum is the sum over all used gradients. */
struct simulation_result {
    double elapsed;         /* time of the measured updates */
    uint64_t updates;       /* number of measured updates */
    uint64_t used, dropped; /* gradients that became part of an update, and those that did not */
    double busy;            /* time that workers spent on gradients that were used */
    double push_mean; /* time of a push, from its start at the worker until it is aggregated */
    uint64_t pushes;  /* of which push_mean is the mean */
    uint64_t staleness[SIMULATION_STALENESS];
    uint64_t largest_staleness;
    double staleness_sum;
    uint32_t furthest_ahead; /* most gradients that an actor was ahead of the last one */
    double floor;            /* mean loss over the last half of the updates */
    uint64_t diverged;       /* the update at which the loss exceeded all bounds, or 0 */
    struct simulation_point curve[SIMULATION_POINTS]; /* at equal distances in updates */
};

/* Parse a mode such as "k-sync:4". Returns false and the fault in *wrong if it is none. */
bool simulation_parse_choice(struct simulation_choice *choice, const char *text,
                             const char **wrong);
/* Set the rules of a mode for this number of workers, or return false and the reason in *wrong. */
bool simulation_rules_of(struct simulation_rules *rules, struct simulation_choice choice,
                         uint32_t workers, const char **wrong);
/* Return the expected time of an update, NAN where no closed form is known. */
double simulation_closed_form(const struct simulation_setup *setup);
/* Return the factor of the learning rate of a gradient, as twill_server_rate defines it, from its
 * staleness and the squared distance of its parameters from those that it changes. */
double simulation_factor(const struct simulation_problem *problem, uint64_t staleness,
                         double distance);
/* Simulate the setup into *result. Returns false for an impossible mode or without memory. */
bool simulation_run(struct simulation_result *result, const struct simulation_setup *setup);

/* The parameters w of the function in `problem`, which are simulated from learning_create() to
 * learning_free(). These make and free the arrays of the struct, which is part of the simulation.
 * `curvature` has the factors h of the function, and `sums` what the next update subtracts,
 * gradients times learning rates. */
struct learning {
    const struct simulation_problem *problem;
    double *curvature, *values, *sums; /* [dimensions] */
    double *copies;                    /* [actors][dimensions] values that the actors have read */
};

/* The parameters from `first` to `end` - 1. */
struct learning_range {
    uint32_t first, end;
};

/* Make the parameters, which are all 1, and room for the copy that each of `actors` actors has
 * read. Returns false if out of memory. Always call learning_free(), while the problem exists. */
bool learning_create(struct learning *learning, const struct simulation_problem *problem,
                     uint32_t actors);
/* Free the arrays of the parameters, also after learning_create() has failed. */
void learning_free(struct learning *learning);
/* Copy the present values of a range to those that an actor has read. */
void learning_read(struct learning *learning, uint32_t actor, struct learning_range range);
/* Add a gradient of an actor, the mean of `members` workers, to the next update of a range. */
void learning_add(struct learning *learning, uint32_t actor, struct learning_range range,
                  uint32_t members, uint64_t staleness, struct random_source *random);
/* Subtract the mean of this many added gradients from a range, and forget them. */
void learning_update(struct learning *learning, struct learning_range range, uint32_t gradients);
/* Return the loss with the present values. */
double learning_loss(const struct learning *learning);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter server and its workers as a discrete-event simulation. README.md has the model. */
#ifndef TWILL_SIMULATION_H
#define TWILL_SIMULATION_H

#include "bench/tools/simulate/laws.h"

#include <stdbool.h>
#include <stdint.h>

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

const char *simulation_mode_name(enum simulation_mode mode);
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

#endif

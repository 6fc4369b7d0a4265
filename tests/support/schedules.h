/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of algorithms: worlds of many shapes, the schedules of all their ranks, costs, measured
 * timings, and a simulation. */
#ifndef TWILL_SCHEDULES_H
#define TWILL_SCHEDULES_H

#include "algorithms/algorithms.h"
#include "algorithms/select/tuning_file.h"
#include "tests/support/run.h"

/* Size of tables with a row per algorithm; test_algorithm_index() is an algorithm's row, its index
 * in the registry. */
#define TEST_ALGORITHMS 64
size_t test_algorithm_index(const struct twill_algorithm *algorithm);
/* Return the algorithm of this name, or NULL. */
const struct twill_algorithm *test_algorithm_find(const char *name);

/* An algorithm, a world and a shape, for which schedules are emitted, with a name for messages. */
struct test_case {
    const struct twill_algorithm *algorithm;
    struct twill_world *world;
    struct twill_shape shape;
    char name[160];
};

typedef void (*test_case_fn)(const struct test_case *test, void *user);

/* How ranks are placed on nodes. */
enum test_placement {
    TEST_ONE_NODE,
    TEST_ALL_NODES,     /* one rank per node */
    TEST_PAIRS,         /* two per node, the last one possibly alone */
    TEST_HALVES,        /* two nodes */
    TEST_SQUARE,        /* about as many nodes as ranks per node */
    TEST_RAGGED,        /* nodes of 1, 2, 3, ... ranks */
    TEST_ROUND_ROBIN,   /* over three nodes */
    TEST_LONE_AND_MANY, /* rank 0 alone, all others on one node */
    TEST_RANDOM,        /* random, by seed */
    TEST_GROUPS, /* random groups of nodes of one rank, or of random nodes if `size` is even */
    TEST_PLACEMENT_COUNT
};

/* Create the world; false if the shape is that of an earlier placement at this size. */
bool test_world(struct twill_world *world, uint32_t size, unsigned placement, uint32_t seed);
/* Create the world of ranks that are on nodes as TWILL_LAYOUT=nodes has them; "": on one. */
void test_world_of_nodes(struct twill_world *world, const char *nodes, int size);
/* Call fn for every algorithm, collective, protocol and order, vector or not, with some parameters,
 * that applies to this world, and `roots` roots of rooted collectives (0: all). Of cases that may
 * have equal schedules the strictest comes first. TEST_ALGORITHM=name and TEST_COLLECTIVE=name
 * select one. */
void test_each_case(struct twill_world *world, uint32_t roots, test_case_fn fn, void *user);
/* Do this in the worlds of all placements of `size` ranks. */
void test_each_case_of(uint32_t size, uint32_t seed, uint32_t roots, test_case_fn fn, void *user);
/* Return the schedules of all ranks, or NULL with an error. Released by test_schedules_destroy().
 */
struct twill_schedule *test_try_emit(const struct test_case *test, struct twill_error *error);
/* Return the schedules of all ranks; fails the test if they cannot be emitted. */
struct twill_schedule *test_emit(const struct test_case *test);
/* Hashes of the schedules seen since the algorithm, world, collective, protocol, root or parameters
 * changed. */
#define TEST_SEEN 64
struct test_seen {
    struct test_case last;
    uint64_t hash[TEST_SEEN];
    unsigned count;
};
/* Return whether equal schedules were seen for a shape at least as strict, so that what was found
 * of them holds for this case too. Adds them otherwise. */
bool test_is_covered(struct test_seen *seen, const struct test_case *test,
                     const struct twill_schedule *schedules);
/* Return whether all ranks, or none, leave out the initial synchronisation where an exchange of
 * buffer addresses may replace it, and whether the schedules of "direct" leave it out where they
 * should. */
bool test_enters_alike(const struct test_case *test, const struct twill_schedule *schedules);
void test_schedules_destroy(struct twill_schedule *schedules, uint32_t size);

/* Costs of one rank's schedule for a message of `count` elements, all shards together, shards of
 * one size. */
struct test_schedule_cost {
    uint32_t messages;     /* SENDs */
    uint32_t rounds;       /* WAITs with messages posted before them */
    uint32_t peers;        /* distinct ranks sent to or received from */
    uint32_t signals;      /* SIGNALs and PUT_IMMs */
    uint64_t bytes_sent;   /* by SEND, to all ranks */
    uint64_t bytes_remote; /* by SEND, to ranks of other nodes */
    uint64_t bytes_shared; /* read from or written to peers' memory on the node */
    uint64_t bytes_reduced;
};
void test_schedule_cost(struct test_schedule_cost *cost, const struct twill_schedule *schedule,
                        const struct twill_world *world, uint32_t rank, size_t count,
                        size_t element);

/* Print a schedule as text, one step a line; the format is stable, for golden files. Returns the
 * length as snprintf() does. */
size_t test_schedule_print(const struct twill_schedule *schedule, char *text, size_t capacity);
twill_status test_schedule_parse(struct twill_schedule *schedule, const char *text,
                                 struct twill_error *error);

/* Sum and maximum over all ranks. */
struct test_costs {
    struct test_schedule_cost sum, most;
    uint32_t crossing; /* ranks that send to other nodes */
};

/* Return the costs for count elements of 4 bytes. */
struct test_costs test_cost_of(const char *name, struct twill_world *world,
                               const struct twill_shape *shape, size_t count);
/* Create a world of `nodes` nodes of `ranks` ranks each. */
void test_grid(struct twill_world *world, uint32_t nodes, uint32_t ranks);
uint32_t test_floor_log(uint32_t n);
uint32_t test_ceil_log(uint32_t n);

/* Return the cheapest candidate that may be chosen for these bytes with this access (enum
 * twill_access), or NULL. */
struct twill_candidates;
const struct twill_candidate *test_cheapest(const struct twill_candidates *all, size_t bytes,
                                            unsigned access);

/* A chooser and what it needs. */
struct test_chooser {
    struct twill_world world;
    struct twill_tuning *tuning;
    struct twill_chooser *chooser;
};
/* Open one for a world as twill_world_declare() reads it, with the measurements of a tuning file's
 * text and an override, each of which may be NULL. */
void test_chooser_open(struct test_chooser *c, const char *world, const char *timings,
                       const char *requested);
struct twill_choice test_chooser_choice(struct test_chooser *c,
                                        const struct twill_select_request *request);
void test_chooser_close(struct test_chooser *c);

/* Load lib/tuning/sapphire-rapids-2-cores.tuning. The caller destroys it. */
struct twill_tuning *test_timings(void);

/* The machine that file is for. */
extern const struct twill_tuning_key test_timings_key;

/* Simulate three runs, interleaved by seed. Returns NULL if every rank got the right values, equal
 * on all ranks, in every run; else what went wrong. */
const char *test_simulate(const struct twill_schedule *schedules, const struct twill_world *world,
                          const struct twill_shape *shape, bool in_place, uint32_t seed);

/* Return how often a closed ring over these ranks crosses between units. */
uint32_t test_crossings(uint32_t size, const uint32_t *ranks, const uint32_t *unit);

#endif

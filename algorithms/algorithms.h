/* SPDX-License-Identifier: Apache-2.0 */
/* The algorithms: pure functions that emit schedules, their registry, the selector, the verifier,
 * the printer. */
#ifndef TWILL_ALGORITHMS_H
#define TWILL_ALGORITHMS_H

#include "algorithms/schedule.h"

enum twill_collective {
    TWILL_ALLREDUCE,
    TWILL_BROADCAST,
    TWILL_BARRIER, /* an allreduce of nothing */
    TWILL_COLLECTIVE_COUNT
};
const char *twill_collective_name(enum twill_collective collective);

/* Messages from this size up are worth asking whether all buffers are mapped. Zero-copy saves two
 * copies, but has every rank wait for the slowest at the end and touch pages of all peers: it pays
 * when a copy takes longer than a synchronisation. */
#define TWILL_MAPPED_BYTES ((size_t)4 << 10)

/* How the ranks of one node exchange data in a composed schedule. */
enum twill_flavour {
    TWILL_FLAVOUR_IMM,  /* up to 48 bytes, in the line of the flag; everyone folds everything */
    TWILL_FLAVOUR_FLAT, /* small: through SHARED, everyone folds everything, one synchronisation */
    TWILL_FLAVOUR_STAGED, /* through SHARED, each folds its slice, two synchronisations */
    TWILL_FLAVOUR_MAPPED, /* peers' SRC and DST read and written in place */
    TWILL_FLAVOUR_COUNT
};
const char *twill_flavour_name(enum twill_flavour flavour);
/* Does each rank of a node have a part of its own to fold? */
static inline bool twill_flavour_is_sharded(enum twill_flavour flavour)
{
    return flavour == TWILL_FLAVOUR_STAGED || flavour == TWILL_FLAVOUR_MAPPED;
}

/* What a schedule is asked for. */
struct twill_request_shape {
    enum twill_collective collective;
    enum twill_flavour flavour; /* read by algorithms that work inside a node */
    uint32_t root;              /* broadcast */
};

/* One algorithm: how it is known, what it can do, how it emits. */
struct twill_algorithm {
    const char *name; /* "ring", "recursive_doubling", "direct", "tree", "hierarchical:ring", ... */
    const char *help; /* one line: idea, rounds, bytes, source */
    uint32_t collectives; /* bit per enum twill_collective */
    uint32_t flavours;    /* bit per enum twill_flavour it distinguishes; 0: none */
    bool (*applies)(const struct twill_world *world, const struct twill_request_shape *shape);
    twill_status (*emit)(struct twill_schedule *schedule, const struct twill_world *world,
                         uint32_t rank, const struct twill_request_shape *shape,
                         struct twill_error *error);
};

const struct twill_algorithm *twill_algorithm_at(size_t index); /* NULL past the end */
const struct twill_algorithm *twill_algorithm_find(const char *name);

/* Does it do this collective, in this flavour, on this world? Ask this, not applies() itself. A
 * barrier has no flavour. */
bool twill_algorithm_applies(const struct twill_algorithm *algorithm,
                             const struct twill_world *world,
                             const struct twill_request_shape *shape);

/* Invariants of one rank's schedule as plain data: TWILL_ERR_INTERNAL names lane, step, reason. */
twill_status twill_schedule_check(const struct twill_schedule *schedule,
                                  const struct twill_world *world, uint32_t rank,
                                  struct twill_error *error);

/* Emit by algorithm, then check invariants of the plain data (lanes, ranges, capacities). */
twill_status twill_schedule_emit(struct twill_schedule *schedule,
                                 const struct twill_algorithm *algorithm,
                                 const struct twill_world *world, uint32_t rank,
                                 const struct twill_request_shape *shape,
                                 struct twill_error *error);

/* Does the choice depend on `mapped`? Asking the peers costs a turn. The same on all ranks. */
bool twill_mapping_matters(const struct twill_world *world, enum twill_collective collective,
                           size_t bytes, const char *wanted);

/* Choose for a call of `bytes` on this world. `wanted` is TWILL_ALGORITHM's value or NULL:
 * "name", or "collective:name;collective:name", a name optionally followed by "@flavour"; "auto" is
 * the choice made without a wish. An entry for the collective goes before one for all, a later
 * entry before an earlier one; a name for all is not meant for collectives that the algorithm
 * cannot do. mapped: every buffer that the collective needs is in memory that the node's peers have
 * mapped. Deterministic: all ranks get the same answer from the same arguments. An unknown name, or
 * one that does not apply, is TWILL_ERR_CONFIG. */
struct twill_choice {
    const struct twill_algorithm *algorithm;
    struct twill_request_shape shape;
};
twill_status twill_select(struct twill_choice *choice, const struct twill_world *world,
                          enum twill_collective collective, uint32_t root, size_t bytes,
                          bool mapped, const char *wanted, struct twill_error *error);

/* Check the schedules of all ranks together: schedules[world->size]. Values (each block of DST ends
 * as the fold of every rank exactly once, AVG divided exactly once, all ranks alike), matching of
 * messages, no deadlock with bounded buffering, and happens-before on every access to memory of
 * this rank or a peer, over three consecutive runs that alternate the copies of SHARED and IMM.
 * in_place makes SRC and DST the same memory. Returns TWILL_OK, or TWILL_ERR_INTERNAL with a
 * message that names rank, lane, step and reason. */
twill_status twill_schedule_verify(const struct twill_schedule *schedules,
                                   const struct twill_world *world,
                                   const struct twill_request_shape *shape, bool in_place,
                                   struct twill_error *error);

/* The same with `window` instances in flight, over as many runs as reuse every copy. */
twill_status twill_schedule_verify_window(const struct twill_schedule *schedules,
                                          const struct twill_world *world,
                                          const struct twill_request_shape *shape, bool in_place,
                                          uint32_t window, struct twill_error *error);

/* Exact costs of one rank's schedule for count elements. */
struct twill_schedule_cost {
    uint32_t messages;     /* SENDs */
    uint32_t rounds;       /* WAITs that something was posted before */
    uint32_t peers;        /* distinct ranks sent to or received from */
    uint32_t signals;      /* SIGNALs and PUT_IMMs */
    uint64_t bytes_sent;   /* by SEND, to ranks of other nodes and of this one */
    uint64_t bytes_remote; /* of those, to ranks of other nodes */
    uint64_t bytes_shared; /* read from or written to peers' memory on the node */
    uint64_t bytes_reduced;
};
void twill_schedule_cost(struct twill_schedule_cost *cost, const struct twill_schedule *schedule,
                         const struct twill_world *world, uint32_t rank, size_t count,
                         size_t element);

/* Schedule to text, one step a line, stable (golden files) and back. Returns the length as snprintf
 * does. */
size_t twill_schedule_print(const struct twill_schedule *schedule, char *text, size_t capacity);
twill_status twill_schedule_parse(struct twill_schedule *schedule, const char *text,
                                  struct twill_error *error);

#endif

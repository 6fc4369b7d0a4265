/* SPDX-License-Identifier: Apache-2.0 */
/* The candidates for a call are every algorithm, protocol and parameter that applies to a world.
 * Each has a curve of cost over message size, measured, else by price. Internal to this folder. */
#ifndef TWILL_CANDIDATES_H
#define TWILL_CANDIDATES_H

#include "algorithms/select/price.h"
#include "algorithms/select/tuning_file.h"

#include <string.h>

#define TWILL_CURVE_POINTS 48
/* Most bytes of an allreduce for which algorithms that ignore nodes compete: price_most(). */
#define TWILL_FLAT_MOST ((size_t)64 << 10)

/* A point of the curve of a candidate, cost over message size. Between points it is linear. */
struct twill_curve_point {
    size_t bytes;
    uint64_t picoseconds;
    uint64_t rate; /* picoseconds per KiB to the next point, without its sign */
    bool falls;    /* the rate is negative, as the next point is cheaper */
};

/* One algorithm with one protocol and one set of parameters, and its curve of cost over message
 * size. The struct twill_candidates that it is in owns it. */
struct twill_candidate {
    const struct twill_algorithm *algorithm;
    struct twill_shape shape; /* with root 0 */
    size_t least, most;       /* message sizes for which it can be used, in bytes */
    size_t price_most;        /* most bytes for which its cost may decide, SIZE_MAX for any */
    size_t measured;          /* number of its measurements, 0 if the curve is the price */
    uint64_t fingerprint;     /* hash of its schedules, see twill_pricing_fingerprint() */
    unsigned points;
    struct twill_curve_point point[TWILL_CURVE_POINTS];
};

/* All candidates for a kind of call on a world. Made by twill_candidates_create(), and constant
 * until twill_candidates_destroy() frees them. */
struct twill_candidates {
    enum twill_collective collective;
    bool vector;
    enum twill_order order;
    struct twill_element_kind elements;
    const struct twill_algorithm *only; /* the algorithm of the candidates, or NULL for all */
    size_t count;
    struct twill_candidate *candidate; /* [count] */
};

/* Create the candidates for requests that differ from `like` only in size, root and buffers, in the
 * order of the registry, of the algorithm `only`, or of all if it is NULL. Of equal schedules only
 * the first is kept. Prices are shared with other ranks by `records`, unless it is NULL. Sets
 * *candidates, which the caller destroys, to NULL on failure. */
twill_status
twill_candidates_create(struct twill_candidates **candidates, const struct twill_world *world,
                        const struct twill_tuning *tuning, const struct twill_select_request *like,
                        const struct twill_algorithm *only,
                        const struct twill_price_records *records, struct twill_error *error);
/* Free the candidates. NULL is allowed. */
void twill_candidates_destroy(struct twill_candidates *candidates);

typedef twill_status (*twill_candidate_fn)(void *user, const struct twill_candidate *candidate,
                                           struct twill_error *error);
/* Call fn for every algorithm, or for `only`, with each protocol and each tried parameter that
 * applies to requests like `like` with root 0. Algorithms that distinguish the ranks of a node come
 * first, each group in the order of the registry. The candidates passed to fn have no curve, and
 * most never become candidates. Ends with the first error of fn and returns it. */
twill_status twill_candidates_visit(const struct twill_world *world,
                                    const struct twill_select_request *like,
                                    const struct twill_algorithm *only, twill_candidate_fn fn,
                                    void *user, struct twill_error *error);
/* Return whether `tuning` has a measurement of at least one candidate that twill_candidates_visit()
 * would pass to its function. Only measurements on worlds with as many nodes, and as many ranks on
 * the fullest node, count. `only` is the one algorithm to consider, or NULL for all. */
bool twill_candidates_are_measured(const struct twill_world *world,
                                   const struct twill_tuning *tuning,
                                   const struct twill_select_request *like,
                                   const struct twill_algorithm *only);
/* Return a hash, maybe 0, of all that predicted times depend on but world, size and root. */
uint64_t twill_candidates_hash(const struct twill_tuning *tuning,
                               const struct twill_select_request *like);
/* Return the index of the algorithm of the candidate in the registry. */
size_t twill_candidate_place(const struct twill_candidate *candidate);

/* Return the timings and models by which a chooser chooses, which it or its maker owns. */
const struct twill_tuning *twill_chooser_tuning(const struct twill_chooser *chooser);
/* Get in *candidates those for a request, of the algorithm `only` or NULL for all, which the
 * chooser makes and owns. The pointer is valid until the next call for another kind of request. */
twill_status twill_chooser_candidates(struct twill_chooser *chooser,
                                      const struct twill_select_request *request,
                                      const struct twill_algorithm *only,
                                      const struct twill_candidates **candidates,
                                      struct twill_error *error);

/* Return the picoseconds that the curve of a candidate gives for `bytes` bytes. */
uint64_t twill_candidate_cost(const struct twill_candidate *candidate, size_t bytes);
/* Return the cost in picoseconds of a candidate without measurements, interpolated between the
 * prices at the two sizes around `bytes`. In a barrier it is the price of no bytes. If it is above
 * `most` it may be TWILL_PRICE_NEVER. Afterwards the pricing has no limit. */
uint64_t twill_pricing_cost(struct twill_pricing *pricing, const struct twill_machine_model *model,
                            const struct twill_select_request *like, size_t bytes, uint64_t most);

/* Return the kind of elements of a request, which is its `type` and whether it is `narrow`. */
static inline struct twill_element_kind
twill_request_elements(const struct twill_select_request *request)
{
    return (struct twill_element_kind){request->type, request->narrow};
}

/* Return the access to buffers of peers (enum twill_access) that an algorithm needs, 0 for none. */
static inline unsigned twill_shape_needs(const struct twill_algorithm *algorithm,
                                         const struct twill_shape *shape)
{
    if (algorithm->protocols == 0 || shape->collective == TWILL_BARRIER)
        return 0;
    return shape->protocol == TWILL_PROTOCOL_MAPPED    ? TWILL_ACCESS_MAPPED
           : shape->protocol == TWILL_PROTOCOL_FETCHED ? TWILL_ACCESS_FETCHED
                                                       : 0u;
}

/* Return the access to buffers of peers (enum twill_access) on which the choice may rely. With
 * several nodes it is 0, as nodes may differ (see struct twill_select_request). */
static inline unsigned twill_request_access(const struct twill_world *world,
                                            const struct twill_select_request *request)
{
    if (world->nodes > 1)
        return 0;
    return (request->mapped ? TWILL_ACCESS_MAPPED : 0u) |
           (request->fetched ? TWILL_ACCESS_FETCHED : 0u);
}

/* Return whether the candidate can be used for `bytes` bytes with this access to buffers of peers
 * (enum twill_access). It ignores the root, for which twill_algorithm_applies() must be called. */
static inline bool twill_candidate_takes(const struct twill_candidate *candidate, size_t bytes,
                                         unsigned access)
{
    unsigned needs = twill_shape_needs(candidate->algorithm, &candidate->shape);
    return bytes >= candidate->least && bytes <= candidate->most && (needs & ~access) == 0;
}

/* Return whether the candidate may be chosen by its cost, without a user override (TWILL_ALGORITHM)
 * that names it. The message must not exceed its `price_most`, and the candidate must be usable for
 * `bytes` bytes with this access to buffers of peers (enum twill_access). */
static inline bool twill_candidate_competes(const struct twill_candidate *candidate, size_t bytes,
                                            unsigned access)
{
    return bytes <= candidate->price_most && twill_candidate_takes(candidate, bytes, access);
}

/* Return whether the candidate has the algorithm, protocol and parameters of the choice. */
static inline bool twill_candidate_is(const struct twill_candidate *c,
                                      const struct twill_choice *choice)
{
    return c->algorithm == choice->algorithm &&
           (c->algorithm->protocols == 0 || c->shape.protocol == choice->shape.protocol) &&
           memcmp(c->shape.parameter, choice->shape.parameter, sizeof(c->shape.parameter)) == 0;
}

/* Return the message size in bytes to choose for. It is that of the request, or a guess of 4 KiB
 * per rank where no rank knows it (see `vector` in struct twill_shape). */
size_t twill_request_bytes(const struct twill_world *world,
                           const struct twill_select_request *request);

/* Return the largest message of a request, in bytes, whose blocks fit into IMM. */
size_t twill_imm_most(const struct twill_world *world, const struct twill_select_request *request);

/* Find the choice that all candidates would give for this request (see twill_candidates_create()),
 * in a fraction of the time. Sets choice->algorithm and the protocol of the shape, and *decided to
 * true. Where only all candidates can decide, *decided becomes false and the choice stays as it is.
 * Prices are shared with other ranks by `records`, unless it is NULL. */
twill_status twill_choose_early(struct twill_choice *choice, bool *decided,
                                const struct twill_world *world, const struct twill_tuning *tuning,
                                const struct twill_select_request *request,
                                const struct twill_price_records *records,
                                struct twill_error *error);

#endif

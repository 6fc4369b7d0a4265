/* SPDX-License-Identifier: Apache-2.0 */
/* What can do a collective on a world, and what each costs at every size: curves of a few points,
 * measured where there are measurements, else priced. Internal to the selector and to what explains
 * it. */
#ifndef TWILL_CANDIDATES_H
#define TWILL_CANDIDATES_H

#include "algorithms/select/price.h"
#include "algorithms/select/tuning_file.h"

#define TWILL_CURVE_POINTS 48

struct twill_curve_point {
    size_t bytes;
    uint64_t picoseconds;
    uint64_t rate; /* to the next one, per KiB */
    bool falls;    /* the next one is cheaper: rate is to be taken off */
};

struct twill_candidate {
    const struct twill_algorithm *algorithm;
    struct twill_shape shape; /* with root 0 */
    size_t least, most;       /* bytes that it can be used for */
    size_t price_most;        /* bytes up to which its price alone may choose it */
    size_t measured;          /* entries that its curve is of; 0: the price alone */
    unsigned points;
    struct twill_curve_point point[TWILL_CURVE_POINTS];
};

struct twill_candidates {
    enum twill_collective collective;
    bool vector;
    enum twill_order order;
    twill_type type;
    size_t count;
    struct twill_candidate *candidate;
};

/* All that apply, in the order of the registry; of those that are the same schedule the first. */
twill_status twill_candidates_create(struct twill_candidates **candidates,
                                     const struct twill_world *world,
                                     const struct twill_tuning *tuning,
                                     const struct twill_select_request *like,
                                     struct twill_error *error);
void twill_candidates_destroy(struct twill_candidates *candidates);

/* Those that a chooser chooses among for such a request. */
twill_status twill_chooser_candidates(struct twill_chooser *chooser,
                                      const struct twill_select_request *request,
                                      const struct twill_candidates **candidates,
                                      struct twill_error *error);

/* Picoseconds of a candidate at so many bytes: continuous in bytes. */
uint64_t twill_candidate_cost(const struct twill_candidate *candidate, size_t bytes);
/* The access to the peers' buffers (enum twill_access) that a shape needs of this algorithm. */
static inline unsigned twill_shape_needs(const struct twill_algorithm *algorithm,
                                         const struct twill_shape *shape)
{
    if (algorithm->protocols == 0 || shape->collective == TWILL_BARRIER)
        return 0;
    return shape->protocol == TWILL_PROTOCOL_MAPPED    ? TWILL_ACCESS_MAPPED
           : shape->protocol == TWILL_PROTOCOL_FETCHED ? TWILL_ACCESS_FETCHED
                                                       : 0u;
}
/* What the choice may count on: on one node; with several see twill_select_request. */
static inline unsigned twill_request_access(const struct twill_world *world,
                                            const struct twill_select_request *request)
{
    if (world->nodes > 1)
        return 0;
    return (request->mapped ? TWILL_ACCESS_MAPPED : 0u) |
           (request->fetched ? TWILL_ACCESS_FETCHED : 0u);
}
/* May it be chosen for this, with this access? Apart from the root, which its algorithm is to be
 * asked about. */
static inline bool twill_candidate_takes(const struct twill_candidate *candidate, size_t bytes,
                                         unsigned access)
{
    unsigned needs = twill_shape_needs(candidate->algorithm, &candidate->shape);
    return bytes >= candidate->least && bytes <= candidate->most && (needs & ~access) == 0;
}
/* Return whether it may be chosen by its cost, without a user override (TWILL_ALGORITHM) that names
 * it: it takes the bytes, and its price is trusted at this size. */
static inline bool twill_candidate_competes(const struct twill_candidate *candidate, size_t bytes,
                                            unsigned access)
{
    return bytes <= candidate->price_most && twill_candidate_takes(candidate, bytes, access);
}
/* Bytes to choose for: those of the request, or a guess where nobody can know. */
size_t twill_request_bytes(const struct twill_world *world,
                           const struct twill_select_request *request);
/* Most bytes that fit IMM. */
size_t twill_imm_most(const struct twill_world *world, const struct twill_select_request *request);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What TWILL_ALGORITHM says. Entries are separated by ";":
 *
 *     [COLLECTIVE[RANGE]:]NAME[=PARAMETERS][@FLAVOUR]
 *     allreduce[0-64K]:recursive_doubling;allreduce[64K-]:torus=4x6@staged;alltoall:bruck;ring
 *
 * COLLECTIVE as in twill_collective_name(). RANGE is "[FROM-TO]" in bytes of the whole message
 * (what twill-bench calls size), both included, with K, M or G (binary); without FROM it begins at
 * 0, without TO it does not end. NAME is an algorithm's, or "auto": the choice made without a wish.
 * PARAMETERS are numbers from 1 with x between them, or what the algorithm reads itself. FLAVOUR is
 * how ranks of one node exchange data.
 *
 * An entry for the collective goes before one for all, a later entry before an earlier one. An
 * entry for all is not meant for collectives that the algorithm cannot do. Every entry is checked
 * for spelling, whichever governs: TWILL_ERR_CONFIG, which names TWILL_ALGORITHM and the entry. */
#ifndef TWILL_OVERRIDE_H
#define TWILL_OVERRIDE_H

#include "algorithms/algorithms.h"

struct twill_override {
    const char *text; /* the entry, in what was parsed; not terminated */
    int length;
    int collective;                          /* -1: all that the algorithm does */
    size_t least, most;                      /* bytes */
    const struct twill_algorithm *algorithm; /* NULL: auto */
    int protocol;                            /* -1: any */
    uint16_t parameter[TWILL_PARAMETERS];
};

/* Into an array to be freed; none: NULL and 0. text must outlive it. */
twill_status twill_overrides_parse(struct twill_override **overrides, size_t *count,
                                   const char *text, struct twill_error *error);
/* The entry that governs such a call, or NULL. */
const struct twill_override *twill_override_find(const struct twill_override *overrides,
                                                 size_t count, enum twill_collective collective,
                                                 size_t bytes);
/* Bytes such as 64K: how much of text it took, 0 if there is no number. */
size_t twill_bytes_parse(const char *text, size_t length, size_t *bytes);
/* What `text` was meant to be, among the names that name(0 .. count-1) gives; NULL if none is near.
 */
const char *twill_name_nearest(const char *text, size_t length, const char *(*name)(unsigned),
                               unsigned count);

#endif

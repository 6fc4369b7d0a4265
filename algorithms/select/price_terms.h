/* SPDX-License-Identifier: Apache-2.0 */
/* The terms of a price: what the busiest ranks and nodes do in a call, and the time that each kind
 * of it takes. They say why an algorithm costs more than another. */
#ifndef TWILL_PRICE_TERMS_H
#define TWILL_PRICE_TERMS_H

#include "algorithms/select/price.h"

/* What a term counts, and for the text the bytes or events that it has. */
enum twill_term {
    TWILL_TERM_GROUP,    /* bytes that leave one group of nodes */
    TWILL_TERM_NODE,     /* bytes that leave or enter one node */
    TWILL_TERM_MEMORY,   /* bytes that one core reads, copies and reduces */
    TWILL_TERM_ROUNDS,   /* messages of one rank that wait for each other */
    TWILL_TERM_MESSAGES, /* messages that one rank sends and receives */
    TWILL_TERM_FLAGS,    /* times that one rank waits for flags in memory */
    TWILL_TERM_COUNT
};

/* The terms of a call. Times, in picoseconds, may overlap, so their sum says nothing. */
struct twill_price_terms {
    struct twill_price_term {
        uint64_t amount, time;
    } of[TWILL_TERM_COUNT];
    unsigned threads; /* most threads of a rank that share a copy or a reduction, 1 for none */
};

/* Find the terms of an algorithm. Looks at all ranks or, in a large world, at some that are evenly
 * spaced, at the nodes of the first and the middle rank, and at the first group unless it is large.
 * The algorithm must apply. */
twill_status twill_price_find_terms(struct twill_price_terms *terms,
                                    const struct twill_algorithm *algorithm,
                                    const struct twill_world *world,
                                    const struct twill_shape *shape,
                                    const struct twill_machine_model *model, size_t bytes,
                                    struct twill_element_kind elements, struct twill_error *error);

/* Print to text[bytes] the main reason why an algorithm with these terms costs `more` picoseconds
 * more than another one with the terms `best`, as a sentence without its subject. Returns text. */
const char *twill_price_reason(char *text, size_t bytes, const struct twill_price_terms *terms,
                               const struct twill_price_terms *best, uint64_t more);

#endif

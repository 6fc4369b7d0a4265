/* SPDX-License-Identifier: Apache-2.0 */
/* The buffers of a case. */
#ifndef TWILL_SIDES_H
#define TWILL_SIDES_H

#include "cases.h"

/* Types, counts, displacements and memory for what the side holds. */
void side_make(struct side *side, const struct spec *spec, int rank, int receives, int vectors);
/* A side of the plain type for the same elements. */
void side_make_alike(struct side *side, const struct side *of, const struct spec *spec, int rank);
/* Elements of the reference to another side of as many. */
void side_transfer(const struct side *from, struct side *to);
/* Random bytes everywhere; if operand: elements that the operation of the case takes. */
void side_fill(struct side *side, const struct spec *spec, uint64_t seed, int operand);
void side_free(struct side *side);
/* What to pass to MPI (0: tested) or PMPI (1). */
void *side_address(const struct side *side, const struct spec *spec, int which);
/* The contents from this element on are not to be compared. */
void side_forget(struct side *side, const struct spec *spec, int from);
/* Where the two arenas differ first, from the base - before; -1: nowhere. */
long side_difference(struct side *side, const struct spec *spec);
const char *side_difference_text(const struct side *side, long at);

#endif

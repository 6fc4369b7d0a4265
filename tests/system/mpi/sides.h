/* SPDX-License-Identifier: Apache-2.0 */
/* The buffers of a case. */
#ifndef TWILL_SIDES_H
#define TWILL_SIDES_H

#include "cases.h"

/* Make types, counts, displacements and memory for a side. */
void side_make(struct side *side, const struct spec *spec, int rank, int receives, int vectors);
/* Make a side of the plain type with the elements of another. */
void side_make_alike(struct side *side, const struct side *of, const struct spec *spec, int rank);
/* Copy the reference's elements to another side of equal length. */
void side_transfer(const struct side *from, struct side *to);
/* Fill with random bytes; if operand: with elements that the case's operation accepts. */
void side_fill(struct side *side, const struct spec *spec, uint64_t seed, int operand);
void side_free(struct side *side);
/* Return what to pass to MPI (0: tested) or PMPI (1). */
void *side_address(const struct side *side, const struct spec *spec, int which);
/* Do not compare the contents from this element on. */
void side_forget(struct side *side, const struct spec *spec, int from);
/* Return where the two arenas first differ, from base - before, or -1. */
long side_difference(struct side *side, const struct spec *spec);
const char *side_difference_text(const struct side *side, long at);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Datatypes of one signature with different memory layouts. */
#ifndef TWILL_LAYOUTS_H
#define TWILL_LAYOUTS_H

#include "harness.h"

enum layout {
    PLAIN,
    CONTIGUOUS,
    VECTOR,
    INDEXED,
    PERMUTED, /* size equals extent, but the bytes are in another order */
    STRUCTURE,
    RESIZED,
    NEGATIVE,   /* begins before its address */
    TRANSPOSED, /* the items of a buffer are interleaved */
    SUBARRAY,
    DUPLICATE,
    NESTED,
    LAYOUTS
};
enum { GRAIN = 6 }; /* elements are multiples of this where layouts other than PLAIN may be drawn */

extern const char *const layout_names[LAYOUTS];
/* Return a committed type of *elements (a divisor of GRAIN, chosen by seed) of base. items: how
 * many the buffer will have, for TRANSPOSED. */
MPI_Datatype layout_make(enum layout layout, MPI_Datatype base, int *elements, int items,
                         uint64_t seed);
/* Return the type at an absolute address, for MPI_BOTTOM. */
MPI_Datatype layout_at(MPI_Datatype type, const void *address);

#endif

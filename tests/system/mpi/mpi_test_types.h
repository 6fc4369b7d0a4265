/* SPDX-License-Identifier: Apache-2.0 */
/* The predefined types of MPI and their structure, so that operands can be made for which every
 * operation is exact, and padding is not compared. And the operations. */
#ifndef TWILL_MPI_TEST_TYPES_H
#define TWILL_MPI_TEST_TYPES_H

#include "harness.h"

enum kind { WHOLE, TRUTH, BINARY32, BINARY64, EXTENDED, QUAD };
enum second { ALONE, TWICE, WITH_INT };

struct base {
    const char *name;
    MPI_Datatype type;
    enum kind kind;     /* of the value; WHOLE and TRUTH have the size of the type */
    enum second second; /* complex, pair of equal types, pair of the value and an int */
    int pair;           /* TWICE is {value, index} */
    size_t extent;
    size_t size[2], offset[2], significant[2]; /* of value and second; 0 if absent */
};

struct operation {
    const char *name;
    MPI_Op op;
    int index;
};

enum { MOST_BASES = 80, PREDEFINED_OPS = 12 };
/* All types that this MPI has. */
struct bases {
    int count;
    struct base base[MOST_BASES];
};
extern struct bases bases;
extern struct operation operations[PREDEFINED_OPS];
enum { SUM, PROD, MIN, MAX, LAND, LOR, LXOR, BAND, BOR, BXOR, MINLOC, MAXLOC };

void bases_find(void);
const struct base *base_of(MPI_Datatype type);
/* Return whether the MPI below accepts them together. */
int operation_takes(const struct operation *operation, const struct base *base);
/* Fill memory with operands for an operation. */
void base_fill(const struct base *base, const struct operation *operation, void *memory,
               size_t count, uint64_t seed);
/* Zero what is not compared. */
void base_wipe_padding(const struct base *base, void *memory, size_t count);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* User-defined operations, with types for them. */
#ifndef TWILL_USEROPS_H
#define TWILL_USEROPS_H

#include "harness.h"

struct user_operation {
    const char *name;
    MPI_Op op;
    MPI_Datatype type;
    size_t extent;
    int own;   /* the type must be freed */
    int holes; /* the type is not contiguous */
};

enum { USER_OPERATIONS = 8 };
extern struct user_operation user_operations[USER_OPERATIONS];
void userops_make(void);
void userops_free(void);
/* Fill with operands; those of text show any change of their order. */
void userop_fill(const struct user_operation *user, void *memory, size_t count, uint64_t seed);

#endif

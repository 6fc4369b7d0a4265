/* SPDX-License-Identifier: Apache-2.0 */
/* User-defined operations: a function over elements, or a sum of scaled inputs. A context holds
 * them in a table; operation i is twill_op TWILL_OP_CREATED + i. */
#ifndef TWILL_OPERATION_H
#define TWILL_OPERATION_H

#include "lib/base/base.h"

#include <stdatomic.h>

struct twill_context;

#define TWILL_OPERATIONS     256u  /* most operations of a context at a time */
#define TWILL_OPERATION_MOST 4096u /* most bytes of an opaque element */

/* One operation, created by twill_op_create(), twill_op_create_scaled() or
 * twill_op_create_narrow(). */
struct twill_operation {
    twill_op_fn function; /* NULL if scaled or narrow */
    void *user;
    size_t element;   /* bytes of an opaque element; 0: elements have the type of the call */
    bool commutative; /* operands may be combined in any order */
    bool scaled;      /* sum of inputs multiplied by factor */
    bool narrow;      /* sum whose partial results are elements of type */
    bool finishes;    /* narrow: the sum is multiplied by after, the same on all ranks */
    float after;
    twill_type type;                          /* scaled or narrow: the type of calls */
    TWILL_ALIGNED(8) unsigned char factor[8]; /* an element of type, or a float for a narrow one */
};

/* The table of a context. The context's lock protects writes. Reads need no lock: the caller must
 * not create or destroy an operation while a call uses it. */
struct twill_operations {
    struct twill_operation slot[TWILL_OPERATIONS];
    _Atomic bool taken[TWILL_OPERATIONS];
};

/* Return the user-defined operation, or NULL if op is built in or unknown. */
const struct twill_operation *twill_context_operation(const struct twill_context *context,
                                                      twill_op op);
/* Return what ranks compare of an operation: a built-in one itself; for a user-defined one its
 * element size and flags, because each rank numbers its own. At most 16 bits; twill_op_name()
 * names it "created". */
twill_op twill_context_operation_kind(const struct twill_context *context, twill_op op);

#endif

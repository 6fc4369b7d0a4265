/* SPDX-License-Identifier: Apache-2.0 */
/* User-defined operations. Each is a function over elements, or a sum of scaled inputs. A context
 * holds them in a table, where entry i is the twill_op TWILL_OP_CREATED + i. */
#ifndef TWILL_OPERATION_H
#define TWILL_OPERATION_H

#include "lib/base/base.h"

#include <stdatomic.h>

struct twill_context;

#define TWILL_OPERATIONS     256u  /* most operations of a context at a time */
#define TWILL_OPERATION_MOST 4096u /* most bytes of an opaque element */

/* One operation in the table of a context, from twill_op_create() etc. to twill_op_destroy(). */
struct twill_operation {
    twill_op_fn function; /* NULL if scaled or narrow */
    void *user;           /* the last argument of `function` */
    size_t element;   /* bytes of an opaque element, or 0 if elements have the type of the call */
    bool commutative; /* operands may be combined in any order */
    bool scaled;      /* sum of inputs multiplied by factor */
    bool narrow;      /* sum whose partial results are elements of type */
    bool finishes; /* for narrow: the sum is multiplied by `after`, which is equal on all ranks */
    float after;
    twill_type type; /* for scaled or narrow: the type that calls must use */
    TWILL_ALIGNED(8) unsigned char factor[8]; /* of `type`, or a float if that is narrow */
};

/* The operations of a context. Its lock protects writes. Reads need no lock, because the caller
 * must not create or destroy an operation that a call is using. */
struct twill_operations {
    struct twill_operation slot[TWILL_OPERATIONS];
    _Atomic bool taken[TWILL_OPERATIONS];
};

/* Return the user-defined operation, or NULL if `op` is built in or unknown. */
const struct twill_operation *twill_context_operation(const struct twill_context *context,
                                                      twill_op op);
/* Return the 16 bits by which ranks compare an operation. It is `op` if built in, else made of
 * element size and flags, as each rank numbers its own. twill_op_name() calls that "created". */
twill_op twill_context_operation_kind(const struct twill_context *context, twill_op op);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that the caller made: a function over elements, or a sum of scaled inputs. They live
 * in the context; a call names one by its twill_op, from TWILL_OP_CREATED up. */
#ifndef TWILL_OPERATION_H
#define TWILL_OPERATION_H

#include "lib/base.h"

#include <stdatomic.h>

#define TWILL_OPERATIONS     256u  /* of a context, at a time */
#define TWILL_OPERATION_MOST 4096u /* bytes of an opaque element */

struct twill_operation {
    twill_op_fn function; /* NULL if scaled */
    void *user;
    size_t element;   /* bytes of an opaque element; 0: elements are those of the call's type */
    bool commutative; /* operands may be combined in any order */
    bool scaled;      /* a sum of inputs, each multiplied by factor first */
    twill_type type;  /* scaled: the only type it takes */
    TWILL_ALIGNED(8) unsigned char factor[8]; /* an element of type, or a float for a narrow one */
};

/* The table in a context. Slots are filled and emptied under the context's lock, and read without:
 * a call that uses an operation is not under way while it is made or destroyed. */
struct twill_operations {
    struct twill_operation slot[TWILL_OPERATIONS];
    _Atomic bool taken[TWILL_OPERATIONS];
};

struct twill_context;

/* The operation a caller made, or NULL: built in, or there is none. */
const struct twill_operation *twill_context_operation(const struct twill_context *context,
                                                      twill_op op);
/* What ranks have to have alike of an operation, for signatures and for what a rank says of its
 * call: a built-in one itself; of a created one its kind, because each rank numbers its own. At
 * most 16 bits; twill_op_name() knows it. */
twill_op twill_context_operation_kind(const struct twill_context *context, twill_op op);

#endif

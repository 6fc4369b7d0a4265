/* SPDX-License-Identifier: Apache-2.0 */
/* MPI operations in twill. They are native where twill has type and operation. Otherwise a twill
 * operation calls PMPI_Reduce_local() on opaque elements. These are kept for later calls and found
 * by handles. At each call PMPI_Reduce_local() uses what the handles mean then. */
#include "lib/mpi/shim.h"

#include <limits.h>
#include <string.h>

#define BATCH_BYTES ((size_t)1024) /* most bytes copied at once, unless one element is larger */

#define INTEGER_KINDS (1u << TWILL_MPI_INTEGER | 1u << TWILL_MPI_FORTRAN_INTEGER)
#define NUMBERS       (INTEGER_KINDS | 1u << TWILL_MPI_FLOATING)
#define ALGEBRAIC     (NUMBERS | 1u << TWILL_MPI_COMPLEX_NUMBER)
#define LOGICAL       (1u << TWILL_MPI_INTEGER | 1u << TWILL_MPI_TRUTH)
#define BITWISE       (INTEGER_KINDS | 1u << TWILL_MPI_BITS)
#define PAIR_KINDS    (1u << TWILL_MPI_PAIR)

/* Predefined operations, with the classes of types that MPI allows for them (MPI 4.0, 6.9.2). */
static const struct {
    MPI_Op op;
    twill_op native;
    unsigned classes;
} predefined[] = {
    {MPI_SUM, TWILL_SUM, ALGEBRAIC},        {MPI_MAX, TWILL_MAX, NUMBERS},
    {MPI_MIN, TWILL_MIN, NUMBERS},          {MPI_PROD, TWILL_PROD, ALGEBRAIC},
    {MPI_LAND, TWILL_LAND, LOGICAL},        {MPI_LOR, TWILL_LOR, LOGICAL},
    {MPI_LXOR, TWILL_LXOR, LOGICAL},        {MPI_BAND, TWILL_BAND, BITWISE},
    {MPI_BOR, TWILL_BOR, BITWISE},          {MPI_BXOR, TWILL_BXOR, BITWISE},
    {MPI_MINLOC, TWILL_MINLOC, PAIR_KINDS}, {MPI_MAXLOC, TWILL_MAXLOC, PAIR_KINDS},
};
_Static_assert(sizeof(predefined) / sizeof(*predefined) == TWILL_OP_COUNT - 1,
               "MPI has all operations but avg");

/* Combine any number of elements with PMPI_Reduce_local(), which overwrites `right`. */
static void reduce_local(const void *left, void *right, size_t count,
                         const struct twill_mpi_operation *operation)
{
    for (size_t done = 0; done < count;) {
        int n = count - done < INT_MAX ? (int)(count - done) : INT_MAX;
        (void)PMPI_Reduce_local((const char *)left + done * operation->element,
                                (char *)right + done * operation->element, n,
                                (MPI_Datatype)operation->handle[TWILL_MPI_ITS_TYPE],
                                (MPI_Op)operation->handle[TWILL_MPI_ITS_OP]);
        done += (size_t)n;
    }
}

/* The function given to twill_op_create(), which computes *result from left and right. MPI
 * overwrites the right operand. If the destination is a third buffer, the right operand is copied
 * there first. If it is the left operand, the result is computed in a copy of the right one. */
static void apply_operation(const void *left, const void *right, void *result, size_t count,
                            twill_type type, void *user)
{
    const struct twill_mpi_operation *operation = user;
    size_t element = operation->element;
    (void)type;
    if (result == right) {
        reduce_local(left, result, count, operation);
        return;
    }
    if (result != left) {
        memcpy(result, right, count * element);
        reduce_local(left, result, count, operation);
        return;
    }
    _Alignas(64) unsigned char copy[TWILL_MPI_ELEMENT_MOST];
    size_t batch = element < BATCH_BYTES ? BATCH_BYTES / element : 1;
    for (size_t done = 0; done < count; done += batch) {
        size_t n = count - done < batch ? count - done : batch;
        memcpy(copy, (const char *)right + done * element, n * element);
        reduce_local((const char *)left + done * element, copy, n, operation);
        memcpy((char *)result + done * element, copy, n * element);
    }
}

/* Return whether slot `have` holds the wanted operation. */
static bool operation_is_same(const struct twill_mpi_operation *have,
                              const struct twill_mpi_operation *want)
{
    return have->made && have->handle[TWILL_MPI_ITS_OP] == want->handle[TWILL_MPI_ITS_OP] &&
           have->handle[TWILL_MPI_ITS_TYPE] == want->handle[TWILL_MPI_ITS_TYPE] &&
           have->element == want->element && have->commutative == want->commutative;
}

/* Return a slot that holds the wanted operation, otherwise an empty one, otherwise one without
 * users, whose operation is destroyed. Returns NULL if all are in use. */
static struct twill_mpi_operation *slot_for(const struct twill_mpi_operation *want)
{
    struct twill_mpi_operation *slot = NULL;
    for (unsigned i = 0; i < TWILL_MPI_OPERATIONS; i++) {
        struct twill_mpi_operation *at = &twill_mpi.operations.slot[i];
        if (operation_is_same(at, want))
            return at;
        if (at->users == 0 && (slot == NULL || (slot->made && !at->made)))
            slot = at;
    }
    if (slot != NULL && slot->made) {
        (void)twill_op_destroy(twill_mpi.context, slot->made_op);
        slot->made = false;
    }
    return slot;
}

/* Return *want as a twill operation with one more user, or NULL if no slot is left or twill cannot
 * make it. `keeps` says that the user is a persistent request. These may occupy only
 * TWILL_MPI_OPERATIONS_KEPT slots. The table is locked. */
static struct twill_mpi_operation *operation_make(const struct twill_mpi_operation *want,
                                                  bool keeps)
{
    struct twill_mpi_operations *all = &twill_mpi.operations;
    struct twill_mpi_operation *slot = slot_for(want);
    if (slot == NULL || (keeps && slot->keepers == 0 && all->kept == TWILL_MPI_OPERATIONS_KEPT))
        return NULL;
    if (!slot->made) {
        *slot = *want;
        slot->made = twill_op_create(twill_mpi.context, &slot->made_op, apply_operation, slot,
                                     slot->element, slot->commutative) == TWILL_OK;
    }
    if (!slot->made)
        return NULL;
    slot->users++;
    atomic_fetch_add(&all->users, 1);
    all->kept += keeps && slot->keepers++ == 0;
    return slot;
}

/* Return an operation in use that has this MPI handle, or NULL. */
static struct twill_mpi_operation *user_of(enum twill_mpi_handle which, uintptr_t handle)
{
    for (unsigned i = 0; i < TWILL_MPI_OPERATIONS; i++) {
        struct twill_mpi_operation *at = &twill_mpi.operations.slot[i];
        if (at->users > 0 && at->handle[which] == handle)
            return at;
    }
    return NULL;
}

/* Return whether the caller must free the MPI operation or type (`which`) of a slot that no call
 * uses any more. This is so if the program has freed it and no slot in use has it. If another slot
 * has it, the release of that slot frees it later. */
static bool is_last(struct twill_mpi_operation *operation, enum twill_mpi_handle which)
{
    if (!operation->freed[which])
        return false;
    operation->freed[which] = false;
    struct twill_mpi_operation *other = user_of(which, operation->handle[which]);
    if (other != NULL)
        other->freed[which] = true;
    return other == NULL;
}

void twill_mpi_operation_release(struct twill_mpi_operation *operation, bool kept)
{
    struct twill_mpi_operations *all = &twill_mpi.operations;
    bool last_of_op = false, last_of_type = false;
    pthread_mutex_lock(&all->lock);
    MPI_Op op = (MPI_Op)operation->handle[TWILL_MPI_ITS_OP];
    MPI_Datatype type = (MPI_Datatype)operation->handle[TWILL_MPI_ITS_TYPE];
    all->kept -= kept && --operation->keepers == 0;
    if (--operation->users == 0) {
        last_of_op = is_last(operation, TWILL_MPI_ITS_OP);
        last_of_type = is_last(operation, TWILL_MPI_ITS_TYPE);
    }
    atomic_fetch_sub(&all->users, 1);
    pthread_mutex_unlock(&all->lock);
    if (last_of_op)
        PMPI_Op_free(&op);
    if (last_of_type)
        PMPI_Type_free(&type);
}

/* Return true if the handle of an operation or type is in use, and its last user will free it. MPI
 * lets a program free these in use. Otherwise returns false, and the caller frees it. */
static bool put_off(enum twill_mpi_handle which, uintptr_t handle)
{
    struct twill_mpi_operations *all = &twill_mpi.operations;
    if (TWILL_LIKELY(atomic_load_explicit(&all->users, memory_order_acquire) == 0) ||
        twill_mpi.forked)
        return false;
    pthread_mutex_lock(&all->lock);
    struct twill_mpi_operation *user = user_of(which, handle);
    if (user != NULL)
        user->freed[which] = true;
    pthread_mutex_unlock(&all->lock);
    return user != NULL;
}

/* Free an operation, or leave that to its last user. Either way *op becomes MPI_OP_NULL. */
int MPI_Op_free(MPI_Op *op)
{
    if (op == NULL || !put_off(TWILL_MPI_ITS_OP, (uintptr_t)*op))
        return PMPI_Op_free(op);
    *op = MPI_OP_NULL;
    return MPI_SUCCESS;
}

/* Free a type, or leave that to its last user. Either way *type becomes MPI_DATATYPE_NULL. */
int MPI_Type_free(MPI_Datatype *type)
{
    if (type == NULL || !put_off(TWILL_MPI_ITS_TYPE, (uintptr_t)*type))
        return PMPI_Type_free(type);
    *type = MPI_DATATYPE_NULL;
    return MPI_SUCCESS;
}

/* Set *found to a native operation of twill. Returns TAKEN. */
static enum twill_mpi_why take_native(const struct twill_mpi_type *type, twill_op op,
                                      struct twill_mpi_reduction *found)
{
    *found = (struct twill_mpi_reduction){.type = (twill_type)type->native,
                                          .op = op,
                                          .components = type->components,
                                          .element = (size_t)type->extent};
    return TWILL_MPI_WHY_TAKEN;
}

/* Return whether the MPI accepts operation and type together, and in that case whether the
 * operation commutes. First tries an empty reduction on a communicator that returns errors, because
 * errors of the query itself would go to the program's handler. */
static bool op_is_valid(const struct twill_mpi_call *call, int *commutative)
{
    char nothing[1];
    return PMPI_Allreduce(MPI_IN_PLACE, nothing, 0, call->recv.type, call->op,
                          twill_mpi.self.comm) == MPI_SUCCESS &&
           PMPI_Op_commutative(call->op, commutative) == MPI_SUCCESS;
}

/* Set *found to a twill operation that calls PMPI_Reduce_local(). Returns ERRONEOUS if the MPI does
 * not accept operation and type, otherwise TAKEN, with found->lacks set if no slot was left. */
static enum twill_mpi_why take_made(const struct twill_mpi_call *call,
                                    const struct twill_mpi_type *type,
                                    struct twill_mpi_reduction *found)
{
    const bool keeps = call->form == TWILL_MPI_PERSISTENT;
    size_t element = (size_t)type->extent;
    int commutative = 0;
    if (!op_is_valid(call, &commutative))
        return TWILL_MPI_WHY_ERRONEOUS;
    const struct twill_mpi_operation want = {
        .handle = {(uintptr_t)call->op, (uintptr_t)call->recv.type},
        .element = element,
        .commutative = commutative != 0};
    *found = (struct twill_mpi_reduction){.type = TWILL_U8, .components = 1, .element = element};
    pthread_mutex_lock(&twill_mpi.operations.lock);
    found->made = operation_make(&want, keeps);
    pthread_mutex_unlock(&twill_mpi.operations.lock);
    found->lacks = found->made == NULL;
    found->op = found->lacks ? TWILL_SUM : found->made->made_op;
    return TWILL_MPI_WHY_TAKEN;
}

/* Return whether twill may run a call of this form with an operation that the program defines. A
 * blocking call runs the program's function in the thread that made the call. Others run it in any
 * thread, which needs MPI_THREAD_MULTIPLE on all ranks. The result is equal on all ranks. */
static bool may_run_anywhere(enum twill_mpi_form form)
{
    return form == TWILL_MPI_BLOCKING || twill_mpi.all_multiple;
}

enum twill_mpi_why twill_mpi_reduction_find(const struct twill_mpi_call *call,
                                            const struct twill_mpi_type *type,
                                            struct twill_mpi_reduction *found)
{
    for (size_t i = 0; i < sizeof(predefined) / sizeof(*predefined); i++) {
        if (predefined[i].op != call->op)
            continue;
        if (!(predefined[i].classes >> type->class & 1))
            return TWILL_MPI_WHY_ERRONEOUS;
        bool native = type->native >= 0 && (type->components == 1 || call->op == MPI_SUM);
        return native ? take_native(type, predefined[i].native, found)
                      : take_made(call, type, found);
    }
    if (call->op == MPI_OP_NULL || call->op == MPI_REPLACE || call->op == MPI_NO_OP)
        return TWILL_MPI_WHY_ERRONEOUS;
    if (!type->plain || type->true_lb != 0)
        return TWILL_MPI_WHY_TYPE;
    if (type->extent < 1 || type->extent > (MPI_Count)TWILL_MPI_ELEMENT_MOST)
        return TWILL_MPI_WHY_ELEMENT;
    if (!may_run_anywhere(call->form))
        return TWILL_MPI_WHY_FUNCTION;
    return take_made(call, type, found);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Bounce memory. If the elements of a side are not contiguous bytes in order, PMPI_Pack packs them.
 * Between machines of one kind, the packed form consists of the bytes themselves. */
#include "lib/mpi/mpi_call.h"

#include <stdlib.h>
#include <string.h>

/* Most bytes for one PMPI_Pack, which counts in int. */
#define PACKED_AT_ONCE ((MPI_Count)1 << 30)
/* Alignment in bytes of the parts of one allocation. */
#define PACK_ALIGNMENT ((size_t)64)

int twill_mpi_to_self(const void *from, int count, MPI_Datatype type, void *to, int to_count,
                      MPI_Datatype to_type)
{
    int me = 0;
    PMPI_Comm_rank(twill_mpi.shadow, &me);
    pthread_mutex_lock(&twill_mpi.self.lock); /* messages of other threads would also match */
    int code = PMPI_Sendrecv(from, count, type, me, 0, to, to_count, to_type, me, 0,
                             twill_mpi.shadow, MPI_STATUS_IGNORE);
    pthread_mutex_unlock(&twill_mpi.self.lock);
    return code;
}

/* Copy one element of over PACKED_AT_ONCE bytes to `bytes` if `packs`, else back. Returns MPI's
 * code. */
static int move_giant(const struct twill_mpi_side *side, char *user, unsigned char *bytes,
                      bool packs)
{
    const MPI_Count full = side->size / PACKED_AT_ONCE;
    MPI_Datatype unit = MPI_DATATYPE_NULL, whole = MPI_DATATYPE_NULL;
    int code = PMPI_Type_contiguous((int)PACKED_AT_ONCE, MPI_BYTE, &unit);
    if (code != MPI_SUCCESS)
        return code;
    code = PMPI_Type_create_struct(2, (int[]){(int)full, (int)(side->size % PACKED_AT_ONCE)},
                                   (MPI_Aint[]){0, (MPI_Aint)(full * PACKED_AT_ONCE)},
                                   (MPI_Datatype[]){unit, MPI_BYTE}, &whole);
    PMPI_Type_free(&unit);
    if (code != MPI_SUCCESS)
        return code;
    code = PMPI_Type_commit(&whole);
    if (code == MPI_SUCCESS)
        code = packs ? twill_mpi_to_self(user, 1, side->type, bytes, 1, whole)
                     : twill_mpi_to_self(bytes, 1, whole, user, 1, side->type);
    PMPI_Type_free(&whole);
    return code;
}

/* Copy `some` elements to `bytes` if `packs`, else back. Returns MPI's code. MPICH takes MPI_BOTTOM
 * for a missing argument here, so the base is then moved up and the type moved down. */
static int move_some(const struct twill_mpi_side *side, char *user, int some, unsigned char *bytes,
                     bool packs)
{
    const MPI_Aint shift = user == NULL ? -(MPI_Aint)PACK_ALIGNMENT : 0;
    const int length = (int)(some * side->size), one = 1;
    MPI_Datatype type = side->type;
    int position = 0, code = MPI_SUCCESS;
    if (shift != 0) {
        user = twill_mpi_at(user, -shift);
        code = PMPI_Type_create_hindexed(1, &one, &shift, side->type, &type);
        if (code != MPI_SUCCESS)
            return code;
        PMPI_Type_commit(&type);
    }
    if (packs)
        code = PMPI_Pack(user, some, type, bytes, length, &position, twill_mpi.shadow);
    else
        code = PMPI_Unpack(bytes, length, &position, user, some, type, twill_mpi.shadow);
    if (shift != 0)
        PMPI_Type_free(&type);
    return code;
}

/* Copy `count` contiguous elements to `bytes` if `packs`, else back. Returns MPI's code. */
static int move_run(const struct twill_mpi_side *side, char *user, MPI_Count count,
                    unsigned char *bytes, bool packs)
{
    int code = MPI_SUCCESS;
    if (side->plain) {
        user = twill_mpi_at(user, side->true_lb);
        memcpy(packs ? (void *)bytes : user, packs ? user : (void *)bytes,
               (size_t)(count * side->size));
        return code;
    }
    const MPI_Count most = PACKED_AT_ONCE / side->size;
    while (count > 0 && code == MPI_SUCCESS) {
        const MPI_Count some = most == 0 ? 1 : count < most ? count : most;
        code = most == 0 ? move_giant(side, user, bytes, packs)
                         : move_some(side, user, (int)some, bytes, packs);
        count -= some;
        bytes += (size_t)(some * side->size);
        user = twill_mpi_at(user, some * side->extent);
    }
    return code;
}

/* Copy a side to bounce memory if `packs`, else back. Returns TWILL_ERR_INTERNAL if MPI fails. */
static twill_status move_side(const struct twill_mpi_side *side, bool packs)
{
    unsigned char *bytes = side->bounce;
    MPI_Count next = 0;
    for (int shard = 0; shard < side->shards; shard++) {
        MPI_Count count =
            side->counts == NULL ? side->count : twill_mpi_number(side->counts, side->large, shard);
        MPI_Count at =
            side->displs == NULL ? next : twill_mpi_number(side->displs, side->large, shard);
        /* Fails for a type that was freed or never committed, which the binder has also noticed. */
        if (shard != side->skip && count * side->size != 0 &&
            move_run(side, twill_mpi_at(side->user, at * side->extent), count, bytes, packs) !=
                MPI_SUCCESS)
            return TWILL_ERR_INTERNAL;
        bytes += (size_t)(count * side->size);
        next += count;
    }
    return TWILL_OK;
}

void twill_mpi_pack_bounced(struct twill_mpi_bound *bound)
{
    if ((bound->bounced & TWILL_MPI_FAILS) != 0 || (bound->bounced & TWILL_MPI_BOUNCES_IN) == 0)
        return;
    twill_status status = move_side(&bound->in, true);
    if (status != TWILL_OK)
        twill_mpi_bound_fail(bound, status);
}

twill_status twill_mpi_unpack_bounced(const struct twill_mpi_bound *bound)
{
    return (bound->bounced & TWILL_MPI_FAILS) != 0 ? bound->failure : move_side(&bound->out, false);
}

/* Return `bytes` of bounce memory for a blocking call on `comm`, or NULL if out of memory. */
static void *scratch(struct twill_mpi_comm *comm, size_t bytes)
{
    if (comm->scratch.bounce_bytes < bytes) {
        free(comm->scratch.bounce);
        comm->scratch.bounce = aligned_alloc(PACK_ALIGNMENT, bytes);
        comm->scratch.bounce_bytes = comm->scratch.bounce == NULL ? 0 : bytes;
    }
    return comm->scratch.bounce;
}

/* Make a side independent of the program's arrays and type, which may be gone after the call.
 * Copies the arrays to *more, moves *more past the copies, and points the side to them. Unless
 * plain, replaces the type by a new equal one. Returns false if the MPI cannot make it. */
static bool keep_side(struct twill_mpi_side *side, unsigned char **more)
{
    const size_t bytes = (size_t)side->shards * (side->large ? sizeof(MPI_Count) : sizeof(int));
    const void **arrays[] = {&side->counts, &side->displs};
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(arrays); i++)
        if (*arrays[i] != NULL) {
            *arrays[i] = memcpy(*more, *arrays[i], bytes);
            *more += twill_round_up(bytes, PACK_ALIGNMENT);
        }
    if (side->plain)
        return true;
    /* PMPI_Type_dup() would call the program's attribute callbacks. */
    MPI_Datatype kept = MPI_DATATYPE_NULL;
    if (PMPI_Type_contiguous(1, side->type, &kept) != MPI_SUCCESS)
        kept = MPI_DATATYPE_NULL;
    side->type = kept;
    return kept != MPI_DATATYPE_NULL && PMPI_Type_commit(&kept) == MPI_SUCCESS;
}

/* Return the bytes that keep_side() needs for the arrays of a side. */
static size_t kept_bytes(const struct twill_mpi_side *side)
{
    const size_t array = twill_round_up((size_t)side->shards * sizeof(MPI_Count), PACK_ALIGNMENT);
    return ((side->counts != NULL) + (side->displs != NULL)) * array;
}

void twill_mpi_bounce(struct twill_mpi_bound *bound)
{
    const bool in = (bound->bounced & TWILL_MPI_BOUNCES_IN) != 0;
    const bool out = (bound->bounced & TWILL_MPI_BOUNCES_OUT) != 0;
    const bool outlives = bound->form != TWILL_MPI_BLOCKING;
    if (!bound->shared) {
        bound->src_at = 0;
        bound->dst_at = in ? twill_round_up(bound->in.bytes, PACK_ALIGNMENT) : 0;
    }
    const size_t src_end = in ? bound->src_at + bound->in.bytes : 0;
    const size_t dst_end = out ? bound->dst_at + bound->out.bytes : 0;
    const size_t bounce = twill_round_up(twill_max(src_end, dst_end) + 1, PACK_ALIGNMENT);
    if (outlives)
        bound->memory = aligned_alloc(PACK_ALIGNMENT, bounce + (in ? kept_bytes(&bound->in) : 0) +
                                                          (out ? kept_bytes(&bound->out) : 0));
    else
        bound->memory = scratch(bound->comm, bounce);
    if (bound->memory == NULL) {
        twill_mpi_bound_fail(bound, TWILL_ERR_MEMORY);
        return;
    }
    unsigned char *memory = bound->memory, *more = memory + bounce;
    if (in || bound->shared)
        bound->src = bound->in.bounce = memory + bound->src_at;
    if (out || bound->shared)
        bound->dst = bound->out.bounce = memory + bound->dst_at;
    /* Both, even after a failure, because freeing expects each side to have a kept type or none. */
    const bool kept_in = !outlives || !in || keep_side(&bound->in, &more);
    const bool kept_out = !outlives || !out || keep_side(&bound->out, &more);
    if (!kept_in || !kept_out)
        twill_mpi_bound_fail(bound, TWILL_ERR_MEMORY);
}

void twill_mpi_bound_free_owned(struct twill_mpi_bound *bound)
{
    struct twill_mpi_side *sides[] = {&bound->in, &bound->out};
    if (bound->made != NULL)
        twill_mpi_operation_release(bound->made, bound->form == TWILL_MPI_PERSISTENT);
    if (bound->form == TWILL_MPI_BLOCKING || bound->memory == NULL)
        return;
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(sides); i++)
        if ((bound->bounced & (1u << i)) != 0 && !sides[i]->plain &&
            sides[i]->type != MPI_DATATYPE_NULL)
            PMPI_Type_free(&sides[i]->type);
    free(bound->memory);
}

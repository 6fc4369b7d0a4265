/* SPDX-License-Identifier: Apache-2.0 */
/* Bound calls: an MPI call translated to a twill call. Bound by mpi_move.c and mpi_reduce.c, run by
 * mpi_run.c and mpi_requests.c; mpi_pack.c copies through bounce memory. */
#ifndef TWILL_MPI_CALL_H
#define TWILL_MPI_CALL_H

#include "lib/mpi/shim.h"

/* One side of a call for which twill cannot use the program's memory: `shards` runs of elements,
 * packed into or unpacked from contiguous bytes. */
struct twill_mpi_side {
    const void *user;   /* the program's buffer */
    MPI_Datatype type;  /* for PMPI_Pack; unused if plain */
    MPI_Count size;     /* of a packed element, bytes */
    MPI_Count extent;   /* distance of elements in the program's memory, bytes */
    MPI_Count true_lb;  /* plain: offset of the first byte */
    bool plain;         /* count * size contiguous bytes per run: copied with memcpy */
    bool large;         /* counts are MPI_Count and displs MPI_Aint; else int */
    int shards, skip;   /* skip: this shard is not copied; -1: none */
    MPI_Count count;    /* elements of each shard ... */
    const void *counts; /* ... or NULL */
    const void *displs; /* in extents; NULL: shards are contiguous */
    size_t bytes;       /* of all shards */
    unsigned char *bounce;
};

/* Flags of twill_mpi_bound. BOUNCES_IN: `in` is packed before every run; BOUNCES_OUT: `out` is
 * unpacked after it. FAILS: this rank alone lacks something. The other ranks wait for it, so it
 * takes part with a barrier, which does not match their call, and all ranks get an error. */
enum { TWILL_MPI_BOUNCES_IN = 1, TWILL_MPI_BOUNCES_OUT = 2, TWILL_MPI_FAILS = 4 };

/* An MPI call as twill will make it. The caller of twill_mpi_bind() owns it. Members that the
 * collective does not use are undefined, and so are the sides that `bounced` does not name. */
struct twill_mpi_bound {
    enum twill_mpi_kind kind;
    enum twill_mpi_form form;
    struct twill_mpi_comm *comm;
    const void *src;
    void *dst;
    size_t count; /* elements; of the side without counts where one side has counts */
    const size_t *src_counts, *src_offsets, *dst_counts, *dst_offsets; /* [size], or NULL */
    twill_type type;
    twill_op op;
    int root;
    struct twill_mpi_operation *made; /* operation to release, or NULL */
    unsigned bounced;                 /* TWILL_MPI_BOUNCES_*, TWILL_MPI_FAILS */
    bool shared; /* in place: src and dst are both in the bounce memory, at these offsets */
    size_t src_at, dst_at;
    void *memory;         /* the bounce memory; owned by nonblocking and persistent calls */
    twill_status failure; /* what a call that FAILS returns */
    struct twill_mpi_side in, out;
};

/* What is wrong with a call's arguments; 0: nothing. RECEIVED is added for the receive side. */
enum {
    TWILL_MPI_WRONG_ROOT = 1,
    TWILL_MPI_WRONG_TYPE,
    TWILL_MPI_WRONG_UNCOMMITTED,
    TWILL_MPI_WRONG_COUNT,
    TWILL_MPI_WRONG_ARRAY,   /* missing */
    TWILL_MPI_WRONG_PLACE,   /* MPI_IN_PLACE not allowed */
    TWILL_MPI_WRONG_ADDRESS, /* bytes, but no buffer */
    TWILL_MPI_WRONG_ALIAS,   /* one buffer for both sides */
    TWILL_MPI_WRONG_SIZE,    /* beyond any memory */
    TWILL_MPI_WRONG_RECEIVED = 64
};
static inline unsigned twill_mpi_received(unsigned wrong)
{
    return wrong == 0 ? 0 : wrong | TWILL_MPI_WRONG_RECEIVED;
}
/* Return whether the MPI below refuses such a call at once, whatever other ranks do. */
bool twill_mpi_is_refused(const struct twill_mpi_call *call, const struct twill_mpi_comm *comm,
                          unsigned wrong);
/* Return what a binder returns for wrong arguments: ERRONEOUS, or TAKEN with a call that FAILS. */
enum twill_mpi_why twill_mpi_wrong(const struct twill_mpi_call *call, struct twill_mpi_bound *bound,
                                   unsigned wrong);
/* Return why twill_mpi_type_find() found nothing. */
static inline unsigned twill_mpi_wrong_type(MPI_Datatype type)
{
    return type == MPI_DATATYPE_NULL ? TWILL_MPI_WRONG_TYPE : TWILL_MPI_WRONG_UNCOMMITTED;
}

/* The binder of each collective. Fills in what the call needs of *bound beyond what
 * twill_mpi_bind() sets: of sides all but `bounce`; src and dst only where they need no bounce
 * memory. Returns TAKEN or why the call is passed on. */
typedef enum twill_mpi_why twill_mpi_bind_fn(const struct twill_mpi_call *call,
                                             struct twill_mpi_bound *bound);
#define TWILL_MPI_BINDER(name, lower) twill_mpi_bind_fn twill_mpi_bind_##lower;
TWILL_MPI_TAKEN(TWILL_MPI_BINDER)
TWILL_MPI_BINDER(Barrier, barrier)
#undef TWILL_MPI_BINDER

/* Bind a call, to be run in the given form: the program's, or nonblocking instead of blocking.
 * Returns TAKEN, and the caller must end with twill_mpi_bound_free(), or why the call is passed on,
 * with nothing to free. A bound call may be moved in memory.
 *
 * With threads the caller holds the communicator's lock until twill_mpi_issue(): calls share the
 * communicator's arrays of counts, which twill copies. The order of calls:
 *
 *   blocking      bind, pack, issue, unpack, free
 *   nonblocking   bind, pack, issue; when complete: unpack, free
 *   persistent    bind, issue; each start: pack, twill_request_start() (if it FAILS: issue it as
 *                 nonblocking); when complete: unpack; at the end: free */
enum twill_mpi_why twill_mpi_bind(const struct twill_mpi_call *call, enum twill_mpi_form form,
                                  struct twill_mpi_comm *comm, struct twill_mpi_bound *bound);
static inline void twill_mpi_bound_fail(struct twill_mpi_bound *bound, twill_status failure)
{
    bound->bounced |= TWILL_MPI_FAILS;
    bound->failure = failure;
}
/* Return element i of an array of counts or displacements; return base + bytes, where base may be
 * MPI_BOTTOM. */
static inline MPI_Count twill_mpi_number(const void *array, bool large, int i)
{
    return large ? ((const MPI_Count *)array)[i] : ((const int *)array)[i];
}
static inline void *twill_mpi_at(const void *base, MPI_Count bytes)
{
    return (void *)((uintptr_t)base + (uintptr_t)bytes);
}
/* Most calls need no bounce memory and have nothing to free, so the inline functions below test
 * that first. */
void twill_mpi_pack_bounced(struct twill_mpi_bound *bound);
twill_status twill_mpi_unpack_bounced(const struct twill_mpi_bound *bound);
void twill_mpi_bound_free_owned(struct twill_mpi_bound *bound);
/* Pack the send side. If the MPI cannot, the call FAILS. */
static inline void twill_mpi_pack(struct twill_mpi_bound *bound)
{
    if (bound->bounced != 0)
        twill_mpi_pack_bounced(bound);
}
static inline twill_status twill_mpi_unpack(const struct twill_mpi_bound *bound)
{
    return (bound->bounced & (TWILL_MPI_BOUNCES_OUT | TWILL_MPI_FAILS)) == 0
               ? TWILL_OK
               : twill_mpi_unpack_bounced(bound);
}
static inline void twill_mpi_bound_free(struct twill_mpi_bound *bound)
{
    if (bound->made != NULL || bound->memory != NULL)
        twill_mpi_bound_free_owned(bound);
}
/* Copy elements within this process as a message would. Returns MPI's code. */
int twill_mpi_to_self(const void *from, int count, MPI_Datatype type, void *to, int to_count,
                      MPI_Datatype to_type);
/* Allocate bounce memory and set src and dst. Without memory the call FAILS. */
void twill_mpi_bounce(struct twill_mpi_bound *bound);
/* Make the twill call. *request is set for nonblocking and persistent calls. */
twill_status twill_mpi_issue(const struct twill_mpi_bound *bound, twill_request **request);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Calls bound to what twill is to do: by mpi_move.c and mpi_reduce.c, run by mpi_run.c and
 * mpi_requests.c, with staging by mpi_pack.c. */
#ifndef TWILL_MPI_CALL_H
#define TWILL_MPI_CALL_H

#include "lib/mpi/shim.h"

/* One side of a call where twill cannot work on the program's own memory: `parts` runs of elements
 * that are packed into, or unpacked from, as many bytes in a row. */
struct twill_mpi_side {
    const void *user;   /* the program's buffer */
    MPI_Datatype type;  /* what PMPI_Pack is told; of no matter if plain */
    MPI_Count size;     /* bytes of an element when packed */
    MPI_Count extent;   /* from one element of the program's to the next */
    MPI_Count true_lb;  /* plain: where its bytes start */
    bool plain;         /* a run is count * size bytes in a row: it is copied */
    bool large;         /* counts are MPI_Count, displs MPI_Aint; else int */
    int shards, skip;   /* skip: this part stays as it is; -1: none */
    MPI_Count count;    /* elements of each part ... */
    const void *counts; /* ... or NULL */
    const void *displs; /* in extents; NULL: one part after the other */
    size_t bytes;       /* of all parts */
    unsigned char *bounce;
};

/* FAILS: this rank alone has not what the call needs. The others count on it: so it comes, but as
 * a barrier, which nobody else is in, and all hear of that. */
enum { TWILL_MPI_BOUNCES_IN = 1, TWILL_MPI_BOUNCES_OUT = 2, TWILL_MPI_FAILS = 4 };

/* A call as twill is to make it. What its verb has no use for is left undefined, and so are the
 * sides that `staged` does not name. */
struct twill_mpi_bound {
    enum twill_mpi_kind kind;
    enum twill_mpi_form form;
    struct twill_mpi_comm *comm;
    const void *src;
    void *dst;
    size_t count; /* elements; calls with counts on one side only: of the other */
    const size_t *src_counts, *src_offsets, *dst_counts, *dst_offsets; /* [size]; may be NULL */
    twill_type type;
    twill_op op;
    int root;
    struct twill_mpi_operation *made; /* or NULL */
    unsigned bounced; /* TWILL_MPI_STAGES_: in is packed before every run, out unpacked after */
    bool shared;      /* in place: src and dst are both in the staging, after so many bytes: */
    size_t src_at, dst_at;
    void *memory;         /* of the staging; forms that outlive the call own it */
    twill_status failure; /* of what FAILS */
    struct twill_mpi_side in, out;
};

/* What may be wrong with a call's arguments; RECEIVED: with those of what is received. 0: nothing.
 */
enum {
    TWILL_MPI_WRONG_ROOT = 1,
    TWILL_MPI_WRONG_TYPE,
    TWILL_MPI_WRONG_UNCOMMITTED,
    TWILL_MPI_WRONG_COUNT,
    TWILL_MPI_WRONG_ARRAY,   /* there is none */
    TWILL_MPI_WRONG_PLACE,   /* MPI_IN_PLACE */
    TWILL_MPI_WRONG_ADDRESS, /* bytes at none */
    TWILL_MPI_WRONG_ALIAS,   /* one buffer for both */
    TWILL_MPI_WRONG_SIZE,    /* more than there can be */
    TWILL_MPI_WRONG_RECEIVED = 64
};
static inline unsigned twill_mpi_received(unsigned wrong)
{
    return wrong == 0 ? 0 : wrong | TWILL_MPI_WRONG_RECEIVED;
}
/* Does the MPI below refuse a call of which this is wrong, at once, whatever other ranks do? */
bool twill_mpi_is_refused(const struct twill_mpi_call *call, const struct twill_mpi_comm *comm,
                          unsigned wrong);
/* What a binder returns then: ERRONEOUS, or TAKEN and it FAILS. */
enum twill_mpi_why twill_mpi_wrong(const struct twill_mpi_call *call, struct twill_mpi_bound *bound,
                                   unsigned wrong);
/* Why there is no twill_mpi_type of it. */
static inline unsigned twill_mpi_wrong_type(MPI_Datatype type)
{
    return type == MPI_DATATYPE_NULL ? TWILL_MPI_WRONG_TYPE : TWILL_MPI_WRONG_UNCOMMITTED;
}

/* The calls' binders: TAKEN, and what the call needs of *bound (what twill_mpi_bind() sets itself
 * is set); or why not. Of sides all but `staging`; src and dst only where they are not staged. */
typedef enum twill_mpi_why twill_mpi_bind_fn(const struct twill_mpi_call *call,
                                             struct twill_mpi_bound *bound);
twill_mpi_bind_fn twill_mpi_bind_allreduce, twill_mpi_bind_reduce, twill_mpi_bind_reduce_scatter,
    twill_mpi_bind_reduce_scatter_block;
twill_mpi_bind_fn twill_mpi_bind_bcast, twill_mpi_bind_barrier, twill_mpi_bind_gather,
    twill_mpi_bind_gatherv, twill_mpi_bind_scatter, twill_mpi_bind_scatterv,
    twill_mpi_bind_allgather, twill_mpi_bind_allgatherv, twill_mpi_bind_alltoall,
    twill_mpi_bind_alltoallv;

/* Bind a call (mpi_run.c), to be run in this form (the program's, or nonblocking instead of
 * blocking): TAKEN, and twill_mpi_bound_free() at last; or why not, and nothing is to be freed.
 * Under the communicator's lock where there are threads, and twill_mpi_issue() must be next on it:
 * calls share the communicator's arrays of counts, which twill copies. In order: blocking bind,
 * pack, issue, unpack, free nonblocking   bind, pack, issue; when complete: unpack, free persistent
 * bind, issue; each start: pack, twill_request_start() (if it FAILS then: issue, as a nonblocking
 * one); each time complete: unpack; at the end: free A bound may be moved in memory. */
enum twill_mpi_why twill_mpi_bind(const struct twill_mpi_call *call, enum twill_mpi_form form,
                                  struct twill_mpi_comm *comm, struct twill_mpi_bound *bound);
static inline void twill_mpi_bound_fail(struct twill_mpi_bound *bound, twill_status failure)
{
    bound->bounced |= TWILL_MPI_FAILS;
    bound->failure = failure;
}
/* Element i of an array of counts or displacements, and so many bytes from a place (MPI_BOTTOM is
 * one, too). */
static inline MPI_Count twill_mpi_number(const void *array, bool large, int i)
{
    return large ? ((const MPI_Count *)array)[i] : ((const int *)array)[i];
}
static inline void *twill_mpi_at(const void *base, MPI_Count bytes)
{
    return (void *)((uintptr_t)base + (uintptr_t)bytes);
}
/* Most calls have nothing staged, and nothing to free. */
void twill_mpi_pack_bounced(struct twill_mpi_bound *bound);
twill_status twill_mpi_unpack_bounced(const struct twill_mpi_bound *bound);
void twill_mpi_bound_free_owned(struct twill_mpi_bound *bound);
/* Where the MPI cannot pack, the call FAILS: the others count on it. */
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
/* Elements from one place of the program's to another, as a message would bring them. */
int twill_mpi_to_self(const void *from, int count, MPI_Datatype type, void *to, int to_count,
                      MPI_Datatype to_type);
/* Get memory for what is staged and set src and dst, or it FAILS. */
void twill_mpi_bounce(struct twill_mpi_bound *bound);
/* Have twill make the call (mpi_run.c): *request for the forms that have one. */
twill_status twill_mpi_issue(const struct twill_mpi_bound *bound, twill_request **request);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Bound calls. A bound call is an MPI call translated to a twill call. mpi_move.c and mpi_reduce.c
 * bind it, mpi_run.c and mpi_requests.c run it, and mpi_pack.c copies through bounce memory. */
#ifndef TWILL_MPI_CALL_H
#define TWILL_MPI_CALL_H

#include "lib/mpi/shim.h"

/* One side, sending or receiving, of a call whose memory twill cannot use directly. Part of a
 * twill_mpi_bound. It consists of `shards` stretches of elements, which are packed into or unpacked
 * from contiguous bytes. */
struct twill_mpi_side {
    const void *user;      /* the program's buffer */
    MPI_Datatype type;     /* for PMPI_Pack; unused if plain */
    MPI_Count size;        /* bytes of a packed element */
    MPI_Count extent;      /* distance in bytes of elements in the program's memory */
    MPI_Count true_lb;     /* offset in bytes of the first byte, used if plain */
    bool plain;            /* each stretch is count * size contiguous bytes, copied with memcpy */
    bool large;            /* counts are MPI_Count and displs MPI_Aint, not int */
    int shards, skip;      /* `skip` is a shard that is not copied, or -1 */
    MPI_Count count;       /* elements of each shard, if counts is NULL */
    const void *counts;    /* [shards] elements of each, or NULL */
    const void *displs;    /* in extents; NULL if the shards are contiguous */
    size_t bytes;          /* packed bytes of all shards */
    unsigned char *bounce; /* the packed bytes, in bounce memory of the call */
};

/* Flags of twill_mpi_bound. BOUNCES_IN means that `in` is packed before every run, and BOUNCES_OUT
 * that `out` is unpacked after it. FAILS means that this rank alone lacks something. As the others
 * wait for it, it makes a barrier, which their call does not match, and all get an error. */
enum { TWILL_MPI_BOUNCES_IN = 1, TWILL_MPI_BOUNCES_OUT = 2, TWILL_MPI_FAILS = 4 };

/* An MPI call as twill will make it. The caller of twill_mpi_bind() owns it. Undefined are members
 * that the collective does not use, and sides that `bounced` does not name. */
struct twill_mpi_bound {
    enum twill_mpi_kind kind;
    enum twill_mpi_form form;
    struct twill_mpi_comm *comm;
    const void *src;
    void *dst;
    size_t count; /* elements. If only one side has counts, those of the other side */
    const size_t *src_counts, *src_offsets, *dst_counts, *dst_offsets; /* [size], or NULL */
    twill_type type;
    twill_op op;
    int root;
    struct twill_mpi_operation *made; /* operation to release, or NULL */
    unsigned bounced;                 /* TWILL_MPI_BOUNCES_*, TWILL_MPI_FAILS */
    bool once;   /* the binder has moved data, so that each call must be bound */
    bool shared; /* in place: src and dst are both in bounce memory, at these offsets */
    size_t src_at, dst_at;
    void *memory;         /* bounce memory, owned by the call unless it is blocking */
    twill_status failure; /* status that a call that FAILS returns */
    struct twill_mpi_side in, out;
};

/* Faults of a call's arguments, or 0. RECEIVED is added if the fault is on the receive side. */
enum {
    TWILL_MPI_WRONG_ROOT = 1,
    TWILL_MPI_WRONG_TYPE,
    TWILL_MPI_WRONG_UNCOMMITTED,
    TWILL_MPI_WRONG_COUNT,
    TWILL_MPI_WRONG_ARRAY,   /* missing */
    TWILL_MPI_WRONG_PLACE,   /* MPI_IN_PLACE where it is not allowed */
    TWILL_MPI_WRONG_ADDRESS, /* bytes, but no buffer */
    TWILL_MPI_WRONG_ALIAS,   /* one buffer for both sides */
    TWILL_MPI_WRONG_SIZE,    /* larger than any memory */
    TWILL_MPI_WRONG_RECEIVED = 64
};
/* Return the fault `wrong` (TWILL_MPI_WRONG_*) marked as one of the receive side, or 0 for 0. */
static inline unsigned twill_mpi_received(unsigned wrong)
{
    return wrong == 0 ? 0 : wrong | TWILL_MPI_WRONG_RECEIVED;
}
/* Return whether the MPI refuses a call with the fault `wrong` at once, whatever other ranks do.
 * Returns false for a persistent call, and if the MPI checks no arguments. */
bool twill_mpi_is_refused(const struct twill_mpi_call *call, const struct twill_mpi_comm *comm,
                          unsigned wrong);
/* Handle the fault `wrong` of a call. Returns ERRONEOUS if the MPI refuses such a call. Otherwise
 * prints the fault and returns TAKEN, and the call then takes part as a barrier and fails. */
enum twill_mpi_why twill_mpi_wrong(const struct twill_mpi_call *call, struct twill_mpi_bound *bound,
                                   unsigned wrong);
/* Return the fault of a type for which twill_mpi_type_find() returned NULL. */
static inline unsigned twill_mpi_wrong_type(MPI_Datatype type)
{
    return type == MPI_DATATYPE_NULL ? TWILL_MPI_WRONG_TYPE : TWILL_MPI_WRONG_UNCOMMITTED;
}

/* The binder of each collective. It fills in the members of *bound that the call needs and
 * twill_mpi_bind() does not set. Of a side it sets all but `bounce`, and src and dst only if they
 * need no bounce memory. Returns TAKEN, or the reason for passing the call on. */
typedef enum twill_mpi_why twill_mpi_bind_fn(const struct twill_mpi_call *call,
                                             struct twill_mpi_bound *bound);
#define TWILL_MPI_BINDER(name, lower) twill_mpi_bind_fn twill_mpi_bind_##lower;
TWILL_MPI_TAKEN(TWILL_MPI_BINDER)
TWILL_MPI_BINDER(Barrier, barrier)
#undef TWILL_MPI_BINDER

/* Bind a call, to be run in `form`: the program's, or nonblocking for a blocking call. Returns
 * TAKEN, and the caller must end with twill_mpi_bound_free(), or the reason for passing the call
 * on, with nothing to free. A bound call may be moved in memory.
 *
 * With threads the caller holds the communicator's lock until twill_mpi_issue() returns. Calls
 * share the communicator's arrays of counts, which twill copies. The order of calls:
 *
 *   blocking      bind, pack, issue, unpack, free
 *   nonblocking   bind, pack, issue, and after completion unpack, free
 *   persistent    bind, issue, then for each start pack, twill_request_start() (if the call FAILS,
 *                 issue it as nonblocking), and after completion unpack. At the end free. */
enum twill_mpi_why twill_mpi_bind(const struct twill_mpi_call *call, enum twill_mpi_form form,
                                  struct twill_mpi_comm *comm, struct twill_mpi_bound *bound);
/* Make the call FAIL, so that it takes part as a barrier and then returns `failure`. */
static inline void twill_mpi_bound_fail(struct twill_mpi_bound *bound, twill_status failure)
{
    bound->bounced |= TWILL_MPI_FAILS;
    bound->failure = failure;
}
/* Return element i of an array of counts or displacements of MPI_Count if `large`, else of int. */
static inline MPI_Count twill_mpi_number(const void *array, bool large, int i)
{
    return large ? ((const MPI_Count *)array)[i] : ((const int *)array)[i];
}
/* Return base + bytes. `base` may be MPI_BOTTOM. */
static inline void *twill_mpi_at(const void *base, MPI_Count bytes)
{
    return (void *)((uintptr_t)base + (uintptr_t)bytes);
}
/* Copy the data to send to bounce memory if they go through it. If the MPI cannot copy them, set
 * TWILL_MPI_FAILS in bound->bounced, so that the call fails on all ranks. */
void twill_mpi_pack_bounced(struct twill_mpi_bound *bound);
/* Copy the received data from bounce memory to the program's buffer. Returns TWILL_OK, or
 * TWILL_ERR_INTERNAL if the MPI cannot copy. If bound->bounced has TWILL_MPI_FAILS, copies nothing
 * and returns bound->failure. */
twill_status twill_mpi_unpack_bounced(const struct twill_mpi_bound *bound);
/* Release the call's operation and, unless it is blocking, free its bounce memory and types. */
void twill_mpi_bound_free_owned(struct twill_mpi_bound *bound);
/* Copy the data to send to bounce memory if twill cannot use them in place. If the MPI cannot copy
 * them, set TWILL_MPI_FAILS in bound->bounced, so that the call fails on all ranks. */
static inline void twill_mpi_pack(struct twill_mpi_bound *bound)
{
    if (bound->bounced != 0)
        twill_mpi_pack_bounced(bound);
}
/* Copy the receive side from bounce memory if it is there. Returns the failure if the call FAILS,
 * TWILL_ERR_INTERNAL if the MPI cannot copy, otherwise TWILL_OK. */
static inline twill_status twill_mpi_unpack(const struct twill_mpi_bound *bound)
{
    return (bound->bounced & (TWILL_MPI_BOUNCES_OUT | TWILL_MPI_FAILS)) == 0
               ? TWILL_OK
               : twill_mpi_unpack_bounced(bound);
}
/* Release the call's operation and free the bounce memory that the call owns. */
static inline void twill_mpi_bound_free(struct twill_mpi_bound *bound)
{
    if (bound->made != NULL || bound->memory != NULL)
        twill_mpi_bound_free_owned(bound);
}
/* Copy elements within this process, as a message to itself would. Returns MPI's code. */
int twill_mpi_to_self(const void *from, int count, MPI_Datatype type, void *to, int to_count,
                      MPI_Datatype to_type);
/* Allocate bounce memory, and set src and dst to it where a side needs it. For a call that is not
 * blocking, also copy the arrays and types that it needs later. If out of memory or if the MPI
 * fails, the call FAILS. */
void twill_mpi_bounce(struct twill_mpi_bound *bound);
/* Run, start or initialise the twill call, by its form. If bound->bounced has TWILL_MPI_FAILS, do
 * this with a barrier instead, so that all ranks get an error. Returns twill's status. Sets
 * *request unless the call is blocking, for which `request` is NULL. */
twill_status twill_mpi_issue(const struct twill_mpi_bound *bound, twill_request **request);

/* --- remembered calls (mpi_run.c) ------------------------------------------------------------ */
/* Remembered calls. A communicator remembers the last few blocking calls of a kind that twill has
 * run, with their arguments and what these mean for twill. A call with the same arguments is then
 * made at once. Only predefined types and operations are remembered, as others may be freed and
 * their handles used again, and only calls without bounce memory. */
/* Kinds of call that are remembered: the root of a call, or 0, and twill's function with its
 * arguments from a twill_mpi_comm `own` and a twill_mpi_memo `m`. */
#define TWILL_MPI_REMEMBERED(X)                                                                    \
    X(Allreduce, 0, allreduce, own->comm, m->src, m->dst, m->elements, m->as, m->with)             \
    X(Reduce, root, reduce, own->comm, m->src, m->dst, m->elements, m->as, m->with, m->root)       \
    X(Reduce_scatter_block, 0, reduce_scatter, own->comm, m->src, m->dst, m->elements, m->as,      \
      m->with)                                                                                     \
    X(Bcast, root, broadcast, own->comm, m->src, m->dst, m->elements, m->as, root)                 \
    X(Allgather, 0, allgather, own->comm, m->src, m->dst, m->elements, m->as)                      \
    X(Gather, root, gather, own->comm, m->src, m->dst, m->elements, m->as, root)                   \
    X(Scatter, root, scatter, own->comm, m->src, m->dst, m->elements, m->as, root)                 \
    X(Alltoall, 0, alltoall, own->comm, m->src, m->dst, m->elements, m->as)                        \
    X(Barrier, 0, barrier, own->comm)                                                              \
    X(Allgatherv, 0, allgatherv, own->comm, m->src, m->dst, m->counts, m->offsets, m->as)          \
    X(Gatherv, root, gatherv, own->comm, m->src, m->elements, m->dst, m->counts, m->offsets,       \
      m->as, root)                                                                                 \
    X(Scatterv, root, scatterv, own->comm, m->src, m->counts, m->offsets, m->dst, m->elements,     \
      m->as, root)                                                                                 \
    X(Reduce_scatter, 0, reduce_scatterv, own->comm, m->src, m->dst, m->counts, m->as, m->with)    \
    X(Alltoallv, 0, alltoallv, own->comm, m->src, m->offsets + own->size,                          \
      m->offsets + 2 * own->size, m->dst, m->counts, m->offsets, m->as)

/* Remember a call that twill has run, if it is of such a kind and has nothing else to do after it.
 * `bound` is what it was bound to. With threads the caller holds the communicator's lock. */
void twill_mpi_memo_keep(const struct twill_mpi_call *call, const struct twill_mpi_bound *bound);
/* Forget the calls of a communicator on which no thread makes any. */
void twill_mpi_memo_forget(struct twill_mpi_comm *own);
/* Count a call that this rank begins in twill. Persistent ones are not counted. */
static inline void twill_mpi_begin(struct twill_mpi_comm *comm)
{
    const int calls = atomic_load_explicit(&comm->refusal.calls, memory_order_relaxed);
    atomic_store_explicit(&comm->refusal.calls, calls + 1, memory_order_relaxed);
}
/* Note that this thread waits in a blocking call of this kind, or in none if it is -1. */
static inline void twill_mpi_wait_in(struct twill_mpi_comm *comm, int kind)
{
    atomic_store_explicit(&comm->refusal.waits_in, kind, memory_order_relaxed);
}

/* Return the communicator if it may have remembered calls that may be made now, or NULL. With
 * threads its lock is taken then. */
static inline struct twill_mpi_comm *twill_mpi_memo_begin(MPI_Comm handle)
{
    if (TWILL_UNLIKELY(twill_mpi.forked))
        return NULL;
    struct twill_mpi_comm *own = atomic_load_explicit(&twill_mpi.comms.last, memory_order_relaxed);
    if (own == NULL || atomic_load_explicit(&own->handle, memory_order_acquire) != handle)
        own = twill_mpi_comm_find(handle);
    if (TWILL_UNLIKELY(own == NULL || own->comm == NULL))
        return NULL;
    twill_mpi_lock(own);
    if (TWILL_LIKELY(own->scratch.calls.memos != NULL &&
                     (own->active == NULL || !twill_mpi.multiple)))
        return own;
    twill_mpi_unlock(own);
    return NULL;
}
/* Return the number of the bucket of a communicator. */
static inline uint32_t twill_mpi_bucket(MPI_Comm handle)
{
    return (uint32_t)(uintptr_t)handle * 0x9e3779b1u / (UINT32_MAX / TWILL_MPI_BUCKETS + 1);
}
/* Return the communicator if it is the first of its bucket, as it usually is, or NULL. */
static inline struct twill_mpi_comm *twill_mpi_comm_first(MPI_Comm handle)
{
    struct twill_mpi_comm *own = atomic_load_explicit(
        &twill_mpi.comms.bucket[twill_mpi_bucket(handle)], memory_order_acquire);
    return own != NULL && atomic_load_explicit(&own->handle, memory_order_acquire) == handle ? own
                                                                                             : NULL;
}
/* Return the first of TWILL_MPI_MEMOS memos of a kind, or NULL if out of memory. */
struct twill_mpi_memo *twill_mpi_memos_of(struct twill_mpi_comm *own, enum twill_mpi_kind kind);
/* Let no call be made with nothing but what is remembered, until one is remembered again. */
static inline void twill_mpi_quick_off(void)
{
    if (atomic_load(&twill_mpi.comms.shared))
        atomic_store(&twill_mpi.comms.shared, false);
    if (twill_mpi.comms.quick.comm == &twill_mpi.requests.wrapped)
        return; /* and nothing is written with threads */
    twill_mpi.comms.quick.handle = MPI_COMM_NULL;
    twill_mpi.comms.quick.comm = &twill_mpi.requests.wrapped;
    twill_mpi.comms.quick_before = twill_mpi.comms.quick;
}
/* Exchange the last communicator and the one before it. Does nothing with threads. */
static inline void twill_mpi_quick_turn(void)
{
    const struct twill_mpi_quick before = twill_mpi.comms.quick_before;
    if (before.comm == &twill_mpi.requests.wrapped)
        return;
    twill_mpi.comms.quick_before = twill_mpi.comms.quick;
    twill_mpi.comms.quick = before;
}
/* Let the entry points make this communicator's calls at once, if they need nothing after them. */
void twill_mpi_quick_on(struct twill_mpi_comm *own);
/* Note that a remembered call is made, which is then the one expected after that before it. */
static inline void twill_mpi_memo_found(struct twill_mpi_comm *own, enum twill_mpi_kind kind,
                                        struct twill_mpi_memo *memo)
{
    if (own->scratch.calls.latest[kind] != &twill_mpi.comms.no_call)
        own->scratch.calls.latest[kind]->next = memo;
    own->scratch.calls.latest[kind] = memo;
    twill_mpi_quick_on(own);
}
/* Return whether the program's counts and displacements equal the remembered given[2][size]. */
static inline bool twill_mpi_memo_has(const int *given, const int *counts, const int *displs,
                                      int size)
{
    if (TWILL_UNLIKELY(counts == NULL || displs == NULL))
        return false;
    size_t i = (unsigned)size;
    const int *from = given + i;
    do {
        i--;
        if (given[i] != counts[i] || from[i] != displs[i])
            return false;
    } while (i > 0);
    return true;
}
/* Count a remembered call for the report. */
void twill_mpi_memo_count(struct twill_mpi_comm *own, enum twill_mpi_kind kind,
                          const struct twill_mpi_memo *memo, struct twill_mpi_clock clock);
/* Return MPI's code of a remembered call that has failed, which may pass it on to the MPI. With
 * threads releases the communicator's lock. */
int twill_mpi_memo_failed(struct twill_mpi_comm *own, enum twill_mpi_kind kind,
                          const struct twill_mpi_memo *memo, twill_status status);
/* Make a blocking call with int counts in the MPI below. Returns MPI's code (mpi_entries.c). */
int twill_mpi_pass_on(const struct twill_mpi_call *call);

#endif

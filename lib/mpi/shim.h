/* SPDX-License-Identifier: Apache-2.0 */
/* libtwill-mpi: runs the collectives of an MPI program on twill and leaves everything else to the
 * MPI below. It uses the profiling interface: it defines MPI_X and calls PMPI_X.
 *
 * A collective's way: its entry point (mpi_entries.c) writes the arguments into a twill_mpi_call;
 * twill_mpi_run() (mpi_run.c) looks up the communicator (mpi_comms.c), binds the arguments to a
 * twill call (mpi_move.c, mpi_reduce.c, with mpi_types.c and mpi_ops.c), and runs, starts or
 * initialises it. Otherwise it returns the reason, and the entry point passes the call on to the
 * MPI. That decision must be equal on all ranks, so it never depends on addresses, on alignment, or
 * on the datatypes of calls that only move data. */
#ifndef TWILL_SHIM_H
#define TWILL_SHIM_H

#include "lib/base/base.h"

/* Whatever mpi.h declares is exported by this library. */
#pragma GCC visibility push(default)
#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif
#pragma GCC visibility pop
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "lib/mpi/mpi_collectives.h"
#include "lib/twill.h"

/* --- a call ----------------------------------------------------------------------------------- */

extern const char *const twill_mpi_kind_names[]; /* as MPI has them */

enum twill_mpi_form {
    TWILL_MPI_BLOCKING,
    TWILL_MPI_NONBLOCKING,
    TWILL_MPI_PERSISTENT,
    TWILL_MPI_FORM_COUNT
};

/* Write a call's name as MPI has it: Allreduce, Iallreduce, Allreduce_init. */
void twill_mpi_form_name(enum twill_mpi_kind kind, enum twill_mpi_form form, char *name,
                         size_t bytes);

/* Why a call is passed on to the MPI. The texts appear in the report. */
#define TWILL_MPI_REASONS(X)                                                                       \
    X(TAKEN, "taken")                                                                              \
    X(OFF, "twill is not active")                                                                  \
    X(COMM, "communicator not adopted")                                                            \
    X(ONE_RANK, "one rank")                                                                        \
    X(INTER, "intercommunicator")                                                                  \
    X(NOT_TAKEN, "never taken")                                                                    \
    X(TYPE, "type with holes in a reduction")                                                      \
    X(ELEMENT, "element too large to reduce")                                                      \
    X(FUNCTION, "function that only this thread may call")                                         \
    X(QUICKER, "quicker below")                                                                    \
    X(REVOKED, "communicator revoked")                                                             \
    X(AGREEMENT, "agreement of ranks")                                                             \
    X(ERRONEOUS, "left to the MPI to refuse")
#define TWILL_MPI_REASON(name, text) TWILL_MPI_WHY_##name,
enum twill_mpi_why { TWILL_MPI_REASONS(TWILL_MPI_REASON) TWILL_MPI_WHY_COUNT };
#undef TWILL_MPI_REASON

/* What a collective call sends, or what it receives, as the program gave it. */
struct twill_mpi_end {
    const void *buffer;
    MPI_Count count;
    const void *counts, *displs; /* of calls that have such arrays */
    MPI_Datatype type;
};

/* The arguments of a collective call. Calls with one type or count have it at both ends. */
struct twill_mpi_call {
    enum twill_mpi_kind kind;
    enum twill_mpi_form form;
    bool large; /* a _c call: counts are MPI_Count and displacements MPI_Aint; else both are int */
    int root;
    struct twill_mpi_end send, recv;
    MPI_Op op;
    MPI_Comm comm;
};

/* Run, start or initialise a call. Returns TAKEN, with the entry point's return code in *code, or
 * why the call is to be passed on. `request`: for nonblocking and persistent calls, else NULL. */
enum twill_mpi_why twill_mpi_run(const struct twill_mpi_call *call, MPI_Request *request,
                                 int *code);

/* --- functions that the MPI below or its header may lack: of MPI 4 and later, and MPIX -------- */

typedef void twill_mpi_function(void);
struct twill_mpi_newer { /* a function of the MPI below that it may lack */
    _Atomic bool known;
    twill_mpi_function *_Atomic function;
};
/* Return a function of the MPI below by its name, or NULL. */
twill_mpi_function *twill_mpi_below(const char *name);

#if defined(MPI_SESSION_NULL)
typedef MPI_Session twill_mpi_session;
#else
typedef void *twill_mpi_session; /* in the standard ABI and Open MPI 5 */
#endif
TWILL_EXPORTED int MPI_Session_init(MPI_Info info, MPI_Errhandler errhandler,
                                    twill_mpi_session *session);

#if !defined(MPI_ABI_VERSION) /* the standard ABI has no such function */
TWILL_EXPORTED int MPIX_Comm_revoke(MPI_Comm comm);
#endif

/* --- calls that the MPI refuses to one rank while others wait in twill (mpi_refused.c) -------- */

#define TWILL_MPI_TAG_REFUSED 1 /* of the messages on `shadow` */

/* What a notice of a refused call has. */
struct twill_mpi_notice {
    int number; /* of the communicator */
    int call;   /* which of its calls, from 1 */
    int kind;   /* enum twill_mpi_kind */
};

/* Part of what is known of a communicator. */
struct twill_mpi_refusal {
    int number;        /* equal on its ranks, and of no other communicator of any of them */
    int calls;         /* that this rank has begun in twill, but for persistent ones */
    int waits_in;      /* kind of the blocking call under way, or -1 */
    int own;           /* the last call that was refused to this rank; 0: none */
    _Atomic int of;    /* the last call that was refused to another, by its notice; 0: none */
    int kind, rank;    /* of it: enum twill_mpi_kind, and the rank in MPI_COMM_WORLD */
    uint64_t found_at; /* when the notice was found */
    struct twill_mpi_notice notice; /* that this rank has sent */
    _Atomic bool given_up;          /* a call was given up, and the twill communicator with it */
};

struct twill_mpi_comm;
/* The MPI has refused this call: tell the other ranks, if twill makes the calls of its
 * communicator. */
void twill_mpi_refused(const struct twill_mpi_call *call);
/* Read the notices that have come, and look whether a call is to be given up. Between polls. */
void twill_mpi_refusals_read(void);
void twill_mpi_refusals_check(void);
/* Return whether a call failed because it was given up, so that it must not be passed on. */
bool twill_mpi_is_given_up(struct twill_mpi_comm *comm, twill_status status);
/* Of mpi_comms.c: translate the ranks of a communicator to those of `shadow`. */
bool twill_mpi_world_ranks(MPI_Comm handle, int size, int *ranks);

/* --- communicators (mpi_comms.c) -------------------------------------------------------------- */

/* Replace numbers by the maximum of all ranks', or INT_MAX if the MPI fails. Collective. */
void twill_mpi_most(MPI_Comm comm, int *numbers, int count);
/* Return the bits that all ranks' `mine` have, or 0 if the MPI fails. Collective. */
uint64_t twill_mpi_common(MPI_Comm comm, uint64_t mine);
/* The out-of-band exchange that sets up twill over the MPI below, and learns of ranks that failed.
 * Messages have one size, so a failed rank takes part without knowing what the others exchange.
 * Used by one thread; lives for one set-up. */
struct twill_mpi_frame {
    uint32_t failed;
    char text[252]; /* most contributions fit into one frame */
};
struct twill_mpi_oob {
    MPI_Comm comm;
    int size;
    struct twill_mpi_frame *frame; /* [size] */
    bool failed;                   /* another rank has reported a failure */
};
bool twill_mpi_oob_open(struct twill_mpi_oob *oob, MPI_Comm comm); /* false: out of memory */
void twill_mpi_oob_close(struct twill_mpi_oob *oob);
int twill_mpi_exchange(void *oob, const void *mine, void *all, size_t bytes);
/* Return whether set-up succeeded on all ranks. Every rank calls it once, at the end. */
bool twill_mpi_agree(struct twill_mpi_oob *oob, bool fine);

/* What came of a new communicator; equal on all its ranks. The texts appear in the report. */
#define TWILL_MPI_FATES(X)                                                                         \
    X(ADOPTED, "taken")                                                                            \
    X(ALONE, "one rank")                                                                           \
    X(BETWEEN, "intercommunicator")                                                                \
    X(FOREIGN, "with ranks of another MPI_COMM_WORLD")                                             \
    X(BUSY, "another thread was creating one")                                                     \
    X(DESCRIPTORS, "not enough file descriptors left")                                             \
    X(MEMORY, "out of memory")                                                                     \
    X(FAILED, "failed in twill")
#define TWILL_MPI_FATE(name, text) TWILL_MPI_FATE_##name,
enum twill_mpi_fate { TWILL_MPI_FATES(TWILL_MPI_FATE) TWILL_MPI_FATE_COUNT };
#undef TWILL_MPI_FATE

struct twill_mpi_range {
    uint32_t least, most; /* bytes; 0, 0: no range */
};

/* What is known of one communicator, adopted or not. Entries are never freed before the process
 * ends, except those of persistent requests; after its communicator is freed an entry serves
 * another. */
struct twill_mpi_comm {
    _Atomic(MPI_Comm) handle; /* MPI_COMM_NULL: freed, or belongs to a persistent request */
    twill_comm *comm;         /* NULL: not adopted, for the reason `why` */
    enum twill_mpi_why why;
    int rank, size;
    struct twill_mpi_range quicker[TWILL_MPI_KIND_COUNT]; /* sizes that are passed on */
    pthread_mutex_t lock; /* protects `comm` and its requests; used with MPI_THREAD_MULTIPLE only */
    _Atomic unsigned requests; /* nonblocking ones under way and persistent ones that exist */
    struct twill_mpi_request *active, *newest; /* requests under way, oldest first */
    struct twill_mpi_request *next_polled;     /* the one to poll next, or NULL */
    uint64_t pass;                             /* the last pass that polled some of them */
    struct {                                   /* of a blocking call */
        size_t *numbers;                       /* [4][size]: counts and offsets */
        void *bounce;                          /* memory, grown as needed */
        size_t bounce_bytes;
    } scratch;
    bool in_use; /* not available to another communicator */
    /* a clone for persistent requests (mpi_clones.h), not in the table: of which communicator, in
     * which generation, as which of its clones; idle: without a request */
    struct {
        struct twill_mpi_comm *parent, *next;
        unsigned generation, number;
        bool idle;
    } as_clone;
    struct twill_mpi_comm *clones; /* of this one; protected by comms.lock, as their list is */
    unsigned clones_made;
    _Atomic unsigned generation; /* how many communicators this entry has served */
    bool closing;                /* freed, and close_barrier has been started */
    _Atomic int broken_code;     /* MPI's error code once it has failed; else 0 */
    _Atomic bool revoked;        /* by MPIX_Comm_revoke() on some rank */
    struct twill_mpi_refusal refusal;
    _Atomic unsigned revoking;    /* threads that revoke it at the moment: it is not released */
    twill_request *close_barrier; /* complete when all ranks are done; then NULL */
    struct twill_mpi_comm *next;  /* in its bucket; never changes */
    /* next communicator that was freed and not yet released */
    struct twill_mpi_comm *next_deferred;
};
#define TWILL_MPI_BUCKETS 1024u /* a power of two */
struct twill_mpi_comms {
    /* cache of the last lookup; unused with MPI_THREAD_MULTIPLE */
    _Atomic(struct twill_mpi_comm *) last;
    _Atomic(struct twill_mpi_comm *) bucket[TWILL_MPI_BUCKETS];
    /* held while twill communicators are created or destroyed; only ever tried, as its holder waits
     * for other ranks */
    pthread_mutex_t making;
    /* protects what follows and insertion into buckets; never held in an MPI call */
    pthread_mutex_t lock;
    struct twill_mpi_comm *deferred; /* ring of deferred frees: last entry; its next is first */
    uint64_t fates[TWILL_MPI_FATE_COUNT]; /* counted where this process is rank 0 */
    char failure[256];                    /* message of the first failure here */
    int keyval;          /* of the attribute whose callback reports a freed communicator */
    MPI_Group world;     /* of `shadow`: its ranks are those of twill's world */
    _Atomic int numbers; /* of communicators: the first that is free here */
};

/* Return the entry of a communicator, or NULL if nothing is known of it. */
struct twill_mpi_comm *twill_mpi_comm_find(MPI_Comm handle);
/* Return the communicator whose error handler is to be called: the program's, or MPI_COMM_WORLD if
 * that has been freed, as MPI demands. */
MPI_Comm twill_mpi_error_comm(const struct twill_mpi_comm *comm);
struct twill_mpi_bound;
/* Let twill run the collectives of a new communicator, if all its ranks can. Called after a
 * blocking collective MPI call made it; MPI_COMM_NULL is ignored. Collective over it. */
void twill_mpi_comm_adopt(MPI_Comm handle);
/* Release freed communicators whose ranks are all done with them. Never called while twill waits,
 * nor from inside the MPI. */
void twill_mpi_comms_reap(void);
/* Add MPI_COMM_WORLD and MPI_COMM_SELF to the table, once twill_mpi.world exists (or there is one
 * rank). */
bool twill_mpi_comms_open(void);
/* Pass on the calls of MPI_COMM_WORLD after all, because another rank could not adopt it. */
void twill_mpi_comms_forget(void);
/* Release all communicators; no rank makes calls on them any more. Collective over the world.
 * Returns false if some are still in use, so that the context must stay. */
bool twill_mpi_comms_close(void);

/* --- types and operations (mpi_types.c, mpi_ops.c) -------------------------------------------- */

/* Classes of predefined types, by the operations that MPI allows on them. */
enum twill_mpi_class {
    TWILL_MPI_DERIVED,
    TWILL_MPI_INTEGER,
    TWILL_MPI_FORTRAN_INTEGER, /* and addresses: no logical operations */
    TWILL_MPI_FLOATING,
    TWILL_MPI_COMPLEX_NUMBER,
    TWILL_MPI_TRUTH, /* logical types */
    TWILL_MPI_BITS,  /* MPI_BYTE */
    TWILL_MPI_PAIR,  /* a value and its location */
    TWILL_MPI_TEXT   /* characters and all else that cannot be reduced */
};

/* What twill needs to know of an MPI type. */
struct twill_mpi_type {
    MPI_Count size, extent, true_lb;
    enum twill_mpi_class class;
    bool plain; /* `count` elements are count * size contiguous bytes in order, from true_lb on */
    int native; /* the twill_type of a component (of a pair: of its value), or -1 */
    unsigned components; /* native elements per element: 2 for complex numbers, else 1 */
};
#define TWILL_MPI_TYPES 256u /* buckets of the hash table of predefined types */
struct twill_mpi_types {
    pthread_mutex_t lock; /* held while a type is inspected */
    int keyval;           /* of the attribute that keeps what is known of a derived type */
    /* PMPI_Type_get_envelope_c() and PMPI_Type_get_contents_c(), or NULL */
    twill_mpi_function *envelope, *contents;
    unsigned entered; /* in the table */
    _Atomic bool known[TWILL_MPI_TYPES];
    MPI_Datatype handle[TWILL_MPI_TYPES];
    struct twill_mpi_type type[TWILL_MPI_TYPES];
};
void twill_mpi_types_open(void);
/* Return what is known of a type, valid while the type exists or *storage does. NULL: not a valid
 * committed type, so the call is erroneous. */
const struct twill_mpi_type *twill_mpi_type_find(MPI_Datatype type, struct twill_mpi_type *storage);

/* A twill operation that calls PMPI_Reduce_local(), for one MPI operation and type. Lives in the
 * table below and is protected by its lock. */
#define TWILL_MPI_OPERATIONS 256u /* limit of a context */
#define TWILL_MPI_OPERATIONS_KEPT                                                                  \
    192u /* limit of those used by persistent calls, so that some remain for the others */
#define TWILL_MPI_ELEMENT_MOST 4096u /* bytes */
enum twill_mpi_handle { TWILL_MPI_ITS_OP, TWILL_MPI_ITS_TYPE, TWILL_MPI_ITS };
struct twill_mpi_operation {
    uintptr_t handle[TWILL_MPI_ITS]; /* pointers or integers, depending on the MPI */
    bool freed[TWILL_MPI_ITS];       /* freed by the program; deferred until nothing uses it */
    size_t element;
    bool commutative, made;
    unsigned users, keepers; /* calls under way + persistent requests; the latter alone */
    twill_op made_op;
};
struct twill_mpi_operations {
    pthread_mutex_t lock;
    _Atomic unsigned users; /* sum over all: 0 spares MPI_Type_free() a search */
    unsigned kept;          /* slots that have keepers */
    struct twill_mpi_operation slot[TWILL_MPI_OPERATIONS];
};
/* The twill equivalent of an MPI type and operation. */
struct twill_mpi_reduction {
    twill_type type;
    twill_op op;
    unsigned components; /* twill elements per MPI element */
    size_t element;      /* extent of an MPI element, bytes */
    bool lacks;          /* no slot was left for an operation */
    /* NULL: native. Else to be released when the call is complete */
    struct twill_mpi_operation *made;
};
/* Find the equivalent of call->op for `type`, which is that of the call. Returns TAKEN or why the
 * call is passed on. */
enum twill_mpi_why twill_mpi_reduction_find(const struct twill_mpi_call *call,
                                            const struct twill_mpi_type *type,
                                            struct twill_mpi_reduction *found);
void twill_mpi_operation_release(struct twill_mpi_operation *operation, bool kept);

/* --- running calls (mpi_run.c) and errors (mpi_errors.c) -------------------------------------- */

/* Run a blocking call. Returns TAKEN, with its status in *status, or why it is passed on. */
enum twill_mpi_why twill_mpi_run_blocking(const struct twill_mpi_call *call,
                                          struct twill_mpi_comm *comm, twill_status *status);
/* Return whether a call failed because its communicator has been revoked: the MPI's answer to it is
 * then the program's. */
bool twill_mpi_is_revoked(struct twill_mpi_comm *comm, twill_status status);
/* Return whether a call is an agreement of the ranks, which the MPI below has no function for.
 * Equal on all ranks (mpi_creation.c). */
bool twill_mpi_is_agreement(const struct twill_mpi_call *call);
/* Return the code that an entry point returns for `status`, after calling the communicator's error
 * handler if it is an error. */
int twill_mpi_outcome(struct twill_mpi_comm *comm, twill_status status);
/* The two halves of twill_mpi_outcome(): return the code, and note the first error of several in
 * *fault ... */
struct twill_mpi_fault {
    MPI_Comm comm;
    int code;
};
#define TWILL_MPI_NO_FAULT                                                                         \
    {                                                                                              \
        MPI_COMM_NULL, MPI_SUCCESS                                                                 \
    }
int twill_mpi_fault_of(struct twill_mpi_comm *comm, twill_status status,
                       struct twill_mpi_fault *fault);
/* ... and call the error handler for it. */
void twill_mpi_raise(const struct twill_mpi_fault *fault);
/* Return the code of a call in a forked child: locks may be held by threads that do not exist
 * there, and messages are the parent's, so nothing is done. The error handler is not called: that
 * of MPI_ERRORS_ARE_FATAL would end the parent's job. */
int twill_mpi_refuse_child(void);
/* Print a line to standard error unless TWILL_LOG=none. */
void twill_mpi_say(const char *format, ...) TWILL_PRINTF(1, 2);
/* --- requests (mpi_requests.c) ---------------------------------------------------------------- */

/* Handles that the MPI below never makes. Open MPI: addresses that cannot be mapped. MPICH:
 * integers tagged as requests (11 << 26) but of no kind of request. The ABI: those of these that
 * are odd, so that no address is one, and that Fortran libraries for MPICH's handles can keep them
 * as integers. The bits below number our requests from 1. */
#if defined(OPEN_MPI)
#define TWILL_MPI_REQUESTS_BASE ((uintptr_t)1 << 63)
#define TWILL_MPI_REQUESTS_ODD  0u
typedef uintptr_t twill_mpi_request_bits;
#elif defined(MPI_ABI_VERSION)
#define TWILL_MPI_REQUESTS_BASE 0x2c000000u
#define TWILL_MPI_REQUESTS_ODD  1u
typedef uintptr_t twill_mpi_request_bits;
#else
#define TWILL_MPI_REQUESTS_BASE 0x2c000000u
#define TWILL_MPI_REQUESTS_ODD  0u
typedef unsigned twill_mpi_request_bits;
#endif
#define TWILL_MPI_REQUEST_SLABS (20u - TWILL_MPI_REQUESTS_ODD) /* of 64, 128, 256 ... requests */
/* Return a number that is no request's, or beyond all, if the handle is not one of ours. */
static inline twill_mpi_request_bits twill_mpi_request_number(MPI_Request handle)
{
    const twill_mpi_request_bits bits = (twill_mpi_request_bits)handle - TWILL_MPI_REQUESTS_BASE;
    if (TWILL_MPI_REQUESTS_ODD != 0)
        return bits % 2 != 0 ? bits / 2 : 0;
    return bits;
}
static inline MPI_Request twill_mpi_request_numbered(unsigned number)
{
    return (MPI_Request)(TWILL_MPI_REQUESTS_BASE +
                         (twill_mpi_request_bits)number * (1 + TWILL_MPI_REQUESTS_ODD) +
                         TWILL_MPI_REQUESTS_ODD);
}
static inline bool twill_mpi_request_is_ours(MPI_Request handle)
{
    return twill_mpi_request_number(handle) - 1 < (1u << (26 - TWILL_MPI_REQUESTS_ODD)) - 1;
}

struct twill_mpi_request;
struct twill_mpi_requests {
    pthread_mutex_t lock; /* with MPI_THREAD_MULTIPLE: protects all but made, passes, contention */
    unsigned slabs;
    _Atomic uint32_t made;
    struct twill_mpi_request *slab[TWILL_MPI_REQUEST_SLABS];
    struct twill_mpi_request *_Atomic spare;
    struct twill_mpi_request *_Atomic deferred; /* freed by the program while under way */
    _Atomic uint64_t passes;
    _Atomic unsigned contention;   /* how strongly others compete for this core: 0 to SPINS_LOG */
    struct twill_mpi_comm wrapped; /* the communicator of requests that wrap the MPI's */
};

/* As twill_mpi_run(), for nonblocking and persistent calls on an adopted communicator. */
enum twill_mpi_why twill_mpi_run_request(const struct twill_mpi_call *call,
                                         struct twill_mpi_comm *comm, MPI_Request *request,
                                         int *code);
/* As twill_mpi_run_blocking(), where other threads may wait for requests of the communicator. */
enum twill_mpi_why twill_mpi_run_shared(const struct twill_mpi_call *call,
                                        struct twill_mpi_comm *comm, int *code);
/* Release requests that the program has freed and that are complete. Cheap when there are none. */
void twill_mpi_requests_sweep(void);
/* Wait until no request is under way on a communicator. */
void twill_mpi_requests_complete(struct twill_mpi_comm *comm);
/* Complete and release all requests, before communicators and the context are destroyed. */
void twill_mpi_requests_end(void);
/* Let the MPI below make progress on its own messages. */
void twill_mpi_progress(void);

/* --- what needs the MPI's progress (mpi_creation.c, mpi_progress.c)
 * -------------------------------------------- */

struct twill_mpi_windows {
    _Atomic unsigned open; /* windows and files */
    _Atomic bool messages; /* a persistent or partitioned message has ever been started */
    int keyval;            /* of the attribute whose callback reports a freed window */
};
void twill_mpi_windows_open(void);
void twill_mpi_windows_close(void);
/* Count a window if `code` says that it was created. Returns `code`. */
int twill_mpi_window_made(int code, const MPI_Win *window);
/* Count a file that was opened or closed if `code` says so. Returns `code`. */
int twill_mpi_file_opened(int code);
int twill_mpi_file_closed(int code);
/* Note that an MPI request has been started. */
void twill_mpi_started(void);
/* Let the MPI make progress after a collective on `comm` has completed. */
void twill_mpi_progress_windows(const struct twill_mpi_comm *comm);

/* --- erroneous calls (mpi_refused.c) ------------------------------------------------------------
 */

/* Find out whether the MPI below checks arguments. Needs `shadow`. */
void twill_mpi_checks_find(void);

/* --- calls that are faster below (mpi_passed_on.c) -------------------------------------------- */

/* Fill in comm->quicker, after set-up. */
void twill_mpi_quicker_find(struct twill_mpi_comm *comm);
/* Return whether a blocking call is within its kind's range, so that it is passed on. Equal on all
 * ranks. */
bool twill_mpi_quicker_below(const struct twill_mpi_call *call, const struct twill_mpi_comm *comm);

/* --- this process (mpi_init.c) ---------------------------------------------------------------- */

struct twill_mpi_tally {
    _Atomic uint64_t calls[TWILL_MPI_WHY_COUNT];
    _Atomic uint64_t ticks[2]; /* taken, passed on; counted with bytes only if there is a report */
    _Atomic uint64_t bytes;    /* that this rank contributed */
};
struct twill_mpi_memory {
    _Atomic uint64_t allocations, bytes, refused; /* MPI_Alloc_mem calls so far */
    _Atomic uint64_t out;                         /* allocations not yet freed */
};

struct twill_mpi {
    _Atomic bool ready; /* calls may be taken */
    bool forked;        /* in a child of the process that called MPI_Init */
    bool forked_told;   /* a call of it was refused, and that was printed */
    bool multiple;      /* MPI_THREAD_MULTIPLE */
    bool all_multiple;  /* on every rank: levels of threads may differ, but decisions may not */
    bool reports;       /* measure times and print the report */
    bool silent;        /* TWILL_LOG=none */
    bool all;           /* take even what is faster below */
    bool checks;        /* the MPI below checks arguments */
    bool has_iagree;    /* the MPI below has MPIX_Comm_iagree() */
    char off[576];      /* why nothing is taken, or "" */
    twill_context *context;
    twill_comm *world;
    MPI_Comm shadow; /* duplicate of MPI_COMM_WORLD for twill's own messages over the MPI */
    struct {
        MPI_Comm comm;        /* duplicate of MPI_COMM_SELF, for questions; both return errors */
        pthread_mutex_t lock; /* serialises messages of this rank to itself there */
    } self;
    struct twill_mpi_comms comms;
    struct twill_mpi_requests requests;
    struct twill_mpi_types types;
    struct twill_mpi_operations operations;
    struct twill_mpi_memory memory;
    struct twill_mpi_windows windows;
    struct twill_mpi_newer newer[TWILL_MPI_KIND_COUNT][TWILL_MPI_FORM_COUNT][2]; /* large: 1 */
    _Atomic bool refusals; /* a notice of a refused call has ever come */
    struct {
        int class; /* for failures that no class of MPI's describes; 0: not yet created */
        pthread_mutex_t lock;
    } errors;
    struct twill_mpi_tally tally[TWILL_MPI_KIND_COUNT][TWILL_MPI_FORM_COUNT];
    struct {
        uint64_t ticks, ns;
    } start;
};
extern struct twill_mpi twill_mpi;

/* Locking is needed with MPI_THREAD_MULTIPLE only. */
static inline void twill_mpi_lock(struct twill_mpi_comm *comm)
{
    if (twill_mpi.multiple)
        pthread_mutex_lock(&comm->lock);
}
static inline bool twill_mpi_try_lock(struct twill_mpi_comm *comm)
{
    return !twill_mpi.multiple || pthread_mutex_trylock(&comm->lock) == 0;
}
static inline void twill_mpi_unlock(struct twill_mpi_comm *comm)
{
    if (twill_mpi.multiple)
        pthread_mutex_unlock(&comm->lock);
}

/* Called after each completed collective; see mpi_progress.c. */
static inline void twill_mpi_completed(const struct twill_mpi_comm *comm)
{
    if (TWILL_UNLIKELY(atomic_load_explicit(&twill_mpi.windows.open, memory_order_relaxed) > 0 ||
                       atomic_load_explicit(&twill_mpi.windows.messages, memory_order_relaxed)))
        twill_mpi_progress_windows(comm);
}

/* --- counting --------------------------------------------------------------------------------- */

struct twill_mpi_clock {
    uint64_t ticks;
};
static inline struct twill_mpi_clock twill_mpi_clock_start(void)
{
    return (struct twill_mpi_clock){twill_mpi.reports ? twill_ticks() : 0};
}
/* Add a call's ticks and bytes to the report's sums (mpi_report.c). */
void twill_mpi_measure(const struct twill_mpi_call *call, enum twill_mpi_why why, uint64_t ticks);
/* Write the report if it was asked for. Collective over the world. */
void twill_mpi_report(void);
/* Give all ranks the text of the lowest rank whose text is not empty. Collective. */
void twill_mpi_share_text(char *text, size_t bytes);
/* Add to a counter: atomically where there are threads, cheaply where there are none. */
static inline void twill_mpi_add(_Atomic uint64_t *sum, uint64_t more)
{
    if (twill_mpi.multiple)
        atomic_fetch_add_explicit(sum, more, memory_order_relaxed);
    else
        atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + more,
                              memory_order_relaxed);
}
static inline void twill_mpi_count(const struct twill_mpi_call *call, enum twill_mpi_why why,
                                   struct twill_mpi_clock clock)
{
    twill_mpi_add(&twill_mpi.tally[call->kind][call->form].calls[why], 1);
    if (TWILL_UNLIKELY(twill_mpi.reports))
        twill_mpi_measure(call, why, twill_ticks() - clock.ticks);
}

#endif

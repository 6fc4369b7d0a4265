/* SPDX-License-Identifier: Apache-2.0 */
/* libtwill-mpi: collectives of an MPI program run on twill, all else on the MPI below. It stands
 * between a program and its MPI by the profiling interface: it defines MPI_X and calls PMPI_X.
 *
 * A collective goes this way: its entry point (mpi_entries.c) writes its arguments into a
 * twill_mpi_call; twill_mpi_run() (mpi_run.c) finds the communicator (mpi_comms.c), binds the
 * arguments to a call of twill's (mpi_move.c, mpi_reduce.c, with mpi_types.c and mpi_ops.c), and
 * runs, starts or prepares it, or says why not: then the entry point passes the call on. What it
 * decides by must be the same on all ranks: never addresses, alignment, or datatypes of calls that
 * only move data. */
#ifndef TWILL_SHIM_H
#define TWILL_SHIM_H

#include "lib/base.h"

/* What an MPI declares is what this library shows. */
#pragma GCC visibility push(default)
#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif
#pragma GCC visibility pop
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* --- a call ---------------------------------------------------------------------------------- */

/* Calls that are counted. */
#define TWILL_MPI_KINDS(X)                                                                         \
    X(Allreduce, "Allreduce")                                                                      \
    X(Reduce, "Reduce")                                                                            \
    X(Bcast, "Bcast")                                                                              \
    X(Allgather, "Allgather")                                                                      \
    X(Allgatherv, "Allgatherv")                                                                    \
    X(Gather, "Gather")                                                                            \
    X(Gatherv, "Gatherv")                                                                          \
    X(Scatter, "Scatter")                                                                          \
    X(Scatterv, "Scatterv")                                                                        \
    X(Reduce_scatter, "Reduce_scatter")                                                            \
    X(Reduce_scatter_block, "Reduce_scatter_block")                                                \
    X(Alltoall, "Alltoall")                                                                        \
    X(Alltoallv, "Alltoallv")                                                                      \
    X(Barrier, "Barrier")                                                                          \
    X(Scan, "Scan")                                                                                \
    X(Exscan, "Exscan")
#define TWILL_MPI_KIND(name, text) TWILL_MPI_##name,
enum twill_mpi_kind { TWILL_MPI_KINDS(TWILL_MPI_KIND) TWILL_MPI_KIND_COUNT };
#undef TWILL_MPI_KIND

enum twill_mpi_form {
    TWILL_MPI_BLOCKING,
    TWILL_MPI_NONBLOCKING,
    TWILL_MPI_PERSISTENT,
    TWILL_MPI_FORM_COUNT
};

/* Why a call is passed on. The words are the report's. */
#define TWILL_MPI_REASONS(X)                                                                       \
    X(TAKEN, "taken")                                                                              \
    X(OFF, "twill is not there")                                                                   \
    X(COMM, "communicator not adopted")                                                            \
    X(ONE_RANK, "one rank")                                                                        \
    X(INTER, "intercommunicator")                                                                  \
    X(NOT_TAKEN, "never taken")                                                                    \
    X(TYPE, "type with holes in a reduction")                                                      \
    X(ELEMENT, "element too large to reduce")                                                      \
    X(FUNCTION, "function that only this thread may call")                                         \
    X(QUICKER, "quicker below")                                                                    \
    X(ERRONEOUS, "left to the MPI to refuse")
#define TWILL_MPI_REASON(name, text) TWILL_MPI_WHY_##name,
enum twill_mpi_why { TWILL_MPI_REASONS(TWILL_MPI_REASON) TWILL_MPI_WHY_COUNT };
#undef TWILL_MPI_REASON

/* Arguments as the program gave them. */
struct twill_mpi_call {
    enum twill_mpi_kind kind;
    enum twill_mpi_form form;
    bool large; /* a _c form: arrays of counts are MPI_Count, of displacements MPI_Aint; else int */
    int root;
    const void *send;
    void *recv;
    MPI_Count send_count, recv_count;
    const void *send_counts, *send_displs, *recv_counts, *recv_displs;
    MPI_Datatype send_type, recv_type; /* calls with one type: both */
    MPI_Op op;
    MPI_Comm comm;
};

/* Run, start or prepare a call: TAKEN, and *code is what the entry point returns; or why it is to
 * be passed on. request: for the latter two forms. */
enum twill_mpi_why twill_mpi_run(const struct twill_mpi_call *call, MPI_Request *request,
                                 int *code);

/* --- communicators (mpi_comms.c) -----------------------------------------------------------------
 */

/* The most that a rank says; INT_MAX: the MPI failed. */
int twill_mpi_most(MPI_Comm comm, int mine);
/* Set-up by the MPI below: an exchange for twill that hears of ranks that have failed. It goes by
 * words of one size, so that who has failed need not know what the others are at. */
struct twill_mpi_frame {
    uint32_t failed;
    char text[252]; /* most of what is exchanged fits */
};
struct twill_mpi_talk {
    MPI_Comm comm;
    int size;
    struct twill_mpi_frame *frame; /* [size] */
    bool failed;                   /* another rank has said so */
};
bool twill_mpi_talk_open(struct twill_mpi_talk *talk, MPI_Comm comm); /* false: no memory */
void twill_mpi_talk_close(struct twill_mpi_talk *talk);
int twill_mpi_exchange(void *talk, const void *mine, void *all, size_t bytes);
/* The end of what was set up so: has it gone well on all ranks? Every rank calls it once. */
bool twill_mpi_agree(struct twill_mpi_talk *talk, bool fine);

/* What became of a communicator that was made; all ranks say the same. The words are the report's.
 */
#define TWILL_MPI_FATES(X)                                                                         \
    X(ADOPTED, "taken")                                                                            \
    X(ALONE, "one rank")                                                                           \
    X(BETWEEN, "intercommunicator")                                                                \
    X(FOREIGN, "with ranks of another MPI_COMM_WORLD")                                             \
    X(BUSY, "another thread made one at that time")                                                \
    X(DESCRIPTORS, "not enough file descriptors left")                                             \
    X(MEMORY, "out of memory")                                                                     \
    X(FAILED, "twill could not")
#define TWILL_MPI_FATE(name, text) TWILL_MPI_FATE_##name,
enum twill_mpi_fate { TWILL_MPI_FATES(TWILL_MPI_FATE) TWILL_MPI_FATE_COUNT };
#undef TWILL_MPI_FATE

struct twill_mpi_range {
    uint32_t least, most; /* 0, 0: none */
};

/* What is known of a communicator. The memory stays as long as the process. */
struct twill_mpi_comm {
    _Atomic(MPI_Comm) handle; /* MPI_COMM_NULL: freed, or of a persistent request */
    twill_comm *comm;         /* NULL: not adopted, and `why` */
    enum twill_mpi_why why;
    int rank, size;
    struct twill_mpi_range quicker[TWILL_MPI_KIND_COUNT]; /* bytes of what is quicker below */
    pthread_mutex_t lock; /* MPI_THREAD_MULTIPLE: of comm and its requests */
    _Atomic unsigned
        requests; /* of it: nonblocking ones under way, and persistent ones that exist */
    struct twill_mpi_request *active, *newest; /* those under way, the oldest first */
    struct twill_mpi_request *turn;            /* whose it is to be looked at, or NULL */
    uint64_t glance;                           /* the last that has looked at some of them */
    size_t *numbers;                           /* [4][size] counts and offsets of a blocking call */
    void *scratch;                             /* staging of a blocking call, grown as needed */
    size_t scratch_bytes;
    bool held;                   /* cannot be had for another communicator */
    struct twill_mpi_comm *of;   /* of a persistent request, not in the table: whose it is ... */
    unsigned of_lives;           /* ... in which of its lives */
    _Atomic unsigned lives;      /* how often this has come to serve for a communicator */
    bool parting;                /* freed, and farewell has been started */
    int broken_code;             /* of MPI's, once it has failed; else 0 */
    twill_request *farewell;     /* the barrier after which it may go; NULL: it is over */
    struct twill_mpi_comm *next; /* in its place of the table, for ever */
    struct twill_mpi_comm *next_deferred; /* the next one that was freed and has not gone */
};
#define TWILL_MPI_PLACES 1024u /* of the table; a power of two */
struct twill_mpi_comms {
    _Atomic(struct twill_mpi_comm *) last; /* found; not kept with MPI_THREAD_MULTIPLE */
    _Atomic(struct twill_mpi_comm *) place[TWILL_MPI_PLACES];
    pthread_mutex_t making; /* communicators of twill's, or unmaking them. Only ever tried: it is
                               held while others are waited for */
    pthread_mutex_t lock; /* of what follows, and for more in a place. Never held in an MPI call */
    struct twill_mpi_comm *deferred; /* a ring: the last of them, whose next one is the first */
    uint64_t fates[TWILL_MPI_FATE_COUNT]; /* of those where this is rank 0 */
    char failure[256];                    /* of the first that failed here */
    int keyval;                           /* of the attribute that tells when one goes */
    MPI_Group world;                      /* of `shadow`, whose ranks are those of twill's world */
};

/* NULL: nothing is known of it. */
struct twill_mpi_comm *twill_mpi_comm_find(MPI_Comm handle);
/* Whose error handler hears of it: the program's communicator, or, as MPI wants it of one that was
 * freed, MPI_COMM_WORLD. */
MPI_Comm twill_mpi_error_comm(const struct twill_mpi_comm *comm);
/* Persistent collectives are prepared in one order, but may be started in any: each has a twill
 * communicator of its own. It has the numbers of `of`, which is locked and gets others, with what
 * was bound with them; NULL: no memory. Then it is set up with the request that was bound (NULL: it
 * cannot be), collectively over `of`, or on no rank, and is gone. Its end waits for nobody; it has
 * no requests any more. */
struct twill_mpi_bound;
struct twill_mpi_comm *twill_mpi_comm_another(struct twill_mpi_comm *of);
bool twill_mpi_comm_share(const struct twill_mpi_comm *of, struct twill_mpi_comm *another,
                          const struct twill_mpi_bound *bound, twill_request **request);
void twill_mpi_comm_end(struct twill_mpi_comm *another);
/* A new communicator, made by a blocking collective call of its ranks: take its collectives, if all
 * ranks can. MPI_COMM_NULL is ignored. Collective over it. */
void twill_mpi_comm_adopt(MPI_Comm handle);
/* What was freed goes, as far as it can. Never while twill waits, nor inside the MPI. */
void twill_mpi_comms_reap(void);
/* MPI_COMM_WORLD and MPI_COMM_SELF, once the former has a communicator of twill's (or is alone). */
bool twill_mpi_comms_open(void);
/* Another rank could not: MPI_COMM_WORLD is not taken after all. */
void twill_mpi_comms_forget(void);
/* All that are left go, the freed and the others. No rank makes any call on them any more.
 * Collective over the world; false: some stay, and the context must. */
bool twill_mpi_comms_close(void);

/* --- types and operations (mpi_types.c, mpi_ops.c)
 * --------------------------------------------------- */

/* Classes of predefined types, by what may be done to them. */
enum twill_mpi_class {
    TWILL_MPI_DERIVED,
    TWILL_MPI_INTEGER,
    TWILL_MPI_FORTRAN_INTEGER, /* and addresses: no logical values */
    TWILL_MPI_FLOATING,
    TWILL_MPI_COMPLEX_NUMBER,
    TWILL_MPI_TRUTH, /* logical */
    TWILL_MPI_BITS,  /* MPI_BYTE */
    TWILL_MPI_PAIR,  /* a value and where it is */
    TWILL_MPI_TEXT   /* characters, and what else cannot be reduced */
};

/* What an MPI type is to twill. */
struct twill_mpi_type {
    MPI_Count size, extent, true_lb;
    enum twill_mpi_class class;
    bool plain; /* `count` of them are count * size bytes in a row, in order, from true_lb on */
    int native; /* the twill_type of a part; of a pair, that of its value; or -1 */
    unsigned components; /* native elements in one: 2 for complex numbers, else 1 */
};
#define TWILL_MPI_TYPES 256u /* places to hash predefined ones to */
struct twill_mpi_types {
    pthread_mutex_t lock; /* while a derived type is looked into */
    int keyval;           /* of the attribute of derived types */
    bool known[TWILL_MPI_TYPES];
    MPI_Datatype handle[TWILL_MPI_TYPES];
    struct twill_mpi_type type[TWILL_MPI_TYPES];
};
bool twill_mpi_types_open(void);
/* As long as the type is there, or in *room. NULL: the MPI does not know it (then the call is
 * erroneous). */
const struct twill_mpi_type *twill_mpi_type_find(MPI_Datatype type, struct twill_mpi_type *storage);

/* An operation made of PMPI_Reduce_local(). */
#define TWILL_MPI_OPERATIONS      256u  /* a context has no more */
#define TWILL_MPI_OPERATIONS_KEPT 192u  /* by persistent calls; others soon give them back */
#define TWILL_MPI_ELEMENT_MOST    4096u /* bytes */
enum twill_mpi_handle { TWILL_MPI_ITS_OP, TWILL_MPI_ITS_TYPE, TWILL_MPI_ITS };
struct twill_mpi_operation {
    uintptr_t handle[TWILL_MPI_ITS]; /* pointers or numbers: the MPI's affair */
    bool freed[TWILL_MPI_ITS];       /* by the program: it is put off until there are no users */
    size_t element;
    bool commutative, made;
    unsigned users, keepers; /* calls under way and persistent requests; of these the latter */
    twill_op made_op;
};
struct twill_mpi_operations {
    pthread_mutex_t lock;
    _Atomic unsigned users; /* of all: without any there is nothing to look for */
    unsigned kept;          /* places with keepers */
    struct twill_mpi_operation place[TWILL_MPI_OPERATIONS];
};
/* A type and an operation, as twill has them. */
struct twill_mpi_reduction {
    twill_type type;
    twill_op op;
    unsigned components;              /* elements of twill's in one of MPI's */
    size_t element;                   /* bytes of one of MPI's, as it lies in memory */
    size_t alignment;                 /* that twill wants */
    bool lacks;                       /* a place to make it in */
    struct twill_mpi_operation *made; /* NULL: native. To be released when the call is over */
};
/* What call->op and its type, which has been found, come to; or why it is not taken. */
enum twill_mpi_why twill_mpi_reduction_find(const struct twill_mpi_call *call,
                                            const struct twill_mpi_type *type,
                                            struct twill_mpi_reduction *found);
void twill_mpi_operation_release(struct twill_mpi_operation *operation, bool kept);

/* --- what runs calls (mpi_run.c), and errors (mpi_errors.c)
 * ------------------------------------------- */

/* What runs a blocking call (mpi_run.c): whether it is taken, and then *status of it. */
enum twill_mpi_why twill_mpi_run_blocking(const struct twill_mpi_call *call,
                                          struct twill_mpi_comm *comm, twill_status *status);
/* The code that an entry point returns for this outcome: an error goes through the communicator's
 * error handler first (mpi_errors.c). */
int twill_mpi_outcome(struct twill_mpi_comm *comm, twill_status status);
/* The same in two steps. The code, and the first error of several goes to *fault ... */
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
/* ... and from there to the error handler. */
void twill_mpi_raise(const struct twill_mpi_fault *fault);
/* A sentence for the user, on standard error unless TWILL_LOG=none. */
void twill_mpi_say(const char *format, ...) TWILL_PRINTF(1, 2);

/* --- requests (mpi_requests.c) -------------------------------------------------------------------
 */

/* Handles that the MPI below never makes: addresses that no memory can have; numbers that say they
 * are of requests (11 << 26), but of no kind of them. The next bits number ours from 1 on. */
#if defined(OPEN_MPI)
#define TWILL_MPI_REQUESTS_BASE ((uintptr_t)1 << 63)
typedef uintptr_t twill_mpi_request_bits;
#else
#define TWILL_MPI_REQUESTS_BASE 0x2c000000u
typedef unsigned twill_mpi_request_bits;
#endif
#define TWILL_MPI_REQUEST_SLABS 20u /* of 64, 128, 256 ... */
static inline twill_mpi_request_bits twill_mpi_request_number(MPI_Request handle)
{
    return (twill_mpi_request_bits)handle - TWILL_MPI_REQUESTS_BASE;
}
static inline bool twill_mpi_request_is_ours(MPI_Request handle)
{
    return twill_mpi_request_number(handle) - 1 < (1u << 26) - 1;
}

struct twill_mpi_request;
struct twill_mpi_requests {
    pthread_mutex_t lock; /* MPI_THREAD_MULTIPLE: of all but made, glances, crowd */
    unsigned slabs;
    _Atomic uint32_t made;
    struct twill_mpi_request *slab[TWILL_MPI_REQUEST_SLABS];
    struct twill_mpi_request *_Atomic spare;
    struct twill_mpi_request *_Atomic doomed; /* freed by the program, and still under way */
    _Atomic uint64_t glances;
    _Atomic unsigned crowd; /* the more, the more others want the core of who waits */
};

/* A nonblocking or persistent call on an adopted communicator, as twill_mpi_run(). */
enum twill_mpi_why twill_mpi_run_request(const struct twill_mpi_call *call,
                                         struct twill_mpi_comm *comm, MPI_Request *request,
                                         int *code);
/* And a blocking one where other threads may wait for what is under way. */
enum twill_mpi_why twill_mpi_run_shared(const struct twill_mpi_call *call,
                                        struct twill_mpi_comm *comm, int *code);
/* Free what the program has freed, as far as it is complete. Cheap when there is nothing. */
void twill_mpi_requests_sweep(void);
/* Wait for what is under way on a communicator. */
void twill_mpi_requests_complete(struct twill_mpi_comm *comm);
/* The end: before communicators and context go. */
void twill_mpi_requests_end(void);
/* Something to do for the MPI below. */
void twill_mpi_progress(void);

/* --- what needs the MPI's progress (mpi_windows.c)
 * ------------------------------------------------ */

struct twill_mpi_windows {
    _Atomic unsigned open; /* windows and files */
    _Atomic bool messages; /* a persistent or partitioned message has been started, once */
    int keyval;            /* of the attribute that tells when a window goes */
};
void twill_mpi_windows_open(void);
void twill_mpi_windows_close(void);
/* Count a window if this code says that it was made; return the code. */
int twill_mpi_window_made(int code, const MPI_Win *window);
/* Count a file that was opened or closed with this code, which is returned. */
int twill_mpi_file_opened(int code);
int twill_mpi_file_closed(int code);
/* A request of the MPI's was started. */
void twill_mpi_started(void);
/* Let the MPI make progress: a collective of this communicator is complete. */
void twill_mpi_progress_windows(const struct twill_mpi_comm *comm);

/* --- calls that MPI does not allow (mpi_check.c) -------------------------------------------------
 */

/* Does the MPI below look at arguments? Once `shadow` is there. */
void twill_mpi_checks_find(void);

/* --- calls that are quicker below (mpi_passed_on.c)
 * -------------------------------------------------- */

/* Fill in `quicker` of a communicator that has been set up. */
void twill_mpi_quicker_find(struct twill_mpi_comm *comm);
/* Is this blocking call, of a kind with such a range, one? The same on all ranks. */
bool twill_mpi_quicker_below(const struct twill_mpi_call *call, const struct twill_mpi_comm *comm);

/* --- this process (mpi_init.c) ------------------------------------------------------------------
 */

struct twill_mpi_tally {
    _Atomic uint64_t calls[TWILL_MPI_WHY_COUNT];
    _Atomic uint64_t ticks[2]; /* taken, passed on; these and bytes if reports only */
    _Atomic uint64_t bytes;    /* that this rank gave to it */
};
struct twill_mpi_memory {
    _Atomic uint64_t allocations, bytes, refused; /* of MPI_Alloc_mem so far */
    _Atomic uint64_t out;                         /* pieces the program has */
};

struct twill_mpi {
    _Atomic bool ready; /* calls may be taken */
    bool multiple;      /* MPI_THREAD_MULTIPLE */
    bool all_multiple;  /* on every rank: levels may differ, but what is taken may not */
    bool reports;       /* times are taken, and told at the end */
    bool silent;        /* TWILL_LOG=none */
    bool all;           /* also what is quicker below */
    bool checks;        /* the MPI below looks at its arguments */
    char off[320];      /* why nothing is taken, or "" */
    twill_context *context;
    twill_comm *world;
    MPI_Comm shadow;           /* of MPI_COMM_WORLD, for what twill says by the MPI below */
    pthread_mutex_t self_lock; /* of messages of a rank to itself there */
    struct twill_mpi_comms comms;
    struct twill_mpi_requests requests;
    struct twill_mpi_types types;
    struct twill_mpi_operations operations;
    struct twill_mpi_memory memory;
    struct twill_mpi_windows windows;
    int error_class; /* of MPI's, for failures that it has none for; 0: not yet made */
    pthread_mutex_t errors_lock;
    struct twill_mpi_tally tally[TWILL_MPI_KIND_COUNT][TWILL_MPI_FORM_COUNT];
    uint64_t ticks_at_start, ns_at_start;
};
extern struct twill_mpi twill_mpi;

/* Below MPI_THREAD_MULTIPLE nothing is locked. */
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

/* A collective is complete: see mpi_windows.c. */
static inline void twill_mpi_completed(const struct twill_mpi_comm *comm)
{
    if (TWILL_UNLIKELY(atomic_load_explicit(&twill_mpi.windows.open, memory_order_relaxed) > 0 ||
                       atomic_load_explicit(&twill_mpi.windows.messages, memory_order_relaxed)))
        twill_mpi_progress_windows(comm);
}

/* --- counting -------------------------------------------------------------------------------- */

struct twill_mpi_clock {
    uint64_t ticks;
};
static inline struct twill_mpi_clock twill_mpi_clock_start(void)
{
    return (struct twill_mpi_clock){twill_mpi.reports ? twill_ticks() : 0};
}
/* Ticks and bytes of a call, for the report (mpi_report.c). */
void twill_mpi_measure(const struct twill_mpi_call *call, enum twill_mpi_why why, uint64_t ticks);
/* Write the report, if there is to be one: collective over the world. */
void twill_mpi_report(void);
/* The text of the lowest rank that has one becomes everybody's. */
void twill_mpi_share_text(char *text, size_t bytes);
/* Addition that loses nothing among threads, and costs little without. */
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

/* SPDX-License-Identifier: Apache-2.0 */
/* libtwill-mpi runs the collectives of an MPI program on twill and leaves everything else to the
 * MPI below. It uses the profiling interface: it defines MPI_X and calls PMPI_X.
 *
 * The entry point of a collective (mpi_entries.c) writes the arguments into a twill_mpi_call.
 * twill_mpi_run() (mpi_run.c) looks up the communicator (mpi_comms.c) and binds the arguments to a
 * twill call (mpi_move.c, mpi_reduce.c, with mpi_types.c and mpi_ops.c). It then runs, starts or
 * initialises that call, or returns the reason why not, and the entry point passes the call on to
 * the MPI. This decision must be equal on all ranks. It therefore never depends on addresses or
 * alignment, nor on the datatypes of calls that only move data. */
#ifndef TWILL_SHIM_H
#define TWILL_SHIM_H

#include "lib/base/base.h"

/* All functions that mpi.h declares are exported by this library. */
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

extern const char *const twill_mpi_kind_names[]; /* as in MPI's function names */

enum twill_mpi_form {
    TWILL_MPI_BLOCKING,
    TWILL_MPI_NONBLOCKING,
    TWILL_MPI_PERSISTENT,
    TWILL_MPI_FORM_COUNT
};

/* Write a call's name without "MPI_", such as Iallreduce or Allreduce_init, to name[bytes]. */
void twill_mpi_form_name(enum twill_mpi_kind kind, enum twill_mpi_form form, char *name,
                         size_t bytes);

/* Reasons why a call is passed on to the MPI. The texts appear in the report. */
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
    X(REVOKED, "communicator revoked")                                                             \
    X(AGREEMENT, "agreement of ranks")                                                             \
    X(ERRONEOUS, "left to the MPI to refuse")
#define TWILL_MPI_REASON(name, text) TWILL_MPI_WHY_##name,
enum twill_mpi_why { TWILL_MPI_REASONS(TWILL_MPI_REASON) TWILL_MPI_WHY_COUNT };
#undef TWILL_MPI_REASON

/* One end, sending or receiving, of a collective call, as the program gave it. Part of a
 * twill_mpi_call. */
struct twill_mpi_end {
    const void *buffer;
    MPI_Count count;             /* elements, or 0 if there are counts */
    const void *counts, *displs; /* the program's arrays, set for calls that have them */
    MPI_Datatype type;
};

/* The arguments of a collective call, on the stack of its entry point. Members that the collective
 * does not use are undefined. Calls with a single type or count have it at both ends. */
struct twill_mpi_call {
    enum twill_mpi_kind kind;
    enum twill_mpi_form form;
    bool large; /* a _c call, with counts of MPI_Count and displacements of MPI_Aint, not int */
    int root;
    struct twill_mpi_end send, recv;
    MPI_Op op;
    MPI_Comm comm;
};

/* Run a blocking call on twill, start a nonblocking or initialise a persistent one. Returns TAKEN,
 * or the reason for passing the call on. If taken, *code is MPI's code, and *request is the handle
 * if the call has succeeded and is not blocking. A persistent call that is taken has succeeded, and
 * leaves *code alone. In a forked child, returns TAKEN with MPI_ERR_OTHER in *code. */
enum twill_mpi_why twill_mpi_run(const struct twill_mpi_call *call, MPI_Request *request,
                                 int *code);

/* --- functions that the MPI below or its header may lack: of MPI 4 and later, and MPIX -------- */

typedef void twill_mpi_function(void);
/* A function that the MPI below may lack, an entry of twill_mpi.newer. It is looked up at its first
 * use, by any thread. */
struct twill_mpi_newer {
    _Atomic bool known;                   /* it has been looked up */
    twill_mpi_function *_Atomic function; /* NULL if the MPI lacks it */
};
/* Return a function by name of the MPI below, the program's MPI library, or NULL if it has none. */
twill_mpi_function *twill_mpi_below(const char *name);

#if defined(MPI_SESSION_NULL)
typedef MPI_Session twill_mpi_session;
#else
typedef void *twill_mpi_session; /* for the standard ABI and Open MPI 5 */
#endif
TWILL_EXPORTED int MPI_Session_init(MPI_Info info, MPI_Errhandler errhandler,
                                    twill_mpi_session *session);

#if !defined(MPI_ABI_VERSION) /* not part of the standard ABI */
TWILL_EXPORTED int MPIX_Comm_revoke(MPI_Comm comm);
#endif

/* --- calls that the MPI refuses to one rank while others wait in twill (mpi_refused.c) -------- */

#define TWILL_MPI_TAG_REFUSED 1 /* tag of notices on `shadow` */

/* Message by which a rank informs the others that the MPI refused one of its calls. It is part of
 * the rank's twill_mpi_refusal, from which it is sent on `shadow`. */
struct twill_mpi_notice {
    int number; /* of the communicator */
    int call;   /* index of the call on that communicator, from 1 */
    int kind;   /* enum twill_mpi_kind */
};

/* Which calls on one communicator the MPI refused to a rank, while other ranks may wait in them.
 * Part of a twill_mpi_comm. Calls on the communicator write it. When a notice of a refused call
 * arrives, `of`, `kind`, `rank` and `found_at` are written under twill_mpi.self.lock. A rank that
 * is itself refused a call sets `rank` to its own. */
struct twill_mpi_refusal {
    int number; /* equal on all its ranks and unique among the communicators of each */
    /* Set by the thread that is in a call, and read by any thread that looks for refused calls. */
    _Atomic int calls;    /* calls that this rank has begun in twill, except persistent ones */
    _Atomic int waits_in; /* kind of the blocking call under way, or -1 */
    _Atomic int own;      /* index of the last call that was refused on this rank, or 0 */
    _Atomic int of;       /* index of the last call refused on another rank, by its notice, or 0 */
    int kind, rank; /* kind of the call `of`, and the rank in MPI_COMM_WORLD that was refused it */
    uint64_t found_at;              /* twill_now() when the notice was found */
    struct twill_mpi_notice notice; /* sent by this rank */
    _Atomic bool given_up;          /* a call and its twill communicator were given up */
};

struct twill_mpi_comm;
/* Inform the other ranks of call->comm, without waiting, that the MPI refused a call that twill
 * would run. Does nothing if the communicator is not adopted or the ranks know it already. */
void twill_mpi_refused(const struct twill_mpi_call *call);
/* Receive the notices of refused calls that have arrived, and note them in communicators. Returns
 * at once if another thread holds twill_mpi.self.lock. */
void twill_mpi_refusals_read(void);
/* Revoke each twill communicator on which this rank has long waited in a call that the MPI refused
 * to another rank. The call then fails on all ranks. */
void twill_mpi_refusals_check(void);
/* Return whether ranks gave up a call on `comm` that ended with `status`. They do if the MPI
 * refused that call to one of them, and then revoke the twill communicator. If so, the call must
 * return an error, and the MPI must not run it. May receive notices of refused calls. Once true, it
 * stays true for `comm`, whatever `status` is. */
bool twill_mpi_is_given_up(struct twill_mpi_comm *comm, twill_status status);
/* Set ranks[size] to the world ranks of `handle`. Returns false if one has none or MPI fails. */
bool twill_mpi_world_ranks(MPI_Comm handle, int size, int *ranks);

/* --- communicators (mpi_comms.c) -------------------------------------------------------------- */
/* Replace each number by its maximum over all ranks, or by INT_MAX if the MPI fails. Collective. */
void twill_mpi_most(MPI_Comm comm, int *numbers, int count);
/* Return the bits that are set in `mine` on all ranks, or 0 if the MPI fails. Collective. */
uint64_t twill_mpi_common(MPI_Comm comm, uint64_t mine);
/* A rank's message in a round of twill_mpi_exchange() or twill_mpi_agree(). All have the same size,
 * so that a rank that failed can take part without knowing what the others exchange. */
struct twill_mpi_frame {
    uint32_t failed; /* 1 if this rank's set-up has failed, otherwise 0 */
    char text[252];  /* bytes to exchange; most contributions fit into one frame */
};
/* The exchange of bytes over the MPI below in one set-up of twill. A variable of the function that
 * does the set-up. Only one thread uses it. */
struct twill_mpi_oob {
    MPI_Comm comm;
    int size;
    struct twill_mpi_frame *frame; /* [size] those of the last round */
    bool failed;                   /* a rank has reported a failure, or the MPI has */
};
/* Set up *oob for `comm`. Returns false if out of memory. It must be closed in either case. */
bool twill_mpi_oob_open(struct twill_mpi_oob *oob, MPI_Comm comm);
/* Free what twill_mpi_oob_open() allocated. */
void twill_mpi_oob_close(struct twill_mpi_oob *oob);
/* Gather `bytes` bytes of each rank in all[size][bytes]. Collective. `oob` is a twill_mpi_oob.
 * Returns 0, or 1 if a rank or the MPI has failed. */
int twill_mpi_exchange(void *oob, const void *mine, void *all, size_t bytes);
/* Return whether `fine`, the success of this rank's set-up, is true on all ranks. The last call of
 * set-up, and collective. If an exchange has failed before, returns false without communication. */
bool twill_mpi_agree(struct twill_mpi_oob *oob, bool fine);

/* Results of adopting a communicator, equal on all its ranks. The texts appear in the report. */
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

#define TWILL_MPI_MEMOS 4 /* remembered calls of a kind on a communicator */
/* A remembered blocking call: its arguments, as in a twill_mpi_call, and what they mean for twill.
 * `next` is the one that was made after it the last time. If ranks have their own counts, `given`
 * holds copies of the program's arrays: counts [size] and displacements [size], and after these for
 * MPI_Alltoallv those of the data to send. `counts` and `offsets` are the same for twill. */
struct twill_mpi_memo {
    struct twill_mpi_memo *next;
    const void *send, *recv;
    int send_count, recv_count;
    MPI_Datatype send_type, recv_type;
    MPI_Op op;
    int root;
    twill_type as;
    twill_op with;
    const void *src;
    void *dst;
    size_t elements;
    const int *given; /* NULL if the call has no such arrays, or this rank is not the root */
    size_t *counts;   /* the block of all arrays, which serves one call after another, or NULL */
    const size_t *offsets;
};

/* The remembered calls of a communicator. Part of a twill_mpi_comm, and protected like its `comm`.
 */
struct twill_mpi_remembered {
    struct twill_mpi_memo *latest[TWILL_MPI_KIND_COUNT]; /* the last of each kind, or no_call */
    struct twill_mpi_memo *memos;                        /* all, or NULL */
};

/* A communicator of the program, adopted (twill runs its collectives) or not, or a clone of one for
 * a persistent request. An entry of the table serves one after another and is never freed. */
struct twill_mpi_comm {
    _Atomic(MPI_Comm) handle; /* MPI_COMM_NULL if freed or a clone */
    twill_comm *comm;         /* NULL if not adopted; `why` says why */
    enum twill_mpi_why why;
    int rank, size;
    _Atomic int lock;          /* enum twill_mpi_locked; protects `comm` and its requests */
    _Atomic unsigned requests; /* nonblocking ones not yet collected, plus persistent ones */
    struct twill_mpi_request *active, *newest; /* requests under way, oldest first */
    struct twill_mpi_request *next_polled;     /* request to poll next, or NULL */
    uint64_t pass;                             /* last pass that polled its requests */
    struct {                                   /* for blocking calls */
        size_t *numbers;                       /* [4][size] counts and offsets */
        void *bounce;                          /* grown as needed */
        size_t bounce_bytes;
        struct twill_mpi_remembered calls;
    } scratch;
    bool in_use; /* not available for another communicator */
    /* For a clone (mpi_clones.h), which is not in the table: the parent and its generation when the
     * clone was made, the clone's number, and whether it has no request. */
    struct {
        struct twill_mpi_comm *parent, *next;
        unsigned generation, number;
        bool idle;
    } as_clone;
    struct twill_mpi_comm *clones; /* clones of this one; comms.lock protects them and their list */
    unsigned clones_made;
    _Atomic unsigned generation; /* number of communicators this entry has served */
    bool closing;                /* freed, and close_barrier has been started */
    _Atomic int broken_code;     /* MPI's error code once it has failed, otherwise 0 */
    _Atomic bool revoked;        /* by MPIX_Comm_revoke() on any rank */
    struct twill_mpi_refusal refusal;
    _Atomic unsigned revoking; /* threads that are revoking it, which keep it from being released */
    twill_request *close_barrier; /* complete when all ranks are done, then NULL */
    struct twill_mpi_comm *next;  /* in its bucket, never changes */
    /* next in the ring of communicators that were freed and are not yet released */
    struct twill_mpi_comm *next_deferred;
};
#define TWILL_MPI_BUCKETS 1024u /* a power of two */
/* All communicators of this process, in a hash table by handle. It is part of twill_mpi. */
struct twill_mpi_comms {
    /* last one found; with MPI_THREAD_MULTIPLE the first one that was, until it is freed */
    _Atomic(struct twill_mpi_comm *) last;
    struct twill_mpi_memo no_call; /* equals no call, and is its own next */
    /* The last communicator with a remembered call, and its handle. Both are those of
     * requests.wrapped, which has no calls, with a report or MPI_THREAD_MULTIPLE, and while the MPI
     * needs progress after a call. */
    struct twill_mpi_quick {
        MPI_Comm handle;
        struct twill_mpi_comm *comm;
    } quick;
    struct twill_mpi_quick quick_before; /* the one before it, for calls that alternate */
    _Atomic bool shared; /* with MPI_THREAD_MULTIPLE: remembered calls need nothing after them */
    _Atomic(struct twill_mpi_comm *) bucket[TWILL_MPI_BUCKETS];
    /* held while twill communicators are made or destroyed; only tried, as its holder may wait */
    pthread_mutex_t making;
    /* protects the members below and insertion into buckets; never held in an MPI call */
    pthread_mutex_t lock;
    struct twill_mpi_comm *deferred;      /* last in the ring of those freed but not released */
    uint64_t fates[TWILL_MPI_FATE_COUNT]; /* communicators of each fate, on their rank 0 */
    char failure[256];                    /* message of the first failure here */
    int keyval;          /* of the attribute whose delete callback releases a freed communicator */
    MPI_Group world;     /* group of `shadow`, whose ranks are those of twill's world */
    _Atomic int numbers; /* lowest communicator number that is free on this rank */
};

/* Return the entry of a communicator in the table, or NULL if it has none. */
struct twill_mpi_comm *twill_mpi_comm_find(MPI_Comm handle);
/* Return the program's communicator whose error handler must be called for an error on `comm`. As
 * MPI demands, it is MPI_COMM_WORLD if that was freed or `comm` is NULL. */
MPI_Comm twill_mpi_error_comm(const struct twill_mpi_comm *comm);
struct twill_mpi_bound;
/* Enter a new communicator in the table, and let twill run its collectives if all its ranks can.
 * Call it after the blocking MPI call that made it. Does nothing for MPI_COMM_NULL, or if twill
 * takes no calls. Collective. */
void twill_mpi_comm_adopt(MPI_Comm handle);
/* Release a few of the freed communicators with which all ranks are done, unless another thread
 * makes one. Call it neither while twill waits nor in the MPI. */
void twill_mpi_comms_reap(void);
/* Add MPI_COMM_WORLD and MPI_COMM_SELF to the table. Called once twill_mpi.world exists, or if
 * there is only one rank. Returns false if out of memory or the MPI fails. */
bool twill_mpi_comms_open(void);
/* Leave the calls of MPI_COMM_WORLD to the MPI after all, because set-up has failed on a rank. */
void twill_mpi_comms_forget(void);
/* Release all communicators, on which no rank makes calls any more. Collective over the world.
 * Returns false if some are still in use after a while, so that the context must stay. */
bool twill_mpi_comms_close(void);

/* --- types and operations (mpi_types.c, mpi_ops.c) -------------------------------------------- */
/* Classes of predefined types, by the operations that MPI allows on them. */
enum twill_mpi_class {
    TWILL_MPI_DERIVED,
    TWILL_MPI_INTEGER,
    TWILL_MPI_FORTRAN_INTEGER, /* and addresses, without logical operations */
    TWILL_MPI_FLOATING,
    TWILL_MPI_COMPLEX_NUMBER,
    TWILL_MPI_TRUTH, /* logical types */
    TWILL_MPI_BITS,  /* MPI_BYTE */
    TWILL_MPI_PAIR,  /* a value and its location */
    TWILL_MPI_TEXT   /* characters and all others that cannot be reduced */
};

/* The properties of an MPI type that twill needs. They are in the table if the type is predefined,
 * otherwise in an attribute of the type or in a variable of the caller. Constant once made. */
struct twill_mpi_type {
    MPI_Count size, extent, true_lb; /* bytes, as MPI defines them */
    enum twill_mpi_class class;
    bool plain; /* `count` elements are count * size contiguous bytes, in order, from true_lb */
    int native; /* the twill_type of a component, or of a pair's value; or -1 */
    unsigned components; /* twill elements per element, 2 if complex, otherwise 1 */
};
#define TWILL_MPI_TYPES 256u /* size of the hash table of predefined types */
/* Properties of predefined types, in a hash table by handle. Lookups need no lock, as entries stay
 * until the process ends. It is part of twill_mpi. */
struct twill_mpi_types {
    pthread_mutex_t lock; /* held while a type is inspected and entered */
    int keyval;           /* of the attribute that holds a derived type's properties */
    /* PMPI_Type_get_envelope_c() and PMPI_Type_get_contents_c(), each NULL if lacking */
    twill_mpi_function *envelope, *contents;
    unsigned entered;                    /* number of types in the table */
    _Atomic bool known[TWILL_MPI_TYPES]; /* this place of the table has a type */
    MPI_Datatype handle[TWILL_MPI_TYPES];
    struct twill_mpi_type type[TWILL_MPI_TYPES];
};
/* Fill the table of predefined types and create the attribute of others, once at the start. */
void twill_mpi_types_open(void);
/* Return whether a type is a predefined one in the table, which is never freed. */
bool twill_mpi_type_is_entered(MPI_Datatype type);
/* Return the properties of a type, or NULL if it is invalid or not committed, so that the call is
 * erroneous. They may be in *storage, and are valid while that and the type exist. */
const struct twill_mpi_type *twill_mpi_type_find(MPI_Datatype type, struct twill_mpi_type *storage);

#define TWILL_MPI_OPERATIONS      256u  /* most in a context */
#define TWILL_MPI_OPERATIONS_KEPT 192u  /* most for persistent calls; others keep the rest */
#define TWILL_MPI_ELEMENT_MOST    4096u /* most bytes of an element */
enum twill_mpi_handle { TWILL_MPI_ITS_OP, TWILL_MPI_ITS_TYPE, TWILL_MPI_ITS };
/* A slot of struct twill_mpi_operations, whose lock protects it. Its twill operation, if made,
 * calls PMPI_Reduce_local() with an MPI operation and type. It stays for later calls. The handle of
 * the operation is at TWILL_MPI_ITS_OP, that of the type at TWILL_MPI_ITS_TYPE. `element` is the
 * extent of the type in bytes. */
struct twill_mpi_operation {
    uintptr_t handle[TWILL_MPI_ITS]; /* pointers or integers, depending on the MPI */
    bool freed[TWILL_MPI_ITS];       /* the program has freed it, and the last user must free it */
    size_t element;
    bool commutative, made; /* made: made_op exists */
    /* calls under way plus persistent requests that use it, and persistent requests alone */
    unsigned users, keepers;
    twill_op made_op;
};
/* All twill operations that were made for pairs of an MPI operation and an MPI type. A process has
 * one, in twill_mpi. */
struct twill_mpi_operations {
    pthread_mutex_t lock;
    _Atomic unsigned users; /* sum over all, so that MPI_Type_free() needs no search if it is 0 */
    unsigned kept;          /* number of slots that persistent requests use */
    struct twill_mpi_operation slot[TWILL_MPI_OPERATIONS];
};
/* The twill equivalent of an MPI type and operation, in a variable of the function that binds a
 * call. twill_mpi_reduction_find() fills it in. */
struct twill_mpi_reduction {
    twill_type type;
    twill_op op;
    unsigned components; /* twill elements per MPI element */
    size_t element;      /* extent of an MPI element in bytes */
    bool lacks;          /* no slot was left for the operation */
    /* NULL if native; otherwise the caller releases it when the call is complete */
    struct twill_mpi_operation *made;
};
/* Set *found to twill's equivalent of call->op and call->recv.type, whose properties are `type`.
 * Returns TAKEN, or why the call is passed on to the MPI, with *found undefined. If no slot is left
 * for the operation, also returns TAKEN, with found->lacks set, and the call must fail. */
enum twill_mpi_why twill_mpi_reduction_find(const struct twill_mpi_call *call,
                                            const struct twill_mpi_type *type,
                                            struct twill_mpi_reduction *found);
/* Drop the use of an operation by a call, or by a persistent request if `kept`. The twill operation
 * stays for later calls. If this was the last use, also frees the MPI operation or type if the
 * program has freed it meanwhile and no other slot in use has it. */
void twill_mpi_operation_release(struct twill_mpi_operation *operation, bool kept);

/* --- running calls (mpi_run.c) and errors (mpi_errors.c) -------------------------------------- */
/* Run a blocking call on twill. Returns TAKEN, with *status set, or why it is passed on. */
enum twill_mpi_why twill_mpi_run_blocking(const struct twill_mpi_call *call,
                                          struct twill_mpi_comm *comm, twill_status *status);
/* Return whether a call with this status failed because its communicator was revoked, and note it.
 * The call is then passed on, so that the program gets the MPI's own answer. */
bool twill_mpi_is_revoked(struct twill_mpi_comm *comm, twill_status status);
/* Return whether the call is mpi4py's MPIX_Comm_iagree() over an MPI that has none. That is a
 * nonblocking allreduce of one MPI_INT with MPI_BAND. Equal on all ranks (mpi_creation.c). */
bool twill_mpi_is_agreement(const struct twill_mpi_call *call);
/* Return MPI's code for `status`. If it is an error, print its message, unless an earlier call has
 * or `comm` is revoked, and call the error handler first. */
int twill_mpi_outcome(struct twill_mpi_comm *comm, twill_status status);
/* The first error of a call that completes several requests, in a variable of that call. The error
 * handler is called at its end. */
struct twill_mpi_fault {
    MPI_Comm comm; /* of the program, whose error handler is called */
    int code;      /* MPI_SUCCESS if there is no error */
};
#define TWILL_MPI_NO_FAULT                                                                         \
    {                                                                                              \
        MPI_COMM_NULL, MPI_SUCCESS                                                                 \
    }
/* Return MPI's code for `status` without calling the error handler. If it is an error, print its
 * message, unless an earlier call has or `comm` is revoked. Also store it in *fault for
 * twill_mpi_raise(), unless *fault holds one already. */
int twill_mpi_fault_of(struct twill_mpi_comm *comm, twill_status status,
                       struct twill_mpi_fault *fault);
/* Call the error handler of the communicator of *fault if *fault holds an error. */
void twill_mpi_raise(const struct twill_mpi_fault *fault);
/* Return MPI_ERR_OTHER for a call in a forked child, and print a line for the first. Do nothing
 * else, because threads that do not exist in the child may hold locks, and the messages are the
 * parent's. MPI_ERRORS_ARE_FATAL would end the parent's job, so no handler is called. */
int twill_mpi_refuse_child(void);
/* Print a line, which starts with "libtwill-mpi: ", to standard error unless TWILL_LOG=none. */
void twill_mpi_say(const char *format, ...) TWILL_PRINTF(1, 2);
/* --- requests (mpi_requests.c) ---------------------------------------------------------------- */
/* Handles that the MPI below never makes. For Open MPI they are addresses that cannot be mapped.
 * For MPICH they are integers tagged as requests (11 << 26) but with none of its kinds of request.
 * For the ABI only the odd ones of these are used. No address is odd, and Fortran libraries for
 * MPICH's handles can keep them as integers. The bits below number our requests from 1. */
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
/* Return the number of one of twill's requests, which starts at 1. If the handle is the MPI's,
 * returns 0 or a number above all valid ones. */
static inline twill_mpi_request_bits twill_mpi_request_number(MPI_Request handle)
{
    const twill_mpi_request_bits bits = (twill_mpi_request_bits)handle - TWILL_MPI_REQUESTS_BASE;
    if (TWILL_MPI_REQUESTS_ODD != 0)
        return bits % 2 != 0 ? bits / 2 : 0;
    return bits;
}
/* Return the handle of twill's request `number`. */
static inline MPI_Request twill_mpi_request_numbered(unsigned number)
{
    return (MPI_Request)(TWILL_MPI_REQUESTS_BASE +
                         (twill_mpi_request_bits)number * (1 + TWILL_MPI_REQUESTS_ODD) +
                         TWILL_MPI_REQUESTS_ODD);
}
/* Return whether a handle can be one of twill's, not the MPI's, even if its request was freed. */
static inline bool twill_mpi_request_is_ours(MPI_Request handle)
{
    return twill_mpi_request_number(handle) - 1 < (1u << (26 - TWILL_MPI_REQUESTS_ODD)) - 1;
}

struct twill_mpi_request;
/* All requests of the process that twill runs, in slabs that never move, with lists of free ones.
 * Part of twill_mpi. */
struct twill_mpi_requests {
    pthread_mutex_t lock;  /* with MPI_THREAD_MULTIPLE: protects all but made, passes, contention */
    unsigned slabs;        /* allocated so far */
    _Atomic uint32_t made; /* requests in all slabs, used or not */
    struct twill_mpi_request *slab[TWILL_MPI_REQUEST_SLABS];
    struct twill_mpi_request *_Atomic spare;    /* list of unused ones */
    struct twill_mpi_request *_Atomic deferred; /* freed by the program while under way */
    _Atomic uint64_t passes;       /* last number that twill_mpi_request_next_pass() returned */
    _Atomic unsigned contention;   /* 0 to SPINS_LOG: how strongly others compete for this core */
    struct twill_mpi_comm wrapped; /* pseudo communicator of requests that wrap the MPI's */
};

/* Start a nonblocking or initialise a persistent call on an adopted communicator. Returns TAKEN if
 * twill has done so, or why the call is passed on to the MPI. If taken, *code is MPI's code for a
 * nonblocking call, whose error handler has been called if it failed. *code is left alone for a
 * persistent call, which has succeeded. *request is set if the call has succeeded. */
enum twill_mpi_why twill_mpi_run_request(const struct twill_mpi_call *call,
                                         struct twill_mpi_comm *comm, MPI_Request *request,
                                         int *code);
/* Run a blocking call with MPI_THREAD_MULTIPLE, when other threads may wait for requests of its
 * communicator. Returns TAKEN, with MPI's code in *code, or why it is passed on. */
enum twill_mpi_why twill_mpi_run_shared(const struct twill_mpi_call *call,
                                        struct twill_mpi_comm *comm, int *code);
/* Release those requests that the program freed while under way and that are complete by now. */
void twill_mpi_requests_sweep(void);
/* Wait until no request is under way on a communicator. The requests stay valid until the program
 * completes them. */
void twill_mpi_requests_complete(struct twill_mpi_comm *comm);
/* Release all requests, before communicators and the context are destroyed. Waits for those that
 * the program freed while under way, frees persistent ones and abandons other nonblocking ones. */
void twill_mpi_requests_end(void);
/* Let the MPI below make progress on its own messages, and handle notices of refused calls. */
void twill_mpi_progress(void);

/* --- operations that need the MPI's progress (mpi_creation.c, mpi_progress.c) --------------- */
/* Counts of the program's operations that make progress only in calls of the MPI. Part of
 * twill_mpi. */
struct twill_mpi_windows {
    _Atomic unsigned open; /* windows and files that are open */
    _Atomic bool messages; /* a persistent or partitioned message has been started */
    int keyval;            /* of the attribute whose callback reports a freed window */
};
/* Create the attribute that counts freed windows. Without it they count as open for ever. */
void twill_mpi_windows_open(void);
/* Free the attribute by which freed windows are counted. */
void twill_mpi_windows_close(void);
/* Count a window as open if `code`, the MPI's result, says that it was made. Returns `code`. */
int twill_mpi_window_made(int code, const MPI_Win *window);
/* Count a file as open if `code`, the MPI's result, is MPI_SUCCESS. Returns `code`. */
int twill_mpi_file_opened(int code);
/* Count an open file or window less if `code` is MPI_SUCCESS and any is left. Returns `code`. */
int twill_mpi_file_closed(int code);
/* Note that a persistent request of the MPI has been started, which needs the MPI's progress. */
void twill_mpi_started(void);
/* Let the MPI make progress after a collective on `comm` has completed. Calls twill_mpi_progress()
 * once. If windows or files are open, calls it more often, by the size of `comm`, up to 64 times.
 * twill_mpi_completed() calls this only if windows, files or messages need it. */
void twill_mpi_progress_windows(const struct twill_mpi_comm *comm);

/* --- erroneous calls (mpi_refused.c) -------------------------------------------------------- */
/* Find out whether the program's MPI checks arguments, and set twill_mpi.checks. Called at the
 * start, once twill_mpi.shadow exists. */
void twill_mpi_checks_find(void);

/* --- this process (mpi_init.c) ---------------------------------------------------------------- */
/* Counts of one collective in one form, for the report. An entry of twill_mpi.tally, to which any
 * thread adds. */
struct twill_mpi_tally {
    _Atomic uint64_t calls[TWILL_MPI_WHY_COUNT];
    _Atomic uint64_t ticks[2]; /* taken, passed on; counted, like bytes, for a report only */
    _Atomic uint64_t bytes;    /* contributed by this rank */
};
/* Counts for MPI_Alloc_mem(), for the report. Part of twill_mpi. `allocations` is the number of
 * calls that got memory from twill, and `bytes` what they got in all. `refused` counts the calls
 * for which twill had no memory, so that the MPI allocated. */
struct twill_mpi_memory {
    _Atomic uint64_t allocations, bytes, refused;
    _Atomic uint64_t out; /* allocations of twill that the program has not yet freed */
};

/* The state of libtwill-mpi. Constant after MPI_Init, but for members with locks or atomic ones. */
struct twill_mpi {
    _Atomic bool ready; /* calls may be taken */
    bool forked;        /* this is a child of the process that called MPI_Init */
    bool forked_told;   /* the first refused call in it has been reported */
    bool multiple;      /* MPI_THREAD_MULTIPLE */
    bool all_multiple;  /* on every rank: thread levels may differ, but decisions may not */
    bool reports;       /* measure times and print the report */
    bool silent;        /* TWILL_LOG=none */
    bool checks;        /* the MPI below checks arguments */
    bool has_iagree;    /* the MPI below has MPIX_Comm_iagree() */
    char off[576];      /* reason why nothing is taken, or "" */
    twill_context *context;
    twill_comm *world;
    MPI_Comm shadow; /* duplicate of MPI_COMM_WORLD for twill's own messages over the MPI */
    struct {
        MPI_Comm comm;        /* duplicate of MPI_COMM_SELF; both return errors */
        pthread_mutex_t lock; /* serialises this rank's messages to itself */
    } self;
    struct twill_mpi_comms comms;
    struct twill_mpi_requests requests;
    struct twill_mpi_types types;
    struct twill_mpi_operations operations;
    struct twill_mpi_memory memory;
    struct twill_mpi_windows windows;
    struct twill_mpi_newer newer[TWILL_MPI_KIND_COUNT][TWILL_MPI_FORM_COUNT][2]; /* 1 is large */
    _Atomic bool refusals; /* a notice of a refused call has ever arrived */
    struct {
        int class; /* for failures that no class of MPI describes; 0 until created */
        pthread_mutex_t lock;
    } errors;
    struct twill_mpi_tally tally[TWILL_MPI_KIND_COUNT][TWILL_MPI_FORM_COUNT];
    struct {
        uint64_t ticks, ns; /* twill_ticks() and twill_now() in MPI_Init */
    } start;
};
extern struct twill_mpi twill_mpi __attribute__((visibility("hidden")));

/* States of a communicator's lock, which takes an instruction each way if no thread waits. */
enum twill_mpi_locked { TWILL_MPI_UNLOCKED, TWILL_MPI_LOCKED, TWILL_MPI_LOCKED_WAITING };
/* Take the communicator's lock, or return false if another thread holds it. */
static inline bool twill_mpi_take(struct twill_mpi_comm *comm)
{
    int was = TWILL_MPI_UNLOCKED;
    return atomic_compare_exchange_strong_explicit(&comm->lock, &was, TWILL_MPI_LOCKED,
                                                   memory_order_acquire, memory_order_relaxed);
}
/* Do so if the program has MPI_THREAD_MULTIPLE. Otherwise return true. */
static inline bool twill_mpi_try_lock(struct twill_mpi_comm *comm)
{
    return !twill_mpi.multiple || twill_mpi_take(comm);
}
/* Sleep until the lock is taken (mpi_comms.c). */
void twill_mpi_lock_wait(struct twill_mpi_comm *comm);
/* Wake a thread that waits for the lock (mpi_comms.c). */
void twill_mpi_lock_wake(struct twill_mpi_comm *comm);
/* Take the communicator's lock if the program has MPI_THREAD_MULTIPLE. */
static inline void twill_mpi_lock(struct twill_mpi_comm *comm)
{
    if (TWILL_UNLIKELY(!twill_mpi_try_lock(comm)))
        twill_mpi_lock_wait(comm);
}
/* Release what twill_mpi_take() has taken. */
static inline void twill_mpi_give(struct twill_mpi_comm *comm)
{
    if (TWILL_UNLIKELY(atomic_exchange_explicit(&comm->lock, TWILL_MPI_UNLOCKED,
                                                memory_order_release) == TWILL_MPI_LOCKED_WAITING))
        twill_mpi_lock_wake(comm);
}
/* Release what twill_mpi_lock() or twill_mpi_try_lock() has taken. */
static inline void twill_mpi_unlock(struct twill_mpi_comm *comm)
{
    if (twill_mpi.multiple)
        twill_mpi_give(comm);
}

/* Let the MPI make progress after a completed collective if windows, files or messages need it. */
static inline void twill_mpi_completed(const struct twill_mpi_comm *comm)
{
    if (TWILL_UNLIKELY(atomic_load_explicit(&twill_mpi.windows.open, memory_order_relaxed) > 0 ||
                       atomic_load_explicit(&twill_mpi.windows.messages, memory_order_relaxed)))
        twill_mpi_progress_windows(comm);
}

/* The start of a call in ticks of twill_ticks(), or 0 if there is no report. A variable of the
 * entry point. */
struct twill_mpi_clock {
    uint64_t ticks;
};
/* Return the present time as the start of a call, or 0 if there is no report. */
static inline struct twill_mpi_clock twill_mpi_clock_start(void)
{
    return (struct twill_mpi_clock){twill_mpi.reports ? twill_ticks() : 0};
}
/* Add a call's duration in ticks to the sums for the report, and the bytes that this rank
 * contributes. Bytes are left out if the MPI refused the call, or if its communicator is unknown or
 * an intercommunicator. */
void twill_mpi_measure(const struct twill_mpi_call *call, enum twill_mpi_why why, uint64_t ticks);
/* Write the report on rank 0 if TWILL_MPI_REPORT asks for it. Collective over the world. */
void twill_mpi_report(void);
/* Set text[bytes] on all ranks to that of the lowest rank whose text is not empty. Collective. */
void twill_mpi_share_text(char *text, size_t bytes);
/* Add to a counter, atomically if there may be several threads. */
static inline void twill_mpi_add(_Atomic uint64_t *sum, uint64_t more)
{
    if (twill_mpi.multiple)
        atomic_fetch_add_explicit(sum, more, memory_order_relaxed);
    else
        atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + more,
                              memory_order_relaxed);
}
/* Count and measure a call if there is a report. */
static inline void twill_mpi_count(const struct twill_mpi_call *call, enum twill_mpi_why why,
                                   struct twill_mpi_clock clock)
{
    if (TWILL_LIKELY(!twill_mpi.reports))
        return;
    twill_mpi_add(&twill_mpi.tally[call->kind][call->form].calls[why], 1);
    twill_mpi_measure(call, why, twill_ticks() - clock.ticks);
}

#endif

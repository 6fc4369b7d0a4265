/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points of the collectives. All forms of each are generated from one description: its
 * parameters (N is the type of counts, D that of displacements), its arguments, and where they go
 * in a twill_mpi_call.
 *
 * Functions of MPI 4 and later are exported whatever the MPI below has. One library serves several
 * releases, and bindings such as mpi4py call what they find. The MPI's functions are looked up by
 * name. If it lacks one for large counts, the call is made with int counts if they fit. */
#include "lib/mpi/mpi_call.h"
#include "lib/mpi/mpi_requests.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

twill_mpi_function *twill_mpi_below(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    twill_mpi_function *function = NULL;
    memcpy(&function, &found, sizeof(function));
    return function;
}

/* Return the MPI's function for a call, with large counts if `large`, or NULL if it has none. */
static twill_mpi_function *look_up(enum twill_mpi_kind kind, enum twill_mpi_form form, bool large)
{
    char text[40], name[64];
    twill_mpi_form_name(kind, form, text, sizeof(text));
    snprintf(name, sizeof(name), "PMPI_%s%s", text, large ? "_c" : "");
    twill_mpi_function *found = twill_mpi_below(name);
    if (found != NULL || form != TWILL_MPI_PERSISTENT || large)
        return found;
    snprintf(name, sizeof(name), "PMPIX_%s", text); /* Open MPI 4 */
    return twill_mpi_below(name);
}

/* Return the function of the MPI below that makes this call of MPI 4, or NULL if it has none. It is
 * looked up only once. */
static twill_mpi_function *newer_of(const struct twill_mpi_call *call)
{
    struct twill_mpi_newer *newer = &twill_mpi.newer[call->kind][call->form][call->large];
    if (!atomic_load_explicit(&newer->known, memory_order_acquire)) {
        atomic_store(&newer->function, look_up(call->kind, call->form, call->large));
        atomic_store_explicit(&newer->known, true, memory_order_release);
    }
    return atomic_load_explicit(&newer->function, memory_order_relaxed);
}

/* One end of a call with its counts as int. Arrays lie in narrowed_call.memory or are NULL. */
struct narrowed_end {
    int count;
    const int *counts, *displs;
};
/* A call whose counts are converted to int, on the stack of pass_older(), which frees `memory`. */
struct narrowed_call {
    struct twill_mpi_call call;
    struct narrowed_end send, recv;
    int *memory, *unused; /* the block of the arrays, and its unused rest */
    int size;             /* elements of each array */
    bool fails;           /* a count does not fit, or out of memory */
};

/* Return `value` as int. If it does not fit, narrow->fails is set. */
static int narrowed(struct narrowed_call *narrow, MPI_Count value)
{
    narrow->fails = narrow->fails || value > INT_MAX || value < INT_MIN;
    return (int)value;
}

/* Return a copy of an array of narrow->size MPI_Count, converted to int, in narrow->memory. Returns
 * NULL for no array, an unused one, or after a failure. If an element does not fit, sets
 * narrow->fails. */
static int *narrowed_array(struct narrowed_call *narrow, const void *array, bool used)
{
    if (!used || array == NULL || narrow->fails)
        return NULL;
    int *copy = narrow->unused;
    narrow->unused += narrow->size;
    for (int i = 0; i < narrow->size; i++)
        copy[i] = narrowed(narrow, ((const MPI_Count *)array)[i]);
    return copy;
}

/* Convert a call's counts to int in *narrow, whose memory the caller frees. narrow->fails says
 * whether this was impossible. An intercommunicator's arrays have an entry per remote rank. */
static void narrow_open(struct narrowed_call *narrow, const struct twill_mpi_call *call)
{
    int inter = 0, rank = 0;
    *narrow = (struct narrowed_call){.call = *call};
    narrow->send.count = narrowed(narrow, call->send.count);
    narrow->recv.count = narrowed(narrow, call->recv.count);
    bool gatherv = call->kind == TWILL_MPI_Gatherv, scatterv = call->kind == TWILL_MPI_Scatterv;
    bool to_all = call->kind == TWILL_MPI_Alltoallv;
    bool received = gatherv || to_all || call->kind == TWILL_MPI_Allgatherv ||
                    call->kind == TWILL_MPI_Reduce_scatter;
    if (!received && !scatterv)
        return;
    if (call->comm == MPI_COMM_NULL || PMPI_Comm_test_inter(call->comm, &inter) != MPI_SUCCESS)
        return; /* the MPI will refuse the communicator */
    PMPI_Comm_rank(call->comm, &rank);
    if (inter && call->kind != TWILL_MPI_Reduce_scatter)
        PMPI_Comm_remote_size(call->comm, &narrow->size);
    else
        PMPI_Comm_size(call->comm, &narrow->size);
    bool root = inter ? call->root == MPI_ROOT : call->root == rank;
    received = received && (!gatherv || root);
    bool sent = (scatterv && root) || (to_all && call->send.buffer != MPI_IN_PLACE);
    bool placed = call->kind != TWILL_MPI_Reduce_scatter;
    narrow->memory = narrow->unused = malloc(((size_t)narrow->size + 1) * 4 * sizeof(int));
    narrow->fails = narrow->fails || narrow->memory == NULL;
    narrow->send.counts = narrowed_array(narrow, call->send.counts, sent);
    narrow->send.displs = narrowed_array(narrow, call->send.displs, sent);
    narrow->recv.counts = narrowed_array(narrow, call->recv.counts, received);
    narrow->recv.displs = narrowed_array(narrow, call->recv.displs, received && placed);
}

/* Define a function that makes the call of one kind in its form, with the arguments it uses. */
#define RUN(name, lower)                                                                           \
    static int run_##lower(const struct narrowed_call *narrow, MPI_Request *request)               \
    {                                                                                              \
        const struct twill_mpi_call *call = &narrow->call;                                         \
        int (*persistent)(PARAMETERS_##name(int, int), MPI_Info, MPI_Request *) =                  \
            (int (*)(PARAMETERS_##name(int, int), MPI_Info, MPI_Request *))newer_of(call);         \
        const bool scatterv = call->kind == TWILL_MPI_Scatterv;                                    \
        const void *sendbuf = call->send.buffer;                                                   \
        void *recvbuf = (void *)call->recv.buffer, *buffer = recvbuf;                              \
        const int sendcount = narrow->send.count, recvcount = narrow->recv.count;                  \
        const int count = sendcount, root = call->root;                                            \
        const int *sendcounts = narrow->send.counts, *recvcounts = narrow->recv.counts;            \
        const int *sdispls = narrow->send.displs, *rdispls = narrow->recv.displs;                  \
        const int *displs = scatterv ? sdispls : rdispls;                                          \
        const MPI_Datatype sendtype = call->send.type, recvtype = call->recv.type;                 \
        const MPI_Datatype datatype = sendtype;                                                    \
        const MPI_Op op = call->op;                                                                \
        const MPI_Comm comm = call->comm;                                                          \
        (void)sendbuf, (void)buffer, (void)recvcount, (void)count, (void)root, (void)sendcounts;   \
        (void)recvcounts, (void)displs, (void)recvtype, (void)datatype, (void)op;                  \
        switch (call->form) {                                                                      \
        case TWILL_MPI_BLOCKING:                                                                   \
            return PMPI_##name(ARGUMENTS_##name);                                                  \
        case TWILL_MPI_NONBLOCKING:                                                                \
            return PMPI_I##lower(ARGUMENTS_##name, request);                                       \
        default:                                                                                   \
            return persistent(ARGUMENTS_##name, MPI_INFO_NULL, request);                           \
        }                                                                                          \
    }
TWILL_MPI_COLLECTIVES(RUN)

/* Make a call in the MPI by its function with int counts, to which narrow_open() has converted the
 * call's counts. Sets *request, except for a blocking call. Returns MPI's code, or MPI_ERR_OTHER
 * for a kind of call that the MPI does not have. */
static int run(const struct narrowed_call *narrow, MPI_Request *request)
{
    switch (narrow->call.kind) {
#define CASE(name, lower)                                                                          \
    case TWILL_MPI_##name:                                                                         \
        return run_##lower(narrow, request);
        TWILL_MPI_COLLECTIVES(CASE)
#undef CASE
    default:
        return MPI_ERR_OTHER;
    }
}

/* Pass a call of MPI 4 on to functions that older MPIs have. Returns MPI's code. If the MPI has
 * none, or counts do not fit int, says so on standard error, calls the error handler and returns
 * MPI_ERR_OTHER. */
static int pass_older(const struct twill_mpi_call *call, MPI_Request *request)
{
    struct narrowed_call narrow = {.fails = !call->large};
    if (call->large)
        narrow_open(&narrow, call);
    narrow.call.large = false;
    if (call->form == TWILL_MPI_PERSISTENT)
        narrow.fails = narrow.fails || newer_of(&narrow.call) == NULL;
    if (narrow.fails)
        twill_mpi_say("%s: the MPI below has no such call%s", twill_mpi_kind_names[call->kind],
                      call->large ? " with so large counts" : " that is persistent");
    int code = narrow.fails ? MPI_ERR_OTHER : run(&narrow, request);
    /* An MPI may read the arrays until a request is complete. If it is not wrapped, they stay. */
    if (call->form == TWILL_MPI_BLOCKING || code != MPI_SUCCESS)
        free(narrow.memory);
    else if (narrow.memory != NULL)
        (void)twill_mpi_request_wrap(request, call->form, narrow.memory);
    if (narrow.fails)
        PMPI_Comm_call_errhandler(call->comm, code);
    return code;
}

int twill_mpi_pass_on(const struct twill_mpi_call *call)
{
    struct narrowed_call narrow = {.call = *call};
    narrow.send.count = (int)call->send.count;
    narrow.recv.count = (int)call->recv.count;
    narrow.send.counts = call->send.counts, narrow.send.displs = call->send.displs;
    narrow.recv.counts = call->recv.counts, narrow.recv.displs = call->recv.displs;
    return call->kind == TWILL_MPI_Barrier ? PMPI_Barrier(call->comm) : run(&narrow, NULL);
}

/* Assign an entry point's arguments to the call. Members that the kind does not use are not set. */
#define END(end, at, n, of) call.end.buffer = (at), call.end.count = (n), call.end.type = (of)
#define VECTOR(end, at, n, from, of)                                                               \
    call.end.buffer = (at), call.end.counts = (n), call.end.displs = (from), call.end.type = (of)
#define CALL_Allreduce                                                                             \
    END(send, sendbuf, count, datatype), END(recv, recvbuf, count, datatype), call.op = op
#define CALL_Reduce CALL_Allreduce, call.root = root
#define CALL_Scan   CALL_Allreduce
#define CALL_Exscan CALL_Allreduce
#define CALL_Reduce_scatter                                                                        \
    END(send, sendbuf, 0, datatype), VECTOR(recv, recvbuf, recvcounts, NULL, datatype), call.op = op
#define CALL_Reduce_scatter_block                                                                  \
    END(send, sendbuf, recvcount, datatype), END(recv, recvbuf, recvcount, datatype), call.op = op
#define CALL_Bcast                                                                                 \
    END(send, buffer, count, datatype), END(recv, buffer, count, datatype), call.root = root
#define CALL_Allgather                                                                             \
    END(send, sendbuf, sendcount, sendtype), END(recv, recvbuf, recvcount, recvtype)
#define CALL_Alltoall CALL_Allgather
#define CALL_Gather   CALL_Allgather, call.root = root
#define CALL_Scatter  CALL_Gather
#define CALL_Allgatherv                                                                            \
    END(send, sendbuf, sendcount, sendtype), VECTOR(recv, recvbuf, recvcounts, displs, recvtype)
#define CALL_Gatherv CALL_Allgatherv, call.root = root
#define CALL_Scatterv                                                                              \
    VECTOR(send, sendbuf, sendcounts, displs, sendtype), END(recv, recvbuf, recvcount, recvtype),  \
        call.root = root
#define CALL_Alltoallv                                                                             \
    VECTOR(send, sendbuf, sendcounts, sdispls, sendtype),                                          \
        VECTOR(recv, recvbuf, recvcounts, rdispls, recvtype)
#define CALL_Barrier (void)0

/* The body of an entry point, which takes the call or passes it on. */
#define BODY(name, is_large, asked, request, passed)                                               \
    {                                                                                              \
        struct twill_mpi_call call; /* partly set: clearing it would cost most of the time here */ \
        call.kind = TWILL_MPI_##name, call.form = (asked), call.large = (is_large);                \
        call.root = 0, call.send.count = call.recv.count = 0, call.comm = comm;                    \
        CALL_##name;                                                                               \
        struct twill_mpi_clock clock = twill_mpi_clock_start();                                    \
        int code = MPI_SUCCESS;                                                                    \
        enum twill_mpi_why why = twill_mpi_run(&call, request, &code);                             \
        if (why != TWILL_MPI_WHY_TAKEN)                                                            \
            code = passed;                                                                         \
        if (TWILL_UNLIKELY(why == TWILL_MPI_WHY_ERRONEOUS && code != MPI_SUCCESS))                 \
            twill_mpi_refused(&call);                                                              \
        twill_mpi_count(&call, why, clock);                                                        \
        return code;                                                                               \
    }

/* Pass on to a function of MPI 4, which the MPI below may lack. */
#define NEWER(call, request, parameters, ...)                                                      \
    (newer_of(&(call)) != NULL ? ((int(*) parameters)newer_of(&(call)))(__VA_ARGS__)               \
                               : pass_older(&(call), request))

#define BLOCKING(name)                                                                             \
    int MPI_##name(PARAMETERS_##name(int, int))                                                    \
        BODY(name, false, TWILL_MPI_BLOCKING, NULL, PMPI_##name(ARGUMENTS_##name))

/* Whether a call equals `m`, a remembered one of its kind. Of broadcasts the root may differ. */
#define IS_AT                   (m->recv == recvbuf && m->send == sendbuf)
#define IS_TO(c)                (IS_AT && m->recv_count == (c))
#define IS_REDUCED              (m->recv_type == datatype && m->op == op)
#define IS_TYPED                (m->recv_type == recvtype && m->send_type == sendtype)
#define IS_MOVED                (m->send_count == sendcount && IS_TYPED)
#define IS_Allreduce            (IS_TO(count) && IS_REDUCED)
#define IS_Reduce               (IS_TO(count) && IS_REDUCED && m->root == root)
#define IS_Reduce_scatter_block (IS_TO(recvcount) && IS_REDUCED)
#define IS_Bcast                                                                                   \
    (m->recv == buffer && m->recv_count == count && m->recv_type == datatype &&                    \
     (unsigned)root < (unsigned)own->size)
#define IS_Allgather (IS_TO(recvcount) && IS_MOVED)
#define IS_Gather    (IS_TO(recvcount) && IS_MOVED && m->root == root)
#define IS_Scatter   IS_Gather
#define IS_Alltoall  IS_Allgather
#define IS_Barrier   (m->recv == NULL) /* not so in an empty one */
/* Arrays are compared by content, as programs change them between calls. */
#define HAS(counts, displs) twill_mpi_memo_has(m->given, (counts), (displs), own->size)
#define IS_Allgatherv       (IS_AT && IS_MOVED && HAS(recvcounts, displs))
#define IS_Gatherv                                                                                 \
    (IS_AT && IS_MOVED && m->root == root && (m->given == NULL || HAS(recvcounts, displs)))
#define IS_Scatterv                                                                                \
    (IS_TO(recvcount) && IS_TYPED && m->root == root &&                                            \
     (m->given == NULL || HAS(sendcounts, displs)))
#define IS_Reduce_scatter (IS_AT && IS_REDUCED && HAS(recvcounts, recvcounts))
#define IS_Alltoallv                                                                               \
    (IS_AT && IS_TYPED && HAS(recvcounts, rdispls) &&                                              \
     twill_mpi_memo_has(m->given + 2 * own->size, sendcounts, sdispls, own->size))

_Static_assert(TWILL_OK == 0 && MPI_SUCCESS == 0, "a status of twill is returned as MPI's code");
#if defined(__has_attribute) && __has_attribute(noplt)
#define CALLED_DIRECTLY(name, its_root, verb, ...)                                                 \
    extern __typeof__(twill_##verb) twill_##verb __attribute__((noplt));
TWILL_MPI_REMEMBERED(CALLED_DIRECTLY)
#endif

/* Define the blocking form of a kind that is remembered. If the call is the one that is expected on
 * the last communicator, the entry point makes it at once. If it is expected on the one before
 * that, turn_NAME() does. With threads share_NAME() makes the call that is expected on its
 * communicator, or leave_NAME() releases the lock. Otherwise seek_NAME() looks for the call. If it
 * is not remembered, run_new_NAME() binds and runs it. */
#define REMEMBERED(name, its_root, verb, ...)                                                      \
    static inline __attribute__((always_inline)) twill_status send_##name(                         \
        struct twill_mpi_comm *own, struct twill_mpi_memo *m, int root, bool quick)                \
    {                                                                                              \
        (void)root;                                                                                \
        if (TWILL_MPI_##name == TWILL_MPI_Bcast)                                                   \
            m->root = root;                                                                        \
        if (quick) /* no other thread reads it */                                                  \
            ++*(int *)&own->refusal.calls;                                                         \
        else                                                                                       \
            twill_mpi_begin(own);                                                                  \
        twill_mpi_wait_in(own, TWILL_MPI_##name);                                                  \
        twill_status status = twill_##verb(__VA_ARGS__);                                           \
        twill_mpi_wait_in(own, -1);                                                                \
        return status;                                                                             \
    }                                                                                              \
    static int seek_##name(PARAMETERS_##name(int, int));                                           \
    static int share_##name(PARAMETERS_##name(int, int));                                          \
    static int turn_##name(PARAMETERS_##name(int, int));                                           \
    static inline                                                                                  \
        __attribute__((always_inline)) int make_##name(PARAMETERS_##name(int, int), bool turned)   \
    {                                                                                              \
        struct twill_mpi_comm *own = twill_mpi.comms.quick.comm;                                   \
        struct twill_mpi_memo *m = own->scratch.calls.latest[TWILL_MPI_##name]->next;              \
        if (TWILL_UNLIKELY(twill_mpi.comms.quick.handle != comm || !IS_##name))                    \
            return atomic_load_explicit(&twill_mpi.comms.shared, memory_order_relaxed)             \
                       ? share_##name(ARGUMENTS_##name)                                            \
                   : !turned && twill_mpi.comms.quick_before.handle == comm                        \
                       ? turn_##name(ARGUMENTS_##name)                                             \
                       : seek_##name(ARGUMENTS_##name);                                            \
        own->scratch.calls.latest[TWILL_MPI_##name] = m;                                           \
        twill_status status = send_##name(own, m, its_root, true);                                 \
        int code = (int)status;                                                                    \
        if (TWILL_UNLIKELY(status != TWILL_OK))                                                    \
            code = twill_mpi_memo_failed(own, TWILL_MPI_##name,                                    \
                                         own->scratch.calls.latest[TWILL_MPI_##name], status);     \
        __asm__("" : "+r"(code)); /* else the code of success is made anew */                      \
        return code;                                                                               \
    }                                                                                              \
    static __attribute__((noinline)) int leave_##name(PARAMETERS_##name(int, int))                 \
    {                                                                                              \
        twill_mpi_give(twill_mpi_comm_find(comm)); /* which may no longer be the first */          \
        return seek_##name(ARGUMENTS_##name);                                                      \
    }                                                                                              \
    static __attribute__((noinline)) int share_##name(PARAMETERS_##name(int, int))                 \
    {                                                                                              \
        struct twill_mpi_comm *own = twill_mpi_comm_first(comm);                                   \
        if (TWILL_UNLIKELY(own == NULL || !twill_mpi_take(own)))                                   \
            return seek_##name(ARGUMENTS_##name);                                                  \
        struct twill_mpi_memo *m = own->scratch.calls.latest[TWILL_MPI_##name]->next;              \
        if (TWILL_UNLIKELY(own->active != NULL || !IS_##name))                                     \
            return leave_##name(ARGUMENTS_##name);                                                 \
        own->scratch.calls.latest[TWILL_MPI_##name] = m;                                           \
        twill_status status = send_##name(own, m, its_root, false);                                \
        __asm__("" : "+r"(own)); /* else the address of the lock is kept during the call */        \
        if (TWILL_UNLIKELY(status != TWILL_OK))                                                    \
            return twill_mpi_memo_failed(own, TWILL_MPI_##name,                                    \
                                         own->scratch.calls.latest[TWILL_MPI_##name], status);     \
        twill_mpi_give(own);                                                                       \
        return MPI_SUCCESS;                                                                        \
    }                                                                                              \
    static __attribute__((noinline)) int turn_##name(PARAMETERS_##name(int, int))                  \
    {                                                                                              \
        twill_mpi_quick_turn();                                                                    \
        return make_##name(ARGUMENTS_##name, true);                                                \
    }                                                                                              \
    static __attribute__((noinline)) int run_new_##name(PARAMETERS_##name(int, int))               \
        BODY(name, false, TWILL_MPI_BLOCKING, NULL, PMPI_##name(ARGUMENTS_##name)) static          \
        __attribute__((noinline)) int seek_##name(PARAMETERS_##name(int, int))                     \
    {                                                                                              \
        struct twill_mpi_comm *own = twill_mpi_memo_begin(comm);                                   \
        struct twill_mpi_clock clock = twill_mpi_clock_start();                                    \
        if (own == NULL)                                                                           \
            return run_new_##name(ARGUMENTS_##name);                                               \
        struct twill_mpi_memo *m = own->scratch.calls.latest[TWILL_MPI_##name]->next, *end = NULL; \
        if (!IS_##name) {                                                                          \
            m = twill_mpi_memos_of(own, TWILL_MPI_##name), end = m + TWILL_MPI_MEMOS;              \
            while (m < end && !IS_##name)                                                          \
                m++;                                                                               \
        }                                                                                          \
        if (m == end) {                                                                            \
            twill_mpi_unlock(own);                                                                 \
            return run_new_##name(ARGUMENTS_##name);                                               \
        }                                                                                          \
        twill_mpi_memo_found(own, TWILL_MPI_##name, m);                                            \
        twill_status status = send_##name(own, m, its_root, false);                                \
        if (TWILL_UNLIKELY(status != TWILL_OK))                                                    \
            return twill_mpi_memo_failed(own, TWILL_MPI_##name, m, status);                        \
        if (TWILL_UNLIKELY(twill_mpi.reports))                                                     \
            twill_mpi_memo_count(own, TWILL_MPI_##name, m, clock);                                 \
        twill_mpi_unlock(own);                                                                     \
        twill_mpi_completed(own);                                                                  \
        return MPI_SUCCESS;                                                                        \
    }                                                                                              \
    int MPI_##name(PARAMETERS_##name(int, int))                                                    \
    {                                                                                              \
        return make_##name(ARGUMENTS_##name, false);                                               \
    }
TWILL_MPI_REMEMBERED(REMEMBERED)
BLOCKING(Scan)
BLOCKING(Exscan)

#define NONBLOCKING(name, lower)                                                                   \
    int MPI_I##lower(PARAMETERS_##name(int, int), MPI_Request *request) BODY(                      \
        name, false, TWILL_MPI_NONBLOCKING, request, PMPI_I##lower(ARGUMENTS_##name, request))
#define BLOCKING_LARGE(name)                                                                       \
    TWILL_EXPORTED int MPI_##name##_c(PARAMETERS_##name(MPI_Count, MPI_Aint));                     \
    int MPI_##name##_c(PARAMETERS_##name(MPI_Count, MPI_Aint))                                     \
        BODY(name, true, TWILL_MPI_BLOCKING, NULL,                                                 \
             NEWER(call, NULL, (PARAMETERS_##name(MPI_Count, MPI_Aint)), ARGUMENTS_##name))
#define NONBLOCKING_LARGE(name, lower)                                                             \
    TWILL_EXPORTED int MPI_I##lower##_c(PARAMETERS_##name(MPI_Count, MPI_Aint),                    \
                                        MPI_Request *request);                                     \
    int MPI_I##lower##_c(PARAMETERS_##name(MPI_Count, MPI_Aint), MPI_Request *request)             \
        BODY(name, true, TWILL_MPI_NONBLOCKING, request,                                           \
             NEWER(call, request, (PARAMETERS_##name(MPI_Count, MPI_Aint), MPI_Request *),         \
                   ARGUMENTS_##name, request))
#define PERSISTENT_FORM(prefix, name, large, N, D, suffix)                                         \
    TWILL_EXPORTED int prefix##_##name##_init##suffix(PARAMETERS_##name(N, D), MPI_Info info,      \
                                                      MPI_Request *request);                       \
    int prefix##_##name##_init##suffix(PARAMETERS_##name(N, D), MPI_Info info,                     \
                                       MPI_Request *request)                                       \
        BODY(name, large, TWILL_MPI_PERSISTENT, request,                                           \
             NEWER(call, request, (PARAMETERS_##name(N, D), MPI_Info, MPI_Request *),              \
                   ARGUMENTS_##name, info, request))

/* Open MPI 4 has persistent collectives under another name. */
#if defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define PERSISTENT_EXTENSION(name) PERSISTENT_FORM(MPIX, name, false, int, int, )
#else
#define PERSISTENT_EXTENSION(name)
#endif

#define CALL_FORMS_OF_ONE_SIZE(name, lower)                                                        \
    NONBLOCKING(name, lower)                                                                       \
    PERSISTENT_FORM(MPI, name, false, int, int, ) PERSISTENT_EXTENSION(name)
#define CALL_FORMS(name, lower)                                                                    \
    CALL_FORMS_OF_ONE_SIZE(name, lower)                                                            \
    BLOCKING_LARGE(name)                                                                           \
    NONBLOCKING_LARGE(name, lower) PERSISTENT_FORM(MPI, name, true, MPI_Count, MPI_Aint, _c)

TWILL_MPI_COLLECTIVES(CALL_FORMS)
CALL_FORMS_OF_ONE_SIZE(Barrier, barrier)

/* SPDX-License-Identifier: Apache-2.0 */
/* The collective calls of MPI in all their forms: see cases.h. */
#include "cases.h"

#include <sched.h>

#define ARGS_BCAST        a->recv, a->recv_count, a->recv_type, a->root, a->comm
#define ARGS_REDUCE       a->send, a->recv, a->recv_count, a->recv_type, a->op, a->root, a->comm
#define ARGS_ALLREDUCE    a->send, a->recv, a->recv_count, a->recv_type, a->op, a->comm
#define ARGS_SEND         a->send, a->send_count, a->send_type
#define ARGS_RECV         a->recv, a->recv_count, a->recv_type
#define ARGS_SENDV(c)     a->send, a->send_counts##c, a->send_displs##c, a->send_type
#define ARGS_RECVV(c)     a->recv, a->recv_counts##c, a->recv_displs##c, a->recv_type
#define ARGS_SENDW(c)     a->send, a->send_counts##c, a->send_displs##c, a->send_types
#define ARGS_RECVW(c)     a->recv, a->recv_counts##c, a->recv_displs##c, a->recv_types
#define ARGS_ROOT         a->root, a->comm
#define ARGS_SCATTERED(c) a->send, a->recv, a->recv_counts##c, a->recv_type, a->op, a->comm

/* Calls without arrays have equal arguments in their _c form. */
#define ALL_CALLS(X)                                                                               \
    X(BCAST, Bcast, bcast, (ARGS_BCAST), (ARGS_BCAST))                                             \
    X(REDUCE, Reduce, reduce, (ARGS_REDUCE), (ARGS_REDUCE))                                        \
    X(ALLREDUCE, Allreduce, allreduce, (ARGS_ALLREDUCE), (ARGS_ALLREDUCE))                         \
    X(GATHER, Gather, gather, (ARGS_SEND, ARGS_RECV, ARGS_ROOT),                                   \
      (ARGS_SEND, ARGS_RECV, ARGS_ROOT))                                                           \
    X(GATHERV, Gatherv, gatherv, (ARGS_SEND, ARGS_RECVV(), ARGS_ROOT),                             \
      (ARGS_SEND, ARGS_RECVV(_c), ARGS_ROOT))                                                      \
    X(SCATTER, Scatter, scatter, (ARGS_SEND, ARGS_RECV, ARGS_ROOT),                                \
      (ARGS_SEND, ARGS_RECV, ARGS_ROOT))                                                           \
    X(SCATTERV, Scatterv, scatterv, (ARGS_SENDV(), ARGS_RECV, ARGS_ROOT),                          \
      (ARGS_SENDV(_c), ARGS_RECV, ARGS_ROOT))                                                      \
    X(ALLGATHER, Allgather, allgather, (ARGS_SEND, ARGS_RECV, a->comm),                            \
      (ARGS_SEND, ARGS_RECV, a->comm))                                                             \
    X(ALLGATHERV, Allgatherv, allgatherv, (ARGS_SEND, ARGS_RECVV(), a->comm),                      \
      (ARGS_SEND, ARGS_RECVV(_c), a->comm))                                                        \
    X(ALLTOALL, Alltoall, alltoall, (ARGS_SEND, ARGS_RECV, a->comm),                               \
      (ARGS_SEND, ARGS_RECV, a->comm))                                                             \
    X(ALLTOALLV, Alltoallv, alltoallv, (ARGS_SENDV(), ARGS_RECVV(), a->comm),                      \
      (ARGS_SENDV(_c), ARGS_RECVV(_c), a->comm))                                                   \
    X(ALLTOALLW, Alltoallw, alltoallw, (ARGS_SENDW(), ARGS_RECVW(), a->comm),                      \
      (ARGS_SENDW(_c), ARGS_RECVW(_c), a->comm))                                                   \
    X(REDUCE_SCATTER, Reduce_scatter, reduce_scatter, (ARGS_SCATTERED()), (ARGS_SCATTERED(_c)))    \
    X(REDUCE_SCATTER_BLOCK, Reduce_scatter_block, reduce_scatter_block, (ARGS_ALLREDUCE),          \
      (ARGS_ALLREDUCE))                                                                            \
    X(SCAN, Scan, scan, (ARGS_ALLREDUCE), (ARGS_ALLREDUCE))                                        \
    X(EXSCAN, Exscan, exscan, (ARGS_ALLREDUCE), (ARGS_ALLREDUCE))

#define UNPACK(...)            __VA_ARGS__
#define APPLY(f, ...)          f(__VA_ARGS__)
#define CALLS_PLAIN(f, args)   APPLY(f, UNPACK args)
#define CALLS_STARTED(f, args) APPLY(f, UNPACK args, request)
#define WITH_INFO(f, args)     APPLY(f, UNPACK args, MPI_INFO_NULL, request)

/* MPICH polls without yielding, which is very slow with more ranks than cores. Open MPI yields, but
 * must not be given nonblocking calls: ranks that have nothing to send or receive in one use other
 * tags from then on. */
#ifdef OPEN_MPI
#define REFERENCE(Name, name, args) CALLS_PLAIN(PMPI_##Name, args)
#else
#define REFERENCE(Name, name, args) refer_request(PLAIN_REQUEST(PMPI_I##name, args), &request)
#define PLAIN_REQUEST(f, args)      APPLY(f, UNPACK args, &request)

static int refer_request(int code, MPI_Request *request)
{
    int done = code != MPI_SUCCESS;
    while (!done && (code = PMPI_Test(request, &done, MPI_STATUS_IGNORE)) == MPI_SUCCESS)
        sched_yield();
    return code;
}
#endif

#define FUNCTIONS(id, Name, name, args, args_c)                                                    \
    static int call_##name(const struct arguments *a, MPI_Request *request)                        \
    {                                                                                              \
        (void)request;                                                                             \
        return CALLS_PLAIN(MPI_##Name, args);                                                      \
    }                                                                                              \
    static int start_##name(const struct arguments *a, MPI_Request *request)                       \
    {                                                                                              \
        return CALLS_STARTED(MPI_I##name, args);                                                   \
    }                                                                                              \
    static int init_##name(const struct arguments *a, MPI_Request *request)                        \
    {                                                                                              \
        return WITH_INFO(PERSISTENT(Name), args);                                                  \
    }                                                                                              \
    static int reference_##name(const struct arguments *a)                                         \
    {                                                                                              \
        MPI_Request request = MPI_REQUEST_NULL;                                                    \
        (void)request;                                                                             \
        return REFERENCE(Name, name, args);                                                        \
    }
FUNCTIONS(BARRIER, Barrier, barrier, (a->comm), )
ALL_CALLS(FUNCTIONS)

#if HAS_LARGE
#define FUNCTIONS_C(id, Name, name, args, args_c)                                                  \
    static int call_c_##name(const struct arguments *a, MPI_Request *request)                      \
    {                                                                                              \
        (void)request;                                                                             \
        return CALLS_PLAIN(MPI_##Name##_c, args_c);                                                \
    }                                                                                              \
    static int start_c_##name(const struct arguments *a, MPI_Request *request)                     \
    {                                                                                              \
        return CALLS_STARTED(MPI_I##name##_c, args_c);                                             \
    }                                                                                              \
    static int init_c_##name(const struct arguments *a, MPI_Request *request)                      \
    {                                                                                              \
        return WITH_INFO(MPI_##Name##_init_c, args_c);                                             \
    }
ALL_CALLS(FUNCTIONS_C)
#define LARGE_FORMS(name) call_c_##name, start_c_##name, init_c_##name
#else
#define LARGE_FORMS(name) NULL, NULL, NULL
#endif

#define REDUCING                                                                                   \
    (1u << REDUCE | 1u << ALLREDUCE | 1u << REDUCE_SCATTER | 1u << REDUCE_SCATTER_BLOCK |          \
     1u << SCAN | 1u << EXSCAN)
#define VECTOR_CALLS                                                                               \
    (1u << GATHERV | 1u << SCATTERV | 1u << ALLGATHERV | 1u << ALLTOALLV | 1u << ALLTOALLW |       \
     1u << REDUCE_SCATTER)
#define ROOTED                                                                                     \
    (1u << BCAST | 1u << REDUCE | 1u << GATHER | 1u << GATHERV | 1u << SCATTER | 1u << SCATTERV)

#define CALLS_ENTRY(id, Name, low, args, args_c)                                                   \
    [id] = {.name = #Name,                                                                         \
            .reduces = (REDUCING >> id) & 1,                                                       \
            .vectors = (VECTOR_CALLS >> id) & 1,                                                   \
            .rooted = (ROOTED >> id) & 1,                                                          \
            .form = {call_##low, start_##low, init_##low, LARGE_FORMS(low)},                       \
            .reference = reference_##low},
const struct call_entry calls[CALLS] = {
    [BARRIER] = {.name = "Barrier",
                 .form = {call_barrier, start_barrier, init_barrier, NULL, NULL, NULL},
                 .reference = reference_barrier},
    ALL_CALLS(CALLS_ENTRY)};

const char *const form_names[FORMS] = {"",   "nonblocking",    "persistent",
                                       "_c", "nonblocking _c", "persistent _c"};

/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of MPI 4 and later, which are shown whatever the MPI below has, as one library serves
 * several releases: bindings such as mpi4py call what they find. Those that the MPI has are looked
 * up by name. In place of the others, calls with large counts become calls with int counts if the
 * counts fit. */
#include "lib/mpi/mpi_newer.h"
#include "lib/mpi/mpi_collectives.h"
#include "lib/mpi/mpi_requests.h"

#include <ctype.h>
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

static twill_mpi_function *look_up(enum twill_mpi_kind kind, enum twill_mpi_form form, bool large)
{
    char name[64], text[40];
    snprintf(text, sizeof(text), "%s", twill_mpi_kind_names[kind]);
    if (form == TWILL_MPI_NONBLOCKING)
        text[0] = (char)tolower((unsigned char)text[0]);
    const char *suffix = form == TWILL_MPI_PERSISTENT ? "_init" : "";
    snprintf(name, sizeof(name), "PMPI_%s%s%s%s", form == TWILL_MPI_NONBLOCKING ? "I" : "", text,
             suffix, large ? "_c" : "");
    twill_mpi_function *found = twill_mpi_below(name);
    if (found == NULL && form == TWILL_MPI_PERSISTENT && !large) {
        snprintf(name, sizeof(name), "PMPIX_%s_init", text); /* Open MPI 4 */
        found = twill_mpi_below(name);
    }
    return found;
}

twill_mpi_function *twill_mpi_newer(const struct twill_mpi_call *call)
{
    struct twill_mpi_newer *newer = &twill_mpi.newer[call->kind][call->form][call->large];
    if (!atomic_load_explicit(&newer->known, memory_order_acquire)) {
        atomic_store(&newer->function, look_up(call->kind, call->form, call->large));
        atomic_store_explicit(&newer->known, true, memory_order_release);
    }
    return atomic_load_explicit(&newer->function, memory_order_relaxed);
}

/* --- int counts ------------------------------------------------------------------------------- */

/* A call with its counts as int. */
struct narrowed_call {
    struct twill_mpi_call call;
    int send_count, recv_count;
    int *send_counts, *send_displs, *recv_counts, *recv_displs;
    int *memory, *unused; /* of the arrays: the block, and what is left of it */
    int size;             /* elements of each array */
    bool fails;           /* a count does not fit, or no memory */
};

static int narrowed(struct narrowed_call *narrow, MPI_Count value)
{
    narrow->fails = narrow->fails || value > INT_MAX || value < INT_MIN;
    return (int)value;
}

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

/* Arrays count the ranks of the other side of an intercommunicator. */
static void narrow_open(struct narrowed_call *narrow, const struct twill_mpi_call *call)
{
    int inter = 0, rank = 0;
    *narrow = (struct narrowed_call){.call = *call};
    narrow->send_count = narrowed(narrow, call->send_count);
    narrow->recv_count = narrowed(narrow, call->recv_count);
    bool gatherv = call->kind == TWILL_MPI_Gatherv, scatterv = call->kind == TWILL_MPI_Scatterv;
    bool to_all = call->kind == TWILL_MPI_Alltoallv;
    bool received = gatherv || to_all || call->kind == TWILL_MPI_Allgatherv ||
                    call->kind == TWILL_MPI_Reduce_scatter;
    if (!received && !scatterv)
        return;
    if (call->comm == MPI_COMM_NULL || PMPI_Comm_test_inter(call->comm, &inter) != MPI_SUCCESS)
        return; /* the MPI refuses the communicator */
    PMPI_Comm_rank(call->comm, &rank);
    if (inter && call->kind != TWILL_MPI_Reduce_scatter)
        PMPI_Comm_remote_size(call->comm, &narrow->size);
    else
        PMPI_Comm_size(call->comm, &narrow->size);
    bool root = inter ? call->root == MPI_ROOT : call->root == rank;
    received = received && (!gatherv || root);
    bool sent = (scatterv && root) || (to_all && call->send != MPI_IN_PLACE);
    bool placed = call->kind != TWILL_MPI_Reduce_scatter;
    narrow->memory = narrow->unused = malloc(((size_t)narrow->size + 1) * 4 * sizeof(int));
    narrow->fails = narrow->fails || narrow->memory == NULL;
    narrow->send_counts = narrowed_array(narrow, call->send_counts, sent);
    narrow->send_displs = narrowed_array(narrow, call->send_displs, sent);
    narrow->recv_counts = narrowed_array(narrow, call->recv_counts, received);
    narrow->recv_displs = narrowed_array(narrow, call->recv_displs, received && placed);
}

/* Make the call of each kind in its form. Of the arguments each kind uses its own. */
#define RUN(name, lower)                                                                           \
    static int run_##lower(const struct narrowed_call *narrow, MPI_Request *request)               \
    {                                                                                              \
        const struct twill_mpi_call *call = &narrow->call;                                         \
        int (*persistent)(PARAMETERS_##name(int, int), MPI_Info, MPI_Request *) =                  \
            (int (*)(PARAMETERS_##name(int, int), MPI_Info, MPI_Request *))twill_mpi_newer(call);  \
        const bool scatterv = call->kind == TWILL_MPI_Scatterv;                                    \
        const void *sendbuf = call->send;                                                          \
        void *recvbuf = call->recv, *buffer = recvbuf;                                             \
        const int sendcount = narrow->send_count, recvcount = narrow->recv_count;                  \
        const int count = sendcount, root = call->root;                                            \
        const int *sendcounts = narrow->send_counts, *recvcounts = narrow->recv_counts;            \
        const int *sdispls = narrow->send_displs, *rdispls = narrow->recv_displs;                  \
        const int *displs = scatterv ? sdispls : rdispls;                                          \
        const MPI_Datatype sendtype = call->send_type, recvtype = call->recv_type;                 \
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

int twill_mpi_pass_older(const struct twill_mpi_call *call, MPI_Request *request)
{
    struct narrowed_call narrow = {.fails = !call->large};
    if (call->large)
        narrow_open(&narrow, call);
    narrow.call.large = false;
    if (call->form == TWILL_MPI_PERSISTENT)
        narrow.fails = narrow.fails || twill_mpi_newer(&narrow.call) == NULL;
    if (narrow.fails)
        twill_mpi_say("%s: the MPI below has no such call%s", twill_mpi_kind_names[call->kind],
                      call->large ? " with so large counts" : " that is persistent");
    int code = narrow.fails ? MPI_ERR_OTHER : run(&narrow, request);
    /* An MPI may read the arrays until a request has completed. Without memory for a request of
     * ours they stay. */
    if (call->form == TWILL_MPI_BLOCKING || code != MPI_SUCCESS)
        free(narrow.memory);
    else if (narrow.memory != NULL)
        (void)twill_mpi_request_wrap(request, call->form, narrow.memory);
    if (narrow.fails)
        PMPI_Comm_call_errhandler(call->comm, code);
    return code;
}

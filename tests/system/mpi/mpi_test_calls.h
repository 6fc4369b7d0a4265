/* SPDX-License-Identifier: Apache-2.0 */
/* The collective calls of MPI in all their forms, as a table. */
#ifndef TWILL_MPI_TEST_CALLS_H
#define TWILL_MPI_TEST_CALLS_H

#include "harness.h"

enum call {
    BARRIER,
    BCAST,
    REDUCE,
    ALLREDUCE,
    GATHER,
    GATHERV,
    SCATTER,
    SCATTERV,
    ALLGATHER,
    ALLGATHERV,
    ALLTOALL,
    ALLTOALLV,
    ALLTOALLW,
    REDUCE_SCATTER,
    REDUCE_SCATTER_BLOCK,
    SCAN,
    EXSCAN,
    CALLS
};

enum form {
    BLOCKING,
    NONBLOCKING,
    PERSISTENT_FORM,
    BLOCKING_C,
    NONBLOCKING_C,
    PERSISTENT_C,
    FORMS
};

/* Arguments of all calls; each uses those it has. displs of ALLTOALLW are bytes. */
struct arguments {
    MPI_Comm comm;
    int root;
    const void *send;
    void *recv;
    int send_count, recv_count;
    const int *send_counts, *send_displs, *recv_counts, *recv_displs;
    MPI_Datatype send_type, recv_type;
    const MPI_Datatype *send_types, *recv_types;
    MPI_Op op;
#if HAS_LARGE
    const MPI_Count *send_counts_c, *recv_counts_c; /* of the _c forms */
    const MPI_Aint *send_displs_c, *recv_displs_c;
#endif
};

struct call_entry {
    const char *name;
    int reduces, vectors, rooted;
    /* NULL: this MPI has no such form. Blocking forms ignore the request; persistent ones are not
     * started. */
    int (*form[FORMS])(const struct arguments *a, MPI_Request *request);
    int (*reference)(const struct arguments *a); /* by PMPI, blocking */
};
extern const struct call_entry calls[CALLS];
extern const char *const form_names[FORMS];

static inline int form_is_persistent(enum form form)
{
    return form == PERSISTENT_FORM || form == PERSISTENT_C;
}

static inline int form_is_blocking(enum form form)
{
    return form == BLOCKING || form == BLOCKING_C;
}

#endif

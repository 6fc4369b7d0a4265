/* SPDX-License-Identifier: Apache-2.0 */
/* Fortran calls on requests that would bypass this library. */
#include "lib/mpi/fortran/mpi_fortran.h"

#include <stdlib.h>

/* An array of requests with statuses, and its C form. */
struct request_array {
    int count;
    fint *request, *status; /* status NULL: ignored */
    MPI_Request *c_request;
    MPI_Status *c_status;
};

#if defined(OPEN_MPI)

#define STATUS_FINTS (sizeof(MPI_Status) / sizeof(fint))
extern fint mpi_fortran_status_ignore_, mpi_fortran_statuses_ignore_;

/* Most calls keep a status's MPI_ERROR, so it is converted both ways. */
static MPI_Status *status_open(const fint *status, MPI_Status *own)
{
    if (status == &mpi_fortran_status_ignore_)
        return MPI_STATUS_IGNORE;
    PMPI_Status_f2c(status, own);
    return own;
}

static void status_close(const MPI_Status *own, fint *status)
{
    if (status != &mpi_fortran_status_ignore_)
        PMPI_Status_c2f(own, status);
}

static bool many_open(struct request_array *many, fint count, fint *request, fint *status)
{
    size_t n = count > 0 ? (size_t)count : 0;
    *many = (struct request_array){.count = (int)n, .request = request, .status = status};
    many->c_request = malloc((n + 1) * sizeof(MPI_Request));
    for (size_t i = 0; many->c_request != NULL && i < n; i++)
        many->c_request[i] = MPI_Request_f2c(request[i]);
    if (status == NULL || status == &mpi_fortran_statuses_ignore_) {
        many->status = NULL;
        many->c_status = MPI_STATUSES_IGNORE;
        return many->c_request != NULL;
    }
    many->c_status = malloc((n + 1) * sizeof(MPI_Status));
    for (size_t i = 0; many->c_status != NULL && i < n; i++)
        PMPI_Status_f2c(status + i * STATUS_FINTS, &many->c_status[i]);
    return many->c_request != NULL && many->c_status != NULL;
}

/* Convert back and free. `statuses` of the statuses were written. */
static void many_close(struct request_array *many, int statuses)
{
    for (int i = 0; many->c_request != NULL && i < many->count; i++)
        many->request[i] = MPI_Request_c2f(many->c_request[i]);
    free(many->c_request);
    if (many->status == NULL)
        return;
    for (int i = 0; many->c_status != NULL && i < statuses; i++)
        PMPI_Status_c2f(&many->c_status[i], many->status + (size_t)i * STATUS_FINTS);
    free(many->c_status);
}

#else

/* Requests and statuses have C's form. A library of MPICH's ABI may have no mpi_f08. */
_Static_assert(sizeof(MPI_Request) == sizeof(fint), "a request is a number");
_Static_assert(sizeof(MPI_Status) == sizeof(MPIR_F08_MPI_STATUS_IGNORE_OBJ), "a status is C's");
#pragma weak MPIR_F08_MPI_STATUS_IGNORE_OBJ
#pragma weak MPIR_F08_MPI_STATUSES_IGNORE_OBJ

static MPI_Status *status_open(fint *status, MPI_Status *own)
{
    (void)own;
    return (void *)status == &MPIR_F08_MPI_STATUS_IGNORE_OBJ ? MPI_STATUS_IGNORE
                                                             : (MPI_Status *)status;
}

static void status_close(const MPI_Status *own, fint *status)
{
    (void)own, (void)status;
}

static bool many_open(struct request_array *many, fint count, fint *request, fint *status)
{
    *many = (struct request_array){.count = count, .request = request, .status = status};
    many->c_request = (MPI_Request *)request;
    many->c_status = (void *)status == &MPIR_F08_MPI_STATUSES_IGNORE_OBJ ? MPI_STATUSES_IGNORE
                                                                         : (MPI_Status *)status;
    return true;
}

static void many_close(struct request_array *many, int statuses)
{
    (void)many, (void)statuses;
}

#endif

/* Return a C index as Fortran counts. (The mpi_f08 of MPICH 4.0 does not convert.) */
static fint counted_from_one(int index)
{
    return index == MPI_UNDEFINED ? MPI_UNDEFINED : index + 1;
}

ENTRY(wait, WAIT, fint *request, fint *status, fint *code)
{
    MPI_Request one = MPI_Request_f2c(*request);
    MPI_Status own;
    int result = MPI_Wait(&one, status_open(status, &own));
    *request = MPI_Request_c2f(one);
    status_close(&own, status);
    store_code(code, result);
}

ENTRY(test, TEST, fint *request, fint *flag, fint *status, fint *code)
{
    MPI_Request one = MPI_Request_f2c(*request);
    MPI_Status own;
    int result = MPI_Test(&one, flag, status_open(status, &own));
    *request = MPI_Request_c2f(one);
    status_close(&own, status);
    store_code(code, result);
}

ENTRY(request_get_status, REQUEST_GET_STATUS, fint *request, fint *flag, fint *status, fint *code)
{
    MPI_Status own;
    int result = MPI_Request_get_status(MPI_Request_f2c(*request), flag, status_open(status, &own));
    status_close(&own, status);
    store_code(code, result);
}

ENTRY(request_free, REQUEST_FREE, fint *request, fint *code)
{
    MPI_Request one = MPI_Request_f2c(*request);
    int result = MPI_Request_free(&one);
    *request = MPI_Request_c2f(one);
    store_code(code, result);
}

ENTRY(cancel, CANCEL, fint *request, fint *code)
{
    MPI_Request one = MPI_Request_f2c(*request);
    store_code(code, MPI_Cancel(&one));
}

ENTRY(start, START, fint *request, fint *code)
{
    MPI_Request one = MPI_Request_f2c(*request);
    int result = MPI_Start(&one);
    *request = MPI_Request_c2f(one);
    store_code(code, result);
}

ENTRY(startall, STARTALL, fint *count, fint *requests, fint *code)
{
    struct request_array many;
    int result = many_open(&many, *count, requests, NULL) ? MPI_Startall(*count, many.c_request)
                                                          : MPI_ERR_NO_MEM;
    many_close(&many, 0);
    store_code(code, result);
}

ENTRY(waitall, WAITALL, fint *count, fint *requests, fint *statuses, fint *code)
{
    struct request_array many;
    int result = many_open(&many, *count, requests, statuses)
                     ? MPI_Waitall(*count, many.c_request, many.c_status)
                     : MPI_ERR_NO_MEM;
    many_close(&many, many.count);
    store_code(code, result);
}

ENTRY(testall, TESTALL, fint *count, fint *requests, fint *flag, fint *statuses, fint *code)
{
    struct request_array many;
    *flag = 0;
    int result = many_open(&many, *count, requests, statuses)
                     ? MPI_Testall(*count, many.c_request, flag, many.c_status)
                     : MPI_ERR_NO_MEM;
    many_close(&many, many.count);
    store_code(code, result);
}

ENTRY(waitany, WAITANY, fint *count, fint *requests, fint *index, fint *status, fint *code)
{
    struct request_array many;
    MPI_Status own;
    int which = MPI_UNDEFINED;
    int result = many_open(&many, *count, requests, NULL)
                     ? MPI_Waitany(*count, many.c_request, &which, status_open(status, &own))
                     : MPI_ERR_NO_MEM;
    *index = counted_from_one(which);
    status_close(&own, status);
    many_close(&many, 0);
    store_code(code, result);
}

ENTRY(testany, TESTANY, fint *count, fint *requests, fint *index, fint *flag, fint *status,
      fint *code)
{
    struct request_array many;
    MPI_Status own;
    int which = MPI_UNDEFINED;
    *flag = 0;
    int result = many_open(&many, *count, requests, NULL)
                     ? MPI_Testany(*count, many.c_request, &which, flag, status_open(status, &own))
                     : MPI_ERR_NO_MEM;
    *index = counted_from_one(which);
    status_close(&own, status);
    many_close(&many, 0);
    store_code(code, result);
}

/* MPI_Waitsome and MPI_Testsome; C's indices are converted. */
#define SOME(lower, UPPER, Name)                                                                   \
    ENTRY(lower, UPPER, fint *count, fint *requests, fint *done, fint *indices, fint *statuses,    \
          fint *code)                                                                              \
    {                                                                                              \
        struct request_array many;                                                                 \
        *done = 0;                                                                                 \
        int result = many_open(&many, *count, requests, statuses)                                  \
                         ? MPI_##Name(*count, many.c_request, done, indices, many.c_status)        \
                         : MPI_ERR_NO_MEM;                                                         \
        int n = *done == MPI_UNDEFINED ? 0 : *done;                                                \
        for (int i = 0; i < n; i++)                                                                \
            indices[i]++;                                                                          \
        many_close(&many, n);                                                                      \
        store_code(code, result);                                                                  \
    }
SOME(waitsome, WAITSOME, Waitsome)
SOME(testsome, TESTSOME, Testsome)

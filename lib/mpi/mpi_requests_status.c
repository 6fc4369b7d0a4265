/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of MPI 4.1 that look at several requests and complete none. Arrays without our requests
 * are passed on to MPIs that have these calls; otherwise each request is looked at in turn, where a
 * persistent request of the MPI that was not started counts as complete. */
#include "lib/mpi/mpi_newer.h"
#include "lib/mpi/mpi_requests.h"

TWILL_EXPORTED int MPI_Request_get_status_all(int count, const MPI_Request requests[], int *flag,
                                              MPI_Status statuses[]);
TWILL_EXPORTED int MPI_Request_get_status_any(int count, const MPI_Request requests[], int *index,
                                              int *flag, MPI_Status *status);
TWILL_EXPORTED int MPI_Request_get_status_some(int incount, const MPI_Request requests[],
                                               int *outcount, int indices[], MPI_Status statuses[]);

/* Return the MPI's function if the array is to be passed on, else NULL. */
static twill_mpi_function *passed_to(int count, const MPI_Request *requests, const char *name)
{
    for (int i = 0; requests != NULL && i < count; i++)
        if (twill_mpi_request_is_ours(requests[i]))
            return NULL;
    return twill_mpi_below(name);
}

/* Return whether a request takes part: no null handle, and no persistent one of ours that was not
 * started. */
static bool is_active(MPI_Request request)
{
    if (request == MPI_REQUEST_NULL)
        return false;
    if (!twill_mpi_request_is_ours(request))
        return true;
    const struct twill_mpi_request *mine = twill_mpi_request_find(request);
    return mine == NULL || twill_mpi_request_state(mine) != TWILL_MPI_REQUEST_IDLE;
}

static MPI_Status *status_of(MPI_Status *statuses, int i)
{
    return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[i];
}

int MPI_Request_get_status_all(int count, const MPI_Request requests[], int *flag,
                               MPI_Status statuses[])
{
    int (*passed)(int, const MPI_Request *, int *, MPI_Status *) =
        (int (*)(int, const MPI_Request *, int *, MPI_Status *))passed_to(
            count, requests, "PMPI_Request_get_status_all");
    if (passed != NULL)
        return passed(count, requests, flag, statuses);
    int code = MPI_SUCCESS, one = 1;
    *flag = 1;
    for (int i = 0; i < count && code == MPI_SUCCESS; i++) {
        code = MPI_Request_get_status(requests[i], &one, status_of(statuses, i));
        *flag = *flag && one;
    }
    return code;
}

int MPI_Request_get_status_any(int count, const MPI_Request requests[], int *index, int *flag,
                               MPI_Status *status)
{
    int (*passed)(int, const MPI_Request *, int *, int *, MPI_Status *) =
        (int (*)(int, const MPI_Request *, int *, int *, MPI_Status *))passed_to(
            count, requests, "PMPI_Request_get_status_any");
    if (passed != NULL)
        return passed(count, requests, index, flag, status);
    bool active = false;
    *index = MPI_UNDEFINED;
    for (int i = 0; i < count; i++) {
        if (!is_active(requests[i]))
            continue;
        active = true;
        int code = MPI_Request_get_status(requests[i], flag, status);
        if (code == MPI_SUCCESS && *flag)
            *index = i;
        if (code != MPI_SUCCESS || *flag)
            return code;
    }
    *flag = !active;
    if (!active)
        twill_mpi_status_empty(status);
    if (!active && status != MPI_STATUS_IGNORE)
        status->MPI_ERROR = MPI_SUCCESS; /* part of MPI's empty status */
    return MPI_SUCCESS;
}

int MPI_Request_get_status_some(int incount, const MPI_Request requests[], int *outcount,
                                int indices[], MPI_Status statuses[])
{
    int (*passed)(int, const MPI_Request *, int *, int *, MPI_Status *) =
        (int (*)(int, const MPI_Request *, int *, int *, MPI_Status *))passed_to(
            incount, requests, "PMPI_Request_get_status_some");
    if (passed != NULL)
        return passed(incount, requests, outcount, indices, statuses);
    bool active = false;
    *outcount = 0;
    for (int i = 0; i < incount; i++) {
        int flag = 0;
        if (!is_active(requests[i]))
            continue;
        active = true;
        int code = MPI_Request_get_status(requests[i], &flag, status_of(statuses, *outcount));
        if (code != MPI_SUCCESS)
            return code;
        if (flag)
            indices[(*outcount)++] = i;
    }
    if (!active)
        *outcount = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

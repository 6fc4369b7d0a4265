/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points that take one request, or start several. Others' requests are passed on after
 * one comparison. */
#include "lib/mpi/mpi_requests.h"

void twill_mpi_status_empty(MPI_Status *status)
{
    MPI_Request none = MPI_REQUEST_NULL;
    int flag;
    if (status != MPI_STATUS_IGNORE)
        (void)PMPI_Test(&none, &flag, status);
}

static bool handle_is_ours(const MPI_Request *request)
{
    return request != NULL && twill_mpi_request_is_ours(*request);
}

/* Complete a request that is not under way. */
static int collect_handle(struct twill_mpi_request *mine, MPI_Request *request)
{
    struct twill_mpi_fault fault = TWILL_MPI_NO_FAULT;
    int code = twill_mpi_request_collect(mine, request, &fault);
    twill_mpi_raise(&fault);
    return code;
}

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    if (!handle_is_ours(request))
        return PMPI_Wait(request, status);
    struct twill_mpi_request *mine = twill_mpi_request_find(*request);
    if (mine == NULL)
        return twill_mpi_request_refuse(NULL);
    twill_mpi_request_wait(mine);
    twill_mpi_status_empty(status);
    return collect_handle(mine, request);
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    if (!handle_is_ours(request) || flag == NULL)
        return PMPI_Test(request, flag, status);
    struct twill_mpi_request *mine = twill_mpi_request_find(*request);
    if (mine == NULL)
        return twill_mpi_request_refuse(NULL);
    *flag = twill_mpi_request_poll(mine);
    if (!*flag) {
        twill_mpi_progress();
        return MPI_SUCCESS;
    }
    twill_mpi_status_empty(status);
    return collect_handle(mine, request);
}

int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
    if (!handle_is_ours(&request) || flag == NULL)
        return PMPI_Request_get_status(request, flag, status);
    struct twill_mpi_request *mine = twill_mpi_request_find(request);
    if (mine == NULL)
        return twill_mpi_request_refuse(NULL);
    *flag = twill_mpi_request_poll(mine);
    if (*flag)
        twill_mpi_status_empty(status);
    else
        twill_mpi_progress();
    return MPI_SUCCESS;
}

/* Return whether the MPI refuses to free such a request while it is under way. MPI forbids it for
 * nonblocking collectives. Persistent ones Open MPI refuses, too, and MPICH frees once complete. */
static bool free_is_refused(enum twill_mpi_form form)
{
#if defined(OPEN_MPI)
    return form != TWILL_MPI_BLOCKING;
#else
    return form == TWILL_MPI_NONBLOCKING;
#endif
}

int MPI_Request_free(MPI_Request *request)
{
    if (!handle_is_ours(request))
        return PMPI_Request_free(request);
    struct twill_mpi_request *mine = twill_mpi_request_find(*request);
    if (mine == NULL || (free_is_refused(mine->bound.form) && !twill_mpi_request_poll(mine)))
        return twill_mpi_request_refuse(mine);
    twill_mpi_request_free(mine);
    *request = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
}

int MPI_Cancel(MPI_Request *request)
{
    return handle_is_ours(request) ? twill_mpi_request_refuse(twill_mpi_request_find(*request))
                                   : PMPI_Cancel(request);
}

static int start_handle(MPI_Request *request)
{
    struct twill_mpi_request *mine = twill_mpi_request_find(*request);
    return mine != NULL ? twill_mpi_request_start(mine) : twill_mpi_request_refuse(NULL);
}

int MPI_Start(MPI_Request *request)
{
    if (handle_is_ours(request))
        return start_handle(request);
    twill_mpi_started();
    return PMPI_Start(request);
}

/* In array order, which matters for collectives. */
int MPI_Startall(int count, MPI_Request requests[])
{
    int code = MPI_SUCCESS, first = 0;
    for (int i = 0; requests != NULL && i < count && code == MPI_SUCCESS; i++) {
        if (!twill_mpi_request_is_ours(requests[i]))
            continue;
        if (i > first) {
            twill_mpi_started();
            code = PMPI_Startall(i - first, requests + first);
        }
        if (code == MPI_SUCCESS)
            code = start_handle(&requests[i]);
        first = i + 1;
    }
    if (code != MPI_SUCCESS || (first > 0 && first == count))
        return code;
    twill_mpi_started();
    return PMPI_Startall(count - first, requests == NULL ? NULL : requests + first);
}

/* --- requests as integers --------------------------------------------------------------------- */

/* Integers of our requests: beyond any index of Open MPI's tables; of MPICH's and the ABI's the
 * handles themselves, see TWILL_MPI_REQUESTS_BASE. MPICH's handles are integers. */
#undef MPI_Request_c2f
#undef MPI_Request_f2c
#if defined(OPEN_MPI)
#define INTEGER_BASE        0x40000000
#define below_c2f(value)    PMPI_Request_c2f(value)
#define below_f2c(value)    PMPI_Request_f2c(value)
#define integer_of(request) (INTEGER_BASE + (MPI_Fint)twill_mpi_request_number(request))
#define request_of(integer)                                                                        \
    ((integer) > INTEGER_BASE && (integer) < INTEGER_BASE + (1 << 26)                              \
         ? twill_mpi_request_numbered((unsigned)((integer)-INTEGER_BASE))                          \
         : MPI_REQUEST_NULL)
#else
#define integer_of(request) ((MPI_Fint)(uintptr_t)(request))
#define request_of(integer) ((MPI_Request)(uintptr_t)(integer))
#if defined(MPI_ABI_VERSION)
#define below_c2f(value) PMPI_Request_toint(value)
#define below_f2c(value) PMPI_Request_fromint(value)
#else
#define below_c2f(value) ((MPI_Fint)(value))
#define below_f2c(value) ((MPI_Request)(value))
#endif
#endif

TWILL_EXPORTED MPI_Fint MPI_Request_c2f(MPI_Request request);
TWILL_EXPORTED MPI_Request MPI_Request_f2c(MPI_Fint request);
TWILL_EXPORTED int MPI_Request_toint(MPI_Request request);
TWILL_EXPORTED MPI_Request MPI_Request_fromint(int request);

MPI_Fint MPI_Request_c2f(MPI_Request request)
{
    return twill_mpi_request_is_ours(request) ? integer_of(request) : below_c2f(request);
}

MPI_Request MPI_Request_f2c(MPI_Fint request)
{
    const MPI_Request found = request_of(request);
    return twill_mpi_request_is_ours(found) ? found : below_f2c(request);
}

int MPI_Request_toint(MPI_Request request)
{
    return MPI_Request_c2f(request);
}

MPI_Request MPI_Request_fromint(int request)
{
    return MPI_Request_f2c(request);
}

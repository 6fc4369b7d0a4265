/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points that take requests. A request of the MPI is passed on after one comparison, and
 * an array without our requests after one scan. From other arrays our requests are taken out, in
 * the program's memory, and MPI_REQUEST_NULL is put in their places, so that the MPI understands
 * the array. They are put back before the program sees the array again. No copy is made. */
#include "lib/base/times.h"
#include "lib/mpi/mpi_requests.h"

/* Set the status of an operation without a message, except MPI_ERROR. Ignores MPI_STATUS_IGNORE. */
static void empty_status(MPI_Status *status)
{
    MPI_Request none = MPI_REQUEST_NULL;
    int flag;
    if (status != MPI_STATUS_IGNORE)
        (void)PMPI_Test(&none, &flag, status);
}

/* Return the address of statuses[i], or MPI_STATUS_IGNORE if statuses are ignored. */
static MPI_Status *status_at(MPI_Status *statuses, int i)
{
    return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[i];
}

/* Return whether `request` is not NULL and its handle is one of twill's, not the MPI's. */
static bool handle_is_ours(const MPI_Request *request)
{
    return request != NULL && twill_mpi_request_is_ours(*request);
}

/* Finish a complete request of twill's and return MPI's code. A nonblocking one is released, and
 * *request becomes MPI_REQUEST_NULL. A persistent one keeps its handle and can be started again. If
 * the call failed, calls the error handler before it returns. */
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
    empty_status(status);
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
    empty_status(status);
    return collect_handle(mine, request);
}

/* Set *flag to whether a request is not under way. One of twill's is not finished by this, and its
 * error is not returned. */
int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
    if (!handle_is_ours(&request) || flag == NULL)
        return PMPI_Request_get_status(request, flag, status);
    struct twill_mpi_request *mine = twill_mpi_request_find(request);
    if (mine == NULL)
        return twill_mpi_request_refuse(NULL);
    *flag = twill_mpi_request_poll(mine);
    if (*flag)
        empty_status(status);
    else
        twill_mpi_progress();
    return MPI_SUCCESS;
}

/* Return whether the MPI refuses to free a request of this form while it is under way. MPI forbids
 * that for nonblocking ones. Open MPI also refuses persistent ones, unlike MPICH. */
static bool free_is_refused(enum twill_mpi_form form)
{
#if defined(OPEN_MPI)
    return form != TWILL_MPI_BLOCKING;
#else
    return form == TWILL_MPI_NONBLOCKING;
#endif
}

/* Free a request, at once or when it is complete. Refuses one that the MPI would not free. */
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

/* Cancel a request of the MPI. Refuse to cancel one of ours, with MPI_ERR_REQUEST. */
int MPI_Cancel(MPI_Request *request)
{
    return handle_is_ours(request) ? twill_mpi_request_refuse(twill_mpi_request_find(*request))
                                   : PMPI_Cancel(request);
}

/* Start one of our persistent requests. Returns MPI's code, MPI_ERR_REQUEST if it cannot be. */
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

/* Start the requests in array order, which matters for collectives. Stops at the first error and
 * returns its code. The requests behind it are not started. */
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

/* --- several requests ------------------------------------------------------------------------- */
/* An array of requests from which twill's have been taken out, with null handles in their places,
 * so that the MPI can use it. It is on the stack of the entry point that got the array. */
struct taken {
    MPI_Request *requests;           /* the program's array */
    struct twill_mpi_request *first; /* list of twill's requests that are out, in array order */
    int theirs;                      /* number of the MPI's requests, without null handles */
    struct twill_mpi_fault fault;    /* first error of twill's requests */
};

/* Return whether an array, which may be NULL, has a request of twill's. */
static bool has_ours(int count, const MPI_Request *requests)
{
    for (int i = 0; requests != NULL && i < count; i++)
        if (twill_mpi_request_is_ours(requests[i]))
            return true;
    return false;
}

/* Put twill's requests back into the program's array of requests. Only then call the error handler,
 * if a request of twill's has failed. */
static void put_back(struct taken *taken)
{
    for (struct twill_mpi_request *at = taken->first; at != NULL; at = at->next) {
        taken->requests[at->index] = twill_mpi_request_handle(at);
        at->index = -1;
    }
    twill_mpi_raise(&taken->fault);
}

/* Move our requests from the array to *taken. Returns MPI's code. For an invalid or repeated handle
 * it is an error, and the array is restored. */
static int take_out_requests(int count, MPI_Request *requests, struct taken *taken)
{
    struct twill_mpi_request **end = &taken->first;
    *taken = (struct taken){.requests = requests, .fault = TWILL_MPI_NO_FAULT};
    twill_mpi_requests_sweep();
    for (int i = 0; i < count; i++) {
        if (!twill_mpi_request_is_ours(requests[i])) {
            taken->theirs += requests[i] != MPI_REQUEST_NULL;
            continue;
        }
        struct twill_mpi_request *mine = twill_mpi_request_find(requests[i]);
        if (mine == NULL || mine->index >= 0) {
            put_back(taken);
            return twill_mpi_request_refuse(mine);
        }
        requests[i] = MPI_REQUEST_NULL;
        mine->index = i;
        mine->next = NULL;
        *end = mine;
        end = &mine->next;
    }
    return MPI_SUCCESS;
}

/* Finish *link, a request of twill's that is not under way, and remove it from the list. Write its
 * handle to its place in the program's array, or MPI_REQUEST_NULL if it is released. Returns MPI's
 * code, and keeps an error in taken->fault. */
static int collect_taken(struct taken *taken, struct twill_mpi_request **link)
{
    struct twill_mpi_request *mine = *link;
    int index = mine->index;
    *link = mine->next;
    mine->index = -1;
    taken->requests[index] = twill_mpi_request_handle(mine);
    return twill_mpi_request_collect(mine, &taken->requests[index], &taken->fault);
}

/* Set the error code of a status that is not ignored. */
static void set_error(MPI_Status *status, int code)
{
    if (status != MPI_STATUS_IGNORE)
        status->MPI_ERROR = code;
}

/* --- all -------------------------------------------------------------------------------------- */
/* Return whether none of our requests in `taken` is under way. Stops at the first that is. */
static bool poll_all(const struct taken *taken)
{
    for (struct twill_mpi_request *at = taken->first; at != NULL; at = at->next)
        if (!twill_mpi_request_poll(at))
            return false;
    return true;
}

/* Return whether none of ours in `taken` is under way, after progress on every communicator. Thus
 * deadlines, which start when a communicator stops moving, do not add up. */
static bool poll_each(const struct taken *taken)
{
    const uint64_t pass = twill_mpi_request_next_pass();
    bool all = true;
    for (struct twill_mpi_request *at = taken->first; at != NULL; at = at->next)
        all = twill_mpi_request_poll_pass(at, pass) && all;
    return all;
}

/* Return whether twill's requests in `taken` that are under way belong to more than one
 * communicator. */
static bool on_several(const struct taken *taken)
{
    const struct twill_mpi_comm *comm = NULL;
    for (struct twill_mpi_request *at = taken->first; at != NULL; at = at->next) {
        if (twill_mpi_request_state(at) != TWILL_MPI_REQUEST_ACTIVE)
            continue;
        if (comm != NULL && comm != at->bound.comm)
            return true;
        comm = at->bound.comm;
    }
    return false;
}

/* Wait until none of our requests in `taken` is under way, and advance the MPI's. */
static void wait_taken(const struct taken *taken)
{
    struct twill_mpi_backoff backoff = {0};
    if (on_several(taken)) {
        uint64_t busy_until = twill_now() + TWILL_MPI_BUSY_NS;
        while (!poll_each(taken)) {
            twill_mpi_backoff(&backoff);
            if (twill_now() < busy_until)
                backoff.started = 0; /* do not sleep yet */
        }
    }
    while (taken->theirs > 0 && !poll_all(taken))
        twill_mpi_backoff(&backoff);
    for (struct twill_mpi_request *at = taken->first; at != NULL; at = at->next)
        twill_mpi_request_wait(at);
}

/* Return whether any of our requests is complete and has failed. */
static bool any_failed(const struct taken *taken)
{
    for (struct twill_mpi_request *at = taken->first; at != NULL; at = at->next)
        if (twill_mpi_request_state(at) == TWILL_MPI_REQUEST_COMPLETE && at->status != TWILL_OK)
            return true;
    return false;
}

/* Test each of the MPI's requests once, because one of twill's in the array failed. Sets MPI_ERROR
 * in each status to MPI_SUCCESS, the error, or MPI_ERR_PENDING if it is under way. Returns
 * MPI_ERR_IN_STATUS, which makes the program look there. */
static int test_each(int count, MPI_Request *requests, MPI_Status *statuses)
{
    for (int i = 0; i < count; i++) {
        int flag = 0, code = PMPI_Test(&requests[i], &flag, status_at(statuses, i));
        set_error(status_at(statuses, i), code != MPI_SUCCESS ? code
                                          : flag              ? MPI_SUCCESS
                                                              : MPI_ERR_PENDING);
    }
    return MPI_ERR_IN_STATUS;
}

/* Set `count` statuses, unless ignored, to those of operations without a message. */
static void empty_all(int count, MPI_Status *statuses)
{
    for (int i = 0; statuses != MPI_STATUSES_IGNORE && i < count; i++)
        empty_status(&statuses[i]);
}

/* Complete all of ours and restore the array. Returns MPI_ERR_IN_STATUS if one of them failed,
 * otherwise `code`, which is that of the MPI for its own requests. */
static int collect_all(struct taken *taken, MPI_Status *statuses, int code)
{
    while (taken->first != NULL) {
        int index = taken->first->index, mine = collect_taken(taken, &taken->first);
        if (mine != MPI_SUCCESS)
            code = MPI_ERR_IN_STATUS;
        if (code == MPI_ERR_IN_STATUS)
            set_error(status_at(statuses, index), mine);
    }
    put_back(taken);
    return code;
}

/* Wait for all requests, twill's first. If one of twill's has failed, test the MPI's only once, and
 * return MPI_ERR_IN_STATUS with an error code in each status. */
int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[])
{
    struct taken taken;
    if (!has_ours(count, requests))
        return PMPI_Waitall(count, requests, statuses);
    int code = take_out_requests(count, requests, &taken);
    if (code != MPI_SUCCESS)
        return code;
    wait_taken(&taken);
    if (any_failed(&taken))
        code = test_each(count, requests, statuses);
    else if (taken.theirs > 0)
        code = PMPI_Waitall(count, requests, statuses);
    else
        empty_all(count, statuses);
    return collect_all(&taken, statuses, code);
}

/* Set *flag to whether no request is under way, and finish all if so. If one of twill's has failed,
 * return MPI_ERR_IN_STATUS, as MPI_Waitall() does. */
int MPI_Testall(int count, MPI_Request requests[], int *flag, MPI_Status statuses[])
{
    struct taken taken;
    if (flag == NULL || !has_ours(count, requests))
        return PMPI_Testall(count, requests, flag, statuses);
    int code = take_out_requests(count, requests, &taken);
    if (code != MPI_SUCCESS)
        return code;
    *flag = poll_all(&taken);
    if (!*flag)
        twill_mpi_progress();
    else if (any_failed(&taken))
        code = test_each(count, requests, statuses);
    else if (taken.theirs > 0)
        code = PMPI_Testall(count, requests, flag, statuses);
    else
        empty_all(count, statuses);
    if (*flag || code == MPI_ERR_IN_STATUS)
        return collect_all(&taken, statuses, code);
    put_back(&taken);
    return code;
}

/* --- any -------------------------------------------------------------------------------------- */
/* Complete the first of our requests that can be, or else one of the MPI's. Returns true if one is
 * complete or the MPI fails, or if none is active and *index is MPI_UNDEFINED. The array is then
 * restored, and *code must be returned. */
static bool try_any(int count, struct taken *taken, int *index, MPI_Status *status, int *code)
{
    const uint64_t pass = twill_mpi_request_next_pass();
    bool active = false;
    int flag = 1;
    *index = MPI_UNDEFINED;
    for (struct twill_mpi_request **at = &taken->first; *at != NULL; at = &(*at)->next) {
        if (twill_mpi_request_state(*at) == TWILL_MPI_REQUEST_IDLE)
            continue;
        active = true;
        if (!twill_mpi_request_poll_pass(*at, pass))
            continue;
        *index = (*at)->index;
        empty_status(status);
        *code = collect_taken(taken, at);
        put_back(taken);
        return true;
    }
    *code = MPI_SUCCESS;
    if (taken->theirs > 0)
        *code = PMPI_Testany(count, taken->requests, index, &flag, status);
    if (*code == MPI_SUCCESS && (!flag || *index == MPI_UNDEFINED)) {
        if (active || !flag)
            return false;
        empty_status(status); /* MPICH leaves it unchanged */
    }
    put_back(taken);
    return true;
}

/* If only one request of the array is active, and it is twill's, wait until it is complete. This is
 * quicker than polling. The caller then finds it complete. */
static void wait_for_only(const struct taken *taken)
{
    struct twill_mpi_request *only = NULL;
    for (struct twill_mpi_request *at = taken->first; at != NULL; at = at->next) {
        if (twill_mpi_request_state(at) == TWILL_MPI_REQUEST_IDLE)
            continue;
        if (only != NULL)
            return;
        only = at;
    }
    if (only != NULL && taken->theirs == 0)
        twill_mpi_request_wait(only);
}

/* Wait until one request is complete and finish it. twill's come before the MPI's. */
int MPI_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status)
{
    struct twill_mpi_backoff backoff = {0};
    struct taken taken;
    if (index == NULL || !has_ours(count, requests))
        return PMPI_Waitany(count, requests, index, status);
    int code = take_out_requests(count, requests, &taken);
    if (code != MPI_SUCCESS)
        return code;
    wait_for_only(&taken);
    while (!try_any(count, &taken, index, status, &code))
        twill_mpi_backoff(&backoff);
    return code;
}

int MPI_Testany(int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status)
{
    struct taken taken;
    if (index == NULL || flag == NULL || !has_ours(count, requests))
        return PMPI_Testany(count, requests, index, flag, status);
    int code = take_out_requests(count, requests, &taken);
    if (code != MPI_SUCCESS)
        return code;
    *flag = try_any(count, &taken, index, status, &code);
    if (*flag)
        return code;
    *index = MPI_UNDEFINED;
    put_back(&taken);
    twill_mpi_progress();
    return MPI_SUCCESS;
}

/* --- some ------------------------------------------------------------------------------------- */
/* Complete those of ours that can be, and append them to the *done ones of the MPI. If one failed,
 * *code becomes MPI_ERR_IN_STATUS. Returns whether any of ours was active. */
static bool collect_some(struct taken *taken, int *done, int *indices, MPI_Status *statuses,
                         int *code)
{
    const uint64_t pass = twill_mpi_request_next_pass();
    const int theirs = *done;
    bool active = false;
    for (struct twill_mpi_request **at = &taken->first; *at != NULL;) {
        bool idle = twill_mpi_request_state(*at) == TWILL_MPI_REQUEST_IDLE;
        active = active || !idle;
        if (idle || !twill_mpi_request_poll_pass(*at, pass)) {
            at = &(*at)->next;
            continue;
        }
        indices[*done] = (*at)->index;
        empty_status(status_at(statuses, *done));
        int mine = collect_taken(taken, at);
        set_error(status_at(statuses, *done), mine);
        for (int i = 0; mine != MPI_SUCCESS && *code == MPI_SUCCESS && i < theirs; i++)
            set_error(status_at(statuses, i), MPI_SUCCESS);
        *code = mine != MPI_SUCCESS ? MPI_ERR_IN_STATUS : *code;
        ++*done;
    }
    return active;
}

/* Complete those requests of the array that can be without waiting. Sets *done to their number, and
 * `indices` and `statuses`. If none is active, *done is MPI_UNDEFINED. Returns false if no active
 * one can yet, otherwise true, also if the MPI fails. *code is MPI's code. */
static bool try_some(int count, struct taken *taken, int *done, int *indices, MPI_Status *statuses,
                     int *code)
{
    *code = MPI_SUCCESS;
    *done = MPI_UNDEFINED;
    if (taken->theirs > 0)
        *code = PMPI_Testsome(count, taken->requests, done, indices, statuses);
    if (*code != MPI_SUCCESS && *code != MPI_ERR_IN_STATUS)
        return true;
    bool active = *done != MPI_UNDEFINED;
    *done = active ? *done : 0;
    active = collect_some(taken, done, indices, statuses, code) || active;
    if (!active)
        *done = MPI_UNDEFINED;
    return *done != 0;
}

int MPI_Waitsome(int incount, MPI_Request requests[], int *outcount, int indices[],
                 MPI_Status statuses[])
{
    struct twill_mpi_backoff backoff = {0};
    struct taken taken;
    if (outcount == NULL || !has_ours(incount, requests))
        return PMPI_Waitsome(incount, requests, outcount, indices, statuses);
    int code = take_out_requests(incount, requests, &taken);
    if (code != MPI_SUCCESS)
        return code;
    wait_for_only(&taken);
    while (!try_some(incount, &taken, outcount, indices, statuses, &code))
        twill_mpi_backoff(&backoff);
    put_back(&taken);
    return code;
}

int MPI_Testsome(int incount, MPI_Request requests[], int *outcount, int indices[],
                 MPI_Status statuses[])
{
    struct taken taken;
    if (outcount == NULL || !has_ours(incount, requests))
        return PMPI_Testsome(incount, requests, outcount, indices, statuses);
    int code = take_out_requests(incount, requests, &taken);
    if (code != MPI_SUCCESS)
        return code;
    if (!try_some(incount, &taken, outcount, indices, statuses, &code))
        twill_mpi_progress();
    put_back(&taken);
    return code;
}

/* --- several requests that are only looked at (MPI 4.1) --------------------------------------- */
/* Arrays without our requests are passed on if the MPI has these calls. Otherwise each request is
 * looked at. A persistent request of the MPI that was not started then counts as complete. */

TWILL_EXPORTED int MPI_Request_get_status_all(int count, const MPI_Request requests[], int *flag,
                                              MPI_Status statuses[]);
TWILL_EXPORTED int MPI_Request_get_status_any(int count, const MPI_Request requests[], int *index,
                                              int *flag, MPI_Status *status);
TWILL_EXPORTED int MPI_Request_get_status_some(int incount, const MPI_Request requests[],
                                               int *outcount, int indices[], MPI_Status statuses[]);

/* Return the MPI's function `name`, or NULL if one of the requests is ours or the MPI lacks it. */
static twill_mpi_function *passed_to(int count, const MPI_Request *requests, const char *name)
{
    for (int i = 0; requests != NULL && i < count; i++)
        if (twill_mpi_request_is_ours(requests[i]))
            return NULL;
    return twill_mpi_below(name);
}

/* Return whether a request is active. Null handles and our unstarted persistent ones are not. All
 * other requests of the MPI count as active. */
static bool is_active(MPI_Request request)
{
    if (request == MPI_REQUEST_NULL)
        return false;
    if (!twill_mpi_request_is_ours(request))
        return true;
    const struct twill_mpi_request *mine = twill_mpi_request_find(request);
    return mine == NULL || twill_mpi_request_state(mine) != TWILL_MPI_REQUEST_IDLE;
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
        code = MPI_Request_get_status(requests[i], &one, status_at(statuses, i));
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
        empty_status(status);
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
        int code = MPI_Request_get_status(requests[i], &flag, status_at(statuses, *outcount));
        if (code != MPI_SUCCESS)
            return code;
        if (flag)
            indices[(*outcount)++] = i;
    }
    if (!active)
        *outcount = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

/* --- requests as integers --------------------------------------------------------------------- */
/* Our requests as integers. For Open MPI they lie beyond any index of its tables. For MPICH and the
 * ABI they are the handles themselves (TWILL_MPI_REQUESTS_BASE). MPICH's handles are integers. */
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

/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the calls that twill runs: their handles, and their lives from start to collection.
 */
#include "lib/mpi/mpi_requests.h"

#include <stdlib.h>

/* --- the pool -------------------------------------------------------------------------------- */

/* Each chunk is twice as large as the one before, so few of them hold all numbers there are; a
 * request never moves. */
#define FIRST_SLAB     64u
#define FIRST_SLAB_LOG 6u

static struct twill_mpi_request *request_of(uint32_t number)
{
    uint32_t at = number - 1 + FIRST_SLAB;
    uint32_t slab = 31u - (uint32_t)__builtin_clz(at) - FIRST_SLAB_LOG;
    return &twill_mpi.requests.slab[slab][at - (FIRST_SLAB << slab)];
}

struct twill_mpi_request *twill_mpi_request_find(MPI_Request handle)
{
    uint32_t number = (uint32_t)twill_mpi_request_number(handle);
    if (!twill_mpi_request_is_ours(handle) || number > atomic_load(&twill_mpi.requests.made))
        return NULL;
    struct twill_mpi_request *request = request_of(number);
    return twill_mpi_request_state(request) != TWILL_MPI_REQUEST_FREE ? request : NULL;
}

static void lock_pool(void)
{
    if (twill_mpi.multiple)
        pthread_mutex_lock(&twill_mpi.requests.lock);
}

static void unlock_pool(void)
{
    if (twill_mpi.multiple)
        pthread_mutex_unlock(&twill_mpi.requests.lock);
}

static void push_request(struct twill_mpi_request *_Atomic *list, struct twill_mpi_request *request)
{
    request->next = atomic_load_explicit(list, memory_order_relaxed);
    atomic_store_explicit(list, request, memory_order_relaxed);
}

/* The pool is locked, and empty. */
static void grow(void)
{
    struct twill_mpi_requests *pool = &twill_mpi.requests;
    uint32_t made = atomic_load(&pool->made), more = FIRST_SLAB << pool->slabs;
    if (pool->slabs == TWILL_MPI_REQUEST_SLABS)
        return;
    struct twill_mpi_request *slab = calloc(more, sizeof(*slab));
    if (slab == NULL)
        return;
    pool->slab[pool->slabs++] = slab;
    atomic_store(&pool->made, made + more);
    for (uint32_t i = more; i-- > 0;) {
        slab[i].number = made + 1 + i;
        slab[i].index = -1;
        push_request(&pool->spare, &slab[i]);
    }
}

static struct twill_mpi_request *alloc_request(void)
{
    lock_pool();
    if (twill_mpi.requests.spare == NULL)
        grow();
    struct twill_mpi_request *request = twill_mpi.requests.spare;
    if (request != NULL)
        twill_mpi.requests.spare = request->next;
    unlock_pool();
    return request;
}

static void release_request(struct twill_mpi_request *request)
{
    request->request = NULL;
    atomic_store_explicit(&request->state, TWILL_MPI_REQUEST_FREE, memory_order_relaxed);
    lock_pool();
    push_request(&twill_mpi.requests.spare, request);
    unlock_pool();
}

/* --- under way ------------------------------------------------------------------------------- */

static void count_requests(struct twill_mpi_comm *comm, int more)
{
    if (twill_mpi.multiple)
        atomic_fetch_add(&comm->requests, (unsigned)more);
    else
        atomic_store_explicit(&comm->requests,
                              atomic_load_explicit(&comm->requests, memory_order_relaxed) +
                                  (unsigned)more,
                              memory_order_relaxed);
}

/* The communicator is locked, here and below. */
static void activate_request(struct twill_mpi_request *request)
{
    struct twill_mpi_comm *comm = request->bound.comm;
    request->before = comm->newest;
    request->after = NULL;
    if (comm->newest != NULL)
        comm->newest->after = request;
    else
        comm->active = request;
    comm->newest = request;
    atomic_store_explicit(&request->state, TWILL_MPI_REQUEST_ACTIVE, memory_order_release);
}

static void complete_request(struct twill_mpi_request *request, twill_status status)
{
    struct twill_mpi_comm *comm = request->bound.comm;
    if (request->before != NULL)
        request->before->after = request->after;
    else
        comm->active = request->after;
    if (request->after != NULL)
        request->after->before = request->before;
    else
        comm->newest = request->before;
    if (comm->turn == request)
        comm->turn = request->after;
    request->status = status == TWILL_OK ? twill_mpi_unpack(&request->bound) : status;
    atomic_store_explicit(&request->state, TWILL_MPI_REQUEST_COMPLETE, memory_order_release);
}

static twill_request **under_way(struct twill_mpi_request *request)
{
    return request->instead != NULL ? &request->instead : &request->request;
}

static bool test(struct twill_mpi_request *request)
{
    int done = 0;
    twill_status status = twill_test(under_way(request), &done);
    if (done)
        complete_request(request, status);
    return done;
}

/* Never waits for another thread: who has the communicator now is moving it along. */
bool twill_mpi_request_poll(struct twill_mpi_request *request)
{
    if (twill_mpi_request_state(request) != TWILL_MPI_REQUEST_ACTIVE)
        return true;
    struct twill_mpi_comm *comm = request->bound.comm;
    if (!twill_mpi_try_lock(comm))
        return false;
    if (twill_mpi_request_state(request) == TWILL_MPI_REQUEST_ACTIVE)
        test(request);
    twill_mpi_unlock(comm);
    return twill_mpi_request_state(request) != TWILL_MPI_REQUEST_ACTIVE;
}

/* Each test of what is not complete moves all of the communicator along. So few are tested: the
 * oldest, mostly the first to be complete, and as another may be so before it, each in turn. */
static void test_some(struct twill_mpi_comm *comm)
{
    while (comm->active != NULL && test(comm->active))
        ;
    if (comm->turn == NULL)
        comm->turn = comm->active;
    while (comm->turn != NULL) {
        struct twill_mpi_request *at = comm->turn;
        if (at != comm->active && !test(at)) {
            comm->turn = at->after;
            return;
        }
        if (comm->turn == at) /* the oldest */
            comm->turn = at->after;
    }
}

bool twill_mpi_request_glance(struct twill_mpi_request *request, uint64_t glance)
{
    if (twill_mpi_request_state(request) != TWILL_MPI_REQUEST_ACTIVE)
        return true;
    struct twill_mpi_comm *comm = request->bound.comm;
    if (!twill_mpi_try_lock(comm))
        return false;
    if (comm->glance != glance)
        test_some(comm);
    comm->glance = glance;
    twill_mpi_unlock(comm);
    return twill_mpi_request_state(request) != TWILL_MPI_REQUEST_ACTIVE;
}

void twill_mpi_request_wait(struct twill_mpi_request *request)
{
    struct twill_mpi_backoff backoff = {0};
    if (twill_mpi_request_state(request) != TWILL_MPI_REQUEST_ACTIVE)
        return;
    if (!twill_mpi.multiple)
        complete_request(request, twill_wait(under_way(request)));
    else
        while (!twill_mpi_request_poll(request))
            twill_mpi_backoff(&backoff);
}

/* --- start and end --------------------------------------------------------------------------- */

/* There is no memory for a request, but the others count on this rank. */
static twill_status come_without(struct twill_mpi_bound *bound)
{
    twill_mpi_bound_free(bound);
    bound->form = TWILL_MPI_BLOCKING;
    twill_mpi_bound_fail(bound, TWILL_ERR_MEMORY);
    twill_status status = twill_mpi_issue(bound, NULL);
    return status == TWILL_OK ? twill_mpi_unpack(bound) : status;
}

/* The communicator is locked. request: NULL if there is none left. */
static enum twill_mpi_why start_request(const struct twill_mpi_call *call,
                                        struct twill_mpi_comm *comm,
                                        struct twill_mpi_request *request, twill_status *status)
{
    struct twill_mpi_bound none, *bound = request != NULL ? &request->bound : &none;
    enum twill_mpi_why why = twill_mpi_bind(call, TWILL_MPI_NONBLOCKING, comm, bound);
    if (why != TWILL_MPI_WHY_TAKEN)
        return why;
    if (request == NULL) {
        *status = come_without(bound);
        return why;
    }
    twill_mpi_pack(bound);
    *status = twill_mpi_issue(bound, &request->request);
    if (*status == TWILL_OK)
        activate_request(request);
    else
        twill_mpi_bound_free(bound);
    return why;
}

/* *made: NULL if it is not taken, or *status is an error. */
static enum twill_mpi_why request_make(const struct twill_mpi_call *call,
                                       struct twill_mpi_comm *comm, struct twill_mpi_request **made,
                                       twill_status *status)
{
    struct twill_mpi_request *request = *made = alloc_request();
    twill_mpi_lock(comm);
    enum twill_mpi_why why = start_request(call, comm, request, status);
    twill_mpi_unlock(comm);
    if (request == NULL)
        return why;
    if (why == TWILL_MPI_WHY_TAKEN && *status == TWILL_OK) {
        count_requests(comm, 1);
        return why;
    }
    release_request(request);
    *made = NULL;
    return why;
}

/* Whether a persistent call is taken all ranks decide together, so one that lacks something is
 * heard in time. */
static enum twill_mpi_why init_request(const struct twill_mpi_call *call, struct twill_mpi_comm *of,
                                       MPI_Request *handle)
{
    struct twill_mpi_bound bound;
    struct twill_mpi_comm *own = NULL;
    twill_mpi_lock(of);
    enum twill_mpi_why why = twill_mpi_bind(call, TWILL_MPI_PERSISTENT, of, &bound);
    if (why == TWILL_MPI_WHY_TAKEN)
        bound.comm = own = twill_mpi_comm_another(of);
    twill_mpi_unlock(of);
    if (why != TWILL_MPI_WHY_TAKEN)
        return why;
    struct twill_mpi_request *request = alloc_request();
    twill_request *made = NULL;
    const bool lacks = own == NULL || request == NULL || (bound.bounced & TWILL_MPI_FAILS) != 0;
    if (!twill_mpi_comm_share(of, own, lacks ? NULL : &bound, &made)) {
        twill_mpi_bound_free(&bound);
        if (request != NULL)
            release_request(request);
        return TWILL_MPI_WHY_COMM;
    }
    request->bound = bound;
    request->request = made;
    atomic_store(&request->state, TWILL_MPI_REQUEST_IDLE);
    count_requests(own, 1);
    *handle = twill_mpi_request_handle(request);
    return why;
}

enum twill_mpi_why twill_mpi_run_request(const struct twill_mpi_call *call,
                                         struct twill_mpi_comm *comm, MPI_Request *handle,
                                         int *code)
{
    struct twill_mpi_request *request;
    twill_status status;
    twill_mpi_requests_sweep();
    if (call->form == TWILL_MPI_PERSISTENT)
        return init_request(call, comm, handle);
    enum twill_mpi_why why = request_make(call, comm, &request, &status);
    if (request != NULL)
        *handle = twill_mpi_request_handle(request);
    if (why == TWILL_MPI_WHY_TAKEN)
        *code = twill_mpi_outcome(comm, status);
    return why;
}

/* Nothing under way: nobody else may legally touch it before this call is over. Else there may be
 * threads that wait for what is under way, and the call must let them in between. */
enum twill_mpi_why twill_mpi_run_shared(const struct twill_mpi_call *call,
                                        struct twill_mpi_comm *comm, int *code)
{
    struct twill_mpi_request *request = NULL;
    MPI_Request handle;
    twill_status status;
    twill_mpi_lock(comm);
    const bool alone = comm->active == NULL;
    enum twill_mpi_why why =
        alone ? twill_mpi_run_blocking(call, comm, &status) : TWILL_MPI_WHY_TAKEN;
    twill_mpi_unlock(comm);
    if (!alone)
        why = request_make(call, comm, &request, &status);
    if (request != NULL) {
        struct twill_mpi_fault fault = TWILL_MPI_NO_FAULT;
        twill_mpi_request_wait(request);
        *code = twill_mpi_request_collect(request, &handle, &fault);
        twill_mpi_raise(&fault);
    } else if (why == TWILL_MPI_WHY_TAKEN) {
        *code = twill_mpi_outcome(comm, status);
    }
    return why;
}

/* The communicator is locked. */
static twill_status restart_persistent(struct twill_mpi_request *request)
{
    struct twill_mpi_bound *bound = &request->bound, other;
    bound->bounced &= ~(unsigned)TWILL_MPI_FAILS;
    twill_mpi_pack(bound);
    if ((bound->bounced & TWILL_MPI_FAILS) == 0)
        return twill_request_start(request->request);
    other = *bound;
    other.form = TWILL_MPI_NONBLOCKING;
    return twill_mpi_issue(&other, &request->instead);
}

int twill_mpi_request_start(struct twill_mpi_request *request)
{
    struct twill_mpi_comm *comm = request->bound.comm;
    if (twill_mpi_request_state(request) != TWILL_MPI_REQUEST_IDLE)
        return twill_mpi_request_refuse(request);
    twill_mpi_lock(comm);
    twill_status status = restart_persistent(request);
    if (status == TWILL_OK)
        activate_request(request);
    twill_mpi_unlock(comm);
    return twill_mpi_outcome(comm, status);
}

int twill_mpi_request_collect(struct twill_mpi_request *request, MPI_Request *handle,
                              struct twill_mpi_fault *fault)
{
    struct twill_mpi_comm *comm = request->bound.comm;
    if (twill_mpi_request_state(request) == TWILL_MPI_REQUEST_IDLE)
        return MPI_SUCCESS;
    twill_mpi_completed(comm);
    int code = twill_mpi_fault_of(comm, request->status, fault);
    if (request->bound.form == TWILL_MPI_PERSISTENT) {
        atomic_store(&request->state, TWILL_MPI_REQUEST_IDLE);
        return code;
    }
    twill_mpi_bound_free(&request->bound);
    release_request(request);
    *handle = MPI_REQUEST_NULL;
    count_requests(comm, -1); /* now the communicator may go */
    return code;
}

static void doom(struct twill_mpi_request *request)
{
    lock_pool();
    push_request(&twill_mpi.requests.doomed, request);
    unlock_pool();
}

/* MPI_Request_free() does not wait: not for the call, nor for a thread that has its communicator.
 */
void twill_mpi_request_free(struct twill_mpi_request *request)
{
    struct twill_mpi_comm *comm = request->bound.comm;
    if (!twill_mpi_request_poll(request) || !twill_mpi_try_lock(comm)) {
        doom(request);
        return;
    }
    if (request->request != NULL)
        (void)twill_request_free(&request->request);
    twill_mpi_unlock(comm);
    twill_mpi_bound_free(&request->bound);
    release_request(request);
    count_requests(comm, -1);
    if (comm->of != NULL)
        twill_mpi_comm_end(comm);
}

void twill_mpi_requests_sweep(void)
{
    if (atomic_load_explicit(&twill_mpi.requests.doomed, memory_order_relaxed) == NULL)
        return;
    lock_pool();
    struct twill_mpi_request *list = twill_mpi.requests.doomed;
    twill_mpi.requests.doomed = NULL;
    unlock_pool();
    for (struct twill_mpi_request *next; list != NULL; list = next) {
        next = list->next;
        twill_mpi_request_free(list);
    }
}

/* As the MPI does for its own where a communicator is disconnected: moved along until complete. A
 * thread that waits for one of them collects it, so none is held on to. */
void twill_mpi_requests_complete(struct twill_mpi_comm *comm)
{
    struct twill_mpi_backoff backoff = {0};
    for (bool left = true; left;) {
        if (twill_mpi_try_lock(comm)) {
            while (comm->active != NULL && test(comm->active))
                ;
            left = comm->active != NULL;
            twill_mpi_unlock(comm);
        }
        if (left)
            twill_mpi_backoff(&backoff);
    }
}

/* What a program has freed while it was under way is waited for; what it should have waited for or
 * freed is let be, or freed. */
void twill_mpi_requests_end(void)
{
    struct twill_mpi_requests *pool = &twill_mpi.requests;
    for (struct twill_mpi_request *at = pool->doomed; at != NULL; at = at->next)
        twill_mpi_request_wait(at);
    twill_mpi_requests_sweep();
    for (uint32_t n = 1; n <= pool->made; n++)
        if (twill_mpi_request_state(request_of(n)) == TWILL_MPI_REQUEST_IDLE)
            twill_mpi_request_free(request_of(n));
    pool->made = 0;
    pool->spare = NULL;
    while (pool->slabs > 0)
        free(pool->slab[--pool->slabs]);
}

int twill_mpi_request_refuse(const struct twill_mpi_request *request)
{
    PMPI_Comm_call_errhandler(twill_mpi_error_comm(request != NULL ? request->bound.comm : NULL),
                              MPI_ERR_REQUEST);
    return MPI_ERR_REQUEST;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the calls that twill runs, their handles, and the way from start to completion. */
#include "lib/mpi/mpi_requests.h"
#include "lib/mpi/mpi_clones.h"

#include <stdlib.h>

/* Each slab is twice as large as the last, so a few hold all numbers. Requests never move. */
#define FIRST_SLAB     64u
#define FIRST_SLAB_LOG 6u

/* Return request `number`, which must have been made. */
static struct twill_mpi_request *request_of(uint32_t number)
{
    uint32_t at = number - 1 + FIRST_SLAB;
    uint32_t slab = 31u - (uint32_t)__builtin_clz(at) - FIRST_SLAB_LOG;
    return &twill_mpi.requests.slab[slab][at - (FIRST_SLAB << slab)];
}

struct twill_mpi_request *twill_mpi_request_find(MPI_Request handle)
{
    uint32_t number = (uint32_t)twill_mpi_request_number(handle);
    if (twill_mpi.forked) /* all requests belong to the parent */
        return NULL;
    if (!twill_mpi_request_is_ours(handle) || number > atomic_load(&twill_mpi.requests.made))
        return NULL;
    struct twill_mpi_request *request = request_of(number);
    return twill_mpi_request_state(request) != TWILL_MPI_REQUEST_FREE ? request : NULL;
}

/* Lock the pool of requests if the program has MPI_THREAD_MULTIPLE. */
static void lock_pool(void)
{
    if (twill_mpi.multiple)
        pthread_mutex_lock(&twill_mpi.requests.lock);
}

/* Undo lock_pool(). */
static void unlock_pool(void)
{
    if (twill_mpi.multiple)
        pthread_mutex_unlock(&twill_mpi.requests.lock);
}

/* Put a request at the front of a list. The pool is locked. */
static void push_request(struct twill_mpi_request *_Atomic *list, struct twill_mpi_request *request)
{
    request->next = atomic_load_explicit(list, memory_order_relaxed);
    atomic_store_explicit(list, request, memory_order_relaxed);
}

/* Add a slab to the pool, which is locked and empty, unless memory or numbers have run out. */
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

/* Take a request out of the pool, or return NULL if out of memory. */
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

/* Return a request to the pool, so that its handle becomes invalid. */
static void release_request(struct twill_mpi_request *request)
{
    request->request = NULL;
    request->wraps = false;
    atomic_store_explicit(&request->state, TWILL_MPI_REQUEST_FREE, memory_order_relaxed);
    lock_pool();
    push_request(&twill_mpi.requests.spare, request);
    unlock_pool();
}

/* Add `more`, 1 or -1, to the requests that keep `comm` from being released. */
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

/* Append a request to its communicator's list of requests under way, and mark it as active. The
 * caller holds the communicator's lock. */
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

/* Take a request off its communicator's list, unpack its data and mark it as complete. The caller
 * holds the communicator's lock. The store of the state is the last access, because the owner sees
 * that without a lock and may then release the request. */
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
    if (comm->next_polled == request)
        comm->next_polled = request->after;
    request->status = status == TWILL_OK ? twill_mpi_unpack(&request->bound) : status;
    atomic_store_explicit(&request->state, TWILL_MPI_REQUEST_COMPLETE, memory_order_release);
}

/* Return where the twill request that runs is, which is `instead` if that is set. */
static twill_request **under_way(struct twill_mpi_request *request)
{
    return request->instead != NULL ? &request->instead : &request->request;
}

/* Test the MPI's request that is wrapped. If it ended or failed, complete this and return true. */
static bool test_below(struct twill_mpi_request *request)
{
    int done = 0;
    request->below_code = PMPI_Test(&request->below, &done, MPI_STATUS_IGNORE);
    if (request->below_code == MPI_SUCCESS && !done)
        return false;
    complete_request(request, TWILL_OK);
    return true;
}

/* Test a request, complete it if it is done, and return whether it is. */
static bool test_request(struct twill_mpi_request *request)
{
    int done = 0;
    if (request->wraps)
        return test_below(request);
    twill_status status = twill_test(under_way(request), &done);
    if (done)
        complete_request(request, status);
    return done;
}

/* Never waits. A thread that holds the lock makes progress on the communicator. */
bool twill_mpi_request_poll(struct twill_mpi_request *request)
{
    if (twill_mpi_request_state(request) != TWILL_MPI_REQUEST_ACTIVE)
        return true;
    struct twill_mpi_comm *comm = request->bound.comm;
    if (!twill_mpi_try_lock(comm))
        return false;
    if (twill_mpi_request_state(request) == TWILL_MPI_REQUEST_ACTIVE)
        test_request(request);
    twill_mpi_unlock(comm);
    return twill_mpi_request_state(request) != TWILL_MPI_REQUEST_ACTIVE;
}

/* Test the oldest request, which usually completes first, and one of the others, a different one
 * each time. A test of an incomplete request makes progress on the whole communicator. */
static void test_some(struct twill_mpi_comm *comm)
{
    while (comm->active != NULL && test_request(comm->active))
        ;
    if (comm->next_polled == NULL)
        comm->next_polled = comm->active;
    while (comm->next_polled != NULL) {
        struct twill_mpi_request *at = comm->next_polled;
        if (at != comm->active && !test_request(at)) {
            comm->next_polled = at->after;
            return;
        }
        if (comm->next_polled == at) /* the oldest */
            comm->next_polled = at->after;
    }
}

bool twill_mpi_request_poll_pass(struct twill_mpi_request *request, uint64_t pass)
{
    if (twill_mpi_request_state(request) != TWILL_MPI_REQUEST_ACTIVE)
        return true;
    struct twill_mpi_comm *comm = request->bound.comm;
    if (!twill_mpi_try_lock(comm))
        return false;
    if (comm->pass != pass)
        test_some(comm);
    comm->pass = pass;
    twill_mpi_unlock(comm);
    return twill_mpi_request_state(request) != TWILL_MPI_REQUEST_ACTIVE;
}

void twill_mpi_request_wait(struct twill_mpi_request *request)
{
    struct twill_mpi_backoff backoff = {0};
    if (twill_mpi_request_state(request) != TWILL_MPI_REQUEST_ACTIVE)
        return;
    if (!twill_mpi.multiple && !request->wraps)
        complete_request(request, twill_wait(under_way(request)));
    else
        while (!twill_mpi_request_poll(request))
            twill_mpi_backoff(&backoff);
}

/* Make a blocking barrier instead of a nonblocking call for which this rank has no memory. Another
 * collective of the other ranks does not match it and fails on all ranks. Returns that error, or
 * TWILL_ERR_MEMORY if the barrier succeeds, as their call was one. */
static twill_status come_without(struct twill_mpi_bound *bound)
{
    twill_mpi_bound_free(bound);
    bound->form = TWILL_MPI_BLOCKING;
    twill_mpi_bound_fail(bound, TWILL_ERR_MEMORY);
    twill_status status = twill_mpi_issue(bound, NULL);
    return status == TWILL_OK ? twill_mpi_unpack(bound) : status;
}

/* Start a nonblocking call on a locked communicator. Returns TAKEN, with the call's *status, or why
 * it is passed on. If `request` is NULL for lack of memory, runs a barrier instead, so that the
 * call fails on all ranks. Then returns TAKEN with the error in *status. */
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
    if (*status == TWILL_OK) {
        request->call = comm->refusal.calls;
        activate_request(request);
        return why;
    }
    twill_mpi_bound_free(bound);
    return twill_mpi_is_revoked(comm, *status) ? TWILL_MPI_WHY_REVOKED : why;
}

/* Start a nonblocking call. Returns TAKEN, with *status set, or why the call is passed on, when
 * *status has no meaning. *made is the request if TAKEN is returned and *status is TWILL_OK,
 * otherwise NULL. */
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

bool twill_mpi_request_wrap(MPI_Request *handle, enum twill_mpi_form form, void *memory)
{
    struct twill_mpi_comm *comm = &twill_mpi.requests.wrapped;
    struct twill_mpi_request *request = alloc_request();
    if (request == NULL)
        return false;
    request->bound = (struct twill_mpi_bound){.form = form, .comm = comm, .memory = memory};
    request->wraps = true;
    request->below = *handle;
    atomic_store(&request->state, TWILL_MPI_REQUEST_IDLE);
    twill_mpi_lock(comm);
    if (form == TWILL_MPI_NONBLOCKING)
        activate_request(request);
    twill_mpi_unlock(comm);
    count_requests(comm, 1);
    *handle = twill_mpi_request_handle(request);
    return true;
}

/* Initialise a persistent call on all ranks or none. Returns TAKEN or why it is passed on. */
static enum twill_mpi_why init_request(const struct twill_mpi_call *call,
                                       struct twill_mpi_comm *parent, MPI_Request *handle)
{
    struct twill_mpi_bound bound;
    struct twill_mpi_comm *own = NULL;
    twill_mpi_lock(parent);
    enum twill_mpi_why why = twill_mpi_bind(call, TWILL_MPI_PERSISTENT, parent, &bound);
    if (why == TWILL_MPI_WHY_TAKEN)
        own = twill_mpi_clone_create(parent);
    twill_mpi_unlock(parent);
    if (why != TWILL_MPI_WHY_TAKEN)
        return why;
    struct twill_mpi_request *request = alloc_request();
    twill_request *made = NULL;
    const bool lacks = own == NULL || request == NULL || (bound.bounced & TWILL_MPI_FAILS) != 0;
    bound.comm = own;
    if (!twill_mpi_clone_set_up(parent, own, lacks, &bound, &made)) {
        twill_mpi_bound_free(&bound);
        if (request != NULL)
            release_request(request);
        return TWILL_MPI_WHY_COMM;
    }
    request->bound = bound;
    request->request = made;
    atomic_store(&request->state, TWILL_MPI_REQUEST_IDLE);
    count_requests(bound.comm, 1);
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

/* If nothing is under way, no other thread may legally use the communicator before this call
 * returns. Else threads may wait for requests, and the call must let them take the lock. */
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

/* Pack the data and start a persistent call. If packing fails, start a barrier as request->instead,
 * so that the call fails on all ranks. The caller holds the communicator's lock. Returns the status
 * of the start. */
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
    if (request->wraps)
        twill_mpi_started();
    twill_mpi_lock(comm);
    int code = request->wraps ? PMPI_Start(&request->below) : MPI_SUCCESS;
    twill_status status = request->wraps ? TWILL_OK : restart_persistent(request);
    if (status == TWILL_OK && code == MPI_SUCCESS)
        activate_request(request);
    twill_mpi_unlock(comm);
    return request->wraps ? code : twill_mpi_outcome(comm, status);
}

int twill_mpi_request_collect(struct twill_mpi_request *request, MPI_Request *handle,
                              struct twill_mpi_fault *fault)
{
    struct twill_mpi_comm *comm = request->bound.comm;
    if (twill_mpi_request_state(request) == TWILL_MPI_REQUEST_IDLE)
        return MPI_SUCCESS;
    twill_mpi_completed(comm);
    int code =
        request->wraps ? request->below_code : twill_mpi_fault_of(comm, request->status, fault);
    if (request->bound.form == TWILL_MPI_PERSISTENT) {
        atomic_store(&request->state, TWILL_MPI_REQUEST_IDLE);
        return code;
    }
    twill_mpi_bound_free(&request->bound);
    release_request(request);
    *handle = MPI_REQUEST_NULL;
    count_requests(comm, -1); /* the communicator may be released from now on */
    return code;
}

/* Leave a request that the program freed to twill_mpi_requests_sweep(). */
static void defer_request(struct twill_mpi_request *request)
{
    lock_pool();
    push_request(&twill_mpi.requests.deferred, request);
    unlock_pool();
}

/* As MPI demands, waits neither for the call nor for a thread with the communicator's lock. */
void twill_mpi_request_free(struct twill_mpi_request *request)
{
    struct twill_mpi_comm *comm = request->bound.comm;
    if (!twill_mpi_request_poll(request) || !twill_mpi_try_lock(comm)) {
        defer_request(request);
        return;
    }
    if (request->request != NULL)
        (void)twill_request_free(&request->request);
    if (request->wraps && request->below != MPI_REQUEST_NULL)
        PMPI_Request_free(&request->below);
    twill_mpi_unlock(comm);
    twill_mpi_bound_free(&request->bound);
    release_request(request);
    count_requests(comm, -1);
    if (comm->as_clone.parent != NULL)
        twill_mpi_clone_free(comm);
}

void twill_mpi_requests_sweep(void)
{
    if (atomic_load_explicit(&twill_mpi.requests.deferred, memory_order_relaxed) == NULL)
        return;
    lock_pool();
    struct twill_mpi_request *list = twill_mpi.requests.deferred;
    twill_mpi.requests.deferred = NULL;
    unlock_pool();
    for (struct twill_mpi_request *next; list != NULL; list = next) {
        next = list->next;
        twill_mpi_request_free(list);
    }
}

/* The MPI completes its own requests in MPI_Comm_disconnect(). This keeps no pointer to a request,
 * because a thread that waits for one may release it at any time. */
void twill_mpi_requests_complete(struct twill_mpi_comm *comm)
{
    struct twill_mpi_backoff backoff = {0};
    for (bool left = true; left;) {
        if (twill_mpi_try_lock(comm)) {
            while (comm->active != NULL && test_request(comm->active))
                ;
            left = comm->active != NULL;
            twill_mpi_unlock(comm);
        }
        if (left)
            twill_mpi_backoff(&backoff);
    }
}

/* Wait for requests that the program freed while under way. Free the persistent ones that it did
 * not free, and abandon nonblocking ones that it did not complete. */
void twill_mpi_requests_end(void)
{
    struct twill_mpi_requests *pool = &twill_mpi.requests;
    for (struct twill_mpi_request *at = pool->deferred; at != NULL; at = at->next)
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
    if (twill_mpi.forked)
        return twill_mpi_refuse_child();
    PMPI_Comm_call_errhandler(twill_mpi_error_comm(request != NULL ? request->bound.comm : NULL),
                              MPI_ERR_REQUEST);
    return MPI_ERR_REQUEST;
}

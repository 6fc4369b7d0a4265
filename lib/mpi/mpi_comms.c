/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators. They are looked up by handle, adopted when created, and released when freed.
 *
 * The table is read without locks. An entry is pushed to the front of its bucket and stays there
 * until the process ends. When its communicator is freed it is used for another of the bucket.
 *
 * An attribute's callback reports that a communicator is freed, whichever call frees it.
 * MPI_Comm_free() need not synchronise the ranks. Each rank therefore starts a barrier as its last
 * call on the twill communicator, once its requests are complete. When the barrier is complete the
 * communicator is released, which is tested whenever another one is created or freed. The callback
 * cannot do it, as MPICH may call it while twill waits and lets the MPI progress. */
#include "lib/base/rest.h"
#include "lib/base/times.h"
#include "lib/mpi/mpi_call.h"
#include "lib/mpi/mpi_clones.h"

#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Return the address of the table's list for `handle`, which may be empty. It holds the entry of
 * `handle` if there is one. */
static _Atomic(struct twill_mpi_comm *) *bucket_of(MPI_Comm handle)
{
    return &twill_mpi.comms.bucket[twill_mpi_bucket(handle)];
}

/* Return whether an entry serves the communicator `handle` now. */
static inline bool comm_is_of(struct twill_mpi_comm *comm, MPI_Comm handle)
{
    return atomic_load_explicit(&comm->handle, memory_order_acquire) == handle;
}

void twill_mpi_lock_wait(struct twill_mpi_comm *comm)
{
    while (atomic_exchange_explicit(&comm->lock, TWILL_MPI_LOCKED_WAITING, memory_order_acquire) !=
           TWILL_MPI_UNLOCKED)
        (void)syscall(SYS_futex, &comm->lock, FUTEX_WAIT_PRIVATE, TWILL_MPI_LOCKED_WAITING, NULL);
}

void twill_mpi_lock_wake(struct twill_mpi_comm *comm)
{
    (void)syscall(SYS_futex, &comm->lock, FUTEX_WAKE_PRIVATE, 1);
}

struct twill_mpi_comm *twill_mpi_comm_find(MPI_Comm handle)
{
    struct twill_mpi_comms *comms = &twill_mpi.comms;
    struct twill_mpi_comm *comm = atomic_load_explicit(&comms->last, memory_order_relaxed);
    if (handle == MPI_COMM_NULL)
        return NULL;
    if (TWILL_LIKELY(comm != NULL && comm_is_of(comm, handle)))
        return comm;
    comm = atomic_load_explicit(bucket_of(handle), memory_order_acquire);
    while (comm != NULL && !comm_is_of(comm, handle))
        comm = comm->next;
    struct twill_mpi_comm *last = atomic_load_explicit(&comms->last, memory_order_relaxed);
    if (comm != NULL && (!twill_mpi.multiple || last == NULL || comm_is_of(last, MPI_COMM_NULL)))
        atomic_store_explicit(&comms->last, comm, memory_order_relaxed);
    return comm;
}

MPI_Comm twill_mpi_error_comm(const struct twill_mpi_comm *comm)
{
    MPI_Comm handle = MPI_COMM_NULL;
    if (comm != NULL && comm->as_clone.parent == NULL)
        handle = atomic_load(&comm->handle);
    else if (comm != NULL)
        handle = atomic_load(&comm->as_clone.parent->handle);
    /* Read after the handle, which is another communicator's if the entry serves another now. */
    if (comm != NULL && comm->as_clone.parent != NULL &&
        atomic_load(&comm->as_clone.parent->generation) != comm->as_clone.generation)
        handle = MPI_COMM_NULL;
    return handle != MPI_COMM_NULL ? handle : MPI_COMM_WORLD;
}

/* Reserve an entry of the table for the communicator `handle` with `size` ranks. Lookups do not
 * find it until publish_comm() stores the handle in it. Returns NULL if out of memory. */
static struct twill_mpi_comm *take_entry(MPI_Comm handle, int size)
{
    size_t *numbers = calloc((size_t)size * 4, sizeof(*numbers));
    if (numbers == NULL)
        return NULL;
    _Atomic(struct twill_mpi_comm *) *bucket = bucket_of(handle);
    pthread_mutex_lock(&twill_mpi.comms.lock);
    struct twill_mpi_comm *comm = atomic_load(bucket);
    while (comm != NULL && comm->in_use)
        comm = comm->next;
    if (comm == NULL && (comm = calloc(1, sizeof(*comm))) != NULL) {
        atomic_store(&comm->handle, MPI_COMM_NULL);
        comm->next = atomic_load(bucket);
        atomic_store_explicit(bucket, comm, memory_order_release);
    }
    if (comm != NULL) {
        comm->in_use = true;
        twill_mpi_memo_forget(comm);
        atomic_fetch_add(&comm->generation, 1);
        comm->size = size;
        comm->scratch.numbers = numbers;
    } else {
        free(numbers);
    }
    pthread_mutex_unlock(&twill_mpi.comms.lock);
    return comm;
}

void twill_mpi_comm_release(struct twill_mpi_comm *comm)
{
    free(comm->scratch.numbers);
    free(comm->scratch.bounce);
    if (comm->as_clone.parent != NULL) {
        free(comm);
        return;
    }
    comm->scratch.numbers = NULL;
    comm->scratch.bounce = NULL;
    comm->scratch.bounce_bytes = 0;
    comm->comm = NULL;
    comm->closing = false;
    comm->broken_code = 0;
    atomic_store(&comm->revoked, false);
    pthread_mutex_lock(&twill_mpi.comms.lock);
    comm->in_use = false;
    pthread_mutex_unlock(&twill_mpi.comms.lock);
}

/* Return whether this rank's calls on `comm` are complete and so is the barrier after them, which
 * is started here. `at_once` ignores requests that the program never completed. Returns false if
 * the lock is taken. Its holder may wait for a lock of the MPI that this thread holds. */
static bool has_closed(struct twill_mpi_comm *comm, bool at_once)
{
    int done = 0;
    if (!twill_mpi_try_lock(comm))
        return false;
    if (!comm->closing && (at_once || atomic_load(&comm->requests) == 0)) {
        comm->closing = true;
        if (twill_barrier_start(comm->comm, &comm->close_barrier) != TWILL_OK)
            comm->close_barrier = NULL; /* comm is broken, so there is no rank to wait for */
    }
    if (comm->closing && comm->close_barrier != NULL)
        (void)twill_test(&comm->close_barrier, &done);
    bool closed = comm->closing && comm->close_barrier == NULL;
    twill_mpi_unlock(comm);
    return closed;
}

void twill_mpi_comm_defer_free(struct twill_mpi_comm *comm)
{
    struct twill_mpi_comms *comms = &twill_mpi.comms;
    pthread_mutex_lock(&comms->lock);
    struct twill_mpi_comm *last = comms->deferred;
    comm->next_deferred = last != NULL ? last->next_deferred : comm;
    if (last != NULL)
        last->next_deferred = comm;
    comms->deferred = comm;
    pthread_mutex_unlock(&comms->lock);
}

/* Remove and return the ring's first entry. Returns NULL if the ring is empty or `end` is first. */
static struct twill_mpi_comm *take_deferred(const struct twill_mpi_comm *end)
{
    struct twill_mpi_comms *comms = &twill_mpi.comms;
    pthread_mutex_lock(&comms->lock);
    struct twill_mpi_comm *last = comms->deferred,
                          *first = last != NULL ? last->next_deferred : NULL;
    if (first == end)
        first = NULL;
    else if (first == last)
        comms->deferred = NULL;
    else
        last->next_deferred = first->next_deferred;
    pthread_mutex_unlock(&comms->lock);
    return first;
}

#define DEFERRED_CHECKED 4

/* Release what can be released. The caller holds `making`. Returns the number of tested
 * communicators that remain. A program may free a thousand communicators long before the other
 * ranks do. So, unless `at_once`, each call tests only a few, those tested longest ago. */
static unsigned reap_comms(bool at_once)
{
    unsigned left = 0;
    struct twill_mpi_comm *comm, *end = NULL; /* the first that remains */
    while ((at_once || left < DEFERRED_CHECKED) && (comm = take_deferred(end)) != NULL) {
        if (atomic_load(&comm->revoking) == 0 && has_closed(comm, at_once)) {
            twill_comm_leave(comm->comm);
            twill_mpi_comm_release(comm);
            continue;
        }
        end = left++ == 0 ? comm : end;
        twill_mpi_comm_defer_free(comm);
    }
    return left;
}

void twill_mpi_comms_reap(void)
{
    if (atomic_load(&twill_mpi.ready) && pthread_mutex_trylock(&twill_mpi.comms.making) == 0) {
        reap_comms(false);
        pthread_mutex_unlock(&twill_mpi.comms.making);
    }
}

/* Release the entry of a communicator that has been freed. If it was adopted, this only queues it,
 * and its idle clones, for reap_comms(), which releases it once all ranks are done. */
static void free_or_defer(struct twill_mpi_comm *comm)
{
    atomic_store(&comm->handle, MPI_COMM_NULL);
    twill_mpi_memo_forget(comm);
    twill_mpi_clones_close(comm);
    if (comm->comm == NULL)
        twill_mpi_comm_release(comm);
    else
        twill_mpi_comm_defer_free(comm);
}

/* Give up the entry `value` of a communicator that the program frees. The MPI calls this as delete
 * callback of the attribute that holds the entry. Releases it now or, if the communicator was
 * adopted, once all ranks are done. Always returns MPI_SUCCESS. */
static int comm_freed(MPI_Comm handle, int keyval, void *value, void *extra)
{
    struct twill_mpi_comm *comm = value;
    (void)keyval, (void)extra;
    if (!atomic_load(&twill_mpi.ready) || !comm_is_of(comm, handle))
        return MPI_SUCCESS; /* all have been released */
    free_or_defer(comm);
    return MPI_SUCCESS;
}

#define COMM_KEEPS 4  /* most descriptors that a communicator keeps */
#define COMM_NEEDS 70 /* most that it also needs while it is made, but at most one per rank */

/* Return whether descriptors suffice for a communicator, with half of the limit for the program. */
static bool descriptors_suffice(int size)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return true;
    uint64_t after = twill_fd_count(limit.rlim_cur) + COMM_KEEPS;
    return after < limit.rlim_cur / 2 &&
           after + twill_min((uint64_t)size + 4, COMM_NEEDS) < limit.rlim_cur;
}

#define RANKS_AT_ONCE 64

/* Set ranks[size] to the ranks in `world` of all ranks in `here`. Returns ADOPTED, FOREIGN if one
 * is not in `world`, or MEMORY if `ranks` is NULL or the MPI fails. */
static enum twill_mpi_fate find_ranks(MPI_Group here, MPI_Group world, int size, int *ranks)
{
    int own[RANKS_AT_ONCE], there[RANKS_AT_ONCE];
    for (int first = 0; first < size; first += RANKS_AT_ONCE) {
        const int n = size - first < RANKS_AT_ONCE ? size - first : RANKS_AT_ONCE;
        for (int i = 0; i < n; i++)
            own[i] = first + i;
        if (PMPI_Group_translate_ranks(here, n, own, world, there) != MPI_SUCCESS)
            return TWILL_MPI_FATE_MEMORY;
        for (int i = 0; i < n; i++) {
            if (there[i] == MPI_UNDEFINED)
                return TWILL_MPI_FATE_FOREIGN;
            if (ranks != NULL)
                ranks[first + i] = there[i];
        }
    }
    return ranks == NULL ? TWILL_MPI_FATE_MEMORY : TWILL_MPI_FATE_ADOPTED;
}

/* Set ranks[size] to the ranks in MPI_COMM_WORLD of a communicator's ranks. Returns ADOPTED,
 * FOREIGN if one is not in it, or MEMORY if `ranks` is NULL or the MPI fails. */
static enum twill_mpi_fate find_world_ranks(MPI_Comm handle, int size, int *ranks)
{
    MPI_Group here;
    if (PMPI_Comm_group(handle, &here) != MPI_SUCCESS)
        return TWILL_MPI_FATE_MEMORY;
    enum twill_mpi_fate fate = find_ranks(here, twill_mpi.comms.world, size, ranks);
    PMPI_Group_free(&here);
    return fate;
}

bool twill_mpi_world_ranks(MPI_Comm handle, int size, int *ranks)
{
    return find_world_ranks(handle, size, ranks) == TWILL_MPI_FATE_ADOPTED;
}

/* Set *size and *rank. Returns BETWEEN for an intercommunicator, ALONE for one rank, or ADOPTED. */
static enum twill_mpi_fate comm_fate(MPI_Comm handle, int *size, int *rank)
{
    int between = 0;
    PMPI_Comm_size(handle, size);
    PMPI_Comm_rank(handle, rank);
    PMPI_Comm_test_inter(handle, &between);
    return between      ? TWILL_MPI_FATE_BETWEEN
           : *size == 1 ? TWILL_MPI_FATE_ALONE
                        : TWILL_MPI_FATE_ADOPTED;
}

/* Keep the context's message for the report, unless an earlier failure's is kept. */
static void note_failure(void)
{
    pthread_mutex_lock(&twill_mpi.comms.lock);
    if (twill_mpi.comms.failure[0] == '\0')
        snprintf(twill_mpi.comms.failure, sizeof(twill_mpi.comms.failure), "%s",
                 twill_context_message(twill_mpi.context));
    pthread_mutex_unlock(&twill_mpi.comms.lock);
}

/* Create comm->comm and, for a persistent call, *request. Returns TWILL_OK or the first failure. */
static twill_status make_comm(struct twill_mpi_comm *comm, const int *ranks,
                              struct twill_mpi_oob *oob, const struct twill_mpi_bound *bound,
                              twill_request **request)
{
    twill_status status = twill_comm_create_over(&comm->comm, twill_mpi.world, comm->size, ranks,
                                                 twill_mpi_exchange, oob);
    if (status == TWILL_OK && bound != NULL)
        status = twill_mpi_issue(bound, request);
    return status;
}

/* Create comm->comm and, unless `bound` is NULL, its persistent *request, on all ranks or on none.
 * `fate` is ADOPTED, or the reason why this rank cannot. With ADOPTED the caller holds the lock
 * comms.making, and keeps it. Returns ADOPTED or the worst reason, equal on all ranks. */
static enum twill_mpi_fate set_up_comm(struct twill_mpi_comm *comm, MPI_Comm handle,
                                       const int *ranks, enum twill_mpi_fate fate,
                                       const struct twill_mpi_bound *bound, twill_request **request)
{
    struct twill_mpi_oob oob;
    if (!twill_mpi_oob_open(&oob, handle) && fate == TWILL_MPI_FATE_ADOPTED)
        fate = TWILL_MPI_FATE_MEMORY;
    /* Communicators that share a rank have different numbers. */
    int worst[] = {(int)fate, atomic_load(&twill_mpi.comms.numbers)};
    twill_mpi_most(handle, worst, 2);
    if (worst[0] != TWILL_MPI_FATE_ADOPTED) {
        twill_mpi_oob_close(&oob);
        return worst[0] > TWILL_MPI_FATE_FAILED ? TWILL_MPI_FATE_FAILED
                                                : (enum twill_mpi_fate)worst[0];
    }
    comm->refusal = (struct twill_mpi_refusal){.number = worst[1], .waits_in = -1};
    atomic_store(&twill_mpi.comms.numbers, worst[1] + 1);
    twill_status status = make_comm(comm, ranks, &oob, bound, request);
    if (status != TWILL_OK)
        note_failure();
    /* All ranks have a communicator or none has, so only the request after it needs agreement. */
    bool fine = (status == TWILL_OK && bound == NULL) || twill_mpi_agree(&oob, status == TWILL_OK);
    twill_mpi_oob_close(&oob);
    if (fine)
        return TWILL_MPI_FATE_ADOPTED;
    if (request != NULL)
        (void)twill_request_free(request);
    twill_comm_leave(comm->comm); /* no rank has used it or will */
    comm->comm = NULL;
    return TWILL_MPI_FATE_FAILED;
}

enum twill_mpi_fate twill_mpi_comm_set_up(struct twill_mpi_comm *comm, MPI_Comm handle, int size,
                                          const struct twill_mpi_bound *bound,
                                          twill_request **request)
{
    int *ranks = malloc(sizeof(*ranks) * (size_t)size);
    enum twill_mpi_fate fate = find_world_ranks(handle, size, ranks);
    if (fate == TWILL_MPI_FATE_FOREIGN) {
        free(ranks);
        return fate;
    }
    if (comm == NULL)
        fate = TWILL_MPI_FATE_MEMORY;
    bool making = pthread_mutex_trylock(&twill_mpi.comms.making) == 0;
    if (!making && fate == TWILL_MPI_FATE_ADOPTED)
        fate = TWILL_MPI_FATE_BUSY;
    if (making)
        reap_comms(false);
    if (fate == TWILL_MPI_FATE_ADOPTED && !descriptors_suffice(size))
        fate = TWILL_MPI_FATE_DESCRIPTORS;
    fate = set_up_comm(comm, handle, ranks, fate, bound, request);
    if (making)
        pthread_mutex_unlock(&twill_mpi.comms.making);
    free(ranks);
    return fate;
}

/* Fill in the table's entry of the communicator `handle`. Set its `rank` and, by `fate`, the reason
 * in comm->why for which its calls are passed on. Then store the handle, by which
 * twill_mpi_comm_find() finds the entry. */
static void publish_comm(struct twill_mpi_comm *comm, MPI_Comm handle, int rank,
                         enum twill_mpi_fate fate)
{
    comm->rank = rank;
    comm->why = fate == TWILL_MPI_FATE_ADOPTED   ? TWILL_MPI_WHY_TAKEN
                : fate == TWILL_MPI_FATE_ALONE   ? TWILL_MPI_WHY_ONE_RANK
                : fate == TWILL_MPI_FATE_BETWEEN ? TWILL_MPI_WHY_INTER
                                                 : TWILL_MPI_WHY_COMM;
    atomic_store_explicit(&comm->handle, handle, memory_order_release);
}

/* Count a communicator of this fate for the report. */
static void count_fate(enum twill_mpi_fate fate)
{
    pthread_mutex_lock(&twill_mpi.comms.lock);
    twill_mpi.comms.fates[fate]++;
    pthread_mutex_unlock(&twill_mpi.comms.lock);
}

void twill_mpi_comm_adopt(MPI_Comm handle)
{
    int size = 0, rank = 0;
    if (handle == MPI_COMM_NULL || !atomic_load(&twill_mpi.ready))
        return;
    enum twill_mpi_fate fate = comm_fate(handle, &size, &rank);
    struct twill_mpi_comm *comm = twill_mpi_comm_find(handle);
    if (comm != NULL) /* freed without a call of the callback */
        free_or_defer(comm);
    comm = take_entry(handle, size);
    if (comm != NULL && PMPI_Comm_set_attr(handle, twill_mpi.comms.keyval, comm) != MPI_SUCCESS) {
        twill_mpi_comm_release(comm);
        comm = NULL;
    }
    if (fate == TWILL_MPI_FATE_ADOPTED)
        fate = twill_mpi_comm_set_up(comm, handle, size, NULL, NULL);
    if (comm != NULL)
        publish_comm(comm, handle, rank, fate);
    if (rank == 0)
        count_fate(fate);
}

bool twill_mpi_comms_open(void)
{
    int size = 0, rank = 0;
    enum twill_mpi_fate fate = comm_fate(MPI_COMM_WORLD, &size, &rank);
    struct twill_mpi_comm *world = take_entry(MPI_COMM_WORLD, size);
    struct twill_mpi_comm *self = take_entry(MPI_COMM_SELF, 1);
    if (world == NULL || self == NULL ||
        PMPI_Comm_group(twill_mpi.shadow, &twill_mpi.comms.world) != MPI_SUCCESS ||
        PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, comm_freed, &twill_mpi.comms.keyval, NULL) !=
            MPI_SUCCESS)
        return false;
    world->comm = twill_mpi.world;
    world->refusal.waits_in = -1;
    atomic_store(&twill_mpi.comms.numbers, 1); /* its own is 0 */
    publish_comm(world, MPI_COMM_WORLD, rank, fate);
    publish_comm(self, MPI_COMM_SELF, 0, TWILL_MPI_FATE_ALONE);
    if (rank == 0)
        count_fate(fate);
    return true;
}

void twill_mpi_comms_forget(void)
{
    struct twill_mpi_comm *world = twill_mpi_comm_find(MPI_COMM_WORLD);
    if (world == NULL)
        return;
    twill_mpi_memo_forget(world);
    world->comm = NULL;
    world->why = TWILL_MPI_WHY_OFF;
}

bool twill_mpi_comms_close(void)
{
    struct twill_mpi_comms *comms = &twill_mpi.comms;
    for (unsigned p = 0; p < TWILL_MPI_BUCKETS; p++)
        for (struct twill_mpi_comm *c = atomic_load(&comms->bucket[p]); c != NULL; c = c->next)
            if (!comm_is_of(c, MPI_COMM_NULL))
                free_or_defer(c);
    uint64_t from = twill_now();
    PMPI_Comm_free_keyval(&comms->keyval);
    PMPI_Group_free(&comms->world);
    while (reap_comms(true) > 0 && twill_now() - from < TWILL_MPI_END_NS)
        twill_yield();
    return comms->deferred == NULL;
}

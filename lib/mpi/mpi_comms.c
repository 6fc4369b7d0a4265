/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: found by their handles, adopted when they are made, and gone when they are freed.
 *
 * The table is read without locks: entries are pushed to the front of their place and stay there as
 * long as the process; one whose communicator has gone serves for another of the same place.
 *
 * An attribute tells that a communicator is freed, by whatever call. Its ranks need not meet then:
 * each starts a barrier as the last thing it does on the twill communicator, once its requests are
 * over, and the communicator goes when that is complete, which is looked at whenever another one is
 * made or freed. Not by the attribute: MPICH calls it when the last message goes, which may be
 * while twill waits and the MPI is given a turn. */
#include "lib/mpi/mpi_call.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PATIENCE_NS UINT64_C(5000000000) /* for farewells at the end: all ranks have come to it */

/* --- the table ------------------------------------------------------------------------------- */

static _Atomic(struct twill_mpi_comm *) *place_of(MPI_Comm handle)
{
    uint64_t hash = (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15);
    return &twill_mpi.comms.place[(hash >> 40) % TWILL_MPI_PLACES];
}

static inline bool comm_is_of(struct twill_mpi_comm *comm, MPI_Comm handle)
{
    return atomic_load_explicit(&comm->handle, memory_order_acquire) == handle;
}

struct twill_mpi_comm *twill_mpi_comm_find(MPI_Comm handle)
{
    struct twill_mpi_comms *comms = &twill_mpi.comms;
    struct twill_mpi_comm *comm = atomic_load_explicit(&comms->last, memory_order_relaxed);
    if (handle == MPI_COMM_NULL)
        return NULL;
    if (TWILL_LIKELY(comm != NULL && comm_is_of(comm, handle)))
        return comm;
    comm = atomic_load_explicit(place_of(handle), memory_order_acquire);
    while (comm != NULL && !comm_is_of(comm, handle))
        comm = comm->next;
    if (comm != NULL && !twill_mpi.multiple)
        atomic_store_explicit(&comms->last, comm, memory_order_relaxed);
    return comm;
}

MPI_Comm twill_mpi_error_comm(const struct twill_mpi_comm *comm)
{
    MPI_Comm handle = MPI_COMM_NULL;
    if (comm != NULL && comm->of == NULL)
        handle = atomic_load(&comm->handle);
    else if (comm != NULL && atomic_load(&comm->of->lives) == comm->of_lives)
        handle = atomic_load(&comm->of->handle);
    return handle != MPI_COMM_NULL ? handle : MPI_COMM_WORLD;
}

/* An entry in the place of this handle, not yet found by it. */
static struct twill_mpi_comm *take_entry(MPI_Comm handle, int size)
{
    size_t *numbers = calloc((size_t)size * 4, sizeof(*numbers));
    if (numbers == NULL)
        return NULL;
    _Atomic(struct twill_mpi_comm *) *place = place_of(handle);
    pthread_mutex_lock(&twill_mpi.comms.lock);
    struct twill_mpi_comm *comm = atomic_load(place);
    while (comm != NULL && comm->held)
        comm = comm->next;
    if (comm == NULL && (comm = calloc(1, sizeof(*comm))) != NULL) {
        pthread_mutex_init(&comm->lock, NULL);
        atomic_store(&comm->handle, MPI_COMM_NULL);
        comm->next = atomic_load(place);
        atomic_store_explicit(place, comm, memory_order_release);
    }
    if (comm != NULL) {
        comm->held = true;
        atomic_fetch_add(&comm->lives, 1);
        comm->size = size;
        comm->numbers = numbers;
    } else {
        free(numbers);
    }
    pthread_mutex_unlock(&twill_mpi.comms.lock);
    return comm;
}

static void give_entry(struct twill_mpi_comm *comm)
{
    free(comm->numbers);
    free(comm->scratch);
    if (comm->of != NULL) {
        pthread_mutex_destroy(&comm->lock);
        free(comm);
        return;
    }
    comm->numbers = NULL;
    comm->scratch = NULL;
    comm->scratch_bytes = 0;
    comm->comm = NULL;
    comm->parting = false;
    comm->broken_code = 0;
    pthread_mutex_lock(&twill_mpi.comms.lock);
    comm->held = false;
    pthread_mutex_unlock(&twill_mpi.comms.lock);
}

/* --- leave ----------------------------------------------------------------------------------- */

/* Has all that this rank has begun on it come to its end, and everybody else's as far as it
 * matters? at_once: what the program has left open does not count. Who is at it now may be in a
 * function of the program's, which may want a lock of the MPI's that is held here: not waited for.
 */
static bool has_parted(struct twill_mpi_comm *comm, bool at_once)
{
    int done = 0;
    if (!twill_mpi_try_lock(comm))
        return false;
    if (!comm->parting && (at_once || atomic_load(&comm->requests) == 0)) {
        comm->parting = true;
        if (twill_barrier_start(comm->comm, &comm->farewell) != TWILL_OK)
            comm->farewell = NULL; /* it is broken: there is nobody to wait for */
    }
    if (comm->parting && comm->farewell != NULL)
        (void)twill_test(&comm->farewell, &done);
    bool parted = comm->parting && comm->farewell == NULL;
    twill_mpi_unlock(comm);
    return parted;
}

/* Behind all others. */
static void defer_free(struct twill_mpi_comm *comm)
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

/* The first, or NULL if there are no more, or it is `end`, which has been asked before. */
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

/* What can go goes; `making` is held. How many were asked and stay is returned. A program may free
 * a thousand at a time, and the other ranks later: few are asked at a time, then, each in turn. */
static unsigned reap_comms(bool at_once)
{
    unsigned left = 0;
    struct twill_mpi_comm *comm, *end = NULL; /* the first that stays */
    while ((at_once || left < DEFERRED_CHECKED) && (comm = take_deferred(end)) != NULL) {
        if (has_parted(comm, at_once)) {
            twill_comm_leave(comm->comm);
            give_entry(comm);
            continue;
        }
        end = left++ == 0 ? comm : end;
        defer_free(comm);
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

/* Its communicator is no more. */
static void free_or_defer(struct twill_mpi_comm *comm)
{
    atomic_store(&comm->handle, MPI_COMM_NULL);
    if (comm->comm == NULL)
        give_entry(comm);
    else
        defer_free(comm);
}

/* The attribute's. Others may hold `making` here, and this thread is inside the MPI, and may be in
 * twill, which waits. */
static int comm_freed(MPI_Comm handle, int keyval, void *value, void *extra)
{
    struct twill_mpi_comm *comm = value;
    (void)keyval, (void)extra;
    if (!atomic_load(&twill_mpi.ready) || !comm_is_of(comm, handle))
        return MPI_SUCCESS; /* all have gone */
    free_or_defer(comm);
    return MPI_SUCCESS;
}

/* --- come ------------------------------------------------------------------------------------ */

/* A communicator keeps a descriptor for each rank of its node, and the program is to have its own:
 * it gets half of what is allowed. The lowest free one tells how many are in use. */
static bool descriptors_suffice(int size)
{
    struct rlimit limit;
    int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (lowest < 0)
        return false;
    close(lowest);
    return getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           (rlim_t)lowest + (rlim_t)size < limit.rlim_cur / 2;
}

#define RANKS_AT_ONCE 64

/* The ranks in twill's world of all of this communicator, to ranks[] (or NULL: there is no memory
 * for them). Where some are of no other world than theirs its ranks cannot ask each other: each
 * must find that by itself, with memory or without. */
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

static enum twill_mpi_fate find_world_ranks(MPI_Comm handle, int size, int *ranks)
{
    MPI_Group here;
    if (PMPI_Comm_group(handle, &here) != MPI_SUCCESS)
        return TWILL_MPI_FATE_MEMORY;
    enum twill_mpi_fate fate = find_ranks(here, twill_mpi.comms.world, size, ranks);
    PMPI_Group_free(&here);
    return fate;
}

/* What its ranks know without asking each other. */
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

static void note_failure(void)
{
    pthread_mutex_lock(&twill_mpi.comms.lock);
    if (twill_mpi.comms.failure[0] == '\0')
        snprintf(twill_mpi.comms.failure, sizeof(twill_mpi.comms.failure), "%s",
                 twill_context_message(twill_mpi.context));
    pthread_mutex_unlock(&twill_mpi.comms.lock);
}

/* What twill makes for a communicator: itself, and for a persistent call its request. */
static twill_status make_comm(struct twill_mpi_comm *comm, const int *ranks,
                              struct twill_mpi_talk *talk, const struct twill_mpi_bound *bound,
                              twill_request **request)
{
    twill_status status = twill_comm_create_over(&comm->comm, twill_mpi.world, comm->size, ranks,
                                                 twill_mpi_exchange, talk);
    if (status == TWILL_OK && bound != NULL)
        status = twill_mpi_issue(bound, request);
    return status;
}

/* All ranks, `making` held by those for whom fate is still ADOPTED. */
static enum twill_mpi_fate set_up_comm(struct twill_mpi_comm *comm, MPI_Comm handle,
                                       const int *ranks, enum twill_mpi_fate fate,
                                       const struct twill_mpi_bound *bound, twill_request **request)
{
    struct twill_mpi_talk talk;
    if (!twill_mpi_talk_open(&talk, handle) && fate == TWILL_MPI_FATE_ADOPTED)
        fate = TWILL_MPI_FATE_MEMORY;
    int worst = twill_mpi_most(handle, (int)fate);
    if (worst != TWILL_MPI_FATE_ADOPTED) {
        twill_mpi_talk_close(&talk);
        return worst > TWILL_MPI_FATE_FAILED ? TWILL_MPI_FATE_FAILED : (enum twill_mpi_fate)worst;
    }
    twill_status status = make_comm(comm, ranks, &talk, bound, request);
    if (status != TWILL_OK)
        note_failure();
    /* All have a communicator, or none: only what comes behind it may differ. */
    bool fine = (status == TWILL_OK && bound == NULL) || twill_mpi_agree(&talk, status == TWILL_OK);
    twill_mpi_talk_close(&talk);
    if (fine)
        return TWILL_MPI_FATE_ADOPTED;
    if (request != NULL)
        (void)twill_request_free(request);
    twill_comm_leave(comm->comm); /* nobody has used it, nor will */
    comm->comm = NULL;
    return TWILL_MPI_FATE_FAILED;
}

static enum twill_mpi_fate adopt_comm(struct twill_mpi_comm *comm, MPI_Comm handle, int size,
                                      const struct twill_mpi_bound *bound, twill_request **request)
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

/* From now on it is found. */
static void publish_comm(struct twill_mpi_comm *comm, MPI_Comm handle, int rank,
                         enum twill_mpi_fate fate)
{
    comm->rank = rank;
    comm->why = fate == TWILL_MPI_FATE_ADOPTED   ? TWILL_MPI_WHY_TAKEN
                : fate == TWILL_MPI_FATE_ALONE   ? TWILL_MPI_WHY_ONE_RANK
                : fate == TWILL_MPI_FATE_BETWEEN ? TWILL_MPI_WHY_INTER
                                                 : TWILL_MPI_WHY_COMM;
    twill_mpi_quicker_find(comm);
    atomic_store_explicit(&comm->handle, handle, memory_order_release);
}

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
    if (comm != NULL) /* freed, and the attribute did not tell */
        free_or_defer(comm);
    comm = take_entry(handle, size);
    if (comm != NULL && PMPI_Comm_set_attr(handle, twill_mpi.comms.keyval, comm) != MPI_SUCCESS) {
        give_entry(comm);
        comm = NULL;
    }
    if (fate == TWILL_MPI_FATE_ADOPTED)
        fate = adopt_comm(comm, handle, size, NULL, NULL);
    if (comm != NULL)
        publish_comm(comm, handle, rank, fate);
    if (rank == 0)
        count_fate(fate);
}

/* --- another one of the same ranks ----------------------------------------------------------- */

struct twill_mpi_comm *twill_mpi_comm_another(struct twill_mpi_comm *of)
{
    struct twill_mpi_comm *comm = calloc(1, sizeof(*comm));
    size_t *numbers = calloc((size_t)of->size * 4, sizeof(*numbers));
    if (comm == NULL || numbers == NULL) {
        free(comm);
        free(numbers);
        return NULL;
    }
    pthread_mutex_init(&comm->lock, NULL);
    comm->size = of->size;
    comm->rank = of->rank;
    comm->numbers = of->numbers;
    of->numbers = numbers;
    comm->of = of;
    comm->of_lives = atomic_load(&of->lives);
    atomic_store(&comm->handle, MPI_COMM_NULL);
    return comm;
}

bool twill_mpi_comm_share(const struct twill_mpi_comm *of, struct twill_mpi_comm *another,
                          const struct twill_mpi_bound *bound, twill_request **request)
{
    *request = NULL;
    if (adopt_comm(bound != NULL ? another : NULL, atomic_load(&of->handle), of->size, bound,
                   request) == TWILL_MPI_FATE_ADOPTED)
        return true;
    if (another != NULL)
        give_entry(another);
    return false;
}

void twill_mpi_comm_end(struct twill_mpi_comm *another)
{
    defer_free(another);
    twill_mpi_comms_reap();
}

/* --- first and last -------------------------------------------------------------------------- */

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
    world->comm = NULL;
    world->why = TWILL_MPI_WHY_OFF;
}

bool twill_mpi_comms_close(void)
{
    struct twill_mpi_comms *comms = &twill_mpi.comms;
    for (unsigned p = 0; p < TWILL_MPI_PLACES; p++)
        for (struct twill_mpi_comm *c = atomic_load(&comms->place[p]); c != NULL; c = c->next)
            if (!comm_is_of(c, MPI_COMM_NULL))
                free_or_defer(c);
    uint64_t from = twill_now();
    PMPI_Comm_free_keyval(&comms->keyval);
    PMPI_Group_free(&comms->world);
    while (reap_comms(true) > 0 && twill_now() - from < PATIENCE_NS)
        sched_yield();
    return comms->deferred == NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments that MPI does not allow. A call that the MPI below refuses at once is passed on to it,
 * as it has the error class and the message. A call that it does not check must not be passed on,
 * because it would crash, or wait for ranks that are in twill. Such a call FAILS instead. Which
 * calls are refused was found by making each wrong call on one rank alone, with Open MPI 4.1.4 and
 * MPICH 4.0.2. A call that is not known to be refused is not passed on. */
#include "lib/base/times.h"
#include "lib/mpi/mpi_requests.h"
#include "lib/twill_recover.h"

#include <stdlib.h>

static const char *const wrong_names[] = {
    [TWILL_MPI_WRONG_ROOT] = "the root is not a rank of the communicator",
    [TWILL_MPI_WRONG_TYPE] = "the datatype is MPI_DATATYPE_NULL",
    [TWILL_MPI_WRONG_UNCOMMITTED] = "the MPI cannot pack this datatype: is it committed?",
    [TWILL_MPI_WRONG_COUNT] = "a count is negative",
    [TWILL_MPI_WRONG_ARRAY] = "an array of counts or displacements is missing",
    [TWILL_MPI_WRONG_PLACE] = "MPI_IN_PLACE is not allowed here",
    [TWILL_MPI_WRONG_ADDRESS] = "a buffer is missing",
    [TWILL_MPI_WRONG_ALIAS] = "send and receive buffer are the same",
    [TWILL_MPI_WRONG_SIZE] = "counts, displacements and types exceed any memory",
};

/* Users may turn argument checks off, and MPIs may be built without them. A message to
 * MPI_PROC_NULL with an invalid tag shows this without sending anything. */
void twill_mpi_checks_find(void)
{
    const int none = 0, no_tag = -5;
    twill_mpi.checks =
        PMPI_Send(&none, 0, MPI_INT, MPI_PROC_NULL, no_tag, twill_mpi.shadow) != MPI_SUCCESS;
}

#if defined(OPEN_MPI)

/* Return whether Open MPI refuses a call with the fault `what`, one of TWILL_MPI_WRONG_* without
 * RECEIVED. `received` says that the fault is on the receive side. */
static bool call_is_refused(const struct twill_mpi_call *call, const struct twill_mpi_comm *comm,
                            unsigned what, bool received)
{
    const bool to_all = call->kind == TWILL_MPI_Alltoall || call->kind == TWILL_MPI_Alltoallv;
    const bool scattered = call->kind == TWILL_MPI_Scatter && !received;
    (void)comm;
    switch (what) {
    case TWILL_MPI_WRONG_ROOT:
    case TWILL_MPI_WRONG_PLACE:
        return true;
    case TWILL_MPI_WRONG_TYPE:
        return !scattered;
    case TWILL_MPI_WRONG_COUNT:
    case TWILL_MPI_WRONG_ARRAY:
        return !scattered && !(call->kind == TWILL_MPI_Allgatherv && received);
    case TWILL_MPI_WRONG_UNCOMMITTED:
        return to_all || !(scattered || received);
    case TWILL_MPI_WRONG_ALIAS:
        return call->kind == TWILL_MPI_Reduce;
    default:
        return false;
    }
}

#else

/* Return whether MPICH refuses a call with the fault `what`, one of TWILL_MPI_WRONG_* without
 * RECEIVED. It checks most arguments, but no arrays. It treats both sides alike, so `received` is
 * not used. */
static bool call_is_refused(const struct twill_mpi_call *call, const struct twill_mpi_comm *comm,
                            unsigned what, bool received)
{
    const bool reduces = call->kind == TWILL_MPI_Allreduce || call->kind == TWILL_MPI_Reduce ||
                         call->kind == TWILL_MPI_Reduce_scatter_block;
    const bool rooted = call->kind == TWILL_MPI_Reduce || call->kind == TWILL_MPI_Gather ||
                        call->kind == TWILL_MPI_Gatherv || call->kind == TWILL_MPI_Scatter ||
                        call->kind == TWILL_MPI_Scatterv;
    (void)received;
    switch (what) {
    case TWILL_MPI_WRONG_ROOT:
    case TWILL_MPI_WRONG_TYPE:
    case TWILL_MPI_WRONG_ADDRESS:
    case TWILL_MPI_WRONG_ALIAS:
        return true;
    case TWILL_MPI_WRONG_COUNT:
        return !reduces || call->form == TWILL_MPI_NONBLOCKING;
    case TWILL_MPI_WRONG_PLACE:
        return call->kind != TWILL_MPI_Bcast && (!rooted || call->root == comm->rank);
    case TWILL_MPI_WRONG_UNCOMMITTED:
        return call->kind != TWILL_MPI_Bcast || call->recv.count > 0;
    default:
        return false;
    }
}

#endif

bool twill_mpi_is_refused(const struct twill_mpi_call *call, const struct twill_mpi_comm *comm,
                          unsigned wrong)
{
    /* All ranks decide together about a persistent call. */
    return twill_mpi.checks && call->form != TWILL_MPI_PERSISTENT &&
           call_is_refused(call, comm, wrong & ~(unsigned)TWILL_MPI_WRONG_RECEIVED,
                           (wrong & TWILL_MPI_WRONG_RECEIVED) != 0);
}

enum twill_mpi_why twill_mpi_wrong(const struct twill_mpi_call *call, struct twill_mpi_bound *bound,
                                   unsigned wrong)
{
    if (twill_mpi_is_refused(call, bound->comm, wrong))
        return TWILL_MPI_WHY_ERRONEOUS;
    twill_mpi_say("%s: %s", twill_mpi_kind_names[call->kind],
                  wrong_names[wrong & ~(unsigned)TWILL_MPI_WRONG_RECEIVED]);
    twill_mpi_bound_fail(bound, TWILL_ERR_ARGUMENT);
    return TWILL_MPI_WHY_TAKEN;
}

/* When the MPI below refuses a call on one rank, the program continues. The other ranks may be in
 * that call in twill, and would wait for this rank for ever. It therefore sends each of them a
 * notice on `shadow`, which they find while they wait. If a rank is in this very call, and still is
 * TWILL_MPI_REFUSED_NS later, it revokes the twill communicator, so that the call fails on all
 * ranks. In the meantime the first rank may repeat the call with valid arguments. */

#define NOTICE_INTS ((int)(sizeof(struct twill_mpi_notice) / sizeof(int)))

void twill_mpi_refused(const struct twill_mpi_call *call)
{
    struct twill_mpi_comm *comm = twill_mpi_comm_find(call->comm);
    if (comm == NULL || comm->comm == NULL || comm->refusal.own == comm->refusal.calls + 1)
        return; /* not twill's, or the others know already */
    struct twill_mpi_refusal *mine = &comm->refusal;
    int *ranks = malloc(sizeof(*ranks) * (size_t)comm->size);
    mine->own = mine->calls + 1;
    mine->notice = (struct twill_mpi_notice){mine->number, mine->own, (int)call->kind};
    const bool known = ranks != NULL && twill_mpi_world_ranks(call->comm, comm->size, ranks);
    if (known)
        mine->rank = ranks[comm->rank];
    for (int r = 0; known && r < comm->size; r++) {
        MPI_Request request = MPI_REQUEST_NULL;
        if (r != comm->rank &&
            PMPI_Isend(&mine->notice, NOTICE_INTS, MPI_INT, ranks[r], TWILL_MPI_TAG_REFUSED,
                       twill_mpi.shadow, &request) == MPI_SUCCESS)
            (void)PMPI_Request_free(&request);
    }
    free(ranks);
}

/* Call a function with each adopted communicator of the table, also with freed ones that are not
 * yet released. Clones are not in the table. */
static void each_adopted(void (*visit)(struct twill_mpi_comm *comm, void *user), void *user)
{
    for (unsigned b = 0; b < TWILL_MPI_BUCKETS; b++)
        for (struct twill_mpi_comm *c = atomic_load(&twill_mpi.comms.bucket[b]); c != NULL;
             c = c->next)
            if (c->comm != NULL)
                visit(c, user);
}

/* A notice of a refused call, with the rank in MPI_COMM_WORLD that sent it. A variable of
 * twill_mpi_refusals_read(). */
struct received_notice {
    struct twill_mpi_notice notice;
    int from;
};

/* Store *user, a received_notice, in comm->refusal if its call is one on `comm`. Then also set
 * twill_mpi.refusals, so that waiting ranks look for calls that another rank was refused. For
 * each_adopted(). */
static void note_refusal(struct twill_mpi_comm *comm, void *user)
{
    const struct received_notice *received = user;
    struct twill_mpi_refusal *refusal = &comm->refusal;
    if (refusal->number != received->notice.number)
        return;
    refusal->kind = received->notice.kind;
    refusal->rank = received->from;
    refusal->found_at = twill_now();
    atomic_store(&refusal->of, received->notice.call);
    atomic_store(&twill_mpi.refusals, true);
}

void twill_mpi_refusals_read(void)
{
    struct received_notice received;
    MPI_Status status;
    int there = 0;
    if (pthread_mutex_trylock(&twill_mpi.self.lock) != 0)
        return; /* a later poll reads the notices */
    while (PMPI_Iprobe(MPI_ANY_SOURCE, TWILL_MPI_TAG_REFUSED, twill_mpi.shadow, &there, &status) ==
               MPI_SUCCESS &&
           there) {
        received.from = status.MPI_SOURCE;
        if (PMPI_Recv(&received.notice, NOTICE_INTS, MPI_INT, received.from, TWILL_MPI_TAG_REFUSED,
                      twill_mpi.shadow, MPI_STATUS_IGNORE) == MPI_SUCCESS)
            each_adopted(note_refusal, &received);
    }
    pthread_mutex_unlock(&twill_mpi.self.lock);
}

/* Return whether this rank waits in the call on `comm` that the MPI refused to another rank.
 * `refused` is its index among the communicator's calls, from 1. Returns false if another thread
 * holds the lock, as a later check follows. */
static bool waits_for_refused(struct twill_mpi_comm *comm, int refused)
{
    const struct twill_mpi_refusal *refusal = &comm->refusal;
    if (refusal->waits_in >= 0)
        return refusal->waits_in == refusal->kind && refusal->calls == refused;
    if (!twill_mpi_try_lock(comm))
        return false;
    const struct twill_mpi_request *oldest = comm->active;
    const bool waits =
        oldest != NULL && oldest->call == refused && (int)oldest->bound.kind == refusal->kind;
    twill_mpi_unlock(comm);
    return waits;
}

/* Revoke a communicator if this rank has long waited in a call that another rank was refused. A
 * call that this rank was also refused does not count. For each_adopted(). */
static void give_up(struct twill_mpi_comm *comm, void *user)
{
    struct twill_mpi_refusal *refusal = &comm->refusal;
    const int refused = atomic_load(&refusal->of);
    (void)user;
    if (refused == 0 || refused == refusal->own || atomic_load(&refusal->given_up) ||
        twill_now() - refusal->found_at < TWILL_MPI_REFUSED_NS || !waits_for_refused(comm, refused))
        return;
    atomic_store(&refusal->given_up, true);
    (void)twill_comm_revoke(comm->comm);
}

void twill_mpi_refusals_check(void)
{
    each_adopted(give_up, NULL);
}

bool twill_mpi_is_given_up(struct twill_mpi_comm *comm, twill_status status)
{
    struct twill_mpi_refusal *refusal = &comm->refusal;
    if (status != TWILL_ERR_REVOKED || atomic_load(&refusal->given_up))
        return atomic_load(&refusal->given_up);
    twill_mpi_refusals_read();
    const int refused = atomic_load(&refusal->of);
    if ((refused != 0 && refusal->calls >= refused) ||
        (refusal->own != 0 && refusal->calls >= refusal->own))
        atomic_store(&refusal->given_up, true);
    return atomic_load(&refusal->given_up);
}

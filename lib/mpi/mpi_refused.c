/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that the MPI below refuses to one rank. The program goes on, but the other ranks may be in
 * that call, in twill, and would wait for this one for ever. So it sends each of them a notice on
 * `shadow`, which they find while they wait. Those that are in this very call, and still are
 * TWILL_MPI_REFUSED_NS later, revoke the twill communicator, so that the call fails on all of them.
 * In the meantime the rank may make the call again, rightly. */
#include "lib/base/times.h"
#include "lib/mpi/mpi_requests.h"
#include "lib/twill_recover.h"

#include <stdlib.h>

#define NOTICE_INTS ((int)(sizeof(struct twill_mpi_notice) / sizeof(int)))

void twill_mpi_refused(const struct twill_mpi_call *call)
{
    struct twill_mpi_comm *comm = twill_mpi_comm_find(call->comm);
    if (comm == NULL || comm->comm == NULL || comm->refusal.own == comm->refusal.calls + 1)
        return; /* not twill's, or told already */
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

/* Call a function with each communicator that twill has adopted. */
static void each_adopted(void (*visit)(struct twill_mpi_comm *comm, void *user), void *user)
{
    for (unsigned b = 0; b < TWILL_MPI_BUCKETS; b++)
        for (struct twill_mpi_comm *c = atomic_load(&twill_mpi.comms.bucket[b]); c != NULL;
             c = c->next)
            if (c->comm != NULL)
                visit(c, user);
}

struct received_notice {
    struct twill_mpi_notice notice;
    int from;
};

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
        return; /* a later poll reads them */
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

/* Return whether this rank waits in the call that another one was refused. */
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

/* A call that was refused to this rank, too, nobody waits in. */
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

/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators of persistent collectives. They are created, kept while idle and used again.
 * Creating one takes several exchanges and maps memory, using one again takes two exchanges. */
#include "lib/mpi/mpi_clones.h"
#include "lib/twill_recover.h"

#include <stdlib.h>

/* Most clones of a parent that are kept, because each holds descriptors and memory of the node. */
#define KEPT 32u
/* Bit in a rank's offer that says that the rank lacks nothing. The other bits are idle clones. */
#define LACKS_NOTHING (UINT64_C(1) << 63)

struct twill_mpi_comm *twill_mpi_clone_create(struct twill_mpi_comm *parent)
{
    struct twill_mpi_comm *comm = calloc(1, sizeof(*comm));
    size_t *numbers = calloc((size_t)parent->size * 4, sizeof(*numbers));
    if (comm == NULL || numbers == NULL) {
        free(comm);
        free(numbers);
        return NULL;
    }
    comm->size = parent->size;
    comm->rank = parent->rank;
    comm->scratch.numbers = parent->scratch.numbers;
    parent->scratch.numbers = numbers;
    comm->as_clone.parent = parent;
    comm->as_clone.generation = atomic_load(&parent->generation);
    atomic_store(&comm->handle, MPI_COMM_NULL);
    return comm;
}

/* Return this rank's offer, with a bit for each clone that is idle and not broken, and the bit
 * LACKS_NOTHING. A rank that lacks something for a new clone offers 0 instead of calling this. */
static uint64_t offer_idle(const struct twill_mpi_comm *parent)
{
    uint64_t offer = LACKS_NOTHING;
    pthread_mutex_lock(&twill_mpi.comms.lock);
    for (const struct twill_mpi_comm *c = parent->clones; c != NULL; c = c->as_clone.next)
        if (c->as_clone.idle && c->broken_code == 0)
            offer |= UINT64_C(1) << c->as_clone.number;
    pthread_mutex_unlock(&twill_mpi.comms.lock);
    return offer;
}

/* Choose a communicator of an earlier persistent request for a new one, and mark it as used. Bit i
 * of `common` says that number i in the parent's list is idle on all ranks. Returns the lowest of
 * these, or NULL if `common` is 0. */
static struct twill_mpi_comm *take_idle(struct twill_mpi_comm *parent, uint64_t common)
{
    if (common == 0)
        return NULL;
    const unsigned number = (unsigned)__builtin_ctzll(common);
    pthread_mutex_lock(&twill_mpi.comms.lock);
    struct twill_mpi_comm *clone = parent->clones;
    while (clone->as_clone.number != number)
        clone = clone->as_clone.next;
    clone->as_clone.idle = false;
    pthread_mutex_unlock(&twill_mpi.comms.lock);
    return clone;
}

/* Number and list a new clone. All ranks number alike, as it is created on all or on none. */
static void list_clone(struct twill_mpi_comm *parent, struct twill_mpi_comm *clone)
{
    pthread_mutex_lock(&twill_mpi.comms.lock);
    clone->as_clone.number = parent->clones_made++;
    clone->as_clone.next = parent->clones;
    parent->clones = clone;
    pthread_mutex_unlock(&twill_mpi.comms.lock);
}

/* Remove a clone from its parent's list if it is still in it. The caller holds comms.lock. */
static void unlist_clone(struct twill_mpi_comm *clone)
{
    struct twill_mpi_comm **at = &clone->as_clone.parent->clones;
    if (atomic_load(&clone->as_clone.parent->generation) != clone->as_clone.generation)
        return;
    while (*at != NULL && *at != clone)
        at = &(*at)->as_clone.next;
    if (*at == clone)
        *at = clone->as_clone.next;
}

/* Make the bound persistent request on `clone`, whose earlier request was freed. Swap arrays with
 * `fresh`, because the call is bound to those of `fresh`, and release `fresh`. Returns true if all
 * ranks succeed. If any fails, marks `clone` as broken, so that it is never used again. */
static bool use_again(struct twill_mpi_comm *clone, struct twill_mpi_comm *fresh,
                      struct twill_mpi_oob *oob, struct twill_mpi_bound *bound,
                      twill_request **request)
{
    size_t *numbers = clone->scratch.numbers;
    clone->scratch.numbers = fresh->scratch.numbers;
    fresh->scratch.numbers = numbers;
    bound->comm = clone;
    twill_mpi_comm_release(fresh);
    if (twill_mpi_agree(oob, twill_mpi_issue(bound, request) == TWILL_OK))
        return true;
    (void)twill_request_free(request);
    pthread_mutex_lock(&twill_mpi.comms.lock);
    clone->broken_code = MPI_ERR_OTHER;
    clone->as_clone.idle = true;
    pthread_mutex_unlock(&twill_mpi.comms.lock);
    return false;
}

bool twill_mpi_clone_set_up(struct twill_mpi_comm *parent, struct twill_mpi_comm *clone, bool lacks,
                            struct twill_mpi_bound *bound, twill_request **request)
{
    const MPI_Comm handle = atomic_load(&parent->handle);
    struct twill_mpi_oob oob;
    *request = NULL;
    const bool able = twill_mpi_oob_open(&oob, handle) && clone != NULL && !lacks;
    const uint64_t common = twill_mpi_common(handle, able ? offer_idle(parent) : 0);
    bool done = false;
    if ((common & LACKS_NOTHING) != 0) {
        struct twill_mpi_comm *idle = take_idle(parent, common & ~LACKS_NOTHING);
        if (idle != NULL) {
            done = use_again(idle, clone, &oob, bound, request);
            clone = NULL;
        } else {
            done = twill_mpi_comm_set_up(clone, handle, parent->size, bound, request) ==
                   TWILL_MPI_FATE_ADOPTED;
            if (done)
                list_clone(parent, clone);
        }
    }
    twill_mpi_oob_close(&oob);
    if (!done && clone != NULL)
        twill_mpi_comm_release(clone);
    return done;
}

void twill_mpi_clone_free(struct twill_mpi_comm *clone)
{
    pthread_mutex_lock(&twill_mpi.comms.lock);
    const bool orphan =
        atomic_load(&clone->as_clone.parent->generation) != clone->as_clone.generation ||
        atomic_load(&clone->as_clone.parent->handle) == MPI_COMM_NULL;
    clone->as_clone.idle = !orphan && clone->as_clone.number < KEPT;
    const bool kept = clone->as_clone.idle;
    if (!kept)
        unlist_clone(clone);
    pthread_mutex_unlock(&twill_mpi.comms.lock);
    if (!kept)
        twill_mpi_comm_defer_free(clone);
    twill_mpi_comms_reap();
}

void twill_mpi_clones_close(struct twill_mpi_comm *parent)
{
    struct twill_mpi_comm *idle = NULL;
    pthread_mutex_lock(&twill_mpi.comms.lock);
    for (struct twill_mpi_comm *c = parent->clones, *next; c != NULL; c = next) {
        next = c->as_clone.next;
        c->as_clone.next = c->as_clone.idle ? idle : NULL;
        idle = c->as_clone.idle ? c : idle;
    }
    parent->clones = NULL;
    parent->clones_made = 0;
    pthread_mutex_unlock(&twill_mpi.comms.lock);
    for (struct twill_mpi_comm *next; idle != NULL; idle = next) {
        next = idle->as_clone.next;
        twill_mpi_comm_defer_free(idle);
    }
}

/* Return a clone not yet revoked, marked as such and kept from release, or NULL if none is left. */
static struct twill_mpi_comm *hold_unrevoked(struct twill_mpi_comm *parent)
{
    pthread_mutex_lock(&twill_mpi.comms.lock);
    struct twill_mpi_comm *clone = parent->clones;
    while (clone != NULL && atomic_load(&clone->revoked))
        clone = clone->as_clone.next;
    if (clone != NULL) {
        atomic_store(&clone->revoked, true);
        atomic_fetch_add(&clone->revoking, 1);
    }
    pthread_mutex_unlock(&twill_mpi.comms.lock);
    return clone;
}

void twill_mpi_clones_revoke(struct twill_mpi_comm *parent)
{
    struct twill_mpi_comm *clone;
    atomic_store(&parent->revoked, true);
    (void)twill_comm_revoke(parent->comm);
    while ((clone = hold_unrevoked(parent)) !=
           NULL) { /* without the lock, as it notifies other hosts */
        (void)twill_comm_revoke(clone->comm);
        atomic_fetch_sub(&clone->revoking, 1);
    }
}

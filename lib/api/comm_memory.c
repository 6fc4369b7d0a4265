/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a communicator: how much it is, and how to suspend it. That gives back the memory
 * that only its calls use, until its next call.
 *
 * All ranks have no request under way, and have agreed on that. On each node:
 *   1. They meet. No rank reads any more what others have written in the last call.
 *   2. Each gives back its own memory: copies of SHARED, immediates, events, and slots without a
 *      message in them. The records that others read to explain failures stay.
 *   3. They meet again. From here on a rank may make its next call and write to another's memory.
 * A rank resumes by itself when it makes a call. It waits for no other, as the kernel makes pages
 * at their first use, all counts go on, and an immediate or a slot of zeros has not arrived. */
#include "fabric/shm/node_memory.h"
#include "lib/api/api_internal.h"
#include "lib/twill_memory.h"

/* Return the memory that the communicator has now, and raise comm->peak to it. *most becomes the
 * bytes to which its shared memory can grow, and *descriptors how many it has. The caller holds it.
 */
static struct twill_comm_bytes measure(struct twill_comm *comm, size_t *most, unsigned *descriptors)
{
    struct twill_transport_holding held = {.bytes = twill_engine_bytes(&comm->engine)};
    for (unsigned t = 0; t < comm->links.transports; t++)
        twill_transport_hold(comm->links.transport[t], &held);
    struct twill_comm_bytes now = {twill_node_resident(comm->node, most), held.bytes};
    *descriptors = twill_node_descriptors(comm->node) + held.descriptors;
    comm->peak.shared = twill_max(comm->peak.shared, now.shared);
    comm->peak.own = twill_max(comm->peak.own, now.own);
    return now;
}

/* A wait for a rank of the node. */
struct meeting {
    const _Atomic uint64_t *steps;
    uint64_t awaited;
};

static bool has_come(const void *of)
{
    const struct meeting *meeting = of;
    return atomic_load_explicit(meeting->steps, memory_order_acquire) >= meeting->awaited;
}

/* Wait until all ranks of the node have come here as often as this one. Returns TWILL_OK or the
 * error. */
static twill_status meet(struct twill_comm *comm)
{
    struct twill_node *node = comm->node;
    _Atomic uint64_t *own = &node->area[node->me]->suspend.steps;
    uint64_t step = atomic_load_explicit(own, memory_order_relaxed) + 1;
    twill_status status = TWILL_OK;
    atomic_store_explicit(own, step, memory_order_release);
    twill_node_ring_doorbells(node);
    for (uint32_t l = 0; l < node->size && status == TWILL_OK; l++) {
        struct meeting meeting = {&node->area[l]->suspend.steps, step};
        comm->issue.elsewhere = l != node->me ? 1 + node->rank[l] : 0;
        status = twill_comm_wait(comm, has_come, &meeting);
    }
    comm->issue.elsewhere = 0;
    return status;
}

/* Give memory back until the next call, with plans and scratch if `trims`, which all ranks pass
 * alike. None has a request under way. The caller holds the communicator, which is IDLE afterwards.
 * Returns TWILL_OK, or the error with which it broke. */
static twill_status give_back(struct twill_comm *comm, bool trims)
{
    uint32_t live = TWILL_LIVE;
    unsigned descriptors;
    size_t most;
    twill_status status = meet(comm);
    if (status != TWILL_OK)
        return twill_comm_fail(comm, status, TWILL_CAUSE_ASKED);
    (void)measure(comm, &most, &descriptors);
    for (unsigned t = 0; t < comm->links.transports; t++)
        if (comm->links.transport[t]->ops->suspend != NULL)
            comm->links.transport[t]->ops->suspend(comm->links.transport[t]);
    if (trims)
        twill_engine_trim(&comm->engine);
    twill_node_suspend(comm->node);
    status = meet(comm);
    if (status == TWILL_OK) {
        (void)atomic_compare_exchange_strong(&comm->live, &live, TWILL_IDLE);
        return TWILL_OK;
    }
    twill_comm_wake(comm);
    return twill_comm_fail(comm, status, TWILL_CAUSE_ASKED);
}

/* Find out from all ranks whether one has a request under way, and set *trims to whether none has a
 * persistent one. Returns TWILL_OK, TWILL_ERR_ARGUMENT, or the failure of the exchange. */
static twill_status agree_to_suspend(struct twill_comm *comm, bool *trims)
{
    bool pends = atomic_load_explicit(&comm->pending, memory_order_acquire) > 0;
    int32_t mine[2] = {pends ? (int32_t)comm->rank + 1 : 0,
                       twill_engine_has_persistent(&comm->engine)};
    int32_t most[2] = {0};
    const struct twill_call call = {.collective = TWILL_ALLREDUCE,
                                    .src = mine,
                                    .dst = most,
                                    .count = 2,
                                    .type = TWILL_I32,
                                    .op = TWILL_MAX};
    TWILL_TRY(&comm->error, twill_call_held(comm, &call));
    *trims = most[1] == 0;
    if (most[0] > 0)
        return TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT, "comm has a request of %s under way",
                                 TWILL_ENGINE_RANK_NAME(&comm->engine, (uint32_t)most[0] - 1));
    return TWILL_OK;
}

twill_status twill_comm_suspend(twill_comm *comm)
{
    bool trims = false;
    TWILL_TRY(NULL, twill_comm_acquire(comm, "twill_comm_suspend"));
    twill_status status = twill_comm_usable(comm);
    comm->making = "twill_comm_suspend";
    if (status == TWILL_OK && twill_group_is_open(comm->group))
        status = TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT, "comm has an open group of calls");
    if (status == TWILL_OK)
        status = agree_to_suspend(comm, &trims);
    if (status == TWILL_OK)
        status = give_back(comm, trims);
    comm->making = NULL;
    twill_comm_release(comm);
    return status;
}

/* Return how many registrations with networks the communicator's transports hold. */
static uint64_t registrations_of(const struct twill_comm *comm)
{
    uint64_t registrations = 0;
    for (unsigned t = 0; t < comm->links.transports; t++) {
        struct twill_transport_counters sum;
        twill_transport_count(comm->links.transport[t], &sum);
        registrations += sum.registrations - sum.deregistrations;
    }
    return registrations;
}

twill_status twill_comm_memory(twill_comm *comm, twill_memory_usage *usage)
{
    size_t most;
    unsigned descriptors;
    if (!twill_comm_is_live(comm))
        return TWILL_ERR_ARGUMENT;
    TWILL_TRY(NULL, twill_comm_acquire_live(comm, "twill_comm_memory")); /* it stays suspended */
    twill_status status = TWILL_OK;
    if (!comm->broken)
        twill_error_clear(&comm->error);
    if (usage == NULL)
        status = TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT, "usage is NULL");
    else if (usage->bytes < sizeof(*usage))
        status =
            TWILL_COMM_REFUSE(comm, TWILL_ERR_ARGUMENT,
                              "usage: bytes is %zu, not sizeof(twill_memory_usage)", usage->bytes);
    if (status == TWILL_OK) {
        struct twill_comm_bytes now = measure(comm, &most, &descriptors);
        usage->registrations = registrations_of(comm);
        usage->shared_bytes = now.shared;
        usage->shared_peak = comm->peak.shared;
        usage->shared_limit = most;
        usage->private_bytes = now.own;
        usage->private_peak = comm->peak.own;
        usage->descriptors = (int)descriptors;
        usage->suspended = twill_node_suspended_here(comm->node);
    }
    twill_comm_release(comm);
    return status;
}

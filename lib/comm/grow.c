/* SPDX-License-Identifier: Apache-2.0 */
/* Takes new processes into a job. The ranks agree that none has failed and where rank 0 listens.
 * All connect there (fabric/bootstrap/bootstrap_handle.c) and make a new context and communicator
 * as at the start of a job, and the old ranks agree whether all of them have it. A last exchange
 * tells the new processes the result. None of this touches the old communicator. */
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/bootstrap/oob_batch.h"
#include "fabric/bootstrap/twillrun.h"
#include "lib/base/times.h"
#include "lib/comm/comm_internal.h"
#include "lib/job/config.h"
#include "lib/job/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PORT_BITS 16
#define LAYOUT    256 /* bytes of TWILL_LAYOUT=nodes */

/* A handle that rank 0 has made, from twill_growth_open() to twill_growth_close(). */
struct twill_growth {
    int listener;     /* socket, or -1 */
    uint32_t joining; /* number of new processes */
    uint16_t port;
    char handle[TWILL_JOIN_HANDLE_TEXT];
};

/* A growth under way on a rank of the old communicator, on the stack of twill_grow(). */
struct growing {
    struct twill_comm *comm;
    const struct twill_growth_limits *limits; /* or NULL */
    uint32_t joining;                         /* number of new processes */
    uint16_t port;                            /* TCP port on which rank 0 listens for all others */
    struct twill_context *context;            /* the new one, or NULL */
    struct twill_comm *made;                  /* or NULL */
    struct twill_error error;
};

/* Write to text[] the handle by which `joining` more ranks join. They connect to this address. */
static void describe_growth(const struct twill_comm *comm, const char *address, uint16_t port,
                            uint32_t joining, char text[TWILL_JOIN_HANDLE_TEXT])
{
    const struct twill_oob *oob = comm->context->job.oob;
    struct twill_join_handle handle = {.epoch = oob->epoch + 1,
                                       .size = comm->world->size + joining,
                                       .guests = joining,
                                       .port = port};
    memcpy(handle.origin, oob->origin, sizeof(handle.origin));
    snprintf(handle.address, sizeof(handle.address), "%s", address);
    twill_join_handle_write(&handle, text);
}

/* Store the address at which other hosts reach rank 0. If it was alone it may have only a loopback
 * one. Then use TWILL_INTERFACE or what twillrun --elastic found. Returns TWILL_OK or the error. */
static twill_status find_address(struct twill_comm *comm, char address[TWILL_ADDRESS_TEXT],
                                 struct twill_error *error)
{
    char interface[32], why[128];
    struct twill_elastic_job job;
    const char *set = twill_config_text(comm->context->config, TWILL_VARIABLE_INTERFACE);
    snprintf(address, TWILL_ADDRESS_TEXT, "%s",
             twill_detector_address(comm->context->health.detector, comm->job[0]));
    if (set == NULL && twill_elastic_read(&job) && job.address[0] != '\0')
        set = job.address;
    if (comm->context->job.oob->size > 1 || set == NULL)
        return TWILL_OK;
    return twill_interface_choose(address, interface, set, NULL, why, sizeof(why), error);
}

/* Listen for new processes, and write growth->handle for them. Returns TWILL_OK or the error. */
static twill_status listen_for_joiners(struct twill_comm *comm, struct twill_growth *growth,
                                       struct twill_error *error)
{
    char address[TWILL_ADDRESS_TEXT];
    TWILL_TRY(error, find_address(comm, address, error));
    TWILL_TRY(error, twill_recovery_listen(address, comm->world->size + growth->joining,
                                           &growth->listener, &growth->port, error));
    describe_growth(comm, address, growth->port, growth->joining, growth->handle);
    return TWILL_OK;
}

twill_status twill_growth_open(struct twill_comm *comm, uint32_t joining, char *handle,
                               struct twill_error *error)
{
    twill_growth_close(comm);
    comm->health->growth = calloc(1, sizeof(*comm->health->growth));
    if (comm->health->growth == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
    *comm->health->growth = (struct twill_growth){.listener = -1, .joining = joining};
    twill_status status = listen_for_joiners(comm, comm->health->growth, error);
    if (status == TWILL_OK)
        memcpy(handle, comm->health->growth->handle, TWILL_JOIN_HANDLE_TEXT);
    else
        twill_growth_close(comm);
    return status;
}

void twill_growth_close(struct twill_comm *comm)
{
    struct twill_growth *growth = comm->health->growth;
    if (growth != NULL && growth->listener >= 0)
        close(growth->listener);
    free(growth);
    comm->health->growth = NULL;
}

/* Return whether a rank that the bootstrap waits for has died, for `user`, a struct growing. If
 * `rank` is below the size of the old communicator, it is an old rank. For any higher one, which is
 * new, return whether any of the new processes has died (limits->lacks()). */
static bool has_ended(void *user, uint32_t rank)
{
    const struct growing *g = user;
    if (rank < g->comm->world->size)
        return twill_comm_is_dead(g->comm, rank);
    return g->limits != NULL && g->limits->lacks(g->limits->user);
}

/* If TWILL_LAYOUT declares nodes, write the declaration for the larger job, in which the new
 * processes are one more node. Otherwise store "". Returns TWILL_OK or TWILL_ERR_UNSUPPORTED. */
static twill_status extend_layout(struct growing *g, char text[LAYOUT])
{
    const struct twill_world *world = g->comm->world;
    size_t used = 0;
    uint32_t from = 0;
    text[0] = '\0';
    if (twill_config_text(g->comm->context->config, TWILL_VARIABLE_NODES) == NULL)
        return TWILL_OK;
    for (uint32_t r = 1; r <= world->size && used < LAYOUT; r++) {
        if (r < world->size && world->node[r] == world->node[from])
            continue;
        bool whole = r - from == world->node_size[world->node[from]];
        used =
            whole ? used + (size_t)snprintf(text + used, LAYOUT - used, "%u+", r - from) : LAYOUT;
        from = r;
    }
    if (used + 12 > LAYOUT)
        return TWILL_FAIL(&g->error, TWILL_ERR_UNSUPPORTED,
                          "TWILL_LAYOUT=nodes of the larger job is too long, or its nodes' ranks "
                          "are not consecutive");
    snprintf(text + used, LAYOUT - used, "%u", g->joining);
    return TWILL_OK;
}

/* Exchange `status` with all ranks of the larger job. On the new processes this ends
 * twill_comm_join(). Returns TWILL_OK if it is TWILL_OK on all of them, and an error otherwise. */
static twill_status conclude_growth(struct twill_context *context, twill_status status,
                                    struct twill_error *error)
{
    struct twill_oob_batch batch = {.oob = context->job.oob};
    return twill_oob_batch_exchange(&batch, status, error);
}

/* Close the new communicator and destroy the new context, if they have been made. */
static void drop_larger(struct growing *g)
{
    if (g->made != NULL)
        twill_comm_close(g->made);
    twill_context_destroy(g->context);
    g->made = NULL;
    g->context = NULL;
}

/* Return how long the ranks wait for all to connect, in ns. */
static uint64_t timeout_to_grow(const struct twill_comm *comm)
{
    return comm->tuning.timeout_ns / 4 * 3;
}

/* Return less than the patience of an old rank that could not come and already waits in the next
 * agreement. The slack allows for a rank 0 that stops while it passes on descriptors. */
uint64_t twill_growth_bound_ns(const struct twill_comm *comm)
{
    return timeout_to_grow(comm) + TWILL_LEAVE_NS + twill_oob_slack(timeout_to_grow(comm));
}

/* Connect all ranks, and make g->context, which gets the operations and registrations of the old
 * one, and g->made. Returns TWILL_OK, or the error in g->error. */
static twill_status make_larger(struct growing *g)
{
    struct twill_comm *comm = g->comm;
    struct twill_growth *growth = comm->health->growth;
    char handle[TWILL_JOIN_HANDLE_TEXT], nodes[LAYOUT];
    struct twill_join join = {.handle = handle,
                              .rank = (int)comm->rank,
                              .nodes = nodes,
                              .timeout_ns = timeout_to_grow(comm),
                              .has_ended = has_ended,
                              .user = g};
    const struct twill_context_source source = {.join = &join, .like = comm->context};
    if (g->limits != NULL)
        join.timeout_ns = twill_min(join.timeout_ns, g->limits->timeout_ns);
    TWILL_TRY(&g->error, extend_layout(g, nodes));
    if (comm->rank == 0) {
        memcpy(handle, growth->handle, sizeof(handle));
        join.listener = &growth->listener;
    } else {
        const char *address = twill_detector_address(comm->context->health.detector, comm->job[0]);
        describe_growth(comm, address, g->port, g->joining, handle);
    }
    twill_status status = twill_context_create_by(&g->context, &source);
    if (status != TWILL_OK && g->context != NULL)
        g->error = g->context->error;
    else if (status != TWILL_OK)
        (void)TWILL_FAIL(&g->error, status, "no memory for a context");
    TWILL_TRY(&g->error, status);
    TWILL_TRY(&g->error, twill_context_inherit(g->context, comm->context, &g->error));
    return twill_comm_open(&g->made, g->context, NULL, g->context->job.oob, NULL, NULL, 0,
                           &g->error);
}

/* Agree on `flags` and that no rank has failed. Sets *agreed to the bitwise AND of all ranks'
 * flags. Returns an error if a rank has failed or is in another call. */
static twill_status agree_whole(struct growing *g, uint64_t flags, uint64_t *agreed)
{
    const struct twill_decision *decision;
    TWILL_TRY(&g->error, twill_agree(g->comm, TWILL_AGREEING_GROW, flags, 0, &decision, &g->error));
    *agreed = decision->flags;
    for (uint32_t r = 0; r < g->comm->world->size; r++)
        if (twill_rank_set_has(decision->set, r))
            return TWILL_FAIL(&g->error, TWILL_ERR_PEER,
                              "%s has failed: call twill_comm_shrink() first",
                              TWILL_ENGINE_RANK_NAME(&g->comm->engine, r));
    if (!twill_agreeing_alike(decision, TWILL_AGREEING_GROW))
        return TWILL_FAIL(&g->error, TWILL_ERR_MISMATCH,
                          "another rank does not call twill_comm_grow()");
    return TWILL_OK;
}

/* Make the larger communicator on all old ranks or none. Returns TWILL_OK or g->error.status. */
static twill_status grow_by(struct growing *g)
{
    const struct twill_growth *growth = g->comm->health->growth;
    uint64_t agreed = 0, what = UINT64_MAX;
    if (g->comm->rank == 0)
        what = growth != NULL ? (uint64_t)growth->joining << PORT_BITS | growth->port : 0;
    TWILL_TRY(&g->error, agree_whole(g, what, &agreed));
    if (agreed == 0)
        return TWILL_FAIL(&g->error, TWILL_ERR_ARGUMENT,
                          "rank 0 has made no handle since the last growth (twill_comm_handle)");
    g->joining = (uint32_t)(agreed >> PORT_BITS);
    g->port = (uint16_t)agreed;
    twill_status status = make_larger(g);
    struct twill_error own = g->error;
    if (status != TWILL_OK)
        drop_larger(g); /* others may wait for this rank there */
    twill_error_clear(&g->error);
    twill_status whole = agree_whole(g, g->made != NULL, &agreed);
    if (whole == TWILL_OK && agreed == 0)
        whole = TWILL_FAIL(&g->error, TWILL_ERR_SYSTEM, "another rank has failed: see its message");
    if (status != TWILL_OK && whole != TWILL_ERR_PEER) /* a failed rank is the cause */
        g->error = own;
    else
        status = whole;
    /* From here on all old ranks have it or none. A death of a new process is found later. */
    if (g->made != NULL) {
        own = g->error;
        (void)conclude_growth(g->context, status, &own);
    }
    return status;
}

twill_status twill_grow(struct twill_comm **larger, struct twill_comm *comm,
                        const struct twill_growth_limits *limits, struct twill_error *error)
{
    struct growing g = {.comm = comm, .limits = limits};
    twill_status status = grow_by(&g);
    twill_growth_close(comm);
    if (status != TWILL_OK) {
        drop_larger(&g);
        *error = g.error;
        return status;
    }
    if (comm->owns_context)
        twill_context_chain(g.context, comm->context);
    g.made->tuning.timeout_ns = comm->tuning.timeout_ns;
    g.context->job.oob->timeout_ns =
        (uint64_t)comm->context->config->number[TWILL_VARIABLE_TIMEOUT];
    g.made->owns_context = comm->owns_context;
    comm->owns_context = false;
    *larger = g.made;
    return TWILL_OK;
}

twill_status twill_grow_conclude(struct twill_comm **made, struct twill_context *context)
{
    struct twill_error *error = &context->error;
    TWILL_TRY(error, twill_comm_open(made, context, NULL, context->job.oob, NULL, NULL, 0, error));
    twill_status status = conclude_growth(context, TWILL_OK, error);
    if (status != TWILL_OK) {
        twill_comm_close(*made);
        *made = NULL;
    }
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a communicator of the survivors. They agree who survives, the lowest of them serves a
 * rendezvous (fabric/bootstrap), they make the communicator over that, and they agree whether all
 * have it. If another rank has failed meanwhile, the next attempt begins with that agreement. */
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"
#include "fabric/shm/node_memory.h"
#include "lib/base/times.h"
#include "lib/comm/comm_internal.h"
#include "lib/job/context.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ATTEMPTS 4u /* in addition to the first one and one for each rank */

static const struct twill_bootstrap_ops survivors_ops = {TWILL_BOOTSTRAP_BY_TCP,
                                                         .name = "survivors"};

/* A shrink under way, with the result of its present attempt. On the stack of twill_shrink(), which
 * also frees rank[] and `failed`. */
struct attempt {
    struct twill_comm *comm;
    struct twill_comm *made; /* or NULL */
    int listener;            /* of the rendezvous, if this rank serves it, or -1 */
    uint16_t port;           /* of `listener`, or 0 if this rank cannot serve. 1 if it is alone */
    uint32_t size, self;     /* number of survivors, and this rank's index */
    uint32_t *rank;          /* [size] ranks in `comm` */
    uint64_t *failed;        /* set of the ranks that are not in `made` */
    struct twill_error error;
};

twill_status twill_recovery_listen(const char *address, uint32_t ranks, int *listener,
                                   uint16_t *port, struct twill_error *error)
{
    struct sockaddr_storage at;
    struct twill_endpoint endpoint;
    socklen_t length;
    if (!twill_endpoint_address(address, 0, &at, &length))
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "%s is not an address", address);
    *listener = twill_socket_listen((struct sockaddr *)&at, length, (int)ranks);
    if (*listener < 0 || !twill_socket_name(*listener, false, &endpoint))
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "cannot listen on %s: %s", address,
                          strerror(errno));
    *port = endpoint.port;
    return TWILL_OK;
}

/* Listen for survivors and set a->port, to 0 if that fails. A communicator of one rank does not
 * listen, and a->port is 1. Returns TWILL_OK or the error. */
static twill_status listen_for_survivors(struct attempt *a)
{
    struct twill_comm *comm = a->comm;
    a->port = 1; /* one rank needs none */
    if (comm->world->size == 1)
        return TWILL_OK;
    const char *address =
        twill_detector_address(comm->context->health.detector, comm->job[comm->rank]);
    a->port = 0; /* cannot serve, as the others learn from the agreement */
    return twill_recovery_listen(address, comm->world->size, &a->listener, &a->port, &a->error);
}

static void stop_listening(struct attempt *a)
{
    if (a->listener >= 0)
        close(a->listener);
    a->listener = -1;
}

/* A twill_exchange_fn over `user`, the rendezvous of the survivors. Returns 0 or a status. */
static int exchange_by_tcp(void *user, const void *mine, void *all, size_t bytes)
{
    struct twill_error error = {0};
    return twill_oob_allgather(user, mine, all, bytes, &error);
}

/* The has_ended() of the bootstrap's job, with a struct attempt as `user`. Returns true if survivor
 * number `rank`, which is a->rank[rank] in the old communicator, has died. Also returns true if any
 * survivor has given up this attempt and already agrees on the next one. */
static bool has_ended(void *user, uint32_t rank)
{
    const struct attempt *a = user;
    return twill_agree_is_over(a->comm) || twill_comm_is_dead(a->comm, a->rank[rank]);
}

/* Fill *job for the rendezvous of the survivors of `a`. The lowest survivor serves it, on its
 * agreed port. If that is this rank, a->listener moves into *job, and the bootstrap will close it.
 * *job refers to `a`, which must outlive it. */
static void describe_rendezvous(struct attempt *a, const struct twill_decision *decision,
                                struct twill_job *job)
{
    struct twill_comm *comm = a->comm;
    *job = (struct twill_job){.rank = (int)a->self,
                              .size = (int)a->size,
                              .port = (uint16_t)decision->port,
                              .epoch = comm->context->job.oob->epoch,
                              .key = comm->context->job.oob->secret,
                              .has_key = true,
                              .listener = a->self == 0 ? a->listener : -1,
                              .source = "rank",
                              .has_ended = has_ended,
                              .user = a};
    snprintf(job->hosts, sizeof(job->hosts), "%s",
             twill_detector_address(comm->context->health.detector, comm->job[a->rank[0]]));
    snprintf(job->how, sizeof(job->how), "survivors of communicator %u", comm->number);
    if (a->self == 0)
        a->listener = -1; /* the bootstrap closes it */
}

twill_status twill_recovery_fence(struct twill_comm *comm, struct twill_error *error)
{
    twill_status status = twill_context_fence(comm->context, error);
    if (status != TWILL_ERR_UNSUPPORTED)
        return status;
    twill_say(comm->log, TWILL_LOG_WARN,
              "a rank that is left behind may live and write to memory of malloc "
              "(TWILL_HEAP=shared) that it had received");
    twill_error_clear(error);
    return TWILL_OK;
}

/* If a rank of this node is not among the survivors and neither has died nor left the communicator,
 * make the heap private memory, to which that rank cannot write. Otherwise do nothing. It still
 * maps the room of the node memory, but writes only to the parts of its own communicators, which no
 * other gets. Returns TWILL_OK or the error. */
static twill_status fence_memory(struct attempt *a)
{
    struct twill_comm *comm = a->comm;
    bool alive = false;
    for (uint32_t l = 0; l < comm->local_size; l++)
        alive = alive || (twill_rank_set_has(a->failed, comm->node->rank[l]) &&
                          !twill_node_owner_dead(comm->node, l));
    if (!alive)
        return TWILL_OK;
    return twill_recovery_fence(comm, &a->error);
}

/* Return how long the survivors wait for all to connect, in ns. */
static uint64_t timeout_to_meet(const struct twill_comm *comm)
{
    return twill_min(comm->tuning.timeout_ns / 2, TWILL_RENDEZVOUS_NS);
}

/* Return less than the patience of a survivor that could not come and already waits in the next
 * agreement, even if the rank that serves the rendezvous has stopped. */
uint64_t twill_rendezvous_bound_ns(const struct twill_comm *comm)
{
    return timeout_to_meet(comm) + twill_oob_slack(timeout_to_meet(comm));
}

/* Make a->made, the communicator of the agreed survivors, over a rendezvous that the lowest of them
 * serves. Returns TWILL_OK or the error, which is TWILL_ERR_PEER if that rank has failed or cannot
 * listen. */
static twill_status make_smaller(struct attempt *a, const struct twill_decision *decision)
{
    struct twill_bootstrap_params params = {.timeout_ns = timeout_to_meet(a->comm)};
    struct twill_oob *oob = NULL;
    struct twill_job job;
    if (decision->by != a->rank[0] || decision->port == 0)
        return TWILL_FAIL(&a->error, TWILL_ERR_PEER,
                          "rank %u, to which the others connect, has failed or cannot listen",
                          decision->by);
    TWILL_TRY(&a->error, fence_memory(a));
    describe_rendezvous(a, decision, &job);
    twill_status status = twill_bootstrap_tcp_open(&oob, &survivors_ops, &job, &params, &a->error);
    twill_secret_wipe(&job, sizeof(job));
    TWILL_TRY(&a->error, status);
    twill_bootstrap lent = {(int)a->self, (int)a->size, exchange_by_tcp, oob};
    status = twill_comm_make_over(&a->made, a->comm, a->rank, &lent, params.timeout_ns, &a->error);
    twill_oob_close(oob);
    return status;
}

/* Set the survivors of an attempt, and who has failed, from a decision. */
static void find_survivors(struct attempt *a, const struct twill_decision *decision)
{
    a->size = 0;
    for (uint32_t r = 0; r < a->comm->world->size; r++) {
        if (twill_rank_set_has(decision->set, r))
            continue;
        a->self = r == a->comm->rank ? a->size : a->self;
        a->rank[a->size++] = r;
    }
    memcpy(a->failed, decision->set,
           twill_consensus_words(a->comm->world->size) * sizeof(*a->failed));
}

/* Close the communicator a->made that an attempt has made, if there is one, and forget it. */
static void drop_made(struct attempt *a)
{
    if (a->made != NULL)
        twill_comm_close(a->made);
    a->made = NULL;
}

/* Return whether a decision has the same failed ranks as the one before it, which are in
 * a->failed. */
static bool same_failed(const struct attempt *a, const struct twill_decision *decision)
{
    return memcmp(a->failed, decision->set,
                  twill_consensus_words(a->comm->world->size) * sizeof(*a->failed)) == 0;
}

/* If `status` is an error, log that an attempt, numbered from 0, has failed, because its error is
 * lost if a later one succeeds. It began at `begin`, a twill_now(). If it took long, this is a
 * warning. */
static void log_attempt(const struct attempt *a, uint32_t attempt, uint64_t begin,
                        twill_status status)
{
    uint64_t took = twill_now() - begin;
    if (status != TWILL_OK)
        twill_say(a->comm->log, took > TWILL_SLOW_ATTEMPT_NS ? TWILL_LOG_WARN : TWILL_LOG_INFO,
                  "rank %u: attempt %u to connect the survivors has failed after %.1f s: %s",
                  a->comm->rank, attempt + 1, (double)took * 1e-9, a->error.message);
}

/* Make a->made, in several attempts, until all survivors have it. Returns TWILL_OK or the error. */
static twill_status shrink_by(struct attempt *a)
{
    uint32_t most = ATTEMPTS + a->comm->world->size; /* as twill_comm_bounds() says */
    for (uint32_t attempt = 0, unchanged = 0, strays = 0;; attempt++) {
        const struct twill_decision *decision;
        stop_listening(a);
        twill_status listens = listen_for_survivors(a);
        struct twill_error error = {0};
        twill_status status = twill_agree(a->comm, TWILL_AGREEING_SHRINK, a->made != NULL, a->port,
                                          &decision, &error);
        if (status != TWILL_OK) {
            a->error = error;
            return status;
        }
        if (!twill_agreeing_alike(decision, TWILL_AGREEING_SHRINK)) { /* a rank is elsewhere */
            if (++strays > ATTEMPTS)
                return TWILL_FAIL(&a->error, TWILL_ERR_MISMATCH,
                                  "another rank does not call twill_comm_shrink()");
            continue;
        }
        if (decision->flags != 0 && same_failed(a, decision))
            return TWILL_OK;
        drop_made(a);
        if (!same_failed(a, decision))
            unchanged = 0;
        else if (unchanged++ >= ATTEMPTS)
            return a->error.status != TWILL_OK
                       ? a->error.status
                       : TWILL_FAIL(&a->error, TWILL_ERR_SYSTEM,
                                    "another rank has failed: see its message");
        if (attempt > most)
            return TWILL_FAIL(&a->error, TWILL_ERR_SYSTEM,
                              "in each of %u attempts to connect the survivors, ranks have failed",
                              attempt);
        find_survivors(a, decision);
        if (listens == TWILL_OK)
            twill_error_clear(&a->error);
        uint64_t begin = twill_now();
        log_attempt(a, attempt, begin, make_smaller(a, decision));
    }
}

twill_status twill_shrink(struct twill_comm **smaller, struct twill_comm *comm,
                          struct twill_error *error)
{
    size_t words = twill_consensus_words(comm->world->size);
    struct attempt a = {.comm = comm, .listener = -1};
    a.rank = calloc(comm->world->size, sizeof(*a.rank));
    a.failed = calloc(words, sizeof(*a.failed));
    twill_status status = a.rank == NULL || a.failed == NULL
                              ? TWILL_FAIL(&a.error, TWILL_ERR_MEMORY, "out of memory")
                              : shrink_by(&a);
    stop_listening(&a);
    free(a.rank);
    free(a.failed);
    if (status != TWILL_OK) {
        drop_made(&a);
        *error = a.error;
        return status;
    }
    a.made->owns_context = comm->owns_context;
    comm->owns_context = false;
    *smaller = a.made;
    return TWILL_OK;
}

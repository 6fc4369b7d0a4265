/* SPDX-License-Identifier: Apache-2.0 */
/* twill-compare's program for twill. Its own memory is twill_alloc()'s; with the argument
 * "prepared" calls are persistent ones. */
#include "bench/compare/peer.h"
#include "lib/twill.h"

#include <stdbool.h>

struct state {
    twill_comm *comm;
    twill_request *request;
    bool prepared;
};

static struct state *of(struct peer *peer)
{
    return (struct state *)peer->own;
}

static int verdict(struct peer *peer, twill_status status)
{
    if (status == TWILL_OK)
        return 0;
    const char *why = twill_comm_message(of(peer)->comm);
    return peer_say(peer, why[0] != '\0' ? why : twill_strerror(status));
}

static int begin(struct peer *peer)
{
    static const char library[] = "twill ";
    struct state *state = calloc(1, sizeof(*state));
    if (state == NULL || twill_init(&state->comm) != TWILL_OK)
        return peer_say(peer, "twill_init");
    state->prepared = peer->arguments[0] != NULL && strcmp(peer->arguments[0], "prepared") == 0;
    peer->own = state;
    peer->rank = twill_comm_rank(state->comm);
    peer->size = twill_comm_size(state->comm);
    if (peer->rank == 0)
        snprintf(peer->board->library, sizeof(peer->board->library), "%s%s", library,
                 twill_version());
    return 0;
}

static void end(struct peer *peer)
{
    twill_finalize(of(peer)->comm);
    free(peer->own);
}

static int barrier(struct peer *peer)
{
    return verdict(peer, twill_barrier(of(peer)->comm));
}

static int prepare(struct peer *peer, const struct peer_call *call)
{
    struct state *state = of(peer);
    twill_comm *comm = state->comm;
    const float *src = call->src;
    float *dst = call->dst;
    size_t n = call->count;
    if (!state->prepared)
        return 0;
    switch (call->collective) {
    case TWILL_COMPARE_BROADCAST:
        return verdict(peer,
                       twill_broadcast_init(comm, src, dst, n, TWILL_F32, 0, &state->request));
    case TWILL_COMPARE_ALLGATHER:
        return verdict(peer, twill_allgather_init(comm, src, dst, n, TWILL_F32, &state->request));
    case TWILL_COMPARE_REDUCE_SCATTER:
        return verdict(peer, twill_reduce_scatter_init(comm, src, dst, n, TWILL_F32, TWILL_SUM,
                                                       &state->request));
    case TWILL_COMPARE_BARRIER:
        return verdict(peer, twill_barrier_init(comm, &state->request));
    default:
        return verdict(
            peer, twill_allreduce_init(comm, src, dst, n, TWILL_F32, TWILL_SUM, &state->request));
    }
}

static void forget(struct peer *peer)
{
    twill_request_free(&of(peer)->request);
}

static int run(struct peer *peer, const struct peer_call *call)
{
    struct state *state = of(peer);
    twill_comm *comm = state->comm;
    const float *src = call->src;
    float *dst = call->dst;
    size_t n = call->count;
    if (state->request != NULL) {
        twill_status status = twill_request_start(state->request);
        return verdict(peer, status == TWILL_OK ? twill_wait(&state->request) : status);
    }
    switch (call->collective) {
    case TWILL_COMPARE_BROADCAST:
        return verdict(peer, twill_broadcast(comm, src, dst, n, TWILL_F32, 0));
    case TWILL_COMPARE_ALLGATHER:
        return verdict(peer, twill_allgather(comm, src, dst, n, TWILL_F32));
    case TWILL_COMPARE_REDUCE_SCATTER:
        return verdict(peer, twill_reduce_scatter(comm, src, dst, n, TWILL_F32, TWILL_SUM));
    case TWILL_COMPARE_BARRIER:
        return verdict(peer, twill_barrier(comm));
    default:
        return verdict(peer, twill_allreduce(comm, src, dst, n, TWILL_F32, TWILL_SUM));
    }
}

static void *have(struct peer *peer, int which, size_t bytes)
{
    void *memory = NULL;
    (void)which;
    if (twill_alloc(twill_comm_context(of(peer)->comm), &memory, bytes) != TWILL_OK)
        return NULL;
    return memory;
}

static void give(struct peer *peer, int which, void *memory)
{
    (void)which;
    twill_free(twill_comm_context(of(peer)->comm), memory);
}

int main(int argc, char **argv)
{
    static const struct peer_program program = {begin,  end,  run,  barrier, prepare,
                                                forget, have, give, NULL};
    return peer_main(argc, argv, &program);
}

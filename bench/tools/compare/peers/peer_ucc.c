/* SPDX-License-Identifier: Apache-2.0 */
/* The program of twill-compare for UCC, compiled against --ucc PREFIX when a comparison runs. */
#include "peer.h"

#include <ucc/api/ucc.h>

/* What the program has of UCC, from begin() to end(). */
struct ucc_state {
    struct peer *peer;
    ucc_lib_h lib;
    ucc_context_h context;
    ucc_team_h team;
    void *all;    /* where the exchange in progress stores the parts of all ranks */
    size_t bytes; /* of each part */
};

/* Return the state of the program, which begin() has made. */
static struct ucc_state *of(struct peer *peer)
{
    return (struct ucc_state *)peer->own;
}

/* Return 0, or 1 after peer_say() if `status` is an error. */
static int report_status(struct peer *peer, ucc_status_t status)
{
    return status < 0 ? peer_say(peer, ucc_status_string(status)) : 0;
}

/* Begin an allgather through the driver, as UCC asks for. *request is the state. */
static ucc_status_t exchange(void *mine, void *all, size_t bytes, void *user, void **request)
{
    struct ucc_state *state = (struct ucc_state *)user;
    state->all = all;
    state->bytes = bytes;
    *request = state;
    return peer_exchange_post(state->peer, mine, bytes) == 0 ? UCC_OK : UCC_ERR_NO_RESOURCE;
}

/* Return UCC_OK if the allgather is done, UCC_INPROGRESS if not yet, or an error. */
static ucc_status_t exchange_test(void *request)
{
    struct ucc_state *state = (struct ucc_state *)request;
    int answer = peer_exchange_test(state->peer, state->all, state->bytes);
    return answer > 0 ? UCC_OK : answer == 0 ? UCC_INPROGRESS : UCC_ERR_NO_MESSAGE;
}

/* Do nothing and return UCC_OK, because the request of exchange() is the state itself. */
static ucc_status_t exchange_free(void *request)
{
    (void)request;
    return UCC_OK;
}

/* Return the allgather through the driver in the form that UCC takes. */
static ucc_oob_coll_t oob_of(struct ucc_state *state)
{
    ucc_oob_coll_t oob;
    memset(&oob, 0, sizeof(oob));
    oob.allgather = exchange;
    oob.req_test = exchange_test;
    oob.req_free = exchange_free;
    oob.coll_info = state;
    oob.n_oob_eps = (uint32_t)state->peer->size;
    oob.oob_ep = (uint32_t)state->peer->rank;
    return oob;
}

/* Make the library and the context of UCC. Ranks exchange addresses through the driver of
 * twill-compare. */
static ucc_status_t make_context(struct ucc_state *state)
{
    ucc_lib_params_t lib;
    ucc_lib_config_h lib_config;
    ucc_context_params_t context;
    ucc_context_config_h context_config;
    memset(&lib, 0, sizeof(lib));
    memset(&context, 0, sizeof(context));
    lib.mask = UCC_LIB_PARAM_FIELD_THREAD_MODE;
    lib.thread_mode = UCC_THREAD_SINGLE;
    ucc_status_t status = ucc_lib_config_read(NULL, NULL, &lib_config);
    if (status != UCC_OK)
        return status;
    status = ucc_init(&lib, lib_config, &state->lib);
    ucc_lib_config_release(lib_config);
    if (status != UCC_OK)
        return status;
    status = ucc_context_config_read(state->lib, NULL, &context_config);
    if (status != UCC_OK)
        return status;
    context.mask = UCC_CONTEXT_PARAM_FIELD_OOB;
    context.oob = oob_of(state);
    status = ucc_context_create(state->lib, &context, context_config, &state->context);
    ucc_context_config_release(context_config);
    return status;
}

/* Make the team of all ranks, and wait until it is there. */
static ucc_status_t make_team(struct ucc_state *state)
{
    ucc_team_params_t team;
    memset(&team, 0, sizeof(team));
    team.mask = UCC_TEAM_PARAM_FIELD_EP | UCC_TEAM_PARAM_FIELD_EP_RANGE | UCC_TEAM_PARAM_FIELD_OOB;
    team.oob = oob_of(state);
    team.ep = (uint64_t)state->peer->rank;
    team.ep_range = UCC_COLLECTIVE_EP_RANGE_CONTIG;
    ucc_status_t status = ucc_team_create_post(&state->context, 1, &team, &state->team);
    while (status == UCC_OK && (status = ucc_team_create_test(state->team)) == UCC_INPROGRESS) {
        ucc_context_progress(state->context);
        status = UCC_OK;
    }
    return status;
}

/* Note rank and size, and make context and team. Returns 0, or 1 after peer_say(). */
static int begin(struct peer *peer)
{
    struct ucc_state *state = (struct ucc_state *)calloc(1, sizeof(*state));
    if (state == NULL || peer_launched(peer) != 0)
        return 1;
    peer->own = state;
    state->peer = peer;
    peer_name(peer, "UCC ", ucc_get_version_string());
    ucc_status_t status = make_context(state);
    return report_status(peer, status == UCC_OK ? make_team(state) : status);
}

/* Destroy the team, context and library of UCC, and free what begin() made. */
static void end(struct peer *peer)
{
    struct ucc_state *state = of(peer);
    while (ucc_team_destroy(state->team) == UCC_INPROGRESS)
        ucc_context_progress(state->context);
    ucc_context_destroy(state->context);
    ucc_finalize(state->lib);
    free(state);
}

/* Return UCC's description of `count` floats in host memory. */
static ucc_coll_buffer_info_t ucc_buffer(const float *memory, size_t count)
{
    ucc_coll_buffer_info_t info;
    memset(&info, 0, sizeof(info));
    info.buffer = (void *)(uintptr_t)memory;
    info.count = count;
    info.datatype = UCC_DT_FLOAT32;
    info.mem_type = UCC_MEMORY_TYPE_HOST;
    return info;
}

/* Set *args to what UCC needs for a call. Collectives without a case here become an allreduce. */
static void ucc_arguments(const struct peer *peer, const struct peer_call *call,
                          ucc_coll_args_t *args)
{
    size_t n = call->count, all = n * (size_t)peer->size;
    memset(args, 0, sizeof(*args));
    args->op = UCC_OP_SUM;
    args->src.info = ucc_buffer(call->src, n);
    args->dst.info = ucc_buffer(call->dst, n);
    switch (call->collective) {
    case TWILL_COMPARE_BROADCAST:
        args->coll_type = UCC_COLL_TYPE_BCAST;
        args->root = 0;
        break;
    case TWILL_COMPARE_ALLGATHER:
        args->coll_type = UCC_COLL_TYPE_ALLGATHER;
        args->dst.info.count = all;
        break;
    case TWILL_COMPARE_REDUCE_SCATTER:
        args->coll_type = UCC_COLL_TYPE_REDUCE_SCATTER;
        args->src.info.count = all;
        break;
    case TWILL_COMPARE_BARRIER:
        args->coll_type = UCC_COLL_TYPE_BARRIER;
        break;
    default:
        args->coll_type = UCC_COLL_TYPE_ALLREDUCE;
        if (call->src == call->dst) {
            args->mask |= UCC_COLL_ARGS_FIELD_FLAGS;
            args->flags |= UCC_COLL_ARGS_FLAG_IN_PLACE;
        }
    }
}

/* Make a call and wait for it. Returns 0, or 1 after peer_say(). */
static int run(struct peer *peer, const struct peer_call *call)
{
    ucc_coll_args_t args;
    ucc_coll_req_h request;
    ucc_arguments(peer, call, &args);
    ucc_status_t status = ucc_collective_init(&args, &request, of(peer)->team);
    if (status != UCC_OK)
        return report_status(peer, status);
    status = ucc_collective_post(request);
    while (status >= 0 && (status = ucc_collective_test(request)) > 0)
        ucc_context_progress(of(peer)->context);
    ucc_collective_finalize(request);
    return report_status(peer, status);
}

/* Wait until all ranks have called this. Returns 0, or 1 after peer_say(). */
static int barrier(struct peer *peer)
{
    struct peer_call call;
    memset(&call, 0, sizeof(call));
    call.collective = TWILL_COMPARE_BARRIER;
    return run(peer, &call);
}

/* Run the program of twill-compare for UCC. Returns an exit status. */
int main(int argc, char **argv)
{
    static const struct peer_program program = {
        .begin = begin, .end = end, .run = run, .barrier = barrier};
    return peer_main(argc, argv, &program);
}

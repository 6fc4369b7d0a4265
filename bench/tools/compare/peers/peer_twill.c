/* SPDX-License-Identifier: Apache-2.0 */
/* The program of twill-compare for twill. With the argument "persistent" calls are persistent. */
#include "bench/tools/compare/peers/peer.h"
#include "lib/twill_train.h"

#include <stdbool.h>

/* What the program has of twill, from begin() to end(). `persistent` is set by the argument. Then
 * `request` is the persistent call to measure, from prepare() to release(), otherwise NULL. */
struct twill_peer_state {
    twill_comm *comm;
    twill_request *request;
    twill_gradients *set; /* of played steps */
    bool persistent;
};

/* Return the state of the program, which begin() has made. */
static struct twill_peer_state *of(struct peer *peer)
{
    return (struct twill_peer_state *)peer->own;
}

/* Return 0 for TWILL_OK, or else 1 after peer_say(). */
static int report_status(struct peer *peer, twill_status status)
{
    if (status == TWILL_OK)
        return 0;
    const char *why = twill_comm_message(of(peer)->comm);
    return peer_say(peer, why[0] != '\0' ? why : twill_strerror(status));
}

/* Initialise twill, and note rank, size and version. Returns 0, or 1 after peer_say(). */
static int begin(struct peer *peer)
{
    struct twill_peer_state *state = calloc(1, sizeof(*state));
    if (state == NULL || twill_init(&state->comm) != TWILL_OK)
        return peer_say(peer, "twill_init");
    state->persistent = peer->arguments[0] != NULL && strcmp(peer->arguments[0], "persistent") == 0;
    peer->own = state;
    peer->rank = twill_comm_rank(state->comm);
    peer->size = twill_comm_size(state->comm);
    peer_name(peer, "twill ", twill_version());
    return 0;
}

/* Finalise twill and free what begin() made. */
static void end(struct peer *peer)
{
    twill_finalize(of(peer)->comm);
    free(peer->own);
}

/* Wait until all ranks have called this. Returns 0, or 1 after peer_say(). */
static int barrier(struct peer *peer)
{
    return report_status(peer, twill_barrier(of(peer)->comm));
}

#define PEER_TWILL_FORM(name, ...)                                                                 \
    (request != NULL ? twill_##name##_init(__VA_ARGS__, request) : twill_##name(__VA_ARGS__))

/* Make a call or, unless `request` is NULL, set up a persistent one as *request. */
static twill_status twill_call_make(twill_comm *comm, const struct peer_call *call,
                                    twill_request **request)
{
    const float *src = call->src;
    float *dst = call->dst;
    size_t n = call->count;
    switch (call->collective) {
    case TWILL_COMPARE_BROADCAST:
        return PEER_TWILL_FORM(broadcast, comm, src, dst, n, TWILL_F32, 0);
    case TWILL_COMPARE_ALLGATHER:
        return PEER_TWILL_FORM(allgather, comm, src, dst, n, TWILL_F32);
    case TWILL_COMPARE_REDUCE_SCATTER:
        return PEER_TWILL_FORM(reduce_scatter, comm, src, dst, n, TWILL_F32, TWILL_SUM);
    case TWILL_COMPARE_BARRIER:
        return PEER_TWILL_FORM(barrier, comm);
    case TWILL_COMPARE_REDUCE:
        return PEER_TWILL_FORM(reduce, comm, src, dst, n, TWILL_F32, TWILL_SUM, 0);
    case TWILL_COMPARE_GATHER:
        return PEER_TWILL_FORM(gather, comm, src, dst, n, TWILL_F32, 0);
    case TWILL_COMPARE_SCATTER:
        return PEER_TWILL_FORM(scatter, comm, src, dst, n, TWILL_F32, 0);
    case TWILL_COMPARE_ALLTOALL:
        return PEER_TWILL_FORM(alltoall, comm, src, dst, n, TWILL_F32);
    default:
        return PEER_TWILL_FORM(allreduce, comm, src, dst, n, TWILL_F32, TWILL_SUM);
    }
}

/* Return 1 for each collective but those of one rank with itself, for which return 0. */
static int supports(struct peer *peer, enum twill_compare_collective collective)
{
    (void)peer;
    return !twill_compare_is_self(collective);
}

/* Set up the persistent call, if requested. Returns 0, or 1 after peer_say(). */
static int prepare(struct peer *peer, const struct peer_call *call)
{
    struct twill_peer_state *state = of(peer);
    return state->persistent
               ? report_status(peer, twill_call_make(state->comm, call, &state->request))
               : 0;
}

/* Free the persistent call that prepare() set up, if it did. */
static void release(struct peer *peer)
{
    twill_request_free(&of(peer)->request);
}

/* Make the call, or the persistent one that prepare() set up. Returns 0, or 1 on failure. */
static int run(struct peer *peer, const struct peer_call *call)
{
    struct twill_peer_state *state = of(peer);
    if (state->request == NULL)
        return report_status(peer, twill_call_make(state->comm, call, NULL));
    twill_status status = twill_request_start(state->request);
    return report_status(peer, status == TWILL_OK ? twill_wait(&state->request) : status);
}

/* Return memory of twill_alloc(), or NULL on failure. Which buffer it is makes no difference
 * here. */
static void *alloc_buffer(struct peer *peer, int which, size_t bytes)
{
    void *memory = NULL;
    (void)which;
    if (twill_alloc(twill_comm_context(of(peer)->comm), &memory, bytes) != TWILL_OK)
        return NULL;
    return memory;
}

/* Free memory that alloc_buffer() returned. */
static void free_buffer(struct peer *peer, int which, void *memory)
{
    (void)which;
    twill_free(twill_comm_context(of(peer)->comm), memory);
}

/* Register or promote plain memory, as MEMORY says. What is too small to be promoted stays plain.
 * Returns 0, or 1 after peer_say(). */
static int enroll(struct peer *peer, void *memory, size_t bytes)
{
    twill_context *context = twill_comm_context(of(peer)->comm);
    if (peer->memory[0] == 'r')
        return report_status(peer, twill_register(context, memory, bytes));
    twill_status status = twill_promote(context, memory, bytes);
    return status == TWILL_ERR_UNSUPPORTED ? 0 : report_status(peer, status);
}

/* Undo enroll(). */
static void dismiss(struct peer *peer, void *memory)
{
    twill_context *context = twill_comm_context(of(peer)->comm);
    if (peer->memory[0] == 'r')
        (void)twill_deregister(context, memory);
    else
        (void)twill_demote(context, memory);
}

/* Return 0 for TWILL_OK, or else 1 after peer_say() with the message of the set. */
static int report_set(struct peer *peer, twill_status status)
{
    if (status == TWILL_OK)
        return 0;
    const struct twill_peer_state *state = of(peer);
    const char *why =
        state->set != NULL ? twill_gradients_message(state->set) : twill_comm_message(state->comm);
    return why[0] != '\0' ? peer_say(peer, why) : report_status(peer, status);
}

/* Register and commit the tensors of a model. Returns 0, or 1 after peer_say(). */
static int steps_open(struct peer *peer, const struct twill_compare_model *model)
{
    struct twill_peer_state *state = of(peer);
    twill_gradients_options options;
    twill_gradients_defaults(&options);
    options.op = TWILL_SUM;
    twill_status status = twill_gradients_create(&state->set, state->comm, &options);
    for (uint32_t i = 0; status == TWILL_OK && i < model->tensors; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%u", i);
        twill_tensor tensor = {.name = name,
                               .count = (size_t)model->tensor[i].elements,
                               .type = TWILL_F32,
                               .priority = (int)i};
        status = twill_gradients_add(state->set, &tensor, NULL);
    }
    if (status == TWILL_OK)
        status = twill_gradients_commit(state->set);
    return report_set(peer, status);
}

/* Destroy the gradient set that steps_open() made. */
static void steps_close(struct peer *peer)
{
    twill_gradients_destroy(of(peer)->set);
    of(peer)->set = NULL;
}

/* Return the memory of a tensor's gradient, which the gradient set has until steps_close(). */
static float *steps_memory(struct peer *peer, uint32_t tensor)
{
    return twill_gradients_memory(of(peer)->set, (int)tensor);
}

/* Mark a gradient as ready to be reduced. Returns 0, or 1 after peer_say(). */
static int steps_start(struct peer *peer, uint32_t tensor, float *gradient, uint64_t count)
{
    (void)gradient;
    (void)count;
    return report_set(peer, twill_gradients_ready(of(peer)->set, (int)tensor));
}

/* Advance the reductions that were started. Returns 0, or 1 after peer_say(). */
static int steps_test(struct peer *peer)
{
    int done;
    return report_set(peer, twill_gradients_test(of(peer)->set, 0, &done));
}

/* Wait for all gradients of the model. Returns 0, or 1 after peer_say(). */
static int steps_wait(struct peer *peer)
{
    return report_set(peer, twill_gradients_wait_all(of(peer)->set));
}

/* Run the program of twill-compare for twill. Returns an exit status. */
int main(int argc, char **argv)
{
    static const struct peer_steps steps = {steps_open,  steps_close, steps_memory,
                                            steps_start, steps_wait,  steps_test};
    static const struct peer_program program = {
        begin,       end,      run,    barrier, prepare, release, alloc_buffer,
        free_buffer, supports, &steps, 0,       enroll,  dismiss};
    return peer_main(argc, argv, &program);
}

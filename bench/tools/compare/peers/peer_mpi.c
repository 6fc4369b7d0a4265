/* SPDX-License-Identifier: Apache-2.0 */
/* The program of twill-compare for any MPI, compiled with its mpicc when a comparison runs. Its own
 * allocator is MPI_Alloc_mem(). With the argument "nonblocking" calls are nonblocking. It does not
 * use twill, but reports if libtwill-mpi should have been loaded and was not. */
#include "peer.h"

#include <dlfcn.h>
#include <mpi.h>

/* Return 0 if LD_PRELOAD names libtwill-mpi but calls of MPI do not go to it, otherwise 1. */
static int goes_to_twill(void)
{
    const char *preloaded = getenv("LD_PRELOAD");
    Dl_info found;
    if (preloaded == NULL || strstr(preloaded, "libtwill-mpi") == NULL)
        return 1;
    return dladdr(dlsym(RTLD_DEFAULT, "MPI_Allreduce"), &found) != 0 &&
           strstr(found.dli_fname, "libtwill-mpi") != NULL;
}

/* Initialise MPI, and note rank, size and library. Returns 0, or 1 after peer_say(). */
static int begin(struct peer *peer)
{
    int length = 0;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    if (!goes_to_twill())
        return peer_say(peer, "libtwill-mpi was not loaded before the MPI");
    peer->own = calloc(1, sizeof(float)); /* the buffer of self_allreduce */
    if (peer->own == NULL || MPI_Init(NULL, NULL) != MPI_SUCCESS)
        return peer_say(peer, "MPI_Init");
    MPI_Comm_rank(MPI_COMM_WORLD, &peer->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer->size);
    MPI_Get_library_version(text, &length);
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\n' || *c == '\t')
            *c = ' ';
    peer_name(peer, "", text);
    return 0;
}

/* Finalise MPI and free what begin() made. */
static void end(struct peer *peer)
{
    MPI_Finalize();
    free(peer->own);
}

/* Wait until all ranks have called this. Returns 0, or an MPI error code. */
static int barrier(struct peer *peer)
{
    (void)peer;
    return MPI_Barrier(MPI_COMM_WORLD);
}

/* Send this rank itself a message, as neighbours exchange one. Returns whether that failed. */
static int message(void)
{
    int give = 1, take = 0;
    MPI_Request both[2];
    MPI_Irecv(&take, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &both[0]);
    MPI_Isend(&give, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &both[1]);
    return MPI_Waitall(2, both, MPI_STATUSES_IGNORE) != MPI_SUCCESS || take != give;
}

#define PEER_MPI_FORM(Blocking, Nonblocking, ...)                                                  \
    (request != NULL ? MPI_##Nonblocking(__VA_ARGS__, request) : MPI_##Blocking(__VA_ARGS__))

/* Make a call, or start it as *request unless that is NULL. Returns an MPI error code. */
static int make_mpi_call(struct peer *peer, const struct peer_call *call, MPI_Request *request)
{
    int n = (int)call->count;
    float *dst = call->dst;
    const void *src = call->src == dst ? MPI_IN_PLACE : call->src;
    const MPI_Comm world = MPI_COMM_WORLD, self = MPI_COMM_SELF;
    switch (call->collective) {
    case TWILL_COMPARE_BROADCAST:
        return PEER_MPI_FORM(Bcast, Ibcast, dst, n, MPI_FLOAT, 0, world);
    case TWILL_COMPARE_ALLGATHER:
        return PEER_MPI_FORM(Allgather, Iallgather, src, n, MPI_FLOAT, dst, n, MPI_FLOAT, world);
    case TWILL_COMPARE_REDUCE_SCATTER:
        return PEER_MPI_FORM(Reduce_scatter_block, Ireduce_scatter_block, src, dst, n, MPI_FLOAT,
                             MPI_SUM, world);
    case TWILL_COMPARE_BARRIER:
        return PEER_MPI_FORM(Barrier, Ibarrier, world);
    case TWILL_COMPARE_REDUCE:
        return PEER_MPI_FORM(Reduce, Ireduce, src, dst, n, MPI_FLOAT, MPI_SUM, 0, world);
    case TWILL_COMPARE_GATHER:
        return PEER_MPI_FORM(Gather, Igather, src, n, MPI_FLOAT, dst, n, MPI_FLOAT, 0, world);
    case TWILL_COMPARE_SCATTER:
        return PEER_MPI_FORM(Scatter, Iscatter, src, n, MPI_FLOAT, dst, n, MPI_FLOAT, 0, world);
    case TWILL_COMPARE_ALLTOALL:
        return PEER_MPI_FORM(Alltoall, Ialltoall, src, n, MPI_FLOAT, dst, n, MPI_FLOAT, world);
    case TWILL_COMPARE_SELF_BARRIER:
        return PEER_MPI_FORM(Barrier, Ibarrier, self);
    case TWILL_COMPARE_SELF_ALLREDUCE:
        return PEER_MPI_FORM(Allreduce, Iallreduce, MPI_IN_PLACE, peer->own, 1, MPI_FLOAT, MPI_SUM,
                             self);
    case TWILL_COMPARE_SELF_MESSAGE:
        return message();
    default:
        return PEER_MPI_FORM(Allreduce, Iallreduce, src, dst, n, MPI_FLOAT, MPI_SUM, world);
    }
}

/* Make a call, by a nonblocking one and a wait if requested. Returns 0, or non-zero on failure. */
static int run(struct peer *peer, const struct peer_call *call)
{
    MPI_Request request = MPI_REQUEST_NULL;
    if (peer->arguments[0] == NULL)
        return make_mpi_call(peer, call, NULL);
    return make_mpi_call(peer, call, &request) || MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* Return memory of MPI_Alloc_mem(), or NULL on failure. Which buffer it is makes no difference
 * here. */
static void *alloc_buffer(struct peer *peer, int which, size_t bytes)
{
    void *memory = NULL;
    (void)peer;
    (void)which;
    return MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &memory) == MPI_SUCCESS ? memory : NULL;
}

/* Free `memory`, which alloc_buffer() returned. Which buffer it is makes no difference here. */
static void free_buffer(struct peer *peer, int which, void *memory)
{
    (void)peer;
    (void)which;
    MPI_Free_mem(memory);
}

/* Return 1, since MPI has each collective. */
static int supports(struct peer *peer, enum twill_compare_collective collective)
{
    (void)peer;
    (void)collective;
    return 1;
}

static struct {
    MPI_Request request[TWILL_COMPARE_TENSORS];
    int started, complete; /* how many of the first ones are */
} steps_state;

/* Start an allreduce of a gradient in place. Returns 0, or an MPI error code. */
static int steps_start(struct peer *peer, uint32_t tensor, float *gradient, uint64_t count)
{
    (void)peer;
    (void)tensor;
    return MPI_Iallreduce(MPI_IN_PLACE, gradient, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                          &steps_state.request[steps_state.started++]);
}

/* Test the started allreduces from the oldest on, until one is not complete, which advances all.
 * Returns 0, or 1 on failure. */
static int steps_test(struct peer *peer)
{
    int done = 1;
    (void)peer;
    while (done && steps_state.complete < steps_state.started) {
        if (MPI_Test(&steps_state.request[steps_state.complete], &done, MPI_STATUS_IGNORE) !=
            MPI_SUCCESS)
            return 1;
        steps_state.complete += done;
    }
    return 0;
}

/* Wait for all gradients that were started. Returns 0, or an MPI error code. */
static int steps_wait(struct peer *peer)
{
    int n = steps_state.started;
    (void)peer;
    steps_state.started = steps_state.complete = 0;
    return MPI_Waitall(n, steps_state.request, MPI_STATUSES_IGNORE);
}

/* Run the program of twill-compare for MPI. Returns an exit status. */
int main(int argc, char **argv)
{
    static const struct peer_steps steps = {NULL, NULL, NULL, steps_start, steps_wait, steps_test};
    static const struct peer_program program = {begin, end,          run,         barrier,  NULL,
                                                NULL,  alloc_buffer, free_buffer, supports, &steps,
                                                0,     NULL,         NULL};
    return peer_main(argc, argv, &program);
}

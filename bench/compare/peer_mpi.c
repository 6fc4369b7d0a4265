/* SPDX-License-Identifier: Apache-2.0 */
/* twill-compare's program for any MPI; compiled with its mpicc when a comparison runs. */
#include "peer.h"

#include <mpi.h>

static int begin(struct peer *peer)
{
    int length = 0;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS)
        return peer_say(peer, "MPI_Init");
    MPI_Comm_rank(MPI_COMM_WORLD, &peer->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &peer->size);
    MPI_Get_library_version(text, &length);
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\n' || *c == '\t')
            *c = ' ';
    if (peer->rank == 0)
        snprintf(peer->board->library, sizeof(peer->board->library), "%.*s",
                 TWILL_COMPARE_WORDS - 1, text);
    return 0;
}

static void end(struct peer *peer)
{
    (void)peer;
    MPI_Finalize();
}

static int barrier(struct peer *peer)
{
    (void)peer;
    return MPI_Barrier(MPI_COMM_WORLD);
}

static int run(struct peer *peer, const struct peer_call *call)
{
    int count = (int)call->count;
    const void *src = call->src == call->dst ? MPI_IN_PLACE : call->src;
    switch (call->collective) {
    case TWILL_COMPARE_BROADCAST:
        return MPI_Bcast(call->dst, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    case TWILL_COMPARE_ALLGATHER:
        return MPI_Allgather(src, count, MPI_FLOAT, call->dst, count, MPI_FLOAT, MPI_COMM_WORLD);
    case TWILL_COMPARE_REDUCE_SCATTER:
        return MPI_Reduce_scatter_block(src, call->dst, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    case TWILL_COMPARE_BARRIER:
        return barrier(peer);
    default:
        return MPI_Allreduce(src, call->dst, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    static const struct peer_program program = {begin, end,  run,  barrier, NULL,
                                                NULL,  NULL, NULL, NULL};
    return peer_main(argc, argv, &program);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Make the exchange of server_exchange.c without twill, by any MPI. The arguments are LIST STEPS
 * MODE. In the mode "central" rank 0 is server and worker. It receives every key from every other
 * rank, adds them up, updates the parameters and sends them back. In "allreduce" each rank calls
 * MPI_Allreduce for each key and updates its parameters. In "buffer" one call is for all keys. */
#include "bench/common/gradient_list.h"
#include "bench/studies/server/exchange_values.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of a rank, in main(). */
struct central {
    struct twill_bench_list list;
    int rank, ranks;
    float *gradient, *sum, *parameters; /* for all keys, at the offsets of the list */
    float *received;                    /* on rank 0, the gradients of each worker */
    MPI_Request *requests;
    int *missing; /* how many workers' gradients have not arrived, for each key */
};

/* Make rank 0's part of one exchange in the mode "central". Takes the workers' gradients in the
 * order in which they arrive. Once a key has those of all ranks, updates its parameters and sends
 * them to all workers. Returns when all are sent. */
static void serve(struct central *c)
{
    int keys = (int)c->list.keys, workers = c->ranks - 1, sends = 0;
    int total = keys * workers;
    MPI_Request *answers = c->requests + total;
    for (int w = 0; w < workers; w++) {
        for (int k = 0; k < keys; k++)
            MPI_Irecv(c->received + (size_t)w * c->list.extent + c->list.offsets[k],
                      (int)c->list.elements[k], MPI_FLOAT, w + 1, k, MPI_COMM_WORLD,
                      &c->requests[w * keys + k]);
    }
    memcpy(c->sum, c->gradient, c->list.extent * sizeof(float));
    for (int k = 0; k < keys; k++)
        c->missing[k] = workers;
    for (int i = 0; i < total; i++) {
        int which;
        MPI_Waitany(total, c->requests, &which, MPI_STATUS_IGNORE);
        int w = which / keys, k = which % keys;
        size_t at = c->list.offsets[k], count = c->list.elements[k];
        const float *from = c->received + (size_t)w * c->list.extent + at;
        for (size_t j = 0; j < count; j++)
            c->sum[at + j] += from[j];
        if (--c->missing[k] > 0)
            continue;
        exchange_update(c->parameters + at, c->sum + at, count, c->ranks);
        for (int to = 1; to < c->ranks; to++)
            MPI_Isend(c->parameters + at, (int)count, MPI_FLOAT, to, k, MPI_COMM_WORLD,
                      &answers[sends++]);
    }
    MPI_Waitall(sends, answers, MPI_STATUSES_IGNORE);
}

/* Make the part of a rank other than 0 of one exchange in the mode "central". Sends its gradients
 * to rank 0 and returns when the new parameters have arrived. */
static void work(struct central *c)
{
    int keys = (int)c->list.keys;
    for (int k = 0; k < keys; k++)
        MPI_Irecv(c->parameters + c->list.offsets[k], (int)c->list.elements[k], MPI_FLOAT, 0, k,
                  MPI_COMM_WORLD, &c->requests[k]);
    for (int k = keys; k-- > 0;)
        MPI_Isend(c->gradient + c->list.offsets[k], (int)c->list.elements[k], MPI_FLOAT, 0, k,
                  MPI_COMM_WORLD, &c->requests[keys + k]);
    MPI_Waitall(2 * keys, c->requests, MPI_STATUSES_IGNORE);
}

/* Sum the gradients of all ranks and update the parameters once. The mode is "central" (rank 0 does
 * it for all), "allreduce" (each key is reduced by itself) or "buffer" (all keys at once). */
static void exchange(struct central *c, const char *mode)
{
    size_t extent = c->list.extent;
    if (strcmp(mode, "central") == 0) {
        if (c->rank == 0)
            serve(c);
        else
            work(c);
        return;
    }
    if (strcmp(mode, "buffer") == 0)
        MPI_Allreduce(c->gradient, c->sum, (int)extent, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (size_t k = c->list.keys; strcmp(mode, "allreduce") == 0 && k-- > 0;)
        MPI_Allreduce(c->gradient + c->list.offsets[k], c->sum + c->list.offsets[k],
                      (int)c->list.elements[k], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    exchange_update(c->parameters, c->sum, extent, c->ranks);
}

/* Time exchanges without twill, as argv says, and print their speed. Returns 0 or aborts. */
int main(int argc, char **argv)
{
    struct central c = {0};
    char message[256];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &c.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c.ranks);
    if (argc != 4 || !twill_bench_list_read(&c.list, argv[1], message, sizeof(message))) {
        fprintf(stderr, "usage: central_mpi LIST STEPS central|allreduce|buffer\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int steps = atoi(argv[2]);
    size_t extent = c.list.extent, keys = c.list.keys, ranks = (size_t)c.ranks;
    c.gradient = calloc(extent, sizeof(float));
    c.sum = calloc(extent, sizeof(float));
    c.parameters = calloc(extent, sizeof(float));
    c.received = calloc(c.rank == 0 ? extent * ranks : 1, sizeof(float));
    c.requests = calloc(2 * keys * ranks, sizeof(*c.requests));
    c.missing = calloc(keys, sizeof(int));
    if (c.gradient == NULL || c.sum == NULL || c.parameters == NULL || c.received == NULL ||
        c.requests == NULL || c.missing == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    exchange_fill(&c.list, c.gradient, c.rank);
    for (int i = 0; i < 2; i++)
        exchange(&c, argv[3]);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int i = 0; i < steps; i++)
        exchange(&c, argv[3]);
    double seconds = MPI_Wtime() - begin;
    if (c.rank == 0)
        exchange_report(&c.list, c.parameters, c.ranks, steps, seconds);
    MPI_Finalize();
    return 0;
}

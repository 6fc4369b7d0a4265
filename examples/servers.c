/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter servers by messages in groups of calls: workers push gradients, servers sum them and
 * send the sum back. Four kinds, as named by PHub (Luo et al. 2018):
 *
 *     cc   one server, which is a worker too          it sends and receives n(P-1)
 *     nc   one server, which is no worker             it receives nW and sends nW
 *     cs   every worker serves a shard                each sends 2n(P-1)/P
 *     ncs  M servers, which are no workers            a worker sends n, a server nW/M
 *
 * Run: twillrun -n 4 servers cs; twillrun -n 5 servers ncs 2. Checks that the sum equals that of
 * twill_allreduce() among the workers, and the bytes sent and received. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <twill.h>

enum { SERVERS_ELEMENTS = 120000, SERVERS_STEPS = 3 };

struct servers_job {
    twill_comm *comm;
    int rank, size;
    int workers;              /* ranks 0 .. workers-1 */
    int servers, first;       /* ranks first .. first+servers-1, each with a shard */
    size_t sent, received;    /* payload bytes of this rank */
    float *gradient, *summed; /* a worker's */
    float *shard;             /* a server's: one row per worker */
};

#define TRY(call)                                                                                  \
    do {                                                                                           \
        twill_status try_status = (call);                                                          \
        if (try_status != TWILL_OK)                                                                \
            return try_status;                                                                     \
    } while (0)

static size_t shard_begin(const struct servers_job *job, int server)
{
    return (size_t)SERVERS_ELEMENTS * (size_t)server / (size_t)job->servers;
}

static size_t shard_count(const struct servers_job *job, int server)
{
    return shard_begin(job, server + 1) - shard_begin(job, server);
}

/* Move shard number `server` between a worker and the server, in either direction; on one rank,
 * copy it. Called inside a group: nothing is sent before the group's end. */
static twill_status move_shard(struct servers_job *job, int worker, int server, bool push)
{
    int at = job->first + server, from = push ? worker : at, to = push ? at : worker;
    size_t count = shard_count(job, server), bytes = count * sizeof(float);
    float *row = job->shard + (push ? (size_t)worker * count : 0);
    float *mine = (push ? job->gradient : job->summed) + shard_begin(job, server);
    if (from == to) {
        if (job->rank == from)
            memcpy(push ? row : mine, push ? mine : row, bytes);
        return TWILL_OK;
    }
    if (job->rank == from) {
        job->sent += bytes;
        return twill_send(job->comm, push ? mine : row, count, TWILL_F32, to);
    }
    if (job->rank != to)
        return TWILL_OK;
    job->received += bytes;
    return twill_recv(job->comm, push ? row : mine, count, TWILL_F32, from);
}

static twill_status move_shards(struct servers_job *job, bool push)
{
    TRY(twill_group_start(job->comm));
    for (int worker = 0; worker < job->workers; worker++)
        for (int server = 0; server < job->servers; server++)
            TRY(move_shard(job, worker, server, push));
    return twill_group_end(job->comm);
}

/* Push, sum in the order of ranks, pull. */
static twill_status step_servers(struct servers_job *job)
{
    TRY(move_shards(job, true));
    int server = job->rank - job->first;
    if (server >= 0 && server < job->servers) {
        size_t count = shard_count(job, server);
        for (int worker = 1; worker < job->workers; worker++)
            for (size_t i = 0; i < count; i++)
                job->shard[i] += job->shard[(size_t)worker * count + i];
    }
    return move_shards(job, false);
}

/* Fill in small integers, for which every order of adding gives the same bits. */
static void fill_gradients(struct servers_job *job, int turn)
{
    for (size_t i = 0; i < SERVERS_ELEMENTS; i++)
        job->gradient[i] = (float)((job->rank * 7 + (int)(i % 97) + turn) % 31 - 15);
}

static twill_status compare_sums(const struct servers_job *job, twill_comm *workers, int *wrong)
{
    TRY(twill_allreduce(workers, job->gradient, job->gradient, SERVERS_ELEMENTS, TWILL_F32,
                        TWILL_SUM));
    *wrong += memcmp(job->gradient, job->summed, SERVERS_ELEMENTS * sizeof(float)) != 0;
    return TWILL_OK;
}

static twill_status run_servers(struct servers_job *job, int *wrong)
{
    twill_comm *workers = NULL;
    bool works = job->rank < job->workers;
    TRY(twill_comm_split(&workers, job->comm, works ? 0 : TWILL_COLOUR_NONE, job->rank));
    twill_status status = TWILL_OK;
    for (int turn = 0; turn < SERVERS_STEPS && status == TWILL_OK; turn++) {
        fill_gradients(job, turn);
        status = step_servers(job);
        if (status == TWILL_OK && works)
            status = compare_sums(job, workers, wrong);
    }
    twill_comm_destroy(workers);
    return status;
}

/* Return whether this rank has sent or received other than what the table above says. */
static int wrong_bytes(const struct servers_job *job)
{
    size_t n = SERVERS_ELEMENTS * sizeof(float), want = 0;
    int server = job->rank - job->first;
    bool serves = server >= 0 && server < job->servers, works = job->rank < job->workers;
    size_t own = serves ? shard_count(job, server) * sizeof(float) : 0;
    if (works)
        want += n - own;
    if (serves)
        want += own * (size_t)(job->workers - works);
    printf("rank %d: %s%s sent %zu received %zu bytes a step\n", job->rank, works ? "worker" : "",
           serves ? works ? ", server" : "server" : "", job->sent / SERVERS_STEPS,
           job->received / SERVERS_STEPS);
    return job->sent != want * SERVERS_STEPS || job->received != want * SERVERS_STEPS;
}

static bool arrange_servers(struct servers_job *job, int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    int servers = argc > 2 ? atoi(argv[2]) : 1;
    if (strcmp(kind, "cc") == 0 || strcmp(kind, "cs") == 0) {
        job->workers = job->size;
        job->servers = kind[1] == 'c' ? 1 : job->size;
    } else if (strcmp(kind, "nc") == 0 || strcmp(kind, "ncs") == 0) {
        job->servers = kind[2] == 's' ? servers : 1;
        job->workers = job->first = job->size - job->servers;
    }
    return job->workers >= 1 && job->servers >= 1;
}

int main(int argc, char **argv)
{
    struct servers_job job = {.rank = 0};
    int wrong = 0;
    if (twill_init(&job.comm) != TWILL_OK)
        return 1;
    job.rank = twill_comm_rank(job.comm);
    job.size = twill_comm_size(job.comm);
    if (!arrange_servers(&job, argc, argv)) {
        fprintf(stderr, "usage: servers cc|nc|cs|ncs [servers], with at least one worker\n");
        twill_finalize(job.comm);
        return 2;
    }
    job.gradient = calloc(SERVERS_ELEMENTS, sizeof(float));
    job.summed = calloc(SERVERS_ELEMENTS, sizeof(float));
    job.shard = calloc((size_t)SERVERS_ELEMENTS * (size_t)job.workers, sizeof(float));
    twill_status status = TWILL_ERR_MEMORY;
    if (job.gradient != NULL && job.summed != NULL && job.shard != NULL)
        status = run_servers(&job, &wrong);
    if (status != TWILL_OK)
        fprintf(stderr, "servers: %s: %s\n", twill_strerror(status), twill_comm_message(job.comm));
    else
        wrong += wrong_bytes(&job);
    free(job.gradient);
    free(job.summed);
    free(job.shard);
    twill_finalize(job.comm);
    return status == TWILL_OK && wrong == 0 ? 0 : 1;
}

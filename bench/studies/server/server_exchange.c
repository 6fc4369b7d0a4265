/* SPDX-License-Identifier: Apache-2.0 */
/* Measure how many exchanges of a model's gradients a parameter server makes a second, and their
 * bytes. Options switch off what makes it fast. Run it by twillrun, as README.md says. */
#include "bench/common/gradient_list.h"
#include "bench/common/option_table.h"
#include "bench/common/progress_line.h"
#include "bench/common/report.h"
#include "bench/studies/server/exchange_values.h"
#include "lib/twill_server.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The command line and the state of a rank, in main(). `file` is the gradient list, `layout` a
 * twill_server_layout, and `servers` the number of server ranks. With `traffic` each rank prints
 * the bytes that it sent and received. */
struct exchanger {
    twill_server_options options;
    twill_optimizer optimizer;
    const char *file;
    size_t layout, servers, threads, chunk, credits, steps;
    bool chunk_given;
    bool each;       /* make a new server, which registers the memory, for each exchange */
    bool malloc_own; /* buffers come from malloc() and not from twill_alloc() */
    bool worker;     /* workers apply the optimizer to the mean gradient that they pull */
    bool describe;   /* a message that describes each chunk precedes its push and its pull */
    bool each_key;   /* the exchange of a tensor ends before that of the next one begins */
    bool fuse;       /* all tensors are one key */
    bool traffic;
    bool times; /* the first worker prints percentiles of its exchanges and the size of chunks */
    double *seconds; /* [steps] */
    struct twill_bench_list list;
    twill_context *context;
    twill_comm *comm;
    twill_server *server;
    int rank, ranks;
    float **gradient, **parameters; /* one buffer for each key */
    float **weights;                /* for each key, with `worker` */
    size_t updates;                 /* how often every parameter has been updated so far */
    uint64_t *chunks_of;            /* [ranks] chunks that each rank serves, with `describe` */
};

/* Exit with status 1 after a message unless `good` is true. */
static void require(bool good, const char *message)
{
    if (good)
        return;
    fprintf(stderr, "server-exchange: %s\n", message);
    exit(1);
}

static const char usage[] =
    "Usage: server-exchange --list FILE [--layout cs|cc|nc|ncs] [--servers N] [--threads N]\n"
    "                       [--chunk SIZE] [--steps N] [--register-each] [--malloc]\n"
    "                       [--worker-updates] [--describe] [--each-key] [--fuse]\n"
    "                       [--credits N] [--traffic] [--times]\n";

#define EXCHANGE_AT(member) offsetof(struct exchanger, member)

/* clang-format off */
static const struct twill_option table[] = {
    {0, "list", OPTION_TEXT, EXCHANGE_AT(file), 0, 0, NULL, NULL, 0},
    {0, "layout", OPTION_CHOICE, EXCHANGE_AT(layout), 0, 0, "cs cc nc ncs", NULL, 0}, /* twill_server_layout */
    {0, "servers", OPTION_COUNT, EXCHANGE_AT(servers), 1, 1024, "a number from 1 to 1024", NULL, 0},
    {0, "threads", OPTION_COUNT, EXCHANGE_AT(threads), 0, 64, "a number from 0 to 64", NULL, 0},
    {0, "chunk", OPTION_SIZE, EXCHANGE_AT(chunk), 0, 0, "a size", NULL, EXCHANGE_AT(chunk_given)},
    {0, "steps", OPTION_COUNT, EXCHANGE_AT(steps), 1, 1000000, "a number from 1 to 1000000", NULL, 0},
    {0, "register-each", OPTION_SWITCH, EXCHANGE_AT(each), 0, 0, NULL, NULL, 0},
    {0, "malloc", OPTION_SWITCH, EXCHANGE_AT(malloc_own), 0, 0, NULL, NULL, 0},
    {0, "worker-updates", OPTION_SWITCH, EXCHANGE_AT(worker), 0, 0, NULL, NULL, 0},
    {0, "describe", OPTION_SWITCH, EXCHANGE_AT(describe), 0, 0, NULL, NULL, 0},
    {0, "each-key", OPTION_SWITCH, EXCHANGE_AT(each_key), 0, 0, NULL, NULL, 0},
    {0, "fuse", OPTION_SWITCH, EXCHANGE_AT(fuse), 0, 0, NULL, NULL, 0},
    {0, "traffic", OPTION_SWITCH, EXCHANGE_AT(traffic), 0, 0, NULL, NULL, 0},
    {0, "credits", OPTION_COUNT, EXCHANGE_AT(credits), 1, 1024, "a number from 1 to 1024", NULL, 0},
    {0, "times", OPTION_SWITCH, EXCHANGE_AT(times), 0, 0, NULL, NULL, 0},
};
/* clang-format on */

/* Read the command line and the list, and set the options of the server. Exits with 1 after a
 * mistake, or with 0 after --help or --version. */
static void parse(struct exchanger *x, int argc, char **argv)
{
    const struct twill_command command = {"server-exchange", usage, table,
                                          sizeof(table) / sizeof(table[0])};
    char message[256] = "no --list FILE, or a word too many";
    enum twill_parsed parsed = twill_options_parse(&command, x, argc, argv, true);
    if (parsed != TWILL_PARSED_RUN)
        exit(parsed == TWILL_PARSED_USAGE);
    require(x->file != NULL && optind == argc &&
                twill_bench_list_read(&x->list, x->file, message, sizeof(message)),
            message);
    if (x->fuse) {
        x->list.keys = 1;
        x->list.elements[0] = x->list.total;
    }
    twill_server_defaults(&x->options);
    x->options.layout = (twill_server_layout)x->layout;
    x->options.servers = (int)x->servers;
    x->options.threads = (int)x->threads;
    x->options.credits = x->credits > 0 ? (int)x->credits : x->options.credits;
    if (x->chunk_given)
        x->options.chunk_bytes = x->chunk > 0 ? x->chunk : TWILL_SERVER_WHOLE_TENSORS;
    if (x->worker)
        return;
    twill_optimizer_defaults(&x->optimizer, TWILL_OPTIMIZER_SGD);
    x->optimizer.rate = EXCHANGE_RATE;
    x->options.optimizer = &x->optimizer;
}

/* Return `count` floats, all 0, or exit if there is no memory. */
static float *allocate(struct exchanger *x, size_t count)
{
    void *memory = NULL;
    if (x->malloc_own)
        memory = malloc(count * sizeof(float));
    else
        require(twill_alloc(x->context, &memory, count * sizeof(float)) == TWILL_OK,
                twill_context_message(x->context));
    require(memory != NULL, "out of memory");
    memset(memory, 0, count * sizeof(float));
    return memory;
}

/* Allocate the gradients and parameters of all tensors of the list and, with x->worker, weights.
 * Fill the gradients with this rank's values, and the others with 0. Exits if out of memory. */
static void allocate_all(struct exchanger *x)
{
    x->gradient = calloc(x->list.keys, sizeof(float *));
    x->parameters = calloc(x->list.keys, sizeof(float *));
    x->weights = calloc(x->list.keys, sizeof(float *));
    require(x->gradient != NULL && x->parameters != NULL && x->weights != NULL, "out of memory");
    for (size_t k = 0; k < x->list.keys; k++) {
        size_t count = x->list.elements[k];
        x->gradient[k] = allocate(x, count);
        x->parameters[k] = allocate(x, count);
        for (size_t i = 0; i < count; i++)
            x->gradient[k][i] = exchange_gradient(x->rank, i);
        if (x->worker) {
            x->weights[k] = calloc(count, sizeof(float));
            require(x->weights[k] != NULL, "out of memory");
        }
    }
}

/* Free the gradients, parameters and weights of all keys. */
static void release_all(struct exchanger *x)
{
    for (size_t k = 0; k < x->list.keys; k++) {
        if (x->malloc_own) {
            free(x->gradient[k]);
            free(x->parameters[k]);
        } else {
            twill_free(x->context, x->gradient[k]);
            twill_free(x->context, x->parameters[k]);
        }
        free(x->weights[k]);
    }
    free(x->gradient);
    free(x->parameters);
    free(x->weights);
}

/* Learn how many chunks each rank serves. Exits on failure. */
static void count_chunks(struct exchanger *x)
{
    twill_server_counters c;
    require(twill_server_count(x->server, &c) == TWILL_OK, twill_server_message(x->server));
    x->chunks_of = calloc((size_t)x->ranks, sizeof(uint64_t));
    require(x->chunks_of != NULL, "out of memory");
    require(twill_allgather(x->comm, &c.chunks_here, x->chunks_of, 1, TWILL_U64) == TWILL_OK,
            twill_comm_message(x->comm));
}

/* Exchange with each other rank a message for each chunk that one of both serves, as if key, place,
 * length and type of chunks were not known since the commit. Exits on failure. */
static void describe_chunks(struct exchanger *x)
{
    struct description {
        uint64_t key, place, length, type, version, worker, push, pull;
    } sent[64] = {{0}}, got[64];
    twill_request *requests[128];
    for (int peer = 0; peer < x->ranks; peer++) {
        uint64_t left = peer == x->rank ? 0 : x->chunks_of[peer] + x->chunks_of[x->rank];
        while (left > 0) {
            int n = (int)(left < 64 ? left : 64);
            twill_status status = TWILL_OK;
            for (int i = 0; i < n && status == TWILL_OK; i++) {
                sent[i].key = left - (uint64_t)i;
                status = twill_recv_start(x->comm, &got[i], sizeof(got[i]), TWILL_U8, peer,
                                          &requests[2 * i]);
                if (status == TWILL_OK)
                    status = twill_send_start(x->comm, &sent[i], sizeof(sent[i]), TWILL_U8, peer,
                                              &requests[2 * i + 1]);
            }
            if (status == TWILL_OK)
                status = twill_wait_all(2 * n, requests);
            require(status == TWILL_OK, twill_comm_message(x->comm));
            left -= (uint64_t)n;
        }
    }
}

/* Make the server and register all keys. With x->each, later servers take the chunk size of this
 * one. Exits on failure. */
static void open_server(struct exchanger *x)
{
    twill_status status = twill_server_create(&x->server, x->comm, &x->options);
    require(status == TWILL_OK, twill_comm_message(x->comm));
    for (size_t k = 0; k < x->list.keys; k++) {
        char name[24];
        snprintf(name, sizeof(name), "%zu", k);
        const twill_tensor tensor = {.name = name,
                                     .count = x->list.elements[k],
                                     .type = TWILL_F32,
                                     .gradient = x->gradient[k],
                                     .parameters = x->parameters[k]};
        status = twill_server_add(x->server, &tensor, NULL);
        require(status == TWILL_OK, twill_server_message(x->server));
    }
    status = twill_server_commit(x->server);
    require(status == TWILL_OK, twill_server_message(x->server));
    if (x->each) { /* The next server takes the size that this one has found. */
        twill_server_counters c;
        require(twill_server_count(x->server, &c) == TWILL_OK, twill_server_message(x->server));
        x->options.chunk_bytes = (size_t)c.chunk_bytes;
    }
}

/* Let a worker update its weights by the mean gradient that it has pulled. */
static void update_weights(struct exchanger *x)
{
    for (size_t k = 0; k < x->list.keys; k++) {
        float *weights = x->weights[k];
        const float *mean = x->parameters[k];
        for (size_t i = 0; i < x->list.elements[k]; i++)
            weights[i] -= EXCHANGE_RATE * mean[i];
    }
}

/* Push all gradients, pull the results and wait until they are there. `keys` has the indices of all
 * tensors in the order of the pushes. With x->each, make a server if there is none and destroy it.
 * With x->worker, the weights are updated by the results. With x->each_key, do so for one tensor
 * after the other, and with x->describe, describe the chunks first. Exits on failure. */
static void exchange(struct exchanger *x, const int *keys)
{
    if (x->each && x->server == NULL)
        open_server(x);
    if (x->describe && x->chunks_of == NULL)
        count_chunks(x);
    if (x->describe)
        describe_chunks(x);
    size_t at_once = x->each_key ? 1 : x->list.keys;
    twill_status status = TWILL_OK;
    for (size_t k = 0; k < x->list.keys && status == TWILL_OK; k += at_once) {
        status = twill_server_push_pull_all(x->server, at_once, keys + k);
        if (status == TWILL_OK)
            status = twill_server_wait(x->server, -1);
    }
    require(status == TWILL_OK, twill_server_message(x->server));
    if (x->worker)
        update_weights(x);
    x->updates++;
    if (x->each) {
        twill_server_destroy(x->server);
        x->server = NULL;
    }
}

/* Return how many results differ from what the updates of these workers must have given. */
static size_t count_wrong(const struct exchanger *x, int workers, int first_worker)
{
    size_t wrong = 0;
    for (size_t k = 0; k < x->list.keys; k++) {
        const float *got = x->worker ? x->weights[k] : x->parameters[k];
        for (size_t i = 0; i < x->list.elements[k]; i++)
            wrong += exchange_is_wrong(got[i], i, first_worker, workers, x->updates);
    }
    return wrong;
}

/* Make two exchanges, then time x->steps more in x->seconds. `keys` has all keys in the order in
 * which an exchange pushes them. Returns the sum of the timed seconds. */
static double time_steps(struct exchanger *x, const int *keys)
{
    struct twill_bench_progress progress;
    twill_bench_progress_begin(&progress, x->rank == 0);
    for (int i = 0; i < 2; i++)
        exchange(x, keys);
    double begin = twill_bench_now(), last = begin;
    for (size_t i = 0; i < x->steps; i++) {
        exchange(x, keys);
        double now = twill_bench_now();
        x->seconds[i] = now - last;
        twill_bench_progress_show(&progress, i + 1, x->steps, "exchanges");
        last = now;
    }
    twill_bench_progress_clear(&progress);
    return last - begin;
}

/* Print how many bytes this rank has sent, received and copied since twill_server_commit(), and the
 * CPU time of its process. */
static void print_traffic(const struct exchanger *x)
{
    twill_server_counters c;
    require(twill_server_count(x->server, &c) == TWILL_OK, twill_server_message(x->server));
    printf("rank %d: sent %.0f received %.0f in messages %.0f metadata %.0f copied %.0f "
           "registrations %.0f chunks %.0f of %.0f cpu %.3f s\n",
           x->rank, (double)c.bytes_sent, (double)c.bytes_received, (double)c.bytes_messages,
           (double)c.bytes_metadata, (double)c.bytes_copied, (double)c.registrations,
           (double)c.chunks_here, (double)c.chunks, (double)clock() / CLOCKS_PER_SEC);
}

/* Print the median and 99th percentile of the seconds of an exchange. If there is a server that
 * divides tensors, also print the bytes of its chunks. */
static void print_times(const struct exchanger *x, const struct twill_bench_statistics *each)
{
    twill_server_counters c = {0};
    printf("an exchange: p50 %.3f ms p99 %.3f ms\n", each->median * 1e3, each->p99 * 1e3);
    if (x->server == NULL)
        return;
    require(twill_server_count(x->server, &c) == TWILL_OK, twill_server_message(x->server));
    if (c.chunk_bytes != TWILL_SERVER_WHOLE_TENSORS)
        printf("chunks of %llu bytes\n", (unsigned long long)c.chunk_bytes);
}

/* Be a worker. Make all exchanges, and print the results if this is the first worker. */
static void work(struct exchanger *x, int workers, int first_worker)
{
    int *keys = calloc(x->list.keys, sizeof(int));
    x->seconds = calloc(x->steps, sizeof(double));
    require(keys != NULL && x->seconds != NULL, "out of memory");
    for (size_t k = 0; k < x->list.keys; k++)
        keys[k] = (int)(x->list.keys - 1 - k);
    double seconds = time_steps(x, keys);
    double bytes = 4.0 * (double)x->list.total * workers * (double)x->steps;
    if (x->rank == first_worker)
        printf("%.3f exchanges/s  %.3f GB/s aggregated  %zu wrong\n", (double)x->steps / seconds,
               bytes / seconds / 1e9, count_wrong(x, workers, first_worker));
    struct twill_bench_statistics each = twill_bench_statistics(x->seconds, x->steps);
    if (x->times && x->rank == first_worker)
        print_times(x, &each);
    free(x->seconds);
    free(keys);
}

/* Time exchanges with a parameter server and print their speed. Returns 0, or exits with 1. */
int main(int argc, char **argv)
{
    struct exchanger x = {.steps = 10, .servers = 1};
    parse(&x, argc, argv);
    require(twill_init(&x.comm) == TWILL_OK, "twill_init");
    x.context = twill_comm_context(x.comm);
    x.rank = twill_comm_rank(x.comm);
    x.ranks = twill_comm_size(x.comm);
    int servers = x.options.layout == TWILL_SERVER_NC    ? 1
                  : x.options.layout == TWILL_SERVER_NCS ? x.options.servers
                                                         : 0;
    require(servers < x.ranks && (servers == 0 || (!x.each && !x.describe)),
            "too few ranks, or --register-each or --describe with servers that do not work");
    allocate_all(&x);
    if (!x.each)
        open_server(&x);
    if (servers == 0 || twill_server_role(x.server) != TWILL_SERVER_SERVES)
        work(&x, x.ranks - servers, servers);
    if (x.server != NULL && twill_server_role(x.server) != TWILL_SERVER_WORKS)
        require(twill_server_serve(x.server) == TWILL_OK, twill_server_message(x.server));
    if (x.traffic && x.server != NULL)
        print_traffic(&x);
    twill_server_destroy(x.server);
    release_all(&x);
    free(x.chunks_of);
    twill_bench_list_free(&x.list);
    twill_finalize(x.comm);
    return 0;
}

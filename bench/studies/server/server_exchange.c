/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges of a model's gradients with a parameter server: how many a second, with each of the
 * server's means switched off by an option, and how many bytes. Run it by twillrun; README.md. */
#include "bench/common/gradient_list.h"
#include "bench/common/report.h"
#include "bench/studies/server/exchange_values.h"
#include "lib/twill_server.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct exchanger {
    twill_server_options options;
    twill_optimizer optimizer;
    size_t steps;
    bool each;       /* register for each exchange */
    bool malloc_own; /* memory of malloc() */
    bool worker;     /* workers apply the optimizer to the mean that they pull */
    bool traffic;    /* print the bytes of each rank */
    bool times;      /* print percentiles of the exchanges of the first worker, and the chunks */
    double *seconds; /* [steps] */
    struct twill_bench_list list;
    twill_context *context;
    twill_comm *comm;
    twill_server *server;
    int rank, ranks;
    float **gradient, **parameters; /* of keys */
    float **weights;                /* of keys, with `worker` */
    size_t updates;                 /* of every parameter, so far */
};

static void require(bool good, const char *message)
{
    if (good)
        return;
    fprintf(stderr, "server-exchange: %s\n", message);
    exit(1);
}

static void store(struct exchanger *x, int letter)
{
    static const char *const layouts[] = {"cs", "cc", "nc", "ncs"};
    size_t number = 0;
    char message[256];
    bool good = true;
    switch (letter) {
    case 'l':
        if (!twill_bench_list_read(&x->list, optarg, message, sizeof(message)))
            require(false, message);
        break;
    case 'L':
        good = false;
        for (int i = 0; i < 4; i++) {
            if (strcmp(optarg, layouts[i]) == 0) {
                x->options.layout = (twill_server_layout)i;
                good = true;
            }
        }
        break;
    case 'S':
        good = twill_bench_parse_number(optarg, 1, 1024, &number);
        x->options.servers = (int)number;
        break;
    case 't':
        good = twill_bench_parse_number(optarg, 0, 64, &number);
        x->options.threads = (int)number;
        break;
    case 'c':
        good = twill_bench_parse_size(optarg, &x->options.chunk_bytes);
        if (x->options.chunk_bytes == 0)
            x->options.chunk_bytes = TWILL_SERVER_WHOLE_TENSORS;
        break;
    case 'n':
        good = twill_bench_parse_number(optarg, 1, 1000000, &x->steps);
        break;
    case 'e':
        x->each = true;
        break;
    case 'm':
        x->malloc_own = true;
        break;
    case 'w':
        x->worker = true;
        break;
    case 'b':
        x->traffic = true;
        break;
    case 'C':
        good = twill_bench_parse_number(optarg, 1, 1024, &number);
        x->options.credits = (int)number;
        break;
    case 'T':
        x->times = true;
        break;
    default:
        good = false;
    }
    require(good, "options: --list FILE [--layout cs|cc|nc|ncs] [--servers N] [--threads N] "
                  "[--chunk SIZE] [--steps N] [--register-each] [--malloc] [--worker-updates] "
                  "[--credits N] [--traffic] [--times]");
}

static void parse(struct exchanger *x, int argc, char **argv)
{
    static const struct option options[] = {
        {"list", required_argument, NULL, 'l'},
        {"layout", required_argument, NULL, 'L'},
        {"servers", required_argument, NULL, 'S'},
        {"threads", required_argument, NULL, 't'},
        {"chunk", required_argument, NULL, 'c'},
        {"steps", required_argument, NULL, 'n'},
        {"register-each", no_argument, NULL, 'e'},
        {"malloc", no_argument, NULL, 'm'},
        {"worker-updates", no_argument, NULL, 'w'},
        {"traffic", no_argument, NULL, 'b'},
        {"credits", required_argument, NULL, 'C'},
        {"times", no_argument, NULL, 'T'},
        {NULL, 0, NULL, 0},
    };
    int letter;
    twill_server_defaults(&x->options);
    while ((letter = getopt_long(argc, argv, "", options, NULL)) != -1)
        store(x, letter);
    require(x->list.keys > 0 && optind == argc, "no --list FILE, or a word too many");
    if (x->worker)
        return;
    twill_optimizer_defaults(&x->optimizer, TWILL_OPTIMIZER_SGD);
    x->optimizer.rate = EXCHANGE_RATE;
    x->options.optimizer = &x->optimizer;
}

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
    if (x->each) { /* a size is tuned once */
        twill_server_counters c;
        require(twill_server_count(x->server, &c) == TWILL_OK, twill_server_message(x->server));
        x->options.chunk_bytes = (size_t)c.chunk_bytes;
    }
}

/* The optimizer as a pass of its own over what was pulled. */
static void update_weights(struct exchanger *x)
{
    for (size_t k = 0; k < x->list.keys; k++) {
        float *weights = x->weights[k];
        const float *mean = x->parameters[k];
        for (size_t i = 0; i < x->list.elements[k]; i++)
            weights[i] -= EXCHANGE_RATE * mean[i];
    }
}

/* One exchange: push all gradients in the order of a backward pass, pull what became of them. */
static void exchange(struct exchanger *x, const int *keys)
{
    if (x->each && x->server == NULL)
        open_server(x);
    twill_status status = twill_server_push_pull_all(x->server, x->list.keys, keys);
    if (status == TWILL_OK)
        status = twill_server_wait(x->server, -1);
    require(status == TWILL_OK, twill_server_message(x->server));
    if (x->worker)
        update_weights(x);
    x->updates++;
    if (x->each) {
        twill_server_destroy(x->server);
        x->server = NULL;
    }
}

/* Compare the parameters with what the updates must have made of them. */
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

static double time_steps(struct exchanger *x, const int *keys)
{
    for (int i = 0; i < 2; i++)
        exchange(x, keys);
    double begin = twill_bench_now(), last = begin;
    for (size_t i = 0; i < x->steps; i++) {
        exchange(x, keys);
        double now = twill_bench_now();
        x->seconds[i] = now - last;
        last = now;
    }
    return last - begin;
}

/* Print what this rank has moved since the commit, and its CPU time since it began. */
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

/* Exchange, and print how fast. */
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

int main(int argc, char **argv)
{
    struct exchanger x = {.steps = 10};
    parse(&x, argc, argv);
    require(twill_init(&x.comm) == TWILL_OK, "twill_init");
    x.context = twill_comm_context(x.comm);
    x.rank = twill_comm_rank(x.comm);
    x.ranks = twill_comm_size(x.comm);
    int servers = x.options.layout == TWILL_SERVER_NC    ? 1
                  : x.options.layout == TWILL_SERVER_NCS ? x.options.servers
                                                         : 0;
    require(servers < x.ranks && (servers == 0 || !x.each), "too few ranks, or --register-each "
                                                            "with servers that do not work");
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
    twill_bench_list_free(&x.list);
    twill_finalize(x.comm);
    return 0;
}

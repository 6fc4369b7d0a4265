/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter server whose workers sleep for random times instead of computing, to compare its
 * updates and its staleness with twill-simulate's: server-delays MODE K LAW MEAN UPDATES, by
 * twillrun. Rank 0 serves. MODE: a number of twill_server_mode; LAW: exp, or uniform (0.5 to 1.5
 * times MEAN); MEAN: milliseconds. delays.sh runs it. */
#include "bench/common/report.h"
#include "lib/twill_server.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DELAY_STALENESS 1024

struct delays {
    twill_comm *comm;
    twill_server *server;
    int mode, k;
    bool uniform;
    double mean; /* seconds */
    uint64_t updates;
};

static void require(bool good, const char *message)
{
    if (good)
        return;
    fprintf(stderr, "server-delays: %s\n", message);
    exit(1);
}

static void sleep_once(const struct delays *d)
{
    double unit = drand48(), seconds = d->mean * (d->uniform ? 0.5 + unit : -log(1 - unit));
    struct timespec time = {(time_t)seconds, (long)(fmod(seconds, 1) * 1e9)};
    nanosleep(&time, NULL);
}

/* Work until the updates are done; the first tenth is not timed. */
static void work(const struct delays *d)
{
    double begin = 0;
    uint64_t version = 0, first = 0;
    while (version < d->updates) {
        sleep_once(d);
        require(twill_server_push_pull(d->server, 0) == TWILL_OK &&
                    twill_server_wait(d->server, 0) == TWILL_OK,
                twill_server_message(d->server));
        version = twill_server_version(d->server, 0);
        if (begin == 0 && version >= d->updates / 10) {
            begin = twill_bench_now();
            first = version;
        }
    }
    if (twill_comm_rank(d->comm) == 1)
        printf("update_s %.6f\n", (twill_bench_now() - begin) / (double)(version - first));
}

static void report(const struct delays *d)
{
    uint64_t histogram[DELAY_STALENESS], above = 0;
    double sum = 0;
    twill_server_counters c;
    require(twill_server_count(d->server, &c) == TWILL_OK &&
                twill_server_staleness(d->server, histogram, DELAY_STALENESS) == TWILL_OK,
            twill_server_message(d->server));
    for (int i = 0; i < DELAY_STALENESS; i++) {
        sum += (double)i * (double)histogram[i];
        above += i > 2 * d->k ? histogram[i] : 0;
    }
    printf("stale %.4f above %.6f updates %llu gradients %llu dropped %llu\n",
           sum / (double)c.gradients, (double)above / (double)c.gradients,
           (unsigned long long)c.updates, (unsigned long long)c.gradients,
           (unsigned long long)c.dropped);
}

int main(int argc, char **argv)
{
    struct delays d = {0};
    twill_server_options options;
    twill_optimizer sgd;
    twill_tensor tensor = {.name = "w", .count = 64, .type = TWILL_F32};
    require(argc == 6, "usage: server-delays MODE K exp|uniform MEAN UPDATES");
    d.mode = atoi(argv[1]);
    d.k = atoi(argv[2]);
    d.uniform = strcmp(argv[3], "uniform") == 0;
    d.mean = atof(argv[4]) * 1e-3;
    d.updates = strtoull(argv[5], NULL, 10);
    require(twill_init(&d.comm) == TWILL_OK, "twill_init");
    srand48(twill_comm_rank(d.comm) + 1);
    twill_server_defaults(&options);
    twill_optimizer_defaults(&sgd, TWILL_OPTIMIZER_SGD);
    options.layout = TWILL_SERVER_NC;
    options.mode = (twill_server_mode)d.mode;
    options.k = d.k;
    options.optimizer = &sgd;
    require(twill_server_create(&d.server, d.comm, &options) == TWILL_OK,
            twill_comm_message(d.comm));
    require(twill_server_add(d.server, &tensor, NULL) == TWILL_OK &&
                twill_server_commit(d.server) == TWILL_OK,
            twill_server_message(d.server));
    if (twill_server_role(d.server) == TWILL_SERVER_WORKS)
        work(&d);
    else if (twill_server_serve(d.server) == TWILL_OK)
        report(&d);
    twill_server_destroy(d.server);
    twill_finalize(d.comm);
    return 0;
}

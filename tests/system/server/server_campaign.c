/* SPDX-License-Identifier: Apache-2.0 */
/* server_campaign DEATHS SEED LAYOUT MODE REPLICAS FILE: under twillrun --elastic, a parameter
 * server whose ranks are killed at random moments and replaced, also by a timer in the middle of a
 * push. A round is CAMPAIGN_STEPS versions, in which one rank dies: with layout nc a worker, with
 * cs any rank, which serves, too. The others end the round, shrink, admit the new process and
 * rebuild the server. MODE: sync, async, bounded, k-batch-async (of two gradients).
 *
 * All gradients are ones, and the rate is 1, so that parameters are minus the number of gradients:
 * in synchronous mode minus the version that all have agreed to reach. An update that is lost, or
 * is made twice, is seen at once. In the other modes counts in FILE prove it. */
#include "lib/twill_recover.h"
#include "lib/twill_server.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CAMPAIGN_STEPS = 8, CAMPAIGN_COUNT = 2500, ADMIT_TRIES = 4000 };
enum { CAMPAIGN_KEYS = 2, CAMPAIGN_CHUNKS = 8, CAMPAIGN_CHUNK = 1024, CAMPAIGN_RANKS = 16 };
enum { CAMPAIGN_MOMENTS = 6, TIMER_MOMENT = 4, TIMER_MOST_US = 1500 };

/* Counts of pushes in a file that all ranks map, so that they outlive a rank that is killed. They
 * prove that no push which was answered is lost and none counts twice: between two moments at which
 * no push is under way, each chunk has taken all pushes that have ended and none that has not
 * started. */
struct campaign_counts {
    _Atomic uint64_t started[CAMPAIGN_RANKS][CAMPAIGN_KEYS], ended[CAMPAIGN_RANKS][CAMPAIGN_KEYS];
    /* One rank reads and writes the rest: the sums when a key was compared last, and the least and
     * the most gradients that its chunks had taken then. */
    uint64_t started_before[CAMPAIGN_KEYS], ended_before[CAMPAIGN_KEYS];
    uint64_t least[CAMPAIGN_KEYS][CAMPAIGN_CHUNKS], most[CAMPAIGN_KEYS][CAMPAIGN_CHUNKS];
};

/* Map the file; it is made if it is not there. Returns NULL if that fails. */
static struct campaign_counts *counts_open(const char *path)
{
    struct campaign_counts *counts = MAP_FAILED;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0 && ftruncate(file, sizeof(*counts)) == 0)
        counts = mmap(NULL, sizeof(*counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    return counts == MAP_FAILED ? NULL : counts;
}

/* A rank pushes a key; its push is complete. */
static void counts_started(struct campaign_counts *counts, int rank, int key)
{
    atomic_fetch_add(&counts->started[rank][key], 1);
}

static void counts_ended(struct campaign_counts *counts, int rank, int key)
{
    atomic_fetch_add(&counts->ended[rank][key], 1);
}

static uint64_t sum(_Atomic uint64_t count[CAMPAIGN_RANKS][CAMPAIGN_KEYS], int key)
{
    uint64_t all = 0;
    for (int r = 0; r < CAMPAIGN_RANKS; r++)
        all += atomic_load(&count[r][key]);
    return all;
}

/* Return whether a chunk may have taken `taken` gradients or, if an update takes several, up to
 * `update` - 1 more which wait for theirs. If not, print what it may have taken. */
static bool counts_agree(struct campaign_counts *counts, int key, int chunk, uint64_t taken,
                         uint64_t update)
{
    uint64_t *least = &counts->least[key][chunk], *most = &counts->most[key][chunk];
    *least += sum(counts->ended, key) - counts->ended_before[key];
    *most += sum(counts->started, key) - counts->started_before[key];
    if (taken + update - 1 < *least || taken > *most) {
        fprintf(stderr, "chunk %d of key %d has taken %llu gradients, not %llu to %llu\n", chunk,
                key, (unsigned long long)taken, (unsigned long long)*least,
                (unsigned long long)*most);
        return false;
    }
    *least = taken > *least ? taken : *least;
    *most = taken + update - 1 < *most ? taken + update - 1 : *most;
    return true;
}

/* All chunks of a key have been compared: later pushes are counted from here. */
static void counts_settle(struct campaign_counts *counts, int key)
{
    counts->started_before[key] = sum(counts->started, key);
    counts->ended_before[key] = sum(counts->ended, key);
}

/* --- the job ------------------------------------------------------------------------------------
 */

struct campaign {
    twill_comm *comm;
    twill_server *server;
    twill_server_options options;
    twill_optimizer rule;
    uint64_t seed, deaths;
    int full; /* ranks of the job */
    struct campaign_counts *counts;
};

static _Noreturn void give_up(const struct campaign *c, const char *call, const char *why)
{
    fprintf(stderr, "server_campaign: rank %d, epoch %d: %s: %s\n", twill_comm_rank(c->comm),
            twill_comm_epoch(c->comm), call, why);
    exit(1);
}

/* The same number on all ranks of an epoch. */
static uint64_t draw(const struct campaign *c, uint64_t what)
{
    uint64_t x = c->seed * 0x9e3779b97f4a7c15u + (uint64_t)twill_comm_epoch(c->comm) * 977 + what;
    x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 29) * 0x94d049bb133111ebu;
    return x ^ x >> 32;
}

/* Returns TWILL_ERR_PEER if a rank has died meanwhile. */
static twill_status open_campaign_server(struct campaign *c)
{
    static const char *const names[CAMPAIGN_KEYS] = {"first", "second"};
    if (c->server != NULL)
        return twill_server_rebuild(&c->server, c->comm);
    if (twill_server_create(&c->server, c->comm, &c->options) != TWILL_OK)
        give_up(c, "twill_server_create", twill_comm_message(c->comm));
    for (int k = 0; k < CAMPAIGN_KEYS; k++) {
        twill_tensor tensor = {.name = names[k], .count = CAMPAIGN_COUNT, .type = TWILL_F32};
        if (twill_server_add(c->server, &tensor, NULL) != TWILL_OK)
            give_up(c, "twill_server_add", twill_server_message(c->server));
    }
    return twill_server_commit(c->server);
}

static uint64_t least_version(const struct campaign *c)
{
    uint64_t a = twill_server_version(c->server, 0), b = twill_server_version(c->server, 1);
    return a < b ? a : b;
}

static bool is_in_step(const struct campaign *c)
{
    return c->options.mode == TWILL_SERVER_SYNC;
}

static int gradients_of_update(const struct campaign *c)
{
    return c->options.mode == TWILL_SERVER_K_BATCH_ASYNC ? c->options.k : 1;
}

/* Compare the parameters that have been pulled by the commit with the pushes so far, of which none
 * is under way. */
static twill_status check_counts(struct campaign *c)
{
    bool works = (twill_server_role(c->server) & TWILL_SERVER_WORKS) != 0;
    int lowest = c->options.layout == TWILL_SERVER_NC;
    for (int k = 0; works && twill_comm_rank(c->comm) == lowest && k < CAMPAIGN_KEYS; k++) {
        const float *w = twill_server_parameters(c->server, k);
        for (int chunk = 0; chunk * CAMPAIGN_CHUNK < CAMPAIGN_COUNT; chunk++) {
            const float *first = &w[chunk * CAMPAIGN_CHUNK];
            for (int i = 1; i < CAMPAIGN_CHUNK && chunk * CAMPAIGN_CHUNK + i < CAMPAIGN_COUNT; i++)
                if (first[i] != first[0])
                    give_up(c, "check", "parameters of a chunk differ");
            if (!counts_agree(c->counts, k, chunk, (uint64_t)-first[0],
                              (uint64_t)gradients_of_update(c)))
                give_up(c, "check", "an update was lost or made twice");
        }
        counts_settle(c->counts, k);
    }
    return twill_barrier(c->comm);
}

/* Parameters are minus the updates. */
static void check_round(const struct campaign *c, uint64_t target)
{
    for (int k = 0; k < CAMPAIGN_KEYS; k++) {
        const float *w = twill_server_parameters(c->server, k);
        float most = w[0];
        for (int i = 0; i < CAMPAIGN_COUNT; i++) {
            most = w[i] > most ? w[i] : most;
            if (is_in_step(c) && w[i] != -(float)target) {
                fprintf(stderr, "element %d of key %d is %g, not %g\n", i, k, (double)w[i],
                        -(double)target);
                give_up(c, "check", "an update was lost or made twice");
            }
        }
        if (most != -(float)(twill_server_version(c->server, k) * (uint64_t)gradients_of_update(c)))
            give_up(c, "check", "parameters and versions differ");
    }
}

/* Return the moment of the round's death, if it is this rank that dies and in this step, else -1.
 * Moments from TIMER_MOMENT on are drawn by a timer. */
static int death_moment(const struct campaign *c, uint64_t step)
{
    bool nc = c->options.layout == TWILL_SERVER_NC;
    uint64_t victim = draw(c, 1) % (uint64_t)(c->full - nc) + nc;
    bool dies = (uint64_t)twill_comm_epoch(c->comm) < c->deaths &&
                (uint64_t)twill_comm_rank(c->comm) == victim && step == draw(c, 2) % CAMPAIGN_STEPS;
    return dies ? (int)(draw(c, 3) % CAMPAIGN_MOMENTS) : -1;
}

static void die_if_drawn(const struct campaign *c, uint64_t step, int moment)
{
    if (death_moment(c, step) == moment)
        (void)raise(SIGKILL);
}

static twill_status run_round(struct campaign *c)
{
    twill_status status = TWILL_OK;
    uint64_t target = (least_version(c) / CAMPAIGN_STEPS + 1) * CAMPAIGN_STEPS;
    for (uint64_t step = 0; status == TWILL_OK && least_version(c) < target; step++) {
        if (death_moment(c, step) >= TIMER_MOMENT) /* SIGALRM ends the process */
            (void)ualarm((useconds_t)(1 + draw(c, 4) % TIMER_MOST_US), 0);
        for (int k = 0; k < CAMPAIGN_KEYS && status == TWILL_OK; k++) {
            float *gradient = twill_server_gradient(c->server, k);
            if (is_in_step(c) && twill_server_version(c->server, k) >= target)
                continue; /* this key had a version more when a server died */
            for (int i = 0; i < CAMPAIGN_COUNT; i++)
                gradient[i] = 1;
            die_if_drawn(c, step, k);
            counts_started(c->counts, twill_comm_rank(c->comm), k);
            status = twill_server_push_pull(c->server, k);
            die_if_drawn(c, step, CAMPAIGN_KEYS + k);
        }
        if (status == TWILL_OK)
            status = twill_server_wait(c->server, -1);
        for (int k = 0; k < CAMPAIGN_KEYS && status == TWILL_OK; k++)
            counts_ended(c->counts, twill_comm_rank(c->comm), k);
    }
    if (status == TWILL_OK)
        check_round(c, target);
    for (uint64_t step = 0; step < CAMPAIGN_STEPS; step++) /* the round was shorter */
        if (death_moment(c, step) >= 0)
            (void)raise(SIGKILL);
    return status == TWILL_OK ? twill_server_leave(c->server) : status;
}

/* Go on with the survivors and the new process. */
static void replace(struct campaign *c)
{
    twill_comm *made = NULL;
    if (twill_comm_shrink(&made, c->comm) != TWILL_OK)
        give_up(c, "twill_comm_shrink", twill_comm_message(c->comm));
    twill_comm_leave(c->comm);
    c->comm = made;
    for (int tries = 0; twill_comm_size(c->comm) < c->full; tries++) {
        twill_status status = twill_comm_admit(&made, c->comm);
        if (tries == ADMIT_TRIES || (status != TWILL_OK && made == NULL && tries > 100))
            give_up(c, "twill_comm_admit", twill_comm_message(c->comm));
        if (made != NULL) {
            twill_comm_leave(c->comm);
            c->comm = made;
        } else
            (void)usleep(5000);
    }
}

static bool find_mode(twill_server_options *options, const char *name)
{
    static const struct {
        const char *name;
        twill_server_mode mode;
        int k;
        twill_op op;
    } modes[] = {{"sync", TWILL_SERVER_SYNC, 1, TWILL_AVG},
                 {"async", TWILL_SERVER_ASYNC, 1, TWILL_AVG},
                 {"bounded", TWILL_SERVER_BOUNDED, 2, TWILL_AVG},
                 {"k-batch-async", TWILL_SERVER_K_BATCH_ASYNC, 2, TWILL_SUM}};
    twill_server_defaults(options);
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
        if (strcmp(modes[i].name, name) == 0) {
            options->mode = modes[i].mode;
            options->k = modes[i].k;
            options->op = modes[i].op;
            return true;
        }
    return false;
}

int main(int argc, char **argv)
{
    struct campaign c = {.full = 4};
    if (argc != 7 || !find_mode(&c.options, argv[4]) || (c.counts = counts_open(argv[6])) == NULL ||
        twill_init(&c.comm) != TWILL_OK)
        return 2;
    c.deaths = strtoull(argv[1], NULL, 10);
    c.seed = strtoull(argv[2], NULL, 10);
    twill_optimizer_defaults(&c.rule, TWILL_OPTIMIZER_SGD);
    c.rule.rate = 1;
    c.options.optimizer = &c.rule;
    c.options.layout = strcmp(argv[3], "nc") == 0 ? TWILL_SERVER_NC : TWILL_SERVER_CS;
    c.options.replicas = atoi(argv[5]);
    c.options.chunk_bytes = CAMPAIGN_CHUNK * sizeof(float);
    for (;;) {
        uint64_t epoch = (uint64_t)twill_comm_epoch(c.comm);
        twill_status status = open_campaign_server(&c);
        if (status == TWILL_OK && !is_in_step(&c))
            status = check_counts(&c);
        if (status == TWILL_OK && (twill_server_role(c.server) & TWILL_SERVER_WORKS) != 0)
            status = run_round(&c);
        if (status == TWILL_OK && (twill_server_role(c.server) & TWILL_SERVER_SERVES) != 0)
            status = twill_server_serve(c.server);
        if (status != TWILL_OK && status != TWILL_ERR_PEER)
            give_up(&c, "round", twill_server_message(c.server));
        if (epoch >= c.deaths)
            break;
        if (c.deaths > 8) /* twillrun restarts at most 10 in 10 seconds */
            (void)usleep(1100000);
        replace(&c);
    }
    printf("rank %d of %d, epoch %d\n", twill_comm_rank(c.comm), twill_comm_size(c.comm),
           twill_comm_epoch(c.comm));
    twill_server_destroy(c.server);
    twill_finalize(c.comm);
    return 0;
}

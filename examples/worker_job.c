/* SPDX-License-Identifier: Apache-2.0 */
/* Read the options and the data of worker.c, and print its reports. */
#include "worker.h"

#include "phases.h"

#include <twill_recover.h>

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    HIDDEN_UNITS = 32,
    BATCH_SAMPLES = 16,
    ADMIT_TRIES = 4000,
    ADMIT_PAUSE_US = 5000,
    ROUND_TRIES = 10
};

static int find_word(const char *const *words, const char *word)
{
    for (int i = 0; words[i] != NULL; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    return -1;
}

/* In the order of twill_server_mode. In "groups", groups of K ranks push asynchronously. */
static const char *const modes[] = {"sync",  "k-sync",   "k-batch-sync", "k-async", "k-batch-async",
                                    "async", "softsync", "bounded",      "groups",  NULL};
static const char *const layouts[] = {"cs", "cc", "nc", "ncs", NULL};
static const char *const rates[] = {"fixed", "staleness", "distance", NULL};
static const char *const rules[] = {"sgd", "adagrad", "adam", "adamw", NULL};

struct worker_words {
    const char *data, *curve;
    int epochs, mode;
};

/* Take an option and its value. Returns false if it is none or the value is wrong. */
static bool take_option(struct worker_job *job, struct worker_words *words, const char *name,
                        const char *value)
{
    twill_server_options *o = &job->options;
    int word = 0;
    if (strcmp(name, "--mode") == 0)
        words->mode = word = find_word(modes, value);
    else if (strcmp(name, "--layout") == 0)
        o->layout = (twill_server_layout)(word = find_word(layouts, value));
    else if (strcmp(name, "--rate-rule") == 0)
        o->rate = (twill_server_rate)(word = find_word(rates, value));
    else if (strcmp(name, "--optimizer") == 0) {
        word = find_word(rules, value);
        twill_optimizer_defaults(&job->optimizer, (twill_optimizer_rule)(word < 0 ? 0 : word));
    } else if (strcmp(name, "--k") == 0)
        o->k = atoi(value);
    else if (strcmp(name, "--servers") == 0)
        o->servers = atoi(value);
    else if (strcmp(name, "--threads") == 0)
        o->threads = atoi(value);
    else if (strcmp(name, "--replicas") == 0)
        o->replicas = atoi(value);
    else if (strcmp(name, "--rounds") == 0)
        job->rounds = strtoul(value, NULL, 10);
    else if (strcmp(name, "--rate") == 0)
        job->optimizer.rate = atof(value);
    else if (strcmp(name, "--epochs") == 0)
        words->epochs = atoi(value);
    else if (strcmp(name, "--data") == 0)
        words->data = value;
    else if (strcmp(name, "--curve") == 0)
        words->curve = value;
    else if (strcmp(name, "--wait") == 0)
        job->wait = atof(value);
    else if (strcmp(name, "--kill") == 0)
        word = sscanf(value, "%d:%d", &job->kill_rank, &job->kill_at) == 2 ? 0 : -1;
    else
        word = -1;
    return word >= 0;
}

/* Scale each feature to zero mean and unit variance over the training samples. */
static void standardise_samples(struct worker_job *job)
{
    size_t features = job->train.features, n = job->train.count;
    for (size_t f = 0; f < features; f++) {
        double sum = 0, squares = 0;
        for (size_t i = 0; i < n; i++) {
            double x = (double)job->train.values[i * features + f];
            sum += x;
            squares += x * x;
        }
        double mean = sum / (double)n, deviation = sqrt(fmax(squares / (double)n - mean * mean, 0));
        double scale = deviation > 0 ? 1 / deviation : 0;
        example_standardise(&job->train, f, mean, scale);
        example_standardise(&job->held_out, f, mean, scale);
    }
}

static bool load_samples(struct worker_job *job, const char *path, size_t *classes)
{
    struct example_file file = {0};
    char message[200] = "out of memory";
    size_t train = 0, *order = NULL;
    bool good = example_file_open(&file, path, EXAMPLE_AUTO, message, sizeof(message)) == 0 &&
                (order = example_split(&file, 1, &train)) != NULL;
    good = good && example_load(&file, order, train, &job->train, message, sizeof(message)) == 0 &&
           example_load(&file, order + train, file.samples - train, &job->held_out, message,
                        sizeof(message)) == 0;
    if (good)
        standardise_samples(job);
    else
        fprintf(stderr, "worker: %s\n", message);
    *classes = file.classes;
    free(order);
    example_file_close(&file);
    return good;
}

/* Read all options. Returns false after printing how to use the program. */
static bool read_options(struct worker_job *job, struct worker_words *words, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2)
        if (i + 1 == argc || !take_option(job, words, argv[i], argv[i + 1])) {
            fprintf(stderr,
                    "usage: worker [--mode MODE] [--k K] [--layout cs|cc|nc|ncs] [--servers M] "
                    "[--threads T] [--replicas 1|2] [--optimizer RULE] [--rate R] "
                    "[--rate-rule RULE] [--data FILE] [--epochs N] [--rounds N] [--curve FILE] "
                    "[--wait MS] [--kill RANK:STEP]\n");
            return false;
        }
    job->grouped = strcmp(modes[words->mode], "groups") == 0;
    job->options.mode = job->grouped ? TWILL_SERVER_ASYNC : (twill_server_mode)words->mode;
    if (job->grouped && job->rounds > 1)
        fprintf(stderr, "worker: --mode groups with --rounds: groups do not take in new ranks\n");
    return !job->grouped || job->rounds == 1;
}

/* With --mode groups, make groups of K workers, and a communicator of their first ranks and the
 * ranks that serve. Returns false if that fails. */
static bool make_groups(struct worker_job *job)
{
    const twill_server_options *o = &job->options;
    int servers = o->layout == TWILL_SERVER_NCS ? o->servers : o->layout == TWILL_SERVER_NC;
    int worker = job->rank - servers;
    if (!job->grouped) {
        job->across = job->comm;
        return true;
    }
    bool has_server = worker < 0 || worker % o->k == 0;
    return twill_comm_split(&job->across, job->comm, has_server ? 0 : -1, job->rank) == TWILL_OK &&
           twill_comm_split(&job->group, job->comm, worker < 0 ? -1 : worker / o->k, job->rank) ==
               TWILL_OK;
}

/* Create the network with the same parameters on all ranks, and memory for its gradients. Returns
 * false if that fails. */
static bool make_network(struct worker_job *job, size_t classes)
{
    struct example_network *network = &job->network;
    if (example_network_create(network, job->train.features, HIDDEN_UNITS, classes, job->batch) !=
        0)
        return false;
    for (int t = 0; t < EXAMPLE_TENSORS; t++) {
        void *memory[2] = {NULL, NULL};
        for (int i = 0; i < 2; i++) {
            size_t bytes = network->count[t] * sizeof(float);
            if (twill_alloc(twill_comm_context(job->comm), &memory[i], bytes) != TWILL_OK)
                return false;
            memset(memory[i], 0, bytes); /* biases begin at 0 */
        }
        network->weights[t] = memory[0];
        network->gradient[t] = memory[1];
        job->tensor[t] = (twill_tensor){.name = example_network_tensor(t),
                                        .count = network->count[t],
                                        .type = TWILL_F32,
                                        .parameters = memory[0],
                                        .gradient = memory[1]};
    }
    example_network_randomise(network, 1);
    return true;
}

/* Give rank 0's number of the round and of its failures to ranks that have just joined. */
static twill_status share_round(struct worker_job *job)
{
    uint64_t both[] = {job->round, job->failures};
    twill_status status = twill_broadcast(job->comm, both, both, 2, TWILL_U64, 0);
    job->round = both[0];
    job->failures = both[1];
    return status;
}

bool worker_open(struct worker_job *job, int argc, char **argv)
{
    struct worker_words words = {"examples/data/wdbc.csv", NULL, 20, TWILL_SERVER_SYNC};
    size_t classes = 0;
    memset(job, 0, sizeof(*job));
    twill_server_defaults(&job->options);
    twill_optimizer_defaults(&job->optimizer, TWILL_OPTIMIZER_SGD);
    job->optimizer.rate = 0.1;
    job->options.optimizer = &job->optimizer;
    job->kill_rank = -1;
    job->rounds = 1;
    job->batch = BATCH_SAMPLES;
    if (!read_options(job, &words, argc, argv) || twill_init(&job->comm) != TWILL_OK)
        return false;
    job->rank = twill_comm_rank(job->comm);
    job->size = twill_comm_size(job->comm);
    if (!load_samples(job, words.data, &classes) || !make_groups(job) ||
        !make_network(job, classes) ||
        (twill_comm_epoch(job->comm) > 0 && share_round(job) != TWILL_OK)) {
        twill_finalize(job->comm);
        return false;
    }
    job->steps = (size_t)words.epochs * (job->train.count / job->batch) / (size_t)job->size + 1;
    job->step = job->steps * job->round / job->rounds;
    if (words.curve != NULL) {
        char name[300];
        snprintf(name, sizeof(name), "%s.%d", words.curve, job->rank);
        job->curve = fopen(name, "a");
    }
    job->seconds = example_now();
    return true;
}

bool worker_compute(struct worker_job *job)
{
    if (job->step >= job->steps * (job->round + 1) / job->rounds)
        return false;
    size_t turn = job->step * (size_t)job->size + (size_t)job->rank, /* all ranks go through all */
        first = turn % (job->train.count / job->batch) * job->batch;
    const float *features = job->train.values + first * job->train.features;
    if (job->wait > 0) {
        double ns = job->wait * 1e6 * job->rank;
        const struct timespec pause = {(time_t)(ns / 1e9), (long)ns % 1000000000};
        nanosleep(&pause, NULL);
    }
    if (job->rank == job->kill_rank && (int)job->step == job->kill_at &&
        twill_comm_epoch(job->comm) == 0)
        (void)raise(SIGKILL);
    job->loss = example_network_forward(&job->network, features, job->train.labels + first,
                                        job->batch, 1.0f / (float)job->batch) /
                (double)job->batch;
    for (int layer = EXAMPLE_LAYERS; layer-- > 0;)
        example_network_backward(&job->network, layer, features, job->batch);
    job->step++;
    return true;
}

twill_status worker_gather(struct worker_job *job)
{
    twill_status status = TWILL_OK;
    for (int t = 0; t < EXAMPLE_TENSORS && status == TWILL_OK && job->group != NULL; t++)
        status = twill_reduce(job->group, job->network.gradient[t], job->network.gradient[t],
                              job->network.count[t], TWILL_F32, TWILL_AVG, 0);
    return status;
}

twill_status worker_spread(struct worker_job *job)
{
    twill_status status = TWILL_OK;
    for (int t = 0; t < EXAMPLE_TENSORS && status == TWILL_OK && job->group != NULL; t++)
        status = twill_broadcast(job->group, job->network.weights[t], job->network.weights[t],
                                 job->network.count[t], TWILL_F32, 0);
    return status;
}

/* Continue without the ranks that have died, and wait for those that twillrun starts instead. */
static twill_status replace_ranks(struct worker_job *job)
{
    twill_comm *made = NULL;
    twill_status status = twill_comm_shrink(&made, job->comm);
    for (int tries = 0; status == TWILL_OK; tries++) {
        if (made != NULL) {
            twill_comm_leave(job->comm);
            job->comm = job->across = made;
        }
        if (twill_comm_size(job->comm) >= job->size || tries == ADMIT_TRIES)
            break;
        (void)usleep(ADMIT_PAUSE_US);
        made = NULL;
        status = twill_comm_admit(&made, job->comm);
    }
    job->rank = twill_comm_rank(job->comm);
    return status == TWILL_OK ? share_round(job) : status;
}

bool worker_goes_on(struct worker_job *job, twill_status *status)
{
    uint64_t good = *status == TWILL_OK;
    if (job->rounds == 1 || (*status != TWILL_OK && *status != TWILL_ERR_PEER))
        return false;
    /* the round is repeated if it has failed on any rank */
    *status = twill_comm_agree(job->comm, &good);
    job->round += good;
    job->failures = good ? 0 : job->failures + 1;
    /* the parameters are lost with a rank */
    if (*status == TWILL_OK && job->failures == ROUND_TRIES)
        *status = TWILL_ERR_PEER;
    if (*status != TWILL_OK || job->round == job->rounds)
        return false;
    do
        *status = replace_ranks(job);
    while (*status == TWILL_ERR_PEER); /* another rank has died meanwhile */
    job->step = job->steps * job->round / job->rounds;
    return *status == TWILL_OK;
}

void worker_log(struct worker_job *job, const twill_server *server)
{
    if (job->curve != NULL && server != NULL)
        fprintf(job->curve, "%zu %.6f %llu %.6f\n", job->step, example_now() - job->seconds,
                (unsigned long long)twill_server_version(server, 0), job->loss);
}

/* Print the reason of a failure, or what a server has counted. */
static void report_server(const struct worker_job *job, twill_server *server, twill_status status)
{
    twill_server_counters c;
    if (status != TWILL_OK)
        fprintf(stderr, "worker: %s: %s\n", twill_strerror(status),
                server != NULL ? twill_server_message(server) : twill_comm_message(job->comm));
    else if (twill_server_count(server, &c) == TWILL_OK)
        printf("server %d: updates %llu gradients %llu dropped %llu deaths %llu\n", job->rank,
               (unsigned long long)c.updates, (unsigned long long)c.gradients,
               (unsigned long long)c.dropped, (unsigned long long)c.deaths);
}

void worker_report(struct worker_job *job, twill_server *server, twill_status status)
{
    size_t right = 0, n = job->held_out.count;
    double loss = 0;
    if (status != TWILL_OK || twill_server_role(server) == TWILL_SERVER_SERVES) {
        report_server(job, server, status);
        return;
    }
    for (size_t i = 0; i < n; i++)
        loss +=
            example_network_judge(&job->network, job->held_out.values + i * job->held_out.features,
                                  job->held_out.labels[i], &right);
    printf("rank %d: %zu step%s, version %llu, held-out loss %.4f accuracy %.4f, %.2f s\n",
           job->rank, job->steps, job->steps == 1 ? "" : "s",
           (unsigned long long)twill_server_version(server, 0), loss / (double)n,
           (double)right / (double)n, example_now() - job->seconds);
}

int worker_close(struct worker_job *job, twill_status status)
{
    if (job->curve != NULL)
        fclose(job->curve);
    for (int t = 0; t < EXAMPLE_TENSORS; t++) {
        (void)twill_free(twill_comm_context(job->comm), job->network.weights[t]);
        (void)twill_free(twill_comm_context(job->comm), job->network.gradient[t]);
    }
    example_network_free(&job->network);
    example_set_free(&job->train);
    example_set_free(&job->held_out);
    if (job->group != NULL)
        twill_comm_destroy(job->group);
    if (job->grouped && job->across != NULL)
        twill_comm_destroy(job->across);
    twill_finalize(job->comm);
    return status == TWILL_OK ? 0 : 1;
}

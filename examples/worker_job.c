/* SPDX-License-Identifier: Apache-2.0 */
/* Options, data and reports of worker.c. */
#include "worker.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HIDDEN_UNITS = 32, BATCH_SAMPLES = 16 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int find_word(const char *const *words, const char *word)
{
    for (int i = 0; words[i] != NULL; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    return -1;
}

static const char *const modes[] = {"sync",  "k-sync",   "k-batch-sync", "k-async", "k-batch-async",
                                    "async", "softsync", "bounded",      NULL};
static const char *const layouts[] = {"cs", "cc", "nc", "ncs", NULL};
static const char *const rates[] = {"fixed", "staleness", "distance", NULL};
static const char *const rules[] = {"sgd", "adagrad", "adam", "adamw", NULL};

struct worker_words {
    const char *data, *curve;
    int epochs;
};

/* Take an option and its value. Returns false if it is none. */
static bool take_option(struct worker_job *job, struct worker_words *words, const char *name,
                        const char *value)
{
    twill_server_options *o = &job->options;
    int word = 0;
    if (strcmp(name, "--mode") == 0)
        o->mode = (twill_server_mode)(word = find_word(modes, value));
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
        for (size_t i = 0; i < n; i++) {
            float *x = &job->train.values[i * features + f];
            *x = (float)(((double)*x - mean) * scale);
        }
        for (size_t i = 0; i < job->held_out.count; i++) {
            float *x = &job->held_out.values[i * features + f];
            *x = (float)(((double)*x - mean) * scale);
        }
    }
}

static bool load_samples(struct worker_job *job, const char *path)
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
    free(order);
    example_file_close(&file);
    return good;
}

bool worker_open(struct worker_job *job, int argc, char **argv)
{
    struct worker_words words = {"examples/data/wdbc.csv", NULL, 20};
    memset(job, 0, sizeof(*job));
    twill_server_defaults(&job->options);
    twill_optimizer_defaults(&job->optimizer, TWILL_OPTIMIZER_SGD);
    job->optimizer.rate = 0.1;
    job->options.optimizer = &job->optimizer;
    job->kill_rank = -1;
    for (int i = 1; i < argc; i += 2)
        if (i + 1 == argc || !take_option(job, &words, argv[i], argv[i + 1])) {
            fprintf(stderr,
                    "usage: worker [--mode MODE] [--k K] [--layout cs|cc|nc|ncs] [--servers M] "
                    "[--threads T] [--optimizer RULE] [--rate R] [--rate-rule RULE] "
                    "[--data FILE] [--epochs N] [--curve FILE] [--wait MS] "
                    "[--kill RANK:STEP]\n");
            return false;
        }
    if (twill_init(&job->comm) != TWILL_OK)
        return false;
    job->rank = twill_comm_rank(job->comm);
    job->size = twill_comm_size(job->comm);
    job->batch = BATCH_SAMPLES;
    if (!load_samples(job, words.data) ||
        example_network_create(&job->network, job->train.features, HIDDEN_UNITS, BATCH_SAMPLES) !=
            0) {
        twill_finalize(job->comm);
        return false;
    }
    for (int t = 0; t < EXAMPLE_TENSORS; t++) {
        void *memory = NULL;
        if (twill_alloc(twill_comm_context(job->comm), &memory,
                        job->network.count[t] * sizeof(float)) != TWILL_OK)
            return false;
        job->network.weights[t] = memory;
    }
    example_network_randomise(&job->network, 1);
    job->steps = (size_t)words.epochs * (job->train.count / job->batch) / (size_t)job->size + 1;
    if (words.curve != NULL) {
        char name[300];
        snprintf(name, sizeof(name), "%s.%d", words.curve, job->rank);
        job->curve = fopen(name, "w");
    }
    job->seconds = now();
    return true;
}

void worker_compute(struct worker_job *job, size_t step)
{
    size_t turn = step * (size_t)job->size + (size_t)job->rank, /* all ranks go through all */
        first = turn % (job->train.count / job->batch) * job->batch;
    const float *features = job->train.values + first * job->train.features;
    if (job->wait > 0) {
        double ns = job->wait * 1e6 * job->rank;
        const struct timespec pause = {(time_t)(ns / 1e9), (long)ns % 1000000000};
        nanosleep(&pause, NULL);
    }
    if (job->rank == job->kill_rank && (int)step == job->kill_at)
        (void)raise(SIGKILL);
    job->loss = example_network_forward(&job->network, features, job->train.labels + first,
                                        job->batch, 1.0f / (float)job->batch) /
                (double)job->batch;
    for (int layer = EXAMPLE_LAYERS; layer-- > 0;)
        example_network_backward(&job->network, layer, features, job->batch);
}

void worker_log(struct worker_job *job, size_t step, const twill_server *server)
{
    if (job->curve != NULL)
        fprintf(job->curve, "%zu %.6f %llu %.6f\n", step, now() - job->seconds,
                (unsigned long long)twill_server_version(server, 0), job->loss);
}

void worker_report(struct worker_job *job, twill_server *server, twill_status status)
{
    size_t right = 0, n = job->held_out.count;
    double loss = 0;
    twill_server_counters c;
    if (status != TWILL_OK)
        return;
    if (twill_server_role(server) == TWILL_SERVER_SERVES) {
        if (twill_server_count(server, &c) == TWILL_OK)
            printf("server %d: updates %llu gradients %llu dropped %llu deaths %llu\n", job->rank,
                   (unsigned long long)c.updates, (unsigned long long)c.gradients,
                   (unsigned long long)c.dropped, (unsigned long long)c.deaths);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float logit = example_network_logit(
            &job->network, job->held_out.values + i * job->held_out.features, job->network.units);
        loss += example_network_loss(logit, job->held_out.labels[i]);
        right += (logit > 0) == (job->held_out.labels[i] != 0);
    }
    printf("rank %d: %zu steps, version %llu, held-out loss %.4f accuracy %.4f, %.2f s\n",
           job->rank, job->steps, (unsigned long long)twill_server_version(server, 0),
           loss / (double)n, (double)right / (double)n, now() - job->seconds);
}

int worker_close(struct worker_job *job, twill_status status)
{
    if (job->curve != NULL)
        fclose(job->curve);
    for (int t = 0; t < EXAMPLE_TENSORS; t++)
        (void)twill_free(twill_comm_context(job->comm), job->network.weights[t]);
    example_network_free(&job->network);
    example_set_free(&job->train);
    example_set_free(&job->held_out);
    twill_finalize(job->comm);
    return status == TWILL_OK ? 0 : 1;
}

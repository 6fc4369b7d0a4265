/* SPDX-License-Identifier: Apache-2.0 */
/* Train a tumour-or-normal classifier on all ranks: twillrun -n 4 train --data wdbc.csv
 *
 * A training loop needs six calls of twill: init, rank, size, broadcast of the parameters from rank
 * 0, allreduce of the gradients, finalize. A seventh, alloc, returns memory for the gradients that
 * the node's other ranks have mapped and that is registered with the network. Every mini-batch is
 * divided among the ranks, so that any number of ranks computes the same model; a rank parses its
 * own samples only. */
#include "dataset.h"
#include "network.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <twill.h>

enum { LOAD, PREPROCESS, TRAIN, EVALUATE, PHASES };

struct train_options {
    const char *data;
    enum example_format format;
    size_t epochs, batch, hidden, seed;
    double rate;
};

struct training {
    struct train_options options;
    twill_comm *comm;
    int rank, size;
    struct example_file file;
    struct example_set train, held_out; /* this rank's shards */
    size_t samples, batches;            /* of all ranks: training samples, mini-batches */
    size_t *first;                      /* [batches + 1] where each mini-batch begins in `train` */
    struct example_network network;
    double seconds[PHASES];
    double communication; /* seconds in collectives */
    size_t calls, bytes;
    double *gradient;              /* from twill_alloc() */
    twill_counters started, ended; /* after the first mini-batch, after the last */
    char message[512];
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Reduce in place over all ranks, and count time, calls and bytes. */
static int reduce_values(struct training *t, void *values, size_t count, twill_type type,
                         twill_op op)
{
    double start = now();
    twill_status status = twill_allreduce(t->comm, values, values, count, type, op);
    t->communication += now() - start;
    t->calls++;
    t->bytes += count * (type == TWILL_I32 ? 4 : 8);
    if (status != TWILL_OK)
        snprintf(t->message, sizeof(t->message), "%s", twill_comm_message(t->comm));
    return status == TWILL_OK ? 0 : -1;
}

/* Return -1 on all ranks if one has failed; that one has a message. */
static int agree_failure(struct training *t, int failed)
{
    int32_t any = failed != 0;
    if (reduce_values(t, &any, 1, TWILL_I32, TWILL_MAX) != 0)
        return -1;
    return failed || any ? -1 : 0;
}

/* Return how many of n samples are this rank's shard, which begins at *from. */
static size_t shard(const struct training *t, size_t n, size_t *from)
{
    size_t size = (size_t)t->size, rank = (size_t)t->rank;
    *from = n * rank / size;
    return n * (rank + 1) / size - *from;
}

static size_t batch_samples(const struct training *t, size_t batch)
{
    size_t left = t->samples - batch * t->options.batch;
    return left < t->options.batch ? left : t->options.batch;
}

/* Load this rank's shard of every mini-batch, and of the held-out samples. */
static int load_shards(struct training *t, const size_t *order)
{
    size_t *mine = malloc(t->samples * sizeof(*mine)), from, n = 0;
    t->first = malloc((t->batches + 1) * sizeof(*t->first));
    if (mine == NULL || t->first == NULL) {
        snprintf(t->message, sizeof(t->message), "no memory");
        free(mine);
        return -1;
    }
    for (size_t batch = 0; batch < t->batches; batch++) {
        size_t samples = shard(t, batch_samples(t, batch), &from);
        t->first[batch] = n;
        for (size_t i = 0; i < samples; i++)
            mine[n++] = order[batch * t->options.batch + from + i];
    }
    t->first[t->batches] = n;
    int failed = example_load(&t->file, mine, n, &t->train, t->message, sizeof(t->message));
    free(mine);
    n = shard(t, t->file.samples - t->samples, &from);
    return failed || example_load(&t->file, order + t->samples + from, n, &t->held_out, t->message,
                                  sizeof(t->message));
}

static int load_data(struct training *t)
{
    const struct train_options *options = &t->options;
    size_t *order = NULL;
    int failed =
        example_file_open(&t->file, options->data, options->format, t->message, sizeof(t->message));
    if (!failed) {
        order = example_split(&t->file, options->seed, &t->samples);
        t->batches = (t->samples + options->batch - 1) / options->batch;
        failed = order == NULL || load_shards(t, order) != 0;
    }
    free(order);
    return agree_failure(t, failed);
}

static void standardise(struct example_set *set, const double *mean, const double *scale)
{
    for (size_t i = 0; i < set->count; i++)
        for (size_t j = 0; j < set->features; j++) {
            float *x = &set->values[i * set->features + j];
            *x = (float)(((double)*x - mean[j]) * scale[j]);
        }
}

/* Scale each feature to zero mean and unit variance over the training samples of all ranks. */
static int preprocess(struct training *t)
{
    size_t features = t->file.features;
    const struct example_set *set = &t->train;
    double *mean = calloc(features, sizeof(*mean)), *scale = calloc(features, sizeof(*scale));
    int failed = mean == NULL || scale == NULL;
    if (failed)
        snprintf(t->message, sizeof(t->message), "no memory");
    failed = agree_failure(t, failed);
    for (size_t i = 0; !failed && i < set->count; i++)
        for (size_t j = 0; j < features; j++)
            mean[j] += (double)set->values[i * features + j];
    failed = failed || reduce_values(t, mean, features, TWILL_F64, TWILL_SUM) != 0;
    for (size_t j = 0; !failed && j < features; j++)
        mean[j] /= (double)t->samples;
    for (size_t i = 0; !failed && i < set->count; i++)
        for (size_t j = 0; j < features; j++) {
            double distance = (double)set->values[i * features + j] - mean[j];
            scale[j] += distance * distance;
        }
    failed = failed || reduce_values(t, scale, features, TWILL_F64, TWILL_SUM) != 0;
    for (size_t j = 0; !failed && j < features; j++)
        scale[j] = scale[j] > 0 ? 1 / sqrt(scale[j] / (double)t->samples) : 1;
    if (!failed) {
        standardise(&t->train, mean, scale);
        standardise(&t->held_out, mean, scale);
    }
    free(mean);
    free(scale);
    return failed;
}

/* Train on one mini-batch: sum the ranks' gradients, and do the same step on every rank. */
static int train_batch(struct training *t, size_t batch, double *loss)
{
    struct example_network *network = &t->network;
    const struct example_set *set = &t->train;
    memset(network->gradient, 0, (network->parameters + 1) * sizeof(double));
    for (size_t i = t->first[batch]; i < t->first[batch + 1]; i++)
        example_network_backward(network, set->values + i * set->features, set->labels[i]);
    if (reduce_values(t, network->gradient, network->parameters + 1, TWILL_F64, TWILL_SUM) != 0)
        return -1;
    example_network_step(network, t->options.rate / (double)batch_samples(t, batch));
    *loss += network->gradient[network->parameters];
    return 0;
}

static int train_model(struct training *t)
{
    const struct train_options *options = &t->options;
    size_t *order = malloc(t->batches * sizeof(*order));
    uint64_t random = options->seed + 1;
    size_t shown = (options->epochs + 9) / 10;
    size_t numbers = example_network_parameters(t->file.features, options->hidden) + 1;
    void *memory = NULL;
    (void)twill_alloc(twill_comm_context(t->comm), &memory, numbers * sizeof(double));
    t->gradient = memory;
    int failed =
        order == NULL || memory == NULL ||
        example_network_create(&t->network, t->file.features, options->hidden, t->gradient);
    if (failed)
        snprintf(t->message, sizeof(t->message), "no memory");
    failed = agree_failure(t, failed);
    t->communication = 0;
    t->calls = t->bytes = 0;
    if (!failed && t->rank == 0)
        example_network_randomise(&t->network, options->seed);
    failed = failed || twill_broadcast(t->comm, t->network.weights, t->network.weights,
                                       t->network.parameters, TWILL_F64, 0) != TWILL_OK;
    for (size_t epoch = 1; !failed && epoch <= options->epochs; epoch++) {
        double loss = 0;
        for (size_t i = 0; i < t->batches; i++) {
            size_t j = example_random(&random) % (i + 1); /* the same order on every rank */
            if (i != j)
                order[i] = order[j];
            order[j] = i;
        }
        for (size_t i = 0; !failed && i < t->batches; i++) {
            failed = train_batch(t, order[i], &loss);
            twill_comm_counters(t->comm, epoch == 1 && i == 0 ? &t->started : &t->ended);
        }
        if (t->rank == 0 && !failed && (epoch == 1 || epoch % shown == 0))
            printf("  epoch %4zu  loss %.6f\n", epoch, loss / (double)t->samples);
    }
    free(order);
    return failed;
}

/* Print the library's counters of rank 0 from the second mini-batch on. */
static void print_counters(const struct training *t)
{
    const twill_counters *from = &t->started, *to = &t->ended;
    uint64_t calls = to->calls - from->calls, copied = to->bytes_copied - from->bytes_copied;
    uint64_t sent = to->bytes_sent - from->bytes_sent, wire = to->bytes_wire - from->bytes_wire;
    if (calls == 0)
        return;
    printf("counters   after the first mini-batch, each: %.1f bytes sent, %.1f copied",
           (double)sent / (double)calls, (double)copied / (double)calls);
    if (wire > 0)
        printf(", %.1f between nodes", (double)wire / (double)calls);
    printf("; %llu registrations before, %llu after it\n", (unsigned long long)from->registrations,
           (unsigned long long)(to->registrations - from->registrations));
}

/* Sum the loss and the correct answers over the samples of all ranks. */
static int evaluate(struct training *t, const struct example_set *set, double result[2])
{
    result[0] = result[1] = 0;
    for (size_t i = 0; i < set->count; i++) {
        double logit = example_network_forward(&t->network, set->values + i * set->features);
        result[0] += example_network_loss(logit, set->labels[i]);
        result[1] += (logit > 0) == set->labels[i];
    }
    return reduce_values(t, result, 2, TWILL_F64, TWILL_SUM);
}

/* Check that the parameters are equal, bit for bit, on all ranks. */
static int compare_parameters(struct training *t)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    const unsigned char *bytes = (const unsigned char *)t->network.weights;
    for (size_t i = 0; i < t->network.parameters * sizeof(double); i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    int64_t least = (int64_t)hash, most = (int64_t)hash;
    if (reduce_values(t, &least, 1, TWILL_I64, TWILL_MIN) != 0 ||
        reduce_values(t, &most, 1, TWILL_I64, TWILL_MAX) != 0)
        return -1;
    if (t->rank == 0)
        printf("parameters         %s on %d ranks (hash %016llx)\n",
               least == most ? "bit-identical" : "DIFFERENT", t->size, (unsigned long long)hash);
    if (least != most)
        snprintf(t->message, sizeof(t->message), "parameters differ between ranks");
    return least == most ? 0 : -1;
}

static int print_phases(struct training *t, const double *seconds, double communication,
                        size_t calls, size_t bytes)
{
    static const char *const names[] = {"load", "preprocess", "train", "evaluate"};
    double mine[PHASES + 1], least[PHASES + 1], mean[PHASES + 1], most[PHASES + 1];
    memcpy(mine, seconds, PHASES * sizeof(double));
    mine[PHASES] = mine[TRAIN] > 0 ? 100 * communication / mine[TRAIN] : 0;
    memcpy(least, mine, sizeof(mine));
    memcpy(mean, mine, sizeof(mine));
    memcpy(most, mine, sizeof(mine));
    if (reduce_values(t, least, PHASES + 1, TWILL_F64, TWILL_MIN) != 0 ||
        reduce_values(t, mean, PHASES + 1, TWILL_F64, TWILL_AVG) != 0 ||
        reduce_values(t, most, PHASES + 1, TWILL_F64, TWILL_MAX) != 0)
        return -1;
    if (t->rank != 0)
        return 0;
    printf("\nphase           min s     mean s      max s   over ranks\n");
    for (int i = 0; i < PHASES; i++)
        printf("%-11s %9.4f  %9.4f  %9.4f\n", names[i], least[i], mean[i], most[i]);
    printf(
        "communication %6.1f%%  %8.1f%%  %8.1f%%   of training: %zu allreduces, %.3f MB a rank\n",
        least[PHASES], mean[PHASES], most[PHASES], calls, (double)bytes / 1e6);
    print_counters(t);
    return 0;
}

static void print_settings(const struct training *t)
{
    const struct train_options *options = &t->options;
    size_t ones = 0;
    for (size_t i = 0; i < t->file.samples; i++)
        ones += t->file.labels[i];
    printf("data      %s: %zu samples of %zu features, %.1f%% of class 1\n", options->data,
           t->file.samples, t->file.features, 100.0 * (double)ones / (double)t->file.samples);
    printf("split     %zu to train, %zu held out, stratified, seed %zu\n", t->samples,
           t->file.samples - t->samples, options->seed);
    printf("network   %zu-%zu-1, %zu parameters; %zu epochs, batch %zu, rate %g\n",
           t->file.features, options->hidden, (t->file.features + 2) * options->hidden + 1,
           options->epochs, options->batch, options->rate);
    fflush(stdout);
}

static int run_training(struct training *t)
{
    double start = now(), fitted[2], tested[2];
    if (load_data(t) != 0)
        return -1;
    t->seconds[LOAD] = now() - start;
    if (t->rank == 0)
        print_settings(t);
    start = now();
    if (preprocess(t) != 0)
        return -1;
    t->seconds[PREPROCESS] = now() - start;

    start = now();
    if (train_model(t) != 0)
        return -1;
    t->seconds[TRAIN] = now() - start;
    double communication = t->communication;
    size_t calls = t->calls, bytes = t->bytes;

    start = now();
    if (evaluate(t, &t->train, fitted) != 0 || evaluate(t, &t->held_out, tested) != 0)
        return -1;
    t->seconds[EVALUATE] = now() - start;
    size_t held_out = t->file.samples - t->samples;
    if (t->rank == 0) {
        printf("\ntrain loss         %.12g\n", fitted[0] / (double)t->samples);
        printf("held-out loss      %.12g\n", tested[0] / (double)held_out);
        printf("held-out accuracy  %.4f (%.0f of %zu)\n", tested[1] / (double)held_out, tested[1],
               held_out);
    }
    return compare_parameters(t) || print_phases(t, t->seconds, communication, calls, bytes);
}

static void release_training(struct training *t)
{
    example_network_free(&t->network);
    twill_free(twill_comm_context(t->comm), t->gradient);
    example_set_free(&t->train);
    example_set_free(&t->held_out);
    example_file_close(&t->file);
    free(t->first);
    twill_finalize(t->comm);
}

static const char usage[] =
    "Usage: train --data FILE [options]\n"
    "Train a tumour-or-normal classifier on all ranks of a job (see twillrun).\n"
    "      --data FILE      CSV: data/wdbc.csv, or NT3's (label, then features, no header)\n"
    "      --format NAME    auto, wdbc or nt3 (auto: wdbc if the first line is a header)\n"
    "      --epochs N       (100)\n"
    "      --batch N        mini-batch of all ranks together (64)\n"
    "      --rate X         learning rate (0.1)\n"
    "      --hidden N       hidden units (16)\n"
    "      --seed N         of the split, the order and the first parameters (1)\n"
    "  -h, --help\n";

static int parse_count(const char *name, const char *text, size_t least, size_t *count)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    *count = (size_t)value;
    if (end != text && *end == '\0' && strchr(text, '-') == NULL && value >= least &&
        value < 1u << 30)
        return 0;
    fprintf(stderr, "train: --%s: '%s' is not a number from %zu\n", name, text, least);
    return -1;
}

static int parse_rate(const char *text, double *rate)
{
    char *end;
    *rate = strtod(text, &end);
    if (end != text && *end == '\0' && *rate > 0 && *rate < 1e6)
        return 0;
    fprintf(stderr, "train: --rate: '%s' is not a number above 0\n", text);
    return -1;
}

static int parse_format(const char *text, enum example_format *format)
{
    static const char *const names[] = {"auto", "wdbc", "nt3"};
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *format = (enum example_format)i;
            return 0;
        }
    fprintf(stderr, "train: --format: '%s' is not auto, wdbc or nt3\n", text);
    return -1;
}

/* Returns 0, 1 if help was printed, 2 for a wrong option. */
static int parse_options(struct train_options *options, int argc, char **argv)
{
    static const struct option names[] = {
        {"data", required_argument, NULL, 'd'},
        {"format", required_argument, NULL, 'f'},
        {"epochs", required_argument, NULL, 'e'},
        {"batch", required_argument, NULL, 'b'},
        {"rate", required_argument, NULL, 'r'},
        {"hidden", required_argument, NULL, 'n'},
        {"seed", required_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int letter, failed = 0;
    *options =
        (struct train_options){.epochs = 100, .batch = 64, .hidden = 16, .seed = 1, .rate = 0.1};
    while (!failed && (letter = getopt_long(argc, argv, "h", names, NULL)) != -1) {
        if (letter == 'd')
            options->data = optarg;
        else if (letter == 'f')
            failed = parse_format(optarg, &options->format);
        else if (letter == 'e')
            failed = parse_count("epochs", optarg, 1, &options->epochs);
        else if (letter == 'b')
            failed = parse_count("batch", optarg, 1, &options->batch);
        else if (letter == 'r')
            failed = parse_rate(optarg, &options->rate);
        else if (letter == 'n')
            failed = parse_count("hidden", optarg, 1, &options->hidden);
        else if (letter == 's')
            failed = parse_count("seed", optarg, 0, &options->seed);
        else
            return letter == 'h' ? (fputs(usage, stdout), 1) : 2;
    }
    if (!failed && (options->data == NULL || optind < argc))
        failed = fprintf(stderr, "train: expected --data FILE and no other arguments\n");
    return failed ? 2 : 0;
}

int main(int argc, char **argv)
{
    struct training t = {0};
    int mistake = parse_options(&t.options, argc, argv);
    if (mistake != 0)
        return mistake == 1 ? 0 : 2;
    if (twill_init(&t.comm) != TWILL_OK)
        return 1; /* the reason was printed */
    t.rank = twill_comm_rank(t.comm);
    t.size = twill_comm_size(t.comm);
    if (t.rank == 0)
        printf("twill %s: training on %d rank%s, %d node%s\n", twill_version(), t.size,
               t.size == 1 ? "" : "s", twill_comm_nodes(t.comm),
               twill_comm_nodes(t.comm) == 1 ? "" : "s");
    int failed = run_training(&t);
    if (failed && t.message[0] != '\0')
        fprintf(stderr, "train: rank %d: %s\n", t.rank, t.message);
    release_training(&t);
    return failed ? 1 : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The phases of NT3 (load, preprocess, train with cross-validation, predict) with a 1-D convolution
 * on data of NT3's shape. There are 1,400 samples of 60,483 features, of which 280 are held out.
 *
 *     nt3 --make nt3.csv                  make such data, as NT3's own is a download of 746 MB
 *     twillrun -n 4 nt3 --data nt3.csv
 *
 * The samples that --make writes are noise. Those of class 1 have a bump of 20 features at one of
 * 20 places of every 400. The network is NT3's first layer (filters of 20 features, ReLU) with
 * pooling by 10 and a dense output. With --whole it is NT3's own, with 619.7 MB of gradients and 10
 * billion multiply-adds a sample forward. A core takes seconds for them, and a rank 2 GB.
 *
 *     nt3 --make nt3.csv --samples 20
 *     twillrun -n 2 nt3 --data nt3.csv --whole --epochs 1 --batch 4 */
#include "recipe.h"
#include "recipes/nt3_network.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NT3_BUMPS = 400 };
enum { NT3_LOAD, NT3_PREPROCESS, NT3_TRAIN, NT3_VALIDATE, NT3_EXPOSED, NT3_PREDICT, NT3_PHASES };

/* The options, and the training on this rank. */
struct nt3 {
    const char *make, *data;
    size_t samples, features, filters, epochs, batch;
    twill_comm *comm;
    struct example_set train, held_out; /* this rank's shards */
    size_t all[2];                      /* samples of all ranks for training, and held out */
    bool whole;
    struct nt3_network network;
    double seconds[NT3_PHASES];
};

/* Write the file of --make. Returns 0, or 1 after printing an error. */
static int make_data(const struct nt3 *n)
{
    uint64_t random = 1;
    FILE *file = fopen(n->make, "w");
    if (file == NULL) {
        perror(n->make);
        return 1;
    }
    for (size_t s = 0; s < n->samples; s++) {
        size_t label = s % 2, bump = n->features;
        fprintf(file, "%zu", label);
        for (size_t i = 0; i < n->features; i++) {
            double value = example_uniform(&random);
            if (label && i % NT3_BUMPS == 0)
                bump = i + example_random(&random) % (NT3_BUMPS / NT3_KERNEL) * NT3_KERNEL;
            value += i >= bump && i < bump + NT3_KERNEL ? 1 + (double)((i - bump) % 4) : 0;
            fprintf(file, ",%.6f", value);
        }
        fputc('\n', file);
    }
    int failed = ferror(file) != 0;
    failed = fclose(file) != 0 || failed;
    if (failed)
        perror(n->make);
    return failed;
}

/* Load this rank's samples of order[0 .. count - 1], which are every P-th of P ranks. Returns 0, or
 * -1 after printing an error. */
static int load_shard(const struct nt3 *n, const struct example_file *file, const size_t *order,
                      size_t count, struct example_set *set)
{
    char message[512] = "no memory";
    size_t rank = (size_t)twill_comm_rank(n->comm), size = (size_t)twill_comm_size(n->comm);
    size_t mine = count / size, *numbers = malloc((mine + 1) * sizeof(*numbers));
    for (size_t i = 0; numbers != NULL && i < mine; i++)
        numbers[i] = order[i * size + rank];
    int failed =
        numbers == NULL || example_load(file, numbers, mine, set, message, sizeof(message)) != 0;
    if (failed)
        fprintf(stderr, "nt3: %s\n", message);
    free(numbers);
    return failed;
}

static int load_samples(struct nt3 *n)
{
    char message[512];
    struct example_file file = {0};
    size_t *order = NULL;
    if (example_file_open(&file, n->data, EXAMPLE_NT3, message, sizeof(message)) != 0) {
        fprintf(stderr, "nt3: %s\n", message);
        return -1;
    }
    order = example_split(&file, 1, &n->all[0]);
    int failed = order == NULL || file.features < NT3_KERNEL + NT3_KERNEL / 2 + NT3_POOL;
    n->all[1] = file.samples - n->all[0];
    n->features = file.features;
    failed = failed || load_shard(n, &file, order, n->all[0], &n->train) ||
             load_shard(n, &file, order + n->all[0], n->all[1], &n->held_out);
    free(order);
    example_file_close(&file);
    return failed;
}

static void scale_set(struct example_set *set, const float *most)
{
    for (size_t i = 0; i < set->count; i++)
        for (size_t j = 0; j < set->features; j++)
            set->values[i * set->features + j] /= most[j] > 0 ? most[j] : 1;
}

/* Divide each feature by its largest magnitude over all ranks, as NT3 does. */
static twill_status scale_samples(struct nt3 *n)
{
    float *most = calloc(n->features, sizeof(*most));
    if (most == NULL)
        return TWILL_ERR_MEMORY;
    for (size_t i = 0; i < n->train.count; i++)
        for (size_t j = 0; j < n->features; j++)
            most[j] = fmaxf(most[j], fabsf(n->train.values[i * n->features + j]));
    twill_status status = twill_allreduce(n->comm, most, most, n->features, TWILL_F32, TWILL_MAX);
    scale_set(&n->train, most);
    scale_set(&n->held_out, most);
    free(most);
    return status;
}

/* Make a step on this rank's mini-batch from sample `from` on, and add its loss. With the small
 * network all dense weights add up in the output, so they share the rate. */
static twill_status train_batch(struct nt3 *n, size_t from, double *loss)
{
    twill_status status = TWILL_OK;
    size_t weights = n->network.layer[n->network.layers - 1].kernel * n->filters;
    float rate = n->whole ? 1e-3F : 45 / (float)weights;
    nt3_begin_batch(&n->network);
    for (size_t s = from; status == TWILL_OK && s < from + n->batch; s++) {
        const float *sample = n->train.values + s * n->features;
        double logit = nt3_logit(&n->network, sample), sign = n->train.labels[s] ? 1 : -1;
        *loss += log1p(exp(-sign * logit));
        float error = (float)(-sign / (1 + exp(sign * logit)) / (double)n->batch);
        status = nt3_add_gradients(&n->network, sample, error, s + 1 == from + n->batch);
    }
    return status == TWILL_OK ? nt3_end_batch(&n->network, rate) : status;
}

/* Set the result to loss, right answers and number of the held-out samples of all ranks. */
static twill_status judge_held_out(struct nt3 *n, double result[3])
{
    result[0] = result[1] = 0;
    result[2] = (double)n->held_out.count;
    for (size_t s = 0; s < n->held_out.count; s++) {
        double logit = nt3_logit(&n->network, n->held_out.values + s * n->features);
        double sign = n->held_out.labels[s] ? 1 : -1;
        result[0] += log1p(exp(-sign * logit));
        result[1] += sign * logit > 0;
    }
    return twill_allreduce(n->comm, result, result, 3, TWILL_F64, TWILL_SUM);
}

static twill_status train_epoch(struct nt3 *n, size_t epoch)
{
    double loss[2] = {0, 0}, held[3];
    size_t batches = n->train.count / n->batch;
    twill_status status = TWILL_OK;
    for (size_t b = 0; status == TWILL_OK && b < batches; b++)
        status = train_batch(n, b * n->batch, &loss[0]);
    loss[1] = (double)(batches * n->batch);
    if (status == TWILL_OK)
        status = twill_allreduce(n->comm, loss, loss, 2, TWILL_F64, TWILL_SUM);
    double start = example_now();
    if (status == TWILL_OK)
        status = judge_held_out(n, held);
    n->seconds[NT3_VALIDATE] += example_now() - start;
    if (status == TWILL_OK && twill_comm_rank(n->comm) == 0)
        printf("  epoch %3zu  loss %.6f  held out %.6f, accuracy %.4f\n", epoch, loss[0] / loss[1],
               held[0] / held[2], held[1] / held[2]);
    return status;
}

static twill_status report_nt3(struct nt3 *n)
{
    static const char *const names[] = {"load",      "preprocess", "train",
                                        " validate", " exposed",   "predict"};
    struct example_phase phases[NT3_PHASES];
    twill_gradients_counters counters;
    double start = example_now(), held[3];
    twill_status status = judge_held_out(n, held);
    n->seconds[NT3_PREDICT] = example_now() - start;
    if (status == TWILL_OK)
        status = twill_gradients_count(n->network.set, &counters);
    if (status != TWILL_OK)
        return status;
    n->seconds[NT3_EXPOSED] = counters.seconds_exposed;
    for (int i = 0; i < NT3_PHASES; i++)
        phases[i] = (struct example_phase){.name = names[i], .seconds = n->seconds[i]};
    if (twill_comm_rank(n->comm) == 0)
        printf("\npredicted %.0f of %.0f held-out samples; %llu synchronisations of %zu bytes\n",
               held[1], held[2], (unsigned long long)counters.steps,
               (size_t)(counters.bytes / (counters.steps > 0 ? counters.steps : 1)));
    return example_print_phases(n->comm, phases, NT3_PHASES);
}

static twill_status run_phases(struct nt3 *n)
{
    double start = example_now();
    int32_t failed = load_samples(n) != 0;
    twill_status status = twill_allreduce(n->comm, &failed, &failed, 1, TWILL_I32, TWILL_MAX);
    n->seconds[NT3_LOAD] = example_now() - start;
    if (status != TWILL_OK || failed)
        return status != TWILL_OK ? status : TWILL_ERR_ARGUMENT;
    if (n->train.count < n->batch || n->held_out.count == 0)
        return TWILL_ERR_ARGUMENT; /* there are fewer samples than in a mini-batch */
    start = example_now();
    status = scale_samples(n);
    n->seconds[NT3_PREPROCESS] = example_now() - start;
    if (status == TWILL_OK)
        status = nt3_open(&n->network, n->comm, n->features, n->filters, n->whole);
    if (status == TWILL_OK && twill_comm_rank(n->comm) == 0)
        printf("made data: %zu + %zu samples of %zu features; %d ranks, %zu layers, %zu "
               "parameters\n",
               n->all[0], n->all[1], n->features, twill_comm_size(n->comm), n->network.layers,
               nt3_parameters(&n->network));
    start = example_now();
    for (size_t epoch = 1; status == TWILL_OK && epoch <= n->epochs; epoch++)
        status = train_epoch(n, epoch);
    n->seconds[NT3_TRAIN] = example_now() - start;
    return status == TWILL_OK ? report_nt3(n) : status;
}

static void release_nt3(struct nt3 *n)
{
    nt3_close(&n->network);
    example_set_free(&n->train);
    example_set_free(&n->held_out);
}

static int read_nt3_options(struct nt3 *n, int argc, char **argv)
{
    static const struct option names[] = {{"samples", required_argument, NULL, 0},
                                          {"features", required_argument, NULL, 1},
                                          {"filters", required_argument, NULL, 2},
                                          {"epochs", required_argument, NULL, 3},
                                          {"batch", required_argument, NULL, 4},
                                          {"make", required_argument, NULL, 'm'},
                                          {"data", required_argument, NULL, 'd'},
                                          {"whole", no_argument, NULL, 'w'},
                                          {NULL, 0, NULL, 0}};
    size_t *const numbers[] = {&n->samples, &n->features, &n->filters, &n->epochs, &n->batch};
    for (int which; (which = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (which == 'm')
            n->make = optarg;
        else if (which == 'd')
            n->data = optarg;
        else if (which == 'w')
            n->whole = true;
        else if (which == '?' || recipe_number(names[which].name, optarg, numbers[which]) != 0)
            return -1;
    }
    return (n->make != NULL) != (n->data != NULL) && optind == argc ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct nt3 n = {.samples = 1400, .features = 60483, .filters = 8, .epochs = 10, .batch = 20};
    if (read_nt3_options(&n, argc, argv) != 0) {
        fprintf(stderr, "Usage: nt3 --make FILE [--samples N (1400)] [--features N (60483)]\n"
                        "       nt3 --data FILE [--filters N (8) | --whole] [--epochs N (10)] "
                        "[--batch N, of a rank (20)]\n");
        return 2;
    }
    if (n.make != NULL)
        return make_data(&n);
    if (twill_init(&n.comm) != TWILL_OK)
        return 1;
    twill_status status = run_phases(&n);
    release_nt3(&n);
    return recipe_end("nt3", n.comm, status);
}

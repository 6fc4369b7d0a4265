/* SPDX-License-Identifier: Apache-2.0 */
/* Compare two ways to divide a training among P ranks at equal work. Each rank trains on the same
 * number of samples and has the same number of synchronisations. Run it by twillrun -n 4 sharding
 * --data data/wdbc.csv
 *
 *     epochs  Every rank trains on all samples in the same order, for a P-th of the epochs, as NT3
 *             was run on Theta. All ranks compute the same gradient.
 *     data    Every rank has its shard of the samples for all epochs. A mini-batch is P times as
 *             large, the rate is scaled with it, and an epoch has a P-th of the synchronisations.
 *
 * The program compares both or runs one of them (--split epochs|data). There are 1,120 samples as
 * in NT3, drawn from the file. A mini-batch has 20 of a rank. */
#include "learning_rate.h"
#include "recipe.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 1120, BATCH = 20, THETA_EPOCHS = 400 };

/* The settings and the samples of this rank. */
struct splitting {
    twill_comm *comm;
    int rank, size;
    size_t epochs;
    bool divides, shards; /* whether to divide the epochs, or the samples */
    struct example_set file, drawn;
};

/* The result of one way. */
struct sharding_result {
    size_t epochs, batches; /* of a rank, and per epoch */
    uint64_t syncs;         /* of a rank, as its set has counted them */
    int32_t least, most;    /* how often all ranks together have trained on a sample */
    double loss;
};

/* Return how many mini-batches an epoch has if `ranks` ranks divide it. */
static size_t batches_of(size_t ranks)
{
    return (SAMPLES + BATCH * ranks - 1) / (BATCH * ranks);
}

/* Draw the samples from those of the file. Returns 0, or -1 if there is no memory. */
static int draw_samples(struct splitting *s)
{
    size_t features = s->file.features;
    uint64_t random = 7;
    s->drawn = (struct example_set){.count = SAMPLES, .features = features};
    s->drawn.values = malloc(SAMPLES * features * sizeof(float));
    s->drawn.labels = malloc(SAMPLES);
    for (size_t i = 0; s->drawn.values != NULL && s->drawn.labels != NULL && i < SAMPLES; i++) {
        size_t from = example_random(&random) % s->file.count;
        memcpy(s->drawn.values + i * features, s->file.values + from * features,
               features * sizeof(float));
        s->drawn.labels[i] = s->file.labels[from];
    }
    return s->drawn.values != NULL && s->drawn.labels != NULL ? 0 : -1;
}

/* Return the first sample of mini-batch i of a rank. */
static size_t first_of(const struct sharding_result *result, size_t ranks, size_t rank, size_t i)
{
    return (i % result->batches * ranks + rank) * BATCH % SAMPLES;
}

/* Train as rank `rank` of `ranks` that divide the samples. With 1 rank it trains on all samples.
 * Sets all of *result except least and most. */
static twill_status train_split(struct splitting *s, size_t ranks, size_t rank,
                                struct sharding_result *result)
{
    struct recipe_model model;
    struct example_rate rate = {.base = 0.01, .samples = BATCH, .scaling = EXAMPLE_RATE_LINEAR};
    const struct example_set *set = &s->drawn;
    twill_gradients_counters counters = {0};
    result->batches = batches_of(ranks);
    twill_status status = recipe_open(&model, s->comm, set->features, BATCH);
    for (size_t i = 0; status == TWILL_OK && i < result->epochs * result->batches; i++) {
        size_t from = first_of(result, ranks, rank, i);
        status = recipe_step(&model, set->values + from * set->features, set->labels + from, BATCH,
                             example_rate_scaled(&rate, BATCH * ranks));
    }
    if (status == TWILL_OK)
        status = twill_gradients_count(model.set, &counters);
    result->syncs = counters.steps;
    result->loss = status == TWILL_OK ? recipe_loss(&model, &s->file) : 0;
    recipe_close(&model);
    return status;
}

/* Count how often all ranks in all epochs have trained on each sample, for least and most. */
static twill_status count_uses(struct splitting *s, size_t ranks, size_t rank,
                               struct sharding_result *result)
{
    int32_t uses[SAMPLES] = {0};
    for (size_t i = 0; i < result->epochs * result->batches; i++)
        for (size_t k = 0; k < BATCH; k++)
            uses[(first_of(result, ranks, rank, i) + k) % SAMPLES]++;
    twill_status status = twill_allreduce(s->comm, uses, uses, SAMPLES, TWILL_I32, TWILL_SUM);
    result->least = result->most = uses[0];
    for (size_t i = 1; i < SAMPLES; i++) {
        result->least = uses[i] < result->least ? uses[i] : result->least;
        result->most = uses[i] > result->most ? uses[i] : result->most;
    }
    return status;
}

static void print_result(const char *name, const struct sharding_result *result)
{
    printf("%-7s %7zu %17zu %25llu   %.6f\n", name, result->epochs, result->batches,
           (unsigned long long)result->syncs, result->loss);
}

/* Return whether a result has the number of synchronisations that it should have. */
static bool is_counted(const struct splitting *s, const struct sharding_result *result,
                       size_t ranks)
{
    size_t epochs = ranks == 1 ? s->epochs / (size_t)s->size : s->epochs;
    return result->syncs == epochs * batches_of(ranks);
}

static void print_splits(const struct splitting *s, const struct sharding_result *whole,
                         const struct sharding_result *shards)
{
    printf("%d ranks, %zu epochs in all\n", s->size, s->epochs);
    printf("split   epochs batches an epoch synchronisations a rank       loss\n");
    if (s->divides)
        print_result("epochs", whole);
    if (s->shards) {
        print_result("data", shards);
        printf("with shards, each sample was trained on %d to %d times\n", (int)shards->least,
               (int)shards->most);
    }
    printf("without shards, %d epochs on 25, 100, 400 ranks: %zu, %zu, %zu synchronisations\n",
           THETA_EPOCHS, THETA_EPOCHS / 25 * batches_of(1), THETA_EPOCHS / 100 * batches_of(1),
           THETA_EPOCHS / 400 * batches_of(1));
    printf("with shards, in an epoch on 1, 2, 4, 8 ranks: %zu, %zu, %zu, %zu\n", batches_of(1),
           batches_of(2), batches_of(4), batches_of(8));
}

static twill_status compare_splits(struct splitting *s, bool *good)
{
    size_t size = (size_t)s->size;
    struct sharding_result whole = {.epochs = s->epochs / size}, shards = {.epochs = s->epochs};
    twill_status status = s->divides ? train_split(s, 1, 0, &whole) : TWILL_OK;
    if (status == TWILL_OK && s->shards)
        status = train_split(s, size, (size_t)s->rank, &shards);
    if (status == TWILL_OK && s->shards)
        status = count_uses(s, size, (size_t)s->rank, &shards);
    *good = (!s->divides || is_counted(s, &whole, 1)) &&
            (!s->shards || (is_counted(s, &shards, size) && shards.least == shards.most &&
                            (size_t)shards.most == s->epochs)) &&
            (!s->divides || !s->shards || size == 1 ||
             (whole.syncs == shards.syncs && shards.loss < whole.loss));
    if (status == TWILL_OK && s->rank == 0)
        print_splits(s, &whole, &shards);
    return status;
}

/* Return whether the epochs and the mini-batches can be divided by the number of ranks. */
static bool is_divided(const struct splitting *s)
{
    size_t size = (size_t)s->size;
    return (!s->divides || s->epochs % size == 0) &&
           (!s->shards || batches_of(size) * size == batches_of(1));
}

static int read_splitting(struct splitting *s, const char **data, int argc, char **argv)
{
    static const struct option names[] = {{"data", required_argument, NULL, 'd'},
                                          {"epochs", required_argument, NULL, 'e'},
                                          {"split", required_argument, NULL, 's'},
                                          {NULL, 0, NULL, 0}};
    for (int letter; (letter = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (letter == '?' || (letter == 'e' && recipe_number("--epochs", optarg, &s->epochs) != 0))
            return -1;
        *data = letter == 'd' ? optarg : *data;
        if (letter != 's')
            continue;
        s->divides = strcmp(optarg, "epochs") == 0;
        s->shards = strcmp(optarg, "data") == 0;
    }
    return *data != NULL && optind == argc && (s->divides || s->shards) ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct splitting s = {.epochs = 40, .divides = true, .shards = true};
    const char *data = NULL;
    bool good = false;
    if (read_splitting(&s, &data, argc, argv) != 0) {
        fprintf(stderr,
                "Usage: sharding --data FILE [--epochs N] [--split epochs|data]\n"
                "       N: 40, a multiple of the ranks; without --split both are compared\n");
        return 2;
    }
    if (twill_init(&s.comm) != TWILL_OK)
        return 1;
    s.rank = twill_comm_rank(s.comm);
    s.size = twill_comm_size(s.comm);
    twill_status status = TWILL_ERR_ARGUMENT;
    bool divided = is_divided(&s);
    if (divided && recipe_load(data, &s.file) == 0) /* it prints what is wrong with the file */
        status = draw_samples(&s) == 0 ? compare_splits(&s, &good) : TWILL_ERR_MEMORY;
    else if (!divided && s.rank == 0)
        fprintf(stderr, "sharding: the ranks do not divide %zu epochs and %zu mini-batches\n",
                s.epochs, batches_of(1));
    example_set_free(&s.file);
    example_set_free(&s.drawn);
    return recipe_end("sharding", s.comm, status) != 0 || !good;
}

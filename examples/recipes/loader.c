/* SPDX-License-Identifier: Apache-2.0 */
/* Threads load mini-batches ahead of the training. Run it by twillrun -n 2 loader --data
 * data/wdbc.csv
 *
 * --workers threads fill a queue of --depth mini-batches in memory of twill_alloc(), which places,
 * shares and registers it. The times are played. Loading a mini-batch takes --load-ms, and
 * computing takes --compute-ms. With depth 0 the training loads by itself. A table shows how much
 * of the loading the training has waited for. The model is the same bit for bit. */
#include "recipe.h"

#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { LOADED_SAMPLES = 20, MOST_WORKERS = 16, MOST_DEPTH = 64 };

/* A place of the queue. */
struct loaded_batch {
    size_t ready; /* number of the mini-batch in it from 1, or 0 */
    float *features;
    uint8_t labels[LOADED_SAMPLES];
};

/* The queue of a rank and its threads. */
struct loader {
    twill_comm *comm;
    struct example_set set;
    size_t depth, workers, batches, load_ms, compute_ms;
    struct loaded_batch slots[MOST_DEPTH];
    pthread_t threads[MOST_WORKERS];
    size_t started; /* how many of the threads */
    /* The lock protects the members from here on. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t taken, loaded, most_ahead; /* numbers of mini-batches */
    double loading;                   /* seconds of all threads together */
    int stop;
};

/* What a thread gets. It loads the mini-batches index, index + workers and so on. */
struct worker_of {
    struct loader *loader;
    size_t index;
};

/* Copy mini-batch b of this rank into a slot, after the time of loading. */
static void load_batch(struct loader *loader, size_t b, struct loaded_batch *slot)
{
    size_t features = loader->set.features, ranks = (size_t)twill_comm_size(loader->comm);
    size_t from = (b * ranks + (size_t)twill_comm_rank(loader->comm)) * LOADED_SAMPLES;
    example_sleep(loader->load_ms);
    for (size_t i = 0; i < LOADED_SAMPLES; i++) {
        size_t sample = (from + i) % loader->set.count;
        memcpy(slot->features + i * features, loader->set.values + sample * features,
               features * sizeof(float));
        slot->labels[i] = loader->set.labels[sample];
    }
}

static void *load_ahead(void *of)
{
    struct worker_of *worker = of;
    struct loader *loader = worker->loader;
    for (size_t b = worker->index; b < loader->batches; b += loader->workers) {
        struct loaded_batch *slot = &loader->slots[b % loader->depth];
        pthread_mutex_lock(&loader->lock);
        while (b >= loader->taken + loader->depth && !loader->stop)
            pthread_cond_wait(&loader->changed, &loader->lock);
        int stop = loader->stop;
        pthread_mutex_unlock(&loader->lock);
        if (stop)
            break;
        double start = example_now();
        load_batch(loader, b, slot);
        pthread_mutex_lock(&loader->lock);
        loader->loading += example_now() - start;
        slot->ready = b + 1;
        loader->loaded++;
        if (loader->loaded - loader->taken > loader->most_ahead)
            loader->most_ahead = loader->loaded - loader->taken;
        pthread_cond_broadcast(&loader->changed);
        pthread_mutex_unlock(&loader->lock);
    }
    return NULL;
}

/* Return mini-batch b from the queue, or load it with depth 0. Add the seconds to *waited. */
static struct loaded_batch *take_batch(struct loader *loader, size_t b, double *waited)
{
    struct loaded_batch *slot = &loader->slots[loader->depth > 0 ? b % loader->depth : 0];
    double start = example_now();
    if (loader->depth == 0) {
        load_batch(loader, b, slot);
        loader->loading += example_now() - start;
    } else {
        pthread_mutex_lock(&loader->lock);
        while (slot->ready != b + 1)
            pthread_cond_wait(&loader->changed, &loader->lock);
        pthread_mutex_unlock(&loader->lock);
    }
    *waited += example_now() - start;
    return slot;
}

/* Return the oldest mini-batch to the queue. With `stop` the threads end. */
static void give_back(struct loader *loader, int stop)
{
    pthread_mutex_lock(&loader->lock);
    loader->taken++;
    loader->stop |= stop;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
}

/* Start the threads, and wait until the queue is full. */
static twill_status start_loader(struct loader *loader, struct worker_of *workers)
{
    twill_status status = TWILL_OK;
    size_t slots = loader->depth > 0 ? loader->depth : 1, full = loader->depth;
    for (size_t i = 0; status == TWILL_OK && i < slots; i++)
        status = twill_alloc(twill_comm_context(loader->comm), (void **)&loader->slots[i].features,
                             LOADED_SAMPLES * loader->set.features * sizeof(float));
    while (status == TWILL_OK && loader->depth > 0 && loader->started < loader->workers) {
        workers[loader->started] = (struct worker_of){loader, loader->started};
        if (pthread_create(&loader->threads[loader->started], NULL, load_ahead,
                           &workers[loader->started]) != 0)
            return TWILL_ERR_SYSTEM;
        loader->started++;
    }
    full = full < loader->batches ? full : loader->batches;
    pthread_mutex_lock(&loader->lock);
    while (status == TWILL_OK && loader->loaded < full)
        pthread_cond_wait(&loader->changed, &loader->lock);
    pthread_mutex_unlock(&loader->lock);
    return status;
}

static void stop_loader(struct loader *loader)
{
    give_back(loader, 1);
    for (size_t i = 0; i < loader->started; i++)
        pthread_join(loader->threads[i], NULL);
    for (size_t i = 0; i < MOST_DEPTH; i++)
        if (loader->slots[i].features != NULL)
            twill_free(twill_comm_context(loader->comm), loader->slots[i].features);
}

static twill_status print_loader(struct loader *loader, struct recipe_model *model, double train,
                                 double waited)
{
    twill_gradients_counters counters;
    twill_status status = twill_gradients_count(model->set, &counters);
    const struct example_phase phases[] = {
        {"load", loader->loading, "of all threads"},
        {"train", train, NULL},
        {" waiting", waited, "for mini-batches"},
        {" computing", train - waited - counters.seconds_exposed, NULL},
        {" exposed", counters.seconds_exposed, "communication that computing does not hide"}};
    if (status == TWILL_OK)
        status = example_print_phases(loader->comm, phases, 5);
    if (twill_comm_rank(loader->comm) == 0)
        printf("\ndepth %zu, %zu workers: %zu mini-batches, at most %zu ahead; %.0f %% of the "
               "loading hidden\nloss %.9g\n",
               loader->depth, loader->workers, loader->batches, loader->most_ahead,
               loader->loading > 0 ? 100 * fmax(0, 1 - waited / loader->loading) : 0,
               recipe_loss(model, &loader->set));
    return status;
}

static twill_status train_loaded(struct loader *loader)
{
    struct worker_of workers[MOST_WORKERS];
    struct recipe_model model;
    double waited = 0;
    twill_status status = recipe_open(&model, loader->comm, loader->set.features, LOADED_SAMPLES);
    if (status == TWILL_OK)
        status = start_loader(loader, workers);
    double start = example_now();
    for (size_t b = 0; status == TWILL_OK && b < loader->batches; b++) {
        struct loaded_batch *slot = take_batch(loader, b, &waited);
        example_sleep(loader->compute_ms);
        status = recipe_step(&model, slot->features, slot->labels, LOADED_SAMPLES, 0.05);
        give_back(loader, 0);
    }
    double train = example_now() - start;
    stop_loader(loader);
    if (status == TWILL_OK)
        status = print_loader(loader, &model, train, waited);
    recipe_close(&model);
    return status;
}

/* Read the options. Returns the name of the data file, or NULL after an error. */
static const char *read_options(struct loader *loader, int argc, char **argv)
{
    static const struct option names[] = {{"data", required_argument, NULL, 0},
                                          {"depth", required_argument, NULL, 1},
                                          {"workers", required_argument, NULL, 2},
                                          {"batches", required_argument, NULL, 3},
                                          {"load-ms", required_argument, NULL, 4},
                                          {"compute-ms", required_argument, NULL, 5},
                                          {NULL, 0, NULL, 0}};
    size_t *const numbers[] = {NULL,
                               &loader->depth,
                               &loader->workers,
                               &loader->batches,
                               &loader->load_ms,
                               &loader->compute_ms};
    const char *data = NULL;
    for (int which; (which = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (which == 0)
            data = optarg;
        else if (which == 1 && strcmp(optarg, "0") == 0)
            loader->depth = 0;
        else if (which == '?' || recipe_number(names[which].name, optarg, numbers[which]) != 0)
            return NULL;
    }
    return loader->depth <= MOST_DEPTH && loader->workers <= MOST_WORKERS && optind == argc ? data
                                                                                            : NULL;
}

int main(int argc, char **argv)
{
    struct loader loader = {.depth = 2,
                            .workers = 1,
                            .batches = 50,
                            .load_ms = 2,
                            .compute_ms = 2,
                            .lock = PTHREAD_MUTEX_INITIALIZER,
                            .changed = PTHREAD_COND_INITIALIZER};
    const char *data = read_options(&loader, argc, argv);
    if (data == NULL) {
        fprintf(stderr, "Usage: loader --data FILE [--depth N (2)] [--workers N (1)] [--batches N "
                        "(50)]\n              [--load-ms N (2)] [--compute-ms N (2)]\n");
        return 2;
    }
    if (twill_init(&loader.comm) != TWILL_OK)
        return 1;
    twill_status status =
        recipe_load(data, &loader.set) == 0 ? train_loaded(&loader) : TWILL_ERR_ARGUMENT;
    example_set_free(&loader.set);
    return recipe_end("loader", loader.comm, status);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Train a tumour-or-normal classifier on all ranks. Run it by twillrun -n 4 train --data wdbc.csv
 *
 * A gradient set (twill_train.h) makes the communication of the training. Twenty-one lines of this
 * file are calls of the set, of its optimizer or of twill_broadcast. Two of them read counters and
 * one a message. Every mini-batch is divided among the ranks, so that any number of ranks computes
 * the same model. A rank parses only its own samples. train_data.c loads them, and train_report.c
 * evaluates the model and prints how the time was spent. */
#include "train.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Return -1 after copying the message if the status is an error, else 0. */
static int exchange_failed(struct training *t, twill_status status)
{
    if (status == TWILL_OK)
        return 0;
    const char *reason = t->set != NULL ? twill_gradients_message(t->set) : "";
    snprintf(t->message, sizeof(t->message), "%s",
             reason[0] != '\0' ? reason : twill_comm_message(t->comm));
    return -1;
}

/* Return the learning rate of the next mini-batch. */
static double next_rate(const struct training *t)
{
    size_t epoch = t->at.epoch > 0 ? (size_t)t->at.epoch : 1;
    return example_rate_at(&t->options.rate, t->options.batch, epoch, (size_t)t->at.batch,
                           t->batches);
}

static twill_status set_optimizer(struct training *t)
{
    twill_optimizer optimizer;
    twill_optimizer_defaults(&optimizer, TWILL_OPTIMIZER_SGD);
    optimizer.rate = t->rate;
    optimizer.momentum = t->options.momentum;
    return twill_gradients_set_optimizer(t->set, &optimizer);
}

/* Create the set, which has the parameters with --fused. All ranks start with those of rank 0. */
static twill_status create_set(struct training *t)
{
    const struct train_options *options = &t->options;
    struct example_network *network = &t->network;
    twill_gradients_options set_options;
    twill_gradients_defaults(&set_options);
    /* the gradients have been divided by the samples of the mini-batch */
    set_options.op = TWILL_SUM;
    set_options.compression = options->compression;
    set_options.late = options->late;
    twill_status status = twill_gradients_create(&t->set, t->comm, &set_options);
    t->rate = next_rate(t);
    if (status == TWILL_OK && options->fused)
        status = set_optimizer(t);
    for (int i = 0; status == TWILL_OK && i < EXAMPLE_TENSORS; i++) {
        twill_tensor tensor = {.name = example_network_tensor(i),
                               .count = network->count[i],
                               .type = TWILL_F32,
                               .parameters = t->weights[i],
                               .priority = i,
                               .uncompressed = i == HIDDEN_BIASES || i == OUTPUT_BIAS};
        status = twill_gradients_add(t->set, &tensor, NULL);
    }
    if (status == TWILL_OK)
        status = twill_gradients_commit(t->set);
    for (int i = 0; status == TWILL_OK && i < EXAMPLE_TENSORS; i++)
        network->weights[i] =
            options->fused ? twill_gradients_parameters(t->set, i) : t->weights[i];
    if (status == TWILL_OK && t->rank == 0 && t->at.epoch == 0)
        example_network_randomise(network, options->seed);
    for (int i = 0; status == TWILL_OK && i < EXAMPLE_TENSORS; i++)
        status = twill_broadcast(t->comm, network->weights[i], network->weights[i],
                                 network->count[i], TWILL_F32, 0);
    if (status == TWILL_OK && options->fused && options->elastic)
        status = example_restore(t);
    if (status == TWILL_OK && options->fused && options->late)
        status = twill_gradients_reload(t->set);
    return status;
}

/* Update the parameters with the set's results, unless the set has done it. With --late both have
 * two places, so ask the set each time. */
static void update_parameters(struct training *t)
{
    for (int i = 0; i < EXAMPLE_TENSORS; i++) {
        t->network.gradient[i] = twill_gradients_result(t->set, i);
        if (t->options.fused)
            t->network.weights[i] = twill_gradients_parameters(t->set, i);
    }
    if (!t->options.fused)
        example_network_step(&t->network, (float)t->rate);
}

/* Mark both tensors of a layer ready. */
static twill_status mark_layer(struct training *t, int layer)
{
    twill_status status = twill_gradients_ready(t->set, 2 * layer + 1);
    return status == TWILL_OK ? twill_gradients_ready(t->set, 2 * layer) : status;
}

/* Train on one mini-batch. Sum the gradients of the ranks, and make the same step on every rank.
 * With --overlap the gradients of a layer are reduced while those of the layer before are computed.
 * Adds the loss and the number of this rank's samples to loss[2]. */
static twill_status train_batch(struct training *t, size_t batch, double loss[2])
{
    struct example_network *network = &t->network;
    size_t first = t->first[batch], samples = t->first[batch + 1] - first;
    const float *features = t->train.values + first * t->train.features;
    float scale = 1 / (float)example_batch_samples(t, batch);
    twill_status status = TWILL_OK;
    for (int i = 0; i < EXAMPLE_TENSORS; i++)
        network->gradient[i] = twill_gradients_memory(t->set, i);
    loss[0] += example_network_forward(network, features, t->train.labels + first, samples, scale);
    loss[1] += (double)samples;
    for (int layer = EXAMPLE_LAYERS - 1; status == TWILL_OK && layer >= 0; layer--) {
        example_network_backward(network, layer, features, samples);
        if (t->options.overlap)
            status = mark_layer(t, layer);
    }
    for (int layer = EXAMPLE_LAYERS - 1; status == TWILL_OK && layer >= 0; layer--)
        if (!t->options.overlap)
            status = mark_layer(t, layer);
    if (status == TWILL_OK)
        status = twill_gradients_wait_all(t->set);
    if (status == TWILL_OK)
        update_parameters(t);
    return status;
}

/* End the steps whose results are late. The last ones deliver their own results. */
static twill_status cool_down(struct training *t)
{
    twill_status status = twill_gradients_drain(t->set);
    if (status != TWILL_OK)
        return status;
    update_parameters(t);
    return twill_gradients_set_late(t->set, 0);
}

/* Begin an epoch. All ranks draw the same order of its mini-batches. With --late the last tenth of
 * the epochs has results that are not late. */
static int begin_epoch(struct training *t)
{
    size_t epochs = t->options.epochs;
    if (t->options.late && t->at.epoch == epochs - epochs / 10 && t->at.epoch > 1 &&
        exchange_failed(t, cool_down(t)))
        return -1;
    for (size_t i = 0; i < t->batches; i++) {
        size_t j = example_random(&t->at.random) % (i + 1);
        if (i != j)
            t->order[i] = t->order[j];
        t->order[j] = i;
    }
    t->loss[0] = t->loss[1] = 0;
    t->epoch_start = example_now();
    t->epoch_exposed = example_exposed(t);
    t->at.begun = 1;
    return 0;
}

/* Print the loss of every tenth of the epochs, or with --elastic of all that no death cut short. */
static int end_epoch(struct training *t)
{
    const struct train_options *options = &t->options;
    size_t shown = options->elastic ? 1 : (options->epochs + 9) / 10;
    double sum[2] = {t->loss[0], t->loss[1]};
    if (t->at.epoch == 1 || t->at.epoch % shown == 0) {
        if (example_reduce(t, sum, 2, TWILL_F64, TWILL_SUM) != 0)
            return -1;
        bool whole = sum[1] > 0 && (size_t)sum[1] == t->samples;
        if (t->rank == 0 && whole && !options->elastic)
            printf("  epoch %4zu  loss %.6f\n", (size_t)t->at.epoch, sum[0] / sum[1]);
        if (t->rank == 0 && whole && options->elastic)
            printf("  epoch %4zu  loss %.6f  at %.3f s\n", (size_t)t->at.epoch, sum[0] / sum[1],
                   example_now() - t->start);
        if (t->rank == 0 && whole && options->shares)
            example_print_share(t);
    }
    if (options->curve && example_print_accuracy(t) != 0)
        return -1;
    t->at = (struct train_position){.epoch = t->at.epoch + 1, .random = t->at.random};
    return 0;
}

/* Set the learning rate of the next mini-batch. */
static twill_status set_rate(struct training *t)
{
    double rate = next_rate(t);
    bool changed = rate < t->rate || rate > t->rate;
    t->rate = rate;
    return changed && t->options.fused ? set_optimizer(t) : TWILL_OK;
}

/* Train on the next mini-batch, or end the epoch. */
static int train_next(struct training *t)
{
    if (!t->at.begun && begin_epoch(t) != 0)
        return -1;
    if (t->at.batch == t->batches)
        return end_epoch(t);
    if (exchange_failed(t, set_rate(t)) ||
        exchange_failed(t, train_batch(t, t->order[t->at.batch], t->loss)))
        return -1;
    if (t->started.calls == 0)
        twill_gradients_traffic(t->set, &t->started);
    t->at.batch++;
    if (t->options.pause_ms > 0)
        example_sleep(t->options.pause_ms);
    return 0;
}

static int train_model(struct training *t)
{
    twill_gradients_counters counters = {0};
    int failed = 0;
    double start = example_now(), before = (double)clock();
    if (!t->options.elastic)
        t->start = start;
    while (!failed && t->at.epoch <= t->options.epochs) {
        failed = train_next(t);
        if (t->options.elastic)
            failed = example_keep_on(t, failed);
    }
    if (!failed)
        twill_gradients_count(t->set, &counters);
    t->seconds[TRAIN] = example_now() - start - t->judging;
    t->processor = ((double)clock() - before) / CLOCKS_PER_SEC - t->judged;
    t->seconds[EXPOSED] = counters.seconds_exposed;
    t->seconds[COMPUTING] = t->seconds[TRAIN] - t->seconds[EXPOSED];
    return failed;
}

/* Allocate the network, and its parameters unless the set has them or they are there. */
static int create_network(struct training *t)
{
    size_t most = 0;
    for (size_t i = 0; i < t->batches; i++)
        if (t->first[i + 1] - t->first[i] > most)
            most = t->first[i + 1] - t->first[i];
    int failed = example_network_create(&t->network, t->file.features, t->options.hidden,
                                        t->file.classes, most);
    for (int i = 0; !failed && !t->options.fused && i < EXAMPLE_TENSORS; i++) {
        if (t->weights[i] == NULL)
            t->weights[i] = calloc(t->network.count[i], sizeof(float));
        failed = t->weights[i] == NULL;
    }
    if (t->order == NULL)
        t->order = calloc(t->batches, sizeof(*t->order));
    failed = failed || t->order == NULL;
    if (failed)
        snprintf(t->message, sizeof(t->message), "no memory");
    return failed;
}

static void print_settings(const struct training *t)
{
    const struct train_options *options = &t->options;
    size_t ones = 0;
    for (size_t i = 0; i < t->file.samples; i++)
        ones += t->file.labels[i];
    printf("data      %s: %zu sample%s of %zu features, %.1f%% of class 1\n", options->data,
           t->file.samples, t->file.samples == 1 ? "" : "s", t->file.features,
           100.0 * (double)ones / (double)t->file.samples);
    printf("split     %zu to train, %zu held out, stratified, seed %zu\n", t->samples,
           t->file.samples - t->samples, options->seed);
    printf("network   %zu-%zu-1, %zu parameter%s; %zu epoch%s, batch %zu, rate %g\n",
           t->file.features, options->hidden, (t->file.features + 2) * options->hidden + 1,
           (t->file.features + 2) * options->hidden + 1 == 1 ? "" : "s", options->epochs,
           options->epochs == 1 ? "" : "s", options->batch,
           example_rate_scaled(&options->rate, options->batch));
    fflush(stdout);
}

int example_prepare(struct training *t)
{
    double start = example_now();
    t->rank = twill_comm_rank(t->comm);
    t->size = twill_comm_size(t->comm);
    if (example_load_shards(t) != 0)
        return -1;
    t->seconds[LOAD] = example_now() - start;
    if (t->rank == 0 && t->at.epoch == 0)
        print_settings(t);
    start = example_now();
    if (example_preprocess(t) != 0)
        return -1;
    t->seconds[PREPROCESS] = example_now() - start;
    int failed = example_agree(t, create_network(t) != 0) != 0;
    if (failed || exchange_failed(t, create_set(t)))
        return -1;
    if (t->at.epoch == 0)
        t->at = (struct train_position){.epoch = 1, .random = t->options.seed + 1};
    return 0;
}

void example_release(struct training *t)
{
    twill_gradients_destroy(t->set);
    t->set = NULL;
    example_network_free(&t->network);
    example_set_free(&t->train);
    example_set_free(&t->held_out);
    example_file_close(&t->file);
    free(t->first);
    t->first = NULL;
}

static int run_training(struct training *t)
{
    int failed = t->options.elastic ? example_begin(t) : example_prepare(t);
    return failed || train_model(t) != 0 || example_report(t) != 0;
}

int main(int argc, char **argv)
{
    struct training t = {0};
    int mistake = example_options(&t.options, argc, argv);
    if (mistake != 0)
        return mistake == 1 ? 0 : 2;
    if (twill_init(&t.comm) != TWILL_OK)
        return 1; /* the reason was printed */
    t.size = twill_comm_size(t.comm);
    if (twill_comm_rank(t.comm) == 0)
        printf("twill %s: training on %d rank%s, %d node%s\n", twill_version(), t.size,
               t.size == 1 ? "" : "s", twill_comm_nodes(t.comm),
               twill_comm_nodes(t.comm) == 1 ? "" : "s");
    int failed = run_training(&t);
    if (failed && t.message[0] != '\0')
        fprintf(stderr, "train: rank %d: %s\n", t.rank, t.message);
    example_release(&t);
    example_free_copies(&t);
    free(t.order);
    for (int i = 0; i < EXAMPLE_TENSORS; i++)
        free(t.weights[i]);
    twill_finalize(t.comm);
    return failed ? 1 : 0;
}

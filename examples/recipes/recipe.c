/* SPDX-License-Identifier: Apache-2.0 */
#include "recipe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIDDEN_UNITS = 16, SEED = 1 };

/* Scale a feature to zero mean and unit variance. */
static void scale_feature(struct example_set *set, size_t feature)
{
    double mean = 0, square = 0, n = (double)set->count;
    float *value = set->values + feature;
    for (size_t i = 0; i < set->count; i++)
        mean += (double)value[i * set->features] / n;
    for (size_t i = 0; i < set->count; i++)
        square += pow((double)value[i * set->features] - mean, 2) / n;
    for (size_t i = 0; i < set->count; i++)
        value[i * set->features] =
            (float)(((double)value[i * set->features] - mean) / (square > 0 ? sqrt(square) : 1));
}

int recipe_load(const char *path, struct example_set *set)
{
    char message[512] = "no memory";
    struct example_file file = {0};
    size_t *order = NULL, samples = 0;
    int failed = example_file_open(&file, path, EXAMPLE_AUTO, message, sizeof(message));
    if (!failed) {
        order = example_split(&file, SEED, &samples);
        failed = order == NULL ||
                 example_load(&file, order, samples, set, message, sizeof(message)) != 0;
    }
    for (size_t i = 0; !failed && i < set->features; i++)
        scale_feature(set, i);
    if (failed)
        fprintf(stderr, "%s\n", message);
    free(order);
    example_file_close(&file);
    return failed ? -1 : 0;
}

int recipe_number(const char *option, const char *text, size_t *number)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    *number = (size_t)value;
    if (end != text && *end == '\0' && strchr(text, '-') == NULL && value > 0 && value < 1u << 30)
        return 0;
    fprintf(stderr, "%s: '%s' is not a number above 0\n", option, text);
    return -1;
}

twill_status recipe_open(struct recipe_model *model, twill_comm *comm, size_t features,
                         size_t samples)
{
    *model = (struct recipe_model){0};
    if (example_network_create(&model->network, features, HIDDEN_UNITS, 2, samples) != 0)
        return TWILL_ERR_MEMORY;
    twill_status status = twill_gradients_create(&model->set, comm, NULL); /* the set averages */
    for (int i = 0; status == TWILL_OK && i < EXAMPLE_TENSORS; i++) {
        twill_tensor tensor = {
            .name = example_network_tensor(i), .count = model->network.count[i], .type = TWILL_F32};
        model->weights[i] = calloc(tensor.count, sizeof(float));
        model->network.weights[i] = model->weights[i];
        status = model->weights[i] == NULL ? TWILL_ERR_MEMORY
                                           : twill_gradients_add(model->set, &tensor, NULL);
    }
    if (status == TWILL_OK)
        status = twill_gradients_commit(model->set);
    for (int i = 0; status == TWILL_OK && i < EXAMPLE_TENSORS; i++)
        model->network.gradient[i] = twill_gradients_memory(model->set, i);
    if (status == TWILL_OK)
        example_network_randomise(&model->network, SEED);
    return status;
}

twill_status recipe_step(struct recipe_model *model, const float *features, const uint8_t *labels,
                         size_t samples, double rate)
{
    struct example_network *network = &model->network;
    twill_status status = TWILL_OK;
    example_network_forward(network, features, labels, samples, 1 / (float)samples);
    for (int layer = EXAMPLE_LAYERS - 1; status == TWILL_OK && layer >= 0; layer--) {
        example_network_backward(network, layer, features, samples);
        status = twill_gradients_ready(model->set, 2 * layer + 1);
        if (status == TWILL_OK)
            status = twill_gradients_ready(model->set, 2 * layer);
    }
    if (status == TWILL_OK)
        status = twill_gradients_wait_all(model->set);
    if (status == TWILL_OK)
        example_network_step(network, (float)rate);
    return status;
}

double recipe_loss(struct recipe_model *model, const struct example_set *set)
{
    double loss = 0;
    for (size_t i = 0; i < set->count; i++)
        loss += example_network_judge(&model->network, set->values + i * set->features,
                                      set->labels[i], NULL);
    return loss / (double)set->count;
}

void recipe_close(struct recipe_model *model)
{
    twill_gradients_destroy(model->set);
    example_network_free(&model->network);
    for (int i = 0; i < EXAMPLE_TENSORS; i++)
        free(model->weights[i]);
}

int recipe_end(const char *name, twill_comm *comm, twill_status status)
{
    if (status != TWILL_OK)
        fprintf(stderr, "%s: %s: %s\n", name, twill_strerror(status), twill_comm_message(comm));
    twill_finalize(comm);
    return status == TWILL_OK ? 0 : 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The networks of the recipe nt3: sizes of NT3's tensors, and gradients beside differences of the
 * loss. */
#include "examples/dataset.h"
#include "recipes/nt3_network.h"
#include "tests/support/unit.h"

enum { FEATURES = 80 };

static double loss_of(struct nt3_network *network, const float *sample)
{
    return log1p(exp(-nt3_logit(network, sample)));
}

/* Return what a small change of a parameter makes of the loss, on both sides of it. */
static double difference(struct nt3_network *network, const float *sample, float *parameter)
{
    float kept = *parameter, by = 2e-4F;
    *parameter = kept + by;
    double above = loss_of(network, sample);
    *parameter = kept - by;
    double below = loss_of(network, sample);
    *parameter = kept;
    return (above - below) / (2 * (double)by);
}

/* Compare some gradients of a tensor that are not 0. One of six may be off, where a small change
 * switches a ReLU or the largest of a pool. */
static void check_tensor(struct nt3_network *network, const float *sample, float *parameters,
                         const float *gradients, size_t count)
{
    unsigned compared = 0, off = 0;
    for (size_t i = 0; i < count && compared < 6; i++) {
        size_t at = i * 7919 % count;
        if (gradients[at] == 0)
            continue;
        double expected = difference(network, sample, &parameters[at]);
        off += fabs(expected - (double)gradients[at]) > 0.05 * fabs(expected);
        compared++;
    }
    assert_true(compared >= 2 && off <= compared / 6);
}

static void check_network(bool whole)
{
    twill_comm *comm;
    struct nt3_network network;
    float sample[FEATURES];
    uint64_t random = 5;
    for (size_t i = 0; i < FEATURES; i++)
        sample[i] = (float)example_uniform(&random);
    assert_int_equal(twill_init(&comm), TWILL_OK);
    assert_int_equal(nt3_open(&network, comm, FEATURES, 4, whole), TWILL_OK);
    struct nt3_layer *last = &network.layer[network.layers - 1];
    for (size_t i = 0; i < 2 * last->kernel * last->channels; i++)
        last->weights[i] = (float)example_uniform(&random) - 0.5F;
    double logit = nt3_logit(&network, sample);
    nt3_begin_batch(&network);
    assert_int_equal(nt3_add_gradients(&network, sample, (float)(-1 / (1 + exp(logit))), true),
                     TWILL_OK);
    assert_int_equal(twill_gradients_wait_all(network.set), TWILL_OK);
    for (size_t i = 0; i < network.layers; i++) {
        struct nt3_layer *layer = &network.layer[i];
        check_tensor(&network, sample, layer->weights,
                     twill_gradients_memory(network.set, (int)(2 * i)),
                     layer->filters * layer->kernel * layer->channels);
        check_tensor(&network, sample, layer->biases,
                     twill_gradients_memory(network.set, (int)(2 * i + 1)), layer->filters);
    }
    nt3_close(&network);
    twill_finalize(comm);
}

TWILL_TEST(test_small)
{
    check_network(false);
}

TWILL_TEST(test_whole_network)
{
    check_network(true);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Averaging models is not averaging gradients. Run it by twillrun -n 4 averages
 *
 * Each rank has samples of a least squares problem. The summed gradients are bit for bit those of
 * one rank with all samples, as numbers are small integers and the rate is a power of two. Models
 * that are averaged after every step are the same again, as the step is linear in the gradient.
 * Models that are averaged after several steps are different, although each rank makes as many. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <twill.h>

enum { INPUTS = 8, SAMPLES = 4, STEPS = 4 };

static double input_of(int sample, int i)
{
    return (sample * sample + i * 3 + sample * i) % 5 - 2;
}

static double target_of(int sample)
{
    return sample % 5 - 2;
}

/* Add the gradient of the squared error of the samples from `from` to `to` - 1. */
static void add_gradient(const double *weights, int from, int to, double *gradient)
{
    for (int s = from; s < to; s++) {
        double error = -target_of(s);
        for (int i = 0; i < INPUTS; i++)
            error += weights[i] * input_of(s, i);
        for (int i = 0; i < INPUTS; i++)
            gradient[i] += error * input_of(s, i);
    }
}

static void step_by(double *weights, const double *gradient, double rate)
{
    for (int i = 0; i < INPUTS; i++)
        weights[i] -= rate * gradient[i];
}

/* Train one rank on all samples, as the model to compare with. */
static void train_alone(int ranks, double *weights)
{
    for (int step = 0; step < STEPS; step++) {
        double gradient[INPUTS] = {0};
        add_gradient(weights, 0, ranks * SAMPLES, gradient);
        step_by(weights, gradient, 1.0 / 1024);
    }
}

static twill_status train_on_gradients(twill_comm *comm, double *weights)
{
    int rank = twill_comm_rank(comm);
    twill_status status = TWILL_OK;
    for (int step = 0; status == TWILL_OK && step < STEPS; step++) {
        double gradient[INPUTS] = {0};
        add_gradient(weights, rank * SAMPLES, (rank + 1) * SAMPLES, gradient);
        status = twill_allreduce(comm, gradient, gradient, INPUTS, TWILL_F64, TWILL_SUM);
        step_by(weights, gradient, 1.0 / 1024);
    }
    return status;
}

/* Train, and average the models after every `local` steps. The rate is multiplied by the number of
 * ranks P, as a rank has a P-th of the sum. */
static twill_status train_on_models(twill_comm *comm, int local, double *weights)
{
    int rank = twill_comm_rank(comm), size = twill_comm_size(comm);
    twill_status status = TWILL_OK;
    for (int step = 0; status == TWILL_OK && step < STEPS; step++) {
        double gradient[INPUTS] = {0};
        add_gradient(weights, rank * SAMPLES, (rank + 1) * SAMPLES, gradient);
        step_by(weights, gradient, size / 1024.0);
        if ((step + 1) % local == 0)
            status = twill_allreduce(comm, weights, weights, INPUTS, TWILL_F64, TWILL_AVG);
    }
    return status;
}

/* Return the largest difference of two weights. */
static double model_distance(const double *one, const double *other)
{
    double most = 0;
    for (int i = 0; i < INPUTS; i++)
        most = fmax(most, fabs(one[i] - other[i]));
    return most;
}

int main(void)
{
    twill_comm *comm;
    double alone[INPUTS] = {0}, gradients[INPUTS] = {0}, often[INPUTS] = {0}, rarely[INPUTS] = {0};
    if (twill_init(&comm) != TWILL_OK)
        return 1;
    int size = twill_comm_size(comm);
    train_alone(size, alone);
    twill_status status = train_on_gradients(comm, gradients);
    if (status == TWILL_OK)
        status = train_on_models(comm, 1, often);
    if (status == TWILL_OK)
        status = train_on_models(comm, STEPS, rarely);
    int equal = memcmp(gradients, alone, sizeof(alone)) == 0;
    int good = equal && model_distance(often, alone) < 1e-12 &&
               (size == 1 || model_distance(rarely, alone) > 1e-5);
    if (status != TWILL_OK)
        fprintf(stderr, "averages: %s: %s\n", twill_strerror(status), twill_comm_message(comm));
    else if (twill_comm_rank(comm) == 0)
        printf("%d ranks, %d steps; distance from one rank with all samples\n"
               "gradients averaged in each step      %s\n"
               "models averaged after each step      %.3g\n"
               "models averaged after %d local steps  %.3g\n",
               size, STEPS, equal ? "0, bit for bit" : "NOT EQUAL", model_distance(often, alone),
               STEPS, model_distance(rarely, alone));
    twill_finalize(comm);
    return status == TWILL_OK && good ? 0 : 1;
}

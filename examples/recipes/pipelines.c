/* SPDX-License-Identifier: Apache-2.0 */
/* Show pipeline parallelism, and data parallelism over pipelines. Run it by twillrun -n 2
 * pipelines, or with -n 4.
 *
 *     rank 0  hidden layer  --activations-->  rank 1  output       a pipeline of 2 ranks
 *     rank 2  hidden layer  <---errors------  rank 3  output       another, on other samples
 *
 * A mini-batch is divided into micro-batches, so that a rank works on one while its neighbour works
 * on another. Activations and errors travel in nonblocking messages. Ranks of the same layer sum
 * their gradients. The result equals bit for bit what one rank computes. With more than two
 * pipelines the order of the sums is another, and it is equal up to rounding. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <twill.h>

enum { INPUTS = 8, HIDDEN = 16, MICRO = 4, MICROS = 8, TRAIN_STEPS = 20 };
enum { FIRST, LAST };

/* Both layers of the model. A rank of a pipeline uses one of them. */
struct layers {
    double hidden[INPUTS][HIDDEN], output[HIDDEN];
};

/* A rank of a pipeline with its messages. */
struct pipeline_rank {
    twill_comm *pair, *layer; /* ranks of this pipeline, and of this layer */
    int stage, pipe, pipes;
    double activations[MICROS][MICRO][HIDDEN], errors[MICROS][MICRO][HIDDEN];
};

static double input_of(int sample, int i)
{
    return sin(sample * 0.7 + i * 1.3);
}

static double target_of(int sample)
{
    return cos(sample * 0.7);
}

static int first_sample(int pipe, int micro)
{
    return (pipe * MICROS + micro) * MICRO;
}

static void begin_weights(struct layers *model)
{
    for (int j = 0; j < HIDDEN; j++) {
        for (int i = 0; i < INPUTS; i++)
            model->hidden[i][j] = sin(i * 31 + j * 17) / 4;
        model->output[j] = cos(j * 13) / 4;
    }
}

/* Run the forward pass of the hidden layer for the micro-batch that begins with sample `first`. */
static void compute_hidden(const struct layers *model, int first, double to[MICRO][HIDDEN])
{
    for (int s = 0; s < MICRO; s++)
        for (int j = 0; j < HIDDEN; j++) {
            double sum = 0;
            for (int i = 0; i < INPUTS; i++)
                sum += input_of(first + s, i) * model->hidden[i][j];
            to[s][j] = tanh(sum);
        }
}

/* Run both passes of the output. Add its gradient, and compute the errors of the activations. */
static void compute_output(const struct layers *model, int first, double act[MICRO][HIDDEN],
                           struct layers *gradient, double errors[MICRO][HIDDEN])
{
    for (int s = 0; s < MICRO; s++) {
        double error = -target_of(first + s);
        for (int j = 0; j < HIDDEN; j++)
            error += act[s][j] * model->output[j];
        for (int j = 0; j < HIDDEN; j++) {
            gradient->output[j] += error * act[s][j];
            errors[s][j] = error * model->output[j] * (1 - act[s][j] * act[s][j]);
        }
    }
}

/* Run the backward pass of the hidden layer, which adds its gradient. */
static void add_hidden(int first, double errors[MICRO][HIDDEN], struct layers *gradient)
{
    for (int s = 0; s < MICRO; s++)
        for (int i = 0; i < INPUTS; i++)
            for (int j = 0; j < HIDDEN; j++)
                gradient->hidden[i][j] += errors[s][j] * input_of(first + s, i);
}

static void update_weights(double *weights, const double *gradient, int count)
{
    for (int i = 0; i < count; i++)
        weights[i] -= 0.01 * gradient[i];
}

enum { FLOATS = MICRO * HIDDEN };

/* Make a step as the first rank of a pipeline, and add the gradient of its layer. */
static twill_status run_first(struct pipeline_rank *p, const struct layers *model,
                              struct layers *gradient)
{
    twill_request *sent[MICROS] = {NULL}, *received[MICROS] = {NULL};
    twill_status status = TWILL_OK;
    for (int m = 0; status == TWILL_OK && m < MICROS; m++)
        status = twill_recv_start(p->pair, p->errors[m], FLOATS, TWILL_F64, LAST, &received[m]);
    for (int m = 0; status == TWILL_OK && m < MICROS; m++) {
        compute_hidden(model, first_sample(p->pipe, m), p->activations[m]);
        status = twill_send_start(p->pair, p->activations[m], FLOATS, TWILL_F64, LAST, &sent[m]);
    }
    for (int m = 0; status == TWILL_OK && m < MICROS; m++) {
        status = twill_wait(&received[m]);
        if (status == TWILL_OK)
            add_hidden(first_sample(p->pipe, m), p->errors[m], gradient);
    }
    return status == TWILL_OK ? twill_wait_all(MICROS, sent) : status;
}

/* Make a step as the last rank of a pipeline, and add the gradient of its layer. */
static twill_status run_last(struct pipeline_rank *p, const struct layers *model,
                             struct layers *gradient)
{
    twill_request *sent[MICROS] = {NULL}, *received[MICROS] = {NULL};
    twill_status status = TWILL_OK;
    for (int m = 0; status == TWILL_OK && m < MICROS; m++)
        status =
            twill_recv_start(p->pair, p->activations[m], FLOATS, TWILL_F64, FIRST, &received[m]);
    for (int m = 0; status == TWILL_OK && m < MICROS; m++) {
        status = twill_wait(&received[m]);
        if (status != TWILL_OK)
            break;
        compute_output(model, first_sample(p->pipe, m), p->activations[m], gradient, p->errors[m]);
        status = twill_send_start(p->pair, p->errors[m], FLOATS, TWILL_F64, FIRST, &sent[m]);
    }
    return status == TWILL_OK ? twill_wait_all(MICROS, sent) : status;
}

static twill_status train_pipelines(struct pipeline_rank *p, struct layers *model)
{
    twill_status status = TWILL_OK;
    for (int step = 0; status == TWILL_OK && step < TRAIN_STEPS; step++) {
        struct layers gradient = {.output = {0}};
        bool first = p->stage == FIRST;
        double *mine = first ? gradient.hidden[0] : gradient.output;
        int count = first ? INPUTS * HIDDEN : HIDDEN;
        status = first ? run_first(p, model, &gradient) : run_last(p, model, &gradient);
        if (status == TWILL_OK)
            status = twill_allreduce(p->layer, mine, mine, (size_t)count, TWILL_F64, TWILL_SUM);
        update_weights(first ? model->hidden[0] : model->output, mine, count);
    }
    /* Give both layers to both ranks of a pipeline. */
    if (status == TWILL_OK)
        status = twill_broadcast(p->pair, model->hidden, model->hidden, INPUTS * HIDDEN, TWILL_F64,
                                 FIRST);
    return status == TWILL_OK
               ? twill_broadcast(p->pair, model->output, model->output, HIDDEN, TWILL_F64, LAST)
               : status;
}

/* Train the same model on one rank. */
static void train_one(int pipes, struct layers *model)
{
    double act[MICRO][HIDDEN], errors[MICRO][HIDDEN];
    for (int step = 0; step < TRAIN_STEPS; step++) {
        struct layers sum = {.output = {0}};
        for (int pipe = 0; pipe < pipes; pipe++) {
            struct layers gradient = {.output = {0}};
            for (int m = 0; m < MICROS; m++) {
                compute_hidden(model, first_sample(pipe, m), act);
                compute_output(model, first_sample(pipe, m), act, &gradient, errors);
                add_hidden(first_sample(pipe, m), errors, &gradient);
            }
            for (int i = 0; i < INPUTS * HIDDEN; i++)
                sum.hidden[i / HIDDEN][i % HIDDEN] += gradient.hidden[i / HIDDEN][i % HIDDEN];
            for (int j = 0; j < HIDDEN; j++)
                sum.output[j] += gradient.output[j];
        }
        update_weights(model->hidden[0], sum.hidden[0], INPUTS * HIDDEN);
        update_weights(model->output, sum.output, HIDDEN);
    }
}

static double model_distance(const struct layers *one, const struct layers *other)
{
    double most = 0;
    for (int i = 0; i < INPUTS * HIDDEN; i++)
        most = fmax(most, fabs(one->hidden[i / HIDDEN][i % HIDDEN] -
                               other->hidden[i / HIDDEN][i % HIDDEN]));
    for (int j = 0; j < HIDDEN; j++)
        most = fmax(most, fabs(one->output[j] - other->output[j]));
    return most;
}

/* Train the model as a rank of a pipeline and alone. Returns whether both models are equal. */
static bool compare_models(struct pipeline_rank *p, twill_status *status)
{
    struct layers piped, alone;
    begin_weights(&piped);
    begin_weights(&alone);
    *status = train_pipelines(p, &piped);
    train_one(p->pipes, &alone);
    bool equal = memcmp(&piped, &alone, sizeof(piped)) == 0;
    if (*status == TWILL_OK)
        printf("pipeline %d of %d, layer %d: model %s one rank's, largest difference %.3g\n",
               p->pipe, p->pipes, p->stage, equal ? "equals bit for bit" : "differs from",
               model_distance(&piped, &alone));
    return p->pipes > 2 ? model_distance(&piped, &alone) < 1e-12 : equal;
}

int main(void)
{
    twill_comm *comm;
    struct pipeline_rank pipeline = {.pair = NULL}, *p = &pipeline;
    bool equal = false;
    if (twill_init(&comm) != TWILL_OK)
        return 1;
    int rank = twill_comm_rank(comm);
    p->stage = rank % 2;
    p->pipe = rank / 2;
    p->pipes = twill_comm_size(comm) / 2;
    twill_status status =
        /* the ranks form pairs */
        twill_comm_size(comm) % 2 == 0 ? TWILL_OK : TWILL_ERR_UNSUPPORTED;
    if (status == TWILL_OK)
        status = twill_comm_split(&p->pair, comm, p->pipe, rank);
    if (status == TWILL_OK)
        status = twill_comm_split(&p->layer, comm, p->stage, rank);
    if (status == TWILL_OK)
        equal = compare_models(p, &status);
    if (status != TWILL_OK)
        fprintf(stderr, "pipelines: %s: %s\n", twill_strerror(status), twill_comm_message(comm));
    twill_comm_destroy(p->pair);
    twill_comm_destroy(p->layer);
    twill_finalize(comm);
    return status == TWILL_OK && equal ? 0 : 1;
}

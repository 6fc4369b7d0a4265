/* SPDX-License-Identifier: Apache-2.0 */
/* twill_context_why() says which algorithm a call would use, and what others would cost. */
#include "algorithms/select/explain.h"
#include "algorithms/select/ways.h"
#include "kernels/thread_pool.h"
#include "kernels/training/factors.h"
#include "lib/engine/plan.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/job/find_levels.h"
#include "numa/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A parsed question to twill_context_why(), on the stack of the function that answers it. */
struct question {
    struct twill_select_request request; /* for a dense layer, the reduction of its gradient */
    struct twill_dense dense;            /* the layer asked about, if rows > 0 */
    const char *world, *groups, *units, *topology, *machine; /* values in `copy`, or NULL */
    uint64_t threads; /* of each rank, 0 for those of the job */
    char copy[TWILL_WHY_QUESTION];
};

/* Return TWILL_ERR_ARGUMENT, with a message that `word` is not `what`. */
static twill_status refuse_query(struct twill_context *context, const char *word, const char *what)
{
    return TWILL_FAIL(&context->error, TWILL_ERR_ARGUMENT, "why: \"%s\" is not %s", word, what);
}

/* Set *type to the type named `word`. Returns false if there is none. */
static bool is_type(const char *word, twill_type *type)
{
    for (unsigned t = 0; t < TWILL_TYPE_COUNT; t++) {
        *type = (twill_type)t;
        if (twill_type_name(*type) != NULL && strcmp(twill_type_name(*type), word) == 0)
            return true;
    }
    return false;
}

/* Store the value of a word NAME=VALUE in the question. Returns false if NAME is unknown. */
static bool option_read(struct question *q, const char *word)
{
    const struct {
        const char *name, **value;
    } named[] = {{"world=", &q->world},
                 {"groups=", &q->groups},
                 {"units=", &q->units},
                 {"topology=", &q->topology},
                 {"machine=", &q->machine}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(named); i++)
        if (strncmp(word, named[i].name, strlen(named[i].name)) == 0) {
            *named[i].value = word + strlen(named[i].name);
            return true;
        }
    return false;
}

/* Read the bytes of a call or, if the question is about "factors" (dense.rows > 0),
 * ROWSxCOLUMNSxSAMPLES, into the question. Returns TWILL_ERR_ARGUMENT for other words. */
static twill_status read_size(struct twill_context *context, struct question *q, const char *word)
{
    struct twill_select_request *r = &q->request;
    struct twill_dense *d = &q->dense;
    size_t length = strlen(word), most = SIZE_MAX / 16;
    if (d->rows == 0)
        return twill_bytes_parse(word, length, &r->bytes) == length && length > 0
                   ? TWILL_OK
                   : refuse_query(context, word, "a size such as 64K");
    int end = 0;
    if (strspn(word, "0123456789x") != length ||
        sscanf(word, "%zux%zux%zu%n", &d->rows, &d->columns, &d->samples, &end) != 3 ||
        (size_t)end != length || d->rows == 0 || d->columns == 0 || d->samples == 0 ||
        d->rows > most / d->columns || d->samples > most / (d->rows + d->columns))
        return refuse_query(context, word, "a dense layer's rows x columns x samples of a rank");
    r->bytes = d->rows * d->columns * sizeof(float);
    return TWILL_OK;
}

/* Set the number of threads of each rank. Returns TWILL_ERR_ARGUMENT for another word. */
static twill_status read_threads(struct twill_context *context, struct question *q,
                                 const char *word)
{
    char *end = NULL;
    q->threads = strtoull(word, &end, 10);
    return word[0] >= '0' && word[0] <= '9' && *end == '\0' && q->threads > 0 &&
                   q->threads <= TWILL_THREADS_MOST
               ? TWILL_OK
               : refuse_query(context, word, "a number of threads");
}

/* Store a word of the text that twill_context_why() gets in the question. Word 0 is a collective or
 * "factors", word 1 a size. Later words are a type, NAME=VALUE (option_read()), or a flag such as
 * "mapped". Returns TWILL_ERR_ARGUMENT for another word. */
static twill_status read_query(struct twill_context *context, struct question *q, unsigned index,
                               const char *word)
{
    struct twill_select_request *r = &q->request;
    if (index == 0) {
        r->collective = TWILL_ALLREDUCE;
        q->dense.rows = strcmp(word, "factors") == 0;
        if (q->dense.rows > 0)
            return TWILL_OK;
        for (unsigned c = 0; c < TWILL_COLLECTIVE_COUNT; c++)
            if (strcmp(twill_collective_name((enum twill_collective)c), word) == 0) {
                r->collective = (enum twill_collective)c;
                return TWILL_OK;
            }
        return refuse_query(context, word, "a collective, or factors");
    }
    if (index == 1)
        return read_size(context, q, word);
    if (option_read(q, word))
        return TWILL_OK;
    if (strncmp(word, "threads=", 8) == 0)
        return read_threads(context, q, word + 8);
    if (strcmp(word, "mapped") == 0)
        r->mapped = true;
    else if (strcmp(word, "fetched") == 0)
        r->fetched = true;
    else if (strcmp(word, "vector") == 0)
        r->vector = true;
    else if (strcmp(word, "narrow") == 0)
        r->narrow = true;
    else if (strcmp(word, "ordered") == 0)
        r->order = TWILL_ORDER_RANKS;
    else if (strcmp(word, "left") == 0)
        r->order = TWILL_ORDER_LEFT;
    else if (!is_type(word, &r->type))
        return refuse_query(context, word,
                            "a type, world=NODESxRANKS, groups=GROUPSxNODES, units=UNIT=RANKS, "
                            "topology=FILE, machine=NAME, threads=N, mapped, fetched, narrow, "
                            "vector, ordered or left");
    return TWILL_OK;
}

/* Cut off and return the next word of *rest, without quotation marks, or NULL if none is left. */
static char *cut_word(char **rest)
{
    char *word = *rest + strspn(*rest, " "), *from = word, *to = word;
    bool quoted = false;
    if (*word == '\0')
        return NULL;
    for (; *from != '\0' && (quoted || *from != ' '); from++) {
        if (*from == '"')
            quoted = !quoted;
        else
            *to++ = *from;
    }
    *rest = from + (*from != '\0');
    *to = '\0';
    return word;
}

/* Parse a question. Returns TWILL_OK, or TWILL_ERR_ARGUMENT if it is wrong or too long. */
static twill_status read_question(struct twill_context *context, struct question *q,
                                  const char *text)
{
    char *rest = q->copy;
    unsigned index = 0;
    memset(q, 0, sizeof(*q));
    if (strlen(text) >= sizeof(q->copy))
        return TWILL_FAIL(&context->error, TWILL_ERR_ARGUMENT, "why: more than %zu letters",
                          sizeof(q->copy) - 1);
    snprintf(q->copy, sizeof(q->copy), "%s", text);
    for (char *word = cut_word(&rest); word != NULL; word = cut_word(&rest))
        TWILL_TRY(&context->error, read_query(context, q, index++, word));
    if (index < 2)
        return TWILL_FAIL(&context->error, TWILL_ERR_ARGUMENT,
                          "why: a collective and a size are needed, such as \"allreduce 64K\"");
    return TWILL_OK;
}

/* Return whether a world has levels inside its nodes. */
static bool has_levels(const struct twill_world *world)
{
    for (unsigned level = 0; level < TWILL_LEVEL_NODE; level++)
        if (world->unit[level] != NULL)
            return true;
    return false;
}

/* Build the world of a question, which the caller destroys. Without world= it is a node with one
 * rank on each core of topology=. Levels in world= override groups=, units= and topology=, and
 * topology= overrides units=. Fails if one of these is malformed. */
static twill_status declare_world(struct twill_world *world, const struct question *q,
                                  struct twill_error *error)
{
    struct twill_topology *topology = NULL;
    char node[24];
    if (q->topology != NULL)
        TWILL_TRY(error, twill_topology_open(&topology, q->topology, error));
    if (q->world == NULL) /* one rank for each core */
        snprintf(node, sizeof(node), "1x%u", topology != NULL ? twill_topology_cores(topology) : 1);
    twill_status status = twill_world_declare(world, q->world != NULL ? q->world : node, error);
    if (status == TWILL_OK)
        status =
            twill_levels_declare(world, world->unit[TWILL_LEVEL_GROUP] == NULL ? q->groups : NULL,
                                 has_levels(world) || topology != NULL ? NULL : q->units, error);
    if (status == TWILL_OK && topology != NULL && !has_levels(world))
        status = twill_levels_place(world, topology, error);
    twill_topology_close(topology);
    return status;
}

/* Append a line, which ends with a newline, to selection.why. Fails only if out of memory. */
static twill_status append_line(struct twill_context *context, const char *line)
{
    size_t before = strlen(context->selection.why);
    char *grown = realloc(context->selection.why, before + strlen(line) + 1);
    if (grown == NULL)
        return TWILL_FAIL(&context->error, TWILL_ERR_MEMORY, "why: out of memory");
    memcpy(grown + before, line, strlen(line) + 1);
    context->selection.why = grown;
    return TWILL_OK;
}

/* Append two lines to selection.why, for a gradient that is only summed and for one that an
 * optimizer uses. They say whether a gradient set would gather the factors or reduce the gradient
 * of a dense layer, by the times from `pricing`. Returns TWILL_OK or the error. */
static twill_status append_dense(struct twill_context *context, struct twill_dense *dense,
                                 const struct twill_dense_pricing *pricing)
{
    const struct twill_dense_rates rates = {.million = twill_factors_time(context->machine.kernels),
                                            .reality = 1,
                                            .threads = pricing->tuning->model.threads};
    if (rates.million == 0)
        return TWILL_FAIL(&context->error, TWILL_ERR_MEMORY, "why: out of memory");
    for (int updates = 0; updates < 2; updates++) {
        char line[128];
        TWILL_TRY(&context->error,
                  twill_dense_price(dense, pricing, &rates, updates != 0, &context->error));
        snprintf(line, sizeof(line), "factors\t%s\t%llu\t%llu\t%s\n",
                 updates ? "update" : "gradient", (unsigned long long)dense->gather_ps,
                 (unsigned long long)dense->reduce_ps, dense->gathers ? "gathered" : "reduced");
        TWILL_TRY(NULL, append_line(context, line));
    }
    return TWILL_OK;
}

/* Append two lines to selection.why. They say whether a gradient set would gather the factors of
 * `dense` or reduce its gradient over the ranks of `world`, with the timings `tuning`. Sets the
 * results in *dense. Returns TWILL_OK or the error. */
static twill_status add_dense(struct twill_context *context, struct twill_dense *dense,
                              const struct twill_world *world, const struct twill_tuning *tuning)
{
    struct twill_dense_pricing pricing = {NULL, world, tuning};
    TWILL_TRY(&context->error,
              twill_chooser_create(&pricing.chooser, world, tuning, NULL, &context->error));
    twill_status status = append_dense(context, dense, &pricing);
    twill_chooser_destroy(pricing.chooser);
    return status;
}

/* If by the choice ranks of several nodes send directly to each other, and no message waits for
 * another, append a line to selection.why. It gives the most bytes of such a message. Do nothing if
 * TWILL_TUNE=segment_net is set. Returns TWILL_OK or the error. */
static twill_status append_use(struct twill_context *context, const struct twill_choice *choice,
                               const struct twill_world *world)
{
    char line[128];
    if (world->nodes == 1 || !twill_choice_exchanges(choice) ||
        twill_config_is_set(context->config, TWILL_VARIABLE_SEGMENT_NET))
        return TWILL_OK;
    snprintf(line, sizeof(line),
             "used\tmessages between nodes have up to %zu bytes, as none waits for another\n",
             twill_exchange_segment((size_t)context->config->number[TWILL_VARIABLE_SEGMENT_NET],
                                    world->size) /
                 world->size);
    return append_line(context, line);
}

/* Set the threads of each rank in the model: those of the question or of the job. Measured rates of
 * this job's threads replace the model's, unless another machine is asked about. */
static void set_threads(const struct twill_context *context, const struct question *q,
                        struct twill_machine_model *model)
{
    uint64_t threads = q->threads > 0 ? q->threads : context->job.rank_threads;
    if (threads > 1)
        model->threads = threads;
    if (q->machine == NULL && q->threads == 0)
        twill_machine_model_measure(model, twill_thread_pool_rates(context->machine.pool));
}

/* Set selection.why to the answer to a question. Returns TWILL_OK or the error. */
static twill_status answer_query(struct twill_context *context, const char *text)
{
    struct question q;
    struct twill_world declared = {.size = 0};
    const struct twill_world *world = &context->job.world;
    struct twill_tuning *other = NULL;
    struct twill_choice choice;
    TWILL_TRY(&context->error, read_question(context, &q, text));
    twill_status status = TWILL_OK;
    if (q.world != NULL || q.topology != NULL) {
        status = declare_world(&declared, &q, &context->error);
        world = &declared;
    }
    if (status == TWILL_OK && q.machine != NULL)
        status = twill_tuning_create(&other, q.machine, NULL, NULL, &context->error);
    struct twill_tuning tuned = other != NULL ? *other : *context->selection.tuning;
    set_threads(context, &q, &tuned.model);
    const struct twill_tuning *tuning = &tuned;
    if (q.dense.rows > 0)
        q.request.mapped = world->nodes == 1; /* as for the set's memory */
    if (status == TWILL_OK)
        status = twill_why(&context->selection.why, &choice, world, tuning,
                           twill_config_text(context->config, TWILL_VARIABLE_ALGORITHM), &q.request,
                           &context->error);
    if (status == TWILL_OK && q.dense.rows == 0)
        status = append_use(context, &choice, world);
    if (status == TWILL_OK && q.dense.rows > 0)
        status = add_dense(context, &q.dense, world, tuning);
    twill_tuning_destroy(other);
    twill_world_destroy(&declared);
    return status;
}

const char *twill_context_why(twill_context *context, const char *question, size_t index)
{
    if (context == NULL || question == NULL || !context->ready)
        return NULL;
    if (index == 0) {
        free(context->selection.why);
        context->selection.why = NULL;
        twill_error_clear(&context->error);
        if (answer_query(context, question) != TWILL_OK)
            return NULL;
        for (char *c = context->selection.why; *c != '\0'; c++)
            *c = *c == '\n' ? '\0' : *c;
    }
    const char *line = context->selection.why;
    for (size_t i = 0; line != NULL && i < index; i++)
        line = *line != '\0' ? line + strlen(line) + 1 : NULL;
    return line != NULL && *line != '\0' ? line : NULL;
}

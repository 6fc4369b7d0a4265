/* SPDX-License-Identifier: Apache-2.0 */
/* Call every collective in several shapes, each once to warm up and then several times while the
 * interposer counts, which must find no allocation of ours. With the argument "malloc" or "strdup"
 * the program allocates once itself, which must be found; with "late" a rank is late once. With
 * "training" it runs steps of gradient sets while the interposer counts, from the first after the
 * commit. */
#include "interposer.h"
#include "lib/twill_train.h"
#include "tests/support/collectives.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALLS_COUNTED 10
#define UNDER_WAY     3 /* requests */
#define TENSORS       6
#define ROWS          30
#define COLUMNS       70
#define STEPS         5

static const size_t sizes[] = {8, 4096, (size_t)1 << 20};

/* A collective in one of its forms, or something else. */
struct steady_shape {
    struct test_call call;
    enum { COLLECTIVE, EXCHANGED, GROUPED } kind;
};

struct steady_program {
    twill_comm *comm;
    struct test_buffers buffers[UNDER_WAY];
    twill_request *request[UNDER_WAY];
    const char *memory; /* "malloc", "twill_alloc" */
    const char *sabotage;
    allocation_begin_fn *begin;
    allocation_end_fn *end;
    unsigned long network;
    int wrong;
    bool broken; /* a call failed: later ones would only repeat it */
};

static twill_status call_group(struct steady_program *program, size_t count)
{
    twill_comm *comm = program->comm;
    int size = twill_comm_size(comm), rank = twill_comm_rank(comm);
    float *src = (float *)program->buffers[0].src, *dst = (float *)program->buffers[0].dst;
    twill_status status = twill_group_start(comm);
    if (status == TWILL_OK)
        status = twill_allreduce(comm, src, dst, 5, TWILL_F32, TWILL_SUM);
    if (status == TWILL_OK && count > 16)
        status = twill_allreduce(comm, src, dst + 8, 7, TWILL_F32, TWILL_SUM);
    if (status == TWILL_OK && count > 16)
        status = twill_send(comm, src, count / 2, TWILL_F32, (rank + 1) % size);
    if (status == TWILL_OK && count > 16)
        status = twill_recv(comm, dst + count / 2, count / 2, TWILL_F32, (rank + size - 1) % size);
    twill_status end = twill_group_end(comm);
    return status == TWILL_OK ? end : status;
}

static twill_status call_exchange(struct steady_program *program, size_t count)
{
    int size = twill_comm_size(program->comm), rank = twill_comm_rank(program->comm);
    return twill_sendrecv(program->comm, program->buffers[0].src, count, (rank + 1) % size,
                          program->buffers[0].dst, count, (rank + size - 1) % size, TWILL_F32);
}

/* Begin as many calls as are to be under way: start them, or initialise persistent ones. */
static twill_status begin_calls(struct steady_program *program, const struct test_call *call)
{
    twill_status status = TWILL_OK;
    for (int i = 0; i < UNDER_WAY && status == TWILL_OK; i++)
        status = test_call_begin(call, program->comm, &program->buffers[i], &program->request[i]);
    return status;
}

/* Nothing is allocated once as many requests have been in progress before. A persistent one has all
 * that it needs before its first start. */
static twill_status call(struct steady_program *program, const struct steady_shape *shape)
{
    twill_status status = TWILL_OK;
    if (shape->kind == EXCHANGED)
        return call_exchange(program, shape->call.count);
    if (shape->kind == GROUPED)
        return call_group(program, shape->call.count);
    if (shape->call.form == TEST_BLOCKING)
        return test_call_begin(&shape->call, program->comm, &program->buffers[0], NULL);
    if (shape->call.form == TEST_STARTED)
        status = begin_calls(program, &shape->call);
    for (int i = 0; i < UNDER_WAY && shape->call.form == TEST_PERSISTENT; i++)
        status = status == TWILL_OK ? twill_request_start(program->request[i]) : status;
    return status == TWILL_OK ? twill_wait_all(UNDER_WAY, program->request) : status;
}

/* Return whether this is the shape, a plain allreduce, at which something happens on purpose. */
static bool has_turn(const struct steady_program *program, const struct steady_shape *shape,
                     const char *sabotage)
{
    return program->sabotage != NULL && strcmp(program->sabotage, sabotage) == 0 &&
           shape->kind == COLLECTIVE && shape->call.collective == TWILL_ALLREDUCE &&
           !shape->call.in_place && shape->call.count == sizes[1] / sizeof(float);
}

/* Do what the check must detect. */
static void misbehave(const struct steady_program *program, const struct steady_shape *shape)
{
    char *memory = NULL;
    if (has_turn(program, shape, "strdup"))
        memory = strdup(program->memory);
    else if (has_turn(program, shape, "malloc"))
        memory = malloc(sizes[1]);
    if (memory != NULL)
        memory[0] = 1;
    free(memory);
}

static void report_growth(struct steady_program *program, const char *what,
                          const struct allocation_count *count)
{
    Dl_info info = {0};
    program->network += count->network;
    if (count->ours == 0)
        return;
    if (count->caller != NULL)
        (void)dladdr(count->caller, &info);
    printf("steady: rank %d: %s in %s memory: %lu allocations, the first by %s from %s+%#zx %s\n",
           twill_comm_rank(program->comm), what, program->memory, count->ours, count->first,
           info.dli_fname != NULL ? info.dli_fname : "?",
           info.dli_fname != NULL ? (size_t)((char *)count->caller - (char *)info.dli_fbase) : 0,
           info.dli_sname != NULL ? info.dli_sname : "");
    program->wrong++;
}

static void count_shape(struct steady_program *program, const struct steady_shape *shape)
{
    struct allocation_count count;
    char what[160] = "sendrecv";
    bool persists = shape->kind == COLLECTIVE && shape->call.form == TEST_PERSISTENT;
    int rank = twill_comm_rank(program->comm), size = twill_comm_size(program->comm);
    if (shape->kind == COLLECTIVE)
        test_call_name(&shape->call, what, sizeof(what));
    else if (shape->kind == GROUPED)
        snprintf(what, sizeof(what), "group");
    for (int i = 0; i < UNDER_WAY; i++)
        test_call_fill(&shape->call, rank, size, &program->buffers[i]);
    twill_status status = persists ? begin_calls(program, &shape->call) : call(program, shape);
    program->begin();
    for (int i = 0; i < CALLS_COUNTED && status == TWILL_OK; i++) {
        /* The last rank keeps the others waiting until they probe it, as may happen at any time on
         * a busy machine. */
        if (i == 0 && has_turn(program, shape, "late") && rank == size - 1)
            usleep(2500000);
        status = call(program, shape);
    }
    misbehave(program, shape);
    program->end(&count);
    for (int i = 0; i < UNDER_WAY && persists; i++)
        (void)twill_request_free(&program->request[i]);
    if (status != TWILL_OK) {
        printf("steady: %s: %s\n", what, twill_comm_message(program->comm));
        program->wrong++;
        program->broken = true;
    }
    report_growth(program, what, &count);
}

/* Every collective, vector or not, in place and not, each size in another form. */
static void count_all(struct steady_program *program, bool heap)
{
    twill_context *context = twill_comm_context(program->comm);
    size_t size = (size_t)twill_comm_size(program->comm), most = sizes[2] + 4096;
    program->memory = heap ? "twill_alloc" : "malloc";
    for (int i = 0; i < UNDER_WAY; i++)
        program->broken |= !test_buffers_get(&program->buffers[i], context, most, 0, heap);
    for (unsigned i = 0; i < (TWILL_COLLECTIVE_COUNT * 4 + 2) * 3; i++) {
        const unsigned which = i / 3, bytes = i % 3;
        struct steady_shape shape = {
            .kind = which / 4 < TWILL_COLLECTIVE_COUNT ? COLLECTIVE
                    : which % 2 == 0                   ? EXCHANGED
                                                       : GROUPED,
            .call = {.type = TWILL_F32, .op = TWILL_SUM, .count = sizes[bytes] / sizeof(float)}};
        if (shape.kind == COLLECTIVE) {
            shape.call.collective = (enum twill_collective)(which / 4);
            shape.call.vector = which % 2 != 0;
            shape.call.in_place = which / 2 % 2 != 0;
            shape.call.form = (enum test_form)((which + bytes) % TEST_FORM_COUNT);
            if (twill_collective_facts(shape.call.collective)->sharded)
                shape.call.count /= size;
        }
        if (test_call_exists(&shape.call) && !program->broken)
            count_shape(program, &shape);
    }
    for (int i = 0; i < UNDER_WAY; i++)
        test_buffers_put(&program->buffers[i], context, heap);
}

/* Return whether the interposer is loaded and detects the allocations of creating a
 * communicator. */
static int start_program(struct steady_program *program)
{
    struct allocation_count count;
    program->begin = (allocation_begin_fn *)dlsym(RTLD_DEFAULT, "allocation_begin");
    program->end = (allocation_end_fn *)dlsym(RTLD_DEFAULT, "allocation_end");
    if (program->begin == NULL || program->end == NULL) {
        fprintf(stderr, "steady: the interposer is not preloaded\n");
        return -1;
    }
    program->begin();
    twill_status status = twill_init(&program->comm);
    program->end(&count);
    if (status == TWILL_OK && count.ours > 0)
        return 0;
    fprintf(stderr, "steady: %s; %lu allocations seen at set-up\n", twill_strerror(status),
            count.ours);
    return -1;
}

/* --- gradient sets ------------------------------------------------------------------------------
 */

static twill_status fill_set(twill_gradients *set, const twill_optimizer *optimizer)
{
    const twill_tensor dense = {.name = "dense", .count = ROWS * COLUMNS, .type = TWILL_F32};
    twill_status status = twill_gradients_add_dense(set, &dense, ROWS, COLUMNS, 2, NULL);
    for (int t = 1; status == TWILL_OK && t < TENSORS; t++) {
        char name[2] = {(char)('a' + t), '\0'};
        const twill_tensor tensor = {.name = name, .count = 3000, .type = TWILL_F32};
        status = twill_gradients_add(set, &tensor, NULL);
    }
    if (status == TWILL_OK && optimizer != NULL)
        status = twill_gradients_set_optimizer(set, optimizer);
    return status == TWILL_OK ? twill_gradients_commit(set) : status;
}

static twill_status run_step(twill_gradients *set)
{
    static const float factors[2 * COLUMNS];
    twill_status status = TWILL_OK;
    for (int t = TENSORS; t-- > 1 && status == TWILL_OK;)
        status = twill_gradients_ready(set, t);
    if (status == TWILL_OK)
        status = twill_gradients_ready_factors(set, 0, factors, factors, 2);
    return status == TWILL_OK ? twill_gradients_wait_all(set) : status;
}

/* Returns the number of allocations of a set's steps, or -1 after a failure. */
static long count_steps(twill_comm *comm, int late, const twill_optimizer *optimizer)
{
    allocation_begin_fn *begin = (allocation_begin_fn *)dlsym(RTLD_DEFAULT, "allocation_begin");
    allocation_end_fn *end = (allocation_end_fn *)dlsym(RTLD_DEFAULT, "allocation_end");
    struct allocation_count count = {0};
    twill_gradients_options options;
    twill_gradients *set;
    twill_gradients_defaults(&options);
    options.bucket_bytes = 25000;
    options.factors = TWILL_FACTORS_GATHERED;
    options.late = late;
    if (begin == NULL || end == NULL || twill_gradients_create(&set, comm, &options) != TWILL_OK)
        return -1;
    twill_status status = fill_set(set, optimizer);
    begin();
    for (int step = 0; status == TWILL_OK && step < STEPS; step++)
        status = run_step(set);
    end(&count);
    if (status != TWILL_OK)
        fprintf(stderr, "steady: training: %s\n", twill_gradients_message(set));
    if (count.ours > 0)
        printf("steady: training: the first by %s\n", count.first);
    twill_gradients_destroy(set);
    return status == TWILL_OK ? (long)count.ours : -1;
}

/* Steps of gradient sets, with an optimizer and a dense layer, and one step late. */
static int train(void)
{
    twill_comm *comm;
    twill_optimizer lamb;
    twill_optimizer_defaults(&lamb, TWILL_OPTIMIZER_LAMB);
    if (twill_init(&comm) != TWILL_OK)
        return 2;
    long updating = count_steps(comm, 0, &lamb), late = count_steps(comm, 1, NULL);
    printf("steady: training: %ld allocations with an optimizer, %ld late\n", updating, late);
    twill_finalize(comm);
    return updating == 0 && late == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "training") == 0)
        return train();
    struct steady_program program = {.sabotage = argc > 1 ? argv[1] : NULL};
    if (start_program(&program) != 0)
        return 2;
    count_all(&program, false);
    count_all(&program, true);
    printf("steady: rank %d of %d on %d nodes: %d shapes allocated; libfabric %lu times\n",
           twill_comm_rank(program.comm), twill_comm_size(program.comm),
           twill_comm_nodes(program.comm), program.wrong, program.network);
    twill_finalize(program.comm);
    return program.wrong == 0 && !program.broken ? 0 : 1;
}

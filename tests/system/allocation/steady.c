/* SPDX-License-Identifier: Apache-2.0 */
/* Call every collective in several shapes, each once to warm up and then several times while the
 * interposer counts, which must find no allocation of ours. With the argument "malloc" or "strdup"
 * the program allocates once itself, which must be found; with "late" a rank is late once. With
 * "training" it runs steps of gradient sets while the interposer counts, from the first after the
 * commit. */
#include "interposer.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <twill_train.h>
#include <unistd.h>

#define CALLS_COUNTED     10
#define STEADY_MOST_BYTES ((size_t)1 << 20)
#define UNDER_WAY         3 /* requests */
#define TENSORS           6
#define ROWS              30
#define COLUMNS           70
#define STEPS             5

enum steady_call {
    ALLREDUCE,
    ALLREDUCE_IN_PLACE,
    BROADCAST,
    BARRIER,
    ALLGATHERV,
    ALLTOALL_IN_PLACE,
    STARTED,
    PERSISTENT,
    EXCHANGED,
    GROUPED,
    CALLS
};
static const char *const call_names[CALLS] = {
    "allreduce",         "allreduce in place", "broadcast",           "barrier",  "allgatherv",
    "alltoall in place", "started allreduces", "persistent requests", "sendrecv", "group"};
static const size_t sizes[] = {8, 4096, STEADY_MOST_BYTES};

struct steady_program {
    twill_comm *comm;
    float *src, *dst;
    const char *memory; /* "malloc", "twill_alloc" */
    const char *sabotage;
    allocation_begin_fn *begin;
    allocation_end_fn *end;
    unsigned long network;
    int wrong;
    bool broken; /* a call failed: later ones would only repeat it */
    twill_request *persistent[UNDER_WAY];
};

/* Nothing is allocated once as many requests have been in progress before. */
static twill_status call_started(struct steady_program *program, size_t count)
{
    twill_request *request[UNDER_WAY];
    for (int i = 0; i < UNDER_WAY; i++) {
        size_t from = count / UNDER_WAY * (size_t)i;
        twill_status status =
            twill_allreduce_start(program->comm, program->src + from, program->dst + from,
                                  count / UNDER_WAY, TWILL_F32, TWILL_SUM, &request[i]);
        if (status != TWILL_OK)
            return status;
    }
    return twill_wait_all(UNDER_WAY, request);
}

/* Initialise requests for `count` elements, if there are none; freed by the call after the last. */
static twill_status prepare_requests(struct steady_program *program, size_t count)
{
    twill_comm *comm = program->comm;
    int size = twill_comm_size(comm), rank = twill_comm_rank(comm);
    twill_status status = twill_allreduce_init(comm, program->src, program->dst, count / 2,
                                               TWILL_F32, TWILL_SUM, &program->persistent[0]);
    if (status == TWILL_OK)
        status = twill_broadcast_init(comm, program->dst, program->dst, count, TWILL_F32, 0,
                                      &program->persistent[1]);
    if (status == TWILL_OK)
        status =
            twill_sendrecv_init(comm, program->src, count, (rank + 1) % size, program->dst, count,
                                (rank + size - 1) % size, TWILL_F32, &program->persistent[2]);
    return status;
}

static twill_status call_persistent(struct steady_program *program)
{
    twill_status status = TWILL_OK;
    for (int i = 0; i < UNDER_WAY && status == TWILL_OK; i++) {
        status = twill_request_start(program->persistent[i]);
        if (status == TWILL_OK)
            status = twill_wait(&program->persistent[i]);
    }
    return status;
}

static twill_status call_vector(struct steady_program *program, size_t count)
{
    size_t counts[8] = {0};
    int size = twill_comm_size(program->comm);
    for (int r = 0; r < size; r++)
        counts[r] = count / 8 + (size_t)r % 2;
    return twill_allgatherv(program->comm, program->src, program->dst, counts, NULL, TWILL_F32);
}

static twill_status call_group(struct steady_program *program, size_t count)
{
    twill_comm *comm = program->comm;
    int size = twill_comm_size(comm), rank = twill_comm_rank(comm);
    float *half = program->dst + count / 2;
    twill_status status = twill_group_start(comm);
    if (status == TWILL_OK)
        status = twill_allreduce(comm, program->src, program->dst, 5, TWILL_F32, TWILL_SUM);
    if (status == TWILL_OK && count > 16)
        status = twill_allreduce(comm, program->src, program->dst + 8, 7, TWILL_F32, TWILL_SUM);
    if (status == TWILL_OK && count > 16)
        status = twill_send(comm, program->src, count / 2, TWILL_F32, (rank + 1) % size);
    if (status == TWILL_OK && count > 16)
        status = twill_recv(comm, half, count / 2, TWILL_F32, (rank + size - 1) % size);
    twill_status end = twill_group_end(comm);
    return status == TWILL_OK ? end : status;
}

static twill_status call(struct steady_program *program, enum steady_call which, size_t count)
{
    twill_comm *comm = program->comm;
    int size = twill_comm_size(comm), rank = twill_comm_rank(comm);
    switch (which) {
    case ALLREDUCE:
        return twill_allreduce(comm, program->src, program->dst, count, TWILL_F32, TWILL_SUM);
    case ALLREDUCE_IN_PLACE:
        return twill_allreduce(comm, program->dst, program->dst, count, TWILL_F32, TWILL_MAX);
    case BROADCAST:
        return twill_broadcast(comm, program->src, program->dst, count, TWILL_F32, 0);
    case BARRIER:
        return twill_barrier(comm);
    case ALLGATHERV:
        return call_vector(program, count);
    case ALLTOALL_IN_PLACE:
        return twill_alltoall(comm, program->dst, program->dst,
                              count / (size_t)twill_comm_size(comm), TWILL_F32);
    case STARTED:
        return call_started(program, count);
    case PERSISTENT:
        return call_persistent(program);
    case EXCHANGED:
        return twill_sendrecv(comm, program->src, count, (rank + 1) % size, program->dst, count,
                              (rank + size - 1) % size, TWILL_F32);
    default:
        return call_group(program, count);
    }
}

/* Do what the check must detect; once, at a size in the middle. */
static void misbehave(const struct steady_program *program, enum steady_call which, size_t bytes)
{
    if (program->sabotage == NULL || strcmp(program->sabotage, "late") == 0 || which != ALLREDUCE ||
        bytes != sizes[1])
        return;
    char *memory =
        strcmp(program->sabotage, "strdup") == 0 ? strdup(program->memory) : malloc(bytes);
    if (memory != NULL)
        memory[0] = 1;
    free(memory);
}

/* "late": the last rank keeps the others waiting until they probe it, as may happen at any time on
 * a busy machine. */
static void dally(const struct steady_program *program, enum steady_call which, size_t bytes,
                  int turn)
{
    if (program->sabotage != NULL && strcmp(program->sabotage, "late") == 0 && turn == 0 &&
        which == ALLREDUCE && bytes == sizes[1] &&
        twill_comm_rank(program->comm) == twill_comm_size(program->comm) - 1)
        usleep(2500000);
}

static void report_growth(struct steady_program *program, const char *what, size_t bytes,
                          const struct allocation_count *count)
{
    Dl_info info = {0};
    program->network += count->network;
    if (count->ours == 0)
        return;
    if (count->caller != NULL)
        (void)dladdr(count->caller, &info);
    printf("steady: rank %d: %s of %zu bytes in %s memory: %lu allocations, the first by %s from "
           "%s+%#zx %s\n",
           twill_comm_rank(program->comm), what, bytes, program->memory, count->ours, count->first,
           info.dli_fname != NULL ? info.dli_fname : "?",
           info.dli_fname != NULL ? (size_t)((char *)count->caller - (char *)info.dli_fbase) : 0,
           info.dli_sname != NULL ? info.dli_sname : "");
    program->wrong++;
}

static void count_calls(struct steady_program *program, enum steady_call which, size_t bytes)
{
    struct allocation_count count;
    size_t elements = bytes / sizeof(float);
    /* A persistent request has all it needs before its first start. */
    twill_status status =
        which == PERSISTENT ? prepare_requests(program, elements) : call(program, which, elements);
    program->begin();
    for (int i = 0; i < CALLS_COUNTED && status == TWILL_OK; i++) {
        dally(program, which, bytes, i);
        status = call(program, which, elements);
    }
    misbehave(program, which, bytes);
    program->end(&count);
    for (int i = 0; i < UNDER_WAY && which == PERSISTENT; i++)
        (void)twill_request_free(&program->persistent[i]);
    if (status != TWILL_OK) {
        printf("steady: %s: %s\n", call_names[which], twill_comm_message(program->comm));
        program->wrong++;
        program->broken = true;
    }
    report_growth(program, call_names[which], bytes, &count);
}

static void count_all_calls(struct steady_program *program, float *src, float *dst,
                            const char *memory)
{
    program->src = src;
    program->dst = dst;
    program->memory = memory;
    for (size_t i = 0; i < STEADY_MOST_BYTES / sizeof(float); i++)
        src[i] = dst[i] = 1;
    for (int which = 0; which < CALLS; which++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]) && !program->broken; s++)
            count_calls(program, (enum steady_call)which, sizes[s]);
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
    void *src, *dst;
    if (start_program(&program) != 0)
        return 2;
    twill_context *context = twill_comm_context(program.comm);
    float *plain = malloc(2 * STEADY_MOST_BYTES);
    if (plain == NULL || twill_alloc(context, &src, STEADY_MOST_BYTES) != TWILL_OK ||
        twill_alloc(context, &dst, STEADY_MOST_BYTES) != TWILL_OK) {
        fprintf(stderr, "steady: no memory: %s\n", twill_context_message(context));
        return 2;
    }
    count_all_calls(&program, plain, plain + STEADY_MOST_BYTES / sizeof(float), "malloc");
    count_all_calls(&program, src, dst, "twill_alloc");
    printf("steady: rank %d of %d on %d nodes: %d shapes allocated; libfabric %lu times\n",
           twill_comm_rank(program.comm), twill_comm_size(program.comm),
           twill_comm_nodes(program.comm), program.wrong, program.network);
    free(plain);
    (void)twill_free(context, src);
    (void)twill_free(context, dst);
    twill_finalize(program.comm);
    return program.wrong == 0 ? 0 : 1;
}

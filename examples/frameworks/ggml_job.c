/* SPDX-License-Identifier: Apache-2.0 */
/* Test ggml_twill.c with ggml itself, on any number of processes: twillrun -n 3 ./ggml_job. Each
 * has two backends, as llama.cpp's --split-mode tensor. Then a graph sums up in its threads. */
#include "ggml_twill.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <twill.h>

#define THREADS 2
#define SUMS    96

static int rank, ranks;

static void want(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "rank %d: %s: wrong sum\n", rank, what);
    exit(1);
}

static float value(const struct ggml_tensor *tensor, int64_t i)
{
    if (tensor->type == GGML_TYPE_F32)
        return ((const float *)tensor->data)[i];
    if (tensor->type == GGML_TYPE_F16)
        return ggml_fp16_to_fp32(((const ggml_fp16_t *)tensor->data)[i]);
    if (tensor->type == GGML_TYPE_BF16)
        return ggml_bf16_to_fp32(((const ggml_bf16_t *)tensor->data)[i]);
    return (float)((const int32_t *)tensor->data)[i];
}

static struct ggml_tensor *filled(struct ggml_context *ctx, enum ggml_type type, float with)
{
    struct ggml_tensor *tensor = ggml_new_tensor_2d(ctx, type, 700, 4);
    for (int64_t i = 0; i < 2800; i++) {
        if (type == GGML_TYPE_F32)
            ((float *)tensor->data)[i] = with;
        else if (type == GGML_TYPE_F16)
            ((ggml_fp16_t *)tensor->data)[i] = ggml_fp32_to_fp16(with);
        else if (type == GGML_TYPE_BF16)
            ((ggml_bf16_t *)tensor->data)[i] = ggml_fp32_to_bf16(with);
        else
            ((int32_t *)tensor->data)[i] = (int32_t)with;
    }
    tensor->flags |= GGML_TENSOR_FLAG_COMPUTE;
    return tensor;
}

/* Sums as llama.cpp calls them, over two tensors of each process. */
static void test_backends(struct ggml_context *ctx, void *comm)
{
    float all = (float)(ranks * (ranks + 1)) / 2;
    const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16};
    for (int t = 0; t < 3; t++) {
        struct ggml_tensor *pair[2] = {filled(ctx, types[t], (float)rank + 1),
                                       filled(ctx, types[t], 2)};
        want(twill_ggml_comm_allreduce_tensor(comm, pair), "call");
        for (int64_t i = 0; i < 2800; i += 699)
            want(value(pair[0], i) == all + 2 * (float)ranks &&
                     value(pair[1], i) == all + 2 * (float)ranks,
                 ggml_type_name(types[t]));
    }
    struct ggml_tensor *pair[2] = {filled(ctx, GGML_TYPE_F32, 1), filled(ctx, GGML_TYPE_F32, 50)};
    pair[1]->flags &= ~GGML_TENSOR_FLAG_COMPUTE;
    want(twill_ggml_comm_allreduce_tensor(comm, pair) && value(pair[1], 7) == (float)ranks,
         "a tensor without a value");
    struct ggml_tensor *base = filled(ctx, GGML_TYPE_F32, 1),
                       *other = filled(ctx, GGML_TYPE_F32, 1);
    struct ggml_tensor *view[2] = {ggml_view_2d(ctx, base, 10, 4, base->nb[1], 40),
                                   ggml_view_2d(ctx, other, 10, 4, other->nb[1], 40)};
    view[0]->flags |= GGML_TENSOR_FLAG_COMPUTE;
    view[1]->flags |= GGML_TENSOR_FLAG_COMPUTE;
    want(twill_ggml_comm_allreduce_tensor(comm, view) && value(base, 710) == 2 * (float)ranks &&
             value(base, 709) == 1 && value(base, 720) == 1,
         "rows with strides");
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* A graph of products whose parts all processes add up. */
static void test_graph(struct ggml_context *ctx, void *comm)
{
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 4096, 4);
    ggml_set_f32(x, (float)rank + 1);
    struct ggml_tensor *y = x;
    for (int i = 0; i < SUMS; i++) {
        y = ggml_scale(ctx, y, i == 0 ? 1 : 1 / (float)ranks);
        y = ggml_map_custom1_inplace(ctx, y, twill_ggml_sum, THREADS, comm);
    }
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, y);
    double least = 1;
    for (int round = 0; round < 20; round++) {
        double begin = now();
        want(ggml_graph_compute_with_ctx(ctx, graph, THREADS) == GGML_STATUS_SUCCESS, "graph");
        double taken = now() - begin;
        least = taken < least ? taken : least;
        want(value(y, 0) == (float)(ranks * (ranks + 1)) / 2 && value(y, 16383) == value(y, 0),
             "sum in a graph");
    }
    if (rank == 0)
        printf("%d sums of 64 KiB in a graph of %d threads: %.2f ms\n", SUMS, THREADS, least * 1e3);
}

int main(void)
{
    struct ggml_init_params params = {.mem_size = 64 << 20};
    struct ggml_context *ctx = ggml_init(params);
    ggml_backend_t backends[2] = {ggml_backend_cpu_init(), ggml_backend_cpu_init()};
    const char *named = getenv("RANK"), *all = getenv("WORLD_SIZE");
    rank = named == NULL ? 0 : atoi(named);
    ranks = all == NULL ? 1 : atoi(all);
    void *comm = twill_ggml_comm_init(backends, 2);
    want(comm != NULL, "set-up");
    test_backends(ctx, comm);
    test_graph(ctx, comm);
    twill_ggml_comm_free(comm);
    ggml_backend_free(backends[0]);
    ggml_backend_free(backends[1]);
    ggml_free(ctx);
    puts("ok");
    return 0;
}

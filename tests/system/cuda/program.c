/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of two or more ranks on memory of a double of the CUDA driver (no GPU). Usage:
 * program [MODE]. values: all kinds of memory; host: host memory only, the double unused; messages:
 * to the next rank and to itself; overlap: a wrong argument; fail: calls until one fails, which is
 * reported; touch: read device memory, which must kill. */
#include "tests/doubles/cuda/cuda_double.h"
#include "twill.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUDA_MOST 300000u /* floats: many segments */
#define SPACE     (CUDA_MOST * sizeof(float))

enum memory_place { HOST, CUDA_SHARED, CUDA_DEVICE, MANAGED, PLACES };
static const char *const names[PLACES] = {"host", "twill_alloc", "device", "managed"};

struct buffers {
    twill_comm *comm;
    int rank, size;
    float *at[2][PLACES];
};

static float *inside(const struct buffers *b, enum memory_place place, int which)
{
    float *at = b->at[which][place];
    return place == CUDA_DEVICE ? double_inside(at) : at;
}

static float rank_input(int rank, size_t i)
{
    return (float)(rank + 1) * (float)(i % 1000 + 1);
}

static float sum_inputs(int size, size_t i)
{
    return (float)(size * (size + 1) / 2) * (float)(i % 1000 + 1);
}

static void fill_input(const struct buffers *b, float *at, size_t count)
{
    for (size_t i = 0; i < count; i++)
        at[i] = rank_input(b->rank, i);
}

static bool value_is_wrong(const struct buffers *b, const char *what, size_t i, float got,
                           float expected)
{
    if (got == expected)
        return false;
    printf("rank %d: %s: element %zu is %g, not %g\n", b->rank, what, i, (double)got,
           (double)expected);
    return true;
}

static int check_output(const struct buffers *b, twill_status status, const char *what,
                        const float *dst, const float *src, size_t count, int root)
{
    if (status != TWILL_OK || double_contexts() != 0) {
        printf("rank %d: %s: %s: %s; %d contexts left current\n", b->rank, what,
               twill_strerror(status), twill_comm_message(b->comm), double_contexts());
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        if (value_is_wrong(b, what, i, dst[i],
                           root < 0 ? sum_inputs(b->size, i) : rank_input(root, i)) ||
            (src != dst && value_is_wrong(b, "src has changed", i, src[i], rank_input(b->rank, i))))
            return 1;
    }
    return 0;
}

static twill_status broadcast_buffers(const struct buffers *b, bool in_place, float *src,
                                      float *dst, size_t count, int root)
{
    bool is_root = b->rank == root;
    return twill_broadcast(b->comm, is_root ? src : NULL, is_root && in_place ? NULL : dst, count,
                           TWILL_F32, root);
}

/* A root's data is only read, and the others' buffers are only written. */
static int try_copies(const struct buffers *b)
{
    bool is_root = b->rank == 0;
    float *at = b->at[0][CUDA_DEVICE];
    int to_host = double_copies(0), to_device = double_copies(1);
    twill_status status = broadcast_buffers(b, true, at, at, 100, 0);
    to_host = double_copies(0) - to_host;
    to_device = double_copies(1) - to_device;
    if (status == TWILL_OK && to_host == is_root && to_device == !is_root)
        return 0;
    printf("rank %d: %d copies to the host, %d to the device\n", b->rank, to_host, to_device);
    return 1;
}

/* One kind of memory for src, one for dst; exchanged on odd ranks if `mixed`. */
static int try_places(const struct buffers *b, enum memory_place from, enum memory_place to,
                      bool mixed, bool in_place, size_t count)
{
    bool turn = mixed && b->rank % 2 == 1;
    enum memory_place s = turn ? to : from, d = turn ? from : to;
    int si = 0, di = in_place ? 0 : 1, root = b->size - 1;
    if (in_place)
        d = s;
    char what[100];
    snprintf(what, sizeof(what), "%s to %s%s, %zu floats", names[s], names[d],
             in_place ? ", in place" : "", count);
    float *src = b->at[si][s], *dst = b->at[di][d];
    for (int again = 0; again < 2; again++) { /* the second call uses the cached plan */
        fill_input(b, inside(b, s, si), count);
        if (!in_place)
            memset(inside(b, d, di), 0xee, SPACE);
        twill_status status = twill_allreduce(b->comm, src, dst, count, TWILL_F32, TWILL_SUM);
        if (check_output(b, status, what, inside(b, d, di), inside(b, s, si), count, -1))
            return 1;
    }
    fill_input(b, inside(b, s, si), count);
    twill_status status = broadcast_buffers(b, in_place, src, dst, count, root);
    const float *kept = in_place ? inside(b, d, di) : inside(b, s, si);
    return check_output(b, status, what, inside(b, d, di), kept, count, root);
}

static int try_all(const struct buffers *b, enum memory_place most)
{
    static const size_t counts[] = {0, 1, 5, 1000, CUDA_MOST};
    int failures = 0, tried = 0;
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
        for (enum memory_place from = HOST; from < most; from++)
            for (enum memory_place to = HOST; to < most; to++)
                for (int how = 0; how < 4 && failures == 0; how++, tried++)
                    failures += try_places(b, from, to, how & 1, how & 2, counts[c]);
    if (failures == 0)
        printf("rank %d: %d combinations right\n", b->rank, tried);
    return failures;
}

/* To the next rank, from the previous one, in each form of a call. */
enum cuda_form { BLOCKING, CUDA_STARTED, CUDA_PERSISTENT, GROUPED, FORMS };

static twill_status pass_on_call(const struct buffers *b, enum cuda_form form, float *src,
                                 float *dst, size_t count)
{
    int to = (b->rank + 1) % b->size, from = (b->rank + b->size - 1) % b->size;
    twill_request *request[2] = {NULL};
    twill_status status;
    switch (form) {
    case BLOCKING:
        return twill_sendrecv(b->comm, src, count, to, dst, count, from, TWILL_F32);
    case CUDA_STARTED:
        status = twill_recv_start(b->comm, dst, count, TWILL_F32, from, &request[0]);
        if (status == TWILL_OK)
            status = twill_send(b->comm, src, count, TWILL_F32, to);
        return status == TWILL_OK ? twill_wait(&request[0]) : status;
    case CUDA_PERSISTENT:
        status =
            twill_sendrecv_init(b->comm, src, count, to, dst, count, from, TWILL_F32, &request[0]);
        for (int i = 0; i < 2 && status == TWILL_OK; i++) {
            status = twill_request_start(request[0]);
            status = status == TWILL_OK ? twill_wait_all(1, request) : status;
        }
        return status == TWILL_OK ? twill_request_free(&request[0]) : status;
    default:
        status = twill_group_start(b->comm);
        status = status == TWILL_OK ? twill_send(b->comm, src, count, TWILL_F32, to) : status;
        status = status == TWILL_OK ? twill_recv(b->comm, dst, count, TWILL_F32, from) : status;
        return status == TWILL_OK ? twill_group_end(b->comm) : status;
    }
}

static int try_messages(const struct buffers *b)
{
    static const size_t counts[] = {0, 1, 1000, CUDA_MOST};
    int from = (b->rank + b->size - 1) % b->size, tried = 0;
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (int how = 0; how < (int)FORMS * 4; how++, tried++) {
            enum memory_place s = how & 1 ? CUDA_DEVICE : HOST,
                              d = how & 2 ? CUDA_DEVICE : CUDA_SHARED;
            fill_input(b, inside(b, s, 0), counts[c]);
            memset(inside(b, d, 1), 0xee, SPACE);
            twill_status status =
                pass_on_call(b, (enum cuda_form)(how / 4), b->at[0][s], b->at[1][d], counts[c]);
            if (check_output(b, status, "message", inside(b, d, 1), inside(b, d, 1), counts[c],
                             from))
                return 1;
        }
    }
    twill_context *context = twill_comm_context(b->comm);
    if (twill_register(context, b->at[0][CUDA_DEVICE], SPACE) != TWILL_ERR_ARGUMENT)
        return 1;
    printf("rank %d: %d messages right; %s\n", b->rank, tried, twill_context_message(context));
    return 0;
}

static int try_overlap(const struct buffers *b)
{
    float *at = b->at[0][CUDA_DEVICE];
    twill_status status = twill_allreduce(b->comm, at, at + 1, 8, TWILL_F32, TWILL_SUM);
    printf("rank %d: overlap: %s\n", b->rank, twill_comm_message(b->comm));
    return status != TWILL_ERR_ARGUMENT;
}

/* The second call shows whether ranks had completed the first one. */
static int try_failing(const struct buffers *b)
{
    twill_status status = TWILL_OK;
    float *at = b->at[0][CUDA_DEVICE];
    for (int i = 0; i < 2 && status == TWILL_OK; i++)
        status = twill_allreduce(b->comm, at, at, 1000, TWILL_F32, TWILL_SUM);
    printf("rank %d: status %d: %s\n", b->rank, (int)status, twill_comm_message(b->comm));
    return status == TWILL_OK || double_contexts() != 0;
}

static int run_mode(struct buffers *b, const char *mode)
{
    if (strcmp(mode, "host") == 0)
        return try_all(b, CUDA_DEVICE);
    if (strcmp(mode, "fail") == 0)
        return try_failing(b);
    if (strcmp(mode, "messages") == 0)
        return try_messages(b);
    if (strcmp(mode, "overlap") == 0)
        return try_overlap(b);
    return try_all(b, PLACES) || try_copies(b);
}

static bool allocate_device(struct buffers *b, bool device)
{
    for (size_t i = 0; i < 2; i++) {
        void *shared = NULL;
        b->at[i][HOST] = malloc(SPACE);
        if (b->at[i][HOST] == NULL ||
            twill_alloc(twill_comm_context(b->comm), &shared, SPACE) != TWILL_OK)
            return false;
        b->at[i][CUDA_SHARED] = shared;
        if (device) {
            b->at[i][CUDA_DEVICE] = double_memory(i * SPACE);
            b->at[i][MANAGED] = (float *)double_managed() + i * CUDA_MOST;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "values";
    bool device = strcmp(mode, "host") != 0;
    struct buffers b = {0};
    if (twill_init(&b.comm) != TWILL_OK)
        return 1;
    signal(SIGSEGV, SIG_DFL); /* providers of libfabric install a handler that writes a file */
    b.rank = twill_comm_rank(b.comm);
    b.size = twill_comm_size(b.comm);
    if ((device && double_start() != 0) || !allocate_device(&b, device))
        return 1;
    if (strcmp(mode, "touch") == 0) {
        puts("reading");
        fflush(stdout);
        return *(volatile float *)b.at[0][CUDA_DEVICE] > 1; /* 0 if it were ordinary memory */
    }
    int failed = run_mode(&b, mode);
    for (int i = 0; i < 2; i++) {
        free(b.at[i][HOST]);
        (void)twill_free(twill_comm_context(b.comm), b.at[i][CUDA_SHARED]);
    }
    twill_finalize(b.comm);
    return failed != 0;
}

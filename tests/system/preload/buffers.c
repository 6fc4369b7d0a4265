/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that uses malloc only: collectives on malloc'd buffers, every value checked. Prints how
 * many bytes went through bounce memory: none if all ranks' malloc is libtwill-heap.so's. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <twill.h>

static const size_t counts[] = {16384, 50000, 1 << 18, 3 << 19};

struct program {
    twill_comm *comm;
    int rank, size;
    long wrong;
};

static int32_t buffer_value(int rank, size_t i)
{
    return (int32_t)(i * 7 + (size_t)rank * 1000003);
}

static int32_t sum_buffer(int size, size_t i)
{
    uint32_t all = 0;
    for (int r = 0; r < size; r++)
        all += (uint32_t)buffer_value(r, i);
    return (int32_t)all;
}

static void need(const struct program *program, twill_status status)
{
    if (status == TWILL_OK)
        return;
    fprintf(stderr, "rank %d: %s\n", program->rank, twill_comm_message(program->comm));
    exit(1);
}

static int32_t *buffer(size_t count, int rank)
{
    int32_t *memory = malloc(count * sizeof(*memory));
    if (memory == NULL)
        exit(1);
    for (size_t i = 0; i < count; i++)
        memory[i] = rank < 0 ? -1 : buffer_value(rank, i);
    return memory;
}

static void reduce_program(struct program *program, size_t count)
{
    int32_t *src = buffer(count, program->rank), *dst = buffer(count, -1);
    need(program, twill_allreduce(program->comm, src, dst, count, TWILL_I32, TWILL_SUM));
    for (size_t i = 0; i < count; i++)
        program->wrong +=
            dst[i] != sum_buffer(program->size, i) || src[i] != buffer_value(program->rank, i);
    need(program, twill_allreduce(program->comm, src, src, count, TWILL_I32, TWILL_SUM));
    for (size_t i = 0; i < count; i++)
        program->wrong += src[i] != sum_buffer(program->size, i);
    free(src);
    free(dst);
}

static void gather_program(struct program *program, size_t count)
{
    int32_t *src = buffer(count, program->rank);
    int32_t *dst = buffer(count * (size_t)program->size, -1);
    need(program, twill_allgather(program->comm, src, dst, count, TWILL_I32));
    for (int r = 0; r < program->size; r++)
        for (size_t i = 0; i < count; i++)
            program->wrong += dst[(size_t)r * count + i] != buffer_value(r, i);
    free(src);
    free(dst);
}

static void scatter_program(struct program *program, size_t count)
{
    size_t mine = count * (size_t)program->rank;
    int32_t *src = buffer(count * (size_t)program->size, program->rank);
    int32_t *dst = buffer(count, -1);
    need(program, twill_reduce_scatter(program->comm, src, dst, count, TWILL_I32, TWILL_SUM));
    for (size_t i = 0; i < count; i++)
        program->wrong += dst[i] != sum_buffer(program->size, mine + i);
    free(src);
    free(dst);
}

static void broadcast_program(struct program *program, size_t count)
{
    int root = program->size - 1;
    int32_t *memory = buffer(count, program->rank);
    need(program, twill_broadcast(program->comm, memory, memory, count, TWILL_I32, root));
    for (size_t i = 0; i < count; i++)
        program->wrong += memory[i] != buffer_value(root, i);
    free(memory);
}

int main(void)
{
    twill_context *context;
    twill_counters counters;
    struct program program = {0};
    if (twill_context_create(&context, NULL, NULL) != TWILL_OK ||
        twill_comm_create(&program.comm, context) != TWILL_OK) {
        fprintf(stderr, "%s\n", twill_context_message(context));
        return 1;
    }
    program.rank = twill_comm_rank(program.comm);
    program.size = twill_comm_size(program.comm);
    for (int round = 0; round < 5; round++)
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            reduce_program(&program, counts[i]);
            gather_program(&program, counts[i]);
            scatter_program(&program, counts[i]);
            broadcast_program(&program, counts[i]);
        }
    need(&program, twill_comm_counters(program.comm, &counters));
    need(&program, twill_barrier(program.comm));
    void *placed;
    if (twill_alloc(context, &placed, 1 << 20) != TWILL_OK ||
        twill_free(context, placed) != TWILL_OK)
        program.wrong++;
    if (twill_free(context, &program) == TWILL_OK)
        program.wrong++;
    printf("rank %d: %ld wrong, %s\n", program.rank, program.wrong,
           counters.bytes_copied == 0 ? "nothing staged" : "staged");
    twill_comm_destroy(program.comm);
    twill_context_destroy(context);
    return program.wrong != 0;
}

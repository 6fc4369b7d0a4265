/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/system/cuda/device_buffers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPACE ((CUDA_MOST + CUDA_BEYOND) * sizeof(float))

static const char *const names[PLACES] = {"host",          "twill_alloc", "device", "managed",
                                          "other context", "pool",        "pinned"};

static const enum gpu_memory kinds[PLACES] = {[CUDA_DEVICE] = GPU_DEVICE,
                                              [MANAGED] = GPU_MANAGED,
                                              [CUDA_OTHER] = GPU_OTHER,
                                              [POOL] = GPU_POOL,
                                              [PINNED] = GPU_PINNED};

const char *cuda_place_name(enum memory_place place)
{
    return names[place];
}

static bool is_on_device(enum memory_place place)
{
    return place == CUDA_DEVICE || place == CUDA_OTHER || place == POOL;
}

bool cuda_allocate_buffers(struct cuda_buffers *b, bool device)
{
    b->scratch = malloc(SPACE);
    for (size_t i = 0; i < 2; i++) {
        void *shared = NULL;
        b->at[i][HOST] = malloc(SPACE);
        if (b->scratch == NULL || b->at[i][HOST] == NULL ||
            twill_alloc(twill_comm_context(b->comm), &shared, SPACE) != TWILL_OK)
            return false;
        b->at[i][CUDA_SHARED] = shared;
        for (unsigned place = CUDA_DEVICE; place < PLACES && device; place++) {
            b->at[i][place] = gpu_alloc(kinds[place], SPACE);
            if (b->at[i][place] == NULL)
                return false;
        }
    }
    return true;
}

void cuda_free_buffers(struct cuda_buffers *b, bool device)
{
    for (int i = 0; i < 2; i++) {
        for (unsigned place = CUDA_DEVICE; place < PLACES && device; place++)
            (void)gpu_free(kinds[place], b->at[i][place]);
        free(b->at[i][HOST]);
        (void)twill_free(twill_comm_context(b->comm), b->at[i][CUDA_SHARED]);
    }
    free(b->scratch);
}

/* --- contents --------------------------------------------------------------------------------- */

/* Write a buffer's first floats, from host memory. */
static void write_floats(const struct cuda_buffers *b, enum memory_place place, int which,
                         const float *from, size_t count)
{
    float *to = b->at[which][place];
    if (!is_on_device(place))
        memcpy(to, from, count * sizeof(float));
    else if (count > 0 && gpu_write(kinds[place], to, from, count * sizeof(float)) != 0)
        exit(1);
}

const float *cuda_get(const struct cuda_buffers *b, enum memory_place place, int which,
                      size_t count)
{
    if (!is_on_device(place))
        return b->at[which][place];
    if (gpu_read(kinds[place], b->scratch, b->at[which][place], count * sizeof(float)) != 0)
        exit(1);
    return b->scratch;
}

static float rank_input(int rank, size_t i)
{
    return (float)(rank + 1) * (float)(i % 1000 + 1);
}

static float sum_inputs(int size, size_t i)
{
    return (float)(size * (size + 1) / 2) * (float)(i % 1000 + 1);
}

void cuda_fill_input(const struct cuda_buffers *b, enum memory_place place, int which, size_t count)
{
    for (size_t i = 0; i < count + CUDA_BEYOND; i++)
        b->scratch[i] = i < count ? rank_input(b->rank, i) : -1;
    write_floats(b, place, which, b->scratch, count + CUDA_BEYOND);
}

void cuda_fill_poison(const struct cuda_buffers *b, enum memory_place place, int which,
                      size_t count)
{
    for (size_t i = 0; i < count + CUDA_BEYOND; i++)
        b->scratch[i] = -1;
    write_floats(b, place, which, b->scratch, count + CUDA_BEYOND);
}

bool cuda_value_is_wrong(const struct cuda_buffers *b, const char *what, size_t i, float got,
                         float expected)
{
    if (got == expected)
        return false;
    printf("rank %d: %s: element %zu is %g, not %g\n", b->rank, what, i, (double)got,
           (double)expected);
    return true;
}

int cuda_check_values(const struct cuda_buffers *b, const char *what, const float *at, size_t count,
                      int root)
{
    for (size_t i = 0; i < count + CUDA_BEYOND; i++) {
        float expected = root < 0 ? sum_inputs(b->size, i) : rank_input(root, i);
        if (cuda_value_is_wrong(b, what, i, at[i], i < count ? expected : -1))
            return 1;
    }
    return 0;
}

int cuda_check_status(const struct cuda_buffers *b, twill_status status, const char *what)
{
    if (status == TWILL_OK)
        return 0;
    printf("rank %d: %s: %s: %s\n", b->rank, what, twill_strerror(status),
           twill_comm_message(b->comm));
    return 1;
}

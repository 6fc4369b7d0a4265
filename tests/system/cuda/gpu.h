/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU as a program sees it: the CUDA driver's library, opened at run time, or its double. */
#ifndef TWILL_TEST_GPU_H
#define TWILL_TEST_GPU_H

#include <stddef.h>

enum gpu_memory {
    GPU_DEVICE,  /* of the primary context */
    GPU_OTHER,   /* of a second context */
    GPU_POOL,    /* of the device's pool, in no context */
    GPU_MANAGED, /* which the CPU may touch */
    GPU_PINNED,  /* of the host */
    GPU_MEMORIES
};

/* Open the library that TEST_CUDA_LIBRARY names (libcuda.so.1), initialise it, and make the first
 * device's contexts. Afterwards no context is current. Returns 0, or prints why not. */
int gpu_start(void);
/* Returns NULL, with a message, if there is none. */
void *gpu_alloc(enum gpu_memory kind, size_t bytes);
int gpu_free(enum gpu_memory kind, void *memory);
/* Copy to and from memory of a kind. A result below 0 is a failure, which has been printed. */
int gpu_read(enum gpu_memory kind, void *host, const void *memory, size_t bytes);
int gpu_write(enum gpu_memory kind, void *memory, const void *host, size_t bytes);
/* The thread's current context, or NULL; make the primary one current, or none. */
void *gpu_current(void);
void gpu_enter(void);
void gpu_leave(void);
/* Queue `rounds` fills of device memory with a word, which end with `word`: on the default stream,
 * or, with `apart`, on a stream that does not wait for that. gpu_wait() waits for the latter. */
int gpu_queue_fill(void *memory, unsigned word, size_t words, int rounds, int apart);
int gpu_wait(void);
/* Read on the stream that does not wait for the default one. */
int gpu_read_apart(void *pinned, const void *memory, size_t bytes);
/* Let the double fail as it was asked to; gpu_start() ends that. */
void gpu_fail_as_asked(void);
/* Number of copies so far, to the device or to the host; -1 if they are not counted. */
int gpu_copies(int to_device);
/* Number of ranges that are pinned by cuMemHostRegister(); -1 if they are not counted. */
int gpu_pinned(void);

#endif

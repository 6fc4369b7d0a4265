/* SPDX-License-Identifier: Apache-2.0 */
/* A context: what this process knows before it can talk. Everything hangs from it. */
#ifndef TWILL_CONTEXT_H
#define TWILL_CONTEXT_H

#include "algorithms/tuning.h"
#include "algorithms/world.h"
#include "fabric/boot.h"
#include "fabric/segment.h"
#include "fabric/watch.h"
#include "kernels/kernels.h"
#include "lib/config.h"
#include "lib/heap.h"
#include "numa/memory.h"
#include "numa/topology.h"

#define TWILL_DESCRIBE_LINES 48
#define TWILL_DESCRIBE_BYTES 256

struct twill_context {
    struct twill_error error;
    struct twill_log log;
    struct twill_config config;
    bool ready; /* creation succeeded */
    struct twill_boot *boot;
    struct twill_topology *topology;
    const struct twill_kernels *kernels;
    struct twill_device *device; /* NULL without TWILL_WITH_CUDA or a driver */
    struct twill_world world;
    uint32_t *label;             /* [size] node labels, as agreed */
    bool crowded;                /* ranks share cores: waits must yield early */
    struct twill_watch *watch;   /* NULL on one node */
    struct twill_tuning *tuning; /* what algorithms are chosen by */
    char *why;                   /* the answer of twill_context_why() */
    struct twill_memory *user_memory, *library_memory;
    struct twill_memory_policy user_policy, library_policy;
    struct twill_heap heap;
    uint32_t comms;             /* created so far */
    struct twill_comm *open;    /* communicators */
    const uint64_t *fork_guard; /* the kernel zeroes it in a child */
    bool previewed;
    unsigned lines;
    char line[TWILL_DESCRIBE_LINES][TWILL_DESCRIBE_BYTES];
    char variable_line[1024], live_line[64];
};

/* Add a line to what twill_context_describe() says. */
void twill_context_note(struct twill_context *context, const char *format, ...) TWILL_PRINTF(2, 3);
/* Add what would carry messages between nodes, where there is one node. lib/comm.c */
void twill_context_preview(struct twill_context *context);

/* lib/tuning.c: what algorithms are chosen by. */
twill_status twill_context_open_tuning(struct twill_context *context);

/* Allocations so far that did not get the memory asked for. */
uint64_t twill_context_fallbacks(const struct twill_context *context);

#define TWILL_FORK_GUARD 0x7477696c6c212121u

static inline bool twill_context_is_forked(const struct twill_context *context)
{
    return *context->fork_guard != TWILL_FORK_GUARD;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of options.threads, one per shard, each on its own PU if there is one for it. */
#include "lib/server/shard/shard.h"

#include "lib/base/thread_start.h"
#include "lib/wait/wait.h"
#include "numa/memory.h"

#include <string.h>

int twill_shard_numa_node(const struct twill_topology *topology, int pu)
{
    const struct twill_machine *machine = twill_topology_machine(topology);
    struct twill_place place;
    if (pu < 0 || machine->numa_nodes < 2)
        return -1;
    twill_topology_place_pu(topology, (unsigned)pu, &place);
    return place.numa >= 0 && place.numa < TWILL_MAX_NUMA ? (int)machine->numa[place.numa].os_index
                                                          : -1;
}

void twill_shard_threads_place(struct twill_server *server)
{
    for (uint32_t t = 0; t < server->roles.threads; t++) {
        struct twill_shard *shard = &server->shard[t];
        bool own = false;
        shard->thread.pu =
            server->options.threads == 0
                ? -1
                : twill_thread_choose_cpu(server->process.context, server->roles.threads, t, &own);
        shard->thread.numa_node = twill_shard_numa_node(server->process.topology, shard->thread.pu);
    }
}

/* Return whether memory of the shard is to be in its thread's NUMA node. */
static bool is_placed(const struct twill_shard *shard, const void *memory)
{
    return memory != NULL && shard->thread.numa_node >= 0 && !shard->server->process.places_memory;
}

void twill_shard_place_memory(const struct twill_shard *shard, void *memory, size_t bytes)
{
    if (is_placed(shard, memory)) /* if this fails, memory stays where it is */
        (void)twill_memory_near(memory, bytes, shard->thread.numa_node);
}

void twill_shard_unplace_memory(const struct twill_shard *shard, void *memory, size_t bytes)
{
    if (is_placed(shard, memory))
        (void)twill_memory_near(memory, bytes, -1);
}

/* Take the orders of shard `of`, unless another thread has it. Returns whether something moved. */
static int serve(void *of)
{
    struct twill_shard *shard = of;
    if (!twill_shard_try_lock(shard))
        return 0;
    bool moved = twill_shard_poll(shard) > 0;
    twill_shard_unlock(shard);
    if (moved)
        atomic_fetch_add_explicit(&shard->server->moved, 1, memory_order_relaxed);
    return moved;
}

/* Return whether the shard's thread has been asked to end. */
static bool is_stopped(const void *awaited)
{
    const struct twill_shard *shard = awaited;
    return atomic_load_explicit(&shard->thread.stop, memory_order_relaxed);
}

/* The blocked_on() of the thread's wait, with the shard as `of`. Looks for dead workers, unless the
 * shard is locked. If a rank lacks memory or another resource, informs all ranks
 * (twill_server_tell_loss()). Always returns TWILL_OK. */
static twill_status check_workers(void *of, struct twill_waiting *state)
{
    struct twill_shard *shard = of;
    (void)state;
    if (twill_shard_try_lock(shard)) {
        twill_shard_check(shard);
        twill_shard_unlock(shard);
    }
    twill_server_tell_loss(shard->server);
    return TWILL_OK;
}

/* Serve a shard until its thread is to stop. Returns NULL. */
static void *shard_main(void *argument)
{
    struct twill_shard *shard = argument;
    (void)twill_extend_await(shard->server->comm,
                             (struct twill_waitable){.advance = serve,
                                                     .done = is_stopped,
                                                     .blocked_on = check_workers,
                                                     .of = shard,
                                                     .awaited = shard},
                             UINT64_MAX);
    return NULL;
}

twill_status twill_shard_threads_start(struct twill_server *server)
{
    for (int t = 0; t < server->options.threads; t++) {
        struct twill_shard *shard = &server->shard[t];
        shard->thread.running = true; /* before the thread reads it */
        int code = twill_thread_start(&shard->thread.id, "twill-server", shard->thread.pu,
                                      shard_main, shard);
        if (code == 0)
            continue;
        shard->thread.running = false;
        /* Threads of other shards may fail the server at the same moment. */
        return TWILL_SERVER_FAIL(server, TWILL_ERR_SYSTEM, "no thread for shard %d: %s", t,
                                 strerror(code));
    }
    return TWILL_OK;
}

void twill_shard_threads_stop(struct twill_server *server)
{
    for (uint32_t t = 0; server->shard != NULL && t < server->roles.threads; t++) {
        struct twill_shard *shard = &server->shard[t];
        if (!shard->thread.running)
            continue;
        atomic_store(&shard->thread.stop, true);
        pthread_join(shard->thread.id, NULL);
        shard->thread.running = false;
    }
}

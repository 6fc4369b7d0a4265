/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of options.threads: one a core. Each runs on a PU of its own, if one is left for it,
 * and has the chunks of its core in memory of that NUMA node. */
#include "lib/server/core/core.h"

#include "lib/wait/wait.h"
#include "numa/memory.h"

#include <string.h>

/* --- where threads and memory are --------------------------------------------------------------
 */

int twill_core_numa_node(const struct twill_topology *topology, int pu)
{
    const struct twill_machine *machine = twill_topology_machine(topology);
    struct twill_place place;
    if (pu < 0 || machine->numa_nodes < 2)
        return -1;
    twill_topology_place_pu(topology, (unsigned)pu, &place);
    return place.numa >= 0 && place.numa < TWILL_MAX_NUMA ? (int)machine->numa[place.numa].os_index
                                                          : -1;
}

void twill_core_threads_place(struct twill_server *server)
{
    for (uint32_t t = 0; t < server->roles.threads; t++) {
        struct twill_core *core = &server->core[t];
        bool own = false;
        core->thread.pu =
            server->options.threads == 0
                ? -1
                : twill_thread_choose_cpu(server->context, server->roles.threads, t, &own);
        core->thread.numa_node = twill_core_numa_node(server->process.topology, core->thread.pu);
    }
}

static bool is_placed(const struct twill_core *core, const void *memory)
{
    return memory != NULL && core->thread.numa_node >= 0 && !core->server->process.places_memory;
}

void twill_core_place_memory(const struct twill_core *core, void *memory, size_t bytes)
{
    if (is_placed(core, memory)) /* where it fails memory stays where it is */
        (void)twill_memory_near(memory, bytes, core->thread.numa_node);
}

void twill_core_unplace_memory(const struct twill_core *core, void *memory, size_t bytes)
{
    if (is_placed(core, memory))
        (void)twill_memory_near(memory, bytes, -1);
}

/* --- the thread --------------------------------------------------------------------------------
 */

/* Take orders, unless another thread has the core. */
static int serve(void *of)
{
    struct twill_core *core = of;
    if (!twill_core_try_lock(core))
        return 0;
    bool moved = twill_core_poll(core) > 0;
    twill_core_unlock(core);
    if (moved)
        atomic_fetch_add_explicit(&core->server->moved, 1, memory_order_relaxed);
    return moved;
}

static bool is_stopped(const void *awaited)
{
    const struct twill_core *core = awaited;
    return atomic_load_explicit(&core->thread.stop, memory_order_relaxed);
}

static twill_status check_workers(void *of, struct twill_waiting *state)
{
    struct twill_core *core = of;
    (void)state;
    if (twill_core_try_lock(core)) {
        twill_core_check(core);
        twill_core_unlock(core);
    }
    twill_server_tell_loss(core->server);
    return TWILL_OK;
}

static void *core_main(void *argument)
{
    struct twill_core *core = argument;
    (void)twill_extend_await(core->server->comm,
                             (struct twill_waitable){.advance = serve,
                                                     .done = is_stopped,
                                                     .blocked_on = check_workers,
                                                     .of = core,
                                                     .awaited = core},
                             UINT64_MAX);
    return NULL;
}

twill_status twill_core_threads_start(struct twill_server *server)
{
    for (int t = 0; t < server->options.threads; t++) {
        struct twill_core *core = &server->core[t];
        core->thread.running = true; /* before the thread reads it */
        int code =
            twill_thread_start(&core->thread.id, "twill-server", core->thread.pu, core_main, core);
        if (code == 0)
            continue;
        core->thread.running = false;
        /* The threads of other cores may fail the server at the same moment. */
        return TWILL_SERVER_FAIL(server, TWILL_ERR_SYSTEM, "no thread for core %d: %s", t,
                                 strerror(code));
    }
    return TWILL_OK;
}

void twill_core_threads_stop(struct twill_server *server)
{
    for (uint32_t t = 0; server->core != NULL && t < server->roles.threads; t++) {
        struct twill_core *core = &server->core[t];
        if (!core->thread.running)
            continue;
        atomic_store(&core->thread.stop, true);
        pthread_join(core->thread.id, NULL);
        core->thread.running = false;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Spreads ranks over the cores that they share (see spread_ranks.h). */
#include "lib/engine/spread_ranks.h"
#include "fabric/shm/node_memory.h"
#include "lib/base/times.h"
#include "lib/engine/engine_internal.h"
#include "lib/job/config.h"
#include "lib/job/find_levels.h"
#include "numa/topology.h"

#include <sched.h>
#include <string.h>

/* Bytes of a large call's buffer. Such a call takes about 300 us, and moving a thread about 30. */
#define SPREAD_LEAST ((size_t)1 << 20)

void twill_spread_prepare(struct twill_engine *engine)
{
    const struct twill_context *context = engine->context;
    const struct twill_level_info *level = context->job.level,
                                  *own = &level[engine->job[engine->rank]];
    struct twill_cpu_share share = {0};
    for (uint32_t l = 0; l < engine->local_size; l++) {
        bool same = level[engine->job[engine->node->rank[l]]].cpuset_hash == own->cpuset_hash;
        share.index += same && l < engine->local;
        share.ranks += same;
    }
    if (own->cpus > 1 && share.ranks > own->cpus &&
        context->config->number[TWILL_VARIABLE_SPREAD] != 0 &&
        twill_topology_machine(context->machine.topology)->is_this_machine)
        share.cpus = own->cpus;
    *engine->tuning.share = share;
}

/* Let the calling thread run again on CPUs `before`. It is allowed all CPUs if that comes to the
 * same. With a mask, which it may not have had, it would not follow if its cpuset grew. */
static void release_thread(const cpu_set_t *before)
{
    cpu_set_t all, now;
    memset(&all, 0xff, sizeof(all));
    if (sched_setaffinity(0, sizeof(all), &all) != 0 ||
        sched_getaffinity(0, sizeof(now), &now) != 0 || !CPU_EQUAL(&now, before))
        (void)sched_setaffinity(0, sizeof(*before), before);
}

bool twill_spread_move(const struct twill_cpu_share *share)
{
    cpu_set_t may, one;
    if (sched_getaffinity(0, sizeof(may), &may) != 0 || (uint32_t)CPU_COUNT(&may) != share->cpus)
        return false;
    uint32_t skipped = (uint32_t)((uint64_t)share->index * share->cpus / share->ranks);
    size_t cpu = 0;
    while (!CPU_ISSET(cpu, &may) || skipped-- > 0)
        cpu++;
    if (sched_getcpu() == (int)cpu)
        return false;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0)
        return false;
    release_thread(&may);
    return true;
}

void twill_spread_in_call(const struct twill_engine *engine)
{
    const struct twill_request *first = engine->issue.queue;
    if (TWILL_LIKELY(engine->tuning.share->cpus == 0) || first == NULL)
        return;
    const struct twill_side *side = first->buffers.side;
    if (twill_max(side[TWILL_SRC].bytes, side[TWILL_DST].bytes) >= SPREAD_LEAST)
        (void)twill_spread_move(engine->tuning.share);
}

void twill_spread_set_clock(struct twill_cpu_share *share, double rate)
{
    share->hold_least = (uint64_t)(rate * (double)TWILL_SPREAD_LEAST_NS) + 1;
    share->hold_most = (uint64_t)(rate * (double)TWILL_SPREAD_MOST_NS) + 1;
    share->hold = share->hold_least;
}

void twill_spread_while_shared(struct twill_cpu_share *share, uint64_t now)
{
    if (TWILL_LIKELY(share->cpus == 0 || now < share->next))
        return;
    share->next = now + share->hold_least;
    share->moved = twill_spread_move(share) || share->moved;
}

void twill_spread_put_off(struct twill_cpu_share *share, uint64_t now)
{
    if (share->moved)
        share->hold = twill_min(2 * share->hold, share->hold_most);
    share->moved = false;
    share->next = now + share->hold;
}

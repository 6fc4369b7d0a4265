/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes an engine, and writes the sentences about its calls. */
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/shm/node_memory.h"
#include "lib/engine/engine_internal.h"
#include "lib/engine/time_split.h"

#include <stdio.h>
#include <stdlib.h>

twill_status twill_engine_open(struct twill_engine *engine)
{
    engine->issue.epoch = TWILL_LINES; /* above 0, the epoch of unused lines */
    engine->issue.arrived = engine->issue.epoch - 1;
    engine->usage.ticks_at_start = twill_ticks();
    engine->usage.ns_at_start = twill_now();
    TWILL_TRY(&engine->error, twill_split_open(engine));
    TWILL_TRY(&engine->error, twill_request_open(&engine->issue.blocking, engine));
    return twill_request_open(&engine->issue.blocking_point, engine);
}

void twill_engine_close(struct twill_engine *engine)
{
    twill_split_close(engine);
    twill_plans_destroy(engine);
    free(engine->trials);
    twill_chooser_destroy(engine->plan_cache.chooser);
    twill_requests_destroy(engine);
}

twill_status twill_engine_connect(struct twill_engine *engine, uint32_t peer)
{
    struct twill_transport *link = twill_engine_link(engine, peer);
    if (!engine->links.connected[peer] && link->ops->connect != NULL)
        TWILL_TRY(&engine->error, link->ops->connect(link, peer, &engine->error));
    engine->links.connected[peer] = 1;
    return TWILL_OK;
}

double twill_engine_seconds(const struct twill_engine *engine, uint64_t ticks)
{
    uint64_t ns = twill_now() - engine->usage.ns_at_start,
             all = twill_ticks() - engine->usage.ticks_at_start;
    return all > 0 ? (double)ticks * (double)ns / (double)all * 1e-9 : 0;
}

void twill_call_describe(const struct twill_call *call, uint64_t sequence, char *text, size_t bytes)
{
    if ((unsigned)call->collective >= TWILL_COLLECTIVE_COUNT) {
        snprintf(text, bytes, "twill_comm_dup or twill_comm_split #%llu",
                 (unsigned long long)sequence);
        return;
    }
    const struct twill_collective_facts *facts = twill_collective_facts(call->collective);
    if (call->vector && call->collective == TWILL_BARRIER) {
        snprintf(text, bytes, "twill_comm_destroy or twill_finalize #%llu",
                 (unsigned long long)sequence);
        return;
    }
    if (call->vector && !facts->sharded) {
        snprintf(text, bytes, "%ss #%llu of a group, fused", facts->name,
                 (unsigned long long)sequence);
        return;
    }
    const char *type = twill_type_name(call->type), *op = twill_op_name(call->op);
    char count[40] = "counts by rank", root[24] = "";
    if (!call->vector)
        snprintf(count, sizeof(count), "count %zu", call->count);
    if (facts->rooted)
        snprintf(root, sizeof(root), ", root %d", (int)call->root);
    if (call->collective == TWILL_BARRIER)
        snprintf(text, bytes, "%s #%llu", facts->name, (unsigned long long)sequence);
    else
        snprintf(text, bytes, "%s%s #%llu (%s, %s%s%s%s)", facts->name, call->vector ? "v" : "",
                 (unsigned long long)sequence, count, type != NULL ? type : "unknown type",
                 facts->reduces ? " " : "",
                 !facts->reduces ? ""
                 : op != NULL    ? op
                                 : "unknown op",
                 root);
}

const char *twill_engine_rank_text(const struct twill_engine *engine, uint32_t rank,
                                   char text[TWILL_RANK_TEXT])
{
    return twill_rank_text(rank < engine->world->size ? engine->oob->job : NULL, rank, text);
}

twill_status twill_engine_error(struct twill_engine *engine, twill_status status, bool numbered,
                                const char *file, int line, const char *format, ...)
{
    char call[128], cause[440], rank[TWILL_RANK_TEXT];
    const char *other =
        engine->ports != NULL ? engine->ports->call_of_error(engine, numbered) : NULL;
    va_list arguments;
    va_start(arguments, format);
    twill_print_list(cause, sizeof(cause), format, arguments);
    va_end(arguments);
    if (other != NULL)
        snprintf(call, sizeof(call), "%s", other);
    else if (engine->issue.queue == NULL && engine->issue.messaging > 0)
        snprintf(call, sizeof(call), "point to point");
    else
        twill_call_describe(&engine->issue.call, engine->issue.sequence, call, sizeof(call));
    return twill_error_set(&engine->error, status, TWILL_NO_RANK, file, line, "%s: %s: %s",
                           twill_engine_rank_text(engine, engine->rank, rank), call, cause);
}

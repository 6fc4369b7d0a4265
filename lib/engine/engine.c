/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes an engine, writes the sentences about its calls, and looks for the first NaN. */
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/shm/node_memory.h"
#include "kernels/kernels.h"
#include "lib/engine/engine_internal.h"
#include "lib/engine/time_split.h"
#include "lib/job/operation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* --- TWILL_FIRST_NAN: ranks look for a NaN or infinity in what goes into a sum. All ranks learn of
 * it with the data of the call (enum twill_news). A rank looks at its own SRC before others get it.
 * Gradient sets watch reductions in the memory of the node instead: before a result that is a NaN
 * or infinity is stored, its operands are searched. */

/* Return whether each element of every rank's SRC is read by a REDUCE of some rank, and by no other
 * step. It is so in a "direct" allreduce with MAPPED. */
static bool is_reduced_in_place(const struct twill_request *run)
{
    const struct twill_choice *choice = &run->plan->choice;
    return run->call.collective == TWILL_ALLREDUCE && run->engine->world->size > 1 &&
           strcmp(choice->algorithm->name, "direct") == 0 &&
           choice->shape.protocol == TWILL_PROTOCOL_MAPPED && !run->buffers.side[TWILL_SRC].bounced;
}

bool twill_run_looks(const struct twill_request *run)
{
    const struct twill_engine *engine = run->engine;
    const struct twill_operation *created = run->layout.created;
    const twill_op op = run->call.op;
    if (TWILL_UNLIKELY(run->buffers.watch != NULL))
        return !is_reduced_in_place(run);
    if (TWILL_LIKELY(!engine->tuning.nan.looks) || run->bytes == 0 ||
        !twill_collective_facts(run->call.collective)->reduces ||
        engine->kernels->exceeds[run->call.type] == NULL)
        return false;
    return created != NULL ? created->function == NULL
                           : op == TWILL_SUM || op == TWILL_PROD || op == TWILL_AVG;
}

/* Return the index in `src` of the first NaN or infinity in elements `skip` to skip + length - 1 of
 * each shard, or SIZE_MAX if there is none. */
static size_t find_first(const struct twill_request *run, const unsigned char *src, size_t skip,
                         size_t length)
{
    const struct twill_engine *engine = run->engine;
    const struct twill_side *side = &run->buffers.side[TWILL_SRC];
    bool sharded = twill_collective_facts(run->call.collective)->sharded && !side->own;
    uint32_t shards = sharded ? engine->world->size : 1;
    for (uint32_t p = 0; p < shards; p++) {
        size_t from = (side->offset != NULL ? side->offset[p] : p * side->pitch) + skip,
               whole = side->count != NULL ? side->count[p] : side->even,
               count = whole > skip ? twill_min(length, whole - skip) : 0,
               at = twill_kernels_find_nan(engine->kernels, run->call.type,
                                           src + from * run->layout.given, count,
                                           engine->tuning.pool);
        if (at < count)
            return from + at;
    }
    return SIZE_MAX;
}

/* Notify run->buffers.watch of element number `at` of what `rank` contributes. Returns TWILL_OK, or
 * the error with which the call must fail. */
static twill_status note_nan(struct twill_request *run, uint32_t rank, size_t at)
{
    struct twill_engine *engine = run->engine;
    const struct twill_nan_watch *watch = run->buffers.watch;
    const char *text = watch->found(watch->user, run->handle.given, rank, at);
    if (text == NULL)
        return TWILL_OK;
    engine->issue.call = run->call; /* earlier calls may still succeed on other ranks */
    engine->issue.sequence = run->sequence;
    return TWILL_FAIL(&engine->error, TWILL_ERR_ARGUMENT, "%s", text);
}

twill_status twill_run_find_nan(struct twill_request *run, const unsigned char *src, size_t skip,
                                size_t length, uint64_t sequence)
{
    struct twill_engine *engine = run->engine;
    const struct twill_nan_watch *watch = run->buffers.watch;
    if (src == NULL || (watch != NULL ? !watch->seeks(watch->user) : engine->tuning.nan.known))
        return TWILL_OK;
    size_t at = find_first(run, src, skip, length);
    if (TWILL_LIKELY(at == SIZE_MAX))
        return TWILL_OK;
    if (watch != NULL)
        return note_nan(run, engine->rank, at);
    uint64_t told = twill_news_tell(twill_node_news(engine->node), TWILL_NEWS_NAN, sequence);
    engine->tuning.nan.known = !engine->tuning.nan.fails;
    char call[128], rank[TWILL_RANK_TEXT];
    twill_call_describe(&run->call, sequence, call, sizeof(call));
    (void)twill_engine_rank_text(engine, engine->rank, rank);
    if (engine->tuning.nan.fails) {
        engine->issue.call = run->call; /* earlier calls may still succeed on other ranks */
        engine->issue.sequence = sequence;
        return TWILL_FAIL(&engine->error, TWILL_ERR_ARGUMENT,
                          "%s: %s: element %zu of src is a NaN or infinity", rank, call, at);
    }
    if (told == 0 || told >= sequence)
        twill_say(engine->log, TWILL_LOG_WARN,
                  "%s: %s: element %zu of src is a NaN or infinity, the first one", rank, call, at);
    return TWILL_OK;
}

bool twill_run_watch(struct twill_request *run, const struct twill_nan_watch *watch)
{
    const twill_op op = run->call.op;
    if (run->bytes == 0 || !is_reduced_in_place(run) || run->layout.created != NULL ||
        run->engine->kernels->exceeds[run->call.type] == NULL ||
        (op != TWILL_SUM && op != TWILL_PROD && op != TWILL_AVG))
        return false;
    run->buffers.watch = watch;
    return true;
}

/* Return where the SRC of a rank of the node begins. */
static const unsigned char *src_of(const struct twill_request *run, uint32_t rank)
{
    const struct twill_engine *engine = run->engine;
    return rank == engine->rank ? run->buffers.side[TWILL_SRC].base
                                : run->buffers.peer[engine->world->local[rank]].at[TWILL_SRC];
}

twill_status twill_run_search(struct twill_request *run, const void *const *source,
                              const uint32_t *input_of, unsigned sources, size_t count)
{
    struct twill_engine *engine = run->engine;
    for (unsigned i = 0; i < sources; i++) {
        if (input_of[i] == UINT32_MAX)
            continue;
        size_t at = twill_kernels_find_nan(engine->kernels, run->call.type, source[i], count,
                                           engine->tuning.pool);
        const unsigned char *place = (const unsigned char *)source[i] + at * run->layout.element;
        if (TWILL_UNLIKELY(at < count))
            TWILL_TRY(&engine->error,
                      note_nan(run, input_of[i],
                               (size_t)(place - src_of(run, input_of[i])) / run->layout.element));
    }
    return TWILL_OK;
}

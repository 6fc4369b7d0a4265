/* SPDX-License-Identifier: Apache-2.0 */
/* From a call to its plan: the request to the selector, and whether the node's ranks exchange
 * buffer addresses first. */
#include "fabric/shm/single_copy.h"
#include "lib/engine/log_calls.h"
#include "lib/engine/shared_prices.h"

static enum twill_order order_of(const struct twill_run *run)
{
    if (!twill_collective_facts(run->call.collective)->reduces)
        return TWILL_ORDER_ANY;
    if (run->comm->tuning.reproducible)
        return TWILL_ORDER_LEFT;
    bool commutes = run->layout.created == NULL || run->layout.created->commutative;
    return commutes ? TWILL_ORDER_ANY : TWILL_ORDER_RANKS;
}

/* Return the elements of all shards; 0 if this rank does not know them. */
static size_t elements_of(const struct twill_run *run)
{
    bool sharded = twill_collective_facts(run->call.collective)->sharded;
    uint32_t size = run->comm->world->size;
    size_t sum = 0;
    if (!run->call.vector)
        return (sharded ? size : 1) * run->call.count;
    for (uint32_t p = 0; run->layout.known != NULL && p < size; p++)
        sum += run->layout.known[p];
    return sum;
}

struct twill_select_request twill_run_select_request(const struct twill_run *run)
{
    bool own = run->layout.created != NULL && run->layout.created->function != NULL;
    return (struct twill_select_request){
        .collective = run->call.collective,
        .root = run->call.root,
        .bytes = elements_of(run) * run->layout.element,
        .mapped = (run->exchange.allowed & TWILL_ACCESS_MAPPED) != 0,
        .fetched = (run->exchange.allowed & TWILL_ACCESS_FETCHED) != 0,
        .vector = run->call.vector,
        .order = order_of(run),
        .type = own ? TWILL_U8 : run->layout.type,
        .narrow = run->layout.narrow,
    };
}

static twill_status have_chooser(struct twill_comm *comm)
{
    if (comm->plan_cache.chooser != NULL)
        return TWILL_OK;
    return twill_comm_create_chooser(
        &comm->plan_cache.chooser, comm,
        twill_config_text(&comm->context->config, TWILL_VARIABLE_ALGORITHM), &comm->error);
}

twill_status twill_addresses_needed(struct twill_run *run, bool *exchanges, bool *any_exchanges)
{
    struct twill_comm *comm = run->comm;
    *exchanges = *any_exchanges = false;
    run->exchange.access = run->exchange.allowed = 0;
    bool scaled = run->layout.created != NULL && run->layout.created->scaled;
    struct twill_select_request request = twill_run_select_request(run);
    if (run->call.vector || scaled || request.bytes < TWILL_MAPPED_BYTES)
        return TWILL_OK;
    TWILL_TRY(&comm->error, have_chooser(comm));
    request.fetched = comm->world->nodes == 1 && twill_single_copy_fetches(comm->links.single_copy);
    run->exchange.access = twill_mapping_matters(comm->plan_cache.chooser, &request);
    *any_exchanges = run->exchange.access != 0;
    bool away = run->call.collective == TWILL_BROADCAST &&
                comm->world->node[run->call.root] != comm->world->node[comm->rank];
    bool shares = comm->context->memory.heap.region != NULL || comm->links.single_copy != NULL;
    *exchanges = *any_exchanges && shares && !away;
    return TWILL_OK;
}

/* Nodes may differ in whether their buffers are mapped, but must agree on everything else. So with
 * several nodes, mapped buffers change the protocol within this node only. */
static twill_status find_choice(struct twill_choice *choice, struct twill_comm *comm,
                                const struct twill_select_request *key)
{
    struct twill_select_request common = *key;
    common.mapped = key->mapped && comm->world->nodes == 1;
    twill_status status = twill_select(choice, comm->plan_cache.chooser, &common, &comm->error);
    if (status == TWILL_ERR_CONFIG && key->mapped) { /* the user asks for "@mapped" */
        twill_error_clear(&comm->error);
        status = twill_select(choice, comm->plan_cache.chooser, key, &comm->error);
    }
    TWILL_TRY(&comm->error, status);
    struct twill_shape mapped = choice->shape;
    mapped.protocol = TWILL_PROTOCOL_MAPPED;
    if (key->mapped && choice->algorithm->protocols != 0 &&
        choice->shape.protocol == TWILL_PROTOCOL_STAGED &&
        twill_algorithm_applies(choice->algorithm, comm->world, &mapped))
        choice->shape = mapped;
    return TWILL_OK;
}

/* Warn, once per communicator, that TWILL_ALGORITHM cannot do this call. */
static void log_substitute(struct twill_comm *comm, const struct twill_choice *choice)
{
    if (!choice->substituted || comm->plan_cache.logged_substitute || comm->rank != 0)
        return;
    comm->plan_cache.logged_substitute = true;
    twill_say(
        &comm->context->log, TWILL_LOG_WARN,
        "TWILL_ALGORITHM=%s does not do every %s (order of operands, uneven shards); %s is used",
        twill_config_text(&comm->context->config, TWILL_VARIABLE_ALGORITHM),
        twill_collective_name(choice->shape.collective), choice->algorithm->name);
}

static twill_status find_plan(struct twill_run *run)
{
    struct twill_comm *comm = run->comm;
    struct twill_select_request key = twill_run_select_request(run);
    if (TWILL_LIKELY(comm->plan_cache.last != NULL &&
                     twill_requests_match(&comm->plan_cache.last_key, &key))) {
        run->plan = comm->plan_cache.last;
        return TWILL_OK;
    }
    struct twill_choice choice;
    TWILL_TRY(&comm->error, have_chooser(comm));
    TWILL_TRY(&comm->error, find_choice(&choice, comm, &key));
    log_substitute(comm, &choice);
    TWILL_TRY(&comm->error, twill_plan_get(comm, &choice, &run->plan));
    comm->plan_cache.last = run->plan;
    comm->plan_cache.last_key = key;
    twill_log_choice(comm, &key, &choice);
    return TWILL_OK;
}

void twill_addresses_restart(struct twill_run *run)
{
    run->exchange.before = run->plan;
    run->exchange.allowed_before = run->exchange.allowed;
    twill_run_detach_peers(run);
    run->plan = NULL;
    run->exchange.state = TWILL_EXCHANGE_IDLE;
    run->exchange.arrived = false;
}

int twill_run_choose(struct twill_run *run)
{
    struct twill_comm *comm = run->comm;
    if (run->exchange.before == NULL && run->exchange.state == TWILL_EXCHANGE_IDLE) {
        bool exchanges, any_exchanges;
        TWILL_TRY(&comm->error, twill_addresses_needed(run, &exchanges, &any_exchanges));
        run->exchange.state = exchanges ? TWILL_EXCHANGE_IDLE : TWILL_EXCHANGE_UNNEEDED;
    }
    if (!twill_exchange_is_over(&run->exchange)) {
        int answer = twill_addresses_exchange(run);
        if (answer <= 0)
            return answer;
    }
    if (TWILL_LIKELY(run->exchange.before != NULL &&
                     run->exchange.allowed == run->exchange.allowed_before)) {
        run->plan = run->exchange.before;
        TWILL_TRY(&comm->error, twill_run_attach_peers(run));
        twill_run_choose_stores(run);
        return 1;
    }
    TWILL_TRY(&comm->error, find_plan(run));
    TWILL_TRY(&comm->error, twill_run_attach_peers(run));
    TWILL_TRY(&comm->error, twill_run_lay_out(run));
    return 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what ranks do in a call, and compares it with another algorithm: price_terms.h. Adds up
 * the work of one rank: price.h. */
#include "algorithms/select/price_terms.h"
#include "algorithms/schedule/emit.h"
#include "algorithms/select/price_internal.h"
#include "lib/base/lists.h"

#include <stdio.h>

/* Number of ranks whose schedules are looked at, evenly spaced, and the last one. */
#define RANKS_LOOKED_AT 32u
/* Most ranks of a group whose bytes to other groups are counted. */
#define GROUP_RANKS 256u

/* The counting of a call, on the stack of twill_price_find_terms(). Amounts are of one segment. */
struct term_counting {
    struct twill_pricing p;
    struct twill_price_query query;
    struct twill_price_terms *terms;
    bool begun;
};

/* What one rank sends to and receives from other units of a level, in bytes of one segment. */
struct unit_traffic {
    uint64_t sent, received;
};

/* Raise a term to this amount and time, each if it is larger. */
static void raise_term(struct twill_price_terms *terms, enum twill_term term, uint64_t amount,
                       uint64_t time)
{
    terms->of[term].amount = twill_price_later(terms->of[term].amount, amount);
    terms->of[term].time = twill_price_later(terms->of[term].time, time);
}

/* Emit the schedule of a rank. With the first one set the facts and the bytes of a segment. */
static twill_status emit_rank(struct term_counting *c, struct twill_schedule *s, uint32_t rank,
                              size_t bytes)
{
    TWILL_TRY(c->query.error, twill_schedule_emit_unchecked(s, c->query.algorithm, c->p.world, rank,
                                                            c->query.shape, c->query.error));
    if (!c->begun)
        twill_price_set_facts(&c->p, &c->query, rank, s);
    c->begun = true;
    size_t segment = twill_price_segment(&c->p, bytes);
    twill_price_set_bytes(&c->p, segment > 0 && segment < bytes ? segment : bytes);
    return TWILL_OK;
}

/* Return the bytes that the core reads, copies or reduces in a step. */
static uint64_t bytes_touched(const struct term_counting *c, const struct twill_step *step,
                              uint8_t link)
{
    uint64_t bytes = twill_price_step_bytes(&c->p, step);
    switch (step->op) {
    case TWILL_STEP_REDUCE:
        return bytes * step->nsrc;
    case TWILL_STEP_COPY:
    case TWILL_STEP_RECV_REDUCE:
        return bytes;
    case TWILL_STEP_SEND:
        return link < TWILL_LINK_NETWORK ? bytes : 0;
    default:
        return 0;
    }
}

/* Add a step of a rank to the terms of that rank. `waits` becomes true after a receive that is
 * posted, and false after the WAIT that ends the round. */
static void count_step(struct term_counting *c, struct twill_price_terms *own, uint32_t rank,
                       const struct twill_step *step, bool *waits)
{
    uint8_t link = twill_price_step_class(&c->p, rank, step);
    const struct twill_machine_model *model = c->p.call.model;
    uint64_t work = twill_price_work(&c->p, rank, step, link);
    struct twill_price_term *of = own->of;
    c->terms->threads = (unsigned)twill_max(c->terms->threads, twill_price_threads(&c->p, step));
    if (twill_step_shape(step->op)->posts) {
        const struct twill_link_cost *cost = &model->link[link];
        of[TWILL_TERM_MESSAGES].amount++;
        of[TWILL_TERM_MESSAGES].time += cost->overhead;
        of[TWILL_TERM_MEMORY].amount += bytes_touched(c, step, link);
        of[TWILL_TERM_MEMORY].time +=
            step->op == TWILL_STEP_SEND && link >= TWILL_LINK_NETWORK ? 0 : work - cost->overhead;
        if (step->op != TWILL_STEP_SEND && !*waits) {
            of[TWILL_TERM_ROUNDS].amount++;
            of[TWILL_TERM_ROUNDS].time += cost->latency + 2 * cost->overhead;
            *waits = true;
        }
    } else if (step->op == TWILL_STEP_AWAIT) {
        of[TWILL_TERM_FLAGS].amount++;
        of[TWILL_TERM_FLAGS].time +=
            work + model->link[link == TWILL_PRICE_MIXED ? TWILL_LINK_NODE : link].signal;
    } else if (step->op == TWILL_STEP_WAIT) {
        *waits = false;
    } else {
        of[TWILL_TERM_MEMORY].amount += bytes_touched(c, step, link);
        of[TWILL_TERM_MEMORY].time += work;
    }
}

/* Raise the terms to those of one rank. */
static twill_status count_rank(struct term_counting *c, uint32_t rank, size_t bytes)
{
    struct twill_price_terms own = {.of = {{0, 0}}};
    struct twill_schedule s = {.steps = NULL};
    uint64_t rounds = 0;
    TWILL_TRY(c->query.error, emit_rank(c, &s, rank, bytes));
    for (uint32_t l = 0; l < s.lanes; l++) {
        bool waits = false;
        own.of[TWILL_TERM_ROUNDS] = (struct twill_price_term){0, 0};
        for (uint32_t i = s.lane_first[l]; i < s.lane_first[l + 1]; i++)
            count_step(c, &own, rank, &s.steps[i], &waits);
        rounds = twill_price_later(rounds, own.of[TWILL_TERM_ROUNDS].amount);
        raise_term(c->terms, TWILL_TERM_ROUNDS, rounds, own.of[TWILL_TERM_ROUNDS].time);
    }
    twill_schedule_destroy(&s);
    for (unsigned t = 0; t < TWILL_TERM_COUNT; t++)
        if (t != TWILL_TERM_ROUNDS)
            raise_term(c->terms, (enum twill_term)t, own.of[t].amount, own.of[t].time);
    return TWILL_OK;
}

/* Set *crossing to what a rank sends to and receives from ranks with another number in unit[]. */
static twill_status count_crossing(struct unit_traffic *crossing, struct term_counting *c,
                                   uint32_t rank, const uint32_t *unit, size_t bytes)
{
    struct twill_schedule s = {.steps = NULL};
    *crossing = (struct unit_traffic){0, 0};
    TWILL_TRY(c->query.error, emit_rank(c, &s, rank, bytes));
    for (uint32_t i = 0; i < s.count; i++) {
        const struct twill_step *step = &s.steps[i];
        if (!twill_step_shape(step->op)->posts || unit[step->peer[0]] == unit[rank])
            continue;
        if (step->op == TWILL_STEP_SEND)
            crossing->sent += twill_price_step_bytes(&c->p, step);
        else
            crossing->received += twill_price_step_bytes(&c->p, step);
    }
    twill_schedule_destroy(&s);
    return TWILL_OK;
}

/* Raise the term of bytes between groups to that of the group of rank 0, if it is not too large. */
static twill_status count_group(struct term_counting *c, size_t bytes)
{
    const struct twill_world *w = c->p.world;
    const struct twill_link_cost *cost = &c->p.call.model->link[TWILL_LINK_GROUP];
    const uint32_t *group = w->unit[TWILL_LEVEL_GROUP];
    uint64_t ranks = 0, nodes = 0, sent = 0;
    for (uint32_t r = 0; r < w->size && group != NULL; r++) {
        ranks += group[r] == group[0];
        nodes += group[r] == group[0] && w->local[r] == 0;
    }
    for (uint32_t r = 0; r < w->size && ranks > 0 && ranks <= GROUP_RANKS; r++) {
        struct unit_traffic one;
        if (group[r] != group[0])
            continue;
        TWILL_TRY(c->query.error, count_crossing(&one, c, r, group, bytes));
        sent += one.sent;
    }
    uint64_t links = cost->port > 0 && nodes > 0 ? cost->port / nodes : 0;
    raise_term(c->terms, TWILL_TERM_GROUP, sent,
               twill_rate_time(twill_min(links, cost->gap), sent));
    return TWILL_OK;
}

/* Raise the term of bytes between nodes to that of the node of this rank. */
static twill_status count_node(struct term_counting *c, uint32_t rank, size_t bytes)
{
    const struct twill_world *w = c->p.world;
    const struct twill_machine_model *model = c->p.call.model;
    struct unit_traffic all = {0, 0};
    uint64_t most = 0;
    for (uint32_t l = 0; l < w->node_size[w->node[rank]]; l++) {
        uint32_t member = twill_world_member(w, w->node[rank], l);
        struct unit_traffic one;
        TWILL_TRY(c->query.error, count_crossing(&one, c, member, w->node, bytes));
        all.sent += one.sent;
        all.received += one.received;
        most = twill_price_later(most, twill_price_later(one.sent, one.received));
    }
    uint64_t through = twill_price_later(all.sent, all.received);
    raise_term(c->terms, TWILL_TERM_NODE, through,
               twill_price_later(twill_rate_time(model->interface, through),
                                 twill_rate_time(model->link[TWILL_LINK_NETWORK].gap, most)));
    return TWILL_OK;
}

/* Scale the terms of one segment to the whole message. */
static void scale_terms(struct term_counting *c, size_t bytes)
{
    size_t segment = twill_price_segment(&c->p, bytes);
    if (segment == 0 || segment >= bytes)
        return;
    for (unsigned t = 0; t < TWILL_TERM_COUNT; t++) {
        struct twill_price_term *term = &c->terms->of[t];
        bool counts = t >= TWILL_TERM_ROUNDS;
        term->time = term->time / segment * bytes + term->time % segment * bytes / segment;
        term->amount =
            counts ? term->amount * ((bytes + segment - 1) / segment)
                   : term->amount / segment * bytes + term->amount % segment * bytes / segment;
    }
}

twill_status twill_price_find_terms(struct twill_price_terms *terms,
                                    const struct twill_algorithm *algorithm,
                                    const struct twill_world *world,
                                    const struct twill_shape *shape,
                                    const struct twill_machine_model *model, size_t bytes,
                                    struct twill_element_kind elements, struct twill_error *error)
{
    struct term_counting c = {.p = {.world = world, .facts = {.ranks = world->size}},
                              .query = {algorithm, shape, error},
                              .terms = terms};
    const uint32_t count = (uint32_t)twill_min(world->size, RANKS_LOOKED_AT);
    *terms = (struct twill_price_terms){.threads = 1};
    twill_price_count_sharers(&c.p.facts, world);
    twill_price_set_call(&c.p, model, elements);
    for (uint32_t i = 0; i < count; i++)
        TWILL_TRY(error, count_rank(&c, (uint32_t)((uint64_t)i * world->size / count), bytes));
    TWILL_TRY(error, count_rank(&c, world->size - 1, bytes));
    for (unsigned i = 0; i < 2 && world->nodes > 1; i++)
        TWILL_TRY(error, count_node(&c, i * (world->size / 2), bytes));
    TWILL_TRY(error, count_group(&c, bytes));
    scale_terms(&c, bytes);
    return TWILL_OK;
}

twill_status twill_price_least(uint64_t *picoseconds, const struct twill_algorithm *algorithm,
                               const struct twill_world *world, uint32_t rank,
                               const struct twill_shape *shape,
                               const struct twill_machine_model *model, size_t bytes,
                               struct twill_element_kind elements, struct twill_error *error)
{
    struct twill_pricing p = {.world = world, .facts = {.ranks = world->size}};
    const struct twill_price_query query = {algorithm, shape, error};
    struct twill_schedule s = {.steps = NULL};
    TWILL_TRY(error, twill_schedule_emit(&s, algorithm, world, rank, shape, error));
    twill_price_set_facts(&p, &query, rank, &s);
    twill_price_count_sharers(&p.facts, world);
    twill_price_set_call(&p, model, elements);
    size_t segment = twill_price_segment(&p, bytes);
    size_t one = segment > 0 && segment < bytes ? segment : bytes;
    /* The price of ranks that run ahead is in part that of the busiest one's work alone. */
    uint64_t work = s.lanes == 1 && !p.facts.runs_ahead ? s.count * model->step : 0;
    twill_price_set_bytes(&p, one);
    for (uint32_t i = 0; i < s.count; i++)
        work +=
            twill_price_work(&p, rank, &s.steps[i], twill_price_step_class(&p, rank, &s.steps[i]));
    twill_schedule_destroy(&s);
    *picoseconds = work + (one < bytes ? twill_rate_time(work * 1024 / one, bytes - one) : 0);
    return TWILL_OK;
}

/* Print an amount to text, as bytes with a unit or as a number. Returns text. */
static const char *print_amount(char text[32], enum twill_term term, uint64_t amount)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)amount;
    unsigned unit = 0;
    while (value >= 1024 && unit + 1 < TWILL_ARRAY_LENGTH(units)) {
        value /= 1024;
        unit++;
    }
    if (term >= TWILL_TERM_ROUNDS)
        snprintf(text, 32, "%llu", (unsigned long long)amount);
    else
        twill_print(text, 32, "%.4g %s", value, units[unit]);
    return text;
}

const char *twill_price_reason(char *text, size_t bytes, const struct twill_price_terms *terms,
                               const struct twill_price_terms *best, uint64_t more)
{
    static const struct {
        const char *before, *after;
    } sentence[] = {
        [TWILL_TERM_GROUP] = {"", " leave a group of nodes"},
        [TWILL_TERM_NODE] = {"", " leave or enter a node"},
        [TWILL_TERM_MEMORY] = {"a core copies and reduces ", ""},
        [TWILL_TERM_ROUNDS] = {"", " messages of a rank wait for each other"},
        [TWILL_TERM_MESSAGES] = {"a rank sends and receives ", " messages"},
        [TWILL_TERM_FLAGS] = {"a rank waits for flags ", " times"},
    };
    _Static_assert(TWILL_ARRAY_LENGTH(sentence) == TWILL_TERM_COUNT, "one for each");
    unsigned main = 0;
    uint64_t longest = 0;
    char of[32], not_of[32];
    for (unsigned t = 0; t < TWILL_TERM_COUNT; t++)
        if (terms->of[t].time > best->of[t].time + longest) {
            longest = terms->of[t].time - best->of[t].time;
            main = t;
        }
    if (longest < more / 4 || longest == 0)
        snprintf(text, bytes, "%s",
                 more > 0 ? "ranks wait longer for each other"
                          : "as cheap, but later in the list of algorithms");
    else if (terms->of[main].amount > best->of[main].amount)
        snprintf(text, bytes, "%s%s%s, not %s", sentence[main].before,
                 print_amount(of, (enum twill_term)main, terms->of[main].amount),
                 sentence[main].after,
                 print_amount(not_of, (enum twill_term)main, best->of[main].amount));
    else
        twill_print(text, bytes, "%s takes %.4g us, not %.4g",
                    main == TWILL_TERM_MEMORY ? "copying and reducing as much"
                                              : "exchanging as much",
                    (double)terms->of[main].time * 1e-6, (double)best->of[main].time * 1e-6);
    return text;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/select/explain.h"
#include "algorithms/schedule/traffic.h"
#include "algorithms/select/candidates.h"
#include "algorithms/select/price_terms.h"
#include "algorithms/select/ways.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text that grows while twill_why() prints it, which frees it or gives it to its caller. */
struct writer {
    char *text;
    size_t length, capacity; /* bytes */
    bool no_memory;          /* a line is missing */
};

/* What is explained, on the stack of twill_why(). */
struct explanation {
    struct writer text;
    const struct twill_world *world;
    const struct twill_tuning *tuning;
    const struct twill_select_request *request;
    size_t bytes; /* of the request, as by twill_request_bytes() */
    struct twill_chooser *chooser;
    const struct twill_candidates *all; /* of the chooser */
    struct twill_error *error;
};

static void print_why(struct writer *w, const char *format, ...) TWILL_PRINTF(2, 3);

/* Append a line of at most 511 bytes to the text, or set no_memory. */
static void print_why(struct writer *w, const char *format, ...)
{
    va_list list;
    if (w->capacity - w->length < 512) {
        size_t capacity = 2 * w->capacity + 1024;
        char *more = realloc(w->text, capacity);
        w->no_memory = w->no_memory || more == NULL;
        if (more == NULL)
            return;
        w->text = more;
        w->capacity = capacity;
    }
    va_start(list, format);
    int length = twill_print_list(w->text + w->length, w->capacity - w->length, format, list);
    va_end(list);
    if (length > 0)
        w->length += twill_min((size_t)length, w->capacity - w->length - 1);
}

/* Print a name such as "torus=4x6@staged" to text. Returns text. */
static const char *variant_name(const struct twill_algorithm *a, const struct twill_shape *shape,
                                char text[TWILL_WHY_NAME])
{
    size_t used = (size_t)snprintf(text, TWILL_WHY_NAME, "%s", a->name);
    for (unsigned i = 0; i < a->parameters && i < TWILL_PARAMETERS; i++)
        if (shape->parameter[i] != 0 && used < 80)
            used += (size_t)snprintf(text + used, 96 - used, "%c%u", i == 0 ? '=' : 'x',
                                     shape->parameter[i]);
    if (a->protocols != 0 && shape->collective != TWILL_BARRIER && used < 80)
        snprintf(text + used, 96 - used, "@%s", twill_protocol_name(shape->protocol));
    return text;
}

const char *twill_why_name(const struct twill_choice *choice, char text[TWILL_WHY_NAME])
{
    return variant_name(choice->algorithm, &choice->shape, text);
}

/* Return whether an algorithm applies to the shape with some protocol. */
static bool takes_in_any_protocol(const struct twill_algorithm *a, const struct twill_world *world,
                                  struct twill_shape shape)
{
    for (unsigned f = 0; f < TWILL_PROTOCOL_COUNT; f++) {
        shape.protocol = (enum twill_protocol)f;
        if (twill_algorithm_applies(a, world, &shape))
            return true;
    }
    return false;
}

/* Return the reason why an algorithm does not take a request, as a constant text, or NULL if it
 * does take it. */
static const char *unfitness(const struct twill_algorithm *a, const struct twill_world *world,
                             const struct twill_select_request *request)
{
    struct twill_shape shape = {
        .collective = request->collective, .vector = request->vector, .order = request->order};
    if ((a->collectives >> request->collective & 1) == 0)
        return "does not do this collective";
    if (takes_in_any_protocol(a, world, shape))
        return NULL;
    shape.vector = false;
    if (takes_in_any_protocol(a, world, shape))
        return "not with shards of different sizes";
    shape.vector = request->vector;
    shape.order = TWILL_ORDER_ANY;
    if (takes_in_any_protocol(a, world, shape))
        return "cannot keep this order of operands";
    return world->nodes == 1 ? "not on one node" : "not on these nodes and ranks";
}

/* Say in text[bytes] why an algorithm that takes a request is no candidate. It has no price, or its
 * schedules are those of a candidate, which is named. Returns text. */
static const char *absence(char *text, size_t bytes, const struct explanation *e,
                           const struct twill_algorithm *a)
{
    struct twill_shape shape = {.collective = e->request->collective,
                                .vector = e->request->vector,
                                .order = e->request->order};
    struct twill_error why = {.status = TWILL_OK};
    char name[TWILL_WHY_NAME];
    snprintf(text, bytes, "no price");
    for (unsigned f = 0; f < TWILL_PROTOCOL_COUNT; f++) {
        struct twill_pricing *pricing;
        shape.protocol = (enum twill_protocol)f;
        if (!twill_algorithm_applies(a, e->world, &shape))
            continue;
        if (twill_pricing_create(&pricing, a, e->world, &shape, TWILL_PRICE_STEPS, &why) !=
            TWILL_OK) {
            snprintf(text, bytes, "no price: %.*s", (int)bytes - 12, why.message);
            continue;
        }
        uint64_t fingerprint = twill_pricing_fingerprint(pricing);
        twill_pricing_destroy(pricing);
        for (size_t i = 0; i < e->all->count; i++) {
            const struct twill_candidate *c = &e->all->candidate[i];
            if (c->fingerprint != fingerprint)
                continue;
            snprintf(text, bytes, "the same schedule here as %s",
                     variant_name(c->algorithm, &c->shape, name));
            return text;
        }
    }
    return text;
}

/* Return whether a node whose buffers are mapped may run this MAPPED candidate in place of a chosen
 * one with STAGED, as map_instead() permits. */
static bool is_instead(const struct explanation *e, const struct twill_candidate *c)
{
    return e->world->nodes > 1 && e->request->mapped &&
           c->shape.protocol == TWILL_PROTOCOL_MAPPED && e->bytes >= c->least &&
           e->bytes <= c->most;
}

/* Print a line about a candidate that this request cannot use, with the sizes and buffers that it
 * needs. `name` is that of the candidate with parameters and protocol, such as "torus=4x6@staged".
 * `nodes` is the number of nodes. If there are several, a MAPPED candidate is only for use in place
 * of a STAGED one. */
static void put_limits(struct writer *w, const struct twill_candidate *c, const char *name,
                       uint32_t nodes)
{
    if (c->price_most != SIZE_MAX)
        print_why(w, "small\t%s\tflat: at most %zu bytes unless it is asked for or measured\n",
                  name, c->price_most);
    else if (c->most != SIZE_MAX)
        print_why(w, "small\t%s\tat most %zu bytes\n", name, c->most);
    else if (c->shape.protocol == TWILL_PROTOCOL_FETCHED)
        print_why(w,
                  "small\t%s\tfrom %zu bytes, peers whose memory can be read (TWILL_TUNE=reach)\n",
                  name, c->least);
    else
        print_why(w, "small\t%s\tfrom %zu bytes, all buffers from twill_alloc%s\n", name, c->least,
                  nodes > 1 ? ": in place of @staged" : "");
}

/* A candidate by its index, and its cost in picoseconds, to be sorted. */
struct ranked {
    uint64_t cost;
    size_t index;
};

/* Compare two struct ranked for qsort(), by cost, then by index. */
static int by_cost(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (a->cost != b->cost)
        return a->cost < b->cost ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

/* The cheapest candidate, with which the others are compared. A local variable of
 * put_candidates(). */
struct cheapest {
    const struct twill_candidate *candidate;
    uint64_t price, cost; /* picoseconds, the cost with the toll of the links between groups */
    struct twill_price_terms terms;
};

/* Set *price to the price of a candidate for the request. Returns TWILL_OK or the error. */
static twill_status price_candidate(uint64_t *price, const struct explanation *e,
                                    const struct twill_candidate *c)
{
    return twill_price(price, c->algorithm, e->world, &c->shape, &e->tuning->model, e->bytes,
                       e->all->elements, e->error);
}

/* Set the terms of the price of a candidate. Returns TWILL_OK or the error. */
static twill_status find_terms(struct twill_price_terms *terms, const struct explanation *e,
                               const struct twill_candidate *c)
{
    return twill_price_find_terms(terms, c->algorithm, e->world, &c->shape, &e->tuning->model,
                                  e->bytes, e->all->elements, e->error);
}

/* Say in text[bytes] why a candidate of this cost is dearer than the cheapest one. */
static twill_status say_dearer(char *text, size_t bytes, const struct explanation *e,
                               const struct twill_candidate *c, uint64_t price, uint64_t cost,
                               const struct cheapest *best)
{
    struct twill_price_terms terms;
    if (c->measured > 0 || best->candidate->measured > 0) {
        snprintf(text, bytes, "dearer, as %s was measured",
                 c->measured > 0 ? "it" : "the cheapest one");
        return TWILL_OK;
    }
    if (price <= best->price && e->world->unit[TWILL_LEVEL_GROUP] != NULL) {
        snprintf(text, bytes, "more bytes cross the links between groups");
        return TWILL_OK;
    }
    TWILL_TRY(e->error, find_terms(&terms, e, c));
    twill_price_reason(text, bytes, &terms, &best->terms, cost - best->cost);
    return TWILL_OK;
}

/* Print the candidates that compete for this request, the cheapest first, with their prices and why
 * the others are dearer. */
static twill_status put_ranked(struct explanation *e, const struct ranked *ranked, size_t takers)
{
    struct cheapest best = {.candidate = NULL};
    for (size_t i = 0; i < takers; i++) {
        const struct twill_candidate *c = &e->all->candidate[ranked[i].index];
        char name[TWILL_WHY_NAME], why[160] = "";
        uint64_t price;
        TWILL_TRY(e->error, price_candidate(&price, e, c));
        if (i > 0)
            TWILL_TRY(e->error, say_dearer(why, sizeof(why), e, c, price, ranked[i].cost, &best));
        else
            TWILL_TRY(e->error, find_terms(&best.terms, e, c));
        best.candidate = i > 0 ? best.candidate : c;
        best.price = i > 0 ? best.price : price;
        best.cost = ranked[0].cost;
        print_why(&e->text, "candidate\t%s\t%llu\t%llu\t%zu\t%s\n",
                  variant_name(c->algorithm, &c->shape, name), (unsigned long long)price,
                  (unsigned long long)ranked[i].cost, c->measured, why);
    }
    return TWILL_OK;
}

/* Rank the candidates that compete for this request by cost, and print them. */
static twill_status put_candidates(struct explanation *e)
{
    size_t takers = 0;
    unsigned access = twill_request_access(e->world, e->request);
    struct ranked *ranked = calloc(e->all->count + 1, sizeof(*ranked));
    if (ranked == NULL)
        return TWILL_FAIL(e->error, TWILL_ERR_MEMORY, "out of memory to say why");
    for (size_t i = 0; i < e->all->count; i++)
        if (twill_candidate_competes(&e->all->candidate[i], e->bytes, access))
            ranked[takers++] =
                (struct ranked){twill_candidate_cost(&e->all->candidate[i], e->bytes), i};
    qsort(ranked, takers, sizeof(*ranked), by_cost);
    twill_status status = put_ranked(e, ranked, takers);
    free(ranked);
    return status;
}

/* Print all MAPPED candidates, with their prices, with which a node whose buffers are mapped may
 * replace a chosen STAGED one. There are some only with several nodes. */
static twill_status put_instead(struct explanation *e)
{
    char name[TWILL_WHY_NAME];
    for (size_t i = 0; i < e->all->count; i++) {
        const struct twill_candidate *c = &e->all->candidate[i];
        uint64_t price;
        if (!is_instead(e, c))
            continue;
        TWILL_TRY(e->error, price_candidate(&price, e, c));
        print_why(&e->text, "instead\t%s\t%llu\n", variant_name(c->algorithm, &c->shape, name),
                  (unsigned long long)price);
    }
    return TWILL_OK;
}

/* Print the candidates that cannot be chosen for this request, and what they need. */
static void put_small(struct explanation *e)
{
    char name[TWILL_WHY_NAME];
    unsigned access = twill_request_access(e->world, e->request);
    for (size_t i = 0; i < e->all->count; i++) {
        const struct twill_candidate *c = &e->all->candidate[i];
        if (!twill_candidate_competes(c, e->bytes, access) && !is_instead(e, c))
            put_limits(&e->text, c, variant_name(c->algorithm, &c->shape, name), e->world->nodes);
    }
}

/* Print the algorithms that are no candidates, with the reason. */
static void put_others(struct explanation *e)
{
    const struct twill_algorithm *a;
    char text[256];
    for (size_t i = 0; (a = twill_algorithm_at(i)) != NULL; i++) {
        bool is_candidate = false;
        for (size_t c = 0; c < e->all->count; c++)
            is_candidate = is_candidate || e->all->candidate[c].algorithm == a;
        const char *unfit = is_candidate ? NULL : unfitness(a, e->world, e->request);
        if (!is_candidate)
            print_why(&e->text, "other\t%s\t%s\n", a->name,
                      unfit != NULL ? unfit : absence(text, sizeof(text), e, a));
    }
}

/* Print the bytes that the choice moves over each class of link, unless the world is too large. */
static twill_status put_moves(struct explanation *e, const struct twill_choice *choice)
{
    const struct twill_world *world = e->world;
    const struct twill_element_kind elements = twill_request_elements(e->request);
    uint64_t moved[TWILL_LINK_COUNT] = {0};
    for (uint32_t r = 0; r < world->size && world->size <= TWILL_WHY_MOVES; r++) {
        struct twill_schedule schedule;
        TWILL_TRY(e->error, twill_schedule_emit(&schedule, choice->algorithm, world, r,
                                                &choice->shape, e->error));
        twill_traffic_by_class(moved, &schedule, world, r,
                               e->bytes / twill_type_size(elements.type), elements);
        twill_schedule_destroy(&schedule);
    }
    for (unsigned link = 0; link < TWILL_LINK_COUNT; link++)
        if (moved[link] > 0)
            print_why(&e->text, "moves\t%s\t%llu\n",
                      twill_link_class_name((enum twill_link_class)link),
                      (unsigned long long)moved[link]);
    return TWILL_OK;
}

/* Print for an allreduce of f32 in any order whether f16, converted before and after, would be
 * faster. Print nothing for other requests. */
static twill_status put_narrowing(struct explanation *e)
{
    struct twill_narrowing f16;
    if (e->request->collective != TWILL_ALLREDUCE || e->request->type != TWILL_F32 ||
        e->request->order != TWILL_ORDER_ANY)
        return TWILL_OK;
    TWILL_TRY(e->error, twill_narrowing_pays(&f16, e->chooser, e->world, e->tuning, e->request,
                                             TWILL_F16, 0, e->error));
    print_why(&e->text, "narrow\tf16\t%llu\t%llu\t%llu\t%s\n", (unsigned long long)f16.narrow,
              (unsigned long long)f16.conversion, (unsigned long long)f16.wide,
              f16.pays ? "pays" : "does not pay");
    return TWILL_OK;
}

/* Return what the cost of the choice comes from, "the model" or the source of the measurements. */
static const char *decided_by(const struct explanation *e, const struct twill_choice *choice)
{
    for (size_t i = 0; i < e->all->count; i++) {
        const struct twill_candidate *c = &e->all->candidate[i];
        if (c->measured > 0 && c->algorithm == choice->algorithm &&
            c->shape.protocol == choice->shape.protocol)
            return e->tuning->source;
    }
    return "the model";
}

/* Print for ranks with several threads how many of them share a copy or a reduction of the choice,
 * its price, which is that with all threads, and the price of the same with one thread. */
static twill_status put_threads(struct explanation *e, const struct twill_choice *choice,
                                uint64_t price)
{
    struct twill_machine_model one = e->tuning->model;
    const struct twill_element_kind elements = twill_request_elements(e->request);
    struct twill_price_terms terms;
    uint64_t alone;
    one.threads = 1;
    if (e->tuning->model.threads <= 1 || price == TWILL_PRICE_NEVER)
        return TWILL_OK;
    TWILL_TRY(e->error, twill_price(&alone, choice->algorithm, e->world, &choice->shape, &one,
                                    e->bytes, elements, e->error));
    TWILL_TRY(e->error, twill_price_find_terms(&terms, choice->algorithm, e->world, &choice->shape,
                                               &e->tuning->model, e->bytes, elements, e->error));
    print_why(&e->text, "threads\t%llu\t%u\t%llu\t%llu\n",
              (unsigned long long)e->tuning->model.threads, terms.threads,
              (unsigned long long)price, (unsigned long long)alone);
    for (unsigned i = 0; i < TWILL_THREAD_COSTS && one.measured.steps > 1; i++)
        if (one.thread[i].copy > 0)
            print_why(&e->text, "curve\t%u\t%llu\t%llu\t%llu\n", 1u << i,
                      (unsigned long long)one.thread[i].fork,
                      (unsigned long long)one.thread[i].copy,
                      (unsigned long long)one.thread[i].reduce);
    return TWILL_OK;
}

/* Print the choice with its price, or UINT64_MAX if it has none, what decided it, and the bytes
 * that it moves. */
static twill_status put_choice(struct explanation *e, const struct twill_choice *choice,
                               const char *requested)
{
    char name[TWILL_WHY_NAME];
    uint64_t price;
    struct twill_error why = {.status = TWILL_OK};
    twill_status status =
        twill_price(&price, choice->algorithm, e->world, &choice->shape, &e->tuning->model,
                    e->bytes, twill_request_elements(e->request), &why);
    if (status != TWILL_OK && status != TWILL_ERR_UNSUPPORTED)
        return TWILL_FAIL(e->error, status, "%s", why.message);
    print_why(&e->text, "chosen\t%s\t%llu\t%s%s\n", twill_why_name(choice, name),
              (unsigned long long)price,
              requested != NULL && *requested != '\0' ? requested : "auto",
              choice->substituted ? " (which does not do this call)" : "");
    print_why(&e->text, "decided\t%s\n", decided_by(e, choice));
    TWILL_TRY(e->error, put_threads(e, choice, price));
    return put_moves(e, choice);
}

/* Print the call, the hierarchy of its world, all algorithms and the choice, which is set. */
static twill_status explain(struct explanation *e, struct twill_choice *choice,
                            const char *requested)
{
    const char *type = twill_type_name(e->request->type);
    char levels[160];
    print_why(&e->text, "call\t%s\t%zu\t%s%s\t%ux%u\t%u\t%s\n",
              twill_collective_name(e->request->collective), e->request->bytes,
              type != NULL ? type : "?", e->request->narrow ? " narrow" : "", e->world->nodes,
              twill_world_widest(e->world), e->world->size, e->tuning->model.name);
    if (twill_world_summarize(e->world, levels, sizeof(levels)))
        print_why(&e->text, "hierarchy\t%s\n", levels);
    TWILL_TRY(e->error, put_candidates(e));
    TWILL_TRY(e->error, put_instead(e));
    put_small(e);
    put_others(e);
    TWILL_TRY(e->error, twill_select(choice, e->chooser, e->request, e->error));
    TWILL_TRY(e->error, put_choice(e, choice, requested));
    return put_narrowing(e);
}

twill_status twill_why(char **text, struct twill_choice *choice, const struct twill_world *world,
                       const struct twill_tuning *tuning, const char *requested,
                       const struct twill_select_request *request, struct twill_error *error)
{
    struct explanation e = {.world = world,
                            .tuning = tuning,
                            .request = request,
                            .bytes = twill_request_bytes(world, request),
                            .error = error};
    TWILL_TRY(error, twill_chooser_create(&e.chooser, world, tuning, requested, error));
    twill_status status = twill_chooser_candidates(e.chooser, request, NULL, &e.all, error);
    if (status == TWILL_OK)
        status = explain(&e, choice, requested);
    twill_chooser_destroy(e.chooser);
    if (status == TWILL_OK && e.text.no_memory)
        status = TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory to say why");
    if (status != TWILL_OK) {
        free(e.text.text);
        e.text.text = NULL;
    }
    *text = e.text.text;
    return status;
}

/* Set in *seen the most threads that share a copy or a reduction, and the price if `taken`, the
 * candidate, is NULL. */
static void foresee_price(struct twill_foreseen *seen, const struct twill_candidate *taken,
                          const struct twill_tuning *tuning, const struct twill_world *world,
                          const struct twill_select_request *request,
                          const struct twill_choice *choice)
{
    struct twill_error ignored = {.status = TWILL_OK};
    struct twill_price_terms terms;
    const struct twill_element_kind elements = twill_request_elements(request);
    size_t bytes = twill_request_bytes(world, request);
    if (taken == NULL && twill_price(&seen->cost, choice->algorithm, world, &choice->shape,
                                     &tuning->model, bytes, elements, &ignored) != TWILL_OK)
        seen->cost = TWILL_PRICE_NEVER;
    if (tuning->model.threads > 1 &&
        twill_price_find_terms(&terms, choice->algorithm, world, &choice->shape, &tuning->model,
                               bytes, elements, &ignored) == TWILL_OK)
        seen->threads = terms.threads;
}

/* Set *seen from the candidates `all`, NULL if there are none, among which the choice may be. */
static void foresee(struct twill_foreseen *seen, const struct twill_candidates *all,
                    const struct twill_tuning *tuning, const struct twill_world *world,
                    const struct twill_select_request *request, const struct twill_choice *choice)
{
    const struct twill_candidate *taken = NULL;
    size_t size = twill_request_bytes(world, request);
    *seen = (struct twill_foreseen){TWILL_PRICE_NEVER, TWILL_PRICE_NEVER, .threads = 1};
    for (size_t i = 0; all != NULL && i < all->count; i++) {
        const struct twill_candidate *c = &all->candidate[i];
        uint64_t cost = twill_candidate_cost(c, size);
        if (twill_candidate_is(c, choice)) {
            taken = c;
            seen->cost = cost;
            seen->measured = c->measured > 0;
        } else if (twill_candidate_competes(c, size, twill_request_access(world, request)) &&
                   cost < seen->next_cost) {
            seen->next_cost = cost;
            variant_name(c->algorithm, &c->shape, seen->next);
        }
    }
    foresee_price(seen, taken, tuning, world, request, choice);
}

void twill_why_choice(struct twill_foreseen *seen, char *text, size_t bytes,
                      struct twill_chooser *chooser, const struct twill_world *world,
                      const struct twill_select_request *request, const struct twill_choice *choice)
{
    struct twill_error ignored = {.status = TWILL_OK};
    const struct twill_candidates *all;
    const struct twill_tuning *tuning = twill_chooser_tuning(chooser);
    const char *reason = choice->requested     ? "asked for by TWILL_ALGORITHM"
                         : choice->substituted ? "the cheapest, as TWILL_ALGORITHM cannot do this"
                         : request->fetch_pays ? "in a trial, or faster in one than @staged"
                                               : "the cheapest";
    size_t used = (size_t)snprintf(text, bytes, "%s", reason);
    if (twill_chooser_candidates(chooser, request, NULL, &all, &ignored) != TWILL_OK)
        all = NULL;
    foresee(seen, all, tuning, world, request, choice);
    if (seen->cost != TWILL_PRICE_NEVER && used < bytes)
        used += (size_t)twill_print(
            text + used, bytes - used, ": %.4g us %s, machine %s", (double)seen->cost * 1e-6,
            seen->measured ? "as measured" : "by the model", tuning->model.name);
    if (seen->next_cost != TWILL_PRICE_NEVER && used < bytes)
        twill_print(text + used, bytes - used, "; next is %s: %.4g us", seen->next,
                    (double)seen->next_cost * 1e-6);
}

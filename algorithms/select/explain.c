/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/select/explain.h"
#include "algorithms/schedule/traffic.h"
#include "algorithms/select/candidates.h"
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

/* Return the reason why an algorithm is not a candidate, as a constant text. */
static const char *reason(const struct twill_algorithm *a, const struct twill_world *world,
                          const struct twill_select_request *request)
{
    struct twill_shape shape = {
        .collective = request->collective, .vector = request->vector, .order = request->order};
    if ((a->collectives >> request->collective & 1) == 0)
        return "does not do this collective";
    if (takes_in_any_protocol(a, world, shape))
        return "the same schedule here as another";
    shape.vector = false;
    if (takes_in_any_protocol(a, world, shape))
        return "not with shards of different sizes";
    shape.vector = request->vector;
    shape.order = TWILL_ORDER_ANY;
    if (takes_in_any_protocol(a, world, shape))
        return "cannot keep this order of operands";
    return world->nodes == 1 ? "not on one node" : "not on these nodes and ranks";
}

/* Return whether a node whose buffers are mapped may run this MAPPED candidate in place of a chosen
 * one with STAGED, as map_instead() permits. `bytes` is the size of the message. */
static bool is_instead(const struct twill_candidate *c, const struct twill_world *world,
                       const struct twill_select_request *request, size_t bytes)
{
    return world->nodes > 1 && request->mapped && c->shape.protocol == TWILL_PROTOCOL_MAPPED &&
           bytes >= c->least && bytes <= c->most;
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

/* Print the candidates that compete for this request, the cheapest first, with their prices. */
static twill_status put_candidates(struct writer *w, const struct twill_world *world,
                                   const struct twill_tuning *tuning,
                                   const struct twill_candidates *all,
                                   const struct twill_select_request *request,
                                   struct twill_error *error)
{
    char name[TWILL_WHY_NAME];
    size_t bytes = twill_request_bytes(world, request), takers = 0;
    unsigned access = twill_request_access(world, request);
    struct ranked *ranked = calloc(all->count + 1, sizeof(*ranked));
    if (ranked == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory to say why");
    for (size_t i = 0; i < all->count; i++)
        if (twill_candidate_competes(&all->candidate[i], bytes, access))
            ranked[takers++] = (struct ranked){twill_candidate_cost(&all->candidate[i], bytes), i};
    qsort(ranked, takers, sizeof(*ranked), by_cost);
    twill_status status = TWILL_OK;
    for (size_t i = 0; i < takers && status == TWILL_OK; i++) {
        const struct twill_candidate *c = &all->candidate[ranked[i].index];
        uint64_t price;
        status = twill_price(&price, c->algorithm, world, &c->shape, &tuning->model, bytes,
                             all->elements, error);
        print_why(w, "candidate\t%s\t%llu\t%llu\t%zu\n",
                  variant_name(c->algorithm, &c->shape, name), (unsigned long long)price,
                  (unsigned long long)ranked[i].cost, c->measured);
    }
    free(ranked);
    return status;
}

/* Print all MAPPED candidates, with their prices, with which a node whose buffers are mapped may
 * replace a chosen STAGED one. There are some only with several nodes. */
static twill_status put_instead(struct writer *w, const struct twill_world *world,
                                const struct twill_tuning *tuning,
                                const struct twill_candidates *all,
                                const struct twill_select_request *request,
                                struct twill_error *error)
{
    char name[TWILL_WHY_NAME];
    size_t bytes = twill_request_bytes(world, request);
    for (size_t i = 0; i < all->count; i++) {
        const struct twill_candidate *c = &all->candidate[i];
        uint64_t price;
        if (!is_instead(c, world, request, bytes))
            continue;
        TWILL_TRY(error, twill_price(&price, c->algorithm, world, &c->shape, &tuning->model, bytes,
                                     all->elements, error));
        print_why(w, "instead\t%s\t%llu\n", variant_name(c->algorithm, &c->shape, name),
                  (unsigned long long)price);
    }
    return TWILL_OK;
}

/* Print the candidates that cannot be chosen for this request, and what they need. */
static void put_small(struct writer *w, const struct twill_world *world,
                      const struct twill_candidates *all,
                      const struct twill_select_request *request)
{
    char name[TWILL_WHY_NAME];
    size_t bytes = twill_request_bytes(world, request);
    unsigned access = twill_request_access(world, request);
    for (size_t i = 0; i < all->count; i++) {
        const struct twill_candidate *c = &all->candidate[i];
        if (!twill_candidate_competes(c, bytes, access) && !is_instead(c, world, request, bytes))
            put_limits(w, c, variant_name(c->algorithm, &c->shape, name), world->nodes);
    }
}

/* Print the algorithms that are no candidates, with the reason. */
static void put_others(struct writer *w, const struct twill_world *world,
                       const struct twill_candidates *all,
                       const struct twill_select_request *request)
{
    const struct twill_algorithm *a;
    for (size_t i = 0; (a = twill_algorithm_at(i)) != NULL; i++) {
        bool is_candidate = false;
        for (size_t c = 0; c < all->count; c++)
            is_candidate = is_candidate || all->candidate[c].algorithm == a;
        if (!is_candidate)
            print_why(w, "other\t%s\t%s\n", a->name, reason(a, world, request));
    }
}

/* Print the bytes that the choice moves over each class of link, unless the world is too large. */
static twill_status put_moves(struct writer *w, const struct twill_world *world,
                              const struct twill_choice *choice, size_t bytes,
                              struct twill_element_kind elements, struct twill_error *error)
{
    uint64_t moved[TWILL_LINK_COUNT] = {0};
    for (uint32_t r = 0; r < world->size && world->size <= TWILL_WHY_MOVES; r++) {
        struct twill_schedule schedule;
        TWILL_TRY(error, twill_schedule_emit(&schedule, choice->algorithm, world, r, &choice->shape,
                                             error));
        twill_traffic_by_class(moved, &schedule, world, r, bytes / twill_type_size(elements.type),
                               elements);
        twill_schedule_destroy(&schedule);
    }
    for (unsigned link = 0; link < TWILL_LINK_COUNT; link++)
        if (moved[link] > 0)
            print_why(w, "moves\t%s\t%llu\n", twill_link_class_name((enum twill_link_class)link),
                      (unsigned long long)moved[link]);
    return TWILL_OK;
}

/* Print for an allreduce of f32 in any order whether f16, converted before and after, would be
 * faster. Print nothing for other requests. */
static twill_status put_narrowing(struct writer *w, struct twill_chooser *chooser,
                                  const struct twill_world *world,
                                  const struct twill_tuning *tuning,
                                  const struct twill_select_request *request,
                                  struct twill_error *error)
{
    struct twill_narrowing f16;
    if (request->collective != TWILL_ALLREDUCE || request->type != TWILL_F32 ||
        request->order != TWILL_ORDER_ANY)
        return TWILL_OK;
    TWILL_TRY(error,
              twill_narrowing_pays(&f16, chooser, world, tuning, request, TWILL_F16, 0, error));
    print_why(w, "narrow\tf16\t%llu\t%llu\t%llu\t%s\n", (unsigned long long)f16.narrow,
              (unsigned long long)f16.conversion, (unsigned long long)f16.wide,
              f16.pays ? "pays" : "does not pay");
    return TWILL_OK;
}

/* Return what the cost of the choice comes from, "the model" or the source of the measurements. */
static const char *decided_by(const struct twill_candidates *all, const struct twill_choice *choice,
                              const struct twill_tuning *tuning)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->candidate[i].measured > 0 && all->candidate[i].algorithm == choice->algorithm &&
            all->candidate[i].shape.protocol == choice->shape.protocol)
            return tuning->source;
    return "the model";
}

/* Print the choice with its price, what decided it, and the bytes that it moves. */
static twill_status put_choice(struct writer *w, const struct twill_choice *choice,
                               const struct twill_world *world, const struct twill_candidates *all,
                               const struct twill_tuning *tuning, const char *requested,
                               const struct twill_select_request *request,
                               struct twill_error *error)
{
    char name[96];
    uint64_t price;
    TWILL_TRY(error, twill_price(&price, choice->algorithm, world, &choice->shape, &tuning->model,
                                 twill_request_bytes(world, request),
                                 twill_request_elements(request), error));
    print_why(w, "chosen\t%s\t%llu\t%s%s\n", variant_name(choice->algorithm, &choice->shape, name),
              (unsigned long long)price,
              requested != NULL && *requested != '\0' ? requested : "auto",
              choice->substituted ? " (which does not do this call)" : "");
    print_why(w, "decided\t%s\n", decided_by(all, choice, tuning));
    return put_moves(w, world, choice, twill_request_bytes(world, request),
                     twill_request_elements(request), error);
}

twill_status twill_why(char **text, struct twill_choice *choice, const struct twill_world *world,
                       const struct twill_tuning *tuning, const char *requested,
                       const struct twill_select_request *request, struct twill_error *error)
{
    struct writer w = {.no_memory = false};
    struct twill_chooser *chooser;
    const struct twill_candidates *all;
    const char *type = twill_type_name(request->type);
    char levels[160];
    TWILL_TRY(error, twill_chooser_create(&chooser, world, tuning, requested, error));
    twill_status status = twill_chooser_candidates(chooser, request, NULL, &all, error);
    if (status == TWILL_OK) {
        print_why(&w, "call\t%s\t%zu\t%s%s\t%ux%u\t%u\t%s\n",
                  twill_collective_name(request->collective), request->bytes,
                  type != NULL ? type : "?", request->narrow ? " narrow" : "", world->nodes,
                  twill_world_widest(world), world->size, tuning->model.name);
        if (twill_world_summarize(world, levels, sizeof(levels)))
            print_why(&w, "hierarchy\t%s\n", levels);
        status = put_candidates(&w, world, tuning, all, request, error);
        if (status == TWILL_OK)
            status = put_instead(&w, world, tuning, all, request, error);
        put_small(&w, world, all, request);
        put_others(&w, world, all, request);
    }
    if (status == TWILL_OK)
        status = twill_select(choice, chooser, request, error);
    if (status == TWILL_OK)
        status = put_choice(&w, choice, world, all, tuning, requested, request, error);
    if (status == TWILL_OK)
        status = put_narrowing(&w, chooser, world, tuning, request, error);
    twill_chooser_destroy(chooser);
    if (status == TWILL_OK && w.no_memory)
        status = TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory to say why");
    if (status != TWILL_OK) {
        free(w.text);
        w.text = NULL;
    }
    *text = w.text;
    return status;
}

void twill_why_choice(char *text, size_t bytes, struct twill_chooser *chooser,
                      const struct twill_world *world, const struct twill_tuning *tuning,
                      const struct twill_select_request *request, const struct twill_choice *choice)
{
    struct twill_error ignored = {.status = TWILL_OK};
    const struct twill_candidates *all;
    const struct twill_candidate *taken = NULL, *next = NULL;
    char name[TWILL_WHY_NAME];
    size_t size = twill_request_bytes(world, request);
    size_t used =
        (size_t)snprintf(text, bytes, "%s, %s", twill_why_name(choice, name),
                         choice->requested ? "asked for by TWILL_ALGORITHM" : "the cheapest");
    if (twill_chooser_candidates(chooser, request, NULL, &all, &ignored) != TWILL_OK)
        return;
    for (size_t i = 0; i < all->count; i++) {
        const struct twill_candidate *c = &all->candidate[i];
        if (twill_candidate_is(c, choice))
            taken = c;
        else if (twill_candidate_competes(c, size, twill_request_access(world, request)) &&
                 (next == NULL || twill_candidate_cost(c, size) < twill_candidate_cost(next, size)))
            next = c;
    }
    if (taken != NULL && used < bytes)
        used += (size_t)twill_print(text + used, bytes - used, ": %.4g us %s, machine %s",
                                    (double)twill_candidate_cost(taken, size) * 1e-6,
                                    taken->measured > 0 ? "as measured" : "by the model",
                                    tuning->model.name);
    if (next != NULL && used < bytes)
        twill_print(text + used, bytes - used, "; next is %s: %.4g us",
                    variant_name(next->algorithm, &next->shape, name),
                    (double)twill_candidate_cost(next, size) * 1e-6);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the algorithm of a call, which is that of the user override, else the cheapest candidate.
 * It uses only what all ranks know, and nothing that they could round differently, so that all
 * ranks choose alike. There are no thresholds. At every size the curves of all candidates are
 * compared. The curves are continuous, hence so is the least cost, except where a candidate starts
 * or ceases to apply (IMM, MAPPED). */
#include "algorithms/select/candidates.h"
#include "lib/base/plural.h"

#include <stdlib.h>
#include <string.h>

/* Numbers of requests that are decided early, of a kind and of all. With more, tables are made. */
enum { TABLES = 32, EARLY_OF_KIND = 8, EARLY = 64 };

/* TWILL_MAPPED_BYTES for each rank's part if ranks share cores and nothing is reduced. Then the
 * exchange of addresses and the meeting at the end take switches between ranks, of 2 us each, and
 * copies need none. */
#define CROWDED_BYTES ((size_t)32 << 10)

/* Bytes of a shard whose copies take as long as one more meeting of the ranks. */
#define FETCH_SAVES ((size_t)8 << 10)

/* A request of a chooser, and its choice if that could be decided without all candidates. */
struct early {
    struct twill_select_request request;
    struct twill_choice choice; /* algorithm and shape only */
    bool decided;               /* `choice` is the choice, else all candidates must decide */
};

/* Chooses algorithms for one world, and keeps what it has computed. Made by twill_chooser_create(),
 * freed by twill_chooser_destroy(). Used by one thread at a time. */
struct twill_chooser {
    const struct twill_world *world;
    const struct twill_tuning *tuning;
    struct twill_tuning *own;    /* made here if none was given */
    struct twill_tuning changed; /* copy for ranks that share cores or have threads */
    char *requested;
    struct twill_override *overrides;
    size_t override_count;
    struct twill_price_records records; /* shared with other ranks, `ask` is NULL if not */
    struct early early[EARLY];
    unsigned early_count;
    struct twill_candidates *table[TABLES]; /* most recently used first */
    /* The last two questions of twill_mapping_matters(), as calls often alternate. */
    struct {
        struct twill_select_request request;
        bool known;
        unsigned matters;
    } query[2];
    unsigned queries; /* put in query[queries % 2] */
};

twill_status twill_chooser_create(struct twill_chooser **chooser, const struct twill_world *world,
                                  const struct twill_tuning *tuning, const char *requested,
                                  struct twill_error *error)
{
    twill_status status = TWILL_ERR_MEMORY;
    struct twill_chooser *c = *chooser = calloc(1, sizeof(*c));
    if (c == NULL)
        return TWILL_FAIL(error, status, "out of memory for the choice of algorithms");
    c->world = world;
    c->tuning = tuning;
    if (tuning == NULL) {
        TWILL_TRY_OR_FAIL(error, twill_tuning_create(&c->own, NULL, NULL, NULL, error));
        c->tuning = c->own;
    }
    if (requested != NULL) {
        c->requested = strdup(requested);
        status = TWILL_ERR_MEMORY;
        if (c->requested == NULL) {
            TWILL_FAIL(error, status, "out of memory for the choice of algorithms");
            goto fail;
        }
        TWILL_TRY_OR_FAIL(
            error, twill_overrides_parse(&c->overrides, &c->override_count, c->requested, error));
    }
    return TWILL_OK;
fail:
    twill_chooser_destroy(c);
    *chooser = NULL;
    return status;
}

void twill_chooser_destroy(struct twill_chooser *chooser)
{
    if (chooser == NULL)
        return;
    for (unsigned i = 0; i < TABLES; i++)
        twill_candidates_destroy(chooser->table[i]);
    twill_tuning_destroy(chooser->own);
    free(chooser->overrides);
    free(chooser->requested);
    free(chooser);
}

void twill_chooser_share(struct twill_chooser *chooser, const struct twill_price_records *records)
{
    chooser->records = *records;
}

/* Return the machine model of the chooser, to be changed. It becomes a copy, in a tuning whose
 * measurements another one owns. */
static struct twill_machine_model *change_model(struct twill_chooser *chooser)
{
    if (chooser->tuning != &chooser->changed)
        chooser->changed = *chooser->tuning;
    chooser->tuning = &chooser->changed;
    return &chooser->changed.model;
}

void twill_chooser_crowd(struct twill_chooser *chooser, uint32_t ranks)
{
    if (ranks > 1)
        change_model(chooser)->crowd = ranks;
}

void twill_chooser_threads(struct twill_chooser *chooser, uint32_t threads,
                           const struct twill_thread_rates *rates)
{
    if (threads <= 1)
        return;
    struct twill_machine_model *model = change_model(chooser);
    model->threads = threads;
    if (rates != NULL)
        twill_machine_model_measure(model, rates);
}

const struct twill_tuning *twill_chooser_tuning(const struct twill_chooser *chooser)
{
    return chooser->tuning;
}

/* Return whether a table has the candidates for requests like this one, of the algorithm `only`, or
 * of all if that is NULL. The collective, `vector`, the order and the kind of elements must be
 * equal. Size, root and buffers do not matter. */
static bool is_table_for(const struct twill_candidates *table,
                         const struct twill_select_request *request,
                         const struct twill_algorithm *only)
{
    return table->only == only && table->collective == request->collective &&
           table->vector == request->vector && table->order == request->order &&
           table->elements.type == request->type && table->elements.narrow == request->narrow;
}

/* Return a copy of the request, which is equal for requests that have the same choice. If the
 * collective reduces nothing, so that the elements do not matter, the copy has the type TWILL_U8
 * and is not `narrow`. */
static struct twill_select_request like_of(const struct twill_select_request *request)
{
    struct twill_select_request like = *request;
    like.fetch_pays = false;                                     /* decides after the choice */
    if (!twill_collective_facts(request->collective)->reduces) { /* the elements do not matter */
        like.type = TWILL_U8;
        like.narrow = false;
    }
    return like;
}

/* Return the place of the table for requests like this one, of the algorithm `only`, or where it
 * would be made. */
static unsigned table_place(const struct twill_chooser *chooser,
                            const struct twill_select_request *like,
                            const struct twill_algorithm *only)
{
    unsigned i = 0;
    while (i < TABLES - 1 && chooser->table[i] != NULL &&
           !is_table_for(chooser->table[i], like, only))
        i++;
    return i;
}

twill_status twill_chooser_candidates(struct twill_chooser *chooser,
                                      const struct twill_select_request *request,
                                      const struct twill_algorithm *only,
                                      const struct twill_candidates **candidates,
                                      struct twill_error *error)
{
    struct twill_select_request like = like_of(request);
    unsigned i = table_place(chooser, &like, only);
    struct twill_candidates *found = chooser->table[i];
    if (found == NULL || !is_table_for(found, &like, only)) {
        TWILL_TRY(error, twill_candidates_create(
                             &found, chooser->world, chooser->tuning, &like, only,
                             chooser->records.ask != NULL ? &chooser->records : NULL, error));
        twill_candidates_destroy(chooser->table[i]); /* least recently used */
    }
    memmove(&chooser->table[1], &chooser->table[0], i * sizeof(chooser->table[0]));
    chooser->table[0] = found;
    *candidates = found;
    return TWILL_OK;
}

/* Choose without all candidates, in a fraction of the time. Sets *decided to whether that was
 * possible. If so, *choice is set. Remembers the choice for equal requests. */
static twill_status choose_early(struct twill_choice *choice, bool *decided,
                                 struct twill_chooser *chooser,
                                 const struct twill_select_request *request,
                                 struct twill_error *error)
{
    struct twill_select_request like = like_of(request);
    struct early *early = chooser->early, *end = early + chooser->early_count;
    const struct twill_candidates *table = chooser->table[table_place(chooser, &like, NULL)];
    unsigned of_kind = 0;
    for (; early < end && !twill_requests_match(&early->request, &like); early++) {
        struct twill_select_request same = early->request;
        same.bytes = like.bytes;
        same.root = like.root;
        of_kind += twill_requests_match(&same, &like);
    }
    bool known = table != NULL && is_table_for(table, &like, NULL);
    *decided = false;
    if (early == end && (known || of_kind == EARLY_OF_KIND || chooser->early_count == EARLY))
        return TWILL_OK;
    if (early == end) {
        *early = (struct early){.request = like, .choice = *choice};
        TWILL_TRY(error, twill_choose_early(&early->choice, &early->decided, chooser->world,
                                            chooser->tuning, &like,
                                            chooser->records.ask != NULL ? &chooser->records : NULL,
                                            error));
        chooser->early_count++;
    }
    *decided = early->decided;
    if (*decided)
        *choice = early->choice;
    return TWILL_OK;
}

/* Replace a staged choice by its mapped variant if that is cheaper. Nodes may differ in whether
 * their buffers are mapped but must exchange the same messages. With several nodes the choice is
 * therefore made as if nothing were mapped, and then changed within the node only. */
static void map_instead(struct twill_choice *choice, const struct twill_candidate *staged,
                        const struct twill_candidates *all,
                        const struct twill_select_request *request)
{
    for (size_t i = 0; i < all->count; i++) {
        const struct twill_candidate *c = &all->candidate[i];
        bool twin =
            c->algorithm == staged->algorithm && c->shape.protocol == TWILL_PROTOCOL_MAPPED &&
            memcmp(c->shape.parameter, staged->shape.parameter, sizeof(c->shape.parameter)) == 0;
        if (twin && twill_candidate_takes(c, request->bytes, TWILL_ACCESS_MAPPED) &&
            twill_candidate_cost(c, request->bytes) < twill_candidate_cost(staged, request->bytes))
            choice->shape.protocol = TWILL_PROTOCOL_MAPPED;
    }
}

/* Choose the cheapest candidate, of `algorithm` unless that is NULL. On one of several nodes, if it
 * is STAGED and buffers are mapped, it becomes MAPPED if that is cheaper. Returns false if none
 * fits, and then leaves *choice as it is. */
static bool choose_cheapest(struct twill_choice *choice, const struct twill_world *world,
                            const struct twill_candidates *all,
                            const struct twill_algorithm *algorithm,
                            const struct twill_select_request *request)
{
    size_t bytes = twill_request_bytes(world, request);
    uint64_t least = TWILL_PRICE_NEVER;
    const struct twill_candidate *cheapest = NULL;
    for (size_t i = 0; i < all->count; i++) {
        const struct twill_candidate *c = &all->candidate[i];
        unsigned access = twill_request_access(world, request);
        if (algorithm == NULL
                ? !twill_candidate_competes(c, bytes, access)
                : c->algorithm != algorithm || !twill_candidate_takes(c, bytes, access))
            continue;
        uint64_t cost = twill_candidate_cost(c, bytes);
        if (cost >= least)
            continue;
        struct twill_shape shape = c->shape;
        shape.root = request->root;
        if (request->root != 0 && !twill_algorithm_applies(c->algorithm, world, &shape))
            continue;
        least = cost;
        cheapest = c;
        choice->algorithm = c->algorithm;
        choice->shape = shape;
    }
    if (cheapest != NULL && request->mapped && world->nodes > 1 &&
        cheapest->algorithm->protocols != 0 && cheapest->shape.protocol == TWILL_PROTOCOL_STAGED)
        map_instead(choice, cheapest, all, request);
    return cheapest != NULL;
}

/* Return TWILL_ERR_CONFIG with a message that says `why` the override fails, and lists the
 * algorithms that apply to the collective in this world. */
static twill_status refuse_choice(const struct twill_override *override,
                                  const struct twill_world *world, enum twill_collective collective,
                                  const char *why, struct twill_error *error)
{
    char names[400] = "";
    const struct twill_algorithm *a;
    for (size_t i = 0; (a = twill_algorithm_at(i)) != NULL; i++) {
        struct twill_shape any = {.collective = collective};
        bool applies = false;
        for (unsigned f = 0; f < TWILL_PROTOCOL_COUNT; f++) {
            any.protocol = (enum twill_protocol)f;
            applies = applies || twill_algorithm_applies(a, world, &any);
        }
        if (applies)
            twill_text_list(names, sizeof(names), a->name);
    }
    return TWILL_FAIL(
        error, TWILL_ERR_CONFIG,
        "TWILL_ALGORITHM: \"%.*s\" %s; for %s with %u rank%s on %u node%s there are: %s",
        override->length, override->text, why, twill_collective_name(collective), world->size,
        TWILL_PLURAL(world->size), world->nodes, TWILL_PLURAL(world->nodes), names);
}

/* Return whether the message size and the buffers suit the protocol. The limits of FLAT and MAPPED
 * are close to where the prices of "direct" cross, with 2 to 128 ranks on a node. */
static bool protocol_suits(enum twill_protocol protocol, const struct twill_world *world,
                           const struct twill_select_request *request)
{
    const struct twill_collective_facts *facts = twill_collective_facts(request->collective);
    size_t bytes = twill_request_bytes(world, request);
    if (protocol == TWILL_PROTOCOL_IMM)
        return bytes <= twill_imm_most(world, request);
    if (protocol == TWILL_PROTOCOL_FLAT)
        return bytes <= twill_max((size_t)2048, ((size_t)32 << 10) / twill_world_widest(world));
    if (protocol == TWILL_PROTOCOL_MAPPED)
        return request->mapped &&
               bytes >= (facts->reduces && !facts->sharded ? TWILL_MAPPED_BYTES : (size_t)32 << 10);
    return true;
}

/* Set the protocol of the choice to the first of IMM, FLAT, MAPPED and STAGED that suits size and
 * buffers. The algorithm of the override must support it for this shape. If there is none, set it
 * to FLAT, and return whether the algorithm supports that. Else return true. */
static bool choose_protocol(struct twill_choice *choice, const struct twill_override *override,
                            const struct twill_world *world,
                            const struct twill_select_request *request)
{
    static const enum twill_protocol order[] = {TWILL_PROTOCOL_IMM, TWILL_PROTOCOL_FLAT,
                                                TWILL_PROTOCOL_MAPPED, TWILL_PROTOCOL_STAGED};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(order); i++) {
        choice->shape.protocol = order[i];
        if (protocol_suits(order[i], world, request) &&
            twill_algorithm_applies(override->algorithm, world, &choice->shape))
            return true;
    }
    choice->shape.protocol = TWILL_PROTOCOL_FLAT;
    return twill_algorithm_applies(override->algorithm, world, &choice->shape);
}

/* Return whether the algorithm of the override does the collective in its simplest form (root 0,
 * equal shards, any order), with the protocol of the override, or any. */
static bool does_at_all(const struct twill_override *override, const struct twill_world *world,
                        enum twill_collective collective)
{
    struct twill_shape plain = {.collective = collective};
    memcpy(plain.parameter, override->parameter, sizeof(plain.parameter));
    for (unsigned f = 0; f < TWILL_PROTOCOL_COUNT; f++) {
        plain.protocol = (enum twill_protocol)f;
        if ((override->protocol < 0 || override->protocol == (int)f) &&
            twill_algorithm_applies(override->algorithm, world, &plain))
            return true;
    }
    return false;
}

/* Return whether the override names parameters. If it names none, all are 0. */
static bool has_parameters(const struct twill_override *override)
{
    static const uint16_t none[TWILL_PARAMETERS];
    return memcmp(override->parameter, none, sizeof(none)) != 0;
}

/* Choose the algorithm that an override names. Returns TWILL_PENDING if it does not do this call,
 * or TWILL_ERR_CONFIG if it never does the collective or its protocol cannot be used here. */
static twill_status apply_choice(struct twill_choice *choice, struct twill_chooser *chooser,
                                 const struct twill_override *override,
                                 const struct twill_select_request *request,
                                 struct twill_error *error)
{
    const struct twill_candidates *all;
    const struct twill_world *world = chooser->world;
    size_t bytes = twill_request_bytes(world, request);
    bool protocols = override->algorithm->protocols != 0 && request->collective != TWILL_BARRIER;
    if (!does_at_all(override, world, request->collective))
        return refuse_choice(override, world, request->collective, "does not apply", error);
    if (override->protocol < 0 && !has_parameters(override) &&
        (protocols || override->algorithm->parameters > 0) &&
        twill_candidates_are_measured(world, chooser->tuning, request, override->algorithm)) {
        TWILL_TRY(error,
                  twill_chooser_candidates(chooser, request, override->algorithm, &all, error));
        if (choose_cheapest(choice, world, all, override->algorithm, request))
            return TWILL_OK;
    }
    choice->algorithm = override->algorithm;
    memcpy(choice->shape.parameter, override->parameter, sizeof(choice->shape.parameter));
    if (override->protocol < 0)
        return choose_protocol(choice, override, world, request) ? TWILL_OK : TWILL_PENDING;
    choice->shape.protocol = (enum twill_protocol) override->protocol;
    if (!twill_algorithm_applies(choice->algorithm, world, &choice->shape))
        return TWILL_PENDING;
    if (protocols && override->protocol == TWILL_PROTOCOL_IMM &&
        bytes > twill_imm_most(world, request))
        return refuse_choice(override, world, request->collective,
                             "@imm takes at most " TWILL_TEXT_OF(TWILL_IMM_BYTES) " bytes", error);
    bool unmapped = protocols && override->protocol == TWILL_PROTOCOL_MAPPED && !request->mapped;
    bool unfetched = protocols && override->protocol == TWILL_PROTOCOL_FETCHED && !request->fetched;
    bool alone = world->size == 1; /* there is no memory of peers */
    if ((unmapped && world->nodes > 1) || ((unmapped || unfetched) && alone)) {
        choice->shape.protocol = TWILL_PROTOCOL_STAGED; /* other nodes may have mapped buffers */
        return twill_algorithm_applies(choice->algorithm, world, &choice->shape) ? TWILL_OK
                                                                                 : TWILL_PENDING;
    }
    if (unmapped)
        return refuse_choice(override, world, request->collective,
                             "@mapped needs buffers from twill_alloc on all ranks", error);
    if (unfetched)
        return refuse_choice(override, world, request->collective,
                             "@fetched needs peers whose memory can be read (TWILL_TUNE=reach)",
                             error);
    return TWILL_OK;
}

bool twill_fetch_is_tried(const struct twill_select_request *request, uint32_t size)
{
    const struct twill_collective_facts *facts = twill_collective_facts(request->collective);
    size_t shard = request->bytes / (facts->sharded ? size : 1);
    return !facts->reduces && !request->vector && shard >= TWILL_FETCH_TRIED_LEAST &&
           shard < TWILL_FETCH_TRIED_MOST;
}

bool twill_fetch_pays(uint64_t staged, uint64_t fetched, size_t shard)
{
    uint64_t meeting = staged * FETCH_SAVES / twill_max(shard, FETCH_SAVES);
    return staged > 0 && fetched > 0 && fetched + staged / 32 + meeting < staged;
}

/* If a trial prefers FETCHED, use it instead of STAGED in a choice that the user has not made. */
static void fetch_instead(struct twill_choice *choice, const struct twill_chooser *chooser,
                          const struct twill_select_request *request)
{
    struct twill_shape fetched = choice->shape;
    fetched.protocol = TWILL_PROTOCOL_FETCHED;
    if (request->fetch_pays && request->fetched && !choice->requested &&
        twill_fetch_is_tried(request, chooser->world->size) && choice->algorithm->protocols != 0 &&
        choice->shape.protocol == TWILL_PROTOCOL_STAGED &&
        twill_algorithm_applies(choice->algorithm, chooser->world, &fetched))
        choice->shape = fetched;
}

twill_status twill_select(struct twill_choice *choice, struct twill_chooser *chooser,
                          const struct twill_select_request *request, struct twill_error *error)
{
    const struct twill_candidates *all;
    const struct twill_override *override = twill_override_find(
        chooser->overrides, chooser->override_count, request->collective, request->bytes);
    *choice = (struct twill_choice){.shape = {.collective = request->collective,
                                              .root = request->root,
                                              .vector = request->vector,
                                              .order = request->order}};
    if (override != NULL && override->algorithm != NULL) {
        twill_status status = apply_choice(choice, chooser, override, request, error);
        choice->requested = status == TWILL_OK;
        if (status != TWILL_PENDING)
            return status;
    }
    bool found;
    TWILL_TRY(error, choose_early(choice, &found, chooser, request, error));
    if (!found) {
        TWILL_TRY(error, twill_chooser_candidates(chooser, request, NULL, &all, error));
        found = choose_cheapest(choice, chooser->world, all, NULL, request);
    }
    choice->substituted = override != NULL && override->algorithm != NULL;
    if (found)
        fetch_instead(choice, chooser, request);
    return found ? TWILL_OK
                 : TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED,
                              "no algorithm does %s%s in this order with %u rank%s on %u node%s",
                              twill_collective_name(request->collective),
                              request->vector ? " with shards of different sizes" : "",
                              chooser->world->size, TWILL_PLURAL(chooser->world->size),
                              chooser->world->nodes, TWILL_PLURAL(chooser->world->nodes));
}

/* Return the access (enum twill_access) that the choice for this request uses. It is 0 if it uses
 * none, or there is no choice because of an error. */
static unsigned access_used(struct twill_chooser *chooser,
                            const struct twill_select_request *request)
{
    struct twill_choice choice;
    struct twill_error ignored = {.status = TWILL_OK};
    /* The twill_select() of the caller reports the error. */
    if (twill_select(&choice, chooser, request, &ignored) != TWILL_OK)
        return 0;
    return twill_shape_needs(choice.algorithm, &choice.shape);
}

/* Return whether the parts of a request are so small that copies cost less than meetings of ranks
 * that share cores, unless the user chooses the algorithm. */
static bool is_better_copied(const struct twill_chooser *chooser,
                             const struct twill_select_request *request)
{
    const struct twill_collective_facts *facts = twill_collective_facts(request->collective);
    size_t parts = facts->sharded ? chooser->world->size : 1;
    const struct twill_override *override = twill_override_find(
        chooser->overrides, chooser->override_count, request->collective, request->bytes);
    return chooser->tuning->model.crowd > 1 && !facts->reduces &&
           request->bytes < parts * CROWDED_BYTES &&
           (override == NULL || override->algorithm == NULL);
}

unsigned twill_mapping_matters(struct twill_chooser *chooser,
                               const struct twill_select_request *request)
{
    struct twill_select_request with = *request;
    if (request->bytes < TWILL_MAPPED_BYTES || is_better_copied(chooser, request))
        return 0;
    for (unsigned i = 0; i < 2; i++)
        if (chooser->query[i].known && twill_requests_match(&chooser->query[i].request, request))
            return chooser->query[i].matters;
    with.mapped = true;
    unsigned matters = access_used(chooser, &with);
    with.mapped = false;
    if (request->fetched)
        matters |= access_used(chooser, &with);
    with.fetch_pays =
        chooser->tuning->model.crowd <= 1 && twill_fetch_is_tried(request, chooser->world->size);
    if ((matters & TWILL_ACCESS_FETCHED) == 0 && request->fetched && with.fetch_pays &&
        access_used(chooser, &with) == TWILL_ACCESS_FETCHED)
        matters |= TWILL_ACCESS_FETCHED | TWILL_ACCESS_TRIED;
    unsigned at = chooser->queries++ % 2;
    chooser->query[at].request = *request;
    chooser->query[at].known = true;
    chooser->query[at].matters = matters;
    return matters;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Imports optimizer state. From tables of what ranks bring and need, each knows what to send. */
#include "lib/base/plural.h"
#include "lib/train/optimizer/update_internal.h"

#include <stdlib.h>
#include <string.h>

/* The residual that rank `rank` of a job of `ranks` ranks has exported. It lies in that export. */
struct residual_of {
    const unsigned char *data; /* NULL if it had none */
    uint32_t rank, ranks;
};

/* The residuals in the exports that this rank passes to an import. A part of struct state_import.
 * read_residual() allocates `list`, and close_import() frees it. */
struct residuals {
    struct residual_of *list;
    size_t count;
};

/* A rank's declaration to all, before anything moves. Sent as it lies in memory. A struct
 * state_import has this rank's and those of all ranks. */
struct import_offer {
    uint64_t brings, needs; /* number of ranges */
    uint64_t steps;         /* steps of its exports, or NO_STEPS if it has none */
    uint64_t failed;        /* nonzero if its own exports cannot be imported */
};
#define NO_STEPS UINT64_MAX

/* A range that a rank brings, in a list of one import that is equal on all ranks. */
struct import_source {
    struct twill_state_range range;
    uint32_t rank, index; /* the rank that brings it, and its number among that rank's ranges */
};

/* A range of a tensor's elements whose optimizer state moves from one rank to another, in the list
 * of one import. Each of the first `arrays` arrays of the state moves. */
struct import_move {
    uint32_t from, to;                /* ranks */
    uint32_t source, dest;            /* indices in what these ranks bring and need */
    size_t source_at, dest_at, count; /* the first element in each of these ranges, and how many */
    uint32_t arrays;
};

/* One import, on the stack of twill_state_import(). open_import() and later functions fill it in,
 * close_import() frees the members. */
struct state_import {
    struct twill_gradients *set;
    twill_comm *comm;
    uint32_t size, rank;
    struct twill_state_range *brings;           /* [offer.brings] this rank's ranges */
    const unsigned char **data;                 /* arrays of each of these */
    struct twill_state_place *places;           /* [offer.needs] */
    struct import_offer offer, *offers;         /* [size] */
    struct twill_state_range *brought, *needed; /* of all ranks, in rank order */
    struct import_source *source;               /* [sources] by tensor and first element */
    size_t sources;
    uint64_t longest;         /* most elements of a source */
    struct import_move *move; /* [moves] in which this rank takes part */
    size_t moves, moves_held;
    struct residuals residuals; /* that this rank brings */
};

/* A rank's residual is what its codes have lacked, so only the sum over the ranks matters. A rank
 * that imports the state of ranks that are gone adds their residuals to its own. They are exported
 * in units of the result, as the factor before encoding depends on the number of ranks. */

/* Add the residual of an export, at `data`, to the list, if the export is one with residuals.
 * `left` bytes follow the export's ranges. Returns TWILL_OK, or TWILL_ERR_ARGUMENT if they do not
 * fit the header or the set, or memory is short. */
static twill_status read_residual(struct twill_gradients *set, struct residuals *residuals,
                                  const struct twill_state_header *header,
                                  const unsigned char *data, size_t left)
{
    size_t own = twill_residual_floats(set);
    if (header->residuals != left / sizeof(float) || left % sizeof(float) != 0 ||
        header->ranks > TWILL_RESIDUAL_RANKS || header->rank >= twill_max(header->ranks, 1))
        return TWILL_SET_REFUSE(set, "a state is damaged: %zu bytes after its ranges", left);
    if (header->residuals != 0 && own != 0 && header->residuals != own)
        return TWILL_SET_REFUSE(set,
                                "a state has residuals of %llu elements, the set compresses "
                                "%zu",
                                (unsigned long long)header->residuals, own);
    if (header->ranks == 0)
        return TWILL_OK;
    void *list = realloc(residuals->list, (residuals->count + 1) * sizeof(*residuals->list));
    if (list == NULL)
        return TWILL_SET_REFUSE(set, "out of memory for a state");
    residuals->list = list;
    residuals->list[residuals->count++] =
        (struct residual_of){header->residuals != 0 ? data : NULL, header->rank, header->ranks};
    return TWILL_OK;
}

/* Add an exported residual, at `data`, to this rank's, divided by the factor after decoding
 * (`after`). */
static void add_residual(struct twill_gradients *set, const unsigned char *data)
{
    struct twill_compressor *c = set->compressor;
    for (uint32_t t = 0; t < set->tensors; t++) {
        const struct twill_train_tensor *tensor = &set->tensor[t];
        for (size_t i = 0; !tensor->raw && i < tensor->count; i++, data += sizeof(float)) {
            float value;
            memcpy(&value, data, sizeof(value));
            c->residual[tensor->residual + i] += value / c->after;
        }
    }
}

/* Return a number by which the ranks that could take the residual `of` are compared. The rank with
 * the lowest takes it. For rank number `rank` of `size` it is `rank` if a rank of that number has
 * exported the residual, and otherwise `rank` + `size`. */
static uint64_t key_of(const struct residual_of *of, uint64_t rank, uint64_t size)
{
    return (of->rank != rank) * size + rank;
}

/* Choose which rank takes the residual of each rank r of the exporting job. Of the ranks that bring
 * it, that is rank r or, if that does not bring it, the lowest one. Set taker[r] to the key_of() of
 * that rank, or to UINT64_MAX if no rank brings it. Returns the status. Collective. */
static twill_status agree_on_takers(twill_comm *comm, const struct residuals *residuals,
                                    uint64_t *taker, size_t ranks)
{
    uint64_t rank = (uint64_t)twill_comm_rank(comm), size = (uint64_t)twill_comm_size(comm);
    memset(taker, 0xff, ranks * sizeof(*taker));
    for (size_t i = 0; i < residuals->count; i++) {
        const struct residual_of *of = &residuals->list[i];
        taker[of->rank] = twill_min(taker[of->rank], key_of(of, rank, size));
    }
    return twill_allreduce(comm, taker, taker, ranks, TWILL_U64, TWILL_MIN);
}

/* Replace the residuals of all ranks by those that they bring, or keep them if no rank brings an
 * export with residuals. Collective. Returns the status. */
static twill_status import_residuals(struct twill_gradients *set, twill_comm *comm,
                                     const struct residuals *residuals)
{
    struct twill_compressor *c = set->compressor;
    uint64_t ranks = 0, rank = (uint64_t)twill_comm_rank(comm),
             size = (uint64_t)twill_comm_size(comm);
    for (size_t i = 0; i < residuals->count; i++)
        ranks = twill_max(ranks, residuals->list[i].ranks);
    twill_status status = twill_allreduce(comm, &ranks, &ranks, 1, TWILL_U64, TWILL_MAX);
    size_t floats = twill_residual_floats(set);
    if (status != TWILL_OK || ranks == 0 || floats == 0)
        return status;
    uint64_t *taker = malloc(ranks * sizeof(*taker));
    if (taker == NULL)
        return TWILL_ERR_MEMORY;
    status = agree_on_takers(comm, residuals, taker, ranks);
    for (uint32_t t = 0; status == TWILL_OK && t < set->tensors; t++)
        if (!set->tensor[t].raw)
            memset(c->residual + set->tensor[t].residual, 0, set->tensor[t].bytes);
    for (size_t i = 0; status == TWILL_OK && i < residuals->count; i++) {
        const struct residual_of *of = &residuals->list[i];
        if (of->data == NULL || taker[of->rank] != key_of(of, rank, size))
            continue;
        taker[of->rank] = UINT64_MAX; /* add no other copy */
        add_residual(set, of->data);
    }
    c->encoded = true;
    free(taker);
    return status;
}

/* Return TWILL_OK if the header of an export fits the set's tensors and optimizer, and has the step
 * of the exports read before. Stores that step in import->offer. Otherwise return
 * TWILL_ERR_ARGUMENT. `number` is the index of the export among this rank's, for the message. */
static twill_status check_header(struct state_import *import, const struct twill_state_header *h,
                                 size_t bytes, size_t number)
{
    struct twill_gradients *set = import->set;
    const twill_optimizer *optimizer = &set->update->optimizer;
    if (h->magic != TWILL_STATE_MAGIC || h->bytes != bytes || h->steps == NO_STEPS)
        return TWILL_SET_REFUSE(set, "state %zu is not an export of %zu bytes", number, bytes);
    if (h->tensors != set->tensors || h->tensors_hash != twill_state_tensors_hash(set))
        return TWILL_SET_REFUSE(
            set, "state %zu is of %u tensors with other names, counts or types than the set's %u",
            number, h->tensors, set->tensors);
    if (h->rule != (uint32_t)optimizer->rule || h->states != twill_optimizer_states(optimizer)) {
        const char *rule = twill_optimizer_name((twill_optimizer_rule)h->rule);
        return TWILL_SET_REFUSE(set,
                                "state %zu is of %s with %u value%s a weight, the set's %s "
                                "has %u",
                                number, rule != NULL ? rule : "?", h->states,
                                TWILL_PLURAL(h->states), twill_optimizer_name(optimizer->rule),
                                twill_optimizer_states(optimizer));
    }
    if (import->offer.steps != NO_STEPS && import->offer.steps != h->steps)
        return TWILL_SET_REFUSE(set, "state %zu is of step %llu, the one before of step %llu",
                                number, (unsigned long long)h->steps,
                                (unsigned long long)import->offer.steps);
    import->offer.steps = h->steps;
    return TWILL_OK;
}

/* Return whether a range of an export lies in its tensor, and its arrays fit the `left` bytes of
 * the export that are not read. */
static bool is_range_sound(const struct twill_gradients *set, const struct twill_state_range *range,
                           size_t left)
{
    if (range->tensor >= set->tensors)
        return false;
    const struct twill_train_tensor *tensor = &set->tensor[range->tensor];
    uint32_t arrays = twill_optimizer_states(&set->update->optimizer) + (tensor->type != TWILL_F32);
    return range->arrays == arrays && range->count <= tensor->count &&
           range->first <= tensor->count - range->count &&
           range->count <= left / sizeof(float) / twill_max(arrays, 1);
}

/* Add the ranges and residual of the export state[bytes] to `import`, or refuse it with
 * TWILL_ERR_ARGUMENT. `number` is its index among those that this rank imports, for messages. */
static twill_status read_export(struct state_import *import, const unsigned char *state,
                                size_t bytes, size_t number)
{
    struct twill_gradients *set = import->set;
    struct twill_state_header header;
    size_t width = sizeof(struct twill_state_range);
    if (state == NULL || bytes < sizeof(header))
        return TWILL_SET_REFUSE(set, "state %zu is no export: %zu bytes", number,
                                state == NULL ? 0 : bytes);
    memcpy(&header, state, sizeof(header));
    TWILL_TRY(NULL, check_header(import, &header, bytes, number));
    size_t left = bytes - sizeof(header), held = (size_t)import->offer.brings;
    if (header.ranges > left / width)
        return TWILL_SET_REFUSE(set, "state %zu is cut", number);
    left -= header.ranges * width;
    const unsigned char *range = state + sizeof(header), *data = range + header.ranges * width;
    void *brings = realloc(import->brings, (held + header.ranges + 1) * width);
    if (brings != NULL)
        import->brings = brings;
    void *places = realloc((void *)import->data, (held + header.ranges + 1) * sizeof(data));
    if (places != NULL)
        import->data = places;
    if (brings == NULL || places == NULL)
        return TWILL_SET_REFUSE(set, "out of memory for state %zu", number);
    for (uint32_t i = 0; i < header.ranges; i++, held++) {
        struct twill_state_range *to = &import->brings[held];
        memcpy(to, range + i * width, width);
        if (!is_range_sound(set, to, left))
            return TWILL_SET_REFUSE(set, "state %zu is damaged: range %u", number, i);
        import->data[held] = data;
        data += to->count * to->arrays * sizeof(float);
        left -= to->count * to->arrays * sizeof(float);
    }
    import->offer.brings = held;
    return read_residual(set, &import->residuals, &header, data, left);
}

/* Return TWILL_OK if `status` is, else break the set on all ranks and return the error. If it is
 * TWILL_ERR_MEMORY and no call on import->comm has failed, this rank is out of memory. Otherwise it
 * is the failure of a call on import->comm. */
static twill_status check_collective(struct state_import *import, twill_status status)
{
    struct twill_error failure;
    if (status == TWILL_OK)
        return TWILL_OK;
    if (status == TWILL_ERR_MEMORY && !twill_extend_failure(import->comm, false, &failure))
        return twill_set_fail_with(import->set, import->comm, "twill_gradients_state_import",
                                   status, "twill_gradients_state_import: out of memory");
    return twill_set_fail(import->set, import->comm, status);
}

/* Allocate *all and set it to the ranges that all ranks need or, if not `needs`, bring, in rank
 * order. `mine` has this rank's. Collective. Returns TWILL_OK or the error, which breaks the
 * set. */
static twill_status gather_ranges(struct state_import *import, const struct twill_state_range *mine,
                                  bool needs, struct twill_state_range **all)
{
    size_t total = 0, width = sizeof(*mine), *bytes = calloc(import->size, sizeof(*bytes));
    for (uint32_t r = 0; bytes != NULL && r < import->size; r++) {
        bytes[r] = width * (needs ? import->offers[r].needs : import->offers[r].brings);
        total += bytes[r];
    }
    *all = malloc(total + width);
    twill_status status = TWILL_ERR_MEMORY;
    if (bytes != NULL && *all != NULL)
        status = twill_allgatherv(import->comm, mine, *all, bytes, NULL, TWILL_U8);
    free(bytes);
    return check_collective(import, status);
}

/* Exchange all ranks' offers. Returns TWILL_OK, with offer.steps of any rank that brings state, or
 * TWILL_ERR_ARGUMENT on all ranks if one is bad or steps differ. */
static twill_status exchange_offers(struct state_import *import)
{
    struct twill_gradients *set = import->set;
    uint64_t steps = NO_STEPS;
    TWILL_TRY(NULL,
              check_collective(import, twill_allgather(import->comm, &import->offer, import->offers,
                                                       sizeof(import->offer), TWILL_U8)));
    for (uint32_t r = 0; r < import->size; r++) {
        const struct import_offer *offer = &import->offers[r];
        if (offer->failed && import->offer.failed)
            return TWILL_ERR_ARGUMENT; /* it has its message */
        if (offer->failed)
            return TWILL_SET_REFUSE(
                set, "twill_gradients_state_import: rank %u has state that cannot be imported", r);
        if (offer->steps == NO_STEPS)
            continue;
        if (steps != NO_STEPS && steps != offer->steps)
            return TWILL_SET_REFUSE(
                set, "twill_gradients_state_import: state of step %llu and, on rank %u, of %llu",
                (unsigned long long)steps, r, (unsigned long long)offer->steps);
        steps = offer->steps;
    }
    import->offer.steps = steps;
    return TWILL_OK;
}

/* Order sources for qsort() by tensor, first element, rank and index. */
static int compare_sources(const void *left, const void *right)
{
    const struct import_source *a = left, *b = right;
    if (a->range.tensor != b->range.tensor)
        return a->range.tensor < b->range.tensor ? -1 : 1;
    if (a->range.first != b->range.first)
        return a->range.first < b->range.first ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* Set import->source to the ranges that all ranks bring, sorted, or fail for lack of memory. */
static twill_status sort_sources(struct state_import *import)
{
    for (uint32_t r = 0; r < import->size; r++)
        import->sources += (size_t)import->offers[r].brings;
    import->source = calloc(import->sources + 1, sizeof(*import->source));
    if (import->source == NULL)
        return check_collective(import, TWILL_ERR_MEMORY);
    size_t at = 0;
    for (uint32_t r = 0; r < import->size; r++)
        for (uint32_t i = 0; i < import->offers[r].brings; i++, at++) {
            import->source[at] = (struct import_source){import->brought[at], r, i};
            import->longest = twill_max(import->longest, import->brought[at].count);
        }
    qsort(import->source, import->sources, sizeof(*import->source), compare_sources);
    return TWILL_OK;
}

/* Return how many elements of import->source, the ranges that ranks bring, begin before or at
 * element `element` of tensor number `tensor`. Those of lower tensors also count. */
static size_t sources_up_to(const struct state_import *import, uint32_t tensor, uint64_t element)
{
    size_t low = 0, high = import->sources;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct twill_state_range *range = &import->source[middle].range;
        if (range->tensor < tensor || (range->tensor == tensor && range->first <= element))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Return the source of an element for a rank, its own or else that of the lowest rank, or NULL if
 * none. All ranks find the same one. Ranges of a tensor may overlap, as exports may be copies. */
static const struct import_source *find_source(const struct state_import *import, uint32_t tensor,
                                               uint64_t element, uint32_t rank)
{
    const struct import_source *best = NULL;
    for (size_t i = sources_up_to(import, tensor, element); i-- > 0;) {
        const struct import_source *s = &import->source[i];
        if (s->range.tensor != tensor || element - s->range.first >= import->longest)
            break;
        if (element - s->range.first >= s->range.count)
            continue;
        if (best == NULL || (best->rank != rank && (s->rank == rank || s->rank < best->rank)))
            best = s;
    }
    return best;
}

/* Add a move to import->move if this rank takes part in it. Returns TWILL_OK or the error. */
static twill_status add_move(struct state_import *import, struct import_move move)
{
    if (move.from != import->rank && move.to != import->rank)
        return TWILL_OK;
    if (import->moves == import->moves_held) {
        size_t held = import->moves_held == 0 ? 256 : 2 * import->moves_held;
        void *grown = realloc(import->move, held * sizeof(*import->move));
        if (grown == NULL)
            return check_collective(import, TWILL_ERR_MEMORY);
        import->move = grown;
        import->moves_held = held;
    }
    import->move[import->moves++] = move;
    return TWILL_OK;
}

/* Plan from which ranks the parts of range number `index` come that rank `rank` needs, and add
 * those moves in which this rank takes part. Returns TWILL_OK, TWILL_ERR_ARGUMENT if no rank brings
 * a part of it, or another error. */
static twill_status plan_range(struct state_import *import, uint32_t rank, uint32_t index,
                               const struct twill_state_range *range)
{
    uint64_t at = range->first, end = range->first + range->count;
    while (at < end) {
        const struct import_source *s = find_source(import, range->tensor, at, rank);
        if (s == NULL)
            return TWILL_SET_REFUSE(
                import->set,
                "twill_gradients_state_import: no rank has the state of tensor '%s' from element "
                "%llu on",
                import->set->tensor[range->tensor].name, (unsigned long long)at);
        uint64_t until = twill_min(s->range.first + s->range.count, end);
        TWILL_TRY(NULL, add_move(import, (struct import_move){.from = s->rank,
                                                              .to = rank,
                                                              .source = s->index,
                                                              .dest = index,
                                                              .source_at = at - s->range.first,
                                                              .dest_at = at - range->first,
                                                              .count = until - at,
                                                              .arrays = range->arrays}));
        at = until;
    }
    return TWILL_OK;
}

/* Plan from which rank each range that any rank needs comes, and list in import->move those moves
 * in which this rank takes part. Returns TWILL_OK, TWILL_ERR_ARGUMENT if no rank brings a part of
 * one, or TWILL_ERR_MEMORY. */
static twill_status plan_moves(struct state_import *import)
{
    const struct twill_state_range *range = import->needed;
    for (uint32_t r = 0; r < import->size; r++)
        for (uint32_t i = 0; i < import->offers[r].needs; i++)
            TWILL_TRY(NULL, plan_range(import, r, i, range++));
    return TWILL_OK;
}

/* Copy the elements of array k that move into a buffer to send, whose part for each rank begins at
 * next[rank] (`out`), or out of a received one into the state. Advances next[]. */
static void pack_array(const struct state_import *import, uint32_t k, float *const *next, bool out)
{
    for (size_t i = 0; i < import->moves; i++) {
        const struct import_move *move = &import->move[i];
        if ((out ? move->from : move->to) != import->rank || k >= move->arrays)
            continue;
        float **at = (float **)(void *)&next[out ? move->to : move->from];
        if (out) {
            const struct twill_state_range *range = &import->brings[move->source];
            memcpy(*at,
                   import->data[move->source] + (k * range->count + move->source_at) * sizeof(**at),
                   move->count * sizeof(**at));
        } else {
            memcpy(twill_state_array(import->set, &import->places[move->dest], k) + move->dest_at,
                   *at, move->count * sizeof(**at));
        }
        *at += move->count;
    }
}

/* A buffer of one array, to send to or receive from all ranks. A variable of move_array().
 * make_buffer() allocates its members, free_buffer() frees them. Rank r has counts[r] elements.
 * They begin at next[r] until pack_array() moves that on. */
struct import_buffer {
    size_t *counts; /* [size] */
    float *memory;
    float **next; /* [size] */
};

/* Allocate a buffer for array k, to send (`out`) or to receive. Returns false if out of memory. */
static bool make_buffer(const struct state_import *import, uint32_t k, bool out,
                        struct import_buffer *buffer)
{
    size_t total = 0;
    buffer->counts = calloc(import->size, sizeof(*buffer->counts));
    buffer->next = calloc(import->size, sizeof(*buffer->next));
    if (buffer->counts == NULL || buffer->next == NULL)
        return false;
    for (size_t i = 0; i < import->moves; i++) {
        const struct import_move *move = &import->move[i];
        if ((out ? move->from : move->to) == import->rank && k < move->arrays) {
            buffer->counts[out ? move->to : move->from] += move->count;
            total += move->count;
        }
    }
    buffer->memory = malloc((total + 1) * sizeof(*buffer->memory));
    if (buffer->memory == NULL)
        return false;
    float *at = buffer->memory;
    for (uint32_t r = 0; r < import->size; r++) {
        buffer->next[r] = at;
        at += buffer->counts[r];
    }
    return true;
}

static void free_buffer(struct import_buffer *buffer)
{
    free(buffer->counts);
    free(buffer->memory);
    free((void *)buffer->next);
}

/* Move array k of all ranges to the ranks that need it. Collective. Returns the status. */
static twill_status move_array(struct state_import *import, uint32_t k)
{
    struct import_buffer out = {0}, in = {0};
    twill_status status = TWILL_ERR_MEMORY;
    if (make_buffer(import, k, true, &out) && make_buffer(import, k, false, &in)) {
        pack_array(import, k, out.next, true);
        status = twill_alltoallv(import->comm, out.memory, out.counts, NULL, in.memory, in.counts,
                                 NULL, TWILL_F32);
        if (status == TWILL_OK)
            pack_array(import, k, in.next, false);
    }
    free_buffer(&out);
    free_buffer(&in);
    return check_collective(import, status);
}

/* List what this rank needs, and allocate the tables. Returns TWILL_OK or the error. The caller
 * calls close_import() in any case. */
static twill_status open_import(struct state_import *import)
{
    struct twill_gradients *set = import->set;
    import->comm = set->comm;
    import->size = (uint32_t)twill_comm_size(import->comm);
    import->rank = (uint32_t)twill_comm_rank(import->comm);
    import->offer =
        (struct import_offer){.needs = twill_state_places(set, NULL), .steps = NO_STEPS};
    import->places = calloc((size_t)import->offer.needs + 1, sizeof(*import->places));
    import->offers = calloc(import->size, sizeof(*import->offers));
    if (import->places == NULL || import->offers == NULL)
        return check_collective(import, TWILL_ERR_MEMORY);
    (void)twill_state_places(set, import->places);
    return TWILL_OK;
}

static void close_import(struct state_import *import)
{
    free(import->brings);
    free((void *)import->data);
    free(import->places);
    free(import->offers);
    free(import->brought);
    free(import->needed);
    free(import->source);
    free(import->move);
    free(import->residuals.list);
}

/* Exchange what ranks bring and need, and plan the moves. Returns TWILL_OK or the error. */
static twill_status plan_import(struct state_import *import)
{
    size_t needs = (size_t)import->offer.needs;
    struct twill_state_range *mine = calloc(needs + 1, sizeof(*mine));
    if (mine == NULL)
        return check_collective(import, TWILL_ERR_MEMORY);
    for (size_t i = 0; i < needs; i++)
        mine[i] = import->places[i].range;
    twill_status status = gather_ranges(import, mine, true, &import->needed);
    free(mine);
    TWILL_TRY(NULL, status);
    TWILL_TRY(NULL, gather_ranges(import, import->brings, false, &import->brought));
    TWILL_TRY(NULL, sort_sources(import));
    return plan_moves(import);
}

/* Exchange the tables, move all arrays and residuals, and note the state's step in the set. Returns
 * TWILL_OK or the error. */
static twill_status run_import(struct state_import *import)
{
    uint32_t arrays = twill_optimizer_states(&import->set->update->optimizer) + 1;
    TWILL_TRY(NULL, exchange_offers(import));
    TWILL_TRY(NULL, plan_import(import));
    for (uint32_t k = 0; k < arrays; k++)
        TWILL_TRY(NULL, move_array(import, k));
    TWILL_TRY(NULL, check_collective(
                        import, import_residuals(import->set, import->comm, &import->residuals)));
    twill_update_note_import(import->set, import->offer.steps);
    return TWILL_OK;
}

twill_status twill_state_import(struct twill_gradients *set, const void *const *states,
                                const size_t *bytes, size_t count)
{
    struct state_import import = {.set = set};
    twill_status status = open_import(&import);
    if (status == TWILL_OK && count > 0 && (states == NULL || bytes == NULL)) {
        (void)TWILL_SET_REFUSE(set, "twill_gradients_state_import: states or bytes is NULL");
        import.offer.failed = 1;
    }
    for (size_t i = 0; status == TWILL_OK && !import.offer.failed && i < count; i++)
        import.offer.failed = read_export(&import, states[i], bytes[i], i) != TWILL_OK;
    if (status == TWILL_OK)
        status = run_import(&import);
    close_import(&import);
    return status;
}

twill_status twill_state_restore(struct twill_gradients *set, void *state, size_t bytes)
{
    twill_status status = twill_state_import(set, (const void *const *)&state, &bytes, 1);
    free(state);
    return status;
}

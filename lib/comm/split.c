/* SPDX-License-Identifier: Apache-2.0 */
/* Makes communicators out of others. The ranks agree over the old one which of them are in which
 * new one. Each group then sets up its own. twill_comm_create_over() uses the caller's exchange. */
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/shm/call_records.h"
#include "lib/comm/comm_internal.h"
#include "lib/job/context.h"

#include <stdlib.h>

#define BAD_LEVEL INT32_MIN /* as a colour */

enum split_kind { KIND_DUP, KIND_SPLIT, KIND_LEVEL }; /* KIND_LEVEL + twill_level */

/* What one rank asks of a split. Sent as it lies in memory. */
struct split_entry {
    int32_t kind, colour, key; /* `kind` is an enum split_kind, to which a level is added */
    uint32_t rank;             /* set by the receiver */
    struct twill_comm_offer offer;
};

/* Return the name of the public function for a kind of split_entry. */
static const char *kind_name(int32_t kind)
{
    return kind == KIND_DUP     ? "twill_comm_dup"
           : kind == KIND_SPLIT ? "twill_comm_split"
                                : "twill_comm_split_level";
}

/* Return TWILL_OK if `made` is given and the parent has nothing under way, as its links carry the
 * set-up. Otherwise return the error. A request under way breaks the parent on all ranks, as others
 * may have completed it. */
static twill_status check_parent(struct twill_comm **made, struct twill_comm *comm)
{
    if (made == NULL)
        return TWILL_COMM_FAIL(comm, TWILL_ERR_ARGUMENT, "made is NULL");
    if (atomic_load_explicit(&comm->pending, memory_order_acquire) == 0)
        return TWILL_OK;
    return twill_comm_fail(
        comm,
        TWILL_COMM_FAIL(comm, TWILL_ERR_ARGUMENT, "a request on the communicator is under way"),
        TWILL_CAUSE_ASKED);
}

/* Set *made to NULL, hold the parent and check it. Returns TWILL_OK, or the error, not held. */
static twill_status begin_split(struct twill_comm **made, struct twill_comm *comm, const char *call)
{
    if (made != NULL)
        *made = NULL;
    twill_status status = twill_comm_acquire(comm, call);
    if (status != TWILL_OK)
        return status;
    if (comm->broken) {
        status = TWILL_ERR_BROKEN;
    } else {
        twill_error_clear(&comm->error);
        comm->making = call;
        status = check_parent(made, comm);
    }
    if (status != TWILL_OK) {
        comm->making = NULL;
        twill_comm_release(comm);
    }
    return status;
}

/* End a call that makes a communicator out of the parent `comm`, and release the parent. An error
 * `status` puts the message of `error` into comm->error. Unless it is TWILL_ERR_ARGUMENT, it also
 * breaks the parent, so that ranks that wait for this one return. Returns the final status. */
static twill_status end_split(struct twill_comm *comm, twill_status status,
                              const struct twill_error *error)
{
    if (status != TWILL_OK && !comm->broken) {
        twill_error_clear(&comm->error);
        (void)TWILL_COMM_FAIL(comm, status, "%s", error->message);
        if (status != TWILL_ERR_ARGUMENT)
            status = twill_comm_fail(comm, status, TWILL_CAUSE_ASKED);
    }
    comm->making = NULL;
    comm->makes_alone = false;
    comm->makes_stripes = 0;
    twill_comm_release(comm);
    return status;
}

/* Make *made of ranks[] of `comm`, set up over `oob`, which it takes over. offers[] are what they
 * offer, or NULL if they are still to exchange that. Returns the status. */
static twill_status make_by(struct twill_comm **made, const struct twill_comm *comm,
                            struct twill_oob *oob, const uint32_t *ranks,
                            const struct twill_comm_offer *offers, struct twill_error *error)
{
    uint64_t what = (uint64_t)oob->size; /* an FNV-1a hash */
    for (int i = 0; i < oob->size; i++)
        what = (what ^ ranks[i]) * UINT64_C(0x100000001b3);
    return twill_comm_open(made, comm->context, comm, oob, ranks, offers, offers == NULL ? what : 0,
                           error);
}

/* Make *made of ranks[0 .. size-1] of `comm`. This rank is ranks[mine]. offers[] may be NULL.
 * Returns the status. */
static twill_status make_child(struct twill_comm **made, struct twill_comm *comm,
                               const uint32_t *ranks, uint32_t size, uint32_t mine,
                               const struct twill_comm_offer *offers, struct twill_error *error)
{
    struct twill_oob *oob = NULL;
    TWILL_TRY(error, twill_oob_comm_open(&oob, comm, ranks, size, mine, error));
    TWILL_TRY(error, make_by(made, comm, oob, ranks, offers, error));
    twill_oob_comm_seal(oob);
    return TWILL_OK;
}

/* Compare two entries for qsort(), by their keys and then by their ranks. */
static int compare_entries(const void *a, const void *b)
{
    const struct split_entry *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Check the entries of all ranks. Returns TWILL_ERR_MISMATCH if a rank makes another call than this
 * rank, or asks for another level. Returns TWILL_ERR_ARGUMENT if the level is unknown, or a colour
 * is negative but not TWILL_COLOUR_NONE. Otherwise returns TWILL_OK. */
static twill_status check_entries(const struct twill_comm *comm, const struct split_entry *entry,
                                  struct twill_error *error)
{
    int32_t kind = entry[comm->rank].kind;
    for (uint32_t r = 0; r < comm->world->size; r++) {
        if (entry[r].kind != kind)
            return TWILL_FAIL(error, TWILL_ERR_MISMATCH, "%s calls %s%s instead",
                              TWILL_ENGINE_RANK_NAME(&comm->engine, r), kind_name(entry[r].kind),
                              entry[r].kind >= KIND_LEVEL ? " (or another level)" : "");
        if (kind >= KIND_LEVEL && entry[r].colour == BAD_LEVEL)
            return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "level %d is none of twill_level",
                              kind - KIND_LEVEL);
        if (entry[r].colour < TWILL_COLOUR_NONE)
            return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                              "colour %d of %s is neither 0 or more nor TWILL_COLOUR_NONE",
                              entry[r].colour, TWILL_ENGINE_RANK_NAME(&comm->engine, r));
    }
    return TWILL_OK;
}

/* Gather the entries of all ranks into entry[]. Returns TWILL_OK or the error. *known becomes true
 * once others may have this rank's. */
static twill_status gather_entries(struct twill_comm *comm, const struct split_entry *mine,
                                   struct split_entry *entry, bool *known,
                                   struct twill_error *error)
{
    struct twill_oob *oob;
    TWILL_TRY(error, twill_oob_comm_open(&oob, comm, comm->world->by_rank, comm->world->size,
                                         comm->rank, error));
    *known = true;
    twill_status status = twill_oob_allgather(oob, mine, entry, sizeof(*mine), error);
    twill_oob_close(oob);
    return status;
}

/* Arrays of comm->world->size elements for divide_comm(), on the stack of split_by(). */
struct split_scratch {
    struct split_entry *entry;
    uint32_t *rank;
    struct twill_comm_offer *offer;
};

/* Learn what all ranks ask for, and make *made of those with this rank's colour, unless that is
 * TWILL_COLOUR_NONE. Returns TWILL_OK or the error. *known becomes whether other ranks may have
 * made a communicator with this rank's offer. */
static twill_status divide_comm(struct twill_comm **made, struct twill_comm *comm,
                                const struct split_entry *mine, const struct split_scratch *scratch,
                                bool *known, struct twill_error *error)
{
    struct split_entry *entry = scratch->entry;
    uint32_t *rank = scratch->rank, size = 0, self = 0;
    TWILL_TRY(error, gather_entries(comm, mine, entry, known, error));
    twill_status status = check_entries(comm, entry, error); /* fails on all ranks or on none */
    *known = status == TWILL_OK && mine->colour != TWILL_COLOUR_NONE;
    if (!*known)
        return status;
    for (uint32_t r = 0; r < comm->world->size; r++) {
        struct split_entry here = entry[r];
        here.rank = r;
        if (here.colour == mine->colour)
            entry[size++] = here;
    }
    qsort(entry, size, sizeof(*entry), compare_entries);
    for (uint32_t i = 0; i < size; i++) {
        rank[i] = entry[i].rank;
        scratch->offer[i] = entry[i].offer;
        self = rank[i] == comm->rank ? i : self;
    }
    return make_child(made, comm, rank, size, self, scratch->offer, error);
}

/* Make a communicator by colour for a held parent, and release the parent, after an error as well.
 * `kind` says which public call this is, and must be the same on all ranks. The call has a number
 * and is published like a collective, so that different calls are detected. Returns the status. */
static twill_status split_by(struct twill_comm **made, struct twill_comm *comm, int32_t kind,
                             int32_t colour, int32_t key)
{
    struct twill_call call = {.collective = TWILL_CALL_MAKES};
    twill_engine_show(&comm->engine, &call, ++comm->issue.started, twill_ticks());
    struct twill_error error = {0};
    struct split_entry mine = {
        .kind = kind, .colour = colour, .key = key, .offer = twill_comm_offer(comm->context, comm)};
    size_t size = comm->world->size;
    struct split_scratch scratch = {.entry = calloc(size, sizeof(*scratch.entry)),
                                    .rank = calloc(size, sizeof(*scratch.rank)),
                                    .offer = calloc(size, sizeof(*scratch.offer))};
    bool known = false;
    twill_status status = scratch.entry == NULL || scratch.rank == NULL || scratch.offer == NULL
                              ? TWILL_FAIL(&error, TWILL_ERR_MEMORY, "out of memory")
                              : divide_comm(made, comm, &mine, &scratch, &known, &error);
    twill_comm_settle(comm, status == TWILL_OK ? *made : NULL, &mine.offer.place,
                      known && status != TWILL_OK, &error);
    free(scratch.entry);
    free(scratch.rank);
    free(scratch.offer);
    twill_node_leave_call(comm->node, comm->issue.sequence);
    return end_split(comm, status, &error);
}

twill_status twill_comm_dup(twill_comm **made, twill_comm *comm)
{
    TWILL_TRY(NULL, begin_split(made, comm, "twill_comm_dup"));
    return split_by(made, comm, KIND_DUP, 0, 0);
}

twill_status twill_comm_dup_alone(twill_comm **made, twill_comm *comm)
{
    TWILL_TRY(NULL, begin_split(made, comm, "twill_comm_dup"));
    comm->makes_alone = true;
    return split_by(made, comm, KIND_DUP, 0, 0);
}

twill_status twill_comm_dup_stripe(twill_comm **made, twill_comm *comm, uint32_t stripes,
                                   const char *call)
{
    TWILL_TRY(NULL, begin_split(made, comm, call));
    comm->makes_alone = comm->world->nodes > 1;
    comm->makes_stripes = stripes;
    return split_by(made, comm, KIND_DUP, 0, 0);
}

twill_status twill_comm_split(twill_comm **made, twill_comm *comm, int colour, int key)
{
    TWILL_TRY(NULL, begin_split(made, comm, "twill_comm_split"));
    return split_by(made, comm, KIND_SPLIT, colour, key);
}

/* Return the number of a rank's unit on a level. If the level is unknown, each rank is its own unit
 * below the node, and all nodes form one group. */
static uint32_t unit_of(const struct twill_world *world, twill_level level, uint32_t rank)
{
    if (level == TWILL_LEVEL_NODE)
        return world->node[rank];
    if (world->unit[level] != NULL)
        return world->unit[level][rank];
    return level == TWILL_LEVEL_GROUP ? 0 : rank;
}

twill_status twill_comm_split_level(twill_comm **made, twill_comm *comm, twill_level level, int key)
{
    TWILL_TRY(NULL, begin_split(made, comm, "twill_comm_split_level"));
    /* All ranks together refuse an unknown level, like a bad colour. */
    bool known = (unsigned)level < TWILL_LEVEL_COUNT;
    int32_t colour = known ? (int32_t)unit_of(comm->world, level, comm->rank) : BAD_LEVEL;
    return split_by(made, comm, KIND_LEVEL + (int32_t)level, colour, key);
}

/* A checked list of ranks, and this rank's index in it. On the stack of a function that makes a
 * communicator, which frees rank[]. */
struct rank_list {
    uint32_t size, self;
    uint32_t *rank; /* [size] */
};

/* Copy the named->size entries of ranks[] to named->rank[], and set named->self to this rank's
 * index in it. seen[] is zeroed scratch. Returns TWILL_OK, or TWILL_ERR_ARGUMENT with *error set if
 * a rank is outside the communicator or repeated, or if this rank is missing. */
static twill_status check_named(const struct twill_comm *comm, struct rank_list *named,
                                const int *ranks, uint8_t *seen, struct twill_error *error)
{
    uint32_t size = comm->world->size, i = 0;
    named->self = UINT32_MAX;
    for (; i < named->size; i++) {
        if (ranks[i] < 0 || (uint32_t)ranks[i] >= size || seen[ranks[i]]++ != 0)
            break;
        named->rank[i] = (uint32_t)ranks[i];
        named->self = named->rank[i] == comm->rank ? i : named->self;
    }
    if (i < named->size) {
        bool twice = ranks[i] >= 0 && (uint32_t)ranks[i] < size;
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "ranks[%u] = %d %s 0 .. %u", i, ranks[i],
                          twice ? "is repeated; ranks must differ and be in" : "is outside",
                          size - 1);
    }
    if (named->self == UINT32_MAX)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "ranks[0 .. %u] do not contain the calling rank %u", named->size - 1,
                          comm->rank);
    return TWILL_OK;
}

/* Check and copy the list. The caller frees named->rank always. Returns TWILL_OK or the error. */
static twill_status ranks_read(const struct twill_comm *comm, struct rank_list *named, int count,
                               const int *ranks, struct twill_error *error)
{
    if (ranks == NULL)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "ranks is NULL");
    if (count < 1 || (uint32_t)count > comm->world->size)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "count %d is outside 1 .. %u", count,
                          comm->world->size);
    uint8_t *seen = calloc(comm->world->size, 1);
    named->size = (uint32_t)count;
    named->rank = calloc(named->size, sizeof(*named->rank));
    twill_status status = seen == NULL || named->rank == NULL
                              ? TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory")
                              : check_named(comm, named, ranks, seen, error);
    free(seen);
    return status;
}

twill_status twill_comm_create_group(twill_comm **made, twill_comm *comm, int count,
                                     const int *ranks)
{
    TWILL_TRY(NULL, begin_split(made, comm, "twill_comm_create_group"));
    struct twill_error error = {0};
    struct rank_list named = {.rank = NULL};
    twill_status status = ranks_read(comm, &named, count, ranks, &error);
    if (status == TWILL_OK)
        status = make_child(made, comm, named.rank, named.size, named.self, NULL, &error);
    free(named.rank);
    return end_split(comm, status, &error);
}

twill_status twill_comm_make_over(struct twill_comm **made, const struct twill_comm *comm,
                                  const uint32_t *ranks, const twill_bootstrap *lent,
                                  uint64_t timeout_ns, struct twill_error *error)
{
    struct twill_oob *oob;
    TWILL_TRY(error, twill_oob_lend(&oob, comm->context->job.oob, lent, error));
    oob->timeout_ns = timeout_ns;
    TWILL_TRY(error, make_by(made, comm, oob, ranks, NULL, error));
    twill_oob_lend_seal(oob);
    return TWILL_OK;
}

twill_status twill_comm_create_over(twill_comm **made, twill_comm *comm, int count,
                                    const int *ranks, twill_exchange_fn exchange, void *user)
{
    if (made != NULL)
        *made = NULL;
    if (!twill_comm_is_live(comm))
        return TWILL_ERR_ARGUMENT;
    struct twill_error error = {0}, whole = {0};
    struct rank_list named = {.rank = NULL};
    twill_status status = twill_context_is_forked(comm->context)
                              ? TWILL_FAIL(&error, TWILL_ERR_FORKED,
                                           "this process was forked after the context was created")
                          : made == NULL ? TWILL_FAIL(&error, TWILL_ERR_ARGUMENT, "made is NULL")
                                         : ranks_read(comm, &named, count, ranks, &error);
    twill_bootstrap lent = {(int)named.self, (int)named.size, exchange, user};
    if (status == TWILL_OK)
        status = twill_comm_make_over(made, comm, named.rank, &lent,
                                      comm->context->job.oob->timeout_ns, &error);
    free(named.rank);
    if (status != TWILL_OK)
        (void)TWILL_FAIL(&whole, status, "%s: twill_comm_create_over: %s",
                         TWILL_ENGINE_RANK_NAME(&comm->engine, comm->rank), error.message);
    return twill_context_outcome(comm->context, status, &whole);
}

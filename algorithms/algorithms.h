/* SPDX-License-Identifier: Apache-2.0 */
/* The module's interface: collectives, algorithms and their registry, choosing an algorithm for a
 * call, and emitting, checking and verifying schedules.
 *
 *   shard    the part of a buffer that belongs to one rank
 *   block    the unit in which a schedule's steps address a buffer: a fraction of a shard
 *   partial  the reduction of some contributions; the final value is that of all */
#ifndef TWILL_ALGORITHMS_H
#define TWILL_ALGORITHMS_H

#include "algorithms/collective_list.h"
#include "algorithms/schedule/schedule.h"

struct twill_shape;
struct twill_emitter;

const char *twill_collective_name(enum twill_collective collective);

/* Which rank has which shards in SRC or DST. */
enum twill_holder {
    TWILL_HOLDS_NOTHING,
    TWILL_HOLDS_ALL, /* every rank: all shards */
    TWILL_HOLDS_OWN, /* rank r: shard r */
    TWILL_HOLDS_ROOT /* the root: all shards; other ranks: none */
};

/* Properties of a collective: one constant per collective, made from collective_list.h. */
struct twill_collective_facts {
    const char *name;
    bool reduces; /* takes a reduction operation */
    bool rooted;
    bool sharded; /* the message has one shard per rank; otherwise it is one shard */
    bool joins;   /* by its semantics no rank returns before every rank has started */
    enum twill_holder src, dst;
};
const struct twill_collective_facts *twill_collective_facts(enum twill_collective collective);
/* Return whether this rank's SRC or DST contains the shard. */
bool twill_shape_holds_src(const struct twill_shape *shape, uint32_t rank, uint32_t shard);
bool twill_shape_holds_dst(const struct twill_shape *shape, uint32_t rank, uint32_t shard);
/* Return whether every rank knows the sizes of all shards. See `vector` in struct twill_shape. */
bool twill_shape_knows_all(const struct twill_shape *shape);

/* Order in which a reduction combines the ranks' contributions. */
enum twill_order {
    TWILL_ORDER_ANY,   /* any order, the same for all ranks */
    TWILL_ORDER_RANKS, /* by rank, any association: for operations that do not commute */
    TWILL_ORDER_LEFT,  /* by rank from the left, ((0 op 1) op 2) op ...: TWILL_REPRODUCIBLE */
    TWILL_ORDER_COUNT
};

/* Smallest message for which ranks check whether all buffers are mapped. Zero-copy saves two
 * copies, but every rank waits for the slowest at the end and touches pages of all peers: it pays
 * when a copy takes longer than a synchronisation. Measured on Sapphire Rapids, 2 ranks, mapped and
 * flat: 512 bytes 0.54 and 0.49 us, 1 KiB 0.53 and 0.72, 2 KiB 0.6 and 0.95. */
#define TWILL_MAPPED_BYTES ((size_t)1 << 10)

/* Intra-node protocol: how the ranks of one node exchange data. */
enum twill_protocol {
    TWILL_PROTOCOL_IMM,  /* up to TWILL_IMM_BYTES beside the flag; every rank reduces everything */
    TWILL_PROTOCOL_FLAT, /* through SHARED; every rank reduces everything: one synchronisation */
    TWILL_PROTOCOL_STAGED,  /* through SHARED; each rank reduces its blocks: two synchronisations */
    TWILL_PROTOCOL_MAPPED,  /* peers' SRC and DST are read and written in place */
    TWILL_PROTOCOL_FETCHED, /* peers' SRC and DST are read by a system call, and never written */
    TWILL_PROTOCOL_COUNT
};
const char *twill_protocol_name(enum twill_protocol protocol);
/* Return whether each rank of a node reduces only its own blocks. */
static inline bool twill_protocol_is_sharded(enum twill_protocol protocol)
{
    return protocol >= TWILL_PROTOCOL_STAGED;
}

#define TWILL_PARAMETERS 4

/* What is to be emitted: one call's collective and constraints, without sizes or buffers. */
struct twill_shape {
    enum twill_collective collective;
    enum twill_protocol protocol; /* ignored by algorithms without protocols */
    uint32_t root;                /* 0 unless the collective is rooted */
    /* Shards may differ in size. In allgather and reduce_scatter every rank knows all sizes. In
     * gather, scatter and alltoall a rank knows only those of its own messages: a message is then
     * one shard, and TMP and SHARED are not available. Peers' SRC and DST are not mapped, so MAPPED
     * is not possible. */
    bool vector;
    enum twill_order order; /* ANY unless the collective reduces */
    /* Of the algorithm, as written after its name: "torus=4x6" gives {4, 6}. 0: the algorithm
     * chooses. */
    uint16_t parameter[TWILL_PARAMETERS];
};

/* An algorithm: constant data and functions, defined in its file and listed in registry.h. */
struct twill_algorithm {
    const char *name; /* "ring", "recursive_doubling", "direct", "tree", "hierarchical:ring", ... */
    const char *help; /* one line: idea, rounds, bytes, source */
    uint32_t collectives; /* bit per enum twill_collective */
    uint32_t protocols;   /* bit per enum twill_protocol; 0: makes no difference to it */
    uint32_t exchanges;   /* bit per enum twill_collective: no message waits for another's data, so
                             short segments would only hold messages up */
    uint32_t parameters;  /* parameters it takes: 0 to TWILL_PARAMETERS */
    /* Return whether it can emit this shape for this world: vector, order and parameters included.
     * The root is a rank of the world. Pure and cheap. */
    bool (*applies)(const struct twill_world *world, const struct twill_shape *shape);
    /* Parse the text behind "=" into parameters; false if it is malformed. NULL: numbers with x
     * between them. */
    bool (*parse)(const char *text, size_t length, uint16_t parameter[TWILL_PARAMETERS]);
    const char *examples; /* NULL, or texts for parse(), separated by ";", that tests try */
    void (*emit)(struct twill_emitter *emitter, const struct twill_shape *shape);
};

const struct twill_algorithm *twill_algorithm_at(size_t index); /* NULL past the end */

/* Return whether the algorithm supports this collective, protocol and shape on this world. Call
 * this instead of applies(). Barriers have no protocol. */
bool twill_algorithm_applies(const struct twill_algorithm *algorithm,
                             const struct twill_world *world, const struct twill_shape *shape);

/* Check one rank's schedule as plain data: every step well formed, operands inside their spaces and
 * in shards that the rank holds, partials only where they are allowed. Returns TWILL_ERR_INTERNAL
 * with lane, step and reason if not. */
twill_status twill_schedule_check(const struct twill_schedule *schedule,
                                  const struct twill_world *world, uint32_t rank,
                                  const struct twill_shape *shape, struct twill_error *error);

/* Emit a rank's schedule and check it as twill_schedule_check() does. On success the caller owns
 * the schedule and releases it with twill_schedule_destroy(). */
twill_status twill_schedule_emit(struct twill_schedule *schedule,
                                 const struct twill_algorithm *algorithm,
                                 const struct twill_world *world, uint32_t rank,
                                 const struct twill_shape *shape, struct twill_error *error);

/* The elements of a reduction: what their sizes and speed depend on. */
struct twill_element_kind {
    twill_type type;
    bool narrow; /* partials of 8- and 16-bit floats are elements, too; otherwise f32 */
};

static inline struct twill_element_kind twill_wide_elements(twill_type type)
{
    return (struct twill_element_kind){.type = type};
}

/* Return the width of a partial, in elements. */
unsigned twill_partial_width(struct twill_element_kind elements);

/* A call to choose an algorithm for. It has only what all ranks know, so that all ranks choose
 * alike. */
struct twill_select_request {
    enum twill_collective collective;
    uint32_t root; /* 0 unless the collective is rooted */
    /* Of the whole message, all shards together: what twill-bench calls size. 0 with `vector` in
     * gather, scatter and alltoall, where no rank knows it. */
    size_t bytes;
    /* Every buffer that the call needs is mapped by the peers of its node. Ranks of other nodes may
     * have another value; with several nodes it therefore decides between STAGED and MAPPED only.
     */
    bool mapped;
    /* Every buffer that the call needs can be read by peers with a system call. Single-node worlds
     * only. */
    bool fetched;
    bool vector;
    enum twill_order order; /* ANY unless the collective reduces */
    twill_type type;        /* of a reduction's elements; TWILL_U8 for a user-defined operation */
    bool narrow;            /* as in struct twill_element_kind */
};

static inline bool twill_requests_match(const struct twill_select_request *a,
                                        const struct twill_select_request *b)
{
    return a->bytes == b->bytes && a->collective == b->collective && a->root == b->root &&
           a->mapped == b->mapped && a->fetched == b->fetched && a->vector == b->vector &&
           a->order == b->order && a->type == b->type && a->narrow == b->narrow;
}

struct twill_choice {
    const struct twill_algorithm *algorithm;
    struct twill_shape shape;
    bool requested;
    bool substituted; /* TWILL_ALGORITHM names an algorithm that does not support this call */
};

/* Return whether no message of the choice waits for another's data. */
static inline bool twill_choice_exchanges(const struct twill_choice *choice)
{
    return (choice->algorithm->exchanges >> choice->shape.collective & 1) != 0;
}

/* Chooses algorithms for one world; owns the parsed user override and the prices computed so far. A
 * chooser may be used by one thread at a time. */
struct twill_chooser;
struct twill_tuning;
twill_status twill_chooser_create(struct twill_chooser **chooser, const struct twill_world *world,
                                  const struct twill_tuning *tuning, const char *requested,
                                  struct twill_error *error);
void twill_chooser_destroy(struct twill_chooser *chooser);

/* Where ranks of one world look for prices that another rank has computed or is computing. All of
 * them compute the same, so it makes no difference to a choice who does. A record is
 * TWILL_PRICE_WORDS words. */
#define TWILL_PRICE_WORDS 12
enum twill_price_record {
    TWILL_RECORD_THERE,  /* the words are those of the key */
    TWILL_RECORD_MINE,   /* compute it now, then call give() in any case */
    TWILL_RECORD_THEIRS, /* another rank is computing it */
    TWILL_RECORD_NONE    /* compute it without giving it to others */
};
struct twill_price_records {
    /* Look for a record. With `wait`, never returns THEIRS, but waits for that rank, or returns
     * NONE if it takes too long. */
    enum twill_price_record (*ask)(void *user, uint64_t key, bool wait,
                                   uint64_t words[TWILL_PRICE_WORDS]);
    /* Give what ask() has left to this rank; NULL: it could not be computed. */
    void (*give)(void *user, uint64_t key, const uint64_t words[TWILL_PRICE_WORDS]);
    void *user;
    uint32_t rank; /* a number of this rank, to divide the work by */
};
/* Let the chooser share prices through `records`, which is copied. */
void twill_chooser_share(struct twill_chooser *chooser, const struct twill_price_records *records);
/* Tell the chooser, which has not chosen yet, that on each node `ranks` share a core. Their work
 * adds up there, and a rank that has waited needs a turn. 0 and 1 change nothing. */
void twill_chooser_crowd(struct twill_chooser *chooser, uint32_t ranks);

/* How a rank can access the buffers of its node's peers. */
enum twill_access { TWILL_ACCESS_MAPPED = 1, TWILL_ACCESS_FETCHED = 2 };

/* Return the set of enum twill_access that the choice depends on; 0: the peers' buffer addresses
 * need not be exchanged, which saves a round. All ranks get the same result. */
unsigned twill_mapping_matters(struct twill_chooser *chooser,
                               const struct twill_select_request *request);
/* Choose an algorithm and shape. Deterministic: the same world, tuning, override and request give
 * the same choice on all ranks. Allocates only on the first request for a collective. */
twill_status twill_select(struct twill_choice *choice, struct twill_chooser *chooser,
                          const struct twill_select_request *request, struct twill_error *error);

/* Verify the schedules of all ranks, schedules[world->size], by running them against each other:
 *
 *   values    each block of DST that a rank holds ends as the right input, or as the reduction of
 *             every rank's contribution: each once, in the shape's order, FINAL applied once, and
 *             equal on all ranks
 *   partials  the steps' flags match the state of what they read
 *   messages  sends and receives match in order and length, without deadlock if none is buffered
 *   memory    every access to memory of this rank or a peer is ordered by happens-before
 *
 * Three consecutive runs alternate the copies of SHARED and IMM (one run where ranks share no
 * memory). in_place makes SRC and DST the same memory where a rank holds both (not alltoall).
 * Returns TWILL_OK, or TWILL_ERR_INTERNAL with a message that names rank, lane, step and reason. */
twill_status twill_schedule_verify(const struct twill_schedule *schedules,
                                   const struct twill_world *world, const struct twill_shape *shape,
                                   bool in_place, struct twill_error *error);

/* Like twill_schedule_verify(), with `window` instances in flight, over as many runs as reuse every
 * copy. */
twill_status twill_schedule_verify_window(const struct twill_schedule *schedules,
                                          const struct twill_world *world,
                                          const struct twill_shape *shape, bool in_place,
                                          uint32_t window, struct twill_error *error);

/* Like twill_schedule_verify(), for worlds too large for it: one run, contributions identified by
 * sums of random numbers, and happens-before within nodes only (what only another node's messages
 * order counts as unordered). */
twill_status twill_schedule_verify_fingerprint(const struct twill_schedule *schedules,
                                               const struct twill_world *world,
                                               const struct twill_shape *shape, bool in_place,
                                               struct twill_error *error);

#endif

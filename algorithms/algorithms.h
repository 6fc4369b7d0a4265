/* SPDX-License-Identifier: Apache-2.0 */
/* The interface of algorithms/. It declares the collectives, the algorithms and their registry, the
 * choice of an algorithm for a call, and the functions that emit, check and verify schedules.
 *
 *   shard    the part of a buffer that belongs to one rank
 *   block    the unit in which the steps of a schedule address a buffer, a fraction of a shard
 *   partial  the reduction of some of the contributions; the final value reduces all of them */
#ifndef TWILL_ALGORITHMS_H
#define TWILL_ALGORITHMS_H

#include "algorithms/collective_list.h"
#include "algorithms/schedule/schedule.h"

struct twill_shape;
struct twill_emitter;

/* Return a name such as "allreduce", or "?" if there is no such collective. */
const char *twill_collective_name(enum twill_collective collective);

/* The ranks that have shards in SRC or DST, and which shards. */
enum twill_holder {
    TWILL_HOLDS_NOTHING,
    TWILL_HOLDS_ALL, /* every rank has all shards */
    TWILL_HOLDS_OWN, /* rank r has shard r */
    TWILL_HOLDS_ROOT /* the root has all shards, other ranks have none */
};

/* The properties of a collective. There is one constant for each, made from collective_list.h. */
struct twill_collective_facts {
    const char *name;
    bool reduces; /* it takes a reduction operation */
    bool rooted;  /* one rank, the root, has a special part */
    bool sharded; /* the message has one shard per rank; otherwise it is a single shard */
    bool joins;   /* by its semantics no rank returns before every rank has started */
    enum twill_holder src, dst; /* the ranks that have shards in SRC and in DST */
};
/* Return the constant of a collective, which must be below TWILL_COLLECTIVE_COUNT. */
const struct twill_collective_facts *twill_collective_facts(enum twill_collective collective);
/* Return whether SRC of this rank contains the shard. */
bool twill_shape_holds_src(const struct twill_shape *shape, uint32_t rank, uint32_t shard);
/* Return whether DST of this rank contains the shard. */
bool twill_shape_holds_dst(const struct twill_shape *shape, uint32_t rank, uint32_t shard);
/* Return whether every rank knows the sizes of all shards. That is so unless shards may differ in
 * size (`vector`) and the collective is a gather, scatter or alltoall. */
bool twill_shape_knows_all(const struct twill_shape *shape);

/* The order in which a reduction combines the contributions of the ranks. */
enum twill_order {
    TWILL_ORDER_ANY,   /* any order, provided that it is the same for all ranks */
    TWILL_ORDER_RANKS, /* by rank, with any association, for operations that do not commute */
    TWILL_ORDER_LEFT,  /* ((0 op 1) op 2) op ..., which TWILL_REPRODUCIBLE asks for */
    TWILL_ORDER_COUNT
};

/* The smallest message, in bytes, for which ranks check whether all buffers are mapped. Zero-copy
 * saves two copies, but every rank waits for the slowest at the end and touches pages of all peers.
 * It therefore pays only when a copy takes longer than a synchronisation. */
#define TWILL_MAPPED_BYTES ((size_t)1 << 10)

/* The intra-node protocol, which is how the ranks of one node exchange data. */
enum twill_protocol {
    TWILL_PROTOCOL_IMM,     /* up to TWILL_IMM_BYTES beside the flag; all ranks reduce everything */
    TWILL_PROTOCOL_FLAT,    /* through SHARED, one synchronisation; all ranks reduce everything */
    TWILL_PROTOCOL_STAGED,  /* through SHARED, two synchronisations; each reduces its blocks */
    TWILL_PROTOCOL_MAPPED,  /* the SRC and DST of peers are read and written in place */
    TWILL_PROTOCOL_FETCHED, /* the SRC and DST of peers are read by a system call, not written */
    TWILL_PROTOCOL_COUNT
};
/* Return a name such as "staged", or "?" if there is no such protocol. */
const char *twill_protocol_name(enum twill_protocol protocol);
/* Return whether each rank of a node reduces only its own blocks. */
static inline bool twill_protocol_is_sharded(enum twill_protocol protocol)
{
    return protocol >= TWILL_PROTOCOL_STAGED;
}

#define TWILL_PARAMETERS 4

/* The input of an algorithm, a plain value. It is a call without its sizes and buffers. */
struct twill_shape {
    enum twill_collective collective;
    enum twill_protocol protocol; /* ignored by algorithms without protocols */
    uint32_t root;                /* 0 unless the collective is rooted */
    /* Shards may differ in size. In allgather and reduce_scatter every rank knows all sizes. In
     * gather, scatter and alltoall a rank knows only those of its own messages. A message is then
     * one shard, without TMP and SHARED. MAPPED is not possible, as no SRC or DST is mapped. */
    bool vector;
    enum twill_order order; /* ANY unless the collective reduces */
    /* As written after the name, {4, 6} in "torus=4x6". The algorithm chooses those that are 0. */
    uint16_t parameter[TWILL_PARAMETERS];
};

/* An algorithm, constant data and functions in a file of collectives/ that registry.h lists. */
struct twill_algorithm {
    const char *name; /* "ring", "recursive_doubling", "direct", "tree", "hierarchical:ring", ... */
    const char *help; /* one line with the idea, the rounds, the bytes and the source */
    uint32_t collectives; /* bit per enum twill_collective */
    uint32_t protocols;   /* bit per enum twill_protocol, or 0 if it does not matter */
    uint32_t exchanges;   /* bit per enum twill_collective whose messages wait for no other data */
    uint32_t parameters;  /* number of parameters that it takes, from 0 to TWILL_PARAMETERS */
    /* A message has shards of several ranks. It is received in TMP or SHARED, where shards follow
     * each other in every segment of a call. If it is sent from SRC, a call of several segments
     * copies SRC first. */
    bool packs;
    /* If any rank of a node signals twice, each rank sees that in its own steps. It signals twice
     * itself, or awaits the second signal. */
    bool signals_alike;
    /* Return whether it can emit this shape for this world, considering vector, order and
     * parameters. The root is a rank of the world. Must be pure and cheap. */
    bool (*applies)(const struct twill_world *world, const struct twill_shape *shape);
    /* Parse the text after "=" into parameters. Returns false if it is malformed. NULL means that
     * the text consists of numbers with x between them. */
    bool (*parse)(const char *text, size_t length, uint16_t parameter[TWILL_PARAMETERS]);
    const char *examples; /* texts for parse() that tests try, separated by ";", or NULL */
    /* Append the steps of the emitter's rank for a shape that applies() accepts. */
    void (*emit)(struct twill_emitter *emitter, const struct twill_shape *shape);
};

/* Return the algorithm at this index of the registry, or NULL past the end. */
const struct twill_algorithm *twill_algorithm_at(size_t index);

/* Return whether the algorithm supports the collective, protocol and shape on this world. Call this
 * instead of applies(). The protocol is ignored for barriers. Otherwise, an algorithm with
 * protocols supports nothing in a world where ranks of a node use only messages (`by_messages`). */
bool twill_algorithm_applies(const struct twill_algorithm *algorithm,
                             const struct twill_world *world, const struct twill_shape *shape);

/* Check the schedule of one rank as plain data. Every step must be well formed, operands must lie
 * inside their spaces and in shards that the rank holds, and partials may appear only where they
 * are allowed. Returns TWILL_OK, or TWILL_ERR_INTERNAL with lane, step and reason in `error`. */
twill_status twill_schedule_check(const struct twill_schedule *schedule,
                                  const struct twill_world *world, uint32_t rank,
                                  const struct twill_shape *shape, struct twill_error *error);

/* Emit the schedule of one rank and check it as twill_schedule_check() does. On success the caller
 * owns the schedule and releases it with twill_schedule_destroy(). Returns TWILL_ERR_ARGUMENT if an
 * argument is out of range, TWILL_ERR_UNSUPPORTED if the algorithm does not apply, and
 * TWILL_ERR_MEMORY or TWILL_ERR_INTERNAL for other failures. */
twill_status twill_schedule_emit(struct twill_schedule *schedule,
                                 const struct twill_algorithm *algorithm,
                                 const struct twill_world *world, uint32_t rank,
                                 const struct twill_shape *shape, struct twill_error *error);

/* The kind of elements that are reduced, on which sizes and speed depend. A plain value. */
struct twill_element_kind {
    twill_type type;
    bool narrow; /* partials of 8- and 16-bit floats keep the element type instead of f32 */
};

/* Return the kind of elements of this type whose partials are wide. */
static inline struct twill_element_kind twill_wide_elements(twill_type type)
{
    return (struct twill_element_kind){.type = type};
}

/* Return the size of a partial, as a multiple of the size of an element. */
unsigned twill_partial_width(struct twill_element_kind elements);

/* A call for which an algorithm is chosen, a plain value of the caller. It has only what all ranks
 * know, so that all choose alike. */
struct twill_select_request {
    enum twill_collective collective;
    uint32_t root; /* 0 unless the collective is rooted */
    /* Bytes of the whole message, all shards together, which twill-bench calls size. It is 0 with
     * `vector` in gather, scatter and alltoall, where no rank knows it. */
    size_t bytes;
    /* The peers of its node have mapped every buffer that the call needs. The value may differ on
     * other nodes. With several nodes it therefore decides between STAGED and MAPPED only. */
    bool mapped;
    /* Peers can read every buffer of the call with a system call. Only in worlds of one node. */
    bool fetched;
    /* With `fetched`, a trial prefers FETCHED to STAGED (see twill_fetch_is_tried()). */
    bool fetch_pays;
    bool vector;
    enum twill_order order; /* ANY unless the collective reduces */
    twill_type type; /* of the elements of a reduction, TWILL_U8 for a user-defined operation */
    bool narrow;     /* as in struct twill_element_kind */
};

/* Return whether two requests are equal in every member. */
static inline bool twill_requests_match(const struct twill_select_request *a,
                                        const struct twill_select_request *b)
{
    return a->bytes == b->bytes && a->collective == b->collective && a->root == b->root &&
           a->mapped == b->mapped && a->fetched == b->fetched && a->fetch_pays == b->fetch_pays &&
           a->vector == b->vector && a->order == b->order && a->type == b->type &&
           a->narrow == b->narrow;
}

/* Bytes of a shard from which trials compare FETCHED with STAGED, and from which on they do not.
 * Reads of shorter shards take less time than their system calls. Longer ones would keep the core
 * in one system call, while the program may want to compute beside a nonblocking call. */
#define TWILL_FETCH_TRIED_LEAST ((size_t)64 << 10)
#define TWILL_FETCH_TRIED_MOST  ((size_t)16 << 20)
/* Return whether trials compare FETCHED with STAGED in a call of `size` ranks, if both can be used
 * (lib/engine/staging.c). They do so only if nothing is reduced. */
bool twill_fetch_is_tried(const struct twill_select_request *request, uint32_t size);
/* Return whether a read by a system call pays. staged and fetched are what a call with shards of
 * `shard` bytes costs by STAGED and by FETCHED, in equal units, on the slowest rank, or 0 if that
 * is unknown. The read must save the time of staging 8 KiB, because the ranks meet once more. */
bool twill_fetch_pays(uint64_t staged, uint64_t fetched, size_t shard);

/* The result of twill_select(), an algorithm and the shape to emit it with. A plain value. */
struct twill_choice {
    const struct twill_algorithm *algorithm;
    struct twill_shape shape;
    bool requested;   /* TWILL_ALGORITHM asked for this algorithm, which supports the call */
    bool substituted; /* TWILL_ALGORITHM names an algorithm that does not support this call */
};

/* Return whether no message of the chosen algorithm waits for the data of another. */
static inline bool twill_choice_exchanges(const struct twill_choice *choice)
{
    return (choice->algorithm->exchanges >> choice->shape.collective & 1) != 0;
}

/* Chooses algorithms for one world. It owns the parsed user override and the prices computed so
 * far. Only one thread may use a chooser at a time. */
struct twill_chooser;
struct twill_tuning;
/* Create a chooser for a world. `tuning` may be NULL. `requested` is the text of TWILL_ALGORITHM or
 * NULL. The chooser keeps pointers to the world and the tuning, which must outlive it. On failure
 * *chooser is NULL. Returns TWILL_OK, TWILL_ERR_MEMORY, or the error of parsing `requested`. */
twill_status twill_chooser_create(struct twill_chooser **chooser, const struct twill_world *world,
                                  const struct twill_tuning *tuning, const char *requested,
                                  struct twill_error *error);
/* Free a chooser, which may be NULL. */
void twill_chooser_destroy(struct twill_chooser *chooser);

#define TWILL_PRICE_WORDS 12 /* words of a record */
enum twill_price_record {
    TWILL_RECORD_THERE,  /* the words of this key have been stored in `words` */
    TWILL_RECORD_MINE,   /* this rank must compute them now and then call give() in any case */
    TWILL_RECORD_THEIRS, /* another rank is computing them */
    TWILL_RECORD_NONE    /* compute them without giving them to others */
};
/* Access to a table of predicted times that the ranks of one world share, so that only one rank has
 * to compute each of them. All ranks would compute the same words, so a choice does not depend on
 * which rank did. The owner of the table fills this in. */
struct twill_price_records {
    /* Look for the record of `key`, and store its words in `words` if it is there. With `wait`, the
     * function waits for a rank that is computing them instead of returning TWILL_RECORD_THEIRS. It
     * returns TWILL_RECORD_NONE if that takes too long. */
    enum twill_price_record (*ask)(void *user, uint64_t key, bool wait,
                                   uint64_t words[TWILL_PRICE_WORDS]);
    /* Publish the words of a key for which ask() has returned TWILL_RECORD_MINE to this rank. NULL
     * means that they could not be computed. */
    void (*give)(void *user, uint64_t key, const uint64_t words[TWILL_PRICE_WORDS]);
    void *user;    /* the first argument of ask() and give() */
    uint32_t rank; /* the number of this rank, by which the work is divided */
};
/* Let the chooser share predicted times with other ranks through `records`, which it copies. */
void twill_chooser_share(struct twill_chooser *chooser, const struct twill_price_records *records);
/* Declare that `ranks` ranks of a node share each of its cores. Prices then add up their work, and
 * a rank that waited needs its turn on the core. Call it before any choice. 0 and 1 have no
 * effect. */
void twill_chooser_crowd(struct twill_chooser *chooser, uint32_t ranks);

struct twill_thread_rates; /* lib/base/thread_rates.h */
/* Declare that each rank has `threads` threads, which share copies and reductions, and what they
 * cost. Without rates, or if there are none for several threads, those of the machine model count.
 * All ranks must declare the same. Call it before any choice. 0 and 1 threads have no effect. */
void twill_chooser_threads(struct twill_chooser *chooser, uint32_t threads,
                           const struct twill_thread_rates *rates);

/* How a rank can access the buffers of the peers of its node. */
enum twill_access {
    TWILL_ACCESS_MAPPED = 1,
    TWILL_ACCESS_FETCHED = 2,
    TWILL_ACCESS_TRIED = 4 /* with FETCHED: trials decide whether it is used */
};

/* Return the set of enum twill_access on which the choice for this request depends, for any message
 * below TWILL_MAPPED_BYTES 0. If it is 0, the buffer addresses of peers need not be exchanged,
 * which saves a round. All ranks get the same. */
unsigned twill_mapping_matters(struct twill_chooser *chooser,
                               const struct twill_select_request *request);
/* Choose an algorithm and a shape. The same world, tuning, override and request give the same
 * choice on all ranks. Allocates no memory if the chooser has lately chosen for an equal request.
 * Returns TWILL_ERR_CONFIG if TWILL_ALGORITHM demands the impossible, TWILL_ERR_UNSUPPORTED for no
 * choice. */
twill_status twill_select(struct twill_choice *choice, struct twill_chooser *chooser,
                          const struct twill_select_request *request, struct twill_error *error);

/* Set *bytes to the bytes of slots in which short shards of a gather, scatter or alltoall with
 * counts are moved together by a call with shards of that size, or to 0 if that does not pay. It
 * pays if that call takes at most a quarter of the time of messages for all short shards, and an
 * eighth of that for shards of 4 KiB, which are messages besides. */
twill_status twill_slot_pays(size_t *bytes, struct twill_chooser *chooser,
                             const struct twill_world *world, const struct twill_tuning *tuning,
                             enum twill_collective collective, struct twill_error *error);

/* Verify the schedules of all ranks, schedules[world->size], by running them against each other:
 *
 *   values    each block of DST that a rank holds ends as the right input, or as the reduction of
 *             the contributions of all ranks, each once, in the order of the shape, with FINAL
 *             applied once, and with the same result on all ranks
 *   partials  the flags of the steps match the state of what they read
 *   messages  sends and receives match in order and length, without deadlock if none is buffered
 *   memory    every access to memory of this rank or a peer is ordered by happens-before
 *
 * Three consecutive runs alternate the copies of SHARED and IMM. One run suffices where ranks share
 * no memory. in_place makes SRC and DST the same memory where a rank holds both (not in alltoall).
 * Returns TWILL_OK, TWILL_ERR_INTERNAL with a message that names rank, lane, step and reason, or
 * TWILL_ERR_MEMORY. */
twill_status twill_schedule_verify(const struct twill_schedule *schedules,
                                   const struct twill_world *world, const struct twill_shape *shape,
                                   bool in_place, struct twill_error *error);

/* Verify like twill_schedule_verify() with `window` instances in flight at a time. There are enough
 * runs for every copy of SHARED and IMM to be used again. */
twill_status twill_schedule_verify_window(const struct twill_schedule *schedules,
                                          const struct twill_world *world,
                                          const struct twill_shape *shape, bool in_place,
                                          uint32_t window, struct twill_error *error);

/* Verify like twill_schedule_verify() worlds that are too large for that. There is one run,
 * contributions are identified by sums of random numbers, and happens-before is tracked within
 * nodes only. Accesses that are ordered only by messages of another node count as unordered. */
twill_status twill_schedule_verify_fingerprint(const struct twill_schedule *schedules,
                                               const struct twill_world *world,
                                               const struct twill_shape *shape, bool in_place,
                                               struct twill_error *error);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The algorithms: pure functions that emit schedules, their registry, the selector, the verifier,
 * the printer. */
#ifndef TWILL_ALGORITHMS_H
#define TWILL_ALGORITHMS_H

#include "algorithms/schedule/schedule.h"

struct twill_shape;

enum twill_collective {
    TWILL_ALLREDUCE,
    TWILL_BROADCAST,
    TWILL_BARRIER, /* an allreduce of nothing */
    TWILL_REDUCE,
    TWILL_ALLGATHER,
    TWILL_REDUCE_SCATTER,
    TWILL_GATHER,
    TWILL_SCATTER,
    TWILL_ALLTOALL,
    TWILL_COLLECTIVE_COUNT
};
const char *twill_collective_name(enum twill_collective collective);

/* Which rank holds which parts of SRC or DST. */
enum twill_holder {
    TWILL_HOLDS_NOTHING,
    TWILL_HOLDS_ALL, /* every rank: all parts */
    TWILL_HOLDS_OWN, /* every rank: the part of its number */
    TWILL_HOLDS_ROOT /* the root: all parts; others: nothing */
};

/* What a collective is: the table that everything else asks. */
struct twill_collective_facts {
    const char *name;
    bool reduces; /* has an operation */
    bool rooted;  /* has a root */
    bool sharded; /* one part per rank; else 1 */
    bool joins;   /* nobody may end before everybody has begun, by its very meaning */
    enum twill_holder src, dst;
};
const struct twill_collective_facts *twill_collective_facts(enum twill_collective collective);
/* Does this rank's SRC, or DST, hold this part? */
bool twill_shape_holds_src(const struct twill_shape *shape, uint32_t rank, uint32_t shard);
bool twill_shape_holds_dst(const struct twill_shape *shape, uint32_t rank, uint32_t shard);
/* Do all ranks know the sizes of all parts? See `vector`. */
bool twill_shape_knows_all(const struct twill_shape *shape);

/* The order that operands are folded in. */
enum twill_order {
    TWILL_ORDER_ANY,   /* any, the same on all ranks */
    TWILL_ORDER_RANKS, /* by rank, associated anyhow: operations that do not commute */
    TWILL_ORDER_LEFT,  /* by rank from the left, ((0 op 1) op 2) op ...: TWILL_REPRODUCIBLE */
    TWILL_ORDER_COUNT
};

/* Messages from this size up are worth asking whether all buffers are mapped. Zero-copy saves two
 * copies, but has every rank wait for the slowest at the end and touch pages of all peers: it pays
 * when a copy takes longer than a synchronisation. Measured on Sapphire Rapids, 2 ranks: 512 bytes
 * 0.54 us mapped and 0.49 flat, 1 KiB 0.53 and 0.72, 2 KiB 0.6 and 0.95. */
#define TWILL_MAPPED_BYTES ((size_t)1 << 10)

/* How the ranks of one node exchange data in a composed schedule. */
enum twill_protocol {
    TWILL_PROTOCOL_IMM,  /* up to 368 bytes, beside the flag; everyone folds everything */
    TWILL_PROTOCOL_FLAT, /* small: through SHARED, everyone folds everything, one synchronisation */
    TWILL_PROTOCOL_STAGED,  /* through SHARED, each folds its slice, two synchronisations */
    TWILL_PROTOCOL_MAPPED,  /* peers' SRC and DST read and written in place */
    TWILL_PROTOCOL_FETCHED, /* peers' SRC and DST read by a system call, and never written */
    TWILL_PROTOCOL_COUNT
};
const char *twill_protocol_name(enum twill_protocol protocol);
/* Does each rank of a node have a part of its own to fold? */
static inline bool twill_protocol_is_sharded(enum twill_protocol protocol)
{
    return protocol >= TWILL_PROTOCOL_STAGED;
}

#define TWILL_PARAMETERS 4

/* What a schedule is asked for. */
struct twill_shape {
    enum twill_collective collective;
    enum twill_protocol protocol; /* read by algorithms that work inside a node */
    uint32_t root;                /* of rooted collectives, else 0 */
    /* Parts may differ in size. All ranks know all sizes in allgather and reduce_scatter; in
     * gather, scatter and alltoall a rank knows those of its own messages only: a message is one of
     * its own parts, and there is neither TMP nor SHARED. Peers' SRC and DST are not mapped (no
     * MAPPED). */
    bool vector;
    enum twill_order order; /* of what reduces */
    /* Of the algorithm, as written after its name: "torus=4x6" is {4, 6}. 0: its own choice. */
    uint16_t parameter[TWILL_PARAMETERS];
};

/* One algorithm: how it is known, what it can do, how it emits. */
struct twill_algorithm {
    const char *name; /* "ring", "recursive_doubling", "direct", "tree", "hierarchical:ring", ... */
    const char *help; /* one line: idea, rounds, bytes, source */
    uint32_t collectives; /* bit per enum twill_collective */
    uint32_t protocols;   /* bit per enum twill_protocol it distinguishes; 0: none */
    uint32_t parameters;  /* how many numbers it takes, at most TWILL_PARAMETERS */
    /* Pure, and cheap. Must be false where shape's vector, order, root or parameters are not for
     * it.
     */
    bool (*applies)(const struct twill_world *world, const struct twill_shape *shape);
    /* NULL, or reads what follows "=" if that is not numbers with x between them; false: nonsense.
     */
    bool (*parse)(const char *text, size_t length, uint16_t parameter[TWILL_PARAMETERS]);
    const char *examples; /* NULL, or texts to parse, with ; between them: what tests try */
    twill_status (*emit)(struct twill_schedule *schedule, const struct twill_world *world,
                         uint32_t rank, const struct twill_shape *shape, struct twill_error *error);
};

const struct twill_algorithm *twill_algorithm_at(size_t index); /* NULL past the end */
const struct twill_algorithm *twill_algorithm_find(const char *name);

/* Does it do this collective, in this flavour, on this world? Ask this, not applies() itself. A
 * barrier has no flavour. */
bool twill_algorithm_applies(const struct twill_algorithm *algorithm,
                             const struct twill_world *world, const struct twill_shape *shape);

/* Invariants of one rank's schedule as plain data, for this shape: every step well formed, in its
 * ranges, at blocks that there are, no partial where none may be: TWILL_ERR_INTERNAL names lane,
 * step, reason. */
twill_status twill_schedule_check(const struct twill_schedule *schedule,
                                  const struct twill_world *world, uint32_t rank,
                                  const struct twill_shape *shape, struct twill_error *error);

/* Emit by algorithm, then check invariants of the plain data (lanes, ranges, capacities). */
twill_status twill_schedule_emit(struct twill_schedule *schedule,
                                 const struct twill_algorithm *algorithm,
                                 const struct twill_world *world, uint32_t rank,
                                 const struct twill_shape *shape, struct twill_error *error);

/* What is asked of the selector: only what all ranks know alike, so that all choose alike. */
struct twill_select_request {
    enum twill_collective collective;
    uint32_t root; /* of rooted collectives, else 0 */
    /* Of the whole message: all parts together, which is what twill-bench calls size. With
     * `vector`, in gather, scatter and alltoall, nobody knows it: 0. */
    size_t bytes;
    /* Every buffer that it needs is in memory that the node's peers have mapped. Known alike on one
     * node only: with several it decides between STAGED and MAPPED, and nothing else. */
    bool mapped;
    /* Every buffer that it needs can be read by the node's peers, by a system call. On one node
     * only. */
    bool fetched;
    bool vector;
    enum twill_order order; /* of what reduces, else ANY */
    twill_type type;        /* of what reduces; an operation of one's own: TWILL_U8 */
};

struct twill_choice {
    const struct twill_algorithm *algorithm;
    struct twill_shape shape;
    bool requested;   /* TWILL_ALGORITHM names it */
    bool substituted; /* what TWILL_ALGORITHM names does not do this call: chosen without it */
};

/* Chooses for one world: holds what was wished for, and remembers prices. Not for two threads at a
 * time. The world and the tuning (NULL: none) must outlive it. `wanted` is TWILL_ALGORITHM's value
 * or NULL; algorithms/select/override.h says how it reads. What cannot be read, an unknown name, or
 * one that can never apply to this world is TWILL_ERR_CONFIG. */
struct twill_chooser;
struct twill_tuning; /* algorithms/select/tuning_file.h */
twill_status twill_chooser_create(struct twill_chooser **chooser, const struct twill_world *world,
                                  const struct twill_tuning *tuning, const char *requested,
                                  struct twill_error *error);
void twill_chooser_destroy(struct twill_chooser *chooser);

/* What a rank may do with the buffers of its node's peers. */
enum twill_access { TWILL_ACCESS_MAPPED = 1, TWILL_ACCESS_FETCHED = 2 };

/* Which access to the peers' buffers does the choice depend on? `fetched` says whether that can be
 * had. Asking the peers costs a turn. The same on all ranks. */
unsigned twill_mapping_matters(struct twill_chooser *chooser,
                               const struct twill_select_request *request);
/* Choose. Deterministic: all ranks get the same answer from the same world, tuning, wish and
 * request. Allocates where a collective is asked about for the first time only. */
twill_status twill_select(struct twill_choice *choice, struct twill_chooser *chooser,
                          const struct twill_select_request *request, struct twill_error *error);

/* Check the schedules of all ranks together: schedules[world->size]. Values (each block of DST that
 * a rank holds ends as the input it should be, or as the fold of every rank's exactly once, FINAL
 * exactly once, in the order asked for, all ranks alike), states of values and the flags that tell
 * them, matching of messages, no deadlock without any buffering, and happens-before on every access
 * to memory of this rank or a peer, over three consecutive runs that alternate the copies of SHARED
 * and IMM (one, where ranks share no memory). in_place makes SRC and DST the same memory where a
 * rank holds both (not alltoall). Returns TWILL_OK, or TWILL_ERR_INTERNAL with a message that names
 * rank, lane, step and reason. */
twill_status twill_schedule_verify(const struct twill_schedule *schedules,
                                   const struct twill_world *world, const struct twill_shape *shape,
                                   bool in_place, struct twill_error *error);

/* The same with `window` instances in flight, over as many runs as reuse every copy. */
twill_status twill_schedule_verify_window(const struct twill_schedule *schedules,
                                          const struct twill_world *world,
                                          const struct twill_shape *shape, bool in_place,
                                          uint32_t window, struct twill_error *error);

/* For worlds too large for the above: the same but one run, contributions told apart by sums of
 * random numbers, and happens-before within nodes only (what is ordered only by way of another node
 * counts as not ordered). */
twill_status twill_schedule_verify_fingerprint(const struct twill_schedule *schedules,
                                               const struct twill_world *world,
                                               const struct twill_shape *shape, bool in_place,
                                               struct twill_error *error);

/* Exact costs of one rank's schedule for count elements, all parts (of one size) together. */
struct twill_schedule_cost {
    uint32_t messages;     /* SENDs */
    uint32_t rounds;       /* WAITs that something was posted before */
    uint32_t peers;        /* distinct ranks sent to or received from */
    uint32_t signals;      /* SIGNALs and PUT_IMMs */
    uint64_t bytes_sent;   /* by SEND, to ranks of other nodes and of this one */
    uint64_t bytes_remote; /* of those, to ranks of other nodes */
    uint64_t bytes_shared; /* read from or written to peers' memory on the node */
    uint64_t bytes_reduced;
};
void twill_schedule_cost(struct twill_schedule_cost *cost, const struct twill_schedule *schedule,
                         const struct twill_world *world, uint32_t rank, size_t count,
                         size_t element);

/* Schedule to text, one step a line, stable (golden files) and back. Returns the length as snprintf
 * does. */
size_t twill_schedule_print(const struct twill_schedule *schedule, char *text, size_t capacity);
twill_status twill_schedule_parse(struct twill_schedule *schedule, const char *text,
                                  struct twill_error *error);

#endif

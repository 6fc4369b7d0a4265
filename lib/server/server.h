/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter server from inside. Which file does what is in README.md.
 *
 * Tensors are cut into chunks. A core is a share of a server's chunks that one thread at a time
 * works on, and with options.threads always the same; only it touches them. Cores are numbered over
 * all servers: server * threads + thread. A worker reaches a core by a port: by rings and answers
 * in memory that both map, on one node, else by messages on a communicator of the two. */
#ifndef TWILL_SERVER_INTERNAL_H
#define TWILL_SERVER_INTERNAL_H

#include "lib/extend.h"
#include "lib/server/core/order_ring.h"
#include "lib/train/compression/coding.h"
#include "lib/twill_server.h"

#include <pthread.h>

#define TWILL_SERVER_KEYS_MOST  (1u << 20)
#define TWILL_SERVER_CORES_MOST 64u /* of a server */
#define TWILL_SERVER_NO_CORE    UINT32_MAX
#define TWILL_SERVER_CHUNK_STEP 1024u
#define TWILL_SERVER_CHUNK_MOST ((size_t)1 << 30)
#define TWILL_STALENESS_MOST    1024u                  /* of the histogram */
#define TWILL_LIST_HEAD         (2 * sizeof(uint32_t)) /* of a sparse list: its length, and 0 */
#define TWILL_LIST_ENTRY        (sizeof(uint32_t) + sizeof(float))

struct twill_core;
struct twill_server_link;

/* Where a chunk is; the same on all ranks. */
struct twill_chunk_place {
    uint32_t key;
    uint32_t core;              /* its number; twill_replica_core() has a copy */
    size_t first, count;        /* elements of the tensor */
    size_t wire_at, wire_bytes; /* of its gradient, within what a worker pushes of the tensor */
};

/* How a tensor's gradient travels. */
struct twill_push_code {
    bool used;
    enum twill_coding kind;
    struct twill_block_format format; /* of blocks; narrow: only its code */
};

/* A tensor. Constant after the commit, but for the last group. */
struct twill_server_key {
    char *name;
    size_t count, bytes; /* of the parameters */
    twill_type type;
    struct twill_push_code code;
    uint32_t first_chunk, chunks;
    size_t wire_bytes;

    /* A worker's memory. Where server and caller have different memory, it is copied. */
    void *gradient, *parameters;       /* the caller's or this server's; NULL: does not work */
    bool own_gradient, own_parameters; /* of twill_alloc() by this server */
    unsigned char *sent, *landed;      /* what servers read and write */
    float *residual;                   /* of error feedback, or NULL */

    /* Progress, of the thread that pushes or pulls the key. */
    _Atomic uint64_t pushes, pulls;         /* numbers of the last ones that were started */
    _Atomic uint64_t pushes_end, pulls_end; /* and of the last that are complete */
    _Atomic uint64_t version;
};

/* A worker's end of the way to a core. */
struct twill_port {
    uint32_t core, rank;               /* rank: of the server, in server->comm */
    uint32_t *chunks;                  /* [keys] of each key there */
    uint64_t *push_bytes, *pull_bytes; /* [keys] of these, as they travel */
    struct twill_order_ring *ring;     /* in this rank's memory, or NULL */
    struct twill_answer *answer;       /* [keys] in the server's memory, or own where link is set */
    struct twill_answer *own_answer;
    struct twill_server_link *link;
};

struct twill_server_usage {
    uint64_t bytes_sent, bytes_received, bytes_messages, bytes_metadata, bytes_copied, credit_waits;
};

/* Which rank does what: numbers of servers, workers and cores. Constant after the creation. */
struct twill_server_roles {
    uint32_t servers, workers;
    uint32_t *server_rank;   /* [servers] ascending; worker_rank too */
    uint32_t *worker_rank;   /* [workers] */
    _Atomic bool *suspect;   /* [servers] found dead once */
    uint32_t server, worker; /* this rank's number among them; UINT32_MAX: none */
    uint32_t threads;        /* cores of a server, at least 1 */
    uint32_t cores;          /* of all servers */
};

/* The rule of updates. Changed by twill_server_set_optimizer(), with all cores here locked. */
struct twill_server_rule {
    twill_optimizer optimizer, declared; /* declared: by the options; equal on all ranks */
    uint64_t settings;                   /* how often `optimizer` has been changed */
    bool has_optimizer;
    uint32_t states; /* of the optimizer, for each parameter */
    uint32_t need;   /* gradients of an update: options.k, or c of n-softsync; set by the commit */
};

/* How the tensors are cut, and divided among the cores. The same on all ranks after the commit. */
struct twill_server_cut {
    struct twill_chunk_place *place; /* [places] by key */
    uint32_t places;
    uint64_t most_bytes, least_bytes; /* of a core */
    size_t chunk_bytes;               /* as options.chunk_bytes, or chosen; 0: not yet */
    const char *chunk_choice;         /* how, in words */
};

/* Created by twill_server_create(), freed by twill_server_destroy(). */
struct twill_server {
    twill_context *context;
    struct twill_extend_process process;
    twill_comm *parent; /* the caller's, until the commit */
    twill_comm *comm;   /* own */
    uint32_t rank, size;
    twill_server_options options;
    struct twill_server_rule rule;
    struct twill_server_roles roles;
    struct twill_server_cut cut;
    bool successor;           /* by twill_server_rebuild(), of one that was committed */
    struct twill_server *old; /* what it replaces: ended once all ranks have stopped theirs */
    bool loaded;              /* twill_server_load() was called */
    twill_status lacking; /* of this rank's part in a rebuild: all ranks learn it in the commit */
    bool committed;
    struct twill_advancer *hook; /* of threads that wait; added at the commit, or NULL */
    _Atomic bool broken;

    struct twill_server_key *key;
    uint32_t keys, keys_held;
    unsigned char **held; /* [places] records of chunks that this rank brings, or NULL */

    bool offered;            /* others may map this rank's memory */
    bool starts;             /* threads of cores may run on other ranks */
    void *control;           /* rings of this worker, answers of this server: of twill_alloc() */
    struct twill_port *port; /* [cores] of a worker */
    struct twill_core *core; /* [threads] of a server */
    struct twill_server_link *link;
    uint32_t links;

    pthread_mutex_t posting;         /* of orders and links' queues */
    bool left;                       /* this worker pushes and pulls no more */
    _Atomic uint32_t moved;          /* counts progress, for deadlines of waits */
    _Atomic uint64_t next_check;     /* of servers, by twill_server_test() */
    struct twill_server_usage usage; /* of the worker; under `posting` */
    _Atomic uint64_t copied;

    pthread_mutex_t failing; /* of the errors */
    struct twill_error error, refused;
    char line[400];
};

/* --- chunk_layout.c --- */

/* Return whether tensors may be cut into chunks of a size. */
bool twill_server_is_chunk_size(size_t bytes);

/* Find out which ranks serve and work. */
twill_status twill_server_cast(struct twill_server *server);
/* Cut tensors into chunks and assign these to cores. On failure none are cut. */
twill_status twill_server_place(struct twill_server *server);
/* Undo that. No state may be held. */
void twill_server_unplace(struct twill_server *server);
/* Return the rank of the server that has a core. */
static inline uint32_t twill_core_rank(const struct twill_server *server, uint32_t core)
{
    return server->roles.server_rank[core / server->roles.threads];
}
/* Return whether chunks have replicas: a server that is left alone has nowhere to put them. */
static inline bool twill_server_replicates(const struct twill_server *server)
{
    return server->options.replicas > 1 && server->roles.servers > 1;
}
/* Return the core that has the replicas of another one's chunks: that of the same number of the
 * next server; or TWILL_SERVER_NO_CORE. */
static inline uint32_t twill_replica_core(const struct twill_server *server, uint32_t core)
{
    return twill_server_replicates(server) ? (core + server->roles.threads) % server->roles.cores
                                           : TWILL_SERVER_NO_CORE;
}
static inline bool twill_server_works(const struct twill_server *server)
{
    return server->roles.worker != UINT32_MAX;
}
static inline bool twill_server_serves(const struct twill_server *server)
{
    return server->roles.server != UINT32_MAX;
}

/* --- chunk_size.c --- */

/* Choose the size of chunks where the options do not. Collective, before twill_server_place(). */
twill_status twill_server_choose_chunk_bytes(struct twill_server *server);

/* --- create.c --- */

/* Return the worst status of all ranks, of which `status` is this one's; *call: of the exchange.
 * Collective. */
twill_status twill_server_worst_status(twill_comm *comm, twill_status status, twill_status *call);
/* What a rank that ends a server knows of the other ranks, whose cores may map its memory. */
enum twill_server_end {
    TWILL_SERVER_END_ALONE,    /* they may still use it */
    TWILL_SERVER_END_STOPPED,  /* they use it no more, or are in no job with this rank */
    TWILL_SERVER_END_TOGETHER, /* they end it, too: wait for them */
};
/* End a server: its memory is freed by `context`, but what a rank of this node that lives may still
 * use is kept as long as the context. If another thread advances it for TWILL_TIMEOUT, the server
 * is kept, with a warning, and with it its communicator and the context. */
void twill_server_close(struct twill_server *server, twill_context *context,
                        enum twill_server_end end);
/* End those that a server has replaced, if any. */
void twill_server_drop_old(struct twill_server *server, enum twill_server_end end);

/* --- options.c, compare_keys.c --- */

twill_status twill_server_set_options(struct twill_server *server,
                                      const twill_server_options *options,
                                      struct twill_error *error);
/* Compare options and tensors over the ranks, unless a rank lacks memory: then all fail.
 * Collective.
 */
twill_status twill_server_compare(struct twill_server *server);
/* Let the comparison fail on all ranks, as this one cannot go on: `status`, which is returned. */
twill_status twill_server_fail_compare(struct twill_server *server, twill_status status);

/* --- server_memory.c --- */

/* Allocate and exchange what workers and servers of a node map. Collective. */
twill_status twill_server_open_memory(struct twill_server *server);
/* Return the lowest rank of this node, but this one, that lives and may use what this one offers;
 * TWILL_NO_RANK: none. */
uint32_t twill_server_memory_user(const struct twill_server *server);
/* Free it; keeps: but for what was offered. */
void twill_server_close_memory(struct twill_server *server, bool keeps);

/* --- state.c --- */

/* Bring each chunk's newest state to its cores. Collective. */
twill_status twill_server_spread_state(struct twill_server *server);
/* Take copies of the chunks here into *held of `to`, which has the same tensors. */
twill_status twill_server_hold_state(struct twill_server *to, const struct twill_server *from);
void twill_server_drop_state(struct twill_server *server);

/* --- ports.c --- */

/* Advance what this rank's calls advance. Returns whether something moved. */
bool twill_server_progress(struct twill_server *server);
/* Fail if a server has died that this rank needs for a key; -1: for any. Looks from time to time.
 */
twill_status twill_server_check(struct twill_server *server, int key);
/* Wait until done(server, argument), whose message is about keys `what`; -1: of all. */
twill_status twill_server_await(struct twill_server *server,
                                bool (*done)(struct twill_server *server, int key), int key,
                                const char *what);
/* Post an order of a key to all its cores. */
twill_status twill_server_post(struct twill_server *server, int key, unsigned kind);

/* --- server_failure.c --- */

/* Record a failure and break the server. Returns the status of the first failure. */
twill_status twill_server_fail(struct twill_server *server, twill_status status, const char *file,
                               int line, const char *format, ...) TWILL_PRINTF(5, 6);
#define TWILL_SERVER_FAIL(server, status, ...)                                                     \
    twill_server_fail((server), (status), __FILE__, __LINE__, __VA_ARGS__)
/* Fail if a communicator of two ranks has failed because one of them lacks something, such as
 * descriptors: that is no death, so neither can go on without the other. */
void twill_server_note_loss(struct twill_server *server, const twill_comm *comm);
twill_status twill_server_refuse(struct twill_server *server, const char *file, int line,
                                 const char *format, ...) TWILL_PRINTF(4, 5);
#define TWILL_SERVER_REFUSE(server, ...)                                                           \
    twill_server_refuse((server), __FILE__, __LINE__, __VA_ARGS__)
/* Write up to `bytes` of the names of keys of which a server, by its number, has chunks. */
void twill_server_name_keys(const struct twill_server *server, uint32_t number, char *text,
                            size_t bytes);

#endif

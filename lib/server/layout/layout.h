/* SPDX-License-Identifier: Apache-2.0 */
/* A parameter server from inside. Which file does what is in README.md.
 *
 * Tensors are cut into chunks. A shard is a share of a server's chunks that one thread at a time
 * works on, and with options.threads always the same; only it touches them. Shards are numbered
 * over all servers: server * threads + thread. A worker reaches a shard by a port: by rings and
 * answers in memory that both map, on one node, else by messages on a communicator of the two. */
#ifndef TWILL_SERVER_LAYOUT_H
#define TWILL_SERVER_LAYOUT_H

#include "lib/extend.h"
#include "lib/train/shared/shared.h"
#include "lib/twill_server.h"

#include <pthread.h>

#define TWILL_SERVER_KEYS_MOST   (1u << 20)
#define TWILL_SERVER_SHARDS_MOST 64u /* of a server */
#define TWILL_SERVER_NO_SHARD    UINT32_MAX
#define TWILL_SERVER_CHUNK_STEP  1024u
#define TWILL_SERVER_CHUNK_MOST  ((size_t)1 << 30)
#define TWILL_STALENESS_MOST     1024u                  /* of the histogram */
#define TWILL_LIST_HEAD          (2 * sizeof(uint32_t)) /* of a sparse list: its length, and 0 */

struct twill_answer;
struct twill_shard;
struct twill_order_ring;
struct twill_server_link;

/* Where a chunk is; the same on all ranks. */
struct twill_chunk_place {
    uint32_t key;
    uint32_t shard;             /* its number; twill_replica_shard() has a copy */
    size_t first, count;        /* elements of the tensor */
    size_t wire_at, wire_bytes; /* of its gradient, within what a worker pushes of the tensor */
};

/* A tensor. Constant after the commit, but for the last group. */
struct twill_server_key {
    char *name;
    size_t count, bytes; /* of the parameters */
    twill_type type;
    bool coded; /* its gradients travel as codes, by server->coder */
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

/* A worker's end of the way to a shard. */
struct twill_port {
    uint32_t shard, rank;              /* rank: of the server, in server->comm */
    uint32_t *chunks;                  /* [keys] of each key there */
    uint64_t *push_bytes, *pull_bytes; /* [keys] of these, as they travel */
    struct twill_order_ring *ring;     /* in this rank's memory, or NULL */
    struct twill_answer *answer;       /* [keys] in the server's memory, or own where link is set */
    struct twill_answer *own_answer;
    struct twill_server_link *link;
};

/* What a worker, or a shard, has sent and received; bytes_messages of that by messages. */
struct twill_server_usage {
    uint64_t bytes_sent, bytes_received, bytes_messages, bytes_metadata, bytes_copied, credit_waits;
};

/* Add bytes of messages; metadata: those beside tensors. */
static inline void twill_usage_add(struct twill_server_usage *usage, size_t sent, size_t received,
                                   size_t metadata)
{
    usage->bytes_sent += sent;
    usage->bytes_received += received;
    usage->bytes_messages += sent + received;
    usage->bytes_metadata += metadata;
}

/* This rank as a worker. */
struct twill_server_work {
    struct twill_port *port; /* [shards] */
    pthread_mutex_t posting; /* of orders, of the queues of links, and of `usage` */
    struct twill_server_usage usage;
    bool left;                   /* it pushes and pulls no more */
    _Atomic uint64_t copied;     /* bytes between its tensors and what servers map */
    _Atomic uint64_t next_check; /* of servers, by twill_server_test() */
};

/* What a server takes from an older one, or from files, until its commit. */
struct twill_server_past {
    bool successor;           /* by twill_server_rebuild(), of one that was committed */
    struct twill_server *old; /* what it replaces: ended once all ranks have stopped theirs */
    bool loaded;              /* twill_server_load() was called */
    twill_status lacking; /* of this rank's part in a rebuild: all ranks learn it in the commit */
    unsigned char **held; /* [places] records of chunks that this rank brings, or NULL */
};

/* What other ranks of the node map. */
struct twill_server_memory {
    void *control; /* rings of this worker, answers of this server: of twill_alloc() */
    bool offered;  /* others may map it, and the tensors */
};

struct twill_server_failure {
    pthread_mutex_t lock;              /* of the errors */
    _Atomic bool broken, told;         /* told: twill_server_tell_loss() */
    struct twill_error error, refused; /* error: that has broken the server */
};

/* Which rank does what: numbers of servers, workers and shards. Constant after the creation. */
struct twill_server_roles {
    uint32_t servers, workers;
    uint32_t *server_rank;   /* [servers] ascending; worker_rank too */
    uint32_t *worker_rank;   /* [workers] */
    _Atomic bool *suspect;   /* [servers] found dead; their last answers may come */
    uint32_t server, worker; /* this rank's number among them; UINT32_MAX: none */
    uint32_t threads;        /* shards of a server, at least 1 */
    uint32_t shards;         /* of all servers */
};

/* The rule of updates. Changed by twill_server_set_optimizer(), with all shards here locked. */
struct twill_server_rule {
    twill_optimizer optimizer, declared; /* declared: by the options; equal on all ranks */
    uint64_t settings;                   /* how often `optimizer` has been changed */
    bool has_optimizer;
    uint32_t states; /* of the optimizer, for each parameter */
    uint32_t need;   /* gradients of an update: options.k, or c of n-softsync; set by the commit */
};

/* How the tensors are cut, and divided among the shards. The same on all ranks after the commit. */
struct twill_server_cut {
    struct twill_chunk_place *place; /* [places] by key */
    uint32_t places;
    uint64_t most_bytes, least_bytes; /* of a shard */
    size_t chunk_bytes;               /* as options.chunk_bytes, or chosen; 0: not yet */
    const char *chunk_choice;         /* how, in words */
};

/* Created by twill_server_create(), freed by twill_server_destroy(). */
struct twill_server {
    struct twill_extend_process process;
    twill_comm *parent; /* the caller's, until the commit */
    twill_comm *comm;   /* own */
    uint32_t rank, size;
    twill_server_options options;
    struct twill_coder coder; /* if options.compression is not none */
    struct twill_server_rule rule;
    struct twill_server_roles roles;
    struct twill_server_cut cut;
    struct twill_server_past past;
    bool starts; /* threads of shards may run on other ranks */
    _Atomic bool committed;
    struct twill_advancer *hook; /* of threads that wait; added at the commit, or NULL */
    struct twill_server_failure failure;

    struct twill_server_key *key;
    uint32_t keys, keys_held;
    struct twill_server_memory memory;
    struct twill_server_work work;
    struct twill_shard *shard; /* [threads] of a server */
    struct twill_server_link *link;
    uint32_t links;
    _Atomic uint32_t moved; /* counts progress, for deadlines of waits */
    char line[400];         /* of twill_server_describe() */
};

/* --- chunk_layout.c --- */

/* Return whether tensors may be cut into chunks of a size. */
bool twill_server_is_chunk_size(size_t bytes);

/* Find out which ranks serve and work. */
twill_status twill_server_cast(struct twill_server *server);
/* Cut tensors into chunks and assign these to shards. On failure none are cut. */
twill_status twill_server_place(struct twill_server *server);
/* Undo that. No state may be held. */
void twill_server_unplace(struct twill_server *server);
/* Return the rank of the server that has a shard. */
static inline uint32_t twill_shard_rank(const struct twill_server *server, uint32_t shard)
{
    return server->roles.server_rank[shard / server->roles.threads];
}
/* Return whether chunks have replicas: a server that is left alone has nowhere to put them. */
static inline bool twill_server_replicates(const struct twill_server *server)
{
    return server->options.replicas > 1 && server->roles.servers > 1;
}
/* Return the shard that has the replicas of another one's chunks: that of the same number of the
 * next server; or TWILL_SERVER_NO_SHARD. */
static inline uint32_t twill_replica_shard(const struct twill_server *server, uint32_t shard)
{
    return twill_server_replicates(server) ? (shard + server->roles.threads) % server->roles.shards
                                           : TWILL_SERVER_NO_SHARD;
}
static inline bool twill_server_works(const struct twill_server *server)
{
    return server->roles.worker != UINT32_MAX;
}
static inline bool twill_server_serves(const struct twill_server *server)
{
    return server->roles.server != UINT32_MAX;
}

/* --- server_failure.c --- */

/* Record a failure and break the server. Returns the status of the first failure. */
twill_status twill_server_fail(struct twill_server *server, twill_status status, const char *file,
                               int line, const char *format, ...) TWILL_PRINTF(5, 6);
#define TWILL_SERVER_FAIL(server, status, ...)                                                     \
    twill_server_fail((server), (status), __FILE__, __LINE__, __VA_ARGS__)
/* Return TWILL_OK, or fail as a call on a communicator has. */
static inline twill_status twill_server_check_call(struct twill_server *server,
                                                   const twill_comm *comm, twill_status status)
{
    return status == TWILL_OK ? TWILL_OK
                              : TWILL_SERVER_FAIL(server, status, "%s", twill_comm_message(comm));
}
/* Fail if a communicator of two ranks has failed because one of them lacks something, such as
 * descriptors: that is no death, so neither can go on without the other. */
void twill_server_note_loss(struct twill_server *server, const twill_comm *comm);
static inline bool twill_server_is_loss(twill_status status)
{
    return status == TWILL_ERR_SYSTEM || status == TWILL_ERR_MEMORY;
}
/* Return whether a server that was committed has failed so, on this rank or another. */
bool twill_server_lacks(const struct twill_server *server);
/* Then break its communicator, once, so that all ranks learn it. */
void twill_server_tell_loss(struct twill_server *server);
twill_status twill_server_refuse(struct twill_server *server, const char *file, int line,
                                 const char *format, ...) TWILL_PRINTF(4, 5);
#define TWILL_SERVER_REFUSE(server, ...)                                                           \
    twill_server_refuse((server), __FILE__, __LINE__, __VA_ARGS__)
/* Write up to `bytes` of the names of keys of which a server, by its number, has chunks. */
void twill_server_name_keys(const struct twill_server *server, uint32_t number, char *text,
                            size_t bytes);

#endif

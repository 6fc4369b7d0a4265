/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of a parameter server. README.md says what each file does.
 *
 * Tensors are cut into chunks. A shard is a subset of a server's chunks, which only the shard's
 * current thread touches. With options.threads that is always the same thread. Shards are numbered
 * over all servers, as server * threads + thread. A worker reaches a shard through a port. On one
 * node that is rings and answers in memory that both map, otherwise a communicator of both. */
#ifndef TWILL_SERVER_LAYOUT_H
#define TWILL_SERVER_LAYOUT_H

#include "lib/extend.h"
#include "lib/train/shared/shared.h"
#include "lib/twill_server.h"

#include <pthread.h>

#define TWILL_SERVER_KEYS_MOST   (1u << 20)
#define TWILL_SERVER_SHARDS_MOST 64u /* per server */
#define TWILL_SERVER_NO_SHARD    UINT32_MAX
#define TWILL_SERVER_CHUNK_STEP  1024u
#define TWILL_SERVER_CHUNK_MOST  ((size_t)1 << 30)
#define TWILL_STALENESS_MOST     1024u                  /* entries of the histogram */
#define TWILL_LIST_HEAD          (2 * sizeof(uint32_t)) /* bytes before a list: its length, 0 */

struct twill_answer;
struct twill_shard;
struct twill_order_ring;
struct twill_server_link;

/* A chunk, that is a range of a tensor's elements. An element of server->cut.place, which
 * twill_server_place() makes. Equal on all ranks and constant once made. */
struct twill_chunk_place {
    uint32_t key;               /* index of the tensor in server->key */
    uint32_t shard;             /* number of its shard; twill_replica_shard() has a copy */
    size_t first, count;        /* range of the tensor's elements */
    size_t wire_at, wire_bytes; /* range in bytes within the pushed tensor */
};

/* A tensor, freed with its server. All but the last group is constant after the commit. */
struct twill_server_key {
    char *name;
    size_t count, bytes; /* bytes of the parameters */
    twill_type type;
    bool coded;                   /* gradients are encoded by server->coder for transfer */
    uint32_t first_chunk, chunks; /* its range of server->cut.place */
    size_t wire_bytes;            /* bytes of a pushed gradient */

    /* A worker's memory. If server and caller cannot use the same memory, data are copied. */
    void *gradient, *parameters; /* the caller's or this server's; NULL if the rank does not work */
    bool own_gradient, own_parameters; /* allocated by this server with twill_alloc() */
    unsigned char *sent, *landed;      /* memory that servers read and write */
    float *residual;                   /* for error feedback, or NULL */

    /* Progress, written by the thread that pushes or pulls the key. */
    _Atomic uint64_t pushes, pulls;         /* numbers of the last that were started */
    _Atomic uint64_t pushes_end, pulls_end; /* numbers of the last that are complete */
    _Atomic uint64_t version;               /* of the parameters that the last pull got */
};

/* A worker's end of a connection to a shard. Made by twill_server_open_memory(), then constant, and
 * freed by twill_server_close_memory(). */
struct twill_port {
    uint32_t shard, rank;              /* `rank` is the server's in server->comm */
    uint32_t *chunks;                  /* [keys] chunks of each key on the shard */
    uint64_t *push_bytes, *pull_bytes; /* [keys] their bytes, as transferred */
    struct twill_order_ring *ring;     /* in this rank's memory, or NULL if there is a link */
    struct twill_answer *answer; /* [keys] in the server's memory, or own_answer with a link */
    struct twill_answer *own_answer;
    struct twill_server_link *link;
};

/* Bytes that a worker or a shard has sent and received, under its lock. bytes_sent and
 * bytes_received are bytes of tensors, through messages and shared memory. bytes_messages is the
 * part of both in messages. bytes_metadata is what messages have besides, and is in none of these.
 * bytes_copied counts copies that a shard makes on the way. credit_waits counts the chunks that a
 * worker could not send at once for lack of a credit. */
struct twill_server_usage {
    uint64_t bytes_sent, bytes_received, bytes_messages, bytes_metadata, bytes_copied, credit_waits;
};

/* Count messages that were sent or received. `sent` and `received` are the bytes of tensors in
 * them, and `metadata` the bytes that they have besides. */
static inline void twill_usage_add(struct twill_server_usage *usage, size_t sent, size_t received,
                                   size_t metadata)
{
    usage->bytes_sent += sent;
    usage->bytes_received += received;
    usage->bytes_messages += sent + received;
    usage->bytes_metadata += metadata;
}

/* State of this rank as a worker, a part of its server. Only the caller's thread writes `left`. */
struct twill_server_work {
    struct twill_port *port; /* [shards] */
    pthread_mutex_t posting; /* lock of orders, of the queues of links, and of `usage` */
    struct twill_server_usage usage;
    bool left;                   /* it pushes and pulls no more */
    _Atomic uint64_t copied;     /* bytes between its tensors and memory that servers map */
    _Atomic uint64_t next_check; /* time of the next look for dead servers */
};

/* State that a server takes over from an older one, or from files. Used until its commit. */
struct twill_server_past {
    bool successor;           /* made by twill_server_rebuild() from a committed server */
    struct twill_server *old; /* replaced by this one; ended once all ranks have stopped theirs */
    bool loaded;              /* twill_server_load() was called */
    twill_status lacking; /* of this rank's part in a rebuild; all ranks learn it in the commit */
    unsigned char **held; /* [places] records of chunks that this rank contributes, or NULL */
};

/* Memory through which this rank and others of its node exchange orders and answers. Made by
 * twill_server_open_memory(), then constant. twill_server_close_memory() frees it. */
struct twill_server_memory {
    void *control; /* this worker's rings of orders and this server's answers, from twill_alloc() */
    bool offered;  /* other ranks know where it and the tensors lie, and may map them */
};

/* Failures of a server. Any thread may record one. */
struct twill_server_failure {
    pthread_mutex_t lock;      /* protects the errors */
    _Atomic bool broken, told; /* `told` is set once twill_server_tell_loss() has told the others */
    struct twill_error error, refused; /* error: broke the server; refused: of the last refused
                                          call */
};

/* Roles and numbers of servers, workers and shards. Constant after creation, except `suspect`. */
struct twill_server_roles {
    uint32_t servers, workers;
    uint32_t *server_rank;   /* [servers] ranks in ascending order, also in worker_rank */
    uint32_t *worker_rank;   /* [workers] */
    _Atomic bool *suspect;   /* [servers] found dead, but their last answers may arrive */
    uint32_t server, worker; /* numbers of this rank, or UINT32_MAX if it has none */
    uint32_t threads;        /* shards per server, at least 1 */
    uint32_t shards;         /* of all servers together */
};

/* The rule of updates. Changed by twill_server_set_optimizer(), with all shards here locked. */
struct twill_server_rule {
    twill_optimizer optimizer, declared; /* `declared` is from the options and equal on all ranks */
    uint64_t settings;                   /* how often `optimizer` has been changed */
    bool has_optimizer;
    uint32_t states; /* number of optimizer states (floats) per parameter */
    uint32_t need;   /* gradients that make an update, unless mode sync; set by the commit */
};

/* How tensors are cut and divided among shards. After the commit constant, equal on all ranks. */
struct twill_server_cut {
    struct twill_chunk_place *place; /* [places] ordered by key */
    uint32_t places;
    uint64_t most_bytes, least_bytes; /* largest and smallest shard */
    size_t chunk_bytes;               /* options.chunk_bytes, or chosen; 0 until then */
    const char *chunk_choice;         /* how it was chosen, for the description */
};

/* A parameter server. twill_server_create() makes it, twill_server_destroy() frees it. */
struct twill_server {
    struct twill_extend_process process;
    twill_comm *parent; /* the caller's, used until the commit */
    twill_comm *comm;   /* the server's, a duplicate of `parent` */
    uint32_t rank, size;
    twill_server_options options;
    struct twill_coder coder;        /* valid if options.compression is not none */
    struct twill_server_rule rule;   /* how gradients change parameters */
    struct twill_server_roles roles; /* which ranks are servers and workers */
    struct twill_server_cut cut;     /* how tensors are divided among shards */
    struct twill_server_past past;   /* what it takes over, used until the commit */
    bool starts;                     /* the threads of other ranks' shards may be running */
    _Atomic bool committed;
    struct twill_advancer *hook; /* for threads that wait; added at the commit, or NULL */
    struct twill_server_failure failure;

    struct twill_server_key *key;
    uint32_t keys, keys_held; /* number of tensors, and for how many key[] has room */
    struct twill_server_memory memory;
    struct twill_server_work work;
    struct twill_shard *shard; /* [threads] if this rank serves */
    struct twill_server_link *link;
    uint32_t links;
    _Atomic uint32_t moved; /* counts progress, for the deadlines of waits */
    char line[400];         /* result of twill_server_describe() */
};

/* Return whether `bytes` is TWILL_SERVER_WHOLE_TENSORS, or a multiple of 1 KiB up to 1 GiB. */
bool twill_server_is_chunk_size(size_t bytes);

/* Decide which ranks serve and work, and set server->roles. Returns TWILL_ERR_ARGUMENT if the
 * options' ranks are wrong or listed twice, no worker is left, or a second server is missing for
 * replicas. Returns TWILL_ERR_MEMORY if out of memory, else TWILL_OK. */
twill_status twill_server_cast(struct twill_server *server);
/* Cut tensors into chunks of cut.chunk_bytes and assign these to shards, in server->cut. Also set
 * each key's first_chunk, chunks and wire_bytes. If there are too many chunks (TWILL_ERR_ARGUMENT)
 * or memory is short, returns the error, and no chunks exist. */
twill_status twill_server_place(struct twill_server *server);
/* Undo twill_server_place(). server->past.held must be NULL, as it has an entry for each chunk. */
void twill_server_unplace(struct twill_server *server);
/* Return the rank of the server that has a shard. */
static inline uint32_t twill_shard_rank(const struct twill_server *server, uint32_t shard)
{
    return server->roles.server_rank[shard / server->roles.threads];
}
/* Return whether chunks have replicas. They do if options.replicas is above 1, unless only one
 * server is left. */
static inline bool twill_server_replicates(const struct twill_server *server)
{
    return server->options.replicas > 1 && server->roles.servers > 1;
}
/* Return the shard that has the replicas of another shard's chunks. It is the one with the same
 * number on the next server. Returns TWILL_SERVER_NO_SHARD if there are no replicas. */
static inline uint32_t twill_replica_shard(const struct twill_server *server, uint32_t shard)
{
    return twill_server_replicates(server) ? (shard + server->roles.threads) % server->roles.shards
                                           : TWILL_SERVER_NO_SHARD;
}
/* Return whether this rank is a worker. */
static inline bool twill_server_works(const struct twill_server *server)
{
    return server->roles.worker != UINT32_MAX;
}
/* Return whether this rank is a server, that is, has shards. */
static inline bool twill_server_serves(const struct twill_server *server)
{
    return server->roles.server != UINT32_MAX;
}

/* Break the server with this message, unless failure.error already has a failure. Returns the
 * status of the failure that it has then. */
twill_status twill_server_fail(struct twill_server *server, twill_status status, const char *file,
                               int line, const char *format, ...) TWILL_PRINTF(5, 6);
#define TWILL_SERVER_FAIL(server, status, ...)                                                     \
    twill_server_fail((server), (status), __FILE__, __LINE__, __VA_ARGS__)
/* Return TWILL_OK if a call on `comm` succeeded. Otherwise fail the server with its status. */
static inline twill_status twill_server_check_call(struct twill_server *server,
                                                   const twill_comm *comm, twill_status status)
{
    return status == TWILL_OK ? TWILL_OK
                              : TWILL_SERVER_FAIL(server, status, "%s", twill_comm_message(comm));
}
/* Break the server if `comm`, a communicator of two ranks, has failed with TWILL_ERR_SYSTEM or
 * TWILL_ERR_MEMORY. Then one of the two is out of descriptors, memory or another resource, and
 * neither can continue. Does nothing if `comm` has failed otherwise, as after the death of a
 * rank. */
void twill_server_note_loss(struct twill_server *server, const twill_comm *comm);
/* Return whether a status means that a rank lacks something, such as memory or descriptors. It is
 * then TWILL_ERR_SYSTEM or TWILL_ERR_MEMORY. */
static inline bool twill_server_is_loss(twill_status status)
{
    return status == TWILL_ERR_SYSTEM || status == TWILL_ERR_MEMORY;
}
/* Return whether the server has failed after its commit because this or another rank is out of
 * memory, descriptors or another resource (TWILL_ERR_MEMORY or TWILL_ERR_SYSTEM). */
bool twill_server_lacks(const struct twill_server *server);
/* If a rank is out of memory, descriptors or another resource, as twill_server_lacks() returns,
 * break the server's communicator, once, so that all ranks learn of it. Otherwise do nothing. */
void twill_server_tell_loss(struct twill_server *server);
/* Record a refused call's message, without breaking the server. Returns TWILL_ERR_ARGUMENT. */
twill_status twill_server_refuse(struct twill_server *server, const char *file, int line,
                                 const char *format, ...) TWILL_PRINTF(4, 5);
#define TWILL_SERVER_REFUSE(server, ...)                                                           \
    twill_server_refuse((server), __FILE__, __LINE__, __VA_ARGS__)
/* Write to text[bytes] the names, quoted and separated by commas, of the keys with a chunk on
 * server `number`. The text is empty if there is none. If not all names fit, ' ...' follows the
 * others. */
void twill_server_name_keys(const struct twill_server *server, uint32_t number, char *text,
                            size_t bytes);

#endif

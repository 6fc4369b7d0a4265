/* SPDX-License-Identifier: Apache-2.0 */
/* A shard of a server: its chunks and what workers have ordered of them. Whoever has `locked` works
 * on it; that is always its thread if there are threads, but for calls that read counters or
 * state. */
#ifndef TWILL_SERVER_SHARD_H
#define TWILL_SERVER_SHARD_H

#include "kernels/training/optimizer.h"
#include "lib/server/layout/layout.h"

struct twill_replica_link;

/* --- orders of a worker, and answers, in memory that both map -----------------------------------
 */

/* No lock: the worker alone writes a ring, in its memory, and the shard alone answers, in the
 * server's. */

/* Kinds of orders; PUSH | PULL is one order. */
#define TWILL_ORDER_PUSH  1u
#define TWILL_ORDER_PULL  2u
#define TWILL_ORDER_LEAVE 4u

struct twill_server_order {
    uint32_t key, kind;
    uint64_t push, pull; /* their numbers, for the kinds that it has */
    uint64_t unused;
};
_Static_assert(sizeof(struct twill_server_order) == 32, "two in a cache line");

/* A worker has at most one push and one pull of a key under way, and a shard takes an order before
 * it answers it: two slots a key, and one to leave, never overrun. */
struct twill_order_ring {
    _Atomic uint64_t head; /* orders written, ever */
    unsigned char gap[TWILL_CACHE_LINE - sizeof(uint64_t)];
    struct twill_server_order order[];
};

/* The numbers of the last push and pull of a key of a worker that are complete on a shard, and the
 * version that the pull got: of the chunk that has the fewest updates. */
struct twill_answer {
    _Atomic uint64_t pushed, pulled;
    _Atomic uint64_t version;
    uint64_t unused;
};

static inline size_t twill_ring_slots(uint32_t keys)
{
    size_t slots = 4;
    while (slots < 2 * (size_t)keys + 2)
        slots *= 2;
    return slots;
}

static inline size_t twill_ring_bytes(uint32_t keys)
{
    return sizeof(struct twill_order_ring) +
           twill_ring_slots(keys) * sizeof(struct twill_server_order);
}

static inline void twill_ring_put(struct twill_order_ring *ring, uint32_t keys,
                                  struct twill_server_order order)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    ring->order[head & (twill_ring_slots(keys) - 1)] = order;
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

/* --- chunks and shards ---------------------------------------------------------------------------
 */

/* What a chunk knows of a worker. */
struct twill_chunk_worker {
    const void *push; /* its gradient that waits, for an update or for the replica, or NULL */
    uint64_t base;    /* version that it has pulled last */
    uint64_t taken;   /* gradients of it that are in the chunk, in modes that hold none */
    bool pulls;       /* a pull waits */
    bool owed;        /* its push is answered once the replica has what it has changed */
};

/* A chunk on a shard, or the replica of one of another server. */
struct twill_chunk {
    const struct twill_chunk_place *place;
    unsigned char *value; /* parameters; state and sum follow in memory: twill_chunk_bytes() */
    float *state[TWILL_OPTIMIZER_MAX_STATES];
    float *sum;       /* of gradients that wait for an update, where the mode adds them, or NULL */
    float *fetched;   /* [workers][count] parameters as pulled, for the distance, or NULL */
    uint32_t waiting; /* gradients that wait */
    uint64_t version; /* updates */
    bool changed;     /* since it was last sent to its replica, if it has one */
    bool replicating; /* is being sent: it does not change until the replica has it */
    struct twill_chunk_worker *worker; /* [workers]; of a replica NULL */
};

/* What a shard knows of a worker's key. */
struct twill_shard_key {
    const unsigned char *sent;     /* the worker's memory, or the inbox of its link */
    unsigned char *landed;         /* or NULL: parameters go by messages */
    uint64_t push, pull;           /* numbers under way */
    uint32_t push_left, pull_left; /* chunks */
    uint64_t version;              /* least that the pull has got so far */
};

/* What a shard knows of a worker. */
struct twill_shard_worker {
    uint32_t rank; /* in server->comm */
    bool gone;     /* has left or died */
    bool suspect;  /* found dead; its last messages may come */
    const struct twill_order_ring *ring;
    uint64_t tail;               /* orders taken */
    struct twill_answer *answer; /* [keys] */
    struct twill_shard_key *key; /* [keys] */
    struct twill_server_link *link;
};

struct twill_shard_count {
    uint64_t *staleness; /* [TWILL_STALENESS_MOST] gradients by how many updates they lag behind */
    uint64_t versions, updates, gradients, dropped, duplicates;
    uint32_t deaths;
};

struct twill_shard_thread {
    pthread_t id;
    int pu;        /* that it runs on, by Linux's number, and its NUMA node; -1: any */
    int numa_node; /* where the shard's memory is, too */
    bool running;
    _Atomic bool stop;
};

struct twill_shard {
    struct twill_server *server;
    uint32_t number;
    _Atomic bool locked;
    struct twill_chunk *chunk; /* [chunks] by key */
    uint32_t chunks;
    uint32_t *key_first;      /* [keys + 1] index of the first chunk of each key */
    struct twill_chunk *copy; /* [copies] replicas of another shard's, in its order */
    uint32_t copies;
    struct twill_replica_link *to, *from; /* the shard with the replicas of this one's chunks; the
                                             shard whose replicas are here; or NULL */
    struct twill_shard_worker *worker;
    struct twill_chunk_worker *chunk_worker; /* of all chunks */
    struct twill_shard_key *worker_key;      /* of all workers */
    unsigned char *memory;                   /* of twill_alloc(): values, states, sums */
    size_t memory_bytes;
    float *scratch, *decoded; /* [largest chunk] */
    const void **data;        /* [workers] gradients of an update, and their */
    float *factor;            /* [workers] factors */
    uint64_t next_check;

    struct twill_shard_count count;
    struct twill_server_usage usage;
    _Atomic uint32_t present; /* workers that are not gone */
    struct twill_shard_thread thread;
};

/* --- shard.c --- */

twill_status twill_shards_open(struct twill_server *server);
void twill_shards_close(struct twill_server *server);
/* Take orders of workers. Returns how many. The shard is locked, as for all that follow. */
unsigned twill_shard_poll(struct twill_shard *shard);
/* Look for workers that have died, from time to time. */
void twill_shard_check(struct twill_shard *shard);
/* Begin to take a push, or a pull, whose chunks follow by twill_chunk_push() and
 * twill_chunk_pull(): of an order that is both, each chunk is pushed and then pulled, so that its
 * parameters are on the way while the next chunk comes. */
void twill_shard_begin_push(struct twill_shard *shard, uint32_t worker, uint32_t key,
                            uint64_t number);
void twill_shard_begin_pull(struct twill_shard *shard, uint32_t worker, uint32_t key,
                            uint64_t number);
/* Take a pull of all chunks of a key. */
void twill_shard_take_pull(struct twill_shard *shard, uint32_t worker, uint32_t key,
                           uint64_t number);
/* A chunk's gradient has been taken: the worker may write it anew. */
void twill_shard_pushed(struct twill_shard *shard, const struct twill_chunk *chunk,
                        uint32_t worker);
/* Hand a chunk's parameters to a worker that pulls. */
void twill_shard_deliver(struct twill_shard *shard, struct twill_chunk *chunk, uint32_t worker);
/* Does the mode add gradients as they come, instead of holding them until the update? */
bool twill_server_adds(const struct twill_server *server);
/* Return the bytes of a chunk's parameters, optimizer state and sum, which lie one behind another.
 */
size_t twill_chunk_bytes(const struct twill_server *server, const struct twill_chunk_place *place);
/* A worker has left or died. */
void twill_shard_lose(struct twill_shard *shard, uint32_t worker, bool died);
bool twill_shard_try_lock(struct twill_shard *shard);
static inline void twill_shard_unlock(struct twill_shard *shard)
{
    atomic_store_explicit(&shard->locked, false, memory_order_release);
}

/* Lock all shards of this rank, if it serves, for a public call; refuse it with TWILL_ERR_TIMEOUT
 * if another thread is in one for TWILL_TIMEOUT. */
twill_status twill_shards_lock(struct twill_server *server, const char *call);
void twill_shards_unlock(struct twill_server *server);

/* --- shard_thread.c --- */

/* Return the NUMA node of a PU, both by Linux's numbers; -1: unknown, or the machine has one. */
int twill_shard_numa_node(const struct twill_topology *topology, int pu);
/* Choose where the threads of the shards run. */
void twill_shard_threads_place(struct twill_server *server);
/* Prefer the shard's NUMA node for its memory, unless TWILL_MEMORY says where memory is to be;
 * before it is touched. */
void twill_shard_place_memory(const struct twill_shard *shard, void *memory, size_t bytes);
/* Undo this before the memory is freed. memory may be NULL. */
void twill_shard_unplace_memory(const struct twill_shard *shard, void *memory, size_t bytes);

twill_status twill_shard_threads_start(struct twill_server *server);
void twill_shard_threads_stop(struct twill_server *server);

/* --- chunk.c: when --- */

/* Take a gradient of a worker. `data` stays valid until twill_shard_pushed(). */
void twill_chunk_push(struct twill_shard *shard, struct twill_chunk *chunk, uint32_t worker,
                      const void *data, uint64_t number);
/* Deliver to a worker at once, or when the mode lets it. */
void twill_chunk_pull(struct twill_shard *shard, struct twill_chunk *chunk, uint32_t worker);
/* Do what waited for a worker that is gone. */
void twill_chunk_recheck(struct twill_shard *shard, struct twill_chunk *chunk);
/* The replica has the chunk as it is: do what waited for that. */
void twill_chunk_copied(struct twill_shard *shard, struct twill_chunk *chunk);

/* --- replica.c --- */

/* Connect each shard with the one that has its replicas. Collective over the servers. */
twill_status twill_replicas_open(struct twill_server *server);
/* End the connections, with the peers where nothing has failed. */
void twill_replicas_close(struct twill_server *server, bool together);
/* Advance a shard's two connections. Returns whether something moved. */
bool twill_replicas_poll(struct twill_shard *shard);
/* Queue a chunk that has changed to be sent to its replica; twill_chunk_copied() follows. */
void twill_replica_send(struct twill_shard *shard, struct twill_chunk *chunk);
/* Return the registrations with the network of a shard's connections. */
uint64_t twill_replicas_registrations(const struct twill_shard *shard);

/* --- chunk_update.c: what --- */

/* Add `factor` times a gradient to the chunk's sum. */
void twill_chunk_add(struct twill_shard *shard, const struct twill_chunk *chunk, float *sum,
                     const void *data, float factor);
/* Update the chunk with gradients data[n], each times its factor (NULL: 1), summed in order, or
 * with its sum if n is 0, all times `scale`. */
void twill_chunk_update(struct twill_shard *shard, struct twill_chunk *chunk,
                        const void *const *data, const float *factor, unsigned n, float scale);
/* Return what a gradient is multiplied by, by options.rate. */
float twill_chunk_factor(const struct twill_shard *shard, const struct twill_chunk *chunk,
                         uint32_t worker);

#endif

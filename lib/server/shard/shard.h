/* SPDX-License-Identifier: Apache-2.0 */
/* A shard of a server, with its chunks and the orders of workers. Whoever has set `locked` works on
 * it, which is the shard's thread if it has one, except in calls that read counters or state. */
#ifndef TWILL_SERVER_SHARD_H
#define TWILL_SERVER_SHARD_H

#include "kernels/training/optimizer.h"
#include "lib/server/layout/layout.h"

struct twill_replica_link;

/* --- orders of a worker, and answers, in memory that both map --------------------------------- */
/* Without locks, only the worker writes its ring, and only the shard its answers. */

/* Kinds of orders. PUSH | PULL is one order. */
#define TWILL_ORDER_PUSH  1u
#define TWILL_ORDER_PULL  2u
#define TWILL_ORDER_LEAVE 4u

/* An order of a worker. `kind` is a set of TWILL_ORDER_*. `key` has no meaning for LEAVE. */
struct twill_server_order {
    uint32_t key, kind;
    uint64_t push, pull; /* numbers of the push and the pull, if the kind includes them */
    uint64_t unused;
};
_Static_assert(sizeof(struct twill_server_order) == 32, "two in a cache line");

/* A worker's orders to a shard, in the worker's memory (server->memory.control). A worker has at
 * most one push and one pull of a key under way, and a shard takes an order before it answers. So
 * the twill_ring_slots() slots never overrun. */
struct twill_order_ring {
    _Atomic uint64_t head; /* number of orders ever written */
    unsigned char gap[TWILL_CACHE_LINE - sizeof(uint64_t)];
    struct twill_server_order order[];
};

/* A shard's answers for one key of a worker, in the server's memory or, with a link, in the
 * worker's. `pushed` and `pulled` number the last complete push and pull. `version` is the lowest
 * of the chunks that the pull got. */
struct twill_answer {
    _Atomic uint64_t pushed, pulled;
    _Atomic uint64_t version;
    uint64_t unused;
};

/* Return the number of slots of a ring for this many keys. It is a power of two. */
static inline size_t twill_ring_slots(uint32_t keys)
{
    size_t slots = 4;
    while (slots < 2 * (size_t)keys + 2)
        slots *= 2;
    return slots;
}

/* Return the bytes of a worker's ring of orders for this many keys. */
static inline size_t twill_ring_bytes(uint32_t keys)
{
    return sizeof(struct twill_order_ring) +
           twill_ring_slots(keys) * sizeof(struct twill_server_order);
}

/* Append an order to a ring for `keys` keys. The caller is the worker and holds work.posting. */
static inline void twill_ring_put(struct twill_order_ring *ring, uint32_t keys,
                                  struct twill_server_order order)
{
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    ring->order[head & (twill_ring_slots(keys) - 1)] = order;
    atomic_store_explicit(&ring->head, head + 1, memory_order_release);
}

/* State of one worker at one chunk, under the shard's lock. An element of chunk->worker. */
struct twill_chunk_worker {
    const void *push; /* its gradient that waits for an update or for the replica, or NULL */
    uint64_t base;    /* version that it pulled last */
    uint64_t taken;   /* its gradients in the chunk; only in modes that do not hold gradients */
    bool pulls;       /* a pull is waiting */
    bool owed;        /* its push is answered once the replica has the change */
};

/* A chunk on a shard, or the replica of another server's chunk. An element of shard->chunk or
 * shard->copy. The shard's lock protects it. */
struct twill_chunk {
    const struct twill_chunk_place *place;
    unsigned char *value; /* parameters, then state and sum: twill_chunk_bytes() */
    float *state[TWILL_OPTIMIZER_MAX_STATES];
    float *sum;       /* of gradients that wait for an update, if the mode adds them, or NULL */
    float *fetched;   /* [workers][count] parameters as pulled, to compute the distance, or NULL */
    uint32_t waiting; /* number of gradients that wait */
    uint64_t version; /* number of updates */
    bool changed;     /* since it was last sent to its replica */
    bool replicating; /* being sent, and must not change until the replica has it */
    struct twill_chunk_worker *worker; /* [workers]; NULL in a replica */
};

/* State of a worker's key at a shard, under the shard's lock. */
struct twill_shard_key {
    const unsigned char *sent;     /* in the worker's memory; NULL with a link */
    unsigned char *landed;         /* NULL if parameters are sent in messages */
    uint64_t push, pull;           /* numbers of those under way */
    uint32_t push_left, pull_left; /* chunks that are not complete */
    uint64_t version;              /* lowest version that the pull has got so far */
};

/* State of a worker at a shard, under the shard's lock. */
struct twill_shard_worker {
    uint32_t rank;                       /* in server->comm */
    bool gone;                           /* it has left or died */
    bool suspect;                        /* found dead, but its last messages may arrive */
    const struct twill_order_ring *ring; /* NULL with a link */
    uint64_t tail;                       /* number of orders taken */
    struct twill_answer *answer;         /* [keys] */
    struct twill_shard_key *key;         /* [keys] */
    struct twill_server_link *link;
};

/* Counters of a shard, under its lock. */
struct twill_shard_count {
    uint64_t *staleness; /* [TWILL_STALENESS_MOST] gradients by how many updates they lag */
    /* `versions` is the sum of the versions of the chunks, which a restored state raises. `updates`
     * counts updates of chunks since the commit. `gradients` counts gradients of chunks that were
     * taken, `dropped` those that were too old, and `duplicates` those that were repeated. */
    uint64_t versions, updates, gradients, dropped, duplicates;
    uint32_t deaths; /* workers found dead */
};

/* The thread of a shard. Constant while it runs, except `stop`, which ends it. */
struct twill_shard_thread {
    pthread_t id;
    int pu;        /* CPU it runs on, as numbered by Linux, or -1 for any */
    int numa_node; /* node of that CPU, which also has the shard's memory, or -1 */
    bool running;
    _Atomic bool stop;
};

/* A shard of this rank, made by twill_server_open_memory() and freed by twill_shards_close(). */
struct twill_shard {
    struct twill_server *server;
    uint32_t number; /* among the shards of all servers */
    _Atomic bool locked;
    struct twill_chunk *chunk; /* [chunks] ordered by key */
    uint32_t chunks;
    uint32_t *key_first;      /* [keys + 1] index of the first chunk of each key */
    struct twill_chunk *copy; /* [copies] replicas of another shard's chunks, in its order */
    uint32_t copies;
    struct twill_replica_link *to, *from; /* the shard with this one's replicas, the shard whose
                                             replicas are here, or NULL */
    struct twill_shard_worker *worker;
    struct twill_chunk_worker *chunk_worker; /* memory of all chunks' `worker` */
    struct twill_shard_key *worker_key;      /* memory of all workers' `key` */
    unsigned char *memory;                   /* from twill_alloc(), for values, states and sums */
    size_t memory_bytes;
    float *scratch, *decoded; /* [largest chunk] a sum of gradients, a gradient out of its blocks */
    const void **data;        /* [workers] gradients of an update */
    float *factor;            /* [workers] and their factors */
    uint64_t next_check;      /* twill_now() of the next look for dead workers */

    struct twill_shard_count count;
    struct twill_server_usage usage;
    _Atomic uint32_t present; /* workers that have neither left nor died */
    struct twill_shard_thread thread;
};

/* --- shard.c --- */
/* Allocate the chunks and replicas of all shards of this rank. Fails only if out of memory. */
twill_status twill_shards_open(struct twill_server *server);
/* Free this rank's shards. Their threads and connections have ended. */
void twill_shards_close(struct twill_server *server);
/* Take orders of workers and advance the shard's links and connections with replicas. Returns 0 if
 * nothing moved. The caller has locked the shard. */
unsigned twill_shard_poll(struct twill_shard *shard);
/* Give up workers that two checks in a row find dead, after taking their last orders. Checks only
 * from time to time. The caller has locked the shard. */
void twill_shard_check(struct twill_shard *shard);
/* Note that push `number` of a worker begins, and that all chunks of the key on this shard are
 * missing. The caller then calls twill_chunk_push() for each of these chunks. */
void twill_shard_begin_push(struct twill_shard *shard, uint32_t worker, uint32_t key,
                            uint64_t number);
/* Note that pull `number` of a worker begins, and that all chunks of the key on this shard are
 * missing. The caller then calls twill_chunk_pull() for each of these chunks. */
void twill_shard_begin_pull(struct twill_shard *shard, uint32_t worker, uint32_t key,
                            uint64_t number);
/* Begin pull `number` of a key for a worker. The key's chunks on this shard are delivered to the
 * worker, each at once or as soon as the mode allows it. */
void twill_shard_take_pull(struct twill_shard *shard, uint32_t worker, uint32_t key,
                           uint64_t number);
/* Note that a chunk's gradient is taken or dropped. Answers the push after its last chunk. */
void twill_shard_pushed(struct twill_shard *shard, const struct twill_chunk *chunk,
                        uint32_t worker);
/* Copy a chunk's parameters to the memory of a worker that pulls, or queue them on its link, and
 * note the version that it gets. Answers the pull after its last chunk. */
void twill_shard_deliver(struct twill_shard *shard, struct twill_chunk *chunk, uint32_t worker);
/* Return whether the mode adds gradients to chunk->sum as they arrive (the K-batch modes and
 * softsync). The other modes hold them until an update, or update at once (async, bounded). */
bool twill_server_adds(const struct twill_server *server);
/* Return the bytes of a chunk's parameters, optimizer state and sum, which are adjacent. */
size_t twill_chunk_bytes(const struct twill_server *server, const struct twill_chunk_place *place);
/* Note, once, that a worker has left or, if `died`, died. Drops its pulls that wait. Gradients that
 * it has pushed stay, but no chunk waits for more. So updates that now have all they need are
 * made. */
void twill_shard_lose(struct twill_shard *shard, uint32_t worker, bool died);
/* Lock a shard for this thread, or return false if another thread has it. */
bool twill_shard_try_lock(struct twill_shard *shard);
static inline void twill_shard_unlock(struct twill_shard *shard)
{
    atomic_store_explicit(&shard->locked, false, memory_order_release);
}

/* Lock all shards of this rank for a public call, if it serves. Returns TWILL_OK or, with none
 * locked, TWILL_ERR_TIMEOUT if another thread has held one for TWILL_TIMEOUT, or TWILL_ERR_FORKED
 * in a forked child. The message of a timeout names `call`. */
twill_status twill_shards_lock(struct twill_server *server, const char *call);
/* Unlock what twill_shards_lock() has locked. */
void twill_shards_unlock(struct twill_server *server);

/* --- shard_thread.c --- */
/* Return the NUMA node of a PU, both by Linux's numbers, or -1 if unknown or the only one. */
int twill_shard_numa_node(const struct twill_topology *topology, int pu);
/* Set the CPU, if any is left, and NUMA node of each shard's thread. It has not started. */
void twill_shard_threads_place(struct twill_server *server);
/* Make memory that was not touched yet prefer the NUMA node of the shard's thread. Does nothing if
 * `memory` is NULL, if the thread has no such node, or if TWILL_MEMORY says where memory lies. */
void twill_shard_place_memory(const struct twill_shard *shard, void *memory, size_t bytes);
/* Undo twill_shard_place_memory() before the memory is freed. */
void twill_shard_unplace_memory(const struct twill_shard *shard, void *memory, size_t bytes);

/* Start the threads of options.threads. If one cannot, breaks the server with TWILL_ERR_SYSTEM. */
twill_status twill_shard_threads_start(struct twill_server *server);
/* Stop the threads that run, and wait for them. */
void twill_shard_threads_stop(struct twill_server *server);

/* --- chunk.c: when chunks are updated and delivered --- */
/* Use, hold or drop a worker's gradient, as the mode demands. `number` is that of its push. `data`
 * must stay valid until twill_shard_pushed(). */
void twill_chunk_push(struct twill_shard *shard, struct twill_chunk *chunk, uint32_t worker,
                      const void *data, uint64_t number);
/* Deliver the chunk to a worker at once, or as soon as the mode allows it. */
void twill_chunk_pull(struct twill_shard *shard, struct twill_chunk *chunk, uint32_t worker);
/* Make the update, and deliver the pulls, that waited for a worker which has left or died. */
void twill_chunk_recheck(struct twill_shard *shard, struct twill_chunk *chunk);
/* Answer pushes, deliver pulls and make updates that waited until the replica had the chunk's
 * present state. Sends the chunk again if it changes. */
void twill_chunk_copied(struct twill_shard *shard, struct twill_chunk *chunk);

/* --- replica.c --- */
/* Connect each shard with the shard that has its replicas. Collective over the servers. Returns
 * TWILL_ERR_MEMORY if out of memory, TWILL_ERR_PEER if a server is lost. */
twill_status twill_replicas_open(struct twill_server *server);
/* End and free this rank's connections between chunks and replicas. If `together`, the peers close
 * them at the same time. Then changes that the replicas lack are first sent and received, within
 * the timeout. Otherwise the connections are broken. */
void twill_replicas_close(struct twill_server *server, bool together);
/* Advance a shard's two connections unless they are lost. Returns whether something moved. */
bool twill_replicas_poll(struct twill_shard *shard);
/* Queue a changed chunk for its replica. twill_chunk_copied() is called when the replica has it. */
void twill_replica_send(struct twill_shard *shard, struct twill_chunk *chunk);
/* Return how many registrations with the network a shard's connections hold. */
uint64_t twill_replicas_registrations(const struct twill_shard *shard);

/* --- chunk_update.c: how chunks are updated --- */
/* Add `factor` times a worker's gradient to sum[], which has as many elements as the chunk. `data`
 * is the gradient as it was pushed, encoded if gradients of its key are. */
void twill_chunk_add(struct twill_shard *shard, const struct twill_chunk *chunk, float *sum,
                     const void *data, float factor);
/* Update the chunk's parameters with n gradients data[n] as pushed, summed in order, each
 * multiplied by its factor unless `factor` is NULL. If n is 0, use chunk->sum instead, and clear
 * it. The sum is multiplied by `scale`. If n is above 1 and `factor` is NULL, that must be 1 or 1 /
 * n, by options.op. The optimizer makes a step with it. Without an optimizer, it replaces the
 * parameters. The caller counts the update. */
void twill_chunk_update(struct twill_shard *shard, struct twill_chunk *chunk,
                        const void *const *data, const float *factor, unsigned n, float scale);
/* Return the factor that options.rate gives a worker's gradient, or 1 if the rate is fixed. */
float twill_chunk_factor(const struct twill_shard *shard, const struct twill_chunk *chunk,
                         uint32_t worker);

#endif

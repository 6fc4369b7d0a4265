/* SPDX-License-Identifier: Apache-2.0 */
/** \file twill_server.h
 * \brief Parameter servers: workers push gradients of tensors by key and pull parameters.
 *
 * The tensors are cut into chunks. Each chunk belongs to one server and there to one shard, which
 * alone adds the workers' gradients, applies the optimizer and hands out the parameters. When an
 * update takes place, and which parameters a worker may get, depends on the mode.
 *
 *     twill_server_create(&server, comm, &options);
 *     twill_server_add(server, &tensor, &key);
 *     twill_server_commit(server);
 *     if (twill_server_role(server) == TWILL_SERVER_SERVES)
 *         twill_server_serve(server);
 *     while (more_batches()) {
 *         compute_gradients(twill_server_parameters(server, key));
 *         twill_server_push_pull(server, key);
 *         twill_server_wait(server, -1);
 *     }
 *     twill_server_destroy(server);
 *
 * Conventions are those of twill.h. A server has a communicator of its own, so that the caller's
 * may be used at any time. Unlike a communicator it is not broken by a worker that dies.
 */
#ifndef TWILL_SERVER_H
#define TWILL_SERVER_H

#include "twill_train.h"

#ifdef __cplusplus
extern "C" {
#endif

/** \brief A process's part of a parameter server: worker, server or both. */
typedef struct twill_server twill_server;

/** \brief Which ranks serve, as PHub (Luo et al. 2018) names the layouts. P ranks, W workers, M
 *  servers, n bytes of parameters. */
typedef enum twill_server_layout {
    TWILL_SERVER_CS = 0, /**< colocated, sharded: every rank works and serves a shard; each sends
                              2n(P-1)/P */
    TWILL_SERVER_CC,     /**< colocated, centralized: the first server, which works too, serves all;
                              it sends and receives n(P-1) */
    TWILL_SERVER_NC,     /**< not colocated, centralized: the first server does not work; it sends
                              and receives nW */
    TWILL_SERVER_NCS     /**< not colocated, sharded: `servers` ranks do not work; each sends and
                              receives nW/M, a worker n */
} twill_server_layout;

/** \brief When gradients become an update of a chunk. P: workers that have neither left nor died,
 *  K: options.k. A worker's gradient belongs to the version that it has pulled last. */
typedef enum twill_server_mode {
    TWILL_SERVER_SYNC = 0,      /**< one of each worker; a pull waits for the worker's push */
    TWILL_SERVER_K_SYNC,        /**< of the first K workers; those of older versions are dropped */
    TWILL_SERVER_K_BATCH_SYNC,  /**< the first K, also several of a worker; older ones dropped */
    TWILL_SERVER_K_ASYNC,       /**< of the first K workers, of any version */
    TWILL_SERVER_K_BATCH_ASYNC, /**< any K */
    TWILL_SERVER_ASYNC,         /**< each one */
    TWILL_SERVER_SOFTSYNC,      /**< n-softsync, n is options.k: any c = floor(P/n), P counted at
                                     the commit, at least 1; updates are floor(gradients/c) */
    TWILL_SERVER_BOUNDED        /**< each one; a pull waits while the worker has pushed more than
                                     options.k gradients more than the slowest */
} twill_server_mode;

/** \brief How much a gradient counts. Staleness is by how many updates the chunk is ahead of the
 *  version that the worker has pulled. */
typedef enum twill_server_rate {
    TWILL_SERVER_RATE_FIXED = 0, /**< all alike */
    TWILL_SERVER_RATE_STALENESS, /**< divided by max(1, staleness) */
    TWILL_SERVER_RATE_DISTANCE   /**< multiplied by min(distance_c / d, distance_most), d the
                                      squared distance of the chunk's parameters from those that
                                      the worker has pulled. ::TWILL_SERVER_ASYNC and
                                      ::TWILL_SERVER_BOUNDED; with SGD of rate 1 it is the rate */
} twill_server_rate;

/** \brief Chunk size: every tensor is one chunk. */
#define TWILL_SERVER_WHOLE_TENSORS ((size_t)-1)

/** \brief Options. Fill with twill_server_defaults(), then change members. All ranks pass the same
 *  values. */
typedef struct twill_server_options {
    size_t bytes;               /**< sizeof(twill_server_options), set by the defaults */
    twill_server_layout layout; /**< ::TWILL_SERVER_CS by default */
    int servers;                /**< servers of ::TWILL_SERVER_NCS: 1 */
    const int *ranks;           /**< the ranks that serve, as many as the layout has; NULL: the
                                     lowest. Read by twill_server_create() */
    twill_server_mode mode;     /**< ::TWILL_SERVER_SYNC by default */
    int k;                      /**< K, n or the bound of the mode: 1 */
    twill_op op;                /**< an update takes the ::TWILL_AVG (default) or ::TWILL_SUM of
                                     its gradients */
    const twill_optimizer *optimizer; /**< rule of the update, for ::TWILL_F32: SGD, Adagrad, Adam
                                           or AdamW. NULL: parameters become what op makes of the
                                           gradients. Read by twill_server_create() */
    twill_server_rate rate;           /**< ::TWILL_SERVER_RATE_FIXED by default */
    double distance_c;                /**< ::TWILL_SERVER_RATE_DISTANCE: above 0; 1 */
    double distance_most;             /**< the same: above 0; 1 */
    size_t chunk_bytes; /**< tensors are cut into chunks of this size, a multiple of 1 KiB, or
                             ::TWILL_SERVER_WHOLE_TENSORS. 0, the default: the commit finds out
                           which of 32 to 256 KiB is fastest, in at most some seconds */
    int threads;        /**< threads of each server, which divide its chunks. 0, the default: none;
                             chunks advance in this rank's calls, also while it waits for
                             another communicator. At most 64 */
    int replicas; /**< 2: another server has a copy of each chunk. The chunk's own server sends
                       it there after each change, and then only answers pushes and pulls. Not for a
                       single server (::TWILL_SERVER_CS: while there is one rank); 1 */
    int credits;  /**< chunks that a worker may have on the way to a shard (options.threads) of
                       a server on another node: 8 */
    twill_compression compression; /**< of pushes of ::TWILL_F32; none by default */
    int error_feedback;            /**< as in twill_gradients_options: 1 */
    double compression_ratio;      /**< as in twill_gradients_options, of each chunk: 0.01 */
    double compression_threshold;  /**< as in twill_gradients_options */
} twill_server_options;

/** \brief What a rank of a server does. */
typedef enum twill_server_part {
    TWILL_SERVER_WORKS = 1,  /**< pushes and pulls */
    TWILL_SERVER_SERVES = 2, /**< has chunks */
    TWILL_SERVER_BOTH = 3
} twill_server_part;

/** \brief Counters since the commit. Those of chunks are of the chunks that this rank serves, and
 *  leave out replicas; bytes do not. What goes by messages is counted on both ranks. What goes by
 *  shared memory, too, but each rank counts it by itself: a server when it reads and writes, a
 *  worker when it starts a push or a pull. */
typedef struct twill_server_counters {
    uint64_t keys;           /**< tensors */
    uint64_t chunks;         /**< chunks of all servers */
    uint64_t chunk_bytes;    /**< their size: options.chunk_bytes, or what the commit has chosen */
    uint64_t chunks_here;    /**< chunks that this rank serves */
    uint64_t most_bytes;     /**< bytes of chunks on the shard of any server that has the most */
    uint64_t least_bytes;    /**< the same, of the shard that has the least */
    uint64_t versions;       /**< sum of the versions of the chunks here */
    uint64_t updates;        /**< updates of chunks */
    uint64_t gradients;      /**< gradients of chunks that are in updates, or will be */
    uint64_t dropped;        /**< gradients of chunks that the mode has dropped */
    uint64_t duplicates;     /**< those that the chunk had already, ::TWILL_SERVER_SYNC */
    uint64_t bytes_sent;     /**< payload to other ranks, by messages and shared memory: pushes of
                                  a worker, parameters of a server */
    uint64_t bytes_received; /**< payload from other ranks */
    uint64_t bytes_messages; /**< of both, what went by messages */
    uint64_t bytes_metadata; /**< sent beside the payload in messages, without the transport's */
    uint64_t bytes_copied;   /**< copied on the way: memory of the caller that no other rank maps,
                                  and parameters that may change while they are sent */
    uint64_t registrations;  /**< memory registrations with the network */
    uint64_t credit_waits;   /**< times that a chunk had to wait for a credit */
    uint64_t workers;        /**< workers that have neither left nor died, as this server knows */
    uint64_t deaths;         /**< workers that it has found dead */
} twill_server_counters;

/** \defgroup twill_servers Parameter servers
 *
 * twill_server_push(), twill_server_pull(), twill_server_push_pull(), twill_server_test() and the
 * waits may be called by several threads at once, for different keys, or one that pushes and one
 * that pulls, each with its own wait; all other functions by one thread at a time.
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT (twill_server_message() names the argument and the
 * tensor), ::TWILL_ERR_PEER (a server has died; the message names its keys), or any failure of a
 * collective. ::TWILL_ERR_TIMEOUT of twill_server_set_optimizer(), _rebuild(), _save(), _count()
 * and _staleness(): another thread, which waits for something else, has been advancing the server
 * for TWILL_TIMEOUT; after that of _rebuild() its pushes and pulls fail, too, but it may be
 * rebuilt.
 * @{ */
/** \brief Fill options with the defaults. Local. */
TWILL_API void twill_server_defaults(twill_server_options *options);
/** \brief Create a parameter server over the ranks of a communicator. Local. \p options may be
 *  NULL. The communicator must outlive the commit. On failure *server is NULL and
 *  twill_comm_message(comm) has the reason. */
TWILL_API twill_status twill_server_create(twill_server **server, twill_comm *comm,
                                           const twill_server_options *options);
/** \brief Register a tensor on all ranks in the same order, whatever their part. Local. The first
 *  one has key 0, the next 1 and so on; \p key, unless NULL, receives it.
 *
 * tensor.gradient is what a worker pushes, tensor.parameters where it pulls to. The server provides
 * what is NULL. Memory of twill_alloc() is read and written in place by servers of the node; other
 * memory is copied. Parameters of the lowest worker are the initial ones, zeros where they are
 * NULL. Ranks that do not work may pass NULL. tensor.priority is not read. */
TWILL_API twill_status twill_server_add(twill_server *server, const twill_tensor *tensor, int *key);
/** \brief End the registration. Collective: ranks compare options and tensors; a difference is
 *  ::TWILL_ERR_MISMATCH on all ranks. When it returns on a worker its parameters are the servers',
 *  which must be in twill_server_serve() for that if they do not work. */
TWILL_API twill_status twill_server_commit(twill_server *server);
/** \brief Return what this rank does. Local. */
TWILL_API twill_server_part twill_server_role(const twill_server *server);
/** \brief Return the gradient memory of a key, the caller's or the server's (zeros after the
 *  commit); NULL for an unknown key, before the commit, or on a rank that does not work. Local. */
TWILL_API void *twill_server_gradient(const twill_server *server, int key);
/** \brief Return the parameter memory of a key, as twill_server_gradient() does. Local. */
TWILL_API void *twill_server_parameters(const twill_server *server, int key);
/** \brief Start to push the gradient of a key, which belongs to the server until it is waited for.
 */
TWILL_API twill_status twill_server_push(twill_server *server, int key);
/** \brief Start to pull the parameters of a key, which belong to the server until they are waited
 *  for. Of one worker, pushes before the pull are in what it gets as far as the mode says. */
TWILL_API twill_status twill_server_pull(twill_server *server, int key);
/** \brief Start a push and then a pull. */
TWILL_API twill_status twill_server_push_pull(twill_server *server, int key);
/** \brief Start push_pull of several keys at once, in this order. */
TWILL_API twill_status twill_server_push_pull_all(twill_server *server, size_t count,
                                                  const int *keys);
/** \brief Advance, and set *done to 1 if push and pull of a key, of all keys if it is -1, are
 *  complete. */
TWILL_API twill_status twill_server_test(twill_server *server, int key, int *done);
/** \brief Wait for push and pull of a key; -1: of all keys. */
TWILL_API twill_status twill_server_wait(twill_server *server, int key);
/** \brief Wait for the push of a key alone, so that its gradient may be written while the pull is
 *  under way. */
TWILL_API twill_status twill_server_wait_push(twill_server *server, int key);
/** \brief Wait for the pull of a key alone, such as in a thread that pulls while another pushes. */
TWILL_API twill_status twill_server_wait_pull(twill_server *server, int key);
/** \brief Return the version of the parameters that were pulled last: updates, of the chunk that
 *  has the fewest. 0 for an unknown key. Any thread may call it. */
TWILL_API uint64_t twill_server_version(const twill_server *server, int key);
/** \brief Serve until all workers have left or died; ::TWILL_ERR_PEER if another server dies
 *  before. On servers; a server that works, too, leaves first, as with twill_server_leave(). */
TWILL_API twill_status twill_server_serve(twill_server *server);
/** \brief Push and pull no more. The others go on, in ::TWILL_SERVER_SYNC without this worker. On
 *  a worker, once what it has started is complete. */
TWILL_API twill_status twill_server_leave(twill_server *server);
/** \brief Change hyperparameters of the optimizer, such as the rate, for later updates of the
 *  chunks here; neither the rule nor whether there is momentum. Local, on all servers.
 *  twill_server_rebuild() takes them over; ranks that are new then pass the first ones. */
TWILL_API twill_status twill_server_set_optimizer(twill_server *server,
                                                  const twill_optimizer *optimizer);
/** \brief Go on with other ranks: replace *server by one over \p comm, with its options (but the
 *  lowest ranks serve) and tensors. Collective over \p comm; ranks that had no part in it
 *  create, add and commit the same instead.
 *
 * Between the two may be twill_comm_shrink() or twill_comm_grow(). Each chunk's newest state that
 * any rank has, as its server or its replica, goes on; versions, too, so that in
 * ::TWILL_SERVER_SYNC a push that is repeated counts once. What this rank had started and not
 * waited for is void. ::TWILL_ERR_PEER, with the keys, on all ranks if the state of a chunk is
 * lost, ::TWILL_ERR_ARGUMENT, with twill_comm_message(\p comm), on all ranks if they are too few
 * for the layout. On failure \p *server still has the state that this rank brings: it may be
 * rebuilt once more, as when another rank has died meanwhile or others have joined, or destroyed.
 */
TWILL_API twill_status twill_server_rebuild(twill_server **server, twill_comm *comm);
/** \brief Write the state of the chunks here, replicas left out, to the file PATH.RANK, so that a
 *  crash leaves the old one or the new one. Local, on all servers, while no worker pushes if the
 *  chunks are to be of one moment. */
TWILL_API twill_status twill_server_save(twill_server *server, const char *path);
/** \brief Read what twill_server_save() has written: files PATH.R for R from this rank on in steps
 *  of the size of the communicator, as far as they exist. Before the commit, on all ranks; the
 *  commit gives each server its chunks, also in another layout. */
TWILL_API twill_status twill_server_load(twill_server *server, const char *path);
/** \brief Read the counters. */
TWILL_API twill_status twill_server_count(twill_server *server, twill_server_counters *counters);
/** \brief Read how many gradients of chunks here had staleness 0, 1, ... most - 1, and in the last
 *  element most - 1 or more. */
TWILL_API twill_status twill_server_staleness(twill_server *server, uint64_t *histogram,
                                              size_t most);
/** \brief Return line 0, 1, ... of a description of layout, mode and shards; NULL past the end.
 *  The text is valid until the next call. */
TWILL_API const char *twill_server_describe(twill_server *server, size_t index);
/** \brief Return the last failure as a sentence, "" if there was none. */
TWILL_API const char *twill_server_message(const twill_server *server);
/** \brief Free a server. Collective after a commit: workers leave, and servers serve until all
 *  have. NULL is allowed. If a rank of this node lives but does not come, the server's memory that
 *  it may still use stays until the context is destroyed; keep yours (twill_tensor) that long.
 *  If another thread, in a wait for something else, advances the server for longer than
 *  TWILL_TIMEOUT, the server is kept, with a warning, as long as the process: then its context
 *  cannot be freed either. */
TWILL_API void twill_server_destroy(twill_server *server);
/** @} */

#ifdef __cplusplus
}
#endif
#endif

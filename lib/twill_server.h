/* SPDX-License-Identifier: Apache-2.0 */
/** \file twill_server.h
 * \brief Parameter servers: workers push gradients of tensors by key and pull parameters.
 *
 * The tensors are cut into chunks. Each chunk belongs to one shard of one server. Only that shard
 * adds the workers' gradients, applies the optimizer and hands out the parameters. The mode decides
 * when an update takes place, and which parameters a worker may get.
 *
 *     twill_server_create(&server, comm, &options);
 *     twill_server_add(server, &tensor, &key);
 *     twill_server_commit(server);
 *     if (twill_server_role(server) == TWILL_SERVER_SERVES)
 *         twill_server_serve(server);
 *     else
 *         while (more_batches()) {
 *             compute_gradients(twill_server_parameters(server, key));
 *             twill_server_push_pull(server, key);
 *             twill_server_wait(server, -1);
 *         }
 *     twill_server_destroy(server);
 *
 * Conventions are those of twill.h. The caller's communicator may be used at any time, as a server
 * has its own. A worker that dies breaks a communicator, but not a parameter server.
 */
#ifndef TWILL_SERVER_H
#define TWILL_SERVER_H

#include "twill_train.h"

#ifdef __cplusplus
extern "C" {
#endif

/** \brief A process's part of a parameter server: worker, server or both. */
typedef struct twill_server twill_server;

/** \brief Which ranks serve, as PHub (Luo et al. 2018) names the layouts. There are P ranks, W
 * workers, M servers and n bytes of parameters. */
typedef enum twill_server_layout {
    TWILL_SERVER_CS = 0, /**< colocated, sharded: every rank works and serves a shard; each sends
                              2n(P-1)/P */
    TWILL_SERVER_CC,     /**< colocated, centralized: the first server, which also works, serves
                              all; it sends and receives n(P-1) */
    TWILL_SERVER_NC,     /**< not colocated, centralized: the first server does not work; it sends
                              and receives nW */
    TWILL_SERVER_NCS     /**< not colocated, sharded: `servers` ranks do not work; each sends and
                              receives nW/M, a worker n */
} twill_server_layout;

/** \brief Which gradients an update of a chunk takes, and which ones are dropped. P is the
 * number of workers that have neither left nor died, and K is options.k. A worker's gradient
 * belongs to the version that it has pulled last. In the modes sync, K-sync and K-async a pull
 * waits until the worker's push is in an update or dropped. */
typedef enum twill_server_mode {
    TWILL_SERVER_SYNC = 0,      /**< one gradient of each worker */
    TWILL_SERVER_K_SYNC,        /**< those of the first K workers; older versions are dropped */
    TWILL_SERVER_K_BATCH_SYNC,  /**< the first K of any workers; older versions are dropped */
    TWILL_SERVER_K_ASYNC,       /**< those of the first K workers, of any version */
    TWILL_SERVER_K_BATCH_ASYNC, /**< any K */
    TWILL_SERVER_ASYNC,         /**< each one */
    TWILL_SERVER_SOFTSYNC,      /**< n-softsync, where n is options.k: any c = floor(P/n), at least
                                     1, with P as at the commit; so there are floor(gradients/c)
                                     updates */
    TWILL_SERVER_BOUNDED        /**< each one; a pull waits while the worker has pushed more than
                                     options.k gradients more than the slowest worker */
} twill_server_mode;

/** \brief How much a gradient counts. Its staleness is the number of updates by which the chunk is
 * ahead of the version that the worker has pulled. */
typedef enum twill_server_rate {
    TWILL_SERVER_RATE_FIXED = 0, /**< all gradients count the same */
    TWILL_SERVER_RATE_STALENESS, /**< divided by max(1, staleness) */
    TWILL_SERVER_RATE_DISTANCE   /**< multiplied by min(distance_c / d, distance_most), where d is
                                      the squared distance of the chunk's parameters from those that
                                      the worker has pulled. Only for ::TWILL_SERVER_ASYNC and
                                      ::TWILL_SERVER_BOUNDED. With SGD of rate 1 it is the rate */
} twill_server_rate;

/** \brief Chunk size that makes every tensor one chunk. */
#define TWILL_SERVER_WHOLE_TENSORS ((size_t)-1)

/** \brief Options. Fill with twill_server_defaults(), then change. All ranks pass the same. */
typedef struct twill_server_options {
    size_t bytes;                     /**< sizeof(twill_server_options), set by the defaults */
    twill_server_layout layout;       /**< ::TWILL_SERVER_CS by default */
    int servers;                      /**< number of servers of ::TWILL_SERVER_NCS, 1 by default */
    const int *ranks;                 /**< the ranks that serve, as many as the layout has, or NULL
                                           for the lowest; copied */
    twill_server_mode mode;           /**< ::TWILL_SERVER_SYNC by default */
    int k;                            /**< K or n of the mode, at least 1, or its bound, at least
                                           0. The default is 1 */
    twill_op op;                      /**< ::TWILL_AVG (default) or ::TWILL_SUM of the gradients */
    const twill_optimizer *optimizer; /**< rule of the update, for ::TWILL_F32: SGD, Adagrad, Adam
                                           or AdamW. With NULL, parameters become the result of op.
                                           Copied */
    twill_server_rate rate;           /**< how much a gradient counts, ::TWILL_SERVER_RATE_FIXED by
                                           default */
    double distance_c;                /**< numerator in ::TWILL_SERVER_RATE_DISTANCE, above 0, 1 by
                                           default */
    double distance_most;             /**< most that a gradient is multiplied by in
                                           ::TWILL_SERVER_RATE_DISTANCE, above 0, 1 by default */
    size_t chunk_bytes;               /**< tensors are cut into chunks of this size, a multiple of 1
                                           KiB, or ::TWILL_SERVER_WHOLE_TENSORS. With 0, the
                                           default, the commit finds out which of 32 to 256 KiB is
                                           fastest, in some seconds */
    int threads;                      /**< threads of each server (at most 64), which divide its
                                           chunks. With 0, the default, chunks advance in this
                                           rank's calls, also while it waits for another
                                           communicator */
    int replicas;                     /**< 2 if another server has a copy of each chunk, else 1, the
                                           default. The chunk's own server sends it there after each
                                           change, and only then answers pushes and pulls. Needs 2
                                           servers */
    int credits;                      /**< chunks that a worker may have on the way to one shard
                                           (options.threads) of a server on another node, 8 by
                                           default, at most 1024 */
    twill_compression compression;    /**< of pushes of ::TWILL_F32, none by default */
    int error_feedback;               /**< as in twill_gradients_options, 1 by default */
    double compression_ratio;         /**< as in twill_gradients_options, of each chunk, 0.01 */
    double compression_threshold;     /**< as in twill_gradients_options, but may be 0 */
} twill_server_options;

/** \brief What a rank of a server does. */
typedef enum twill_server_part {
    TWILL_SERVER_WORKS = 1,  /**< it pushes and pulls */
    TWILL_SERVER_SERVES = 2, /**< it has chunks */
    TWILL_SERVER_BOTH = 3    /**< it does both */
} twill_server_part;

/** \brief Counters since the commit, as twill_server_count() stores them. Those of chunks are about
 * the chunks that this rank serves, without replicas. Those of bytes include replicas. Bytes sent
 * as a message are counted on both ranks. Bytes through shared memory are also counted on both, but
 * by each rank itself. A server counts them when it reads and writes, a worker when it starts a
 * push or a pull. */
typedef struct twill_server_counters {
    uint64_t keys;           /**< tensors */
    uint64_t chunks;         /**< chunks of all servers */
    uint64_t chunk_bytes;    /**< their size: options.chunk_bytes, or what the commit has chosen */
    uint64_t chunks_here;    /**< chunks that this rank serves */
    uint64_t most_bytes;     /**< bytes of chunks on the shard of any server that has the most */
    uint64_t least_bytes;    /**< the same, on the shard that has the least */
    uint64_t versions;       /**< sum of the versions of the chunks here */
    uint64_t updates;        /**< updates of chunks */
    uint64_t gradients;      /**< gradients of chunks that are in updates, or will be */
    uint64_t dropped;        /**< gradients of chunks that the mode has dropped */
    uint64_t duplicates;     /**< gradients that the chunk had already, in ::TWILL_SERVER_SYNC */
    uint64_t bytes_sent;     /**< payload to other ranks, by messages and shared memory: pushes of a
                                  worker, parameters of a server */
    uint64_t bytes_received; /**< payload from other ranks */
    uint64_t bytes_messages; /**< part of both that was sent as messages */
    uint64_t bytes_metadata; /**< bytes of messages beyond the payload, without the transport's */
    uint64_t bytes_copied;   /**< bytes copied on the way: memory of the caller that no other rank
                                  maps, and parameters that may change while they are sent */
    uint64_t registrations;  /**< memory registrations with the network */
    uint64_t credit_waits;   /**< times that a chunk had to wait for a credit */
    uint64_t workers;        /**< workers that have neither left nor died, as this server knows */
    uint64_t deaths;         /**< workers that this server has found dead */
} twill_server_counters;

/** \defgroup twill_servers Parameter servers
 *
 * Several threads may push, pull, test and wait at once for different keys. For one key, one thread
 * may push and another one pull, each with its own wait. All other functions may be used by one
 * thread at a time. Only ranks that work push, pull, test and wait. Keys are 0 to the number of
 * tensors less one.
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT (twill_server_message() names the argument and the
 * tensor), ::TWILL_ERR_PEER if a server has died (the message names its keys), or any failure of a
 * collective. ::TWILL_ERR_TIMEOUT of twill_server_set_optimizer(), _rebuild(), _save(), _count()
 * and _staleness() means that another thread, which waits for something else, has been advancing
 * the server for TWILL_TIMEOUT. After that of _rebuild() pushes and pulls also fail, but the server
 * may be rebuilt.
 * @{ */
/** \brief Fill options with the defaults. Local. */
TWILL_API void twill_server_defaults(twill_server_options *options);
/** \brief Create a parameter server over the ranks of a communicator. Local. \p options may be NULL
 * for the defaults. \p comm must outlive the commit. On failure *server is NULL and
 * twill_comm_message(comm) has the reason. */
TWILL_API twill_status twill_server_create(twill_server **server, twill_comm *comm,
                                           const twill_server_options *options);
/** \brief Register a tensor before twill_server_load() and the commit, on all ranks in the same
 * order, whether they work or serve. Local. The first one has key 0, the next 1 and so on. *key
 * receives it unless \p key is NULL. A worker pushes tensor.gradient, and pulls to
 * tensor.parameters. The server provides memory where they are NULL, and ranks that only serve may
 * leave both NULL. Memory of twill_alloc() is read and written in place by servers of the node,
 * other memory is copied. The initial parameters are those of the lowest worker, or zeros where
 * they are NULL. tensor.priority is not read. \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT or
 * ::TWILL_ERR_MEMORY */
TWILL_API twill_status twill_server_add(twill_server *server, const twill_tensor *tensor, int *key);
/** \brief End the registration. Collective. Ranks compare options and tensors, and a difference is
 * ::TWILL_ERR_MISMATCH on all ranks. When the call returns on a worker, its parameters are those of
 * the servers. Servers that do not work must be in twill_server_serve() for that. */
TWILL_API twill_status twill_server_commit(twill_server *server);
/** \brief Return whether this rank works, serves or both, or 0 if \p server is NULL. Local. */
TWILL_API twill_server_part twill_server_role(const twill_server *server);
/** \brief Return the gradient memory of a key, the caller's or the server's (zeros after the
 * commit), or NULL for an unknown key, before the commit, or if this rank does not work. Local. */
TWILL_API void *twill_server_gradient(const twill_server *server, int key);
/** \brief Return the parameter memory of a key, the caller's or the server's. Local. It is NULL for
 * an unknown key, before the commit, or if this rank does not work. */
TWILL_API void *twill_server_parameters(const twill_server *server, int key);
/** \brief Start to push the gradient of a key, which belongs to the server until the push is waited
 * for. Returns ::TWILL_ERR_ARGUMENT if a push of the key is under way. */
TWILL_API twill_status twill_server_push(twill_server *server, int key);
/** \brief Start to pull the parameters of a key, which belong to the server until the pull is
 * waited for. The mode decides which earlier pushes of this worker are in what it gets. Returns
 * ::TWILL_ERR_ARGUMENT if a pull of the key is under way. */
TWILL_API twill_status twill_server_pull(twill_server *server, int key);
/** \brief Start a push of a key and then a pull. */
TWILL_API twill_status twill_server_push_pull(twill_server *server, int key);
/** \brief Start twill_server_push_pull() of \p count keys, in this order. */
TWILL_API twill_status twill_server_push_pull_all(twill_server *server, size_t count,
                                                  const int *keys);
/** \brief Advance all pushes and pulls of this rank. Set *done to 1 if those of a key (or all, for
 * -1) are over, else to 0. */
TWILL_API twill_status twill_server_test(twill_server *server, int key, int *done);
/** \brief Wait for push and pull of a key, or of all keys if \p key is -1. */
TWILL_API twill_status twill_server_wait(twill_server *server, int key);
/** \brief Wait only for the push of a key, so that its gradient may be written during the pull. */
TWILL_API twill_status twill_server_wait_push(twill_server *server, int key);
/** \brief Wait only for the pull of a key, such as in a thread that pulls while another pushes. */
TWILL_API twill_status twill_server_wait_pull(twill_server *server, int key);
/** \brief Return the version of the parameters that were pulled last, i.e. the updates of the chunk
 * with the fewest, or 0 for an unknown key. Any thread may call it. */
TWILL_API uint64_t twill_server_version(const twill_server *server, int key);
/** \brief Serve until all workers have left or died. Only servers call it. A server that also works
 * leaves first. Returns ::TWILL_ERR_PEER if another server dies before. */
TWILL_API twill_status twill_server_serve(twill_server *server);
/** \brief Wait for what this worker has started, and push and pull no more. The other workers
 * continue, in ::TWILL_SERVER_SYNC without this one. */
TWILL_API twill_status twill_server_leave(twill_server *server);
/** \brief Change hyperparameters of the optimizer, such as the rate, for later updates of the
 * chunks here. Neither the rule nor whether there is momentum may change. Local, on all servers.
 * twill_server_rebuild() keeps the change. Ranks that join by it pass the hyperparameters of the
 * first twill_server_create(), and get the changed ones. */
TWILL_API twill_status twill_server_set_optimizer(twill_server *server,
                                                  const twill_optimizer *optimizer);
/** \brief Continue with other ranks: replace *server by one over \p comm with the same options and
 * tensors, except that the lowest ranks serve. Collective over \p comm. Ranks that had no part in
 * the old one create, add and commit the same instead.
 *
 * \p comm may come from twill_comm_shrink() or twill_comm_grow(). Each chunk continues from the
 * newest state that any rank has, as its server or as its replica. Versions also continue, so that
 * in ::TWILL_SERVER_SYNC a repeated push counts once. Whatever this rank had started and not waited
 * for is void. On failure \p *server still has the state that this rank brings. It may be
 * destroyed, or rebuilt once more, as when another rank has died meanwhile or others have joined.
 * \return ::TWILL_OK or any failure of a collective. It is ::TWILL_ERR_PEER, with the keys, on all
 * ranks if the state of a chunk is lost. It is ::TWILL_ERR_ARGUMENT, with twill_comm_message(\p
 * comm), if ranks are too few. ::TWILL_ERR_TIMEOUT also means that another thread stays in
 * *server. */
TWILL_API twill_status twill_server_rebuild(twill_server **server, twill_comm *comm);
/** \brief Write the state of the chunks here, without replicas, to the file PATH.RANK, so that a
 * crash leaves either the old file or the new one. Local, on all servers. If chunks are to be of
 * one moment, no worker may push meanwhile. Returns ::TWILL_ERR_SYSTEM if writing fails. */
TWILL_API twill_status twill_server_save(twill_server *server, const char *path);
/** \brief Read what twill_server_save() has written: files PATH.R for R from this rank on, in steps
 * of the size of the communicator, as far as they exist. Before the commit, on all ranks. The
 * commit gives each server its chunks, also in another layout. */
TWILL_API twill_status twill_server_load(twill_server *server, const char *path);
/** \brief Store the counters of this rank in *counters. Local, after the commit. */
TWILL_API twill_status twill_server_count(twill_server *server, twill_server_counters *counters);
/** \brief Count the gradients of chunks here that had staleness 0, 1, ... in histogram[0 ..
 * most-1]. The last element counts those of staleness most - 1 or more. \p most is at least 1. All
 * are 0 at a rank that does not serve. Local, after the commit. */
TWILL_API twill_status twill_server_staleness(twill_server *server, uint64_t *histogram,
                                              size_t most);
/** \brief Return line 0, 1, ... of a description of layout, mode and shards, or NULL past the end.
 * The text is valid until the next call. */
TWILL_API const char *twill_server_describe(twill_server *server, size_t index);
/** \brief Return the last failure as a sentence, or "" if there was none. Never returns NULL, as
 * there is also a text for a \p server of NULL. */
TWILL_API const char *twill_server_message(const twill_server *server);
/** \brief Free a server. Collective after a commit: workers leave, and servers serve until all have
 * left. \p server may be NULL. If a rank of this node lives but does not come, the server's memory
 * that it may still use is kept until the context is destroyed. Keep your memory (twill_tensor) for
 * as long. If another thread, in a wait for something else, advances the server for longer than
 * TWILL_TIMEOUT, the server and its context are kept until the process ends, with a warning. */
TWILL_API void twill_server_destroy(twill_server *server);
/** @} */

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/** \file twill.h
 * \brief twill: topology-aware collectives for training codes on CPUs.
 *
 * Conventions:
 * - A function that can fail returns a ::twill_status: ::TWILL_OK (0) or a negative code.
 *   twill_strerror() describes the code; twill_comm_message() and twill_context_message() return a
 *   sentence that names the rank, the call and the cause.
 * - Counts are elements (`size_t`), sizes are bytes, times are seconds (`double`).
 * - There is no global state: every object belongs to a context, and a process may have several.
 * - Threads: one thread at a time creates and destroys contexts and communicators. Different
 *   communicators, also of one context, may be used by different threads at the same time; a
 *   communicator and its requests may be used by one thread at a time. Breaking this rule, or using
 *   an object after its end, returns ::TWILL_ERR_ARGUMENT. (An ended request is recognised until
 *   2048 more have ended in its context.)
 * - twill starts threads only if asked to (TWILL_PROGRESS, TWILL_THREADS, options.threads). It has
 *   no signal handler, no exit() or abort(), and prints only warnings (TWILL_LOG=none: nothing).
 * - All ranks of a communicator call the same collectives in the same order, with the same count,
 *   type, operation and root. A mismatch is an error on all ranks (::TWILL_ERR_MISMATCH), not a
 *   hang. A rank that only contributes data may return before a mismatch is detected; a later call
 *   then reports it.
 * - When a collective fails, its communicator is broken: the contents of the destination are
 *   undefined, and every later call on it returns ::TWILL_ERR_BROKEN with the first message.
 * - Every wait ends: after TWILL_TIMEOUT seconds at the latest, within seconds if a peer dies.
 */
#ifndef TWILL_H
#define TWILL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if !defined(TWILL_API) && defined(__GNUC__)
#define TWILL_API __attribute__((visibility("default")))
#elif !defined(TWILL_API)
#define TWILL_API
#endif

/** \brief Version of this header; twill_version() returns that of the library. */
#define TWILL_VERSION_MAJOR 0
#define TWILL_VERSION_MINOR 1 /**< \brief second number of the version */
#define TWILL_VERSION_PATCH 0 /**< \brief third number of the version */

/** \brief Result of a call: 0 or a negative code. */
typedef enum twill_status {
    TWILL_OK = 0,                /**< success */
    TWILL_ERR_ARGUMENT = -1,     /**< an argument is outside its range; the message names it */
    TWILL_ERR_CONFIG = -2,       /**< an environment variable or setting cannot be used */
    TWILL_ERR_MEMORY = -3,       /**< out of memory */
    TWILL_ERR_SYSTEM = -4,       /**< a system call failed */
    TWILL_ERR_BOOTSTRAP = -5,    /**< the ranks could not find each other */
    TWILL_ERR_FABRIC = -6,       /**< the network layer (libfabric) failed */
    TWILL_ERR_TIMEOUT = -7,      /**< TWILL_TIMEOUT expired; the message names the missing rank */
    TWILL_ERR_PEER = -8,         /**< a peer died; the message names it */
    TWILL_ERR_MISMATCH = -9,     /**< ranks disagree on the call or its arguments */
    TWILL_ERR_BROKEN = -10,      /**< the communicator failed earlier */
    TWILL_ERR_FORKED = -11,      /**< used in a child process after fork() */
    TWILL_ERR_UNSUPPORTED = -12, /**< not built in, or not available on this machine */
    TWILL_ERR_INTERNAL = -13,    /**< a bug in twill; please report the message */
    TWILL_ERR_REVOKED = -14,     /**< twill_comm_revoke() has ended the communicator */
    TWILL_ERR_EXCLUDED = -15     /**< the other ranks go on without this one, which was silent */
} twill_status;

/** \brief Element types. Reductions of 8- and 16-bit floats accumulate in 32 bits on the whole path
 *  and round once, to nearest even, at the end, except with twill_op_create_narrow(). */
typedef enum twill_type {
    TWILL_F32 = 0, /**< IEEE 754 binary32 */
    TWILL_F64,     /**< IEEE 754 binary64 */
    TWILL_I32,     /**< signed 32-bit integer; all integers wrap around */
    TWILL_I64,     /**< signed 64-bit integer */
    TWILL_F16,     /**< IEEE 754 binary16 */
    TWILL_BF16,    /**< bfloat16 */
    TWILL_I8,      /**< signed 8-bit integer */
    TWILL_U8,      /**< unsigned 8-bit integer */
    TWILL_I16,     /**< signed 16-bit integer */
    TWILL_U16,     /**< unsigned 16-bit integer */
    TWILL_U32,     /**< unsigned 32-bit integer */
    TWILL_U64,     /**< unsigned 64-bit integer */
    TWILL_F8E4M3,  /**< OCP FP8 E4M3: no infinity; values above 448 become NaN */
    TWILL_F8E5M2,  /**< OCP FP8 E5M2: values above 57344 become infinity */
    TWILL_TYPE_COUNT
} twill_type;

/** \brief Reduction operations.
 *
 * sum, prod, min, max, avg, minloc and maxloc return the canonical quiet NaN if an operand is NaN,
 * so that results have the same bits on every machine. Bitwise and logical operations take integers
 * only; minloc and maxloc take f32 f64 i16 i32 i64; other types are ::TWILL_ERR_ARGUMENT. More
 * operations: twill_op_create(). */
typedef enum twill_op {
    TWILL_SUM = 0, /**< sum */
    TWILL_PROD,    /**< product */
    TWILL_MIN,     /**< minimum; -0 is less than +0 */
    TWILL_MAX,     /**< maximum; +0 is greater than -0 */
    TWILL_AVG,     /**< sum divided by the number of ranks; integers truncate towards zero */
    TWILL_BAND,    /**< bitwise and */
    TWILL_BOR,     /**< bitwise or */
    TWILL_BXOR,    /**< bitwise exclusive or */
    TWILL_LAND,    /**< logical and: 1 if all are non-zero, else 0 */
    TWILL_LOR,     /**< logical or: 1 if any is non-zero, else 0 */
    TWILL_LXOR,    /**< logical exclusive or: 1 if an odd number is non-zero, else 0 */
    TWILL_MINLOC, /**< minimum and its index (the lowest of equals; -0 equals +0) of pairs {value of
                       the type; int32_t index}, laid out as a C struct, like MPI_FLOAT_INT */
    TWILL_MAXLOC, /**< maximum and its index; elements as for ::TWILL_MINLOC */
    TWILL_OP_COUNT,
    TWILL_OP_CREATED = 0x100 /**< first of those of twill_op_create() */
} twill_op;

/** \brief A process's membership of a job: its configuration, topology, memory and peers. */
typedef struct twill_context twill_context;
/** \brief A set of ranks that run collectives together. */
typedef struct twill_comm twill_comm;
/** \brief A nonblocking call in progress, or a persistent call. */
typedef struct twill_request twill_request;

/** \brief All-gather provided by the caller, used to set up contexts and communicators.
 *
 * Gather \p bytes bytes from every rank's \p mine into \p all (size * bytes), in rank order. All
 * ranks call it in the same order, only during creation, in the creating thread.
 * \return 0; any other value fails the creation with ::TWILL_ERR_BOOTSTRAP. */
typedef int (*twill_exchange_fn)(void *user, const void *mine, void *all, size_t bytes);

/** \brief A bootstrap by the caller's means, instead of the environment. */
typedef struct twill_bootstrap {
    int rank;                   /**< 0 .. size-1 */
    int size;                   /**< number of ranks, at least 1 */
    twill_exchange_fn exchange; /**< may be NULL if size is 1 */
    void *user;                 /**< passed to exchange */
} twill_bootstrap;

/** \defgroup twill_setup Initialisation
 * @{ */
/** \brief Create a context. Collective over all ranks of the job.
 *
 * \param[out] context  the new context; destroy it with twill_context_destroy()
 * \param bootstrap     NULL: find the other ranks from the environment, see twill(7)
 *                      (twillrun, or RANK WORLD_SIZE MASTER_ADDR MASTER_PORT, else one rank)
 * \param settings      NULL, or a NULL-terminated list of "TWILL_NAME=value" strings, which
 *                      override the environment
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT, ::TWILL_ERR_CONFIG, ::TWILL_ERR_BOOTSTRAP,
 *         ::TWILL_ERR_MISMATCH, ::TWILL_ERR_MEMORY, ::TWILL_ERR_SYSTEM. After a failure *context
 *         is NULL, or only good for twill_context_message() and twill_context_destroy(). */
TWILL_API twill_status twill_context_create(twill_context **context,
                                            const twill_bootstrap *bootstrap,
                                            const char *const *settings);
/** \brief Free a context, whose communicators must have been destroyed; else it is kept, with a
 * warning. NULL is allowed. */
TWILL_API void twill_context_destroy(twill_context *context);
/** \brief Create the communicator of all ranks of the context. Collective. Sets *comm to NULL on
 * failure; twill_context_message() has the reason. */
TWILL_API twill_status twill_comm_create(twill_comm **comm, twill_context *context);
/** \brief Free a communicator. Collective unless the communicator is broken. NULL is allowed. */
TWILL_API void twill_comm_destroy(twill_comm *comm);
/** \brief Free a communicator without waiting for other ranks. Allowed if the last call on it was a
 * barrier and is complete. NULL is allowed. */
TWILL_API void twill_comm_leave(twill_comm *comm);

/** \brief Create a context from the environment, and the communicator of all its ranks. Collective.
 * On failure *comm is NULL and the reason is printed to standard error unless TWILL_LOG=none. */
TWILL_API twill_status twill_init(twill_comm **comm);
/** \brief Like twill_init(), with the arguments of twill_context_create(). If \p message is not
 * NULL, the reason of a failure ("" on success) is stored there in \p bytes bytes, not printed. */
TWILL_API twill_status twill_init_with(twill_comm **comm, const twill_bootstrap *bootstrap,
                                       const char *const *settings, char *message, size_t bytes);
/** \brief Destroy a communicator of twill_init() and its context. Collective. NULL is allowed. */
TWILL_API void twill_finalize(twill_comm *comm);
/** @} */

/** \defgroup twill_ranks Ranks and nodes
 * Local; any thread may call them. Each returns -1 for NULL and for a destroyed communicator.
 * @{ */
TWILL_API int twill_comm_rank(const twill_comm *comm);       /**< \brief This rank, 0 .. size-1. */
TWILL_API int twill_comm_size(const twill_comm *comm);       /**< \brief Number of ranks. */
TWILL_API int twill_comm_node(const twill_comm *comm);       /**< \brief Node of this rank. */
TWILL_API int twill_comm_nodes(const twill_comm *comm);      /**< \brief Number of nodes. */
TWILL_API int twill_comm_local_rank(const twill_comm *comm); /**< \brief Rank within the node. */
TWILL_API int twill_comm_local_size(const twill_comm *comm); /**< \brief Ranks on this node. */
/** \brief Return the context of a communicator, or NULL if \p comm is NULL or destroyed. */
TWILL_API twill_context *twill_comm_context(const twill_comm *comm);
/** @} */

/** \defgroup twill_split New communicators from existing ones
 *
 * Collective over the ranks of \p comm (with a list of ranks: over these only). The set-up uses the
 * links of \p comm, on which no request may be in progress. The new communicator is independent:
 * ranks may order calls on the two differently, and either may be destroyed first.
 * \return ::TWILL_OK or an error; then *made is NULL and twill_comm_message(comm) has the reason.
 * @{ */
/** \brief Colour of a rank that joins none of the new communicators; its *made is NULL. */
#define TWILL_COLOUR_NONE (-1)
/** \brief Create a communicator of the same ranks in the same order. */
TWILL_API twill_status twill_comm_dup(twill_comm **made, twill_comm *comm);
/** \brief Create a communicator for each \p colour (0 or more, or ::TWILL_COLOUR_NONE), of the
 * ranks that passed it, ordered by \p key, then by rank. */
TWILL_API twill_status twill_comm_split(twill_comm **made, twill_comm *comm, int colour, int key);
/** \brief Levels of the machine's hierarchy, from small to large. */
typedef enum twill_level {
    TWILL_LEVEL_TILE = 0, /**< cores that share an L2 cache */
    TWILL_LEVEL_L3,       /**< cores that share an L3 cache */
    TWILL_LEVEL_NUMA,     /**< a NUMA node */
    TWILL_LEVEL_PACKAGE,  /**< a package; those within one of several NUMA nodes count as one */
    TWILL_LEVEL_NODE,     /**< a node: ranks that share memory */
    TWILL_LEVEL_GROUP,    /**< a group of nodes of the fabric (TWILL_LAYOUT=groups) */
    TWILL_LEVEL_COUNT
} twill_level;
/** \brief Create a communicator for each unit of a level that has ranks, ordered by \p key, then by
 *  rank. A rank bound to several units belongs to the first of them. */
TWILL_API twill_status twill_comm_split_level(twill_comm **made, twill_comm *comm,
                                              twill_level level, int key);
/** \brief Create a communicator of ranks[0 .. count-1] of \p comm, in this order. Only these ranks
 * call it, with the same list, in which all are different. */
TWILL_API twill_status twill_comm_create_group(twill_comm **made, twill_comm *comm, int count,
                                               const int *ranks);
/** \brief Like twill_comm_create_group(), set up by \p exchange, whose ranks are those of the list
 * (NULL is allowed for one rank). \p comm is not changed: it may be broken, and have requests in
 * progress, also in other threads. The reason of a failure is in twill_context_message(). A rank
 * that fails stops calling \p exchange: the caller makes it end on the other ranks. */
TWILL_API twill_status twill_comm_create_over(twill_comm **made, twill_comm *comm, int count,
                                              const int *ranks, twill_exchange_fn exchange,
                                              void *user);
/** @} */

/** \defgroup twill_ops User-defined operations
 * @{ */
/** \brief Compute result[i] = left[i] op right[i] for \p count elements; result may be left or
 * right. Must be associative and depend on nothing but its arguments. The three are aligned to the
 * type; opaque elements to the largest power of two, up to 16, that divides their size. Any thread
 * that waits on a communicator of the context may call it. */
typedef void (*twill_op_fn)(const void *left, const void *right, void *result, size_t count,
                            twill_type type, void *user);
/** \brief Create an operation from a function. Local.
 *
 * All ranks must pass equivalent functions, and the same \p element_bytes and \p commutative.
 * \p element_bytes 0: elements have the type of the call (narrow floats are not converted);
 * 1 .. 4096: opaque elements of this size, and the type of calls is ::TWILL_U8. \p commutative 0:
 * operands are combined in rank order. \p user is passed on. \return ::TWILL_OK,
 * ::TWILL_ERR_ARGUMENT, ::TWILL_ERR_MEMORY (at most 256 per context). */
TWILL_API twill_status twill_op_create(twill_context *context, twill_op *op, twill_op_fn function,
                                       void *user, size_t element_bytes, int commutative);
/** \brief Create a sum whose inputs are first multiplied by *factor, one element of \p type (8- and
 * 16-bit floats: a float, and only the final sum is rounded). Local; each rank may have its own
 * factor. Calls must use \p type. \return as twill_op_create(). */
TWILL_API twill_status twill_op_create_scaled(twill_context *context, twill_op *op, twill_type type,
                                              const void *factor);
/** \brief Create a sum of 8- or 16-bit floats whose partial results are rounded to \p type, so that
 * f16 moves half of f32's bytes; twill(7) has its error. Local. Inputs are multiplied by *before,
 * which may differ between ranks but is NULL (1) on all or none; the sum by *after, the same on
 * all. With 1/ranks either averages; *before avoids overflow. \return as twill_op_create(). */
TWILL_API twill_status twill_op_create_narrow(twill_context *context, twill_op *op, twill_type type,
                                              const float *before, const float *after);
/** \brief Destroy an operation that no call in progress uses. Local. */
TWILL_API twill_status twill_op_destroy(twill_context *context, twill_op op);
/** @} */

/** \defgroup twill_collectives Collectives
 *
 * Blocking: the result is complete on this rank when the call returns. Reductions yield the same
 * bits on all ranks. Only a barrier synchronises: other calls may return on a rank that needs
 * nothing from the others before these have entered it. Parameters of all calls:
 * - src, dst: buffers, of any alignment; they must not overlap except in place, as stated for each
 *   call. CUDA device memory is accepted if built with TWILL_WITH_CUDA, see twill(7); other
 *   builds cannot recognise it and crash.
 * - count: elements of this type; 0 is allowed. A shard is the part of a buffer that belongs to one
 *   rank. counts[r], offsets[r] (vector variants, "v"): length and start of the shard of rank r, in
 *   elements; offsets NULL: shards are contiguous. Both arrays may be freed after the call.
 * - root: a rank, 0 .. size-1.
 *
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT or any other failure. A bad type, operation, count or
 * root, which all ranks pass alike, is refused, and the communicator stays usable. Any other bad
 * argument (an address, counts of a vector call), as any failure, fails the call on all ranks and
 * breaks the communicator, unless it has one rank only.
 * @{ */
/** \brief Reduce src of all ranks with op to dst on every rank. In place: src == dst. */
TWILL_API twill_status twill_allreduce(twill_comm *comm, const void *src, void *dst, size_t count,
                                       twill_type type, twill_op op);
/** \brief Reduce src of all ranks with op to dst on the root. Other ranks' dst is not touched and
 *  may be NULL. In place: src == dst on the root. */
TWILL_API twill_status twill_reduce(twill_comm *comm, const void *src, void *dst, size_t count,
                                    twill_type type, twill_op op, int root);
/** \brief Copy src of the root to dst on every rank. src of others, dst of the root may be NULL. */
TWILL_API twill_status twill_broadcast(twill_comm *comm, const void *src, void *dst, size_t count,
                                       twill_type type, int root);
TWILL_API twill_status twill_barrier(twill_comm *comm); /**< \brief Wait until all ranks call it. */
/** \brief Copy src (count elements) of rank r to shard r of dst (size * count elements) on every
 * rank. In place: src is this rank's shard of dst. */
TWILL_API twill_status twill_allgather(twill_comm *comm, const void *src, void *dst, size_t count,
                                       twill_type type);
/** \brief Like twill_allgather(), with counts[r] elements from rank r at offsets[r] of dst. counts
 *  must be the same on all ranks; offsets may differ. */
TWILL_API twill_status twill_allgatherv(twill_comm *comm, const void *src, void *dst,
                                        const size_t *counts, const size_t *offsets,
                                        twill_type type);
/** \brief Reduce shard r of src (size * count elements) of all ranks to dst (count elements) on
 *  rank r. In place: dst is this rank's shard of src; the other shards keep their contents. */
TWILL_API twill_status twill_reduce_scatter(twill_comm *comm, const void *src, void *dst,
                                            size_t count, twill_type type, twill_op op);
/** \brief Like twill_reduce_scatter(), with shards of counts[r] elements, the same on all ranks. */
TWILL_API twill_status twill_reduce_scatterv(twill_comm *comm, const void *src, void *dst,
                                             const size_t *counts, twill_type type, twill_op op);
/** \brief Copy src of rank r to shard r of dst on the root. Other ranks' dst may be NULL. In place:
 *  src is the root's shard of dst. */
TWILL_API twill_status twill_gather(twill_comm *comm, const void *src, void *dst, size_t count,
                                    twill_type type, int root);
/** \brief Like twill_gather(), with \p count elements from this rank; the root has the arrays. */
TWILL_API twill_status twill_gatherv(twill_comm *comm, const void *src, size_t count, void *dst,
                                     const size_t *counts, const size_t *offsets, twill_type type,
                                     int root);
/** \brief Copy shard r of src on the root to dst on rank r. Other ranks' src may be NULL. In place:
 *  dst is the root's shard of src. */
TWILL_API twill_status twill_scatter(twill_comm *comm, const void *src, void *dst, size_t count,
                                     twill_type type, int root);
/** \brief Like twill_scatter(), with \p count elements to this rank; the root has the arrays. */
TWILL_API twill_status twill_scatterv(twill_comm *comm, const void *src, const size_t *counts,
                                      const size_t *offsets, void *dst, size_t count,
                                      twill_type type, int root);
/** \brief Copy shard r of src on rank s to shard s of dst on rank r, count elements each. In place:
 *  src == dst. */
TWILL_API twill_status twill_alltoall(twill_comm *comm, const void *src, void *dst, size_t count,
                                      twill_type type);
/** \brief Like twill_alltoall(), with src_counts[r] elements to rank r and dst_counts[r] elements
 *  from it, as that rank expects and sends. Not in place. */
TWILL_API twill_status twill_alltoallv(twill_comm *comm, const void *src, const size_t *src_counts,
                                       const size_t *src_offsets, void *dst,
                                       const size_t *dst_counts, const size_t *dst_offsets,
                                       twill_type type);
/** @} */

/** \defgroup twill_point_to_point Point to point
 *
 * Messages from one rank to another arrive in the order they were sent; count and type must be the
 * same on both sides. A send may block until its receive is posted. A blocking message of
 * a rank to itself needs its counterpart in progress or in its group, else ::TWILL_ERR_ARGUMENT.
 * Messages and collectives do not interfere. \return as described in twill_collectives(3).
 * @{ */
TWILL_API twill_status twill_send(twill_comm *comm, const void *src, size_t count, twill_type type,
                                  int to); /**< \brief Send src to rank \p to. */
TWILL_API twill_status twill_recv(twill_comm *comm, void *dst, size_t count, twill_type type,
                                  int from); /**< \brief Receive dst from rank \p from. */
/** \brief Send and receive at once; \p to and \p from may differ. The buffers must not overlap. */
TWILL_API twill_status twill_sendrecv(twill_comm *comm, const void *src, size_t src_count, int to,
                                      void *dst, size_t dst_count, int from, twill_type type);
/** @} */

/** \defgroup twill_groups Groups
 *
 * Between start and end, calls on the communicator only check their arguments and return; all of
 * them are complete when twill_group_end() returns. Point-to-point calls of a group cannot block
 * each other, and consecutive small allreduces of one type and operation are fused into one. Groups
 * do not nest. Nonblocking and persistent calls in a group are refused.
 * @{ */
TWILL_API twill_status twill_group_start(twill_comm *comm); /**< \brief Begin a group. */
TWILL_API twill_status twill_group_end(twill_comm *comm);   /**< \brief Run its calls and wait. */
/** @} */

/** \defgroup twill_requests Nonblocking and persistent calls
 *
 * Each collective and message has two more forms. twill_X_start() starts it, returning a request.
 * twill_X_init() prepares a persistent request (collectives: on all ranks, in the order of their
 * other calls), which twill_request_start() starts any number of times, on all ranks alike, without
 * allocation, lookup or registration. twill owns the buffers from start to completion; arrays of
 * counts and offsets may be freed after the call. All ranks start collectives in the same order.
 * Any number may be in progress, and be waited for in any order. They advance inside calls that
 * the thread makes on communicators of the context, or always with TWILL_PROGRESS=thread.
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT, or the failure of the call that the request is of.
 * @{ */
typedef void (*twill_idle_fn)(void *user); /**< \brief see twill_context_idle() */
/** \brief Set a function for other work of the program, or NULL. A waiting thread calls it after
 * some 20 us without progress and then about every 100 us. It must return soon and not call twill.
 * No thread may be in a call on the context meanwhile. \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT. */
TWILL_API twill_status twill_context_idle(twill_context *context, twill_idle_fn idle, void *user);
/** \brief Start a persistent request that is not in progress. */
TWILL_API twill_status twill_request_start(twill_request *request);
/** \brief Set *done to 1 if the request is complete, NULL or not started, else to 0. A completed
 * nonblocking request is freed and set to NULL; of a failed one the failure is returned. */
TWILL_API twill_status twill_test(twill_request **request, int *done);
/** \brief Wait until the request is complete, then act as twill_test(). */
TWILL_API twill_status twill_wait(twill_request **request);
/** \brief Wait until one of requests[0 .. count-1] is complete and store its index: -1 if all
 * are NULL or not started. Their communicators must belong to one context. */
TWILL_API twill_status twill_wait_any(size_t count, twill_request **requests, int *index);
/** \brief Wait until all are complete. \return the first failure, else ::TWILL_OK. */
TWILL_API twill_status twill_wait_all(size_t count, twill_request **requests);
/** \brief Free a persistent request that is not in progress, and set *request to NULL. */
TWILL_API twill_status twill_request_free(twill_request **request);
/** \brief Declare twill_X_start() and twill_X_init(): arguments of twill_X(), then the request. */
#define TWILL_FORMS(name, ...)                                                                     \
    TWILL_API twill_status twill_##name##_start(__VA_ARGS__, twill_request **request);             \
    TWILL_API twill_status twill_##name##_init(__VA_ARGS__, twill_request **request)

TWILL_FORMS(allreduce, twill_comm *comm, const void *src, void *dst, size_t count, twill_type type,
            twill_op op);
TWILL_FORMS(reduce, twill_comm *comm, const void *src, void *dst, size_t count, twill_type type,
            twill_op op, int root);
TWILL_FORMS(broadcast, twill_comm *comm, const void *src, void *dst, size_t count, twill_type type,
            int root);
TWILL_FORMS(barrier, twill_comm *comm);
TWILL_FORMS(allgather, twill_comm *comm, const void *src, void *dst, size_t count, twill_type type);
TWILL_FORMS(allgatherv, twill_comm *comm, const void *src, void *dst, const size_t *counts,
            const size_t *offsets, twill_type type);
TWILL_FORMS(reduce_scatter, twill_comm *comm, const void *src, void *dst, size_t count,
            twill_type type, twill_op op);
TWILL_FORMS(reduce_scatterv, twill_comm *comm, const void *src, void *dst, const size_t *counts,
            twill_type type, twill_op op);
TWILL_FORMS(gather, twill_comm *comm, const void *src, void *dst, size_t count, twill_type type,
            int root);
TWILL_FORMS(gatherv, twill_comm *comm, const void *src, size_t count, void *dst,
            const size_t *counts, const size_t *offsets, twill_type type, int root);
TWILL_FORMS(scatter, twill_comm *comm, const void *src, void *dst, size_t count, twill_type type,
            int root);
TWILL_FORMS(scatterv, twill_comm *comm, const void *src, const size_t *counts,
            const size_t *offsets, void *dst, size_t count, twill_type type, int root);
TWILL_FORMS(alltoall, twill_comm *comm, const void *src, void *dst, size_t count, twill_type type);
TWILL_FORMS(alltoallv, twill_comm *comm, const void *src, const size_t *src_counts,
            const size_t *src_offsets, void *dst, const size_t *dst_counts,
            const size_t *dst_offsets, twill_type type);
TWILL_FORMS(send, twill_comm *comm, const void *src, size_t count, twill_type type, int to);
TWILL_FORMS(recv, twill_comm *comm, void *dst, size_t count, twill_type type, int from);
TWILL_FORMS(sendrecv, twill_comm *comm, const void *src, size_t src_count, int to, void *dst,
            size_t dst_count, int from, twill_type type);
/** @} */

/** \defgroup twill_memory Memory
 * Local; any thread may call these functions.
 * @{ */
/** \brief Allocate memory placed by TWILL_MEMORY and shared with the ranks of the node, which
 * access large messages in it without a copy. Aligned to 64 bytes, or to 2 MiB if that large;
 * contents undefined. \p bytes may be 0 (a unique pointer).
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT, ::TWILL_ERR_MEMORY. */
TWILL_API twill_status twill_alloc(twill_context *context, void **memory, size_t bytes);
/** \brief Free memory of twill_alloc(). NULL is allowed.
 * \return ::TWILL_OK, or ::TWILL_ERR_ARGUMENT if it is not from this context. */
TWILL_API twill_status twill_free(twill_context *context, void *memory);
/** \brief Declare that \p bytes bytes stay mapped until twill_deregister(), so that networks which
 * need registered memory register it once, not per call. Memory of twill_alloc() needs no call. */
TWILL_API twill_status twill_register(twill_context *context, void *memory, size_t bytes);
/** \brief Undo twill_register(), before unmapping the memory, when no call uses it. */
TWILL_API twill_status twill_deregister(twill_context *context, void *memory);
/** @} */

/** \defgroup twill_info Messages, names and counters
 * Strings belong to the library; those of a context or communicator are valid until the next call
 * on it. A function with an index returns a line for each index 0, 1, ..., then NULL.
 * @{ */
TWILL_API const char *twill_strerror(twill_status status); /**< \brief Status in words; not NULL. */
/** \brief Return the last failure on the communicator as a sentence, "" if there was none. */
TWILL_API const char *twill_comm_message(const twill_comm *comm);
/** \brief Return the last failure on the context as a sentence, "" if there was none. */
TWILL_API const char *twill_context_message(const twill_context *context);
TWILL_API const char *twill_version(void);         /**< \brief Version, such as "0.1.0". */
TWILL_API size_t twill_type_size(twill_type type); /**< \brief Bytes of an element; 0: unknown. */
TWILL_API const char *twill_type_name(twill_type type); /**< \brief Name, "f32"; NULL: unknown. */
TWILL_API const char *twill_op_name(twill_op op);       /**< \brief Name, "sum"; NULL: unknown. */
/** \brief Counters of a communicator since its creation. */
typedef struct twill_counters {
    uint64_t calls;            /**< completed collectives */
    uint64_t bytes_sent;       /**< payload passed to transports */
    uint64_t bytes_wire;       /**< payload and headers sent to other nodes */
    uint64_t bytes_copied;     /**< payload copied through bounce buffers or read from peers */
    uint64_t memory_fallbacks; /**< allocations, of the context, not placed as requested */
    double seconds; /**< in collectives and groups, waits included; not starts below 4 KiB */
    uint64_t registrations;     /**< memory registrations with the network */
    uint64_t deregistrations;   /**< registrations released */
    uint64_t registration_hits; /**< uses of memory that was registered already */
    double seconds_waiting;     /**< of seconds: until the last rank entered the call */
    double seconds_blocked; /**< of seconds: all had entered, but their data was not there yet */
} twill_counters;
/** \brief Read the counters. Any thread may call it. \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT. */
TWILL_API twill_status twill_comm_counters(const twill_comm *comm, twill_counters *counters);
/** \brief Return a line of what twill-info prints: machine, nodes, provider and interface with the
 * reason of their choice, memory kinds, kernels. */
TWILL_API const char *twill_context_describe(twill_context *context, size_t index);
/** \brief Return a line of where the time of calls went since twill_comm_times_reset(): the shares,
 * then each rank that came last, what it cost here. Of calls below some 6 us one in 64 is split. */
TWILL_API const char *twill_comm_times(twill_comm *comm, size_t index);
/** \brief Begin a period of twill_comm_times(), such as an epoch. Counters go on. */
TWILL_API twill_status twill_comm_times_reset(twill_comm *comm);
/** \brief Return a line for a NIC used between nodes (TWILL_RAILS): its messages and bytes sent. */
TWILL_API const char *twill_comm_rail(twill_comm *comm, size_t index);
/** \brief Return a line for an environment variable: name, value, default, source and help,
 *  separated by tabs. */
TWILL_API const char *twill_context_variable(twill_context *context, size_t index);
/** \brief Return a line of the reasons for the algorithm chosen for a call.
 *
 * \p question has words: a collective and a size (64K), or "factors" and a dense layer's rows x
 * columns x samples (9x9x4); then in any order a type (f32), world=24x2x8 (default: the context's),
 * groups=2x12, units=l3=4 (as TWILL_LAYOUT), topology=knl.xml or topology="pack:2 core:8",
 * machine=theta (default: TWILL_TUNE), mapped (by twill_alloc()), fetched (peers' memory), narrow
 * (twill_op_create_narrow()), vector (shards differ), ordered (op does not commute), left
 * (TWILL_REPRODUCIBLE). \return fields separated by tabs, times in picoseconds: call, collective,
 * bytes, type, nodes x ranks of the fullest, ranks, machine; hierarchy, levels; candidate, name,
 * price, cost, entries measured; instead, name, price; small, name, sizes; other, name, why not;
 * chosen, name, price, basis; decided, origin of the times; moves, class, bytes; narrow, f16, its
 * price, converting, f32, if it pays; used, how; factors, gradient or update, gathered, reduced. */
TWILL_API const char *twill_context_why(twill_context *context, const char *question, size_t index);
/** @} */

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/** \file twill.h
 * \brief twill: topology-aware collectives for training codes on CPUs.
 *
 * Conventions:
 * - A function that can fail returns a ::twill_status, which is ::TWILL_OK (0) or a negative code.
 *   twill_strerror() describes the code. twill_comm_message() and twill_context_message() return a
 *   sentence that names the rank, the call and the cause.
 * - Counts are numbers of elements (`size_t`), sizes are bytes, and times are seconds (`double`).
 * - There is no global state. Every object belongs to a context, and a process may have several
 *   contexts.
 * - Threads: one thread at a time creates and destroys contexts and communicators. Different
 *   communicators, also of one context, may be used by different threads at the same time. A
 *   communicator and its requests may be used by one thread at a time, except in team calls. A call
 *   that breaks this rule, or uses an object after its end, returns ::TWILL_ERR_ARGUMENT. (An ended
 *   request is recognised until 2048 more have ended in its context.)
 * - twill starts threads only if asked to, by TWILL_PROGRESS, TWILL_THREADS, options.threads or a
 *   launcher that gives the rank several cores. A rank that may run anywhere has none unless a
 *   variable asks. twill installs no signal handler and never calls exit() or abort(). It prints
 *   only warnings, and with TWILL_LOG=none nothing at all.
 * - All ranks of a communicator make the same collective calls in the same order, with the same
 *   count, type, operation and root. If they differ, the call fails on all ranks with
 *   ::TWILL_ERR_MISMATCH, and no rank hangs. A rank that only contributes data may return before
 *   the mismatch is detected, and then one of its later calls reports it.
 * - When a collective fails, its communicator is broken. The contents of the destination are then
 *   undefined, and every later call on the communicator returns ::TWILL_ERR_BROKEN with the first
 *   message.
 * - Every wait ends, after TWILL_TIMEOUT seconds without progress at the latest, and within seconds
 *   if a peer dies.
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

/** \brief Version of this header. twill_version() returns the version of the library. */
#define TWILL_VERSION_MAJOR 0
#define TWILL_VERSION_MINOR 1 /**< \brief second number of the version */
#define TWILL_VERSION_PATCH 0 /**< \brief third number of the version */

/** \brief Result of a call, which is 0 or a negative code. */
typedef enum twill_status {
    TWILL_OK = 0,                /**< success */
    TWILL_ERR_ARGUMENT = -1,     /**< an argument is outside its range, and the message names it */
    TWILL_ERR_CONFIG = -2,       /**< an environment variable or setting cannot be used */
    TWILL_ERR_MEMORY = -3,       /**< out of memory */
    TWILL_ERR_SYSTEM = -4,       /**< a system call failed */
    TWILL_ERR_BOOTSTRAP = -5,    /**< the ranks could not find each other */
    TWILL_ERR_FABRIC = -6,       /**< the network layer (libfabric) failed */
    TWILL_ERR_TIMEOUT = -7,      /**< TWILL_TIMEOUT expired; the message names the missing rank */
    TWILL_ERR_PEER = -8,         /**< a peer died, and the message names it */
    TWILL_ERR_MISMATCH = -9,     /**< ranks disagree on the call or its arguments */
    TWILL_ERR_BROKEN = -10,      /**< the communicator failed earlier */
    TWILL_ERR_FORKED = -11,      /**< used in a child process after fork() */
    TWILL_ERR_UNSUPPORTED = -12, /**< not built in, or not available on this machine */
    TWILL_ERR_INTERNAL = -13,    /**< a bug in twill: please report the message */
    TWILL_ERR_REVOKED = -14,     /**< twill_comm_revoke() has ended the communicator */
    TWILL_ERR_EXCLUDED = -15     /**< the other ranks continue without this one, which was silent */
} twill_status;

/** \brief Element types. Reductions of 8- and 16-bit floats accumulate in 32 bits on the whole path
 * and round once, to nearest even, at the end. twill_op_create_narrow() makes exceptions. */
typedef enum twill_type {
    TWILL_F32 = 0,   /**< IEEE 754 binary32 */
    TWILL_F64,       /**< IEEE 754 binary64 */
    TWILL_I32,       /**< signed 32-bit integer, which wraps around like all integers */
    TWILL_I64,       /**< signed 64-bit integer */
    TWILL_F16,       /**< IEEE 754 binary16 */
    TWILL_BF16,      /**< bfloat16 */
    TWILL_I8,        /**< signed 8-bit integer */
    TWILL_U8,        /**< unsigned 8-bit integer */
    TWILL_I16,       /**< signed 16-bit integer */
    TWILL_U16,       /**< unsigned 16-bit integer */
    TWILL_U32,       /**< unsigned 32-bit integer */
    TWILL_U64,       /**< unsigned 64-bit integer */
    TWILL_F8E4M3,    /**< OCP FP8 E4M3, without infinity: values above 448 become NaN */
    TWILL_F8E5M2,    /**< OCP FP8 E5M2, where values above 57344 become infinity */
    TWILL_TYPE_COUNT /**< number of types */
} twill_type;

/** \brief Reduction operations. sum, prod, min, max, avg, minloc and maxloc return the canonical
 * quiet NaN if an operand is NaN, so that results have the same bits on every machine. Bitwise and
 * logical operations take integers only. minloc and maxloc take f32, f64, i16, i32 and i64. Any
 * other type is refused with ::TWILL_ERR_ARGUMENT. twill_op_create() makes further operations. */
typedef enum twill_op {
    TWILL_SUM = 0, /**< sum */
    TWILL_PROD,    /**< product */
    TWILL_MIN,     /**< minimum, where -0 is less than +0 */
    TWILL_MAX,     /**< maximum, where +0 is greater than -0 */
    TWILL_AVG,     /**< sum divided by the number of ranks, rounded towards zero for integers */
    TWILL_BAND,    /**< bitwise and */
    TWILL_BOR,     /**< bitwise or */
    TWILL_BXOR,    /**< bitwise exclusive or */
    TWILL_LAND,    /**< logical and, which is 1 if all are non-zero, else 0 */
    TWILL_LOR,     /**< logical or, which is 1 if any is non-zero, else 0 */
    TWILL_LXOR,    /**< logical exclusive or, which is 1 if an odd number is non-zero, else 0 */
    TWILL_MINLOC,  /**< minimum and its index, the lowest index if several are equal (-0 equals +0).
                        Elements are pairs {value of the type, int32_t index}, laid out as a C
                        struct, like MPI_FLOAT_INT */
    TWILL_MAXLOC,  /**< maximum and its index, of elements as for ::TWILL_MINLOC */
    TWILL_OP_COUNT,          /**< number of built-in operations */
    TWILL_OP_CREATED = 0x100 /**< the first value that twill_op_create() gives */
} twill_op;

/** \brief One process's membership of a job, with its configuration, topology, memory and peers. */
typedef struct twill_context twill_context;
/** \brief A set of ranks that run collectives together. */
typedef struct twill_comm twill_comm;
/** \brief A nonblocking call in progress, or a persistent call. */
typedef struct twill_request twill_request;

/** \brief Gather \p bytes bytes from \p mine of every rank into \p all, in rank order. The caller
 * provides this function, and it is used to set up contexts and communicators. \p all has place for
 * \p bytes times the number of ranks. All ranks call it in the same order, only while the object is
 * created, and in the thread that creates it. \p user is the pointer that was given with the
 * function.
 * \return 0 on success. Any other value fails the creation with ::TWILL_ERR_BOOTSTRAP. */
typedef int (*twill_exchange_fn)(void *user, const void *mine, void *all, size_t bytes);

/** \brief How ranks find each other without the environment. Copied, to be used later as well. */
typedef struct twill_bootstrap {
    int rank;                   /**< this rank, 0 .. size-1 */
    int size;                   /**< number of ranks, at least 1 */
    twill_exchange_fn exchange; /**< all-gather among the ranks, or NULL if size is 1 */
    void *user;                 /**< passed to exchange */
} twill_bootstrap;

/** \defgroup twill_setup Initialisation
 * @{ */
/** \brief Create a context. All ranks of the job call it.
 *
 * \param[out] context  the new context, which twill_context_destroy() frees
 * \param bootstrap     how to find the other ranks, or NULL to find them from the environment, see
 *                      twill(7) (twillrun, or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or
 *                      another launcher, else this is the only rank)
 * \param settings      NULL, or a NULL-terminated list of "TWILL_NAME=value" strings, which
 *                      override the environment
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT, ::TWILL_ERR_CONFIG, ::TWILL_ERR_BOOTSTRAP,
 *         ::TWILL_ERR_MISMATCH, ::TWILL_ERR_MEMORY, ::TWILL_ERR_SYSTEM. After a failure *context is
 *         only good for twill_context_message() and twill_context_destroy(), or NULL. */
TWILL_API twill_status twill_context_create(twill_context **context,
                                            const twill_bootstrap *bootstrap,
                                            const char *const *settings);
/** \brief Free a context. Local. Destroy its communicators before: if one is left, the context is
 * kept and a warning is printed. \p context may be NULL. */
TWILL_API void twill_context_destroy(twill_context *context);
/** \brief Create the communicator of all ranks of the context. All of them call it. \return
 * ::TWILL_OK, or an error. Then *comm is NULL, and twill_context_message() has the reason. */
TWILL_API twill_status twill_comm_create(twill_comm **comm, twill_context *context);
/** \brief Free a communicator, or NULL. All its ranks call it, and wait for each other unless it is
 * broken. It is kept, with a warning, if another thread still uses it. */
TWILL_API void twill_comm_destroy(twill_comm *comm);
/** \brief Free a communicator, or NULL, without waiting for other ranks. Allowed if it is broken,
 * if its last call was a complete barrier, or as twill_comm_shrink() and twill_comm_grow() say. */
TWILL_API void twill_comm_leave(twill_comm *comm);

/** \brief Create a context from the environment, and the communicator of all its ranks. All of them
 * call it, and twill_finalize() frees both. \return ::TWILL_OK, or an error. Then *comm is NULL,
 * and the reason is printed unless TWILL_LOG=none. */
TWILL_API twill_status twill_init(twill_comm **comm);
/** \brief Do what twill_init() does, with the arguments of twill_context_create(). If \p message is
 * not NULL, it gets the reason of a failure, or "", in \p bytes bytes, and nothing is printed. */
TWILL_API twill_status twill_init_with(twill_comm **comm, const twill_bootstrap *bootstrap,
                                       const char *const *settings, char *message, size_t bytes);
/** \brief Destroy a communicator of twill_init() and its context. All its ranks call it, after they
 * have destroyed the other communicators of the context. \p comm may be NULL. */
TWILL_API void twill_finalize(twill_comm *comm);
/** @} */

/** \defgroup twill_ranks Ranks and nodes
 * Local, and any thread may call them. Those that return an int return -1 if \p comm is NULL or
 * destroyed. Nodes are numbered from 0.
 * @{ */
TWILL_API int twill_comm_rank(const twill_comm *comm);  /**< \brief Return this rank, from 0. */
TWILL_API int twill_comm_size(const twill_comm *comm);  /**< \brief Return the number of ranks. */
TWILL_API int twill_comm_node(const twill_comm *comm);  /**< \brief Return this rank's node. */
TWILL_API int twill_comm_nodes(const twill_comm *comm); /**< \brief Return the number of nodes. */
/** \brief Return the index of this rank among the ranks of its node, from 0. */
TWILL_API int twill_comm_local_rank(const twill_comm *comm);
/** \brief Return the number of ranks on this rank's node. */
TWILL_API int twill_comm_local_size(const twill_comm *comm);
/** \brief Return the context of a communicator, or NULL if \p comm is NULL or destroyed. */
TWILL_API twill_context *twill_comm_context(const twill_comm *comm);
/** @} */

/** \defgroup twill_split New communicators from existing ones
 *
 * All ranks of \p comm call these functions. Those that take a list of ranks are called by these
 * ranks only. The set-up uses the links of \p comm, on which no request may be in progress. The new
 * communicator is independent: ranks may order calls on the two differently, and either may be
 * destroyed first.
 * \return ::TWILL_OK or an error. After an error *made is NULL, and twill_comm_message(comm) has
 * the reason. If this fails on one rank alone, the first call of the others on *made fails, too.
 * @{ */
/** \brief Colour of a rank that joins none of the new communicators and gets NULL in *made. */
#define TWILL_COLOUR_NONE (-1)
/** \brief Create *made, a communicator of the same ranks in the same order, in the same context.
 * All ranks of \p comm call it. \return ::TWILL_OK, or an error, after which *made is NULL. */
TWILL_API twill_status twill_comm_dup(twill_comm **made, twill_comm *comm);
/** \brief Create a communicator for each \p colour.
 *
 * It has the ranks that passed this colour (0 or more), ordered by \p key and, where keys are
 * equal, by their rank in \p comm. A rank that passes ::TWILL_COLOUR_NONE joins none. For example,
 * to have one communicator for each row of a grid with \c columns columns:
 *
 *     twill_comm_split(&row, comm, rank / columns, rank % columns);
 */
TWILL_API twill_status twill_comm_split(twill_comm **made, twill_comm *comm, int colour, int key);
/** \brief Levels of the machine's hierarchy, from small to large. */
typedef enum twill_level {
    TWILL_LEVEL_TILE = 0, /**< cores that share an L2 cache */
    TWILL_LEVEL_L3,       /**< cores that share an L3 cache */
    TWILL_LEVEL_NUMA,     /**< a NUMA node */
    TWILL_LEVEL_PACKAGE,  /**< a package; those within one of several NUMA nodes count as one */
    TWILL_LEVEL_NODE,     /**< a node, whose ranks share memory */
    TWILL_LEVEL_GROUP,    /**< a group of nodes of the fabric (TWILL_LAYOUT=groups) */
    TWILL_LEVEL_COUNT     /**< number of levels */
} twill_level;
/** \brief Create a communicator for each unit of a level that has ranks. Ranks are ordered by \p
 * key and, where keys are equal, by their rank in \p comm. A rank that may run on several units of
 * a level below the node, or whose unit is not known, forms a communicator by itself. If no groups
 * of nodes are declared, all nodes are one group. */
TWILL_API twill_status twill_comm_split_level(twill_comm **made, twill_comm *comm,
                                              twill_level level, int key);
/** \brief Create a communicator of ranks[0 .. count-1] of \p comm, in this order. Only these ranks
 * call it, all with the same list, in which each rank occurs once. */
TWILL_API twill_status twill_comm_create_group(twill_comm **made, twill_comm *comm, int count,
                                               const int *ranks);
/** \brief Create a communicator as twill_comm_create_group() does, but set up by \p exchange.
 *
 * \p exchange gathers among the ranks of the list, and may be NULL for a list of one rank. \p comm
 * is not changed. It may be broken and have requests in progress, also in other threads. After a
 * failure twill_context_message() has the reason. A rank that fails stops calling \p exchange, so
 * the caller must make it return on the other ranks. */
TWILL_API twill_status twill_comm_create_over(twill_comm **made, twill_comm *comm, int count,
                                              const int *ranks, twill_exchange_fn exchange,
                                              void *user);
/** @} */

/** \defgroup twill_ops User-defined operations
 * Local, and any thread may call them. A context can have up to 256 operations at a time.
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT, or ::TWILL_ERR_MEMORY if there are 256 already.
 * @{ */
/** \brief Compute result[i] = left[i] op right[i] for \p count elements.
 *
 * \p result may be \p left or \p right. The operation must be associative and depend on nothing but
 * its arguments. The three pointers are aligned to the type, or for opaque elements to the largest
 * power of two, up to 16, that divides their size. Any thread that waits on a communicator of the
 * context may call the function, also several at once. */
typedef void (*twill_op_fn)(const void *left, const void *right, void *result, size_t count,
                            twill_type type, void *user);
/** \brief Create an operation from a function.
 *
 * All ranks must pass equivalent functions, and the same \p element_bytes and \p commutative.
 * \param context        the context whose communicators may use the operation
 * \param[out] op        the new operation, which twill_op_destroy() frees
 * \param function       combines elements
 * \param user           passed to \p function
 * \param element_bytes  0 if elements have the type of the call (narrow floats are not converted),
 *                       or the size of opaque elements, 1 .. 4096. Then count is a number of these,
 *                       and calls must pass the type ::TWILL_U8
 * \param commutative    0 if operands must be combined in rank order, else any other number */
TWILL_API twill_status twill_op_create(twill_context *context, twill_op *op, twill_op_fn function,
                                       void *user, size_t element_bytes, int commutative);
/** \brief Create a sum whose inputs are first multiplied by *factor. That is one element of \p
 * type, or for floats of 8 or 16 bits a float, and then only the final sum is rounded. Each rank
 * may have its own factor. Calls must use \p type. */
TWILL_API twill_status twill_op_create_scaled(twill_context *context, twill_op *op, twill_type type,
                                              const void *factor);
/** \brief Create a sum of 8- or 16-bit floats whose partial results are rounded to \p type. f16
 * then moves half of the bytes of f32. twill(7) has the size of the error. Inputs are multiplied by
 * *before, which may differ between ranks, and the sum by *after, which is the same on all. NULL
 * means 1, and \p before must be NULL on all ranks or on none. Either factor may be 1/ranks for an
 * average, and *before also avoids overflow. Calls must use \p type. */
TWILL_API twill_status twill_op_create_narrow(twill_context *context, twill_op *op, twill_type type,
                                              const float *before, const float *after);
/** \brief Destroy an operation that no call in progress uses. \return ::TWILL_OK, or
 * ::TWILL_ERR_ARGUMENT if \p op is none that was created in this context. */
TWILL_API twill_status twill_op_destroy(twill_context *context, twill_op op);
/** @} */

/** \defgroup twill_collectives Collectives
 *
 * All ranks of the communicator call them. When a call returns, its result is complete on this
 * rank. Reductions yield the same bits on all ranks. Only a barrier synchronises: any other call
 * may return on a rank that needs nothing from the others before these have entered it. Parameters
 * of all calls:
 * - src, dst: buffers of any alignment. They must not overlap except in place, as stated for each
 *   call. CUDA device memory is accepted if the library was built with TWILL_WITH_CUDA, see
 *   twill(7). Other builds cannot recognise it and crash.
 * - count: number of elements of this type, which may be 0. A shard is the part of a buffer that
 *   belongs to one rank.
 * - counts[r], offsets[r] (vector variants, "v"): length and start of the shard of rank r, in
 *   elements. If offsets is NULL, each shard follows the one before. Both arrays may be freed after
 *   the call.
 * - root: a rank, 0 .. size-1.
 *
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT or any other failure. A bad type, operation, count or
 * root, which all ranks pass alike, is refused, and the communicator stays usable. Any other bad
 * argument (an address, counts of a vector call), like any other failure, fails the call on all
 * ranks and breaks the communicator, unless it has one rank only.
 * @{ */
/** \brief Reduce src of all ranks with op to dst on every rank. In place if src == dst. */
TWILL_API twill_status twill_allreduce(twill_comm *comm, const void *src, void *dst, size_t count,
                                       twill_type type, twill_op op);
/** \brief Reduce src of all ranks with op to dst on the root. On other ranks dst is not touched and
 * may be NULL. In place if src == dst on the root. */
TWILL_API twill_status twill_reduce(twill_comm *comm, const void *src, void *dst, size_t count,
                                    twill_type type, twill_op op, int root);
/** \brief Copy src of the root to dst on every rank. On the root dst may be NULL or src, and on
 * other ranks src is not read and may be NULL. */
TWILL_API twill_status twill_broadcast(twill_comm *comm, const void *src, void *dst, size_t count,
                                       twill_type type, int root);
TWILL_API twill_status twill_barrier(twill_comm *comm); /**< \brief Wait until all ranks call it. */
/** \brief Copy src (count elements) of rank r to shard r of dst (size * count elements) on every
 * rank. In place if src is this rank's shard of dst. */
TWILL_API twill_status twill_allgather(twill_comm *comm, const void *src, void *dst, size_t count,
                                       twill_type type);
/** \brief Gather counts[r] elements from rank r to offsets[r] of dst on every rank. counts must be
 * the same on all ranks, offsets may differ. In place as twill_allgather(). */
TWILL_API twill_status twill_allgatherv(twill_comm *comm, const void *src, void *dst,
                                        const size_t *counts, const size_t *offsets,
                                        twill_type type);
/** \brief Reduce shard r of src (size * count elements) of all ranks to dst (count elements) on
 * rank r. In place if dst is this rank's shard of src. The other shards keep their contents. */
TWILL_API twill_status twill_reduce_scatter(twill_comm *comm, const void *src, void *dst,
                                            size_t count, twill_type type, twill_op op);
/** \brief Reduce like twill_reduce_scatter(), with shards of counts[r] elements, one after the
 * other in src. counts must be the same on all ranks. */
TWILL_API twill_status twill_reduce_scatterv(twill_comm *comm, const void *src, void *dst,
                                             const size_t *counts, twill_type type, twill_op op);
/** \brief Copy src of rank r to shard r of dst on the root. On other ranks dst may be NULL. In
 * place if src is the root's shard of dst. */
TWILL_API twill_status twill_gather(twill_comm *comm, const void *src, void *dst, size_t count,
                                    twill_type type, int root);
/** \brief Gather \p count elements from this rank, counts[r] from rank r, to offsets[r] of dst on
 * the root. counts and offsets are read on the root only. In place as twill_gather(). */
TWILL_API twill_status twill_gatherv(twill_comm *comm, const void *src, size_t count, void *dst,
                                     const size_t *counts, const size_t *offsets, twill_type type,
                                     int root);
/** \brief Copy shard r of src on the root to dst on rank r. On other ranks src may be NULL. In
 * place if dst is the root's shard of src. */
TWILL_API twill_status twill_scatter(twill_comm *comm, const void *src, void *dst, size_t count,
                                     twill_type type, int root);
/** \brief Copy counts[r] elements at offsets[r] of src on the root to dst on rank r, where \p count
 * is their number. counts and offsets are read on the root only. In place as twill_scatter(). */
TWILL_API twill_status twill_scatterv(twill_comm *comm, const void *src, const size_t *counts,
                                      const size_t *offsets, void *dst, size_t count,
                                      twill_type type, int root);
/** \brief Copy shard r of src on rank s to shard s of dst on rank r. In place if src == dst. */
TWILL_API twill_status twill_alltoall(twill_comm *comm, const void *src, void *dst, size_t count,
                                      twill_type type);
/** \brief Send src_counts[r] elements at src_offsets[r] of src to rank r, and receive dst_counts[r]
 * elements from it at dst_offsets[r] of dst. Both ranks' counts must agree. Not in place. */
TWILL_API twill_status twill_alltoallv(twill_comm *comm, const void *src, const size_t *src_counts,
                                       const size_t *src_offsets, void *dst,
                                       const size_t *dst_counts, const size_t *dst_offsets,
                                       twill_type type);
/** @} */

/** \defgroup twill_teams Team calls
 *
 * All threads of a rank make a team call together, inside a parallel region of the program. Thread
 * t moves and reduces stripe t of the message with thread t of the other ranks. Each call has the
 * meaning and arguments of the call without _team, and these two:
 * - thread: number of the calling thread, 0 .. threads-1, such as omp_get_thread_num().
 * - threads: number of threads of this rank, 1 .. 4096. It is the same in all team calls of a
 *   communicator. Ranks may differ.
 *
 * The call reads what any thread of the rank has written before it called. When it returns in one
 * thread, the whole result is complete for all threads of the rank. There are as many stripes as
 * the smallest number of threads of any rank, but at most 64, and fewer in short messages
 * (TWILL_TUNE=stripe). Further threads wait until the result is complete, and those that need not
 * wait may stay away, with a smaller \p threads. Results have the same bits as those of the call
 * without _team if TWILL_REPRODUCIBLE=1.
 *
 * All threads of a rank pass the same arguments. Otherwise the call fails on all ranks, and the
 * message names the argument and the threads. A failure in one thread breaks the communicator and
 * ends the call in all threads of all ranks. Threads that call after that get ::TWILL_ERR_BROKEN.
 *
 * The first team call of a communicator makes an internal communicator for each stripe, which takes
 * milliseconds. No request of the communicator may be in progress then. Other calls of the
 * communicator are made by one thread, while none is in a team call. Counters and times do not
 * include team calls.
 *
 *     #pragma omp parallel
 *     {
 *         int t = omp_get_thread_num(), threads = omp_get_num_threads();
 *         multiply(rows, x, t, threads);
 *         twill_allreduce_team(comm, x, x, n, TWILL_BF16, TWILL_SUM, t, threads);
 *     }
 *
 * \return as described in twill_collectives(3).
 * @{ */
/** \brief Reduce src of all ranks with op to dst on every rank, as twill_allreduce() does. */
TWILL_API twill_status twill_allreduce_team(twill_comm *comm, const void *src, void *dst,
                                            size_t count, twill_type type, twill_op op, int thread,
                                            int threads);
/** \brief Copy src of the root to dst on every rank, as twill_broadcast() does. */
TWILL_API twill_status twill_broadcast_team(twill_comm *comm, const void *src, void *dst,
                                            size_t count, twill_type type, int root, int thread,
                                            int threads);
/** \brief Copy src of rank r to shard r of dst on every rank, as twill_allgather() does. */
TWILL_API twill_status twill_allgather_team(twill_comm *comm, const void *src, void *dst,
                                            size_t count, twill_type type, int thread, int threads);
/** \brief Reduce shard r of src to dst on rank r, as twill_reduce_scatter() does. */
TWILL_API twill_status twill_reduce_scatter_team(twill_comm *comm, const void *src, void *dst,
                                                 size_t count, twill_type type, twill_op op,
                                                 int thread, int threads);
/** \brief Wait until all threads of all ranks call it. */
TWILL_API twill_status twill_barrier_team(twill_comm *comm, int thread, int threads);
/** @} */

/** \defgroup twill_point_to_point Point to point
 *
 * Messages from one rank to another arrive in the order they were sent. count and type must be the
 * same on both sides. A send may block until its receive is posted. A blocking message of a rank to
 * itself is refused with ::TWILL_ERR_ARGUMENT unless its counterpart is in progress or in the same
 * group. Messages and collectives do not wait for each other.
 * \return as described in twill_collectives(3). Any failure breaks the communicator, also that of
 * an argument, unless it has one rank only.
 * @{ */
/** \brief Send src to rank \p to, 0 .. size-1. */
TWILL_API twill_status twill_send(twill_comm *comm, const void *src, size_t count, twill_type type,
                                  int to);
/** \brief Receive dst from rank \p from, 0 .. size-1. */
TWILL_API twill_status twill_recv(twill_comm *comm, void *dst, size_t count, twill_type type,
                                  int from);
/** \brief Send and receive at once. \p to and \p from may differ. The buffers must not overlap. */
TWILL_API twill_status twill_sendrecv(twill_comm *comm, const void *src, size_t src_count, int to,
                                      void *dst, size_t dst_count, int from, twill_type type);
/** @} */

/** \defgroup twill_groups Groups
 *
 * Between start and end, calls on the communicator only check their arguments and return. All of
 * them are complete when twill_group_end() returns. Point-to-point calls of a group cannot block
 * each other, and consecutive small allreduces of one type and operation are fused into one. Groups
 * do not nest. Nonblocking and persistent calls in a group are refused. To shift data in a ring:
 *
 *     twill_group_start(comm);
 *     twill_send(comm, mine, n, TWILL_F32, (rank + 1) % size);
 *     twill_recv(comm, theirs, n, TWILL_F32, (rank + size - 1) % size);
 *     twill_status status = twill_group_end(comm);
 *
 * \return as described in twill_collectives(3). A call that fails in a group breaks the
 * communicator as it would outside.
 * @{ */
TWILL_API twill_status twill_group_start(twill_comm *comm); /**< \brief Begin a group. */
TWILL_API twill_status twill_group_end(twill_comm *comm);   /**< \brief Run its calls and wait. */
/** @} */

/** \defgroup twill_requests Nonblocking and persistent calls
 *
 * Each collective and each message has two more forms, with the same arguments and a request.
 * twill_X_start() starts the call and returns a request. twill_X_init() prepares a persistent
 * request, for collectives on all ranks in the order of their other calls. twill_request_start()
 * starts it any number of times, on all ranks alike, without allocation, lookup or registration.
 * The buffers belong to twill from start to completion. Arrays of counts and offsets may be freed
 * after the call. All ranks start collectives in the same order. Any number of requests may be in
 * progress, and they may be waited for in any order. They advance inside calls that the thread
 * makes on communicators of the context, or at any time with TWILL_PROGRESS=thread.
 *
 *     twill_request *request;
 *     twill_allreduce_start(comm, x, x, n, TWILL_F32, TWILL_SUM, &request);
 *     compute_something_else();
 *     twill_status status = twill_wait(&request);
 *
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT, or the failure of the call that the request is of.
 * @{ */
typedef void (*twill_idle_fn)(void *user); /**< \brief Do other work, see twill_context_idle(). */
/** \brief Set a function for other work of the program, or NULL for none. A waiting thread calls \p
 * idle with \p user after some 20 us without progress, and then about every 100 us. The function
 * must return soon and not call twill. No thread may be in a call on the context while it is set.
 * \return ::TWILL_OK, or ::TWILL_ERR_ARGUMENT if the context has ended. */
TWILL_API twill_status twill_context_idle(twill_context *context, twill_idle_fn idle, void *user);
/** \brief Start a persistent request. \return ::TWILL_OK, a failure, or ::TWILL_ERR_ARGUMENT if it
 * is in progress or not persistent. The wait returns a later failure. */
TWILL_API twill_status twill_request_start(twill_request *request);
/** \brief Set *done to 1 if the request is complete, NULL, ended or not started, else to 0. A
 * complete nonblocking request is freed and set to NULL. Returns the status of a complete request,
 * and ::TWILL_OK with a *done of 0. A failure while testing completes the request with that status.
 * *done is 1 also if the call is refused, because another thread is in one, so that loops end. */
TWILL_API twill_status twill_test(twill_request **request, int *done);
/** \brief Wait until the request is complete and return its status. A nonblocking request is freed
 * and set to NULL. Returns ::TWILL_OK at once if the request is NULL or not started. */
TWILL_API twill_status twill_wait(twill_request **request);
/** \brief Wait until one of requests[0 .. count-1] is complete, and store its index in *index. The
 * index is -1 if all are NULL or not started. The request is freed as by twill_test(), and its
 * status is returned. The communicators of the requests must belong to one context. */
TWILL_API twill_status twill_wait_any(size_t count, twill_request **requests, int *index);
/** \brief Wait for each of requests[0 .. count-1] as twill_wait() does, also after one has failed.
 * \return ::TWILL_OK, or the first failure. */
TWILL_API twill_status twill_wait_all(size_t count, twill_request **requests);
/** \brief Free a persistent request, and set *request to NULL. \return ::TWILL_OK, also for NULL,
 * or ::TWILL_ERR_ARGUMENT if it is in progress or not persistent. */
TWILL_API twill_status twill_request_free(twill_request **request);
/** \brief Declare twill_X_start() and twill_X_init(), with twill_X()'s arguments and a request. */
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
/** \brief Allocate memory that is placed by TWILL_MEMORY and shared with the ranks of the node,
 * which access large messages in it without a copy. The memory is aligned to 64 bytes, or to 2 MiB
 * if it is that large, and its contents are undefined. \p bytes may be 0. \return ::TWILL_OK,
 * ::TWILL_ERR_ARGUMENT, ::TWILL_ERR_MEMORY, ::TWILL_ERR_FORKED. An error allocates nothing. */
TWILL_API twill_status twill_alloc(twill_context *context, void **memory, size_t bytes);
/** \brief Free memory of twill_alloc(). \p memory may be NULL.
 * \return ::TWILL_OK, ::TWILL_ERR_FORKED, or ::TWILL_ERR_ARGUMENT if it is not from this context or
 * from one that this context continues (twill_comm_grow()). */
TWILL_API twill_status twill_free(twill_context *context, void *memory);
/** \brief Declare that \p bytes bytes at \p memory stay mapped until twill_deregister(). Networks
 * that need registered memory then register it once and not in each call. Memory of twill_alloc()
 * needs no such declaration.
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT if the process cannot read the memory or \p bytes is 0,
 * ::TWILL_ERR_MEMORY, ::TWILL_ERR_FORKED. */
TWILL_API twill_status twill_register(twill_context *context, void *memory, size_t bytes);
/** \brief Undo twill_register() before the memory is unmapped, when no call uses it. \return
 * ::TWILL_OK, ::TWILL_ERR_FORKED, or ::TWILL_ERR_ARGUMENT if nothing was registered there. */
TWILL_API twill_status twill_deregister(twill_context *context, void *memory);
/** \brief Let the other ranks of the node access \p bytes bytes of malloc() or mmap() without a
 * copy, as they access memory of twill_alloc(). The whole pages inside move into memory that these
 * ranks map. Addresses and contents stay. No thread may write to the memory during the call, and no
 * other call may use it. Calls of 64 KiB or more, or of 32 KiB for each rank where ranks share
 * cores, then run without a copy if the buffers of all ranks allow it. Undo it with twill_demote()
 * before the memory is freed, unmapped or resized.
 *
 * A child of fork() has a private copy of the moved pages as of the fork, which takes time and
 * memory. The pages lose mlock(), madvise() and mbind(), and registrations by other libraries. They
 * are 4 KiB pages unless the system has huge pages for shared memory. After twill_comm_grow() or
 * twill_comm_reconfigure(), demote it and promote it again. A part of a promoted buffer may be
 * promoted as well, and a buffer that is promoted n times is demoted n times. One rank on a node,
 * or memory of twill_alloc(), gets ::TWILL_OK and stays as it is.
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT if the process cannot read the memory or \p bytes is 0,
 * ::TWILL_ERR_UNSUPPORTED for a stack, a file, memory that is shared or read-only, or less than 64
 * KiB, ::TWILL_ERR_MEMORY, ::TWILL_ERR_FORKED. After an error the memory is as before. */
TWILL_API twill_status twill_promote(twill_context *context, void *memory, size_t bytes);
/** \brief Undo the last twill_promote() of a buffer at \p memory. Pages that are in no other
 * promoted buffer become private again and keep their contents. No thread may write to it during
 * the call. Free persistent requests that use it first. The end of the context does the same with
 * all its promoted memory.
 * \return ::TWILL_OK, ::TWILL_ERR_FORKED, ::TWILL_ERR_MEMORY (it stays promoted), or
 * ::TWILL_ERR_ARGUMENT if nothing was promoted there, or if it was freed while it was promoted. */
TWILL_API twill_status twill_demote(twill_context *context, void *memory);
/** @} */

/** \defgroup twill_info Messages, names and counters
 * Strings belong to the library. Those of a context or communicator are valid until the next call
 * on it. A function with an index returns one line for each index 0, 1, ..., then NULL.
 * @{ */
/** \brief Return a status in words, never NULL. Any thread may call it. */
TWILL_API const char *twill_strerror(twill_status status);
/** \brief Return the last failure on a communicator as a sentence, or "" if there was none. There
 * is also a sentence for NULL and for a destroyed communicator. */
TWILL_API const char *twill_comm_message(const twill_comm *comm);
/** \brief Return the last failure on the context as a sentence, or "" if there was none. There is
 * also a sentence for NULL and for a destroyed context. */
TWILL_API const char *twill_context_message(const twill_context *context);
/** \brief Return the version, such as "0.1.0". Any thread may call it. */
TWILL_API const char *twill_version(void);
/** \brief Return the bytes of an element, or 0 for an unknown type. Any thread may call it. */
TWILL_API size_t twill_type_size(twill_type type);
/** \brief Return the name, such as "f32", or NULL for an unknown type. Any thread may call it. */
TWILL_API const char *twill_type_name(twill_type type);
/** \brief Return the name of an operation, such as "sum", or NULL if it is unknown. All operations
 * of twill_op_create() have the name "created". Any thread may call it. */
TWILL_API const char *twill_op_name(twill_op op);
/** \brief Counters of a communicator since its creation, as twill_comm_counters() stores them. */
typedef struct twill_counters {
    uint64_t calls;            /**< completed collectives */
    uint64_t bytes_sent;       /**< payload passed to transports */
    uint64_t bytes_wire;       /**< payload and headers sent to other nodes */
    uint64_t bytes_copied;     /**< payload copied through bounce buffers or read from peers */
    uint64_t memory_fallbacks; /**< allocations, of the whole context, not placed as requested */
    double seconds; /**< time in blocking calls, groups and waits. The start of a nonblocking call
                         counts if its buffers have 4 KiB or more */
    uint64_t registrations;     /**< memory registrations with the network */
    uint64_t deregistrations;   /**< registrations released */
    uint64_t registration_hits; /**< uses of memory that was registered already */
    double seconds_waiting;     /**< part of seconds until the last rank entered the call */
    double seconds_blocked;     /**< part of seconds after that, in which data was not there yet */
    uint64_t forks; /**< times that threads of the rank shared work, of the whole context */
} twill_counters;
/** \brief Read the counters. Any thread may call it. \return ::TWILL_OK, or ::TWILL_ERR_ARGUMENT if
 * \p comm has ended or a pointer is NULL. */
TWILL_API twill_status twill_comm_counters(const twill_comm *comm, twill_counters *counters);
/** \brief Return line \p index of what twill-info prints: machine, nodes, provider and interface
 * with the reason of their choice, memory kinds, kernels. NULL past the end. */
TWILL_API const char *twill_context_describe(twill_context *context, size_t index);
/** \brief Return line \p index of where the time of calls went since twill_comm_times_reset(), or
 * NULL past the end. Line 0 has the shares. Each further line has a rank that came last and what
 * that cost here. Only one in 64 calls that are shorter than some 6 us is split. */
TWILL_API const char *twill_comm_times(twill_comm *comm, size_t index);
/** \brief Begin a period of twill_comm_times(), such as an epoch. Counters are not reset. \return
 * ::TWILL_OK, or ::TWILL_ERR_ARGUMENT if \p comm has ended or is in another call. */
TWILL_API twill_status twill_comm_times_reset(twill_comm *comm);
/** \brief Return a line on NIC \p index between nodes (TWILL_RAILS), valid until the next call. It
 * has the name, and the messages, bytes of data and bytes of headers sent. \return NULL past the
 * last one. */
TWILL_API const char *twill_comm_rail(twill_comm *comm, size_t index);
/** \brief Return variable \p index, or NULL: name, value, default, source and help, with tabs. */
TWILL_API const char *twill_context_variable(twill_context *context, size_t index);
/** \brief Return line \p index of the reasons for the algorithm chosen for a call.
 *
 * Index 0 asks the question, and further indices return the other lines of its answer. If the
 * question cannot be answered, index 0 returns NULL, and twill_context_message() says why.
 *
 * \p question consists of words. The first two are a collective and a size (allreduce 64K), or
 * factors and a dense layer's rows x columns x samples (factors 9x9x4). Any of these may follow: a
 * type (f32 by default), world=24x2x8 (the context's by default), groups=2x12, units=l3=4 (as in
 * TWILL_LAYOUT), topology=knl.xml or topology="pack:2 core:8", machine=theta (TWILL_TUNE by
 * default), mapped (buffers of twill_alloc()), fetched (peers' memory is read), narrow
 * (twill_op_create_narrow()), vector (shards differ), ordered (the operation does not commute),
 * left (TWILL_REPRODUCIBLE).
 *
 * The fields of a line are separated by tabs, and times are in picoseconds. The first field is one
 * of these words, and the others are:
 * - call: collective, bytes, type, nodes x ranks of the fullest node, ranks, machine
 * - hierarchy: levels
 * - candidate: name, price, cost, number of measured entries behind the cost
 * - instead: name and price of the variant of a node whose buffers are mapped
 * - small: name, and which sizes and buffers it needs
 * - other: name, and why it is no candidate
 * - chosen: name, price, what chose it
 * - decided: where the times come from
 * - moves: class of link, bytes
 * - narrow: f16, its price, price of converting, f32, whether f16 pays
 * - used: how long messages between nodes are
 * - factors: gradient or update, price of gathering, price of reducing, gathered or reduced */
TWILL_API const char *twill_context_why(twill_context *context, const char *question, size_t index);
/** @} */

#ifdef __cplusplus
}
#endif
#endif

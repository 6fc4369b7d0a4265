/* SPDX-License-Identifier: Apache-2.0 */
/** \file twill.h
 * \brief twill: topology-aware collectives for training codes on CPUs.
 *
 * This header is the whole interface and its manual.
 *
 * Conventions, stated once:
 * - Functions that can fail return a ::twill_status: ::TWILL_OK (0) or a negative code.
 *   twill_strerror() turns a code into words; twill_context_message() and
 *   twill_comm_message() give the sentence that names rank, call and cause.
 * - Counts are elements (`size_t`), sizes are bytes, times are seconds as `double`.
 * - Nothing is global: every object hangs from a context, and a process may hold several.
 * - Thread rule: one context and everything made from it belong to one thread at a time.
 *   Different contexts may be used by different threads concurrently.
 * - twill starts no thread, installs no signal handler, never calls exit() or abort(), and
 *   prints nothing but warnings (TWILL_LOG=none silences those too). Debian's libfabric brings a
 *   library (PSM) that does install handlers when it is loaded: see CAVEATS in twill(7).
 * - A collective must be called by every rank of the communicator, in the same order and with
 *   the same count, type, operation and root. A rank that differs is an error on all ranks, not
 *   a hang: see ::TWILL_ERR_MISMATCH.
 * - After a collective failed, its communicator is broken: the contents of the destination
 *   are undefined, and every later call on it returns ::TWILL_ERR_BROKEN with the first message.
 * - Every wait ends: at the latest after TWILL_TIMEOUT seconds, within seconds when a peer died.
 */
#ifndef TWILL_H
#define TWILL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TWILL_API __attribute__((visibility("default")))
#else
#define TWILL_API
#endif

/** \brief Version of this header; twill_version() gives that of the library. */
#define TWILL_VERSION_MAJOR 0
#define TWILL_VERSION_MINOR 1
#define TWILL_VERSION_PATCH 0

/** \brief Outcome of a call: 0, or a negative code. */
typedef enum twill_status {
    TWILL_OK = 0,                /**< done */
    TWILL_ERR_ARGUMENT = -1,     /**< an argument is outside its range; the message names it */
    TWILL_ERR_CONFIG = -2,       /**< an environment variable or setting cannot be used */
    TWILL_ERR_MEMORY = -3,       /**< memory could not be had */
    TWILL_ERR_SYSTEM = -4,       /**< the operating system refused something */
    TWILL_ERR_BOOTSTRAP = -5,    /**< ranks could not find each other */
    TWILL_ERR_FABRIC = -6,       /**< the network layer (libfabric) failed */
    TWILL_ERR_TIMEOUT = -7,      /**< TWILL_TIMEOUT passed; the message names the missing rank */
    TWILL_ERR_PEER = -8,         /**< a peer died; the message names it */
    TWILL_ERR_MISMATCH = -9,     /**< ranks disagree on the call or its arguments */
    TWILL_ERR_BROKEN = -10,      /**< the communicator failed earlier */
    TWILL_ERR_FORKED = -11,      /**< used in a child after fork() */
    TWILL_ERR_UNSUPPORTED = -12, /**< not built in, or not available on this machine */
    TWILL_ERR_INTERNAL = -13     /**< a bug in twill; please report the message */
} twill_status;

/** \brief Element types. 16-bit floats are accumulated in 32 bits and rounded to nearest even. */
typedef enum twill_type {
    TWILL_F32 = 0, /**< IEEE 754 binary32 */
    TWILL_F64,     /**< IEEE 754 binary64 */
    TWILL_I32,     /**< signed 32-bit integer, wraps around */
    TWILL_I64,     /**< signed 64-bit integer, wraps around */
    TWILL_F16,     /**< IEEE 754 binary16 */
    TWILL_BF16,    /**< bfloat16 */
    TWILL_TYPE_COUNT
} twill_type;

/** \brief Reduction operations. NaN wins in every one of them, also in min and max, and comes
 *  out as the canonical quiet NaN, so that results have the same bits on every machine. */
typedef enum twill_op {
    TWILL_SUM = 0, /**< sum */
    TWILL_PROD,    /**< product */
    TWILL_MIN,     /**< minimum; -0 is less than +0 */
    TWILL_MAX,     /**< maximum; +0 is greater than -0 */
    TWILL_AVG,     /**< sum divided by the number of ranks; integers truncate towards zero */
    TWILL_OP_COUNT
} twill_op;

/** \brief What a process knows before it can talk: its configuration, topology and peers. */
typedef struct twill_context twill_context;
/** \brief A set of ranks that run collectives together. */
typedef struct twill_comm twill_comm;

/** \brief All-gather that a caller lends to twill for set-up.
 *
 * Must gather \p bytes from every rank, in rank order, into \p all (size * bytes). Called by all
 * ranks in the same order, only inside context and communicator creation.
 * \return 0 for success; anything else fails the creation with ::TWILL_ERR_BOOTSTRAP.
 */
typedef int (*twill_exchange_fn)(void *user, const void *mine, void *all, size_t bytes);

/** \brief How ranks find each other when it is not by the environment. */
typedef struct twill_bootstrap {
    int rank;                   /**< 0 .. size-1 */
    int size;                   /**< number of ranks, at least 1 */
    twill_exchange_fn exchange; /**< may be NULL when size is 1 */
    void *user;                 /**< handed to exchange */
} twill_bootstrap;

/** \name Start and end
 * @{ */

/** \brief Create a context.
 *
 * \param[out] context  the new context
 * \param bootstrap     NULL: find the other ranks by the environment, see twill(7)
 *                      (twillrun, or RANK WORLD_SIZE MASTER_ADDR MASTER_PORT, else one rank)
 * \param settings      NULL, or a NULL-terminated list of "TWILL_NAME=value" that goes before
 *                      the environment
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT, ::TWILL_ERR_CONFIG, ::TWILL_ERR_BOOTSTRAP,
 *         ::TWILL_ERR_MEMORY, ::TWILL_ERR_SYSTEM. On failure *context is still set (unless
 *         memory was out) so that twill_context_message() can say why; it can only be destroyed.
 * \note Collective over all ranks of the job.
 */
TWILL_API twill_status twill_context_create(twill_context **context,
                                            const twill_bootstrap *bootstrap,
                                            const char *const *settings);

/** \brief Free a context. All its communicators must be gone. NULL is allowed. */
TWILL_API void twill_context_destroy(twill_context *context);

/** \brief Create the communicator of all ranks of the context. Collective.
 * \return ::TWILL_OK or any code; on failure *comm is NULL and twill_context_message() says why.
 */
TWILL_API twill_status twill_comm_create(twill_comm **comm, twill_context *context);

/** \brief Free a communicator; collective, except after a failure. NULL is allowed. */
TWILL_API void twill_comm_destroy(twill_comm *comm);

/** \brief Context and communicator of all ranks in one call, from the environment.
 *
 * On failure *comm is NULL and the reason is printed to standard error unless TWILL_LOG=none.
 */
TWILL_API twill_status twill_init(twill_comm **comm);

/** \brief Undo twill_init(): destroys the communicator and its context. NULL is allowed. */
TWILL_API void twill_finalize(twill_comm *comm);
/** @} */

/** \name Who and where
 * Each returns -1 for a NULL communicator.
 * @{ */
TWILL_API int twill_comm_rank(const twill_comm *comm);       /**< \brief 0 .. size-1 */
TWILL_API int twill_comm_size(const twill_comm *comm);       /**< \brief number of ranks */
TWILL_API int twill_comm_node(const twill_comm *comm);       /**< \brief node of this rank */
TWILL_API int twill_comm_nodes(const twill_comm *comm);      /**< \brief number of nodes */
TWILL_API int twill_comm_local_rank(const twill_comm *comm); /**< \brief rank within the node */
TWILL_API int twill_comm_local_size(const twill_comm *comm); /**< \brief ranks on this node */
/** \brief The context a communicator was made from; NULL for NULL. */
TWILL_API twill_context *twill_comm_context(const twill_comm *comm);
/** @} */

/** \name Collectives
 *
 * Blocking: the result is complete on this rank when the call returns. Results are bit-identical
 * on all ranks. \p src may equal \p dst (in place) but must not overlap it otherwise.
 * A count of 0 is allowed and synchronises. Buffers must be aligned to the element.
 * Memory of CUDA devices is accepted by a library built with TWILL_WITH_CUDA, see twill(7); any
 * other cannot tell it from host memory, and crashes.
 * @{ */

/** \brief dst = op over all ranks of src, on every rank.
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT, or any code of a failure. A bad argument fails the call
 * on all ranks and breaks the communicator, like every failure; only a communicator of one rank
 * survives. Algorithms: direct on a node; ring (Patarasuk and Yuan 2009) and recursive doubling
 * (Thakur, Rabenseifner and Gropp 2005) between nodes; composed by levels.
 */
TWILL_API twill_status twill_allreduce(twill_comm *comm, const void *src, void *dst, size_t count,
                                       twill_type type, twill_op op);

/** \brief dst on every rank = src of \p root (0 .. size-1). Other ranks' src is not read and may
 *  be NULL; root's dst may be NULL or equal to src. */
TWILL_API twill_status twill_broadcast(twill_comm *comm, const void *src, void *dst, size_t count,
                                       twill_type type, int root);

/** \brief Returns when every rank has called it. */
TWILL_API twill_status twill_barrier(twill_comm *comm);
/** @} */

/** \name Memory
 * @{ */

/** \brief Allocate placed memory (TWILL_MEMORY), shared with the ranks of the node.
 *
 * Collectives on such memory copy nothing on a node. Aligned to 64 bytes, to 2 MiB from 2 MiB up;
 * contents undefined. Not collective. \p bytes may be 0 (a unique pointer).
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT, ::TWILL_ERR_MEMORY.
 */
TWILL_API twill_status twill_alloc(twill_context *context, void **memory, size_t bytes);

/** \brief Give back what twill_alloc() gave. NULL is allowed.
 * \return ::TWILL_OK, or ::TWILL_ERR_ARGUMENT if it did not come from this context. */
TWILL_API twill_status twill_free(twill_context *context, void *memory);
/** @} */

/** \name Words and numbers
 * @{ */

/** \brief Name of a status, never NULL: "success", "timed out", ... */
TWILL_API const char *twill_strerror(twill_status status);
/** \brief The last failure on this communicator in one sentence ("" if none): rank, call, cause. */
TWILL_API const char *twill_comm_message(const twill_comm *comm);
/** \brief The last failure of this context, likewise. */
TWILL_API const char *twill_context_message(const twill_context *context);
/** \brief "0.1.0" */
TWILL_API const char *twill_version(void);
/** \brief Bytes of one element, 0 for an unknown type. */
TWILL_API size_t twill_type_size(twill_type type);
/** \brief Name of a type ("f32", ...), NULL for an unknown one. */
TWILL_API const char *twill_type_name(twill_type type);
/** \brief Name of an operation ("sum", ...), NULL for an unknown one. */
TWILL_API const char *twill_op_name(twill_op op);

/** \brief What a context or communicator has done so far. Monotonic. */
typedef struct twill_counters {
    uint64_t calls;            /**< collectives completed */
    uint64_t bytes_sent;       /**< payload handed to transports */
    uint64_t bytes_wire;       /**< payload and headers that left the node */
    uint64_t bytes_copied;     /**< payload staged through intermediate buffers */
    uint64_t memory_fallbacks; /**< allocations that did not get the memory asked for */
    double seconds;            /**< spent inside collectives, waits included */
} twill_counters;

/** \brief Read the counters. \return ::TWILL_OK or ::TWILL_ERR_ARGUMENT. */
TWILL_API twill_status twill_comm_counters(const twill_comm *comm, twill_counters *counters);

/** \brief One line of description: call with index 0, 1, ... until it returns NULL.
 *
 * What twill-info prints: machine, nodes, provider and interface with the reason they were chosen,
 * memory kinds, kernels, variables. Valid until the next call on this context. */
TWILL_API const char *twill_context_describe(twill_context *context, size_t index);
/** \brief Likewise for the table of environment variables: name, value, default, source, help,
 *  separated by tabs. */
TWILL_API const char *twill_context_variable(twill_context *context, size_t index);
/** @} */

#ifdef __cplusplus
}
#endif
#endif

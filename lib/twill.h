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
 * - Thread rule: a context is created and destroyed, and communicators are made and destroyed, by
 *   one thread at a time. Different communicators, also of one context, may be used by different
 *   threads at the same time; one communicator with its requests belongs to one thread at a time.
 *   Different contexts have nothing in common. What has ended, or is used by two threads at once:
 *   ::TWILL_ERR_ARGUMENT; a request's end is known until 2048 others have ended in the context.
 * - twill starts no thread (but for TWILL_PROGRESS=thread), installs no signal handler, never
 *   calls exit() or abort(), and prints only warnings (TWILL_LOG=none: not those either).
 * - A collective must be called by every rank of the communicator, in the same order and with
 *   the same count, type, operation and root. A rank that differs is an error on all ranks, not
 *   a hang: see ::TWILL_ERR_MISMATCH. Who needs nothing of others in a call (a rank that only
 *   gives) may get it in one of its next calls only.
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

#if defined(TWILL_API)
/* somebody else's */
#elif defined(__GNUC__)
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

/** \brief Element types. 8- and 16-bit floats are accumulated in 32 bits along the whole path and
 *  rounded to nearest even once, at the end. */
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
    TWILL_F8E4M3,  /**< OCP FP8 E4M3: no infinity, 448 is the largest; what is larger becomes NaN */
    TWILL_F8E5M2,  /**< OCP FP8 E5M2: what is larger than 57344 becomes infinity */
    TWILL_TYPE_COUNT
} twill_type;

/** \brief Reduction operations.
 *
 * NaN wins in sum, prod, min, max, avg, minloc and maxloc, and comes out as the canonical quiet
 * NaN, so that results have the same bits on every machine. Bitwise and logical operations take
 * integers only; minloc and maxloc take f32 f64 i16 i32 i64. What an operation does not take is
 * ::TWILL_ERR_ARGUMENT and named. More operations: twill_op_create(), twill_op_create_scaled(). */
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
    TWILL_MINLOC,  /**< minimum and where: elements are pairs {value of the type; int32_t index}
                        laid out as a C struct (8 bytes, 16 for 8-byte values; as MPI_FLOAT_INT
                        and its kin). Equal values: the lower index wins */
    TWILL_MAXLOC,  /**< maximum and where, likewise */
    TWILL_OP_COUNT,
    TWILL_OP_CREATED = 0x100 /**< from here on: made by twill_op_create() */
} twill_op;

/** \brief What a process knows before it can talk: its configuration, topology and peers. */
typedef struct twill_context twill_context;
/** \brief A set of ranks that run collectives together. */
typedef struct twill_comm twill_comm;
/** \brief A call under way, or one that can be started again and again. */
typedef struct twill_request twill_request;

/** \brief All-gather that a caller lends to twill for set-up: of \p bytes from every rank, in rank
 * order, into \p all (size * bytes). Called by all ranks in the same order, only inside context and
 * communicator creation. \return 0; anything else fails that with ::TWILL_ERR_BOOTSTRAP. */
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
/** \brief Create a context; collective over all ranks of the job.
 *
 * \param[out] context  the new context
 * \param bootstrap     NULL: find the other ranks by the environment, see twill(7)
 *                      (twillrun, or RANK WORLD_SIZE MASTER_ADDR MASTER_PORT, else one rank)
 * \param settings      NULL, or a NULL-terminated list of "TWILL_NAME=value" that goes before
 *                      the environment
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT, ::TWILL_ERR_CONFIG, ::TWILL_ERR_BOOTSTRAP,
 *         ::TWILL_ERR_MEMORY, ::TWILL_ERR_SYSTEM. On failure *context is still set (unless
 *         memory was out) so that twill_context_message() can say why; it can only be destroyed.
 */
TWILL_API twill_status twill_context_create(twill_context **context,
                                            const twill_bootstrap *bootstrap,
                                            const char *const *settings);

/** \brief Free a context. All its communicators must be gone. NULL is allowed. */
TWILL_API void twill_context_destroy(twill_context *context);

/** \brief Create the communicator of all ranks of the context. Collective. On failure *comm is NULL
 * and twill_context_message() says why. */
TWILL_API twill_status twill_comm_create(twill_comm **comm, twill_context *context);

/** \brief Free a communicator; collective, except after a failure. NULL is allowed. */
TWILL_API void twill_comm_destroy(twill_comm *comm);
/** \brief Likewise, waiting for nobody: the last call on it was a barrier, which is complete. */
TWILL_API void twill_comm_leave(twill_comm *comm);

/** \brief Context and communicator of all ranks in one call, from the environment. On failure *comm
 * is NULL and the reason is printed to standard error unless TWILL_LOG=none. */
TWILL_API twill_status twill_init(twill_comm **comm);
/** \brief The same with what twill_context_create() takes. The reason of a failure is not printed,
 * but written to \p message, at most \p bytes ("" upon success; NULL: printed). */
TWILL_API twill_status twill_init_with(twill_comm **comm, const twill_bootstrap *bootstrap,
                                       const char *const *settings, char *message, size_t bytes);

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

/** \name More communicators
 *
 * Collective over the ranks of \p comm (those made of ranks[]: over these ranks only); they talk
 * over \p comm, which must have nothing under way (else it fails). The new one is independent:
 * calls on the two may be in any order on different ranks, and \p comm may be destroyed before it.
 * On failure *made is NULL and twill_comm_message(comm) says why. Each is to be destroyed.
 * @{ */
/** \brief The colour of a rank that is to be in none of the new communicators: *made is NULL. */
#define TWILL_COLOUR_NONE (-1)
/** \brief A communicator of the same ranks in the same order. */
TWILL_API twill_status twill_comm_dup(twill_comm **made, twill_comm *comm);
/** \brief A communicator for each colour (0 or more, or ::TWILL_COLOUR_NONE), of the ranks that
 * gave it, ordered by key, equal keys by rank. */
TWILL_API twill_status twill_comm_split(twill_comm **made, twill_comm *comm, int colour, int key);

/** \brief Parts of the machine, from small to large. */
typedef enum twill_level {
    TWILL_LEVEL_TILE = 0, /**< cores that share an L2 cache */
    TWILL_LEVEL_L3,       /**< cores that share an L3 cache */
    TWILL_LEVEL_NUMA,     /**< a NUMA domain */
    TWILL_LEVEL_PACKAGE, /**< a processor package; several in one of many NUMA domains: all these */
    TWILL_LEVEL_NODE,    /**< a node: ranks that share memory */
    TWILL_LEVEL_GROUP,   /**< a group of nodes of the fabric (TWILL_GROUPS) */
    TWILL_LEVEL_COUNT
} twill_level;
/** \brief A communicator for each unit of a level that has ranks. A rank that is not bound to one
 *  unit counts as of the first it may run on. */
TWILL_API twill_status twill_comm_split_level(twill_comm **made, twill_comm *comm,
                                              twill_level level, int key);
/** \brief A communicator of ranks[0 .. count-1] of \p comm, in that order, all different. Called by
 *  these ranks only, with the same list. */
TWILL_API twill_status twill_comm_create_group(twill_comm **made, twill_comm *comm, int count,
                                               const int *ranks);
/** \brief Likewise, but these ranks talk by \p exchange (NULL will do for one rank), in the order
 * of the list: \p comm may have requests under way, also inside other threads, or be broken; it
 * stays as it is, and upon a failure twill_context_message() says why. A rank that fails calls
 * exchange no more: it is the caller's business that the others' exchanges then end. */
TWILL_API twill_status twill_comm_create_over(twill_comm **made, twill_comm *comm, int count,
                                              const int *ranks, twill_exchange_fn exchange,
                                              void *user);
/** @} */

/** \name Operations of one's own
 * @{ */
/** \brief result[i] = left[i] op right[i] for count elements; result may be left or right itself.
 * Must be associative and depend on nothing but its arguments. May be called from any thread that
 * waits on a communicator of the context. */
typedef void (*twill_op_fn)(const void *left, const void *right, void *result, size_t count,
                            twill_type type, void *user);

/** \brief Make an operation of a function.
 *
 * \param element_bytes 0: elements are those of the call's type (narrow floats are handed over as
 * they are). Else elements are opaque, of so many bytes (1 .. 4096), aligned to 16 at most as their
 * size allows, and the call's type must be ::TWILL_U8.
 * \param commutative 0: operands are combined in the order of ranks.
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT, ::TWILL_ERR_MEMORY (there are 256 at most).
 * \note Local. All ranks must use functions that do the same, commutative alike. */
TWILL_API twill_status twill_op_create(twill_context *context, twill_op *op, twill_op_fn function,
                                       void *user, size_t element_bytes, int commutative);
/** \brief Make a sum whose inputs are multiplied by *factor first (an element of type; 8- and
 * 16-bit floats: the factor is a float, and neither product nor sum is rounded before the end).
 * Each rank may have a factor of its own. Calls must be of this type. */
TWILL_API twill_status twill_op_create_scaled(twill_context *context, twill_op *op, twill_type type,
                                              const void *factor);
/** \brief Forget an operation; nothing that uses it may be under way. */
TWILL_API twill_status twill_op_destroy(twill_context *context, twill_op op);
/** @} */

/** \name Collectives
 *
 * Blocking: the result is complete on this rank when the call returns. Results of reductions are
 * bit-identical on all ranks that get them. Who only gives may return before others have come: a
 * barrier alone tells that they have. Counts are elements; a count of 0 is allowed. Buffers must be
 * aligned to the element, and src and dst must not overlap except in place, as said for each.
 * Vector variants (v) take a count, and an offset in elements (NULL: one part after the other), for
 * each rank. Memory of CUDA devices is accepted by a library built with TWILL_WITH_CUDA, see
 * twill(7); any other cannot tell it from host memory, and crashes. \return each: ::TWILL_OK,
 * ::TWILL_ERR_ARGUMENT, or any code of a failure. A bad argument fails the call on all ranks and
 * breaks the communicator, like every failure; only a communicator of one rank survives.
 * @{ */
/** \brief dst = op over all ranks of src, on every rank. In place: src == dst. */
TWILL_API twill_status twill_allreduce(twill_comm *comm, const void *src, void *dst, size_t count,
                                       twill_type type, twill_op op);
/** \brief dst on \p root (0 .. size-1) = op over all ranks of src. Other ranks' dst is not touched
 *  and may be NULL. In place: src == dst on the root. */
TWILL_API twill_status twill_reduce(twill_comm *comm, const void *src, void *dst, size_t count,
                                    twill_type type, twill_op op, int root);
/** \brief dst on every rank = src of \p root. Other ranks' src is not read and may be NULL; root's
 *  dst may be NULL or equal to src. */
TWILL_API twill_status twill_broadcast(twill_comm *comm, const void *src, void *dst, size_t count,
                                       twill_type type, int root);
TWILL_API twill_status twill_barrier(twill_comm *comm); /**< \brief ends when all have called it */
/** \brief Part r of dst (size * count elements) on every rank = src (count) of rank r. In place:
 * src is this rank's part of dst. */
TWILL_API twill_status twill_allgather(twill_comm *comm, const void *src, void *dst, size_t count,
                                       twill_type type);
/** \brief Likewise with counts[r] elements of rank r at offsets[r]. counts must be the same on all
 *  ranks; offsets are each rank's own business. */
TWILL_API twill_status twill_allgatherv(twill_comm *comm, const void *src, void *dst,
                                        const size_t *counts, const size_t *offsets,
                                        twill_type type);
/** \brief dst (count elements) on rank r = op over all ranks of part r of src (size * count). In
 *  place: dst is this rank's part of src; the rest of src is left alone. */
TWILL_API twill_status twill_reduce_scatter(twill_comm *comm, const void *src, void *dst,
                                            size_t count, twill_type type, twill_op op);
/** \brief Likewise with counts[r] elements for rank r, one part after the other in src. counts must
 *  be the same on all ranks. */
TWILL_API twill_status twill_reduce_scatterv(twill_comm *comm, const void *src, void *dst,
                                             const size_t *counts, twill_type type, twill_op op);
/** \brief Part r of dst on \p root = src of rank r. Other ranks' dst may be NULL. In place: src is
 *  root's part of dst. */
TWILL_API twill_status twill_gather(twill_comm *comm, const void *src, void *dst, size_t count,
                                    twill_type type, int root);
/** \brief Likewise; count is this rank's own, counts and offsets are read on the root only. */
TWILL_API twill_status twill_gatherv(twill_comm *comm, const void *src, size_t count, void *dst,
                                     const size_t *counts, const size_t *offsets, twill_type type,
                                     int root);
/** \brief dst on rank r = part r of src on \p root. Other ranks' src may be NULL. In place: dst is
 *  root's part of src. */
TWILL_API twill_status twill_scatter(twill_comm *comm, const void *src, void *dst, size_t count,
                                     twill_type type, int root);
/** \brief Likewise; count is this rank's own, counts and offsets are read on the root only. */
TWILL_API twill_status twill_scatterv(twill_comm *comm, const void *src, const size_t *counts,
                                      const size_t *offsets, void *dst, size_t count,
                                      twill_type type, int root);
/** \brief Part s of dst on rank r = part r of src on rank s; count elements each. In place:
 *  src == dst. */
TWILL_API twill_status twill_alltoall(twill_comm *comm, const void *src, void *dst, size_t count,
                                      twill_type type);
/** \brief Likewise with src_counts[r] elements for and dst_counts[s] elements from each rank; what
 *  one sends the other must expect. Not in place. */
TWILL_API twill_status twill_alltoallv(twill_comm *comm, const void *src, const size_t *src_counts,
                                       const size_t *src_offsets, void *dst,
                                       const size_t *dst_counts, const size_t *dst_offsets,
                                       twill_type type);
/** @} */

/** \name Point to point
 *
 * Messages from one rank to another arrive in the order they were sent; count and type must be the
 * same on both sides. A send may wait for its receive. To oneself: only with something under way
 * that makes it possible, else ::TWILL_ERR_ARGUMENT. They do not interfere with collectives.
 * @{ */
TWILL_API twill_status twill_send(twill_comm *comm, const void *src, size_t count, twill_type type,
                                  int to); /**< \brief send src to rank \p to */
TWILL_API twill_status twill_recv(twill_comm *comm, void *dst, size_t count, twill_type type,
                                  int from); /**< \brief receive dst from rank \p from */
/** \brief Both at once; the ranks may be different ones. The buffers must not overlap. */
TWILL_API twill_status twill_sendrecv(twill_comm *comm, const void *src, size_t src_count, int to,
                                      void *dst, size_t dst_count, int from, twill_type type);
/** @} */

/** \name Groups
 *
 * What is called between start and end on this communicator returns at once (arguments are checked)
 * and is done, together, when twill_group_end() returns; point-to-point calls in between cannot
 * block each other, and small allreduces of one type and operation that follow each other are fused
 * into one. Groups do not nest. Nonblocking and persistent calls are refused in between.
 * @{ */
TWILL_API twill_status twill_group_start(twill_comm *comm); /**< \brief begin a group */
TWILL_API twill_status twill_group_end(twill_comm *comm);   /**< \brief do all of it */
/** @} */

/** \name Calls under way
 *
 * Each call above has two more forms. twill_X_start() begins it and returns at once with a
 * request; twill_X_init() only prepares (collectives: on all ranks, in the same order as other
 * calls): the request can be started any number of times with twill_request_start(), on all
 * ranks alike, and nothing is allocated, looked up or registered then. Buffers belong to twill
 * from the start until the request is complete; arrays of counts and offsets may go as soon as
 * the call returns. Every rank starts collectives in the same order; they may be waited for in
 * any order, and any number may be under way. Starting a persistent collective counts as calling
 * it. Progress is made inside twill's calls on any communicator of the context by that thread,
 * or all the time with TWILL_PROGRESS=thread.
 * @{ */
typedef void (*twill_idle_fn)(void *user); /**< \brief see twill_context_idle() */
/** \brief Have a function called while a call waits, by the thread that waits, when nothing has
 * moved for some 20 us, and then at least every 100 us or so: for what else of the program must go
 * on. It must not call twill, and returns soon. Set, or taken away (NULL), while no thread is in a
 * call on the context. \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT. */
TWILL_API twill_status twill_context_idle(twill_context *context, twill_idle_fn idle, void *user);

/** \brief Start a persistent request that is not under way. */
TWILL_API twill_status twill_request_start(twill_request *request);
/** \brief *done = 1 if the request is complete, or was never started, else 0. A nonblocking request
 *  that is complete is freed and *request becomes NULL; NULL counts as complete. A failure
 *  counts as complete, and is returned. */
TWILL_API twill_status twill_test(twill_request **request, int *done);
/** \brief Wait until it is complete. The same as above otherwise. */
TWILL_API twill_status twill_wait(twill_request **request);
/** \brief Wait until one of requests[0 .. count-1] is complete, and say which: *index, -1 if all
 * are NULL or not started. They may be of different communicators of one context. */
TWILL_API twill_status twill_wait_any(size_t count, twill_request **requests, int *index);
/** \brief Wait for all; the first failure is returned. */
TWILL_API twill_status twill_wait_all(size_t count, twill_request **requests);
/** \brief Free a persistent request that is not under way; *request becomes NULL. */
TWILL_API twill_status twill_request_free(twill_request **request);

/** \brief The forms twill_X_start() and twill_X_init(): arguments of the call, then the request. */
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

/** \name Memory
 * @{ */
/** \brief Allocate placed memory (TWILL_MEMORY), shared with the ranks of the node.
 *
 * Large messages in such memory are not copied on a node. Aligned to 64 bytes, to 2 MiB from 2 MiB
 * up; contents undefined. Not collective. \p bytes may be 0 (a unique pointer).
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT, ::TWILL_ERR_MEMORY. */
TWILL_API twill_status twill_alloc(twill_context *context, void **memory, size_t bytes);

/** \brief Give back what twill_alloc() gave. NULL is allowed.
 * \return ::TWILL_OK, or ::TWILL_ERR_ARGUMENT if it did not come from this context. */
TWILL_API twill_status twill_free(twill_context *context, void *memory);

/** \brief Say that \p bytes of memory stay where they are until twill_deregister(): a network that
 * must know memory is shown them once, not in every call; what twill_alloc() gave is, anyway. */
TWILL_API twill_status twill_register(twill_context *context, void *memory, size_t bytes);
/** \brief Take that back, before the memory goes and with no call under way on it. */
TWILL_API twill_status twill_deregister(twill_context *context, void *memory);
/** @} */

/** \name Words and numbers
 * @{ */
TWILL_API const char *twill_strerror(twill_status status); /**< "timed out", ...; never NULL */
/** \brief The last failure on this communicator in one sentence ("" if none): rank, call, cause. */
TWILL_API const char *twill_comm_message(const twill_comm *comm);
/** \brief The last failure of this context, likewise. */
TWILL_API const char *twill_context_message(const twill_context *context);
TWILL_API const char *twill_version(void);         /**< \brief "0.1.0" */
TWILL_API size_t twill_type_size(twill_type type); /**< \brief of one element; 0: unknown type */
TWILL_API const char *twill_type_name(twill_type type); /**< \brief "f32", ...; NULL: unknown */
TWILL_API const char *twill_op_name(twill_op op);       /**< \brief "sum", ...; NULL: unknown */

/** \brief What a context or communicator has done so far. Monotonic. */
typedef struct twill_counters {
    uint64_t calls;            /**< collectives completed */
    uint64_t bytes_sent;       /**< payload handed to transports */
    uint64_t bytes_wire;       /**< payload and headers that left the node */
    uint64_t bytes_copied;     /**< payload staged through intermediate buffers, or fetched */
    uint64_t memory_fallbacks; /**< allocations that did not get the memory asked for */
    double seconds; /**< in collectives and groups, waits included; not starts below 4 KiB */
    uint64_t registrations;     /**< memory shown to the network, for providers that want it */
    uint64_t deregistrations;   /**< and taken back */
    uint64_t registration_hits; /**< times it knew the memory already */
} twill_counters;

/** \brief Read the counters. \return ::TWILL_OK or ::TWILL_ERR_ARGUMENT. */
TWILL_API twill_status twill_comm_counters(const twill_comm *comm, twill_counters *counters);
/** \brief One line of description: call with index 0, 1, ... until it returns NULL.
 *
 * What twill-info prints: machine, nodes, provider and interface with the reason they were chosen,
 * memory kinds, kernels, variables. Valid until the next call on this context. */
TWILL_API const char *twill_context_describe(twill_context *context, size_t index);
/** \brief Likewise for each NIC used between nodes (TWILL_RAILS): messages and bytes sent by it. */
TWILL_API const char *twill_comm_rail(twill_comm *comm, size_t index);
/** \brief Likewise for the table of environment variables: name, value, default, source, help,
 *  separated by tabs. */
TWILL_API const char *twill_context_variable(twill_context *context, size_t index);
/** \brief Likewise for why an algorithm is chosen for a call.
 *
 * \p question is words: a collective, a size (64K), and in any order a type (f32), world=24x2x8 (as
 * twill-info's --world takes it; else that of the context), groups=2x12 and units=l3=4 (as
 * TWILL_GROUPS and TWILL_UNITS, of that world), topology=knl.xml (its nodes), machine=theta (else
 * TWILL_MACHINE), mapped (all buffers are from twill_alloc()), fetched (peers can be read:
 * TWILL_REACH), vector (parts of different sizes), ordered (the operation does not commute), left
 * (TWILL_REPRODUCIBLE). Lines are fields separated by tabs, times in picoseconds: call, collective,
 * bytes, type, nodes x ranks of the fullest, ranks, machine; hierarchy, levels; candidate, name,
 * price, cost, entries measured; instead, name, price; small, name, sizes it takes; other, name,
 * why it is none; chosen, name, price, by what; decided, whose times they are; moves, class of
 * link, bytes. NULL at index 0: see twill_context_message(). */
TWILL_API const char *twill_context_why(twill_context *context, const char *question, size_t index);
/** @} */

#ifdef __cplusplus
}
#endif
#endif

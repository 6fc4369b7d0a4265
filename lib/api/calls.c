/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls, each as a blocking, a nonblocking (_start) and a persistent (_init) form. */
#include "lib/api/api_internal.h"

/* Define the three forms of twill_NAME(), which pass on `packed`, a struct twill_KIND. */
#define THREE_FORMS(name, kind, packed, ...)                                                       \
    twill_status twill_##name(__VA_ARGS__)                                                         \
    {                                                                                              \
        struct twill_##kind kind = packed;                                                         \
        return twill_##kind##_run(comm, &kind, "twill_" #name);                                    \
    }                                                                                              \
    twill_status twill_##name##_start(__VA_ARGS__, twill_request **request)                        \
    {                                                                                              \
        struct twill_##kind kind = packed;                                                         \
        return twill_##kind##_start(comm, &kind, request, "twill_" #name "_start");                \
    }                                                                                              \
    twill_status twill_##name##_init(__VA_ARGS__, twill_request **request)                         \
    {                                                                                              \
        struct twill_##kind kind = packed;                                                         \
        return twill_##kind##_init(comm, &kind, request, "twill_" #name "_init");                  \
    }
#define CALL(...)  ((struct twill_call){__VA_ARGS__})
#define POINT(...) ((struct twill_point){__VA_ARGS__})
#define ROOT       .root = (uint32_t)root

THREE_FORMS(allreduce, call, CALL(TWILL_ALLREDUCE, src, dst, count, type, op, .root = 0),
            twill_comm *comm, const void *src, void *dst, size_t count, twill_type type,
            twill_op op)

THREE_FORMS(reduce, call, CALL(TWILL_REDUCE, src, dst, count, type, op, ROOT), twill_comm *comm,
            const void *src, void *dst, size_t count, twill_type type, twill_op op, int root)

THREE_FORMS(broadcast, call,
            CALL(TWILL_BROADCAST, src, twill_broadcast_dst(comm, src, dst, root), count, type,
                 ROOT),
            twill_comm *comm, const void *src, void *dst, size_t count, twill_type type, int root)

THREE_FORMS(barrier, call, CALL(TWILL_BARRIER, .type = TWILL_F32), twill_comm *comm)

THREE_FORMS(allgather, call, CALL(TWILL_ALLGATHER, src, dst, count, type, .root = 0),
            twill_comm *comm, const void *src, void *dst, size_t count, twill_type type)

THREE_FORMS(allgatherv, call,
            CALL(TWILL_ALLGATHER, src, dst, 0, type, .vector = true,
                 .dst_counts = {counts, offsets}),
            twill_comm *comm, const void *src, void *dst, const size_t *counts,
            const size_t *offsets, twill_type type)

THREE_FORMS(reduce_scatter, call, CALL(TWILL_REDUCE_SCATTER, src, dst, count, type, op, .root = 0),
            twill_comm *comm, const void *src, void *dst, size_t count, twill_type type,
            twill_op op)

THREE_FORMS(reduce_scatterv, call,
            CALL(TWILL_REDUCE_SCATTER, src, dst, 0, type, op, .vector = true,
                 .src_counts = {counts, NULL}),
            twill_comm *comm, const void *src, void *dst, const size_t *counts, twill_type type,
            twill_op op)

THREE_FORMS(gather, call, CALL(TWILL_GATHER, src, dst, count, type, ROOT), twill_comm *comm,
            const void *src, void *dst, size_t count, twill_type type, int root)

THREE_FORMS(gatherv, call,
            CALL(TWILL_GATHER, src, dst, count, type, ROOT, .vector = true,
                 .dst_counts = {counts, offsets}),
            twill_comm *comm, const void *src, size_t count, void *dst, const size_t *counts,
            const size_t *offsets, twill_type type, int root)

THREE_FORMS(scatter, call, CALL(TWILL_SCATTER, src, dst, count, type, ROOT), twill_comm *comm,
            const void *src, void *dst, size_t count, twill_type type, int root)

THREE_FORMS(scatterv, call,
            CALL(TWILL_SCATTER, src, dst, count, type, ROOT, .vector = true,
                 .src_counts = {counts, offsets}),
            twill_comm *comm, const void *src, const size_t *counts, const size_t *offsets,
            void *dst, size_t count, twill_type type, int root)

THREE_FORMS(alltoall, call, CALL(TWILL_ALLTOALL, src, dst, count, type, .root = 0),
            twill_comm *comm, const void *src, void *dst, size_t count, twill_type type)

THREE_FORMS(alltoallv, call,
            CALL(TWILL_ALLTOALL, src, dst, 0, type, .vector = true,
                 .src_counts = {src_counts, src_offsets}, .dst_counts = {dst_counts, dst_offsets}),
            twill_comm *comm, const void *src, const size_t *src_counts, const size_t *src_offsets,
            void *dst, const size_t *dst_counts, const size_t *dst_offsets, twill_type type)

THREE_FORMS(send, point,
            POINT(.src = src, .src_count = count, .type = type, .to = to, .sends = true),
            twill_comm *comm, const void *src, size_t count, twill_type type, int to)

THREE_FORMS(recv, point,
            POINT(.dst = dst, .dst_count = count, .type = type, .from = from, .receives = true),
            twill_comm *comm, void *dst, size_t count, twill_type type, int from)

THREE_FORMS(sendrecv, point,
            POINT(src, dst, src_count, dst_count, type, to, from, .sends = true, .receives = true),
            twill_comm *comm, const void *src, size_t src_count, int to, void *dst,
            size_t dst_count, int from, twill_type type)

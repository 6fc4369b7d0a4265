/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls, each in three forms: blocking, nonblocking (_start) and persistent (_init). */
#include "lib/comm/comm.h"

/* Define the nonblocking and the persistent form of twill_NAME(); NAME_KIND arguments returns the
 * struct twill_KIND (call or point) that they pass on. */
#define OTHER_FORMS(name, kind, arguments, ...)                                                    \
    twill_status twill_##name##_start(__VA_ARGS__, twill_request **request)                        \
    {                                                                                              \
        struct twill_##kind kind = name##_##kind arguments;                                        \
        return twill_##kind##_start(comm, &kind, request, "twill_" #name "_start");                \
    }                                                                                              \
    twill_status twill_##name##_init(__VA_ARGS__, twill_request **request)                         \
    {                                                                                              \
        struct twill_##kind kind = name##_##kind arguments;                                        \
        return twill_##kind##_init(comm, &kind, request, "twill_" #name "_init");                  \
    }

/* --- one message for all --------------------------------------------------------------------- */

static struct twill_call allreduce_call(const void *src, void *dst, size_t count, twill_type type,
                                        twill_op op)
{
    return (struct twill_call){TWILL_ALLREDUCE, src, dst, count, type, op, .root = 0};
}

static struct twill_call reduce_call(const void *src, void *dst, size_t count, twill_type type,
                                     twill_op op, int root)
{
    return (struct twill_call){TWILL_REDUCE, src, dst, count, type, op, .root = (uint32_t)root};
}

/* A root without dst uses src as dst, which is only read then. */
static struct twill_call broadcast_call(const struct twill_comm *comm, const void *src, void *dst,
                                        size_t count, twill_type type, int root)
{
    bool is_root = comm != NULL && root >= 0 && (uint32_t)root == comm->rank;
    if (is_root && dst == NULL)
        dst = (void *)(uintptr_t)src;
    return (struct twill_call){TWILL_BROADCAST,       src, dst, count, type, TWILL_SUM,
                               .root = (uint32_t)root};
}

static struct twill_call barrier_call(void)
{
    return (struct twill_call){TWILL_BARRIER, .type = TWILL_F32};
}

twill_status twill_allreduce(twill_comm *comm, const void *src, void *dst, size_t count,
                             twill_type type, twill_op op)
{
    struct twill_call call = allreduce_call(src, dst, count, type, op);
    return twill_call_run(comm, &call, "twill_allreduce");
}
OTHER_FORMS(allreduce, call, (src, dst, count, type, op), twill_comm *comm, const void *src,
            void *dst, size_t count, twill_type type, twill_op op)

twill_status twill_reduce(twill_comm *comm, const void *src, void *dst, size_t count,
                          twill_type type, twill_op op, int root)
{
    struct twill_call call = reduce_call(src, dst, count, type, op, root);
    return twill_call_run(comm, &call, "twill_reduce");
}
OTHER_FORMS(reduce, call, (src, dst, count, type, op, root), twill_comm *comm, const void *src,
            void *dst, size_t count, twill_type type, twill_op op, int root)

twill_status twill_broadcast(twill_comm *comm, const void *src, void *dst, size_t count,
                             twill_type type, int root)
{
    struct twill_call call = broadcast_call(comm, src, dst, count, type, root);
    return twill_call_run(comm, &call, "twill_broadcast");
}
OTHER_FORMS(broadcast, call, (comm, src, dst, count, type, root), twill_comm *comm, const void *src,
            void *dst, size_t count, twill_type type, int root)

twill_status twill_barrier(twill_comm *comm)
{
    struct twill_call call = barrier_call();
    return twill_call_run(comm, &call, "twill_barrier");
}
OTHER_FORMS(barrier, call, (), twill_comm *comm)

/* --- a shard for each rank ------------------------------------------------------------------- */

static struct twill_call allgather_call(const void *src, void *dst, size_t count, twill_type type)
{
    return (struct twill_call){TWILL_ALLGATHER, src, dst, count, type, TWILL_SUM, .root = 0};
}

static struct twill_call allgatherv_call(const void *src, void *dst, const size_t *counts,
                                         const size_t *offsets, twill_type type)
{
    return (struct twill_call){TWILL_ALLGATHER,
                               src,
                               dst,
                               0,
                               type,
                               TWILL_SUM,
                               .vector = true,
                               .dst_counts = {counts, offsets}};
}

static struct twill_call reduce_scatter_call(const void *src, void *dst, size_t count,
                                             twill_type type, twill_op op)
{
    return (struct twill_call){TWILL_REDUCE_SCATTER, src, dst, count, type, op, .root = 0};
}

static struct twill_call reduce_scatterv_call(const void *src, void *dst, const size_t *counts,
                                              twill_type type, twill_op op)
{
    return (struct twill_call){TWILL_REDUCE_SCATTER,        src, dst, 0, type, op, .vector = true,
                               .src_counts = {counts, NULL}};
}

static struct twill_call gather_call(const void *src, void *dst, size_t count, twill_type type,
                                     int root)
{
    return (struct twill_call){TWILL_GATHER,          src, dst, count, type, TWILL_SUM,
                               .root = (uint32_t)root};
}

static struct twill_call gatherv_call(const void *src, size_t count, void *dst,
                                      const size_t *counts, const size_t *offsets, twill_type type,
                                      int root)
{
    return (struct twill_call){TWILL_GATHER,
                               src,
                               dst,
                               count,
                               type,
                               TWILL_SUM,
                               .root = (uint32_t)root,
                               .vector = true,
                               .dst_counts = {counts, offsets}};
}

static struct twill_call scatter_call(const void *src, void *dst, size_t count, twill_type type,
                                      int root)
{
    return (struct twill_call){TWILL_SCATTER,         src, dst, count, type, TWILL_SUM,
                               .root = (uint32_t)root};
}

static struct twill_call scatterv_call(const void *src, const size_t *counts, const size_t *offsets,
                                       void *dst, size_t count, twill_type type, int root)
{
    return (struct twill_call){TWILL_SCATTER,
                               src,
                               dst,
                               count,
                               type,
                               TWILL_SUM,
                               .root = (uint32_t)root,
                               .vector = true,
                               .src_counts = {counts, offsets}};
}

static struct twill_call alltoall_call(const void *src, void *dst, size_t count, twill_type type)
{
    return (struct twill_call){TWILL_ALLTOALL, src, dst, count, type, TWILL_SUM, .root = 0};
}

static struct twill_call alltoallv_call(const void *src, const size_t *src_counts,
                                        const size_t *src_offsets, void *dst,
                                        const size_t *dst_counts, const size_t *dst_offsets,
                                        twill_type type)
{
    return (struct twill_call){TWILL_ALLTOALL,
                               src,
                               dst,
                               0,
                               type,
                               TWILL_SUM,
                               .vector = true,
                               .src_counts = {src_counts, src_offsets},
                               .dst_counts = {dst_counts, dst_offsets}};
}

twill_status twill_allgather(twill_comm *comm, const void *src, void *dst, size_t count,
                             twill_type type)
{
    struct twill_call call = allgather_call(src, dst, count, type);
    return twill_call_run(comm, &call, "twill_allgather");
}
OTHER_FORMS(allgather, call, (src, dst, count, type), twill_comm *comm, const void *src, void *dst,
            size_t count, twill_type type)

twill_status twill_allgatherv(twill_comm *comm, const void *src, void *dst, const size_t *counts,
                              const size_t *offsets, twill_type type)
{
    struct twill_call call = allgatherv_call(src, dst, counts, offsets, type);
    return twill_call_run(comm, &call, "twill_allgatherv");
}
OTHER_FORMS(allgatherv, call, (src, dst, counts, offsets, type), twill_comm *comm, const void *src,
            void *dst, const size_t *counts, const size_t *offsets, twill_type type)

twill_status twill_reduce_scatter(twill_comm *comm, const void *src, void *dst, size_t count,
                                  twill_type type, twill_op op)
{
    struct twill_call call = reduce_scatter_call(src, dst, count, type, op);
    return twill_call_run(comm, &call, "twill_reduce_scatter");
}
OTHER_FORMS(reduce_scatter, call, (src, dst, count, type, op), twill_comm *comm, const void *src,
            void *dst, size_t count, twill_type type, twill_op op)

twill_status twill_reduce_scatterv(twill_comm *comm, const void *src, void *dst,
                                   const size_t *counts, twill_type type, twill_op op)
{
    struct twill_call call = reduce_scatterv_call(src, dst, counts, type, op);
    return twill_call_run(comm, &call, "twill_reduce_scatterv");
}
OTHER_FORMS(reduce_scatterv, call, (src, dst, counts, type, op), twill_comm *comm, const void *src,
            void *dst, const size_t *counts, twill_type type, twill_op op)

twill_status twill_gather(twill_comm *comm, const void *src, void *dst, size_t count,
                          twill_type type, int root)
{
    struct twill_call call = gather_call(src, dst, count, type, root);
    return twill_call_run(comm, &call, "twill_gather");
}
OTHER_FORMS(gather, call, (src, dst, count, type, root), twill_comm *comm, const void *src,
            void *dst, size_t count, twill_type type, int root)

twill_status twill_gatherv(twill_comm *comm, const void *src, size_t count, void *dst,
                           const size_t *counts, const size_t *offsets, twill_type type, int root)
{
    struct twill_call call = gatherv_call(src, count, dst, counts, offsets, type, root);
    return twill_call_run(comm, &call, "twill_gatherv");
}
OTHER_FORMS(gatherv, call, (src, count, dst, counts, offsets, type, root), twill_comm *comm,
            const void *src, size_t count, void *dst, const size_t *counts, const size_t *offsets,
            twill_type type, int root)

twill_status twill_scatter(twill_comm *comm, const void *src, void *dst, size_t count,
                           twill_type type, int root)
{
    struct twill_call call = scatter_call(src, dst, count, type, root);
    return twill_call_run(comm, &call, "twill_scatter");
}
OTHER_FORMS(scatter, call, (src, dst, count, type, root), twill_comm *comm, const void *src,
            void *dst, size_t count, twill_type type, int root)

twill_status twill_scatterv(twill_comm *comm, const void *src, const size_t *counts,
                            const size_t *offsets, void *dst, size_t count, twill_type type,
                            int root)
{
    struct twill_call call = scatterv_call(src, counts, offsets, dst, count, type, root);
    return twill_call_run(comm, &call, "twill_scatterv");
}
OTHER_FORMS(scatterv, call, (src, counts, offsets, dst, count, type, root), twill_comm *comm,
            const void *src, const size_t *counts, const size_t *offsets, void *dst, size_t count,
            twill_type type, int root)

twill_status twill_alltoall(twill_comm *comm, const void *src, void *dst, size_t count,
                            twill_type type)
{
    struct twill_call call = alltoall_call(src, dst, count, type);
    return twill_call_run(comm, &call, "twill_alltoall");
}
OTHER_FORMS(alltoall, call, (src, dst, count, type), twill_comm *comm, const void *src, void *dst,
            size_t count, twill_type type)

twill_status twill_alltoallv(twill_comm *comm, const void *src, const size_t *src_counts,
                             const size_t *src_offsets, void *dst, const size_t *dst_counts,
                             const size_t *dst_offsets, twill_type type)
{
    struct twill_call call =
        alltoallv_call(src, src_counts, src_offsets, dst, dst_counts, dst_offsets, type);
    return twill_call_run(comm, &call, "twill_alltoallv");
}
OTHER_FORMS(alltoallv, call, (src, src_counts, src_offsets, dst, dst_counts, dst_offsets, type),
            twill_comm *comm, const void *src, const size_t *src_counts, const size_t *src_offsets,
            void *dst, const size_t *dst_counts, const size_t *dst_offsets, twill_type type)

/* --- point to point -------------------------------------------------------------------------- */

static struct twill_point send_point(const void *src, size_t count, twill_type type, int to)
{
    return (struct twill_point){
        .src = src, .src_count = count, .type = type, .to = to, .sends = true};
}

static struct twill_point recv_point(void *dst, size_t count, twill_type type, int from)
{
    return (struct twill_point){
        .dst = dst, .dst_count = count, .type = type, .from = from, .receives = true};
}

static struct twill_point sendrecv_point(const void *src, size_t src_count, int to, void *dst,
                                         size_t dst_count, int from, twill_type type)
{
    return (struct twill_point){src, dst, src_count, dst_count, type, to, from, true, true};
}

twill_status twill_send(twill_comm *comm, const void *src, size_t count, twill_type type, int to)
{
    struct twill_point point = send_point(src, count, type, to);
    return twill_point_run(comm, &point, "twill_send");
}
OTHER_FORMS(send, point, (src, count, type, to), twill_comm *comm, const void *src, size_t count,
            twill_type type, int to)

twill_status twill_recv(twill_comm *comm, void *dst, size_t count, twill_type type, int from)
{
    struct twill_point point = recv_point(dst, count, type, from);
    return twill_point_run(comm, &point, "twill_recv");
}
OTHER_FORMS(recv, point, (dst, count, type, from), twill_comm *comm, void *dst, size_t count,
            twill_type type, int from)

twill_status twill_sendrecv(twill_comm *comm, const void *src, size_t src_count, int to, void *dst,
                            size_t dst_count, int from, twill_type type)
{
    struct twill_point point = sendrecv_point(src, src_count, to, dst, dst_count, from, type);
    return twill_point_run(comm, &point, "twill_sendrecv");
}
OTHER_FORMS(sendrecv, point, (src, src_count, to, dst, dst_count, from, type), twill_comm *comm,
            const void *src, size_t src_count, int to, void *dst, size_t dst_count, int from,
            twill_type type)

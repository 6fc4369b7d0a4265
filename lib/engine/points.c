/* SPDX-License-Identifier: Apache-2.0 */
/* Point-to-point requests under way: which have completed, and how. lib/api/point_to_point.c begins
 * them. */
#include "lib/comm/comm.h"

#include <stdio.h>

static bool is_pending(const struct twill_request *request)
{
    return request->transfer[TWILL_OUT].status == TWILL_PENDING ||
           request->transfer[TWILL_IN].status == TWILL_PENDING;
}

static twill_status point_differs(struct twill_request *request, int way)
{
    struct twill_comm *comm = request->comm;
    const struct twill_point *p = &request->point;
    const struct twill_transfer *t = &request->transfer[way];
    char theirs[64] = "";
    if (t->peer_bytes != t->bytes)
        snprintf(theirs, sizeof(theirs), ": there are %llu bytes of it",
                 (unsigned long long)t->peer_bytes);
    comm->issue.differs = t->peer + 1;
    return TWILL_FAIL(
        &comm->error, TWILL_ERR_MISMATCH,
        "%s: %s %s (count %zu, %s): that rank has another count or type%s",
        TWILL_COMM_RANK_NAME(comm, comm->rank), way == TWILL_OUT ? "send to" : "recv from",
        TWILL_COMM_RANK_NAME(comm, t->peer), way == TWILL_OUT ? p->src_count : p->dst_count,
        twill_type_name(p->type), theirs);
}

static twill_status point_outcome(struct twill_request *request)
{
    struct twill_comm *comm = request->comm;
    for (int way = TWILL_OUT; way <= TWILL_IN; way++) {
        int status = request->transfer[way].status;
        if (status == TWILL_ERR_MISMATCH)
            return point_differs(request, way);
        if (status < 0)
            return TWILL_FAIL(&comm->error, (twill_status)status, "%s: message with %s failed: %s",
                              TWILL_COMM_RANK_NAME(comm, comm->rank),
                              TWILL_COMM_RANK_NAME(comm, request->transfer[way].peer),
                              twill_strerror((twill_status)status));
    }
    return TWILL_OK;
}

int twill_points_sweep(struct twill_comm *comm)
{
    int completed = 0;
    for (struct twill_request **link = &comm->issue.points; *link != NULL;) {
        struct twill_request *request = *link;
        TWILL_TRY(&comm->error, point_outcome(request));
        if (is_pending(request)) {
            link = &request->next;
            continue;
        }
        *link = request->next;
        twill_request_complete(request, TWILL_OK);
        completed++;
    }
    return completed;
}

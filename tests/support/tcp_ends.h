/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of the tcp transport for its tests: one per rank. */
#ifndef TWILL_TCP_ENDS_H
#define TWILL_TCP_ENDS_H

#include "fabric/tcp/tcp.h"
#include "tests/support/messages.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)

/* A rank's transport with its parameters. */
struct tcp_end {
    struct twill_test_end end;
    struct twill_oob *oob;
    struct twill_common *common;
    struct twill_transport_params params;
};

static inline bool end_more(struct tcp_end *end, struct tcp_end *first, uint32_t comm)
{
    end->oob = first->oob;
    end->end = (struct twill_test_end){.rank = first->end.rank, .size = first->end.size};
    end->params = first->params;
    end->params.comm = comm;
    struct twill_error *error = &end->end.error;
    twill_status status = twill_tcp_transport.open(&end->end.transport, &end->params, error);
    TWILL_REQUIRE(status == TWILL_OK, "open: %d: %s", status, error->message);
    for (uint32_t r = 0; r < end->end.size; r++)
        if (r != end->end.rank)
            TWILL_REQUIRE(twill_tcp_transport.connect(end->end.transport, r, error) == TWILL_OK);
    return true;
}

static inline bool end_open(struct tcp_end *end, twill_bootstrap *caller, const char *interface)
{
    memset(end, 0, sizeof(*end));
    end->oob = twill_test_oob(caller);
    TWILL_REQUIRE(end->oob != NULL);
    end->end.rank = (uint32_t)caller->rank;
    end->end.size = (uint32_t)caller->size;
    end->params = (struct twill_transport_params){
        .oob = end->oob, .interface = interface, .common = &end->common};
    return end_more(end, end, 1);
}

static inline void end_close(struct tcp_end *end)
{
    if (end->end.transport != NULL)
        twill_tcp_transport.close(end->end.transport);
    if (end->common != NULL)
        end->common->close(end->common);
    twill_test_oob_close(end->oob);
}

/* Wait for all ranks. */
static inline bool rank_barrier(struct tcp_end *end)
{
    int all[64], mine = 1;
    TWILL_REQUIRE(end->end.size <= TWILL_ARRAY_LENGTH(all));
    return twill_oob_allgather(end->oob, &mine, all, sizeof(mine), &end->end.error) == TWILL_OK;
}

static inline int progress(struct tcp_end *end)
{
    int moved = end->end.transport->ops->progress(end->end.transport, &end->end.error);
    if (moved == 0)
        sched_yield();
    return moved;
}

static inline struct twill_transfer transfer(enum twill_transfer_kind kind, uint32_t peer,
                                             uint32_t lane, void *data, size_t bytes)
{
    return (struct twill_transfer){.kind = (uint8_t)kind,
                                   .peer = peer,
                                   .lane = (uint8_t)lane,
                                   .signature = 7,
                                   .buffer = data,
                                   .bytes = bytes};
}

static inline bool post(struct tcp_end *end, struct twill_transfer *request)
{
    twill_status status = twill_tcp_transport.post(end->end.transport, request, &end->end.error);
    return TWILL_NOTE(status == TWILL_OK, "post: %s", end->end.error.message);
}

#endif

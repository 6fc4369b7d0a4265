/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/common/tool_calls.h"

#include <stddef.h>

const char *twill_bench_why(const twill_comm *comm, const twill_context *context,
                            twill_status status)
{
    const char *message = comm != NULL ? twill_comm_message(comm) : "";
    if (message[0] == '\0' && context != NULL)
        message = twill_context_message(context);
    return message[0] != '\0' ? message : twill_strerror(status);
}

/* Gather `bytes` of each rank in `all`, for a bootstrap. Returns whether that failed. */
static int exchange(void *comm, const void *mine, void *all, size_t bytes)
{
    return twill_allgather(comm, mine, all, bytes, TWILL_U8) != TWILL_OK;
}

twill_bootstrap twill_bench_bootstrap(twill_comm *comm)
{
    return (twill_bootstrap){.rank = twill_comm_rank(comm),
                             .size = twill_comm_size(comm),
                             .exchange = exchange,
                             .user = comm};
}

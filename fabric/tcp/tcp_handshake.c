/* SPDX-License-Identifier: Apache-2.0 */
/* Contents of a connection's handshake. */
#include "fabric/tcp/tcp.h"

bool twill_tcp_hello_call(const struct twill_tcp *t, const struct twill_tcp_lane *lane,
                          struct twill_hello *hello)
{
    const struct twill_hello_identity identity = {.role = TWILL_HELLO_DATA,
                                                  .rank = twill_tcp_rank_in_job(t, t->rank),
                                                  .to = twill_tcp_rank_in_job(t, lane->peer->rank),
                                                  .size = t->common->size,
                                                  .argument =
                                                      (uint64_t)t->params.comm << 8 | lane->number};
    return twill_hello_call(hello, &t->common->secret, &identity);
}

bool twill_tcp_hello_expect(const struct twill_tcp_common *common, struct twill_hello *hello)
{
    return twill_hello_expect(hello, &common->secret, TWILL_HELLO_DATA, common->rank, common->size);
}

uint32_t twill_tcp_hello_comm(const struct twill_hello *hello)
{
    return (uint32_t)(hello->said.call.argument >> 8);
}

bool twill_tcp_hello_fits(const struct twill_tcp *t, const struct twill_hello *hello,
                          uint32_t *rank, unsigned *lane)
{
    *lane = hello->said.call.argument & 0xff;
    for (*rank = 0; *rank < t->rank; ++*rank)
        if (twill_tcp_rank_in_job(t, *rank) == hello->said.call.rank)
            return *lane < TWILL_LANES;
    return false;
}

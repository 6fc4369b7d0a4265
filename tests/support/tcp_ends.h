/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of the tcp transport for its tests: one per rank. */
#ifndef TWILL_TCP_ENDS_H
#define TWILL_TCP_ENDS_H

#include "fabric/tcp/tcp.h"
#include "tests/support/messages.h"

#define SECOND UINT64_C(1000000000)

/* Open with end->params, on an interface; NULL: any. */
static inline bool tcp_open(struct twill_test_end *end, const void *interface)
{
    end->params.common = &end->common;
    end->params.interface = interface;
    return end_opened(end, twill_tcp_transport.open(&end->transport, &end->params, &end->error));
}

static inline struct twill_tcp *tcp_of(const struct twill_test_end *end)
{
    return (struct twill_tcp *)end->transport;
}

static inline struct twill_tcp_channel *tcp_channel(const struct twill_test_end *end,
                                                    unsigned number)
{
    return &tcp_of(end)->peers[end->peer]->channels[number];
}

/* Define a test of ranks with an end each, as threads or as processes. */
#define TCP_TEST(name, ranks)      END_TEST(name, ranks, false, tcp_open, NULL)
#define TCP_PROCESSES(name, ranks) END_TEST(name, ranks, true, tcp_open, NULL)

#endif

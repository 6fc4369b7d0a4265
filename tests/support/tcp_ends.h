/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of the tcp transport for its tests: one per rank. */
#ifndef TWILL_TCP_ENDS_H
#define TWILL_TCP_ENDS_H

#include "fabric/tcp/tcp.h"
#include "tests/support/messages.h"
#include "tests/support/unit.h"

#include <pthread.h>

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

/* Return how many times threads have shared channels of this rank. */
static inline unsigned *tcp_forks(void)
{
    static _Thread_local unsigned forks;
    return &forks;
}

struct tcp_sharing_thread {
    void (*run)(void *job, unsigned part, unsigned parts);
    void *job;
    unsigned part, parts;
    pthread_t thread;
};

static inline void *tcp_share_part(void *argument)
{
    const struct tcp_sharing_thread *own = argument;
    own->run(own->job, own->part, own->parts);
    return NULL;
}

/* As twill_pool_run(), with new threads for each fork. */
static inline bool tcp_run_in_threads(struct twill_thread_pool *pool, unsigned parts,
                                      void (*run)(void *job, unsigned part, unsigned parts),
                                      void *job)
{
    struct tcp_sharing_thread threads[3];
    (void)pool;
    parts = (unsigned)twill_min(parts, TWILL_ARRAY_LENGTH(threads));
    ++*tcp_forks();
    for (unsigned p = 1; p < parts; p++) {
        threads[p] = (struct tcp_sharing_thread){run, job, p, parts, 0};
        assert_int_equal(pthread_create(&threads[p].thread, NULL, tcp_share_part, &threads[p]), 0);
    }
    run(job, 0, parts);
    for (unsigned p = 1; p < parts; p++)
        pthread_join(threads[p].thread, NULL);
    return true;
}

/* Let threads share the channels of an end that is not open yet. */
static inline void tcp_share(struct twill_test_end *end)
{
    end->params.pool = (struct twill_thread_pool *)(void *)tcp_forks();
    end->params.pool_run = tcp_run_in_threads;
}

/* Define a test of ranks with an end each, as threads or as processes. */
#define TCP_TEST(name, ranks)      END_TEST(name, ranks, false, tcp_open, NULL)
#define TCP_PROCESSES(name, ranks) END_TEST(name, ranks, true, tcp_open, NULL)

#endif

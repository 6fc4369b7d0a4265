/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks with a failure detector, for its tests. */
#ifndef TWILL_DETECTOR_RANKS_H
#define TWILL_DETECTOR_RANKS_H

#include "fabric/detector/detector.h"
#include "tests/support/job_ranks.h"
#include "tests/support/noise.h"
#include "tests/support/unit.h"

#include <netinet/in.h>

/* Out-of-band exchange and detector of a rank. */
struct test_detector {
    struct twill_oob *oob;
    struct twill_detector *detector;
    struct twill_error error;
    twill_bootstrap *bootstrap; /* of the test's ranks */
};

/* Create a detector without connections between hosts. */
static inline twill_status test_detector_start(struct twill_detector **detector,
                                               struct twill_oob *oob, size_t most,
                                               struct twill_error *error)
{
    struct twill_oob_batch batch = {.oob = oob};
    twill_status status = twill_detector_offer(detector, oob, most, &batch, error);
    return twill_oob_batch_exchange(&batch, status, error);
}

static inline bool test_detector_open(struct test_detector *w, const struct twill_test_job *job,
                                      int rank)
{
    memset(w, 0, sizeof(*w));
    twill_status status = twill_test_job_open(job, rank, &w->oob, &w->error);
    if (status == TWILL_OK)
        status = test_detector_start(&w->detector, w->oob, 0, &w->error);
    return TWILL_NOTE(status == TWILL_OK, "rank %d: %s", rank, w->error.message);
}

static inline void test_detector_close(struct test_detector *w)
{
    twill_detector_close(w->detector);
    twill_oob_close(w->oob);
}

static inline bool rank_barrier(struct test_detector *w)
{
    return twill_test_gather(w->oob, 1, 0);
}

/* A test whose ranks have a detector each. */
struct test_detector_scene {
    struct twill_test_job job;
    void (*fn)(struct test_detector *w, int rank, int size, struct twill_test_job *job);
};

static inline void test_detector_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct test_detector_scene *scene = user;
    struct test_detector w;
    if (!test_detector_open(&w, &scene->job, rank))
        return;
    w.bootstrap = bootstrap;
    scene->fn(&w, rank, size, &scene->job);
    test_detector_close(&w);
}

/* Define a test of ranks, by twill_test_run_ranks() or twill_test_run_processes(). The body is what
 * each does with its detector. odd: the job's odd rank, or -1. No descriptor may stay open. */
#define DETECTOR_TEST(name, run, ranks, odd)                                                       \
    static void rank_of_##name(struct test_detector *w, int rank, int size,                        \
                               struct twill_test_job *job);                                        \
    TWILL_TEST(name)                                                                               \
    {                                                                                              \
        test_detector_run(run, ranks, odd, rank_of_##name);                                        \
    }                                                                                              \
    static void rank_of_##name(struct test_detector *w, int rank, int size,                        \
                               struct twill_test_job *job)

static inline void test_detector_run(void (*run)(int, twill_rank_fn, void *), int ranks, int odd,
                                     void (*fn)(struct test_detector *, int, int,
                                                struct twill_test_job *))
{
    struct test_detector_scene scene = {.fn = fn};
    int before = twill_test_open_files();
    twill_test_job_init(&scene.job, "127.0.0.1", ranks);
    scene.job.odd = odd;
    run(ranks, test_detector_rank, &scene);
    assert_int_equal(twill_test_open_files(), before);
}

/* Close the detector of a rank that is to look dead. */
static inline void detector_dies(struct test_detector *w)
{
    twill_detector_close(w->detector);
    w->detector = NULL;
}

static inline bool dies(struct test_detector *w, uint32_t peer)
{
    uint64_t deadline = twill_now() + TWILL_TEST_PATIENCE;
    while (!twill_detector_is_dead(w->detector, peer))
        if (twill_now() > deadline)
            return false;
        else
            usleep(1000);
    return true;
}

static inline bool receives(struct test_detector *w, struct twill_notice *notice)
{
    uint64_t deadline = twill_now() + TWILL_TEST_PATIENCE;
    while (!twill_detector_poll(w->detector, notice))
        if (twill_now() > deadline)
            return false;
        else
            usleep(1000);
    return true;
}

static inline void notify(struct test_detector *w, int rank, uint32_t comm)
{
    struct twill_notice notice = {
        .from = (uint32_t)rank, .comm = comm, .status = TWILL_ERR_MISMATCH};
    snprintf(notice.message, sizeof(notice.message), "rank %d reports %u", rank, comm);
    uint32_t everyone[64];
    for (uint32_t r = 0; r < TWILL_ARRAY_LENGTH(everyone); r++)
        everyone[r] = r;
    twill_detector_notify(w->detector, &notice, everyone, (size_t)w->oob->size,
                          TWILL_TEST_PATIENCE);
}

static inline bool is_tcp(int fd)
{
    int protocol = 0;
    socklen_t length = sizeof(protocol);
    return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 &&
           protocol == IPPROTO_TCP;
}

/* Return the port of rank 0's detector: the TCP socket that this process listened on last. */
static inline int newest_listener(void)
{
    struct twill_endpoint endpoint;
    int port = 0;
    for (int fd = 0; fd < 256; fd++) {
        int on = 0;
        socklen_t length = sizeof(on);
        if (is_tcp(fd) && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &length) == 0 && on &&
            twill_socket_name(fd, false, &endpoint))
            port = endpoint.port;
    }
    return port;
}

#endif

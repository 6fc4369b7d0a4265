/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs whose ranks are threads that meet over TCP, for the tests of the bootstrap and the watch. */
#ifndef TWILL_JOB_RANKS_H
#define TWILL_JOB_RANKS_H

#include "fabric/auth/handshake.h"
#include "tests/support/ranks.h"

#include <stdatomic.h>

#define TWILL_TEST_SECOND UINT64_C(1000000000)
#define TWILL_TEST_KEY    "c0ffeec0ffeec0ffee"

/* What the ranks of one test share. */
struct twill_test_job {
    const char *host;
    char port[8];
    char listen_fd[16];
    const char *key[16]; /* TWILL_JOB by rank; NULL: TWILL_TEST_KEY; empty: not set */
    uint64_t timeout_ns;
    int size;           /* WORLD_SIZE; threads beyond it are strangers */
    int odd;            /* the rank that misbehaves */
    atomic_int arrived; /* for meeting points of a test's own */
};

/* A socket that listens on that address, and its port; -1: the address is not to be had. The port
 * is none that the system gives away by itself, nor one of a process beside this: closed, it stays
 * free for who opens it again. */
int twill_test_listen(const char *host, char port[8]);
/* A job of that size on that address, with a port that is free. */
void twill_test_job_init(struct twill_test_job *job, const char *host, int size);
/* Bootstrap as a rank of it. */
twill_status twill_test_job_open(const struct twill_test_job *job, int rank, struct twill_oob **oob,
                                 struct twill_error *error);
/* One all-gather of that many bytes, each of them checked. */
bool twill_test_gather(struct twill_oob *oob, size_t bytes, int round);
/* A rank that bootstraps and gathers; user is the job. The odd one is late. */
void twill_test_rank_gathers(int rank, int size, twill_bootstrap *unused, void *user);
/* Connect to the port of the job; tries until somebody listens. -1: nobody. */
int twill_test_dial(const struct twill_test_job *job);
/* Say hello over a connection, knowing TWILL_TEST_KEY. */
bool twill_test_hello(int fd, const struct twill_hello_identity *identity,
                      struct twill_session *session);
/* Check that a rank failed with this status and a message that has these words. */
bool twill_test_outcome_is(int rank, twill_status status, const struct twill_error *error,
                           twill_status expected, const char *says);

#endif

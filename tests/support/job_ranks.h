/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs whose ranks are threads that bootstrap over TCP, for tests of bootstrap and failure
 * detector. */
#ifndef TWILL_JOB_RANKS_H
#define TWILL_JOB_RANKS_H

#include "fabric/auth/handshake.h"
#include "tests/support/ranks.h"

#include <stdatomic.h>

#define TWILL_TEST_SECOND UINT64_C(1000000000)
#define TWILL_TEST_KEY    "c0ffeec0ffeec0ffee"

/* The data that the ranks of one test share. */
struct twill_test_job {
    const char *host;
    char port[8];
    char listen_fd[16];
    const char *key[16]; /* TWILL_JOB by rank; NULL: TWILL_TEST_KEY; empty: not set */
    uint64_t timeout_ns;
    int size;           /* WORLD_SIZE; further threads are unauthenticated */
    int odd;            /* the rank that misbehaves */
    atomic_int arrived; /* for barriers of a test */
};

/* Listen on an address. Returns the socket and its port, or -1 if the address is not available. The
 * port is outside the system's range and reserved for this process: closed, it stays free. */
int twill_test_listen(const char *host, char port[8]);
/* Initialise a job of `size` ranks on an address, with a free port. */
void twill_test_job_init(struct twill_test_job *job, const char *host, int size);
/* Run the ranks of such a job, as threads; `user` of fn is the job. odd: the odd rank, or -1. */
void twill_test_job_run(const char *host, int size, int odd, twill_rank_fn fn);
/* Bootstrap as a rank of the job. */
twill_status twill_test_job_open(const struct twill_test_job *job, int rank, struct twill_oob **oob,
                                 struct twill_error *error);
/* Exchange `bytes` bytes of each rank and check them all. */
bool twill_test_gather(struct twill_oob *oob, size_t bytes, int round);
/* A rank that bootstraps and exchanges; user is the job. The odd one is late. */
void twill_test_rank_gathers(int rank, int size, twill_bootstrap *unused, void *user);
/* Connect to the job's port; retries until it is open. Returns -1 on failure. */
int twill_test_dial(const struct twill_test_job *job);
int twill_test_dial_port(const struct twill_test_job *job, int port);
/* Return what a rank claims when it joins. */
static inline struct twill_hello_identity twill_test_joins(uint32_t rank, int size)
{
    return (struct twill_hello_identity){.role = TWILL_HELLO_JOIN,
                                         .rank = rank,
                                         .size = (uint32_t)size,
                                         .argument = TWILL_TEST_PATIENCE / 1000000};
}
/* Run a handshake to its end. Returns LATER if that takes too long. */
enum twill_wire_moved twill_test_hello_finish(int fd, struct twill_hello *hello,
                                              struct twill_session *session);
/* Run the handshake over a connection, with TWILL_TEST_KEY. */
bool twill_test_hello(int fd, const struct twill_hello_identity *identity,
                      struct twill_session *session);
/* Check that a rank failed with this status and a message that contains `says`. */
bool twill_test_outcome_is(int rank, twill_status status, const struct twill_error *error,
                           twill_status expected, const char *says);

#endif

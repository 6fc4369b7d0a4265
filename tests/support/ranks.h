/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks for tests: threads (or forked processes) of the test program, with a caller's bootstrap
 * whose exchange is an all-gather among them.
 *
 * cmocka's asserts work in the main thread only. Inside a rank use TWILL_CHECK and its kin: they
 * record the first failure and return; the runner fails the test once all ranks have ended, and
 * ends those that do not. */
#ifndef TWILL_RANKS_H
#define TWILL_RANKS_H

#include "fabric/bootstrap/bootstrap.h"

#define TWILL_TEST_EXCHANGE_BYTES (1u << 20) /* of one rank in one exchange, at most */

typedef void (*twill_rank_fn)(int rank, int size, twill_bootstrap *bootstrap, void *user);

/* What only guards against hangs: more than anything takes on a slow and busy machine under a
 * sanitizer, and less than ctest gives a program. */
#define TWILL_TEST_PATIENCE (UINT64_C(240) * 1000000000)
#define TWILL_TEST_PATIENT  "TWILL_TIMEOUT=240" /* the same, as a setting */
/* A deadline that is to pass, and not before what comes first has been done there. */
#define TWILL_TEST_SOON  (UINT64_C(5) * 1000000000)
#define TWILL_TEST_HASTY "TWILL_TIMEOUT=5"

/* Run fn on `size` threads. An exchange ends with an error when it takes longer than that, or at
 * once when another rank has returned from fn. To be called from the main thread, one at a time. */
void twill_test_run_ranks(int size, twill_rank_fn fn, void *user);
/* The same with forked processes. A rank that ends by a signal, or by exit, fails the test, unless
 * it has called twill_test_expect_death(). `user` is a copy in each process. */
void twill_test_run_processes(int size, twill_rank_fn fn, void *user);
/* The same with several ranks as threads in each process. */
void twill_test_run_mixed(int size, int threads, twill_rank_fn fn, void *user);
void twill_test_expect_death(int rank);

/* All ranks have come here, by the bootstrap alone. What fails on one rank is told to all, wherever
 * they are: before a call that is to fail, or a death, so that nobody is in the good call before it
 * any longer; and before leaving, so that nobody is gone whom others talk to. */
bool twill_test_barrier(twill_bootstrap *bootstrap);

/* A bootstrap object around a caller's callback, for tests of what sits on
 * fabric/bootstrap/bootstrap.h. Fill in another timeout_ns where TWILL_TEST_PATIENCE is too long.
 */
struct twill_oob *twill_test_oob(twill_bootstrap *caller);
void twill_test_oob_close(struct twill_oob *oob);

/* A context and a communicator of all ranks: TWILL_NODES=nodes, the mock transport
 * (doubles/mock_transport.h) unless `mock` is NULL, TWILL_INTERFACE=lo, and up to
 * TWILL_TEST_SETTINGS more, ended by NULL. False has been noted; both are to be destroyed all the
 * same. */
#define TWILL_TEST_SETTINGS 12
bool twill_test_connect(twill_context **context, twill_comm **comm, twill_bootstrap *bootstrap,
                        const char *nodes, const char *mock, const char *const *more);

/* Record a failure unless ok; the first one stays. Returns ok. */
bool twill_test_note(bool ok, const char *file, int line, const char *format, ...)
    TWILL_PRINTF(4, 5);
/* Has any rank of this run failed a check? For loops that would wait for it. */
bool twill_test_failed(void);

/* In a function that returns void: leave it unless cond holds. */
#define TWILL_CHECK(cond)                                                                          \
    do {                                                                                           \
        if (!twill_test_note((cond), __FILE__, __LINE__, "%s", #cond))                             \
            return;                                                                                \
    } while (0)
/* In one that returns bool: return false. */
#define TWILL_REQUIRE(cond)                                                                        \
    do {                                                                                           \
        if (!twill_test_note((cond), __FILE__, __LINE__, "%s", #cond))                             \
            return false;                                                                          \
    } while (0)
/* As TWILL_CHECK for a twill_status; error is the struct twill_error * that explains it. */
#define TWILL_CHECK_OK(error, call)                                                                \
    do {                                                                                           \
        int twill_check_status_ = (call);                                                          \
        if (!twill_test_note(twill_check_status_ >= 0, __FILE__, __LINE__, "%s: status %d: %s",    \
                             #call, twill_check_status_, (error)->message))                        \
            return;                                                                                \
    } while (0)

#endif

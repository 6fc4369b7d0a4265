/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks for tests: threads (or forked processes) of the test program, with a twill_bootstrap whose
 * exchange is an allgather among them.
 *
 * cmocka's asserts work in the main thread only. Inside a rank use TWILL_CHECK and the like: they
 * record the first failure and return; the runner fails the test once all ranks have ended, and
 * ends those that do not. */
#ifndef TWILL_RANKS_H
#define TWILL_RANKS_H

#include "fabric/bootstrap/bootstrap.h"

#define TWILL_TEST_EXCHANGE_BYTES (1u << 20) /* most bytes of one rank in one exchange */

typedef void (*twill_rank_fn)(int rank, int size, twill_bootstrap *bootstrap, void *user);

/* Guards against hangs only: longer than anything takes on a slow and busy machine under a
 * sanitizer, and shorter than ctest's limit. */
#define TWILL_TEST_PATIENCE (UINT64_C(240) * 1000000000)
#define TWILL_TEST_PATIENT  "TWILL_TIMEOUT=240" /* TWILL_TEST_PATIENCE as a setting */
/* A deadline that is to expire, but not before earlier steps are done. */
#define TWILL_TEST_SOON  (UINT64_C(5) * 1000000000)
#define TWILL_TEST_HASTY "TWILL_TIMEOUT=5"

/* Run fn on `size` threads. An exchange fails after TWILL_TEST_PATIENCE, or at once when another
 * rank has returned from fn. Called from the main thread, one run at a time. */
void twill_test_run_ranks(int size, twill_rank_fn fn, void *user);
/* Run fn in `size` forked processes. A rank that ends by a signal or a non-zero exit fails the
 * test, unless twill_test_expect_death() was called for it. `user` is a copy in each process. */
void twill_test_run_processes(int size, twill_rank_fn fn, void *user);
/* Run fn in forked processes of `threads` ranks each, as threads. */
void twill_test_run_mixed(int size, int threads, twill_rank_fn fn, void *user);
void twill_test_expect_death(int rank);
/* Return zeroed memory that the ranks share, also as processes that are forked later. */
void *twill_test_shared(size_t bytes);

/* Wait for all ranks, by the exchange only. Needed before a call that is to fail, or a death, as an
 * error on one rank reaches all others wherever they are; and before leaving, as others may still
 * communicate with this rank. */
bool twill_test_barrier(twill_bootstrap *bootstrap);

/* Make an out-of-band exchange from a caller's twill_bootstrap, for tests of its users. Set another
 * timeout_ns where TWILL_TEST_PATIENCE is too long. */
struct twill_oob *twill_test_oob(twill_bootstrap *caller);
void twill_test_oob_close(struct twill_oob *oob);

/* Create a context and a communicator of all ranks, with TWILL_LAYOUT=nodes and the entries of
 * `more` for TWILL_LAYOUT, the mock transport (doubles/mock_transport.h) unless `mock` is NULL,
 * TWILL_INTERFACE=lo, and up to TWILL_TEST_SETTINGS more, NULL-terminated. Returns false after
 * noting a failure; both must be destroyed in any case. */
#define TWILL_TEST_SETTINGS 12
bool twill_test_connect(twill_context **context, twill_comm **comm, twill_bootstrap *bootstrap,
                        const char *nodes, const char *mock, const char *const *more);
void twill_test_disconnect(twill_comm *comm, twill_context *context);
/* The same without a mock, the settings as arguments. */
#define twill_test_join(context, comm, bootstrap, nodes, ...)                                      \
    twill_test_connect(context, comm, bootstrap, nodes, NULL, TWILL_TEST_SETTINGS_OF(__VA_ARGS__))
#define TWILL_TEST_SETTINGS_OF(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})
/* The same for ranks that need the communicator only: without one nothing is left to close, and
 * closing NULL does nothing. */
#define twill_test_open(comm, bootstrap, nodes, ...)                                               \
    twill_test_open_with(comm, bootstrap, nodes, TWILL_TEST_SETTINGS_OF(__VA_ARGS__))
bool twill_test_open_with(twill_comm **comm, twill_bootstrap *bootstrap, const char *nodes,
                          const char *const *more);
void twill_test_close(twill_comm *comm);

/* The ranks of a case (TWILL_TEST_CASES() in unit.h) are a text: "3" are three ranks without
 * TWILL_LAYOUT, "2x3" or "1+2" so many on nodes that it declares, and "3x1 delay=3" use the mock
 * transport with this script. Return their number. */
int twill_test_size(const char *layout);
bool twill_test_begin(twill_comm **comm, twill_bootstrap *bootstrap, const char *layout,
                      const char *const *settings);
/* Destroy both when all ranks are here; a communicator may have ended before. After a failed check
 * all is left as it is, as other ranks may be in any call. */
void twill_test_end(twill_comm *comm, twill_context *context, twill_bootstrap *bootstrap);
/* Check that a call on a communicator succeeded; else record its message. */
bool twill_test_fine(const twill_comm *comm, twill_status status);
/* Return a text by a format, for a setting: valid until this thread has made eight more. */
const char *twill_test_text(const char *format, ...) TWILL_PRINTF(1, 2);

/* Record a failure unless ok; the first one is kept. Returns ok. */
bool twill_test_note(bool ok, const char *file, int line, const char *what, const char *format, ...)
    TWILL_PRINTF(5, 6);
/* Return whether a rank of this run has failed a check, for loops that would wait for it. */
bool twill_test_failed(void);

/* Return whether cond holds; else record a failure here, with the text of a printf() if one
 * follows. */
#define TWILL_NOTE(cond, ...) twill_test_note((cond), __FILE__, __LINE__, #cond, " " __VA_ARGS__)
/* Leave a void function, or return false, unless cond holds. */
#define TWILL_CHECK(cond, ...)                                                                     \
    do {                                                                                           \
        if (!twill_test_note((cond), __FILE__, __LINE__, #cond, " " __VA_ARGS__))                  \
            return;                                                                                \
    } while (0)
#define TWILL_REQUIRE(cond, ...)                                                                   \
    do {                                                                                           \
        if (!twill_test_note((cond), __FILE__, __LINE__, #cond, " " __VA_ARGS__))                  \
            return false;                                                                          \
    } while (0)
/* Return whether a message has these words; else record a failure here. */
#define TWILL_SAYS(message, words) twill_test_says(message, words, __FILE__, __LINE__)
bool twill_test_says(const char *message, const char *words, const char *file, int line);
/* Return whether a call ended with this status, and the communicator's message then has these
 * words; else record a failure here. */
#define TWILL_ENDS(comm, call, expected, words)                                                    \
    twill_test_ends(comm, call, expected, words, #call, __FILE__, __LINE__)
bool twill_test_ends(const twill_comm *comm, twill_status status, twill_status expected,
                     const char *words, const char *call, const char *file, int line);
/* TWILL_CHECK for a twill_status; error is the struct twill_error * that explains it. */
#define TWILL_CHECK_OK(error, call)                                                                \
    do {                                                                                           \
        int twill_check_status_ = (call);                                                          \
        if (!twill_test_note(twill_check_status_ >= 0, __FILE__, __LINE__, #call,                  \
                             " status %d: %s", twill_check_status_, (error)->message))             \
            return;                                                                                \
    } while (0)

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Pools of threads for tests, which split work that is as small as a test likes. */
#ifndef TEST_POOL_H
#define TEST_POOL_H

#include "kernels/thread_pool.h"
#include "tests/support/unit.h"

/* Make a pool of `threads` threads, one for each `thread_bytes` bytes written. The caller closes it
 * with twill_thread_pool_close(). With one thread it is NULL. */
static inline struct twill_thread_pool *twill_test_pool(unsigned threads, size_t thread_bytes)
{
    const struct twill_thread_pool_options options = {
        .threads = threads, .shared = true, .thread_bytes = thread_bytes};
    struct twill_thread_pool *pool = NULL;
    struct twill_error error = {.status = TWILL_OK};
    if (twill_thread_pool_open(&pool, &options, &error) != TWILL_OK)
        fail_msg("%s", error.message);
    return pool;
}

#endif

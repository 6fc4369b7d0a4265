/* SPDX-License-Identifier: Apache-2.0 */
/* A run of the tests: which sanitizers the program is built with, which samples are drawn (see
 * CONTRIBUTING.md), and where recorded data is. */
#ifndef TWILL_TEST_RUN_H
#define TWILL_TEST_RUN_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TEST_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define TEST_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(TEST_ASAN)
#define TEST_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__) && !defined(TEST_TSAN)
#define TEST_TSAN 1
#endif
#ifndef TEST_ASAN
#define TEST_ASAN 0
#endif
#ifndef TEST_TSAN
#define TEST_TSAN 0
#endif

#define TEST_SLOW (TEST_ASAN || TEST_TSAN)
/* Sanitizers are some ten times slower: sweep less, unless TEST_WHOLE asks for everything. */
#define TEST_FEWER (TEST_SLOW && !test_whole())

/* Return TEST_SEED, or 1. */
uint64_t test_seed(void);
/* Return whether TEST_WHOLE asks for all that is otherwise sampled. */
bool test_whole(void);
/* Return a random number below `below`. */
uint32_t test_draw(uint64_t *state, uint32_t below);
/* Return the number of lines of a file that have both texts; 0 if it cannot be read. */
unsigned test_count_lines(const char *path, const char *words, const char *more);
/* Return the path of a file of tests/data. It is valid until this thread asks for another one. */
const char *test_data(const char *name);

#endif

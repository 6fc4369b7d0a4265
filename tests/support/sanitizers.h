/* SPDX-License-Identifier: Apache-2.0 */
/* Which sanitizers the program is built with, for tests that do less, or other things, under them.
 */
#ifndef TWILL_SANITIZERS_H
#define TWILL_SANITIZERS_H

#include "tests/support/sampling.h"

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

#endif

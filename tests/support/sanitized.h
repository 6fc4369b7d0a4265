/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a sanitizer watches the test: it takes memory and address space of its own. */
#ifndef TWILL_TEST_SANITIZED_H
#define TWILL_TEST_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TWILL_TEST_SANITIZED 1
#else
#define TWILL_TEST_SANITIZED 0
#endif

#endif

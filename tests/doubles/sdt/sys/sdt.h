/* SPDX-License-Identifier: Apache-2.0 */
/* In place of systemtap's: a probe calls a function of the test. Names keep the provider and the
 * order of the arguments. */
#ifndef TWILL_DOUBLE_SDT_H
#define TWILL_DOUBLE_SDT_H

#include <stdint.h>

void twill_test_probe(const char *probe, uint64_t first, uint64_t second, int64_t third);

#define DTRACE_PROBE3(provider, name, first, second, third)                                        \
    twill_test_probe(#provider ":" #name, (uint64_t)(first), (uint64_t)(second), (int64_t)(third))

#endif

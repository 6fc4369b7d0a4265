/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the answer of twill_comm_plan_for() with the plan that the call then takes. */
#ifndef TWILL_TEST_PLANS_H
#define TWILL_TEST_PLANS_H

#include "tests/support/collectives.h"

/* Do test_call_check() of a call on buffers of twill_alloc() on all ranks (`heap`), or on none. Ask
 * before how it would run, and compare. Returns false after noting a failure (ranks.h). */
bool test_plan_check(const struct test_call *call, twill_comm *comm,
                     const struct test_buffers *buffers, bool heap);

#endif

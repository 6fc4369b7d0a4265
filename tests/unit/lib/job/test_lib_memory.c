/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of twill_register() and twill_deregister(). */
#include "lib/twill.h"
#include "tests/support/unit.h"

TWILL_TEST(test_register)
{
    static unsigned char memory[8192];
    twill_comm *comm = NULL;
    assert_int_equal(twill_init(&comm), TWILL_OK);
    twill_context *context = twill_comm_context(comm);
    assert_int_equal(twill_register(NULL, memory, 1), TWILL_ERR_ARGUMENT);
    assert_int_equal(twill_register(context, NULL, 1), TWILL_ERR_ARGUMENT);
    assert_int_equal(twill_register(context, memory, 0), TWILL_ERR_ARGUMENT);
    assert_non_null(strstr(twill_context_message(context), "twill_register"));
    assert_int_equal(twill_deregister(context, memory), TWILL_ERR_ARGUMENT);
    assert_int_equal(twill_register(context, memory, sizeof(memory)), TWILL_OK);
    assert_int_equal(twill_register(context, memory + 100, 1000), TWILL_OK); /* overlapping */
    assert_int_equal(twill_deregister(context, memory + 1), TWILL_ERR_ARGUMENT);
    assert_int_equal(twill_deregister(context, memory), TWILL_OK);
    assert_int_equal(twill_deregister(context, memory), TWILL_ERR_ARGUMENT);
    assert_non_null(strstr(twill_context_message(context), "nothing was registered"));
    void *own = NULL; /* memory of twill_alloc() is not in the list of twill_deregister() */
    assert_int_equal(twill_alloc(context, &own, 100), TWILL_OK);
    assert_int_equal(twill_deregister(context, own), TWILL_ERR_ARGUMENT);
    assert_int_equal(twill_register(context, own, 100), TWILL_OK);
    assert_int_equal(twill_deregister(context, own), TWILL_OK);
    assert_int_equal(twill_free(context, own), TWILL_OK);
    twill_finalize(comm); /* with one region still registered */
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A context and a communicator for the ranks of a test. In a separate file, as not every program
 * with ranks links the library. */
#include "tests/doubles/mock_transport.h"
#include "tests/support/ranks.h"

#include <stdio.h>

bool twill_test_connect(twill_context **context, twill_comm **comm, twill_bootstrap *bootstrap,
                        const char *nodes, const char *mock, const char *const *more)
{
    char nodes_setting[64];
    const char *settings[TWILL_TEST_SETTINGS + 4] = {nodes_setting, "TWILL_INTERFACE=lo"};
    size_t count = 2;
    snprintf(nodes_setting, sizeof(nodes_setting), "TWILL_NODES=%s", nodes);
    test_use_mock(mock);
    for (size_t i = 0; i < TWILL_TEST_SETTINGS && more[i] != NULL; i++)
        settings[count++] = more[i];
    *context = NULL;
    *comm = NULL;
    twill_status status = twill_context_create(context, bootstrap, settings);
    if (status == TWILL_OK)
        status = twill_comm_create(comm, *context);
    return twill_test_note(status == TWILL_OK, __FILE__, __LINE__, "rank %d of %d: %s",
                           bootstrap->rank, bootstrap->size, twill_context_message(*context));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A context and a communicator for the ranks of a test. In a separate file, as not every program
 * with ranks links the library. */
#include "tests/doubles/mock_transport.h"
#include "tests/support/ranks.h"

#include <stdio.h>
#include <string.h>

bool twill_test_connect(twill_context **context, twill_comm **comm, twill_bootstrap *bootstrap,
                        const char *nodes, const char *mock, const char *const *more)
{
    static const char variable[] = "TWILL_LAYOUT=";
    char layout[128];
    const char *settings[TWILL_TEST_SETTINGS + 4] = {layout, "TWILL_INTERFACE=lo"};
    size_t count = 2,
           used = (size_t)snprintf(layout, sizeof(layout), "%snodes=%s", variable, nodes);
    test_use_mock(mock);
    for (size_t i = 0; i < TWILL_TEST_SETTINGS && more[i] != NULL; i++)
        if (strncmp(more[i], variable, strlen(variable)) == 0) /* one setting holds all entries */
            snprintf(layout + used, sizeof(layout) - used, ";%s", more[i] + strlen(variable));
        else
            settings[count++] = more[i];
    *context = NULL;
    *comm = NULL;
    twill_status status = twill_context_create(context, bootstrap, settings);
    if (status == TWILL_OK)
        status = twill_comm_create(comm, *context);
    return TWILL_NOTE(status == TWILL_OK, "rank %d of %d: %s", bootstrap->rank, bootstrap->size,
                      twill_context_message(*context));
}

void twill_test_disconnect(twill_comm *comm, twill_context *context)
{
    twill_comm_destroy(comm);
    twill_context_destroy(context);
}

bool twill_test_open_with(twill_comm **comm, twill_bootstrap *bootstrap, const char *nodes,
                          const char *const *more)
{
    twill_context *context;
    if (twill_test_connect(&context, comm, bootstrap, nodes, NULL, more))
        return true;
    twill_test_disconnect(*comm, context);
    *comm = NULL;
    return false;
}

void twill_test_close(twill_comm *comm)
{
    if (comm != NULL)
        twill_test_disconnect(comm, twill_comm_context(comm));
}

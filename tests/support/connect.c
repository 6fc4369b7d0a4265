/* SPDX-License-Identifier: Apache-2.0 */
/* A context and a communicator for the ranks of a test. In a separate file, as not every program
 * with ranks links the library. */
#include "tests/doubles/mock_transport.h"
#include "tests/support/ranks.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
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

int twill_test_size(const char *layout)
{
    char *end;
    long size = strtol(layout, &end, 10);
    if (*end == 'x')
        size *= strtol(end + 1, &end, 10);
    while (*end == '+')
        size += strtol(end + 1, &end, 10);
    return (int)size;
}

bool twill_test_begin(twill_comm **comm, twill_bootstrap *bootstrap, const char *layout,
                      const char *const *settings)
{
    const char *mock = strchr(layout, ' ');
    char nodes[64] = "";
    twill_context *context;
    if (strcspn(layout, "x+") < strcspn(layout, " "))
        snprintf(nodes, sizeof(nodes), "%.*s", (int)strcspn(layout, " "), layout);
    if (twill_test_connect(&context, comm, bootstrap, nodes, mock != NULL ? mock + 1 : NULL,
                           settings))
        return true;
    twill_test_disconnect(*comm, context);
    return false;
}

void twill_test_end(twill_comm *comm, twill_context *context, twill_bootstrap *bootstrap)
{
    (void)twill_test_barrier(bootstrap);
    if (!twill_test_failed())
        twill_test_disconnect(comm, context);
}

bool twill_test_fine(const twill_comm *comm, twill_status status)
{
    return TWILL_NOTE(status == TWILL_OK, "status %d: %s", status, twill_comm_message(comm));
}

const char *twill_test_text(const char *format, ...)
{
    static _Thread_local char texts[8][512];
    static _Thread_local unsigned count;
    char *text = texts[count++ % TWILL_ARRAY_LENGTH(texts)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(texts[0]), format, arguments);
    va_end(arguments);
    return text;
}

bool twill_test_ends(const twill_comm *comm, twill_status status, twill_status expected,
                     const char *words, const char *call, const char *file, int line)
{
    const char *message = twill_comm_message(comm);
    return twill_test_note(status == expected && strstr(message, words) != NULL, file, line, call,
                           " status %d, not %d with \"%s\": %s", status, expected, words, message);
}

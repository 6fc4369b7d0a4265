/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of transports in tests, without a context: .setting = test_setting, .settings = a list.
 */
#ifndef TWILL_TRANSPORT_SETTINGS_H
#define TWILL_TRANSPORT_SETTINGS_H

#include <stddef.h>
#include <string.h>

struct test_setting {
    const char *variable, *value; /* the list ends with a variable of NULL */
};

static inline const char *test_setting(const void *settings, const char *variable)
{
    for (const struct test_setting *s = settings; s->variable != NULL; s++)
        if (strcmp(s->variable, variable) == 0)
            return s->value;
    return NULL;
}

#endif

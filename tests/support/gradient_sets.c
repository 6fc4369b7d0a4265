/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient sets for tests. */
#include "tests/support/gradient_sets.h"

#include <stdio.h>
#include <string.h>

bool twill_test_set_open(struct twill_test_set *s, twill_bootstrap *bootstrap, const char *nodes,
                         const char *timeout, const char *setting,
                         const twill_gradients_options *options)
{
    const char *const settings[] = {timeout, setting, NULL};
    *s = (struct twill_test_set){NULL, NULL, NULL};
    if (!twill_test_connect(&s->context, &s->comm, bootstrap, nodes, NULL, settings))
        return false;
    return TWILL_NOTE(twill_gradients_create(&s->set, s->comm, options) == TWILL_OK, "%s",
                      twill_comm_message(s->comm));
}

bool twill_test_set_add(struct twill_test_set *s, unsigned index, size_t count, twill_type type,
                        void *gradient, void *parameters)
{
    char name[16];
    snprintf(name, sizeof(name), "tensor%u", index);
    const twill_tensor tensor = {.name = name,
                                 .count = count,
                                 .type = type,
                                 .gradient = gradient,
                                 .parameters = parameters,
                                 .priority = (int)index};
    return twill_test_set_ok(s, twill_gradients_add(s->set, &tensor, NULL));
}

bool twill_test_set_commit(struct twill_test_set *s)
{
    return twill_test_set_ok(s, twill_gradients_commit(s->set));
}

bool twill_test_set_ok(const struct twill_test_set *s, twill_status status)
{
    return TWILL_NOTE(status == TWILL_OK, "%s", twill_gradients_message(s->set));
}

bool twill_test_set_says(const struct twill_test_set *s, const char *words)
{
    const char *message = twill_gradients_message(s->set);
    return TWILL_NOTE(strstr(message, words) != NULL, "'%s' is not in: %s", words, message);
}

void twill_test_set_close(struct twill_test_set *s, twill_bootstrap *bootstrap)
{
    if (bootstrap != NULL)
        (void)twill_test_barrier(bootstrap);
    twill_gradients_destroy(s->set);
    twill_comm_destroy(s->comm);
    twill_context_destroy(s->context);
}

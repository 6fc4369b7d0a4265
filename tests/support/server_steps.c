/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter servers for tests. */
#include "tests/support/server_steps.h"

bool twill_test_server_ok(twill_server *server, twill_status status)
{
    return TWILL_NOTE(status == TWILL_OK, "status %d: %s", status, twill_server_message(server));
}

bool twill_test_server_open(twill_server **server, twill_comm *comm,
                            const twill_server_options *options, const twill_tensor *tensor)
{
    *server = NULL;
    TWILL_REQUIRE(twill_test_fine(comm, twill_server_create(server, comm, options)));
    return twill_test_server_ok(*server, twill_server_add(*server, tensor, NULL)) &&
           twill_test_server_ok(*server, twill_server_commit(*server));
}

bool twill_test_server_step(twill_server *server, int key)
{
    return twill_test_server_ok(server, twill_server_push_pull(server, key)) &&
           twill_test_server_ok(server, twill_server_wait(server, key));
}

bool twill_test_server_push(twill_server *server, int key, size_t count, float value)
{
    float *gradient = twill_server_gradient(server, key);
    TWILL_REQUIRE(gradient != NULL);
    for (size_t i = 0; i < count; i++)
        gradient[i] = value;
    return twill_test_server_step(server, key);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter servers for tests. Each returns false after noting a failure, with the server's
 * message. */
#ifndef TWILL_TEST_SERVER_STEPS_H
#define TWILL_TEST_SERVER_STEPS_H

#include "lib/twill_server.h"
#include "tests/support/ranks.h"

/* A tensor of `n` f32 with memory of the server. */
#define TWILL_TEST_WEIGHTS(n)                                                                      \
    (&(const twill_tensor){.name = "weights", .count = (n), .type = TWILL_F32})

bool twill_test_server_ok(twill_server *server, twill_status status);
/* Create a server of one tensor, and commit it. Destroy it in any case. */
bool twill_test_server_open(twill_server **server, twill_comm *comm,
                            const twill_server_options *options, const twill_tensor *tensor);
/* Push what is in the gradient of a key, pull its parameters, and wait for both. */
bool twill_test_server_step(twill_server *server, int key);
/* The same with a gradient of this value. */
bool twill_test_server_push(twill_server *server, int key, size_t count, float value);

#endif

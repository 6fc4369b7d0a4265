/* SPDX-License-Identifier: Apache-2.0 */
/* A transport that misbehaves on purpose, between ranks that are threads of one process. A program
 * that uses it has a registry of transports with the mock before the others. */
#ifndef TWILL_MOCK_TRANSPORT_H
#define TWILL_MOCK_TRANSPORT_H

#include "fabric/transports.h"

extern const struct twill_transport_ops twill_mock_transport;

/* Let the mock serve all pairs of ranks from now on, as this script says (mock_transport.c); NULL:
 * no longer. The script must stay valid. Any thread. */
void test_use_mock(const char *script);

#endif

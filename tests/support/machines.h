/* SPDX-License-Identifier: Apache-2.0 */
/* The recorded machines of tests/data/topologies. */
#ifndef TWILL_MACHINES_H
#define TWILL_MACHINES_H

#include "numa/topology.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* Open one by file name, or fail the test. */
static inline struct twill_topology *open_recorded(const char *file)
{
    char path[512];
    struct twill_error error = {0};
    struct twill_topology *topology;
    snprintf(path, sizeof(path), TWILL_TEST_DATA "/topologies/%s", file);
    if (twill_topology_open(&topology, path, &error) != TWILL_OK)
        fail_msg("%s: %s", path, error.message);
    return topology;
}

/* Open a described machine, or this one (NULL). */
static inline struct twill_topology *open_machine(const char *text)
{
    struct twill_error error = {0};
    struct twill_topology *topology;
    if (twill_topology_open(&topology, text, &error) != TWILL_OK)
        fail_msg("%s: %s", text != NULL ? text : "this machine", error.message);
    return topology;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The recorded machines of tests/data/topologies. */
#ifndef TWILL_MACHINES_H
#define TWILL_MACHINES_H

#include "numa/topology.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Copy a recorded machine with every `from` replaced by a shorter or equal `to`. */
static inline char *write_altered(const char *file, const char *const (*changes)[2])
{
    char path[512];
    snprintf(path, sizeof(path), TWILL_TEST_DATA "/topologies/%s", file);
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    static char text[1 << 20];
    size_t bytes = fread(text, 1, sizeof(text) - 1, in);
    fclose(in);
    text[bytes] = '\0';
    for (; (*changes)[0] != NULL; changes++) {
        size_t from = strlen((*changes)[0]), to = strlen((*changes)[1]);
        unsigned done = 0;
        for (char *at = text; (at = strstr(at, (*changes)[0])) != NULL; at += to, done++) {
            memcpy(at, (*changes)[1], to);
            memmove(at + to, at + from, strlen(at + from) + 1);
        }
        assert_true(done > 0);
    }
    char *name = strdup("/tmp/twill-topology-XXXXXX");
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    return name;
}

/* Open a recorded machine with changes. */
static inline struct twill_topology *open_altered(const char *file, const char *const (*changes)[2])
{
    char *name = write_altered(file, changes);
    struct twill_topology *topology = open_machine(name);
    unlink(name);
    free(name);
    return topology;
}

#endif

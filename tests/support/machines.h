/* SPDX-License-Identifier: Apache-2.0 */
/* The recorded machines of tests/data/topologies. */
#ifndef TWILL_MACHINES_H
#define TWILL_MACHINES_H

#include "numa/topology.h"
#include "tests/support/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Open a machine by a file or a description, or this one (NULL). Fails the test. */
static inline struct twill_topology *open_machine(const char *text)
{
    struct twill_error error = {0};
    struct twill_topology *topology;
    if (twill_topology_open(&topology, text, &error) != TWILL_OK)
        fail_msg("%s: %s", text != NULL ? text : "this machine", error.message);
    return topology;
}

static inline const char *recorded_path(const char *file)
{
    char name[256];
    snprintf(name, sizeof(name), "topologies/%s", file);
    return test_data(name);
}

static inline struct twill_topology *open_recorded(const char *file)
{
    return open_machine(recorded_path(file));
}

/* Write a file; return its name, which is valid until the next call. The caller unlinks it. */
static inline const char *write_machine(const void *bytes, size_t count)
{
    static char name[40];
    snprintf(name, sizeof(name), "/tmp/twill-topology-XXXXXX");
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    close(fd);
    return name;
}

/* Open a recorded machine with every `from` replaced by a shorter or equal `to`. */
static inline struct twill_topology *open_altered(const char *file, const char *const (*changes)[2])
{
    FILE *in = fopen(recorded_path(file), "r");
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
    const char *name = write_machine(text, strlen(text));
    struct twill_topology *topology = open_machine(name);
    unlink(name);
    return topology;
}

#endif

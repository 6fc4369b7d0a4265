/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench latency, bandwidth, ...: messages between ranks, over each transport, with the
 * columns of OSU's micro-benchmarks. */
#ifndef TWILL_BENCH_FABRIC_H
#define TWILL_BENCH_FABRIC_H

#include "bench/common/json_file.h"
#include "bench/common/tool_calls.h"
#include "lib/twill.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* X(enumerator, name, what it measures) */
#define FABRIC_MEASUREMENTS(X)                                                                     \
    X(FABRIC_LATENCY, "latency", "a message and its answer, half of it")                           \
    X(FABRIC_BANDWIDTH, "bandwidth", "a window of messages from one rank to another")              \
    X(FABRIC_BIBW, "bibw", "the same, both ways at once")                                          \
    X(FABRIC_RATE, "rate", "messages a second of one pair, small ones")                            \
    X(FABRIC_MULTI_PAIR, "multi-pair",                                                             \
      "all pairs at once: rank i of the first half sends to i + P/2")                              \
    X(FABRIC_INCAST, "incast", "all other ranks send to rank 0")                                   \
    X(FABRIC_OVERLAP, "overlap", "how much of an exchange of two ranks computing hides")           \
    X(FABRIC_REGISTRATION, "registration", "the first message out of new memory, and later ones")

#define FABRIC_ENUMERATOR(enumerator, name, help) enumerator,
enum fabric_measurement { FABRIC_MEASUREMENTS(FABRIC_ENUMERATOR) FABRIC_MEASUREMENT_COUNT };

#define FABRIC_MOST_TRANSPORTS 16
#define FABRIC_TRANSPORT_NAME  64

struct fabric_options {
    enum fabric_measurement measurement;
    size_t min_bytes, max_bytes, factor;
    size_t iterations; /* 0: fewer for larger messages */
    size_t warmups, window, timeout;
    bool check, placed, csv, pingpong;
    bool calls, alone; /* --interface: the library's calls; the transports alone */
    const char *output;
    char transport[FABRIC_MOST_TRANSPORTS][FABRIC_TRANSPORT_NAME];
    size_t transports;
    bool all; /* a transport that is not here is left out instead of an error */
};

/* Return the measurement of this name, or a negative number. */
int fabric_find(const char *name);
const char *fabric_name(enum fabric_measurement measurement);
/* Parse the command line, argv[1] being a measurement. Returns false when the program is to end
 * with *status. Prints only if `speak`. */
bool fabric_parse(struct fabric_options *options, int argc, char **argv, bool speak, int *status);

/* --- fabric_channel.c, fabric_transport.c: what carries the messages -----------------------------
 */

struct fabric_channel;

/* Messages between two ranks arrive in the order in which they were started. */
struct fabric_channel_ops {
    /* Start a message in a slot, which has none in progress. */
    twill_status (*send)(struct fabric_channel *channel, size_t slot, void *data, size_t bytes,
                         int to);
    twill_status (*recv)(struct fabric_channel *channel, size_t slot, void *data, size_t bytes,
                         int from);
    /* Wait for the slots from `first` on. */
    twill_status (*wait)(struct fabric_channel *channel, size_t first, size_t count);
    /* Make progress once. */
    twill_status (*test)(struct fabric_channel *channel, size_t slot);
    /* A message at once, waited for. */
    twill_status (*send_now)(struct fabric_channel *channel, void *data, size_t bytes, int to);
    twill_status (*recv_now)(struct fabric_channel *channel, void *data, size_t bytes, int from);
    /* Set memory registrations with the network so far, and uses of registered memory. */
    void (*count)(struct fabric_channel *channel, unsigned long long *registrations,
                  unsigned long long *hits);
    void (*close)(struct fabric_channel *channel);
};

/* One way between all ranks of the job. */
struct fabric_channel {
    const struct fabric_channel_ops *ops;
    const char *transport; /* as named in --transport */
    const char *interface; /* "calls" or "alone" */
    size_t slots;
    char what[256];         /* what carries the messages, in words; after a failure, why */
    void *own;              /* of the implementation */
    twill_comm *world;      /* the job's own communicator, for exchanges beside the measurement */
    twill_context *context; /* whose twill_alloc() has the buffers */
};

/* Open a channel by a context of its own, with the settings that lead to this transport, or by the
 * transport without a library above it. Collective over `world`; all ranks get the same status. */
twill_status fabric_calls_open(struct fabric_channel *channel, twill_comm *world,
                               const struct fabric_options *options);
twill_status fabric_alone_open(struct fabric_channel *channel, twill_comm *world,
                               const struct fabric_options *options);

/* --- fabric_measure.c ------------------------------------------------------------------------- */

#define FABRIC_COLUMNS 5

struct fabric_column {
    const char *title; /* of the table, as OSU has it */
    const char *key;   /* of JSON and CSV, with the unit */
    int decimals;
};
/* Return the columns of a measurement, FABRIC_COLUMNS at most; title NULL ends them. */
const struct fabric_column *fabric_columns(enum fabric_measurement measurement);

struct fabric_row {
    size_t bytes, iterations;
    double value[FABRIC_COLUMNS];
    long long wrong; /* bytes of all ranks; negative: not checked */
    double pingpong; /* fi_pingpong's, microseconds or MB/s; 0: none */
};

struct fabric_run {
    struct fabric_options options;
    twill_context *context;
    twill_comm *world;
    int rank, size;
    int peer;   /* the other rank of this rank's pair; -1: none */
    bool first; /* of the pair: the one that begins */
    struct fabric_channel *channel;
    unsigned char *out, *in; /* `buffers` buffers of `stride` bytes each */
    size_t buffers, stride;
    double *samples; /* [iterations at most] */
    size_t most_samples;
    struct twill_json_file json; /* rank 0 with --json */
    struct json_object *json_rows, *json_absent;
};

/* Measure one size; collective. Values are set on every rank. */
twill_status fabric_measure(struct fabric_run *run, size_t bytes, struct fabric_row *row);
/* Return how many slots the measurement needs on a rank. */
size_t fabric_slots(const struct fabric_options *options, int size);
/* Set who sends to whom: at most size - 1 ranks to receive from. */
struct fabric_flow {
    int to;           /* -1: none */
    int first, count; /* ranks to receive from: first, first + 1, ... */
};
struct fabric_flow fabric_flow(const struct fabric_run *run);

/* --- fabric.c --------------------------------------------------------------------------------- */

/* twill-bench with a measurement as its first argument; returns the exit status. */
int fabric_main(int argc, char **argv, bool speak);

#endif

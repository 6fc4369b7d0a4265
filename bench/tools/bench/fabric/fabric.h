/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench latency, bandwidth, ... measure messages over each transport, with OSU's columns. */
#ifndef TWILL_BENCH_FABRIC_H
#define TWILL_BENCH_FABRIC_H

#include "bench/common/json_file.h"
#include "bench/common/progress_line.h"
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

/* By what messages are sent: calls of the library, a transport alone, or puts into a window. */
enum fabric_interface { FABRIC_CALLS, FABRIC_ALONE, FABRIC_PUTS, FABRIC_INTERFACES };

#define FABRIC_MOST_TRANSPORTS 16
#define FABRIC_TRANSPORT_NAME  64

/* The command line, set by fabric_parse(). Sizes grow from min_bytes to max_bytes by `factor`.
 * `window` is the number of messages in flight from a sender, and `timeout` is in seconds, 0 for
 * the default. With `placed` buffers come from twill_alloc(), otherwise from malloc(). With
 * `pingpong` libfabric's fi_pingpong is also run. */
struct fabric_options {
    enum fabric_measurement measurement;
    size_t min_bytes, max_bytes, factor;
    size_t iterations; /* 0 for fewer with larger messages */
    size_t warmups, window, timeout;
    bool check, placed, csv, pingpong;
    bool use[FABRIC_INTERFACES]; /* --interface */
    const char *output;          /* JSON file, or NULL */
    char transport[FABRIC_MOST_TRANSPORTS][FABRIC_TRANSPORT_NAME];
    size_t transports; /* number of them */
    bool all;          /* a transport that is missing is omitted instead of being an error */
};

/* Return the measurement with this name, or a negative number. */
int fabric_find(const char *name);
/* Return the name of a measurement as on the command line. */
const char *fabric_name(enum fabric_measurement measurement);
/* Parse a command line whose argv[1] is the name of a measurement. Returns false if the program
 * must end with the exit status *status, which it does after --help and if the line is wrong.
 * Prints what is wrong if `speak`. */
bool fabric_parse(struct fabric_options *options, int argc, char **argv, bool speak, int *status);

struct fabric_channel;

/* The constant operations of a channel. Messages between two ranks arrive in order of start. */
struct fabric_channel_ops {
    /* Start a message in a slot, which has none in progress. */
    twill_status (*send)(struct fabric_channel *channel, size_t slot, void *data, size_t bytes,
                         int to);
    twill_status (*recv)(struct fabric_channel *channel, size_t slot, void *data, size_t bytes,
                         int from);
    /* Wait until the messages in slots `first` to `first` + `count` - 1 are complete. */
    twill_status (*wait)(struct fabric_channel *channel, size_t first, size_t count);
    /* Make progress once. Does not report whether the slot's message is complete. */
    twill_status (*test)(struct fabric_channel *channel, size_t slot);
    /* Send or receive a message and wait for it. */
    twill_status (*send_now)(struct fabric_channel *channel, void *data, size_t bytes, int to);
    twill_status (*recv_now)(struct fabric_channel *channel, void *data, size_t bytes, int from);
    /* Get the number of memory registrations so far, and of uses of registered memory. */
    void (*count)(struct fabric_channel *channel, unsigned long long *registrations,
                  unsigned long long *hits);
    /* Free what the channel has, but not the struct. Must be called also after a failed open. */
    void (*close)(struct fabric_channel *channel);
};

/* A means of communication between all ranks of the job. A variable of its caller, who sets
 * `transport` and `slots`. fabric_calls_open() or fabric_alone_open() sets the rest, and
 * ops->close() frees what they made, but not the struct. */
struct fabric_channel {
    const struct fabric_channel_ops *ops;
    const char *transport; /* as named in --transport */
    const char *interface; /* "calls", "alone" or "puts" */
    size_t slots;          /* how many messages may be in progress, in slots numbered from 0 */
    char what[256];        /* description of what carries the messages, or of a failure */
    void *own;             /* state of the implementation */
    twill_comm *world;     /* the communicator of the job, for exchanges besides the measurement */
    /* A context for "calls" and "puts", whose twill_alloc() has the buffers with --memory twill,
     * destroyed by ops->close(). NULL for "alone". */
    twill_context *context;
};

/* Make a channel work by calls of the library, in a context whose settings lead to the transport.
 * If `puts`, they are puts, of which one may be under way in each direction. The caller has set
 * channel->transport and channel->slots. Collective over `world`. On failure channel->what says
 * why. The caller calls channel->ops->close(), also after a failure. */
twill_status fabric_calls_open(struct fabric_channel *channel, twill_comm *world,
                               const struct fabric_options *options, bool puts);
/* Make a channel use its transport directly, without communicators and calls of the library. The
 * caller has set channel->transport and channel->slots. Collective over `world`, by which the ranks
 * exchange their addresses. On failure channel->what says why. The caller calls
 * channel->ops->close(), also after a failure. */
twill_status fabric_alone_open(struct fabric_channel *channel, twill_comm *world,
                               const struct fabric_options *options);

#define FABRIC_COLUMNS 5

/* A column of results, in a constant table of a measurement. */
struct fabric_column {
    const char *title; /* in the table, as OSU has it */
    const char *key;   /* in JSON and CSV, with the unit */
    int decimals;
};
/* Return the columns of a measurement, at most FABRIC_COLUMNS. A title of NULL ends them. */
const struct fabric_column *fabric_columns(enum fabric_measurement measurement);

/* The results for one size, a variable of the caller of fabric_measure(). */
struct fabric_row {
    size_t bytes, iterations;
    double value[FABRIC_COLUMNS]; /* of the columns of fabric_columns() */
    long long wrong;              /* bytes of all ranks, negative if not checked */
    double pingpong; /* of fi_pingpong, in microseconds or MB/s, or 0 if there is none */
};

/* The state of a run on one rank, a variable of fabric_main(). `channel` is the open one, a
 * variable of measure_channel(), or NULL. */
struct fabric_run {
    struct fabric_options options;
    twill_context *context;
    twill_comm *world;
    int rank, size;
    int peer;   /* the other rank of the pair of this rank, or -1 */
    bool first; /* this rank begins in its pair */
    struct twill_bench_progress progress;
    size_t done; /* sizes measured, by all channels */
    struct fabric_channel *channel;
    unsigned char *out, *in; /* `buffers` buffers of `stride` bytes each */
    size_t buffers, stride;
    double *samples; /* [most_samples] seconds, up to two of each iteration */
    size_t most_samples;
    struct twill_json_file json; /* on rank 0 with --json */
    struct json_object *json_rows, *json_absent;
};

/* Measure messages of `bytes` bytes and set *row, on every rank. With options.check it then counts
 * wrong bytes, and with options.pingpong runs fi_pingpong. Collective. */
twill_status fabric_measure(struct fabric_run *run, size_t bytes, struct fabric_row *row);
/* Return the number of slots that the channel of a rank needs for the measurement. Each slot has
 * one message that is in progress. */
size_t fabric_slots(const struct fabric_options *options, int size);
/* With whom a rank exchanges messages in a measurement. It sends to at most one rank and may
 * receive from several. A value, as fabric_flow() returns it. */
struct fabric_flow {
    int to;           /* the rank to which it sends, or -1 */
    int first, count; /* it receives from ranks first to first + count - 1 */
};
/* Return to which rank this rank sends in the measurement, and from which it receives. */
struct fabric_flow fabric_flow(const struct fabric_run *run);

/* Run twill-bench MEASUREMENT. Prints a wrong command line if `speak`. Returns the exit status. */
int fabric_main(int argc, char **argv, bool speak);

#endif

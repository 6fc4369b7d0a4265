/* SPDX-License-Identifier: Apache-2.0 */
/* Messages by calls of the library, in a separate context whose settings lead to a transport. */
#include "bench/tools/bench/fabric/fabric.h"
#include "lib/twill_window.h"

#include <stdlib.h>
#include <string.h>

/* The state of a channel by calls of the library, in channel->own. Made by fabric_calls_open() and
 * freed by calls_close(). */
struct calls {
    twill_context *context;
    twill_comm *comm;
    twill_request **requests; /* [slots] */
    twill_window *window;     /* for puts, or NULL */
    void *memory;             /* of the window */
    uint64_t taken;           /* puts that this rank has waited for */
    void *in;                 /* where puts_wait() is to copy a put to, or NULL */
    size_t in_bytes;
};

/* Start to send a message, as the request of a slot. */
static twill_status calls_send(struct fabric_channel *channel, size_t slot, void *data,
                               size_t bytes, int to)
{
    struct calls *calls = channel->own;
    return twill_send_start(calls->comm, data, bytes, TWILL_U8, to, &calls->requests[slot]);
}

/* Start to receive a message, as the request of a slot. */
static twill_status calls_recv(struct fabric_channel *channel, size_t slot, void *data,
                               size_t bytes, int from)
{
    struct calls *calls = channel->own;
    return twill_recv_start(calls->comm, data, bytes, TWILL_U8, from, &calls->requests[slot]);
}

/* Wait for the requests of `count` slots from `first` on. */
static twill_status calls_wait(struct fabric_channel *channel, size_t first, size_t count)
{
    struct calls *calls = channel->own;
    return twill_wait_all(count, calls->requests + first);
}

/* Make progress, by a test of the request in a slot. Does not report whether that is complete. */
static twill_status calls_test(struct fabric_channel *channel, size_t slot)
{
    struct calls *calls = channel->own;
    int done;
    return twill_test(&calls->requests[slot], &done);
}

/* Send a message and wait until its buffer can be used again. */
static twill_status calls_send_now(struct fabric_channel *channel, void *data, size_t bytes, int to)
{
    struct calls *calls = channel->own;
    return twill_send(calls->comm, data, bytes, TWILL_U8, to);
}

/* Receive a message and wait for it. */
static twill_status calls_recv_now(struct fabric_channel *channel, void *data, size_t bytes,
                                   int from)
{
    struct calls *calls = channel->own;
    return twill_recv(calls->comm, data, bytes, TWILL_U8, from);
}

/* Set the numbers of registrations and of reused ones, by the communicator's counters. */
static void calls_count(struct fabric_channel *channel, unsigned long long *registrations,
                        unsigned long long *hits)
{
    const struct calls *calls = channel->own;
    twill_counters counters = {0};
    (void)twill_comm_counters(calls->comm, &counters);
    *registrations = counters.registrations;
    *hits = counters.registration_hits;
}

/* Destroy the communicator and context of the channel and free its state. Frees no struct of the
 * caller. */
static void calls_close(struct fabric_channel *channel)
{
    struct calls *calls = channel->own;
    if (calls == NULL)
        return;
    twill_window_destroy(calls->window);
    twill_comm_destroy(calls->comm);
    twill_context_destroy(calls->context);
    free(calls->requests);
    free(calls);
    channel->own = NULL;
}

static const struct fabric_channel_ops calls_ops = {.send = calls_send,
                                                    .recv = calls_recv,
                                                    .wait = calls_wait,
                                                    .test = calls_test,
                                                    .send_now = calls_send_now,
                                                    .recv_now = calls_recv_now,
                                                    .count = calls_count,
                                                    .close = calls_close};

/* Start a put to the begin of the window of a rank. */
static twill_status puts_send(struct fabric_channel *channel, size_t slot, void *data, size_t bytes,
                              int to)
{
    (void)slot;
    return twill_put(((struct calls *)channel->own)->window, data, bytes, to, 0, 0);
}

/* Let puts_wait() wait for a put and copy it. */
static twill_status puts_recv(struct fabric_channel *channel, size_t slot, void *data, size_t bytes,
                              int from)
{
    struct calls *calls = channel->own;
    (void)slot;
    (void)from;
    calls->in = data;
    calls->in_bytes = bytes;
    return TWILL_OK;
}

/* Wait for the next put, which stays in the window. */
static twill_status puts_recv_now(struct fabric_channel *channel, void *data, size_t bytes,
                                  int from)
{
    struct calls *calls = channel->own;
    (void)data;
    (void)bytes;
    (void)from;
    return twill_wait_signal(calls->window, 0, ++calls->taken, NULL);
}

static twill_status puts_wait(struct fabric_channel *channel, size_t first, size_t count)
{
    struct calls *calls = channel->own;
    (void)first;
    (void)count;
    if (calls->in != NULL) {
        TWILL_BENCH_TRY(puts_recv_now(channel, NULL, 0, 0));
        memcpy(calls->in, calls->memory, calls->in_bytes);
        calls->in = NULL;
    }
    return twill_window_flush(calls->window);
}

/* Put, and wait until the source can be used again. */
static twill_status puts_send_now(struct fabric_channel *channel, void *data, size_t bytes, int to)
{
    TWILL_BENCH_TRY(puts_send(channel, 0, data, bytes, to));
    return twill_window_flush(((struct calls *)channel->own)->window);
}

static const struct fabric_channel_ops puts_ops = {.send = puts_send,
                                                   .recv = puts_recv,
                                                   .wait = puts_wait,
                                                   .send_now = puts_send_now,
                                                   .recv_now = puts_recv_now,
                                                   .close = calls_close};

/* Create a window with room for the largest message. */
static twill_status open_window(struct calls *calls, size_t bytes)
{
    TWILL_BENCH_TRY(twill_alloc(calls->context, &calls->memory, bytes));
    memset(calls->memory, 0, bytes);
    return twill_window_create(&calls->window, calls->comm, calls->memory, bytes, 1);
}

/* Copy the last line of the context's description that names a transport between ranks to
 * channel->what. */
static void describe_calls(struct fabric_channel *channel, const struct calls *calls)
{
    const char *line;
    for (size_t i = 0; (line = twill_context_describe(calls->context, i)) != NULL; i++)
        if (strncmp(line, "transport: ", 11) == 0 && strncmp(line + 11, "self", 4) != 0)
            snprintf(channel->what, sizeof(channel->what), "%.240s", line + 11);
}

/* Create a context and communicator that use channel->transport. Unless that is "shm" or "default",
 * each rank is a virtual node, so that all messages go over it. Returns TWILL_ERR_FABRIC for "shm"
 * if the ranks are on several hosts. */
static twill_status connect_calls(struct fabric_channel *channel, struct calls *calls,
                                  const struct fabric_options *options)
{
    char provider[FABRIC_TRANSPORT_NAME + 24], layout[48], timeout[48];
    const char *settings[] = {NULL, NULL, NULL, NULL};
    size_t given = 0;
    twill_bootstrap bootstrap = twill_bench_bootstrap(channel->world);
    bool shm = strcmp(channel->transport, "shm") == 0;
    snprintf(layout, sizeof(layout), "TWILL_LAYOUT=nodes=%dx1", bootstrap.size);
    snprintf(provider, sizeof(provider), "TWILL_PROVIDER=%s", channel->transport);
    snprintf(timeout, sizeof(timeout), "TWILL_TIMEOUT=%zu", options->timeout);
    if (strcmp(channel->transport, "default") != 0) {
        settings[given++] = shm ? "TWILL_LAYOUT=nodes=" : layout;
        if (!shm)
            settings[given++] = provider;
    }
    if (options->timeout > 0)
        settings[given++] = timeout;
    TWILL_BENCH_TRY(twill_context_create(&calls->context, &bootstrap, settings));
    TWILL_BENCH_TRY(twill_comm_create(&calls->comm, calls->context));
    if (shm && twill_comm_nodes(calls->comm) > 1) {
        snprintf(channel->what, sizeof(channel->what), "ranks are on several hosts");
        return TWILL_ERR_FABRIC;
    }
    return TWILL_OK;
}

twill_status fabric_calls_open(struct fabric_channel *channel, twill_comm *world,
                               const struct fabric_options *options, bool puts)
{
    struct calls *calls = calloc(1, sizeof(*calls));
    channel->ops = puts ? &puts_ops : &calls_ops;
    channel->interface = puts ? "puts" : "calls";
    channel->world = world;
    channel->own = calls;
    if (calls == NULL)
        return TWILL_ERR_MEMORY;
    calls->requests = calloc(channel->slots, sizeof(*calls->requests));
    twill_status status = calls->requests == NULL ? TWILL_ERR_MEMORY : TWILL_OK;
    if (status == TWILL_OK)
        status = connect_calls(channel, calls, options);
    if (status == TWILL_OK && puts)
        status = open_window(calls, options->max_bytes);
    if (status == TWILL_OK) {
        channel->context = calls->context;
        describe_calls(channel, calls);
    } else if (channel->what[0] == '\0') {
        snprintf(channel->what, sizeof(channel->what), "%.250s",
                 twill_bench_why(calls->comm, calls->context, status));
    }
    return status;
}

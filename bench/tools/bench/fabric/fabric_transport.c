/* SPDX-License-Identifier: Apache-2.0 */
/* Messages by a transport alone. The difference is the cost of the calls of the library. */
#include "bench/tools/bench/fabric/fabric.h"
#include "fabric/bootstrap/oob_batch.h"
#include "fabric/shm/node_memory.h"
#include "fabric/transports.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* The state of a channel by a transport alone, in channel->own. Made by fabric_alone_open() and
 * freed by alone_close(). */
struct alone {
    struct twill_oob *oob;
    struct twill_world world;
    struct twill_node *node;
    struct twill_common *common;
    struct twill_transport_params params;
    struct twill_transport *transport;
    struct twill_transfer *transfers; /* [slots + 1], the last for send_now and recv_now */
    struct twill_error error;
    uint64_t patience; /* nanoseconds without progress after which it is an error */
};

/* Copy the message of a failure to channel->what. Returns `status`. */
static twill_status alone_failed(struct fabric_channel *channel, twill_status status)
{
    const struct alone *alone = channel->own;
    snprintf(channel->what, sizeof(channel->what), "%.250s", alone->error.message);
    return status;
}

/* Start a message in a slot. On failure channel->what says why. */
static twill_status alone_post(struct fabric_channel *channel, size_t slot,
                               enum twill_transfer_kind kind, void *data, size_t bytes, int peer)
{
    struct alone *alone = channel->own;
    struct twill_transfer *transfer = &alone->transfers[slot];
    transfer->status = TWILL_PENDING;
    transfer->kind = (uint8_t)kind;
    transfer->lane = TWILL_POINT_LANE;
    transfer->peer = (uint32_t)peer;
    transfer->signature = 1;
    transfer->buffer = data;
    transfer->bytes = bytes;
    transfer->reduce = NULL;
    transfer->bounce = NULL;
    transfer->last = (struct twill_last_entry){0};
    twill_status status = alone->transport->ops->post(alone->transport, transfer, &alone->error);
    return status == TWILL_OK ? status : alone_failed(channel, status);
}

/* Start to send a message, as the transfer of a slot. */
static twill_status alone_send(struct fabric_channel *channel, size_t slot, void *data,
                               size_t bytes, int to)
{
    return alone_post(channel, slot, TWILL_TRANSFER_SEND, data, bytes, to);
}

/* Start to receive a message, as the transfer of a slot. */
static twill_status alone_recv(struct fabric_channel *channel, size_t slot, void *data,
                               size_t bytes, int from)
{
    return alone_post(channel, slot, TWILL_TRANSFER_RECV, data, bytes, from);
}

/* Poll the transport once. *idle counts polls since the last progress, *since is when they began.
 * Both are 0 at first. After each 256 such polls, yield the core. Returns TWILL_ERR_TIMEOUT if
 * nothing moves for alone->patience, with the reason in channel->what. */
static twill_status alone_poll(struct fabric_channel *channel, uint64_t *idle, uint64_t *since)
{
    struct alone *alone = channel->own;
    int moved = alone->transport->ops->progress(alone->transport, &alone->error);
    if (moved < 0)
        return alone_failed(channel, (twill_status)moved);
    *idle = moved > 0 ? 0 : *idle + 1;
    if (*idle % 256 != 255)
        return TWILL_OK;
    sched_yield();
    if (*idle < 512)
        *since = twill_now();
    if (twill_now() - *since < alone->patience)
        return TWILL_OK;
    snprintf(channel->what, sizeof(channel->what), "no message for %llu s",
             (unsigned long long)(alone->patience / 1000000000));
    return TWILL_ERR_TIMEOUT;
}

/* Poll until `count` slots from `first` on are done. On failure channel->what says why. */
static twill_status alone_wait(struct fabric_channel *channel, size_t first, size_t count)
{
    struct alone *alone = channel->own;
    uint64_t idle = 0, since = 0;
    for (size_t i = first; i < first + count; i++) {
        volatile int32_t *status = &alone->transfers[i].status;
        while (*status == TWILL_PENDING)
            TWILL_BENCH_TRY(alone_poll(channel, &idle, &since));
        if (*status != TWILL_OK) {
            snprintf(channel->what, sizeof(channel->what), "a message failed: %s",
                     twill_strerror((twill_status)*status));
            return (twill_status)*status;
        }
    }
    return TWILL_OK;
}

/* Poll once for all slots, whichever is given. */
static twill_status alone_test(struct fabric_channel *channel, size_t slot)
{
    uint64_t idle = 0, since = 0;
    (void)slot;
    return alone_poll(channel, &idle, &since);
}

/* Send a message and wait until its buffer can be used again. */
static twill_status alone_send_now(struct fabric_channel *channel, void *data, size_t bytes, int to)
{
    TWILL_BENCH_TRY(alone_send(channel, channel->slots, data, bytes, to));
    return alone_wait(channel, channel->slots, 1);
}

/* Receive a message and wait for it. */
static twill_status alone_recv_now(struct fabric_channel *channel, void *data, size_t bytes,
                                   int from)
{
    TWILL_BENCH_TRY(alone_recv(channel, channel->slots, data, bytes, from));
    return alone_wait(channel, channel->slots, 1);
}

/* Set the numbers of registrations and of reused ones, by the transport's counters. */
static void alone_count(struct fabric_channel *channel, unsigned long long *registrations,
                        unsigned long long *hits)
{
    const struct alone *alone = channel->own;
    struct twill_transport_counters counters = {0};
    twill_transport_count(alone->transport, &counters);
    *registrations = counters.registrations;
    *hits = counters.registration_hits;
}

/* Close the transport of the channel and what it uses, and free the state of the channel. Frees no
 * struct of the caller. */
static void alone_close(struct fabric_channel *channel)
{
    struct alone *alone = channel->own;
    if (alone == NULL)
        return;
    if (alone->transport != NULL)
        alone->transport->ops->close(alone->transport);
    if (alone->common != NULL)
        alone->common->close(alone->common);
    if (alone->node != NULL)
        twill_node_close(alone->node);
    twill_world_destroy(&alone->world);
    if (alone->oob != NULL)
        twill_oob_close(alone->oob);
    free(alone->transfers);
    free(alone);
    channel->own = NULL;
}

static const struct fabric_channel_ops alone_ops = {.send = alone_send,
                                                    .recv = alone_recv,
                                                    .wait = alone_wait,
                                                    .test = alone_test,
                                                    .send_now = alone_send_now,
                                                    .recv_now = alone_recv_now,
                                                    .count = alone_count,
                                                    .close = alone_close};

/* Share memory with all ranks, and set the label of each one's node. Fails on several hosts. */
static twill_status share_node(struct alone *alone, uint32_t *label)
{
    struct twill_oob_batch batch = {.oob = alone->oob};
    struct twill_error *error = &alone->error;
    const char *why = NULL;
    twill_status status = twill_node_offer(&alone->node, alone->oob, &batch, error);
    TWILL_BENCH_TRY(twill_oob_batch_exchange(&batch, status, error));
    status = twill_node_attach(alone->node, alone->oob, label, 4096, twill_shm_pair_bytes(), NULL,
                               &batch, error);
    TWILL_BENCH_TRY(twill_oob_batch_exchange(&batch, status, error));
    TWILL_BENCH_TRY(twill_node_conclude(alone->node, alone->oob, label, &why, error));
    return why == NULL ? TWILL_OK
                       : TWILL_FAIL(error, TWILL_ERR_FABRIC, "ranks share no memory: %s", why);
}

/* Connect all ranks by the transport of the channel. On failure alone->error says why. */
static twill_status connect_alone(struct fabric_channel *channel, struct alone *alone)
{
    struct twill_error *error = &alone->error;
    const char *name = channel->transport;
    bool shm = strcmp(name, "shm") == 0;
    twill_bootstrap caller = twill_bench_bootstrap(channel->world);
    uint32_t ranks = (uint32_t)caller.size;
    struct twill_bootstrap_params boot = {
        .caller = &caller, .interface = getenv("TWILL_INTERFACE"), .timeout_ns = alone->patience};
    uint32_t *label = calloc(ranks, sizeof(*label));
    if (label == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "no memory for %u ranks", ranks);
    twill_status status = twill_bootstrap_open(&alone->oob, &boot, error);
    for (uint32_t r = 0; r < ranks && !shm; r++)
        label[r] = r;
    if (status == TWILL_OK && shm)
        status = share_node(alone, label);
    if (status == TWILL_OK)
        status = twill_world_create(&alone->world, ranks, label, error);
    free(label);
    TWILL_BENCH_TRY(status);
    const struct twill_transport_ops *ops = shm                        ? &twill_shm_transport
                                            : strcmp(name, "tcp") == 0 ? &twill_tcp_transport
                                                                       : &twill_ofi_transport;
    alone->params = (struct twill_transport_params){.oob = alone->oob,
                                                    .world = &alone->world,
                                                    .comm = 1,
                                                    .common = &alone->common,
                                                    .node = alone->node,
                                                    .internode = ops,
                                                    .provider = shm ? NULL : name,
                                                    .interface = boot.interface};
    TWILL_BENCH_TRY(ops->open(&alone->transport, &alone->params, error));
    for (uint32_t r = 0; r < ranks && ops->connect != NULL; r++)
        if (r != (uint32_t)caller.rank)
            TWILL_BENCH_TRY(ops->connect(alone->transport, r, error));
    snprintf(channel->what, sizeof(channel->what), "%.250s", ops->describe(alone->transport));
    return TWILL_OK;
}

twill_status fabric_alone_open(struct fabric_channel *channel, twill_comm *world,
                               const struct fabric_options *options)
{
    struct alone *alone = calloc(1, sizeof(*alone));
    channel->ops = &alone_ops;
    channel->interface = "alone";
    channel->world = world;
    channel->own = alone;
    if (alone == NULL)
        return TWILL_ERR_MEMORY;
    alone->patience = (options->timeout > 0 ? options->timeout : 60) * UINT64_C(1000000000);
    alone->transfers = calloc(channel->slots + 1, sizeof(*alone->transfers));
    twill_status status = alone->transfers == NULL ? TWILL_ERR_MEMORY : TWILL_OK;
    if (status == TWILL_OK)
        status = connect_alone(channel, alone);
    if (status != TWILL_OK && channel->what[0] == '\0')
        snprintf(channel->what, sizeof(channel->what), "%.250s", alone->error.message);
    return status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of the ofi transport for its tests: one per rank, and messages with known contents. */
#ifndef TWILL_OFI_ENDS_H
#define TWILL_OFI_ENDS_H

#include "fabric/ofi/ofi.h"
#include "tests/support/messages.h"
#include "tests/support/run.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND 1000000000ull

/* How a run is set up: the provider and options. */
struct setup {
    const char *name;
    const char *provider;
    struct twill_ofi_options options;
};

static const struct setup setups[] = {
    {"tcp", "tcp", {0}},
    {"registering", "tcp", {.force_registration = true}},
    {"without inject", "tcp", {.no_inject = true}},
    {"short messages", "tcp", {.max_message = 4160}},
    {"busy", "tcp", {.again = 3, .max_message = 65536}},
    {"everything", "tcp", {true, true, 100000, 2, false, 0}},
    {"sockets", "sockets", {0}},
#if !TEST_ASAN /* net of libfabric 1.17 leaks at fi_close */
    {"net", "net", {0}},
#endif
};
#define TCP (&setups[0])

/* A rank's transport with its parameters. */
struct end {
    struct twill_oob *oob;
    struct twill_transport *transport;
    struct twill_transport_params params;
    struct twill_error error;
    uint32_t rank, size;
};

/* Where an end is; each member may be NULL. */
struct place {
    struct twill_common **common; /* shared by several ends of a rank */
    const char *interface;        /* TWILL_INTERFACE */
    const char *address;          /* under which other ranks reach this one; default 127.0.0.1 */
};

static inline bool end_open_at(struct end *end, twill_bootstrap *caller, const struct setup *setup,
                               uint32_t comm, const struct place *place)
{
    memset(end, 0, sizeof(*end));
    end->oob = twill_test_oob(caller);
    TWILL_REQUIRE(end->oob != NULL);
    end->rank = (uint32_t)caller->rank;
    end->size = (uint32_t)caller->size;
    if (place->address != NULL)
        snprintf(end->oob->address, sizeof(end->oob->address), "%s", place->address);
    end->params = (struct twill_transport_params){.oob = end->oob,
                                                  .comm = comm,
                                                  .provider = setup->provider,
                                                  .interface = place->interface,
                                                  .common = place->common};
    twill_status status =
        twill_ofi_open(&end->transport, &end->params, &setup->options, &end->error);
    TWILL_REQUIRE(status == TWILL_OK, "open %s: %d: %s", setup->name, status, end->error.message);
    const char *text = twill_ofi_transport.describe(end->transport);
    TWILL_REQUIRE(strstr(text, "registering") != NULL || !setup->options.force_registration);
    for (uint32_t r = 0; r < end->size; r++)
        if (r != end->rank)
            TWILL_REQUIRE(end->transport->ops->connect(end->transport, r, &end->error) == TWILL_OK);
    return true;
}

static inline bool end_open_with(struct end *end, twill_bootstrap *caller,
                                 const struct setup *setup, uint32_t comm,
                                 struct twill_common **common)
{
    return end_open_at(end, caller, setup, comm, &(struct place){.common = common});
}

static inline bool end_open(struct end *end, twill_bootstrap *caller, const struct setup *setup,
                            uint32_t comm)
{
    return end_open_with(end, caller, setup, comm, NULL);
}

static inline void end_close(struct end *end)
{
    if (end->transport != NULL)
        end->transport->ops->close(end->transport);
    end->transport = NULL;
    twill_test_oob_close(end->oob);
}

/* Wait for all ranks, so that none closes while others still receive. */
static inline bool rank_barrier(struct end *end)
{
    int all[16];
    int mine = 1;
    TWILL_REQUIRE(end->size <= 16);
    return twill_oob_allgather(end->oob, &mine, all, sizeof(mine), &end->error) == TWILL_OK;
}

/* Yield to the other ranks if nothing has moved, and after some turns sleep for a moment: ranks
 * that wait together would take whole cores. */
static inline void rest_unless(bool moved)
{
    static _Thread_local unsigned idle;
    idle = moved ? 0 : idle + 1;
    if (idle > 100)
        usleep(100);
    else if (idle > 0)
        sched_yield();
}

static inline bool progress(struct end *end)
{
    int moved = end->transport->ops->progress(end->transport, &end->error);
    rest_unless(moved != 0);
    return TWILL_NOTE(moved >= 0, "rank %u: progress: %s", end->rank, end->error.message);
}

static inline bool wait_done(struct end *end, const struct twill_transfer *requests, size_t n)
{
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    for (size_t i = 0; i < n;) {
        if (requests[i].status != TWILL_PENDING) {
            i++;
            continue;
        }
        TWILL_REQUIRE(!twill_test_failed());
        TWILL_REQUIRE(twill_now() < limit,
                      "rank %u: request %zu of %zu (%s, peer %u, lane %u, %zu bytes) hangs",
                      end->rank, i, n, requests[i].kind == TWILL_TRANSFER_SEND ? "SEND" : "RECV",
                      requests[i].peer, requests[i].lane, requests[i].bytes);
        if (!progress(end))
            return false;
    }
    return true;
}

static inline bool all_ok(const struct twill_transfer *requests, size_t n)
{
    for (size_t i = 0; i < n; i++)
        TWILL_REQUIRE(requests[i].status == TWILL_OK,
                      "request %zu: status %d, peer has %llu bytes, signature %u", i,
                      requests[i].status, (unsigned long long)requests[i].peer_bytes,
                      requests[i].peer_signature);
    return true;
}

static inline bool post(struct end *end, struct twill_transfer *request)
{
    twill_status status = end->transport->ops->post(end->transport, request, &end->error);
    return TWILL_NOTE(status == TWILL_OK, "post: %s", end->error.message);
}

/* Loops over bytes are not instrumented for a thread sanitizer, which spent most of its time in
 * them: they use memory of their own, and others' is read and written by memcpy() and memcmp(). */

/* Return a byte that differs by position, message and direction. */
__attribute__((no_sanitize("thread"))) static inline unsigned char value(uint32_t from, uint32_t to,
                                                                         uint32_t number, size_t i)
{
    uint64_t x = ((uint64_t)from << 40 ^ (uint64_t)to << 32 ^ number) * 0x9e3779b97f4a7c15u + i;
    return (unsigned char)((x * 0xff51afd7ed558ccdu) >> 56);
}

enum { MESSAGE_TEXT = 4096 }; /* bytes of a message that are compared at a time */

/* Set text to the bytes of a message from `offset` on. */
__attribute__((no_sanitize("thread"))) static inline void message_text(unsigned char *text,
                                                                       size_t bytes, uint32_t from,
                                                                       uint32_t to, uint32_t number,
                                                                       size_t offset)
{
    for (size_t i = 0; i < bytes; i++)
        text[i] = value(from, to, number, offset + i);
}

/* Add to the bytes of `sum`. */
__attribute__((no_sanitize("thread"))) static inline void
add_text(unsigned char *sum, const unsigned char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        sum[i] = (unsigned char)(sum[i] + text[i]);
}

static inline void fill(unsigned char *data, size_t bytes, uint32_t from, uint32_t to,
                        uint32_t number)
{
    unsigned char text[MESSAGE_TEXT];
    for (size_t at = 0, more; at < bytes; at += more) {
        more = twill_min(bytes - at, sizeof(text));
        message_text(text, more, from, to, number, at);
        memcpy(data + at, text, more);
    }
}

static inline bool filled(const unsigned char *data, size_t bytes, uint32_t from, uint32_t to,
                          uint32_t number)
{
    unsigned char text[MESSAGE_TEXT];
    for (size_t at = 0, more, i = 0; at < bytes; at += more, i = 0) {
        more = twill_min(bytes - at, sizeof(text));
        message_text(text, more, from, to, number, at);
        if (memcmp(data + at, text, more) == 0)
            continue;
        while (data[at + i] == text[i])
            i++;
        return TWILL_NOTE(false, "message %u from %u to %u: byte %zu of %zu is wrong", number, from,
                          to, at + i, bytes);
    }
    return true;
}

/* --- a table of messages with buffers --------------------------------------------------------- */

struct message {
    struct twill_transfer request;
    unsigned char *data, *bounce;
    size_t reduced; /* bytes reduced so far: chunks must come in order */
    uint32_t number;
};

/* Adds, so that a chunk that is reduced twice or not at all is detected. */
static inline void add(struct twill_transfer *request, size_t offset, const void *data,
                       size_t bytes)
{
    struct message *m = request->reduce_context;
    TWILL_NOTE(offset == m->reduced && (bytes % 8 == 0 || offset + bytes == request->bytes),
               "reduces %zu bytes at %zu after %zu", bytes, offset, m->reduced);
    unsigned char sum[MESSAGE_TEXT], text[MESSAGE_TEXT];
    for (size_t at = 0, more; at < bytes; at += more) {
        more = twill_min(bytes - at, sizeof(text));
        memcpy(sum, m->data + offset + at, more);
        memcpy(text, (const unsigned char *)data + at, more);
        add_text(sum, text, more);
        memcpy(m->data + offset + at, sum, more);
    }
    m->reduced = offset + bytes;
}

static inline bool message_make(struct message *m, struct end *end, enum twill_transfer_kind kind,
                                uint32_t peer, uint32_t lane, uint32_t number, size_t bytes,
                                bool reduces)
{
    bool sends = kind == TWILL_TRANSFER_SEND;
    m->number = number;
    m->reduced = 0;
    m->data = calloc(1, bytes + 1);
    m->bounce = reduces ? malloc(bytes + 1) : NULL;
    TWILL_REQUIRE(m->data != NULL);
    if (sends)
        fill(m->data, bytes, end->rank, peer, number);
    m->data[bytes] = 0xa5;
    m->request = (struct twill_transfer){.kind = (uint8_t)kind,
                                         .lane = (uint8_t)lane,
                                         .peer = peer,
                                         .signature = 1000 + number,
                                         .buffer = m->data,
                                         .bytes = bytes,
                                         .reduce = reduces ? add : NULL,
                                         .reduce_context = m,
                                         .bounce = m->bounce};
    return true;
}

/* Post receives and sends that will never complete. Returns false if the transport takes no
 * more. */
static inline bool post_hopeless(struct end *end, struct twill_transfer *r, size_t n,
                                 unsigned char *data)
{
    for (size_t i = 0; i < n; i++) {
        r[i] = (struct twill_transfer){.kind = i % 2 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
                                       .lane = (uint8_t)(1 + i / 2 % 3),
                                       .peer = 1 - end->rank,
                                       .signature = 1,
                                       .buffer = data + (i << 20),
                                       .bytes = i % 4 < 2 ? 64 : 1u << 20};
        if (twill_ofi_transport.post(end->transport, &r[i], &end->error) != TWILL_OK)
            return false;
    }
    return true;
}

static inline bool message_check(const struct message *m, struct end *end)
{
    const struct twill_transfer *r = &m->request;
    TWILL_REQUIRE(m->data[r->bytes] == 0xa5);
    if (r->kind == TWILL_TRANSFER_SEND)
        return filled(m->data, r->bytes, end->rank, r->peer, m->number);
    TWILL_REQUIRE(r->reduce == NULL || r->bytes == 0 || m->reduced == r->bytes);
    return filled(m->data, r->bytes, r->peer, end->rank, m->number);
}

static inline void message_free(struct message *messages, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(messages[i].data);
        free(messages[i].bounce);
    }
    free(messages);
}

static inline bool messages_run(struct end *end, struct message *messages, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!post(end, &messages[i].request))
            return false;
    for (size_t i = 0; i < n; i++)
        if (!wait_done(end, &messages[i].request, 1) || !all_ok(&messages[i].request, 1) ||
            !message_check(&messages[i], end))
            return false;
    return true;
}

#endif

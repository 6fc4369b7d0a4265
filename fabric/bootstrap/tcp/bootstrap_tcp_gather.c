/* SPDX-License-Identifier: Apache-2.0 */
/* The all-gather over the star. Ranks send their shard to rank 0, which returns the whole, packed
 * if that is shorter (pack_shards.h). It serves all connections concurrently, so that a slow rank
 * delays no other, and finds failures. */
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"
#include "fabric/bootstrap/tcp/pack_shards.h"
#include "lib/base/times.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void twill_bootstrap_tcp_list(const struct twill_bootstrap_tcp *tcp,
                              bool (*missing)(const struct twill_bootstrap_peer *), char *text,
                              size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int first = 1, last; first < tcp->oob.size; first = last + 1) {
        last = first;
        if (!missing(&tcp->peer[first]))
            continue;
        while (last + 1 < tcp->oob.size && missing(&tcp->peer[last + 1]))
            last++;
        if (used + 32 > bytes) {
            snprintf(text + used, bytes - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text + used, bytes - used, last > first ? "%s%d-%d" : "%s%d",
                                 used ? ", " : "", first, last);
    }
}

twill_status twill_bootstrap_tcp_fail(struct twill_bootstrap_tcp *tcp, struct twill_error *error,
                                      twill_status status, const char *format, ...)
{
    char text[TWILL_WIRE_TEXT];
    va_list list;
    va_start(list, format);
    twill_print_list(text, sizeof(text), format, list);
    va_end(list);
    for (int r = 1; r < tcp->oob.size; r++) {
        struct twill_bootstrap_peer *peer = &tcp->peer[r];
        size_t done = 0;
        /* A rank with a part of the result would take it for data, so it only sees the end. */
        bool result = peer->header.kind == TWILL_WIRE_RESULT;
        if (peer->fd < 0 || (result && peer->done > 0 && peer->done != SIZE_MAX))
            continue;
        peer->session.sent -= result && peer->done == 0; /* this frame replaces the result's */
        twill_wire_seal(&peer->session, &peer->header, TWILL_WIRE_FAIL, status, text, strlen(text),
                        NULL);
        (void)twill_wire_write(peer->fd, &peer->header, text, strlen(text), &done);
    }
    tcp->broken = true;
    return TWILL_FAIL(error, status, "rank 0: %s", text);
}

struct gather { /* one all-gather on rank 0, a local variable of serve_gather() */
    struct twill_bootstrap_tcp *tcp;
    struct twill_error *error;
    char *all;    /* the result */
    size_t bytes; /* of one rank's shard */
    /* what is sent to each rank, `all` or the same packed, and its number of bytes */
    const void *sent;
    size_t sent_bytes;
    uint64_t deadline;
    int waiting; /* ranks whose frame is not complete */
};

/* Return whether the current frame of the rank has not been moved completely. */
static bool is_unfinished(const struct twill_bootstrap_peer *peer)
{
    return peer->done != SIZE_MAX;
}

/* Return TWILL_ERR_PEER, sent to all ranks, as rank r ended. errno is the reason, or 0. */
static twill_status rank_lost(struct gather *g, int r)
{
    int why = errno;
    return twill_bootstrap_tcp_fail(
        g->tcp, g->error, TWILL_ERR_PEER, "rank %d ended during set-up (all-gather %lld): %s", r,
        (long long)g->tcp->sequence, why ? strerror(why) : "its connection was closed");
}

/* Count rank r as finished if `outcome` is DONE, and fail as rank_lost() does if it is GONE. */
static twill_status account(struct gather *g, int r, enum twill_wire_moved outcome)
{
    if (outcome == TWILL_WIRE_GONE)
        return rank_lost(g, r);
    if (outcome == TWILL_WIRE_DONE) {
        g->tcp->peer[r].done = SIZE_MAX;
        g->waiting--;
    }
    return TWILL_OK;
}

/* Check the header of rank r's shard. Fails with TWILL_ERR_BOOTSTRAP if it is none, or with
 * TWILL_ERR_MISMATCH if it is of another all-gather or size. All ranks get the reason. */
static twill_status check_header(struct gather *g, int r)
{
    struct twill_bootstrap_peer *peer = &g->tcp->peer[r];
    const struct twill_wire_header *header = &peer->header;
    enum twill_fault fault = twill_wire_check(&peer->session, header);
    if (fault == TWILL_FAULT_NONE && header->kind != TWILL_WIRE_GATHER)
        fault = TWILL_FAULT_MALFORMED;
    if (fault != TWILL_FAULT_NONE) {
        g->tcp->oob.rejected.count[fault]++;
        return twill_bootstrap_tcp_fail(
            g->tcp, g->error, TWILL_ERR_BOOTSTRAP,
            "rank %d sent something that is not its shard of all-gather %lld", r,
            (long long)g->tcp->sequence);
    }
    if (header->argument != g->tcp->sequence || header->length != g->bytes)
        return twill_bootstrap_tcp_fail(
            g->tcp, g->error, TWILL_ERR_MISMATCH,
            "rank %d is in all-gather %lld of %llu bytes, rank 0 in %lld of %zu: do all ranks "
            "run the same program and version of twill?",
            r, (long long)header->argument, (unsigned long long)header->length,
            (long long)g->tcp->sequence, g->bytes);
    return TWILL_OK;
}

/* Receive what has arrived of rank r's shard into g->all. Fails if it is not of this all-gather,
 * was altered (TWILL_ERR_BOOTSTRAP) or ended (TWILL_ERR_PEER). */
static twill_status receive_rank(struct gather *g, int r)
{
    struct twill_bootstrap_peer *peer = &g->tcp->peer[r];
    enum twill_wire_moved outcome = TWILL_WIRE_DONE;
    size_t head = sizeof(peer->header);
    if (peer->done < head) {
        outcome = twill_wire_read(peer->fd, &peer->header, head, &peer->done);
        if (outcome == TWILL_WIRE_DONE)
            TWILL_TRY(g->error, check_header(g, r));
    }
    if (outcome == TWILL_WIRE_DONE) {
        char *shard = g->all + (size_t)r * g->bytes;
        size_t body = peer->done - head;
        outcome = twill_wire_read(peer->fd, shard, g->bytes, &body);
        peer->done = head + body;
        if (outcome == TWILL_WIRE_DONE && !twill_wire_is_body(&peer->header, shard)) {
            g->tcp->oob.rejected.count[TWILL_FAULT_KEY]++;
            return twill_bootstrap_tcp_fail(
                g->tcp, g->error, TWILL_ERR_BOOTSTRAP,
                "rank %d's shard of all-gather %lld was changed in transit", r,
                (long long)g->tcp->sequence);
        }
    }
    return account(g, r, outcome);
}

/* Send rank r the part of the result that its connection takes now. Fails if the rank ended. */
static twill_status send_rank(struct gather *g, int r)
{
    struct twill_bootstrap_peer *peer = &g->tcp->peer[r];
    enum twill_wire_moved outcome =
        twill_wire_write(peer->fd, &peer->header, g->sent, g->sent_bytes, &peer->done);
    return account(g, r, outcome);
}

/* Call move() for each rank whose connection has one of `events`, until all frames are complete.
 * Fails if move() does, or if a rank ends after it has sent its shard. Returns TWILL_ERR_TIMEOUT at
 * the deadline. `what` is the verb in that message. */
static twill_status move_ranks(struct gather *g, twill_status (*move)(struct gather *, int),
                               short events, const char *what)
{
    struct twill_bootstrap_tcp *tcp = g->tcp;
    int size = tcp->oob.size;
    char who[128];
    g->waiting = size - 1;
    for (int r = 1; r < size; r++)
        tcp->peer[r].done = 0;
    while (g->waiting > 0) {
        tcp->polls[0].fd = -1;
        for (int r = 1; r < size; r++) {
            bool done = !is_unfinished(&tcp->peer[r]);
            /* A rank must stay after it sent its shard, but may leave once it has the result. */
            tcp->polls[r] = (struct pollfd){.fd = done && events == POLLOUT ? -1 : tcp->peer[r].fd,
                                            .events = done ? POLLRDHUP : events};
        }
        int n = twill_wire_poll(tcp->polls, (size_t)size, g->deadline);
        if (n < 0)
            return twill_bootstrap_tcp_fail(tcp, g->error, TWILL_ERR_SYSTEM, "poll: %s",
                                            strerror(errno));
        if (n == 0) {
            twill_bootstrap_tcp_list(tcp, is_unfinished, who, sizeof(who));
            return twill_bootstrap_tcp_fail(tcp, g->error, TWILL_ERR_TIMEOUT,
                                            "set-up: rank %s did not %s all-gather %lld in time",
                                            who, what, (long long)tcp->sequence);
        }
        for (int r = 1; r < size; r++) {
            errno = 0;
            if (tcp->polls[r].revents != 0)
                TWILL_TRY(g->error, is_unfinished(&tcp->peer[r]) ? move(g, r) : rank_lost(g, r));
        }
    }
    return TWILL_OK;
}

/* Run an all-gather on rank 0. Receive all shards into `all`, then send `all` to every rank. Fails,
 * on all ranks, if a rank ends, sends something else or is late. */
static twill_status serve_gather(struct twill_bootstrap_tcp *tcp, const void *mine, void *all,
                                 size_t bytes, struct twill_error *error)
{
    struct gather g = {.tcp = tcp, .error = error, .all = all, .bytes = bytes};
    uint8_t digest[TWILL_DIGEST_BYTES];
    size_t whole = bytes * (size_t)tcp->oob.size;
    g.deadline = twill_wire_deadline(twill_oob_patience(&tcp->oob));
    if (bytes > 0)
        memmove(all, mine, bytes);
    for (int r = 1; r < tcp->oob.size; r++)
        tcp->peer[r].header.kind = TWILL_WIRE_GATHER;
    TWILL_TRY(error, move_ranks(&g, receive_rank, POLLIN, "reach"));
    uint8_t *packed = whole > 1 ? malloc(whole - 1) : NULL; /* no more than that: it has to pay */
    size_t used = packed != NULL ? twill_shards_pack(packed, whole - 1, all, bytes, whole) : 0;
    g.sent = used > 0 ? packed : all;
    g.sent_bytes = used > 0 ? used : whole;
    twill_secret_digest(g.sent, g.sent_bytes, digest); /* once, as it is equal for all ranks */
    for (int r = 1; r < tcp->oob.size; r++)
        twill_wire_seal(&tcp->peer[r].session, &tcp->peer[r].header, TWILL_WIRE_RESULT,
                        tcp->sequence, g.sent, g.sent_bytes, digest);
    twill_status status = move_ranks(&g, send_rank, POLLOUT, "take the result of");
    free(packed);
    return status;
}

/* Receive the body of a result, `whole` bytes or fewer if it is packed, into `all`. Sets *good to
 * whether it is one. Without memory to unpack it, it is none. */
static enum twill_wire_moved receive_result(struct twill_bootstrap_tcp *tcp,
                                            const struct twill_wire_header *header, void *all,
                                            size_t bytes, size_t whole, uint64_t until, bool *good)
{
    size_t length = (size_t)header->length;
    uint8_t *packed = length < whole ? malloc(length > 0 ? length : 1) : NULL;
    void *body = length < whole ? packed : all;
    *good = false;
    if (body == NULL && length > 0)
        return TWILL_WIRE_DONE;
    enum twill_wire_moved outcome = twill_wire_read_by(tcp->root, body, length, until);
    if (outcome == TWILL_WIRE_DONE)
        *good = twill_wire_is_body(header, body) &&
                (packed == NULL || twill_shards_unpack(all, bytes, whole, packed, length));
    free(packed);
    return outcome;
}

/* Return the failure that rank 0 sent before its connection broke or the time was over, if it did.
 * Else return TWILL_ERR_TIMEOUT if `outcome` is LATER, or TWILL_ERR_PEER. */
static twill_status root_lost(struct twill_bootstrap_tcp *tcp, enum twill_wire_moved outcome,
                              struct twill_error *error)
{
    struct twill_wire_header header;
    /* It may have sent the reason before it closed. */
    if (twill_wire_read_by(tcp->root, &header, sizeof(header), 0) == TWILL_WIRE_DONE &&
        twill_wire_check(&tcp->session, &header) == TWILL_FAULT_NONE &&
        header.kind == TWILL_WIRE_FAIL)
        return twill_bootstrap_tcp_read_failure(tcp, &header, error);
    if (outcome == TWILL_WIRE_LATER)
        return TWILL_FAIL(error, TWILL_ERR_TIMEOUT,
                          "rank %d: set-up: rank 0 did not finish all-gather %lld in time",
                          tcp->oob.rank, (long long)tcp->sequence);
    return TWILL_FAIL(error, TWILL_ERR_PEER,
                      "rank %d: rank 0 ended during set-up (all-gather %lld)", tcp->oob.rank,
                      (long long)tcp->sequence);
}

/* On other ranks, send the shard to rank 0 and receive the result into `all`. Fails with rank 0's
 * reason or, without one, as root_lost() does. Returns TWILL_ERR_BOOTSTRAP if something else
 * arrives. */
static twill_status exchange_with_root(struct twill_bootstrap_tcp *tcp, const void *mine, void *all,
                                       size_t bytes, struct twill_error *error)
{
    struct twill_wire_header header;
    uint64_t until = twill_wire_later(twill_wire_deadline(twill_oob_patience(&tcp->oob)),
                                      twill_oob_slack(tcp->oob.timeout_ns));
    size_t whole = bytes * (size_t)tcp->oob.size;
    twill_wire_seal(&tcp->session, &header, TWILL_WIRE_GATHER, tcp->sequence, mine, bytes, NULL);
    enum twill_wire_moved outcome = twill_wire_write_by(tcp->root, &header, mine, bytes, until);
    if (outcome == TWILL_WIRE_DONE)
        outcome = twill_wire_read_by(tcp->root, &header, sizeof(header), until);
    if (outcome != TWILL_WIRE_DONE)
        return root_lost(tcp, outcome, error);
    bool good = twill_wire_check(&tcp->session, &header) == TWILL_FAULT_NONE;
    if (good && header.kind == TWILL_WIRE_FAIL)
        return twill_bootstrap_tcp_read_failure(tcp, &header, error);
    if (good && header.kind == TWILL_WIRE_RESULT && header.argument == tcp->sequence &&
        header.length <= whole) {
        outcome = receive_result(tcp, &header, all, bytes, whole, until, &good);
        if (outcome != TWILL_WIRE_DONE)
            return root_lost(tcp, outcome, error);
        if (good)
            return TWILL_OK;
    }
    return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP,
                      "rank %d: rank 0 sent something that is not the result of all-gather %lld",
                      tcp->oob.rank, (long long)tcp->sequence);
}

twill_status twill_bootstrap_tcp_allgather(struct twill_oob *oob, const void *mine, void *all,
                                           size_t bytes, struct twill_error *error)
{
    struct twill_bootstrap_tcp *tcp = (struct twill_bootstrap_tcp *)oob;
    if (tcp->broken)
        return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP, "rank %d: set-up has already failed",
                          oob->rank);
    tcp->sequence++;
    twill_bootstrap_tcp_raise(tcp);
    twill_status status = oob->rank == 0 ? serve_gather(tcp, mine, all, bytes, error)
                                         : exchange_with_root(tcp, mine, all, bytes, error);
    twill_bootstrap_tcp_restore(tcp);
    tcp->broken = status != TWILL_OK;
    return status;
}

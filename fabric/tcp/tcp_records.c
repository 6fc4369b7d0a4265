/* SPDX-License-Identifier: Apache-2.0 */
/* Records, the sending side: built in slots, sent from there, kept until they are acknowledged. */
#include "fabric/tcp/tcp_records.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define PER_CALL   8u /* most records sent by one system call */
#define SEEN_EVERY (TWILL_TCP_WINDOW / 4)

struct twill_tcp_records *twill_tcp_records_new(const struct twill_tcp_protection *how,
                                                struct twill_transport_counters *counters,
                                                uint32_t rank, const char *peer)
{
    struct twill_tcp_records *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return NULL;
    r->how = how;
    r->counters = counters;
    r->rank = rank;
    r->peer = peer;
    r->fd = -1;
    r->out.slots = malloc(TWILL_TCP_WINDOW * TWILL_TCP_SLOT); /* pages are touched when used */
    r->in.bytes = malloc(TWILL_TCP_ARRIVALS);
    if (r->out.slots != NULL && r->in.bytes != NULL)
        return r;
    twill_tcp_records_free(r);
    return NULL;
}

void twill_tcp_records_free(struct twill_tcp_records *r)
{
    if (r == NULL)
        return;
    free(r->out.slots);
    free(r->in.bytes);
    twill_secret_wipe(r, sizeof(*r));
    free(r);
}

void twill_tcp_records_begin(struct twill_tcp_records *r, int fd,
                             const struct twill_session *session)
{
    r->fd = fd;
    if (!r->how->encrypts)
        return;
    twill_seal_start(&r->out.seal, &session->key, session->caller, r->how->aes);
    twill_seal_start(&r->in.seal, &session->key, !session->caller, r->how->aes);
}

static uint32_t crc_of_head(const struct twill_tcp_records *r,
                            const struct twill_tcp_record_head *head)
{
    return r->how->crc32c(0, head, offsetof(struct twill_tcp_record_head, head));
}

/* Note that the sender will know of all records that were used. */
static uint32_t acknowledge(struct twill_tcp_records *r)
{
    r->in.acknowledged = r->in.expected - r->in.held;
    return (uint32_t)r->in.acknowledged;
}

static unsigned char *slot_of(const struct twill_tcp_records *r, uint64_t number)
{
    return r->out.slots + number % TWILL_TCP_WINDOW * TWILL_TCP_SLOT;
}

/* Complete the record in the next slot, whose body is there. */
static void close_record(struct twill_tcp_records *r, size_t bytes)
{
    unsigned char *slot = slot_of(r, r->out.made), *body = slot + TWILL_TCP_HEAD;
    struct twill_tcp_record_head head = {.bytes = (uint32_t)bytes & 0xffffff,
                                         .kind = TWILL_TCP_DATA,
                                         .number = (uint32_t)r->out.made};
    size_t all = TWILL_TCP_HEAD + bytes;
    if (r->how->encrypts) {
        twill_seal_close(&r->out.seal, &head, TWILL_TCP_HEAD, body, body, bytes, body + bytes);
        all += TWILL_SEAL_TAG;
    } else {
        head.seen = acknowledge(r);
        head.body = r->how->crc32c(0, body, bytes);
        head.head = crc_of_head(r, &head);
    }
    memcpy(slot, &head, TWILL_TCP_HEAD);
    r->out.slot_bytes[r->out.made % TWILL_TCP_WINDOW] = (uint32_t)all;
    r->out.made++;
    twill_counter_add(&r->counters->header_bytes, all - bytes);
}

size_t twill_tcp_records_write(struct twill_tcp_records *r, const struct iovec *iov, size_t n,
                               size_t bytes)
{
    size_t taken = 0, used = 0; /* used: of iov[0] */
    while (taken < bytes) {
        uint64_t first = r->how->encrypts ? r->out.gone : r->out.seen;
        if (r->out.made - first >= (r->how->encrypts ? TWILL_TCP_SEALED : TWILL_TCP_WINDOW))
            break;
        unsigned char *body = slot_of(r, r->out.made) + TWILL_TCP_HEAD;
        size_t have = 0;
        while (n > 0 && have < TWILL_TCP_RECORD) {
            size_t now = twill_min(iov->iov_len - used, TWILL_TCP_RECORD - have);
            memcpy(body + have, (const unsigned char *)iov->iov_base + used, now);
            have += now;
            used += now;
            if (used < iov->iov_len)
                break;
            iov++;
            n--;
            used = 0;
        }
        close_record(r, have);
        taken += have;
    }
    return taken;
}

/* Start a record without a body, if one is due. */
static void make_control(struct twill_tcp_records *r)
{
    if (r->out.goes_back) {
        r->out.goes_back = false;
        r->out.gone = r->out.back_to;
    }
    bool owes = !r->how->encrypts && r->in.expected - r->in.held - r->in.acknowledged >= SEEN_EVERY;
    if (r->out.has_control || (!r->out.asks && !owes))
        return;
    r->out.control = (struct twill_tcp_record_head){
        .kind = r->out.asks ? TWILL_TCP_AGAIN : TWILL_TCP_SEEN, .number = (uint32_t)r->in.expected};
    r->out.control.seen = acknowledge(r);
    r->out.control.head = crc_of_head(r, &r->out.control);
    r->out.has_control = true;
    r->out.asks = false;
    r->out.control_gone = 0;
    twill_counter_add(&r->counters->header_bytes, TWILL_TCP_HEAD);
}

/* List what is to be sent next: the rest of a control record or of a data record, and others. */
static size_t list_records(struct twill_tcp_records *r, struct iovec iov[PER_CALL])
{
    size_t n = 0, skip = r->out.gone_bytes;
    if (r->out.has_control)
        iov[n++] =
            (struct iovec){.iov_base = (unsigned char *)&r->out.control + r->out.control_gone,
                           .iov_len = TWILL_TCP_HEAD - r->out.control_gone};
    for (uint64_t i = r->out.gone; i < r->out.made && n < PER_CALL; i++, skip = 0)
        iov[n++] = (struct iovec){.iov_base = slot_of(r, i) + skip,
                                  .iov_len = r->out.slot_bytes[i % TWILL_TCP_WINDOW] - skip};
    return n;
}

/* Count bytes that the kernel took. */
static void note_sent(struct twill_tcp_records *r, size_t bytes)
{
    if (r->out.has_control) {
        size_t now = twill_min(TWILL_TCP_HEAD - r->out.control_gone, bytes);
        r->out.control_gone += now;
        bytes -= now;
        r->out.has_control = r->out.control_gone < TWILL_TCP_HEAD;
    }
    for (; bytes > 0; r->out.gone++, r->out.gone_bytes = 0) {
        size_t left = r->out.slot_bytes[r->out.gone % TWILL_TCP_WINDOW] - r->out.gone_bytes;
        if (bytes < left) {
            r->out.gone_bytes += bytes;
            return;
        }
        bytes -= left;
    }
}

ssize_t twill_tcp_records_push(struct twill_tcp_records *r)
{
    ssize_t sent = 0;
    for (;;) {
        struct iovec iov[PER_CALL];
        if (r->out.gone_bytes == 0) /* between records */
            make_control(r);
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = list_records(r, iov)};
        size_t asked = 0;
        for (size_t i = 0; i < message.msg_iovlen; i++)
            asked += iov[i].iov_len;
        if (asked == 0)
            return sent;
        ssize_t n = sendmsg(r->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        r->out.blocked = n < (ssize_t)asked && !(n < 0 && errno == EINTR);
        twill_counter_add(&r->counters->again, n < 0);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -1;
        if (n < 0)
            return sent;
        note_sent(r, (size_t)n);
        sent += n;
        if (r->out.blocked)
            return sent;
    }
}

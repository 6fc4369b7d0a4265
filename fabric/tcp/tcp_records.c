/* SPDX-License-Identifier: Apache-2.0 */
/* Records. The sending side builds them in slots, sends from there and keeps them until they are
 * acknowledged. The receiving side verifies each one before anything is made of it. */
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

/* Add to a counter, as other threads may do at the same time for other channels. */
static void add_shared(uint64_t *counter, uint64_t more)
{
    (void)__atomic_fetch_add(counter, more, __ATOMIC_RELAXED);
}

/* Return the CRC32C of the head of a record up to its last member `head`, which holds this. */
static uint32_t crc_of_head(const struct twill_tcp_records *r,
                            const struct twill_tcp_record_head *head)
{
    return r->how->crc32c(0, head, offsetof(struct twill_tcp_record_head, head));
}

/* Return how many records have been read to their end, for the member `seen` of a record to the
 * sender. Also set in.acknowledged to that number. */
static uint32_t acknowledge(struct twill_tcp_records *r)
{
    r->in.acknowledged = r->in.expected - r->in.held;
    return (uint32_t)r->in.acknowledged;
}

/* Return the slot of a record to send. */
static unsigned char *slot_of(const struct twill_tcp_records *r, uint64_t number)
{
    return r->out.slots + number % TWILL_TCP_WINDOW * TWILL_TCP_SLOT;
}

/* Complete the next record, whose body of `bytes` is in its slot, and count it as made. Encrypt it,
 * or add checksums and an acknowledgement. */
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
    add_shared(&r->counters->header_bytes, all - bytes);
}

size_t twill_tcp_records_write(struct twill_tcp_records *r, const struct iovec *iov, size_t n,
                               size_t bytes)
{
    size_t taken = 0, used = 0; /* of iov[0] */
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

/* If the receiver has asked for a record again, set the next record to send back to that one. If an
 * acknowledgement or a request is due and no other waits to be sent, prepare it in out.control. */
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
    add_shared(&r->counters->header_bytes, TWILL_TCP_HEAD);
}

/* List the next bytes to send in iov[]. The rest of out.control comes first, if there is any, then
 * the rest of record out.gone and the records after it. Returns how many entries. */
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

/* Count `bytes` of what list_records() returned as taken by the kernel. */
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
        add_shared(&r->counters->again, n < 0);
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

/* Results of a step of receiving, besides -1 with errno. */
enum { NOTHING = 0, PROGRESSED = 1, REFUSED = 2 };

/* Fail receiving for good and return REFUSED. The failure says that `bytes` bytes arrived `what`,
 * such as "damaged". Bytes that were verified before can still be read. */
static int refuse_record(struct twill_tcp_records *r, size_t bytes, const char *what)
{
    (void)TWILL_FAIL_RANK(&r->in.refusal, TWILL_ERR_FABRIC, r->rank,
                          "%zu bytes from %s over tcp %s arrived %s", bytes, r->peer,
                          r->how->interface, what);
    r->in.refuses = true;
    return REFUSED;
}

/* Copy the failure into *error, unless it has one, and return -1 with errno EBADMSG. */
static int report_refusal(const struct twill_tcp_records *r, struct twill_error *error)
{
    if (error != NULL && error->status == TWILL_OK)
        *error = r->in.refusal;
    errno = EBADMSG;
    return -1;
}

/* Return the number nearest to `near` whose lower 32 bits are `number`. */
static uint64_t extended(uint32_t number, uint64_t near)
{
    return near + (uint64_t)(int64_t)(int32_t)(number - (uint32_t)near);
}

/* Record that the receiver has used all records before one, of whose number `number` has the lower
 * 32 bits. Ignore it if that is not after the last one, or if the record before it was not sent. */
static void note_seen(struct twill_tcp_records *r, uint32_t number)
{
    uint64_t seen = extended(number, r->out.seen);
    if (seen > r->out.seen && seen <= r->out.gone)
        r->out.seen = seen;
}

/* Append a verified body to the bytes in[begin, ready) that can be read, and expect the record
 * after it. */
static void accept_body(struct twill_tcp_records *r, unsigned char *body, size_t bytes)
{
    if (r->in.begin == r->in.ready)
        r->in.begin = r->in.ready = (size_t)(body - r->in.bytes);
    else
        memmove(r->in.bytes + r->in.ready, body, bytes);
    r->in.ready += bytes;
    r->in.held++;
    r->in.expected++;
}

/* Decrypt and verify an encrypted record, and append its body to the bytes that can be read.
 * Returns PROGRESSED. Returns REFUSED, and receiving has failed, if it is altered or not the next
 * one. */
static int take_sealed(struct twill_tcp_records *r, const struct twill_tcp_record_head *head,
                       unsigned char *body)
{
    if (head->kind != TWILL_TCP_DATA || head->number != (uint32_t)r->in.expected ||
        !twill_seal_open(&r->in.seal, head, TWILL_TCP_HEAD, body, head->bytes, body + head->bytes))
        return refuse_record(r, head->bytes,
                             "altered: a record was damaged, changed, repeated or left out on the "
                             "way (TWILL_ENCRYPT)");
    accept_body(r, body, head->bytes);
    return PROGRESSED;
}

/* Ask the sender for the next record again, whose body of `bytes` bytes has arrived damaged, and
 * log that. Returns PROGRESSED. If it was damaged before, fails receiving and returns REFUSED. */
static int ask_again(struct twill_tcp_records *r, size_t bytes)
{
    if (r->in.discards)
        return refuse_record(r, bytes, "damaged, and damaged again (TWILL_CHECKSUM)");
    r->in.discards = r->out.asks = true;
    twill_say(r->how->log, TWILL_LOG_WARN,
              "tcp: %zu bytes from %s over %s arrived damaged; they are sent again", bytes, r->peer,
              r->how->interface);
    return PROGRESSED;
}

/* Handle a record with checksums. Note what it acknowledges or asks for. Verify its data and append
 * them to what can be read. If they are damaged, ask for them again, and drop all data until they
 * come. Returns PROGRESSED, but REFUSED if they are damaged again or a record is out of order. */
static int take_checked(struct twill_tcp_records *r, const struct twill_tcp_record_head *head,
                        unsigned char *body)
{
    note_seen(r, head->seen);
    uint64_t number = extended(head->number, r->in.expected);
    if (head->kind == TWILL_TCP_AGAIN) {
        uint64_t wanted = extended(head->number, r->out.seen);
        if (wanted < r->out.seen || wanted > r->out.gone)
            return refuse_record(r, 0, "out of order: a record is wanted that was used");
        r->out.goes_back = true;
        r->out.back_to = wanted;
        return PROGRESSED;
    }
    if (head->kind != TWILL_TCP_DATA)
        return PROGRESSED;
    if (number != r->in.expected)
        return r->in.discards ? PROGRESSED
                              : refuse_record(r, head->bytes, "out of order (TWILL_CHECKSUM)");
    if (r->how->crc32c(0, body, head->bytes) != head->body)
        return ask_again(r, head->bytes);
    r->in.discards = false;
    accept_body(r, body, head->bytes);
    return PROGRESSED;
}

/* Verify the next record that has arrived, and append its data to what can be read. Returns NOTHING
 * if a part is missing, else PROGRESSED or REFUSED. */
static int take_record(struct twill_tcp_records *r)
{
    struct twill_tcp_record_head head;
    if (r->in.refuses)
        return REFUSED;
    if (r->in.end - r->in.raw < TWILL_TCP_HEAD)
        return NOTHING;
    memcpy(&head, r->in.bytes + r->in.raw, TWILL_TCP_HEAD);
    bool sealed = r->how->encrypts;
    if (head.bytes > TWILL_TCP_RECORD ||
        (!sealed &&
         r->how->crc32c(0, &head, offsetof(struct twill_tcp_record_head, head)) != head.head))
        return refuse_record(r, TWILL_TCP_HEAD,
                             sealed ? "altered: not the head of a record (TWILL_ENCRYPT)"
                                    : "damaged: the head of a record, so that the next one is not "
                                      "found (TWILL_CHECKSUM)");
    size_t all = TWILL_TCP_HEAD + head.bytes + (sealed ? TWILL_SEAL_TAG : 0);
    if (r->in.end - r->in.raw < all)
        return NOTHING;
    unsigned char *body = r->in.bytes + r->in.raw + TWILL_TCP_HEAD;
    r->in.raw += all;
    return sealed ? take_sealed(r, &head, body) : take_checked(r, &head, body);
}

/* Move the bytes that are kept to the begin of the memory. */
static void compact(struct twill_tcp_records *r)
{
    size_t verified = r->in.ready - r->in.begin, arrived = r->in.end - r->in.raw;
    memmove(r->in.bytes, r->in.bytes + r->in.begin, verified);
    memmove(r->in.bytes + verified, r->in.bytes + r->in.raw, arrived);
    r->in.begin = 0;
    r->in.ready = r->in.raw = verified;
    r->in.end = verified + arrived;
}

/* Read from the socket and set *last if that emptied it. Returns PROGRESSED, NOTHING if the
 * connection has ended, or -1 with errno. */
static int fill(struct twill_tcp_records *r, bool *last)
{
    if (r->in.begin == r->in.ready && r->in.raw == r->in.end)
        r->in.begin = r->in.ready = r->in.raw = r->in.end = 0;
    if (TWILL_TCP_ARRIVALS - r->in.end < TWILL_TCP_ARRIVED)
        compact(r);
    size_t most = twill_min(TWILL_TCP_ARRIVALS - r->in.end, TWILL_TCP_ARRIVED);
    if (most == 0) { /* a peer that exceeds its window, which is read again when some was used */
        errno = EAGAIN;
        return -1;
    }
    ssize_t n = recv(r->fd, r->in.bytes + r->in.end, most, MSG_DONTWAIT);
    *last = n < (ssize_t)most;
    if (n <= 0)
        return (int)n; /* NOTHING is the end of the connection here */
    r->in.end += (size_t)n;
    return PROGRESSED;
}

/* After reading, send the acknowledgement, or the request for a damaged record, that has become
 * due. With encryption there are none. Keeps errno, and leaves failures to the next call. */
static void answer(struct twill_tcp_records *r)
{
    int why = errno;
    if (!r->how->encrypts)
        (void)twill_tcp_records_push(r);
    errno = why;
}

ssize_t twill_tcp_records_read(struct twill_tcp_records *r, void *to, size_t bytes,
                               struct twill_error *error)
{
    size_t got = 0;
    bool last = false;
    int step = PROGRESSED;
    while (got < bytes) {
        size_t now = twill_min(r->in.ready - r->in.begin, bytes - got);
        if (now > 0) {
            memcpy((unsigned char *)to + got, r->in.bytes + r->in.begin, now);
            r->in.begin += now;
            got += now;
            r->in.held = r->in.begin == r->in.ready ? 0 : r->in.held;
            continue;
        }
        step = take_record(r);
        if (step == NOTHING && !last)
            step = fill(r, &last);
        else if (step == NOTHING) {
            errno = EAGAIN;
            step = -1;
        }
        if (step != PROGRESSED)
            break;
    }
    answer(r);
    if (got > 0)
        return (ssize_t)got; /* an end or an error comes back with the next call */
    return step == REFUSED ? report_refusal(r, error) : step;
}

int twill_tcp_records_look(struct twill_tcp_records *r, struct twill_error *error)
{
    bool last = false;
    int moved = 0, taken, filled = PROGRESSED;
    for (;;) {
        while ((taken = take_record(r)) == PROGRESSED) /* at first what came behind data */
            moved = 1;
        if (taken == REFUSED || last || (filled = fill(r, &last)) != PROGRESSED)
            break;
        moved = 1;
    }
    answer(r);
    if (taken == REFUSED)
        return report_refusal(r, error);
    if (filled == NOTHING)
        errno = 0;
    return filled == NOTHING || (filled < 0 && errno != EAGAIN && errno != EINTR) ? -1 : moved;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Records, the receiving side: verified one after the other before anything is made of them. */
#include "fabric/tcp/tcp_records.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

/* Results of a step besides -1 with errno. */
enum { NOTHING = 0, PROGRESSED = 1, REFUSED = 2 };

/* Fail for good; what was verified before can still be read. */
static int refuse_record(struct twill_tcp_records *r, size_t bytes, const char *what)
{
    (void)TWILL_FAIL_RANK(&r->in.refusal, TWILL_ERR_FABRIC, r->rank,
                          "%zu bytes from %s over tcp %s arrived %s", bytes, r->peer,
                          r->how->interface, what);
    r->in.refuses = true;
    return REFUSED;
}

static int report_refusal(const struct twill_tcp_records *r, struct twill_error *error)
{
    if (error != NULL && error->status == TWILL_OK)
        *error = r->in.refusal;
    errno = EBADMSG;
    return -1;
}

/* Extend a number of 32 bits to the one of 64 bits that is nearest to `near`. */
static uint64_t extended(uint32_t number, uint64_t near)
{
    return near + (uint64_t)(int64_t)(int32_t)(number - (uint32_t)near);
}

static void note_seen(struct twill_tcp_records *r, uint32_t number)
{
    uint64_t seen = extended(number, r->out.seen);
    if (seen > r->out.seen && seen <= r->out.gone)
        r->out.seen = seen;
}

/* Add a verified body to in[begin, ready). */
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

/* Ask for the next record, whose body is damaged, unless that was done before. */
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

/* Verify the next record, if all of it has arrived. */
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

/* Move what is kept to the begin of the memory. */
static void compact(struct twill_tcp_records *r)
{
    size_t verified = r->in.ready - r->in.begin, arrived = r->in.end - r->in.raw;
    memmove(r->in.bytes, r->in.bytes + r->in.begin, verified);
    memmove(r->in.bytes + verified, r->in.bytes + r->in.raw, arrived);
    r->in.begin = 0;
    r->in.ready = r->in.raw = verified;
    r->in.end = verified + arrived;
}

/* Read from the socket. *last: nothing more is there. */
static int fill(struct twill_tcp_records *r, bool *last)
{
    if (r->in.begin == r->in.ready && r->in.raw == r->in.end)
        r->in.begin = r->in.ready = r->in.raw = r->in.end = 0;
    if (TWILL_TCP_ARRIVALS - r->in.end < TWILL_TCP_ARRIVED)
        compact(r);
    size_t most = twill_min(TWILL_TCP_ARRIVALS - r->in.end, TWILL_TCP_ARRIVED);
    if (most == 0) { /* a peer that exceeds its window; more is read when some was used */
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

/* Send what became due by reading. Failures are found by the next call that sends or reads data. */
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

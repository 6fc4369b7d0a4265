/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses checksums or encryption of the tcp transport, and sends and receives records. */
#include "fabric/tcp/tcp.h"

#include <errno.h>
#include <string.h>

/* Idle polls between looks at a channel that only keeps records for its receiver. */
#define POLLS_PER_LOOK 64u

/* A rank's protection, for the exchange of addresses. */
enum { GUARD_NONE, GUARD_CHECKSUM, GUARD_CHACHA, GUARD_AES };

/* Return whether `variable`, a setting of the user such as TWILL_ENCRYPT, is `value`, as
 * params->setting() returns it. */
static bool asked_for(const struct twill_transport_params *params, const char *variable,
                      const char *value)
{
    const char *text = twill_transport_setting(params, variable);
    return text != NULL && strcmp(text, value) == 0;
}

bool twill_tcp_protects(const struct twill_transport_params *params, const char **what)
{
    bool encrypts = asked_for(params, "TWILL_ENCRYPT", "1");
    if (what != NULL)
        *what = encrypts ? "encryption (TWILL_ENCRYPT)" : "checksums (TWILL_CHECKSUM)";
    return encrypts || asked_for(params, "TWILL_CHECKSUM", "network") ||
           asked_for(params, "TWILL_CHECKSUM", "all");
}

twill_status twill_tcp_protection_find(struct twill_tcp_protection *protection,
                                       const struct twill_transport_params *params,
                                       struct twill_error *error)
{
    const char *what, *provider = params->provider != NULL ? params->provider : "";
    if (twill_tcp_protects(params, &what) && provider[0] != '\0' &&
        !twill_words_equal(provider, "tcp", SIZE_MAX))
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "TWILL_PROVIDER=%s has no %s: only twill's tcp has it", provider, what);
    protection->log = params->log;
    protection->encrypts = asked_for(params, "TWILL_ENCRYPT", "1");
    protection->aes = protection->encrypts && twill_seal_has_aes();
    if (protection->encrypts || !twill_tcp_protects(params, NULL))
        return TWILL_OK;
    protection->crc32c = params->crc32c;
    if (params->crc32c == NULL)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "tcp: no function for TWILL_CHECKSUM");
    return TWILL_OK;
}

uint32_t twill_tcp_guard(const struct twill_tcp_protection *protection)
{
    if (protection->encrypts)
        return protection->aes ? GUARD_AES : GUARD_CHACHA;
    return protection->crc32c != NULL ? GUARD_CHECKSUM : GUARD_NONE;
}

twill_status twill_tcp_guard_agree(struct twill_tcp_protection *protection, uint32_t rank,
                                   uint32_t guard, struct twill_error *error)
{
    bool encrypts = guard == GUARD_CHACHA || guard == GUARD_AES;
    if (encrypts != protection->encrypts ||
        (!encrypts && (guard == GUARD_CHECKSUM) != (protection->crc32c != NULL)))
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "tcp: rank %u differs in TWILL_ENCRYPT or TWILL_CHECKSUM", rank);
    protection->aes = protection->aes && guard == GUARD_AES;
    return TWILL_OK;
}

ssize_t twill_tcp_protected_write(struct twill_tcp_channel *channel, const struct iovec *iov,
                                  size_t n, size_t bytes)
{
    size_t taken = 0, used = 0;
    struct iovec rest[2] = {iov[0], n > 1 ? iov[1] : (struct iovec){.iov_len = 0}};
    struct iovec *at = rest;
    for (;;) {
        size_t now = twill_tcp_records_write(channel->records, at, n, bytes - taken);
        ssize_t gone = twill_tcp_records_push(channel->records);
        channel->writable = !channel->records->out.blocked;
        if (gone < 0)
            return -1;
        taken += now;
        if (now == 0 || taken == bytes)
            break;
        for (used = now; n > 0 && used >= at->iov_len; at++, n--)
            used -= at->iov_len;
        at->iov_base = (unsigned char *)at->iov_base + used;
        at->iov_len -= used;
    }
    errno = EAGAIN;
    return taken > 0 ? (ssize_t)taken : -1;
}

/* Handle the failure to read acknowledgements from a connection, with errno set by
 * twill_tcp_records_look(). Returns TWILL_ERR_FABRIC for a bad record. If the channel still sends,
 * returns the result of twill_tcp_send_lost(). Otherwise forgets the records that the receiver has
 * not acknowledged, and returns 0. */
static int end_keeping(struct twill_tcp *t, struct twill_tcp_channel *channel,
                       struct twill_error *error)
{
    if (errno == EBADMSG)
        return TWILL_ERR_FABRIC;
    if (twill_tcp_sends(channel))
        return twill_tcp_send_lost(t, channel, errno, error);
    twill_tcp_records_drop(channel->records);
    return 0;
}

/* Return whether the kernel has taken all of the current message. Its last records may have been
 * sent by a call that reads, as that sends what is due. */
static bool is_given(const struct twill_tcp_channel *channel)
{
    const struct twill_transfer *first = channel->out.queue.head;
    return first != NULL && channel->out.gone >= sizeof(channel->out.header) + first->bytes &&
           !twill_tcp_records_unsent(channel->records);
}

int twill_tcp_protected_step(struct twill_tcp *t, struct twill_tcp_channel *channel,
                             struct twill_error *error)
{
    struct twill_tcp_records *r = channel->records;
    int moved = 0;
    if (is_given(channel)) /* its receiver may have ended since, which a look would find */
        TWILL_TRY(error, moved = twill_tcp_send(t, channel, error));
    bool reads = twill_tcp_receives(channel); /* then acknowledgements are found on the way */
    bool looks = twill_tcp_records_kept(r) && !reads &&
                 (channel->out.queue.head != NULL || t->vain % POLLS_PER_LOOK == 0);
    if (looks) {
        int more = twill_tcp_records_look(r, error);
        if (more < 0)
            return end_keeping(t, channel, error);
        moved += more;
    }
    if (twill_tcp_records_wait(r)) {
        ssize_t gone = twill_tcp_records_push(r);
        channel->writable = !r->out.blocked;
        if (gone < 0 && (r->out.gone < r->out.made || channel->out.queue.head != NULL))
            return twill_tcp_send_lost(t, channel, errno, error);
        if (gone < 0)
            r->out.has_control = false; /* an acknowledgement for a peer that has ended */
        moved += gone > 0;
    }
    return moved;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Records: with TWILL_CHECKSUM or TWILL_ENCRYPT the bytes of a channel's connection (headers of
 * messages and payload) are cut into records. Each has a checksum (CRC32C) or is encrypted and
 * authenticated (fabric/auth/seal.h). Otherwise a channel has no records and none of this runs.
 *
 * With checksums a sender keeps up to TWILL_TCP_WINDOW records until the receiver has used them. A
 * receiver that finds a damaged record discards it and what follows, and asks for it (AGAIN). The
 * sender then continues from that record. The channel fails if the record is damaged again, or if
 * its head is, as the start of the next one is then unknown. A receiver acknowledges used records
 * in the heads of its records, or for every fourth part of the window in a separate one (SEEN). It
 * has memory for a whole window, so that a rank that sends can always read the acknowledgements
 * behind data that it cannot use yet.
 *
 * Encrypted records are not kept. Damage could be an attack, so it ends the channel. */
#ifndef TWILL_TCP_RECORDS_H
#define TWILL_TCP_RECORDS_H

#include "fabric/auth/handshake.h"
#include "fabric/auth/seal.h"
#include "fabric/transport.h"

#include <sys/uio.h>

#define TWILL_TCP_RECORD  (16u << 10)  /* most bytes in a record */
#define TWILL_TCP_WINDOW  32u          /* most records that are not acknowledged */
#define TWILL_TCP_SEALED  8u           /* most encrypted records that wait to be sent */
#define TWILL_TCP_ARRIVED (128u << 10) /* most bytes read by one system call */

enum twill_tcp_record_kind { TWILL_TCP_DATA = 1, TWILL_TCP_SEEN, TWILL_TCP_AGAIN };
/* The head of every record, in host byte order, as all of this transport. Its kind is an enum
 * twill_tcp_record_kind. A record has data, acknowledges (SEEN) or asks for a damaged record
 * (AGAIN). The last three members are 0 in encrypted records, which have no checksums. */
struct twill_tcp_record_head {
    uint32_t bytes : 24; /* of the body, without the tag */
    uint32_t kind : 8;
    uint32_t number; /* of a data record, or of the record that AGAIN asks for */
    uint32_t seen;   /* how many records of the other direction were read to their end */
    uint32_t body;   /* CRC32C of the body */
    uint32_t head;   /* CRC32C of the fields above */
};
_Static_assert(sizeof(struct twill_tcp_record_head) == 20, "identical layout on all machines");
#define TWILL_TCP_HEAD     sizeof(struct twill_tcp_record_head)
#define TWILL_TCP_SLOT     (TWILL_TCP_HEAD + TWILL_TCP_RECORD + TWILL_SEAL_TAG)
#define TWILL_TCP_ARRIVALS ((TWILL_TCP_WINDOW + 1) * TWILL_TCP_SLOT + TWILL_TCP_ARRIVED)
/* How the connections of a transport are protected. Part of struct twill_tcp_common. Constant once
 * all ranks agree. */
struct twill_tcp_protection {
    bool encrypts; /* TWILL_ENCRYPT, which replaces checksums */
    bool aes;      /* all ranks have the instructions for AES */
    uint32_t (*crc32c)(uint32_t crc, const void *data, size_t bytes); /* or NULL: no checksums */
    struct twill_log *log;
    const char *interface; /* for messages */
};

/* The records of a channel. Made and freed with its peer, used from the handshake on. */
struct twill_tcp_records {
    const struct twill_tcp_protection *how;
    struct twill_transport_counters *counters;
    uint32_t rank;    /* the other end */
    const char *peer; /* its name, for messages */
    int fd;

    /* Records are numbered from 0. Record n is in slot n % window. */
    struct {
        uint64_t made, gone, seen; /* records built, sent to the kernel, used by the receiver */
        uint64_t back_to;          /* record that the receiver asked for, if goes_back */
        size_t gone_bytes;         /* sent of record number `gone` */
        size_t control_gone;       /* sent of `control` */
        uint32_t slot_bytes[TWILL_TCP_WINDOW];
        /* The receiver has asked for record back_to (goes_back). A part of `control` is not sent
         * yet (has_control), a record AGAIN is due (asks), or the kernel's buffer is full
         * (blocked). */
        bool goes_back, has_control, asks, blocked;
        struct twill_tcp_record_head control;
        unsigned char *slots; /* [TWILL_TCP_WINDOW][TWILL_TCP_SLOT] */
        struct twill_seal seal;
    } out;

    /* bytes[begin, ready) are verified, bytes[raw, end) are as they arrived. */
    struct {
        unsigned char *bytes; /* [TWILL_TCP_ARRIVALS] */
        size_t begin, ready, raw, end;
        uint64_t expected;     /* number of the next record */
        uint64_t held;         /* records of which bytes[begin, ready) consists */
        uint64_t acknowledged; /* used records that were reported to the sender */
        bool discards;         /* until the record arrives that was asked for */
        bool refuses;          /* a record is damaged or altered, as `refusal` explains */
        struct twill_error refusal;
        struct twill_seal seal;
    } in;
};

/* Make the records of a channel to rank `rank`. Only called if `how`, the protection of the
 * transport, has encryption or checksums. Bytes of heads are added to *counters. `peer` is the
 * rank's name for messages. The pointers stay the caller's, and must live as long. Returns NULL if
 * out of memory. */
struct twill_tcp_records *twill_tcp_records_new(const struct twill_tcp_protection *how,
                                                struct twill_transport_counters *counters,
                                                uint32_t rank, const char *peer);
/* Free records, which may be NULL, and wipe their keys. */
void twill_tcp_records_free(struct twill_tcp_records *records);
/* Begin on connection `fd`, which stays the channel's and whose handshake made this session. */
void twill_tcp_records_begin(struct twill_tcp_records *records, int fd,
                             const struct twill_session *session);
/* Build records, pieces with a checksum or encrypted, of these bytes. Returns how many bytes were
 * taken, fewer if the window is full. */
size_t twill_tcp_records_write(struct twill_tcp_records *records, const struct iovec *iov, size_t n,
                               size_t bytes);
/* Send what was built, and control records that are due. Returns the bytes that the kernel took, 0
 * if it is full or there was nothing to send, or -1 with errno. */
ssize_t twill_tcp_records_push(struct twill_tcp_records *records);
/* Return whether the kernel has not taken all records that were made, or must be given some again
 * that the receiver asked for. */
static inline bool twill_tcp_records_unsent(const struct twill_tcp_records *r)
{
    return r->out.gone < r->out.made || r->out.goes_back;
}
/* Return whether anything is left to give to the kernel. */
static inline bool twill_tcp_records_wait(const struct twill_tcp_records *r)
{
    return twill_tcp_records_unsent(r) || r->out.has_control;
}
/* Return whether there are records that the receiver has not acknowledged, so that it may ask for
 * one of them again. Always false with encryption. */
static inline bool twill_tcp_records_kept(const struct twill_tcp_records *r)
{
    return !r->how->encrypts && r->out.seen < r->out.made;
}
/* Forget all records that were made, sent or not, and what is due to the receiver, which has closed
 * the connection. */
static inline void twill_tcp_records_drop(struct twill_tcp_records *r)
{
    r->out.gone = r->out.seen = r->out.made;
    r->out.gone_bytes = 0;
    r->out.goes_back = r->out.has_control = r->out.asks = false;
}
/* Read up to `bytes` verified bytes, and send acknowledgements that become due. Returns how many
 * bytes, or 0 if the connection has ended. Returns -1 with errno EAGAIN if there are none now,
 * EBADMSG if *error says what is wrong, or else that of recv(). */
ssize_t twill_tcp_records_read(struct twill_tcp_records *records, void *to, size_t bytes,
                               struct twill_error *error);
/* Read and verify what has arrived, for its acknowledgements, and keep its data for
 * twill_tcp_records_read(). Returns 1 if anything has arrived, 0 if not, or -1 with errno. That is
 * 0 if the connection has ended, and EBADMSG for a bad record. */
int twill_tcp_records_look(struct twill_tcp_records *records, struct twill_error *error);
/* Return whether there are bytes that are verified or to be verified. */
static inline bool twill_tcp_records_have(const struct twill_tcp_records *r)
{
    return r->in.end > r->in.begin;
}

#endif

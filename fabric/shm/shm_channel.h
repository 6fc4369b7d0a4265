/* SPDX-License-Identifier: Apache-2.0 */
/* Channels of the shm transport: see shm.c. Internal to it. */
#ifndef TWILL_SHM_CHANNEL_H
#define TWILL_SHM_CHANNEL_H

#include "fabric/shm/node_memory.h"
#include "fabric/shm/single_copy.h"
#include "fabric/transports.h"

#define TWILL_SHM_SLOTS      8
#define TWILL_SHM_SLOT_BYTES 16384
#define TWILL_SHM_STREAMED                                                                         \
    0x80000000u /* in line->bytes: the data is in the slot, the message's size in payload */
#define TWILL_SHM_OFFERED                                                                          \
    0x40000000u /* in line->bytes: payload is the message's size and address */
#define TWILL_SHM_FETCH_LEAST ((size_t)512 << 10) /* bytes of a message that is offered */
#define TWILL_SHM_FETCH_REDUCED                                                                    \
    ((size_t)128 << 10) /* bytes read at once to be reduced: they fit an L2 cache */

_Static_assert((TWILL_SHM_SLOTS & (TWILL_SHM_SLOTS - 1)) == 0, "slot numbers wrap by masking");
_Static_assert(TWILL_SHM_SLOT_BYTES % TWILL_CACHE_LINE == 0,
               "chunks keep element boundaries and lines");

/* Slots consumed; 1 + the number of the last slot whose message could not be read to its end; how
 * many bytes of an offered message have been read so far. Written by the consumer, read by the
 * producer when the ring looks full or a message is offered. */
struct twill_shm_credit {
    _Atomic uint64_t consumed, refused, fetched;
} TWILL_ALIGNED(64);

/* One direction of one lane with one peer, on this rank. */
struct twill_shm_channel {
    struct twill_transfer_queue queue;
    struct twill_line *line; /* [SLOTS] */
    unsigned char *data;     /* [SLOTS][TWILL_SHM_SLOT_BYTES] */
    struct twill_shm_credit *credit;
    struct twill_single_copy *single_copy; /* reads the peer's memory; NULL: nothing is offered */
    unsigned char *bounce;                 /* TWILL_SHM_FETCH_REDUCED bytes, for reductions */
    const struct twill_node *node;         /* receiver */
    uint64_t offered;    /* sender: 1 + number of the slot that offers the first message, or 0 */
    uint64_t index;      /* slots produced, or consumed, by this rank */
    uint64_t seen;       /* sender: *consumed when last read */
    uint64_t to_discard; /* receiver: bytes left of a message that did not match */
    uint32_t local;      /* the peer's local rank */
    uint32_t active;     /* 1 + position in shm->active, 0: not in it */
    bool sends;
    bool damaged; /* receiver: the slot's checksum is wrong */
    uint32_t (*crc32c)(uint32_t crc, const void *data, size_t bytes); /* NULL: no checksums */
};

static inline void twill_shm_return_slot(struct twill_shm_channel *channel)
{
    channel->index++;
    atomic_store_explicit(&channel->credit->consumed, channel->index, memory_order_release);
}

/* --- shm_offer.c: messages that the receiver reads in place ----------------------------------- */
/* Offer the first message, as a whole, to be read from the caller's buffer. */
void twill_shm_offer(struct twill_shm_channel *channel, const struct twill_transfer *request);
/* Withdraw the offer: a receiver that still reads will not complete the message. */
void twill_shm_withdraw(struct twill_shm_channel *channel);
/* Complete the first message if it was read; if it was refused, stream what was not read. Returns
 * false while it is being read; request->moved is how far. */
bool twill_shm_conclude_offer(struct twill_shm_channel *channel,
                              struct twill_transport_counters *counters);
/* Receive the next bytes from a slot that offers a message. Returns 1 if some were read, or the
 * message was refused; 0 if its sender has ended or gave up: the failure detector reports that; -1
 * if the slot is invalid. */
int twill_shm_receive_offer(struct twill_shm_channel *channel, const struct twill_line *line);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Large payload that is written, not sent: windows of receivers, whose slots senders write to. Used
 * where a long message would be pulled, which crashes some providers (known_ways). */
#include "fabric/ofi/ofi.h"

#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>

/* The slots of the channels of a peer, and those of the messages that say that one was written. */
struct twill_ofi_window {
    struct twill_ofi_window *next; /* in endpoint->windows */
    struct fid_mr *mr;
    uint32_t key;
    unsigned char notes[TWILL_OFI_LANES][TWILL_OFI_CHUNKS];
    TWILL_ALIGNED(TWILL_CACHE_LINE)
    unsigned char slots[]; /* those of all lanes, limits.slot each */
};

twill_status twill_ofi_window_open(struct twill_ofi_endpoint *endpoint, struct twill_ofi_peer *peer,
                                   struct twill_error *error)
{
    size_t bytes = (size_t)TWILL_OFI_LANES * TWILL_OFI_CHUNKS * endpoint->limits.slot;
    struct twill_ofi_window *window =
        aligned_alloc(4096, twill_round_up(sizeof(*window) + bytes, 4096));
    if (window == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory for a window of %zu bytes",
                          bytes);
    *window = (struct twill_ofi_window){.key = (uint32_t)++endpoint->registrations.next_key};
    int rc = fi_mr_reg(endpoint->fi.domain, window->slots, bytes, FI_REMOTE_WRITE, 0, window->key,
                       0, &window->mr, NULL);
    if (rc != 0) {
        free(window);
        return twill_ofi_fail(endpoint, error, "fi_mr_reg", rc, &peer->channels[0]);
    }
    peer->window = window;
    return TWILL_OK;
}

void twill_ofi_window_close(struct twill_ofi_window **window)
{
    while (*window != NULL) {
        struct twill_ofi_window *first = *window;
        *window = first->next;
        twill_ofi_unregister(&first->mr);
        free(first);
    }
}

void twill_ofi_window_keep(struct twill_ofi_endpoint *endpoint, struct twill_ofi_peer *peer)
{
    if (peer->window == NULL)
        return;
    peer->window->next = endpoint->windows;
    endpoint->windows = peer->window;
    peer->window = NULL;
}

uint32_t twill_ofi_window_key(const struct twill_ofi_channel *channel)
{
    return channel->peer->window == NULL ? 0 : channel->peer->window->key;
}

size_t twill_ofi_slot(const struct twill_ofi *t, const struct twill_ofi_channel *channel,
                      uint32_t chunk)
{
    size_t slot = (size_t)channel->lane * TWILL_OFI_CHUNKS + chunk % TWILL_OFI_CHUNKS;
    return slot * t->endpoint->limits.slot;
}

unsigned char *twill_ofi_emptied(const struct twill_ofi *t, const struct twill_ofi_channel *channel)
{
    return channel->peer->window->slots + twill_ofi_slot(t, channel, channel->chunks_taken);
}

int twill_ofi_expect(struct twill_ofi *t, struct twill_ofi_op *op, size_t bytes,
                     struct twill_error *error)
{
    const struct twill_ofi_channel *channel = op->channel;
    unsigned char *note = &channel->peer->window->notes[channel->lane][op - channel->chunk_in];
    int done = twill_ofi_recv(t, op, note, TWILL_OFI_NOTE, NULL, error);
    op->bytes = bytes; /* of the chunk, which is in the slot then */
    return done;
}

int twill_ofi_send_notes(struct twill_ofi *t, struct twill_ofi_channel *channel,
                         struct twill_error *error)
{
    static const unsigned char note[TWILL_OFI_NOTE];
    while (channel->slots.notes > 0) {
        uint32_t slot = (channel->slots.written - channel->slots.notes) % TWILL_OFI_CHUNKS;
        int done = twill_ofi_send(t, &channel->chunk_out[TWILL_OFI_CHUNKS + slot], note,
                                  sizeof(note), NULL, error);
        if (done == 0)
            twill_ofi_stuck(t, channel);
        if (done != 1)
            return done;
        channel->slots.notes--;
    }
    return 1;
}

int twill_ofi_write(struct twill_ofi *t, struct twill_ofi_op *op, struct twill_transfer *request,
                    const void *data, size_t bytes, struct twill_error *error)
{
    struct twill_ofi_channel *channel = op->channel;
    struct twill_ofi_op *note =
        &channel->chunk_out[TWILL_OFI_CHUNKS + channel->slots.written % TWILL_OFI_CHUNKS];
    if (channel->slots.written - channel->slots.emptied >= TWILL_OFI_CHUNKS ||
        note->request != NULL)
        return 0; /* a control message will free a slot, or a completion the note */
    const struct twill_remote slot = {.at = twill_ofi_slot(t, channel, channel->slots.written),
                                      .key = channel->slots.key};
    int done = twill_ofi_write_to(t, op, data, bytes, NULL, &slot, error);
    if (done != 1)
        return done;
    note->request = request;
    twill_ofi_private(request)->unsaid++;
    channel->slots.written++;
    channel->slots.notes++;
    done = twill_ofi_send_notes(t, channel, error);
    return done < 0 ? done : 1;
}

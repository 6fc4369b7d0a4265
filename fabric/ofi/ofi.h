/* SPDX-License-Identifier: Apache-2.0 */
/* The ofi transport: tagged messages over a reliable datagram endpoint of libfabric.
 *
 * Every message has one header message, in order per (from, to, lane). Up to t->eager bytes travel
 * behind the header. Larger ones are sent from the sender's buffer to the receiver's, in segments,
 * after the receiver has said "clear to send" - which it does as soon as its RECV is posted:
 *
 *      sender, SEND                         receiver, RECV
 *      header ------------------------>     compares signature and bytes
 *                      <--------------      clear to send (at RECV; segments are posted)
 *      segments, several in flight ---->    fold or nothing, when they have arrived in order
 *
 * So no payload ever meets a receive of another size (several providers hang on truncation), and
 * none arrives unexpected. Both sides compare; whoever differs finishes with TWILL_ERR_MISMATCH.
 * Headers are limited by credits per (peer, lane), returned in control messages: a sender that runs
 * ahead waits in its own queue instead of filling the provider's memory. Control messages are taken
 * at any time, headers and payload only for a posted RECV. All lanes together stay below the 64
 * unexpected messages that libfabric's newer tcp keeps per peer before it stops reading from it.
 *
 * Tag, 34 bits: communicator 12 (the low ones: each has an endpoint of its own anyway), lane 4,
 * sending rank 16, channel 2. */
#ifndef TWILL_OFI_H
#define TWILL_OFI_H

#include "fabric/registry.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#define TWILL_OFI_LANES    TWILL_LANES
#define TWILL_OFI_EAGER    8192u /* payload bytes behind a header, at most */
#define TWILL_OFI_CREDITS  7u    /* headers a sender may be ahead of the RECVs, per lane */
#define TWILL_OFI_HEADERS  2u    /* header receives posted per lane */
#define TWILL_OFI_CLEAR    4u    /* large messages cleared to send per lane */
#define TWILL_OFI_SEGMENTS 4u    /* segments in flight per lane and direction */
#define TWILL_OFI_CONTROLS 32u   /* control receives posted per endpoint */
#define TWILL_OFI_BUFFERS  64u   /* sends in flight out of transport memory */
#define TWILL_OFI_OF_PEER  16u   /* of them to one peer: a slow one must not hold up the rest */
#define TWILL_OFI_BATCH    16u   /* completions read at once */
#define TWILL_OFI_TAG_BITS 34
#define TWILL_OFI_SEGMENT  (64u << 20)
#define TWILL_OFI_FOLDED   (1u << 20) /* segment when it is folded: overlaps with the next */

enum twill_ofi_channel { TWILL_OFI_HEADER, TWILL_OFI_PAYLOAD, TWILL_OFI_CONTROL };

enum twill_ofi_message {
    TWILL_OFI_EAGER_DATA = 1, /* payload follows in the same message */
    TWILL_OFI_LARGE,          /* payload waits for a clear to send */
    TWILL_OFI_CLEAR_TO_SEND,
    TWILL_OFI_CREDIT
};

/* Header of a message, and the whole of a control message. Host byte order: open() refuses ranks
 * of another one. */
struct twill_ofi_header {
    uint32_t signature;
    uint32_t sequence; /* of the message on its (from, to, lane) */
    uint64_t bytes;    /* of the message: the sender's, or in a clear to send the receiver's */
    uint64_t segment;  /* clear to send: bytes of all segments but the last */
    uint32_t consumed; /* control: headers this rank has taken from the addressee: credit */
    uint8_t kind;      /* enum twill_ofi_message */
    uint8_t lane;
    uint16_t spare;
};
_Static_assert(sizeof(struct twill_ofi_header) == 32, "a header is half a line");
_Static_assert(TWILL_OFI_LANES *TWILL_OFI_CREDITS <= 64, "unexpected messages of a peer");

#define TWILL_OFI_BUFFER_BYTES (sizeof(struct twill_ofi_header) + TWILL_OFI_EAGER)

enum twill_ofi_op_kind {
    TWILL_OFI_OP_SEND_BUFFER,
    TWILL_OFI_OP_SEND_SEGMENT,
    TWILL_OFI_OP_RECV_HEADER,
    TWILL_OFI_OP_RECV_SEGMENT,
    TWILL_OFI_OP_RECV_CONTROL
};

/* One operation of the provider. The context comes first: completions name its address. All ops
 * live in the transport's memory, none in requests, so that nothing dangles after a failure. */
struct twill_ofi_op {
    struct fi_context2 context;
    struct twill_ofi_op *next;      /* in the pool of free ones */
    struct twill_ofi_lane *lane;    /* NULL: control receive */
    struct twill_transfer *request; /* or NULL */
    unsigned char *buffer;          /* transport memory, or NULL: the request's */
    size_t bytes;
    uint8_t kind;
    bool posted; /* the provider has it */
    bool done;   /* completed, not yet taken */
};

/* What the transport keeps in a request while it is posted. */
struct twill_ofi_private {
    struct fid_mr *mr;
    size_t posted;  /* bytes handed to the provider */
    size_t segment; /* RECV: announced */
    uint32_t sequence;
    bool cleared;  /* RECV: clear to send has gone */
    bool verified; /* RECV: header was compared */
};
_Static_assert(sizeof(struct twill_ofi_private) <=
                   sizeof(((struct twill_transfer *)NULL)->private_),
               "fits into a request");

static inline struct twill_ofi_private *twill_ofi_private(struct twill_transfer *request)
{
    return (struct twill_ofi_private *)(void *)request->private_;
}

struct twill_ofi_clear {
    struct twill_ofi_header header;
    bool used;
};

/* Both directions of one lane with one peer. */
struct twill_ofi_lane {
    struct twill_ofi_peer *peer;
    struct twill_ofi_lane *next_stuck;
    bool stuck;   /* in the list of lanes to try again */
    bool broken;  /* a RECV did not match: nothing more is taken */
    uint8_t lane; /* number */

    struct twill_transfer_queue headers_out;       /* SENDs whose header has not gone */
    struct twill_transfer_queue payload_out;       /* large SENDs not wholly posted */
    uint32_t sent;                                 /* headers sent */
    uint32_t acked;                                /* headers the peer has taken */
    struct twill_ofi_clear clear[TWILL_OFI_CLEAR]; /* clears received */
    struct twill_ofi_op segment_out[TWILL_OFI_SEGMENTS];

    struct twill_transfer_queue in;    /* RECVs not complete */
    struct twill_transfer *next_large; /* first large RECV whose segments are not all posted */
    uint32_t received;                 /* RECVs taken */
    uint32_t awaited;                  /* header receives posted, ever */
    uint32_t consumed;                 /* headers taken */
    uint32_t told;                     /* what the peer knows of consumed */
    uint32_t cleared;                  /* large RECVs cleared and not complete */
    uint32_t segments_posted;          /* ring of segment_in, ever */
    uint32_t segments_taken;
    struct twill_ofi_op header_in[TWILL_OFI_HEADERS];
    struct twill_ofi_op segment_in[TWILL_OFI_SEGMENTS];
};

struct twill_ofi_peer {
    uint32_t rank;
    bool connected;      /* address inserted */
    uint32_t sends_busy; /* send buffers with messages to it */
    fi_addr_t address;
    struct fid_mr *mr; /* of memory */
    unsigned char *memory;
    struct twill_ofi_lane lanes[TWILL_OFI_LANES];
};

/* For tests: what this machine's providers do not do by themselves. */
struct twill_ofi_options {
    bool force_registration; /* treat FI_MR_LOCAL as required */
    bool no_inject;
    size_t max_message; /* 0: the endpoint's */
    uint32_t again;     /* every so many posts are answered "later"; 0: never */
};

struct twill_ofi {
    struct twill_transport base;
    const struct twill_transport_params *params;
    struct twill_ofi_options options;
    struct twill_transport_params copy;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    struct fid_mr *mr;     /* of memory */
    unsigned char *memory; /* send buffers, then control receives */
    bool registers;        /* every buffer needs a descriptor */
    uint64_t next_key;     /* for providers that leave keys to us */
    bool standing;         /* header receives are posted before their RECVs */
    uint32_t credits;      /* headers a sender may be ahead, per lane */
    size_t eager;          /* agreed by all ranks */
    size_t max_message;    /* agreed by all ranks */
    size_t inject;         /* own */
    uint32_t rank, size;
    uint32_t posts;       /* counted for options.again */
    size_t address_bytes; /* stride in addresses */
    unsigned char *addresses;
    size_t *address_length;        /* [size] */
    struct twill_ofi_peer **peers; /* [size], NULL until first contact */
    struct twill_ofi_op sends[TWILL_OFI_BUFFERS];
    struct twill_ofi_op *free_sends;
    uint32_t sends_busy;
    struct twill_ofi_op controls[TWILL_OFI_CONTROLS];
    uint32_t controls_idle; /* to be posted again */
    struct twill_ofi_lane *stuck_head, *stuck_tail;
    twill_status failed;
    char why[192];
    char description[512];
};

/* Wire format and agreement check; changed when either changes. */
#define TWILL_OFI_WIRE 0x77740001u

/* --- choose.c: which of the interfaces libfabric offers ------------------------------------- */
twill_status twill_ofi_choose(struct fi_info **chosen, const struct twill_transport_params *params,
                              char *why, size_t why_bytes, struct twill_error *error);
/* "192.0.2.1:4711", or the provider's own notation, for people. */
void twill_ofi_address_text(const struct fi_info *info, const void *address, size_t bytes,
                            char *text, size_t text_bytes);

/* --- endpoint.c: the fids, and registration -------------------- */
twill_status twill_ofi_endpoint_open(struct twill_ofi *t, struct twill_error *error);
void twill_ofi_endpoint_close(struct twill_ofi *t); /* the endpoint only: stops all transfers */
bool twill_ofi_endpoint_free(struct twill_ofi *t);  /* everything; false: memory must stay */
twill_status twill_ofi_register(struct twill_ofi *t, const void *start, size_t bytes,
                                struct fid_mr **mr, struct twill_error *error);
void twill_ofi_unregister(struct fid_mr **mr);
void twill_ofi_unregister_all(struct twill_ofi *t); /* of buffers, peers and posted requests */
static inline void *twill_ofi_desc(struct fid_mr *mr)
{
    return mr == NULL ? NULL : fi_mr_desc(mr);
}

/* --- address.c: agreement and peers ---------------------------------------------------------- */
/* Collective. local: how far this rank has come, so that the others need not wait for it. */
twill_status twill_ofi_agree(struct twill_ofi *t, twill_status local, struct twill_error *error);
/* State of a peer; allocated and its address inserted at the first contact. */
twill_status twill_ofi_peer(struct twill_ofi *t, uint32_t rank, struct twill_ofi_peer **peer,
                            struct twill_error *error);
void twill_ofi_peer_free(struct twill_ofi_peer *peer);

/* --- post.c: single operations. 1: done, 0: not now, negative: status ------------------ */
int twill_ofi_send(struct twill_ofi *t, struct twill_ofi_op *op, const void *data, size_t bytes,
                   struct fid_mr *mr, enum twill_ofi_channel channel, struct twill_error *error);
int twill_ofi_recv(struct twill_ofi *t, struct twill_ofi_op *op, void *data, size_t bytes,
                   struct fid_mr *mr, enum twill_ofi_channel channel, struct twill_error *error);
/* Header and the payload of request (or NULL) in one message out of transport memory. *finished:
 * the data is out of our hands; else the request finishes when the operation completes. */
int twill_ofi_send_small(struct twill_ofi *t, struct twill_ofi_lane *lane,
                         struct twill_ofi_header *header, struct twill_transfer *request,
                         enum twill_ofi_channel channel, bool *finished, struct twill_error *error);
uint32_t twill_ofi_tag_from(uint64_t tag);
/* Post the control receives that are not. */
twill_status twill_ofi_controls_post(struct twill_ofi *t, struct twill_error *error);
/* Have progress try this lane again. */
void twill_ofi_stuck(struct twill_ofi *t, struct twill_ofi_lane *lane);
/* Words for a negative libfabric code, and the status it means; lane names the peer, or NULL. */
twill_status twill_ofi_fail(struct twill_error *error, const char *what, int code,
                            const struct twill_ofi_lane *lane);

/* --- send.c, recv.c, progress.c. How many requests finished, or a negative status ------ */
int twill_ofi_send_advance(struct twill_ofi *t, struct twill_ofi_lane *lane,
                           struct twill_error *error);
int twill_ofi_segment_sent(struct twill_ofi *t, struct twill_ofi_op *op, struct twill_error *error);
twill_status twill_ofi_control(struct twill_ofi *t, const struct twill_ofi_op *op, uint32_t from,
                               size_t bytes, struct twill_ofi_lane **lane,
                               struct twill_error *error);
void twill_ofi_recv_add(struct twill_ofi *t, struct twill_ofi_lane *lane,
                        struct twill_transfer *request);
int twill_ofi_recv_advance(struct twill_ofi *t, struct twill_ofi_lane *lane,
                           struct twill_error *error);
int twill_ofi_progress(struct twill_transport *transport, struct twill_error *error);

/* Take the first one off without finishing it. */
static inline struct twill_transfer *twill_ofi_pop(struct twill_transfer_queue *queue)
{
    struct twill_transfer *request = queue->head;
    queue->head = request->next;
    request->next = NULL;
    return request;
}

/* --- ofi.c ------------------------------------------------------------------------------------ */
twill_status twill_ofi_open(struct twill_transport **transport,
                            const struct twill_transport_params *params,
                            const struct twill_ofi_options *options, struct twill_error *error);

#endif

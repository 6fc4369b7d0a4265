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
 * All communicators of a context share one endpoint, its memory and its addresses: struct
 * twill_ofi_endpoint. Who makes progress reads the completion queue for all of them, and leaves
 * what is another communicator's in that one's list: requests and callers' buffers are touched by
 * the holder of their communicator only. One lock, the home's, is held in every call.
 *
 * Tag, 48 bits (cxi has no more): communicator plus a secret of the job 26, lane 4, sending rank
 * 16, channel 2. Where the provider has 60 bits, 12 more bits of the secret lie above them. Anybody
 * who reaches the endpoint can send to it: the secret, which is derived from the job's key, is what
 * keeps such messages from the receives. Where addresses are socket addresses and the provider can
 * (FI_DIRECTED_RECV), receives also name the sender's address. */
#ifndef TWILL_OFI_H
#define TWILL_OFI_H

#include "fabric/transports.h"

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#define TWILL_OFI_LANES        TWILL_LANES
#define TWILL_OFI_EAGER        16320u /* payload bytes behind a header, at most: gni, rxm 16 KiB */
#define TWILL_OFI_CREDITS      7u     /* headers a sender may be ahead of the RECVs, per lane */
#define TWILL_OFI_HEADERS      2u     /* header receives posted per lane */
#define TWILL_OFI_CLEAR        4u     /* large messages cleared to send per lane */
#define TWILL_OFI_CHUNKS       4u     /* segments in flight per lane and direction */
#define TWILL_OFI_CONTROLS     32u    /* control receives posted per endpoint */
#define TWILL_OFI_BUFFERS      64u    /* sends in flight out of transport memory */
#define TWILL_OFI_OF_PEER      16u  /* of them to one peer: a slow one must not hold up the rest */
#define TWILL_OFI_BATCH        16u  /* completions read at once */
#define TWILL_OFI_IN_FLIGHT    512u /* sends asked of the provider, at most */
#define TWILL_OFI_CACHED       128u /* registrations kept, at most: each use asks for all, */
#define TWILL_OFI_CACHED_BYTES ((size_t)4 << 30) /* and bytes of them */
#define TWILL_OFI_POLLS_LEAST                                                                      \
    100u /* before it is given up, if late: the machine may have stopped */
#define TWILL_OFI_COMM_BITS 26
#define TWILL_OFI_TAG_BITS  48
#define TWILL_OFI_LONG_TAG  60 /* bits, where the provider has them */
#define TWILL_OFI_CHUNK     (64u << 20)
#define TWILL_OFI_PULLED    16384u /* longer messages are pulled by some providers */
#define TWILL_OFI_REDUCE_SEGMENT                                                                   \
    (1u << 20)                /* segment when it is folded: overlaps with the next                 \
                               */
#define TWILL_OFI_EASY 16384u /* what providers send without asking the receiver, mostly */

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
    uint64_t chunk;    /* clear to send: bytes of all segments but the last */
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
    TWILL_OFI_OP_SEND_CHUNK,
    TWILL_OFI_OP_RECV_HEADER,
    TWILL_OFI_OP_RECV_CHUNK,
    TWILL_OFI_OP_RECV_CONTROL
};

struct twill_ofi;
struct twill_ofi_endpoint;
struct twill_ofi_registration;

/* A rank of the job. */
struct twill_ofi_contact {
    fi_addr_t address;
    bool known;          /* inserted into the address vector */
    uint32_t sends_busy; /* send buffers with messages to it */
};

/* One operation of the provider. The context comes first: completions name its address. All ops
 * live in the transport's memory, none in requests, so that nothing dangles after a failure. */
struct twill_ofi_op {
    struct fi_context2 context;
    struct twill_ofi_op *next;         /* in the pool of free ones */
    struct twill_ofi *owner;           /* communicator; NULL: nobody's, or it is gone */
    struct twill_ofi_lane *lane;       /* of the owner; not of control receives */
    struct twill_ofi_contact *contact; /* send buffers: whom to */
    struct twill_transfer *request;    /* or NULL */
    unsigned char *buffer;             /* transport memory, or NULL: the request's */
    size_t bytes;
    uint32_t sequence; /* send buffers: of the message they are about */
    uint8_t kind;
    uint8_t message; /* send buffers: enum twill_ofi_message */
    bool posted;     /* the provider has it */
    bool done;       /* completed, not yet taken */
};

/* What the transport keeps in a request while it is posted. */
struct twill_ofi_private {
    struct twill_ofi_registration *memory;
    size_t posted; /* bytes handed to the provider */
    size_t chunk;  /* RECV: announced */
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
    struct twill_ofi_op chunk_out[TWILL_OFI_CHUNKS];

    struct twill_transfer_queue in;    /* RECVs not complete */
    struct twill_transfer *next_large; /* first large RECV whose segments are not all posted */
    uint32_t received;                 /* RECVs taken */
    uint32_t awaited;                  /* header receives posted, ever */
    uint32_t consumed;                 /* headers taken */
    uint32_t reported;                 /* what the peer knows of consumed */
    uint32_t cleared;                  /* large RECVs cleared and not complete */
    uint32_t chunks_posted;            /* ring of chunk_in, ever */
    uint32_t chunks_taken;
    struct twill_ofi_registration *orphan; /* of a RECV that did not match: the provider still has
                                              its receives */
    struct twill_ofi_op header_in[TWILL_OFI_HEADERS];
    struct twill_ofi_op chunk_in[TWILL_OFI_CHUNKS];
};

struct twill_ofi_peer {
    uint32_t rank;              /* in the communicator */
    char name[TWILL_RANK_TEXT]; /* for people */
    struct twill_ofi_contact *contact;
    struct fid_mr *mr; /* of memory */
    unsigned char *memory;
    struct twill_ofi_lane lanes[TWILL_OFI_LANES];
};

/* The functions of libfabric that are no operations of an object, from the library that was opened
 * at run time. A copy is as good. */
struct twill_libfabric {
    __typeof__(fi_getinfo) *getinfo;
    __typeof__(fi_freeinfo) *freeinfo;
    __typeof__(fi_dupinfo) *dupinfo;
    __typeof__(fi_fabric) *fabric;
    __typeof__(fi_strerror) *explain;
};

/* For tests: what this machine's providers do not do by themselves. */
struct twill_ofi_options {
    bool force_registration; /* treat FI_MR_LOCAL as required */
    bool no_inject;
    size_t max_message; /* 0: the endpoint's */
    uint32_t again;     /* every so many posts are answered "later"; 0: never */
    bool keeps;         /* the provider does not cancel */
    uint32_t cached;    /* registrations kept, at most; 0: TWILL_OFI_CACHED */
};

/* What the communicators of a context share. Everything is the lock's but what does not change
 * after it was made. */
struct twill_ofi_endpoint {
    struct twill_common common;
    pthread_mutex_t lock;
    bool exclusive; /* of one communicator only */
    struct twill_transport_params params;
    struct twill_ofi_options options;
    struct twill_libfabric library;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;     /* NULL once it is closed: nothing can land any more */
    struct fid_mr *mr;     /* of memory */
    unsigned char *memory; /* send buffers, then control receives */
    bool registers;        /* every buffer needs a descriptor */
    uint64_t next_key;     /* for providers that leave keys to us */
    bool caches;           /* registrations outlive the requests they were made for */
    bool monitors;         /* also of memory that may be gone */
    struct twill_ofi_registration *registrations; /* last used first */
    uint32_t cached;                              /* of them, in the cache */
    size_t cached_bytes;
    size_t locked_before; /* bytes locked by others, at most */
    bool suspects;        /* what was pinned has gone: it may be elsewhere */
    bool closing;         /* nothing more is posted */
    bool standing;        /* header receives are posted before their RECVs */
    uint32_t credits;     /* headers a sender may be ahead, per lane */
    size_t eager;         /* agreed by all ranks */
    size_t max_message;   /* agreed by all ranks */
    size_t inject;        /* own */
    uint32_t rank, size;  /* of the job */
    uint32_t tag_secret;  /* secret of the job in its tags: added to the communicator's number */
    uint64_t seal;        /* the same: bits above TWILL_OFI_TAG_BITS */
    uint32_t tag_bits;    /* TWILL_OFI_TAG_BITS or TWILL_OFI_LONG_TAG */
    bool directed;        /* receives name their sender's address */
    uint32_t posts;       /* counted for options.again */
    size_t address_bytes; /* stride in addresses */
    unsigned char *addresses;
    size_t *address_length;             /* [size] */
    struct twill_ofi_contact *contacts; /* [size] */
    struct twill_ofi_op sends[TWILL_OFI_BUFFERS];
    struct twill_ofi_op *free_sends;
    struct twill_ofi_op controls[TWILL_OFI_CONTROLS];
    uint32_t controls_idle;     /* to be posted again */
    struct twill_ofi *open;     /* communicators */
    struct twill_ofi *deferred; /* closed ones of whom the provider still has operations */
    twill_status failed;        /* for all communicators, and why */
    char failure[256];
    char why[192];
    char description[512];
};

/* A communicator. Its requests are touched by its holder only; everything else under the home's
 * lock, and by whoever reads the completion queue. */
struct twill_ofi {
    struct twill_transport base;
    struct twill_ofi_endpoint *endpoint;
    struct twill_ofi *next; /* in the home's list */
    const uint32_t *job;    /* rank of the job of each rank; NULL: the same */
    uint32_t comm;
    uint32_t rank, size;
    struct twill_ofi_peer **peers;           /* [size], NULL until first contact */
    struct twill_ofi_lane *stuck_head;       /* to be tried again */
    struct twill_ofi_lane *stuck_tail;       /* */
    struct twill_transfer *sent, *sent_last; /* sent out of send buffers, likewise */
    uint32_t sends_busy;                     /* send buffers */
    uint32_t headers_busy;                   /* header receives with the provider */
    uint32_t chunks_busy;                    /* operations on callers' memory */
    int noticed;                             /* completions since its holder looked */
    bool cancelled;
    twill_status failed;
    struct twill_error failure; /* noticed by another's progress */
};

/* Wire format and agreement check; changed when either changes. */
#define TWILL_OFI_WIRE 0x77740003u

/* --- ofi_library.c: libfabric itself
 * -------------------------------------------------------------- */
/* Open it, from TWILL_LIBFABRIC's path or where the loader finds it (NULL). It stays loaded until
 * the process ends. The program's signal actions are left as they are. */
twill_status twill_ofi_library_open(struct twill_libfabric *library, const char *path,
                                    struct twill_error *error);
/* fi_getinfo(), which leaves signal actions alone, too. */
int twill_ofi_library_getinfo(const struct twill_libfabric *library, uint32_t version,
                              const struct fi_info *hints, struct fi_info **list);

/* --- ofi_choose.c: which of the interfaces libfabric offers -------------------------------------
 */
/* Infos are freed with the library's freeinfo(). */
twill_status twill_ofi_choose(const struct twill_libfabric *library, struct fi_info **chosen,
                              const struct twill_transport_params *params, char *why,
                              size_t why_bytes, struct twill_error *error);
/* All that could serve. */
twill_status twill_ofi_list(const struct twill_libfabric *library, struct fi_info **list,
                            struct twill_error *error);
/* Does it run over an interface's IP address (tcp), instead of a fabric of its own? */
bool twill_ofi_is_ip(const struct fi_info *info);
/* "192.0.2.1:4711", or the provider's own notation, for people. */
void twill_ofi_address_text(const struct fi_info *info, const void *address, size_t bytes,
                            char *text, size_t text_bytes);

/* --- ofi_shared_endpoint.c: what communicators share
 * ----------------------------------------------------------
 */
/* Join the home there is, or make one with the other ranks: collective then. */
twill_status twill_ofi_join(struct twill_ofi *t, const struct twill_transport_params *params,
                            const struct twill_ofi_options *options, struct twill_error *error);
/* Leave it. What the provider has not given back stays until it is, or until the home is closed. */
void twill_ofi_leave(struct twill_ofi *t);
/* The open communicator of that number, or NULL. */
struct twill_ofi *twill_ofi_find(struct twill_ofi_endpoint *endpoint, uint32_t comm);
/* From now on every communicator fails with these words. */
void twill_ofi_endpoint_fail(struct twill_ofi_endpoint *endpoint, twill_status status,
                             const char *message);
/* A communicator fails with this, at its next progress. */
void twill_ofi_set_failure(struct twill_ofi *t, twill_status status,
                           const struct twill_error *error);
/* Memory of a communicator. */
void twill_ofi_destroy(struct twill_ofi *t);

/* --- ofi_endpoint.c: the fids
 * ----------------------------------------------------------------------
 */
twill_status twill_ofi_endpoint_open(struct twill_ofi_endpoint *endpoint,
                                     struct twill_error *error);
void twill_ofi_endpoint_close(struct twill_ofi_endpoint *endpoint); /* stops all transfers */
/* Registered memory is bound to the endpoint (FI_MR_ENDPOINT). */
bool twill_ofi_binds_memory(const struct twill_ofi_endpoint *endpoint);
bool twill_ofi_endpoint_free(struct twill_ofi_endpoint *endpoint); /* false: memory must stay */

/* --- ofi_registration.c: memory the provider must know
 * ----------------------------------------------
 */
/* Of the transport's own memory; *mr stays NULL where the provider needs none. */
twill_status twill_ofi_register(struct twill_ofi_endpoint *endpoint, const void *start,
                                size_t bytes, struct fid_mr **mr, struct twill_error *error);
void twill_ofi_unregister(struct fid_mr **mr);
/* Of a caller's memory, for the time of one request of t. */
twill_status twill_ofi_hold(struct twill_ofi *t, const void *start, size_t bytes,
                            struct twill_ofi_registration **memory, struct twill_error *error);
void twill_ofi_release(struct twill_ofi *t, struct twill_ofi_registration **memory);
/* Keep nothing of this memory; NULL: of any. */
void twill_ofi_forget(struct twill_ofi_endpoint *endpoint, const void *start, size_t bytes);
/* Keep what nobody declared too, where the kernel tells of it. */
void twill_ofi_monitor(struct twill_ofi_endpoint *endpoint);
/* Of all posted requests of a communicator; and of its peers' memory. */
void twill_ofi_release_all(struct twill_ofi *t);
void twill_ofi_unregister_peers(struct twill_ofi *t);
void *twill_ofi_desc(const struct twill_ofi_registration *memory);

/* --- ofi_address.c: agreement and peers
 * ------------------------------------------------------------
 */
/* Collective. local: how far this rank has come, so that the others need not wait for it. */
twill_status twill_ofi_agree(struct twill_ofi_endpoint *endpoint, twill_status local,
                             struct twill_error *error);
/* State of a peer; allocated and its address inserted at the first contact. */
twill_status twill_ofi_peer(struct twill_ofi *t, uint32_t rank, struct twill_ofi_peer **peer,
                            struct twill_error *error);
void twill_ofi_peer_free(struct twill_ofi_peer *peer);

/* --- ofi_post.c: single operations. 1: done, 0: not now, negative: status
 * --------------------------
 */
int twill_ofi_send(struct twill_ofi *t, struct twill_ofi_op *op, const void *data, size_t bytes,
                   void *desc, struct twill_error *error);
int twill_ofi_recv(struct twill_ofi *t, struct twill_ofi_op *op, void *data, size_t bytes,
                   void *desc, struct twill_error *error);
/* Header and the payload of request (or NULL) in one message out of transport memory. *finished:
 * the data is out of our hands; else the request finishes when the operation completes. */
int twill_ofi_send_small(struct twill_ofi *t, struct twill_ofi_lane *lane,
                         struct twill_ofi_header *header, struct twill_transfer *request,
                         enum twill_ofi_channel channel, bool *finished, struct twill_error *error);
/* The tag of a message; the endpoint tells how long it is. */
uint64_t twill_ofi_tag(const struct twill_ofi_endpoint *endpoint, uint32_t comm, uint32_t lane,
                       uint32_t from, enum twill_ofi_channel channel);
uint32_t twill_ofi_tag_from(uint64_t tag);
uint32_t twill_ofi_tag_comm(const struct twill_ofi_endpoint *endpoint, uint64_t tag);
/* Post the control receives that are not. */
twill_status twill_ofi_controls_post(struct twill_ofi_endpoint *endpoint,
                                     struct twill_error *error);
/* Have progress try this lane again. */
void twill_ofi_stuck(struct twill_ofi *t, struct twill_ofi_lane *lane);
/* Words for a negative libfabric code, and the status it means; lane names the peer, or NULL. */
twill_status twill_ofi_fail(const struct twill_ofi_endpoint *endpoint, struct twill_error *error,
                            const char *what, int code, const struct twill_ofi_lane *lane);

/* --- ofi_send.c, ofi_recv.c. How many requests finished, or a negative status
 * --------------------------
 */
int twill_ofi_send_advance(struct twill_ofi *t, struct twill_ofi_lane *lane,
                           struct twill_error *error);
twill_status twill_ofi_control(struct twill_ofi *t, const struct twill_ofi_op *op, uint32_t from,
                               size_t bytes, struct twill_error *error);
void twill_ofi_recv_add(struct twill_ofi *t, struct twill_ofi_lane *lane,
                        struct twill_transfer *request);
int twill_ofi_recv_advance(struct twill_ofi *t, struct twill_ofi_lane *lane,
                           struct twill_error *error);

/* --- ofi_progress.c
 * --------------------------------------------------------------------------------
 */
/* Give completions to the communicators they are of. The lock is held. */
twill_status twill_ofi_read(struct twill_ofi_endpoint *endpoint, struct twill_error *error);
int twill_ofi_progress(struct twill_transport *transport, struct twill_error *error);

/* --- ofi_cancel.c
 * ----------------------------------------------------------------------------------
 */
void twill_ofi_cancel(struct twill_transport *transport);
void twill_ofi_close(struct twill_transport *transport);

/* --- ofi_locked.c: is memory still the memory it was?
 * ------------------------------------------------
 */
/* Does this kernel tell? */
bool twill_locked_works(void);
/* Pin it in place; false: it may not, or somebody else has done so (ours: not he, if any). */
bool twill_locked_take(void *start, size_t bytes, bool ours);
void twill_locked_drop(void *start, size_t bytes); /* unpin whatever is there */
/* Is it all of it what was taken? */
bool twill_locked_still(const void *start, size_t bytes);
/* Is its first page? A third of the price. */
bool twill_locked_begins(const void *start);
/* What this process has locked, by whomever; SIZE_MAX: nobody tells. Some 5 us. */
size_t twill_locked_bytes(void);

/* Bytes of the segment that begins there, of segments of so many; both sides ask. Where a provider
 * pulls messages out of the sender's memory it does so by words of 4 bytes (gni, above 16 KiB): an
 * odd end of a long message goes by itself. */
static inline size_t twill_ofi_chunk_bytes(size_t total, size_t at, size_t chunk)
{
    size_t left = total - at;
    if (left >= chunk)
        return chunk;
    return left > TWILL_OFI_PULLED && left % 4 != 0 ? left & ~(size_t)(TWILL_CACHE_LINE - 1) : left;
}

/* Take the first one off without finishing it. */
static inline struct twill_transfer *twill_ofi_pop(struct twill_transfer_queue *queue)
{
    struct twill_transfer *request = queue->head;
    queue->head = request->next;
    request->next = NULL;
    return request;
}

/* --- ofi_rails.c: see twill_transport_ops
 * ----------------------------------------------------------
 */
twill_status twill_ofi_rails(const struct twill_transport_params *params, const char *name,
                             struct twill_rail *rails, size_t most, size_t *count,
                             struct twill_error *error);

/* --- ofi.c -------------------------------------------------------------------------------------
 */
twill_status twill_ofi_open(struct twill_transport **transport,
                            const struct twill_transport_params *params,
                            const struct twill_ofi_options *options, struct twill_error *error);

#endif

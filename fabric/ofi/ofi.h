/* SPDX-License-Identifier: Apache-2.0 */
/* The ofi transport: tagged messages over a reliable datagram endpoint of libfabric.
 *
 * Each message has one header message, in order per (from, to, lane), with which up to limits.eager
 * bytes of payload travel. Up to TWILL_OFI_TAIL more bytes follow in a second message at once. That
 * is so short that no provider waits for its receiver, who may have found a mismatch and never take
 * it. Larger payload goes in chunks from the sender's buffer to the receiver's, after the
 * receiver's "clear to send", which it returns once its RECV is posted:
 *
 *      sender, SEND                         receiver, RECV
 *      header ------------------------>     compares signature and bytes
 *                      <--------------      clear to send (at RECV; chunks are posted)
 *      chunks, several in flight ----->     reduced, if asked for, in order
 *
 * Where a provider may crash as it pulls a long message (ofi_endpoint.c), chunks are written into
 * slots of the receiver (ofi_window.c), and a message of TWILL_OFI_NOTE bytes follows each.
 *
 * Payload therefore never arrives unexpected, nor at a receive of another size, where several
 * providers hang. Both sides compare signature and size. A side that finds a difference ends its
 * request with TWILL_ERR_MISMATCH. Credits per (peer, lane), returned in headers or, where none go
 * back, in control messages, limit how many headers a sender may be ahead. Beyond that it queues
 * SENDs itself. Control receives are always posted, those of payload and (without limits.preposts)
 * headers only for a posted RECV. The headers of all channels with one peer stay within the 64
 * unexpected messages after which libfabric's newer tcp stops reading from that peer.
 *
 * A WRITE goes into memory that the peer has exposed, without a request there (ofi_write.c). It has
 * its place in the order of headers, so that a SEND after it arrives after its data.
 *
 * All communicators of a context share one endpoint with its memory and addresses. Each progress()
 * reads the completion queue for all of them. Completions of another communicator only put its
 * channel into that communicator's list, because only its thread touches its requests and buffers.
 *
 * A tag has 48 bits, as many as cxi offers. From the top they are 26 for the communicator number
 * plus a secret of the job, 4 for the lane, 16 for the sending rank and 2 for the kind. Providers
 * with 60 bits carry 12 more bits of the secret. It keeps messages of other processes, which may
 * reach the endpoint, from matching our receives. Where addresses are socket addresses, receives
 * also name the sender's if the provider can (FI_DIRECTED_RECV). */
#ifndef TWILL_OFI_H
#define TWILL_OFI_H

#include "fabric/bootstrap/bootstrap.h"
#include "fabric/shm/node_memory.h"
#include "fabric/transports.h"

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#define TWILL_OFI_LANES            TWILL_LANES
#define TWILL_PINNED_PAGE          4096u  /* unit in which memory is locked and registered */
#define TWILL_OFI_EAGER            16320u /* most payload of a header message (gni, rxm 16 KiB) */
#define TWILL_OFI_TAIL             64u    /* most payload that follows in a second message */
#define TWILL_OFI_CREDITS          7u /* headers a sender may be ahead of the RECVs, per channel */
#define TWILL_OFI_HEADERS          2u /* header receives posted per channel */
#define TWILL_OFI_CLEAR            4u /* large messages cleared to send at a time, per channel */
#define TWILL_OFI_CHUNKS           4u /* chunks in flight per channel and direction */
#define TWILL_OFI_SLOT             (128u << 10) /* bytes of a chunk that is written into a slot */
#define TWILL_OFI_OUT              (2 * TWILL_OFI_CHUNKS) /* chunks, then notes, on their way */
#define TWILL_OFI_NOTE             1u   /* bytes of the message that says that a slot was written */
#define TWILL_OFI_CONTROLS         32u  /* control receives posted per endpoint */
#define TWILL_OFI_BUFFERS          64u  /* sends in flight from transport memory */
#define TWILL_OFI_BUFFERS_PER_PEER 16u  /* most of them for one peer, so that others get some */
#define TWILL_OFI_BATCH            16u  /* most completions read at once */
#define TWILL_OFI_IN_FLIGHT        512u /* most sends outstanding at the provider */
#define TWILL_OFI_CACHED           128u /* most registrations cached (each use checks all) */
#define TWILL_OFI_CACHED_BYTES     ((size_t)4 << 30) /* most bytes of all cached registrations */
#define TWILL_OFI_POLLS_LEAST      100u /* polls before a timeout counts (after suspend) */
#define TWILL_OFI_COMM_BITS        26
#define TWILL_OFI_TAG_BITS         48
#define TWILL_OFI_LONG_TAG         60 /* bits, where the provider has as many */
#define TWILL_OFI_CHUNK            (64u << 20)
#define TWILL_OFI_PULLED           16384u /* bytes above which some providers pull a message */

enum twill_ofi_tag_kind { TWILL_OFI_HEADER, TWILL_OFI_PAYLOAD, TWILL_OFI_CONTROL };
/* Kinds of messages, as headers carry them. */
enum twill_ofi_message {
    TWILL_OFI_EAGER_DATA = 1, /* payload follows in the same message */
    TWILL_OFI_LARGE,          /* payload follows after a clear to send */
    TWILL_OFI_CLEAR_TO_SEND,
    TWILL_OFI_CREDIT
};

/* Header of a message. A control message ends before `entry`. Byte order is that of the host. */
struct twill_ofi_header {
    uint32_t signature;
    uint32_t sequence;   /* number of the message on its (from, to, lane) */
    uint64_t bytes : 48; /* size of the message as the rank that sends this header has it */
    uint64_t kind : 4;   /* enum twill_ofi_message */
    uint64_t lane : 4;
    uint64_t credit : 8; /* in a message: headers consumed since the channel's header before it */
    union {
        struct twill_message_call call; /* in a message */
        struct {
            uint32_t chunk;    /* in a clear to send: bytes of each chunk but the last */
            uint32_t emptied;  /* slots that this rank has emptied */
            uint32_t consumed; /* headers of the addressee that this rank has consumed */
            uint32_t key;      /* of this rank's window, or 0 */
        };                     /* in a control message */
    };
    struct twill_entry_message entry; /* in a message */
};
#define TWILL_OFI_CONTROL_BYTES offsetof(struct twill_ofi_header, entry)
_Static_assert(sizeof(struct twill_ofi_header) == 48 && TWILL_OFI_CONTROL_BYTES == 32,
               "no padding");
_Static_assert(TWILL_OFI_LANES *TWILL_OFI_CREDITS <= 64, "unexpected messages of a peer");
_Static_assert(TWILL_OFI_LANES <= 16, "a lane fits into a header");

/* Bytes of a send buffer and of that of a header receive. */
#define TWILL_OFI_BUFFER_BYTES (TWILL_OFI_EAGER + TWILL_CACHE_LINE)
_Static_assert(sizeof(struct twill_ofi_header) <= TWILL_CACHE_LINE, "a header and eager payload");

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
struct twill_ofi_exposure;
struct twill_ofi_window;
/* The address of a rank at the provider, an entry of endpoint->addresses, under its lock. */
struct twill_ofi_contact {
    fi_addr_t address;
    bool known;          /* `address` is in the address vector */
    uint32_t sends_busy; /* send buffers in flight to it */
};

/* A send or receive of the provider. Completions carry the address of `context`, so it comes first.
 * Operations are members of endpoint and channels, not of requests, so that no completion refers to
 * freed memory after a failure. The endpoint's lock protects them. */
struct twill_ofi_op {
    struct fi_context2 context;
    struct twill_ofi_op *next; /* in the list of free send buffers */
    struct twill_ofi *owner;   /* its communicator, NULL if it has none or that was closed */
    struct twill_ofi_channel *channel; /* of the owner, NULL for control receives */
    struct twill_ofi_contact *contact; /* destination of a send buffer */
    struct twill_transfer *request;    /* the request whose data it moves, or NULL */
    unsigned char *buffer; /* memory of the transport, NULL if the data is in the request's */
    size_t bytes;          /* posted, or of a header that has arrived, its length */
    uint32_t sequence;     /* number of the message that a send buffer or a chunk belongs to */
    uint8_t kind;          /* enum twill_ofi_op_kind */
    uint8_t message;       /* enum twill_ofi_message of what a send buffer carries */
    bool posted;           /* the provider has it */
    bool done;             /* completed and not yet handled */
};

/* The transport's part of a posted request, kept in its private_. */
struct twill_ofi_private {
    struct twill_ofi_registration *memory; /* of its buffer, or NULL */
    size_t posted;                         /* bytes handed to the provider */
    size_t arrived;    /* of a RECV with payload: bytes that have arrived, from its start on */
    size_t chunk;      /* of a RECV: bytes per chunk as announced in the clear to send */
    uint32_t sequence; /* number of its message on the channel */
    uint32_t unsaid;   /* of a SEND: notes, or messages of one with a tail, that have not left */
    bool cleared;      /* of a RECV: the clear to send was sent */
    bool verified;     /* of a RECV: the header was compared, with any result */
};
_Static_assert(sizeof(struct twill_ofi_private) <=
                   sizeof(((struct twill_transfer *)NULL)->private_),
               "fits into a request");

/* Return the transport's part of a request, which is in request->private_. */
static inline struct twill_ofi_private *twill_ofi_private(struct twill_transfer *request)
{
    return (struct twill_ofi_private *)(void *)request->private_;
}

/* A clear to send that has arrived, or a free place for one. Part of a channel. */
struct twill_ofi_clear {
    struct twill_ofi_header header;
    bool used; /* it holds one */
};

/* Chunks that are written, part of a channel. */
struct twill_ofi_slots {
    uint32_t key;     /* of the peer's window */
    uint32_t written; /* chunks written into slots of it so far */
    uint32_t emptied; /* slots of it that the peer has said to have emptied */
    uint32_t notes;   /* messages that say that a slot was written, to be sent */
    uint32_t writing; /* posted chunks of WRITEs, not to slots, that have not completed */
};

/* What the peer was told so far, part of a channel. */
struct twill_ofi_told {
    uint32_t consumed;  /* value of the channel's `consumed` that the peer last got */
    uint32_t by_header; /* the part of it that headers told */
    uint32_t chunks;    /* value of the channel's `chunks_taken` that the peer last got */
};

/* Both directions of one lane with one peer, part of that peer. The endpoint's lock protects it. */
struct twill_ofi_channel {
    struct twill_ofi_peer *peer;
    struct twill_ofi_channel *next_stuck;
    bool stuck;   /* in the list of channels that progress() retries */
    bool broken;  /* a RECV did not match, and nothing more is received */
    uint8_t lane; /* its number */

    /* SENDs whose header is not sent yet, and WRITEs that are not posted, in their order. */
    struct twill_transfer_queue headers_out;
    struct twill_transfer_queue payload_out; /* large SENDs with chunks to post */
    uint32_t sent;                           /* headers and tails sent so far */
    /* Headers that the peer has said to have consumed. `sent` may be limits.credits ahead of it. */
    uint32_t acked;
    uint32_t heard; /* the same, from the credit in its headers alone */
    struct twill_ofi_clear clear[TWILL_OFI_CLEAR]; /* clear to sends of SENDs in progress */
    struct twill_ofi_op chunk_out[TWILL_OFI_OUT];
    struct twill_ofi_slots slots;

    struct twill_transfer_queue in;    /* RECVs that are not complete, in order */
    struct twill_transfer *next_large; /* first large RECV with chunks to post */
    uint32_t received;                 /* headers and tails of the RECVs posted so far */
    uint32_t awaited;                  /* header receives posted so far */
    uint32_t consumed;                 /* headers and tails that their RECVs have taken so far */
    struct twill_ofi_told told;
    uint32_t cleared;       /* large RECVs that are cleared and not complete */
    uint32_t chunks_posted; /* receives of chunks posted so far, a position in the ring chunk_in */
    uint32_t chunks_taken;  /* chunks that arrived and were delivered so far */
    struct twill_ofi_registration *orphan; /* of a RECV that did not match */
    struct twill_ofi_op header_in[TWILL_OFI_HEADERS];
    struct twill_ofi_op chunk_in[TWILL_OFI_CHUNKS];
};

/* A peer of one communicator. twill_ofi_peer() makes it, and it is freed with the communicator. */
struct twill_ofi_peer {
    uint32_t rank;              /* its rank in the communicator */
    char name[TWILL_RANK_TEXT]; /* for error messages */
    struct twill_ofi_contact *contact;
    struct twill_clock_filter clock; /* clock of its host, estimated from its messages */
    bool heard;                      /* a message of it has arrived */
    struct fid_mr *mr;               /* registration of `memory` */
    unsigned char *memory;           /* buffers of header receives */
    struct twill_ofi_window *window; /* into which it writes, or NULL */
    struct twill_ofi_channel channels[TWILL_OFI_LANES];
};

/* Functions of libfabric, from twill_ofi_library_open(). A value, valid until the process ends. */
struct twill_libfabric {
    __typeof__(fi_getinfo) *getinfo;
    __typeof__(fi_freeinfo) *freeinfo;
    __typeof__(fi_dupinfo) *dupinfo;
    __typeof__(fi_fabric) *fabric;
    __typeof__(fi_strerror) *explain;
};

/* Behaviour of providers that this machine does not have, for tests that open the transport. */
struct twill_ofi_options {
    bool force_registration; /* treat FI_MR_LOCAL as required */
    bool no_inject;          /* as if injected messages did not leave at once */
    size_t max_message;      /* 0 keeps the endpoint's limit */
    uint32_t again;          /* every n-th post is answered "busy", 0 for none */
    bool no_cancel;          /* as if the provider could not cancel */
    bool no_order;           /* as if messages could overtake writes */
    uint32_t cached;         /* most registrations cached, 0 for TWILL_OFI_CACHED */
};

/* The objects of libfabric that make up the endpoint. Part of it, opened and closed with it. */
struct twill_ofi_objects {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq; /* NULL once closed; until then providers may use our memory */
    struct fid_ep *ep; /* NULL once closed; then no more data can arrive */
};

/* The endpoint's own memory for small messages, part of the endpoint. */
struct twill_ofi_buffers {
    unsigned char *memory; /* send buffers, followed by the buffers of control receives */
    struct fid_mr *mr;     /* registration of `memory` */
    struct twill_ofi_op sends[TWILL_OFI_BUFFERS];
    struct twill_ofi_op *free_sends; /* list by `next` */
    struct twill_ofi_op controls[TWILL_OFI_CONTROLS];
    uint32_t controls_idle; /* number of `controls` that are not posted */
};

/* The registrations of callers' memory, part of the endpoint, under its lock. */
struct twill_ofi_registrations {
    bool required;     /* every buffer must be registered */
    bool caches;       /* registrations are kept after their request */
    bool monitors;     /* those of undeclared memory are kept as well (ofi_locked.c) */
    bool suspects;     /* locked memory has moved and may still be locked elsewhere */
    uint64_t next_key; /* last key used, for providers without FI_MR_PROV_KEY */
    struct twill_ofi_registration *list; /* most recently used first */
    uint32_t cached;                     /* number of those of kind CACHED */
    size_t cached_bytes;
    size_t locked_before; /* most bytes that others in this process may have locked */
};

/* Whether WRITEs are used, and when a message that follows one may be posted. */
enum twill_ofi_writes {
    TWILL_OFI_NO_WRITES,
    TWILL_OFI_WRITES_IN_ORDER,  /* at once, as the network keeps their order */
    TWILL_OFI_WRITES_COMPLETE,  /* once the WRITE is complete, as its data have then arrived */
    TWILL_OFI_WRITES_DELIVERED, /* the same, if FI_DELIVERY_COMPLETE is asked for */
};

/* Limits of messages, part of the endpoint, in bytes except for `credits`. Constant once open. */
struct twill_ofi_limits {
    uint32_t credits;   /* headers a sender may be ahead, per channel */
    size_t eager;       /* most payload in a header message, equal on all ranks */
    size_t split;       /* most payload in a header message and a tail, likewise */
    size_t max_message; /* equal on all ranks */
    size_t slot;        /* of a chunk that is written into a slot, 0 if chunks are sent, likewise */
    size_t inject;      /* largest message that leaves at once, 0 if none does */
    bool preposts;      /* header receives are posted before their RECVs */
    size_t write;       /* most bytes of one write */
    enum twill_ofi_writes writes;
};

/* How receives match messages. Part of the endpoint, and constant once it is open. */
struct twill_ofi_matching {
    uint32_t tag_secret; /* secret of the job that is added to the communicator number */
    uint32_t tag_bits;   /* TWILL_OFI_TAG_BITS or TWILL_OFI_LONG_TAG */
    uint64_t seal;       /* more of the secret, in the tag bits above TWILL_OFI_TAG_BITS */
    bool directed;       /* receives name their sender's address */
    uint64_t write_key;  /* secret of the job that is a part of the keys of exposed memory */
};

/* The addresses of all ranks, by their rank in the communicator that opened the endpoint. */
struct twill_ofi_addresses {
    size_t stride;                     /* bytes from one address to the next */
    unsigned char *bytes;              /* [size][stride] in the provider's format */
    size_t *length;                    /* [size] in bytes */
    struct twill_ofi_contact *contact; /* [size] */
};

/* The libfabric endpoint that all communicators of a context share. The first one creates it, and
 * it is closed with the context. `lock` protects all members that change after that. */
struct twill_ofi_endpoint {
    struct twill_common common;
    pthread_mutex_t lock;
    bool exclusive; /* used by one communicator only */
    bool closing;   /* nothing more may be posted */
    struct twill_transport_params params;
    struct twill_ofi_options options;
    uint32_t posts; /* posts so far, as a test lets every n-th be busy (options.again) */
    struct twill_libfabric library;
    struct twill_ofi_objects fi;
    struct twill_ofi_buffers buffers;
    struct twill_ofi_registrations registrations;
    struct twill_ofi_limits limits;
    struct twill_ofi_matching matching;
    struct twill_ofi_addresses addresses;
    uint32_t rank, size;        /* of the communicator that opened it */
    struct twill_ofi *open;     /* open communicators */
    struct twill_ofi *deferred; /* closed communicators that the provider still has operations of */
    struct twill_ofi_window *windows;     /* of closed channels, to which a peer may still write */
    struct twill_ofi_exposure *exposures; /* memory into which peers may write */
    uint32_t strays;     /* completions of operations that were not posted, ignored */
    twill_status failed; /* status with which all communicators fail, explained in `failure` */
    char failure[256];
    char why[192];         /* why this provider was chosen, for messages */
    char description[512]; /* provider, domain, address and `why`, for the log */
};

/* A communicator's transport, from twill_ofi_open() to close(). Only the thread that uses the
 * communicator touches its requests. The endpoint's lock protects everything else. */
struct twill_ofi {
    struct twill_transport base;
    struct twill_ofi_endpoint *endpoint;
    struct twill_ofi *next; /* in endpoint->open or endpoint->deferred */
    const uint32_t *job;    /* [size] each rank's rank in the job, NULL if it is the same */
    uint32_t comm;
    uint32_t rank, size;
    struct twill_clock_pair start;        /* read when the transport was opened */
    struct twill_ofi_peer **peers;        /* [size] NULL until the first contact */
    struct twill_ofi_channel *stuck_head; /* first of the channels to retry */
    struct twill_ofi_channel *stuck_tail;
    struct twill_transfer *sent, *sent_last; /* SENDs to be finished */
    uint32_t sends_busy;                     /* send buffers in flight */
    uint32_t headers_busy;                   /* header receives that the provider has */
    uint32_t chunks_busy; /* operations on callers' memory that the provider has */
    int noticed;          /* completions for it since its last progress() */
    bool cancelled;
    twill_status failed;
    struct twill_error failure; /* found by another communicator's progress() */
};

/* Version of the wire format and of the exchange at open. Change it with either. */
#define TWILL_OFI_WIRE 0x77740007u
/* Set *library to libfabric at TWILL_TUNE=libfabric or, if that is not set, where the loader finds
 * it. Restores the program's signal handlers. Returns TWILL_ERR_CONFIG if the file that is named
 * does not open, and TWILL_ERR_FABRIC if there is no libfabric or it lacks a function. */
twill_status twill_ofi_library_open(struct twill_libfabric *library,
                                    const struct twill_transport_params *params,
                                    struct twill_error *error);
/* Call fi_getinfo(), and restore the program's signal handlers. Returns 0, or a negative FI_E... */
int twill_ofi_library_getinfo(const struct twill_libfabric *library, uint32_t version,
                              const struct fi_info *hints, struct fi_info **list);

/* --- ofi_choose.c: which provider, domain and interface -------------------------------------- */
/* Return whether the /sys at `sys` shows only Ethernet devices, so that libfabric has nothing
 * better than TCP. Returns false if anything there is unknown. */
bool twill_ofi_only_ethernet(const char *sys);
/* Return the TWILL_PRIORITY_... of libfabric between nodes and write the reason into `why`. It is
 * NAMED if TWILL_PROVIDER chooses it, FAST if there is a provider better than TCP, and POOR if
 * there is none. It is NONE if libfabric cannot be used or need not be asked, or if the user wants
 * twill's tcp, encryption or checksums. */
uint32_t twill_ofi_priority(const struct twill_transport_params *params, char *why, size_t bytes);
/* Set *chosen to the endpoint of libfabric that suits `params` best, which the caller frees with
 * library->freeinfo(), and write the reason to `why`. Fails if none can be used. */
twill_status twill_ofi_choose(const struct twill_libfabric *library, struct fi_info **chosen,
                              const struct twill_transport_params *params, char *why,
                              size_t why_bytes, struct twill_error *error);
/* Set *list to all endpoints that the transport can use, which the caller frees with
 * library->freeinfo(). Returns TWILL_ERR_FABRIC, and *list is NULL, if there is none. */
twill_status twill_ofi_list(const struct twill_libfabric *library, struct fi_info **list,
                            struct twill_error *error);
/* Return whether the provider has socket addresses and is not verbs, so that it runs over IP. */
bool twill_ofi_is_ip(const struct fi_info *info);
/* Write an address of `bytes` as text for messages, such as "192.0.2.1:4711", by info's format. */
void twill_ofi_address_text(const struct fi_info *info, const void *address, size_t bytes,
                            char *text, size_t text_bytes);

/* --- ofi_shared_endpoint.c: what communicators share ----------------------------------------- */
/* Set t->endpoint to the context's endpoint, whose list gets `t`. If there is none, create it,
 * which is collective. Fails if the endpoint has failed, or cannot hold this communicator. */
twill_status twill_ofi_join(struct twill_ofi *t, const struct twill_transport_params *params,
                            const struct twill_ofi_options *options, struct twill_error *error);
/* Take `t`, which was cancelled, out of its endpoint and free it. If the provider still holds
 * operations of it, it is freed later, when a communicator joins or leaves or the endpoint closes.
 * If only `t` could use the endpoint, close that. */
void twill_ofi_leave(struct twill_ofi *t);
/* Return the communicator of this number in endpoint->open, or NULL if there is none or it was
 * cancelled. Call with the lock. */
struct twill_ofi *twill_ofi_find(struct twill_ofi_endpoint *endpoint, uint32_t comm);
/* Let the endpoint and all its communicators fail from now on, unless it has failed before. */
void twill_ofi_endpoint_fail(struct twill_ofi_endpoint *endpoint, twill_status status,
                             const char *message);
/* Let a communicator fail with this error at its next progress(), unless it has failed before. */
void twill_ofi_set_failure(struct twill_ofi *t, twill_status status,
                           const struct twill_error *error);
/* Free `t` and the memory of its peers. Close their registrations first
 * (twill_ofi_unregister_peers()). The provider must no longer use the memory. */
void twill_ofi_destroy(struct twill_ofi *t);
/* Exchange settings and addresses with all ranks. Collective. `local` is this rank's status so far,
 * which the others learn, so that they do not wait. Fails if a rank failed or does not fit. */
twill_status twill_ofi_agree(struct twill_ofi_endpoint *endpoint, twill_status local,
                             struct twill_error *error);
/* Set *peer to the state of a peer of `t`. The first call creates it, with registered buffers, and
 * inserts its address. Fails if `rank` is this rank or no rank of `t`, or if libfabric or memory
 * fails. Call with the lock. */
twill_status twill_ofi_peer(struct twill_ofi *t, uint32_t rank, struct twill_ofi_peer **peer,
                            struct twill_error *error);
/* Return the entry of a rank of `t` in endpoint->addresses.contact, or NULL if the endpoint was
 * opened for fewer ranks. */
struct twill_ofi_contact *twill_ofi_contact(const struct twill_ofi *t, uint32_t rank);

/* --- ofi_endpoint.c: libfabric's objects ----------------------------------------------------- */
/* Choose a provider, open all objects and post the control receives. On errors some are open. */
twill_status twill_ofi_endpoint_open(struct twill_ofi_endpoint *endpoint,
                                     struct twill_error *error);
/* Close endpoint and completion queue, if they can be closed, and unregister all memory. */
void twill_ofi_endpoint_close(struct twill_ofi_endpoint *endpoint);
/* Return whether endpoint and completion queue are closed, so that the provider uses no memory. */
bool twill_ofi_is_closed(const struct twill_ofi_endpoint *endpoint);
/* Close all and free the buffers. Returns false, and keeps memory, if the provider may use it. */
bool twill_ofi_endpoint_free(struct twill_ofi_endpoint *endpoint);

/* Set *mr to a registration of memory to send from and receive into, or to NULL if the provider
 * needs none. twill_ofi_unregister() ends it. TWILL_ERR_FABRIC is returned if it is refused. */
twill_status twill_ofi_register(struct twill_ofi_endpoint *endpoint, const void *start,
                                size_t bytes, struct fid_mr **mr, struct twill_error *error);
/* End a registration and set *mr to NULL, which it may already be. */
void twill_ofi_unregister(struct fid_mr **mr);
/* Set *memory to a registration of a caller's memory for one request of `t`, a cached one if
 * possible, or to NULL if none is needed. It must be given back with twill_ofi_release(). */
twill_status twill_ofi_hold(struct twill_ofi *t, const void *start, size_t bytes,
                            struct twill_ofi_registration **memory, struct twill_error *error);
/* Before data of a request are posted, hold its buffer, unless some are or it is held. */
twill_status twill_ofi_hold_buffer(struct twill_ofi *t, struct twill_transfer *request,
                                   struct twill_error *error);
/* Give back a registration, or NULL, and set *memory to NULL. Its last user ends it unless kept. */
void twill_ofi_release(struct twill_ofi *t, struct twill_ofi_registration **memory);
/* Drop the registrations that overlap this memory, or all of them if `start` is NULL. */
void twill_ofi_forget(struct twill_ofi_endpoint *endpoint, const void *start, size_t bytes);
/* Set registrations.monitors to whether this library can notice that memory was unmapped, for which
 * it locks memory (ofi_locked.c). Only then does it keep registrations of memory that was not
 * declared by twill_alloc() or twill_register(). `monitors` is also false if no registrations are
 * kept (registrations.caches). If it is true, registrations.locked_before becomes the bytes that
 * others in the process have locked. Locks none of the caller's memory. */
void twill_ofi_monitor(struct twill_ofi_endpoint *endpoint);
/* Release (twill_ofi_release()) the registrations of all posted requests of a communicator. */
void twill_ofi_release_all(struct twill_ofi *t);
/* Unregister the header buffers of all peers of a communicator. */
void twill_ofi_unregister_peers(struct twill_ofi *t);
/* Return the descriptor of a registration for libfabric's calls, or NULL if `memory` is NULL. */
void *twill_ofi_desc(const struct twill_ofi_registration *memory);

/* Post a chunk from `data`, which must stay until it completes, to the peer of op->channel, with
 * `desc` of twill_ofi_desc(). Sets op->posted and op->bytes. Returns 1 if the provider took it, 0
 * if it is busy, or a negative status. Call with the lock. */
int twill_ofi_send(struct twill_ofi *t, struct twill_ofi_op *op, const void *data, size_t bytes,
                   void *desc, struct twill_error *error);
/* Post a receive into `data` of op->kind (header or chunk) from the peer of op->channel. Returns 1
 * if the provider took it, 0 if it is busy, or a negative status. */
int twill_ofi_recv(struct twill_ofi *t, struct twill_ofi_op *op, void *data, size_t bytes,
                   void *desc, struct twill_error *error);
/* Write `bytes` at `data`, with `desc` of twill_ofi_desc(), to this place of op->channel's peer, as
 * operation `op`. Returns 1 if the provider took it, 0 if it is busy, or a negative status. */
int twill_ofi_write_to(struct twill_ofi *t, struct twill_ofi_op *op, const void *data, size_t bytes,
                       void *desc, const struct twill_remote *to, struct twill_error *error);
/* Send a copy of a header and the payload of `request`, or NULL, as one message. If the payload has
 * a tail, a header sends what is before that, and without a header the tail is sent. Sets
 * header->lane. Returns 1 if it was sent, with *finished true if the payload has left, or false if
 * a completion will finish the request. Returns 0 if provider or buffers are busy, or a negative
 * status. */
int twill_ofi_send_small(struct twill_ofi *t, struct twill_ofi_channel *channel,
                         struct twill_ofi_header *header, struct twill_transfer *request,
                         enum twill_ofi_tag_kind tag_kind, bool *finished,
                         struct twill_error *error);
/* Return the tag of messages of a communicator and lane from rank `from`, with the job's secret. */
uint64_t twill_ofi_tag(const struct twill_ofi_endpoint *endpoint, uint32_t comm, uint32_t lane,
                       uint32_t from, enum twill_ofi_tag_kind tag_kind);
/* Return the rank in the communicator that a tag has as sender. */
uint32_t twill_ofi_tag_from(uint64_t tag);
/* Return the communicator number in a tag, by subtracting the job's secret that tags contain. */
uint32_t twill_ofi_tag_comm(const struct twill_ofi_endpoint *endpoint, uint64_t tag);
/* Post all receives for control messages that are not posted. They serve all ranks and
 * communicators of the endpoint. If the provider is busy, returns TWILL_OK, and reading completions
 * later posts the rest. Does nothing while the endpoint closes. */
twill_status twill_ofi_controls_post(struct twill_ofi_endpoint *endpoint,
                                     struct twill_error *error);
/* Put the channel into the list of `t` that progress() advances, unless it is there. */
void twill_ofi_stuck(struct twill_ofi *t, struct twill_ofi_channel *channel);
/* Set the error for a libfabric code of the call `what` and return its status. That is
 * TWILL_ERR_PEER if the peer is gone, TWILL_ERR_SYSTEM if this process has no descriptor left for
 * `channel`, else TWILL_ERR_FABRIC. `channel` names the peer and may be NULL. */
twill_status twill_ofi_fail(const struct twill_ofi_endpoint *endpoint, struct twill_error *error,
                            const char *what, int code, const struct twill_ofi_channel *channel);

/* Send what credits and clear to sends of a channel allow, and finish SENDs whose chunks have left.
 * Returns how many SENDs completed, or a negative status. */
int twill_ofi_send_advance(struct twill_ofi *t, struct twill_ofi_channel *channel,
                           struct twill_error *error);
/* Handle the control message of `bytes` in op->buffer, from rank `from`. Updates the credit and
 * keeps a clear to send. Fails if it is malformed or contradicts what this rank has sent. */
twill_status twill_ofi_control(struct twill_ofi *t, const struct twill_ofi_op *op, uint32_t from,
                               size_t bytes, struct twill_error *error);
/* Note that the peer has consumed so many headers of a channel, if that is news. Fails with
 * TWILL_ERR_FABRIC if this rank has not sent as many. */
twill_status twill_ofi_acknowledge(struct twill_ofi_channel *channel, uint32_t consumed,
                                   struct twill_error *error);
/* Append a RECV to its channel. twill_ofi_recv_advance() posts its receives. */
void twill_ofi_recv_add(struct twill_ofi *t, struct twill_ofi_channel *channel,
                        struct twill_transfer *request);
/* Post receives for the RECVs of a channel, send credit and clear to sends, and take what has
 * arrived. Returns how many RECVs completed, also by a mismatch, or a negative status. */
int twill_ofi_recv_advance(struct twill_ofi *t, struct twill_ofi_channel *channel,
                           struct twill_error *error);
/* Call visit() for the first message of each lane of collectives that has arrived and waits for a
 * RECV. Takes the lock. If `all` is set, look also at ranks that are not connected yet, in small
 * communicators. */
void twill_ofi_early(struct twill_transport *transport, bool all, twill_early_fn visit, void *user);

/* --- ofi_window.c: large payload that is written, if limits.slot is not 0 ----------------------
 */
/* Open a window with slots for all lanes of a new peer, whose pages are used when data come. */
twill_status twill_ofi_window_open(struct twill_ofi_endpoint *endpoint, struct twill_ofi_peer *peer,
                                   struct twill_error *error);
/* Close all windows of a list, to which no peer may write any more, and set *window to NULL. */
void twill_ofi_window_close(struct twill_ofi_window **window);
/* Keep the peer's window until the endpoint closes, as the peer may still write to it. */
void twill_ofi_window_keep(struct twill_ofi_endpoint *endpoint, struct twill_ofi_peer *peer);
/* Return the key of the peer's window, or 0 if there is none. */
uint32_t twill_ofi_window_key(const struct twill_ofi_channel *channel);
/* Return where in a window the slot is into which chunk number `chunk` of a channel is written. */
size_t twill_ofi_slot(const struct twill_ofi *t, const struct twill_ofi_channel *channel,
                      uint32_t chunk);
/* Return the slot of the channel that is emptied next. */
unsigned char *twill_ofi_emptied(const struct twill_ofi *t,
                                 const struct twill_ofi_channel *channel);
/* Post, as operation `op` of its channel, the receive of the note that follows a chunk of `bytes`
 * bytes. Returns 1 if the provider took it, 0 if it is busy, or a negative status. */
int twill_ofi_expect(struct twill_ofi *t, struct twill_ofi_op *op, size_t bytes,
                     struct twill_error *error);
/* Write a chunk of a SEND from `data` into the next slot of the peer of op->channel, and send a
 * note, which completes by itself (private->unsaid), as it may leave later. Returns 1 if the
 * provider took the chunk, 0 if it is busy or no slot is free, or a negative status. */
int twill_ofi_write(struct twill_ofi *t, struct twill_ofi_op *op, struct twill_transfer *request,
                    const void *data, size_t bytes, struct twill_error *error);
/* Send the notes that a busy provider did not take. Returns 1 if none is left, 0 if it is still
 * busy, which progress() retries, or a negative status. */
int twill_ofi_send_notes(struct twill_ofi *t, struct twill_ofi_channel *channel,
                         struct twill_error *error);

/* --- ofi_write.c: WRITEs, and the memory that they go into ------------------------------------ */
/* Do what expose() and conceal() of the transport do. They take the lock. */
bool twill_ofi_expose(struct twill_transport *transport, void *start, size_t bytes,
                      struct twill_remote *remote);
void twill_ofi_conceal(struct twill_transport *transport, const struct twill_remote *remote);
/* End the exposures that overlap this memory, or all of them if `start` is NULL. */
void twill_ofi_conceal_all(struct twill_ofi_endpoint *endpoint, const void *start, size_t bytes);
/* Post what the provider takes of the WRITE at the head of channel->headers_out, and remove it from
 * there once the provider has all. Returns 1 then, 0 if some remains, or a negative status. */
int twill_ofi_write_next(struct twill_ofi *t, struct twill_ofi_channel *channel,
                         struct twill_error *error);
/* Return an operation that is free to send or write a chunk, or NULL. */
struct twill_ofi_op *twill_ofi_idle_chunk(struct twill_ofi_channel *channel);

/* Read and handle completions of all communicators, and post idle control receives. Call with the
 * lock. Fails with the endpoint's status if it has failed, or TWILL_ERR_BROKEN if it is closed. */
twill_status twill_ofi_read(struct twill_ofi_endpoint *endpoint, struct twill_error *error);
/* Read and handle completions, even if the endpoint has failed. Call with the lock. */
void twill_ofi_drain(struct twill_ofi_endpoint *endpoint);
/* Make progress, as ops->progress() does. Returns how many requests completed or moved data, or a
 * negative status. Returns 0 if another thread has the lock, as that thread reads for all. */
int twill_ofi_progress(struct twill_transport *transport, struct twill_error *error);

/* Drop all requests, as ops->cancel() does, after the provider has returned their operations. If it
 * does not within some time, close the endpoint, and all its communicators fail. */
void twill_ofi_cancel(struct twill_transport *transport);

/* --- ofi_locked.c: detect whether memory was unmapped, by locking it ------------------------- */
/* Return whether twill_locked_...() work on this kernel, as tried on a mapping made for that. */
bool twill_locked_works(void);
/* Lock whole pages (mlock()). Returns false, and locks nothing, if the kernel refuses, if the range
 * is not one mapping, or if its first page was locked before, unless `ours` says by twill. */
bool twill_locked_take(void *start, size_t bytes, bool ours);
void twill_locked_drop(void *start, size_t bytes); /* munlock(), keeping errno */
/* Return whether the whole range is still one mapping that is locked. */
bool twill_locked_still(const void *start, size_t bytes);
/* Return whether the first page of a range is locked, at a third of the cost of all of it. */
bool twill_locked_begins(const void *start);
/* Return the bytes that the process has locked (VmLck), or SIZE_MAX if unknown. Takes 5 us. */
size_t twill_locked_bytes(void);
/* Return how many of the `bytes` bytes of a RECV are reduced in one call so that all threads of the
 * rank help, who need `piece`, or half of them if that is less. The other half then arrives
 * meanwhile. It is a multiple of 64, as a reduction takes whole elements. 0 for one thread. */
static inline size_t twill_ofi_reduced_together(size_t piece, size_t bytes)
{
    return twill_min(piece, bytes / 2) / TWILL_CACHE_LINE * TWILL_CACHE_LINE;
}
/* Return the bytes of a chunk of such a RECV, one of which is reduced while the next arrives. The
 * provider takes `most`, a multiple of 64. */
static inline size_t twill_ofi_reduced_chunk(size_t most, size_t piece, size_t bytes)
{
    return twill_min(most, twill_max((size_t)1 << 20, twill_ofi_reduced_together(piece, bytes)));
}
/* Return the bytes of the chunk at offset `at`, below `total`, of a message of `total` bytes that
 * is cut into chunks of `chunk`. Both sides compute it. An odd end of a long message is a chunk of
 * its own, as some providers (gni) pull in words of 4 bytes. */
static inline size_t twill_ofi_chunk_bytes(size_t total, size_t at, size_t chunk)
{
    size_t left = total - at;
    if (left >= chunk)
        return chunk;
    return left > TWILL_OFI_PULLED && left % 4 != 0 ? left & ~(size_t)(TWILL_CACHE_LINE - 1) : left;
}
/* Return whether the end of a request's payload travels in a second message. */
static inline bool twill_ofi_has_tail(const struct twill_ofi *t,
                                      const struct twill_transfer *request)
{
    return request->bytes > t->endpoint->limits.eager &&
           request->bytes <= t->endpoint->limits.split;
}
/* Record that a message of a SEND without chunks has left. Returns whether it was the last one. */
static inline bool twill_ofi_left(struct twill_transfer *request)
{
    struct twill_ofi_private *private = twill_ofi_private(request);
    if (private->unsaid < 2)
        return true;
    private->unsaid--;
    return false;
}
/* Remove the first request from a queue and return it, without completing it. */
static inline struct twill_transfer *twill_ofi_pop(struct twill_transfer_queue *queue)
{
    struct twill_transfer *request = queue->head;
    queue->head = request->next;
    request->next = NULL;
    return request;
}

/* Set rails[0 .. *count-1] to at most `most` domains or interfaces that libfabric could use, or to
 * the one of this name, if it is not NULL. Fails if there is none. */
twill_status twill_ofi_rails(const struct twill_transport_params *params, const char *name,
                             struct twill_rail *rails, size_t most, size_t *count,
                             struct twill_error *error);

/* Open the transport, which close() of its ops frees, or fail with *transport NULL. Joins or
 * creates the endpoint, so it is collective. Only tests set `options`. */
twill_status twill_ofi_open(struct twill_transport **transport,
                            const struct twill_transport_params *params,
                            const struct twill_ofi_options *options, struct twill_error *error);

#endif

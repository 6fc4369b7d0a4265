/* SPDX-License-Identifier: Apache-2.0 */
/* The ofi transport: tagged messages over a reliable datagram endpoint of libfabric.
 *
 * Every message has one header message, in order per (from, to, lane). Up to limits.eager bytes
 * of payload travel with the header. Larger messages go from the sender's buffer to the receiver's,
 * in chunks, after the receiver's "clear to send", which it returns once its RECV is posted:
 *
 *      sender, SEND                         receiver, RECV
 *      header ------------------------>     compares signature and bytes
 *                      <--------------      clear to send (at RECV; chunks are posted)
 *      chunks, several in flight ----->     reduced, if asked for, in order
 *
 * So payload never arrives at a receive of another size (several providers hang on truncation) and
 * never unexpected. Both sides compare; a side that finds a difference ends its request with
 * TWILL_ERR_MISMATCH. Headers are limited by credits per (peer, lane), returned in control
 * messages: a sender that is ahead waits in its own queue instead of filling the provider's memory.
 * Control messages are received at any time, headers and payload only for a posted RECV. All
 * channels together stay below the 64 unexpected messages after which libfabric's newer tcp stops
 * reading from a peer.
 *
 * All communicators of a context share one endpoint with its memory and addresses: struct
 * twill_ofi_endpoint. Whichever calls progress() reads the completion queue for all, and queues
 * completions of another communicator in that communicator's list: only the thread that uses a
 * communicator touches its requests and buffers. Every call holds the endpoint's lock.
 *
 * The tag has 48 bits (cxi has no more): 26 communicator number plus a secret of the job, 4 lane,
 * 16 sending rank, 2 kind. If the provider has 60 bits, 12 more bits of the secret lie above.
 * Any process that reaches the endpoint can send to it; the secret, derived from the job's key,
 * keeps its messages from matching our receives. If addresses are socket addresses and the provider
 * supports FI_DIRECTED_RECV, receives also name the sender's address. */
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

#define TWILL_OFI_LANES    TWILL_LANES
#define TWILL_PINNED_PAGE  4096u  /* memory is locked and registered in such pages */
#define TWILL_OFI_EAGER    16320u /* maximum of payload in a header message: gni, rxm 16 KiB */
#define TWILL_OFI_CREDITS  7u     /* headers a sender may be ahead of the RECVs, per channel */
#define TWILL_OFI_HEADERS  2u     /* header receives posted per channel */
#define TWILL_OFI_CLEAR    4u     /* large messages cleared to send per channel */
#define TWILL_OFI_CHUNKS   4u     /* chunks in flight per channel and direction */
#define TWILL_OFI_CONTROLS 32u    /* control receives posted per endpoint */
#define TWILL_OFI_BUFFERS  64u    /* sends in flight from transport memory */
#define TWILL_OFI_BUFFERS_PER_PEER                                                                 \
    16u                            /* of those, to one peer: a slow one must not block the others */
#define TWILL_OFI_BATCH        16u /* completions read at once */
#define TWILL_OFI_IN_FLIGHT    512u /* most sends outstanding at the provider */
#define TWILL_OFI_CACHED       128u /* registrations cached: each use checks all of them */
#define TWILL_OFI_CACHED_BYTES ((size_t)4 << 30) /* and their bytes */
#define TWILL_OFI_POLLS_LEAST                                                                      \
    100u /* polls before a timeout counts: the machine may have been suspended */
#define TWILL_OFI_COMM_BITS 26
#define TWILL_OFI_TAG_BITS  48
#define TWILL_OFI_LONG_TAG  60 /* bits, where the provider has them */
#define TWILL_OFI_CHUNK     (64u << 20)
#define TWILL_OFI_PULLED    16384u /* some providers pull longer messages */

enum twill_ofi_tag_kind { TWILL_OFI_HEADER, TWILL_OFI_PAYLOAD, TWILL_OFI_CONTROL };

enum twill_ofi_message {
    TWILL_OFI_EAGER_DATA = 1, /* payload follows in the same message */
    TWILL_OFI_LARGE,          /* payload follows after a clear to send */
    TWILL_OFI_CLEAR_TO_SEND,
    TWILL_OFI_CREDIT
};

/* Header of a message; a control message is only this, without `entry`. Host byte order: open()
 * refuses ranks of another byte order. */
struct twill_ofi_header {
    uint32_t signature;
    uint32_t sequence;   /* of the message on its (from, to, lane) */
    uint64_t bytes : 48; /* of the message, as its sender knows it; clear to send: the receiver */
    uint64_t kind : 8;   /* enum twill_ofi_message */
    uint64_t lane : 8;
    union {
        struct twill_message_call call; /* of a message */
        struct {
            uint64_t chunk;    /* clear to send: bytes of all chunks but the last */
            uint32_t consumed; /* headers of the addressee this rank has consumed (credit) */
            uint32_t spare;
        }; /* of a control message */
    };
    struct twill_entry_message entry; /* of a message */
};
#define TWILL_OFI_CONTROL_BYTES offsetof(struct twill_ofi_header, entry)
_Static_assert(sizeof(struct twill_ofi_header) == 48 && TWILL_OFI_CONTROL_BYTES == 32,
               "no padding");
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

/* A rank at the provider. */
struct twill_ofi_contact {
    fi_addr_t address;
    bool known;          /* address is in the address vector */
    uint32_t sends_busy; /* send buffers in flight to it */
};

/* One operation of the provider. The context is first, as completions carry its address. All
 * operations live in the transport's memory, none in requests: no completion can dangle after a
 * failure. */
struct twill_ofi_op {
    struct fi_context2 context;
    struct twill_ofi_op *next;         /* in the list of free ones */
    struct twill_ofi *owner;           /* its communicator; NULL: none, or closed */
    struct twill_ofi_channel *channel; /* channel of the owner; NULL for control receives */
    struct twill_ofi_contact *contact; /* send buffers: the destination */
    struct twill_transfer *request;    /* or NULL */
    unsigned char *buffer;             /* transport memory; NULL: the request's */
    size_t bytes;
    uint32_t sequence; /* send buffers: of the message they belong to */
    uint8_t kind;
    uint8_t message; /* send buffers: enum twill_ofi_message */
    bool posted;     /* at the provider */
    bool done;       /* completed, not yet handled */
};

/* The transport's part of a posted request, in its private_. */
struct twill_ofi_private {
    struct twill_ofi_registration *memory;
    size_t posted; /* bytes handed to the provider */
    size_t chunk;  /* RECV: bytes per chunk announced in the clear to send */
    uint32_t sequence;
    bool cleared;  /* RECV: clear to send was sent */
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
struct twill_ofi_channel {
    struct twill_ofi_peer *peer;
    struct twill_ofi_channel *next_stuck;
    bool stuck;   /* in the list of channels to retry */
    bool broken;  /* a RECV did not match: nothing more is received */
    uint8_t lane; /* number */

    struct twill_transfer_queue headers_out;       /* SENDs whose header is not sent */
    struct twill_transfer_queue payload_out;       /* large SENDs whose chunks are not all posted */
    uint32_t sent;                                 /* headers sent */
    uint32_t acked;                                /* headers the peer has consumed */
    struct twill_ofi_clear clear[TWILL_OFI_CLEAR]; /* clear to sends received */
    struct twill_ofi_op chunk_out[TWILL_OFI_CHUNKS];

    struct twill_transfer_queue in;    /* RECVs not complete */
    struct twill_transfer *next_large; /* first large RECV whose chunks are not all posted */
    uint32_t received;                 /* RECVs posted by the caller, ever */
    uint32_t awaited;                  /* header receives posted, ever */
    uint32_t consumed;                 /* headers consumed */
    uint32_t reported;                 /* `consumed` as last sent to the peer */
    uint32_t cleared;                  /* large RECVs cleared and not complete */
    uint32_t chunks_posted;            /* position in the ring chunk_in, ever */
    uint32_t chunks_taken;
    struct twill_ofi_registration
        *orphan; /* of a RECV that did not match: its receives are still at the provider */
    struct twill_ofi_op header_in[TWILL_OFI_HEADERS];
    struct twill_ofi_op chunk_in[TWILL_OFI_CHUNKS];
};

/* A peer of one communicator. Allocated at the first contact, freed with the communicator. */
struct twill_ofi_peer {
    uint32_t rank;              /* in the communicator */
    char name[TWILL_RANK_TEXT]; /* for messages */
    struct twill_ofi_contact *contact;
    struct twill_clock_filter clock; /* its host's, from its messages */
    bool heard;                      /* a message has come from it */
    struct fid_mr *mr;               /* of memory */
    unsigned char *memory;
    struct twill_ofi_channel channels[TWILL_OFI_LANES];
};

/* The functions of libfabric that are not operations of an object, from the library opened at run
 * time. May be copied. */
struct twill_libfabric {
    __typeof__(fi_getinfo) *getinfo;
    __typeof__(fi_freeinfo) *freeinfo;
    __typeof__(fi_dupinfo) *dupinfo;
    __typeof__(fi_fabric) *fabric;
    __typeof__(fi_strerror) *explain;
};

/* For tests: behaviour the providers of this machine do not show. */
struct twill_ofi_options {
    bool force_registration; /* treat FI_MR_LOCAL as required */
    bool no_inject;
    size_t max_message; /* 0: the endpoint's */
    uint32_t again;     /* every n-th post is answered "busy"; 0: none */
    bool no_cancel;     /* the provider cannot cancel */
    uint32_t cached;    /* most registrations cached; 0: TWILL_OFI_CACHED */
};

/* The objects of libfabric. */
struct twill_ofi_objects {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq; /* NULL once closed: providers may use memory until then */
    struct fid_ep *ep; /* NULL once closed: no more data can arrive */
};

/* Memory of the endpoint that messages are sent from and received into. */
struct twill_ofi_buffers {
    unsigned char *memory; /* send buffers, then control receives */
    struct fid_mr *mr;     /* of memory */
    struct twill_ofi_op sends[TWILL_OFI_BUFFERS];
    struct twill_ofi_op *free_sends;
    struct twill_ofi_op controls[TWILL_OFI_CONTROLS];
    uint32_t controls_idle; /* to be reposted */
};

/* Registration of callers' memory: ofi_registration.c. */
struct twill_ofi_registrations {
    bool required;     /* every buffer must be registered */
    bool caches;       /* registrations are kept after their request */
    bool monitors;     /* also those of undeclared memory: ofi_locked.c */
    bool suspects;     /* pinned memory has moved: it may still be pinned elsewhere */
    uint64_t next_key; /* for providers without FI_MR_PROV_KEY */
    struct twill_ofi_registration *list; /* most recently used first */
    uint32_t cached;                     /* number of those with kind CACHED */
    size_t cached_bytes;
    size_t locked_before; /* upper bound of the bytes locked by others */
};

/* How messages are sent. */
struct twill_ofi_limits {
    uint32_t credits;   /* headers a sender may be ahead, per channel */
    size_t eager;       /* agreed by all ranks */
    size_t max_message; /* agreed by all ranks */
    size_t inject;      /* of this rank */
    bool preposts;      /* header receives are posted before their RECVs */
};

/* How receives match messages. */
struct twill_ofi_matching {
    uint32_t tag_secret; /* secret of the job: added to the communicator number */
    uint32_t tag_bits;   /* TWILL_OFI_TAG_BITS or TWILL_OFI_LONG_TAG */
    uint64_t seal;       /* more of the secret: tag bits above TWILL_OFI_TAG_BITS */
    bool directed;       /* receives name their sender's address */
};

/* The ranks at the provider, numbered as in the communicator that opened the endpoint. */
struct twill_ofi_addresses {
    size_t stride; /* in bytes */
    unsigned char *bytes;
    size_t *length;                    /* [size] */
    struct twill_ofi_contact *contact; /* [size] */
};

/* What all communicators of a context share. Created by the first communicator, closed with the
 * context. `lock` protects all members that change after that. */
struct twill_ofi_endpoint {
    struct twill_common common;
    pthread_mutex_t lock;
    bool exclusive; /* used by one communicator only */
    bool closing;   /* post nothing more */
    struct twill_transport_params params;
    struct twill_ofi_options options;
    uint32_t posts; /* counts posts for options.again */
    struct twill_libfabric library;
    struct twill_ofi_objects fi;
    struct twill_ofi_buffers buffers;
    struct twill_ofi_registrations registrations;
    struct twill_ofi_limits limits;
    struct twill_ofi_matching matching;
    struct twill_ofi_addresses addresses;
    uint32_t rank, size;        /* of the communicator that opened it */
    struct twill_ofi *open;     /* open communicators */
    struct twill_ofi *deferred; /* closed ones with operations still at the provider */
    uint32_t strays;            /* completions of operations that the provider did not have */
    twill_status failed;        /* of all communicators, with the reason below */
    char failure[256];
    char why[192];
    char description[512];
};

/* A communicator's transport. Only the thread that uses the communicator touches its requests;
 * everything else is protected by the endpoint's lock. */
struct twill_ofi {
    struct twill_transport base;
    struct twill_ofi_endpoint *endpoint;
    struct twill_ofi *next; /* in endpoint->open or endpoint->deferred */
    const uint32_t *job;    /* each rank's rank in the job; NULL: equal */
    uint32_t comm;
    uint32_t rank, size;
    struct twill_clock_pair start;           /* read when it was opened */
    struct twill_ofi_peer **peers;           /* [size], NULL until first contact */
    struct twill_ofi_channel *stuck_head;    /* channels to retry */
    struct twill_ofi_channel *stuck_tail;    /* */
    struct twill_transfer *sent, *sent_last; /* SENDs completed from send buffers, to be finished */
    uint32_t sends_busy;                     /* send buffers in flight */
    uint32_t headers_busy;                   /* header receives at the provider */
    uint32_t chunks_busy;                    /* operations on callers' memory at the provider */
    int noticed;                             /* completions since its last progress() */
    bool cancelled;
    twill_status failed;
    struct twill_error failure; /* found by another communicator's progress() */
};

/* Version of the wire format and of the exchange at open; change it with either. */
#define TWILL_OFI_WIRE 0x77740005u

/* --- ofi_library.c --------------------------------------------------------------------------- */
/* Open libfabric at TWILL_TUNE=libfabric or, if that is not set, where the loader finds it. It
 * stays loaded until the process ends. The program's signal handlers are restored. */
twill_status twill_ofi_library_open(struct twill_libfabric *library,
                                    const struct twill_transport_params *params,
                                    struct twill_error *error);
/* Call fi_getinfo() and restore the program's signal handlers. */
int twill_ofi_library_getinfo(const struct twill_libfabric *library, uint32_t version,
                              const struct fi_info *hints, struct fi_info **list);

/* --- ofi_choose.c: which provider, domain and interface -------------------------------------- */
/* Return whether /sys (sys: where it is) shows no device of another network than Ethernet, so that
 * libfabric can have nothing better. False where anything is unknown. */
bool twill_ofi_only_ethernet(const char *sys);
/* ops->priority: NAMED, FAST if there is a provider better than TCP, else POOR; NONE without
 * libfabric. */
uint32_t twill_ofi_priority(const struct twill_transport_params *params, char *why, size_t bytes);
/* Choose by `params`; `why` says for what reason. Free *chosen with library->freeinfo(). */
twill_status twill_ofi_choose(const struct twill_libfabric *library, struct fi_info **chosen,
                              const struct twill_transport_params *params, char *why,
                              size_t why_bytes, struct twill_error *error);
/* List all endpoints that meet the requirements. Free with library->freeinfo(). */
twill_status twill_ofi_list(const struct twill_libfabric *library, struct fi_info **list,
                            struct twill_error *error);
/* Return whether it runs over an IP address (tcp), not a fabric of its own. */
bool twill_ofi_is_ip(const struct fi_info *info);
/* Write the address for messages: "192.0.2.1:4711", or in the provider's notation. */
void twill_ofi_address_text(const struct fi_info *info, const void *address, size_t bytes,
                            char *text, size_t text_bytes);

/* --- ofi_shared_endpoint.c: what communicators share ----------------------------------------- */
/* Join the context's endpoint; if there is none, create it, which is collective. */
twill_status twill_ofi_join(struct twill_ofi *t, const struct twill_transport_params *params,
                            const struct twill_ofi_options *options, struct twill_error *error);
/* Leave the endpoint and free `t`. If the provider still has its operations, that is deferred until
 * they are returned or the endpoint is closed. */
void twill_ofi_leave(struct twill_ofi *t);
/* Return the open communicator of this number, or NULL. */
struct twill_ofi *twill_ofi_find(struct twill_ofi_endpoint *endpoint, uint32_t comm);
/* Let every communicator fail with this message from now on. */
void twill_ofi_endpoint_fail(struct twill_ofi_endpoint *endpoint, twill_status status,
                             const char *message);
/* Let a communicator fail with this error at its next progress(). */
void twill_ofi_set_failure(struct twill_ofi *t, twill_status status,
                           const struct twill_error *error);
/* Free the memory of a communicator. */
void twill_ofi_destroy(struct twill_ofi *t);
/* Exchange settings and addresses of all ranks. Collective; `local` is this rank's status so far,
 * so that a rank that failed does not leave the others waiting. */
twill_status twill_ofi_agree(struct twill_ofi_endpoint *endpoint, twill_status local,
                             struct twill_error *error);
/* Return the state of a peer; created at the first call, which also inserts its address. */
twill_status twill_ofi_peer(struct twill_ofi *t, uint32_t rank, struct twill_ofi_peer **peer,
                            struct twill_error *error);
/* Return a rank of t at the provider; NULL if the endpoint does not have it. */
struct twill_ofi_contact *twill_ofi_contact(const struct twill_ofi *t, uint32_t rank);

/* --- ofi_endpoint.c: libfabric's objects ----------------------------------------------------- */
twill_status twill_ofi_endpoint_open(struct twill_ofi_endpoint *endpoint,
                                     struct twill_error *error);
/* Close the endpoint, which ends all transfers, and its completion queue. */
void twill_ofi_endpoint_close(struct twill_ofi_endpoint *endpoint);
/* Return whether both are closed: the provider uses no memory of an operation any more. */
bool twill_ofi_is_closed(const struct twill_ofi_endpoint *endpoint);
/* Close it and its objects. Returns false if the provider may still write to its memory. */
bool twill_ofi_endpoint_free(struct twill_ofi_endpoint *endpoint);

/* --- ofi_registration.c ---------------------------------------------------------------------- */
/* Register the transport's own memory. *mr stays NULL where the provider needs no registration. */
twill_status twill_ofi_register(struct twill_ofi_endpoint *endpoint, const void *start,
                                size_t bytes, struct fid_mr **mr, struct twill_error *error);
void twill_ofi_unregister(struct fid_mr **mr);
/* Register a caller's memory for one request of t, or find it registered. NULL if not needed. */
twill_status twill_ofi_hold(struct twill_ofi *t, const void *start, size_t bytes,
                            struct twill_ofi_registration **memory, struct twill_error *error);
void twill_ofi_release(struct twill_ofi *t, struct twill_ofi_registration **memory);
/* Drop the registrations that overlap this memory, or all (start NULL). */
void twill_ofi_forget(struct twill_ofi_endpoint *endpoint, const void *start, size_t bytes);
/* Cache undeclared memory, too, if ofi_locked.c works with this kernel. */
void twill_ofi_monitor(struct twill_ofi_endpoint *endpoint);
/* Release the registrations of all posted requests of a communicator; unregister its peers'
 * memory. */
void twill_ofi_release_all(struct twill_ofi *t);
void twill_ofi_unregister_peers(struct twill_ofi *t);
void *twill_ofi_desc(const struct twill_ofi_registration *memory);

/* --- ofi_post.c: single operations. Return 1: done, 0: busy, negative: status ---------------- */
int twill_ofi_send(struct twill_ofi *t, struct twill_ofi_op *op, const void *data, size_t bytes,
                   void *desc, struct twill_error *error);
int twill_ofi_recv(struct twill_ofi *t, struct twill_ofi_op *op, void *data, size_t bytes,
                   void *desc, struct twill_error *error);
/* Send a header and the payload of `request` (or NULL) in one message from transport memory.
 * *finished: the data has left; else the request completes with the operation. */
int twill_ofi_send_small(struct twill_ofi *t, struct twill_ofi_channel *channel,
                         struct twill_ofi_header *header, struct twill_transfer *request,
                         enum twill_ofi_tag_kind tag_kind, bool *finished,
                         struct twill_error *error);
/* Return the tag of a message. */
uint64_t twill_ofi_tag(const struct twill_ofi_endpoint *endpoint, uint32_t comm, uint32_t lane,
                       uint32_t from, enum twill_ofi_tag_kind tag_kind);
uint32_t twill_ofi_tag_from(uint64_t tag);
uint32_t twill_ofi_tag_comm(const struct twill_ofi_endpoint *endpoint, uint64_t tag);
/* Post all idle control receives. */
twill_status twill_ofi_controls_post(struct twill_ofi_endpoint *endpoint,
                                     struct twill_error *error);
/* Put the channel into the list progress() retries. */
void twill_ofi_stuck(struct twill_ofi *t, struct twill_ofi_channel *channel);
/* Set the error for a libfabric code and return its status; `channel` names the peer, or is NULL.
 */
twill_status twill_ofi_fail(const struct twill_ofi_endpoint *endpoint, struct twill_error *error,
                            const char *what, int code, const struct twill_ofi_channel *channel);

/* --- ofi_send.c, ofi_recv.c: return how many requests completed, or a negative status -------- */
int twill_ofi_send_advance(struct twill_ofi *t, struct twill_ofi_channel *channel,
                           struct twill_error *error);
/* Handle a control message of rank `from`. */
twill_status twill_ofi_control(struct twill_ofi *t, const struct twill_ofi_op *op, uint32_t from,
                               size_t bytes, struct twill_error *error);
void twill_ofi_recv_add(struct twill_ofi *t, struct twill_ofi_channel *channel,
                        struct twill_transfer *request);
int twill_ofi_recv_advance(struct twill_ofi *t, struct twill_ofi_channel *channel,
                           struct twill_error *error);
/* See twill_transport_ops. */
void twill_ofi_early(struct twill_transport *transport, bool all, twill_early_fn visit, void *user);

/* --- ofi_progress.c -------------------------------------------------------------------------- */
/* Read the completion queue and pass completions on to their communicators. Call with the lock. */
twill_status twill_ofi_read(struct twill_ofi_endpoint *endpoint, struct twill_error *error);
/* Read it, whether the endpoint has failed or not: its operations come back all the same. Call with
 * the lock. */
void twill_ofi_drain(struct twill_ofi_endpoint *endpoint);
int twill_ofi_progress(struct twill_transport *transport, struct twill_error *error);

/* --- ofi.c ----------------------------------------------------------------------------------- */
void twill_ofi_cancel(struct twill_transport *transport);

/* --- ofi_locked.c: detect whether memory was unmapped, by locking it ------------------------- */
/* Return whether this kernel allows all of it. */
bool twill_locked_works(void);
/* Lock whole pages. Returns false if that is refused, or the first page is locked already and not
 * by us (`ours`). */
bool twill_locked_take(void *start, size_t bytes, bool ours);
void twill_locked_drop(void *start, size_t bytes); /* unlock */
/* Return whether the whole range is still the locked mapping. */
bool twill_locked_still(const void *start, size_t bytes);
/* The same for its first page only: a third of the cost. */
bool twill_locked_begins(const void *start);
/* Return the bytes the process has locked (VmLck), SIZE_MAX if unknown. Takes about 5 us. */
size_t twill_locked_bytes(void);

/* Return the bytes of the chunk at offset `at` of a message of `total` bytes, cut into chunks of
 * `chunk`. Both sides compute it. Some providers pull long messages from the sender's memory in
 * words of 4 bytes (gni, above 16 KiB): the odd end of a long message becomes its own chunk. */
static inline size_t twill_ofi_chunk_bytes(size_t total, size_t at, size_t chunk)
{
    size_t left = total - at;
    if (left >= chunk)
        return chunk;
    return left > TWILL_OFI_PULLED && left % 4 != 0 ? left & ~(size_t)(TWILL_CACHE_LINE - 1) : left;
}

/* Remove the first request without completing it. */
static inline struct twill_transfer *twill_ofi_pop(struct twill_transfer_queue *queue)
{
    struct twill_transfer *request = queue->head;
    queue->head = request->next;
    request->next = NULL;
    return request;
}

/* --- ofi_rails.c: see twill_transport_ops ---------------------------------------------------- */
twill_status twill_ofi_rails(const struct twill_transport_params *params, const char *name,
                             struct twill_rail *rails, size_t most, size_t *count,
                             struct twill_error *error);

/* --- ofi.c ----------------------------------------------------------------------------------- */
twill_status twill_ofi_open(struct twill_transport **transport,
                            const struct twill_transport_params *params,
                            const struct twill_ofi_options *options, struct twill_error *error);

#endif

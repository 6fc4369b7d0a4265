/* SPDX-License-Identifier: Apache-2.0 */
/* Transports move messages between two ranks, in order per (from, to, lane). The executor posts
 * requests and calls progress; a transport never waits, allocates nothing after it is open, and
 * turns what its network cannot take at once into a queue of its own. */
#ifndef TWILL_TRANSPORT_H
#define TWILL_TRANSPORT_H

#include "algorithms/world.h"
#include "fabric/boot.h"
#include "fabric/node.h"

struct twill_transfer;

/* Take `bytes` of message data that begin `offset` bytes into the message: element boundaries of at
 * most 8 bytes are kept. Runs inside progress. */
typedef void (*twill_fold_fn)(struct twill_transfer *request, size_t offset, const void *data,
                              size_t bytes);

enum twill_transfer_kind { TWILL_TRANSFER_SEND, TWILL_TRANSFER_RECV };

/* One message, posted. Owned by the poster, who leaves it alone until status is not PENDING.
 * kind..comm are filled by the poster. */
struct twill_transfer {
    int32_t status; /* TWILL_PENDING, then TWILL_OK or an error; written last */
    uint8_t kind;
    uint8_t lane; /* physical lane, < TWILL_LANES */
    uint16_t spare;
    uint32_t peer;      /* rank */
    uint32_t signature; /* of the call: goes with the message and is compared on arrival */
    void *buffer;       /* SEND: what; RECV without fold: where to */
    size_t bytes;       /* of the message, exactly; 0 is a message too */
    twill_fold_fn fold; /* RECV: NULL, or called with the data instead of storing it */
    void *fold_with;    /* for fold */
    void *bounce;       /* RECV with fold: `bytes` of scratch for transports that cannot fold out of
                           their own buffers (ops->needs_bounce); else NULL */
    uint32_t peer_signature; /* on TWILL_ERR_MISMATCH: what the message carried */
    uint64_t peer_bytes;
    struct twill_transfer *next; /* transport's own from here on */
    size_t moved;
    TWILL_ALIGNED(16) unsigned char private_[256];
};

struct twill_transport;

/* What opening a transport may use. All pointers outlive the transport. */
struct twill_transport_params {
    struct twill_boot *boot; /* collective at open only */
    const struct twill_world *world;
    uint32_t comm;           /* number of the communicator, the same on its ranks */
    struct twill_node *node; /* of the communicator; NULL if alone and without one */
    const char *provider;    /* TWILL_PROVIDER, TWILL_INTERFACE, TWILL_DOMAIN, or NULL */
    const char *interface;
    const char *domain;
    const char *mock; /* TWILL_MOCK: the mock's script, or NULL */
    struct twill_log *log;
};

struct twill_transport_ops {
    size_t size_of;
    const char *name;
    bool needs_bounce;
    bool sleeps_on_bell; /* arrival rings the node's bell: waits may sleep without polling */
    /* Can it carry messages between these two ranks? Pure: the same on all ranks. */
    bool (*reaches)(const struct twill_transport_params *params, uint32_t from, uint32_t to);
    twill_status (*open)(struct twill_transport **transport,
                         const struct twill_transport_params *params, struct twill_error *error);
    void (*close)(struct twill_transport *transport);
    /* Make the link to a peer ready; called once before the first post to it. May be NULL. */
    twill_status (*connect)(struct twill_transport *transport, uint32_t peer,
                            struct twill_error *error);
    /* Take a request. Sets request->status at once where it can. An error return is fatal for the
     * communicator; "busy" is not an error but the transport's own business. */
    twill_status (*post)(struct twill_transport *transport, struct twill_transfer *request,
                         struct twill_error *error);
    /* Move things along: how many requests completed or moved (0: nothing to do), or an error. */
    int (*progress)(struct twill_transport *transport, struct twill_error *error);
    /* Forget everything posted (the communicator failed); requests are not touched afterwards. */
    void (*cancel)(struct twill_transport *transport);
    /* One line for people: provider, interface, why. */
    const char *(*describe)(const struct twill_transport *transport);
    /* What it would use where it is not needed: for people who ask before a job. May be NULL. Not
     * collective. */
    twill_status (*preview)(const struct twill_transport_params *params, char *text, size_t bytes,
                            struct twill_error *error);
};

struct twill_transport_counters {
    uint64_t messages, bytes; /* payload handed over by SENDs */
    uint64_t header_bytes;    /* sent besides */
    uint64_t copied;          /* payload bytes that went through an intermediate buffer */
    uint64_t again;           /* times the network said "later" */
};

struct twill_transport {
    const struct twill_transport_ops *ops;
    struct twill_transport_counters counters;
};

/* The registry, best first: for each pair of ranks the first that reaches is used. NULL past the
 * end. */
const struct twill_transport_ops *twill_transport_at(size_t index);

static inline void twill_transfer_finish(struct twill_transfer *request, twill_status status)
{
    request->status = status;
}

#endif

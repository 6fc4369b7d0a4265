/* SPDX-License-Identifier: Apache-2.0 */
/* Transports move messages between two ranks, in order per (from, to, lane). The executor posts
 * requests and calls progress; a transport never waits, allocates nothing after it is open, and
 * turns what its network cannot take at once into a queue of its own. */
#ifndef TWILL_TRANSPORT_H
#define TWILL_TRANSPORT_H

#include "algorithms/world/world.h"
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/shm/node_memory.h"

struct twill_transfer;

/* Take `bytes` of message data that begin `offset` bytes into the message: element boundaries of at
 * most 8 bytes are kept. Runs inside progress. */
typedef void (*twill_transfer_reduce_fn)(struct twill_transfer *request, size_t offset,
                                         const void *data, size_t bytes);

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
    twill_transfer_reduce_fn reduce; /* RECV: NULL, or called with the data instead of storing it */
    void *reduce_context;            /* for fold */
    void *bounce; /* RECV with fold: `bytes` of scratch for transports that cannot fold out of
                     their own buffers (ops->needs_bounce); else NULL */
    uint32_t peer_signature; /* on TWILL_ERR_MISMATCH: what the message carried */
    uint64_t peer_bytes;
    struct twill_transfer *next; /* transport's own from here on */
    size_t moved;
    TWILL_ALIGNED(16) unsigned char private_[256];
};

struct twill_transport;

/* What all communicators of a process share of a transport (endpoint, listener, addresses): made by
 * the first that is opened, which has all ranks of the job, and closed with the context. Threads
 * may use several communicators at a time: it has a lock of its own. */
struct twill_common {
    void (*close)(struct twill_common *common);
    /* Memory that lasted will go: nothing may be kept of it. May be NULL. */
    void (*forget)(struct twill_common *common, const void *start, size_t bytes);
};

/* Another thread may give memory back while it is made. */
static inline void twill_common_put(struct twill_common **place, struct twill_common *common)
{
    __atomic_store_n(place, common, __ATOMIC_RELEASE);
}

/* What is there by now keeps nothing of this memory. */
static inline void twill_common_forget(struct twill_common *const *place, const void *start,
                                       size_t bytes)
{
    struct twill_common *common = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    if (common != NULL && common->forget != NULL)
        common->forget(common, start, bytes);
}

/* Memory that stays until common->forget() says otherwise. */
struct twill_persistent {
    /* The whole piece of it that these bytes lie in; false: they lie in none. */
    bool (*find)(void *user, const void *start, size_t bytes, void **region, size_t *region_bytes);
    void *user;
    /* Bytes that transports have locked (mlock) besides, all together: atomic. May be NULL. */
    size_t *pinned;
};

/* What opening a transport may use. All pointers outlive the transport. */
struct twill_transport_params {
    struct twill_oob *oob; /* collective at open only */
    const struct twill_world *world;
    uint32_t comm;       /* number of the communicator, the same on its ranks */
    const uint32_t *job; /* [size] rank of the job of each rank; NULL: they are the job's */
    struct twill_common **common; /* this transport's place in the context; NULL: shares nothing */
    struct twill_node *node;      /* of the communicator; NULL if alone and without one */
    const char *provider;         /* TWILL_PROVIDER, TWILL_INTERFACE, TWILL_DOMAIN, or NULL */
    const char *interface;
    const char *domain;
    const char *libfabric;                 /* TWILL_LIBFABRIC: path of the library, or NULL */
    const char *rails;                     /* TWILL_RAILS, or NULL */
    const struct twill_topology *topology; /* or NULL: everything is equally near */
    bool own_tcp;           /* between nodes: twill's tcp, not libfabric; see internode.c */
    const char *congestion; /* TWILL_CONGESTION, or NULL */
    const char *mock;       /* TWILL_MOCK: the mock's script, or NULL */
    const struct twill_persistent *persistent; /* or NULL */
    bool caches;                               /* TWILL_REGISTRATION */
    struct twill_log *log;
};

/* One way out of this host for a transport: an interface, or a domain of the fabric. */
struct twill_rail {
    char name[TWILL_ADDRESS_TEXT]; /* what params->interface says to open it */
    char label[96];                /* for people: "eth0 10.0.0.1, 25000 Mbit/s, NUMA node 0" */
    uint64_t network;  /* the same on ranks that reach each other by it; 0: it reaches everybody */
    uint32_t mbits;    /* 0: unknown */
    uint32_t distance; /* from where this rank runs: 0 as near as can be */
    bool usual;        /* what it uses when nothing is asked for */
    bool modest;       /* only on demand: virtual, of unknown speed, or shares a way with another */
};

struct twill_transport_ops {
    size_t size_of;
    const char *name;
    bool needs_bounce;
    bool sleeps_on_doorbell; /* arrival rings the node's bell: waits may sleep without polling */
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
    /* The ways out it could use, the one it uses alone first, up to `most`; with a name (interface,
     * address or domain), that one. May be NULL: there is one only. Not collective. */
    twill_status (*rails)(const struct twill_transport_params *params, const char *name,
                          struct twill_rail *rails, size_t most, size_t *count,
                          struct twill_error *error);
    /* The transports it is made of, one a rail; NULL past the end. May be NULL: of none. */
    struct twill_transport *(*rail)(const struct twill_transport *transport, size_t index);
};

struct twill_transport_counters {
    uint64_t messages, bytes; /* payload handed over by SENDs */
    uint64_t header_bytes;    /* sent besides */
    uint64_t copied;          /* payload bytes that went through an intermediate buffer */
    uint64_t again;           /* times the network said "later" */
    uint64_t registrations, deregistrations, registration_hits; /* of memory */
};

struct twill_transport {
    const struct twill_transport_ops *ops;
    struct twill_transport_counters counters;
    const char *label;   /* of the rail it is on, set by who opened it; NULL: describe() must do */
    size_t best_message; /* larger ones go better in parts of this size, where plans can cut; 0:
                            they do not. The same on all ranks */
};

/* The registry, best first: for each pair of ranks the first that reaches is used. NULL past the
 * end. */
const struct twill_transport_ops *twill_transport_at(size_t index);

static inline void twill_transfer_finish(struct twill_transfer *request, twill_status status)
{
    request->status = status;
}

#endif

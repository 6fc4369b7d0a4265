/* SPDX-License-Identifier: Apache-2.0 */
/* The interface of a transport: it moves messages between two ranks, in order per (from, to, lane).
 * The executor posts requests and calls progress(). A transport never waits, allocates nothing once
 * it is open and connected, and queues what its network cannot take yet.
 *
 * A transport belongs to one communicator and is used by one thread at a time. */
#ifndef TWILL_TRANSPORT_H
#define TWILL_TRANSPORT_H

#include "algorithms/world/world.h"
#include "fabric/entry_times.h"

struct twill_oob_batch;
struct twill_node;
struct twill_oob;
struct twill_single_copy;
struct twill_transfer;

/* Reduce `bytes` of message data, which begin `offset` bytes into the message, into the caller's
 * buffer. Both are multiples of 8 except at the end of the message, so no element is cut. Called
 * from progress(). */
typedef void (*twill_transfer_reduce_fn)(struct twill_transfer *request, size_t offset,
                                         const void *data, size_t bytes);

enum twill_transfer_kind { TWILL_TRANSFER_SEND, TWILL_TRANSFER_RECV };

/* The call that a message belongs to, as headers carry it: ranks whose calls differ name by it what
 * differs, even if the sender does not answer. */
struct twill_message_call {
    uint32_t sequence;              /* low bits of the call's number; 0: of no collective */
    uint32_t what;                  /* collective, type, operation: twill_call_what() */
    uint64_t count : 48, root : 16; /* low bits of a count that is a hash */
};
_Static_assert(sizeof(struct twill_message_call) == 16 && TWILL_WORLD_MAX_RANKS <= 1 << 16,
               "a part of a header");

/* One message to send or receive. The poster owns it, fills `kind` to `bounce`, and must not touch
 * it from post() until `status` is no longer TWILL_PENDING. */
struct twill_transfer {
    int32_t status; /* TWILL_PENDING, then TWILL_OK or an error; written last */
    uint8_t kind;
    uint8_t lane; /* < TWILL_LANES */
    uint16_t spare;
    uint32_t peer;      /* rank */
    uint32_t signature; /* call hash: sent with the message, compared on arrival */
    void *buffer;       /* SEND: the data; RECV: where it goes, unless `reduce` is set */
    size_t bytes;       /* exact size of the message; may be 0 */
    twill_transfer_reduce_fn reduce; /* RECV: called with the data instead of storing it, or NULL */
    void *reduce_context;            /* for reduce() */
    void *bounce; /* RECV with reduce: `bytes` of scratch, for a transport that cannot reduce from
                     its own buffers (ops->needs_bounce); else NULL */
    /* Into the call: SEND: given by the poster; RECV: what the message carried, from transports
     * that carry it, else ticks is 0. */
    struct twill_last_entry last;
    struct twill_message_call call; /* sent with a message to another node */
    uint32_t peer_signature;        /* on TWILL_ERR_MISMATCH: the values the message carried */
    uint64_t peer_bytes;
    struct twill_message_call peer_call; /* sequence 0: unknown */
    struct twill_transfer *next;         /* from here on for the transport only */
    size_t moved;
    TWILL_ALIGNED(16) unsigned char private_[256];
};

struct twill_transport;

/* Look at a message that has arrived from a rank. */
typedef void (*twill_early_fn)(void *user, uint32_t from, const struct twill_message_call *call);

/* What all communicators of a process share of one transport: endpoint, listener, addresses.
 * Created by the first communicator that opens the transport, which holds all ranks of the job, and
 * closed with the context. Has its own lock: threads may use several communicators at a time. */
struct twill_common {
    void (*close)(struct twill_common *common);
    /* Drop whatever is kept of this memory (registrations), as it is about to be freed. May be
     * NULL. */
    void (*forget)(struct twill_common *common, const void *start, size_t bytes);
};

/* Publish `common`: another thread may call twill_common_forget() at the same time. */
static inline void twill_common_put(struct twill_common **place, struct twill_common *common)
{
    __atomic_store_n(place, common, __ATOMIC_RELEASE);
}

/* Drop what the transport keeps of this memory, if its shared state exists already. */
static inline void twill_common_forget(struct twill_common *const *place, const void *start,
                                       size_t bytes)
{
    struct twill_common *common = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    if (common != NULL && common->forget != NULL)
        common->forget(common, start, bytes);
}

/* Memory that stays valid until common->forget() is called for it. */
struct twill_persistent {
    /* Find the whole persistent region these bytes lie in. Returns false if they lie in none. */
    bool (*find)(void *user, const void *start, size_t bytes, void **region, size_t *region_bytes);
    void *user;
    /* Bytes of other memory locked (mlock) by all transports together; atomic. May be NULL. */
    size_t *pinned;
};

/* Arguments of open(). All pointers stay valid until the transport is closed. */
struct twill_transport_params {
    struct twill_oob *oob; /* for open() only, which is collective */
    const struct twill_world *world;
    uint32_t comm;                /* number of the communicator, equal on all its ranks */
    const uint32_t *job;          /* [size] each rank's rank in the job; NULL: equal */
    struct twill_common **common; /* this transport's entry in the context; NULL: shares nothing */
    struct twill_node *node;      /* of the communicator; NULL if this rank shares no memory */
    struct twill_single_copy *single_copy;       /* of the communicator; NULL: there is none */
    const struct twill_transport_ops *internode; /* chosen between nodes; see internode.c */
    const char *provider;                        /* TWILL_PROVIDER, or NULL */
    const char *interface;                     /* TWILL_INTERFACE or the name of a rail, or NULL */
    const struct twill_topology *topology;     /* NULL: all devices are equally near */
    const struct twill_persistent *persistent; /* or NULL */
    /* Return the CRC32C of the data that `crc` is of, followed by these bytes. NULL: there are no
     * checksums. */
    uint32_t (*crc32c)(uint32_t crc, const void *data, size_t bytes);
    struct twill_log *log;
    /* Return the text of another environment variable, NULL if it is empty: what a transport alone
     * reads. `settings` is passed to it. May be NULL: none is set. */
    const char *(*setting)(const void *settings, const char *variable);
    const void *settings;
};

/* Return the text of a variable, NULL if it is not set. */
static inline const char *twill_transport_setting(const struct twill_transport_params *params,
                                                  const char *variable)
{
    return params->setting != NULL ? params->setting(params->settings, variable) : NULL;
}

/* Priorities of transports between nodes. */
enum {
    TWILL_PRIORITY_NONE = 0,   /* cannot be used, or TWILL_PROVIDER names another one */
    TWILL_PRIORITY_POOR = 10,  /* works, but another one does the same faster */
    TWILL_PRIORITY_PLAIN = 50, /* works on any network */
    TWILL_PRIORITY_FAST = 60,  /* has a network that is better than TCP */
    TWILL_PRIORITY_NAMED = 90, /* TWILL_PROVIDER names it */
};
#define TWILL_OFFER_BYTES 192

/* One network path of a transport: an interface, or a libfabric domain. */
struct twill_rail {
    char name[TWILL_ADDRESS_TEXT]; /* value of params->interface that opens it */
    char label[96];                /* for people: "eth0 10.0.0.1, 25000 Mbit/s, NUMA node 0" */
    uint64_t network;  /* equal on ranks that reach each other over it; 0: reaches all */
    uint32_t mbits;    /* 0: unknown */
    uint32_t distance; /* from the cores of this rank; 0: nearest */
    bool is_default;   /* used if the user names none */
    bool on_demand;    /* only if asked for: virtual, speed unknown, or shares a wire */
};

struct twill_transport_ops {
    const char *name;
    bool needs_bounce;
    bool hides_shortage;     /* says nothing where there is no descriptor for a connection */
    bool sleeps_on_doorbell; /* arrivals ring the node's doorbell: waits may sleep */
    /* Between nodes: return how well this rank could use it (TWILL_PRIORITY_...), and why. The
     * best for all ranks is used (internode.c). Not collective. NULL: not for use between nodes. */
    uint32_t (*priority)(const struct twill_transport_params *params, char *why, size_t bytes);
    /* Return whether it can carry messages between two ranks. Pure: equal on all ranks. NULL:
     * between any two that are not one. */
    bool (*reaches)(const struct twill_transport_params *params, uint32_t from, uint32_t to);
    twill_status (*open)(struct twill_transport **transport,
                         const struct twill_transport_params *params, struct twill_error *error);
    void (*close)(struct twill_transport *transport);
    /* Set up the link to a peer. Called once, before the first post to it. May be NULL. */
    twill_status (*connect)(struct twill_transport *transport, uint32_t peer,
                            struct twill_error *error);
    /* Post a request; sets request->status at once if it completes. An error is fatal for the
     * communicator. A busy network is no error: the transport queues the request. */
    twill_status (*post)(struct twill_transport *transport, struct twill_transfer *request,
                         struct twill_error *error);
    /* Make progress. Returns how many requests completed or moved data, or an error. */
    int (*progress)(struct twill_transport *transport, struct twill_error *error);
    /* Drop all posted requests (the communicator failed); they are not touched afterwards. */
    void (*cancel)(struct twill_transport *transport);
    /* Return one line for the log: provider, interface, reason. */
    const char *(*describe)(const struct twill_transport *transport);
    /* Describe the connection that messages from or to a peer wait for, half a sentence; empty if
     * it is there. May be NULL: not known. */
    void (*awaits)(const struct twill_transport *transport, uint32_t peer, char *text,
                   size_t bytes);
    /* Visit the messages that have arrived and for which no RECV is posted: the first of each lane,
     * nothing else is done to it. Those of ranks that connect() was not called for may be found
     * only if `all`, which may cost memory. May be NULL: they are not known. */
    void (*early)(struct twill_transport *transport, bool all, twill_early_fn visit, void *user);
    /* Describe what it would use, without opening it (twill-info). Not collective. May be NULL. */
    twill_status (*preview)(const struct twill_transport_params *params, char *text, size_t bytes,
                            struct twill_error *error);
    /* List the rails it could use, up to `most`; the first is the one it uses alone. With a
     * name (interface, address or domain), only that one. Not collective. NULL: there is one
     * only. */
    twill_status (*rails)(const struct twill_transport_params *params, const char *name,
                          struct twill_rail *rails, size_t most, size_t *count,
                          struct twill_error *error);
    /* Return the transport of a rail, NULL past the last. NULL: it is not made of rails. */
    struct twill_transport *(*rail)(const struct twill_transport *transport, size_t index);
};

/* One thread at a time counts, with twill_counter_add(). */
struct twill_transport_counters {
    uint64_t messages, bytes; /* payload of SENDs */
    uint64_t header_bytes;    /* sent besides the payload */
    uint64_t copied;          /* payload bytes that went through an intermediate buffer */
    uint64_t again;           /* times the network was busy */
    uint64_t registrations, deregistrations, registration_hits; /* of memory */
};

struct twill_transport {
    const struct twill_transport_ops *ops;
    struct twill_transport_counters counters;
    const char *label;   /* name of its rail, set by the opener; NULL: use describe() */
    size_t best_message; /* Larger messages are faster in segments of this size, where the schedule
                            can cut them; 0: they are not. Equal on all ranks. */
};

/* The transports of a communicator, and of the registry, are at most as many. */
#define TWILL_TRANSPORTS_MOST 8

/* What a communicator that has endpoints of its own has in place of the process's. */
struct twill_alone {
    struct twill_common *common[TWILL_TRANSPORTS_MOST];
    struct twill_alone *next;
};

/* Return a transport of the registry, or NULL past the end. Each pair of ranks uses the first whose
 * reaches() is true; of those with a priority() only the one that was agreed: there the order only
 * breaks ties. */
const struct twill_transport_ops *twill_transport_at(size_t index);

/* Read the counters of a transport, the sum of its rails if it has any. Any thread may call it. */
void twill_transport_count(const struct twill_transport *transport,
                           struct twill_transport_counters *sum);

static inline void twill_transfer_finish(struct twill_transfer *request, twill_status status)
{
    request->status = status;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The interface of a transport. A transport moves messages between two ranks, in the order in which
 * they were posted for each sender, receiver and lane. The executor posts requests and calls
 * progress(). A transport never waits, and it allocates no memory once it is open and connected. It
 * queues requests that its network cannot take yet.
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
/* Reduce `bytes` of received data, which begin `offset` bytes into the message, into the caller's
 * buffer. Both are multiples of 8, except at the message's end. Only progress() calls it, and
 * threads that it lets do a part of its work, for parts of a message that are apart. */
typedef void (*twill_transfer_reduce_fn)(struct twill_transfer *request, size_t offset,
                                         const void *data, size_t bytes);

/* A WRITE goes into memory that its peer has exposed, without a request of the peer. */
enum twill_transfer_kind { TWILL_TRANSFER_SEND, TWILL_TRANSFER_RECV, TWILL_TRANSFER_WRITE };
/* Where a WRITE goes in the peer's exposed memory, by what expose() has returned there. */
struct twill_remote {
    uint64_t at; /* address of the memory, as the network counts it; a WRITE adds its offset */
    uint64_t key;
};
/* The call that a message belongs to, as message headers carry it. When the calls of two ranks
 * differ, a rank can name the difference even if the sender does not answer. */
struct twill_message_call {
    uint32_t sequence;              /* low bits of the call's number; 0: no collective */
    uint32_t what;                  /* collective, type, operation: twill_call_what() */
    uint64_t count : 48, root : 16; /* low bits of a count, or of a hash of counts */
};
_Static_assert(sizeof(struct twill_message_call) == 16 && TWILL_WORLD_MAX_RANKS <= 1 << 16,
               "a part of a header");

/* One message to send or receive. The poster owns it and fills in the members from `kind` to
 * `call`, but of a RECV not `last`. It must not touch them from post() until `status` is no longer
 * TWILL_PENDING. */
struct twill_transfer {
    int32_t status;     /* TWILL_PENDING, then TWILL_OK or an error, set last */
    uint8_t kind;       /* enum twill_transfer_kind */
    uint8_t lane;       /* below TWILL_LANES */
    bool alone;         /* RECV: only the caller of progress() may call reduce() */
    uint32_t peer;      /* rank of the communicator */
    uint32_t signature; /* hash of the call, sent along and compared on arrival */
    void *buffer;       /* SEND, WRITE: the data. RECV: its destination, unless `reduce` is set */
    size_t bytes;       /* exact size of the message, may be 0 */
    twill_transfer_reduce_fn reduce; /* RECV: gets the data instead of `buffer`; or NULL */
    void *reduce_context;            /* for use by reduce() */
    void *bounce; /* RECV with reduce and ops->needs_bounce: `bytes` of scratch; else NULL */
    struct twill_remote remote; /* WRITE: where to */
    /* The last entry into the call. The poster of a SEND sets it. On a RECV it is what the message
     * carried, or has ticks 0 if the transport does not carry it. */
    struct twill_last_entry last;
    struct twill_message_call call; /* sent with a message to another node */
    uint32_t peer_signature;        /* after TWILL_ERR_MISMATCH: what the message carried */
    uint64_t peer_bytes;
    struct twill_message_call peer_call; /* sequence 0: not known */
    struct twill_transfer *next;         /* from here, only the transport uses the members */
    size_t moved;
    TWILL_ALIGNED(16) unsigned char private_[256];
};

struct twill_thread_pool;
struct twill_transport;
/* Look at a message that has arrived from rank `from`. `call` is the call that it belongs to.
 * `user` is the argument of early(). */
typedef void (*twill_early_fn)(void *user, uint32_t from, const struct twill_message_call *call);

/* The part of a transport that all communicators of a context share, such as endpoint, listener and
 * addresses. The first communicator, of all ranks of the job, creates it, and it is closed with the
 * context. It has its own lock, as threads may use different communicators. */
struct twill_common {
    void (*close)(struct twill_common *common);
    /* Drop what is kept for this memory (registrations), as it is to be freed. May be NULL. */
    void (*forget)(struct twill_common *common, const void *start, size_t bytes);
};

/* Set *place to a transport's shared state, while other threads may call twill_common_forget(). */
static inline void twill_common_put(struct twill_common **place, struct twill_common *common)
{
    __atomic_store_n(place, common, __ATOMIC_RELEASE);
}

/* Drop what the transport keeps for this memory (registrations), if its shared state exists. */
static inline void twill_common_forget(struct twill_common *const *place, const void *start,
                                       size_t bytes)
{
    struct twill_common *common = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    if (common != NULL && common->forget != NULL)
        common->forget(common, start, bytes);
}

/* The context's memory regions that stay valid until common->forget() is called for them. */
struct twill_persistent {
    /* Set *region and *region_bytes to the persistent region that contains these bytes. Returns
     * false if none contains all of them. */
    bool (*find)(void *user, const void *start, size_t bytes, void **region, size_t *region_bytes);
    void *user;
    /* Atomic sum of the other bytes that all transports have locked (mlock). May be NULL. */
    size_t *pinned;
};

/* The arguments of open(), priority(), preview() and rails(), a plain value. All pointers stay
 * valid until the transport is closed, except `oob`. */
struct twill_transport_params {
    struct twill_oob *oob; /* for open() only, which is collective */
    const struct twill_world *world;
    uint32_t comm;                /* number of the communicator, equal on all its ranks */
    const uint32_t *job;          /* [size] rank in the job of each rank; NULL: the same rank */
    struct twill_common **common; /* the transport's place in the context; NULL: none */
    struct twill_node *node;      /* of the communicator; NULL: this rank shares no memory */
    struct twill_single_copy *single_copy;       /* of the communicator; NULL: none */
    const struct twill_transport_ops *internode; /* the choice of internode.c */
    const char *provider;                        /* TWILL_PROVIDER, or NULL */
    const char *interface;                     /* TWILL_INTERFACE or the name of a rail, or NULL */
    const struct twill_topology *topology;     /* NULL: all devices are equally near */
    const struct twill_persistent *persistent; /* or NULL */
    /* Continue the CRC32C `crc` of earlier data by these bytes. NULL: there are no checksums. */
    uint32_t (*crc32c)(uint32_t crc, const void *data, size_t bytes);
    struct twill_thread_pool *pool; /* threads of the rank, or NULL */
    /* Call run(job, part, parts) once for each part in the pool's threads, each one a different
     * part, and return true when all have returned. `parts` may become smaller, but stays above 1.
     * Returns false, with nothing done, if the pool is in use. */
    bool (*pool_run)(struct twill_thread_pool *pool, unsigned parts,
                     void (*run)(void *job, unsigned part, unsigned parts), void *job);
    size_t piece; /* bytes that all threads of a rank need to reduce together; 0: one thread */
    struct twill_log *log;
    /* Return the value of an environment variable that only the transport reads, or NULL if it is
     * not set or empty. Its first argument is `settings`. May be NULL, and then none is set. */
    const char *(*setting)(const void *settings, const char *variable);
    const void *settings;
};

/* Return the value of a variable, or NULL if it is not set or empty. */
static inline const char *twill_transport_setting(const struct twill_transport_params *params,
                                                  const char *variable)
{
    return params->setting != NULL ? params->setting(params->settings, variable) : NULL;
}

/* How well a rank can use a transport between nodes. */
enum {
    TWILL_PRIORITY_NONE = 0,   /* not usable, or TWILL_PROVIDER names another one */
    TWILL_PRIORITY_POOR = 10,  /* works, but another one does the same faster */
    TWILL_PRIORITY_PLAIN = 50, /* works on any network */
    TWILL_PRIORITY_FAST = 60,  /* has a better network than TCP */
    TWILL_PRIORITY_NAMED = 90, /* TWILL_PROVIDER names it */
};
#define TWILL_OFFER_BYTES 192
/* One network path of a transport, such as an interface or a libfabric domain. A value. */
struct twill_rail {
    char name[TWILL_ADDRESS_TEXT]; /* value of params->interface that opens it */
    char label[96];                /* for people: "eth0 10.0.0.1, 25000 Mbit/s, NUMA node 0" */
    uint64_t network;  /* ranks with equal values reach each other over it; 0: reaches all */
    uint32_t mbits;    /* speed in Mbit/s; 0: not known */
    uint32_t distance; /* from this rank's cores; 0: nearest */
    bool is_default;   /* used if the user names no rail */
    bool on_demand;    /* only if the user names it: virtual, of unknown speed, or shares a wire */
};

/* What a transport holds for one communicator. A value. */
struct twill_transport_holding {
    size_t bytes; /* of private memory */
    unsigned descriptors;
};

/* The operations of one kind of transport, a constant. */
struct twill_transport_ops {
    const char *name;
    bool needs_bounce;       /* RECVs with reduce() need scratch (struct twill_transfer) */
    bool hides_shortage;     /* reports no error if it has no descriptor for a connection */
    bool sleeps_on_doorbell; /* arrivals ring the node's doorbell, so waits may sleep */
    /* Return how well this rank could use the transport between nodes (TWILL_PRIORITY_...), and
     * write the reason to `why`. internode.c then chooses the best transport for all ranks. Not
     * collective. NULL: the transport is not for use between nodes. */
    uint32_t (*priority)(const struct twill_transport_params *params, char *why, size_t bytes);
    /* Return whether the transport can carry messages between two ranks. The result is equal on all
     * ranks. NULL: it can, between any two different ranks. */
    bool (*reaches)(const struct twill_transport_params *params, uint32_t from, uint32_t to);
    twill_status (*open)(struct twill_transport **transport,
                         const struct twill_transport_params *params, struct twill_error *error);
    void (*close)(struct twill_transport *transport); /* and free it */
    /* Set up the link to a peer. Called once, before the first post() to it. May be NULL. */
    twill_status (*connect)(struct twill_transport *transport, uint32_t peer,
                            struct twill_error *error);
    /* Post a request. Sets request->status at once if the request completes. An error is fatal for
     * the communicator. A busy network is no error, because the transport queues the request. */
    twill_status (*post)(struct twill_transport *transport, struct twill_transfer *request,
                         struct twill_error *error);
    /* Let peers write into memory of this rank, until conceal() or the transport's close, and set
     * *remote to what they need for it. With 0 bytes, only ask. Returns whether the network can
     * write and has registered the memory. post() takes a WRITE, which completes when its data may
     * be changed. What is sent to the peer on the same lane later arrives after the data. NULL: the
     * transport has no WRITE. */
    bool (*expose)(struct twill_transport *transport, void *start, size_t bytes,
                   struct twill_remote *remote);
    /* End the exposure that has returned *remote. No peer may be writing there. */
    void (*conceal)(struct twill_transport *transport, const struct twill_remote *remote);
    /* Make progress. Returns how many requests completed or moved data, or a negative status. */
    int (*progress)(struct twill_transport *transport, struct twill_error *error);
    /* Drop all posted requests of a failed communicator. They are not touched afterwards. */
    void (*cancel)(struct twill_transport *transport);
    /* Give back memory that has no message in it and whose use costs no more than its pages. No
     * rank is in a call of the communicator. May be NULL. */
    void (*suspend)(struct twill_transport *transport);
    /* Add what the transport itself holds for this communicator. NULL: that is not known. */
    void (*hold)(const struct twill_transport *transport, struct twill_transport_holding *sum);
    /* Return one line for the log, with provider, interface and reason. The transport owns it. */
    const char *(*describe)(const struct twill_transport *transport);
    /* Write half a sentence about the connection to a peer that messages still wait for, or an
     * empty text if it exists. May be NULL: this is not known. */
    void (*awaits)(const struct twill_transport *transport, uint32_t peer, char *text,
                   size_t bytes);
    /* Call visit() for messages that have arrived and for which no RECV is posted, only the first
     * of each lane. It stays where it is. Messages of ranks that connect() was not called for may
     * be found only if `all` is set, which may cost memory. May be NULL. */
    void (*early)(struct twill_transport *transport, bool all, twill_early_fn visit, void *user);
    /* Write to `text` what the transport would use, without opening it, for twill-info. Not
     * collective. May be NULL. */
    twill_status (*preview)(const struct twill_transport_params *params, char *text, size_t bytes,
                            struct twill_error *error);
    /* Set rails[0 .. *count-1] to those that the transport could use, up to `most`, its default
     * first. If `name` (interface, address, domain) is not NULL, list only that. NULL: one rail. */
    twill_status (*rails)(const struct twill_transport_params *params, const char *name,
                          struct twill_rail *rails, size_t most, size_t *count,
                          struct twill_error *error);
    /* Return the transport of a rail, or NULL past the last one. NULL: it is not made of rails. */
    struct twill_transport *(*rail)(const struct twill_transport *transport, size_t index);
};

/* Counters. One thread at a time changes them, by twill_counter_add(). Any thread may read them. */
struct twill_transport_counters {
    uint64_t messages, bytes; /* payload of SENDs */
    uint64_t header_bytes;    /* sent in addition to the payload */
    uint64_t copied;          /* payload bytes that went through an intermediate buffer */
    uint64_t again;           /* times that the network was busy */
    uint64_t registrations, deregistrations, registration_hits; /* of memory */
};

/* An open transport, the first member of a struct that open() allocates and close() frees. */
struct twill_transport {
    const struct twill_transport_ops *ops;
    struct twill_transport_counters counters;
    const char *label; /* its rail, set by twill_rails_open(); NULL: use describe() */
    /* Larger messages are faster if the schedule cuts them to this; 0: none. Equal on all ranks. */
    size_t best_message;
};

/* The most transports that the registry, and so a communicator, can have. */
#define TWILL_TRANSPORTS_MOST 8
/* The transports' shared state of a communicator with its own endpoints, used instead of the
 * context's. Part of the communicator, and in a list of the context. */
struct twill_alone {
    struct twill_common *common[TWILL_TRANSPORTS_MOST];
    struct twill_alone *next;
};

/* Return transport number `index` of the registry, or NULL past the end. A pair of ranks uses the
 * first transport whose reaches() is true. Of the transports with a priority(), only the agreed one
 * is considered, and the order of the registry only breaks ties between them. */
const struct twill_transport_ops *twill_transport_at(size_t index);
/* Set *sum to the counters of a transport plus those of its rails. Any thread may call it. */
void twill_transport_count(const struct twill_transport *transport,
                           struct twill_transport_counters *sum);
/* Add what a transport and its rails hold for their communicator, as far as that is known. */
void twill_transport_hold(const struct twill_transport *transport,
                          struct twill_transport_holding *sum);
/* Complete a request by setting its status. The poster may free it from then on. */
static inline void twill_transfer_finish(struct twill_transfer *request, twill_status status)
{
    request->status = status;
}

#endif

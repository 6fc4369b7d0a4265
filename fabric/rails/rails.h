/* SPDX-License-Identifier: Apache-2.0 */
/* Rails are transports of one kind, each on its own interface or domain, that form a composite. */
#ifndef TWILL_RAILS_H
#define TWILL_RAILS_H

#include "fabric/transport.h"

#define TWILL_RAILS_MOST        8
#define TWILL_RAILS_SPLIT_BYTES ((size_t)128 << 10) /* messages from this size use all rails */
/* The rails of a job, agreed by all ranks when the first communicator opens. Made by
 * twill_rails_conclude(). The context owns it. Measuring changes the weights. */
struct twill_rails_choice {
    struct twill_common common; /* first member, the only one that the context knows */
    uint32_t count;
    struct twill_rails_way {
        struct twill_rail rail;
        uint32_t weight;             /* share of a large message, equal on all ranks; 0: not used */
        struct twill_common *common; /* of the transport on this rail */
    } way[TWILL_RAILS_MOST];
    bool named;      /* the user named the rails, so even a single one is opened by its name */
    bool faster;     /* all ranks have a faster network that is not used */
    bool unmeasured; /* the user asked for several, so measure them when first opened */
    char why[96];
    char taken[224]; /* rails of this node's ranks: "rank 0 eth0 eth1; rank 1 eth0 eth1" */
};

/* Return whether the value of TWILL_RAILS is a list of names. False for NULL, auto and numbers. */
bool twill_rails_are_listed(const char *text);
/* Return TWILL_OK if the rails in TWILL_RAILS and TWILL_INTERFACE exist here, or the error. */
twill_status twill_rails_check(const struct twill_transport_ops *ops,
                               const struct twill_transport_params *params,
                               struct twill_error *error);
/* The state of agreeing on the rails, by twill_rails_offer(), the exchange and conclude. */
struct twill_rails_opening;
/* Find this rank's rails and add them to a batch. If that fails, the part says so, and conclude
 * fails on all ranks. Only TWILL_ERR_MEMORY is returned, with *opening NULL and an empty part. */
twill_status twill_rails_offer(struct twill_rails_opening **opening,
                               const struct twill_transport_ops *ops,
                               const struct twill_transport_params *params,
                               struct twill_oob_batch *batch, struct twill_error *error);
/* After the exchange, set *choice to the rails of the job, which the caller puts into the context
 * (params->common). Warns if all ranks have a network that is twice as fast and not used. Returns
 * TWILL_OK or an error, equal on all ranks except for TWILL_ERR_MEMORY. */
twill_status twill_rails_conclude(const struct twill_rails_opening *opening,
                                  const struct twill_transport_params *params,
                                  struct twill_rails_choice **choice, struct twill_error *error);
void twill_rails_opening_end(struct twill_rails_opening *opening); /* free it; may be NULL */

/* Open `ops` on the rails of TWILL_RAILS, as a plain transport for one rail, else as a composite.
 * Sets *transport, NULL on failure. Collective. Makes the choice first if there is none yet, and
 * measures the rails if it says so. Without ops->rails or params->common, only calls
 * ops->open(). */
twill_status twill_rails_open(struct twill_transport **transport,
                              const struct twill_transport_ops *ops,
                              const struct twill_transport_params *params,
                              struct twill_error *error);
/* Measure the open rails and set the choice's weights, equal on all ranks, or fail. Collective. */
twill_status twill_rails_measure(struct twill_rails_choice *choice,
                                 struct twill_transport *const *rail,
                                 const struct twill_transport_params *params,
                                 struct twill_error *error);
/* Replace weight[count] by measured speeds mbits[count] in Mbit/s, unless the two are in proportion
 * within a factor of two. A rail with less than an eighth of the fastest speed gets 0. The slowest
 * of the others gets 2, and the rest in proportion. The result is the same on ranks with the same
 * arguments. */
void twill_rails_weigh(const uint32_t *mbits, uint32_t count, uint32_t *weight);
/* Make a composite of `count` open transports of one kind. The composite closes them, and so does
 * this call if it fails, with TWILL_ERR_MEMORY. `weight` is each rail's share of a large message,
 * equal on all ranks. Messages of `split_bytes` or more are cut into a chunk for each rail. */
twill_status twill_rails_join(struct twill_transport **transport,
                              struct twill_transport *const *rail, const uint32_t *weight,
                              uint32_t count, size_t split_bytes,
                              const struct twill_transport_params *params,
                              struct twill_error *error);

/* Sort rails by distance, then by speed. Rotate the equally good ones at the front by the local
 * rank `l`, so that neighbours on a node begin with different rails. */
void twill_rails_order(struct twill_rail *rails, size_t count, uint32_t l);

/* The rails of one rank, as it sends them to the others. A value. */
struct twill_rails_info {
    int32_t status;
    uint32_t setting;          /* enum twill_rails_setting */
    uint32_t requested, count; /* the number in TWILL_RAILS, or 0; entries of `rail` */
    uint64_t faster;           /* network at least twice as fast as rail[0] and not used, or 0 */
    struct {
        uint64_t network;
        uint32_t mbits;
        char name[20]; /* for messages */
    } rail[TWILL_RAILS_MOST];
    char message[192]; /* if status is not TWILL_OK */
};

/* The forms of TWILL_RAILS. */
enum twill_rails_setting {
    TWILL_RAILS_AUTO,   /* rails that are certain to be faster together */
    TWILL_RAILS_NUMBER, /* a number; several over one interface if there are fewer */
    TWILL_RAILS_LIST,   /* the named rails */
};

/* Match the rails of all ranks. Sets place[k] to the index of rail k among the rails of `rank`, and
 * *count and weight[], equal on all ranks. Fails if a rank has failed or settings differ. */
twill_status twill_rails_agree(const struct twill_rails_info *infos, uint32_t ranks, uint32_t rank,
                               uint32_t place[TWILL_RAILS_MOST], uint32_t weight[TWILL_RAILS_MOST],
                               uint32_t *count, struct twill_error *error);
/* Set rails[0 .. *count-1] to at most `most` interfaces, first that of this rank's address, or to
 * the one with this name or address if `name` is not NULL. Fails if `name` is none of this
 * host's. */
twill_status twill_links_rails(const struct twill_transport_params *params, const char *name,
                               struct twill_rail *rails, size_t most, size_t *count,
                               struct twill_error *error);

#endif

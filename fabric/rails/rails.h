/* SPDX-License-Identifier: Apache-2.0 */
/* Rails: a composite transport of several transports of one kind, each on its own interface or
 * libfabric domain. */
#ifndef TWILL_RAILS_H
#define TWILL_RAILS_H

#include "fabric/transport.h"

#define TWILL_RAILS_MOST        8
#define TWILL_RAILS_SPLIT_BYTES ((size_t)128 << 10) /* messages from this size on use all rails */

/* The rails of a job, agreed by all ranks when the first communicator opens. Made by
 * twill_rails_conclude(), kept in and closed with the context. */
struct twill_rails_choice {
    struct twill_common common; /* first member: the context knows only this */
    uint32_t count;
    struct twill_rails_way {
        struct twill_rail rail;
        uint32_t weight; /* relative bytes of a large message; equal on all ranks. 0: not used */
        struct twill_common *common; /* of the transport on this rail */
    } way[TWILL_RAILS_MOST];
    bool named;      /* the user named the rails: open even a single one by name */
    bool faster;     /* all ranks have a network that is faster, and is not used */
    bool unmeasured; /* the user asked for several: measure them when they are first opened */
    char why[96];
    char taken[224]; /* rails of the ranks of this node: "rank 0 eth0 eth1; rank 1 eth0 eth1" */
};

/* Return whether the value of TWILL_RAILS (or NULL) is a list of names. */
bool twill_rails_are_listed(const char *text);
/* Check that what TWILL_RAILS and TWILL_INTERFACE name exists on this host. Not collective. */
twill_status twill_rails_check(const struct twill_transport_ops *ops,
                               const struct twill_transport_params *params,
                               struct twill_error *error);

/* How the ranks settle on the rails, from what each has and what the user requests: offer,
 * exchange, conclude. Offer adds its part also if it fails, then *opening is NULL. Conclude returns
 * the choice for the transport's entry in the context (params->common), where twill_rails_open()
 * finds it; the result is the same on all ranks, errors included. End frees an opening; NULL is
 * allowed.
 */
struct twill_rails_opening;
twill_status twill_rails_offer(struct twill_rails_opening **opening,
                               const struct twill_transport_ops *ops,
                               const struct twill_transport_params *params,
                               struct twill_oob_batch *batch, struct twill_error *error);
twill_status twill_rails_conclude(const struct twill_rails_opening *opening,
                                  const struct twill_transport_params *params,
                                  struct twill_rails_choice **choice, struct twill_error *error);
void twill_rails_opening_end(struct twill_rails_opening *opening);

/* Open `ops` on the rails set by TWILL_RAILS: a plain transport for one rail, else a composite.
 * Collective. If there is no choice yet, it is made first, with an exchange of its own. */
twill_status twill_rails_open(struct twill_transport **transport,
                              const struct twill_transport_ops *ops,
                              const struct twill_transport_params *params,
                              struct twill_error *error);

/* rails_measure.c: measure the open rails, and set the weights of the choice by that. Collective,
 * with an exchange. */
twill_status twill_rails_measure(struct twill_rails_choice *choice,
                                 struct twill_transport *const *rail,
                                 const struct twill_transport_params *params,
                                 struct twill_error *error);
/* Weigh rails by their measured speeds, unless these confirm the weights that they have. 0: much
 * slower than the fastest one. Pure. */
void twill_rails_weigh(const uint32_t *mbits, uint32_t count, uint32_t *weight);

/* Make a composite of `count` open transports of one kind. It closes them, also on failure of this
 * call. weight: relative bytes of a large message per rail, equal on all ranks. Messages of at
 * least `split_bytes` are cut into chunks, one per rail. */
twill_status twill_rails_join(struct twill_transport **transport,
                              struct twill_transport *const *rail, const uint32_t *weight,
                              uint32_t count, size_t split_bytes,
                              const struct twill_transport_params *params,
                              struct twill_error *error);

/* Sort rails by distance, then by speed. Rotate the equally good ones at the front by local rank
 * `l`, so that neighbours on a node start on different rails. */
void twill_rails_order(struct twill_rail *rails, size_t count, uint32_t l);

/* The rails of one rank, as it sends them to the others. */
struct twill_rails_info {
    int32_t status;
    uint32_t setting; /* enum twill_rails_setting */
    uint32_t requested, count;
    uint64_t faster; /* network that is at least twice as fast as rail[0], and not used; or 0 */
    struct {
        uint64_t network;
        uint32_t mbits;
        char name[20]; /* for messages */
    } rail[TWILL_RAILS_MOST];
    char message[192]; /* when status is not OK */
};

enum twill_rails_setting {
    TWILL_RAILS_AUTO,   /* those certain to be faster together */
    TWILL_RAILS_NUMBER, /* this many, several over one interface if there are fewer */
    TWILL_RAILS_LIST,   /* the named ones */
};

/* Match the rails of all ranks: place[k] is the index of rail k among the rails of `rank`. Pure:
 * all ranks compute equal count and weights. */
twill_status twill_rails_agree(const struct twill_rails_info *infos, uint32_t ranks, uint32_t rank,
                               uint32_t place[TWILL_RAILS_MOST], uint32_t weight[TWILL_RAILS_MOST],
                               uint32_t *count, struct twill_error *error);

/* List interfaces as rails: ops->rails of transports over IP. */
twill_status twill_links_rails(const struct twill_transport_params *params, const char *name,
                               struct twill_rail *rails, size_t most, size_t *count,
                               struct twill_error *error);

#endif

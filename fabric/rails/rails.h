/* SPDX-License-Identifier: Apache-2.0 */
/* Rails: one transport made of several of a kind, each on an interface or domain of its own. */
#ifndef TWILL_RAILS_H
#define TWILL_RAILS_H

#include "fabric/transport.h"

#define TWILL_RAILS_MOST        8
#define TWILL_RAILS_SPLIT_BYTES ((size_t)128 << 10) /* messages from this size on use all rails */

/* The rails of a job, agreed by all its ranks when the first communicator is opened. */
struct twill_rails_choice {
    struct twill_common common; /* first: it is what the context keeps of them */
    uint32_t count;
    struct twill_rails_way {
        struct twill_rail rail;
        uint32_t weight;             /* the same on all ranks */
        struct twill_common *common; /* of the transport on this rail */
    } way[TWILL_RAILS_MOST];
    bool asked; /* the rails are named: also a single one is to be used as such */
    char why[96];
    char taken[224]; /* "rank 0 eth0 eth1; rank 1 eth0 eth1": of the ranks of this node */
};

/* Does TWILL_RAILS, or NULL, name rails? */
bool twill_rails_are_listed(const char *text);
/* The error if TWILL_RAILS or TWILL_INTERFACE names what this host does not have. Not collective.
 */
twill_status twill_rails_check(const struct twill_transport_ops *ops,
                               const struct twill_transport_params *params,
                               struct twill_error *error);

/* Open `ops` on the rails that TWILL_RAILS asks for: as it is where there is one, else as a
 * composite of several. Collective. */
twill_status twill_rails_open(struct twill_transport **transport,
                              const struct twill_transport_ops *ops,
                              const struct twill_transport_params *params,
                              struct twill_error *error);

/* Make a composite of transports that are open, all of one kind, and ours to close from here on,
 * also on failure. weight: their share of large messages, the same on all ranks. stripe: messages
 * from this size on use all rails. */
twill_status twill_rails_join(struct twill_transport **transport,
                              struct twill_transport *const *rail, const uint32_t *weight,
                              uint32_t count, size_t split_bytes,
                              const struct twill_transport_params *params,
                              struct twill_error *error);

/* Collective: which rails, by what the ranks have and ask for. */
twill_status twill_rails_choose(struct twill_rails_choice *choice,
                                const struct twill_transport_ops *ops,
                                const struct twill_transport_params *params,
                                struct twill_error *error);

/* The nearest first, of those the fastest; of the first ones, which are equally good, local rank l
 * of a node begins with another than its neighbour. */
void twill_rails_order(struct twill_rail *rails, size_t count, uint32_t l);

/* What a rank has, as it tells the others. */
struct twill_rails_info {
    int32_t status;
    uint32_t setting; /* enum twill_rails_setting */
    uint32_t requested, count;
    struct {
        uint64_t network;
        uint32_t mbits;
        char name[20]; /* for people */
    } rail[TWILL_RAILS_MOST];
    char message[192]; /* when status is not OK */
};

enum twill_rails_setting {
    TWILL_RAILS_AUTO,   /* all that are sure to help */
    TWILL_RAILS_NUMBER, /* so many, over one way if there are no more */
    TWILL_RAILS_LIST,   /* these */
};

/* How rails of ranks go together: place[k] is which of rank `rank`'s own is rail k. Pure: all ranks
 * come to the same count and weights. */
twill_status twill_rails_agree(const struct twill_rails_info *infos, uint32_t ranks, uint32_t rank,
                               uint32_t place[TWILL_RAILS_MOST], uint32_t weight[TWILL_RAILS_MOST],
                               uint32_t *count, struct twill_error *error);

#endif

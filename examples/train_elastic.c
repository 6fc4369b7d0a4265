/* SPDX-License-Identifier: Apache-2.0 */
/* A training that continues when ranks die (twill_recover.h). Run it by twillrun --elastic 2:4
 * train --elastic ...
 *
 * After an error the survivors shrink their communicator. Between mini-batches it is extended by
 * new ranks. In both cases all ranks divide the data again and continue where rank 0 is, with its
 * parameters. A rank may have made the last update while another has not. */
#include "train.h"

#include <stdio.h>
#include <twill_recover.h>

/* Give rank 0's position to all ranks. They have its parameters from the new gradient set. Returns
 * 0, or -1 with a message. */
static int share_position(struct training *t)
{
    uint64_t *at = (uint64_t *)&t->at;
    twill_status status = twill_broadcast(t->comm, at, at, sizeof(t->at) / 8, TWILL_U64, 0);
    if (status == TWILL_OK) /* the clocks of a host agree */
        status = twill_broadcast(t->comm, &t->start, &t->start, 1, TWILL_F64, 0);
    if (status == TWILL_OK)
        status = twill_broadcast(t->comm, t->order, t->order, t->batches, TWILL_U64, 0);
    if (status != TWILL_OK)
        snprintf(t->message, sizeof(t->message), "%s", twill_comm_message(t->comm));
    t->loss[0] = t->loss[1] = 0; /* from here on they are of the rest of this epoch */
    return status == TWILL_OK ? 0 : -1;
}

/* Release all that belongs to the communicator and use another one. */
static void replace_comm(struct training *t, twill_comm *comm)
{
    example_release(t);
    twill_comm_leave(t->comm);
    t->comm = comm;
}

/* Leave out the ranks that have died. Returns 0, or -1 if that fails or if no rank has died,
 * because the error has another cause then. */
static int go_on_without(struct training *t)
{
    twill_comm *smaller;
    int size = twill_comm_size(t->comm);
    if (twill_comm_shrink(&smaller, t->comm) != TWILL_OK) {
        snprintf(t->message, sizeof(t->message), "%s", twill_comm_message(t->comm));
        return -1;
    }
    replace_comm(t, smaller);
    if (twill_comm_size(smaller) == size)
        return -1;
    if (twill_comm_rank(smaller) == 0)
        printf("  shrunk to %d of %d ranks at %.3f s\n", twill_comm_size(smaller), size,
               example_now() - t->start);
    return 0;
}

/* Prepare on this communicator's ranks, or those that are left. Returns 0, or -1 with a message. */
static int prepare_again(struct training *t)
{
    while (example_prepare(t) != 0 || share_position(t) != 0)
        if (go_on_without(t) != 0)
            return -1;
    return 0;
}

int example_begin(struct training *t)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* a rank may be killed at any time */
    t->start = example_now();
    t->joined = twill_comm_epoch(t->comm) > 0;
    return prepare_again(t);
}

int example_keep_on(struct training *t, int failed)
{
    twill_comm *larger = NULL;
    if (failed || (t->options.fused && example_copy(t) != 0))
        return go_on_without(t) != 0 ? -1 : prepare_again(t);
    /* If this fails, either the communicator is unchanged, or the next mini-batch fails. */
    if (twill_comm_admit(&larger, t->comm) != TWILL_OK || larger == NULL)
        return 0;
    replace_comm(t, larger);
    if (twill_comm_rank(larger) == 0)
        printf("  grown to %d ranks at %.3f s\n", twill_comm_size(larger),
               example_now() - t->start);
    return prepare_again(t);
}

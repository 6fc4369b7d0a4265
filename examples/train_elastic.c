/* SPDX-License-Identifier: Apache-2.0 */
/* Training that goes on when ranks die (twill_recover.h): twillrun --elastic 2:4 train --elastic
 * ...
 *
 * After an error the survivors shrink their communicator; between mini-batches new ranks are taken
 * in. Either way all ranks then divide the data anew and go on from where rank 0 is, with its
 * parameters: a rank may have done the last update while another has not. */
#include "train.h"

#include <stdio.h>
#include <twill_recover.h>

/* Give all ranks rank 0's position; its parameters they have from the new gradient set. */
static int share_position(struct training *t)
{
    uint64_t *at = (uint64_t *)&t->at;
    twill_status status = twill_broadcast(t->comm, at, at, sizeof(t->at) / 8, TWILL_U64, 0);
    if (status == TWILL_OK) /* clocks of one host agree */
        status = twill_broadcast(t->comm, &t->start, &t->start, 1, TWILL_F64, 0);
    if (status == TWILL_OK)
        status = twill_broadcast(t->comm, t->order, t->order, t->batches, TWILL_U64, 0);
    if (status != TWILL_OK)
        snprintf(t->message, sizeof(t->message), "%s", twill_comm_message(t->comm));
    t->loss[0] = t->loss[1] = 0; /* of the rest of this epoch, then */
    return status == TWILL_OK ? 0 : -1;
}

/* Go over to another communicator. */
static void replace_comm(struct training *t, twill_comm *comm)
{
    example_release(t);
    twill_comm_leave(t->comm);
    t->comm = comm;
}

/* Leave out the ranks that have died. Fails if none has: the error has another cause. */
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

/* Prepare on this communicator's ranks, or on those that are left of them. */
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
    /* If this fails the communicator is as it was, or the next mini-batch fails, too. */
    if (twill_comm_admit(&larger, t->comm) != TWILL_OK || larger == NULL)
        return 0;
    replace_comm(t, larger);
    if (twill_comm_rank(larger) == 0)
        printf("  grown to %d ranks at %.3f s\n", twill_comm_size(larger),
               example_now() - t->start);
    return prepare_again(t);
}

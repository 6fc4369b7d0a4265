/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of the training for --elastic --fused. Each rank has only the optimizer's state of its
 * shards. After every mini-batch it sends a copy of that to its right neighbour. It also keeps a
 * copy of the parameters, which are the same on all ranks. So the state of a rank that dies is not
 * lost, and no file is needed.
 *
 * The last two copies are kept, as a rank may die while some of the others have made the last copy
 * and some have not. The survivors continue from the newest copy that all of them have. If two
 * neighbours die together, the state of one of them is lost, and the job ends. */
#include "train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Make room for `bytes` bytes, and set *had, the size until then, to it. The content is lost. */
static twill_status reserve_bytes(void **memory, size_t *had, size_t bytes)
{
    if (*had < bytes) {
        free(*memory);
        *memory = malloc(bytes);
    }
    *had = bytes;
    return *memory != NULL || bytes == 0 ? TWILL_OK : TWILL_ERR_MEMORY;
}

static twill_status copy_model(struct training *t, struct train_copy *copy)
{
    for (int i = 0; i < EXAMPLE_TENSORS; i++) {
        size_t bytes = t->network.count[i] * sizeof(float);
        if (copy->weights[i] == NULL)
            copy->weights[i] = malloc(bytes);
        if (copy->weights[i] == NULL)
            return TWILL_ERR_MEMORY;
        memcpy(copy->weights[i], t->network.weights[i], bytes);
    }
    if (copy->order == NULL)
        copy->order = malloc(t->batches * sizeof(*copy->order));
    if (copy->order == NULL)
        return TWILL_ERR_MEMORY;
    memcpy(copy->order, t->order, t->batches * sizeof(*copy->order));
    copy->at = t->at;
    return TWILL_OK;
}

/* Send the optimizer's state to the right neighbour, and receive that of the left one. */
static twill_status copy_state(struct training *t, struct train_copy *copy)
{
    int right = (t->rank + 1) % t->size, left = (t->rank + t->size - 1) % t->size;
    uint64_t mine, theirs = 0;
    size_t bytes;
    twill_status status = twill_gradients_state_bytes(t->set, &bytes);
    if (status == TWILL_OK)
        status = reserve_bytes(&copy->state[0], &copy->bytes[0], bytes);
    if (status == TWILL_OK)
        status = twill_gradients_state_export(t->set, copy->state[0], bytes);
    if (status != TWILL_OK || t->size == 1)
        return status;
    mine = bytes;
    status = twill_sendrecv(t->comm, &mine, 1, right, &theirs, 1, left, TWILL_U64);
    if (status == TWILL_OK)
        status = reserve_bytes(&copy->state[1], &copy->bytes[1], (size_t)theirs);
    if (status == TWILL_OK)
        status = twill_sendrecv(t->comm, copy->state[0], bytes, right, copy->state[1],
                                (size_t)theirs, left, TWILL_U8);
    return status;
}

int example_copy(struct training *t)
{
    struct train_copy *copy = &t->copy[(t->copied + 1) % 2];
    copy->step = 0;
    copy->bytes[1] = 0;
    twill_status status = copy_model(t, copy);
    if (status == TWILL_OK)
        status = copy_state(t, copy);
    if (status != TWILL_OK) {
        snprintf(t->message, sizeof(t->message), "%s",
                 status == TWILL_ERR_MEMORY ? "no memory" : twill_comm_message(t->comm));
        return -1;
    }
    copy->step = ++t->copied;
    return 0;
}

/* Give rank 0's parameters to all ranks. */
static twill_status share_weights(struct training *t)
{
    const struct example_network *network = &t->network;
    twill_status status = TWILL_OK;
    for (int i = 0; i < EXAMPLE_TENSORS && status == TWILL_OK; i++)
        status = twill_broadcast(t->comm, network->weights[i], network->weights[i],
                                 network->count[i], TWILL_F32, 0);
    return status;
}

/* Make this rank what it was when it made the copy. Without a copy it gets all from the others. */
static twill_status use_copy(struct training *t, const struct train_copy *copy)
{
    size_t states = copy == NULL ? 0 : copy->bytes[1] > 0 ? 2 : 1;
    for (int i = 0; copy != NULL && i < EXAMPLE_TENSORS; i++)
        memcpy(t->network.weights[i], copy->weights[i], t->network.count[i] * sizeof(float));
    if (copy != NULL) {
        memcpy(t->order, copy->order, t->batches * sizeof(*t->order));
        t->at = copy->at;
    }
    twill_status status = share_weights(t);
    if (status != TWILL_OK)
        return status;
    return twill_gradients_state_import(t->set,
                                        states > 0 ? (const void *const *)copy->state : NULL,
                                        states > 0 ? copy->bytes : NULL, states);
}

twill_status example_restore(struct training *t)
{
    uint64_t step = t->joined ? UINT64_MAX : t->copied;
    twill_status status = twill_allreduce(t->comm, &step, &step, 1, TWILL_U64, TWILL_MIN);
    const struct train_copy *copy = NULL;
    if (status != TWILL_OK)
        return status;
    t->copied = step;
    t->joined = 0;
    for (int i = 0; i < 2 && step > 0; i++)
        copy = t->copy[i].step == step ? &t->copy[i] : copy;
    if (step > 0)
        return use_copy(t, copy);
    t->at.epoch = 0; /* A rank has died before the first copy, so begin again. */
    if (t->rank == 0)
        example_network_randomise(&t->network, t->options.seed);
    return share_weights(t);
}

void example_free_copies(struct training *t)
{
    for (int c = 0; c < 2; c++) {
        for (int i = 0; i < EXAMPLE_TENSORS; i++)
            free(t->copy[c].weights[i]);
        free(t->copy[c].order);
        free(t->copy[c].state[0]);
        free(t->copy[c].state[1]);
    }
}

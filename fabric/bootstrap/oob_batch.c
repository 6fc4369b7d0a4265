/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/bootstrap/oob_batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct batch_status { /* of one rank, the first part of every exchange */
    int32_t status;
    char message[252]; /* if status is not TWILL_OK */
};

void twill_oob_batch_add(struct twill_oob_batch *batch, const void *mine, void *all, size_t bytes)
{
    if (batch->parts < TWILL_OOB_BATCH_PARTS)
        batch->part[batch->parts] = (struct twill_oob_batch_part){mine, all, bytes};
    batch->parts++;
}

void twill_oob_batch_suspect(struct twill_oob_batch *batch, twill_status status, const char *format,
                             ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)twill_error_set_list(&batch->suspicion, status, TWILL_NO_RANK, __FILE__, __LINE__, "",
                               format, arguments);
    va_end(arguments);
}

/* Write this rank's status and message, then its parts, to `at`, which the caller has zeroed. */
static void pack(const struct twill_oob_batch *batch, twill_status status,
                 const struct twill_error *error, unsigned char *at)
{
    struct batch_status own;
    memset(&own, 0, sizeof(own)); /* all of it is sent */
    own.status = (int32_t)status;
    if (status != TWILL_OK)
        snprintf(own.message, sizeof(own.message), "%.251s",
                 error != NULL && error->message[0] != '\0' ? error->message : "failed");
    memcpy(at, &own, sizeof(own));
    at += sizeof(own);
    for (size_t i = 0; i < batch->parts; i++) {
        const struct twill_oob_batch_part *part = &batch->part[i];
        if (part->mine != NULL)
            memcpy(at, part->mine, part->bytes);
        at += part->bytes;
    }
}

/* Copy the parts of a rank, which begin at `at`, to its places in part[].all. */
static void unpack(const struct twill_oob_batch *batch, size_t rank, const unsigned char *at)
{
    for (size_t i = 0; i < batch->parts; i++) {
        const struct twill_oob_batch_part *part = &batch->part[i];
        if (part->all != NULL)
            memcpy((unsigned char *)part->all + rank * part->bytes, at, part->bytes);
        at += part->bytes;
    }
}

/* Return the status of a rank. If another rank failed, replace the error by that rank's message,
 * with its name in front. A status that does not exist becomes TWILL_ERR_INTERNAL. */
static twill_status check_status(const struct twill_oob *oob, int rank,
                                 const struct batch_status *theirs, struct twill_error *error)
{
    char name[TWILL_RANK_TEXT];
    twill_status status = twill_status_received(theirs->status);
    if (status == TWILL_OK || rank == oob->rank)
        return status;
    if (error != NULL)
        twill_error_clear(error);
    (void)twill_rank_text(oob->job, (uint32_t)rank, name);
    if (status != (twill_status)theirs->status)
        return TWILL_FAIL(error, status,
                          "%s sent %d, which is not a status: its memory is damaged, or it runs "
                          "another version of twill",
                          name, theirs->status);
    size_t length = strlen(name);
    bool named = strncmp(theirs->message, name, length) == 0 &&
                 (theirs->message[length] == ':' || theirs->message[length] == ' ');
    return TWILL_FAIL(error, status, "%s%s%.*s", named ? "" : name, named ? "" : ": ",
                      (int)sizeof(theirs->message) - 1, theirs->message);
}

/* Run the all-gather of a batch. If it fails after this rank had lost contact with another one,
 * return the status and message of that loss, in batch->suspicion. If there was no such loss,
 * return the status of the all-gather. */
static twill_status gather(struct twill_oob_batch *batch, const unsigned char *mine,
                           unsigned char *all, size_t bytes, struct twill_error *error)
{
    struct twill_oob *oob = batch->oob;
    const struct twill_error *suspicion = &batch->suspicion;
    struct twill_error why = {0};
    twill_status status = twill_oob_allgather(oob, mine, all, bytes, &why);
    if (status == TWILL_OK)
        return TWILL_OK;
    if (suspicion->status != TWILL_OK)
        return TWILL_FAIL(error, suspicion->status, "%s; then: %s", suspicion->message,
                          why.message);
    return TWILL_FAIL(error, status, "%s", why.message);
}

twill_status twill_oob_batch_exchange(struct twill_oob_batch *batch, twill_status status,
                                      struct twill_error *error)
{
    struct twill_oob *oob = batch->oob;
    size_t size = (size_t)oob->size, bytes = sizeof(struct batch_status);
    if (batch->parts > TWILL_OOB_BATCH_PARTS)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "%zu parts of an exchange are more than %d",
                          batch->parts, TWILL_OOB_BATCH_PARTS);
    for (size_t i = 0; i < batch->parts; i++)
        bytes += batch->part[i].bytes;
    unsigned char *mine = calloc(1, bytes), *all = calloc(size, bytes);
    if (mine == NULL || all == NULL) {
        free(mine);
        free(all);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY,
                          "%s: no memory to exchange %zu bytes with %zu ranks",
                          TWILL_RANK_NAME(oob->job, oob->rank), bytes, size);
    }
    pack(batch, status, error, mine);
    twill_status outcome = gather(batch, mine, all, bytes, error);
    bool complete = outcome == TWILL_OK;
    for (size_t r = 0; r < size && complete; r++) {
        struct batch_status theirs;
        memcpy(&theirs, all + r * bytes, sizeof(theirs));
        unpack(batch, r, all + r * bytes + sizeof(theirs));
        if (outcome == TWILL_OK)
            outcome = check_status(oob, (int)r, &theirs, error);
    }
    free(mine);
    free(all);
    *batch = (struct twill_oob_batch){.oob = oob};
    return complete || status == TWILL_OK ? outcome : status;
}

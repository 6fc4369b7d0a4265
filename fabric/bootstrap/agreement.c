/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/bootstrap/agreement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first part of every exchange: how a rank fares. */
struct agreement_status {
    int32_t status;
    char message[252]; /* if status is not TWILL_OK */
};

void twill_agreement_add(struct twill_agreement *agreement, const void *mine, void *all,
                         size_t bytes)
{
    if (agreement->parts < TWILL_AGREEMENT_PARTS)
        agreement->part[agreement->parts] = (struct twill_agreement_part){mine, all, bytes};
    agreement->parts++;
}

void twill_agreement_suspect(struct twill_agreement *agreement, twill_status status,
                             const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)twill_error_set_list(&agreement->suspicion, status, TWILL_NO_RANK, __FILE__, __LINE__, "",
                               format, arguments);
    va_end(arguments);
}

/* Concatenate status and parts at `at`. */
static void pack(const struct twill_agreement *agreement, twill_status status,
                 const struct twill_error *error, unsigned char *at)
{
    struct agreement_status own;
    memset(&own, 0, sizeof(own)); /* all of it is sent */
    own.status = (int32_t)status;
    if (status != TWILL_OK)
        snprintf(own.message, sizeof(own.message), "%.251s",
                 error != NULL && error->message[0] != '\0' ? error->message : "failed");
    memcpy(at, &own, sizeof(own));
    at += sizeof(own);
    for (size_t i = 0; i < agreement->parts; i++) {
        const struct twill_agreement_part *part = &agreement->part[i];
        if (part->mine != NULL)
            memcpy(at, part->mine, part->bytes);
        at += part->bytes;
    }
}

/* Store the parts of one rank, which begin at `at`. */
static void unpack(const struct twill_agreement *agreement, size_t rank, const unsigned char *at)
{
    for (size_t i = 0; i < agreement->parts; i++) {
        const struct twill_agreement_part *part = &agreement->part[i];
        if (part->all != NULL)
            memcpy((unsigned char *)part->all + rank * part->bytes, at, part->bytes);
        at += part->bytes;
    }
}

/* Fail if a rank did; the message names it. This rank's own failure may be another one. */
static twill_status check_status(const struct twill_oob *oob, int rank,
                                 const struct agreement_status *theirs, struct twill_error *error)
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
                          "%s sends %d as its status: its memory is damaged, or it is of another "
                          "version of twill",
                          name, theirs->status);
    size_t length = strlen(name);
    bool named = strncmp(theirs->message, name, length) == 0 &&
                 (theirs->message[length] == ':' || theirs->message[length] == ' ');
    return TWILL_FAIL(error, status, "%s%s%.*s", named ? "" : name, named ? "" : ": ",
                      (int)sizeof(theirs->message) - 1, theirs->message);
}

static twill_status gather(struct twill_agreement *agreement, const unsigned char *mine,
                           unsigned char *all, size_t bytes, struct twill_error *error)
{
    struct twill_oob *oob = agreement->oob;
    const struct twill_error *suspicion = &agreement->suspicion;
    struct twill_error why = {0};
    twill_status status = twill_oob_allgather(oob, mine, all, bytes, &why);
    if (status == TWILL_OK)
        return TWILL_OK;
    if (suspicion->status != TWILL_OK)
        return TWILL_FAIL(error, suspicion->status, "%s; then: %s", suspicion->message,
                          why.message);
    return TWILL_FAIL(error, status, "%s", why.message);
}

twill_status twill_agreement_exchange(struct twill_agreement *agreement, twill_status status,
                                      struct twill_error *error)
{
    struct twill_oob *oob = agreement->oob;
    size_t size = (size_t)oob->size, bytes = sizeof(struct agreement_status);
    if (agreement->parts > TWILL_AGREEMENT_PARTS)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "%zu parts of an exchange are more than %d",
                          agreement->parts, TWILL_AGREEMENT_PARTS);
    for (size_t i = 0; i < agreement->parts; i++)
        bytes += agreement->part[i].bytes;
    unsigned char *mine = calloc(1, bytes), *all = calloc(size, bytes);
    if (mine == NULL || all == NULL) {
        free(mine);
        free(all);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY,
                          "%s: no memory to exchange %zu bytes with %zu ranks",
                          TWILL_RANK_NAME(oob->job, oob->rank), bytes, size);
    }
    pack(agreement, status, error, mine);
    twill_status outcome = gather(agreement, mine, all, bytes, error);
    bool complete = outcome == TWILL_OK;
    for (size_t r = 0; r < size && complete; r++) {
        struct agreement_status theirs;
        memcpy(&theirs, all + r * bytes, sizeof(theirs));
        unpack(agreement, r, all + r * bytes + sizeof(theirs));
        if (outcome == TWILL_OK)
            outcome = check_status(oob, (int)r, &theirs, error);
    }
    free(mine);
    free(all);
    *agreement = (struct twill_agreement){.oob = oob};
    return complete || status == TWILL_OK ? outcome : status;
}

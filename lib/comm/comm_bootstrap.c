/* SPDX-License-Identifier: Apache-2.0 */
/* An all-gather among some ranks of a communicator, by dissemination (Bruck et al., "Efficient
 * algorithms for all-to-all communications", 1997). In round k each rank sends the shards that it
 * has to the rank 2^k before it and receives the same number from the rank 2^k behind it. There are
 * log2(size) rounds, and each shard arrives once.
 *
 *      4 ranks     have        round 0 (1 away)    round 1 (2 away)
 *      rank 0      0           0 1                 0 1 2 3
 *      rank 1      1           1 2                 1 2 3 0
 *      rank 2      2           2 3                 2 3 0 1
 *      rank 3      3           3 0                 3 0 1 2
 *
 * It can use lane 0, as the communicator has nothing else under way between these ranks. */
#include "fabric/bootstrap/bootstrap.h"
#include "lib/comm/comm_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXCHANGE_SIGNATURE 0x6d656574u /* plus the number of the exchange */

/* An exchange over a communicator. Made by twill_oob_comm_open() and freed by comm_close(). */
struct oob_comm {
    struct twill_oob oob;
    struct twill_comm *over; /* NULL once it is sealed */
    uint64_t since;          /* twill_now() when it was opened, for twill_comm_look_for_death() */
    uint32_t exchanges;      /* number completed so far, which messages carry so that ranks match */
    uint32_t rank[];         /* [size] ranks in `over` */
};

/* A round of an exchange, in which this rank sends to one rank and receives from another. On the
 * stack of exchange_round(). */
struct round {
    struct twill_comm *over;
    struct twill_transfer transfer[2]; /* send, receive */
};

/* Return whether both transfers of a round have ended, or one has failed. */
static bool round_done(const void *of)
{
    const struct round *round = of;
    int32_t out = round->transfer[0].status, in = round->transfer[1].status;
    return out < 0 || in < 0 || (out != TWILL_PENDING && in != TWILL_PENDING);
}

/* Return TWILL_OK, or the status of a transfer of the round that has failed. Its message is then in
 * the error of the communicator. */
static twill_status round_outcome(struct round *round)
{
    struct twill_comm *over = round->over;
    for (unsigned i = 0; i < 2; i++) {
        const struct twill_transfer *transfer = &round->transfer[i];
        if (transfer->status < 0)
            return TWILL_COMM_FAIL(over, (twill_status)transfer->status, "%s: %s",
                                   TWILL_ENGINE_RANK_NAME(&over->engine, transfer->peer),
                                   transfer->status == TWILL_ERR_MISMATCH
                                       ? "is in another call, or in one with other ranks"
                                       : twill_strerror((twill_status)transfer->status));
    }
    return TWILL_OK;
}

/* Connect to rank `peer` of the communicator, and post transfer i of a round, to or from that rank.
 * Returns TWILL_OK, or the error. */
static twill_status post_round(struct round *round, unsigned i, enum twill_transfer_kind kind,
                               uint32_t peer, void *buffer, size_t bytes, uint32_t signature)
{
    struct twill_comm *over = round->over;
    round->transfer[i] = (struct twill_transfer){.status = TWILL_PENDING,
                                                 .kind = (uint8_t)kind,
                                                 .peer = peer,
                                                 .signature = signature,
                                                 .buffer = buffer,
                                                 .bytes = bytes};
    TWILL_TRY(&over->error, twill_engine_connect(&over->engine, peer));
    struct twill_transport *link = twill_engine_link(&over->engine, peer);
    return link->ops->post(link, &round->transfer[i], &over->error);
}

/* Send `bytes` to rank `to` of the group and receive the same number from rank `from`. Returns
 * TWILL_OK, or the error with which it has broken the communicator. */
static twill_status exchange_round(struct oob_comm *self, uint32_t to, uint32_t from, void *out,
                                   void *in, size_t bytes)
{
    struct round round = {.over = self->over};
    uint32_t signature = EXCHANGE_SIGNATURE + self->exchanges;
    twill_status status =
        post_round(&round, 0, TWILL_TRANSFER_SEND, self->rank[to], out, bytes, signature);
    if (status == TWILL_OK)
        status = post_round(&round, 1, TWILL_TRANSFER_RECV, self->rank[from], in, bytes, signature);
    self->over->issue.setting_up = round.transfer;
    self->over->issue.messaging++;
    if (status == TWILL_OK)
        status = twill_comm_wait(self->over, round_done, &round);
    self->over->issue.messaging--;
    self->over->issue.setting_up = NULL;
    if (status == TWILL_OK)
        status = round_outcome(&round);
    if (status == TWILL_OK)
        return status;
    return twill_comm_fail(self->over, status, TWILL_CAUSE_ASKED); /* the round is used no more */
}

/* Gather `bytes` bytes of each rank of the group. rotated[] has room for all of them and begins
 * with this rank's. Those of the ranks behind it are received in order, after the last rank those
 * from rank 0 on. Returns TWILL_OK or the error. */
static twill_status gather_round(struct oob_comm *self, unsigned char *rotated, size_t bytes)
{
    uint32_t n = (uint32_t)self->oob.size, me = (uint32_t)self->oob.rank;
    for (uint32_t away = 1; away < n; away *= 2) {
        size_t shards = twill_min(away, n - away);
        TWILL_TRY(NULL, exchange_round(self, (me + n - away) % n, (me + away) % n, rotated,
                                       rotated + away * bytes, shards * bytes));
    }
    self->exchanges++;
    return TWILL_OK;
}

/* The allgather() of the exchange. Stores `bytes` bytes of each rank in all[], in rank order.
 * Returns TWILL_OK, TWILL_ERR_INTERNAL if the exchange is sealed, or another error. A transfer that
 * fails breaks the communicator. */
static twill_status comm_allgather(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                                   struct twill_error *error)
{
    struct oob_comm *self = (struct oob_comm *)oob;
    size_t n = (size_t)oob->size, me = (size_t)oob->rank;
    if (self->over == NULL)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "set-up of this communicator is over");
    const struct twill_error *earlier = &self->over->error;
    if (self->over->broken) /* in an earlier exchange, or by comm_attend() */
        return TWILL_FAIL(error, earlier->status < 0 ? earlier->status : TWILL_ERR_BROKEN, "%s",
                          earlier->message);
    if (bytes == 0)
        return TWILL_OK;
    unsigned char *rotated = malloc(n * bytes); /* of this rank and the ones behind it */
    if (rotated == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "no memory to gather %zu bytes of %zu ranks",
                          bytes, n);
    memcpy(rotated, mine, bytes);
    twill_status status = gather_round(self, rotated, bytes);
    for (size_t i = 0; status == TWILL_OK && i < n; i++)
        memcpy((unsigned char *)all + (me + i) % n * bytes, rotated + i * bytes, bytes);
    free(rotated);
    if (status != TWILL_OK)
        return TWILL_FAIL(error, status, "%s", self->over->error.message);
    return TWILL_OK;
}

/* The attend() of the exchange. Answers ranks that ask whom this rank waits for, and looks for
 * failures while a socket is waited on. If `late`, this rank gives up waiting for `awaited`, which
 * breaks the communicator. Returns whether that is usable, or true if the exchange is sealed. */
static bool comm_attend(struct twill_oob *oob, uint32_t awaited, bool late)
{
    struct oob_comm *self = (struct oob_comm *)oob;
    struct twill_comm *over = self->over;
    bool doubt; /* the next look decides */
    if (over == NULL || over->broken)
        return over == NULL;
    over->issue.elsewhere = 1 + self->rank[awaited];
    twill_status status = twill_comm_torn(over);
    if (status == TWILL_OK)
        status = twill_comm_poll_failures(over, true);
    if (status == TWILL_OK)
        status =
            twill_comm_look_for_death(over, &self->rank[awaited], 1, false, self->since, &doubt);
    if (status == TWILL_OK && late)
        status = twill_comm_time_out(over, twill_now() - oob->timeout_ns);
    over->issue.elsewhere = 0;
    if (status != TWILL_OK)
        (void)twill_comm_fail(over, status, TWILL_CAUSE_ASKED);
    return status == TWILL_OK;
}

/* The close() of the exchange. Wipes the secret and frees the exchange. */
static void comm_close(struct twill_oob *oob)
{
    twill_secret_wipe(&oob->secret, sizeof(oob->secret));
    free(oob);
}

static const struct twill_bootstrap_ops oob_comm_ops = {
    .size_of = sizeof(struct oob_comm),
    .name = "communicator",
    .allgather = comm_allgather,
    .close = comm_close,
    .attend = comm_attend,
};

twill_status twill_oob_comm_open(struct twill_oob **oob, struct twill_comm *over,
                                 const uint32_t *ranks, uint32_t size, uint32_t rank,
                                 struct twill_error *error)
{
    struct oob_comm *self = calloc(1, sizeof(*self) + size * sizeof(*self->rank));
    if (self == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "no memory for a group of %u ranks", size);
    self->oob = *over->oob; /* addresses, and the nonce of the job */
    self->oob.ops = &oob_comm_ops;
    self->oob.rounds = 0;
    self->oob.rank = (int)rank;
    self->oob.size = (int)size;
    self->oob.timeout_ns = over->tuning.timeout_ns;
    self->over = over;
    self->since = twill_now();
    memcpy(self->rank, ranks, size * sizeof(*ranks));
    snprintf(self->oob.how, sizeof(self->oob.how), "communicator %u", over->number);
    *oob = &self->oob;
    return TWILL_OK;
}

void twill_oob_comm_seal(struct twill_oob *oob)
{
    ((struct oob_comm *)oob)->over = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the rails that the user asked for, as the speed that a driver reports may be wrong. The
 * first rank of each node sends to the first rank of the next node and receives from that of the
 * node before. All nodes do so at the same time, rail by rail. The slowest node counts. */
#include "fabric/bootstrap/oob_batch.h"
#include "fabric/rails/rails.h"
#include "fabric/transports.h"
#include "lib/base/rest.h"
#include "lib/base/times.h"

#include <stdlib.h>

#define MEASURED_BYTES ((size_t)256 << 10) /* 21 ms at 100 Mbit/s */
#define MEASURE_ROUNDS 6                   /* the best one counts; the first opens TCP's window */
#define SIGNATURE      0x7261696cu
#define LEFT_OUT       8 /* a rail this much slower than the fastest one is not used */

/* Return the lowest rank of a node. */
static uint32_t first_rank(const struct twill_world *world, uint32_t node)
{
    uint32_t rank = 0;
    while (world->node[rank] != node || world->local[rank] != 0)
        rank++;
    return rank;
}

/* Post a SEND and a RECV and wait for both. Returns TWILL_ERR_TIMEOUT at the deadline,
 * TWILL_ERR_PEER if another rank has failed, or the error of a transfer. */
static twill_status exchange(struct twill_transport *rail, struct twill_oob *oob,
                             struct twill_transfer transfers[2], uint64_t deadline,
                             struct twill_error *error)
{
    uint64_t next = twill_now() + TWILL_ATTEND_NS;
    for (int i = 0; i < 2; i++) {
        transfers[i].status = TWILL_PENDING;
        TWILL_TRY(error, rail->ops->post(rail, &transfers[i], error));
    }
    while (transfers[0].status == TWILL_PENDING || transfers[1].status == TWILL_PENDING) {
        int moved = rail->ops->progress(rail, error);
        if (moved < 0)
            return (twill_status)moved;
        if (moved > 0)
            continue;
        uint32_t awaited = transfers[transfers[1].status == TWILL_PENDING].peer;
        uint64_t now = twill_now();
        bool late = now > deadline;
        if (late || now >= next) {
            bool alive = twill_oob_attend(oob, awaited, late);
            if (late)
                return TWILL_FAIL(error, TWILL_ERR_TIMEOUT,
                                  "rails: %s: no message arrived from rank %u, or at rank %u",
                                  rail->label, transfers[1].peer, transfers[0].peer);
            if (!alive)
                return TWILL_FAIL(error, TWILL_ERR_PEER, "rails: %s: another rank has failed",
                                  rail->label);
            next = now + TWILL_ATTEND_NS;
        }
        twill_yield();
    }
    for (int i = 0; i < 2; i++)
        if (transfers[i].status != TWILL_OK)
            return TWILL_FAIL(error, (twill_status)transfers[i].status,
                              "rails: %s: rank %u: status %d", rail->label, transfers[i].peer,
                              (int)transfers[i].status);
    return TWILL_OK;
}

/* Exchange messages between the first ranks of neighbouring nodes over one rail, which all of these
 * do together. Set *mbits to this rank's best speed in Mbit/s. `buffers` has 2 * MEASURED_BYTES. If
 * an exchange fails, cancel all requests of the rail and return the error. */
static twill_status measure_rail(struct twill_transport *rail,
                                 const struct twill_transport_params *params,
                                 unsigned char *buffers, uint32_t *mbits, struct twill_error *error)
{
    const struct twill_world *world = params->world;
    uint32_t node = world->node[params->oob->rank], nodes = world->nodes;
    struct twill_transfer transfers[2] = {
        {.kind = TWILL_TRANSFER_SEND, .buffer = buffers},
        {.kind = TWILL_TRANSFER_RECV, .buffer = buffers + MEASURED_BYTES}};
    uint64_t deadline = twill_now() + params->oob->timeout_ns;
    twill_status status = TWILL_OK;
    transfers[0].peer = first_rank(world, (node + 1) % nodes);
    transfers[1].peer = first_rank(world, (node + nodes - 1) % nodes);
    for (int i = 0; i < 2 && status == TWILL_OK; i++) {
        transfers[i].bytes = MEASURED_BYTES;
        transfers[i].signature = SIGNATURE;
        if (rail->ops->connect != NULL)
            status = rail->ops->connect(rail, transfers[i].peer, error);
    }
    for (int round = 0; round < MEASURE_ROUNDS && status == TWILL_OK; round++) {
        uint64_t begin = twill_now();
        status = exchange(rail, params->oob, transfers, deadline, error);
        uint64_t ns = twill_max(twill_now() - begin, 1u);
        *mbits = (uint32_t)twill_max(MEASURED_BYTES * 8 * 1000 / ns, twill_max(*mbits, 1u));
    }
    if (status != TWILL_OK) /* it must not keep the transfers */
        rail->ops->cancel(rail);
    return status;
}

/* On a node's first rank, set mbits[k] to the measured speed of each rail in Mbit/s, or fail. On
 * other ranks do nothing. */
static twill_status measure_all(struct twill_transport *const *rail, uint32_t count,
                                const struct twill_transport_params *params, uint32_t *mbits,
                                struct twill_error *error)
{
    twill_status status = TWILL_OK;
    if (params->world->local[params->oob->rank] != 0)
        return TWILL_OK;
    unsigned char *buffers = calloc(2, MEASURED_BYTES);
    if (buffers == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rails: no memory to measure them");
    for (uint32_t k = 0; k < count && status == TWILL_OK; k++)
        status = measure_rail(rail[k], params, buffers, &mbits[k], error);
    free(buffers);
    return status;
}

/* Return whether measured speeds are in proportion to the weights, within a factor of two. */
static bool confirm(const uint32_t *mbits, uint32_t count, const uint32_t *weight)
{
    double least = 0, most = 0;
    for (uint32_t k = 0; k < count; k++) {
        double each = (double)mbits[k] / weight[k];
        least = k == 0 || each < least ? each : least;
        most = twill_max(most, each);
    }
    return most < 2 * least;
}

void twill_rails_weigh(const uint32_t *mbits, uint32_t count, uint32_t *weight)
{
    uint32_t fastest = 0, least = UINT32_MAX;
    if (confirm(mbits, count, weight))
        return;
    for (uint32_t k = 0; k < count; k++)
        fastest = twill_max(fastest, mbits[k]);
    for (uint32_t k = 0; k < count; k++)
        if (mbits[k] >= fastest / LEFT_OUT)
            least = twill_min(least, mbits[k]);
    for (uint32_t k = 0; k < count; k++)
        weight[k] = mbits[k] < fastest / LEFT_OUT ? 0 : (uint32_t)((uint64_t)mbits[k] * 2 / least);
}

twill_status twill_rails_measure(struct twill_rails_choice *choice,
                                 struct twill_transport *const *rail,
                                 const struct twill_transport_params *params,
                                 struct twill_error *error)
{
    struct twill_oob_batch batch = {.oob = params->oob};
    size_t size = (size_t)params->oob->size;
    uint32_t own[TWILL_RAILS_MOST] = {0}, least[TWILL_RAILS_MOST], weight[TWILL_RAILS_MOST];
    uint32_t(*all)[TWILL_RAILS_MOST] = calloc(size, sizeof(*all));
    twill_oob_batch_add(&batch, own, all, sizeof(own));
    twill_status status =
        all == NULL ? TWILL_FAIL(error, TWILL_ERR_MEMORY, "rails: no memory for %zu ranks", size)
                    : measure_all(rail, choice->count, params, own, error);
    status = twill_oob_batch_exchange(&batch, status, error);
    for (uint32_t k = 0; status == TWILL_OK && k < choice->count; k++) {
        least[k] = UINT32_MAX;
        for (size_t r = 0; r < size; r++)
            least[k] = params->world->local[r] == 0 ? twill_min(least[k], all[r][k]) : least[k];
    }
    free(all);
    if (status != TWILL_OK)
        return status;
    for (uint32_t k = 0; k < choice->count; k++)
        weight[k] = choice->way[k].weight;
    twill_rails_weigh(least, choice->count, weight);
    for (uint32_t k = 0; k < choice->count; k++) {
        choice->way[k].weight = weight[k];
        twill_say(params->log, twill_log_once(TWILL_LOG_INFO, params->oob->rank == 0),
                  "rail %u: %s: measured %u Mbit/s%s", k, choice->way[k].rail.label, least[k],
                  weight[k] > 0 ? "" : ": too slow to be used beside the fastest");
    }
    return TWILL_OK;
}

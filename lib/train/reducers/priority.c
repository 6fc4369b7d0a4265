/* SPDX-License-Identifier: Apache-2.0 */
/* TWILL_BUCKETS_BY_PRIORITY: buckets are reduced by segments. Before each segment the ranks agree
 * which buckets are ready everywhere, and take the one with the lowest priority number.
 *
 * All ranks must start the same segments in the same order, but tensors become ready at different
 * times on them. So a segment is chosen from common knowledge only. Exchange n is an allreduce of
 * one bit for each bucket, "ready here and not yet agreed on". At most one segment follows it.
 *
 * While segments of agreed buckets remain, every rank takes part in the next exchange once it has
 * fewer than TWILL_REDUCER_SEGMENTS under way. If none remain, a rank takes part when a bucket is
 * ready on it, as before that none could be agreed on. No rank coordinates. A rank that has
 * something to compute makes others wait only if they could not start anything either. */
#include "lib/base/times.h"
#include "lib/train/reducers/reducers.h"

#include <stdlib.h>
#include <string.h>

twill_status twill_priority_prepare(struct twill_reducer *reducer)
{
    struct twill_gradients *set = reducer->set;
    reducer->words = (reducer->buckets + 63) / 64;
    TWILL_NEW(&set->error, reducer->ready, 2 * (size_t)reducer->words, "words for buckets");
    reducer->agreed = reducer->ready + reducer->words;
    reducer->exchanging = false;
    reducer->exchange_from_ns = 0;
    twill_status status =
        twill_allreduce_init(reducer->order_comm, reducer->ready, reducer->agreed, reducer->words,
                             TWILL_U64, TWILL_BAND, &reducer->exchange);
    return twill_set_check(set, reducer->order_comm, status);
}

void twill_priority_unprepare(struct twill_reducer *reducer)
{
    (void)twill_request_free(&reducer->exchange);
    reducer->exchange = NULL;
    free(reducer->ready);
    reducer->ready = reducer->agreed = NULL;
}

/* Return whether a bucket has segments that all ranks are ready for and that have not begun. */
static bool has_segments(const struct twill_bucket *bucket)
{
    return bucket->started != bucket->agreed * bucket->segments;
}

/* Return the step whose segments of a bucket begin next. */
static uint64_t next_step(const struct twill_reducer *reducer, const struct twill_bucket *bucket)
{
    return bucket->started / bucket->segments * reducer->set->generations + bucket->generation;
}

/* Return whether segments of bucket a come before those of b, by older step and then lower priority
 * number. In a late set the older of two steps is awaited first, and all its updates come first. */
static bool precedes(const struct twill_reducer *reducer, const struct twill_bucket *a,
                     const struct twill_bucket *b)
{
    uint64_t step_a = next_step(reducer, a), step_b = next_step(reducer, b);
    return step_a != step_b ? step_a < step_b : a->priority < b->priority;
}

/* Return the index in set->bucket of that bucket of the reducer that comes first by precedes().
 * Only buckets count that have segments to start and for which all ranks are ready. Return
 * UINT32_MAX if there is none. */
static uint32_t first_agreed(const struct twill_reducer *reducer)
{
    const struct twill_bucket *bucket = reducer->set->bucket;
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; i < reducer->buckets; i++) {
        uint32_t b = reducer->order[i];
        if (has_segments(&bucket[b]) &&
            (first == UINT32_MAX || precedes(reducer, &bucket[b], &bucket[first])))
            first = b;
    }
    return first;
}

/* Read the complete exchange of which buckets are ready on all ranks, and count these as agreed.
 * Then start the next segment of the agreed bucket that comes first. If there is none, set when the
 * next exchange may begin. Returns TWILL_OK or the error. */
static twill_status end_exchange(struct twill_reducer *reducer)
{
    struct twill_gradients *set = reducer->set;
    bool any = false;
    TWILL_TRY(NULL, twill_set_check(set, reducer->order_comm, twill_wait(&reducer->exchange)));
    reducer->exchanging = false;
    for (uint32_t i = 0; i < reducer->buckets; i++) {
        uint32_t bit = (uint32_t)(reducer->agreed[i / 64] >> i % 64 & 1);
        set->bucket[reducer->order[i]].agreed += bit;
        any |= bit != 0;
    }
    atomic_fetch_add_explicit(&set->usage.agreements, 1, memory_order_relaxed);
    uint32_t first = first_agreed(reducer);
    reducer->exchange_from_ns =
        any || first != UINT32_MAX ? 0 : twill_now() + TWILL_REDUCER_AGAIN_NS;
    return first != UINT32_MAX ? twill_reducer_start(reducer, first) : TWILL_OK;
}

/* Begin the exchange of which buckets are ready on each rank, and set `exchanging`. Do nothing if
 * too many segments are under way. Also do nothing if no bucket is agreed on and this rank has none
 * ready or must still pause. Returns TWILL_OK or the error. */
static twill_status begin_exchange(struct twill_reducer *reducer)
{
    struct twill_gradients *set = reducer->set;
    if (reducer->flights >= TWILL_REDUCER_SEGMENTS)
        return TWILL_OK;
    bool any = false;
    memset(reducer->ready, 0, reducer->words * sizeof(*reducer->ready));
    for (uint32_t i = 0; i < reducer->buckets; i++)
        if (twill_bucket_is_ready(&set->bucket[reducer->order[i]])) {
            reducer->ready[i / 64] |= UINT64_C(1) << i % 64;
            any = true;
        }
    if (first_agreed(reducer) == UINT32_MAX) {
        if (!any || (reducer->exchange_from_ns != 0 && twill_now() < reducer->exchange_from_ns))
            return TWILL_OK;
    }
    reducer->exchange_from_ns = 0;
    TWILL_TRY(NULL,
              twill_set_check(set, reducer->order_comm, twill_request_start(reducer->exchange)));
    reducer->exchanging = true;
    return TWILL_OK;
}

twill_status twill_priority_advance(struct twill_reducer *reducer)
{
    for (;;) {
        if (reducer->exchanging) {
            if (!twill_extend_has_ended(reducer->exchange, NULL))
                return TWILL_OK;
            TWILL_TRY(NULL, end_exchange(reducer));
        }
        TWILL_TRY(NULL, begin_exchange(reducer));
        if (!reducer->exchanging)
            return TWILL_OK;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/trace.h"

const char *twill_trace_kind_name(unsigned kind)
{
    static const char *const names[] = {[TWILL_TRACE_NONE] = "?",
#define TWILL_TRACE_NAME(NOUN, name) [TWILL_TRACE_##NOUN] = #name,
                                        TWILL_TRACE_KINDS(TWILL_TRACE_NAME)};
    return kind < TWILL_TRACE_KIND_COUNT ? names[kind] : names[TWILL_TRACE_NONE];
}

/* Return the event that the words of a slot hold. Does the reverse of twill_trace_pack(). */
static struct twill_trace_event unpack_event(struct twill_trace_words words)
{
    return (struct twill_trace_event){
        .tick = words.tick,
        .bytes = words.bytes,
        .sequence = (uint32_t)words.of,
        .peer = (uint32_t)(words.of >> 32),
        .what = (uint32_t)words.tag & 0xffffffu,
        .detail = (uint16_t)(words.tag >> 32),
        .kind = (uint8_t)(words.tag >> 24),
    };
}

void twill_trace_consume(const struct twill_trace *trace, uint64_t tick, uint64_t bytes,
                         uint64_t of, uint64_t tag)
{
    struct twill_trace_event event = unpack_event((struct twill_trace_words){tick, bytes, of, tag});
    trace->consumer(trace->user, &event);
}

void twill_trace_emit_other(const struct twill_trace *trace, struct twill_trace_event event)
{
    struct twill_trace_ring *ring = trace->ring;
    uint64_t index = atomic_fetch_add_explicit(&ring->reserved, 1, memory_order_relaxed);
    struct twill_trace_slot *slot = &ring->other[index % TWILL_TRACE_OTHERS];
    if (atomic_exchange_explicit(&slot->tag, TWILL_TRACE_UNFINISHED, memory_order_acq_rel) !=
        TWILL_TRACE_UNFINISHED)
        twill_trace_store(slot, twill_trace_turn(index, TWILL_TRACE_OTHERS),
                          twill_trace_pack(event));
    if (trace->consumer != NULL)
        trace->consumer(trace->user, &event);
}

uint64_t twill_trace_written(const struct twill_trace_ring *ring, bool others, uint64_t *first)
{
    uint64_t written =
        atomic_load_explicit(others ? &ring->reserved : &ring->written, memory_order_acquire);
    uint64_t slots = others ? TWILL_TRACE_OTHERS : TWILL_TRACE_EVENTS;
    *first = written > slots ? written - slots : 0;
    return written;
}

bool twill_trace_read(const struct twill_trace_ring *ring, bool others, uint64_t index,
                      struct twill_trace_event *event)
{
    uint64_t slots = others ? TWILL_TRACE_OTHERS : TWILL_TRACE_EVENTS;
    const struct twill_trace_slot *slot = (others ? ring->other : ring->slot) + index % slots;
    struct twill_trace_words words = {.tag =
                                          atomic_load_explicit(&slot->tag, memory_order_acquire)};
    words.tick = atomic_load_explicit(&slot->tick, memory_order_acquire);
    words.bytes = atomic_load_explicit(&slot->bytes, memory_order_acquire);
    words.of = atomic_load_explicit(&slot->of, memory_order_acquire);
    *event = unpack_event(words);
    return (words.tag & ~UINT64_C(0xffffffffffff)) == twill_trace_turn(index, slots) &&
           atomic_load_explicit(&slot->tag, memory_order_acquire) == words.tag;
}

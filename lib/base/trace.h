/* SPDX-License-Identifier: Apache-2.0 */
/* The event ring, which has the last events of a rank on a communicator. It lies in the rank's node
 * memory. Peers and other processes of the host can read it while the rank hangs, and after its
 * death for as long as any process holds that memory.
 *
 * Calls, long waits, failures and events of the training layer are always recorded. Segments,
 * messages, reductions and short waits are recorded only while a timeline is open.
 *
 * The thread that holds the communicator writes `slot`, other threads `other`. A writer first marks
 * a slot as unfinished, so readers recognise one that changes or whose writer was killed. */
#ifndef TWILL_TRACE_H
#define TWILL_TRACE_H

#include "lib/base/base.h"

#include <stdatomic.h>

#define TWILL_TRACE_EVENTS  4096u /* slots of the thread that holds the communicator */
#define TWILL_TRACE_OTHERS  1024u /* slots of other threads */
#define TWILL_TRACE_NO_PEER UINT32_MAX

/* X(NOUN, name). These are the members that each kind of event uses besides its tick. Unless stated
 * otherwise `peer` is a rank of the communicator and `detail` is 0.
 *   CALL_BEGIN, CALL_END       of a collective: sequence, bytes, what; END: detail is -status
 *   POINT_BEGIN, POINT_END     of a message: peer, bytes, detail (1 send, 2 receive, 3 both, with
 *                              peer and bytes of the send). END has a tick only in a timeline
 *   WAIT_BEGIN, WAIT_END       peer is the first awaited rank; the bytes of BEGIN are nanoseconds
 *   FAILURE                    peer is the rank that reported it first, detail is -status
 *   SEGMENT_*                  sequence, bytes of the segment in a shard, peer has an epoch's bits
 *   SEND_*, RECV_*             a message is posted, and found complete: peer, bytes, detail (lane)
 *   REDUCE_*                   bytes of the result
 *   TENSOR_READY               peer is the index of the tensor, bytes
 *   BUCKET_*, FUSE_*, UPDATE_* peer is the index of the bucket, bytes
 *   STEP_END                   peer is the number of the step, bytes are ns exposed so far */
#define TWILL_TRACE_KINDS(X)                                                                       \
    X(CALL_BEGIN, call_begin)                                                                      \
    X(CALL_END, call_end)                                                                          \
    X(POINT_BEGIN, point_begin)                                                                    \
    X(POINT_END, point_end)                                                                        \
    X(WAIT_BEGIN, wait_begin)                                                                      \
    X(WAIT_END, wait_end)                                                                          \
    X(FAILURE, failure)                                                                            \
    X(SEGMENT_BEGIN, segment_begin)                                                                \
    X(SEGMENT_END, segment_end)                                                                    \
    X(SEND_BEGIN, send_begin)                                                                      \
    X(SEND_END, send_end)                                                                          \
    X(RECV_BEGIN, recv_begin)                                                                      \
    X(RECV_END, recv_end)                                                                          \
    X(REDUCE_BEGIN, reduce_begin)                                                                  \
    X(REDUCE_END, reduce_end)                                                                      \
    X(TENSOR_READY, tensor_ready)                                                                  \
    X(BUCKET_BEGIN, bucket_begin)                                                                  \
    X(BUCKET_END, bucket_end)                                                                      \
    X(FUSE_IN_BEGIN, fuse_in_begin)                                                                \
    X(FUSE_IN_END, fuse_in_end)                                                                    \
    X(FUSE_OUT_BEGIN, fuse_out_begin)                                                              \
    X(FUSE_OUT_END, fuse_out_end)                                                                  \
    X(UPDATE_BEGIN, update_begin)                                                                  \
    X(UPDATE_END, update_end)                                                                      \
    X(STEP_END, step_end)

enum twill_trace_kind {
    TWILL_TRACE_NONE,
#define TWILL_TRACE_ENUMERATOR(NOUN, name) TWILL_TRACE_##NOUN,
    TWILL_TRACE_KINDS(TWILL_TRACE_ENUMERATOR) TWILL_TRACE_KIND_COUNT
};

/* Return the kind's name, such as "call_begin", or "?" for an unknown kind. */
const char *twill_trace_kind_name(unsigned kind);

/* An event as writers pass it and readers get it. */
struct twill_trace_event {
    uint64_t tick;     /* twill_ticks(), or 0 if the clock was not read */
    uint64_t bytes;    /* see the kind */
    uint32_t sequence; /* low bits of the call's number in its communicator */
    uint32_t peer;     /* see the kind, or TWILL_TRACE_NO_PEER */
    uint32_t what;     /* twill_call_what(), i.e. collective, type and operation (24 bits) */
    uint16_t detail;   /* see the kind */
    uint8_t kind;      /* enum twill_trace_kind */
};

/* An event in the ring's shared memory, 32 bytes. Its writer stores the complete tag last. */
struct twill_trace_slot {
    _Atomic uint64_t tick, bytes;
    _Atomic uint64_t of;  /* sequence, peer */
    _Atomic uint64_t tag; /* what, kind, detail, turn; written last, 0 or UNFINISHED before */
};
_Static_assert(sizeof(struct twill_trace_slot) == 32, "two events a cache line");
#define TWILL_TRACE_UNFINISHED UINT64_C(1) /* the tag of a slot while it is written */

/* The last events of a rank on one communicator, in its part of the node's shared memory, where all
 * ranks of the node may read them. slot[] has the events of the communicator's holder, and other[]
 * those of other threads. Event i is in element i modulo the array's length. */
struct twill_trace_ring {
    _Atomic uint64_t written TWILL_ALIGNED(64);  /* number of events ever written to slot[] */
    _Atomic uint64_t reserved TWILL_ALIGNED(64); /* the same for other[], with unfinished ones */
    struct twill_trace_slot slot[TWILL_TRACE_EVENTS] TWILL_ALIGNED(64);
    struct twill_trace_slot other[TWILL_TRACE_OTHERS];
};

/* Take an event as it is recorded, in the recording thread, inside a call. It must be quick and
 * not call twill. Events of the holder come one at a time, those of other threads at any time. */
typedef void (*twill_trace_consumer)(void *user, const struct twill_trace_event *event);

/* The tracing of a communicator, of which this is a member. */
struct twill_trace {
    struct twill_trace_ring *ring; /* NULL until the node memory is shared */
    twill_trace_consumer consumer; /* set before the first call, or NULL if no timeline is open */
    void *user;                    /* passed to the consumer */
};

/* An event as the words of a slot. */
struct twill_trace_words {
    uint64_t tick, bytes, of, tag; /* the tag lacks the turn */
};
/* Return the words of a slot for an event. Only the lower 24 bits of `what` are kept. */
static inline struct twill_trace_words twill_trace_pack(struct twill_trace_event event)
{
    return (struct twill_trace_words){
        .tick = event.tick,
        .bytes = event.bytes,
        .of = event.sequence | (uint64_t)event.peer << 32,
        .tag = (event.what & 0xffffffu) | (uint64_t)event.kind << 24 | (uint64_t)event.detail << 32,
    };
}

/* Return the part of a slot's tag that shows that event number `index` is complete in it. It is a
 * value to add to the tag by OR, with only bits 48 to 63 used. Bit 63 is set. The bits below it say
 * how often a ring of `slots` slots was full before that event. */
static inline uint64_t twill_trace_turn(uint64_t index, uint64_t slots)
{
    return (index / slots & 0x7fff) << 48 | UINT64_C(1) << 63;
}

/* Write a slot by release stores, free on x86. Its tag says unfinished first, complete last. */
static inline void twill_trace_store(struct twill_trace_slot *slot, uint64_t turn,
                                     struct twill_trace_words words)
{
    atomic_store_explicit(&slot->tag, TWILL_TRACE_UNFINISHED, memory_order_relaxed);
    atomic_store_explicit(&slot->tick, words.tick, memory_order_release);
    atomic_store_explicit(&slot->bytes, words.bytes, memory_order_release);
    atomic_store_explicit(&slot->of, words.of, memory_order_release);
    atomic_store_explicit(&slot->tag, words.tag | turn, memory_order_release);
}

/* Pass an event to the consumer. The arguments are its four words as twill_trace_pack() makes them,
 * of which `of` contains the sequence and the peer. The function is out of line, so that events
 * stay in registers. */
void twill_trace_consume(const struct twill_trace *trace, uint64_t tick, uint64_t bytes,
                         uint64_t of, uint64_t tag);

/* Record an event of the thread that holds the communicator in slot[], and pass it to the consumer,
 * if there is one. Fetches the cache line of a later slot, so that stores to it do not delay those
 * that other ranks wait for. */
static inline void twill_trace_emit(const struct twill_trace *trace, struct twill_trace_event event)
{
    struct twill_trace_ring *ring = trace->ring;
    struct twill_trace_words words = twill_trace_pack(event);
    uint64_t index = atomic_load_explicit(&ring->written, memory_order_relaxed);
    twill_trace_store(&ring->slot[index % TWILL_TRACE_EVENTS],
                      twill_trace_turn(index, TWILL_TRACE_EVENTS), words);
    atomic_store_explicit(&ring->written, index + 1, memory_order_release);
    __builtin_prefetch(&ring->slot[(index + 2) % TWILL_TRACE_EVENTS], 1);
    if (TWILL_UNLIKELY(trace->consumer != NULL))
        twill_trace_consume(trace, words.tick, words.bytes, words.of, words.tag);
}

/* Return whether a timeline is open, so that details are recorded. */
static inline bool twill_trace_is_detailed(const struct twill_trace *trace)
{
    return TWILL_UNLIKELY(trace->consumer != NULL);
}

/* Record an event from any thread, outside calls on the communicator, in other[], and pass it to
 * the consumer, if there is one. It is not recorded if another thread has not finished the same
 * slot since a whole turn of the ring ago. */
void twill_trace_emit_other(const struct twill_trace *trace, struct twill_trace_event event);

/* Read event number `index`, from 0, of other threads if `others`, else of the holder, into *event.
 * Any process that maps the ring may call it. Returns false if it is overwritten or unfinished. */
bool twill_trace_read(const struct twill_trace_ring *ring, bool others, uint64_t index,
                      struct twill_trace_event *event);
/* Return how many events were ever written to the ring by threads other than the holder if
 * `others`, or else by the holder. Set *first to the number, from 0, of the oldest that may still
 * be in the ring. */
uint64_t twill_trace_written(const struct twill_trace_ring *ring, bool others, uint64_t *first);

#endif

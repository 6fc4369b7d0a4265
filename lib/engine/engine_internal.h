/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that only the files of lib/engine use. */
#ifndef TWILL_ENGINE_INTERNAL_H
#define TWILL_ENGINE_INTERNAL_H

#include "lib/engine/engine.h"
#include "lib/engine/plan.h"

/* --- lib/engine/request_queue.c --- */
/* Prepare zeroed memory as a request of an engine. Returns TWILL_OK or TWILL_ERR_MEMORY. */
twill_status twill_request_open(struct twill_request *request, struct twill_engine *engine);
/* Free all requests of an engine, none of which is under way, and the memory of its slots. The
 * slabs go back to the context's pool. */
void twill_requests_destroy(struct twill_engine *engine);
/* Append a checked collective to the queue as active. If alone there, publish it to the node. */
void twill_request_enqueue(struct twill_request *request);
/* Raise issue.arrived to the last instance that all ranks of the node have begun, by what they have
 * published. Returns whether that is `epoch` or a later one. */
bool twill_engine_poll_arrivals(struct twill_engine *engine, uint64_t epoch);
/* Return whether all ranks of the node have begun instance `epoch`. Looks only if not known yet. */
static inline bool twill_engine_has_arrived(struct twill_engine *engine, uint64_t epoch)
{
    return TWILL_LIKELY(engine->issue.arrived >= epoch) ||
           twill_engine_poll_arrivals(engine, epoch);
}
/* lib/engine/trace_calls.c. Log the end of a request. Call it only if engine->traced. */
void twill_log_end(const struct twill_request *request, twill_status status);

/* lib/engine/request_queue.c. Complete a collective that has ended and was never in the queue. */
void twill_request_end(struct twill_request *request);

/* --- lib/engine/buffer_addresses.c --- */
/* Publish where this rank's buffers are, if the call that begins repeats one that exchanged
 * addresses, and the line for that is free. The queue is empty. */
void twill_addresses_begin(struct twill_request *run);
/* Without waiting, publish where this rank's buffers are, once, and collect where those of the
 * ranks of the node are. Returns 1 once the exchange is over, 0 before, or an error below 0. It is
 * over at once if this rank's buffers allow no access. */
int twill_addresses_exchange(struct twill_request *run);
/* Set exchange.allowed as an exchange would if the buffers of all ranks were in their heaps
 * (`in_heap`), or in none. Exchanges nothing. */
void twill_addresses_assume(struct twill_request *run, bool in_heap);
/* Store in ranks[] up to `most` ranks of the node whose addresses are missing. Returns how many it
 * stored, 0 if no exchange is under way. */
unsigned twill_addresses_missing(const struct twill_request *run, uint32_t *ranks, unsigned most);

/* --- lib/engine/choose_plan.c --- */
/* Copy the counts of all shards of SRC, and the shards that have room, to the slots. */
void twill_slots_pack(const struct twill_slots *slots);
/* Copy the shards that the carrier has brought to DST. Returns TWILL_OK, or TWILL_ERR_MISMATCH if a
 * rank sends another count than this one expects. */
twill_status twill_slots_unpack(const struct twill_slots *slots);

/* --- lib/engine/engine.c --- */
/* Look for a NaN or infinity in `count` elements of each of these operands, and notify
 * run->buffers.watch. source[i] lies in SRC of rank input_of[i], or is not searched if input_of[i]
 * is UINT32_MAX. Returns TWILL_OK or the error of the watch. */
twill_status twill_run_search(struct twill_request *run, const void *const *source,
                              const uint32_t *input_of, unsigned sources, size_t count);

/* --- lib/engine/plan.c --- */
/* Store in *plan the engine's plan for a choice, made if needed. Returns TWILL_OK or the error. */
twill_status twill_plan_get(struct twill_engine *engine, const struct twill_choice *choice,
                            struct twill_plan **plan);
/* Set *plan to what a plan for a choice would be. It is not kept, and connects to no peer. The
 * caller destroys plan->schedule, also after an error. Returns TWILL_OK or the error. */
twill_status twill_plan_sketch(struct twill_plan *plan, struct twill_engine *engine,
                               const struct twill_choice *choice);
/* Free all plans of an engine. */
void twill_plans_destroy(struct twill_engine *engine);

/* --- lib/engine/staging.c: how data is copied into SHARED --- */

#define TWILL_STAGING_GROUP    16u   /* segments in a group */
#define TWILL_STAGING_MEASURED 4u    /* segments measured at the end of a group */
#define TWILL_STAGING_GROUPS   6u    /* groups in a trial */
#define TWILL_STAGING_PERIOD   8192u /* segments between two trials, 1 GiB of two ranks */
/* Return whether the engine tries both cached and streamed stores into SHARED to find the faster
 * ones. `elements` is the number of elements that a segment has of each shard. It tries both if
 * data goes through SHARED unreduced, all shards have the same length, and a segment has at least
 * 16 KiB. */
bool twill_staging_applies(const struct twill_request *run, size_t elements);
/* Decide how a segment that begins is copied into SHARED, and count it if the way matters
 * (twill_staging_applies()). Sets instance->streams to whether stores bypass the caches,
 * is_measured to whether the copy is timed for a trial, and `staging` to its kind. The way is that
 * of TWILL_TUNE=staging or, by default, the faster one of the last trial. */
void twill_staging_begin(struct twill_request *run, struct twill_instance *instance);
/* Add `ticks`, spent copying data of a segment with is_measured set, to the sum in the engine's
 * struct twill_staging. twill_staging_end() compares these sums. */
void twill_staging_add(struct twill_request *run, const struct twill_instance *instance,
                       uint64_t ticks);
/* Record that a segment with is_measured set has ended. After the last one of a group of segments,
 * publish to the node's ranks the least costs of cached and of streamed stores in this trial so
 * far. Once both are known, also keep them in the context. */
void twill_staging_end(struct twill_request *run, const struct twill_instance *instance);
/* Return whether streamed stores, which bypass the caches, take over 1/16 less time than cached
 * ones. A way of storing costs what the slowest rank of the node has published for it. Returns
 * false if no costs are published. */
bool twill_staging_decide(const struct twill_engine *engine, enum twill_staging_kind kind);

/* --- lib/engine/staging.c: reads of peers' memory by system calls, instead of SHARED --- */

/* Set exchange.fetch.trial to the trial of calls like this one, which has its exchange.access, and
 * the rest of exchange.fetch to 0. Returns TWILL_OK or TWILL_ERR_MEMORY. */
twill_status twill_fetch_find(struct twill_request *run);
/* Return the bytes of an engine's trials, 0 if it has none yet. */
size_t twill_fetch_bytes(const struct twill_engine *engine);
/* Set cost[] to the costs that this rank has measured for calls like this one, or to 0. */
void twill_fetch_costs(const struct twill_request *run, uint32_t cost[2]);
/* Memory of this rank that system calls could read, so that it need not be tried again. */
struct twill_readable {
    const void *memory; /* or NULL */
    size_t bytes;
};
/* Return where to note that about `memory`, and where it is noted if it was the last one there. */
struct twill_readable *twill_fetch_readable(const struct twill_request *run, const void *memory);
/* Before the addresses of a call are published, count it, if trials apply to it. Returns the access
 * to exchange for, which is exchange.access or that without FETCHED. A persistent request, whose
 * calls keep its plan, is neither counted nor measured. */
unsigned twill_fetch_begin(struct twill_request *run);
/* Once all addresses are collected, set exchange.fetch.pays and is_measured. */
void twill_fetch_choose(struct twill_request *run);
/* Record the cost of a call that was measured and has ended. */
void twill_fetch_end(struct twill_request *run);

/* --- lib/engine/layout.c: where everything lies --- */
/* Set layout.segments and segment_length, which is SIZE_MAX if no rank knows the largest shard, of
 * a call that has its plan. Returns TWILL_OK or the error. */
twill_status twill_run_find_segments(struct twill_request *run);
/* Set run->layout and run->fast_path of a call that has its plan. Returns TWILL_OK or the error. */
twill_status twill_run_lay_out(struct twill_request *run);
/* Set layout.store_flags. Stores bypass the caches if the message is large (TWILL_TUNE=stream),
 * unless a reduction is in place. */
void twill_run_choose_stores(struct twill_request *run);
/* Consecutive elements in memory, as twill_run_locate() returns them. */
struct twill_elements {
    unsigned char *start;
    size_t count; /* elements, of which the caller knows the width */
};
/* The part of a step's operand that twill_run_locate() locates, `blocks` blocks from the operand's
 * block `at` on. It is a local variable of the caller. */
struct twill_operand_place {
    twill_operand operand;
    uint32_t at, blocks;
    uint32_t peer; /* rank that has it, if the operand has the PEER bit */
    uint8_t lane;  /* of the step, which selects the place of an operand in IMM */
    bool partial;  /* the blocks contain partial results, not elements */
};
/* Return whether a rank has the buffer that `holder` describes: always, or only as the root. */
static inline bool twill_run_holds(const struct twill_request *run, enum twill_holder holder,
                                   uint32_t rank)
{
    return holder == TWILL_HOLDS_ALL || holder == TWILL_HOLDS_OWN ||
           (holder == TWILL_HOLDS_ROOT && rank == run->call.root);
}
/* Return the address of local rank l's SHARED of a run in instance `epoch`. */
unsigned char *twill_run_shared(const struct twill_request *run, uint32_t l, uint64_t epoch);
/* Return whether the only SIGNAL of each rank is an immediate, without data if SHARED is small. */
static inline bool twill_run_signals_by_imm(const struct twill_request *run)
{
    return run->layout.place != TWILL_SHARED_LARGE && run->plan->signals_once;
}
/* Return where these blocks are, and the number of their elements, which for IMM is always 0. They
 * must be adjacent (twill_run_together()). SRC and DST of a peer whose memory is fetched give an
 * address in that peer's process. */
struct twill_elements twill_run_locate(const struct twill_request *run,
                                       const struct twill_instance *instance,
                                       const struct twill_operand_place *where);
/* Return where the blocks are of an operand in SRC or DST of any rank of the node, if `dst` is
 * where the same blocks are in DST of this rank. For a run with layout.parallel. */
unsigned char *twill_run_beside(const struct twill_request *run,
                                const struct twill_instance *instance, twill_operand operand,
                                uint32_t peer, const unsigned char *dst);
/* Return whether twill_run_beside() finds an operand, whose blocks are elements unless `partial`,
 * beside the operand `dst`. */
static inline bool twill_run_is_beside(const struct twill_request *run, twill_operand operand,
                                       twill_operand dst, bool partial)
{
    return run->layout.parallel && !partial && twill_operand_space(dst) == TWILL_DST &&
           !twill_operand_is_peer(dst) && twill_operand_space(operand) <= TWILL_DST &&
           twill_operand_block(operand) == twill_operand_block(dst);
}
/* Return how many of an operand's `blocks` blocks, from block `at` on, are adjacent in memory. */
static inline uint32_t twill_run_together(const struct twill_request *run, twill_operand operand,
                                          uint32_t at, uint32_t blocks)
{
    uint32_t left = blocks - at;
    if (TWILL_LIKELY(run->layout.joined == TWILL_JOINED))
        return left;
    unsigned space = twill_operand_space(operand);
    if (run->layout.joined == TWILL_JOINED_IN_SCRATCH &&
        (space > TWILL_DST || run->buffers.side[space].bounced))
        return left;
    uint32_t whole =
        run->layout.shard_blocks - (twill_operand_block(operand) + at) % run->layout.shard_blocks;
    return left < whole ? left : whole;
}
/* Return the bytes of a slot in which a carrier moves short shards of this run, or 0. */
static inline size_t twill_run_slot(const struct twill_request *run)
{
    const struct twill_slots *slots = run->buffers.slots;
    if (TWILL_LIKELY(!run->call.vector) || slots == NULL)
        return 0;
    return slots->carried == run ? slots->bytes : 0;
}
/* Return whether a carrier moves a shard of `count` elements of the run. */
static inline bool twill_run_carries(const struct twill_request *run, size_t count)
{
    size_t slot = twill_run_slot(run);
    return slot > 0 && count <= (slot - TWILL_SLOT_HEADER) / run->layout.element;
}
/* Return the elements between the starts of two shards in TMP, SHARED or a bounced side. */
static inline size_t twill_run_stride(const struct twill_request *run,
                                      const struct twill_instance *instance)
{
    return run->call.vector ? run->layout.segment_length : instance->length;
}
/* Return the bytes of a partial result, or of an element. */
static inline size_t twill_run_width(const struct twill_request *run, bool partial)
{
    return partial ? run->layout.partial : run->layout.element;
}

/* --- lib/engine/executor.c --- */
/* Signal to the other ranks of the node by an immediate, in a run that does, and wake them. */
void twill_run_signal_by_imm(const struct twill_request *run, uint64_t epoch);
/* Begin the next segment as instance `epoch` in its free slot, and publish that to the ranks of the
 * node. Returns TWILL_OK or the error, after which nothing has begun. */
twill_status twill_run_begin_segment(struct twill_request *run, struct twill_slot *slot,
                                     uint64_t epoch);
/* Issue the steps of each lane up to its first AWAIT or WAIT, even if that could already pass. Only
 * for an instance whose plan has no messages. A step that fails is left to twill_run_advance(),
 * which issues it again and reports the error. */
void twill_run_advance_ready(struct twill_slot *slot);
/* Make the copies of the fast path, or the reduction of which they are the sources, in instance
 * `epoch`. */
void twill_run_make_copies(const struct twill_request *run, uint64_t epoch);
/* If a run has fast_path.at_once and all that its steps await has arrived, execute those that
 * post_stores() has not done, as instance `epoch` in its free slot, and return true. Else return
 * false. The steps may then be issued again. */
bool twill_run_at_once(struct twill_request *run, struct twill_slot *slot, uint64_t epoch);
/* Issue all steps that do not block. When the last lane ends, end the instance and free its slot.
 * Returns a number above 0 if a step was issued or a lane has ended, 0 if all are blocked, or an
 * error below 0. */
int twill_run_advance(struct twill_slot *slot);
/* Store in ranks[] up to `most` ranks that the slot's instance waits for, and "signal" or "message"
 * in *step, which stays if there are none. Returns how many were stored, 0 if the slot is free. */
unsigned twill_run_waits_for(const struct twill_slot *slot, uint32_t *ranks, unsigned most,
                             const char **step);
/* Return whether this rank and a peer on its node have both published their call of this run's
 * number or a later one. A rank publishes a call after its first stores, once its earlier calls
 * have ended. */
bool twill_run_is_written_down(const struct twill_request *run, uint32_t peer);
/* Handle a peer on this node with another signature. Returns the error, below 0, that says how its
 * call differs. `is_known` is what twill_run_is_written_down() returned before the signature was
 * read. Only if it is false may the result be 0, which means that no difference is known yet. */
int twill_run_differs(struct twill_request *run, uint32_t peer, bool is_known);

/* lib/engine/fast_path.c. Set run->fast_path of a run that is laid out. Its kind may be NONE. */
void twill_run_find_fast_path(struct twill_request *run);
/* --- lib/engine/compute.c: the steps that compute --- */
/* Execute a REDUCE and, in the same pass, the COPYs of its result that follow it before `end`. Sets
 * *copies to the number of COPYs done. Returns TWILL_OK, or the error of a fetch. */
twill_status twill_run_reduce_and_copy(struct twill_request *run,
                                       const struct twill_instance *instance,
                                       const struct twill_step *step, const struct twill_step *end,
                                       uint32_t *copies);
/* Execute a COPY. Returns TWILL_OK, or the error if a peer's memory cannot be fetched. */
twill_status twill_run_copy(struct twill_request *run, const struct twill_instance *instance,
                            const struct twill_step *step);
/* Reduce a chunk of a RECV_REDUCE message with this rank's operand into the step's destination. The
 * chunk has `bytes` bytes and begins at byte `offset` of the message. Transports and the executor
 * call this. */
void twill_run_reduce(struct twill_transfer *request, size_t offset, const void *data,
                      size_t bytes);

/* --- lib/engine/buffer_addresses.c: buffers in peers' processes --- */
/* Bytes that a thread fetches at a time, for a reduction of each remote operand, and the most
 * threads that do so together. */
#define TWILL_FETCH_CHUNK   ((size_t)128 << 10)
#define TWILL_FETCH_THREADS 16u
/* Return the bytes that a reduction fetches of each remote operand at a time. */
size_t twill_engine_fetch_bytes(const struct twill_engine *engine);
/* Make the peers' buffers accessible, once the addresses are collected and the plan is selected.
 * Does nothing if no addresses were exchanged or the plan does not use them. Returns TWILL_OK, or
 * the error if a buffer cannot be attached. */
twill_status twill_run_attach_peers(struct twill_request *run);
/* Copy `bytes` bytes from `from` in a peer's process to `to`. Returns 0 or an errno. Several
 * threads may call it. */
int twill_run_try_fetch(const struct twill_request *run, uint32_t peer, void *to, const void *from,
                        size_t bytes);
/* Count bytes that were copied in this way. Returns TWILL_OK, or the error if `cause`, an errno, is
 * not 0. */
twill_status twill_run_end_fetch(struct twill_request *run, uint32_t peer, const void *from,
                                 size_t bytes, int cause);
/* Return whether an operand must be fetched from a peer's process. */
static inline bool twill_run_fetches(const struct twill_request *run, twill_operand operand)
{
    return TWILL_UNLIKELY(run->plan->fetches) && twill_operand_is_peer(operand) &&
           twill_operand_space(operand) <= TWILL_DST;
}
/* Copy a segment of SRC into scratch, scaled if the operation scales. twill_run_bounce_out() copies
 * a segment of DST out of scratch, rounded if the type is a narrow float. */
void twill_run_bounce_in(struct twill_request *run, const struct twill_instance *instance);
void twill_run_bounce_out(struct twill_request *run, const struct twill_instance *instance);

#endif

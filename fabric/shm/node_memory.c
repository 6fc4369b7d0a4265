/* SPDX-License-Identifier: Apache-2.0 */
/* The node memory, one region per rank, and sleeping on a doorbell. All ranks of the node map the
 * area, the copies of SHARED, those of small and of medium SHARED, and the events. Behind these are
 * the channels to each other rank. Only the two map them, so memory grows with the ranks, not their
 * square. A communicator made out of another has the same in a part of each rank's room
 * (node_room.h). That is mapped already, channels included, and exists once it is touched. */
#include "fabric/shm/node_memory.h"
#include "fabric/shm/mapping.h"
#include "fabric/shm/node_room.h"
#include "fabric/shm/shared_region_state.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Return a number of bytes, rounded up to whole pages. */
static size_t page_round(size_t bytes)
{
    return twill_round_up(bytes, (size_t)sysconf(_SC_PAGESIZE));
}

/* Return the bytes of all copies of small SHARED of one rank, in whole pages. */
static size_t small_bytes(void)
{
    return page_round(TWILL_SMALLS * (TWILL_SMALL_BYTES + TWILL_CACHE_LINE));
}

/* Return the bytes of all copies of medium SHARED of one rank, in whole pages. */
static size_t medium_bytes(void)
{
    return page_round(TWILL_MEDIUMS * (TWILL_MEDIUM_BYTES + TWILL_CACHE_LINE));
}

/* Return this build's layout of a region for these sizes. */
static struct twill_layout_line layout_of(size_t shared_bytes, size_t pair_bytes)
{
    return (struct twill_layout_line){.magic = TWILL_NODE_MAGIC,
                                      .area_bytes = page_round(sizeof(struct twill_node_area)),
                                      .shared_bytes = shared_bytes,
                                      .pair_bytes = pair_bytes};
}

/* Return the offset of the memory for events in a region. */
static size_t trace_offset(const struct twill_layout_line *layout)
{
    return layout->area_bytes + page_round(TWILL_COPIES * layout->shared_bytes) + small_bytes() +
           medium_bytes();
}

/* Return whether two layouts are equal in all members. */
static bool same_layout(const struct twill_layout_line *a, const struct twill_layout_line *b)
{
    return a->magic == b->magic && a->area_bytes == b->area_bytes &&
           a->shared_bytes == b->shared_bytes && a->pair_bytes == b->pair_bytes &&
           a->room_at == b->room_at && a->room_bytes == b->room_bytes;
}

/* Fail with TWILL_ERR_MISMATCH, on all ranks alike, if the layouts of ranks of one label differ. */
static twill_status check_layouts(const struct twill_node *node, const struct twill_oob *oob,
                                  const uint32_t *label, struct twill_error *error)
{
    for (uint32_t rank = 1; rank < (uint32_t)oob->size; rank++) {
        /* Comparing with the nearest lower rank of its label is enough, by transitivity. */
        uint32_t other = rank;
        while (other-- > 0 && label[other] != label[rank])
            ;
        if (other != UINT32_MAX && !same_layout(&node->layout[rank], &node->layout[other]))
            return TWILL_FAIL(error, TWILL_ERR_MISMATCH,
                              "%s and %s of one node lay out shared memory differently: do they "
                              "run the same build of twill, with the same settings?",
                              TWILL_RANK_NAME(oob->job, other), TWILL_RANK_NAME(oob->job, rank));
    }
    return TWILL_OK;
}

/* Allocate the arrays by local rank, of node->size. Returns whether there was memory. */
static bool make_arrays(struct twill_node *node)
{
    node->alternate = node->size == 2;
    node->area = calloc(node->size, sizeof(*node->area));
    node->shared = calloc(node->size, sizeof(*node->shared));
    node->small = calloc(node->size, sizeof(*node->small));
    node->sends = calloc(node->size, sizeof(*node->sends));
    node->receives = calloc(node->size, sizeof(*node->receives));
    node->rank = calloc(node->size, sizeof(*node->rank));
    node->in_region = calloc(node->size, sizeof(*node->in_region));
    node->place = calloc(node->size, sizeof(*node->place));
    return node->area != NULL && node->shared != NULL && node->small != NULL &&
           node->sends != NULL && node->receives != NULL && node->rank != NULL &&
           node->in_region != NULL && node->place != NULL;
}

/* Set where the memory of local rank l is, whose area is `at`. */
static void place_member(struct twill_node *node, uint32_t l, unsigned char *at,
                         const struct twill_layout_line *layout)
{
    node->area[l] = (struct twill_node_area *)(void *)at;
    node->shared[l] = at + layout->area_bytes;
    node->small[l] = node->shared[l] + page_round(TWILL_COPIES * layout->shared_bytes);
    node->medium_at = small_bytes();
}

/* Find this node's ranks and fill the arrays by local rank. Fails only with TWILL_ERR_MEMORY. */
static twill_status find_members(struct twill_node *node, const struct twill_oob *oob,
                                 const struct twill_layout_line *layout, struct twill_error *error)
{
    uint32_t size = (uint32_t)oob->size, l = 0;
    for (uint32_t r = 0; r < size; r++)
        node->size += twill_shm_region_at(node->region, r) != NULL;
    if (!make_arrays(node))
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "%s: no memory for a node of %u ranks",
                          TWILL_RANK_NAME(oob->job, oob->rank), node->size);
    for (uint32_t r = 0; r < size; r++) {
        unsigned char *at = twill_shm_region_at(node->region, r);
        if (at == NULL)
            continue;
        place_member(node, l, at, layout);
        node->rank[l] = node->in_region[l] = r;
        if (r == (uint32_t)oob->rank) {
            node->me = l;
        } else {
            node->sends[l] = twill_shm_region_pair(node->region, (uint32_t)oob->rank, r);
            node->receives[l] = twill_shm_region_pair(node->region, r, (uint32_t)oob->rank);
        }
        l++;
    }
    return TWILL_OK;
}

/* With up to this many ranks on a node, each populates the part of all others' memory that small
 * messages use, 65 pages per peer, so that first calls do not fault. With more ranks that would be
 * many pages that a rank may never read. When it does, it faults once for 16 pages. */
#define POPULATED_RANKS 32u

/* Publish a failure, as twill_node_abort() does, in this rank's area. */
static void fail_area(struct twill_node_area *own, twill_status status, uint32_t from,
                      uint64_t sequence, const char *message)
{
    struct twill_abort_line *line = &own->abort;
    line->status = status;
    line->from = from;
    line->sequence = sequence;
    snprintf(line->message, sizeof(line->message), "%s", message);
    atomic_store_explicit(&line->set, 1, memory_order_release);
}

/* Populate the part of the memory at `at` that small messages use. */
static void populate(void *at, const struct twill_layout_line *layout)
{
    size_t small = layout->area_bytes + page_round(TWILL_COPIES * layout->shared_bytes);
    twill_mapping_populate(at, layout->area_bytes);
    twill_mapping_populate((unsigned char *)at + small, small_bytes());
}

/* Populate an area of a part of a room, with its records and immediates. Copies of small SHARED are
 * more pages. They come one by one, as many communicators make few calls, or none of that size. */
static void populate_area(struct twill_node_area *area)
{
    twill_mapping_populate(area, page_round(sizeof(*area)));
}

twill_status twill_node_offer(struct twill_node **node, struct twill_oob *oob,
                              struct twill_oob_batch *batch, struct twill_error *error)
{
    struct twill_node *made = calloc(1, sizeof(*made));
    twill_status status =
        twill_shm_region_offer(made != NULL ? &made->region : NULL, oob, batch, error);
    size_t bytes = ((size_t)oob->size + 1) * sizeof(*made->layout);
    *node = made;
    if (made != NULL)
        made->layout = aligned_alloc(TWILL_CACHE_LINE, bytes);
    if (made == NULL || made->layout == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "%s: no memory for a node",
                          TWILL_RANK_NAME(oob->job, oob->rank));
    memset(made->layout, 0, bytes); /* padding is also sent */
    return status;
}

/* Return the bytes of a region that all ranks of the node map. */
static size_t common_bytes(const struct twill_layout_line *layout)
{
    return trace_offset(layout) + page_round(TWILL_NODE_TRACE_BYTES);
}

size_t twill_node_mapped_bytes(size_t shared_bytes, size_t pair_bytes, uint32_t ranks,
                               uint32_t threads)
{
    struct twill_layout_line layout = layout_of(shared_bytes, pair_bytes);
    size_t common = common_bytes(&layout);
    size_t own = common + ranks * pair_bytes, others = (ranks - threads) * (common + pair_bytes);
    return threads * (own + others) + 2 * TWILL_HUGE_PAGE; /* reserved while one is mapped */
}

void twill_node_reserve(struct twill_node *node, size_t bytes)
{
    node->room_bytes = bytes;
}

size_t twill_node_part_bytes(size_t shared_bytes, size_t pair_bytes, uint32_t ranks)
{
    struct twill_layout_line layout = layout_of(shared_bytes, pair_bytes);
    return common_bytes(&layout) + ranks * page_round(pair_bytes);
}

twill_status twill_node_share(struct twill_node **made, const struct twill_node *of, uint32_t size,
                              uint32_t me, size_t shared_bytes, struct twill_error *error)
{
    struct twill_node *node = calloc(1, sizeof(*node));
    struct twill_layout_line layout = layout_of(shared_bytes, of->pair_bytes);
    if (node != NULL) {
        *node = (struct twill_node){.me = me,
                                    .size = size,
                                    .shared_bytes = shared_bytes,
                                    .pair_bytes = of->pair_bytes,
                                    .trace_at = trace_offset(&layout)};
        node->placer = calloc(1, sizeof(*node->placer));
    }
    if (node == NULL || !make_arrays(node) || node->placer == NULL) {
        twill_node_close(node);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "no memory for a node of %u ranks", size);
    }
    *made = node;
    return TWILL_OK;
}

void twill_node_find(struct twill_node *node, const struct twill_node *of, uint32_t l,
                     uint32_t rank, uint32_t in_region, const struct twill_room_place *place)
{
    struct twill_layout_line layout = layout_of(node->shared_bytes, node->pair_bytes);
    size_t common = common_bytes(&layout), pair = page_round(node->pair_bytes);
    unsigned char *at = (unsigned char *)twill_shm_region_room(of->region, in_region) + place->at;
    node->region = of->region;
    node->room = of->room;
    node->rank[l] = rank;
    node->in_region[l] = in_region;
    node->place[l] = *place;
    place_member(node, l, at, &layout);
    node->receives[l] = at + common + node->me * pair;
    for (uint32_t other = 0; l == node->me && other < node->size; other++)
        node->sends[other] = at + common + other * pair;
}

void twill_node_refuse(const struct twill_node *of, const struct twill_room_place *place,
                       twill_status status, const char *message)
{
    unsigned char *room = twill_shm_region_room(of->region, of->in_region[of->me]);
    struct twill_node_area *own = (struct twill_node_area *)(void *)(room + place->at);
    fail_area(own, status, TWILL_NO_RANK, 0, message);
    twill_room_give(of->room, place, false);
}

void twill_node_use(struct twill_node *node, const struct twill_shm_region_placer *placer,
                    const struct twill_node_owner *owner)
{
    struct twill_node_area *own = node->area[node->me];
    struct twill_layout_line layout = layout_of(node->shared_bytes, node->pair_bytes);
    size_t bytes = twill_node_part_bytes(node->shared_bytes, node->pair_bytes, node->size);
    *node->placer = *placer;
    node->placed = placer->place(placer->user, own, bytes);
    populate_area(own);
    own->layout = layout;
    own->owner = *owner;
    twill_room_use(node);
    for (uint32_t l = 0; l < node->size; l++)
        if (node->size <= POPULATED_RANKS && twill_room_is_used(node, l) && l != node->me)
            populate_area(node->area[l]);
}

void twill_node_discard(const struct twill_node *node, void *at, size_t bytes)
{
    unsigned char *base = twill_shm_region_at(node->region, node->in_region[node->me]);
    size_t from = page_round((size_t)((unsigned char *)at - base)), page = page_round(1),
           end = ((size_t)((unsigned char *)at - base) + bytes) / page * page;
    if (from < end)
        (void)twill_shm_region_discard(node->region, from, end - from);
}

void twill_node_suspend(struct twill_node *node)
{
    struct twill_node_area *own = node->area[node->me];
    unsigned char *at = (unsigned char *)own;
    size_t imm = offsetof(struct twill_node_area, imm);
    size_t counts = page_round(1); /* of events, at their start, as they only grow */
    twill_node_discard(node, at + imm, node->trace_at - imm);
    twill_node_discard(node, at + node->trace_at + counts, TWILL_NODE_TRACE_BYTES - counts);
    atomic_store_explicit(&own->suspend.suspended, 1, memory_order_release);
}

void twill_node_resume(struct twill_node *node)
{
    struct twill_node_area *own = node->area[node->me];
    atomic_store_explicit(&own->suspend.suspended, 0, memory_order_release);
    populate_area(own);
    for (uint32_t l = 0; l < node->size && node->size <= POPULATED_RANKS; l++)
        if (l != node->me && !twill_node_is_suspended(node->area[l]))
            populate_area(node->area[l]);
}

size_t twill_node_resident(const struct twill_node *node, size_t *most)
{
    enum { AT_ONCE = 4096 };
    unsigned char exists[AT_ONCE], *at = (unsigned char *)node->area[node->me];
    size_t page = page_round(1), pages = 0;
    *most = twill_node_part_bytes(node->shared_bytes, node->pair_bytes, node->size);
    for (size_t from = 0; from < *most; from += AT_ONCE * page) {
        size_t bytes = twill_min(*most - from, AT_ONCE * page);
        for (size_t i = mincore(at + from, bytes, exists) == 0 ? bytes / page : 0; i-- > 0;)
            pages += exists[i] & 1;
    }
    return pages * page;
}

unsigned twill_node_descriptors(const struct twill_node *node)
{
    const struct twill_shm_region *region = node->region;
    bool lent = node->placer != NULL; /* by twill_node_share() */
    return lent ? 0 : (region->fd >= 0) + (region->next >= 0) + (region->life != NULL);
}

bool twill_node_owner_dead(const struct twill_node *node, uint32_t l)
{
    return (node->room != NULL && twill_room_has_left(node, l)) ||
           twill_shm_region_owner_dead(node->region, node->in_region[l]);
}

twill_status twill_node_attach(struct twill_node *node, const struct twill_oob *oob,
                               const uint32_t *label, size_t shared_bytes, size_t pair_bytes,
                               const struct twill_shm_region_placer *placer,
                               struct twill_oob_batch *batch, struct twill_error *error)
{
    struct twill_layout_line *layout = &node->layout[oob->size];
    twill_oob_batch_add(batch, layout, node->layout, sizeof(*layout));
    *layout = layout_of(twill_round_up(shared_bytes, TWILL_CACHE_LINE), pair_bytes);
    node->shared_bytes = layout->shared_bytes;
    node->pair_bytes = pair_bytes;
    node->trace_at = trace_offset(layout);
    twill_shm_region_reserve(node->region, node->room_bytes);
    TWILL_TRY(error, twill_shm_region_attach(
                         node->region, label, node->trace_at + page_round(TWILL_NODE_TRACE_BYTES),
                         pair_bytes, TWILL_MAPPING_COMM, NULL, placer, batch, error));
    layout->room_at = node->room_bytes > 0 ? twill_shm_region_bytes(node->region) : 0;
    layout->room_bytes = node->room_bytes;
    /* Own memory before that of others, as pages are placed where they are first touched. */
    unsigned char *own = twill_shm_region_at(node->region, (uint32_t)oob->rank);
    populate(own, layout);
    ((struct twill_node_area *)(void *)own)->layout = *layout;
    return TWILL_OK;
}

twill_status twill_node_conclude(struct twill_node *node, const struct twill_oob *oob,
                                 uint32_t *label, const char **why, struct twill_error *error)
{
    const struct twill_layout_line *layout = &node->layout[oob->size];
    TWILL_TRY(error, twill_shm_region_conclude(node->region, label, why, error));
    TWILL_TRY(error, check_layouts(node, oob, label, error));
    TWILL_TRY(error, find_members(node, oob, layout, error));
    for (uint32_t l = 0; l < node->size; l++) {
        if (l != node->me && node->size <= POPULATED_RANKS)
            populate(node->area[l], layout);
        if (!same_layout(&node->area[l]->layout, layout))
            return TWILL_FAIL(
                error, TWILL_ERR_INTERNAL, "%s cannot see what %s wrote to its shared memory",
                TWILL_RANK_NAME(oob->job, oob->rank), TWILL_RANK_NAME(oob->job, node->rank[l]));
    }
    free(node->layout);
    node->layout = NULL;
    if (node->room_bytes > 0)
        return twill_room_create(&node->room, node->region, (uint32_t)oob->rank,
                                 (uint32_t)oob->size, node->room_bytes, error);
    return TWILL_OK;
}

void twill_node_introduce(struct twill_node *node, const struct twill_oob *oob,
                          const struct twill_node_owner *owner)
{
    struct twill_node_area *own = twill_shm_region_at(node->region, (uint32_t)oob->rank);
    own->owner = *owner;
}

bool twill_node_find_trace(struct twill_node *node, const struct twill_layout_line *written,
                           size_t bytes)
{
    struct twill_layout_line layout = *written;
    size_t most = bytes / TWILL_COPIES; /* so that nothing below overflows */
    if (layout.magic != TWILL_NODE_MAGIC ||
        layout.area_bytes != page_round(sizeof(struct twill_node_area)) ||
        layout.shared_bytes > most || layout.pair_bytes > most)
        return false;
    node->trace_at = trace_offset(&layout);
    return bytes >= TWILL_NODE_TRACE_BYTES && node->trace_at <= bytes - TWILL_NODE_TRACE_BYTES;
}

void *twill_node_trace(const struct twill_node *node, uint32_t l)
{
    return (unsigned char *)node->area[l] + node->trace_at;
}

void twill_node_close(struct twill_node *node)
{
    if (node == NULL)
        return;
    if (node->placer != NULL && node->placer->unplace != NULL)
        node->placer->unplace(
            node->placer->user,
            twill_node_part_bytes(node->shared_bytes, node->pair_bytes, node->size), node->placed);
    if (node->room != NULL)
        twill_room_leave(node->room, node);
    else
        twill_shm_region_close(node->region);
    free(node->in_region);
    free(node->place);
    free(node->placer);
    free(node->area);
    free(node->shared);
    free(node->small);
    free(node->sends);
    free(node->receives);
    free(node->rank);
    free(node->layout);
    free(node);
}

/* The futexes of doorbells are not FUTEX_PRIVATE, as the waker may be another process. */
void twill_node_wake(struct twill_node *node, uint32_t l)
{
    struct twill_doorbell_line *doorbell = &node->area[l]->doorbell;
    if (atomic_exchange_explicit(&doorbell->sleeping, 0, memory_order_relaxed) == 0)
        return; /* another rank wakes it, or it is awake */
    atomic_fetch_add_explicit(&doorbell->rings, 1, memory_order_release);
    syscall(SYS_futex, &doorbell->rings, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t twill_node_sleep_begin(struct twill_node *node)
{
    struct twill_doorbell_line *doorbell = &node->area[node->me]->doorbell;
    uint32_t word = atomic_load_explicit(&doorbell->rings, memory_order_acquire);
    /* An atomic exchange is a full barrier: the poll that follows must not run before others can
     * see this. (The thread sanitizer does not know fences, which would be clearer.) */
    atomic_exchange_explicit(&doorbell->sleeping, 1, memory_order_seq_cst);
    return word;
}

void twill_node_sleep(struct twill_node *node, uint32_t word, uint64_t timeout_ns)
{
    struct twill_doorbell_line *doorbell = &node->area[node->me]->doorbell;
    struct timespec limit = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                             .tv_nsec = (long)(timeout_ns % 1000000000u)};
    /* The result does not matter (doorbell, signal, timeout), as the caller polls in any case. */
    syscall(SYS_futex, &doorbell->rings, FUTEX_WAIT, word, &limit, NULL, 0);
}

void twill_node_sleep_end(struct twill_node *node)
{
    atomic_store_explicit(&node->area[node->me]->doorbell.sleeping, 0, memory_order_relaxed);
}

void twill_node_abort(struct twill_node *node, twill_status status, uint32_t from,
                      uint64_t sequence, const char *message)
{
    struct twill_node_area *own = node->area[node->me];
    if (atomic_load_explicit(&own->abort.set, memory_order_relaxed) != 0)
        return;
    fail_area(own, status, from, sequence, message);
    twill_node_ring_doorbells(node);
}

/* The store is sequentially consistent, as is the load in twill_node_is_excluded(). If two ranks
 * shut out each other, at least one of them sees it before it continues. */
void twill_node_exclude(struct twill_node *node, uint32_t l)
{
    atomic_store(&node->area[l]->abort.excluded, 1);
}

bool twill_node_is_excluded(const struct twill_node *node, uint32_t l)
{
    return atomic_load(&node->area[l]->abort.excluded) != 0;
}

uint32_t twill_node_aborted(const struct twill_node *node, uint64_t sequence)
{
    for (uint32_t l = 0; l < node->size; l++) {
        const struct twill_abort_line *line = &node->area[l]->abort;
        if (atomic_load_explicit(&line->set, memory_order_acquire) != 0 &&
            line->sequence <= sequence)
            return l;
    }
    return UINT32_MAX;
}

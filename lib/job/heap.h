/* SPDX-License-Identifier: Apache-2.0 */
/* Heap of twill_alloc(). Each rank has one sparse region, which all ranks of its node map, so that
 * an allocation is made locally and is visible to the other ranks at once. A rank that is alone on
 * its node uses private memory. With TWILL_HEAP=shared malloc() is served from the same region. */
#ifndef TWILL_HEAP_H
#define TWILL_HEAP_H

#include "fabric/shm/shared_region.h"
#include "fabric/transport.h"
#include "numa/memory.h"

#include <stdatomic.h>

#define TWILL_HEAP_NOWHERE UINT64_MAX

struct twill_context;
struct twill_preload;
struct twill_preloaded;
struct twill_promotion; /* lib/job/promotion.c */
struct twill_extent;    /* lib/job/heap.c */

/* The heap of a context, whose lock protects it. */
struct twill_heap {
    struct twill_shm_region *region;     /* NULL if all memory is private */
    struct twill_memory *memory;         /* gives private memory and places pages of the region */
    const struct twill_preload *preload; /* manages the region; NULL if this heap does */
    unsigned char *base;                 /* start of the region */
    size_t bytes;                        /* of the region */
    size_t limit;   /* TWILL_TUNE=heap_limit: most bytes, private memory included. 0 if unlimited */
    size_t outside; /* bytes allocated by the malloc library or as private memory */
    unsigned char *chunk;         /* [each 2 MiB from base] an enum chunk_state */
    bool fenced;                  /* twill_heap_fence() has made the region private memory */
    struct twill_extent *extents; /* those outside the region first, then by address */
};

/* Initialise the heap. With a region it covers this rank's part. Without one it allocates private
 * memory, at most `limit` bytes, where 0 means no limit. Without a limit a full region also falls
 * back to private memory. `preload` is the malloc library that manages the region, or NULL. */
void twill_heap_init(struct twill_heap *heap, struct twill_shm_region *region, uint32_t rank,
                     struct twill_memory *memory, const struct twill_preload *preload,
                     size_t limit);
/* Free all allocations. The caller keeps the region and the twill_memory. */
void twill_heap_destroy(struct twill_heap *heap);
/* Allocate memory aligned to a cache line, or to TWILL_HUGE_PAGE if it is at least that large.
 * Returns TWILL_ERR_MEMORY if there is no room. A full region falls back to private memory only if
 * there is no limit. */
twill_status twill_heap_alloc(struct twill_heap *heap, void **pointer, size_t bytes,
                              struct twill_error *error);
/* Free an allocation. Returns TWILL_ERR_ARGUMENT if the heap has none at this address. */
twill_status twill_heap_free(struct twill_heap *heap, void *pointer, struct twill_error *error);
/* Find the allocation that contains these bytes, and add `change` to the number of its pins, with
 * which twill_free() refuses it. Returns that number, or -1 if no allocation contains them. */
int twill_heap_pin(struct twill_heap *heap, const void *pointer, size_t bytes, int change);
/* Replace the pages of the heap by private ones at the same addresses, with the same contents.
 * Needed when the others continue without a rank, as that rank may still write to the old pages. No
 * thread may write to the heap during the call. Returns TWILL_OK, TWILL_ERR_UNSUPPORTED if the
 * malloc library manages the heap, or TWILL_ERR_MEMORY. */
twill_status twill_heap_fence(struct twill_heap *heap, struct twill_error *error);
/* A peer's heap as mapped by this process. It belongs to a communicator. */
struct twill_heap_view {
    unsigned char *base;
    uint64_t *seen; /* bitmap of the TWILL_HUGE_PAGE ranges that have been populated */
};
/* Open a view of the heap of `rank`, empty if there is no region. Fails only if out of memory. */
twill_status twill_heap_view_open(struct twill_heap_view *view, const struct twill_heap *heap,
                                  uint32_t rank, struct twill_error *error);
/* Free what the view contains. The peer's heap stays mapped. */
void twill_heap_view_close(struct twill_heap_view *view);
/* Populate the page tables for a range of a peer's heap (bytes > 0), before its first access. */
void twill_heap_view_touch(struct twill_heap_view *view, uint64_t offset, size_t bytes);
/* Return a range's offset in this rank's region, or TWILL_HEAP_NOWHERE if peers do not map it. */
uint64_t twill_heap_offset(const struct twill_heap *heap, const void *pointer, size_t bytes);

/* A range in a buffer of twill_promote(), a value. The heap has a copy of its partial pages. */
struct twill_promoted {
    unsigned char *at; /* where this process has it in its heap */
    size_t head, tail; /* its first and last bytes that a call must copy to and from there */
};
/* Set *found to where peers map a range, if all of it is in a promoted buffer, and its first and
 * last moved page are still mapped. Returns whether they are. Costs two system calls then. Takes
 * the context's lock. */
bool twill_promoted_find(struct twill_context *context, const void *memory, size_t bytes,
                         struct twill_promoted *found);
/* Note that a large call is about to use a buffer, with TWILL_HEAP=promote. If it comes back, the
 * call promotes it. Takes the context's lock. */
void twill_promoted_note(struct twill_context *context, void *memory, size_t bytes);
/* Begin to be told of memory that the program frees, and end it. Returns false if another libtwill
 * or a lack of memory forbids it. */
bool twill_promoted_watch(const struct twill_preloaded *preloaded);
void twill_promoted_unwatch(const struct twill_preloaded *preloaded);
/* Make all promoted memory private, as twill_heap_fence() does with the heap. Takes the context's
 * lock. Returns TWILL_OK or TWILL_ERR_MEMORY. */
twill_status twill_promoted_fence(struct twill_context *context, struct twill_error *error);
/* Make networks forget all promoted memory. Takes the locks of transports. */
void twill_promoted_forget(struct twill_context *context);
/* Make all promoted memory private, and free the list. Called when the context ends. */
void twill_promoted_clear(struct twill_context *context);

/* With TWILL_HEAP=shared a context's heap is the region from which libtwill-heap.so allocates. With
 * TWILL_HEAP=promote that library tells libtwill of memory before it is freed. */

/* Whether TWILL_HEAP takes effect, and if not, why. Exchanged between ranks. */
enum twill_preloaded_outcome {
    TWILL_PRELOADED_OFF, /* not requested */
    TWILL_PRELOADED_PROMOTES,
    TWILL_PRELOADED_READY,
    TWILL_PRELOADED_ABSENT,  /* the library is not loaded */
    TWILL_PRELOADED_VERSION, /* the library belongs to another version of twill */
    TWILL_PRELOADED_CHILD,   /* this process was forked from one that has a region */
    TWILL_PRELOADED_SMALL,   /* the region, made for an earlier context, is too small */
    TWILL_PRELOADED_MEMORY,  /* no memory for a region, or its start is full */
    TWILL_PRELOADED_OUTCOMES
};

/* A context's use of libtwill-heap.so, a library that the program preloads and that replaces
 * malloc(). Part of the context, and constant once that is created. */
struct twill_preloaded {
    const struct twill_preload *library; /* NULL unless READY */
    enum twill_preloaded_outcome outcome;
    size_t least;                        /* bytes of the smallest block or buffer that it serves */
    struct twill_shm_region_given given; /* the region, as it is shared with other ranks */
    void *token;                         /* 8 bytes allocated in the region */
    bool serving;                        /* malloc() may use the region: serve() has been called */
    const struct twill_preload *watched; /* with TWILL_HEAP=promote, else NULL */
    size_t promotes; /* `least` while it watches for calls that promote buffers, else 0 */
};

/* Parse TWILL_HEAP (`setting`) and look for the library if it requests one. Returns an error only
 * if the value is bad. `outcome` says whether the library was found. */
twill_status twill_preloaded_open(struct twill_preloaded *preloaded, const char *setting,
                                  struct twill_error *error);
/* If libtwill-heap.so is loaded (preloaded->library), use this process's region for its malloc(),
 * or create one of `bytes` if it has none. Set preloaded->outcome to READY, or to why that failed,
 * such as SMALL if the region has fewer bytes. `token` is NULL unless it is READY. Does nothing if
 * the library is not loaded. */
void twill_preloaded_make(struct twill_preloaded *preloaded, size_t bytes);
/* If several ranks of the node share the region, let the program's malloc() use it for blocks of
 * preloaded->least bytes or more. Up to `kept` bytes of freed blocks stay resident for reuse, since
 * page faults cost more than most messages. */
void twill_preloaded_begin(struct twill_preloaded *preloaded, size_t kept, uint32_t ranks);
/* If `ineffective` is positive, warn that TWILL_HEAP=shared has no effect on that many ranks. The
 * caller passes their number on the first of these ranks and 0 on the others. If `mcdram`, warn
 * that TWILL_MEMORY does not place the region's memory. */
void twill_preloaded_warn(const struct twill_preloaded *preloaded, const struct twill_log *log,
                          int ineffective, bool mcdram);
/* End a context's use of libtwill-heap.so, after which malloc() takes no more memory from the
 * region for it. The region and its blocks stay, because they may outlive the context. */
void twill_preloaded_close(struct twill_preloaded *preloaded);

/* Memory of twill_alloc() (`user`) and of the library, part of the context. The context's lock
 * protects the allocations. */
struct twill_context_memory {
    struct twill_memory *user, *library;
    struct twill_memory_policy user_policy, library_policy;
    struct twill_preloaded preloaded;
    struct twill_heap heap;
    bool spilled; /* has warned that the heap is full and memory private */
    struct twill_persistent_region *regions; /* lib/job/registration.c */
    struct twill_persistent persistent;
    struct twill_promotion *promotions; /* lib/job/promotion.c */
    _Atomic uint32_t promoted;          /* those that have moved into the heap */
    size_t pinned;                      /* bytes locked by all transports outside of `regions` */
};

#endif

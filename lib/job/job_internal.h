/* SPDX-License-Identifier: Apache-2.0 */
/* The steps by which a context is set up, and what else only the files of this folder use. */
#ifndef TWILL_JOB_INTERNAL_H
#define TWILL_JOB_INTERNAL_H

#include "lib/job/context.h"
#include "lib/job/heap.h"

/* --- lib/job/handle.c --- */

/* Map zeroed memory for an object. Returns NULL if out of memory. */
void *twill_handle_map(size_t bytes);
/* Return the pages of an object to the system. Its address range stays reserved and reads as zeros.
 */
void twill_handle_retire(void *memory, size_t bytes);
/* Retire all memory in the pool. */
void twill_handle_pool_retire(struct twill_handle_pool *pool);

/* --- the steps --- */

/* lib/job/context_bootstrap.c. Find the other ranks. */
twill_status twill_context_open_bootstrap(struct twill_context *context,
                                          const struct twill_context_source *source);

/* lib/job/context_job.c. Compare the ranks, decide which of them are on one node, and share the
 * heap. Collective, two exchanges; four if ranks of a host turn out to share no memory. */
twill_status twill_context_open_job(struct twill_context *context);

/* --- lib/job/registration.c: memory, of devices, of the program and of the library --- */

/* Load the CUDA driver and note what was found; context->machine.device stays NULL without one. In
 * a library built without TWILL_WITH_CUDA, naming a driver library is an error. */
twill_status twill_context_open_device(struct twill_context *context);
void twill_context_close_device(struct twill_context *context);

#ifdef TWILL_WITH_CUDA
/* Undo the pinning of memory of the library, before its pages go. */
void twill_context_unpin(struct twill_context *context, void *memory);
/* Return an error if this is device memory. `call`: the public function, for the message. */
twill_status twill_context_check_host(struct twill_context *context, const char *call,
                                      const void *memory, struct twill_error *error);
#else
static inline void twill_context_unpin(struct twill_context *context, void *memory)
{
    (void)context, (void)memory;
}
static inline twill_status twill_context_check_host(struct twill_context *context, const char *call,
                                                    const void *memory, struct twill_error *error)
{
    (void)context, (void)call, (void)memory, (void)error;
    return TWILL_OK;
}
#endif

/* lib/job/registration.c. Let the transports of all communicators drop what they keep of this
 * memory (registrations), which is about to be freed. Call without the context's lock. */
void twill_context_forget_memory(struct twill_context *context, const void *start, size_t bytes);
void twill_persistent_init(struct twill_context *context);
void twill_persistent_clear(struct twill_context *context); /* drop all regions */
/* Register what is registered in `from`. */
twill_status twill_persistent_inherit(struct twill_context *context,
                                      const struct twill_context *from, struct twill_error *error);
/* Is there memory of twill_alloc(), or of the library? */
bool twill_persistent_is_used(const struct twill_context *context);

/* lib/job/context_job.c. Wait for the connections between hosts. */
twill_status twill_context_conclude_detector(struct twill_context *context);

/* lib/job/heap_open.c. What ranks exchange about their heaps before opening them. */
struct twill_heap_info {
    uint64_t memory; /* bytes of the node */
    uint64_t space;  /* bytes of address space left to this process (ulimit -v) */
    uint64_t pid_namespace, pid;
    uint32_t preloaded; /* enum twill_preloaded_outcome */
};
void twill_heap_describe(const struct twill_context *context, struct twill_heap_info *info);
/* Make context->job.world, by the labels of its nodes. */
twill_status twill_heap_make_world(struct twill_context *context);
/* Open the heap in three steps around two exchanges: see fabric/shm/shared_region.h. attach: with
 * the info of all ranks. conclude: make the world again if ranks that were expected to share it
 * cannot. twill_heap_opening_end() comes last, also after a failure. */
struct twill_heap_opening {
    struct twill_shm_region *region; /* NULL: there is one rank */
    size_t bytes;                    /* of the region, and by default */
    size_t default_bytes;
    uint32_t *outcome; /* [size] enum twill_preloaded_outcome of all ranks */
};
twill_status twill_heap_offer(struct twill_context *context, struct twill_heap_opening *opening,
                              struct twill_oob_batch *batch);
twill_status twill_heap_attach(struct twill_context *context, struct twill_heap_opening *opening,
                               const struct twill_heap_info *info, struct twill_oob_batch *batch);
twill_status twill_heap_conclude(struct twill_context *context, struct twill_heap_opening *opening);
void twill_heap_opening_end(struct twill_heap_opening *opening);
void twill_heap_note(struct twill_context *context);

/* Choose the CPU of the progress thread, given where the n ranks of this host may run; `me` is this
 * rank. */
void twill_progress_place(struct twill_context *context, const struct twill_cpus *ranks, unsigned n,
                          unsigned me);

/* lib/job/tuning.c. Read a whole tuning file into `text`, which the caller frees; *text is NULL if
 * it is empty. Return TWILL_ERR_CONFIG, with a message that names TWILL_TUNING, if it cannot be
 * read. */
twill_status twill_tuning_read(char **text, const char *path, struct twill_error *error);
/* Load the timings that algorithms are selected by. */
twill_status twill_context_open_tuning(struct twill_context *context);
/* Use the timings of this machine, if all ranks have the same. */
twill_status twill_context_agree_tuning(struct twill_context *context, bool all_have_it);

#endif

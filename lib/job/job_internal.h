/* SPDX-License-Identifier: Apache-2.0 */
/* The steps by which a context is set up, and other functions that only this folder uses. */
#ifndef TWILL_JOB_INTERNAL_H
#define TWILL_JOB_INTERNAL_H

#include "lib/job/context.h"
#include "lib/job/heap.h"

/* lib/job/handle.c. Map zeroed memory for an object. Returns NULL if out of memory. */
void *twill_handle_map(size_t bytes);
/* Return an object's pages to the system. Its address range stays reserved and reads as zeros, so
 * that a handle that is used after its end is recognised. */
void twill_handle_retire(void *memory, size_t bytes);
/* Empty the pool, and give all its memory to twill_handle_retire(). */
void twill_handle_pool_retire(struct twill_handle_pool *pool);

/* lib/job/context_bootstrap.c. Connect to the other ranks, set the log's rank, and open its file.
 * On the first rank of a new job, warn of unknown variables TWILL_*. In a job that grows, use rank
 * 0's TWILL_LAYOUT=nodes. Returns TWILL_OK or the error. */
twill_status twill_context_open_bootstrap(struct twill_context *context,
                                          const struct twill_context_source *source);

/* lib/job/context_job.c. Compare the ranks, decide which are on one node, and share the heap, in
 * two exchanges, with two more if ranks of a host share no memory, and one more if ranks have
 * several threads. Returns TWILL_OK or the error. */
twill_status twill_context_open_job(struct twill_context *context);

/* Load the CUDA driver, and add a line to twill_context_describe(). Without a driver,
 * machine.device stays NULL, with a warning if TWILL_TUNE=cuda_library names one. In a library
 * without TWILL_WITH_CUDA, do nothing, or return TWILL_ERR_CONFIG if that variable names one. */
twill_status twill_context_open_device(struct twill_context *context);
/* Close what twill_context_open_device() has opened, if anything. */
void twill_context_close_device(struct twill_context *context);

#ifdef TWILL_WITH_CUDA
/* Unpin memory of the library from the device before its pages are freed. `memory` is as
 * twill_context_take_shared() returned it. */
void twill_context_unpin(struct twill_context *context, void *memory);
/* Return TWILL_OK or, if `memory` is on a device, TWILL_ERR_ARGUMENT with a message naming `call`.
 * If the driver cannot tell, return its error. */
twill_status twill_context_check_host(struct twill_context *context, const char *call,
                                      const void *memory, struct twill_error *error);
#else
/* Do nothing, as no memory is pinned without CUDA. */
static inline void twill_context_unpin(struct twill_context *context, void *memory)
{
    (void)context, (void)memory;
}
/* Return TWILL_OK, as no memory is device memory without CUDA. */
static inline twill_status twill_context_check_host(struct twill_context *context, const char *call,
                                                    const void *memory, struct twill_error *error)
{
    (void)context, (void)call, (void)memory, (void)error;
    return TWILL_OK;
}
#endif

/* lib/job/registration.c. Make the transports of all communicators drop their registrations of this
 * memory, which is about to be freed. The caller must not hold the context's lock. */
void twill_context_forget_memory(struct twill_context *context, const void *start, size_t bytes);
/* Return TWILL_ERR_FORKED, with a message that names `call`, in a forked process, or TWILL_OK. */
twill_status twill_context_check_use(const struct twill_context *context, const char *call,
                                     struct twill_error *error);
/* Return TWILL_OK if `call` may use this memory, or an error if the process is forked, or if the
 * memory is empty, cannot be read, or is on a device. */
twill_status twill_context_check_memory(struct twill_context *context, const char *call,
                                        const void *memory, size_t bytes,
                                        struct twill_error *error);
/* Initialise the list of regions as empty, and give transports the function that searches it. */
void twill_persistent_init(struct twill_context *context);
/* Free the list of regions, but not their memory. */
void twill_persistent_clear(struct twill_context *context);
/* Add what twill_register() has registered with `from`. Returns TWILL_OK or TWILL_ERR_MEMORY. */
twill_status twill_persistent_inherit(struct twill_context *context,
                                      const struct twill_context *from, struct twill_error *error);
/* Return whether the context has memory of twill_alloc() or of the library. */
bool twill_persistent_is_used(const struct twill_context *context);

/* lib/job/context_job.c. Wait for the failure detector's connections between hosts, warn of missing
 * ones, and add a line to twill_context_describe(). With one node there are none, and nothing is
 * waited for. Returns TWILL_OK or the error. */
twill_status twill_context_conclude_detector(struct twill_context *context);

/* lib/job/heap_open.c. Facts about a rank's heap that ranks exchange before they open heaps. */
struct twill_heap_info {
    uint64_t memory; /* bytes of the host */
    uint64_t space;  /* bytes of address space left to this process (ulimit -v) */
    uint64_t pid_namespace, pid;
    uint64_t spare;     /* twill_mapping_spare() */
    uint32_t preloaded; /* enum twill_preloaded_outcome */
};
/* Set *info to the facts about this rank's host and process. */
void twill_heap_describe(const struct twill_context *context, struct twill_heap_info *info);
/* Make job.world from the node labels in job.label. Returns TWILL_OK or the error. */
twill_status twill_heap_make_world(struct twill_context *context);
/* A heap while it is opened, in three steps around two exchanges (fabric/shm/shared_region.h). Part
 * of a local variable of twill_context_open_job(). */
struct twill_heap_opening {
    struct twill_shm_region *region; /* NULL if there is only one rank */
    size_t bytes;                    /* of the region */
    size_t default_bytes;            /* without TWILL_TUNE=heap_limit */
    uint32_t *outcome;               /* [size] enum twill_preloaded_outcome of each rank */
};
/* Begin to open the heap, in a region if there are several ranks. Returns TWILL_OK or the error. */
twill_status twill_heap_offer(struct twill_context *context, struct twill_heap_opening *opening,
                              struct twill_oob_batch *batch);
/* The second step. Set the heap's size from info[size], the facts of all ranks, and begin to share
 * it, if there are several ranks. Adds its parts to the batch and exchanges nothing itself. If a
 * process of this node has too little address space, returns TWILL_ERR_MEMORY and adds none.
 * twill_heap_conclude() then finishes it. Returns TWILL_OK or the error. */
twill_status twill_heap_attach(struct twill_context *context, struct twill_heap_opening *opening,
                               const struct twill_heap_info *info, struct twill_oob_batch *batch);
/* Finish the heap, which takes over opening->region, and let malloc() use it if TWILL_HEAP says so.
 * If ranks of a host cannot share memory, warn, and make job.world again with these alone on their
 * nodes. Returns TWILL_OK or the error. */
twill_status twill_heap_conclude(struct twill_context *context, struct twill_heap_opening *opening);
/* Free what the opening still owns. Called also after a failure. */
void twill_heap_opening_end(struct twill_heap_opening *opening);
/* Add a line about the shared heap, if there is one, to twill_context_describe(). */
void twill_heap_note(struct twill_context *context);

/* Describe for twill-info how requests make progress. If that is by a thread (not
 * TWILL_PROGRESS=late) without a CPU set by the user, choose a spare CPU for it, if there is one.
 * ranks[n] says where each rank of this host may run, and `me` is this rank's index. */
void twill_progress_place(struct twill_context *context, const struct twill_cpus *ranks, unsigned n,
                          unsigned me);

/* lib/job/tuning.c. Read a tuning file into *text, which the caller frees. For an empty file *text
 * becomes "" or NULL. Returns TWILL_OK, or TWILL_ERR_CONFIG, with *text NULL, if it cannot be read
 * or is no text file. */
twill_status twill_tuning_read(char **text, const char *path, struct twill_error *error);
/* Set selection.tuning by TWILL_TUNING and TWILL_TUNE=machine. Without these, also look for timings
 * of this machine in the tuning folders, for selection.timings. Returns TWILL_OK, or the error if a
 * file or TWILL_ALGORITHM is bad. */
twill_status twill_context_open_tuning(struct twill_context *context);
/* If all ranks have the same timings of this machine (`all_have_it`) in selection.timings, use
 * these instead of selection.tuning. Add a line on the choice to twill_context_describe(). Returns
 * TWILL_OK. */
twill_status twill_context_agree_tuning(struct twill_context *context, bool all_have_it);

#endif

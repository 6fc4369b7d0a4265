/* SPDX-License-Identifier: Apache-2.0 */
/* The region of this process, with its blocks, forks, and the return of pages to the system. */
#include "lib/heap/malloc_state.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct twill_preload_state twill_preload_state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Lock the region and return true. Returns false, without locking, to a fork handler of another
 * library, because the forking thread holds the lock already. Such a handler may free blocks, but
 * must not allocate any, as our own handler may not have run yet. */
static bool enter_region(void)
{
    if (atomic_load_explicit(&twill_preload_state.forking, memory_order_acquire) &&
        pthread_equal(atomic_load(&twill_preload_state.forker), pthread_self()))
        return false;
    pthread_mutex_lock(&twill_preload_state.lock);
    return true;
}

/* Unlock the region if enter_region() has locked it and so returned true. */
static void leave_region(bool entered)
{
    if (entered)
        pthread_mutex_unlock(&twill_preload_state.lock);
}

void *twill_block_alloc(size_t bytes, size_t alignment, bool zero)
{
    void *block = NULL;
    bool is_zero = false;
    bool entered = enter_region(), serves = entered && !twill_preload_state.child;
    if (serves && bytes >= TWILL_HUGE_PAGE && alignment < TWILL_HUGE_PAGE)
        block = twill_arena_alloc(&twill_preload_state.arena, bytes, TWILL_HUGE_PAGE, &is_zero);
    if (serves && block == NULL)
        block = twill_arena_alloc(&twill_preload_state.arena, bytes, alignment, &is_zero);
    leave_region(entered);
    if (block != NULL && zero && !is_zero)
        memset(block, 0, bytes);
    return block;
}

size_t twill_block_size(const void *block)
{
    bool entered = enter_region();
    size_t bytes = twill_arena_size(&twill_preload_state.arena, block);
    leave_region(entered);
    return bytes;
}

/* Give pages of the largest free extents back to the system until at most half of
 * twill_preload_state.keep bytes of them stay resident. If it stopped at `keep` bytes, the next
 * free() would have to repeat it. Peers that have mapped these pages then read zeros there. */
static void give_back_extents(void)
{
    size_t keep = atomic_load_explicit(&twill_preload_state.keep, memory_order_relaxed), bytes;
    int kept = errno;
    for (bool worked = true; worked;) {
        bool entered = enter_region();
        void *extent = twill_preload_state.child || twill_preload_state.arena.dirty <= keep / 2
                           ? NULL
                           : twill_arena_pick(&twill_preload_state.arena, &bytes);
        leave_region(entered);
        if (extent == NULL)
            break;
        worked = madvise(extent, bytes, MADV_REMOVE) == 0; /* fails for mlock'ed pages */
        entered = enter_region();
        twill_arena_return(&twill_preload_state.arena, extent, worked);
        leave_region(entered);
    }
    errno = kept;
}

bool twill_block_free(void *block)
{
    bool entered = enter_region();
    bool known = twill_arena_size(&twill_preload_state.arena, block) > 0;
    if (known)
        twill_arena_free(&twill_preload_state.arena, block);
    bool full = entered && !twill_preload_state.child &&
                twill_preload_state.arena.dirty >
                    atomic_load_explicit(&twill_preload_state.keep, memory_order_relaxed);
    leave_region(entered);
    if (full)
        give_back_extents();
    return known;
}

bool twill_block_resize(void *block, size_t bytes)
{
    bool entered = enter_region();
    bool done = entered && twill_arena_resize(&twill_preload_state.arena, block, bytes);
    leave_region(entered);
    return done;
}

/* Lock the region for the time of a fork, and note that this thread forks. */
static void before_fork(void)
{
    pthread_mutex_lock(&twill_preload_state.lock);
    atomic_store(&twill_preload_state.forker, pthread_self());
    atomic_store_explicit(&twill_preload_state.forking, true, memory_order_release);
}

/* Unlock the region in the parent after a fork. */
static void after_fork_in_parent(void)
{
    atomic_store_explicit(&twill_preload_state.forking, false, memory_order_release);
    pthread_mutex_unlock(&twill_preload_state.lock);
}

/* Map the region privately and allocate no more from it, as writes of the child must never reach
 * its parent or the parent's peers. If the program has closed the file, make the region read-only.
 * A child that crashes is better than a parent with wrong data. */
static void after_fork_in_child(void)
{
    const struct twill_preload_region *region = &twill_preload_state.region;
    struct stat about;
    int kept = errno;
    (void)pthread_mutex_init(&twill_preload_state.lock, NULL);
    atomic_store_explicit(&twill_preload_state.forking, false, memory_order_relaxed);
    atomic_store_explicit(&twill_preload_state.least, 0, memory_order_relaxed);
    if (region->base != NULL && !twill_preload_state.child) {
        twill_preload_state.child = true;
        if (fstat(region->fd, &about) != 0 || about.st_dev != twill_preload_state.device ||
            about.st_ino != twill_preload_state.inode ||
            mmap(region->base, region->bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, region->fd, 0) == MAP_FAILED)
            (void)mprotect(region->base, region->bytes, PROT_READ);
    }
    errno = kept;
}

/* Register the fork handlers before those of other libraries, which then run before ours in the
 * parent, as they may wait for this lock, and after ours in the child, on the private mapping. */
void twill_hook_forks(void)
{
    twill_preload_state.forks_hooked =
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
}

/* Return the region, or NULL in a child or if the program has closed or replaced its descriptor. */
static const struct twill_preload_region *region_if_ours(void)
{
    const struct twill_preload_region *region = &twill_preload_state.region;
    struct stat about;
    bool usable = region->base != NULL && !twill_preload_state.child &&
                  fstat(region->fd, &about) == 0 && about.st_dev == twill_preload_state.device &&
                  about.st_ino == twill_preload_state.inode;
    return usable ? region : NULL;
}

/* The region() of twill_preload_heap. Returns the region of this process. Returns NULL if there is
 * none, in a forked child, or if the program has closed or replaced its descriptor. */
static const struct twill_preload_region *region_now(void)
{
    bool entered = enter_region();
    const struct twill_preload_region *region = region_if_ours();
    leave_region(entered);
    return region;
}

/* Make `mine` the region. Does nothing if memory or fork handlers are missing, or its descriptor is
 * closed. The region is locked. */
static void adopt_region(const struct twill_preload_region *mine)
{
    struct stat about;
    if (!twill_preload_state.forks_hooked || fstat(mine->fd, &about) != 0)
        return;
    void *records = mmap(NULL, twill_arena_record_bytes(mine->bytes), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (records == MAP_FAILED)
        return;
    twill_arena_init(&twill_preload_state.arena, mine->base, mine->bytes, records);
    twill_preload_state.region = *mine;
    twill_preload_state.device = about.st_dev;
    twill_preload_state.inode = about.st_ino;
    atomic_store_explicit(&twill_preload_state.base, (uintptr_t)mine->base, memory_order_relaxed);
    atomic_store_explicit(&twill_preload_state.bytes, mine->bytes, memory_order_release);
}

/* The offer() of twill_preload_heap. Makes `mine` the region unless there is one. Returns the
 * region, or NULL if there is none or region_now() would return NULL. */
static const struct twill_preload_region *offer(const struct twill_preload_region *mine)
{
    bool entered = enter_region();
    if (twill_preload_state.region.base == NULL)
        adopt_region(mine);
    const struct twill_preload_region *region = region_if_ours();
    leave_region(entered);
    return region;
}

/* The serve() of twill_preload_heap. Serves blocks from `least` bytes on, and keeps up to `keep`
 * bytes of freed ones resident, for a context. The least and the largest of all contexts apply. */
static void serve(size_t least, size_t keep)
{
    bool entered = enter_region();
    size_t now = atomic_load_explicit(&twill_preload_state.least, memory_order_relaxed);
    if (!twill_preload_state.child) {
        twill_preload_state.users++;
        if (keep > atomic_load_explicit(&twill_preload_state.keep, memory_order_relaxed))
            atomic_store_explicit(&twill_preload_state.keep, keep, memory_order_relaxed);
        if (now == 0 || least < now)
            atomic_store_explicit(&twill_preload_state.least, least, memory_order_relaxed);
    }
    leave_region(entered);
}

/* The stop() of twill_preload_heap. Ends one serve(). The last one ends serving, and gives the
 * pages of freed blocks back to the system. */
static void stop(void)
{
    bool entered = enter_region();
    if (!twill_preload_state.child && --twill_preload_state.users == 0) {
        atomic_store_explicit(&twill_preload_state.least, 0, memory_order_relaxed);
        atomic_store_explicit(&twill_preload_state.keep, 0, memory_order_relaxed);
    }
    bool over = !twill_preload_state.child && twill_preload_state.users == 0;
    leave_region(entered);
    if (over)
        give_back_extents();
}

/* The watch() of twill_preload_heap. The least of all contexts applies until all have called
 * unwatch(). */
static bool watch(twill_preload_freeing *freeing, size_t least)
{
    struct twill_preload_state *state = &twill_preload_state;
    struct twill_watcher *found = NULL;
    bool entered = enter_region();
    for (unsigned i = 0; i < TWILL_WATCHERS; i++) {
        struct twill_watcher *w = &state->watchers[i];
        if (w->users > 0 ? w->freeing == freeing : found == NULL)
            found = w;
    }
    if (found != NULL) {
        size_t now = state->watched;
        found->users++;
        found->freeing = freeing;
        state->watched = now == 0 ? least : twill_min(now, least);
    }
    leave_region(entered);
    return found != NULL;
}

/* The unwatch() of twill_preload_heap. */
static void unwatch(twill_preload_freeing *freeing)
{
    unsigned users = 0;
    bool entered = enter_region();
    for (unsigned i = 0; i < TWILL_WATCHERS; i++) {
        struct twill_watcher *w = &twill_preload_state.watchers[i];
        if (w->users > 0 && w->freeing == freeing && --w->users == 0)
            w->freeing = NULL;
        users += w->users;
    }
    if (users == 0)
        twill_preload_state.watched = 0;
    leave_region(entered);
}

void twill_tell_watchers(void *memory, size_t bytes, bool keeps)
{
    int before = errno;
    for (unsigned i = 0; i < TWILL_WATCHERS; i++) {
        twill_preload_freeing *freeing = twill_preload_state.watchers[i].freeing;
        if (freeing != NULL)
            freeing(memory, bytes, keeps);
    }
    errno = before;
}

/* The alloc() of twill_preload_heap. Returns a block that need not be zero, or NULL if none
 * fits. */
static void *block_alloc(size_t bytes, size_t alignment)
{
    return twill_block_alloc(bytes, alignment, false);
}

/* The release() of twill_preload_heap. Does nothing if no block starts there. */
static void block_release(void *block)
{
    (void)twill_block_free(block);
}

__attribute__((visibility("default"))) extern const struct twill_preload twill_preload_heap;
const struct twill_preload twill_preload_heap = {
    .version = TWILL_PRELOAD_VERSION,
    .region = region_now,
    .offer = offer,
    .serve = serve,
    .stop = stop,
    .alloc = block_alloc,
    .release = block_release,
    .watch = watch,
    .unwatch = unwatch,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the program that peers access without a copy. twill_promote() copies the whole pages of
 * a buffer into a block of this rank's region, and maps the block's pages over them. The bytes
 * before the first and after the last whole page stay where they are, as other data may lie in
 * these pages. The block has room for them, and each call copies them there and back (layout.c).
 *
 * A program may free a buffer without twill_demote(). So before each use, two futex calls ask the
 * kernel whether the buffer's first and last moved page are still those of the block. */
#include "fabric/shm/mapping.h"
#include "lib/heap/malloc_interface.h"
#include "lib/job/job_internal.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE ((size_t)4096)

/* Moved pages, with one user or more. In the list of the process, under its lock. */
struct moved {
    struct moved *next;
    unsigned char *from, *to;       /* where they are, or NULL if they are private again */
    unsigned char *alias;           /* where the region has the page of `from` */
    void *block;                    /* memory of the heap that has these pages */
    unsigned users;                 /* promotions of which they are part */
    _Atomic(unsigned char *) child; /* their contents for forked children, NULL, or MAP_FAILED */
};

/* A buffer of twill_promote(), in the context's list. Changes need the locks of the process and of
 * the context, in this order. */
struct twill_promotion {
    struct twill_promotion *next;
    unsigned char *memory; /* as the caller gave it, with `bytes` */
    size_t bytes;
    struct moved *moved; /* has all its whole pages, or NULL if none had to be moved */
};

#define NOTED     64 /* buffers of a process */
#define PROMOTING 4  /* calls with a buffer, the last of which promotes it */

/* A buffer of a recent large call of a context with TWILL_HEAP=promote. */
struct noted {
    struct twill_context *context; /* NULL if there is none */
    unsigned char *memory;
    size_t bytes;
    unsigned calls;
    bool promoted;
};

/* The moved pages of this process, as handlers of fork() have no argument. The lock is held while
 * pages move and during a fork, so that a child has them as a whole. Who holds the lock of the
 * noted buffers takes no other, because free() takes it. */
static struct {
    pthread_mutex_t lock, noted_lock;
    _Atomic bool entered;      /* the lock is held */
    _Atomic pthread_t entrant; /* by this thread, if it is */
    struct moved *moved;
    bool hooked; /* the handlers are registered */
    struct noted noted[NOTED];
    unsigned next; /* the one that the next buffer replaces */
} process = {.lock = PTHREAD_MUTEX_INITIALIZER, .noted_lock = PTHREAD_MUTEX_INITIALIZER};

static void enter_process(void)
{
    pthread_mutex_lock(&process.lock);
    process.entrant = pthread_self();
    process.entered = true;
}

/* Do enter_process() and return true, or return false if that would wait. */
static bool try_enter_process(void)
{
    if (pthread_mutex_trylock(&process.lock) != 0)
        return false;
    process.entrant = pthread_self();
    process.entered = true;
    return true;
}

static void leave_process(void)
{
    process.entered = false;
    pthread_mutex_unlock(&process.lock);
}

/* Return whether two addresses are the same byte of the same shared object. The kernel refuses with
 * EINVAL to requeue waiters of a futex to itself (man 2 futex), and changes nothing otherwise. */
static bool is_same_memory(unsigned char *one, unsigned char *other)
{
    return syscall(SYS_futex, one, FUTEX_CMP_REQUEUE_PI, 1, (void *)0, other, 0) < 0 &&
           errno == EINVAL;
}

/* Return whether the first and the last of the moved pages that [at, end) touches, if any, are
 * still where twill_promote() has put them. */
static bool are_in_place(const struct moved *p, const unsigned char *at, const unsigned char *end)
{
    if (at >= p->to || end <= p->from)
        return true;
    size_t first = at > p->from ? (size_t)(at - p->from) & -PAGE : 0;
    size_t last = ((size_t)((end < p->to ? end : p->to) - p->from) - 1) & -PAGE;
    int before = errno;
    bool are = is_same_memory(p->from + first, p->alias + first) &&
               is_same_memory(p->from + last, p->alias + last);
    errno = before;
    return are;
}

/* Return whether the moved pages are still where twill_promote() has put them. */
static bool is_in_place(const struct moved *p)
{
    return p->from != NULL && are_in_place(p, p->from, p->to);
}

/* Return why the mapping that a line of /proc/self/maps describes cannot be moved, or NULL. */
static const char *refuse_mapping(const char *access, unsigned long inode, const char *name)
{
    if (access[3] != 'p')
        return "it is shared memory already";
    if (inode != 0)
        return "it is a mapping of a file";
    if (strncmp(access, "rw", 2) != 0)
        return "it cannot be read and written";
    return strncmp(name, "[stack", 6) == 0 ? "it is a stack" : NULL;
}

/* Return why the pages [from, to) cannot be moved, or NULL. */
static const char *refuse_pages(uintptr_t from, uintptr_t to)
{
    const char *why = NULL;
    char *line = NULL;
    size_t room = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && why == NULL && from < to && getline(&line, &room, maps) > 0) {
        char access[5];
        int name = 0;
        uintptr_t begin, end;
        unsigned long inode;
        if (sscanf(line, "%lx-%lx %4s %*s %*s %lu %n", &begin, &end, access, &inode, &name) < 4 ||
            end <= from)
            continue;
        why = begin > from ? "it is not mapped" : refuse_mapping(access, inode, line + name);
        from = end;
    }
    if (maps == NULL || (why == NULL && from < to))
        why = "/proc/self/maps does not list it";
    if (maps != NULL)
        fclose(maps);
    free(line);
    return why;
}

/* Return whether [from, to) lies in the stack of the calling thread. */
static bool is_own_stack(const unsigned char *from, const unsigned char *to)
{
    pthread_attr_t attributes;
    void *start = NULL;
    size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return false;
    (void)pthread_attr_getstack(&attributes, &start, &bytes);
    (void)pthread_attr_destroy(&attributes);
    return to > (unsigned char *)start && from < (unsigned char *)start + bytes;
}

/* Replace pages by private ones, with the same contents if it `keeps` them, else with zeros.
 * Returns TWILL_OK or the error. */
static twill_status make_private(unsigned char *from, const unsigned char *to, bool keeps,
                                 struct twill_error *error)
{
    size_t bytes = (size_t)(to - from);
    void *new = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (new == MAP_FAILED)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "mmap of %zu bytes: %s", bytes, strerror(errno));
    if (keeps)
        memcpy(new, from, bytes);
    if (mremap(new, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, from) != MAP_FAILED)
        return TWILL_OK;
    (void)TWILL_FAIL(error, TWILL_ERR_MEMORY, "mremap of %zu bytes: %s", bytes, strerror(errno));
    munmap(new, bytes);
    return TWILL_ERR_MEMORY;
}

/* --- children --------------------------------------------------------------------------------- */
/* Free what is kept for children, if it is. */
static void drop_child(struct moved *p)
{
    unsigned char *child = p->child;
    if (child != NULL && child != MAP_FAILED)
        munmap(child, (size_t)(p->to - p->from));
    p->child = NULL;
}

/* Copy the contents of moved pages for a child, or renew pages of an older copy that differ, so
 * that children that are forked one after the other share the rest. */
static void copy_for_child(struct moved *p)
{
    size_t bytes = (size_t)(p->to - p->from);
    unsigned char *child = p->child;
    if (child == NULL || child == MAP_FAILED) {
        child = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        p->child = child;
        if (child != MAP_FAILED)
            memcpy(child, p->alias, bytes);
        return;
    }
    for (size_t at = 0; at < bytes; at += PAGE)
        if (memcmp(child + at, p->alias + at, PAGE) != 0)
            memcpy(child + at, p->alias + at, PAGE);
}

static void before_fork(void)
{
    int before = errno;
    enter_process();
    for (struct moved *p = process.moved; p != NULL; p = p->next)
        if (is_in_place(p))
            copy_for_child(p);
        else if (p->from != NULL)
            drop_child(p);
    pthread_mutex_lock(&process.noted_lock);
    errno = before;
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&process.noted_lock);
    leave_process();
}

/* Put the copies in the place of the shared pages. Without memory for a copy, the child ends if it
 * touches the pages, since its stores would reach the parent. */
static void after_fork_in_child(void)
{
    int before = errno;
    memset(process.noted, 0, sizeof(process.noted));
    pthread_mutex_unlock(&process.noted_lock); /* mremap() is watched */
    for (struct moved *p = process.moved; p != NULL; p = p->next) {
        size_t bytes = (size_t)(p->to - p->from);
        unsigned char *child = p->child;
        if (child != NULL &&
            (child == MAP_FAILED ||
             mremap(child, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, p->from) == MAP_FAILED))
            (void)mmap(p->from, bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    }
    process.moved = NULL;
    leave_process();
    errno = before;
}

/* Register the handlers of fork() for this process, once. Returns whether they are. */
static bool hook_forks(void)
{
    if (!process.hooked)
        process.hooked =
            pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0;
    return process.hooked;
}

/* --- promotion -------------------------------------------------------------------------------- */
/* Get a block of the heap for the pages that a buffer touches, and set p->block and p->alias. The
 * buffer and its block are at the same offset in a huge page. Returns TWILL_OK or the error. */
static twill_status find_room(struct twill_context *context, struct moved *p,
                              const unsigned char *memory, size_t bytes, struct twill_error *error)
{
    uintptr_t first = (uintptr_t)memory & -PAGE;
    size_t room = twill_round_up((uintptr_t)memory + bytes, PAGE) - first;
    size_t skip = room >= TWILL_HUGE_PAGE ? first % TWILL_HUGE_PAGE : 0;
    TWILL_TRY(error, twill_context_take_shared(context, &p->block, skip + room + PAGE, error));
    if (twill_heap_offset(&context->memory->heap, p->block, skip + room + PAGE) ==
        TWILL_HEAP_NOWHERE) {
        twill_context_give_shared(context, p->block, skip + room + PAGE);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY,
                          "twill_promote: no room for %zu bytes: the %zu bytes that this rank "
                          "shares are full (TWILL_TUNE=heap_limit)",
                          bytes, context->memory->heap.bytes);
    }
    p->alias = (unsigned char *)twill_round_up((uintptr_t)p->block, PAGE) + skip +
               ((uintptr_t)p->from - first);
    return TWILL_OK;
}

/* Copy the pages to the block, and map the block's over them. A failed mremap() may have unmapped
 * them, so they are then mapped again. Returns TWILL_OK or the error. */
static twill_status move_pages(const struct moved *p, struct twill_error *error)
{
    size_t bytes = (size_t)(p->to - p->from);
    twill_mapping_populate(p->alias, bytes);
    memcpy(p->alias, p->from, bytes);
    bool can_tell = !is_same_memory(p->from, p->alias);
    if (can_tell &&
        mremap(p->alias, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, p->from) == MAP_FAILED) {
        int cause = errno;
        (void)mmap(p->from, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                   -1, 0);
        memcpy(p->from, p->alias, bytes);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "twill_promote: mremap of %zu bytes: %s", bytes,
                          strerror(cause));
    }
    if (!can_tell || !is_in_place(p)) {
        if (can_tell)
            (void)make_private(p->from, p->to, true, error);
        return TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED,
                          "twill_promote: this kernel cannot tell whether memory is still mapped "
                          "(futex, FUTEX_CMP_REQUEUE_PI)");
    }
    (void)madvise(p->from, bytes, MADV_DODUMP); /* the region is left out of core dumps */
    twill_mapping_populate(p->from, bytes);
    return TWILL_OK;
}

/* Return why a buffer cannot be promoted, or NULL. */
static const char *refuse(const struct moved *p, size_t bytes)
{
    if (bytes < TWILL_PROMOTED_LEAST)
        return "it has less than 64 KiB";
    if (is_own_stack(p->from, p->to))
        return "it is a stack";
    return refuse_pages((uintptr_t)p->from, (uintptr_t)p->to);
}

/* Move the whole pages of a buffer into the region, and count one user of them. Returns TWILL_OK,
 * or the error, after which nothing has moved. */
static twill_status move_buffer(struct twill_context *context, struct moved *p,
                                unsigned char *memory, size_t bytes, struct twill_error *error)
{
    p->from = (unsigned char *)twill_round_up((uintptr_t)memory, PAGE);
    p->to = memory + bytes - ((uintptr_t)memory + bytes) % PAGE;
    const char *why = refuse(p, bytes);
    if (why != NULL)
        return TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED, "twill_promote: %zu bytes at %p: %s", bytes,
                          (void *)memory, why);
    if (!hook_forks())
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "twill_promote: out of memory");
    TWILL_TRY(error, find_room(context, p, memory, bytes, error));
    twill_context_forget_memory(context, memory, bytes);
    twill_status status = move_pages(p, error);
    if (status != TWILL_OK) {
        twill_context_give_shared(context, p->block, 0);
        return status;
    }
    p->users = 1;
    p->next = process.moved;
    process.moved = p;
    atomic_fetch_add(&context->memory->promoted, 1);
    return TWILL_OK;
}

/* Set *moved to the pages of a promoted buffer that contains a new one, and count a user more. If
 * there is none, move the pages of the new one, unless peers cannot map them or do already, which
 * sets NULL. Returns TWILL_OK or the error. The caller holds the lock of the process. */
static twill_status share_pages(struct twill_context *context, struct moved **moved,
                                unsigned char *memory, size_t bytes, struct twill_error *error)
{
    const struct twill_heap *heap = &context->memory->heap;
    *moved = NULL;
    if (heap->region == NULL || heap->fenced ||
        twill_heap_offset(heap, memory, bytes) != TWILL_HEAP_NOWHERE)
        return TWILL_OK;
    for (const struct twill_promotion *p = context->memory->promotions; p != NULL; p = p->next) {
        bool contains = p->moved != NULL && memory >= p->memory && bytes <= p->bytes &&
                        memory <= p->memory + (p->bytes - bytes);
        if (contains && bytes >= TWILL_PROMOTED_LEAST && is_in_place(p->moved)) {
            *moved = p->moved;
            p->moved->users++;
            return TWILL_OK;
        }
    }
    *moved = calloc(1, sizeof(**moved));
    if (*moved == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "twill_promote: out of memory");
    twill_status status = move_buffer(context, *moved, memory, bytes, error);
    if (status != TWILL_OK)
        free(*moved);
    return status;
}

/* Add a buffer to the context's list. The caller holds the lock of the process. */
static void add_to_list(struct twill_context *context, struct twill_promotion *p)
{
    twill_context_lock(context);
    p->next = context->memory->promotions;
    context->memory->promotions = p;
    twill_context_unlock(context);
}

/* Promote a buffer and add it to the list. Returns TWILL_OK or the error. */
static twill_status promote(struct twill_context *context, void *memory, size_t bytes,
                            struct twill_error *error)
{
    struct twill_promotion *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "twill_promote: out of memory");
    p->memory = memory;
    p->bytes = bytes;
    enter_process();
    twill_status status = share_pages(context, &p->moved, memory, bytes, error);
    if (status == TWILL_OK)
        add_to_list(context, p);
    leave_process();
    if (status != TWILL_OK)
        free(p);
    return status;
}

twill_status twill_promote(twill_context *context, void *memory, size_t bytes)
{
    struct twill_error error = {0};
    if (context == NULL || !context->ready)
        return TWILL_ERR_ARGUMENT;
    twill_status status =
        twill_context_check_memory(context, "twill_promote", memory, bytes, &error);
    if (status == TWILL_OK)
        status = promote(context, memory, bytes, &error);
    return twill_context_outcome(context, status, &error);
}

/* Take out of its list the buffer at `memory` that the context, or one that it has replaced, has
 * promoted last. Sets *owner to that context. Returns the buffer, or NULL if there is none. */
static struct twill_promotion *take(struct twill_context *context, const void *memory,
                                    struct twill_context **owner)
{
    struct twill_promotion *p = NULL;
    for (; context != NULL && p == NULL; context = context->older) {
        twill_context_lock(context);
        struct twill_promotion **at = &context->memory->promotions;
        while (*at != NULL && (*at)->memory != memory)
            at = &(*at)->next;
        p = *at;
        if (p != NULL)
            *at = p->next;
        twill_context_unlock(context);
        *owner = context;
    }
    return p;
}

/* Take moved pages, which are private or lost, out of the list of the process, and free them. */
static void free_moved(struct moved *p)
{
    struct moved **at = &process.moved;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    drop_child(p);
    free(p);
}

/* Drop one user of moved pages. The last one makes them private, unless the program has replaced
 * them (`lost`), and frees their block, unless the program may still use some of it. The contents
 * stay if it `keeps` them. Returns TWILL_OK, or TWILL_ERR_MEMORY if the pages stay. The caller
 * holds the lock of the process. */
static twill_status drop_user(struct twill_context *context, struct moved *p, bool lost, bool keeps,
                              struct twill_error *error)
{
    if (p->users > 1) {
        p->users--;
        return TWILL_OK;
    }
    if (p->from != NULL && !lost)
        TWILL_TRY(error, make_private(p->from, p->to, keeps, error));
    atomic_fetch_sub(&context->memory->promoted, 1);
    if (!lost)
        twill_context_give_shared(context, p->block, 0);
    free_moved(p);
    return TWILL_OK;
}

/* Undo the promotion of a buffer that is in no list, and free it. If there is no memory for that,
 * put it back into the list. The contents stay if it `keeps` them. Returns TWILL_OK or the
 * error. */
static twill_status demote(struct twill_context *context, struct twill_promotion *p, bool keeps,
                           struct twill_error *error)
{
    struct moved *moved = p->moved;
    bool lost = moved != NULL && moved->from != NULL && !is_in_place(moved);
    void *memory = p->memory;
    twill_context_forget_memory(context, memory, p->bytes);
    if (moved != NULL && drop_user(context, moved, lost, keeps, error) != TWILL_OK) {
        add_to_list(context, p);
        return error->status;
    }
    free(p);
    if (lost)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "twill_demote: the memory at %p was freed or replaced while it was "
                          "promoted",
                          memory);
    return TWILL_OK;
}

twill_status twill_demote(twill_context *context, void *memory)
{
    struct twill_error error = {0};
    struct twill_context *owner;
    if (context == NULL || !context->ready)
        return TWILL_ERR_ARGUMENT;
    twill_status status = twill_context_check_use(context, "twill_demote", &error);
    if (status == TWILL_OK) {
        enter_process();
        struct twill_promotion *p = take(context, memory, &owner);
        status = p != NULL ? demote(owner, p, true, &error)
                           : TWILL_FAIL(&error, TWILL_ERR_ARGUMENT,
                                        "twill_demote: nothing was promoted at %p", memory);
        leave_process();
    }
    return twill_context_outcome(context, status, &error);
}

/* --- TWILL_HEAP=promote ----------------------------------------------------------------------- */
static bool is_noted(const struct noted *n, const struct twill_context *context, const void *memory,
                     size_t bytes)
{
    return n->context == context && n->memory == memory && n->bytes == bytes;
}

/* Count a call with a buffer. Returns whether it is the one that promotes it. A new buffer replaces
 * the oldest that is not promoted. */
static bool count_call(struct twill_context *context, unsigned char *memory, size_t bytes)
{
    bool promotes = false, known = false;
    pthread_mutex_lock(&process.noted_lock);
    for (unsigned i = 0; i < NOTED && !known; i++) {
        struct noted *n = &process.noted[i];
        known = is_noted(n, context, memory, bytes);
        promotes = known && ++n->calls == PROMOTING;
        n->promoted = n->promoted || promotes;
    }
    for (unsigned i = 0; i < NOTED && !known; i++) {
        struct noted *n = &process.noted[process.next++ % NOTED];
        known = !n->promoted;
        if (known)
            *n = (struct noted){.context = context, .memory = memory, .bytes = bytes, .calls = 1};
    }
    pthread_mutex_unlock(&process.noted_lock);
    return promotes;
}

/* Set *found to a noted buffer that [memory, memory + bytes) touches, and forget it with `take`.
 * Returns whether there is one. */
static bool find_noted(const unsigned char *memory, size_t bytes, bool take, struct noted *found)
{
    bool any = false;
    pthread_mutex_lock(&process.noted_lock);
    for (unsigned i = 0; i < NOTED && !any; i++) {
        struct noted *n = &process.noted[i];
        any = n->context != NULL && memory < n->memory + n->bytes && n->memory < memory + bytes;
        if (any && take) {
            *found = *n;
            *n = (struct noted){0};
        }
    }
    pthread_mutex_unlock(&process.noted_lock);
    return any;
}

/* Forget the noted buffers of a context that ends. */
static void forget_noted(const struct twill_context *context)
{
    pthread_mutex_lock(&process.noted_lock);
    for (unsigned i = 0; i < NOTED; i++)
        if (process.noted[i].context == context)
            process.noted[i] = (struct noted){0};
    pthread_mutex_unlock(&process.noted_lock);
}

/* Demote the buffers in memory that the program is about to free, move or resize. Memory in which
 * no call had a buffer, such as the library's own, takes no lock of the process. What this file
 * itself frees needs no demotion. */
static void before_free(void *memory, size_t bytes, bool keeps)
{
    struct twill_error none = {0};
    struct twill_context *owner;
    struct noted found;
    if (!find_noted(memory, bytes, false, &found) ||
        (process.entered && pthread_equal(process.entrant, pthread_self())))
        return;
    enter_process();
    while (find_noted(memory, bytes, true, &found)) {
        struct twill_promotion *p =
            found.promoted ? take(found.context, found.memory, &owner) : NULL;
        if (p != NULL)
            (void)demote(owner, p, keeps, &none);
    }
    leave_process();
}

bool twill_promoted_watch(const struct twill_preloaded *preloaded)
{
    enter_process();
    bool hooked = hook_forks();
    leave_process();
    return hooked && preloaded->watched->watch(before_free, preloaded->least);
}

void twill_promoted_unwatch(const struct twill_preloaded *preloaded)
{
    preloaded->watched->unwatch(before_free);
}

void twill_promoted_note(struct twill_context *context, void *memory, size_t bytes)
{
    struct twill_error none = {0};
    const struct twill_heap *heap = &context->memory->heap;
    if (bytes < context->memory->preloaded.promotes || heap->region == NULL || heap->fenced ||
        twill_heap_offset(heap, memory, bytes) != TWILL_HEAP_NOWHERE ||
        !count_call(context, memory, bytes) || promote(context, memory, bytes, &none) == TWILL_OK)
        return;
    pthread_mutex_lock(&process.noted_lock);
    for (unsigned i = 0; i < NOTED; i++)
        if (is_noted(&process.noted[i], context, memory, bytes))
            process.noted[i].promoted = false;
    pthread_mutex_unlock(&process.noted_lock);
}

/* Free the copy for children, as the contents are about to change, unless a fork is under way. */
static void drop_child_before_call(struct moved *p)
{
    if (p->child == NULL || !try_enter_process())
        return;
    drop_child(p);
    leave_process();
}

bool twill_promoted_find(struct twill_context *context, const void *memory, size_t bytes,
                         struct twill_promoted *found)
{
    const unsigned char *at = memory;
    twill_context_lock(context);
    struct twill_promotion *p = context->memory->promotions;
    while (p != NULL && (p->moved == NULL || p->moved->from == NULL || at < p->memory ||
                         bytes > p->bytes || at > p->memory + (p->bytes - bytes)))
        p = p->next;
    bool is = p != NULL && are_in_place(p->moved, at, at + bytes);
    if (is) {
        const unsigned char *from = p->moved->from, *to = p->moved->to;
        found->at = p->moved->alias + (at - from);
        found->head = at < from ? twill_min(bytes, (size_t)(from - at)) : 0;
        found->tail =
            at + bytes > to ? twill_min(bytes - found->head, (size_t)(at + bytes - to)) : 0;
        drop_child_before_call(p->moved);
    }
    twill_context_unlock(context);
    return is;
}

void twill_promoted_forget(struct twill_context *context)
{
    for (struct twill_promotion *p = context->memory->promotions; p != NULL; p = p->next)
        twill_context_forget_memory(context, p->memory, p->bytes);
}

/* Make all moved pages of a context private. Returns TWILL_OK or TWILL_ERR_MEMORY. */
static twill_status fence(struct twill_context *context, struct twill_error *error)
{
    for (struct twill_promotion *p = context->memory->promotions; p != NULL; p = p->next) {
        struct moved *moved = p->moved;
        if (moved == NULL || moved->from == NULL)
            continue;
        if (is_in_place(moved))
            TWILL_TRY(error, make_private(moved->from, moved->to, true, error));
        drop_child(moved);
        twill_context_lock(context);
        moved->from = moved->to = NULL;
        twill_context_unlock(context);
    }
    return TWILL_OK;
}

twill_status twill_promoted_fence(struct twill_context *context, struct twill_error *error)
{
    enter_process();
    twill_status status = fence(context, error);
    leave_process();
    return status;
}

void twill_promoted_clear(struct twill_context *context)
{
    struct twill_error none = {0};
    struct twill_promotion *p;
    enter_process();
    forget_noted(context);
    (void)fence(context, &none);
    while ((p = context->memory->promotions) != NULL) {
        context->memory->promotions = p->next;
        if (p->moved != NULL && --p->moved->users == 0)
            free_moved(p->moved);
        free(p);
    }
    leave_process();
}
